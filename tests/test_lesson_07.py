"""What lesson 07 says, found by a second method, and that its committed notebook shows just these numbers."""

import re
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from lesson_pages import LessonPage, why
from torch import Tensor

from course_utils.exercises.engine import find_prediction
from course_utils.lessons import evidence
from course_utils.scenes.scene import KINDS, scenes
from course_utils.vision.networks import load_classifier, load_picture_net
from course_utils.vision.real import REAL, collage, photograph
from course_utils.vision.scores import localise, points_at

PAGE = LessonPage("07_cam_and_grad_cam")
shows = PAGE.shows
FISH = KINDS.index("fish")
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


def test_pencil_examples():
    maps = torch.tensor([[[4.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 8.0]]])
    assert (3 * maps[0] - maps[1]).tolist() == [[12, 0], [0, -8]]
    assert 3 * maps[0].mean() - maps[1].mean() == 1
    assert shows("means [1.0, 2.0] logit 1.0 CAM [[12.0, 0.0], [0.0, -8.0]] its mean 1.0")
    assert (2 * maps[0] - maps[1]).tolist() == [[8, 0], [0, -8]]
    assert shows("CAM / Grad-CAM, before the ReLU = 196.00")  # the places of a map; `test_saliency_maps` has the reason
    assert shows("weights [2.0, -1.0] map [[8.0, 0.0], [0.0, -8.0]] after the ReLU [[8.0, 0.0], [0.0, 0.0]]")


@pytest.mark.slow
def test_scores_of_the_last_layer_and_what_its_relu_hides():
    batch, index = (scenes(40, seed=907), torch.arange(40).repeat(2))  # the first things, then the second
    kinds = batch.labels.nonzero()[:, 1].reshape(40, 2).T.flatten()
    masks = torch.stack([batch.masks(KINDS[kind])[n] for n, kind in zip(index, kinds, strict=True)])
    maps, others = cams(batch.images[index] / 255, kinds), masks.roll(40, 0)
    below = sum((heat[other].mean() < 0).item() for heat, other in zip(maps, others, strict=True))
    lowest = points_at(-maps, others).sum().item()
    assert shows(f"the mean on the other thing is negative: {below} lowest value of all on the other thing: {lowest}")
    told = f"In {below} of 80 maps the *other* thing speaks against the class, and in {lowest}"
    assert told in why("dog_on_the_cat_map")
    found = localise(maps.relu(), masks, others)
    assert shows(str(found).replace(",", ""))
    told = f"hits the thing in {found.strict.share:.0%} of the maps, where chance hits {found.strict.chance:.0%}"
    assert told in PAGE.prose
    assert f"only {found.energy.share:.0%} of its heat is on the thing" in PAGE.prose
    half = torch.cat([torch.arange(25), torch.arange(40, 65)])
    assert shows(f"features.16 {points_at(maps[half], masks[half]).double().mean():.0%}")
    middle = masks[:, 56, 56].double().mean()
    assert shows(f"always points at the middle of the picture: 80 maps: on the thing {middle:.0%}")
    assert f"always points at the middle reaches {middle:.0%}" in PAGE.prose


def test_what_the_prose_says_about_printed_numbers():
    rows = re.findall(r"(features\.\d+) (\d+)% (\d+)% (\d+)% (\d+)%", PAGE.in_one_line)
    strict, _, energy, wrong = zip(*([int(number) for number in numbers] for _, *numbers in rows), strict=True)
    assert len(rows) == 5
    assert (strict.index(min(strict)), energy.index(max(energy))) == (0, 2)
    assert f"the wrong thing in {wrong[0]}% and {wrong[1]}% of the maps" in why("best_layer")
    assert max(wrong[2:]) <= 2
    found = re.findall(r"(Guided Backprop|the product) \d+% (\d+)% (\d+)%", PAGE.in_one_line)
    (_, on, off), (_, _, left) = found
    assert f"it has {on}% of its energy on the thing that was asked for" in PAGE.prose
    assert f"it leaves {off}% on the *other* thing, and chance leaves 10%. The product leaves {left}%." in PAGE.prose
    peaks = re.findall(r"(?:absent|present): (\d+) of 40 maps reach 1; .*? stretching is ([\d.]+)", PAGE.in_one_line)
    (_, present), (bright, absent) = ((int(maps), float(peak)) for maps, peak in peaks)
    assert f"{bright} of 40 reach 1" in why("map_of_an_absent_class")
    assert 15 < present / absent < 25, "twenty times lower"


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
        images = scenes(40, kinds=NO_FISH, **choice).images / 255
        with torch.no_grad():
            fish[what] = [int((network(misled)(images)[:, FISH] > 0).sum()) for misled in (False, True)]
        assert shows(f"{what} {fish[what][0]} {fish[what][1]}")
    (honest, both), (other, alone), (false, cue), neither = fish.values()
    assert (both, alone, false, neither) == (40, 0, 0, [0, 0])
    assert "the second network finds none of the 40 fish" in why("painted_out")
    assert f"it sees a fish in {cue} pictures" in why("painted_out")
    assert f"{honest} and {other} fish, and no false alarm" in why("painted_out")


# --- the real network: CAM by its classifier's weights, for its head is average pooling and a linear layer ------------


@cache
def real():
    return load_classifier(REAL)


@torch.no_grad()
def real_maps(picture: Tensor) -> tuple[Tensor, Tensor]:
    """The last maps (K, h, w) of the real network, and its logits (classes,)."""
    x = real().transform(picture)[None]
    return real().model.forward_features(x)[0], real().model(x)[0]


@pytest.mark.slow
def test_the_three_questions_by_weights_instead_of_gradients():
    classes, weight = [real().number_of(name) for name in evidence.COLLAGE.values()], real().model.classifier.weight
    shares = {"why A?": [], "why A rather than B?": [], "log-softmax of A": []}
    for one in range(4):
        for other in range(one + 1, 4):
            picture, masks = collage(*(list(evidence.COLLAGE)[place] for place in (one, other)))
            maps, logits = real_maps(picture)
            for a, b, mask in ((one, other, masks[0]), (other, one, masks[1])):
                mixed = logits.softmax(0) @ weight
                asked = weight[classes[a]], weight[classes[a]] - weight[classes[b]], weight[classes[a]] - mixed
                for found, row in zip(shares.values(), asked, strict=True):
                    heat = torch.einsum("k,khw->hw", row.detach(), maps).relu()[None, None]
                    heat = F.interpolate(heat, mask.shape, mode="bilinear", align_corners=False)[0, 0]
                    found.append((heat[mask].sum() / heat.sum()).item())
    means = {question: sum(found) / 12 for question, found in shares.items()}
    for question, found in shares.items():
        line = f"{question} 12 maps: {means[question]:.0%} in the correct half, at least {min(found):.0%}"
        assert shows(line), line
    logit, rather, log = (f"{mean:.0%}" for mean in means.values())
    told = f"has {rather} of its heat in the correct half, the log-softmax {log}, the plain logit {logit}"
    assert told in why("three_questions")


@pytest.mark.slow
def test_the_astronaut_answers_as_the_lesson_says():
    picture = photograph("astronaut")
    maps, logits = real_maps(picture)
    answer, share = real().classes[logits.argmax()], logits.softmax(0).max()
    assert shows(f"{answer} {share:.0%}; football helmet")
    weight = real().model.classifier.weight[logits.argmax()].detach()
    heat = torch.einsum("k,khw->hw", weight, maps).relu()[None, None]
    heat = F.interpolate(heat, picture.shape[1:], mode="bilinear", align_corners=False)[0, 0]
    left = {}
    for name, (top, bottom, start, end) in evidence.ASTRONAUT.items():
        covered = picture.clone()
        covered[:, top:bottom, start:end] = 0.5
        left[name] = real_maps(covered)[1].softmax(0)[logits.argmax()]
        part = heat[top:bottom, start:end].sum() / heat.sum()
        assert shows(f"{name} {part:.0%} {(bottom - top) * (end - start) / 224**2:.0%} {left[name]:.0%}"), name
    told = find_prediction("the_astronaut")
    assert min(left, key=left.get) == told.answer == "helmet"
    assert f"from {share:.0%} to {left['helmet']:.0%}" in told.options["helmet"]
