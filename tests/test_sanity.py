"""Similarities, class sensitivity and cascading randomisation, by values worked out by hand or by a second method."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from course_utils.vision.sanity import (
    cosine_similarity,
    find_strength,
    group_layers,
    measure_class_sensitivity,
    randomise_cascading,
    rank_correlation,
    structural_similarity,
)

# --- similarities -----------------------------------------------------------------------------------------------------


def test_strength_adds_absolute_values_of_channels():
    gradients = torch.tensor([[[[1.0, -2.0]], [[-3.0, 0.0]], [[0.5, 2.0]]]])
    assert find_strength(gradients).tolist() == [[[4.5, 4.0]]]


def test_strength_wants_a_batch():
    with pytest.raises(ValueError, match=r"\(N, C, H, W\), got \(3, 2, 2\).*adds a batch"):
        find_strength(torch.zeros(3, 2, 2))


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


def test_rank_correlation_is_pearsons_of_the_ranks_without_ties():
    maps, others = torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(0))
    for one, other, found in zip(maps, others, rank_correlation(maps, others), strict=True):
        ranks = torch.stack([each.flatten().argsort().argsort().double() for each in (one, other)])
        assert found.item() == pytest.approx(torch.corrcoef(ranks)[0, 1].item())


def test_a_constant_map_has_no_order():
    assert rank_correlation(torch.ones(1, 4), torch.arange(4.0)[None]).isnan().all()


def test_cosine_by_hand():
    maps = torch.tensor([[[3.0, 4.0]], [[1.0, 0.0]], [[1.0, 2.0]], [[0.0, 0.0]]])
    others = torch.tensor([[[4.0, 3.0]], [[0.0, 5.0]], [[-2.0, -4.0]], [[1.0, 1.0]]])
    found = cosine_similarity(maps, others)
    assert found[:3].tolist() == pytest.approx([0.96, 0, -1])
    assert found[3].isnan()


def test_structural_similarity_of_equal_and_of_scaled_maps_is_one():
    maps = torch.rand(2, 16, 18, generator=torch.Generator().manual_seed(0))
    assert structural_similarity(maps, 5 * maps + 3).tolist() == pytest.approx([1, 1])


def test_structural_similarity_by_the_formula_in_one_window():
    """One window of 11 x 11, weighted sums written out with loops."""
    maps, others = torch.rand(2, 1, 11, 11, generator=torch.Generator().manual_seed(1))
    one, other = ((each - each.min()) / (each.max() - each.min()) for each in (maps[0].double(), others[0].double()))
    weight = torch.tensor(
        [[torch.tensor(-((i - 5) ** 2 + (j - 5) ** 2) / 4.5).exp() for j in range(11)] for i in range(11)]
    )
    weight = weight.double() / weight.sum()
    m, n = (weight * one).sum(), (weight * other).sum()
    v, w = (weight * (one - m) ** 2).sum(), (weight * (other - n) ** 2).sum()
    both = (weight * (one - m) * (other - n)).sum()
    expected = (2 * m * n + 1e-4) * (2 * both + 9e-4) / ((m * m + n * n + 1e-4) * (v + w + 9e-4))
    assert structural_similarity(maps, others).item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("compare", [rank_correlation, cosine_similarity])
def test_maps_that_cannot_be_compared(compare):
    with pytest.raises(ValueError, match=r"of one shape.*\(1, 4\) and \(1, 5\)"):
        compare(torch.zeros(1, 4), torch.zeros(1, 5))
    with pytest.raises(ValueError, match="the second maps have values that are nan"):
        compare(torch.zeros(1, 2), torch.tensor([[1.0, torch.nan]]))


def test_structural_similarity_needs_room_for_its_window():
    with pytest.raises(ValueError, match=r"from 11 x 11, got \(1, 10, 20\)"):
        structural_similarity(torch.zeros(1, 10, 20), torch.zeros(1, 10, 20))


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


def test_a_map_that_is_blind_to_the_class_is_at_chance():
    gradients = torch.tensor([[[[7.0, 1.0, 1.0, 2.0]]]])
    found = measure_class_sensitivity(gradients, gradients, *two_things())
    assert found.on_own == pytest.approx(found.chance)
    assert found.cosine == pytest.approx(1)


def test_what_cannot_be_measured():
    gradients, (first, second) = torch.ones(1, 3, 1, 4), two_things()
    with pytest.raises(ValueError, match="masks are bool"):
        measure_class_sensitivity(gradients, gradients, first.float(), second)
    with pytest.raises(ValueError, match=r"masks are bool and \(1, 1, 4\)"):
        measure_class_sensitivity(gradients, gradients, first[0], second)
    with pytest.raises(ValueError, match="picture 0 has a mask without a pixel"):
        measure_class_sensitivity(gradients, gradients, first, second & False)
    with pytest.raises(ValueError, match="the gradient of picture 0 is 0 on both things"):
        measure_class_sensitivity(gradients, 0 * gradients, first, second)


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


def test_a_random_layer_stays_the_same_in_the_next_copies():
    twins = [twin for _, twin in randomise_cascading(small_net(), seed=4)]
    for one, next_one in pairwise(twins):
        assert torch.equal(one[4].weight, next_one[4].weight)
    assert torch.equal(twins[1][3][1].weight, twins[2][3][1].weight)


def test_the_seed_decides_and_the_callers_random_state_stays():
    state = torch.random.get_rng_state()
    net = small_net()
    torch.random.set_rng_state(state)
    first, again, other = (next(randomise_cascading(net, seed))[1][4].weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_copies_keep_mode_and_requires_grad():
    net = small_net().requires_grad_(False)
    for _, twin in randomise_cascading(net):
        assert not twin.training
        assert not any(parameter.requires_grad for parameter in twin.parameters())


def test_what_cannot_be_randomised():
    with pytest.raises(ValueError, match="Sequential has no layers with parameters"):
        next(randomise_cascading(nn.Sequential(nn.ReLU())))
    scale = nn.Module()
    scale.factor = nn.Parameter(torch.ones(1))
    with pytest.raises(ValueError, match=r"0 \(Module\) has parameters and no reset_parameters"):
        next(randomise_cascading(nn.Sequential(scale)))
