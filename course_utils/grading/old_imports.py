"""What lessons of an earlier edition imported is found where it is now: answers handed in for it keep their points.

A new edition needs a change here only for a module that it has taken away, and for a name that it has changed.
"""

import functools
import importlib
import re
import sys
import types
from typing import Any

import course_utils
from course_utils.exercises.declaration import lesson_files
from course_utils.root import ROOT

OLD = "attention calls cam_pictures charts diagnosis doctor feature_maps guided_pictures hooks localisation memory"
OLD += " networks own_picture patching pictures saliency sanity scenes vision.own"  # two are rooms with other things
ROOMS = ("hooks", "lab", "scenes", "vision")
RENAMED = {"SaliencyError": "CourseError"}
# What modules of today had once, and where it is now. Nothing looks for names in the lessons' files: answers are there.
PLACES = ("lessons.lesson_03", "lessons.lesson_04", "vision.charts", "vision.scores", "vision.toys")
MOVED = {
    "lessons.lesson_09": "fix_argument Handle",
    "lessons.two_heads": "encode make_two_head_block HEADS ODDS",
    "lessons.channels": "Followed follow_things",
    "lessons.own": "look_at show_strongest_maps show_gradients show_grad_cams",
    "lessons.sanity": "rank_correlation cosine_similarity measure_class_sensitivity group_layers randomise_cascading",
    "lessons.figures": "draw_attention draw_cascade draw_rules RULES",
    "lessons.broken_nets": "Exponential Shares Distance SAME make_overflow_net make_distance_net make_one_unit "
    "have_an_accident make_chain",
}


@functools.cache
def open_old_places() -> None:
    """Let every import from the course's old modules find the same names in those of today. Once in a process."""
    for old in OLD.split():
        name = f"course_utils.{old}"
        module = importlib.import_module(name) if old in ROOMS else types.ModuleType(name)
        module.__getattr__ = find
        sys.modules[name] = module
        setattr(course_utils, old, module)
    for room, name in (("hooks", "record"), ("hooks", "trace"), ("scenes", "scene")):  # now names of modules too
        setattr(sys.modules[f"course_utils.{room}"], name, find(name))
    moved = {name: _get(module, name) for module, names in MOVED.items() for name in names.split()}
    for place in PLACES:
        vars(importlib.import_module(f"course_utils.{place}")).update(moved)
    for stem in [path.stem for path in lesson_files()]:
        sys.modules[f"course_utils.exercises.{stem}"] = importlib.import_module(f"course_utils.lessons.{stem}")


def find(name: str) -> Any:
    """What a module of today calls `name`, or whatever its name is now; `AttributeError` if none does."""
    name = RENAMED.get(name, name)
    if module := next((module for module, names in MOVED.items() if name in names.split()), ""):
        return _get(module, name)
    defined = re.compile(rf"^(?:(?:def|class) {name}\b|(?:\w+, )*{name}\b[\w, ]* =)", re.MULTILINE)
    package = ROOT / "course_utils"
    for path in [package / "root.py", *(path for room in ROOMS for path in sorted((package / room).glob("*.py")))]:
        if defined.search(path.read_text(encoding="utf-8")):
            return getattr(importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)), name)
    raise AttributeError(name)


def _get(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"course_utils.{module}"), name)
