"""The cases of lesson 08: hooks in practice."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from course_utils.exercises.cases import Case, Numbers, stop
from course_utils.exercises.engine import exercise
from course_utils.hooks.inventory import list_hooks
from course_utils.lessons.small_nets import Gate
from course_utils.vision.toys import make_linear


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A Linear layer with this weight (outputs, inputs), and this bias or none."""
    return make_linear(weight.tolist(), None if bias is None else bias.tolist())


class Times(nn.Module):
    """Each number times a factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Does(nn.Module):
    """A layer without parameters, which does what a function does."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Tensor) -> Tensor:
        return self._function(*args)


class OnesAround(nn.Module):
    """Its input plus ones on either side, in two calls of one module."""

    def __init__(self) -> None:
        super().__init__()
        self.plus = Does(torch.add)

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
        self.row, self.root = linear(torch.eye(2)), Does(torch.sqrt)

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


STOPPED = "a model whose call is stopped, by something that is no Exception"


def _count_calls(model: nn.Module):
    """Count the calls of `model` from now on."""
    calls: list[None] = []
    model.register_forward_pre_hook(lambda module, args: calls.append(None))
    return lambda returned: {"the number of calls of `model`": len(calls)}


@exercise
def first_bad_layer(rng):
    names = rng.choice([("first", "second", "third"), ("one", "two", "three"), ("a", "b", "c")])

    def ask(x: Tensor, shown: str, model: nn.Module) -> Case:
        return Case({"model": model, "x": x}, then=_count_calls(model), shown=shown)

    def search(x: Tensor, shown: str, *parts: nn.Module) -> Case:
        return ask(x, shown, chain(*parts))

    def chain(*parts: nn.Module) -> nn.Sequential:
        return nn.Sequential(OrderedDict(zip(names, parts, strict=False)))

    bad_row, inside = rng.whole(2, 2), "a division 0 / 0 in a module's own forward"
    bad_row[0, rng.integer(0, 1)] = 0  # its logarithm is minus infinity, and that times 0 is nan
    block = nn.Sequential(chain(Times(2.0), Does(torch.log), Times(0.0)))
    shown = "a log of 0 in the middle, then a product with 0"
    yield ask(bad_row, shown, chain(linear(torch.eye(2)), block, nn.ReLU()).eval())
    zeros = rng.whole(2, 2)
    zeros[1] = 0
    yield search(zeros, f"{inside}, not in a layer inside it", Times(1.0), Over(), nn.ReLU())
    yield ask(zeros.clone(), "a division 0 / 0 in the forward of `model` itself", Over())
    block = nn.Sequential(nn.ReLU(), Does(torch.log))
    shown = "two logs of 0; the ReLU behind each makes 0 of minus infinity"
    yield search(zeros.clone(), shown, Does(torch.log), block, nn.ReLU())
    shown = "a layer that is called twice, with infinity as what it gives the second time"
    yield search(rng.whole(2, 2), shown, Times(1.0), Again(Times(1e30)), Does(torch.log))
    x = rng.whole(2, 2)
    x[1, 1] = math.nan
    shown = "a healthy network with a layer of two inputs, and an x with a nan"
    yield search(x, shown, Times(1.0), OnesAround(), nn.ReLU())
    shown = "numbers up to 3e+38, which are finite, and a sum of two that is not"
    yield ask(rng.whole(2, 2, low=2, high=3), shown, Fork(Times(1e38), Times(1e38), Does(torch.add)))
    narrow = linear(rng.whole(2, 2))
    yield search(rng.whole(1, 3), "an x that is too wide: the model raises an error", nn.ReLU(), narrow)
    yield search(rng.whole(1, 2), STOPPED, nn.ReLU(), Does(stop))
    yield search(zeros.clone(), f"{inside}, and then a layer inside it", Times(1.0), OverAndAfter(), nn.ReLU())
    yield search(rng.whole(2, 2), "the log of numbers below 0", Times(-1.0), Does(torch.log), nn.ReLU())
    shown = "an x with a nan, a layer that makes 0 of it, and then a log"
    yield search(x.clone(), shown, Does(lambda x: torch.where(x.isnan(), 0.0, x)), Does(torch.log), nn.ReLU())


@exercise
def first_bad_gradient(rng):
    names = rng.choice([("first", "second", "third", "fourth"), ("one", "two", "three", "four"), ("a", "b", "c", "d")])

    def search(x: Tensor, shown: str, *parts: nn.Module) -> Case:
        model = nn.Sequential(OrderedDict(zip(names, parts, strict=False)))
        return Case({"model": model, "x": x}, shown=shown)

    zeros = rng.whole(2, 2)
    zeros[1] = 0  # 0 from behind times the infinite slope is nan
    sixteenths = rng.whole(2, 2, high=2)
    sixteenths[1] = 1 / 16
    fork = Fork(Does(torch.sqrt), Times(1.0), Does(torch.add))
    yield search(
        zeros,
        "a fork with a square root of 0 in one branch, and a product with 0 behind it",
        *(linear(torch.eye(2), torch.zeros(2)), nn.ReLU(), fork, Times(0.0)),
    )
    yield search(
        rng.whole(1, 2),
        "the square root of a product with 0, plus a square root of 0 that stands on no way from x",
        *(Times(0.0), Does(torch.sqrt), Shifted(0.0)),
    )
    yield search(
        sixteenths, "gradients of 2e+38, and then a slope of 2, which is too much", Does(torch.sqrt), Times(2e38)
    )
    yield search(
        zeros.clone(),
        "a square root in a module's own forward, with a layer inside that is not called",
        Times(1.0),
        RootOutside(),
    )
    fork = Fork(Again(Does(torch.sqrt)), Again(Does(torch.sqrt)), Does(torch.add))
    yield search(zeros.clone(), "a fork: in both branches a square root is called twice, the first time for 0", fork)
    join = "a fork, and where it joins, the square root of the"
    yield search(zeros.clone(), f"{join} first input", Fork(Times(0.5), nn.Sigmoid(), PlusRoot(0)))
    yield search(zeros.clone(), f"{join} second input", Fork(nn.Sigmoid(), Times(0.5), PlusRoot(1)))
    yield search(
        rng.whole(1, 3), "an x that is too wide: the model raises an error", Does(torch.sqrt), linear(torch.eye(2))
    )
    yield search(rng.whole(1, 2), STOPPED, Does(torch.sqrt), Does(stop))
    yield search(rng.whole(2, 2), "a square root of 0 that stands on no way from x", *map(Shifted, (1.0, 1.0, 0.0)))
    yield Case(
        {"model": Does(torch.sqrt), "x": zeros.clone()}, shown="a model that is a leaf: it takes the square root of 0"
    )


class BothSides(nn.Module):
    """The numbers above 0 and those below, each through the same ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = Gate()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(x) - self.relu(-x)


def _relu_net(rng: Numbers) -> nn.Sequential:
    """Four units that hand their input on, a ReLU with 1 added in place, and the first unit through another ReLU."""
    inner = {rng.choice(["relu1", "act1"]): nn.ReLU(), "add": Does(lambda x: x.add_(1))}
    parts = {"fc1": linear(torch.eye(4)), rng.choice(["inner", "block"]): nn.Sequential(OrderedDict(inner))}
    parts["fc2"] = make_linear([[1.0, 0, 0, 0], [0, -1, 0, 0]], [-1.0, 0.0])
    parts[rng.choice(["relu2", "act2"])] = nn.ReLU()
    parts["six"] = nn.ReLU6()
    return nn.Sequential(OrderedDict(parts))


def _tell_other_rows(model: nn.Module, batches: list[Tensor]) -> Callable:
    """What to look at afterwards: whether `model` has given something for a picture that it does not give by itself."""

    def rows(output: Tensor) -> set[tuple[float, ...]]:
        return set(map(tuple, output.flatten(1).tolist()))

    known = set().union(*(rows(model(batch)) for batch in batches))
    other: list[bool] = []
    model.register_forward_hook(lambda module, args, output: other.append(not rows(output) <= known))
    return lambda returned: {"whether a hook changed what the model gave": any(other)}


@exercise
def dead_share(rng):
    # the first unit lives in both pictures of this batch, the second in one of them, the others in none
    first = rng.whole(2, 4) / 4 * torch.tensor([[1.0, -1.0, -1.0, -1.0], [1.0, 1.0, -1.0, -1.0]])
    first[0, 0] = 7.0
    second = rng.whole(3, 4) / 4 * torch.tensor([-1.0, -1.0, 2.0**-120, -1.0])  # and here only the third lives, faintly
    in_place = "a ReLU with an in-place operation behind it"
    yield Case({"model": _relu_net(rng), "batches": [first]}, shown=f"4 units, one batch of 2 pictures, {in_place}")
    model, batches = _relu_net(rng), [first, second]
    then = _tell_other_rows(model, batches)
    yield Case({"model": model, "batches": batches}, then, shown=f"4 units, two batches, {in_place}")
    shown = "4 units, two batches, the larger one first, and nothing in place"
    yield Case({"model": _relu_net(rng), "batches": [second, first]}, shown=shown)
    maps = -rng.whole(3, 2, 2, 2) / 4
    maps[rng.integer(1, 2), 0, 1, rng.integer(0, 1)] *= -1
    model = nn.Sequential(OrderedDict({rng.choice(["relu", "act"]): nn.ReLU()}))
    shown = "2 channels of 2 x 2 places, one of which fires at one place, and then of 1 x 3 places"
    yield Case({"model": model, "batches": [maps, -rng.whole(1, 2, 1, 3)]}, shown=shown)
    shown = "a ReLU that is called twice: once for what is above 0, once for what is below"
    yield Case({"model": BothSides(), "batches": [rng.whole(2, 3) * torch.tensor([0.0, 1.0, -1.0])]}, shown=shown)
    model = nn.Sequential(nn.ReLU(), Does(lambda x: x - 1), nn.ReLU(), nn.Flatten())
    batch = rng.whole(2, 3) * torch.tensor([1.0, -1.0, 1.0])
    yield Case({"model": model, "batches": [batch]}, shown="two ReLUs, and nothing that works in place")
    shown = "a second batch that is too narrow: the model raises an error"
    yield Case({"model": _relu_net(rng), "batches": [first.clone(), rng.whole(2, 3)]}, shown=shown)
    yield Case({"model": _relu_net(rng).append(Does(stop)), "batches": [first.clone()]}, shown=STOPPED)
    maps = -rng.whole(4, 2, 2, 2) / 4
    maps[1, 0, 0, 1] *= -1
    shown = "2 channels of 2 x 2 places, two batches of one size, and one place that fires, in the first of them"
    yield Case({"model": nn.Sequential(nn.ReLU()), "batches": list(maps.split(2))}, shown=shown)
    yield Case({"model": nn.Sequential(nn.ReLU()), "batches": [rng.whole(2, 3)]}, shown="three units, which all live")
    one_dead = rng.whole(2, 3) * torch.tensor([1.0, -1.0, 1.0])
    yield Case({"model": nn.ReLU(), "batches": [one_dead]}, shown="a model that is a ReLU, one of three units dead")
    shown = "4 units, one batch of 2 pictures, and what fires in the second fires in the first"
    yield Case({"model": _relu_net(rng), "batches": [first.flip(0)]}, shown=shown)


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


@exercise
def clip_as_it_passes(rng):
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
    fork = Fork(*two(), Does(torch.add))
    shown = "one of two layers whose outputs are added, so that both get the same gradient"
    yield clip(fork, [fork.right], rng.integer(3, 12) / 4, long, shown=shown)
    model, faint = two(), [[2.0**-9, 0.0], [0.0, -(2.0**-9)]]
    with torch.no_grad():
        model[0].weight *= 2**9  # so that 1e-6 more in the denominator shows; 1e-8 does not
    shown = "the last of two layers, and a faint gradient"
    yield clip(model, [model[1]], 2.0**-10, faint, shown=shown)


def _watched(model: nn.Sequential, x: Tensor, error: type[BaseException] | None):
    """What the world does: a call before the block, two in it (or an error after the first), one after it."""

    def then(returned):
        storages, came_out = [], "nothing"

        def note(module, args, output):
            storages.append(StorageWeakRef(output.untyped_storage()))

        others = [layer.register_forward_hook(note) for layer in model[:3]]
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
            "the list after the block and one more call": list(norms),
            "the hooks on the layers after the block, others' among them,": left,
            "what came out of the block": came_out,
        }

    return then


@exercise
def watch_norms(rng):
    for error, ended in (
        (None, "holds two calls"),
        (ZeroDivisionError, "ends by an exception after one call"),
        (KeyboardInterrupt, "ends because somebody stopped it, by KeyboardInterrupt"),
    ):
        first, second, third = linear(rng.quarters(2, 2)), nn.LeakyReLU(0.25), linear(rng.quarters(2, 2))
        model = nn.Sequential(first, second, third, first)
        shown = f"two of three layers, one of which is called twice, a block that {ended}, and a call after it"
        yield Case({"layers": [second, first]}, then=_watched(model, rng.quarters(2, 2), error), shown=shown)

    layers, x, waiting = [linear(rng.quarters(2, 2)) for _ in range(2)], rng.quarters(1, 2), []

    def wait(manager):
        waiting.append(manager)

    def nested(manager):
        with waiting.pop() as outer:
            with manager as inner:
                layers[0](layers[1](x))
                for _ in range(2):
                    layers[1](0 * x)  # its norm is 0
            layers[1](layers[0](x))
        left = sum(len(layer._forward_hooks) for layer in layers)
        return {
            "the list of the outer block": outer,
            "the list of the inner block": inner,
            "hooks left after both": left,
        }

    yield Case({"layers": [layers[0]]}, wait, shown="a layer whose block comes later")
    shown = "another layer, and a block inside the block of the one before"
    yield Case({"layers": [layers[1]]}, nested, shown=shown, follows=True)


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


@exercise
def patched_logits(rng):
    def patch(
        model: nn.Module, layer: nn.Module, region: Tensor, shown: str, channels: int = 2, of_source: int = 2
    ) -> Case:
        given = {
            "model": model.extend([nn.Flatten(), linear(rng.mixed(3, 2 * region.numel(), high=3))]),
            "layer": layer,
            "source": rng.quarters(1, of_source, *region.shape) / 3,
            "target": rng.quarters(1, channels, *region.shape),
            "region": region,
        }
        return Case(given, shown=shown)

    one, row = torch.zeros(2, 2, dtype=torch.bool), torch.zeros(2, 3, dtype=torch.bool)
    one[rng.integer(0, 1), 0] = True
    row[0, 0] = row[1, rng.integer(1, 2)] = True
    layers = [neighbours(rng) for _ in range(7)]
    model = nn.Sequential(Times(2.0), PlusPart(layers[0], Does(lambda x: x.mul_(2))))
    behind = "an in-place operation behind the layer"
    yield patch(model, layers[0], one, f"maps of 2 x 2, a region of one place, {behind}, and its input added")
    model = nn.Sequential(layers[1], Does(lambda x: x.mul_(2)))
    layers[1].register_forward_hook(lambda module, args, output: output.flip(3))
    shown = f"maps of 2 x 3, a region of two places, a hook on the layer that mirrors its output, {behind}"
    yield patch(model, layers[1], row, shown)
    model = nn.Sequential(PlusPart(nn.Identity(), layers[2]))
    layer = model[0].part[0]
    yield patch(model, layer, one.clone(), "a layer that hands its very input on; behind it, the input is added")
    model = nn.Sequential(nn.Identity(), layers[3])
    shown = "a target with too many channels: the model raises an error"
    yield patch(model, layers[3], row.clone(), shown, channels=3)
    model = nn.Sequential(nn.Identity(), layers[4])
    shown = "a source with too many channels: the model raises an error"
    yield patch(model, layers[4], row.clone(), shown, of_source=3)
    model = nn.Sequential(nn.Identity(), layers[5], Does(stop))
    yield patch(model, layers[5], row.clone(), STOPPED)
    model = nn.Sequential(nn.Identity(), layers[6], Does(lambda x: stop() if x.abs().max() > 1e6 else x))
    case = patch(model, layers[6], row.clone(), f"{STOPPED}, for the target alone")
    case.given["target"].fill_(1e9)
    yield case
