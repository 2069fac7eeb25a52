"""Networks for a pencil do just what they claim, by arithmetic and by PyTorch without hooks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from course_utils.vision.toys import (
    MODELS,
    ODDS,
    SmallNet,
    encode,
    make_chain,
    make_distance_net,
    make_example,
    make_one_unit,
    make_overflow_net,
    make_two_head_block,
)

SENTENCES = [["the", "cat", "saw", "the", "dog"], ["a", "b"], ["la", "la", "la", "land"]]


@pytest.mark.parametrize("relu", ["plain", "in place"])
def test_the_small_net_by_hand(relu):
    """fc1 of ones: 6 + 1, -15 + 2, 24 + 3, -33 + 4; the relu keeps 7 and 27; fc2: 7 + 3 * 27 + 1."""
    net, x = make_example(relu)
    assert net.fc1(x).tolist() == [[7, -13, 27, -29]]
    assert net(x).item() == SmallNet()(x).item() == 89


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        # of (1, 2): fc1 gives 5, -2; relu 5, 0; fc2 11, -5; with the input 12, -3
        ("residual block", [[12, 0]]),
        # of (1, 1): 3, -2; relu 3, 0; 3, 7; 3 + 14 + 5
        ("Sequential in a Sequential", [[22]]),
        ("small net", [[89]]),
    ],
)
def test_the_models_by_hand(name, wanted):
    assert MODELS[name].make()(torch.tensor([MODELS[name].x]).float()).tolist() == wanted


def test_the_softmax_by_the_formula_is_right_while_exp_is_finite():
    x = torch.tensor([[1.0, 2.0], [88.0, 87.0], [-5.0, 3.0]])
    expected = x.double().softmax(1) @ torch.tensor([[3.0], [4.0]]).double()
    assert torch.allclose(make_overflow_net()(x).double(), expected, rtol=1e-5)


def test_each_part_of_the_overflow_net_called_by_hand():
    net = make_overflow_net()
    exponentials = net.softmax.exp(net.stem(torch.tensor([[100.0, 1.0]])))
    assert exponentials.isinf().tolist() == [[True, False]]
    assert not exponentials.isnan().any()
    assert net.softmax.share(exponentials).isnan().tolist() == [[True, False]]


def test_the_distance_is_pythagoras_and_its_gradient_the_direction():
    points = torch.tensor([[3.0, 4.0], [5.0, 12.0]], requires_grad=True)
    distances = make_distance_net()(points)
    assert distances.tolist() == [5.0, 13.0]
    distances.sum().backward()
    assert torch.allclose(points.grad, points.detach() / distances.detach()[:, None])


def test_at_the_origin_the_distance_is_finite_and_every_weight_gets_nan():
    net = make_distance_net()
    loss = net(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).mean()
    assert loss.item() == 2.5
    loss.backward()
    assert net.embed.weight.grad.isnan().all()
    assert net.turn.weight.grad.isnan().all()


@pytest.mark.parametrize(("rate", "after"), [(0.1, 1.0), (1.0, 0.0)])
def test_one_step_of_the_unit_by_hand(rate, after):
    """w = b = 1, x = 2, target 1: the gradients are 8 and 4."""
    weight, bias = 1 - rate * 8, 1 - rate * 4
    assert max(0.0, 2 * weight + bias) == pytest.approx(after)
    unit = make_one_unit()
    loss = (unit(torch.tensor([[2.0]])) - 1).pow(2).sum()
    gradients = torch.autograd.grad(loss, list(unit.parameters()))
    assert [each.item() for each in gradients] == [8.0, 4.0]


@pytest.mark.parametrize("depth", [1, 2, 6])
def test_the_chain_keeps_the_input_and_triples_the_gradient(depth):
    chain, x = make_chain(depth), torch.tensor([[1.0, 0.0]])
    chain(x).sum().backward()
    assert chain(x).tolist() == [[1.0, 0.0]]
    for number, layer in enumerate(chain):
        assert layer.weight.grad.tolist() == [[1.0, 0.0], [3.0 ** (depth - 1 - number), 0.0]]


def test_a_long_chain_overflows_where_float32_does():
    assert 3.0**80 < float(np.finfo(np.float32).max) < 3.0**81
    chain = make_chain(100)
    chain(torch.tensor([[1.0, 0.0]])).sum().backward()
    finite = [bool(layer.weight.grad.isfinite().all()) for layer in chain]
    assert finite == [number >= 100 - 81 for number in range(100)]


def expected_shares(words: list[str]) -> torch.Tensor:
    """(2, L, L) by counting: a place that fits has 96 parts, another one has 1; without any that fits all are alike."""
    tables = []
    for fits in (lambda i, j: j == i - 1, lambda i, j: words[i] == words[j]):
        parts = [[ODDS if fits(i, j) else 1 for j in range(len(words))] for i in range(len(words))]
        tables.append([[part / sum(row) for part in row] for row in parts])
    return torch.tensor(tables)


@pytest.mark.parametrize("words", SENTENCES, ids=" ".join)
def test_the_heads_look_where_they_say(words):
    block, x = make_two_head_block(words), encode(words)
    weights = block.self_attn(x, x, x, need_weights=True, average_attn_weights=False)[1]
    assert torch.allclose(weights[0], expected_shares(words), atol=1e-5)


def test_only_the_second_head_is_read():
    words = SENTENCES[0]
    block, x = make_two_head_block(words), encode(words)
    before = block(x)
    with torch.no_grad():  # other values for a head: what it brings is another thing
        block.self_attn.in_proj_weight[20:25] *= 5
    assert torch.equal(block(x), before)
    with torch.no_grad():
        block.self_attn.in_proj_weight[25:] *= 5
    assert not torch.allclose(block(x), before)
