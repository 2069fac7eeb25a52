"""Pictures and networks whose truth is known, and how the methods of lesson 10 are scored by it.

A method is a function `method(model, layer, image, target)`, which returns a map (h, w) with a sign: above 0 where a
place speaks for the target. It gets the second half of a network, whose first layer `START` hands its input on.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.lessons.blind import FISH, Album, add, remove
from course_utils.lessons.evidence import COLLAGE
from course_utils.root import require
from course_utils.vision.networks import Classifier, PictureNet, compute_logits
from course_utils.vision.patching import output_of
from course_utils.vision.real import collage
from course_utils.vision.saliency import relu, upsample
from course_utils.vision.scores import energy_inside, grow, points_at

Method = Callable[[nn.Module, str, Tensor, int], Tensor]
START = "start"
EDGES = ((2, (0, 1)), (1, (0, 0, 0, 1)))  # along which dimension neighbours differ, and how to make up for the last one

# --- experiments ------------------------------------------------------------------------------------------------------


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
