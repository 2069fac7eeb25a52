"""The explorer of a model's hooks: register them, and see what they see and change, forward and backward.

The hooks exist for one run only, on a model made for that run.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import ipywidgets as widgets
import torch
from torch import Tensor, nn

from course_utils.explorers.graph import format_tensor
from course_utils.explorers.markup import MONO, draw_fish_hook, draw_picture, draw_text, make_label
from course_utils.explorers.panel import WRAPPED, Explorer, View, make_choice
from course_utils.hooks.inventory import CALL_KINDS
from course_utils.hooks.record import Call, map_tensors, record
from course_utils.root import require
from course_utils.vision.toys import MODELS

LOOK, ZERO = "look", "replace by zero"
EFFECTS = {LOOK: "looks", ZERO: "returns zeros"}
COLUMNS = ("module, shape", "output", "gradient of it")
WIDTH = 504  # at 0.72 of it, which can still be read, it fits a narrow page beside the list of files
LINE, PAD, HEAD, TOP = 19, 8, 26, 40


class Placement(NamedTuple):
    """Where a hook sits (a dotted name), which of `CALL_KINDS` it is, and which of `EFFECTS` it has."""

    module: str
    kind: str
    effect: str = LOOK

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


@dataclass(eq=False)
class HookedRun:
    """What happened: for each module its type, and its calls with their outputs and gradients.

    `fired` has the numbers of the hooks in the order of firing; `gradient` is that of the input `x`. Where the call
    raised, `error` has the first sentence, and `output` and `gradient` are None.
    """

    x: Tensor
    types: dict[str, str] = field(default_factory=dict)
    calls: dict[str, list[Call]] = field(default_factory=dict)
    fired: list[int] = field(default_factory=list)
    output: Tensor | None = None
    gradient: Tensor | None = None
    error: str = ""


@torch.inference_mode(False)
@torch.enable_grad()
def run_with_hooks(model: str, hooks: Iterable[Sequence[str]] = ()) -> HookedRun:
    """Make one of `MODELS`, register hooks in the order given, run forward, and backward from the sum of the output.

    Raises `CourseError` for hooks that do not exist.
    """
    placements, example = read_placements(model, hooks), MODELS[model]
    with ExitStack() as stack:
        network, x = example.make(), torch.tensor([example.x], dtype=torch.float32, requires_grad=True)
        run = HookedRun(x.detach())
        for name, module in network.named_modules():
            run.types[name] = type(module).__name__ + (", in place" if getattr(module, "inplace", False) else "")
        for number, placement in enumerate(placements):
            method = f"register_{placement.kind.replace(' ', '_').replace('-', '_')}"
            register = getattr(network.get_submodule(placement.module), method)
            stack.enter_context(register(partial(_fire, number, placement, run.fired)))
        seen = stack.enter_context(record(network, nn.Module, gradients=True))
        try:
            output = network(x)
            (run.gradient,) = torch.autograd.grad(output.sum(), x)
            run.output = output.detach()
        except RuntimeError as raised:
            run.error = str(raised).split(". ")[0]
        run.calls = {name: layer.calls for name, layer in seen.items()}
    return run


def _fire(number: int, placement: Placement, fired: list[int], module: nn.Module, *seen: Any) -> Any:
    fired.append(number)
    if placement.effect == ZERO:
        # what it may replace is the first thing it sees, or the output in a forward hook
        replaceable = seen[-1] if placement.kind == "forward hook" else seen[0]
        return map_tensors(lambda tensor: tensor * 0, replaceable)  # times 0, so that it stays in the graph
    return None


class ModuleRow(NamedTuple):
    """A row of the picture: the input or a module, with the shape of its output; a list has a text for each line."""

    name: str
    type: str
    shape: str
    depth: int
    hooks: list[str]
    output: list[str]
    gradient: list[str]

    def __str__(self) -> str:
        parts = (("output", self.output), ("gradient of it", self.gradient), ("hooks", self.hooks))
        told = (f"{name} {', '.join(filter(None, lines))}" for name, lines in parts if lines)
        return f"{self.name}, {self.type} {self.shape}: {'; '.join(told)}"


def tell_hooks(model: str, hooks: Iterable[Sequence[str]] = ()) -> View:
    """Run a model with hooks and without, and tell and draw what they see and change."""
    placements = read_placements(model, hooks)
    run, plain = run_with_hooks(model, placements), run_with_hooks(model)
    rows, sentence = _tabulate(placements, run, plain), _tell(placements, run, plain)
    title = "The call raises an error"
    if not run.error:
        registered = f"{_count(placements)} registered" if placements else _count(placements)
        title = f"{registered}: output {_beside(run.output, plain.output)}"
    return View(_draw(title, sentence, rows), sentence, facts=rows)


def _tabulate(placements: Sequence[Placement], run: HookedRun, plain: HookedRun) -> list[ModuleRow]:
    gradient = _compare(run.gradient, plain.gradient, "none: it raised")
    rows = [ModuleRow("x", "input", str(tuple(run.x.shape)), 0, [], [format_tensor(run.x[0])], gradient)]
    for name, kind in run.types.items():
        lines = []
        for call, before in zip_longest(run.calls[name], plain.calls[name]):  # what raised has fewer calls
            output = _compare(call and call.output, before.output, "did not finish")
            gradient = _compare(call.gradient if call and call.has_gradient else None, before.gradient, "none")
            lines += zip_longest(output, gradient, fillvalue="")  # the next call begins below both
        columns = map(list, zip(*lines, strict=True))
        hooks = []
        for number, placement in enumerate(placements):
            if placement.module == name:
                turns = [str(turn) for turn, which in enumerate(run.fired, 1) if which == number]
                does = "zero" if placement.effect == ZERO else "look"
                hooks.append(f"{', '.join(turns) or 'never'}: {placement.kind}, {does}")
        shape = str(tuple(plain.calls[name][0].output.shape))
        depth = name.count(".") + 1 if name else 0
        rows.append(ModuleRow(name.rpartition(".")[2] or "model", kind, shape, depth, hooks, *columns))
    return rows


def _compare(after: Tensor | None, before: Tensor, otherwise: str) -> list[str]:
    if after is None:
        return [otherwise]
    now, was = format_tensor(after[0]), f"was {format_tensor(before[0])}"
    return [now] if after.equal(before) else [now, was]


def _beside(after: Tensor, before: Tensor, same: str = "") -> str:
    return format_tensor(after[0]) + (same if after.equal(before) else f" ({format_tensor(before[0])} without hooks)")


def _count(placements: Sequence[Placement]) -> str:
    return {0: "No hook", 1: "1 hook"}.get(len(placements), f"{len(placements)} hooks")


def _tell(placements: Sequence[Placement], run: HookedRun, plain: HookedRun) -> str:
    told = f"{_count(placements)} {'are' if len(placements) > 1 else 'is'} registered. "
    if run.fired:
        turns = []
        for turn, number in enumerate(run.fired, 1):
            module, kind, effect = placements[number]
            turns.append(f"{turn}. the {kind} on {module or 'the model'} {EFFECTS[effect]}")
        told += f"In the order of firing: {'; '.join(turns)}. "
    if run.error:
        why = "makes views of what goes in and out of its module, and the in-place ReLU may not write into a view"
        return f"{told}The call raises RuntimeError: {run.error}. A full backward hook or pre-hook {why}."
    same = run.output.equal(plain.output) and run.gradient.equal(plain.gradient)
    begin = "The output" if not (placements and same) else "Nothing changes: the output"
    words = "" if same else " as without hooks"
    output, gradient = _beside(run.output, plain.output, words), _beside(run.gradient, plain.gradient, words)
    return f"{told}{begin} is {output}, and the gradient of the input is {gradient}."


def _draw(title: str, sentence: str, rows: Sequence[ModuleRow]) -> str:
    output = max(20 * row.depth + 8 * len(row.name) + 6.7 * len(f"{row.type} {row.shape}") for row in rows) + 34
    gradient = output + 7.83 * max(4 + len(line.removeprefix("was ")) for row in rows for line in row.output) + 8
    places, y = (14, output, gradient), TOP + HEAD  # with room for "was " from the start, so that nothing moves
    body = [draw_text(x, TOP + 17, words, opacity=0.8) for words, x in zip(COLUMNS, places, strict=True)]
    rule = f'<path d="M8 {{}} H{WIDTH - 8}" stroke="currentColor" opacity="0.25"/>'
    for row in rows:
        body += [rule.format(y), _draw_row(row, y, *places)]
        y += 2 * PAD + LINE * (len(row.hooks) + max(len(row.output), len(row.gradient)))
    body += [rule.format(y), draw_fish_hook(20, y + 8), draw_text(29, y + 19, "hooks: 1 fires first", opacity=0.8)]
    return draw_picture(WIDTH, y + 28, title, sentence, "".join(body), map(str, rows))


def _draw_row(row: ModuleRow, y: int, names: float, output: float, gradient: float) -> str:
    base, left = y + PAD + 14, names + 20 * row.depth
    branch = f'<path d="M{left - 12} {y} V{base - 5} H{left - 3}" fill="none" stroke="currentColor" opacity="0.5"/>'
    parts = [
        branch if row.depth else "",
        draw_text(left, base, row.name, family=MONO, weight=700),
        draw_text(left + 8 * len(row.name) + 10, base, f"{row.type} {row.shape}", style="italic"),
    ]
    for x, lines in ((output, row.output), (gradient, row.gradient)):
        for number, (line, following) in enumerate(zip(lines, [*lines[1:], ""], strict=True)):
            weight = 700 if following.startswith("was ") else 400
            opacity = 0.75 if line.startswith("was ") else 1
            parts.append(draw_text(x, base + LINE * number, line, family=MONO, weight=weight, opacity=opacity))
    for number, words in enumerate(row.hooks, max(len(row.output), len(row.gradient))):
        sign = draw_fish_hook(left + 9, base + LINE * number - 11)
        parts.append(sign + draw_text(left + 18, base + LINE * number, words, weight=600))
    return "".join(parts)


class ModelHooks(Explorer):
    """Register hooks on the modules of a small model, remove them, and see what they see and change.

    model: one of `toys.MODELS`.
    hooks: the hooks to begin with, in the order of registration: `(module, kind)` or `(module, kind, effect)`, of
        `CALL_KINDS` and `EFFECTS`; the module is a dotted name, "" is the model itself.
    """

    def __init__(self, model: str = "small net", hooks: Iterable[Sequence[str]] = ()) -> None:
        drop, button = widgets.Dropdown, {"layout": {"width": "96px"}}
        controls = {
            "model": make_choice(drop, "Model", [*MODELS], model, width=300),
            "module": drop(description="Hook on", style={"description_width": "60px"}, layout={"width": "170px"}),
            "kind": make_choice(drop, "Kind", CALL_KINDS, "forward hook", width=235, indent=40),
            "effect": make_choice(drop, "that does", [*EFFECTS], LOOK, width=215, indent=70),
            "register": widgets.Button(description="Register", tooltip="Register this hook on the module", **button),
            "clear": widgets.Button(description="Remove all", tooltip="Remove all hooks from the model", **button),
            "hooks": widgets.HBox(),
        }
        self._hooks = read_placements(model, hooks)
        super().__init__(controls, ["model", ("module", "kind", "effect", "register", "clear"), "hooks"])

    def use_model(self) -> None:
        self._hooks = []
        self._list_modules()

    def _list_modules(self) -> None:
        names = module_names(self.controls["model"].value)
        self.controls["module"].options = [(each or "the model", each) for each in names]
        self.controls["module"].value = names[1]

    def use_clear(self) -> None:
        self._hooks = []

    def use_register(self) -> None:
        self._hooks.append(Placement(*(self.controls[part].value for part in ("module", "kind", "effect"))))

    def fit(self, name: str) -> None:
        """Remove the hook whose button was pressed, and list the others."""
        if not name:
            self._list_modules()
        if name.startswith("remove "):
            del self._hooks[int(name.removeprefix("remove "))]
        if name not in ("module", "kind", "effect"):
            words = "Hooks, in the order of registration (press to remove one):"
            row = [make_label(words if self._hooks else "No hook is registered.")]
            for number, hook in enumerate(self._hooks):
                row.append(widgets.Button(description=f"Remove {hook}", layout={"width": "auto"}))
                self.watch(f"remove {number}", row[-1])
            self.put("hooks", widgets.HBox(row, layout=WRAPPED))
            self.controls["clear"].disabled = not self._hooks

    def look(self, model: str, **_: object) -> View:
        """Tell the run of this model with the hooks that are registered."""
        return tell_hooks(model, self._hooks)
