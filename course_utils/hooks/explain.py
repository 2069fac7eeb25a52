"""Why did my hook not fire, or what became of it? Ask in your own project, about any hook.

    with explain_hook(model, hook) as story:
        model(x).sum().backward()
    print(story)            # what happened to this hook, and the one reason

Every cause that a story can have is in `assets/hook_causes.md`, with an example that runs; `read_causes()` reads it.
"""

import dataclasses
import dis
import functools
import gc
import inspect
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from course_utils.hooks.observe import Call, Observer, Pass, Registration, Run, find_elsewhere, observing
from course_utils.hooks.record import graph_of
from course_utils.root import ASSETS, CourseError
from course_utils.show import CAUTION, GOOD, NEUTRAL, Told

Owner = nn.Module | Tensor | torch.optim.Optimizer

_FORWARD = ("forward pre-hook", "forward hook")
_BACKWARD = ("full backward pre-hook", "full backward hook", "legacy backward hook")
_TENSOR = ("tensor hook", "post-accumulate-grad hook")
# What these return has no effect; of an optimizer, a load-state-dict pre-hook may return another state.
_RETURNS_NOTHING = ("step post-hook", "state-dict pre-hook", "load-state-dict pre-hook")
_REFUSES = ("state-dict post-hook", "load-state-dict post-hook")  # of a module: they must return None
# How many arguments torch gives to a hook where it is not three, without those by keyword.
_ARGUMENTS = {"forward pre-hook": 2, "full backward pre-hook": 2, "tensor hook": 1, "post-accumulate-grad hook": 1}


@dataclasses.dataclass(frozen=True)
class Cause:
    """One of the causes: its `name`, what it `means`, how to `mend` it, and an `example`, code that makes a `story`."""

    name: str
    means: str
    mend: str
    example: str


@functools.cache
def read_causes() -> dict[str, Cause]:
    """Return every cause that a story can have, by name."""
    text = (ASSETS / "hook_causes.md").read_text(encoding="utf-8")
    causes = {}
    for section in text.split("\n## ")[1:]:
        words, _, example = section.partition("\n\n```python\n")
        name, *paragraphs = words.split("\n\n")
        means, mend = (each.replace("\n", " ") for each in paragraphs)
        causes[name] = Cause(name, means, mend, example.rpartition("```")[0])
    return causes


class Story(Told):
    """What happened to one hook in a block: `cause` is a name from `read_causes()`, `runs` how often the hook ran.

    `print` shows it as text, a notebook as a card. It holds words only, and keeps no tensor alive.
    """

    def __init__(self) -> None:
        self.cause = ""
        self.runs = 0
        self.headline = "The block has not ended: the hook is explained afterwards."
        self.lines: list[str] = []
        self.symbol = "?"

    def _tell(self, seen: Observer, error: BaseException | None) -> None:
        self.cause, group = _find_cause(seen)
        runs = _runs_of(seen, group[0]) if group and group[0].owner is None else seen.runs
        self.runs = len(runs)
        cause = read_causes()[self.cause]
        self.symbol, self.edge = {"it ran": ("✓", GOOD), "unknown": ("?", NEUTRAL)}.get(self.cause, ("!", CAUTION))
        name = getattr(seen.hook, "__name__", type(seen.hook).__name__)
        kind = f", a {group[0].kind} on {_name_of(seen, group[0])}," if group else ""
        self.headline = f"`{name}`{kind} {_count(self.runs)}. Cause: {self.cause}."
        self.lines = [cause.means, cause.mend]
        self.lines += _shorten([_tell_registration(seen, each) for each in seen.registrations])
        self.lines += _shorten([_tell_run(number, run) for number, run in enumerate(runs, 1)])
        if not runs:
            self.lines += _shorten(_tell_events(seen))
        if error is not None:
            first = str(error).partition("\n")[0]
            self.lines.append(f"The block ended with {type(error).__name__}: {first}")


@contextmanager
def explain_hook(owner: Owner, hook: Callable | RemovableHandle) -> Iterator[Story]:
    """Say after the block what happened to `hook` in it: where it was registered, how often it ran, and if not, why.

    owner: the model, tensor or optimizer that the hook is about. A model may be any module; of a hook that sits on
    several of its layers, give the layer that you ask about. hook: the function, method or object, or its handle.

    The block goes around forward, backward and step, and may hold the registration; of what came before it the story
    says only what the tables of hooks show. The story is complete when the block has ended, also by an exception, which
    goes on. Nothing of the model, its hooks and its results is changed, and nothing stays behind. While the block runs,
    Python calls a profile function, which makes it slower and keeps the graphs of the hooked layers until it ends.

    Raises `CourseError` for a handle whose hook is gone, and for something that holds no hooks.
    """
    if not isinstance(owner, Owner):
        raise CourseError(f"a hook sits on a model, a tensor or an optimizer; got {type(owner).__name__}")
    if isinstance(hook, RemovableHandle):
        table = hook.hooks_dict_ref() or {}
        if hook.id not in table:
            raise CourseError("the hook of this handle was removed before the block: give the hook's function")
        hook = table[hook.id]
    story = Story()
    try:
        with observing(owner, hook) as seen:
            yield story
    except BaseException as error:
        story._tell(seen, error)
        raise
    story._tell(seen, None)


# --- which cause? ---


def _find_cause(seen: Observer) -> tuple[str, list[Registration]]:
    """Return the cause, and the registrations that have it: the hook that did not run first, then the odd one."""
    if not seen.registrations and not seen.runs:
        seen.registrations += find_elsewhere(seen.owner, seen.hook)
    if not seen.registrations:
        if seen.runs:
            return "it ran", []  # something else calls it, or a node of the graph
        return ("scripted, traced or exported" if _is_foreign(seen.owner) else "never registered"), []
    groups: dict[tuple[str, int], list[Registration]] = {}
    for each in seen.registrations:
        groups.setdefault((each.kind, id(each.owner)), []).append(each)
    found = [(_find_cause_of(seen, group), group) for group in groups.values()]
    odd = [each for each in found if each[0] != "it ran"]
    silent = [each for each in odd if not _runs_of(seen, each[1][0])]
    return (silent or odd or found)[0]


def _find_cause_of(seen: Observer, group: list[Registration]) -> str:
    """Return the cause for the registrations of one kind on one owner."""
    registration, runs = group[0], _runs_of(seen, group[0])
    if all(each.refused for each in group):
        return _why_refused(seen, registration)
    if runs:
        return _find_oddity(seen, group, runs)
    if _ran_elsewhere(seen):
        return "another instance"
    if registration.kind in _TENSOR:
        return _why_no_gradient_came(seen, registration)
    if registration.kind in _BACKWARD:
        return _why_backward_did_not_run(seen, registration)
    if registration.kind in _FORWARD:
        return _why_forward_did_not_run(seen, registration)
    return "registered too late" if seen.asked and seen.asked[-1] < registration.time else "never called"


def _runs_of(seen: Observer, registration: Registration) -> list[Run]:
    kind, owner = registration.kind, registration.owner
    if kind in _TENSOR:
        return [run for run in seen.runs if run.module is None]
    if kind in _FORWARD + _BACKWARD:
        is_forward = kind in _FORWARD
        return [run for run in seen.runs if (run.call is not None) == is_forward and _is_of(seen, owner, run.module)]
    return [run for run in seen.runs if run.module is None or run.module is owner]


def _is_of(seen: Observer, owner: Any, module: Any) -> bool:
    """Whether a module is the owner; without an owner (a global hook), whether it is part of the model."""
    return module is owner if owner is not None else any(module is each for each in seen.modules)


def _ran_elsewhere(seen: Observer) -> bool:
    """Whether the hook ran for a module that it was not registered on: for a copy, to which its table was copied."""
    owners = [each.owner for each in seen.registrations]
    modules = [run.module for run in seen.runs if isinstance(run.module, nn.Module)]
    return None not in [*owners] and any(all(each is not owner for owner in owners) for each in modules)


def _is_foreign(module: Any) -> bool:
    return isinstance(module, (torch.jit.ScriptModule, torch.fx.GraphModule))


def _why_refused(seen: Observer, registration: Registration) -> str:
    owner = registration.owner
    if not isinstance(owner, Tensor) or owner.requires_grad:
        return "registration refused"
    off = not registration.grad_enabled or any(not call.grad_enabled for call in seen.calls)
    return "gradients switched off" if off else "nothing requires a gradient"


def _calls_of(seen: Observer, registration: Registration) -> list[Call]:
    """Return the calls of the owner, other than of its `forward` alone, while the hook was in its table."""
    own = [call for call in seen.calls if registration in call.active and not call.direct]
    return [call for call in own if _is_of(seen, registration.owner, call.module)]


def _why_forward_did_not_run(seen: Observer, registration: Registration) -> str:
    called = _calls_of(seen, registration)
    if not called:
        return _why_not_called(seen, registration)
    if not any(call.raised for call in called):
        return "compiled" if any(_was_there(registration, time) for time in seen.compiled) else "unknown"
    return "stopped by an exception" if _takes_its_arguments(seen, registration) else "the hook raised"


def _takes_its_arguments(seen: Observer, registration: Registration) -> bool:
    """Whether the hook can be called with as many arguments as torch gives it."""
    number = _ARGUMENTS.get(registration.kind, 3)
    if registration.sees_keywords:
        number += 1
    try:
        inspect.signature(seen.hook).bind(*range(number))
    except TypeError:
        return False
    return True


def _why_not_called(seen: Observer, registration: Registration) -> str:
    """Say why the owner was not called while the hook was in its table."""
    own = [call for call in seen.calls if _is_of(seen, registration.owner, call.module)]
    meanwhile = [call for call in seen.calls if _was_there(registration, call.time)]
    if any(_was_there(registration, time) for time in seen.compiled):
        return "compiled"
    if any(_is_foreign(call.module) for call in meanwhile) and not own:
        return "scripted, traced or exported"
    if own and own[-1].time < registration.time:
        return "registered too late"
    if any(registration not in call.active and call.time > registration.time for call in own):
        return "removed"
    if any(call.direct for call in own):
        return "forward called directly"
    if _is_another_instance(seen, registration.owner):
        return "another instance"
    if any(call.raised for call in meanwhile):
        return "stopped by an exception"
    silent = seen.owner if registration.owner is None else registration.owner
    return "weights used without a call" if _are_weights_used(seen, silent) else "never called"


def _was_there(registration: Registration, time: int) -> bool:
    return registration.time < time and not 0 < registration.removed < time


def _is_another_instance(seen: Observer, owner: Any) -> bool:
    """Whether what ran is not what the hook sits on: it is not part of the model, or a copy of the model was called."""
    if isinstance(owner, Tensor):
        return isinstance(owner, nn.Parameter) and _is_replaced(seen, owner)
    if owner is None or not isinstance(seen.owner, nn.Module):
        return False
    if all(owner is not module for module in seen.owner.modules()):
        return True
    if any(call.module is module for call in seen.calls for module in seen.owner.modules()):
        return False
    return any(_is_like(call, seen.owner) for call in seen.calls)


def _is_replaced(seen: Observer, parameter: nn.Parameter) -> bool:
    """Whether a parameter is none of the model's; without a model, none of what ran, where one of its shape is."""
    if isinstance(seen.owner, nn.Module):
        return all(parameter is not each for each in seen.owner.parameters())
    used = [each for call in seen.calls for each in call.module._parameters.values() if each is not None]
    return any(each.shape == parameter.shape for each in used) and all(each is not parameter for each in used)


def _is_like(call: Call, model: nn.Module) -> bool:
    """Whether a module with the layers of the model was called; a single layer counts only if no module called it."""
    is_same_kind = type(call.module) is type(model) and bool(model._modules or call.parent is None)
    return is_same_kind and repr(call.module) == repr(model)


def _are_weights_used(seen: Observer, owner: Any) -> bool:
    """Whether the output depends on weights of a module that was not called, or code that ran reads them from it."""
    if not isinstance(owner, nn.Module):
        return False
    ran = [call.module for call in seen.calls]
    silent = [module for module in owner.modules() if module not in ran]
    own = [parameter for module in silent for parameter in module.parameters(recurse=False)]
    leaves = [node.variable for node in graph_of(seen.last_output or []) if hasattr(node, "variable")]
    return any(leaf is each for leaf in leaves for each in own) or any(_reads_weights(each, owner) for each in ran)


def _reads_weights(module: nn.Module, owner: nn.Module) -> bool:
    """Whether the code of a module's forward holds `.name.weight` of a child, without a call of the child."""
    names = [name for name, child in module._modules.items() if child is owner]
    code = getattr(module.forward, "__code__", None)
    if not names or not code:
        return False
    steps = [each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_ATTR", "LOAD_METHOD")]
    return any(one in names and two in owner._parameters for one, two in itertools.pairwise(steps))


def _why_backward_did_not_run(seen: Observer, registration: Registration) -> str:
    called = _calls_of(seen, registration)
    passes = [each for each in seen.passes if each.time > registration.time]
    if not called:
        if passes and not seen.calls:  # forward was before the block
            return "registered too late" if registration.time else "unknown"
        return _why_not_called(seen, registration)
    last = called[-1]
    if any(call.transform for call in called):
        return "function transform"
    if seen.inplace_failed > called[0].time:
        return "changed in place"
    if last.raised or last.top.raised:
        return "stopped by an exception"
    if not any(call.grad_enabled for call in called):
        return "gradients switched off"
    if not any(call.has_graph for call in called):
        return "nothing requires a gradient"
    if registration.kind != "legacy backward hook" and not last.has_tensor:
        return "output is not a tensor"
    return _why_passes_missed(seen, registration, passes, {id(call) for call in called})


def _why_passes_missed(seen: Observer, registration: Registration, passes: list[Pass], targets: set[int]) -> str:
    """Say why no gradient came to a place in the graph that `targets` (ids of calls or registrations) stand for."""
    if not passes:
        return "no backward pass"
    reached = [each for each in passes if each.reached & targets]
    if not reached:
        return "function transform" if any(each.transform for each in passes) else "not on the path"
    if any(each.raised for each in reached):
        return "stopped by an exception" if _takes_its_arguments(seen, registration) else "the hook raised"
    is_missed = all(each.restricted or not each.accumulates for each in reached)
    return "passed by" if is_missed and seen.is_visible else "unknown"


def _why_no_gradient_came(seen: Observer, registration: Registration) -> str:
    owner = registration.owner
    passes = [each for each in seen.passes if _was_there(registration, each.time)]
    if seen.passes and not passes:
        return "registered too late" if seen.passes[-1].time < registration.time else "removed"
    users = [call for call in seen.calls if any(each is owner for each in call.module._parameters.values())]
    if passes and not any(id(registration) in each.reached for each in passes):
        if _is_another_instance(seen, owner):
            return "another instance"
        if owner.grad_fn is not registration.node:
            return "changed in place"
        if not owner.requires_grad:
            return "nothing requires a gradient"
        if any(_was_there(registration, time) for time in seen.compiled):
            return "compiled"
        if users and not any(call.grad_enabled for call in users):
            return "gradients switched off"
    return _why_passes_missed(seen, registration, passes, {id(registration)})


# --- it ran: was there anything that its author may not expect? ---


def _find_oddity(seen: Observer, group: list[Registration], runs: list[Run]) -> str:
    registration, kind = group[0], group[0].kind
    is_forward = kind in _FORWARD
    tests = {
        "the hook raised": any(run.raised for run in runs),
        "return value refused": _is_refused(seen, registration, runs[-1]),
        "called after an exception": kind == "forward hook" and _has_no_output(runs[-1]),
        "registered several times": _is_there_twice(group),
        "another instance": _ran_elsewhere(seen),
        "recomputed by checkpointing": any(run.call and run.call.recomputed for run in runs),
        "several backward passes": not is_forward and _ran_in_several_passes(runs),
        "called several times": _is_called_several_times(seen, registration, runs),
        "legacy kind": kind == "legacy backward hook",
        "keyword arguments": is_forward and not registration.sees_keywords and any(map(_misses_keywords, runs)),
        "no input requires a gradient": kind == "full backward hook" and not any(run.tensors[0] for run in runs),
        "scaled gradients": not is_forward and seen.scaled,
        "another hook came first": any(run.changed_before for run in runs),
        "changed in place": _is_changed_in_place(seen, registration),
        "return value ignored": _is_ignored(registration) and any(run.returned is not None for run in runs),
    }
    return next((name for name, found in tests.items() if found), "it ran")


def _is_refused(seen: Observer, registration: Registration, run: Run) -> bool:
    if run.returned is None:
        return False
    around = run.backward or (run.call and run.call.top)
    is_public = registration.kind == "state-dict hook" and getattr(seen.hook, "_from_public_api", False)
    must_return_none = isinstance(registration.owner, nn.Module) and (is_public or registration.kind in _REFUSES)
    return must_return_none or bool(around and around.raised)


def _is_ignored(registration: Registration) -> bool:
    may_load = registration.kind == "load-state-dict pre-hook" and not isinstance(registration.owner, nn.Module)
    return registration.kind in _RETURNS_NOTHING and not may_load


def _has_no_output(run: Run) -> bool:
    return bool(run.call and run.call.raised) and run.sees[-1] is None


def _is_there_twice(group: list[Registration]) -> bool:
    """Whether two of the registrations were there at the same time."""
    pairs = itertools.pairwise(group)
    return any(_was_there(one, two.time) or one.time == two.time == 0 for one, two in pairs)


def _ran_in_several_passes(runs: list[Run]) -> bool:
    passes = list(dict.fromkeys(run.backward for run in runs if run.backward))
    return any(each.repeats for each in passes[1:]) or any(each.creates_graph for each in passes[:-1])


def _is_called_several_times(seen: Observer, registration: Registration, runs: list[Run]) -> bool:
    """Whether one call of the model calls a layer more than once, which then overwrites what its hook recorded."""
    if registration.kind in _TENSOR:
        return False
    places = [(id(call.top), id(call.module)) for call in _calls_of(seen, registration) if not call.recomputed]
    return len(places) > len(set(places)) and len(runs) > 1


def _misses_keywords(run: Run) -> bool:
    return run.call is not None and run.call.kwargs > 0 and run.call.args == 0


def _is_changed_in_place(seen: Observer, registration: Registration) -> bool:
    if registration.kind == "tensor hook":
        return registration.owner.grad_fn is not registration.node
    if registration.kind != "forward hook":
        return False
    return any(_is_stored(ref(), version) for ref, version in seen.kept)


def _is_stored(tensor: Tensor | None, version: int) -> bool:
    """Whether a tensor has changed and a list or a dict holds it: its hook has stored the tensor and not a copy."""
    if tensor is None or tensor.is_inference() or tensor._version == version:
        return False
    return any(isinstance(holder, (dict, list)) for holder in gc.get_referrers(tensor))


# --- in words ---


def _count(runs: int) -> str:
    if runs == 0:
        return "did not run"
    return "ran once" if runs == 1 else f"ran {runs} times"


def _name_of(seen: Observer, registration: Registration) -> str:
    owner = registration.owner
    if owner is None:
        return "all optimizers" if "step" in registration.kind else "all modules"
    if owner is seen.owner:
        return "the model" if isinstance(owner, nn.Module) else f"the {type(owner).__name__} that you gave"
    if isinstance(seen.owner, nn.Module):
        for name, each in (*seen.owner.named_modules(), *seen.owner.named_parameters()):
            if each is owner:
                return f"`{name}`"
        return f"a {type(owner).__name__} that is not part of the model"
    return f"another {type(owner).__name__}"


def _shorten(lines: list[str], most: int = 4) -> list[str]:
    rest = len(lines) - most
    return [*lines[:most], f"… and {rest} more like this."] if rest > 0 else lines


def _tell_registration(seen: Observer, each: Registration) -> str:
    when = f"at {each.place}" if each.place else "before the block"
    gone = f", removed at {each.removed_at}" if each.removed_at else ""
    return f"Registered on {_name_of(seen, each)} {when}{gone}."


def _tell_run(number: int, run: Run) -> str:
    if run.raised:
        gave = "It raised an exception."
    elif run.returned is None:
        gave = "It returned nothing, so what it saw went on as it was."
    else:
        gave = f"It returned {run.returned}."
    return f"Run {number}, during {run.place}: it saw {run.sees}. {gave}"


def _tell_events(seen: Observer) -> list[str]:
    """Return what the block did instead: the calls that the user's code made, and the backward passes."""
    calls = [call for call in seen.calls if call.place and (call.parent is None or call.active)]
    events = [(call.time, f"{_tell_call(call)} at {call.place}") for call in calls]
    events += [(each.time, f"A backward pass began at {each.place}") for each in seen.passes]
    return [f"{what}." for _, what in sorted(events)]


def _tell_call(call: Call) -> str:
    name = type(call.module).__name__
    return f"The `forward` of `{name}` was called directly" if call.direct else f"`{name}` was called"
