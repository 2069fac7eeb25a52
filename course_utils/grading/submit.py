"""Handing in: look at a learner's copies of the lessons, by their text alone, and pack them into one file to send.

In `NAME.zip` are `NAME/LESSON.ipynb`, and `NAME/submission.json`, which tells a person what it is, of which edition.
"""

import contextlib
import hashlib
import json
import re
import unicodedata
import zipfile
from importlib.metadata import version
from pathlib import Path

from course_utils.exercises.outcome import Stage
from course_utils.grading.answers import collect_answers
from course_utils.grading.definitions import read_cells
from course_utils.grading.grade import check_work
from course_utils.grading.submissions import NBGRADER, Lesson, Submission, printable, read_lessons, read_submission
from course_utils.root import ROOT, CourseError, has_answers, write_whole, zip_of

ABOUT = "submission.json"  # the grader passes over it
NO_NAMES = {"", ABOUT, NBGRADER, "__MACOSX", "__pycache__"}  # the grader takes them for something else


def submit(name: str = "", check: bool = False, work: Path = ROOT / "work", folder: Path = ROOT) -> int:
    """Say what there is in `work` and what is missing, and write the file to send into `folder`; returns 0.

    The learner is asked for an empty `name`. Answers are run, and their scores shown, only with `check`. Raises
    `CourseError` where there is no name, nothing to hand in, or another person's file in the place.
    """
    if not name:
        with contextlib.suppress(EOFError):
            name = input("Your name, as your instructor knows it: ")
    name = "".join(sign for sign in unicodedata.normalize("NFC", name) if sign.isprintable() or sign.isspace())
    student = _folder_name(name := " ".join(name.split()))
    target = folder / f"{student}.zip"
    owner = None if target.exists() else name
    with contextlib.suppress(Exception), zipfile.ZipFile(target) as archive:  # anything else was not written here
        owner = json.loads(archive.read(f"{student}/{ABOUT}"))["name"]
    if owner != name:
        raise CourseError(f"{target} is there already, and not from {name}. Move it, or write your name otherwise.")
    if check:
        check_work(work)
    lessons, files, attempted = read_lessons(), {}, {}
    for lesson in lessons.values():
        try:
            if not (path := work / f"{lesson.name}.ipynb").exists():
                raise CourseError("it is not in the folder `work`")
            data = read_submission(Submission(student, lesson.name, path, lesson))
            attempted[lesson.name] = _count_attempted(data, lesson)
            files[f"{student}/{path.name}"] = data
        except CourseError as error:
            print(printable(f"{lesson.name}: left out, because {error}."))
    for path in sorted(work.glob("*.ipynb")):
        if path.stem not in lessons and not (ROOT / "notebooks" / path.name).exists():
            print(printable(f"{path.name}: left out, because no lesson has this name."))
    if not files:
        raise CourseError(f"There is nothing to hand in. `make lab` opens the lessons; your copies are in {work}.")
    text = b"".join(path.read_bytes() for path in sorted((ROOT / "notebooks").glob("*.ipynb")))
    kind, digest = "whole" if has_answers() else "released", hashlib.sha256(text).hexdigest()[:8]
    edition = f"the {kind} course {digest}"
    about = {"name": name, "edition": edition, "torch": version("torch"), "attempted": attempted}
    files[f"{student}/{ABOUT}"] = json.dumps(about, indent=1, ensure_ascii=False).encode()
    write_whole(target, zip_of(files))
    print(f"\nThe work of {name}: {', '.join(attempted)}; {sum(attempted.values())} exercises; edition: {edition}.")
    print(f"It is written, and not sent yet. Send this one file to your instructor:  {target}")
    return 0


def _count_attempted(data: bytes, lesson: Lesson) -> int:
    answers = collect_answers(read_cells(data), lesson)
    told = {each.exercise.name: each.outcome for each in answers if each.outcome}  # of what cannot be run
    # What a cell assigns to the exercise's name may be an answer too: the grader sees it when it runs the notebook.
    assigned = {each.exercise.name for each in answers if each.whole}
    todo = [name for name, outcome in told.items() if outcome.stage is Stage.NOT_ATTEMPTED and name not in assigned]
    if not (number := len(answers) - len(todo)):
        raise CourseError("none of its exercises has been attempted")
    missing = f"; not yet {', '.join(todo)}" if todo else ""
    print(f"{lesson.name}: {number} of {len(answers)} exercises attempted{missing}.")
    for name, outcome in told.items():
        if outcome.stage is not Stage.NOT_ATTEMPTED:  # an answer that is not Python
            print(printable(f"    {name}: {outcome.sentence}"))
    return number


def _folder_name(name: str) -> str:
    # Without signs that no file's name can have, and at most 120 bytes long.
    plain = re.sub(r"\.{2,}", ".", re.sub(r'[<>:"/\\|?*]+', "-", name)).encode()[:120].decode(errors="ignore")
    if (plain := plain.strip(" .-")) in NO_NAMES:
        raise CourseError('Give your name, as your instructor knows it:  make submit NAME="Ann Lee"')
    return plain
