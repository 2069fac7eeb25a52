"""The explorer of gradients: what each control does to the picture, the sentence and the problem under them."""

import ipywidgets as widgets
import pytest
from panels import control, controls, shown

from course_utils.explorers import GradientFlow
from course_utils.explorers.gradient_flow import EXAMPLES, OWN
from course_utils.explorers.html import make_problem


def slide(explorer, step):
    control(explorer, "Step").value = step


def add_hook(explorer, node, action):
    control(explorer, "Hook on").value = node
    control(explorer, "that does").value = action
    control(explorer, "Add hook").click()


def write(explorer, text):
    control(explorer, "Graph").value = OWN
    control(explorer, "Lines").value = text


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_opens_and_ends(name):
    explorer = GradientFlow(name, step=-1)
    slider = control(explorer, "Step")
    assert slider.value == slider.max
    assert "Backward is done" in explorer.sentence
    slide(explorer, 0)
    assert "Backward is done" not in explorer.sentence


def test_a_hook_is_added_switched_off_and_on_and_removed():
    explorer = GradientFlow("two paths", step=-1)
    plain = explorer.sentence
    add_hook(explorer, "a", "times 6")
    hooked = explorer.sentence
    assert "w.grad = 15 (5 without hooks) and x.grad = 12 (2 without hooks)" in hooked
    assert GradientFlow("two paths", hooks={"a": "times 6"}, step=-1).sentence == hooked
    switch = control(explorer, "a: grad * 6, on")
    switch.value = False
    assert explorer.sentence == plain
    assert switch.description == "a: grad * 6, off"
    switch.value = True
    assert explorer.sentence == hooked
    control(explorer, "Remove all").click()
    assert explorer.sentence == plain
    assert not controls(explorer, widgets.ToggleButton)


def test_hooks_run_in_the_order_in_which_they_were_added():
    explorer = GradientFlow("dot product", step=3)
    add_hook(explorer, "z", "times 2")
    add_hook(explorer, "z", "add 2")
    assert "Hook 1 returns grad * 2, that is [2, 4, 6, 8]. Hook 2 returns grad + 2, that is [4, 6, 8, 10]." in (
        explorer.sentence
    )


def test_another_graph_begins_before_backward_and_without_hooks():
    explorer = GradientFlow("two paths", hooks={"a": "times 6"}, step=-1)
    before = len(controls(explorer))
    control(explorer, "Graph").value = "square"
    assert explorer.sentence == GradientFlow("square").sentence
    assert control(explorer, "Step").max == 4
    assert control(explorer, "Hook on").options == ("x", "y", "t1", "z")
    add_hook(explorer, "z", "add 2")
    assert len(controls(explorer, widgets.ToggleButton)) == 1
    assert len(controls(explorer)) == before, "no widget is left behind"


def test_only_tensors_with_a_gradient_can_be_hooked():
    explorer = GradientFlow("w = 1; d = detach(w); y = w * d")
    assert control(explorer, "Hook on").options == ("w", "y")


def test_lines_of_the_learner_and_hooks_that_stay_while_they_are_edited():
    explorer = GradientFlow("w = 2; h = w * w; y = h + w", hooks={"h": "times 2", "w": "print"})
    write(explorer, "w = 3\nz = w * w\ny = z + w")
    assert [switch.description for switch in controls(explorer, widgets.ToggleButton)] == ["w: print(grad), on"]
    write(explorer, "w = 2\nx = [1, 2]\ny = sum(w * x)")
    slide(explorer, 4)
    assert "Backward is done: w.grad = 3 and x.grad = [2, 2]." in explorer.sentence


@pytest.mark.parametrize("text", ["w = 2\ny = w * q", "w = 2\ny = w *", "", "<script>alert(1)</script>"])
def test_a_bad_expression_gets_a_sentence_and_the_picture_stays(text):
    explorer = GradientFlow("w = 2; y = w * w", step=1)
    picture = explorer.still_picture
    write(explorer, text)
    assert "That does not work yet" in shown(explorer)
    assert "<script>" not in shown(explorer)
    assert explorer.still_picture == picture
    slide(explorer, 2)  # the last good graph still works, and the problem is over
    assert "w.grad is now 4" in explorer.sentence
    assert make_problem("") in shown(explorer)
    assert "That does not work yet" not in shown(explorer)
    write(explorer, "w = 3\ny = w * w")
    assert "y = 9" in explorer.sentence


def test_the_lines_are_shown_for_an_own_graph_only():
    explorer = GradientFlow("two paths")
    lines = next(box for box in controls(explorer, widgets.HBox) if any("Lines" in str(c) for c in box.children))
    assert lines.layout.display == "none"
    control(explorer, "Graph").value = OWN
    assert lines.layout.display is None
    control(explorer, "Draw this graph").click()
    control(explorer, "Graph").value = "mean"
    assert lines.layout.display == "none"


def test_the_table_is_shown_on_demand():
    explorer = GradientFlow("two paths", hooks={"a": "times 6"}, step=-1)
    assert "<table" not in shown(explorer)
    control(explorer, "All numbers as a table").value = True
    assert shown(explorer).count("<tr>") == 6
    slide(explorer, 0)
    assert "After step 0 of 5" in shown(explorer)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"graph": "two path"}, "two paths"),
        ({"graph": "y = q * 2"}, "q"),
        ({"hooks": {"q": "print"}}, "q"),
        ({"hooks": {"a": "times 5"}}, "times 5"),
        ({"step": 9}, "0 to 5"),
    ],
)
def test_a_wrong_beginning_raises(arguments, says):
    with pytest.raises(ValueError, match=says):
        GradientFlow(**arguments)
