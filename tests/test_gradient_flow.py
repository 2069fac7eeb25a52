"""The explorer of gradients: hooks that are added and switched, and graphs that the learner writes."""

import ipywidgets as widgets
import pytest
from panels import control, controls, shown, use

from course_utils.explorers import GradientFlow
from course_utils.explorers.gradient_flow import OWN


def test_a_hook_is_added_switched_off_and_on_and_removed():
    explorer = GradientFlow("two paths", step=-1)
    plain, hooked = explorer.sentence, GradientFlow("two paths", hooks={"a": "times 6"}, step=-1).sentence
    use(explorer, ("Hook on", "a"), ("that does", "times 6"), "Add hook")
    assert explorer.sentence.startswith("Forward is done"), "a new hook tells nothing before backward"
    control(explorer, "Step").value = 5
    assert explorer.sentence == hooked != plain
    switch = control(explorer, "a: grad * 6, on")
    switch.value = False
    assert (explorer.sentence, switch.description) == (plain, "a: grad * 6, off")
    switch.value = True
    assert explorer.sentence == hooked
    use(explorer, "Remove all", ("Step", 5))
    assert (explorer.sentence, controls(explorer, widgets.ToggleButton)) == (plain, [])
    assert control(explorer, "Remove all").disabled
    assert "No hook is registered." in shown(explorer)


def test_another_graph_has_its_own_steps_and_tensors_is_looked_at_once_and_leaves_no_widget_behind(monkeypatch):
    explorer, look, looks = GradientFlow("two paths", hooks={"a": "times 6"}, step=-1), GradientFlow.look, []
    before, slider = len(controls(explorer)), control(explorer, "Step")
    monkeypatch.setattr(GradientFlow, "look", lambda self, **values: looks.append(values) or look(self, **values))
    control(explorer, "Graph").value = "square"
    assert (len(looks), slider.comm) == (1, None)
    assert [each.description for each in explorer.widget.children[0].children] == ["Graph", "Step"]
    assert (control(explorer, "Step").max, [*control(explorer, "Hook on").options.values()]) == (4, [*"xy", "t1", "z"])
    assert [*control(explorer, "Hook on").options] == ["y + t1 → x", "t1 → y", "z → t1", "backward → z"]
    use(explorer, ("Hook on", "z"), ("that does", "add 2"), "Add hook")
    assert (len(controls(explorer, widgets.ToggleButton)), len(controls(explorer))) == (1, before)
    use(explorer, ("Graph", OWN), ("Lines", "w = 1\nd = detach(w)\ny = w * d"))
    assert control(explorer, "Hook on").options == {"y → w": "w", "backward → y": "y"}


def watch(explorer):
    """Count as the browser does once backward plays; return the last sentence on the way to the end, and at the end."""
    play, sentences = explorer.controls["play"], [explorer.sentence]
    assert play.playing
    for number in range(1, play.max + 1):
        play.value = number
        sentences.append(explorer.sentence)
    return sentences[-2:]


@pytest.mark.parametrize(
    ("at", "guess", "steps", "reply"), [("w", "30", 4, "; it is 15."), ("b", " 3 ", 2, ", and so it is.")]
)
def test_what_is_expected_is_committed_and_arrives_step_by_step(at, guess, steps, reply):
    explorer = GradientFlow("two paths", hooks={"a": "times 6"}, step=-1)
    use(explorer, ("I expect at", at), ("gradient", guess), "Commit")
    assert explorer.sentence.startswith("Forward is done"), "backward runs after the commitment"
    before, after = watch(explorer)
    said = f" You expect {float(guess):g} at {at}"
    assert (before.endswith(f"{said}: go on step by step."), after.endswith(f"{said}{reply}")) == (True, True)
    assert explorer.controls["play"].max == explorer.controls["step"].value == steps
    control(explorer, "a: grad * 6, on").value = False
    assert "You expect" not in explorer.sentence, "with other hooks it is another question"


def test_vectors_are_expected_with_all_their_numbers_and_what_is_no_gradient_is_said():
    explorer = GradientFlow("dot product")
    for guess, reply in (
        ("[1, 2, 3, 4]", ", and so it is."),
        ("[1, 2, 3]", "; it is [1, 2, 3, 4]."),
        ("1", "; it is [1"),
    ):
        use(explorer, ("I expect at", "x"), ("gradient", guess), "Commit")
        assert reply in watch(explorer)[1]
    for guess in ("", "x", "[1, [2]]", "'1'", "None", "1j"):
        use(explorer, ("gradient", guess), "Commit")
        assert "is no gradient: type a number such as 3" in shown(explorer)
        assert not explorer.controls["play"].playing
    explorer = GradientFlow("w = 3; d = detach(w); y = w * d; dead = y * 2; out = y + 1")
    use(explorer, ("I expect at", "dead"), ("gradient", "0"), "Commit")
    assert watch(explorer)[1].endswith("You expect 0 at dead; none arrives.")


def test_lines_of_the_learner_and_hooks_that_stay_while_they_are_edited():
    explorer = GradientFlow("w = 2; h = w * w; y = h + w", hooks={"h": "times 2", "w": "print"})
    use(explorer, ("Graph", OWN), ("Lines", "w = 3\nz = w * w\ny = z + w"))
    assert [switch.description for switch in controls(explorer, widgets.ToggleButton)] == ["w: print(grad), on"]
    use(explorer, ("Graph", OWN), ("Lines", "w = 2\nx = [1, 2]\ny = sum(w * x)"))
    control(explorer, "Step").value = 4
    assert "Backward is done: w.grad = 3 and x.grad = [2, 2]." in explorer.sentence


@pytest.mark.parametrize("text", ["w = 2\ny = w *", "", "<script>alert(1)</script>"])
def test_a_bad_expression_gets_a_sentence_and_the_last_good_graph_still_works(text):
    explorer = GradientFlow("w = 2; y = w * w", step=1)
    picture = explorer.controls["picture"].value
    use(explorer, ("Graph", OWN), ("Lines", text))
    assert "That does not work yet" in shown(explorer)
    assert "<script>" not in shown(explorer)
    assert explorer.controls["picture"].value == picture
    control(explorer, "Step").value = 2
    assert "w.grad is now 4" in explorer.sentence
    assert "That does not work yet" not in shown(explorer)
    use(explorer, ("Graph", OWN), ("Lines", "w = 3\ny = w * w"))
    assert "y = 9" in explorer.sentence


def test_the_lines_are_shown_for_an_own_graph_only_and_the_table_on_demand():
    explorer = GradientFlow("two paths", hooks={"a": "times 6"}, step=-1)
    (lines,) = [box for box in controls(explorer, widgets.HBox) if control(explorer, "Lines") in box.children]
    for graph, display in (("mean", "none"), (OWN, None), ("two paths", "none")):
        control(explorer, "Graph").value = graph
        assert lines.layout.display == display
    assert "<table" not in shown(explorer)
    control(explorer, "All numbers as a table").value = True
    assert shown(explorer).count("<tr>") == 6
    assert "After step 0 of 5" in shown(explorer)
