"""Lesson 05: what the order of its numbers means, and sizes by counting."""

import re

import pytest
import torch
from lesson_pages import LessonPage

from course_utils.vision.networks import load_picture_net

PAGE = LessonPage("05_feature_maps")


def test_the_fourth_layer_is_most_on_the_things_and_the_fifth_tells_them_apart_as_well():
    rows = re.findall(r"features\.\d+ \d+ x \d+ (\d+)% \d+% (\d+)%", PAGE.in_one_line)
    on_the_things, tells = ([int(row[column]) for row in rows] for column in (0, 1))
    assert on_the_things.index(max(on_the_things)) == 3
    assert tells[3] == tells[4]


def test_the_sizes_in_the_words():
    net, sizes = load_picture_net(), []
    for layer in net.features:
        layer.register_forward_hook(lambda module, args, output: sizes.append(4 * output.numel() / 2**20))
    net(torch.zeros(1, 3, 112, 112))
    assert len(sizes) == 17
    assert sum(sizes) == pytest.approx(2, abs=0.05)
    assert 32 * sum(sizes) == pytest.approx(63, abs=0.25)
    assert PAGE.shows(f"output.detach().clone() {32 * sizes[-1]:.1f} MiB stay")
    kept = float(re.search(r"keeps output ([\d.]+) MiB", PAGE.in_one_line)[1])
    assert 0.8 < kept / (32 * sum(sizes)) < 1, "nearly all layers"
