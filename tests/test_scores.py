"""Scores of heat maps, with values that a pencil can check or that a second method gives."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_utils.root import CourseError
from course_utils.vision.scores import (
    HitRate,
    chance,
    cosine_similarity,
    energy_inside,
    find_strength,
    group_layers,
    grow,
    localise,
    measure_class_sensitivity,
    point,
    points_at,
    randomise_cascading,
    rank_correlation,
)

# --- does a map point at the thing? -----------------------------------------------------------------------------------


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


def test_a_map_without_heat_points_nowhere():
    everywhere = mask("....", "....", "....").logical_not()
    assert points_at(torch.zeros(1, 3, 4), everywhere).tolist() == [False]
    assert points_at(-MAP - 1, everywhere).tolist() == [False]


def test_energy_is_a_share_of_the_sum():
    assert energy_inside(MAP, THING).item() == pytest.approx(0.7)  # (5 + 2) / 10
    assert energy_inside(1000 * MAP, THING).item() == pytest.approx(0.7)
    assert energy_inside(torch.zeros(1, 3, 4), THING).item() == 0


def test_masks_grow_round():
    dot = mask(".....", ".....", "..#..", ".....", ".....")
    assert grow(dot, 0).equal(dot)
    assert grow(dot, 0.9).equal(dot)
    assert grow(dot, 1).equal(mask(".....", "..#..", ".###.", "..#..", "....."))
    assert grow(dot, 1.5).equal(mask(".....", ".###.", ".###.", ".###.", "....."))
    assert grow(dot, 2).equal(mask("..#..", ".###.", "#####", ".###.", "..#.."))


@given(st.integers(0, 2**12 - 1), st.sampled_from([0, 1, 1.5, 2, 3]))
def test_growing_is_what_distances_say(bits, pixels):
    marked = torch.tensor([bits >> n & 1 == 1 for n in range(12)]).reshape(1, 3, 4)
    inside = marked[0].nonzero().tolist()
    grown = grow(marked, pixels)
    for row in range(3):
        for column in range(4):
            near = any(math.hypot(row - r, column - c) <= pixels for r, c in inside)
            assert grown[0, row, column].item() == near


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
    assert score.strict == HitRate(1, 3, pytest.approx(4 / 12))
    assert score.tolerant == HitRate(2, 3, pytest.approx(8 / 12))
    assert (score.energy.hits, score.energy.of) == (pytest.approx(0.7 + 0.2), 3)
    assert score.wrong == HitRate(1, 3, pytest.approx(2 / 12))
    assert str(score) == (
        "3 maps: on the thing 33% (chance 33%), on it or near it 67% (chance 67%), energy inside 30% (chance 33%), "
        "on the wrong thing 33% (chance 17%); 1 empty"
    )


def test_without_other_things_there_is_no_wrong_one_and_of_no_maps_the_share_is_nan():
    score = localise(MAP, THING)
    assert score.wrong is None
    assert "wrong" not in str(score)
    assert math.isnan(HitRate(0, 0, 0.5).share)


# --- similarities -----------------------------------------------------------------------------------------------------


def test_strength_adds_absolute_values_of_channels():
    gradients = torch.tensor([[[[1.0, -2.0]], [[-3.0, 0.0]], [[0.5, 2.0]]]])
    assert find_strength(gradients).tolist() == [[[4.5, 4.0]]]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 1000], 1),
        ([1, 2, 3, 4], [8, 4, 2, 1], -1),
        ([1, 2, 3, 4], [2, 1, 4, 3], 0.6),  # 1 - 6 · (1 + 1 + 1 + 1) / (4 · 15)
        ([1, 2, 3], [1, 3, 2], 0.5),  # 1 - 6 · 2 / (3 · 8)
        ([0, 0, 1], [0, 1, 2], 3**0.5 / 2),  # ranks 0.5, 0.5, 2 and 0, 1, 2
    ],
)
def test_rank_correlation_by_hand(one, other, expected):
    found = rank_correlation(torch.tensor([one]), torch.tensor([other]))
    assert found.tolist() == pytest.approx([expected])


def test_a_constant_map_has_no_order():
    assert rank_correlation(torch.ones(1, 4), torch.arange(4.0)[None]).isnan().all()


def test_cosine_by_hand():
    maps = torch.tensor([[[3.0, 4.0]], [[1.0, 0.0]], [[1.0, 2.0]], [[0.0, 0.0]]])
    others = torch.tensor([[[4.0, 3.0]], [[0.0, 5.0]], [[-2.0, -4.0]], [[1.0, 1.0]]])
    found = cosine_similarity(maps, others)
    assert found[:3].tolist() == pytest.approx([0.96, 0, -1])
    assert found[3].isnan()


# --- class sensitivity ------------------------------------------------------------------------------------------------


def two_things():
    """One picture of 1 x 4 pixels: the first thing left, the second one right, with a pixel of background each."""
    return torch.tensor([[[True, False, False, False]]]), torch.tensor([[[False, False, False, True]]])


def test_class_sensitivity_by_hand():
    first = torch.tensor([[[[3.0, 5.0, 0.0, -1.0]]]])
    second = torch.tensor([[[[-3.0, 5.0, 0.0, 2.0]]]])
    found = measure_class_sensitivity(first, second, *two_things())
    assert found.on_own == pytest.approx((3 / 4 + 2 / 5) / 2)
    assert found.cosine == pytest.approx((-9 + 25 - 2) / (35**0.5 * 38**0.5))
    assert found.ranks == pytest.approx(1)  # strengths 3 5 0 1 and 3 5 0 2
    assert str(found) == "on its own thing 0.57 (chance 0.50), cosine 0.38, ranks 1.00, 1 pictures"


# --- cascading randomisation ------------------------------------------------------------------------------------------


def small_net():
    torch.manual_seed(5)
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Sequential(nn.Flatten(), nn.Linear(8, 4)), nn.Linear(4, 2)
    )
    net[1].running_mean += 3
    return net.eval()


def test_a_normalisation_goes_with_the_layer_before_it():
    net = small_net()
    assert group_layers(net) == [("0", [net[0], net[1]]), ("3.1", [net[3][1]]), ("4", [net[4]])]


def changed(net, twin):
    return {name for name, value in net.state_dict().items() if not torch.equal(value, twin.state_dict()[name])}


def test_layers_become_random_from_the_last_one_downwards():
    net = small_net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = [(name, changed(net, twin)) for name, twin in randomise_cascading(net)]
    last, middle = {"4.weight", "4.bias"}, {"3.1.weight", "3.1.bias"}
    assert [name for name, _ in found] == ["4", "3.1", "0"]
    assert found[0][1] == last
    assert found[1][1] == last | middle
    assert found[2][1] == last | middle | {"0.weight", "0.bias", "1.running_mean"}
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    twins = [twin for _, twin in randomise_cascading(net.requires_grad_(False), seed=4)]
    assert torch.equal(twins[0][4].weight, twins[2][4].weight)  # a random layer stays the same in the next copies
    assert torch.equal(twins[1][3][1].weight, twins[2][3][1].weight)
    assert not any(twin.training or any(each.requires_grad for each in twin.parameters()) for twin in twins)


def test_the_seed_decides_and_the_callers_random_state_stays():
    state = torch.random.get_rng_state()
    net = small_net()
    torch.random.set_rng_state(state)
    first, again, other = (next(randomise_cascading(net, seed))[1][4].weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("maps", "masks", "says"),
    [
        (MAP[0], THING[0], r"finite floats \(N, H, W\), a single one heatmap\[None\]"),
        (MAP.long(), THING, "heat maps are finite floats .*got torch.int64"),
        (MAP / 0, THING, "with 12 nan or infinite values"),
        (MAP, THING.float(), r"need such masks, bool, got torch.float32 \(1, 3, 4\)"),
        (-MAP, THING, "apply a ReLU"),
        (MAP[:, :2], THING, "enlarge the maps"),
        (MAP, THING.expand(2, 3, 4), "each map its own mask"),
    ],
)
def test_maps_and_masks_that_do_not_go_together_get_a_sentence(maps, masks, says):
    with pytest.raises(CourseError, match=says):
        localise(maps, masks)


def test_what_cannot_be_compared_measured_or_randomised():
    gradients, (first, second) = torch.ones(1, 3, 1, 4), two_things()
    scale = nn.Module()
    scale.factor = nn.Parameter(torch.ones(1))
    for call, says in (
        (lambda: rank_correlation(torch.zeros(1, 4), torch.zeros(1, 5)), r"of one shape.*\(1, 4\) and \(1, 5\)"),
        (lambda: cosine_similarity(torch.zeros(1, 1), torch.tensor([[torch.nan]])), "maps to compare are finite"),
        (lambda: measure_class_sensitivity(gradients, gradients, first.float(), second), "bool, got torch.float32"),
        (lambda: measure_class_sensitivity(gradients, gradients, first, second[0]), r"bool, got torch.bool \(1, 4\)"),
        (lambda: measure_class_sensitivity(gradients, 0 * gradients, first, second), "picture 0 is 0 on both things"),
        (lambda: group_layers(nn.Sequential(scale)), r"0 \(Module\) has parameters and no reset_parameters"),
    ):
        with pytest.raises(CourseError, match=says):
            call()
