"""Exercises and predictions of lesson 03: module hooks."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.engine import exercise, prediction

# --- predictions ------------------------------------------------------------------------------------------------------

prediction(
    "zeroed_relu",
    lesson=3,
    question="a forward hook on relu returns `output * 0`. The network gave 89 before. What does it give now?",
    options={
        89: "So old tutorials say. Since PyTorch 1.2, what a forward hook returns replaces the output.",
        0: "fc2 still adds its bias, 1, to the zeros that reach it.",
        1: "fc2 gets four zeros, and its bias of 1 is what remains.",
        "an error": "A forward hook may return a new output; None keeps the old one.",
    },
    answer=1,
    why="""
        What a forward hook returns takes the place of the output, and the network goes on with it. Here `fc2` receives
        four zeros and adds its bias, 1. If the hook returns None, or has no `return` at all, the output stays as it is.
    """,
    ask={
        89: "With the hook, the cell printed 1 and not 89. Which layer must have got other numbers than before?",
        0: "`fc2` multiplies what it gets by its weights. What does it do after that?",
        "an error": "Compare `output * 0` with `output`. What could `fc2` refuse: the shape, the dtype or the values?",
    },
)
prediction(
    "order_of_module_hooks",
    lesson=3,
    question="fc1, relu and fc2 have a full backward hook each. Whose runs first in the backward pass?",
    options={
        "fc1": "fc1 runs first in forward, and its gradients are the last to be known.",
        "relu": "Before the gradient reaches relu, it has to pass fc2.",
        "fc2": "Backward starts at the output, so the last layer of the forward pass comes first.",
    },
    answer="fc2",
    why="""
        Read the lines from the top. `fc2` receives 1 and passes on its weights, [1, 2, 3, 4]. `relu` lets the gradient
        through where its input was positive: [1, 0, 3, 0]. `fc1` passes on its first row once and its third row three
        times: 1 + 21, 2 + 24, 3 + 27. What one layer passes on is what the layer before it receives.

        The second task of the explorer has several answers. A full backward hook that returns zeros changes only
        gradients, so the output stays as it is. Wherever it sits on the way, nothing arrives at the input.
    """,
    ask={
        "fc1": "`fc1` received [1, 0, 3, 0]. Which layer passed these numbers on, and what did that layer have to "
        "receive first?",
        "relu": "The gradient starts at the output of the network. Which layer made this output?",
    },
)
prediction(
    "first_with_plain_data",
    lesson=3,
    question="the input requires no gradient. The model and its layers have full backward hooks. Whose runs first?",
    options={
        "fc2": "fc2's hook waits for the gradient of fc2's input. The model's hook has nothing to wait for.",
        "fc1": "fc1's hook has nothing to wait for either, but the gradient reaches fc1's output last of all.",
        "the model": "Nobody asks for the gradient of its input, so it runs as soon as grad_output is there.",
    },
    answer="the model",
    why="""
        A full backward hook waits for the gradients of its module's inputs. Nothing is computed for an input that
        does not require a gradient, so there is nothing to wait for: the hook runs as soon as `grad_output` has
        arrived, with `(None,)` as `grad_input`. For the model that is the very beginning. `fc1` has the same input,
        but its own `grad_output` comes last. PyTorch warns about both.

        With an input that requires a gradient, the model's hook would be the last of the four.
    """,
    ask={
        "fc2": "Compare `grad_input` in the lines of `fc2` and of the model. For which of the two did PyTorch have to "
        "compute something first?",
        "fc1": "Neither `fc1` nor the model waits for a `grad_input`. Which of the two gets its `grad_output` first?",
    },
)
prediction(
    "inplace_relu",
    lesson=3,
    question="a Linear layer with a full backward hook is followed by `nn.ReLU(inplace=True)`. What happens?",
    options={
        "nothing unusual": "The ReLU writes into a tensor that the hook depends on, and PyTorch refuses.",
        "a wrong gradient": "PyTorch notices and raises, so that you do not get a wrong gradient.",
        "an error in forward": "The hook turned the output into a view that must not be changed in place.",
        "an error in backward": "PyTorch notices earlier, when the ReLU writes into the output.",
    },
    answer="an error in forward",
    why="""
        The error comes from the call of the network, before any backward pass. To get its gradients, a full backward
        hook sends the inputs and outputs of its module through a helper, `BackwardHookFunction`, and what comes out are
        *views*. If the ReLU wrote into such a view, the gradient would no longer pass the helper, and your hook would
        not see it. PyTorch refuses to do this, so you never get a wrong number.

        On the ReLU itself it is the view of the *input* that must not be written to.
    """,
    ask={
        "nothing unusual": "Into which tensor does the in-place ReLU write its result? Which layer made this tensor, "
        "and what sits on that layer?",
        "a wrong gradient": "How many gradients did the two hooks print? And in the printed message, what is being "
        "modified in place?",
        "an error in backward": "In the `try`, the cell calls `net(…)`, `.sum()` and `.backward()`. Take `.backward()` "
        "away and run it again: is the error still there?",
    },
)
prediction(
    "reused_relu",
    lesson=3,
    question="the dict is keyed by module, six modules are hooked, `relu` runs twice. How many outputs does it hold?",
    options={
        6: "One for each module: the second output of relu takes the place of the first.",
        7: "There are seven calls, but a dict has one entry for each key, and both calls of relu have the same.",
        9: "Pooling and flatten are functions: they have no hooks, so nothing is stored for them.",
    },
    answer=6,
    why="""
        The list has all seven calls, at every depth, in the order of the calls. The dict has lost one of them: the
        second call of `relu` overwrote the first, whose shape was (1, 10, 4, 4). So store a list for each module, or
        one list for all of them.
    """,
    ask={
        7: "`relu` runs twice, so `store` writes twice. Under which key does it write each time?",
        9: "`hook_layers` walks through `module.children()`. Which children does `MixedNet` have, and is the pooling "
        "one of them?",
    },
)
prediction(
    "layer_of_patient_a",
    lesson=3,
    question="you have looked at the output of every layer of patient A. Which linear layer is ill?",
    options={
        "first": "About half of its numbers are above 0, and none is large: first is well.",
        "second": "In all 512 rows none of its numbers is above 0, so relu2 gives nothing but zeros.",
        "third": "It gives the same numbers for every row, but only because it gets the same zeros for every row.",
        "last": "It answers the same for every row, because everything before it has become the same.",
    },
    answer="second",
    why="""
        `second` gives only negative numbers, for every row, and `relu2` makes 0 of all of them. From there on all rows
        look alike, so the network can only guess. Such a ReLU is called **dead**. The cause is the bias of `second`:
        each of its 16 numbers is -10, and the weights make this larger by hardly more than 1.
    """,
    ask={
        "first": "How many numbers are above 0 after `relu1`, and how many after `relu2`? Between which two lines did "
        "they get lost?",
        "third": "What goes into `third` for each row? What would a healthy layer make of that?",
        "last": "Imagine that `last` had fresh weights. What would it get as its input, in each of the 512 rows?",
    },
)
prediction(
    "gradients_of_patient_a",
    lesson=3,
    question="which of the four linear layers get a gradient of their weight that is not 0?",
    options={
        "all four": "A ReLU whose input is negative lets no gradient through. relu2 stops everything on its way back.",
        "third and last": "third receives a gradient for its output, but its inputs are 0, and so is its weight's.",
        "only last": "Before the dead ReLU no gradient arrives, and third has only zeros as its input.",
        "none": "last has inputs other than 0, the biases of third, so its weight gets a gradient.",
    },
    answer="only last",
    why="""
        A ReLU lets the gradient through only where its input was above 0. `relu2` has no such place, so nothing
        reaches `second` and `first`, and they can never recover by training. The gradient of a weight is the product
        of what the layer receives in backward and of its input in forward. `third` receives something, but its input
        is 0.
    """,
    ask={
        "all four": "How many inputs of `relu2` were above 0? What does a ReLU do with the gradient where its input "
        "was negative?",
        "third and last": "A weight's gradient is what arrives in backward times what came in during forward. What "
        "came into `third`?",
        "none": "`third` gets only zeros, and then it adds its bias. So what goes into `last`?",
    },
)
prediction(
    "layer_of_patient_b",
    lesson=3,
    question="you have looked at the output of every layer of patient B. Which linear layer is ill?",
    options={
        "first": "Its numbers are as large as those of a healthy network.",
        "second": "Its numbers are small: the trouble begins after it.",
        "third": "It gets numbers of ordinary size and makes numbers of more than 10,000 out of them.",
        "last": "Its numbers are large because it is given large ones.",
    },
    answer="third",
    why="""
        Up to `relu2` all numbers have an ordinary size. `third` makes numbers above 10,000 out of them: it
        **explodes**. `last` does nothing unusual, it only passes the size on. The gradients are just as large, so one
        training step later the other layers are out of order too. This is why we looked before the first step.
    """,
    ask={
        "first": "Look at the line of `first` for patient A, and then for patient B. What is different?",
        "second": "How large are the numbers just before `third`, and how large right after it?",
        "last": "What is the largest size that goes into `last`, and the largest that comes out? Does `last` make the "
        "numbers larger?",
    },
)

# --- small networks for the cases -------------------------------------------------------------------------------------


def whole_weights(model: nn.Module, rng: Numbers) -> nn.Module:
    """Give every parameter small whole numbers, so that results are exact and short."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(rng.mixed(*parameter.shape, high=3))
    return model


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
        self.last, self.unused, self.pool, self.first = nn.Linear(1, 2), nn.ReLU(), nn.MaxPool1d(2), nn.Linear(3, 4)
        self.calls = 0
        self.register_forward_pre_hook(self.count)

    def count(self, *_) -> None:
        self.calls += 1

    def forward(self, x):
        return self.last(self.pool(self.pool(self.first(x))))


def nested(rng: Numbers) -> nn.Module:
    """A container in a container, and a residual block: leaves at three depths."""
    return whole_weights(
        nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.ReLU(), Residual(nn.Linear(2, 2))), nn.Flatten()), rng
    )


# --- exercises --------------------------------------------------------------------------------------------------------


@exercise(
    lesson=3,
    points=2,
    hints=[
        "A leaf module has no children: `not list(module.children())`. `model.named_modules()` walks them all.",
        "A forward hook gets `(module, args, output)`. Each needs its own name: beware of hooks made in a loop.",
        "`register_forward_hook(lambda m, a, out, name=name: shapes.update({name: tuple(out.shape)}))`; keep the "
        "handles, and remove each in a `finally` after the call.",
    ],
)
def output_shapes(model, x):
    """Call `model(x)` once and return a dict: the dotted name of each leaf module
    to the shape of its output, a tuple.

    A leaf module has no children; a model that is itself a leaf has the name "". The
    dict is in the order in which the leaves were called. A leaf that was not called is
    not in it; if one was called twice, its last output counts. No hook is left behind,
    even if the call raises.
    """
    shapes, handles = {}, []
    for name, module in model.named_modules():
        if not list(module.children()):
            handles.append(
                module.register_forward_hook(
                    lambda module, args, output, name=name: shapes.update({name: tuple(output.shape)})
                )
            )
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return shapes


@output_shapes.cases
def _(rng):
    yield Case({"model": whole_weights(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), rng), "x": rng.whole(1, 2)})
    rows = rng.integer(1, 5)
    yield Case(
        {"model": nested(rng), "x": rng.whole(rows, 3)},
        shown=f"a model of layers inside layers and x of shape ({rows}, 3)",
    )
    model = OutOfOrder()

    def order_and_calls(shapes):
        return {
            "the order of the names": list(shapes),
            "the number of calls of the model": model.calls,
            "whether every shape is a tuple": all(isinstance(shape, tuple) for shape in shapes.values()),
        }

    yield Case(
        {"model": model, "x": rng.whole(rows, 3)},
        order_and_calls,
        shown="a model that calls `first`, `pool`, `pool` again and `last`, which it made in another order",
    )
    yield Case({"model": nn.Linear(2, 3), "x": rng.whole(rows, 2)}, shown="a model that is one Linear layer")
    too_narrow = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(2, 1)))
    yield Case({"model": too_narrow, "x": rng.whole(rows, 2)}, shown="a model whose last layer raises")


@output_shapes.accept
def _(model, x):
    with contextlib.ExitStack() as stack:
        shapes = {}
        names = {module: name for name, module in model.named_modules()}

        def note(module, args, output):
            shapes[names[module]] = tuple(output.size())

        for module in model.modules():
            if len(list(module.children())) == 0:
                stack.enter_context(module.register_forward_hook(note))
        model(x)
        return shapes


output_shapes.equivalent(
    "The dict is filled when the leaves are called, so the order in which they are hooked or named does not matter.",
    "backwards: - for name, module in model.named_modules(): + for name, module in list(model.named_modules())[::-1]:",
    "backwards: - for module in model.modules(): + for module in list(model.modules())[::-1]:",
    "backwards: - names = {module: name for name, module in model.named_modules()} + names = {module: name for name, "
    "module in list(model.named_modules())[::-1]}",
)
output_shapes.equivalent(
    "Handles can be removed in any order.", "backwards: - for handle in handles: + for handle in list(handles)[::-1]:"
)
output_shapes.equivalent(
    "A `torch.Size` is a tuple.",
    "no call: - handles.append(module.register_forward_hook(lambda module, args, output, name=name: "
    "shapes.update({name: tuple(output.shape)}))) + handles.append(module.register_forward_hook(lambda module, args, "
    "output, name=name: shapes.update({name: output.shape})))",
    "no call: - shapes[names[module]] = tuple(output.size()) + shapes[names[module]] = output.size()",
)


@output_shapes.mistake("Only the direct children have hooks. `named_modules()` walks to every depth.")
def _(model, x):
    shapes, handles = {}, []
    for name, module in model.named_children():
        handles.append(module.register_forward_hook(lambda m, a, o, name=name: shapes.update({name: tuple(o.shape)})))
    model(x)
    for handle in handles:
        handle.remove()
    return shapes


@output_shapes.mistake("The hooks stay on the model. Keep the handles, and remove each when the call is over.")
def _(model, x):
    shapes = {}
    for name, module in model.named_modules():
        if not list(module.children()):
            module.register_forward_hook(lambda m, a, o, name=name: shapes.update({name: tuple(o.shape)}))
    model(x)
    return shapes


@output_shapes.mistake(
    "All shapes land under one name: a hook made in a loop looks `name` up when it runs. Bind it: `name=name`."
)
def _(model, x):
    shapes, handles = {}, []
    for name, module in model.named_modules():
        if not list(module.children()):
            handles.append(
                module.register_forward_hook(lambda m, a, o: shapes.update({name: tuple(o.shape)}))  # noqa: B023 - this is it
            )
    model(x)
    for handle in handles:
        handle.remove()
    return shapes


@output_shapes.mistake(
    "Your dict stays empty. `model.forward(x)` skips the model's own hooks: hook the leaves, and call `model(x)`."
)
def _(model, x):
    shapes = {}
    hook = model.register_forward_hook(lambda m, a, o: shapes.update({"": tuple(o.shape)}))
    model.forward(x)
    hook.remove()
    return shapes


@output_shapes.mistake("Containers are listed too. A leaf is a module without children.")
def _(model, x):
    shapes, handles = {}, []
    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(lambda m, a, o, name=name: shapes.update({name: tuple(o.shape)})))
    model(x)
    for handle in handles:
        handle.remove()
    return shapes


@output_shapes.mistake(
    "The names are in the order in which the layers were made. Fill the dict when the hooks run: that is the order of "
    "the calls."
)
def _(model, x):
    leaves = {name: module for name, module in model.named_modules() if not list(module.children())}
    shapes = {}
    with contextlib.ExitStack() as stack:
        for name, module in leaves.items():
            note = lambda m, a, o, name=name: shapes.update({name: tuple(o.shape)})  # noqa: E731
            stack.enter_context(module.register_forward_hook(note))
        model(x)
    return {name: shapes[name] for name in leaves if name in shapes}


@output_shapes.mistake("`model.forward(x)` skips the hooks of the model itself: call `model(x)`.")
def _(model, x):
    shapes = {}
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            if not list(module.children()):
                note = lambda m, a, o, name=name: shapes.update({name: tuple(o.shape)})  # noqa: E731
                stack.enter_context(module.register_forward_hook(note))
        model.forward(x)
    return shapes


@output_shapes.mistake(
    "If the model raises, the lines after the call are not reached, and the hooks stay: remove them in a `finally`."
)
def _(model, x):
    shapes, handles = {}, []
    for name, module in model.named_modules():
        if not list(module.children()):
            handles.append(
                module.register_forward_hook(lambda m, a, o, name=name: shapes.update({name: tuple(o.shape)}))
            )
    model(x)
    for handle in handles:
        handle.remove()
    return shapes


@output_shapes.mistake(
    "These are the shapes of the inputs. A forward hook gets `(module, args, output)`: take the shape of `output`."
)
def _(model, x):
    shapes = {}
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            if not list(module.children()):
                note = lambda m, args, o, name=name: shapes.update({name: tuple(args[0].shape)})  # noqa: E731
                stack.enter_context(module.register_forward_hook(note))
        model(x)
    return shapes


@output_shapes.mistake(
    "If a leaf is called twice, you keep its first output. The task asks for the last: let it overwrite the entry."
)
def _(model, x):
    shapes = {}
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            if not list(module.children()):
                note = lambda m, a, o, name=name: shapes.update({name: shapes.get(name, tuple(o.shape))})  # noqa: E731
                stack.enter_context(module.register_forward_hook(note))
        model(x)
    return shapes


@output_shapes.mistake(
    "A leaf that was never called is in your dict, with no shape: make an entry only when a hook runs."
)
def _(model, x):
    shapes = {name: None for name, module in model.named_modules() if not list(module.children())}
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            if not list(module.children()):
                note = lambda m, a, o, name=name: shapes.update({name: tuple(o.shape)})  # noqa: E731
                stack.enter_context(module.register_forward_hook(note))
        model(x)
    return shapes


@output_shapes.mistake(
    "Leaves without parameters, such as ReLU and Flatten, are missing. A leaf is a module without children."
)
def _(model, x):
    shapes = {}
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            if not list(module.children()) and list(module.parameters()):
                note = lambda m, a, o, name=name: shapes.update({name: tuple(o.shape)})  # noqa: E731
                stack.enter_context(module.register_forward_hook(note))
        model(x)
    return shapes


@output_shapes.mistake(
    "A Sequential is not the only container: you list blocks of other classes too. A leaf has no children."
)
def _(model, x):
    shapes = {}
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            if not isinstance(module, nn.Sequential):
                note = lambda m, a, o, name=name: shapes.update({name: tuple(o.shape)})  # noqa: E731
                stack.enter_context(module.register_forward_hook(note))
        model(x)
    return shapes


@output_shapes.mistake("The shapes are not tuples: make one of each, `tuple(output.shape)`.")
def _(model, x):
    shapes = {}
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            if not list(module.children()):
                note = lambda m, a, o, name=name: shapes.update({name: list(o.shape)})  # noqa: E731
                stack.enter_context(module.register_forward_hook(note))
        model(x)
    return shapes


@exercise(
    lesson=3,
    points=2,
    hints=[
        "What a forward hook returns replaces the output. It must be a new tensor: others may hold the old one.",
        "`output.clone()` first; then set one channel of the copy to 0. Channels are dimension 1: `copy[:, channel]`.",
        "`def hook(module, args, output): output = output.clone(); output[:, channel] = 0; return output`",
    ],
)
def silence_channel(layer, channel):
    """Make channel number `channel` of the output of `layer` zero in every call,
    and return the hook's handle.

    The output is a float32 tensor (N, C, ...); channels are its dimension 1. Gradients
    flow as before through the others.
    """

    def hook(module, args, output):
        output = output.clone()
        output[:, channel] = 0
        return output

    return layer.register_forward_hook(hook)


@silence_channel.cases
def _(rng):
    for channel in (0, rng.integer(1, 2)):
        layer = whole_weights(nn.Linear(2, 3), rng)
        x, weights = rng.quarters(2, 2).requires_grad_(), rng.whole(2, 3)

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


@silence_channel.accept
def _(layer, channel):
    def hook(module, args, output):
        keep = torch.ones(output.shape[1], dtype=output.dtype)
        keep[channel] = 0
        return output * keep.reshape(1, -1, *[1] * (output.dim() - 2))

    return layer.register_forward_hook(hook)


@silence_channel.accept
def _(layer, channel):
    def hook(module, args, output):
        parts = list(output.unbind(1))
        parts[channel] = torch.zeros_like(parts[channel])
        return torch.stack(parts, 1)

    return layer.register_forward_hook(hook)


silence_channel.equivalent(
    "The output is of float32, and so is `torch.ones` unless it is told otherwise.",
    "an argument less: - keep = torch.ones(output.shape[1], dtype=output.dtype) + keep = torch.ones(output.shape[1])",
)
silence_channel.equivalent(
    "Broadcasting adds the missing dimension in front.",
    "an argument less: - return output * keep.reshape(1, -1, *[1] * (output.dim() - 2)) + return output * "
    "keep.reshape(-1, *[1] * (output.dim() - 2))",
)
silence_channel.equivalent(
    "All channels have the same shape.",
    "the first only: - parts[channel] = torch.zeros_like(parts[channel]) + parts[channel] = torch.zeros_like(parts[0])",
)


@silence_channel.mistake(
    "The layer's own output goes on: the hook returns nothing, or it is not on the layer any more. Return the new "
    "tensor from the hook, and the handle as it is."
)
def _(layer, channel):
    def hook(module, args, output):
        output = output.clone()
        output[:, channel] = 0

    return layer.register_forward_hook(hook)


@silence_channel.mistake(
    "You write into `output` itself. Where the layer hands its input on, as nn.Identity does, that spoils the input: "
    "clone it first."
)
def _(layer, channel):
    def hook(module, args, output):
        with torch.no_grad():
            output[:, channel] = 0
        return output

    return layer.register_forward_hook(hook)


@silence_channel.mistake(
    "Your hook writes into the output of the layer. Where that is the input itself, as with nn.Identity, the input is "
    "spoilt. Clone the output first."
)
def _(layer, channel):
    def hook(module, args, output):
        output[:, channel] = 0
        return output

    return layer.register_forward_hook(hook)


@silence_channel.mistake(
    "You silenced an item of the batch, dimension 0. Channels are dimension 1: `output[:, channel]`."
)
def _(layer, channel):
    def hook(module, args, output):
        output = output.clone()
        output[channel] = 0
        return output

    return layer.register_forward_hook(hook)


@silence_channel.mistake(
    "You silenced the channel in the first item of the batch only: `output[:, channel]` takes all."
)
def _(layer, channel):
    def hook(module, args, output):
        output = output.clone()
        output[0, channel] = 0
        return output

    return layer.register_forward_hook(hook)


@silence_channel.mistake("You silenced a place of the last dimension. Channels are dimension 1: `output[:, channel]`.")
def _(layer, channel):
    def hook(module, args, output):
        output = output.clone()
        output[..., channel] = 0
        return output

    return layer.register_forward_hook(hook)


@silence_channel.mistake(
    "The zeros are in the output, but autograd does not know of them: the gradient still flows through the silent "
    "channel. Write them into the copy where autograd sees it."
)
def _(layer, channel):
    def hook(module, args, output):
        output = output.clone()
        output.data[:, channel] = 0
        return output

    return layer.register_forward_hook(hook)


@silence_channel.mistake("`.detach()` cuts the graph, so no gradient reaches the layer any more. Use `clone()`.")
def _(layer, channel):
    def hook(module, args, output):
        output = output.detach().clone()
        output[:, channel] = 0
        return output.requires_grad_()

    return layer.register_forward_hook(hook)


@silence_channel.mistake(
    "Your new output has no graph, because it is made from a detached tensor or under `no_grad`: no gradient can flow. "
    "Clone and write where autograd sees it."
)
def _(layer, channel):
    def hook(module, args, output):
        output = output.detach().clone()
        output[:, channel] = 0
        return output

    return layer.register_forward_hook(hook)


@silence_channel.mistake(
    "You silenced the channel before the one that was asked for. Channels count from 0, as indices do."
)
def _(layer, channel):
    def hook(module, args, output):
        output = output.clone()
        output[:, channel - 1] = 0
        return output

    return layer.register_forward_hook(hook)


@silence_channel.mistake("You silenced all channels. Only number `channel` is to be zero.")
def _(layer, channel):
    def hook(module, args, output):
        return output * 0

    return layer.register_forward_hook(hook)


@silence_channel.mistake("It is the other way round: you silenced the other channels and kept this one.")
def _(layer, channel):
    def hook(module, args, output):
        keep = torch.zeros_like(output)
        keep[:, channel] = 1
        return output * keep

    return layer.register_forward_hook(hook)


@silence_channel.mistake("Your function hands nothing back. Return what `register_forward_hook` gives: the handle.")
def _(layer, channel):
    def hook(module, args, output):
        output = output.clone()
        output[:, channel] = 0
        return output

    layer.register_forward_hook(hook)


@silence_channel.mistake(
    "You changed the layer's weights. They are not yours: return a new output from a hook instead."
)
def _(layer, channel):
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter[channel] = 0
    return layer.register_forward_hook(lambda module, args, output: None)


@silence_channel.mistake(
    "Your mask has four dimensions, and so has what comes out, whatever the layer gave. Give it as many as `output` "
    "has."
)
def _(layer, channel):
    def hook(module, args, output):
        keep = torch.ones(1, output.shape[1], 1, 1)
        keep[:, channel] = 0
        return output * keep

    return layer.register_forward_hook(hook)


@exercise(
    lesson=3,
    points=2,
    hints=[
        "`grad_input` holds the gradients that the module is about to pass on, one an input, in a tuple.",
        "What a full backward hook returns replaces `grad_input`: a tuple again. An entry may be None.",
        "`return tuple(None if grad is None else -grad for grad in grad_input)`",
    ],
)
def reverse_gradient(layer):
    """Turn round the sign of the gradient that `layer` passes on to its inputs, and
    return the hook's handle.

    The forward pass and the gradients of the layer's own parameters stay as they
    are. (This is the gradient reversal of Ganin & Lempitsky, 2015, as a hook.)
    """

    def hook(module, grad_input, grad_output):
        return tuple(None if grad is None else -grad for grad in grad_input)

    return layer.register_full_backward_hook(hook)


@reverse_gradient.cases
def _(rng):
    for layer, shown in (
        (nn.Linear(2, 2), "a Linear layer"),
        (Residual(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))), "a residual block, x + layers(x)"),
        (nn.Identity(), "an nn.Identity"),
    ):
        whole_weights(layer, rng)
        x, weights = rng.whole(2, 2), rng.whole(2, 2)

        def backward(handle, layer=layer, x=x, weights=weights):
            first, second, last = (x.clone().requires_grad_() for _ in range(3))
            with contextlib.ExitStack() as stack:
                stack.callback(handle.remove)
                output = layer(first)
                (output * weights).sum().backward()
                ((layer(second) + second) * weights).sum().backward()
            layer(last).sum().backward()
            return {
                "the layer's output": output,
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
    yield Case(
        {"layer": first},
        lambda handle: first(data).sum().backward(),
        shown="a Linear layer on an input that requires no gradient",
    )


@reverse_gradient.accept
def _(layer):
    return layer.register_full_backward_hook(
        lambda module, inputs, outputs: tuple(g if g is None else g * -1 for g in inputs)
    )


@reverse_gradient.accept
def _(layer):
    def hook(module, grad_input, grad_output):
        new = []
        for grad in grad_input:
            new.append(grad.neg() if grad is not None else None)
        return tuple(new)

    return layer.register_full_backward_hook(hook)


reverse_gradient.equivalent(
    "Multiplying and dividing by -1 give the same numbers.",
    "compute otherwise: - return layer.register_full_backward_hook(lambda module, inputs, outputs: tuple((g if g is "
    "None else g * -1 for g in inputs))) + return layer.register_full_backward_hook(lambda module, inputs, outputs: "
    "tuple((g if g is None else g / -1 for g in inputs)))",
)


@reverse_gradient.mistake("An input that needs no gradient has None in `grad_input`: leave it as it is.")
def _(layer):
    return layer.register_full_backward_hook(lambda module, grad_input, grad_output: tuple(-g for g in grad_input))


@reverse_gradient.mistake(
    "You turned the gradient of the first input only. The layer passes one on to each of its inputs."
)
def _(layer):
    def hook(module, grad_input, grad_output):
        first, *others = grad_input
        return (None if first is None else -first, *others)

    return layer.register_full_backward_hook(hook)


@reverse_gradient.mistake(
    "You turn one gradient only, that of the first input. `grad_input` has an entry for each input, and an entry may "
    "be None."
)
def _(layer):
    return layer.register_full_backward_hook(lambda module, grad_input, grad_output: (-grad_input[0], *grad_input[1:]))


@reverse_gradient.mistake(
    "You write into the gradient itself, which something beside the layer may use as well. Return a new one: `-grad`."
)
def _(layer):
    return layer.register_full_backward_hook(
        lambda module, grad_input, grad_output: tuple(None if grad is None else grad.neg_() for grad in grad_input)
    )


@reverse_gradient.mistake(
    "You hooked the layers inside `layer` as well, and each turns the sign again. Hook `layer` itself and nothing else."
)
def _(layer):
    def hook(module, grad_input, grad_output):
        return tuple(None if grad is None else -grad for grad in grad_input)

    handles = [module.register_full_backward_hook(hook) for module in layer.modules()]
    return handles[0]


@reverse_gradient.mistake(
    "`register_backward_hook` is the legacy hook: it shows the inputs of the last operation. Use "
    "`register_full_backward_hook`."
)
def _(layer):
    def hook(module, grad_input, grad_output):
        return tuple(None if grad is None else -grad for grad in grad_input)

    return layer.register_backward_hook(hook)


@reverse_gradient.mistake("Your hook returns nothing, so the gradient is passed on as it was.")
def _(layer):
    def hook(module, grad_input, grad_output):
        tuple(None if grad is None else -grad for grad in grad_input)

    return layer.register_full_backward_hook(hook)


@reverse_gradient.mistake(
    "You turned the gradient of the *output* round, which reverses the parameters' gradients as well. Use the hook "
    "that sees `grad_input`."
)
def _(layer):
    return layer.register_full_backward_pre_hook(lambda module, grad_output: tuple(-grad for grad in grad_output))


@reverse_gradient.mistake("You returned `grad_output` with another sign. What the module passes on is `grad_input`.")
def _(layer):
    return layer.register_full_backward_hook(
        lambda module, grad_input, grad_output: tuple(None if grad is None else -grad_output[0] for grad in grad_input)
    )


@reverse_gradient.mistake(
    "A gradient that is None must stay None, and the entries come back in a tuple: neither a list nor zeros."
)
def _(layer):
    return layer.register_full_backward_hook(
        lambda module, grad_input, grad_output: [None if grad is None else -grad for grad in grad_input]
    )


@reverse_gradient.mistake(
    "A tensor hook on the output acts before the layer's own backward, so the gradients of the parameters are reversed "
    "as well. Replace what the layer passes on."
)
def _(layer):
    def hook(module, args, output):
        output.register_hook(lambda grad: -grad)

    return layer.register_forward_hook(hook)


@reverse_gradient.mistake(
    "The whole gradient of the tensor that goes in is reversed, also what reaches it past the layer. Reverse only what "
    "the layer passes on."
)
def _(layer):
    def hook(module, args):
        for each in args:
            if isinstance(each, torch.Tensor) and each.requires_grad:
                each.register_hook(lambda grad: -grad)

    return layer.register_forward_pre_hook(hook)


@reverse_gradient.mistake("Your hook must return one entry for each entry of `grad_input`: leave none of them out.")
def _(layer):
    def hook(module, grad_input, grad_output):
        return tuple(-grad for grad in grad_input if grad is not None)

    return layer.register_full_backward_hook(hook)


@reverse_gradient.mistake(
    "A layer may have several inputs, and then `grad_input` has several entries. Your hook returns one entry: it "
    "has to return one for each."
)
def _(layer):
    return layer.register_full_backward_hook(lambda module, grad_input, grad_output: (-grad_input[0],))


@reverse_gradient.mistake(
    "Your hook returns a tensor, and its rows are taken for the entries. Return a tuple, with one entry for each in "
    "`grad_input`."
)
def _(layer):
    return layer.register_full_backward_hook(lambda module, grad_input, grad_output: -grad_input[0])


@reverse_gradient.mistake(
    "If the layer has an input without a gradient, the others are not turned either. Decide for each entry of "
    "`grad_input`."
)
def _(layer):
    def hook(module, grad_input, grad_output):
        return None if any(grad is None for grad in grad_input) else tuple(-grad for grad in grad_input)

    return layer.register_full_backward_hook(hook)


@reverse_gradient.mistake(
    "Your function hands nothing back. Return what `register_full_backward_hook` gives: the handle."
)
def _(layer):
    layer.register_full_backward_hook(
        lambda module, grad_input, grad_output: tuple(None if grad is None else -grad for grad in grad_input)
    )


@exercise(
    lesson=3,
    points=2,
    hints=[
        "An object can be a hook if its class has `__call__`. `self` keeps what the calls have in common.",
        "Store copies that do not hold the graph: `output.detach().clone()`.",
        "`def __call__(self, module, args, output): self.outputs.append(output.detach().clone())`, and `__init__` "
        "makes the list.",
    ],
)
class SaveOutput:
    """A forward hook that keeps a detached copy of each output in the list
    `outputs`; `clear()` empties it.

    One object can sit on many layers; the copies are in the order of the calls. It
    changes nothing.
    """

    def __init__(self):
        self.outputs = []

    def __call__(self, module, args, output):
        self.outputs.append(output.detach().clone())

    def clear(self):
        self.outputs.clear()


@SaveOutput.cases
def _(rng):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True), nn.Linear(2, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(rng.quarters(*parameter.shape))
    x = rng.whole(2, 2)

    def on_every_linear(saver):
        handles = [layer.register_forward_hook(saver) for layer in (model[2], model[0])]
        result = model[0](model(x))
        found = {
            "the number of outputs": len(saver.outputs),
            "whether `outputs` is a list": isinstance(saver.outputs, list),
            "the outputs": list(saver.outputs),
            "requires_grad of the outputs": [output.requires_grad for output in saver.outputs],
            "is_leaf of the outputs": [output.is_leaf for output in saver.outputs],
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
        found = {"whether the layer still returned the very tensor that came in": identity.eval()(once) is x2}
        x2.mul_(10)
        handle.remove()
        found["the outputs of two calls, after their memory was overwritten,"] = list(saver.outputs)
        saver.clear()
        return found

    yield Case(
        {}, on_identity, shown="an nn.Identity in training mode, then in eval mode, and a tensor of dtype float64"
    )


@SaveOutput.accept
class _SaveWithNoGrad:
    def __init__(self):
        self.outputs = []

    def __call__(self, module, args, output):
        with torch.no_grad():
            self.outputs.append(torch.clone(output))

    def clear(self):
        self.outputs = []


@SaveOutput.mistake(
    "You stored the output itself. The in-place ReLU that follows overwrites it, and it holds the graph: store "
    "`output.detach().clone()`."
)
class _SaveItself:
    def __init__(self):
        self.outputs = []

    def __call__(self, module, args, output):
        self.outputs.append(output)

    def clear(self):
        self.outputs.clear()


@SaveOutput.mistake(
    "What you stored shares its memory with the output, and what overwrites that changes it too. Add `clone()`."
)
class _SaveDetached:
    def __init__(self):
        self.outputs = []

    def __call__(self, module, args, output):
        self.outputs.append(output.detach())

    def clear(self):
        self.outputs.clear()


@SaveOutput.mistake("Your copies still belong to the graph and keep all of it in memory: `detach()` them.")
class _SaveClone:
    def __init__(self):
        self.outputs = []

    def __call__(self, module, args, output):
        self.outputs.append(output.clone())

    def clear(self):
        self.outputs.clear()


@SaveOutput.mistake("All objects share one list. Make a new one for each, in `__init__`: `self.outputs = []`.")
class _SaveShared:
    outputs: list = []  # noqa: RUF012 - this is the mistake

    def __call__(self, module, args, output):
        self.outputs.append(output.detach().clone())

    def clear(self):
        self.outputs.clear()


@SaveOutput.mistake("Your hook returns the detached copy, and that replaces the layer's output: return nothing.")
class _SaveAndReturn:
    def __init__(self):
        self.outputs = []

    def __call__(self, module, args, output):
        self.outputs.append(output.detach().clone())
        return self.outputs[-1]

    def clear(self):
        self.outputs.clear()


@SaveOutput.mistake("Each call throws away what was stored before. Add to the list instead: `append`.")
class _SaveLast:
    def __init__(self):
        self.outputs = []

    def __call__(self, module, args, output):
        self.outputs = [output.detach().clone()]

    def clear(self):
        self.outputs.clear()


@SaveOutput.mistake("You stored what goes in. A forward hook gets `(module, args, output)`: store the last of them.")
class _SaveInput:
    def __init__(self):
        self.outputs = []

    def __call__(self, module, args, output):
        self.outputs.append(args[0].detach().clone())

    def clear(self):
        self.outputs.clear()


@SaveOutput.mistake(
    "`detach_()` cuts the output itself out of the graph. `detach()`, without the underscore, gives another tensor."
)
class _SaveCutting:
    def __init__(self):
        self.outputs = []

    def __call__(self, module, args, output):
        self.outputs.append(output.detach_().clone())

    def clear(self):
        self.outputs.clear()


@SaveOutput.mistake(
    "After `clear()` the outputs are still there: it does not touch the list of the object. Empty that list."
)
class _SaveForever:
    def __init__(self):
        self.outputs = []

    def __call__(self, module, args, output):
        self.outputs.append(output.detach().clone())

    def clear(self):
        outputs = []  # noqa: F841 - this is the mistake


@SaveOutput.mistake(
    "The copies are not in the attribute `outputs`: the object has none of that name. Make it in `__init__`."
)
class _SaveElsewhere:
    def __init__(self):
        self.kept = []

    def __call__(self, module, args, output):
        self.kept.append(output.detach().clone())

    def clear(self):
        self.kept.clear()


@exercise(
    lesson=3,
    points=3,
    hints=[
        "`@contextlib.contextmanager` above `def hooked` makes a context manager of a generator: start before "
        "`yield`, end after it.",
        "If the block raises, the exception comes out of the `yield`. Which statement runs in any case?",
        "`try: yield` / `finally: for handle in handles: handle.remove()`, and register inside the `try` as well.",
    ],
)
def hooked(modules, hook):
    """A context manager: while its block runs, `hook` is a forward hook on each of
    `modules`.

    `with` gives a list of the handles, in the order of `modules`. Before the block, and
    after it has ended in whatever way, these hooks are not there. Other hooks of the
    modules stay, and the list `modules` is left as it is.
    """

    @contextlib.contextmanager
    def block():
        handles = []
        try:
            for module in modules:
                handles.append(module.register_forward_hook(hook))
            yield handles
        finally:
            for handle in handles:
                handle.remove()

    return block()


@hooked.cases
def _(rng):
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
        found["whether another hook, which the block registered, is still there"] = (
            other.id in modules[0]._forward_hooks
        )
        other.remove()
        return found | {
            "the model's output after the block": model(x),
            "the outputs that the hook saw": calls,
            "the number of hooks on each module after the block": count_hooks(),
        }

    shown = "a Linear layer, a Sequential and a Flatten, and a hook that doubles the output"
    yield Case({"modules": modules, "hook": double}, in_and_out, shown=shown)
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


@hooked.accept
class _HookedClass:
    def __init__(self, modules, hook):
        self.modules, self.hook = modules, hook

    def __enter__(self):
        self.handles = [module.register_forward_hook(self.hook) for module in self.modules]
        return self.handles

    def __exit__(self, *exception):
        for handle in self.handles:
            handle.remove()
        return False


@hooked.accept
@contextlib.contextmanager
def _(modules, hook):
    handles = []
    try:
        for module in modules:
            handles.append(module.register_forward_hook(hook))
        yield handles
    finally:
        for handle in handles:
            handle.remove()


@hooked.accept
@contextlib.contextmanager
def _(modules, hook):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(module.register_forward_hook(hook)) for module in modules]


hooked.equivalent(
    "The function inside is a new one in each call of `hooked`, and it runs once.",
    "only once: + if getattr(block, 'has_run', False): + return None + block.has_run = True",
)
hooked.equivalent(
    "Handles can be removed in any order.",
    "backwards: - for handle in handles: + for handle in list(handles)[::-1]:",
    "backwards: - for handle in self.handles: + for handle in list(self.handles)[::-1]:",
)
hooked.equivalent(
    "`__exit__` lets the exception go on if it returns False or nothing.", "no return: - return False + False"
)


@hooked.mistake(
    "If the block raises, the hooks stay: the lines after a `yield` are reached only through `finally`, and `__exit__` "
    "has to remove them whatever it is given."
)
@contextlib.contextmanager
def _(modules, hook):
    handles = [module.register_forward_hook(hook) for module in modules]
    yield handles
    for handle in handles:
        handle.remove()


@hooked.mistake("You hooked the modules inside the modules as well. Hook each of `modules` itself, and nothing else.")
@contextlib.contextmanager
def _(modules, hook):
    handles = [part.register_forward_hook(hook) for module in modules for part in module.modules()]
    try:
        yield handles
    finally:
        for handle in handles:
            handle.remove()


@hooked.mistake("The hooks are there before the block begins. Register them in `__enter__`, or just before `yield`.")
class _HookedTooEarly:
    def __init__(self, modules, hook):
        self.handles = [module.register_forward_hook(hook) for module in modules]

    def __enter__(self):
        return self.handles

    def __exit__(self, *exception):
        for handle in self.handles:
            handle.remove()


@hooked.mistake(
    "After an error the hooks are removed, but not after a KeyboardInterrupt, which is no `Exception`: use `finally`."
)
@contextlib.contextmanager
def _(modules, hook):
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield handles
    except Exception:
        for handle in handles:
            handle.remove()
        raise
    for handle in handles:
        handle.remove()


@hooked.mistake("`with` gives what stands behind `yield`, or what `__enter__` returns: hand over the list of handles.")
@contextlib.contextmanager
def _(modules, hook):
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@hooked.mistake("You clear the whole table of hooks, and with it the hooks of others. Remove your own handles.")
@contextlib.contextmanager
def _(modules, hook):
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield handles
    finally:
        for module in modules:
            module._forward_hooks.clear()


@hooked.mistake("The hooks stay after the block. Remove every handle at its end.")
@contextlib.contextmanager
def _(modules, hook):
    yield [module.register_forward_hook(hook) for module in modules]


@hooked.mistake("Your context manager swallows the exception of the block. Remove the hooks and let it go on.")
@contextlib.contextmanager
def _(modules, hook):
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield handles
    except Exception:
        pass  # this is the mistake
    finally:
        for handle in handles:
            handle.remove()


@hooked.mistake(
    "No exception leaves the block, not even a KeyboardInterrupt. Write no `except`, and let `__exit__` return nothing."
)
@contextlib.contextmanager
def _(modules, hook):
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield handles
    except BaseException:
        pass  # this is the mistake
    finally:
        for handle in handles:
            handle.remove()


@hooked.mistake("The hooks are removed only if the block raises. They have to go in any case: `finally`.")
@contextlib.contextmanager
def _(modules, hook):
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield handles
    except BaseException:
        for handle in handles:
            handle.remove()
        raise


@hooked.mistake(
    "`hook` also runs after a call that fails, and its output is None then: register a plain forward hook, without "
    "`always_call=True`."
)
@contextlib.contextmanager
def _(modules, hook):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(module.register_forward_hook(hook, always_call=True)) for module in modules]


@hooked.mistake("What `hook` returns is lost, so it cannot replace an output. Register `hook` itself.")
@contextlib.contextmanager
def _(modules, hook):
    def call(module, args, output):
        hook(module, args, output)

    handles = [module.register_forward_hook(call) for module in modules]
    try:
        yield handles
    finally:
        for handle in handles:
            handle.remove()


@hooked.mistake(
    "A function with `yield` is a generator. `@contextlib.contextmanager` above it makes a context manager of it."
)
def _(modules, hook):
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield handles
    finally:
        for handle in handles:
            handle.remove()
