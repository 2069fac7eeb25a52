"""The values that lesson 05 teaches, found by a second method, and that its committed notebook shows just these."""

import re

import numpy as np
import pytest
import torch
from lesson_pages import LessonPage
from torch import nn

from course_utils.scenes.scene import KINDS, scenes
from course_utils.vision.networks import load_classifier, load_picture_net
from course_utils.vision.real import REAL, photograph
from course_utils.vision.scores import grow

PAGE = LessonPage("05_feature_maps")
shows = PAGE.shows


@pytest.mark.slow
def test_convolutions_and_spans_of_the_real_network():
    real, kept = load_classifier(REAL), []
    convolutions = [module for module in real.model.modules() if isinstance(module, nn.Conv2d)]
    shapes = {tuple(module.weight.shape) for module in convolutions}
    assert (len(convolutions), len(shapes)) == (49, 31)
    assert shows(f"convolutions: {len(convolutions)} keys: {len(shapes)}")
    assert shows(f"layers: {len(convolutions)} first and last: conv_stem conv_head")
    convolutions[0].register_forward_hook(lambda module, args, output: kept.append(output[0].flatten(1)))
    with torch.no_grad():
        real.model(real.transform(photograph("chelsea"))[None])
    spans = np.sort(np.ptp(kept[0].numpy(), axis=1))[::-1]
    assert shows(f"the largest span: {spans[0]:.0f}, the 10th: {spans[9]:.0f}, the 20th: {spans[19]:.0f}")
    assert round(spans[19]) == 4
    assert spans[-1] < 0.001


@pytest.mark.slow
def test_the_in_place_relu_overwrites_what_is_stored():
    found = load_classifier("squeezenet1_1", pretrained=False)
    with torch.no_grad():
        computed = found.model.features[0](found.transform(photograph("chelsea"))[None])
    negative, zero = (computed < 0).float().mean().item(), (computed == 0).float().mean().item()
    assert shows(f"the output itself negative: 0% zero: {negative:.0%}")
    assert shows(f"a clone of it negative: {negative:.0%} zero: {zero:.0%}")
    assert shows("inplace=True: equal to what the convolution returned: False inplace=False: equal", "to what the")


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


@pytest.mark.slow
def test_the_response_on_the_things_and_beside_them_by_counting():
    """Of the fourth layer; what "tells" counts is proved in `test_feature_maps`."""
    batch, net, on, grown, area = scenes(60, seed=906), load_picture_net(), [], [], []
    with torch.no_grad():
        maps = net.features[:14]((batch.images / 255 - 0.5) / 0.25)
    for kind in KINDS:
        there, masks = batch.labels[:, KINDS.index(kind)] > 0, batch.masks(kind)
        channel = int(re.search(rf"{kind}: (\d+)[,.]", PAGE.printed)[1])
        large = maps[there, channel].repeat_interleave(8, 1).repeat_interleave(8, 2)  # each place as its 8 x 8 pixels
        wide = grow(masks[there], 8)
        on.append((large[masks[there]].sum() / large.sum()).item())
        grown.append((large[wide].sum() / large.sum()).item())
        area.append(wide.float().mean().item())
    assert read_table()["features.13"][0] == round(100 * np.mean(on))
    assert shows(f"the things, grown by 8 pixels, cover {np.mean(area):.0%}")
    assert shows(f"{np.mean(grown):.0%} of the response of features.13")


def test_the_sizes_in_the_words():
    net, sizes = load_picture_net(), []
    for layer in net.features:
        layer.register_forward_hook(lambda module, args, output: sizes.append(4 * output.numel() / 2**20))
    net(torch.zeros(1, 3, 112, 112))
    assert len(sizes) == 17
    assert sum(sizes) == pytest.approx(2, abs=0.05)
    assert 32 * sum(sizes) == pytest.approx(63, abs=0.25)
    assert shows(f"output.detach().clone() {32 * sizes[-1]:.1f} MiB stay")
    kept = float(re.search(r"keeps output +([\d.]+) MiB", PAGE.printed).group(1))
    assert 0.8 < kept / (32 * sum(sizes)) < 1, "nearly all layers"
