"""What happens inside `module(x)`: the parts of `__call__`, read from the installed torch, and one call step by step.

    for part in read_parts():
        print(part.name, part.first, part.last)
    moments = life_of_a_call(model, x, [("forward hook", "fc1"), ("full backward hook", "global")])

The parts are found in the syntax tree by what they do ("the `if` around a loop over the global forward hooks"), not by
line number, so that they are found again in the next release; and if not, the error names the part and the release.
"""

import ast
import dataclasses
import functools
import inspect
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.utils.hooks import BackwardHook

from course_utils.hooks.record import (
    find_layers,
    map_tensors,
    shapes_in,
    tensors_in,
    watch_gradient,
)
from course_utils.hooks.trace import go_backward

_TESTED = "2.13, 2.15"


class PartNotFoundError(LookupError):
    """The installed torch has no part of this kind in its `__call__`; the message names part and release."""


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


# -- Reading the source -----------------------------------------------------------------------------------------------


def read_parts(module_type: type[nn.Module] = nn.Module) -> list[Part]:
    """Return the parts of a call in the order in which they run, from the source of the installed torch.

    `module_type` is the class to read: `nn.Module`, or one with a `__call__` and a `_call_impl` of its own.
    Raises `PartNotFoundError` for a part that is not there, or when the source is not there.
    """
    entry, call = _parse(module_type.__call__), _parse(_method(module_type, "_call_impl"))
    sorting = _parse(_method(module_type, "_get_backward_hooks"))
    helper = _parse(BackwardHook)
    parts = [
        entry.part("dispatch", "`module(x)` runs this: the compiled call if there is one, else the plain one.", _whole),
        call.part("choose forward", "Take `self.forward`, which is a plain method call.", _chooses_forward),
        call.part("fast path", "No hook anywhere, local or global: call forward and leave.", _leaves_early),
        call.part(
            "collect backward pre-hooks",
            "Note the full backward pre-hooks for later: nothing runs yet.",
            _is_if_that(_calls("_get_backward_pre_hooks")),
        ),
        call.part(
            "collect backward hooks",
            "Note the backward hooks for later: nothing runs yet.",
            _is_if_that(_calls("_get_backward_hooks")),
        ),
        sorting.part("sort backward hooks", "Global hooks first; full and legacy ones in two lists.", _whole),
        call.part(
            "forward pre-hooks",
            "Run the forward pre-hooks, global ones first; what one returns replaces the input.",
            _is_if_around_loop_over("_global_forward_pre_hooks"),
        ),
        call.part(
            "wrap inputs",
            "With full backward hooks: pass the inputs through `BackwardHook`, which makes views of them.",
            _is_if_that(_calls("setup_input_hook")),
        ),
        call.part("forward", "Run forward itself.", _runs_forward),
        call.part(
            "forward hooks",
            "Run the forward hooks, global ones first; what one returns replaces the output.",
            _is_if_around_loop_over("_global_forward_hooks"),
        ),
        call.part(
            "wrap outputs",
            "With full backward hooks: pass the outputs through `BackwardHook`, which makes views of them.",
            _is_if_that(_calls("setup_output_hook")),
        ),
        call.part(
            "legacy backward hooks",
            "Put the legacy backward hooks on the graph node of the output.",
            _is_if_that(_calls("register_hook")),
        ),
        call.part("return", "Hand the output on.", _returns_result),
        call.part(
            "after an exception",
            "Something raised: run the `always_call` forward hooks that did not run yet, then raise again.",
            _is_handler_with_hooks,
        ),
        helper.part(
            "make views", "Put a node of the graph before the inputs or behind the outputs.", _applies_function
        ),
        helper.part(
            "backward pre-hooks",
            "The gradient of the output is there: run the full backward pre-hooks.",
            _is_method_with_loop_over("user_pre_hooks"),
        ),
        helper.part(
            "full backward hooks",
            "The gradient of the input is there: run the full backward hooks.",
            _is_method_with_loop_over("user_hooks", without="user_pre_hooks"),
        ),
    ]
    return parts


def _method(owner: type, name: str) -> Callable:
    if not hasattr(owner, name):
        raise PartNotFoundError(f"torch {torch.__version__} has no {owner.__name__}.{name}; tested releases: {_TESTED}")
    return getattr(owner, name)


class _Source:
    """A function or class with its syntax tree, numbered like its file."""

    def __init__(self, title: str, tree: ast.stmt, lines: list[str], first: int) -> None:
        self.title, self.tree, self.lines, self.first = title, tree, lines, first

    def part(self, name: str, does: str, fits: Callable[[ast.AST, ast.AST], bool]) -> Part:
        """Return the first node for which `fits(node, tree)`, from the outside in, as a part."""
        node = self.node(name, fits)
        body = node.body[0].lineno if isinstance(node, (ast.If, ast.ExceptHandler)) else node.lineno
        lines = self.lines[node.lineno - self.first : node.end_lineno - self.first + 1]
        function = self.title
        if isinstance(self.tree, ast.ClassDef):
            function = f"{self.title}.{node.name}"
        return Part(name, does, function, node.lineno, body, node.end_lineno, textwrap.dedent("".join(lines)))

    def node(self, name: str, fits: Callable[[ast.AST, ast.AST], bool]) -> Any:
        for node in ast.walk(self.tree):
            if fits(node, self.tree):
                return node
        raise PartNotFoundError(
            f"part {name!r} was not found in {self.title} of torch {torch.__version__}: this release writes it in "
            f"another way; read it with inspect.getsource(torch.nn.Module._call_impl). Tested releases: {_TESTED}"
        )


def _parse(thing: Any) -> _Source:
    title = thing.__qualname__
    try:
        lines, first = inspect.getsourcelines(thing)
    except (OSError, TypeError) as error:
        raise PartNotFoundError(f"torch {torch.__version__} comes without the source of {title}: {error}") from error
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    ast.increment_lineno(tree, first - 1)
    return _Source(title, tree, lines, first)


# What each part looks like: `fits(node, tree)`.


def _whole(node: ast.AST, tree: ast.AST) -> bool:
    return node is tree


def _mentions(node: ast.AST, *names: str) -> bool:
    """Whether each of the names occurs in `node`, as a variable or an attribute."""
    found = {getattr(inner, "id", getattr(inner, "attr", None)) for inner in ast.walk(node)}
    return found.issuperset(names)


def _calls(name: str) -> Callable[[ast.AST], bool]:
    def has_call(node: ast.AST) -> bool:
        return any(isinstance(inner, ast.Call) and _called_name(inner) == name for inner in ast.walk(node))

    return has_call


def _called_name(call: ast.Call) -> str | None:
    return getattr(call.func, "attr", getattr(call.func, "id", None))


def _chooses_forward(node: ast.AST, tree: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and _mentions(node.value, "self", "forward")


def _forward_name(tree: ast.AST) -> str | None:
    names = [node.targets[0].id for node in ast.walk(tree) if _chooses_forward(node, tree)]
    return names[0] if names else None


def _leaves_early(node: ast.AST, tree: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and _mentions(node.test, "_forward_hooks", "_global_forward_hooks")
        and isinstance(node.body[0], ast.Return)
    )


def _runs_forward(node: ast.AST, tree: ast.AST) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and _called_name(node.value) == _forward_name(tree)
    )


def _returns_result(node: ast.AST, tree: ast.AST) -> bool:
    results = [inner.targets[0].id for inner in ast.walk(tree) if _runs_forward(inner, tree)]
    return isinstance(node, ast.Return) and isinstance(node.value, ast.Name) and node.value.id in results


def _is_if_that(does: Callable[[ast.AST], bool]) -> Callable[[ast.AST, ast.AST], bool]:
    return lambda node, tree: isinstance(node, ast.If) and any(does(statement) for statement in node.body)


def _is_if_around_loop_over(table: str) -> Callable[[ast.AST, ast.AST], bool]:
    def fits(node: ast.AST, tree: ast.AST) -> bool:
        return isinstance(node, ast.If) and any(
            isinstance(child, ast.For) and _mentions(child.iter, table) for child in node.body
        )

    return fits


def _is_handler_with_hooks(node: ast.AST, tree: ast.AST) -> bool:
    return isinstance(node, ast.ExceptHandler) and _mentions(node, "_forward_hooks_always_called")


def _applies_function(node: ast.AST, tree: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and _mentions(node, "BackwardHookFunction", "apply")


def _is_method_with_loop_over(table: str, without: str = "") -> Callable[[ast.AST, ast.AST], bool]:
    def fits(node: ast.AST, tree: ast.AST) -> bool:
        if not isinstance(node, ast.FunctionDef) or (without and _mentions(node, without)):
            return False
        return any(isinstance(inner, ast.For) and _mentions(inner.iter, table) for inner in ast.walk(node))

    return fits


# -- One call, step by step -------------------------------------------------------------------------------------------

_REGISTER = {  # kind: (on one module, on all)
    "forward pre-hook": ("register_forward_pre_hook", "register_module_forward_pre_hook"),
    "forward hook": ("register_forward_hook", "register_module_forward_hook"),
    "always-called forward hook": ("register_forward_hook", "register_module_forward_hook"),
    "full backward pre-hook": ("register_full_backward_pre_hook", "register_module_full_backward_pre_hook"),
    "full backward hook": ("register_full_backward_hook", "register_module_full_backward_hook"),
    "legacy backward hook": ("register_backward_hook", "register_module_backward_hook"),
}
HOOK_KINDS = tuple(_REGISTER)
_BACKWARD_PARTS = {
    "full backward pre-hook": "backward pre-hooks",
    "full backward hook": "full backward hooks",
    "legacy backward hook": "legacy backward hooks",
}


@dataclasses.dataclass(frozen=True)
class Moment:
    """One step in the life of a call.

    `what` is "part" (a part of `__call__` is reached; `taken` says whether its body ran), "hook" (`hook` fires),
    "gradient" (it reaches the module's output), "warning" or "raises". `module` is the dotted name ("" is the model),
    `depth` how deep its call is nested, `line` the line of torch's source. `shapes` and `values` show the input before
    forward, the output after it, and what a hook sees; `fired` lists the hooks so far.
    """

    what: str
    phase: str
    module: str
    depth: int
    part: Part | None
    line: int
    taken: bool
    shapes: Any
    values: str
    hook: str
    fired: tuple[str, ...]
    sentence: str


def life_of_a_call(
    model: nn.Module, inputs: Tensor | tuple[Any, ...], hooks: Iterable[tuple[str, str]] = (), *, backward: bool = True
) -> list[Moment]:
    """Step through one call of a small model, and the backward pass from the sum of its output.

    `inputs` is a tensor or a tuple of arguments. `hooks` are pairs of a kind (one of `HOOK_KINDS`) and a place: a
    dotted name (`""` is the model) or "global". They are registered in this order, only watch, and are removed at the
    end; hooks that were there before run, and are not shown. When forward raises, the last moments show it, and the
    exception stops there. A trace function that was set (by a debugger, by coverage) pauses meanwhile. Of a compiled
    model, give the model inside. Raises `ValueError` for an unknown kind, `UnknownLayerError` for an unknown place,
    `PartNotFoundError` like `read_parts`.
    """
    hooks = list(hooks)
    for kind, _ in hooks:
        if kind not in _REGISTER:
            raise ValueError(f"there is no hook kind {kind!r}; choose from {', '.join(_REGISTER)}")
    find_layers(model, *[place for _, place in hooks if place != "global"])
    diary = _Diary(model)
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    with ExitStack() as stack:
        stack.enter_context(_flags_kept(model))
        diary.stack = stack
        stack.enter_context(_warnings_to(diary))
        for kind, place in hooks:
            stack.enter_context(_register_spy(model, kind, place, diary))
        try:
            with _traced_by(diary.follow):
                output = model(*arguments)
        except Exception as error:
            diary.write("raises", "", None, f"{type(error).__name__} leaves the call: {error}")
        else:
            diary.phase = "backward"
            if backward and not go_backward(output):
                diary.write("part", "", output, "There is no backward pass: the output has no graph.", taken=False)
    return [_say_if_skipped(moment) for moment in diary.moments]


def _say_if_skipped(moment: Moment) -> Moment:
    if moment.what != "part" or moment.taken or moment.part is None:
        return moment
    sentence = f"{moment.module or 'the model'}: no, its condition does not hold. ({moment.part.does})"
    return dataclasses.replace(moment, sentence=sentence)


def hooks_fired(moments: list[Moment]) -> list[str]:
    """Return the hooks in the order in which they fired, such as "fc1: forward hook"."""
    return [moment.hook for moment in moments if moment.what == "hook"]


def show_values(value: Any, most: int = 8) -> str:
    """Return the numbers in a nested structure as text; of a tensor with more than `most`, only the range."""

    def show(tensor: Tensor) -> str:
        tensor = tensor.detach()
        if not 0 < tensor.numel() <= most:
            has_range = tensor.numel() and not tensor.is_complex()
            span = f" from {tensor.min().item():.4g} to {tensor.max().item():.4g}" if has_range else ""
            return f"{tensor.numel()} numbers{span}"
        return _show_list(tensor.tolist())

    shown = map_tensors(lambda tensor: _Text(show(tensor)), value, lambda leaf: _Text(repr(shapes_in(leaf))))
    return repr(shown)


class _Text(str):
    """Text whose repr is itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _show_list(numbers: Any) -> str:
    return f"[{', '.join(map(_show_list, numbers))}]" if isinstance(numbers, list) else f"{numbers:.4g}"


@functools.cache  # an explorer asks at every move
def _installed_call() -> tuple[dict[str, Part], str, str]:
    """Return the parts by name, and what `_call_impl` calls its arguments and its result."""
    call = _parse(nn.Module._call_impl)
    result = call.node("forward", _runs_forward).targets[0].id
    return {part.name: part for part in read_parts()}, call.tree.args.vararg.arg, result


class _Diary:
    """Follows the frames of `__call__` and writes the moments."""

    def __init__(self, model: nn.Module) -> None:
        self.moments: list[Moment] = []
        self.fired: list[str] = []
        self.phase = "forward"
        self.stack = ExitStack()
        self.names = {id(module): name for name, module in model.named_modules()}
        self.parts, self.given, self.result = _installed_call()
        self.call_code = nn.Module._call_impl.__code__
        functions = (nn.Module.__call__, nn.Module._call_impl, nn.Module._get_backward_hooks)
        self.codes = {function.__code__: function.__qualname__ for function in functions}
        inner = [code for code in self.call_code.co_consts if isinstance(code, CodeType)]
        self.codes |= dict.fromkeys(inner, nn.Module._call_impl.__qualname__)
        self.open: list[tuple[str, str]] = []  # (module, part) of each call that is running, the innermost last
        self.last: dict[FrameType, int] = {}  # frame: the index of its latest moment

    def follow(self, frame: FrameType, event: str, result: Any) -> Callable | None:
        """The trace function: Python calls it for each new frame, and then for each line of those it follows."""
        if frame.f_code not in self.codes or id(frame.f_locals.get("self")) not in self.names:
            return None
        name = self.names[id(frame.f_locals["self"])]
        if event == "call" and frame.f_code is self.call_code:
            self.open.append((name, ""))
        elif event == "line":
            self.see_line(frame, name)
        elif event == "return":
            self.last.pop(frame, None)
            if frame.f_code is self.call_code:
                self.open.pop()
                for tensor in tensors_in(result):
                    if tensor.requires_grad:
                        watch_gradient(self.stack, tensor, lambda gradient: self.see_gradient(name, gradient))
        return self.follow

    def see_line(self, frame: FrameType, name: str) -> None:
        part = self.part_at(frame)
        if part is None:
            return
        latest = self.last.get(frame)
        if latest is not None and self.moments[latest].part is part:
            if frame.f_lineno >= part.body and not self.moments[latest].taken:
                self.moments[latest] = dataclasses.replace(self.moments[latest], taken=True)
            return
        if self.codes[frame.f_code] == nn.Module._call_impl.__qualname__:
            self.open[-1] = (name, part.name)
        done = frame.f_locals.get(self.result)
        value = frame.f_locals.get(self.given) if done is None else done
        sentence = f"{name or 'the model'}: {part.does}"
        taken = frame.f_lineno >= part.body
        self.last[frame] = len(self.moments)
        self.write("part", name, value, sentence, part=part, line=frame.f_lineno, taken=taken)

    def part_at(self, frame: FrameType) -> Part | None:
        function, line = self.codes[frame.f_code], frame.f_lineno
        fits = [part for part in self.parts.values() if part.function == function and part.first <= line <= part.last]
        return min(fits, key=lambda part: part.last - part.first, default=None)

    def see_gradient(self, name: str, gradient: Tensor) -> None:
        sentence = f"{name or 'the model'}: the gradient of its output is computed."
        self.write("gradient", name, gradient, sentence)

    def see_hook(self, kind: str, place: str, module: nn.Module, seen: tuple[Any, ...]) -> None:
        name = self.names.get(id(module), type(module).__name__)
        label = f"{'global' if place == 'global' else name or 'the model'}: {kind}"
        part = self.parts.get(_BACKWARD_PARTS.get(kind) or self.open[-1][1])
        self.fired.append(label)
        on = f" for {name or 'the model'}" if place == "global" else ""
        sees = " and ".join(show_values(value) for value in seen)
        self.write("hook", name, seen, f"{label} fires{on}: it sees {sees}.", part=part, hook=label)

    def write(
        self,
        what: str,
        module: str,
        value: Any,
        sentence: str,
        *,
        part: Part | None = None,
        line: int = 0,
        taken: bool = True,
        hook: str = "",
    ) -> None:
        depth = module.count(".") + (module != "")
        line = line or (part.first if part else 0)
        shapes, values = shapes_in(value), show_values(value)
        fired = tuple(self.fired)
        self.moments.append(
            Moment(what, self.phase, module, depth, part, line, taken, shapes, values, hook, fired, sentence)
        )


@contextmanager
def _traced_by(follow: Callable) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(follow)
    try:
        yield
    finally:
        sys.settrace(before)


def _register_spy(model: nn.Module, kind: str, place: str, diary: _Diary) -> Any:
    def spy(module: nn.Module, *seen: Any) -> None:
        if id(module) in diary.names:
            diary.see_hook(kind, place, module, seen)

    options = {"always_call": True} if kind == "always-called forward hook" else {}
    local, for_all = _REGISTER[kind]
    if place == "global":
        return getattr(torch_module, for_all)(spy, **options)
    (module,) = find_layers(model, place).values()
    return getattr(module, local)(spy, **options)


@contextmanager
def _flags_kept(model: nn.Module) -> Iterator[None]:
    """Forget, and later put back, the flags by which torch remembers "full" or "legacy" after the last hook is gone."""
    flags = [(module, module._is_full_backward_hook) for module in model.modules()]
    for_all = torch_module._global_is_full_backward_hook
    for module, _ in flags:
        if not module._backward_hooks:
            module._is_full_backward_hook = None
    if not torch_module._global_backward_hooks:
        torch_module._global_is_full_backward_hook = None
    try:
        yield
    finally:
        for module, flag in flags:
            module._is_full_backward_hook = flag
        torch_module._global_is_full_backward_hook = for_all


@contextmanager
def _warnings_to(diary: _Diary) -> Iterator[None]:
    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        diary.write("warning", "", None, f"{category.__name__}: {str(message).splitlines()[0]}")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield
