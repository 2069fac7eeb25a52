"""JupyterLab on the learner's copies of the lessons, in the folder `work/`, with settings of the course's own.

They lie in the environment, so that JupyterLab neither reads nor writes what else the learner has in `~/.jupyter`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from course_utils.lab.update import Update, update_lessons
from course_utils.root import ROOT, CourseError, write_whole

NOTEBOOKS = ROOT / "notebooks"
WORK = ROOT / "work"
MARKER = ".course-work"
START = "00_start_here.ipynb"

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
SHORTCUTS = "@jupyterlab/shortcuts-extension:shortcuts"
SCHEMA = Path(sys.prefix, "share", "jupyter", "lab", "schemas", "@jupyterlab", "notebook-extension", "tracker.json")
IN_COMMAND_MODE = ".jp-Notebook.jp-mod-commandMode"


def open_lab(port: int, arguments: Iterable[str] = ()) -> int:
    """Bring the copies of the lessons up to date and open JupyterLab on the first, at `port` of this machine only.

    `arguments` are JupyterLab's own, passed on as they are. Raises `CourseError` where the port is in use.
    """
    with socket.socket() as client:
        if client.connect_ex(("127.0.0.1", port)) == 0:
            raise CourseError(
                f"Port {port} is in use, perhaps by a JupyterLab that is still open. Use another one:  "
                f"make lab PORT={port + 1}"
            )
    home = Path(sys.prefix) / "jupyter-home"
    for sentence in prepare(home):
        print(sentence)
    print(f"Opening JupyterLab on port {port}. Leave this window open while you work; Ctrl-C here ends it.", flush=True)
    command, environment = lab_command(port, arguments, WORK), isolate_jupyter(os.environ, home)
    if os.name == "nt":  # where taking this process's place would detach the console
        return subprocess.call(command, env=environment)
    os.execve(command[0], command, environment)


def prepare(home: Path, work: Path = WORK, notebooks: Path = NOTEBOOKS) -> list[str]:
    """Copy the lessons to `work` or bring the copies there up to date, and write JupyterLab's settings into `home`.

    Returns what there is to say to the learner. Raises `CourseError` where there is no lesson.
    """
    lessons = sorted(notebooks.glob("*.ipynb"))
    if not lessons:
        raise CourseError(
            f"There is no lesson in {notebooks}. Get the course again, or build them with: make notebooks"
        )
    configure_lab(home)
    if not (work / MARKER).exists():
        write_whole(work / MARKER, "Your copies of the lessons. An update keeps what is yours in them.\n")
    updates = list(update_lessons(lessons, work))
    _trust([update for update in updates if update.written], home)
    return [update.sentence for update in updates if update.sentence]


def _trust(updates: list[Update], home: Path) -> None:
    """Sign what was written, so that JupyterLab shows saved pictures at once, but for what it did not trust before."""
    if not updates:
        return
    import nbformat
    from nbformat.sign import NotebookNotary

    notary = NotebookNotary(data_dir=str(home / "data"))
    for update in updates:
        if update.backup is None or notary.check_signature(nbformat.read(update.backup, as_version=4)):
            notary.sign(nbformat.read(update.written, as_version=4))
    notary.store.close()


def configure_lab(home: Path) -> None:
    """Write the settings under which JupyterLab opens without pop-ups into the folder `home`."""
    (home / "data").mkdir(parents=True, exist_ok=True)
    for name, content in (("page_config", PAGE), ("default_setting_overrides", SETTINGS | free_keys_for_widgets())):
        write_whole(home / "config" / "labconfig" / f"{name}.json", json.dumps(content, indent=2) + "\n")


def free_keys_for_widgets(schema: Path = SCHEMA) -> dict[str, Any]:
    """JupyterLab's settings under which a notebook's one-key shortcuts work everywhere but in a widget.

    In command mode JupyterLab takes the arrow keys and single letters even where a widget has the focus: an arrow key
    on radio buttons goes to another cell, and an x on a list cuts the cell with the list in it. `schema` is where the
    installed JupyterLab keeps the shortcuts: each that works anywhere in a notebook is switched off, and comes back for
    all places but widgets.
    """
    known = json.loads(schema.read_text(encoding="utf-8"))["jupyter.lab.shortcuts"] if schema.exists() else []
    found = [
        one for one in known if one["selector"].startswith(IN_COMMAND_MODE) and one["selector"].endswith(" :focus")
    ]
    off = [{**one, "disabled": True} for one in found]
    outside = [{**one, "selector": one["selector"] + ":not(.jupyter-widgets *)"} for one in found]
    return {SHORTCUTS: {"shortcuts": off + outside}} if found else {}


def lab_command(port: int, arguments: Iterable[str], work: Path) -> list[str]:
    """The command line that opens JupyterLab on the folder `work`."""
    settings = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": work,
        "LabApp.default_url": f"/lab/tree/{START}" if (work / START).exists() else "/lab",
        "ServerApp.use_redirect_file": False,  # which a browser in a sandbox may not read
        "LabApp.extension_manager": "readonly",  # the other one asks the network
        "LanguageServerManager.autodetect": False,  # no lesson wants one, and looking for them starts npm
        "ServerApp.log_level": "WARN",  # the address is shown all the same
        "ServerApp.allow_root": os.name == "posix" and os.geteuid() == 0,
    }
    return [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in settings.items()), *arguments]


def isolate_jupyter(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """The environment variables under which Jupyter and IPython keep to `home` and to this Python's kernel.

    A password, kernel or start-up file that the learner has elsewhere would ask questions or change what a lesson does.
    """
    elsewhere = ("JUPYTER_PATH", "JUPYTER_CONFIG_PATH", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
    own = {"CONFIG_DIR": "config", "DATA_DIR": "data", "RUNTIME_DIR": "runtime"}
    return {
        **{name: value for name, value in environment.items() if name not in elsewhere},
        **{f"JUPYTER_{name}": str(home / folder) for name, folder in own.items()},
        "JUPYTER_PREFER_ENV_PATH": "1",
        "IPYTHONDIR": str(home / "ipython"),
    }
