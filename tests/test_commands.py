"""The commands and the Makefile: what each is called with, what a wrong line says, and how the environment is made."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from course_utils import __main__ as cli
from course_utils import root
from course_utils.root import ROOT, CourseError


@pytest.mark.parametrize(
    ("line", "function", "values"),
    [
        ("lab", "lab.jupyter:open_lab", {"port": 8888, "arguments": []}),
        ("lab --port 9 --no-browser x", "lab.jupyter:open_lab", {"port": 9, "arguments": ["--no-browser", "x"]}),
        ("check --lesson 01", "grading.grade:check_work", {"lesson": "01", "folder": ROOT / "work"}),
        ("doctor", "lab.doctor:main", {}),
        ("notebooks 01 --check", "authoring.build:build_notebooks", {"lessons": ["01"], "check": True}),
        ("instructor", "authoring.editions:write_instructor", {"lesson": None}),
        ("slides --lesson=02", "authoring.slides:write_slides", {"lesson": "02"}),
        (
            "handout --lesson=07 --network=resnet34",
            "authoring.editions:write_handout",
            {"lesson": "07", "network": "resnet34", "image": "", "layer": ""},
        ),
        ("release --output x.zip", "authoring.release:write_release", {"output": Path("x.zip"), "nbgrader": None}),
        ("train --measure", "authoring.train:main", {"argv": ["--measure"]}),
    ],
)
def test_a_command_hands_over_values(line, function, values):
    assert cli.parse(line.split()) == (function, values)


def test_each_command_calls_a_function_that_takes_its_values():
    import importlib
    import inspect

    for name in cli.TARGETS.keys() - set(cli.MAKE_ONLY):
        function, values = cli.parse([name, "x"] if name == "grade" else [name])
        module, _, function = function.partition(":")
        found = getattr(importlib.import_module(f"course_utils.{module}"), function)
        inspect.signature(found).bind(**values)


@pytest.mark.parametrize("line", ["doctor now", "check --lessen=01", "lab --port=lots", "release --output"])
def test_what_a_command_does_not_take_is_said(line, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(line.split())
    assert left.value.code == 2
    assert re.search(r"takes no|invalid int|expected one", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("labb", "There is no command 'labb'. Did you mean lab?"),
        ("xyz", "There is no command 'xyz'. There are lab, check"),
        ("test", "`test` is a target of make:  make test"),
    ],
)
def test_a_command_that_is_not_there_is_said(line, said, capsys):
    assert cli.main([line]) == 1
    assert capsys.readouterr().err.startswith(said)


def test_a_release_has_the_students_commands_only(monkeypatch, tmp_path, capsys):
    (tmp_path / "recorded_00.json").touch()
    monkeypatch.setattr(root, "ASSETS", tmp_path)
    assert cli.main(["grade", "x"]) == 1
    assert capsys.readouterr().err == (
        "`grade` needs the whole course, and this is the students' release, without answers and tests. "
        "Here you have: lab, check, doctor, setup.\n"
    )
    assert cli.main([]) == 0
    assert re.findall(r"^  (\w\S*) ", capsys.readouterr().out, re.MULTILINE) == ["lab", "check", "doctor", "setup"]


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (CourseError("Mend it."), 1, "Mend it.\n"),
        (KeyboardInterrupt(), 130, "\nStopped. The same command goes on from here.\n"),
        (ModuleNotFoundError("No module", name="jupyterlab"), 1, "has no package jupyterlab. Use `make`"),
        (OSError(28, "No space left on device", "x"), 1, "x: No space left on device. Free some space"),
    ],
)
def test_what_goes_wrong_is_a_sentence(monkeypatch, capsys, error, status, said):
    def fail(arguments):
        raise error

    monkeypatch.setattr(cli, "run", fail)
    assert cli.main(["lab"]) == status
    assert said in capsys.readouterr().err


def test_an_old_python_is_said(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    with pytest.raises(SystemExit, match=r"The course needs Python 3\.10 or newer, and .* is "):
        cli.main(["lab"])


def test_a_bug_is_none(monkeypatch):
    def fail(arguments):
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(cli, "run", fail)
    with pytest.raises(OSError, match="Bad file"):
        cli.main(["lab"])


# ------------------------------------------------------------------------------------------------------------- make

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make on this machine")


def make(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess:
    """Run make where there is no package index and no setting of pip or Python but those in `more`."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environment = kept | {"HOME": str(folder), "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"} | more
    command = ["make", f"PYTHON={sys.executable}", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@needs_make
def test_make_alone_lists_every_target():
    said = make(ROOT).stdout
    assert re.findall(r"^  (\w\S*) +\S.{15,}$", said, re.MULTILINE) == list(cli.TARGETS)
    assert all(f"{name}:" in (ROOT / "Makefile").read_text().replace(" ", ":") for name in cli.TARGETS)


@needs_make
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["lab", "PORT=8889", "ARGS=--no-browser"], "-m course_utils lab --port='8889' --no-browser"),
        (["check", "LESSON=01"], "-m course_utils check --lesson='01'"),
        (["handout", "LESSON=07", "NETWORK=a", "IMAGE=b c"], "handout --lesson='07' --network='a' --image='b c'"),
        (["grade", "SUBMISSIONS=it's", "ROSTER=r", "REPORT=a b"], r"grade 'it'\''s' --roster='r' --report='a b'"),
        (["slides"], "-m course_utils slides"),
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
    assert "TORCH=gpu is not known: use TORCH=cpu" in make(tmp_path, "lab", "TORCH=gpu").stderr
    assert "needs Python 3.10 or newer, which false is not" in make(tmp_path, "lab", "PYTHON=false").stderr
    (tmp_path / "ensurepip.py").write_text("raise ModuleNotFoundError")
    lacking = make(tmp_path, "lab", PYTHONPATH=str(tmp_path))
    assert "sudo apt install python3-venv" in lacking.stderr
    assert lacking.returncode == 2
    assert not (tmp_path / ".venv").exists()


PYPROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "course-utils"
version = "0.1.0"
dependencies = ["torch>=2.13", "torchvision"]
optional-dependencies.dev = []
"""
# A build backend that needs nothing, so that pip can install the small course without a network.
BACKEND = """\
import os, zipfile

def get_requires_for_build_editable(config_settings=None):
    return []

def build_editable(folder, config_settings=None, metadata_directory=None):
    write(folder, "course_utils", "0.1.0", {"course.pth": os.getcwd()}, ["torch>=2.13", "torchvision"])
    return "course_utils-0.1.0-py3-none-any.whl"

def write(folder, name, version, files, needs=()):
    info = f"{name}-{version}.dist-info"
    needed = "".join(f"Requires-Dist: {need}\\n" for need in needs)
    files[info + "/METADATA"] = f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n{needed}"
    files[info + "/WHEEL"] = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    files[info + "/RECORD"] = "".join(f"{path},,\\n" for path in [*files, info + "/RECORD"])
    with zipfile.ZipFile(os.path.join(folder, f"{name}-{version}-py3-none-any.whl"), "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
"""


@pytest.fixture
def course(tmp_path):
    """A small course with the real Makefile and commands, and two package indexes in folders: `pypi` and `cpu`."""
    folder = tmp_path / "course"
    (folder / "course_utils").mkdir(parents=True)
    for module in (ROOT / "course_utils").glob("*.py"):
        shutil.copy(module, folder / "course_utils")
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "backend.py").write_text(BACKEND)
    namespace = {"zipfile": zipfile}
    exec(BACKEND, namespace)
    for index, version in (("pypi", "2.15.0"), ("cpu", "2.15.0+cpu")):
        for name in ("torch", "torchvision"):
            place = tmp_path / index / name
            place.mkdir(parents=True)
            namespace["write"](place, name, version, {f"{name}.py": ""})
            (place / "index.html").write_text(
                "".join(f'<a href="{file.name}">{file.name}</a>' for file in place.iterdir())
            )
    return folder


@needs_make
@pytest.mark.slow
def test_the_environment_is_made_once_and_a_failed_torch_does_not_stick(course):
    tmp = course.parent

    def setup(*arguments: str, folder: Path = course, cpu: str = "cpu") -> tuple[int, bool, str]:
        """The status of `make setup`, whether pip was asked, and the torch that is there then."""
        done = make(
            folder, "setup", f"CPU_WHEELS={(tmp / cpu).as_uri()}", *arguments, PIP_INDEX_URL=(tmp / "pypi").as_uri()
        )
        there = [path.name for path in folder.glob(".venv/lib/python*/site-packages/torch-*.dist-info")]
        return done.returncode, "Setting the course up" in done.stdout, "".join(there)

    assert setup("TORCH=cpu", cpu="nowhere")[:2] == (2, True)
    assert setup() == (0, True, "torch-2.15.0.dist-info")
    assert setup() == (0, False, "torch-2.15.0.dist-info")
    assert setup("TORCH=cpu") == (0, True, "torch-2.15.0+cpu.dist-info")
    assert setup() == (0, False, "torch-2.15.0+cpu.dist-info"), "what is there stays"
    os.utime(course / "pyproject.toml")
    assert setup() == (0, True, "torch-2.15.0+cpu.dist-info"), "new requirements are installed"
    course.rename(tmp / "moved")
    assert setup(folder=tmp / "moved")[:2] == (0, True), "a course that was moved is installed again"
    shutil.rmtree(tmp / "moved" / ".venv" / "bin")
    assert setup(folder=tmp / "moved")[:2] == (0, True), "a Python that is gone is replaced"
    assert "Start with: make lab" in make(tmp / "moved", "help").stdout
