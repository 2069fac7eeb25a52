"""Exercises and predictions of lesson 08: hooks in practice."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.engine import exercise
from course_utils.hooks.inventory import list_hooks


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


def _count_calls(model: nn.Module):
    """Count the calls of `model` from now on."""
    calls: list[None] = []
    model.register_forward_pre_hook(lambda module, args: calls.append(None))
    return lambda returned: {"the number of calls of `model`": len(calls)}


@exercise
def first_bad_layer(rng):
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


@exercise
def first_bad_gradient(rng):
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


@exercise
def dead_share(rng):
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
    fork = Fork(*two(), Plus())
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


@exercise
def watch_norms(rng):
    for error, ended in (
        (None, "holds two calls"),
        (ZeroDivisionError, "ends by an exception after one call"),
        (KeyboardInterrupt, "ends because somebody stopped it, by KeyboardInterrupt"),
    ):
        first, second, third = linear(rng.quarters(2, 2)), nn.LeakyReLU(0.25), linear(rng.quarters(2, 2))
        model = nn.Sequential(first, second, third, first)
        shown = f"two of three layers, one of which is called twice, and a block that {ended}"
        yield Case({"layers": [second, first]}, then=_watched(model, rng.quarters(2, 2), error), shown=shown)


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


@exercise
def patched_logits(rng):
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


def _transformer(rng: Numbers, dropout: float, norm_first: bool) -> nn.TransformerEncoderLayer:
    """A block with two heads of two numbers and small weights."""
    layer = nn.TransformerEncoderLayer(
        4, 2, dim_feedforward=2, dropout=dropout, batch_first=True, norm_first=norm_first
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(rng.mixed(*parameter.shape) / 16)
    return layer


@exercise
def attention_maps(rng):
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
