"""The picture of a small graph at one moment of its backward pass, as SVG.

Layers go from left to right; a card shows a tensor with its value and gradient. The text is deterministic, takes the
page's own colour, and is at least 12 px on a page of 800.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from torch import Tensor

from course_utils.explorers.backward import ACTIONS
from course_utils.explorers.graph import Graph, Node, format_tensor
from course_utils.explorers.svg import MONO, draw_text, px

if TYPE_CHECKING:
    from course_utils.explorers.stories import Moment

NOTHING_YET = "not yet"
NO_GRADIENT = "none"

# A wider graph continues on a second row, as text does. Scaled down to a page of 800, the smallest type is still 12 px.
WIDTH = 864
MIN_WIDTH = 720  # room for the title and the legend
GAP_X, GAP_Y = 44, 20
MARGIN = 16
PADDING = 10
LINE = 19
HEADER = 28
TAG = 21
CHAR = 7.83  # the width of a monospaced character of 13 px, the smallest size in use
LABELS = 64  # the column of words in a card: value, gradient, .grad
MIN_CHARACTERS = len(NOTHING_YET)
VALUE_CHARACTERS = 22  # a longer vector continues on the next line
TRACK = 12  # distance between the lines that lead from one row to the next

# Middle tones with a contrast above 3 on white and on #111. They colour lines only: text is always `currentColor`.
GRADIENT = "#d0602a"
HOOK = "#3f82d8"
FAINT = 0.55


@dataclass(eq=False)
class _Box:
    """A card, or the place where a long edge passes through a column (name None)."""

    name: str | None
    layer: int
    width: float = 0
    height: float = 10
    above: float = 0  # room for the hook marks on top of the card
    x: float = 0
    y: float = 0  # the top of the card, hook marks excluded

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


Chain = list[_Box]  # an edge: from a card through the columns between to another card


@dataclass(eq=False)
class _Layout:
    cards: dict[str, _Box]
    edges: dict[tuple[str, str], Chain]
    ports: dict[tuple[str, str], float]  # where an edge enters its target, counted from the middle of the card
    rows: list[int]  # the row of each layer
    bottoms: list[float]  # the lower end of each row
    width: float
    height: float


def draw(moment: Moment, sentence: str) -> str:
    """Draw one moment as SVG, described by `sentence`. The layout is that of the last moment, so nothing moves."""
    final = moment.final()
    room = {name: _card_lines(final, name) for name in moment.graph.nodes}
    layout = _arrange(moment, room)
    top = 46  # the title
    legend = layout.height + top + 26
    width, height = max(layout.width, MIN_WIDTH), legend + 18
    shift = (width - layout.width) / 2
    parts = [_draw_edge(moment, layout, edge) for edge in _by_importance(moment, layout)]
    parts.append(_draw_start(moment, layout))
    parts += [_draw_card(moment, box, room[name]) for name, box in layout.cards.items()]
    title, words = escape(_title(moment)), escape(sentence)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {px(width)} {px(height)}" width="{px(width)}" '
        f'height="{px(height)}" role="img" aria-label="{title}" '
        f'style="max-width:100%;height:auto;color:var(--jp-ui-font-color1, currentColor)">'
        f"<title>{title}</title><desc>{words}</desc>"
        f"{draw_text(width / 2, 22, _title(moment), size=16, anchor='middle', weight=600)}"
        f'<g transform="translate({px(shift)} {top})">{"".join(parts)}</g>'
        f"{_draw_legend(width, legend)}</svg>"
    )


def _title(moment: Moment) -> str:
    current, result = moment.current, moment.graph.result
    if current is None:
        return f"Forward is done: {result} = {format_tensor(moment.graph.nodes[result].value)}"
    what = f"backward begins at {result}" if current.node == result else f"the gradient reaches {current.node}"
    end = ", backward is done" if moment.is_last else ""
    return f"Step {moment.step} of {len(moment.steps)}: {what}{end}"


def _card_lines(moment: Moment, name: str) -> dict[str, list[str]]:
    """Return what a card says: its labels, each with the lines of text beside it."""
    node, done = moment.graph.nodes[name], moment.past.get(name)
    if done is None:
        gradient = [NOTHING_YET if moment.waits(name) else NO_GRADIENT]
    else:
        gradient = _with_before(_wrapped(done.passed_on), moment.before(name))
    grad = _wrapped(done.grad) if done and done.grad is not None else ["None"]
    return {"value": _wrapped(node.value), "gradient": gradient, ".grad": grad}


def _with_before(lines: list[str], before: Tensor | None) -> list[str]:
    """Add the gradient without hooks: a short one on the same line, a longer one below."""
    if before is None:
        return lines
    first, *others = _wrapped(before)
    was = [f"(was {first}", *[f"     {line}" for line in others]]
    was[-1] += ")"
    return [f"{lines[0]} {was[0]}"] if len(lines) == len(was) == before.numel() == 1 else lines + was


def _wrapped(tensor: Tensor) -> list[str]:
    """Return the values on as many lines as they need: the rows of a matrix one below the other, long rows broken."""
    lines: list[str] = []
    for word in format_tensor(tensor).replace("], [", "],\n [").split("\n"):
        line = ""
        for piece in word.split(", "):
            longer = f"{line}, {piece}" if line else piece
            if line and len(longer) > VALUE_CHARACTERS:
                lines.append(f"{line},")
                longer = f" {piece}"
            line = longer
        lines.append(line)
    return lines


def _heading(node: Node) -> str:
    return f"{node.name} = {node.formula}" if node.formula else node.name


def _kind_word(node: Node) -> str:
    return "" if node.kind == "result" else node.kind


def _arrange(moment: Moment, room: dict[str, dict[str, list[str]]]) -> _Layout:
    graph = moment.graph
    layer_of = _find_layers(graph)
    boxes = {name: _measure(moment, name, lines, layer_of[name]) for name, lines in room.items()}
    layers: list[list[_Box]] = [[] for _ in range(max(layer_of.values()) + 1)]
    for box in boxes.values():
        layers[box.layer].append(box)
    edges: dict[tuple[str, str], Chain] = {}
    for target, node in graph.nodes.items():
        for source in node.inputs:
            passing = [_Box(None, layer) for layer in range(layer_of[source] + 1, layer_of[target])]
            for box in passing:
                layers[box.layer].append(box)
            edges[source, target] = [boxes[source], *passing, boxes[target]]
    links = [link for chain in edges.values() for link in pairwise(chain)]
    _untangle(layers, links)
    _set_heights(layers, links)
    rows, bottoms, width = _set_places(layers, links)
    return _Layout(boxes, edges, _find_ports(edges), rows, bottoms, width, bottoms[-1])


def _find_layers(graph: Graph) -> dict[str, int]:
    """Put every operation to the right of its inputs, and every leaf just left of the first operation that needs it."""
    layers: dict[str, int] = {}
    for name, node in graph.nodes.items():
        layers[name] = 1 + max((layers[source] for source in node.inputs), default=-1)
    for name, node in graph.nodes.items():
        if not node.inputs:
            layers[name] = min(layers[other.name] for other in graph.nodes.values() if name in other.inputs) - 1
    first = min(layers.values())
    return {name: layer - first for name, layer in layers.items()}


def _measure(moment: Moment, name: str, room: dict[str, list[str]], layer: int) -> _Box:
    node = moment.graph.nodes[name]
    lines = [line for section in room.values() for line in section]
    heading = len(_heading(node)) * CHAR * 15 / 13 + len(_kind_word(node)) * 7.4 + 12
    body = LABELS + max(MIN_CHARACTERS, *map(len, lines)) * CHAR
    marks = sum(_mark_width(action) for action in moment.actions(name))
    width = max(heading, body, marks) + 2 * PADDING
    return _Box(name, layer, width, HEADER + len(lines) * LINE + 8, TAG if marks else 0)


def _mark_width(action: str) -> float:
    return len(ACTIONS[action].mark) * CHAR + 30


def _untangle(layers: list[list[_Box]], links: list[tuple[_Box, _Box]]) -> None:
    """Order each column so that few edges cross: every box near the mean place of its neighbours, best order kept."""
    before, after = defaultdict(list), defaultdict(list)
    for left, right in links:
        before[right].append(left)
        after[left].append(right)
    best, fewest = [list(layer) for layer in layers], _count_crossings(layers, links)
    for sweep in range(8):
        neighbours, order = (before, layers) if sweep % 2 == 0 else (after, layers[::-1])
        for layer in order:
            place = {box: number for other in layers for number, box in enumerate(other)}
            mean = {box: _mean([place[n] for n in neighbours[box]], place[box]) for box in layer}
            layer.sort(key=mean.__getitem__)
        crossings = _count_crossings(layers, links)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    layers[:] = best


def _mean(numbers: list[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _count_crossings(layers: list[list[_Box]], links: list[tuple[_Box, _Box]]) -> int:
    place = {box: number for layer in layers for number, box in enumerate(layer)}
    spans = [(left.layer, place[left], place[right]) for left, right in links]
    return sum(
        one[0] == two[0] and (one[1] - two[1]) * (one[2] - two[2]) < 0
        for number, one in enumerate(spans)
        for two in spans[:number]
    )


def _set_heights(layers: list[list[_Box]], links: list[tuple[_Box, _Box]]) -> None:
    """Set every y: first stacked, then each column drawn towards its neighbours as far as its boxes allow."""
    around = defaultdict(lambda: ([], []))
    for left, right in links:
        around[left][1].append(right)
        around[right][0].append(left)
    for layer in layers:
        _stack(layer, [0.0] * len(layer))
    for sweep in range(12):
        for layer in layers if sweep % 2 == 0 else layers[::-1]:
            wished = []
            for box in layer:
                left, right = around[box]
                near = left + right if sweep > 7 else (left if sweep % 2 == 0 else right) or left + right
                wished.append(_mean([other.middle for other in near], box.middle) - box.height / 2)
            _stack(layer, wished)
    for layer in layers:  # a chain is drawn straight
        chained = {box: around[box][0][0] for box in layer if len(around[box][0]) == 1}
        straight = {box: before.middle for box, before in chained.items() if len(around[before][1]) == 1}
        _stack(layer, [straight.get(box, box.middle) - box.height / 2 for box in layer])


def _stack(layer: list[_Box], wished: list[float]) -> None:
    """Place boxes in their order, without overlap, as near to the wished tops as can be (least squares).

    Boxes that would overlap are merged into blocks, and a block sits at the mean of what its boxes wish: the
    pool-adjacent-violators algorithm of isotonic regression.
    """
    offsets, offset = [], 0.0
    for box in layer:
        offset += box.above
        offsets.append(offset)
        offset += box.height + GAP_Y
    blocks: list[list[float]] = []
    for wish, start in zip(wished, offsets, strict=True):
        blocks.append([wish - start, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (low, few), (high, many) = blocks.pop(), blocks.pop()
            blocks.append([(low * few + high * many) / (few + many), few + many])
    places = [place for place, size in blocks for _ in range(int(size))]
    for box, place, start in zip(layer, places, offsets, strict=True):
        box.y = place + start


def _set_places(layers: list[list[_Box]], links: list[tuple[_Box, _Box]]) -> tuple[list[int], list[float], float]:
    """Set every x, breaking the columns into rows no wider than the page; return rows, their ends, and the width."""
    widths = [max(box.width for box in layer) for layer in layers]
    tracks = max(sum(left.layer == layer for left, _ in links) for layer in range(len(layers)))
    side = MARGIN + TRACK * tracks
    if MARGIN + sum(widths) + GAP_X * len(layers) <= WIDTH:
        side = MARGIN  # one row: no lines lead around the margins
    rows, starts, x, row = [], [], float(side), 0
    for width in widths:
        if rows and x + width + max(side, GAP_X) > WIDTH and x > side:
            x, row = float(side), row + 1
        rows.append(row)
        starts.append(x)
        x += width + GAP_X
    top, bottoms = 0.0, []
    for number in range(row + 1):
        boxes = [box for layer, here in zip(layers, rows, strict=True) if here == number for box in layer]
        shift = top - min(box.y - box.above for box in boxes)
        for box in boxes:
            box.y += shift
            box.x, box.width = starts[box.layer], widths[box.layer]
        bottoms.append(max(box.y + box.height for box in boxes))
        leaving = sum(rows[left.layer] == number != rows[right.layer] for left, right in links)
        top = bottoms[-1] + GAP_Y + TRACK * (leaving + 1)
    end = max(start + width for start, width in zip(starts, widths, strict=True))
    return rows, bottoms, end + max(side if row else 0, GAP_X)


def _find_ports(edges: dict[tuple[str, str], Chain]) -> dict[tuple[str, str], float]:
    """Spread the edges that enter one card, in the order in which they come in from above to below."""
    entering = defaultdict(list)
    for (source, target), chain in edges.items():
        entering[target].append((chain[-2].middle, source))
    ports = {}
    for target, sources in entering.items():
        for number, (_, source) in enumerate(sorted(sources)):
            ports[source, target] = (number - (len(sources) - 1) / 2) * 28
    return ports


# The parts of the picture ------------------------------------------------------------------------------------------


def _by_importance(moment: Moment, layout: _Layout) -> list[tuple[str, str]]:
    """Return the edges, those that carry the newest gradient last, so that they are drawn on top."""
    return sorted(layout.edges, key=lambda edge: _edge_state(moment, edge))


def _edge_state(moment: Moment, edge: tuple[str, str]) -> int:
    """Return 0 while no gradient has come back along the edge, 1 when it has, 2 when it just does."""
    source, target = edge
    carried = source in moment.past and any(sender == target for sender, _ in moment.past[source].parts)
    return 2 if carried and moment.current.node == source else int(carried)


def _draw_edge(moment: Moment, layout: _Layout, edge: tuple[str, str]) -> str:
    source, target = edge
    chain, port, state = layout.edges[edge], layout.ports[edge], _edge_state(moment, edge)
    path = _trace(layout, chain, port)
    colour, thickness = (GRADIENT, 3 if state == 2 else 1.6) if state else ("currentColor", 1.4)
    dashes = ' stroke-dasharray="4 4"' if not moment.graph.nodes[source].requires_grad else ""
    opacity = "" if state else f' opacity="{FAINT}"'
    x, y = chain[-1].x, chain[-1].middle + port
    parts = [f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{thickness}"{dashes}{opacity}/>']
    if state:
        parts.append(_head(chain[0].x + chain[0].width + 1, chain[0].middle, -1, GRADIENT, 7 if state == 2 else 5))
    else:
        parts.append(_head(x - 1, y, 1, "currentColor", 5, FAINT))
    if state == 2:
        sent = " + ".join(format_tensor(grad) for sender, grad in moment.current.parts if sender == target)
        rising = chain[-2].middle < y  # seen from here: the label goes where the line does not
        if len(sent) <= 4 and layout.rows[chain[-2].layer] == layout.rows[chain[-1].layer]:
            words = draw_text(x - 7, y + (16 if rising else -7), sent, family=MONO, anchor="end", weight=700)
            parts.append(words)
    return "".join(parts)


def _trace(layout: _Layout, chain: Chain, port: float) -> str:
    """Return the path of an edge: curves between columns, straight through them, around the margin to the next row."""
    x, y = chain[0].x + chain[0].width, chain[0].middle
    path = f"M{px(x)} {px(y)}"
    for left, right in pairwise(chain):
        end_x, end_y = right.x, right.middle + (port if right.name else 0)
        if layout.rows[left.layer] == layout.rows[right.layer]:
            half = (x + end_x) / 2
            path += f" C{px(half)} {px(y)} {px(half)} {px(end_y)} {px(end_x)} {px(end_y)}"
        else:
            path += _turn(layout, chain, left, (x, y), (end_x, end_y))
        x, y = end_x + right.width, end_y
        if right.name is None:
            path += f" H{px(x)}"
    return path


def _turn(layout: _Layout, chain: Chain, left: _Box, start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return the way from the last column of a row to the first of the next; each such edge has a track of its own."""
    crossing = [
        (-box.middle, number, other)
        for number, other in enumerate(layout.edges.values())
        for box in other[:-1]
        if box.layer == left.layer
    ]
    crossing = [other for _, _, other in sorted(crossing, key=lambda entry: entry[:2])]  # the lowest turns first
    track = crossing.index(chain)
    right = start[0] + 14 + TRACK * track
    below = layout.bottoms[layout.rows[left.layer]] + TRACK * (track + 1)
    side = end[0] - 14 - TRACK * (len(crossing) - 1 - track)
    return _rounded([start, (right, start[1]), (right, below), (side, below), (side, end[1]), end])


def _rounded(points: list[tuple[float, float]], radius: float = 6) -> str:
    """Return straight lines through the points, their corners rounded; the pen is at the first point already."""
    path = ""
    for (x0, y0), (x1, y1), (x2, y2) in zip(points, points[1:], points[2:], strict=False):
        first, second = math.hypot(x1 - x0, y1 - y0) or 1, math.hypot(x2 - x1, y2 - y1) or 1
        r = min(radius, first / 2, second / 2)
        path += f" L{px(x1 - (x1 - x0) / first * r)} {px(y1 - (y1 - y0) / first * r)}"
        path += f" Q{px(x1)} {px(y1)} {px(x1 + (x2 - x1) / second * r)} {px(y1 + (y2 - y1) / second * r)}"
    return f"{path} L{px(points[-1][0])} {px(points[-1][1])}"


def _draw_start(moment: Moment, layout: _Layout) -> str:
    """Draw the gradient 1 that backward begins with, coming in from the right."""
    if not moment.step:
        return ""
    box, now = layout.cards[moment.graph.result], moment.step == 1
    x, y = box.x + box.width, box.middle
    line = f'<path d="M{px(x + 4)} {px(y)} H{px(x + 34)}" stroke="{GRADIENT}" stroke-width="{3 if now else 1.6}"/>'
    word = draw_text(x + 22, y - 8, "1", family=MONO, anchor="middle", weight=700) if now else ""
    return line + _head(x + 1, y, -1, GRADIENT, 7 if now else 5) + word


def _draw_card(moment: Moment, box: _Box, room: dict[str, list[str]]) -> str:
    name = box.name
    node = moment.graph.nodes[name]
    now = moment.current is not None and moment.current.node == name
    stroke, thickness = (GRADIENT, 3) if now else ("currentColor", 1.3)
    dashes = "" if node.requires_grad else ' stroke-dasharray="5 4"'
    left, right = box.x + PADDING, box.x + box.width - PADDING
    parts = [
        f'<rect x="{px(box.x)}" y="{px(box.y)}" width="{px(box.width)}" height="{px(box.height)}" '
        f'rx="{14 if node.is_leaf else 3}" fill="currentColor" fill-opacity="0.05" stroke="{stroke}" '
        f'stroke-width="{thickness}"{dashes}/>',
        f'<path d="M{px(box.x)} {px(box.y + HEADER)} h{px(box.width)}" stroke="currentColor" stroke-opacity="0.25"/>',
        draw_text(left, box.y + 19, _heading(node), size=15, family=MONO, weight=700),
        draw_text(right, box.y + 19, _kind_word(node), anchor="end", style="italic") if _kind_word(node) else "",
    ]
    top = box.y + HEADER + LINE - 2
    for label, lines in _card_lines(moment, name).items():
        empty = lines[0] in (NOTHING_YET, NO_GRADIENT, "None")
        weight = 700 if now and label != "value" and not empty else 400
        parts.append(draw_text(left, top, label, opacity=0.75))
        parts += [
            draw_text(
                left + LABELS, top + number * LINE, line, family=MONO, weight=weight, opacity=0.65 if empty else 1
            )
            for number, line in enumerate(lines)
        ]
        top += LINE * len(room[label])
    return "".join([*parts, *_draw_marks(moment, box)])


def _draw_marks(moment: Moment, box: _Box) -> Iterator[str]:
    """Draw the hooks of a card on its upper edge, in the order in which they run."""
    x = box.x + box.width - sum(_mark_width(action) for action in moment.actions(box.name))
    for action in moment.actions(box.name):
        yield _draw_mark(x, box.y - TAG, action)
        x += _mark_width(action)


def _draw_mark(x: float, y: float, action: str) -> str:
    tag = (
        f'<rect x="{px(x)}" y="{px(y)}" width="{px(_mark_width(action) - 6)}" height="{TAG - 2}" rx="9" '
        f'fill="{HOOK}" fill-opacity="0.14" stroke="{HOOK}" stroke-width="1.4"/>'
    )
    return tag + _hook_sign(x + 12, y + 3) + draw_text(x + 18, y + 14, ACTIONS[action].mark, family=MONO, weight=600)


def _hook_sign(x: float, y: float) -> str:
    """Draw a small fish hook."""
    return (
        f'<path d="M{px(x)} {px(y)} v7 a3.2 3.2 0 0 1 -6.4 0 v-1.6" fill="none" stroke="{HOOK}" stroke-width="1.8" '
        f'stroke-linecap="round"/>'
    )


def _draw_legend(width: float, y: float) -> str:
    forward = f'<path d="M0 -4 H16" stroke="currentColor" opacity="{FAINT}"/>'
    backward = f'<path d="M6 -4 H22" stroke="{GRADIENT}" stroke-width="2.4"/>'
    entries = [
        ("leaf", '<rect y="-11" width="22" height="14" rx="6" fill="none" stroke="currentColor"/>'),
        ("result of an operation", '<rect y="-11" width="22" height="14" rx="2" fill="none" stroke="currentColor"/>'),
        ("forward", forward + _head(22, -4, 1, "currentColor", 5, FAINT)),
        ("gradient coming back", backward + _head(0, -4, -1, GRADIENT, 6)),
        ("hook", _hook_sign(16, -11)),
    ]
    widths = [30 + len(words) * 6.7 + 24 for words, _ in entries]
    x, parts = (width - sum(widths) + 24) / 2, []
    for (words, sign), step in zip(entries, widths, strict=True):
        parts.append(f'<g transform="translate({px(x)} {px(y)})">{sign}{draw_text(29, 0, words, opacity=0.8)}</g>')
        x += step
    return "".join(parts)


def _head(x: float, y: float, direction: int, colour: str, size: float, opacity: float = 1) -> str:
    """Draw an arrowhead with its tip at (x, y); direction 1 points to the right, -1 to the left."""
    back = x - direction * size * 1.6
    faint = "" if opacity == 1 else f' opacity="{opacity}"'
    points = f"{px(x)},{px(y)} {px(back)},{px(y - size)} {px(back)},{px(y + size)}"
    return f'<polygon points="{points}" fill="{colour}"{faint}/>'
