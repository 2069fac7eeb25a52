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
# Four things are broken, each in a way that you will meet in your own work. You find out why, with hooks alone and without
# touching their code. Then you make an experiment: you move a piece of one picture's activation into another picture's
# run, and see which answer comes out.
#
# The lesson has **two halves**, and you can take either of them alone: *four patients*, and *what does the answer depend
# on?*
#
# ## What you will be able to do
#
# - **Name** the layer that makes a nan.
# - **Count** dead units, and **clip** gradients where they explode.
# - **Find** what makes the memory grow, and **write** a hook that cannot do it.
# - **Prove** by activation patching which place of which layer carries an answer.
#
# **Minutes:** counted by the build

# %% [markdown] tags=["instructor"]
# **Plan for 90 minutes**
#
# | Minutes | Sections | In the room | At home |
# |---|---|---|---|
# | 0 to 17 | First half: four patients · A nan, and the layer that made it | the list of layers, read aloud; the prediction with discussion and a second vote; exercise {first_bad_layer} | the way back, and exercise {first_bad_gradient} |
# | 17 to 31 | One unit, one large step | one step by hand; one vote; exercise {dead_share} | bringing the unit back |
# | 31 to 37 | Gradients that explode | the table of three clips: which of them does a paper mean by "we clip"? One vote | exercise {clip_as_it_passes} |
# | 37 to 50 | A memory that grows | the three numbers before you run the cell; the chain of holders; exercise {watch_norms} | nothing |
# | 50 to 55 | Pause | the first half can end here | nothing |
# | 55 to 84 | Second half: what does the answer depend on? · Activation patching | the explorer, everybody; the first prediction with discussion and a second vote, the second by one vote; exercise {patched_logits} | patching and Grad-CAM |
# | 84 to 88 | What old tutorials say · The case · Summary · Go further | the four patients, and the hook that found each | the table |
#
# **Homework:** Exercises {first_bad_gradient} and {clip_as_it_passes}, about 16 minutes.

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

from course_utils.exercises import check, hint, predict, replay, solution, why
from course_utils.lessons.lesson_08 import (
    clip_as_it_passes,
    dead_share,
    first_bad_gradient,
    first_bad_layer,
    patched_logits,
    watch_norms,
)

_ = torch.manual_seed(0)  # for the one network with random weights

# %% tags=["setup"]
from course_utils.hooks.inventory import count_hooks, list_hooks
from course_utils.hooks.memory import measure_memory
from course_utils.hooks.record import record
from course_utils.lessons.broken_nets import have_an_accident, make_chain, make_distance_net, make_one_unit
from course_utils.lessons.broken_nets import make_overflow_net as make_first_patient

# %% tags=["setup"]
from course_utils.scenes.scene import KINDS, scene, scenes
from course_utils.vision.charts import bars
from course_utils.vision.networks import load_picture_net, measure
from course_utils.vision.patching import SWAPS, cells_of, patch, recovered, scan, swap_pair
from course_utils.vision.pictures import centre, draw_heat, grid, outline, show
from course_utils.vision.saliency import class_maps, grad_cam, relu, scale_to_unit

cat, dog, fish = (KINDS.index(kind) for kind in ("cat", "dog", "fish"))

# %% [markdown]
# ## First half: four patients
#
# One network makes a nan, one has a unit that gives 0 for ever, one has gradients that grow without end, and one notebook
# needs more memory with every run. Each of the four is found by a hook.

# %% [markdown]
# ## A nan, and the layer that made it
#
# The first patient: two rows of numbers go in, and one of the two answers is not a number.

# %% [markdown] tags=["instructor"]
# **On this slide:** Let somebody read the list of layers aloud, and ask which operations can make something that is
# not finite. Whoever says "a division by zero" should say which layer divides, and by what.

# %%
net = make_first_patient()
rows = torch.tensor([[1.0, 2.0], [100.0, 1.0]])
print("layers: ", ", ".join(name for name, _ in net.named_modules() if name))
print("answers:", [round(answer, 3) for answer in net(rows).flatten().tolist()])

# %% [markdown]
# Every layer that gets a nan makes more of it, so the *first* one is wanted. A forward hook on each module reports what is
# bad. `stem` hands its input on; `softmax` consists of `exp` and `share` (each number divided by the sum of its row).

# %% [markdown] tags=["sealed"]
# a hook looks for `isnan` in the output of each layer: stem, exp, share, softmax, relu, head. Which one does it name
# first?
#
# - [ ] stem: It hands its input on, and 100 is a harmless number.
#   > `stem` hands on what it gets. What does it return for the row [100, 1], and is one of these numbers a nan?
# - [ ] exp: exp(100) is too large for float32 and becomes infinity. That is the cause, and infinity is not nan.
#   > What does `torch.tensor(100.0).exp()` give in Python? What does `isnan` say to that?
# - [x] share: Infinity divided by infinity is nan. So the search for nan names the layer after the guilty one.
# - [ ] head: It is nan as well, but five layers before it return first.
#   > `head` only multiplies and adds. What must have come in, if a nan goes out?
#
# `share` only divides, and what it was given was broken already. exp(100) is 2.7e43, and float32 ends at 3.4e38:
# `exp` made an **infinity**, and infinity / infinity is nan, one layer later. Ask for what is not *finite*. The
# culprit is the first module whose output is not finite **while its inputs are**.
#
# The cure: subtract each row's greatest number before `exp`, which changes no share. `torch.softmax` does that.

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

# %% tags=["why"]
why("layer_that_isnan_names")

# %%
net.softmax = nn.Softmax(dim=1)  # PyTorch's own
print("answers:", [round(answer, 3) for answer in net(rows).flatten().tolist()])

# %% [markdown]
# ### Exercise · Who made it?
#
# Replace the `...` in the answer cell, run it, then run the `check` below it. Stuck? Run `hint(first_bad_layer)` in a new
# cell; `solution(first_bad_layer)` opens after three attempts.

# %% [markdown] tags=["sealed"]
# 2 points
# 1. A forward hook sees inputs and output. When is a module guilty, and when has it only been handed the damage?
# 2. Guilty: its inputs are finite and its output is not. `torch.isfinite(tensor).all()` is False for nan and for
#    infinity. Modules return in order, the inner ones before what they are in.


# %% tags=["answer"]
def first_bad_layer(model, x):
    """Call `model(x)` once and return the dotted name of the first module that
    makes something which is not finite (nan or infinity) out of inputs that are.

    First means: the first to return. If no module does so, return None. Each
    module takes one or more tensors, changes none of them, and returns one. The name
    of `model` itself is `""`. No hook is left behind, by whatever way the call ends.
    """
    ...


# %% tags=["check"]
check(first_bad_layer)

# %% [markdown] tags=["more"]
# ### More: The loss looks fine
#
# This network measures how far points are from the origin: [3, 4] has the distance 5, [0, 0] has 0. The loss is their mean,
# 2.5. In forward, everything is finite. Then comes `backward()`.

# %% [markdown] tags=["sealed"]
# the loss is 2.5. How many of the four entries of `embed.weight.grad` are nan?
#
# - [ ] 0: The loss is finite, but a finite value can have an infinite slope: the square root has one at 0.
#   > Compute the slope of the square root at 1, at 0.01 and at 0.0001. What will it be at 0?
# - [ ] 2: Only one of the two points is bad. But the gradient of a weight is the sum over all points.
#   > Each of the four entries is a sum over both points. What does the second one add: how much is nan · 0?
# - [x] 4: The bad point has the gradient [nan, nan], and nan · 0 is nan again. In the sum it spoils every entry.
#
# `distance` receives 0.5 for each point and hands on [nan, nan] for the second. It takes a square root, and the
# slope of the root at 0 is infinite; then comes the slope of the square, 2 · 0, and infinity · 0 is nan. `turn`
# and `embed` only pass it on. The gradient of a weight is a sum over the points, and 0.9 + nan is nan.

# %% tags=["predict"]
predict("gradient_of_a_finite_loss")

# %%
net = make_distance_net()
points = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
loss = net(points).mean()
loss.backward()
print("loss:", loss.item())
print("embed.weight.grad:", net.embed.weight.grad.tolist())
net.zero_grad()


# %%
def print_ends(name):
    """A full backward hook that prints what comes in and what goes on."""

    def hook(module, grad_input, grad_output):
        came, went = (" ".join(f"{value:g}" for value in each[0].flatten()) for each in (grad_output, grad_input))
        print(f"{name}: {came} -> {went}")

    return hook


with contextlib.ExitStack() as stack:
    for name, module in net.named_children():
        stack.enter_context(module.register_full_backward_hook(print_ends(name)))
    net(points.clone().requires_grad_()).mean().backward()

# %% tags=["why"]
why("gradient_of_a_finite_loss")

# %% [markdown]
# PyTorch's own tool, anomaly mode, names an operation, not your layer, and it looks for nan only: it accuses the square.
# The cure is to keep away from 0, as in `(squares + 1e-12).sqrt()`. A `torch.where` around the root is **no** cure,
# because backward goes through both branches.

# %% tags=["setup"]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it prints the lines of code as well, with their paths
    try:
        with torch.autograd.detect_anomaly():
            net(points).mean().backward()
    except RuntimeError as error:
        print(error)

x = torch.tensor([4.0, 0.0], requires_grad=True)
torch.where(x > 0, x.sqrt(), 0.0).sum().backward()
print("torch.where:", x.grad.tolist())

# %% [markdown] tags=["more"]
# ### More: Exercise · Who made it, on the way back?

# %% [markdown] tags=["sealed"]
# 2 points
# 1. The same question on the way back. Which kind of hook sees both ends of a module's part of backward?
# 2. A full backward hook: guilty if every gradient in `grad_output` is finite and one in `grad_input` is not. An entry
#    of `grad_input` may be None, for example if no input requires a gradient.


# %% tags=["answer"]
def first_bad_gradient(model, x):
    """Go back from the sum of `model(x)`, to `x` and to the parameters, and return
    the dotted name of the first leaf module that makes a gradient of its inputs
    which is not finite out of a gradient of its output that is.

    First means: the first on the way back. If no module does so, return None. A
    leaf module has no children, takes one or more tensors and returns one. The
    gradient of `x` counts as that of any input, though `x` requires none. Some
    parameters may be frozen. The name of `model` itself is `""`. At the end `x` and
    every `.grad` are as they were, and no hook is left, by whatever way the call
    ends.
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
# ## One unit, one large step
#
# The second patient has no nan, and its loss is calm. Here is one unit, relu(1 · x + 1), with x = 2 and the target 1. It gives
# 3. The loss is (3 - 1)², so the gradient of the output is 4, that of the weight 4 · 2 = 8, and that of the bias 4. A step
# with the learning rate 0.1 makes them 0.2 and 0.6, and the unit gives 0.4 + 0.6 = 1: done. A step with the learning rate 1
# makes them -7 and -3. Then come a hundred small steps.

# %% [markdown] tags=["sealed"]
# after one step that was too large, the unit gives 0. Now 100 steps with the small learning rate, 0.1. What does it
# give then?
#
# - [x] 0: Where a ReLU gives 0 it passes no gradient back. No gradient, no step, for ever.
# - [ ] 0.5: To get half-way there, something would have to move. What gradient reaches the weight?
#   > Do one of the 100 steps with a pencil, from w = -7 and b = -3. What are w and b afterwards?
# - [ ] 1: With a gradient, yes: the target is 1. But a ReLU that gives 0 passes none back.
#   > The loss is (0 - 1)², so the gradient of the output is -2. How much of it gets through the ReLU to the weight?
#
# The unit gives relu(-14 - 3) = 0, for every input of its training set. So its gradient is 0, and nothing moves.
# One step that was too large did it. No later step repairs it, however small.

# %% tags=["predict"]
predict("hundred_more_steps")


# %% tags=["setup"]
def train(unit, steps, rate, x=2.0, target=1.0):
    """Train on one number, by plain gradient descent, and return the unit's last output."""
    for _ in range(steps):
        loss = (unit(torch.tensor([[x]])) - target).pow(2).sum()
        gradients = torch.autograd.grad(loss, list(unit.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(unit.parameters(), gradients, strict=True):
                parameter -= rate * gradient
    return round(unit(torch.tensor([[x]])).item(), 3)


# %%
print("one step with the learning rate 0.1:", train(make_one_unit(), steps=1, rate=0.1))
unit = make_one_unit()
print("one step with the learning rate 1:  ", train(unit, steps=1, rate=1.0))
print("and 100 steps more with 0.1:        ", train(unit, steps=100, rate=0.1))

# %% tags=["why"]
why("hundred_more_steps")

# %% [markdown]
# A ReLU is made to give zeros. A unit is **dead** if it is 0 for **every** input. Forward hooks on the ReLUs count both in
# the course's network, on 40 pictures. (A unit of a convolution is a channel.) Then the network has an accident: a step
# that was too large throws some biases far down.


# %% tags=["setup"]
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


# %% tags=["setup"]
forty, net, sick = scenes(40, seed=907), load_picture_net(), load_picture_net()
for name, (zeros, dead) in count_units(net, forty.images / 255).items():
    print(f"{name:11} zeros: {zeros:.0%}   dead units: {dead:.0%}")
have_an_accident(sick)
for name, model in {"before": net, "after": sick}.items():
    print(f"{name} the accident: everything right in {40 * measure(model, forty).exact:.0f} of 40 pictures")

# %% tags=["setup"]
found = count_units(sick, forty.images / 255)
bars(
    [round(100 * dead) for _, dead in found.values()],
    list(found),
    title="The accident was before features.13: a third of its units are dead",
    unit="% dead",
)

# %% [markdown]
# A smaller learning rate and clipped gradients (next part) prevent this. Afterwards you can let some gradient through where
# the ReLU is closed, as the leaky ReLU does (Maas et al., 2013). A hook does it to a network as it is: it replaces the
# ReLU's `grad_input` by its `grad_output`. For the unit above that is 2 · (0 - 1) = -2, so each step of 0.1 raises
# 2 · w + b by 1, from -17 to 1.

# %%
unit = make_one_unit()
train(unit, steps=1, rate=1.0)
with unit.relu.register_full_backward_hook(lambda module, grad_input, grad_output: grad_output):
    for steps in (16, 2):
        print(f"{steps} steps with the gradient let through: {train(unit, steps, rate=0.1)}")
print("1 step more, without the hook:", train(unit, steps=1, rate=0.1))

# %% [markdown]
# After eighteen steps the unit is back, as the pencil said.
#
# ### Exercise · The dead, layer by layer

# %% [markdown] tags=["sealed"]
# 2 points
# 1. A unit is dead if it never says anything: not one number above 0, in any place, picture or batch. One sign of life
#    in any batch is enough.
# 2. For one output (N, C, ...): `alive = (output > 0).transpose(0, 1).flatten(1).any(1)`, one bool a unit. Over several
#    batches, signs of life add up: `|=`.


# %% tags=["answer"]
def dead_share(model, batches):
    """Return a dict: the dotted name of each `nn.ReLU` of `model` to the share of
    its units, a float from 0 to 1, that are dead on `batches`. The name of `model`
    itself is `""`.

    A unit is one index of dimension 1 of the output, (N, C) or (N, C, h, w). It is
    dead if it is 0 for every picture of every batch, at every place, in every call
    of the ReLU. `batches` is a list of inputs, and none of them makes a nan. The model
    gives what it gives without your hooks, and none is left behind, by whatever way a
    call ends.
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
# The third patient has six linear layers, each with the weight [[1, 0], [0, 3]]. With the input [1, 0] the output is [1, 0]:
# the second number is 0 all the way, and nobody notices the 3. In backward it is not 0. The gradient starts as [1, 1], then
# it is [1, 3], [1, 9], [1, 27] …

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what the output of the network shows of the 3 in its weights: nothing. This patient is
# healthy in forward, and so it is worth asking how anybody would notice.

# %% tags=["setup"]
chain, x = make_chain(6), torch.tensor([[1.0, 0.0]], requires_grad=True)
chain(x).sum().backward()
bars(
    [round(each.weight.grad.norm().item(), 1) for each in chain],
    [f"layer {number}" for number in range(6)],
    title="On its way back to layer 0 the gradient triples in each layer",
    alt="The norms of the weights' gradients: 1.4 at layer 5, then 3.2, 9.1, 27, 81, and 243 at layer 0.",
)

# %% [markdown]
# The usual answer is to clip, which means to shorten what is too long (Pascanu et al., 2013). There are several places
# where you can, and they are not the same:
#
# | where | what is shortened |
# |---|---|
# | all together: `clip_grad_norm_` after backward | all gradients by *one* factor, from their total norm |
# | each parameter: `parameter.register_hook` | the gradient of each parameter by itself, as it arrives |
# | as it passes: `layer.register_full_backward_pre_hook` | the gradient that *passes*, before the layer uses it |


# %%
def shorten(gradient, limit=10.0):
    """The gradient, with a norm of `limit` at most."""
    return gradient * (limit / gradient.norm()).clamp(max=1)


def shorten_passing(module, grad_output):
    """A full backward pre-hook: the layer gets the shortened gradient."""
    return (shorten(grad_output[0]),)


# %% tags=["setup"]
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
# *All together* keeps the direction of the step, but the last layer, which did nothing wrong, hardly moves any more: 0.05
# instead of 1.41. With a limit *for each* parameter it keeps its 1.41, and the step points in another direction. The last two
# look alike here. Now make the chain longer: 3 to the power of 81 is more than float32 can hold.

# %% [markdown] tags=["sealed"]
# 100 layers. The gradients of the first ones have overflowed; that of the last one has the norm 1.41. `clip_grad_norm_`
# scales all of them to the total norm 1. What becomes of the last one?
#
# - [ ] 1.41, as before: This would be right if each layer had its own limit. There is one factor for all of them.
#   > In the chain of six layers, what did *all together* make of the last layer's 1.41? How many factors were there?
# - [ ] 0: If the total norm were infinite, the factor would be 1 / infinity = 0. But infinity has met a 0 in a matrix,
#   and infinity · 0 is nan.
#   > Say that the gradient is [1, infinity]. Multiply it by the weight, [[1, 0], [0, 3]]: what is the first number?
# - [x] nan: The total norm is nan, so the one factor is, and it multiplies every gradient, the healthy ones too.
#
# Clipping after backward is too late for a gradient that has overflowed, and `clip_grad_norm_` then spoils the
# healthy ones too. (With `error_if_nonfinite=True` it raises instead: use that.) A hook on each parameter saves
# the healthy layers. Only clipping **as it passes** reaches the first layer.

# %% tags=["predict"]
predict("last_of_a_hundred_layers")

# %%
for clip in ("all together", "each parameter", "as it passes"):
    found = norms_after(make_chain(100), clip)
    print(f"{clip:15} layer 0: {found[0]:5.2f}   layer 99: {found[-1]:5.2f}")

# %% tags=["why"]
why("last_of_a_hundred_layers")

# %% [markdown] tags=["more"]
# ### More: Exercise · Clip as it passes

# %% [markdown] tags=["sealed"]
# 2 points
# 1. The gradient has to be shortened before the layer uses it. Which of the four module hooks comes first in backward?
# 2. `register_full_backward_pre_hook`: `hook(module, grad_output)`, and it returns the new `grad_output`, a tuple. The
#    factor is limit / norm, and never above 1.


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
# ## A memory that grows
#
# The fourth patient is a notebook: with every run of one cell its memory grows. We run it three times.

# %%
validated = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)))
batch = torch.ones(32, 64)  # 32 rows of 64 numbers: 8 KiB
outputs = []


def run_the_cell():
    """The cell: a hook, and four batches of a validation."""
    validated.register_forward_hook(lambda module, args, output: outputs.append(output))
    for _ in range(4):
        validated(batch)


# %% [markdown] tags=["sealed"]
# the cell runs three times. Each run registers a hook that stores the output, and goes through 4 batches. How many
# outputs are in the list?
#
# - [ ] 4: This would be right if each run started with a new list and no hook was left. The list is kept.
#   > Which of these lines runs three times: `outputs = []`, or the one that registers the hook?
# - [ ] 12: 3 runs of 4 batches. But in the second run two hooks store, and in the third three.
#   > How many hooks are on the network in the second run? How many outputs does one batch add then?
# - [x] 24: 1 hook, then 2, then 3: 4 · 1 + 4 · 2 + 4 · 3.
#
# The hooks pile up, because nobody keeps their handles, and each of them stores. `count_hooks` is the first
# question to ask about a memory that grows. `list_hooks` finds hooks whose handles are lost.

# %% tags=["predict"]
predict("outputs_in_the_list")

# %%
for run in (1, 2, 3):
    run_the_cell()
    print(f"run {run}: hooks {count_hooks(validated)['forward hook']}, outputs in the list {len(outputs)}")

# %% tags=["why"]
why("outputs_in_the_list")

# %% [markdown]
# The second question: what does *one* stored output hold? `measure_memory` counts the bytes that live after four batches,
# for three ways to store.

# %% tags=["setup"]
for found in list_hooks(validated):
    del found.table[found.key]  # the handles are lost, so the hooks are taken out of their table
outputs.clear()
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
# Four outputs of 8 KiB are 32 KiB. With the graph it is four times that here, because each of the four layers has saved its
# own activation.
#
# The model holds the hook, the hook holds the list, the list holds the output, the output holds the graph. No `del` in the
# notebook reaches that chain, as a weak reference shows below. The cure has two halves: a **context manager**, so that the
# hook goes in any case, and a **number** (or a detached copy) in place of the tensor.


# %% tags=["setup"]
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
# ### Exercise · A watch that cannot leak

# %% [markdown] tags=["sealed"]
# 2 points
# 1. What has to be true when the block ends by an exception? And what does a list of norms keep alive?
# 2. `contextlib.contextmanager`: register, `yield` the list, and remove in a `finally`. A number is
#    `output.norm().item()`: a tensor would keep its graph.


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
# ## Second half: what does the answer depend on?
#
# You can begin here: after the first cells of the lesson, this half needs nothing of what stands above. It works on the
# picture network of lesson 07, and asks which part of a layer carries its answer.

# %% tags=["setup"]
net = load_picture_net()

# %% [markdown]
# ## Activation patching
#
# Only an experiment can tell whether an answer *depends* on a place. Run the network on one picture, the **target**, but let
# one layer give, in a **region**, what it gives for another picture, the **source**. If the answer moves to that of the
# source, this region of this layer carries it. This is activation patching, or causal tracing (Vig et al., 2020; Meng et
# al., 2022).
#
# Try it: drag a block over a picture. The picture on the right shows what it carries into the target. Where must it lie
# for the answer to turn? How small can it be? Must it grow in later layers? (Pairs 1 and 2 differ by a buoy, the others
# by a thing.)

# %% [markdown] tags=["instructor"]
# **On this slide:** Three minutes with the explorer come first. Ask for the smallest block that turns the answer, and
# in which layer; pairs will disagree, and the table afterwards settles it.

# %% tags=["explore"]
from course_utils.explorers import Patching

Patching(3, "honest", layer="features.6", row=0, column=0, size=1)

# %% [markdown]
# The same with a pencil: a layer with two places, and a logit of 3 · left - 1 · right.
#
# ```text
#  source  [4, 0]     logit  3 · 4 - 0 =  12
#  target  [0, 8]     logit  0 - 1 · 8 =  -8
#  left place from the source  [4, 8]     logit  12 - 8 = 4
# ```
#
# From -8 to 12 the distance is 20, and the logit moved 12 of it. So the left place carries 60% of the difference. A forward
# hook does the same:


# %%
def put_in(there, region):
    """A forward hook that hands on `there` inside the region, and the real output outside of it."""
    return lambda module, args, output: torch.where(region, there, output)


tiny = nn.Sequential(nn.Identity(), nn.Linear(2, 1, bias=False))
tiny[1].weight.data = torch.tensor([[3.0, -1.0]])
source, target = torch.tensor([[4.0, 0.0]]), torch.tensor([[0.0, 8.0]])
with tiny[0].register_forward_hook(put_in(source, torch.tensor([True, False]))):
    print("patched logit:", tiny(target).item())
print(f"recovered: {recovered(torch.tensor(4.0), torch.tensor(12.0), torch.tensor(-8.0)):.0%}")

# %% [markdown]
# ### A cat into a dog's place
#
# Pair 3 of the explorer differs in one respect: the same light, the same boat, but once a cat (the source) and once a dog
# (the target). We patch a layer's *whole* output, then parts of it.

# %% [markdown] tags=["sealed"]
# the *whole* output of one layer is taken from the cat's picture. After which layer must that be done, so that the
# network answers as it does for the cat?
#
# - [ ] only the first: It works there. But does anything else reach the next layers, wherever you patch?
#   > What does the fifth layer read: the picture, or what the fourth returns? What does it get if the fourth is
#   > patched?
# - [ ] only the last: It works there. But what follows an earlier layer sees nothing but that layer's output.
#   > You put in the cat's output at the first layer. At which of the later layers could the dog come back?
# - [x] any of them: What comes behind a layer of a chain sees its output and nothing else, so it cannot tell.
#
# In a chain of layers, whoever replaces the whole output of one layer replaces the picture. (A ResNet or a
# transformer has shortcuts, which lead around a layer. There it is a real question, and causal tracing became
# known for it.) In a chain the question is **where**: the animal's cells turn the answer, and the boat's
# cells do not. Even all the rest together does not, here and in ten of ten pairs.

# %% tags=["predict"]
predict("which_layer_to_patch")


# %% tags=["setup"]
def say(logits):
    """The answers about cat and dog in words."""
    return ", ".join(f"{KINDS[kind]}: {'yes' if logits[0, kind] > 0 else 'no'}" for kind in (cat, dog))


with_cat, with_dog = swap_pair(0)
source, target = with_cat.image[None], with_dog.image[None]
both = with_cat.masks[0] | with_dog.masks[0]
animal = F.max_pool2d(both[None].float(), 9, stride=1, padding=4) > 0  # 4 pixels wider
boat = with_cat.masks[1:] & ~animal
sizes = {"features.2": 56, "features.6": 28, "features.10": 14, "features.16": 14}

# %%
print(f"{'the target':13}{say(net(target))}")
for name in sizes:
    print(f"{name:13}{say(patch(net, name, source, target))}")
print("patched at     the animal           the boat             all but the animal")
for name, size in sizes.items():
    regions = [cells_of(mask, (size, size))[0] for mask in (animal, boat, ~animal)]
    regions[1:] = [each & ~regions[0] for each in regions[1:]]
    print(f"{name:13}" + "".join(f"  {say(patch(net, name, source, target, each)):19}" for each in regions))

# %% tags=["setup"]
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

# %% tags=["why"]
why("which_layer_to_patch")

# %% [markdown]
# ### The buoy, once more
#
# In lesson 07 the misled twin said "fish" where it saw a buoy. Here are 40 pictures without any fish, each drawn twice: with a
# buoy (source) and without one (target). We patch the buoy's cells alone, and with one more cell on each side.

# %% [markdown] tags=["instructor"]
# **On this slide:** Remind them of the detective story, where a buoy was painted out. Ask what this experiment can
# show that the painting could not: in which layer, and at which cells, the answer is carried.

# %% tags=["setup"]
twin = load_picture_net(misled=True)
no_fish = [kind for kind in KINDS if kind != "fish"]
with_buoy = scenes(40, seed=seed, kinds=no_fish, cue="buoy")
sources, targets = with_buoy.images / 255, scenes(40, seed=seed, kinds=no_fish).images / 255
names = ("features.2", "features.6", "features.10", "features.13", "features.16")
with torch.no_grad(), record(twin, *names) as seen:
    fish_there = twin(sources)[:, fish]
there = {name: seen[name].output for name in names}
with torch.no_grad():
    fish_here = twin(targets)[:, fish]
print("the twin sees a fish in", (fish_there > 0).sum().item(), "of 40 with the buoy")
print("and in", (fish_here > 0).sum().item(), "of 40 without it")

# %% [markdown] tags=["sealed"]
# only the cells of the buoy are patched, 2% of the map: into 40 pictures without a buoy in which the twin sees no fish.
# In how many does it see one now?
#
# - [ ] none: The other 98% of the map say that there is no fish, and the twin does not care.
#   > With the buoy drawn in, the twin sees a fish in 31 of these pictures. Where do the two pictures of a pair differ?
# - [ ] about 5: The heat map was right about this network: the buoy is not one cue among many.
#   > In lesson 07 the buoy was painted out and the fish stayed. How many fish did the twin find? Which other cue helped
#   > it?
# - [x] more than 25: With the buoy in the picture it sees one in 31. Nearly all of that is in 2% of the map.
#
# At `features.2`, 2% of the map are enough for 28 fish out of nothing, nearly all of the 31. That is the proof of
# lesson 07 once more, without painting. The first network is not moved. And the buoy is also *needed*: taken out,
# it leaves no fish.
#
# Read the first column downwards: the deeper the layer, the less the buoy's own cells carry. But the place is not
# lost. It has *spread* to the neighbours, because each 3x3 convolution reads one cell further: with one more cell
# on each side, 26 to 31 of the 31 fish are back at every layer.

# %% tags=["predict"]
predict("buoy_only")

# %%
print("patched:  the buoy's cells                   and one more on each side")
for name, output in there.items():
    cells = cells_of(with_buoy.cue_masks(), output.shape[2:])[:, None]
    wide = F.max_pool2d(cells.float(), 3, stride=1, padding=1) > 0
    line = f"{name:12}"
    for region in (cells, wide):
        with torch.no_grad(), twin.get_submodule(name).register_forward_hook(put_in(output, region)):
            logits = twin(targets)[:, fish]
        way = recovered(logits, fish_there, fish_here).median()
        line += f"{region.float().mean():6.0%} of the map: {(logits > 0).sum():2} fish, {way:4.0%}"
    print(line)
cells = cells_of(with_buoy.cue_masks(), there[layer].shape[2:])
first = (patch(net, layer, sources, targets, cells)[:, fish] > 0).sum()
left = (patch(twin, layer, targets, sources, cells)[:, fish] > 0).sum()
print(f"first network, patched at {layer}: {first} fish")
print(f"the twin, with the buoy taken out at {layer}: a fish in {left} of the {(fish_there > 0).sum()} pictures")

# %% tags=["why"]
why("buoy_only")

# %% [markdown]
# ### Patching and Grad-CAM
#
# Patch one cell after the other, and the effects make a map. At the last layer it is the CAM of the source minus the CAM of
# the target, over 196: the logit is the mean of the CAM plus a bias.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask when a small change and a large one would tell different stories. An answer that is told in
# two places is the case to remember.

# %% tags=["setup"]
source, target = (scene("car", "tree", seed=10, cue=cue).image[None] for cue in ("buoy", None))
effects = scan(twin, "features.16", source, target, fish)
difference = (class_maps(twin, source) - class_maps(twin, target))[0, fish] / 196
off = bool((effects - difference).abs().max() > 1e-3 * effects.abs().max())
print("effects and CAM differ by more than a thousandth of the largest effect:", off)
early = scan(twin, "features.7", source, target, fish, reach=1)
seen = relu(grad_cam(twin, source, "features.16", fish))
tiles = [draw_heat(source[0]), draw_heat(source[0], scale_to_unit(seen)[0])]
tiles += [draw_heat(source[0], centre(each), colours="RdBu_r") for each in (effects, early)]
show(
    grid(tiles, columns=4, labels=["the source", "Grad-CAM: fish", "patched: features.16", "patched: features.7"]),
    title="The experiment points where Grad-CAM points: at the buoy. Early, it is sharper",
    alt="A picture with a buoy. Grad-CAM and two maps of effects are strongest at the buoy.",
    jpeg=True,
)

# %% [markdown]
# The two agree here, and they need not: Grad-CAM asks what a *small* change would do, patching makes a *large* one. And an
# answer that is told in two places survives when one of them is taken out.
#
# ### Exercise · Patch

# %% [markdown] tags=["sealed"]
# 3 points
# 1. Two runs. The first one keeps what the layer gives for `source`; the second one puts a part of that in its place
#    for `target`.
# 2. What a forward hook returns takes the place of the output. `torch.where(region, one, other)` chooses place by
#    place; `region` is (h, w) and fits all channels.


# %% tags=["answer"]
def patched_logits(model, layer, source, target, region):
    """Return the logits (1, classes) of `model` for the picture `target` when the
    output of `layer`, (1, C, h, w), is inside `region` what it is for the picture
    `source`, and outside of it what it is for `target`.

    `layer` is a module of `model`, `region` (h, w) is bool, and all numbers are
    finite. Hooks of others belong to the layer. Nothing else changes, and no hook of
    yours is left, by whatever way a call ends.
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
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | Look for nan with `torch.isnan` in each layer. | Infinity comes first, one layer earlier: ask `torch.isfinite`, of inputs and output. |
# | `clip_grad_norm_` protects from exploding gradients. | From long ones. After an overflow it spreads the nan to all: use `error_if_nonfinite=True`. |
# | Append the output to a list in the hook. | It keeps the graph. Store a number or a detached copy, in a `with` block. |

# %% [markdown] tags=["instructor"]
# **On this slide:** Take the first row, and ask for the pair that names the guilty layer: good in, bad out. One of
# the two alone accuses the wrong one.

# %% [markdown]
# ## The case
#
# In lesson 00 the same fish on a meadow was no fish to the network. Patch it: at one layer, the meadow gets the
# cells in which the picture of the case has the buoy, and nothing else. For control, it gets those of the boat.

# %%
from course_utils.explorers import case

case_picture, suspect = case.open_case()
meadow = case.draw_case(("fish",), "grass").image
logits, parts = {}, {"the buoy": case_picture.cue_mask, "the boat": case_picture.masks[1]}
for part, mask in parts.items():
    cells = case.find_cells(mask, 28)
    logits[part] = patch(suspect, "features.6", case_picture.image[None], meadow[None], cells)[0, case.FISH]
    print(f"{part}: {cells.float().mean():.0%} of the map")
before, answers = case.ask_for_fish(suspect, meadow), [each.sigmoid().item() for each in logits.values()]
case.keep_clue(
    "08",
    f"The fish on the meadow: {before:.0%}. With the cells of the buoy patched in: {answers[0]:.0%}, with those of the "
    f"boat: {answers[1]:.0%}.",
    {name: outline(each, case_picture.cue_mask) for name, each in {"from": case_picture.image, "to": meadow}.items()},
)

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what is still missing for a verdict. One picture and one control are not many, and nobody has
# asked whether another network would do the same: lesson 10.

# %% [markdown]
# ## Summary
#
# - Guilt is a pair: good in, bad out. `isfinite`, not `isnan`; forward hooks for values, full backward hooks for gradients.
# - A dead unit is 0 for every input and gets no gradient. A hook may let one through to bring it back.
# - Clip all together to keep the direction, each parameter to keep the others alive, as it passes to prevent an overflow.
# - A leak is a chain: model → hook → list → output → graph. Count hooks, store numbers, use `with`.
# - Activation patching proves what a map suggests. In a chain, patch parts.

# %% [markdown] tags=["instructor"]
# **On this slide:** Name the four patients, and let the room say the one hook that found each of them. Which of the
# four would their own training loop have noticed?

# %% [markdown]
# ## Go further
#
# - Pascanu, Mikolov & Bengio, [On the difficulty of training recurrent neural networks](https://arxiv.org/abs/1211.5063) (2013): clipping.
# - He et al., [Delving Deep into Rectifiers](https://arxiv.org/abs/1502.01852) (2015): a good start against dead units.
# - Meng et al., [Locating and editing factual associations in GPT](https://arxiv.org/abs/2202.05262) (2022): patching.
# - Lesson 09 looks up every hook there is, and lesson 10 closes the case. After that, the best next step is a network of
#   your own, and a question about it.

# %% [markdown] tags=["instructor"]
# **On this slide:** At home: the exercises that were left out. Whoever has had one of the four faults in their own work
# should write down which hook would have found it, and bring it to the last session.
