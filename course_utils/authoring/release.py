"""The release: a zip of the course for the students of a graded class, without the reference answers.

The checks compare with *recorded results*: for every exercise what the reference and each mistake did on the inputs of
`SEEDS`, as JSON, so that each outcome has the same words as in the whole course. All of it is searched for the answers
before the zip is written (`find_answers`). What this cannot hide stands in this room's README.
"""

import ast
import builtins
import functools
import inspect
import json
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm import tqdm

from course_utils.authoring.editions import read_built, write_assignments
from course_utils.authoring.source import sources
from course_utils.exercises.bare import strip
from course_utils.exercises.engine import Exercise, exercises_of, find, source_of
from course_utils.exercises.judging import judge
from course_utils.root import ROOT, STUDENT_COMMANDS, CourseError, recorded_path, write_whole, zip_of

TARGET = ROOT / "build" / "release" / "pytorch-hooks-course.zip"
FOLDER = "pytorch-hooks-course"
SEEDS = (0, 11, 22, 33, 44)  # the first are the inputs that `check` tries first; of the others it draws one
PATIENCE = 300.0  # seconds a case, so that a busy machine records no answer as one that does not end
FILES = ("LICENSE", "Makefile", "environment.yml", "pyproject.toml", ".gitignore")
# Of these rooms, what `make check` and `join` need; the other modules hold answers, or need those that do.
MODULES = {"authoring": ("__init__", "source", "build"), "live": ("__init__", "member")}
EDITION = """\
This is the students' edition. The exercises check themselves as ever, by results recorded from the
answers; the answers themselves are with your instructor, to whom you send the file that `make submit` writes."""
HINTS = 2  # of each exercise; the later ones are pieces of its answer
SHORTEST = 12  # words and signs; a shorter answer, such as `return []`, says nothing
RUNS = 6, 16  # words and signs that can be no chance: as they stand, and with names made alike
COVERED = 0.9  # the share of an answer from which on it is given away
KNOWN = {*keyword.kwlist, *dir(builtins), "F", "nn", "self", "torch"}  # names that nobody chooses
# Nearly the whole of these answers is in the lessons' own text and in the library, without any hint: that is what they
# teach. Only a whole answer in one place counts as given away.
TAUGHT = {"SaveOutput", "channel_weights", "class_activation_map", "class_gradient", "freeze_biases"}
TAUGHT |= {"grad_cam_with_hooks", "keep_positive", "largest", "record_gradient", "share_on_thing"}
TAUGHT |= {"freeze_weight", "guide_relu", "keep_maps", "pass_on_twice", "save_as_kernel"}  # by the reference, lesson 09


def write_release(output: Path | None = None, nbgrader: Path | None = None, hints: int = HINTS) -> int:
    """Write the release to `output`, or an nbgrader course to `nbgrader`; `CourseError` where it cannot be.

    It holds the first `hints` hints of each exercise, but for those that would complete an answer.
    """
    if nbgrader:
        print(*write_assignments(nbgrader), sep="\n")
        print(f"Next:  cd {nbgrader} && nbgrader generate_assignment ASSIGNMENT")
        return 0
    target, exercises, recorded = Path(output or TARGET), exercises_of(), record_results()
    kept = {each.name: len(each.hints[: max(0, hints)]) for each in exercises}
    print("Searching all texts for the answers …", flush=True)
    while found := find_answers(files := collect_files(ROOT, kept) | recorded, exercises):
        beside = [each.name for each in exercises if each.lesson in {find(name).lesson for name in found}]
        later = [[name for name in names if kept[name] > HINTS] for names in (found, beside)]
        less = later[0] or later[1] or [name for name in found if kept[name]]
        if not less:
            raise CourseError("No release was written, because it would hold answers:\n" + "\n".join(found.values()))
        kept |= {name: kept[name] - 1 for name in less}
    write_whole(target, zip_of({f"{FOLDER}/{name}": content for name, content in files.items()}))
    there = f"{len(files)} files, {sum(kept.values())} of {sum(len(each.hints) for each in exercises)} hints"
    print(f"{target}: {there}, {target.stat().st_size / 1e6:.1f} MB. It was searched for the answers, and has none.")
    return 0


def collect_files(root: Path, hints: Mapping[str, int] | None = None) -> dict[str, bytes]:
    """The course's files for students, by their path in it, without answers and recorded results.

    hints: how many to keep, by the exercise (default: 2). `CourseError` where a notebook is not what its source says.
    """
    readme = student_readme((root / "README.md").read_text(encoding="utf-8"))
    linked = re.findall(r"\]\(([^)#\s]+)", readme)  # addresses are among them
    paths = [path for name in (*FILES, *linked) if (path := root / name).is_file()]
    package = [*root.glob("course_utils/**/*.py"), *root.glob("course_utils/assets/*")]
    paths += [path for path in package if path.stem in MODULES.get(path.parent.name, (path.stem,))]
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
    files["README.md"] = readme.encode()
    for source in sources(root / "notebooks"):
        read_built(source, root / "notebooks")
        name = f"notebooks/{source.stem}.ipynb"
        files[name] = (root / name).read_bytes()
        text = source.read_text(encoding="utf-8")
        text = re.sub(r"(?m)^# %%.*tags=\[.*\"instructor\"[\s\S]*?(?=^# %%|\Z)", "", text)
        files[f"notebooks/source/{source.name}"] = text.encode()
    modules = [name for name in files if re.fullmatch(r"course_utils/lessons/lesson_\d\d\.py", name)]
    return files | {name: student_module(files[name].decode(), hints or {}).encode() for name in modules}


def student_readme(text: str) -> str:
    """The README without the sections for others, and without badges or commands that a release does not have."""
    text = re.sub(r"^## (?:Teach|Grade) it\n[\s\S]*?(?=^## )", "", text, flags=re.MULTILINE)
    others = rf"^(?:\|.*\| `|- .*`)make (?!(?:{'|'.join(STUDENT_COMMANDS)})\b).*\n"  # rows, items
    text = re.sub(rf"{others}|^.*\[!\[.*\n", "", text, flags=re.MULTILINE)  # badges open the whole course
    return text.replace("\n", f"\n\n{EDITION}\n", 1)


def student_module(source: str, hints: Mapping[str, int]) -> str:
    """A lesson's module without answers, later `hints`, comments, and imports that only answers need."""
    tree = strip(source, lambda name: hints.get(name, HINTS))
    used = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)} | {"annotations"}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [each for each in node.names if (each.asname or each.name).partition(".")[0] in used]
    tree.body = [node for node in tree.body if getattr(node, "names", True)]
    return f"{ast.unparse(tree)}\n"


def record_results() -> dict[str, bytes]:
    """What the reference answers and the mistakes do on the inputs of `SEEDS`: one JSON file a lesson.

    The order of the keys is kept: of several differences, the first one seen is the one that is told. Raises
    `CourseError` where the answers do not do here what they should.
    """
    found, files = {}, {}
    for each in tqdm(exercises_of(), "recording what answers do", unit="exercise"):
        found.setdefault(each.lesson, {})[each.name] = {str(seed): record(each, seed) for seed in SEEDS}
    for lesson, exercises in found.items():
        results = {"torch": version("torch").split("+")[0], "seeds": SEEDS, "exercises": exercises}
        text = json.dumps(results, separators=(",", ":")) + "\n"
        files[recorded_path(lesson).relative_to(ROOT).as_posix()] = text.encode()
    return files


def record(exercise: Exercise, seed: int) -> dict[str, Any]:
    """What the reference answer and the mistakes do with one seed."""
    reference, mistakes = replace(exercise, limit=PATIENCE).key(seed)
    for message, cases in mistakes.items():
        if judge(exercise.name, cases, reference, mistakes.items()).cause != message:
            raise CourseError(f"Nothing was recorded: a mistake in {exercise.name} was not recognised here: {message}")
    return {"reference": reference, "mistakes": [list(each) for each in mistakes.items()]}


def find_answers(files: Mapping[str, bytes], exercises: Sequence[Exercise]) -> dict[str, str]:
    """Which of `exercises` the `files` give away: a sentence for each, by its name.

    All texts count as one, for a learner has them all. An exercise is given away if the whole of a right answer stands
    in one file, or if `COVERED` of it stands in all files together (but for those in `TAUGHT`): in runs of 6 words that
    some text has too, or in runs of 16 that some text has with other names. So an answer that is spread over hints and
    prose is found, and one whose variables have been renamed. Shorter runs are ordinary Python.
    """
    texts, found = {name: _words_in(name, content) for name, content in files.items()}, {}
    answers = [(each, words(body_of(one))) for each in exercises for one in (each.reference, *each.accepted)]
    wanted = {run for _, said in answers for length in RUNS for run in _runs(said, length)}
    shipped = {run for text in texts.values() for length in RUNS for run in _runs(text, length) if run in wanted}
    whole = {name: f" {' '.join(text)} " for name, text in texts.items()}
    for each, said in answers:
        lie = ((at, length) for length in RUNS for at, run in enumerate(_runs(said, length)) if run in shipped)
        share = len({place for at, length in lie for place in range(at, at + length)}) / len(said)
        if len(said) >= SHORTEST and (places := [name for name in whole if f" {' '.join(said)} " in whole[name]]):
            found[each.name] = f"{', '.join(places)}: an answer to {each.name}"
        elif share >= COVERED and each.name not in TAUGHT:
            found.setdefault(each.name, f"all texts together: {share:.0%} of an answer to {each.name}")
    return found


def words(text: str) -> list[str]:
    """The words, numbers and signs of a text, without `return`; all quotes are alike."""
    return [word for word in re.findall(r"\.?\w+|[^\w\s]", text.replace('"', "'")) if word != "return"]


def _runs(found: Sequence[str], length: int) -> Iterator[tuple[str, ...]]:
    if length == RUNS[1]:
        found = [word if word in KNOWN or not word.isidentifier() else "_" for word in found]
    return zip(*(found[start:] for start in range(length)), strict=False)


@functools.cache  # a search with fewer hints has most of the files again
def _words_in(name: str, content: bytes) -> list[str]:
    text = content.decode("utf-8", errors="ignore")
    strings = re.findall(r'"(?:[^"\\]|\\.)*"', text) if name.endswith((".ipynb", ".json")) else []
    return words(" ".join(json.loads(each) if "\\" in each else each[1:-1] for each in strings) or text)


def body_of(function: object) -> str:
    """What a function or class has below its signature and docstring, without comments."""
    source = source_of(inspect.unwrap(function))
    node = ast.parse(source).body[0]
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    first, *rest = source.splitlines()[body[0].lineno - 1 :]
    return re.sub(r"(?m)(?:^|  )# .*$", "", "\n".join([first[body[0].col_offset :], *rest]))
