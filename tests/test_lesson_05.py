"""The values that lesson 05 teaches, found by a second method, and that its committed notebook shows just these."""

import re
from functools import cache

import pytest
import torch
from lesson_pages import LessonPage
from torch import nn
from torchvision.models import resnet34

from course_utils.scenes.scene import KINDS, scene, scenes
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


@pytest.mark.parametrize(
    ("shown", "channels", "side"),
    [("(64, 1, 55, 55) in a sheet of (3, {0}, {1})", 64, 55), ("features.2 PNG of {0} x {1} pixels", 24, 56),
     ("features.6 PNG of {0} x {1} pixels", 48, 28), ("features.10 PNG of {0} x {1} pixels", 64, 14),
     ("features.13 PNG of {0} x {1} pixels", 96, 14), ("features.16 PNG of {0} x {1} pixels", 96, 14)],
)  # fmt: skip
def test_sheets_have_eight_tiles_a_row_with_edges_of_two(shown, channels, side):
    assert shows(shown.format(2 + 8 * (side + 2), 2 + channels // 8 * (side + 2)))


@cache
def measured() -> dict[str, tuple[float, int, float]]:
    """Zeros, dead channels, and for each kind the best share on the thing, without the course's functions."""
    batch, net, rows = scenes(200, seed=905), load_picture_net(), {}
    x = (batch.images.float() / 255 - 0.5) / 0.25
    with torch.no_grad():
        for index, layer in enumerate(net.features):
            x = layer(x)
            if isinstance(layer, nn.ReLU):
                side, best = 112 // x.shape[-1], []
                for k, kind in enumerate(KINDS):
                    there = batch.labels[:, k] > 0
                    blocks = batch.masks(kind)[there].unfold(1, side, side).unfold(2, side, side)
                    covered = blocks.float().mean((3, 4))[:, None]
                    best.append(((x[there] * covered).sum((0, 2, 3)) / x[there].sum((0, 2, 3)).clamp(min=1e-9)).max())
                zeros = 1 - x.count_nonzero().item() / x.numel()
                dead = sum(not channel.any() for channel in x.transpose(0, 1))
                rows[f"features.{index}"] = zeros, dead, torch.stack(best).mean().item()
    return rows


@pytest.mark.slow
def test_the_table_of_layers_and_what_the_words_say_about_it():
    for name, (zeros, dead, on) in measured().items():
        row = next(line for line in PAGE.printed.splitlines() if re.match(rf"{name} +\(", line))
        shown = [int(number) for number in re.findall(r"(\d+)%? ", row.split(")")[1] + " ")]
        assert shown[1] == dead == 0, "no channel is dead here"
        assert [shown[0], shown[2]] == pytest.approx([100 * zeros, 100 * on], abs=1)
    zeros, _, on = zip(*measured().values(), strict=True)
    assert list(on[:4]) == sorted(on[:4]), "closer and closer, up to the fourth"
    assert on[4] < on[3] - 0.1, "the fifth breaks the row"
    assert zeros[4] < zeros[3]
    assert 0.75 < zeros[3] < 0.85, "eight in ten"
    tells = [int(number) for number in re.findall(r"^features\.\d+ .* (\d+)%$", PAGE.printed, re.MULTILINE)]
    assert tells[:4] == sorted(tells[:4])
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
