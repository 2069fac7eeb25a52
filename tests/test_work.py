"""Copying the lessons, choosing a port, and the JupyterLab that opens."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from course_utils.lab import jupyter
from course_utils.lab.update import RECORD, renew_lessons
from course_utils.root import CourseError


@pytest.fixture
def notebooks(tmp_path):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    for name in ("00_start_here", "01_one"):
        cell = nbformat.v4.new_code_cell("1 + 1", outputs=[nbformat.v4.new_output("stream", text="2")])
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), folder / f"{name}.ipynb")
    (folder / "notes.txt").write_text("not a lesson")
    return folder


@pytest.fixture
def busy_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


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


def test_lessons_are_copied_into_a_marked_folder(notebooks, tmp_path):
    new = jupyter.copy_lessons(notebooks, tmp_path / "work")
    assert [path.name for path in new] == ["00_start_here.ipynb", "01_one.ipynb"]
    assert sorted(os.listdir(tmp_path / "work")) == [jupyter.MARKER, RECORD, "00_start_here.ipynb", "01_one.ipynb"]


def test_a_learners_file_is_never_overwritten_and_a_new_lesson_appears(notebooks, tmp_path):
    jupyter.copy_lessons(notebooks, tmp_path / "work")
    mine = tmp_path / "work" / "01_one.ipynb"
    mine.write_text("my answers")
    (notebooks / "01_one.ipynb").write_text("a new edition")
    (notebooks / "02_two.ipynb").write_text("{}")
    assert [path.name for path in jupyter.copy_lessons(notebooks, tmp_path / "work")] == ["02_two.ipynb"]
    assert mine.read_text() == "my answers"


def test_a_copy_can_be_written_where_the_original_cannot(notebooks, tmp_path):
    (notebooks / "01_one.ipynb").chmod(0o444)
    jupyter.copy_lessons(notebooks, tmp_path / "work")
    assert (tmp_path / "work" / "01_one.ipynb").stat().st_mode & 0o200


def test_a_copy_that_fails_leaves_no_half_lesson(notebooks, tmp_path, monkeypatch):
    def fill_the_disk(source, target):
        target.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jupyter.shutil, "copyfile", fill_the_disk)
    with pytest.raises(OSError, match="No space"):
        jupyter.copy_lessons(notebooks, tmp_path / "work")
    assert os.listdir(tmp_path / "work") == [jupyter.MARKER]


def test_no_lessons_and_a_file_in_the_way_are_said(notebooks, tmp_path):
    with pytest.raises(CourseError, match=r"There is no lesson in .*make notebooks"):
        jupyter.copy_lessons(tmp_path, tmp_path / "work")
    (tmp_path / "work").write_text("a file")
    with pytest.raises(CourseError, match="is a file"):
        jupyter.copy_lessons(notebooks, tmp_path / "work")


@pytest.mark.parametrize("port", ["abc", "-1", "0", "65536", "88 88", "8888.0", "٨٨٨٨"])
def test_a_port_that_is_none_is_said(port):
    with pytest.raises(CourseError, match=re.escape(f"PORT={port} is not a port")):
        jupyter.choose_port(port)


def test_a_port_in_use_is_said_with_one_that_is_free(busy_port):
    with pytest.raises(CourseError) as caught:
        jupyter.choose_port(str(busy_port))
    said = re.fullmatch(rf"Port {busy_port} is in use.* make lab PORT=(\d+)", str(caught.value))
    assert said
    assert jupyter.choose_port(said.group(1)) == said.group(1)


def test_a_port_that_only_another_address_uses_counts_as_in_use():
    with socket.socket() as server:
        server.bind(("0.0.0.0", 0))
        server.listen()
        with pytest.raises(CourseError, match="is in use"):
            jupyter.choose_port(str(server.getsockname()[1]))


def test_fresh_copies_are_trusted_and_a_learners_file_is_not_signed(notebooks, tmp_path):
    lessons = jupyter.copy_lessons(notebooks, tmp_path / "work")
    jupyter.trust_lessons(lessons[:1], tmp_path / "home")
    notary = NotebookNotary(data_dir=str(tmp_path / "home" / "data"))
    trusted = [notary.check_signature(nbformat.read(lesson, as_version=4)) for lesson in lessons]
    notary.store.close()
    assert trusted == [True, False]


def test_a_renewed_lesson_is_trusted_if_the_learners_was(notebooks, tmp_path):
    """Pictures that the new edition brings show at once; what came from elsewhere stays untrusted."""
    lessons = jupyter.copy_lessons(notebooks, tmp_path / "work")
    for lesson in lessons:
        edited = nbformat.read(lesson, as_version=4)
        edited.cells.append(nbformat.v4.new_markdown_cell("my note"))
        nbformat.write(edited, lesson)
    jupyter.trust_lessons(lessons[:1], tmp_path / "home")
    for original in jupyter.find_lessons(notebooks):
        newer = nbformat.read(original, as_version=4)
        newer.cells.append(nbformat.v4.new_code_cell("2 + 2", outputs=[nbformat.v4.new_output("stream", text="4")]))
        nbformat.write(newer, original)
    renewals = renew_lessons(jupyter.find_lessons(notebooks), tmp_path / "work")
    assert [found.renewed for found in renewals] == lessons
    jupyter.trust_renewed(renewals, tmp_path / "home")
    notary = NotebookNotary(data_dir=str(tmp_path / "home" / "data"))
    trusted = [notary.check_signature(nbformat.read(lesson, as_version=4)) for lesson in lessons]
    notary.store.close()
    assert trusted == [True, False]


def test_the_learners_own_jupyter_is_out_of_the_way(tmp_path):
    mine = {"JUPYTER_PATH": "/mine", "JUPYTERLAB_SETTINGS_DIR": "/mine", "JUPYTER_CONFIG_DIR": "/mine", "HOME": "/me"}
    isolated = jupyter.isolate_jupyter(mine, tmp_path)
    assert "/mine" not in isolated.values()
    assert isolated["HOME"] == "/me"
    assert isolated["IPYTHONDIR"].startswith(str(tmp_path))


@pytest.mark.slow
def test_jupyterlab_opens_on_the_first_lesson_without_a_question(notebooks, tmp_path):
    """The real JupyterLab: the printed address works as it is, and the page is told to ask for nothing."""
    lessons, home, port = tmp_path / "work", tmp_path / "home", str(free_port())
    jupyter.copy_lessons(notebooks, lessons)
    jupyter.configure_lab(home)
    environment = jupyter.isolate_jupyter({**os.environ, "HOME": str(tmp_path / "me")}, home)
    command = jupyter.lab_command(port, ["--no-browser"], lessons)
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        address = None
        for line in server.stdout:
            address = re.search(rf"http://127\.0\.0\.1:{port}/\S+token=\S+", line)
            if address:
                break
        assert address, "JupyterLab ended without an address"
        assert "/lab/tree/00_start_here.ipynb?token=" in address.group()
        page = fetch(address.group(), server)
    finally:
        server.terminate()
        server.communicate()
    told = json.loads(re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL).group(1))
    assert "@jupyterlab/apputils-extension:announcements" in told["disabledExtensions"]
    assert told["buildCheck"] is False
    assert told["buildAvailable"] is False
    assert not list((tmp_path / "me").glob("**/*")), "something was written to the learner's own home"


def test_a_server_as_root_is_allowed_only_where_root_starts_it(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
    assert "--allow-root" not in jupyter.lab_command("8888", [], tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    command = jupyter.lab_command("8888", ["--no-browser"], tmp_path)
    assert "--allow-root" in command
    assert "--ServerApp.ip=127.0.0.1" in command
    assert command[0] == sys.executable
    assert command[-1] == "--no-browser"
