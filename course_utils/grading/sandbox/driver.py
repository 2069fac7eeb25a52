"""What runs beside an answer: takes its text, tries it in the exercise's cases, and shows what it did as JSON.

The children of `host` call `observe_answer`; the notebooks that `kernel` makes load it as an extension. It draws no
conclusions and knows no right answer's results; whatever goes wrong becomes part of the evidence.
"""

import ast
import contextlib
import json
import linecache
import os
from pathlib import Path
from typing import Any

from course_utils.exercises.declaration import is_blank
from course_utils.exercises.engine import find
from course_utils.exercises.evidence import describe_error, time_limit
from course_utils.grading.sandbox.tasks import EVIDENCE

_texts: dict[tuple[str, str], str] = {}


def prepare(lessons: str) -> None:
    """Make this kernel one for students' answers: the lessons in that file alone, and what can be had of a sandbox."""
    from course_utils.exercises.bare import load_bare_lessons
    from course_utils.grading.sandbox.tasks import Limits
    from course_utils.grading.sandbox.walls import confine_kernel

    load_bare_lessons(Path(lessons).read_bytes())
    confine_kernel([Path(os.environ["IPYTHONDIR"])], Limits())


def load_ipython_extension(shell: Any) -> None:
    """Register `%%support name` and `%%answer name`: they keep their cell's text and run nothing."""
    for kind in ("support", "answer"):

        def keep(name: str, text: str, kind: str = kind) -> None:
            _texts[kind, name.strip()] = text

        shell.register_magic_function(keep, "cell", kind)


def show_evidence(name: str, seed: int) -> None:
    """Display the evidence of the answer to exercise `name`, whose text the cells above have given."""
    from IPython.display import display

    record = observe_answer(name, _texts["support", name], _texts["answer", name], seed)
    display({EVIDENCE: write_record(record)}, raw=True)


write_record = json.JSONEncoder(allow_nan=False).encode  # made before an answer could change the json module


def observe_answer(name: str, support: str, answer: str, seed: int) -> dict[str, Any]:
    """Define an answer from its text in a namespace of its own, and observe it in every case of `seed`.

    Returns `exercise`, `blank` (it is the empty skeleton), `raised` (what defining it raised, or None), `lost` (what
    definitions that it uses raised) and `cases` (the evidence of each case). Raises nothing of the answer's.
    """
    found: dict[str, Any] = {"exercise": name, "blank": False, "raised": None, "lost": [], "cases": []}
    exercise = find(name)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    try:
        with (
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
            time_limit(exercise.limit),
        ):
            found["lost"] = define_support(support, namespace)
            exec(_compile(answer, f"<answer {name}>"), namespace)
        function = namespace[name]
        found["blank"] = is_blank(function)
        if not found["blank"]:
            found["cases"] = exercise.observe(function, seed)
    except BaseException as error:  # whatever an answer can throw, KeyboardInterrupt and SystemExit too, is evidence
        found["raised"] = describe_error(error, "call")
    return found


def define_support(source: str, namespace: dict[str, Any]) -> list[str]:
    """Run the definitions one by one; one that raises is left out, and what it raised is returned in words."""
    lost = []
    lines = source.split("\n")
    for number, node in enumerate(ast.parse(source).body):
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        text = "\n".join(lines[first - 1 : node.end_lineno])
        try:
            exec(_compile(text, f"<support {number}>"), namespace)
        except Exception as error:
            lost.append(f"`{text.splitlines()[0][:80]}` raised {type(error).__name__}: {str(error)[:200]}")
    return lost


def _compile(source: str, filename: str) -> Any:
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return compile(source, filename, "exec", dont_inherit=True)
