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
NONE = ["did not finish"]


@pytest.mark.parametrize(
    ("hook", "output"),  # 31: the biases alone, 1 · 1 + 2 · 2 + 3 · 3 + 4 · 4 + 1
    [(("fc1", "forward pre-hook"), 31), (("fc2", "full backward pre-hook"), 89), (("", "forward hook"), 0)],
)
def test_what_a_hook_replaces_is_what_the_run_ends_with(hook, output):
    run = run_with_hooks("small net", [(*hook, ZERO)])
    assert (run.output.tolist(), run.gradient.tolist(), run.error) == ([[output]], [[0, 0, 0]], "")


def test_forward_hooks_fire_on_the_way_and_backward_hooks_on_the_way_back():
    hooks = [("fc1", BACKWARD), ("fc2", BACKWARD), ("fc2", "forward hook"), ("fc1", "forward hook")]
    hooks += [("fc1", "forward pre-hook"), ("fc2", "full backward pre-hook"), ("fc1", "forward hook", ZERO)]
    assert run_with_hooks("small net", hooks).fired == [4, 3, 6, 2, 5, 1, 0]
    assert run_with_hooks("residual block", [("relu", "forward hook")]).fired == [0, 0], "it is called twice"


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
    ("model", "hooks", "rows"),
    [  # name, type, shape of the output, depth, hooks, output, gradient
        ("small net", [("fc2", "forward hook"), ("relu", "forward hook", ZERO)], [
            ("x", "input", "(1, 3)", 0, [], ["[1, 1, 1]"], ["[0, 0, 0]", "was [22, 26, 30]"]),
            ("model", "SmallNet", "(1, 1)", 0, [], ["[1]", "was [89]"], ["[1]", ""]),
            ("fc1", "Linear", "(1, 4)", 1, [], ["[7, -13, 27, -29]", ""], ["[0, 0, 0, 0]", "was [1, 0, 3, 0]"]),
            ("relu", "ReLU", "(1, 4)", 1, ["1: forward hook, zero"], ["[0, 0, 0, 0]", "was [7, 0, 27, 0]"],
             ["[1, 2, 3, 4]", ""]),
            ("fc2", "Linear", "(1, 1)", 1, ["2: forward hook, look"], ["[1]", "was [89]"], ["[1]", ""]),
        ]),
        ("residual block", [("fc2", BACKWARD, ZERO)], [  # the calls of a module stand one below the other
            ("relu", "ReLU, in place", "(1, 2)", 1, [], ["[5, 0]", "", "[12, 0]"], ["[0, 0]", "was [2, 1]", "[1, 1]"]),
        ]),
        ("residual block", [("fc1", BACKWARD), ("relu", "forward hook")], [
            ("x", "input", "(1, 2)", 0, [], ["[1, 2]"], ["none: it raised"]),
            ("fc1", "Linear", "(1, 2)", 1, ["never: full backward hook, look"], ["[5, -2]"], ["none"]),
            ("relu", "ReLU, in place", "(1, 2)", 1, ["never: forward hook, look"], NONE * 2, ["none"] * 2),
        ]),
    ],
)  # fmt: skip
def test_the_rows_show_shapes_values_hooks_and_what_was_there_before(model, hooks, rows):
    told = {row.name: tuple(row) for row in tell_hooks(model, hooks).facts}
    assert [told[row[0]] for row in rows] == rows


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize(("model", "name"), [(model, name) for model in MODELS for name in module_names(model)])
def test_the_picture_says_the_same_and_nothing_runs_into_its_neighbour(model, name, effect):
    """Estimated with 7.83 px for each monospaced character of 13 px, and 7.6 px for a bold one."""
    story = tell_hooks(model, [(name, "forward hook", effect), (name, "full backward pre-hook")])
    root = ET.fromstring(story.picture)
    texts = [each.text for each in root.findall(".//{*}text")]
    places = {each.text: float(each.get("x")) for each in root.findall(".//{*}text")}
    columns = [*(places[words] for words in model_hooks.COLUMNS), model_hooks.WIDTH]
    for each in story.facts:
        assert {each.name, *filter(None, (*each.output, *each.gradient, *each.hooks))} <= set(texts)
        heading = 20 * each.depth + 8 * len(each.name) + 10 + 6.7 * len(f"{each.type} {each.shape}")
        output, gradient = (max(map(len, lines)) * 7.83 for lines in (each.output, each.gradient))
        assert all(columns[i] + width <= columns[i + 1] for i, width in enumerate((heading, output, gradient)))
        assert columns[0] + 20 * each.depth + 18 + max(map(len, each.hooks), default=0) * 7.6 <= model_hooks.WIDTH
    assert root.find("{*}desc").text == story.sentence
    title, *said = root.get("aria-label").removesuffix(".").split(". ")
    assert title == texts[0]
    for each, words in zip(story.facts, said, strict=True):
        assert words.startswith(f"{each.name}, {each.type} {each.shape}: ")
        assert all(part in words for part in (*each.output, *each.gradient, *each.hooks))


def test_hooks_are_registered_and_removed_one_by_one_and_all_together():
    def told(*hooks):
        return tell_hooks("small net", hooks).sentence

    def register(*hook):
        use(explorer, *zip(("Hook on", "Kind", "that does"), hook, strict=True), "Register")

    first, second = ("relu", "forward hook", ZERO), ("fc2", BACKWARD, LOOK)
    explorer = ModelHooks("small net", [first])
    register(*second)
    assert explorer.sentence == told(first, second)
    chips = controls(explorer, widgets.Button)[-2:]
    control(explorer, "Remove relu: forward hook, replace by zero").click()
    assert (explorer.sentence, [chip.comm for chip in chips]) == (told(second), [None, None])
    register(*first)
    register(*first)
    controls(explorer, widgets.Button, "Remove relu: forward hook, replace by zero")[0].click()
    assert explorer.sentence == told(second, first)
    control(explorer, "Remove all").click()
    assert (explorer.sentence, control(explorer, "Remove all").disabled) == (told(), True)
    control(explorer, "Model").value = "Sequential in a Sequential"
    assert [name for _, name in control(explorer, "Hook on").options] == ["", "0", "1", "1.0", "1.1", "2"]
    register("", BACKWARD, ZERO)
    assert control(explorer, "Remove the model: full backward hook, replace by zero")
