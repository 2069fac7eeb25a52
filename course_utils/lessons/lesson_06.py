"""The cases of lesson 06: Guided Backpropagation."""

from __future__ import annotations

import collections

import torch
from torch import nn

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.engine import exercise
from course_utils.hooks.inventory import list_hooks
from course_utils.lessons.small_nets import Gate, whole_weights


def every_sign(count: int) -> torch.Tensor:
    """All combinations of `count` signs, one a column: (count, 2 ** count), of 1 and -1."""
    return 1.0 - 2.0 * (torch.arange(2**count) // 2 ** torch.arange(count)[:, None] % 2)


class Each(nn.Module):
    """Every number times a weight of its own, plus a bias."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, x):
        return x * self.weight + self.bias


class _Part(nn.Module):
    """A module of a class of its own, with layers inside."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


def telling_net(rng: Numbers) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A net, an input, and what arrives at its output, such that every mistake shows in the gradient at the input.

    Of its ReLUs, one is called twice, and two lie one and two levels down. Each of the 256 units is a path of its own,
    with another combination of signs: whether the first and the last ReLU are active, of what arrives, of the weights.
    """
    first, last, arriving, b, c, d = rng.quarters(6, 64, high=2).abs() * every_sign(6)
    zero, twice = torch.zeros(64), nn.ReLU()
    e, turn = every_sign(2)[:, :, None] * torch.ones(64)
    inner = _Part(Each(c, zero + 20), nn.ReLU())
    block = nn.Sequential(Each(b, zero), nn.LeakyReLU(0.5), inner, Each(d, zero + 100), nn.ReLU())
    top = [Each(first, zero), twice, block, Each(e * turn, zero), Each(turn, 400 * last.sign()), twice]
    return nn.Sequential(*top), rng.quarters(1, 64).abs().repeat(4, 1), arriving


def gradient_at(x: torch.Tensor, model: nn.Module, arriving: torch.Tensor) -> torch.Tensor:
    """The gradient at `x`, where `arriving` is the gradient at the output of `model`."""
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad((model(x) * arriving).sum(), x)[0]


def look(*_: object) -> None:
    """A hook of somebody else's, which changes nothing."""


@exercise
def pass_relu(rng):
    for rule in ("backprop", "deconvnet", "guided"):
        f, grad = rng.quarters(2, 5).abs(), rng.quarters(2, 5).abs() + 4 / 3
        f[[0, 1, 1], [3, 0, 2]] = 0
        # Above 0, if little: the product of two such numbers is 0 in float32.
        f[0, :3], grad[:, :2] = rng.whole(3, high=3) * 2.0**-140, rng.whole(2, 2, high=3) / 2**14
        grad[:, [1, 3]] *= -1
        grad[:, 4] = 0
        yield Case({"rule": rule, "f": f, "grad": grad})


@exercise
def guide_relu(rng):
    relu = nn.ReLU()
    relu.register_full_backward_hook(look)
    of_x, of_gradient = every_sign(2)
    x = rng.quarters(2, 4).abs() * of_x
    arriving = rng.quarters(2, 4).abs() / 3 * of_gradient * torch.tensor([[0.25], [24]])  # below 1, and above

    def once(handle):
        seen = {
            "the output": relu(x),
            "the gradient at x": gradient_at(x, relu, arriving),
            "the gradient at x of a second call, which is tiny, times 2**40": 2**40
            * gradient_at(x, relu, -arriving / 2**40),
            "the gradient at x where none above 0 arrives": gradient_at(x, relu, -arriving.abs()),
        }
        handle.remove()
        return seen | {"the gradient at x after handle.remove()": gradient_at(x, relu, arriving)}

    yield Case({"relu": relu}, once, shown="a ReLU that has a hook from before")
    again = nn.ReLU()
    y, weight, shift, later = rng.quarters(4, 16).abs() * every_sign(4)
    inputs = y.requires_grad_(), (-y).detach().requires_grad_()

    def twice(_):
        between = [again(each) * weight + 40 * shift for each in inputs]
        outputs = [again(each) + each for each in between]  # the ReLU's gradient is its neighbour's, too
        for output in outputs:
            (output * later).sum().backward()
        return {"the output": outputs[0], "x.grad": inputs[0].grad, "x.grad of another forward": inputs[1].grad}

    yield Case({"relu": again}, twice, shown="a ReLU that is called twice")


def count_hooks(model: nn.Module) -> int:
    """How many hooks of any kind a model and its modules have."""
    return sum(hook.scope == "local" for hook in list_hooks(model))


@exercise
def Guide(rng):
    mixing = whole_weights(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU()), rng)
    for model, x, arriving, shown in (
        (*telling_net(rng), "a model with ReLUs at three depths"),
        (mixing, rng.quarters(32, 8), rng.quarters(32, 8), "a model of two Linear layers, each with a ReLU behind it"),
        (Gate(), rng.quarters(2, 4), rng.quarters(2, 4).abs() / 3, "a model that is of a subclass of nn.ReLU"),
    ):

        def in_and_out(manager, model=model, x=x, arriving=arriving):
            found = {"the number of hooks before the block": count_hooks(model)}
            with manager:
                found["the gradient at the input, in the block"] = gradient_at(x, model, arriving)
                found["the gradient at the input, for another output"] = gradient_at(x, model, -arriving)
                found["the gradient at a ReLU of another model, in the block"] = gradient_at(x, nn.ReLU(), arriving)
            found["the number of hooks after the block"] = count_hooks(model)
            found["the gradient at the input, after the block"] = gradient_at(x, model, arriving)
            return found

        yield Case({"model": model}, in_and_out, shown=shown)
    other, y, coming = telling_net(rng)
    other[1].register_full_backward_hook(look)

    def block_raises(manager):
        caught = "nothing"
        try:
            with manager:
                other[1].register_full_backward_hook(look)
                inside = gradient_at(y, other, coming)
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            caught = "KeyboardInterrupt"
        return {
            "the gradient at the input, in the block": inside,
            "the exception that came out of the block": caught,
            "the number of hooks after a block that raised, with two of others": count_hooks(other),
            "the gradient at the input, after the block": gradient_at(y, other, coming),
        }

    yield Case({"model": other}, block_raises, shown="a block that raises, and hooks of others")

    models, waiting = [telling_net(rng) for _ in range(2)], []

    def wait(manager):
        waiting.append(manager)

    def nested(inner):
        with waiting.pop():
            with inner:
                found = {"in both blocks": [gradient_at(x, model, arriving) for model, x, arriving in models]}
            found["after the inner block"] = [gradient_at(x, model, arriving) for model, x, arriving in models]
        found["the number of hooks after both"] = [count_hooks(model) for model, *_ in models]
        return {f"{words}, for two models," if words[0] in "ia" else words: each for words, each in found.items()}

    yield Case({"model": models[0][0]}, wait, shown="a model whose block comes later")
    shown = "another model, and a block inside the block of the one before"
    yield Case({"model": models[1][0]}, nested, shown=shown, follows=True)


@exercise
def class_gradient(rng):
    for count in (1, 4):
        classes = (torch.arange(count) * 2 + rng.integer(1, 2)) % 3
        while True:
            model = whole_weights(nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), rng)
            model[3].weight.data /= 4 if count == 1 else 3
            images = rng.quarters(count, 2, 1, 2).requires_grad_()
            logits = model(images)
            gradients = [torch.autograd.grad(logit, images, retain_graph=True)[0] for logit in logits.sum(0)]
            awake = all(gradient.flatten(1).any(1).all() for gradient in gradients)  # for each picture and each class
            if awake and (logits.argmax(1) != classes).any():
                break
        images.requires_grad_(count > 1)
        pictures = "1 picture" if count == 1 else f"{count} pictures"
        shown = f"{pictures} of 2 channels, classes = {classes.tolist()}"
        yield Case({"model": model, "images": images, "classes": classes}, shown=shown)


@exercise
def to_picture(rng):
    gradient = rng.quarters(3, 2, 2)
    gradient[1, 0, 1] = 0
    yield Case({"gradient": gradient})
    yield Case(
        {"gradient": rng.quarters(1, 2, 3).abs().repeat(3, 1, 1)},
        shown="a gradient whose three channels are the same, with different numbers in them",
    )
    spike = rng.mixed(3, 4, 6, high=3)
    spike[0, 0, 0], spike[2, 1, 1] = 400.0 + rng.integer(0, 9), -300.0
    yield Case({"gradient": spike}, shown="a gradient with two numbers that are far larger than the others")
    yield Case({"gradient": rng.quarters(3, 2, 3, high=1) / 1e18}, shown="a gradient of numbers below 1e-18")
    # The mean of these is not 0.1 but a little less or more, because sums are rounded.
    for number, shape in ((rng.choice((0.25, -0.5)), (3, 1, 2)), (0.1, (3, 2, 3))):
        yield Case({"gradient": torch.full(shape, number)}, shown=f"a constant gradient: {number} everywhere")


@exercise
def stop_in_place(rng):
    first, second = rng.choice([(True, False), (False, True)])
    inner = nn.Sequential(nn.Dropout(inplace=True), nn.ReLU(inplace=True), nn.Sequential(nn.ReLU(inplace=True)))
    parts = {"stem": nn.Linear(2, 2), "gate": nn.ReLU(inplace=first), "door": nn.ReLU(inplace=second), "body": inner}
    parts |= {"act": nn.ReLU(inplace=True), "leaky": nn.LeakyReLU(inplace=True), "six": nn.ReLU6(inplace=True)}
    parts["own"] = Gate(inplace=True)
    parts["own again"] = parts["own"]
    model = nn.Sequential(collections.OrderedDict(parts))
    inner.eval()
    modules = list(model.modules())

    def look(_):
        found = {
            f"inplace of layer {name}": module.inplace
            for name, module in model.named_modules()
            if hasattr(module, "inplace")
        }
        return found | {"whether its modules are the same objects": list(model.modules()) == modules}

    shown = "a model with in-place ReLUs at three depths, one of them of a class of its own and under two names"
    yield Case({"model": model}, look, shown=shown)
    plain = nn.Sequential(nn.ReLU(), nn.ReLU())
    yield Case({"model": plain}, shown="a model of which no ReLU is in place")
    gate = nn.ReLU(inplace=True)
    yield Case({"model": gate}, lambda _: {"model.inplace": gate.inplace}, shown="a model that is a ReLU")


@exercise
def share_on(rng):
    for kind in ("any", "of sum 0", "small and negative"):
        gradient, mask = rng.quarters(3, 2, 3), torch.zeros(2, 3, dtype=torch.bool)
        mask[rng.integer(0, 1), rng.integer(0, 2)] = True
        mask[0, 0] = mask[1, 2] = True
        gradient[0, 1, 0] = 0
        gradient[:, 0, 2] = 0  # one pixel is as weak as can be
        gradient[1, 1, 2] = -gradient[0, 1, 2] - rng.integer(1, 3)
        if kind == "of sum 0":
            gradient[2, 0, 1] -= gradient.sum()
        if kind == "small and negative":
            gradient = gradient.abs() / -1e36
        if kind == "any":
            gradient /= 3
        yield Case({"gradient": gradient, "mask": mask})
    most = torch.tensor([[True, True, False], [True, True, True]])
    yield Case({"gradient": rng.quarters(3, 2, 3), "mask": most})
    nothing, nowhere = torch.zeros(3, 2, 2), torch.zeros(2, 2, dtype=torch.bool)
    first = torch.tensor([[True, False], [False, False]])
    yield Case({"gradient": nothing, "mask": first}, shown="a gradient of zeros")
    yield Case({"gradient": rng.quarters(3, 2, 2), "mask": nowhere}, shown="a mask that is False everywhere")


class Within(nn.Module):
    """A layer that has another one in it, and a parameter of another name than most."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.inner = nn.Parameter(torch.ones(2)), nn.Linear(2, 2)

    def reset_parameters(self):
        nn.init.normal_(self.gain)

    def forward(self, x):
        return self.gain * self.inner(x)


@exercise
def randomise_last(rng):
    def randomised(model: nn.Module, count: int, words: str) -> Case:
        def state_after(twin):
            values = {f"{name} of the copy": value.detach().clone() for name, value in twin.state_dict().items()}
            return values | {
                "whether the copy is another object": twin is not model,
                "the modes (training) of the copy": [module.training for module in twin.modules()],
                "requires_grad of the copy": [parameter.requires_grad for parameter in twin.parameters()],
            }

        given = {"model": model, "count": count, "seed": rng.integer(0, 99)}
        return Case(given, state_after, shown=f"{words}, count = {count}")

    for count in (1, 3, 0):
        block = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.BatchNorm1d(2))
        parts = {"stem": nn.Linear(2, 2), "act": nn.ReLU(), "block": block, "head": nn.Linear(2, 2)}
        model = whole_weights(nn.Sequential(collections.OrderedDict(parts)), rng)
        block[2].running_mean += 1
        yield randomised(model, count, "a model with three Linear layers and a BatchNorm1d")
    yield randomised(whole_weights(nn.Linear(2, 2), rng), 1, "a model that is one Linear layer")
    block = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False))
    nested = whole_weights(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), block, Within()), rng)
    nested.append(nested[1])
    block[1].running_mean += 1
    words = "a model with a BatchNorm1d without parameters, a layer in another layer, and one under two names"
    yield randomised(nested, 5, words)
