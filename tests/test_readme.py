"""The README: its map of the lessons is theirs, and every command it shows exists and takes what it is given."""

import re

import pytest

from course_utils.__main__ import TARGETS, parse
from course_utils.authoring import readme
from course_utils.explorers import GradientFlow
from course_utils.root import ROOT, CourseError

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PROSE = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
LINES = [line.split("  #")[0] for block in BLOCKS for line in block.splitlines()] + re.findall(r"`([^`]+)`", PROSE)
PYTHON = r"(?:\.venv[/\\](?:bin|Scripts)[/\\])?(?:py|python3?)"
SOURCE = "# %% [markdown]\n# # {}\n#\n# **Time:** about {} minutes.\n\n{}"
TABLE = "# %% [markdown]\n# | 01 | [Old name](01_first.ipynb) | to look | 5 |\n"
ANSWER = '# %% tags=["answer"]\ndef look():\n    ...\n'


def test_the_picture_is_what_an_explorer_draws_before_its_first_step():
    """To draw it anew, write this to the file."""
    drawn = GradientFlow("w = 2; x = 3; b = 1; a = w * x; s = a + b; y = s ** 2", hooks={"a": "print"}).still_picture
    assert (ROOT / "notebooks" / "images" / "explorer.svg").read_text(encoding="utf-8") == f"{drawn}\n"


def shown(start: str) -> list[str]:
    """The commands in the README that match the pattern `start`, without their comments."""
    return sorted({" ".join(line.split()) for line in LINES if re.match(start, line)})


def test_only_the_map_of_the_readme_changes_and_what_is_lacking_is_named(tmp_path):
    assert readme.renew(write=False), "run `make notebooks`: it renews the map of the lessons in the README"
    file, folder = tmp_path / "README.md", tmp_path / "source"
    folder.mkdir()
    (folder / "00_start_here.py").write_text(SOURCE.format("Start", 10, TABLE))
    (folder / "01_first.py").write_text(SOURCE.format("First steps", 25, ANSWER))
    file.write_text(f"# Course\n\n{readme.HEAD}| 99 | gone | x | 0 | 0 |\n\nThe end.\n")
    assert [readme.renew(file, tmp_path, write=write) for write in (False, True, True)] == [False, False, True]
    first = f"| 00 | [Start](notebooks/00_start_here.ipynb) | {readme.START} | 0 | 10 |\n"
    second = "| 01 | [First steps](notebooks/01_first.ipynb) | to look | 1 | 25 |\n"
    assert file.read_text() == f"# Course\n\n{readme.HEAD}{first}{second}\nThe end.\n"
    file.write_text("# Course\n")
    with pytest.raises(CourseError, match="no place for the map"):
        readme.renew(file, tmp_path)
    for name, minutes, part in (("02_new", 30, "has no row"), ("01_first", "some", "Time:")):
        (folder / f"{name}.py").write_text(SOURCE.format("New", minutes, ANSWER))
        with pytest.raises(CourseError, match=f"{name}: .*{part}"):
            readme.rows(tmp_path)


@pytest.mark.parametrize("line", shown("make [a-z]"))
def test_every_make_command_is_a_target_with_its_variables(line):
    _, target, *variables = re.findall(r"(?:[^\s\"\[\]]|\"[^\"]*\")+", line)  # the brackets mark what is optional
    assert all("=" in variable for variable in variables), f"{line}: VARIABLE=value"
    known = {*re.findall(r"[A-Z]+", TARGETS[target][1]), "PYTHON", "TORCH"}
    assert {variable.partition("=")[0] for variable in variables} <= known


def test_every_python_command_and_extra_that_is_named_exists():
    for line in shown(rf"{PYTHON} -m course_utils [a-z]"):
        assert not parse(line.split()[3:])[1].get("arguments"), line
    extras = {name for line in shown(r".*pip install ") for name in re.findall(r"[a-z]+", line.partition("[")[2])}
    known = re.findall(r"^([a-z-]+) = \[$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert {"dev", "instructor"} <= extras <= set(known)
