"""What happens inside `module(x)`: the parts of `__call__`, read from the installed torch, and one call step by step.

The parts are found in the source by what they do, not by line number, so that they are found again in the next release.
"""

import ast
import dataclasses
import functools
import inspect
import json
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.utils.hooks import BackwardHook

from course_utils.hooks.inventory import CALL_KINDS
from course_utils.hooks.record import find_layer, map_tensors, shapes_in, tensors_in, watch_gradient
from course_utils.hooks.trace import go_backward
from course_utils.root import ASSETS, CourseError

Hooks = Iterable[tuple[str, str]]  # pairs of a kind (one of `HOOK_KINDS`) and a place


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a call: `source` is lines `first` to `last` of its file, inside `function`.

    `name` is the same in every release; `does` says in a sentence what the part is for. `body` is the first line that
    runs only when the part's condition holds (equal to `first` for a part without a condition).
    """

    name: str
    does: str
    function: str
    first: int
    body: int
    last: int
    source: str = dataclasses.field(repr=False)


@functools.cache  # an explorer asks at every move
def read_parts(module_type: type[nn.Module] = nn.Module) -> tuple[Part, ...]:
    """Return the parts of a call in the order in which they run, from the source of the installed torch.

    `module_type` is the class to read: `nn.Module`, or one with a `__call__` and a `_call_impl` of its own.
    Raises `CourseError` for a part that is not there.
    """
    table = json.loads((ASSETS / "call_parts.json").read_text(encoding="utf-8"))
    return tuple(_find_part(module_type, **part) for part in table)


def _find_part(module_type: type[nn.Module], name: str, does: str, place: str, statement: str, pattern: str) -> Part:
    # Look in `place` for a statement of this kind with the pattern in its body, or on its one line.
    thing = BackwardHook if place == "BackwardHook" else getattr(module_type, place)
    title, (lines, start) = thing.__qualname__, inspect.getsourcelines(thing)
    tree = ast.increment_lineno(ast.parse(textwrap.dedent("".join(lines))).body[0], start - 1)  # as in the file
    for node in ast.walk(tree):  # from the outside in
        if isinstance(node, getattr(ast, statement)):
            text = ast.unparse(node)
            if re.search(pattern, text.partition("\n")[2] or text):
                break
    else:
        missing = f"part {name!r} was not found in {title} of torch {torch.__version__}"
        fix = "read it with inspect.getsource(torch.nn.Module._call_impl). Tested releases: 2.14, 2.15"
        raise CourseError(f"{missing}: this release writes it in another way; {fix}")
    function = f"{title}.{node.name}" if isinstance(tree, ast.ClassDef) else title
    body = node.body[0].lineno if isinstance(node, (ast.If, ast.ExceptHandler)) else node.lineno
    source = textwrap.dedent("".join(lines[node.lineno - start : node.end_lineno - start + 1]))
    return Part(name, does, function, node.lineno, body, node.end_lineno, source)


HOOK_KINDS = (*CALL_KINDS[:2], "always-called forward hook", *CALL_KINDS[2:], "legacy backward hook")


@dataclasses.dataclass
class Moment:
    """One step in the life of a call.

    `what` is "part" (a part of `__call__` is reached; `taken` says whether its body ran), "hook" (`hook` fires),
    "gradient" (it reaches the module's output), "warning" or "raises". `module` is the dotted name ("" is the model),
    `line` the line of torch's source. `values` shows the input before forward, the output after it, and what a hook
    sees; `fired` lists the hooks so far.
    """

    what: str
    phase: str
    module: str
    values: str
    sentence: str
    fired: tuple[str, ...]
    part: Part | None = None
    line: int = 0
    taken: bool = True
    hook: str = ""


def life_of_a_call(
    model: nn.Module, inputs: Tensor | tuple[Any, ...], hooks: Hooks = (), *, backward: bool = True
) -> list[Moment]:
    """Step through one call of a small model, and the backward pass from the sum of its output.

    `inputs` is a tensor or a tuple of arguments. `hooks` are pairs of a kind (one of `HOOK_KINDS`) and a place: a
    dotted name (`""` is the model) or "global". They are registered in this order, only watch, and are removed at the
    end. When forward raises, the last moments show it, and the exception stops there. A trace function that was set (by
    a debugger, by coverage) pauses meanwhile. Raises `CourseError` for an unknown kind or place, and like `read_parts`.
    """
    diary = _Diary(model)
    with diary.stack as stack, warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = diary.see_warning
        _forget_removed_hooks(model, stack)
        for kind, place in hooks:
            stack.enter_context(_register_spy(model, kind, place, diary))
        before = sys.gettrace()
        sys.settrace(diary.follow)
        try:
            output = model(*(inputs if isinstance(inputs, tuple) else (inputs,)))
        except Exception as error:
            diary.write("raises", "", None, f"{type(error).__name__} leaves the call: {error}")
            return diary.moments
        finally:
            sys.settrace(before)
        diary.phase = "backward"
        if backward and not go_backward(output):
            diary.write("part", "", output, "There is no backward pass: the output has no graph.", taken=False)
    return diary.moments


def _forget_removed_hooks(model: nn.Module, stack: ExitStack) -> None:
    """Torch remembers "full" or "legacy" after the last such backward hook is gone; here it does so after the call."""
    places = [(module, "_is_full_backward_hook", module._backward_hooks) for module in model.modules()]
    places.append((torch_module, "_global_is_full_backward_hook", torch_module._global_backward_hooks))
    for place, flag, hooks in places:
        stack.callback(setattr, place, flag, getattr(place, flag))
        if not hooks:
            setattr(place, flag, None)


class _Text(str):
    __repr__ = str.__str__


def show_values(value: Any) -> str:
    """Return the numbers in a nested structure as text; of a tensor with more than eight, only the range."""

    def show(tensor: Tensor) -> Any:
        if 0 < tensor.numel() <= 8:
            return map_tensors(show, tensor.tolist(), lambda number: _Text(f"{number:.4g}"))
        has_range = tensor.numel() and not tensor.is_complex()
        span = f" from {tensor.min().item():.4g} to {tensor.max().item():.4g}" if has_range else ""
        return _Text(f"{tensor.numel()} numbers{span}")

    return repr(map_tensors(show, value, shapes_in))


class _Diary:
    """Follows the frames of `__call__` and writes the moments."""

    def __init__(self, model: nn.Module) -> None:
        self.moments: list[Moment] = []
        self.fired: list[str] = []
        self.phase = "forward"
        self.stack = ExitStack()
        self.names = {id(module): name for name, module in model.named_modules()}
        self.parts = {part.name: part for part in read_parts()}
        self.result, self.given = re.findall(r"(\w+) = .*\(\*(\w+)", self.parts["forward"].source)[0]
        self.codes = {  # those of the functions and of what is defined inside them
            code: function.__qualname__
            for function in (nn.Module.__call__, nn.Module._call_impl, nn.Module._get_backward_hooks)
            for code in (function.__code__, *function.__code__.co_consts)
            if isinstance(code, CodeType)
        }
        self.last: dict[FrameType, Moment] = {}  # what each running frame has come to, the innermost frame last

    def follow(self, frame: FrameType, event: str, result: Any) -> Callable | None:
        """The trace function: Python calls it for each new frame, and then for each line of those it follows."""
        name = self.names.get(id(frame.f_locals.get("self"))) if frame.f_code in self.codes else None
        if name is None:
            return None
        if event == "line":
            self.see_line(frame, name)
        elif event == "return":
            self.last.pop(frame, None)
            if frame.f_code is nn.Module._call_impl.__code__:
                self.await_gradients(name, result)
        return self.follow

    def await_gradients(self, name: str, output: Any) -> None:
        sentence = f"{name or 'the model'}: the gradient of its output is computed."
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                watch_gradient(self.stack, tensor, lambda grad: self.write("gradient", name, grad, sentence))

    def see_line(self, frame: FrameType, name: str) -> None:
        function, line = self.codes[frame.f_code], frame.f_lineno
        fits = [part for part in self.parts.values() if part.function == function and part.first <= line <= part.last]
        if not fits:
            return
        part = min(fits, key=lambda part: part.last - part.first)
        taken, latest = line >= part.body, self.last.get(frame)
        does = part.does if taken else f"no, its condition does not hold. ({part.does})"
        sentence = f"{name or 'the model'}: {does}"
        if latest and latest.part is part:
            if taken:
                latest.taken, latest.sentence = True, sentence
            return
        result = frame.f_locals.get(self.result)
        value = frame.f_locals.get(self.given) if result is None else result
        self.last[frame] = self.write("part", name, value, sentence, part=part, line=line, taken=taken)

    def see_warning(self, message: Warning | str, category: type[Warning], *where: Any) -> None:
        self.write("warning", "", None, f"{category.__name__}: {str(message).splitlines()[0]}")

    def see_hook(self, kind: str, place: str, module: nn.Module, seen: tuple[Any, ...]) -> None:
        name = self.names[id(module)] or "the model"
        is_global = place == "global"
        label = f"{place if is_global else name}: {kind}"
        running = [moment.part for moment in self.last.values()]  # none in the backward pass
        part = running[-1] if running else self.parts[f"{kind}s".replace("full backward pre", "backward pre")]
        self.fired.append(label)
        values = " and ".join(map(show_values, seen))
        sentence = f"{label} fires{f' for {name}' if is_global else ''}: it sees {values}."
        self.write("hook", self.names[id(module)], seen, sentence, part=part, line=part.first, hook=label)

    def write(self, what: str, module: str, value: Any, sentence: str, **more: Any) -> Moment:
        self.moments.append(Moment(what, self.phase, module, show_values(value), sentence, tuple(self.fired), **more))
        return self.moments[-1]


def _register_spy(model: nn.Module, kind: str, place: str, diary: _Diary) -> Any:
    if kind not in HOOK_KINDS:
        raise CourseError(f"there is no hook kind {kind!r}; choose from {', '.join(HOOK_KINDS)}")

    def spy(module: nn.Module, *seen: Any) -> None:
        if id(module) in diary.names:
            diary.see_hook(kind, place, module, seen)

    name = re.sub("[ -]", "_", kind.removeprefix("always-called ").removeprefix("legacy "))
    options = {"always_call": True} if kind.startswith("always-called") else {}
    if place == "global":
        return getattr(torch_module, f"register_module_{name}")(spy, **options)
    _, module = find_layer(model, place)
    return getattr(module, f"register_{name}")(spy, **options)
