"""The tables of lesson 10: they belong to this plan and this code; one cell of each once more; how they are made."""

import json
from statistics import mean

import pytest
import torch

from course_utils.authoring import evidence, known_causes
from course_utils.lessons import methods
from course_utils.lessons.blind import add, fresh_pictures
from course_utils.scenes.scene import SIZE
from course_utils.vision.networks import PictureNet, load_classifier, load_picture_net
from course_utils.vision.real import REAL
from course_utils.vision.saliency import relu, upsample
from course_utils.vision.scores import grow

PLAN, RESULTS = evidence.read_plan(), methods.read_evidence()
AGAIN = "the plan or the code has changed since: run `make evidence`"


def test_the_results_belong_to_this_plan_and_this_code():
    made_by = RESULTS["made by"]
    assert made_by["plan"] == evidence.hash_of(PLAN), AGAIN
    assert made_by["code"] == evidence.hash_code(), AGAIN
    assert made_by["training"] == pytest.approx(evidence.try_training(), abs=0.02), AGAIN


def scores_of(model, kind):
    """The shares of HiResCAM on the truth of a kind of network, and in which pictures its causes are proved."""
    experiment, images, truth = evidence.lay_out(PLAN, kind)
    questions, half = known_causes.ask_fish(model, images, truth), known_causes.second_half(model)
    hires_cam = evidence.read_methods()["HiResCAM"]
    maps = [hires_cam(half, "start", each.activation, each.target) for each in questions]
    return known_causes.score(maps, questions).share, experiment.proves(model)


@pytest.mark.slow
def test_a_cell_of_the_table_of_causes_once_more():
    cell = RESULTS["causes"]["the stamp"]["methods"]["HiResCAM"]["share"]
    share, proved = scores_of(load_picture_net(2), "the stamp")
    assert share[proved].mean().item() == pytest.approx(cell["shipped"], abs=0.005)
    random = [scores_of(methods.randomise(PictureNet(), seed), "the stamp")[0].mean().item() for seed in range(8)]
    assert [min(random), max(random)] == pytest.approx(cell["random"], abs=0.005)


@pytest.mark.slow
def test_a_cell_of_the_table_of_collages_once_more():
    network, layer = load_classifier(REAL), PLAN["real layers"]["none"]
    half, questions = known_causes.second_half_of_real(network, layer), known_causes.ask_collages(network, layer)
    parts = [known_causes.parts_of_places(half, each.activation, each.target) for each in questions]
    for each, part in zip(questions, parts, strict=True):
        logit = network.model(network.transform(each.picture)[None])[0, each.target]
        assert part.mean().item() == pytest.approx(logit.item(), abs=1e-3), "the logit is the mean of its parts"
    cell = RESULTS["collages"]["none"]["methods"]["f(A_p)"]
    assert known_causes.score(parts, questions).share.mean().item() == pytest.approx(cell["share"], abs=0.005)
    constant, maps = half(0 * questions[0].activation)[0], evidence.explain(half, questions)
    maps["f(A_p) - f(0)"] = [part - constant[each.target] for part, each in zip(parts, questions, strict=True)]
    empty = {name: sum((each <= 0).all().item() for each in found) for name, found in maps.items()}
    told = {"Grad-CAM": 7, "Integrated Gradients": 3, "occlusion on maps": 3, "f(A_p) - f(0)": 2}
    assert {name: count for name, count in empty.items() if count} == told
    uniform = network.number_of("military uniform")
    assert round(constant[uniform].item()) == 17
    assert max(half(each.activation)[0, uniform] for each in questions if each.target == uniform) < 4
    shares = known_causes.score(maps["Grad-CAM"], questions).share
    assert shares[shares > 0].min() > 0.995, "its other five lie wholly in the correct half"


@pytest.mark.slow
def test_a_cell_of_the_table_of_probes_once_more():
    read = evidence.measure_probe(PLAN, methods.randomise(PictureNet(), 0))["read"]
    for task, found in RESULTS["probes"]["random"]["networks"].items():
        assert mean(read[task]) == pytest.approx(found[0], abs=0.02)


def test_two_of_the_seven_maps_that_the_lesson_shows_are_bright_far_from_the_stamp():
    stamped = add(add(add(fresh_pictures(1, seed=31), "fish"), "buoy"), "stamp")
    far = ~grow(stamped.masks("stamp"), 20)
    found = known_causes.ask_fish(load_picture_net(2), stamped.images, far)
    maps = evidence.explain(known_causes.second_half(load_picture_net(2)), found)
    heat = {name: upsample(relu(each[0])[None], far.shape[1:]) for name, each in maps.items()}
    bright = [name for name, each in heat.items() if each[far].max() > 0.3 * each.max()]
    assert bright == ["Grad-CAM", "Grad-CAM++"]
    assert all(each[far].max() < 0.15 * each.max() for name, each in heat.items() if name not in bright)


@pytest.mark.parametrize(("layer", "behind"), [("blocks.5.2", 2), ("blocks.6.0.bn2", 0)])
def test_a_second_half_ends_with_the_logits_of_the_network(layer, behind):
    network = load_classifier(REAL)
    (each, *_), half = known_causes.ask_collages(network, layer), known_causes.second_half_of_real(network, layer)
    assert torch.allclose(half(each.activation), network.model(network.transform(each.picture)[None]), atol=1e-3)
    kernels = [part.kernel_size for part in half.modules() if isinstance(part, torch.nn.Conv2d)]
    assert sum(kernel != (1, 1) for kernel in kernels) == behind, "convolutions that mix places"


def test_an_experiment_proves_what_the_answer_rests_on_and_nothing_else():
    pictures, model = fresh_pictures(8, seed=77), load_picture_net(2)
    there = ["fish", "buoy", "stamp"]
    proved = {
        cause: known_causes.plan_experiment(pictures, there, [cause]).proves(model).float().mean() for cause in there
    }
    assert proved["stamp"] > 0.7
    assert proved["fish"] == proved["buoy"] == 0
    either = known_causes.plan_experiment(pictures, there, ["buoy", "stamp"])
    truth, masks = either.truth(0.05, 0), either.full.masks("buoy") | either.full.masks("stamp")
    assert not (truth & ~grow(masks, 12)).any(), "where the causes are, with the buoy's shadow"
    assert ((truth & masks).sum() / masks.sum()) > 0.8


def test_edges_are_where_a_picture_changes():
    picture = torch.zeros(3, SIZE, SIZE)
    picture[:, :, 56:] = 1
    question = known_causes.Question(torch.rand(1, 1, 14, 14), 0, picture[0] > 0, picture)
    edges = known_causes.find_edges(question)
    assert edges.nonzero()[:, 1].unique().tolist() == [6], "the difference to the right neighbour"


def test_what_the_scores_count():
    question = known_causes.Question(torch.rand(1, 1, 2, 2), 0, torch.eye(2).bool(), torch.rand(3, 2, 2))
    found = known_causes.score([torch.tensor([[3.0, 1.0], [-5.0, 1.0]])], [question])
    assert (found.point.item(), found.share.item()) == (1, 4 / 5)


def test_an_interval_has_a_width_where_all_are_equal_and_ignores_what_does_not_count():
    t = 2.0227  # Student's, 39 degrees of freedom
    assert evidence.estimate(torch.ones(5, 40).double()) == pytest.approx([1, 40 / (40 + t**2), 1], abs=0.001)
    values = torch.rand(5, 40, generator=torch.Generator().manual_seed(0)).double()
    with_gap = torch.cat([values, torch.full((5, 1), torch.nan)], 1)
    assert evidence.estimate(with_gap) == evidence.estimate(values)
    assert evidence.estimate_difference(values, values) == pytest.approx([0, -0.093, 0.093], abs=0.005)


def test_the_interval_of_networks_that_differ_contains_the_mean_of_all_networks_nearly_always():
    rng, hits = torch.Generator().manual_seed(1), 0
    for _ in range(200):
        networks, pictures = torch.randn(5, 1, generator=rng), torch.randn(1, 40, generator=rng)
        values = 0.5 + 0.05 * networks + 0.05 * pictures + 0.05 * torch.randn(5, 40, generator=rng)
        _, low, high = evidence.estimate(values.double())
        hits += low <= 0.5 <= high
    assert 180 <= hits <= 200, "95 % of 200 is 190"


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path, monkeypatch):
    done, stop = [], [True]

    def part(name):
        done.append(name)
        if name == "second" and stop:
            raise KeyboardInterrupt
        return {"found": name}

    parts = {name: lambda name=name: part(name) for name in ("first", "second")}
    monkeypatch.setattr(evidence, "list_parts", lambda plan, folder: parts)
    monkeypatch.setattr(evidence, "summarise", lambda plan, found: {"parts": found})
    monkeypatch.setattr(evidence, "try_training", lambda: [0.5])
    run = (tmp_path / "kept", evidence.PLAN, tmp_path / "results.json")
    with pytest.raises(KeyboardInterrupt):
        evidence.main(*run)
    stop.clear()
    assert evidence.main(*run) == 0
    assert done == ["first", "second", "second"]
    assert json.loads(run[2].read_text())["parts"]["second"] == {"found": "second"}
