"""The release: a zip of the course for the students of a graded class, without the reference answers.

The checks compare with *recorded results*: for every exercise what the reference and each mistake did on the inputs of
`SEEDS`, as JSON, so that each outcome has the same words as in the whole course. All of it is searched for the answers
before the zip is written. What this cannot hide stands in this room's README.
"""

import ast
import contextlib
import inspect
import io
import itertools
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from course_utils.authoring import nbgrader as nbgrader_course
from course_utils.authoring.editions import read_built
from course_utils.authoring.source import sources
from course_utils.exercises.bare import strip
from course_utils.exercises.declaration import decorators
from course_utils.exercises.engine import Exercise, exercises_of, find, source_of
from course_utils.exercises.judging import judge
from course_utils.root import ASSETS, ROOT, CourseError, recorded_path, write_whole

TARGET = ROOT / "build" / "release" / "pytorch-hooks-course.zip"
FOLDER = "pytorch-hooks-course"
SEEDS = (0, 11, 22, 33, 44)  # the first are the inputs that `check` tries first; of the others it draws one
PATIENCE = 300.0  # seconds a case, so that a busy machine records no answer as one that does not end
FILES = ("LICENSE", "Makefile", "environment.yml", "pyproject.toml", ".gitignore")
COMMANDS = ("lab", "check", "doctor", "setup")  # that a student has
AUTHORING = ("__init__", "source", "build", "readme")  # of its modules, what `make check` needs; others hold answers
EDITION = """\
This is the students' edition. The exercises check themselves as ever, by results recorded from the
answers; the answers themselves are with your instructor, who grades the notebooks in `work`."""
SHORTEST = 24  # characters; a shorter answer, such as `return []`, says nothing
DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold: the same content gives the same bytes


def write_release(output: Path | None = None, nbgrader: Path | None = None) -> int:
    """Write and list the release in `output`, or an nbgrader course in `nbgrader`; `CourseError` where it cannot be."""
    if nbgrader:
        print(*nbgrader_course.export(Path(nbgrader)), sep="\n")
        print(f"Next:  cd {nbgrader} && nbgrader generate_assignment ASSIGNMENT")
        return 0
    target = Path(output or TARGET)
    files = collect_files(ROOT) | record_results()
    if found := find_answers(files, exercises_of()):
        raise CourseError("No release was written, because it would hold answers:\n" + "\n".join(found))
    write_whole(target, zip_of(files))
    for folder in sorted({Path(name).parent.as_posix() for name in files}):
        sizes = [len(content) / 1e6 for name, content in files.items() if Path(name).parent.as_posix() == folder]
        print(f"{folder:<30}  {len(sizes):>3} files  {sum(sizes):6.2f} MB")
    size = target.stat().st_size / 1e6
    print(f"{target}: {len(files)} files, {size:.1f} MB. It was searched for the answers, and has none.")
    return 0


def collect_files(root: Path) -> dict[str, bytes]:
    """The course's files for students, by their path in it, without answers; without the recorded results too.

    Raises `CourseError` where a notebook is not what its source says.
    """
    readme = student_readme((root / "README.md").read_text(encoding="utf-8"))
    paths = [path for name in (*FILES, *linked_files(readme)) if (path := root / name).is_file()]
    package = [*root.glob("course_utils/**/*.py"), *root.glob("course_utils/assets/*")]
    paths += [path for path in package if path.parent.name != "authoring" or path.stem in AUTHORING]
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
    files["README.md"] = readme.encode()
    for source in sources(root / "notebooks"):
        read_built(source, root / "notebooks")
        name = f"notebooks/{source.stem}.ipynb"
        files[name] = (root / name).read_bytes()
        cells = re.split(r"^(?=# %%)", source.read_text(encoding="utf-8"), flags=re.MULTILINE)
        kept = [cell for cell in cells if not re.match(r"# %%.*tags=\[.*\"instructor\"", cell)]
        files[f"notebooks/source/{source.name}"] = "".join(kept).encode()
    modules = [name for name in files if re.fullmatch(r"course_utils/lessons/lesson_\d\d\.py", name)]
    return files | {name: student_module(files[name].decode()).encode() for name in modules}


def student_readme(text: str) -> str:
    """The README without the sections for others, and without commands that a release does not have."""
    text = re.sub(r"^## For [\s\S]*?(?=^## (?!For )|\Z)", "", text, flags=re.MULTILINE)
    text = re.sub(rf"^make (?!(?:{'|'.join(COMMANDS)})\b).*\n", "", text, flags=re.MULTILINE)
    title, rest = text.split("\n", 1)
    return f"{title}\n\n{EDITION}\n{rest}"


def linked_files(markdown: str) -> list[str]:
    """The files of the course that a Markdown text shows or links to."""
    return sorted({link for link in re.findall(r"(?:\]\(|\bsrc=\")([^)#\s\"]+)", markdown) if "://" not in link})


def student_module(source: str) -> str:
    """A lesson's module without answers, hints that are one, comments, and imports that only answers need."""
    tree = strip(source)
    used = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)} | {"annotations"}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [each for each in node.names if (each.asname or each.name).partition(".")[0] in used]
        for option in getattr(decorators(node).get("exercise"), "keywords", []):
            if option.arg == "hints":
                exercise, hints = find(node.name), option.value.elts
                option.value.elts = [each for each in hints if not gives_away(ast.literal_eval(each), exercise)]
    tree.body = [node for node in tree.body if getattr(node, "names", True)]
    return f"{ast.unparse(tree)}\n"


def gives_away(hint: str, exercise: Exercise) -> bool:
    """Whether the pieces of code in a hint are together all that one of the right answers says."""
    said = set()
    for span in re.findall(r"`([^`]+)`", hint):
        with contextlib.suppress(SyntaxError):
            said |= _say(ast.parse(span).body)
    return bool(said) and any(said >= _say(body_of(answer)[1]) for answer in (exercise.reference, *exercise.accepted))


def _say(statements: Sequence[ast.stmt]) -> set[str]:
    return {ast.unparse(each).removeprefix("return ") for each in statements}


def record_results() -> dict[str, bytes]:
    """What the reference answers and the mistakes do on the inputs of `SEEDS`: one JSON file a lesson.

    The order of the keys is kept: of several differences, the first one seen is the one that is told. Raises
    `CourseError` where the answers do not do here what they should.
    """
    files = {}
    for lesson in sorted({each.lesson for each in exercises_of()}):
        found = {each.name: {str(seed): record(each, seed) for seed in SEEDS} for each in exercises_of(lesson)}
        results = {"torch": version("torch").split("+")[0], "seeds": SEEDS, "exercises": found}
        text = json.dumps(results, separators=(",", ":"))
        files[f"course_utils/{ASSETS.name}/{recorded_path(lesson).name}"] = f"{text}\n".encode()
    return files


def record(exercise: Exercise, seed: int) -> dict[str, Any]:
    """What the reference answer and the mistakes do with one seed. What they print is not compared, and not kept."""
    reference, mistakes = replace(exercise, limit=PATIENCE).key(seed)
    if any(case["raised"] and case["raised"]["type"] == "TimeIsUp" for case in reference):
        problem = f"The reference answer to {exercise.name} did not come to an end here"
        raise CourseError(f"{problem}, so nothing was recorded.")
    for message, cases in mistakes.items():
        if judge(exercise.name, cases, reference, mistakes.items()).cause != message:
            problem = f"A mistake in {exercise.name} was not recognised here"
            raise CourseError(f"{problem}, so nothing was recorded: {message}")
    for case in (*reference, *itertools.chain(*mistakes.values())):
        case["printed"] = ""
    return {"reference": reference, "mistakes": [list(each) for each in mistakes.items()]}


def find_answers(files: Mapping[str, bytes], exercises: Sequence[Exercise]) -> list[str]:
    """Where the text of an answer to one of `exercises`, right or wrong, stands in one of `files`: a sentence each."""
    texts, found = {name: content.decode("utf-8", errors="ignore") for name, content in files.items()}, []
    for name, text in texts.items():
        texts[name] = " ".join((_strings(json.loads(text)) if name.endswith((".ipynb", ".json")) else text).split())
    for exercise in exercises:
        for function in (exercise.reference, *exercise.accepted, *(each.function for each in exercise.mistakes)):
            if len(text := body_of(function)[0]) >= SHORTEST:
                found += [f"{name}: an answer to {exercise.name}" for name in texts if text in texts[name]]
    return found


def _strings(value: object) -> str:
    if isinstance(value, dict | list):
        return "\n".join(map(_strings, value.values() if isinstance(value, dict) else value))
    return value if isinstance(value, str) else ""


@cache
def body_of(function: object) -> tuple[str, list[ast.stmt]]:
    """What a function or class has below its signature and docstring: with each run of blanks as one; statements."""
    source = source_of(inspect.unwrap(function))
    node = ast.parse(source).body[0]
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    first, *rest = source.splitlines()[body[0].lineno - 1 :]
    return " ".join(" ".join([first[body[0].col_offset :], *rest]).split()), body


def zip_of(files: Mapping[str, bytes]) -> bytes:
    """A zip of `files` below one folder. The same files give the same bytes, whatever the machine and day."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{FOLDER}/{name}", DATE)
            entry.create_system = 3  # Unix, so that the rights count
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED, 9)
    return packed.getvalue()
