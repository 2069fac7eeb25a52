"""What lesson 05 says about the numbers that its committed notebook shows."""

import re

import pytest
import torch
from lesson_pages import LessonPage, why

from course_utils.vision.networks import load_picture_net

PAGE = LessonPage("05_feature_maps")


def test_what_the_words_say_about_the_real_network():
    convolutions, keys = PAGE.numbers(r"convolutions: (\d+) keys: (\d+)")
    assert f"**{convolutions - keys} of the {convolutions} layers are never seen**" in why("drawers_by_shape")
    (span,) = PAGE.numbers(r"the 20th: (\d+)")
    assert f"The span of the 20th channel is about {span}." in why("widest_and_narrowest_tile")


def read_table():
    """Layer: on the thing (trained, untrained), tells (trained, untrained), in percent."""
    rows = re.findall(r"(features\.\d+) +\d+ x \d+ +(\d+)% +(\d+)% +(\d+)% +(\d+)%", PAGE.printed)
    return {name: tuple(map(int, numbers)) for name, *numbers in rows}


def test_what_the_words_say_about_the_table_of_layers():
    first, _, _, fourth, fifth = read_table().values()
    assert abs(first[0] - first[1]) <= 3, "on the thing: no finding"
    assert abs(first[2] - first[3]) <= 3, "tells: no finding"
    assert fourth[0] > 3 * fourth[1]
    assert (fourth[2], fifth[2]) == (98, 98)
    assert fifth[0] < fourth[0] - 15
    assert max(row[0] for row in read_table().values()) == fourth[0]


def test_the_sizes_in_the_words():
    net, sizes = load_picture_net(), []
    for layer in net.features:
        layer.register_forward_hook(lambda module, args, output: sizes.append(4 * output.numel() / 2**20))
    net(torch.zeros(1, 3, 112, 112))
    assert len(sizes) == 17
    assert sum(sizes) == pytest.approx(2, abs=0.05)
    assert 32 * sum(sizes) == pytest.approx(63, abs=0.25)
    assert PAGE.shows(f"output.detach().clone() {32 * sizes[-1]:.1f} MiB stay")
    kept = float(re.search(r"keeps output +([\d.]+) MiB", PAGE.printed).group(1))
    assert 0.8 < kept / (32 * sum(sizes)) < 1, "nearly all layers"
