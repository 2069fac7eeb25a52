"""Pictures of one call, stopped at one moment: where it is, which hooks have fired, what has been computed.

moments = life_of_a_call(model, x, [("forward hook", "fc1")])
story = tell_call(moments, step=8, model=model, hooks=[("forward hook", "fc1")])
story.picture       # SVG, the same for every torch release
story.sentence      # the same in words
show_source(story.moment)   # HTML: the source of the active part in the installed torch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import torch
from torch import nn

from course_utils.explorers.svg import MONO, draw_text, px
from course_utils.hooks.call import Moment

WIDTH = 800
MAX_MODULES = 8
MODEL = "the model"
GLOBAL = "global"

# The parts of a call in the order in which they run, without those that wait for backward. The names are the course's
# own: the picture does not depend on the torch release.
LADDER = (
    "dispatch",
    "choose forward",
    "fast path",
    "collect backward pre-hooks",
    "collect backward hooks",
    "sort backward hooks",
    "forward pre-hooks",
    "wrap inputs",
    "forward",
    "forward hooks",
    "wrap outputs",
    "legacy backward hooks",
    "return",
    "after an exception",
)

Hooks = Sequence[tuple[str, str]]  # (kind, place), in the order of registration


# -- Which moments, and which hook comes next --------------------------------------------------------------------------


def choose_moments(moments: Sequence[Moment], *, skipped: bool = False) -> list[int]:
    """Return the places of the moments to stop at: with `skipped`, also parts whose condition did not hold."""
    return [place for place, moment in enumerate(moments) if skipped or moment.taken or moment.part is None]


def find_next_hook(moments: Sequence[Moment], place: int) -> int | None:
    """Return the place of the next hook that fires after `moments[place]`, None if there is none."""
    return next((i for i in range(place + 1, len(moments)) if moments[i].what == "hook"), None)


@dataclass(frozen=True)
class Guess:
    """A prediction of the next hook: what was said, what fired ("" for none), and on which module."""

    said: str
    fired: str
    module: str = ""

    @property
    def right(self) -> bool:
        return self.said == self.fired

    @property
    def sentence(self) -> str:
        """What came of it, in words."""
        if not self.fired:
            actual = "no hook fires any more"
        else:
            for_module = f", for {self.module or MODEL}" if self.fired.startswith(f"{GLOBAL}: ") else ""
            actual = f"the next to fire was {self.fired}{for_module}"
        return f"Right: {actual}." if self.right else f"Not this time: {actual}."


def guess_next_hook(moments: Sequence[Moment], place: int, said: str) -> tuple[Guess, int]:
    """Compare `said` (a hook such as "fc1: forward hook", or "" for none) with what fires after `moments[place]`.

    Returns the guess, and the place of the hook that fired, or of the last moment.
    """
    found = find_next_hook(moments, place)
    if found is None:
        return Guess(said, ""), len(moments) - 1
    return Guess(said, moments[found].hook, moments[found].module), found


# -- The story --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CallStory:
    """One moment of a call: the moment, a picture (SVG) and a sentence with its key facts."""

    moment: Moment
    picture: str
    sentence: str


def tell_call(
    moments: Sequence[Moment], place: int, model: nn.Module, hooks: Hooks, *, skipped: bool = False
) -> CallStory:
    """Draw the moment `moments[place]` and put it into words.

    `moments` come from `life_of_a_call(model, …, hooks)`. Raises `ValueError` for a model of more than 8 modules, and
    `IndexError` for a place that is not there.
    """
    names = [name for name, _ in model.named_modules()]
    if len(names) > MAX_MODULES:
        raise ValueError(
            f"the model has {len(names)} modules; a picture of a call holds at most {MAX_MODULES}: use a smaller model"
        )
    stops = choose_moments(moments, skipped=skipped)
    sentence = _tell(moments, place, stops)
    return CallStory(moments[place], _draw(moments, place, names, hooks, _title(moments[place]), sentence), sentence)


def _tell(moments: Sequence[Moment], place: int, stops: Sequence[int]) -> str:
    moment, where = moments[place], moments[place].module or MODEL
    at = stops.index(place) + 1 if place in stops else place + 1
    if moment.what == "part" and moment.part is not None:
        skipped = "" if moment.taken else ", skipped, because its condition does not hold"
        words = f"The call of {where}: {moment.part.name}{skipped}. {moment.part.does}"
    else:
        words = moment.sentence.split(". ")[0] if moment.what == "raises" else moment.sentence
        if words.startswith((MODEL, GLOBAL)):  # a layer's name keeps its small letter
            words = words[0].upper() + words[1:]
    value = f" {_show_value(moment)}." if moment.what in ("part", "gradient") and _show_value(moment) else ""
    fired = f"Hooks fired so far: {len(moment.fired)}."
    return f"Step {at} of {len(stops)}. {words.rstrip('.')}.{value} {fired}"


def _title(moment: Moment) -> str:
    where = moment.module or MODEL
    if moment.what == "hook":
        return f"A hook fires: {_name_hook(moment)}"
    if moment.what == "gradient":
        return f"Backward: the gradient of the output of {where} is there"
    if moment.what == "raises":
        return "The exception leaves the call"
    if moment.what == "warning":
        return "PyTorch warns"
    if moment.part is None:
        return "There is no backward pass"
    return f"The call of {where}: {moment.part.name}" + ("" if moment.taken else ", skipped")


def _name_hook(moment: Moment) -> str:
    """The hook that fires; of a global one, also for which module."""
    for_module = f", for {moment.module or MODEL}" if moment.hook.startswith(f"{GLOBAL}: ") else ""
    return f"{moment.hook}{for_module}"


def show_source(moment: Moment) -> str:
    """Return the source of the active part, from the installed torch, as HTML, with its line marked."""
    if moment.part is None:
        return _caption("No line of the call is running now: this is autograd, or the caller.")
    part, lines = moment.part, []
    for number, text in enumerate(part.source.rstrip("\n").splitlines(), part.first):
        line = f"{'►' if number == moment.line else ' '} {number}  {escape(text)}"
        lines.append(f"<b>{line}</b>" if number == moment.line else line)
    caption = _caption(
        f"“{part.name}”, lines {part.first} to {part.last} of its file, in {part.function} of your torch, "
        f"{torch.__version__}. "
        + ("The hook is called in there." if moment.what == "hook" else f"The call is at line {moment.line}.")
    )
    size = "box-sizing:border-box;max-width:100%;max-height:230px;overflow:auto"
    frame = "border:1px solid currentColor;padding:4px 8px"
    text = "margin:0;font-size:12px;line-height:1.45;color:inherit;background:none;white-space:pre"
    return (
        f'{caption}<div tabindex="0" role="region" aria-label="source of the part" style="{size};{frame}">'
        f'<pre style="{text}">' + "\n".join(lines) + "</pre></div>"
    )


def _caption(words: str) -> str:
    return f'<div style="font-size:13px;line-height:1.5;max-width:100%">{escape(words)}</div>'


# -- Drawing ----------------------------------------------------------------------------------------------------------

# Middle tones with a contrast above 3 on white and on #111, for lines only: text is always `currentColor`.
FORWARD, BACKWARD = "#3f82d8", "#d0602a"
FAINT = 0.75
LINE = 18
PAD = 10
GLOBAL_WIDTH = 190
LEAF_WIDTH = 186
RIGHT = 420  # where the list of hooks begins
MOST_LINES = 16
SHORT = {"always-called forward hook": "forward hook, always"}
BEFORE_FORWARD = LADDER[: LADDER.index("forward") + 1]


@dataclass(frozen=True)
class _Box:
    """A module, the lines about its hooks, and the modules inside it."""

    name: str
    lines: tuple[str, ...]
    inside: tuple[_Box, ...]

    @property
    def leaves(self) -> int:
        return sum(box.leaves for box in self.inside) or 1

    @property
    def height(self) -> int:
        inner = max((box.height for box in self.inside), default=0)
        return 30 + LINE * len(self.lines) + (inner + PAD if inner else 0)


def _draw(moments: Sequence[Moment], place: int, names: Sequence[str], hooks: Hooks, title: str, sentence: str) -> str:
    moment, top = moments[place], 40
    tree = _build_tree(names, hooks, moment)
    width = max(WIDTH, GLOBAL_WIDTH + tree.leaves * LEAF_WIDTH + 60)
    network_height = max(tree.height, 30 + LINE * max(1, sum(where == GLOBAL for _, where in hooks)))
    network = _draw_global(hooks, moment, top, network_height)
    network += _draw_box(tree, moment, GLOBAL_WIDTH + 12, top, width - GLOBAL_WIDTH - 16, network_height)
    below = top + network_height + 26
    left, right = _list_left(moments, place), _list_fired(moments, place)
    rows = max(len(left), len(right))
    height = below + 26 + rows * LINE + 32
    value = _show_value(moment)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}" '
        'style="max-width:100%;height:auto;color:var(--jp-ui-font-color1, currentColor)">'
        f"<title>{escape(title)}</title><desc>{escape(sentence)}</desc>"
        f"{draw_text(width / 2, 22, title, size=16, anchor='middle', weight=600)}{network}"
        f"{draw_text(8, below, value, family=MONO, size=12)}"
        f"{_draw_lines(left, 8, below + 28)}{_draw_lines(right, RIGHT, below + 28)}"
        f"{draw_text(8, height - 8, LEGEND, size=12, opacity=0.85)}</svg>"
    )


LEGEND = "► now   ● has fired, or has run   ○ waits   - skipped"


def _build_tree(names: Sequence[str], hooks: Hooks, moment: Moment, name: str = "") -> _Box:
    inside = [each for each in names if each and each.rpartition(".")[0] == name]
    return _Box(
        name, _hook_lines(hooks, moment, name), tuple(_build_tree(names, hooks, moment, each) for each in inside)
    )


def _hook_lines(hooks: Hooks, moment: Moment, place: str) -> tuple[str, ...]:
    """A line a hook: whether it waits, fires now, or has fired, and how often."""
    lines = []
    for kind, where in hooks:
        if where == place:
            label = f"{where or MODEL}: {kind}"
            count = moment.fired.count(label)
            sign = "►" if moment.hook == label else "●" if count else "○"
            lines.append(f"{sign} {SHORT.get(kind, kind)}" + (f" {count}\u00d7" if count > 1 else ""))
    return tuple(lines)


def _draw_box(box: _Box, moment: Moment, x: float, y: float, width: float, height: float) -> str:
    here = moment.module == box.name and moment.what in ("part", "hook", "gradient")
    title = (box.name.rpartition(".")[2] or MODEL) + ("  ◄ here" if here else "")
    drawing = _frame(x, y, width, height, BACKWARD if moment.phase == "backward" else FORWARD, here)
    drawing += draw_text(x + PAD, y + 19, title, weight=600) + _draw_hook_lines(box.lines, x + PAD, y + 37)
    inner_y = y + 28 + LINE * len(box.lines)
    room = width - 2 * PAD - 8 * (len(box.inside) - 1)
    x += PAD
    for child in box.inside:
        share = room * child.leaves / box.leaves
        drawing += _draw_box(child, moment, x, inner_y, share, y + height - PAD - inner_y)
        x += share + 8
    return drawing


def _draw_global(hooks: Hooks, moment: Moment, y: float, height: float) -> str:
    lines = _hook_lines(hooks, moment, GLOBAL)
    drawing = _frame(4, y, GLOBAL_WIDTH, height, FORWARD, False, dashed=True)
    drawing += draw_text(4 + PAD, y + 19, "global: all modules", weight=600)
    return drawing + _draw_hook_lines(lines or ("no hook",), 4 + PAD, y + 37)


def _draw_hook_lines(lines: Sequence[str], x: float, y: float) -> str:
    return "".join(
        draw_text(x, y + LINE * row, line, size=12, weight=600 if line.startswith("►") else 400)
        for row, line in enumerate(lines)
    )


def _list_left(moments: Sequence[Moment], place: int) -> list[str]:
    """The parts of the present call with what became of each; in backward, what has happened there so far."""
    if moments[place].phase == "backward":
        return _list_backward(moments, place)
    # A warning or an exception has no part of its own: show the call in which it came.
    anchor = next((i for i in range(place, -1, -1) if moments[i].part is not None), 0)
    module = moments[anchor].module
    reached: dict[str, bool] = {}
    for moment in reversed(moments[: anchor + 1]):
        if moment.module == module and moment.what == "part" and moment.part is not None:
            reached.setdefault(moment.part.name, moment.taken)
            if moment.part.name == LADDER[0]:
                break
    now = moments[anchor].part.name if anchor == place and moments[anchor].part else ""
    farthest = max((LADDER.index(name) for name in reached), default=-1)
    lines = [f"The call of {module or MODEL}"]
    for number, name in enumerate(LADDER):
        passed = "●" if reached.get(name) else "-"
        lines.append(f"{'►' if name == now else '○' if number > farthest else passed} {name}")
    return lines


def _list_backward(moments: Sequence[Moment], place: int) -> list[str]:
    lines = []
    for i, moment in enumerate(moments[: place + 1]):
        if moment.phase == "backward":
            where = moment.module or MODEL
            words = f"gradient of the output of {where}"
            if moment.what == "hook":
                words = _name_hook(moment)
            elif moment.what != "gradient":
                words = "no graph, no backward pass"
            lines.append(f"{'►' if i == place else '●'} {words}")
    return ["The backward pass", *_last_lines(lines)]


def _list_fired(moments: Sequence[Moment], place: int) -> list[str]:
    fired = [_name_hook(moment) for moment in moments[: place + 1] if moment.what == "hook"]
    lines = [f"{number}. {hook}" for number, hook in enumerate(fired, 1)]
    return ["Hooks fired so far", *(_last_lines(lines) or ["none"])]


def _last_lines(lines: list[str]) -> list[str]:
    if len(lines) <= MOST_LINES:
        return lines
    return [f"… {len(lines) - MOST_LINES + 1} earlier", *lines[-MOST_LINES + 1 :]]


def _draw_lines(lines: Sequence[str], x: float, y: float) -> str:
    """A heading and the lines under it; the present one is bold, what is skipped or still to come is faint."""
    drawing = draw_text(x, y, lines[0], weight=600)
    for row, line in enumerate(lines[1:], 1):
        opacity = FAINT if line.startswith(("-", "○")) else 1
        drawing += draw_text(x, y + 4 + LINE * row, line, weight=600 if line.startswith("►") else 400, opacity=opacity)
    return drawing


def _show_value(moment: Moment) -> str:
    if moment.values == "None":
        return ""
    words = {"gradient": "Gradient", "hook": "The hook sees"}.get(moment.what)
    if words is None:
        words = "Arguments" if moment.part is None or moment.part.name in BEFORE_FORWARD else "Output"
    text = f"{words}: {moment.values}"
    return text if len(text) <= 104 else f"{text[:103]}…"


def _frame(x: float, y: float, width: float, height: float, colour: str, here: bool, dashed: bool = False) -> str:
    line = f'stroke="{colour}" stroke-width="3"' if here else 'stroke="currentColor" stroke-opacity="0.55"'
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<rect x="{px(x)}" y="{px(y)}" width="{px(width)}" height="{px(height)}" rx="6" fill="none" {line}{dash}/>'
