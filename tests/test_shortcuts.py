"""JupyterLab's one-key shortcuts, where a widget has the focus."""

import json

from course_utils.lab import jupyter
from course_utils.lab.shortcuts import (
    IN_COMMAND_MODE,
    OUTSIDE_WIDGETS,
    SETTING,
    free_keys_for_widgets,
)

ANYWHERE = f"{IN_COMMAND_MODE}:not(.jp-mod-readWrite) :focus"


def test_what_works_anywhere_in_a_notebook_works_outside_widgets_only(tmp_path):
    schema = tmp_path / "tracker.json"
    down = {"command": "notebook:move-cursor-down", "keys": ["ArrowDown"], "selector": ANYWHERE}
    others = [
        {"command": "notebook:run-cell", "keys": ["Accel Enter"], "selector": ".jp-Notebook.jp-mod-editMode"},
        {"command": "notebook:enter-edit-mode", "keys": ["Enter"], "selector": f"{IN_COMMAND_MODE} .jp-Cell:focus"},
    ]
    schema.write_text(json.dumps({"jupyter.lab.shortcuts": [down, *others]}))
    assert free_keys_for_widgets(schema) == {
        SETTING: {"shortcuts": [{**down, "disabled": True}, {**down, "selector": ANYWHERE + OUTSIDE_WIDGETS}]}
    }


def test_a_jupyterlab_without_that_file_keeps_its_shortcuts(tmp_path):
    assert free_keys_for_widgets(tmp_path / "nowhere.json") == {}


def test_make_lab_frees_the_arrow_keys_of_the_installed_jupyterlab(tmp_path):
    jupyter.configure_lab(tmp_path)
    written = json.loads((tmp_path / "config" / "labconfig" / "default_setting_overrides.json").read_text())
    shortcuts = written[SETTING]["shortcuts"]
    for key in ("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "X"):
        mine = [each for each in shortcuts if each["keys"] == [key]]
        assert [each.get("disabled", False) for each in mine] == [True, False], key
