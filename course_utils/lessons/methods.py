"""What lesson 10 shows and measures: recorded tables, maps side by side, probes, tokens.

The methods themselves stand in the lesson. Each is a function `method(model, layer, image, target)`, which returns a
map (h, w) with a sign: above 0 where a place speaks for the target.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.lessons.channels import tells as tells
from course_utils.lessons.evidence import show_tiles
from course_utils.lessons.two_heads import encode, make_two_head_block
from course_utils.root import ASSETS
from course_utils.scenes.scene import BACKGROUNDS, KINDS, scene
from course_utils.vision.networks import load_classifier
from course_utils.vision.patching import output_of
from course_utils.vision.pictures import Picture, draw_heat
from course_utils.vision.real import photograph
from course_utils.vision.saliency import relu, scale_to_unit, upsample
from course_utils.vision.scores import seeded

EVIDENCE = ASSETS / "evidence.json"  # what `make evidence` found
SENTENCE = ("the", "cat", "saw", "the", "dog")
VIT, VIT_BLOCK = "vit_b_16", "encoder.layers.encoder_layer_11"
VIT_FILE = "vit_b_16-c867db91.pth"  # torchvision knows its name, and takes two seconds to be imported


# --- the recorded tables ----------------------------------------------------------------------------------------------


def read_evidence() -> dict[str, Any]:
    """What `make evidence` found: the tables `causes`, `collages` and `probes`, and by what they were `made by`."""
    return json.loads(EVIDENCE.read_text(encoding="utf-8"))


def print_causes(causes: Mapping[str, Any], name: str) -> None:
    """Print the "point" or the "share" of each method for each kind of network, in percent, with its interval."""
    rows = {method: [] for method in next(iter(causes.values()))["methods"]}
    rows |= {"(edges)": [], "(random networks)": [], "(chance)": []}
    for found in causes.values():
        for method, scored in found["methods"].items():
            rows[method].append(_say_estimate(scored[name]["estimate"]))
        untrained = [each for scored in found["methods"].values() for each in scored[name]["random"]]
        rows["(edges)"].append(_say_estimate(found["edges"][name]))
        rows["(random networks)"].append(f"{_percent(min(untrained))} to {_percent(max(untrained))}")
        rows["(chance)"].append(_percent(found["chance"]))
    _print_rows(name, causes, rows)


def print_shipped(causes: Mapping[str, Any], name: str) -> None:
    """Print the "point" or the "share" of each method on the course's own network of each kind, in percent."""
    tables = [found["methods"] for found in causes.values()]
    rows = {method: [_percent(each[method][name]["shipped"]) for each in tables] for method in tables[0]}
    _print_rows(f"{name}, A to D", causes, rows)


def print_differences(causes: Mapping[str, Any], name: str) -> None:
    """Print how methods differ by a score, in each kind of network: the planned pairs, and the first and the next."""
    for kind, found in causes.items():
        print(f"{name}, networks that rest on {kind}")
        first = found["first"][name]
        pairs = {pair: scored[name] for pair, scored in found["pairs"].items()}
        pairs[f"first, {first['method']}, minus {first['next']}"] = first["difference"]
        for pair, (mean, low, high) in pairs.items():
            print(f"  {pair:58}{100 * mean:+4.0f}, interval {100 * low:+4.0f} to {100 * high:+4.0f}")


def print_collages(collages: Mapping[str, Any]) -> None:
    """Print both scores of each method on the collages, at each layer, and the range of the photographs' shares."""
    rows = {method: [] for found in collages.values() for method in found["methods"]}
    for method, cells in rows.items():
        for found in collages.values():
            scored = found["methods"].get(method)
            cells += map(_percent, [scored["point"], scored["share"], *scored["photographs"]]) if scored else [""] * 4
    print(f"{'':21}" + "".join(f"{layer:>40}" for layer in collages))
    _print_rows("", ("point", "share", "lowest", "highest") * len(collages), rows, width=10)


def print_probes(probes: Mapping[str, Any]) -> None:
    """Print how much a probe reads of each task in trained and in random networks, and the selectivity, in percent."""
    tasks = ("background", "control", "selectivity")
    rows = {f"{name} weights": [_say_estimate(probes[name][task]) for task in tasks] for name in ("trained", "random")}
    rows["(commonest answer)"] = [_percent(share) for share in probes["commonest"].values()]
    _print_rows("", tasks, rows)


def _print_rows(corner: str, columns: Iterable[str], rows: Mapping[str, Sequence[str]], width: int = 16) -> None:
    for name, cells in {corner: columns, **rows}.items():
        print(f"{name:21}" + "".join(f"{cell:>{width}}" for cell in cells))


def _say_estimate(estimate: Sequence[float]) -> str:
    mean, low, high = map(_percent, estimate)
    return f"{mean} ({low} to {high})"


def _percent(share: float) -> str:
    return f"{100 * share + 0.0:.0f}"


def show_maps(picture: Tensor, maps: Mapping[str, Tensor], title: str, truth: Tensor | None = None) -> Picture:
    """Show the positive parts of maps (h, w) over one picture (3, H, W), each stretched to its own greatest value."""
    heat = {
        name: scale_to_unit(upsample(relu(each.detach())[None], picture.shape[1:]))[0] for name, each in maps.items()
    }
    tiles = [draw_heat(picture, each, truth) for each in heat.values()]
    hottest = []
    for name, each in heat.items():
        row, column = divmod(each.argmax().item(), each.shape[1])
        where = f"{'upper' if 2 * row < len(each) else 'lower'} {'left' if 2 * column < each.shape[1] else 'right'}"
        hottest.append(f"{name} {where}")
    tiles.insert(0, draw_heat(picture, None, truth))
    alt = f"A picture and {len(maps)} heat maps over it. Where they are hottest: {', '.join(hottest)}."
    return show_tiles(tiles, ["the picture", *maps], title=title, alt=alt)


# --- channels and probes ----------------------------------------------------------------------------------------------


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """A copy of the network with other, random weights: it has the same layers and has learned nothing."""
    twin = copy.deepcopy(model)
    with seeded(seed):
        for module in twin.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    return twin.eval()


class Drawn(NamedTuple):
    """Pictures of two things each, every pair of kinds as often, and what is known of them."""

    images: Tensor  # (N, 3, H, W) in [0, 1]
    there: Tensor  # (N, len(KINDS)) bool: which kinds are seen
    background: Tensor  # (N,) the number of the background in BACKGROUNDS
    drawn: Tensor  # (N,) a number from 0 to 4 that belongs to the pair of kinds, and was drawn by chance


def draw_album(count: int, seed: int) -> Drawn:
    """Draw `count` pictures; the pairs of kinds take turns."""
    pairs = list(combinations(KINDS, 2))
    pictures = [scene(*pairs[n % len(pairs)], seed=seed + n) for n in range(count)]
    there = torch.tensor([[kind in each.labels for kind in KINDS] for each in pictures])
    background = torch.tensor([BACKGROUNDS.index(each.background) for each in pictures])
    return Drawn(torch.stack([each.image for each in pictures]), there, background, draw_numbers(count))


def draw_numbers(count: int, seed: int = 0) -> Tensor:
    """The control task of an album (Hewitt & Liang 2019): a number from 0 to 4, drawn for each pair of kinds, (N,)."""
    pairs = len(KINDS) * (len(KINDS) - 1) // 2
    by_pair = torch.randint(len(BACKGROUNDS), (pairs,), generator=torch.Generator().manual_seed(seed))
    return by_pair[torch.arange(count) % pairs]


@torch.no_grad()
def channel_means(model: nn.Module, layer: str, images: Tensor) -> Tensor:
    """The mean of each channel of a layer, (N, C), for many pictures."""
    return torch.cat([output_of(model, layer, part).mean((2, 3)) for part in images.split(60)])


def fit_probe(features: Tensor, answers: Tensor, ridge: float = 10.0) -> Callable[[Tensor], Tensor]:
    """Fit a linear probe to features (N, C) and answers (N,), and return a function that reads answers off features.

    One score a class, by least squares with a penalty on large weights. The function's `weight` is (C, classes).
    """
    mean, std = features.mean(0), features.std(0) + 1e-6

    def prepare(given: Tensor) -> Tensor:
        return F.pad((given - mean) / std, (0, 1), value=1.0).double()

    x, wanted = prepare(features), F.one_hot(answers, len(BACKGROUNDS)).double()
    weight = torch.linalg.solve(x.T @ x + ridge * torch.eye(x.shape[1], dtype=x.dtype), x.T @ wanted)

    def read(given: Tensor) -> Tensor:
        return (prepare(given) @ weight).argmax(1)

    read.weight = (weight[:-1] / std[:, None]).float()
    return read


# --- made pictures, and tokens ----------------------------------------------------------------------------------------


def grey_noise(size: int) -> Tensor:
    """A grey picture with faint noise, (1, 3, size, size)."""
    return 0.5 + 0.05 * torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))


class WordReader(nn.Module):
    """The block of `two_heads` as a network: words in, (N, 2L, 1, L); one logit a word, how much it is there."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__()
        self.block = make_two_head_block(words)
        self.words = list(dict.fromkeys(words))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (N, words)."""
        return self.block(images.flatten(2).mT)[..., : len(self.words)].sum(1)


class Tokens(NamedTuple):
    """A network of tokens, an input for it, and what is asked."""

    note: str
    model: nn.Module
    image: Tensor
    layer: str
    reshape: Callable[[Tensor], Tensor]
    target: int
    attention: nn.MultiheadAttention
    picture: Tensor | None  # (3, H, W), of the ViT

    @torch.no_grad()
    def attend(self) -> Tensor:
        """The attention weights of each head, (heads, L, L)."""
        kept = []

        def ask(module: nn.Module, args: tuple, kwargs: dict) -> tuple:
            return args, {**kwargs, "need_weights": True, "average_attn_weights": False}

        asking = self.attention.register_forward_pre_hook(ask, with_kwargs=True)
        with asking, self.attention.register_forward_hook(lambda module, args, output: kept.append(output[1][0])):
            self.model(self.image)
        return kept[0]

    def show(self, heat: Tensor) -> Picture | None:
        """Show a map (h, w): over the photograph, or as a number for each word."""
        if self.picture is not None:
            return show_maps(self.picture, {"Grad-CAM": heat}, title="Grad-CAM on the tokens of a ViT")
        for word, value in zip(SENTENCE, heat[0].tolist(), strict=True):
            print(f"{word:4}{value:6.2f}")
        return None


def find_tokens(pretrained: bool | str = "if cached") -> Tokens:
    """Return torchvision's ViT with a photograph where its weights are cached, else the block of `two_heads`."""
    if pretrained != "if cached" or vit_is_cached():
        network, picture = load_classifier(VIT, pretrained), photograph("chelsea")
        model, image = network.model, network.transform(picture)[None]
        note = f"{network.note} The question: why Egyptian cat?"
        attention = model.get_submodule(VIT_BLOCK).self_attention
        target = network.number_of("Egyptian cat")
        return Tokens(note, model, image, f"{VIT_BLOCK}.ln_1", tokens_as_maps, target, attention, picture)
    model = WordReader(SENTENCE).eval()
    note = f"The weights of {VIT} are not in torch's cache, so this is a block set by hand. The question: why 'the'?"
    image = encode(SENTENCE).mT[:, :, None]
    return Tokens(note, model, image, "block", words_as_maps, 0, model.block.self_attn, None)


def vit_is_cached() -> bool:
    """Whether torch's cache has the weights of the ViT."""
    return Path(torch.hub.get_dir(), "checkpoints", VIT_FILE).is_file()


def tokens_as_maps(tokens: Tensor) -> Tensor:
    """(N, 1 + 14 · 14, C) to (N, C, 14, 14): the first token stands for no patch."""
    return tokens[:, 1:].mT.unflatten(2, (14, 14))


def words_as_maps(tokens: Tensor) -> Tensor:
    """(N, L, C) to (N, C, 1, L)."""
    return tokens.mT[:, :, None]
