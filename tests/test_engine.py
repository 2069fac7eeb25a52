"""The exercise engine from a learner's side: what comes in is wild, what comes out is a sentence."""

from __future__ import annotations

import functools
import json
import math
import os
import signal
import textwrap
import time

import pytest
import torch
from torch import nn

from course_utils.exercises import (
    check,
    classroom,
    engine,
    evidence,
    hint,
    predict,
    progress,
    solution,
    why,
)
from course_utils.exercises import progress as progress_dashboard
from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.engine import (
    Exercise,
    exercise,
    find,
    find_prediction,
    is_blank,
    source_of,
)
from course_utils.exercises.judging import first_difference
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.exercises.plain import plain, show
from course_utils.show import card, code_spans

saved = classroom.saved


@pytest.fixture(autouse=True)
def no_saved_progress(monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", "off")
    monkeypatch.setattr(saved, "_in_memory", {})
    monkeypatch.setattr(classroom, "_failed_code", {})


@pytest.fixture
def declare(monkeypatch):
    """Declare an exercise for one test only."""

    def make(reference, cases, lesson=99, limit=10.0):
        declared = Exercise(reference, lesson, 2, ("nudge", "concept", "code"), limit)
        declared.cases(cases)
        monkeypatch.setitem(engine._exercises, declared.name, declared)
        return declared

    return make


def write_answer(source, tmp_path, name="answer.py", **names):
    """A function from source text, with a file behind it, as in a notebook cell."""
    path = tmp_path / name
    path.write_text(textwrap.dedent(source))
    namespace = {"torch": torch, **names}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    return namespace


def outcome_of(source, tmp_path, name="scale_gradient"):
    return check(write_answer(source, tmp_path)[name])


# --- the stages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "stage", "words"),
    [
        ("return torch.tensor([1.0, 4.0])", Stage.PASSED, ""),
        ("y = None; return y", Stage.RETURNED_NOTHING, "returned nothing (None); expected [1., 4.]"),
        ("return [1.0, 4.0]", Stage.WRONG_TYPE, "a list of 2; expected a tensor of shape (2,)"),
        ("return torch.empty(2, device='meta')", Stage.WRONG_TYPE, "a tensor whose numbers cannot be read"),
        ("return torch.eye(2).to_sparse()", Stage.WRONG_TYPE, "a tensor whose numbers cannot be read"),
        ("return torch.ones(3)", Stage.WRONG_SHAPE, "shape (3,); expected shape (2,)"),
        ("return torch.tensor([1, 4])", Stage.WRONG_DTYPE, "int64; expected float32"),
        ("return torch.tensor([1.0, float('nan')])", Stage.NOT_FINITE, "[1., nan]; expected [1., 4.]"),
        ("return torch.tensor([1.0, 5.0])", Stage.WRONG_VALUE, "[1., 5.]; expected [1., 4.]"),
        ("x.mul_(2); return torch.tensor([1.0, 4.0])", Stage.SIDE_EFFECT, "changed its input `x` in place"),
        ("x.requires_grad_(); return torch.tensor([1.0, 4.0])", Stage.SIDE_EFFECT, "`requires_grad`"),
        ("return 1 / 0", Stage.RAISED, "your line 2, `return 1 / 0`, raised ZeroDivisionError: division by zero"),
        ("yield torch.tensor([1.0, 4.0])", Stage.WRONG_TYPE, "a generator"),
        ("import sys; sys.exit(3)", Stage.RAISED, "SystemExit"),
        ("torch.set_default_dtype(torch.float64); return x * x", Stage.SIDE_EFFECT, "default dtype"),
        ("torch.set_grad_enabled(False); return x * x", Stage.SIDE_EFFECT, "grad mode"),
        (
            "torch.nn.modules.module.register_module_forward_hook(print); return x * x",
            Stage.SIDE_EFFECT,
            "hooks on all modules",
        ),
    ],
)
def test_first_failing_stage_is_the_outcome(answer, stage, words, declare, tmp_path):
    def square(x):
        return x * x

    declare(square, lambda rng: iter([Case({"x": torch.tensor([1.0, 2.0])}), Case({"x": torch.tensor([1.0, 2.0])})]))
    namespace = write_answer(f"def square(x):\n    {answer}\n", tmp_path)
    outcome = check(namespace["square"])
    assert outcome.stage is stage, outcome
    assert words in str(outcome)
    assert outcome.points == (2 if stage is Stage.PASSED else 0)
    assert torch.get_default_dtype() is torch.float32
    assert torch.is_grad_enabled()
    assert not torch.nn.modules.module._global_forward_hooks


def test_large_tensors_name_the_first_place_that_differs():
    expected = torch.zeros(5, 5)
    got = expected.clone()
    got[3, 2] = 7
    base = {"given": "", "raised": None, "seen": {}, "inputs": {}, "changed": {}, "world": [], "alive": False}
    mine, reference = base | {"returned": plain(got)}, base | {"returned": plain(expected)}
    assert "7. at [3, 2]; expected 0. there" in first_difference([mine], [reference], "f").sentence


def test_numbers_are_compared_within_tolerance():
    def third(x):
        return x / 3

    declared = Exercise(third, 99, 1, ("h",), 10.0)
    declared.cases(lambda rng: iter([Case({"x": rng.whole(3)})]))
    assert declared.check(lambda x: x * torch.tensor(1 / 3), 5).passed
    assert declared.check(lambda x: x * 0.334, 5).stage is Stage.WRONG_VALUE


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ((1, 2), [1, 2], True),
        (3, 3.0, True),
        (True, 1, False),
        ([1, 2], [1, 2, 3], False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"b": 1}, False),
        (torch.tensor(2.0), 2.0, False),
        (math.nan, math.nan, True),
        ("a", "a", True),
        ({1, 2}, {2, 1}, True),
    ],
)
def test_what_counts_as_the_same_value(got, expected, same):
    base = {"given": "", "raised": None, "seen": {}, "inputs": {}, "changed": {}, "world": [], "alive": False}
    found = first_difference([base | {"returned": plain(got)}], [base | {"returned": plain(expected)}], "f")
    assert (found is None) is same, found


# --- what a hook can do -----------------------------------------------------------------------------------------------


def test_error_inside_a_hook_names_the_learners_line(tmp_path):
    outcome = outcome_of(
        """
        def scale_gradient(tensor, factor):
            def hook(grad):
                return grad * facto
            return tensor.register_hook(hook)
        """,
        tmp_path,
    )
    assert outcome.stage is Stage.RAISED
    assert "your line 4, `return grad * facto`, raised NameError: name 'facto' is not defined" in outcome.sentence
    assert "after your function had returned" in outcome.sentence


def test_stored_graph_is_a_side_effect(tmp_path):
    namespace = write_answer(
        """
        kept = []
        def scale_gradient(tensor, factor):
            kept.append(tensor)
            return tensor.register_hook(lambda grad: grad * factor)
        """,
        tmp_path,
    )
    outcome = check(namespace["scale_gradient"])
    assert outcome.stage is Stage.SIDE_EFFECT
    assert "alive" in outcome.sentence


def test_hooks_left_on_a_module_are_a_side_effect(declare):
    def shape_of_output(model, x):
        seen = []
        handle = model.register_forward_hook(lambda module, args, output: seen.append(tuple(output.shape)))
        model(x)
        handle.remove()
        return seen[0]

    declare(shape_of_output, lambda rng: iter([Case({"model": nn.Linear(2, 3), "x": rng.whole(1, 2)})]))

    def answer(model, x):
        seen = []
        model.register_forward_hook(lambda module, args, output: seen.append(tuple(output.shape)))
        model(x)
        return seen[0]

    answer.__name__ = "shape_of_output"
    outcome = check(answer)
    assert outcome.stage is Stage.SIDE_EFFECT
    assert "left a hook on `model`" in outcome.sentence


def test_changed_mode_of_a_module_is_a_side_effect(declare):
    def run(model, x):
        return model(x)

    declare(run, lambda rng: iter([Case({"model": nn.Dropout(0.0), "x": rng.whole(2)})]))

    def answer(model, x):
        return model.eval()(x)

    answer.__name__ = "run"
    assert "another mode" in check(answer).sentence


def test_modules_made_by_a_case_are_the_same_for_every_answer(declare):
    def run(model, x):
        return model(x)

    def cases(rng):
        for _ in range(2):
            yield Case({"model": nn.Linear(2, 2), "x": rng.whole(1, 2)})

    declared = declare(run, cases)

    def answer(model, x):
        torch.rand(17)  # uses up random numbers
        return model(x)

    state = torch.random.get_rng_state()
    assert declared.check(answer, 3).passed
    assert torch.equal(state, torch.random.get_rng_state()), "the learner's random numbers are the learner's"


# --- time -------------------------------------------------------------------------------------------------------------

LOOPS = {
    "while": "while True:\n        pass",
    "sleep": "import time\n    time.sleep(60)",
    "swallows exceptions": (
        "for _ in range(10**9):\n        try:\n            while True: pass\n        except Exception: pass"
    ),
}


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this platform has no interval timers, so no time limit")
@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS)
def test_endless_answer_is_stopped_with_a_sentence(body, declare, tmp_path):
    def square(x):
        return x * x

    declare(square, lambda rng: iter([Case({"x": rng.whole(2)}), Case({"x": rng.whole(2)})]), limit=0.3)
    handler = signal.getsignal(signal.SIGALRM)
    start = time.monotonic()
    outcome = check(write_answer(f"def square(x):\n    {body}\n", tmp_path)["square"])
    assert time.monotonic() - start < 30, "it would have gone on for a minute or for ever"
    assert outcome.stage is Stage.RAISED
    assert "did not come to an end in time" in outcome.sentence
    assert "line" in outcome.sentence
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_endless_printing_does_not_fill_the_memory(declare):
    def square(x):
        return x * x

    declared = declare(square, lambda rng: iter([Case({"x": rng.whole(2)})]))

    def answer(x):
        for _ in range(10_000):
            print("x" * 100)
        return x * x

    found = declared.observe(answer, 0)
    assert len(found[0]["printed"]) <= evidence.MAX_PRINTED
    assert declared.check(answer, 0).passed, "printing is allowed"


# --- what is given to check -------------------------------------------------------------------------------------------


class Holder:
    def scale_gradient(self):
        """A method that happens to have the name of an exercise."""


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (None, "this is None"),
        (5, "a value of type int"),
        (torch.ones(2), "a value of type Tensor"),
        (lambda tensor: tensor, "A lambda has no name"),
        ("scale_gradient", "without quotes: check(scale_gradient)"),
        ("scale_gradien", "did you mean scale_gradient"),
        (functools.partial(print, 1), "functools.partial"),
        (print, "`print` is not the name of an exercise"),
        (Holder().scale_gradient, "is a method"),
        ([], "a value of type list"),
    ],
)
def test_check_of_something_else_says_what_to_give(thing, words):
    outcome = check(thing)
    assert outcome.stage is Stage.NOT_AN_EXERCISE
    assert words in str(outcome)
    assert words.replace("check(", "hint(") in str(hint(thing))
    assert words.replace("check(", "solution(") in str(solution(thing))


def test_misspelt_name_is_answered_with_the_nearest():
    def scale_gradients(tensor, factor):
        return tensor

    assert "did you mean scale_gradient" in str(check(scale_gradients))


def test_before_the_answer_cell_ran():
    outcome = check(find("scale_gradient"))
    assert outcome.stage is Stage.NOT_ATTEMPTED
    assert "Run the answer cell first" in str(outcome)
    with pytest.raises(NotImplementedError, match="Run the answer cell that defines scale_gradient first"):
        find("scale_gradient")(torch.ones(1), 2)


@pytest.mark.parametrize("body", ["...", "pass", "return", "return None", '"""doc"""', '"""doc"""\n    ...'])
def test_skeletons_are_not_attempted_and_not_counted(body, tmp_path):
    outcome = outcome_of(f"def scale_gradient(tensor, factor):\n    {body}\n", tmp_path)
    assert outcome.stage is Stage.NOT_ATTEMPTED
    assert saved.of_exercise("scale_gradient")["attempts"] == 0


def test_a_function_that_does_something_is_not_blank():
    assert not is_blank(lambda: print())
    assert not is_blank(lambda: 0)
    assert not is_blank(print)

    class Half:
        def __init__(self):
            self.value = 1

        def __call__(self): ...

    assert not is_blank(Half)


def test_same_function_again_is_probably_an_edit_that_was_not_run(tmp_path):
    namespace = write_answer("def scale_gradient(tensor, factor):\n    return 1\n", tmp_path)
    assert "same function as at the last check" not in str(check(namespace["scale_gradient"]))
    assert "same function as at the last check" in str(check(namespace["scale_gradient"]))
    edited = write_answer("def scale_gradient(tensor, factor):\n    return 2\n", tmp_path, "other.py")
    assert "same function as at the last check" not in str(check(edited["scale_gradient"]))


def test_wrong_signature_is_named(tmp_path):
    outcome = outcome_of("def scale_gradient(tensor):\n    return tensor\n", tmp_path)
    assert outcome.stage is Stage.RAISED
    assert "takes 1 positional argument but 2 were given" in outcome.sentence


def test_answer_made_of_constants_fails_on_fresh_inputs(declare):
    def double(x):
        return 2 * x

    declared = declare(double, lambda rng: iter([Case({"x": rng.integer(1, 10**6)})]))
    constant = declared.observe(double, classroom.VISIBLE_SEED)[0]["returned"]["value"]

    def answer(x):
        return constant

    answer.__name__ = "double"
    outcome = check(answer)
    assert outcome.stage is Stage.WRONG_VALUE
    assert "right on the first inputs" in outcome.note


def test_interrupting_a_check_is_an_outcome(declare):
    def square(x):
        return x * x

    declare(square, lambda rng: iter([Case({"x": rng.whole(2)})]))

    def answer(x):
        raise KeyboardInterrupt

    answer.__name__ = "square"
    assert "You interrupted the check" in str(check(answer))


# --- faces ------------------------------------------------------------------------------------------------------------


def test_three_faces_say_the_same():
    outcome = Outcome("f", Stage.WRONG_VALUE, "for x = 1 <b> it was `2`.", "forgot & lost", "", 3, 2)
    assert str(outcome) == (
        "f: not yet (wrong value)\n  for x = 1 <b> it was `2`.\n  Likely cause: forgot & lost\n  Stuck? hint(f)"
    )
    page = outcome._repr_html_()
    assert "&lt;b&gt;" in page
    assert "forgot &amp; lost" in page
    assert "<code>2</code>" in page
    assert "✗" in page
    record = json.loads(json.dumps(outcome.record()))
    assert record["stage"] == "wrong value"
    assert record["points"] == 0
    assert record["possible"] == 3


def test_symbols_differ_so_that_colour_is_not_needed():
    stages = (Stage.PASSED, Stage.WRONG_VALUE, Stage.NOT_ATTEMPTED)
    assert len({Outcome("f", stage).symbol for stage in stages}) == 3


def test_html_escapes_and_survives_odd_backquotes():
    assert code_spans("a ` b <script>") == "a ` b &lt;script&gt;"
    assert "<script>" not in card("x", "<script>", ["<script>"])


def test_values_are_short_and_exact_in_messages():
    assert show(plain(torch.tensor([[1.0, -2.5], [0.1, 3e-7]]))) == "[[1., -2.5], [0.1, 3e-07]]"
    assert show(plain(torch.tensor([1, 2]))) == "[1, 2]"
    assert show(plain([torch.tensor([-0.0]), -0.0])) == "[[0.], 0.]"
    assert show(plain((1, "a", None, True))) == "(1, 'a', None, True)"
    assert "a tensor of shape (100,)" in show(plain(torch.zeros(100)))


@pytest.mark.parametrize("value", [object(), type, 10**100, complex(1, 2), torch.empty(2, device="meta"), {1: [2]}])
def test_anything_becomes_json(value):
    assert json.loads(json.dumps(plain(value)))


def test_endless_structures_end():
    loop = []
    loop.append(loop)
    assert "too deep" in json.dumps(plain(loop))


# --- hints, solutions, predictions, progress --------------------------------------------------------------------------


def test_hints_come_rung_by_rung():
    exercise_ = find("scale_gradient")
    texts = [str(hint(exercise_)) for _ in range(5)]
    for rung, text in enumerate(exercise_.hints):
        assert text in texts[rung]
    assert texts[-1] == texts[len(exercise_.hints) - 1]
    assert "last hint" in texts[-1]


def test_solution_opens_after_three_attempts_a_pass_or_on_demand(tmp_path):
    source = "def scale_gradient(tensor, factor):\n    return {}\n"
    exercise_ = find("scale_gradient")
    assert "after 3 more attempts" in str(solution(exercise_))
    for attempt in range(3):
        check(write_answer(source.format(attempt), tmp_path, f"{attempt}.py")["scale_gradient"])
    assert "def scale_gradient(tensor, factor):" in str(solution(exercise_))
    assert "def keep_positive(tensor):" in str(solution(find("keep_positive"), now=True))
    check(find("freeze_biases").reference)
    assert "def freeze_biases(model):" in str(solution(find("freeze_biases")))


def test_solution_is_the_source_without_the_decorator():
    text = source_of(find("scale_gradient").reference)
    assert text.startswith("def scale_gradient(")
    assert "@exercise" not in text


def test_prediction_commit_then_why():
    asked = find_prediction("hook_on_a")
    assert "Commit to a prediction first" in str(why("hook_on_a"))
    assert "not one of the options" in str(predict("hook_on_a", 16))
    assert "You said 12" in str(predict("hook_on_a", 12.0))
    assert asked.options["15"] not in str(predict("hook_on_a", "12")), "committing does not give the answer away"
    text = str(why("hook_on_a"))
    assert "You said 12; it is 15." in text
    assert asked.options["12"] in text
    assert asked.options["15"] in text
    predict("hook_on_a", 15)
    assert "and so it is" in str(why("hook_on_a"))


def test_prediction_has_a_text_face_with_every_option():
    text = str(predict("hook_on_a"))
    assert all(option in text for option in find_prediction("hook_on_a").options)
    bundle = predict("hook_on_a")._repr_mimebundle_()
    assert bundle["text/plain"] == text
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_prediction_by_buttons():
    box = predict("hook_on_a")._widget()
    _, choice, buttons, reply = box.children
    commit, reason = buttons.children
    assert commit.disabled
    assert reason.disabled
    choice.value = "12"
    assert not commit.disabled
    commit.click()
    assert "You said 12" in reply.value
    assert saved.of_prediction("hook_on_a") == "12"
    reason.click()
    assert "it is 15" in reply.value


@pytest.mark.parametrize("name", ["hook_on_b", 5, None, ["hook_on_a"]])
def test_unknown_prediction_is_a_sentence(name):
    assert "nothing to predict" in str(predict(name))
    assert "nothing to explain" in str(why(name))


@pytest.fixture
def work(tmp_path, monkeypatch):
    (tmp_path / saved.MARKER).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COURSE_PROGRESS")
    return tmp_path


def test_progress_is_kept_in_the_work_folder(work):
    check(find("scale_gradient").reference)
    predict("hook_on_a", 15)
    stored = json.loads((work / saved.FILE).read_text())
    assert stored["exercises"]["scale_gradient"] == {"attempts": 1, "hints": 0, "passed": True}
    assert stored["predictions"] == {"hook_on_a": "15"}
    assert "1 of " in str(progress())
    assert "make lab" not in str(progress_dashboard())


def test_a_pass_stays_a_pass(work, tmp_path):
    check(find("scale_gradient").reference)
    outcome_of("def scale_gradient(tensor, factor):\n    return 1\n", tmp_path)
    assert saved.of_exercise("scale_gradient") == {"attempts": 2, "passed": True, "hints": 0}


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "5", '{"exercises": []}', '{"exercises": {"scale_gradient": 5}}', "\0\0"]
)
def test_damaged_progress_costs_the_ticks_only(work, content):
    (work / saved.FILE).write_text(content)
    assert "0 of " in str(progress())
    assert check(find("scale_gradient").reference).passed
    assert saved.of_exercise("scale_gradient")["passed"]


def test_progress_that_cannot_be_written_does_not_stop_the_lesson(work):
    (work / saved.FILE).mkdir()
    assert check(find("scale_gradient").reference).passed
    assert str(hint(find("scale_gradient")))


def test_tests_builds_and_grades_write_no_progress(work, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", "off")
    check(find("scale_gradient").reference)
    assert not (work / saved.FILE).exists()
    assert "make lab" in str(progress())


def test_without_a_marked_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_PROGRESS")
    monkeypatch.chdir(tmp_path)
    assert check(find("scale_gradient").reference).passed
    assert os.listdir(tmp_path) == []


# --- declarations -----------------------------------------------------------------------------------------------------


def test_a_name_is_a_key_and_cannot_be_taken_twice(monkeypatch):
    def scale_gradient(tensor):
        """Somebody else's exercise."""

    with pytest.raises(ValueError, match="two exercises are called scale_gradient"):
        exercise(lesson=2, hints=["h"])(scale_gradient)


def test_a_prediction_must_have_its_answer_among_its_options():
    with pytest.raises(ValueError, match="not one of its options"):
        engine.prediction("nonsense", lesson=99, question="?", options={1: "one"}, answer=2)


def test_an_exercise_without_cases_says_so():
    def lonely(x):
        """Alone."""

    with pytest.raises(ValueError, match="has no cases"):
        Exercise(lonely, 99, 1, ("h",), 1.0).observe(lonely, 0)


def test_numbers_are_exact_small_and_the_same_everywhere():
    rng = Numbers(0)
    assert [rng.integer(1, 9) for _ in range(5)] == [8, 7, 4, 3, 5]
    mixed = Numbers(3).mixed(6)
    assert (mixed != 0).all()
    assert (mixed[:-1] * mixed[1:] < 0).all()
    leaf = Numbers(1).leaf(2, 2)
    assert leaf.is_leaf
    assert leaf.requires_grad
