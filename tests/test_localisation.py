"""Scores of heat maps, with values that a pencil can check."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_utils.vision.scores import (
    Share,
    chance,
    energy_inside,
    grow,
    localise,
    point,
    points_at,
)


def heat(*rows):
    return torch.tensor([rows], dtype=torch.float32)


def mask(*rows):
    return torch.tensor([[[mark == "#" for mark in row] for row in rows]])


# Three rows and four columns: the hottest pixel is in row 1, column 2.
MAP = heat([0, 1, 0, 0], [0, 2, 5, 0], [0, 0, 2, 0])
THING = mask("....", "..##", "..##")  # holds 5 and 2 of the 10
OTHER = mask(".#..", ".#..", "....")


def test_the_hottest_pixel_is_a_row_and_a_column():
    assert point(MAP).tolist() == [[1, 2]]
    assert point(torch.cat([MAP, MAP.flip(2), MAP.flip(1)])).tolist() == [[1, 2], [1, 1], [1, 2]]


def test_of_equally_hot_pixels_the_first_counts():
    assert point(torch.ones(1, 3, 4)).tolist() == [[0, 0]]
    assert point(heat([0, 0], [7, 7])).tolist() == [[1, 0]]
    assert point(heat([0, 0], [7, 7 * (1 + 3e-7)])).tolist() == [[1, 0]]  # a rounding error apart
    assert point(heat([0, 0], [7, 7 * (1 + 3e-6)])).tolist() == [[1, 1]]
    assert point(heat([-2, -1], [-1, -3])).tolist() == [[0, 1]]


def test_strict_pointing_game():
    assert points_at(MAP, THING).tolist() == [True]
    assert points_at(MAP, OTHER).tolist() == [False]
    assert points_at(MAP, ~THING).tolist() == [False]


def test_a_map_without_heat_points_nowhere():
    everywhere = mask("....", "....", "....").logical_not()
    assert points_at(torch.zeros(1, 3, 4), everywhere).tolist() == [False]
    assert points_at(-MAP - 1, everywhere).tolist() == [False]


def test_each_map_has_its_own_mask():
    maps, masks = torch.cat([MAP, MAP]), torch.cat([THING, OTHER])
    assert points_at(maps, masks).tolist() == [True, False]
    assert energy_inside(maps, masks).tolist() == pytest.approx([0.7, 0.3])


def test_energy_is_a_share_of_the_sum():
    assert energy_inside(MAP, THING).item() == pytest.approx(0.7)  # (5 + 2) / 10
    assert energy_inside(1000 * MAP, THING).item() == pytest.approx(0.7)
    assert energy_inside(torch.zeros(1, 3, 4), THING).item() == 0


def test_energy_of_negative_values_is_refused():
    with pytest.raises(ValueError, match="apply a ReLU"):
        energy_inside(-MAP, THING)


def test_masks_grow_round():
    dot = mask(".....", ".....", "..#..", ".....", ".....")
    assert grow(dot, 0).equal(dot)
    assert grow(dot, 0.9).equal(dot)
    assert grow(dot, 1).equal(mask(".....", "..#..", ".###.", "..#..", "....."))
    assert grow(dot, 1.5).equal(mask(".....", ".###.", ".###.", ".###.", "....."))
    assert grow(dot, 2).equal(mask("..#..", ".###.", "#####", ".###.", "..#.."))


def test_growing_ends_at_the_edge_and_goes_not_round_it():
    assert grow(mask("#..", "..."), 1).equal(mask("##.", "#.."))
    assert grow(mask("...", "..."), 2).equal(mask("...", "..."))


@given(st.integers(0, 2**12 - 1), st.sampled_from([0, 1, 1.5, 2, 3]))
def test_growing_is_what_distances_say(bits, pixels):
    marked = torch.tensor([bits >> n & 1 == 1 for n in range(12)]).reshape(1, 3, 4)
    inside = marked[0].nonzero().tolist()
    grown = grow(marked, pixels)
    for row in range(3):
        for column in range(4):
            near = any(math.hypot(row - r, column - c) <= pixels for r, c in inside)
            assert grown[0, row, column].item() == near


def test_chance_is_area():
    assert chance(THING) == pytest.approx(4 / 12)
    assert chance(torch.cat([THING, OTHER])) == pytest.approx((4 + 2) / 24)


def test_chance_is_what_random_pixels_reach():
    """Every pixel once as the hottest one: the share of hits is the chance."""
    maps = torch.eye(12).reshape(12, 3, 4)
    hits = points_at(maps, THING.expand(12, 3, 4))
    assert hits.double().mean().item() == pytest.approx(chance(THING))
    assert energy_inside(torch.ones(1, 3, 4), THING).item() == pytest.approx(chance(THING))


def test_all_scores_together():
    maps = torch.cat([MAP, MAP.flip(2), torch.zeros(1, 3, 4)])
    score = localise(maps, THING.expand(3, 3, 4), OTHER.expand(3, 3, 4), tolerance=1)
    # The second map is hottest at row 1, column 1: beside the thing, and on the other one. 2 of its 10 is on the thing.
    assert (score.maps, score.empty) == (3, 1)
    assert score.strict == Share(1, 3, pytest.approx(4 / 12))
    assert score.tolerant == Share(2, 3, pytest.approx(8 / 12))
    assert (score.energy.hits, score.energy.of) == (pytest.approx(0.7 + 0.2), 3)
    assert score.wrong == Share(1, 3, pytest.approx(2 / 12))
    assert str(score) == (
        "3 maps: on the thing 33% (chance 33%), on it or near it 67% (chance 67%), energy inside 30% (chance 33%), "
        "on the wrong thing 33% (chance 17%); 1 empty"
    )


def test_without_other_things_there_is_no_wrong_one():
    score = localise(MAP, THING)
    assert score.wrong is None
    assert "wrong" not in str(score)


def test_nothing_to_score():
    assert math.isnan(Share(0, 0, 0.5).share)
    assert math.isnan(chance(THING[:0]))


@pytest.mark.parametrize(
    ("maps", "masks", "says"),
    [
        (MAP[0], THING[0], r"add the batch dimension with heatmap\[None\]"),
        (MAP.long(), THING, "heat maps are floats"),
        (MAP / 0, THING, "not finite"),
        (MAP, THING.float(), "masks are bool"),
        (MAP, THING[0], "masks are bool of shape"),
        (-MAP, THING, "apply a ReLU"),
        (MAP[:, :2], THING, "enlarge the maps"),
        (MAP, THING.expand(2, 3, 4), "each map its own mask"),
    ],
)
def test_bad_input_gets_a_sentence(maps, masks, says):
    with pytest.raises(ValueError, match=says):
        localise(maps, masks)


@pytest.mark.parametrize("pixels", [-1, float("inf"), float("nan")])
def test_bad_distances_get_a_sentence(pixels):
    with pytest.raises(ValueError, match="0 pixels or more"):
        grow(THING, pixels)


def test_inputs_stay_as_they_are():
    maps, masks = MAP.clone(), THING.clone()
    localise(maps, masks, OTHER)
    assert maps.equal(MAP)
    assert masks.equal(THING)
