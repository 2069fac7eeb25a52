# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Module hooks
#
# A tensor hook needs the tensor at hand, and most tensors of a network live inside its `forward`. A module hook sits on a
# layer instead. PyTorch calls it in each call of that layer, whoever wrote the network and without a change to its code.
#
# ## What you will be able to do
#
# - **Look** at what goes into any layer, what comes out, and which gradients pass, with the four kinds of module hooks.
# - **Replace** each of these, and **predict** what the rest of the network then does.
# - **Hook** all layers of a network, and **name** what such a hook does not see.
# - **Leave no hook behind**: use handles and context managers, and find the hooks that somebody forgot.
# - **Recognise** the traps: in-place ReLUs, inputs without a gradient, reused layers, copies, compiled models.
#
# **Time:** about 75 minutes: 45 to read, predict and run, 30 for the exercises. "All layers of a model" is a good place for
# a pause.

# %% [markdown] tags=["instructor"]
# **Plan**
#
# | Minutes | Sections | How |
# |---|---|---|
# | 9 | A hook that looks at the output · A network for a pencil | 9, 18 and 89 on the board first |
# | 9 | The way back | name the two arrows before the first hook runs |
# | 4 | The trap: in-place ReLU | predict, then read the error in full |
# | 4 | Hooks that nobody removed | run the cell twice yourself, on the projector; a good place for a pause follows |
# | 5 | All layers of a model | seven calls, six entries in the dict: let them find the missing one |
# | 3 | What you would use every day | run and read |
# | 4 | The rest of the interface | with less time: at home |
# | 3 | Hooks and the company they keep | the two predictions that cost people days: copies, compile |
# | 2 | History: `register_backward_hook` | for those who maintain old code |
# | 1 | Explore | the residual block, in pairs |
# | 30 | Exercises | 1, 2, 4, 5 in the room; 3 and 6 at home if time is short |
# | 1 | What old tutorials say · Summary · Go further | |

# %% find the course tags=["setup"]
# Find the course. Where it is missing, this says how to get it.
try:
    import course_utils
except ModuleNotFoundError:
    raise SystemExit(
        "This Python does not have the course.\n"
        "On your own computer: open the lessons with `make lab`, or choose the course's .venv as the kernel.\n"
        "On Colab or another server: upload the course as a zip file, run  %pip install the-file.zip  in a new cell,\n"
        "and restart the kernel."
    ) from None

# %% tags=["setup"]
import contextlib
import copy
import warnings

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises import check, hint, predict, solution, why
from course_utils.hooks.inventory import HooksLeftError, count_hooks, list_hooks, no_hooks_left
from course_utils.hooks.record import record
from course_utils.hooks.trace import trace
from course_utils.lessons.lesson_03 import (
    SaveOutput,
    fix_argument,
    hooked,
    output_shapes,
    reverse_gradient,
    silence_channel,
)

# %% [markdown]
# ## A hook that looks at the output
#
# A 3x3 convolution makes two channels of one, and its weights are all 1 for the first channel and all 2 for the second.
# Then comes a 2x2 max-pooling. An image of ones is enough for a pencil: 9 · 1 = 9 and 9 · 2 = 18 everywhere.


# %% tags=["setup"]
class TinyConvNet(nn.Module):
    """A 3x3 convolution from one channel to two (weights 1 and 2, bias 0), then a 2x2 max-pooling."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, kernel_size=3)
        self.pool = nn.MaxPool2d(2)
        with torch.no_grad():
            self.conv1.weight[0].fill_(1)
            self.conv1.weight[1].fill_(2)
            self.conv1.bias.zero_()

    def forward(self, image):
        return self.pool(self.conv1(image))


# %% [markdown]
# The network returns two numbers. What the convolution made, its **feature map**, is gone by then. A **forward hook** is a
# function of three arguments: the module, its inputs, its output. `register_forward_hook` returns a handle, as with tensors.

# %%
tiny, image = TinyConvNet(), torch.ones(1, 1, 4, 4)
seen = []


def keep(module, args, output):
    seen.append((type(module).__name__, args, output.detach()))


handle = tiny.conv1.register_forward_hook(keep)
print("the network returns", tiny(image).tolist())
handle.remove()

# %%
name, args, feature_map = seen[0]
print(f"{name} got a {type(args).__name__} of {len(args)}: a tensor of shape {tuple(args[0].shape)}")
print("and made a feature map of shape", tuple(feature_map.shape))
print(feature_map)

# %% [markdown]
# There are the 9s and the 18s that the pooling reduced to one number each. The inputs come as a **tuple**, even a single
# one, because `forward` might take several. The output comes as `forward` returned it: here a tensor.
#
# A **forward pre-hook** runs before `forward`, so there is no output yet: it gets the module and the tuple of inputs.
# And a handle is also a context manager: `with` removes the hook when the block ends, even if something in it raises.

# %%
with tiny.conv1.register_forward_pre_hook(lambda module, args: print("about to go in:", args)):
    tiny(image)
output = tiny(image)  # the block has ended: nothing is printed

# %% [markdown]
# ## A network for a pencil
#
# Most of this lesson uses one small network: `fc1` from 3 numbers to 4, `relu`, `fc2` from 4 numbers to 1, with whole
# numbers as weights.


# %% tags=["setup"]
class SmallNet(nn.Module):
    """fc1 (3 to 4), relu, fc2 (4 to 1), with weights that you can multiply in your head."""

    def __init__(self):
        super().__init__()
        self.fc1, self.relu, self.fc2 = nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)
        rows = [[1, 2, 3], [-4, -5, -6], [7, 8, 9], [-10, -11, -12]]
        with torch.no_grad():
            self.fc1.weight.copy_(torch.tensor(rows))
            self.fc1.bias.copy_(torch.tensor([1, 2, 3, 4]))
            self.fc2.weight.copy_(torch.tensor([[1, 2, 3, 4]]))
            self.fc2.bias.fill_(1)

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x)))


# %% [markdown]
# With x = [1, 1, 1], `fc1` gives the sums of its rows plus the bias: 7, -13, 27, -29. `relu` makes the negative ones 0, and
# `fc2` gives 1 · 7 + 3 · 27 + 1 = 89. Let a hook on each child confirm it.


# %% tags=["setup"]
def print_output(name):
    """A forward hook that prints what goes in and what comes out."""

    def hook(module, args, output):
        print(f"{name}: {args[0].tolist()} -> {output.tolist()}")

    return hook


# %%
net, x = SmallNet(), torch.ones(1, 3)
handles = [child.register_forward_hook(print_output(name)) for name, child in net.named_children()]
net(x)
for handle in handles:
    handle.remove()

# %% [markdown]
# Hooks run with the call, so the lines come in the order of the calls. Many old tutorials say that a forward hook can only
# look. Here one **returns** something:

# %% tags=["predict"]
predict("zeroed_relu")

# %%
with net.relu.register_forward_hook(lambda module, args, output: output * 0):
    print("with the hook:   ", net(x).item())
print("without the hook:", net(x).item())

# %% [markdown]
# What a forward hook returns takes the place of the output, and the network goes on with it: `fc2` receives four zeros and
# adds its bias, 1. `None`, or no `return`, keeps the output.
#
# A pre-hook can replace the input in the same way. It returns the new inputs as a tuple; a single tensor is wrapped for you.

# %%
with net.fc1.register_forward_pre_hook(lambda module, args: (2 * args[0],)):
    print("the input doubled:", net(x).item())
print("fc1 with [2, 2, 2]:", net.fc1(2 * x).tolist())

# %% [markdown]
# 1 · 13 + 3 · 51 + 1 = 167. (`fc1` adds its bias only once, so this is not twice 89.)
#
# ### Several inputs, several outputs
#
# If `forward` returns a tuple, the hook gets that tuple. Whoever replaces it returns a tuple of the same length.


# %%
class SplitSigns(nn.Module):
    """The positive and the negative part of the sum of two tensors."""

    def forward(self, a, b):
        return (a + b).clamp(min=0), (a + b).clamp(max=0)


split = SplitSigns()
counting = split.register_forward_hook(lambda module, args, output: print(len(args), "inputs,", len(output), "outputs"))
changing = split.register_forward_hook(lambda module, args, output: (output[0], 10 * output[1]))
with counting, changing:
    print([part.tolist() for part in split(torch.tensor([3.0, -1.0]), torch.tensor([1.0, -1.0]))])

# %% [markdown] tags=["instructor"]
# **Misconception:** "The hook is called once, when I register it." **Ask:** "How often will it run if I call the network
# three times?" **Answer:** three times, until you remove it.
#
# **Misconception:** "A forward hook can only look." **Ask:** "With the hook the network said 1. Where does the 1 come
# from?" **Answer:** fc2 got four zeros and added its bias.
#
# **For discussion:** `output.zero_()` inside the hook would give 1 as well. Why is it a bad idea? (It writes into a tensor
# that others may hold, and that autograd may need.)

# %% [markdown]
# ## The way back
#
# A **full backward hook** gets three arguments too: the module, `grad_input` and `grad_output`. The names are those of the
# forward pass: `grad_output` belongs to the layer's output and arrives first, `grad_input` belongs to its inputs and is what
# the layer passes on. Both are tuples.


# %% tags=["setup"]
def show(gradients):
    """A tuple of gradients as numbers."""
    return tuple(None if grad is None else grad.tolist() for grad in gradients)


def print_gradients(name):
    """A full backward hook that prints what arrives and what goes on."""

    def hook(module, grad_input, grad_output):
        print(f"{name}: grad_output {show(grad_output)} -> grad_input {show(grad_input)}")

    return hook


# %% [markdown]
# We put one on each child of the small network, `fc1` first. The input requires a gradient, so that `fc1` has something to
# pass on. (`contextlib.ExitStack` is a `with` for any number of handles: all hooks go when its block ends.)

# %% tags=["predict"]
predict("order_of_module_hooks")

# %%
net, x = SmallNet(), torch.ones(1, 3, requires_grad=True)
with contextlib.ExitStack() as stack:
    for name, child in net.named_children():
        stack.enter_context(child.register_full_backward_hook(print_gradients(name)))
    net(x).backward()

# %% [markdown]
# Read it from the top. `fc2` receives 1 and passes on its weights, [1, 2, 3, 4]. `relu` lets through what was positive in
# forward: [1, 0, 3, 0]. `fc1` passes on one times its first row plus three times its third: 1 + 21, 2 + 24, 3 + 27.
# What one layer passes on is what the layer before it receives.
#
# A hook on the **whole model** gives the two ends of that chain:

# %%
net = SmallNet()
with net.register_full_backward_hook(print_gradients("the model")):
    net(x).backward()

# %% [markdown]
# ### Through a convolution
#
# Back to the tiny network, with the mean absolute error (`l1_loss`) against zeros. The loss is (9 + 18) / 2, so each of the
# two outputs has the gradient 0.5. The pooling sends it to the place where it found its maximum: the first of four equal ones.


# %%
def print_channels(module, grad_input, grad_output):
    print("grad_output", tuple(grad_output[0].shape))
    print(grad_output[0])
    print("grad_input", tuple(grad_input[0].shape), grad_input[0][0, 0].tolist())


with tiny.conv1.register_full_backward_hook(print_channels):
    F.l1_loss(tiny(image.clone().requires_grad_()), torch.zeros(1, 2, 1, 1)).backward()

# %% [markdown]
# 0.5 at one place of each channel, 0 elsewhere. That place looked at a 3x3 part of the image, with weights 1 and 2: each of
# its nine pixels gets 0.5 · 1 + 0.5 · 2 = 1.5.
#
# Most networks have more in them than layers. In this one the ReLU is a function, not a module; batch-norm follows a 1x1
# convolution. The loss is the mean of four numbers.


# %%
class ConvBatchNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 1, kernel_size=1)
        self.bn = nn.BatchNorm2d(1)

    def forward(self, images):
        return torch.relu(self.bn(self.conv(images)))


# %%
def print_shapes(name):
    """A forward hook and a full backward hook that print shapes, and what arrives from behind."""

    def forward_hook(module, args, output):
        print(f"{name} forward:  {tuple(args[0].shape)} -> {tuple(output.shape)}")

    def backward_hook(module, grad_input, grad_output):
        arrived = [round(value, 3) + 0.0 for value in grad_output[0].flatten().tolist()]
        print(f"{name} backward: {tuple(grad_output[0].shape)} -> {tuple(grad_input[0].shape)}, arrived: {arrived}")

    return forward_hook, backward_hook


# %%
torch.manual_seed(0)
block, images = ConvBatchNorm(), torch.rand(1, 3, 2, 2, requires_grad=True)
with contextlib.ExitStack() as stack:
    for name, child in block.named_children():
        forward_hook, backward_hook = print_shapes(name)
        stack.enter_context(child.register_forward_hook(forward_hook))
        stack.enter_context(child.register_full_backward_hook(backward_hook))
    block(images).mean().backward()

# %% [markdown]
# Forward: `conv`, `bn`; backward: `bn`, `conv`. The mean gives each number 1/4, and the ReLU, which no hook announces, has
# let two of them through to `bn`. Batch-norm subtracts the mean of the batch, so the four gradients that reach `conv` add
# up to 0 (here up to rounding).

# %% [markdown]
# ### Replacing a gradient: before or after the layer?
#
# What a full backward hook returns replaces `grad_input`: what the layer passes on. There is a fourth kind, the **full
# backward pre-hook**: it runs when `grad_output` has arrived and may replace that. Both of these multiply by 10. Without
# them `x.grad` is [22, 26, 30], and the gradient of `fc2`'s weight is its input, [7, 0, 27, 0].


# %%
def ten_times_input(module, grad_input, grad_output):
    return (10 * grad_input[0],)


def ten_times_output(module, grad_output):
    return (10 * grad_output[0],)


# %%
net, x = SmallNet(), torch.ones(1, 3, requires_grad=True)
with net.fc2.register_full_backward_hook(ten_times_input):
    net(x).backward()
print("hook:     x.grad =", x.grad.tolist(), " fc2.weight.grad =", net.fc2.weight.grad.tolist())

net, x = SmallNet(), torch.ones(1, 3, requires_grad=True)
with net.fc2.register_full_backward_pre_hook(ten_times_output):
    net(x).backward()
print("pre-hook: x.grad =", x.grad.tolist(), " fc2.weight.grad =", net.fc2.weight.grad.tolist())

# %% [markdown]
# `x.grad` is the same in both. But the pre-hook changes what the layer *receives*, so the gradients of its own parameters change as well. The hook changes
# only what comes after them. Exercise 4 turns on this difference.

# %% [markdown]
# ### When no input requires a gradient
#
# So far the input had `requires_grad`. An image of a data set has not, and the first layer of a network gets just that.
# The cell keeps the warning, to show its first sentence.

# %%
net = SmallNet()
with warnings.catch_warnings(record=True) as caught, net.fc1.register_full_backward_hook(print_gradients("fc1")):
    warnings.simplefilter("always")
    net(torch.ones(1, 3)).backward()
print(f"{caught[0].category.__name__}: {str(caught[0].message).split('. ')[0]}.")

# %% [markdown]
# `grad_input` is `(None,)`: nothing is computed for an input that does not ask for it. The hook runs all the same, as soon
# as `grad_output` is there, and the warning tells you so. If you want the gradient of the input, call `x.requires_grad_()`
# first.
#
# Expect None in your own hooks. `grad_output` can hold it too, for an output of a tuple that nobody used. And a module that
# returns a dict has no full backward hooks at all: PyTorch warns and does not call them.
#
# Here are the four kinds together. Each returns None to keep things as they are.
#
# | register with | the hook gets | what it returns replaces |
# |---|---|---|
# | `register_forward_pre_hook` | `(module, args)` | the inputs |
# | `register_forward_hook` | `(module, args, output)` | the output |
# | `register_full_backward_pre_hook` | `(module, grad_output)` | the gradient of the output |
# | `register_full_backward_hook` | `(module, grad_input, grad_output)` | the gradient of the inputs |

# %% [markdown] tags=["instructor"]
# **Misconception:** "`grad_input` is what comes into the layer in backward." **Ask:** "Point at the arrow." **Expect:** the
# wrong one. **Then show:** the names belong to forward: input is on the left, output on the right, in both passes;
# `grad_output` arrives, `grad_input` goes on.
#
# **Misconception:** "Hook or pre-hook, it is the same for x.grad." **Ask:** "In which row of the table can a hook change the
# gradients of the layer's own weights?" **Answer:** wherever it changes what the layer receives: the three first. The last
# one acts behind the layer.
#
# **For discussion:** why does the first layer's hook get `(None,)`? (Nobody asked for the gradient of a picture, so none is
# computed. `x.requires_grad_()` asks.)

# %% [markdown]
# ## The trap: in-place ReLU
#
# Many networks use `nn.ReLU(inplace=True)`, which writes its result over its input to save memory. Register a full backward
# hook on the layer before it:

# %% tags=["predict"]
predict("inplace_relu")


# %% tags=["setup"]
def inplace_net():
    """A Linear layer that hands on [2, -1] for the input [1, 1], then an in-place ReLU."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 1.0], [1.0, -2.0]]))
        net[0].bias.zero_()
    return net


# %%
for index, place in enumerate(("the Linear layer before it", "the ReLU itself")):
    net = inplace_net()
    with net[index].register_full_backward_hook(print_gradients(place)):
        try:
            net(torch.ones(1, 2))
        except RuntimeError as error:
            print(f"hook on {place}: {str(error).split('. ')[0]}.")

# %% [markdown]
# No backward was called: the error comes in **forward**. To get its gradients, a full backward hook passes the inputs and
# outputs of its module through a helper function, `BackwardHookFunction`, and that makes them *views*. Writing into such a
# view would pass by the helper, and with it your hook, so PyTorch refuses, and you never get a wrong number. There are two cures.
#
# **First:** let the ReLUs write elsewhere. It costs memory, and it does not change any result.

# %%
net = inplace_net()
for module in net.modules():
    if isinstance(module, nn.ReLU):
        module.inplace = False
with net[0].register_full_backward_hook(print_gradients("Linear")):
    net(torch.ones(1, 2, requires_grad=True)).sum().backward()

# %% [markdown]
# **Second:** leave the network as it is, and watch the output with a tensor hook, which makes no view. A forward hook
# registers it on the fresh output, before the ReLU writes. As lesson 01 showed, it belongs to the value of that moment.

# %%
net = inplace_net()


def watch_output(module, args, output):
    output.register_hook(lambda grad: print("the gradient of the Linear layer's output:", grad.tolist()))


with net[0].register_forward_hook(watch_output):
    net(torch.ones(1, 2)).sum().backward()

# %% [markdown]
# The same [1, 0] as above. The forward hook goes with its `with` block, the tensor hook goes with the tensor. `record`,
# which you will meet below, works like this, so it can be used on any network.

# %% [markdown]
# ## Hooks that nobody removed
#
# In a notebook you run a cell more than once. Suppose that a cell registers a hook and does not keep the handle:

# %%
net, x = SmallNet(), torch.ones(1, 3)


def announce(module, args, output):
    print("  relu was called")


for run in (1, 2):  # as if you ran the same cell twice
    net.relu.register_forward_hook(announce)
    print(f"run {run}: forward hooks on the network: {count_hooks(net)['forward hook']}")
    net(x)

# %% [markdown]
# Each run adds one more: lines are printed twice, outputs are stored twice, gradients are doubled twice. Nothing warns you.
# `count_hooks(model)` and `list_hooks(model)` of this course find what is there, and can take it away:

# %%
for hook in list_hooks(net):
    print(f"{hook.kind} {hook.name} on {hook.owner}")
    del hook.table[hook.key]
print("left:", count_hooks(net).total())

# %% [markdown]
# Better not to get there. With `with`, a cell can run as often as you like:

# %%
for run in (1, 2):
    with net.relu.register_forward_hook(announce):
        print(f"run {run}: {count_hooks(net)['forward hook']} hook inside the block")
        net(x)
print("after the blocks:", count_hooks(net).total())

# %% [markdown]
# And `no_hooks_left(model)` is a guard for a test or a long notebook: it fails if a block leaves hooks behind.

# %%
try:
    with no_hooks_left(net):
        handle = net.relu.register_forward_hook(announce)
except HooksLeftError as error:
    print("HooksLeftError:", error)
handle.remove()

# %% [markdown] tags=["instructor"]
# **Misconception:** "A hook goes when the function that registered it has ended." **Ask:** "Who holds a reference to the
# hook? Who holds one to the module?" **Answer:** the module holds the hook in a table; only the handle, or the end of the
# module, takes it out.
#
# **Misconception (in-place ReLU):** "The error is about my backward hook, so it comes in backward." **Ask:** "Which line
# raised?" **Answer:** the call of the network: the view is made, and written to, in forward.
#
# **For discussion:** which of the two cures would you take on a network that is not yours? (The tensor hook: nothing of the
# network changes.) A good moment for the pause.

# %% [markdown]
# ## All layers of a model
#
# You want the output of every layer. A common recipe walks down the model, steps into each `nn.Sequential`, and hooks
# everything else. This network has what recipes stumble over: one ReLU is used twice, the pooling is a function.


# %% tags=["setup"]
class MixedNet(nn.Module):
    """A convolution, one ReLU that runs twice, pooling by a function, and a Sequential in a Sequential."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 10, kernel_size=2, stride=2)
        self.relu = nn.ReLU()
        self.fc1 = nn.Linear(40, 5)
        self.head = nn.Sequential(nn.Linear(5, 3), nn.Sequential(nn.Tanh(), nn.Linear(3, 2)))

    def forward(self, images):
        hidden = F.max_pool2d(self.relu(self.conv(images)), 2).flatten(start_dim=1)
        return self.head(self.relu(self.fc1(hidden)))


# %%
def hook_layers(module, hook):
    """Register `hook` on every layer below `module`, stepping into Sequentials; return the handles."""
    handles = []
    for child in module.children():
        if isinstance(child, nn.Sequential):
            handles += hook_layers(child, hook)
        else:
            handles.append(child.register_forward_hook(hook))
    return handles


# %% [markdown]
# The hook stores each output in a dict, with the module as its key. Six modules are hooked: `conv`, `relu`, `fc1` and the
# three inside `head`.

# %% tags=["predict"]
predict("reused_relu")

# %%
mixed, images = MixedNet(), torch.ones(1, 3, 8, 8)
by_module, in_order = {}, []


def store(module, args, output):
    by_module[module] = tuple(output.shape)
    in_order.append((type(module).__name__, tuple(output.shape)))


handles = hook_layers(mixed, store)
mixed(images)
for handle in handles:
    handle.remove()

# %%
print(len(by_module), "in the dict; relu:", by_module[mixed.relu])
print(len(in_order), "in the list:")
for name, shape in in_order:
    print(f"  {name:7} {shape}")

# %% [markdown]
# The list has all calls of all leaf modules, at every depth, in the order of the calls. The dict has lost one: the second
# call of `relu` overwrote the first, whose shape was (1, 10, 4, 4). Three things to keep in mind:
#
# - **A module may run more than once.** Store a list for each module, or one list for all.
# - **A function is no module.** `F.max_pool2d` and `flatten` left no trace; from (1, 10, 4, 4) the list jumps to (1, 5).
# - **A Sequential is not the only container.** This recipe hooks any other block as a whole and never looks inside.
#   `model.named_modules()` visits everything; a *leaf* is a module without children (exercise 1).
#
# ### The 36 convolutions of ResNet-34
#
# `model.modules()` walks through all depths, and `isinstance` picks a type. A hook need not be a function: an object with
# `__call__` can be one too, and it keeps what it collects. (The weights are random here: only the shapes matter.)


# %%
class KeepOutputs:
    """A forward hook that keeps every output it sees."""

    def __init__(self):
        self.outputs = []

    def __call__(self, module, args, output):
        self.outputs.append(output)


# %%
from torchvision.models import resnet34

resnet, keeper = resnet34(weights=None).eval(), KeepOutputs()
with contextlib.ExitStack() as stack:
    for module in resnet.modules():
        if isinstance(module, nn.Conv2d):
            stack.enter_context(module.register_forward_hook(keeper))
    resnet(torch.ones(1, 3, 64, 64))
first, last = keeper.outputs[0], keeper.outputs[-1]
print(len(keeper.outputs), "outputs, from", tuple(first.shape), "to", tuple(last.shape))
print("they hold the graph:", last.requires_grad, "  hooks left:", count_hooks(resnet).total())

# %% [markdown]
# 36, although the name says 34: the 34 counts 33 convolutions and the last linear layer, and three more convolutions sit in
# shortcuts. The recipe above would have found one convolution and sixteen blocks.
#
# These outputs are the real ones: they keep the whole graph in memory, and an in-place operation that follows would change
# them. So store `output.detach().clone()` (exercise 5).

# %% [markdown]
# ## What you would use every day
#
# All of this is in the package of this course, in one folder that you can read: `course_utils/hooks/`. `record`
# keeps outputs and gradients of the layers you name: by dotted name, by module, or by type. They are detached copies, one
# for each call, and the hooks are gone after the block.

# %%
with no_hooks_left(mixed), record(mixed, "relu", nn.Linear, gradients=True) as seen:
    mixed(images).sum().backward()
print(seen)
print("the gradient of head.0's output has the shape", tuple(seen["head.0"].gradient.shape))

# %% [markdown]
# A wrong name is answered by the nearest ones:

# %%
try:
    with record(mixed, "head.1.2"):
        pass
except ValueError as error:
    print(error)

# %% [markdown]
# `trace` makes one call and tells what happened, in order: every module, and every hook of yours.

# %%
net, x = SmallNet(), torch.ones(1, 3, requires_grad=True)


def note(module, *seen):
    """A hook of any kind that changes nothing."""


with net.relu.register_forward_hook(note), net.fc1.register_full_backward_hook(note):
    print(trace(net, x))

# %% [markdown]
# "backward" means that the gradient of this module's output has arrived. The last column has shapes: a forward hook sees
# inputs and output, a full backward hook `grad_input` and `grad_output`. `fc1` is the first layer, so its hook is the last
# to fire.

# %% [markdown] tags=["instructor"]
# **Misconception:** "One dict entry a module is one entry a call." **Ask:** "Six modules were hooked, the list has seven
# lines, the dict six. Who is missing?" **Answer:** the first call of relu; the second overwrote it.
#
# **Misconception:** "I hooked everything, so I see everything." **Ask:** "From (1, 10, 4, 4) to (1, 5): what happened in
# between?" **Answer:** pooling and flatten, which are functions; no hook sits on a function.
#
# **Ask about the timeline:** "Which lines would be missing if relu were `F.relu`? Why is the hook on fc1 the last line?"
# (All of relu; fc1 is the first layer, so its input's gradient is the last to be known.)

# %% [markdown]
# ## The rest of the interface
#
# Hooks on tensors came in lesson 01 (`register_post_accumulate_grad_hook` and `register_multi_grad_hook` among them), hooks
# on saved tensors in lesson 02, and a hook on a node of the graph follows below, under "History". Here is what modules have.
#
# ### Keyword arguments
#
# A hook sees the positional arguments only, unless it asks for more: with `with_kwargs=True` it also gets the keyword
# arguments, between the inputs and the output. A pre-hook that replaces them returns a pair `(args, kwargs)`.


# %%
class Scaled(nn.Module):
    def forward(self, x, *, scale=1.0):
        return x * scale


scaled = Scaled()
plain = scaled.register_forward_hook(lambda module, args, output: print("sees", args))
both = scaled.register_forward_hook(lambda module, args, kwargs, output: print("sees", args, kwargs), with_kwargs=True)
with plain, both:
    scaled(torch.tensor([2.0]), scale=3.0)

# %% [markdown]
# ### The order, and exceptions
#
# Hooks of one kind run in the order of registration; `prepend=True` puts a hook in front. If `forward` raises, there is no
# output and the forward hooks are left out, except those with `always_call=True`: good for a timer that has to stop.


# %%
class Picky(nn.Module):
    def forward(self, x):
        if (x < 0).any():
            raise ValueError("a negative number")
        return x


picky = Picky()
handles = [
    picky.register_forward_hook(lambda *_: print("  first registered")),
    picky.register_forward_hook(lambda *_: print("  prepended"), prepend=True),
    picky.register_forward_hook(lambda module, args, output: print("  always, output:", output), always_call=True),
]

# %%
for number in (1.0, -1.0):
    print(f"the input is {number:g}")
    try:
        picky(torch.tensor(number))
    except ValueError as error:
        print("  ValueError:", error)
for handle in handles:
    handle.remove()

# %% [markdown]
# ### One hook for all modules
#
# Every kind has a **global** form in `torch.nn.modules.module`, which runs for each module of every model, before the
# module's own hooks. It suits debugging; use it in a `with` block only, because it stays on all models of the session.

# %%
from torch.nn.modules.module import register_module_forward_hook

local = net.relu.register_forward_hook(lambda *_: print("local: relu"))
with local, register_module_forward_hook(lambda module, *_: print("global:", type(module).__name__)):
    net(x)

# %% [markdown]
# The network itself comes last: its call ends after those of its children.
#
# ### Hooks on optimizers
#
# An optimizer has hooks around its step: `register_step_pre_hook` and `register_step_post_hook`, called with the optimizer
# and the arguments of `step`. They do not care who wrote the training loop: good for clipping or logging gradients.


# %%
def print_norm(optimizer, args, kwargs):
    gradients = [parameter.grad for group in optimizer.param_groups for parameter in group["params"]]
    print("norm of all gradients:", round(nn.utils.get_total_norm(gradients).item(), 2))


net = SmallNet()
optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
net(x).backward()
with optimizer.register_step_pre_hook(print_norm):
    optimizer.step()
print("the output after one step:", round(net(x).item(), 2))

# %% [markdown]
# ### Hooks on saving and loading
#
# `register_state_dict_pre_hook` and `register_state_dict_post_hook` run around `state_dict()`,
# `register_load_state_dict_pre_hook` and `register_load_state_dict_post_hook` around `load_state_dict()`. The best known use
# is to load an old file: here the weight was once called `kernel`.


# %%
def rename_kernel(module, state, prefix, *rest):
    state[prefix + "weight"] = state.pop(prefix + "kernel")


layer = nn.Linear(2, 1)
with layer.register_load_state_dict_pre_hook(rename_kernel):
    print(layer.load_state_dict({"kernel": torch.tensor([[3.0, 4.0]]), "bias": torch.zeros(1)}))
print(layer.weight.tolist())

# %% [markdown]
# ## Hooks and the company they keep
#
# ### Copies
#
# `copy.deepcopy` is the usual way to keep the best model of a training.

# %% tags=["predict"]
predict("hooks_and_deepcopy")

# %%
layer, callers = nn.Linear(1, 1), []
handle = layer.register_forward_hook(lambda module, args, output: callers.append(module))
twin = copy.deepcopy(layer)
handle.remove()
layer(torch.ones(1))
twin(torch.ones(1))
print("hooks on the layer and on its copy:", count_hooks(layer).total(), count_hooks(twin).total())
print("the hook was called by the copy only:", callers == [twin])

# %% [markdown]
# The copy has the hook, both call the *same* function, and the handle knows the original only. Remove hooks before you copy.
#
# ### Without gradients
#
# Under `torch.no_grad()` forward hooks run as ever. There is no graph, hence no backward and no backward hook.

# %%
forward_hook = net.fc1.register_forward_hook(lambda *_: print("forward hook"))
backward_hook = net.fc1.register_full_backward_hook(lambda *_: print("never printed"))
with forward_hook, backward_hook, torch.no_grad():
    print("requires_grad:", net(x).requires_grad)

# %% [markdown]
# ### Compiled models
#
# `torch.compile` translates a model when it is first called, with the hooks of that moment. What about a hook that comes
# later? (`backend="eager"` needs no C compiler, and treats hooks like any other backend.)


# %%
def count_late_calls():
    """How often a hook runs that was registered after the first compiled call: at once, and after a reset."""
    model, calls = SmallNet(), []
    compiled = torch.compile(model, backend="eager")
    compiled(x)
    with model.relu.register_forward_hook(lambda *_: calls.append("relu")):
        compiled(x)
        at_once = len(calls)
        torch.compiler.reset()  # throws all compiled code away, so that the next call compiles again
        compiled(x)
    torch.compiler.reset()
    return at_once, len(calls)


# %%
try:
    at_once, after_reset = count_late_calls()
    print("calls of the late hook:", at_once)
    print("after torch.compiler.reset():", after_reset)
except RuntimeError as error:  # torch.compile does not exist for every Python and system
    print("torch.compile does not work here:", str(error).split(".")[0])

# %% [markdown]
# The late hook is **silently ignored**. So register hooks before the first compiled call, or reset, or use the model inside
# without compiling: `compiled._orig_mod`. (`record` notices that nothing was recorded, and warns.)
#
# ### Several devices
#
# `nn.DataParallel` copies the model to every device in every call, hooks included. So your hook runs once a device, in
# several threads, and its `module` is a short-lived copy: attributes that you set on it are lost, and a dict keyed by module
# grows with each call. PyTorch recommends `DistributedDataParallel`: one process a device, each with a model and hooks of
# its own.

# %% [markdown] tags=["instructor"]
# **Misconception:** "Removing the hook from my model also removes it from the copy that I checkpointed." **Ask:** "Whose
# table does the handle know?" **Answer:** the original's. Remove hooks before you copy.
#
# **Misconception:** "A compiled model calls my hooks." **Ask:** "When was it compiled, and which hooks were there then?"
# **Expect:** "It would warn." **Then show:** 0 calls, no warning; after a reset, 1.
#
# **For discussion:** which of these surprises would a test with `no_hooks_left` have found? (Forgotten handles. Not the
# copy, which is another model, and not the compiled one, which has no hook too many but a call too few.)

# %% [markdown]
# ## History: `register_backward_hook`
#
# Before PyTorch 1.8 there was one backward hook for modules, `register_backward_hook`. Most tutorials still use it. It exists
# today, and warns. We put it on the small network that you know; full hooks gave `fc2` a `grad_input` of ([1, 2, 3, 4]).

# %% tags=["predict"]
predict("legacy_entries")


# %% tags=["setup"]
def backward_with_legacy_hooks(owners, output_of):
    """Run backward with a printing legacy hook on each of `owners` (name to module); return the warnings' first words."""

    def print_entries(name):
        return lambda module, grad_input, grad_output: print(f"{name}:", *show(grad_input), sep="\n    ")

    with warnings.catch_warnings(record=True) as caught, contextlib.ExitStack() as stack:
        warnings.simplefilter("always")
        for name, module in owners.items():
            stack.enter_context(module.register_backward_hook(print_entries(name)))
        output_of().sum().backward()
    return sorted({f"{warning.category.__name__}: {str(warning.message).split('. ')[0]}." for warning in caught})


# %%
net, x = SmallNet(), torch.ones(1, 3, requires_grad=True)
print(*backward_with_legacy_hooks(dict(net.named_children()), lambda: net(x)), sep="\n")

# %% [markdown]
# Three entries for `fc2`: the gradients of its bias, of its input, and of its weight, turned on its side to (4, 1). Such a
# hook does not know about modules. It sits on the **node** of the autograd graph that made the output, and sees the inputs
# of that operation, `addmm(bias, input, weightᵀ)`. You can hook a node yourself, and get the same:

# %%
output = net.fc2(torch.tensor([[7.0, 0.0, 27.0, 0.0]], requires_grad=True))
print("the node:", output.grad_fn.name())
with output.grad_fn.register_hook(lambda grad_inputs, grad_outputs: print(*show(grad_inputs), sep="\n")):
    output.backward()

# %% [markdown]
# Hence the advice to hook single layers only: on a **whole model** the legacy hook sees nothing but the last operation.

# %%
net = SmallNet()
print(*backward_with_legacy_hooks({"the model": net}, lambda: net(x)), sep="\n")

# %% [markdown]
# These are the entries of `fc2` again; the gradient of the model's input, [22, 26, 30], is not among them. And since
# operations differ, so do layers. A batch of five goes through a Linear layer and through a convolution:


# %%
def print_entry_shapes(module, grad_input, grad_output):
    shapes = [tuple(grad.shape) for grad in grad_input]
    print(f"{type(module).__name__}: weight {tuple(module.weight.shape)}, entries {shapes}")


for layer, batch in ((nn.Linear(2, 3), torch.ones(5, 2)), (nn.Conv2d(2, 3, 2), torch.ones(5, 2, 4, 4))):
    with warnings.catch_warnings(), layer.register_backward_hook(print_entry_shapes):
        warnings.simplefilter("ignore")  # the same warning as above
        layer(batch.requires_grad_()).sum().backward()

# %% [markdown]
# Linear: bias, input, weight, and the weight's gradient is transposed. Convolution: input, weight, bias. (Older releases
# differed even in the shape of the bias entry.) Code that says `grad_input[0]` means another thing for each layer. Full
# backward hooks ended this: `grad_input` has one entry for each input of `forward`, and nothing else.

# %% [markdown] tags=["instructor"]
# **Misconception:** "`grad_input[0]` is the gradient of the input" in old code. **Ask:** "For Linear, what was entry 0 of the
# legacy hook?" **Answer:** the bias. For a convolution it was the input: the same line of code means another thing.
#
# **Answers to the explorer's tasks:** in the residual block the in-place ReLU writes straight into what fc1 returned, a view,
# and that raises. What fc2 returned is added to x first; the ReLU writes into the sum, and the hook works. In the small net,
# a full backward hook on fc1 that replaces by zero makes the gradient of the input zero and leaves the output as it is.

# %% [markdown]
# ## Explore
#
# Register hooks on a small model, look or replace by zero, and see what they see, in which order they fire, and what they
# change. Take the residual block: put a full backward hook on `fc2`, then one on `fc1`. Why does only one of them work?
# Then find a hook that makes the gradient of the input zero and leaves the output as it is.

# %% tags=["explore"]
from course_utils.explorers import ModelHooks

ModelHooks("small net", hooks=[("relu", "forward hook", "replace by zero"), ("fc2", "full backward hook", "look")])

# %% [markdown]
# ## Exercises
#
# Replace the `...` in an answer cell, run it, then run the `check` below it. Stuck? Run `hint(output_shapes)` in a new cell;
# `solution(output_shapes)` opens after three attempts.
#
# ### Exercise 1 · All leaves


# %% tags=["answer"]
def output_shapes(model, x):
    """Call `model(x)` once and return a dict: the dotted name of each leaf module
    to the shape of its output, a tuple.

    A leaf module has no children; a model that is itself a leaf has the name "". The
    dict is in the order in which the leaves were called. A leaf that was not called is
    not in it; if one was called twice, its last output counts. No hook is left behind,
    even if the call raises.
    """
    ...


# %% tags=["check"]
check(output_shapes)

# %% [markdown]
# ### Exercise 2 · Silence a channel


# %% tags=["answer"]
def silence_channel(layer, channel):
    """Make channel number `channel` of the output of `layer` zero in every call,
    and return the hook's handle.

    The output is a float32 tensor (N, C, ...); channels are its dimension 1. Gradients
    flow as before through the others.
    """
    ...


# %% tags=["check"]
check(silence_channel)

# %% [markdown]
# ### Exercise 3 · Overrule the caller


# %% tags=["answer"]
def fix_argument(module, name, value):
    """Make every call of `module` use `value` for its keyword argument `name`, and
    return the hook's handle.

    It does not matter whether the caller gives that argument. The positional
    arguments and the other keyword arguments go on unchanged.
    """
    ...


# %% tags=["check"]
check(fix_argument)

# %% [markdown]
# ### Exercise 4 · Turn the gradient round


# %% tags=["answer"]
def reverse_gradient(layer):
    """Turn round the sign of the gradient that `layer` passes on to its inputs, and
    return the hook's handle.

    The forward pass and the gradients of the layer's own parameters stay as they
    are. (This is the gradient reversal of Ganin & Lempitsky, 2015, as a hook.)
    """
    ...


# %% tags=["check"]
check(reverse_gradient)

# %% [markdown]
# ### Exercise 5 · An object that remembers
#
# `KeepOutputs` above kept the outputs themselves. Make a better one, with a method for each `...`.


# %% tags=["answer"]
class SaveOutput:
    """A forward hook that keeps a detached copy of each output in the list
    `outputs`; `clear()` empties it.

    One object can sit on many layers; the copies are in the order of the calls. It
    changes nothing.
    """

    def __init__(self): ...

    def __call__(self, module, args, output): ...

    def clear(self): ...


# %% tags=["check"]
check(SaveOutput)

# %% [markdown]
# ### Exercise 6 · Hooks for the length of a block


# %% tags=["answer"]
def hooked(modules, hook):
    """A context manager: while its block runs, `hook` is a forward hook on each of
    `modules`.

    `with` gives a list of the handles, in the order of `modules`. Before the block, and
    after it has ended in whatever way, these hooks are not there. Other hooks of the
    modules stay, and the list `modules` is left as it is.
    """
    ...


# %% tags=["check"]
check(hooked)

# %% [markdown] tags=["instructor"]
# **Misconceptions, by exercise:** a loop variable that was not bound (1); `output[:, channel] = 0` without a clone (2); a
# pre-hook that returns the arguments without the keywords (3); a hook on `grad_output`, which changes the weights' gradients
# as well, or forgetting that an entry of `grad_input` may be None (4); storing the output itself (5); no `finally` (6).
#
# **Ask, whatever the exercise:** "Does your answer still work if the layer is used twice in one call?"
#
# **For discussion (4):** why is it so important that the layer's own gradients stay? (In domain adaptation the layer behind
# shall learn to tell the domains apart, and only what lies before it shall learn the opposite.)

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | A forward hook returns nothing and cannot change the output. | Since PyTorch 1.2 what it returns replaces the output; a pre-hook replaces the inputs. |
# | Use `register_backward_hook`. | Deprecated since 1.8: it shows the last operation's inputs. Use `register_full_backward_hook`. |
# | `grad_input` of a Linear layer is (bias, input, weight). | Of its last operation. With full hooks: one entry for each input of `forward`. |
# | A backward hook on a whole model sees only the last layer. | The legacy one. The full one has the gradients of the model's inputs and outputs. |
# | Hook everything that is not a Sequential. | Containers come in many types: hook the leaves, or the type you want. Functions have no hooks. |
# | Keep the outputs in a dict, with the module as its key. | A module that runs twice overwrites its own entry. |
#
# ## Summary
#
# - A forward pre-hook gets `(module, args)`, a forward hook `(module, args, output)`; `args` is a tuple.
# - A full backward pre-hook gets `(module, grad_output)`, a full backward hook `(module, grad_input, grad_output)`.
# - None keeps what is there; anything else replaces it. Only the first three kinds change what the layer's parameters get.
# - Full backward hooks and in-place operations exclude each other. An input without a gradient gives `(None,)`.
# - Every hook has an owner, you: use `with`, or keep the handle. Hooks survive cells, copies and forgotten handles.
# - Code that was compiled before does not see a hook; functions never call one.
# - `record`, `trace` and `no_hooks_left` do the daily work.
#
# ## Go further
#
# - Lesson 04: what happens inside a call, line by line, and why full backward hooks make views.
# - Lesson 05: feature maps, the best known use of a forward hook.
# - [`torch.nn.Module`](https://pytorch.org/docs/stable/generated/torch.nn.Module.html), with every `register_…` method.
# - [The discussion of the legacy hook's inconsistencies](https://github.com/pytorch/pytorch/issues/12331), from 2018.
