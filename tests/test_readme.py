"""The README: its map of the lessons is theirs, and every command it shows exists and takes what it is given."""

import re
import subprocess
import sys

import nbformat
import pytest

from course_utils.__main__ import COMMANDS, parse_options
from course_utils.authoring import readme
from course_utils.authoring.source import FOLDER, tags_of
from course_utils.root import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it along on Python 3.10

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PROSE = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
INLINE = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", PROSE)]
PYTHON = r"(?:\.venv[/\\](?:bin|Scripts)[/\\])?(?:py|python3?)"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def shown(start: str) -> list[str]:
    """The commands in the README that match the pattern `start`, without their comments."""
    lines = [" ".join(line.split("  #")[0].split()) for block in BLOCKS for line in block.splitlines()]
    return sorted({line for line in [*lines, *INLINE] if re.match(start, line)})


# ---------------------------------------------------------------------------------------------------------------- map


def test_the_map_is_what_the_lessons_say():
    assert readme.renew(write=False), "run `make notebooks`: it renews the map of the lessons in the README"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_map_agrees_with_the_notebook_that_learners_open(path):
    notebook = nbformat.read(path, as_version=4)
    (row,) = re.findall(rf"^\| (\d\d) \| \[(.+?)\]\(notebooks/{path.name}\) \| .+ \| (\d+) \| (\d+) \|$", README, re.M)
    number, title, exercises, minutes = row
    assert number == path.stem[:2]
    assert notebook.cells[0].source.startswith(f"# {title}\n")
    assert int(exercises) == sum("answer" in tags_of(cell) for cell in notebook.cells)
    assert any(f"**Time:** about {minutes} minutes" in cell.source for cell in notebook.cells)


# ----------------------------------------------------------------------------------------------------------- commands


def test_the_readme_shows_commands_at_all():
    assert len(shown("make ")) >= 8
    assert shown(rf"{PYTHON} -m course_utils ")
    assert shown(rf"({PYTHON} -m )?pip install ")


@pytest.mark.parametrize("line", shown("make [a-z]"))
def test_every_make_command_is_a_target_with_its_variables(line):
    _, target, *variables = re.findall(r"(?:[^\s\"\[\]]|\"[^\"]*\")+", line)  # the brackets mark what is optional
    assert target in COMMANDS, line
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"[A-Z]+", COMMANDS[target].variables)) | {"PYTHON", "TORCH"}
    for variable in variables:
        name, sign, _ = variable.partition("=")
        assert sign, f"{line}: {variable} is not VARIABLE=value"
        assert name in known, f"{line}: {target} does not take {name}"
        assert re.search(rf"\b{name}\b", makefile), line


@pytest.mark.parametrize("line", shown(rf"{PYTHON} -m course_utils [a-z]"))
def test_every_python_command_exists_and_takes_its_options(line):
    _, _, _, name, *arguments = line.split()
    assert name in COMMANDS, line
    _, rest = parse_options(name, arguments)
    assert not [each for each in rest if each.startswith("-")], f"{line}: {name} does not take {rest}"


@pytest.mark.parametrize("line", shown(rf"{PYTHON} -m course_utils\."))
def test_every_module_that_is_run_has_help(line):
    module = line.split()[2]
    done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout


@pytest.mark.parametrize("line", shown(rf"({PYTHON} -m )?pip install .*\["))
def test_every_extra_exists(line):
    (extras,) = re.findall(r"\[([a-z,-]+)\]", line)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"]), line


def test_every_file_and_folder_that_is_named_exists():
    named = [code for code in INLINE if re.fullmatch(r"(course_utils|notebooks|tests)(/[\w.]+)+/?", code)]
    assert named
    to_be_made = ("NN", "_09", "09_")  # in how to add a lesson
    missing = [code for code in named if not (ROOT / code).exists() and not any(part in code for part in to_be_made)]
    assert not missing
