"""Patching without hooks: the network's parts called one after the other. And the explorer over it."""

import re
from functools import cache

import pytest
import torch
from ipycanvas import Canvas
from panels import control, controls
from torch import Tensor

from course_utils.explorers.patching import PAIRS, Patching, draw_pair, draw_patch, find_block, place_block
from course_utils.root import CourseError
from course_utils.scenes.scene import KINDS
from course_utils.vision.networks import load_picture_net
from course_utils.vision.patching import SWAPS, cells_of, patch, recovered, scan, swap_pair
from course_utils.vision.scores import grow

network = cache(load_picture_net)
PAIR = tuple(each.image[None] for each in swap_pair(0))
ALL = {"row": 0, "column": 0, "size": 14}


@torch.no_grad()
def run_up_to(number: int, images: Tensor, misled: bool = False) -> Tensor:
    return network(misled=misled).features[: number + 1]((images - 0.5) / 0.25)


@torch.no_grad()
def patch_by_hand(number: int, source: Tensor, target: Tensor, region: Tensor, misled: bool = False) -> Tensor:
    """The logits with `features.<number>` patched: cut the network in two and put the pieces together."""
    mixed = torch.where(region, *(run_up_to(number, each, misled) for each in (source, target)))
    return network(misled=misled).classifier(network(misled=misled).features[number + 1 :](mixed).mean((2, 3)))


@pytest.mark.parametrize(("number", "size"), [(2, 56), (6, 28), (10, 14), (16, 14)])
def test_patch_is_the_network_cut_in_two(number, size):
    regions = torch.zeros(2, size, size, dtype=torch.bool)
    regions[0, size // 3 : size // 2, : size // 2] = regions[1, :, 4:] = True
    sources, targets = (torch.cat(each) for each in (PAIR, PAIR[::-1]))  # a batch, and a region for each picture
    got = patch(network(), f"features.{number}", sources, targets, regions)
    assert torch.allclose(got, patch_by_hand(number, sources, targets, regions[:, None]), atol=1e-4)
    assert torch.allclose(patch(network(), f"features.{number}", *PAIR, regions[0]), got[:1], atol=1e-4)


def test_a_region_of_another_size_and_a_layer_that_there_is_not_are_refused_in_words():
    says = r"features.6 has 28 x 28 cells, the region \(14, 14\)"
    for layer, words in (("features.6", says), ("features.61", r"not in PictureNet \(nearest: .*features.6")):
        with pytest.raises(CourseError, match=words):
            patch(network(), layer, *PAIR, torch.ones(14, 14, dtype=torch.bool))


def test_the_share_of_the_way_and_the_cells_with_a_pixel_of_the_mask():
    shares = recovered(torch.tensor([4.0, 12, -8]), torch.tensor(12.0), torch.tensor(-8.0))
    assert shares.tolist() == pytest.approx([0.6, 1, 0])
    mask = torch.zeros(1, 112, 112, dtype=torch.bool)
    mask[0, 15, 16] = mask[0, 40:48, 8:16] = True
    for size in (14, 28, 56):
        side = 112 // size
        assert torch.equal(cells_of(mask, (size, size)), mask.reshape(1, size, side, size, side).any(4).any(2))


def test_scan_at_the_last_layer_is_the_difference_of_the_class_maps():
    cat = KINDS.index("cat")
    source, target = (run_up_to(16, each)[0] for each in PAIR)
    difference = torch.einsum("c,chw->hw", network().classifier.weight[cat].detach(), source - target) / 196
    assert torch.allclose(scan(network(), "features.16", *PAIR, cat), difference, atol=1e-4)


@pytest.mark.parametrize(("layer", "reach"), [("features.13", 1), ("features.10", 2)])
def test_scan_is_one_patch_after_the_other(layer, reach):
    effects = scan(network(), layer, *PAIR, 3, reach)
    before = network()(PAIR[1])[0, 3].item()
    for row, column in ((0, 0), (5, 9), (13, 4)):
        region = torch.zeros(14, 14, dtype=torch.bool)
        region[max(row - reach, 0) : row + reach + 1, max(column - reach, 0) : column + reach + 1] = True
        moved = patch(network(), layer, *PAIR, region)[0, 3].item() - before
        assert effects[row, column].item() == pytest.approx(moved, abs=1e-3)


@pytest.mark.parametrize("number", range(len(SWAPS)))
def test_the_pictures_of_a_swap_differ_at_the_thing_only(number):
    one, other = swap_pair(number)
    there = grow((one.masks[0] | other.masks[0])[None], 6)[0]  # with its shadow
    assert not ((one.image - other.image).abs().amax(0) > 0.02)[~there].any()
    assert one.labels[1] == other.labels[1]
    assert one.labels[0] != other.labels[0]


@pytest.mark.parametrize("number", range(1, len(PAIRS) + 1))
def test_every_pair_has_an_answer_that_can_be_moved(number):
    there, here, patched = draw_patch(number, "misled", "features.16", **ALL).facts
    assert there > 0 > here
    assert patched == pytest.approx(there, abs=1e-3)
    if number == 1:
        assert max(draw_patch(number, "honest", "features.6", **ALL).facts) < 0, "unmoved by the buoy"


def test_the_sentence_says_what_the_numbers_are():
    view = draw_patch(1, "misled", "features.6", row=7, column=1, size=3)
    region = torch.zeros(28, 28, dtype=torch.bool)
    region[14:20, 2:8] = True  # of 28 x 28 cells, where the grid of the block has 14 x 14
    (*scenes, _), fish = draw_pair(1), KINDS.index("fish")
    images, cue = [each.image[None] for each in scenes], scenes[0].cue_mask
    patched = patch_by_hand(6, *images, region, misled=True)[0, fish]
    there, here = (network(misled=True)(each)[0, fish].detach() for each in images)
    assert view.facts == pytest.approx((there.item(), here.item(), patched.item()), abs=1e-3)
    inside, way = (cue & find_block(7, 1, 3)).sum() / cue.sum(), (patched - here) / (there - here)
    shares = [there.sigmoid(), here.sigmoid(), inside, 0.05, patched.sigmoid(), way]
    assert re.findall(r"\d+%", view.sentence) == [f"{share:.0%}" for share in shares]
    answers = [f"yes ({there.sigmoid():.0%})", f"no ({here.sigmoid():.0%})", f"yes ({patched.sigmoid():.0%})"]
    for words, begin in (
        (view.sentence, f"Pair 1: the source is {scenes[0]}; the target is {scenes[1]}."),
        (view.alt, "A"),
    ):
        assert words.startswith(begin)
        assert re.findall(r"yes \(\d+%\)|no \(\d+%\)", words) == answers
    assert "a piece of the source in a frame, from row 7 and column 1, 3 wide" in view.alt


def test_the_picture_shows_what_the_patch_carries_and_where_it_lies():
    sheet = draw_patch(1, "misled", "features.6", row=7, column=1, size=3).picture
    source, target, patched = (sheet[:, 4:228, 4 + 228 * number : 228 + 228 * number] for number in range(3))
    inside = slice(3), slice(7 * 16 + 4, 10 * 16 - 4), slice(16 + 4, 4 * 16 - 4)  # in the frame, without its line
    assert torch.equal(patched[inside], source[inside])
    assert not torch.allclose(patched[inside], target[inside], atol=0.2), "the buoy is in the frame"
    assert torch.equal(patched[:, :100], target[:, :100])
    assert (source != target)[:, 7 * 16, 16:64].all(), "the frame is drawn on the source too"


SIDE, HIGH = 688, 252  # of the three pictures: 4 pixels around each of 224, and 20 for the words below


@pytest.mark.parametrize(
    ("pixels", "size", "block"),
    [
        ([(4 + 8, 4 + 8)] * 2, 3, (0, 0, 3)),  # a click in the first cell: the block cannot be around it
        ([(4 + 16 * 5 + 8, 4 + 16 * 9 + 8)] * 2, 3, (8, 4, 3)),
        ([(232 + 16 * 5 + 8, 4 + 16 * 9 + 8)] * 2, 1, (9, 5, 1)),  # on the second picture
        ([(460 + 16 * 2 + 1, 4 + 16 * 3 + 1), (460 + 16 * 5 + 15, 4 + 16 * 4 + 15)], 1, (3, 2, 4)),
        ([(460 + 16 * 9 + 8, 4 + 16 * 9 + 8), (460 + 16 * 7 + 8, 4 + 16 * 9 + 8)], 1, (9, 7, 3)),  # to the left
        ([(4 + 16 * 12, 60), (600, 60)], 1, (3, 12, 2)),  # it ends on another picture
    ],
)
def test_a_click_moves_the_block_and_a_drag_spans_a_new_one(pixels, size, block):
    assert place_block(tuple((x / SIDE, y / HIGH) for x, y in pixels), size) == block


def test_the_picture_is_clicked_dragged_and_moved_by_keys():
    explorer = Patching(row=0, column=0)
    assert controls(explorer, Canvas) == [], "it waits for a front end that can show it"
    area = explorer.controls["drag"]
    canvas = area.canvas
    tell = lambda event, **more: canvas._handle_frontend_event(canvas, {"event": event, **more}, [])  # noqa: E731
    tell("client_ready")
    assert controls(explorer, Canvas) == [canvas]
    at = {"x": 1000 * (4 + 16 * 2 + 8) / SIDE, "y": 1000 * (4 + 16 * 8 + 8) / HIGH}
    tell("mouse_move", x=1, y=1)
    tell("mouse_down", **at)
    block = [control(explorer, words) for words in ("Row", "Column", "Size")]
    assert [each.value for each in block] == [7, 1, 3]
    tell("mouse_move", x=at["x"] + 1000 * 16 / SIDE, y=at["y"])
    assert [each.value for each in block] == [8, 2, 2]
    assert explorer.sentence == Patching(row=8, column=2, size=2).sentence
    tell("mouse_up", **at)
    tell("mouse_move", x=1, y=1)
    for key in ("ArrowDown", "ArrowLeft", "+", "x"):
        tell("key_down", key=key, shift_key=False, ctrl_key=False, meta_key=False)
    assert ([each.value for each in block], area.value[0]) == ([9, 1, 3], (at["x"] / 1000, at["y"] / 1000))


def test_a_block_may_miss_or_hold_all_that_differs():
    sentence = draw_patch(1, "misled", "features.16", row=0, column=12, size=1).sentence
    assert ("-0%" in sentence, "with 0% of the buoy" in sentence) == (False, True)
    assert "100% of the cat and 100% of the picture" in draw_patch(3, "honest", "features.10", **ALL).sentence
    cut_off = find_block(row=13, column=12, size=5)
    assert (cut_off.nonzero().amin(0).tolist(), cut_off.sum().item()) == ([104, 96], 8 * 16)
