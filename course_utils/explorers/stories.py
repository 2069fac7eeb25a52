"""What happens in a backward pass through a small graph, told in words, as a table and as a picture.

graph = parse("a = w + x; b = w + 1; y = a * b", w=1, x=2)
story = backward_story(graph, hooks={"a": "times 6"}, step=-1)
story.sentence, story.table, story.picture
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from course_utils.explorers.backward import (
    ACTIONS,
    RETAIN,
    Hooks,
    Step,
    read_hooks,
    run_backward,
)
from course_utils.explorers.graph import Graph, GraphError, format_tensor
from course_utils.explorers.graph_picture import NO_GRADIENT, NOTHING_YET, draw


@dataclass(frozen=True)
class Row:
    """One line of the table of values; every entry is text, as it is shown."""

    name: str
    kind: str
    value: str
    gradient: str
    gradient_without_hooks: str
    grad: str


@dataclass(frozen=True)
class Story:
    """One moment of backward: an SVG picture, a few sentences, and the same numbers as a table."""

    picture: str
    sentence: str
    table: tuple[Row, ...]
    step: int
    last_step: int


def backward_story(graph: Graph, hooks: Hooks = (), step: int = -1) -> Story:
    """Tell and draw what has happened after `step` steps of backward.

    hooks: see `read_hooks`.
    step: 0 (forward is done) to the number of gradients that arrive; negative numbers count from the end, -1 the last.

    Raises `GraphError` for a step that does not exist, and for hooks as `read_hooks` does.
    """
    moment = Moment.at(graph, read_hooks(graph, hooks), step)
    sentence = _tell(moment)
    return Story(draw(moment, sentence), sentence, _tabulate(moment), moment.step, len(moment.steps))


@dataclass(frozen=True, eq=False)
class Moment:
    """A run of backward, stopped after some steps, and the same run without hooks."""

    graph: Graph
    hooks: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    plain: dict[str, Step]
    step: int

    @classmethod
    def at(cls, graph: Graph, hooks: tuple[tuple[str, str], ...], step: int) -> "Moment":
        steps = run_backward(graph, hooks)
        plain = {past.node: past for past in run_backward(graph)}
        last = len(steps)
        if not -last - 1 <= step <= last:
            raise GraphError(f"There is no step {step}: backward through this graph has the steps 0 to {last}.")
        return cls(graph, hooks, steps, plain, step if step >= 0 else step + last + 1)

    @property
    def past(self) -> dict[str, Step]:
        return {done.node: done for done in self.steps[: self.step]}

    @property
    def current(self) -> Step | None:
        return self.steps[self.step - 1] if self.step else None

    @property
    def is_last(self) -> bool:
        return self.step == len(self.steps)

    def actions(self, name: str) -> list[str]:
        return [action for node, action in self.hooks if node == name]

    def final(self) -> "Moment":
        return Moment(self.graph, self.hooks, self.steps, self.plain, len(self.steps))

    def gradient(self, name: str) -> Tensor | None:
        return self.past[name].passed_on if name in self.past else None

    def before(self, name: str) -> Tensor | None:
        """The gradient without hooks, where hooks have changed it."""
        gradient = self.gradient(name)
        plain = self.plain[name].passed_on if name in self.plain else None
        return None if gradient is None or _same(gradient, plain) else plain

    def waits(self, name: str) -> bool:
        return name not in self.past and any(step.node == name for step in self.steps)


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def _tabulate(moment: Moment) -> tuple[Row, ...]:
    rows = []
    for name, node in moment.graph.nodes.items():
        done = moment.past.get(name)
        waiting = NOTHING_YET if moment.waits(name) else NO_GRADIENT
        rows.append(
            Row(
                name,
                node.kind,
                format_tensor(node.value),
                format_tensor(done.passed_on) if done else waiting,
                format_tensor(moment.plain[name].passed_on) if done else waiting,
                format_tensor(done.grad) if done and done.grad is not None else "None",
            )
        )
    return tuple(rows)


def _tell(moment: Moment) -> str:
    sentences = [_tell_arrival(moment)]
    if moment.current:
        sentences += _tell_hooks(moment.current)
        sentences.append(_tell_grad(moment, moment.current))
    if moment.is_last:
        sentences.append(_tell_end(moment))
    sentences.append(_tell_not_finite(moment))
    return " ".join(sentence for sentence in sentences if sentence)


def _tell_arrival(moment: Moment) -> str:
    current, result = moment.current, moment.graph.result
    if current is None:
        value = format_tensor(moment.graph.nodes[result].value)
        return f"Forward is done: {result} = {value}. Backward has not begun, so no tensor has a gradient yet."
    start = f"Step {moment.step} of {len(moment.steps)}:"
    if current.node == result:
        return f"{start} backward begins at {result}, with the gradient {format_tensor(current.arrived)}."
    arrived, parts = format_tensor(current.arrived), current.parts
    if len(parts) == 1:
        return f"{start} the gradient {arrived} flows from {parts[0][0]} back to {current.node}."
    summands = _and([f"{format_tensor(grad)} from {sender}" for sender, grad in parts])
    return f"{start} {summands} add up to {arrived}, the gradient of {current.node}."


def _tell_hooks(step: Step) -> list[str]:
    sentences = []
    for number, call in enumerate(step.calls, start=1):
        who = "Its hook" if len(step.calls) == 1 else f"Hook {number}"
        if call.action == "print":
            sentences.append(
                f"{who} prints {format_tensor(call.saw)} and returns nothing: the gradient stays as it is."
            )
        else:
            sentences.append(f"{who} returns {ACTIONS[call.action].code}, that is {format_tensor(call.returned)}.")
    return sentences


def _tell_grad(moment: Moment, step: Step) -> str:
    name = step.node
    retained = RETAIN in moment.actions(name)
    if moment.graph.nodes[name].is_leaf:
        extra = " retain_grad changes nothing on a leaf." if retained else ""
        return f"{name} is a leaf: {name}.grad is now {format_tensor(step.grad)}{_without_hooks(moment, name)}.{extra}"
    if retained:
        when = ", the gradient after all hooks" if step.calls else ""
        return f"retain_grad keeps it: {name}.grad is {format_tensor(step.grad)}{when}."
    return f"{name} is not a leaf: {name}.grad stays None."


def _tell_end(moment: Moment) -> str:
    leaves = [name for name in moment.past if moment.graph.nodes[name].is_leaf]
    grads = [f"{name}.grad = {format_tensor(moment.past[name].grad)}{_without_hooks(moment, name)}" for name in leaves]
    return f"Backward is done: {_and(grads)}."


def _without_hooks(moment: Moment, name: str) -> str:
    before = moment.before(name)
    return "" if before is None else f" ({format_tensor(before)} without hooks)"


def _tell_not_finite(moment: Moment) -> str:
    values = [name for name, node in moment.graph.nodes.items() if not node.value.isfinite().all()]
    gradients = [f"the gradient of {name}" for name, done in moment.past.items() if not done.passed_on.isfinite().all()]
    if not values and not gradients:
        return ""
    cause = "a division by 0, the log or root of 0 or less, or an overflow does this"
    return f"Not finite (inf or nan): {_and(values + gradients)}; {cause}."


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
