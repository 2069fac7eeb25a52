"""The values that lesson 05 teaches, found by a second method, and that its committed notebook shows just these."""

from __future__ import annotations

import re
from functools import cache

import pytest
import torch
from lesson_pages import LessonPage
from torch import nn
from torchvision import models
from torchvision.models.feature_extraction import create_feature_extractor

from course_utils.scenes.scene import KINDS, scene, scenes
from course_utils.vision.networks import load_classifier, load_picture_net
from course_utils.vision.pictures import draw_strokes

PAGE = LessonPage("05_feature_maps")
shows = PAGE.shows


@cache
def alexnet_and_input():
    found = load_classifier("alexnet", pretrained=False)
    return found.model, found.transform(scene("balloon", "cat", seed=30).image)[None]


# --- F1: hooks on the convolutions of AlexNet -------------------------------------------------------------------------


def test_alexnets_five_convolutions_are_those_of_the_recipe():
    model, x = alexnet_and_input()
    assert [name for name, module in model.named_modules() if isinstance(module, nn.Conv2d)] == [
        "features.0",
        "features.3",
        "features.6",
        "features.8",
        "features.10",
    ]
    assert len({module.weight.shape for module in model.modules() if isinstance(module, nn.Conv2d)}) == 5
    assert tuple(x.shape) == (1, 3, 224, 224)
    for shape, maps in (
        ("(64, 3, 11, 11)", "(1, 64, 55, 55)"),
        ("(192, 64, 5, 5)", "(1, 192, 27, 27)"),
        ("(384, 192, 3, 3)", "(1, 384, 13, 13)"),
        ("(256, 384, 3, 3)", "(1, 256, 13, 13)"),
        ("(256, 256, 3, 3)", "(1, 256, 13, 13)"),
    ):
        assert shows(f"{shape} 1 map stack of {maps}")


def test_shapes_as_keys_merge_most_layers_of_resnet34():
    convolutions = [module for module in models.resnet34().modules() if isinstance(module, nn.Conv2d)]
    shapes = {tuple(module.weight.shape) for module in convolutions}
    assert (len(convolutions), len(shapes)) == (36, 11)
    assert shows("drawers: 11")
    assert shows("never seen: 25")
    assert shows("layers: 36 first and last: conv1 layer4.2.conv2")


def test_the_in_place_relu_overwrites_what_is_stored():
    model, x = alexnet_and_input()
    with torch.no_grad():
        computed = model.features[0](x)
        negative, zero = (computed < 0).float().mean().item(), (computed == 0).float().mean().item()
    assert shows(f"the output itself negative numbers: 0% zeros: {negative:.0%}")
    assert shows(f"a clone of it negative numbers: {negative:.0%} zeros: {zero:.0%}")


def test_sheets_have_eight_tiles_a_row_with_edges_of_two():
    assert 2 + 8 * (55 + 2) == 458
    assert shows("(64, 1, 55, 55) in a sheet of (3, 458, 458)")
    for name, (channels, side) in {
        "features.2": (24, 56),
        "features.6": (48, 28),
        "features.10": (64, 14),
        "features.13": (96, 14),
        "features.16": (96, 14),
    }.items():
        assert shows(f"{name} PNG of {2 + 8 * (side + 2)} x {2 + channels // 8 * (side + 2)} pixels")


# --- F2: ResNet-34 ----------------------------------------------------------------------------------------------------


def test_the_first_15th_and_30th_convolution_of_resnet34():
    model, sizes = models.resnet34().eval(), []
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda m, a, out, name=name: sizes.append((name, tuple(out.shape[1:]))))
    with torch.no_grad():
        model(torch.zeros(1, 3, 224, 224))
    assert len(sizes) == 36
    for number in (1, 15, 30):
        name, shape = sizes[number - 1]
        assert shows(f"convolution {number:2}: {name} {shape}")


# --- F3: a drawing through one convolution ----------------------------------------------------------------------------


def test_only_alpha_knows_the_drawing():
    assert [channel.unique().numel() == 1 for channel in draw_strokes()] == [True, True, True, False]
    assert shows("red has one number green has one number blue has one number alpha has a picture")
    assert "together with left at 0%" in PAGE.printed


# --- F4: create_feature_extractor -------------------------------------------------------------------------------------


def test_the_extractor_gives_the_same_tensors_until_a_layer_works_in_place():
    model, x = alexnet_and_input()
    with torch.no_grad():
        maps = create_feature_extractor(model, ["features.0", "features.3"])(x)["features.0"]
        computed = model.features[0](x)
    assert torch.equal(maps, computed.relu())
    assert shows("equal to the clone of the hook: False equal to its ReLU: True")
    assert shows(
        "first: equal to the hook's, number by number: True second: equal to the hook's, number by number: True"
    )
    assert shows("layers inside: 7 of 17")
    with pytest.raises(torch.fx.proxy.TraceError, match="control flow"):
        create_feature_extractor(load_picture_net(), ["features.2"])
    assert shows("TraceError: symbolically traced variables cannot be used as inputs to control flow")


# --- what deeper layers do --------------------------------------------------------------------------------------------


@cache
def measured():
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
def test_the_table_of_layers():
    for name, (zeros, dead, on) in measured().items():
        row = next(line for line in PAGE.printed.splitlines() if re.match(rf"{name} +\(", line))
        shown = [int(number) for number in re.findall(r"(\d+)%? ", row.split(")")[1] + " ")]
        assert shown[1] == dead
        assert [shown[0], shown[2]] == pytest.approx([100 * zeros, 100 * on], abs=1)


@pytest.mark.slow
def test_what_the_words_say_about_the_layers_is_so():
    on = [row[2] for row in measured().values()]
    assert on[:4] == sorted(on[:4]), "closer and closer, up to the fourth"
    assert on[4] < on[3] - 0.1, "the fifth breaks the row"
    zeros = [row[0] for row in measured().values()]
    assert 0.75 < zeros[3] < 0.85, "eight in ten"
    assert zeros[4] < zeros[3]
    assert sum(row[1] for row in measured().values()) == 0, "no channel is dead here"
    tells = [int(number) for number in re.findall(r"^features\.\d+ .* (\d+)%$", PAGE.printed, re.MULTILINE)]
    assert len(tells) == 5
    assert tells[:4] == sorted(tells[:4])
    assert tells[3] >= 99, "tells it almost without a mistake"


def test_the_words_about_the_picture_are_so():
    net = load_picture_net()
    with torch.no_grad():
        logits = net(scene("balloon", "cat", seed=30).image[None])[0]
    assert {KINDS[k] for k in logits.topk(2).indices.tolist()} == {"balloon", "cat"}
    assert (logits > 0).sum() == 2


# --- what keeping costs -----------------------------------------------------------------------------------------------


def test_the_sizes_in_the_words():
    net, sizes = load_picture_net(), []
    for layer in net.features:
        layer.register_forward_hook(lambda module, args, output: sizes.append(4 * output.numel()))
    net(torch.zeros(1, 3, 112, 112))
    assert len(sizes) == 17
    assert sum(sizes) / 2**20 == pytest.approx(2, abs=0.05)
    assert 64 * sum(sizes) / 2**20 == pytest.approx(126, abs=0.5)
    assert shows(f"output.detach().clone() {64 * sizes[-1] / 2**20:.1f} MiB stay")
    kept = float(re.search(r"keeps output +([\d.]+) MiB", PAGE.printed).group(1))
    assert 0.8 < kept / (64 * sum(sizes) / 2**20) < 1, "nearly all layers"
