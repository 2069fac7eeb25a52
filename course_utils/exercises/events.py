"""What an answer does in a case, event by event, as plain data.

`record_run` writes down what happens between an answer and torch: which hooks are registered and removed, what they
receive and hand on, which modules and backwards run, what is changed in place, and what each line computes. Python
reports the calls (`sys.setprofile`), and torch its operations (`TorchFunctionMode`).
"""

import linecache
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils.hooks import RemovableHandle

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.evidence import NOT_OWN, CaseMaker, observe_all
from course_utils.exercises.plain import MAX_SHOWN, Evidence, Plain, plain
from course_utils.hooks.frames import codes_of, has_raised, split_arguments
from course_utils.hooks.observe import Watch, codes_that_register, kind_of
from course_utils.hooks.record import tensors_in

# A run: `parts`, words for when something happened, and `events`. An event has the number of its `part`, `what`
# happened, of which `kind`, `on` what, what was `got` and what was `gave`n; one's own also `line` and `text`.
Event = dict[str, Any]
Run = dict[str, Any]

MODULE_CALL = nn.Module._call_impl.__code__
CASES = os.path.join(NOT_OWN[0], "lessons", "")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
WITH = {"__enter__": "start of a `with` block", "__exit__": "end of a `with` block"}
OVERWRITES = {"copy_", "fill_", "zero_"}  # functions of torch for which it does not matter what was there before
MOST_EVENTS = 400


class Registered(NamedTuple):
    """A hook that the answer registered: of which kind, on what, and where torch keeps it."""

    kind: str
    on: str
    table: Callable[[], dict | None]  # a weak reference
    key: int

    @property
    def is_there(self) -> bool:
        """Whether it is registered still."""
        return self.key in (self.table() or {})


def record_run(make_cases: CaseMaker, answer: Callable, seed: int, limit: float, at: int) -> tuple[Evidence, Run]:
    """Try `answer` in the cases of `seed` up to number `at`; returns the evidence of that one, and what happened in it.

    Raises `IndexError` where the answer does not come that far.
    """
    recorder = Recorder(answer, at)

    def watched_cases(rng: Numbers) -> Iterator[Case]:
        for case in make_cases(rng):
            if recorder.cases_left >= 0:
                yield recorder.watch(case)

    evidence = observe_all(watched_cases, recorder.call_answer, seed, limit, at=None)
    return evidence[at], {"parts": recorder.parts, "events": recorder.events[:MOST_EVENTS]}


def brief(value: Any) -> Plain:
    """Plain data, and of a large tensor only the first numbers and two sums, one with the places as weights."""
    with torch._C.DisableTorchFunction():  # what this does is no event
        return shorten(plain(value))


def shorten(value: Plain) -> Plain:
    """Plain data with the numbers of large tensors cut off, see `brief`."""
    if value["type"] == "dict":
        return value | {"items": [[key, shorten(item)] for key, item in value["items"]]}
    if "items" in value:
        return value | {"items": [shorten(item) for item in value["items"]]}
    numbers = value.get("values", ())
    if len(numbers) <= MAX_SHOWN:
        return value
    finite = [number for number in numbers if not isinstance(number, str)]
    sums = [float(sum(finite)), float(sum(place % 97 * number for place, number in enumerate(finite)))]
    return value | {"values": [*numbers[: MAX_SHOWN + 1], *sums]}


class Recorder(TorchFunctionMode):
    """Writes down what happens in one case, from the call of an answer on."""

    def __init__(self, answer: Callable, at: int) -> None:
        super().__init__()
        self.answer, self.cases_left = answer, at
        self.parts = ["in the call"]
        self.events: list[Event] = []
        self._open = ExitStack()  # of what is to be undone after the case
        self._recording = False
        self._in_call = True
        self._names: dict[int, str] = {}  # of what the case gave, by identity
        self._codes: dict[CodeType, str] = {}  # of the functions among it
        self._registered: list[Registered] = []
        self._left: Counter[tuple[str, str]] = Counter()  # hooks of each kind on each thing that were there last
        self._returned: tuple[Any, Plain | None] = None, None  # by the answer, and what that held last
        self._passes: Counter[str] = Counter()  # that the case made, by the words for them
        self._depth = 0  # of calls inside of each other
        self._watches: dict[FrameType, Watch] = {}  # of the functions that run
        self._code_of_hooks: CodeType | None = None  # of what stands in the place of each hook
        self._begin = {
            MODULE_CALL: self._begin_module,
            RemovableHandle.remove.__code__: self._see_removal,
            torch.autograd.graph._engine_run_backward.__code__: self._begin_backward,
            **dict.fromkeys(codes_that_register(), self._begin_registration),
        }

    # --- from the call to the end of the case ---

    def watch(self, case: Case) -> Case:
        """The case, with names for what it gives, and with an end to the recording."""
        self._codes, self._names = {}, {}
        for name, value in case.watched().items():
            if isinstance(value, nn.Module):
                parts = (*value.named_modules(), *value.named_parameters(), *value.named_buffers())
                self._names |= {id(part): f"{name}.{path}" for path, part in parts if path}
        things = {**case.given, **case.watched()}
        self._names |= {id(value): name for name, value in reversed(things.items())}  # of two names, the first
        for name, value in case.given.items():
            inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            self._codes |= {code: f"a function in `{name}`" for each in inside for code in codes_of(each)}
            self._codes |= {code: f"`{name}`" for code in codes_of(value) if isinstance(value, FunctionType)}
        then = case.then or (lambda _: None)

        def play_on(returned: Any) -> Any:
            if self._recording:
                self._in_call = False
                self._start_part("after the call")
            try:
                return then(returned)
            finally:
                self._stop()

        case.then = play_on
        return case

    def call_answer(self, *given: Any) -> Any:
        """Call the answer; in the case that is asked for, record from now on."""
        self.cases_left -= 1
        if self.cases_left >= 0:
            return self.answer(*given)
        self._recording = True
        self._open.callback(sys.setprofile, sys.getprofile())
        self._open.enter_context(self)
        self._open.enter_context(torch.autograd.set_multithreading_enabled(False))
        sys.setprofile(self._see)
        try:
            returned = self.answer(*given)
        except BaseException:
            self._stop()
            raise
        self._returned = returned, brief(returned)
        self._note("returns", gave=self._returned[1])
        return returned

    def _stop(self) -> None:
        if self._recording:
            self._note_what_is_left()
        self._recording = False
        self._open.close()
        self._returned, self._registered = (None, None), []  # so that nothing lives on because of this
        self._watches.clear()  # which ends them where they wait, and takes a mode of theirs off

    def _start_part(self, words: str) -> None:
        self._note_what_is_left()
        self.parts.append(words)

    def _note_what_is_left(self) -> None:
        """Which hooks are there still, and what is in the list or dict that was returned, where that has changed."""
        self._note_what_it_holds()
        left = Counter((each.kind, each.on) for each in self._registered if each.is_there)
        for kind, on in dict.fromkeys((*self._left, *left)):
            if self._left[kind, on] != left[kind, on]:
                self._note("left", kind, on, gave=plain(left[kind, on]))
        self._left = left

    def _note_what_it_holds(self) -> None:
        returned, before = self._returned
        if isinstance(returned, list | dict) and (now := brief(returned)) != before:
            self._note("holds", on="what was returned", gave=now)
            self._returned = returned, now

    def _note(self, what: str, kind: str = "", on: str = "", frame: FrameType | None = None, **values: Any) -> Event:
        event = {"part": len(self.parts) - 1, "what": what, "kind": kind, "on": on, **values}
        if frame:
            while _side_of(frame.f_code) != "you":
                frame = frame.f_back
            file, event["line"] = frame.f_code.co_filename, frame.f_lineno
            event["text"] = "" if file.startswith(CASES) else linecache.getline(file, frame.f_lineno).strip()
        self.events.append(event)
        return event

    def _name(self, thing: Any) -> str:
        if name := self._names.get(id(thing)):
            return f"`{name}`"
        if isinstance(thing, Tensor):
            return f"another tensor of shape {tuple(thing.shape)}"
        return "another module" if isinstance(thing, nn.Module) else "another object"

    # --- calls that Python reports ---

    def _see(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "call":
            begin = self._begin.get(frame.f_code)
            if begin is None and _side_of(frame.f_code) == "you":
                begin = self._begin_own
            elif begin is None and frame.f_code in self._codes:
                begin = self._begin_given
            watch = begin and begin(frame)
            if watch and next(watch, self) is not self:  # it waits for the end of the function
                self._watches[frame] = watch
        elif event == "return" and frame in self._watches:
            with suppress(StopIteration):
                self._watches.pop(frame).send(value)

    def _begin_registration(self, frame: FrameType) -> Watch:
        if _runs_inside(frame, self._begin) or find_side(frame.f_back) != "you":
            return
        name = frame.f_code.co_name
        kind, on = kind_of(name), "all optimizers" if "optimizer" in name else "all modules"
        if "self" in frame.f_locals:
            on = self._name(frame.f_locals["self"])
        handle = yield
        if isinstance(handle, RemovableHandle):
            self._note("registers", kind, on, frame)
            self._registered.append(Registered(kind, on, handle.hooks_dict_ref, handle.id))
            table = handle.hooks_dict_ref()
            table[handle.id] = self._make_visible(table[handle.id], kind, on)

    def _make_visible(self, hook: Callable, kind: str, on: str) -> Callable:
        """A function that runs the hook and notes it. (Several hooks may share their code, or be written in C.)"""

        def visible(*args: Any, **kwargs: Any) -> Any:
            if not self._recording:
                return hook(*args, **kwargs)
            values = args[1:] if isinstance(args[0], nn.Module | torch.optim.Optimizer) else args
            received = (values or (None,))[-1 if kind == "forward hook" else 0]
            event = self._note("runs", kind, on, got=brief(received), ended="raised", changed=plain(False))
            event["gave"] = event["got"]
            returned = hook(*args, **kwargs)
            after = brief(received)
            event["ended"] = "returned nothing" if returned is None else "returned"
            event["changed"] = plain(after != event["got"])
            event["gave"] = after if returned is None else brief(returned)
            if kind == "post-accumulate-grad hook":
                event["gave"] = brief((received.detach(), received.grad))
            self._note_what_it_holds()
            return returned

        self._code_of_hooks = visible.__code__
        return visible

    def _see_removal(self, frame: FrameType) -> None:
        for each in [each for each in self._registered if each.key == frame.f_locals["self"].id and each.is_there]:
            if find_side(frame.f_back) == "you":
                self._note("removes", each.kind, each.on, frame)
            else:  # by a case, which got its handle
                self._note("released", each.kind, each.on)
                self._registered.remove(each)
                self._left[each.kind, each.on] -= 1

    def _begin_backward(self, frame: FrameType) -> Watch:
        side = find_side(frame.f_back)
        if side == "you":
            self._note("backward", frame=frame)
        is_seen = self in _get_current_function_mode_stack()  # no mode is on inside of an operation
        with self._pass("backward", side), nullcontext() if is_seen else self:
            yield

    def _begin_module(self, frame: FrameType) -> Watch:
        side, on = find_side(frame.f_back), self._name(frame.f_locals["self"])
        with self._pass(f"call of {on}", side):
            if side == "you" and self._depth == 1:
                yield from self._watch_call(frame, "module", on, frame.f_back, frame.f_locals["args"])
            else:
                yield

    def _begin_given(self, frame: FrameType) -> Watch:
        is_hook = frame.f_back.f_code is self._code_of_hooks  # then torch calls it
        if is_hook or _side_of(frame.f_back.f_code) == "you":
            caller, values = None if is_hook else frame.f_back, split_arguments(lambda: None, frame)[1]
            with self._pass("", ""):
                yield from self._watch_call(frame, "function", self._codes[frame.f_code], caller, tuple(values))

    def _watch_call(self, frame: FrameType, kind: str, on: str, caller: FrameType | None, given: Any) -> Watch:
        """Note a call, and how it ends."""
        event = self._note("calls", kind, on, caller, got=brief(given), gave=plain(None))
        event["gave"] = brief((yield))
        if has_raised(frame):
            event["ended"] = "raised"

    @contextmanager
    def _pass(self, words: str, side: str) -> Iterator[None]:
        """Something runs that may run others; if the case began it, it is a part of its own."""
        is_part = side == "case" and not self._depth and not self._in_call
        if is_part:
            self._passes[words] += 1
            place, words = "at" if words in WITH.values() else "in", _tell_pass(words, self._passes[words])
            self._start_part(f"{place} {words}")
        self._depth += 1
        yield
        self._depth -= 1
        if is_part:
            self._start_part(f"after {words}")

    def _begin_own(self, frame: FrameType) -> Watch:
        """A function of the answer runs: the case called it, or a `with` of the case."""
        caller, name = frame.f_back.f_code, frame.f_code.co_name
        if _side_of(caller) == "case":
            what = f"call of `{name}`" if isinstance(self.answer, type) else "call of what was returned"
            with self._pass(WITH.get(name, what), "case"):
                yield
        elif caller.co_filename.endswith("contextlib.py") and caller.co_name in WITH:
            with self._pass(WITH[caller.co_name], find_side(frame.f_back)):
                yield

    # --- operations that torch reports ---

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame, kwargs = sys._getframe(1), kwargs or {}
        if not self._recording or find_side(frame) != "you":
            return func(*args, **kwargs)
        name, target = func.__name__, next(iter(args), None)
        used = tensors_in((args[1:] if name in OVERWRITES else args, kwargs))
        takes_none = name.endswith("_like") or (name == "__get__" and func.__self__.__name__ == "grad")
        got = [] if takes_none else [brief(each) for each in used]  # numbers of what it is given
        result = func(*args, **kwargs)
        if _side_of(frame.f_code) == "you":  # and not a function of torch that it has called
            self._note_change(func, target, result, frame)
        made = [brief(each) for each in tensors_in(result)] or [brief(result)] * isinstance(result, float)
        if made and "empty" not in name:  # whose numbers are whatever was in memory
            on = self._name(used[0]) if used and id(used[0]) in self._names else ""
            self._note("computes", on=on, frame=frame, got=got, gave=made)
        return result

    def _note_change(self, func: Callable, target: Any, result: Any, frame: FrameType) -> None:
        """An attribute of a tensor is set, or its gradient is read, or a tensor of the case is changed in place."""
        name = func.__self__.__name__ if func.__name__ in ("__get__", "__set__") else func.__name__
        if func.__name__ == "__set__" or name == "requires_grad_":
            attribute = name.removesuffix("_")
            self._note("sets", attribute, self._name(target), frame, gave=brief(getattr(target, attribute)))
        elif func.__name__ == "__get__" and name == "grad":
            self._note("reads", name, self._name(target), frame, gave=brief(result))
        elif is_in_place(name) and id(target) in self._names:
            self._note("changes", "", self._name(target), frame, gave=brief(target))


def _tell_pass(words: str, number: int) -> str:
    """Which run it is of what the case begins: "the second backward", "the end of a `with` block" for the first."""
    if words in WITH.values() and number == 1:
        return f"the {words}"
    return f"the {ORDINALS[number - 1] if number <= len(ORDINALS) else f'{number}th'} {words}"


def is_in_place(name: str) -> bool:
    """Whether a function of torch changes its first argument, by its name: `mul_`, `__imul__`, `__setitem__`."""
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in ("__invert__", "__index__", "__int__"))
    return name.endswith("_")


def _side_of(code: CodeType) -> str:
    """Whose code it is: "you" for an answer's, "case" for a lesson's; "" for a library's and the course's."""
    file = code.co_filename
    if file.startswith(CASES):
        return "case" if file.endswith(".py") else "you"  # the course's own answers stand there, too
    return "" if file.startswith(NOT_OWN) else "you"


def find_side(frame: FrameType | None) -> str:
    """Whose code runs, the innermost that is no library's; "module" for what a module does in its call."""
    while frame:
        if frame.f_code is MODULE_CALL:
            return "module"
        if side := _side_of(frame.f_code):
            return side
        frame = frame.f_back
    return ""


def _runs_inside(frame: FrameType, codes: dict[CodeType, Any]) -> bool:
    """Whether one of these functions of torch has called this one: `register_hook` is called twice, under a mode."""
    above = frame.f_back
    while above and _side_of(above.f_code) != "you":
        if above.f_code in codes and above.f_code is not MODULE_CALL:
            return True
        above = above.f_back
    return False
