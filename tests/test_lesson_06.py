"""What lesson 06 teaches, found by a second method, and that its committed notebook shows just these values."""

import pytest
import torch
from lesson_pages import LessonPage

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
