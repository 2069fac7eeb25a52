"""explain.py: the right cause for the snippets of many threads, nothing changed, nothing left behind."""

import copy
import sys
import threading

import pytest
import torch
from hook_snippets import SNIPPETS, Net, X, spy
from torch import nn

from course_utils.hooks.explain import explain_hook, read_causes
from course_utils.hooks.inventory import no_hooks_left
from course_utils.root import ASSETS, CourseError

START = (ASSETS / "hook_causes.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("cause", "tell"), [(each[0], each[2]) for each in SNIPPETS], ids=[each[2].__name__ for each in SNIPPETS]
)
def test_the_cause_is_right(cause, tell):
    story = tell()
    assert story.cause == cause, str(story)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cause", read_causes().values(), ids=lambda cause: cause.name)
def test_the_example_of_each_cause_has_it(cause):
    names = {}
    exec(compile(START + cause.example, "example.py", "exec"), names)
    assert names["story"].cause == cause.name, str(names["story"])
