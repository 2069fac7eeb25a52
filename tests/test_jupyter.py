"""JupyterLab on the learner's copies: no question in the way, no settings from elsewhere."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import urllib3
from nbformat.sign import NotebookNotary

from course_utils import __main__ as cli
from course_utils.exercises.saved_progress import MARKER
from course_utils.lab import jupyter
from course_utils.root import ROOT, CourseError


def add_cell(path, text: str) -> None:
    made = nbformat.read(path, as_version=4) if path.exists() else nbformat.v4.new_notebook()
    made.cells.append(nbformat.v4.new_code_cell(text, outputs=[nbformat.v4.new_output("stream", text="4")]))
    nbformat.write(made, path)


@pytest.fixture
def course(tmp_path):
    """Where the settings, the copies and two lessons lie."""
    (tmp_path / "notebooks").mkdir()
    for name in ("00_start_here.ipynb", "01_one.ipynb"):
        add_cell(tmp_path / "notebooks" / name, "1 + 1")
    return tmp_path / "home", tmp_path / "work", tmp_path / "notebooks"


def test_lessons_are_copied_and_an_updated_copy_is_trusted_if_the_learners_was(course):
    home, work, notebooks = course

    def trusted() -> list[bool]:
        notary = NotebookNotary(data_dir=str(home / "data"))
        return [notary.check_signature(nbformat.read(path, as_version=4)) for path in sorted(work.glob("*.ipynb"))]

    assert jupyter.prepare(*course) == []
    assert ((work / MARKER).exists(), trusted()) == (True, [True, True])
    add_cell(work / "01_one.ipynb", "from elsewhere")
    for path in notebooks.iterdir():
        add_cell(path, "2 + 2")
    first, second = jupyter.prepare(*course)
    assert first == "00_start_here.ipynb: a new edition."
    assert second.startswith("01_one.ipynb: a new edition, with your 0 answers and 1 cell of your own.")
    assert trusted() == [True, False]


def test_no_lessons_and_a_port_in_use_are_said(tmp_path):
    with pytest.raises(CourseError, match=r"There is no lesson in .*make notebooks"):
        jupyter.prepare(tmp_path / "home", tmp_path / "work", tmp_path)
    with socket.create_server(("0.0.0.0", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(CourseError, match=rf"Port {port} is in use.* make lab PORT={port + 1}"):
            jupyter.open_lab(port)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("system", ["posix", "nt"])
def test_open_lab_takes_the_place_of_this_process_where_it_can(tmp_path, monkeypatch, capsys, system):
    run, theirs = [], {"JUPYTER_PATH": "/mine", "JUPYTERLAB_SETTINGS_DIR": "/mine", "JUPYTER_CONFIG_DIR": "/mine"}
    monkeypatch.setattr(jupyter.sys, "prefix", str(tmp_path))
    monkeypatch.setattr(jupyter, "prepare", lambda home: ["01_one.ipynb: a new edition."])
    monkeypatch.setattr(jupyter.subprocess, "call", lambda command, env: run.append(("nt", command, env)))
    monkeypatch.setattr(jupyter, "os", SimpleNamespace(name=system, environ={"HOME": "/me", **theirs}))
    jupyter.os.geteuid = lambda: 0
    jupyter.os.execve = lambda path, command, env: run.append(("posix", command, env))
    jupyter.open_lab(free_port(), ["--no-browser"])
    ((found, command, environment),) = run
    assert (found, command[-2:]) == (system, [f"--ServerApp.allow_root={system == 'posix'}", "--no-browser"])
    assert "/mine" not in environment.values()
    assert (environment["HOME"], environment["IPYTHONDIR"]) == ("/me", str(tmp_path / "jupyter-home" / "ipython"))
    assert capsys.readouterr().out.startswith("01_one.ipynb: a new edition.\nOpening JupyterLab on port")


@pytest.mark.slow
def test_jupyterlab_opens_on_the_first_lesson_without_a_question(course, tmp_path):
    jupyter.prepare(*course)
    written = (tmp_path / "home" / "config" / "labconfig" / "default_setting_overrides.json").read_text()
    assert json.loads(written) == jupyter.SETTINGS
    environment = jupyter.isolate_jupyter({**os.environ, "HOME": str(tmp_path / "me")}, tmp_path / "home")
    port = free_port()
    command = jupyter.lab_command(port, ["--no-browser"], tmp_path / "work")
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        lab = rf"http://127\.0\.0\.1:{port}/lab/tree/00_start_here\.ipynb\?token=\S+"
        address = next(found[0] for line in server.stdout if (found := re.search(lab, line)))
        patient = urllib3.Retry(connect=9, backoff_factor=0.1)  # it says its address a moment before it listens
        page = urllib3.PoolManager(retries=patient).request("GET", address).data.decode()
    finally:
        server.terminate()
        server.communicate()
    told = json.loads(re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL).group(1))
    assert "@jupyterlab/apputils-extension:announcements" in told["disabledExtensions"]
    assert (told["buildCheck"], told["buildAvailable"]) == (False, False)
    assert not list((tmp_path / "me").glob("**/*")), "something was written to the learner's own home"


def test_a_hosted_copy_is_made_by_the_same_code_and_opens_nothing(monkeypatch, capsys):
    """As `.binder/postBuild` does; what it installs is what `.devcontainer/Dockerfile` does."""
    assert "course_utils lab --prepare" in (ROOT / ".binder" / "postBuild").read_text()
    asked = []
    monkeypatch.setattr(jupyter, "prepare", lambda home: asked.append(home) or ["Copied."])
    monkeypatch.setattr(jupyter.os, "execve", lambda *_: pytest.fail("opened"))
    assert cli.main(["lab", "--prepare"]) == 0
    assert (capsys.readouterr().out, asked) == ("Copied.\n", [Path(sys.prefix) / "jupyter-home"])
