"""What is saved in the place of what needs a running kernel: still pictures, and no answer that nobody asked for.

Jupyter calls `before_save`, which its configuration under `make lab` names. A widget is saved as its still picture and
its words, a prediction as its question with the learner's answer, and an output that answers an open question as a
note. All else is saved as it is: text, errors, the learner's own cells. What the browser shows stays. Where the hook
fails, Jupyter says so in its log and saves the notebook as it came.
"""

import contextlib
import copy
import hashlib
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from course_utils.exercises import saved_progress
from course_utils.exercises.declaration import Prediction, called_with, find_prediction
from course_utils.exercises.predictions import PredictionView, WhyView, tell_what_output_waits_for
from course_utils.root import ASSETS, CourseError
from course_utils.show import code_spans, still_picture

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
Json = dict[str, Any]


def before_save(model: Json, path: str, contents_manager: Any, **_: object) -> None:
    """Jupyter's `pre_save_hook`: `model` is what is about to be saved at `path`, below the server's folder."""
    if model.get("type") == "notebook" and model.get("content"):
        folder = (Path(contents_manager.root_dir) / path).parent
        kept = saved_progress.load(folder)
        choices = kept["predictions"] if saved_progress.location(folder) else None
        model["content"] = settle(model["content"], choices, kept["clues"])


def settle(notebook: Json, choices: Mapping[str, str] | None, clues: Mapping[str, Json] | None = None) -> Json:
    """The notebook as it is to be saved, a new one; one that is no lesson comes back as it is.

    choices: what the learner has committed to, by prediction; None where nobody knows, and then no output is hidden.
    clues: what was kept of the case, by lesson.
    """
    if not any("course_utils" in _text(cell["source"]) for cell in notebook["cells"]):
        return notebook
    settled = copy.deepcopy(notebook)
    cells = [cell for cell in settled["cells"] if cell["cell_type"] == "code"]
    asked = {each.name: each for each in map(_find_asked, cells) if each}
    said = {name: _option(each, (choices or {}).get(name)) for name, each in asked.items()}
    waiting = {cell for name, each in asked.items() if said[name] is None for cell in each.waits}
    # Where the learner has JupyterLab save the widgets themselves, their views stay.
    alive = settled["metadata"].get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    for cell in cells:
        for output in cell["outputs"]:
            view = output.get("data", {}).get(WIDGET_VIEW)
            if view is not None and view["model_id"] not in alive:
                output["data"] = _still(output, cell, said)
                _add_own_words(output["data"], clues or {})
        if choices is not None and cell.get("id") in waiting and _is_as_it_came(cell):
            cell["outputs"] = _hide(cell["outputs"])
    return settled


def _find_asked(cell: Json) -> Prediction | None:
    """The prediction that a cell asks or explains."""
    source = _text(cell["source"])
    with contextlib.suppress(CourseError):  # a name that no prediction has: the cell itself says so
        return find_prediction(called_with(source, "predict") or called_with(source, "why"))


def _option(asked: Prediction, choice: object) -> str | None:
    return choice if choice in list(asked.options) else None  # what was saved may be anything


def _still(output: Json, cell: Json, said: Mapping[str, str | None]) -> Json:
    """The data of a widget's output without the widget: what it shows, in words and pictures, and how to wake it."""
    data = {kind: _text(each) for kind, each in output["data"].items() if kind != WIDGET_VIEW}
    words, wake = data.get("text/plain", ""), (ASSETS / "wake.html").read_text(encoding="utf-8")
    asked = _find_asked(cell)
    if asked is None:
        shown = data.get("text/html") or f"<p>{still_picture(data, output['metadata'])}</p><p>{code_spans(words)}</p>"
    elif called_with(_text(cell["source"]), "predict"):
        shown = PredictionView(asked).draw(said[asked.name])
    else:
        shown = WhyView(asked).draw(said[asked.name])
        wake = wake if said[asked.name] is None else ""
    return {"text/plain": words, "text/html": f"<div>{shown}</div>{wake}"}


def _add_own_words(data: Json, clues: Mapping[str, Json]) -> None:
    """Put what the learner has written about a clue below it."""
    clue = re.match(r"Clue (\d\d): ", data["text/plain"])
    if clue and isinstance(clues.get(clue[1]), dict) and (own := clues[clue[1]].get("words")):
        data["text/plain"] += f"\nYou: {own}"
        data["text/html"] += f"<p><em>You: {escape(str(own))}</em></p>"


def _hide(outputs: list[Json]) -> list[Json]:
    """A note in the place of outputs that answer an open prediction; errors stay."""
    errors = [output for output in outputs if output["output_type"] == "error"]
    if len(errors) == len(outputs):
        return outputs
    note = tell_what_output_waits_for(None)
    data = {"text/plain": str(note), "text/html": note._repr_html_()}
    return [*errors, {"output_type": "display_data", "data": data, "metadata": {}}]


def _is_as_it_came(cell: Json) -> bool:
    """Whether the course wrote the code of a cell: its id ends with a digest of it. What a learner tries is theirs."""
    return cell["id"].endswith(hashlib.sha256(_text(cell["source"]).encode()).hexdigest()[:8])


def _text(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else "".join(lines)
