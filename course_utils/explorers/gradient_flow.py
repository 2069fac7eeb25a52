"""The explorer of gradients that flow back through a small graph: in words, as a table and as a picture (SVG)."""

import textwrap
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean

import ipywidgets as widgets
import networkx as nx
import torch
from torch import Tensor

from course_utils.explorers import graph as graphs
from course_utils.explorers import markup
from course_utils.explorers.graph import ACTIONS, EXAMPLES, Graph, Step, TensorHooks, format_tensor, run_backward
from course_utils.explorers.markup import BLUE, MONO, ORANGE, draw_box, draw_fish_hook, draw_text, px
from course_utils.explorers.panel import STEPS, WRAPPED, Explorer, View, make_choice, make_steps
from course_utils.root import CourseError

OWN = "my own"
OWN_TEXT = "w = 2\nx = [1, 2, 3]\nh = w * x\ny = sum(h ** 2)"
LEGEND = ("leaf", "result of an operation", "forward", "gradient coming back", "hook")
NOTHING_YET, NO_GRADIENT = "not yet", "none"
MIN_WIDTH = 460  # room for the title
TOP, MARGIN, GAP_X, GAP_Y = 46, 5, 35, 20
PADDING, LINE, HEADER, MARK = 10, 19, 28, 22
HEAD = 13  # the head of an arrow, before the hooks
CHARACTER = 7.83  # the width of a monospaced character of 13 px, the smallest size in use
LABELS = 68  # the column of words in a card: value, gradient, .grad
FAINT = 0.55
REDRAWN = ("graph", "lines", "draw")  # the controls that lead to another graph
MOST_CHARACTERS = 22  # a longer vector continues on the next line


class Backward:
    """A backward pass with hooks, stopped after some steps, beside the same pass without hooks.

    hooks: see `read_hooks`.
    step: 0 (forward is done) to the number of gradients that arrive; negative numbers count from the end, -1 the last.
    expected: the gradients that a learner expects, by tensor.
    """

    def __init__(
        self, graph: Graph, hooks: TensorHooks = (), step: int = -1, expected: Mapping[str, Tensor] | None = None
    ) -> None:
        self.graph, self.hooks, self.expected = graph, graphs.read_hooks(graph, hooks), expected or {}
        self.steps = {each.node: each for each in run_backward(graph, self.hooks)}
        self.plain = {each.node: each for each in run_backward(graph)}
        self.last_step = len(self.steps)
        self.step = range(self.last_step + 1)[step]
        self.past = dict([*self.steps.items()][: self.step])
        self.current = [*self.past.values()][-1] if self.past else None

    def hooks_of(self, name: str) -> list[str]:
        """What the hooks of a tensor do, in the order of registration. (`retain_grad` is none of them.)"""
        return [action for node, action in self.hooks if node == name and action != graphs.RETAIN]

    def describe(self, name: str) -> str:
        """What stands on the card of a tensor, in words."""
        heading, kind = _head_card(self, name)
        _, _, value, gradient, plain, grad = self.row(name, self.past.get(name))
        was = f" ({plain} without hooks)" if gradient != plain else ""
        hooks = f"; hooks: {', '.join(actions)}" if (actions := self.hooks_of(name)) else ""
        title = f"{heading}, {kind}" if kind else heading
        expected = f"; expected: {format_tensor(self.expected[name])}" if name in self.expected else ""
        return f"{title}: value {value}, gradient {gradient}{was}, .grad {grad}{hooks}{expected}"

    def row(self, name: str, done: Step | None) -> tuple[str, ...]:
        """A tensor's name, kind, value, gradient, gradient without hooks and `.grad`, as text."""
        value = self.graph.nodes[name]
        gradient = plain = NOTHING_YET if name in self.steps else NO_GRADIENT
        if done:
            gradient, plain = format_tensor(done.passed_on), format_tensor(self.plain[name].passed_on)
        return name, value.kind, format_tensor(value.tensor), gradient, plain, format_tensor(done and done.grad)


def tell(backward: Backward) -> str:
    """Return what happens in this step, and at the end what came of it, in sentences."""
    sentences = [f"{_make_title(backward)}. Backward has not begun, so no tensor has a gradient yet."]
    for name in filter(backward.hooks_of, backward.graph.nodes):
        waiting = [ACTIONS[action].code for action in backward.hooks_of(name)]
        sentences.append(f"On the arrow into {name} {'waits' if len(waiting) == 1 else 'wait'} {_and(waiting)}.")
    if backward.current:
        sentences = _tell_step(backward, backward.current)
    if backward.step == backward.last_step:
        leaves = [name for name in backward.past if backward.graph.nodes[name].kind == "leaf"]
        grads = _and([f"{name}.grad = {_show_grad(backward, name)}" for name in leaves])
        sentences.append(f"Backward is done: {grads}.")
    odd = [name for name, value in backward.graph.nodes.items() if not value.tensor.isfinite().all()]
    odd += [f"the gradient of {name}" for name, done in backward.past.items() if not done.passed_on.isfinite().all()]
    if odd:
        cause = "a division by 0, the log or root of 0 or less, or an overflow does this"
        sentences.append(f"Not finite (inf or nan): {_and(odd)}; {cause}.")
    return " ".join(sentences)


def judge(backward: Backward, name: str) -> str:
    """Say of the gradient that was expected of a tensor whether it is the one that arrived."""
    expected, done = backward.expected[name], backward.past.get(name)
    number = format_tensor(expected)
    if name not in backward.steps:
        return f"You expected {number} at {name}, but no gradient reaches {name}."
    if not done:
        return f"You expect {number} at {name}. Press Next and follow the gradient until it gets there."
    if expected.shape == done.passed_on.shape and torch.allclose(expected, done.passed_on, rtol=1e-3):
        return f"\N{CHECK MARK} You are right: you expected {number} at {name}, and its gradient is {number}."
    told = f"\N{BALLOT X} You expected {number} at {name}, but its gradient is {format_tensor(done.passed_on)}."
    if len(done.parts) > 1:
        told += f" It receives {_and([f'{format_tensor(grad)} from {sender}' for sender, grad in done.parts])}."
    return told


def _tell_step(backward: Backward, step: Step) -> list[str]:
    name, arrived = step.node, format_tensor(step.arrived)
    retained = (name, graphs.RETAIN) in backward.hooks
    if not step.parts:
        words = f"backward begins at {name}, with the gradient {arrived}."
    elif len(step.parts) == 1:
        ((sender, _),) = step.parts
        words = f"the gradient {arrived} flows from {sender} back to {name}."
    else:
        summands = _and([f"{format_tensor(grad)} from {sender}" for sender, grad in step.parts])
        words = f"{summands} add up to {arrived}, the gradient of {name}."
    sentences = [f"Step {backward.step} of {backward.last_step}: {words}"]
    for number, (action, saw, returned) in enumerate(step.calls, 1):
        who = "Its hook" if len(step.calls) == 1 else f"Hook {number}"
        does = f"prints {format_tensor(saw)} and returns nothing: the gradient stays as it is"
        if returned is not None:
            does = f"returns {ACTIONS[action].code}, that is {format_tensor(returned)}"
        sentences.append(f"{who} {does}.")
    if backward.graph.nodes[name].kind == "leaf":
        sentences.append(f"{name} is a leaf: {name}.grad is now {_show_grad(backward, name)}.")
        if retained:
            sentences.append("retain_grad changes nothing on a leaf.")
    elif retained:
        when = ", the gradient after all hooks" if step.calls else ""
        sentences.append(f"retain_grad keeps it: {name}.grad is {format_tensor(step.grad)}{when}.")
    else:
        sentences.append(f"{name} is not a leaf: {name}.grad stays None.")
    return sentences


def _show_grad(backward: Backward, leaf: str) -> str:
    grad, plain = (format_tensor(run[leaf].grad) for run in (backward.past, backward.plain))
    return grad if grad == plain else f"{grad} ({plain} without hooks)"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _make_title(backward: Backward) -> str:
    result, step, last = backward.graph.result, backward.step, backward.last_step
    if step == 0:
        return f"Forward is done: {result} = {format_tensor(backward.graph.nodes[result].tensor)}"
    what = f"backward begins at {result}" if step == 1 else f"the gradient reaches {backward.current.node}"
    return f"Step {step} of {last}: {what}{', backward is done' if step == last else ''}"


@dataclass(eq=False)
class _Box:
    """A card with the lines of text beside each of its labels, or the place where a long edge passes a column."""

    lines: dict[str, list[str]] = field(default_factory=dict)
    width: float = 0
    height: float = 10
    out: float = 0  # where its arrows meet: right of its hooks; first how much room these take
    x: float = 0
    middle: float = 0

    @property
    def y(self) -> float:
        return self.middle - self.height / 2


Chains = dict[tuple[str, str], list[_Box]]  # for each edge the boxes that it leads through


def _make_card(backward: Backward, name: str) -> _Box:  # as large as its text is in the end, so that nothing moves
    lines = _break_lines(backward, name, backward.steps.get(name))
    heading, kind = _head_card(backward, name)
    body = LABELS + CHARACTER * max(len(line) for part in (*lines.values(), [NOTHING_YET]) for line in part)
    width = max(len(heading) * CHARACTER * 15 / 13 + len(kind) * 7.4 + 12, body) + 2 * PADDING
    height = HEADER + sum(map(len, lines.values())) * LINE + 8
    marks = sum(map(_mark_width, backward.hooks_of(name)))
    has_arrow = marks or name == backward.graph.result
    return _Box(lines, width, height, HEAD + 6 + (marks or 1) if has_arrow else 0)


def _head_card(backward: Backward, name: str) -> tuple[str, str]:
    value = backward.graph.nodes[name]
    kinds = [] if value.kind == "result" else [value.kind]
    if (name, graphs.RETAIN) in backward.hooks:
        kinds.append(graphs.RETAIN)
    return f"{value.name} = {value.formula}" if value.formula else value.name, ", ".join(kinds)


def _break_lines(backward: Backward, name: str, done: Step | None) -> dict[str, list[str]]:
    _, _, value, gradient, plain, grad = backward.row(name, done)
    was = _wrap(f"(was {plain})") if gradient != plain else []
    gradients = [f"{gradient} {was[0]}"] if was and "[" not in plain else _wrap(gradient) + was
    lines = {"value": _wrap(value), "gradient": gradients}
    if name in backward.expected:
        lines["expected"] = _wrap(format_tensor(backward.expected[name]))
    return {**lines, ".grad": _wrap(grad)}


def _wrap(text: str) -> list[str]:
    """Break values into lines: the rows of a matrix one below the other, long rows at commas."""
    rows, at_spaces = text.replace("], [", "],\n [").split("\n"), {"break_long_words": False, "break_on_hyphens": False}
    return [line for row in rows for line in textwrap.wrap(row, MOST_CHARACTERS, subsequent_indent=" ", **at_spaces)]


def _arrange(graph: Graph, cards: dict[str, _Box]) -> tuple[Chains, float, float]:
    """Place the cards, each in the last column left of all that is computed from it; return also width and height."""
    flow = nx.DiGraph((source, target) for target, value in graph.nodes.items() for source in value.inputs)
    flow.add_nodes_from(graph.nodes)
    columns, column_of, chains, beside = [], {}, {}, nx.DiGraph()
    for number, names in enumerate(reversed([*nx.topological_generations(flow.reverse())])):
        columns.append([cards[name] for name in graph.nodes if name in names])
        column_of |= dict.fromkeys(names, number)
    for source, target in flow.edges:
        passed = {number: _Box() for number in range(column_of[source] + 1, column_of[target])}
        chains[source, target] = [cards[source], *passed.values(), cards[target]]
        nx.add_path(beside, chains[source, target])
        for number, box in passed.items():
            columns[number].append(box)
    _set_heights(columns, beside)
    right, top = MARGIN, min(box.y for column in columns for box in column)
    for column in columns:
        width, room = max(box.width for box in column), max(box.out for box in column)
        for box in column:
            box.x, box.width, box.out, box.middle = right, width, right + width + room, box.middle - top
        right += width + room + GAP_X
    return chains, right - GAP_X + MARGIN, max(box.y + box.height for column in columns for box in column)


def _set_heights(columns: list[list[_Box]], beside: nx.DiGraph) -> None:
    """Draw each box towards the mean height of its neighbours: first those of one side, in turn, then all of them."""
    for column in columns:
        for place, box in enumerate(column):
            box.middle = 150 * place
    for sweep, near in enumerate([nx.DiGraph.successors, nx.DiGraph.predecessors] * 4 + [nx.all_neighbors] * 4):
        for column in columns[:: 1 if sweep % 2 else -1]:
            wish = {box: mean(each.middle for each in [*near(beside, box)] or [box]) for box in column}
            end = float("-inf")  # in their order, without overlap, each as high as it wishes or lower
            for box in sorted(column, key=wish.get):
                box.middle = max(wish[box], end + GAP_Y + box.height / 2)
                end = box.middle + box.height / 2
            drift = mean(box.middle - wish[box] for box in column)
            for box in column:  # then all a little higher
                box.middle -= drift


def draw(backward: Backward) -> str:
    """Return the picture as SVG: cards keep their places while the steps go by, and gradients move along the arrows."""
    cards = {name: _make_card(backward, name) for name in backward.graph.nodes}
    chains, width, height = _arrange(backward.graph, cards)
    shift, width = max(0, (MIN_WIDTH - width) / 2), max(width, MIN_WIDTH)
    chains[backward.graph.result, ""] = [cards[backward.graph.result]]  # backward begins with the gradient 1
    edges = sorted(chains, key=lambda edge: _carries(backward, *edge))  # the newest gradient is drawn last, on top
    parts = [_draw_edge(backward, edge, chains) for edge in edges]
    parts += [_draw_card(backward, name, card) for name, card in cards.items()]
    legend, end = _draw_legend(MIN_WIDTH, TOP + height + 26)
    body = f'<g transform="translate({px(shift)} {TOP})">{"".join(parts)}</g>{legend}'
    return markup.draw_picture(width, end, _make_title(backward), tell(backward), body, map(backward.describe, cards))


def _carries(backward: Backward, source: str, target: str) -> int:
    """Return 0 while no gradient has come back along the edge, 1 when it has, 2 when it just does."""
    sent = source in backward.past and (not target or target in dict(backward.past[source].parts))
    return 2 if sent and backward.current.node == source else int(sent)


def _draw_edge(backward: Backward, edge: tuple[str, str], chains: Chains) -> str:
    source, target = edge
    chain, carries = chains[edge], _carries(backward, source, target)
    heights = [box.middle for box in chain]
    heights[-1] += _find_port(edge, chains)
    path = _trace_edge(backward, source, chain, heights)
    if not carries:
        dashes = "" if backward.graph.nodes[source].tensor.requires_grad else ' stroke-dasharray="4 4"'
        line = f'<path d="{path}" fill="none" stroke="currentColor" stroke-width="1.4"{dashes} opacity="{FAINT}"/>'
        return line + (_draw_head(chain[-1].x - 1, heights[-1], 1, "currentColor", 5, FAINT) if target else "")
    line = f'<path d="{path}" fill="none" stroke="{ORANGE}" stroke-width="{3 if carries == 2 else 1.6}"/>'
    line += _draw_head(chain[0].x + chain[0].width + 1, heights[0], -1, ORANGE, 7 if carries == 2 else 5)
    if carries < 2:
        return line
    line += markup.fill("moving", orange=ORANGE, path=path)
    sent = " + ".join(format_tensor(grad) for sender, grad in backward.past[source].parts if sender == target)
    if 1 <= len(sent) <= 4:
        side = 16 if heights[-2] < heights[-1] else -7  # the label goes where the line, seen from here, does not
        line += draw_text(chain[-1].x - 7, heights[-1] + side, sent, family=MONO, anchor="end", weight=700)
    return line


def _find_port(edge: tuple[str, str], chains: Chains) -> float:
    """How far below the middle of its card an edge arrives: the edges into one card do so one below the other."""
    _, target = edge
    if not target:
        return 0
    arriving = [other for other in chains if other[1] == target]
    arriving.sort(key=lambda other: (chains[other][-2].middle, other))
    return 28 * (arriving.index(edge) - (len(arriving) - 1) / 2)


def _trace_edge(backward: Backward, source: str, chain: list[_Box], heights: list[float]) -> str:
    """The path of an edge: curves between columns, straight through them, with a gap for each hook."""
    path = f"M{px(chain[0].x + chain[0].width)} {px(heights[0])}"
    for left, width, _ in _place_hooks(backward, source, chain[0]):
        path += f" H{px(left)} M{px(left + width)} {px(heights[0])}"
    path += f" H{px(chain[0].out)}"
    for (before, y), (box, end) in pairwise(zip(chain, heights, strict=True)):
        half = (before.out + box.x) / 2
        path += f" C{px(half)} {px(y)} {px(half)} {px(end)} {px(box.x)} {px(end)}"
        if box is not chain[-1]:
            path += f" H{px(box.out)}"
    return path


def _place_hooks(backward: Backward, name: str, card: _Box) -> Iterator[tuple[float, float, str]]:
    """Give the left edge, the width and the mark of each hook, from left to right: the first one is met first."""
    x = card.x + card.width + HEAD
    for action in reversed(backward.hooks_of(name)):
        yield x, _mark_width(action) - 6, ACTIONS[action].mark
        x += _mark_width(action)


def _draw_card(backward: Backward, name: str, card: _Box) -> str:
    tensor, now = backward.graph.nodes[name].tensor, backward.current is not None and backward.current.node == name
    edge = f'stroke="{ORANGE}" stroke-width="3"' if now else 'stroke="currentColor" stroke-width="1.3"'
    edge = f'fill="currentColor" fill-opacity="0.05" {edge}'
    dashes = "" if tensor.requires_grad else ' stroke-dasharray="5 4"'
    left, right, y = card.x + PADDING, card.x + card.width - PADDING, card.y + HEADER
    heading, kind = _head_card(backward, name)
    parts = [
        draw_box(card.x, card.y, card.width, card.height, 14 if tensor.is_leaf else 3, edge + dashes),
        f'<path d="M{px(card.x)} {px(y)} h{px(card.width)}" stroke="currentColor" stroke-opacity="0.25"/>',
        draw_text(left, y - 9, heading, size=15, family=MONO, weight=700),
        draw_text(right, y - 9, kind, anchor="end", style="italic") if kind else "",
    ]
    for label, lines in _break_lines(backward, name, backward.past.get(name)).items():
        empty = lines[0] in (NOTHING_YET, NO_GRADIENT, "None")
        look = {"weight": 700 if now and label != "value" and not empty else 400, "opacity": 0.65 if empty else 1}
        parts.append(draw_text(left, y + LINE - 2, label, opacity=0.75))
        for number, line in enumerate(lines, 1):
            parts.append(draw_text(left + LABELS, y + number * LINE - 2, line, family=MONO, **look))
        y += LINE * len(card.lines[label])
    top, look = card.middle - MARK / 2, f'fill="{BLUE}" fill-opacity="0.14" stroke="{BLUE}" stroke-width="1.4"'
    for x, width, mark in _place_hooks(backward, name, card):
        words = draw_text(x + 17, top + 15, mark, family=MONO, weight=600)
        parts += [draw_box(x, top, width, MARK, 9, look), draw_fish_hook(x + 11, top + 4), words]
    return "".join(parts)


def _mark_width(action: str) -> float:
    return len(ACTIONS[action].mark) * CHARACTER + 28


def _draw_legend(width: float, y: float) -> tuple[str, float]:
    """Return the legend, and where it ends in a picture of this width."""
    x, legend = MARGIN, ""
    for words in LEGEND:
        wide = 30 + len(words) * 6.7
        if x + wide > width:
            x, y = MARGIN, y + 22
        sign = markup.fill(words, blue=BLUE, orange=ORANGE) + draw_text(29, 0, words, opacity=0.8)
        legend += f'<g transform="translate({px(x)} {px(y)})">{sign}</g>'
        x += wide + 24
    return legend, y + 18


def _draw_head(x: float, y: float, direction: int, colour: str, size: float, opacity: float = 1) -> str:
    back = x - direction * size * 1.6
    points = f"{px(x)},{px(y)} {px(back)},{px(y - size)} {px(back)},{px(y + size)}"
    return f'<polygon points="{points}" fill="{colour}" opacity="{opacity}"/>'


class GradientFlow(Explorer):
    """Step through backward on a small graph, with hooks on its arrows to switch on and off.

    A tensor's hook sits on the arrow into its card, behind the point where arrows meet: torch calls it with their sum.
    `retain_grad` is no hook on the way, and stands in the head of the card.

    "Commit" fixes what you expect as the gradient of a tensor: it stays on its card, and is judged when that arrives.

    graph: the name of an example (`graph.EXAMPLES`), or lines such as `"w = 1; y = w * w"` (see `graph.parse`).
    hooks: where which hook sits: a mapping such as `{"a": "times 6"}` or `{"w": ["times 2", "print"]}`, or pairs in the
        order of registration; the actions are the keys of `graph.ACTIONS`.
    step: the step of backward to open at: 0 before backward, -1 after its last step.
    """

    lines = 3

    def __init__(self, graph: str = "two paths", *, hooks: TensorHooks = (), step: int = 0) -> None:
        own = "=" in graph
        drop, style, button = widgets.Dropdown, {"description_width": "60px"}, {"layout": {"width": "100px"}}
        wide, late = {"width": "380px"}, {"continuous_update": False}
        choice = make_choice(drop, "Graph", [*EXAMPLES, OWN], OWN if own else graph, width=260)
        self._graph = graphs.parse(graph if own else EXAMPLES.get(graph, OWN_TEXT))
        self._switches = [self._make_switch(*hook) for hook in graphs.read_hooks(self._graph, hooks)]
        self._expected: dict[str, Tensor] = {}
        text = graph.replace("; ", "\n") if own else OWN_TEXT
        does = {each.code if name in each.code else f"{name}: {each.code}": name for name, each in ACTIONS.items()}
        controls = {
            "graph": choice,
            **make_steps(0, Backward(self._graph).last_step, step),
            "lines": widgets.Textarea(text, description="Lines", rows=5, style=style, layout=wide, **late),
            "draw": widgets.Button(description="Draw this graph", tooltip="Draw the graph of these lines"),
            "node": widgets.Dropdown(description="Hook on", style=style, layout={"width": "270px"}),
            "action": make_choice(drop, "that does", does, "times 6", width=280, indent=70),
            "add": widgets.Button(description="Add hook", tooltip="Register this hook", **button),
            "clear": widgets.Button(description="Remove all", tooltip="Remove all hooks", **button),
            "hooks": widgets.HTML(),
            "at": widgets.Dropdown(description="I expect at", layout={"width": "220px"}),
            "guess": widgets.Text(description="gradient", placeholder="3 or [1, 2]", layout={"width": "230px"}),
            "commit": widgets.Button(description="Commit", tooltip="Fix this before the gradient arrives", **button),
            "verdict": widgets.HTML(layout={"min_height": "36px"}),
        }
        beside = widgets.VBox([widgets.HTML(markup.fill("help")), controls["draw"]], layout=wide)
        self._own = widgets.HBox([controls["lines"], beside], layout={**WRAPPED, "display": None if own else "none"})
        self._chips = widgets.HBox([controls["hooks"]], layout={**WRAPPED, "min_height": "34px"})
        rows = ("graph", *STEPS), self._own, ("at", "guess", "commit"), "picture", "verdict", "sentence", "problem"
        super().__init__(controls, [*rows, ("node", "action", "add", "clear"), self._chips])

    def _make_switch(self, node: str, action: str) -> widgets.ToggleButton:
        switch = widgets.ToggleButton(value=True, layout={"width": "auto"})
        switch.hook = (node, action)
        self.watch("switch", switch)
        return switch

    def use_graph(self) -> None:
        """Read the graph anew: the hooks stay where it is the learner's own and still has their tensors."""
        own = self.controls["graph"].value == OWN
        self._own.layout.display = None if own else "none"  # also when the lines cannot be read
        self._graph = graphs.parse(self.controls["lines"].value if own else EXAMPLES[self.controls["graph"].value])
        self._switches = [each for each in self._switches if own and each.hook[0] in self._graph.hookable]
        self.put_steps(0, Backward(self._graph).last_step, 0)

    use_lines = use_draw = use_graph

    def use_add(self) -> None:
        self._switches.append(self._make_switch(self.controls["node"].value, self.controls["action"].value))

    def use_clear(self) -> None:
        self._switches = []

    def use_commit(self) -> None:
        """Fix what is expected."""
        guess = self.controls["guess"].value
        try:
            expected = torch.tensor(literal_eval(guess.strip()), dtype=torch.float32)
        except (ValueError, SyntaxError, TypeError, RuntimeError):
            raise CourseError(f"{guess!r} is no gradient: type a number such as 3, or a list such as [1, 2].") from None
        self._expected = {self.controls["at"].value: expected}

    use_guess = use_commit

    def fit(self, name: str) -> None:
        """List the tensors and the hooks.

        Another graph or other hooks clear what was expected. A new hook or a new guess goes back to step 0.
        """
        if name in ("", *REDRAWN):
            names = self._graph.hookable
            self.controls["node"].options = {self._graph.name_with_senders(each): each for each in names}
            self.controls["at"].options = names
            self.controls["node"].value = self.controls["at"].value = names[0]
        if name in (*REDRAWN, "switch", "add", "clear"):
            self._expected = {}  # it was the answer to another question
        if name in ("add", "clear", "commit", "guess"):
            self.controls["step"].value = 0  # nothing is told before it is asked for
        for switch in self._switches:
            node, action = switch.hook
            switch.description = f"{node}: {ACTIONS[action].code}, {'on' if switch.value else 'off'}"
        words = "Hooks, in the order of registration (press to switch off or on):"
        self.controls["hooks"].value = markup.wrap_words(words if self._switches else "No hook is registered.")
        for switch in set(self._chips.children[1:]) - set(self._switches):
            switch.close()
        self._chips.children = [self.controls["hooks"], *self._switches]
        self.controls["clear"].disabled = not self._switches

    def look(self, step: int, **_: object) -> View:
        """Tell the chosen step of backward, with the hooks that are switched on."""
        hooks = [switch.hook for switch in self._switches if switch.value]
        stopped = Backward(self._graph, hooks, step, self._expected)
        verdict = " ".join(judge(stopped, name) for name in stopped.expected)
        return View(draw(stopped), tell(stopped), more={"verdict": markup.make_verdict(verdict)})
