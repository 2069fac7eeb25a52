"""Ten minutes that show it: keys that programs give, two forms that are alike, and a comparison with its interval."""

import re
from html import unescape

import pytest

from course_utils.authoring.source import learner, sources
from course_utils.exercises import classroom, saved_progress
from course_utils.lessons.inventory import (
    ERROR,
    FORMS,
    MOST,
    UNSURE,
    Comparison,
    Question,
    compare,
    compare_scores,
    find_key,
    mark,
    read_questions,
    take,
)
from course_utils.root import sealed_path

QUESTIONS = [question for form in FORMS for question in read_questions(form)]


@pytest.fixture(autouse=True)
def _new_learner(monkeypatch):
    monkeypatch.setattr(saved_progress, "_in_memory", {})
    monkeypatch.setattr(classroom.joined_class, "listeners", [])


def answer_all(when, right):
    """Answer a form with buttons: the first `right` questions rightly, and of the others nothing; the last sentence."""
    panel = take(when).draw()
    shown, option, _, reason, button, reply, _ = panel.children
    form = None
    for number in range(MOST):
        form = form or next(f for f in FORMS if read_questions(f)[0].code in unescape(shown.value))
        key = find_key(read_questions(form)[number])
        option.value, reason.value = key if number < right else (UNSURE, UNSURE)
        button.click()
    return shown.value + reply.value, form


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: f"{each.form} {each.topic}")
def test_each_key_is_what_the_program_prints_and_the_one_reason_that_is_true(question):
    """`find_key` runs the program and raises unless one option fits and one reason is true."""
    option, reason = find_key(question)
    assert option in question.options
    assert reason in dict(question.reasons)
    assert (len({*question.options}), len(question.reasons)) == (4, 4)


def test_two_forms_of_twelve_are_alike_and_one_does_not_give_the_other_away():
    one, other = (read_questions(form) for form in FORMS)
    assert len(one) == len(other) == MOST
    assert [(each.topic, {*each.reasons}) for each in one] == [(each.topic, {*each.reasons}) for each in other]
    same = [a.topic for a, b in zip(one, other, strict=True) if find_key(a)[0] == find_key(b)[0]]
    assert same == []
    places = [[each.options.index(find_key(each)[0]) for each in form] for form in (one, other)]
    assert all(len({*found}) == 4 for found in places), "the right option stands in each place"


def test_a_key_that_is_not_just_one_is_refused():
    fit = Question("t", 1, "A", "print(1)", ("1", "2"), (("yes", "True"), ("no", "False")))
    assert find_key(fit) == ("1", "yes")
    assert find_key(Question("t", 1, "A", "1 / 0", ("1", ERROR), fit.reasons))[0] == ERROR
    for code, reasons in (("print(3)", fit.reasons), ("print(1)", (("a", "True"), ("b", "True"))), ("print(1)", ())):
        with pytest.raises(ValueError, match="form A: it prints"):
            find_key(Question("t", 1, "A", code, ("1", "2"), reasons))


@pytest.mark.slow
def test_no_question_stands_word_for_word_in_a_lesson():
    """Neither three lines of a program that follow each other, but for set-up, nor a reason."""
    lessons = "\n".join(cell.source for path in sources() for cell in learner(path).cells)
    lessons += "".join(sealed_path(int(path.stem[:2])).read_text(encoding="utf-8") for path in sources())
    lines = "\n".join(line.strip() for line in lessons.splitlines())
    for question in QUESTIONS:
        assert question.code not in lessons
        code = [line.strip() for line in question.code.splitlines() if line.strip()]
        runs = ["\n".join(code[start : start + 3]) for start in range(len(code) - 2)]
        assert [run for run in runs if run in lines and "super().__init__()" not in run] == []
        assert [reason for reason, _ in question.reasons if reason in lessons] == []


def test_nothing_is_told_before_both_forms_are_done_and_then_all_topics_are_compared():
    assert "Answer all questions of" in str(compare())
    end, first = answer_all("before", 4)
    assert "These were all of the questions." in end
    assert "right is said when the other part is done" in end
    assert 'take("after")' in str(compare())
    assert 'take("before")' not in str(compare())
    end, second = answer_all("after", 9)
    assert (first, second) in FORMS.items()
    assert "compare()" in end
    assert str(compare()) == "Right, with the reason: 4 of 12 before, 9 of 12 after."
    page = compare()._repr_html_()
    assert (page.count("✓ right"), page.count("✗ not right"), page.count("<details>")) == (13, 11, 3)
    # Five of twelve changed by 1: mean 5/12, and a t-interval with 11 degrees of freedom (t = 2.201).
    low, high = (float(each) for each in re.search(r"from \+([\d.]+) to \+([\d.]+\d)", page).groups())
    spread = 12 * 2.201 * ((5 * 7 / 144) / 11) ** 0.5
    assert (low, high) == pytest.approx((5 - spread, 5 + spread), abs=0.051)


def test_a_form_goes_on_where_it_was_left_and_damaged_progress_begins_anew():
    panel = take("before").draw()
    shown, option, _, reason, button, reply, _ = panel.children
    button.click()
    assert "Choose what it prints" in reply.value
    option.value, reason.value = option.options[0], reason.options[0][1]
    button.click()
    assert "Question 2 of 12" in shown.value
    assert take("before").draw().children[0].value == shown.value
    for damage in (5, {"form": "C", "answers": []}, {"form": "A", "answers": [[1]]}, {"form": "A"}):
        saved_progress.save("inventory", "before", damage)
        assert "Question 1 of 12" in take("before").draw().children[0].value
    assert 'write take("before")' in str(take("now"))


def test_both_tiers_have_to_be_right():
    keys = [find_key(each) for each in read_questions("A")]
    assert mark("A", keys) == [True] * MOST
    assert mark("A", [(option, UNSURE) for option, _ in keys]) == [False] * MOST
    assert mark("A", [(UNSURE, reason) for _, reason in keys]) == [False] * MOST


def test_a_class_is_told_two_numbers_and_nothing_more(monkeypatch):
    told = []
    monkeypatch.setattr(classroom.joined_class, "listeners", [lambda *said: told.append(said) or ""])
    answer_all("before", 3)
    answer_all("after", 10)
    assert told == [
        ("inventory", "before", "3", ""),
        ("inventory", "before", "3", ""),
        ("inventory", "after", "10", ""),
    ]


def test_scores_of_a_class_are_compared_in_pairs():
    """Differences 2, 4, 6, 8: mean 5, standard error 2.582 / 2, and t = 3.182 with 3 degrees of freedom."""
    change = compare_scores([1, 2, 3, 2], [3, 6, 9, 10])
    assert (change.pairs, change.before, change.after, change.difference) == (4, 2, 7, 5)
    assert change.interval == pytest.approx((5 - 3.182 * 1.291, 5 + 3.182 * 1.291), abs=0.002)
    assert compare_scores([1, 2], [4, 9]).interval is None, "too few"
    assert compare_scores([1, 2, 3], [2, 3, 4]).interval is None, "all alike"
    asked = read_questions("A")[0]
    assert "there is no interval" in Comparison([(asked, True)], [(asked, True)])._repr_html_()
