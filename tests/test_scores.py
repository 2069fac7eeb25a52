"""Scores of heat maps, with values that a pencil can check or that a second method gives."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_utils.lessons import sanity
from course_utils.lessons.sanity import cosine_similarity, measure_class_sensitivity, rank_correlation
from course_utils.root import CourseError
from course_utils.vision import scores
from course_utils.vision.scores import grow, localise


def heat(*rows):
    return torch.tensor([rows], dtype=torch.float32)


def mask(rows):
    return torch.tensor([[[mark == "#" for mark in row] for row in rows.split()]])


# Three rows and four columns: the hottest pixel is in row 1, column 2.
MAP = heat([0, 1, 0, 0], [0, 2, 5, 0], [0, 0, 2, 0])
THING = mask(".... ..## ..##")  # holds 5 and 2 of the 10
OTHER = mask(".#.. .#.. ....")


@pytest.mark.parametrize(
    ("maps", "place"),
    [
        (torch.cat([MAP, MAP.flip(2), MAP.flip(1)]), [[1, 2], [1, 1], [1, 2]]),
        (torch.ones(1, 3, 4), [[0, 0]]),  # of equally hot pixels the first counts
        (heat([0, 0], [7, 7 * (1 + 3e-7)]), [[1, 0]]),  # a rounding error apart
        (heat([0, 0], [7, 7 * (1 + 3e-6)]), [[1, 1]]),
        (heat([-2, -1], [-1, -3]), [[0, 1]]),
    ],
)
def test_the_hottest_pixel_is_a_row_and_a_column(maps, place):
    assert scores.point(maps).tolist() == place


@settings(deadline=None)
@given(st.integers(0, 2**12 - 1), st.sampled_from([0, 1, 1.5, 2, 3]))
def test_growing_is_what_distances_say(bits, pixels):
    marked = torch.tensor([bits >> n & 1 == 1 for n in range(12)]).reshape(1, 3, 4)
    distances = torch.cdist(torch.ones(3, 4).nonzero().double(), marked[0].nonzero().double())
    assert grow(marked, pixels).flatten().equal((distances <= pixels).any(1))


def test_all_scores_together():
    # The second map is hottest at row 1, column 1: beside the thing, and on the other one. 2 of its 10 is on the thing.
    maps = torch.cat([MAP, 1000 * MAP.flip(2), torch.zeros(1, 3, 4)])
    score = localise(maps, THING.expand(3, 3, 4), OTHER.expand(3, 3, 4), tolerance=1)
    assert (score.maps, score.empty) == (3, 1)
    assert score.strict == pytest.approx((1 / 3, 4 / 12))
    assert score.tolerant == pytest.approx((2 / 3, 8 / 12))
    assert score.energy == pytest.approx(((0.7 + 0.2) / 3, 4 / 12))
    assert score.wrong == pytest.approx((1 / 3, 2 / 12))
    shares = ["33% (chance 33%)", "67% (chance 67%)", "30% (chance 33%)", "33% (chance 17%)"]
    assert re.findall(r"\d+% \(chance \d+%\)", str(score)) == shares
    assert str(score).endswith("; 1 empty")
    assert str(localise(MAP, THING)).endswith("energy inside 70% (chance 33%)")
    assert scores.points_at(-MAP - 1, THING | True).tolist() == [False]
    assert math.isnan(localise(MAP[:0], THING[:0]).strict.share)


@pytest.mark.parametrize(
    ("score", "one", "other", "expected"),
    [
        (rank_correlation, [1, 2, 3, 4], [10, 20, 30, 1000], 1),
        (rank_correlation, [1, 2, 3, 4], [2, 1, 4, 3], 0.6),  # 1 - 6 · (1 + 1 + 1 + 1) / (4 · 15)
        (rank_correlation, [0, 0, 1], [0, 1, 2], 3**0.5 / 2),  # ranks 0.5, 0.5, 2 and 0, 1, 2
        (rank_correlation, [1, 1, 1], [0, 1, 2], math.nan),  # a constant map has no order
        (cosine_similarity, [3, 4], [4, 3], 0.96),
        (cosine_similarity, [1, 2], [-2, -4], -1),
        (cosine_similarity, [0, 0], [1, 1], math.nan),
    ],
)
def test_similarities_by_hand(score, one, other, expected):
    found = score(torch.tensor([one, one]), torch.tensor([other, other]))
    assert found.tolist() == pytest.approx([expected] * 2, nan_ok=True)


# One picture of 1 x 4 pixels: the first thing left, the second one right, with a pixel of background each.
LEFT, RIGHT = mask("#..."), mask("...#")


def test_class_sensitivity_by_hand():
    first, second = torch.tensor([[[[3.0, 5, 0, -1]]]]), torch.tensor([[[[-3.0, 5, 0, 2]]]])
    found = measure_class_sensitivity(first, second, LEFT, RIGHT)
    assert found.on_own == pytest.approx((3 / 4 + 2 / 5) / 2)
    assert found.cosine == pytest.approx((-9 + 25 - 2) / (35**0.5 * 38**0.5))
    assert found.ranks == pytest.approx(1)  # strengths 3 5 0 1 and 3 5 0 2
    assert str(found) == "on its own thing 0.57 (chance 0.50), cosine 0.38, ranks 1.00, 1 pictures"
    assert scores.find_strength(torch.tensor([[[[1.0, -2]], [[-3, 0]], [[0.5, 2]]]])).tolist() == [[[4.5, 4]]]


def test_layers_become_random_from_the_last_one_downwards():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Sequential(nn.Flatten(), nn.Linear(8, 4)))
    net.append(nn.Linear(4, 2)).eval()[1].running_mean += 3
    assert sanity.group_layers(net) == [("0", [net[0], net[1]]), ("2.1", [net[2][1]]), ("3", [net[3]])]
    before, state = {name: value.clone() for name, value in net.state_dict().items()}, torch.get_rng_state()
    (*names,), (*twins,) = zip(*sanity.randomise_cascading(net.requires_grad_(False), seed=4), strict=True)
    assert torch.equal(torch.get_rng_state(), state)
    changed = [{name for name in before if not before[name].equal(each.state_dict()[name])} for each in (net, *twins)]
    last, middle, first = {"3.weight", "3.bias"}, {"2.1.weight", "2.1.bias"}, {"0.weight", "0.bias", "1.running_mean"}
    assert names == ["3", "2.1", "0"]
    assert changed == [set(), last, last | middle, last | middle | first]
    assert torch.equal(twins[0][3].weight, twins[2][3].weight)  # a random layer stays the same in the next copies
    assert torch.equal(twins[1][2][1].weight, twins[2][2][1].weight)
    assert not any(twin.training or any(each.requires_grad for each in twin.parameters()) for twin in twins)
    assert not torch.equal(next(sanity.randomise_cascading(net, seed=1))[1][3].weight, twins[0][3].weight)


GRADIENTS, BARE = torch.ones(1, 3, 1, 4), nn.Module()
BARE.factor = nn.Parameter(torch.ones(1))


def test_what_cannot_be_scored_gets_a_sentence():
    for call, arguments, says in (
        (localise, (MAP[0], THING[0]), r"finite floats \(N, H, W\), a single one heatmap\[None\]"),
        (localise, (MAP.long(), THING), "heat maps are finite floats .*got torch.int64"),
        (localise, (MAP / 0, THING), "with 12 nan or infinite values"),
        (localise, (MAP, THING.float()), r"need such masks, bool, got torch.float32 \(1, 3, 4\)"),
        (localise, (-MAP, THING), "apply a ReLU"),
        (localise, (MAP[:, :2], THING), "enlarge the maps"),
        (localise, (MAP, THING.expand(2, 3, 4)), "each map its own mask"),
        (rank_correlation, (torch.zeros(1, 4), torch.zeros(1, 5)), r"of one shape.*\(1, 4\) and \(1, 5\)"),
        (cosine_similarity, (torch.zeros(1, 1), torch.tensor([[torch.nan]])), "maps to compare are finite"),
        (measure_class_sensitivity, (GRADIENTS, GRADIENTS, LEFT.float(), RIGHT), "bool, got torch.float32"),
        (measure_class_sensitivity, (GRADIENTS, GRADIENTS, LEFT, RIGHT[0]), r"bool, got torch.bool \(1, 4\)"),
        (measure_class_sensitivity, (GRADIENTS, 0 * GRADIENTS, LEFT, RIGHT), "picture 0 is 0 on both things"),
        (sanity.group_layers, (nn.Sequential(BARE),), r"0 \(Module\) has parameters and no reset_parameters"),
    ):
        with pytest.raises(CourseError, match=says):
            call(*arguments)
