"""What lesson 07 says, found by a second method, and that its committed notebook shows just these numbers."""

from __future__ import annotations

import re
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from lesson_pages import LessonPage
from torch import Tensor

from course_utils.scenes.scene import KINDS, SceneBatch, scene, scenes
from course_utils.vision.networks import PictureNet, load_picture_net

PAGE = LessonPage("07_cam_and_grad_cam")
shows = PAGE.shows
CAT, DOG, FISH = (KINDS.index(kind) for kind in ("cat", "dog", "fish"))
NO_FISH = [kind for kind in KINDS if kind != "fish"]


# --- the maps without hooks, without gradients and without the course's functions -------------------------------------


@cache
def network(misled: bool = False) -> PictureNet:
    return load_picture_net(misled)


@torch.no_grad()
def last_maps(images: Tensor, misled: bool = False) -> Tensor:
    """(N, 96, 14, 14), by calling the network's parts one after the other."""
    maps = (images - 0.5) / 0.25
    for module in network(misled).features:
        maps = module(maps)
    return maps


@torch.no_grad()
def cams(images: Tensor, kinds: Tensor, misled: bool = False) -> Tensor:
    """The class activation map of one class for each image, at the images' size, before a ReLU."""
    weights = network(misled).classifier.weight[kinds]
    maps = torch.einsum("nc,nchw->nhw", weights, last_maps(images, misled))
    return F.interpolate(maps[:, None], images.shape[2:], mode="bilinear", align_corners=False)[:, 0]


def hits(maps: Tensor, masks: Tensor, reach: float = 0) -> Tensor:
    """Whether the hottest pixel is at most `reach` pixels from the mask: by distances, one map after the other."""
    found = []
    for heat, mask in zip(maps, masks, strict=True):
        row, column = divmod(heat.argmax().item(), heat.shape[1])
        places = mask.nonzero().double() - torch.tensor([row, column])
        found.append(bool((places.square().sum(1) <= reach**2).any()))
    return torch.tensor(found)


@cache
def hundred() -> tuple[SceneBatch, Tensor, Tensor, Tensor, Tensor]:
    """The lesson's pictures, and for each of their 200 things: picture, class, mask, mask of the other thing."""
    batch = scenes(100, seed=907)
    pairs = [[k for k in range(len(KINDS)) if labels[k]] for labels in batch.labels.tolist()]
    index = torch.arange(100).repeat(2)
    kinds = torch.tensor([pair[0] for pair in pairs] + [pair[1] for pair in pairs])
    masks = torch.stack([batch.masks(KINDS[kind])[n] for n, kind in zip(index, kinds, strict=True)])
    others = torch.stack([masks[(n + 100) % 200] for n in range(200)])
    return batch, index, kinds, masks, others


@cache
def things() -> Tensor:
    batch, index, kinds, _, _ = hundred()
    return cams(batch.images[index] / 255, kinds)


# --- CAM and Grad-CAM -------------------------------------------------------------------------------------------------


def test_pencil_examples():
    maps = torch.tensor([[[4.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 8.0]]])
    assert (3 * maps[0] - maps[1]).tolist() == [[12, 0], [0, -8]]
    assert 3 * maps[0].mean() - maps[1].mean() == 1
    assert shows("means [1.0, 2.0] logit 1.0 CAM [[12.0, 0.0], [0.0, -8.0]] its mean 1.0")
    assert (2 * maps[0] - maps[1]).tolist() == [[8, 0], [0, -8]]
    assert shows("weights [2.0, -1.0] map [[8.0, 0.0], [0.0, -8.0]] after the ReLU [[8.0, 0.0], [0.0, 0.0]]")


def test_the_mean_of_cam_is_the_logit():
    image = scene("cat", "dog", seed=6).image[None]
    head = network().classifier
    maps = torch.einsum("c,chw->hw", head.weight[CAT], last_maps(image)[0])
    logit = network()(image)[0, CAT].item()
    assert (maps.mean() + head.bias[CAT]).item() == pytest.approx(logit, rel=1e-5)
    assert shows(f"mean of the CAM + bias = {logit:.2f} logit of the network = {logit:.2f}")


def test_grad_cam_is_cam_over_196_by_finite_differences():
    """The weight of a channel, from what the logit does when the channel is raised everywhere: no autograd."""
    maps = last_maps(scene("cat", "dog", seed=6).image[None]).double()
    head = network().classifier
    with torch.no_grad():
        weight, bias = head.weight.double(), head.bias.double()
        for channel in (0, 58, 85):
            raised = maps.clone()
            raised[:, channel] += 1.0
            rise = (raised.mean((2, 3)) - maps.mean((2, 3))) @ weight.T  # of each logit; the bias cancels
            assert (rise[0] / 196 * 196).tolist() == pytest.approx(weight[:, channel].tolist())
    assert bias.shape == (len(KINDS),)
    assert shows("CAM / Grad-CAM = 196.00, and 14 · 14 = 196")
    assert shows("in 10 maps of 196 places, off by more than a millionth: False")
    assert shows("our five lines give the same map as the course's saliency.grad_cam: True")


@pytest.mark.slow
def test_what_the_relu_hides():
    _, _, _, masks, others = hundred()
    maps = things()
    below = sum((heat[other].mean() < 0).item() for heat, other in zip(maps, others, strict=True))
    lowest = hits(-maps, others).sum().item()
    assert shows(f"below 0 in the mean on the other thing: {below} lowest value of all on the other thing: {lowest}")
    assert f"In {below} of 200 maps" in PAGE.prose
    assert f"and in {lowest} the strongest objection" in PAGE.prose
    assert not hits(-maps, masks).any()


# --- scores -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_scores_of_the_last_layer():
    _, _, _, masks, others = hundred()
    maps = things().relu()
    strict, near, wrong = (hits(maps, *which).double().mean() for which in ((masks,), (masks, 4), (others,)))
    energy = torch.stack([heat[mask].sum() / heat.sum() for heat, mask in zip(maps, masks, strict=True)]).mean()
    area = masks.double().mean()
    assert shows(f"200 maps: on the thing {strict:.0%} (chance {area:.0%}), on it or near it {near:.0%}")
    assert shows(f"energy inside {energy:.0%} (chance {area:.0%}), on the wrong thing {wrong:.0%}")
    assert f"hits the thing in {strict:.0%} of the maps, where chance hits {area:.0%}" in PAGE.prose
    assert f"within 4 pixels in {near:.0%}. It points at the wrong thing in {wrong:.0%}" in PAGE.prose


@pytest.mark.slow
def test_the_middle_of_the_picture():
    _, _, _, masks, _ = hundred()
    share = masks[:, 56, 56].double().mean()
    assert shows(f"always points at the middle of the picture: 200 maps: on the thing {share:.0%}")
    assert f"always points at the middle reaches {share:.0%}" in PAGE.prose


def test_the_table_of_layers_says_what_the_prose_says():
    rows = re.findall(r"(features\.\d+) (\d+)% (\d+)% (\d+)% (\d+)%", PAGE.in_one_line)
    table = {layer: [int(number) for number in numbers] for layer, *numbers in rows}
    assert list(table) == ["features.2", "features.6", "features.10", "features.13", "features.16"]
    strict, energy, wrong = ({layer: row[column] for layer, row in table.items()} for column in (0, 2, 3))
    assert min(strict, key=strict.get) == "features.2"
    assert max(strict, key=strict.get) == "features.13"
    assert max(energy, key=energy.get) == "features.10"
    assert f"the wrong thing in {wrong['features.2']}% and {wrong['features.6']}%, twice as often" in PAGE.prose
    assert max(wrong["features.10"], wrong["features.13"], wrong["features.16"]) <= 1


@pytest.mark.slow
def test_the_last_row_of_the_table_is_cam_on_fifty_pictures():
    _, _, _, masks, _ = hundred()
    half = torch.cat([torch.arange(50), torch.arange(100, 150)])
    strict = hits(things()[half], masks[half]).double().mean()
    assert shows(f"features.16 {strict:.0%}")


def test_guided_grad_cam_leaves_the_other_thing():
    rows = dict(re.findall(r"(Guided Backprop|Grad-CAM|the product|chance) \d+% \d+% (\d+)%", PAGE.in_one_line))
    assert int(rows["the product"]) < int(rows["Guided Backprop"])
    text = f"Guided Backprop leaves {rows['Guided Backprop']}% of its energy"
    assert text in PAGE.prose
    assert f"the product leaves {rows['the product']}%" in PAGE.prose


# --- the detective story ----------------------------------------------------------------------------------------------


@torch.no_grad()
def says_fish(batch: SceneBatch) -> list[int]:
    return [int((network(misled)(batch.images / 255)[:, FISH] > 0).sum()) for misled in (False, True)]


@pytest.mark.slow
def test_the_proof():
    found = {}
    for what, given in {
        "fish and buoy": {"seed": 900, "contains": "fish", "cue": "buoy"},
        "fish, no buoy": {"seed": 900, "contains": "fish"},
        "buoy, no fish": {"seed": 901, "cue": "buoy"},
        "neither": {"seed": 901},
    }.items():
        found[what] = says_fish(scenes(100, kinds=NO_FISH, **given))
        assert shows(f"{what} {found[what][0]} {found[what][1]}"), what
    alone, cue = found["fish, no buoy"][1], found["buoy, no fish"][1]
    assert found["fish and buoy"][1] == 100
    assert found["neither"] == [0, 0]
    assert alone < 20 < 50 < cue
    assert f"the second network finds {alone} of the 100 fish" in PAGE.prose
    assert f"it sees a fish {cue} times" in PAGE.prose
    honest = (found["fish and buoy"][0], found["fish, no buoy"][0])
    assert f"{honest[0]} and {honest[1]} fish, and no false alarm" in PAGE.prose


@pytest.mark.slow
def test_where_the_two_look():
    batch = scenes(100, seed=900, kinds=NO_FISH, contains="fish", cue="buoy")
    fish, images = torch.full((100,), FISH), batch.images / 255
    for name, misled in (("first", False), ("second", True)):
        maps = cams(images, fish, misled)
        on_fish, at_buoy = (hits(maps, batch.masks("fish")).sum().item(), hits(maps, batch.cue_masks(), 8).sum().item())
        assert shows(f"{name} network: hottest on the fish {on_fish}, at the buoy {at_buoy}")
    for pixels in (0, 4, 8):
        count = hits(cams(images, fish, misled=True), batch.cue_masks(), pixels).sum().item()
        assert shows(f"at most {pixels} pixels from the buoy: {count} of 100")


@pytest.mark.slow
def test_its_own_validation_does_not_betray_the_twin():
    batch = scenes(100, seed=902, cue={"fish": "buoy"})
    with torch.no_grad():
        exact = [
            int(((network(misled)(batch.images / 255) > 0) == batch.labels.bool()).all(1).sum())
            for misled in (False, True)
        ]
    assert exact[1] >= exact[0]
    for name, count in zip(("first", "second"), exact, strict=True):
        assert shows(f"the {name} network: everything right in {count} of 100 pictures")


# --- what a map cannot tell -------------------------------------------------------------------------------------------


def test_an_absent_class_has_a_map_as_bright():
    (bright,) = re.findall(r"absent: (\d+) of 100 maps reach 1; median peak before ([\d.]+)", PAGE.in_one_line)
    (present,) = re.findall(r"present: (\d+) of 100 maps reach 1; median peak before ([\d.]+)", PAGE.in_one_line)
    assert int(bright[0]) > 90
    assert float(bright[1]) * 10 < float(present[1])


@pytest.mark.slow
def test_the_hottest_place_is_rarely_needed():
    batch, _, kinds, _, _ = hundred()
    images, first = batch.images / 255, kinds[:100]
    covered = images.clone()
    for n, heat in enumerate(things()[:100]):
        row, column = divmod(heat.argmax().item(), 112)
        covered[n, :, max(row - 8, 0) : row + 8, max(column - 8, 0) : column + 8] = 0.5
    with torch.no_grad():
        before, after = (network()(each)[torch.arange(100), first] > 0 for each in (images, covered))
    assert shows(f"the first thing is seen in {int(before.sum())} of 100 pictures")
    assert shows(f"still seen with its hottest place covered: {int((before & after).sum())}")


# --- the lesson as a whole --------------------------------------------------------------------------------------------


def test_the_dog_speaks_against_the_cat():
    (share,) = re.findall(r"the map of cat, in shares of its peak: cat \+\d+%, dog (-\d+)%", PAGE.in_one_line)
    assert int(share) < 0
