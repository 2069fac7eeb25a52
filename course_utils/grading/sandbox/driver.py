"""What runs beside an answer: takes its text, tries it in the exercise's cases, and shows what it did as JSON.

The children of `host` and the processes of `process` call `observe_answer`. It draws no conclusions and knows no right
answer's results; whatever goes wrong becomes part of the evidence.
"""

import ast
import contextlib
import json
import linecache
import os
from typing import Any

from course_utils.exercises.declaration import is_blank
from course_utils.exercises.engine import find
from course_utils.exercises.evidence import describe_error, time_limit

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
