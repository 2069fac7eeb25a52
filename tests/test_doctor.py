"""Each finding, by making the condition it is about; and the faces of a diagnosis."""

import importlib
import re
import shutil
import sys
from types import SimpleNamespace

import pytest

from course_utils.exercises.saved_progress import MARKER
from course_utils.lab import doctor as module
from course_utils.lab.doctor import Diagnosis, Finding, doctor, examine

FINE = """\
ok    Python is new enough
ok    PyTorch is new enough, and loads
ok    torchvision is new enough, and loads
ok    The other packages are new enough
ok    The kernel is the course's own
ok    Widgets can be shown
ok    There is room on the disk
ok    Files can be saved in this folder
All is well: the lessons can start."""
OLD = SimpleNamespace(version_info=(3, 9, 18), version="3.9.18 (main)", executable="python3", prefix=sys.prefix)
FULL = (shutil, "disk_usage", lambda folder: SimpleNamespace(free=3e8))
NO_LOAD = r"^{} does not load: RuntimeError: operator torchvision::nms does not exist$"


def installed(**versions):  # an empty one means "not installed"
    def distributions(real=module.installed.distributions, **query):
        version = versions.get(query["name"])
        return real(**query) if version is None else [SimpleNamespace(version=version)] * bool(version)

    return module.installed, "distributions", distributions


def unloadable(package):
    def load(name, real=importlib.import_module):
        if name == package:
            raise RuntimeError("operator torchvision::nms does not exist\nmore")
        return real(name)

    return module.importlib, "import_module", load


@pytest.mark.parametrize(
    ("condition", "status", "found", "mend"),
    [
        ((module, "sys", OLD), "fail", r"^Python is too old: Python 3\.9\.18 at python3\.$", "PYTHON=python3.12"),
        (installed(torch="0.1.0+cpu"), "fail", r"torch 0\.1\.0\+cpu \(needed: >=2", "`make setup`"),
        (installed(numpy="1.0", tqdm=""), "fail", r"^Missing or too old: numpy 1\.0 .*tqdm is missing", "`make setup`"),
        (installed(jupyterlab_widgets="1.1.0"), "fail", r"jupyterlab_widgets 1\.1\.0 \(needed: >=3\)", "`make setup`"),
        (installed(comm=""), "fail", r"comm is missing \(needed: any version\)", "`make setup`"),
        (installed(**{"course-utils": ""}), "fail", "The kernel is another Python than the course's", "Change Kernel"),
        (unloadable("torchvision"), "fail", NO_LOAD.format("torchvision"), "from one index"),
        (unloadable("ipywidgets"), "fail", NO_LOAD.format("ipywidgets"), "`make setup`"),
        (FULL, "warn", r"^The disk is nearly full: 0\.3 GB are free\.$", "free some"),
        ((module.os, "access", lambda *_: False), "fail", "^Nothing can be saved in ", "a folder of your own"),
        (installed(ipywidgets="9.0.0rc1", tqdm="4.66.0.1", torch="99.0+cpu"), "", "", ""),
    ],
)
def test_each_condition_is_found_by_name_and_can_be_mended(tmp_path, monkeypatch, condition, status, found, mend):
    monkeypatch.setattr(*condition)
    wrong = [finding for finding in examine(tmp_path) if finding.status in ("warn", "fail")]
    assert [finding.status for finding in wrong] == [status] * bool(status)
    assert all(re.search(found, finding.found) and mend in finding.mend for finding in wrong), wrong


def test_what_it_says_of_a_healthy_machine(tmp_path, monkeypatch):
    """In a learner's copy and in a build the same; elsewhere that progress is lost; with details versions and paths."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_PROGRESS", "off")
    assert str(doctor()) == FINE
    monkeypatch.delenv("COURSE_PROGRESS")
    end = "8 of 9 checks are fine; the lines above say how to mend the rest."
    assert re.search(rf"warn  This is not your copy of the lessons[\s\S]*\n{end}$", str(doctor()))
    (tmp_path / MARKER).touch()
    assert repr(doctor()) == FINE
    text = str(doctor(details=True))
    assert re.search(rf"at {sys.executable}\n(.*\n)*.*ipywidgets 8\.\d", text)
    assert "note  This is your copy of the lessons" in text


def test_the_html_face_says_everything_in_words_and_escapes_it():
    bad = Finding("fail", "The name is <b>wrong</b>.", "run `make setup`.", "at <here>")
    page = Diagnosis((Finding("ok", "Fine"), bad), details=True)._repr_html_()
    assert '<span aria-hidden="true">✗</span> fail</strong> <div>The name is &lt;b&gt;wrong&lt;/b&gt;.' in page
    assert "<div>at &lt;here&gt;</div><div>To mend it: run <code>make setup</code>.</div>" in page


def test_the_command_prints_details_and_fails_only_for_a_failure(capsys, monkeypatch):
    assert module.main() == 0
    monkeypatch.setattr(*installed(tqdm=""))
    assert module.main() == 1
    assert re.search(rf"environment {sys.prefix}[\s\S]*tqdm is missing", capsys.readouterr().out)
