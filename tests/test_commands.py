"""The commands and the Makefile: what each is called with, what a wrong line says, and how the environment is made."""

import inspect
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from pkgutil import resolve_name

import pytest

from course_utils import __main__ as cli
from course_utils import root
from course_utils.root import ROOT, CourseError

HANDOUT = {"lesson": "07", "network": "resnet34", "image": "", "layer": ""}


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
        ("handout --lesson=07 --network=resnet34", "authoring.editions:write_handout", HANDOUT),
        ("release --output x.zip", "authoring.release:write_release", {"output": Path("x.zip"), "nbgrader": None}),
        ("train --measure", "authoring.train:main", {"argv": ["--measure"]}),
        ("grade x", "grading.grade:run", None),  # whose options are its own
    ],
)
def test_a_command_hands_over_values(line, function, values):
    found = cli.parse(line.split())
    assert found == (function, values or found[1])
    inspect.signature(resolve_name(f"course_utils.{function}")).bind(**found[1])


def fail(error):
    def run(arguments):
        raise error

    return run


@pytest.mark.parametrize(
    ("line", "error", "status", "said"),
    [
        ("doctor now", None, 2, "doctor takes no now"),
        ("check --lessen=01", None, 2, "check takes no --lessen=01"),
        ("lab --port=lots", None, 2, "invalid int"),
        ("release --output", None, 2, "expected one argument"),
        ("labb", None, 1, "There is no command 'labb'. Did you mean lab?\n"),
        ("xyz", None, 1, "There is no command 'xyz'. There are lab, check"),
        ("test", None, 1, "`test` is a target of make:  make test\n"),
        ("lab", CourseError("Mend it."), 1, "Mend it.\n"),
        ("lab", KeyboardInterrupt(), 130, "\nStopped. The same command goes on from here.\n"),
        ("lab", ModuleNotFoundError("", name="jupyterlab"), 1, "has no package jupyterlab. Use `make`"),
        ("lab", OSError(28, "No space left on device", "x"), 1, "x: No space left on device. Free some space"),
    ],
)
def test_what_goes_wrong_is_a_sentence_and_a_status(monkeypatch, capsys, line, error, status, said):
    monkeypatch.setattr(cli, "run", fail(error) if error else cli.run)
    with pytest.raises(SystemExit) as left:  # of argparse
        sys.exit(cli.main(line.split()))
    assert left.value.code == status
    assert said in capsys.readouterr().err


def test_a_bug_is_none_and_an_old_python_is_said(monkeypatch):
    monkeypatch.setattr(cli, "run", fail(OSError(9, "Bad file descriptor")))
    with pytest.raises(OSError, match="Bad file"):
        cli.main(["lab"])
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    with pytest.raises(SystemExit, match=r"The course needs Python 3\.10 or newer, and .* is "):
        cli.main(["lab"])


def listed(text: str) -> list[str]:
    return re.findall(r"^  (\w\S*) +\S.{15,}$", text, re.MULTILINE)


def test_a_release_has_the_students_commands_only(monkeypatch, tmp_path, capsys):
    (tmp_path / "recorded_00.json").touch()
    monkeypatch.setattr(root, "ASSETS", tmp_path)
    assert cli.main(["grade", "x"]) == 1
    assert capsys.readouterr().err == (
        "`grade` needs the whole course, and this is the students' release, without answers and tests. "
        "Here you have: lab, check, doctor, setup.\n"
    )
    assert cli.main([]) == 0
    assert listed(capsys.readouterr().out) == ["lab", "check", "doctor", "setup"]


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make on this machine")


def make(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess:
    """Run make where there is no package index and no setting of pip or Python but those in `more`."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environment = kept | {"HOME": str(folder), "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"} | more
    command = ["make", f"PYTHON={sys.executable}", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@needs_make
def test_make_alone_lists_every_target():
    assert listed(make(ROOT).stdout) == list(cli.TARGETS)
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
    assert (lacking.returncode, "sudo apt install python3-venv" in lacking.stderr) == (2, True)
    assert not (tmp_path / ".venv").exists()


def write_wheel(folder, name, version, *files, needs=""):
    """Write a wheel with these (path, text) pairs: the small course too is built with this, without a network."""
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    made = [
        ("METADATA", about),
        ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
        ("RECORD", ""),
    ]
    with zipfile.ZipFile(Path(folder, f"{name}-{version}-py3-none-any.whl"), "w") as wheel:
        for path, text in [*files, *((f"{name}-{version}.dist-info/{path}", text) for path, text in made)]:
            wheel.writestr(path, text)


NEEDS = "Requires-Dist: torch>=2.13\nRequires-Dist: torchvision\n"
BACKEND = f"""\
import zipfile
from pathlib import Path

{inspect.getsource(write_wheel)}
def build_editable(folder, config_settings=None, metadata_directory=None):
    write_wheel(folder, "course_utils", "0.1.0", ("course.pth", str(Path.cwd())), needs={NEEDS!r})
    return "course_utils-0.1.0-py3-none-any.whl"
"""
PYPROJECT = """\
build-system = {requires = [], build-backend = "backend", backend-path = ["."]}
project = {name = "course-utils", version = "0.1.0", optional-dependencies.dev = []}
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
    for index, version in (("pypi", "2.15.0"), ("cpu", "2.15.0+cpu")):
        for name in ("torch", "torchvision"):
            place = tmp_path / index / name
            place.mkdir(parents=True)
            write_wheel(place, name, version)
            (place / "index.html").write_text("".join(f'<a href="{each.name}">x</a>' for each in place.glob("*.whl")))
    return folder


@needs_make
@pytest.mark.slow
def test_the_environment_is_made_once_and_a_failed_torch_does_not_stick(course):
    tmp, moved = course.parent, course.parent / "moved"

    def setup(*arguments: str, folder: Path = course, cpu: str = "cpu") -> tuple[int, bool, str]:
        """The status of `make setup`, whether pip was asked, and the torch that is there then."""
        wheels = f"CPU_WHEELS={(tmp / cpu).as_uri()}"
        done = make(folder, "setup", wheels, *arguments, PIP_INDEX_URL=(tmp / "pypi").as_uri())
        there = [path.name for path in folder.glob(".venv/lib/python*/site-packages/torch-*.dist-info")]
        return done.returncode, "Setting the course up" in done.stdout, "".join(there)

    assert setup("TORCH=cpu", cpu="nowhere")[:2] == (2, True)
    assert setup() == (0, True, "torch-2.15.0.dist-info")
    assert setup() == (0, False, "torch-2.15.0.dist-info")
    assert setup("TORCH=cpu") == (0, True, "torch-2.15.0+cpu.dist-info")
    assert setup() == (0, False, "torch-2.15.0+cpu.dist-info"), "what is there stays"
    os.utime(course / "pyproject.toml")
    assert setup() == (0, True, "torch-2.15.0+cpu.dist-info"), "new requirements are installed"
    course.rename(moved)
    assert setup(folder=moved)[:2] == (0, True), "a course that was moved is installed again"
    shutil.rmtree(moved / ".venv" / "bin")
    assert setup(folder=moved)[:2] == (0, True), "a Python that is gone is replaced"
    assert "Start with: make lab" in make(moved, "help").stdout
