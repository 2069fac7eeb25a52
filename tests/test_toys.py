"""Networks for a pencil do just what they claim, by arithmetic and by PyTorch without hooks."""

import pytest
import torch

from course_utils.lessons import broken_nets, two_heads
from course_utils.vision import toys


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("residual block", [[12, 0]]),  # of (1, 2): fc1 gives 5, -2; relu 5, 0; fc2 11, -5; with the input 12, -3
        ("Sequential in a Sequential", [[22]]),  # of (1, 1): 3, -2; relu 3, 0; 3, 7; 3 + 14 + 5
        ("small net", [[89]]),  # of ones: 7, -13, 27, -29; the relu keeps 7 and 27; 7 + 3 * 27 + 1
    ],
)
def test_the_models_by_hand(name, wanted):
    assert toys.MODELS[name].make()(torch.tensor([toys.MODELS[name].x]).float()).tolist() == wanted
    if name == "small net":
        assert [net(x).tolist() for net, x in map(toys.make_example, ("plain", "in place"))] == [wanted] * 2


def test_the_softmax_by_the_formula_is_right_while_exp_is_finite():
    net, x = broken_nets.make_overflow_net(), torch.tensor([[1.0, 2.0], [88.0, 87.0], [-5.0, 3.0]])
    expected = x.double().softmax(1) @ torch.tensor([[3.0], [4.0]]).double()
    assert torch.allclose(net(x).double(), expected, rtol=1e-5)
    large = net.softmax.exp(net.stem(torch.tensor([[100.0, 1.0]])))
    assert large.isinf().tolist() == net.softmax.share(large).isnan().tolist() == [[True, False]]


def test_the_distance_is_pythagoras_and_its_gradient_nan_at_the_origin():
    net, points = broken_nets.make_distance_net(), torch.tensor([[3.0, 4.0], [5.0, 12.0]], requires_grad=True)
    net(points).sum().backward()
    assert net(points).tolist() == [5.0, 13.0]
    assert torch.allclose(points.grad, torch.tensor([[3 / 5, 4 / 5], [5 / 13, 12 / 13]]))  # the direction
    loss = net(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).mean()
    loss.backward()
    assert loss.item() == 2.5
    assert all(weight.grad.isnan().all() for weight in net.parameters())


@pytest.mark.parametrize(("depth", "first"), [(6, 0), (100, 19)])
def test_the_chain_keeps_the_input_and_triples_the_gradient_until_float32_overflows(depth, first):
    chain, x = broken_nets.make_chain(depth), torch.tensor([[1.0, 0.0]])
    chain(x).sum().backward()
    assert chain(x).tolist() == [[1.0, 0.0]]
    for number, layer in enumerate(chain[first:], first):  # 3**80 < 3.4e38 < 3**81
        assert layer.weight.grad.tolist() == [[1.0, 0.0], [pytest.approx(3.0 ** (depth - 1 - number)), 0.0]]
    assert not any(layer.weight.grad.isfinite().all() for layer in chain[:first])


@pytest.mark.parametrize("words", ["the cat saw the dog", "a b", "la la la land"])
def test_the_heads_look_where_they_say(words):
    """By counting: a place that fits has 96 parts, another one has 1; without any that fits all are alike."""
    words = words.split()
    block, x = two_heads.make_two_head_block(words), two_heads.encode(words)
    weights = block.self_attn(x, x, x, need_weights=True, average_attn_weights=False)[1]
    places = range(len(words))
    before = [[two_heads.ODDS if j == i - 1 else 1 for j in places] for i in places]
    parts = torch.tensor([before, [[two_heads.ODDS if one == other else 1 for other in words] for one in words]])
    assert torch.allclose(weights[0], parts / parts.sum(2, keepdim=True), atol=1e-5)
