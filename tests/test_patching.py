"""Patching without hooks: the network's parts called one after the other. And the explorer over it."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from panels import control, shown
from torch import Tensor

from course_utils.explorers.html import make_paragraph
from course_utils.explorers.patching import PAIRS, Patching, draw_patch, find_block
from course_utils.hooks.inventory import count_hooks
from course_utils.root import CourseError
from course_utils.scenes.scene import KINDS
from course_utils.vision.networks import PictureNet, load_picture_net
from course_utils.vision.patching import SWAPS, cells_of, output_of, patch, recovered, scan, swap_pair
from course_utils.vision.scores import grow


@cache
def network(misled: bool = False) -> PictureNet:
    return load_picture_net(misled)


@torch.no_grad()
def run_parts(x: Tensor, first: int, last: int, misled: bool = False) -> Tensor:
    """What `features[first:last]` makes of `x`."""
    for module in network(misled).features[first:last]:
        x = module(x)
    return x


@torch.no_grad()
def patch_by_hand(number: int, source: Tensor, target: Tensor, region: Tensor, misled: bool = False) -> Tensor:
    """The logits with `features.<number>` patched: cut the network in two and put the pieces together."""
    there, here = (run_parts((each - 0.5) / 0.25, 0, number + 1, misled) for each in (source, target))
    mixed = here.clone()
    mixed[..., region] = there[..., region]
    maps = run_parts(mixed, number + 1, 17, misled)
    return network(misled).classifier(maps.mean((2, 3)))


@cache
def pair() -> tuple[Tensor, Tensor]:
    return tuple(each.image[None] for each in swap_pair(0))


@pytest.mark.parametrize(("number", "size"), [(2, 56), (6, 28), (10, 14), (16, 14)])
def test_patch_is_the_network_cut_in_two(number, size):
    region = torch.zeros(size, size, dtype=torch.bool)
    region[size // 3 : size // 2, : size // 2] = True
    got = patch(network(), f"features.{number}", *pair(), region)
    assert torch.allclose(got, patch_by_hand(number, *pair(), region), atol=1e-4)


def test_everything_is_the_source_and_nothing_is_the_target():
    source, target = pair()
    with torch.no_grad():
        there, here = network()(source), network()(target)
    nowhere = torch.zeros(14, 14, dtype=torch.bool)
    for layer in ("features.10", "features.13", "features.16"):
        assert torch.allclose(patch(network(), layer, source, target), there, atol=1e-5)
        assert torch.allclose(patch(network(), layer, source, target, nowhere), here, atol=1e-5)


def test_a_batch_with_a_region_for_each_picture():
    sources, targets = (torch.cat(each) for each in zip(pair(), pair()[::-1], strict=True))
    regions = torch.zeros(2, 14, 14, dtype=torch.bool)
    regions[0, :7] = regions[1, :, 4:] = True
    got = patch(network(), "features.10", sources, targets, regions)
    for index in range(2):
        one = patch(network(), "features.10", sources[[index]], targets[[index]], regions[index])
        assert torch.allclose(got[[index]], one, atol=1e-4)


def test_nothing_is_left():
    images = [each.clone() for each in pair()]
    patch(network(), "features.6", *images)
    scan(network(), "features.16", *images, 0)
    assert count_hooks(network()).total() == 0
    assert all(torch.equal(one, other) for one, other in zip(images, pair(), strict=True))
    assert all(parameter.grad is None for parameter in network().parameters())


def test_hooks_go_when_the_network_raises():
    with pytest.raises(ValueError, match="PictureNet takes"):
        patch(network(), "features.6", pair()[0], torch.zeros(1, 3, 8, 8))
    assert count_hooks(network()).total() == 0


def test_a_region_of_another_size_is_refused_in_words():
    with pytest.raises(CourseError, match=r"features.6 has 28 x 28 cells, the region \(14, 14\)"):
        patch(network(), "features.6", *pair(), torch.ones(14, 14, dtype=torch.bool))


def test_a_layer_that_there_is_not_is_named_with_the_nearest():
    for call in (
        lambda: patch(network(), "features.61", *pair()),
        lambda: output_of(network(), "features.61", pair()[0]),
    ):
        with pytest.raises(CourseError, match=r"'features.61' is not in PictureNet \(nearest: .*features.6"):
            call()


def test_the_share_of_the_way():
    assert recovered(torch.tensor(4.0), torch.tensor(12.0), torch.tensor(-8.0)).item() == pytest.approx(0.6)
    assert recovered(torch.tensor([12.0, -8.0]), torch.tensor(12.0), torch.tensor(-8.0)).tolist() == [1.0, 0.0]


def test_cells_are_those_with_a_pixel_of_the_mask():
    mask = torch.zeros(1, 112, 112, dtype=torch.bool)
    mask[0, 15, 16] = mask[0, 40:48, 8:16] = True
    for size in (14, 28, 56):
        side = 112 // size
        wanted = mask.reshape(1, size, side, size, side).any(4).any(2)
        assert torch.equal(cells_of(mask, (size, size)), wanted)


def test_scan_at_the_last_layer_is_the_difference_of_the_class_maps():
    source, target = pair()
    cat = KINDS.index("cat")
    maps = [run_parts((each - 0.5) / 0.25, 0, 17)[0] for each in (source, target)]
    difference = torch.einsum("c,chw->hw", network().classifier.weight[cat].detach(), maps[0] - maps[1]) / 196
    assert torch.allclose(scan(network(), "features.16", source, target, cat), difference, atol=1e-4)


@pytest.mark.parametrize(("layer", "reach"), [("features.16", 0), ("features.13", 1), ("features.10", 2)])
def test_scan_is_one_patch_after_the_other(layer, reach):
    source, target = pair()
    effects = scan(network(), layer, source, target, 3, reach)
    before = network()(target)[0, 3].item()
    for row, column in ((0, 0), (5, 9), (13, 4)):
        region = torch.zeros(14, 14, dtype=torch.bool)
        region[max(row - reach, 0) : row + reach + 1, max(column - reach, 0) : column + reach + 1] = True
        moved = patch(network(), layer, source, target, region)[0, 3].item() - before
        assert effects[row, column].item() == pytest.approx(moved, abs=1e-3)


@pytest.mark.parametrize("number", range(len(SWAPS)))
def test_the_pictures_of_a_swap_differ_at_the_thing_only(number):
    one, other = swap_pair(number)
    there = grow((one.masks[0] | other.masks[0])[None], 6)[0]  # with its shadow
    assert not ((one.image - other.image).abs().amax(0) > 0.02)[~there].any()
    assert one.labels[1] == other.labels[1]
    assert one.labels[0] != other.labels[0]


def test_output_of_is_a_copy():
    kept = output_of(network(), "features.15", pair()[0])
    assert torch.allclose(kept, run_parts((pair()[0] - 0.5) / 0.25, 0, 16), atol=1e-5)
    assert (kept < 0).any()


# --- the explorer -----------------------------------------------------------------------------------------------------

BUOY = {"pair": 1, "network": "misled", "layer": "features.6", "row": 7, "column": 1, "size": 3}
ALL = {"row": 0, "column": 0, "size": 14}


@pytest.mark.parametrize("number", range(1, len(PAIRS) + 1))
def test_every_pair_has_an_answer_that_can_be_moved(number):
    for layer in ("features.2", "features.16"):
        there, here, patched = draw_patch(number, "misled", layer, **ALL).logits
        assert there > 0 > here
        assert patched == pytest.approx(there, abs=1e-3)


def test_the_honest_network_is_unmoved_by_the_buoy():
    assert max(draw_patch(1, "honest", "features.6", **ALL).logits) < 0


def test_the_sentence_says_what_the_numbers_are():
    view = draw_patch(**BUOY)
    region = torch.zeros(28, 28, dtype=torch.bool)
    region[14:20, 2:8] = True
    scenes = PAIRS[0].draw()
    source, target = (each.image[None] for each in scenes)
    fish, cue = KINDS.index("fish"), scenes[0].cue_mask
    patched = patch_by_hand(6, source, target, region, misled=True)[0, fish]
    with torch.no_grad():
        there, here = (network(True)(each)[0, fish] for each in (source, target))
    assert view.logits == pytest.approx((there.item(), here.item(), patched.item()), abs=1e-3)
    assert view.sentence == (
        f"Pair 1: {scenes[0]} (the source); {scenes[1]} (the target). The misled network answers fish: yes "
        f"({there.sigmoid():.0%}) for the source and no ({here.sigmoid():.0%}) for the target. With a block of "
        f"features.6 from the source, {(cue & find_block(7, 1, 3)).sum() / cue.sum():.0%} of the buoy in it and 5% of "
        f"the map, it answers yes ({patched.sigmoid():.0%}) for the target: "
        f"{100 * (patched - here) / (there - here):.0f}% of the way."
    )
    assert view.alt == f"A{str(scenes[0])[1:]}; {scenes[1]}, the block outlined in both; Grad-CAM's map of the first."


def test_a_block_that_misses_says_nothing_odd():
    sentence = draw_patch(1, "misled", "features.16", row=0, column=12, size=1).sentence
    assert "-0%" not in sentence
    assert "0% of the buoy in it" in sentence


def test_without_a_cue_the_first_thing_is_what_differs():
    assert "100% of the cat in it and 100% of the map" in draw_patch(3, "honest", "features.10", **ALL).sentence


def test_a_block_at_the_edge_is_cut_off():
    assert find_block(row=13, column=12, size=5).nonzero().amin(0).tolist() == [104, 96]
    assert find_block(row=13, column=12, size=5).sum().item() == 8 * 16


def test_each_control_changes_picture_and_sentence():
    explorer, state = Patching(1, "misled", row=7, column=1), dict(BUOY)
    changes = {"size": 4, "row": 6, "column": 2, "layer": "features.16", "network": "honest", "pair": 3}
    for name, value in changes.items():
        before = shown(explorer)
        control(explorer, name.capitalize()).value = value
        state[name] = value
        assert explorer.sentence == draw_patch(**state).sentence
        assert make_paragraph(explorer.sentence) in shown(explorer) != before


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"pair": 0}, "Pair is a whole number from 1 to 6, got 0"),
        ({"network": "mislead"}, "did you mean 'misled'"),
        ({"layer": "classifier"}, "Layer: there is no 'classifier' here"),
        ({"row": 14}, "Row is a whole number from 0 to 13, got 14"),
        ({"column": -1}, "Column is a whole number from 0 to 13"),
        ({"size": 0}, "Size is a whole number from 1 to 14"),
    ],
)
def test_what_there_is_not_is_said(arguments, complaint):
    with pytest.raises(CourseError, match=complaint):
        Patching(**arguments)
