"""Imports without the parts that grading does not use: together, they take longer than grading ten notebooks."""

from __future__ import annotations

import importlib
import sys

# What a library tries to import for something else, and does without where it is missing.
UNUSED = {
    "jsonschema": ("rfc3987_syntax", "isoduration"),  # formats that no notebook has; one is a grammar, built in 2 s
    "jupytext": ("tornado.web", "markdown_it"),  # to serve notebooks in JupyterLab, and to read another text format
}


def import_lean() -> None:
    """Import the libraries that notebooks are read with, without what is not needed of them.

    Whoever wants the parts that were left out can import them later. For a process that only grades.
    """
    for library, parts in UNUSED.items():
        if library not in sys.modules:
            _import_without(library, [part for part in parts if part not in sys.modules])


def _import_without(library: str, parts: list[str]) -> None:
    for part in parts:
        sys.modules[part] = None  # type: ignore[assignment]  # to import it raises ImportError, as if it were missing
    try:
        importlib.import_module(library)
    finally:
        for part in parts:
            del sys.modules[part]
