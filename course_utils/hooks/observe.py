"""See what a block of code does with one hook, without touching anything: Python reports each call as it begins.

    with observing(model, hook) as seen:
        model(x).sum().backward()
    seen.registrations, seen.calls, seen.runs, seen.passes

Nothing is wrapped or replaced. What is seen is noted in the order of its `time`, a number that counts events.
"""

import collections
import dataclasses
import gc
import inspect
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._dynamo import eval_frame
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer
from torch.utils import hooks as torch_hooks

from course_utils.hooks.frames import (
    TORCH,
    codes_of,
    has_raised,
    is_checkpointed,
    is_run_of,
    is_same_hook,
    place_of,
    split_arguments,
)
from course_utils.hooks.inventory import list_hooks
from course_utils.hooks.record import graph_of, shapes_in, tensors_in

_STEP_TABLES = {
    "step pre-hook": "_optimizer_step_pre_hooks",
    "step post-hook": "_optimizer_step_post_hooks",
    "state-dict pre-hook": "_optimizer_state_dict_pre_hooks",
    "state-dict post-hook": "_optimizer_state_dict_post_hooks",
    "load-state-dict pre-hook": "_optimizer_load_state_dict_pre_hooks",
    "load-state-dict post-hook": "_optimizer_load_state_dict_post_hooks",
}
# What the functions that register are called, and the kind of hook that each makes. "module_" marks the global ones.
_KINDS = {
    "register_forward_pre_hook": "forward pre-hook",
    "register_forward_hook": "forward hook",
    "register_full_backward_pre_hook": "full backward pre-hook",
    "register_full_backward_hook": "full backward hook",
    "register_backward_hook": "legacy backward hook",
    "register_hook": "tensor hook",
    "register_post_accumulate_grad_hook": "post-accumulate-grad hook",
    "register_step_pre_hook": "step pre-hook",
    "register_step_post_hook": "step post-hook",
    "register_state_dict_pre_hook": "state-dict pre-hook",
    "register_state_dict_post_hook": "state-dict post-hook",
    "_register_state_dict_hook": "state-dict hook",
    "register_load_state_dict_pre_hook": "load-state-dict pre-hook",
    "_register_load_state_dict_pre_hook": "load-state-dict pre-hook",
    "register_load_state_dict_post_hook": "load-state-dict post-hook",
}

# What is noted of a function when it begins, and, after a `yield` that gives what it returns, when it ends.
Watch = Generator[None, Any, None]

_MOST_GRAPHS = 256  # of so many calls of hooked modules the graph is kept, not of all in a long training loop


@dataclasses.dataclass(eq=False)
class Registration:
    """The hook in one table: its `kind`, its `owner` (None: global), and where and when it was put there.

    `time` is 0 and `place` empty for what the tables held when the block began. `refused` says that registering raised.
    """

    kind: str
    owner: Any
    time: int = 0
    place: str = ""
    table: MutableMapping | None = None
    key: int = -1
    refused: bool = False
    node: Any = None  # of a tensor that is no leaf: what computed it
    grad_enabled: bool = True
    removed: int = 0
    removed_at: str = ""

    @property
    def active(self) -> bool:
        """Whether the hook is in its table now."""
        return self.table is not None and self.key in self.table

    def is_on(self, module: nn.Module) -> bool:
        """Whether it is a hook of this module, or of all modules."""
        return self.owner is None or self.owner is module

    @property
    def sees_keywords(self) -> bool:
        """Whether it was registered with `with_kwargs=True`."""
        place, start = (torch_module, "_global") if self.owner is None else (self.owner, "")
        names = [f"{start}_forward{each}_hooks_with_kwargs" for each in ("", "_pre")]
        return any(self.key in getattr(place, name, ()) for name in names)


@dataclasses.dataclass(eq=False)
class Call:
    """One call of a module, or with `direct` one of its `forward` alone."""

    module: nn.Module
    time: int
    place: str = ""
    direct: bool = False
    parent: "Call | None" = None
    args: tuple[Any, ...] = ()
    kwargs: Any = dataclasses.field(default_factory=dict)
    grad_enabled: bool = True
    transform: bool = False
    recomputed: bool = False
    raised: bool = False
    active: list[Registration] = dataclasses.field(default_factory=list)
    forward_began: bool = False
    forward_result: Any = None
    has_tensor: bool = True  # it returned a tensor, or a tuple that holds one
    has_graph: bool = False
    nodes: set[Any] = dataclasses.field(default_factory=set)

    @property
    def top(self) -> "Call":
        """The outermost call that this one is part of."""
        return self.parent.top if self.parent else self


@dataclasses.dataclass(eq=False)
class Pass:
    """One backward pass: what it `reached`, and whether it was `restricted` to some inputs."""

    time: int
    place: str
    restricted: bool
    accumulates: bool
    creates_graph: bool
    transform: bool
    repeats: bool = False  # it went through a graph that an earlier pass kept
    reached: set[int] = dataclasses.field(default_factory=set)  # the ids of registrations and calls
    raised: bool = False


@dataclasses.dataclass(eq=False)
class Run:
    """One run of the hook: what it `sees` and what it `returned` (shapes; None for nothing), whether it raised.

    `tensors` counts the tensors in each argument after the module.
    """

    time: int
    module: Any
    call: Call | None
    backward: Pass | None
    place: str
    sees: Any
    tensors: list[int] = dataclasses.field(default_factory=list)
    changed_before: bool = False
    returned: Any = None
    raised: bool = False


class Observer:
    """What happened to one hook in a block; see `observing`."""

    def __init__(self, owner: Any, hook: Callable) -> None:
        self.owner, self.hook, self.time = owner, hook, 0
        self.registrations: list[Registration] = []
        self.calls: list[Call] = []
        self.passes: list[Pass] = []
        self.runs: list[Run] = []
        self.compiled: list[int] = []  # the times at which compiled code was called
        self.asked: list[int] = []  # when a step or a state dict was asked for
        self.scaled = False
        self.inplace_failed = 0  # when an in-place operation raised
        self.kept: list[tuple[weakref.ref, int]] = []  # the tensors that the hook saw, with their versions
        self.last_output: Any = None
        self._stacks: dict[int, list[Call]] = collections.defaultdict(list)  # the calls that run, of each thread
        self._passing: list[Pass] = []
        self._hooked: collections.deque[Call] = collections.deque()  # whose nodes are kept
        self._retained: set[Any] = set()
        self._watches: dict[FrameType, Watch] = {}  # of the functions that run
        self._building = 0
        self._neighbours: set[CodeType] = set()
        self._changed = 0  # when another hook in the same table replaced what comes next
        self._begin = self._find_codes()
        self.modules = list(owner.modules()) if isinstance(owner, nn.Module) else []
        for module in self.modules:
            self._watch_forward(module)
        self._codes = codes_of(hook)
        self.is_visible = bool(self._codes)  # not a function written in C
        self._begin.update(dict.fromkeys(self._codes, self._begin_run))
        self.registrations += _find_registrations(owner, hook)

    def _find_codes(self) -> dict[CodeType, Callable[[FrameType], Any]]:
        begin = {
            nn.Module._call_impl.__code__: self._begin_call,
            torch_hooks.RemovableHandle.remove.__code__: self._see_removal,
            torch.autograd.graph._engine_run_backward.__code__: self._begin_pass,
            torch.amp.GradScaler.scale.__code__: self._see_scaling,
        }
        asked = [nn.Module.state_dict, nn.Module.load_state_dict]
        asked += [torch.optim.Optimizer.state_dict, torch.optim.Optimizer.load_state_dict]
        step = torch.optim.Optimizer.profile_hook_step.__code__.co_consts
        codes = [inspect.unwrap(function).__code__ for function in asked]
        codes += [function.__code__ for function in asked]
        begin |= dict.fromkeys((*codes, *(each for each in step if isinstance(each, CodeType))), self._see_asking)
        return begin | dict.fromkeys(codes_that_register(), self._begin_registration)

    @property
    def _stack(self) -> list[Call]:
        return self._stacks[threading.get_ident()]

    def _watch_forward(self, module: nn.Module) -> None:
        code = getattr(module.forward, "__code__", None)
        if code and "_dynamo" not in code.co_filename:
            self._begin.setdefault(code, self._begin_forward)

    def see(self, frame: FrameType, event: str, value: Any) -> None:
        """The profile function: Python calls it when a function begins and ends."""
        if event == "call":
            begin = self._begin.get(frame.f_code)
            if begin is None:
                begin = self._see_compiler if "_dynamo" in frame.f_code.co_filename else None
            if begin and (not self._building or begin == self._see_compiler):
                self.time += 1
                watch = begin(frame)
                if watch and next(watch, self) is not self:  # it waits for the end of the function
                    self._watches[frame] = watch
        elif event == "return" and frame in self._watches:
            self.time += 1
            with suppress(StopIteration):
                self._watches.pop(frame).send(value)
        elif event == "c_exception" and re.fullmatch("[a-z].*_", getattr(value, "__name__", "")):
            self.inplace_failed = self.time  # torch's functions that work in place end with an underscore

    # --- registering and removing ---

    def _begin_registration(self, frame: FrameType) -> Watch:
        found = frame.f_locals
        nested = self._begin.get(frame.f_back.f_code) == self._begin_registration
        if nested or "hook" not in found or not is_same_hook(found["hook"], self.hook):
            return
        name = frame.f_code.co_name
        owner = found.get("self")
        new = Registration(kind_of(name), owner, self.time, place_of(frame))
        if isinstance(owner, Tensor):
            new.node, new.grad_enabled = owner.grad_fn, torch.is_grad_enabled()
        elif isinstance(owner, nn.Module):
            self._watch_forward(owner)
        self.registrations.append(new)
        handle = yield
        new.refused = has_raised(frame)
        if not new.refused:
            new.table, new.key = handle.hooks_dict_ref(), handle.id

    def _see_removal(self, frame: FrameType) -> None:
        for each in self.registrations:
            if each.key == frame.f_locals["self"].id and each.active:
                each.removed, each.removed_at = self.time, place_of(frame)

    # --- calls of modules ---

    def _begin_call(self, frame: FrameType) -> Watch:
        found = frame.f_locals
        call = Call(found["self"], self.time, parent=self._stack[-1] if self._stack else None)
        call.grad_enabled = torch.is_grad_enabled()
        call.transform = _is_transformed()
        call.active = [each for each in self.registrations if each.active and each.is_on(call.module)]
        if call.active or call.parent is None:
            call.place = place_of(frame)
            call.args, call.kwargs = found["args"], found["kwargs"]
            call.recomputed = bool(self._passing) and is_checkpointed(frame)
        self.calls.append(call)
        self._stack.append(call)
        result = yield
        while self._stack.pop() is not call:
            continue
        call.raised = has_raised(frame)
        outer = [each for each in (result if isinstance(result, tuple) else [result]) if isinstance(each, Tensor)]
        call.has_tensor = bool(outer)
        tensors = tensors_in(result) if call.active or call.parent is None else []
        call.has_graph = any(tensor.requires_grad for tensor in tensors)
        if call.active:
            call.nodes = {tensor.grad_fn for tensor in outer or tensors} - {None}  # a full hook sits on no inner ones
            self._hooked.append(call)
            if len(self._hooked) > _MOST_GRAPHS:
                self._hooked.popleft().nodes = set()
        if call.parent is None and call.has_graph:
            self.last_output = tensors
        call.forward_result = None
        call.args, call.kwargs = len(tensors_in(call.args)), len(tensors_in(call.kwargs))

    def _begin_forward(self, frame: FrameType) -> Watch:
        module = next(iter(frame.f_locals.values()), None)
        if not isinstance(module, nn.Module) or getattr(module.forward, "__code__", None) is not frame.f_code:
            return
        call = self._stack[-1] if self._stack else None
        if call and call.module is module and not call.forward_began:
            call.forward_began = True
            call.forward_result = yield
            return
        direct = Call(module, self.time, place_of(frame.f_back), direct=True)
        direct.active = [each for each in self.registrations if each.active and each.is_on(module)]
        self.calls.append(direct)

    # --- backward, steps, compiled code ---

    def _begin_pass(self, frame: FrameType) -> Watch:
        found = frame.f_locals
        _, keeps, creates, inputs = found["args"][:4]
        nodes = graph_of(found["t_outputs"])
        accumulates = found["kwargs"]["accumulate_grad"]
        new = Pass(self.time, place_of(frame), bool(inputs), accumulates, creates, _is_transformed())
        leaves = {id(node.variable) for node in nodes if hasattr(node, "variable")}
        inner = {node for node in nodes if not hasattr(node, "variable")}
        new.repeats = not inner.isdisjoint(self._retained)
        for each in self.registrations:
            if id(each.owner) in leaves or each.node in nodes:
                new.reached.add(id(each))
        new.reached.update(id(call) for call in self._hooked if not call.nodes.isdisjoint(nodes))
        self._retained = inner if keeps or creates else set()
        self._watch_neighbours()
        self.passes.append(new)
        self._passing.append(new)
        yield
        self._passing.remove(new)
        new.raised = has_raised(frame)

    def _see_scaling(self, frame: FrameType) -> None:
        self.scaled = self.scaled or frame.f_locals["self"].is_enabled()

    def _see_asking(self, frame: FrameType) -> None:
        self.asked.append(self.time)

    def _see_compiler(self, frame: FrameType) -> Watch:
        name, file = frame.f_code.co_name, os.path.basename(frame.f_code.co_filename)
        if file == "eval_frame.py" and name == "compile_wrapper" and not self._building:
            self.compiled.append(self.time)
        if file == "convert_frame.py" and name == "__call__":
            self._building += 1
            yield
            self._building -= 1

    # --- the hook itself ---

    def _begin_run(self, frame: FrameType) -> Watch:
        if frame.f_code not in self._codes or not is_run_of(self.hook, frame):
            if frame.f_code in self._neighbours:
                returned = yield
                self._changed = self.time if returned is not None else 0
            return
        if not (self._stack or self._passing or frame.f_back.f_code.co_filename.startswith(TORCH)):
            return  # the user's own code calls it
        module, values = split_arguments(self.hook, frame)
        call = self._stack[-1] if self._stack and self._stack[-1].module is module else None
        backward = self._passing[-1] if self._passing and not (call and call.recomputed) else None
        run = Run(self.time, module, call, backward, place_of(frame.f_back), shapes_in(tuple(values)))
        run.tensors = [len(tensors_in(value)) for value in values]
        run.changed_before = self._changed == self.time - 1 or (call is not None and _is_changed(call, values))
        if module is not None:
            self.kept += [(weakref.ref(tensor), _version_of(tensor)) for tensor in tensors_in(values)]
        self.runs.append(run)
        returned = yield
        run.raised = has_raised(frame)
        run.returned = None if returned is None else shapes_in(returned)

    def _watch_neighbours(self) -> None:
        """Watch the hooks that stand before this one in its tables, for what they return goes to the next."""
        for each in self.registrations:
            if each.active and each.kind not in ("forward hook", "forward pre-hook"):
                keys = list(each.table)
                for key in keys[: keys.index(each.key)]:
                    self._neighbours.update(codes_of(each.table[key]))
        self._begin.update(dict.fromkeys(self._neighbours, self._begin_run))


# Else torch.compile might compile `see` and what it calls, when it runs inside of the code that is compiled.
_SKIP = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)
eval_frame.set_code_exec_strategy(Observer.see.__code__, _SKIP)


@contextmanager
def observing(owner: Any, hook: Callable) -> Iterator[Observer]:
    """Note what happens to `hook` while the block runs; `owner` is the model, tensor or optimizer that it is about.

    A profile function that was set (by a profiler) pauses meanwhile. The backward pass runs in the calling thread, also
    on a GPU. Works in every thread that starts inside the block.
    """
    seen = Observer(owner, hook)
    before, before_in_threads = sys.getprofile(), threading.getprofile()
    with torch.autograd.set_multithreading_enabled(False):
        threading.setprofile(seen.see)
        sys.setprofile(seen.see)
        try:
            yield seen
        except RuntimeError as error:  # of an operator such as +=, which Python does not report
            if "modified inplace" in str(error):
                seen.inplace_failed = seen.time
            raise
        finally:
            sys.setprofile(before)
            threading.setprofile(before_in_threads)


def kind_of(name: str) -> str:
    """Return the kind of hook that a function of this name registers, or "" if it registers none."""
    return _KINDS.get(re.sub("^register_(module|optimizer)_", "register_", name), "")


def codes_that_register() -> list[CodeType]:
    """Return the code of each function of torch that registers a hook, also one for all modules or optimizers."""
    homes = (nn.Module, Tensor, torch.optim.Optimizer, torch_module, torch_optimizer)
    found = [pair for home in homes for pair in vars(home).items()]
    return [each.__code__ for name, each in found if isinstance(each, FunctionType) and kind_of(name)]


def _find_registrations(owner: Any, hook: Callable) -> list[Registration]:
    """Find the hook in the tables of a model, a tensor or an optimizer, and in the global ones."""
    if isinstance(owner, torch.optim.Optimizer):
        tables = ((kind, getattr(owner, table, {})) for kind, table in _STEP_TABLES.items())
        found = ((kind, table, key, owner) for kind, table in tables for key in table)
    else:
        things = {"": owner}
        if isinstance(owner, nn.Module):
            things = {**dict(owner.named_buffers()), **dict(owner.named_parameters()), **dict(owner.named_modules())}
        found = (
            (each.kind, each.table, each.key, None if each.scope == "global" else things[each.owner])
            for each in list_hooks(owner)
            if each.owner in things
        )
    return [
        Registration(kind, thing, table=table, key=key, node=getattr(thing, "grad_fn", None))
        for kind, table, key, thing in found
        if is_same_hook(table[key], hook)
    ]


def find_elsewhere(owner: Any, hook: Callable) -> list[Registration]:
    """Find the hook on what is alive and not part of the model: on another instance of a layer, or another tensor."""
    gc.collect()
    own = list(owner.modules()) if isinstance(owner, nn.Module) else [owner]
    known, kinds = {id(each) for each in own}, {type(each) for each in own}
    others = [each for each in gc.get_objects() if type(each) in kinds and id(each) not in known]
    return [found for each in others for found in _find_registrations(each, hook) if found.owner is each]


def _is_transformed() -> bool:
    return torch._C._functorch.peek_interpreter_stack() is not None


def _is_changed(call: Call, values: list[Any]) -> bool:
    """Whether a forward hook sees something else than what the module was given, or returned."""
    if call.forward_began:
        return call.forward_result is not None and values[-1] is not call.forward_result
    return [*map(id, tensors_in(values[0]))] != [*map(id, tensors_in(call.args))]


def _version_of(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
