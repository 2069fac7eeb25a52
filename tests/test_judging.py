"""The judge: which plain values count as equal, how a difference is told, and which causes are found for it."""

import contextlib
import math
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from course_utils.exercises.causes import relate_numbers
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
        (3.0, 3, None),
        (3, 3.0, "a whole number (int); expected a number (float)"),
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
        (RemovableHandle(OrderedDict()), contextlib.nullcontext(), None),
        (contextlib.nullcontext(), RemovableHandle(OrderedDict()), None),  # whether it has a `remove` is seen later
        (case_of(1, seen={"the outputs of a": plain(1)}), case_of(1, seen={"the outputs of a": plain(2)}), "a were 1;"),
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
        (
            case_of(1, seen={"what was wrong": plain("a")}),
            case_of(2, seen={"what was wrong": plain("b")}),
            "what was wrong: a",
        ),
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


def cases_of(*values):
    return [case_of(value) for value in values]


@pytest.mark.parametrize(
    ("got", "expected", "relation"),
    [
        (cases_of([2, 4], [6, 8]), cases_of([1, 2], [3, 4]), "Every wrong number is 2. times what it should be."),
        (cases_of([2, 4], [3, 4]), cases_of([1, 2], [3, 4]), ""),  # not in the second case
        (cases_of([2, 4], [3, 5]), cases_of([1, 2], [3, 5]), ""),
        (cases_of([2, 4]), cases_of([1, 2]), ""),  # one case alone
        (cases_of(torch.tensor([[2.0], [4.0]]), 6.0), cases_of(torch.tensor([1.0, 2.0]), 3.0), ""),  # another shape
        ([case_of(1, seen={"how many": plain(6)})] * 2, [case_of(1, seen={"how many": plain(3)})] * 2, ""),  # a count
    ],
)
def test_a_relation_of_numbers_holds_in_every_case_and_in_more_than_one(got, expected, relation):
    assert relate_numbers(got, expected) == relation


def test_what_was_not_seen_after_an_error_is_no_mistake_with_none():
    none, two = ({"x.grad": plain(value)} for value in (None, 2))
    right, silent = ([case_of(1, names=[], seen=seen)] * 2 for seen in (two, none))
    failed = [case_of(1, names=[], raised=ERROR)] * 2
    assert judge("f", silent, right, [("No gradient comes.", silent)]).cause == "No gradient comes."
    assert judge("f", failed, right, [("No gradient comes.", silent)]).cause == ""


def test_a_second_side_effect_is_a_sentence_of_its_own():
    left = case_of(1, names=[], changed={"x": ["requires_grad", "value"]})
    sentence = judge("f", [left], [case_of(1, names=[])], []).sentence
    assert "`x`. Besides, your function changed its input `x` in place." in sentence


def test_a_side_effect_of_another_input_is_told_with_its_input_and_none_is_told_twice():
    got = [case_of(1, names=[], given="a"), case_of(2, names=[], given="b", changed={"x": ["hooks"]})]
    told = judge("f", got, [case_of(3, names=[], given="a"), case_of(2, given="b")], []).sentence
    assert told.startswith("for a, your function returned 1; expected 3. Besides, your function left a hook on `x`: ")
    assert told.endswith(" (for b).")
    got = [case_of(1, names=[], changed={name: ["training"]}) for name in ("x", "y")]
    assert "Besides" not in judge("f", got, [case_of(1, names=[])] * 2, []).sentence


@pytest.mark.parametrize(
    ("message", "of_the_mistake", "is_said"),
    [
        ("A pre-hook runs before forward.", "register_forward_pre_hook", False),
        ("The hook's handle is lost.", "register_hook", True),
        ("A load hook runs when entries are read.", "register_load_state_dict_pre_hook", False),
        ("A hook for all modules runs for every module.", "register_module_forward_hook", False),
    ],
)
def test_nothing_is_said_of_a_kind_of_hook_that_the_answer_does_not_register(message, of_the_mistake, is_said):
    got, key = [case_of(1, names=["register_forward_hook"])], [case_of(2, names=[])]
    mistake = [case_of(1, names=[of_the_mistake])]
    assert (judge("f", got, key, [(message, mistake)]).cause == message) is is_said
