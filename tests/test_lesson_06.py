"""What lesson 06 teaches, found by a second method, and that its committed notebook shows just these values."""

import pytest
import torch
import torch.nn.functional as F
from lesson_pages import LessonPage
from torch import nn

from course_utils.explorers.guided_backprop import RULES
from course_utils.scenes.scene import KINDS, scene
from course_utils.vision.networks import load_picture_net

PAGE = LessonPage("06_guided_backprop")
shows = PAGE.shows


def test_pencil_example_by_finite_differences():
    def y(x1, x2):
        return 2 * max(x1 + 2 * x2, 0) - 3 * max(3 * x1 - x2, 0) + 4 * max(x1 - 2 * x2, 0)

    step = 2**-10
    assert y(1, 2) == 7
    slopes = [(y(1 + step, 2) - y(1 - step, 2)) / (2 * step), (y(1, 2 + step) - y(1, 2 - step)) / (2 * step)]
    assert slopes == [-7, 7]
    assert shows("backprop: [-7.0, 7.0] deconvnet: [6.0, -4.0] guided: [2.0, 4.0]")


def gate(rule: str, active: torch.Tensor, R: torch.Tensor) -> torch.Tensor:
    return R * {"gradient": active, "deconvnet": R > 0, "guided": active & (R > 0)}[rule]


@pytest.mark.parametrize(("rule", "expected"), [("gradient", [-7, 7]), ("deconvnet", [6, -4]), ("guided", [2, 4])])
def test_pencil_example_by_the_three_gates(rule, expected):
    weight, R = torch.tensor([[1.0, 2], [3, -1], [1, -2]]), torch.tensor([2.0, -3, 4])
    assert (gate(rule, weight @ torch.tensor([1.0, 2]) > 0, R) @ weight).tolist() == expected


def by_hand(images: torch.Tensor, target: int, rule: str) -> torch.Tensor:
    """The map of one picture, layer by layer from the weights; no hook, no function mode and no graph takes part."""
    model = load_picture_net()
    values, steps = (images - 0.5) / 0.25, []
    with torch.no_grad():
        for module in model.features:
            before, values = values, module(values)
            steps.append((module, before, values))
        size = values.shape[-2] * values.shape[-1]
        R = (model.classifier.weight[target][None, :, None, None] / size).expand_as(values)
        for module, before, after in reversed(steps):
            if isinstance(module, nn.ReLU):
                R = gate(rule, after > 0, R)
            elif isinstance(module, nn.BatchNorm2d):
                R = R * (module.weight / (module.running_var + module.eps).sqrt())[None, :, None, None]
            elif isinstance(module, nn.Conv2d):
                R = nn.grad.conv2d_input(before.shape, module.weight, R, module.stride, module.padding)
            else:
                _, places = F.max_pool2d(before, 2, return_indices=True)
                R = F.max_unpool2d(R, places, 2, output_size=before.shape[-2:])
    return R / 0.25


@pytest.mark.parametrize("rule", RULES)
def test_shares_of_the_side_by_side_section(rule):
    picture = scene("cat", "boat", seed=3)
    for kind in picture.labels:
        strength = by_hand(picture.image[None], KINDS.index(kind), rule)[0].abs().sum(0)
        cat, boat = [(strength[mask].sum() / strength.sum()).item() for mask in picture.masks]
        assert shows(f"{rule} for the {kind:4}: {cat:.2f} on the cat, {boat:.2f} on the boat")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gradient 0.73 -0.39", "point in opposite directions"),
        ("deconvnet 0.51 0.67", "0.51, one hundredth from chance"),
        ("guided 0.82 0.38 0.69", "at 0.69 it is the highest for guided"),
        ("classifier 0.52 0.40 0.88 0.20", "still correlates at 0.88 with the original"),
        ("features.11 0.37 0.40 0.72", "at 0.72 when three layers of six are random"),
    ],
)
def test_what_the_prose_says_was_measured(line, words):
    assert shows(line)
    assert words in PAGE.prose
