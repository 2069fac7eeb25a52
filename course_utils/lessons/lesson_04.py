"""Exercises and predictions of lesson 04: inside a call. Together the answers are a `__call__` of one's own.

Five functions are the steps of a call; `MiniSteps` has them as methods, and the last exercise, `MiniModule`, puts them
in order. No exercise needs the learner's answer to another one: torch itself does the steps of `MiniSteps`, and
`plug_in` swaps in those that the learner has written.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils.hooks import BackwardHook

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.engine import Exercise, exercise, is_blank, prediction
from course_utils.hooks.trace import trace
from course_utils.lessons.torch_steps import TorchSteps

# --- predictions ------------------------------------------------------------------------------------------------------

prediction(
    "who_leaves_the_fast_path",
    lesson=4,
    question="net calls fc1, relu and fc2. There is one hook, a forward hook on fc1. Which calls leave the fast path?",
    options={
        "only that of fc1": "Each module looks at its own tables and at the global ones, not at its children's.",
        "those of fc1 and net": "net has no hook of its own. It calls forward, and what happens in there is fc1's.",
        "all four": "So it would be with a global hook. A hook on fc1 stands in fc1's table only.",
    },
    answer="only that of fc1",
    why="""
        Only `fc1` goes the long way. `net` calls `fc1`, but the call of `net` looks into the tables of `net` and into
        the global ones, and all of these are empty.
    """,
    ask={
        "those of fc1 and net": "Whose tables does the call of `net` look into? Is there a hook in any of them?",
        "all four": "Into which table does `fc1.register_forward_hook` put the hook? Does the call of `relu` look into "
        "that one?",
    },
)
prediction(
    "forward_directly",
    lesson=4,
    question="net and its layer fc1 have a forward hook each. Which of them fire in `net.forward(x)`?",
    options={
        "none": "`forward` skips the hooks of net. But inside, net calls `self.fc1(x)`, with brackets.",
        "only that of fc1": "net's hook needs net's `__call__`, which nobody ran. fc1 is called in the ordinary way.",
        "both": "Hooks are run by `__call__`. `net.forward(x)` is a plain method call and runs none of net's.",
    },
    answer="only that of fc1",
    why="""
        The result is the same, but one hook is missing. `forward` knows nothing about hooks: they are run by the call
        with brackets. `net.forward(x)` skips those of `net`, while `self.fc1(x)` inside it works as always.

        So if a layer of yours never fires its hook, look whether somebody calls `layer.forward(x)`. Or somebody takes
        only its weights and calls a function, such as `F.linear(x, layer.weight)`. Then not even its `forward` runs.
    """,
    ask={
        "none": "`net.forward(x)` runs one line of code. How does this line call `fc1`: with brackets, or as "
        "`fc1.forward`?",
        "both": "Where is the code that calls the hook of `net`? Can you find it in the `forward` of the class `Net`?",
    },
)
prediction(
    "which_pre_hook_first",
    lesson=4,
    question="fc1 gets a forward pre-hook, and after that a global forward pre-hook is registered. Which one runs "
    "first in a call of fc1?",
    options={
        "the one on fc1": "The order of registration counts inside one table. Between the tables, global comes first.",
        "the global one": "`_call_impl` goes through the global table first, whenever its hooks were registered.",
        "both at once": "Hooks run one after the other: what one returns is what the next one gets.",
    },
    answer="the global one",
    why="""
        Global hooks come first, and this holds for each of the four kinds. The order of registration decides only
        inside one table. `prepend=True` puts a hook at the front of its own table, so it still runs after the global
        ones.
    """,
    ask={
        "the one on fc1": "The hook on `fc1` was registered first, and it printed second. Do the two hooks stand in "
        "one table or in two?",
        "both at once": "Suppose that one hook doubles the input and the other one adds 1. Does it matter which of "
        "them runs first?",
    },
)
prediction(
    "last_in_backward",
    lesson=4,
    question="net, fc1 and fc2 have full backward hooks, and x requires a gradient. Whose fires last?",
    options={
        "that of fc1": "fc1 is the last *layer* in backward. But the gradient of fc1's input is also that of net's.",
        "that of fc2": "fc2 is the last layer in forward, so it is the first in backward.",
        "that of net": "net's hook waits for the gradient of net's input, and that comes out of fc1.",
    },
    answer="that of net",
    why="""
        Forward is nested like brackets: `net` opens first and closes last. Here backward is nested too. The pre-hook
        of `net` is the first of all, and its full hook is the last. A full backward hook waits for the gradient of
        its module's *input*. For `net` this is the same gradient as for `fc1`, and it takes the whole backward pass
        to compute it.

        If x required no gradient, there would be nothing to wait for, and the full hook of `net` would fire before
        those of its layers, as you saw in lesson 03.
    """,
    ask={
        "that of fc1": "`fc1` gets the gradient of x as its `grad_input`. Which other hook waits for this same "
        "gradient?",
        "that of fc2": "What must `fc1` receive before it can begin? Through which layers has that come?",
    },
)
prediction(
    "always_call_when_forward_raises",
    lesson=4,
    question="forward raises. A forward hook registered with always_call=True: what does it get as the output?",
    options={
        "it does not run": "A plain forward hook does not. This is what `always_call=True` is for.",
        "None": "There is no output yet. The hook runs all the same, and then the exception goes on.",
        "the exception": "The hook is not told what went wrong. Its output is None.",
    },
    answer="None",
    why="""
        The plain hook stays silent. The other one runs with None as the output, and after it the exception goes on as
        it was. This is right for a hook that has to stop or undo something, such as a timer.
    """,
    ask={
        "it does not run": "There were two hooks on the layer. Which of them printed a line, and how had it been "
        "registered?",
        "the exception": "A forward hook gets what `forward` has returned. What had the `forward` of this layer "
        "returned when the hook ran?",
    },
)
prediction(
    "what_forward_receives",
    lesson=4,
    question="x is a leaf, and the layer has a full backward hook. What does its forward receive?",
    options={
        "x itself": "So it is without the hook. With it, a node has to stand between x and the layer.",
        "a copy of x": "Nothing is copied: the memory is the same.",
        "a view of x": "It shares the memory of x, and its `grad_fn` is the node at which the hook waits.",
    },
    answer="a view of x",
    why="""
        The input is a **view** of `x`: the same memory, but a tensor of its own, whose `grad_fn` is the new node. The
        output is such a view too. PyTorch does this only while autograd is recording, and only where a gradient is
        required. You can read it in the parts "wrap inputs", "wrap outputs" and "insert a node" of the source below.
    """,
    ask={
        "x itself": "With the hook, `Peek` printed the name of a node. What does it print for a leaf such as x, and "
        "why?",
        "a copy of x": "What did `Peek` print after `same memory`? What would it print for `x.clone()`?",
    },
)
prediction(
    "silent_hook",
    lesson=4,
    question="the hook on `third` never fires, and yet the network uses this layer. Which is the reason?",
    options={
        "it uses the weights in a function": "Then no `forward` of third would run. The trace has one.",
        "it calls forward by its name": "The trace shows that third's forward runs, and a hook that is there does not.",
        "the hook has been removed": "`list_hooks` finds it: it is on third all the time.",
        "it calls another module": "The trace knows modules by their names, and it is third whose forward runs.",
    },
    answer="it calls forward by its name",
    why="""
        `list_hooks` finds the hook, so it was not removed. The trace shows `forward` of `third`, so this very module
        computes something. But there is no line for its hook. Only one explanation is left, and the source confirms
        it: `self.third.forward(h)`, where `self.third(h)` should stand.

        In a network whose code you cannot change, put hooks on the neighbours. A forward pre-hook on `relu3` gets
        what `third` gave.
    """,
    ask={
        "it uses the weights in a function": "Suppose that the network called `F.linear(h, self.third.weight)`. Which "
        "lines of the trace would be missing?",
        "the hook has been removed": "What did `list_hooks` print here? What would it print after `handle.remove()`?",
        "it calls another module": "On which module did `list_hooks` find the hook? Whose `forward` does the trace "
        "show between `relu2` and `relu3`?",
    },
)

# --- what the cases are made of ---------------------------------------------------------------------------------------

KINDS = ("forward_pre_hooks", "forward_hooks", "backward_pre_hooks", "backward_hooks")
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


# --- exercises --------------------------------------------------------------------------------------------------------


@exercise(
    lesson=4,
    points=1,
    hints=[
        "Four kinds of hooks, and two places for each: eight tables. An empty table is false.",
        '`module._forward_hooks` and `torch_module._global_forward_hooks` are two of them. `getattr(module, "_" + '
        "kind)` gets one by name.",
        '`return not any(getattr(module, f"_{kind}") or getattr(torch_module, f"_global_{kind}") for kind in kinds)`',
    ],
)
def takes_fast_path(module):
    """Return True if a call of `module` goes straight to its forward, else False.

    It does if there is no forward pre-hook, forward hook, full backward pre-hook
    and backward hook, neither on this very module nor for all modules.
    """
    kinds = ("forward_pre_hooks", "forward_hooks", "backward_pre_hooks", "backward_hooks")
    local = any(getattr(module, f"_{kind}") for kind in kinds)
    for_all = any(getattr(torch_module, f"_global_{kind}") for kind in kinds)
    return not (local or for_all)


class _Outputs(list):
    """A hook that is a list, and empty before the first call."""

    def __call__(self, module, args, output):
        self.append(output)


@takes_fast_path.cases
def _(rng):
    situations = ["no hook", "a hook on its child", "a hook on its weight", "a state-dict hook"]
    situations += ["a full backward hook that was removed", "an empty list that is a forward hook"]
    situations += [f"{where} {kind}" for kind in KINDS for where in ("a local", "a global")]
    situations += [f"a local and a global {rng.choice(KINDS)}"]
    while situations:
        situation = situations.pop(rng.integer(0, len(situations) - 1))
        module = nn.Linear(1, 1)
        module.add_module("child", nn.Identity())
        module.train(rng.choice((True, False)))
        where, _, kind = situation.rpartition(" ")
        entries = [(module, kind, 5, do_nothing)] * ("local" in where) + [(None, kind, 6, do_nothing)] * (
            "global" in where
        )
        if situation == "a hook on its child":
            entries = [(module.child, kind, 7, do_nothing) for kind in KINDS]
        elif situation == "an empty list that is a forward hook":
            entries = [(module, "forward_hooks", 5, _Outputs())]
        elif situation == "a hook on its weight":
            module.weight.register_hook(do_nothing)
        elif situation == "a state-dict hook":
            module._state_dict_hooks[8] = do_nothing
        elif situation == "a full backward hook that was removed":
            module.register_full_backward_hook(do_nothing).remove()
        words = f"a module with {situation}"
        for kind, name in WORDS.items():
            words = words.replace(kind, name)
        with in_tables(*entries):
            yield Case({"module": module}, shown=words)
    module = nn.Linear(1, 1)
    yield Case({"module": module}, shown="a module without a hook, which you will be asked about again")
    with in_tables((module, "forward_hooks", 5, do_nothing)):
        yield Case({"module": module}, shown="the same module, which has got a forward hook since")


@takes_fast_path.accept
def _(module):
    return not (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or torch_module._global_forward_hooks
        or torch_module._global_forward_pre_hooks
        or torch_module._global_backward_hooks
        or torch_module._global_backward_pre_hooks
    )


@takes_fast_path.accept
def _(module):
    count = 0
    for kind in ("forward", "forward_pre", "backward", "backward_pre"):
        count += len(vars(module)[f"_{kind}_hooks"]) + len(vars(torch_module)[f"_global_{kind}_hooks"])
    return count == 0


@takes_fast_path.mistake(
    "You looked at the module's own tables only. A global hook takes every module off the fast path."
)
def _(module):
    return not (
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


@takes_fast_path.mistake(
    "The backward hooks are missing. They run later, but it is the call that has to prepare for them."
)
def _(module):
    return not (
        module._forward_hooks
        or module._forward_pre_hooks
        or torch_module._global_forward_hooks
        or torch_module._global_forward_pre_hooks
    )


@takes_fast_path.mistake("You counted the hooks of its children too. Each module looks at its own tables alone.")
def _(module):
    return not any(
        getattr(each, f"_{kind}") or global_table(kind)
        for each in module.modules()
        for kind in ("forward_pre_hooks", "forward_hooks", "backward_pre_hooks", "backward_hooks")
    )


@takes_fast_path.mistake("It is the other way round: your function says True where there are hooks.")
def _(module):
    return any(getattr(module, f"_{kind}") or global_table(kind) for kind in KINDS)


@takes_fast_path.mistake("You looked at the global tables only. The hooks on the module itself count as well.")
def _(module):
    return not any(global_table(kind) for kind in KINDS)


@takes_fast_path.mistake(
    "Your function looks at the forward pre-hooks only. A `return` ends a loop in its first round: say True after the "
    "loop."
)
def _(module):
    for kind in KINDS:
        return not (getattr(module, f"_{kind}") or global_table(kind))


@takes_fast_path.mistake(
    "Your function never says True. Without a hook the tables are there all the same: ask whether they are empty."
)
def _(module):
    return all(getattr(module, f"_{kind}") is None and global_table(kind) is None for kind in KINDS)


@takes_fast_path.mistake("The pre-hooks are missing: those before forward, and those before backward.")
def _(module):
    return not any(getattr(module, f"_{kind}") or global_table(kind) for kind in ("forward_hooks", "backward_hooks"))


takes_fast_path.equivalent(
    "Whether any of eight tables holds a hook does not depend on the order in which they are looked at.",
    "backwards: - local = any((getattr(module, f'_{kind}') for kind in kinds)) "
    "+ local = any((getattr(module, f'_{kind}') for kind in list(kinds)[::-1]))",
    "backwards: - for_all = any((getattr(torch_module, f'_global_{kind}') for kind in kinds)) "
    "+ for_all = any((getattr(torch_module, f'_global_{kind}') for kind in list(kinds)[::-1]))",
    "backwards: - for kind in ('forward', 'forward_pre', 'backward', 'backward_pre'): "
    "+ for kind in list(('forward', 'forward_pre', 'backward', 'backward_pre'))[::-1]:",
)
takes_fast_path.equivalent(
    "The sum is a plain number: it can be added anew, and counted down it is 0 for the same modules as counted up.",
    "not in place: - count += len(vars(module)[f'_{kind}_hooks']) + len(vars(torch_module)[f'_global_{kind}_hooks']) "
    "+ count = count + (len(vars(module)[f'_{kind}_hooks']) + len(vars(torch_module)[f'_global_{kind}_hooks']))",
    "compute otherwise: - count += len(vars(module)[f'_{kind}_hooks']) "
    "+ len(vars(torch_module)[f'_global_{kind}_hooks']) + count -= len(vars(module)[f'_{kind}_hooks']) "
    "+ len(vars(torch_module)[f'_global_{kind}_hooks'])",
)


@exercise(
    lesson=4,
    points=1,
    hints=[
        "Two tables, each an ordered dict of key to hook. Put the items of both into a new dict, in order.",
        '`getattr(torch_module, f"_global_{kind}")` is the global table, `getattr(module, f"_{kind}")` the local one.',
        "`{**first, **second}` makes a new dict with the items of both, in this order.",
    ],
)
def hooks_in_order(module, kind):
    """Return the hooks of one kind that a call of `module` runs, in a new dict, in
    the order in which they run.

    `kind` is "forward_pre_hooks", "forward_hooks", "backward_pre_hooks" or
    "backward_hooks"; keys and hooks are those of the two tables. A hook may remove
    itself while somebody walks through your dict.
    """
    return {**getattr(torch_module, f"_global_{kind}"), **getattr(module, f"_{kind}")}


@hooks_in_order.cases
def _(rng):
    def say(log, word):
        return lambda *_: log.append(word)

    for number, kind in enumerate(KINDS):
        module, log, key = nn.Sequential(nn.Identity()), [], rng.integer(1, 50)

        def run_all(hooks, log=log):
            if not isinstance(hooks, MutableMapping) or not all(map(callable, hooks.values())):
                return {}  # what came back tells enough
            for hook in hooks.values():
                hook()
            return {"the order in which they run": list(log)}

        with in_tables(  # a hook registered with `prepend=True` stands before one with a smaller key
            (module, kind, key + 2, say(log, "its own, first in its table")),
            (None, kind, key + 3, say(log, "global, first in its table")),
            (module, kind, key, say(log, "its own, second in its table")),
            (None, kind, key + 1, say(log, "global, second in its table")),
            (module, KINDS[number - 1], key + 4, say(log, "its own, of another kind")),
            (None, KINDS[number - 2], key + 5, say(log, "global, of another kind")),
            (module[0], kind, key + 6, say(log, "of its child")),
        ):
            yield Case({"module": module, "kind": kind}, run_all, shown=f'kind = "{kind}" and hooks in many tables')

    for owner in ("the module", "all modules"):
        kind, module, log = rng.choice(KINDS), nn.Identity(), []
        own = owner == "the module"
        table = getattr(module, f"_{kind}") if own else global_table(kind)

        def remove_itself(table=table, log=log):
            log.append("once")
            del table[7]

        def run_removing(hooks, table=table, log=log, owner=owner):
            if not isinstance(hooks, MutableMapping) or not all(map(callable, hooks.values())):
                return {}
            for hook in hooks.values():
                hook()
            hooks.clear()
            stays = f"whether the other hook stays in the table of {owner}, after yours was emptied"
            return {"the order in which they run": list(log), stays: 8 in table}

        place = module if own else None
        with in_tables((place, kind, 7, remove_itself), (place, kind, 8, say(log, "next"))):
            words = f"a hook of {owner} that removes itself when it runs, and a caller who empties your dict"
            yield Case({"module": module, "kind": kind}, run_removing, shown=words)

    kind, module = rng.choice(KINDS), nn.Identity()
    with in_tables((module, kind, 6, do_nothing), (None, kind, 5, do_nothing)):
        yield Case(
            {"module": module, "kind": kind}, shown="one function that is a hook of the module and of all modules"
        )


@hooks_in_order.accept
def _(module, kind):
    found = dict(getattr(torch_module, f"_global_{kind}"))
    found.update(getattr(module, f"_{kind}"))
    return found


@hooks_in_order.accept
def _(module, kind):
    return OrderedDict(itertools.chain(vars(torch_module)[f"_global_{kind}"].items(), vars(module)[f"_{kind}"].items()))


@hooks_in_order.mistake("The global hooks come first, the module's own after them.")
def _(module, kind):
    return {**getattr(module, f"_{kind}"), **getattr(torch_module, f"_global_{kind}")}


@hooks_in_order.mistake(
    "You sorted them by their keys, which is the order of registration. Global hooks come first even if they were "
    "registered later."
)
def _(module, kind):
    return dict(sorted({**getattr(torch_module, f"_global_{kind}"), **getattr(module, f"_{kind}")}.items()))


@hooks_in_order.mistake("The global hooks are missing. They are in `torch_module`, in the table `_global_` + `kind`.")
def _(module, kind):
    return dict(getattr(module, f"_{kind}"))


@hooks_in_order.mistake("The module's own hooks are missing: they come after the global ones.")
def _(module, kind):
    return dict(getattr(torch_module, f"_global_{kind}"))


@hooks_in_order.mistake("The backward hooks too run global first: the order is the same for all four kinds.")
def _(module, kind):
    tables = getattr(torch_module, f"_global_{kind}"), getattr(module, f"_{kind}")
    first, second = tables if kind.startswith("forward") else reversed(tables)
    return {**first, **second}


@hooks_in_order.mistake(
    "Where the module has no hook of its own, you handed out the global table. A hook that removes itself changes it "
    "in the middle of a loop: make a new dict."
)
def _(module, kind):
    if getattr(module, f"_{kind}"):
        return {**getattr(torch_module, f"_global_{kind}"), **getattr(module, f"_{kind}")}
    return getattr(torch_module, f"_global_{kind}")


@hooks_in_order.mistake(
    "You handed out the module's own table. A hook that removes itself changes it in the middle of a loop: make a new "
    "dict."
)
def _(module, kind):
    if getattr(torch_module, f"_global_{kind}"):
        return {**getattr(torch_module, f"_global_{kind}"), **getattr(module, f"_{kind}")}
    return getattr(module, f"_{kind}")


@hooks_in_order.mistake(
    "`dict.update` on the global table writes the module's hooks into it, and they are global from then on. Copy the "
    "table first."
)
def _(module, kind):
    found = getattr(torch_module, f"_global_{kind}")
    found.update(getattr(module, f"_{kind}"))
    return found


@exercise(
    lesson=4,
    points=2,
    hints=[
        "Walk through `hooks.values()`. Each hook gets what the one before it has left in `args`.",
        "Ask `is not None`, not whether the result is true: a tensor of zeros is a result as well.",
        "`if result is not None: args = result if isinstance(result, tuple) else (result,)`",
    ],
)
def run_pre_hooks(module, hooks, args):
    """Run the forward pre-hooks in the dict `hooks`, in order, and return the
    arguments for forward, a tuple.

    A hook is called with `(module, args)`, where `args` is a tuple. If it returns a
    tuple, these are the new arguments; None keeps the old ones; anything else is
    one new argument. The next hook sees the new ones; what a hook raises goes on to
    the caller.
    """
    for hook in hooks.values():
        result = hook(module, args)
        if result is not None:
            args = result if isinstance(result, tuple) else (result,)
    return args


@run_pre_hooks.cases
def _(rng):
    module, x, y = nn.Identity(), rng.quarters(2), rng.quarters(2)
    watch = Watch(module, "register_forward_pre_hook")
    note = watch.note

    def seen(result):
        return watch.tell() | {"whether a tuple came back": isinstance(result, tuple)}

    def case(hooks, args, shown):
        return Case({"module": module, "hooks": hooks, "args": args}, seen, shown=shown)

    hooks = {9: note, 4: lambda _, args: args[0] * 10, 6: note, 5: lambda _, args: args[0] + 1, 3: note}
    yield case(hooks, (x,), "two hooks that return a tensor of two")
    hooks = {1: lambda _, args: (args[1], args[0]), 2: note, 3: lambda _, args: args[1] * 2, 4: note}
    yield case(hooks, (x, y), "a hook that swaps two arguments, and one that returns a single one")
    yield case({9: note, 6: note}, (x, 7), "two hooks that only look")
    hooks = {8: lambda _, args: args[0] * 0, 9: note, 2: lambda _, args: 0, 3: note, 4: lambda _, args: (), 5: note}
    yield case(hooks, (rng.whole(1),), "hooks that return a tensor with a zero, the number 0 and an empty tuple")
    hooks = {2: lambda _, args: [args[0], args[0]], 4: note, 1: lambda _, args: (None,), 3: note}
    hooks |= {5: lambda _, args: "text", 6: note, 7: lambda _, args: {"a": 1}}
    yield case(hooks, (3,), "hooks that return a list, a tuple with None in it, a string and a dict")
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


@run_pre_hooks.accept
def _(module, hooks, args):
    for key in hooks:
        changed = hooks[key](module, args)
        if changed is None:
            continue
        if not isinstance(changed, tuple):
            changed = (changed,)
        args = changed
    return args


@run_pre_hooks.accept
def _(module, hooks, args):
    def apply(args, rest):
        if not rest:
            return tuple(args)
        result = rest[0](module, args)
        if result is None:
            return apply(args, rest[1:])
        return apply(result if isinstance(result, tuple) else (result,), rest[1:])

    return apply(args, list(hooks.values()))


@run_pre_hooks.mistake("A single value has to be put into a tuple: forward is called with `*args`.")
def _(module, hooks, args):
    for hook in hooks.values():
        result = hook(module, args)
        if result is not None:
            args = result
    return args


@run_pre_hooks.mistake("`tuple(result)` takes a tensor apart, row by row. Write `(result,)`: a tuple of one.")
def _(module, hooks, args):
    for hook in hooks.values():
        result = hook(module, args)
        if result is not None:
            args = tuple(result)
    return args


@run_pre_hooks.mistake("What the hooks return is thrown away. A value that is not None replaces the arguments.")
def _(module, hooks, args):
    for hook in hooks.values():
        hook(module, args)
    return args


@run_pre_hooks.mistake(
    "`if result:` asks whether the result is true: a zero counts as nothing, and a tensor of two raises. Ask `is not "
    "None`."
)
def _(module, hooks, args):
    for hook in hooks.values():
        result = hook(module, args)
        if result:
            args = result if isinstance(result, tuple) else (result,)
    return args


@run_pre_hooks.mistake("A pre-hook takes the arguments as one tuple: `hook(module, args)`, without the star.")
def _(module, hooks, args):
    for hook in hooks.values():
        result = hook(module, *args)
        if result is not None:
            args = result if isinstance(result, tuple) else (result,)
    return args


@run_pre_hooks.mistake("Every hook of yours gets the old arguments. The next hook has to see the new ones.")
def _(module, hooks, args):
    new = args
    for hook in hooks.values():
        result = hook(module, args)
        if result is not None:
            new = result if isinstance(result, tuple) else (result,)
    return new


@run_pre_hooks.mistake(
    "After the first hook that returns something, the others do not run. Give them the new arguments."
)
def _(module, hooks, args):
    for hook in hooks.values():
        result = hook(module, args)
        if result is not None:
            return result if isinstance(result, tuple) else (result,)
    return args


@run_pre_hooks.mistake("What a hook raises is lost. It concerns the caller: let it go on.")
def _(module, hooks, args):
    for hook in hooks.values():
        result = None
        with contextlib.suppress(Exception):
            result = hook(module, args)
        if result is not None:
            args = result if isinstance(result, tuple) else (result,)
    return args


@run_pre_hooks.mistake(
    "A tuple that a hook returns is put into another tuple. Ask `isinstance(result, tuple)`, and wrap only the rest."
)
def _(module, hooks, args):
    for hook in hooks.values():
        result = hook(module, args)
        if result is not None:
            args = (result,)
    return args


@run_pre_hooks.mistake("A hook that returns nothing (None) keeps the arguments. Ask `is not None` before you take it.")
def _(module, hooks, args):
    for hook in hooks.values():
        result = hook(module, args)
        args = result if isinstance(result, tuple) else (result,)
    return args


@run_pre_hooks.mistake("A list that a hook returns is one new argument. Only a tuple stands for several.")
def _(module, hooks, args):
    for hook in hooks.values():
        result = hook(module, args)
        if result is not None:
            args = tuple(result) if isinstance(result, tuple | list) else (result,)
    return args


@run_pre_hooks.mistake("Only the first hook runs. Put the `return` after the loop.")
def _(module, hooks, args):
    for hook in hooks.values():
        result = hook(module, args)
        if result is not None:
            args = result if isinstance(result, tuple) else (result,)
        return args


@run_pre_hooks.mistake(
    "A named tuple, such as `tensor.max(0)` gives, is a tuple, and yet its type is another: ask `isinstance`."
)
def _(module, hooks, args):
    for hook in hooks.values():
        result = hook(module, args)
        if result is not None:
            args = result if type(result) is tuple else (result,)
    return args


run_pre_hooks.equivalent(
    "The arguments are a tuple already: those given are, and every result is made one.",
    "no call: - return tuple(args) + return args",
)


@exercise(
    lesson=4,
    points=2,
    hints=[
        "Almost the loop of the exercise before. But here you need the keys as well: `hooks.items()`.",
        "What a forward hook returns *is* the new output: nothing is put into a tuple.",
        "`started.add(key)` comes before `result = hook(module, args, output)`: a hook that raises has started too.",
    ],
)
def run_forward_hooks(module, hooks, args, output, started):
    """Run the forward hooks in the dict `hooks`, in order, and return the output.

    A hook is called with `(module, args, output)`. If what it returns is not None,
    it is the new output, just as it is. Add the key of each hook to the set
    `started` before you call it; what a hook raises goes on to the caller.
    """
    for key, hook in hooks.items():
        started.add(key)
        result = hook(module, args, output)
        if result is not None:
            output = result
    return output


@run_forward_hooks.cases
def _(rng):
    module, x, y = nn.Identity(), rng.quarters(2), rng.quarters(3)
    watch = Watch(module, "register_forward_hook")
    note, log = watch.note, watch.log

    def seen(_):
        return watch.tell()

    def case(hooks, output, shown, *, started=(), args=(x, y)):
        given = {"module": module, "hooks": hooks, "args": args, "output": output, "started": set(started)}
        return Case(given, seen, shown=shown)

    first = rng.integer(1, 9)
    hooks = {
        30: note,
        first: lambda _, args, out: out * 10,
        20: note,
        11: lambda _, args, out: out + args[1][0],
        12: note,
    }
    yield case(hooks, x + 1, "two hooks that return a new output")
    hooks = {first: lambda _, args, out: (out, args[0]), 40: note}
    yield case(hooks, x + 2, "a hook that returns a tuple, and one that stands in `started` already", started=(40, 99))
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


@run_forward_hooks.accept
def _(module, hooks, args, output, started):
    for key in hooks:
        started |= {key}
        changed = hooks[key](module, args, output)
        output = output if changed is None else changed
    return output


@run_forward_hooks.accept
def _(module, hooks, args, output, started):
    remaining = list(hooks.items())
    while remaining:
        key, hook = remaining.pop(0)
        started.update([key])
        if (result := hook(module, args, output)) is not None:
            output = result
    return output


@run_forward_hooks.mistake(
    "The key goes into `started` only after the hook has run. A hook that raises would be started once more: add it "
    "before."
)
def _(module, hooks, args, output, started):
    for key, hook in hooks.items():
        result = hook(module, args, output)
        started.add(key)
        if result is not None:
            output = result
    return output


@run_forward_hooks.mistake("The keys are missing in `started`: add each before its hook runs.")
def _(module, hooks, args, output, started):
    for hook in hooks.values():
        result = hook(module, args, output)
        if result is not None:
            output = result
    return output


@run_forward_hooks.mistake("What the hooks return is thrown away. Since PyTorch 1.2 it replaces the output.")
def _(module, hooks, args, output, started):
    for key, hook in hooks.items():
        started.add(key)
        hook(module, args, output)
    return output


@run_forward_hooks.mistake("Every hook of yours gets the old output. The next hook has to see the new one.")
def _(module, hooks, args, output, started):
    new = output
    for key, hook in hooks.items():
        started.add(key)
        result = hook(module, args, output)
        if result is not None:
            new = result
    return new


@run_forward_hooks.mistake("A hook that returns nothing (None) keeps the output. Ask `is not None` before you take it.")
def _(module, hooks, args, output, started):
    for key, hook in hooks.items():
        started.add(key)
        output = hook(module, args, output)
    return output


@run_forward_hooks.mistake(
    "After the first hook that returns something, the others do not run. Give them the new output."
)
def _(module, hooks, args, output, started):
    for key, hook in hooks.items():
        started.add(key)
        result = hook(module, args, output)
        if result is not None:
            return result
    return output


@run_forward_hooks.mistake(
    "A forward hook takes the arguments as one tuple: `hook(module, args, output)`, without the star."
)
def _(module, hooks, args, output, started):
    for key, hook in hooks.items():
        started.add(key)
        result = hook(module, *args, output)
        if result is not None:
            output = result
    return output


@run_forward_hooks.mistake("What a hook raises is lost. It concerns the caller: let it go on.")
def _(module, hooks, args, output, started):
    for key, hook in hooks.items():
        started.add(key)
        result = None
        with contextlib.suppress(Exception):
            result = hook(module, args, output)
        if result is not None:
            output = result
    return output


@run_forward_hooks.mistake("You put the output into a tuple. Pre-hooks need that; here the result is taken as it is.")
def _(module, hooks, args, output, started):
    for key, hook in hooks.items():
        started.add(key)
        result = hook(module, args, output)
        if result is not None:
            output = result if isinstance(result, tuple) else (result,)
    return output


@run_forward_hooks.mistake("`if result:` takes a zero for nothing, and raises for a tensor of two. Ask `is not None`.")
def _(module, hooks, args, output, started):
    for key, hook in hooks.items():
        started.add(key)
        result = hook(module, args, output)
        if result:
            output = result
    return output


@run_forward_hooks.mistake("All keys are in `started` before the first hook runs: a hook that was never reached too.")
def _(module, hooks, args, output, started):
    started.update(hooks)
    for hook in hooks.values():
        result = hook(module, args, output)
        if result is not None:
            output = result
    return output


@exercise(
    lesson=4,
    points=2,
    hints=[
        "The call is about to fail. Give each hook in `hooks` that is not in `started` its turn, and let none of them "
        "get in the way of the next.",
        "`try`/`except Exception` belongs around *one* call of a hook, inside the loop.",
        '`except Exception as error: warnings.warn(f"a hook raised: {error}")` tells the user without raising.',
    ],
)
def run_always_called(module, hooks, started, args, output):
    """Something in the call has raised: run the hooks in the dict `hooks`, in
    order, as far as they have not started yet.

    `hooks` holds the forward hooks registered with `always_call=True`, `started`
    the keys of those that ran already. A hook is called with `(module, args,
    output)`. What it raises becomes a warning of its own (`warnings.warn`) that
    contains its message; what it returns is not used. Return nothing.
    """
    for key, hook in hooks.items():
        if key not in started:
            try:
                hook(module, args, output)
            except Exception as error:
                warnings.warn(f"a hook raised as well: {error}", stacklevel=2)


@run_always_called.cases
def _(rng):
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
        return (
            " and, in the same warning, ".join(hook for hook in hooks if f"{hook} failed" in text) or "something else"
        )

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


@run_always_called.accept
def _(module, hooks, started, args, output):
    for key in [key for key in hooks if key not in started]:
        started.add(key)
        try:
            hooks[key](module, args, output)
        except Exception as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=1)


@run_always_called.accept
def _(module, hooks, started, args, output):
    def run(hook):
        try:
            hook(module, args, output)
        except Exception as error:
            return error

    waiting = [hook for key, hook in hooks.items() if key not in started]
    for error in filter(None, map(run, waiting)):
        warnings.warn(repr(error), stacklevel=2)


@run_always_called.mistake("What a hook raises gives no warning. Hand its message to `warnings.warn`.")
def _(module, hooks, started, args, output):
    for key, hook in hooks.items():
        if key not in started:
            with contextlib.suppress(Exception):
                hook(module, args, output)


@run_always_called.mistake("Hooks that ran already run once more. Skip those whose key is in `started`.")
def _(module, hooks, started, args, output):
    for hook in hooks.values():
        try:
            hook(module, args, output)
        except Exception as error:
            warnings.warn(str(error), stacklevel=2)


@run_always_called.mistake(
    "What a hook raises comes out of your function, and would hide the first exception. Turn it into a warning."
)
def _(module, hooks, started, args, output):
    for key, hook in hooks.items():
        if key not in started:
            hook(module, args, output)


@run_always_called.mistake(
    "After a hook that raises, the others do not run. Catch what it raises inside the loop, and go on with the next."
)
def _(module, hooks, started, args, output):
    try:
        for key, hook in hooks.items():
            if key not in started:
                hook(module, args, output)
    except Exception as error:
        warnings.warn(str(error), stacklevel=2)


@run_always_called.mistake("The warning does not tell what the hook raised: put the message of the exception into it.")
def _(module, hooks, started, args, output):
    for key, hook in hooks.items():
        if key not in started:
            try:
                hook(module, args, output)
            except Exception:
                warnings.warn("a hook raised as well", stacklevel=2)


@run_always_called.mistake(
    "The messages of several hooks are in one warning. What a hook raises becomes a warning of its own."
)
def _(module, hooks, started, args, output):
    words = []
    for key, hook in hooks.items():
        if key not in started:
            try:
                hook(module, args, output)
            except Exception as error:
                words.append(str(error))
    if words:
        warnings.warn(", ".join(words), stacklevel=2)


@run_always_called.mistake("What a hook returns becomes the output for the next one. Here it is not used.")
def _(module, hooks, started, args, output):
    for key, hook in hooks.items():
        if key not in started:
            try:
                result = hook(module, args, output)
                output = output if result is None else result
            except Exception as error:
                warnings.warn(str(error), stacklevel=2)


@run_always_called.mistake("The hooks run in the order of their keys. That of the dict `hooks` counts.")
def _(module, hooks, started, args, output):
    for key in sorted(hooks):
        if key not in started:
            try:
                hooks[key](module, args, output)
            except Exception as error:
                warnings.warn(str(error), stacklevel=2)


@run_always_called.mistake(
    "At the first hook that has started you stop. Later ones may still have to run: go on with the next."
)
def _(module, hooks, started, args, output):
    for key, hook in hooks.items():
        if key in started:
            break
        try:
            hook(module, args, output)
        except Exception as error:
            warnings.warn(str(error), stacklevel=2)


@run_always_called.mistake("You run the hooks that have started. Run the others: `key not in started`.")
def _(module, hooks, started, args, output):
    for key, hook in hooks.items():
        if key in started:
            try:
                hook(module, args, output)
            except Exception as error:
                warnings.warn(str(error), stacklevel=2)


@run_always_called.mistake("You give the hooks None as output. Hand on what there is: forward may have succeeded.")
def _(module, hooks, started, args, output):
    for key, hook in hooks.items():
        if key not in started:
            try:
                hook(module, args, None)
            except Exception as error:
                warnings.warn(str(error), stacklevel=2)


run_always_called.equivalent(
    "A warning's place and kind are free: the task asks for its words only.",
    "an argument less: - warnings.warn(f'a hook raised as well: {error}', stacklevel=2) "
    "+ warnings.warn(f'a hook raised as well: {error}')",
    "other constant: - warnings.warn(f'a hook raised as well: {error}', stacklevel=2) "
    "+ warnings.warn(f'a hook raised as well: {error}', stacklevel=3)",
    "other constant: - warnings.warn(f'a hook raised as well: {error}', stacklevel=2) "
    "+ warnings.warn(f'a hook raised as well: {error}', stacklevel=1)",
    "an argument less: - warnings.warn(str(error), RuntimeWarning, stacklevel=1) "
    "+ warnings.warn(str(error), RuntimeWarning)",
    "an argument less: - warnings.warn(str(error), RuntimeWarning, stacklevel=1) "
    "+ warnings.warn(str(error), stacklevel=1)",
    "other constant: - warnings.warn(str(error), RuntimeWarning, stacklevel=1) "
    "+ warnings.warn(str(error), RuntimeWarning, stacklevel=2)",
    "other constant: - warnings.warn(str(error), RuntimeWarning, stacklevel=1) "
    "+ warnings.warn(str(error), RuntimeWarning, stacklevel=0)",
    "an argument less: - warnings.warn(repr(error), stacklevel=2) + warnings.warn(repr(error))",
    "other constant: - warnings.warn(repr(error), stacklevel=2) + warnings.warn(repr(error), stacklevel=3)",
    "other constant: - warnings.warn(repr(error), stacklevel=2) + warnings.warn(repr(error), stacklevel=1)",
)
run_always_called.equivalent(
    "`warn` itself makes text of the exception that it gets.",
    "no call: - warnings.warn(str(error), RuntimeWarning, stacklevel=1) "
    "+ warnings.warn(error, RuntimeWarning, stacklevel=1)",
    "no call: - warnings.warn(repr(error), stacklevel=2) + warnings.warn(error, stacklevel=2)",
)
run_always_called.equivalent(
    "Nobody asks for the keys of these hooks in `started`: noting them is allowed, and so is not noting them.",
    "a statement less: - started.add(key)",
    "no add: - started.add(key) + started",
)
run_always_called.equivalent(
    "The task asks for an order of the hooks, not of the warnings.",
    "backwards: - for error in filter(None, map(run, waiting)): "
    "+ for error in list(filter(None, map(run, waiting)))[::-1]:",
)


@exercise(
    lesson=4,
    points=3,
    hints=[
        "A class derived from `torch.autograd.Function` is a kind of node: `forward(ctx, …)` makes its outputs, "
        "`backward(ctx, *gradients)` gets one gradient an output. `apply` puts a new node into the graph.",
        "Give `look` to `apply` as the first argument and keep it: `ctx.look = look`. `backward` returns one value for "
        "each argument of `apply`: for `look` that is None.",
        "In `forward`: `return tuple(t.view_as(t) for t in tensors)`. In `backward`: `new = ctx.look(gradients)`, then "
        "`return (None, *(gradients if new is None else new))`.",
    ],
)
def pass_through(look, *tensors):
    """Return the tensors, unchanged, as the outputs of one new node of the
    graph: a tuple of tensors with the same values.

    In backward, when the gradients of all of them are known, `look(gradients)` is
    called once with a tuple. If it returns a tuple, this goes on instead; None
    keeps the gradients.
    """

    class PassThrough(torch.autograd.Function):
        @staticmethod
        def forward(ctx, look, *tensors):
            ctx.look = look
            return tuple(tensor.view_as(tensor) for tensor in tensors)

        @staticmethod
        def backward(ctx, *gradients):
            new = ctx.look(gradients)
            return (None, *(gradients if new is None else new))

    return PassThrough.apply(look, *tensors)


@pass_through.cases
def _(rng):
    earlier = []

    def case(answer_of_look, factors, shown):
        leaves = [rng.quarters(*shape).requires_grad_() for _, shape in zip(factors, [(2,), (1, 3), ()], strict=False)]
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

        return Case({"look": look, **{f"t{i}": leaf for i, leaf in enumerate(leaves, 1)}}, backward, shown=shown)

    factors = [-rng.integer(2, 9), rng.integer(2, 9)]
    words = f"two tensors, multiplied by {factors[0]} and {factors[1]} afterwards, and a look that looks"
    yield case(lambda gradients: None, factors, words)
    factor = rng.integer(2, 9)
    yield case(lambda gradients: (gradients[0] * 100,), [factor], "one tensor, and a look that returns 100 times it")
    factors = [rng.integer(2, 9), rng.integer(2, 9)]
    words = f"two tensors, multiplied by {factors[0]} and {factors[1]}, and a look that returns None for the second"
    yield case(lambda gradients: (gradients[0] + 1, None), factors, words)
    yield case(
        lambda gradients: (gradients[0].flip(0) * gradients[2], gradients[1] * gradients[0][0], gradients[2] * 0),
        [torch.tensor([2.0, -3.0]), -rng.integer(2, 9), rng.integer(2, 4)],
        "three tensors, and a look that mixes their gradients",
    )


@pass_through.accept
def _(look, *tensors):
    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(*tensors):
            return tuple(tensor.clone() for tensor in tensors)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, *gradients):
            new = look(gradients)
            return gradients if new is None else new

    return Copy.apply(*tensors)


@pass_through.accept
def _(look, *tensors):
    from torch.nn.modules._functions import BackwardHookFunction

    outputs = BackwardHookFunction.apply(*tensors)
    outputs[0].grad_fn.register_hook(lambda gradients, _: look(gradients))
    return outputs


@pass_through.mistake(
    "Where `look` returns a tuple with None in it, you keep the old gradient. This None goes on as it is: no gradient "
    "for that tensor."
)
def _(look, *tensors):
    class PassThrough(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            return tuple(tensor.view_as(tensor) for tensor in tensors)

        @staticmethod
        def backward(ctx, *gradients):
            new = look(gradients) or gradients
            return tuple(old if each is None else each for old, each in zip(gradients, new, strict=True))

    return PassThrough.apply(*tensors)


@pass_through.mistake("You return the tensors themselves: there is no new node, and nobody calls `look`.")
def _(look, *tensors):
    return tensors


@pass_through.mistake(
    "`look` is called once for each tensor. One node for all of them calls it once, when all gradients are there."
)
def _(look, *tensors):
    outputs = tuple(tensor.view_as(tensor) for tensor in tensors)
    for output in outputs:

        def hook(gradient):
            new = look((gradient,))
            return None if new is None else new[0]

        output.register_hook(hook)
    return outputs


@pass_through.mistake("What `look` returns is thrown away. If it is not None, it goes on in place of the gradients.")
def _(look, *tensors):
    class Deaf(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            return tuple(tensor.view_as(tensor) for tensor in tensors)

        @staticmethod
        def backward(ctx, *gradients):
            look(gradients)
            return gradients

    return Deaf.apply(*tensors)


@pass_through.mistake(
    "`backward` must return one value for each argument of `apply`. `look` is one of them: return None for it, first."
)
def _(look, *tensors):
    class Short(torch.autograd.Function):
        @staticmethod
        def forward(ctx, look, *tensors):
            ctx.look = look
            return tuple(tensor.view_as(tensor) for tensor in tensors)

        @staticmethod
        def backward(ctx, *gradients):
            new = ctx.look(gradients)
            return gradients if new is None else new

    return Short.apply(look, *tensors)


@pass_through.mistake(
    "`look` takes one argument, the tuple of all gradients: `look(gradients)`, without a star, and not as a list."
)
def _(look, *tensors):
    class Unpacked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            return tuple(tensor.view_as(tensor) for tensor in tensors)

        @staticmethod
        def backward(ctx, *gradients):
            new = look(*gradients)
            return gradients if new is None else new

    return Unpacked.apply(*tensors)


@pass_through.mistake("`look` may return nothing (None), and there is nothing to unpack then: keep the gradients.")
def _(look, *tensors):
    class Trusts(torch.autograd.Function):
        @staticmethod
        def forward(ctx, look, *tensors):
            ctx.look = look
            return tuple(tensor.view_as(tensor) for tensor in tensors)

        @staticmethod
        def backward(ctx, *gradients):
            return None, *ctx.look(gradients)

    return Trusts.apply(look, *tensors)


@pass_through.mistake(
    "The tensors that you return hang on no node, so nobody calls `look`. Give `apply` the tensors with a star, "
    "`apply(look, *tensors)`: it does not look into a tuple."
)
def _(look, *tensors):
    return tuple(tensor.detach() for tensor in tensors)


@pass_through.mistake("You call `look` in forward, with the values. It waits for the gradients: call it in backward.")
def _(look, *tensors):
    class Early(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            look(tensors)
            return tuple(tensor.view_as(tensor) for tensor in tensors)

        @staticmethod
        def backward(ctx, *gradients):
            return gradients

    return Early.apply(*tensors)


@pass_through.mistake(
    "`look` may return None: then the gradients go on as they came. Ask for that before you unpack it."
)
def _(look, *tensors):
    class Node(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *values):
            return tuple(value.view_as(value) for value in values)

        @staticmethod
        def backward(ctx, *gradients):
            return (*look(gradients),)

    return Node.apply(*tensors)


pass_through.equivalent(
    "torch calls `forward` and `backward` on the class, where a plain function does what a static method does.",
    "no decorator: - @staticmethod",
)
pass_through.equivalent(
    "torch makes a view of an input that a node's `forward` returns, and the node becomes its `grad_fn`.",
    "no view_as: - return tuple((tensor.view_as(tensor) for tensor in tensors)) "
    "+ return tuple((tensor for tensor in tensors))",
    "no clone: - return tuple((tensor.clone() for tensor in tensors)) + return tuple((tensor for tensor in tensors))",
    "mixed up: - return tuple((tensor.clone() for tensor in tensors)) "
    "+ return tuple((tensor.detach() for tensor in tensors))",
)
pass_through.equivalent(
    "All outputs come from the same node.",
    "other constant: - outputs[0].grad_fn.register_hook(lambda gradients, _: look(gradients)) "
    "+ outputs[-1].grad_fn.register_hook(lambda gradients, _: look(gradients))",
)


@exercise(
    lesson=4,
    points=2,
    hints=[
        "`BackwardHook(module, full_hooks, pre_hooks)` makes both nodes: `setup_input_hook(args)` the one for the "
        "inputs, `setup_output_hook(output)` the one for the output.",
        "Both return what you go on with: the inputs for forward, the output for the caller.",
        "`args = hook.setup_input_hook(args)`, then `output = module.forward(*args)`, then `return "
        "hook.setup_output_hook(output)`",
    ],
)
def forward_between_nodes(module, full_hooks, pre_hooks, args):
    """Run `module.forward(*args)` so that backward will run the hooks in two lists,
    and return its output.

    In backward the full backward pre-hooks in `pre_hooks` get `(module,
    grad_output)`; then, when the gradients of the inputs are known, the full
    backward hooks in `full_hooks` get `(module, grad_input, grad_output)`, where
    both are tuples. What they return counts, as in torch. No hook is registered on
    `module`.
    """
    hook = BackwardHook(module, full_hooks, pre_hooks)
    args = hook.setup_input_hook(args)
    return hook.setup_output_hook(module.forward(*args))


@forward_between_nodes.cases
def _(rng):
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


@forward_between_nodes.accept
def _(module, full_hooks, pre_hooks, args):
    nodes = BackwardHook(module=module, user_pre_hooks=pre_hooks, user_hooks=full_hooks)
    given = nodes.setup_input_hook(args)
    result = module.forward(*given)
    result = nodes.setup_output_hook(result)
    return result


@forward_between_nodes.accept
def _(module, full_hooks, pre_hooks, args):
    arrived = []

    class Gate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, look, *tensors):
            ctx.look = look
            return tuple(tensor.view_as(tensor) for tensor in tensors)

        @staticmethod
        def backward(ctx, *gradients):
            return (None, *ctx.look(gradients))

    def on_outputs(gradients):
        for hook in pre_hooks:
            new = hook(module, gradients)
            gradients = gradients if new is None else new
        arrived.append(gradients)
        return gradients

    def on_inputs(gradients):
        found = [None] * len(args)
        for place, gradient in zip(places, gradients, strict=True):
            found[place] = gradient
        found, grad_output = tuple(found), arrived.pop()
        for hook in full_hooks:
            new = hook(module, found, grad_output)
            found = found if new is None else new
        return tuple(found[place] for place in places)

    places = [place for place, value in enumerate(args) if isinstance(value, torch.Tensor)]
    given = list(args)
    for place, tensor in zip(places, Gate.apply(on_inputs, *(args[place] for place in places)), strict=True):
        given[place] = tensor
    output = module.forward(*given)
    if isinstance(output, tuple):
        return Gate.apply(on_outputs, *output)
    return Gate.apply(on_outputs, output)[0]


@forward_between_nodes.mistake(
    "No hook runs, because the output has no node: hand it through `setup_output_hook`, and return what that returns."
)
def _(module, full_hooks, pre_hooks, args):
    hook = BackwardHook(module, full_hooks, pre_hooks)
    return module.forward(*hook.setup_input_hook(args))


@forward_between_nodes.mistake(
    "The inputs have no node. The full hooks then run at the output, with no gradient of the input: hand the inputs "
    "through `setup_input_hook`."
)
def _(module, full_hooks, pre_hooks, args):
    hook = BackwardHook(module, full_hooks, pre_hooks)
    return hook.setup_output_hook(module.forward(*args))


@forward_between_nodes.mistake(
    "The full hooks never run. They need one `BackwardHook` for inputs and output, and its `setup_input_hook` returns "
    "new inputs: give those to forward."
)
def _(module, full_hooks, pre_hooks, args):
    hook = BackwardHook(module, full_hooks, pre_hooks)
    hook.setup_input_hook(args)
    return hook.setup_output_hook(module.forward(*args))


@forward_between_nodes.mistake(
    "The two lists are swapped: `BackwardHook` takes the full backward hooks first, then the pre-hooks."
)
def _(module, full_hooks, pre_hooks, args):
    hook = BackwardHook(module, pre_hooks, full_hooks)
    args = hook.setup_input_hook(args)
    return hook.setup_output_hook(module.forward(*args))


@forward_between_nodes.mistake(
    "Where there is no full backward hook, the pre-hooks do not run either: they need the node of the output."
)
def _(module, full_hooks, pre_hooks, args):
    if not full_hooks:
        return module.forward(*args)
    hook = BackwardHook(module, full_hooks, pre_hooks)
    return hook.setup_output_hook(module.forward(*hook.setup_input_hook(args)))


@forward_between_nodes.mistake(
    "You call the module, with brackets, so the hooks that are on it run as well. Call `module.forward`, with a "
    "`BackwardHook` around it, and register nothing."
)
def _(module, full_hooks, pre_hooks, args):
    for hook in pre_hooks:
        module.register_full_backward_pre_hook(hook)
    for hook in full_hooks:
        module.register_full_backward_hook(hook)
    return module(*args)


forward_between_nodes.equivalent(
    "Each input has a place of its own, so it does not matter which of them comes first.",
    "backwards: - for place, tensor in zip(places, Gate.apply(on_inputs, *(args[place] for place in places)), "
    "strict=True): + for place, tensor in list(zip(places, Gate.apply(on_inputs, *(args[place] for place in places)), "
    "strict=True))[::-1]:",
    "backwards: - for place, gradient in zip(places, gradients, strict=True): "
    "+ for place, gradient in list(zip(places, gradients, strict=True))[::-1]:",
    "backwards: - places = [place for place, value in enumerate(args) if isinstance(value, torch.Tensor)] "
    "+ places = [place for place, value in list(enumerate(args))[::-1] if isinstance(value, torch.Tensor)]",
)
forward_between_nodes.equivalent(
    "There are always as many places as tensors.",
    "an argument less: - for place, tensor in zip(places, Gate.apply(on_inputs, *(args[place] for place in places)), "
    "strict=True): + for place, tensor in zip(places, Gate.apply(on_inputs, *(args[place] for place in places))):",
    "an argument less: - for place, gradient in zip(places, gradients, strict=True): "
    "+ for place, gradient in zip(places, gradients):",
    "other constant: - for place, tensor in zip(places, Gate.apply(on_inputs, *(args[place] for place in places)), "
    "strict=True): + for place, tensor in zip(places, Gate.apply(on_inputs, *(args[place] for place in places)), "
    "strict=False):",
    "other constant: - for place, gradient in zip(places, gradients, strict=True): "
    "+ for place, gradient in zip(places, gradients, strict=False):",
)
forward_between_nodes.equivalent(
    "What comes back is taken apart at once: a generator does for that, and of one item the last is the first.",
    "no call: - return tuple((found[place] for place in places)) + return (found[place] for place in places)",
    "other constant: - return Gate.apply(on_outputs, output)[0] + return Gate.apply(on_outputs, output)[-1]",
)
forward_between_nodes.equivalent(
    "torch calls `forward` and `backward` on the class, and makes a view of an input that `forward` returns.",
    "no decorator: - @staticmethod",
    "no view_as: - return tuple((tensor.view_as(tensor) for tensor in tensors)) "
    "+ return tuple((tensor for tensor in tensors))",
)


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


@exercise(
    lesson=4,
    points=4,
    hints=[
        "In the order of torch's `_call_impl`: fast path; then in a `try`: pre-hooks, node for the "
        "inputs, forward, forward hooks, node for the output. What comes in the `except`?",
        'Full and pre-hooks: `list(self.hooks_in_order("backward_hooks").values())`. Make a `BackwardHook` only if '
        "there are any. `output` and `started` need a value before the `try`.",
        "`except Exception:` `self.run_always_called(self.always_called(), started, args, output)`, then `raise`, "
        "alone on its line.",
    ],
)
class MiniModule(MiniSteps):
    """`nn.Module` with a `__call__` of its own, which fires all hooks in torch's
    order.

    The steps are there as methods: `takes_fast_path()`, `hooks_in_order(kind)`,
    `run_pre_hooks(hooks, args)`, `run_forward_hooks(hooks, args, output, started)`,
    `run_always_called(hooks, started, args, output)`, and `always_called()`, which
    gives the hooks for the last one. For the backward hooks, if there are any, use
    a `BackwardHook`. If anything raises, run the always-called hooks, with the
    arguments and the output that there are by then, and raise it again.
    """

    def __call__(self, *args):
        if self.takes_fast_path():
            return self.forward(*args)
        output, started, nodes = None, set(), None
        try:
            hooks = self.hooks_in_order("forward_pre_hooks")
            args = self.run_pre_hooks(hooks, args)
            full = list(self.hooks_in_order("backward_hooks").values())
            pre = list(self.hooks_in_order("backward_pre_hooks").values())
            if full or pre:
                nodes = BackwardHook(self, full, pre)
                args = nodes.setup_input_hook(args)
            output = self.forward(*args)
            hooks = self.hooks_in_order("forward_hooks")
            output = self.run_forward_hooks(hooks, args, output, started)
            return nodes.setup_output_hook(output) if nodes else output
        except Exception:
            self.run_always_called(self.always_called(), started, args, output)
            raise


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


@MiniModule.cases
def _(rng):
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
        found = {"the output": output, "the output's node in the graph": node, "whether forward got x itself": log}
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
            "the order in backward": backward,
        }

    yield Case({}, every_kind, shown="every kind of hook, global and local")

    def replaced(answer):
        net, log = net_of(answer), []
        layer, leaf = net.first, x.detach().clone().requires_grad_()
        layer.register_forward_pre_hook(lambda module, args: args[0] * 10)
        layer.register_forward_hook(lambda module, args, output: output * 100)
        layer.register_full_backward_hook(lambda module, into, out: log.append([into[0].clone(), out[0].clone()]))
        output = layer(leaf)
        output.sum().backward()
        return {"the output": output, "what the full backward hook saw": log, "the gradient of the input": leaf.grad}

    yield Case({}, replaced, shown="a pre-hook and a forward hook that multiply, and a full backward hook")

    def one_kind(kind, where):
        def run(answer):
            net, log = net_of(answer), []
            leaf = x.detach().clone().requires_grad_()

            def times_ten(module, *gradients):
                log.append([each[0].clone() for each in gradients])
                return tuple(each * 10 for each in gradients[0])

            with contextlib.ExitStack() as stack:
                if where == "global":
                    stack.enter_context(global_hooks(**{kind: times_ten}))
                else:
                    getattr(net.first, f"register_{kind}")(times_ten)
                output = net.first(leaf)
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
        a, b = (leaf := x.detach().clone().requires_grad_()), leaf + 1
        # What a hook notes must not lead back to the graph: torch's nodes hold the module, and nobody would free them.
        module.register_forward_hook(lambda _, *given: log.append([[each.detach() for each in some] for some in given]))
        for word in ("first", "second"):

            def look(_, *gradients, word=word):
                log.append([f"the {word} full backward hook", *map(list, gradients)])

            with module.register_full_backward_hook(look):
                first, second = module(a, b)
            (first + 3 * second).sum().backward(retain_graph=True)
        return {"what happened": log, "the gradient of the input": leaf.grad}

    yield Case(
        {}, two_of_each, shown="two inputs, two outputs and two calls, each with a full backward hook of its own"
    )

    def failing(who, words):
        def run(answer):
            net, log, caught, failure = net_of(answer), [], "nothing", LookupError("this call fails")
            found = {}

            def fail(*_):
                if found:  # in the second call
                    raise failure

            def note(word):
                return lambda _, args, output: log.append(
                    (word, [each.detach() for each in args], None if output is None else output.detach())
                )

            net.first.register_full_backward_hook(do_nothing)
            net.first.register_forward_pre_hook(lambda module, args: args[0] * 10)
            if who == "earlier hook":
                net.first.register_forward_hook(fail)
            net.first.register_forward_hook(lambda *_: log.append(("plain", [], None)))
            net.first.register_forward_hook(note("always"), always_call=True)
            if who == "forward":
                forward = net.first.forward
                net.first.forward = lambda *args: fail() or forward(*args)
            elif who == "pre-hook":
                net.first.register_forward_pre_hook(fail)
            elif who == "hook":
                net.first.register_forward_hook(fail)
            elif who == "always hook":
                net.first.register_forward_hook(
                    lambda *given: note("always that fails")(*given) or fail(), always_call=True
                )
            net.first.register_forward_hook(note("last always"), always_call=True)
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


def _under_its_name(answer: type) -> type:
    """Call a class what the answer to the exercise is called: its instances are compared by kind."""
    answer.__name__ = "MiniModule"
    return answer


@MiniModule.accept
@_under_its_name
class _MiniNested(MiniSteps):
    def __call__(self, *args):
        if self.takes_fast_path():
            return self.forward(*args)
        state = {"args": args, "output": None, "started": set()}
        try:
            return self.run(state)
        except Exception as error:
            self.run_always_called(self.always_called(), state["started"], state["args"], state["output"])
            raise error

    def run(self, state):
        state["args"] = self.run_pre_hooks(self.hooks_in_order("forward_pre_hooks"), state["args"])
        lists = [list(self.hooks_in_order(kind).values()) for kind in ("backward_hooks", "backward_pre_hooks")]
        nodes = BackwardHook(self, *lists) if any(lists) else None
        if nodes is not None:
            state["args"] = nodes.setup_input_hook(state["args"])
        state["output"] = self.forward(*state["args"])
        hooks = self.hooks_in_order("forward_hooks")
        state["output"] = self.run_forward_hooks(hooks, state["args"], state["output"], state["started"])
        return state["output"] if nodes is None else nodes.setup_output_hook(state["output"])


@MiniModule.accept
@_under_its_name
class _MiniFinally(MiniSteps):
    """`finally` does no harm here: after a call that succeeded, all hooks have started."""

    def __call__(self, *args):
        output, started = None, set()
        if self.takes_fast_path():
            return self.forward(*args)
        full, pre = self.hooks_in_order("backward_hooks"), self.hooks_in_order("backward_pre_hooks")
        nodes, wanted = BackwardHook(self, list(full.values()), list(pre.values())), full or pre
        try:
            args = self.run_pre_hooks(self.hooks_in_order("forward_pre_hooks"), args)
            if wanted:
                args = nodes.setup_input_hook(args)
            output = self.forward(*args)
            output = self.run_forward_hooks(self.hooks_in_order("forward_hooks"), args, output, started)
            if wanted:
                output = nodes.setup_output_hook(output)
        finally:
            self.run_always_called(self.always_called(), started, args, output)
        return output


class _SoundCall(MiniSteps):
    """A sound call in pieces, for mistakes to spoil."""

    def __call__(self, *args):
        if self.takes_fast_path():
            return self.forward(*args)
        output, started = None, set()
        try:
            args = self.run_pre_hooks(self.hooks_in_order("forward_pre_hooks"), args)
            nodes = self.nodes()
            args = nodes.setup_input_hook(args) if nodes else args
            output = self.forward(*args)
            output = self.run_forward_hooks(self.hooks_in_order("forward_hooks"), args, output, started)
            return nodes.setup_output_hook(output) if nodes else output
        except Exception:
            self.run_always_called(self.always_called(), started, args, output)
            raise

    def nodes(self):
        full, pre = (list(self.hooks_in_order(kind).values()) for kind in ("backward_hooks", "backward_pre_hooks"))
        return BackwardHook(self, full, pre) if full or pre else None


@MiniModule.mistake(
    "Your node for the output comes before the forward hooks. What a forward hook returns then stands outside: in "
    "torch the forward hooks come first."
)
@_under_its_name
class _MiniLateHooks(_SoundCall):
    def __call__(self, *args):
        if self.takes_fast_path():
            return self.forward(*args)
        output, started = None, set()
        try:
            args = self.run_pre_hooks(self.hooks_in_order("forward_pre_hooks"), args)
            nodes = self.nodes()
            args = nodes.setup_input_hook(args) if nodes else args
            output = self.forward(*args)
            output = nodes.setup_output_hook(output) if nodes else output
            return self.run_forward_hooks(self.hooks_in_order("forward_hooks"), args, output, started)
        except Exception:
            self.run_always_called(self.always_called(), started, args, output)
            raise


@MiniModule.mistake(
    "Your node for the inputs comes before the pre-hooks, so what they do counts as a part of the layer. In torch "
    "the pre-hooks come first."
)
@_under_its_name
class _MiniEarlyNode(_SoundCall):
    def __call__(self, *args):
        if self.takes_fast_path():
            return self.forward(*args)
        output, started = None, set()
        try:
            nodes = self.nodes()
            args = nodes.setup_input_hook(args) if nodes else args
            args = self.run_pre_hooks(self.hooks_in_order("forward_pre_hooks"), args)
            output = self.forward(*args)
            output = self.run_forward_hooks(self.hooks_in_order("forward_hooks"), args, output, started)
            return nodes.setup_output_hook(output) if nodes else output
        except Exception:
            self.run_always_called(self.always_called(), started, args, output)
            raise


@MiniModule.mistake(
    "The exception is swallowed, and the caller gets None. After the always-called hooks, `raise` it again."
)
@_under_its_name
class _MiniSwallows(_SoundCall):
    def __call__(self, *args):
        if self.takes_fast_path():
            return self.forward(*args)
        output, started = None, set()
        try:
            args = self.run_pre_hooks(self.hooks_in_order("forward_pre_hooks"), args)
            nodes = self.nodes()
            args = nodes.setup_input_hook(args) if nodes else args
            output = self.forward(*args)
            output = self.run_forward_hooks(self.hooks_in_order("forward_hooks"), args, output, started)
            return nodes.setup_output_hook(output) if nodes else output
        except Exception:
            self.run_always_called(self.always_called(), started, args, output)


@MiniModule.mistake(
    "After the always-called hooks your call goes on as if nothing had happened. `raise` the exception again."
)
@_under_its_name
class _MiniGoesOn(_SoundCall):
    def __call__(self, *args):
        if self.takes_fast_path():
            return self.forward(*args)
        output, started = None, set()
        try:
            args = self.run_pre_hooks(self.hooks_in_order("forward_pre_hooks"), args)
            nodes = self.nodes()
            args = nodes.setup_input_hook(args) if nodes else args
            output = self.forward(*args)
            output = self.run_forward_hooks(self.hooks_in_order("forward_hooks"), args, output, started)
            output = nodes.setup_output_hook(output) if nodes else output
        except Exception:
            self.run_always_called(self.always_called(), started, args, output)
        return output


@MiniModule.mistake(
    "Your `try` holds forward alone. A pre-hook or a forward hook that raises makes the call fail as well: put all "
    "steps into it."
)
@_under_its_name
class _MiniNarrowTry(_SoundCall):
    def __call__(self, *args):
        if self.takes_fast_path():
            return self.forward(*args)
        output, started = None, set()
        args = self.run_pre_hooks(self.hooks_in_order("forward_pre_hooks"), args)
        nodes = self.nodes()
        args = nodes.setup_input_hook(args) if nodes else args
        try:
            output = self.forward(*args)
        except Exception:
            self.run_always_called(self.always_called(), started, args, output)
            raise
        output = self.run_forward_hooks(self.hooks_in_order("forward_hooks"), args, output, started)
        return nodes.setup_output_hook(output) if nodes else output


@MiniModule.mistake(
    "When something raises, plain forward hooks run as well. Give `run_always_called` those of `always_called()`."
)
@_under_its_name
class _MiniAllHooks(_SoundCall):
    def always_called(self):
        return self.hooks_in_order("forward_hooks")


@MiniModule.mistake(
    "When something raises, the always-called hooks get the arguments that came in. Where a pre-hook has replaced "
    "them, give them the new ones, as forward got them."
)
@_under_its_name
class _MiniFirstArgs(_SoundCall):
    def __call__(self, *args):
        self.came_in = args
        return super().__call__(*args)

    def run_always_called(self, hooks, started, args, output):
        super().run_always_called(hooks, started, self.came_in, output)


@MiniModule.mistake("What the pre-hooks return does not reach forward: `args = self.run_pre_hooks(hooks, args)`.")
@_under_its_name
class _MiniOldArgs(_SoundCall):
    def run_pre_hooks(self, hooks, args):
        super().run_pre_hooks(hooks, args)
        return args


@MiniModule.mistake(
    "What the forward hooks return is lost: `output = self.run_forward_hooks(hooks, args, output, started)`."
)
@_under_its_name
class _MiniOldOutput(_SoundCall):
    def run_forward_hooks(self, hooks, args, output, started):
        super().run_forward_hooks(hooks, args, output, started)
        return output


@MiniModule.mistake("The global backward hooks do not run. `hooks_in_order` gives them too, before the module's own.")
@_under_its_name
class _MiniLocal(_SoundCall):
    def nodes(self):
        full, pre = list(self._backward_hooks.values()), list(self._backward_pre_hooks.values())
        return BackwardHook(self, full, pre) if full or pre else None


@MiniModule.mistake(
    "The full backward hooks do not run: `setup_input_hook` returns new inputs, and forward has to get those."
)
@_under_its_name
class _MiniOldInputs(_SoundCall):
    def nodes(self):
        if nodes := super().nodes():
            wrap = nodes.setup_input_hook
            nodes.setup_input_hook = lambda args: wrap(args) and args
        return nodes


@MiniModule.mistake(
    "When something raises, the always-called hooks do not run. Call `run_always_called` in `except Exception:`, "
    "before `raise`."
)
@_under_its_name
class _MiniNoTry(_SoundCall):
    def __call__(self, *args):
        if self.takes_fast_path():
            return self.forward(*args)
        args = self.run_pre_hooks(self.hooks_in_order("forward_pre_hooks"), args)
        nodes = self.nodes()
        args = nodes.setup_input_hook(args) if nodes else args
        output = self.forward(*args)
        output = self.run_forward_hooks(self.hooks_in_order("forward_hooks"), args, output, set())
        return nodes.setup_output_hook(output) if nodes else output


@MiniModule.mistake(
    "Your `try` begins after the pre-hooks. A pre-hook that raises makes the call fail as well: begin before them."
)
@_under_its_name
class _MiniLateTry(_SoundCall):
    def __call__(self, *args):
        if self.takes_fast_path():
            return self.forward(*args)
        output, started = None, set()
        args = self.run_pre_hooks(self.hooks_in_order("forward_pre_hooks"), args)
        nodes = self.nodes()
        args = nodes.setup_input_hook(args) if nodes else args
        try:
            output = self.forward(*args)
            output = self.run_forward_hooks(self.hooks_in_order("forward_hooks"), args, output, started)
            return nodes.setup_output_hook(output) if nodes else output
        except Exception:
            self.run_always_called(self.always_called(), started, args, output)
            raise


@MiniModule.mistake(
    "You make a `BackwardHook` even where no backward hook is: all outputs become views for nothing. Ask first."
)
@_under_its_name
class _MiniAlwaysNodes(_SoundCall):
    def nodes(self):
        return BackwardHook(
            self, *(list(self.hooks_in_order(kind).values()) for kind in ("backward_hooks", "backward_pre_hooks"))
        )


@MiniModule.mistake("`BackwardHook` takes the full backward hooks first, then the pre-hooks. Yours are swapped.")
@_under_its_name
class _MiniSwapped(_SoundCall):
    def nodes(self):
        pre, full = (list(self.hooks_in_order(kind).values()) for kind in ("backward_hooks", "backward_pre_hooks"))
        return BackwardHook(self, full, pre) if full or pre else None


@MiniModule.mistake(
    "Only forward runs, and no hook. That is the fast path: for the other calls put the steps around it."
)
@_under_its_name
class _MiniFast(MiniSteps):
    def __call__(self, *args):
        return self.forward(*args)


@MiniModule.mistake(
    "Always-called hooks that have started already run again. One set `started` tells both steps which those are: "
    "`run_forward_hooks` fills it, and `run_always_called` asks it."
)
@_under_its_name
class _MiniTwoSets(_SoundCall):
    def run_always_called(self, hooks, started, args, output):
        super().run_always_called(hooks, set(), args, output)


@MiniModule.mistake("`super().__call__` leads back to torch's own call. Put the steps in order yourself.")
@_under_its_name
class _MiniSuper(MiniSteps):
    def __call__(self, *args):
        return super().__call__(*args)


@MiniModule.mistake(
    "The backward hooks do not run. Hand the inputs and the output through a `BackwardHook`, as in exercise 7."
)
@_under_its_name
class _MiniForwardOnly(_SoundCall):
    def nodes(self):
        return ()


MiniModule.equivalent(
    "Without hooks, every step on the long way leaves things as they are: the fast path saves time only.",
    "never: - if self.takes_fast_path(): - return self.forward(*args)",
)
MiniModule.equivalent(
    "`BackwardHook` only asks whether there are hooks and walks through them, and an empty view is false as well.",
    "no call: - full = list(self.hooks_in_order('backward_hooks').values()) "
    "+ full = self.hooks_in_order('backward_hooks').values()",
    "no call: - pre = list(self.hooks_in_order('backward_pre_hooks').values()) "
    "+ pre = self.hooks_in_order('backward_pre_hooks').values()",
    "no call: - lists = [list(self.hooks_in_order(kind).values()) for kind in ('backward_hooks', "
    "'backward_pre_hooks')] + lists = [self.hooks_in_order(kind).values() for kind in ('backward_hooks', "
    "'backward_pre_hooks')]",
    "no call: - nodes, wanted = (BackwardHook(self, list(full.values()), list(pre.values())), full or pre) "
    "+ nodes, wanted = (BackwardHook(self, full.values(), list(pre.values())), full or pre)",
    "no call: - nodes, wanted = (BackwardHook(self, list(full.values()), list(pre.values())), full or pre) "
    "+ nodes, wanted = (BackwardHook(self, list(full.values()), pre.values()), full or pre)",
)


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
    if base is None and is_blank(MiniModule.reference):  # an edition without answers
        print("So this is torch's own call. Your steps take part in it as soon as MiniModule is there.")
        return type("MiniModule", (nn.Module,), {})
    return type("MiniModule", (base or MiniModule.reference,), mine)
