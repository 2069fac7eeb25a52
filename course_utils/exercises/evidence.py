"""What an answer did, observed from outside, as plain data.

`observe` runs an answer in one case and notes everything a hook can do. It draws no conclusions; see `judging`.
"""

import gc
import inspect
import itertools
import os
import re
import signal
import sysconfig
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.plain import MAX_TEXT, Evidence, Plain, plain, raised_type, show
from course_utils.exercises.world import World
from course_utils.hooks.inventory import list_hooks

CaseMaker = Callable[[Numbers], Iterator[Case]]

LIBRARIES = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
NOT_OWN = (str(Path(__file__).resolve().parents[1]), *LIBRARIES, "<frozen", "<string>")  # the last: of dataclasses
UNCUT = ("_find_and_load", "__exit__")  # the functions of libraries that import, and that put things back
SECONDS_MORE = 10
IN_USE = " (already in use: with gradients, hooks and modes from before)"


class TimeIsUp(BaseException):
    """Raised inside an answer that runs too long. No `Exception`, so that `except Exception` lets it pass."""


def can_limit_time() -> bool:
    """Whether `time_limit` works here."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeIsUp` in the block after `seconds`, and again every second while the block goes on.

    Works where Python has interval timers (Linux, macOS) and in the main thread, which is where Jupyter runs cells;
    elsewhere there is no limit and the reader interrupts the kernel. An operation inside torch is not cut short, and
    what a library loads or puts back gets some seconds more: a half of it would spoil all that comes later. What it
    calls of the answer meanwhile gets none.
    """
    if not can_limit_time():
        yield
        return

    more = iter(range(SECONDS_MORE))

    def ring(_: int, frame: types.FrameType | None) -> None:
        codes = (each.f_code for each, _ in traceback.walk_stack(frame))  # the innermost first
        of_libraries = itertools.takewhile(lambda code: code.co_filename.startswith(NOT_OWN), codes)
        if {code.co_name for code in of_libraries}.isdisjoint(UNCUT) or next(more, None) is None:
            raise TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def observe_all(make_cases: CaseMaker, function: Callable, seed: int, limit: float, at: int | None) -> list[Evidence]:
    """Run `function` in every case of `seed`, or in number `at` alone, and return the evidence of each.

    torch's random numbers are seeded before each case, so that a case's modules are the same for every function. They
    and everything else in `world` are put back, however it ends. After an answer has run out of time (`limit`, in
    seconds a case), no further case is tried.
    """
    found: list[Evidence] = []
    storages: list[list[StorageWeakRef]] = []
    tables: list[dict] = []  # of the hooks on tensors
    left_out: list[Case] = []
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=devices), _silence(), World() as world, ExitStack() as stack:
        gc.freeze()  # a collection of new objects alone takes milliseconds instead of 0.3 s
        stack.callback(gc.unfreeze)
        used = (case for case in make_cases(Numbers(seed)) if not case.fresh and case.put_in_use())
        cases = itertools.chain(make_cases(Numbers(seed)), used)
        for index in itertools.count():
            torch.default_generator.manual_seed(seed + index)  # `torch.manual_seed` looks for devices: 3 ms more
            case = next(cases, None)
            if case is None:
                break
            if at not in (None, index):
                left_out.append(case)
                continue
            while case.follows and left_out:
                observe(function, left_out.pop(0), world, limit)
            storages.append(_storages(case.given.values()))
            found.append(observe(function, case, world, limit))
            hooks = (getattr(each, "_backward_hooks", None) for each in case.watched().values())
            tables += [table for table in hooks if isinstance(table, dict)]
            if index == at or raised_type(found[-1]) == TimeIsUp.__name__:
                break
        # Only now are the variables of the cases gone, so that what still lives was stored by the answer.
        del case, cases, used, hooks, left_out
        for table in tables:
            table.clear()  # a hook may use the very tensor that it is on, and torch frees neither of the two
        if not all(storage.expired() for storage in itertools.chain(*storages)):
            gc.collect()  # reference cycles first
        names = names_used(function)
        for evidence, inputs in zip(found, storages, strict=True):
            evidence["names"], names = names, []  # once is enough
            evidence["alive"] = evidence["raised"] is None and not all(storage.expired() for storage in inputs)
    found[-1]["world"] = world.changed
    return found


@contextmanager
def _silence() -> Iterator[None]:
    """What is printed and warned of in the block counts for nothing, and is not seen."""
    with (
        open(os.devnull, "w") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def names_used(function: Callable) -> list[str]:
    """The functions, attributes, keywords and other outside names in the code of a function, or of a class's methods,
    and of what it uses of its own cell; sorted. Texts that could be a name count, too: `mode="any"`.
    """
    codes, namespace, methods = codes_of(function), namespace_of(function), set()
    for code in codes:
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]  # go on with those inside
        for value in map(namespace.get, code.co_names):
            beside = [each for each in codes_of(value) if each.co_filename == code.co_filename and each not in codes]
            codes += beside
            methods |= {each.co_name for each in beside if isinstance(value, type)}
    names = {name for code in codes for name in (*code.co_names, *_short_names(code.co_consts))}
    return sorted(names | methods)


def _short_names(constants: Iterable[object]) -> Iterator[str]:
    """The texts that could be a name among the constants of a code, and in its tuples of keywords."""
    for constant in constants:
        if isinstance(constant, str) and constant.isidentifier() and len(constant) < 40:
            yield constant
        elif isinstance(constant, tuple):
            yield from _short_names(constant)


def codes_of(answer: object) -> list[types.CodeType]:
    """The code of a function, or of a class's methods; nothing for an object that raises when it is looked at."""
    return [each.__code__ for each in _functions_of(answer)]


def with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code, and that of the functions in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from with_inner(each)


def _functions_of(answer: object) -> list[types.FunctionType]:
    with suppress(Exception):
        parts = vars(answer).values() if isinstance(answer, type) else [inspect.unwrap(answer)]
        functions = [each.__func__ if isinstance(each, staticmethod) else each for each in parts]
        return [each for each in functions if isinstance(each, types.FunctionType)]
    return []


def namespace_of(answer: object) -> Mapping[str, object]:
    """The names among which a function, or a class's methods, run."""
    return next((each.__globals__ for each in _functions_of(answer)), {})


def _storages(values: Iterator[Any]) -> list[StorageWeakRef]:
    tensors = (each for each in values if isinstance(each, torch.Tensor) and each.layout is torch.strided)
    return [StorageWeakRef(each.untyped_storage()) for each in tensors if each.device.type != "meta"]


def observe(function: Callable, case: Case, world: World, limit: float) -> Evidence:
    """Run `function` in `case` and note what it did. Of what the answer raises, only Ctrl-C comes out."""
    given = dict(case.given)
    shown = case.shown or ", ".join(f"{name} = {show(plain(value))}" for name, value in given.items())
    evidence: Evidence = {"given": shown + IN_USE * case.in_use, "changed": {}}
    watched = {**given, **case.watched()}
    before = {name: snapshot(value) for name, value in watched.items()}
    attached = {name: _hooks_and_items(value) for name, value in watched.items()}
    modules = {name: _modules_of(value) for name, value in watched.items()}
    evidence |= _run(function, case, world, limit) | {"inputs": before}
    try:
        evidence["inputs"] = {name: snapshot(value) for name, value in watched.items()}
        now = {name: _hooks_and_items(value) for name, value in watched.items()}
        for name, value in watched.items():
            parts = {id(part) for part in value.modules() if part is not value} if isinstance(value, nn.Module) else ()
            inside = [other for other in watched if id(watched[other]) in parts]
            # A hook counts once, on the innermost module with a name.
            of_parts = {hook for other in inside for hook in attached[other][0] | now[other][0]}
            states = [(hooks - of_parts, items) for hooks, items in (attached[name], now[name])]
            for place, there in _modules_of(value).items():
                if there is not modules[name].get(place):  # a new one, whose mode nobody has changed
                    before[name]["training"].pop(place, None)
            if aspects := _changes(before[name], evidence["inputs"][name], *states):
                evidence["changed"][name] = aspects
    except Exception as error:  # an input is no tensor or module any more that one could read
        evidence["raised"] = evidence["raised"] or describe_error(error, "afterwards")
    return evidence


def _run(function: Callable, case: Case, world: World, limit: float) -> Evidence:
    """Run an answer and what comes after it: what was returned, seen and raised, and what it left changed for all."""
    found: Evidence = {"raised": None, "seen": {}}
    returned, during = None, "call"
    world.begin_case()
    try:
        with time_limit(limit):
            try:
                returned = function(*case.given.values())
            finally:
                world.keep_python_running()
            during = "afterwards"
            seen = (case.then(returned) if case.then else None) or {}
            found["seen"] = {label: plain(value) for label, value in seen.items()}
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        world.keep_python_running()
        found["raised"] = describe_error(error, during)
    found["returned"] = plain(returned)  # now, for it may be a part of what is put back
    world.put_back()
    return found | {"world": list(world.changed)}


def describe_error(error: BaseException, during: str) -> dict[str, Any]:
    """What was raised: type, first lines of the message, and the innermost line that is no library's, if any."""
    stack = traceback.extract_tb(error.__traceback__)
    own = [number for number, frame in enumerate(stack) if not frame.filename.startswith(NOT_OWN)]
    frame = stack[own[-1]] if own else None
    if own and during == "afterwards" and "torch" in Path(stack[own[0] - 1].filename).parts:
        during = "hook"  # torch called it
    message = ""
    with suppress(Exception):  # its own words may not work
        message = str(error)[:MAX_TEXT]
    message = re.sub(r"0x[0-9a-fA-F]+", "0x…", re.sub(r"\w+\.<locals>\.", "", message)).strip().rstrip(".")
    return {
        "type": type(error).__name__,
        "message": " ".join(message.splitlines()[:2])[:400],
        "during": during,
        "line": frame.lineno if frame else None,
        "text": (frame.line or "").strip() if frame else "",
    }


def snapshot(value: object) -> dict[str, Any]:
    """The state of an argument: its value, its gradient, its hooks, and a module's modes and parameters."""
    if not isinstance(value, (torch.Tensor, nn.Module)):
        return {"value": plain(value)}
    if isinstance(value, torch.Tensor):
        return {"value": plain(value), "grad": plain(value.grad), "requires_grad": value.requires_grad}
    modules = _modules_of(value)
    parameters = dict(value.named_parameters(remove_duplicate=False))
    tensors = parameters | dict(value.named_buffers(remove_duplicate=False))
    return {
        "value": {name: plain(each) for name, each in tensors.items()},
        "grad": {name: plain(each.grad) for name, each in parameters.items()},
        "requires_grad": {name: each.requires_grad for name, each in parameters.items()},
        "training": {name: module.training is True for name, module in modules.items()},
        "settings": {name: _settings(module) for name, module in modules.items()},
    }


def _modules_of(value: object) -> dict[str, nn.Module]:
    """A module and those in it, by name; a second name for one of them counts."""
    return dict(value.named_modules(remove_duplicate=False)) if isinstance(value, nn.Module) else {}


def _settings(module: nn.Module) -> Plain:
    """A module's plain attributes: those that it was made with, and what somebody put over its methods."""
    return plain({name: each for name, each in vars(module).items() if name[0] != "_" and name != "training"})


def _hooks_and_items(value: object) -> tuple[set[tuple[int, int]], list[int]]:
    """The hooks on a tensor or a module, and which things a list or a dict holds, not what they are like."""
    if isinstance(value, torch.Tensor | nn.Module):
        return {(id(hook.table), hook.key) for hook in list_hooks(value) if hook.scope == "local"}, []
    value = list(value.values()) if isinstance(value, dict) else value
    return set(), [id(each) for each in value] if isinstance(value, list) else []


def _changes(before: dict[str, Any], after: dict[str, Any], attached: tuple, now: tuple) -> list[str]:
    (hooks, items), (hooks_now, items_now) = attached, now
    found = [each for each in before if each != "grad" and _differ(before[each], after.get(each))]
    is_module, names = "settings" in before, ("value", "training")
    if is_module and "settings" not in found and any(before[each].keys() != after[each].keys() for each in names):
        found.append("settings")  # a parameter, a buffer or a module has come, gone, or got another name
    if hooks_now - hooks:
        found.append("hooks")
    if hooks - hooks_now:
        found.append("hooks of others")
    if not found and items != items_now:
        found.append("value")
    return found


def _differ(before: Any, after: Any) -> bool:
    """Whether a state has changed; of a module's parts, those that were there before and still are."""
    if isinstance(before, dict) and isinstance(after, dict) and "type" not in before:
        return any(before[name] != after[name] for name in before.keys() & after.keys())
    return before != after
