"""The explorer of a model's hooks: what hooks see and change, told and drawn, and the list of hooks."""

import re
import xml.etree.ElementTree as ET

import ipywidgets as widgets
import pytest
import torch
from panels import control, controls, use

from course_utils.explorers import ModelHooks, model_hooks
from course_utils.explorers.model_hooks import EFFECTS, LOOK, ZERO, module_names, run_with_hooks, tell_hooks
from course_utils.vision.toys import MODELS

BACKWARD = "full backward hook"


@pytest.mark.parametrize(
    ("hook", "output"),  # 31: the biases alone, 1 · 1 + 2 · 2 + 3 · 3 + 4 · 4 + 1
    [(("fc1", "forward pre-hook"), 31), (("fc2", "full backward pre-hook"), 89), (("", "forward hook"), 0)],
)
def test_what_a_hook_replaces_is_what_the_run_ends_with(hook, output):
    run = run_with_hooks("small net", [(*hook, ZERO)])
    assert (run.output.tolist(), run.gradient.tolist(), run.error) == ([[output]], [[0, 0, 0]], "")


def test_the_callers_modes_make_no_difference_and_stay():
    expected = tell_hooks("small net", [("fc2", BACKWARD, ZERO)])
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert tell_hooks("small net", [("fc2", BACKWARD, ZERO)]) == expected
            assert not torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("model", "hooks", "facts"),
    [
        ("small net", [], ["No hook is", "output is [89]", "gradient of the input is [22, 26, 30]."]),
        ("small net", [("", "forward hook")], ["1. the forward hook on the model looks. Nothing changes: "]),
        ("small net", [("fc2", BACKWARD), ("relu", "forward hook", ZERO)], [
            "2 hooks are", "1. the forward hook on relu returns zeros; 2. the full backward hook on fc2 looks.",
            "[1] ([89] without hooks)", "[0, 0, 0] ([22, 26, 30] without hooks)."]),
        ("small net", [("fc1", BACKWARD, ZERO)], ["[89] as without hooks", "[0, 0, 0] ([22, 26, 30] without hooks)."]),
        ("residual block", [("fc1", BACKWARD)], ["raises RuntimeError: ", "view and is being modified inplace"]),
    ],
)  # fmt: skip
def test_the_sentence_says_who_fires_and_what_changes(model, hooks, facts):
    assert re.search(".*".join(map(re.escape, facts)), tell_hooks(model, hooks).sentence)


@pytest.mark.parametrize(
    ("model", "hooks", "told"),
    [  # from the top of the picture to its end: what stands on the way of the call, and on that of backward
        ("small net", [("fc2", "forward hook"), ("relu", "forward hook", ZERO)], [
            ("x", "x = [1, 1, 1]", "[0, 0, 0] (was [22, 26, 30])"),
            ("fc1", "[7, -13, 27, -29]", "[0, 0, 0, 0] (was [1, 0, 3, 0])"),
            ("relu", "1: forward hook sees output [7, 0, 27, 0] and returns zeros", ""),
            ("relu", "[0, 0, 0, 0] (was [7, 0, 27, 0])", "[1, 2, 3, 4]"),
            ("fc2", "2: forward hook sees output [1]", ""), ("fc2", "[1] (was [89])", "[1]"),
            ("", "[1] (was [89])", "[1]"),
        ]),
        ("residual block", [("fc2", BACKWARD, ZERO)], [  # its relu is called twice, in place
            ("x", "x = [1, 2]", "[1, 0] (was [3, 4])"), ("fc1", "[5, -2]", "[0, 0] (was [2, 0])"),
            ("relu", "[5, 0]", "[0, 0] (was [2, 1])"),
            ("fc2", "", "1: full backward hook sees grad_output [1, 0] and grad_input [2, 1] and returns zeros"),
            ("fc2", "[11, -5]", "[1, 0]"), ("relu", "[12, 0]", "[1, 1]"), ("", "[12, 0]", "[1, 1]"),
        ]),
        ("residual block", [("fc1", BACKWARD), ("relu", "forward hook")], [
            ("x", "x = [1, 2]", ""), ("fc1", "", "full backward hook: look"), ("fc1", "[5, -2]", ""),
            *[("relu", "forward hook: look", "")] * 2,
        ]),
    ],
)  # fmt: skip
def test_the_picture_tells_what_goes_down_and_comes_up(model, hooks, told):
    lines = [(line.module, line.down, line.up) for line in tell_hooks(model, hooks).facts if line.tells()]
    assert lines == told


def test_before_the_call_only_the_hooks_and_the_input_are_there():
    view = tell_hooks("small net", [("relu", BACKWARD), ("fc1", "forward hook", ZERO)], step=0)
    assert [(line.down, line.up) for line in view.facts if line.tells()] == [
        ("x = [1, 1, 1]", ""), ("forward hook: replace by zero", ""), ("", "full backward hook: look"),
    ]  # fmt: skip
    assert view.sentence == "The call has not begun. 2 hooks are registered."


def test_each_step_tells_one_thing_in_the_order_in_which_torch_does_it():
    hooks = [("relu", BACKWARD), ("relu", "full backward pre-hook"), ("fc2", "forward pre-hook")]
    told = [tell_hooks("small net", hooks, step).sentence.partition(". 3 hooks")[0] for step in range(1, 11)]
    assert [words.partition(": ")[2].rstrip(".") for words in told] == [
        "fc1 returns [7, -13, 27, -29]",
        "relu returns [7, 0, 27, 0]",
        "the forward pre-hook on fc2 fires. It sees input [7, 0, 27, 0]",
        "fc2 returns [89]",
        "the gradient [1] reaches the output of fc2",
        "the full backward pre-hook on relu fires. It sees grad_output [1, 2, 3, 4]",
        "the gradient [1, 2, 3, 4] reaches the output of relu",
        "the full backward hook on relu fires. It sees grad_output [1, 2, 3, 4] and grad_input [1, 0, 3, 0]",
        "the gradient [1, 0, 3, 0] reaches the output of fc1",
        "the gradient [22, 26, 30] reaches the input",
    ]


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize(("model", "name"), [(model, name) for model in MODELS for name in module_names(model)])
def test_the_picture_says_the_same_and_nothing_runs_into_its_neighbour(model, name, effect):
    """Estimated with 7.83 px for each monospaced character of 13 px, 7.25 for one of the words of a hook."""
    kinds = ("forward hook", "full backward pre-hook", BACKWARD)
    story = tell_hooks(model, [(name, kind, effect) for kind in kinds])
    root = ET.fromstring(story.picture)
    texts = [each.text for each in root.findall(".//{*}text")]
    lines = [line for line in story.facts if line.tells()]
    for line in lines:
        assert {line.down, line.up} - {""} <= set(texts)
        wide = 7.25 if line.what == "hook" else 7.83
        assert 28 + wide * (len(line.down) + len(line.up)) <= model_hooks.WIDTH - 2 * model_hooks.LANE
    ends = [line.y for line in story.facts]
    assert ends == sorted(ends), "each stands below the one before"
    assert root.find("{*}desc").text == story.sentence
    title, *said = root.get("aria-label").removesuffix(".").split(". ")
    assert (title, said) == (texts[0], [*map(str, lines)])


def test_the_picture_keeps_its_height_up_to_three_hooks():
    hooks, heights = [("fc1", "forward hook"), ("fc2", BACKWARD), ("relu", "forward pre-hook"), ("", BACKWARD)], []
    for count in range(5):
        heights.append(ET.fromstring(tell_hooks("small net", hooks[:count]).picture).get("height"))
    assert len(set(heights[:4])) == 1
    assert float(heights[4]) > float(heights[3])


def test_hooks_are_registered_and_removed_one_by_one_and_all_together():
    def told(*hooks):
        return tell_hooks("small net", hooks).sentence

    def go_on():
        assert explorer.sentence.startswith("The call has not begun.")
        control(explorer, "Step").value = control(explorer, "Step").max
        return explorer.sentence

    def register(*hook):
        use(explorer, *zip(("Hook on", "Kind", "that does"), hook, strict=True), "Register")

    first, second = ("relu", "forward hook", ZERO), ("fc2", BACKWARD, LOOK)
    explorer = ModelHooks("small net", [first])
    register(*second)
    assert go_on() == told(first, second)
    chips = controls(explorer, widgets.Button)[-2:]
    control(explorer, "Remove relu: forward hook, replace by zero").click()
    assert (go_on(), [chip.comm for chip in chips]) == (told(second), [None, None])
    register(*first)
    register(*first)
    controls(explorer, widgets.Button, "Remove relu: forward hook, replace by zero")[0].click()
    assert go_on() == told(second, first)
    control(explorer, "Remove all").click()
    assert (go_on(), control(explorer, "Remove all").disabled) == (told(), True)
    control(explorer, "Model").value = "Sequential in a Sequential"
    assert [name for _, name in control(explorer, "Hook on").options] == ["", "0", "1", "1.0", "1.1", "2"]
    register("", BACKWARD, ZERO)
    assert control(explorer, "Remove the model: full backward hook, replace by zero")
