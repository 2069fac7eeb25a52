"""The explorer of a call: its pictures and sentences, each of its controls, and the guesses."""

import itertools
import xml.etree.ElementTree as ET

import ipywidgets as widgets
import pytest
import torch
from panels import control, controls, shown
from torch import nn
from torch.nn.modules import module as torch_module

from course_utils.explorers import LifeOfACall
from course_utils.explorers.life_of_a_call import (
    NO_OTHER,
    CallPicture,
    choose_stops,
    guess_next_hook,
    list_parts,
    show_source,
    tell_moment,
)
from course_utils.hooks.call import HOOK_KINDS, life_of_a_call
from course_utils.hooks.inventory import count_hooks
from course_utils.vision.toys import EXAMPLE_CALLS, make_example

HOOKS = [("forward hook", "fc1"), ("full backward hook", "fc1"), ("forward pre-hook", "global")]
MODEL_OR_LAYER = "global: forward pre-hook"  # fires for the model, fc1, relu and fc2
FIRED = [*[MODEL_OR_LAYER] * 2, "fc1: forward hook", *[MODEL_OR_LAYER] * 2, "fc1: full backward hook"]


@pytest.fixture(autouse=True)
def _leaves_no_hook():
    yield
    assert count_hooks(nn.Identity()).total() == 0
    assert torch_module._global_is_full_backward_hook is None


def call(relu="plain", hooks=HOOKS):
    model, x = make_example(relu)
    return model, life_of_a_call(model, x, hooks)


def lines_of(moments, place, model, hooks):
    """The texts of a picture, in the order in which they are drawn; its frames."""
    svg = ET.fromstring(CallPicture(moments, place, model, hooks).draw("words"))
    texts = ["".join(text.itertext()) for text in svg.iter() if text.tag.endswith("}text")]
    assert (svg.get("role"), svg.get("aria-label"), svg.find("{*}desc").text) == ("img", texts[0], "words")
    return texts


# --- guesses, words and pictures --------------------------------------------------------------------------------------


def test_guesses_are_compared_with_what_fires_next():
    _, moments = call()
    place, met = -1, []
    while (after := guess_next_hook(moments, place, "fc1: forward hook"))[0]:
        met.append(after[0])
        place = after[1]
        assert moments[place].hook == after[0]
    assert met == FIRED
    model = "the next to fire was global: forward pre-hook, for the model."
    assert guess_next_hook(moments, 0, FIRED[0])[2] == f"Right: {model}"
    assert guess_next_hook(moments, 0, "")[2] == f"Not this time: {model}"
    last = len(moments) - 1
    assert guess_next_hook(moments, last, "") == ("", last, "Right: no hook fires any more.")
    assert guess_next_hook(moments, last, FIRED[2])[2] == "Not this time: no hook fires any more."


@pytest.mark.parametrize("relu", EXAMPLE_CALLS)
@pytest.mark.parametrize("hooks", [HOOKS, [("legacy backward hook", "fc2"), ("always-called forward hook", "")]])
def test_every_moment_has_a_picture_and_a_sentence(relu, hooks):
    model, moments = call(relu, hooks)
    some, every = choose_stops(moments), choose_stops(moments, skipped=True)
    assert every == list(range(len(moments)))
    assert [place for place in every if place not in some] == [p for p in every if not moments[p].taken]
    for place, moment in enumerate(moments):
        sentence = tell_moment(moments, place, every)
        assert sentence.startswith(f"Step {place + 1} of {len(moments)}. ")
        assert sentence.endswith(f"Hooks fired so far: {len(moment.fired)}.")
        assert lines_of(moments, place, model, hooks)


def test_the_parts_of_a_call_show_what_became_of_each():
    model, moments = call()
    (at,) = [i for i, m in enumerate(moments) if m.module == "fc1" and m.part and m.part.name == "forward"]
    lines = lines_of(moments, at, model, HOOKS)
    start = lines.index("The call of fc1") + 1
    signs, names = zip(*(line.split(" ", 1) for line in lines[start : start + 14]), strict=True)
    assert (names, "".join(signs)) == (list_parts(), "●●--●●●●►○○○○○")
    assert names[:3] == ("dispatch", "choose forward", "fast path")
    assert {"fc1  ◄ here", "○ forward hook", "Arguments: ([[1, 1, 1]],)"} <= set(lines)
    assert "● forward pre-hook 2\u00d7" in lines  # global: the model's and fc1's
    assert lines[-3:-1] == ["1. global: forward pre-hook, for the model", "2. global: forward pre-hook, for fc1"]


def test_backward_lists_gradients_and_hooks():
    model, moments = call()
    lines = lines_of(moments, len(moments) - 1, model, HOOKS)
    start = lines.index("The backward pass") + 1
    assert lines[start : lines.index("Hooks fired so far")] == [
        "● gradient of the output of fc2",
        "● gradient of the output of the model",
        "● gradient of the output of relu",
        "● gradient of the output of fc1",
        "► fc1: full backward hook",
    ]
    assert "The hook sees: (([[22, 26, 30]],), ([[1, 0, 3, 0]],))" in lines


def test_the_absence_of_a_backward_pass_is_always_shown():
    model, _ = make_example()
    moments = life_of_a_call(model.requires_grad_(False), torch.ones(1, 3))
    stops, last = choose_stops(moments), len(moments) - 1
    assert stops[-1] == last
    assert "no backward pass" in tell_moment(moments, last, stops)
    assert lines_of(moments, last, model, [])[0] == "There is no backward pass"


def test_an_exception_is_shown_with_the_call_that_it_leaves():
    hooks = [("always-called forward hook", "")]
    model, moments = call("raises an error", hooks)
    last = len(moments) - 1
    assert "ValueError leaves the call: this relu always raises." in tell_moment(moments, last, [last])
    lines = lines_of(moments, last, model, hooks)
    assert {"The exception leaves the call", "● after an exception", "● forward hook, always"} <= set(lines)
    model, moments = call("in place", [("full backward hook", "fc1")])
    last = len(moments) - 1
    assert "Output 0 of BackwardHookFunction is a view and is being modified" in tell_moment(moments, last, [last])


def test_long_lists_and_long_values_are_cut():
    hooks = [(kind, "global") for kind in HOOK_KINDS[:5]]
    model, moments = call(hooks=hooks)
    lines = lines_of(moments, len(moments) - 1, model, hooks)
    assert "… 5 earlier" in lines[lines.index("Hooks fired so far") :]
    assert lines[-2].startswith("20. ")
    moments = life_of_a_call(nn.Identity(), (torch.full((8,), 0.123), torch.full((8,), 0.456)))
    (values,) = [line for line in lines_of(moments, 0, nn.Identity(), []) if line.startswith("Arguments")]
    assert (len(values), values[-1]) == (104, "…")


def test_a_model_inside_a_model_is_drawn_inside():
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 1))
    moments = life_of_a_call(model, torch.ones(1, 2))
    svg = ET.fromstring(CallPicture(moments, 0, model, [("forward hook", "0.1")]).draw(""))
    frames = [each for each in svg.iter() if each.tag.endswith("}rect")]
    boxes = [tuple(float(each.get(key)) for key in ("x", "y", "width", "height")) for each in frames]
    glob, whole, inner, first, second, last = boxes
    for outer, box in ((whole, inner), (whole, last), (inner, first), (inner, second)):
        assert all(outer[i] < box[i] and box[i] + box[i + 2] < outer[i] + outer[i + 2] for i in (0, 1))
    for left, right in ((glob, whole), (first, second), (inner, last)):
        assert left[0] + left[2] < right[0]


def test_the_source_is_that_of_the_installed_torch():
    _, moments = call()
    for moment in moments:
        source = show_source(moment)
        if moment.part is None:
            assert "No line of the call is running" in source
        else:
            assert f"lines {moment.part.first} to {moment.part.last} of its file" in source
            assert torch.__version__ in source
            assert f"<b>► {moment.line}  " in source
            assert source.count("►") == 1


# --- the panel --------------------------------------------------------------------------------------------------------


def tick(explorer, place, kind, on=True):
    control(explorer, "Hooks of").value = place
    control(explorer, f"{place or 'model'}: {kind}", widgets.Checkbox).value = on


def say(explorer, words):
    control(explorer, words, widgets.Button).click()


def test_it_opens_where_a_lesson_says_and_saves_nothing_of_the_release():
    explorer = LifeOfACall(hooks=HOOKS, step=13)
    assert explorer.sentence == (
        "Step 13 of 35. The call of fc1: forward. Run forward itself. Arguments: ([[1, 1, 1]],). Hooks fired so far: 2."
    )
    saved = shown(explorer) + explorer.still_picture + explorer.sentence
    assert torch.__version__ not in saved
    assert "_call_impl" not in saved
    control(explorer, "Step").value = 14
    assert f"in Module._call_impl of your torch, {torch.__version__}" in shown(explorer)
    assert LifeOfACall(hooks=HOOKS, step=-1).sentence.startswith("Step 35 of 35. ")


def test_slider_and_buttons_step_through_the_call():
    explorer = LifeOfACall()
    slider = control(explorer, "Step")
    say(explorer, "Back")
    assert slider.value == 1
    say(explorer, "Next")
    assert explorer.sentence.startswith("Step 2 of 16. The call of the model: choose forward.")
    slider.value = slider.max
    say(explorer, "Next")
    assert explorer.sentence.startswith("Step 16 of 16. fc1: the gradient of its output is computed.")
    say(explorer, "Back")
    assert explorer.sentence.startswith("Step 15 of 16. ")


def test_boxes_register_and_remove_hooks():
    explorer = LifeOfACall(step=5)
    tick(explorer, "fc1", "forward hook")
    assert explorer.sentence.startswith("Step 1 of ")
    tick(explorer, "", "full backward hook")
    tick(explorer, "global", "forward pre-hook")
    assert "1. fc1: forward hook, 2. the model: full backward hook, 3. global: forward pre-hook." in shown(explorer)
    tick(explorer, "fc1", "forward hook", on=False)
    assert "1. the model: full backward hook, 2. global: forward pre-hook." in shown(explorer)
    sentence = explorer.sentence
    for place in ("fc1", "", "global"):  # to look at another place changes no hook
        control(explorer, "Hooks of").value = place
        assert explorer.sentence == sentence
    boxes = {box.description: box.value for box in controls(explorer, widgets.Checkbox)}
    assert (boxes["global: forward pre-hook"], boxes["global: forward hook"]) == (True, False)
    say(explorer, "Remove all")
    assert "Registered, in this order: no hook." in shown(explorer)
    assert control(explorer, "Remove all").disabled
    assert not control(explorer, "global: forward pre-hook").value


def test_what_torch_refuses_is_said_and_undone():
    explorer = LifeOfACall(hooks=[("full backward hook", "fc1")])
    tick(explorer, "fc1", "legacy backward hook")
    assert "torch refuses this hook: Cannot use both regular backward hooks and full backward hooks" in shown(explorer)
    assert not control(explorer, "fc1: legacy backward hook").value
    assert "1. fc1: full backward hook." in shown(explorer)
    tick(explorer, "fc2", "legacy backward hook")
    assert "torch refuses" not in shown(explorer)


@pytest.mark.parametrize("relu", EXAMPLE_CALLS)
def test_every_kind_at_every_place_can_be_tried(relu):
    explorer = LifeOfACall(step=5)
    control(explorer, "The relu is").value = relu
    assert explorer.sentence.startswith("Step 1 of " if relu != "plain" else "Step 5 of ")
    for place, kind in itertools.product(("global", "", "fc1"), HOOK_KINDS[:5]):
        tick(explorer, place, kind)
    slider = control(explorer, "Step")
    slider.value = slider.max
    assert explorer.sentence.startswith(f"Step {slider.max} of {slider.max}. ")


def test_skipped_parts_can_be_visited_and_the_moment_is_kept():
    explorer = LifeOfACall(hooks=HOOKS, step=13)
    box = control(explorer, "Also stop at parts that are skipped")
    box.value = True
    assert "The call of fc1: forward. Run forward itself." in explorer.sentence
    slider = control(explorer, "Step")
    assert slider.max > 35
    slider.value = 3
    assert "The call of the model: fast path, skipped, because its condition does not hold." in explorer.sentence
    box.value = False
    assert "The call of the model: choose forward." in explorer.sentence


def test_predictions_are_compared_with_the_actual_order():
    explorer = LifeOfACall(hooks=HOOKS)
    for words in (*FIRED[:3], "fc1: full backward hook", *FIRED[4:], NO_OTHER):
        say(explorer, words)
        if explorer.sentence.startswith("Step 15 of 35. fc1: forward hook fires"):
            assert "Right: the next to fire was fc1: forward hook." in shown(explorer)
        if "for relu" in explorer.sentence:
            assert "Not this time: the next to fire was global: forward pre-hook, for relu." in shown(explorer)
    assert "Right: no hook fires any more." in shown(explorer)
    assert shown(explorer).count("(not as predicted)") == 1
    assert shown(explorer).count("Predicted and actual") == 1
    tick(explorer, "fc2", "forward hook")  # other hooks begin a new round
    assert "Predicted and actual" not in shown(explorer)
    assert controls(explorer, widgets.Button, "fc2: forward hook")


def test_a_model_of_ones_own():
    model = nn.Sequential()
    model.add_module("<b>&", nn.Linear(2, 1))
    explorer = LifeOfACall(model, torch.ones(1, 2), hooks=[("forward hook", "<b>&")], step=-1)
    assert not controls(explorer, description="The relu is")
    places = (("global", "global"), ("the model", ""), ("<b>&", "<b>&"))
    assert tuple(control(explorer, "Hooks of").options.items()) == places
    assert "<b>" not in explorer.still_picture
    assert count_hooks(model).total() == 0
    assert all(parameter.grad is None for parameter in model.parameters())
    tick(explorer, "<b>&", "forward hook", on=False)
    assert "Registered, in this order: no hook." in shown(explorer)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("leaky",), {}, "no 'leaky' here; There are: plain, in place, raises an error"),
        ((nn.ReLU(),), {}, "needs inputs"),
        ((nn.Sequential(*[nn.ReLU() for _ in range(8)]), torch.ones(1)), {}, "9 modules; at most 8"),
        ((), {"hooks": [("hook", "fc1")]}, "no hook kind 'hook'"),
        ((), {"hooks": [("forward hook", "fc9")]}, "fc9"),
        ((), {"step": 17}, "no step 17: this call has the steps 1 to 16"),
        ((), {"step": -17}, "no step -17"),
        ((), {"step": 0}, "no step 0"),
    ],
)
def test_what_does_not_exist_is_refused(arguments, options, words):
    with pytest.raises((ValueError, KeyError), match=words):
        LifeOfACall(*arguments, **options)
