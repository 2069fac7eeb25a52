"""The patient of the lessons 01 to 04: well, it learns; each case fails in its own way, and is cured by one change."""

import math

import pytest
import torch
from torch import nn

from course_utils.lessons import patient
from course_utils.lessons.patient import Patient, admit, loss_of, train
from course_utils.root import CourseError


def test_the_task_is_balanced_and_a_patient_that_is_well_learns_it_the_same_way_each_time():
    numbers, answers = patient.make_task()
    same_sign = [float((row[0] > 0) == (row[1] > 0)) for row in numbers.tolist()]
    assert answers.flatten().tolist() == same_sign
    assert 0.4 < answers.mean() < 0.6
    state = torch.get_rng_state()
    losses = train(admit(Patient))
    assert abs(losses[0] - math.log(2)) < 0.1 > losses[-1]
    assert losses[:20] == train(admit(Patient), steps=20)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_layer_that_gives_only_zeros_never_learns_and_learns_with_weights_of_both_signs():
    net, seen = admit("A"), []
    handle = net.relu2.register_forward_hook(lambda module, inputs, output: seen.append(output.max().item()))
    losses = train(net, steps=150)
    handle.remove()
    assert max(seen) == 0
    assert min(losses) > 0.69
    net.second.reset_parameters()
    assert train(net, steps=150)[-1] < 0.1


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
