"""The README: its map of the lessons is theirs, and every command it shows exists and takes what it is given."""

import re
import sys

import nbformat
import pytest

from course_utils.__main__ import MAKE_ONLY, TARGETS, parse
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
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def shown(start: str) -> list[str]:
    """The commands in the README that match the pattern `start`, without their comments."""
    lines = [" ".join(line.split("  #")[0].split()) for block in BLOCKS for line in block.splitlines()]
    return sorted({line for line in [*lines, *INLINE] if re.match(start, line)})


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


SOURCE = "# %% [markdown]\n# # {}\n#\n# **Time:** about {} minutes.\n\n{}"
TABLE = "# %% [markdown]\n# | 01 | [Old name](01_first.ipynb) | to look | 5 |\n"
ANSWER = '# %% tags=["answer"]\ndef look():\n    ...\n'


def test_only_the_map_of_the_readme_changes_and_what_is_lacking_is_named(tmp_path):
    file, folder = tmp_path / "README.md", tmp_path / "source"
    folder.mkdir()
    (folder / "00_start_here.py").write_text(SOURCE.format("Start", 10, TABLE))
    (folder / "01_first.py").write_text(SOURCE.format("First steps", 25, ANSWER))
    file.write_text(f"# Course\n\n{readme.HEAD}| 99 | gone | x | 0 | 0 |\n\nThe end.\n", encoding="utf-8")
    assert not readme.renew(file, tmp_path, write=False)
    assert "gone" in file.read_text(encoding="utf-8")
    readme.renew(file, tmp_path)
    assert readme.renew(file, tmp_path, write=False)
    row = "| 01 | [First steps](notebooks/01_first.ipynb) | to look | 1 | 25 |"
    assert re.fullmatch(
        rf"# Course\n\n{re.escape(readme.HEAD)}\| 00 .*\n{re.escape(row)}\n\nThe end.\n", file.read_text()
    )
    file.write_text("# Course\n")
    with pytest.raises(ValueError, match="no place for the map"):
        readme.renew(file, tmp_path)
    for name, minutes, part in (("02_new", 30, "has no row"), ("01_first", "some", "Time:")):
        (folder / f"{name}.py").write_text(SOURCE.format("New", minutes, ANSWER))
        with pytest.raises(ValueError, match=f"{name}: .*{part}"):
            readme.rows(tmp_path)


@pytest.mark.parametrize("line", shown("make [a-z]"))
def test_every_make_command_is_a_target_with_its_variables(line):
    _, target, *variables = re.findall(r"(?:[^\s\"\[\]]|\"[^\"]*\")+", line)  # the brackets mark what is optional
    known = {*re.findall(r"[A-Z]+", TARGETS[target][1]), "PYTHON", "TORCH"}
    assert {variable.partition("=")[0] for variable in variables if "=" in variable} <= known
    assert all("=" in variable for variable in variables), f"{line}: VARIABLE=value"


@pytest.mark.parametrize("line", shown(rf"{PYTHON} -m course_utils [a-z]"))
def test_every_python_command_exists_and_takes_its_options(line):
    _, values = parse(line.split()[3:])
    assert not values.get("arguments")


def test_every_extra_and_every_file_that_is_named_exists():
    extras = {name for line in shown(r".*pip install ") for name in re.findall(r"[a-z]+", line.partition("[")[2])}
    assert {"dev", "instructor"} <= extras <= set(EXTRAS)
    links = re.findall(r"\]\(([^)#\s]+)\)", README)
    assert len(links) > 9
    assert [link for link in links if not (ROOT / link).exists()] == []
    assert set(MAKE_ONLY) < set(TARGETS)
