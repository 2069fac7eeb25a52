"""What runs beside an answer: takes its text, tries it in the exercise's cases, and shows what it did as JSON.

It draws no conclusions and knows no right answer's results; whatever goes wrong becomes part of the evidence.
"""

import builtins
import contextlib
import importlib
import json
import linecache
import os
import pkgutil
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import MagicMock

from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell

from course_utils import lessons
from course_utils.exercises.declaration import is_blank
from course_utils.exercises.engine import Exercise, exercises_of, find
from course_utils.exercises.evidence import TimeIsUp, describe_error, time_limit
from course_utils.grading.sandbox.tasks import BEGUN, CUT
from course_utils.lessons.torch_steps import forget

write_record = json.JSONEncoder(allow_nan=False).encode  # made before an answer could change the json module
BUILT_IN = vars(builtins)
CELL_SECONDS, CELLS_SECONDS = 10.0, 15.0  # for a cell of a notebook, and for all of them
MOST_LOST = 20  # cells of which is told what they raised


class Shell(InteractiveShell):
    """What runs a notebook's cells in Jupyter, with all its magics; here nobody reads what it says of errors."""

    system = InteractiveShell.system_raw  # the other one needs a terminal

    def showtraceback(self, *_: object, **__: object) -> None:
        """Show nothing: a traceback in colours takes a quarter of a second."""

    showsyntaxerror = enable_gui = showtraceback  # a window, such as %matplotlib asks for, is nothing to show either

    def should_run_async(self, *_: object, **__: object) -> bool:
        """Always: in Jupyter a loop runs during each cell, on which a cell may leave a task for the next."""
        return True


def open_shell() -> Shell:
    """The one shell of this process, which keeps no history: that would be a thread and a file."""
    HistoryManager.enabled = False
    return Shell.instance()


def load_room() -> None:
    """Import all that a lesson has for its notebook, and read its files, for a process that cannot read them later.

    The pages of answers are in a folder of their own, which nothing here opens.
    """
    for module in pkgutil.iter_modules(lessons.__path__, f"{lessons.__name__}."):
        getattr(importlib.import_module(module.name), "prepare", list)()
    open_shell()


def record_answers(told: int, seeds: Mapping[str, int], cells: Sequence[str], answer: str) -> None:
    """Say on the file `told` that it begins, and then, a line for each exercise, what was observed.

    It is for a process that has its walls.
    """
    for name in seeds:
        forget(name)
    sys.path.append("")  # a notebook may import what it has written
    with open(told, "wb") as file:
        os.write(told, BEGUN)
        for record in observe_answers(seeds, cells, answer):
            file.write(write_record(record).encode() + b"\n")
            file.flush()


def observe_answers(seeds: Mapping[str, int], cells: Sequence[str], answer: str) -> Iterator[dict[str, Any]]:
    """Run the parts of a `Task` in a module of its own, and observe what then bears each name in the cases of its seed.

    Gives a record for each: `exercise`, `blank` (it is the empty skeleton, or nothing has the name), `raised` (what the
    answer's text raised, or None), `lost` (what cells raised) and `cases` (the evidence of each case). Raises nothing
    of the answer's.
    """
    exercises = [find(name) for name in seeds]
    notebook, before = types.ModuleType("__main__"), sys.modules["__main__"]
    names, shell = vars(notebook), open_shell()
    sys.modules["__main__"] = notebook  # pickle and others look there
    shell.user_module, shell.user_ns = notebook, names
    shell.init_user_ns()
    if answer:  # by itself it shows nothing, and no magic acts
        quiet = MagicMock()
        names |= {"get_ipython": quiet, "display": lambda *_, display_id=None, **__: quiet if display_id else None}
    put_back = remember_course()

    def execute(text: str, filename: str) -> None:
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)  # for tracebacks
        exec(shell.compile(text, filename, "exec"), names)  # it remembers what is imported from `__future__`

    def execute_as_notebook(cell: str, _: str) -> None:
        shell.run_cell(cell, store_history=True).raise_error()

    try:
        lost, raised = run_cells(cells, execute if answer else execute_as_notebook), None
        filename = f"<answer {', '.join(seeds)}>"
        try:
            with _silence(), time_limit(CELL_SECONDS):
                execute(answer, filename)
        except BaseException as error:  # whatever an answer can throw is evidence: KeyboardInterrupt, SystemExit
            raised = describe_error(error, "call")
        put_back()
        for exercise in exercises:
            found = {"exercise": exercise.name, "blank": False, "raised": raised, "lost": lost, "cases": []}
            try:
                if not raised:
                    mine = names[exercise.name] if answer else names.get(exercise.name, exercise)
                    found["blank"] = isinstance(mine, Exercise) or is_blank(mine)
                    with _silence():
                        found["cases"] = [] if found["blank"] else exercise.observe(mine, seeds[exercise.name])
            except BaseException as error:
                found["raised"] = describe_error(error, "call")
            yield found
    finally:
        sys.modules["__main__"] = before


def run_cells(cells: Sequence[str], run: Callable[[str, str], None]) -> list[str]:
    """Run cells one after the other, each up to what it raises; returns in words what the first of these raised."""
    lost, end = [], time.monotonic() + CELLS_SECONDS
    for number, cell in enumerate(cells):
        left = end - time.monotonic()
        if left <= 0:
            lost.append(f"`{_first_line(cell)}` was not run, nor what follows it: {CUT}")
            break
        try:
            with _silence(), time_limit(min(CELL_SECONDS, left)):
                run(cell, f"<cell {number}>")
        except BaseException as error:
            said = describe_error(error, "call")
            problem = CUT if isinstance(error, TimeIsUp) else said["message"][:200]
            lost.append(f"`{_first_line(cell)}` raised {said['type']}: {problem}")
    return lost[:MOST_LOST]


def _first_line(cell: str) -> str:
    return next(filter(None, cell.splitlines()), "")[:80]


def remember_course() -> Callable[[], None]:
    """Note what Python's built-in names, the course's modules and their classes are made of.

    The function that it returns puts back what is another thing by then: what observes an answer is not for notebooks
    to change. What they change in torch stays, for an answer may build on it.
    """
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "course_utils"]
    classes = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    own = [each for each in classes if each.__module__.partition(".")[0] == "course_utils"]
    noted = [(each, dict(vars(each))) for each in (*modules, *own, *exercises_of())]
    built_in = dict(BUILT_IN)

    def put_back() -> None:
        BUILT_IN.update(built_in)
        for thing, before in noted:
            now = vars(thing)
            for name in [name for name, value in before.items() if now.get(name) is not value]:
                setattr(thing, name, before[name])

    return put_back


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """What is printed in the block goes nowhere."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield
