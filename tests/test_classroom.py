"""Hints, solutions, predictions and progress, as a learner meets them."""

import inspect
import json
import os
import sys

import pytest

from course_utils import exercises
from course_utils.exercises import check, classroom, declaration, hint, predict, progress, saved_progress, solution, why
from course_utils.exercises.declaration import Prediction
from course_utils.exercises.engine import find
from course_utils.show import render_markdown

pytestmark = pytest.mark.usefixtures("nothing_remembered")


def scale_gradient(tensor, factor):
    return 1


def test_a_lesson_imports_functions_and_no_module():
    assert all(callable(getattr(exercises, name)) for name in exercises.__all__)
    with pytest.raises(AttributeError, match="no attribute 'chekc'"):
        _ = exercises.chekc


def test_hints_come_rung_by_rung():
    asked = find("scale_gradient")
    texts = [str(hint(asked)) for _ in range(5)]
    assert all(rung in text for rung, text in zip(asked.all_hints, texts, strict=False))
    assert "Run this again for the next hint" in texts[0]
    assert texts[-1] == texts[len(asked.all_hints) - 1]
    assert "last hint" in texts[-1]


@pytest.mark.parametrize("after", ["    return (2", "    return 2\n"])
def test_a_function_that_an_older_cell_defined_is_not_checked(after, monkeypatch):
    newer = inspect.getsource(scale_gradient).replace("    return 1\n", after)
    cells = ["x = 1", inspect.getsource(scale_gradient), newer, "check(scale_gradient)"]
    monkeypatch.setattr(sys.modules["__main__"], "In", cells, raising=False)
    assert "`scale_gradient` is an older one" in str(check(scale_gradient))
    assert saved_progress.of_exercise("scale_gradient")["attempts"] == 0
    cells += [cells[1], "def mine():\n    def scale_gradient(): pass"]
    assert "a whole number" in str(check(scale_gradient))


def test_solution_opens_after_three_attempts_a_pass_or_on_demand():
    asked = find("scale_gradient")
    for left in ("3 more attempts", "2 more attempts", "1 more attempt,"):
        assert left in str(solution(asked))
        check(scale_gradient)
    assert "def scale_gradient(tensor, factor):" in str(solution(asked))
    assert "<pre><code>def keep_positive(tensor):" in solution(find("keep_positive"), now=True)._repr_html_()
    assert "@exercise" not in str(solution(asked))
    check(find("freeze_biases").reference)
    assert "def freeze_biases(model):" in str(solution(find("freeze_biases")))


ASKED = Prediction(
    "three_and_five", 1, "`3 + 5`?", {"7": "One short.", "8": "Yes.", "15": "A product."}, "8", "**Add** $a_1$."
)
HTML = '<p><strong>Add</strong> <span class="math inline">$a_1$</span>.</p>'


@pytest.fixture
def asked(monkeypatch):
    monkeypatch.setitem(declaration._predictions(), ASKED.name, ASKED)
    monkeypatch.setattr(classroom.session, "explanations", {})
    return ASKED


def test_a_prediction_is_committed_to_once_and_then_explained(asked):
    assert str(why(asked.name)) == classroom.SEALED
    assert "not one of the options" in str(predict(asked.name, 16))
    assert str(why(asked.name)) == classroom.SEALED
    assert str(predict(asked.name, 15.0)).startswith("You said 15.")
    told = "You said 15; it is 8.\n  A product.\n  Yes.\n\n**Add** $a_1$."
    assert str(why(asked.name)) == told
    assert "Your first prediction counts" in str(predict(asked.name, "8"))
    assert str(why(asked.name)) == told
    assert "You said nan." in str(predict("last_of_a_hundred_layers", "NaN"))


def test_a_right_prediction_gets_one_reply(asked):
    predict(asked.name, " 8 ")
    assert str(why(asked.name)) == "You said 8, and so it is.\n  Yes.\n\n**Add** $a_1$."


def test_what_is_seen_already_unfolds_at_the_commit_by_button_or_by_call(asked):
    for commit in (lambda: press(predict(asked.name), "15"), lambda: predict(asked.name, 15)):
        saved_progress._in_memory.clear()
        shown = why(asked.name)._widget()
        assert classroom.SEALED in shown.value
        assert not any(words in shown.value for words in ("t is 8", "Yes", "Add"))
        commit()
        assert "You said 15; it is 8." in shown.value
        assert HTML in shown.value
        assert why(asked.name)._widget() is shown


def press(view, option):
    """Choose an option and press *Commit*; returns the reply."""
    _, choice, commit, reply, _ = view._widget().children
    commit.click()
    assert ("Choose an answer first" in reply.value, saved_progress.load()["predictions"]) == (True, {})
    choice.value = option
    commit.click()
    assert choice.disabled
    return reply.value


def test_buttons_keep_the_first_commitment(asked):
    assert "You said 15." in press(predict(asked.name), "15")
    _, choice, commit, reply, _ = predict(asked.name)._widget().children
    assert (choice.value, choice.disabled) == ("15", True)
    assert saved_progress.load()["predictions"] == {asked.name: "15"}
    open_before, saved_progress._in_memory["predictions"] = predict(asked.name), {}
    _, choice, commit, reply, _ = open_before._widget().children
    predict(asked.name, 7)
    choice.value = "8"
    commit.click()
    assert "Your first prediction counts" in reply.value
    assert choice.value == "7"


def test_a_page_without_a_kernel_has_the_question_and_the_answer_below_a_fold(asked):
    view = predict(asked.name)
    assert all(option in str(view) for option in asked.options)
    assert str(view).endswith('predict("three_and_five", 7)')
    assert str(predict("hooks_and_deepcopy")).endswith("predict(\"hooks_and_deepcopy\", 'yes')")
    bundle = view._repr_mimebundle_()
    assert bundle["text/plain"] == str(view)
    assert all(f"<li>{option}</li>" in bundle["text/html"] for option in asked.options)
    bundle = why(asked.name)._repr_mimebundle_()
    assert bundle["text/plain"] == classroom.SEALED
    fold, open_part = bundle["text/html"].split("</summary>")
    assert fold.startswith("<details><summary>")
    assert not any(words in fold for words in ("t is 8", "Yes", "Add"))
    assert all(words in open_part for words in ("It is 8.", "Yes.", HTML))


def test_an_explanation_is_markdown_with_tables_and_formulas_and_without_html():
    made = render_markdown("| a |\n|---|\n| `$b$` |\n\n<b>$x_1 < y_1$</b> costs $5 or $6:\n\n$$\n\\frac_a_\n$$")
    assert "<th>a</th>" in made
    assert "<code>$b$</code>" in made
    assert "&lt;b&gt;" in made
    assert "$x_1 &lt; y_1$" in made
    assert "costs $5 or $6" in made
    assert "$$\\frac_a_$$" in made


@pytest.mark.parametrize("name", ["hook_on_b", ["hook_on_a"]])
def test_unknown_prediction_is_a_sentence(name):
    assert "nothing to predict" in str(predict(name))
    assert "nothing to explain" in str(why(name))


def test_progress_is_kept_in_the_work_folder(work, monkeypatch):
    assert "0 of " in str(progress())
    check(find("scale_gradient").reference)
    predict("hook_on_a", 15)
    check(scale_gradient)
    hint(find("scale_gradient"))
    stored = json.loads((work / saved_progress.FILE).read_text())
    assert stored["exercises"]["scale_gradient"] == {"attempts": 2, "hints": 1, "passed": True}, "a pass stays a pass"
    assert stored["predictions"] == {"hook_on_a": "15"}
    (work / "deeper").mkdir()
    monkeypatch.chdir(work / "deeper")
    assert "01 Tensor hooks 1 of 8 1 of 6 02" in " ".join(str(progress()).split())
    assert str(progress()).endswith("Go on with 01, Tensor hooks.")
    assert 'Go on with <a href="01_tensor_hooks.ipynb">01 Tensor hooks</a>.' in progress()._repr_html_()
    assert "make lab" not in str(progress())
    assert '<meter min="0" max="1" value="0" aria-hidden="true"></meter> 0 of 1' in progress()._repr_html_()


@pytest.mark.parametrize(
    ("done", "next_one"),
    [([0, 0, 0], 0), ([2, 1, 0], 1), ([2, 2, 0], 2), ([0, 2, 0], 2), ([1, 2, 2], 0), ([2, 2, 2], None)],
)
def test_one_goes_on_where_one_was_last_and_comes_back_to_what_was_left_out(done, next_one):
    rows = [classroom.Done(n, f"Lesson {n}", f"{n}.ipynb", passed, 2, 0, 0) for n, passed in enumerate(done)]
    shown = classroom.Progress(rows, kept=True)
    assert shown.next_lesson == (None if next_one is None else rows[next_one])
    assert ("You have passed every exercise" in str(shown)) is (next_one is None)


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"exercises": [], "predictions": 5}', '{"exercises": {"scale_gradient": {"hints": "1"}}}']
)
def test_damaged_progress_costs_the_ticks_only(work, content):
    (work / saved_progress.FILE).write_text(content)
    assert "0 of " in str(progress())
    assert check(find("scale_gradient").reference).passed
    assert saved_progress.of_exercise("scale_gradient") == {"attempts": 1, "hints": 0, "passed": True}


def test_progress_that_cannot_be_written_does_not_stop_the_lesson(work):
    (work / saved_progress.FILE).mkdir()
    assert check(find("scale_gradient").reference).passed
    assert str(hint(find("scale_gradient")))
    assert {each.name for each in work.iterdir()} == {saved_progress.FILE, saved_progress.MARKER}


@pytest.mark.parametrize(("marked", "off"), [(True, True), (False, False)])
def test_tests_builds_and_unmarked_folders_get_no_file(marked, off, tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", "off" if off else "")
    monkeypatch.chdir(tmp_path)
    if marked:
        (tmp_path / saved_progress.MARKER).touch()
    monkeypatch.setattr(classroom.session, "said", set())
    said = [str(check(find("scale_gradient").reference)), str(predict("hook_on_a", 15))]
    assert [classroom.LOST in each for each in said] == [not off, False], "where it matters, and once"
    assert os.listdir(tmp_path) == [saved_progress.MARKER] * marked
    assert "make lab" in str(progress())
    assert "make lab" in progress()._repr_html_()
    assert saved_progress.of_exercise("scale_gradient")["passed"], "until the kernel ends"
