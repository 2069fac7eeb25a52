"""The explorer of a call, and the pictures under it: each step of a small call, the hooks, the guesses."""

import itertools
import xml.etree.ElementTree as ElementTree

import ipywidgets as widgets
import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from course_utils.explorers import LifeOfACall
from course_utils.explorers.call_pictures import (
    LADDER,
    Guess,
    choose_moments,
    find_next_hook,
    guess_next_hook,
    show_source,
    tell_call,
)
from course_utils.explorers.life_of_a_call import NO_OTHER
from course_utils.hooks.call import (
    HOOK_KINDS,
    life_of_a_call,
    read_parts,
)
from course_utils.hooks.inventory import count_hooks
from course_utils.root import CourseError
from course_utils.vision.toys import EXAMPLE_CALLS, make_example

HOOKS = [("forward hook", "fc1"), ("full backward hook", "fc1"), ("forward pre-hook", "global")]
FIRED = [
    "global: forward pre-hook",  # for the model
    "global: forward pre-hook",  # for fc1
    "fc1: forward hook",
    "global: forward pre-hook",
    "global: forward pre-hook",
    "fc1: full backward hook",
]


@pytest.fixture(autouse=True)
def _leaves_no_hook(monkeypatch):
    yield
    assert count_hooks(nn.Identity()).total() == 0
    assert torch_module._global_is_full_backward_hook is None


def call(relu="plain", hooks=HOOKS):
    model, x = make_example(relu)
    return model, life_of_a_call(model, x, hooks)


def lines_of(picture):
    """The texts of a picture, in the order in which they are drawn."""
    return ["".join(text.itertext()) for text in ElementTree.fromstring(picture).iter() if text.tag.endswith("}text")]


# -- The example and the order --


def test_the_example_is_the_pencil_network():
    model, x = make_example()
    assert model.fc1(x).tolist() == [[7, -13, 27, -29]]
    assert model(x).item() == 89
    assert x.is_leaf
    assert x.requires_grad


def test_the_relus_differ():
    model, x = make_example("in place")
    assert model(x).item() == 89
    hidden = model.fc1(x)
    assert model.relu(hidden) is hidden
    model, x = make_example("raises an error")
    with pytest.raises(ValueError, match="this relu always raises"):
        model(x)
    with pytest.raises(ValueError, match="no relu called 'leaky'; choose from plain, in place, raises an error"):
        make_example("leaky")


def test_the_next_hook_is_found_from_every_moment():
    _, moments = call()
    assert [moment.hook for moment in moments if moment.hook] == FIRED
    place, met = -1, []
    while (place := find_next_hook(moments, place)) is not None:
        met.append(moments[place].hook)
    assert met == FIRED


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("global: forward pre-hook", "Right: the next to fire was global: forward pre-hook, for the model."),
        ("fc1: forward hook", "Not this time: the next to fire was global: forward pre-hook, for the model."),
        ("", "Not this time: the next to fire was global: forward pre-hook, for the model."),
    ],
)
def test_a_guess_is_compared_with_what_fires(said, sentence):
    _, moments = call()
    guess, place = guess_next_hook(moments, 0, said)
    assert guess.sentence == sentence
    assert moments[place].hook == FIRED[0]


def test_after_the_last_hook_none_is_right():
    _, moments = call()
    last = len(moments) - 1
    assert guess_next_hook(moments, last, "") == (Guess("", ""), last)
    assert Guess("", "").sentence == "Right: no hook fires any more."
    assert Guess("fc1: forward hook", "").sentence == "Not this time: no hook fires any more."


# -- Pictures and sentences --


@pytest.mark.parametrize("relu", EXAMPLE_CALLS)
@pytest.mark.parametrize("hooks", [[], HOOKS, [("legacy backward hook", "fc2"), ("always-called forward hook", "")]])
def test_every_moment_has_a_picture_and_a_sentence(relu, hooks):
    model, moments = call(relu, hooks)
    for place, moment in enumerate(moments):
        story = tell_call(moments, place, model, hooks, skipped=True)
        assert story.moment is moment
        assert story.sentence.startswith(f"Step {place + 1} of {len(moments)}. ")
        assert story.sentence.endswith(f"Hooks fired so far: {len(moment.fired)}.")
        svg = ElementTree.fromstring(story.picture)
        assert svg.get("role") == "img"
        assert svg.get("aria-label") == lines_of(story.picture)[0]
        assert svg.find("{*}desc").text == story.sentence


def test_skipped_parts_are_left_out_unless_asked_for():
    _, moments = call()
    some, every = choose_moments(moments), choose_moments(moments, skipped=True)
    assert every == list(range(len(moments)))
    assert [place for place in every if place not in some] == [p for p in every if not moments[p].taken]


def test_the_absence_of_a_backward_pass_is_always_shown():
    model, _ = make_example()
    moments = life_of_a_call(model.requires_grad_(False), torch.ones(1, 3))
    assert choose_moments(moments)[-1] == len(moments) - 1
    story = tell_call(moments, len(moments) - 1, model, [])
    assert "no backward pass" in story.sentence
    assert lines_of(story.picture)[0] == "There is no backward pass"


def test_the_ladder_shows_what_became_of_each_part():
    model, moments = call()
    (at,) = [i for i, m in enumerate(moments) if m.module == "fc1" and m.part and m.part.name == "forward"]
    lines = lines_of(tell_call(moments, at, model, HOOKS).picture)
    start = lines.index("The call of fc1") + 1
    assert lines[start : start + len(LADDER)] == [
        "● dispatch",
        "● choose forward",
        "- fast path",
        "- collect backward pre-hooks",
        "● collect backward hooks",
        "● sort backward hooks",
        "● forward pre-hooks",
        "● wrap inputs",
        "► forward",
        "○ forward hooks",
        "○ wrap outputs",
        "○ legacy backward hooks",
        "○ return",
        "○ after an exception",
    ]
    assert "fc1  ◄ here" in lines
    assert "● forward pre-hook 2\u00d7" in lines  # global: the model's and fc1's
    assert "○ forward hook" in lines
    assert "Arguments: ([[1, 1, 1]],)" in lines
    assert lines[-3:-1] == ["1. global: forward pre-hook, for the model", "2. global: forward pre-hook, for fc1"]


def test_the_ladder_has_the_parts_of_the_installed_torch():
    names = [part.name for part in read_parts()]
    assert names[: len(LADDER)] == list(LADDER)


def test_backward_lists_gradients_and_hooks():
    model, moments = call()
    lines = lines_of(tell_call(moments, len(moments) - 1, model, HOOKS).picture)
    start = lines.index("The backward pass") + 1
    assert lines[start : lines.index("Hooks fired so far")] == [
        "● gradient of the output of fc2",
        "● gradient of the output of the model",
        "● gradient of the output of relu",
        "● gradient of the output of fc1",
        "► fc1: full backward hook",
    ]
    assert "The hook sees: (([[22, 26, 30]],), ([[1, 0, 3, 0]],))" in lines


def test_an_exception_is_shown_with_the_call_that_it_leaves():
    hooks = [("always-called forward hook", "")]
    model, moments = call("raises an error", hooks)
    story = tell_call(moments, len(moments) - 1, model, hooks)
    assert "ValueError leaves the call: this relu always raises." in story.sentence
    assert "● after an exception" in lines_of(story.picture)
    assert [moment.hook for moment in moments if moment.hook] == ["the model: always-called forward hook"]


def test_an_in_place_relu_raises_behind_a_full_backward_hook():
    model, moments = call("in place", [("full backward hook", "fc1")])
    sentence = tell_call(moments, len(moments) - 1, model, [("full backward hook", "fc1")]).sentence
    assert "RuntimeError leaves the call: Output 0 of BackwardHookFunction is a view and is being modified" in sentence


def test_long_lists_are_cut_from_the_front():
    hooks = [(kind, "global") for kind in HOOK_KINDS[:5]]
    model, moments = call(hooks=hooks)
    lines = lines_of(tell_call(moments, len(moments) - 1, model, hooks).picture)
    assert "… 5 earlier" in lines[lines.index("Hooks fired so far") :]
    assert lines[-2].startswith("20. ")


def test_a_model_inside_a_model_is_drawn_inside():
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 1))
    hooks = [("forward hook", "0.1")]
    moments = life_of_a_call(model, torch.ones(1, 2), hooks)
    svg = ElementTree.fromstring(tell_call(moments, 0, model, hooks).picture)
    frames = [each for each in svg.iter() if each.tag.endswith("}rect")]
    boxes = [tuple(float(each.get(key)) for key in ("x", "y", "width", "height")) for each in frames]
    glob, whole, inner, first, second, last = boxes
    for outer, box in ((whole, inner), (whole, last), (inner, first), (inner, second)):
        assert outer[0] < box[0]
        assert outer[1] < box[1]
        assert box[0] + box[2] < outer[0] + outer[2]
        assert box[1] + box[3] < outer[1] + outer[3]
    assert glob[0] + glob[2] < whole[0]


def test_a_large_model_is_refused():
    model = nn.Sequential(*[nn.ReLU() for _ in range(8)])
    moments = life_of_a_call(model, torch.ones(1))
    with pytest.raises(ValueError, match="9 modules; a picture of a call holds at most 8"):
        tell_call(moments, 0, model, [])


def test_names_are_escaped():
    model = nn.Sequential()
    model.add_module("<b>&", nn.ReLU())
    moments = life_of_a_call(model, torch.ones(1))
    assert "<b>&" in lines_of(tell_call(moments, 0, model, []).picture)


def test_the_source_is_that_of_the_installed_torch():
    _, moments = call()
    for moment in moments:
        shown = show_source(moment)
        if moment.part is None:
            assert "No line of the call is running" in shown
        else:
            assert torch.__version__ in shown
            assert f"<b>► {moment.line}  " in shown
            assert shown.count("►") == 1
            assert str(moment.part.last) in shown


# -- The panel --


def controls(explorer, kind, description=None):
    found, waiting = [], [explorer.widget]
    while waiting:
        widget = waiting.pop(0)
        waiting += getattr(widget, "children", ())
        if isinstance(widget, kind) and (description is None or widget.description == description):
            found.append(widget)
    return found


def control(explorer, kind, description):
    (found,) = controls(explorer, kind, description)
    return found


def shown(explorer):
    return "".join(widget.value for widget in controls(explorer, widgets.HTML))


def tick(explorer, place, kind, on=True):
    control(explorer, widgets.ToggleButtons, "Hooks of").value = place
    control(explorer, widgets.Checkbox, f"{place or 'model'}: {kind}").value = on


def say(explorer, words):
    control(explorer, widgets.Button, words).click()


def test_it_opens_where_a_lesson_says():
    explorer = LifeOfACall(hooks=HOOKS, step=13)
    assert explorer.sentence == (
        "Step 13 of 35. The call of fc1: forward. Run forward itself. Arguments: ([[1, 1, 1]],). Hooks fired so far: 2."
    )
    assert LifeOfACall(hooks=HOOKS, step=-1).sentence.startswith("Step 35 of 35. ")


def test_what_is_saved_in_a_notebook_does_not_depend_on_the_release():
    explorer = LifeOfACall(hooks=HOOKS, step=13)
    saved = shown(explorer) + explorer.still_picture + explorer.sentence
    assert torch.__version__ not in saved
    assert "_call_impl" not in saved
    control(explorer, widgets.IntSlider, "Step").value = 14
    assert f"in Module._call_impl of your torch, {torch.__version__}" in shown(explorer)


def test_every_control_has_a_label_and_none_opens_a_list():
    explorer = LifeOfACall(hooks=HOOKS)
    for kind in (widgets.Checkbox, widgets.Button, widgets.ToggleButtons, widgets.IntSlider):
        assert controls(explorer, kind)
        assert all(each.description for each in controls(explorer, kind))
    assert not controls(explorer, widgets.Dropdown)
    assert not controls(explorer, widgets.Output)


def test_slider_and_buttons_step_through_the_call():
    explorer = LifeOfACall()
    slider = control(explorer, widgets.IntSlider, "Step")
    say(explorer, "Back")
    assert slider.value == 1
    say(explorer, "Next")
    assert explorer.sentence.startswith("Step 2 of 16. The call of the model: choose forward.")
    slider.value = slider.max
    say(explorer, "Next")
    assert explorer.sentence.startswith("Step 16 of 16. fc1: the gradient of its output is computed.")


def test_boxes_register_and_remove_hooks():
    explorer = LifeOfACall()
    tick(explorer, "fc1", "forward hook")
    tick(explorer, "", "full backward hook")
    tick(explorer, "global", "forward pre-hook")
    assert "1. fc1: forward hook, 2. the model: full backward hook, 3. global: forward pre-hook." in shown(explorer)
    tick(explorer, "fc1", "forward hook", on=False)
    assert "1. the model: full backward hook, 2. global: forward pre-hook." in shown(explorer)
    control(explorer, widgets.ToggleButtons, "Hooks of").value = "global"
    boxes = {box.description: box.value for box in controls(explorer, widgets.Checkbox)}
    assert boxes["global: forward pre-hook"]
    assert not boxes["global: forward hook"]
    say(explorer, "Remove all")
    assert "Registered, in this order: no hook." in shown(explorer)
    assert control(explorer, widgets.Button, "Remove all").disabled
    assert not control(explorer, widgets.Checkbox, "global: forward pre-hook").value


def test_looking_at_another_place_changes_no_hook():
    explorer = LifeOfACall(hooks=HOOKS, step=13)
    for place in ("fc1", "global", "fc2", ""):
        control(explorer, widgets.ToggleButtons, "Hooks of").value = place
    assert explorer.sentence.startswith("Step 13 of 35. ")


def test_what_torch_refuses_is_said_and_undone():
    explorer = LifeOfACall(hooks=[("full backward hook", "fc1")])
    tick(explorer, "fc1", "legacy backward hook")
    assert "torch refuses this hook: Cannot use both regular backward hooks and full backward hooks" in shown(explorer)
    assert not control(explorer, widgets.Checkbox, "fc1: legacy backward hook").value
    assert "1. fc1: full backward hook." in shown(explorer)
    tick(explorer, "fc2", "legacy backward hook")
    assert "torch refuses" not in shown(explorer)


@pytest.mark.parametrize("relu", EXAMPLE_CALLS)
def test_every_kind_at_every_place_can_be_tried(relu):
    explorer = LifeOfACall(relu)
    for place, kind in itertools.product(("global", "", "fc1"), HOOK_KINDS[:5]):
        tick(explorer, place, kind)
    slider = control(explorer, widgets.IntSlider, "Step")
    slider.value = slider.max
    assert explorer.sentence.startswith(f"Step {slider.max} of {slider.max}. ")


def test_skipped_parts_can_be_visited_and_the_moment_is_kept():
    explorer = LifeOfACall(hooks=HOOKS, step=13)
    box = control(explorer, widgets.Checkbox, "Also stop at parts that are skipped")
    box.value = True
    assert "The call of fc1: forward. Run forward itself." in explorer.sentence
    slider = control(explorer, widgets.IntSlider, "Step")
    assert slider.max > 35
    slider.value = 3
    assert "The call of the model: fast path, skipped, because its condition does not hold." in explorer.sentence
    box.value = False
    assert "The call of the model: choose forward." in explorer.sentence


def test_predictions_are_compared_with_the_actual_order():
    explorer = LifeOfACall(hooks=HOOKS)
    said = [*FIRED[:3], "fc1: full backward hook", FIRED[4], FIRED[5], NO_OTHER]
    for number, words in enumerate(said):
        say(explorer, words)
        if number == 2:
            assert explorer.sentence.startswith("Step 15 of 35. fc1: forward hook fires")
            assert "Right: the next to fire was fc1: forward hook." in shown(explorer)
        if number == 3:
            assert "Not this time: the next to fire was global: forward pre-hook, for relu." in shown(explorer)
    assert "Right: no hook fires any more." in shown(explorer)
    assert shown(explorer).count("(not as predicted)") == 1
    assert shown(explorer).count("Predicted and actual") == 1


def test_other_hooks_begin_a_new_round_of_predictions():
    explorer = LifeOfACall(hooks=HOOKS)
    say(explorer, "fc1: forward hook")
    assert "Predicted and actual" in shown(explorer)
    tick(explorer, "fc2", "forward hook")
    assert "Predicted and actual" not in shown(explorer)
    assert controls(explorer, widgets.Button, "fc2: forward hook")


def test_another_relu_is_another_call():
    explorer = LifeOfACall(hooks=[("full backward hook", "fc1")], step=5)
    control(explorer, widgets.ToggleButtons, "The relu is").value = "in place"
    assert explorer.sentence.startswith("Step 1 of ")
    slider = control(explorer, widgets.IntSlider, "Step")
    slider.value = slider.max
    assert "is being modified inplace" in explorer.sentence


def test_a_model_of_ones_own():
    model = nn.Sequential(nn.Linear(2, 1))
    explorer = LifeOfACall(model, torch.ones(1, 2), hooks=[("forward hook", "0")], step=-1)
    assert not controls(explorer, widgets.ToggleButtons, "The relu is")
    assert control(explorer, widgets.ToggleButtons, "Hooks of").options == (
        ("global", "global"),
        ("the model", ""),
        ("0", "0"),
    )
    assert count_hooks(model).total() == 0
    assert all(parameter.grad is None for parameter in model.parameters())
    tick(explorer, "0", "forward hook", on=False)
    assert "Registered, in this order: no hook." in shown(explorer)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (("leaky",), {}, ValueError, "no relu called 'leaky'"),
        ((nn.ReLU(),), {}, ValueError, "needs inputs"),
        ((), {"hooks": [("hook", "fc1")]}, ValueError, "no hook kind 'hook'"),
        ((), {"hooks": [("forward hook", "fc9")]}, CourseError, "fc9"),
        ((), {"step": 99}, ValueError, "no step 99: this call has the steps 1 to 16"),
        ((), {"step": 0}, ValueError, "no step 0"),
    ],
)
def test_what_does_not_exist_is_refused(arguments, options, error, words):
    with pytest.raises(error, match=words):
        LifeOfACall(*arguments, **options)
