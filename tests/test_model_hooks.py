"""The explorer of a model's hooks: what hooks see and change, told and drawn, and what each control does."""

import xml.etree.ElementTree as ET

import ipywidgets as widgets
import pytest
import torch
from panels import control, controls, shown
from torch import nn
from torch.nn.modules import module as torch_module

from course_utils.explorers import ModelHooks, model_hooks
from course_utils.explorers.model_hooks import EFFECTS, KINDS, LOOK, ZERO, module_names, run_with_hooks, tell_hooks
from course_utils.hooks.inventory import count_hooks
from course_utils.root import CourseError
from course_utils.vision import toys
from course_utils.vision.toys import MODELS

EVERY_MODULE = [(model, name) for model in MODELS for name in module_names(model)]


def row(story, name):
    (found,) = [each for each in story.rows if each.name == name]
    return found


# --- one run ----------------------------------------------------------------------------------------------------------


def test_the_small_net_gives_the_numbers_of_the_lesson():
    run = run_with_hooks("small net")
    outputs = {name: each[0].tolist() for name, each in run.outputs.items()}
    assert (outputs["fc1"], outputs["relu"], outputs["fc2"]) == ([[7, -13, 27, -29]], [[7, 0, 27, 0]], [[89]])
    gradients = {name: each[0].tolist() for name, each in run.gradients.items()}
    assert (gradients["fc2"], gradients["relu"], gradients["fc1"]) == ([[1]], [[1, 2, 3, 4]], [[1, 0, 3, 0]])
    assert (run.output.tolist(), run.gradient.tolist(), run.fired, run.error) == ([[89]], [[22, 26, 30]], [], "")


@pytest.mark.parametrize(
    ("hook", "output", "gradient"),
    [
        (("relu", "forward hook", ZERO), 1, [0, 0, 0]),
        (("relu", "forward pre-hook", ZERO), 1, [0, 0, 0]),
        (("fc1", "forward pre-hook", ZERO), 31, [0, 0, 0]),  # the biases alone: 1 · 1 + 2 · 2 + 3 · 3 + 4 · 4 + 1
        (("relu", "full backward hook", ZERO), 89, [0, 0, 0]),
        (("fc2", "full backward pre-hook", ZERO), 89, [0, 0, 0]),
        (("", "forward hook", ZERO), 0, [0, 0, 0]),
        (("relu", "forward hook", LOOK), 89, [22, 26, 30]),
    ],
)
def test_what_a_hook_replaces_is_what_the_run_ends_with(hook, output, gradient):
    run = run_with_hooks("small net", [hook])
    assert run.output.item() == output
    assert run.gradient.tolist() == [gradient]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["forward pre-hook", "forward hook"])
def test_hooks_that_look_change_nothing(model, kind):
    hooks = [(name, kind) for name in module_names(model)]
    plain, run = run_with_hooks(model), run_with_hooks(model, hooks)
    assert run.output.equal(plain.output)
    assert run.gradient.equal(plain.gradient)
    assert set(run.fired) == set(range(len(hooks)))


def test_forward_hooks_fire_on_the_way_and_backward_hooks_on_the_way_back():
    hooks = [
        ("fc1", "full backward hook"),
        ("fc2", "full backward hook"),
        ("fc2", "forward hook"),
        ("fc1", "forward hook"),
        ("fc1", "forward pre-hook"),
        ("fc2", "full backward pre-hook"),
        ("fc1", "forward hook", ZERO),
    ]
    assert run_with_hooks("small net", hooks).fired == [4, 3, 6, 2, 5, 1, 0]


def test_a_reused_module_fires_in_each_of_its_calls():
    run = run_with_hooks("residual block", [("relu", "forward hook")])
    assert run.fired == [0, 0]
    assert [output.tolist() for output in run.outputs["relu"]] == [[[5, 0]], [[12, 0]]]


@pytest.mark.parametrize("name", module_names("residual block"))
@pytest.mark.parametrize("kind", ["full backward hook", "full backward pre-hook"])
def test_full_backward_hooks_beside_the_inplace_relu_raise_in_forward(name, kind):
    run = run_with_hooks("residual block", [("fc1", "forward hook"), (name, kind)])
    if name in ("", "fc2"):
        assert (run.error, run.fired) == ("", [0, 1])
    else:
        assert run.error == "Output 0 of BackwardHookFunction is a view and is being modified inplace"
        assert (run.output, run.gradient, run.fired) == (None, None, [0])


def test_no_hook_stays_on_any_model(monkeypatch):
    made = []

    def make():
        made.append(toys.SmallNet())
        return made[-1]

    monkeypatch.setitem(MODELS, "small net", MODELS["small net"]._replace(make=make))
    tell_hooks("small net", [("relu", kind, effect) for kind in KINDS for effect in EFFECTS])
    assert len(made) > 1
    assert sum(count_hooks(model).total() for model in made) == 0
    tables = [each for name, each in vars(torch_module).items() if name.startswith("_global") and name[-5:] == "hooks"]
    assert not any(tables)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_callers_modes_make_no_difference_and_stay(mode):
    expected = tell_hooks("small net", [("fc2", "full backward hook", ZERO)])
    with mode():
        assert tell_hooks("small net", [("fc2", "full backward hook", ZERO)]) == expected
        assert not torch.is_grad_enabled()


def test_an_error_that_is_no_error_of_hooks_is_not_hidden(monkeypatch):
    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("broken")

    monkeypatch.setitem(MODELS, "small net", MODELS["small net"]._replace(make=Broken))
    with pytest.raises(ValueError, match="broken"):
        run_with_hooks("small net")


# --- the story --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hooks", "sentence"),
    [
        ([], "No hook is registered. The output is [89], and the gradient of the input is [22, 26, 30]."),
        (
            [("", "forward hook")],
            "1 hook is registered. In the order of firing: 1. the forward hook on the model looks. Nothing changes: "
            "the output is [89], and the gradient of the input is [22, 26, 30].",
        ),
        (
            [("fc2", "full backward hook"), ("relu", "forward hook", ZERO)],
            "2 hooks are registered. In the order of firing: 1. the forward hook on relu returns zeros; 2. the full "
            "backward hook on fc2 looks. The output is [1] ([89] without hooks), and the gradient of the input is "
            "[0, 0, 0] ([22, 26, 30] without hooks).",
        ),
        (
            [("fc1", "full backward hook", ZERO)],
            "1 hook is registered. In the order of firing: 1. the full backward hook on fc1 returns zeros. The output "
            "is [89] as without hooks, and the gradient of the input is [0, 0, 0] ([22, 26, 30] without hooks).",
        ),
    ],
)
def test_the_sentence_says_who_fires_and_what_changes(hooks, sentence):
    assert tell_hooks("small net", hooks).sentence == sentence


def test_the_sentence_explains_the_inplace_error():
    assert tell_hooks("residual block", [("fc1", "full backward hook")]).sentence == (
        "1 hook is registered. The call raises RuntimeError: Output 0 of BackwardHookFunction is a view and is being "
        "modified inplace. A full backward hook or pre-hook makes views of what goes in and out of its module, and the "
        "in-place ReLU may not write into a view."
    )


def test_the_rows_show_shapes_values_hooks_and_what_was_there_before():
    story = tell_hooks("small net", [("fc2", "forward hook"), ("relu", "forward hook", ZERO)])
    assert [(each.name, each.type, each.shape, each.depth) for each in story.rows] == [
        ("x", "input", "(1, 3)", 0),
        ("model", "SmallNet", "(1, 1)", 0),
        ("fc1", "Linear", "(1, 4)", 1),
        ("relu", "ReLU", "(1, 4)", 1),
        ("fc2", "Linear", "(1, 1)", 1),
    ]
    assert row(story, "relu").output == ["[0, 0, 0, 0]", "was [7, 0, 27, 0]"]
    assert row(story, "relu").hooks == ["1: forward hook, zero"]
    assert row(story, "fc2").hooks == ["2: forward hook, look"]
    assert row(story, "x").gradient == ["[0, 0, 0]", "was [22, 26, 30]"]
    assert row(story, "fc1").output == ["[7, -13, 27, -29]", ""]
    assert 'aria-label="2 hooks registered: output [1] ([89] without hooks)"' in story.picture


def test_calls_of_a_reused_module_stand_one_below_the_other():
    relu = row(tell_hooks("residual block", [("fc2", "full backward hook", ZERO)]), "relu")
    assert relu.output == ["[5, 0]", "", "[12, 0]"]
    assert relu.gradient == ["[0, 0]", "was [2, 1]", "[1, 1]"]
    assert relu.type == "ReLU, in place"
    story = tell_hooks("residual block", [("fc1", "full backward hook"), ("relu", "forward hook")])
    assert row(story, "fc1").hooks == ["never: full backward hook, look"]
    assert row(story, "relu").output == ["did not finish", "did not finish"]
    assert row(story, "fc1").gradient == ["none"]
    assert row(story, "x").gradient == ["none: the call raised"]


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize(("model", "name"), EVERY_MODULE)
def test_the_picture_says_the_same_and_nothing_runs_into_its_neighbour(model, name, effect):
    """Estimated with 7.83 px for each monospaced character of 13 px, and 7.6 px for a bold one."""
    story = tell_hooks(model, [(name, "forward hook", effect), (name, "full backward pre-hook")])
    root = ET.fromstring(story.picture)
    texts = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    columns = [*model_hooks.COLUMNS.values(), 864]
    for each in story.rows:
        assert {each.name, *filter(None, (*each.output, *each.gradient, *each.hooks))} <= set(texts)
        heading = 20 * each.depth + 8 * len(each.name) + 10 + 6.7 * len(f"{each.type} {each.shape}")
        assert columns[0] + heading <= columns[1]
        assert max(map(len, each.output)) * 7.83 <= columns[2] - columns[1]
        assert max(map(len, each.gradient)) * 7.83 <= columns[3] - columns[2]
        assert 18 + max(map(len, each.hooks), default=0) * 7.6 <= columns[4] - columns[3]
    assert root.find("{http://www.w3.org/2000/svg}desc").text == story.sentence
    assert root.get("aria-label") in texts


# --- the panel --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "hooks", "message"),
    [
        ("small nett", [], r"there is no 'small nett' here; did you mean 'small net'\?"),
        ("small net", [("relu2", "forward hook")], r"There is no module 'relu2'; .* Did you mean 'relu'\?"),
        ("small net", [("relu", "backward hook")], r"no kind of hook 'backward hook'; .* Did you mean 'full backward"),
        ("small net", [("relu", "forward hook", "one")], "no effect 'one'; there is 'look', 'replace by zero'"),
    ],
)
def test_what_does_not_exist_is_named_with_what_does(model, hooks, message):
    with pytest.raises(CourseError, match=message):
        ModelHooks(model, hooks)


def register(explorer, module, kind="forward hook", effect=LOOK):
    for description, value in (("Hook on", module), ("Kind", kind), ("that does", effect)):
        control(explorer, description).value = value
    control(explorer, "Register").click()


def told(model, *hooks):
    return tell_hooks(model, hooks).sentence


def test_hooks_are_registered_and_removed_one_by_one_and_all_together():
    first, second = ("relu", "forward hook", ZERO), ("fc2", "full backward hook", LOOK)
    explorer = ModelHooks("small net", [first])
    register(explorer, *second)
    assert explorer.sentence == told("small net", first, second)
    assert tell_hooks("small net", [first, second]).picture in shown(explorer)
    chips = controls(explorer, widgets.Button)[-2:]
    control(explorer, "Remove relu: forward hook, replace by zero").click()
    assert explorer.sentence == told("small net", second)
    assert [chip.comm for chip in chips] == [None, None]
    register(explorer, *first)
    register(explorer, *first)
    controls(explorer, widgets.Button, "Remove relu: forward hook, replace by zero")[0].click()
    assert explorer.sentence == told("small net", second, first)
    control(explorer, "Remove all").click()
    assert explorer.sentence == told("small net")
    assert control(explorer, "Remove all").disabled
    assert "No hook is registered." in shown(explorer)


def test_another_model_opens_without_hooks_and_with_its_own_modules():
    explorer = ModelHooks("small net", [("relu", "forward hook")])
    control(explorer, "Model").value = "Sequential in a Sequential"
    assert explorer.sentence == told("Sequential in a Sequential")
    names = [name for _, name in control(explorer, "Hook on").options]
    assert names == ["", "0", "1", "1.0", "1.1", "2"]
    register(explorer, "", "full backward hook", ZERO)
    assert explorer.sentence == told("Sequential in a Sequential", ("", "full backward hook", ZERO))
    assert control(explorer, "Remove the model: full backward hook, replace by zero")
