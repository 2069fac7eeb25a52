"""Ten minutes that show it: two forms of twelve questions on hooks, to be answered before the course and after it.

The questions stand in `assets/inventory.md`. Their keys stand nowhere: the right answer is what the program prints, and
the right reason is the one whose line of code is true after the program has run (Treagust, *Int. J. Sci. Educ.* 10,
1988, on questions in two tiers). Which form comes first is drawn for each learner, so that a difference between the
forms is not taken for one between before and after.
"""

from __future__ import annotations

import contextlib
import functools
import io
import random
import re
import secrets
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import scipy
import torch
from torch import nn

from course_utils.exercises import saved_progress
from course_utils.exercises.declaration import name_of
from course_utils.exercises.session import joined_class, session
from course_utils.root import ASSETS
from course_utils.show import Note, make_panel, page_templates, say_how_to_wake

FORMS = {"A": "B", "B": "A"}  # each with the other one
WHEN = ("before", "after")
SECTION = "inventory"
UNSURE = "I do not know"
ERROR = "an error"
KIND = "inventory"  # of what a class is told
MOST = 12  # right answers
SCORES = [str(number) for number in range(MOST + 1)]
LEAST_PAIRS = 3  # for an interval

QUESTION = re.compile(r"^## (.+?)\n\nLesson (\d+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"```python\n(.*?)```\n\n(.*)", re.DOTALL)
OPTION = re.compile(r"^- (.+)$", re.MULTILINE)
REASON = re.compile(r"^- (.+)\n  `(.+)`$", re.MULTILINE)


@dataclass(frozen=True)
class Question:
    """What does `code` print, and why?

    `lesson` is the number of the lesson about the topic. `reasons` are pairs: a reason, and the expression that is true
    if it is.
    """

    topic: str
    lesson: int
    form: str
    code: str
    options: tuple[str, ...]
    reasons: tuple[tuple[str, str], ...]


class Answer(NamedTuple):
    """What somebody chose: an option, and a reason."""

    option: str
    reason: str


class Change(NamedTuple):
    """Of so many pairs the mean scores, their mean difference, and its interval of 95 %; None for too few pairs."""

    pairs: int
    before: float
    after: float
    difference: float
    interval: tuple[float, float] | None


@functools.cache
def read_questions(form: str) -> list[Question]:
    """The twelve questions of a form, `A` or `B`, their options and reasons in an order that says nothing."""
    found = []
    for topic, lesson, text in QUESTION.findall((ASSETS / "inventory.md").read_text(encoding="utf-8")):
        parts = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL))
        code, options = CODE.search(parts[form]).groups()
        mixed, reasons = OPTION.findall(options), REASON.findall(parts["Why"])
        random.Random(f"{topic} {form}").shuffle(mixed)
        random.Random(topic).shuffle(reasons)
        found.append(Question(topic, int(lesson), form, code, tuple(mixed), tuple(reasons)))
    return found


@functools.cache
def find_key(question: Question) -> Answer:
    """What the program prints, and the reason that is true after it. Raises `ValueError` where that is not just one."""
    space: dict[str, Any] = {"torch": torch, "nn": nn}
    printed = io.StringIO()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore")  # of a `.grad` that is read where none is kept
        try:
            exec(question.code, space)
            output = printed.getvalue().strip()
        except Exception:
            output = ERROR
        true = [reason for reason, claim in question.reasons if eval(claim, space)]
    if len(true) != 1 or question.options.count(output) != 1:
        raise ValueError(f"{question.topic}, form {question.form}: it prints {output!r}, and true is {true}.")
    return Answer(output, true[0])


def mark(form: str, answers: Sequence[Sequence[str]]) -> list[bool]:
    """Of each answer, in the order of the questions, whether both the option and the reason are right."""
    return [(*given,) == find_key(each) for given, each in zip(answers, read_questions(form), strict=False)]


def compare_scores(before: Sequence[float], after: Sequence[float]) -> Change:
    """Compare scores in pairs: the interval is that of the paired t-test."""
    changes = [late - early for early, late in zip(before, after, strict=True)]
    interval = None
    if len(changes) >= LEAST_PAIRS and len({*changes}) > 1:
        interval = (*scipy.stats.ttest_rel(after, before).confidence_interval(),)
    count = len(changes)
    return Change(count, sum(before) / count, sum(after) / count, sum(changes) / count, interval)


def _read(when: str) -> tuple[str, list[list[str]]]:
    """The form that the learner has, and what was answered up to now; another form before than after."""
    kept = {each: _check(saved_progress.load()[SECTION].get(each)) for each in WHEN}
    if kept[when]:
        return kept[when]
    other = next((found for found in kept.values() if found), None)
    return FORMS[other[0]] if other else secrets.choice([*FORMS]), []


def _check(kept: Any) -> tuple[str, list[list[str]]] | None:
    """What was saved, which may be anything; None where it is no form with its answers."""
    with contextlib.suppress(TypeError, ValueError, KeyError):
        form, answers = kept["form"], [[str(option), str(reason)] for option, reason in kept["answers"]]
        if form in FORMS and len(answers) <= len(read_questions(form)):
            return form, answers
    return None


def _is_complete(when: str) -> bool:
    form, answers = _read(when)
    return len(answers) == len(read_questions(form))


class InventoryView:
    """The questions of one form, one after the other, where widgets work."""

    def __init__(self, when: str) -> None:
        self.when = when

    def __repr__(self) -> str:
        return f"The questions {self.when} the course have buttons: run this cell in JupyterLab."

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        say_how_to_wake()
        return {**self.draw()._repr_mimebundle_(), "text/plain": repr(self)}

    def draw(self) -> Any:
        """The panel, at the first question that has no answer yet."""
        import ipywidgets as widgets

        form, answers = _read(self.when)
        questions = read_questions(form)
        layout = widgets.Layout(width="auto")
        shown, reply = widgets.HTML(), widgets.HTML()
        option = widgets.RadioButtons(options=[UNSURE], layout=layout)
        why = widgets.HTML("<strong>Why?</strong>")
        reason = widgets.RadioButtons(options=[UNSURE], layout=layout)
        button = widgets.Button(description="Next", tooltip="Keep both answers and go on")
        panel = make_panel([shown, option, why, reason, button, reply])

        def show_next() -> None:
            if len(answers) == len(questions):
                shown.value = tell_end()._repr_html_()
                for each in (option, why, reason, button):
                    each.layout.display = "none"
                return
            asked = questions[len(answers)]
            page = page_templates().get_template("inventory_question.html.j2")
            shown.value = page.render(asked=asked, number=len(answers) + 1, count=len(questions))
            option.options = [*asked.options, UNSURE]
            reason.options = [(each.replace("`", ""), each) for each in (*dict(asked.reasons), UNSURE)]
            option.value = reason.value = None

        def go_on(_: object) -> None:
            if option.value is None or reason.value is None:
                reply.value = Note("Choose what it prints, and then a reason.")._repr_html_()
                return
            reply.value = session.warn_once_of_loss()
            answers.append([option.value, reason.value])
            saved_progress.save(SECTION, self.when, {"form": form, "answers": answers})
            if len(answers) == len(questions):
                _tell_class()
            show_next()

        button.on_click(go_on)
        show_next()
        return panel


def take(when: str) -> InventoryView | Note:
    """Answer the questions: `take("before")` the course, and `take("after")` it."""
    if when not in WHEN:
        return Note('take: write take("before") or take("after")')
    return InventoryView(when)


def tell_end() -> Note:
    """What is said after the last question. Nothing is said of the answers before both forms are done."""
    if all(map(_is_complete, WHEN)):
        return Note("These were all of the questions.", ("Run `compare()` to see both forms.",), symbol="✓")
    line = "What was right is said when the other part is done, too."
    return Note("These were all of the questions.", (line,), symbol="✓")


def _tell_class() -> None:
    """Tell a class, if there is one, how many answers were right in each form that is done, and nothing more."""
    for when in WHEN:
        if _is_complete(when):
            joined_class.tell(KIND, when, str(sum(mark(*_read(when)))))


class Comparison:
    """Both forms side by side: before and after, the questions with whether each was answered rightly."""

    def __init__(self, before: Sequence[tuple[Question, bool]], after: Sequence[tuple[Question, bool]]) -> None:
        self.before, self.after = before, after
        self.change = compare_scores(*([float(right) for _, right in each] for each in (before, after)))

    def __repr__(self) -> str:
        scores = [sum(right for _, right in each) for each in (self.before, self.after)]
        count = len(self.after)
        return f"Right, with the reason: {scores[0]} of {count} before, {scores[1]} of {count} after."

    def _repr_html_(self) -> str:
        page = page_templates().get_template("inventory_comparison.html.j2")
        rows = [
            (asked, right_before, right, find_key(asked), name_of(asked.lesson)[1])
            for (_, right_before), (asked, right) in zip(self.before, self.after, strict=True)
        ]
        return page.render(said=str(self), rows=rows, change=self.change, count=len(rows))


def compare() -> Comparison | Note:
    """Your two forms side by side, as soon as both are done."""
    if not all(map(_is_complete, WHEN)):
        missing = " and ".join(f'take("{when}")' for when in WHEN if not _is_complete(when))
        return Note("There is nothing to compare yet.", (f"Answer all questions of {missing} first.",))
    forms = (_read(when) for when in WHEN)
    return Comparison(*([*zip(read_questions(form), mark(form, answers), strict=True)] for form, answers in forms))
