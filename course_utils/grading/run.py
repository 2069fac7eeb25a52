"""Step 2: run answers where nothing but their evidence can come out.

The answers of one submission go into a fresh notebook: a `parameters` cell for the seed, and for each exercise the
definitions it uses, the answer, and a cell that has the `driver` show the evidence. papermill runs it with the secret
seed in a kernel of its own and an empty folder. A kernel that dies or runs out of time costs the exercise that ran at
that moment; the others go on in a fresh kernel. An exercise is blamed only if it was the first in its kernel, because
what another answer left behind (a thread, a timer) may have done the harm.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_utils import notebooks
from course_utils.exercises.evidence import Evidence
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading.collect import Answer, collect_answers, read_cells
from course_utils.grading.driver import EVIDENCE, MISTAKES
from course_utils.grading.lessons import Lesson
from course_utils.grading.records import BadRecord, check_evidence, read_json, read_record

MAX_NOTEBOOK_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """How long things may take, in seconds: an exercise's cells, and all of a submission."""

    exercise: int = 60
    submission: int = 300


@dataclass(frozen=True)
class Observed:
    """What is known of one answer after its run: its evidence or, where there is none to judge, the outcome.

    With neither, `reason` says why there is no score, and a person has to look.
    """

    answer: Answer
    evidence: tuple[Evidence, ...] | None = None
    outcome: Outcome | None = None
    reason: str = ""


@dataclass(frozen=True)
class Key:
    """What the reference answer and the declared mistakes of one exercise do with the secret seed.

    `reason` says why there is no key, if the course's own answer did not work here.
    """

    evidence: tuple[Evidence, ...] = ()
    mistakes: tuple[tuple[str, tuple[Evidence, ...]], ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Execution:
    """A notebook after its run: what each exercise's cells displayed, by kind.

    If the run ended early, `ended` says why, and `at` is the exercise whose cell ran then ("" for none).
    """

    displayed: dict[tuple[str, str], list[Any]]
    ended: str = ""
    at: str = ""


KILLED = "the Python process ended while your answer ran, so nothing of what it did is known"
TOO_LONG = "your answer did not come to an end in time and was stopped"
LATE = "the time for the whole notebook was used up by the exercises before this one"


def run_answers(answers: Sequence[Answer], seed: int, limits: Limits | None = None) -> list[Observed]:
    """Run the answers that have something to run; return what is known of each answer, in the same order."""
    limits = limits or Limits()
    known = {answer.exercise.name: Observed(answer, outcome=answer.outcome) for answer in answers if answer.outcome}
    waiting = [answer for answer in answers if not answer.outcome]
    deadline = time.monotonic() + limits.submission
    while waiting:
        if time.monotonic() >= deadline:
            known |= {each.exercise.name: Observed(each, reason=LATE) for each in waiting}
            break
        has_its_time = deadline - time.monotonic() >= limits.exercise
        executed = execute(make_notebook(waiting), seed, limits.exercise, deadline)
        if executed.ended and not executed.at:  # no answer had a chance
            known |= {each.exercise.name: Observed(each, reason=executed.ended) for each in waiting}
            break
        names = [answer.exercise.name for answer in waiting]
        done = names.index(executed.at) if executed.ended else len(names)
        known |= {answer.exercise.name: _read(answer, executed) for answer in waiting[:done]}
        if executed.ended and done == 0:
            late = executed.ended == TOO_LONG and not has_its_time
            known[executed.at] = _blame(waiting[0], LATE if late else executed.ended)
            done = 1
        waiting = waiting[done:]
    return [known[answer.exercise.name] for answer in answers]


def _blame(answer: Answer, ended: str) -> Observed:
    if ended not in (KILLED, TOO_LONG):
        return Observed(answer, reason=ended)
    exercise = answer.exercise
    sentence = f"{ended[0].upper()}{ended[1:]}."
    outcome = Outcome(exercise.name, Stage.RAISED, sentence, possible=exercise.points, hints=len(exercise.hints))
    return Observed(answer, outcome=outcome)


def _read(answer: Answer, executed: Execution) -> Observed:
    """Read one exercise's evidence, with suspicion."""
    exercise = answer.exercise
    shown = executed.displayed.get((EVIDENCE, exercise.name), [])
    if len(shown) != 1:
        return Observed(answer, reason=f"the run showed {len(shown) or 'no'} records of what the answer did, not one")
    try:
        record = read_record(shown[0], exercise.name)
    except BadRecord as error:
        return Observed(answer, reason=f"the record of what the answer did is not in order: {error}")
    lost = "; ".join(f"a definition that the answer may use did not work: {text}" for text in record["lost"])
    if record["blank"]:
        return Observed(answer, outcome=exercise.not_attempted("the answer cell is as it came."), reason=lost)
    if raised := record["raised"]:
        if raised["type"] == "TimeIsUp":
            return _blame(answer, TOO_LONG)
        problem = f"{raised['type']}: {raised['message']}" if raised["message"] else raised["type"]
        line = f"your line {raised['line']}, `{raised['text']}`," if raised["line"] else "your answer cell"
        sentence = f"{line} raised {problem}"
        outcome = Outcome(exercise.name, Stage.RAISED, sentence, possible=exercise.points, hints=len(exercise.hints))
        return Observed(answer, outcome=outcome, reason=lost)
    return Observed(answer, evidence=tuple(record["cases"]), reason=lost)


# -------------------------------------------------------------------------------------------------------------- the key


def make_key(lesson: Lesson, seed: int, limits: Limits | None = None) -> dict[str, Key]:
    """The key of every exercise of the lesson: the answered edition, collected and run as any submission.

    The declared mistakes are run beside it, so that a wrong answer's likely cause can be found.
    """
    limits = limits or Limits()
    answers = collect_answers(read_cells(lesson.answered_notebook().encode()), lesson)
    deadline = time.monotonic() + limits.submission
    executed = execute(make_notebook(answers, mistakes=True), seed, limits.submission, deadline)
    return {answer.exercise.name: _read_key(answer, executed) for answer in answers}


def _read_key(answer: Answer, executed: Execution) -> Key:
    name = answer.exercise.name
    observed = Observed(answer, outcome=answer.outcome) if answer.outcome else _read(answer, executed)
    sentence = observed.outcome.sentence if observed.outcome else observed.reason
    if not observed.evidence or sentence:
        return Key(reason=f"the course's own answer to {name} did not work here: {sentence} {executed.ended}".rstrip())
    shown = executed.displayed.get((MISTAKES, name), [])
    mistakes = read_json(shown[0])["mistakes"] if shown else []
    for _, evidence in mistakes:
        check_evidence(evidence)
    return Key(observed.evidence, tuple((message, tuple(evidence)) for message, evidence in mistakes))


# -------------------------------------------------------------------------------------------------------- the notebook


def make_notebook(answers: Sequence[Answer], mistakes: bool = False) -> NotebookNode:
    """The notebook that runs `answers`; with `mistakes`, what the declared mistakes do is shown too (for the key)."""
    modules = sorted({answer.exercise.reference.__module__ for answer in answers})
    cells = [
        _cell("parameters", "seed = 0", tags=["parameters"]),
        _cell("setup", "\n".join([*(f"import {module}" for module in modules), f"%load_ext {_DRIVER}"])),
    ]
    for answer in answers:
        name = answer.exercise.name
        if answer.support:
            cells.append(_cell(f"support:{name}", f"%%support {name}\n" + "\n".join(answer.support)))
        cells.append(_cell(f"answer:{name}", f"%%answer {name}\n{answer.source}"))
        calls = ["show_evidence", "show_mistakes"] if mistakes else ["show_evidence"]
        for call in calls:
            cells.append(_cell(f"{call}:{name}", f"from {_DRIVER} import {call}\n\n{call}({name!r}, seed)"))
    metadata = {"kernelspec": dict(notebooks.KERNELSPEC), "language_info": dict(notebooks.LANGUAGE_INFO)}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


_DRIVER = "course_utils.grading.driver"


def _cell(purpose: str, source: str, tags: Sequence[str] = ()) -> NotebookNode:
    """A code cell; `purpose` says in its metadata which exercise it belongs to."""
    return nbformat.v4.new_code_cell(source, metadata={"tags": list(tags), "purpose": purpose})


def execute(notebook: NotebookNode, seed: int, exercise_seconds: int, deadline: float) -> Execution:
    """Run `notebook` with papermill in a fresh kernel and an empty folder, and return what its cells displayed.

    The cell of an exercise is stopped after `exercise_seconds`, and any cell at `deadline` (of `time.monotonic`).
    """
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    def seconds_left(cell: NotebookNode) -> int:
        left = max(1, round(deadline - time.monotonic()))
        return min(exercise_seconds, left) if _purpose(cell)[1] else left  # to import torch is no exercise

    ended = ""
    with tempfile.TemporaryDirectory(prefix="course-grade-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "empty").mkdir()
        (folder / "runtime").mkdir(mode=0o700)
        nbformat.write(notebook, folder / "in.ipynb")
        with _kernel_environment(folder), _quiet():
            try:
                papermill.execute_notebook(
                    folder / "in.ipynb",
                    folder / "out.ipynb",
                    parameters={"seed": seed},
                    cwd=folder / "empty",
                    kernel_name=notebooks.KERNELSPEC["name"],
                    progress_bar=False,
                    timeout_func=seconds_left,
                    allow_errors=True,
                    iopub_timeout=30,
                    shutdown_kernel="immediate",
                    extra_arguments=["--log-level=50"],  # what a kernel says about itself is not for the screen
                )
            except PapermillExecutionError:
                pass  # a cell raised; the cells after it ran all the same, and evidence tells what each answer did
            except CellTimeoutError:
                ended = TOO_LONG
            except DeadKernelError:
                ended = KILLED
            except Exception as error:  # no kernel, no memory, messages that are none: no verdict, but a reason
                ended = f"the notebook could not be run: {type(error).__name__}: {error}"
        return _read_execution(folder / "out.ipynb", ended)


def _read_execution(path: Path, ended: str) -> Execution:
    """What the cells of an executed notebook displayed of the driver's kinds."""
    if not path.exists():
        return Execution({}, ended or "the notebook could not be run")
    if path.stat().st_size > MAX_NOTEBOOK_BYTES:
        return Execution({}, "the notebook's outputs are too large to be read")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    started = [cell for cell in cells if cell["metadata"].get("papermill", {}).get("start_time")]
    at = _purpose(started[-1])[1] if ended and started else ""
    displayed: dict[tuple[str, str], list[Any]] = {}
    for cell in started[:-1] if ended else started:  # what a cell showed before it broke down is not believed
        call, exercise = _purpose(cell)
        kind = {"show_evidence": EVIDENCE, "show_mistakes": MISTAKES}.get(call)
        for output in cell.get("outputs", []):
            if kind and kind in output.get("data", {}):
                value = output["data"][kind]
                displayed.setdefault((kind, exercise), []).append("".join(value) if isinstance(value, list) else value)
    return Execution(displayed, ended, at)


def _purpose(cell: dict) -> tuple[str, str]:
    """What a cell of the run is for, and for which exercise."""
    purpose, _, exercise = cell["metadata"].get("purpose", "").partition(":")
    return purpose, exercise


@contextlib.contextmanager
def _kernel_environment(folder: Path) -> Iterator[None]:
    """What a kernel inherits: no progress is kept, and its own files go where they vanish with the run."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(notebooks.kernel_environment(folder))
    os.environ["JUPYTER_RUNTIME_DIR"] = str(folder / "runtime")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what libraries say about dying kernels off the screen: the report says it in its own words."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
