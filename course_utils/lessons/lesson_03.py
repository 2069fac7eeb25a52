"""The cases of lesson 03, module hooks. Tasks stand in the lesson's source, answers on the pages in `answers`."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

from course_utils.exercises.cases import Case, Numbers, stop
from course_utils.exercises.engine import exercise
from course_utils.hooks.inventory import list_hooks
from course_utils.lessons.small_nets import fill, whole_weights


class Residual(nn.Module):
    """x + layer(x): a module whose forward has an operation of its own."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return x + self.layer(x)


class Times(nn.Module):
    """Two inputs by position: two tensors, or a tensor and a number."""

    def forward(self, x, factor):
        return x * factor


class OutOfOrder(nn.Module):
    """Its leaves are called in another order than they are made in: one of them twice, one not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.unused, self.last, self.pool, self.first = nn.ReLU(), nn.Linear(1, 2), nn.MaxPool1d(2), nn.Linear(3, 4)
        self.calls = 0
        self.register_forward_pre_hook(self.count)

    def count(self, *_) -> None:
        self.calls += 1

    def forward(self, x):
        return self.last(self.pool(self.pool(self.first(x))))


def nested(rng: Numbers) -> nn.Module:
    """A container in a container, and a residual block: leaves at three depths."""
    inner = nn.Sequential(nn.ReLU(), Residual(nn.Linear(2, 2)))
    return whole_weights(nn.Sequential(nn.Linear(3, 2), inner, nn.Flatten()), rng)


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


@exercise
def output_shapes(rng):
    yield Case({"model": whole_weights(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), rng), "x": rng.whole(1, 2)})
    rows = rng.integer(1, 5)
    shown = f"a model of layers inside layers and x of shape ({rows}, 3)"
    yield Case({"model": nested(rng), "x": rng.whole(rows, 3)}, shown=shown)
    model = OutOfOrder()

    def order_and_calls(shapes):
        return {
            "the order of the names": list(shapes),
            "the number of calls of the model": model.calls,
            "whether every shape is a tuple": all(isinstance(shape, tuple) for shape in shapes.values()),
        }

    shown = "a model that calls `first`, `pool`, `pool` again and `last`, which it made in another order"
    yield Case({"model": model, "x": rng.whole(rows, 3)}, order_and_calls, shown=shown)
    yield Case({"model": nn.Linear(2, 3), "x": rng.whole(rows, 2)}, shown="a model that is one Linear layer")
    too_narrow = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(2, 1)))
    yield Case({"model": too_narrow, "x": rng.whole(rows, 2)}, shown="a model whose last layer raises")
    stopped = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    stopped[1].register_forward_pre_hook(stop)
    shown = "a model whose last layer is stopped, by what is no `Exception`, like Ctrl-C"
    yield Case({"model": stopped, "x": rng.whole(rows, 2)}, shown=shown)


@exercise
def silence_channel(rng):
    for channel in (0, rng.integer(1, 2)):
        layer = whole_weights(nn.Linear(2, 3), rng)
        x, weights = (rng.quarters(2, 2) / 3).requires_grad_(), rng.whole(2, 3)

        def silent_then_not(handle, layer=layer, x=x, weights=weights):
            with contextlib.ExitStack() as stack:
                stack.callback(handle.remove)
                twice = torch.cat((x, x * 2))
                found = {"the layer's output": layer(x), "the layer's output in a second call": layer(twice)}
                (found["the layer's output"] * weights).sum().backward()
                found["layer.weight.grad"] = layer.weight.grad.clone()
                found["x.grad"] = x.grad.clone()
            return found | {"the layer's output after handle.remove()": layer(x)}

        yield Case({"layer": layer, "channel": channel}, silent_then_not, shown=f"a Linear layer, channel = {channel}")
    image, sound = rng.quarters(2, 3, 1, 2), rng.quarters(2, 3, 2)
    identity = nn.Identity()

    def image_after(_):
        output = identity(image)
        return {
            "the output": output,
            "the input, which the layer returns as it is,": image,
            "the output for an input of shape (2, 3, 2)": identity(sound),
        }

    yield Case({"layer": identity, "channel": 1}, image_after, shown="an nn.Identity on two images, channel = 1")
    loud, quiet = rng.quarters(1, 3, 2), nn.Identity()
    loud[0, 2] = torch.tensor([torch.inf, torch.nan])
    shown = "an nn.Identity on numbers of which those in the channel are inf and nan, channel = 2"
    yield Case({"layer": quiet, "channel": 2}, lambda _: {"the output": quiet(loud)}, shown=shown)
    one, other, numbers = nn.Identity(), nn.Identity(), rng.quarters(1, 2)

    def both_layers(_):
        return {"the output of the layer of the case before, where channel = 0,": one(numbers)}

    yield Case({"layer": one, "channel": 0}, shown="an nn.Identity, channel = 0")
    yield Case({"layer": other, "channel": 1}, both_layers, shown="another nn.Identity, channel = 1", follows=True)


@exercise
def reverse_gradient(rng):
    for layer, shown in (
        (nn.Linear(2, 2), "a Linear layer"),
        (Residual(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))), "a residual block, x + layers(x)"),
        (nn.Identity(), "an nn.Identity"),
    ):
        whole_weights(layer, rng)
        x, weights = rng.whole(2, 2), rng.whole(2, 2)

        def backward(handle, layer=layer, x=x, weights=weights):
            first, second, last = (x.clone().requires_grad_() for _ in range(3))
            hooked = bool(list_hooks(layer))
            with contextlib.ExitStack() as stack:
                stack.callback(handle.remove)
                output = layer(first)
                (output * weights).sum().backward()
                ((layer(second) + second) * weights).sum().backward()
            layer(last).sum().backward()
            return {
                "the layer's output": output,
                "whether a hook is on the layer": hooked,
                "x.grad": first.grad,
                "x.grad of a second pass, in which x is also added to the layer's output,": second.grad,
                "x.grad after handle.remove()": last.grad,
            }

        yield Case({"layer": layer}, backward, shown=shown)
    times, y, factor = Times(), rng.leaf(1, 2), rng.leaf(1, 2)

    def two_inputs(_):
        times(y, factor).sum().backward()
        return {"the gradient of the first input": y.grad, "the gradient of the second input": factor.grad}

    yield Case({"layer": times}, two_inputs, shown="a layer of two inputs")
    times_number, z = Times(), rng.leaf(1, 2)

    def input_without_gradient(_):
        times_number(z, 4).sum().backward()
        return {"x.grad": z.grad}

    yield Case({"layer": times_number}, input_without_gradient, shown="a layer of which the second input is a number")
    first, data = whole_weights(nn.Linear(2, 1), rng), rng.whole(2, 2)
    shown = "a Linear layer on an input that requires no gradient"
    yield Case({"layer": first}, lambda handle: first(data).sum().backward(), shown=shown)


@exercise
def SaveOutput(rng):
    model = fill(nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True), nn.Linear(2, 2)), rng.quarters)
    x = rng.whole(2, 2)

    def on_every_linear(saver):
        handles = [layer.register_forward_hook(saver) for layer in (model[2], model[0])]
        result = model[0](model(x))
        found = {
            "whether `outputs` is a list": isinstance(saver.outputs, list),
            "the number of outputs": len(saver.outputs),
            "the outputs": list(saver.outputs),
            "requires_grad of the outputs": [getattr(each, "requires_grad", None) for each in saver.outputs],
            "is_leaf of the outputs": [getattr(each, "is_leaf", None) for each in saver.outputs],
            "the model's output": result,
        }
        result.sum().backward()
        found["the gradient of the first layer's weight"] = model[0].weight.grad
        saver.clear()
        found["the number of outputs after clear()"] = len(saver.outputs)
        model(x)
        found["the number of outputs after another call"] = len(saver.outputs)
        saver.clear()
        for handle in handles:
            handle.remove()
        return found

    yield Case({}, on_every_linear, shown="a Linear, an in-place ReLU, a Linear and the first Linear again")

    def two_objects(first):
        second = type(first)()
        handle = model[0].register_forward_hook(second)
        model(x)
        handle.remove()
        found = {"the number of outputs of an object that sits nowhere": len(first.outputs)}
        second.clear()
        return found

    yield Case({}, two_objects, shown="two objects, one of which sits on a layer")
    x2 = rng.whole(1, 2).double()

    def on_identity(saver):
        identity = nn.Identity()
        handle = identity.register_forward_hook(saver)
        once = identity(x2)
        identity(x2 * 0)
        found = {"whether the layer still returned the very tensor that came in": identity.eval()(once) is x2}
        x2.mul_(10)
        handle.remove()
        found["the outputs of three calls, one of zeros, after their memory was overwritten,"] = list(saver.outputs)
        saver.clear()
        return found

    shown = "an nn.Identity in training mode, then in eval mode, and a tensor of dtype float64"
    yield Case({}, on_identity, shown=shown)


@exercise
def hooked(rng):
    x = rng.quarters(1, 2)
    modules = [whole_weights(nn.Linear(2, 2), rng), nn.Sequential(nn.Tanh(), nn.Softplus()), nn.Flatten()]
    model = nn.Sequential(*modules)
    calls = []

    def double(module, args, output):
        calls.append(output.detach().clone())
        return output * 2

    def count_hooks():
        return [len(module._forward_hooks) for module in model.modules()]

    def in_and_out(manager):
        found = {"the number of hooks on each module before the block": count_hooks()}
        with manager as handles:
            found["the model's output inside the block"] = output = model(x)
            found["requires_grad of that output"] = output.requires_grad
            found["the number of hooks on each module inside the block"] = count_hooks()
            found["what `with` gave"] = list(handles) if isinstance(handles, list | tuple) else handles
            found["whether that is a list"] = isinstance(handles, list)
            if isinstance(handles, list | tuple) and handles:
                handles[0].remove()
            found["the number of hooks on each module after handles[0].remove()"] = count_hooks()
            other = modules[0].register_forward_hook(lambda *_: None)
        stays = other.id in modules[0]._forward_hooks
        other.remove()
        return found | {
            "whether another hook, which the block registered, is still there": stays,
            "the model's output after the block": model(x),
            "the outputs that the hook saw": calls,
            "the number of hooks on each module after the block": count_hooks(),
        }

    shown = "a Linear layer, a Sequential and a Flatten, and a hook that doubles the output"
    yield Case({"modules": modules, "hook": double}, in_and_out, shown=shown)
    pair = [whole_weights(nn.Linear(2, 2), rng), nn.Identity()]

    def twice(manager):
        with manager as handles:
            found = {"the Linear layer's output inside the block": pair[0](x), "the number of handles": len(handles)}
        return found | {"the number of hooks on the Linear layer after the block": len(pair[0]._forward_hooks)}

    shown = "a Linear layer, an Identity and the Linear layer again, and a hook that doubles the output"
    yield Case({"modules": [*pair, pair[0]], "hook": double}, twice, shown=shown)
    layers, waiting = [nn.Identity(), nn.Identity()], []

    def nested(inner):
        with waiting.pop():
            with inner:
                both = [len(layer._forward_hooks) for layer in layers]
            one = [len(layer._forward_hooks) for layer in layers]
        none = [len(layer._forward_hooks) for layer in layers]
        return {
            "the number of hooks on each module in both blocks, in the outer one alone, after both": [both, one, none]
        }

    yield Case({"modules": [layers[0]], "hook": double}, waiting.append, shown="a module whose block comes later")
    shown = "another module, and a block inside the block of the one before"
    yield Case({"modules": [layers[1]], "hook": double}, nested, shown=shown, follows=True)
    for error in (RuntimeError, KeyboardInterrupt):
        layer = whole_weights(nn.Linear(2, 2), rng)
        seen = []

        def note(module, args, output, seen=seen):
            seen.append(None if output is None else output.detach().clone())

        layer.register_forward_hook(note)

        def block_raises(manager, layer=layer, seen=seen, error=error):
            caught = "nothing"
            try:
                with manager:
                    layer(x)
                    with contextlib.suppress(RuntimeError):
                        layer(x[:, :1])
                    raise error("the block failed")
            except (RuntimeError, KeyboardInterrupt) as raised:
                caught = f"{type(raised).__name__}: {raised}"
            layer(x)
            return {
                "the exception that came out of the block": caught,
                "the number of hooks on the module after a block that raised": len(layer._forward_hooks),
                "what the hook, which was on the module before as well, saw": seen,
            }

        shown = f"a block with a call that fails, which raises {error.__name__}, and a module with the same hook before"
        yield Case({"modules": [layer], "hook": note}, block_raises, shown=shown)


@exercise
def fix_argument(rng):
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
        shown = f"{name} = {value:g} and module({call}){'' if module.training else ', in eval mode'}"
        yield Case({"module": module, "name": name, "value": value}, fixed_then_not, shown)
    give_back, number = GiveBack(), rng.integer(2, 9)

    def arguments(handle):
        with contextlib.ExitStack() as stack:
            stack.callback(handle.remove)
            found = {
                "what module(number, None, mask=1, flag=None) got": give_back(number, None, mask=1, flag=None),
                "the number of times that its forward ran": give_back.runs,
                "what module() got": give_back(),
            }
        return found | {"what module(mask=1) got after handle.remove()": give_back(mask=1)}

    shown = f"a module that gives back what it gets, name = 'mask', value = None and number = {number}"
    yield Case({"module": give_back, "name": "mask", "value": None}, arguments, shown)
    mask, giving = rng.leaf(2), GiveBack()

    def very_value(_):
        _, kwargs = giving(mask=mask + 1)
        return {"whether the mask that arrived is `value` itself": kwargs["mask"] is mask}

    shown = "a module that gives back what it gets, name = 'mask' and a value that requires its gradient"
    yield Case({"module": giving, "name": "mask", "value": mask}, very_value, shown)
