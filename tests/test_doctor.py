"""Each finding, by making the condition it is about; and the faces of a diagnosis."""

import importlib
import re
import shutil
import sys
from types import SimpleNamespace

import pytest

from course_utils.lab import doctor as module
from course_utils.lab.doctor import Diagnosis, Finding, doctor, examine
from course_utils.lab.jupyter import MARKER

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


def wrong(folder) -> list[Finding]:
    return [finding for finding in examine(folder) if finding.status != "ok"]


def pretend(monkeypatch, **versions):
    """Let the installed versions of these distributions be others; an empty one means "not installed"."""
    real = module.installed.distributions

    def distributions(**query):
        version = versions.get(query["name"])
        if version is None:
            return real(**query)
        return [SimpleNamespace(version=version)] if version else []

    monkeypatch.setattr(module.installed, "distributions", distributions)


def test_on_a_healthy_machine_the_face_depends_on_nothing_else(tmp_path, monkeypatch):
    (tmp_path / MARKER).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COURSE_PROGRESS", raising=False)
    learner = str(doctor())
    monkeypatch.setenv("COURSE_PROGRESS", "off")
    assert learner == repr(doctor()) == FINE


def test_details_add_versions_paths_and_notes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    (tmp_path / "hub" / "checkpoints" / "alexnet-owt-7be5be79.pth").touch()
    text = str(doctor(details=True))
    assert sys.executable in text
    assert re.search(r"ipywidgets 8\.\d", text)
    assert "note  Weights of pretrained networks: alexnet of alexnet, resnet34, squeezenet1_1 here." in text


@pytest.mark.parametrize(
    ("versions", "found", "mend"),
    [
        ({"torch": "0.1.0+cpu"}, r"torch 0\.1\.0\+cpu \(needed: >=2", "make setup"),
        ({"torchvision": ""}, r"torchvision is missing \(needed: >=0", "make setup"),
        ({"numpy": "1.0", "papermill": ""}, r"^Missing or too old: numpy 1\.0 .*papermill is missing", "make setup"),
        ({"jupyterlab_widgets": "1.1.0"}, r"jupyterlab_widgets 1\.1\.0 \(needed: >=3\)", "make setup"),
        ({"comm": ""}, r"comm is missing \(needed: any version\)", "make setup"),
        ({"course-utils": ""}, r"The kernel is another Python than the course's", "Change Kernel"),
    ],
)
def test_old_and_missing_packages_are_found_by_name(tmp_path, monkeypatch, versions, found, mend):
    pretend(monkeypatch, **versions)
    (finding,) = wrong(tmp_path)
    assert finding.status == "fail"
    assert re.search(found, finding.found)
    assert mend in finding.mend


def test_a_pre_release_and_a_longer_version_are_new_enough(tmp_path, monkeypatch):
    pretend(monkeypatch, ipywidgets="9.0.0rc1", tqdm="4.66.0.1", torch="99.0+cpu")
    assert wrong(tmp_path) == []


@pytest.mark.parametrize(("package", "mend"), [("torchvision", "from one index"), ("ipywidgets", "make setup")])
def test_what_does_not_load_is_found(tmp_path, monkeypatch, package, mend):
    real = importlib.import_module

    def load(name):
        if name == package:
            raise RuntimeError("operator torchvision::nms does not exist\nmore")
        return real(name)

    monkeypatch.setattr(module.importlib, "import_module", load)
    (finding,) = wrong(tmp_path)
    assert finding.found == f"{package} does not load: RuntimeError: operator torchvision::nms does not exist"
    assert mend in finding.mend


def test_an_old_python_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    finding = next(examine(tmp_path))
    assert finding.found.startswith("Python is too old")
    assert "PYTHON=python3.12" in finding.mend


def test_a_full_disk_and_a_read_only_folder_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=3e8))
    monkeypatch.setattr(module.os, "access", lambda folder, how: False)
    full, shut = wrong(tmp_path)
    assert (full.status, full.found) == ("warn", "The disk is nearly full: 0.3 GB are free.")
    assert (shut.status, shut.found) == ("fail", f"Nothing can be saved in {tmp_path}.")


def test_lessons_opened_outside_the_work_folder_are_found(tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_PROGRESS", raising=False)
    monkeypatch.chdir(tmp_path)
    text = str(doctor())
    assert "warn  This is not your copy of the lessons" in text
    assert text.endswith("8 of 9 checks are fine; the lines above say how to mend the rest.")


def test_the_html_face_says_everything_in_words_and_escapes_it():
    bad = Finding("x", "fail", "The name is <b>wrong</b>.", "run `make setup`.", "at <here>")
    page = Diagnosis((Finding("y", "ok", "Fine"), bad), details=True)._repr_html_()
    assert '<span aria-hidden="true">✗</span> fail</strong> <div>The name is &lt;b&gt;wrong&lt;/b&gt;.' in page
    assert "<div>To mend it: run <code>make setup</code>.</div>" in page
    assert "at &lt;here&gt;" in page
    assert "1 of 2 checks are fine" in page
    # Text takes the page's own colour, so that it can be read in a dark theme; only the edge has one of its own.
    assert set(re.findall(r"(?<![-\w])color:([^;\"]+)", page)) == {"var(--jp-content-font-color0, inherit)"}


def test_the_command_prints_details_and_fails_only_for_a_failure(capsys, monkeypatch):
    assert module.main() == 0
    assert f"environment {sys.prefix}" in capsys.readouterr().out
    pretend(monkeypatch, tqdm="")
    assert module.main() == 1
    assert "tqdm is missing" in capsys.readouterr().out
