"""The cases of lesson 05, feature maps. Tasks stand in the lesson's source, answers on the pages in `answers`."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.engine import exercise
from course_utils.lessons.small_nets import Gate, count_runs, whole_weights

LEFT_CHANGED = "whether a layer was left with another setting or forward"


def _small_net(rng: Numbers) -> nn.Module:
    """Three convolutions, of which two have weights of one shape, each followed by an in-place ReLU but the last."""
    layers = [nn.Conv2d(1, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(2, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(2, 2, 1)]
    return whole_weights(nn.Sequential(*layers), rng)


class _Block(nn.Module):
    """x + conv2(relu(conv1(x))), then the same ReLU on half of the picture; made in another order than run."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(2, 2, 1)
        self.conv1 = nn.Conv2d(2, 2, 1)

    def forward(self, x):
        return self.relu((x + self.conv2(self.relu(self.conv1(x))))[..., :1])


def _nested(rng: Numbers) -> nn.Module:
    return whole_weights(nn.Sequential(nn.Conv2d(1, 2, 1), nn.Sequential(nn.ReLU(), _Block())), rng)


def _thirds(rng: Numbers, model: nn.Module) -> torch.Tensor:
    """Two pictures, or one where the model is in float64, of numbers that are rounded in another way by each dtype."""
    dtype = next(model.parameters()).dtype
    return rng.quarters(1 if dtype == torch.float64 else 2, 1, 2, 2).to(dtype) / 3


def _tell_runs(model: nn.Module) -> Callable:
    """What to look at afterwards: how often `model` has run since."""
    runs = count_runs(model)
    return lambda _: {"how often the model ran": len(runs)}


def _settings(model: nn.Module) -> tuple[str, list[bool]]:
    """What tells whether a layer has got another setting, such as `inplace`, or another forward."""
    return repr(model), ["forward" in vars(module) for module in model.modules()]


def _shuffled(rng: Numbers, count: int) -> list[int]:
    left = list(range(count))
    return [left.pop(rng.integer(0, len(left) - 1)) for _ in range(count)]


class _TwoNames(nn.Module):
    """One convolution, which runs once and has two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.same = nn.Conv2d(1, 2, 1)

    def forward(self, x):
        return self.same(x)


@exercise
def keep_maps(rng):
    nested = [rng.choice(["1.1.conv1", "1.1.conv2"]), "0"]
    silent = whole_weights(_TwoNames(), rng)
    for parameter in silent.parameters():
        parameter.data.zero_()
    for model, names, shown in (
        (_small_net(rng), ["0", "2", "4"], "a Sequential of convolutions and in-place ReLUs, names = ['0', '2', '4']"),
        (_nested(rng).double(), nested, f"a model of layers inside layers, in float64, names = {nested}"),
        (silent, ["same", "first"], "a model of one layer, which gives zeros, with the names 'first' and 'same'"),
    ):
        runs, settings = count_runs(model), _settings(model)

        def after(maps, model=model, settings=settings, runs=runs):
            graphs = [getattr(each, "requires_grad", False) for each in maps.values()]
            return {
                LEFT_CHANGED: _settings(model) != settings,
                "how often the model ran": len(runs),
                "whether one of the maps holds a graph": any(graphs),
            }

        x = _thirds(rng, model)
        yield Case({"model": model, "names": names, "x": x}, after, shown=shown)


@exercise
def tile_maps(rng):
    maps = rng.quarters(1, 2, 2, 2)
    faint = torch.tensor([0.0, 0.25, 0.5, 0.25])[_shuffled(rng, 4)] - rng.integer(0, 2)
    maps[0, rng.integer(0, 1)] = faint.reshape(2, 2)
    yield Case({"maps": maps})
    maps = rng.quarters(2, 3, 2, 3)
    constant, faint, _ = _shuffled(rng, 3)
    maps[0, constant] = float(rng.integer(1, 9))
    # So faint that a denominator of at least 1e-8, or one that is 1e-8 more than it should be, shows.
    maps[0, faint] = torch.tensor([0, 1, 2, 2, 3, 4])[_shuffled(rng, 6)].reshape(2, 3) / 2**30
    shown = "maps of shape (2, 3, 2, 3), of the first picture one channel constant and one very faint"
    yield Case({"maps": maps}, shown=shown)
    yield Case({"maps": rng.quarters(1, 2, 1, 1)}, shown="two maps of 1 x 1")


@exercise
def strongest_channels(rng):
    # What is positive adds up to 6, 5.75, 5.5, 4.75, 4 and 0.25. By other measures another row than the first wins: the
    # second by its greatest number, by the mean of what is positive and with `clamp(min=1)`, the third by the mean, the
    # median and how much is positive, the fourth by the mean of sizes. The third row is third by its greatest number,
    # fourth by the standard deviation and fifth by the mean of what is positive.
    # Two more are weaker than the last two of these by 1 / 16384 only, and the last row has nothing positive.
    rows = [
        [2.0, 2.0, 2.0] + [-0.25 * rng.integer(1, 4) for _ in range(7)],
        [3.0, 2.75] + [-0.25] * 8,
        [1.5] + [0.5] * 8 + [0.0],
        [1.25, 1.25, 1.25, 1.0] + [-0.25 * rng.integer(9, 12) for _ in range(6)],
        [0.75] * 4 + [0.5] * 2 + [-0.5] * 4,
        [0.75 + 2**-13] + [0.75] * 3 + [0.5 - 2**-13, 0.5 - 2**-14] + [-0.5] * 4,
        [0.25] + [-0.25 * rng.integer(1, 4) for _ in range(9)],
        [0.25 - 2**-14] + [-0.25 * rng.integer(1, 4) for _ in range(9)],
        [-0.25] * 10,
    ]
    for number, row in enumerate(rows):
        row[-1] -= number / 4096  # so that no two rows have the same mean, whether sizes are taken or not
    for count in (1, 4, 9, 0):
        order = _shuffled(rng, 9)
        # Whoever takes nearly equal ones for equal, and then the first of them, has the first two in the wrong order,
        # and whoever takes the last has the other two.
        for one, other in ((5, 4), (6, 7)):
            places = sorted((order.index(one), order.index(other)))
            order[places[0]], order[places[1]] = one, other
        maps = torch.tensor([[rows[row][place] for place in _shuffled(rng, 10)] for row in order])
        yield Case({"maps": maps.reshape(9, 2, 5), "count": count}, shown=f"maps of shape (9, 2, 5), count = {count}")


def _reused_relu(rng: Numbers) -> tuple[nn.Module, torch.Tensor]:
    """A net in which one ReLU runs twice: first on 24 numbers, then on 8, each time with zeros."""
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Sequential(nn.ReLU(), _Block()))
    block = net[1][1]
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([1.0, 1.0]).reshape(2, 1, 1, 1))
        net[0].bias.zero_()
        block.conv1.weight.copy_(torch.eye(2).reshape(2, 2, 1, 1))
        block.conv1.bias.copy_(torch.tensor([-5.0, 0.0]))
        block.conv2.weight.copy_(torch.eye(2).reshape(2, 2, 1, 1))
        block.conv2.bias.copy_(torch.tensor([-1.0, 1.0]))
    x = rng.whole(2, 1, 2, 3, low=1, high=4)
    x[1] += 0.25
    x[0, 0, 0, rng.integer(0, 2)] = float(rng.integer(6, 9))
    x[0, 0, 1, 0] = -float(rng.integer(1, 9))  # in the part of the picture that the second run gets
    return net, x


@exercise
def zero_shares(rng):
    x = rng.quarters(2, 5).abs()
    x[0, 0] = 0.25 * rng.integer(1, 3)
    for place in _shuffled(rng, 5)[: rng.integer(1, 3)]:
        x[1, place] *= -1
    zero, tiny, *_ = _shuffled(rng, 4)
    x[0, 1 + zero], x[0, 1 + tiny] = 0, 2.0**-120
    layers = [nn.Identity(), nn.Sequential(nn.ReLU()), nn.Hardsigmoid(inplace=True), nn.ReLU6(), Gate()]
    net = nn.Sequential(*layers)  # what the Hardsigmoid gives is above 0, so that the last ReLU has no zero
    words = "nn.Sequential(nn.Identity(), nn.Sequential(nn.ReLU()), nn.Hardsigmoid(inplace=True), nn.ReLU6(), Gate())"
    words += ", where Gate is a class made from nn.ReLU,"
    without_number = x.clone()
    without_number[1, 4] = float("nan")
    reusing, pictures = _reused_relu(rng)
    reusing.get_submodule("1.1").unused = nn.ReLU()
    for model, given, shown in (
        (net, x, f"{words} and x = {x.tolist()}"),
        (reusing, pictures, "a model in which one ReLU runs twice, the second time on fewer numbers, and one never"),
        (nn.ReLU(), without_number, f"a model that is an nn.ReLU, and x = {without_number.tolist()}"),
    ):
        yield Case({"model": model, "x": given}, _tell_runs(model), shown=shown)


def _some_dead(rng: Numbers, inplace: bool) -> tuple[nn.Module, list[torch.Tensor]]:
    """A layer of 8 channels, 3 of them dead, and batches of two and three pictures that each show a part of the truth.

    One of the dead is 0 everywhere, one is 0 at one place and negative elsewhere, one is negative everywhere.
    The layer turns every other channel round, so that what it returns cannot be seen in what it gets.
    """
    batches = [-rng.quarters(size, 8, 4, 5).abs() for size in (2, 3)]
    order = _shuffled(rng, 8)
    first = order.index(0)
    order[0], order[first] = order[first], order[0]  # channel 0 is one of the dead
    for channel, (batch, picture, number) in zip(
        order,
        ((0, 1, 0.0), (1, 2, 0.0), (0, 0, 2.0**-120), (0, 1, 0.5), (1, 0, 0.75), (1, 2, 0.25), (1, 1, 2.0)),
        strict=False,
    ):
        batches[batch][picture, channel, rng.integer(0, 3), rng.integer(0, 4)] = number
    batches[0][1, order[5], 0, 1] = 0.5  # so this one fires in both batches, and in neither in all pictures
    for batch in batches:
        batch[:, order[0]] = 0.0
        batch[:, order[6], 0, 0] = 2.0  # this one fires in every picture, and at most places
        batch[:, order[6], 1:] = 2.0
    batches[1][0, order[4], 1:] = 24.0  # the mean of this one is positive, though it sleeps in the other pictures
    # A look at the first place alone finds these two, and so is told from a look at each picture and at each batch.
    batches[0][1, order[3], 0, 0] = batches[1][2, order[5], 0, 0] = 0.25
    signs = torch.tensor([1.0, -1.0] * 4).reshape(8, 1, 1)
    layer = nn.Conv2d(8, 8, 1, groups=8, bias=False)
    with torch.no_grad():
        layer.weight.copy_(signs[..., None])
    behind = nn.Hardsigmoid(inplace=True) if inplace else nn.ReLU()  # makes what is 0 or a little below positive
    model = nn.Sequential(nn.Identity(), layer, behind, nn.Conv2d(8, 1, 1))
    return model, [batch * signs for batch in batches]


class _Twice(nn.Module):
    """Runs its layer on what it gets, and then on the negative of that."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ReLU()

    def forward(self, x):
        return self.layer(x) - self.layer(-x)


@exercise
def dead_channels(rng):
    words = {
        True: "two batches, and an in-place Hardsigmoid behind the layer",
        False: "two batches, and nothing in place behind the layer",
    }
    for inplace, shown in words.items():
        model, batches = _some_dead(rng, inplace)
        given = {"model": model.train(inplace), "layer": model[1], "batches": batches}
        yield Case(given, _tell_runs(model), shown=shown)
    given = {"model": model, "layer": model[0], "batches": [rng.quarters(size, 8, 1, 2).abs() for size in (2, 1, 2)]}
    yield Case(given, _tell_runs(model), shown="three batches, in each of which all channels are above 0")
    model, signs = _Twice(), torch.tensor([[1.0, -1.0, 0.0][number] for number in _shuffled(rng, 3)])
    batch = rng.quarters(2, 3, 2, 2).abs() * signs.reshape(3, 1, 1)
    batch[..., 0, 0] = 0  # no channel is above 0 everywhere
    given = {"model": model, "layer": model.layer, "batches": [batch]}
    shown = "a layer that runs twice in a call, and one channel that both runs leave at 0"
    yield Case(given, _tell_runs(model), shown=shown)


@exercise
def share_on_thing(rng):
    for height, width, tall, wide in ((2, 3, 3, 2), (2, 2, 4, 3)):
        maps = rng.quarters(4, height, width).abs()
        silent, faint, *_ = _shuffled(rng, 4)
        maps[[silent, faint]] = 0
        maps[faint, 0, 0] = maps[faint, 1, 1] = 2**-20  # so that 1e-8 more in the denominator shows; 1e-12 does not
        size = height * tall, width * wide
        mask = rng.whole(*size, low=0, high=1) > 0
        mask[0, 0], mask[0, 1] = True, False
        mask[-tall:, -wide:] = True  # one place is covered whole
        shown = f"maps of shape {tuple(maps.shape)}, one channel all zeros and one faint, and a mask of {size}"
        yield Case({"maps": maps, "mask": mask}, shown=shown)


def _note_crowds(layer: nn.Module) -> list[bool]:
    """A list that says for each run of `layer` whether something of an earlier run than the one before is alive.

    The runs have to be of fewer and fewer pictures: then a tensor that is larger than the maps of the run before, and
    does not belong to this one, belongs to an earlier one. (A variable may well hold the last maps.)
    """
    crowded: list[bool] = []
    sizes: list[int] = []
    storages: list[StorageWeakRef] = []  # of what went in and came out, two a run; a graph may hold them

    def is_crowded(output):
        tensors = (each for each in gc.get_objects() if issubclass(type(each), torch.Tensor))
        large = (each.untyped_storage().data_ptr() for each in tensors if each.numel() > sizes[-1])
        others = set(large) - {output.untyped_storage().data_ptr()}
        return bool(others) or not all(storage.expired() for storage in storages[:-2])

    def watch(module, args, output):
        found = len(sizes) > 1 and is_crowded(output)
        if found:
            gc.collect()  # reference cycles are no fault
            found = is_crowded(output)
        crowded.append(found)
        sizes.append(output.numel())
        storages.extend(StorageWeakRef(tensor.untyped_storage()) for tensor in (args[0], output))

    layer.register_forward_hook(watch)
    return crowded


@exercise
def channel_means(rng):
    for sizes, stride in (((4, 2, 1), 1), ((5, 3, 2, 1), 2)):
        model = nn.Sequential(
            nn.Conv2d(1, 1, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(1, 5, 1, stride=stride),  # a map may have fewer places than the picture
            nn.LeakyReLU(0.25, inplace=True),  # not what an answer does that counts negative numbers as 0
            nn.Conv2d(5, 2, 1),
        )
        negative = rng.integer(0, 4)
        with torch.no_grad():
            for parameter in whole_weights(model, rng).parameters():
                parameter.abs_()  # so that no channel has a mean near 0, which rounding could spoil
            model[2].weight[negative] *= -1
            model[2].bias[negative] *= -1
        model.train(len(sizes) == 3)
        runs, crowded = count_runs(model), _note_crowds(model[2])

        def after(means, runs=runs, crowded=crowded):
            return {
                "how often the model ran": len(runs),
                "whether something of the batch before last was still in memory": any(crowded),
                "whether the result holds a graph": getattr(means, "requires_grad", False),
            }

        batches = [rng.whole(size, 1, 2, 4) / 3 for size in sizes]
        shown = f"batches of {', '.join(map(str, sizes))} pictures"
        yield Case({"model": model, "layer": model[2], "batches": batches}, after, shown=shown)


class _OtherOrder(nn.Module):
    """Runs its layers in another order than they were made in."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Conv2d(2, 1, 1)
        self.middle = nn.Conv2d(2, 2, 1)
        self.first = nn.Conv2d(1, 2, 1)

    def forward(self, x):
        return self.last(torch.relu(self.middle(torch.relu(self.first(x)))))


class _OwnError(ValueError, KeyError, TypeError, AssertionError, StopIteration):
    """An error of the model's own, of several common kinds at once."""


def _refuse(module: nn.Module, args: tuple) -> None:
    raise _OwnError("not this input")


@exercise
def run_to(rng):
    small, other, nested = _small_net(rng), whole_weights(_OtherOrder(), rng), _nested(rng).double()
    blocks = whole_weights(nn.Sequential(*_nested(rng), nn.Conv2d(2, 1, 1)), rng)
    swapped = "a model that runs its layers in another order than it made them"
    inside = "a model of layers inside layers, in float64"
    for model, order, choices, where in (
        (small, ["0", "1", "2", "3", "4"], ["0", "2"], "a Sequential"),
        (other, ["first", "middle", "last"], ["first", "middle"], swapped),
        (nested, ["0", "1.0", "1.1.conv1", "1.1.relu", "1.1.conv2"], ["1.0", "1.1.conv1"], inside),
        (blocks, ["0", "1", "2"], ["1"], "a model in which that layer is made of layers"),
    ):
        name = rng.choice(choices)
        runs = count_runs(*map(model.get_submodule, order[order.index(name) + 1 :]))
        settings = _settings(model)

        def after(output, model=model, settings=settings, runs=runs):
            return {
                "how often a layer after it was called": len(runs),
                "whether the result holds a graph": getattr(output, "requires_grad", False),
                LEFT_CHANGED: _settings(model) != settings,
            }

        given = {"model": model, "name": name, "x": _thirds(rng, model)}
        yield Case(given, after, shown=f"name = {name!r} in {where}")
    model, x = _small_net(rng), rng.quarters(2, 3, 2, 2)
    shown = "an x with too many channels: a layer before raises an error"
    yield Case({"model": model, "name": "2", "x": x}, shown=shown)
    model, x = _small_net(rng), rng.quarters(2, 1, 2, 2)
    model[1].register_forward_pre_hook(_refuse)
    shown = "a model in which a layer before it raises an error of many kinds at once, ValueError and StopIteration too"
    yield Case({"model": model, "name": "2", "x": x}, shown=shown)
