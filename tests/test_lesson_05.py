"""The values that lesson 05 teaches, found by a second method, and that its committed notebook shows just these."""

import re

import pytest
import torch
from lesson_pages import LessonPage
from torch import nn
from torchvision.models import resnet34

from course_utils.scenes.scene import scene
from course_utils.vision.networks import load_classifier, load_picture_net

PAGE = LessonPage("05_feature_maps")
shows = PAGE.shows


@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "padding", "side"),  # of AlexNet's convolutions; what arrives has `side` pixels
    [((3, 64), 11, 4, 2, 224), ((64, 192), 5, 1, 2, 27), ((192, 384), 3, 1, 1, 13), ((384, 256), 3, 1, 1, 13),
     ((256, 256), 3, 1, 1, 13)],
)  # fmt: skip
def test_shapes_of_alexnets_convolutions_by_the_formula(channels, kernel, stride, padding, side):
    made = (side + 2 * padding - kernel) // stride + 1
    weight = (channels[1], channels[0], kernel, kernel)
    assert shows(f"{weight} 1 map stack of {(1, channels[1], made, made)}")


def test_convolutions_of_resnet34():
    sizes, model = [], resnet34().eval()
    convolutions = {name: module for name, module in model.named_modules() if isinstance(module, nn.Conv2d)}
    for name, module in convolutions.items():
        module.register_forward_hook(lambda m, a, out, name=name: sizes.append((name, tuple(out.shape[1:]))))
    with torch.no_grad():
        model(torch.zeros(1, 3, 224, 224))
    drawers = len({module.weight.shape for module in convolutions.values()})
    assert (len(sizes), drawers) == (36, 11)
    assert shows(f"drawers: {drawers}")
    assert shows(f"never seen: {len(sizes) - drawers}")
    assert shows(f"layers: {len(sizes)} first and last: {sizes[0][0]} {sizes[-1][0]}")
    for number in (1, 15, 30):
        name, shape = sizes[number - 1]
        assert shows(f"convolution {number:2}: {name} {shape}")


def test_the_in_place_relu_overwrites_what_is_stored():
    found = load_classifier("alexnet", pretrained=False)
    with torch.no_grad():
        computed = found.model.features[0](found.transform(scene("balloon", "cat", seed=30).image)[None])
    negative, zero = (computed < 0).float().mean().item(), (computed == 0).float().mean().item()
    assert shows(f"the output itself negative numbers: 0% zeros: {negative:.0%}")
    assert shows(f"a clone of it negative numbers: {negative:.0%} zeros: {zero:.0%}")


def test_what_the_words_say_about_the_table_of_layers():
    rows = re.findall(r"features\.\d+ \([^)]*\) (\d+)% (\d+) (\d+)% (\d+)%", PAGE.in_one_line)
    zeros, dead, on, tells = zip(*(map(int, row) for row in rows), strict=True)
    assert (len(rows), set(dead)) == (5, {0})
    assert list(on[:4]) == sorted(on[:4]), "closer and closer, up to the fourth"
    assert on[4] < on[3] - 10, "the fifth breaks the row"
    assert zeros[4] < zeros[3]
    assert 75 < zeros[3] < 85, "eight in ten"
    assert list(tells[:4]) == sorted(tells[:4])
    assert tells[3] >= 99, "tells it almost without a mistake"


def test_the_sizes_in_the_words():
    net, sizes = load_picture_net(), []
    for layer in net.features:
        layer.register_forward_hook(lambda module, args, output: sizes.append(4 * output.numel() / 2**20))
    net(torch.zeros(1, 3, 112, 112))
    assert len(sizes) == 17
    assert sum(sizes) == pytest.approx(2, abs=0.05)
    assert 64 * sum(sizes) == pytest.approx(126, abs=0.5)
    assert shows(f"output.detach().clone() {64 * sizes[-1]:.1f} MiB stay")
    kept = float(re.search(r"keeps output +([\d.]+) MiB", PAGE.printed).group(1))
    assert 0.8 < kept / (64 * sum(sizes)) < 1, "nearly all layers"
