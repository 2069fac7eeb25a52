"""The house stays small, and its imports point downwards."""

import re
import subprocess
import sys

import pytest

from course_utils.root import ROOT

PACKAGE, TESTS = ROOT / "course_utils", ROOT / "tests"
APART = (PACKAGE / "lessons", TESTS / "bench", TESTS / "browser")  # content, benchmarks and the browser's driver


def lines(path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def files(folder) -> list:
    """The Python files in the folder, but for those that stand apart."""
    return [path for path in folder.rglob("*.py") if not any(apart in path.parents for apart in APART)]


def test_imports_point_downwards_and_never_in_a_circle():
    """The contracts are in pyproject.toml; `lint-imports` says where one is broken."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[done.stdout.find("Broken contracts") :] + done.stderr


@pytest.mark.parametrize(
    ("folder", "budget"), [("course_utils", 13_500), ("course_utils/grading", 3_900), ("tests", 10_000)]
)
def test_a_room_keeps_its_budget_of_lines(folder, budget):
    found = sum(map(lines, files(ROOT / folder)))
    assert found <= budget, f"{folder} has {found - budget} lines more than its {budget}: remove as many"


@pytest.mark.parametrize("folder", [PACKAGE, TESTS], ids=lambda folder: folder.name)
def test_no_file_is_too_long_to_hold(folder):
    long = {str(path.relative_to(ROOT)): lines(path) - 500 for path in files(folder) if lines(path) > 500}
    assert not long, f"lines above 500, by file: {long}"


def test_few_modules_stand_outside_the_rooms():
    outside = sorted(path.name for path in PACKAGE.glob("*.py"))
    assert len(outside) <= 4, f"{len(outside) - 4} too many in course_utils itself: {', '.join(outside)}"


def test_the_readme_is_short():
    found = lines(ROOT / "README.md")
    assert found < 120, f"README.md has {found - 119} lines too many"
    assert not re.search(r"^### ", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE), (
        "guides are in rooms"
    )
