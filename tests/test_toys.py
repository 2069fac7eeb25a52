"""Networks for a pencil do just what they claim, and the patient of the lessons 01 to 04 is ill as it is said."""

import math

import pytest
import torch
from torch import nn

from course_utils.lessons import broken_nets, patient, two_heads
from course_utils.lessons.patient import Patient, admit, loss_of, train
from course_utils.root import CourseError
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
        assert toys.SmallNet(toys.RELUS["in place"])(torch.ones(1, 3)).tolist() == wanted


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
    before = [[96 if j == i - 1 else 1 for j in places] for i in places]
    parts = torch.tensor([before, [[96 if one == other else 1 for other in words] for one in words]])
    assert torch.allclose(weights[0], parts / parts.sum(2, keepdim=True), atol=1e-5)


def test_the_task_is_balanced_and_a_patient_that_is_well_learns_it_the_same_way_each_time():
    numbers, answers = patient.make_task()
    assert answers.flatten().tolist() == [(row[0] > 0) == (row[1] > 0) for row in numbers.tolist()]
    assert 0.4 < answers.mean() < 0.6
    state = torch.get_rng_state()
    losses = train(admit(Patient))
    assert abs(losses[0] - math.log(2)) < 0.1 > losses[-1]
    assert losses[:20] == train(admit(Patient), steps=20)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_layer_whose_output_explodes_is_cured_by_a_hook_where_the_hook_is_called():
    found = {}
    for case in "BC":
        net, calls = admit(case), []
        plain = train(net)
        net = admit(case)
        net.third.register_forward_hook(lambda *seen, calls=calls: calls.append(1) or patient.standardise(seen[-1]))
        found[case] = (min(plain) > 100, train(net)[-1] < 0.1, len(calls) == patient.STEPS)
    assert found == {"B": (True, True, True), "C": (True, False, False)}


def test_a_class_is_made_with_the_same_numbers_in_float64_and_a_case_that_there_is_not_is_named():
    one, two = (admit(lambda: nn.Linear(8, 1)) for _ in range(2))
    assert one.weight.dtype == torch.float64
    assert torch.equal(one.weight, two.weight)
    assert loss_of(one).item() == loss_of(two).item()
    with pytest.raises(CourseError, match="no case 'D'; there is 'A', 'B', 'C'"):
        admit("D")


def test_curves_in_words():
    curves = {"before": [0.713, 0.69], "after": [5000.0, math.nan]}
    picture = patient.draw_curves(curves, title="One", alt="Two lines.", log=True)
    words = "One\n  before: 0.7 at the start, 0.7 at the end\n  after: over 1,000 at the start, not a number at the end"
    assert str(picture) == words
    assert picture._repr_mimebundle_()[1]["image/png"]["alt"] == "Two lines."
