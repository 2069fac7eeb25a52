"""The explorer of a model's hooks: follow a call through its modules and backward's way back, past the hooks.

The hooks exist for one run only, on a model made for that run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import ipywidgets as widgets
import torch
from torch import Tensor, nn

from course_utils.explorers import markup
from course_utils.explorers.graph import format_tensor
from course_utils.explorers.markup import BLUE, MONO, ORANGE, draw_box, draw_text, px
from course_utils.explorers.panel import STEPS, WRAPPED, Explorer, View, make_choice, make_steps
from course_utils.hooks.inventory import CALL_KINDS
from course_utils.hooks.record import map_tensors, tensors_in, watch_gradient
from course_utils.root import require
from course_utils.vision.toys import MODELS

LOOK, ZERO = "look", "replace by zero"
EFFECTS = {LOOK: "looks", ZERO: "returns zeros"}
# What a hook of each kind is told, in the order in which it is known, and where in its arguments that is.
TOLD = {
    "forward pre-hook": {"input": 0},
    "forward hook": {"output": 1},
    "full backward pre-hook": {"grad_output": 0},
    "full backward hook": {"grad_output": 1, "grad_input": 0},
}
WIDTH, TOP, LANE, INDENT, PAD = 860, 40, 60, 14, 8  # what a hook tells fits between the two ways
LINE, BOX, MIDDLE = 24, 34, 11  # heights of a line and of a module, and where the middle of a line is
ROOM = 3  # so many hooks fit in before the picture grows


class Placement(NamedTuple):
    """Where a hook sits (a dotted name), which of `CALL_KINDS` it is, and which of `EFFECTS` it has."""

    module: str
    kind: str
    effect: str = LOOK

    @property
    def title(self) -> str:
        """Which hook it is, in a sentence."""
        return f"the {self.kind} on {self.module or 'the model'}"

    def __str__(self) -> str:
        return f"{self.module or 'the model'}: {self.kind}, {self.effect}"


def module_names(model: str) -> list[str]:
    """Return the dotted names of the modules of one of `MODELS`, in its own order; "" is the model itself."""
    return [name for name, _ in MODELS[model].make().named_modules()]


def read_placements(model: str, hooks: Iterable[Sequence[str]]) -> list[Placement]:
    """Check hooks such as `("relu", "forward hook", "look")`; raises `CourseError` for what does not exist."""
    names, placements = module_names(model), [Placement(*hook) for hook in hooks]
    for placement in placements:
        require("Modules", placement.module, names)
        require("Kinds of hooks", placement.kind, CALL_KINDS)
        require("Effects", placement.effect, EFFECTS)
    return placements


Key = tuple[str, str, int, int]  # the first four fields of an `Event`


class Event(NamedTuple):
    """Something that happened: a module's call began ("call") or gave its "output", the "gradient" of that output was
    computed, or a "hook" ran. Last comes the gradient of the input of the model, named "x".

    call: which call of the module it was, from 0. value: the output or gradient; of a hook, what it was told, by name.
    hook: its place in the order of registration.
    """

    what: str
    module: str
    call: int = 0
    hook: int = -1
    value: Tensor | Mapping[str, Tensor] | None = None

    @property
    def key(self) -> Key:
        """Which event it is, whatever its value."""
        return self[:4]


@dataclass(eq=False)
class HookedRun:
    """What happened, in its order: `types` has the type of each module, `gradient` is that of the input `x`.

    Where the call raised, `error` has the first sentence, and `output` and `gradient` are None.
    """

    hooks: list[Placement]
    x: Tensor
    types: dict[str, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    output: Tensor | None = None
    gradient: Tensor | None = None
    error: str = ""

    @property
    def fired(self) -> list[int]:
        """The numbers of the hooks in the order of firing."""
        return [event.hook for event in self.events if event.what == "hook"]

    def count(self, what: str, module: str, hook: int = -1) -> int:
        return sum((event.what, event.module, event.hook) == (what, module, hook) for event in self.events)

    def see_call(self, name: str, *_: Any) -> None:
        self.events.append(Event("call", name, self.count("call", name)))

    def see_output(self, stack: ExitStack, name: str, module: nn.Module, args: tuple, output: Tensor) -> None:
        call = self.count("output", name)
        self.events.append(Event("output", name, call, value=output.detach().clone()))
        watch_gradient(stack, output, lambda grad: self.see_gradient(name, call, grad))

    def see_gradient(self, name: str, call: int, gradient: Tensor) -> None:
        self.events.append(Event("gradient", name, call, value=gradient.clone()))

    def run_hook(self, number: int, placement: Placement, module: nn.Module, *seen: Any) -> Any:
        """Do what a hook does, and note it. Of `MODELS`, none comes backward to two calls of one module."""
        name, kind, effect = placement
        told = {words: tensors_in(seen[place])[0].detach().clone() for words, place in TOLD[kind].items()}
        self.events.append(Event("hook", name, self.count("call", name) - 1, number, told))
        if effect == ZERO:
            # what it may replace is the first thing it sees, or the output in a forward hook
            replaceable = seen[-1] if kind == "forward hook" else seen[0]
            return map_tensors(lambda tensor: tensor * 0, replaceable)  # times 0, so that it stays in the graph
        return None


@torch.inference_mode(False)
@torch.enable_grad()
def run_with_hooks(model: str, hooks: Iterable[Sequence[str]] = ()) -> HookedRun:
    """Make one of `MODELS`, register hooks in the order given, run forward, and backward from the sum of the output.

    Raises `CourseError` for hooks that do not exist.
    """
    placements, example = read_placements(model, hooks), MODELS[model]
    with ExitStack() as stack:
        network, x = example.make(), torch.tensor([example.x], dtype=torch.float32, requires_grad=True)
        run = HookedRun(placements, x.detach())
        for name, module in network.named_modules():
            run.types[name] = type(module).__name__ + (", in place" if getattr(module, "inplace", False) else "")
            stack.enter_context(module.register_forward_pre_hook(partial(run.see_call, name)))
        for number, placement in enumerate(placements):
            method = f"register_{placement.kind.replace(' ', '_').replace('-', '_')}"
            register = getattr(network.get_submodule(placement.module), method)
            stack.enter_context(register(partial(run.run_hook, number, placement)))
        for name, module in network.named_modules():
            stack.enter_context(module.register_forward_hook(partial(run.see_output, stack, name)))
        try:
            output = network(x)
            (run.gradient,) = torch.autograd.grad(output.sum(), x)
            run.output = output.detach()
            run.see_gradient("x", 0, run.gradient)
        except RuntimeError as raised:
            run.error = str(raised).split(". ")[0]
    return run


def find_outer(run: HookedRun) -> set[str]:
    """Return the names of the modules that have others inside."""
    return {name.rpartition(".")[0] for name in run.types if name}


def choose_stops(run: HookedRun) -> list[Event]:
    """Return the events to stop at: hooks, and what the modules give and get that have no others inside."""
    outer = find_outer(run)
    told = [each for each in run.events if each.what != "call"]
    return [each for each in told if each.what == "hook" or each.module not in outer]


def tell_hooks(model: str, hooks: Iterable[Sequence[str]] = (), step: int = -1) -> View:
    """Run a model with hooks and without, and tell and draw what has happened after some steps.

    step: 0 (nothing has) to the number of `choose_stops`; negative numbers count from the end, -1 is the last.
    """
    run, plain = run_with_hooks(model, hooks), run_with_hooks(model)
    stops = choose_stops(run)
    step = range(len(stops) + 1)[step]
    now = stops[step - 1] if step else None
    past = run.events[: run.events.index(now) + 1] if step else []
    title = f"Step {step} of {len(stops)}: {_tell_event(run, now)}" if step else "The call has not begun"
    sentence = f"{title}."
    if now and now.what == "hook":
        sentence += f" It {tell_hook(run, now)}."
    if not step:
        sentence += f" {_count(run.hooks)}"
    elif step == len(stops):
        sentence += f" {_summarise(run, plain)}"
    picture = Ladder(run, plain, past)
    return View(picture.draw(title, sentence), sentence, facts=picture.lines)


def _tell_event(run: HookedRun, event: Event) -> str:
    if event.what == "output":
        return f"{event.module} returns {format_tensor(event.value[0])}"
    if event.what == "gradient":
        where = "the input" if event.module == "x" else f"the output of {event.module}"
        return f"the gradient {format_tensor(event.value[0])} reaches {where}"
    return f"{run.hooks[event.hook].title} fires"


def tell_hook(run: HookedRun, event: Event) -> str:
    told = " and ".join(f"{name} {format_tensor(value[0])}" for name, value in event.value.items())
    return f"sees {told}" + (" and returns zeros" if run.hooks[event.hook].effect == ZERO else "")


def _count(hooks: Sequence[Placement]) -> str:
    count = {0: "No hook is", 1: "1 hook is"}.get(len(hooks), f"{len(hooks)} hooks are")
    return f"{count} registered."


def _summarise(run: HookedRun, plain: HookedRun) -> str:
    told = f"{_count(run.hooks)} "
    if fired := [run.hooks[number] for number in run.fired]:
        turns = [f"{turn}. {hook.title} {EFFECTS[hook.effect]}" for turn, hook in enumerate(fired, 1)]
        told += f"In the order of firing: {'; '.join(turns)}. "
    if run.error:
        why = "makes views of what goes in and out of its module, and the in-place ReLU may not write into a view"
        return f"{told}The call raises RuntimeError: {run.error}. A full backward hook or pre-hook {why}."
    same = run.output.equal(plain.output) and run.gradient.equal(plain.gradient)
    begin = "Nothing changes: the output" if run.hooks and same else "The output"
    words = "" if same else " as without hooks"
    output, gradient = _beside(run.output, plain.output, words), _beside(run.gradient, plain.gradient, words)
    return f"{told}{begin} is {output}, and the gradient of the input is {gradient}."


def _beside(after: Tensor, before: Tensor, same: str) -> str:
    return format_tensor(after[0]) + (same if after.equal(before) else f" ({format_tensor(before[0])} without hooks)")


class Line(NamedTuple):
    """A line of the picture at the height `y`: a value with its gradient, a module's call, or a hook.

    what: "value", "box" (a module without others inside), "open" and "close" (one with others), or "hook".
    down, up: what stands on the way of the call and on that of backward, as far as it has happened.
    """

    what: str
    module: str
    call: int
    hook: int
    y: float
    down: str = ""
    up: str = ""

    def tells(self) -> bool:
        return bool(self.down or self.up)

    def __str__(self) -> str:
        said = (f"{way} {words}" for way, words in (("forward", self.down), ("backward", self.up)) if words)
        return f"{self.module or 'the model'}: {', '.join(said)}"


class Ladder:
    """The picture of a run: the call goes down on the left through the modules, backward comes up on the right.

    past: the events so far, the last of which is happening now.
    """

    def __init__(self, run: HookedRun, plain: HookedRun, past: Sequence[Event]) -> None:
        self.run = run
        self.past = {event.key: event for event in past}
        self.now = past[-1] if past else None
        self.plain = {event.key: event for event in plain.events}
        self.lines, self.end = [], TOP
        for line in self._list_lines(plain):
            self.lines.append(line._replace(y=self.end))
            self.end += {"box": BOX, "close": PAD}.get(line.what, LINE)

    def _list_lines(self, plain: HookedRun) -> Iterator[Line]:
        """What stands below each other, after the calls without hooks: with them, a call may have raised."""
        outer = find_outer(plain)
        x = f"x = {format_tensor(self.run.x[0])}"
        yield Line("value", "x", 0, -1, 0, x, self._compare("gradient", "x", 0))
        for event in plain.events:
            name, call, is_outer = event.module, event.call, event.module in outer
            if event.what == "call":
                yield from self._list_stations(name, call, "forward pre-hook", "full backward hook")
                yield Line("open" if is_outer else "box", name, call, -1, 0)
            elif event.what == "output":
                if is_outer:
                    yield Line("close", name, call, -1, 0)
                yield from self._list_stations(name, call, "forward hook")
                if not name or not is_outer or any(hook.module == name for hook in self.run.hooks):
                    down, up = (self._compare(what, name, call) for what in ("output", "gradient"))
                    yield Line("value", name, call, -1, 0, down, up)
                yield from self._list_stations(name, call, "full backward pre-hook")

    def _list_stations(self, module: str, call: int, *kinds: str) -> Iterator[Line]:
        """The hooks of these kinds on a module, from the top: backward comes up, and meets the lowest one first."""
        for kind in kinds:
            here = [number for number, hook in enumerate(self.run.hooks) if hook[:2] == (module, kind)]
            for number in reversed(here) if "backward" in kind else here:
                key = ("hook", module, call, number)
                does = f"{kind}: {self.run.hooks[number].effect}"
                if key in self.past:
                    turn = 1 + [past for past in self.past if past[0] == "hook"].index(key)
                    does = f"{turn}: {kind} {tell_hook(self.run, self.past[key])}"
                yield Line("hook", module, call, number, 0, **{"up" if "backward" in kind else "down": does})

    def _compare(self, what: str, module: str, call: int) -> str:
        key = (what, module, call, -1)
        if key not in self.past:
            return ""
        now, was = (format_tensor(events[key].value[0]) for events in (self.past, self.plain))
        return now if now == was else f"{now} (was {was})"

    def draw(self, title: str, sentence: str) -> str:
        """Return the picture as SVG."""
        end, opacity = self.end + LINE * max(0, ROOM - len(self.run.hooks)) + 6, 0.8
        body = [self._draw_way(down=True), self._draw_way(down=False), *map(self._draw_line, self.lines)]
        body.append(draw_text(LANE - 6, self.end + 18, "\N{DOWNWARDS ARROW} the call", opacity=opacity))
        body.append(draw_text(WIDTH - LANE + 6, self.end + 18, "backward \N{UPWARDS ARROW}", "end", opacity))
        return markup.draw_picture(
            WIDTH, end + 20, title, sentence, "".join(body), map(str, filter(Line.tells, self.lines))
        )

    def _draw_way(self, down: bool) -> str:
        """One of the two ways, in colour as far as it was gone, with what moves on its last piece now."""
        x, colour = (LANE, BLUE) if down else (WIDTH - LANE, ORANGE)
        first, last = (TOP + 4, self.end) if down else (self.end, TOP + 4)
        gone = [first, *(self._find(event).y + MIDDLE for event in self.past.values() if self._is_on(event, down))]
        drawn = f'<path d="M{x} {first} V{last}" stroke="currentColor" stroke-width="1.4" opacity="0.55"/>'
        drawn += f'<path d="M{x} {first} V{px(gone[-1])}" stroke="{colour}" stroke-width="3"/>'
        if len(gone) > 1 or down:
            tip = "l6 9 l6 -9z" if down else "l6 -9 l6 9z"
            drawn += f'<path d="M{x - 6} {px(gone[-1])} {tip}" fill="{colour}"/>'
        if self.now and self._is_on(self.now, down):
            drawn += markup.fill("moving", orange=colour, path=f"M{x} {px(gone[-1])} V{px(gone[-2])}")
        return drawn

    def _is_on(self, event: Event, down: bool) -> bool:
        line = self._find(event)
        if line is None or event.what == "call":
            return False
        return bool(line.down) == down if event.what == "hook" else (event.what == "output") == down

    def _find(self, event: Event) -> Line | None:
        what = "hook" if event.what == "hook" else "value"
        return next((line for line in self.lines if line[:4] == (what, *event.key[1:])), None)

    def _draw_line(self, line: Line) -> str:
        if line.what == "hook":
            return self._draw_station(line)
        if line.what in ("box", "open"):
            return self._draw_module(line)
        y, here = line.y + 16, self.now and self._find(self.now) is line
        look = {"family": MONO, "weight": 700 if here else 400}
        return draw_text(LANE + 14, y, line.down, **look) + draw_text(WIDTH - LANE - 14, y, line.up, "end", **look)

    def _draw_station(self, line: Line) -> str:
        """A dot on the way, larger when its hook fires now, and the words of the hook beside it."""
        x, beside, anchor = (LANE, 14, "start") if line.down else (WIDTH - LANE, -14, "end")
        is_now = self.now is not None and self.now.key == line[:4]
        dot = f'<circle cx="{x}" cy="{line.y + MIDDLE}" r="{10 if is_now else 6}" fill="{BLUE}"/>'
        weight = 600 if is_now else 400
        return dot + draw_text(x + beside, line.y + 16, line.down or line.up, anchor, weight=weight)

    def _draw_module(self, line: Line) -> str:
        depth = line.module.count(".") + 1 if line.module else 0
        edge, height = 8 + INDENT * depth, BOX - 8
        if line.what == "open":
            (closed,) = [each.y for each in self.lines if each[:3] == ("close", line.module, line.call)]
            height = closed - line.y
        here = self.now is not None and self.now.what != "hook" and self.now.key[1:3] == line[1:3]
        colour = BLUE if here and self.now.what == "output" else ORANGE
        look = f'stroke="{colour}" stroke-width="3"' if here else 'stroke="currentColor" stroke-opacity="0.6"'
        box = draw_box(edge, line.y + 1, WIDTH - 2 * edge, height, 6, f'fill="currentColor" fill-opacity="0.05" {look}')
        name = line.module.rpartition(".")[2] or "model"
        y, middle = line.y + 18, WIDTH / 2
        words = draw_text(middle - 6, y, name, "end", family=MONO, weight=700)
        return box + words + draw_text(middle + 6, y, self.run.types[line.module], style="italic")


class ModelHooks(Explorer):
    """Register hooks on the modules of a small model, remove them, and see what they see and change.

    model: one of `toys.MODELS`.
    hooks: the hooks to begin with, in the order of registration: `(module, kind)` or `(module, kind, effect)`, of
        `CALL_KINDS` and `EFFECTS`; the module is a dotted name, "" is the model itself.
    step: the step to open at: 0 before the call, -1 after the last.
    """

    lines = 5

    def __init__(self, model: str = "small net", hooks: Iterable[Sequence[str]] = (), *, step: int = 0) -> None:
        drop, button = widgets.Dropdown, {"layout": {"width": "96px"}}
        controls = {
            "model": make_choice(drop, "Model", [*MODELS], model, width=260),
            **make_steps(0, len(choose_stops(run_with_hooks(model, hooks))), step),
            "module": drop(description="Hook on", style={"description_width": "60px"}, layout={"width": "170px"}),
            "kind": make_choice(drop, "Kind", CALL_KINDS, "forward hook", width=235, indent=40),
            "effect": make_choice(drop, "that does", [*EFFECTS], LOOK, width=215, indent=70),
            "register": widgets.Button(description="Register", tooltip="Register this hook on the module", **button),
            "clear": widgets.Button(description="Remove all", tooltip="Remove all hooks from the model", **button),
            "hooks": widgets.HBox(layout={**WRAPPED, "min_height": "68px"}),
        }
        self._hooks = read_placements(model, hooks)
        rows = ("model", *STEPS), ("module", "kind", "effect", "register", "clear"), "picture", "sentence", "hooks"
        super().__init__(controls, rows)

    def use_clear(self) -> None:
        self._hooks = []

    use_model = use_clear  # another model begins without hooks

    def use_register(self) -> None:
        self._hooks.append(Placement(*(self.controls[part].value for part in ("module", "kind", "effect"))))

    def fit(self, name: str) -> None:
        """List the modules of another model; remove the hook whose button was pressed, and list the others."""
        if name in ("", "model"):
            names = module_names(self.controls["model"].value)
            self.controls["module"].options = [(each or "the model", each) for each in names]
            self.controls["module"].value = names[1]
        if name.startswith("remove "):
            del self._hooks[int(name.removeprefix("remove "))]
        if name in ("module", "kind", "effect", *STEPS):
            return  # the hooks are as they were
        words = "Hooks, in the order of registration (press to remove one):"
        buttons = {f"remove {number}": f"Remove {hook}" for number, hook in enumerate(self._hooks)}
        self.put_buttons("hooks", words if self._hooks else "No hook is registered.", buttons)
        self.controls["clear"].disabled = not self._hooks
        if name:
            run = run_with_hooks(self.controls["model"].value, self._hooks)
            self.put_steps(0, len(choose_stops(run)), 0)  # nothing is told before it is asked for

    def look(self, model: str, step: int, **_: object) -> View:
        """Tell the run of this model with the hooks that are registered, as far as it has come."""
        return tell_hooks(model, self._hooks, step)
