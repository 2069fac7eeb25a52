"""From an answer to its verdict, in this process: the driver, its record, the words, and the text for nbval."""

import copy
import json

import grading_samples
import pytest
from grading_samples import EXERCISES, ONE, SEED, answer_to, judge, through_json

from course_utils.exercises.comparing import alike
from course_utils.exercises.engine import find
from course_utils.exercises.judging import first_difference
from course_utils.grading import evidence
from course_utils.grading.evidence import canonical, fits, make_task, read_record, seed_for, settle
from course_utils.grading.sandbox import driver
from course_utils.grading.sandbox.tasks import KILLED, TOO_LONG, Ran, Task
from course_utils.root import CourseError

EXERCISE = find("scale_gradient")
GOOD = through_json({"exercise": EXERCISE.name, "blank": False, "raised": None, "lost": []})
GOOD["cases"] = through_json(EXERCISE.observe(EXERCISE.reference, seed_for(EXERCISE, SEED)))
TENSOR = {"type": "tensor", "dtype": "float32", "shape": [1], "values": [1.0]}
RAISED = {"type": "E", "message": "", "during": "call", "line": None, "text": ""}
NAMED = RAISED | {"type": "NameError", "message": "x\x1b", "line": 3, "text": "@x"}
STOPPED = "Your answer did not come to an end in time and was stopped."
NESTED = json.loads('{"type": "list", "items": [' * 9 + '{"type": "None"}' + "]}" * 9)


def observe(*parts):
    """The record of an answer to `largest`, the last of the `parts`; the others are the cells before it."""
    *cells, source = parts
    return json.loads(grading_samples.observe(Task({"largest": SEED}, cells, source)).record)


def test_the_driver_notes_what_an_answer_raises_and_goes_on_without_a_definition_that_fails(monkeypatch):
    raised = observe("\n\n@missing\ndef largest(tensor):\n    return 1\n")["raised"]
    assert (raised["type"], raised["line"], raised["text"]) == ("NameError", 3, "@missing")
    for error in ("SystemExit", "KeyboardInterrupt"):
        assert observe(f"raise {error}")["raised"]["type"] == error
    record = observe("a = 1 / 0", "b = 2", "def largest(tensor):\n    return b\n")
    assert record["cases"][0]["returned"] == {"type": "int", "value": 2}
    assert record["lost"] == ["`a = 1 / 0` raised ZeroDivisionError: division by zero"]
    assert observe("def largest(tensor):\n    return b\n")["cases"][0]["raised"]["type"] == "NameError"
    assert observe("def largest(tensor):\n    pass\n")["blank"]
    assert observe("class largest:\n    def __init__(self): ...\n")["blank"]
    monkeypatch.setattr(find("largest"), "limit", 0.2)
    monkeypatch.setattr(driver, "CELL_SECONDS", 0.2)
    record = observe("while True: pass", "a = 1", "def largest(tensor): return a")
    assert (record["lost"], record["cases"][0]["returned"]["value"]) == (
        ["`while True: pass` raised TimeIsUp: its time was over"],
        1,
    )
    assert observe("def largest(tensor):\n    while 1: pass")["cases"][0]["raised"]["type"] == "TimeIsUp"


def spoil(record, path, value):
    """A copy of the record with `value` at the place that `path` names, as in "cases 0 given"."""
    place = record = copy.deepcopy(record)
    *steps, last = [int(step) if step.isdigit() else step for step in path.split()]
    for step in steps:
        place = place[step]
    place[last] = value
    return record


def test_a_record_of_the_drivers_form_is_read():
    entry = [{"type": "str", "value": "a"}, {"type": "handle"}]
    for path, value in (
        ("cases 0 returned", TENSOR | {"values": [1, True, "nan", "inf", "-inf"], "unreadable": "why"}),
        ("cases 0 returned", {"type": "complex", "value": [1.0, "nan"]}),
        ("cases 0 returned", {"type": "dict", "items": [entry]}),
        ("cases 0 returned", NESTED),
        ("cases 0 inputs tensor grad", {"weight": {"type": "None"}}),
        ("cases 0 inputs tensor training", {"layer": True}),
        ("raised", RAISED),
    ):
        record = spoil(GOOD, path, value)
        assert read_record(json.dumps(record), EXERCISE.name) == record


FORGED = {
    "exercise": ["another"],
    "blank": [1],
    "more": [1],
    "lost": [["a", 2]],
    "cases": [None, [{}] * 1000],
    "cases 0": [[]],
    "cases 0 given": [7],
    "cases 0 alive": ["no"],
    "cases 0 world": ["all"],
    "cases 0 changed": [{"tensor": ["everything"]}],
    "cases 0 raised": [{"type": "Error"}, RAISED | {"line": 1.0}],
    "cases 0 returned": [
        *(TENSOR | wrong for wrong in ({"values": ["1"]}, {"values": ["nan\n"]}, {"shape": [True]}, {"shape": [1.0]})),
        *({"type": "int", "value": wrong} for wrong in (1.5, True, 2**63)),
        *({"type": "float", "value": 10**400}, {"type": "complex", "value": [1.0]}),
        *({"type": "None", "value": 1}, {"type": ["None"]}),
        *({"type": "list", "items": [1]}, {"type": "dict", "items": [[{"type": "None"}]]}),
    ],
    "cases 0 inputs tensor": [{}],
    "cases 0 inputs tensor hooks": [True],
    "cases 0 inputs tensor grad": [{"a": 1}],
    "cases 0 inputs tensor more": [1],
}


@pytest.mark.parametrize("path", FORGED)
def test_a_forged_record_is_refused(path):
    for value in FORGED[path]:
        with pytest.raises(CourseError):
            read_record(json.dumps(spoil(GOOD, path, value)), EXERCISE.name)


def test_text_that_is_no_record_is_refused():
    for text in (None, "", "{", "NaN", "[" * 100_000, '{"exercise": Infinity}', json.dumps([GOOD])):
        with pytest.raises(CourseError):
            read_record(text, EXERCISE.name)
    with pytest.raises(CourseError) as refused:
        read_record(json.dumps(spoil(GOOD, "cases 0 " + "x" * 100_000, 1)), EXERCISE.name)
    assert len(str(refused.value)) <= 200


@pytest.mark.parametrize(
    ("ran", "stage", "words"),
    [
        (Ran(ended=KILLED), "raised", f"{KILLED[0].upper()}{KILLED[1:]}."),
        (Ran(ended=TOO_LONG), "raised", STOPPED),
        (Ran(ended="no\x1b kernel"), "not graded", "no\\x1b kernel"),
        (Ran("{}"), "not graded", "the record of what the answer did is not in order: data must contain"),
        (GOOD | {"blank": True}, "not attempted", "The answer cell is as it came."),
        (GOOD | {"lost": ["`a` raised"]}, "passed", ""),
        (GOOD | {"raised": NAMED}, "raised", "your line 3, `@x`, raised NameError: x\\x1b"),
        (GOOD | {"raised": RAISED}, "raised", "your answer cell raised E"),
        (GOOD | {"raised": NAMED | {"type": "TimeIsUp"}}, "raised", STOPPED),
        (spoil(GOOD, "cases 0 inputs", {}), "not graded", "the record of what the answer did is about other inputs"),
    ],
)
def test_what_a_sandbox_gave_back_is_told_in_words_without_what_no_screen_should_get(ran, stage, words):
    score = judge(answer_to(EXERCISE.name, ONE), ran if isinstance(ran, Ran) else Ran(json.dumps(ran)))
    assert (score.stage, score.look_by_hand) == (stage, stage == "not graded")
    assert (score.sentence or score.reason).startswith(words)
    assert score.stage != "passed" or score.reason == ""


def test_evidence_about_other_inputs_does_not_fit():
    key = GOOD["cases"]
    unfit = (("tensor more", {}), ("tensor grad", {"weight": {"type": "None"}}))
    unfit = (spoil(GOOD, f"cases 0 inputs {path}", value)["cases"] for path, value in unfit)
    assert [fits(each, key) for each in (key, key[:1], *unfit)] == [True, True, False, False]


def test_seeds_tell_nothing_about_each_other_and_those_of_a_release_are_recorded(monkeypatch):
    assert len({seed_for(exercise, SEED) for exercise in EXERCISES}) == len(EXERCISES)
    seed = seed_for(EXERCISE, SEED)
    assert seed == seed_for(EXERCISE, SEED) != seed_for(EXERCISE, SEED + 1)
    monkeypatch.setattr(evidence, "has_answers", lambda: False)
    monkeypatch.setattr(evidence, "recorded_seeds", lambda lesson: [3, 5])
    assert make_task(answer_to(EXERCISE.name, ""), SEED).seeds == {EXERCISE.name: (3, 5)[seed % 2]}


@pytest.mark.slow
def test_text_and_words_agree_on_any_two_answers():
    """Each answer taken in turn as the key of the others: who differs in words differs in text."""
    for exercise in EXERCISES[: -1 : len(EXERCISES) // 4]:
        functions = [exercise.reference, *exercise.accepted[:1], *(each.function for each in exercise.mistakes)]
        found = [through_json(exercise.observe(function, SEED)) for function in functions]
        for key in found:
            right = canonical(key, key)
            for mine in found:
                words = first_difference(mine, key, exercise.name) is None
                assert (canonical(mine, key) == right) == words, exercise.name


def number(value):
    return {"type": "float", "value": value}


def many(*items, kind="list"):
    return {"type": kind, "items": [*items]}


@pytest.mark.parametrize(
    ("mine", "key", "equal"),
    [
        (number(1.0), number(1.000001), True),
        (number(1.0), number(1.0001), False),
        (number(1e-9), number(0.0), True),
        (number("nan"), number("nan"), True),
        (number("nan"), number(1.0), False),
        ({"type": "int", "value": 3}, number(3.0), False),
        (number(3.0), {"type": "int", "value": 3}, True),
        ({"type": "int", "value": 10**9}, {"type": "int", "value": 10**9 + 1}, False),
        ({"type": "bool", "value": True}, {"type": "int", "value": 1}, False),
        (TENSOR, TENSOR | {"values": [1.0 + 1e-7]}, True),
        (TENSOR | {"shape": [1, 1]}, TENSOR, False),
        (TENSOR | {"dtype": "float64"}, TENSOR, False),
        (TENSOR | {"values": [True]}, TENSOR, False),
        (many(number(1.0), kind="tuple"), many(number(1.0)), True),
        (many(number(1.0)), many(number(1.0), number(2.0)), False),
        (many(number(1.0), number(2.0)), many(number(1.0)), False),
        (
            many([number(1), TENSOR], [number(2), TENSOR], kind="dict"),
            many([number(2), TENSOR], [number(1), TENSOR], kind="dict"),
            True,
        ),
        (many([number(1), TENSOR], kind="dict"), many([number(2), TENSOR], kind="dict"), False),
        ({"type": "function"}, {"type": "module", "value": "ReLU"}, False),
        ({"type": "module", "value": "ReLU"}, {"type": "function"}, True),
        ({"type": "state", "value": {"a": True}}, {"type": "state", "value": {"a": True, "b": True}}, False),
        ({"type": "None"}, TENSOR, False),
    ],
)
def test_tolerance_comes_first_and_then_texts_are_equal_or_not(mine, key, equal):
    """What nbval will find equal is what the judge finds equal, though it is decided otherwise."""
    texts = [json.dumps(settle(one, key), sort_keys=True) for one in (mine, key)]
    assert (texts[0] == texts[1]) == alike(mine, key) == equal


def test_no_text_is_longer_than_a_reader_reads():
    """Empty rows, lists in lists, a world of settings: in a sentence, in the text for nbval, and in the record."""
    rows = {"type": "tensor", "dtype": "float32", "shape": [3_000_000, 0], "values": []}
    record = spoil(GOOD, "cases 0 returned", many(rows, rows, rows))
    deep = many(*[number(0.5)] * 12)
    for _ in range(3):
        deep = many(*[deep] * 12)
    for case in (record, spoil(GOOD, "cases 0 returned", deep), spoil(GOOD, "cases 0 world", ["x" * 100_000] * 100)):
        score = judge(answer_to(EXERCISE.name, ONE), Ran(json.dumps(case)))
        assert 0 < len(score.sentence) <= 2_001
        assert len(score.got) < 100_000
    for shape in ([10**12, 0, 5], [0], [2, 0], [1] * 65):
        empty = spoil(GOOD, "cases 0 returned", rows | {"shape": shape})
        score = judge(answer_to(EXERCISE.name, ONE), Ran(json.dumps(empty)))
        assert score.points == 0
        assert ("not in order" in score.reason) == (len(shape) > 64)
