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
# # Tensor hooks
#
# This lesson begins with a small network that does not learn. It raises no error and prints no warning, and its code
# looks harmless. To find out what is wrong, you have to see the gradients inside the network, at the moment when they
# are there.
#
# A **hook** shows them to you. It is a function of yours that PyTorch calls with the gradient as soon as it is
# computed. A hook can look at the gradient, and it can also replace it.
#
# ## What you will be able to do
#
# - **Tell** which tensors have a gradient that you can read after `backward()`.
# - **Record** the gradient of any tensor with a hook, and **remove** the hook again.
# - **Replace** a gradient on its way, and **work out** with a pencil what every leaf then receives.
# - **Predict** the order in which hooks run.
# - **Find** the place in a network where the gradient gets lost.
#
# **Minutes:** counted by the build
#
# Run a cell with Shift+Enter. Where you see **Predict**, commit to an answer before you run the next cell.

# %% [markdown] tags=["instructor"]
# **Plan for 90 minutes**
#
# | Minutes | Sections | In the room | At home |
# |---|---|---|---|
# | 0 to 4 | A network that does not learn | read the code in silence; write the guesses down and take none of them up yet | nothing |
# | 4 to 13 | Where does the gradient go? | the explorer in pairs; somebody computes 2 and 5 with chalk; the prediction by one vote | the third task of the explorer |
# | 13 to 26 | A hook that looks · Back to the patient | exercise {record_gradient}; the prediction with discussion and a second vote; then look at the guesses again | the example with vectors |
# | 26 to 44 | A hook that changes | the first prediction by one vote; in the second, let a 30 and a 15 argue, and vote again; exercise {scale_gradient} | the vector graph; exercise {keep_positive} |
# | 44 to 50 | A hook that writes into the gradient | the prediction with discussion and a second vote; do not hurry, because this bug is silent | the special case of `sum` |
# | 50 to 53 | Two hooks, and the handle | show both cells | nothing |
# | 53 to 65 | In which order do hooks on different tensors run? · Hooks made in a loop | one vote; the -10 and the 2 with a pencil; the three names | the mean; exercise {record_by_name} |
# | 65 to 70 | The patient, before and after · What old tutorials say · The case · Summary · Go further | the two curves; one sentence each from three people | the table |
#
# **Homework:** Exercises {keep_positive} and {record_by_name}, and from the parts called *More* what each person likes.
#
# The plan takes 70 minutes, because lesson 00 has the first 20 of the session.

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
from torch import nn

from course_utils.exercises import check, hint, predict, replay, solution, why
from course_utils.lessons.lesson_01 import (
    freeze_biases,
    hook_once,
    keep_positive,
    record_by_name,
    record_gradient,
    record_total_norm,
    scale_gradient,
    step_in_backward,
)
from course_utils.lessons.patient import admit, draw_curves, loss_of, train

# %% [markdown]
# ## A network that does not learn
#
# The task is simple. Each example has eight numbers, and the network has to say whether the first two have the same
# sign. The network has four linear layers. Between the second and the third, the values are standardised, which usually
# makes training easier.

# %% [markdown] tags=["instructor"]
# **On this slide:** Give one minute to read the code in silence. The usual guesses are the learning rate, too few
# layers and the missing softmax; hardly anybody points at `no_grad`. Write all of them down, and come back to them
# with the hooks.


# %%
def standardise(h):
    """Give each column of `h` the mean 0 and the standard deviation 1."""
    with torch.no_grad():
        mean, std = h.mean(dim=0), h.std(dim=0)
        return (h - mean) / (std + 1e-5)


class Patient(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 8)
        self.third = nn.Linear(8, 8)
        self.last = nn.Linear(8, 1)

    def forward(self, numbers):
        h = torch.relu(self.first(numbers))
        h = standardise(torch.relu(self.second(h)))
        return self.last(torch.relu(self.third(h)))


# %% [markdown]
# `admit` makes a fresh network with the same random weights each time. `train` takes 120 steps of gradient descent and
# returns the loss before each step.

# %%
before = train(admit(Patient))

# %% tags=["setup"]
draw_curves(
    {"this network": before},
    title="After 120 steps, the loss has hardly fallen",
    alt=f"The loss over 120 training steps. It begins at {before[0]:.2f}, the loss of guessing, and slopes gently down to "
    f"{before[-1]:.2f}.",
)

# %% [markdown]
# A healthy network brings this loss down to 0. After 120 steps, this one barely beats guessing. Some part of the network
# does not learn, but which one? We will call this network our patient, and we will come back to it as soon as you can
# look inside.

# %% [markdown]
# ## Where does the gradient go?
#
# We start with a graph that is small enough for a pencil. It has two leaves, w = 1 and x = 2. From them we compute
# a = w + x, b = w + 1 and y = a · b. The panel below shows every tensor as a card. Backward starts at `y` with the gradient
# 1 and then follows the arrows from right to left.
#
# 1. Work out with a pencil which gradient arrives at `x`, and which at `w`. Choose the tensor under *I expect at*, type
#    the number, press *Commit* or Enter, and follow the gradient with *Next*.
# 2. Go to the last step. Which cards show a number beside `.grad`?
# 3. Can you make `w.grad` zero while `x.grad` stays 2? Put a hook on a tensor: choose the tensor under *Hook on*, choose
#    what the hook does, and press *Add hook*.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask each pair to say aloud what they expect at `w` before they press a key. Whoever says 2 or 3
# has followed only one path: let them count the arrows that end at `w`.

# %% tags=["explore"]
from course_utils.explorers import GradientFlow

GradientFlow("two paths")

# %% [markdown]
# In code, `two_path_graph` makes the same graph; you will need it soon. (Its definition is in the folded cell below.)


# %% tags=["setup"]
def two_path_graph():
    """The leaves w = 1 and x = 2, then a = w + x, b = w + 1 and y = a · b."""
    w = torch.tensor(1.0, requires_grad=True)
    x = torch.tensor(2.0, requires_grad=True)
    a = w + x
    b = w + 1
    return w, x, a, b, a * b


def read_grad(tensor):
    """Return `tensor.grad` as text, and whether PyTorch warns when it is read."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        grad = tensor.grad
    text = "None" if grad is None else f"{grad.item():g}" if grad.ndim == 0 else f"{grad.tolist()}"
    return f"{text} (with a warning)" if caught else text


# %% [markdown] tags=["sealed"]
# the same graph, but now `w` is plain data and does not require a gradient. After `y.backward()`, which of `w`, `x`,
# `a`, `b`, `y` have a `.grad`?
#
# - [ ] all five: Backward keeps only the gradients of leaves that require one.
#   > Which of the five require a gradient? In the printout, which of those show None, and what do they have in common?
# - [ ] w and x: That would be right if both required a gradient, as in the explorer.
#   > What does `requires_grad` say of `w` in the printout? Who should have asked for its gradient?
# - [x] only x: It is the one leaf that requires a gradient. Those of a and y were computed, used and thrown away.
# - [ ] only y: Backward starts at y, with the gradient 1, but this gradient is not kept either.
#   > What is the gradient of y with respect to y itself? Is it another number in another graph?
# - [ ] a and x: The gradient of a was there on the way to x. But a was computed from other tensors, so it is not kept.
#   > Take `x` for a weight and `a` for an activation. Which of their gradients does the optimizer read after backward?
#
# `x` is a **leaf**: you made it, and no operation did. It requires a gradient, so backward writes one into `.grad`. `w` is
# a leaf too, but nobody asked for its gradient, so it was not even computed, and neither was that of `b`.
#
# In the explorer both leaves require a gradient. By the product rule, `y` hands the value of `b` to `a`, and the value
# of `a` to `b`. So 2 arrives at `a`, and from there at `x`. `w` takes part in both `a` and `b`, so it receives the sum
# 2 + 3 = 5. The simplest way to make `w.grad` zero is a hook on `w` itself, because backward ends there: it runs once,
# and receives the sum. A hook on `a` changes what `x` receives as well.
#
# `a` and `y` had a gradient here, but only for a moment. Backward passed it on and then threw it away, which
# saves a lot of memory in a deep network. If you read their `.grad`, you get None, and PyTorch warns you that
# this is probably not what you want. (Lesson 02 shows the warning.) A hook sees these gradients while they are
# there.

# %% tags=["predict"]
predict("who_has_a_gradient")

# %%
w, x = torch.tensor(1.0), torch.tensor(2.0, requires_grad=True)
a, b = w + x, w + 1
y = a * b
y.backward()
for name, tensor in {"w": w, "x": x, "a": a, "b": b, "y": y}.items():
    print(f"{name}: requires_grad = {tensor.requires_grad!s:5}  grad = {read_grad(tensor)}")

# %% tags=["why"]
why("who_has_a_gradient")

# %% [markdown]
# ## A hook that looks
#
# `tensor.register_hook(f)` asks PyTorch to call `f(grad)` in every backward pass, as soon as the gradient of `tensor`
# has been computed. If `f` returns nothing, the gradient goes on unchanged.

# %% [markdown] tags=["instructor"]
# **On this slide:** Before the cell runs, ask what the first line of output will be. Whoever expects a number thinks
# that registering calls the function; the empty list is the answer.

# %%
w, x, a, b, y = two_path_graph()
seen = []
a.register_hook(lambda grad: seen.append(grad.item()))
print("before backward:", seen)
y.backward()
print("after backward: ", seen)
print(f"w.grad = {read_grad(w)}   x.grad = {read_grad(x)}")

# %% [markdown]
# The hook did not run when it was registered. It ran during backward, and it saw 2, which is the value of `b`. The
# leaves received the same gradients as before.
#
# The same works with vectors. Here z = x + y and o = w · z, with x = [0, 1, 2, 3], y = [4, 5, 6, 7] and w =
# [1, 2, 3, 4]. The gradient of `o` with respect to `z` is `w`, so the hook should print the numbers of `w`.


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
z.register_hook(lambda grad: print("the hook on z sees", grad.tolist()))
o.backward()
for name, tensor in {"x": x, "y": y, "w": w, "z": z}.items():
    print(f"{name}.grad =", read_grad(tensor))

# %% [markdown]
# `w.grad` is the value of `z`. The gradient of `z` itself was there for a moment, and the hook caught it.
#
# ### Exercise · Record a gradient
#
# Replace the `...` in the answer cell, run the cell, and then run the `check` below it. A check tells you what is wrong
# and for which input. If you are stuck, run `hint(record_gradient)` in a new cell. `replay(record_gradient)` shows what
# your hooks do and what those of a right answer do, side by side, up to the first difference. After three
# attempts, `solution(record_gradient)` shows an answer.

# %% [markdown] tags=["sealed"]
# 1 point
# 1. Make an empty list first. The hook fills it later, when backward runs.
# 2. `tensor.register_hook(f)` calls `f(grad)` in every backward. What `f` stores must be a copy: someone may change the
#    gradient in place afterwards.


# %% tags=["answer"]
def record_gradient(tensor):
    """Return a list that will receive a copy of every gradient that reaches
    `tensor`.

    The list is empty when you return it. Each backward adds one tensor to it. The
    gradients themselves do not change.
    """
    ...


# %% tags=["check"]
check(record_gradient)

# %% [markdown]
# ## Back to the patient
#
# Parameters are tensors too, so they can have hooks. We give every parameter of the patient a hook that writes down its
# name, and we go backward once. (`name=name` makes each hook keep its own name. A later section shows what happens
# without it.)

# %% [markdown] tags=["sealed"]
# every parameter of the patient has a hook, and we go backward once. In which layers do the hooks run?
#
# - [ ] in all four: That is true of a healthy network. Here the gradient does not get that far.
#   > Walk back from the loss, step by step. Which function do you meet between `third` and `second`, and how does its
#   > code begin?
# - [ ] in second, third and last: The gradient would have to pass `standardise` to get to `second`.
#   > In `forward`, which of the two comes later: `second` or `standardise`? So which of them does backward meet first?
# - [x] in third and last: From the loss, the gradient comes as far as `third`. It never arrives at `second`.
# - [ ] only in last: The gradient passes from `last` through the ReLU to `third` without any trouble.
#   > Which step of `forward` lies between `third` and `last`? Does it run under `no_grad`?
# - [ ] in none: Then no layer would learn at all, and backward would have raised an error.
#   > The loss of the patient falls a little. Which weights must have changed for that, and what does training need to
#   > change a weight?
#
# The hooks of `first` and `second` never ran, so no gradient arrived there, and these two layers keep their
# random weights for ever. The gradient got lost between `third` and `second`. Only one step of `forward` lies in
# between: `standardise`.
#
# There, everything happens under `torch.no_grad()`, the `return` included. Under `no_grad`, PyTorch notes no
# operation for backward. So what `standardise` returns does not know that it was computed from `h`, and backward
# ends there.
#
# No error was raised, because `third` and `last` still have something to learn. That is why the loss falls a
# little. Three lines with a hook were enough to find the place. The cure comes later in this lesson.

# %% tags=["predict"]
predict("patient_layers")

# %%
net, arrived = admit(Patient), []
for name, parameter in net.named_parameters():
    parameter.register_hook(lambda grad, name=name: arrived.append(name))
loss_of(net).backward()

print("all parameters:  ", ", ".join(name for name, _ in net.named_parameters()))
print("their hooks ran: ", ", ".join(sorted(arrived)))

# %% tags=["why"]
why("patient_layers")

# %% [markdown]
# ## A hook that changes
#
# If the hook returns a tensor, this tensor **replaces** the gradient, and everything that comes later in backward works
# with the new one. The following hook doubles the gradient, and it returns three times the result.

# %% [markdown] tags=["instructor"]
# **On this slide:** Write the function on the board and ask what comes out for a gradient of 1. The 6 has to be clear
# to everybody before anybody votes, because the question is where it counts, and not how much it is.


# %%
def change_gradient(grad):
    """Double the gradient, then return three times that."""
    doubled = 2 * grad
    return 3 * doubled


# %% [markdown]
# First we put it on the leaf `w`, whose gradient is 5 without a hook.

# %% [markdown] tags=["sealed"]
# the hook on the leaf `w` doubles the gradient and returns three times that. What is `w.grad`?
#
# - [ ] 5: That is the gradient without the hook. A hook that returns a tensor replaces the gradient.
#   > What does `change_gradient` return if you give it 5? And what does PyTorch do with a tensor that a hook returns?
# - [ ] 10: Doubling is only the first line; the hook also returns three times the doubled gradient.
#   > How would you have to change the last line of the hook so that 10 would be right?
# - [ ] 15: Three times 5 would be right if the last line used `grad`. It uses the doubled gradient.
#   > When the last line of the hook runs, which number is in `doubled`?
# - [x] 30: 5 is doubled to 10, and what is returned, 30, is what the leaf receives.
#
# 5 · 2 · 3 = 30. The hook ran once, on the sum of what came along both paths. `x.grad` is still 2, because
# backward does not pass through `w` on its way to `x`.

# %% tags=["predict"]
predict("hook_on_w")

# %%
w, x, a, b, y = two_path_graph()
w.register_hook(change_gradient)
y.backward()
print(f"w.grad = {read_grad(w)}   x.grad = {read_grad(x)}")

# %% tags=["why"]
why("hook_on_w")

# %% [markdown]
# ### The same hook in the middle of the graph
#
# Now the hook sits on `a = w + x`. Nothing else changes.

# %% [markdown] tags=["sealed"]
# the same hook, six times the gradient, now sits on `a` instead of `w`. What is `w.grad`?
#
# - [ ] 5: That is the gradient without any hook; the part that comes through a is changed.
#   > Which gradient arrives at `a`, and which one does the hook pass on? Which leaves receive it?
# - [ ] 12: That is the part through a (6 · 2). The part through b is added to it.
#   > How many arrows lead to w in backward? One of them comes through the hook: what does the other one bring?
# - [x] 15: 6 · 2 arrives through a, and the untouched 3 through b: 12 + 3.
# - [ ] 30: For 30 both paths would have to pass through the hook; the path through b does not.
#   > Follow the arrows from `y` through `b` to `w` with your finger. Where on this path do you meet the hook?
#
# The hook sees only what flows through `a`, and turns its 2 into 12. The 3 that arrives through `b` does not meet
# the hook. So `w` receives 12 + 3 = 15. `x` has no second path, so all of its gradient is multiplied: it receives
# 12.

# %% tags=["predict"]
predict("hook_on_a")

# %%
w, x, a, b, y = two_path_graph()
a.register_hook(change_gradient)
y.backward()
print(f"w.grad = {read_grad(w)}   x.grad = {read_grad(x)}")

# %% tags=["why"]
why("hook_on_a")

# %% [markdown]
# On the vector graph, we put a hook on `z` that returns twice the gradient. Backward reaches `x` and `y` through `z`,
# so they receive twice as much. It reaches `w` directly from `o`, so `w` receives the same as before.

# %%
x, y, w, z, o = vector_graph()
z.register_hook(lambda grad: 2 * grad)
o.backward()
print("x.grad =", x.grad.tolist(), " y.grad =", y.grad.tolist(), " w.grad =", w.grad.tolist())

# %% [markdown]
# ### Exercise · Scale a gradient

# %% [markdown] tags=["sealed"]
# 2 points
# 1. A hook that returns nothing looks; a hook that returns a tensor replaces the gradient.
# 2. `register_hook` returns a handle. The task asks for it, so that whoever called you can end the scaling.


# %% tags=["answer"]
def scale_gradient(tensor, factor):
    """Make every gradient that flows back through `tensor` `factor` times as large,
    and return the hook's handle.

    The values of `tensor` stay as they are, and so do the gradients of its
    siblings.
    """
    ...


# %% tags=["check"]
check(scale_gradient)

# %% [markdown]
# ### Exercise · Keep only the positive part

# %% [markdown] tags=["sealed"]
# 1 point
# 1. The hook gets the gradient as a tensor; which operation replaces negative numbers by 0 and keeps the rest?
# 2. `grad.clamp(min=0)` makes a new tensor; `grad.clamp_(min=0)` writes into one that others may share.


# %% tags=["answer"]
def keep_positive(tensor):
    """Let only the positive part of the gradient flow back through `tensor`, and
    return the hook's handle.

    Each negative number of the gradient becomes 0; all numbers are finite. This one
    line is half of Guided Backpropagation (lesson 06).
    """
    ...


# %% tags=["check"]
check(keep_positive)

# %% [markdown] tags=["instructor"]
# **Misconception:** "The hook on a changes w.grad by the same factor." **Ask:** "How many arrows lead to w in backward?
# Which of them comes through the hook?" **Expect:** "Both, because w takes part in a." **Then show:** draw the 12 on
# one arrow and the 3 on the other; they meet only at w.
#
# **Misconception:** "a.grad is None, so a had no gradient." **Ask:** "Then what did the hook print?" **Answer:** it had
# one for a moment. None says that nobody kept it.
#
# **Misconception:** "A hook runs when I register it." **Ask:** "What is in `seen` before backward?" **Answer:**
# nothing.
#
# **Misconception:** "My hook doubles the gradient" (`lambda grad: print(grad * 2)`). **Ask:** "What does your function
# return?" **Answer:** None, and None means: keep the old one.
#
# **The patient:** somebody will blame the learning rate or the number of layers. **Ask:** "What would the hooks have
# shown then?" **Answer:** a gradient at every layer.
#
# **For discussion:** why does PyTorch not keep the gradients of results? (In a chain, two at a time are enough to go
# back through any number of layers. Lesson 02 measures it.)

# %% [markdown]
# ## A hook that writes into the gradient
#
# In many old tutorials such a hook begins with `grad *= 2`. This line works **in place**, that is, it writes into the
# tensor that the hook was given. On `w` we get the same 30 as before:


# %%
def change_in_place(grad):
    """Write twice the gradient into the tensor, then return three times that."""
    grad *= 2
    return grad * 3


w, x, a, b, y = two_path_graph()
w.register_hook(change_in_place)
y.backward()
print(f"in place: w.grad = {read_grad(w)}   x.grad = {read_grad(x)}")

# %% [markdown]
# Now take e = c + d. Addition passes its gradient on unchanged to both `c` and `d`. A hook on `c` multiplies the gradient
# by 100 in place.

# %% [markdown] tags=["sealed"]
# `e = c + d`, and a hook on `c` multiplies its gradient by 100 in place. What is `d.grad` (2 without the hook)?
#
# - [ ] 2: That is what one would want. But c and d are handed the very same gradient tensor, and the hook writes into it.
#   > With the hook on `c`, what did the cell print for `d.grad`? What does this tell you about the two gradient
#   > tensors?
# - [ ] 100: The hook multiplies what is there, 2.
#   > Which number does the hook find in `grad`? What does `mul_(100)` make of it?
# - [x] 200: c and d share one gradient tensor. The hook wrote into it before it reached d.
# - [ ] an error: Here nothing stops it, and that is what makes it dangerous.
#   > Which line should raise the error? And how could PyTorch know there that this change was not wanted?
#
# PyTorch does not copy the gradient for each operand of an addition: the siblings `c` and `d` receive **the same
# tensor**.
#
# - With the hook on `c`, both gradients are 200. `c` came first, the hook wrote into the shared tensor, and `d`
#   found it changed.
# - With the hook on `d`, `c` had already taken its gradient, so only `d` is changed.
#
# The result depends on which of the two comes first, and you cannot choose that.

# %% tags=["predict"]
predict("sibling_gradient")

# %%
for place in ("c", "d"):
    c, d = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    e = c + d
    hooked = c if place == "c" else d
    hooked.register_hook(lambda grad: grad.mul_(100))  # the underscore: in place
    (2 * e).sum().backward()
    print(f"in-place hook on {place}: c.grad = {c.grad.tolist()}  d.grad = {d.grad.tolist()}")

# %% tags=["why"]
why("sibling_gradient")

# %% [markdown]
# A plain `sum` is a special case. Its gradient is a single number that is stretched to the shape of the tensor, and
# PyTorch refuses to write into it.

# %%
c, d = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
c.register_hook(lambda grad: grad.mul_(100))
try:
    (c + d).sum().backward()
except RuntimeError as error:
    print("RuntimeError:", str(error).split(".")[0])

# %% [markdown]
# **The rule:** a hook never writes into `grad`. It returns a new tensor. Write `return grad * 100`, not
# `grad.mul_(100)` and not `grad *= 100`, even where it would do no harm.

# %% [markdown] tags=["instructor"]
# **Misconception:** "`grad *= 2` and `grad = grad * 2` are the same." **Ask:** "Which of the two lines makes a new
# tensor? Whose is the old one?" **Expect:** "I return it anyway, so it does not matter." **Then show:** the cell with
# the hook on c and on d: one program, two results, and no error in either.
#
# **For discussion:** the siblings were 200 and 200, or 2 and 200. Which one will you get in a network? (You cannot
# know, because the order of siblings inside autograd is not promised. That is why there is a rule.)

# %% [markdown]
# ## Two hooks, and the handle
#
# A tensor may have several hooks. They run in the order in which they were registered, and each receives what the one
# before it returned. In the next cell the first hook doubles the gradient, and the second one prints it.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what the second cell would print if only the second hook were removed instead. It shows
# whether they see a queue or two watchers that know nothing of each other.

# %%
x, y, w, z, o = vector_graph()
doubling = z.register_hook(lambda grad: 2 * grad)
z.register_hook(lambda grad: print("the second hook sees", grad.tolist()))
o.backward(retain_graph=True)  # keeps the graph, so that we can go backward once more below

# %% [markdown]
# `register_hook` returns a **handle**. `handle.remove()` takes this hook away, and the other one stays. A hook that
# nobody removes runs in every later backward pass. So keep the handle whenever the tensor lives longer than you need
# the hook.

# %%
doubling.remove()
o.backward()
print("x.grad =", x.grad.tolist(), " the sum of both passes: 2·w + w")

# %% [markdown]
# ## In which order do hooks on different tensors run?
#
# Take x = 3, y = x - 2 = 1 and z = (y - x)² = 4. We register a printing hook first on `y` and then on `z`.


# %% tags=["setup"]
def square_graph():
    """The leaf x = 3, then y = x - 2 and z = (y - x)²."""
    x = torch.tensor(3.0, requires_grad=True)
    y = x - 2
    return x, y, (y - x) ** 2


# %% [markdown] tags=["sealed"]
# y = x - 2, then z = (y - x)², hooks on `y` and on `z`. Whose hook runs first in backward?
#
# - [ ] y: y was computed first, so it comes last: backward walks from the result to the leaves.
#   > Which gradient must backward know before it can work out the gradient of `y`?
# - [x] z: z is the result, and backward starts there.
# - [ ] whichever was registered first: That decides between two hooks on the same tensor, not between two tensors.
#   > In the cell, which hook was registered first, and which one printed first? What changes if you swap the two lines?
#
# `z` comes first although its hook was registered last, because backward starts at the result. Then `y` receives
# 2 · (y - x) = -4. `x` receives -4 through `y` and +4 on the direct path, which add up to 0.

# %% tags=["predict"]
predict("first_hook_to_fire")

# %%
x, y, z = square_graph()
y.register_hook(lambda grad: print(f"y: {grad:g}"))
z.register_hook(lambda grad: print(f"z: {grad:g}"))
z.backward()
print("x.grad =", read_grad(x))

# %% tags=["why"]
why("first_hook_to_fire")

# %% [markdown]
# Now both hooks add 2. Work it out with a pencil before you run the cell: `z` passes on 3 instead of 1. Then `y`
# receives 2 · (-2) · 3 = -12 and passes on -10. Finally, `x` receives -10 + 12 = 2.


# %%
def add_two(name):
    """Return a hook that adds 2 to the gradient and prints both."""

    def hook(grad):
        print(f"{name}: {grad:g} -> {grad + 2:g}")
        return grad + 2

    return hook


x, y, z = square_graph()
y.register_hook(add_two("y"))
z.register_hook(add_two("z"))
z.backward()
print("x.grad =", read_grad(x))

# %% [markdown]
# One more example, with a mean: a = [1, 1, 1, 1, 1], b = 2a and c = mean(b). Each of the five numbers in `b` makes up
# one fifth of the mean, and each number in `a` counts twice as much.

# %%
a = torch.ones(5, requires_grad=True)
b = 2 * a
a.register_hook(lambda grad: print("a:", [round(value, 6) for value in grad.tolist()]))
b.register_hook(lambda grad: print("b:", [round(value, 6) for value in grad.tolist()]))
b.mean().backward()

# %% [markdown]
# Results come in the reverse order of their computation. The rule behind it is the only one that you can rely on: a tensor
# comes after everything that was computed from it.

# %% [markdown]
# ## Hooks made in a loop
#
# In the next cell three hooks are made in a loop. Each of them is meant to append its own name.

# %% [markdown] tags=["instructor"]
# **On this slide:** Let them write the three names that they expect before you run it. Then ask where else they have
# met this: callbacks of buttons have the same fault.

# %%
names = []
x = torch.ones(1, requires_grad=True)
for name in ("first", "second", "third"):
    x.register_hook(lambda grad: names.append(name))
x.sum().backward()
print(names)

# %% [markdown]
# All three hooks looked up `name` when they *ran*, and by then the loop had ended. A hook nearly always runs later than
# the line that made it, so it has to bring its name along. The loop over the patient's parameters did this with
# `name=name`.
#
# ### Exercise · Record several gradients by name

# %% [markdown] tags=["sealed"]
# 2 points
# 1. Every hook needs to know its own name. Which name does it see when it runs, long after the loop has ended?
# 2. A lambda looks its variables up when it *runs*. Give the name as a default value, or make the hook in a function
#    that has the name as its argument.


# %% tags=["answer"]
def record_by_name(tensors):
    """Return a dict that will map each name in `tensors` (a dict of name to tensor)
    to a copy of its gradient.

    The dict is empty when you return it; backward fills it, in the order in which
    the gradients arrive. A later backward puts its gradients in place of the
    earlier ones; a name that gets none keeps the one it has.
    """
    ...


# %% tags=["check"]
check(record_by_name)

# %% [markdown] tags=["instructor"]
# **Misconception:** "Hooks fire in the order in which I registered them." **Ask:** "z was registered last. Why did it
# print first?" **Answer:** backward starts at the result. The order of registration decides only between two hooks on
# one tensor.
#
# **Misconception:** "In the loop each hook has its own name." **Ask:** "When is `name` looked up?" **Expect:** "When
# the lambda is made." **Then show:** change `name` after the loop and go backward once more.

# %% [markdown]
# ## The patient, before and after
#
# You know which line is to blame. Here is the function without its mistake, and the network is trained again. Nothing
# else has changed.

# %% [markdown] tags=["instructor"]
# **On this slide:** Go through the guesses of the first slide, and ask which of them the hooks had already excluded.
# Then ask why there was no error: the network is correct as a computation, and only its graph is cut.


# %%
def standardise(h):
    """Give each column of `h` the mean 0 and the standard deviation 1."""
    return (h - h.mean(dim=0)) / (h.std(dim=0) + 1e-5)


after = train(admit(Patient))

# %% tags=["setup"]
draw_curves(
    {"before": before, "after": after},
    title="After the cure, the loss falls to 0",
    alt=f"The loss over 120 training steps. Before the cure it ends at {before[-1]:.2f}. After the cure it falls to "
    f"{after[-1]:.2f}.",
)

# %% [markdown]
# Three lines with a hook found what no error message said. Here the patient's story ends. The parts called *More* can wait:
# the lesson goes on with [what old tutorials say](#What-old-tutorials-say).

# %% [markdown] tags=["more"]
# ## More: A hook that removes itself
#
# A hook that nobody removes runs in every later backward pass. Sometimes you want only the first gradient, and then the
# hook can take itself away.
#
# ### Exercise · A hook that runs only once

# %% [markdown] tags=["sealed"]
# 2 points
# 1. A hook may remove itself: it only needs its own handle.
# 2. The inner function may use `handle` although it is assigned below it: it is looked up when the hook runs.


# %% tags=["answer"]
def hook_once(tensor, hook):
    """Run `hook` on the first gradient that reaches `tensor`, and on no later one.

    What `hook` returns counts, as with `register_hook`, and what it raises goes on.
    After the first backward your hook is gone from `tensor`, even if `hook` raised;
    other hooks stay. Return nothing.
    """
    ...


# %% tags=["check"]
check(hook_once)

# %% [markdown] tags=["instructor"]
# **For discussion:** who removes the hook in exercise {hook_once}, and why may a hook remove itself? (Registering
# returns the handle. The hook looks it up when it runs, which is later.)

# %% [markdown] tags=["more"]
# ## More: Hooks inside a network
#
# Inside `forward` you have the activations at hand, so you can register hooks on them there. The next network lets only
# gradients ≥ 0 pass back into its convolution, and a second hook checks that it worked.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask which of these hooks need a handle, and why. The hook on an activation goes with
# the graph of its call; the one on a parameter stays for the whole training.


# %%
class ClampedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 10, kernel_size=2, stride=2)
        self.fc1 = nn.Linear(160, 5)

    def forward(self, images):
        hidden = torch.relu(self.conv(images))
        hidden.register_hook(lambda grad: grad.clamp(min=0))
        hidden.register_hook(self.look)
        return self.fc1(hidden.flatten(start_dim=1))

    def look(self, grad):
        print("any gradient less than zero:", bool((grad < 0).any()))


# %% [markdown]
# Parameters can get their hooks from outside, by name. Here every bias of an `fc` layer receives a gradient of zero.

# %%
torch.manual_seed(0)
net = ClampedNet()
handles = []
for name, parameter in net.named_parameters():
    if "fc" in name and name.endswith("bias"):
        handles.append(parameter.register_hook(torch.zeros_like))

(1 - net(torch.randn(1, 3, 8, 8))).mean().backward()
for handle in handles:
    handle.remove()
print("fc1.bias.grad =", net.fc1.bias.grad.tolist())
print("fc1.weight.grad is all zero:", bool((net.fc1.weight.grad == 0).all()))

# %% [markdown]
# The second hook sees what the first one returned, so it finds nothing below zero. The bias of `fc1` is frozen, and its
# weight is not.
#
# A hook on an activation lives in the graph of its call and disappears with that graph. It still runs if the
# activation's name is gone before backward. A hook on a parameter stays as long as the parameter exists, so the cell
# removes it.
#
# ### Exercise · Freeze the biases

# %% [markdown] tags=["sealed"]
# 2 points
# 1. `model.named_parameters()` gives names such as `0.bias` or `head.bias`, at every depth.
# 2. The parameters must still require their gradient: it is the hook that turns it into zeros.


# %% tags=["answer"]
def freeze_biases(model):
    """Make the gradient of every bias of `model` zero, at any depth, with hooks;
    return the list of their handles.

    A bias is a parameter whose name ends in "bias"; each of them requires a gradient,
    which is finite. After `handle.remove()` on each handle it learns again.
    """
    ...


# %% tags=["check"]
check(freeze_biases)

# %% [markdown] tags=["more"]
# ## More: Leaves, later values and errors
#
# Three short cells follow, each about a rule that you will need one day. The first one is about leaves. Is what was computed
# last always the first in backward? Here the leaf `u` is the first tensor that we make, before `p` and `q`.

# %%
u = torch.tensor(3.0, requires_grad=True)
p = torch.tensor(2.0, requires_grad=True)
q = 5 * p
y = q * u
for name, tensor in {"u": u, "p": p, "q": q, "y": y}.items():
    tensor.register_hook(lambda grad, name=name: print(f"{name}: {grad:g}"))
y.backward()

# %% [markdown]
# `u` does not wait until the end. PyTorch handles a leaf as soon as its gradient is complete. The rule holds here too: `u`
# comes after `y`, which was computed from it.

# %% [markdown]
# ### A tensor that is changed in place later
#
# A hook belongs to the *value* that the tensor had when the hook was registered. In the next cell `h` is multiplied by
# 10 in place between two registrations. So there is one name, but there are two values and two gradients.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask "Which two numbers will be printed, and which comes first?" Whoever answers 10 twice takes
# `h` for one thing. Write `h` and `h'` on the board.

# %%
x = torch.tensor([1.0, 2.0], requires_grad=True)
h = 3 * x
h.register_hook(lambda grad: print("registered before h.mul_(10) sees", grad.tolist()))
h.mul_(10)
h.register_hook(lambda grad: print("registered after  h.mul_(10) sees", grad.tolist()))
h.sum().backward()

# %% [markdown]
# The later value comes first in backward, with the gradient 1. A change of the earlier value counts ten times as much,
# so its hook sees 10. In-place ReLUs do this to activations in real networks. You will meet them again in lesson 03.

# %% [markdown]
# ### What raises an error
#
# Whatever a hook returns has to take the place of the gradient, so it must be a tensor of the same shape and dtype. You
# can register the four hooks below, but each of them raises an error when backward runs.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask which of the four they expect to be accepted. Many say the plain number. Then point out when
# the error comes: in backward, perhaps far from the line that registered the hook.

# %%
impostors = {
    "another shape": lambda grad: torch.ones(3),
    "another dtype": lambda grad: grad.double(),
    "a mask": lambda grad: grad > 0,
    "a plain number": lambda grad: 3.0,
}
for what, hook in impostors.items():
    h = 2 * torch.ones(2, requires_grad=True)
    h.register_hook(hook)
    try:
        h.sum().backward()
    except (RuntimeError, TypeError) as error:
        print(f"{what}: {type(error).__name__}")
try:
    torch.ones(2).register_hook(print)
except RuntimeError as error:
    print("RuntimeError:", error)

# %% [markdown]
# The last line is about a tensor that requires no gradient: it cannot have a hook at all.
#
# One mistake raises *no* error: if you register a hook after backward, it simply waits for the next backward pass. This
# is a common reason why a hook never runs.

# %% [markdown] tags=["more"]
# ## More: Two more kinds of hooks
#
# A hook on a leaf runs **before** the gradient is added to `.grad`. If you want the moment **after** that, when `.grad`
# is complete, use `register_post_accumulate_grad_hook`. It works on leaves only, and its function receives the tensor,
# not the gradient.

# %% [markdown] tags=["instructor"]
# **On this slide:** Draw a time line with three points: the gradient arrives, it is added to `.grad`, all are there.
# Let the room put the three kinds of hooks on it before you run the cells.

# %%
x = torch.ones(2, requires_grad=True)
x.register_hook(lambda grad: print("  before: x.grad is", x.grad))
x.register_post_accumulate_grad_hook(lambda leaf: print("  after:  x.grad is", leaf.grad))
for number_of_pass in (1, 2):
    print("backward", number_of_pass)
    (3 * x).sum().backward()

# %% [markdown]
# In the second pass the first hook still sees the 3 of the first pass, and the other one sees the sum, 6. That moment
# is a good one for a step of the optimizer inside backward, because the gradient is no longer needed afterwards
# (exercise {step_in_backward}).
#
# `torch.autograd.graph.register_multi_grad_hook` waits for the gradients of **several** tensors and calls your function
# once. For a tensor that takes no part, your function gets `None`.


# %%
def report(grads):
    print("all there:", [None if grad is None else grad.tolist() for grad in grads])


p, q, unused = (torch.ones(2, requires_grad=True) for _ in range(3))
handle = torch.autograd.graph.register_multi_grad_hook([p, q, unused], report)
(2 * p + 5 * q).sum().backward()
handle.remove()

# %% [markdown]
# ### Exercise · Wait for all of them

# %% [markdown] tags=["sealed"]
# 2 points
# 1. A hook on each tensor fires as soon as that tensor's own gradient is there. You need one that waits for all of them.
# 2. `torch.autograd.graph.register_multi_grad_hook(tensors, f)` calls `f(grads)` once; a tensor that took no part has
#    None in `grads`.


# %% tags=["answer"]
def record_total_norm(tensors):
    """Return a list that will receive, once per backward, the norm of all gradients
    of `tensors` together.

    The norm is the square root of the sum of all squares, as a Python float. A
    tensor that took no part adds nothing.
    """
    ...


# %% tags=["check"]
check(record_total_norm)

# %% [markdown]
# ### Exercise · An optimizer inside backward

# %% [markdown] tags=["sealed"]
# 3 points
# 1. `register_hook` runs before the gradient is added to `.grad`. Here you need the moment after.
# 2. `parameter.register_post_accumulate_grad_hook(f)` calls `f(parameter)` when `parameter.grad` is complete.


# %% tags=["answer"]
def step_in_backward(parameters, rate):
    """Make every parameter of the list `parameters` take a step of plain gradient
    descent during backward; return the list of handles.

    As soon as a parameter's `.grad` is complete, `rate` times this `.grad` is
    subtracted from the parameter's values in place, and its `.grad` is set to None,
    so that its memory is free again before the gradients of earlier layers come.
    """
    ...


# %% tags=["check"]
check(step_in_backward)

# %% [markdown] tags=["instructor"]
# **Misconception:** "A hook on a leaf sees `.grad`." **Ask:** "In the second pass, what does the first hook print, and
# what does the other one print?" **Answer:** 3 and 6: the plain hook runs before the gradient is added.
#
# **Misconception:** "`tensor.grad` holds it, I only have to read it in my function" (exercises {record_gradient} and
# {record_by_name}). **Ask:** "When does this line run, and what has happened by then?" **Then show:** a print in the
# body and one in the hook; let them say which comes first.
#
# **For discussion:** what does exercise {step_in_backward} save? (Each gradient is freed as soon as it has been
# used, so they are never all in memory. It is not quite one at a time: the node of a Linear layer hands on the
# gradients of its weight and its bias together.)

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | Change the gradient with `grad *= 2` inside the hook. | This works only as long as no other tensor shares the gradient. Return a new tensor instead. |
# | A hook without `return` is for printing only. | Yes. But a forgotten `return` is also a common bug in a hook. |
# | The gradient that a hook sees *is* `.grad`. | On a leaf it is what is about to be *added* to `.grad`. After a second backward pass the two differ. |
# | Use `Variable(..., requires_grad=True)`. | `Variable` was merged into `Tensor` in PyTorch 0.4. |

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask who has written `grad *= 2` in a hook, and whether they would have noticed the fault. It
# gives the right result in most small examples, and this is why it has lived so long.

# %% [markdown]
# ## The case
#
# The network of lesson 00 sees a fish, and nobody knows why. Now you have the first tool: a hook on the picture itself.
# It receives the gradient of the answer "fish". How much of its strength falls on the fish?

# %%
from course_utils.explorers import case

picture, suspect = case.open_case()
image, arrived = picture.image[None].requires_grad_(), []
image.register_hook(arrived.append)
suspect(image)[0, case.FISH].backward()

strength, fish = arrived[0].abs().amax(1)[0], picture.masks[0]
share, area = strength[fish].sum() / strength.sum(), fish.float().mean()
case.keep_clue(
    "01",
    f"{share:.0%} of the gradient's strength falls on the fish, which covers {area:.0%} of the picture.",
    {"the fish": case.close_up(picture.image), "the gradient there": case.close_up(strength)},
)

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what the room concludes: "So it does look at the fish?" Let that stand for now. Lesson 03 makes
# the experiment, and it will surprise them.

# %% [markdown]
# ## Summary
#
# - After backward, only leaves have a `.grad`, unless you ask for more (lesson 02). A hook sees the gradient of any
#   tensor while backward runs.
# - `tensor.register_hook(f)` calls `f(grad)`. None keeps the gradient, and a tensor of the same shape and dtype
#   replaces it.
# - Hooks on one tensor run in the order of their registration. A tensor comes after everything that was computed from
#   it.
# - A replaced gradient changes only what backward reaches through this tensor.
# - Never write into `grad`: return a new tensor. Bind loop variables, and remove the hooks that you no longer need.
# - `register_post_accumulate_grad_hook` runs when `.grad` is complete, `register_multi_grad_hook` when several
#   gradients are there.
# - If a layer does not learn, put a hook on every parameter. The gradient was lost between the last layer that it
#   reached and the first one that it did not reach.

# %% [markdown] tags=["instructor"]
# **On this slide:** Cover the list, and let three people say one rule each. The one that is missed most often is that
# a replaced gradient changes only what backward reaches through this tensor.

# %% [markdown]
# ## Go further
#
# - Lesson 02 shows when `retain_grad()` is enough, what it costs, and a third way: hooks on saved tensors.
# - [Autograd mechanics: backward hooks execution](https://pytorch.org/docs/stable/notes/autograd.html#backward-hooks-execution)
#   has the rules in PyTorch's own words, also for in-place changes.
# - [`torch.Tensor.register_hook`](https://pytorch.org/docs/stable/generated/torch.Tensor.register_hook.html)

# %% [markdown] tags=["instructor"]
# **On this slide:** At home: the exercises that were left out in the room. Ask them to bring one place in their own
# code where they would like to see a gradient; lesson 03 can begin with it.
