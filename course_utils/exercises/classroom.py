"""What a learner calls in a lesson. Nothing here raises: whatever comes in, a sentence comes out."""

import contextlib
import functools
import gc
import html
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from course_utils.exercises import saved_progress as saved
from course_utils.exercises.declaration import Prediction
from course_utils.exercises.engine import Exercise, exercises_of, find, find_prediction, predictions_of
from course_utils.exercises.evidence import codes_of
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.exercises.recorded import VISIBLE_SEED, NotRecorded, other_torch
from course_utils.root import CourseError, has_answers
from course_utils.show import Told, code_spans, make_panel, page_templates, render_markdown

ATTEMPTS_BEFORE_SOLUTION = 3
OLDER = "The cell that you ran last for `{0}` stopped with an error, so `{0}` is an older one: mend that cell first."
NOT_RUN = "This is the same function as at the last check: if you have edited its cell, run that cell first."
SEALED = "This explanation opens as soon as you have committed to the prediction above."
WAITS = "This explanation opens when your instructor reveals the answer."
NOT_KEPT = "Open the lessons with `make lab` and your progress is kept between sessions."
LOST = f"Your progress will be lost when this kernel ends. {NOT_KEPT}"

_failed_code: dict[str, object] = {}
_told: set[str] = set()  # what is said once
# Of the class that the learner joined: who is told the kind of thing, its name, stage or choice, and cause, and may
# have a sentence for the learner; and which explanations the class opens or keeps closed, whatever was committed.
listeners: list[Callable[[str, str, str, str], str]] = []
_opened: dict[str, bool] = {}
_voted: dict[str, str] = {}  # in a class: by prediction, the last choice, where the first one is what the lesson keeps


@dataclass(frozen=True, repr=False)
class Note(Told):
    """A piece of text for the learner: a headline and lines, as plain text and as HTML; `code` is shown as it is."""

    headline: str
    lines: tuple[str, ...] = ()
    symbol: str = "○"
    code: str = ""

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *self.code.splitlines()])

    def _repr_html_(self) -> str:
        return super()._repr_html_() + (f"<pre><code>{html.escape(self.code)}</code></pre>" if self.code else "")


def check(*answers: object) -> Outcome:
    """Check your answer to an exercise: `check(scale_gradient)`, the function itself, without calling it.

    Runs your function and the reference answer on the same inputs and compares everything they do. Never raises.
    """
    found = _identify(*answers) if len(answers) == 1 else "Give one function: check(my_function)."
    if isinstance(found, str):
        return Outcome("check", Stage.NOT_AN_EXERCISE, found)
    (answer,) = answers
    if isinstance(answer, Exercise):
        return found.not_attempted("run the answer cell first (Shift+Enter), then run this one again.")
    if _is_older(answer, found.name):
        return Outcome("check", Stage.NOT_AN_EXERCISE, OLDER.format(found.name))
    try:
        outcome = found.check(answer, VISIBLE_SEED)
        if outcome.stage is Stage.NOT_ATTEMPTED:
            return outcome
        if outcome.passed and not (fresh := found.check(answer, found.fresh_seed())).passed:
            outcome = replace(fresh, note="On the first inputs it was right; on these others it is not yet.")
    except KeyboardInterrupt:
        return Outcome(found.name, Stage.RAISED, "You interrupted the check.", possible=found.points)
    except NotRecorded as error:
        return Outcome("check", Stage.NOT_AN_EXERCISE, str(error))
    notes = [outcome.note, *(tell("exercise", found.name, str(outcome.stage), outcome.cause) for tell in listeners)]
    notes += _say_once("" if has_answers() else other_torch(found.lesson), LOST * saved.is_lost())
    outcome = replace(outcome, note=" ".join(filter(None, notes)))
    record = saved.of_exercise(found.name)
    counted = {"attempts": record["attempts"] + 1, "passed": record["passed"] or outcome.passed}
    saved.save("exercises", found.name, record | counted)
    failed_before = _failed_code.pop(found.name, None)
    if not outcome.passed:
        # What `contextlib.contextmanager` makes is wrapped, and all such wrappers share their code.
        _failed_code[found.name] = code = answer if inspect.isclass(answer) else [answer, *codes_of(answer)][-1]
        if failed_before is code and not outcome.note:
            return replace(outcome, note=NOT_RUN)
    return outcome


def _is_older(answer: object, name: str) -> bool:
    """Whether a later cell should have defined the answer anew, and failed. `In` has every cell, also bad syntax."""
    cells = vars(sys.modules["__main__"]).get("In", ())
    cells = [f"{cell}\n" for cell in cells if re.search(rf"^(def|class) {name}\b", cell, re.MULTILINE)]
    with contextlib.suppress(OSError, IndexError):  # without a source, or without code
        source = inspect.getsource(codes_of(answer)[0])
        return any(source in cell for cell in cells) and source not in cells[-1]
    return False


def _say_once(*sentences: str) -> list[str]:
    new = [said for said in sentences if said and said not in _told]
    _told.update(new)
    return new


def _identify(answer: object) -> Exercise | str:
    if isinstance(answer, Exercise):
        return answer
    if isinstance(answer, functools.partial):
        return "This is a `functools.partial`, which has no name. Give the function that you wrote with `def`."
    if inspect.isfunction(answer) and inspect.iscoroutinefunction(answer):
        return f"`{answer.__name__}` is written with `async def`, so a call gives no result. Write it with `def`."
    name = answer if isinstance(answer, str) else getattr(answer, "__name__", None)
    if callable(answer) and not isinstance(name, str):
        return f"This is an object of the class {type(answer).__name__}. Give the function that you wrote with `def`."
    if not isinstance(name, str) or not (callable(answer) or name is answer):
        value = "None" if answer is None else f"a value of type {type(answer).__name__}"
        mend = "If you called the function inside the brackets, leave the call away."
        return f"Give the function itself, such as check(my_function): this is {value}. {mend}"
    if name == "<lambda>":
        return "A lambda has no name by which its exercise could be found. Write the answer with `def`."
    if inspect.ismethod(answer):
        return f"`{name}` is a method of an object. Give the function or the class that you wrote in the answer cell."
    try:
        found = find(name)
    except CourseError as error:
        if name is answer:
            return f"Give the function itself, without quotes. {error}"
        closed = gc.get_referents(*(getattr(answer, "__closure__", None) or ()))  # a variable without a value: none
        inside = [getattr(each, "__name__", "") for each in closed]
        if hidden := next((each.name for each in exercises_of() if each.name in inside), None):
            return f"A decorator hides the name of {hidden}: put `@functools.wraps(function)` above what it returns."
        return f"{error} Keep the name that the answer cell came with."
    return f"Give the function itself, without quotes: check({name})." if name is answer else found


def hint(answer: object) -> Note:
    """The next hint for an exercise: from a nudge to a piece of code."""
    found = _identify(answer)
    if isinstance(found, str):
        return Note("hint: no exercise found", (found.replace("check(", "hint("),))
    hints = found.all_hints
    total = len(hints)
    record = saved.of_exercise(found.name)
    number = min(record["hints"] + 1, total)
    saved.save("exercises", found.name, record | {"hints": number})
    way_out = f"The way out: solution({found.name}, now=True)" if has_answers() else "Your instructor has the answers."
    last = f"That was the last hint. {way_out}"
    further = last if number == total else f"Run this again for the next hint, or check({found.name})."
    return Note(f"Hint {number} of {total} for {found.name}", (hints[number - 1], further), symbol="→")


def solution(answer: object, now: bool = False) -> Note:
    """A reference answer: after you passed, after three attempts, or at once with `now=True`."""
    found = _identify(answer)
    if isinstance(found, str):
        return Note("solution: no exercise found", (found.replace("check(", "solution("),))
    if not has_answers():
        line = f"This edition of the course has no answers in it: your instructor has them. Try hint({found.name})."
        return Note(f"solution({found.name}): not here", (line,))
    record = saved.of_exercise(found.name)
    left = ATTEMPTS_BEFORE_SOLUTION - record["attempts"]
    if not (now or record["passed"] or left <= 0):
        line = f"It shows after {left} more {'attempt' if left == 1 else 'attempts'}, after a pass, or with now=True."
        return Note(f"solution({found.name}): not yet", (line,))
    return Note(f"One answer to {found.name}", symbol="→", code=found.source.rstrip())


@dataclass(frozen=True, repr=False)
class _View:
    prediction: Prediction

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        return {**self._widget()._repr_mimebundle_(), "text/plain": str(self), "text/html": self._repr_html_()}


class PredictionView(_View):
    """A prediction in a notebook: radio buttons where widgets work, and the same question as text elsewhere."""

    def __repr__(self) -> str:
        options = "   ".join(f"( ) {option}" for option in self.prediction.options)
        advice = f"Choose one and commit, or run for example {self._call}"
        return f"Predict: {self.prediction.question}\n  {options}\n  {advice}"

    def _repr_html_(self) -> str:
        page = page_templates().get_template("prediction.html.j2")
        return page.render(asked=self.prediction, call=self._call)

    @property
    def _call(self) -> str:
        example = next(iter(self.prediction.options))
        return f'predict("{self.prediction.name}", {example if _number(example) is not None else repr(example)})'

    def _widget(self) -> object:
        import ipywidgets as widgets

        asked, said = self.prediction, _voted.get(self.prediction.name, _commitment(self.prediction))
        options, layout = list(asked.options), widgets.Layout(width="max-content")
        choice = widgets.RadioButtons(options=options, value=said, layout=layout, disabled=bool(said and not listeners))
        commit = widgets.Button(description="Commit", tooltip="Fix your prediction")
        reply = widgets.HTML()

        def on_commit(_: object) -> None:
            if choice.value is None:
                reply.value = Note("Choose an answer first, and then commit to it.")._repr_html_()
                return
            told = predict(asked.name, choice.value)
            choice.value, choice.disabled = _voted.get(asked.name, _commitment(asked)), not listeners
            commit.description = "Vote again" if listeners else "Committed"  # it stays enabled, for it has the focus
            reply.value = told._repr_html_()

        commit.on_click(on_commit)
        question = f'<div style="line-height:1.5"><strong>Predict:</strong> {code_spans(asked.question)}</div>'
        return make_panel([widgets.HTML(value=question), choice, commit, reply])


def predict(name: str, answer: object = None) -> PredictionView | Note:
    """Commit to a prediction before you run the next cell: choose, or give the answer as a call.

    `predict("hook_on_a")` shows the options, `predict("hook_on_a", 15)` commits, once and for all; then what
    `why("hook_on_a")` shows unfolds.
    """
    try:
        asked = find_prediction(name)
    except CourseError as error:
        return Note("predict: nothing to predict", (str(error),))
    if answer is None:
        return PredictionView(asked)
    given = str(answer).strip().casefold()
    meant = (each for each in asked.options if each.casefold() == given or _number(each) == _number(given) is not None)
    choice = next(meant, None)
    if choice is None:
        return Note(f"predict: `{answer}` is not one of the options", (f"Choose one of: {', '.join(asked.options)}.",))
    told = [each for tell in listeners if (each := tell("prediction", asked.name, choice, ""))]
    first = _commitment(asked) or choice
    saved.save("predictions", asked.name, first)
    if told:
        _voted[asked.name] = choice
    if asked.name in _explanations:
        why(asked.name)._widget()
    if first != choice:
        said = f"You said {first} at first, and now {choice}." if told else f"You said {first}."
        return Note(said, ("Your first prediction counts, so it stays as it is.", *told))
    lost = _say_once(LOST * saved.is_lost())
    below = "The explanation below them is open now." if _is_open(asked) else WAITS
    return Note(f"You said {choice}.", (f"Run the next cells and compare. {below}", *told, *lost))


def _commitment(asked: Prediction) -> str | None:
    said = saved.load()["predictions"].get(asked.name)
    return said if said in list(asked.options) else None  # what was saved may be anything


def _is_open(asked: Prediction) -> bool:
    return _opened.get(asked.name, _commitment(asked) is not None)


def follow_class(opened: Mapping[str, bool]) -> None:
    """Open the explanations of these predictions or keep them closed, as the class says; all others open as ever."""
    _opened.clear()
    _opened.update(opened)
    for name in list(_explanations):
        why(name)._widget()


def _number(text: str) -> float | None:
    with contextlib.suppress(ValueError):
        return float(text)


class WhyView(_View):
    """The explanation of a prediction: sealed until the learner has committed; below a fold where no kernel runs."""

    @property
    def reply(self) -> Note:
        """What there is to say to the learner's choice; where there is none, the answer."""
        asked, said = self.prediction, _commitment(self.prediction)
        choices = dict.fromkeys(filter(None, (said, _voted.get(asked.name))))
        replies = tuple(asked.options[each] for each in dict.fromkeys((*choices, asked.answer)))
        if said is None:
            return Note(f"It is {asked.answer}.", replies)
        right = [*choices][-1] == asked.answer
        it_is = ", and so it is." if right else f"; it is {asked.answer}."
        return Note(f"You said {', and then '.join(choices)}{it_is}", replies, symbol="✓" if right else "✗")

    def __repr__(self) -> str:
        return f"{self.reply}\n\n{self.prediction.why}".rstrip() if _is_open(self.prediction) else self._sealed

    def _repr_html_(self) -> str:
        return f"<details><summary>The answer, and why</summary>{self._unfold()}</details>"

    @property
    def _sealed(self) -> str:
        return WAITS if self.prediction.name in _opened else SEALED

    def _unfold(self) -> str:
        return self.reply._repr_html_() + render_markdown(self.prediction.why)

    def _widget(self) -> object:
        """The one widget of all views of this explanation, as it is to be seen now."""
        import ipywidgets as widgets

        shown = _explanations.setdefault(self.prediction.name, widgets.HTMLMath())
        shown.value = self._unfold() if _is_open(self.prediction) else Note(self._sealed)._repr_html_()
        return shown


_explanations: dict[str, object] = {}  # by prediction: the widget that unfolds at the commit


def why(name: str) -> WhyView | Note:
    """After the run: what you predicted, what is true, and why. It opens when you have committed to the prediction."""
    try:
        return WhyView(find_prediction(name))
    except CourseError as error:
        return Note("why: nothing to explain", (str(error),))


@dataclass(frozen=True, repr=False)
class Progress:
    """The dashboard: for each lesson exercises passed, of how many, and predictions made, of how many."""

    rows: list[tuple[int, int, int, int, int]]
    kept: bool

    def __repr__(self) -> str:
        lines = ["lesson  exercises  predictions"]
        for lesson, passed, exercises, made, predictions in self.rows:
            lines.append(f"{lesson:02d}      {f'{passed} of {exercises}':<9}  {made} of {predictions}")
        return "\n".join(lines if self.kept else [*lines, NOT_KEPT])

    def _repr_html_(self) -> str:
        page = page_templates().get_template("progress.html.j2")
        return page.render(rows=self.rows, advice="" if self.kept else NOT_KEPT)


def progress() -> Progress:
    """Your progress over all lessons."""
    made = saved.load()["predictions"]
    rows = []
    for lesson in sorted({each.lesson for each in exercises_of()}):
        exercises, predictions = exercises_of(lesson), predictions_of(lesson)
        passed = sum(saved.of_exercise(each.name)["passed"] for each in exercises)
        rows.append((lesson, passed, len(exercises), sum(each.name in made for each in predictions), len(predictions)))
    return Progress(rows, saved.location() is not None)
