"""The commands as a learner meets them: a bare Python, a folder, and what can be wrong with both.

Most tests run `python -m course_utils` from outside, in a small course of its own that has the real `setup.py`,
`work.py` and `__main__.py`, the real venv and the real pip, and needs three tiny packages from a folder of wheels.
"""

import ast
import json
import os
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from course_utils import __main__ as cli
from course_utils import root
from course_utils.lab import setup

ROOT = Path(__file__).resolve().parent.parent
POSIX = os.name == "posix"
BARE_PYTHON = Path(sys.base_prefix, *(["bin", "python3"] if POSIX else ["python.exe"]))

PYPROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "course-utils"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = [
    "jupyterlab>=4.2",
]

[project.optional-dependencies]
dev = [
    "pytest>=8.0",
]
"""
# A build backend that needs nothing, so that pip can install the small course without a network.
BACKEND = """\
import os, zipfile

def get_requires_for_build_editable(config_settings=None):
    return []

def build_editable(folder, config_settings=None, metadata_directory=None):
    info = "course_utils-0.1.0.dist-info"
    files = {
        "course.pth": os.getcwd(),
        info + "/METADATA": "Metadata-Version: 2.1\\nName: course-utils\\nVersion: 0.1.0\\nProvides-Extra: dev\\n"
        "Requires-Dist: jupyterlab>=4.2\\nRequires-Dist: pytest>=8.0; extra == 'dev'\\n",
        info + "/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    files[info + "/RECORD"] = "".join(name + ",,\\n" for name in [*files, info + "/RECORD"])
    name = "course_utils-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return name
"""
LAB = "import json, os, sys; print('LAB', json.dumps([sys.argv[1:], dict(os.environ), sys.prefix]))"
PYTEST = "import os, sys; print('PYTEST', sys.argv[1:], os.getcwd()); sys.exit(3)"
NBFORMAT = {
    "nbformat/__init__.py": "def read(path, as_version): return path",
    "nbformat/sign.py": "class NotebookNotary:\n    def __init__(self, data_dir): self.store = self\n"
    "    def sign(self, notebook): pass\n    def close(self): pass\n",
}


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    """Write the wheel of a package that has nothing but these files."""
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


def make_course(folder: Path) -> Path:
    """Make a small course in `folder`: the real commands, one lesson, and a build that needs nothing."""
    (folder / "course_utils").mkdir(parents=True)
    for module in (ROOT / "course_utils").glob("*.py"):
        shutil.copy(module, folder / "course_utils")
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "backend.py").write_text(BACKEND)
    (folder / "notebooks").mkdir()
    (folder / "notebooks" / "00_start_here.ipynb").write_text("{}")
    return folder


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """Environment variables of a machine that knows no package index and no settings of pip or Python."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "LANG") if name in os.environ}
    quiet = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", "PIP_RETRIES": "0"}
    return {**kept, "HOME": str(home), **quiet, **more}


def run(course: Path, *arguments: str, python: Path = BARE_PYTHON, **more: str) -> SimpleNamespace:
    """Run a command of `course`; no failure of a learner's machine may ever show a traceback."""
    done = subprocess.run(
        [str(python), "-m", "course_utils", *arguments],
        cwd=course,
        env=clean_environment(course.parent, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return SimpleNamespace(status=done.returncode, out=done.stdout, err=done.stderr)


def assert_one_sentence(done: SimpleNamespace, *parts: str, status: int = 1) -> None:
    """The command failed, and all that stderr has is one line with these parts."""
    assert done.status == status, done.err
    assert len(done.err.strip().splitlines()) == 1, done.err
    for part in parts:
        assert part in done.err


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    make_wheel(folder, "jupyterlab", "4.6.0", {"jupyterlab/__main__.py": LAB, "jupyterlab/__init__.py": "", **NBFORMAT})
    make_wheel(folder, "pytest", "9.0.0", {"pytest/__main__.py": PYTEST, "pytest/__init__.py": ""})
    return folder


@pytest.fixture(scope="module")
def ready(tmp_path_factory, wheels) -> Path:
    """A course that was set up once. Tests may use it, and leave it set up."""
    course = make_course(tmp_path_factory.mktemp("ready") / "course")
    done = run(course, "setup", **local(wheels))
    assert done.status == 0, done.err
    assert "Setting the course up in .venv" in done.out
    assert "Ready after" in done.out
    return course


def local(wheels: Path) -> dict[str, str]:
    """Settings under which pip takes packages from this folder and asks no network."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def offline(port: int) -> dict[str, str]:
    """Settings under which pip finds nobody listening where its index should be."""
    return {"PIP_INDEX_URL": f"http://127.0.0.1:{port}/simple", "PIP_RETRIES": "1"}


def read_stamp(course: Path) -> dict:
    return json.loads((course / ".venv" / "course-stamp.json").read_text())


# ---- what works


def test_lab_opens_the_learners_copies_and_passes_arguments_on(ready, closed_port, tmp_path):
    done = run(ready, "lab", f"--port={closed_port}", "--no-browser", "--debug", **offline(closed_port))
    assert done.status == 0, done.err
    arguments, environment, prefix = json.loads(done.out.split("LAB ")[1])
    assert f"--ServerApp.port={closed_port}" in arguments
    assert arguments[-2:] == ["--no-browser", "--debug"]
    assert f"--ServerApp.root_dir={ready / 'work'}" in arguments
    assert "--LabApp.default_url=/lab/tree/00_start_here.ipynb" in arguments
    assert Path(prefix) == ready / ".venv"
    assert Path(environment["JUPYTER_CONFIG_DIR"]).is_relative_to(ready / ".venv")
    assert (ready / "work" / "00_start_here.ipynb").exists()
    assert (ready / "work" / ".course-work").exists()


def test_a_second_run_does_not_ask_pip_or_the_network(ready, closed_port):
    log = ready / ".venv" / "install.log"
    before = log.stat().st_mtime_ns
    done = run(ready, "setup", **offline(closed_port))
    assert (done.status, done.err) == (0, "")
    assert "Setting" not in done.out
    assert log.stat().st_mtime_ns == before


def test_a_learners_work_survives_another_run(ready, closed_port):
    run(ready, "lab", f"--port={closed_port}")
    mine = ready / "work" / "00_start_here.ipynb"
    mine.write_text("my answers")
    run(ready, "lab", f"--port={closed_port}")
    assert mine.read_text() == "my answers"


def test_the_test_command_passes_arguments_and_the_result_on(ready):
    done = run(ready, "test", "-q", "-k", "some name", "tests/test_x.py")
    assert done.status == 3
    assert f"PYTEST ['-q', '-k', 'some name', 'tests/test_x.py'] {ready}" in done.out


def test_the_command_works_from_inside_the_environment_too(ready, closed_port):
    done = run(ready, "setup", python=ready / ".venv" / "bin" / "python", **offline(closed_port))
    assert done.status == 0, done.err


def test_new_requirements_are_installed_into_the_environment_that_is_there(ready, wheels):
    keep = ready / ".venv" / "keep"
    keep.touch()
    (ready / "pyproject.toml").write_text(PYPROJECT + "# changed\n")
    try:
        done = run(ready, "setup", **local(wheels))
        assert "Setting the course up" in done.out
        assert "again" not in done.out
    finally:
        (ready / "pyproject.toml").write_text(PYPROJECT)
        assert run(ready, "setup", **local(wheels)).status == 0
    assert keep.exists()


def test_an_environment_made_by_hand_is_used_as_it_is(ready, closed_port):
    (ready / ".venv" / "course-stamp.json").unlink()
    done = run(ready, "setup", python=ready / ".venv" / "bin" / "python", **offline(closed_port))
    assert done.status == 0, done.err
    assert "Setting" not in done.out
    assert read_stamp(ready)["complete"] is True


# ---- what goes wrong


def test_no_network_on_the_first_run_then_it_goes_on(tmp_path, wheels, closed_port):
    course = make_course(tmp_path / "course")
    done = run(course, "lab", **offline(closed_port))
    log = course / ".venv" / "install.log"
    assert_one_sentence(done, "No connection to the Python package index", "Check the network", str(log))
    assert "NewConnectionError" in log.read_text()
    assert read_stamp(course)["complete"] is False
    (course / ".venv" / "keep").touch()
    assert run(course, "setup", **local(wheels)).status == 0
    assert (course / ".venv" / "keep").exists()


@pytest.mark.skipif(not POSIX, reason="Ctrl-C is sent to a process group")
def test_ctrl_c_in_the_middle_of_the_install_is_not_taken_for_done(ready):
    # An index that takes the connection and never answers: pip waits, as it does during a long download.
    with socket.socket() as index:
        index.bind(("127.0.0.1", 0))
        index.listen()
        (ready / "pyproject.toml").write_text(PYPROJECT.replace("jupyterlab>=4.2", "missing>=1.0"))
        environment = clean_environment(ready.parent, **offline(index.getsockname()[1]))
        command = [str(BARE_PYTHON), "-m", "course_utils", "setup"]
        learner = subprocess.Popen(
            command, cwd=ready, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            # The small course is built without the index; asking for the package it needs is what hangs.
            (ready / "backend.py").write_text(BACKEND.replace("jupyterlab>=4.2", "missing>=1.0"))
            index.settimeout(120)
            index.accept()
            assert read_stamp(ready)["complete"] is False
            os.killpg(learner.pid, signal.SIGINT)
            out, err = learner.communicate(timeout=60)
        finally:
            learner.kill()
            (ready / "pyproject.toml").write_text(PYPROJECT)
            (ready / "backend.py").write_text(BACKEND)
    assert learner.returncode == 130, err
    assert err.strip() == "Stopped. The same command goes on from here."
    assert "Traceback" not in out


def test_after_ctrl_c_the_next_run_finishes(ready, wheels):
    assert run(ready, "setup", **local(wheels)).status == 0
    assert read_stamp(ready)["complete"] is True


def test_no_package_for_this_python_is_said(ready, wheels, tmp_path):
    (ready / "pyproject.toml").write_text(PYPROJECT + "# changed\n")
    try:
        done = run(ready, "setup", **local(tmp_path))
        # Already installed packages satisfy pip, so one that is not there has to be asked for.
        assert done.status == 0
        (ready / "backend.py").write_text(BACKEND.replace("jupyterlab>=4.2", "jupyterlab>=99"))
        (ready / "pyproject.toml").write_text(PYPROJECT.replace("jupyterlab>=4.2", "jupyterlab>=99"))
        done = run(ready, "setup", **local(tmp_path))
    finally:
        (ready / "backend.py").write_text(BACKEND)
        (ready / "pyproject.toml").write_text(PYPROJECT)
        assert run(ready, "setup", **local(wheels)).status == 0
    assert_one_sentence(done, "There is no jupyterlab>=99 for Python", "PYTHON=python3.12")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is /dev/full here")
def test_a_full_disk_is_said(ready, wheels):
    log = ready / ".venv" / "install.log"
    log.unlink()
    log.symlink_to("/dev/full")
    (ready / "pyproject.toml").write_text(PYPROJECT + "# changed\n")
    try:
        done = run(ready, "setup", **local(wheels))
    finally:
        log.unlink()
        (ready / "pyproject.toml").write_text(PYPROJECT)
        assert run(ready, "setup", **local(wheels)).status == 0
    assert_one_sentence(done, "The disk is full. Free some space")


@pytest.mark.skipif(not POSIX, reason="the Python of an environment is a link on POSIX")
def test_an_environment_whose_python_is_gone_is_made_again(tmp_path, wheels):
    course = make_course(tmp_path / "course")
    (course / ".venv" / "bin").mkdir(parents=True)
    (course / ".venv" / "pyvenv.cfg").touch()
    (course / ".venv" / "bin" / "python").symlink_to(tmp_path / "uninstalled")
    done = run(course, "setup", **local(wheels))
    assert done.status == 0, done.err
    assert "Making .venv again: its Python is gone or does not run." in done.out


@pytest.mark.skipif(not POSIX, reason="copies the links of an environment")
def test_a_course_that_was_moved_gets_its_environment_again(ready, tmp_path, wheels):
    course = tmp_path / "moved"
    shutil.copytree(ready, course, symlinks=True)
    done = run(course, "test", **local(wheels))
    assert f"Making .venv again: the course was moved here from {ready}." in done.out
    assert re.search(rf"PYTEST \[.*--dist=loadfile.*\] {re.escape(str(course))}$", done.out, re.MULTILINE)


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_something_else_called_venv_is_left_alone(tmp_path, kind):
    course = make_course(tmp_path / "course")
    venv = course / ".venv"
    (tmp_path / "elsewhere").mkdir()
    if kind == "file":
        venv.write_text("mine")
    elif kind == "folder":
        venv.mkdir()
        (venv / "mine").touch()
    else:
        venv.symlink_to(tmp_path / "elsewhere")
    assert_one_sentence(run(course, "lab"), f"{venv} is in the way", "move it away")
    assert venv.is_symlink() or venv.is_file() or (venv / "mine").exists()


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_python_that_cannot_make_environments_is_said(tmp_path, module):
    """As on Debian without python3-venv: the module cannot be imported."""
    (tmp_path / "lacking").mkdir()
    (tmp_path / "lacking" / f"{module}.py").write_text(f"raise ModuleNotFoundError('No module named {module}')")
    done = run(make_course(tmp_path / "course"), "lab", PYTHONPATH=str(tmp_path / "lacking"))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    assert_one_sentence(done, f"`{module}` is missing", f"sudo apt install {version}")


def test_a_port_in_use_is_said_before_the_long_set_up(tmp_path):
    course = make_course(tmp_path / "course")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert_one_sentence(run(course, "lab", f"--port={port}"), f"Port {port} is in use", "make lab PORT=")
    assert not (course / ".venv").exists()


@pytest.mark.parametrize("port", ["lots", "99999"])
def test_a_port_that_is_none_is_said(tmp_path, port):
    assert_one_sentence(run(make_course(tmp_path / "course"), "lab", f"--port={port}"), f"PORT={port} is not a port")


@pytest.mark.parametrize(
    ("arguments", "status", "part"),
    [
        (["labb"], 2, "Did you mean lab?"),
        (["xyz"], 2, "The commands are: lab, check"),
        (["setup", "--torch=gpu"], 1, "TORCH=gpu is not known: use TORCH=cpu"),
        (["setup", "now"], 1, "takes no such arguments: now"),
        (["grade"], 1, "make grade SUBMISSIONS=folder"),
    ],
)
def test_a_wrong_command_line_is_said(tmp_path, arguments, status, part):
    assert_one_sentence(run(make_course(tmp_path / "course"), *arguments), part, status=status)


def test_a_folder_without_the_course_is_said(tmp_path):
    course = make_course(tmp_path / "course")
    (course / "pyproject.toml").unlink()
    assert_one_sentence(run(course, "lab"), "is not the course's folder")


# ---- an old Python


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py"])
def test_an_old_python_can_read_what_tells_it_that_it_is_old(name):
    ast.parse((ROOT / "course_utils" / name).read_text(encoding="utf-8"), feature_version=(3, 6))


def test_an_old_python_is_said(monkeypatch, capsys):
    old = (3, 9, 18, "final", 0)
    monkeypatch.setattr(sys, "version_info", old)
    monkeypatch.setattr(sys, "version", "3.9.18 (old)")
    monkeypatch.setattr(sys, "argv", ["course_utils", "lab"])
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(ROOT / "course_utils" / "__main__.py"), run_name="__main__")
    assert left.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith(
        f"The course needs Python 3.10 or newer, and {sys.executable} is 3.9.18. Install a newer one"
    )
    assert len(said.strip().splitlines()) == 1


def find_old_pythons() -> list[str]:
    """Pythons too old for the course that this machine happens to have, each one that runs."""
    names = [shutil.which(f"python3.{minor}") for minor in range(6, 10)]
    names += [str(path) for path in Path.home().glob(".pyenv/versions/3.[6-9].*/bin/python")]
    return [name for name in names if name and subprocess.call([name, "-c", ""], stderr=subprocess.DEVNULL) == 0]


def test_old_pythons_of_this_machine_say_so_and_name_a_newer_one(tmp_path):
    newer = tmp_path / "python3.12"
    newer.write_text("#!/bin/sh\nexit 0\n")
    newer.chmod(0o755)
    for python in find_old_pythons():  # the test above stands in where there is none
        path = f"{tmp_path}{os.pathsep}/usr/bin"
        done = run(ROOT, "lab", python=Path(python), PATH=path)
        assert_one_sentence(done, "The course needs Python 3.10 or newer", "add PYTHON=python3.1")


# ---- make


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make on this machine")
class TestMakefile:
    def make(self, *arguments: str) -> str:
        environment = clean_environment(ROOT.parent)
        command = ["make", *arguments, f"PYTHON={BARE_PYTHON}"]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout

    def test_make_alone_lists_every_target_with_a_line(self):
        listed = re.findall(r"^  (\w+) +\S.{15,}$", self.make(), re.MULTILINE)
        assert listed == list(cli.COMMANDS)

    @pytest.mark.parametrize("target", list(cli.COMMANDS))
    def test_every_command_is_a_target_that_only_calls_it(self, target):
        assert self.make("-n", target).strip().startswith(f"{BARE_PYTHON} -m course_utils {target}")

    def test_variables_reach_the_command_whatever_they_hold(self):
        assert "lab --torch='cpu' --port='8889' --no-browser" in self.make(
            "-n", "lab", "PORT=8889", "TORCH=cpu", "ARGS=--no-browser"
        )
        assert "check  --lesson='01'" in self.make("-n", "check", "LESSON=01")
        line = self.make("-n", "grade", "SUBMISSIONS=it's here", "ROSTER=names.csv", "REPORT=a b")
        assert r"--submissions='it'\''s here' --roster='names.csv' --report='a b'" in " ".join(line.split())


# ---- parts


def test_a_conda_or_other_environment_with_the_course_in_it_is_used(monkeypatch):
    monkeypatch.setattr(setup, "_is_installed_here", lambda: True)
    monkeypatch.setattr(setup, "_is_inside_venv", lambda: False)
    monkeypatch.setattr(setup, "list_unmet", lambda requirements: [])
    monkeypatch.setattr(setup, "venv_python", lambda: Path("elsewhere"))  # these tests may run in .venv itself
    assert setup.prepare_environment() == Path(sys.executable)
    assert setup.is_running(Path(sys.executable))
    monkeypatch.setattr(setup, "list_unmet", lambda requirements: ["torch>=2.13"])
    with pytest.raises(root.CourseError, match=r"lacks torch>=2\.13\. Install what the course needs with"):
        setup.prepare_environment()


def test_cpu_wheels_of_torch_and_torchvision_come_from_one_index_before_the_rest(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(setup, "LOG", tmp_path / "log")
    monkeypatch.setattr(setup, "_run_pip", lambda python, arguments, log: calls.append(arguments))
    setup._install(Path("python"), ["torch>=2.13", "torchvision>=0.28", "numpy>=1.26"], "cpu")
    assert calls[0] == ["--index-url", "https://download.pytorch.org/whl/cpu", "torch>=2.13", "torchvision>=0.28"]
    assert calls[1][0] == "-e"
    calls.clear()
    setup._install(Path("python"), ["torch>=2.13"], "")
    assert [arguments[0] for arguments in calls] == ["-e"]


@pytest.mark.parametrize(
    ("found", "stamp", "torch", "reason"),
    [
        ({}, {}, "", "its Python is gone"),
        ({"version": "3.9"}, {}, "", "Python 3.9, which is too old"),
        ({"version": "3.12"}, {"python": "3.11"}, "", "made for Python 3.11 and now runs 3.12"),
        ({"version": "3.11"}, {"python": "3.11", "folder": "old"}, "", "the course was moved here from old"),
        ({"version": "3.11"}, {"python": "3.11", "folder": str(ROOT), "torch": ""}, "cpu", "with CUDA"),
        ({"version": "3.11"}, {"python": "3.11", "folder": str(ROOT), "torch": "cpu"}, "cpu", None),
        ({"version": "3.11"}, {}, "cpu", None),
    ],
)
def test_an_environment_is_made_again_only_for_a_reason(found, stamp, torch, reason):
    said = setup._reason_to_rebuild(found, stamp, torch)
    assert (reason in said) if reason else said == ""


@pytest.mark.parametrize(
    ("output", "part"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n", "disk is full"),
        (
            "WARNING: Retrying after connection broken by 'ReadTimeoutError(...)'\nERROR: No matching",
            "No connection to",
        ),
        (f"Looking in indexes: {setup.CPU_WHEELS}\n ... Max retries exceeded", "PyTorch's wheel index"),
        ("ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: 'x'\n", "may not write"),
        ("ERROR: No matching distribution found for torch>=2.13\n", "There is no torch>=2.13 for Python"),
        ("noise\nERROR: ResolutionImpossible: x\n", "(ResolutionImpossible: x)"),
        ("", "(no message)"),
    ],
)
def test_what_pip_says_becomes_a_sentence_with_the_place_of_the_log(output, part):
    said = setup.explain_pip_failure(output)
    assert part in said
    assert str(setup.LOG) in said


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("2.15.0+cpu", (2, 15)), ("8.1.0rc1", (8, 1)), ("3.10.1", (3, 10, 1)), ("odd", ()), ("0", ())],
)
def test_release_numbers(version, numbers):
    assert setup.release_numbers(version) == numbers


def test_unmet_requirements_are_missing_or_older():
    versions = {"a": "1.9", "b": "1.10", "c": "2.0+cpu"}
    wanted = ["a>=1.10", "b>=1.10", "c>=2", "d>=1", "e"]
    assert setup.list_unmet(wanted, lambda name: versions.get(name, "")) == ["a>=1.10", "d>=1", "e"]
    with pytest.raises(ValueError, match="not a requirement"):
        setup.split_requirement(">=1")
