"""Each finding, by making the condition it is about; and the faces of a diagnosis."""

import importlib.metadata
import os
import re
import shutil
import site
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from course_utils.lab import doctor as module
from course_utils.lab.doctor import (
    Diagnosis,
    Finding,
    diagnose,
    doctor,
)
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


def pretend_versions(monkeypatch, **versions):
    """Let the installed versions be these; an empty one means "not installed"."""
    real = importlib.metadata.version

    def version(name):
        found = versions.get(name.replace("-", "_"), real(name) if name.replace("-", "_") not in versions else "")
        if not found:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)


def break_import(monkeypatch, package, error):
    """Let importing `package` raise `error`, as a broken build does."""
    real = module.importlib.import_module

    def import_module(name):
        if name == package:
            raise error
        return real(name)

    monkeypatch.setattr(module.importlib, "import_module", import_module)


def test_on_a_healthy_machine_the_face_depends_on_nothing_else(tmp_path, monkeypatch):
    (tmp_path / MARKER).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COURSE_PROGRESS", raising=False)
    learner = str(doctor())
    monkeypatch.setenv("COURSE_PROGRESS", "off")
    assert learner == repr(doctor()) == FINE


def test_details_add_versions_paths_and_notes(tmp_path):
    text = str(Diagnosis(tuple(diagnose(tmp_path)), details=True))
    assert sys.executable in text
    assert str(tmp_path) in text
    assert re.search(r"ipywidgets 8\.\d", text)
    assert "note  Weights of pretrained networks" in text


def test_an_old_python_is_found():
    finding = module.check_python((3, 9, 18))
    assert (finding.status, finding.found) == ("fail", "Python is too old: 3.9.18, and the course needs 3.10 or newer.")
    assert "PYTHON=" in finding.mend


@pytest.mark.parametrize(
    ("package", "check"), [("torch", module.check_torch), ("torchvision", module.check_torchvision)]
)
@pytest.mark.parametrize(("version", "said"), [("0.1.0+cpu", r"0\.1\.0\+cpu \(needed: "), ("", r"is missing \(needed")])
def test_an_old_or_missing_torch_is_found(monkeypatch, package, check, version, said):
    pretend_versions(monkeypatch, **{package: version})
    finding = check()
    assert finding.status == "fail"
    assert re.search(said, finding.found)
    assert "make setup" in finding.mend


def test_a_torchvision_from_another_index_is_found(monkeypatch):
    break_import(monkeypatch, "torchvision", RuntimeError("operator torchvision::nms does not exist\nmore"))
    finding = module.check_torchvision()
    assert finding.found == "torchvision does not load: RuntimeError: operator torchvision::nms does not exist"
    assert "both for CPU only" in finding.mend


def test_old_and_missing_packages_are_found_by_name(monkeypatch):
    pretend_versions(monkeypatch, ipywidgets="7.8", papermill="")
    finding = module.check_packages()
    assert finding.status == "fail"
    assert "ipywidgets 7.8 (needed: 8.1)" in finding.found
    assert "papermill is missing" in finding.found
    assert "numpy" not in finding.found


def test_a_pre_release_and_a_longer_version_are_new_enough(monkeypatch):
    pretend_versions(monkeypatch, ipywidgets="8.1.0rc1", tqdm="4.66")
    assert module.check_packages().status == "ok"


def test_a_course_that_is_not_installed_is_found(monkeypatch):
    def requires(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert module.check_packages().found == "The course is not installed for this Python."


def test_another_python_than_the_courses_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(tmp_path))
    finding = module.check_kernel()
    assert finding.status == "fail"
    assert sys.prefix in finding.found
    assert "Change Kernel" in finding.mend


@pytest.mark.parametrize("package", ["ipywidgets", "comm", "jupyterlab_widgets"])
def test_widgets_that_cannot_work_are_found(monkeypatch, package):
    break_import(monkeypatch, package, ImportError(f"No module named {package!r}"))
    finding = module.check_widgets()
    assert finding.status == "fail"
    assert package in finding.found


def test_an_old_widget_manager_is_found(monkeypatch):
    pretend_versions(monkeypatch, jupyterlab_widgets="1.1.0")
    assert "jupyterlab_widgets 1.1.0 is too old" in module.check_widgets().found


def test_a_missing_widget_manager_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    finding = module.check_widgets()
    assert finding.status == "warn"
    assert "widget manager" in finding.found


def test_a_nearly_full_disk_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=3e8))
    assert module.check_disk(tmp_path).found == "The disk is nearly full: 0.3 GB are free."


def test_a_disk_that_cannot_be_read_is_found(tmp_path):
    assert module.check_disk(tmp_path / "gone").status == "warn"


def test_a_folder_that_is_gone_is_found(tmp_path):
    finding = module.check_folder(tmp_path / "gone")
    assert finding.status == "fail"
    assert "move the course" in finding.mend


@pytest.mark.skipif(os.name != "posix", reason="makes a read-only folder by POSIX rights")
def test_a_read_only_folder_is_found(tmp_path):
    folder = tmp_path / "lessons"
    folder.mkdir(mode=0o555)
    root = os.geteuid() == 0
    if root:  # who may write everywhere, so somebody else has to look
        folder = shutil.move(folder, tempfile.mkdtemp())
        os.chmod(os.path.dirname(folder), 0o755)
        os.seteuid(65534)
    try:
        finding = module.check_folder(Path(folder))
    finally:
        if root:
            os.seteuid(0)
            shutil.rmtree(os.path.dirname(folder))
    assert finding.status == "fail"
    assert finding.found == f"Nothing can be saved in {folder}: Permission denied."


def test_lessons_opened_outside_the_work_folder_are_found(tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_PROGRESS", raising=False)
    finding = module.check_copy(tmp_path)
    assert finding.status == "warn"
    assert "make lab" in finding.mend
    (tmp_path / MARKER).touch()
    (tmp_path / "deeper").mkdir()
    assert module.check_copy(tmp_path / "deeper").status == "note"


def test_the_weights_of_pretrained_networks_are_named_and_never_a_failure(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    finding = module.check_pretrained()
    assert finding.status == "note"
    assert finding.found.startswith("Weights of pretrained networks: none here; alexnet, resnet34, squeezenet1_1 would")
    weights = tmp_path / "hub" / "checkpoints"
    weights.mkdir(parents=True)
    for name in ("alexnet-owt-7be5be79.pth", "resnet34-b627a593.pth", "squeezenet1_1-b8a52dc0.pth"):
        (weights / name).touch()
    assert module.check_pretrained().found == "Weights of pretrained networks: alexnet, resnet34, squeezenet1_1 here."


class Reader(HTMLParser):
    """Collects what a screen reader would say of a page."""

    def __init__(self):
        super().__init__()
        self.open: list[dict] = []
        self.said = ""

    def handle_starttag(self, tag, attrs):
        self.open.append(dict(attrs))

    def handle_endtag(self, tag):
        self.open.pop()

    def handle_data(self, data):
        if not any(attributes.get("aria-hidden") == "true" for attributes in self.open):
            self.said += f" {data}"


def test_the_html_face_says_everything_in_words_and_escapes_it():
    bad = Finding("x", "fail", "The name is <b>wrong</b>.", "run `make setup`.", "at <here>")
    diagnosis = Diagnosis((Finding("y", "ok", "Fine"), bad), details=True)
    page = diagnosis._repr_html_()
    reader = Reader()
    reader.feed(page)
    shown = " ".join(reader.said.split())
    assert "ok Fine" in shown
    assert "fail The name is <b>wrong</b>." in shown
    assert "To mend it: run make setup ." in shown
    assert not reader.open
    assert "✗" in page
    assert "✗" not in shown
    assert "<code>make setup</code>" in page
    assert "1 of 2 checks are fine" in shown
    assert not diagnosis.healthy
    # Text takes the page's own colour, so that it can be read in a dark theme; only the edge has one of its own.
    assert "background" not in page
    assert set(re.findall(r"(?<![-\w])color:([^;\"]+)", page)) == {"var(--jp-content-font-color0, inherit)"}


def test_the_command_prints_details_and_fails_only_for_a_failure(capsys, monkeypatch):
    assert module.main() == 0
    assert f"environment {sys.prefix}" in capsys.readouterr().out
    pretend_versions(monkeypatch, tqdm="")
    assert module.main() == 1
    assert "tqdm is missing" in capsys.readouterr().out
