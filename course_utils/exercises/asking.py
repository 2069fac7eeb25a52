"""The question about one's own answer as a learner meets it, below the ticket of a pass. It is worth no points."""

import zlib
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from course_utils.exercises import saved_progress
from course_utils.exercises.engine import Exercise
from course_utils.exercises.question import Question, find_subject
from course_utils.exercises.session import joined_class
from course_utils.exercises.what_if import ask_input, ask_outcome
from course_utils.exercises.what_runs import ask_count, ask_order
from course_utils.show import Note, WithWidget, code_spans, make_choice, running_cell, running_shell

TITLE = "A question about your own code (it is worth no points):"
MOST = 3  # questions about one exercise, each after another pass
KINDS = (ask_outcome, ask_input, ask_order, ask_count)
FAST_KINDS = (ask_outcome, ask_order)  # for answers that take long themselves


def make_question(exercise: Exercise, answer: Callable, asked: Collection[str] = ()) -> Question | None:
    """A question about an answer that passes, which is none of those with the keys `asked`.

    The kinds take turns. None where nothing fair can be asked.
    """
    subject = find_subject(exercise, answer, asked)
    if subject is None:
        return None
    first = (zlib.crc32(exercise.name.encode()) + len(asked)) % len(KINDS)
    turns = (*KINDS[first:], *KINDS[:first]) if subject.is_quick else FAST_KINDS
    return next((question for kind in turns if (question := kind(subject))), None)


def ask_below(exercise: Exercise, answer: Callable) -> None:
    """Show a question about an answer that passes below what the running cell shows, where somebody reads it.

    It is made when the cell has run, so that the ticket is there at once. What runs a notebook without a front end
    (papermill, nbval, nbconvert) shows none.
    """
    if not running_cell():
        return
    shell = running_shell()

    def show(_: object) -> None:
        shell.events.unregister("post_run_cell", show)
        with suppress(Exception):  # whatever a changed answer does, the check has its outcome
            if view := find_view(exercise, answer):
                shell.display_pub.publish(view._repr_mimebundle_())

    shell.events.register("post_run_cell", show)


def find_view(exercise: Exercise, answer: Callable) -> "QuestionView | None":
    """The next question about an answer that passes; None where all are answered, or nothing fair can be asked."""
    asked = saved_progress.of_exercise(exercise.name, "questions")["asked"]
    question = make_question(exercise, answer, asked) if len(asked) < MOST else None
    return QuestionView(question) if question else None


def tell_answered() -> str:
    """How many questions the learner has answered, in a sentence; empty where there are none."""
    kept = [saved_progress.of_exercise(name, "questions") for name in saved_progress.load()["questions"]]
    answered, right = sum(len(each["asked"]) for each in kept), sum(each["right"] for each in kept)
    return f"Questions about your own code: {answered} answered, {right} of them right." if answered else ""


@dataclass(frozen=True, repr=False)
class QuestionView(WithWidget):
    """A question in a notebook: radio buttons where widgets work, and the same question as text elsewhere."""

    question: Question

    def __repr__(self) -> str:
        return "\n".join([TITLE, self.question.text, *(f"  ( ) {option}" for option in self.question.options)])

    def _repr_html_(self) -> str:
        options = "".join(f"<li>{code_spans(option)}</li>" for option in self.question.options)
        return f"<div><p><strong>{TITLE}</strong> {code_spans(self.question.text)}</p><ul>{options}</ul></div>"

    def _widget(self) -> object:
        options = {option.replace("`", ""): option for option in self.question.options}  # buttons show no code
        said: list[str] = []

        def commit(choice: str) -> tuple[str, str]:
            told = self.commit(options[choice]) if not said else Note("Your first answer counts.")
            said.append(choice)
            return said[0], told._repr_html_()

        question = f"<strong>{TITLE}</strong><br>{code_spans(self.question.text)}"
        return make_choice(question, list(options), None, lambda: False, commit)

    def commit(self, option: str) -> Note:
        """Keep the answer, run the changed code once more, and say what it did and why."""
        asked, is_right = self.question, option == self.question.answer
        kept = saved_progress.of_exercise(asked.exercise, "questions")
        kept = {"asked": [*kept["asked"], asked.key], "right": kept["right"] + is_right}
        saved_progress.save("questions", asked.exercise, kept)
        joined_class.tell("question", asked.exercise, "right" if is_right else "wrong")
        reason = ""
        with suppress(Exception):  # a changed answer may do anything to what records it
            reason = asked.explain()
        lines = (asked.answer, reason) if reason else (asked.answer,)
        if is_right:
            return Note("Yes, that is what happened when it was run.", lines, symbol="✓")
        return Note(f"You said: {option} When it was run, this happened:", lines, symbol="✗")
