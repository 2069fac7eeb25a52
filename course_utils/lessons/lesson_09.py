"""Exercises and predictions of lesson 09: every hook. Twelve puzzles of one line each, and five rules to break."""

from __future__ import annotations

import contextlib
import copy
import itertools
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import nn
from torch.autograd import graph

from course_utils.exercises.cases import Case
from course_utils.exercises.engine import exercise, prediction
from course_utils.lessons.lesson_03 import whole_weights

# --- predictions ------------------------------------------------------------------------------------------------------

prediction(
    "legacy_entries",
    lesson=9,
    question="the legacy backward hook on fc2, a Linear layer with one input: how many entries has its grad_input?",
    options={
        1: "So it should be, and so it is with full backward hooks: one entry an input of forward.",
        2: "The layer has two parameters, but the legacy hook does not count those either.",
        3: "It shows the inputs of the last *operation* (addmm): bias, input and transposed weight.",
    },
    answer=3,
    why="""
    Three entries for `fc2`: the gradients of its bias, of its input, and of its weight, turned on its side to (4, 1).
    Such a hook does not know about modules. It sits on the **node** of the autograd graph that made the output, and
    sees the inputs of that operation, `addmm(bias, input, weightᵀ)`.

    `relu` is an operation with one input, so it has one entry, and nobody notices the difference there.
    """,
    ask={
        1: "The hook sits on the node of the operation `addmm`. Count the arrows to earlier nodes: which tensors went "
        "in?",
        2: "Weight and bias make two. Without which other gradient could backward not go on to `fc1`?",
    },
)
prediction(
    "hooks_and_deepcopy",
    lesson=9,
    question="`copy.deepcopy(layer)`, where layer has a forward hook. Does the copy have it too?",
    options={
        "yes": "The hooks are copied with the module, and both copies call the same function.",
        "no": "The tables of hooks are attributes of the module, and deepcopy copies all attributes.",
        "it raises": "Functions can be deep-copied: the copy refers to the same function.",
    },
    answer="yes",
    why="""
    The copy has the hook, both call the *same* function, and the handle knows the original only: after
    `handle.remove()` the layer is free of it, and the copy is not. Remove hooks before you copy.
    """,
    ask={
        "no": "Run `'_forward_hooks' in vars(layer)`. What does `deepcopy` do with everything that is in "
        "`vars(layer)`?",
        "it raises": "Try `f = lambda: 1` and then `copy.deepcopy(f) is f`. What do you get?",
    },
)

# --- small modules for the cases --------------------------------------------------------------------------------------


def kept(grad: torch.Tensor | None) -> torch.Tensor | None:
    """A copy of a gradient, which later backwards do not change; None where there is none."""
    return None if grad is None else grad.clone()


class Scaled(nn.Module):
    """Two inputs by position, of which the second may be left out, and two by keyword."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x, y=1.0, *, scale=1.0, shift=0.5):
        return self.linear(x) * scale + y + shift


class GiveBack(nn.Module):
    """Takes whatever it is given, and gives it back; counts how often its forward ran."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def forward(self, *args, **kwargs):
        self.runs += 1
        return args, kwargs


class Shift(nn.Module):
    """A weight plus the input: in backward the two share one gradient tensor."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x):
        return self.weight + x


class Choosy(nn.Module):
    """Gives back its input, and raises `error` for a negative number."""

    def __init__(self, error: type[BaseException] = ValueError) -> None:
        super().__init__()
        self.error = error

    def forward(self, x):
        if (x < 0).any():
            raise self.error("a negative number")
        return x


# --- exercises on modules ---------------------------------------------------------------------------------------------


@exercise(
    lesson=9,
    points=2,
    hints=[
        "A forward pre-hook sees what goes in. Where does a keyword argument show up?",
        "`register_forward_pre_hook(hook, with_kwargs=True)` calls `hook(module, args, kwargs)`.",
        "Such a hook returns both, `(args, kwargs)`: `return args, {**kwargs, name: value}`",
    ],
)
def fix_argument(module, name, value):
    """Make every call of `module` use `value` for its keyword argument `name`, and
    return the hook's handle.

    It does not matter whether the caller gives that argument. The positional
    arguments and the other keyword arguments go on unchanged.
    """

    def hook(module, args, kwargs):
        return args, {**kwargs, name: value}

    return module.register_forward_pre_hook(hook, with_kwargs=True)


@fix_argument.cases
def _(rng):
    scale = float(rng.integer(2, 4))
    for name, value, given in (
        ("scale", scale, {}),
        ("scale", scale / 4, {"scale": 5.0, "shift": 3.0}),
        ("shift", 0.0, {"scale": 5.0, "shift": 3.0}),
    ):
        module = whole_weights(Scaled(2), rng).train(name == "scale")
        x, y = rng.leaf(1, 2), rng.leaf(1, 2)

        def fixed_then_not(handle, module=module, x=x, y=y, given=given):
            with contextlib.ExitStack() as stack:
                stack.callback(handle.remove)
                found = {"the output": module(x, y, **given), "the output of module(x * 2)": module(x * 2)}
                if not module.training:
                    found["the output of module(x=x * 3)"] = module(x=x * 3)
                found["the output"].sum().backward()
                found |= {"x.grad": x.grad, "y.grad": y.grad}
            return found | {"the output after handle.remove()": module(x, y, **given)}

        call = ", ".join(["x", "y", *(f"{key}={number:g}" for key, number in given.items())])
        yield Case(
            {"module": module, "name": name, "value": value},
            fixed_then_not,
            shown=f"{name} = {value:g} and module({call})" + ", in eval mode" * (name != "scale"),
        )
    give_back, number = GiveBack(), rng.integer(2, 9)

    def arguments(handle):
        with contextlib.ExitStack() as stack:
            stack.callback(handle.remove)
            found = {
                "what module(number, None, mask=1, flag=True) got": give_back(number, None, mask=1, flag=True),
                "the number of times that its forward ran": give_back.runs,
                "what module() got": give_back(),
            }
        return found | {"what module(mask=1) got after handle.remove()": give_back(mask=1)}

    yield Case(
        {"module": give_back, "name": "mask", "value": None},
        arguments,
        shown=f"a module that gives back what it gets, name = 'mask', value = None and number = {number}",
    )


@fix_argument.accept
def _(module, name, value):
    def hook(module, args, kwargs):
        kwargs = dict(kwargs)
        kwargs[name] = value
        return args, kwargs

    return module.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)


@fix_argument.accept
def _(module, name, value):
    def hook(module, args, kwargs):
        kwargs.update({name: value})
        return args, kwargs

    return module.register_forward_pre_hook(hook, with_kwargs=True)


fix_argument.equivalent(
    "The call goes on with this very dict, so a hook that changed it in place need not return it.",
    "no return: - return (args, kwargs) + (args, kwargs)",
)
fix_argument.equivalent(
    "Each call packs its keywords into a dict of its own, so changing that one reaches no caller.",
    "a statement less: - kwargs = dict(kwargs)",
    "no call: - kwargs = dict(kwargs) + kwargs = kwargs",
)
fix_argument.equivalent(
    "The order among pre-hooks matters only where another one sets the same argument, and the task has no such hook.",
    "an argument less: - return module.register_forward_pre_hook(hook, prepend=True, with_kwargs=True) + return "
    "module.register_forward_pre_hook(hook, with_kwargs=True)",
    "other constant: - return module.register_forward_pre_hook(hook, prepend=True, with_kwargs=True) + return "
    "module.register_forward_pre_hook(hook, prepend=False, with_kwargs=True)",
)


@fix_argument.mistake(
    "Compare what your hook takes and returns: without `with_kwargs=True` a pre-hook gets `(module, args)`; with it "
    "`(module, args, kwargs)`, and it returns the pair `(args, kwargs)`, a tuple and a dict."
)
def _(module, name, value):
    def hook(module, args, kwargs):
        return args, {**kwargs, name: value}

    return module.register_forward_pre_hook(hook)


@fix_argument.mistake(
    "A pre-hook with `with_kwargs=True` must return a pair, `(args, kwargs)`: two things, neither fewer nor more."
)
def _(module, name, value):
    return module.register_forward_pre_hook(lambda module, args, kwargs: {**kwargs, name: value}, with_kwargs=True)


@fix_argument.mistake(
    "The call goes on with the caller's keywords. What replaces them is what a forward pre-hook returns before the "
    "call: `(args, {**kwargs, name: value})`."
)
def _(module, name, value):
    def hook(module, args, kwargs):
        kwargs = {**kwargs, name: value}

    return module.register_forward_pre_hook(hook, with_kwargs=True)


@fix_argument.mistake("Your hook throws the other keywords of the call away: `{**kwargs, name: value}` keeps them.")
def _(module, name, value):
    return module.register_forward_pre_hook(lambda module, args, kwargs: (args, {name: value}), with_kwargs=True)


@fix_argument.mistake(
    "If the caller gives the argument, the caller's value is used. The task is to overrule the caller: "
    "`{**kwargs, name: value}`."
)
def _(module, name, value):
    def hook(module, args, kwargs):
        kwargs.setdefault(name, value)
        return args, kwargs

    return module.register_forward_pre_hook(hook, with_kwargs=True)


@fix_argument.mistake(
    "Only a call that gives the argument is changed. If the caller leaves it out, `value` has to be used as well."
)
def _(module, name, value):
    def hook(module, args, kwargs):
        if name in kwargs:
            kwargs[name] = value
        return args, kwargs

    return module.register_forward_pre_hook(hook, with_kwargs=True)


@fix_argument.mistake("A value such as 0 or None changes nothing in your answer. Use `value` whatever it is.")
def _(module, name, value):
    def hook(module, args, kwargs):
        if value:
            kwargs[name] = value
        return args, kwargs

    return module.register_forward_pre_hook(hook, with_kwargs=True)


@fix_argument.mistake("`dict.update` changes the dict and returns None, so the hook returns `(args, None)`.")
def _(module, name, value):
    def hook(module, args, kwargs):
        return args, kwargs.update({name: value})

    return module.register_forward_pre_hook(hook, with_kwargs=True)


@fix_argument.mistake(
    "The two are in the wrong order. The hook returns `(args, kwargs)`: the tuple first, then the dict."
)
def _(module, name, value):
    def hook(module, args, kwargs):
        return {**kwargs, name: value}, args

    return module.register_forward_pre_hook(hook, with_kwargs=True)


@fix_argument.mistake(
    "You set an argument that is called 'name'. The name is what the variable `name` holds: `{**kwargs, name: value}`."
)
def _(module, name, value):
    def hook(module, args, kwargs):
        return args, dict(kwargs, name=value)

    return module.register_forward_pre_hook(hook, with_kwargs=True)


@fix_argument.mistake("The value goes in by position. It is a keyword argument: `{**kwargs, name: value}`.")
def _(module, name, value):
    def hook(module, args, kwargs):
        return (*args, value), kwargs

    return module.register_forward_pre_hook(hook, with_kwargs=True)


@fix_argument.mistake("Your hook hands on the first positional argument only: return `args`, the whole tuple.")
def _(module, name, value):
    def hook(module, args, kwargs):
        return (args[0],), {**kwargs, name: value}

    return module.register_forward_pre_hook(hook, with_kwargs=True)


@fix_argument.mistake(
    "Your hook returns a single argument where the tuple of all belongs; of a tensor, each row then goes in as an "
    "argument. Return `args` as they came."
)
def _(module, name, value):
    def hook(module, args, kwargs):
        return args[0], {**kwargs, name: value}

    return module.register_forward_pre_hook(hook, with_kwargs=True)


@fix_argument.mistake(
    "`forward` runs with the caller's argument first, and then again: a forward hook comes too late. Use a pre-hook."
)
def _(module, name, value):
    def hook(module, args, kwargs, output):
        return module.forward(*args, **{**kwargs, name: value})

    return module.register_forward_hook(hook, with_kwargs=True)


@fix_argument.mistake("Your function hands nothing back. Return what `register_forward_pre_hook` gives: the handle.")
def _(module, name, value):
    def hook(module, args, kwargs):
        return args, {**kwargs, name: value}

    module.register_forward_pre_hook(hook, with_kwargs=True)


@exercise(
    lesson=9,
    points=3,
    hints=[
        "A handle knows a table and a key of its own. `remove` deletes that key, if both are still there.",
        "`itertools.count()` gives a new number each time. `weakref.ref(table)` is called to get the table: None if it "
        "is gone.",
        "In `remove`: `table = self.table()`, then `if table is not None: table.pop(self.id, None)`.",
    ],
)
class Handle:
    """What registering a hook returns: `table[handle.id] = hook` puts the hook into
    a table, `handle.remove()` takes it out again.

    No two handles have the same `id`, whatever their tables. Removing twice is no
    error. The handle does not keep the table alive, and with a table that is gone,
    `remove()` does nothing. `with handle as h:` gives the handle itself as `h`, and
    removes the hook at the end of the block; what the block raises goes on.
    """

    _ids = itertools.count()

    def __init__(self, table):
        self.table = weakref.ref(table)
        self.id = next(self._ids)

    def remove(self):
        table = self.table()
        if table is not None:
            table.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()


@Handle.cases
def _(rng):
    names = [rng.choice(["look", "note", "store"]) for _ in range(3)]
    taken = rng.integer(0, 1)

    def register_three(first):
        make, table = type(first), OrderedDict()
        handles = []
        for name in names:
            handles.append(make(table))
            table[handles[-1].id] = name
        handles[taken].remove()
        found = {"what is left after one remove()": list(table.values())}
        handles[taken].remove()
        again = make(table)
        table[again.id] = "new"
        del again  # who forgets the handle keeps the hook
        found["what is there after a second remove() and a new hook"] = list(table.values())
        for handle in handles:
            handle.remove()
        return found | {"what is left when all handles but the new one have removed": list(table.values())}

    yield Case({"table": OrderedDict()}, register_three, shown=f"the hooks {names}, of which one is removed")

    def many(first):
        make, kept = type(first), OrderedDict()
        together = [make(table) for table in (kept, OrderedDict(), kept)]
        ids = [handle.id for handle in together]
        del together
        for _ in range(20):
            handle = make(table := OrderedDict())
            ids.append(handle.id)
            table[handle.id] = "hook"
            handle.remove()
            del handle, table
        return {"whether 23 handles have 23 ids": len(set(ids)) == 23}

    yield Case({"table": OrderedDict()}, many, shown="23 handles, of which most are gone before the next is made")

    def as_context(fails):
        def run(first):
            make, table = type(first), OrderedDict()
            table["other"] = "from before"
            error, caught = LookupError("the block failed"), "nothing"
            same = make(table)
            table[same.id] = "its hook"
            try:
                with same as handle:
                    found = {"whether `with handle as h` gives the handle": handle is same}
                    found["what is there inside the block"] = list(table.values())
                    if fails:
                        raise error
                    same.remove()
            except LookupError as raised:
                caught = "what the block raised" if raised is error else "another LookupError"
            after = {"what came out of the block": caught, "what is left after the block": list(table.values())}
            return found | after

        words = "raises" if fails else "removes the hook itself"
        return Case({"table": OrderedDict()}, run, shown=f"a `with` block that {words}")

    def after_a_block(first):
        table = OrderedDict(other="from before")
        with type(first)(table) as handle:
            table[handle.id] = "hook"
        return {"what is left after the block": list(table.values())}

    yield as_context(fails=True)
    yield as_context(fails=False)
    yield Case({"table": OrderedDict()}, after_a_block, shown="a `with` block that ends as usual")

    def table_goes(first):
        table = OrderedDict()
        handle, watch = type(first)(table), weakref.ref(table)
        table[handle.id] = "hook"
        with handle:
            del table
            found = {"whether the table lives on when only its handle is left": watch() is not None}
        handle.remove()
        return found

    yield Case({"table": OrderedDict()}, table_goes, shown="a table that goes away")


@Handle.accept
class _HandleWithClassCounter:
    next_id = 0

    def __init__(self, table):
        self.ref = weakref.ref(table)
        self.id = _HandleWithClassCounter.next_id
        _HandleWithClassCounter.next_id += 1

    def remove(self):
        table = self.ref()
        if table is not None and self.id in table:
            del table[self.id]

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.remove()
        return False


@Handle.accept
class _HandleWithStack(contextlib.AbstractContextManager):
    """The key is an object of its own."""

    def __init__(self, table):
        self.proxy = weakref.proxy(table)
        self.id = object()

    def remove(self):
        with contextlib.suppress(ReferenceError, KeyError):
            del self.proxy[self.id]

    def __exit__(self, *exception):
        self.remove()


class _Sound:
    """A sound handle, for mistakes to spoil."""

    ids = itertools.count()

    def __init__(self, table):
        self.table = weakref.ref(table)
        self.id = next(_Sound.ids)

    def remove(self):
        table = self.table()
        if table is not None:
            table.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()


@Handle.mistake(
    "Your handle keeps the table alive, and a table belongs to a module: whoever keeps the handle keeps the module. "
    "Store `weakref.ref(table)`."
)
class _HandleStrong(_Sound):
    def __init__(self, table):
        super().__init__(table)
        self.kept = table


@Handle.mistake(
    "`len(table)` is no key of its own: after a removal the next hook gets a key that is taken. Count all handles."
)
class _HandleLength(_Sound):
    def __init__(self, table):
        super().__init__(table)
        self.id = len(table)


@Handle.mistake(
    "Different handles get the same `id`. Count all handles together, whatever their tables, and never use a number "
    "again."
)
class _HandleCountsByTable(_Sound):
    _counts: ClassVar[dict[int, Iterator[int]]] = {}

    def __init__(self, table):
        super().__init__(table)
        self.id = next(self._counts.setdefault(id(table), itertools.count()))


@Handle.mistake("The second `remove()` raises: the key is gone by then. Ask first, or use `pop(key, None)`.")
class _HandleOnce(_Sound):
    def remove(self):
        table = self.table()
        if table is not None:
            del table[self.id]


@Handle.mistake("`remove()` empties the whole table, other people's hooks included. Delete your own key.")
class _HandleClear(_Sound):
    def remove(self):
        table = self.table()
        if table is not None:
            table.clear()


@Handle.mistake("At the end of a `with` block the hook is still there: call `remove()` in `__exit__`.")
class _HandleForgets(_Sound):
    def __exit__(self, *exception):
        self.closed = True


@Handle.mistake("When the block raises, the hook stays in the table. Remove it at the end of the block in any case.")
class _HandleOnlyAfterSuccess(_Sound):
    def __exit__(self, kind, *_):
        if kind is None:
            self.remove()


@Handle.mistake(
    "`__exit__` returns a true value, and that swallows the exception of the block. Return nothing from it."
)
class _HandleSwallows(_Sound):
    def __exit__(self, *exception):
        self.remove()
        return True


@Handle.mistake("With a table that is gone, a proxy raises `ReferenceError`. Catch it in `remove()`.")
class _HandleProxy(_Sound):
    def __init__(self, table):
        super().__init__(table)
        self.table = weakref.proxy(table)

    def remove(self):
        if self.id in self.table:
            del self.table[self.id]


@Handle.mistake("`__enter__` does not give the handle: return `self` from it.")
class _HandleNothing(_Sound):
    def __enter__(self):
        self.entered = True


@Handle.mistake("All handles have the same `id`. Count them in the class, not in the object.")
class _HandleSame(_Sound):
    def __init__(self, table):
        super().__init__(table)
        self.id = 1


@Handle.mistake(
    "After `remove()` the hook is still there. Delete the key of your handle from the very table that was given."
)
class _HandleCopies(_Sound):
    def __init__(self, table):
        super().__init__(table)
        self.copy = dict(table)

    def remove(self):
        self.copy.pop(self.id, None)


@Handle.mistake("With a table that is gone, `remove()` fails: the reference gives None. Ask before you use it.")
class _HandleTrusts(_Sound):
    def remove(self):
        self.table().pop(self.id, None)


Handle.equivalent(
    "Any numbers will do that no other handle gets, from wherever they are counted, up or down.",
    "not in place: - _HandleWithClassCounter.next_id += 1 "
    "+ _HandleWithClassCounter.next_id = _HandleWithClassCounter.next_id + 1",
    "compute otherwise: - _HandleWithClassCounter.next_id += 1 + _HandleWithClassCounter.next_id -= 1",
    "other constant: - next_id = 0 + next_id = 1",
    "other constant: - next_id = 0 + next_id = -1",
    "other constant: - _HandleWithClassCounter.next_id += 1 + _HandleWithClassCounter.next_id += 2",
)
Handle.equivalent(
    "Nothing (None) is false as well: the exception of the block goes on.", "no return: - return False + False"
)


# --- puzzles ----------------------------------------------------------------------------------------------------------


@exercise(
    lesson=9,
    points=1,
    hints=[
        "A tensor hook that returns something replaces the gradient. What has the shape of `grad`, and 12 everywhere?",
        "`torch.full_like(grad, 12)` is a new tensor with the shape and dtype of `grad`.",
    ],
)
def make_twelve(w):
    """Let every gradient that reaches the leaf `w` be 12 everywhere; return the handle."""
    return w.register_hook(lambda grad: torch.full_like(grad, 12))


@make_twelve.cases
def _(rng):
    w, x = rng.leaf(2), rng.leaf(2)

    def product(handle):
        (w * x).sum().backward()
        found = {"w.grad": kept(w.grad), "x.grad": kept(x.grad)}
        (3 * w * x).sum().backward()
        found |= {"w.grad after a second backward": kept(w.grad)}
        handle.remove()
        w.grad = None
        (w * x).sum().backward()
        return found | {"w.grad after handle.remove()": w.grad}

    yield Case({"w": w}, product, shown="w in y = w · x", fresh=True)
    c, d = rng.leaf(2, 2).double().detach().requires_grad_(), rng.leaf(2, 2).double().detach().requires_grad_()
    slope = rng.quarters(2, 2).double()

    def sibling(_):
        total = c + d
        (slope * total).sum().backward()
        return {"c.grad": c.grad, "the gradient of d, its sibling": d.grad}

    yield Case({"w": c}, sibling, shown="w = c in c + d, of dtype float64")


@make_twelve.accept
def _(w):
    return w.register_hook(lambda grad: grad * 0 + 12)


@make_twelve.accept
def _(w):
    def hook(grad):
        twelves = torch.zeros_like(grad) + 12
        return twelves

    return w.register_hook(hook)


@make_twelve.mistake("What a hook returns must be a tensor of the gradient's shape and dtype: no plain number.")
def _(w):
    return w.register_hook(lambda grad: 12)


@make_twelve.mistake("What your hook returns has another shape than `grad`: one number does not stand for all.")
def _(w):
    return w.register_hook(lambda grad: torch.tensor(12.0))


@make_twelve.mistake("You multiply the gradient by 12. Replace it, whatever it is.")
def _(w):
    return w.register_hook(lambda grad: 12 * grad)


@make_twelve.mistake("Your hook writes into `grad`, which siblings share. Return a new tensor.")
def _(w):
    return w.register_hook(lambda grad: grad.fill_(12))


@make_twelve.mistake("You set `w.grad` before backward, and backward adds its own gradient to it. Use a hook.")
def _(w):
    w.grad = torch.full_like(w, 12)
    return w.register_hook(lambda grad: None)


@make_twelve.mistake(
    "You set the sum that is in `.grad`: a second backward adds nothing. Replace the gradient before it is added."
)
def _(w):
    def hook(leaf):
        leaf.grad = torch.full_like(leaf, 12)

    return w.register_post_accumulate_grad_hook(hook)


@make_twelve.mistake("The hook works; its handle is lost. Return what `register_hook` returns.")
def _(w):
    w.register_hook(lambda grad: torch.full_like(grad, 12))


@exercise(
    lesson=9,
    points=1,
    hints=[
        "What a forward hook returns takes the place of the output.",
        "`layer.register_forward_hook(lambda module, args, output: ...)`; make a new tensor of `output`.",
    ],
)
def halve_output(layer):
    """Let each call of `layer` give half of what it gave before; return the handle."""
    return layer.register_forward_hook(lambda module, args, output: output / 2)


@halve_output.cases
def _(rng):
    layer, x = whole_weights(nn.Linear(2, 2), rng), rng.leaf(1, 2)
    layer.register_forward_hook(lambda module, args, output: output + 1)

    def halved(handle):
        output = layer(x)
        output.sum().backward()
        found = {"the output": output, "x.grad": x.grad, "the output of a second call": layer(2 * x)}
        handle.remove()
        return found | {"the output after handle.remove()": layer(x)}

    yield Case({"layer": layer}, halved, shown="a Linear layer with a hook that adds 1")
    identity, y = nn.Identity(), rng.whole(3)

    def same_tensor(_):
        return {"the output": identity(y), "the input afterwards": y}

    yield Case({"layer": identity}, same_tensor, shown="a layer that gives back its very input")


@halve_output.accept
def _(layer):
    return layer.register_forward_hook(lambda module, args, output: output * 0.5)


@halve_output.accept
def _(layer):
    def hook(module, args, output):
        half = torch.div(output, 2)
        return half

    return layer.register_forward_hook(hook)


@halve_output.mistake("Your hook returns nothing, so the output stays. Return the new one.")
def _(layer):
    def hook(module, args, output):
        output = output / 2

    return layer.register_forward_hook(hook)


@halve_output.mistake(
    "Your hook writes into `output`, which may be the input of the layer as well. Return a new tensor."
)
def _(layer):
    def hook(module, args, output):
        with torch.no_grad():
            return output.div_(2)

    return layer.register_forward_hook(hook)


@halve_output.mistake("You halve what goes in. The layer's bias is then added whole: halve what comes out.")
def _(layer):
    return layer.register_forward_pre_hook(lambda module, args: (args[0] / 2,))


@halve_output.mistake(
    "You halve before the other hooks have had their turn, and what they add stays whole. Let yours run last, without "
    "`prepend=True`."
)
def _(layer):
    return layer.register_forward_hook(lambda module, args, output: output / 2, prepend=True)


@halve_output.mistake("You return half of the *input*. The output is the third argument of the hook.")
def _(layer):
    return layer.register_forward_hook(lambda module, args, output: args[0] / 2)


@halve_output.mistake("You took the output out of the graph: without it, no gradient reaches the input.")
def _(layer):
    return layer.register_forward_hook(lambda module, args, output: output.detach() / 2)


@halve_output.mistake("A forward hook is called with three things: the module, its inputs, its output.")
def _(layer):
    return layer.register_forward_hook(lambda output: output / 2)


@halve_output.mistake("The hook works; its handle is lost. Return what `register_forward_hook` returns.")
def _(layer):
    layer.register_forward_hook(lambda module, args, output: output / 2)


@halve_output.mistake("Your hook writes into `output`, which may be the layer's very input. Return a new tensor.")
def _(layer):
    def hook(module, args, output):
        output /= 2

    return layer.register_forward_hook(hook)


@halve_output.mistake(
    "You changed the layer itself, and `handle.remove()` does not bring its numbers back. Halve what comes out."
)
def _(layer):
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter /= 2
    return layer.register_forward_hook(lambda module, args, output: None)


@exercise(
    lesson=9,
    points=1,
    hints=[
        "One kind of hook runs when the gradient has been added to `.grad`. It gets the leaf.",
        "A lambda cannot hold `leaf.grad = None`; `setattr(leaf, 'grad', None)` is an expression.",
    ],
)
def forget_gradient(leaf):
    """Let `leaf.grad` be None again as soon as a backward has completed it; return the handle.

    Hooks on the gradient of `leaf`, and all other gradients, are as before.
    """
    return leaf.register_post_accumulate_grad_hook(lambda leaf: setattr(leaf, "grad", None))


@forget_gradient.cases
def _(rng):
    for size in (1, 2):
        leaf, x, seen = rng.leaf(size), rng.leaf(size), []
        leaf.register_hook(lambda grad, seen=seen: seen.append(grad.clone()))

        def twice(handle, leaf=leaf, x=x, seen=seen):
            (leaf * x).sum().backward()
            found = {"leaf.grad after backward": leaf.grad, "x.grad": kept(x.grad)}
            (leaf * x).sum().backward()
            found |= {"leaf.grad after a second backward": leaf.grad, "what an earlier hook on leaf saw": list(seen)}
            handle.remove()
            (leaf * x).sum().backward()
            return found | {"leaf.grad after handle.remove()": leaf.grad}

        yield Case({"leaf": leaf}, twice, shown=f"a leaf of {size}, in y = leaf · x")


@forget_gradient.accept
def _(leaf):
    def hook(leaf):
        leaf.grad = None

    return leaf.register_post_accumulate_grad_hook(hook)


@forget_gradient.accept
def _(leaf):
    return leaf.register_post_accumulate_grad_hook(lambda each: each.__setattr__("grad", None))


forget_gradient.equivalent(
    "A post-accumulate hook returns None either way.",
    "no return: - return leaf.register_post_accumulate_grad_hook(lambda leaf: setattr(leaf, 'grad', None)) + "
    "return leaf.register_post_accumulate_grad_hook(lambda leaf: (setattr(leaf, 'grad', None), None)[1])",
    "no return: - return leaf.register_post_accumulate_grad_hook(lambda each: each.__setattr__('grad', None)) + "
    "return leaf.register_post_accumulate_grad_hook(lambda each: (each.__setattr__('grad', None), None)[1])",
)


@forget_gradient.mistake("A hook that returns None keeps the gradient, and it is then added to `.grad`.")
def _(leaf):
    return leaf.register_hook(lambda grad: None)


@forget_gradient.mistake("You make the gradient 0, so `.grad` is a tensor of zeros. It shall be None.")
def _(leaf):
    return leaf.register_hook(torch.zeros_like)


@forget_gradient.mistake("Your hook runs before the gradient is added, so `.grad` is full again right after it.")
def _(leaf):
    return leaf.register_hook(lambda grad: setattr(leaf, "grad", None))


@forget_gradient.mistake("`.grad` holds zeros afterwards, and zeros take memory too. It shall be None.")
def _(leaf):
    def hook(leaf):
        leaf.grad.zero_()

    return leaf.register_post_accumulate_grad_hook(hook)


@forget_gradient.mistake("You clear `.grad` at once, before any backward, and not after each.")
def _(leaf):
    leaf.grad = None
    return leaf.register_post_accumulate_grad_hook(lambda leaf: None)


@forget_gradient.mistake("The hook works; its handle is lost. Return what registering returns.")
def _(leaf):
    leaf.register_post_accumulate_grad_hook(lambda leaf: setattr(leaf, "grad", None))


@exercise(
    lesson=9,
    points=1,
    hints=[
        "The weight of a layer is a tensor like any other, and tensors have hooks.",
        "A hook is a function from a gradient to a gradient. PyTorch has one that makes zeros of anything.",
    ],
)
def freeze_weight(layer):
    """Let `layer.weight` get the gradient 0, and everything else what it got before; return the handle."""
    return layer.weight.register_hook(torch.zeros_like)


@freeze_weight.cases
def _(rng):
    x = rng.leaf(1, 2)
    layer = whole_weights(nn.Linear(2, 1), rng)

    def learn(handle, layer=layer, x=x):
        layer(x).sum().backward()
        found = {"weight.grad": kept(layer.weight.grad), "x.grad": kept(x.grad)}
        found |= {"bias.grad": layer.bias.grad} if hasattr(layer, "bias") else {}
        layer(x).sum().backward()
        found |= {"weight.grad after a second backward": kept(layer.weight.grad)}
        handle.remove()
        layer.weight.grad = None
        (layer(x) * 2).sum().backward()
        return found | {"weight.grad after handle.remove()": layer.weight.grad}

    yield Case({"layer": layer}, learn, shown="a Linear layer")
    shift, y = Shift(rng.whole(2).double()), rng.leaf(2).detach().double().requires_grad_()

    def share(_):
        (3 * shift(y)).sum().backward()
        return {"weight.grad": shift.weight.grad, "x.grad": y.grad}

    yield Case({"layer": shift}, share, shown="a layer that adds its weight to x, both of dtype float64")


@freeze_weight.accept
def _(layer):
    return layer.weight.register_hook(lambda grad: grad * 0)


@freeze_weight.accept
def _(layer):
    def hook(grad):
        return torch.zeros(grad.shape, dtype=grad.dtype)

    return layer.weight.register_hook(hook)


@freeze_weight.mistake("The gradient of `weight` shall be 0; now it gets none, and its `requires_grad` has changed.")
def _(layer):
    layer.weight.requires_grad_(False)
    return layer.register_forward_hook(lambda *_: None)


@freeze_weight.mistake("You stop the gradient at the layer's output: neither the bias nor the input gets theirs.")
def _(layer):
    return layer.register_full_backward_pre_hook(lambda module, grad_output: (torch.zeros_like(grad_output[0]),))


@freeze_weight.mistake(
    "You replace what the layer passes on to its *input*; the weight gets its gradient all the same."
)
def _(layer):
    return layer.register_full_backward_hook(lambda module, into, out: tuple(map(torch.zeros_like, into)))


@freeze_weight.mistake("Your hook writes into `grad`, which `weight` may share with the input. Return a new tensor.")
def _(layer):
    return layer.weight.register_hook(lambda grad: grad.zero_())


@freeze_weight.mistake("Your zeros are of float32, and the gradient need not be: `torch.zeros_like` keeps its dtype.")
def _(layer):
    return layer.weight.register_hook(lambda grad: torch.zeros(grad.shape))


@freeze_weight.mistake("A gradient of None is not a gradient of 0.")
def _(layer):
    return layer.weight.register_post_accumulate_grad_hook(lambda weight: setattr(weight, "grad", None))


@freeze_weight.mistake("The hook works; its handle is lost. Return what `register_hook` returns.")
def _(layer):
    layer.weight.register_hook(torch.zeros_like)


@exercise(
    lesson=9,
    points=1,
    hints=[
        "Which hook of a module replaces what the layer passes on, and not what it receives?",
        "`layer.register_full_backward_hook(hook)`; what `hook(module, grad_input, grad_output)` returns is a tuple.",
    ],
)
def block_gradient(layer):
    """Let `layer` pass the gradient 0 on to its one input, and learn as before; return the handle.

    The input requires a gradient.
    """
    return layer.register_full_backward_hook(lambda module, into, out: (torch.zeros_like(into[0]),))


@block_gradient.cases
def _(rng):
    for size in (1, 2):
        layer, x = whole_weights(nn.Linear(2, size), rng), rng.leaf(1, 2)

        def learn(handle, layer=layer, x=x):
            layer(x).sum().backward()
            found = {"x.grad": kept(x.grad), "weight.grad": layer.weight.grad, "bias.grad": layer.bias.grad}
            layer(x).sum().backward()
            found |= {"x.grad after a second backward": kept(x.grad)}
            handle.remove()
            x.grad = None
            layer(x).sum().backward()
            return found | {"x.grad after handle.remove()": x.grad}

        yield Case({"layer": layer}, learn, shown=f"a Linear layer from 2 to {size}")
    shift, y, slope = Shift(rng.whole(2).double()), rng.leaf(2).detach().double().requires_grad_(), rng.quarters(2)

    def share(_):
        (slope * (shift(y) + y)).sum().backward()
        return {"x.grad": y.grad, "weight.grad": shift.weight.grad}

    yield Case({"layer": shift}, share, shown="a float64 layer that adds its weight to x, and x also goes round it")


@block_gradient.accept
def _(layer):
    return layer.register_full_backward_hook(lambda module, into, out: tuple(grad * 0 for grad in into))


@block_gradient.accept
def _(layer):
    def hook(module, grad_input, grad_output):
        (grad,) = grad_input
        return (torch.zeros_like(grad),)

    return layer.register_full_backward_hook(hook)


block_gradient.equivalent(
    "The layer has one input, so there is one entry, and it is the first and the last.",
    "the first only: - return layer.register_full_backward_hook(lambda module, into, out: tuple((grad * 0 for "
    "grad in into))) + return layer.register_full_backward_hook(lambda module, into, out: tuple((grad * 0 for "
    "grad in list(into)[:1])))",
    "backwards: - return layer.register_full_backward_hook(lambda module, into, out: tuple((grad * 0 for grad in "
    "into))) + return layer.register_full_backward_hook(lambda module, into, out: tuple((grad * 0 for grad in "
    "list(into)[::-1])))",
    "of an argument the first only: + grad_input = grad_input[:1]",
    "other constant: - return layer.register_full_backward_hook(lambda module, into, out: "
    "(torch.zeros_like(into[0]),)) + return layer.register_full_backward_hook(lambda module, into, out: "
    "(torch.zeros_like(into[-1]),))",
)


@block_gradient.mistake("You change what the layer *receives*, so its own weight and bias get 0 as well.")
def _(layer):
    return layer.register_full_backward_pre_hook(lambda module, grad_output: (torch.zeros_like(grad_output[0]),))


@block_gradient.mistake("You took the input out of the graph: it gets no gradient at all, and not 0.")
def _(layer):
    return layer.register_forward_pre_hook(lambda module, args: (args[0].detach(),))


@block_gradient.mistake("Your hook returns nothing, so what the layer passes on stays. Return a tuple.")
def _(layer):
    def hook(module, grad_input, grad_output):
        grad_input = (torch.zeros_like(grad_input[0]),)

    return layer.register_full_backward_hook(hook)


@block_gradient.mistake("The hook returns a tuple with an entry for each input, also where there is one input only.")
def _(layer):
    return layer.register_full_backward_hook(lambda module, into, out: torch.zeros_like(into[0]))


@block_gradient.mistake("Your hook writes into what arrives, which other gradients may share. Return a new tensor.")
def _(layer):
    def hook(module, grad_input, grad_output):
        grad_input[0].zero_()

    return layer.register_full_backward_hook(hook)


@block_gradient.mistake("Your zeros are of float32, and the gradient need not be: `torch.zeros_like` keeps its dtype.")
def _(layer):
    return layer.register_full_backward_hook(lambda module, into, out: (torch.zeros(into[0].shape),))


@block_gradient.mistake("You took the output out of the graph: neither the layer nor its input gets a gradient.")
def _(layer):
    return layer.register_forward_hook(lambda module, args, output: output.detach().requires_grad_())


@block_gradient.mistake("The hook works; its handle is lost. Return what registering returns.")
def _(layer):
    layer.register_full_backward_hook(lambda module, into, out: (torch.zeros_like(into[0]),))


@exercise(
    lesson=9,
    points=1,
    hints=[
        "Which hook also runs if `forward` raised, and what does it get for the output then?",
        "`register_forward_hook(hook, always_call=True)`; in the hook, `output is None` tells.",
    ],
)
def note_failures(layer, notes):
    """After each call of `layer`, append True to the list `notes` if forward raised a ValueError, and
    else False; return the handle.

    The layer raises nothing else. It returns one tensor, which stays as it is.
    """
    return layer.register_forward_hook(lambda module, args, output: notes.append(output is None), always_call=True)


@note_failures.cases
def _(rng):
    for numbers in ((0, -rng.integer(1, 9), rng.integer(1, 9)), (-rng.integer(1, 9), -rng.integer(1, 9), 0)):
        layer, notes = Choosy(), [True, False]

        def call(handle, layer=layer, notes=notes, numbers=numbers):
            outputs = []
            for number in numbers:
                with contextlib.suppress(ValueError):
                    outputs.append(layer(torch.tensor([float(number)])))
            found = {"the list `notes`": list(notes), "the list of outputs": outputs}
            handle.remove()
            layer(torch.ones(1))
            return found | {"the list `notes` after handle.remove() and one call more": list(notes)}

        yield Case(
            {"layer": layer, "notes": notes},
            call,
            shown=f"notes from before, and a layer called with {', '.join(map(str, numbers))}",
        )


@note_failures.accept
def _(layer, notes):
    def hook(module, args, output):
        notes.append(not isinstance(output, torch.Tensor))

    return layer.register_forward_hook(hook, always_call=True)


@note_failures.accept
def _(layer, notes):
    return layer.register_forward_hook(lambda *seen: notes.extend([seen[2] is None]), always_call=True)


@note_failures.mistake("Without `always_call=True` a forward hook does not run when forward raises.")
def _(layer, notes):
    return layer.register_forward_hook(lambda module, args, output: notes.append(output is None))


@note_failures.mistake("It is the other way round: True where forward raised.")
def _(layer, notes):
    return layer.register_forward_hook(lambda module, args, output: notes.append(output is not None), always_call=True)


@note_failures.mistake("An output of 0 counts as false. Ask whether the output `is None`.")
def _(layer, notes):
    return layer.register_forward_hook(lambda module, args, output: notes.append(not output), always_call=True)


@note_failures.mistake("A pre-hook runs before forward, so it cannot know.")
def _(layer, notes):
    return layer.register_forward_pre_hook(lambda module, args: notes.append(False))


@note_failures.mistake("Your hook returns something, and that replaces the output. `list.append` returns None.")
def _(layer, notes):
    def hook(module, args, output):
        notes.append(output is None)
        return output is None

    return layer.register_forward_hook(hook, always_call=True)


@note_failures.mistake("The hook works; its handle is lost. Return what registering returns.")
def _(layer, notes):
    layer.register_forward_hook(lambda module, args, output: notes.append(output is None), always_call=True)


@note_failures.mistake("You note failures alone. A call that succeeds is noted, too: as False.")
def _(layer, notes):
    def hook(module, args, output):
        if output is None:
            notes.append(True)

    return layer.register_forward_hook(hook, always_call=True)


@exercise(
    lesson=9,
    points=1,
    hints=[
        "An optimizer has two hooks around its step. Which one, and with what is it called?",
        "`optimizer.register_step_post_hook(lambda optimizer, args, kwargs: ...)`",
    ],
)
def clear_after_step(optimizer):
    """Let `optimizer` set all gradients to None after each of its steps; return the handle."""
    return optimizer.register_step_post_hook(lambda optimizer, args, kwargs: optimizer.zero_grad())


@clear_after_step.cases
def _(rng):
    for momentum in (0.0, 0.5):
        w, x, v = rng.leaf(2), rng.leaf(2), rng.leaf(2)
        optimizer = torch.optim.SGD([{"params": [w, v]}, {"params": [x]}], lr=0.25, momentum=momentum)
        other = torch.optim.SGD([y := rng.leaf(1)], lr=0.25)

        def train(handle, w=w, x=x, v=v, y=y, optimizer=optimizer, other=other):
            for _ in range(2):
                (w * x + v).sum().backward()
                optimizer.step()
            found = {"w after two steps": w, "w.grad": w.grad, "x.grad": x.grad, "v.grad": v.grad}
            (2 * y).sum().backward()
            other.step()
            found |= {"the gradient of another optimizer's parameter": y.grad}
            handle.remove()
            (w * x).sum().backward()
            optimizer.step()
            return found | {"w.grad after handle.remove() and a step": w.grad}

        yield Case({"optimizer": optimizer}, train, shown=f"SGD with momentum {momentum} on w, v and x")
    w, x = rng.leaf(2), rng.leaf(2)
    optimizer = torch.optim.SGD([w], lr=0.25)

    def add_later(_):
        optimizer.add_param_group({"params": [x]})
        (w * x).sum().backward()
        optimizer.step()
        return {"w.grad": w.grad, "x.grad": x.grad}

    yield Case({"optimizer": optimizer}, add_later, shown="SGD on w, to which x is added after your function")


@clear_after_step.accept
def _(optimizer):
    return optimizer.register_step_post_hook(lambda *_: optimizer.zero_grad())


@clear_after_step.accept
def _(optimizer):
    def hook(optimizer, args, kwargs):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    return optimizer.register_step_post_hook(hook)


@clear_after_step.accept
def _(optimizer):
    def hook(*_):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for parameter in parameters:
            parameter.grad = None

    return optimizer.register_step_post_hook(hook)


clear_after_step.equivalent(
    "A post-hook returns None either way.",
    "no return: - return optimizer.register_step_post_hook(lambda optimizer, args, kwargs: optimizer.zero_grad()) "
    "+ return optimizer.register_step_post_hook(lambda optimizer, args, kwargs: (optimizer.zero_grad(), None)[1])",
    "no return: - return optimizer.register_step_post_hook(lambda *_: optimizer.zero_grad()) + return "
    "optimizer.register_step_post_hook(lambda *_: (optimizer.zero_grad(), None)[1])",
)


clear_after_step.equivalent(
    "All of them are cleared, in whatever order.",
    "backwards: - for group in optimizer.param_groups: + for group in list(optimizer.param_groups)[::-1]:",
    "backwards: - for parameter in group['params']: + for parameter in list(group['params'])[::-1]:",
    "backwards: - for parameter in parameters: + for parameter in list(parameters)[::-1]:",
    "backwards: - parameters = [parameter for group in optimizer.param_groups for parameter in group['params']] + "
    "parameters = [parameter for group in list(optimizer.param_groups)[::-1] for parameter in group['params']]",
    "backwards: - parameters = [parameter for group in optimizer.param_groups for parameter in group['params']] + "
    "parameters = [parameter for group in optimizer.param_groups for parameter in list(group['params'])[::-1]]",
)


@clear_after_step.mistake("Your hook clears the gradients before the step, so nothing moves.")
def _(optimizer):
    return optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: optimizer.zero_grad())


@clear_after_step.mistake("The gradients are zeros afterwards, and zeros take memory too. They shall be None.")
def _(optimizer):
    return optimizer.register_step_post_hook(lambda *_: optimizer.zero_grad(set_to_none=False))


@clear_after_step.mistake("The hook is called with three things, and `zero_grad` takes them for something else.")
def _(optimizer):
    return optimizer.register_step_post_hook(optimizer.zero_grad)


@clear_after_step.mistake("You call `zero_grad` at once and register what it returns. Register a function.")
def _(optimizer):
    return optimizer.register_step_post_hook(optimizer.zero_grad())


@clear_after_step.mistake("The hook works; its handle is lost. Return what registering returns.")
def _(optimizer):
    optimizer.register_step_post_hook(lambda optimizer, args, kwargs: optimizer.zero_grad())


@clear_after_step.mistake(
    "Your hook knows the parameters of when it was registered. One that is added later keeps its gradient: ask for "
    "them in the hook."
)
def _(optimizer):
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def hook(*_):
        for parameter in parameters:
            parameter.grad = None

    return optimizer.register_step_post_hook(hook)


@exercise(
    lesson=9,
    points=1,
    hints=[
        "One hook can watch several tensors, and need not wait for all of them.",
        '`graph.register_multi_grad_hook(tensors, hook, mode="any")` calls `hook(grad)` once a backward.',
    ],
)
def first_arrival(tensors, seen):
    """In each backward, append a copy of the first gradient that arrives at any of `tensors` to the list
    `seen`, and no other; return the handle.
    """
    return graph.register_multi_grad_hook(tensors, lambda grad: seen.append(grad.clone()), mode="any")


@first_arrival.cases
def _(rng):
    for first in (0, 1):
        x, seen, factor = rng.leaf(2), [torch.zeros(1), torch.ones(1)], rng.quarters(2)
        a = 2 * x
        b = a * factor
        tensors = [a, b] if first else [b, a]

        def backward(handle, x=x, b=b, seen=seen):
            for words in ("first", "second"):
                b.register_hook(lambda grad: grad.mul_(100)) if words == "second" else None
                (b * 3).sum().backward(retain_graph=True)
            found = {"the list after two backwards": list(seen)}
            handle.remove()
            (b * 2).sum().backward()
            return found | {"the length of the list after handle.remove()": len(seen), "x.grad": x.grad}

        names = "[a, b]" if first else "[b, a]"
        yield Case(
            {"tensors": tensors, "seen": seen}, backward, shown=f"tensors = {names}, where b = a · s", fresh=True
        )


@first_arrival.accept
def _(tensors, seen):
    def hook(grad):
        seen.append(torch.empty_like(grad).copy_(grad))

    return graph.register_multi_grad_hook(tensors, hook, mode="any")


@first_arrival.accept
def _(tensors, seen):
    from torch.autograd.graph import register_multi_grad_hook

    return register_multi_grad_hook(tensors, lambda grad: seen.extend([grad.clone()]), mode="any")


@first_arrival.mistake('Without `mode="any"` the hook waits for all gradients, and gets a list of them.')
def _(tensors, seen):
    return graph.register_multi_grad_hook(tensors, lambda grads: seen.append([grad.clone() for grad in grads]))


@first_arrival.mistake("Without `mode` the hook gets a list of gradients, and a list has no `clone`.")
def _(tensors, seen):
    return graph.register_multi_grad_hook(tensors, lambda grad: seen.append(grad.clone()))


@first_arrival.mistake("You stored the gradient itself. Whoever changes it in place later changes yours too.")
def _(tensors, seen):
    return graph.register_multi_grad_hook(tensors, seen.append, mode="any")


@first_arrival.mistake("You watch the first of the list only. The first that *arrives* may be another.")
def _(tensors, seen):
    return tensors[0].register_hook(lambda grad: seen.append(grad.clone()))


@first_arrival.mistake("You watch the last of the list only. The first that *arrives* may be another.")
def _(tensors, seen):
    return tensors[-1].register_hook(lambda grad: seen.append(grad.clone()))


@first_arrival.mistake("The hook works; its handle is lost. Return what registering returns.")
def _(tensors, seen):
    graph.register_multi_grad_hook(tensors, lambda grad: seen.append(grad.clone()), mode="any")


@first_arrival.mistake("You note the first gradient of all. The task asks for the first one of *each* backward.")
def _(tensors, seen):
    def hook(grad):
        if not seen:
            seen.append(grad.clone())

    return graph.register_multi_grad_hook(tensors, hook, mode="any")


@first_arrival.mistake("Each tensor has a hook of its own, so every gradient is noted, and one handle is not enough.")
def _(tensors, seen):
    for tensor in tensors:
        handle = tensor.register_hook(lambda grad: seen.append(grad.clone()))
    return handle


@first_arrival.mistake(
    "Your hook waits for all gradients, and takes the first of the *list*. Another may have arrived before it, and it "
    'may have been changed since: `mode="any"` does not wait.'
)
def _(tensors, seen):
    return graph.register_multi_grad_hook(
        tensors, lambda grads: seen.append(next(grad for grad in grads if grad is not None).clone())
    )


@exercise(
    lesson=9,
    points=1,
    hints=[
        "Which hook runs when `state_dict()` has its entries, and may change them in place?",
        "The hook gets `(module, state_dict, prefix, local_metadata)`. `dict.pop(key)` takes an entry out.",
        'Two entries: `prefix + "weight"` goes, `prefix + "kernel"` comes.',
    ],
)
def save_as_kernel(layer):
    """Let the weight of `layer` stand under the name "kernel" in every state_dict, the layer's own and that of
    any model with the layer in it; return the handle.
    """
    return layer.register_state_dict_post_hook(
        lambda module, state, prefix, _: state.update({prefix + "kernel": state.pop(prefix + "weight")})
    )


@save_as_kernel.cases
def _(rng):
    for size in (1, 2):
        layer, other = whole_weights(nn.Linear(size, 1), rng), whole_weights(nn.Linear(1, 1), rng)

        def save(handle, layer=layer, other=other):
            with torch.no_grad():
                layer.weight += 1
            model = nn.Sequential(other, layer)
            found = {"layer.state_dict()": dict(layer.state_dict()), "model.state_dict()": dict(model.state_dict())}
            found |= {"the names in a model with that model in it": sorted(nn.Sequential(model).state_dict())}
            found |= {"the parameters": [name for name, _ in layer.named_parameters()]}
            handle.remove()
            return found | {"layer.state_dict() after handle.remove()": sorted(layer.state_dict())}

        yield Case(
            {"layer": layer},
            save,
            shown=f"a Linear layer from {size} to 1, whose weight grows by 1; also as the second layer of a model",
        )


@save_as_kernel.accept
def _(layer):
    def hook(module, state, prefix, metadata):
        state[f"{prefix}kernel"] = state.pop(f"{prefix}weight")

    return layer.register_state_dict_post_hook(hook)


@save_as_kernel.accept
def _(layer):
    def hook(module, state, prefix, metadata):
        state[prefix + "kernel"] = state[prefix + "weight"]
        del state[prefix + "weight"]

    return layer.register_state_dict_post_hook(hook)


@save_as_kernel.mistake("In a model the entry has a prefix, such as `1.weight`. The hook is told which: `prefix`.")
def _(layer):
    return layer.register_state_dict_post_hook(lambda module, state, *_: state.update(kernel=state.pop("weight")))


@save_as_kernel.mistake("You rename the weights of other layers as well. Of the entries, that of `prefix` is yours.")
def _(layer):
    def hook(module, state, prefix, _):
        for key in [*state]:
            if key.endswith("weight"):
                state[key.removesuffix("weight") + "kernel"] = state.pop(key)

    return layer.register_state_dict_post_hook(hook)


@save_as_kernel.mistake("You save the weight of the moment when you registered. Take the entry that is there: `pop`.")
def _(layer):
    kernel = layer.weight.detach().clone()

    def hook(module, state, prefix, _):
        del state[prefix + "weight"]
        state[prefix + "kernel"] = kernel

    return layer.register_state_dict_post_hook(hook)


@save_as_kernel.mistake("The old entry is still there: `pop` takes it out.")
def _(layer):
    return layer.register_state_dict_post_hook(
        lambda module, state, prefix, _: state.update({prefix + "kernel": state[prefix + "weight"]})
    )


@save_as_kernel.mistake("This hook must not return anything: change `state_dict` in place.")
def _(layer):
    return layer.register_state_dict_post_hook(
        lambda module, state, prefix, _: {**state, prefix + "kernel": state.pop(prefix + "weight")}
    )


@save_as_kernel.mistake("You changed the layer itself. Only what is saved shall have another name.")
def _(layer):
    layer.kernel = layer.weight
    return layer.register_state_dict_post_hook(lambda module, state, prefix, _: state.pop(prefix + "weight") and None)


@save_as_kernel.mistake("A load hook runs when entries are read. It has nothing to do with what is written.")
def _(layer):
    return layer.register_load_state_dict_pre_hook(
        lambda module, state, prefix, *_: state.update({prefix + "kernel": state.pop(prefix + "weight")})
    )


@save_as_kernel.mistake("The hook works; its handle is lost. Return what registering returns.")
def _(layer):
    layer.register_state_dict_post_hook(
        lambda module, state, prefix, _: state.update({prefix + "kernel": state.pop(prefix + "weight")})
    )


@save_as_kernel.mistake('The new name needs the prefix as well: in a model it is `1.kernel`, say, and not "kernel".')
def _(layer):
    return layer.register_state_dict_post_hook(
        lambda module, state, prefix, _: state.update(kernel=state.pop(prefix + "weight"))
    )


@save_as_kernel.mistake(
    "In a model the entry is `1.weight`, say, and it stays. Use `prefix`, and change the dict in place."
)
def _(layer):
    return layer.register_state_dict_post_hook(
        lambda module, state, *_: state.update(kernel=state.pop("weight")) if "weight" in state else None
    )


@exercise(
    lesson=9,
    points=1,
    hints=[
        "You have only the product. Which object knows both factors, and has hooks?",
        "`product.grad_fn` is the node. Its hook gets `(grad_inputs, grad_outputs)`: an entry a factor.",
    ],
)
def zero_second_factor(product):
    """`product` is `a * b`. In backward, let `a` get its gradient and `b` zeros; return the handle.

    You have neither `a` nor `b`, only `product`.
    """
    return product.grad_fn.register_hook(lambda into, out: (into[0], torch.zeros_like(into[1])))


@zero_second_factor.cases
def _(rng):
    for size in (1, 2):
        a, b, slope = rng.leaf(size), rng.leaf(3 - size), rng.quarters(2)
        product = a * b

        def backward(handle, a=a, b=b, product=product, slope=slope):
            (slope * product).sum().backward(retain_graph=True)
            (slope * product).sum().backward(retain_graph=True)
            found = {"a.grad after two backwards": kept(a.grad), "b.grad": kept(b.grad)}
            handle.remove()
            (slope * product).sum().backward()
            return found | {"b.grad after handle.remove()": b.grad}

        yield Case(
            {"product": product},
            backward,
            shown=f"a · b, where a has the shape ({size},) and b ({3 - size},)",
            fresh=True,
        )
    x, z, slope = rng.leaf(2), rng.leaf(2), rng.quarters(2)
    product = (2 * x) * (3 * z)

    def go_back(handle):
        (slope * product).sum().backward()
        handle.remove()
        return {"x.grad": x.grad, "z.grad": z.grad}

    yield Case({"product": product}, go_back, shown="a · b, where a = 2x and b = 3z", fresh=True)


@zero_second_factor.accept
def _(product):
    return product.grad_fn.register_hook(lambda into, out: (into[0], into[1] * 0))


@zero_second_factor.accept
def _(product):
    def hook(grad_inputs, grad_outputs):
        first, second = grad_inputs
        return first, second - second

    return product.grad_fn.register_hook(hook)


@zero_second_factor.mistake(
    "Now both factors get 0. A hook on the tensor changes what arrives at the product; the hook of its node returns an "
    "entry for each factor."
)
def _(product):
    return product.register_hook(torch.zeros_like)


@zero_second_factor.mistake("It is the other way round: the first entry belongs to `a`, the second to `b`.")
def _(product):
    return product.grad_fn.register_hook(lambda into, out: (torch.zeros_like(into[0]), into[1]))


@zero_second_factor.mistake("The hook of a node returns a tuple, with an entry for each input of the operation.")
def _(product):
    return product.grad_fn.register_hook(lambda into, out: torch.zeros_like(into[1]))


@zero_second_factor.mistake("The second entry is gone, so `b` gets no gradient at all. It shall get zeros.")
def _(product):
    return product.grad_fn.register_hook(lambda into, out: (into[0], None))


@zero_second_factor.mistake("The hook works; its handle is lost. Return what `register_hook` returns.")
def _(product):
    product.grad_fn.register_hook(lambda into, out: (into[0], torch.zeros_like(into[1])))


@zero_second_factor.mistake(
    "You went on to the factor itself. A factor that was computed is no leaf, and its node has no `variable`: the hook "
    "belongs on the node of `product`."
)
def _(product):
    return product.grad_fn.next_functions[1][0].variable.register_hook(torch.zeros_like)


@exercise(
    lesson=9,
    points=1,
    hints=[
        "The node of `y` knows the nodes before it: `y.grad_fn.next_functions`.",
        "The node of a leaf is an `AccumulateGrad`, and its attribute `variable` is the leaf.",
        "`y.grad_fn.next_functions[0][0].variable` is the leaf. Now it is the first puzzle.",
    ],
)
def twelve_from_afar(y):
    """`y` was computed by one operation from one leaf. Let every gradient that reaches this leaf, on whatever
    path, be 12 everywhere; return the handle.

    You do not have the leaf, only `y`.
    """
    return y.grad_fn.next_functions[0][0].variable.register_hook(lambda grad: torch.full_like(grad, 12))


@twelve_from_afar.cases
def _(rng):
    for size in (1, 2):
        x, slope = rng.leaf(size), rng.quarters(size)
        y = x.exp() if size > 1 else 3 * x

        def backward(handle, x=x, y=y, slope=slope):
            for _ in range(2):
                (slope * (y + x)).sum().backward(retain_graph=True)
            found = {"x.grad after two backwards": kept(x.grad), "whether x still requires a gradient": x.requires_grad}
            handle.remove()
            x.grad = None
            (2 * x).sum().backward()
            return found | {"x.grad after handle.remove()": x.grad}

        shown = f"y = {'exp(x)' if size > 1 else '3 · x'}, and x is also used elsewhere"
        yield Case({"y": y}, backward, shown=shown, fresh=True)
    x, v, slope = rng.leaf(2), rng.leaf(2), rng.quarters(2)
    y, sibling = x.exp(), 3 * v

    def go_back(handle):
        (slope * (x + sibling)).sum().backward()
        handle.remove()
        return {"x.grad": x.grad, "the gradient that reached v beside it": v.grad}

    yield Case({"y": y}, go_back, shown="y = exp(x), and x + 3v is what backward begins with", fresh=True)


@twelve_from_afar.accept
def _(y):
    (node, _), *_ = y.grad_fn.next_functions
    return node.register_prehook(lambda grads: (torch.full_like(grads[0], 12),))


@twelve_from_afar.accept
def _(y):
    return y.grad_fn.next_functions[0][0].variable.register_hook(lambda grad: grad * 0 + 12)


twelve_from_afar.equivalent(
    "This node has one output, so its gradient is the first and the last.",
    "other constant: - return node.register_prehook(lambda grads: (torch.full_like(grads[0], 12),)) + return "
    "node.register_prehook(lambda grads: (torch.full_like(grads[-1], 12),))",
)


@twelve_from_afar.mistake("What comes to the leaf on another path is added to your 12. Go on to the leaf itself.")
def _(y):
    return y.grad_fn.register_hook(lambda into, out: (torch.full_like(into[0], 12), *into[1:]))


@twelve_from_afar.mistake(
    "You write into the gradient, and something beside the leaf may share it. Return a new tensor."
)
def _(y):
    return y.grad_fn.next_functions[0][0].variable.register_hook(lambda grad: grad.fill_(12))


@twelve_from_afar.mistake(
    "You set `.grad`, in which the gradients of two backwards add up, to 24 here. Change each gradient as it comes."
)
def _(y):
    def hook(leaf):
        leaf.grad = torch.full_like(leaf, 12)

    return y.grad_fn.next_functions[0][0].variable.register_post_accumulate_grad_hook(hook)


@twelve_from_afar.mistake("The gradient of `y` is 12 now, and that of the leaf is 12 times the slope of the operation.")
def _(y):
    return y.register_hook(lambda grad: torch.full_like(grad, 12))


@twelve_from_afar.mistake("`next_functions` holds pairs, of a node and a number: take the node out of the pair.")
def _(y):
    return y.grad_fn.next_functions[0].variable.register_hook(lambda grad: torch.full_like(grad, 12))


@twelve_from_afar.mistake("The node's own hook comes too late: the gradient has been added to `.grad` by then.")
def _(y):
    return y.grad_fn.next_functions[0][0].register_hook(lambda into, out: (torch.full_like(out[0], 12),) * len(into))


@twelve_from_afar.mistake("The hook works; its handle is lost. Return what `register_hook` returns.")
def _(y):
    y.grad_fn.next_functions[0][0].variable.register_hook(lambda grad: torch.full_like(grad, 12))


@twelve_from_afar.mistake(
    "The 3 in `3 * x` has None for an entry, and what comes to the leaf on another path is not 12. Go on to the leaf."
)
def _(y):
    return y.grad_fn.register_hook(lambda into, out: tuple(torch.full_like(grad, 12) for grad in into))


@exercise(
    lesson=9,
    points=1,
    hints=[
        "Backward reads what forward has saved. Who may put something else there?",
        "`graph.saved_tensors_hooks(pack, unpack)` is a context manager; `unpack` gets what `pack` returned.",
    ],
)
def pretend_saved(value):
    """Return a context manager: whatever forward saves in its block, backward finds tensors full of `value`
    instead. The values that forward computes stay right.
    """
    return graph.saved_tensors_hooks(lambda tensor: torch.full_like(tensor, value), lambda packed: packed)


@pretend_saved.cases
def _(rng):
    for value, dtype in ((rng.integer(2, 9), torch.float32), (-0.25, torch.float64)):
        x, factor = rng.whole(2).to(dtype).requires_grad_(), rng.whole(2, 2).to(dtype)

        def lie(manager, x=x, factor=factor):
            with manager:
                square, product = x * x, factor @ x
            (square.sum() + product.sum()).backward()
            found = {"x · x": square, "x.grad of x · x and F @ x together": kept(x.grad), "x": x, "F": factor}
            x.grad = None
            (x * x).sum().backward()
            return found | {"x.grad of x · x after the block": x.grad}

        yield Case({"value": value}, lie, shown=f"value = {value}, and x and F of {dtype}")


@pretend_saved.accept
def _(value):
    return graph.saved_tensors_hooks(torch.zeros_like, lambda packed: packed + value)


@pretend_saved.accept
def _(value):
    def unpack(tensor):
        return torch.full_like(tensor, value)

    return graph.saved_tensors_hooks(lambda tensor: tensor, unpack)


@pretend_saved.mistake("`pack` must not change the tensor itself, which forward goes on using: return another one.")
def _(value):
    return graph.saved_tensors_hooks(lambda tensor: tensor.detach().fill_(value), lambda packed: packed)


@pretend_saved.mistake("`unpack` must return a tensor with the shape and dtype that was saved, and not a number.")
def _(value):
    return graph.saved_tensors_hooks(lambda tensor: tensor, lambda packed: value)


@pretend_saved.mistake("What `unpack` returns has another shape than what was saved.")
def _(value):
    return graph.saved_tensors_hooks(lambda tensor: torch.tensor(float(value)), lambda packed: packed)


@pretend_saved.mistake("What backward finds has another dtype than what was saved. `torch.full_like` keeps it.")
def _(value):
    return graph.saved_tensors_hooks(lambda tensor: torch.full(tensor.shape, float(value)), lambda packed: packed)


@pretend_saved.mistake("`unpack` writes into what forward saved, and that may be `x` itself. Return another tensor.")
def _(value):
    return graph.saved_tensors_hooks(lambda tensor: tensor, lambda packed: packed.detach().fill_(value))


@pretend_saved.mistake("Your hooks change nothing: backward finds what forward saved.")
def _(value):
    return graph.saved_tensors_hooks(lambda tensor: tensor, lambda packed: packed)


@pretend_saved.mistake("You multiply what was saved by `value`. It shall *be* `value`, whatever it was.")
def _(value):
    return graph.saved_tensors_hooks(lambda tensor: tensor * value, lambda packed: packed)


@pretend_saved.mistake("Return the context manager itself; whoever called you enters it.")
def _(value):
    return graph.saved_tensors_hooks(lambda tensor: torch.full_like(tensor, value), lambda packed: packed).__enter__()


# --- rules to break ---------------------------------------------------------------------------------------------------


def _leads_to(y: torch.Tensor, leaf: torch.Tensor) -> bool:
    """Whether the graph of `y` leads to `leaf`."""
    found, nodes = set(), [y.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is not None and node not in found:
            found.add(node)
            nodes += [before for before, _ in node.next_functions]
    return any(getattr(node, "variable", None) is leaf for node in found)


@exercise(
    lesson=9,
    points=1,
    hints=[
        "`backward` has arguments. One of them says for which tensors a gradient is wanted.",
        "`y.backward(inputs=[...])` computes what these tensors need, and nothing else.",
    ],
)
def leaf_without_gradient(w, x):
    """Compute y = w * x, go backward from it once so that `x.grad` is there and nothing was ever added to
    `w.grad`, and return y.

    `w` and `x` are leaves of one number that require a gradient, and `w` is in the graph of y.
    """
    y = w * x
    y.backward(inputs=[x])
    return y


@leaf_without_gradient.cases
def _(rng):
    for _ in range(2):
        w, x, added = rng.leaf(1), rng.leaf(1), []
        w.register_post_accumulate_grad_hook(lambda leaf, added=added: added.append(leaf.grad))

        def compare(y, w=w, x=x, added=added):
            v, u = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
            (v * u).backward()
            return {
                "in the lesson's program: whether the leaf has a gradient": v.grad is not None,
                "in yours: whether w has a gradient": w.grad is not None,
                "in yours: how often backward added to w.grad": len(added),
                "in yours: x.grad": x.grad,
                "in yours: whether w is in the graph of y": _leads_to(y, w),
            }

        yield Case({"w": w, "x": x}, compare, fresh=True)


@leaf_without_gradient.accept
def _(w, x):
    y = w * x
    torch.autograd.backward([y], inputs=[x])
    return y


@leaf_without_gradient.accept
def _(w, x):
    y = x * w
    (gradient,) = torch.autograd.grad(y, [x])
    x.grad = gradient
    return y


leaf_without_gradient.equivalent(
    "`w` has one number: its first part is all of it, and leads to `w` in the graph.",
    "of an argument the first only: + w = w[:1]",
)


@leaf_without_gradient.mistake("That keeps the rule: both leaves get their gradients.")
def _(w, x):
    y = w * x
    y.backward()
    return y


@leaf_without_gradient.mistake(
    "A `w` that is detached, or requires no gradient when y is computed, is not in the graph. Leave `w` as it is."
)
def _(w, x):
    y = w.detach() * x
    y.backward()
    return y


@leaf_without_gradient.mistake("`w.grad` was filled, and you emptied it afterwards. Nothing shall be added to it.")
def _(w, x):
    y = w * x
    y.backward()
    w.grad = None
    return y


@leaf_without_gradient.mistake("A gradient of 0 is a gradient too, and it was added to `w.grad`.")
def _(w, x):
    y = w * x
    with w.register_hook(torch.zeros_like):
        y.backward()
    return y


@leaf_without_gradient.mistake("You went backward for the other leaf: `x.grad` shall be there.")
def _(w, x):
    y = w * x
    y.backward(inputs=[w])
    return y


@exercise(
    lesson=9,
    points=1,
    hints=[
        "The rule holds among hooks of one kind. A leaf can have hooks of two kinds.",
        "A post-accumulate hook runs after all tensor hooks, whenever it was registered.",
    ],
)
def out_of_order(w, first, second):
    """Register the function `first` as a hook on the leaf `w`, then `second` as another one, so that `second`
    runs before `first`; return the two handles, in the order in which you registered.

    Both functions take whatever they are given, and return None.
    """
    return [w.register_post_accumulate_grad_hook(first), w.register_hook(second)]


@out_of_order.cases
def _(rng):
    for size in (1, 2):
        w, ran = rng.leaf(size), []
        hooks = [lambda *_, ran=ran, name=name: ran.append(name) for name in ("first", "second")]

        def compare(handles, w=w, ran=ran):
            def order(leaf):
                ran.clear()
                (2 * leaf).sum().backward()
                return list(ran)

            rule = torch.ones(1, requires_grad=True)
            for name in ("first", "second"):
                rule.register_hook(lambda grad, name=name: ran.append(name))
            one, other = handles
            found = {"in the lesson's program: who ran": order(rule), "in yours: who ran": order(w)}
            found |= {"in yours: whether the first handle is the older one": one.id < other.id}
            one.remove()
            found |= {"in yours: who ran after the first handle was removed": order(w)}
            other.remove()
            return found | {"in yours: who ran after both were removed": order(w)}

        given = {"w": w, "first": hooks[0], "second": hooks[1]}
        yield Case(given, compare, shown=f"a leaf of {size}: {w.tolist()}", fresh=True)


@out_of_order.accept
def _(w, first, second):
    before = w.register_post_accumulate_grad_hook(lambda leaf: first(leaf))
    after = w.register_hook(lambda grad: second(grad))
    return before, after


@out_of_order.accept
def _(w, first, second):
    handles = []
    for register, hook in ((w.register_post_accumulate_grad_hook, first), (w.register_hook, second)):
        handles.append(register(hook))
    return handles


out_of_order.equivalent(
    "What the two functions return is None either way.",
    "no return: - before = w.register_post_accumulate_grad_hook(lambda leaf: first(leaf)) + before = "
    "w.register_post_accumulate_grad_hook(lambda leaf: (first(leaf), None)[1])",
    "no return: - after = w.register_hook(lambda grad: second(grad)) + after = w.register_hook(lambda grad: "
    "(second(grad), None)[1])",
)


@out_of_order.mistake(
    "That keeps the rule. Hooks of one kind run in the order of registration, and a tensor hook runs before a "
    "post-accumulate hook anyway: mix the kinds, the other way round."
)
def _(w, first, second):
    return [w.register_hook(first), w.register_hook(second)]


@out_of_order.mistake("You registered `second` first, so this is the order of registration. Register `first` first.")
def _(w, first, second):
    after = w.register_hook(second)
    return [after, w.register_hook(first)]


@out_of_order.mistake("You registered `second` first, and that order is kept. Register `first` first.")
def _(w, first, second):
    after = w.register_hook(second)
    return [w.register_hook(first), after]


@out_of_order.mistake("The handles are in the wrong order: that of `first`, which you registered first, comes first.")
def _(w, first, second):
    one, other = w.register_post_accumulate_grad_hook(first), w.register_hook(second)
    return [other, one]


@out_of_order.mistake("You exchanged the functions: it is `first` that shall be registered first, and run last.")
def _(w, first, second):
    return [w.register_post_accumulate_grad_hook(second), w.register_hook(first)]


@out_of_order.mistake("Return both handles, that of `first` and that of `second`.")
def _(w, first, second):
    w.register_post_accumulate_grad_hook(first)
    return w.register_hook(second)


@exercise(
    lesson=9,
    points=1,
    hints=[
        "The tables of a module are copied with it. Which hooks of a layer are in no table of the module?",
        "A hook on a parameter sits on the tensor, and deepcopy makes new parameters without hooks.",
    ],
)
def lost_in_the_copy(layer, hook):
    """Register `hook` so that it runs when you call `layer` and go backward, and not when you do the same with
    a deep copy of `layer`; return the handle.

    `hook` takes whatever it is given, and returns None.
    """
    return layer.weight.register_hook(hook)


@lost_in_the_copy.cases
def _(rng):
    for size in (1, 2):
        layer, ran = whole_weights(nn.Linear(size, 1), rng), []

        def compare(handle, layer=layer, ran=ran, size=size):
            def runs(module):
                ran.clear()
                module(torch.ones(1, size, requires_grad=True)).sum().backward()
                return len(ran)

            rule = nn.Linear(size, 1)
            rule.register_forward_hook(lambda *_: ran.append("forward hook"))
            found = {
                "the lesson's program: how often the hook ran": runs(rule),
                "the lesson's program: how often with the copy": runs(copy.deepcopy(rule)),
                "yours: how often the hook ran": runs(layer),
                "yours: how often with the copy": runs(copy.deepcopy(layer)),
            }
            handle.remove()
            return found | {"yours: how often after handle.remove()": runs(layer)}

        given = {"layer": layer, "hook": lambda *_, ran=ran: ran.append("hook")}
        yield Case(given, compare, shown=f"a Linear layer from {size} to 1 with the weight {layer.weight.tolist()}")


@lost_in_the_copy.accept
def _(layer, hook):
    return layer.weight.register_post_accumulate_grad_hook(hook)


@lost_in_the_copy.accept
def _(layer, hook):
    parameters = dict(layer.named_parameters())
    return parameters["weight"].register_hook(lambda grad: hook(grad))


lost_in_the_copy.equivalent(
    "What `hook` returns is None either way.",
    "no return: - return parameters['weight'].register_hook(lambda grad: hook(grad)) + return "
    "parameters['weight'].register_hook(lambda grad: (hook(grad), None)[1])",
)


@lost_in_the_copy.mistake(
    "That keeps the rule: the hooks of the module, forward or backward, are in its tables and are copied with it."
)
def _(layer, hook):
    return layer.register_forward_hook(hook)


@lost_in_the_copy.mistake("Your hook never runs when `layer` is called: is it on a tensor that the layer uses?")
def _(layer, hook):
    return layer.weight.clone().register_hook(hook)


@lost_in_the_copy.mistake("It runs twice in one backward. One hook is enough.")
def _(layer, hook):
    layer.bias.register_hook(hook)
    return layer.weight.register_hook(hook)


@lost_in_the_copy.mistake("The hook works; its handle is lost. Return what `register_hook` returns.")
def _(layer, hook):
    layer.weight.register_hook(hook)


@lost_in_the_copy.mistake("A hook for all modules runs for the copy as well, and for every other module.")
def _(layer, hook):
    return nn.modules.module.register_module_forward_hook(hook)


@exercise(
    lesson=9,
    points=1,
    hints=[
        "After the tensor's hooks, and after what `retain_grad()` keeps, comes the node.",
        "`y.grad_fn.register_prehook(lambda grad_outputs: ...)` returns a tuple.",
    ],
)
def pass_on_twice(y):
    """`y.retain_grad()` was called. Let backward pass on twice of what it keeps in `y.grad`, and keep there what
    arrived; return the handle.
    """
    return y.grad_fn.register_prehook(lambda grad_outputs: (2 * grad_outputs[0],))


@pass_on_twice.cases
def _(rng):
    for size in (1, 2):
        x, slope = rng.leaf(size), rng.quarters(size)
        y = x * 1
        y.retain_grad()

        def compare(handle, x=x, y=y, slope=slope):
            v = torch.ones(1, requires_grad=True)
            z = v * 1
            z.retain_grad()
            z.register_hook(lambda grad: 2 * grad)
            z.sum().backward()
            for _ in range(2):
                (slope * y).sum().backward(retain_graph=True)
            found = {
                "the lesson's program: what was kept": z.grad,
                "the lesson's program: what was passed on": v.grad,
                "yours: what was kept in two backwards": kept(y.grad),
                "yours: what was passed on in them": kept(x.grad),
            }
            handle.remove()
            x.grad = None
            (slope * y).sum().backward()
            return found | {"yours: what was passed on after handle.remove()": x.grad}

        yield Case({"y": y}, compare, shown=f"y = x · 1, and the gradient {slope.tolist()} arrives", fresh=True)
    a, b, v, slope = rng.leaf(2), rng.leaf(2), rng.leaf(2), rng.quarters(2)
    sibling = 3 * v
    product = a * b
    product.retain_grad()

    def go_back(handle):
        (slope * (product + sibling)).sum().backward()
        handle.remove()
        found = {"what was kept": product.grad, "a.grad": a.grad, "b.grad": b.grad}
        return found | {"the gradient that reached v beside it": v.grad}

    yield Case({"y": product}, go_back, shown="y = a · b, to which 3v is added", fresh=True)


@pass_on_twice.accept
def _(y):
    return y.grad_fn.register_hook(lambda into, out: tuple(grad if grad is None else 2 * grad for grad in into))


@pass_on_twice.accept
def _(y):
    def hook(grad_outputs):
        (grad,) = grad_outputs
        return (grad + grad,)

    return y.grad_fn.register_prehook(hook)


pass_on_twice.equivalent(
    "The node has one output, so its gradient is the first and the last.",
    "of an argument the first only: + grad_outputs = grad_outputs[:1]",
    "other constant: - return y.grad_fn.register_prehook(lambda grad_outputs: (2 * grad_outputs[0],)) + return "
    "y.grad_fn.register_prehook(lambda grad_outputs: (2 * grad_outputs[-1],))",
)


@pass_on_twice.mistake("That keeps the rule: what is kept comes after all hooks on the tensor, and is doubled too.")
def _(y):
    return y.register_hook(lambda grad: 2 * grad)


@pass_on_twice.mistake("Your hook returns nothing, so what is passed on stays. Return a tuple.")
def _(y):
    def hook(grad_outputs):
        grad_outputs = (2 * grad_outputs[0],)

    return y.grad_fn.register_prehook(hook)


@pass_on_twice.mistake("The hook of a node returns a tuple, also for one gradient.")
def _(y):
    return y.grad_fn.register_prehook(lambda grad_outputs: 2 * grad_outputs[0])


@pass_on_twice.mistake("The hook works; its handle is lost. Return what registering returns.")
def _(y):
    y.grad_fn.register_prehook(lambda grad_outputs: (2 * grad_outputs[0],))


@pass_on_twice.mistake(
    "An input that needs no gradient, as the 1 in `x * 1`, has None for an entry: leave it as it is."
)
def _(y):
    return y.grad_fn.register_hook(lambda into, out: tuple(2 * grad for grad in into))


@pass_on_twice.mistake("You double what the first input gets. An operation may have several: each gets twice.")
def _(y):
    return y.grad_fn.register_hook(lambda into, out: (2 * into[0], *into[1:]))


@pass_on_twice.mistake("You double the gradient in place, and something beside `y` may share it. Return a new tensor.")
def _(y):
    return y.grad_fn.register_prehook(lambda grad_outputs: (grad_outputs[0].mul_(2),))


@exercise(
    lesson=9,
    points=1,
    hints=[
        "torch catches what forward raises with `except Exception`. What can be raised and is no `Exception`?",
        "`KeyboardInterrupt`, `SystemExit`, or a class of your own that is derived from `BaseException`.",
        "`def forward(x):` with `if (x > limit).any(): raise ...` in it, and then `return forward`.",
    ],
)
def stop_unheard(limit):
    """Return a function to be the forward of a layer. It gives back its input, a tensor; where a number in it is
    above `limit`, it raises, and a hook with `always_call=True` does not run.
    """

    def forward(x):
        if (x > limit).any():
            raise KeyboardInterrupt
        return x

    return forward


class _Layer(nn.Module):
    """A layer with a forward that somebody gives."""

    def __init__(self, forward) -> None:
        super().__init__()
        self.forward = forward


@stop_unheard.cases
def _(rng):
    for limit in (rng.integer(2, 9), -rng.integer(2, 9)):

        def compare(forward, limit=limit):
            def program(x):
                if (x > limit).any():
                    raise ValueError
                return x

            def reached(forward, *numbers):
                layer, who = _Layer(forward), []
                layer.register_forward_hook(lambda *_: who.append("the hook"), always_call=True)
                try:
                    who.append(layer(torch.tensor(numbers)))
                except BaseException as error:
                    who.append("the caller, by an exception" if isinstance(error, Exception) else "the caller")
                return who

            below, above = float(limit - 1), float(limit + 1)
            return {
                "the lesson's program, above the limit: who was reached": reached(program, above),
                "yours, above the limit: who was reached": reached(forward, above),
                "yours, with one number of two above it": reached(forward, below, above),
                "yours, at the limit": reached(forward, float(limit), below),
            }

        yield Case({"limit": limit}, compare)


@stop_unheard.accept
def _(limit):
    class TooHigh(BaseException):
        pass

    def forward(x):
        if x.max() > limit:
            raise TooHigh(limit)
        return x

    return forward


@stop_unheard.accept
def _(limit):
    def forward(x):
        if not (x <= limit).all():
            raise SystemExit
        return x

    return forward


@stop_unheard.mistake("That keeps the rule: what you raise is an `Exception`, and for those the hook runs.")
def _(limit):
    def forward(x):
        if (x > limit).any():
            raise RuntimeError
        return x

    return forward


@stop_unheard.mistake("A number *at* the limit is not above it.")
def _(limit):
    def forward(x):
        if (x >= limit).any():
            raise KeyboardInterrupt
        return x

    return forward


@stop_unheard.mistake("One number above the limit is enough: `any`, and not `all`.")
def _(limit):
    def forward(x):
        if (x > limit).all():
            raise KeyboardInterrupt
        return x

    return forward


@stop_unheard.mistake("Your forward raises nothing, so the layer goes on and the hook runs.")
def _(limit):
    def forward(x):
        return x

    return forward


@stop_unheard.mistake("Where nothing is wrong, forward gives back its input: return `x`.")
def _(limit):
    def forward(x):
        if (x > limit).any():
            raise KeyboardInterrupt

    return forward
