"""Files that are no submissions, or odd ones: what stands in a class's folder besides honest notebooks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from nbformat import NotebookNode


def write_files(folder: Path, name: str, notebook: NotebookNode, version_3: bytes) -> dict[str, str]:
    """Write odd files for the lesson called `name` below `folder`, made from a right `notebook`.

    Returns for each student what the reason must say; "" where the answers are in order and count in full.
    """
    right = json.dumps(notebook).encode()
    odd: dict[str, tuple[Callable[[Path], object], str]] = {
        "f-binary": (lambda path: path.write_bytes(bytes(range(256)) * 100), "UTF-8"),
        "f-cut": (lambda path: path.write_bytes(right[: len(right) // 2]), "cut off"),
        "f-deep-json": (lambda path: path.write_bytes(b"[" * 5_000_000), "nested too deeply"),
        "f-deep-code": (lambda path: path.write_bytes(_with(notebook, "x = " + "-" * 100_000 + "1")), ""),
        "f-directory": (lambda path: path.mkdir(), "is a folder"),
        "f-double-ids": (lambda path: path.write_bytes(_with_double_ids(notebook)), ""),
        "f-elif": (
            lambda path: path.write_bytes(_with(notebook, "if x:\n    y = 0\n" + "elif x:\n    y = 1\n" * 700)),
            "",
        ),
        "f-empty": (lambda path: path.write_bytes(b""), "is empty"),
        "f-latin-1": (lambda path: path.write_bytes("é".encode("latin-1")), "UTF-8"),
        "f-long-code": (lambda path: path.write_bytes(_with(notebook, "x = 1\n" * 200_000)), "code cells hold"),
        "f-many-names": (lambda path: path.write_bytes(_with(notebook, _chain(9_000))), ""),
        "f-null": (lambda path: path.write_bytes(b"\x00" * 1000), "no notebook"),
        "f-other-kernel": (lambda path: path.write_bytes(_with_kernel(notebook, "no-such-kernel", "python")), ""),
        "f-other-language": (lambda path: path.write_bytes(_with_kernel(notebook, "ir", "R")), ""),
        "f-pipe": (os.mkfifo, "not a regular file"),
        "f-two-gigabytes": (lambda path: _write_sparse(path, 2 * 1024**3), "larger than"),
        "f-utf-16": (lambda path: path.write_bytes(right.decode().encode("utf-16")), "UTF-8"),
        "f-many-cells": (lambda path: path.write_bytes(_with_many_cells(notebook, 20_000)), ""),
        "f-version-3": (lambda path: path.write_bytes(version_3), ""),
        "f-version-99": (
            lambda path: path.write_bytes(right.replace(b'"nbformat": 4', b'"nbformat": 99')),
            "version 99",
        ),
        "f-with-mark": (lambda path: path.write_bytes(b"\xef\xbb\xbf" + right), ""),
        "f-symlink": (lambda path: path.symlink_to("/etc/passwd"), "links are not followed"),
    }
    for student, (write, _) in odd.items():
        (folder / student).mkdir()
        write(folder / student / f"{name}.ipynb")
    (folder / "f-line\nbreak").mkdir()
    (folder / "f-up..down").mkdir()
    (folder / "f-nothing").mkdir()
    (folder / "f-link").symlink_to(folder.parent)
    named = {"f-line\\nbreak": "should have", "f-up..down": "should have", "f-nothing": "no notebook", "f-link": "link"}
    return {student: reason for student, (_, reason) in odd.items()} | named


def _with(notebook: NotebookNode, source: str) -> bytes:
    """The notebook with one more code cell, at its end."""
    cell = {"cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": None, "id": "more"}
    return json.dumps({**notebook, "cells": [*notebook["cells"], cell]}).encode()


def _with_many_cells(notebook: NotebookNode, count: int) -> bytes:
    empty = {"cell_type": "code", "metadata": {}, "source": "", "outputs": [], "execution_count": None}
    more = [{**empty, "id": f"more-{number}"} for number in range(count)]
    return json.dumps({**notebook, "cells": [*notebook["cells"], *more]}).encode()


def _with_double_ids(notebook: NotebookNode) -> bytes:
    return json.dumps({**notebook, "cells": [{**cell, "id": "same"} for cell in notebook["cells"]]}).encode()


def _with_kernel(notebook: NotebookNode, name: str, language: str) -> bytes:
    kernel = {"name": name, "display_name": name, "language": language}
    return json.dumps({**notebook, "metadata": {"kernelspec": kernel, "language_info": {"name": language}}}).encode()


def _chain(length: int) -> str:
    """Definitions each of which needs the one before; the last is a name that answers use."""
    lines = ["x0 = 1", *(f"x{number} = x{number - 1}" for number in range(1, length))]
    return "\n".join([*lines, f"def helper(): return x{length - 1}"])


def _write_sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)
