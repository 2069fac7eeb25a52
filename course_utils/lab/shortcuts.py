"""JupyterLab's one-key shortcuts, out of the way of who uses a widget by keyboard.

JupyterLab takes the arrow keys and single letters while a notebook is in command mode, even where a widget has the
focus: an arrow key on radio buttons goes to another cell, and an x on a list cuts the cell with the list in it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SETTING = "@jupyterlab/shortcuts-extension:shortcuts"
SCHEMA = Path("share", "jupyter", "lab", "schemas", "@jupyterlab", "notebook-extension", "tracker.json")
IN_COMMAND_MODE = ".jp-Notebook.jp-mod-commandMode"
OUTSIDE_WIDGETS = ":not(.jupyter-widgets *)"


def free_keys_for_widgets(schema: Path = Path(sys.prefix) / SCHEMA) -> dict[str, Any]:
    """Return JupyterLab settings under which a notebook's shortcuts work everywhere but in a widget.

    `schema` is where the installed JupyterLab keeps the notebook's shortcuts: each one that works wherever the focus is
    in a notebook is switched off, and comes back for all places but widgets. Without the file, nothing is changed.
    """
    if not schema.exists():
        return {}
    known = json.loads(schema.read_text(encoding="utf-8")).get("jupyter.lab.shortcuts", [])
    everywhere = [
        each for each in known if each["selector"].startswith(IN_COMMAND_MODE) and each["selector"].endswith(" :focus")
    ]
    off = [{**each, "disabled": True} for each in everywhere]
    outside = [{**each, "selector": each["selector"] + OUTSIDE_WIDGETS} for each in everywhere]
    return {SETTING: {"shortcuts": off + outside}}
