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
# # retain_grad or a hook
#
# In this lesson the patient learns well, but its training uses more and more memory. In a larger network, this ends with
# the message "out of memory". To find the cause, you need to know what keeps a tensor alive.
#
# There are two ways to get at the gradient of a result. You can ask the tensor to keep it, or you can look at it with a
# hook while backward runs. They differ in *which* gradient you get, and in what it costs.
#
# ## What you will be able to do
#
# - **Keep** the gradient of a result with `retain_grad()`, and **explain** the warning that you get without it.
# - **Predict** which gradient is kept when there are hooks, in-place changes, or several backward passes.
# - **Measure** the memory of a backward pass, and **find** what makes it grow.
# - **Choose** between `retain_grad`, a hook and `torch.autograd.grad` for a task.
# - **Shrink** what forward saves for backward, and **name** the price.
#
# **Minutes:** counted by the build
#
# Run a cell with Shift+Enter. Where you see **Predict**, commit to an answer before you run the next cell.

# %% [markdown] tags=["instructor"]
# **Plan for 90 minutes**
#
# | Minutes | Sections | In the room | At home |
# |---|---|---|---|
# | 0 to 4 | A training that fills the memory | collect guesses, and vote; write the votes down and take none of them up yet | nothing |
# | 4 to 17 | Asking a tensor to keep its gradient · Reading .grad where there is none | exercise {gradients_of_all}; collect the ways to get `None` from the room before you show them | nothing |
# | 17 to 34 | Before or after the hooks? | the explorer in pairs; the prediction with discussion and a second vote; exercise {arrived_and_passed_on} | nothing |
# | 34 to 39 | Pause | a rest, or time to finish an exercise | nothing |
# | 39 to 50 | What it costs | one vote; guesses for the four bars, then the chart | nothing |
# | 50 to 73 | One row of each gradient · When to use which | the prediction with discussion and a second vote; exercise {keep_first_row}; a task of yours, to be found in the table | the sigmoids; exercise {record_norms} |
# | 73 to 76 | What forward saves for backward | guess the number before the cell runs | nothing |
# | 76 to 86 | The patient, before and after · What old tutorials say · The case · Summary · Go further | the prediction with discussion and a second vote; the votes of the beginning | the table |
#
# **Homework:** Exercise {record_norms}. Whoever trains large networks should read the parts *Hooks on saved tensors*
# and *When saving less goes wrong*.

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
import warnings

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from course_utils.exercises import check, hint, predict, replay, solution, why
from course_utils.hooks.memory import measure_memory
from course_utils.lessons.lesson_02 import (
    arrived_and_passed_on,
    count_saved_bytes,
    gradients_of_all,
    keep_first_row,
    multiply_in_place,
    record_norms,
    save_as_half,
)
from course_utils.lessons.patient import Patient, admit, draw_curves, loss_of, train
from course_utils.vision.charts import bars

# %% [markdown]
# ## A training that fills the memory
#
# This is the patient of lesson 01 after its cure. Somebody wants to draw charts of the training, so after each of 30
# steps the program notes three things: the norm of a gradient, one row of the same gradient, and the new loss.
# `measure_memory` counts the bytes of all tensors that are alive.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask each person for one of the three notes as a suspect, and write the votes down. Ask for the
# reason as well, and leave the question open until the end: there may be more than one culprit.


# %%
MIB = 2**20


def watch_training(note_gradient, note_network):
    """Train for 30 steps, take notes, and return the MiB that are alive after each step."""
    net, notes, alive = admit(Patient), [], []
    net.second.weight.register_hook(lambda grad: notes.append(note_gradient(grad)))

    def after_step():
        notes.append(note_network(net))
        alive.append(memory.live / MIB)

    with measure_memory() as memory:
        train(net, 30, after_step)
    return alive


before = watch_training(lambda grad: (grad.norm(), grad[0]), loss_of)

# %% tags=["setup"]
draw_curves(
    {"this training": before},
    title="The memory grows with every step",
    alt=f"The memory in use over 30 training steps. It grows on a straight line from {before[0]:.1f} to {before[-1]:.1f} MiB.",
    ylabel="MiB alive",
    guessing=False,
)

# %% [markdown]
# The network itself has only about 4 KiB of weights, and the notes look even smaller. So something keeps much more memory
# alive than it seems.

# %% [markdown]
# ## Asking a tensor to keep its gradient
#
# Here is the vector graph of lesson 01 again: z = x + y and o = w · z, with x = [0, 1, 2, 3], y = [4, 5, 6, 7] and w =
# [1, 2, 3, 4]. `z` and `o` are results, so after backward their gradients are normally gone. `retain_grad()` asks a
# tensor to keep its gradient.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what `z.grad` would be if the line with `retain_grad()` stood below `backward()`. The next
# section shows it; whoever says that it works takes it for a way to ask afterwards.


# %% tags=["setup"]
def vector_graph():
    """The leaves x, y, w of four numbers each, then z = x + y and o = w · z."""
    x = torch.tensor([0.0, 1.0, 2.0, 3.0], requires_grad=True)
    y = torch.tensor([4.0, 5.0, 6.0, 7.0], requires_grad=True)
    w = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    z = x + y
    return x, y, w, z, w @ z


# %%
x, y, w, z, o = vector_graph()
z.retain_grad()
o.retain_grad()
o.backward()
print("z.grad =", z.grad.tolist())
print("o.grad =", o.grad.item())

# %% [markdown]
# The gradient of `z` is `w`. Backward starts at `o`, so the gradient of `o` is 1. We could read both after backward,
# without a hook.
#
# On a leaf `retain_grad()` does nothing, because a leaf keeps its gradient anyway. On a tensor that requires no
# gradient, it raises an error.
#
# ### Exercise · The gradients of all tensors
#
# Replace the `...` in the answer cell, run the cell, and then run the `check` below it. A check tells you what is wrong
# and for which input. If you are stuck, run `hint(gradients_of_all)` in a new cell. After three attempts,
# `solution(gradients_of_all)` shows an answer.

# %% [markdown] tags=["sealed"]
# 1 point
# 1. After a plain backward only leaves have a `.grad`. What do you ask of the others, and when?
# 2. `tensor.retain_grad()` must be called before backward. On a leaf it does nothing, so you may call it on all.


# %% tags=["answer"]
def gradients_of_all(tensors):
    """Run one backward from the last of `tensors` (a dict of name to tensor);
    return the gradients of all, by name.

    The dict holds leaves and results alike, and none has a gradient or a hook yet.
    The last one is a single number, which was computed from all the others.
    Afterwards the graph is freed, as usual, and no hook of yours is left.
    """
    ...


# %% tags=["check"]
check(gradients_of_all)

# %% [markdown]
# ## Reading .grad where there is none
#
# If you read the `.grad` of a result without `retain_grad()`, you get `None`, and PyTorch warns you. In a notebook such
# a warning is easy to overlook, so here we catch it and print its first sentence.

# %% [markdown] tags=["instructor"]
# **On this slide:** Collect the ways to get `None` before you show the list. Point out that the harmless case warns
# and that the harmful ones do not.


# %% tags=["setup"]
def read_grad(tensor):
    """Print `tensor.grad`, and the first sentence of each warning that comes with it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        print(".grad =", tensor.grad)
    for warning in caught:
        print(f"{warning.category.__name__}: {str(warning.message).split('. ')[0]}.")


# %%
x, y, w, z, o = vector_graph()
o.backward()
read_grad(z)

# %% [markdown]
# The warning means: "You ask a result for its gradient, but nobody asked in time to keep it." Perhaps you forgot
# `retain_grad()`. Or you wanted a leaf and have a result: `w = torch.ones(3, requires_grad=True) * 0.1` is a result,
# because of the `* 0.1`.
#
# There are also cases in which you get `None` and **no** warning.

# %%
unused = torch.ones(4, requires_grad=True)
with torch.no_grad():
    untracked = x + y
z.retain_grad()  # too late: backward has already run
cases = {
    "asked too late": z,
    "detached": z.detach(),
    "made under no_grad": untracked,
    "a leaf that was not used": unused,
}
for what, tensor in cases.items():
    print(f"{what:<25}", end="")
    read_grad(tensor)

# %% [markdown]
# `z` is now asked to keep its gradient, so PyTorch sees no reason to warn, but this counts only from the next backward
# pass on. The detached tensor and the one made under `no_grad` require no gradient at all. No gradient ever arrives at
# a leaf that takes no part in the computation.

# %% [markdown] tags=["instructor"]
# **Misconception:** "`requires_grad=True` means that `.grad` will be there." **Ask:** "Which of x, z, o require a
# gradient? Which of them keep it? Who decides?" **Answer:** all three; only x; you do, with `retain_grad()`.
#
# **Misconception:** "`retain_graph` and `retain_grad` are the same." **Ask:** "Which of the two keeps numbers, and
# which keeps the recipe to compute them?" **Then show:** call backward twice without `retain_graph`, and read the error
# together.
#
# **For discussion:** `w = torch.ones(3, requires_grad=True) * 0.1` is the classic. How would you write it? (Scale
# first, then call `requires_grad_()`.)

# %% [markdown]
# ## Before or after the hooks?
#
# In the panel below, `z` has two hooks, and `retain_grad` was called **between** them. The card of `z` shows its
# gradient and, below that, its `.grad`.
#
# 1. [1, 2, 3, 4] arrives at `z`. What will its gradient be when all hooks have run? Choose `z` under *I expect at*,
#    type the four numbers, press *Commit*, and go on with *Next*.
# 2. Compare the gradient of `z` with its `.grad`. Then switch `retain_grad` off, and add it again as the last one of
#    the three. Does `z.grad` change?

# %% [markdown] tags=["instructor"]
# **On this slide:** Let each pair write down two numbers for `z`: the gradient and the `.grad`. Whoever expects them
# to differ thinks of `retain_grad` as a hook with a place in the queue, and the explorer is the place to find out.

# %% tags=["explore"]
from course_utils.explorers import GradientFlow

GradientFlow("dot product", hooks=[("z", "times 2"), ("z", "retain_grad"), ("z", "times 6")])

# %% [markdown]
# Now the same in code, with other numbers. The first hook doubles, the second multiplies by 10, and `retain_grad()` is
# called between the two.

# %% [markdown] tags=["sealed"]
# `z` gets a hook that doubles, then `retain_grad()`, then a hook that multiplies by 10. The gradient arrives as [1,
# 2, 3, 4]. What is `z.grad`?
#
# - [ ] [1, 2, 3, 4]: That is what arrives. Both hooks have worked on it before it is kept.
#   > The cell printed `x.grad` too. Which hooks has that gradient passed, and is `z.grad` the same or another one?
# - [ ] [2, 4, 6, 8]: This would be right if `retain_grad` stood in the queue of hooks. But it always comes last.
#   > In the explorer, `retain_grad` stood between the two hooks, and then last. What was `z.grad` each time?
# - [ ] [10, 20, 30, 40]: Both hooks run, in the order of their registration, wherever `retain_grad` was called.
#   > For this result, one of the two hooks must not have run. Which one, and what would have stopped it?
# - [x] [20, 40, 60, 80]: `retain_grad` keeps the gradient after all hooks, just as it is passed on.
#
# `z.grad` is the same as `x.grad`: both hooks ran before the gradient was kept. `retain_grad` is not one more
# hook in the queue of hooks. It always comes last, wherever you call it. So `z.grad` is the gradient that `z`
# **passes on**, not the one that arrived.

# %% tags=["predict"]
predict("around_retain_grad")

# %%
x, y, w, z, o = vector_graph()
z.register_hook(lambda grad: grad * 2)
z.retain_grad()
z.register_hook(lambda grad: grad * 10)
o.backward()
print("z.grad =", z.grad.tolist())
print("x.grad =", x.grad.tolist())

# %% tags=["why"]
why("around_retain_grad")

# %% [markdown]
# If you want to see the gradient that *arrives*, register a hook of your own before the others.

# %%
x, y, w, z, o = vector_graph()
z.retain_grad()
z.register_hook(lambda grad: print("arrived:  ", grad.tolist()))
z.register_hook(lambda grad: grad * 2)
z.register_hook(lambda grad: grad * 10)
o.backward()
print("passed on:", z.grad.tolist())

# %% [markdown]
# ### Exercise · What arrives, and what is passed on

# %% [markdown] tags=["sealed"]
# 2 points
# 1. Which of two hooks on one tensor runs first? And when does `retain_grad` keep the gradient?
# 2. Register your own hook before `hooks`; it stores a copy of what arrives. Where you call `retain_grad()` does not
#    matter.


# %% tags=["answer"]
def arrived_and_passed_on(tensor, hooks):
    """Register `hooks` on `tensor`, in their order, and make both ends of this queue
    visible.

    Return a list that will receive a copy of each gradient as it arrives, before
    the first of `hooks`. `tensor.grad` keeps the gradient as it is passed on, after
    the last of them. The list `hooks` stays as it is.
    """
    ...


# %% tags=["check"]
check(arrived_and_passed_on)

# %% [markdown]
# ## What it costs
#
# Many tutorials say: "`retain_grad` costs memory, a hook does not." We can measure it.
#
# `measure_memory()` watches every operation in its block, and it counts the bytes of the tensors that operations
# return, for as long as they live. It does not see what an operation frees before it returns, and so the numbers are the
# same on every machine.
#
# The network is as simple as it can be: tanh, 16 times in a chain. Each activation has 256 by 1024 numbers, which is
# exactly 1 MiB.

# %% [markdown] tags=["instructor"]
# **On this slide:** Explain the unit first: one activation is 1 MiB, so every answer can be read as a number of
# gradients. Then let them guess all four bars before any of them is measured.


# %% tags=["setup"]
def tanh(tensors):
    return torch.tanh(tensors[-1])


def peak_of_backward(prepare=lambda activation: None, layer=tanh):
    """The most MiB of gradients that are alive at once in backward, with each activation prepared."""
    kept.clear()
    tensors = [torch.zeros(256, 1024, requires_grad=True)]
    for _ in range(16):
        tensors.append(layer(tensors))
        prepare(tensors[-1])
    loss = tensors[-1].mean()
    with measure_memory() as memory:
        loss.backward()
    return memory.peak / MIB


kept = []  # what the hooks keep

# %% [markdown]
# We begin without any hook. Backward computes a gradient for each of the 16 activations, and one more for the leaf.

# %% [markdown] tags=["sealed"]
# 16 activations of 1 MiB each, in a chain, without any hook. How many MiB of gradients are alive at the peak of
# backward?
#
# - [ ] 1: To compute the next gradient, the one before must still be there: two at a time.
#   > While backward computes the gradient of activation 7, which other gradient does it still need?
# - [x] 2: The gradient that arrives and the one computed from it. Then the first is freed.
# - [ ] 16: This would be right if all were kept. Each is freed as soon as the next one is computed.
#   > Backward has come to activation 3. Who still needs the gradient of activation 15?
# - [ ] 17: This would be right if all were kept, and also the one of x.
#   > After backward, which of the 17 tensors has a `.grad` that you can read? What became of the other 16 gradients?
#
# At any moment there are the gradient that arrived and the one that is computed from it. Then the first of the
# two is freed. This is the reason why PyTorch does not keep the gradients of results: a chain of a thousand
# layers would need no more than this one. (To be exact, there are 4 bytes more, for the gradient of `loss`.)

# %% tags=["predict"]
predict("gradients_alive")

# %%
print(f"{peak_of_backward():.2f} MiB")

# %% tags=["why"]
why("gradients_alive")

# %% [markdown]
# Now we call `retain_grad()` on every activation. Then we try a hook that keeps the gradient, and a hook that keeps only
# one number.


# %%
def one_number(activation):
    activation.register_hook(lambda grad: kept.append(grad.norm().item()))


def whole_gradient(activation):
    activation.register_hook(lambda grad: kept.append(grad))


peaks = {
    "neither": peak_of_backward(),
    "a hook that keeps one number": peak_of_backward(one_number),
    "a hook that keeps the gradient": peak_of_backward(whole_gradient),
    "retain_grad()": peak_of_backward(torch.Tensor.retain_grad),
}
for way, peak in peaks.items():
    print(f"{way:<32}{peak:5.2f} MiB")

# %% tags=["setup"]
bars(
    list(peaks.values()),
    list(peaks),
    title="It is keeping gradients that costs memory, not the hook",
    unit="MiB",
    alt="Gradients alive at the peak of backward through 16 activations of 1 MiB. Two bars are short and two are long: "
    + ", ".join(f"{way} {peak:.0f} MiB" for way, peak in peaks.items())
    + ".",
)

# %% [markdown]
# So the sentence is only half true.
#
# - A hook that keeps **a number** costs nothing here.
# - A hook that keeps **the gradient** costs 17 MiB. What saves memory is not the hook, but what the hook throws away.
# - `retain_grad()` on every activation costs 18 MiB. It keeps 16 gradients, and two more are in use as before. A kept
#   gradient lives as long as its tensor, and here we hold all activations in a list.
#
# Why 18 and not 17? `retain_grad` keeps a *copy*. The hook kept the very tensor that is passed on. This takes 1 MiB
# less, but it is unsafe: if anybody changes that tensor in place, your record changes too (lesson 01).

# %% [markdown]
# ## One row of each gradient
#
# Suppose you need only one row of each gradient. So the hook keeps `grad[0]`, which has 1024 numbers, or 4 KiB.

# %% [markdown] tags=["sealed"]
# each of 16 hooks keeps only `grad[0]`, one row of 256. How many MiB of gradients are alive at the peak?
#
# - [ ] 2: That is what one would want. But `grad[0]` is a view: it keeps the memory of the whole gradient alive.
#   > Where in memory are the numbers of `grad[0]`? Can PyTorch free the other 255 rows while you keep this one?
# - [ ] 2.06: This is right for `grad[0].clone()`. `grad[0]` alone is a view into the whole gradient.
#   > To get 2.06 MiB, each row needs 4 KiB of its own. Which of the two hooks in the cell makes this new memory, and
#   > how?
# - [x] 17: Each view keeps its whole gradient of 1 MiB alive, and that of the leaf is added.
#
# `grad[0]` is a **view**. It has no memory of its own, and it keeps the memory of the whole gradient alive. A
# copy of the row takes 4 KiB, and 16 copies take the 0.06 MiB that you see in the second line. `detach()` would
# not help, because it makes a view too.

# %% tags=["predict"]
predict("slices_kept")


# %%
def first_row(activation):
    activation.register_hook(lambda grad: kept.append(grad[0]))


def copy_of_first_row(activation):
    activation.register_hook(lambda grad: kept.append(grad[0].clone()))


print(f"grad[0]           {peak_of_backward(first_row):5.2f} MiB")
print(f"grad[0].clone()   {peak_of_backward(copy_of_first_row):5.2f} MiB")

# %% tags=["why"]
why("slices_kept")

# %% [markdown]
# ### Exercise · One row and no more

# %% [markdown] tags=["sealed"]
# 2 points
# 1. `grad[0]` looks small. Whose memory are its numbers in?
# 2. A view keeps the storage of the whole tensor alive. A copy of the view has a storage of its own.


# %% tags=["answer"]
def keep_first_row(tensor):
    """Return a list that will receive a copy of the first row of each gradient of
    `tensor`, which has two dimensions: a tensor for each backward.

    The list keeps those rows alive and nothing else: not one byte of the other
    rows.
    """
    ...


# %% tags=["check"]
check(keep_first_row)

# %% [markdown]
# ### What one number per layer is good for
#
# This chain is made of sigmoids. Each hook keeps the mean size of its gradient.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask for the factor from one layer to the next before you show it. The slope of a sigmoid is 1/4
# at most, so seven layers leave less than 1/16,000.

# %%
h, sizes = torch.zeros(256, 1024, requires_grad=True), {}
for layer in range(1, 9):
    h = torch.sigmoid(h)
    h.register_hook(lambda grad, layer=layer: sizes.update({layer: grad.abs().mean().item()}))
h.sum().backward()
for layer, size in sizes.items():
    print(f"layer {layer}: {size:.1e}")

# %% [markdown]
# Each sigmoid lets less than a quarter of the gradient through, and after seven of them almost nothing is left. This is called the **vanishing gradient**.
#
# ### Exercise · One number per layer

# %% [markdown] tags=["sealed"]
# 2 points
# 1. Gradients arrive from the last activation to the first. Your list is in the other order.
# 2. Make the list first, with one None per tensor. Each hook must know its own place; a lambda looks its variables up when it
#    runs, so bind the place: `lambda grad, place=place: ...`


# %% tags=["answer"]
def record_norms(activations):
    """Return a list with a place for each tensor of `activations`: backward puts
    the norm of its gradient there.

    The order is that of `activations`. A norm is a Python float; a place is None
    until a gradient has arrived, and a later backward replaces it. No gradient is
    kept, and none is changed.
    """
    ...


# %% tags=["check"]
check(record_norms)

# %% [markdown] tags=["instructor"]
# **Misconception:** "A hook saves memory." **Ask:** "Two hooks, 2 MiB and 17 MiB. What is the difference between them?"
# **Answer:** what they keep. **Then ask:** "`kept.append(grad.norm())` without `.item()`: how much does it keep?" (4
# bytes a layer: a small tensor of its own. With `create_graph=True` it would keep the graph, so `.item()` is the safe
# habit.)
#
# **Misconception:** "`grad[0]` is small, so keeping it is cheap." **Ask:** "Whose memory does it look at?" **Expect:**
# "`detach()` will help." **Then show:** it does not: `grad[0].detach().untyped_storage().nbytes()` is the whole
# gradient.
#
# **For discussion:** why two MiB alive at once in a chain, and not one, and not 17? (The gradient that arrives and the
# one computed from it; then the first is freed.)

# %% [markdown]
# ## When to use which
#
# | You want | Use | Because |
# |---|---|---|
# | to read the gradient of a few results while you debug | `retain_grad()` | it is one line, and costs a copy of each |
# | one number per layer, in every training step | a hook that keeps `.item()` | it keeps no gradient alive |
# | the gradient of one result, once | `torch.autograd.grad(loss, z)` | it returns the gradient, and nothing stays behind |
# | to change a gradient | a hook that returns the new one | `retain_grad` only keeps |
# | the gradient as it arrives | a hook, registered before all others | hooks run in order |
# | the gradient as it is passed on | `retain_grad()` | it comes after all hooks |
# | a part of the gradient | a hook that keeps a `.clone()` of the part | a view keeps the whole gradient |

# %% [markdown] tags=["instructor"]
# **On this slide:** Do not read the table aloud. Name a task of your own, such as a chart of gradient norms, and let
# the room find its row.

# %% [markdown]
# ## What forward saves for backward
#
# In the chain, two MiB of gradients were alive at a time. But how much memory does forward fill before backward begins?
# tanh saves its result, because its derivative is 1 - result². We measure what is alive when forward has ended and we
# hold nothing but the loss.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what the network must remember to go backward through `tanh`, through a sum and through a
# product. The sum is the surprise: it saves nothing.


# %% tags=["setup"]
def tanh_chain(h, depth=16):
    """Apply tanh `depth` times."""
    for _ in range(depth):
        h = torch.tanh(h)
    return h


def measure_training_step(forward):
    """Go forward and backward; return the MiB saved for backward, and the gradient."""
    x = torch.linspace(-2, 2, 256 * 1024).reshape(256, 1024).requires_grad_()
    with measure_memory() as memory:
        loss = forward(x).mean()
        saved = memory.live
        loss.backward()
    return saved / MIB, x.grad


# %%
saved, exact = measure_training_step(tanh_chain)
print(f"saved for backward: {saved:.2f} MiB")

# %% [markdown]
# 16 MiB is eight times as much as the gradients. Most of the memory of training goes here. Backward frees what was saved
# as soon as it has used it.

# %% [markdown]
# ## The patient, before and after
#
# Back to the training that filled the memory. After each step the program noted `grad.norm()`, `grad[0]` and
# `loss_of(net)`.

# %% [markdown] tags=["sealed"]
# the training notes `grad.norm()`, `grad[0]` and `loss_of(net)` after each step. Which note keeps the most memory
# alive?
#
# - [ ] grad.norm(): The norm is a tensor of its own with one number, so it keeps 8 bytes alive.
#   > How many numbers are in `grad.norm()`? Does it look at the memory of the gradient, or does it have its own?
# - [ ] grad[0]: It keeps the whole gradient alive, but the gradient of this layer is small: 2 KiB.
#   > The memory grows by about 330 KiB a step. How much of it is the gradient of `second.weight`, 16 · 16 numbers of 8
#   > bytes?
# - [x] loss_of(net): This loss has a graph, and no backward ever frees what forward saved for it.
# - [ ] all three the same: They are all short to write, but they keep different things alive.
#   > Take the notes one by one. Which of them is a view, which has a `grad_fn`, and which has neither?
#
# - `grad.norm()` is a new tensor with one number: 8 bytes.
# - `grad[0]` is a view, so the whole gradient of 2 KiB stays alive in each step.
# - `loss_of(net)` is one number too, but it is a **result**: it holds its graph, and the graph holds everything
#   that forward saved. The loss in the training itself is harmless, because its backward frees what was saved.
#   For this one nobody calls backward. So each step keeps about 328 KiB.
#
# `.item()` turns a loss or a norm into a plain number, and `.clone()` makes a copy of the row.

# %% tags=["predict"]
predict("patient_memory")


# %%
def nothing(_):
    """Note nothing."""


notes = {
    "only grad.norm()": (lambda grad: grad.norm(), nothing),
    "only grad[0]": (lambda grad: grad[0], nothing),
    "only loss_of(net)": (nothing, loss_of),
}
for what, (note_gradient, note_network) in notes.items():
    alive = watch_training(note_gradient, note_network)
    print(f"{what:<18}{(alive[-1] - alive[0]) / 29 * 1024:7.2f} KiB in each step")

# %% tags=["why"]
why("patient_memory")

# %% [markdown]
# The cure keeps the same three notes, but as plain numbers and a copy.

# %%
after = watch_training(lambda grad: (grad.norm().item(), grad[0].clone()), lambda net: loss_of(net).item())

# %% tags=["setup"]
draw_curves(
    {"before": before, "after": after},
    title="After the cure, the memory stays where it was",
    alt=f"The memory in use over 30 training steps. Before the cure it grows on a straight line to {before[-1]:.1f} MiB. After "
    f"the cure it stays at {after[-1]:.1f} MiB.",
    ylabel="MiB alive",
    guessing=False,
)

# %% [markdown]
# The notes are as good as before, and the memory stays where it was. Here the patient's story ends. The parts called *More*
# can wait: the lesson goes on with [what old tutorials say](#What-old-tutorials-say).

# %% [markdown] tags=["more"]
# ## More: Other graphs, changed values, a second pass
#
# Here are four short cases: two graphs for a pencil, a tensor that is changed in place, a second backward pass, and
# networks that are not a chain.

# %% [markdown]
# ### Two graphs of lesson 01 once more
#
# Check the gradients of the results with a pencil, and then run the cell: first x = 3, y = x - 2 and z = (y - x)², then five
# ones in `a`, b = 2a and c = mean(b).

# %%
x = torch.tensor(3.0, requires_grad=True)
y = x - 2
z = (y - x) ** 2
y.retain_grad()
z.retain_grad()
z.backward()
print(f"y.grad = {y.grad.item():g}   z.grad = {z.grad.item():g}   x.grad = {x.grad.item():g}")

a = torch.ones(5, requires_grad=True)
b = 2 * a
b.retain_grad()
b.mean().backward()
print("b.grad =", [round(value, 6) for value in b.grad.tolist()])
print("a.grad =", [round(value, 6) for value in a.grad.tolist()])

# %% [markdown]
# `y` receives 2 · (y - x) = -4. `x` receives this -4 and another 4 on its direct path, so its gradient is 0. Each
# number in `b` makes up one fifth of the mean.

# %% [markdown]
# ### A tensor that is changed in place later
#
# From lesson 01 you know that a hook belongs to the values that the tensor had when the hook was registered. What about
# `retain_grad()`, if it is called on `h` before `h.mul_(10)`?

# %% [markdown] tags=["sealed"]
# `retain_grad()` is called on `h`, then `h.mul_(10)`, then `h.sum().backward()`. What is each number in `h.grad`?
#
# - [x] 1: `retain_grad` moves on with the tensor: `h.grad` is the gradient of the values that h has now.
# - [ ] 10: That is the gradient of the values that h had before. A hook registered then would see it.
#   > `h` has had two values. To which of them does the gradient 10 belong, and which one do you see if you print `h`?
# - [ ] None: A tensor changed in place still keeps its gradient.
#   > Compare `h.mul_(10)` with `h = h * 10`. After which of the two is `h` still the tensor on which you called
#   > `retain_grad()`?
# - [ ] an error: In-place changes are allowed here: nothing needs the old values of h.
#   > Which operation would need the old values of `h` in backward: `3 * x`, `mul_(10)` or `sum()`?
#
# The hook stayed with the old values, whose gradient is 10. `retain_grad` moved on with the tensor: `h.grad` is
# 1, the gradient of the values that `h` has **now**. This makes sense, because whoever reads `h` and `h.grad`
# side by side expects that the two belong together. In real networks, an in-place ReLU after a layer has the same
# effect.

# %% tags=["predict"]
predict("retain_then_change")

# %%
x = torch.tensor([1.0, 2.0], requires_grad=True)
h = 3 * x
h.register_hook(lambda grad: print("the hook from before sees", grad.tolist()))
h.retain_grad()
h.mul_(10)
h.sum().backward()
print("h.grad =", h.grad.tolist())

# %% tags=["why"]
why("retain_then_change")

# %% [markdown]
# ### Exercise · Before and after a change

# %% [markdown] tags=["sealed"]
# 2 points
# 1. A hook belongs to the values that the tensor has when you register it. You need two hooks, at two moments.
# 2. `tensor.mul_(factor)` is the in-place product, and autograd follows it. One hook goes before it, one after.


# %% tags=["answer"]
def multiply_in_place(tensor, factor):
    """Multiply `tensor` by `factor` in place; return a dict that backward will fill
    with two gradients.

    Under "before" is a copy of the gradient of the values that `tensor` came with,
    under "after" a copy of that of the values it has now. A later backward replaces
    both.
    """
    ...


# %% tags=["check"]
check(multiply_in_place)

# %% [markdown]
# ### Two backward passes
#
# We come back to the vector graph, where the gradient of `z` is [1, 2, 3, 4]. This time we go backward twice.

# %% [markdown] tags=["sealed"]
# `z.retain_grad()`, then `o.backward(retain_graph=True)`, then `o.backward()`. The gradient of `z` is [1, 2, 3, 4]
# each time. What is `z.grad`?
#
# - [ ] [1, 2, 3, 4]: This would be right if each backward replaced the last. It adds, as it does on a leaf.
#   > What happens to the `.grad` of a weight if you call backward twice without `zero_grad()`?
# - [x] [2, 4, 6, 8]: A kept gradient adds up over backward passes, just like the `.grad` of a leaf.
# - [ ] None: `retain_grad` lasts as long as the tensor; it is not used up by the first backward.
#   > After the first pass, `z.grad` held numbers. Which line of the cell would take them away?
#
# The gradients add up, as they do on a leaf. But `first`, which we took after the first pass, has not changed. On
# a result the sum is a new tensor, and the old one stays as it is. If you want the passes apart, set `z.grad =
# None` between them.

# %% tags=["predict"]
predict("second_backward")

# %%
x, y, w, z, o = vector_graph()
z.retain_grad()
o.backward(retain_graph=True)
first = z.grad
o.backward()
print("z.grad =", z.grad.tolist())
print("first  =", first.tolist())

# %% tags=["why"]
why("second_backward")

# %% [markdown]
# `torch.autograd.grad` is known for leaving no trace in `.grad`. This is true of leaves:

# %%
x, y, w, z, o = vector_graph()
z.retain_grad()
(returned,) = torch.autograd.grad(o, x)
print("returned:", returned.tolist(), "  x.grad =", x.grad, "  z.grad =", z.grad.tolist())

# %% [markdown]
# `x.grad` is still None. But `z` was asked to keep its gradient, and it does so in **every** backward pass. If all you
# want is the gradient of one result, you need neither `retain_grad` nor a hook: `torch.autograd.grad(o, z)` returns it,
# and nothing stays behind.

# %% [markdown] tags=["instructor"]
# **Misconception:** "`retain_grad` is a hook that I register at this line." **Ask:** "Three cells speak against it.
# Which?" **Answer:** it comes after all hooks, wherever it was called; it moves on to the values after an in-place
# change; it lasts over all passes. **Then ask:** "What would a hook at this line have shown in each?" (The gradient
# after some of the hooks; the gradient of the old values; the same in each pass, not the sum.)
#
# **Misconception:** "`torch.autograd.grad` leaves no trace." **Ask:** "Then why is z.grad not None?" **Answer:** z was
# asked to keep its gradient, and every pass counts.
#
# **For discussion:** `first` did not change in the second pass, although `z.grad` did. Is that so for a leaf? (No: on a
# leaf the sum is usually made in place. Clone what you want to keep.)

# %% [markdown]
# ### Networks that are not a chain
#
# In the chain, two gradients were alive at a time. In other networks, some gradients have to wait for each other. A
# residual block adds its input to the output of its two layers. In a densely connected network, every layer uses all
# activations before it.


# %%
def residual(tensors):
    return tensors[-1] + torch.tanh(torch.tanh(tensors[-1]))


def dense(tensors):
    return torch.tanh(torch.stack(tensors).sum(dim=0))


for layer in (tanh, residual, dense):
    print(f"{layer.__name__:<9}{peak_of_backward(layer=layer):5.2f} MiB")

# %% [markdown]
# In the residual network, one more gradient waits until both paths of a block are done. In the dense network, every
# activation receives a part of its gradient from each later layer, so all 17 gradients have to wait.

# %% [markdown] tags=["more"]
# ## More: Hooks on saved tensors
#
# What forward saves takes much more memory than the gradients, and neither `retain_grad` nor a hook on a gradient can
# change it. A third kind of hook can: `saved_tensors_hooks(pack, unpack)`. Inside its `with` block,
#
# - `pack(tensor)` is called for each tensor that an operation saves. Whatever it returns is kept **instead of** the
#   tensor.
# - `unpack(packed)` is called when backward needs the tensor. It must return a tensor of the same shape, dtype and
#   device.
#
# At first we only watch. Here `pack` prints the tensor and returns it, detached from the graph:


# %%
def show_and_keep(tensor):
    print("  saved:", tensor.tolist())
    return tensor.detach()


functions = {"x * x": lambda x: x * x, "sqrt(x)": torch.sqrt, "x + 1": lambda x: x + 1}
x = torch.tensor([1.0, 4.0], requires_grad=True)
with saved_tensors_hooks(show_and_keep, lambda tensor: tensor):
    for what, function in functions.items():
        print(what)
        function(x)

# %% [markdown]
# A product saves its two operands, and `sqrt` saves its result. Addition saves nothing, because its derivative is 1.
#
# Why `detach()`? `sqrt` and tanh save their own result, and the result holds the graph. If `pack` returns this very
# tensor, the graph also holds the result, and only a backward frees them. Here nobody goes backward:

# %%
x = torch.zeros(256, 1024, requires_grad=True)
for way, pack in {"tensor": lambda tensor: tensor, "tensor.detach()": lambda tensor: tensor.detach()}.items():
    with measure_memory() as memory, saved_tensors_hooks(pack, lambda packed: packed):
        tanh_chain(x)  # nobody keeps the result
    print(f"pack returns {way:<16} {memory.live / MIB:5.2f} MiB still alive")

# %% [markdown]
# So a `pack` that keeps a tensor returns `tensor.detach()`: the same memory, without the graph.
#
# ### Exercise · What forward saves

# %% [markdown] tags=["sealed"]
# 2 points
# 1. `pack` is called with every tensor that forward saves. It may simply take note of the tensor and return
#    `tensor.detach()`, which has the same memory.
# 2. Two saved tensors may share one storage. `tensor.untyped_storage()` has `.data_ptr()` to recognise it by and
#    `.nbytes()` for its size.


# %% tags=["answer"]
def count_saved_bytes(function, x):
    """Run `function(x)`, once, and return how many bytes of memory it keeps for
    backward, as an int.

    Each storage counts once and whole, however many saved tensors lie in it, and
    also if it is freed before `function` returns. `saved_tensors_hooks` shows you what
    is saved; a backward, in `function` or later, must find it unchanged. No hook stays
    on, not even if `function` raises an error, and you keep nothing in memory.
    """
    ...


# %% tags=["check"]
check(count_saved_bytes)

# %% [markdown]
# ### Saving less
#
# There are two common ways to save less. One keeps the tensors as **float16**. The other, `torch.utils.checkpoint`,
# keeps only the input of a piece of the network, and **computes the piece once more** in backward. With
# `use_reentrant=False`, as here, it is built on these hooks.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask which of the two ways they would take on a GPU that waits for its memory, and which on one
# that is busy computing. There is no best answer: one costs precision, the other costs time.


# %%
def as_float16(x):
    with saved_tensors_hooks(lambda tensor: tensor.half(), lambda packed: packed.float()):
        return tanh_chain(x)


def recomputed(x):
    for _ in range(4):
        x = checkpoint(tanh_chain, x, 4, use_reentrant=False)
    return x


for way, forward in {"as it is": tanh_chain, "as float16": as_float16, "computed again": recomputed}.items():
    saved, gradient = measure_training_step(forward)
    error = ((gradient - exact).abs() / exact.abs()).max().item()
    quality = "the same gradient" if error == 0 else f"a gradient off by up to {error:.0%}"
    print(f"{way:<15} saved {saved:5.2f} MiB   {quality}")

# %% [markdown]
# Each way has its price. float16 needs half the memory, but some gradients are off by up to 1 %. Computing again keeps
# only the inputs of the four pieces. (That makes 3 MiB, because the first input is `x`, which is there anyway.) It
# gives exactly the same gradient, but costs a second forward pass. On a GPU there is one more way:
# `torch.autograd.graph.save_on_cpu()` moves the saved tensors to the computer's own memory until they are needed.

# %% [markdown] tags=["more"]
# ## More: When saving less goes wrong
#
# The gradient of x · x is 2x. We save `x` as float16. Which gradient comes out for x = 2049?

# %% [markdown] tags=["sealed"]
# y = x · x with x = 2049. The saved `x` is packed as float16. What is `x.grad` (4098 without packing)?
#
# - [ ] 4098: float16 has 11 binary digits: it cannot hold 2049.
#   > Run `torch.tensor(2049.0).half()`. Which number comes out, and what is twice this number?
# - [x] 4096: float16 rounds 2049 to 2048, and 2 · 2048 = 4096. No error is raised, the number is just wrong.
# - [ ] inf: float16 ends at 65504; 2049 is still in its range, but not exactly.
#   > Look at the row of float16. Under which x does it show inf, and what does it show under 2049?
# - [ ] an error: Rounding raises nothing.
#   > After `unpack`, with which number would PyTorch have to compare 2048? Is that number still kept for backward?
#
# float16 has 11 binary digits, so 2049 is rounded to 2048. The largest number of float16 is 65504, so 70000
# becomes inf. Its smallest number is about 6e-8, so 1e-8 becomes 0. bfloat16 has the range of float32 but only 8
# binary digits: nothing becomes inf or 0 here, but everything is rounded more. In no case was there an error.

# %% tags=["predict"]
predict("half_of_2049")


# %%
def gradient_of_square(dtype):
    """The gradient of x · x, with the saved x kept as `dtype`."""
    x = torch.tensor([1.001, 2049.0, 70000.0, 1e-8], requires_grad=True)
    with saved_tensors_hooks(lambda tensor: tensor.to(dtype), lambda packed: packed.float()):
        square = x * x
    square.sum().backward()
    return x.grad


print("x              1.001        2049       70000       1e-08")
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    gradient = gradient_of_square(dtype)
    print(f"{str(dtype).removeprefix('torch.'):<9}" + "".join(f"{value:12.6g}" for value in gradient.tolist()))

# %% tags=["why"]
why("half_of_2049")

# %% [markdown]
# **Weights are saved too.** They are in memory anyway, so a packed copy of them *adds* to the memory. Here `h` has a
# single row, and the weight of the layer takes 4 MiB. Which condition tells `pack` that a tensor is a weight?


# %%
def saved_by_linear(pack):
    """MiB that a linear layer adds to the memory until backward, with `pack` on what it saves."""
    h = torch.ones(1, 1024, requires_grad=True)
    with measure_memory() as memory, saved_tensors_hooks(pack, lambda packed: packed.float()):
        loss = linear(h).sum()
    assert loss.requires_grad  # the loss is still here, and with it the graph
    return memory.live / MIB


linear = torch.nn.Linear(1024, 1024)
owned = {parameter.untyped_storage().data_ptr() for parameter in linear.parameters()}
packs = {
    "packed as float16": lambda tensor: tensor.half(),
    "leaves left alone": lambda tensor: tensor if tensor.is_leaf else tensor.half(),
    "weights left alone": lambda tensor: tensor if tensor.untyped_storage().data_ptr() in owned else tensor.half(),
}
for way, pack in packs.items():
    print(f"{way:<18} {saved_by_linear(pack):.2f} MiB")

# %% [markdown]
# A linear layer does not save its weight itself but the transposed weight. This is a view of the weight and not a
# leaf, so testing `is_leaf` misses it. A view shares its **storage** with the weight, so a good `pack` compares storages.
#
# **`unpack` has to give back what was saved.** Some mistakes raise an error, and some do not:


# %%
def try_hooks(what, pack, unpack):
    """Go forward and backward through x · x with these hooks, and print the result."""
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    try:
        with saved_tensors_hooks(pack, unpack):
            square = x * x
        square.sum().backward()
    except (RuntimeError, TypeError) as error:
        print(f"{what:<33} {type(error).__name__}")
    else:
        print(f"{what:<33} x.grad = {x.grad.tolist()}")


try_hooks("nothing changed", lambda tensor: tensor.detach(), lambda packed: packed)
try_hooks("pack changes the tensor in place", lambda tensor: tensor.mul_(2), lambda packed: packed)
try_hooks("unpack returns two numbers of 3", lambda tensor: tensor.detach(), lambda packed: packed[:2])
try_hooks("unpack returns one number of 3", lambda tensor: tensor.detach(), lambda packed: packed[:1])

# %% [markdown]
# Look at the last line: the gradient is [2, 2, 2] instead of [2, 4, 6], and there was no error. A tensor with one
# number fits every shape by broadcasting. So compare `unpack(pack(tensor))` with `tensor` before you train with such
# hooks.
#
# ### Exercise · Half the memory

# %% [markdown] tags=["sealed"]
# 3 points
# 1. `pack` gets a tensor and may return anything; `unpack` gets just that and must make the tensor again.
# 2. Let `pack` return two things: the numbers as float16, and the dtype to go back to. `tensor.is_floating_point()`
#    tells numbers from indices and masks.


# %% tags=["answer"]
def save_as_half():
    """Return two functions for `saved_tensors_hooks`, `pack` and `unpack`, that
    keep floating-point tensors as float16.

    `unpack(pack(tensor))` has the dtype of `tensor`: float32 and float64 come back
    as such, with the precision of float16; a number too large for it becomes inf.
    The original numbers are not kept, but a leaf, which is in memory anyway, may
    stay as it is. Tensors of whole numbers or bools stay exactly as they are.
    """
    ...


# %% tags=["check"]
check(save_as_half)

# %% [markdown] tags=["instructor"]
# **Misconception:** "The memory of training is gradients." **Ask:** "2 MiB of gradients, 16 MiB saved. Which of the two
# grows with the depth of the network?" **Answer:** what is saved.
#
# **Misconception:** "Half precision is nearly the same." **Ask:** "When did you get an error message?" **Answer:**
# never: that is the danger. 2049 became 2048, 70000 became inf.
#
# **Misconceptions, by exercise:** `retain_graph` for `retain_grad` (1); `retain_grad` taken for a hook with a place in
# the queue (2); a view taken for a copy (3); a list in the order of arrival, which is the reverse (4);
# one hook for both values (5); counting numbers instead of storages (6); integers packed as float16 (7).
#
# **For discussion (7):** why must integers stay as they are? (An index that is off by one raises nothing; it takes
# another row.)

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | `retain_grad` costs memory. | Yes, a copy of every gradient that you ask for. On 16 activations the peak rose from 2 to 18 MiB. |
# | Use a hook instead, it costs none. | A hook that keeps one number costs none. A hook that keeps the gradient costs nearly the same as `retain_grad`, and so does one that keeps `grad[0]`. |
# | A hook sees the same gradient that `retain_grad` keeps. | Only if there are no other hooks and no in-place changes. |
# | Call `retain_grad()` and read `.grad`. | Call it before backward. Afterwards you get None, without a warning. |

# %% [markdown] tags=["instructor"]
# **On this slide:** Take the second row, and ask for the hook that costs nothing and for the one that costs as much
# as `retain_grad`. Somebody should be able to write both without looking back.

# %% [markdown]
# ## The case
#
# Is it the same deeper inside? Three layers have many channels, and keeping all their gradients would be a waste. For
# our question, one number for each place is enough: the strongest gradient of all channels.

# %%
from course_utils.explorers import case

picture, suspect = case.open_case()
x, kept, passed = (picture.image[None] - 0.5) / 0.25, {}, 0
for name, layer in suspect.features.named_children():
    x = layer(x)
    if name in ("2", "6", "10"):
        x.register_hook(lambda grad, name=name: kept.update({name: grad.abs().amax(1)}))
        passed += x.numel()
suspect.classifier(x.mean((2, 3)))[0, case.FISH].backward()

# %%
maps = {f"features.{name}": case.enlarge(each)[0] for name, each in kept.items()}
shares = [(each[picture.masks[0]].sum() / each.sum()).item() for each in maps.values()]
case.keep_clue(
    "02",
    f"At three depths, {min(shares):.0%} to {max(shares):.0%} of the gradient is on the fish. For this we kept "
    f"{sum(each.numel() for each in kept.values())} numbers of {passed}.",
    {"the fish": case.close_up(picture.image)} | {name: case.close_up(each) for name, each in maps.items()},
)

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what else could have been kept: the whole gradient, one number for each layer, a picture. What
# is worth keeping depends on the question that comes next.

# %% [markdown]
# ## Summary
#
# - `retain_grad()`, called before backward, makes a result keep a copy of its gradient. On a leaf it does nothing.
# - `None` with a warning means that nobody asked for this gradient. `None` without a warning means that you asked too
#   late, or that no gradient ever arrives: the tensor is detached, was made under `no_grad`, or takes no part.
# - The kept gradient is the one that is passed on: after all hooks, of the newest values, added up over every backward
#   pass.
# - Looking at a gradient costs nothing, keeping it does. Keep numbers (`.item()`) or copies of small parts
#   (`.clone()`), not views, and never a loss with its graph.
# - Most memory is used by what forward saves. `saved_tensors_hooks(pack, unpack)` and `checkpoint` shrink it, at the
#   price of precision or time.

# %% [markdown] tags=["instructor"]
# **On this slide:** Go back to the votes of the first slide, and let the room say which notes kept memory alive, and
# what each of them kept alive.

# %% [markdown]
# ## Go further
#
# - Lesson 03 is about hooks on whole layers, for when you do not hold the activation in your hands.
# - [Autograd mechanics](https://pytorch.org/docs/stable/notes/autograd.html#hooks-for-saved-tensors) explains saved
#   tensors and their hooks in PyTorch's own words.
# - [`torch.Tensor.retain_grad`](https://pytorch.org/docs/stable/generated/torch.Tensor.retain_grad.html)
# - [`torch.utils.checkpoint`](https://pytorch.org/docs/stable/checkpoint.html)

# %% [markdown] tags=["instructor"]
# **On this slide:** At home: the exercises that were left out in the room. Whoever trains large networks should
# try `checkpoint` on one of them and report what it saved.
