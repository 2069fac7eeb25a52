"""The release: a zip of the course for the students of a graded class, without the reference answers.

What is in it: the lessons, the package with its assets, and what sets it up. What is not: the reference answers, the
other right answers, the mistakes' code, the teacher's notes, the tests, and what only an instructor or a maintainer
needs. The checks compare with *recorded results*: for every exercise what the reference and each mistake did on the
inputs of `SEEDS`, as JSON, so that each outcome has the same words as in the whole course. Before the zip is written,
all of it is searched for the text of the answers, and a find stops it.

What this cannot hide: the recorded results themselves, so that a table of them passes `check`; it does not pass
`make grade` of the whole course, which draws other inputs. And the package's own library, which openly does what some
exercises ask for (`course_utils.vision.saliency` has a Grad-CAM): it is what the course teaches to use.
"""

from __future__ import annotations

import ast
import inspect
import io
import json
import re
import textwrap
import zipfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import nbformat

from course_utils.authoring import nbgrader as nbgrader_course
from course_utils.authoring.source import learner, sources
from course_utils.exercises.bare import strip
from course_utils.exercises.engine import Exercise, exercises_of, source_of
from course_utils.exercises.recorded import NotRecorded, record
from course_utils.root import ASSETS, ROOT, CourseError, has_answers, recorded_path, write_whole

TARGET = ROOT / "build" / "release" / "pytorch-hooks-course.zip"
FOLDER = "pytorch-hooks-course"
SEEDS = (0, 11, 22, 33, 44)  # the first are the inputs that `check` tries first; of the others it draws one
FILES = ("LICENSE", "Makefile", "environment.yml", "pyproject.toml", ".gitignore")
COMMANDS = ("lab", "check", "doctor", "setup")  # that a student has
AUTHORING = ("__init__", "source", "build", "readme")  # of its modules, what `make check` needs; others hold answers
SHORTEST = 24  # characters; a shorter answer, such as `return []`, says nothing
DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold: the same content gives the same bytes


def write_release(output: Path | None = None, nbgrader: Path | None = None) -> int:
    """Write the release to `output` (build/release), or an nbgrader course into the folder `nbgrader`; returns 0.

    Lists what was written. Raises `CourseError` where it cannot be made.
    """
    if not has_answers():
        raise CourseError(
            "This is a release already, without answers: make one in the instructor's copy of the course."
        )
    if nbgrader:
        print(*nbgrader_course.export(Path(nbgrader)), sep="\n")
        print(f"Next:  cd {nbgrader} && nbgrader generate_assignment ASSIGNMENT")
        return 0
    target = Path(output or TARGET)
    files = make_release()
    write_whole(target, zip_of(files))
    print(describe(files))
    size = target.stat().st_size / 1e6
    print(f"{target}: {len(files)} files, {size:.1f} MB. It was searched for the answers, and has none.")
    return 0


def make_release(root: Path = ROOT, seeds: Sequence[int] = SEEDS) -> dict[str, bytes]:
    """Everything in the release, by its path in the course. Raises `CourseError` where it cannot be made."""
    files = collect_files(root) | record_results(seeds)
    if found := find_answers(files, exercises_of()):
        raise CourseError("No release was written, because it would hold answers:\n" + "\n".join(found))
    return files


# ------------------------------------------------------------------------------------------------------- what is in it


def collect_files(root: Path) -> dict[str, bytes]:
    """The course's files for students, without answers; the recorded results are not among them."""
    readme = student_readme((root / "README.md").read_text(encoding="utf-8"))
    names = [name for name in (*FILES, *linked_files(readme)) if (root / name).is_file()]
    for path in [*root.glob("course_utils/**/*.py"), *root.glob("course_utils/assets/*")]:
        if path.parent.name != "authoring" or path.stem in AUTHORING:
            names.append(path.relative_to(root).as_posix())
    files = {name: (root / name).read_bytes() for name in names} | {"README.md": readme.encode()}
    for name in files:
        if re.fullmatch(r"course_utils/lessons/lesson_\d\d\.py", name):
            files[name] = student_module(files[name].decode()).encode()
    for source in sources(root / "notebooks"):
        built = source.parents[1] / f"{source.stem}.ipynb"
        wanted = [(cell.id, cell.source) for cell in learner(source).cells]
        found = nbformat.read(built, as_version=4).cells if built.is_file() else []
        if [(cell.id, cell.source) for cell in found] != wanted:
            raise CourseError(f"{built.name} is not what its source says: run  make notebooks  first.")
        files[built.relative_to(root).as_posix()] = built.read_bytes()
        text = student_source(source.read_text(encoding="utf-8"))
        files[source.relative_to(root).as_posix()] = text.encode()
    return files


def student_source(text: str) -> str:
    """A lesson's source (py:percent) without the cells tagged `instructor`."""
    cells = re.split(r"^(?=# %%)", text, flags=re.MULTILINE)
    return "".join(cell for cell in cells if not re.match(r"# %%.*tags=\[.*\"instructor\"", cell))


def student_readme(text: str) -> str:
    """The README without the sections for others, and without commands that a release does not have."""
    text = re.sub(r"^## For [\s\S]*?(?=^## (?!For )|\Z)", "", text, flags=re.MULTILINE)
    text = re.sub(rf"^make (?!(?:{'|'.join(COMMANDS)})\b).*\n", "", text, flags=re.MULTILINE)
    title, rest = text.split("\n", 1)
    return (
        f"{title}\n\nThis is the students' edition. The exercises check themselves as ever, by results recorded from "
        "the\nanswers; the answers themselves are with your instructor, who grades the notebooks in `work`.\n" + rest
    )


def linked_files(markdown: str) -> list[str]:
    """The files of the course that a Markdown text shows or links to."""
    links = re.findall(r"(?:\]\(|\bsrc=\")([^)#\s\"]+)", markdown)
    return sorted({link for link in links if "://" not in link})


def student_module(source: str) -> str:
    """A lesson's module of exercises without answers: tasks, hints, points and cases stay as they are written.

    A hint that would be an answer by itself is left out; so are imports that only answers need.
    """
    lines, end, pieces = source.splitlines(), 0, []
    bare = {node.lineno: node for node in strip(source).body}
    used = {part.id for node in bare.values() for part in ast.walk(node) if isinstance(part, ast.Name)}
    exercises = {each.reference.__name__: each for each in exercises_of()}
    for node in ast.parse(source).body:
        start, end = end, node.end_lineno  # comments and decorators above belong to what they stand above
        if node.lineno not in bare:
            continue
        text = lines[start:end]
        if isinstance(node, ast.Import | ast.ImportFrom) and getattr(node, "module", "") != "__future__":
            node.names = [each for each in node.names if (each.asname or each.name).partition(".")[0] in used]
            text = [line for line in text if not line] + [ast.unparse(node)] if node.names else []
        elif any(ast.unparse(each).startswith("exercise(") for each in getattr(node, "decorator_list", [])):
            text = _declaration(node, exercises[node.name], lines, start)
        pieces += text
    return "\n".join(pieces) + "\n"


def _declaration(node: ast.FunctionDef | ast.ClassDef, exercise: Exercise, lines: list[str], start: int) -> list[str]:
    """An exercise as it is declared: decorator, signature and task; no hint that is an answer."""
    hidden = set()
    for hint in next(each.value.elts for each in node.decorator_list[-1].keywords if each.arg == "hints"):
        if gives_away(ast.literal_eval(hint), exercise):
            hidden |= set(range(hint.lineno - 1, hint.end_lineno))
    end = node.body[0].end_lineno  # of the docstring, which every exercise has
    shown = [lines[number] for number in range(start, end) if number not in hidden]
    return [*shown, *([""] if isinstance(node, ast.ClassDef) else []), "    ..."]


def gives_away(hint: str, exercise: Exercise) -> bool:
    """Whether the pieces of code in a hint are together all that one of the right answers says."""
    said = {statement for span in re.findall(r"`([^`]+)`", hint) for statement in _statements(span)}
    functions = (exercise.reference, *exercise.accepted)
    return bool(said) and any(said.issuperset(_statements(_body(function))) for function in functions)


def _statements(code: str) -> list[str]:
    try:
        return [ast.unparse(each).removeprefix("return ") for each in ast.parse(code).body]
    except SyntaxError:
        return []


def record_results(seeds: Sequence[int]) -> dict[str, bytes]:
    """What the reference answers and the mistakes do on the inputs of `seeds`: one JSON file a lesson.

    The order of the keys is kept: of several differences, the first one seen is the one that is told. Raises
    `CourseError` where the answers do not do here what they should.
    """
    files = {}
    for lesson in sorted({each.lesson for each in exercises_of()}):
        try:
            results = record(exercises_of(lesson), seeds)
        except NotRecorded as error:
            raise CourseError(str(error)) from None
        name = f"course_utils/{ASSETS.name}/{recorded_path(lesson).name}"
        files[name] = (json.dumps(results, separators=(",", ":")) + "\n").encode()
    return files


# ---------------------------------------------------------------------------------------------- searching and packing


def find_answers(files: Mapping[str, bytes], exercises: Sequence[Exercise]) -> list[str]:
    """Where the text of an answer to one of `exercises`, right or wrong, stands in one of `files`: a sentence each."""
    texts = {name: _squeeze(_text_of(name, content)) for name, content in files.items()}
    found = []
    for exercise in exercises:
        for function in (exercise.reference, *exercise.accepted, *(each.function for each in exercise.mistakes)):
            text = _squeeze(_body(function))
            if len(text) >= SHORTEST:
                found += [f"{name}: an answer to {exercise.name}" for name in texts if text in texts[name]]
    return found


def _text_of(name: str, content: bytes) -> str:
    """A file as text; of a JSON file, every string in it."""
    text = content.decode("utf-8", errors="ignore")
    return _strings(json.loads(text)) if name.endswith((".ipynb", ".json")) else text


def _strings(value: object) -> str:
    if isinstance(value, dict | list):
        return "\n".join(map(_strings, value.values() if isinstance(value, dict) else value))
    return value if isinstance(value, str) else ""


@cache
def _body(function: object) -> str:
    """The text of a function or class below its signature and docstring."""
    source = source_of(inspect.unwrap(function))
    node = ast.parse(source).body[0]
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    lines = source.splitlines()[body[0].lineno - 1 :]
    return textwrap.dedent("\n".join([" " * body[0].col_offset + lines[0][body[0].col_offset :], *lines[1:]]))


def _squeeze(text: str) -> str:
    """`text` with every run of blanks and line breaks as one blank."""
    return re.sub(r"\s+", " ", text).strip()


def zip_of(files: Mapping[str, bytes]) -> bytes:
    """A zip of `files` below one folder. The same files give the same bytes, whatever the machine and day."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{FOLDER}/{name}", DATE)
            entry.create_system = 3  # Unix, so that the rights count
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name], compresslevel=9)
    return packed.getvalue()


def describe(files: Mapping[str, bytes]) -> str:
    """A line for each folder of the release: how many files, how large."""
    sizes = defaultdict(list)
    for name, content in files.items():
        sizes[name.rpartition("/")[0] or "."].append(len(content))
    lines = [f"{name:<30}  {len(each):>3} files  {sum(each) / 1e6:6.2f} MB" for name, each in sorted(sizes.items())]
    return "\n".join(lines)
