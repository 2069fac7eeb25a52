"""Score the methods of lesson 10 by what networks provably rest on: `make evidence`.

The questions, measures, sizes and seeds stand in `PLAN`, which was committed before any result. Each network is
trained, proved and measured by itself, and kept in build/evidence, so that a run that was stopped goes on where it was.
`RESULTS` has the summary, with the hashes of the plan and of the code, and no weights.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from course_utils.authoring import known_causes, train
from course_utils.authoring.known_causes import START, Experiment, Question
from course_utils.authoring.source import FOLDER, read_source
from course_utils.lessons import methods
from course_utils.lessons.blind import fresh_pictures
from course_utils.lessons.evidence import COLLAGE
from course_utils.lessons.methods import EVIDENCE
from course_utils.root import ASSETS, ROOT, CourseError, write_whole
from course_utils.scenes.scene import scene
from course_utils.vision import saliency, scores
from course_utils.vision.networks import PictureNet, compute_logits, load_classifier, load_picture_net, picture_net_file
from course_utils.vision.real import REAL

PLAN, RESULTS = ASSETS / "evidence_plan.json", EVIDENCE
KEPT = ROOT / "build" / "evidence"
LESSON = FOLDER / "source" / "10_where_next.py"
DEFINES = re.compile(r"(@torch\.no_grad\(\)\n)?def (run_with|grad_cam|integrated|smooth_grad|occlusion)|by_name = ")
SCORES = ("point", "share")
# What each place gives to the logit, where no convolution mixes places; and the same without its constant.
EXACT = ("f(A_p)", "f(A_p) - f(0)")
# Beside these, this file, `known_causes` and the lesson's cells. `try_training` stands for what draws and trains.
CODE = (
    *(train._fit, train._vary),
    *(methods.randomise, methods.draw_album, methods.draw_numbers, methods.channel_means, methods.fit_probe),
    *(saliency.upsample, scores.point, scores.points_at, scores.energy_inside, scores.grow),
)

Plan = dict[str, Any]
Found = dict[str, Any]  # what JSON can hold


def main(folder: Path = KEPT, plan_file: Path = PLAN, results: Path = RESULTS) -> int:
    """Train and measure what the plan says, and write the summary; returns the exit status."""
    plan, code = read_plan(plan_file), hash_code()
    kept, parts = folder / hash_of(plan, code), {}
    for name, measure in (bar := tqdm(list_parts(plan, folder).items(), unit="part")):
        bar.set_description(name)
        path = kept / f"{name}.json"
        if not path.is_file():
            write_whole(path, json.dumps(measure()))
        parts[name] = json.loads(path.read_text(encoding="utf-8"))
    seeds = {name: plan[name] for name in ("seeds", "random seeds")}
    made_by = {"plan": hash_of(plan), **seeds, "code": code, "training": try_training()}
    write_whole(results, _write_json({"made by": made_by, **summarise(plan, parts)}) + "\n")
    return 0


def read_plan(path: Path = PLAN) -> Plan:
    """The plan, without what was changed afterwards."""
    plan = json.loads(path.read_text(encoding="utf-8"))
    del plan["afterwards"]
    return plan


def hash_of(*parts: object) -> str:
    """A short hash of texts and of what JSON can hold."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def hash_code() -> dict[str, str]:
    """The hash of each piece of code that makes results, by its name."""
    found = {f"{each.__module__}.{each.__qualname__}": hash_of(inspect.getsource(each)) for each in CODE}
    whole = {each.__name__: hash_of(inspect.getsource(each)) for each in (sys.modules[__name__], known_causes)}
    return {"the methods of lesson 10": hash_of(*_method_cells()), **whole, **found}


def try_training() -> list[float]:
    """The logits for one picture after a single step of training, which show whether pictures and training changed."""
    model = train.train(3, train.Recipe(pairs=60, alone=3, empty=1, epochs=1))
    return [round(logit, 4) for logit in compute_logits(model, scene("cat", "fish", seed=0).image[None])[0].tolist()]


def _write_json(found: Found) -> str:
    text = json.dumps(found, indent=1, ensure_ascii=False)
    return re.sub(r"\[[^\[\]{}]*\]", lambda each: " ".join(each[0].split()), text)  # a list of numbers is one line


# --- the methods, as the lesson teaches them --------------------------------------------------------------------------


def _method_cells() -> list[str]:
    cells = read_source(LESSON).cells
    return [cell.source for cell in cells if cell.cell_type == "code" and DEFINES.match(cell.source)]


@cache
def read_methods() -> dict[str, known_causes.Method]:
    """The methods that the cells of lesson 10 define, by the names that the lesson gives them."""
    names: dict[str, Any] = {"torch": torch, "F": F}
    exec("\n\n".join(_method_cells()), names)
    return names["by_name"]


# --- networks ---------------------------------------------------------------------------------------------------------


def train_network(plan: Plan, kind: str, seed: int, folder: Path = KEPT) -> PictureNet:
    """Train a network of the plan, or load it from the folder if it has been trained there."""
    network = plan["networks"][kind]
    code = [inspect.getsource(each) for each in (train._fit, train._vary)]
    number, kept = network["number"], folder / hash_of(network, seed, code)
    path = picture_net_file(number, kept)
    if not path.is_file():
        train.save_weights(train.train(number, train.Recipe(**network["recipe"], seed=seed)), path)
    return load_picture_net(number, kept)


# --- parts: what is measured by itself --------------------------------------------------------------------------------


def list_parts(plan: Plan, folder: Path = KEPT) -> dict[str, Callable[[], Found]]:
    """What is to be measured, by name: each network of the plan, each random one, edges, and the real network."""
    found: dict[str, Callable[[], Found]] = {}
    for kind, network in plan["networks"].items():
        found[f"{kind}, shipped"] = partial(_measure_shipped, plan, kind, network["number"])
    for seed in plan["random seeds"]:
        found[f"random {seed}"] = partial(_measure_random, plan, seed)
    found |= {"edges": partial(measure_edges, plan), "collages": partial(measure_collages, plan)}
    for seed in plan["seeds"]:
        for kind in plan["networks"]:
            found[f"{kind}, {seed}"] = partial(_measure_trained, plan, kind, seed, folder)
    return found


def _measure_shipped(plan: Plan, kind: str, number: int) -> Found:
    return measure_maps(plan, load_picture_net(number), [kind])


def _measure_trained(plan: Plan, kind: str, seed: int, folder: Path) -> Found:
    model = train_network(plan, kind, seed, folder)
    found = measure_maps(plan, model, [kind])
    if not any(found[kind]["proved"]):
        raise CourseError(f"the network of {kind}, seed {seed}, rests on it in no picture: its recipe is too short")
    return found | measure_probe(plan, model) if kind == plan["probe"]["network"] else found


def _measure_random(plan: Plan, seed: int) -> Found:
    model = methods.randomise(PictureNet(), seed)
    return measure_maps(plan, model, [*plan["networks"]], prove=False) | measure_probe(plan, model)


@cache
def _lay_out(plan_text: str, kind: str) -> tuple[Experiment, Tensor, Tensor]:
    plan = json.loads(plan_text)
    given = plan["pictures"]
    pictures = fresh_pictures(given["count"], given["seed"])
    experiment = known_causes.plan_experiment(pictures, given["there"], plan["networks"][kind]["causes"])
    return experiment, experiment.full.images, experiment.truth(given["visible"], given["grown"])


def lay_out(plan: Plan, kind: str) -> tuple[Experiment, Tensor, Tensor]:
    """The experiment on one kind of network, its full pictures (N, 3, H, W), and the truth in them (N, H, W)."""
    return _lay_out(json.dumps(plan), kind)


def measure_maps(plan: Plan, model: PictureNet, kinds: Sequence[str], prove: bool = True) -> Found:
    """Score all methods on a network by the causes of `kinds`; `gaps` say how complete Integrated Gradients is.

    prove: whether only the pictures count in which the experiment proves these causes.
    """
    half, found = known_causes.second_half(model), {}
    maps = explain(half, known_causes.ask_fish(model, *lay_out(plan, kinds[0])[1:]))
    for kind in kinds:
        experiment, images, truth = lay_out(plan, kind)
        questions = known_causes.ask_fish(model, images, truth)
        proved = experiment.proves(model) if prove else torch.ones(len(images), dtype=torch.bool)
        scored = {name: _round(known_causes.score(each, questions)) for name, each in maps.items()}
        found[kind] = {"proved": proved.tolist(), "scores": scored}
    return found | {"gaps": find_gaps(half, questions, maps["Integrated Gradients"])}


def explain(half: nn.Module, questions: Sequence[Question]) -> dict[str, list[Tensor]]:
    """The map (h, w) of each method for each question."""
    return {
        name: [method(half, START, each.activation, each.target).detach() for each in questions]
        for name, method in read_methods().items()
    }


@torch.no_grad()
def find_gaps(half: nn.Module, questions: Sequence[Question], parts: Sequence[Tensor]) -> list[list[float]]:
    """For each question, what the logit gains over all zeros, and how far the parts are from adding up to it."""
    found = []
    for each, part in zip(questions, parts, strict=True):
        without, logit = half(torch.cat([0 * each.activation, each.activation]))[:, each.target]
        gain = (logit - without).item()
        found.append([round(gain, 4), round(abs(part.sum().item() - gain), 4)])
    return found


def _incomplete(gaps: Sequence[Sequence[float]]) -> Found:
    """In how many questions the parts miss the gain by more than 1 %, and the largest miss, in units of the logit."""
    over = sum(gap > 0.01 * abs(gain) for gain, gap in gaps)
    return {"questions": len(gaps), "incomplete": over, "largest gap": max(gap for _, gap in gaps)}


def _round(found: known_causes.Scores) -> Found:
    return {name: [round(each, 4) for each in getattr(found, name).tolist()] for name in SCORES}


def measure_edges(plan: Plan) -> Found:
    """Score the edges of the pictures, which know no network, and say which share of the pictures the truth covers."""
    found = {}
    for kind in plan["networks"]:
        _, images, truth = lay_out(plan, kind)
        questions = known_causes.ask_fish(load_picture_net(), images, truth)
        scored = _round(known_causes.score([known_causes.find_edges(each) for each in questions], questions))
        found[kind] = {"chance": scores.chance(truth), "scores": scored}
    return found


def measure_probe(plan: Plan, model: PictureNet) -> Found:
    """Which backgrounds of new pictures, and control numbers, a probe reads off the means of a layer's channels."""
    probe = plan["probe"]
    album, known = _draw_album(probe["learn"] + probe["test"], probe["seed"]), slice(0, probe["learn"])
    features = methods.channel_means(model, probe["layer"], album.images)

    def read(answers: Tensor) -> Tensor:
        reads = methods.fit_probe(features[known], answers[known])
        return (reads(features[known.stop :]) == answers[known.stop :]).double()

    control = [read(numbers) for numbers in _draw_controls(plan)]
    return {"read": {"background": read(album.background).tolist(), "control": torch.stack(control).mean(0).tolist()}}


_draw_album = cache(methods.draw_album)


def _draw_controls(plan: Plan) -> list[Tensor]:
    count = plan["probe"]["learn"] + plan["probe"]["test"]
    return [methods.draw_numbers(count, seed) for seed in range(plan["probe"]["controls"])]


def measure_collages(plan: Plan) -> Found:
    """Score all methods on the real network, at each layer, and the exact parts of places where these are known."""
    network, found = load_classifier(REAL), {}
    for words, layer in plan["real layers"].items():
        half, questions = known_causes.second_half_of_real(network, layer), known_causes.ask_collages(network, layer)
        maps = explain(half, questions)
        if words == "none":
            constant = half(0 * questions[0].activation).detach()[0]
            maps[EXACT[0]] = [known_causes.parts_of_places(half, each.activation, each.target) for each in questions]
            maps[EXACT[1]] = [part - constant[q.target] for part, q in zip(maps[EXACT[0]], questions, strict=True)]
        found[words] = {
            "scores": {name: _round(known_causes.score(each, questions)) for name, each in maps.items()},
            "gaps": find_gaps(half, questions, maps["Integrated Gradients"]),
        }
    return found


# --- the summary ------------------------------------------------------------------------------------------------------


def estimate(values: Tensor) -> list[float]:
    """The mean of values in [0, 1] and its 95 % interval, for other networks and other pictures: [mean, low, high].

    values: (networks, pictures) float64, nan where a picture does not count. The variance of the mean is that of the
    networks' means plus that of the pictures' means, each divided by their number; Student's t has the degrees of
    freedom of Satterthwaite (1946), and the interval has the form of Wilson (1927).
    """
    from scipy.stats import t as student  # seconds to import

    mean, parts = values.nanmean().item(), []
    for means in (values.nanmean(1), values.nanmean(0)):
        means = means[~means.isnan()]
        if len(means) > 1:
            parts.append((means.var().item() / len(means), len(means) - 1))
    variance = sum(part for part, _ in parts)
    if variance > 1e-12:
        freedom = variance**2 / sum(part**2 / count for part, count in parts)
        answers = mean * (1 - mean) / variance
    else:  # all are equal: each picture counts as one answer
        answers, freedom = values.shape[1], values.shape[1] - 1
    z = float(student.ppf(0.975, freedom))
    centre, scale = mean + z**2 / (2 * answers), 1 + z**2 / answers
    reach = z * math.sqrt(mean * (1 - mean) / answers + z**2 / (4 * answers**2))
    return [round(each, 3) for each in (mean, (centre - reach) / scale, (centre + reach) / scale)]


def estimate_difference(one: Tensor, other: Tensor) -> list[float]:
    """The same for the difference of paired values: [mean, low, high], in [-1, 1]."""
    difference = one - other
    if difference[~difference.isnan()].any():
        return [round(2 * each - 1, 3) for each in estimate((difference + 1) / 2)]
    _, _, reach = estimate(difference)  # the share of pictures in which they could differ, though none was seen
    return [0.0, -reach, reach]


def summarise(plan: Plan, parts: dict[str, Found]) -> Found:
    """The three tables, from all parts."""
    seeds = [f"random {seed}" for seed in plan["random seeds"]]
    random = [parts[seed] for seed in seeds]
    causes = {kind: _summarise_kind(plan, kind, parts, random) for kind in plan["networks"]}
    return {
        "causes": causes,
        "collages": _summarise_collages(parts["collages"]),
        "probes": _probes(plan, parts, random),
    }


def _values(found: Sequence[Found], kind: str, method: str, name: str) -> Tensor:
    """The scores (networks, pictures) of a method, nan where the picture proves nothing."""
    given = torch.tensor([each[kind]["scores"][method][name] for each in found], dtype=torch.float64)
    return given.where(torch.tensor([each[kind]["proved"] for each in found]), torch.nan)


def _summarise_kind(plan: Plan, kind: str, parts: dict[str, Found], random: Sequence[Found]) -> Found:
    trained = [parts[f"{kind}, {seed}"] for seed in plan["seeds"]]
    shipped, edges = parts[f"{kind}, shipped"], parts["edges"][kind]
    table = {name: _summarise_method(kind, name, trained, shipped, random) for name in read_methods()}
    edged = {name: estimate(torch.tensor([edges["scores"][name]], dtype=torch.float64)) for name in SCORES}
    compare = partial(_compare, trained, kind)
    return {
        "proved": [_mean(each[kind]["proved"]) for each in trained],
        "integrated gradients": _incomplete([gap for each in trained for gap in each["gaps"]]),
        "chance": round(edges["chance"], 3),
        "methods": table,
        "edges": edged,
        "pairs": {f"{one} minus {other}": compare(one, other) for one, other in plan["pairs"]},
        "first": {name: _name_first(table, name, compare) for name in SCORES},
    }


def _summarise_method(
    kind: str, method: str, trained: Sequence[Found], shipped: Found, random: Sequence[Found]
) -> Found:
    found = {}
    for name in SCORES:
        values = _values(trained, kind, method, name)
        untrained = _values(random, kind, method, name).nanmean(1)
        found[name] = {
            "estimate": estimate(values),
            "networks": [round(each, 3) for each in values.nanmean(1).tolist()],
            "shipped": round(_values([shipped], kind, method, name).nanmean().item(), 3),
            "random": [round(untrained.min().item(), 3), round(untrained.max().item(), 3)],
        }
    return found


def _compare(trained: Sequence[Found], kind: str, one: str, other: str) -> Found:
    return {
        name: estimate_difference(*(_values(trained, kind, method, name) for method in (one, other))) for name in SCORES
    }


def _name_first(table: Found, name: str, compare: Callable[[str, str], Found]) -> Found:
    """The method with the greatest mean, the next one, and their difference."""
    one, other = sorted(table, key=lambda method: table[method][name]["estimate"][0], reverse=True)[:2]
    return {"method": one, "next": other, "difference": compare(one, other)[name]}


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 3)


def _summarise_collages(found: Found) -> Found:
    """The means of each method, and of the photographs' means of shares the lowest and highest."""
    about = [name for pair in combinations(COLLAGE, 2) for name in pair]  # the photograph of each question
    table: Found = {}
    for layer, given in found.items():
        table[layer] = {"integrated gradients": _incomplete(given["gaps"]), "methods": {}}
        for method, scored in given["scores"].items():
            asked = list(zip(about, scored["share"], strict=True))
            photos = [_mean([share for each, share in asked if each == photo]) for photo in COLLAGE]
            means = {name: _mean(scored[name]) for name in SCORES}
            table[layer]["methods"][method] = {**means, "photographs": [min(photos), max(photos)]}
    return table


def _probes(plan: Plan, parts: dict[str, Found], random: Sequence[Found]) -> Found:
    trained = [parts[f"{plan['probe']['network']}, {seed}"] for seed in plan["seeds"]]
    album = _draw_album(plan["probe"]["learn"] + plan["probe"]["test"], plan["probe"]["seed"])
    tasks = {"background": [album.background], "control": _draw_controls(plan)}
    found: Found = {"commonest": {}}
    for task, answers in tasks.items():
        shares = [each[plan["probe"]["learn"] :].bincount().max().item() / plan["probe"]["test"] for each in answers]
        found["commonest"][task] = _mean(shares)
    for name, networks in {"trained": trained, "random": random}.items():
        read = {task: torch.tensor([each["read"][task] for each in networks]).double() for task in tasks}
        found[name] = {task: estimate(values) for task, values in read.items()}
        found[name]["selectivity"] = estimate_difference(read["background"], read["control"])
        found[name]["networks"] = {task: [_mean(row) for row in values.tolist()] for task, values in read.items()}
    return found
