"""The learner's folder: lessons copied into `work/`, and JupyterLab opened on them.

An update of the course reaches the copies with all that is the learner's kept (see `renewal.py`). JupyterLab gets a
configuration of its own, in the environment, so that it neither reads nor writes what else the learner has in
`~/.jupyter`.
"""

import json
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from course_utils.lab.setup import replace_process
from course_utils.lab.shortcuts import free_keys_for_widgets
from course_utils.lab.update import Renewal, remember, renew_lessons
from course_utils.root import ROOT, CourseError

NOTEBOOKS = ROOT / "notebooks"
WORK = ROOT / "work"
MARKER = ".course-work"
START = "00_start_here.ipynb"
DEFAULT_PORT = 8888

# A lesson opens without a question in the way: no news, no offer to update or rebuild.
PAGE = {
    "buildAvailable": False,
    "buildCheck": False,
    "disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True},
}
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": False,
    }
}


def find_lessons(notebooks: Path = NOTEBOOKS) -> list[Path]:
    """The lessons of the course, in order. Raises `CourseError` where there is none."""
    lessons = sorted(notebooks.glob("*.ipynb"))
    if not lessons:
        raise CourseError(
            f"There is no lesson in {notebooks}. Get the course again, or build them with: make notebooks"
        )
    return lessons


def copy_lessons(notebooks: Path = NOTEBOOKS, work: Path = WORK) -> list[Path]:
    """Copy the lessons that `work` does not have yet, mark the folder as a learner's, and return the new files.

    A file that is already there stays as it is (`renewal.renew_lessons` brings it up to date). Raises `CourseError`
    where there is no lesson, or no folder to write to.
    """
    lessons = find_lessons(notebooks)
    if work.exists() and not work.is_dir():
        raise CourseError(f"{work} is a file, and the lessons need a folder of that name: rename it and try again.")
    work.mkdir(exist_ok=True)
    marker = work / MARKER
    if not marker.exists():
        marker.write_text("Your copies of the lessons. An update keeps what is yours in them.\n", encoding="utf-8")
    new = [lesson for lesson in lessons if not (work / lesson.name).exists()]
    copies = [_copy(lesson, work / lesson.name) for lesson in new]
    if new:
        remember({lesson.name: lesson for lesson in new}, work)
    return copies


def _copy(source: Path, target: Path) -> Path:
    # Under another name first, so that a full disk cannot leave half a lesson that then counts as the learner's.
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.copyfile(source, part)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target


def trust_lessons(lessons: list[Path], home: Path) -> None:
    """Sign the fresh copies `lessons`, so that JupyterLab shows the saved pictures in them before a cell has run."""
    _sign(dict.fromkeys(lessons), home)


def trust_renewed(renewals: list[Renewal], home: Path) -> None:
    """Sign the renewed lessons as well, except those that had come to hold what JupyterLab did not trust."""
    _sign({each.renewed: each.backup for each in renewals if each.renewed}, home)


def _sign(lessons: Mapping[Path, Path | None], home: Path) -> None:
    """Sign each notebook, if JupyterLab trusts the one that it was made from, where there is one."""
    if not lessons:
        return
    import nbformat
    from nbformat.sign import NotebookNotary

    data = home / "data"
    data.mkdir(parents=True, exist_ok=True)
    notary = NotebookNotary(data_dir=str(data))
    for lesson, origin in lessons.items():
        if origin is None or notary.check_signature(nbformat.read(origin, as_version=4)):
            notary.sign(nbformat.read(lesson, as_version=4))
    notary.store.close()


def choose_port(given: str) -> str:
    """Return the port to use (8888 where `given` is ""), or raise `CourseError` where it is none, or is in use."""
    if given and not (given.isascii() and given.isdigit() and 1 <= int(given) <= 65535):
        raise CourseError(f"PORT={given} is not a port: use a number from 1024 to 65535, like  make lab PORT=8889")
    port = int(given or DEFAULT_PORT)
    trouble = _find_trouble(port)
    if trouble:
        free = next((p for p in range(max(port, 1023) + 1, 65536) if not _find_trouble(p)), DEFAULT_PORT + 1)
        raise CourseError(f"Port {port} {trouble}. Use another one:  make lab PORT={free}")
    return str(port)


def _find_trouble(port: int) -> str:
    """Say why JupyterLab cannot listen on this port of this machine, or return "" where it can."""
    with socket.socket() as client:
        client.settimeout(1)
        # Where another program listens on all addresses, some systems would still let us have this one.
        if client.connect_ex(("127.0.0.1", port)) == 0:
            return "is in use, perhaps by a JupyterLab that is still open"
    with socket.socket() as server:
        if os.name == "posix":
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("127.0.0.1", port))
        except PermissionError:
            return "is kept for the system"
        except OSError:
            return "is in use"
    return ""


def open_lab(port: str, arguments: list[str]) -> int:
    """Bring the lessons in `work/` up to date and open JupyterLab on the first one, at `port` of this machine only.

    `arguments` are JupyterLab's own, passed on as they are.
    """
    home = Path(sys.prefix) / "jupyter-home"
    configure_lab(home)
    trust_lessons(copy_lessons(), home)
    renewals = renew_lessons(find_lessons(), WORK)
    trust_renewed(renewals, home)
    for renewal in renewals:
        print(renewal.sentence)
    environment = isolate_jupyter(dict(os.environ), home)
    print(f"Opening JupyterLab on port {port}. Leave this window open while you work; Ctrl-C here ends it.")
    return replace_process(lab_command(port, arguments, WORK), environment)


def lab_command(port: str, arguments: list[str], work: Path) -> list[str]:
    """Return the command line that opens JupyterLab."""
    start = f"/lab/tree/{START}" if (work / START).exists() else "/lab"
    command = [
        sys.executable,
        *("-m", "jupyterlab"),
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={work}",
        f"--LabApp.default_url={start}",
        # A browser in a sandbox may not read the file that would send it on; the plain address always works.
        "--ServerApp.use_redirect_file=False",
        "--LabApp.extension_manager=readonly",  # the other one asks the network
        "--LanguageServerManager.autodetect=False",  # no lesson wants one, and looking for them starts npm
        "--ServerApp.log_level=WARN",  # the address is shown all the same
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    return command + arguments


def configure_lab(home: Path) -> None:
    """Write the settings under which JupyterLab opens without pop-ups into the folder `home`."""
    folder = home / "config" / "labconfig"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {**SETTINGS, **free_keys_for_widgets()}
    for name, content in (("page_config", PAGE), ("default_setting_overrides", settings)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def isolate_jupyter(environment: dict[str, str], home: Path) -> dict[str, str]:
    """Return the environment variables under which Jupyter and IPython keep to `home` and to this Python's kernel.

    A password, kernel or start-up file that the learner has elsewhere would ask questions or change what a lesson does.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if name not in ("JUPYTER_PATH", "JUPYTER_CONFIG_PATH", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
    }
    return {
        **kept,
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "IPYTHONDIR": str(home / "ipython"),
    }
