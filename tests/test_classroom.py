"""Hints, solutions, predictions and progress, as a learner meets them."""

import json
import os

import pytest

from course_utils import exercises
from course_utils.exercises import check, classroom, hint, predict, progress, saved_progress, solution, why
from course_utils.exercises.engine import find, find_prediction


@pytest.fixture(autouse=True)
def _nothing_is_remembered(monkeypatch):
    monkeypatch.setattr(saved_progress, "_in_memory", {})
    monkeypatch.setattr(classroom, "_failed_code", {})


def scale_gradient(tensor, factor):
    return 1


def test_a_lesson_imports_functions_and_no_module():
    assert all(callable(getattr(exercises, name)) for name in exercises.__all__)
    with pytest.raises(AttributeError, match="no attribute 'chekc'"):
        _ = exercises.chekc


def test_hints_come_rung_by_rung():
    asked = find("scale_gradient")
    texts = [str(hint(asked)) for _ in range(5)]
    assert all(rung in text for rung, text in zip(asked.hints, texts, strict=False))
    assert "Run this again for the next hint" in texts[0]
    assert texts[-1] == texts[len(asked.hints) - 1]
    assert "last hint" in texts[-1]


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


def test_prediction_commit_then_why():
    asked = find_prediction("hook_on_a")
    assert "Commit to a prediction first" in str(why("hook_on_a"))
    assert "not one of the options" in str(predict("hook_on_a", 16))
    assert "You said 12" in str(predict("hook_on_a", 12.0))
    assert asked.options["15"] not in str(predict("hook_on_a", "12")), "committing does not give the answer away"
    text = str(why("hook_on_a"))
    assert all(part in text for part in ("You said 12; it is 15.", asked.options["12"], asked.options["15"]))
    predict("hook_on_a", 15)
    assert "and so it is" in str(why("hook_on_a"))
    assert "You said nan." in str(predict("clipped_too_late", "NaN"))


def test_prediction_by_text_and_by_buttons():
    view, options = predict("hook_on_a"), find_prediction("hook_on_a").options
    assert all(option in str(view) for option in options)
    assert str(view).endswith(f'predict("hook_on_a", {next(iter(options))})')
    assert str(predict("hooks_and_deepcopy")).endswith("predict(\"hooks_and_deepcopy\", 'yes')")
    assert view._repr_mimebundle_()["text/plain"] == str(view)
    assert all(f"<li>{option}</li>" in view._repr_mimebundle_()["text/html"] for option in options)
    _, choice, buttons, reply = predict("hook_on_a")._widget().children
    commit, reason = buttons.children
    assert commit.disabled
    assert reason.disabled
    choice.value = "12"
    assert not commit.disabled
    commit.click()
    assert "You said 12" in reply.value
    assert saved_progress.load()["predictions"] == {"hook_on_a": "12"}
    reason.click()
    assert "it is 15" in reply.value
    assert predict("hook_on_a")._widget().children[1].value == "12"


@pytest.mark.parametrize("name", ["hook_on_b", ["hook_on_a"]])
def test_unknown_prediction_is_a_sentence(name):
    assert "nothing to predict" in str(predict(name))
    assert "nothing to explain" in str(why(name))


@pytest.fixture
def work(tmp_path, monkeypatch):
    (tmp_path / saved_progress.MARKER).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COURSE_PROGRESS")
    return tmp_path


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
    assert str(progress()).splitlines()[2].split()[:2] == ["01", "1"]
    assert "make lab" not in str(progress())
    assert '<meter min="0" max="1" value="0" aria-hidden="true"></meter> 0 of 1' in progress()._repr_html_()


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
    check(find("scale_gradient").reference)
    assert os.listdir(tmp_path) == [saved_progress.MARKER] * marked
    assert "make lab" in str(progress())
    assert "make lab" in progress()._repr_html_()
    assert saved_progress.of_exercise("scale_gradient")["passed"], "until the kernel ends"
