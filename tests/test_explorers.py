"""The explorer of gradients: what each control does to the picture, the sentence and the problem under them."""

import ipywidgets as widgets
import pytest

from course_utils.explorers import (
    GradientFlow,
    make_paragraph,
    make_problem,
    make_table,
)
from course_utils.explorers.gradient_flow import OWN
from course_utils.explorers.graph import (
    EXAMPLES,
    GraphError,
    example,
    parse,
)
from course_utils.explorers.stories import backward_story

VIEW = "application/vnd.jupyter.widget-view+json"


def controls(explorer, kind, description=None):
    """All widgets of a kind in the panel, by what a learner reads on them."""
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
    """Everything that the panel says: picture, sentence, problem, table."""
    return "".join(widget.value for widget in controls(explorer, widgets.HTML))


def slide(explorer, step):
    control(explorer, widgets.IntSlider, "Step").value = step


def add_hook(explorer, node, action):
    control(explorer, widgets.Dropdown, "Hook on").value = node
    control(explorer, widgets.Dropdown, "that does").value = action
    control(explorer, widgets.Button, "Add hook").click()


def write(explorer, text):
    control(explorer, widgets.Dropdown, "Graph").value = OWN
    control(explorer, widgets.Textarea, "Lines").value = text


def test_it_opens_where_a_lesson_says():
    explorer = GradientFlow("two paths", hooks={"a": "times 6"}, step=4)
    story = backward_story(example("two paths"), {"a": "times 6"}, 4)
    assert explorer.sentence == story.sentence
    assert story.picture in shown(explorer)
    assert make_paragraph(story.sentence) in shown(explorer)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_opens_and_ends(name):
    explorer = GradientFlow(name, step=-1)
    slider = control(explorer, widgets.IntSlider, "Step")
    assert slider.value == slider.max
    assert "Backward is done" in explorer.sentence


def test_the_slider_goes_through_backward():
    explorer = GradientFlow("two paths")
    for step in (5, 0, 3, 4):
        slide(explorer, step)
        assert explorer.sentence == backward_story(example("two paths"), (), step).sentence


def test_a_hook_is_added_switched_off_and_on_and_removed():
    explorer = GradientFlow("two paths", step=-1)
    plain = explorer.sentence
    add_hook(explorer, "a", "times 6")
    hooked = explorer.sentence
    assert "w.grad = 15 (5 without hooks) and x.grad = 12 (2 without hooks)" in hooked
    switch = control(explorer, widgets.ToggleButton, "a: grad * 6, on")
    switch.value = False
    assert explorer.sentence == plain
    assert switch.description == "a: grad * 6, off"
    switch.value = True
    assert explorer.sentence == hooked
    control(explorer, widgets.Button, "Remove all").click()
    assert explorer.sentence == plain
    assert not controls(explorer, widgets.ToggleButton)


def test_hooks_run_in_the_order_in_which_they_were_added():
    explorer = GradientFlow("dot product", step=3)
    add_hook(explorer, "z", "times 2")
    add_hook(explorer, "z", "add 2")
    assert "Hook 1 returns grad * 2, that is [2, 4, 6, 8]. Hook 2 returns grad + 2, that is [4, 6, 8, 10]." in (
        explorer.sentence
    )


def test_a_fifth_hook_on_one_tensor_is_refused_in_words():
    explorer = GradientFlow("two paths", hooks={"a": ["print"] * 4})
    before = explorer.sentence
    add_hook(explorer, "a", "print")
    assert make_problem("a already has 4 hooks: remove one first.") in shown(explorer)
    assert explorer.sentence == before
    assert len(controls(explorer, widgets.ToggleButton)) == 4


def test_another_graph_begins_before_backward_and_without_hooks():
    explorer = GradientFlow("two paths", hooks={"a": "times 6"}, step=-1)
    control(explorer, widgets.Dropdown, "Graph").value = "square"
    assert explorer.sentence == backward_story(example("square"), (), 0).sentence
    assert control(explorer, widgets.IntSlider, "Step").max == 4
    assert control(explorer, widgets.Dropdown, "Hook on").options == ("x", "y", "t1", "z")
    add_hook(explorer, "z", "add 2")
    assert len(controls(explorer, widgets.ToggleButton)) == 1


def test_only_tensors_with_a_gradient_can_be_hooked():
    explorer = GradientFlow("w = 1; d = detach(w); y = w * d")
    assert control(explorer, widgets.Dropdown, "Hook on").options == ("w", "y")


def test_an_expression_of_the_learner():
    explorer = GradientFlow("two paths")
    write(explorer, "w = 2\nx = [1, 2]\ny = sum(w * x)")
    slide(explorer, 4)
    assert "Backward is done: w.grad = 3 and x.grad = [2, 2]." in explorer.sentence


def test_hooks_stay_while_the_learner_edits():
    explorer = GradientFlow("w = 2; h = w * w; y = h + w", hooks={"h": "times 2", "w": "print"})
    write(explorer, "w = 3\nz = w * w\ny = z + w")
    assert [switch.description for switch in controls(explorer, widgets.ToggleButton)] == ["w: print(grad), on"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("w = 2\ny = w * q", "There is no tensor called q here; so far there are w."),
        ("w = 2\ny = w *", "cannot be read"),
        ("", "The expression is empty"),
        ("y = __import__('os').system('true')", "uses a dot"),
        ("<script>alert(1)</script>", "&lt;script&gt;"),
    ],
)
def test_a_bad_expression_gets_a_sentence_and_the_picture_stays(text, says):
    explorer = GradientFlow("w = 2; y = w * w", step=1)
    picture = explorer.still_picture
    write(explorer, text)
    assert says in shown(explorer)
    assert "<script>" not in shown(explorer)
    assert explorer.still_picture == picture
    slide(explorer, 2)  # the last good graph still works, and the problem is over
    assert "w.grad is now 4" in explorer.sentence
    assert "That does not work yet" not in shown(explorer)
    write(explorer, "w = 3\ny = w * w")
    assert "y = 9" in explorer.sentence


def test_the_lines_are_shown_for_an_own_graph_only():
    explorer = GradientFlow("two paths")
    lines = next(box for box in controls(explorer, widgets.HBox) if any("Lines" in str(c) for c in box.children))
    assert lines.layout.display == "none"
    control(explorer, widgets.Dropdown, "Graph").value = OWN
    assert lines.layout.display is None
    control(explorer, widgets.Dropdown, "Graph").value = "mean"
    assert lines.layout.display == "none"


def test_a_graph_from_parse_comes_with_its_numbers():
    explorer = GradientFlow(parse("y = w * x", w=0.1, x=2))
    assert control(explorer, widgets.Textarea, "Lines").value == "w = 0.1\nx = 2\ny = w * x"
    control(explorer, widgets.Button, "Draw this graph").click()
    assert "y = 0.2" in explorer.sentence


def test_the_table_is_shown_on_demand():
    explorer = GradientFlow("two paths", hooks={"a": "times 6"}, step=-1)
    assert "<table" not in shown(explorer)
    control(explorer, widgets.Checkbox, "All numbers as a table").value = True
    assert "<table" in shown(explorer)
    assert shown(explorer).count("<tr>") == 6
    slide(explorer, 0)
    assert "After step 0 of 5" in shown(explorer)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"graph": "two path"}, "Did you mean two paths"),
        ({"graph": 3}, "3 is no graph"),
        ({"graph": "y = q * 2"}, "no tensor called q"),
        ({"hooks": {"q": "print"}}, "no tensor 'q'"),
        ({"hooks": {"a": "times 5"}}, "no hook 'times 5'"),
        ({"step": 9}, "steps 0 to 5"),
    ],
)
def test_a_wrong_beginning_raises(arguments, says):
    with pytest.raises(GraphError, match=says):
        GradientFlow(**arguments)


def test_every_control_has_a_label():
    explorer = GradientFlow("w = 1; y = w * w", hooks={"w": "print"})
    kinds = (
        widgets.Dropdown,
        widgets.IntSlider,
        widgets.Textarea,
        widgets.Button,
        widgets.ToggleButton,
        widgets.Checkbox,
    )
    found = controls(explorer, kinds)
    assert len(found) == 10  # 3 dropdowns, slider, text, 3 buttons, hook switch, checkbox
    assert all(widget.description for widget in found)


def test_nothing_is_printed_or_captured():
    assert not controls(GradientFlow("two paths"), widgets.Output)


def test_what_a_notebook_stores_is_the_same_every_time():
    flows = [GradientFlow("two paths", hooks={"a": "times 6"}, step=4) for _ in range(2)]
    (first, _), (second, _) = (flow._repr_mimebundle_() for flow in flows)
    view = first.pop(VIEW)
    assert view["model_id"] != second.pop(VIEW)["model_id"]
    assert first == second
    assert first["text/plain"] == backward_story(example("two paths"), {"a": "times 6"}, 4).sentence
    assert "background:#ffffff" in first["image/svg+xml"]
    assert "currentColor)" not in first["image/svg+xml"]


def test_a_change_of_graph_leaves_no_widgets_behind():
    explorer = GradientFlow("two paths")
    before = len(controls(explorer, widgets.Widget))
    for name in ("mean", "square", "two paths"):
        control(explorer, widgets.Dropdown, "Graph").value = name
        slide(explorer, 2)
    assert len(controls(explorer, widgets.Widget)) == before


def test_words_are_escaped():
    assert "<b>x" not in make_paragraph("<b>x")
    assert "<b>x" not in make_problem("<b>x")
    assert "<b>x" not in make_table(["<b>x"], [["<b>x", "<b>x"]], "<b>x")
    assert make_problem("") == ""
