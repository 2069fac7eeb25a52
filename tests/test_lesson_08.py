"""Lesson 08: numbers for a pencil, and what the order of others means."""

import math
import re

import pytest
import torch
from lesson_pages import LessonPage, why
from torch import nn

from course_utils.hooks.record import record
from course_utils.lessons.broken_nets import have_an_accident
from course_utils.scenes.scene import scenes
from course_utils.vision.networks import load_picture_net

PAGE = LessonPage("08_hooks_in_practice")
shows = PAGE.shows


def test_values_by_a_pencil():
    weights = [math.exp(row[0] - row[1]) for row in ((1, 2), (100, 1))]
    answers = [(3 * weight + 4) / (weight + 1) for weight in weights]
    assert shows(f"answers: [{answers[0]:.3f}, {answers[1]:.1f}]")
    assert f"exp(100) is {math.exp(100):.1e}".replace("e+", "e") in why("layer_that_isnan_names")
    assert shows(f"torch.where: [{1 / (2 * math.sqrt(4))}, nan]")
    source, target, patched = 3 * 4 - 0, 3 * 0 - 8, 3 * 4 - 8
    assert shows(f"patched logit: {patched:.1f}")
    assert shows(f"recovered: {(patched - target) / (source - target):.0%}")


def unit_after(steps: int, weight: float, bias: float, rate: float, through: bool = False) -> tuple[float, float]:
    """Plain arithmetic: relu(w · 2 + b) with the target 1."""
    for _ in range(steps):
        before = 2 * weight + bias
        gradient = 2 * (max(before, 0) - 1) * (through or before > 0)
        weight, bias = weight - rate * 2 * gradient, bias - rate * gradient
    return weight, bias


def test_the_unit_dies_and_comes_back():
    assert unit_after(1, 1, 1, 1.0) == (-7, -3)
    assert unit_after(100, -7, -3, 0.1) == (-7, -3)
    weight, bias = unit_after(1, 1, 1, 0.1)
    assert 2 * weight + bias == pytest.approx(1)
    for steps, answer in ((16, -1.0), (18, 1.0)):
        weight, bias = unit_after(steps, -7, -3, 0.1, through=True)
        assert 2 * weight + bias == pytest.approx(answer)
    assert shows("one step with the learning rate 0.1: 1.0 one step with the learning rate 1: 0.0")
    assert shows("and 100 steps more with 0.1: 0.0")
    assert shows("16 steps with the gradient let through: 0.0 2 steps with the gradient let through: 1.0")
    assert shows("1 step more, without the hook: 1.0")


def passing(depth: int, limit: float) -> list[float]:
    """The norm of the gradient that each layer works with, from the last layer to the first: [a, b] becomes [a, 3b]."""
    first, second, norms = 1.0, 1.0, []
    for _ in range(depth):
        factor = min(1, limit / math.hypot(first, second))
        first, second = first * factor, second * factor
        norms.insert(0, math.hypot(first, second))
        second *= 3
    return norms


def test_the_table_of_clips():
    norms = [math.hypot(1, 3**number) for number in reversed(range(6))]
    together = [norm * 10 / math.hypot(*norms) for norm in norms]
    rows = {"not at all": norms, "all together": together, "each parameter": [min(norm, 10) for norm in norms]}
    for name, row in {**rows, "as it passes": passing(6, 10)}.items():
        assert shows(name + " " + " ".join(f"{norm:.2f}" for norm in row)), name
    assert f"{together[-1]:.2f} instead of {norms[-1]:.2f}" in PAGE.prose
    long = passing(100, 10)
    assert shows(f"as it passes layer 0: {long[0]:.2f} layer 99: {long[-1]:.2f}")


def test_what_a_stored_output_holds_by_counting():
    """Of 32 rows of 64 numbers: the results of four ReLUs, of four runs; of its own, one, and of a number, nothing."""
    one = 32 * 64 * 4 // 1024
    assert shows(f"output {4 * 4 * one} KiB")
    assert shows(f"output.detach() {4 * one} KiB output.norm().item() 0 KiB")


def test_what_the_words_say_about_the_buoy():
    row = r"features\.\d+ \d% of the map: (\d+) fish, \d+% \d+% of the map: (\d+) fish, (\d+)%"
    rows = re.findall(row, PAGE.in_one_line)
    alone, wide, way = zip(*(map(int, row) for row in rows), strict=True)
    assert len(rows) == 5
    assert list(alone) == sorted(alone, reverse=True)
    assert f"{min(wide)} to {max(wide)} of the 31 fish are back at every layer" in why("buoy_only")
    assert min(way) > 80
    assert shows("first network, patched at features.6: 0 fish")


def test_the_accident_closes_a_third_of_one_layers_units_and_no_other():
    sick, images, dead = load_picture_net(), scenes(4, seed=907).images / 255, {}
    have_an_accident(sick)
    with torch.no_grad(), record(sick, nn.ReLU) as seen:
        sick(images)
    for call in seen.calls:
        dead[call.layer] = int((call.output.amax((0, 2, 3)) == 0).sum())
    assert dead.pop("features.13") == 32 == len(sick.features[12].bias) / 3
    assert set(dead.values()) == {0}
    assert shows(f"features.13 {32 / 96:.0%}".replace("%", " % dead"))
