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
# Backward computes a gradient for every tensor on its way and keeps almost none of them.
# A hook is a function of yours that PyTorch calls when one of them comes by. It may look at the gradient, or replace it.
#
# ## What you will be able to do
#
# - **Explain** which tensors keep a gradient after `backward()`, and why the others show `None`.
# - **Record** the gradient of any tensor with a hook, and **remove** the hook again.
# - **Replace** a gradient on its way, and **work out** with a pencil what every leaf then receives.
# - **Predict** the order in which hooks run.
# - **Recognise** the three traps: in-place changes, wrong shapes, and hooks made in a loop.
#
# **Time:** about 60 minutes: 30 to read, predict and run, 30 for the exercises.
#
# Run a cell with Shift+Enter. Where you see **Predict**, commit to an answer before you run the next cell.

# %% [markdown] tags=["instructor"]
# **Plan**
#
# | Minutes | Sections | How |
# |---|---|---|
# | 7 | Where did my gradient go? · A hook that looks | graph on the board; somebody computes 2 and 5 with chalk before any cell runs |
# | 5 | A hook that changes | both predictions by show of hands; let a 30 and a 15 argue |
# | 5 | Two hooks, and the handle · In which order do hooks on different tensors run? | pencil first: the -10 and the 2 |
# | 2 | In a network | read it; the point is which hooks need a handle |
# | 4 | The trap: siblings share one gradient | do not hurry: this bug is silent |
# | 2 | A tensor that is changed in place later · What raises | run and read |
# | 2 | Two newer kinds | run and read |
# | 2 | Explore | in pairs: make w.grad zero while x.grad is not |
# | 30 | Exercises | 1, 2, 3, 5, 6 in the room; 4, 7 and 8 at home if time is short |
# | 1 | What old tutorials say · Summary · Go further | one sentence each from three people |

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
import torch
from torch import nn

from course_utils.exercises import check, hint, predict, solution, why
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

# %% [markdown]
# ## Where did my gradient go?
#
# We need a graph small enough for a pencil. `w` reaches `y` along two paths, `x` along one:
#
# ```text
# w ──┬──► a = w + x ──┐
#     │        ▲       ├──► y = a · b
# x ──│────────┘       │
#     └──► b = w + 1 ──┘
# ```
#
# With w = 1 and x = 2 we get a = 3, b = 2 and y = 6. Backward starts at `y` with the gradient 1.
# The product rule hands b = 2 to `a` and a = 3 to `b`. So `x` receives 2, and `w` receives 2 + 3 = 5.


# %% tags=["setup"]
def two_path_graph():
    """The leaves w = 1 and x = 2, then a = w + x, b = w + 1 and y = a · b."""
    w = torch.tensor(1.0, requires_grad=True)
    x = torch.tensor(2.0, requires_grad=True)
    a = w + x
    b = w + 1
    return w, x, a, b, a * b


def number(tensor):
    """A gradient as a short text: None, or the number."""
    return "None" if tensor is None else f"{tensor.item():g}"


# %% [markdown]
# All five tensors require a gradient, and backward computes one for each. Which of them can you read afterwards?

# %% tags=["predict"]
predict("who_has_a_gradient")

# %% [markdown]
# We read `.grad` only after asking `is_leaf`: on a tensor that is not a leaf, PyTorch would answer None with a warning
# (lesson 02 shows it).

# %%
w, x, a, b, y = two_path_graph()
y.backward()
for name, tensor in {"w": w, "x": x, "a": a, "b": b, "y": y}.items():
    kept = number(tensor.grad) if tensor.is_leaf else "None"
    print(f"{name}: is_leaf = {tensor.is_leaf!s:5}  grad = {kept}")

# %% [markdown]
# Only `w` and `x` kept theirs: 5 and 2, as worked out above. They are **leaves**: you made them, no operation did.
# `a`, `b` and `y` had a gradient too, for a moment. It was passed on and thrown away, which saves a lot of memory in a
# deep network. A hook sees it while it is there.

# %% [markdown]
# ## A hook that looks
#
# `tensor.register_hook(f)` asks PyTorch to call `f(grad)` in each backward, when the gradient of `tensor` is known.
# If `f` returns nothing, the gradient goes on unchanged.

# %%
w, x, a, b, y = two_path_graph()
seen = []
a.register_hook(lambda grad: seen.append(grad.item()))
print("before backward:", seen)
y.backward()
print("after backward: ", seen)
print(f"w.grad = {number(w.grad)}   x.grad = {number(x.grad)}")

# %% [markdown]
# The hook ran during backward, not when it was registered, and it saw 2: the value of `b`. The leaves got what they got before.
#
# The same with vectors. Here z = x + y and o = w · z, with x = [0, 1, 2, 3], y = [4, 5, 6, 7] and w = [1, 2, 3, 4].
# The gradient of `o` with respect to `z` is `w`, so that is what the hook should print.


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
print("x.grad =", x.grad.tolist())
print("y.grad =", y.grad.tolist())
print("w.grad =", w.grad.tolist(), " which is the value of z")

# %% [markdown]
# ## A hook that changes
#
# If the hook returns a tensor, that tensor **replaces** the gradient, for everything that comes after it in backward.
# This hook does two things: it doubles the gradient in place, and it returns three times the result.


# %% tags=["setup"]
def six_times(grad):
    """Double in place, then return three times that. (Writing in place is a bad
    habit: see the siblings below.)
    """
    grad *= 2
    return grad * 3


# %% [markdown]
# First it sits on the leaf `w`, whose gradient is 5 without it.

# %% tags=["predict"]
predict("hook_on_w")

# %%
w, x, a, b, y = two_path_graph()
w.register_hook(six_times)
y.backward()
print(f"w.grad = {number(w.grad)}   x.grad = {number(x.grad)}")

# %% [markdown]
# 5 · 2 · 3 = 30: the hook ran once, on the sum of what came along both paths. `x` is not behind `w`, so it kept its 2.
#
# ### The same hook, one step later
#
# Now it sits on `a = w + x`, in the middle of the graph. Nothing else changes.

# %% tags=["predict"]
predict("hook_on_a")

# %%
w, x, a, b, y = two_path_graph()
a.register_hook(six_times)
y.backward()
print(f"w.grad = {number(w.grad)}   x.grad = {number(x.grad)}")

# %% [markdown]
# 15, not 30. The hook sees only what flows through `a`: its 2 becomes 12.
# The 3 that arrives through `b` passes by untouched, and 12 + 3 = 15. `x` has no second path, so all of it is multiplied: 12.
#
# On the vector graph a hook on `z` that returns twice the gradient changes `x` and `y`, which lie behind it, and not `w`,
# which does not:

# %%
x, y, w, z, o = vector_graph()
z.register_hook(lambda grad: 2 * grad)
o.backward()
print("x.grad =", x.grad.tolist(), " y.grad =", y.grad.tolist(), " w.grad =", w.grad.tolist())

# %% [markdown] tags=["instructor"]
# **Misconception:** "The hook on a changes w.grad by the same factor." **Ask:** "How many arrows leave w? Which of them does
# the hook stand on?" **Expect:** "Both, w is behind a." **Then show:** draw the 12 on one arrow and the 3 on the other;
# they meet only at w.
#
# **Misconception:** "a.grad is None, so a had no gradient." **Ask:** "Then what did the hook print?" **Answer:** it had one,
# for a moment; None says that nobody kept it.
#
# **Misconception:** "A hook runs when I register it." **Ask:** "What is in `seen` before backward?" **Answer:** nothing.
#
# **For discussion:** why does PyTorch throw gradients of results away? (Because two at a time are enough to go back through
# any number of layers; lesson 02 measures it.)

# %% [markdown]
# ## Two hooks, and the handle
#
# A tensor may have several hooks. They run in the order in which they were registered, and each gets what the one before
# it returned. Here the first doubles and the second prints.

# %%
x, y, w, z, o = vector_graph()
doubling = z.register_hook(lambda grad: 2 * grad)
z.register_hook(lambda grad: print("the second hook sees", grad.tolist()))
o.backward(retain_graph=True)  # keeps the graph, so that we can go backward once more below

# %% [markdown]
# `register_hook` returns a **handle**. `handle.remove()` takes the hook away; the other one stays.
# A hook that nobody removes runs in every later backward, so keep the handle whenever the tensor lives on.

# %%
doubling.remove()
o.backward()
print("x.grad =", x.grad.tolist(), " the sum of both passes: 2·w + w")

# %% [markdown]
# ## In which order do hooks on different tensors run?
#
# Take x = 3, y = x - 2 = 1 and z = (y - x)² = 4, with a printing hook on `y` and one on `z`.

# %% tags=["predict"]
predict("first_hook_to_fire")


# %% tags=["setup"]
def square_graph():
    """The leaf x = 3, then y = x - 2 and z = (y - x)²."""
    x = torch.tensor(3.0, requires_grad=True)
    y = x - 2
    return x, y, (y - x) ** 2


# %%
x, y, z = square_graph()
y.register_hook(lambda grad: print("y:", number(grad)))
z.register_hook(lambda grad: print("z:", number(grad)))
z.backward()
print("x.grad =", number(x.grad))

# %% [markdown]
# `z` first, although its hook was registered last: backward starts at the result. Then `y` with 2 · (y - x) = -4.
# `x` gets -4 through `y` and +4 directly, together 0.
#
# Let both hooks add 2 and check it with a pencil: `z` passes on 3 instead of 1. Then `y` receives 2 · (-2) · 3 = -12,
# passes on -10, and `x` gets -10 + 12 = 2.

# %%
x, y, z = square_graph()


def add_two(name):
    """A hook that adds 2 to the gradient and prints the result; it makes a new
    tensor and leaves the old one alone.
    """

    def hook(grad):
        print(f"{name}: {number(grad)} -> {number(grad + 2)}")
        return grad + 2

    return hook


y.register_hook(add_two("y"))
z.register_hook(add_two("z"))
z.backward()
print("x.grad =", number(x.grad))

# %% [markdown]
# One more, with a mean: a = [1, 1, 1, 1, 1], b = 2a, c = mean(b). Again the later tensor comes first: each of the five
# numbers in `b` has a share of 1/5 in the mean, and each in `a` twice that.

# %%
a = torch.ones(5, requires_grad=True)
b = 2 * a
a.register_hook(lambda grad: print("a:", [round(value, 6) for value in grad.tolist()]))
b.register_hook(lambda grad: print("b:", [round(value, 6) for value in grad.tolist()]))
b.mean().backward()

# %% [markdown]
# ## In a network
#
# Inside `forward` you have the activations at hand, so you can register hooks on them there. This network lets only
# gradients ≥ 0 pass back into its convolution, and then looks whether that worked. Parameters are leaves; on them we
# register from outside, by name: every bias of an `fc` layer gets a gradient of zero.


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
# The second hook sees what the first returned, so it finds nothing below zero. The biases of `fc1` are frozen, its
# weights are not. The activation's hooks vanish with the activation. A parameter's hook would stay as long as the
# parameter does, so the cell removes it.

# %% [markdown]
# ## The trap: siblings share one gradient
#
# Addition passes its gradient to both operands unchanged. PyTorch does not copy it: `c` and `d` in `e = c + d` receive
# **the same tensor**. What if a hook on `c` writes into it?

# %% tags=["predict"]
predict("sibling_gradient")

# %%
for place in ("c", "d"):
    c = torch.ones(2, requires_grad=True)
    d = torch.ones(2, requires_grad=True)
    e = c + d
    hooked = c if place == "c" else d
    hooked.register_hook(lambda grad: grad.mul_(100))  # the underscore: in place
    (2 * e).sum().backward()
    print(f"in-place hook on {place}: c.grad = {c.grad.tolist()}  d.grad = {d.grad.tolist()}")

# %% [markdown]
# With the hook on `c`, both are 200: `c` came first, the hook wrote into the shared tensor, and `d` found it changed.
# With the hook on `d`, `c` had already taken its share. The result depends on the order, which is not yours to choose.
#
# Sometimes you are lucky and it raises. The gradient of a plain `sum` is a single number stretched to the shape of the
# tensor, and PyTorch refuses to write into that:

# %%
c = torch.ones(2, requires_grad=True)
d = torch.ones(2, requires_grad=True)
c.register_hook(lambda grad: grad.mul_(100))
try:
    (c + d).sum().backward()
except RuntimeError as error:
    print("RuntimeError:", str(error).split(".")[0])

# %% [markdown]
# **The rule:** a hook never writes into `grad`. It returns a new tensor: `grad * 100`, not `grad.mul_(100)`, and
# `grad = grad * 100` followed by `return grad`, not `grad *= 100`. With the rule kept, the sibling is safe:

# %%
c = torch.ones(2, requires_grad=True)
d = torch.ones(2, requires_grad=True)
c.register_hook(lambda grad: grad * 100)
(2 * (c + d)).sum().backward()
print("c.grad =", c.grad.tolist(), " d.grad =", d.grad.tolist())

# %% [markdown] tags=["instructor"]
# **Misconception:** "`grad *= 2` and `grad = grad * 2` are the same." **Ask:** "Which of the two lines makes a new tensor?
# Whose is the old one?" **Expect:** "I return it anyway, so it does not matter." **Then show:** the cell with the hook on c
# and on d: one program, two results, and no error in either.
#
# **Misconception:** "Hooks fire in the order in which I registered them." **Ask:** "z was registered last. Why did it print
# first?" **Answer:** backward starts at the result. The order of registration decides only between two hooks on one tensor.
#
# **For discussion:** the siblings were 200 and 200, or 2 and 200. Which one will you get in a network? (You cannot know: the
# order inside autograd is not promised. Hence the rule, not the recipe.)

# %% [markdown]
# ## A tensor that is changed in place later
#
# A hook belongs to the *value* that the tensor had when the hook was registered. Here `h` is multiplied by 10 in place
# between two registrations; one name, two values, two gradients.

# %%
x = torch.tensor([1.0, 2.0], requires_grad=True)
h = 3 * x
h.register_hook(lambda grad: print("registered before h.mul_(10) sees", grad.tolist()))
h.mul_(10)
h.register_hook(lambda grad: print("registered after  h.mul_(10) sees", grad.tolist()))
h.sum().backward()

# %% [markdown]
# The later value comes first in backward, with the gradient 1. The earlier value is ten times as influential, so its
# hook sees 10. In-place ReLUs do this to activations in real networks; lesson 03 meets them again.

# %% [markdown]
# ## What raises
#
# What a hook returns must be able to stand in for the gradient: a tensor of the same shape and dtype. And there must be a
# gradient to begin with. The four hooks below are accepted, and raise when backward runs:

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

# %%
try:
    torch.ones(2).register_hook(print)
except RuntimeError as error:
    print("no requires_grad:", error)

# %% [markdown]
# One thing does *not* raise, and is the most common reason for a hook that stays silent: registering it after backward.
# It waits for the next one.

# %% [markdown]
# ## Two newer kinds
#
# A hook on a leaf runs **before** the gradient is added to `.grad`. If you want the moment **after**, when `.grad` is
# complete, use `register_post_accumulate_grad_hook`. Its function gets the tensor, not the gradient. Leaves only.

# %%
x = torch.ones(2, requires_grad=True)
x.register_hook(lambda grad: print("  before: x.grad is", x.grad))
x.register_post_accumulate_grad_hook(lambda leaf: print("  after:  x.grad is", leaf.grad))
for number_of_pass in (1, 2):
    print("backward", number_of_pass)
    (3 * x).sum().backward()

# %% [markdown]
# In the second pass the first hook still sees the 3 of the first pass, the other one the sum, 6.
# That moment is good for an optimizer step inside backward, after which the gradient can be dropped (exercise 8).
#
# `torch.autograd.graph.register_multi_grad_hook` waits for the gradients of **several** tensors and calls you once.
# A tensor that takes no part has `None` in its place.

# %%
p, q, unused = (torch.ones(2, requires_grad=True) for _ in range(3))


def report(grads):
    print("all there:", [None if grad is None else grad.tolist() for grad in grads])


handle = torch.autograd.graph.register_multi_grad_hook([p, q, unused], report)
(2 * p + 5 * q).sum().backward()
handle.remove()

# %% [markdown] tags=["instructor"]
# **Misconception:** "A hook on a leaf sees `.grad`." **Ask:** "In the second pass, what does the first hook print, and
# what does the other one?" **Answer:** 3 and 6: the plain hook runs before the gradient is added.
#
# **Answer to the explorer's task:** replace the gradient of w by zero with a hook on w itself; x is not behind it. A hook on
# a that does this stops x as well.

# %% [markdown]
# ## Explore
#
# The same graphs with switches. Put a hook on a node, then move the step slider (arrow keys work) and watch the gradients
# arrive one by one. Try to make `w.grad` zero while `x.grad` is not. Then write an expression of your own.

# %% tags=["explore"]
from course_utils.explorers import GradientFlow

GradientFlow("two paths", hooks={"a": "times 6"})

# %% [markdown]
# ## Exercises
#
# Replace the `...` in an answer cell, run it, then run the `check` below it. A check tells you what is wrong and for
# which input. Stuck? Run `hint(record_gradient)` in a new cell; `solution(record_gradient)` opens after three attempts.
#
# ### Exercise 1 · Record


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
# ### Exercise 2 · Scale


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
# ### Exercise 3 · Only the positive part


# %% tags=["answer"]
def keep_positive(tensor):
    """Let only the positive part of the gradient flow back through `tensor`, and
    return the hook's handle.

    Each negative number of the gradient becomes 0. This one line is half of Guided
    Backpropagation (lesson 06).
    """
    ...


# %% tags=["check"]
check(keep_positive)

# %% [markdown]
# ### Exercise 4 · Freeze the biases


# %% tags=["answer"]
def freeze_biases(model):
    """Make the gradient of every bias of `model` zero, at any depth, with hooks;
    return the list of their handles.

    A bias is a parameter whose name ends in "bias". After `handle.remove()` on each
    handle it learns again.
    """
    ...


# %% tags=["check"]
check(freeze_biases)

# %% [markdown]
# ### Exercise 5 · Once and never again


# %% tags=["answer"]
def hook_once(tensor, hook):
    """Run `hook` on the first gradient that reaches `tensor`, and on no later one.

    What `hook` returns counts, as with `register_hook`. After the first backward no
    hook is left on `tensor`, not even if `hook` raised. Return nothing.
    """
    ...


# %% tags=["check"]
check(hook_once)

# %% [markdown]
# ### Exercise 6 · Hooks made in a loop
#
# Before you write it, look at this cell. Three hooks are made in a loop, and each should append its own name:

# %%
names = []
x = torch.ones(1, requires_grad=True)
for name in ("first", "second", "third"):
    x.register_hook(lambda grad: names.append(name))
x.sum().backward()
print(names)

# %% [markdown]
# All three looked `name` up when they *ran*, and by then the loop had ended. A hook nearly always runs later than the
# line that made it, so it must bring its name along.


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

# %% [markdown]
# ### Exercise 7 · Wait for all of them


# %% tags=["answer"]
def record_total_norm(tensors):
    """Return a list that will receive, once a backward, the norm of all gradients
    of `tensors` together.

    The norm is the square root of the sum of all squares, as a Python float. A
    tensor that took no part adds nothing.
    """
    ...


# %% tags=["check"]
check(record_total_norm)

# %% [markdown]
# ### Exercise 8 · An optimizer inside backward


# %% tags=["answer"]
def step_in_backward(parameters, rate):
    """Make every parameter take a step of plain gradient descent during backward;
    return the list of handles.

    As soon as a parameter's `.grad` is complete, `rate` times this `.grad` is
    subtracted from the parameter's values in place, and its `.grad` is set to None,
    so that no two gradients are in memory at a time.
    """
    ...


# %% tags=["check"]
check(step_in_backward)

# %% [markdown] tags=["instructor"]
# **Misconception:** "My hook doubles the gradient" (`lambda grad: print(grad * 2)`). **Ask:** "What does your function
# return?" **Answer:** None, and None means: keep the old one.
#
# **Misconception:** "`tensor.grad` holds it, I only have to read it in my function" (exercises 1 and 6). **Ask:** "When does
# this line run, and what has happened by then?" **Then show:** a print in the body and one in the hook; let them say which
# comes first.
#
# **Misconception:** "In the loop each hook has its own name." **Ask:** "When is `name` looked up?" **Expect:** "When the
# lambda is made." **Then show:** change `name` after the loop and go backward once more.
#
# **For discussion:** who removes the hook in exercise 5, and why may a hook remove itself? (Registering returns the handle;
# the hook finds it when it runs, which is later.) Exercise 8: what is saved? (One gradient in memory instead of all.)

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | Change the gradient with `grad *= 2` inside the hook. | It works by luck. Siblings share one gradient tensor; return a new tensor instead. |
# | A hook with `return None` is for printing only. | Yes: None keeps the gradient. Forgetting `return` is the most common bug in a hook. |
# | The hook's gradient *is* `.grad`. | On a leaf it is what is about to be *added* to `.grad`; after a second backward they differ. |
# | Use `Variable(..., requires_grad=True)`. | `Variable` has been merged into `Tensor` since PyTorch 0.4. |
#
# ## Summary
#
# - Backward keeps the gradients of leaves. A hook sees any other while it passes.
# - `tensor.register_hook(f)` calls `f(grad)`; None keeps the gradient, a tensor of the same shape and dtype replaces it.
# - Hooks on one tensor run in the order of registration; tensors come in the order of backward: last computed, first.
# - A replaced gradient changes only what lies behind the tensor, along the paths through it.
# - Never write into `grad`; bind loop variables; keep the handle and remove the hook.
# - `register_post_accumulate_grad_hook` runs when `.grad` is complete, `register_multi_grad_hook` when several are there.
#
# ## Go further
#
# - Lesson 02: when `retain_grad()` is enough, what it costs, and the third way, hooks on saved tensors.
# - [Autograd mechanics: backward hooks execution](https://pytorch.org/docs/stable/notes/autograd.html#backward-hooks-execution),
#   the rules in PyTorch's own words, in-place changes included.
# - [`torch.Tensor.register_hook`](https://pytorch.org/docs/stable/generated/torch.Tensor.register_hook.html)
