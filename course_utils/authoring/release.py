"""The release: a zip of the course for the students of a graded class, without the reference answers.

The checks compare with *recorded results*: for every exercise what the reference and each mistake did on the inputs of
`SEEDS`, as JSON, so that each outcome has the same words as in the whole course. What is secret is a folder that does
not ship. All the rest is searched for the answers before the zip is written (`find_answers`), because a lesson may say
too much. What this cannot hide stands in this room's README.
"""

import ast
import builtins
import functools
import json
import keyword
import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm import tqdm

from course_utils.authoring.editions import read_built, write_assignments
from course_utils.authoring.source import PRIVATE, learner, sources
from course_utils.exercises.causes import SAID_OF_HOOKS, names_said
from course_utils.exercises.engine import Exercise, exercises_of
from course_utils.exercises.events import Run
from course_utils.exercises.judging import judge
from course_utils.exercises.plain import Evidence
from course_utils.exercises.recorded import VISIBLE_SEED, write_once
from course_utils.exercises.timelines import right_runs
from course_utils.root import ROOT, STUDENT_COMMANDS, CourseError, recorded_path, sealed_path, write_whole, zip_of

TARGET = ROOT / "build" / "release" / "pytorch-hooks-course.zip"
FOLDER = "pytorch-hooks-course"
SEEDS = (0, 11, 22, 33, 44)  # the first are the inputs that `check` tries first; of the others it draws one
PATIENCE = 300.0  # seconds a case, so that a busy machine records no answer as one that does not end
FILES = ("LICENSE", "Makefile", "environment.yml", "pyproject.toml", ".gitignore", "notebooks/inventory.ipynb")
# Of these rooms, what `make check` and `join` need; the other modules hold answers, or need those that do.
MODULES = {
    "authoring": ("__init__", "pace", "source", "seal", "build", "item_analysis"),
    "live": ("__init__", "member"),
}
EDITION = """\
This is the students' edition. The exercises check themselves as ever, by results recorded from the
answers; the answers themselves are with your instructor, to whom you send the file that `make submit` writes."""
SHORTEST = 12  # words and signs; a shorter answer, such as `return []`, says nothing
RUNS = 6, 16  # words and signs that can be no chance: as they stand, and with names made alike
COVERED = 0.9  # the share of an answer from which on it is given away
PLACES = 3  # that are named where an answer is spread
MINUTES = re.compile(r"\*\*Minutes:\*\*.*")
HINTS = re.compile(r"course_utils/assets/sealed_")  # the files that hold them
KNOWN = {*keyword.kwlist, *dir(builtins), "F", "nn", "self", "torch"}  # names that nobody chooses


def write_release(output: Path = TARGET, nbgrader: Path | None = None) -> int:
    """Write the release to `output`, or an nbgrader course to `nbgrader`; `CourseError` where it cannot be.

    It holds the hints of the lessons' sources, but for those that would complete an answer.
    """
    if nbgrader:
        print(*write_assignments(nbgrader), sep="\n")
        print(f"Next:  cd {nbgrader} && nbgrader generate_assignment ASSIGNMENT")
        return 0
    exercises = exercises_of()
    files = collect_files(ROOT) | record_results()
    print("Searching all texts for the answers …", flush=True)
    taught = find_taught(files, exercises)
    hints = leave_out_hints(files, exercises, taught)
    write_whole(output, zip_of({f"{FOLDER}/{name}": content for name, content in files.items()}))
    there = f"{len(files)} files, {sum(hints.values())} of {sum(len(each.all_hints) for each in exercises)} hints"
    print(f"{output}: {there}, {output.stat().st_size / 1e6:.1f} MB. It was searched for the answers, and has none.")
    print(f"The lessons and the library teach nearly the whole answer to {', '.join(taught) or 'no exercise'}.")
    return 0


def leave_out_hints(
    files: dict[str, bytes], exercises: Sequence[Exercise], taught: Collection[str] = ()
) -> dict[str, int]:
    """Take hints out of the sealed `files` until no answer is given away; returns how many of each exercise are left.

    The last hint of an answer that is found goes first; where it has none, the last hints of its lesson's others do.
    Raises `CourseError`, with the places, where an answer is found without any hint.
    """
    kept, lessons = {each.name: len(each.hints) for each in exercises}, {each.name: each.lesson for each in exercises}
    while found := find_answers(files, exercises, taught):
        beside = [name for name in kept if lessons[name] in {lessons[one] for one in found}]
        less = [name for name in found if kept[name]] or [name for name in beside if kept[name]]
        if not less:
            raise CourseError("No release was written, because it would hold answers:\n" + "\n".join(found.values()))
        for name in less:
            kept[name] -= 1
            path = sealed_path(lessons[name]).relative_to(ROOT).as_posix()
            sealed = json.loads(files[path])
            del sealed["exercises"][name]["hints"][kept[name] :]
            files[path] = json.dumps(sealed).encode()
    return kept


def collect_files(root: Path) -> dict[str, bytes]:
    """The course's files for students, by their path in it, without answers and recorded results.

    `CourseError` where a notebook is not what its source says.
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
        minutes = MINUTES.search(learner(source).cells[0].source)[0]  # of the whole lesson, which students do not have
        public = MINUTES.sub(minutes, public_source(source.read_text(encoding="utf-8")), count=1)
        files[f"notebooks/source/{source.name}"] = public.encode()
    return files


def public_source(text: str) -> str:
    """A lesson's source without the cells that no learner gets."""
    return re.sub(rf"(?m)^# %%.*tags=\[.*\"(?:{'|'.join(PRIVATE)})\"[\s\S]*?(?=^# %%|\Z)", "", text)


def student_readme(text: str) -> str:
    """The README without the sections for others, and without badges or commands that a release does not have."""
    text = re.sub(r"^## (?:Teach|Grade) it\n[\s\S]*?(?=^## )", "", text, flags=re.MULTILINE)
    others = rf"^(?:\|.*\| `|- .*`)make (?!(?:{'|'.join(STUDENT_COMMANDS)})\b).*\n"  # rows, items
    text = re.sub(rf"{others}|^.*\[!\[.*\n", "", text, flags=re.MULTILINE)  # badges open the whole course
    return text.replace("\n", f"\n\n{EDITION}\n", 1)


def record_results() -> dict[str, bytes]:
    """What the reference answers and the mistakes do on the inputs of `SEEDS`: one file a lesson, see `recorded`.

    The order of the keys is kept: of several differences, the first one seen is the one that is told. Raises
    `CourseError` where the answers do not do here what they should.
    """
    found, files = {}, {}
    for each in tqdm(exercises_of(), "recording what answers do", unit="exercise"):
        found.setdefault(each.lesson, {})[each.name] = {str(seed): record(each, seed) for seed in SEEDS}
    for lesson, exercises in found.items():
        results = {"torch": version("torch").split("+")[0], "seeds": SEEDS, "exercises": exercises}
        files[recorded_path(lesson).relative_to(ROOT).as_posix()] = write_once(results).encode()
    return files


def record(exercise: Exercise, seed: int) -> dict[str, Any]:
    """What the reference answer and the mistakes do with one seed."""
    reference, mistakes = replace(exercise, limit=PATIENCE).key(seed)
    for message, cases in mistakes.items():
        if judge(exercise.name, cases, reference, mistakes.items()).cause != message:
            raise CourseError(f"Nothing was recorded: a mistake in {exercise.name} was not recognised here: {message}")
    right = reference[0]["names"]
    told = [[message, _with_names(cases, message, right)] for message, cases in mistakes.items()]
    runs = record_runs(exercise, reference) if seed == VISIBLE_SEED else []
    first, *others = reference
    return {"reference": [first | {"names": []}, *others], "mistakes": told, "runs": runs}


def record_runs(exercise: Exercise, reference: Sequence[Evidence]) -> list[list[Run]]:
    """What happens with the right answers in each case, without the lines of their code."""
    runs = [right_runs(exercise, VISIBLE_SEED, at, expected) for at, expected in enumerate(reference)]
    for event in (event for each in runs for run in each for event in run["events"]):
        event.pop("line", None)
        event.pop("text", None)
    return runs


def _with_names(cases: Sequence[Evidence], message: str, right: Sequence[str]) -> list[Evidence]:
    """The evidence of a mistake, of whose names only those stay that `causes` asks for: what `message` says and the
    right answer does not have, and of the hooks that it registers the kinds, in brackets, as no name is.
    """
    first, *others = cases
    kinds = {f"({part})" for part in SAID_OF_HOOKS.values() if any(part in name for name in first["names"])}
    return [first | {"names": sorted(names_said(message, first["names"]) - {*right} | kinds)}, *others]


def find_answers(
    files: Mapping[str, bytes], exercises: Sequence[Exercise], taught: Collection[str] = ()
) -> dict[str, str]:
    """Which of `exercises` the `files` give away: a sentence for each, by its name, which says where.

    All texts count as one, for a learner has them all. An exercise is given away if the whole of a right answer stands
    in one file, or if `COVERED` of it stands in all files together (but for those `taught`): in runs of 6 words that
    some text has too, or in runs of 16 that some text has with other names. So an answer that is spread over hints and
    prose is found, and one whose variables have been renamed. Shorter runs are ordinary Python.
    """
    answers = [(each, words(body_of(source))) for each in exercises for source in each.page.answers]
    wanted = {run for _, said in answers for length in RUNS for run in _runs(said, length)}
    texts = {name: _words_in(name, content) for name, content in files.items()}
    shipped = {name: {run for length in RUNS for run in _runs(text, length)} & wanted for name, text in texts.items()}
    together = set().union(*shipped.values())
    whole = {name: f" {' '.join(text)} " for name, text in texts.items()}
    found = {}
    for each, said in answers:
        if len(said) >= SHORTEST and (places := [name for name in whole if f" {' '.join(said)} " in whole[name]]):
            found[each.name] = f"{', '.join(places)}: an answer to {each.name}"
        elif each.name not in taught and (share := _covered(said, together)) >= COVERED:
            most = sorted(shipped, key=lambda name: -_covered(said, shipped[name]))[:PLACES]
            found.setdefault(each.name, f"{', '.join(most)} and others: {share:.0%} of an answer to {each.name}")
    return found


def find_taught(files: Mapping[str, bytes], exercises: Sequence[Exercise]) -> list[str]:
    """The exercises whose answers are spread over what a learner reads without any hint.

    That is the lessons' text, the library, and what `check` says to mistakes: the course teaches it.
    """
    return list(find_answers({name: content for name, content in files.items() if not HINTS.match(name)}, exercises))


def _covered(said: Sequence[str], shipped: Set[tuple[str, ...]]) -> float:
    """The share of the words `said` that lie in runs which are `shipped`."""
    lie = ((at, length) for length in RUNS for at, run in enumerate(_runs(said, length)) if run in shipped)
    return len({place for at, length in lie for place in range(at, at + length)}) / len(said)


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


def body_of(source: str) -> str:
    """What the text of an answer has below its signature, without comments."""
    node = ast.parse(source).body[-1]
    first, *rest = source.splitlines()[node.body[0].lineno - 1 :]
    return re.sub(r"(?m)(?:^|  )# .*$", "", "\n".join([first[node.body[0].col_offset :], *rest]))
