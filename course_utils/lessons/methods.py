"""What lesson 10 measures with: experiments, halves of networks, scores, recorded tables, probes, tokens.

The methods themselves stand in the lesson. Each is a function `method(model, layer, image, target)`, which returns a
map (h, w) with a sign: above 0 where a place speaks for the target.
"""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.lessons.blind import FISH, Album, add, remove
from course_utils.lessons.channels import tells as tells
from course_utils.lessons.evidence import COLLAGE, show_tiles
from course_utils.lessons.two_heads import encode, make_two_head_block
from course_utils.root import ASSETS, require
from course_utils.scenes.scene import BACKGROUNDS, KINDS, scene
from course_utils.vision.networks import Classifier, PictureNet, compute_logits, load_classifier
from course_utils.vision.patching import output_of
from course_utils.vision.pictures import Picture, draw_heat
from course_utils.vision.real import collage, photograph
from course_utils.vision.saliency import relu, scale_to_unit, upsample
from course_utils.vision.scores import energy_inside, grow, points_at, seeded

Method = Callable[[nn.Module, str, Tensor, int], Tensor]
EVIDENCE = ASSETS / "evidence.json"  # what `make evidence` found
START = "start"  # the first layer of a second half, which hands its input on
EDGES = ((2, (0, 1)), (1, (0, 0, 0, 1)))  # along which dimension neighbours differ, and how to make up for the last one
SENTENCE = ("the", "cat", "saw", "the", "dog")
VIT, VIT_BLOCK = "vit_b_16", "encoder.layers.encoder_layer_11"


# --- what an answer provably rests on --------------------------------------------------------------------------------


class Experiment(NamedTuple):
    """Four albums of the same pictures, which differ in suspects alone, to prove what the answer "fish" rests on."""

    empty: Album
    full: Album  # with all suspects that the experiment has
    without: Album  # the full ones without the causes
    alone: Album  # the empty ones with the causes

    def proves(self, model: nn.Module) -> Tensor:
        """Return in which pictures the causes are enough for the answer, and something of them is needed: (N,) bool."""
        full, without, alone = (compute_logits(model, each.images)[:, FISH] > 0 for each in self[1:])
        return full & ~without & alone

    def truth(self, visible: float, grown: float) -> Tensor:
        """Return where the causes are in the full pictures, (N, H, W) bool: all that differs when they are removed.

        visible: the least difference of a colour that counts, of 1. grown: by how many pixels the places are enlarged.
        """
        return grow((self.full.images - self.without.images).abs().amax(1) > visible, grown)


def plan_experiment(pictures: Album, there: Sequence[str], causes: Sequence[str]) -> Experiment:
    """Lay out the experiment that can prove `causes`, among the suspects `there`, on pictures without any of them."""
    full = functools.reduce(add, there, pictures)
    return Experiment(pictures, full, functools.reduce(remove, causes, full), functools.reduce(add, causes, pictures))


# --- the second halves ------------------------------------------------------------------------------------------------


def second_half(net: PictureNet) -> nn.Sequential:
    """All of a picture network behind features.10, as a network of its own; its layer `START` has the maps."""
    behind = [("start", nn.Identity()), ("features", net.features[11:]), ("avgpool", net.avgpool)]
    return nn.Sequential(OrderedDict([*behind, ("flatten", nn.Flatten()), ("classifier", net.classifier)])).eval()


def second_half_of_real(network: Classifier, layer: str) -> nn.Sequential:
    """All of the real network behind `blocks.5.2`, or behind `blocks.6.0.bn2`, in the middle of its last block.

    Two convolutions mix places behind the first, none behind the second. Raises `CourseError` for other layers.
    """
    model, block = network.model, network.model.blocks[6][0]
    behind = {
        "blocks.5.2": {"rest": model.blocks[5][3:], "block": block},
        "blocks.6.0.bn2": {"conv_pwl": block.conv_pwl, "bn3": block.bn3},
    }
    parts = {"start": nn.Identity(), **behind[require("Layers", layer, behind)], "conv_head": model.conv_head}
    parts |= {"bn2": model.bn2, "global_pool": model.global_pool, "classifier": model.classifier}
    return nn.Sequential(OrderedDict(parts)).eval()


@torch.no_grad()
def parts_of_places(half: nn.Module, activation: Tensor, target: int) -> Tensor:
    """Return what each place gives to the target's logit, (h, w), if no convolution of `half` mixes places: f(A_p).

    The logit is the mean of these parts. activation: (1, K, h, w).
    """
    places = activation[0].flatten(1).T[:, :, None, None]
    return half(places)[:, target].view(activation.shape[2:])


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """A copy of the network with other, random weights: it has the same layers and has learned nothing."""
    twin = copy.deepcopy(model)
    with seeded(seed):
        for module in twin.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    return twin.eval()


# --- one rule for all methods -----------------------------------------------------------------------------------------


class Question(NamedTuple):
    """One picture as it stands at the layer, what is asked about it, and where the answer should lie."""

    activation: Tensor  # (1, K, h, w)
    target: int
    truth: Tensor  # (H, W) bool, as large as the picture
    picture: Tensor  # (3, H, W) in [0, 1]


@torch.no_grad()
def ask_fish(net: nn.Module, pictures: Tensor, truth: Tensor) -> list[Question]:
    """One question for each of the pictures (N, 3, H, W), with their truth (N, H, W): why fish?"""
    maps = output_of(net, "features.10", pictures)
    return [Question(maps[n : n + 1], FISH, truth[n], pictures[n]) for n in range(len(pictures))]


@torch.no_grad()
def ask_collages(network: Classifier, layer: str) -> list[Question]:
    """Two questions for each of the six collages of two photographs, one about each half (the grid pointing game)."""
    found = []
    for pair in combinations(COLLAGE, 2):
        picture, halves = collage(*pair)
        maps = output_of(network.model, layer, network.transform(picture)[None])
        found += [
            Question(maps, network.number_of(COLLAGE[name]), half, picture)
            for name, half in zip(pair, halves, strict=True)
        ]
    return found


class Scores(NamedTuple):
    """What a method's maps reach, one number a question: (Q,) each."""

    point: Tensor  # 1 where the hottest pixel lies on the truth, else 0
    share: Tensor  # the share of the positive attribution on the truth


def score(maps: Sequence[Tensor], questions: Sequence[Question]) -> Scores:
    """Score maps (h, w), one for each question, by the one rule: the positive part, enlarged to the picture's size."""
    heat = upsample(relu(torch.stack([*maps]).detach().float()), questions[0].truth.shape)
    truth = torch.stack([each.truth for each in questions])
    return Scores(points_at(heat, truth).double(), energy_inside(heat, truth))


def find_edges(question: Question) -> Tensor:
    """A map that knows no network: the mean difference of neighbouring pixels, as large as the maps at the layer."""
    across, down = (F.pad(question.picture.diff(dim=dim).abs().sum(0), pad) for dim, pad in EDGES)
    return F.adaptive_avg_pool2d((across + down)[None], question.activation.shape[2:])[0]


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
    """The block of lesson 08 as a network: a row of words in, (N, 2L, 1, L); one logit a word, how much it is there."""

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
    """Return torchvision's ViT with a photograph where its weights are cached, else the block of lesson 08."""
    if pretrained != "if cached" or vit_is_cached():
        network, picture = load_classifier(VIT, pretrained), photograph("chelsea")
        model, image = network.model, network.transform(picture)[None]
        note = f"{network.note} The question: why Egyptian cat?"
        attention = model.get_submodule(VIT_BLOCK).self_attention
        target = network.number_of("Egyptian cat")
        return Tokens(note, model, image, f"{VIT_BLOCK}.ln_1", tokens_as_maps, target, attention, picture)
    model = WordReader(SENTENCE).eval()
    note = f"The weights of {VIT} are not in torch's cache, so this is the block of lesson 08. The question: why 'the'?"
    image = encode(SENTENCE).mT[:, :, None]
    return Tokens(note, model, image, "block", words_as_maps, 0, model.block.self_attn, None)


def vit_is_cached() -> bool:
    """Whether torch's cache has the weights of the ViT."""
    from torchvision.models import get_model_weights

    name = Path(get_model_weights(VIT).DEFAULT.url).name
    return Path(torch.hub.get_dir(), "checkpoints", name).is_file()


def tokens_as_maps(tokens: Tensor) -> Tensor:
    """(N, 1 + 14 · 14, C) to (N, C, 14, 14): the first token stands for no patch."""
    return tokens[:, 1:].mT.unflatten(2, (14, 14))


def words_as_maps(tokens: Tensor) -> Tensor:
    """(N, L, C) to (N, C, 1, L)."""
    return tokens.mT[:, :, None]
