"""From an answer to its verdict, in this process: the driver, its record, the words, and the text for nbval."""

from __future__ import annotations

import json
import textwrap

import pytest
from grading_samples import (
    EXERCISES,
    ONE,
    SEED,
    START,
    answer_in,
    answer_to,
    helpers_of,
    key_of,
    lesson_of,
    notebook_with,
    source_under_name,
    through_json,
)

from course_utils.exercises.engine import find
from course_utils.exercises.judging import first_difference
from course_utils.exercises.outcome import Stage
from course_utils.grading import evidence
from course_utils.grading.evidence import Key, Observed, fits, make_task, read_ran, read_record, seed_for
from course_utils.grading.sandbox import driver
from course_utils.grading.sandbox.tasks import KILLED, TOO_LONG, Ran
from course_utils.grading.verdict import canonical, judge_answer
from course_utils.root import CourseError

SAMPLE = EXERCISES[:: len(EXERCISES) // 8]


# -------------------------------------------------------------------------------------------------------------- driver


def observe(name, support, source):
    return through_json(driver.observe_answer(name, support, textwrap.dedent(source), SEED))


def test_driver_notes_what_defining_an_answer_raises():
    record = observe("largest", "", "\n\n@missing\ndef largest(tensor):\n    return 1\n")
    assert record["raised"]["type"] == "NameError"
    assert (record["raised"]["line"], record["raised"]["text"]) == (3, "@missing")
    assert observe("largest", "", "import sys\nsys.exit()")["raised"]["type"] == "SystemExit"
    stopped = observe("largest", "", "def largest(tensor):\n    raise KeyboardInterrupt\n")
    assert stopped["raised"]["type"] == "KeyboardInterrupt"


def test_driver_goes_on_without_a_definition_that_fails():
    record = observe("largest", "a = 1 / 0\nb = 2", "def largest(tensor):\n    return b\n")
    assert record["cases"][0]["returned"] == {"type": "int", "value": 2}
    assert record["lost"] == ["`a = 1 / 0` raised ZeroDivisionError: division by zero"]


@pytest.mark.parametrize("text", ["def largest(tensor):\n    pass\n", "class largest:\n    def __init__(self): ...\n"])
def test_driver_knows_what_is_blank(text):
    assert observe("largest", "", text)["blank"]


def test_each_answer_has_a_namespace_of_its_own():
    observe("largest", "left_over = 1", "def largest(tensor):\n    return left_over\n")
    record = observe("largest", "", "def largest(tensor):\n    return left_over\n")
    assert record["cases"][0]["raised"]["type"] == "NameError"


def test_an_endless_answer_is_stopped(monkeypatch):
    monkeypatch.setattr(find("largest"), "limit", 0.2)
    record = observe("largest", "", "def largest(tensor):\n    while True:\n        pass\n")
    assert record["cases"][0]["raised"]["type"] == "TimeIsUp"
    assert observe("largest", "while True: pass", "def largest(tensor): return 1")["raised"]["type"] == "TimeIsUp"


# ------------------------------------------------------------------------------------------------------------- records


def good_record():
    exercise = find("scale_gradient")
    cases = exercise.observe(exercise.reference, SEED)
    return through_json({"exercise": exercise.name, "blank": False, "raised": None, "lost": [], "cases": cases})


def spoil(record, path, value):
    """Put `value` at a place of the record."""
    place = record
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return record


RETURNED = ["cases", 0, "returned"]
TENSOR = {"type": "tensor", "dtype": "float32", "shape": [1], "values": [1.0]}


def nested(depth):
    return {"type": "list", "items": [nested(depth - 1)] if depth else []}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (RETURNED, TENSOR | {"values": [1, True, "nan", "inf", "-inf"], "unreadable": "why"}),
        (RETURNED, {"type": "complex", "value": [1.0, "nan"]}),
        (RETURNED, {"type": "dict", "items": [[{"type": "str", "value": "a"}, {"type": "handle"}]]}),
        (RETURNED, nested(9)),
        (["cases", 0, "inputs", "tensor", "grad"], {"weight": {"type": "None"}}),
        (["cases", 0, "inputs", "tensor", "training"], {"layer": True}),
        (["raised"], {"type": "E", "message": "", "during": "call", "line": None, "text": ""}),
    ],
)
def test_a_record_of_the_drivers_form_is_read(path, value):
    assert read_record(json.dumps(good_record()), "scale_gradient") == good_record()
    record = spoil(good_record(), path, value)
    assert read_record(json.dumps(record), "scale_gradient") == record


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["exercise"], "another"),
        (["blank"], 1),
        (["more"], 1),
        (["lost"], ["a", 2]),
        (["cases"], None),
        (["cases"], [{}] * 1000),
        (["cases", 0], []),
        (["cases", 0, "given"], 7),
        (["cases", 0, "alive"], "no"),
        (["cases", 0, "world"], "all"),
        (["cases", 0, "raised"], {"type": "Error"}),
        (["cases", 0, "raised"], {"type": "E", "message": "", "during": "call", "line": 1.0, "text": ""}),
        (RETURNED, TENSOR | {"values": ["1"]}),
        (RETURNED, TENSOR | {"values": ["nan\n"]}),
        (RETURNED, TENSOR | {"shape": [True]}),
        (RETURNED, TENSOR | {"shape": [1.0]}),
        (RETURNED, {"type": "int", "value": 1.5}),
        (RETURNED, {"type": "int", "value": True}),
        (RETURNED, {"type": "int", "value": 2**63}),
        (RETURNED, {"type": "float", "value": 10**400}),
        (RETURNED, {"type": "None", "value": 1}),
        (RETURNED, {"type": ["None"]}),
        (RETURNED, {"type": "list", "items": [1]}),
        (RETURNED, {"type": "dict", "items": [[{"type": "None"}]]}),
        (RETURNED, {"type": "complex", "value": [1.0]}),
        (["cases", 0, "changed"], {"tensor": ["everything"]}),
        (["cases", 0, "inputs", "tensor"], {}),
        (["cases", 0, "inputs", "tensor", "hooks"], True),
        (["cases", 0, "inputs", "tensor", "grad"], {"a": 1}),
        (["cases", 0, "inputs", "tensor", "more"], 1),
    ],
)
def test_a_forged_record_is_refused(path, value):
    with pytest.raises(CourseError):
        read_record(json.dumps(spoil(good_record(), path, value)), "scale_gradient")


def test_text_that_is_no_record_is_refused(monkeypatch):
    for text in (None, "", "{", "NaN", "[" * 100_000, '{"exercise": Infinity}', json.dumps([good_record()])):
        with pytest.raises(CourseError):
            read_record(text, "scale_gradient")
    long = spoil(good_record(), ["cases", 0, "x" * 100_000], 1)
    with pytest.raises(CourseError) as refused:
        read_record(json.dumps(long), "scale_gradient")
    assert len(str(refused.value)) <= 200
    monkeypatch.setattr("course_utils.grading.evidence.MAX_CHARACTERS", 100)
    with pytest.raises(CourseError, match="longer"):
        read_record(json.dumps(good_record()), "scale_gradient")


@pytest.mark.parametrize(
    ("ran", "stage", "words"),
    [
        (Ran(ended=KILLED), Stage.RAISED, "The Python process ended while your answer ran"),
        (Ran(ended="no kernel"), None, "no kernel"),
        (Ran("{}"), None, "the record of what the answer did is not in order"),
        (Ran(json.dumps(good_record() | {"blank": True})), Stage.NOT_ATTEMPTED, "as it came"),
        (Ran(json.dumps(good_record() | {"lost": ["`a` raised"]})), None, "may use did not work: `a` raised"),
    ],
)
def test_what_a_sandbox_gave_back_is_told_in_words(ran, stage, words):
    observed = read_ran(answer_to("scale_gradient", ONE), ran)
    assert (observed.outcome.stage if observed.outcome else None) is stage
    assert words in (observed.outcome.sentence if observed.outcome else observed.reason)
    raised = {"type": "NameError", "message": "x", "during": "call", "line": 3, "text": "@x"}
    for wrong, sentence in (
        (raised, "your line 3, `@x`, raised NameError: x"),
        (raised | {"line": None, "message": ""}, "your answer cell raised NameError"),
        (raised | {"type": "TimeIsUp"}, TOO_LONG[0].upper() + TOO_LONG[1:] + "."),
    ):
        record = good_record() | {"raised": wrong, "cases": []}
        assert read_ran(answer_to("scale_gradient", ONE), Ran(json.dumps(record))).outcome.sentence == sentence


def test_evidence_about_other_inputs_does_not_fit():
    cases, key = good_record()["cases"], good_record()["cases"]
    assert fits(cases, key)
    assert fits(cases[:1], key)
    assert not fits(spoil(good_record()["cases"], [0, "inputs"], {}), key)
    assert not fits(spoil(good_record()["cases"], [0, "inputs", "tensor", "more"], {}), key)
    assert not fits(spoil(good_record()["cases"], [0, "inputs", "tensor", "grad"], {"weight": {"type": "None"}}), key)
    observed = Observed(answer_to("scale_gradient", ONE), tuple(spoil(cases, [0, "inputs"], {})))
    verdict = judge_answer(observed, Key(tuple(key)))
    assert (verdict.outcome, verdict.by_hand) == (None, True)
    assert "other inputs" in verdict.reason


def test_seeds_tell_nothing_about_each_other():
    seeds = {seed_for(exercise.name, SEED) for exercise in EXERCISES}
    assert len(seeds) == len(EXERCISES)
    assert seed_for("largest", SEED) == seed_for("largest", SEED) != seed_for("largest", SEED + 1)


def test_the_keys_of_a_release_are_recorded(monkeypatch):
    monkeypatch.setattr(evidence, "has_answers", lambda: False)
    monkeypatch.setattr(evidence, "recorded_seeds", lambda lesson: [3, 5])
    monkeypatch.setattr(evidence, "recorded_key", lambda lesson, name, seed: ([name, seed], {"no": [lesson]}))
    seed = make_task(answer_to("largest", ""), SEED).seed
    assert seed in (3, 5)
    keys = evidence.make_keys([(START, {"largest"})], SEED)
    assert keys == {"largest": Key(("largest", seed), (("no", (0,)),))}


# --------------------------------------------------------------------------------------------------- words and the text


def test_a_submission_gets_what_check_says():
    """The whole way but for the sandbox, of a sample of answers: notebook, collect, driver, JSON, judge."""
    for number, exercise in enumerate(SAMPLE):
        name, lesson, mistake = exercise.name, lesson_of(exercise.name), exercise.mistakes[number % 3]
        for function, cause in ((exercise.accepted[0], ""), (mistake.function, mistake.message)):
            text = f"{helpers_of(function)}\n\n{source_under_name(function, name)}"
            answer = answer_in(notebook_with(lesson, {name: text}), name, lesson)
            task = make_task(answer, SEED)
            record = json.dumps(driver.observe_answer(name, task.support, task.answer, task.seed))
            judged = judge_answer(read_ran(answer, Ran(record)), key_of(name, SEED))
            found = judged.outcome
            assert (found.cause, found.points) == (cause, 0 if cause else exercise.points), name
            assert (judged.got == judged.expected) == found.passed, name


def test_text_and_words_agree_on_any_two_answers():
    """Each answer taken in turn as the key of the others: who differs in words differs in text."""
    for exercise in SAMPLE:
        functions = [exercise.reference, *exercise.accepted[:1], *(each.function for each in exercise.mistakes)]
        found = [through_json(exercise.observe(function, SEED)) for function in functions]
        for key in found:
            for mine in found:
                words = first_difference(mine, key, exercise.name) is None
                assert (canonical(mine, key) == canonical(key, key)) == words, exercise.name


def plain_case(returned):
    parts = {"given": "x = 1", "raised": None, "seen": {}, "printed": "", "inputs": {}, "changed": {}}
    return parts | {"world": [], "alive": False, "returned": returned}


@pytest.mark.parametrize(
    ("mine", "key", "same"),
    [
        (TENSOR | {"values": [1.000001]}, TENSOR, True),
        (TENSOR | {"values": [1.0001]}, TENSOR, False),
        (TENSOR | {"dtype": "float64"}, TENSOR, False),
        ({"type": "tuple", "items": [TENSOR]}, {"type": "list", "items": [TENSOR]}, True),
        ({"type": "int", "value": 1}, {"type": "float", "value": 1.0}, True),
        ({"type": "bool", "value": True}, {"type": "int", "value": 1}, False),
        ({"type": "float", "value": "nan"}, {"type": "float", "value": "nan"}, True),
        ({"type": "None"}, {"type": "handle"}, False),
        (TENSOR | {"shape": [5000], "values": [0.1] * 5000}, TENSOR | {"shape": [5000], "values": [0.1] * 5000}, True),
        (TENSOR | {"shape": [9], "values": [*[0.1] * 8, 3]}, TENSOR | {"shape": [9], "values": [0.1] * 9}, False),
    ],
)
def test_text_is_equal_where_values_count_as_equal(mine, key, same):
    got, expected = [plain_case(mine)], [plain_case(key)]
    assert (canonical(got, expected) == canonical(expected, expected)) == same
    assert (first_difference(got, expected, "any") is None) == same
    assert canonical([got[0] | {"printed": "look!"}], expected) == canonical(got, expected)
    assert max(map(len, canonical(got, expected).splitlines())) < 400


@pytest.mark.parametrize(
    ("mine", "key"),
    [
        ({"raised": {"type": "ValueError"}}, {"raised": {"type": "KeyError"}}),
        ({"world": ["the default dtype"]}, {}),
        ({"alive": True}, {}),
        ({}, {"seen": {"the handle": {"type": "handle"}}}),
    ],
)
def test_text_differs_in_each_fact_that_counts(mine, key):
    got, expected = [plain_case(TENSOR) | mine], [plain_case(TENSOR) | key]
    assert canonical(got, expected) != canonical(expected, expected)
