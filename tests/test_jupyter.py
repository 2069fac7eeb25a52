"""JupyterLab on the learner's copies: no question in the way, no settings from elsewhere, free arrow keys."""

import json
import os
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from course_utils.exercises.saved_progress import MARKER
from course_utils.lab import jupyter
from course_utils.root import CourseError


@pytest.fixture
def notebooks(tmp_path):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    for name in ("00_start_here", "01_one"):
        cell = nbformat.v4.new_code_cell("1 + 1", outputs=[nbformat.v4.new_output("stream", text="2")])
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), folder / f"{name}.ipynb")
    return folder


def prepare(notebooks) -> list[str]:
    return jupyter.prepare(notebooks.parent / "home", notebooks.parent / "work", notebooks)


def is_trusted(notebooks, name: str) -> bool:
    notary = NotebookNotary(data_dir=str(notebooks.parent / "home" / "data"))
    trusted = notary.check_signature(nbformat.read(notebooks.parent / "work" / name, as_version=4))
    notary.store.close()
    return trusted


def add_cell(path, text: str) -> None:
    made = nbformat.read(path, as_version=4)
    made.cells.append(nbformat.v4.new_code_cell(text, outputs=[nbformat.v4.new_output("stream", text="4")]))
    nbformat.write(made, path)


def test_lessons_are_copied_into_a_marked_folder_and_trusted(notebooks):
    assert prepare(notebooks) == []
    assert {MARKER, "00_start_here.ipynb", "01_one.ipynb"} <= set(os.listdir(notebooks.parent / "work"))
    assert jupyter.MARKER == MARKER
    assert is_trusted(notebooks, "01_one.ipynb")


def test_an_updated_copy_is_trusted_if_the_learners_was(notebooks):
    """Pictures that the new edition brings show at once; what came from elsewhere stays untrusted."""
    prepare(notebooks)
    add_cell(notebooks.parent / "work" / "01_one.ipynb", "from elsewhere")
    for name in ("00_start_here", "01_one"):
        add_cell(notebooks / f"{name}.ipynb", "2 + 2")
    first, second = prepare(notebooks)
    assert first == "00_start_here.ipynb: a new edition."
    assert second.startswith("01_one.ipynb: a new edition, with your 0 answers and 1 cell of your own.")
    assert is_trusted(notebooks, "00_start_here.ipynb")
    assert not is_trusted(notebooks, "01_one.ipynb")


def test_no_lessons_and_a_port_in_use_are_said(tmp_path):
    with pytest.raises(CourseError, match=r"There is no lesson in .*make notebooks"):
        jupyter.prepare(tmp_path / "home", tmp_path / "work", tmp_path)
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CourseError, match=rf"Port {port} is in use.* make lab PORT={port + 1}"):
            jupyter.open_lab(port)


@pytest.mark.parametrize("system", ["posix", "nt"])
def test_open_lab_takes_the_place_of_this_process_where_it_can(notebooks, monkeypatch, capsys, system):
    run = []
    monkeypatch.setattr(jupyter.sys, "prefix", str(notebooks.parent))
    monkeypatch.setattr(jupyter, "prepare", lambda home: ["01_one.ipynb: a new edition."])
    monkeypatch.setattr(jupyter.subprocess, "call", lambda command, env: run.append((command, env)))
    monkeypatch.setattr(jupyter, "os", SimpleNamespace(name=system, environ={}, geteuid=lambda: 0))
    monkeypatch.setattr(jupyter.os, "execve", lambda path, command, env: run.append((command, env)), raising=False)
    jupyter.open_lab(free_port(), ["--no-browser"])
    assert run[0][0][-1] == "--no-browser"
    assert run[0][1]["JUPYTER_CONFIG_DIR"] == str(notebooks.parent / "jupyter-home" / "config")
    assert capsys.readouterr().out.startswith("01_one.ipynb: a new edition.\nOpening JupyterLab on port")


def test_the_learners_own_jupyter_is_out_of_the_way(tmp_path):
    mine = {"JUPYTER_PATH": "/mine", "JUPYTERLAB_SETTINGS_DIR": "/mine", "JUPYTER_CONFIG_DIR": "/mine", "HOME": "/me"}
    isolated = jupyter.isolate_jupyter(mine, tmp_path)
    assert "/mine" not in isolated.values()
    assert isolated["HOME"] == "/me"
    assert isolated["IPYTHONDIR"].startswith(str(tmp_path))


def test_make_lab_frees_the_arrow_keys_of_the_installed_jupyterlab_in_widgets_only(tmp_path):
    jupyter.configure_lab(tmp_path)
    written = json.loads((tmp_path / "config" / "labconfig" / "default_setting_overrides.json").read_text())
    shortcuts = written[jupyter.SHORTCUTS]["shortcuts"]
    for key in ("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "X"):
        off, outside = (each for each in shortcuts if each["keys"] == [key])
        assert off["disabled"]
        assert outside["selector"] == off["selector"] + ":not(.jupyter-widgets *)"
        assert "disabled" not in outside
    assert not [each for each in shortcuts if "editMode" in each["selector"]], "what works in one place only stays"
    assert jupyter.free_keys_for_widgets(tmp_path / "nowhere.json") == {}


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.mark.slow
def test_jupyterlab_opens_on_the_first_lesson_without_a_question(notebooks, tmp_path):
    """The real JupyterLab: the printed address works as it is, and the page is told to ask for nothing."""
    port = free_port()
    prepare(notebooks)
    environment = jupyter.isolate_jupyter({**os.environ, "HOME": str(tmp_path / "me")}, tmp_path / "home")
    command = jupyter.lab_command(port, ["--no-browser"], tmp_path / "work")
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        lines = (re.search(rf"http://127\.0\.0\.1:{port}/\S+token=\S+", line) for line in server.stdout)
        address = next(found.group() for found in lines if found)
        assert "/lab/tree/00_start_here.ipynb?token=" in address
        page = fetch(address, server)
    finally:
        server.terminate()
        server.communicate()
    told = json.loads(re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL).group(1))
    assert "@jupyterlab/apputils-extension:announcements" in told["disabledExtensions"]
    assert (told["buildCheck"], told["buildAvailable"]) == (False, False)
    assert not list((tmp_path / "me").glob("**/*")), "something was written to the learner's own home"


def fetch(address: str, server: subprocess.Popen) -> str:
    """Get a page from a server that says its address a moment before it listens."""
    while server.poll() is None:
        try:
            return urllib.request.urlopen(address, timeout=60).read().decode()
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            time.sleep(0.05)
    raise AssertionError("JupyterLab ended before it answered")
