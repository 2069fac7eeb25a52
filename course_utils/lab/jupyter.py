"""JupyterLab on the learner's copies of the lessons, in the folder `work/`, with settings of the course's own.

They lie in the environment, so that JupyterLab neither reads nor writes what else the learner has in `~/.jupyter`.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import nbformat
from nbformat.sign import NotebookNotary

from course_utils.exercises.saved_progress import MARKER
from course_utils.lab.update import update_lessons
from course_utils.root import ASSETS, ROOT, CourseError, write_whole

NOTEBOOKS = ROOT / "notebooks"
WORK = ROOT / "work"


def open_lab(port: int = 8888, arguments: Iterable[str] = (), only_prepare: bool = False) -> int:
    """Bring the copies of the lessons up to date and open JupyterLab on the first, at `port` of this machine only.

    `arguments` are JupyterLab's own, passed on as they are; with `only_prepare`, JupyterLab is left to its host.
    Raises `CourseError` where the port is in use.
    """
    home = Path(sys.prefix) / "jupyter-home"
    if only_prepare:
        print(*prepare(home), sep="\n")
        return 0
    with socket.socket() as client:
        if client.connect_ex(("127.0.0.1", port)) == 0:
            perhaps = f"Port {port} is in use, perhaps by a JupyterLab that is still open."
            raise CourseError(f"{perhaps} Use another one:  make lab PORT={port + 1}")
    opening = f"Opening JupyterLab on port {port}. Leave this window open while you work; Ctrl-C here ends it."
    print(*prepare(home), opening, sep="\n", flush=True)
    command, environment = lab_command(port, arguments, WORK), isolate_jupyter(os.environ, home)
    if os.name == "nt":  # where taking this process's place would detach the console
        return subprocess.call(command, env=environment)
    os.execve(command[0], command, environment)


def prepare(home: Path, work: Path = WORK, notebooks: Path = NOTEBOOKS) -> list[str]:
    """Copy the lessons to `work` or bring the copies there up to date, and write JupyterLab's settings into `home`.

    Returns what there is to say to the learner. Raises `CourseError` where there is no lesson.
    """
    lessons, sentences = sorted(notebooks.glob("*.ipynb")), []
    if not lessons:
        mend = "Get the course again, or build them with: make notebooks"
        raise CourseError(f"There is no lesson in {notebooks}. {mend}")
    _write_settings(home)
    write_whole(work / MARKER, "Your copies of the lessons. An update keeps what is yours in them.\n")
    notary = NotebookNotary(data_dir=str(home / "data"))
    for sentence, written, backup in update_lessons(lessons, work):
        # What is signed shows its pictures at once. What JupyterLab did not trust before is not signed.
        if written and (backup is None or notary.check_signature(nbformat.read(backup, as_version=4))):
            notary.sign(nbformat.read(written, as_version=4))
        if sentence:
            sentences.append(sentence)
    notary.store.close()
    return sentences


def _write_settings(home: Path) -> None:
    """Let a lesson open without a question in the way, no news or offers, and be saved as `saving` says."""
    (home / "data").mkdir(parents=True, exist_ok=True)
    settings = json.loads((ASSETS / "lab_settings.json").read_text(encoding="utf-8"))
    for name, content in settings.items():
        write_whole(home / "config" / "labconfig" / f"{name}.json", json.dumps(content, indent=2) + "\n")
    # In Python: a hook that JSON names is not found.
    write_whole(home / "config" / "jupyter_server_config.py", (ASSETS / "lab_hook.txt").read_text(encoding="utf-8"))
    styles = [(ASSETS / name).read_text(encoding="utf-8") for name in ("lab.css", "asleep.css")]
    write_whole(home / "config" / "custom" / "custom.css", "\n".join(styles))


def lab_command(port: int, arguments: Iterable[str], work: Path) -> list[str]:
    """The command line that opens JupyterLab on the folder `work`."""
    listed = json.loads((ASSETS / "lab_server.json").read_text(encoding="utf-8"))
    settings = {setting["name"]: setting["value"] for setting in listed} | {"ServerApp.port": port}
    settings |= {"ServerApp.root_dir": work, "ServerApp.allow_root": os.name == "posix" and os.geteuid() == 0}
    return [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in settings.items()), *arguments]


def isolate_jupyter(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """The environment variables under which Jupyter and IPython keep to `home` and to this Python's kernel.

    A password, kernel or start-up file that the learner has elsewhere would ask questions or change what a lesson does.
    """
    theirs = ("JUPYTER_PATH", "JUPYTER_CONFIG_PATH", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
    kept = {name: value for name, value in environment.items() if name not in theirs}
    own = {f"JUPYTER_{kind.upper()}_DIR": str(home / kind) for kind in ("config", "data", "runtime")}
    return {**kept, **own, "JUPYTER_PREFER_ENV_PATH": "1", "IPYTHONDIR": str(home / "ipython")}
