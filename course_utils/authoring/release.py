"""The release: a zip of the course for the students of a graded class, without the reference answers.

    make release        or    python -m course_utils release

What is in it: the lessons, the package with its assets, and what sets it up. What is not: the reference answers, the
other right answers, the mistakes' code, the teacher's notes, the tests, and what only an instructor or a maintainer
needs. The checks compare with *recorded results*: for every exercise what the reference and each mistake did on the
inputs of `SEEDS`, as JSON, so that each outcome has the same words as in the whole course. Before the zip is written,
all of it is searched for the answers (see `answer_search`), and a find stops it.

What this cannot hide: the recorded results themselves, so that a table of them passes `check`; it does not pass
`make grade` of the whole course, which draws other inputs. And the package's own library, which openly does what some
exercises ask for (`course_utils.vision.saliency` has a Grad-CAM): it is what the course teaches to use.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from course_utils.__main__ import STUDENT_COMMANDS
from course_utils.root import (
    ASSETS,
    ROOT,
    CourseError,
    has_answers,
    recorded_path,
)

if TYPE_CHECKING:
    from course_utils.exercises.engine import Exercise

TARGET = ROOT / "build" / "release" / "pytorch-hooks-course.zip"
FOLDER = "pytorch-hooks-course"
SEEDS = (0, 11, 22, 33, 44)  # the first are the inputs that `check` tries first; of the others it draws one
FILES = ("LICENSE", "Makefile", "environment.yml", "pyproject.toml", ".gitignore")
LESSON_MODULE = re.compile(r"course_utils/lessons/lesson_\d\d\.py")
# Tools for instructors and maintainers. Some hold answers, and no student's command needs any of them.
NOT_FOR_STUDENTS = ("course_utils/authoring/",)
DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold: the same content gives the same bytes


def main(argv: Sequence[str] | None = None) -> int:
    """Write the release and list what is in it; returns 0. Raises `CourseError` where it cannot be made."""
    parser = argparse.ArgumentParser(
        prog="python -m course_utils release", description="Make the zip for the students of a graded class."
    )
    parser.add_argument("--output", type=Path, default=TARGET, metavar="ZIP", help="where to write it")
    parser.add_argument("--nbgrader", type=Path, metavar="FOLDER", help="write an nbgrader course there instead")
    options = parser.parse_args(argv)
    if options.nbgrader:
        from course_utils.authoring.nbgrader import export

        written = export(options.nbgrader)
        print("\n".join(str(path) for path in written))
        print(f"Next:  cd {options.nbgrader} && nbgrader generate_assignment ASSIGNMENT")
        return 0
    files = make_release()
    write_zip(files, options.output)
    print(describe(files))
    size = options.output.stat().st_size / 1e6
    print(f"{options.output}: {len(files)} files, {size:.1f} MB. It was searched for the answers, and has none.")
    return 0


def make_release(root: Path = ROOT, seeds: Sequence[int] = SEEDS) -> dict[str, bytes]:
    """Everything in the release, by its path in the course. Raises `CourseError` where it cannot be made."""
    if not has_answers():
        raise CourseError(
            "This is a release already, without answers. Make one in the instructor's copy of the course."
        )
    from course_utils.authoring.source import LessonError

    try:
        files = collect_files(root)
    except LessonError as error:
        raise CourseError(str(error)) from None
    files |= record_results(seeds)
    refuse_answers(files)
    return files


# ------------------------------------------------------------------------------------------------------- what is in it


def collect_files(root: Path) -> dict[str, bytes]:
    """The course's files for students, without answers; the recorded results are not among them."""
    from course_utils.authoring.source import sources

    files = {name: (root / name).read_bytes() for name in FILES if (root / name).is_file()}
    readme = student_readme((root / "README.md").read_text(encoding="utf-8"))
    files["README.md"] = readme.encode()
    files |= {name: (root / name).read_bytes() for name in linked_files(readme) if (root / name).is_file()}
    for source in sources(root / "notebooks"):
        files |= _lesson_files(source, root)
    for path in [*root.glob("course_utils/**/*.py"), *root.glob("course_utils/assets/*")]:
        name = path.relative_to(root).as_posix()
        if not name.startswith(NOT_FOR_STUDENTS):
            files[name] = path.read_bytes()
    for name in filter(LESSON_MODULE.fullmatch, files):
        files[name] = student_module(files[name].decode("utf-8")).encode()
    return files


def _lesson_files(source: Path, root: Path) -> dict[str, bytes]:
    """A lesson's notebook and its source, both for students. Raises `CourseError` if they do not agree."""
    import nbformat

    built = source.parents[1] / f"{source.stem}.ipynb"
    if not built.is_file():
        raise CourseError(f"There is no {built.name}: run  make notebooks  first.")
    text = student_source(source.read_text(encoding="utf-8"))
    wanted = [(cell.id, cell.source) for cell in source.learner(source).cells]
    if [(cell.id, cell.source) for cell in nbformat.read(built, as_version=4).cells] != wanted:
        raise CourseError(f"{built.name} is not what its source says: run  make notebooks  first.")
    names = [path.relative_to(root).as_posix() for path in (source, built)]
    return {names[0]: text.encode(), names[1]: built.read_bytes()}


def student_source(text: str) -> str:
    """A lesson's source (py:percent) without the cells tagged `instructor`."""
    cells = re.split(r"^(?=# %%)", text, flags=re.MULTILINE)
    return "".join(cell for cell in cells if not re.match(r"# %%.*tags=\[.*\"instructor\"", cell))


def student_readme(text: str) -> str:
    """The README without the sections for others, and without commands that a release does not have."""
    sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    text = "".join(section for section in sections if not section.startswith("## For "))
    lines = [line for line in text.splitlines(keepends=True) if _is_for_students(line)]
    note = (
        "\nThis is the students' edition. The exercises check themselves as ever, by results recorded from the\n"
        "answers; the answers themselves are with your instructor, who grades the notebooks in `work`.\n"
    )
    return "".join([*lines[:1], note, *lines[1:]])


def _is_for_students(line: str) -> bool:
    command = re.match(r"make (\w+)", line)
    return command is None or command.group(1) in STUDENT_COMMANDS


def linked_files(markdown: str) -> list[str]:
    """The files of the course that a Markdown text shows or links to."""
    links = re.findall(r"\]\(([^)#\s]+)|\bsrc=\"([^\"]+)\"", markdown)
    return sorted({link for pair in links for link in pair if link and "://" not in link})


# ------------------------------------------------------------------------------------------------ a lesson's exercises


def student_module(source: str) -> str:
    """A lesson's module of exercises without answers: tasks, hints, points and cases stay as they are written.

    A hint that would be an answer by itself is left out; so are imports that only answers need.
    """
    from course_utils.exercises.bare import strip

    lines = source.splitlines()
    answers = {node.name: node for node in ast.parse(source).body if _is_exercise(node)}
    kept = strip(source).body
    used = {part.id for node in kept for part in ast.walk(node) if isinstance(part, ast.Name)}
    pieces: list[str] = []
    for node in kept:
        first = _first_line(node, lines)
        if isinstance(node, ast.Import | ast.ImportFrom):
            text = _needed_import(node, used)
        elif getattr(node, "name", None) in answers and _is_exercise(node):
            text = _declaration(answers[node.name], first, lines)
        else:
            text = "\n".join(lines[first : node.end_lineno])
        if text:
            pieces += [""] * _blank_lines_before(first, lines) + [text]
    return "\n".join(pieces) + "\n"


def _is_exercise(node: ast.AST) -> bool:
    calls = (each.func for each in getattr(node, "decorator_list", []) if isinstance(each, ast.Call))
    return any(isinstance(call, ast.Name) and call.id == "exercise" for call in calls)


def _first_line(node: ast.stmt, lines: Sequence[str]) -> int:
    """The number (from 0) of a statement's first line, with its decorators and the comments right above."""
    first = min(each.lineno for each in (node, *getattr(node, "decorator_list", []))) - 1
    above = first
    while above > 0 and (not lines[above - 1].strip() or lines[above - 1].startswith("#")):
        above -= 1
        if lines[above].startswith("#"):
            first = above
    return first


def _blank_lines_before(first: int, lines: Sequence[str]) -> int:
    count = 0
    while first - count > 0 and not lines[first - count - 1].strip():
        count += 1
    return count


def _needed_import(node: ast.Import | ast.ImportFrom, used: set[str]) -> str:
    """The import without the names that nothing uses any more."""
    if getattr(node, "module", "") == "__future__":
        return ast.unparse(node)
    node.names = [each for each in node.names if (each.asname or each.name).partition(".")[0] in used]
    return ast.unparse(node) if node.names else ""


def _declaration(node: ast.FunctionDef | ast.ClassDef, first: int, lines: Sequence[str]) -> str:
    """An exercise as it is declared: decorator, signature and task."""
    hidden = {line for hint in _answering_hints(node) for line in range(hint.lineno, hint.end_lineno + 1)}
    end = node.body[0].end_lineno  # of the docstring, which every exercise has
    shown = [line for number, line in enumerate(lines[first:end], start=first + 1) if number not in hidden]
    return "\n".join([*shown, *([""] if isinstance(node, ast.ClassDef) else []), "    ..."])


def _answering_hints(node: ast.FunctionDef | ast.ClassDef) -> list[ast.expr]:
    """The hints in the declaration that would be an answer by themselves."""
    from course_utils.exercises.engine import find

    decorator = next(each for each in node.decorator_list if isinstance(each, ast.Call))
    hints = next(keyword.value for keyword in decorator.keywords if keyword.arg == "hints").elts
    exercise = find(node.name)
    return [hint for hint in hints if gives_away(ast.literal_eval(hint), exercise)]


def gives_away(hint: str, exercise: Exercise) -> bool:
    """Whether the code in a hint, put into the answer cell as it stands, would pass; or is all of the reference."""
    spans = [span for span in re.findall(r"`([^`]+)`", hint) if _statements(span)]
    if not spans:
        return False
    hinted = {statement for span in spans for statement in _statements(span)}
    body = [ast.unparse(each) for each in ast.parse(exercise.source).body[0].body[1:]]
    if set(body) <= hinted:
        return True
    if isinstance(exercise.reference, type):
        return False
    return any(_passes(text, exercise) for text in [*spans, "\n".join(spans)])


def _statements(code: str) -> list[str]:
    try:
        return [ast.unparse(each) for each in ast.parse(code).body]
    except SyntaxError:
        return []


def _passes(body: str, exercise: Exercise) -> bool:
    """Whether a function with this body answers the exercise; what it computes last is what it returns."""
    from course_utils.exercises.judging import first_difference

    tree = ast.parse(body)
    if isinstance(tree.body[-1], ast.Expr):
        tree.body[-1] = ast.Return(tree.body[-1].value)
    function = ast.parse(exercise.skeleton)
    function.body[0].body = tree.body
    namespace = dict(vars(sys.modules[exercise.reference.__module__]))
    try:
        exec(compile(ast.fix_missing_locations(function), "hint", "exec"), namespace)
    except SyntaxError:
        return False
    got = exercise.observe(namespace[exercise.name], SEEDS[0])
    return first_difference(got, exercise.expected(SEEDS[0]), exercise.name) is None


# ------------------------------------------------------------------------------------------------------- the results


def record_results(seeds: Sequence[int]) -> dict[str, bytes]:
    """What the reference answers and the mistakes do on the inputs of `seeds`: one JSON file a lesson.

    The order of the keys is kept: of several differences, the first one seen is the one that is told. Raises
    `CourseError` where the answers do not do here what they should.
    """
    from course_utils.exercises.engine import exercises_of
    from course_utils.exercises.recorded import NotRecorded, record

    files = {}
    for lesson in sorted({each.lesson for each in exercises_of()}):
        try:
            results = record(exercises_of(lesson), seeds)
        except NotRecorded as error:
            raise CourseError(str(error)) from None
        name = f"course_utils/{ASSETS.name}/{recorded_path(lesson).name}"
        files[name] = (json.dumps(results, separators=(",", ":")) + "\n").encode()
    return files


# ------------------------------------------------------------------------------------------------------------- the zip


def refuse_answers(files: Mapping[str, bytes]) -> None:
    """Raise `CourseError` if an answer to any exercise stands in one of the files."""
    from course_utils.authoring.answer_search import find_answers
    from course_utils.exercises.engine import exercises_of

    if found := find_answers(files, exercises_of()):
        raise CourseError("No release was written, because it would hold answers:\n" + "\n".join(map(str, found)))


def write_zip(files: Mapping[str, bytes], target: Path) -> None:
    """Write `files` into a zip, below one folder. The same files give the same bytes, whatever the machine and day."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    with zipfile.ZipFile(part, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{FOLDER}/{name}", DATE)
            entry.create_system = 3  # Unix, so that the rights count
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name], compresslevel=9)
    part.replace(target)


def describe(files: Mapping[str, bytes]) -> str:
    """A line for each folder of the release: how many files, how large."""
    sizes: dict[str, list[int]] = {}
    for name, content in files.items():
        sizes.setdefault(name.rpartition("/")[0] or ".", []).append(len(content))
    width = max(map(len, sizes))
    lines = (
        f"{name:<{width}}  {len(each):>3} files  {sum(each) / 1e6:6.2f} MB" for name, each in sorted(sizes.items())
    )
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CourseError as error:
        sys.exit(str(error))
