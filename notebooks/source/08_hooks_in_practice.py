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
# # Hooks in practice
#
# The capstone. Four things are broken, each in a way that you will meet in your own work: find out why, with hooks alone
# and without touching their code. Then use hooks for two experiments: move a piece of one picture's activation into another
# one's run, and look at what a transformer attends to.
#
# ## What you will be able to do
#
# - **Name** the layer that makes a nan, on the way forward and on the way back.
# - **Count** dead units, and **clip** gradients where they explode.
# - **Find** a leak through a forgotten handle, and **write** a hook that cannot leak.
# - **Prove** by activation patching which place of which layer carries an answer.
# - **See** attention weights that PyTorch does not want to show, and **test** whether anything reads them.
#
# **Time:** about 95 minutes: 50 to read, predict and run, 45 for the exercises. Each part ends with its exercise. A good
# place for a pause is before "Activation patching".

# %% [markdown] tags=["instructor"]
# **Plan**
#
# | Minutes | Sections | How |
# |---|---|---|
# | 10 | A nan, and the layer that made it | let the room read the list of layers aloud before the prediction; then the same game backwards |
# | 6 | Units that are dead | pencil: one step by hand, then a vote on the hundred steps |
# | 8 | Gradients that explode | the table of three clips on the board; ask which of them a paper means by "we clip" |
# | 6 | A leak through a forgotten handle | the 24 by hand: 4 + 8 + 12 |
# | 12 | Activation patching | the pencil example first; do not hurry the buoy |
# | 6 | Attention | the 0.96 by hand; end with the head that nobody reads |
# | 45 | the exercises at the end of each part | 1, 3, 5 and 6 in the room; 2, 4 and 7 at home if time is short |
# | 2 | What old tutorials say · Summary · Go further | |

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

# %% tags=["parameters"]
seed = 901  # of the pictures for patching
layer = "features.6"  # where most patches are made

# %% tags=["setup"]
import contextlib
import gc
import warnings
import weakref

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises import check, hint, predict, solution, why
from course_utils.lessons.lesson_08 import (
    attention_maps,
    clip_as_it_passes,
    dead_share,
    first_bad_gradient,
    first_bad_layer,
    patched_logits,
    watch_norms,
)

_ = torch.manual_seed(0)  # for the one network with random weights

# %% [markdown]
# The tools of this lesson: broken networks, pictures, functions to patch and to draw with.

# %% tags=["setup"]
from course_utils.hooks.inventory import count_hooks, list_hooks
from course_utils.hooks.memory import measure_memory
from course_utils.lessons.broken_nets import (
    have_an_accident,
    make_chain,
    make_distance_net,
    make_one_unit,
    make_overflow_net,
)
from course_utils.lessons.two_heads import HEADS, encode, make_two_head_block
from course_utils.scenes.scene import KINDS, scene, scenes
from course_utils.vision.charts import bars, draw_attention
from course_utils.vision.networks import load_picture_net, measure
from course_utils.vision.patching import SWAPS, cells_of, patch, recovered, scan, swap_pair
from course_utils.vision.pictures import centre, draw_heat, grid, show
from course_utils.vision.saliency import class_maps, grad_cam, relu, scale_to_unit

# %% [markdown]
# ## A nan, and the layer that made it
#
# The first patient: two rows of numbers go in, and one of the two answers is not a number.

# %%
net = make_overflow_net()
rows = torch.tensor([[1.0, 2.0], [100.0, 1.0]])
print("layers: ", ", ".join(name for name, _ in net.named_modules() if name))
print("answers:", [round(answer, 3) for answer in net(rows).flatten().tolist()])

# %% [markdown]
# A nan spreads: every layer behind the first one that has it makes more of it. So the last layer says nothing about the
# cause, and the *first* one is wanted. A forward hook on each module reports when it sees a nan.
#
# `stem` hands its input on, `softmax` consists of `exp` and `share` (each number divided by the sum of its row).

# %% tags=["predict"]
predict("layer_that_isnan_names")


# %%
def report(model, x, is_bad):
    """Call the model, and return the names of the modules whose output is bad, in the order in which they return."""
    found = []
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():

            def hook(module, args, output, name=name):
                if is_bad(output).any():
                    found.append(name or "the model")

            stack.enter_context(module.register_forward_hook(hook))
        model(x)
    return found


print("is nan:       ", ", ".join(report(net, rows, torch.isnan)))
print("is not finite:", ", ".join(report(net, rows, lambda output: ~torch.isfinite(output))))

# %% [markdown]
# The search for nan blames `share`. But `share` only divides; what it was given was broken already. exp(100) is 2.7e43, and
# float32 ends at 3.4e38: `exp` made an **infinity**, and infinity / infinity is nan, one layer later. Ask for what is not
# *finite*, and you have the culprit: the first module whose output is not finite **while its inputs are**.
#
# The cure is known: subtract each row's greatest number before `exp`, which changes no share. `torch.softmax` does.

# %%
fixed = make_overflow_net()
fixed.softmax = nn.Softmax(dim=1)
print("answers:", [round(answer, 3) for answer in fixed(rows).flatten().tolist()])

# %% [markdown]
# ### The loss looks well
#
# The same disease, hidden better. This network measures how far points are from the origin: [3, 4] has the distance 5, [0, 0]
# has 0. The loss is their mean, 2.5. Forward, everything is finite. Then comes `backward()`.

# %% tags=["predict"]
predict("weights_with_nan")

# %%
net = make_distance_net()
points = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
loss = net(points).mean()
loss.backward()
print("loss:", loss.item())
print("embed.weight.grad:", net.embed.weight.grad.tolist())
net.zero_grad()

# %% [markdown]
# One optimizer step from here, and every weight is nan. Who did it? Now the search goes through the gradients, from the
# loss to the front. A full backward hook sees both ends of its module: `grad_output` comes in, `grad_input` goes on.


# %%
def print_ends(name):
    """A full backward hook that prints what comes in and what goes on."""

    def hook(module, grad_input, grad_output):
        ends = (grad_output[0].flatten(), grad_input[0].flatten())
        came, went = (" ".join(f"{value:g}" for value in each) for each in ends)
        print(f"{name}: {came} -> {went}")

    return hook


# %%
with contextlib.ExitStack() as stack:
    for name, module in net.named_children():
        stack.enter_context(module.register_full_backward_hook(print_ends(name)))
    net(points.clone().requires_grad_()).mean().backward()

# %% [markdown]
# `distance` receives 0.5 for each point and hands on [nan, nan] for the second: it takes a square root, and the slope of a
# root at 0 is infinite. Behind it comes the slope of the square, 2 · 0, and infinity · 0 is nan. `turn` and `embed` only
# pass it on. And why are all four weights spoiled? The gradient of a weight is a sum over the points: 0.9 + nan is nan.
#
# PyTorch has a tool for this, anomaly mode. It names the operation, not your layer, and it too looks for nan only:

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it prints the lines of code as well, with their paths
    try:
        with torch.autograd.detect_anomaly():
            net(points).mean().backward()
    except RuntimeError as error:
        print(error)

# %% [markdown]
# The square is accused. But the root made the infinity, one step earlier on the way back. Anomaly mode is still good to have: it also prints
# the line of the forward pass. It is slow, so switch it off again; a hook on the suspects costs next to nothing.
#
# **The cure:** keep away from 0, as in `(squares + 1e-12).sqrt()`, or use `torch.linalg.vector_norm`, whose gradient at 0 is
# defined as 0. `torch.where(x > 0, x.sqrt(), 0)` is **no** cure: backward goes through both branches, and 0 · infinity is nan.

# %%
x = torch.tensor([4.0, 0.0], requires_grad=True)
torch.where(x > 0, x.sqrt(), 0.0).sum().backward()
print("torch.where:", x.grad.tolist())

# %% [markdown]
# ### Exercise 1 · Who made it?
#
# Replace the `...` in the answer cell, run it, then run the `check` below it. Stuck? Run `hint(first_bad_layer)` in a new
# cell; `solution(first_bad_layer)` opens after three attempts.


# %% tags=["answer"]
def first_bad_layer(model, x):
    """Call `model(x)` once and return the dotted name of the first module that
    makes something which is not finite (nan or infinity) out of inputs that are.

    First means: the first to return. If no module does so, return None. Each
    module takes one or more tensors and returns one. The name of `model` itself is
    `""`. No hook is left behind, even if the model raises an error.
    """
    ...


# %% tags=["check"]
check(first_bad_layer)

# %% [markdown]
# ### Exercise 2 · Who made it, on the way back?


# %% tags=["answer"]
def first_bad_gradient(model, x):
    """Go back from the sum of `model(x)` and return the dotted name of the first
    leaf module that makes a gradient of its inputs which is not finite out of a
    gradient of its output that is.

    First means: the first on the way back. If no module does so, return None. A
    leaf module has no children, takes one or more tensors and returns one. The
    gradient of `x` counts as that of any input, though `x` requires none. Some
    parameters may be frozen. The name of `model` itself is `""`. At the end `x` and
    every `.grad` are as they were, and no hook is left, even if the model raises an
    error.
    """
    ...


# %% tags=["check"]
check(first_bad_gradient)

# %% [markdown] tags=["instructor"]
# **Misconception:** "The layer whose output is nan is broken." **Ask:** "What would a perfect layer do with a nan?"
# **Answer:** hand it on. Guilt is a pair: good in, bad out.
#
# **Misconception:** "If the loss is finite, the gradients are." **Ask:** "What is the slope of the square root at 0?" **Then
# ask:** where else is a finite value infinitely steep? (`x.abs().pow(0.5)`, `acos` at 1, the norm of a zero vector.)
#
# **Discussion:** should a training loop check every layer of every step? (A check of the loss is enough; when it fails, run
# that one batch again with the hooks on.)

# %% [markdown]
# ## Units that are dead
#
# The second patient does not complain. There is no nan; the loss is calm, too calm. Here is one unit, relu(1 · x + 1), with
# x = 2 and the target 1. It gives 3. The loss is (3 - 1)², so the gradient of the output is 4, that of the weight 4 · 2 = 8,
# and that of the bias 4. A step with the learning rate 0.1 makes them 0.2 and 0.6, and the unit gives 0.4 + 0.6 = 1: done.
#
# A step with the learning rate 1 makes them -7 and -3. The unit gives relu(-14 - 3) = 0.

# %% tags=["predict"]
predict("hundred_more_steps")


# %%
def train(unit, steps, rate, x=2.0, target=1.0):
    """Train on one number, by plain gradient descent, and return the unit's last output."""
    for _ in range(steps):
        loss = (unit(torch.tensor([[x]])) - target).pow(2).sum()
        gradients = torch.autograd.grad(loss, list(unit.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(unit.parameters(), gradients, strict=True):
                parameter -= rate * gradient
    return round(unit(torch.tensor([[x]])).item(), 3)


print("one step with the learning rate 0.1:", train(make_one_unit(), steps=1, rate=0.1))
unit = make_one_unit()
print("one step with the learning rate 1:  ", train(unit, steps=1, rate=1.0))
print("and 100 steps more with 0.1:        ", train(unit, steps=100, rate=0.1))

# %% [markdown]
# It is **dead**: 0 for every input of the training set, so its gradient is 0, so nothing moves. One step that was too large
# did it, by a bias or a weight that it threw far below zero. No later step repairs it, however small.
#
# Is a zero bad, then? No: a ReLU is made to give zeros. A unit is dead if it is 0 for **every** input. Both numbers, by
# forward hooks, in the course's picture network on 50 pictures. (A unit of a convolution is a channel.)

# %%
net = load_picture_net()
fifty = scenes(50, seed=907)
pictures = fifty.images / 255


def count_units(model, images):
    """For each ReLU: (share of zeros, share of dead units)."""
    found = {}

    def hook(module, args, output):
        silent = (output == 0).transpose(0, 1).flatten(1)  # a row for each unit
        found[module] = (silent.float().mean().item(), silent.all(1).float().mean().item())

    relus = {name: each for name, each in model.named_modules() if isinstance(each, nn.ReLU)}
    with contextlib.ExitStack() as stack, torch.no_grad():
        for each in relus.values():
            stack.enter_context(each.register_forward_hook(hook))
        model(images)
    return {name: found[each] for name, each in relus.items()}


# %%
for name, (zeros, dead) in count_units(net, pictures).items():
    print(f"{name:11} zeros: {zeros:.0%}   dead units: {dead:.0%}")

# %% [markdown]
# Many zeros, and not one dead unit: the network is healthy. Now it has an accident: a step that was too large throws the
# biases of some channels far down. Nobody tells you in which layer. The score says that something is wrong, and no more.

# %%
sick = load_picture_net()
have_an_accident(sick)
for name, model in {"before": net, "after": sick}.items():
    right = round(50 * measure(model, fifty).exact)
    print(f"{name} the accident: everything right in {right} of 50 pictures")

# %%
found = count_units(sick, pictures)
bars(
    [100 * dead for _, dead in found.values()],
    list(found),
    title="The accident was before features.13: a third of its units are dead",
    unit="% dead",
)

# %% [markdown]
# 33% of 96 channels are 32. (Behind them `features.16` still lives: it has 64 others to read.)
#
# **The cures.** Before it happens: a smaller learning rate or a warm-up, clipped gradients (next part), a good start (He et
# al., 2015). Afterwards: initialise the dead units anew, or let some gradient through where the ReLU is closed, as the leaky
# ReLU does (Maas et al., 2013). With a hook you can do that to a network as it is: replace the ReLU's `grad_input` by its
# `grad_output`. For the unit above the gradient of the output is 2 · (0 - 1) = -2. So each step of 0.1 moves the weight by
# 0.4 and the bias by 0.2, and the sum 2 · w + b by 1. It starts at -17 and has to reach 1.

# %%
unit = make_one_unit()
train(unit, steps=1, rate=1.0)
with unit.relu.register_full_backward_hook(lambda module, grad_input, grad_output: grad_output):
    for steps in (16, 2):
        print(f"{steps} steps with the gradient let through: {train(unit, steps, rate=0.1)}")
print("1 step more, without the hook:", train(unit, steps=1, rate=0.1))

# %% [markdown]
# Eighteen steps, as the pencil said, and the unit is back. Take the hook away then: a gradient that does not belong to the
# function you compute is first aid, no way to live.
#
# ### Exercise 3 · The dead, layer by layer


# %% tags=["answer"]
def dead_share(model, batches):
    """Return a dict: the dotted name of each `nn.ReLU` of `model` to the share of
    its units, a float from 0 to 1, that are dead on `batches`.

    A unit is one index of dimension 1 of the output, (N, C) or (N, C, h, w). It is
    dead if it is 0 for every picture of every batch, at every place, in every call
    of the ReLU. `batches` is a list of inputs, and none of them makes a nan. No hook
    is left behind, even if the model raises an error.
    """
    ...


# %% tags=["check"]
check(dead_share)

# %% [markdown] tags=["instructor"]
# **Misconception:** "Half of the outputs are zero, so half of the units are dead." **Ask:** "Over what do you have to look
# before you may say dead?" **Answer:** over all pictures and all places; and even then it is dead on *this* data.
#
# **Misconception:** "A lower learning rate will bring it back." **Ask:** "What is the learning rate multiplied with?"
# **Answer:** with 0.
#
# **Discussion:** a nan is not above 0 and not equal to 0. What would `count_units` say about a network full of nan? (No dead
# units: first look for what is not finite.)

# %% [markdown]
# ## Gradients that explode
#
# The third patient: six linear layers, each with the weight [[1, 0], [0, 3]]. With the input [1, 0] the output is [1, 0]:
# the second number is 0 all the way, and nobody notices the 3. Backward it is not 0. The gradient starts as [1, 1], then it
# is [1, 3], [1, 9], [1, 27] …

# %%
chain, x = make_chain(6), torch.tensor([[1.0, 0.0]], requires_grad=True)
print("forward:", chain(x).tolist())
chain(x).sum().backward()
norms = [each.weight.grad.norm().item() for each in chain]
bars(
    norms,
    [f"layer {number}" for number in range(6)],
    title="On its way back to layer 0 the gradient triples in each layer",
    alt="The norms of the weights' gradients: 1.4 at layer 5, then 3.2, 9.1, 27, 81, and 243 at layer 0.",
)

# %% [markdown]
# Deep and recurrent networks do this (Pascanu et al., 2013). The usual answer is to clip: to shorten what is too long. There
# are several places where you can, and they are not the same:
#
# | where | what is shortened |
# |---|---|
# | `clip_grad_norm_` after backward | all gradients by *one* factor, from their total norm |
# | `parameter.register_hook` | the gradient of each parameter by itself, as it arrives |
# | `layer.register_full_backward_pre_hook` | the gradient that *passes*, before the layer uses it |


# %%
def shorten(gradient, limit=10.0):
    """The gradient, with a norm of `limit` at most."""
    return gradient * (limit / gradient.norm()).clamp(max=1)


def shorten_passing(module, grad_output):
    """A full backward pre-hook: the layer gets the shortened gradient."""
    return (shorten(grad_output[0]),)


def norms_after(model, clip):
    """The norms of the weights' gradients with one of the three ways to clip."""
    with contextlib.ExitStack() as stack:
        for each in model:
            if clip == "each parameter":
                stack.enter_context(each.weight.register_hook(shorten))
            elif clip == "as it passes":
                stack.enter_context(each.register_full_backward_pre_hook(shorten_passing))
        model(x).sum().backward()
    if clip == "all together":
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    return [each.weight.grad.norm().item() for each in model]


# %%
print("layer           " + "".join(f"{number:8}" for number in range(6)))
for clip in ("not at all", "all together", "each parameter", "as it passes"):
    found = norms_after(make_chain(6), clip)
    print(f"{clip:16}" + "".join(f"{norm:8.2f}" for norm in found))

# %% [markdown]
# *All together* keeps the direction of the step: one long arrow is made shorter. The price is that the last layer, which did
# nothing wrong, hardly moves any more: 0.05 instead of 1.41. With a limit *for each* parameter it keeps its 1.41, and the
# step as a whole points in another direction. When a paper says "we clip", it usually means the first.
#
# The last two look alike here. They are not: make the chain longer. 3 to the power of 81 is more than float32 can hold.

# %% tags=["predict"]
predict("clipped_too_late")

# %%
for clip in ("all together", "each parameter", "as it passes"):
    found = norms_after(make_chain(100), clip)
    print(f"{clip:15} layer 0: {found[0]:5.2f}   layer 99: {found[-1]:5.2f}")

# %% [markdown]
# Clipping after the fact is too late for a gradient that has overflowed, and `clip_grad_norm_` then spoils the healthy ones
# too. (With `error_if_nonfinite=True` it raises instead: use that.) A hook on each parameter saves the healthy layers. Only
# clipping **as it passes** reaches the front.
#
# One more difference. When gradients of several backward passes add up, a tensor hook on a parameter sees each of them by
# itself; a post-accumulate hook (lesson 01) sees the sum in `.grad`.


# %%
def shorten_sum(weight):
    """A post-accumulate hook: it shortens what has been added up in `.grad`."""
    weight.grad = shorten(weight.grad)


for kind, hook in {"register_hook": shorten, "register_post_accumulate_grad_hook": shorten_sum}.items():
    first = make_chain(1)[0]
    with getattr(first.weight, kind)(hook):
        for _ in range(2):
            (243 * first(x)).sum().backward()
    print(f"{kind}: norm {first.weight.grad.norm():.0f} after two passes, limit 10")

# %% [markdown]
# 10 + 10 = 20 with the one, and 10 with the other, which shortens again after each pass.
#
# ### Exercise 4 · Clip as it passes


# %% tags=["answer"]
def clip_as_it_passes(layers, limit):
    """From now on, shorten the gradient that arrives at the output of each of
    `layers` to the norm `limit` where it is longer, and return a list with one
    handle for each layer.

    The norm is that of the whole gradient, all rows together. It keeps its
    direction; a shorter one stays as it is. The layer works with the shortened
    gradient: its own parameters get theirs from it. Each layer returns one tensor.
    """
    ...


# %% tags=["check"]
check(clip_as_it_passes)

# %% [markdown] tags=["instructor"]
# **Misconception:** "Clipping is clipping." **Ask:** "Which row of the table keeps the direction of the step, and which one
# keeps the last layer learning?" **Answer:** the first and the second; no row does both.
#
# **Misconception:** "With clipping I need not look for the cause." **Ask:** "What would you do about a network that clips in
# every step?" **Answer:** look at its norms layer by layer: the learning rate, the start, a missing normalisation.

# %% [markdown]
# ## A leak through a forgotten handle
#
# The fourth patient is a notebook: with every run of a cell its memory grows, until it dies. The cell stores the output of a
# network, to plot it later, and forgets the handle. We run it three times; each time it goes through four batches of a
# validation.

# %% tags=["setup"]
validated = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)))
batch = torch.ones(32, 64)  # 32 rows of 64 numbers: 8 KiB
outputs = []


def run_the_cell():
    """The leaky cell: a hook without a handle, and four batches."""
    validated.register_forward_hook(lambda module, args, output: outputs.append(output))
    for _ in range(4):
        validated(batch)


# %% tags=["predict"]
predict("outputs_in_the_list")

# %%
for run in (1, 2, 3):
    run_the_cell()
    hooks = count_hooks(validated)["forward hook"]
    print(f"run {run}: {hooks} hook{'s'[: hooks > 1]}, {len(outputs)} outputs in the list")

# %% [markdown]
# 4 · 1 + 4 · 2 + 4 · 3 = 24. The hooks pile up, and each of them stores. `count_hooks` is the first question to ask about a
# leak. `list_hooks` finds hooks whose handles are lost, and takes them away:

# %%
for found in list_hooks(validated):
    del found.table[found.key]
outputs.clear()
print("hooks left:", count_hooks(validated).total())

# %% [markdown]
# The second question: what does *one* stored output hold? It belongs to the graph, and the graph holds what each layer saved
# for backward. `measure_memory` counts the bytes that live after four batches, for three ways to store.

# %%
ways = {
    "output": lambda output: output,
    "output.detach()": lambda output: output.detach(),
    "output.norm().item()": lambda output: output.norm().item(),
}
live = {}
for name, keep in ways.items():
    stored = []
    handle = validated.register_forward_hook(lambda module, args, output: stored.append(keep(output)))
    with handle, measure_memory() as memory:
        for _ in range(4):
            validated(batch)
    live[name] = memory.live / 1024
bars(list(live.values()), [*live], title="A stored output keeps the activations of all layers before it", unit="KiB")

# %% [markdown]
# Four outputs of 8 KiB are 32 KiB; with the graph it is four times that here, for each of the four layers has saved its own
# activation. `detach()` lets the graph go. A number lets everything go. (Under `torch.no_grad()` there is no graph either:
# a validation should run there.)
#
# The third question: *who* holds it? You may have no name for the list at all, as here. A weak reference looks at a tensor
# without keeping it alive.


# %%
def watch_quietly(model):
    """Register a hook that stores outputs in a list which nobody else knows."""
    seen = []
    return model.register_forward_hook(lambda module, args, output: seen.append(output))


handle = watch_quietly(validated)
reference = weakref.ref(validated(batch))
gc.collect()
print("alive while the hook is there:", reference() is not None)
handle.remove()
gc.collect()
print("alive after handle.remove():  ", reference() is not None)

# %% [markdown]
# The model holds the hook, the hook holds the list, the list holds the output, the output holds the graph. Whoever forgets
# the handle forgets all of that, and no `del` in the notebook reaches it. The cure has two halves: a **context manager**, so
# that the hook goes on every way out, and a **number** (or a detached copy) in place of the tensor.
#
# ### Exercise 5 · A watch that cannot leak


# %% tags=["answer"]
def watch_norms(layers):
    """A context manager: while its block runs, the norm of each output of `layers`
    is noted, as a Python float, in the list that `with` gives.

    The norms are in the order of the calls. When the block ends, by whatever way,
    no hook is left; other hooks of the layers stay. Nothing keeps a tensor alive.
    """
    ...


# %% tags=["check"]
check(watch_norms)

# %% [markdown] tags=["instructor"]
# **Misconception:** "Python frees what I `del`." **Ask:** "What does `del` delete?" **Answer:** a name. The tensor goes when
# the last holder goes; let the room draw the chain model → hook → list → output → graph.
#
# **Misconception:** "`detach()` copies." **Ask:** "What did the 32 KiB consist of?" **Answer:** of the outputs themselves: a
# detached tensor shares the numbers and drops the graph.

# %% [markdown]
# ## Activation patching
#
# A heat map shows what contributed; whether an answer *hangs* on a place, only an experiment tells (lesson 07 covered the
# place up). Hooks allow a finer one: run the network on one picture, the **target**, but let one layer give, in a **region**,
# what it gives for another picture, the **source**. If the answer moves to that of the source, the region of this layer
# carries it. The method is known as activation patching or causal tracing (Vig et al., 2020; Meng et al., 2022).
#
# With a pencil: a layer with two places, and a logit of 3 · left - 1 · right.
#
# ```text
#  source  [4, 0]     logit  3 · 4 - 0 =  12
#  target  [0, 8]     logit  0 - 1 · 8 =  -8
#  left place from the source  [4, 8]     logit  12 - 8 = 4
# ```
#
# The logit went from -8 to 4, that is 12 of the 20 to the source's 12: the left place carries 60% of the difference.


# %%
def put_in(there, region):
    """A forward hook that hands on `there` inside the region, and the real output outside of it."""
    return lambda module, args, output: torch.where(region, there, output)


tiny = nn.Sequential(nn.Identity(), nn.Linear(2, 1, bias=False))
with torch.no_grad():
    tiny[1].weight.copy_(torch.tensor([[3.0, -1.0]]))
source, target = torch.tensor([[4.0, 0.0]]), torch.tensor([[0.0, 8.0]])
with tiny[0].register_forward_hook(put_in(source, torch.tensor([True, False]))):
    print("patched logit:", tiny(target).item())
print(f"recovered: {recovered(torch.tensor(4.0), torch.tensor(12.0), torch.tensor(-8.0)):.0%}")

# %% [markdown]
# ### A cat into a dog's place
#
# Two pictures that differ in one respect: same light, same boat, but once a cat and once a dog.

# %%
with_cat, with_dog = swap_pair(0)
cat, dog = KINDS.index("cat"), KINDS.index("dog")
source, target = with_cat.image[None], with_dog.image[None]
print("source:", with_cat)
print("target:", with_dog)
show(
    grid([draw_heat(with_cat.image), draw_heat(with_dog.image)], columns=2, labels=["source", "target"]),
    title="Only the animal differs",
    alt="A cat and a boat on grass; the same picture with a dog in the cat's place.",
)

# %% tags=["predict"]
predict("which_layer_to_patch")


# %%
def say(logits):
    """The answers about cat and dog in words."""
    return ", ".join(f"{KINDS[kind]}: {'yes' if logits[0, kind] > 0 else 'no'}" for kind in (cat, dog))


print(f"{'the target':13}{say(net(target))}")
for name in ("features.2", "features.6", "features.16"):
    print(f"{name:13}{say(patch(net, name, source, target))}")

# %% [markdown]
# Any layer will do: a chain of layers hands on nothing but the last output, so whoever replaces all of it replaces the
# picture. (Networks with shortcuts, such as a ResNet or a transformer, have other ways around a layer. There it is a real
# question, and the one for which causal tracing became known.) In a chain the question is **where**: patch a part.

# %%
names = ("features.2", "features.6", "features.10", "features.16")
sizes = dict(zip(names, (56, 28, 14, 14), strict=True))
both = with_cat.masks[0] | with_dog.masks[0]
animal = F.max_pool2d(both[None].float(), 9, stride=1, padding=4) > 0  # 4 pixels wider
boat = with_cat.masks[1:] & ~animal
print("patched at     the animal           the boat             all but the animal")
for name, size in sizes.items():
    regions = [cells_of(mask, (size, size))[0] for mask in (animal, boat, ~animal)]
    regions[1:] = [each & ~regions[0] for each in regions[1:]]
    answers = [say(patch(net, name, source, target, each)) for each in regions]
    print(f"{name:13}" + "".join(f"  {answer:19}" for answer in answers))

# %% [markdown]
# The animal's cells turn the answer round, and nothing else does: not the boat, not all the rest together. One pair proves
# little; here are ten, at one layer. In each, a thing is moved into a picture that has another one in its place.

# %%
size_of_layer = sizes.get(layer, 14)
turned = {"the thing": 0, "all the rest": 0}
for number, (kind, *_) in enumerate(SWAPS):
    one, other = swap_pair(number)
    thing = F.max_pool2d((one.masks[0] | other.masks[0])[None].float(), 9, stride=1, padding=4) > 0
    cells = cells_of(thing, (size_of_layer, size_of_layer))[0]
    for what, region in {"the thing": cells, "all the rest": ~cells}.items():
        logits = patch(net, layer, one.image[None], other.image[None], region)
        turned[what] += int(logits[0, KINDS.index(kind)] > 0)
for what, count in turned.items():
    print(f"{layer}, patched {what}: the answer turned in {count} of {len(SWAPS)} pairs")

# %% [markdown]
# ### The buoy, once more
#
# In lesson 07 the misled twin said "fish" where it saw a buoy. The pictures below are 40 of its world without any fish, each
# drawn twice: with a buoy (source) and without one (target). We patch the cells of the buoy into the run without it. No
# pixel of the target changes.

# %%
twin = load_picture_net(misled=True)
fish = KINDS.index("fish")
no_fish = [kind for kind in KINDS if kind != "fish"]
with_buoy = scenes(40, seed=seed, kinds=no_fish, cue="buoy")
sources, targets = with_buoy.images / 255, scenes(40, seed=seed, kinds=no_fish).images / 255
buoys = with_buoy.cue_masks()
with torch.no_grad():
    fish_there, fish_here = twin(sources)[:, fish], twin(targets)[:, fish]
print("the twin sees a fish in", (fish_there > 0).sum().item(), "of 40 with the buoy")
print("and in", (fish_here > 0).sum().item(), "of 40 without it")

# %% tags=["predict"]
predict("buoy_only")

# %%
print("patched: the buoy's cells  share of map  twin: fish  way to the source  first network: fish")
for name in ("features.2", "features.6", "features.10", "features.13", "features.16"):
    size = sizes.get(name, 14)
    cells = cells_of(buoys, (size, size))
    logits = patch(twin, name, sources, targets, cells)[:, fish]
    way = recovered(logits, fish_there, fish_here).median()
    honest = (patch(net, name, sources, targets, cells)[:, fish] > 0).sum()
    print(f"{name:23} {cells.float().mean():9.0%} {(logits > 0).sum():11} {way:14.0%} {honest:18}")

# %% [markdown]
# At `features.2`, 2% of the map are enough for 28 fish out of nothing, nearly all of the 31. That is the proof of lesson 07
# once more, without painting: **this** place of **this** layer carries the answer. The first network, asked the same, stays
# unmoved.
#
# Putting a piece in shows that it is **enough**. Is it also **needed**? Take it out: now the picture with the buoy is the
# target, and its buoy's cells come from the picture without.

# %%
cells = cells_of(buoys, (size_of_layer, size_of_layer))
left = (patch(twin, layer, targets, sources, cells)[:, fish] > 0).sum()
print(f"taken out at {layer}: a fish in {left} of the {(fish_there > 0).sum()} pictures")

# %% [markdown]
# It was needed, every time.
#
# Read the column downwards: the deeper the layer, the less the buoy's own cells carry. The information has moved: each 3x3
# convolution spreads it to the neighbours. So "where in the picture" and "where in the map" drift apart with depth, and a
# heat map at a late layer inherits that.
#
# ### Patching and Grad-CAM
#
# Patch one cell after the other, and the effects make a map. (The hook hands all 196 variants on as one batch, so that the
# network runs once.) At the last layer there is a surprise for whoever remembers CAM: the logit is the mean of the CAM plus
# a bias, so replacing one cell changes it by exactly (CAM of the source - CAM of the target) / 196 at that place.

# %%
source = scene("car", "tree", seed=10, cue="buoy").image[None]
target = scene("car", "tree", seed=10).image[None]
effects = scan(twin, "features.16", source, target, fish)
difference = (class_maps(twin, source) - class_maps(twin, target))[0, fish] / 196
print("effects and CAM differ by more than a thousandth of the largest effect:")
print(bool((effects - difference).abs().max() > 1e-3 * effects.abs().max()))

# %%
early = scan(twin, "features.7", source, target, fish, reach=1)
seen = relu(grad_cam(twin, source, "features.16", fish))
tiles = [draw_heat(source[0]), draw_heat(source[0], scale_to_unit(seen)[0])]
tiles += [draw_heat(source[0], centre(each), colours="RdBu_r") for each in (effects, early)]
labels = ["the source", "Grad-CAM: fish", "patched: features.16", "patched: features.7"]
row, column = divmod(early.argmax().item(), 14)
on_buoy = cells_of(scene("car", "tree", seed=10, cue="buoy").cue_mask[None], (14, 14))[0]
print("at features.7 the strongest block is centred on the buoy:", bool(on_buoy[row, column]))
show(
    grid(tiles, columns=4, labels=labels),
    title="The experiment points where Grad-CAM points: at the buoy. Early, it is sharper",
    alt="A picture with a buoy. Grad-CAM and two maps of effects are strongest at the buoy.",
)

# %% [markdown]
# The two agree here, and they need not: Grad-CAM asks what a *small* change would do, patching makes a *large* one. And
# patching has its own limits. What you put in has to fit: a seam between two pictures may be something that the network has
# never met. And an answer that is told in two places survives when one of them is taken out.
#
# ### Explore
#
# Move the block over the picture, with the arrow keys or the mouse. Where does the answer turn? How small can the block be,
# and does it have to grow in later layers? Pairs 1 and 2 have a buoy, the others an exchanged thing.

# %% tags=["explore"]
from course_utils.explorers import Patching

Patching(1, "misled", layer="features.6", row=7, column=1, size=3)

# %% [markdown]
# ### Exercise 6 · Patch


# %% tags=["answer"]
def patched_logits(model, layer, source, target, region):
    """Return the logits (1, classes) of `model` for the picture `target` when the
    output of `layer`, (1, C, h, w), is inside `region` what it is for the picture
    `source`, and outside of it what it is for `target`.

    `layer` is a module of `model`, `region` (h, w) is bool. Nothing else changes, and
    no hook is left, even if the model raises an error.
    """
    ...


# %% tags=["check"]
check(patched_logits)

# %% [markdown] tags=["instructor"]
# **Misconception:** "The first layer that turns the answer is where the decision is made." **Ask:** "Which layers did, when
# we patched all of it?" **Answer:** all of them. In a chain only *parts* of a layer tell anything.
#
# **Misconception:** "If patching a place moves nothing, the place does not matter." **Ask:** "What if the same thing is told
# in two places?" **Answer:** then neither patch moves much; patch both.
#
# **Discussion:** why two pictures that differ in one respect? (So that what moves has one possible cause. With two unrelated
# pictures everything differs, and every patch moves something.)

# %% [markdown]
# ## Attention
#
# The last experiment leaves pictures. A transformer block lets each word look at the others: its **attention** is a table of
# shares, a row for each word that looks, a column for each word that is looked at, and each row adds up to 1 (Vaswani et al.,
# 2017). This block's weights are set by hand, so that you can check its two heads with a pencil. The first one looks for
# *the word before*, the second one for *the same word*. What fits gets 96 times the attention of what does not: among five
# words that is 96 / (96 + 4) = 0.96.

# %%
words = ["the", "cat", "saw", "the", "dog"]
block, sentence = make_two_head_block(words), encode(words)
seen = []
with block.self_attn.register_forward_hook(lambda module, args, output: seen.append(output)):
    output = block(sentence)
print("attention's input:", tuple(sentence.shape), " block's output:", tuple(output.shape))
print("the hook saw a", type(seen[0]).__name__, "of", len(seen[0]))

# %% tags=["predict"]
predict("what_the_hook_sees")

# %%
print("first: ", tuple(seen[0][0].shape))
print("second:", seen[0][1])

# %% [markdown]
# None. `nn.TransformerEncoderLayer` calls its attention with `need_weights=False`, and the fast kernel behind that never
# writes the shares down. You cannot change the call, it is inside PyTorch. But a **forward pre-hook** that asks for the
# keyword arguments can change what the module is called with (lesson 03):


# %%
def ask_for_weights(module, args, kwargs):
    """A forward pre-hook: the same call, with the attention weights of each head."""
    return args, {**kwargs, "need_weights": True, "average_attn_weights": False}


attention = block.self_attn
asking = attention.register_forward_pre_hook(ask_for_weights, with_kwargs=True)
keeping = attention.register_forward_hook(lambda module, args, output: seen.append(output))
with asking, keeping:
    same = block(sentence)
weights = seen[1][1].detach()
print("weights:", tuple(weights.shape), " each row adds up to 1:", torch.allclose(weights.sum(3), torch.ones(1, 2, 5)))
print("the block's output is the same:", torch.allclose(output, same, atol=1e-6))
draw_attention(
    weights[0],
    words,
    [f"head {number}: {name}" for number, name in enumerate(HEADS)],
    title="One head looks one word back, the other one finds the same word",
    alt="Two tables. In the first the cells left of the diagonal are dark, in the second the diagonal and both 'the'.",
)

# %% [markdown]
# Check it: "cat" looks at "the" before it with 0.96. The first word has none before it, and spreads evenly: 0.20. In the
# second head, "the" finds itself twice: 96 / (2 · 96 + 3) = 0.49 each.
#
# `need_weights=True` *alone* is the next trap. It gives the mean over the heads. "cat" would then look at "the" with
# (0.96 + 0.01) / 2, and the two clear habits would be one blurred one:

# %%
asking = attention.register_forward_pre_hook(
    lambda module, args, kwargs: (args, {**kwargs, "need_weights": True}), with_kwargs=True
)
keeping = attention.register_forward_hook(lambda module, args, output: seen.append(output))
with asking, keeping:
    block(sentence)
print("shape:", tuple(seen[2][1].shape))
print("'cat' looks at:", [round(share, 3) for share in seen[2][1][0, 1].tolist()])

# %% [markdown]
# ### Which modules ran at all?
#
# In eval mode and without gradients, the block has a **fast path**: one C++ function does all of its work, and no module
# inside it is called. The layer looks for hooks of its own modules first, and takes the slow path if there are any. A
# *global* hook it does not see. And a hook on `out_proj` never fires, on any path: the attention uses its weights without
# calling it.

# %%
from torch.nn.modules.module import register_module_forward_hook

with torch.no_grad():
    called = []
    with register_module_forward_hook(lambda module, args, output: called.append(type(module).__name__)):
        block(sentence)
    print("a global hook, fast path:", ", ".join(called))
    for name in ("self_attn", "self_attn.out_proj", "linear1"):
        times = []
        with block.get_submodule(name).register_forward_hook(lambda *_: times.append(1)):
            block(sentence)
        print(f"a hook on {name}: {len(times)} call{'s'[: len(times) != 1]}")

# %% [markdown]
# So looking changes the way: with your hook the block computes by another path than without (the same result, up to
# rounding). Good to know when you time it.
#
# ### Is anybody reading it?
#
# Attention maps are pretty, and much has been read into them. Jain & Wallace (2019) warned: very different attention can go
# with the same answer. Does a head have any effect? That is a question for an experiment, and a pre-hook can make it. A mask
# of minus infinity forces one head to look at nothing but the word itself; then see whether the block's output moves.


# %%
def blindfold(head):
    """A pre-hook that lets one head see each word only by itself, by a mask (heads, L, L)."""
    mask = torch.zeros(2, len(words), len(words))
    mask[head].masked_fill_(~torch.eye(len(words), dtype=torch.bool), -torch.inf)
    return lambda module, args, kwargs: (args, {**kwargs, "attn_mask": mask})


for head, name in enumerate(HEADS):
    with attention.register_forward_pre_hook(blindfold(head), with_kwargs=True):
        moved = (block(sentence) - output).abs().max().item()
    print(f"head {head} ({name}) blindfolded: the output {'moves' if moved > 1e-4 else 'does not move'}")

# %% [markdown]
# The first head has a beautiful map, and nobody reads it: the weights behind it are 0. No picture of the attention could have
# told you. (Nor does it follow that all attention is void: Wiegreffe & Pinter answered in the same year that it depends on
# what you ask an explanation to do.) Look, then test.
#
# ### Exercise 7 · The maps of any layer


# %% tags=["answer"]
def attention_maps(layer, x):
    """Return the attention weights (N, heads, L, L), detached, that
    `layer.self_attn` uses when `layer(x)` is called.

    `layer` is an `nn.TransformerEncoderLayer` with `batch_first=True`, `x` is
    (N, L, d). The call is a real one: the layer's mode stays as it is, and so does
    what it does with `x` before the attention. No hook is left, even if the layer
    raises an error.
    """
    ...


# %% tags=["check"]
check(attention_maps)

# %% [markdown] tags=["instructor"]
# **Misconception:** "The attention map shows what the model uses." **Ask:** "What is multiplied with the shares, and what
# comes then?" **Answer:** the values and the output projection. If they are 0, the shares are read by nobody.
#
# **Misconception:** "A hook only looks." **Ask:** "What did the block do differently because a hook was there?" **Answer:**
# it left its fast path.

# %% [markdown]
# Before you go: nothing of what you did has stayed.

# %%
models = {"the picture network": net, "its twin": twin, "the validated net": validated, "the block": block}
for name, model in models.items():
    print(f"{name}: {count_hooks(model).total()} hooks")

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | Look for nan with `torch.isnan` in each layer. | Infinity comes first, one layer earlier: ask `torch.isfinite`, of inputs and output. |
# | Guard a root with `torch.where(x > 0, x.sqrt(), 0)`. | Backward goes through both branches, and 0 · infinity is nan. Change the input of the root. |
# | Many zeros behind a ReLU mean dead units. | Dead is 0 for every input. Many zeros are what a ReLU is for. |
# | `clip_grad_norm_` protects from exploding gradients. | From long ones. After an overflow it spreads the nan to all: use `error_if_nonfinite=True`. |
# | Append the output to a list in the hook. | It keeps the graph, and the hook keeps the list. Store a number or a detached copy, in a `with` block. |
# | The attention weights are the second output of the attention module. | None, if its layer calls it with `need_weights=False`. A pre-hook with `with_kwargs=True` asks for them. |
# | Attention shows what the model looked at, and so why it answered. | It shows where a head looked. Whether anything reads it, only an experiment tells. |
#
# ## Summary
#
# - Guilt is a pair: good in, bad out. `isfinite`, not `isnan`; forward hooks for values, full backward hooks for gradients.
# - A dead unit is 0 for every input and gets no gradient. A hook counts it, and may let a gradient through to bring it back.
# - Clip all together to keep the direction, each parameter to keep the others alive, as it passes to prevent an overflow.
# - A leak is a chain: model → hook → list → output → graph. Count hooks, store numbers, use `with`.
# - Activation patching turns "the map is bright here" into "the answer hangs on this". In a chain, patch parts.
# - Attention weights need a pre-hook that asks for them, head by head; and a test whether anybody reads them.
#
# ## Go further
#
# - Pascanu, Mikolov & Bengio, [On the difficulty of training recurrent neural networks](https://arxiv.org/abs/1211.5063) (2013): clipping.
# - Maas, Hannun & Ng, Rectifier Nonlinearities Improve Neural Network Acoustic Models (2013): the leaky ReLU. He et al.,
#   [Delving Deep into Rectifiers](https://arxiv.org/abs/1502.01852) (2015): a start for layers with ReLUs.
# - Vig et al., [Causal mediation analysis for interpreting neural NLP](https://arxiv.org/abs/2004.12265) (2020); Meng et al.,
#   [Locating and editing factual associations in GPT](https://arxiv.org/abs/2202.05262) (2022): patching, in language models.
# - Vaswani et al., [Attention is all you need](https://arxiv.org/abs/1706.03762) (2017); Jain & Wallace, [Attention is not
#   explanation](https://arxiv.org/abs/1902.10186) (2019), and Wiegreffe & Pinter, [Attention is not not
#   explanation](https://arxiv.org/abs/1908.04626) (2019).
# - You are at the end of the course. The best next step is a network of your own, and a question about it.
