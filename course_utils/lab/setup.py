"""Make the course's own environment, in the folder `.venv`, and say in a sentence why it cannot be made.

Standard library only: this runs on a bare Python before anything is installed. A stamp in `.venv` says what was
installed and for what; while it holds, a second run starts in a moment and needs no network. An install that failed
or was interrupted leaves no complete stamp, so the next run goes on with it.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

from course_utils.root import ROOT, CourseError

OLDEST_PYTHON = (3, 10)
VENV = ROOT / ".venv"
STAMP = VENV / "course-stamp.json"
LOG = VENV / "install.log"

# The index that PyTorch's own install page names for wheels without CUDA. torchvision must come from there too:
# PyPI's is built for CUDA, and beside a CPU torch it stops with "operator torchvision::nms does not exist".
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
FROM_CPU_WHEELS = ("torch", "torchvision")

DISK_FULL = (
    "The disk is full. Free some space (the course takes about 7 GB, or 2 GB with TORCH=cpu), then run this again."
)

_NETWORK_TROUBLE = re.compile(
    r"NewConnectionError|Max retries exceeded|ConnectTimeoutError|ReadTimeoutError|ProxyError|NameResolutionError"
    r"|Failed to establish a new connection|Temporary failure in name resolution|Network is unreachable"
    r"|ConnectionResetError|RemoteDisconnected|SSLError|IncompleteRead"
)


# ---- what the course needs


def read_requirements(pyproject: str, dev: bool = True) -> list[str]:
    """Return the requirement strings in the text of a pyproject.toml, those of the extra `dev` included if wanted.

    Python 3.10 has no TOML reader, so this reads the two lists as they are laid out in this course's file.
    """
    names = ["dependencies", "dev"] if dev else ["dependencies"]
    lists = [re.search(rf"^{name} = \[(.*?)^\]", pyproject, re.MULTILINE | re.DOTALL) for name in names]
    return [requirement for found in lists if found for requirement in re.findall(r'"([^"]+)"', found.group(1))]


def split_requirement(requirement: str) -> tuple[str, str]:
    """Return name and lower bound of a requirement like `torch>=2.13`; the bound is "" where there is none."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    bound = re.search(r">=\s*([0-9][0-9.]*)", requirement)
    if name is None:
        raise ValueError(f"not a requirement: {requirement!r}")
    return name.group(), bound.group(1) if bound else ""


def release_numbers(version: str) -> tuple[int, ...]:
    """Return the release numbers of a version, without trailing zeros: "2.15.0+cpu" gives (2, 15)."""
    leading = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in leading.group().split(".")] if leading else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def find_version(name: str) -> str:
    """Return the installed version of a distribution, or "" where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def list_unmet(requirements: list[str], version_of: Callable[[str], str] = find_version) -> list[str]:
    """Return those requirements of which the installed version, as `version_of` knows it, is missing or too old."""
    unmet = []
    for requirement in requirements:
        name, bound = split_requirement(requirement)
        version = version_of(name)
        if not version or release_numbers(version) < release_numbers(bound):
            unmet.append(requirement)
    return unmet


# ---- which Python runs the course


def venv_python() -> Path:
    """Return the path of the Python in `.venv`, whether it is there or not."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def is_running(python: Path) -> bool:
    """Tell whether `python` is the interpreter that runs this."""
    if python == venv_python():
        return _is_inside_venv()
    return python == Path(sys.executable)


def run_again(python: Path, arguments: list[str]) -> int:
    """Run `course_utils` with these arguments in another Python, in place of this process where that is possible."""
    command = [str(python), "-m", "course_utils", *arguments]
    # From any other folder `-m course_utils` could find another copy of the course.
    os.chdir(ROOT)
    return replace_process(command, dict(os.environ))


def replace_process(command: list[str], environment: dict[str, str]) -> int:
    """Turn this process into `command`; on Windows, where that detaches the console, wait for it instead."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":
        return subprocess.call(command, env=environment)
    os.execve(command[0], command, environment)


def prepare_environment(torch: str = "") -> Path:
    """Return the Python that runs the course, after making or mending `.venv` where that is needed.

    A conda or virtual environment into which this very folder was installed is used as it is. `torch="cpu"` takes
    PyTorch's CPU wheels; "" takes what PyPI has, and keeps what is there. Raises `CourseError`.
    """
    if torch not in ("", "cpu"):
        raise CourseError(f"TORCH={torch} is not known: use TORCH=cpu, or leave TORCH out.")
    pyproject = ROOT / "pyproject.toml"
    if not pyproject.is_file():
        raise CourseError(f"{ROOT} is not the course's folder: run this in the folder that has the Makefile.")
    requirements = read_requirements(pyproject.read_text(encoding="utf-8"))
    if _is_installed_here():
        unmet = list_unmet(requirements)
        if not _is_inside_venv():
            if unmet:
                raise CourseError(
                    f"This environment ({sys.prefix}) lacks {', '.join(unmet)}. Install what the course needs with: "
                    f'{sys.executable} -m pip install -e "{ROOT}[dev]"'
                )
            return Path(sys.executable)
        if not unmet and not STAMP.exists():
            _write_stamp(_describe_target(_this_version(), torch), complete=True)
    return _prepare_venv(requirements, torch)


def _is_inside_venv() -> bool:
    return VENV.is_dir() and os.path.samefile(sys.prefix, VENV)


def _is_installed_here() -> bool:
    """Tell whether this folder is installed, in place, in the environment of the running Python."""
    # Not the whole of sys.path: an install leaves metadata in the course's folder too, which any Python started
    # there would take for its own.
    for found in importlib.metadata.distributions(name="course-utils", path=[sysconfig.get_path("purelib")]):
        source = json.loads(found.read_text("direct_url.json") or "{}").get("url", "")
        folder = Path(url2pathname(urlparse(source).path))
        if source.startswith("file:") and folder.is_dir() and folder.samefile(ROOT):
            return True
    return False


# ---- .venv


def _prepare_venv(requirements: list[str], torch: str) -> Path:
    python = venv_python()
    found = _probe(python)
    stamp = _read_stamp()
    torch = torch or stamp.get("torch", "")
    if VENV.exists() or VENV.is_symlink():
        reason = _reason_to_rebuild(found, stamp, torch)
        if reason:
            _refuse_to_delete()
            print(f"Making .venv again: {reason}.")
            stamp, found = {}, {}
    target = _describe_target(found.get("version") or _this_version(), torch)
    if stamp == {**target, "complete": True}:
        return python
    started = time.monotonic()
    _announce(torch)
    if not found.get("pip"):
        _create_venv(clear=VENV.exists() and not found)
    _write_stamp(target, complete=False)
    _install(python, requirements, torch)
    _write_stamp(target, complete=True)
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    print(f"Ready after {minutes} min {seconds} s. From now on it starts at once and needs no network.")
    return python


def _this_version() -> str:
    return "{}.{}".format(*sys.version_info[:2])


def _probe(python: Path) -> dict:
    """Return version and pip of an environment's Python, or {} where it does not run."""
    program = (
        "import importlib.util, json, sys\n"
        "print(json.dumps({'version': '%d.%d' % sys.version_info[:2], 'pip': bool(importlib.util.find_spec('pip'))}))"
    )
    try:
        answer = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
        return json.loads(answer.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return {}


def _describe_target(version: str, torch: str) -> dict:
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    return {"pyproject": digest, "python": version, "torch": torch, "folder": str(ROOT)}


def _read_stamp() -> dict:
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def _write_stamp(target: dict, complete: bool) -> None:
    part = STAMP.with_suffix(".part")
    part.write_text(json.dumps({**target, "complete": complete}, indent=1), encoding="utf-8")
    os.replace(part, STAMP)


def _reason_to_rebuild(found: dict, stamp: dict, torch: str) -> str:
    """Say why the `.venv` that is there cannot be kept, or return "" where it can."""
    if not found:
        return "its Python is gone or does not run"
    if release_numbers(found["version"]) < OLDEST_PYTHON:
        return f"it was made with Python {found['version']}, which is too old"
    if stamp and stamp.get("python") != found["version"]:
        return f"it was made for Python {stamp.get('python')} and now runs {found['version']}"
    if stamp and stamp.get("folder") != str(ROOT):
        return f"the course was moved here from {stamp.get('folder')}"
    if torch == "cpu" and stamp and stamp.get("torch") != "cpu":
        return "it has PyTorch with CUDA, and you ask for TORCH=cpu"
    return ""


def _refuse_to_delete() -> None:
    """Raise `CourseError` where `.venv` is in use, or is not a virtual environment and so may be somebody's work."""
    if _is_inside_venv():
        raise CourseError("Leave the environment first (deactivate), then run this again: .venv has to be made again.")
    if VENV.is_symlink() or not VENV.is_dir() or (any(VENV.iterdir()) and not (VENV / "pyvenv.cfg").exists()):
        raise CourseError(f"{VENV} is in the way and is not a virtual environment: move it away, then run this again.")


def _announce(torch: str) -> None:
    # Only Linux gets PyTorch with CUDA from PyPI.
    size, room = (1, 2) if torch == "cpu" or sys.platform != "linux" else (3, 7)
    print(f"Setting the course up in .venv: up to {size} GB to download, a few minutes, this once.", flush=True)
    if size > 1 and not _read_stamp():
        print("On a slow line, stop with Ctrl-C and add TORCH=cpu: 1 GB, and enough for every lesson.", flush=True)
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < room:
        print(f"Note: {free:.1f} GB of disk are free, and the course takes about {room} GB.", flush=True)


def _create_venv(clear: bool) -> None:
    version = _this_version()
    for module in ("venv", "ensurepip"):
        try:
            __import__(module)
        except ImportError:
            raise CourseError(
                f"{sys.executable} cannot make a virtual environment: its module `{module}` is missing. On Debian and "
                f"Ubuntu run  sudo apt install python{version}-venv  (elsewhere, install Python from python.org), then "
                "run this again."
            ) from None
    command = [sys.executable, "-m", "venv", *(["--clear"] if clear else []), str(VENV)]
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if made.returncode:
        if "No space left on device" in made.stdout:
            raise CourseError(DISK_FULL)
        last = made.stdout.strip().splitlines()[-1:] or ["no message"]
        raise CourseError(f"{VENV} could not be made ({last[0]}). Can you write to this folder? Then run this again.")


# ---- pip


def _install(python: Path, requirements: list[str], torch: str) -> None:
    with LOG.open("w", encoding="utf-8") as log:
        if torch == "cpu":
            wanted = [line for line in requirements if split_requirement(line)[0] in FROM_CPU_WHEELS]
            _run_pip(python, ["--index-url", CPU_WHEELS, *wanted], log)
        _run_pip(python, ["-e", f"{ROOT}[dev]"], log)


def _run_pip(python: Path, arguments: list[str], log) -> None:
    command = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-user", *arguments]
    lines = []
    pip = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace"
    )
    try:
        for line in pip.stdout:
            log.write(line)
            log.flush()
            lines.append(line)
            _show_progress(line)
        status = pip.wait()
    except BaseException:
        # Ctrl-C, or no room for the log: do not leave a pip behind that goes on installing.
        pip.kill()
        pip.wait()
        raise
    if status:
        raise CourseError(explain_pip_failure("".join(lines)))


def _show_progress(line: str) -> None:
    """Print the few of pip's lines that tell somebody who waits that something happens."""
    download = re.match(r"\s*Downloading (\S+?)-\d\S*\.whl \(([\d.]+) (MB|GB)\)", line)
    if download and (download.group(3) == "GB" or float(download.group(2)) >= 20):
        print(f"  downloading {download.group(1)}, {download.group(2)} {download.group(3)}", flush=True)
    elif line.startswith("Installing collected packages"):
        print(f"  installing {line.count(',') + 1} packages", flush=True)


def explain_pip_failure(output: str) -> str:
    """Return the sentences for what pip printed before it gave up: the cause, and what to do."""
    log = f"pip's own words are in {LOG}."
    if "No space left on device" in output:
        return f"{DISK_FULL} {log}"
    if _NETWORK_TROUBLE.search(output):
        where = "PyTorch's wheel index" if CPU_WHEELS in output else "the Python package index"
        return (
            f"No connection to {where}: the first run downloads what the course needs. Check the network (or proxy), "
            f"then run this again; what is already here is not fetched twice. {log}"
        )
    if "Permission denied" in output:
        return f"pip may not write in {VENV}: give yourself the right to, or move the course to your own folder. {log}"
    missing = re.search(r"No matching distribution found for (\S+)", output)
    if missing:
        return (
            f"There is no {missing.group(1)} for Python {platform.python_version()} on this machine. Try another "
            f"Python: delete .venv, then run this again with PYTHON=python3.12 (or 3.10 to 3.13). {log}"
        )
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")] or ["ERROR: no message"]
    return (
        f"pip could not install what the course needs ({errors[-1][7:]}). Run this again; if it stays, delete .venv "
        f"and start over. {log}"
    )
