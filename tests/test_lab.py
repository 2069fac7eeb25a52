"""JupyterLab on the learner's copies, without a question or settings from elsewhere; the doctor's findings."""

import importlib
import json
import os
import re
import shutil
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
from course_utils.lab import doctor as module
from course_utils.lab import jupyter
from course_utils.lab.doctor import Diagnosis, Finding, doctor, examine
from course_utils.root import ROOT, CourseError
from tests.browser.lab_page import find_port


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
    assert first.startswith("00_start_here.ipynb: a new edition")
    assert second.startswith("01_one.ipynb: a new edition")
    assert trusted() == [True, False]


def test_no_lessons_and_a_port_in_use_are_said(tmp_path):
    with pytest.raises(CourseError, match=r"There is no lesson in .*make notebooks"):
        jupyter.prepare(tmp_path / "home", tmp_path / "work", tmp_path)
    with socket.create_server(("0.0.0.0", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(CourseError, match=rf"Port {port} is in use.* make lab PORT={port + 1}"):
            jupyter.open_lab(port)


@pytest.mark.parametrize("system", ["posix", "nt"])
def test_open_lab_takes_the_place_of_this_process_where_it_can(tmp_path, monkeypatch, capsys, system):
    run, theirs = [], {"JUPYTER_PATH": "/mine", "JUPYTERLAB_SETTINGS_DIR": "/mine", "JUPYTER_CONFIG_DIR": "/mine"}
    monkeypatch.setattr(jupyter.sys, "prefix", str(tmp_path))
    monkeypatch.setattr(jupyter, "prepare", lambda home: ["01_one.ipynb: a new edition."])
    monkeypatch.setattr(jupyter.subprocess, "call", lambda command, env: run.append(("nt", command, env)))
    monkeypatch.setattr(jupyter, "os", SimpleNamespace(name=system, environ={"HOME": "/me", **theirs}))
    jupyter.os.geteuid = lambda: 0
    jupyter.os.execve = lambda path, command, env: run.append(("posix", command, env))
    jupyter.open_lab(find_port(), ["--no-browser"])
    ((found, command, environment),) = run
    assert (found, command[-2:]) == (system, [f"--ServerApp.allow_root={system == 'posix'}", "--no-browser"])
    assert "/mine" not in environment.values()
    assert (environment["HOME"], environment["IPYTHONDIR"]) == ("/me", str(tmp_path / "jupyter-home" / "ipython"))
    assert capsys.readouterr().out.startswith("01_one.ipynb: a new edition.\nOpening JupyterLab on port")


@pytest.mark.slow
def test_jupyterlab_opens_on_the_first_lesson_without_a_question(course, tmp_path):
    jupyter.prepare(*course)
    written = (tmp_path / "home" / "config" / "labconfig" / "default_setting_overrides.json").read_text()
    assert '"fetchNews": "false"' in written
    environment = jupyter.isolate_jupyter({**os.environ, "HOME": str(tmp_path / "me")}, tmp_path / "home")
    port = find_port()
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


FULL = (shutil, "disk_usage", lambda folder: SimpleNamespace(free=3e8))


def installed(**versions):  # an empty one means "not installed"
    def distributions(real=module.installed.distributions, **query):
        if query.get("name") not in versions:
            return real(**query)
        version = versions[query["name"]]
        return [SimpleNamespace(version=version)] if version else []

    return module.installed, "distributions", distributions


def unloadable(package):
    def load(name, real=importlib.import_module):
        if name == package:
            raise RuntimeError("no nms\nmore")
        return real(name)

    return module.importlib, "import_module", load


@pytest.mark.parametrize(
    ("condition", "found", "mend"),
    [
        (installed(torch="0.1.0+cpu"), r"^fail .*torch 0\.1\.0\+cpu \(needed: >=2", "`make setup`"),
        (installed(numpy="1.0", tqdm=""), r"^fail .*numpy 1\.0 .*tqdm is missing", "`make setup`"),
        (installed(jupyterlab_widgets="1.1.0"), r"^fail .*jupyterlab_widgets 1\.1\.0 \(needed: >=3\)", "`make setup`"),
        (installed(comm=""), r"^fail .*comm is missing \(needed: any version\)", "`make setup`"),
        (installed(**{"course-utils": ""}), "^fail .*another Python", "Change Kernel"),
        (unloadable("torchvision"), r"^fail  torchvision does not load: RuntimeError: no nms$", "from one index"),
        (unloadable("ipywidgets"), r"^fail  ipywidgets does not load: RuntimeError: no nms$", "`make setup`"),
        (FULL, r"^warn .* 0\.3 GB are free", "free some"),
        ((module.os, "access", lambda *_: False), "^fail  Nothing can be saved in ", "a folder of your own"),
    ],
)
def test_each_condition_is_found_by_name_and_can_be_mended(tmp_path, monkeypatch, condition, found, mend):
    monkeypatch.setattr(*condition)
    (wrong,) = [finding for finding in examine(tmp_path) if finding.status != "ok"]
    assert re.search(found, str(wrong), re.MULTILINE)
    assert mend in wrong.mend


def test_unusual_versions_that_are_new_enough_are_fine(tmp_path, monkeypatch):
    monkeypatch.setattr(*installed(ipywidgets="9.0.0rc1", tqdm="4.66.0.1", torch="99.0+cpu"))
    assert {finding.status for finding in examine(tmp_path)} == {"ok"}


def test_what_it_says_of_a_healthy_machine(tmp_path, monkeypatch):
    """In a learner's copy and in a build the same; elsewhere that progress is lost; with details versions and paths."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_PROGRESS", "off")
    fine = doctor()
    assert [finding.status for finding in fine.findings] == ["ok"] * 8
    assert not re.search(rf"{sys.prefix}|\d", str(fine)), "nothing of the machine"
    monkeypatch.delenv("COURSE_PROGRESS")
    assert [finding.status for finding in doctor().findings] == ["ok"] * 8 + ["warn"]
    assert "8 of 9 checks are fine" in doctor().summary()
    (tmp_path / MARKER).touch()
    assert doctor() == fine
    text = str(doctor(details=True))
    assert re.search(rf"at {sys.executable}\n(.*\n)*.*ipywidgets 8\.\d", text)
    assert "note  This is your copy of the lessons" in text


def test_the_html_face_says_everything_in_words_and_escapes_it():
    bad = Finding("fail", "The name is <b>wrong</b>.", "run `make setup`.", "at <here>")
    page = Diagnosis((Finding("ok", "Fine"), bad))._repr_html_()
    assert '<span aria-hidden="true">✗</span> fail</strong> <div>The name is &lt;b&gt;wrong&lt;/b&gt;.' in page
    assert "<div>at &lt;here&gt;</div><div>To mend it: run <code>make setup</code>.</div>" in page


def test_the_command_prints_details_and_fails_only_for_a_failure(capsys, monkeypatch):
    assert module.main() == 0
    monkeypatch.setattr(*installed(tqdm=""))
    assert module.main() == 1
    assert re.search(rf"environment {sys.prefix}[\s\S]*tqdm is missing", capsys.readouterr().out)
