"""The explorer of a call: its pictures and sentences, each of its controls, and the guesses."""

import xml.etree.ElementTree as ET

import ipywidgets as widgets
import pytest
import torch
from panels import control, controls, shown, use
from torch import nn

from course_utils.explorers import LifeOfACall
from course_utils.explorers.life_of_a_call import CallPicture, choose_stops, list_parts, show_source, tell_moment
from course_utils.hooks.call import HOOK_KINDS, life_of_a_call
from course_utils.vision.toys import RELUS, SmallNet

HOOKS = [("forward hook", "fc1"), ("full backward hook", "fc1"), ("forward pre-hook", "global")]
GLOBAL = "global: forward pre-hook"  # fires for the model, fc1, relu and fc2
FIRED = [GLOBAL, GLOBAL, "fc1: forward hook", GLOBAL, GLOBAL, "fc1: full backward hook"]


def call(relu="plain", hooks=HOOKS):
    model = SmallNet(RELUS[relu])
    return model, life_of_a_call(model, torch.ones(1, 3, requires_grad=True), hooks)


def lines_of(moments, place, model, hooks):
    """The texts of a picture, in the order in which they are drawn."""
    svg = ET.fromstring(CallPicture(moments, place, model, hooks).draw("words"))
    texts = [text.text or "" for text in svg.findall(".//{*}text")]
    assert (svg.get("role"), svg.find("{*}desc").text) == ("img", "words")
    assert svg.get("aria-label").startswith(f"{texts[0]}. ")
    return texts


@pytest.mark.parametrize("relu", RELUS)
@pytest.mark.parametrize("hooks", [HOOKS, [("legacy backward hook", "fc2"), ("always-called forward hook", "")]])
def test_every_moment_has_a_picture_a_sentence_and_the_source_of_the_installed_torch(relu, hooks):
    model, moments = call(relu, hooks)
    every = choose_stops(moments, skipped=True)
    assert every == list(range(len(moments)))
    assert choose_stops(moments) == [place for place in every if moments[place].taken]
    for place, moment in enumerate(moments):
        sentence, source, part = tell_moment(moments, place, every), show_source(moment), moment.part
        assert sentence.startswith(f"Step {place + 1} of {len(moments)}. ")
        assert sentence.endswith(f"Hooks fired so far: {len(moment.fired)}.")
        assert lines_of(moments, place, model, hooks)
        if part is None:
            assert "No line of the call is running" in source
        else:
            assert f"lines {part.first} to {part.last} of its file, in {part.function} of your torch, " in source
            assert torch.__version__ in source
            assert (source.count(f"<b>► {moment.line}  "), source.count("►")) == (1, 1)


def test_the_parts_of_a_call_show_what_became_of_each():
    model, moments = call()
    (at,) = [i for i, m in enumerate(moments) if m.module == "fc1" and m.part and m.part.name == "forward"]
    lines = lines_of(moments, at, model, HOOKS)
    start = lines.index("The call of fc1") + 1
    signs, names = zip(*(line.split(" ", 1) for line in lines[start : start + 14]), strict=True)
    assert (names, "".join(signs)) == (list_parts(), "●●--●●●●►○○○○○")
    assert {"fc1  ◄ here", "○ forward hook", "Arguments: ([[1, 1, 1]],)"} <= set(lines)
    assert "● forward pre-hook 2\u00d7" in lines  # global: the model's and fc1's
    assert lines[-3:-1] == ["1. global: forward pre-hook, for the model", "2. global: forward pre-hook, for fc1"]
    said = CallPicture(moments, at, model, HOOKS).draw("words", lists=False)
    start = "Arguments: ([[1, 1, 1]],). global: all modules: forward pre-hook 2\u00d7, done. the model: no hook."
    assert f"{start} fc1: forward hook, waits; full backward hook, waits. relu: no hook. fc2: no hook." in said


@pytest.mark.parametrize(
    ("relu", "hooks", "said", "lines"),
    [
        ("plain", HOOKS, "fc1: full backward hook fires", ["The hook sees: (([[22, 26, 30]],), ([[1, 0, 3, 0]],))",
         "The backward pass", *(f"● gradient of the output of {name}" for name in ("fc2", "the model", "relu", "fc1")),
         "► fc1: full backward hook"]),
        ("raises an error", [("always-called forward hook", "")], "ValueError leaves the call: this relu always raises",
         ["The exception leaves the call", "● forward hook,", "    always", "● after an exception"]),
        ("in place", [("full backward hook", "fc1")], "Output 0 of BackwardHookFunction is a view and is being", []),
        ("plain", [(kind, "global") for kind in HOOK_KINDS[:5]], "", ["Hooks fired so far", "… 5 earlier", "6. "]),
    ],
)  # fmt: skip
def test_the_last_moment(relu, hooks, said, lines):
    model, moments = call(relu, hooks)
    last = len(moments) - 1
    drawn = iter(lines_of(moments, last, model, hooks))
    assert said in tell_moment(moments, last, [last])
    assert all(any(each.startswith(line) for each in drawn) for line in lines), "in this order"


def test_the_absence_of_a_backward_pass_is_always_shown_and_long_values_are_cut():
    model = SmallNet()
    moments = life_of_a_call(model.requires_grad_(False), torch.ones(1, 3))
    stops, last = choose_stops(moments), len(moments) - 1
    assert stops[-1] == last
    assert "no backward pass" in tell_moment(moments, last, stops)
    assert lines_of(moments, last, model, [])[0] == "There is no backward pass"
    moments = life_of_a_call(nn.Identity(), (torch.full((8,), 0.123), torch.full((8,), 0.456)))
    values = [line for line in lines_of(moments, 0, nn.Identity(), []) if "0.1" in line or "0.4" in line]
    assert (len(" ".join(reversed(values))), values[0][-1], max(map(len, values)) < 63) == (104, "…", True)


def tick(explorer, place, kind, on=True):
    control(explorer, "Hooks of").value = place
    control(explorer, f"{place or 'model'}: {kind}", widgets.Checkbox).value = on


def test_it_opens_where_a_lesson_says_saves_nothing_of_the_release_and_steps_between_its_ends():
    explorer = LifeOfACall(hooks=HOOKS, step=-1)
    use(explorer, "Back", "Next", "Next")
    assert explorer.sentence.startswith("Step 35 of 35. fc1: full backward hook fires")
    explorer = LifeOfACall(hooks=HOOKS, step=13)
    assert explorer.sentence == (
        "Step 13 of 35. The call of fc1: forward. Run forward itself. Arguments: ([[1, 1, 1]],). Hooks fired so far: 2."
    )
    assert not any(word in shown(explorer) + explorer.still_picture for word in (torch.__version__, "_call_impl"))
    box = control(explorer, "Also stop at parts that are skipped")
    box.value = True  # the moment is kept
    assert "The call of fc1: forward. Run forward itself." in explorer.sentence
    assert f"in Module._call_impl of your torch, {torch.__version__}" in shown(explorer)
    use(explorer, ("Step", 2), "Next")
    assert "The call of the model: fast path, skipped, because its condition does not hold." in explorer.sentence
    box.value = False
    assert explorer.sentence.startswith("Step 2 of 35. The call of the model: choose forward.")
    use(explorer, "Back", "Back")
    assert explorer.sentence.startswith("Step 1 of 35. ")


def test_boxes_register_and_remove_hooks_and_what_torch_refuses_is_undone():
    explorer = LifeOfACall(step=5)
    for place, kind in (("fc1", "forward hook"), ("", "full backward hook"), ("global", "forward pre-hook")):
        tick(explorer, place, kind)
        assert explorer.sentence.startswith("Step 1 of ")
    assert "1. fc1: forward hook, 2. the model: full backward hook, 3. global: forward pre-hook." in shown(explorer)
    tick(explorer, "fc1", "forward hook", on=False)
    sentence = explorer.sentence
    for place in ("fc1", "", "global"):  # to look at another place changes no hook
        control(explorer, "Hooks of").value = place
        assert explorer.sentence == sentence
    boxes = {box.description: box.value for box in controls(explorer, widgets.Checkbox)}
    assert (boxes["global: forward pre-hook"], boxes["global: forward hook"]) == (True, False)
    tick(explorer, "", "legacy backward hook")
    assert "torch refuses this hook: Cannot use both regular backward hooks and full backward hooks" in shown(explorer)
    assert not control(explorer, "model: legacy backward hook").value
    assert "1. the model: full backward hook, 2. global: forward pre-hook." in shown(explorer)
    tick(explorer, "fc2", "legacy backward hook")
    assert "torch refuses" not in shown(explorer)
    use(explorer, "Remove all")
    assert "Registered, in this order: no hook." in shown(explorer)
    assert control(explorer, "Remove all").disabled
    assert not control(explorer, "fc2: legacy backward hook").value


def test_predictions_are_compared_with_the_actual_order():
    explorer = LifeOfACall(hooks=HOOKS)
    said = [*FIRED[:3], "fc1: full backward hook", *FIRED[4:], "no hook any more", "fc1: forward hook"]
    models = ["global: forward pre-hook, for " + name for name in ("the model", "fc1", "relu", "fc2")]
    right = [*models[:2], "fc1: forward hook", *models[2:], "fc1: full backward hook"]
    for place, words in enumerate(said):
        use(explorer, words)
        actual = f"the next to fire was {right[place]}." if place < 6 else "no hook fires any more."
        assert f"{'Not this time' if place in (3, 7) else 'Right'}: {actual}" in shown(explorer)
    assert explorer.sentence.startswith("Step 35 of 35. ")
    assert (shown(explorer).count("(not as predicted)"), shown(explorer).count("Predicted and actual")) == (2, 1)
    tick(explorer, "fc2", "forward hook")  # other hooks begin a new round
    assert "Predicted and actual" not in shown(explorer)
    assert controls(explorer, widgets.Button, "fc2: forward hook")


def test_a_model_of_ones_own():
    model = nn.Sequential()
    model.add_module("<b>&", nn.Linear(2, 1))
    explorer = LifeOfACall(model, torch.ones(1, 2), hooks=[("forward hook", "<b>&")])
    assert not controls(explorer, description="The relu is")
    assert control(explorer, "Hooks of").options == {"global": "global", "the model": "", "<b>&": "<b>&"}
    assert "<b>" not in explorer.still_picture
