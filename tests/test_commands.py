"""The commands and the Makefile: what each is called with, what a wrong line says, and how the environment is made."""

import functools
import http.server
import inspect
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from unittest.mock import Mock

import pytest

from course_utils import __main__ as cli
from course_utils import root
from course_utils.root import ROOT, CourseError

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make on this machine")


@pytest.mark.parametrize(
    ("line", "function", "values"),
    [
        ("lab", "lab.jupyter:open_lab", {"arguments": []}),
        ("lab --port 9 --no-browser x", "lab.jupyter:open_lab", {"port": 9, "arguments": ["--no-browser", "x"]}),
        ("check --lesson 1", "grading.grade:check_work", {"lesson": "01", "folder": ROOT / "work"}),
        ("grade x --lesson 0", "grading.grade:run", {"submissions": Path("x"), "lesson": "00"}),
        ("submit --name=Ann", "grading.submit:submit", {"name": "Ann"}),
        ("doctor", "lab.doctor:main", {}),
        ("notebooks 01 --check", "authoring.build:build_notebooks", {"lessons": ["01"], "check": True}),
        ("slides --lesson=02", "authoring.slides:write_slides", {"lesson": "02"}),
        ("site --answers", "authoring.site:write_site", {"answers": True}),
        ("handout --lesson=07 --class=cat", "authoring.editions:write_handout", {"lesson": "07", "chosen": "cat"}),
        ("release --output x.zip", "authoring.release:write_release", {"output": Path("x.zip")}),
        ("train --measure", "authoring.train:main", {"measure": True}),
        ("grade x", "grading.grade:run", None),  # whose options are its own
    ],
)
def test_a_command_hands_over_values(line, function, values):
    found = cli.parse(line.split())
    assert found == (function, values or found[1])
    inspect.signature(resolve_name(f"course_utils.{function}")).bind(**found[1])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("doctor now", "doctor takes no now"),
        ("check --lessen=01", "check takes no --lessen=01"),
        ("lab --port=lots", "invalid port"),
        ("class --port=99999", "a port is a number from 1 to 65535"),
        ("labb", "there is no 'labb'; did you mean 'lab'? `make help` lists them."),
        ("test", "`test` is a target of make:  make test"),
    ],
)
def test_a_line_that_cannot_be_run_is_a_sentence(capsys, line, said):
    with pytest.raises(SystemExit, match=r"^2$"):  # of argparse
        sys.exit(cli.main(line.split()))
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (CourseError("Mend it."), 2, "Mend it.\n"),
        (KeyboardInterrupt(), 130, "Stopped."),
        (ModuleNotFoundError("", name="jupyterlab"), 2, "has no package jupyterlab. Use `make`"),
        (OSError(28, "No space left on device", "x"), 2, "x: No space left on device."),
    ],
)
def test_what_goes_wrong_in_a_command_is_a_sentence_and_a_status(monkeypatch, capsys, error, status, said):
    monkeypatch.setattr(cli, "run", Mock(side_effect=error))
    assert cli.main(["lab"]) == status
    assert said in capsys.readouterr().err


LESSONS = "There is no lesson 99; there is 00, 01, "
REFUSED = {f"{name} --lesson=99": LESSONS for name in ("check", "grade .", "instructor", "slides")}
REFUSED |= {
    "notebooks 1 99": LESSONS,
    "handout": "Say which lesson:  make handout LESSON=07",
    "handout --lesson=7 --image=no.jpg": "There is no picture no.jpg.",
    "handout --lesson=1 --network=x": "Lesson 01 has no part for that",
    "mutants --exercise=larg": "There is no exercise larg; there is largest.",
    f"release --output={ROOT}": f"{ROOT} is a folder",
}


@pytest.mark.slow
def test_what_there_is_not_is_refused_before_torch_is_imported():
    code = "import sys; from course_utils.__main__ import main; print({main(line.split()) for line in sys.argv[1:]}"
    command = [sys.executable, "-c", f"{code}, 'torch' in sys.modules)", *REFUSED]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "{2} False\n", done.stderr
    said = zip(done.stderr.splitlines(), REFUSED.values(), strict=True)
    assert all(line.startswith(words) for line, words in said)


def test_the_functions_status_is_the_commands_a_bug_is_none_and_an_old_python_is_said(monkeypatch):
    monkeypatch.setattr("course_utils.lab.doctor.main", lambda: 7)
    assert cli.main(["doctor"]) == 7
    monkeypatch.setattr(cli, "run", Mock(side_effect=OSError(9, "Bad file descriptor")))
    with pytest.raises(OSError, match="Bad file"):
        cli.main(["lab"])
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    with pytest.raises(SystemExit, match=r"The course needs Python 3\.10 or newer, and .* is "):
        cli.main(["lab"])


def listed(text: str) -> list[str]:
    return re.findall(r"^  (\w\S*) +\S.{15,}$", text, re.MULTILINE)


def test_a_release_has_the_students_commands_only(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(root, "ANSWERS", tmp_path / "answers")
    assert cli.main(["grade", "x"]) == 2
    assert "Here you have: lab, check, submit, doctor, language-model, setup." in capsys.readouterr().err
    assert cli.main([]) == 0
    assert listed(capsys.readouterr().out) == ["lab", "check", "submit", "doctor", "language-model", "setup"]


def make(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess:
    """Run make where there is no package index and no setting of pip or Python but those in `more`."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environment = kept | {"HOME": str(folder), "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"} | more
    command = ["make", f"PYTHON={sys.executable}", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@needs_make
def test_make_alone_lists_every_target():
    assert listed(make(ROOT).stdout) == list(cli.read_targets())
    assert all(f"{name}:" in (ROOT / "Makefile").read_text().replace(" ", ":") for name in cli.read_targets())


@needs_make
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["lab", "PORT=8889", "ARGS=--no-browser"], "-m course_utils lab --port='8889' --no-browser"),
        (["check", "LESSON=01"], "-m course_utils check --lesson='01'"),
        (["handout", "NETWORK=a", "IMAGE=b c", "CLASS=d e"], "--network='a' --image='b c' --class='d e'"),
        (["grade", "SUBMISSIONS=it's", "ROSTER=r"], r"grade --exit-zero 'it'\''s' --roster='r'"),
        (["submit", "NAME=Ann O'Lee", "ARGS=--check"], r"course_utils submit --name='Ann O'\''Lee' --check"),
        (["bench", "ARGS=--quick"], "-m tests.bench.bench --quick"),
        (["test"], '--dist=loadfile --no-loadscope-reorder -m "not slow"'),
        (["test-all", "ARGS=-k 'a or b'"], "-m slow -k 'a or b' || [ $? = 5 ]"),
    ],
)
def test_variables_reach_the_command_whatever_they_hold(arguments, line):
    assert make(ROOT, "-n", *arguments).stdout.splitlines()[-1].strip().endswith(line)


@needs_make
def test_a_wrong_python_or_torch_is_said_and_nothing_is_made(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    assert "TORCH=gpu is not known: use TORCH=cpu or TORCH=cuda" in make(tmp_path, "lab", "TORCH=gpu").stderr
    assert "needs Python 3.10 or newer, which false is not" in make(tmp_path, "lab", "PYTHON=false").stderr
    (tmp_path / "ensurepip.py").write_text("raise ModuleNotFoundError")
    lacking = make(tmp_path, "lab", PYTHONPATH=str(tmp_path))
    assert (lacking.returncode, "sudo apt install python3-venv" in lacking.stderr) == (2, True)
    assert not (tmp_path / ".venv").exists()


# A build system for a course that needs only PyTorch, so that nothing else is asked of the index.
BACKEND = """\
import shutil
def build_editable(folder, *_):
    return shutil.copy({wheel!r}, folder).rpartition("/")[2]
"""
PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "tiny"
version = "1"
dependencies = ["torch>=2.14", "torchvision>=0.29"]
"""
TORCH = "kind = {kind!r}\ndef ones(*_): pass\n"
TORCHVISION = """\
import torch
class ops:
    def nms(*_): assert torch.kind == {kind!r}, "compiled for another torch"
"""


def add_wheel(index: Path, name: str, version: str, code: str, more: str = "") -> Path:
    wheel = index / name / f"{name}-{version}-py3-none-any.whl"
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        info = f"{name}-{version}.dist-info"
        archive.writestr(f"{name}/__init__.py", code)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{name}/__init__.py,,\n{info}/METADATA,,\n{info}/RECORD,,\n")
    return wheel


@pytest.fixture
def indexes(tmp_path) -> Iterator[str]:
    """The address of a server with `usual`, `cpu` and `odd`, whose torchvision is for another torch."""
    for index, end, kind in (("usual", "", "cuda"), ("cpu", "+cpu", "cpu"), ("odd", "+cpu", "cpu")):
        add_wheel(tmp_path / index, "torch", f"2.15.0{end}", TORCH.format(kind=kind))
        code = TORCHVISION.format(kind="cuda" if index == "odd" else kind)
        add_wheel(tmp_path / index, "torchvision", f"0.30.0{end}", code, "Requires-Dist: torch==2.15.0\n")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    handler.func.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@needs_make
@pytest.mark.slow
def test_the_environment_is_made_once_and_has_the_kind_of_torch_that_fits(tmp_path, indexes):
    course, moved, bin_ = (tmp_path / name for name in ("course", "moved", "bin"))
    course.mkdir(), bin_.mkdir()
    shutil.copy(ROOT / "Makefile", course)
    (course / "pyproject.toml").write_text(PROJECT)
    needs = "Provides-Extra: dev\nRequires-Dist: torch>=2.14\nRequires-Dist: torchvision>=0.29\n"
    (course / "backend.py").write_text(BACKEND.format(wheel=str(add_wheel(tmp_path, "tiny", "1", "", needs))))
    (driver := bin_ / "nvidia-smi").touch(0o755)

    def see_driver(seen: bool) -> None:
        driver.write_text("#!/bin/sh\n" + ("echo GPU 0" if seen else "exit 9"))

    def setup(*arguments: str, folder: Path = course, wheels: str = f"{indexes}/cpu") -> tuple[str, str]:
        """What `make setup` printed, and the torch that is there afterwards."""
        more = {"PATH": f"{bin_}:{os.environ['PATH']}", "PIP_INDEX_URL": f"{indexes}/usual"}
        done = make(folder, "setup", f"CPU_WHEELS={wheels}", *arguments, **more)
        code = "import importlib.metadata as m; print(m.version('torch'))"
        found = subprocess.run([folder / ".venv/bin/python", "-c", code], capture_output=True, text=True)
        return done.stdout + done.stderr, found.stdout.strip()

    def forget(folder: Path = course) -> None:
        """Leave the environment as a new one is, which takes longer to make."""
        uninstall = ["-m", "pip", "uninstall", "--quiet", "--yes", "torch", "torchvision", "tiny"]
        subprocess.run([folder / ".venv/bin/python", *uninstall], check=True)
        for stamp in (folder / ".venv").glob(".done*"):
            stamp.unlink()

    see_driver(False)
    assert "torch and torchvision do not fit together: delete the folder .venv" in setup(wheels=f"{indexes}/odd")[0]
    forget()
    said, torch = setup(wheels="http://127.0.0.1:9")
    assert (torch, "a download of 0.5 GB" in said) == ("2.15.0", True), "goes on without PyTorch's own index"
    forget()
    assert setup()[1] == "2.15.0+cpu"
    said, torch = setup()
    assert ("Setting" in said, torch) == (False, "2.15.0+cpu"), "what is there stays"
    see_driver(True)
    assert setup()[1] == "2.15.0+cpu", "also where a driver is seen later"
    assert setup("TORCH=cuda")[1] == "2.15.0"
    said, torch = setup()
    assert ("Setting" in said, torch) == (False, "2.15.0")
    assert setup("TORCH=cpu")[1] == "2.15.0+cpu"
    os.utime(course / "pyproject.toml")
    assert "Setting" in setup()[0], "new requirements are installed"
    course.rename(moved)
    said, torch = setup(folder=moved)
    assert ("Setting" in said, torch) == (True, "2.15.0+cpu"), "a course that was moved is installed again"
    forget(moved)
    said, torch = setup(folder=moved)
    assert ("a download of 3 GB" in said, torch) == (True, "2.15.0"), "with a driver, PyTorch for it"
