"""Predictions as a learner meets them: `predict` asks and keeps the choice, `why` explains when it is made."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from course_utils.exercises import saved_progress
from course_utils.exercises.declaration import Prediction, find_prediction, predictions_of
from course_utils.exercises.session import joined_class, session
from course_utils.exercises.waiting import WaitingOutputs
from course_utils.root import CourseError
from course_utils.show import Note, WithWidget, code_spans, make_choice, page_templates, render_markdown, running_shell

SEALED = "This explanation opens as soon as you have committed to the prediction above."
WAITS = "This explanation opens when your instructor reveals the answer."
HIDDEN = "Commit to an answer first: the output of this cell waits for your prediction above."
AGAIN = "Then it appears here. If it does not, run this cell again."
HELD = "The output of this cell waits until your instructor reveals the answer."


@dataclass(frozen=True, repr=False)
class _View(WithWidget):
    prediction: Prediction


class PredictionView(_View):
    """A prediction in a notebook: radio buttons where widgets work, and the same question as text elsewhere."""

    def __repr__(self) -> str:
        options = "   ".join(f"( ) {option}" for option in self.prediction.options)
        advice = f"Choose one and commit, or run for example {self._call}"
        return f"Predict: {self.prediction.question}\n  {options}\n  {advice}"

    def _repr_html_(self) -> str:
        return self.draw(_commitment(self.prediction))

    def draw(self, said: str | None) -> str:
        """The question as HTML without a widget, with what the learner has `said`."""
        page = page_templates().get_template("prediction.html.j2")
        return page.render(asked=self.prediction, call=self._call, said=said)

    @property
    def _call(self) -> str:
        option = next(iter(self.prediction.options))
        example = repr(option) if _number(option) is None else option
        return f'predict("{self.prediction.name}", {example})'

    def _widget(self) -> object:
        asked = self.prediction

        def commit(option: str) -> tuple[str, str]:
            told = predict(asked.name, option)
            return _last_choice(asked), told._repr_html_()

        question = f"<strong>Predict:</strong> {code_spans(asked.question)}"
        # In a class one may vote again.
        return make_choice(
            question, list(asked.options), _last_choice(asked), lambda: bool(joined_class.listeners), commit
        )


def predict(name: str, answer: object = None) -> PredictionView | Note:
    """Commit to a prediction before you run the next cell: choose, or give the answer as a call.

    `predict("hook_on_a")` shows the options, `predict("hook_on_a", 15)` commits, once and for all; then what
    `why("hook_on_a")` shows unfolds.
    """
    try:
        asked = find_prediction(name)
    except CourseError as error:
        return Note("predict: nothing to predict", (str(error),))
    _let_outputs_wait(asked.lesson)
    if answer is None:
        return PredictionView(asked)
    choice = _find_option(asked, answer)
    if choice is None:
        return Note(f"predict: `{answer}` is not one of the options", (f"Choose one of: {', '.join(asked.options)}.",))
    return _commit(asked, choice)


def _find_option(asked: Prediction, answer: object) -> str | None:
    """The option that is meant; numbers may be written in another way, and case does not matter."""
    given = str(answer).strip().casefold()
    for option in asked.options:
        if option.casefold() == given:
            return option
        if _number(option) is not None and _number(option) == _number(given):
            return option
    return None


def _number(text: str) -> float | None:
    with contextlib.suppress(ValueError):
        return float(text)


def _commit(asked: Prediction, choice: str) -> Note:
    """Keep the choice, unless there is one already; a class counts it as a vote in any case."""
    told = joined_class.tell("prediction", asked.name, choice)
    first = _commitment(asked) or choice
    saved_progress.save("predictions", asked.name, first)
    if told:
        joined_class.votes[asked.name] = choice
    is_shown = _open_what_may()
    if first != choice:
        said = f"You said {first} at first, and now {choice}." if told else f"You said {first}."
        return Note(said, ("Your first prediction counts, so it stays as it is.", *told))
    below = "The explanation is open now, too." if _is_open(asked) else WAITS
    compare = "Compare it with the output below." if is_shown else "Run the next cells and compare."
    lines = f"{compare} {below}", *told, session.warn_once_of_loss()
    return Note(f"You said {choice}.", tuple(line for line in lines if line))


def _commitment(asked: Prediction) -> str | None:
    said = saved_progress.load()["predictions"].get(asked.name)
    return said if said in list(asked.options) else None  # what was saved may be anything


def _last_choice(asked: Prediction) -> str | None:
    """The last vote in a class, else the commitment."""
    return joined_class.votes.get(asked.name, _commitment(asked))


def _is_open(asked: Prediction) -> bool:
    return joined_class.opened.get(asked.name, _commitment(asked) is not None)


def follow_class(opened: Mapping[str, bool]) -> None:
    """Open the explanations of these predictions or keep them closed, as the class says; all others open as ever."""
    joined_class.opened.clear()
    joined_class.opened.update(opened)
    _open_what_may()


def _open_what_may() -> bool:
    """Bring all explanations and outputs in sight to what the learner, and the class, have done by now.

    Returns whether an output came that had waited.
    """
    for name in list(session.explanations):
        why(name)._widget()
    return bool(session.waiting and session.waiting.play())


def _let_outputs_wait(lesson: int) -> None:
    """From now on, the cells that answer the lesson's predictions wait for them, where the front end allows it."""
    if session.waiting is None and (shell := running_shell()):
        session.waiting = WaitingOutputs(shell, _why_output_waits, _say_guess)
    if session.waiting:
        session.waiting.expect(predictions_of(lesson))


def _why_output_waits(asked: Prediction) -> Note | None:
    return None if _is_open(asked) else tell_what_output_waits_for(_commitment(asked))


def tell_what_output_waits_for(said: str | None) -> Note:
    """The note in the place of an output that answers a closed prediction, for who has `said` this."""
    return Note(HELD if said else HIDDEN, (AGAIN,), symbol="…")


def _say_guess(asked: Prediction) -> Note:
    said = _last_choice(asked)
    return Note(f"You said {said}." if said else "You did not choose an answer.")


class WhyView(_View):
    """The explanation of a prediction: sealed until the learner has committed; below a fold where no kernel runs."""

    def _reply(self, said: str | None) -> Note:
        """What there is to say to a choice, and to the answer; where nothing was chosen, to the answer alone."""
        asked = self.prediction
        choices = dict.fromkeys(each for each in (said, joined_class.votes.get(asked.name)) if each)
        replies = tuple(asked.options[each] for each in dict.fromkeys((*choices, asked.answer)))
        if said is None:
            return Note(f"It is {asked.answer}.", replies)
        told = f"You said {', and then '.join(choices)}"
        if [*choices][-1] == asked.answer:
            return Note(f"{told}, and so it is.", replies, symbol="✓")
        return Note(f"{told}; it is {asked.answer}.", replies, symbol="✗")

    def __repr__(self) -> str:
        reply = self._reply(_commitment(self.prediction))
        return f"{reply}\n\n{self.prediction.why}".rstrip() if _is_open(self.prediction) else self._sealed

    def _repr_html_(self) -> str:
        return f"<details><summary>The answer, and why</summary>{self._unfold(_commitment(self.prediction))}</details>"

    @property
    def _sealed(self) -> str:
        return WAITS if self.prediction.name in joined_class.opened else SEALED

    def draw(self, said: str | None) -> str:
        """The explanation for who has `said` this, as HTML; sealed where nothing was said."""
        return Note(SEALED)._repr_html_() if said is None else self._unfold(said)

    def _unfold(self, said: str | None) -> str:
        return self._reply(said)._repr_html_() + render_markdown(self.prediction.why)

    def _widget(self) -> object:
        """The one widget of all views of this explanation, as it is to be seen now."""
        import ipywidgets as widgets

        shown = session.explanations.setdefault(self.prediction.name, widgets.HTMLMath())
        said = _commitment(self.prediction)
        shown.value = self._unfold(said) if _is_open(self.prediction) else Note(self._sealed)._repr_html_()
        return shown


def why(name: str) -> WhyView | Note:
    """After the run: what you predicted, what is true, and why. It opens when you have committed to the prediction."""
    try:
        return WhyView(find_prediction(name))
    except CourseError as error:
        return Note("why: nothing to explain", (str(error),))
