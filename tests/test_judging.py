"""The judge: which plain values count as equal, how a difference is told, and which causes are found for it."""

import math

import pytest
import torch
from torch import nn

from course_utils.exercises.judging import first_difference, judge
from course_utils.exercises.plain import plain
from course_utils.grading.evidence import canonical


def case_of(returned, **more):
    base = {"given": "", "raised": None, "seen": {}, "inputs": {}, "changed": {}, "world": [], "alive": False}
    return base | {"returned": plain(returned)} | more


ERROR = {"type": "KeyError", "message": "1", "during": "afterwards", "line": None, "text": ""}
RAISED = case_of(1, raised=ERROR)


@pytest.mark.parametrize(
    ("got", "expected", "words"),
    [
        ((1, 2), [1, 2], None),
        (3, 3.0, None),
        (True, 1, "a bool; expected a whole number (int)"),
        ([1, 2], [1, 2, 3], "[1, 2]; expected [1, 2, 3]"),
        ([1], [], "your function returned [1]; expected []"),
        ([[1], None], [[1], 2], "your function returned None (at [1]); expected 2"),
        ({"b": 2, "a": 1.0}, {"a": 1, "b": 2}, None),
        ({"a": 1}, {"b": 1}, "{'a': 1}; expected {'b': 1}"),
        ({nn.ReLU(): 1, nn.ReLU(): 2}, {nn.ReLU(): 1, nn.ReLU(): 2}, None),
        ({"a": [1, 3]}, {"a": [1, 2]}, "3; expected 2 (at ['a'][1])"),
        (torch.tensor(2.0), 2.0, "a tensor of shape (); expected a number (float)"),
        (7 * torch.eye(25)[17].reshape(5, 5), torch.zeros(5, 5), "7. at [3, 2]; expected 0. there"),
        (math.nan, math.nan, None),
        ({1, 2}, {2, 1}, None),
        (nn.ReLU(), nn.Linear(1, 1), "a module (ReLU)"),
        (1 / 3, 0.333333, None),
        (torch.tensor([1.000001]), torch.tensor([1.0]), None),
        (torch.tensor([1.0001]), torch.tensor([1.0]), "[1.0001]; expected [1.]"),
        (torch.ones(1).double(), torch.ones(1), "a tensor of dtype float64; expected float32"),
        (torch.full((5000,), 0.1), torch.full((5000,), 0.1), None),
        (case_of(1, world=["the default dtype"]), case_of(1), "changed the default dtype and did not undo that"),
        (case_of(1, alive=True), case_of(1), "something that your answer made still refers to it"),
        (case_of(1, printed="look!"), case_of(1, printed=""), None),
        (RAISED, case_of(1), "what it returned or left behind could not be used: KeyError: 1"),
        (case_of(None, raised=ERROR), case_of(None), "left behind could not be used: KeyError: 1"),
        (case_of([1], raised=ERROR), case_of((1,)), "what your function returned could not be used"),
        (case_of(1), RAISED, "expected KeyError to be raised; got: nothing was raised"),
        (RAISED, RAISED, None),
        (case_of(1, raised=ERROR | {"message": ""}), case_of(1, raised=ERROR | {"type": "A"}), "got: KeyError: "),
        (case_of(1, seen={"y": plain(None)}), case_of(1, seen={"y": plain(2)}), "y was None; expected 2"),
        (case_of(1), case_of(1, seen={"y": plain(2)}), "y was None; expected 2"),
        (case_of(1, seen={"what was wrong": plain("a")}), case_of(2, seen={"what was wrong": plain("b")}), "was 'a'"),
    ],
)
def test_what_counts_as_the_same_and_how_a_difference_is_told(got, expected, words):
    """In words, and in the text that nbval compares."""
    cases = (each if isinstance(each, dict) and "raised" in each else case_of(each) for each in (got, expected))
    mine, key = ([case] for case in cases)
    found = first_difference(mine, key, "f")
    assert (found is None) is (words is None), found
    assert found is None or words in found.sentence
    assert (canonical(mine, key) == canonical(key, key)) is (words is None)
    assert max(map(len, canonical(mine, key).splitlines())) < 400


def test_an_answer_that_stopped_early_is_told_and_a_mistake_that_did_is_no_cause_for_a_later_case():
    assert first_difference([case_of(1)], [case_of(1)] * 2, "f").sentence == "the run stopped before the last case"
    got, key = [case_of(1, names=[]), case_of(3)], [case_of(1, names=[]), case_of(2)]
    assert judge("f", got, key, [("Stopped early.", got[:1]), ("Three.", got)]).cause == "Three."


def in_hook(message, during="hook"):
    return [case_of(1, names=[], raised=ERROR | {"type": "TypeError", "message": message, "during": during})]


def test_an_error_in_a_hook_has_the_cause_of_a_mistake_that_raises_the_same():
    """Of a declared mistake's error nobody knows that a hook raised it."""
    mistakes = [("You clamp.", in_hook("clamp(): at least one of 'min' or 'max' must not be None", "afterwards"))]
    right = [case_of(1, names=[])]
    same, other = ("clamp(): at least one of 'low' or 'high' must not be None", "'str' object has no attribute 'dim'")
    assert judge("f", in_hook(same), right, mistakes).cause == "You clamp."
    assert judge("f", in_hook(other), right, mistakes).cause == ""
    mistakes = [("You return text.", in_hook(other, "afterwards"))]
    assert judge("f", in_hook("'Tensor' object has no attribute 'dim'"), right, mistakes).cause == ""


def test_a_count_has_no_relation_to_another_count():
    found = [[case_of(1, names=[], seen={"how many ran": plain(count)})] * 2 for count in (6, 3)]
    assert judge("f", *found, []).cause == ""


def test_a_second_side_effect_is_a_sentence_of_its_own():
    left = case_of(1, names=[], changed={"x": ["requires_grad", "value"]})
    sentence = judge("f", [left], [case_of(1, names=[])], []).sentence
    assert "`x`. Besides, your function changed its input `x` in place." in sentence
