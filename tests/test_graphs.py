"""The graphs of the tensor-hook lessons and their explorer: numbers by torch, mistakes in Python's words, pictures."""

import re
import xml.etree.ElementTree as ET

import ipywidgets as widgets
import pytest
import torch
from panels import control, controls, shown, use

from course_utils.explorers import GradientFlow
from course_utils.explorers.gradient_flow import OWN, Backward, draw, tell
from course_utils.explorers.graph import ACTIONS, EXAMPLES, FUNCTIONS, format_tensor, parse, run_backward
from course_utils.root import CourseError

pytestmark = pytest.mark.filterwarnings("error::UserWarning")  # torch's, about the .grad of a result, is not shown
MORE = {
    "chain": "w=1;b=w*2;c=b*2;d=c*2;e=d*2;f=e*2;g=f*2;h=g*2;i=h*w;j=i*2;k=j*b;l=k*w",
    "recurrent": "w=2; x=0.5; h1=tanh(w*x);h2=tanh(w*h1);loss=(h2-1)**2",
    "layer": "W=[[1, -2], [1/3, 4]]; x=[1, 2]; b=[0.1, -3.14159265]; y=sum(relu(W@x+b))",
    "softmax": "x=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]; p=exp(x);q=sum(p);r=p/q;y=sum(r*x)",
    "matrix": "a=1; b=2; c=3; d=[[1, 2, 3, 4], [5, 6, 7, 8]]; y=mean(d)+a*b*c",
    "long names": "long_name_01=[0.12345, -0.98765]; long_name_02 = long_name_01 @ long_name_01",
    "dead end": "w=3; d=detach(w); y=w*d; dead=y*2; out=y+1",
}
GRAPHS = {name: parse(text) for name, text in (EXAMPLES | MORE).items()}
TWO, DOT, SQUARE = GRAPHS["two paths"], GRAPHS["dot product"], GRAPHS["square"]
SIX = {"a": "times 6"}


def tabulate(stopped):
    return {name: stopped.row(name, stopped.past.get(name)) for name in stopped.graph.nodes}


def steps(graph, hooks=()):
    return {step.node: step for step in run_backward(graph, hooks)}


def grads(graph, hooks=()):
    """The `.grad` of every tensor that has one at the end."""
    return {name: step.grad.tolist() for name, step in steps(graph, hooks).items() if step.grad is not None}


def test_what_each_action_does():
    graph = parse("x = [1, 1]; v = [-1, 2]; h = x * 1; y = h @ v")
    expected = {"print": [-1, 2], "times 2": [-2, 4], "times 6": [-6, 12], "add 2": [1, 4], "clamp at 0": [0, 2]}
    expected |= {"zero": [0, 0], "flip sign": [1, -2], "retain_grad": [-1, 2]}
    assert {action: grads(graph, iter([("h", action)]))["x"] for action in ACTIONS} == expected


@pytest.mark.parametrize("name", GRAPHS)
def test_numbers_equal_those_of_plain_torch(name):
    """The same lines, run on tensors in the place of values."""
    graph, tensors = GRAPHS[name], {}
    for line in (EXAMPLES | MORE)[name].split(";"):
        target, formula = (part.strip() for part in line.split("=", 1))
        value = eval(formula, vars(torch), tensors)
        leaf = not isinstance(value, torch.Tensor)
        tensors[target] = torch.tensor(value, dtype=torch.float32, requires_grad=True) if leaf else value
    tensors[graph.result].backward()
    arrived = steps(graph)
    for target, tensor in tensors.items():
        torch.testing.assert_close(graph.nodes[target].tensor, tensor)
        if graph.nodes[target].kind == "leaf":
            torch.testing.assert_close(arrived[target].grad, tensor.grad, rtol=0, atol=0)
    for step in run_backward(graph)[1:]:
        summed = sum(grad.sum_to_size(step.arrived.shape) for _, grad in step.parts)
        torch.testing.assert_close(summed, step.arrived)


def test_it_works_with_gradients_switched_off():
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            graph = parse("w = [1]; y = w * w")
            assert grads(graph) == {"w": [2]}
        assert grads(graph) == {"w": [2]}


def test_lines_are_python_and_results_without_a_name_get_one():
    graph = parse("\n  w = 1   # one; and no more\n  unused = 2\n  t1 = w + 1\n\n  z = t1; y = (w * 2 + z) ** 2\n")
    assert list(graph.nodes) == ["w", "t1", "t2", "t3", "y"]
    assert [value.formula for value in graph.nodes.values()] == ["", "w + 1", "w * 2", "t2 + t1", "t3 ** 2"]
    assert graph.nodes["t3"].inputs == ("t2", "t1")
    assert parse("w = 2; y = w * w; y + w").result == "t1"
    assert parse("w = 2; y = w * w; z = w + y; x = y").result == "y"


@pytest.mark.parametrize(
    ("formula", "value", "gradient"),
    [
        ("+w - -w", 4, 2),
        ("2 ** w", 4, 2.7726),
        ("clamp(w, min=0)", 2, 1),
        ("dot(w * k, k)", 20, 10),
        ("(w * k).mean()", 4, 2),
    ],
)
def test_operators_and_functions(formula, value, gradient):
    graph = parse(f"w = 2; k = [1, 3]; y = {formula}")
    assert (graph.nodes["y"].tensor.item(), grads(graph)["w"]) == pytest.approx((value, gradient), rel=1e-4)
    assert FUNCTIONS.keys() <= vars(torch).keys()


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("y = w +", "Line 2 does not work:\n    y = w +\n           ^\nSyntaxError: invalid syntax"),
        ("val = w + 1\ny = vel * w", "Line 3 does not work:\n    y = vel * w\n.*. Did you mean: 'val'?"),
        ("y = w.summ()", "no attribute 'summ'. Did you mean: 'sum'?"),
        ("y = v * m", "RuntimeError: The size of tensor a (2) must match the size of tensor b (3)"),
        ("y = __import__('os')", "name '__import__' is not defined"),
        ("w = 3", "NameError: w already names a tensor: choose a new name"),
        ("y = v * 2", "The result y has shape (2,); backward starts from a single number: end with sum(y)"),
        ("", "The last line must compute a tensor with a gradient"),
        (" + ".join(["y = w"] + ["w"] * 12), "The graph has 13 tensors; at most 12 can be drawn"),
        ("a = [1, 2, 3, 4, 5, 6, 7, 8, 9]; y = sum(a)", "a has 9 elements: use between 1 and 8"),
        ("a = []; y = sum(a)", "a has 0 elements"),
    ],
)
def test_mistakes_get_pythons_own_message(lines, says):
    with pytest.raises(CourseError, match=re.escape(says).replace(r"\.\*", ".*")):
        parse(f"w = 1; x = 2; v = [1, 2]; m = [1, 2, 3]\n{lines}" if lines else " \n")


def test_numbers_as_text():
    numbers = torch.tensor([[-0.0, 3, 1.5, 999999], [1e6, 1 / 3, -1e-5, float("inf")]])
    assert format_tensor(numbers) == "[[0, 3, 1.5, 999999], [1e+06, 0.3333, -1e-05, inf]]"


@pytest.mark.parametrize(
    ("graph", "hooks", "step", "facts"),
    [
        (TWO, SIX | {"y": ["print", "add 2"]}, 0, ["y = 6", "a waits grad * 6.", "y wait print(grad) and grad + 2."]),
        (TWO, SIX, 1, ["Step 1 of 5: ", "begins at y, with the gradient 1.", "y.grad stays None."]),
        (SQUARE, {"z": "add 2", "y": "add 2"}, 3, ["-12 flows from t1 back to y", "that is -10.", "stays None."]),
        (TWO, SIX, 4, ["3 from b and 12 from a add up to 15", "w.grad is now 15 (5 without hooks)."]),
        (TWO, SIX, -1, ["Backward is done: w.grad = 15 (5 without hooks) and x.grad = 12 (2 without hooks)."]),
        (DOT, {"z": ["times 2", "retain_grad", "print"]}, 3, ["[1, 2, 3, 4] flows from o back to z.", "Hook 1 returns",
         "that is [2, 4, 6, 8].", "Hook 2 prints [2, 4, 6, 8]", "z.grad is [2, 4, 6, 8], the gradient after all"]),
        (DOT, {"z": "retain_grad"}, 3, ["back to z. retain_grad keeps it: z.grad is [1, 2, 3, 4]."]),
        (TWO, {"w": "retain_grad"}, 4, ["2 from a add up to 5", "w.grad is now 5. retain_grad changes nothing"]),
        (parse("w = 1; y = w / 0"), (), -1, ["w.grad = inf.", "y and the gradient of w; a division by 0"]),
    ],
)  # fmt: skip
def test_the_story_of_a_step_has_its_facts_in_this_order(graph, hooks, step, facts):
    assert re.search(".*".join(map(re.escape, facts)), tell(Backward(graph, hooks, step)))


def test_cards_show_only_gradients_that_have_arrived():
    assert tabulate(Backward(TWO, SIX))["w"] == ("w", "leaf", "1", "15", "5", "15")
    assert tabulate(Backward(GRAPHS["dead end"]))["d"] == ("d", "no gradient", "3", "none", "none", "None")
    assert tabulate(Backward(GRAPHS["dead end"]))["dead"] == ("dead", "result", "18", "none", "none", "None")
    for step in range(6):
        stopped = Backward(TWO, SIX, step - 6)  # steps count from the end too
        shown = [name for name, row in tabulate(stopped).items() if row[3] != "not yet"]
        assert sorted(shown) == sorted([*steps(TWO)][:step])
        assert draw(stopped).count(">not yet<") == 5 - step


def read_picture(picture):
    """The cards and hook marks as (left, top, right, bottom), the other parts of the graph, and where it begins."""
    group = ET.fromstring(picture).find("{*}g")
    dx, dy = (float(part) for part in re.findall(r"[-\d.]+", group.get("transform")))
    sides = [[float(rect.get(each)) for each in ("x", "y", "width", "height")] for rect in group.findall("{*}rect")]
    return [(x + dx, y + dy, x + dx + width, y + dy + height) for x, y, width, height in sides], group, dx, dy


def check_picture(picture):
    """Nothing overlaps, text stays in its card, each line leads from the side of a card to the side of another.

    And type is large enough on a page of 800 pixels; a wider picture scrolls.
    """
    boxes, group, dx, dy = read_picture(picture)
    width, height = map(float, ET.fromstring(picture).get("viewBox").split()[2:])
    for number, (left, top, right, bottom) in enumerate(boxes):
        assert 0 <= left < right <= width
        assert 30 <= top < bottom <= height - 20
        for other in boxes[:number]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
    for text in group.findall("{*}text"):
        if "monospace" in text.get("style") and text.get("text-anchor") is None:
            x, y = float(text.get("x")) + dx, float(text.get("y")) + dy
            end = x + len(text.text) * int(re.search(r"(\d+)px", text.get("style"))[1]) * 0.602
            assert any(box[0] < x and end < box[2] and box[1] < y < box[3] for box in boxes), text.text
    for path in group.findall("{*}path"):
        if " C" in path.get("d"):
            x, y, *_, end_x, end_y = (float(each) for each in re.findall(r"-?[\d.]+", path.get("d")))
            assert any(abs(x + dx - box[2]) < 0.2 and box[1] < y + dy < box[3] for box in boxes)
            assert any(abs(end_x + dx - box[0]) < 0.2 and box[1] < end_y + dy < box[3] for box in boxes)
    least = float((re.search(r"min-width:([\d.]+)px", picture) or [0, 0])[1])
    assert min(int(size) for size in re.findall(r"(\d+)px var", picture)) * max(min(800, width), least) / width >= 11.9


@pytest.mark.parametrize("name", GRAPHS)
def test_nothing_in_a_picture_overlaps_and_nothing_moves(name):
    graph = GRAPHS[name]
    for hooks in ((), {node: ["print", "times 2", "retain_grad"] for node in graph.hookable[::2]}):
        pictures = [draw(Backward(graph, hooks, step)) for step in range(len(run_backward(graph)) + 1)]
        check_picture(pictures[0])
        check_picture(pictures[-1])
        assert len({str(read_picture(picture)[0]) for picture in pictures}) == 1


def test_hooks_sit_where_the_arrows_into_a_card_have_met_and_the_first_is_met_first():
    group = read_picture(draw(Backward(TWO, {"w": ["times 2", "print", "retain_grad"]}, 0)))[1]
    ways = [path.get("d").partition(" C")[0] for path in group.findall("{*}path") if " C" in path.get("d")]
    assert sorted(way.count("M") for way in ways) == [1, 1, 1, 3, 3]  # a gap in the line for each mark
    assert len(set(ways)) == len(ways) - 1  # from a and from b, the same last piece
    x = {text.text: float(text.get("x")) for text in group.findall("{*}text")}
    assert x["leaf, retain_grad"] < x["print"] < x["\N{MULTIPLICATION SIGN}2"]


def test_composite_operations_hand_on_one_part():
    graph = parse("x = [1, 2]; M = [[1, 2], [3, 4]]; u = 2 / x; m = x @ M; y = sum(u) + sum(m) * 1")
    assert [(sender, grad.tolist()) for sender, grad in steps(graph)["x"].parts] == [("m", [3, 7]), ("u", [-2, -0.5])]


def test_the_picture_says_what_it_shows():
    stopped = Backward(TWO, SIX, 3)  # y = (1 + 2)(1 + 1); so far y, b and a have their gradients
    root = ET.fromstring(draw(stopped))
    texts = [text.text for text in root.findall(".//{*}text")]
    assert (root.get("role"), root.find("{*}desc").text) == ("img", tell(stopped))
    title, *cards = root.get("aria-label").removesuffix(".").split(". ")
    assert (root.find("{*}title").text, title) == ("Step 3 of 5: the gradient reaches a",) * 2
    assert cards == [stopped.describe(name) for name in "wxaby"]
    assert cards[0] == "w, leaf: value 1, gradient not yet, .grad None"
    assert cards[2] == "a = w + x: value 3, gradient 12 (2 without hooks), .grad None; hooks: times 6"
    assert {"12 (was 2)", "a = w + x", "\N{MULTIPLICATION SIGN}6"} <= set(texts)
    assert texts.count("leaf") == 3  # w, x and the legend
    texts = [
        text.text for text in ET.fromstring(draw(Backward(GRAPHS["matrix"], {"d": "flip sign"}))).iter() if text.text
    ]
    at = texts.index("[[1, 2, 3, 4],")
    assert texts[at + 1 : at + 5] == [" [5, 6, 7, 8]]", "gradient", "[[-0.125, -0.125,", " -0.125, -0.125],"]
    assert "(was [[0.125, 0.125," in texts


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
    assert [each.description for each in explorer.widget.children[0].children] == ["Graph", "Step", "Back", "Next"]
    assert (control(explorer, "Step").max, [*control(explorer, "Hook on").options.values()]) == (4, [*"xy", "t1", "z"])
    assert [*control(explorer, "Hook on").options][::3] == ["x (gradient from y + t1)", "z (backward begins here)"]
    use(explorer, ("Hook on", "z"), ("that does", "add 2"), "Add hook")
    assert (len(controls(explorer, widgets.ToggleButton)), len(controls(explorer))) == (1, before)
    use(explorer, ("Graph", OWN), ("Lines", "w = 1\nd = detach(w)\ny = w * d"))
    assert control(explorer, "Hook on").options == {"w (gradient from y)": "w", "y (backward begins here)": "y"}


def verdicts(explorer):
    """What is said after each step to the end of backward."""
    said = []
    for _ in range(explorer.controls["step"].max):
        use(explorer, "Next")
        said.append(re.sub("<.*?>", "", explorer.controls["verdict"].value).lstrip("\N{CHECK MARK}\N{BALLOT X} "))
    return said


@pytest.mark.parametrize(
    ("at", "guess", "steps", "reply"),
    [
        ("w", "30", 4, "You expected 30 at w, but its gradient is 15. It receives 3 from b and 12 from a."),
        ("b", " 3 ", 2, "You are right: you expected 3 at b, and its gradient is 3."),
    ],
)
def test_what_is_expected_stays_beside_what_arrives_and_is_judged_then(at, guess, steps, reply):
    explorer = GradientFlow("two paths", hooks={"a": "times 6"}, step=-1)
    use(explorer, ("I expect at", at), ("gradient", guess))
    assert explorer.sentence.startswith("Step 5"), "every key tells its value, and nothing is drawn"
    control(explorer, "gradient")._handle_custom_msg({"event": "submit"}, [])  # Enter
    assert explorer.sentence.startswith("Forward is done"), "backward runs after the commitment"
    waits = f"You expect {float(guess):g} at {at}. Press Next and follow the gradient until it gets there."
    assert verdicts(explorer) == [waits] * (steps - 1) + [reply] * (6 - steps)
    assert f"expected: {float(guess):g}" in explorer.view.picture, "the guess stays on the card"
    use(explorer, ("Hook on", "b"), ("I expect at", "x"), "Back")
    assert reply in shown(explorer), "the guess stays with the tensor it was made for"
    control(explorer, "a: grad * 6, on").value = False
    assert "ou expect" not in shown(explorer), "with other hooks it is another question"


def test_vectors_are_expected_with_all_their_numbers_and_what_is_no_gradient_is_said():
    explorer = GradientFlow("dot product")
    replies = {"[1, 2, 3, 4]": "You are right", "[1, 2, 3]": "its gradient is [1, 2, 3, 4].", "1": "gradient is [1"}
    for guess, reply in replies.items():
        use(explorer, ("I expect at", "x"), ("gradient", guess), "Commit")
        assert reply in verdicts(explorer)[-1]
    for guess in ("", "x", "[1, [2]]", "'1'", "None", "1j"):
        use(explorer, ("gradient", guess), "Commit")
        assert "is no gradient: type a number such as 3" in shown(explorer)
    explorer = GradientFlow("w = 3; d = detach(w); y = w * d; dead = y * 2; out = y + 1")
    use(explorer, ("I expect at", "dead"), ("gradient", "0"), "Commit")
    assert verdicts(explorer)[0] == "You expected 0 at dead, but no gradient reaches dead."


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


def test_the_lines_are_shown_for_an_own_graph_only():
    explorer = GradientFlow("two paths", hooks={"a": "times 6"}, step=-1)
    (lines,) = [box for box in controls(explorer, widgets.HBox) if control(explorer, "Lines") in box.children]
    for graph, display in (("mean", "none"), (OWN, None), ("two paths", "none")):
        control(explorer, "Graph").value = graph
        assert lines.layout.display == display
