"""What opens the course elsewhere: the branch of copies, the cell that installs the course, links with one address."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from types import SimpleNamespace

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from course_utils.authoring import build
from course_utils.authoring.release import student_readme
from course_utils.exercises import saved_progress
from course_utils.root import ASSETS, ROOT, repository

PLACEHOLDER = "/".join(("https://github.com", "OWNER", "REPOSITORY"))  # until the course has an address


@pytest.mark.slow
def test_the_branch_holds_copies_whose_first_cell_installs_the_course(tmp_path):
    """By `make copies`, with this Python in the place of the course's environment."""
    if not shutil.which("make"):
        pytest.skip("there is no make on this machine")
    course = tmp_path / "course"
    shutil.copytree(ROOT, course, ignore=shutil.ignore_patterns(".git", ".venv", "work", "build", "tests", ".*_cache"))
    python = course / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = course / ".venv" / ".done-cpu"
    done.write_text(str(course))
    who = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def run(*command: str, check: bool = True) -> str:
        options = {"cwd": course, "env": os.environ | who, "check": check, "text": True}
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options).stdout

    run("git", "init", "--quiet")
    if repository() == PLACEHOLDER:
        said = run("make", "copies", check=False)
        assert "Write the address as `Repository` in pyproject.toml" in said
        assert not (course / "build" / "copies").exists()
        assert run("git", "branch", "--list", "copies") == ""
    address = "https://github.com/us/hooks"
    project = course / "pyproject.toml"
    project.write_text(project.read_text().replace(f'"{repository()}"', f'"{address}"'))
    done.touch()  # or make would install the course anew, over this Python's own
    said = run("make", "copies")
    assert run("git", "log", "--format=%s", "copies") == "The learner's copies\n"
    names = run("git", "ls-tree", "--name-only", "-r", "copies").split()
    assert names == [saved_progress.MARKER, *sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))]
    for name in names[1:]:
        cells = json.loads(run("git", "show", f"copies:{name}"))["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
        assert f'--constraint "{{stays}}" {address}/archive/HEAD.zip\n' in "".join(code[0]["source"])
    assert "https://colab.research.google.com/github/us/hooks/blob/copies/00_start_here.ipynb\n" in said


def test_the_first_cell_of_a_copy_asks_pip_for_the_course_and_for_no_other_pytorch(monkeypatch):
    cell = TransformerManager().transform_cell((ASSETS / "get_course.txt").read_text(encoding="utf-8"))
    asked, settled = [], []
    namespace = {"get_ipython": lambda: SimpleNamespace(run_line_magic=lambda *each: asked.append(each))}
    monkeypatch.setattr(saved_progress, "keep_here", lambda: settled.append(1))
    exec(cell, namespace)
    assert (asked, settled) == ([], [1]), "where the course is, nothing is installed"
    monkeypatch.setitem(sys.modules, "course_utils", None)  # as Python looks where there is none
    monkeypatch.setitem(sys.modules, "course_utils.exercises.saved_progress", None)
    with pytest.raises(SystemExit, match="PyTorch is too old"):
        exec(cell, namespace)
    assert asked == [("pip", 'install --quiet --constraint "{stays}" ARCHIVE')]
    assert set(namespace["stays"].read_text().split()) == {
        f"{each}=={version(each)}" for each in ("torch", "torchvision")
    }


def test_the_address_stands_once_and_the_readme_follows_it(tmp_path, monkeypatch):
    slug = repository().removeprefix("https://github.com/")
    listed = subprocess.run(["git", "grep", "-lF", slug], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert set(listed) <= {"pyproject.toml", "README.md"}
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (tmp_path / "README.md").write_text(text, encoding="utf-8")
    monkeypatch.setattr(build, "repository", lambda: "https://github.com/us/hooks")
    assert not build.renew_map(tmp_path / "README.md")
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == text.replace(slug, "us/hooks")
    assert slug not in student_readme(text), "which is the whole course, with the answers"


@pytest.mark.parametrize("place", ["a folder", "no folder", "colab"])
def test_a_copy_keeps_progress_beside_itself_and_says_for_how_long(tmp_path, monkeypatch, capsys, place):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COURSE_PROGRESS")
    asked = []
    if place == "colab":
        output = SimpleNamespace(enable_custom_widget_manager=lambda: asked.append(1))
        monkeypatch.setitem(sys.modules, "google.colab", SimpleNamespace())
        monkeypatch.setitem(sys.modules, "google.colab.output", output)
    if place == "no folder":
        monkeypatch.setattr(saved_progress.Path, "touch", lambda _: (_ for _ in ()).throw(PermissionError()))
    saved_progress.keep_here()
    saved_progress.save("predictions", "hook_on_a", "15")
    assert (tmp_path / "progress.json").exists() == (place != "no folder")
    said = {"a folder": r"kept .* in progress\.json\.", "no folder": "lost when", "colab": "until this Colab session"}
    assert re.search(said[place], capsys.readouterr().out)
    assert asked == ([1] if place == "colab" else [])
