"""The explorer of a model's hooks: what hooks see and change, told and drawn, and what each control does."""

import xml.etree.ElementTree as ElementTree

import ipywidgets as widgets
import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from course_utils.explorers import ModelHooks, model_hooks_story
from course_utils.explorers.html import make_paragraph, make_problem
from course_utils.explorers.model_hooks_story import (
    EFFECTS,
    KINDS,
    LOOK,
    MOST_HOOKS,
    ZERO,
    PlacementError,
    module_names,
    read_placements,
    run_with_hooks,
    tell_hooks,
)
from course_utils.hooks.inventory import count_hooks
from course_utils.vision import toys
from course_utils.vision.toys import MODELS

VIEW = "application/vnd.jupyter.widget-view+json"
EVERY_MODULE = [(model, name) for model in MODELS for name in module_names(model)]


def row(story, name):
    (found,) = [each for each in story.table if each.name == name]
    return found


# ------------------------------------------------------------------------------------------------------------ one run


def test_the_small_net_gives_the_numbers_of_the_lesson():
    run = run_with_hooks("small net")
    assert run.outputs["fc1"][0].tolist() == [[7, -13, 27, -29]]
    assert run.outputs["relu"][0].tolist() == [[7, 0, 27, 0]]
    assert run.output.tolist() == [[89]]
    assert [run.gradients[name][0].tolist() for name in ("fc2", "relu", "fc1")] == [
        [[1]],
        [[1, 2, 3, 4]],
        [[1, 0, 3, 0]],
    ]
    assert run.gradient.tolist() == [[22, 26, 30]]
    assert (run.fired, run.error) == ((), "")


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
    hooks = [(name, kind) for name in module_names(model)][:MOST_HOOKS]
    plain, run = run_with_hooks(model), run_with_hooks(model, hooks)
    assert run.output.equal(plain.output)
    assert run.gradient.equal(plain.gradient)
    assert set(run.fired) == set(range(len(hooks)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("model", "name"), EVERY_MODULE)
def test_what_is_registered_is_what_pytorch_lists(model, name, kind):
    run = run_with_hooks(model, [(name, kind), (name, kind)])
    assert run.registered == {each: [0, 1] if each == name else [] for each in module_names(model)}


def test_forward_hooks_fire_on_the_way_and_backward_hooks_on_the_way_back():
    hooks = [
        ("fc1", "full backward hook"),
        ("fc2", "full backward hook"),
        ("fc2", "forward hook"),
        ("fc1", "forward hook"),
        ("fc1", "forward pre-hook"),
        ("fc2", "full backward pre-hook"),
    ]
    assert run_with_hooks("small net", hooks).fired == (4, 3, 2, 5, 1, 0)


def test_two_hooks_of_one_kind_fire_in_the_order_of_registration():
    hooks = [("relu", "forward hook", LOOK), ("relu", "forward hook", ZERO), ("relu", "forward hook", LOOK)]
    assert run_with_hooks("small net", hooks).fired == (0, 1, 2)


def test_a_reused_module_fires_in_each_of_its_calls():
    run = run_with_hooks("residual block", [("relu", "forward hook")])
    assert run.fired == (0, 0)
    assert [output.tolist() for output in run.outputs["relu"]] == [[[5, 0]], [[12, 0]]]


@pytest.mark.parametrize("name", ["fc1", "relu"])
@pytest.mark.parametrize("kind", ["full backward hook", "full backward pre-hook"])
def test_full_backward_hooks_beside_the_inplace_relu_raise_in_forward(name, kind):
    run = run_with_hooks("residual block", [("fc1", "forward hook"), (name, kind)])
    assert run.error == "Output 0 of BackwardHookFunction is a view and is being modified inplace"
    assert (run.output, run.gradient) == (None, None)
    assert run.fired == (0,)


@pytest.mark.parametrize("name", ["fc2", ""])
def test_full_backward_hooks_elsewhere_in_the_residual_block_work(name):
    run = run_with_hooks("residual block", [(name, "full backward hook")])
    assert (run.error, run.fired) == ("", (0,))


def test_no_hook_stays_on_any_model(monkeypatch):
    made = []

    def make():
        made.append(toys.SmallNet())
        return made[-1]

    monkeypatch.setitem(MODELS, "small net", MODELS["small net"]._replace(make=make))
    tell_hooks("small net", [("relu", kind, effect) for kind in KINDS for effect in EFFECTS][:MOST_HOOKS])
    assert len(made) > 1
    assert sum(count_hooks(model).total() for model in made) == 0
    tables = [
        value for name, value in vars(torch_module).items() if name.startswith("_global") and name.endswith("hooks")
    ]
    assert not any(tables)


def test_the_callers_modes_make_no_difference_and_stay():
    expected = tell_hooks("small net", [("fc2", "full backward hook", ZERO)])
    with torch.no_grad():
        assert tell_hooks("small net", [("fc2", "full backward hook", ZERO)]) == expected
        assert not torch.is_grad_enabled()
    with torch.inference_mode():
        assert tell_hooks("small net", [("fc2", "full backward hook", ZERO)]) == expected
        assert torch.is_inference_mode_enabled()


def test_an_error_that_is_no_error_of_hooks_is_not_hidden(monkeypatch):
    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("broken")

    monkeypatch.setitem(MODELS, "small net", MODELS["small net"]._replace(make=Broken))
    with pytest.raises(ValueError, match="broken"):
        run_with_hooks("small net")


# ---------------------------------------------------------------------------------------------------------- the story


def test_the_sentence_without_hooks():
    assert tell_hooks("small net").sentence == (
        "No hook is registered. The output is [89], and the gradient of the input is [22, 26, 30]."
    )


def test_the_sentence_says_who_fires_and_what_changes():
    hooks = [("fc2", "full backward hook"), ("relu", "forward hook", ZERO)]
    assert tell_hooks("small net", hooks).sentence == (
        "2 hooks are registered. In the order of firing: 1. the forward hook on relu returns zeros; 2. the full "
        "backward hook on fc2 looks. The output is [1] ([89] without hooks), and the gradient of the input is "
        "[0, 0, 0] ([22, 26, 30] without hooks)."
    )


def test_the_sentence_says_what_stays():
    assert "The output is [89] as without hooks, and the gradient of the input is [0, 0, 0]" in (
        tell_hooks("small net", [("fc1", "full backward hook", ZERO)]).sentence
    )
    assert tell_hooks("small net", [("", "forward hook")]).sentence == (
        "1 hook is registered. In the order of firing: 1. the forward hook on the model looks. Nothing changes: the "
        "output is [89], and the gradient of the input is [22, 26, 30]."
    )


def test_the_sentence_explains_the_inplace_error():
    sentence = tell_hooks("residual block", [("fc1", "full backward hook")]).sentence
    assert "The call raises RuntimeError: Output 0 of BackwardHookFunction is a view and is being modified" in sentence
    assert "the in-place ReLU may not write into a view" in sentence


def test_the_table_shows_shapes_values_hooks_and_what_was_there_before():
    story = tell_hooks("small net", [("relu", "forward hook", ZERO)])
    assert [(each.name, each.type, each.shape, each.depth) for each in story.table] == [
        ("x", "input", "(1, 3)", 0),
        ("model", "SmallNet", "(1, 1)", 0),
        ("fc1", "Linear", "(1, 4)", 1),
        ("relu", "ReLU", "(1, 4)", 1),
        ("fc2", "Linear", "(1, 1)", 1),
    ]
    assert row(story, "relu").output == ["[0, 0, 0, 0]", "was [7, 0, 27, 0]"]
    assert row(story, "relu").hooks == ["1: forward hook, zero"]
    assert row(story, "x").gradient == ["[0, 0, 0]", "was [22, 26, 30]"]
    assert row(story, "fc1").output == ["[7, -13, 27, -29]", ""]


def test_calls_of_a_reused_module_stand_side_by_side():
    relu = row(tell_hooks("residual block", [("fc2", "full backward hook", ZERO)]), "relu")
    assert relu.output == ["[5, 0]", "", "[12, 0]"]
    assert relu.gradient == ["[0, 0]", "was [2, 1]", "[1, 1]"]
    assert relu.type == "ReLU, in place"


def test_hooks_that_never_fire_are_marked():
    story = tell_hooks("residual block", [("fc1", "full backward hook"), ("relu", "forward hook")])
    assert row(story, "fc1").hooks == ["never: full backward hook, look"]
    assert row(story, "relu").output == ["did not finish", "did not finish"]


@pytest.mark.parametrize(("model", "name"), EVERY_MODULE)
def test_the_picture_is_well_formed_and_says_the_same(model, name):
    story = tell_hooks(model, [(name, "forward hook", ZERO), (name, "full backward hook")])
    root = ElementTree.fromstring(story.picture)
    texts = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    for each in story.table:
        assert each.name in texts
        assert {text for text in (*each.output, *each.gradient, *each.hooks) if text} <= set(texts)
    assert root.find("{http://www.w3.org/2000/svg}desc").text == story.sentence
    assert root.get("aria-label") in texts


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize(("model", "name"), EVERY_MODULE)
def test_nothing_in_the_picture_runs_into_its_neighbour(model, name, effect):
    """Estimated with 7.83 px for each monospaced character of 13 px, and 7.6 px for a bold one."""
    columns = [*model_hooks_story.COLUMNS.values(), model_hooks_story.WIDTH]
    for each in tell_hooks(model, [(name, "forward hook", effect), (name, "full backward pre-hook")]).table:
        heading = 20 * each.depth + 8 * len(each.name) + 10 + 6.7 * len(f"{each.type} {each.shape}")
        assert columns[0] + heading <= columns[1]
        assert max((len(text) for text in each.output), default=0) * 7.83 <= columns[2] - columns[1]
        assert max((len(text) for text in each.gradient), default=0) * 7.83 <= columns[3] - columns[2]
        assert 18 + max((len(text) for text in each.hooks), default=0) * 7.6 <= columns[4] - columns[3]


def test_the_same_state_gives_the_same_picture():
    hooks = [("1.1", "full backward hook", ZERO)]
    assert tell_hooks("Sequential in a Sequential", hooks) == tell_hooks("Sequential in a Sequential", hooks)


# ------------------------------------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("model", "hooks", "message"),
    [
        ("small nett", [], r"There is no model 'small nett'; there is 'small net', .* Did you mean 'small net'\?"),
        ("small net", [("relu2", "forward hook")], r"There is no module 'relu2'; .* Did you mean 'relu'\?"),
        (
            "small net",
            [("relu", "backward hook")],
            r"no kind of hook 'backward hook'; .* Did you mean 'full backward hook",
        ),
        ("small net", [("relu", "forward hook", "one")], "no effect 'one'; there is 'look', 'replace by zero'"),
        ("small net", ["relu"], r"A hook is \(module, kind\) or \(module, kind, effect\).*got 'relu'"),
        ("small net", [("relu",)], "A hook is"),
        ("small net", [("relu", "forward hook")] * 7, "There is room for 6 hooks: remove one first"),
    ],
)
def test_what_does_not_exist_is_named_with_what_does(model, hooks, message):
    for call in (read_placements, run_with_hooks, tell_hooks, ModelHooks):
        with pytest.raises(PlacementError, match=message):
            call(model, hooks)


# ----------------------------------------------------------------------------------------------------------- the panel


def controls(explorer, kind):
    found, waiting = [], [explorer.widget]
    while waiting:
        widget = waiting.pop(0)
        waiting += getattr(widget, "children", ())
        if isinstance(widget, kind):
            found.append(widget)
    return found


def control(explorer, kind, description):
    (found,) = [widget for widget in controls(explorer, kind) if widget.description == description]
    return found


def shown(explorer):
    return "".join(widget.value for widget in controls(explorer, widgets.HTML))


def register(explorer, module, kind="forward hook", effect=LOOK):
    for description, value in (("Hook on", module), ("Kind", kind), ("that does", effect)):
        control(explorer, widgets.Dropdown, description).value = value
    control(explorer, widgets.Button, "Register").click()


def told(model, *hooks):
    return tell_hooks(model, hooks).sentence


def test_it_opens_with_the_hooks_of_the_lesson():
    explorer = ModelHooks("small net", [("relu", "forward hook", ZERO)])
    story = tell_hooks("small net", [("relu", "forward hook", ZERO)])
    assert explorer.sentence == story.sentence
    assert story.picture in shown(explorer)
    assert make_paragraph(story.sentence) in shown(explorer)


def test_hooks_are_registered_and_removed_one_by_one_and_all_together():
    explorer = ModelHooks()
    first, second = ("relu", "forward hook", ZERO), ("fc2", "full backward hook", LOOK)
    register(explorer, *first)
    assert explorer.sentence == told("small net", first)
    register(explorer, *second)
    assert explorer.sentence == told("small net", first, second)
    control(explorer, widgets.Button, "Remove relu: forward hook, replace by zero").click()
    assert explorer.sentence == told("small net", second)
    register(explorer, *first)
    control(explorer, widgets.Button, "Remove all").click()
    assert explorer.sentence == told("small net")
    assert control(explorer, widgets.Button, "Remove all").disabled


def test_of_two_equal_hooks_one_is_removed():
    explorer = ModelHooks("small net", [("relu", "forward hook")] * 2)
    remove = "Remove relu: forward hook, look"
    chips = [widget for widget in controls(explorer, widgets.Button) if widget.description == remove]
    chips[0].click()
    assert explorer.sentence == told("small net", ("relu", "forward hook"))


def test_another_model_opens_without_hooks_and_with_its_own_modules():
    explorer = ModelHooks("small net", [("relu", "forward hook")])
    control(explorer, widgets.Dropdown, "Model").value = "Sequential in a Sequential"
    assert explorer.sentence == told("Sequential in a Sequential")
    names = [name for _, name in control(explorer, widgets.Dropdown, "Hook on").options]
    assert names == ["", "0", "1", "1.0", "1.1", "2"]
    register(explorer, "", "full backward hook", ZERO)
    assert explorer.sentence == told("Sequential in a Sequential", ("", "full backward hook", ZERO))


def test_one_hook_too_many_is_refused_in_words_and_forgotten_after_the_next_step():
    explorer = ModelHooks("small net", [("relu", "forward hook")] * MOST_HOOKS)
    before = explorer.sentence
    register(explorer, "fc1")
    problem = make_problem(f"There is room for {MOST_HOOKS} hooks: remove one first.")
    assert problem in shown(explorer)
    assert explorer.sentence == before
    control(explorer, widgets.Button, "Remove all").click()
    assert problem not in shown(explorer)


def test_every_control_has_a_label_and_every_button_that_is_gone_is_closed():
    explorer = ModelHooks("residual block", [("fc1", "forward hook"), ("fc2", "forward hook")])
    for widget in controls(explorer, (widgets.Dropdown, widgets.Button)):
        assert widget.description
    chips = [each for each in controls(explorer, widgets.Button) if each.description.startswith("Remove fc")]
    control(explorer, widgets.Button, "Remove all").click()
    assert [chip.comm for chip in chips] == [None, None]


def test_its_faces_are_a_sentence_a_still_picture_and_the_panel():
    explorer = ModelHooks("residual block", [("fc1", "full backward hook")])
    bundle, _ = explorer._repr_mimebundle_()
    assert bundle["text/plain"] == explorer.sentence
    assert bundle[VIEW]["model_id"] == explorer.widget.model_id
    assert "background:#ffffff" in bundle["image/svg+xml"]
    ElementTree.fromstring(bundle["image/svg+xml"])
