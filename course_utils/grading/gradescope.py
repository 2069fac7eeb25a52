"""Gradescope: a zip that grades there by the same rule, and results in the form that it reads.

The form is that of Gradescope's "Autograder Specifications": `setup.sh` installs the course once, `run_autograder` is
run for each submission in `/autograder/submission`, and writes `/autograder/results/results.json`.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from course_utils.exercises.outcome import Stage
from course_utils.grading.grade import run
from course_utils.grading.report import NO_SCORE, neat
from course_utils.root import ASSETS, ROOT, CourseError, write_whole, zip_of

BUNDLE = ROOT / "build" / "gradescope" / "autograder.zip"
COURSE = ("course_utils/**/*", "notebooks/*.ipynb", "pyproject.toml", "README.md", "LICENSE")
THERE = Path("/autograder")
WALLS = ("file system", "Landlock")  # either keeps an answer from reading the reference answers
TOO_WEAK = (
    "Nothing was graded: this server cannot keep an answer from reading the course's own answers. Your instructor can "
    "make the autograder with --accept-weaker, or grade elsewhere with `make grade`."
)


def write_bundle(
    output: Path = BUNDLE, lesson: str | None = None, accept_weaker: bool = False, grade: Path | None = None
) -> int:
    """Write the zip that Gradescope takes as an autograder, or, there, `grade` what lies in that folder; returns 0.

    It grades one `lesson`, like "03", or all that are handed in. Where the server has no wall around the answers'
    files, nothing is graded unless you `accept_weaker`.
    """
    if grade:
        results = grade_submission(grade, lesson, accept_weaker)
        write_whole(THERE / "results" / "results.json", json.dumps(results, indent=1))
        return 0
    options = [f"--lesson {lesson}"] if lesson else []
    options += ["--accept-weaker"] if accept_weaker else []
    scripts = json.loads((ASSETS / "gradescope.json").read_text(encoding="utf-8"))
    files = {name: "\n".join(lines).replace("OPTIONS", " ".join(options)).encode() for name, lines in scripts.items()}
    for path in (path for pattern in COURSE for path in ROOT.glob(pattern)):
        if path.is_file() and "__pycache__" not in path.parts:
            files[f"course/{path.relative_to(ROOT)}"] = path.read_bytes()
    write_whole(output, zip_of(files))
    print(f"{output}: upload it as the autograder of a programming assignment. It holds the answers: keep it.")
    print("Students upload what `make submit` writes, or a notebook.")
    print("The hidden test `sandbox` says what kept the answers in.")
    return 0


def grade_submission(folder: Path, lesson: str | None = None, accept_weaker: bool = False) -> dict[str, Any]:
    """Grade what one student handed in, all that lies in `folder`; returns Gradescope's results."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report"
        shutil.copytree(folder, Path(place) / "class" / "student")
        try:
            run(Path(place) / "class", report, lesson=lesson, exit_zero=True)
        except CourseError as error:
            return {"score": 0, "output": str(error), "tests": []}
        found = json.loads((report / "scores.json").read_text(encoding="utf-8"))
    return to_results(found["scores"], found["isolation"], accept_weaker)


def to_results(
    scores: Sequence[Mapping[str, Any]], isolation: Sequence[str], accept_weaker: bool = False
) -> dict[str, Any]:
    """Gradescope's results for the rows of `scores.json`: a test an exercise, and a hidden one about the sandbox.

    Without a wall around the answers' files there is no score, unless the instructor accepts that.
    """
    walls = " ".join(isolation).partition("MISSING")[0]
    is_kept_in = any(wall in walls for wall in WALLS)
    sandbox = {"name": "sandbox", "visibility": "hidden", "output": "\n".join(isolation), "max_score": 0, "score": 0}
    sandbox["status"] = "passed" if is_kept_in else "failed"
    if isolation and not is_kept_in and not accept_weaker:
        return {"score": 0, "output": TOO_WEAK, "tests": [sandbox]}
    tests = [_to_test(row) for row in scores]
    return {"score": neat(sum(row["points"] for row in scores)), "tests": [*tests, sandbox]}


def _to_test(row: Mapping[str, Any]) -> dict[str, Any]:
    said = [row["sentence"], f"Likely cause: {row['cause']}" if row["cause"] else ""]
    if row["look_by_hand"] or row["stage"] in NO_SCORE:
        said.append(f"Your instructor will look at this: {row['reason']}")
    return {
        "name": ": ".join(filter(None, (row["lesson"], row["exercise"]))),
        "score": row["points"],
        "max_score": row["possible"],
        "status": "passed" if row["stage"] == Stage.PASSED else "failed",
        "output": "\n".join([row["stage"], *filter(None, said)]),
        "output_format": "text",
        "visibility": "visible",
    }
