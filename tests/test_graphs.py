"""The graphs of the tensor-hook lessons: numbers by torch, errors in sentences, pictures without overlap."""

import re
import warnings
import xml.etree.ElementTree as ET

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course_utils.explorers.backward import ACTIONS, read_hooks, run_backward
from course_utils.explorers.graph import (
    EXAMPLES,
    MAX_NODES,
    GraphError,
    example,
    format_number,
    format_tensor,
    parse,
)
from course_utils.explorers.stories import backward_story

CHAIN = "b=w*2;c=b*2;d=c*2;e=d*2;f=e*2;g=f*2;h=g*2;i=h*w;j=i*2;k=j*b;l=k*w"
OWN = {
    "chain": ("w=1;" + CHAIN, {}),
    "recurrent": ("h1=tanh(w*x);h2=tanh(w*h1);loss=(h2-1)**2", {"w": 2, "x": 0.5}),
    "layer": ("y=sum(relu(W@x+b))", {"W": [[1, -2], [1 / 3, 4]], "x": [1, 2], "b": [0.1, -3.14159265]}),
    "softmax": ("p=exp(x);q=sum(p);r=p/q;y=sum(r*x)", {"x": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]}),
    "matrix": ("y=mean(d)+a*b*c", {"a": 1, "b": 2, "c": 3, "d": [[1, 2, 3, 4], [5, 6, 7, 8]]}),
    "long names": ("long_name_02 = long_name_01 @ long_name_01", {"long_name_01": [0.12345, -0.98765]}),
}


def graphs():
    return {name: example(name) for name in EXAMPLES} | {
        name: parse(text, **given) for name, (text, given) in OWN.items()
    }


def grads(graph, hooks=()):
    """The `.grad` of every tensor that has one at the end."""
    return {step.node: step.grad.tolist() for step in run_backward(graph, hooks) if step.grad is not None}


def steps(graph, hooks=()):
    return {step.node: step for step in run_backward(graph, hooks)}


# The rows of the tensor-hook lessons ------------------------------------------------------------------------------


def test_t1_gradients_of_two_paths():
    assert grads(example("two paths"), {"a": "print"}) == {"w": 5, "x": 2}
    assert steps(example("two paths"), {"a": "print"})["a"].calls[0].saw == 2


def test_t2_hooks_on_the_leaf():
    graph = example("two paths")
    assert grads(graph, {"w": "times 6"}) == {"w": 30, "x": 2}
    assert grads(graph, {"w": ["times 2", "times 6"]}) == {"w": 60, "x": 2}


def test_t3_the_same_hook_on_a():
    run = steps(example("two paths"), {"a": "times 6"})
    assert (run["w"].grad, run["x"].grad) == (15, 12)
    assert [(sender, grad.item()) for sender, grad in run["w"].parts] == [("b", 3), ("a", 12)]


def test_t4_a_printing_hook_on_z():
    run = steps(example("dot product"), {"z": "print"})
    assert run["z"].calls[0].saw.tolist() == [1, 2, 3, 4]
    assert run["z"].calls[0].returned is None
    assert run["z"].grad is None
    assert grads(example("dot product")) == {"w": [4, 6, 8, 10], "x": [1, 2, 3, 4], "y": [1, 2, 3, 4]}


def test_t5_a_doubling_hook_on_z():
    assert grads(example("dot product"), {"z": "times 2"}) == {"w": [4, 6, 8, 10], "x": [2, 4, 6, 8], "y": [2, 4, 6, 8]}


def test_t6_hooks_run_in_the_order_of_registration():
    calls = steps(example("dot product"), [("z", "times 2"), ("z", "print")])["z"].calls
    assert [call.saw.tolist() for call in calls] == [[1, 2, 3, 4], [2, 4, 6, 8]]
    calls = steps(example("dot product"), [("z", "print"), ("z", "times 2")])["z"].calls
    assert [call.saw.tolist() for call in calls] == [[1, 2, 3, 4], [1, 2, 3, 4]]


def test_t7_z_comes_first_then_y():
    order = [step.node for step in run_backward(example("square"))]
    assert order == ["z", "t1", "y", "x"]
    run = steps(example("square"))
    assert (run["z"].arrived, run["y"].arrived, run["x"].grad) == (1, -4, 0)


def test_t8_hooks_that_add_two():
    run = steps(example("square"), {"z": "add 2", "y": "add 2"})
    assert (run["z"].passed_on, run["y"].passed_on, run["x"].grad) == (3, -10, 2)


def test_t9_the_mean():
    run = run_backward(example("mean"))
    assert [step.node for step in run] == ["c", "b", "a"]
    assert [format_tensor(step.arrived) for step in run[1:]] == [
        "[0.2, 0.2, 0.2, 0.2, 0.2]",
        "[0.4, 0.4, 0.4, 0.4, 0.4]",
    ]


def test_r1_retained_gradients():
    assert grads(example("dot product"), {"z": "retain_grad", "o": "retain_grad"})["z"] == [1, 2, 3, 4]
    kept = grads(example("square"), {"y": "retain_grad", "z": "retain_grad"})
    assert (kept["y"], kept["z"]) == (-4, 1)


def test_r3_retain_grad_stores_the_gradient_after_all_hooks():
    for place in range(3):
        actions = ["times 2", "times 6"]
        actions.insert(place, "retain_grad")
        kept = grads(example("dot product"), {"z": actions})
        assert kept["z"] == kept["x"] == [12, 24, 36, 48]


# Actions, and what the recording leaves behind --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("print", [-1, 2]),
        ("times 2", [-2, 4]),
        ("times 6", [-6, 12]),
        ("add 2", [1, 4]),
        ("clamp at 0", [0, 2]),
        ("zero", [0, 0]),
        ("flip sign", [1, -2]),
        ("retain_grad", [-1, 2]),
    ],
)
def test_what_each_action_does(action, expected):
    graph = parse("h = x * 1; y = h @ v", x=[1, 1], v=[-1, 2])
    assert grads(graph, {"h": action})["x"] == expected


def test_every_action_is_tested():
    marks = next(mark for mark in test_what_each_action_does.pytestmark if mark.name == "parametrize")
    assert {action for action, _ in marks.args[1]} == set(ACTIONS)


def test_retain_grad_on_a_leaf_changes_nothing():
    graph = example("two paths")
    assert grads(graph, {"w": "retain_grad"}) == grads(graph)
    assert "retain_grad changes nothing on a leaf" in backward_story(graph, {"w": "retain_grad"}, 4).sentence


def test_the_gradient_is_the_sum_of_its_parts_also_through_composite_operations():
    graph = parse("u = 2 / x; v = x * x; m = x @ M; y = sum(u) + sum(v) + sum(m) * 1", x=[1, 2], M=[[1, 2], [3, 4]])
    for step in run_backward(graph):
        if step.node != graph.result:
            torch.testing.assert_close(
                sum(grad.sum_to_size(step.arrived.shape) for _, grad in step.parts), step.arrived
            )


def test_numbers_equal_those_of_plain_torch():
    for name, graph in graphs().items():
        tensors = {}
        for node in graph.nodes.values():
            if node.operation is None:
                tensors[node.name] = node.value.clone().requires_grad_()
            else:
                tensors[node.name] = node.operation(*[tensors.get(part, part) for part in node.operands])
        tensors[graph.result].backward()
        for step in run_backward(graph):
            if graph.nodes[step.node].is_leaf:
                torch.testing.assert_close(step.grad, tensors[step.node].grad, rtol=0, atol=0, msg=name)


def test_the_learners_tensor_is_not_touched():
    w = torch.tensor(3.0, requires_grad=True)
    assert grads(parse("y = w * w", w=w), {"w": "times 2"}) == {"w": 12}
    assert w.grad is None
    assert not w._backward_hooks


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_works_with_gradients_switched_off(mode):
    with mode():
        graph = parse("y = w * w", w=torch.ones(1, requires_grad=True))
        assert grads(graph) == {"w": [2]}
    assert grads(graph) == {"w": [2]}


def test_no_warning_is_shown():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backward_story(example("two paths"), {"a": "retain_grad"})


def test_a_tensor_without_gradient_gets_none():
    graph = parse("y = w * c", w=2, c=torch.tensor(3.0))
    assert graph.hookable == ("w", "y")
    assert grads(graph) == {"w": 3}
    row = next(row for row in backward_story(graph).table if row.name == "c")
    assert (row.kind, row.gradient, row.grad) == ("no gradient", "none", "None")


def test_detach_cuts_the_path():
    assert grads(parse("d = detach(w); y = w * d", w=3)) == {"w": 3}


# Expressions -------------------------------------------------------------------------------------------------------


def test_names_for_intermediate_results_avoid_the_learners():
    graph = parse("t1 = w + 1; y = (w * 2 + t1) ** 2", w=1)
    assert list(graph.nodes) == ["w", "t1", "t2", "t3", "y"]


def test_leaves_can_be_written_as_lines():
    graph = parse("\n  w = -2   # a number\n  x = [[1, 2], [3, 4]]\n  y = sum(w * x)\n")
    assert grads(graph) == {"w": 10, "x": [[-2, -2], [-2, -2]]}


def test_tensors_that_are_not_used_are_left_out():
    assert list(parse("y = w * w", w=1, unused=2).nodes) == ["w", "y"]


def test_a_second_name_is_the_same_tensor():
    assert list(parse("b = w; y = b * w", w=3).nodes) == ["w", "y"]


def test_the_text_of_a_graph_makes_it_again():
    for graph in graphs().values():
        again = parse(graph.text)
        assert list(again.nodes) == list(graph.nodes)
        torch.testing.assert_close(again.nodes[again.result].value, graph.nodes[graph.result].value)


@pytest.mark.parametrize(
    ("expression", "value", "gradient"),
    [
        ("y = +w - -w", 4, 2),
        ("y = 2 ** w", 4, 2.7726),
        ("y = 1 / w", 0.5, -0.25),
        ("y = clamp(w, 0, 1)", 1, 0),
        ("y = clamp(w, min=0)", 2, 1),
        ("y = clamp(w, max=5)", 2, 1),
        ("y = abs(w)", 2, 1),
        ("y = relu(-w)", 0, 0),
        ("y = sqrt(w)", 1.4142, 0.35355),
        ("y = exp(w)", 7.38906, 7.38906),
        ("y = log(w)", 0.693147, 0.5),
        ("y = tanh(w)", 0.964028, 0.0706508),
        ("y = sigmoid(w)", 0.880797, 0.104994),
        ("v = w * k; y = dot(v, k)", 20, 10),
    ],
)
def test_operators_and_functions(expression, value, gradient):
    graph = parse(expression, w=2, k=[1, 3])
    assert graph.nodes["y"].value.item() == pytest.approx(value, rel=1e-4)
    assert grads(graph)["w"] == pytest.approx(gradient, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("y = w +", r"Line 1 cannot be read \(invalid syntax\):\n  y = w \+\n         \^"),
        ("a = w + 1\ny = a * )", r"Line 2 cannot be read .*\n  y = a \* \)\n          \^"),
        ("y = w · x", r"\n        \^\nWrite \* for a product"),
        ("y = w × x", r"Write \* for a product"),  # noqa: RUF001 - what a learner may well type
        ("y = (w", "never closed"),
        ("", "The expression is empty"),
        ("y = sum(weight)", "no tensor called weight here; so far there are w, x, v, m, n"),
        ("val = w + 1; y = vel * w", "Did you mean val?"),
        ("y = w * later; later = w + 1", "no tensor called later"),
        ("y = tan(w)", "no function tan here.*Did you mean tanh"),
        ("y = sum", "sum is a function: write sum"),
        ("y = v * m", r"v has shape \(2,\), m has shape \(3,\); counted from the last one, sizes must be equal"),
        ("y = v @ m", "the last size on the left equal to the first on the right"),
        ("y = w @ 2", "@ needs two tensors with dimensions"),
        ("y = dot(v, m)", "dot needs two vectors of the same length"),
        ("y = v * 2", r"The result y has shape \(2,\).*end with sum\(y\) or mean\(y\)"),
        ("y = 2 * 3", "no operation"),
        ("y = w", "no operation"),
        ("y = sum(n)", "depends on no leaf that requires a gradient"),
        ("y = detach(w) * 2", "depends on no leaf that requires a gradient"),
        (" + ".join(["y = w"] + ["w"] * 12), "The graph has 13 nodes"),
        ("y = [1, 2, 3, 4, 5, 6, 7, 8, 9]", "y has 9 elements: give between 1 and 8"),
        ("y = []", "y has 0 elements"),
        ("a = [[1], [2], [3]]; y = sum(a * m)", "9 elements; at most 8"),
        ("a = [[1], [2, 3]]; y = sum(a)", "rows of equal length"),
        ("a = ['b']; y = sum(a)", "no list of numbers"),
        ("a = [w]; y = sum(a)", "may hold numbers only"),
        ("a = [[[1]]]; y = sum(a)", "at most 2 dimensions"),
        ("y = __import__('os').system('true')", "uses a dot: attributes and methods are not available"),
        ("y = __import__('os')", "There is no function __import__"),
        ("y = eval('w')", "There is no function eval"),
        ("y = w.sum()", r"write sum\(x\) instead"),
        ("y = w.__class__", "uses a dot"),
        ("y = (lambda: w)()", "is not possible here"),
        ("y = x[0]", "is not possible here"),
        ("y = w if w else x", "is not possible here"),
        ("y = (z := w)", "is not possible here"),
        ("y = f'{w}'", "is not possible here"),
        ("import os", "is not an assignment"),
        ("for i in w: pass", "is not an assignment"),
        ("w += 1", "changes a tensor in place"),
        ("a, b = w", "one plain name"),
        ("y = w ^ 2", r"for a power write \*\*"),
        ("y = 10 ** 10 ** 10 * w", "is not a finite number"),
        ("y = 9 ** 9 ** 9 ** 9 * w", "is not a finite number"),
        ("y = 1e999 * w", "is not a finite number"),
        (f"y = w * {'9' * 350}", "is not a finite number"),
        ("y = 1 / 0 * w", "is not a finite number"),
        ("y = (-1) ** 0.5 * w", "is not a finite number"),
        ("y = 'a' * w", "'a' is not a number"),
        ("y = True * w", "True is not a number"),
        ("y = 2j * w", "is not a number"),
        ("y = sum(w, x)", r"write sum\(x\), with 1 tensor"),
        ("y = sum(*w)", "without \\*"),
        ("y = exp(1) * w", "from a number alone"),
        ("y = clamp(w)", r"write clamp\(x, 0, 1\)"),
        ("y = clamp(w, x)", "limits of clamp must be numbers"),
        ("y = clamp(w, 0, min=1)", r"write clamp\(x, 0, 1\)"),
        ("w = 3; y = w * w", "w already names a tensor"),
        ("exp = w * 2", "exp is a function here"),
        ("averyverylongname = w * 2", "at most 12 fit"),
        ("[1, 2]", r"has no name: write w = \[1, 2\]"),
        ("y = w" + " " * 400 + "* w", "at most 400 are allowed"),
        ("y = w\0", "cannot be read"),
        ("(" * 199 + "w" + ")" * 199, "cannot be read|no operation"),
        ("y = " + "-" * 390 + "w", "The graph has 39[01] nodes|nested too deeply"),
    ],
)
def test_what_a_learner_may_write_gets_a_sentence(expression, says):
    with pytest.raises(GraphError) as caught:
        parse(expression, w=1, x=2, v=[1, 2], m=[1, 2, 3], n=torch.ones(2))
    assert re.search(says, str(caught.value), re.DOTALL), str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("abc", "no number"),
        (None, "no number"),
        (torch.arange(3), "only floating-point tensors"),
        (float("nan"), "must be finite"),
        (10**400, "no number|must be finite"),
        (torch.ones(9), "9 elements"),
        ({"a": 1}, "no number"),
    ],
)
def test_what_a_learner_may_give_gets_a_sentence(given, says):
    with pytest.raises(GraphError, match=says):
        parse("y = sum(w)", w=given)


def test_division_by_zero_works_and_is_told():
    story = backward_story(parse("y = w / 0", w=1))
    assert "w.grad = inf" in story.sentence
    assert "Not finite (inf or nan): y and the gradient of w; a division by 0" in story.sentence
    assert "nan" in backward_story(parse("y = log(w - w)", w=1)).sentence


def test_unknown_example():
    with pytest.raises(GraphError, match=r"no example called .two path.*Did you mean two paths"):
        example("two path")


@pytest.mark.parametrize(
    ("hooks", "says"),
    [
        ({"q": "print"}, "no tensor 'q' to hook; there are w, x, c, a, y"),
        ({"a": "times 7"}, "no hook 'times 7'.*Did you mean times"),
        ({"c": "print"}, "c requires no gradient"),
        ({"a": ["print"] * 5}, "already has 4 hooks"),
        (["a"], "is no hook"),
        ([("a", "print", 1)], "is no hook"),
    ],
)
def test_hooks_that_cannot_be(hooks, says):
    graph = parse("a = w + x; y = a * c", w=1, x=2, c=torch.tensor(1.0))
    with pytest.raises(GraphError, match=says):
        backward_story(graph, hooks)


def test_hooks_as_mapping_or_pairs():
    graph = example("two paths")
    expected = (("w", "print"), ("w", "zero"), ("a", "times 2"))
    assert read_hooks(graph, {"w": ["print", "zero"], "a": "times 2"}) == expected
    assert read_hooks(graph, iter(expected)) == expected


# The story ---------------------------------------------------------------------------------------------------------


def test_the_story_of_t3():
    graph = example("two paths")
    told = [backward_story(graph, {"a": "times 6"}, step).sentence for step in range(6)]
    assert told[0] == "Forward is done: y = 6. Backward has not begun, so no tensor has a gradient yet."
    assert told[1].startswith("Step 1 of 5: backward begins at y, with the gradient 1.")
    assert told[3] == (
        "Step 3 of 5: the gradient 2 flows from y back to a. Its hook returns grad * 6, that is 12. "
        "a is not a leaf: a.grad stays None."
    )
    assert told[4] == (
        "Step 4 of 5: 3 from b and 12 from a add up to 15, the gradient of w. "
        "w is a leaf: w.grad is now 15 (5 without hooks)."
    )
    assert told[5].endswith("Backward is done: w.grad = 15 (5 without hooks) and x.grad = 12 (2 without hooks).")


def test_only_gradients_that_have_arrived_are_shown():
    graph = example("two paths")
    for step in range(6):
        story = backward_story(graph, (), step)
        shown = [row.name for row in story.table if row.gradient != "not yet"]
        assert sorted(shown) == sorted(past.node for past in run_backward(graph)[:step])
        assert story.picture.count(">not yet<") == 5 - step


def test_the_table_compares_with_and_without_hooks():
    rows = {row.name: row for row in backward_story(example("two paths"), {"a": "times 6"}).table}
    assert (rows["a"].gradient, rows["a"].gradient_without_hooks, rows["a"].grad) == ("12", "2", "None")
    assert (rows["w"].gradient, rows["w"].gradient_without_hooks, rows["w"].grad) == ("15", "5", "15")


def test_steps_count_from_the_end_too_and_must_exist():
    graph = example("two paths")
    assert backward_story(graph, (), -1) == backward_story(graph, (), 5)
    assert backward_story(graph, (), -6).step == 0
    for step in (6, -7):
        with pytest.raises(GraphError, match=rf"no step {step}: backward through this graph has the steps 0 to 5"):
            backward_story(graph, (), step)


def test_numbers_as_text():
    assert [format_number(number) for number in (-0.0, 3.0, 123456, 1 / 3, 1e7, -1e-5)] == [
        "0", "3", "123456", "0.3333", "1e+07", "-1e-05",
    ]  # fmt: skip
    assert format_tensor(torch.tensor([[1.5, 2], [3, float("inf")]])) == "[[1.5, 2], [3, inf]]"


# The picture -------------------------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def boxes_of(picture):
    """The cards as (left, top, right, bottom) in the picture's own coordinates, and the picture's size."""
    root = ET.fromstring(picture)
    group = root.find(f"{SVG}g")
    dx, dy = (float(part) for part in re.findall(r"[-\d.]+", group.get("transform")))
    cards = []
    for rect in group.findall(f"{SVG}rect"):
        left, top = float(rect.get("x")) + dx, float(rect.get("y")) + dy
        cards.append((left, top, left + float(rect.get("width")), top + float(rect.get("height"))))
    width, height = (float(part) for part in root.get("viewBox").split()[2:])
    return cards, width, height


def check_picture(picture):
    boxes, width, height = boxes_of(picture)
    for number, (left, top, right, bottom) in enumerate(boxes):
        assert left >= 0
        assert top >= 30
        assert right <= width
        assert bottom <= height - 20
        for other in boxes[:number]:
            apart = right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
            assert apart, (boxes[number], other)
    assert width <= 864 + 1e-6


@pytest.mark.parametrize("name", list(EXAMPLES) + list(OWN))
def test_cards_and_hook_marks_never_overlap(name):
    graph = graphs()[name]
    some = list(graph.hookable)[::2]
    for hooks in ((), dict.fromkeys(some, "times 6"), {node: ["print", "times 2", "retain_grad"] for node in some}):
        for step in range(len(run_backward(graph)) + 1):
            check_picture(backward_story(graph, hooks, step).picture)


@st.composite
def random_expressions(draw):
    names, lines = ["w", "x"], []
    for number in range(draw(st.integers(1, MAX_NODES - 3))):
        left, right = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        lines.append(f"n{number} = {left} {draw(st.sampled_from('+-*'))} {right}")
        names.append(f"n{number}")
    return "; ".join(lines)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_expressions(), st.sampled_from([1, [1, 2, 3, 4]]))
def test_random_graphs_can_be_drawn(expression, w):
    last = expression.split("; ")[-1].split(" = ")[0]
    text = expression if w == 1 else f"{expression}; out = sum({last})"
    graph = parse(text, w=w, x=2)
    story = backward_story(graph, {graph.result: "times 2"})
    check_picture(story.picture)
    for step in run_backward(graph)[1:]:
        torch.testing.assert_close(sum(grad for _, grad in step.parts), step.arrived, equal_nan=True)


def test_a_wide_graph_continues_on_a_second_row():
    boxes, _, _ = boxes_of(backward_story(graphs()["chain"]).picture)
    lefts = [left for left, *_ in boxes]
    assert len(boxes) == 12
    assert len(set(lefts)) < 6


def test_nothing_moves_while_the_steps_go_by():
    graph = example("dot product")
    places = {str(boxes_of(backward_story(graph, {"z": "times 2"}, step).picture)) for step in range(6)}
    assert len(places) == 1


def test_the_picture_is_the_same_every_time():
    for graph in graphs().values():
        assert backward_story(graph, (), 1).picture == backward_story(graph, (), 1).picture


def test_the_picture_says_what_it_shows():
    story = backward_story(example("two paths"), {"a": "times 6"}, 3)
    root = ET.fromstring(story.picture)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == "Step 3 of 5: the gradient reaches a" == root.get("aria-label")
    assert root.find(f"{SVG}desc").text == story.sentence
    assert "12 (was 2)" in texts
    assert "a = w + x" in texts
    assert "\N{MULTIPLICATION SIGN}6" in texts
    assert texts.count("leaf") == 3  # w, x and the legend


def test_type_is_large_enough_on_a_page_of_800():
    for graph in graphs().values():
        picture = backward_story(graph).picture
        _, width, _ = boxes_of(picture)
        sizes = [int(size) for size in re.findall(r"(\d+)px", picture)]
        assert min(sizes) * min(1, 800 / width) >= 12


def test_text_stays_inside_its_card():
    for graph in graphs().values():
        root = ET.fromstring(backward_story(graph, {graph.hookable[0]: "times 6"}).picture)
        group = root.find(f"{SVG}g")
        cards = [rect for rect in group.findall(f"{SVG}rect") if rect.get("fill") == "currentColor"]
        for text in group.findall(f"{SVG}text"):
            if "monospace" not in text.get("style") or text.get("text-anchor") == "end":
                continue
            size = int(re.search(r"(\d+)px", text.get("style"))[1])
            x, y, end = float(text.get("x")), float(text.get("y")), float(text.get("x")) + len(text.text) * size * 0.602
            around = [
                card
                for card in cards
                if float(card.get("x")) <= x <= float(card.get("x")) + float(card.get("width"))
                and float(card.get("y")) <= y <= float(card.get("y")) + float(card.get("height"))
            ]
            for card in around:
                assert end <= float(card.get("x")) + float(card.get("width")), text.text


def test_colours_are_readable_on_white_and_on_black():
    def luminance(colour):
        channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    picture = backward_story(example("two paths"), {"a": "times 6"}, 3).picture
    colours = set(re.findall(r"#[0-9a-f]{6}", picture))
    assert len(colours) == 2
    for colour in colours:
        assert 1.05 / (luminance(colour) + 0.05) >= 3
        assert (luminance(colour) + 0.05) / (luminance("#111111") + 0.05) >= 3
    assert set(re.findall(r'<text[^>]* fill="([^"]+)"', picture)) == {"currentColor"}
