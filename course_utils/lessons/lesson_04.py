"""The cases of lesson 04, inside a call. Tasks stand in the lesson's source, answers on the pages in `answers`.

Together the answers are a `__call__` of one's own: five functions are the steps of a call; `MiniSteps` has them as
methods, and the last exercise, `MiniModule`, puts them in order. No exercise needs the learner's answer to another one:
torch itself does the steps of `MiniSteps`, and `plug_in` swaps in those that the learner has written.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.declaration import is_blank
from course_utils.exercises.engine import Exercise, exercise
from course_utils.hooks.trace import trace
from course_utils.lessons.torch_steps import KINDS, TorchSteps
from course_utils.root import has_answers

WORDS = dict(
    zip(KINDS, ("forward pre-hook", "forward hook", "full backward pre-hook", "full backward hook"), strict=True)
)


@contextlib.contextmanager
def in_tables(*entries: tuple[nn.Module | None, str, int, Callable]) -> Iterator[None]:
    """Put hooks into tables by hand while the block runs: their keys are then the same in every run.

    An entry is a module (None for all modules), a kind, a key and a hook.
    """
    flag = torch_module._global_is_full_backward_hook
    tables = [global_table(kind) if owner is None else getattr(owner, f"_{kind}") for owner, kind, *_ in entries]
    try:
        for table, (owner, kind, key, hook) in zip(tables, entries, strict=True):
            table[key] = hook
            if kind == "backward_hooks" and owner is None:
                torch_module._global_is_full_backward_hook = True
            elif kind == "backward_hooks":
                owner._is_full_backward_hook = True
        yield
    finally:
        torch_module._global_is_full_backward_hook = flag
        for table, (_, _, key, _) in zip(tables, entries, strict=True):
            table.pop(key, None)


def global_table(kind: str) -> dict[int, Callable]:
    return getattr(torch_module, f"_global_{kind}")


def do_nothing(*_: object) -> None:
    """A hook."""


class Watch:
    """What the hooks of a case saw, and what was wrong in the calls of the hooks."""

    def __init__(self, module: nn.Module, register: str) -> None:
        self.module, self.log, self.wrong = module, [], []
        getattr(module, register)(lambda *_: self.wrong.append("a hook ran that is on the module, and not in `hooks`"))

    def note(self, module: nn.Module, args: object, *rest: object) -> None:
        """A hook that writes down what it gets."""
        if module is not self.module:
            self.wrong.append("the first argument was not the module")
        if not isinstance(args, tuple):
            self.wrong.append("the second argument was no tuple")
        values = [value.clone() if isinstance(value, torch.Tensor) else value for value in args]
        self.log.append([values, *rest] if rest else values)

    def tell(self) -> dict[str, object]:
        """What to compare; the next case begins with nothing."""
        wrong, saw = "; ".join(dict.fromkeys(self.wrong)) or "nothing", list(self.log)
        self.wrong.clear()
        self.log.clear()
        return {"what was wrong in the calls of the hooks": wrong, "what the hooks saw": saw}


class Scaled(nn.Module):
    """x · weight · factor: two inputs, of which the second is a plain number."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x, factor=1):
        return x * self.weight * factor


class Split(nn.Module):
    """Two outputs, in a tuple."""

    def forward(self, x):
        return x * 2, x * 3


class Blend(nn.Module):
    """x · weight · factor and x · y, in a tuple; the second goes through a child."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight, self.child = nn.Parameter(weight), nn.Identity()

    def forward(self, x, factor, y):
        return x * self.weight * factor, self.child(x * y)


class _Outputs(list):
    """A hook that is a list, and empty before the first call."""

    def __call__(self, module, args, output):
        self.append(output)


@exercise
def takes_fast_path(rng):
    situations = ["no hook", "a hook on its child", "a hook on its weight", "a state-dict hook"]
    situations += [
        "a backward hook of the old kind",
        "a full backward hook that was removed",
        "an empty list that is a forward hook",
    ]
    situations += [f"{where} {kind}" for kind in KINDS for where in ("a local", "a global")]
    situations += [f"a local and a global {rng.choice(KINDS)}"]
    while situations:
        situation = situations.pop(rng.integer(0, len(situations) - 1))
        module = nn.Linear(1, 1)
        module.add_module("child", nn.Identity())
        module.train(rng.choice((True, False)))
        where, _, kind = situation.rpartition(" ")
        entries = []
        if "local" in where:
            entries.append((module, kind, 5, do_nothing))
        if "global" in where:
            entries.append((None, kind, 6, do_nothing))
        if situation == "a hook on its child":
            entries = [(module.child, kind, 7, do_nothing) for kind in KINDS]
        elif situation == "an empty list that is a forward hook":
            entries = [(module, "forward_hooks", 5, _Outputs())]
        elif situation == "a hook on its weight":
            module.weight.register_hook(do_nothing)
        elif situation == "a backward hook of the old kind":
            module._backward_hooks[5] = do_nothing  # and `_is_full_backward_hook` is not set
        elif situation == "a state-dict hook":
            module._state_dict_hooks[8] = do_nothing
        elif situation == "a full backward hook that was removed":
            module.register_full_backward_hook(do_nothing).remove()
        words = f"a module with {situation}"
        for kind, name in WORDS.items():
            words = words.replace(kind, name)
        grad_enabled = situation != "a local backward_hooks"
        with in_tables(*entries), torch.set_grad_enabled(grad_enabled):
            yield Case({"module": module}, shown=words if grad_enabled else f"{words}, asked inside torch.no_grad()")
    module = nn.Linear(1, 1)
    yield Case({"module": module}, shown="a module without a hook, which you will be asked about again")
    with in_tables((module, "forward_hooks", 5, do_nothing)):
        yield Case({"module": module}, shown="the same module, which has got a forward hook since")


def _run_all(hooks: object) -> bool:
    """Run the hooks of a dict; False for anything else, since what came back tells enough then."""
    if not isinstance(hooks, MutableMapping) or not all(map(callable, hooks.values())):
        return False
    for hook in hooks.values():
        hook()
    return True


@exercise
def hooks_in_order(rng):
    def say(log, word):
        return lambda *_: log.append(word)

    for number, kind in enumerate(KINDS):
        module, log, key = nn.Sequential(nn.Identity()), [], rng.integer(1, 50)

        def tell_order(hooks, log=log):
            return {"what ran": list(log)} if _run_all(hooks) else {}

        with in_tables(  # a hook registered with `prepend=True` stands before one with a smaller key
            (module, kind, key + 2, say(log, "its own, first in its table")),
            (None, kind, key + 3, say(log, "global, first in its table")),
            (module, kind, key, say(log, "its own, second in its table")),
            (None, kind, key + 1, say(log, "global, second in its table")),
            (module, KINDS[number - 1], key + 4, say(log, "its own, of another kind")),
            (None, KINDS[number - 2], key + 5, say(log, "global, of another kind")),
            (module[0], kind, key + 6, say(log, "of its child")),
        ):
            yield Case({"module": module, "kind": kind}, tell_order, shown=f'kind = "{kind}" and hooks in many tables')

    for owner in ("the module", "all modules"):
        kind, module, log = rng.choice(KINDS), nn.Identity(), []
        own = owner == "the module"
        table = getattr(module, f"_{kind}") if own else global_table(kind)

        def remove_itself(table=table, log=log):
            log.append("once")
            del table[7]

        def empty(hooks, module=module, kind=kind, table=table, log=log, owner=owner):
            if not _run_all(hooks):
                return {}
            before = dict(hooks)
            tables = [(each, dict(each)) for each in (getattr(module, f"_{kind}"), global_table(kind))]
            hooks.clear()
            found = {"what ran": list(log)}
            found[f"whether the other hook stays in the table of {owner}, after yours was emptied"] = 8 in table
            hooks.update(before)
            for each, hooks_in_it in tables:  # they may be what was emptied, and filled, and not by the answer
                each.clear()
                each.update(hooks_in_it)
            return found

        place = module if own else None
        with in_tables((place, kind, 7, remove_itself), (place, kind, 8, say(log, "next"))):
            words = f"a hook of {owner} that removes itself when it runs, and a caller who empties your dict"
            yield Case({"module": module, "kind": kind}, empty, shown=words)

    kind, module, outputs = rng.choice(KINDS), nn.Identity(), _Outputs()

    def is_the_same(hooks):
        return {"whether the list is the very hook of the table": hooks.get(7) is outputs}

    with in_tables((module, kind, 6, do_nothing), (None, kind, 5, do_nothing), (module, kind, 7, outputs)):
        words = "one function that is a hook of the module and of all modules, and an empty list that is a hook"
        yield Case({"module": module, "kind": kind}, is_the_same, shown=words)


@exercise
def run_pre_hooks(rng):
    module, x, y = nn.Identity(), rng.quarters(2), rng.quarters(2)
    watch = Watch(module, "register_forward_pre_hook")
    note = watch.note

    def seen(result):
        return watch.tell() | {"whether a tuple came back": isinstance(result, tuple)}

    def case(hooks, args, shown):
        return Case({"module": module, "hooks": hooks, "args": args}, seen, shown=shown)

    hooks = {9: note, 4: lambda _, args: args[0] * 10, 6: note, 5: lambda _, args: args[0] + 1, 3: note}
    yield case(hooks | {2: lambda _, args: args[0] - 2}, (x,), "three hooks that return a tensor of two")
    hooks = {1: lambda _, args: (args[1], args[0]), 2: note, 3: lambda _, args: args[1] * 2, 4: note}
    yield case(hooks, (x, y), "a hook that swaps two arguments, and one that returns a single one")
    yield case({9: note, 6: note}, (x, 7), "two hooks that only look")
    yield case({9: lambda *_: 7, 6: note}, (x, y, 5), "three arguments, and a hook that returns a single one")
    hooks = {8: lambda _, args: args[0] * 0, 9: note, 2: lambda _, args: 0, 3: note, 4: lambda _, args: (), 5: note}
    yield case(hooks, (rng.whole(1),), "hooks that return a tensor with a zero, the number 0 and an empty tuple")
    hooks = {2: lambda _, args: [args[0], args[0]], 4: note, 1: lambda _, args: (None,), 3: note}
    hooks |= {5: lambda _, args: "text", 6: note, 7: lambda _, args: {"a": 1}, 8: note, 9: lambda *_: False}
    yield case(hooks, (3,), "hooks that return a list, a tuple with None in it, a string, a dict and False")
    yield case({}, (x, y), "no hook")
    calls = itertools.count(1)
    yield case({6: lambda *_: f"call {next(calls)}", 5: note}, (x,), "a hook that counts its calls")

    def fail(*_):
        raise LookupError("the hook failed")

    def leave_word(_, args):
        args[1].append("a hook ran")

    yield case({4: leave_word, 6: fail, 5: leave_word}, (x, []), "three hooks, of which the second raises")

    def ask(_, args):
        watch.log.append(["whether it is a leaf", args[0].is_leaf])

    yield case({5: ask}, (rng.leaf(1),), "a hook that asks whether its argument is a leaf")
    hooks = {2: lambda _, args: args[0].max(0), 4: note}
    yield case(hooks, (rng.quarters(2),), "a hook that returns `args[0].max(0)`, a named tuple of values and indices")


@exercise
def run_forward_hooks(rng):
    module, x, y = nn.Identity(), rng.quarters(2), rng.quarters(3)
    watch = Watch(module, "register_forward_hook")
    note, log = watch.note, watch.log

    def seen(output):
        return watch.tell() | {"the type of the output": type(output).__name__}

    def case(hooks, output, shown, *, started=(), args=(x, y)):
        given = {"module": module, "hooks": hooks, "args": args, "output": output, "started": set(started)}
        return Case(given, seen, shown=shown)

    first = rng.integer(1, 9)
    hooks = {30: note, first: lambda _, args, out: out * 10, 20: note}
    hooks |= {11: lambda _, args, out: out + args[1][0], 12: note, 10: lambda _, args, out: out - 2}
    yield case(hooks, x + 1, "three hooks that return a new output")
    hooks = {first: lambda _, args, out: (out, args[0]), 40: note}
    yield case(
        hooks,
        x + 2,
        "a hook that returns a tuple, then one that returns None, whose key is in `started`",
        started=(40, 99),
    )
    hooks = {11: lambda _, args, out: out * 0, 12: note, 10: lambda *_: False, 9: note, 8: lambda *_: (), 7: note}
    yield case(hooks, rng.whole(1), "hooks that return a tensor with a zero, False and an empty tuple")
    started = set()
    look = {key: lambda *_, key=key: log.append([f"hook {key}", sorted(started)]) for key in (13, 11, 12)}
    given = {"module": module, "hooks": look, "args": (x,), "output": x, "started": started}
    yield Case(given, seen, shown="three hooks that look into `started`")

    def fail(*_):
        raise LookupError("the hook failed")

    def leave_word(_, args, output):
        args[1].append("a hook ran")

    hooks = {first: leave_word, 20: fail, 15: leave_word}
    yield case(hooks, x, "three hooks, of which the second raises", args=(x, []))
    yield case({}, x, "no hook")
    calls = itertools.count(1)
    hooks = {6: lambda _, args, out: (out,), 5: note, 3: lambda *_: [f"call {next(calls)}"], 4: note}
    yield case(hooks, x, "a hook that returns a tuple of one, and one that counts its calls and returns a list")

    def ask(_, args, out):
        log.append(["whether it requires a gradient", out.requires_grad])

    yield case({5: ask}, rng.leaf(2), "a hook that asks whether the output requires a gradient")


@exercise
def run_always_called(rng):
    module, x, y, heard = nn.Identity(), rng.quarters(2), rng.quarters(1), []
    watch = Watch(module, "register_forward_hook")

    def listen():  # in the call every hook sees to it that each later warning is counted
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_, **__: heard.append(str(message))

    def note(word):
        def hook(module, args, output):
            listen()
            watch.note(module, args, output, f"the {word} hook")
            return "not used"

        return hook

    def fail(word):
        def hook(*_):
            listen()
            watch.log.append(f"the {word} hook, which raises")
            raise LookupError(f"the {word} hook failed")

        return hook

    def quoted(text):
        hooks = [f"the {word} hook" for word in ("first", "second", "third")]
        failed = [hook for hook in hooks if f"{hook} failed" in text]
        return " and, in the same warning, ".join(failed) or "something else"

    def case(hooks, started, output, shown):
        before = set(started)

        def seen(_):
            started.difference_update(set(hooks) - before)  # who notes the keys there as well does no harm
            found = watch.tell() | {"what the warnings tell of": ", ".join(sorted(map(quoted, heard))) or "nothing"}
            heard.clear()
            return found

        given = {"module": module, "hooks": hooks, "started": started, "args": (x, y), "output": output}
        return Case(given, seen, shown=shown)

    one, two, three = rng.integer(20, 29), rng.integer(1, 9), rng.integer(10, 19)
    hooks = {one: note("first"), two: note("second"), three: note("third")}
    yield case(hooks, set(), None, "three hooks, none of which has started")
    yield case(hooks, {rng.choice([one, three]), 99}, x * 2, "three hooks, of which one has started, and an output")
    yield case({one: fail("first"), two: note("second")}, set(), None, "two hooks, of which the first raises")
    hooks = {one: fail("first"), three: fail("second"), two: note("third")}
    yield case(hooks, {7_000}, y, "three hooks, of which two raise")
    yield case({one: fail("first"), two: note("second")}, {one, two}, y, "two hooks, which have both started")
    yield case({}, {one}, None, "no hook")
    hooks = {three: note("first"), two: note("second"), one: note("third")}
    yield case(hooks, {three}, y, "three hooks, of which the first has started, and an output")

    def fail_silently(*_):
        listen()
        raise LookupError

    yield case({one: fail_silently, two: note("first")}, set(), None, "two hooks, of which the first raises no message")
    twice, same = note("first"), fail("second")
    hooks = {one: twice, two: same, three: twice, 40: same}
    yield case(hooks, {one}, y, "four hooks: two functions, each under two keys, of which the first has started")


@exercise
def pass_through(rng):
    earlier = []

    def case(answer_of_look, factors, shown):
        leaves = [rng.quarters(*shape).requires_grad_() for _, shape in zip(factors, [(2,), (1, 3), ()], strict=False)]
        if "float64" in shown:
            leaves = [(leaf.detach().double() / 3).requires_grad_() for leaf in leaves]
        log = []

        def look(*seen):
            if len(seen) != 1 or not isinstance(seen[0], tuple):
                raise TypeError("look takes one argument, a tuple of gradients")
            log.append([gradient.clone() for gradient in seen[0]])
            return answer_of_look(seen[0])

        def backward(result):
            found = {
                "whether a tuple came back": isinstance(result, tuple),
                "whether look is called in forward": bool(log),
            }
            for number in ("first", "second"):
                passed = sum((tensor * factor).sum() for tensor, factor in zip(result, factors, strict=True))
                (passed + sum(7 * leaf.sum() for leaf in leaves)).backward(retain_graph=True)
                found[f"the gradients that look saw in the {number} backward"] = list(log)
                log.clear()
                factors[-1] += 1
            for tensors, look_of_theirs in earlier:
                sum(tensor.sum() for tensor in tensors).backward()
                found["the number of calls when the tensors of the case before have a backward"] = len(look_of_theirs)
            earlier[:] = [(result, log)]
            return found

        given = {"look": look, **{f"t{i}": leaf for i, leaf in enumerate(leaves, 1)}}
        return Case(given, backward, shown=shown, follows=True)

    factors = [-rng.integer(2, 9), rng.integer(2, 9)]
    words = f"two tensors, multiplied by {factors[0]} and {factors[1]} afterwards, and a look that looks"
    yield case(lambda gradients: None, factors, words)
    factor = rng.integer(2, 9)
    yield case(
        lambda gradients: (gradients[0] * 100,), [factor], "one float64 tensor, and a look that returns 100 times it"
    )
    factors = [rng.integer(2, 9), rng.integer(2, 9)]
    words = f"two tensors, multiplied by {factors[0]} and {factors[1]}, and a look that returns None for the second"
    yield case(lambda gradients: (gradients[0] + 1, None), factors, words)
    yield case(
        lambda gradients: (gradients[0].flip(0) * gradients[2], gradients[1] * gradients[0][0], gradients[2] * 0),
        [torch.tensor([2.0, -3.0]), -rng.integer(2, 9), rng.integer(2, 4)],
        "three tensors, and a look that mixes their gradients",
    )


@exercise
def forward_between_nodes(rng):
    def grads(values):
        return [None if value is None else value.clone() for value in values]

    def case(module, args, full, pre, shown):
        log, of_child, wrong = [], [], []

        def note(word, change=None):
            def hook(who, *gradients):
                if who is not module:
                    wrong.append("the first argument was not the module")
                if not all(isinstance(each, tuple) for each in gradients):
                    wrong.append("the gradients were no tuple")
                log.append([word, *map(grads, gradients)])
                return change and change(gradients[0])

            return hook

        def backward(output):
            outputs = output if isinstance(output, tuple) else (output,)
            found = {"the output": [each.detach().clone() for each in outputs]}
            for number in ("first", "second"):
                loss = sum((2 * index + len(number)) * each.sum() for index, each in enumerate(outputs))
                loss.backward(retain_graph=True)
                found[f"what the hooks saw until the end of the {number} backward"] = list(log)
            found["what was wrong in the calls of the hooks"] = "; ".join(dict.fromkeys(wrong)) or "nothing"
            found["the gradients of the inputs"] = [each.grad for each in args if isinstance(each, torch.Tensor)]
            return found | {"when the hooks of its child ran": of_child}

        module.register_forward_pre_hook(lambda *_: wrong.append("a forward pre-hook ran that is on the module"))
        module.register_forward_hook(lambda *_: wrong.append("a forward hook ran that is on the module"))
        for child in module.children():
            child.register_forward_hook(lambda *_: of_child.append("forward"))
            child.register_full_backward_hook(lambda *_: of_child.append("backward"))
        full = [note(f"full hook {number}", change) for number, change in enumerate(full, 1)]
        pre = [note(f"pre-hook {number}", change) for number, change in enumerate(pre, 1)]
        return Case({"module": module, "full_hooks": full, "pre_hooks": pre, "args": args}, backward, shown=shown)

    def leaf():
        return rng.quarters(2).requires_grad_()

    yield case(Scaled(rng.quarters(2)), (leaf(),), [None], [None], "x * weight and hooks that look")
    factor = rng.integer(2, 5)
    blend, args = Blend(rng.quarters(2)), (leaf(), factor, leaf())
    yield case(blend, args, [None, None], [None], f"two outputs, x * weight * {factor} and x * y, and hooks that look")
    full = [lambda found: (-found[0], None, found[2] * 3), None, lambda found: (found[2], None, found[0] + 1), None]
    pre = [lambda found: (found[0] * 10, found[1] + 1), None, lambda found: (found[1], found[0] * 2), None]
    blend, args = Blend(rng.quarters(2)), (leaf(), factor, leaf())
    yield case(blend, args, full, pre, "two outputs, and two hooks of each kind that return other gradients")
    full, pre = [lambda found: (-found[0],)], [lambda found: (found[0] * 10,)]
    words = "a pre-hook that returns 10 times the gradient, and a full hook that turns the sign round"
    yield case(Scaled(rng.quarters(2)), (leaf(),), full, pre, words)
    yield case(Split(), (leaf(),), full, [], "a module with two outputs, and a full hook that turns the sign round")
    yield case(Scaled(rng.quarters(2)), (leaf(), factor), [], pre, "a pre-hook that returns 10 times the gradient")
    yield case(Scaled(rng.quarters(2)), (rng.quarters(2),), [], [None], "an input without a gradient, and a pre-hook")


class MiniSteps(TorchSteps):
    """The steps of a call as methods, as the exercises ask for them; who puts them in order is `MiniModule`.

    Tables and registering are those of `nn.Module`. Hooks with keyword arguments, legacy backward hooks, compiled and
    traced calls are left out.
    """

    def always_called(self) -> dict[int, Callable]:
        """The forward hooks registered with `always_call=True`, in order: a dict of key to hook."""
        keys = {*torch_module._global_forward_hooks_always_called, *self._forward_hooks_always_called}
        return {key: hook for key, hook in self.hooks_in_order("forward_hooks").items() if key in keys}

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("this leads back to torch's own call: put the steps in order in your `__call__`")

    __call__ = _call_impl


@contextlib.contextmanager
def global_hooks(**hooks: Callable) -> Iterator[None]:
    """Register global hooks while the block runs, by kind: `forward_hook=f`, `full_backward_pre_hook=g` …

    Afterwards torch does not remember either that there was a global full backward hook.
    """
    flag = torch_module._global_is_full_backward_hook
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, torch_module, "_global_is_full_backward_hook", flag)
        for kind, hook in hooks.items():
            stack.enter_context(getattr(torch_module, f"register_module_{kind}")(hook))
        yield


def make_net(base: type[nn.Module], rng: Numbers) -> nn.Module:
    """A network whose modules are all of the class `base`: `net` with the layers `first` and `second`."""

    class Layer(base):
        def __init__(self, weight):
            super().__init__()
            self.weight = nn.Parameter(weight)

        def forward(self, x):
            return x * self.weight

    class Net(base):
        def __init__(self):
            super().__init__()
            self.first, self.second = Layer(rng.mixed(2)), Layer(rng.mixed(2))

        def forward(self, x):
            return self.second(self.first(x))

    return Net()


def _tell(timeline: Any) -> list[str]:
    """A timeline as lines of text."""
    lines = []
    for event in timeline.events:
        name = event.module or "net"
        lines.append(f"{event.scope} {event.kind} on {name}" if event.hook else f"{event.kind}: {name}")
    return lines


@exercise
def MiniModule(rng):
    seed = rng.integer(0, 10_000)

    def net_of(answer):
        return make_net(type(answer), Numbers(seed))

    x = rng.leaf(2)

    def no_hooks(answer):
        net, log = net_of(answer), []
        forward = net.first.forward
        net.first.forward = lambda *args: log.append(args[0] is x) or forward(*args)
        output = net(x)
        node = type(output.grad_fn).__name__
        found = {
            "the output": output,
            "the output's node in the graph": node,
            "for each run of the first layer's forward, whether it got x itself": log,
        }
        net.first.forward, raised = lambda *_: 1 / 0, "nothing"
        try:
            net(x)
        except ZeroDivisionError:
            raised = "the error"
        return found | {"what is raised when forward divides by 0": raised}

    yield Case({}, no_hooks, shown="a net without hooks")

    def forward_hooks_only(answer):
        net, log, got = net_of(answer).eval(), [], []
        net.register_forward_pre_hook(lambda module, args: log.append(args[0] is x))
        net.register_forward_hook(lambda module, args, output: log.append(args[0] is x))
        net.register_forward_hook(lambda module, args, output: output + 1)
        net.first.register_forward_pre_hook(lambda module, args: args[0] * 10)
        net.first.register_forward_hook(lambda module, args, output: got.append(args[0].detach()))
        output = net(x)
        found = {"the output": output, "the output's node in the graph": type(output.grad_fn).__name__}
        with torch.no_grad():
            found["the output without a graph"] = net(x)
        return found | {"what the forward hook on a layer got": got, "whether the hooks on net got x itself": log}

    words = "a net in eval mode, with forward hooks, of which one adds 1, and a pre-hook that multiplies by 10"
    yield Case({}, forward_hooks_only, shown=words)

    kinds = ["forward_pre_hook", "forward_hook", "full_backward_pre_hook", "full_backward_hook"]

    def every_kind(answer):
        net = net_of(answer)
        for module in (net.first, net):
            for kind in kinds:
                getattr(module, f"register_{kind}")(do_nothing)
        with global_hooks(**dict.fromkeys(kinds, do_nothing)):
            lines = _tell(trace(net, x))
        backward = [line for line in lines if "backward" in line]
        return {
            "the order in forward": [line for line in lines if line not in backward],
            "the order of the backward hooks": backward,
        }

    yield Case({}, every_kind, shown="every kind of hook, global and local")

    def new_leaf():
        return x.detach().clone().requires_grad_()

    def replaced(answer):
        log, layer, leaf = [], net_of(answer).first, new_leaf()
        layer.register_forward_pre_hook(lambda module, args: args[0] * 10)
        layer.register_forward_hook(lambda module, args, output: output * 100)
        layer.register_full_backward_hook(lambda module, into, out: log.append([into[0].clone(), out[0].clone()]))
        output = layer(leaf)
        output.sum().backward()
        return {"the output": output, "what the full backward hook saw": log, "the gradient of the input": leaf.grad}

    yield Case({}, replaced, shown="a pre-hook and a forward hook that multiply, and a full backward hook")

    def one_kind(kind, where):
        def run(answer):
            log, layer, leaf = [], net_of(answer).first, new_leaf()

            def times_ten(module, *gradients):
                log.append([each[0].clone() for each in gradients])
                return tuple(each * 10 for each in gradients[0])

            with contextlib.ExitStack() as stack:
                if where == "global":
                    stack.enter_context(global_hooks(**{kind: times_ten}))
                else:
                    getattr(layer, f"register_{kind}")(times_ten)
                output = layer(leaf)
                output.sum().backward()
            return {"the output": output, "what the hook saw": log, "the gradient of the input": leaf.grad}

        words = f"one {where} {kind.replace('_hook', '-hook' if 'pre' in kind else ' hook').replace('_', ' ')}"
        return Case({}, run, shown=f"{words}, which multiplies by 10")

    places = ["local", "global"]
    first = rng.integer(0, 1)
    for kind, where in zip(kinds[2:], (places[first], places[1 - first]), strict=True):
        yield one_kind(kind, where)

    def two_of_each(answer):
        class Two(type(answer)):
            def forward(self, a, b):
                log.append("forward")
                return a * 2, a * b

        log, module = [], Two()
        a, b = (leaf := new_leaf()), leaf + 1
        # What a hook notes must not lead back to the graph: torch's nodes hold the module, and nobody would free them.
        module.register_forward_hook(lambda _, *given: log.append([[each.detach() for each in some] for some in given]))
        for word in ("first", "second"):

            def look(_, *gradients, word=word):
                log.append([f"the {word} full backward hook", *map(list, gradients)])

            with module.register_full_backward_hook(look):
                first, second = module(a, b)
            (first + 3 * second).sum().backward(retain_graph=True)
        return {"what happened": log, "the gradient of the input": leaf.grad}

    words = "two inputs, two outputs and two calls, each with a full backward hook of its own"
    yield Case({}, two_of_each, shown=words)

    def failing(who, words):
        def run(answer):
            net, log, caught, failure = net_of(answer), [], "nothing", LookupError("this call fails")
            layer, found = net.first, {}

            def fail(*_):
                if found:  # in the second call
                    raise failure

            def note(word):
                return lambda _, args, output: log.append(
                    (word, [each.detach() for each in args], None if output is None else output.detach())
                )

            layer.register_full_backward_hook(do_nothing)
            layer.register_forward_pre_hook(lambda module, args: args[0] * 10)
            if who == "earlier hook":
                layer.register_forward_hook(fail)
            layer.register_forward_hook(lambda *_: log.append(("plain", [], None)))
            layer.register_forward_hook(note("always"), always_call=True)
            if who == "forward":
                forward = layer.forward
                layer.forward = lambda *args: fail() or forward(*args)
            elif who == "pre-hook":  # before the other, so that the arguments are those of the call
                layer.register_forward_pre_hook(fail, prepend=True)
            elif who == "hook":
                layer.register_forward_hook(fail)
            elif who == "always hook":
                layer.register_forward_hook(
                    lambda *given: note("always that fails")(*given) or fail(), always_call=True
                )
            layer.register_forward_hook(note("last always"), always_call=True)
            net.register_forward_hook(note("always of net"), always_call=True)
            for call in ("the first call", "the second call"):
                try:
                    with torch_module.register_module_forward_hook(note("global always"), always_call=True):
                        net(x)
                except LookupError as error:
                    caught = "what was raised in it" if error is failure else "another exception of the same kind"
                found[f"the hooks that ran in {call}"] = ", ".join(word for word, *_ in log)
                found[f"the arguments and the output that they got in {call}"] = [given for _, *given in log]
                log.clear()
            failure.__traceback__ = None  # its frames lead to the graph as well
            return {"what came out of the second call": caught} | found

        return Case({}, run, shown=f"two calls; in the second one {words} fails")

    yield failing("forward", "the forward of a layer")
    yield failing("pre-hook", "the pre-hook of a layer")
    yield failing("hook", "a forward hook between two always-called ones")
    yield failing("earlier hook", "a forward hook before the always-called ones")
    yield failing("always hook", "an always-called hook between two others")


STEPS = (takes_fast_path, hooks_in_order, run_pre_hooks, run_forward_hooks, run_always_called)


def plug_in(*answers: Any) -> type[nn.Module]:
    """Return a module class whose call is made of your answers; the course's own stand in where one is not there yet.

    `answers` are answers to the five steps and to `MiniModule`, in any order. Prints whose is whose. Raises
    `ValueError` for anything else.
    """
    known = {each.name: each for each in (*STEPS, MiniModule)}
    names = [getattr(answer, "name", None) or getattr(answer, "__name__", repr(answer)) for answer in answers]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{unknown[0]} is no step of a call; the steps are {', '.join(known)}")
    mine = {
        name: answer
        for name, answer in zip(names, answers, strict=True)
        if not isinstance(answer, Exercise) and not is_blank(answer)
    }
    base = mine.pop("MiniModule", None)
    for name in known:
        whose = "yours" if name in mine or (name == "MiniModule" and base) else "the course's, until yours is there"
        print(f"{name}: {whose}")
    if base is None and not has_answers():
        print("So this is torch's own call. Your steps take part in it as soon as MiniModule is there.")
        return type("MiniModule", (nn.Module,), {})
    return type("MiniModule", (base or MiniModule.reference,), mine)
