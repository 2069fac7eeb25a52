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
# Backward throws the gradients of results away. There are two ways to get at one: ask the tensor to keep it, or stand by
# with a hook when it passes. They differ in *which* gradient you get, and in what it costs. This lesson measures both.
#
# ## What you will be able to do
#
# - **Keep** the gradient of a result with `retain_grad()`, and **explain** the warning you get without it.
# - **Predict** which gradient is kept when there are hooks, in-place changes, or several backward passes.
# - **Measure** the memory of a backward pass to the byte.
# - **Choose** between `retain_grad`, a hook and `torch.autograd.grad` for a task.
# - **Shrink** what forward saves for backward, and **name** the price.
#
# **Time:** about 85 minutes: 45 to read, predict and run, 40 for the exercises.
#
# Run a cell with Shift+Enter. Where you see **Predict**, commit to an answer before you run the next cell.

# %% [markdown] tags=["instructor"]
# **Plan**
#
# | Minutes | Sections | How |
# |---|---|---|
# | 8 | Asking a tensor to keep its gradient · Reading .grad where there is none | collect the three ways to get None from the room before you show them |
# | 12 | Before or after the hooks? · A tensor that is changed in place later · Every backward counts | a prediction each; write the votes on the board |
# | 12 | What it costs · When to use which | let them guess all four bars before the chart |
# | 10 | The third way: what forward saves | the traps may be read at home |
# | 2 | Explore | one question: can you move `retain_grad` in the row? |
# | 40 | Exercises | 1, 2, 3, 5, 7 in the room; 4 and 6 at home if time is short |
# | 1 | What old tutorials say · Summary · Go further | which of the five sentences had they heard? |

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
import tempfile
import warnings
from pathlib import Path

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from course_utils.exercises import check, hint, predict, solution, why
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
from course_utils.vision.charts import bars

# %% [markdown]
# ## Asking a tensor to keep its gradient
#
# The graph from lesson 01: z = x + y and o = w · z, with x = [0, 1, 2, 3], y = [4, 5, 6, 7] and w = [1, 2, 3, 4].
# `z` and `o` are results, so their gradients are normally gone after backward. `retain_grad()` asks for them.


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
# The gradient of `z` is `w`, and `o`, where backward starts, has the gradient 1. Both could be read after backward,
# without a hook. Two more graphs from lesson 01, to check with a pencil: x = 3, y = x - 2, z = (y - x)²; and five ones in
# `a`, b = 2a, c = mean(b).

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
# `y` gets 2 · (y - x) = -4. `x` gets that and +4 on its direct path: 0. Each number in `b` has a fifth of the mean.
#
# On a leaf `retain_grad()` does nothing, because a leaf keeps its gradient anyway. The flag `retains_grad` tells
# whether a result was asked. A tensor that requires no gradient cannot be asked:

# %%
leaf = torch.ones(2, requires_grad=True)
result = 2 * leaf
leaf.retain_grad()
result.retain_grad()
print("retains_grad: leaf", leaf.retains_grad, " result", result.retains_grad)

try:
    torch.ones(2).retain_grad()
except RuntimeError as error:
    print("RuntimeError:", error)

# %% [markdown]
# ## Reading .grad where there is none
#
# Without `retain_grad()`, reading the `.grad` of a result gives `None`, and PyTorch warns. Notebooks tend to bury the
# warning under other output, so here we catch it and print its first sentence.


# %%
def read_grad(tensor):
    """Print `tensor.grad`, and the first sentence of each warning that reading it
    gives.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        print(".grad =", tensor.grad)
    for warning in caught:
        print(f"{warning.category.__name__}: {str(warning.message).split('. ')[0]}.")


x, y, w, z, o = vector_graph()
o.backward()
read_grad(z)

# %% [markdown]
# The warning means: "you ask a result for its gradient, and nobody told me in time to keep it". There are three ways to
# get here. You forgot `retain_grad()`. You wanted a leaf and hold a result: `w = torch.ones(3, requires_grad=True) * 0.1`
# is one, because of the `* 0.1`. Or you called `retain_grad()` **after** backward, and this case is nasty:

# %%
z.retain_grad()
read_grad(z)

# %% [markdown]
# Still `None`, but the warning is gone: the tensor now *is* asked to keep its gradient, from the next backward on.
# `None` without a warning means: asked too late, or no backward has come by yet.

# %% [markdown] tags=["instructor"]
# **Misconception:** "`requires_grad=True` means that `.grad` will be there." **Ask:** "Which of x, z, o require a gradient?
# Which of them keep it? Who decides?" **Answer:** all three; only x; you do, with `retain_grad()`.
#
# **Misconception:** "`retain_graph` and `retain_grad` are the same." **Ask:** "Which of the two keeps numbers, and which
# keeps the recipe to compute them?" **Then show:** call backward twice without `retain_graph`, and read the error together.
#
# **For discussion:** `w = torch.ones(3, requires_grad=True) * 0.1` is the classic. How would you write it? (Scale first,
# then `requires_grad_()`.)

# %% [markdown]
# ## Before or after the hooks?
#
# `z` has two hooks. The first doubles, the second multiplies by 10, and `retain_grad()` is called **between** the two.

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

# %% [markdown]
# [20, 40, 60, 80], the same as in `x.grad`: all hooks ran before the gradient was kept. `retain_grad` is not one more
# hook in the row. It always comes last, wherever you call it, so `z.grad` is what `z` **passes on**, not what it received.
#
# To see what arrived, register a hook of your own *before* the others. It gets [1, 2, 3, 4].

# %%
x, y, w, z, o = vector_graph()
z.retain_grad()  # first or last: it makes no difference
z.register_hook(lambda grad: print("arrived:  ", grad.tolist()))
z.register_hook(lambda grad: grad * 2)
z.register_hook(lambda grad: grad * 10)
o.backward()
print("passed on:", z.grad.tolist())

# %% [markdown]
# ## A tensor that is changed in place later
#
# From lesson 01 you know that a hook belongs to the values that the tensor had when the hook was registered. What about
# `retain_grad()`, called on `h` before `h.mul_(10)`?

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

# %% [markdown]
# The hook stayed with the old values, whose gradient is 10. `retain_grad` moved on: `h.grad` is 1, the gradient of the
# values that `h` has **now**. That makes sense: whoever reads `h` and `h.grad` side by side wants the two to belong together.
# An in-place ReLU after a layer does this to you in real networks.

# %% [markdown]
# ## Every backward counts
#
# Back to the vector graph, where the gradient of `z` is [1, 2, 3, 4]. We go backward twice.

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

# %% [markdown]
# It adds up, as on a leaf. But what we called `first` has not changed: on a result, the sum is a new tensor, not an
# in-place change of the old one. Set `z.grad = None` between two passes if you want them apart.
#
# `torch.autograd.grad` is known for leaving no trace in `.grad`. On leaves that is true:

# %%
x, y, w, z, o = vector_graph()
z.retain_grad()
(returned,) = torch.autograd.grad(o, x)
print("returned:", returned.tolist(), "  x.grad =", x.grad, "  z.grad =", z.grad.tolist())

# %% [markdown]
# `x.grad` is untouched, but `z` was asked to keep its gradient and does, in **every** backward that comes by.
# If all you want is the gradient of one result, you need neither: `torch.autograd.grad(o, z)` returns it, and nothing stays.
#
# With `create_graph=True` the kept gradient is itself a result, with a graph behind it. Here z = x² and y = z² with x = 4,
# so the gradient of `z` is 2z = 32.

# %%
x = torch.tensor(4.0, requires_grad=True)
z = x**2
z.retain_grad()
(first,) = torch.autograd.grad(z**2, x, create_graph=True)
print(f"first derivative  {first.item():g} = 4x³")
print(f"  z.grad = {z.grad.item():g}, z.grad.requires_grad = {z.grad.requires_grad}")
(second,) = torch.autograd.grad(first, x)
print(f"second derivative {second.item():g} = 12x²")
print(f"  z.grad = {z.grad.item():g}")

# %% [markdown]
# After the first pass `z.grad` is right, but it requires a gradient: as long as you hold it, it holds the whole graph of
# the first derivative. After the second it is 48: that pass went through `z` as well, and added 16. So do not mix
# `retain_grad` and `create_graph`.

# %% [markdown] tags=["instructor"]
# **Misconception:** "`retain_grad` is a hook that I register at this line." **Ask:** "Three cells speak against it. Which?"
# **Answer:** it comes after all hooks, wherever it was called; it moves on to the values after an in-place change; it lasts
# over all passes. **Then ask:** "What would a hook at this line have shown in each?" (A part of the row; the gradient of
# the old values; the same in each pass, not the sum.)
#
# **Misconception:** "`torch.autograd.grad` leaves no trace." **Ask:** "Then why is z.grad not None?" **Answer:** z was asked
# to keep its gradient, and every pass counts.
#
# **For discussion:** `first` did not change in the second pass, although `z.grad` did. Is that so for a leaf? (No: on a
# leaf the sum is usually made in place. Clone what you want to keep.)

# %% [markdown]
# ## What it costs
#
# Most tutorials say: "`retain_grad` costs memory, a hook does not." Let us measure.
#
# `measure_memory()` follows every operation in its block and counts the bytes of the tensors that it creates, as long as they
# live. Only an operation can create a tensor, so no peak is missed; and as nothing else is counted (no allocator, no other
# program), the numbers are the same on every machine.
#
# The network is as simple as can be: 16 times tanh, each activation of 256 by 1024 float32, which is exactly 1 MiB.


# %% tags=["setup"]
MIB = 2**20
kept = []  # what the hooks keep


def deep_chain(function=torch.tanh, depth=16):
    """A leaf of 1 MiB and `depth` activations, each the `function` of the one before."""
    tensors = [torch.zeros(256, 1024, requires_grad=True)]
    for _ in range(depth):
        tensors.append(function(tensors[-1]))
    return tensors[0], tensors[1:]


def peak_of_backward(prepare):
    """The most MiB of gradients alive at once in backward, each activation prepared."""
    kept.clear()
    _, activations = deep_chain()
    for activation in activations:
        prepare(activation)
    loss = activations[-1].mean()
    with measure_memory() as memory:
        loss.backward()
    return memory.peak / MIB


# %% [markdown]
# First with nothing kept at all. Sixteen gradients are computed for the activations, and one for the leaf.

# %% tags=["predict"]
predict("gradients_alive")


# %%
def nothing(activation):
    """Keep nothing."""


print(f"{peak_of_backward(nothing):.2f} MiB")

# %% [markdown]
# Two: the gradient that arrives, and the one computed from it. Then the first is freed. That is why PyTorch throws
# gradients away: a thousand layers would need no more. (Two and a few bytes, to be exact: the gradient of `loss` is one
# number.)
#
# Now the same with `retain_grad()` on every activation, with a hook that keeps the gradient, and with a hook that keeps one
# number.


# %%
def one_number(activation):
    activation.register_hook(lambda grad: kept.append(grad.norm().item()))


def whole_gradient(activation):
    activation.register_hook(lambda grad: kept.append(grad))


def retained(activation):
    activation.retain_grad()


peaks = {
    "neither": peak_of_backward(nothing),
    "a hook that keeps one number": peak_of_backward(one_number),
    "a hook that keeps the gradient": peak_of_backward(whole_gradient),
    "retain_grad()": peak_of_backward(retained),
}
for way, peak in peaks.items():
    print(f"{way:<32}{peak:5.2f} MiB")

# %%
bars(
    list(peaks.values()),
    list(peaks),
    title="It is keeping gradients that costs memory, not the hook",
    unit="MiB",
    alt="Gradients alive at the peak of backward through 16 activations of 1 MiB. Two short bars of 2 MiB: neither, and a "
    "hook that keeps one number. Two long bars: 17 MiB for a hook that keeps the gradient, 18 MiB for retain_grad.",
)

# %% [markdown]
# So the sentence is half true.
#
# - `retain_grad()` on everything: 18 MiB, nine times as much. 16 are kept, and two are on their way as before. A kept
#   gradient lives as long as its tensor; here we hold all activations in a list.
# - A hook that keeps **a number**: 2 MiB, as if it were not there.
# - A hook that keeps **the gradient**: 17 MiB. It is not the hook that saves memory, it is what the hook throws away.
#
# The difference between 17 and 18: `retain_grad` keeps a *copy*, the hook kept the very tensor that is passed on. That is 1 MiB
# less, and it is unsafe: whoever changes that tensor in place changes your record (lesson 01).
#
# ### One row is enough?
#
# You want to see only one row of each gradient. So the hook keeps `grad[0]`, which is 4 KiB.

# %% tags=["predict"]
predict("slices_kept")


# %%
def first_row(activation):
    activation.register_hook(lambda grad: kept.append(grad[0]))


def copy_of_first_row(activation):
    activation.register_hook(lambda grad: kept.append(grad[0].clone()))


print(f"grad[0]           {peak_of_backward(first_row):5.2f} MiB")
print(f"grad[0].clone()   {peak_of_backward(copy_of_first_row):5.2f} MiB")

# %% [markdown]
# `grad[0]` is a **view**: it has no numbers of its own and keeps the memory of the whole gradient alive. The copy of a row
# costs 4 KiB, and 16 of them the 0.06 MiB that you see. `detach()` would not have helped: it makes a view too.
#
# ### What one number a layer is good for
#
# Here the chain is made of sigmoids. Each hook keeps the mean size of its gradient.

# %%
_, activations = deep_chain(torch.sigmoid, depth=8)
sizes = {}
for layer, activation in enumerate(activations, start=1):
    activation.register_hook(lambda grad, layer=layer: sizes.update({layer: grad.abs().mean().item()}))
activations[-1].sum().backward()
for layer, size in sizes.items():
    print(f"layer {layer}: {size:.1e}")

# %% [markdown]
# Eight numbers, and you see the whole story: each sigmoid lets less than a quarter of the gradient through, and after
# seven of them almost nothing is left. This is the **vanishing gradient**. The eight gradients that were measured
# never had to be in memory together.

# %% [markdown] tags=["instructor"]
# **Misconception:** "A hook saves memory." **Ask:** "Two hooks, 2 MiB and 17 MiB. What is the difference between them?"
# **Answer:** what they keep. **Then ask:** "`kept.append(grad.norm())` without `.item()`: how much does it keep?" (4 bytes a
# layer: a small tensor of its own. With `create_graph=True` it would keep the graph, so `.item()` is the safe habit.)
#
# **Misconception:** "`grad[0]` is small, so keeping it is cheap." **Ask:** "Whose memory does it look at?" **Expect:**
# "`detach()` will help." **Then show:** it does not: `grad[0].detach().untyped_storage().nbytes()` is the whole gradient.
#
# **For discussion:** why two MiB alive at once, and not one, and not 17? (The gradient that arrives and the one computed
# from it; then the first is let go.)

# %% [markdown]
# ## When to use which
#
# | You want | Use | Because |
# |---|---|---|
# | to read the gradient of a few results while you debug | `retain_grad()` | one line; costs a copy of each |
# | one number a layer, in every training step | a hook that keeps `.item()` | costs nothing at the peak |
# | the gradient of one result, once | `torch.autograd.grad(loss, z)` | returns it, nothing stays behind |
# | to change a gradient | a hook that returns the new one | `retain_grad` only keeps |
# | the gradient as it arrives | a hook, registered before all others | hooks run in order |
# | the gradient as it is passed on | `retain_grad()` | it comes after all hooks |
# | the gradient of values that are changed in place later | a hook, registered before the change | `retain_grad` moves on |
# | a part of the gradient | a hook that keeps a `.clone()` of the part | a view keeps the whole |
# | less memory in *forward* | hooks on saved tensors | see below |

# %% [markdown]
# ## The third way: what forward saves
#
# Two MiB of gradients were alive at a time. But how much waits in memory for backward to begin? tanh saves its result,
# because its derivative is 1 - result². We measure what is alive when forward has ended and only `loss` is in our hands.


# %% tags=["setup"]
def tanh_chain(h, depth=16):
    """Apply tanh `depth` times."""
    for _ in range(depth):
        h = torch.tanh(h)
    return h


def measure_training_step(forward):
    """Go forward and backward; return MiB saved for backward, MiB at the peak, and
    the gradient.
    """
    x = torch.linspace(-2, 2, 256 * 1024).reshape(256, 1024).requires_grad_()
    with measure_memory() as memory:
        loss = forward(x).mean()
        saved = memory.live
        loss.backward()
    return saved / MIB, memory.peak / MIB, x.grad


# %%
saved, peak, exact = measure_training_step(tanh_chain)
print(f"saved for backward: {saved:.2f} MiB, at the peak of the step: {peak:.2f} MiB")

# %% [markdown]
# 16 MiB, eight times as much as the gradients. This is where the memory of training goes, and neither `retain_grad` nor a
# hook on a gradient can change it. A third kind of hook can: `saved_tensors_hooks(pack, unpack)`. Inside its `with` block,
#
# - `pack(tensor)` is called for each tensor that an operation saves. Whatever it returns is kept **instead** of the tensor.
# - `unpack(packed)` is called when backward needs the tensor. It must return it: same shape, same dtype, same device.
#
# First we only watch. `pack` prints and returns the tensor itself:


# %%
def show_and_keep(tensor):
    print("  saved:", tensor.tolist())
    return tensor


functions = {"x * x": lambda x: x * x, "sqrt(x)": torch.sqrt, "x + 1": lambda x: x + 1}
x = torch.tensor([1.0, 4.0], requires_grad=True)
with saved_tensors_hooks(show_and_keep, lambda tensor: tensor):
    for what, function in functions.items():
        print(what)
        function(x)

# %% [markdown]
# A product saves its two operands, `sqrt` its result, and addition saves nothing, because its derivative is 1.
#
# Now three ways to keep less: as **float16**, in a **file**, or **not at all**. The last is `torch.utils.checkpoint`: it keeps
# the input of a piece of the network and computes the piece once more in backward; it is built on these hooks.

# %%
folder = tempfile.TemporaryDirectory()


def write(tensor):
    path = Path(folder.name) / f"{len(list(Path(folder.name).iterdir()))}.pt"
    torch.save(tensor, path)
    return path


def as_float16(x):
    with saved_tensors_hooks(lambda tensor: tensor.half(), lambda packed: packed.float()):
        return tanh_chain(x)


def in_files(x):
    with saved_tensors_hooks(write, torch.load):
        return tanh_chain(x)


def recomputed(x):
    for _ in range(4):
        x = checkpoint(tanh_chain, x, 4, use_reentrant=False)
    return x


# %%
steps = {"as it is": tanh_chain, "as float16": as_float16, "computed again": recomputed, "in files": in_files}
saved_by = {}
for way, forward in steps.items():
    saved_by[way], peak, gradient = measure_training_step(forward)
    error = ((gradient - exact).abs() / exact.abs()).max().item()
    quality = "the same gradient" if error == 0 else f"a gradient off by up to {error:.0%}"
    print(f"{way:<15} saved {saved_by[way]:5.2f} MiB   peak {peak:5.2f} MiB   {quality}")
folder.cleanup()

# %%
bars(
    [round(saved, 2) for saved in saved_by.values()],
    list(saved_by),
    title="Saved-tensor hooks shrink what waits for backward",
    unit="MiB",
    alt="Memory saved for backward by 16 times tanh: 16 MiB as it is, 8 MiB as float16, 3 MiB when most "
    "activations are computed again, 0 MiB in files.",
)

# %% [markdown]
# Every way has its price. float16 halves the memory, and gradients are off by up to 1 %. Computing again keeps the inputs
# of four pieces (3 MiB; the first one is `x`, which is there anyway), gives exactly the same gradient, and costs a second
# forward. Files cost next to no memory, and much time.
# On a GPU there is one more: `torch.autograd.graph.save_on_cpu()` moves the saved tensors to the computer's own memory
# until they are needed. (On the CPU it saves nothing: they are there already.)

# %% [markdown]
# ### Traps
#
# **Precision is lost silently.** The gradient of x · x is 2x. With `x` saved as float16, what comes out for 2049?

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

# %% [markdown]
# float16 has 11 binary digits: 2049 becomes 2048, and the gradient 4096. It ends at 65504: 70000 becomes inf. It begins at
# about 6e-8: 1e-8 becomes 0. bfloat16 has the range of float32 and only 8 binary digits: nothing overflows, everything is
# coarser. No case raised an error.
#
# **Weights are saved too.** They are in memory anyway, so packing them *adds* a copy. Here `h` is one row, and the weight is
# 4 MiB:


# %%
def saved_by_product(pack):
    """MiB that h @ weight adds to the memory until backward, with `pack` on what it
    saves.
    """
    h = torch.ones(1, 1024, requires_grad=True)
    weight = torch.ones(1024, 1024, requires_grad=True)
    with measure_memory() as memory, saved_tensors_hooks(pack, lambda packed: packed.float()):
        loss = (h @ weight).sum()
    assert loss.requires_grad  # the loss is still here, and with it the graph
    return memory.live / MIB


packs = {
    "kept as they are": lambda tensor: tensor,
    "packed as float16": lambda tensor: tensor.half(),
    "leaves left alone": lambda tensor: tensor if tensor.is_leaf else tensor.half(),
}
for way, pack in packs.items():
    print(f"{way:<18} {saved_by_product(pack):.2f} MiB")

# %% [markdown]
# 2 MiB more instead of less. A good `pack` returns leaves as they are.
#
# **`pack` must not change its argument, and `unpack` must give back what was saved.** Some breaches raise, some do not:


# %%
def try_hooks(what, pack, unpack):
    """Go forward and backward through x · x with these hooks and print what came of
    it.
    """
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    try:
        with saved_tensors_hooks(pack, unpack):
            square = x * x
        square.sum().backward()
    except (RuntimeError, TypeError) as error:
        print(f"{what:<33} {type(error).__name__}")
    else:
        print(f"{what:<33} x.grad = {x.grad.tolist()}")


try_hooks("nothing changed", lambda tensor: tensor, lambda packed: packed)
try_hooks("pack changes the tensor in place", lambda tensor: tensor.mul_(2), lambda packed: packed)
try_hooks("unpack returns a list", lambda tensor: tensor, lambda packed: packed.tolist())
try_hooks("unpack returns two numbers of 3", lambda tensor: tensor, lambda packed: packed[:2])
try_hooks("unpack returns one number of 3", lambda tensor: tensor, lambda packed: packed[:1])

# %% [markdown]
# Look at the last line: [2, 2, 2] instead of [2, 4, 6], and no error. A tensor with one number fits every shape by
# broadcasting, so the wrong gradient goes on. Test `unpack(pack(tensor))` against `tensor` before you train with it.

# %% [markdown] tags=["instructor"]
# **Misconception:** "The memory of training is gradients." **Ask:** "2 MiB of gradients, 16 MiB saved. Which of the two
# grows with the depth of the network?" **Answer:** what is saved.
#
# **Misconception:** "Half precision is nearly the same." **Ask:** "When did you get an error message?" **Answer:** never:
# that is the danger. 2049 became 2048, 70000 became inf.
#
# **Misconception:** "Packing everything is best." **Ask:** "The weights are in memory anyway. What does packing them cost?"
# **Answer:** a copy more: 2 MiB here.
#
# **For discussion:** what would you choose for a network that does not fit? (Computing again first: exact, and it costs
# time only. float16 if gradients are noisy anyway. Files when nothing else is left.)

# %% [markdown]
# ## Explore
#
# The vector graph again, with times 2, `retain_grad` and times 6 on `z`, in this order, at the step where the gradient reaches `z`.
# Compare its gradient with its `.grad`. Then take `retain_grad` away and put it back as the last one. Does `z.grad` change?
# The step slider (arrow keys work) shows what comes before and after.

# %% tags=["explore"]
from course_utils.explorers import GradientFlow

GradientFlow("dot product", hooks=[("z", "times 2"), ("z", "retain_grad"), ("z", "times 6")], step=3)

# %% [markdown]
# ## Exercises
#
# Replace the `...` in an answer cell, run it, then run the `check` below it. A check tells you what is wrong and for
# which input. Stuck? Run `hint(gradients_of_all)` in a new cell; `solution(gradients_of_all)` opens after three attempts.
#
# ### Exercise 1 · All of them


# %% tags=["answer"]
def gradients_of_all(tensors):
    """Run one backward from the last of `tensors` (a dict of name to tensor);
    return the gradients of all, by name.

    The dict holds leaves and results alike, and none has a gradient or a hook yet;
    the last one is a single number. Afterwards the graph is freed, as usual, and no
    hook of yours is left.
    """
    ...


# %% tags=["check"]
check(gradients_of_all)

# %% [markdown]
# ### Exercise 2 · One number a layer


# %% tags=["answer"]
def record_norms(activations):
    """Return a list with a place for each tensor of `activations`: backward puts
    the norm of its gradient there.

    The order is that of `activations`. A norm is a Python float; a place is None
    until a gradient has come by, and a later backward replaces it. No gradient is
    kept, and none is changed.
    """
    ...


# %% tags=["check"]
check(record_norms)

# %% [markdown]
# ### Exercise 3 · Both ends of the row


# %% tags=["answer"]
def arrived_and_passed_on(tensor, hooks):
    """Register `hooks` on `tensor`, in their order, and make both ends of the row
    visible.

    Return a list that will receive a copy of each gradient as it arrives, before
    the first of `hooks`. `tensor.grad` keeps the gradient as it is passed on, after
    the last of them, and adds up over backwards as usual.
    """
    ...


# %% tags=["check"]
check(arrived_and_passed_on)

# %% [markdown]
# ### Exercise 4 · Before and after a change


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
# ### Exercise 5 · One row and no more


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
# ### Exercise 6 · What forward saves


# %% tags=["answer"]
def count_saved_bytes(function, x):
    """Run `function(x)`, once, and return how many bytes of memory it keeps for
    backward, as an int.

    Each storage counts once and whole, however many saved tensors lie in it.
    `saved_tensors_hooks` shows you what is saved; a backward, in `function` or later,
    must find it unchanged. No hook stays on, not even if `function` raises an error.
    """
    ...


# %% tags=["check"]
check(count_saved_bytes)

# %% [markdown]
# ### Exercise 7 · Half the memory


# %% tags=["answer"]
def save_as_half():
    """Return two functions for `saved_tensors_hooks`, `pack` and `unpack`, that
    keep floating-point tensors as float16.

    `unpack(pack(tensor))` has the dtype of `tensor`: float32 and float64 come back
    as such, with the precision of float16. The original numbers are not kept, but a
    leaf, which is in memory anyway, may stay as it is. Tensors of whole numbers or
    bools stay exactly as they are.
    """
    ...


# %% tags=["check"]
check(save_as_half)

# %% [markdown] tags=["instructor"]
# **Misconceptions, by exercise:** `retain_graph` for `retain_grad` (1); a list in the order of arrival, which is the
# reverse (2); `retain_grad` taken for a hook with a place in the row (3); one hook for both values (4); a view taken for a
# copy (5); counting numbers instead of storages (6); integers packed as float16 (7).
#
# **Ask, whatever the exercise:** "Who keeps this tensor alive?" **Expect:** "The graph." **Then show:** `del` one name after
# the other and measure again.
#
# **For discussion (7):** why must integers stay as they are? (An index that is off by one raises nothing; it takes another
# row.)

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | `retain_grad` costs memory. | Yes: a copy of every gradient that you ask for. On 16 activations the peak rose from 2 to 18 MiB. |
# | Use a hook instead, it costs none. | A hook that keeps one number costs none (2 MiB). A hook that keeps the gradient costs nearly the same (17 MiB), and so does one that keeps `grad[0]`. |
# | A hook sees the same gradient that `retain_grad` keeps. | Only without other hooks and in-place changes. `retain_grad` comes after all hooks and moves on to the newest values. |
# | The gradients of results are freed when backward is *over*. | They are freed while it runs, as soon as the next one is computed: two at a time, not 16. |
# | Call `retain_grad()` and read `.grad`. | Before backward. Afterwards you get None, and not even a warning. |
#
# ## Summary
#
# - `retain_grad()`, called before backward, makes a result keep a copy of its gradient; on a leaf it does nothing.
# - `None` with a warning: nobody asked. `None` without one: asked too late.
# - The kept gradient is the one that is passed on: after all hooks, of the newest values, added up over every backward.
# - Keeping costs memory, not looking: keep numbers (`.item()`), or copies of small parts (`.clone()`), never views.
# - The most memory waits in forward. `saved_tensors_hooks(pack, unpack)` and `checkpoint` shrink it, at the price of
#   precision or time.
#
# ## Go further
#
# - Lesson 03: hooks on whole layers, where you do not hold the activation in your hands.
# - [Autograd mechanics](https://pytorch.org/docs/stable/notes/autograd.html#hooks-for-saved-tensors), saved tensors and
#   their hooks in PyTorch's own words.
# - [`torch.Tensor.retain_grad`](https://pytorch.org/docs/stable/generated/torch.Tensor.retain_grad.html)
# - [`torch.utils.checkpoint`](https://pytorch.org/docs/stable/checkpoint.html)
