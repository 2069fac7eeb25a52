"""Exercises and predictions of lesson 08: hooks in practice."""

from __future__ import annotations

import contextlib
import copy
import math

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.engine import exercise, prediction
from course_utils.hooks.inventory import list_hooks
from course_utils.hooks.record import record

# --- predictions ------------------------------------------------------------------------------------------------------

prediction(
    "layer_that_isnan_names",
    lesson=8,
    question="a hook looks for `isnan` in the output of each layer: stem, exp, share, softmax, relu, head. Which one "
    "does it name first?",
    options={
        "stem": "It hands its input on, and 100 is a harmless number.",
        "exp": "exp(100) is too large for float32 and becomes infinity. That is the cause, and infinity is no nan.",
        "share": "Infinity divided by infinity is nan. So the search for nan names the layer after the guilty one.",
        "head": "It is nan as well, but five layers before it return first.",
    },
    answer="share",
    why="""
        `share` only divides, and what it was given was broken already. exp(100) is 2.7e43, and float32 ends at 3.4e38:
        `exp` made an **infinity**, and infinity / infinity is nan, one layer later. Ask for what is not *finite*. The
        culprit is the first module whose output is not finite **while its inputs are**.

        The cure: subtract each row's greatest number before `exp`, which changes no share. `torch.softmax` does that.
    """,
    ask={
        "stem": "`stem` hands on what it gets. What does it return for the row [100, 1], and is one of these numbers a "
        "nan?",
        "exp": "What does `torch.tensor(100.0).exp()` give in Python? What does `isnan` say to that?",
        "head": "`head` only multiplies and adds. What must have come in, if a nan goes out?",
    },
)
prediction(
    "gradient_of_a_finite_loss",
    lesson=8,
    question="the loss is 2.5. How many of the four entries of `embed.weight.grad` are nan?",
    options={
        0: "The loss is finite, but a finite value can have an infinite slope: the square root has one at 0.",
        2: "Only one of the two points is bad. But the gradient of a weight is the sum over all points.",
        4: "The bad point has the gradient [nan, nan], and nan · 0 is nan again. In the sum it spoils every entry.",
    },
    answer=4,
    why="""
        `distance` receives 0.5 for each point and hands on [nan, nan] for the second. It takes a square root, and the
        slope of the root at 0 is infinite; then comes the slope of the square, 2 · 0, and infinity · 0 is nan. `turn`
        and `embed` only pass it on. The gradient of a weight is a sum over the points, and 0.9 + nan is nan.
    """,
    ask={
        0: "Compute the slope of the square root at 1, at 0.01 and at 0.0001. What will it be at 0?",
        2: "Each of the four entries is a sum over both points. What does the second one add: how much is nan · 0?",
    },
)
prediction(
    "hundred_more_steps",
    lesson=8,
    question="after one step that was too large, the unit gives 0. Now 100 steps with the small learning rate, 0.1. "
    "What does it give then?",
    options={
        0: "Where a ReLU gives 0 it passes no gradient back. No gradient, no step, for ever.",
        0.5: "To get half-way there, something would have to move. What gradient reaches the weight?",
        1: "With a gradient, yes: the target is 1. But a ReLU that gives 0 passes none back.",
    },
    answer=0,
    why="""
        The unit gives relu(-14 - 3) = 0, for every input of its training set. So its gradient is 0, and nothing moves.
        One step that was too large did it. No later step repairs it, however small.
    """,
    ask={
        0.5: "Do one of the 100 steps with a pencil, from w = -7 and b = -3. What are w and b afterwards?",
        1: "The loss is (0 - 1)², so the gradient of the output is -2. How much of it gets through the ReLU to the "
        "weight?",
    },
)
prediction(
    "last_of_a_hundred_layers",
    lesson=8,
    question="100 layers. The gradients of the first ones have overflowed; that of the last one has the norm 1.41. "
    "`clip_grad_norm_` scales all of them to the total norm 1. What becomes of the last one?",
    options={
        "1.41, as before": "So it would be if each layer had a limit of its own. There is one factor for all of them.",
        "0": "If the total norm were infinite, the factor would be 1 / infinity = 0. But infinity has met a 0 in a "
        "matrix, and infinity · 0 is nan.",
        "nan": "The total norm is nan, so the one factor is, and it multiplies every gradient, the healthy ones too.",
    },
    answer="nan",
    why="""
        Clipping after backward is too late for a gradient that has overflowed, and `clip_grad_norm_` then spoils the
        healthy ones too. (With `error_if_nonfinite=True` it raises instead: use that.) A hook on each parameter saves
        the healthy layers. Only clipping **as it passes** reaches the first layer.
    """,
    ask={
        "1.41, as before": "In the chain of six layers, what did *all together* make of the last layer's 1.41? How "
        "many factors were there?",
        "0": "Say that the gradient is [1, infinity]. Multiply it by the weight, [[1, 0], [0, 3]]: what is the first "
        "number?",
    },
)
prediction(
    "outputs_in_the_list",
    lesson=8,
    question="the cell runs three times. Each run registers a hook that stores the output, and goes through 4 batches. "
    "How many outputs are in the list?",
    options={
        4: "So it would be if each run started with a new list and no hook was left. The list is kept.",
        12: "3 runs of 4 batches. But in the second run two hooks store, and in the third three.",
        24: "1 hook, then 2, then 3: 4 · 1 + 4 · 2 + 4 · 3.",
    },
    answer=24,
    why="""
        The hooks pile up, because nobody keeps their handles, and each of them stores. `count_hooks` is the first
        question to ask about a memory that grows. `list_hooks` finds hooks whose handles are lost.
    """,
    ask={
        4: "Which of these lines runs three times: `outputs = []`, or the one that registers the hook?",
        12: "How many hooks are on the network in the second run? How many outputs does one batch add then?",
    },
)
prediction(
    "which_layer_to_patch",
    lesson=8,
    question="the *whole* output of one layer is taken from the cat's picture. After which layer must that be done, so "
    "that the network answers as it does for the cat?",
    options={
        "only the first": "It works there. But does anything else reach the next layers, wherever you patch?",
        "only the last": "It works there. But what follows an earlier layer sees nothing but that layer's output.",
        "any of them": "What comes behind a layer of a chain sees its output and nothing else, so it cannot tell.",
    },
    answer="any of them",
    why="""
        In a chain of layers, whoever replaces the whole output of one layer replaces the picture. (Networks with
        shortcuts, such as a ResNet or a transformer, have other ways around a layer. There it is a real question, for
        which causal tracing became known.) In a chain the question is **where**: the animal's cells turn the answer
        round, the boat's and all the rest together do not, here and in ten of ten pairs.
    """,
    ask={
        "only the first": "What does the fifth layer read: the picture, or what the fourth returns? What does it get "
        "if the fourth is patched?",
        "only the last": "You put in the cat's output at the first layer. At which of the later layers could the dog "
        "come back?",
    },
)
prediction(
    "buoy_only",
    lesson=8,
    question="only the cells of the buoy are patched, 2% of the map: into 40 pictures without a buoy in which the twin "
    "sees no fish. In how many does it see one now?",
    options={
        "none": "The other 98% of the map say that there is no fish, and the twin does not care.",
        "about 5": "The heat map was right about this network: the buoy is not one cue among many.",
        "more than 25": "With the buoy in the picture it sees one in 31. Nearly all of that is in 2% of the map.",
    },
    answer="more than 25",
    why="""
        At `features.2`, 2% of the map are enough for 28 fish out of nothing, nearly all of the 31. That is the proof of
        lesson 07 once more, without painting. The first network is not moved. And the buoy is also *needed*: taken out,
        it leaves no fish.

        Read the first column downwards: the deeper the layer, the less the buoy's own cells carry. But the place is not
        lost. It has *spread* to the neighbours, because each 3x3 convolution reads one cell further: with one more cell
        on each side, 26 to 31 of the 31 fish are back at every layer.
    """,
    ask={
        "none": "With the buoy drawn in, the twin sees a fish in 31 of these pictures. Where do the two pictures of a "
        "pair differ?",
        "about 5": "In lesson 07 the buoy was painted out and the fish stayed. How many fish did the twin find? Which "
        "other cue helped it?",
    },
)
prediction(
    "what_the_hook_sees",
    lesson=8,
    question="a forward hook on the `nn.MultiheadAttention` inside an `nn.TransformerEncoderLayer`. Its output is a "
    "pair. What is the second of the two?",
    options={
        "one map for each head": "It could be: but the layer calls it with `need_weights=False`, to save time.",
        "the mean over the heads": "That is what `need_weights=True` alone would give. The layer asks for less.",
        "nothing, None": "The layer calls it with `need_weights=False`, and computes without ever having the weights.",
    },
    answer="nothing, None",
    why="""
        `nn.TransformerEncoderLayer` calls its attention with `need_weights=False`, and the fast kernel that does the
        work never writes the shares down.
    """,
    ask={
        "one map for each head": "Which of the two does the layer need to go on? What would you leave out to save "
        "time?",
        "the mean over the heads": "The mean is what you get if *you* call the attention, without further arguments. "
        "Who calls it here?",
    },
)

# --- small networks for the cases -------------------------------------------------------------------------------------


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A Linear layer with this weight (outputs, inputs), and this bias or none."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias)
    return layer


class Times(nn.Module):
    """Each number times a factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Plus(nn.Module):
    """The sum of its two inputs."""

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return one + other


class OnesAround(nn.Module):
    """Its input plus ones on either side, in two calls of one module."""

    def __init__(self) -> None:
        super().__init__()
        self.plus = Plus()

    def forward(self, x: Tensor) -> Tensor:
        ones = torch.ones_like(x)
        return self.plus(self.plus(ones, x), ones)


class Again(nn.Module):
    """A part that is called twice; 1 is added between the calls."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        return self.part(self.part(x) + 1)


class Log(nn.Module):
    """The natural logarithm: minus infinity at 0."""

    def forward(self, x: Tensor) -> Tensor:
        return x.log()


class NanToZero(nn.Module):
    """0 in the place of each nan."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x.isnan(), 0.0, x)


class Over(nn.Module):
    """Each number over the sum of its row, by a function inside: no layer of its own does it."""

    def __init__(self) -> None:
        super().__init__()
        self.before = Times(1.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        return x / x.sum(1, keepdim=True)


class OverAndAfter(Over):
    """Each number over the sum of its row, by a function; then a layer inside, which hands on what it gets."""

    def forward(self, x: Tensor) -> Tensor:
        return self.before(x / x.sum(1, keepdim=True))


class Root(nn.Module):
    """The square root: infinitely steep at 0."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sqrt()


class PlusRoot(nn.Module):
    """The sum of its two inputs, with the square root of one of them: 0 is the first, 1 the second."""

    def __init__(self, which: int) -> None:
        super().__init__()
        self.which = which

    def forward(self, *both: Tensor) -> Tensor:
        return both[self.which].sqrt() + both[1 - self.which]


class Shifted(nn.Module):
    """Its input plus a learned row, which starts as the square root of `first`: the input of no layer inside is x."""

    def __init__(self, first: float) -> None:
        super().__init__()
        self.first = first
        self.row, self.root = linear(torch.eye(2)), Root()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.root(self.row(torch.full_like(x, self.first)))


class RootOutside(nn.Module):
    """The square root of what a layer inside gives, by a function: no layer of its own does it. One is not called."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.not_called = Times(2.0), linear(torch.eye(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.before(x).sqrt()


class Fork(nn.Module):
    """One input through two branches, and the two joined. The branch that is called first is registered last."""

    def __init__(self, called_first: nn.Module, called_second: nn.Module, join: nn.Module) -> None:
        super().__init__()
        self.join, self.right, self.left = join, called_second, called_first

    def forward(self, x: Tensor) -> Tensor:
        left = self.left(x)
        return self.join(left, self.right(x))


# --- exercises --------------------------------------------------------------------------------------------------------


@exercise(
    lesson=8,
    points=2,
    hints=[
        "A forward hook sees inputs and output. When is a module guilty, and when has it only been handed the damage?",
        "Guilty: its inputs are finite and its output is not. `torch.isfinite(tensor).all()` is False for nan and for "
        "infinity. Modules return in order, the inner ones before what they are in.",
        "For each `name, module in model.named_modules()`: a hook that does `if all(torch.isfinite(each).all() for "
        "each in args) and not torch.isfinite(output).all(): guilty.append(name)`. Remove the handles; `guilty[0]` or "
        "None.",
    ],
)
def first_bad_layer(model, x):
    """Call `model(x)` once and return the dotted name of the first module that
    makes something which is not finite (nan or infinity) out of inputs that are.

    First means: the first to return. If no module does so, return None. Each
    module takes one or more tensors, changes none of them, and returns one. The name
    of `model` itself is `""`. No hook is left behind, even if the model raises an
    error.
    """
    guilty, handles = [], []

    def watch(name):
        def hook(module, args, output):
            came_in_well = all(torch.isfinite(each).all() for each in args)
            if came_in_well and not torch.isfinite(output).all():
                guilty.append(name)

        return hook

    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(watch(name)))
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return guilty[0] if guilty else None


def _count_calls(model: nn.Module):
    """Count the calls of `model` from now on."""
    calls: list[None] = []
    model.register_forward_pre_hook(lambda module, args: calls.append(None))
    return lambda returned: {"the number of calls of `model`": len(calls)}


@first_bad_layer.cases
def _(rng):
    names = rng.choice([("first", "second", "third"), ("one", "two", "three"), ("a", "b", "c")])

    def search(model: nn.Module, x: Tensor, shown: str) -> Case:
        return Case({"model": model, "x": x}, then=_count_calls(model), shown=shown)

    def chain(*parts: nn.Module) -> nn.Sequential:
        model = nn.Sequential()
        for name, part in zip(names, parts, strict=False):
            model.add_module(name, part)
        return model

    bad_row = rng.whole(2, 2)
    bad_row[0, rng.integer(0, 1)] = 0  # its logarithm is minus infinity, and that times 0 is nan
    yield search(
        chain(linear(torch.eye(2)), nn.Sequential(chain(Times(2.0), Log(), Times(0.0))), nn.ReLU()).eval(),
        bad_row,
        "a log of 0 in the middle, then a product with 0",
    )
    zeros = rng.whole(2, 2)
    zeros[1] = 0
    yield search(
        chain(Times(1.0), Over(), nn.ReLU()),
        zeros,
        "a division 0 / 0 in a module's own forward, not in a layer inside it",
    )
    yield search(Over(), zeros.clone(), "a division 0 / 0 in the forward of `model` itself")
    yield search(
        chain(Log(), nn.Sequential(nn.ReLU(), Log()), nn.ReLU()),
        zeros.clone(),
        "two logs of 0; the ReLU behind each makes 0 of minus infinity",
    )
    yield search(
        chain(Times(1.0), Again(Times(1e30)), Log()),
        rng.whole(2, 2),
        "a layer that is called twice, with infinity as what it gives the second time",
    )
    x = rng.whole(2, 2)
    x[1, 1] = math.nan
    yield search(
        chain(Times(1.0), OnesAround(), nn.ReLU()),
        x,
        "a healthy network with a layer of two inputs, and an x with a nan",
    )
    large = rng.whole(2, 2, low=2, high=3)
    yield search(
        Fork(Times(1e38), Times(1e38), Plus()),
        large,
        "numbers up to 3e+38, which are finite, and a sum of two that is not",
    )
    yield search(
        chain(nn.ReLU(), linear(rng.whole(2, 2))), rng.whole(1, 3), "an x that is too wide: the model raises an error"
    )
    yield search(
        chain(Times(1.0), OverAndAfter(), nn.ReLU()),
        zeros.clone(),
        "a division 0 / 0 in a module's own forward, and then a layer inside it",
    )
    yield search(chain(Times(-1.0), Log(), nn.ReLU()), rng.whole(2, 2), "the log of numbers below 0")
    yield search(
        chain(NanToZero(), Log(), nn.ReLU()), x.clone(), "an x with a nan, a layer that makes 0 of it, and then a log"
    )


@first_bad_layer.accept
def _(model, x):
    names = {module: name for name, module in model.named_modules()}
    found = []

    def hook(module, args, output):
        finite = [each.isfinite().all().item() for each in (*args, output)]
        if not found and all(finite[:-1]) and not finite[-1]:
            found.append(names[module])

    with contextlib.ExitStack() as stack:
        for module in names:
            stack.enter_context(module.register_forward_hook(hook))
        model(x)
    return next(iter(found), None)


@first_bad_layer.accept
def _(model, x):
    from torch.nn.modules.module import register_module_forward_hook

    names = {id(module): name for name, module in model.named_modules()}
    found = []

    def hook(module, args, output):
        before, after = (sum((each * 0).sum().item() for each in tensors) for tensors in (args, [output]))
        if before == 0 and after != 0:  # infinity · 0 and nan · 0 are nan
            found.append(names[id(module)])

    with register_module_forward_hook(hook), torch.no_grad():
        model(x)
    return found[0] if found else None


first_bad_layer.equivalent(
    "Each module gets a hook of its own: the order in which they are put on and taken off does not matter.",
    "backwards: - for name, module in model.named_modules(): + for name, module in list(model.named_modules())[::-1]:",
    "backwards: - for handle in handles: + for handle in list(handles)[::-1]:",
    "backwards: - for module in names: + for module in list(names)[::-1]:",
)

first_bad_layer.equivalent(
    "A name is looked up by its module, so their order does not matter.",
    "backwards: - names = {module: name for name, module in model.named_modules()} + names = {module: name for name, "
    "module in list(model.named_modules())[::-1]}",
    "backwards: - names = {id(module): name for name, module in model.named_modules()} + names = {id(module): name "
    "for name, module in list(model.named_modules())[::-1]}",
)

first_bad_layer.equivalent(
    "All inputs are looked at, in whatever order.",
    "backwards: - came_in_well = all((torch.isfinite(each).all() for each in args)) + came_in_well = "
    "all((torch.isfinite(each).all() for each in list(args)[::-1]))",
    "backwards: - before, after = (sum(((each * 0).sum().item() for each in tensors)) for tensors in (args, "
    "[output])) + before, after = (sum(((each * 0).sum().item() for each in list(tensors)[::-1])) for tensors in "
    "(args, [output]))",
)

first_bad_layer.equivalent(
    "The first of those found is returned in any case.",
    "a condition less: - if not found and all(finite[:-1]) and (not finite[-1]): + if all(finite[:-1]) and (not "
    "finite[-1]):",
)

first_bad_layer.equivalent(
    "A tensor of one number is as true or false, and adds up, as the number does.",
    "no item: - finite = [each.isfinite().all().item() for each in (*args, output)] + finite = "
    "[each.isfinite().all() for each in (*args, output)]",
    "no item: - before, after = (sum(((each * 0).sum().item() for each in tensors)) for tensors in (args, [output])) "
    "+ before, after = (sum(((each * 0).sum() for each in tensors)) for tensors in (args, [output]))",
)

first_bad_layer.equivalent(
    "0 times finite numbers is 0 and their mean is too; nan and infinity make nan of either.",
    "mixed up: - before, after = (sum(((each * 0).sum().item() for each in tensors)) for tensors in (args, "
    "[output])) + before, after = (sum(((each * 0).mean().item() for each in tensors)) for tensors in (args, "
    "[output]))",
)

first_bad_layer.equivalent(
    "The search needs no gradient, and a graph that nobody keeps does no harm.",
    "mixed up: - with register_module_forward_hook(hook), torch.no_grad(): + with "
    "register_module_forward_hook(hook), torch.enable_grad():",
)


def _run_and_remove(run, handles, careful):
    """Call `run` and remove the handles; without care, they stay if it raises."""
    try:
        run()
        careful = True
    finally:
        for handle in handles if careful else []:
            handle.remove()


def _search_forward(
    model,
    x,
    *,
    bad=None,
    blame_heirs=False,
    leaves=False,
    pick=lambda found: found[0],
    keep=False,
    careful=True,
    look=tuple,
    names=lambda model: list(model.named_modules()),
):
    """The reference with one thing changed: most of the mistakes below."""
    bad = bad or (lambda tensor: not torch.isfinite(tensor).all())
    found, handles = [], []
    for name, module in names(model):
        if leaves and list(module.children()):
            continue

        def hook(module, args, output, name=name):
            if bad(output) and (blame_heirs or not any(map(bad, look(args)))):
                found.append(name)

        handles.append(module.register_forward_hook(hook))
    _run_and_remove(lambda: model(x), [] if keep else handles, careful)
    return pick(found) if found else None


def _first_registered(model):
    """Of the names found, the one that `named_modules` gives first."""
    return lambda found: next(name for name, _ in model.named_modules() if name in found)


@first_bad_layer.mistake(
    "You looked for nan only. Infinity comes first: it becomes nan a layer later, and then that layer is blamed. "
    "`torch.isfinite` is False for both."
)
def _(model, x):
    return _search_forward(model, x, bad=lambda tensor: torch.isnan(tensor).any())


@first_bad_layer.mistake(
    "You blamed a module whose *input* was not finite already. It only hands the damage on: look at `args` as well."
)
def _(model, x):
    return _search_forward(model, x, blame_heirs=True)


@first_bad_layer.mistake(
    "A module may take several inputs, and it is innocent if one of them is bad: look at *all* of `args`."
)
def _(model, x):
    return _search_forward(model, x, look=lambda args: args[:1])


@first_bad_layer.mistake(
    "When the model raises an error, your hooks stay: what follows the call does not run then. Remove them in a "
    "`finally`."
)
def _(model, x):
    return _search_forward(model, x, careful=False)


@first_bad_layer.mistake(
    "You hooked the leaves only. A module can do the damage in its own `forward`, where no layer inside it takes part."
)
def _(model, x):
    return _search_forward(model, x, leaves=True)


@first_bad_layer.mistake(
    "You returned the last one. What is around the guilty module has finite inputs and a bad output too, and returns "
    "later."
)
def _(model, x):
    return _search_forward(model, x, pick=lambda found: found[-1])


@first_bad_layer.mistake(
    "Your hooks stay on the modules. Keep every handle, and remove them all when the call is over."
)
def _(model, x):
    return _search_forward(model, x, keep=True)


@first_bad_layer.mistake(
    "A layer is bad as soon as *one* number is not finite: `not isfinite(t).all()`. You asked whether all of "
    "them are bad."
)
def _(model, x):
    return _search_forward(model, x, bad=lambda tensor: not torch.isfinite(tensor).any())


@first_bad_layer.mistake(
    'You never name `model` itself. `named_modules` has it too, with the name "", which counts as false in an `if`.'
)
def _(model, x):
    return _search_forward(model, x, names=lambda model: [each for each in model.named_modules() if each[0]])


@first_bad_layer.mistake(
    "You asked the direct children of the model only. `named_modules` finds what is deeper inside."
)
def _(model, x):
    return _search_forward(model, x, names=lambda model: list(model.named_children()))


@first_bad_layer.mistake(
    "Of the guilty ones, you took the first by the order of `named_modules` or of the calls, which have the outer "
    "before the inner ones. The first to *return* is wanted: note the names in the order in which forward hooks run."
)
def _(model, x):
    return _search_forward(model, x, pick=_first_registered(model))


@first_bad_layer.mistake(
    "You called the model once for each module, and took the first that is guilty by the order of `named_modules`. "
    "Put all hooks on, call it once, and take the first to *return*."
)
def _(model, x):
    for each in model.named_modules():
        found = _search_forward(model, x, names=lambda model, each=each: [each])
        if found is not None:
            return found
    return None


@first_bad_layer.mistake(
    "Every module gets the same name in yours, the last one of the loop: a hook looks a variable up when it runs. Hand "
    "the name on as a default, `name=name`."
)
def _(model, x):
    return _search_forward(model, x, pick=lambda found: [name for name, _ in model.named_modules()][-1])


@first_bad_layer.mistake(
    "You do not call the model when `x` is not finite. A module may still make something bad out of good inputs: "
    "what comes into *it* counts."
)
def _(model, x):
    return _search_forward(model, x) if torch.isfinite(x).all() else None


@first_bad_layer.mistake(
    "For each module you asked whether `x` is finite. What comes into the module itself counts: look at its `args`."
)
def _(model, x):
    return _search_forward(model, x, look=lambda args: [x])


@first_bad_layer.mistake("You look for nan alone. Infinity is not finite either: `torch.isfinite` knows both.")
def _(model, x):
    guilty = []
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():

            def hook(module, args, output, name=name):
                if output.isnan().any() and not any(each.isnan().any() for each in args):
                    guilty.append(name)

            stack.enter_context(module.register_forward_hook(hook))
        model(x)
    return guilty[0] if guilty else None


@exercise(
    lesson=8,
    points=2,
    hints=[
        "The same question on the way back. Which kind of hook sees both ends of a module's part of backward?",
        "A full backward hook: guilty if every gradient in `grad_output` is finite and one in `grad_input` is not. An "
        "entry of `grad_input` is None where the input needs no gradient.",
        "`def bad(grads): return any(g is not None and not g.isfinite().all() for g in grads)`; in the hook: `if "
        "bad(grad_input) and not bad(grad_output): guilty.append(name)`. With `start = x.clone().requires_grad_()`, "
        "`torch.autograd.grad(model(start).sum(), [start, *weights])` goes back and leaves each `.grad` alone.",
    ],
)
def first_bad_gradient(model, x):
    """Go back from the sum of `model(x)`, to `x` and to the parameters, and return
    the dotted name of the first leaf module that makes a gradient of its inputs
    which is not finite out of a gradient of its output that is.

    First means: the first on the way back. If no module does so, return None. A
    leaf module has no children, takes one or more tensors and returns one. The
    gradient of `x` counts as that of any input, though `x` requires none. Some
    parameters may be frozen. The name of `model` itself is `""`. At the end `x` and
    every `.grad` are as they were, and no hook is left, even if the model raises an
    error.
    """
    guilty, handles = [], []

    def bad(gradients):
        return any(each is not None and not torch.isfinite(each).all() for each in gradients)

    def watch(name):
        def hook(module, grad_input, grad_output):
            if bad(grad_input) and not bad(grad_output):
                guilty.append(name)

        return hook

    for name, module in model.named_modules():
        if not list(module.children()):
            handles.append(module.register_full_backward_hook(watch(name)))
    start = x.clone().requires_grad_()
    ends = [start, *(each for each in model.parameters() if each.requires_grad)]
    try:
        torch.autograd.grad(
            model(start).sum(), ends, allow_unused=True
        )  # unlike backward(), it leaves each .grad alone
    finally:
        for handle in handles:
            handle.remove()
    return guilty[0] if guilty else None


@first_bad_gradient.cases
def _(rng):
    names = rng.choice([("first", "second", "third", "fourth"), ("one", "two", "three", "four"), ("a", "b", "c", "d")])

    def search(x: Tensor, shown: str, *parts: nn.Module) -> Case:
        model = nn.Sequential()
        for name, part in zip(names, parts, strict=False):
            model.add_module(name, part)
        return Case({"model": model, "x": x}, shown=shown)

    zeros = rng.whole(2, 2)
    zeros[1] = 0  # 0 from behind times the infinite slope is nan
    sixteenths = rng.whole(2, 2, high=2)
    sixteenths[1] = 1 / 16
    fork = Fork(Root(), Times(1.0), Plus())
    yield search(
        zeros,
        "a fork with a square root of 0 in one branch, and a product with 0 behind it",
        *(linear(torch.eye(2), torch.zeros(2)), nn.ReLU(), fork, Times(0.0)),
    )
    yield search(
        rng.whole(1, 2),
        "the square root of a product with 0, plus a square root of 0 that stands on no way from x",
        *(Times(0.0), Root(), Shifted(0.0)),
    )
    yield search(sixteenths, "gradients of 2e+38, and then a slope of 2, which is too much", Root(), Times(2e38))
    yield search(
        zeros.clone(),
        "a square root in a module's own forward, with a layer inside that is not called",
        Times(1.0),
        RootOutside(),
    )
    fork = Fork(Again(Root()), Again(Root()), Plus())
    yield search(zeros.clone(), "a fork: in both branches a square root is called twice, the first time for 0", fork)
    join = "a fork, and where it joins, the square root of the"
    yield search(zeros.clone(), f"{join} first input", Fork(Times(0.5), nn.Sigmoid(), PlusRoot(0)))
    yield search(zeros.clone(), f"{join} second input", Fork(nn.Sigmoid(), Times(0.5), PlusRoot(1)))
    yield search(rng.whole(1, 3), "an x that is too wide: the model raises an error", Root(), linear(torch.eye(2)))
    yield search(rng.whole(2, 2), "a square root of 0 that stands on no way from x", *map(Shifted, (1.0, 1.0, 0.0)))
    yield Case({"model": Root(), "x": zeros.clone()}, shown="a model that is a leaf: it takes the square root of 0")


@first_bad_gradient.accept
def _(model, x):
    """Whatever happens to a copy of the model happens to nobody's model."""
    found, model = [], copy.deepcopy(model)

    def finite(gradients):
        return all(bool(each.isfinite().all()) for each in gradients if each is not None)

    for name, module in model.named_modules():
        if len(list(module.children())) == 0:
            module.register_full_backward_hook(
                lambda module, into, out, name=name: found.append((name, finite(into), finite(out)))
            )
    model(x.clone().requires_grad_()).sum().backward()
    return next((name for name, into, out in found if out and not into), None)


@first_bad_gradient.accept
def _(model, x):
    """Tensor hooks on what goes in and what comes out of each call of a leaf; views tell the inputs of two apart."""
    calls, before = [], [(each, each.grad) for each in model.parameters()]

    def enter(module, args):
        calls.append((module, [], []))
        views = [each.view_as(each) for each in args]
        for view in views:
            if view.requires_grad:
                view.register_hook(calls[-1][1].append)
        return tuple(views)

    def leave(module, args, output):
        if output.requires_grad:
            output.register_hook(calls[-1][2].append)

    with contextlib.ExitStack() as stack:
        for module in model.modules():
            if not module._modules:
                stack.enter_context(module.register_forward_pre_hook(enter))
                stack.enter_context(module.register_forward_hook(leave))
        for parameter in model.parameters():
            parameter.grad = None
        try:
            model(x.clone().requires_grad_()).sum().backward()
        finally:
            for parameter, grad in before:
                parameter.grad = grad
    names = {module: name for name, module in model.named_modules()}
    for module, into, out in reversed(calls):
        if all(each.isfinite().all() for each in out) and not all(each.isfinite().all() for each in into):
            return names[module]
    return None


first_bad_gradient.equivalent(
    "Each module gets a hook of its own: the order in which they are put on and taken off does not matter.",
    "backwards: - for name, module in model.named_modules(): + for name, module in list(model.named_modules())[::-1]:",
    "backwards: - for handle in handles: + for handle in list(handles)[::-1]:",
    "backwards: - for name, module in model.named_modules(): + for name, module in list(model.named_modules())[::-1]:",
    "backwards: - for module in model.modules(): + for module in list(model.modules())[::-1]:",
)

first_bad_gradient.equivalent(
    "A name is looked up by its module, so their order does not matter.",
    "backwards: - names = {module: name for name, module in model.named_modules()} + names = {module: name for name, "
    "module in list(model.named_modules())[::-1]}",
)

first_bad_gradient.equivalent(
    "A module returns one tensor, so `grad_output` has one entry.",
    "of an argument the first only: + grad_output = grad_output[:1]",
)

first_bad_gradient.equivalent(
    "All gradients are looked at, in whatever order.",
    "backwards: - return any((each is not None and (not torch.isfinite(each).all()) for each in gradients)) + return "
    "any((each is not None and (not torch.isfinite(each).all()) for each in list(gradients)[::-1]))",
    "backwards: - return all((bool(each.isfinite().all()) for each in gradients if each is not None)) + return "
    "all((bool(each.isfinite().all()) for each in list(gradients)[::-1] if each is not None))",
    "backwards: - if all((each.isfinite().all() for each in out)) and (not all((each.isfinite().all() for each in "
    "into))): + if all((each.isfinite().all() for each in out)) and (not all((each.isfinite().all() for each in "
    "list(into)[::-1]))):",
)

first_bad_gradient.equivalent(
    "`detach` makes a new tensor as `clone` does, and `x` stays as it was.",
    "mixed up: - start = x.clone().requires_grad_() + start = x.detach().requires_grad_()",
    "mixed up: - model(x.clone().requires_grad_()).sum().backward() + "
    "model(x.detach().requires_grad_()).sum().backward()",
    "mixed up: - model(x.clone().requires_grad_()).sum().backward() + "
    "model(x.detach().requires_grad_()).sum().backward()",
)

first_bad_gradient.equivalent(
    "A tensor of one bool is as true or false as the bool.",
    "no call: - return all((bool(each.isfinite().all()) for each in gradients if each is not None)) + return "
    "all((each.isfinite().all() for each in gradients if each is not None))",
)

first_bad_gradient.equivalent("A function without `return` returns None as well.", "no return: - return None + None")

first_bad_gradient.equivalent(
    "Each parameter keeps its own gradient, and each view its own place: the order does not matter.",
    "backwards: - ends = [start, *(each for each in model.parameters() if each.requires_grad)] + ends = [start, "
    "*(each for each in list(model.parameters())[::-1] if each.requires_grad)]",
    "backwards: - for view in views: + for view in list(views)[::-1]:",
    "backwards: - for parameter in model.parameters(): + for parameter in list(model.parameters())[::-1]:",
    "backwards: - for parameter, grad in before: + for parameter, grad in list(before)[::-1]:",
    "backwards: - calls, before = ([], [(each, each.grad) for each in model.parameters()]) + calls, before = ([], "
    "[(each, each.grad) for each in list(model.parameters())[::-1]])",
)

first_bad_gradient.equivalent(
    "A gradient is finite if each of its rows is.",
    "mixed up: - output.register_hook(calls[-1][2].append) + output.register_hook(calls[-1][2].extend)",
    "mixed up: - view.register_hook(calls[-1][1].append) + view.register_hook(calls[-1][1].extend)",
)

first_bad_gradient.equivalent(
    "A call of a module gives one output, with one gradient at most.",
    "mixed up: - if all((each.isfinite().all() for each in out)) and (not all((each.isfinite().all() for each in "
    "into))): + if any((each.isfinite().all() for each in out)) and (not all((each.isfinite().all() for each in "
    "into))):",
    "the first only: - if all((each.isfinite().all() for each in out)) and (not all((each.isfinite().all() for each "
    "in into))): + if all((each.isfinite().all() for each in list(out)[:1])) and (not all((each.isfinite().all() for "
    "each in into))):",
    "backwards: - if all((each.isfinite().all() for each in out)) and (not all((each.isfinite().all() for each in "
    "into))): + if all((each.isfinite().all() for each in list(out)[::-1])) and (not all((each.isfinite().all() for "
    "each in into))):",
)


def _search_backward(
    model,
    x,
    *,
    bad=None,
    heirs=False,
    pick=lambda found: found[0],
    go_back=None,
    keep=False,
    careful=True,
    swap=False,
    leaves=True,
    look=tuple,
    names=lambda model: list(model.named_modules()),
):
    """The reference with one thing changed: most of the mistakes below."""
    wrong = bad or (lambda tensor: not torch.isfinite(tensor).all())
    found, handles = [], []

    def damaged(gradients):
        return any(each is not None and wrong(each) for each in gradients)

    for name, module in names(model):
        if leaves and list(module.children()):
            continue

        def hook(module, into, out, name=name):
            into, out = (out, into) if swap else (into, out)
            if damaged(look(into)) and (heirs or not damaged(out)):
                found.append(name)

        handles.append(module.register_full_backward_hook(hook))
    start = x.clone().requires_grad_()
    ends = [start, *(each for each in model.parameters() if each.requires_grad)]
    go_back = go_back or (lambda: torch.autograd.grad(model(start).sum(), ends, allow_unused=True))
    _run_and_remove(go_back, [] if keep else handles, careful)
    return pick(found) if found else None


@first_bad_gradient.mistake(
    "You looked for nan only. An infinite slope gives infinity first, and nan one step further: `torch.isfinite` "
    "finds both."
)
def _(model, x):
    return _search_backward(model, x, bad=lambda tensor: torch.isnan(tensor).any())


@first_bad_gradient.mistake(
    "You took the last module on the way back. The damage began behind it, and it was only handed on."
)
def _(model, x):
    return _search_backward(model, x, heirs=True, pick=lambda found: found[-1])


@first_bad_gradient.mistake(
    "You took the last of the guilty modules on the way back. The first one is wanted, and the hooks run on the way "
    "back in that order already."
)
def _(model, x):
    return _search_backward(model, x, pick=lambda found: found[-1])


@first_bad_gradient.mistake(
    "Of the guilty modules, you took the first by the order of `named_modules`. The first on the way back is wanted: "
    "note the names in the order in which the hooks run."
)
def _(model, x):
    return _search_backward(model, x, pick=_first_registered(model))


@first_bad_gradient.mistake(
    "You blamed a module to which a gradient came that was not finite already. It only hands the damage on: look at "
    "`grad_output` as well."
)
def _(model, x):
    return _search_backward(model, x, heirs=True)


@first_bad_gradient.mistake(
    "You went back to `x` only. A leaf can also stand on the way to a parameter: go back to the parameters as well."
)
def _(model, x):
    start = x.clone().requires_grad_()
    return _search_backward(model, x, go_back=lambda: torch.autograd.grad(model(start).sum(), start))


@first_bad_gradient.mistake(
    "A parameter may be frozen, and `torch.autograd.grad` raises an error for one that requires no gradient: take the "
    "others only."
)
def _(model, x):
    start = x.clone().requires_grad_()
    ends = [start, *model.parameters()]
    return _search_backward(model, x, go_back=lambda: torch.autograd.grad(model(start).sum(), ends, allow_unused=True))


@first_bad_gradient.mistake(
    "You kept each `.grad` and put it back, but `backward()` had added to it in place. Set each to None first, or take "
    "`torch.autograd.grad`, which leaves each `.grad` alone."
)
def _(model, x):
    before = [(each, each.grad) for each in model.parameters()]
    found = _search_backward(model, x, go_back=lambda: model(x.clone().requires_grad_()).sum().backward())
    for parameter, grad in before:
        parameter.grad = grad
    return found


@first_bad_gradient.mistake(
    "You hooked the direct children of the model. `named_modules` finds the leaves deeper inside; a child with "
    "children is no leaf."
)
def _(model, x):
    return _search_backward(model, x, leaves=False, names=lambda model: list(model.named_children()))


@first_bad_gradient.mistake(
    "`grad_output` comes in from behind, `grad_input` goes on to the front: the names are those of the forward pass. "
    "You looked for a bad one that comes in and a good one that goes on."
)
def _(model, x):
    return _search_backward(model, x, swap=True)


@first_bad_gradient.mistake(
    "`backward()` added gradients to `.grad`, nan among them. Take `torch.autograd.grad`, which leaves each `.grad` "
    "alone."
)
def _(model, x):
    return _search_backward(model, x, go_back=lambda: model(x.clone().requires_grad_()).sum().backward())


@first_bad_gradient.mistake(
    "Somebody's gradients were in `.grad` before, and yours has wiped them out. Put each one back, or take "
    "`torch.autograd.grad`, which leaves each `.grad` alone."
)
def _(model, x):
    def go_back():
        model(x.clone().requires_grad_()).sum().backward()
        model.zero_grad()

    return _search_backward(model, x, go_back=go_back)


@first_bad_gradient.mistake(
    "When the model raises an error, your hooks stay: what follows the call does not run then. Remove them in a "
    "`finally`."
)
def _(model, x):
    return _search_backward(model, x, careful=False)


@first_bad_gradient.mistake(
    "`x` requires no gradient, so the hook of the first module gets None for it. Call the model with a copy that "
    "requires one, `x.clone().requires_grad_()`."
)
def _(model, x):
    def go_back():
        trained = [each for each in model.parameters() if each.requires_grad]
        if trained:
            torch.autograd.grad(model(x).sum(), trained)

    return _search_backward(model, x, go_back=go_back)


@first_bad_gradient.mistake("You looked at the first gradient of `grad_input` only. There is one for each input.")
def _(model, x):
    return _search_backward(model, x, look=lambda gradients: gradients[:1])


@first_bad_gradient.mistake("You hooked every module. The task asks for a leaf: a module without children.")
def _(model, x):
    return _search_backward(model, x, leaves=False)


@first_bad_gradient.mistake(
    "Your hooks stay on the modules. Keep every handle, and remove them all when backward is over."
)
def _(model, x):
    return _search_backward(model, x, keep=True)


@first_bad_gradient.mistake(
    "You searched the forward pass. It is finite from end to end here: the damage is in the gradients."
)
def _(model, x):
    return _search_forward(model, x, leaves=True)


@exercise(
    lesson=8,
    points=2,
    hints=[
        "A unit is dead if it never says anything: not one number above 0, in any place, picture or batch. One sign of "
        "life in any batch is enough.",
        "For one output (N, C, ...): `alive = (output > 0).transpose(0, 1).flatten(1).any(1)`, one bool a unit. Over "
        "several batches, signs of life add up: `|=`.",
        "In the hook: `alive[name] = alive.get(name, False) | now`. At the end: `{name: (~a).float().mean().item() for "
        "name, a in alive.items()}`.",
    ],
)
def dead_share(model, batches):
    """Return a dict: the dotted name of each `nn.ReLU` of `model` to the share of
    its units, a float from 0 to 1, that are dead on `batches`.

    A unit is one index of dimension 1 of the output, (N, C) or (N, C, h, w). It is
    dead if it is 0 for every picture of every batch, at every place, in every call
    of the ReLU. `batches` is a list of inputs, and none of them makes a nan. No hook
    is left behind, even if the model raises an error.
    """
    alive, handles = {}, []

    def watch(name):
        def hook(module, args, output):
            now = (output > 0).transpose(0, 1).flatten(1).any(1)
            alive[name] = alive[name] | now if name in alive else now

        return hook

    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            handles.append(module.register_forward_hook(watch(name)))
    try:
        with torch.no_grad():
            for batch in batches:
                model(batch)
    finally:
        for handle in handles:
            handle.remove()
    return {name: (~units).float().mean().item() for name, units in alive.items()}


class AddOneInPlace(nn.Module):
    """Each number plus 1, in the memory where it is."""

    def forward(self, x: Tensor) -> Tensor:
        return x.add_(1)


class BothSides(nn.Module):
    """The numbers above 0 and those below, each through the same ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(x) - self.relu(-x)


def _relu_net(rng: Numbers) -> nn.Sequential:
    """Four units that hand their input on, a ReLU with 1 added in place, and the first unit through another ReLU."""
    inner, model = nn.Sequential(), nn.Sequential()
    inner.add_module(rng.choice(["relu1", "act1"]), nn.ReLU())
    inner.add_module("add", AddOneInPlace())
    model.add_module("fc1", linear(torch.eye(4)))
    model.add_module(rng.choice(["inner", "block"]), inner)
    model.add_module("fc2", linear(torch.tensor([[1.0, 0, 0, 0], [0, -1, 0, 0]]), torch.tensor([-1.0, 0.0])))
    model.add_module(rng.choice(["relu2", "act2"]), nn.ReLU())
    return model


@dead_share.cases
def _(rng):
    # the first unit lives in both pictures of this batch, the second in one of them, the others in none
    first = rng.whole(2, 4) / 4 * torch.tensor([[1.0, -1.0, -1.0, -1.0], [1.0, 1.0, -1.0, -1.0]])
    second = rng.whole(3, 4) / 4 * torch.tensor([-1.0, -1.0, 2.0**-30, -1.0])  # and here only the third lives, faintly
    in_place = "a ReLU with an in-place operation behind it"
    yield Case({"model": _relu_net(rng), "batches": [first]}, shown=f"4 units, one batch of 2 pictures, {in_place}")
    yield Case({"model": _relu_net(rng), "batches": [first, second]}, shown=f"4 units, two batches, {in_place}")
    yield Case(
        {"model": _relu_net(rng), "batches": [second, first]}, shown="4 units, the two batches the other way round"
    )
    maps = -rng.whole(3, 2, 2, 2) / 4
    maps[rng.integer(1, 2), 0, 1, rng.integer(0, 1)] *= -1
    model = nn.Sequential()
    model.add_module(rng.choice(["relu", "act"]), nn.ReLU())
    shown = "2 channels of 2 x 2 places, one of which fires at one place, and then of 1 x 3 places"
    yield Case({"model": model, "batches": [maps, -rng.whole(1, 2, 1, 3)]}, shown=shown)
    yield Case(
        {"model": BothSides(), "batches": [rng.whole(2, 3) * torch.tensor([0.0, 1.0, -1.0])]},
        shown="a ReLU that is called twice: once for what is above 0, once for what is below",
    )
    yield Case(
        {"model": _relu_net(rng), "batches": [first.clone(), rng.whole(2, 3)]},
        shown="a second batch that is too narrow: the model raises an error",
    )
    maps = -rng.whole(4, 2, 2, 2) / 4
    maps[1, 0, 0, 1] *= -1
    yield Case(
        {"model": nn.Sequential(nn.ReLU()), "batches": list(maps.split(2))},
        shown="2 channels of 2 x 2 places, two batches of one size, and one place that fires, in the first of them",
    )


@dead_share.accept
def _(model, batches):
    most = {}
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, nn.ReLU):

                def hook(module, args, output, name=name):
                    now = output.detach().movedim(1, 0).reshape(output.shape[1], -1).amax(1)
                    most[name] = torch.maximum(most.get(name, now), now)

                stack.enter_context(module.register_forward_hook(hook))
        for batch in batches:
            model(batch)
    return {name: (values == 0).sum().item() / len(values) for name, values in most.items()}


@dead_share.accept
def _(model, batches):
    with torch.no_grad(), record(model, nn.ReLU) as seen:
        for batch in batches:
            model(batch)
    shares = {}
    for name, found in seen.items():
        sums = sum(output.flatten(2).sum((0, 2)) if output.dim() > 2 else output.sum(0) for output in found.outputs)
        shares[name] = float((sums == 0).double().mean())
    return shares


dead_share.equivalent(
    "The ReLUs of a model are inside it: it is none itself.",
    "not the first: - for name, module in model.named_modules(): + for name, module in "
    "list(model.named_modules())[1:]:",
    "not the first: - for name, module in model.named_modules(): + for name, module in "
    "list(model.named_modules())[1:]:",
)

dead_share.equivalent(
    "The order of hooks, of batches and of what the dict holds does not matter.",
    "backwards: - for name, module in model.named_modules(): + for name, module in list(model.named_modules())[::-1]:",
    "backwards: - for handle in handles: + for handle in list(handles)[::-1]:",
    "backwards: - for batch in batches: + for batch in list(batches)[::-1]:",
    "backwards: - return {name: (~units).float().mean().item() for name, units in alive.items()} + return {name: "
    "(~units).float().mean().item() for name, units in list(alive.items())[::-1]}",
    "backwards: - for name, module in model.named_modules(): + for name, module in list(model.named_modules())[::-1]:",
    "backwards: - for batch in batches: + for batch in list(batches)[::-1]:",
    "backwards: - return {name: (values == 0).sum().item() / len(values) for name, values in most.items()} + return "
    "{name: (values == 0).sum().item() / len(values) for name, values in list(most.items())[::-1]}",
    "backwards: - for name, found in seen.items(): + for name, found in list(seen.items())[::-1]:",
    "backwards: - for batch in batches: + for batch in list(batches)[::-1]:",
    "backwards: - sums = sum((output.flatten(2).sum((0, 2)) if output.dim() > 2 else output.sum(0) for output in "
    "found.outputs)) + sums = sum((output.flatten(2).sum((0, 2)) if output.dim() > 2 else output.sum(0) for output "
    "in list(found.outputs)[::-1]))",
)

dead_share.equivalent(
    "The task says nothing of a graph, and none is kept after the call.",
    "no with: - with torch.no_grad(): - for batch in batches: + for batch in batches: - model(batch) + model(batch)",
    "mixed up: - with torch.no_grad(): + with torch.enable_grad():",
    "no detach: - now = output.detach().movedim(1, 0).reshape(output.shape[1], -1).amax(1) + now = output.movedim(1, "
    "0).reshape(output.shape[1], -1).amax(1)",
    "mixed up: - now = output.detach().movedim(1, 0).reshape(output.shape[1], -1).amax(1) + now = "
    "output.clone().movedim(1, 0).reshape(output.shape[1], -1).amax(1)",
    "mixed up: - with torch.no_grad(), record(model, nn.ReLU) as seen: + with torch.enable_grad(), record(model, "
    "nn.ReLU) as seen:",
)

dead_share.equivalent(
    "An output has two dimensions or four.",
    "other constant: - sums = sum((output.flatten(2).sum((0, 2)) if output.dim() > 2 else output.sum(0) for output "
    "in found.outputs)) + sums = sum((output.flatten(2).sum((0, 2)) if output.dim() > 3 else output.sum(0) for "
    "output in found.outputs))",
)

dead_share.equivalent(
    "Of numbers that are not below 0, the mean is 0 if the sum is.",
    "mixed up: - sums = sum((output.flatten(2).sum((0, 2)) if output.dim() > 2 else output.sum(0) for output in "
    "found.outputs)) + sums = sum((output.flatten(2).mean((0, 2)) if output.dim() > 2 else output.sum(0) for output "
    "in found.outputs))",
    "mixed up: - sums = sum((output.flatten(2).sum((0, 2)) if output.dim() > 2 else output.sum(0) for output in "
    "found.outputs)) + sums = sum((output.flatten(2).sum((0, 2)) if output.dim() > 2 else output.mean(0) for output "
    "in found.outputs))",
)


def _count_dead(model, batches, *, dead, merge=lambda before, now: before & now, keep=False, careful=True, inner=True):
    """The reference turned round, with the rule `dead` for one output and `merge` for several batches."""
    found, handles = {}, []
    for name, module in model.named_modules() if inner else model.named_children():
        if isinstance(module, nn.ReLU):

            def hook(module, args, output, name=name):
                now = dead(output.detach())
                found[name] = merge(found[name], now) if name in found else now

            handles.append(module.register_forward_hook(hook))
    _run_and_remove(lambda: [model(batch) for batch in batches], [] if keep else handles, careful)
    return {name: units.float().mean().item() for name, units in found.items()}


def _silent(output):
    return (output <= 0).transpose(0, 1).flatten(1).all(1)


def _count_units(model, batch):
    """For each ReLU, which units are silent in its last call for this batch."""
    now = {}
    with contextlib.ExitStack() as stack, torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, nn.ReLU):

                def hook(module, args, output, name=name):
                    now[name] = _silent(output)

                stack.enter_context(module.register_forward_hook(hook))
        model(batch)
    return now


@dead_share.mistake(
    "This is the share of zeros. A healthy ReLU has many: a unit is dead only if it is 0 for *every* picture."
)
def _(model, batches):
    zeros, handles = {}, []
    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            handles.append(
                module.register_forward_hook(
                    lambda module, args, output, name=name: zeros.setdefault(name, []).append(output == 0)
                )
            )
    _run_and_remove(lambda: [model(batch) for batch in batches], handles, True)
    return {name: torch.cat([each.flatten() for each in found]).float().mean().item() for name, found in zeros.items()}


@dead_share.mistake("Only the last batch counts in yours. A unit that fired in an earlier one is alive.")
def _(model, batches):
    return _count_dead(model, batches, dead=_silent, merge=lambda before, now: now)


@dead_share.mistake("Of a ReLU that runs twice for a batch, only the last run counts in yours. Join the runs, too.")
def _(model, batches):
    dead = {}
    for batch in batches:
        for name, now in _count_units(model, batch).items():
            dead[name] = dead.get(name, now) & now
    return {name: units.float().mean().item() for name, units in dead.items()}


@dead_share.mistake("Only the first batch counts in yours. A unit may wake up in a later one.")
def _(model, batches):
    return _count_dead(model, batches, dead=_silent, merge=lambda before, now: before)


@dead_share.mistake(
    "You called a unit dead if it is silent in one of the batches. It has to be silent in all of them: join with `&`."
)
def _(model, batches):
    return _count_dead(model, batches, dead=_silent, merge=lambda before, now: before | now)


@dead_share.mistake(
    "You counted each place of a channel as a unit of its own. A channel lives if it fires at any place: flatten the "
    "places before you ask."
)
def _(model, batches):
    return _count_dead(model, batches, dead=lambda output: (output <= 0).all(0))


@dead_share.mistake(
    "You joined the batches, or what was made of each, into one tensor. They may differ in size, and then they do not "
    "fit: note which units fire batch by batch, and join that."
)
def _(model, batches):
    return _count_dead(model, [torch.cat(batches)], dead=_silent)


@dead_share.mistake(
    "You took the mean of one share for each call. A unit that fires in any of them is alive in all: join the *units* "
    "over the batches first, then take their share."
)
def _(model, batches):
    shares = {}
    with contextlib.ExitStack() as stack, torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, nn.ReLU):

                def hook(module, args, output, name=name):
                    shares.setdefault(name, []).append(_silent(output).float().mean().item())

                stack.enter_context(module.register_forward_hook(hook))
        for batch in batches:
            model(batch)
    return {name: sum(each) / len(each) for name, each in shares.items()}


@dead_share.mistake(
    "This is the mean over the calls of the share of zeros. A healthy ReLU has many zeros: a unit is dead only if it "
    "is 0 for *every* picture, at every place."
)
def _(model, batches):
    shares = {}
    with contextlib.ExitStack() as stack, torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, nn.ReLU):

                def hook(module, args, output, name=name):
                    shares.setdefault(name, []).append((output == 0).float().mean().item())

                stack.enter_context(module.register_forward_hook(hook))
        for batch in batches:
            model(batch)
    return {name: sum(each) / len(each) for name, each in shares.items()}


@dead_share.mistake("This is the share of the units that live. Those that are dead are asked for.")
def _(model, batches):
    return {name: 1 - share for name, share in dead_share.reference(model, batches).items()}


@dead_share.mistake("You called a unit dead that fires faintly. Dead is 0, and nothing above it.")
def _(model, batches):
    return _count_dead(model, batches, dead=lambda output: (output < 1e-3).transpose(0, 1).flatten(1).all(1))


@dead_share.mistake("You looked at the first picture of each batch only.")
def _(model, batches):
    return _count_dead(model, batches, dead=lambda output: _silent(output[:1]))


@dead_share.mistake(
    "You asked the direct children of the model only. `named_modules` finds the ReLUs deeper inside, too."
)
def _(model, batches):
    return _count_dead(model, batches, dead=_silent, inner=False)


@dead_share.mistake(
    "You kept the outputs until the end, and what follows the ReLU changed them in place. Count in the hook, or keep "
    "clones."
)
def _(model, batches):
    outputs, handles = {}, []
    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            handles.append(
                module.register_forward_hook(
                    lambda module, args, output, name=name: outputs.setdefault(name, []).append(output.detach())
                )
            )
    _run_and_remove(lambda: [model(batch) for batch in batches], handles, True)
    silent = {name: torch.stack([_silent(each) for each in found]).all(0) for name, found in outputs.items()}
    return {name: units.float().mean().item() for name, units in silent.items()}


@dead_share.mistake(
    "When the model raises an error, your hooks stay: what follows the call does not run then. Remove them in a "
    "`finally`."
)
def _(model, batches):
    return _count_dead(model, batches, dead=_silent, careful=False)


@dead_share.mistake("Your hooks stay on the network. Remove every handle.")
def _(model, batches):
    return _count_dead(model, batches, dead=_silent, keep=True)


@exercise(
    lesson=8,
    points=2,
    hints=[
        "The gradient has to be shortened before the layer uses it. Which of the four module hooks comes first in "
        "backward?",
        "`register_full_backward_pre_hook`: `hook(module, grad_output)`, and it returns the new `grad_output`, a "
        "tuple. The factor is limit / norm, and never above 1.",
        "`factor = (limit / grad.norm()).clamp(max=1)`; a norm of 0 gives infinity, which the clamp makes 1. "
        "`return (grad * factor,)`",
    ],
)
def clip_as_it_passes(layers, limit):
    """From now on, shorten the gradient that arrives at the output of each of
    `layers` to the norm `limit` where it is longer, and return a list with one
    handle for each layer.

    The norm is that of the whole gradient, all rows together. It keeps its
    direction; a shorter one stays as it is. The layer works with the shortened
    gradient: its own parameters get theirs from it. Each layer returns one tensor.
    """

    def shorten(module, grad_output):
        (gradient,) = grad_output
        factor = (limit / gradient.norm()).clamp(max=1)
        return (gradient * factor,)

    return [layer.register_full_backward_pre_hook(shorten) for layer in layers]


def _go_back(model: nn.Module, x: Tensor, gradients: list[Tensor]):
    """What the world does with the hooked network: a call without a graph, then a backward pass from each gradient."""

    def then(returned):
        with torch.no_grad():
            model(x)
        for gradient in gradients:
            (model(x) * gradient).sum().backward()
        values = {"the gradient of the input": x.grad.clone()}
        for name, parameter in model.named_parameters():
            values[f"{name}.grad"] = parameter.grad.clone()
        for handle in returned:
            handle.remove()
        values["hooks left after the handles were removed"] = len([h for h in list_hooks(model) if h.scope == "local"])
        model.zero_grad()
        return values

    return then


@clip_as_it_passes.cases
def _(rng):
    def clip(
        model: nn.Module, layers: list[nn.Module], limit: float, *gradients: list[list[float]], shown: str
    ) -> Case:
        then = _go_back(model, rng.leaf(2, 2), [torch.tensor(gradient) for gradient in gradients])
        return Case({"layers": layers, "limit": limit}, then=then, shown=f"{shown}, limit = {limit:g}")

    def two() -> nn.Sequential:
        return nn.Sequential(linear(rng.quarters(2, 2)), linear(rng.quarters(2, 2)))

    long, small, zero = [[3.0, -4.0], [0.0, 12.0]], [[0.375, 0.0], [0.5, 0.0]], [[0.0, 0.0], [0.0, 0.0]]
    model = two().append(nn.LeakyReLU(0.25))
    ends, limit = [model[2], model[0]], rng.integer(3, 12) / 4
    tiny = [[0.03125, 0.0], [0.0, -0.0625]]
    shown = "the last and the first of three layers, a backward pass with a tiny gradient and one with a long one"
    yield clip(model, ends, limit, tiny, long, shown=shown)
    model = nn.Sequential(linear(rng.whole(2, 2) / 4), linear(rng.whole(2, 2) / 4))
    yield clip(model, list(model), rng.integer(1, 2) / 4, small, shown=f"two Linear layers, the gradient {small}")
    for limit, gradient in ((float(rng.integer(10, 20)), long), (1.0, zero)):
        model = two()
        yield clip(model, list(model), limit, gradient, shown=f"two Linear layers, the gradient {gradient}")
    fork = Fork(*two(), Plus())
    shown = "one of two layers whose outputs are added, so that both get the same gradient"
    yield clip(fork, [fork.right], rng.integer(3, 12) / 4, long, shown=shown)
    model, faint = two(), [[2.0**-9, 0.0], [0.0, -(2.0**-9)]]
    with torch.no_grad():
        model[0].weight *= 2**9  # so that 1e-6 more in the denominator shows; 1e-8 does not
    shown = "the last of two layers, and a faint gradient"
    yield clip(model, [model[1]], 2.0**-10, faint, shown=shown)


@clip_as_it_passes.accept
def _(layers, limit):
    handles = []
    for layer in layers:

        def hook(module, grad_output):
            norm = grad_output[0].pow(2).sum().sqrt().item()
            return tuple(grad * (limit / norm) for grad in grad_output) if norm > limit else None

        handles.append(layer.register_full_backward_pre_hook(hook))
    return handles


@clip_as_it_passes.accept
def _(layers, limit):
    def watch(module, args, output):
        if output.requires_grad:
            output.register_hook(lambda grad: grad * min(1.0, limit / max(grad.norm().item(), 1e-12)))

    return [layer.register_forward_hook(watch) for layer in layers]


clip_as_it_passes.equivalent(
    "A layer returns one tensor, so `grad_output` has one entry.",
    "of an argument the first only: + grad_output = grad_output[:1]",
    "of an argument the first only: + grad_output = grad_output[:1]",
    "the first only: - return tuple((grad * (limit / norm) for grad in grad_output)) if norm > limit else None + "
    "return tuple((grad * (limit / norm) for grad in list(grad_output)[:1])) if norm > limit else None",
    "backwards: - return tuple((grad * (limit / norm) for grad in grad_output)) if norm > limit else None + return "
    "tuple((grad * (limit / norm) for grad in list(grad_output)[::-1])) if norm > limit else None",
    "other constant: - norm = grad_output[0].pow(2).sum().sqrt().item() + norm = "
    "grad_output[-1].pow(2).sum().sqrt().item()",
)

clip_as_it_passes.equivalent(
    "Each layer gets a hook of its own, and the task asks for no order of the handles.",
    "backwards: - return [layer.register_full_backward_pre_hook(shorten) for layer in layers] + return "
    "[layer.register_full_backward_pre_hook(shorten) for layer in list(layers)[::-1]]",
    "backwards: - for layer in layers: + for layer in list(layers)[::-1]:",
    "backwards: - return [layer.register_forward_hook(watch) for layer in layers] + return "
    "[layer.register_forward_hook(watch) for layer in list(layers)[::-1]]",
)

clip_as_it_passes.equivalent(
    "A tensor of one number is compared, and divides, as the number does.",
    "no item: - norm = grad_output[0].pow(2).sum().sqrt().item() + norm = grad_output[0].pow(2).sum().sqrt()",
    "no item: - output.register_hook(lambda grad: grad * min(1.0, limit / max(grad.norm().item(), 1e-12))) + "
    "output.register_hook(lambda grad: grad * min(1.0, limit / max(grad.norm(), 1e-12)))",
)

clip_as_it_passes.equivalent(
    "Where the norm is the limit, the factor is 1.",
    "compare otherwise: - return tuple((grad * (limit / norm) for grad in grad_output)) if norm > limit else None + "
    "return tuple((grad * (limit / norm) for grad in grad_output)) if norm >= limit else None",
)


@clip_as_it_passes.mistake(
    "A full backward hook comes after the layer has used the gradient: it shortens what goes on, not what the layer's "
    "own parameters get. Take `register_full_backward_pre_hook`."
)
def _(layers, limit):
    def hook(module, grad_input, grad_output):
        return tuple(grad * (limit / grad.norm()).clamp(max=1) for grad in grad_input)

    return [layer.register_full_backward_hook(hook) for layer in layers]


@clip_as_it_passes.mistake(
    "You shortened what the layer passes on, after it has used the long gradient for its own parameters. Shorten what "
    "arrives at its output: `register_full_backward_pre_hook`."
)
def _(layers, limit):
    def hook(module, grad_input, grad_output):
        factor = (limit / grad_output[0].norm()).clamp(max=1)
        return tuple(grad if grad is None else grad * factor for grad in grad_input)

    return [layer.register_full_backward_hook(hook) for layer in layers]


@clip_as_it_passes.mistake(
    "You clamped each number by itself. That turns the gradient in another direction; multiply it as a whole."
)
def _(layers, limit):
    return [
        layer.register_full_backward_pre_hook(lambda module, grads: (grads[0].clamp(-limit, limit),))
        for layer in layers
    ]


@clip_as_it_passes.mistake(
    "You scaled every gradient *to* the limit, so that short ones grow (and 0 becomes 0 / 0). The factor is at most 1."
)
def _(layers, limit):
    return [
        layer.register_full_backward_pre_hook(lambda module, grads: (grads[0] * limit / grads[0].norm(),))
        for layer in layers
    ]


@clip_as_it_passes.mistake(
    "You scaled every gradient *to* the limit, so that short ones grow. Scale only where the norm is above it."
)
def _(layers, limit):
    def hook(module, grads):
        norm = grads[0].norm()
        return (grads[0] * limit / norm,) if norm > 0 else None

    return [layer.register_full_backward_pre_hook(hook) for layer in layers]


@clip_as_it_passes.mistake(
    "You shortened each row by itself. The norm is that of the whole gradient: `grad.norm()` without a dimension."
)
def _(layers, limit):
    def hook(module, grads):
        return (grads[0] * (limit / grads[0].norm(dim=1, keepdim=True)).clamp(max=1),)

    return [layer.register_full_backward_pre_hook(hook) for layer in layers]


@clip_as_it_passes.mistake(
    "You changed the gradient in place. Another layer may get the same tensor: return a new one."
)
def _(layers, limit):
    def hook(module, grads):
        grads[0].mul_((limit / grads[0].norm()).clamp(max=1))

    return [layer.register_full_backward_pre_hook(hook) for layer in layers]


@clip_as_it_passes.mistake(
    "Your hook returns a tensor. `grad_output` is a tuple, and so is what takes its place: `return (shorter,)`."
)
def _(layers, limit):
    def hook(module, grads):
        return grads[0] * (limit / grads[0].norm()).clamp(max=1)

    return [layer.register_full_backward_pre_hook(hook) for layer in layers]


@clip_as_it_passes.mistake(
    "The gradients are those without any hook. A hook that returns None keeps the old gradient; and a hook whose "
    "handle is removed before backward, as at the end of a `with`, does not run."
)
def _(layers, limit):
    def hook(module, grad_output):
        grad_output[0] * (limit / grad_output[0].norm()).clamp(max=1)

    return [layer.register_full_backward_pre_hook(hook) for layer in layers]


@clip_as_it_passes.mistake(
    "You divided by the norm of a gradient of zeros: 0 / 0 is nan. Divide only where the norm is above the limit."
)
def _(layers, limit):
    def hook(module, grads):
        norm = grads[0].norm()
        return (grads[0] / norm * norm.clamp(max=limit),)

    return [layer.register_full_backward_pre_hook(hook) for layer in layers]


@clip_as_it_passes.mistake(
    "You measured the gradient by its greatest number. Its norm is the root of the sum of all squares: `grad.norm()`."
)
def _(layers, limit):
    return [
        layer.register_full_backward_pre_hook(
            lambda module, grads: (grads[0] * (limit / grads[0].abs().max()).clamp(max=1),)
        )
        for layer in layers
    ]


@clip_as_it_passes.mistake(
    "You left out the root: the norm is the *root* of the sum of the squares, as `grad.norm()` gives it."
)
def _(layers, limit):
    return [
        layer.register_full_backward_pre_hook(
            lambda module, grads: (grads[0] * (limit / grads[0].pow(2).sum()).clamp(max=1),)
        )
        for layer in layers
    ]


@clip_as_it_passes.mistake(
    "The first backward pass is right, a later one is not. Every pass needs its own factor, and the hook has to stay."
)
def _(layers, limit):
    factors = {}

    def hook(module, grads):
        factor = factors.setdefault(module, (limit / grads[0].norm()).clamp(max=1))
        return (grads[0] * factor,)

    return [layer.register_full_backward_pre_hook(hook) for layer in layers]


@clip_as_it_passes.mistake(
    "You shortened what goes on from the layer, the gradient of its *input*. The one that arrives at its output is "
    "wanted: the layer's own parameters get theirs from it."
)
def _(layers, limit):
    def enter(module, args):
        if args[0].requires_grad:
            args[0].register_hook(lambda grad: grad * (limit / grad.norm()).clamp(max=1))

    return [layer.register_forward_pre_hook(enter) for layer in layers]


@clip_as_it_passes.mistake("You hooked the last of the layers only. Every layer has its own limit.")
def _(layers, limit):
    return [
        layer.register_full_backward_pre_hook(
            lambda module, grads: (grads[0] * (limit / grads[0].norm()).clamp(max=1),)
        )
        for layer in layers[-1:]
    ]


@clip_as_it_passes.mistake(
    "You shortened the parameters' gradients. Then the gradient that travels on through the layers is as long as "
    "before."
)
def _(layers, limit):
    return [
        parameter.register_hook(lambda grad: grad * (limit / grad.norm()).clamp(max=1))
        for layer in layers
        for parameter in layer.parameters()
    ]


@clip_as_it_passes.mistake(
    "A faint gradient becomes shorter than `limit`, because you add a number to its norm. Divide by the norm as it is."
)
def _(layers, limit):
    return [
        layer.register_full_backward_pre_hook(
            lambda module, grads: (grads[0] * (limit / (grads[0].norm() + 1e-6)).clamp(max=1),)
        )
        for layer in layers
    ]


@exercise(
    lesson=8,
    points=2,
    hints=[
        "What has to be true when the block ends by an exception? And what does a list of norms keep alive?",
        "`contextlib.contextmanager`: register, `yield` the list, and remove in a `finally`. A number is "
        "`output.norm().item()`: a tensor would keep its graph.",
        "`norms = []`, `handles = [layer.register_forward_hook(lambda m, a, out: norms.append(out.norm().item())) for "
        "layer in layers]`, then `try: yield norms` and `finally:` remove each handle.",
    ],
)
def watch_norms(layers):
    """A context manager: while its block runs, the norm of each output of `layers`
    is noted, as a Python float, in the list that `with` gives.

    The norms are in the order of the calls. When the block ends, by whatever way,
    no hook is left; other hooks of the layers stay. Nothing keeps a tensor alive.
    """

    @contextlib.contextmanager
    def block():
        norms = []

        def note(module, args, output):
            norms.append(output.detach().norm().item())

        handles = [layer.register_forward_hook(note) for layer in layers]
        try:
            yield norms
        finally:
            for handle in handles:
                handle.remove()

    return block()


def _watched(model: nn.Sequential, x: Tensor, error: type[BaseException] | None):
    """What the world does: a call before the block, two in it (or an error after the first), one after it."""

    def then(returned):
        storages, came_out = [], "nothing"
        others = [
            layer.register_forward_hook(
                lambda module, args, output: storages.append(StorageWeakRef(output.untyped_storage()))
            )
            for layer in model[:3]
        ]
        model(x)
        storages.clear()
        seen = {}
        try:
            with returned as norms:
                output = model(x)
                seen["what the model gave in the block"] = output.detach().clone()
                seen["`requires_grad` of what the model gave in the block"] = output.requires_grad
                del output
                seen["the outputs in memory after the first call"] = sum(not each.expired() for each in storages)
                seen["the list after the first call"] = list(norms)
                others.append(model[0].register_forward_hook(lambda module, args, output: None))
                if error:
                    raise error
                with torch.no_grad():
                    model(2 * x)
        except (ZeroDivisionError, KeyboardInterrupt) as raised:
            came_out = type(raised).__name__
        left = len([hook for hook in list_hooks(model) if hook.scope == "local"])
        model(x)
        for handle in others:
            handle.remove()
        return {
            **seen,
            "the list after the block": list(norms),
            "the hooks on the layers after the block, others' among them,": left,
            "what came out of the block": came_out,
        }

    return then


@watch_norms.cases
def _(rng):
    for error, ended in (
        (None, "holds two calls"),
        (ZeroDivisionError, "ends by an exception after one call"),
        (KeyboardInterrupt, "ends because somebody stopped it, by KeyboardInterrupt"),
    ):
        first, second, third = linear(rng.quarters(2, 2)), nn.LeakyReLU(0.25), linear(rng.quarters(2, 2))
        model = nn.Sequential(first, second, third, first)
        shown = f"two of three layers, one of which is called twice, and a block that {ended}"
        yield Case({"layers": [second, first]}, then=_watched(model, rng.quarters(2, 2), error), shown=shown)


@watch_norms.accept
def _(layers):
    @contextlib.contextmanager
    def block():
        norms = []
        with contextlib.ExitStack() as stack:
            for layer in layers:
                stack.enter_context(
                    layer.register_forward_hook(lambda module, args, output: norms.append(float(output.norm())))
                )
            yield norms

    return block()


class _Watch:
    def __init__(self, layers):
        self.layers, self.norms, self.handles = layers, [], []

    def __enter__(self):
        self.handles = [layer.register_forward_hook(self.note) for layer in self.layers]
        return self.norms

    def __exit__(self, *raised):
        for handle in self.handles:
            handle.remove()

    def note(self, module, args, output):
        self.norms.append(output.pow(2).sum().sqrt().item())


@watch_norms.accept
def _(layers):
    return _Watch(layers)


watch_norms.equivalent(
    "Each call of the answer makes its own `block`, and calls it once.",
    "only once: + if getattr(block, 'has_run', False): + return None + block.has_run = True",
    "only once: + if getattr(block, 'has_run', False): + return None + block.has_run = True",
)

watch_norms.equivalent(
    "Each layer gets a hook of its own: the order in which they are put on and taken off does not matter.",
    "backwards: - for handle in handles: + for handle in list(handles)[::-1]:",
    "backwards: - handles = [layer.register_forward_hook(note) for layer in layers] + handles = "
    "[layer.register_forward_hook(note) for layer in list(layers)[::-1]]",
    "backwards: - for layer in layers: + for layer in list(layers)[::-1]:",
)

watch_norms.equivalent(
    "`.item()` gives a number, with or without a graph.",
    "no detach: - norms.append(output.detach().norm().item()) + norms.append(output.norm().item())",
    "mixed up: - norms.append(output.detach().norm().item()) + norms.append(output.clone().norm().item())",
)


def _watch(layers, *, number=lambda output: output.norm().item(), careful=True, remove="all"):
    """The reference with one thing changed: most of the mistakes below."""

    @contextlib.contextmanager
    def block():
        norms = []
        handles = [
            layer.register_forward_hook(lambda module, args, output: norms.append(number(output))) for layer in layers
        ]

        def tidy():
            for handle in {"all": handles, "last": handles[-1:], "none": []}[remove]:
                handle.remove()

        if not careful:
            yield norms
            tidy()
            return
        try:
            yield norms
        finally:
            tidy()

    return block()


@watch_norms.mistake(
    "The list holds tensors. Each of them belongs to the graph, and keeps everything that the graph has saved: store a "
    "number, `.item()`."
)
def _(layers):
    return _watch(layers, number=lambda output: output.norm())


@watch_norms.mistake("A detached tensor keeps no graph, but it is still a tensor. `.item()` gives the number.")
def _(layers):
    return _watch(layers, number=lambda output: output.detach().norm())


@watch_norms.mistake(
    "When the block raises an error, your hooks stay. Remove them in a `finally` after `yield`, or in `__exit__` "
    "whatever it is given."
)
def _(layers):
    return _watch(layers, careful=False)


@watch_norms.mistake(
    "`except Exception` does not see everything that ends a block: KeyboardInterrupt is no Exception. A `finally` runs "
    "in any case."
)
def _(layers):
    @contextlib.contextmanager
    def block():
        norms = []
        handles = [
            layer.register_forward_hook(lambda module, args, output: norms.append(output.norm().item()))
            for layer in layers
        ]
        try:
            yield norms
        except Exception:
            for handle in handles:
                handle.remove()
            raise
        for handle in handles:
            handle.remove()

    return block()


@watch_norms.mistake(
    "Your block swallows the error that ends it. Let it go on: a `finally`, and no `except` and no `return True`."
)
def _(layers):
    class Block(_Watch):
        def __exit__(self, *raised):
            super().__exit__(*raised)
            return True

    return Block(layers)


@watch_norms.mistake(
    "Your `except` swallows the error that ends the block. Remove the hooks in a `finally`, and let the error go on."
)
def _(layers):
    class Block(_Watch):
        def __exit__(self, kind, *raised):
            super().__exit__(kind, *raised)
            return kind is not None and issubclass(kind, Exception)

    return Block(layers)


@watch_norms.mistake("Your hooks are on before the block begins. Register them when it is entered.")
def _(layers):
    class Block(_Watch):
        def __init__(self, layers):
            super().__init__(layers)
            super().__enter__()

        def __enter__(self):
            return self.norms

    return Block(layers)


@watch_norms.mistake("Your hooks stay after the block. Keep the handles, and remove each of them.")
def _(layers):
    return _watch(layers, remove="none")


@watch_norms.mistake(
    "You kept one handle for several hooks: the last one. The others were forgotten, and their hooks are still there."
)
def _(layers):
    return _watch(layers, remove="last")


@watch_norms.mistake(
    "You stored the outputs themselves. The task asks for their norms, and the outputs stay in memory."
)
def _(layers):
    return _watch(layers, number=lambda output: output)


@watch_norms.mistake(
    "The numbers are right, but something of yours holds on to outputs. In the hook, keep nothing but the number."
)
def _(layers):
    kept = {}

    class Block(_Watch):
        def note(self, module, args, output):
            super().note(module, args, output)
            kept[module, len(self.norms)] = output

    return Block(layers)


@watch_norms.mistake(
    "You keep the outputs, and take their norms when the block ends. Until then all of them stay in memory: take the "
    "norm in the hook, and keep the number."
)
def _(layers):
    class Block(_Watch):
        def __enter__(self):
            self.outputs = []
            return super().__enter__()

        def note(self, module, args, output):
            self.outputs.append(output)

        def __exit__(self, *raised):
            super().__exit__(*raised)
            self.norms.extend(output.norm().item() for output in self.outputs)

    return Block(layers)


@watch_norms.mistake("You noted the norm of what goes into a layer. The norm of its output is asked for.")
def _(layers):
    class Block(_Watch):
        def __enter__(self):
            note = lambda module, args, output: self.norms.append(args[0].norm().item())  # noqa: E731
            self.handles = [layer.register_forward_hook(note) for layer in self.layers]
            return self.norms

    return Block(layers)


@watch_norms.mistake(
    "Your list has one place for each layer. A layer may be called several times: append to the list, in the order of "
    "the calls."
)
def _(layers):
    class Block(_Watch):
        def __enter__(self):
            self.norms = [0.0] * len(self.layers)
            return super().__enter__()

        def note(self, module, args, output):
            self.norms[self.layers.index(module)] = output.norm().item()

    return Block(layers)


@watch_norms.mistake("The list that `with` gives stays empty: it is a copy, or nothing is put into it.")
def _(layers):
    class Block(_Watch):
        def __enter__(self):
            super().__enter__()
            return []

    return Block(layers)


@watch_norms.mistake("Nothing comes out of `with`. `yield` the list, or let `__enter__()` return it.")
def _(layers):
    @contextlib.contextmanager
    def block():
        with contextlib.ExitStack() as stack:
            for layer in layers:
                stack.enter_context(layer.register_forward_hook(lambda module, args, output: None))
            yield

    return block()


@watch_norms.mistake(
    "What you return is no context manager, and `with` needs one: put `@contextlib.contextmanager` above a function "
    "that gives the list by `yield`."
)
def _(layers):
    norms = []
    for layer in layers:
        layer.register_forward_hook(lambda module, args, output: norms.append(output.norm().item()))
    return norms


@watch_norms.mistake("You removed every hook of the layers, those of other people too. Remove yours, by their handles.")
def _(layers):
    @contextlib.contextmanager
    def block():
        norms = []
        for layer in layers:
            layer.register_forward_hook(lambda module, args, output: norms.append(output.norm().item()))
        try:
            yield norms
        finally:
            for layer in layers:
                layer._forward_hooks.clear()

    return block()


@watch_norms.mistake(
    "Your `except` swallows the error that ends the block, and an end that is no `Exception` leaves the hooks there. "
    "Remove them in a `finally`, without an `except`."
)
def _(layers):
    @contextlib.contextmanager
    def block():
        norms = []
        handles = [
            layer.register_forward_hook(lambda module, args, output: norms.append(output.norm().item()))
            for layer in layers
        ]
        with contextlib.suppress(Exception):
            yield norms
        for handle in handles:
            handle.remove()

    return block()


@exercise(
    lesson=8,
    points=3,
    hints=[
        "Two runs. The first one keeps what the layer gives for `source`; the second one puts a part of that in its "
        "place for `target`.",
        "What a forward hook returns takes the place of the output. `torch.where(region, one, other)` chooses place by "
        "place; `region` is (h, w) and fits all channels.",
        "First hook: `kept.append(output)`, run `source`, remove it. Second hook: `return torch.where(region, kept[0], "
        "output)`, run `target`, remove it.",
    ],
)
def patched_logits(model, layer, source, target, region):
    """Return the logits (1, classes) of `model` for the picture `target` when the
    output of `layer`, (1, C, h, w), is inside `region` what it is for the picture
    `source`, and outside of it what it is for `target`.

    `layer` is a module of `model`, `region` (h, w) is bool. Nothing else changes, and
    no hook is left, even if the model raises an error.
    """
    kept = []
    with layer.register_forward_hook(lambda module, args, output: kept.append(output.detach().clone())):
        model(source)
    with layer.register_forward_hook(lambda module, args, output: torch.where(region, kept[0], output)):
        return model(target).detach()


class DoubleInPlace(nn.Module):
    """Each number doubled, in the memory where it is."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(2)


def neighbours(rng: Numbers) -> nn.Conv2d:
    """A 3 x 3 convolution of two channels: each place hears of its neighbours."""
    layer = nn.Conv2d(2, 2, 3, padding=1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(rng.mixed(2, 2, 3, 3, high=3))
    return layer


class PlusPart(nn.Module):
    """Its input plus what a part makes of it."""

    def __init__(self, *part: nn.Module) -> None:
        super().__init__()
        self.part = nn.Sequential(*part)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.part(x)


@patched_logits.cases
def _(rng):
    def patch(
        model: nn.Module, layer: nn.Module, region: Tensor, shown: str, channels: int = 2, of_source: int = 2
    ) -> Case:
        given = {
            "model": model.extend([nn.Flatten(), linear(rng.mixed(3, 2 * region.numel(), high=3))]),
            "layer": layer,
            "source": rng.quarters(1, of_source, *region.shape),
            "target": rng.quarters(1, channels, *region.shape),
            "region": region,
        }
        return Case(given, shown=shown)

    one, row = torch.zeros(2, 2, dtype=torch.bool), torch.zeros(2, 3, dtype=torch.bool)
    one[rng.integer(0, 1), 0] = True
    row[0, 0] = row[1, rng.integer(1, 2)] = True
    layers = [neighbours(rng) for _ in range(5)]
    model = nn.Sequential(Times(2.0), PlusPart(layers[0], DoubleInPlace()))
    behind = "an in-place operation behind the layer"
    yield patch(model, layers[0], one, f"maps of 2 x 2, a region of one place, {behind}, and its input added")
    model = nn.Sequential(layers[1], DoubleInPlace())
    yield patch(model, layers[1], row, f"maps of 2 x 3, a region of two places, {behind}")
    model = nn.Sequential(PlusPart(nn.Identity(), layers[2]))
    layer = model[0].part[0]
    yield patch(model, layer, one.clone(), "a layer that hands its very input on, and its input added")
    model = nn.Sequential(nn.Identity(), layers[3])
    shown = "a target with too many channels: the model raises an error"
    yield patch(model, layers[3], row.clone(), shown, channels=3)
    model = nn.Sequential(nn.Identity(), layers[4])
    shown = "a source with too many channels: the model raises an error"
    yield patch(model, layers[4], row.clone(), shown, of_source=3)


@patched_logits.accept
def _(model, layer, source, target, region):
    with record(model, layer) as seen, torch.no_grad():
        model(source)
    (found,) = seen.values()

    def mix(module, args, output):
        output = output.clone()
        output[..., region] = found.output[..., region]
        return output

    handle = layer.register_forward_hook(mix)
    try:
        with torch.no_grad():
            return model(target)
    finally:
        handle.remove()


@patched_logits.accept
def _(model, layer, source, target, region):
    """Both pictures as one batch; the hook mixes the two rows."""

    def mix(module, args, output):
        mask = region.float()
        return torch.cat([output[:1], output[:1] * mask + output[1:] * (1 - mask)])

    with torch.no_grad(), layer.register_forward_hook(mix):
        return model(torch.cat([source, target]))[1:]


patched_logits.equivalent(
    "`source`, `target` and what the layer makes of one of them are batches of one.",
    "of an argument the first only: + source = source[:1]",
    "of an argument the first only: + target = target[:1]",
    "of an argument the first only: + source = source[:1]",
    "of an argument the first only: + target = target[:1]",
    "of an argument the first only: + output = output[:1]",
    "of an argument the first only: + source = source[:1]",
    "of an argument the first only: + target = target[:1]",
)

patched_logits.equivalent(
    "The task says nothing of a graph, and none is kept after the call.",
    "no detach: - return model(target).detach() + return model(target)",
    "mixed up: - return model(target).detach() + return model(target).clone()",
    "no detach: - with layer.register_forward_hook(lambda module, args, output: "
    "kept.append(output.detach().clone())): + with layer.register_forward_hook(lambda module, args, output: "
    "kept.append(output.clone())):",
    "mixed up: - with layer.register_forward_hook(lambda module, args, output: "
    "kept.append(output.detach().clone())): + with layer.register_forward_hook(lambda module, args, output: "
    "kept.append(output.clone().clone())):",
    "no with: - with torch.no_grad(): - return model(target) + return model(target)",
    "mixed up: - with record(model, layer) as seen, torch.no_grad(): + with record(model, layer) as seen, "
    "torch.enable_grad():",
    "mixed up: - with torch.no_grad(): + with torch.enable_grad():",
    "mixed up: - with torch.no_grad(), layer.register_forward_hook(mix): + with torch.enable_grad(), "
    "layer.register_forward_hook(mix):",
)

patched_logits.equivalent(
    "The layer is called once for a picture, and the batch has one: its map fits every place of the batch by "
    "broadcasting.",
    "mixed up: - with layer.register_forward_hook(lambda module, args, output: "
    "kept.append(output.detach().clone())): + with layer.register_forward_hook(lambda module, args, output: "
    "kept.extend(output.detach().clone())):",
    "the first only: - return torch.cat([output[:1], output[:1] * mask + output[1:] * (1 - mask)]) + return "
    "torch.cat([output[:1], output[0] * mask + output[1:] * (1 - mask)])",
)

patched_logits.equivalent(
    "The layer is called once for each picture, so one output is kept and one is mixed.",
    "other constant: - with layer.register_forward_hook(lambda module, args, output: torch.where(region, kept[0], "
    "output)): + with layer.register_forward_hook(lambda module, args, output: torch.where(region, kept[-1], "
    "output)):",
    "only once: + if getattr(mix, 'has_run', False): + return None + mix.has_run = True",
    "only once: + if getattr(mix, 'has_run', False): + return None + mix.has_run = True",
)

patched_logits.equivalent("The mask is made of 0 and 1 in any case.", "spoil an argument: + region = region.double()")


def _patch(model, layer, source, target, region, *, mix=None, keep=torch.clone, remove=True, careful=True):
    """The reference with one thing changed: most of the mistakes below."""
    mix = mix or (lambda there, here: torch.where(region, there, here))
    kept, logits = [], []
    with layer.register_forward_hook(lambda module, args, output: kept.append(keep(output.detach()))):
        model(source)
    handle = layer.register_forward_hook(lambda module, args, output: mix(kept[0], output))
    _run_and_remove(lambda: logits.append(model(target).detach()), [handle] if remove else [], careful)
    return logits[0]


@patched_logits.mistake(
    "These are the logits of `target` without any patch. Return the mixed activation from your hook, and check what "
    "it mixes: inside `region` comes what the layer gave for `source`."
)
def _(model, layer, source, target, region):
    def mix(there, here):
        torch.where(region, there, here)

    return _patch(model, layer, source, target, region, mix=mix)


@patched_logits.mistake("You patched the whole layer. Outside of `region` the activation is that of `target`.")
def _(model, layer, source, target, region):
    return _patch(model, layer, source, target, region, mix=lambda there, here: there)


@patched_logits.mistake("It is the wrong way round: inside `region` comes `source`, outside `target`.")
def _(model, layer, source, target, region):
    return _patch(model, layer, source, target, region, mix=lambda there, here: torch.where(region, here, there))


@patched_logits.mistake(
    "What you kept was changed by the in-place operation behind the layer. Keep a clone: `output.detach().clone()`."
)
def _(model, layer, source, target, region):
    return _patch(model, layer, source, target, region, keep=lambda output: output)


@patched_logits.mistake(
    "You ran the model for `source` and put in what `target` gives. What reaches the end by another way than through "
    "`layer` is then that of `source`."
)
def _(model, layer, source, target, region):
    return _patch(model, layer, target, source, ~region)


@patched_logits.mistake(
    "You changed the output in place. It may be the layer's very input, which others use as well: change a clone."
)
def _(model, layer, source, target, region):
    def mix(there, here):
        with torch.no_grad():
            here[..., region] = there[..., region]

    with torch.no_grad():
        return _patch(model, layer, source, target, region, mix=mix)


@patched_logits.mistake(
    "Two things: it is the wrong way round, for inside `region` comes `source`; and what you kept was changed by the "
    "in-place operation behind the layer, so keep a clone."
)
def _(model, layer, source, target, region):
    swapped = lambda there, here: torch.where(region, here, there)  # noqa: E731
    return _patch(model, layer, source, target, region, mix=swapped, keep=lambda output: output)


@patched_logits.mistake(
    "Two things: you patched the whole layer, not `region` only; and what you kept was changed by the in-place "
    "operation behind the layer, so keep a clone."
)
def _(model, layer, source, target, region):
    return _patch(model, layer, source, target, region, mix=lambda there, here: there, keep=lambda output: output)


@patched_logits.mistake(
    "You ran the model for `source` and put what `target` gives inside `region`. It is to run for `target`, with what "
    "`source` gives inside."
)
def _(model, layer, source, target, region):
    return _patch(model, layer, target, source, region)


@patched_logits.mistake(
    "You gave the layer the picture itself. Other layers may come before it: run the model, and keep what the layer "
    "gives."
)
def _(model, layer, source, target, region):
    there = layer(source)
    return _patch(model, layer, source, target, region, mix=lambda _, here: torch.where(region, there, here))


@patched_logits.mistake(
    "You patched what goes into the layer. What comes out of it is to be patched: take a forward hook."
)
def _(model, layer, source, target, region):
    kept = []
    with layer.register_forward_pre_hook(lambda module, args: kept.append(args[0].detach().clone())):
        model(source)
    with layer.register_forward_pre_hook(lambda module, args: torch.where(region, kept[0], args[0])):
        return model(target).detach()


@patched_logits.mistake("Outside of `region` yours has zeros. What `target` gives belongs there.")
def _(model, layer, source, target, region):
    return _patch(model, layer, source, target, region, mix=lambda there, here: there * region)


@patched_logits.mistake(
    "When the model raises an error, your hook stays: what follows the call does not run then. Remove it in a "
    "`finally`, or take `with`."
)
def _(model, layer, source, target, region):
    return _patch(model, layer, source, target, region, careful=False)


@patched_logits.mistake("Your second hook stays on the layer. Remove it when the run is over.")
def _(model, layer, source, target, region):
    return _patch(model, layer, source, target, region, remove=False)


@patched_logits.mistake(
    "You patched the picture, so that the layer sees the seam between the two. Patch what the layer makes of each."
)
def _(model, layer, source, target, region):
    return model(torch.where(region, source, target)).detach()


@exercise(
    lesson=8,
    points=3,
    hints=[
        "The layer asks its `self_attn` for no weights. Who can change what a module is called with?",
        "A forward pre-hook with `with_kwargs=True` gets `(module, args, kwargs)` and returns `(args, kwargs)`. The "
        "arguments are `need_weights` and `average_attn_weights`.",
        "Pre-hook: `return args, {**kwargs, 'need_weights': True, 'average_attn_weights': False}`; forward hook: "
        "`kept.append(output[1])`. Both on `layer.self_attn`; then `layer(x)`, and remove both.",
    ],
)
def attention_maps(layer, x):
    """Return the attention weights (N, heads, L, L), detached, that
    `layer.self_attn` uses when `layer(x)` is called.

    `layer` is an `nn.TransformerEncoderLayer` with `batch_first=True`, `x` is
    (N, L, d). The call is a real one: the layer's mode stays as it is, and so does
    what it does with `x` before the attention. No hook is left, even if the layer
    raises an error.
    """
    kept = []

    def ask(module, args, kwargs):
        return args, {**kwargs, "need_weights": True, "average_attn_weights": False}

    def keep(module, args, output):
        kept.append(output[1].detach())

    attention = layer.self_attn
    with attention.register_forward_pre_hook(ask, with_kwargs=True), attention.register_forward_hook(keep):
        layer(x)
    return kept[0]


def _transformer(rng: Numbers, dropout: float, norm_first: bool) -> nn.TransformerEncoderLayer:
    """A block with two heads of two numbers and small weights."""
    layer = nn.TransformerEncoderLayer(
        4, 2, dim_feedforward=2, dropout=dropout, batch_first=True, norm_first=norm_first
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(rng.mixed(*parameter.shape) / 16)
    return layer


@attention_maps.cases
def _(rng):
    def attend(layer: nn.TransformerEncoderLayer, x: Tensor, shown: str) -> Case:
        return Case(
            {"layer": layer, "x": x},
            then=lambda maps: {"`requires_grad` of what your function returned": getattr(maps, "requires_grad", None)},
            shown=shown,
        )

    heads = "two heads, three pictures of four tokens, a layer"
    for norm_first, words in ((False, "in eval mode"), (True, "which normalises before the attention, in eval mode")):
        yield attend(_transformer(rng, 0.5, norm_first).eval(), rng.quarters(3, 4, 4), f"{heads} {words}")
    yield attend(_transformer(rng, 0.0, True), rng.quarters(3, 4, 4), f"{heads} in training mode, without dropout")
    layer = _transformer(rng, 0.5, True).eval()
    yield attend(layer, rng.quarters(1, 2, 5), "tokens that are too long: the layer raises an error")
    layer, places = _transformer(rng, 0.5, True).eval(), rng.quarters(4, 4)
    layer.register_forward_pre_hook(lambda module, args: (args[0] + places, *args[1:]))
    yield attend(layer, rng.quarters(3, 4, 4), f"{heads} with a hook that adds a row for each place to x, in eval mode")


@attention_maps.accept
def _(layer, x):
    calls = []
    with layer.self_attn.register_forward_pre_hook(
        lambda module, args, kwargs: calls.append((args, kwargs)), with_kwargs=True
    ):
        layer(x)
    args, kwargs = calls[0]
    return layer.self_attn(*args, **{**kwargs, "need_weights": True, "average_attn_weights": False})[1].detach()


@attention_maps.accept
def _(layer, x):
    def ask(module, args, kwargs):
        kwargs.update(need_weights=True, average_attn_weights=False)
        return args, kwargs

    asking = layer.self_attn.register_forward_pre_hook(ask, with_kwargs=True)
    with asking, record(layer, "self_attn") as seen, torch.no_grad():
        layer(x)
    return seen["self_attn"].output[1]


attention_maps.equivalent(
    "The layer calls its attention once.",
    "only once: + if getattr(ask, 'has_run', False): + return None + ask.has_run = True",
    "only once: + if getattr(keep, 'has_run', False): + return None + keep.has_run = True",
    "other constant: - return kept[0] + return kept[-1]",
    "other constant: - args, kwargs = calls[0] + args, kwargs = calls[-1]",
    "only once: + if getattr(ask, 'has_run', False): + return None + ask.has_run = True",
)

attention_maps.equivalent(
    "The arguments were changed in the dict that came in, and a hook that returns nothing leaves them so.",
    "no return: - return (args, kwargs) + (args, kwargs)",
)

attention_maps.equivalent(
    "What is recorded is detached, with or without a graph.",
    "mixed up: - with asking, record(layer, 'self_attn') as seen, torch.no_grad(): + with asking, record(layer, "
    "'self_attn') as seen, torch.enable_grad():",
)


def _attend(layer, x, *, asked, keep=False, careful=True):
    """The reference, asking for something else."""
    kept = []
    handles = [
        layer.self_attn.register_forward_pre_hook(
            lambda module, args, kwargs: (args, {**kwargs, **asked}), with_kwargs=True
        ),
        layer.self_attn.register_forward_hook(lambda module, args, output: kept.append(output[1])),
    ]
    _run_and_remove(lambda: layer(x), [] if keep else handles, careful)
    return None if kept[0] is None else kept[0].detach()


@attention_maps.mistake(
    "The second output is None, because the layer asks for no weights. A forward pre-hook with `with_kwargs=True` can "
    "set `need_weights`."
)
def _(layer, x):
    return _attend(layer, x, asked={})


@attention_maps.mistake(
    "This is the mean over the heads, (N, L, L). Two clear heads make one blurred picture: set "
    "`average_attn_weights=False` as well."
)
def _(layer, x):
    return _attend(layer, x, asked={"need_weights": True})


@attention_maps.mistake(
    "You called the attention with `x` itself. This layer may normalise `x` first: let the layer do the call, and "
    "watch."
)
def _(layer, x):
    return layer.self_attn(x, x, x, need_weights=True, average_attn_weights=False)[1].detach()


@attention_maps.mistake(
    "The hooks of the layer itself do not run in yours, and they may change what it is called with: let `layer(x)` do "
    "the call, and watch its attention."
)
def _(layer, x):
    x = layer.norm1(x) if layer.norm_first else x
    return layer.self_attn(x, x, x, need_weights=True, average_attn_weights=False)[1].detach()


@attention_maps.mistake(
    "You normalised `x` and called the attention with that. Not every layer normalises first, and not that alone may "
    "happen to `x`: let `layer(x)` do the call, and watch."
)
def _(layer, x):
    x = layer.norm1(x)
    return layer.self_attn(x, x, x, need_weights=True, average_attn_weights=False)[1].detach()


@attention_maps.mistake(
    "When the layer raises an error, your hooks stay: what follows the call does not run then. Remove them in a "
    "`finally`, or take `with`."
)
def _(layer, x):
    return _attend(layer, x, asked={"need_weights": True, "average_attn_weights": False}, careful=False)


@attention_maps.mistake("What you returned still belongs to the graph, and keeps it: `.detach()` it.")
def _(layer, x):
    with layer.self_attn.register_forward_pre_hook(
        lambda module, args, kwargs: (args, {**kwargs, "need_weights": True, "average_attn_weights": False}),
        with_kwargs=True,
    ):
        kept = []
        with layer.self_attn.register_forward_hook(lambda module, args, output: kept.append(output[1])):
            layer(x)
    return kept[0]


@attention_maps.mistake("Your hooks stay on the attention. Remove both.")
def _(layer, x):
    return _attend(layer, x, asked={"need_weights": True, "average_attn_weights": False}, keep=True)


@attention_maps.mistake(
    "You returned what the attention makes of the values, its first output. The weights are the second."
)
def _(layer, x):
    with record(layer, "self_attn") as seen:
        layer(x)
    return seen["self_attn"].output[0]


@attention_maps.mistake(
    "You put the layer in training mode and left it there. It is not needed, and dropout would change what you see."
)
def _(layer, x):
    layer.train()
    return _attend(layer, x, asked={"need_weights": True, "average_attn_weights": False})
