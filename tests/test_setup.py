"""The environment that make makes, with a real pip and an index on this computer that has both kinds of PyTorch."""

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from course_utils.root import ROOT

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make on this machine")
pytestmark = [pytest.mark.slow, needs_make]
# A build system for a course that needs only PyTorch, so that nothing else is asked of the index.
BACKEND = """\
import zipfile
def build_editable(folder, *_):
    needs = "Requires-Dist: torch>=2.13\\nRequires-Dist: torchvision>=0.28\\n"
    name = "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        about = "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\nProvides-Extra: dev\\n"
        wheel.writestr("tiny-1.dist-info/METADATA", about + needs)
        wheel.writestr("tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("tiny-1.dist-info/RECORD", "")
    return name
"""
PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "tiny"
version = "1"
dependencies = ["torch>=2.13", "torchvision>=0.28"]
"""
TORCH = "kind = {kind!r}\ndef ones(*_): pass\n"
TORCHVISION = """\
import torch
class ops:
    def nms(*_): assert torch.kind == {kind!r}, "compiled for another torch"
"""


def add_wheel(index: Path, name: str, version: str, code: str, needs: str = "") -> None:
    wheel = index / name / f"{name}-{version}-py3-none-any.whl"
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        info = f"{name}-{version}.dist-info"
        archive.writestr(f"{name}/__init__.py", code)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{name}/__init__.py,,\n{info}/METADATA,,\n{info}/RECORD,,\n")


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


def test_the_environment_is_made_once_and_has_the_kind_of_torch_that_fits(tmp_path, indexes):
    course, moved, bin_ = (tmp_path / name for name in ("course", "moved", "bin"))
    course.mkdir(), bin_.mkdir()
    shutil.copy(ROOT / "Makefile", course)
    (course / "pyproject.toml").write_text(PROJECT)
    (course / "backend.py").write_text(BACKEND)
    (driver := bin_ / "nvidia-smi").touch(0o755)

    def see_driver(seen: bool) -> None:
        driver.write_text("#!/bin/sh\n" + ("echo GPU 0" if seen else "exit 9"))

    def setup(*arguments: str, folder: Path = course, wheels: str = f"{indexes}/cpu") -> tuple[str, str]:
        """What `make setup` printed, and the torch that is there afterwards."""
        environment = {"PATH": f"{bin_}:{os.environ['PATH']}", "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
        environment |= {"PIP_NO_CACHE_DIR": "1", "PIP_INDEX_URL": f"{indexes}/usual"}
        command = ["make", "setup", f"PYTHON={sys.executable}", f"CPU_WHEELS={wheels}", *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        code = "import importlib.metadata as m; print(m.version('torch'))"
        found = subprocess.run([folder / ".venv/bin/python", "-c", code], capture_output=True, text=True)
        return done.stdout + done.stderr, found.stdout.strip()

    see_driver(False)
    assert "torch and torchvision do not fit together: delete the folder .venv" in setup(wheels=f"{indexes}/odd")[0]
    shutil.rmtree(course / ".venv")
    said, torch = setup(wheels="http://127.0.0.1:9")
    assert (torch, "a download of 0.5 GB" in said) == ("2.15.0", True), "goes on without PyTorch's own index"
    shutil.rmtree(course / ".venv")
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
    shutil.rmtree(moved / ".venv")
    said, torch = setup(folder=moved)
    assert ("a download of 3 GB" in said, torch) == (True, "2.15.0"), "with a driver, PyTorch for it"
