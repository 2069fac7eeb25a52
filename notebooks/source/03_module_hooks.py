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
# A tensor hook needs the tensor itself, and most tensors of a network exist only while its `forward` runs. A module hook is
# put on a layer instead. PyTorch then calls your function each time that layer is called. You do not change the network's
# code, and it does not matter who wrote it.
#
# ## What you will be able to do
#
# - **Watch** what goes into a layer, what comes out of it, and which gradients pass through it.
# - **Change** each of these with a hook, and **predict** what the rest of the network then does.
# - **Hook** all layers of a network at once, and **name** what such hooks cannot see.
# - **Remove** every hook again, and **find** the hooks that somebody forgot.
# - **Find** the layer that keeps a network from learning.
#
# **Minutes:** counted by the build

# %% [markdown] tags=["instructor"]
# **Plan for 90 minutes**
#
# | Minutes | Sections | In the room | At home |
# |---|---|---|---|
# | 0 to 3 | Two networks that do not learn | show the curves, collect guesses, give no answer | nothing |
# | 3 to 9 | A hook that looks at the output | 9 and 18 on the board before the cell runs; both hooks | nothing |
# | 9 to 20 | Which layer is ill? | in pairs: first investigate, then commit, then run; patient B by one vote | nothing |
# | 20 to 33 | A network for a pencil | 89 with chalk before any cell runs; one vote; exercise {silence_channel} | nothing |
# | 33 to 55 | The way back | the explorer in pairs; the first prediction with discussion and a second vote, the second by one vote; exercise {reverse_gradient} | nothing |
# | 55 to 60 | Pause | a rest, or time to finish an exercise | nothing |
# | 60 to 64 | Hooks that nobody removed | run the cell twice, on the projector | nothing |
# | 64 to 79 | All layers of a model | count calls and entries; the prediction with discussion and a second vote; exercise {output_shapes} | nothing |
# | 79 to 81 | What you would use every day | the timeline of `trace` | running `record` |
# | 81 to 90 | The two patients, before and after · What old tutorials say · The case · Summary · Go further | one vote; the curves; the box with four arrows; one sentence each from three people | the table |
#
# **Homework:** From the parts called *More*, *Hooks for the length of a block* with its exercise. Whoever uses networks of
# others should read *A ReLU that writes over its input*.

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
import warnings

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises import check, hint, predict, replay, solution, why
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
from course_utils.lessons.patient import admit, draw_curves, loss_of, make_task, train

# %% [markdown]
# ## Two networks that do not learn
#
# Meet two patients. Both are small networks: four linear layers, with a ReLU after each of the first three. They get eight
# numbers and have to say whether the first two have the same sign. A healthy network of this kind learns it in 100 steps.
# We train both patients for 120 steps. This is their loss:

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what the two curves have in common and what not. One is flat at the loss of guessing, the
# other is far too large: two different illnesses. Nobody should name a layer yet.

# %%
before = {case: train(admit(case)) for case in ("A", "B")}

# %% tags=["setup"]
draw_curves(
    {"patient A": before["A"], "patient B": before["B"]},
    title="Neither patient learns",
    alt="The loss of two networks over 120 steps, on a logarithmic axis. Patient A stays at 0.7, the loss of guessing. "
    "Patient B starts near 500, jumps above 100,000 and ends above 1,000.",
    log=True,
)

# %% [markdown]
# Patient A never does better than guessing. The loss of patient B starts in the hundreds and gets worse. In each of them a
# single layer is ill. The curve tells you that something is wrong, but it does not tell you where. For that you have to look
# inside, and you will do so as soon as you know the first kind of hook.

# %% [markdown]
# ## A hook that looks at the output
#
# Let us start with a network that is small enough for a pencil. Its 3x3 convolution makes two channels out of one. The
# weights of the first channel are all 1, and those of the second are all 2. A 2x2 max-pooling follows. If the image
# consists of ones, the convolution gives 9 · 1 = 9 in the first channel and 9 · 2 = 18 in the second.

# %% [markdown] tags=["instructor"]
# **On this slide:** Write 9 and 18 on the board before the cell runs. Then ask why `args` is a tuple here, although
# the layer has one input: the same hook has to fit a layer with two.


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
# The network returns two numbers. The output of the convolution, its **feature map**, is gone by then. A **forward hook**
# can still see it. It is a function with three arguments: the module, its inputs and its output. You register it with
# `register_forward_hook`, which returns a handle, just as you know it from tensors.

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
# These are the 9s and the 18s. The inputs arrive as a **tuple**, even if there is only one, because `forward` may take
# several. The output arrives as `forward` returned it: here it is a tensor.
#
# A **forward pre-hook** runs before `forward`. There is no output yet, so it gets only the module and the tuple of inputs.
# The next cell also shows that a handle is a context manager: `with` removes the hook at the end of the block, even if
# something in the block raises an error.

# %%
with tiny.conv1.register_forward_pre_hook(lambda module, args: print("about to go in:", args)):
    tiny(image)
output = tiny(image)  # the block has ended: nothing is printed

# %% [markdown]
# ## Which layer is ill?
#
# A forward hook is all you need to examine the two networks from the beginning. Their layers are called `first`, `relu1`,
# `second`, `relu2`, `third`, `relu3` and `last`. The next cell is a beginning for **patient A**: it keeps what each layer
# gave. (`name=name` makes each hook keep its own name, as in lesson 01.) Add lines of your own until you know where the
# trouble is. Then commit.

# %%
numbers, answers = make_task()
patient, outputs, handles = admit("A"), {}, []
for name, layer in patient.named_children():

    def keep_output(module, args, output, name=name):
        outputs[name] = output

    handles.append(layer.register_forward_hook(keep_output))
patient(numbers)
for handle in handles:
    handle.remove()
# What did the layers give? One example: outputs["first"].max()

# %% [markdown] tags=["sealed"]
# you have looked at the output of every layer of patient A. Which linear layer is ill?
#
# - [ ] first: About half of its numbers are above 0, and none is large: first is well.
#   > How many numbers are above 0 after `relu1`, and how many after `relu2`? Between which two lines did they get lost?
# - [x] second: In all 512 rows none of its numbers is above 0, so relu2 gives nothing but zeros.
# - [ ] third: It gives the same numbers for every row, but only because it gets the same zeros for every row.
#   > What goes into `third` for each row? What would a healthy layer make of that?
# - [ ] last: It answers the same for every row, because everything before it has become the same.
#   > Imagine that `last` had fresh weights. What would it get as its input, in each of the 512 rows?
#
# `second` gives only negative numbers, for every row, and `relu2` makes 0 of all of them. From there on all rows
# look alike, so the network can only guess. Such a ReLU is called **dead**. The cause is the bias of `second`:
# each of its 16 numbers is -10, and the weights make this larger by hardly more than 1.

# %% tags=["predict"]
predict("layer_of_patient_a")


# %% [markdown]
# `examine` prints the two numbers that tell it, for any patient. (`contextlib.ExitStack` is a `with` for any number of
# handles. All hooks go when its block ends.)


# %%
def examine(case):
    """Print for each layer how many of its numbers are above 0, and how large they get."""

    def look(module, args, output):
        print(f"{names[module]:8}{(output > 0).double().mean():5.0%} above 0, largest size {output.abs().max():8.1f}")

    patient = admit(case)
    names = {module: name for name, module in patient.named_children()}
    with contextlib.ExitStack() as stack:
        for module in names:
            stack.enter_context(module.register_forward_hook(look))
        patient(numbers)


examine("A")

# %% tags=["why"]
why("layer_of_patient_a")

# %% [markdown]
# The hook that found it has a single line. Now **patient B**: take the first cell of this section with `admit("B")`, look
# at every layer, and commit.

# %% [markdown] tags=["sealed"]
# you have looked at the output of every layer of patient B. Which linear layer is ill?
#
# - [ ] first: Its numbers are as large as those of a healthy network.
#   > Look at the line of `first` for patient A, and then for patient B. What is different?
# - [ ] second: Its numbers are small: the trouble begins after it.
#   > How large are the numbers just before `third`, and how large right after it?
# - [x] third: It gets numbers of ordinary size and makes numbers of more than 10,000 out of them.
# - [ ] last: Its numbers are large because it is given large ones.
#   > What is the largest size that goes into `last`, and the largest that comes out? Does `last` make the numbers
#   > larger?
#
# Up to `relu2` all numbers have an ordinary size. `third` makes numbers above 10,000 out of them: it
# **explodes**. `last` does nothing unusual, it only passes the size on. The gradients are just as large, so one
# training step later the other layers are out of order too. This is why we looked before the first step.

# %% tags=["predict"]
predict("layer_of_patient_b")

# %%
examine("B")

# %% tags=["why"]
why("layer_of_patient_b")

# %% [markdown]
# Both layers are found. Before you treat them, you have to know more: how to change what a layer gives, and how to see what
# comes back to it.

# %% [markdown]
# ## A network for a pencil
#
# Most of this lesson uses a second small network. Its layer `fc1` makes 4 numbers out of 3, then comes `relu`, and `fc2`
# makes 1 number out of 4. All weights are whole numbers.

# %% [markdown] tags=["instructor"]
# **On this slide:** Let somebody compute 89 with chalk, and leave the numbers 7, -13, 27 and -29 on the board. The
# next parts come back to them.


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
# For x = [1, 1, 1], `fc1` adds up each row of its weight and then adds the bias: 7, -13, 27, -29. `relu` turns the negative
# numbers into 0, and `fc2` computes 1 · 7 + 3 · 27 + 1 = 89. A hook on each child should confirm this.


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
# Each hook runs together with its layer, so the lines appear in the order of the calls.
#
# Many old tutorials say that a forward hook can only look. Here is one that **returns** something:

# %% [markdown] tags=["sealed"]
# a forward hook on `relu` returns `output * 0`. The network gave 89 before. What does it give now?
#
# - [ ] 89: So old tutorials say. Since PyTorch 1.2, what a forward hook returns replaces the output.
#   > With the hook, the cell printed 1 and not 89. Which layer must have got other numbers than before?
# - [ ] 0: fc2 still adds its bias, 1, to the zeros that reach it.
#   > `fc2` multiplies what it gets by its weights. What does it do after that?
# - [x] 1: fc2 gets four zeros, and its bias of 1 is what remains.
# - [ ] an error: A forward hook may return a new output; None keeps the old one.
#   > Compare `output * 0` with `output`. What could `fc2` refuse: the shape, the dtype or the values?
#
# What a forward hook returns takes the place of the output, and the network goes on with it. Here `fc2` receives
# four zeros and adds its bias, 1. If the hook returns None, or has no `return` at all, the output stays as it is.

# %% tags=["predict"]
predict("zeroed_relu")

# %%
with net.relu.register_forward_hook(lambda module, args, output: output * 0):
    print("with the hook:   ", net(x).item())
print("without the hook:", net(x).item())

# %% tags=["why"]
why("zeroed_relu")

# %% [markdown]
# A pre-hook may return something too: new inputs, as a tuple. If you return a single tensor, PyTorch puts the tuple around
# it for you.

# %%
with net.fc1.register_forward_pre_hook(lambda module, args: (2 * args[0],)):
    print("the input doubled:", net(x).item())
print("fc1 with [2, 2, 2]:", net.fc1(2 * x).tolist())

# %% [markdown]
# 1 · 13 + 3 · 51 + 1 = 167. This is less than twice 89, because `fc1` and `fc2` add their biases only once.

# %% [markdown]
# ### Exercise · Silence a channel
#
# Replace the `...` in the answer cell, run it, and then run the `check` below it. If you are stuck, run
# `hint(silence_channel)` in a new cell. `solution(silence_channel)` opens after three attempts.

# %% [markdown] tags=["sealed"]
# 2 points
# 1. What a forward hook returns replaces the output. It must be a new tensor: others may hold the old one.
# 2. `output.clone()` first; then set one channel of the copy to 0. Channels are dimension 1: `copy[:, channel]`.


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

# %% [markdown] tags=["instructor"]
# **Misconception:** "The hook is called once, when I register it." **Ask:** "How often will it run if I call the network
# three times?" **Answer:** three times, and so on until you remove it.
#
# **Misconception:** "A forward hook can only look." **Ask:** "With the hook the network gave 1. Where does the 1 come
# from?" **Answer:** fc2 got four zeros and added its bias.
#
# **For discussion:** `output.zero_()` inside the hook would give 1 as well. Why is it a bad idea? (It writes into a tensor
# that others may hold, and that autograd may need.)

# %% [markdown]
# ## The way back
#
# In backward the gradient passes the layers in the other direction, and hooks can watch it there too. A **full backward
# hook** gets the module, `grad_input` and `grad_output`. Both gradients are tuples, and their names belong to the forward
# pass: `grad_output` is the gradient of the layer's output, and `grad_input` is the gradient of its inputs. So
# `grad_output` arrives first, and `grad_input` is what the layer passes on.
#
# Try it before you read on. The explorer has the network for a pencil, and its input requires a gradient. The call goes
# down on the left, and backward comes up on the right: *Next* takes one step. You choose where a hook sits, which kind it
# is, and whether it only looks or replaces what it sees by zero.
#
# 1. Register a full backward hook that looks on `fc1`, then one on `relu`, then one on `fc2`. In which order do they fire?
# 2. Find a hook that makes the gradient of the input zero and leaves the output as it is.

# %% [markdown] tags=["instructor"]
# **On this slide:** Say once more, with an arrow, that `grad_output` arrives and that `grad_input` goes on. Most
# mistakes of this lesson come from reading the two names the other way round.

# %% tags=["explore"]
from course_utils.explorers import ModelHooks

ModelHooks("small net", hooks=[("relu", "full backward hook", "look")])

# %% [markdown]
# Now the same in code.


# %% tags=["setup"]
def show(gradients):
    """A tuple of gradients as numbers."""
    return tuple(None if grad is None else grad.tolist() for grad in gradients)


def print_gradients(name):
    """A full backward hook that prints what arrives and what goes on."""

    def hook(module, grad_input, grad_output):
        print(f"{name}: grad_output {show(grad_output)} -> grad_input {show(grad_input)}")

    return hook


# %%
net, x = SmallNet(), torch.ones(1, 3, requires_grad=True)
with contextlib.ExitStack() as stack:
    for name, child in net.named_children():
        stack.enter_context(child.register_full_backward_hook(print_gradients(name)))
    net(x).backward()

# %% [markdown]
# Read the lines from the top. `fc2` receives 1 and passes on its weights, [1, 2, 3, 4]. `relu` lets the gradient through
# where its input was positive: [1, 0, 3, 0]. `fc1` passes on its first row once and its third row three times: 1 + 21,
# 2 + 24, 3 + 27. What one layer passes on is what the layer before it receives.
#
# Now the hook on `fc2` does not only look: it returns zeros.

# %% [markdown] tags=["sealed"]
# the full backward hook on `fc2` returns zeros. Do the hooks on `relu` and `fc1` still run?
#
# - [ ] neither of them: A gradient of zeros is a gradient. Backward goes on with it.
#   > What would you have to return so that there is no gradient at all? Is that the same as four zeros?
# - [ ] only that of relu: relu passes on what it gets, and the zeros arrive at fc1 as well.
#   > What is the gradient of the input of `relu` if that of its output is zero? Does `fc1` get this?
# - [x] both, and they receive zeros: What a hook returns goes on, and every layer before it works with it.
# - [ ] both, and they receive what they did before: That is so if the hook returns None. This one returns a tuple.
#   > What does backward do with what a full backward hook returns?
#
# Backward does not notice that the gradient is zero. It calls every hook on the way, and each layer works with what it
# receives. This is the second task of the explorer: such a hook changes only gradients, so the output stays as it is.
# Wherever it sits on the way, nothing but zeros arrives at the input.

# %% tags=["predict"]
predict("order_of_module_hooks")

# %%
net, x = SmallNet(), torch.ones(1, 3, requires_grad=True)
with contextlib.ExitStack() as stack:
    stack.enter_context(net.fc2.register_full_backward_hook(lambda module, given, _: (torch.zeros_like(given[0]),)))
    for name, child in list(net.named_children())[:2]:
        stack.enter_context(child.register_full_backward_hook(print_gradients(name)))
    net(x).backward()
print("x.grad =", x.grad.tolist())

# %% tags=["why"]
why("order_of_module_hooks")

# %% [markdown]
# A full backward hook on the **whole model** gets the two ends of this chain:

# %%
net = SmallNet()
with net.register_full_backward_hook(print_gradients("the model")):
    net(x).backward()

# %% [markdown]
# ### Replacing a gradient: before or after the layer?
#
# What a full backward hook returns takes the place of `grad_input`, the gradient that the layer passes on. There is a
# fourth kind of hook, the **full backward pre-hook**. It runs as soon as `grad_output` has arrived, and it may replace that
# one. Below, each of the two multiplies by 10. Without a hook, `x.grad` is [22, 26, 30], and the gradient of `fc2.weight`
# is the layer's input, [7, 0, 27, 0].

# %% [markdown] tags=["instructor"]
# **On this slide:** Let the room vote whether the two hooks give the same `x.grad`, and then whether they give the
# same `fc2.weight.grad`. The second vote is the one that divides them.


# %%
net, x = SmallNet(), torch.ones(1, 3, requires_grad=True)
with net.fc2.register_full_backward_hook(lambda module, grad_input, grad_output: (10 * grad_input[0],)):
    net(x).backward()
print("hook:     x.grad =", x.grad.tolist(), " fc2.weight.grad =", net.fc2.weight.grad.tolist())

net, x = SmallNet(), torch.ones(1, 3, requires_grad=True)
with net.fc2.register_full_backward_pre_hook(lambda module, grad_output: (10 * grad_output[0],)):
    net(x).backward()
print("pre-hook: x.grad =", x.grad.tolist(), " fc2.weight.grad =", net.fc2.weight.grad.tolist())

# %% [markdown]
# `x.grad` is the same in both cases. But the pre-hook changes what the layer *receives*, so the gradients of its own
# parameters change too. The full backward hook changes only what the layers before it receive.
#
# ### Exercise · Flip the gradient

# %% [markdown] tags=["sealed"]
# 2 points
# 1. `grad_input` holds the gradients that the module is about to pass on: a tuple with one entry per input.
# 2. What a full backward hook returns replaces `grad_input`: a tuple again. An entry may be None.


# %% tags=["answer"]
def reverse_gradient(layer):
    """Flip the sign of the gradient that `layer` passes on to its inputs, and
    return the hook's handle.

    The forward pass and the gradients of the layer's own parameters stay as they
    are. (This is the gradient reversal of Ganin & Lempitsky, 2015, as a hook.)
    """
    ...


# %% tags=["check"]
check(reverse_gradient)

# %% [markdown]
# ### When no input requires a gradient
#
# So far our input required a gradient. The images of a data set do not, and they are what a network usually gets. Now the
# model and its three layers have a full backward hook each, and the input is plain data.

# %% [markdown] tags=["sealed"]
# the input requires no gradient. The model and its layers have full backward hooks. Whose runs first?
#
# - [ ] fc2: fc2's hook waits for the gradient of fc2's input. The model's hook has nothing to wait for.
#   > Compare `grad_input` in the lines of `fc2` and of the model. For which of the two did PyTorch have to compute
#   > something first?
# - [ ] fc1: fc1's hook has nothing to wait for either, but the gradient reaches fc1's output last of all.
#   > Neither `fc1` nor the model waits for a `grad_input`. Which of the two gets its `grad_output` first?
# - [x] the model: Nobody asks for the gradient of its input, so it runs as soon as grad_output is there.
#
# A full backward hook waits for the gradients of its module's inputs. Nothing is computed for an input that
# does not require a gradient, so there is nothing to wait for: the hook runs as soon as `grad_output` has
# arrived, with `(None,)` as `grad_input`. For the model that is the very beginning. `fc1` has the same input,
# but its own `grad_output` comes last. PyTorch warns about both.
#
# With an input that requires a gradient, the model's hook would be the last of the four.

# %% tags=["predict"]
predict("first_with_plain_data")

# %%
net = SmallNet()
with warnings.catch_warnings(record=True) as caught, contextlib.ExitStack() as stack:
    warnings.simplefilter("always")
    for name, module in (("the model", net), *net.named_children()):
        stack.enter_context(module.register_full_backward_hook(print_gradients(name)))
    net(torch.ones(1, 3)).backward()
print(f"{len(caught)} warnings: {str(caught[0].message).split('. ')[0]}.")

# %% tags=["why"]
why("first_with_plain_data")

# %% [markdown]
# If you want the gradient of the input, call `x.requires_grad_()` before you call the network. And expect None in your own
# hooks. You can find it in `grad_output` too, if a module returns a tuple and one part of it is not used.
#
# Here are the four kinds together. A hook that returns None changes nothing.
#
# | register with | the hook gets | what it returns replaces |
# |---|---|---|
# | `register_forward_pre_hook` | `(module, args)` | the inputs |
# | `register_forward_hook` | `(module, args, output)` | the output |
# | `register_full_backward_pre_hook` | `(module, grad_output)` | the gradient of the output |
# | `register_full_backward_hook` | `(module, grad_input, grad_output)` | the gradient of the inputs |

# %% [markdown] tags=["instructor"]
# **Answer to the explorer's second task:** for example a full backward hook on `fc1` that replaces by zero. One on `relu` or
# `fc2` does it too, and so does a full backward pre-hook.
#
# **Misconception:** "`grad_input` is what comes into the layer in backward." **Ask:** "Point at the arrow." **Expect:** the
# wrong one. **Then show:** the names belong to forward: input is on the left, output on the right, in both passes;
# `grad_output` arrives, `grad_input` goes on.
#
# **Misconception:** "Hook or pre-hook, it is the same for x.grad." **Ask:** "In which line of the table can a hook change the
# gradients of the layer's own weights?" **Answer:** in the first three, because each changes what the layer works with. The
# last one acts after the layer has computed them.
#
# **For discussion:** why does the first layer's hook get `(None,)`? (Nobody asked for the gradient of a picture, so none is
# computed. `x.requires_grad_()` asks.)

# %% [markdown]
# ## Hooks that nobody removed
#
# In a notebook you run a cell more than once. Suppose that a cell registers a hook and does not keep the handle:

# %% [markdown] tags=["instructor"]
# **On this slide:** Run the cell twice on the projector without a word, and wait until somebody notices the second
# line. Ask who has had a loss or a list that grew for no reason.

# %%
net, x = SmallNet(), torch.ones(1, 3)


def announce(module, args, output):
    print("  relu was called")


for run in (1, 2):  # as if you ran the same cell twice
    net.relu.register_forward_hook(announce)
    print(f"run {run}: forward hooks on the network: {count_hooks(net)['forward hook']}")
    net(x)

# %% [markdown]
# Each run adds one more hook. Then lines are printed twice, outputs are stored twice, and a gradient that should be doubled
# is doubled twice. PyTorch does not warn you. `count_hooks(model)` and `list_hooks(model)` of this course find the hooks
# that are there, and you can take them away:

# %%
for hook in list_hooks(net):
    print(f"{hook.kind} {hook.name} on {hook.owner}")
    del hook.table[hook.key]
print("left:", count_hooks(net).total())

# %% [markdown]
# It is better not to leave any. If you use `with`, you can run a cell as often as you like:

# %%
for _ in (1, 2):
    with net.relu.register_forward_hook(announce):
        net(x)
print("after the blocks:", count_hooks(net).total())

# %% [markdown]
# `no_hooks_left(model)` guards a test or a long notebook: it raises an error if its block leaves a hook behind.

# %%
try:
    with no_hooks_left(net):
        handle = net.relu.register_forward_hook(announce)
except HooksLeftError as error:
    print("HooksLeftError:", error)
handle.remove()

# %% [markdown] tags=["instructor"]
# **Misconception:** "A hook goes when the function that registered it has ended." **Ask:** "Who holds a reference to the
# hook? Who holds one to the module?" **Answer:** the module holds the hook in a table. The hook goes when the handle takes
# it out, or when the module itself goes.

# %% [markdown]
# ## All layers of a model
#
# Suppose that you want the output of every layer. A common recipe walks through the model, steps into each `nn.Sequential`,
# and hooks everything else. We try it on a network that makes trouble for such recipes: one of its ReLUs is used twice, and
# its pooling is a function.

# %% [markdown] tags=["instructor"]
# **On this slide:** Let them count modules, calls and entries, as three numbers, before you run the cell. Whoever gives
# the same number three times has missed the ReLU that is used twice.


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
# The hook stores the shape of each output in a dict, with the module as its key, and also in a list. Six modules are
# hooked: `conv`, `relu`, `fc1` and the three inside `head`.

# %% [markdown] tags=["sealed"]
# the dict is keyed by module, six modules are hooked, `relu` runs twice. How many outputs does it hold?
#
# - [x] 6: One for each module: the second output of relu takes the place of the first.
# - [ ] 7: There are seven calls, but a dict has one entry for each key, and both calls of relu have the same.
#   > `relu` runs twice, so `store` writes twice. Under which key does it write each time?
# - [ ] 9: Pooling and flatten are functions: they have no hooks, so nothing is stored for them.
#   > `hook_layers` walks through `module.children()`. Which children does `MixedNet` have, and is the pooling one of
#   > them?
#
# The list has all seven calls, at every depth, in the order of the calls. The dict has lost one of them: the
# second call of `relu` overwrote the first, whose shape was (1, 10, 4, 4). So store a list for each module, or
# one list for all of them.

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

# %% tags=["why"]
why("reused_relu")

# %% [markdown]
# Two more things to keep in mind:
#
# - **A function is not a module.** `F.max_pool2d` and `flatten` left no line: the list goes from (1, 10, 4, 4) to (1, 5).
# - **A Sequential is not the only container.** This recipe hooks any other block as a whole and never looks inside it.
#   `model.named_modules()` visits all modules at all depths. A *leaf* is a module without children.
#
# ### Exercise · All leaves

# %% [markdown] tags=["sealed"]
# 2 points
# 1. A leaf module has no children: `not list(module.children())`. `model.named_modules()` walks them all.
# 2. A forward hook gets `(module, args, output)`. Each needs its own name: beware of hooks made in a loop.


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
# ## What you would use every day
#
# All of this is in this course's package, in one folder that you can read: `course_utils/hooks/`. `record` keeps the outputs
# and gradients of the layers that you choose by dotted name, by module or by type. It keeps a detached copy for each call,
# and its hooks are gone after the block.

# %% [markdown] tags=["instructor"]
# **On this slide:** Say that `record` and `trace` belong to this course and not to PyTorch, and that they are short
# enough to be read. Ask what they would need to write `record` themselves: exercises {hooked} and {SaveOutput} are most
# of it.

# %%
with no_hooks_left(mixed), record(mixed, "relu", nn.Linear, gradients=True) as seen:
    mixed(images).sum().backward()
print(seen)
print("the gradient of head.0's output has the shape", tuple(seen["head.0"].gradient.shape))

# %% [markdown]
# `trace` makes one call and lists what happened, in order: the call of every module, and every hook of yours.

# %%
net, x = SmallNet(), torch.ones(1, 3, requires_grad=True)


def note(module, *seen):
    """A hook of any kind that changes nothing."""


with net.relu.register_forward_hook(note), net.fc1.register_full_backward_hook(note):
    print(trace(net, x))

# %% [markdown]
# "backward" means that the gradient of this module's output has arrived. The last column has the shapes that a hook gets: a
# forward hook gets inputs and output, a full backward hook `grad_input` and `grad_output`. The hook on `fc1` fires last,
# because it waits for the gradient of `x`.

# %% [markdown] tags=["instructor"]
# **Misconception:** "One dict entry per module is one entry per call." **Ask:** "Six modules were hooked, the list has seven
# lines, the dict six. Which one is missing?" **Answer:** the first call of relu; the second overwrote it.
#
# **Misconception:** "I hooked everything, so I see everything." **Ask:** "From (1, 10, 4, 4) to (1, 5): what happened in
# between?" **Answer:** pooling and flatten, which are functions; no hook sits on a function.
#
# **Ask about the timeline:** "Which lines would be missing if relu were `F.relu`? Where would the line of fc1's hook stand if
# x required no gradient?" (All lines of relu. It would come as soon as the gradient of fc1's output has arrived.)

# %% [markdown]
# ## The two patients, before and after
#
# Back to **patient A**. Its layer `second` gives nothing but negative numbers. Could it recover by training? In backward
# every weight gets a gradient. Where is it other than 0?

# %% [markdown] tags=["sealed"]
# which of the four linear layers get a gradient of their weight that is not 0?
#
# - [ ] all four: A ReLU whose input is negative lets no gradient through. relu2 stops everything on its way back.
#   > How many inputs of `relu2` were above 0? What does a ReLU do with the gradient where its input was negative?
# - [ ] third and last: third receives a gradient for its output, but its inputs are 0, and so is its weight's.
#   > A weight's gradient is what arrives in backward times what came in during forward. What came into `third`?
# - [x] only last: Before the dead ReLU no gradient arrives, and third has only zeros as its input.
# - [ ] none: last has inputs other than 0, the biases of third, so its weight gets a gradient.
#   > `third` gets only zeros, and then it adds its bias. So what goes into `last`?
#
# A ReLU lets the gradient through only where its input was above 0. `relu2` has no such place, so nothing
# reaches `second` and `first`, and they can never recover by training. The gradient of a weight is the product
# of what the layer receives in backward and of its input in forward. `third` receives something, but its input
# is 0.

# %% tags=["predict"]
predict("gradients_of_patient_a")

# %%
patient = admit("A")
with record(patient, nn.Linear, gradients=True) as seen:
    loss_of(patient).backward()
for name, layer in seen.items():
    of_output, of_weight = layer.gradient, patient.get_submodule(name).weight.grad
    words = ["something other than 0" if gradient.any() else "only 0" for gradient in (of_output, of_weight)]
    print(f"{name:7} output: {words[0]:23} weight: {words[1]}")

# %% tags=["why"]
why("gradients_of_patient_a")

# %% [markdown]
# So training alone will never cure patient A. With hooks, a function can make the diagnosis and the cure. This one looks for
# the first linear layer that gives no number above 0, or a number above 1000. It gives this one layer fresh weights and
# trains the network again.


# %%
def treat(case):
    """Give fresh weights to the first linear layer that looks ill, and train; return the losses."""
    patient = admit(case)
    with record(patient, nn.Linear) as seen:
        patient(numbers)
    ill = [name for name, layer in seen.items() if layer.output.max() <= 0 or layer.output.max() > 1000]
    torch.manual_seed(0)
    patient.get_submodule(ill[0]).reset_parameters()
    return train(patient)


after = {case: treat(case) for case in ("A", "B")}


# %% tags=["setup"]
draw_curves(
    {"before": before["A"], "after": after["A"]},
    title="Patient A learns once one layer has fresh weights",
    alt="The loss of patient A over 120 steps: before, it stays at 0.7; after the treatment it falls to nearly 0.",
)

# %% tags=["setup"]
draw_curves(
    {"before": before["B"], "after": after["B"]},
    title="Patient B learns once one layer has fresh weights",
    alt="The loss of patient B on a logarithmic axis: before, it stays above 1,000; after the treatment it starts at 0.7 "
    "and falls far below.",
    log=True,
)

# %% [markdown] tags=["instructor"]
# **Misconception:** "A layer whose weights get no gradient is the one that is ill." **Ask:** "Patient A: `first` gets no
# gradient either. Is it ill?" **Answer:** no. What lies before a dead layer starves, although it is healthy.
#
# **Misconceptions, by exercise:** `output[:, channel] = 0` without a clone (1); a hook on `grad_output`, which changes the
# weights' gradients as well, or forgetting that an entry of `grad_input` may be None (2); a loop variable that was not bound
# (3); no `finally` (4); storing the output itself (5).
#
# **Ask, whatever the exercise:** "Does your answer still work if the layer is used twice in one call?"
#
# **For discussion (2):** why is it so important that the layer's own gradients stay? (In domain adaptation the layers after
# it should learn to tell the domains apart, and only those before it should learn the opposite.)

# %% [markdown]
# Both patients learn. One hook with a single line found each ill layer, and the other layers kept their weights. Here their
# story ends. The parts called *More* can wait: the lesson goes on with
# [what old tutorials say](#What-old-tutorials-say).

# %% [markdown] tags=["more"]
# ## More: Hooks for the length of a block
#
# A loop that removes the handles is easily forgotten, and it is skipped when the code before it raises an error. A context
# manager of your own takes care of both.

# %% [markdown]
# ### Exercise · Hooks for the length of a block

# %% [markdown] tags=["sealed"]
# 3 points
# 1. `@contextlib.contextmanager` above `def hooked` makes a context manager of a generator: start before `yield`, end
#    after it.
# 2. If the block raises, the exception comes out of the `yield`. Which statement runs in any case?


# %% tags=["answer"]
def hooked(modules, hook):
    """A context manager: while its block runs, `hook` is a forward hook on each of
    `modules`.

    `with` gives a list of the handles, in the order of `modules`. A module that stands
    there twice gets `hook` twice. Before the block, and after it has ended in whatever
    way, these hooks are not there. Other hooks of the modules stay, and the list
    `modules` is left as it is.
    """
    ...


# %% tags=["check"]
check(hooked)

# %% [markdown] tags=["more"]
# ## More: Several inputs, several outputs
#
# If `forward` returns a tuple, the hook gets this tuple. If your hook replaces it, return a tuple of the same length.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what would happen if the hook returned only the second part. The layer's caller would unpack
# one tensor into two, and the error would come somewhere else.


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

# %% [markdown] tags=["more"]
# ## More: Through a convolution
#
# Take the tiny network once more, and follow its way back. Our loss is the mean absolute error (`l1_loss`) against zeros,
# that is (9 + 18) / 2, so each of the two outputs has the gradient 0.5. The pooling sends it to the place where it found
# its maximum. Here four places are equally large, and PyTorch takes the first of them.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask where the 0.5 goes after the pooling before you show it. Whoever spreads it over four places
# thinks of an average and not of a maximum.


# %%
def print_channels(module, grad_input, grad_output):
    print("grad_output", tuple(grad_output[0].shape))
    print(grad_output[0])
    print("grad_input", tuple(grad_input[0].shape), grad_input[0][0, 0].tolist())


with tiny.conv1.register_full_backward_hook(print_channels):
    F.l1_loss(tiny(image.clone().requires_grad_()), torch.zeros(1, 2, 1, 1)).backward()

# %% [markdown]
# Each channel has 0.5 at one place and 0 elsewhere. This place looked at a 3x3 part of the image, once with the weights 1
# and once with the weights 2. So each of the nine pixels gets 0.5 · 1 + 0.5 · 2 = 1.5.
#
# Most networks consist of more than layers. In the next one, batch-norm follows a 1x1 convolution, and the ReLU is a
# function and not a module. The loss is the mean of four numbers.


# %%
class ConvBatchNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 1, kernel_size=1)
        self.bn = nn.BatchNorm2d(1)

    def forward(self, images):
        return torch.relu(self.bn(self.conv(images)))


# %% tags=["setup"]
def print_shapes(name):
    """A forward hook and a full backward hook that print shapes, and the gradient of the output."""

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
# The forward hooks ran in the order `conv`, `bn`, and the backward hooks in the order `bn`, `conv`. No hook tells you about
# the ReLU, but you can see its work: two of the four gradients of 1/4 are 0 when they arrive at `bn`. Batch-norm subtracts
# the mean of the batch, so the four gradients that arrive at `conv` add up to 0, except for rounding.

# %% [markdown] tags=["more"]
# ## More: A ReLU that writes over its input
#
# Many networks use `nn.ReLU(inplace=True)`. It writes its result over its input, which saves memory. We register a full
# backward hook, once on the layer before such a ReLU and once on the ReLU itself.

# %% [markdown] tags=["sealed"]
# a `Linear` layer with a full backward hook is followed by `nn.ReLU(inplace=True)`. What happens?
#
# - [ ] nothing unusual: The ReLU writes into a tensor that the hook depends on, and PyTorch refuses.
#   > Into which tensor does the in-place ReLU write its result? Which layer made this tensor, and what sits on that
#   > layer?
# - [ ] a wrong gradient: PyTorch notices and raises, so that you do not get a wrong gradient.
#   > How many gradients did the two hooks print? And in the printed message, what is being modified in place?
# - [x] an error in forward: The hook turned the output into a view that must not be changed in place.
# - [ ] an error in backward: PyTorch notices earlier, when the ReLU writes into the output.
#   > In the `try`, the cell calls `net(…)`, `.sum()` and `.backward()`. Take `.backward()` away and run it again: is
#   > the error still there?
#
# The error comes from the call of the network, before any backward pass. To get its gradients, a full backward
# hook sends the inputs and outputs of its module through a helper, `BackwardHookFunction`, and what comes out are
# *views*. If the ReLU wrote into such a view, the gradient would no longer pass the helper, and your hook would
# not see it. PyTorch refuses to do this, so you never get a wrong number.
#
# On the ReLU itself it is the view of the *input* that must not be written to.

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
for index, place in enumerate(("the Linear layer", "the ReLU itself")):
    net = inplace_net()
    with net[index].register_full_backward_hook(print_gradients(place)):
        try:
            net(torch.ones(1, 2)).sum().backward()
        except RuntimeError as error:
            print(f"hook on {place}: {str(error).split('. ')[0]}.")

# %% tags=["why"]
why("inplace_relu")

# %% [markdown]
# How far does this reach? Here are four more cases, each with an in-place ReLU:


# %% tags=["setup"]
class InPlaceInside(nn.Module):
    """The in-place ReLU works inside the module, on a tensor that the module has made itself."""

    def forward(self, x):
        return (2 * x).relu_()


def outcome(net, register):
    """What happens to a call and its backward pass with such a hook on the first module of `net`."""
    with getattr(net[0], register)(lambda *_: None):
        try:
            net(torch.ones(1, 2, requires_grad=True)).sum().backward()
        except RuntimeError as error:
            return type(error).__name__
    return "works"


# %%
print("full backward pre-hook alone: ", outcome(inplace_net(), "register_full_backward_pre_hook"))
print("forward hook alone:           ", outcome(inplace_net(), "register_forward_hook"))
print("full hook, in-place inside:   ", outcome(nn.Sequential(InPlaceInside()), "register_full_backward_hook"))
net = inplace_net()
with net[0].register_full_backward_hook(print_gradients("Linear")), torch.no_grad():
    print("full hook, under no_grad:      gives", net(torch.ones(1, 2)).tolist())

# %% [markdown]
# A full backward *pre-hook* makes views as well. A module may change in place what it has made itself, because that is no
# view. And under `no_grad` there is no graph, so PyTorch makes no views at all.
#
# If you do need a full backward hook next to an in-place ReLU, there are two cures. **First:** let the ReLU write its result
# elsewhere. This costs some memory and does not change any number.

# %%
net = inplace_net()
for module in net.modules():
    if isinstance(module, nn.ReLU):
        module.inplace = False
with net[0].register_full_backward_hook(print_gradients("Linear")):
    net(torch.ones(1, 2, requires_grad=True)).sum().backward()

# %% [markdown]
# **Second:** leave the network as it is, and watch the output with a tensor hook, which makes no view. A forward hook can
# register it on the fresh output, before the ReLU writes. As in lesson 01, the tensor hook then belongs to the value of
# that moment.

# %%
net = inplace_net()


def watch_output(module, args, output):
    output.register_hook(lambda grad: print("the gradient of the Linear layer's output:", grad.tolist()))


with net[0].register_forward_hook(watch_output):
    net(torch.ones(1, 2)).sum().backward()

# %% [markdown]
# This is the same [1, 0] as before. The forward hook goes at the end of its `with` block, and the tensor hook goes with
# the graph of this call. `record` works in this way, so you can use it next to in-place ReLUs.

# %% [markdown] tags=["instructor"]
# **Misconception (in-place ReLU):** "The error is about my backward hook, so it comes in backward." **Ask:** "Which line
# raised?" **Answer:** the call of the network: the view is made, and written to, in forward.
#
# **The residual block of the explorer** shows the same: a full backward hook on `fc2` works, because its output is added to x
# before the ReLU writes; one on `fc1` raises, because the ReLU writes into what `fc1` returned.
#
# **For discussion:** which of the two cures would you take on a network that is not yours? (The tensor hook: nothing of the
# network changes.)

# %% [markdown] tags=["more"]
# ## More: The convolutions of ResNet-34
#
# `model.modules()` visits all depths too, and `isinstance` picks a type. A hook need not be a function: an object with a
# `__call__` method can be a hook as well, and it can keep what it collects. (The weights are random here. We only look at
# the shapes.)

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask how many convolutions a network with the name 34 should have. The answer of the cell is
# larger: the shortcuts have convolutions of their own, which nobody counts.


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
# There are 36 outputs, although the name says 34. The 34 counts 33 convolutions and the last linear layer. Three more
# convolutions sit in shortcuts. The recipe above would have hooked one convolution and sixteen whole blocks.
#
# The object keeps the outputs themselves. They hold the whole graph in memory, and an in-place operation that follows can
# change them. It is safer to store `output.detach().clone()`.
#
# ### Exercise · An object that remembers
#
# Make a better `KeepOutputs`. Write a method for each `...`.

# %% [markdown] tags=["sealed"]
# 2 points
# 1. An object can be a hook if its class has `__call__`. `self` keeps what the calls have in common.
# 2. Store copies that do not hold the graph: `output.detach().clone()`.


# %% tags=["answer"]
class SaveOutput:
    """A forward hook that keeps a detached copy of each output in its list
    `outputs`, which is empty again after `clear()`.

    One object can sit on many layers; the copies are in the order of the calls. It
    changes nothing.
    """

    def __init__(self): ...

    def __call__(self, module, args, output): ...

    def clear(self): ...


# %% tags=["check"]
check(SaveOutput)

# %% [markdown] tags=["more"]
# ## More: Keyword arguments
#
# By itself, a pre-hook sees the positional arguments only. `help(nn.Module.register_forward_pre_hook)` names the option that
# shows it the keyword arguments, too. A forward hook has the same option.
#
# ### Exercise · Overrule the caller

# %% [markdown] tags=["sealed"]
# 2 points
# 1. A forward pre-hook sees what goes in. Where does a keyword argument show up?
# 2. `register_forward_pre_hook(hook, with_kwargs=True)` calls `hook(module, args, kwargs)`.


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
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | A forward hook returns nothing and cannot change the output. | Since PyTorch 1.2 what it returns replaces the output. A pre-hook can replace the inputs. |
# | Use `register_backward_hook`. | It has been deprecated since 1.8. Use `register_full_backward_hook`. Lesson 09 shows the old one. |
# | A backward hook on a whole model sees only the last layer. | This was true of the old one. The full one has the gradients of the model's inputs and outputs. |
# | Hook everything that is not a Sequential. | There are many types of containers. Hook the leaves, or the type that you want. Functions have no hooks. |
# | Keep the outputs in a dict, with the module as its key. | A module that runs twice overwrites its own entry. |

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask who has used `register_backward_hook`. It still works, with a warning at most, and what it
# reports can be wrong: lesson 09 shows by how much.

# %% [markdown]
# ## The case
#
# Two clues say that the gradient goes to the fish. Now you can make an experiment. A forward hook covers the fish inside
# the network: in its place, the first layer hands on its mean. Then it covers everything but the fish.

# %%
from course_utils.explorers import case

picture, suspect = case.open_case()
fish, answers, tiles = picture.masks[0], [], {}


def cover(cells):
    """A forward hook that hands on the mean of each map in these cells."""
    return lambda module, args, output: torch.where(cells, output.mean((2, 3), keepdim=True), output)


for covered, hidden in {"the fish is covered": fish, "all else is covered": ~fish}.items():
    with suspect.features[2].register_forward_hook(cover(case.find_cells(hidden, 56))):
        answers.append(case.ask_for_fish(suspect, picture.image))
    tiles[f"{covered}: {answers[-1]:.0%}"] = picture.image.where(~hidden, 0.5)
case.keep_clue(
    "03",
    f"With the fish covered, the network says fish with {answers[0]:.0%}. With all else covered, with {answers[1]:.0%}.",
    tiles,
)

# %% [markdown] tags=["instructor"]
# **On this slide:** Put the first clue beside this one: the gradient falls on the fish, and the answer does not need it.
# Both are measured. Which of the two is an experiment?

# %% [markdown]
# ## Summary
#
# - A forward pre-hook gets `(module, args)`, a forward hook `(module, args, output)`; `args` is a tuple.
# - A full backward pre-hook gets `(module, grad_output)`, a full backward hook `(module, grad_input, grad_output)`.
# - A hook that returns None keeps what is there. Anything else replaces it. Only the full backward hook leaves the gradients
#   of the layer's own parameters as they are.
# - A full backward hook waits for the gradient of its module's inputs. If none of them requires one, the hook runs as soon as
#   the gradient of the output is there, with None in `grad_input`.
# - A full backward hook or pre-hook makes views of its module's inputs and outputs, and nothing may write into these in place.
# - You have to remove your hooks yourself. Use `with`, or keep the handle.
# - Hooks belong to modules. A function has none, and a module that runs twice calls its hook twice.
# - `record`, `trace` and `no_hooks_left` do the daily work.

# %% [markdown] tags=["instructor"]
# **On this slide:** Draw a layer as a box with four empty arrows, and let the room write the four kinds of hooks on
# them. If this works, the lesson has worked.

# %% [markdown]
# ## Go further
#
# - Lesson 04: what happens inside a call, line by line, and why full backward hooks make views.
# - Lesson 05: feature maps, the best known use of a forward hook.
# - Lesson 09: the rest of the interface, from keyword arguments and global hooks to copies and compiled models.
# - [`torch.nn.Module`](https://pytorch.org/docs/stable/generated/torch.nn.Module.html), with every `register_…` method.

# %% [markdown] tags=["instructor"]
# **On this slide:** At home: the exercises that were left out, and lesson 04 for those who want to know where the
# hooks are called. Lesson 05 needs only this one.
