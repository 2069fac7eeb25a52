"""What hooks on the modules of a small model see and change, in one forward and one backward pass.

    story = tell_hooks("small net", [("relu", "forward hook", "replace by zero")])
    story.picture, story.sentence, story.table

A state is plain data: the name of a model and a list of placements. The hooks themselves are registered for one run
only, on a model made for that run, and removed on every way out.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from course_utils.explorers.graph import format_tensor
from course_utils.explorers.graph_picture import HOOK
from course_utils.explorers.svg import MONO, draw_text
from course_utils.hooks.inventory import list_hooks
from course_utils.hooks.record import Recording, map_tensors, record
from course_utils.hooks.trace import tracing
from course_utils.vision.toys import MODELS, Example

LOOK, ZERO = "look", "replace by zero"

KINDS = {  # in the order in which a call runs them, each with the method that registers it
    "forward pre-hook": "register_forward_pre_hook",
    "forward hook": "register_forward_hook",
    "full backward pre-hook": "register_full_backward_pre_hook",
    "full backward hook": "register_full_backward_hook",
}
EFFECTS = {LOOK: "looks", ZERO: "returns zeros"}
MOST_HOOKS = 6  # more would not fit beside one module


class PlacementError(ValueError):
    """A model, module, kind or effect that does not exist, or too many hooks; the message says what there is."""


class Placement(NamedTuple):
    """Where a hook sits, of which kind it is, and what it does: a dotted name, a key of `KINDS`, one of `EFFECTS`."""

    module: str
    kind: str
    effect: str = LOOK


def module_names(model: str) -> tuple[str, ...]:
    """Return the dotted names of the modules of one of `MODELS`, in its own order; "" is the model itself."""
    return tuple(name for name, _ in _find_model(model).make().named_modules())


def read_placements(model: str, hooks: Iterable[Sequence[str]]) -> tuple[Placement, ...]:
    """Check placements such as `("relu", "forward hook", "look")`; raises `PlacementError` for what does not exist."""
    names, placements = module_names(model), []
    for hook in hooks:
        if isinstance(hook, str) or not 2 <= len(hook) <= 3:
            raise PlacementError(
                f"A hook is (module, kind) or (module, kind, effect), such as ('relu', 'forward hook'); got {hook!r}."
            )
        placement = Placement(*hook)
        for what, given, known in (
            ("module", placement.module, names),
            ("kind of hook", placement.kind, KINDS),
            ("effect", placement.effect, EFFECTS),
        ):
            _require(what, given, known)
        placements.append(placement)
    if len(placements) > MOST_HOOKS:
        raise PlacementError(f"There is room for {MOST_HOOKS} hooks: remove one first.")
    return tuple(placements)


def _find_model(name: str) -> Example:
    _require("model", name, MODELS)
    return MODELS[name]


def _require(what: str, given: object, known: Iterable[str]) -> None:
    known = list(known)
    if given not in known:
        near = difflib.get_close_matches(str(given), known, n=1)
        nearest = f" Did you mean {near[0]!r}?" if near else ""
        raise PlacementError(f"There is no {what} {given!r}; there is {', '.join(map(repr, known))}.{nearest}")


# --- one run ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Run:
    """What happened: for each module its type, the output of each call and the gradient of each output.

    `registered` lists for each module the placements found on it by number, `fired` the numbers in the order of firing.
    `gradient` is that of the input. Where the call raised, `error` has the first sentence, and `output` is None.
    """

    types: dict[str, str]
    outputs: dict[str, list[Tensor]]
    gradients: dict[str, list[Tensor | None]]
    registered: dict[str, list[int]]
    fired: tuple[int, ...]
    x: Tensor
    output: Tensor | None = None
    gradient: Tensor | None = None
    error: str = ""


def run_with_hooks(model: str, hooks: Iterable[Sequence[str]] = ()) -> Run:
    """Make one of `MODELS`, register hooks in the order given, run forward, and backward from the sum of the output.

    Nothing stays: the model is new in each run, and the hooks are removed at its end. Raises `PlacementError`.
    """
    example, placements = _find_model(model), read_placements(model, hooks)
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        network, x = example.make(), torch.tensor([example.x], dtype=torch.float32, requires_grad=True)
        for number, placement in enumerate(placements):
            register = getattr(network.get_submodule(placement.module), KINDS[placement.kind])
            stack.enter_context(register(_make_hook(str(number), placement)))
        registered = {name: [] for name, _ in network.named_modules()}
        for found in list_hooks(network):
            if found.scope == "local":
                registered[found.owner].append(int(found.name))
        timeline = stack.enter_context(tracing(network))
        seen = stack.enter_context(record(network, nn.Module, gradients=True))
        output, gradient, error = None, None, ""
        try:
            output = network(x)
            (gradient,) = torch.autograd.grad(output.sum(), x)
        except RuntimeError as raised:
            output, error = None, str(raised).split(". ")[0]
        return Run(
            {name: _type_of(module) for name, module in network.named_modules()},
            {name: layer.outputs for name, layer in seen.items()},
            _read_gradients(seen),
            {name: sorted(numbers) for name, numbers in registered.items()},
            tuple(int(event.hook) for event in timeline.events if event.hook),
            x.detach(),
            None if output is None else output.detach(),
            gradient,
            error,
        )


def _type_of(module: nn.Module) -> str:
    return type(module).__name__ + (", in place" if getattr(module, "inplace", False) else "")


def _make_hook(name: str, placement: Placement) -> Callable[..., Any]:
    """Return a hook of any kind: what it may replace is the first thing it sees, or the output in a forward hook."""

    def hook(module: nn.Module, *seen: Any) -> Any:
        if placement.effect == LOOK:
            return None
        replaceable = seen[-1] if placement.kind == "forward hook" else seen[0]
        return map_tensors(lambda tensor: tensor * 0, replaceable)  # times 0, so that it stays in the graph

    hook.__name__ = name  # by which the timeline and the list of hooks tell one from another
    return hook


def _read_gradients(seen: Recording) -> dict[str, list[Tensor | None]]:
    return {
        name: [call.gradient if call.has_gradient else None for call in layer.calls] for name, layer in seen.items()
    }


# --- the story --------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A line of the table: the input or a module, with the shape of its output; a list has a text for each line."""

    name: str
    type: str
    shape: str
    depth: int
    hooks: list[str]
    output: list[str]
    gradient: list[str]


@dataclass(frozen=True)
class HookStory:
    """A state, told: an SVG picture, a few sentences, and the same as a table."""

    picture: str
    sentence: str
    table: tuple[Row, ...]


def tell_hooks(model: str, hooks: Iterable[Sequence[str]] = ()) -> HookStory:
    """Run a model with hooks and without, and tell and draw what they see and change. Raises `PlacementError`."""
    placements = read_placements(model, hooks)
    run, plain = run_with_hooks(model, placements), run_with_hooks(model)
    rows = _tabulate(placements, run, plain)
    sentence = _tell(placements, run, plain)
    return HookStory(_draw(_make_title(placements, run, plain), sentence, rows), sentence, rows)


def title_of(name: str) -> str:
    """Return what a module is called in words: its dotted name, or "the model"."""
    return name or "the model"


def describe(placement: Placement) -> str:
    """Return a placement in words, such as "relu: forward hook, replace by zero"."""
    return f"{title_of(placement.module)}: {placement.kind}, {placement.effect}"


def _tabulate(placements: Sequence[Placement], run: Run, plain: Run) -> tuple[Row, ...]:
    gradient = "none: the call raised" if run.gradient is None else format_tensor(run.gradient[0])
    changed = run.gradient is not None and not run.gradient.equal(plain.gradient)
    rows = [
        Row(
            "x",
            "input",
            _shape(run.x),
            0,
            [],
            [format_tensor(run.x[0])],
            _with_before(gradient, plain.gradient[0], changed),
        )
    ]
    for name, kind in run.types.items():
        outputs, gradients = [], []
        for call, before in enumerate(plain.outputs[name]):
            ran = call < len(run.outputs[name])
            output = _compare(run.outputs[name][call] if ran else None, before, "did not finish")
            gradient = _compare(run.gradients[name][call] if ran else None, plain.gradients[name][call], "none")
            lines = max(len(output), len(gradient))  # so that the next call begins on the same line in both columns
            outputs += output + [""] * (lines - len(output))
            gradients += gradient + [""] * (lines - len(gradient))
        hooks = [_mark(number, placements[number], run.fired) for number in run.registered[name]]
        depth = 0 if name == "" else name.count(".") + 1
        shape = _shape(plain.outputs[name][0])
        rows.append(Row(name.rpartition(".")[2] or "model", kind, shape, depth, hooks, outputs, gradients))
    return tuple(rows)


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _compare(after: Tensor | None, before: Tensor, otherwise: str) -> list[str]:
    if after is None:
        return [otherwise]
    return _with_before(format_tensor(after[0]), before[0], not after.equal(before))


def _with_before(after: str, before: Tensor, changed: bool) -> list[str]:
    return [after, f"was {format_tensor(before)}"] if changed else [after]


def _mark(number: int, placement: Placement, fired: Sequence[int]) -> str:
    turns = [str(turn) for turn, which in enumerate(fired, 1) if which == number]
    what = "zero" if placement.effect == ZERO else "look"
    return f"{', '.join(turns) or 'never'}: {placement.kind}, {what}"


def _make_title(placements: Sequence[Placement], run: Run, plain: Run) -> str:
    if run.error:
        return "The call raises an error"
    before = "" if run.output.equal(plain.output) else f" ({format_tensor(plain.output[0])} without hooks)"
    result = f"output {format_tensor(run.output[0])}{before}"
    return f"{_count(len(placements), 'hook')} registered: {result}" if placements else f"No hook: {result}"


def _tell(placements: Sequence[Placement], run: Run, plain: Run) -> str:
    if not placements:
        return (
            f"No hook is registered. The output is {format_tensor(plain.output[0])}, and the gradient of the input is "
            f"{format_tensor(plain.gradient[0])}."
        )
    sentences = [f"{_count(len(placements), 'hook')} {'is' if len(placements) == 1 else 'are'} registered."]
    if run.fired:
        turns = [f"{turn}. {_tell_turn(placements[number])}" for turn, number in enumerate(run.fired, 1)]
        sentences.append(f"In the order of firing: {'; '.join(turns)}.")
    if run.error:
        sentences.append(
            f"The call raises RuntimeError: {run.error}. A full backward hook or pre-hook makes views of "
            "what goes in and out of its module, and the in-place ReLU may not write into a view."
        )
        return " ".join(sentences)
    output, gradient = run.output.equal(plain.output), run.gradient.equal(plain.gradient)
    if output and gradient:
        sentences.append(
            f"Nothing changes: the output is {format_tensor(run.output[0])}, and the gradient of the input is "
            f"{format_tensor(run.gradient[0])}."
        )
    else:
        sentences.append(
            f"The output is {_still(run.output, plain.output, output)}, and the gradient of the input is "
            f"{_still(run.gradient, plain.gradient, gradient)}."
        )
    return " ".join(sentences)


def _tell_turn(placement: Placement) -> str:
    return f"the {placement.kind} on {title_of(placement.module)} {EFFECTS[placement.effect]}"


def _still(after: Tensor, before: Tensor, same: bool) -> str:
    now = format_tensor(after[0])
    return f"{now} as without hooks" if same else f"{now} ({format_tensor(before[0])} without hooks)"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# --- the picture: a row a module --------------------------------------------------------------------------------------

WIDTH = 864  # scaled down to a page of 800, the smallest type is still 12 px
COLUMNS = {"module, shape": 14, "output": 226, "gradient of it": 400, "hooks (1 fires first)": 568}
LINE, PAD, HEAD, TOP = 19, 8, 26, 40


def _draw(title: str, sentence: str, rows: Sequence[Row]) -> str:
    heads = [draw_text(x, TOP + 17, words, opacity=0.8) for words, x in COLUMNS.items()]
    body, y = [], TOP + HEAD
    for row in rows:
        body.append(_draw_row(row, y))
        y += _height(row)
    body.append(_rule(y))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 8}" width="{WIDTH}" height="{y + 8}" '
        f'role="img" aria-label="{escape(title)}" '
        'style="max-width:100%;height:auto;color:var(--jp-ui-font-color1, currentColor)">'
        f"<title>{escape(title)}</title><desc>{escape(sentence)}</desc>"
        f"{draw_text(WIDTH / 2, 22, title, size=16, anchor='middle', weight=600)}{''.join(heads)}{''.join(body)}</svg>"
    )


def _height(row: Row) -> int:
    return 2 * PAD + LINE * max(1, len(row.hooks), len(row.output), len(row.gradient))


def _draw_row(row: Row, y: int) -> str:
    base = y + PAD + 14
    left = COLUMNS["module, shape"] + 20 * row.depth
    branch = f'<path d="M{left - 12} {y} V{base - 5} H{left - 3}" fill="none" stroke="currentColor" opacity="0.5"/>'
    parts = [
        _rule(y),
        branch if row.depth else "",
        draw_text(left, base, row.name, family=MONO, weight=700),
        draw_text(left + 8 * len(row.name) + 10, base, f"{row.type} {row.shape}", style="italic"),
    ]
    for column, lines in (("output", row.output), ("gradient of it", row.gradient)):
        for number, line in enumerate(lines):
            faint = line.startswith("was ")
            parts.append(
                draw_text(
                    COLUMNS[column],
                    base + LINE * number,
                    line,
                    family=MONO,
                    weight=400
                    if faint or len(lines) == number + 1 or not lines[number + 1].startswith("was ")
                    else 700,
                    opacity=0.75 if faint else 1,
                )
            )
    for number, words in enumerate(row.hooks):
        parts.append(_draw_mark(COLUMNS["hooks (1 fires first)"], base + LINE * number, words))
    return "".join(parts)


def _draw_mark(x: float, base: float, words: str) -> str:
    """Draw a small fish hook and what it stands for."""
    sign = (
        f'<path d="M{x + 9} {base - 11} v7 a3.2 3.2 0 0 1 -6.4 0 v-1.6" fill="none" stroke="{HOOK}" '
        'stroke-width="2" stroke-linecap="round"/>'
    )
    return sign + draw_text(x + 18, base, words, weight=600)


def _rule(y: float) -> str:
    return f'<path d="M{COLUMNS["module, shape"] - 6} {y} H{WIDTH - 8}" stroke="currentColor" opacity="0.25"/>'
