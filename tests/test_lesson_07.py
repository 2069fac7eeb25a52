"""What lesson 07 says, found by a second method, and that its committed notebook shows just these numbers."""

import copy
import re
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from lesson_pages import LessonPage
from torch import Tensor

from course_utils.scenes.scene import KINDS, scene, scenes
from course_utils.vision.networks import load_picture_net

PAGE = LessonPage("07_cam_and_grad_cam")
shows = PAGE.shows
CAT, FISH = KINDS.index("cat"), KINDS.index("fish")
NO_FISH = [kind for kind in KINDS if kind != "fish"]
network = cache(load_picture_net)


@torch.no_grad()
def last_maps(images: Tensor) -> Tensor:
    """(N, 96, 14, 14), from the network's convolutions alone."""
    return network().features((images - 0.5) / 0.25)


@torch.no_grad()
def cams(images: Tensor, kinds: Tensor) -> Tensor:
    """The class activation map of one class for each image, at the images' size, before a ReLU."""
    maps = torch.einsum("nc,nchw->nhw", network().classifier.weight[kinds], last_maps(images))
    return F.interpolate(maps[:, None], images.shape[2:], mode="bilinear", align_corners=False)[:, 0]


def hits(maps: Tensor, masks: Tensor, reach: float = 0) -> Tensor:
    """Whether the hottest pixel is at most `reach` pixels from the mask: by distances, one map after the other."""
    found = []
    for heat, mask in zip(maps, masks, strict=True):
        row, column = divmod(heat.argmax().item(), heat.shape[1])
        places = mask.nonzero().double() - torch.tensor([row, column])
        found.append(bool((places.square().sum(1) <= reach**2).any()))
    return torch.tensor(found)


def test_pencil_examples():
    maps = torch.tensor([[[4.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 8.0]]])
    assert (3 * maps[0] - maps[1]).tolist() == [[12, 0], [0, -8]]
    assert 3 * maps[0].mean() - maps[1].mean() == 1
    assert shows("means [1.0, 2.0] logit 1.0 CAM [[12.0, 0.0], [0.0, -8.0]] its mean 1.0")
    assert (2 * maps[0] - maps[1]).tolist() == [[8, 0], [0, -8]]
    assert shows("weights [2.0, -1.0] map [[8.0, 0.0], [0.0, -8.0]] after the ReLU [[8.0, 0.0], [0.0, 0.0]]")


def test_grad_cam_is_cam_over_196_by_finite_differences():
    """The weight of a place in a channel, from what the logits do when it is raised: no autograd takes part."""
    maps = last_maps(scene("cat", "dog", seed=6).image[None]).double()
    head = copy.deepcopy(network().classifier).double()
    with torch.no_grad():
        for channel in (0, 58, 85):
            raised = maps.clone()
            raised[:, channel, 3, 4] += 1.0
            rise = head(raised.mean((2, 3))) - head(maps.mean((2, 3)))
            assert (196 * rise[0]).tolist() == pytest.approx(head.weight[:, channel].tolist(), abs=1e-9)
    assert shows("CAM / Grad-CAM = 196.00, and 14 · 14 = 196")
    cam_mean = (maps[0].mean((1, 2)) @ head.weight[CAT] + head.bias[CAT]).item()
    assert shows(f"mean of the CAM + bias = {cam_mean:.2f} logit of the network = {cam_mean:.2f}")


@pytest.mark.slow
def test_scores_of_the_last_layer_and_what_its_relu_hides():
    batch, index = (scenes(100, seed=907), torch.arange(100).repeat(2))  # the first things, then the second
    kinds = batch.labels.nonzero()[:, 1].reshape(100, 2).T.flatten()
    masks = torch.stack([batch.masks(KINDS[kind])[n] for n, kind in zip(index, kinds, strict=True)])
    maps, others = cams(batch.images[index] / 255, kinds), masks.roll(100, 0)
    below = sum((heat[other].mean() < 0).item() for heat, other in zip(maps, others, strict=True))
    lowest = hits(-maps, others).sum().item()
    assert shows(f"below 0 in the mean on the other thing: {below} lowest value of all on the other thing: {lowest}")
    assert f"In {below} of 200 maps" in PAGE.prose
    assert f"and in {lowest} the strongest objection" in PAGE.prose
    maps = maps.relu()
    strict, near, wrong = (hits(maps, *which).double().mean() for which in ((masks,), (masks, 4), (others,)))
    energy = torch.stack([heat[mask].sum() / heat.sum() for heat, mask in zip(maps, masks, strict=True)]).mean()
    area = masks.double().mean()
    assert shows(f"200 maps: on the thing {strict:.0%} (chance {area:.0%}), on it or near it {near:.0%}")
    assert shows(f"energy inside {energy:.0%} (chance {area:.0%}), on the wrong thing {wrong:.0%}")
    assert f"hits the thing in {strict:.0%} of the maps, where chance hits {area:.0%}" in PAGE.prose
    assert f"within 4 pixels in {near:.0%}. It points at the wrong thing in {wrong:.0%}" in PAGE.prose
    half = torch.cat([torch.arange(50), torch.arange(100, 150)])
    assert shows(f"features.16 {hits(maps[half], masks[half]).double().mean():.0%}")
    middle = masks[:, 56, 56].double().mean()
    assert shows(f"always points at the middle of the picture: 200 maps: on the thing {middle:.0%}")
    assert f"always points at the middle reaches {middle:.0%}" in PAGE.prose


def test_what_the_prose_says_about_printed_numbers():
    rows = re.findall(r"(features\.\d+) (\d+)% (\d+)% (\d+)% (\d+)%", PAGE.in_one_line)
    strict, _, energy, wrong = zip(*([int(number) for number in numbers] for _, *numbers in rows), strict=True)
    assert len(rows) == 5
    assert (strict.index(min(strict)), strict.index(max(strict)), energy.index(max(energy))) == (0, 3, 2)
    assert f"the wrong thing in {wrong[0]}% and {wrong[1]}%, twice as often" in PAGE.prose
    assert max(wrong[2:]) <= 1
    left = dict(re.findall(r"(Guided Backprop|the product) \d+% \d+% (\d+)%", PAGE.in_one_line))
    assert int(left["the product"]) < int(left["Guided Backprop"])
    assert f"Guided Backprop leaves {left['Guided Backprop']}% of its energy" in PAGE.prose
    assert f"the product leaves {left['the product']}%" in PAGE.prose
    peaks = re.findall(r"(?:absent|present): (\d+) of 100 maps reach 1; median peak before ([\d.]+)", PAGE.in_one_line)
    (_, present), (bright, absent) = ((int(maps), float(peak)) for maps, peak in peaks)
    assert bright > 90
    assert absent * 10 < present


@pytest.mark.slow
def test_the_proof():
    given = {
        "fish and buoy": {"seed": 900, "contains": "fish", "cue": "buoy"},
        "fish, no buoy": {"seed": 900, "contains": "fish"},
        "buoy, no fish": {"seed": 901, "cue": "buoy"},
        "neither": {"seed": 901},
    }
    fish = {}
    for what, choice in given.items():
        images = scenes(100, kinds=NO_FISH, **choice).images / 255
        with torch.no_grad():
            fish[what] = [int((network(misled)(images)[:, FISH] > 0).sum()) for misled in (False, True)]
        assert shows(f"{what} {fish[what][0]} {fish[what][1]}")
    (honest, both), (other, alone), (_, cue), neither = fish.values()
    assert (both, neither) == (100, [0, 0])
    assert alone < 20 < 50 < cue
    assert f"the second network finds {alone} of the 100 fish" in PAGE.prose
    assert f"it sees a fish {cue} times" in PAGE.prose
    assert f"{honest} and {other} fish, and no false alarm" in PAGE.prose
