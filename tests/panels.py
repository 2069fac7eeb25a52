"""Explorers as a learner uses them: find a control by the words on it, read what is shown, upload a file."""

import base64
import datetime
import io

import ipywidgets as widgets
import numpy as np
from PIL import Image


def controls(panel, kind=widgets.Widget, description=None):
    """All widgets of a kind in an explorer, or in a widget, from top to bottom."""
    widget = getattr(panel, "widget", panel)
    below = [each for child in getattr(widget, "children", ()) for each in controls(child, kind, description)]
    fits = isinstance(widget, kind) and description in (None, getattr(widget, "description", ""))
    return [widget, *below] if fits else below


def control(panel, description, kind=widgets.Widget):
    """The one control with these words."""
    (found,) = controls(panel, kind, description)
    return found


def use(panel, *steps):
    """Set controls, each as (words, value), and press buttons by their words."""
    for step in steps:
        if isinstance(step, str):
            control(panel, step, widgets.Button).click()
        else:
            control(panel, step[0]).value = step[1]


def shown(panel):
    """All that the panel says: picture, sentence, problem, table."""
    return "".join(widget.value for widget in controls(panel, widgets.HTML))


def read_png(data):
    """A PNG, its bytes or base64, as pixels (H, W, 3)."""
    data = base64.b64decode(data, validate=True) if isinstance(data, str) else data
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def upload(panel, content):
    """Choose a file with this content."""
    file = {"name": "own.png", "type": "image/png", "size": len(content), "content": memoryview(content)}
    file["last_modified"] = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    control(panel, "Your own picture").value = (file,)
