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
# # Inside a call
#
# You write `module(x)`, and `module.forward` runs. Between the two lies one function of about a hundred lines, and all
# module hooks live in it. Once you have read it, nothing about hooks is a rule to remember: you can look it up.
# In the exercises you write this function anew, in forty lines, until it fires all hooks in exactly torch's order.
#
# ## What you will be able to do
#
# - **Name** the parts of a call, and **read** each of them in the torch that is installed on your machine.
# - **Predict** which hooks run, in which order, forward and backward, global and local, and when something raises.
# - **Explain** what full backward hooks do to inputs and outputs, and which errors come from that.
# - **Write** a `__call__` of your own, and **prove** with a trace that it does what torch's does.
#
# **Time:** about 90 minutes: 40 to read, predict and run, 50 for the exercises.

# %% [markdown] tags=["instructor"]
# **Plan**
#
# | Minutes | Sections | How |
# |---|---|---|
# | 6 | From the brackets to forward | read "forward pre-hooks" together, one line each, in turn |
# | 5 | The fast path | predict, then run |
# | 4 | `forward()` directly | ask who has written `model.forward(x)` |
# | 3 | Who comes first: global or local? | a vote |
# | 7 | The order of everything | pairs write the twelve hooks on paper before the last cell |
# | 3 | When forward raises | a vote |
# | 6 | What a full backward hook does to your tensors | draw the two nodes, and let the room find the consequences |
# | 2 | Legacy backward hooks: a walk to `grad_fn` | run and read |
# | 3 | Explore | the game at the bottom, against the clock |
# | 46 | Exercises: a call of your own | 1 to 4 take 20; 9 can follow at once, for `MiniSteps` has the rest |
# | 4 | Your call against torch's | everybody's first difference on the board; "none" gets applause |
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
import itertools
import warnings
import weakref

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils.hooks import BackwardHook

from course_utils.exercises import check, hint, predict, solution, why
from course_utils.hooks.call import life_of_a_call, read_parts
from course_utils.hooks.trace import trace

parts = {part.name: part for part in read_parts()}  # reads torch's source, for later

# %% tags=["setup"]
from course_utils.lessons.lesson_04 import (
    Handle,
    MiniModule,
    MiniSteps,
    forward_between_nodes,
    global_hooks,
    hooks_in_order,
    pass_through,
    plug_in,
    run_always_called,
    run_forward_hooks,
    run_pre_hooks,
    takes_fast_path,
)

# %% [markdown]
# A network for a pencil: three layers with whole numbers as weights. For an input of ones, `fc1` computes
# [7, -13, 27, -29], `relu` makes [7, 0, 27, 0] of it, and `fc2` computes 7 + 3 · 27 + 1 = 89.


# %% tags=["setup"]
class Net(nn.Module):
    """fc1 (3 to 4), relu, fc2 (4 to 1)."""

    def __init__(self):
        super().__init__()
        self.fc1, self.relu, self.fc2 = nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)
        rows = [[1.0, 2, 3], [-4, -5, -6], [7, 8, 9], [-10, -11, -12]]
        with torch.no_grad():
            self.fc1.weight.copy_(torch.tensor(rows))
            self.fc1.bias.copy_(torch.tensor([1.0, 2, 3, 4]))
            self.fc2.weight.copy_(torch.tensor([[1.0, 2, 3, 4]]))
            self.fc2.bias.fill_(1)

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x)))


x = torch.ones(1, 3, requires_grad=True)

# %%
print("the network computes", Net()(x).item())
print("brackets run", nn.Module.__call__.__name__)

# %% [markdown]
# ## From the brackets to forward
#
# In Python `net(x)` means `type(net).__call__(net, x)`. For every module this is the same function,
# `nn.Module._wrapped_call_impl`. It has one question: is there a compiled call (`net.compile()` makes one)? If not, it
# goes on to `_call_impl`, and there the hooks are.
#
# Line numbers change with every release, so we do not learn them. `read_parts()` looks for the parts by what they *do*,
# in the torch that you have:

# %%
for part in parts.values():
    print(f"{part.name + ':':28}{part.does}")

# %% [markdown]
# From top to bottom this is the life of a call. The last three belong to a helper, `BackwardHook`: "make views" does the
# work for "wrap inputs" and "wrap outputs", and the other two run later, in backward.
#
# Here are three parts as they stand in *your* torch. If the text is not the one that this page was saved with, you have
# another release; the parts are the same.

# %% tags=["nbval-ignore-output"]
# Not compared: the source text and its line numbers belong to the torch release.
for name in ("dispatch", "fast path", "forward pre-hooks"):
    part = parts[name]
    print(f"--- {name}: {part.function}, lines {part.first} to {part.last}")
    print(part.source)

# %% [markdown]
# Most of what one has to know about pre-hooks stands in the last of them, once you look for it:
#
# - The loop goes over `*_global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()`: global before local.
# - The star makes a tuple of them before the first hook runs, so a hook may remove itself.
# - `args_result is not None`: what a hook returns replaces the arguments, and the next hook sees the new ones.
# - `(args_result,)`: a single value is put into a tuple.
#
# Put other names into the cell and read on. The explorer below shows every part in its place.

# %% [markdown]
# ## The fast path
#
# Most modules never get a hook, and a network calls thousands of modules a second. So `_call_impl` first asks eight
# tables whether they are empty: forward pre-hooks, forward hooks, backward pre-hooks and backward hooks, each once on
# the module and once for all modules. If they are, it runs `forward` and leaves.
#
# We need not measure time to see that. `life_of_a_call` steps through a call and notes which parts run:


# %% tags=["setup"]
def print_parts(model, x, hooks=()):
    """Call the model with hooks, and print which parts of each module's call ran."""
    ran = {}
    for moment in life_of_a_call(model, x, hooks, backward=False):
        if moment.what == "part" and moment.taken:
            ran.setdefault(moment.module or "net", []).append(moment.part.name)
    for name, parts in ran.items():
        print(f"{name}: {', '.join(parts)}")


# %%
print_parts(Net(), x)

# %% [markdown]
# Three parts each, and forward runs inside the third. Now there is one hook: a forward hook on `fc1`.

# %% tags=["predict"]
predict("who_leaves_the_fast_path")

# %%
print_parts(Net(), x, hooks=[("forward hook", "fc1")])

# %% [markdown]
# Only `fc1` goes the long way, although `net` calls it. A **global** hook, one that is registered for all modules, stands
# in a table that every module asks:

# %%
print_parts(Net(), x, hooks=[("forward hook", "global")])

# %% [markdown]
# No fast path anywhere any more. That is why global hooks are for debugging: they slow down every call of every module
# in the program, and see modules that you never thought of.

# %% [markdown]
# ## `forward()` directly
#
# `forward` is an ordinary method, and you may call it by its name. What happens to the hooks then? `net` and `fc1` get
# a forward hook each.

# %% tags=["predict"]
predict("forward_directly")

# %%
net = Net()
net.register_forward_hook(lambda module, args, output: print("  the hook of net fires"))
net.fc1.register_forward_hook(lambda module, args, output: print("  the hook of fc1 fires"))
print("net(x):")
net(x)
print("net.forward(x):")
output = net.forward(x)

# %% [markdown]
# Same result, fewer hooks. `forward` knows nothing about hooks: they belong to the brackets. `net.forward(x)` skips those
# of `net`, while the brackets in `self.fc1(x)` work as always.
#
# It cuts both ways. If a layer of yours never fires, look whether somebody calls `layer.forward(x)`, or takes the weights
# and calls `F.linear(x, layer.weight)`. And inside a hook on `layer`, calling `layer(x)` again would call the hook
# again, without end; there `layer.forward(x)` is right.

# %% [markdown] tags=["instructor"]
# **Misconception:** "A hook belongs to forward." **Ask:** "Where in the class Net is the code that calls the hook?" There is
# none. "And in nn.Linear?" Nor there. **Then show:** let somebody find the line in `_call_impl`.
#
# **Misconception:** "net calls fc1, so net leaves the fast path as well." **Ask:** "Whose tables does the call of net look
# into?" **Answer:** its own and the global ones, not its children's.
#
# **For discussion:** a layer of a library never fires your hook. What are your first two guesses? (Somebody calls
# `layer.forward(x)`, or takes its weights and calls a function.)

# %% [markdown]
# ## Who comes first: global or local?
#
# `fc1` gets a forward pre-hook of its own. After that, a global one is registered.

# %% tags=["predict"]
predict("which_pre_hook_first")


# %% tags=["setup"]
def saying(words):
    """A hook that prints words and changes nothing."""
    return lambda *seen: print(words)


# %%
net = Net()
net.fc1.register_forward_pre_hook(saying("local, registered first"))
with torch_module.register_module_forward_pre_hook(saying("global, registered second")):
    output = net.fc1(x)

# %% [markdown]
# Global first, always, and for each of the four kinds. The order of registration decides only inside one table.
# (`prepend=True` puts a hook at the front of its own table, not before the global ones.)
#
# ## The order of everything
#
# All four kinds on one layer, global and local, in one call and its backward pass. `trace` writes down what happens:


# %% tags=["setup"]
def look(*seen):
    """A hook that changes nothing. A trace shows when it ran."""


KINDS = ("forward_pre_hook", "forward_hook", "full_backward_pre_hook", "full_backward_hook")


def add_local_hooks(*modules):
    """Register `look` on each module, once for each kind."""
    for module in modules:
        for kind in KINDS:
            getattr(module, f"register_{kind}")(look)


# %%
layer = Net().fc1
add_local_hooks(layer)
with global_hooks(**dict.fromkeys(KINDS, look)):
    print(trace(layer, x))

# %% [markdown]
# Read it from top to bottom: pre-hooks, forward, forward hooks; in backward the pre-hooks, which see the gradient of the
# output, then the full hooks, which see the gradient of the input too. Each pair global first.
#
# Line 9 may surprise you: "backward" is the moment at which the gradient reaches what `forward` returned, and the
# backward pre-hooks came before it. Their place in the graph is behind the output, so they meet the gradient first, and
# what they return is what the layer itself gets to see.
#
# Now the whole network, with local hooks on `net`, `fc1` and `fc2`.

# %% tags=["predict"]
predict("last_in_backward")

# %%
net = Net()
add_local_hooks(net, net.fc1, net.fc2)
order = trace(net, x).order()
fired = [f"{name or 'net'}: {kind}" for kind, name, _, hook in order if hook]
print("forward: ", *fired[:6], sep="\n  ")
print("backward:", *fired[6:], sep="\n  ")

# %% [markdown]
# Forward nests like brackets: `net` opens first and closes last. Backward nests too: the pre-hook of `net` is the first
# of all, its full hook the last. A full backward hook needs the gradient of its module's *input*. For `net` that is
# the same number as for `fc1`, [22, 26, 30], and it takes the whole backward pass to compute it.

# %% [markdown] tags=["instructor"]
# **Misconception:** "The full backward hook of net comes first, because net is the outermost." **Ask:** "What does it get as
# grad_input? When is that known?" **Answer:** with the gradient of the input, at the very end: it is the last.
#
# **Misconception:** "`prepend=True` goes before the global hooks." **Ask:** "In which table does it prepend?" **Answer:** in
# the module's own; the global table comes first all the same.
#
# **For discussion:** why does the backward pre-hook run before "backward" in the trace? (Its node stands behind the output,
# so the gradient meets it first. What it returns is what the layer gets to see.)

# %% [markdown]
# ## When forward raises
#
# A layer fails. It has a plain forward hook, and one registered with `always_call=True`.

# %% tags=["predict"]
predict("always_call_when_forward_raises")


# %%
class Fragile(nn.Module):
    def forward(self, x):
        raise ValueError("forward gave up")


layer = Fragile()
layer.register_forward_hook(lambda module, args, output: print("plain:", output))
layer.register_forward_hook(lambda module, args, output: print("always_call:", output), always_call=True)
try:
    layer(x)
except ValueError as error:
    print("caught:", error)

# %% [markdown]
# The plain hook stays silent. The other one runs with None as the output, and after it the exception goes on, unchanged:
# right for a hook that has to put something back, such as a timer or a range in a profiler.
#
# Everything after the fast path stands in a `try`. The part "after an exception" runs the always-called hooks *that have
# not run yet*, global ones first. If one of these raises as well, that becomes a warning, for the first exception is
# the one that you need to see.

# %% [markdown]
# ## What a full backward hook does to your tensors
#
# Backward knows tensors and operations. It has no idea what a module is. So how can a hook wait for "the gradients of
# the module's inputs"? `_call_impl` puts two nodes of its own into the graph, one before the inputs and one behind the
# outputs:
#
# ```text
# x ──► [node] ──► forward ──► [node] ──► output
#         ▲                      ▲
#   full backward hooks   full backward pre-hooks
# ```
#
# Both nodes do nothing: what goes in comes out. A class does the work, `torch.utils.hooks.BackwardHook`; the parts "wrap
# inputs" and "wrap outputs" call it. Look at what a layer receives, without and with such a hook.

# %% tags=["predict"]
predict("what_forward_receives")


# %%
class Peek(nn.Module):
    """Twice its input; prints what it received."""

    def forward(self, given):
        node = "no node" if given.grad_fn is None else type(given.grad_fn).__name__
        shared = given.data_ptr() == x.data_ptr()
        print(f"  x itself: {given is x}   same memory: {shared}   {node}")
        return 2 * given


# %%
layer = Peek()
print("without a hook:")
print("  output:", type(layer(x).grad_fn).__name__)
layer.register_full_backward_hook(look)
print("with a full backward hook:")
print("  output:", type(layer(x).grad_fn).__name__)

# %% [markdown]
# The input is a **view** of `x`: the same memory, but a tensor of its own, with a node before it. The output is one as
# well. Everything that follows in this section comes from these two views.
#
# **In-place changes raise.** Writing into such a view would go round the node, and the hook would report a wrong
# gradient. PyTorch refuses:

# %%
output = layer(x)
try:
    output.add_(1)
except RuntimeError as error:
    print("RuntimeError:", str(error).split(". ")[0])

# %% [markdown]
# It does not matter who writes: your own line, or an `nn.ReLU(inplace=True)` that comes next. The cures: change out of
# place (`output + 1`, `inplace=False`), or hand on a copy (`output.clone()`).
#
# **Only tensors given by position get a node.** Here are four inputs: a tensor, a number, a tensor that needs no
# gradient, and a tensor given by keyword.


# %%
class FourInputs(nn.Module):
    def forward(self, x, factor, shift, *, bias):
        return x * factor + shift + bias


layer = FourInputs()
layer.register_full_backward_hook(lambda module, into, out: print(*into, sep="\n"))
shift, bias = torch.ones(1, 3), torch.ones(1, 3, requires_grad=True)
layer(x, 3, shift, bias=bias).sum().backward()
x.grad = None  # backward filled it, and x is used again below

# %% [markdown]
# Three entries, not four: `bias` is not there, although it has a gradient. The number has None. The tensor that needs no
# gradient goes through the same node as `x`, and its entry is zeros.
#
# **Outputs must be a tensor or a tuple of tensors.** With a dict, the hook waits in vain, and a warning says so:


# %%
class InADict(nn.Module):
    def forward(self, x):
        return {"twice": 2 * x}


layer = InADict()
layer.register_full_backward_hook(saying("the hook fires"))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    layer(x)["twice"].sum().backward()
x.grad = None
print("warning:", str(caught[0].message).split(" but received")[0])

# %% [markdown]
# ## Legacy backward hooks: a walk to `grad_fn`
#
# The older `register_backward_hook` puts in no nodes. After forward it takes the output's `grad_fn`, the node of the
# *last operation*, and hangs the hook there. If forward has several operations, the hook sees the gradients of the
# last one, and calls them the module's. This module computes (2 · x) · 3:


# %% tags=["setup"]
class TwoOperations(nn.Module):
    def forward(self, x):
        return (2 * x) * 3


def print_grad_input(module, grad_input, grad_output):
    """A backward hook that prints the first gradient that it is given for the inputs."""
    print("  the hook sees", grad_input[0].tolist())


# %%
for register in ("register_backward_hook", "register_full_backward_hook"):
    layer = TwoOperations()
    getattr(layer, register)(print_grad_input)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        output = layer(x)
    node = type(output.grad_fn).__name__
    print(f"{register}: warnings: {len(caught)}, the output's node is {node}")
    output.sum().backward()
print("and the gradient of x, of both passes together, is", x.grad.tolist())
x.grad = None

# %% [markdown]
# The legacy hook reports 3, the gradient of 2 · x. The full one reports 6, the gradient of the input. You can see in the
# output's node which of them is at work. Today torch warns about the first, and refuses to put both kinds on one module.

# %% [markdown] tags=["instructor"]
# **Misconception:** "The hook changes my tensor." **Ask:** "`x itself: False, same memory: True`. What is it, then?"
# **Answer:** a view; nothing was copied or changed, and all the errors come from that.
#
# **Misconception:** "If forward raises, no hook runs." **Ask:** "What would a timer need?" **Answer:** `always_call=True`;
# it gets None as the output, and the exception goes on.
#
# **Ask, before the cells:** "Two nodes, one before forward, one behind it. What follows for in-place changes? For keyword
# arguments? For a dict?" **Expect:** somebody finds one of the three. **Then show:** the cells for the others.
#
# **For discussion:** why does the legacy hook raise nothing with an in-place ReLU? (It puts in no node and makes no view. It
# just hangs on the last operation, and reports the wrong thing in silence.)

# %% [markdown]
# ## Explore
#
# One call, step by step. Choose a place, tick hooks, and move the slider, or press **Next**. The picture shows the
# modules with their hooks, and the parts of the present call; as soon as you touch a control, the source in *your* torch
# stands below it.
#
# Then play the game at the bottom: **predict which hook fires next**, and the explorer goes there and compares. Try hooks
# of all kinds, global ones too. Let the relu work in place with a full backward hook on `fc1`. Let it raise.

# %% tags=["explore"]
from course_utils.explorers import LifeOfACall

LifeOfACall(hooks=[("forward hook", "fc1"), ("full backward hook", "fc1"), ("forward pre-hook", "global")], step=13)

# %% [markdown]
# ## Exercises: a call of your own
#
# Now you write it. Exercises 1 to 5 are the steps of a call, 6 and 7 the nodes for backward, 8 is what registering
# returns, and in exercise 9 you put the steps in order: `MiniModule`. No exercise needs your answer to another.
#
# The tables: `module._forward_hooks` is an ordered dict of key to hook, and so are `_forward_pre_hooks`,
# `_backward_hooks` and `_backward_pre_hooks`. The global ones are in the module `torch.nn.modules.module`, here called
# `torch_module`: `torch_module._global_forward_hooks` and so on. The underscore says that they are torch's own
# business: read them here, to learn, and use the `register_…` functions in your programs.
#
# To keep it small, we leave out keyword arguments and legacy hooks.
#
# ### Exercise 1 · The fast path


# %% tags=["answer"]
def takes_fast_path(module):
    """Return True if a call of `module` goes straight to its forward, else False.

    It does if there is no forward pre-hook, forward hook, full backward pre-hook
    and backward hook, neither on this very module nor for all modules.
    """
    ...


# %% tags=["check"]
check(takes_fast_path)

# %% [markdown]
# ### Exercise 2 · Global before local


# %% tags=["answer"]
def hooks_in_order(module, kind):
    """Return the hooks of one kind that a call of `module` runs, in a new dict, in
    the order in which they run: the global ones, then the module's own.

    `kind` is "forward_pre_hooks", "forward_hooks", "backward_pre_hooks" or
    "backward_hooks"; keys and hooks are those of the two tables. A hook may remove
    itself while somebody walks through your dict.
    """
    ...


# %% tags=["check"]
check(hooks_in_order)

# %% [markdown]
# ### Exercise 3 · Before forward
#
# What a pre-hook returns replaces the arguments. Whoever has one argument may return it without a tuple around it, and
# so the caller must put one there.


# %% tags=["answer"]
def run_pre_hooks(module, hooks, args):
    """Run the forward pre-hooks in the dict `hooks`, in order, and return the
    arguments for forward, a tuple.

    A hook is called with `(module, args)`, where `args` is a tuple. If it returns a
    tuple, these are the new arguments; None keeps the old ones; anything else is
    one new argument. The next hook sees the new ones; what a hook raises goes on to
    the caller.
    """
    ...


# %% tags=["check"]
check(run_pre_hooks)

# %% [markdown]
# ### Exercise 4 · After forward
#
# The keys in `started` are for the next exercise: if a hook raises, the call must know which ones have had their turn.


# %% tags=["answer"]
def run_forward_hooks(module, hooks, args, output, started):
    """Run the forward hooks in the dict `hooks`, in order, and return the output.

    A hook is called with `(module, args, output)`. If what it returns is not None,
    it is the new output, just as it is. Add the key of each hook to the set
    `started` before you call it; what a hook raises goes on to the caller.
    """
    ...


# %% tags=["check"]
check(run_forward_hooks)

# %% [markdown]
# ### Exercise 5 · When something raises


# %% tags=["answer"]
def run_always_called(module, hooks, started, args, output):
    """Something in the call has raised: run the hooks in the dict `hooks`, in
    order, as far as they have not started yet.

    `hooks` holds the forward hooks registered with `always_call=True`, `started`
    the keys of those that ran already. A hook is called with `(module, args,
    output)`. What it raises becomes a warning of its own (`warnings.warn`) that
    contains its message; what it returns is not used. Return nothing.
    """
    ...


# %% tags=["check"]
check(run_always_called)

# %% [markdown]
# ### Exercise 6 · A node that does nothing
#
# This is the heart of `BackwardHook`: a node of your own in the graph. A class derived from `torch.autograd.Function`
# has a `forward` and a `backward`, both static methods, and `apply` puts it to work. This one triples what goes
# forward, and says what comes back:


# %%
class Triple(torch.autograd.Function):
    @staticmethod
    def forward(ctx, words, tensor):
        ctx.words = words  # backward will need it
        return tensor * 3

    @staticmethod
    def backward(ctx, gradient):
        print(ctx.words, gradient.tolist())
        return None, gradient * 3  # one for each input of forward: words has no gradient


Triple.apply("backward gets", x).sum().backward()
print("x.grad =", x.grad.tolist())
x.grad = None


# %% tags=["answer"]
def pass_through(look, *tensors):
    """Return the tensors, unchanged, behind one new node of the graph: a tuple of
    tensors with the same values.

    In backward, when the gradients of all of them are known, `look(gradients)` is
    called once with a tuple. If it returns a tuple, this goes on instead; None
    keeps the gradients.
    """
    ...


# %% tags=["check"]
check(pass_through)

# %% [markdown]
# ### Exercise 7 · Forward between two nodes
#
# torch's own class does the same for inputs and outputs, and knows about numbers, tuples and tensors without gradient.
# It has three methods that matter:
#
# - `BackwardHook(module, full_hooks, pre_hooks)` takes two lists of hooks,
# - `setup_input_hook(args)` returns the tuple of inputs behind a node,
# - `setup_output_hook(output)` returns the output, a tensor or a tuple, behind another one.


# %% tags=["answer"]
def forward_between_nodes(module, full_hooks, pre_hooks, args):
    """Run `module.forward(*args)` so that backward will run the hooks in two lists,
    and return its output.

    In backward the full backward pre-hooks in `pre_hooks` get `(module,
    grad_output)`; then, when the gradients of the inputs are known, the full
    backward hooks in `full_hooks` get `(module, grad_input, grad_output)`, where
    both are tuples. What they return counts, as in torch. No hook is registered on
    `module`.
    """
    ...


# %% tags=["check"]
check(forward_between_nodes)

# %% [markdown]
# ### Exercise 8 · The handle
#
# Registering takes a key, puts the hook into the table, and returns a handle. The handle must not keep the table alive: a
# handle that somebody forgot in a list would otherwise keep a whole network in memory. `weakref.ref(table)` refers to
# an object without keeping it.


# %% tags=["answer"]
class Handle:
    """What registering a hook returns: `table[handle.id] = hook` puts the hook into
    a table, `handle.remove()` takes it out again.

    No two handles have the same `id`, whatever their tables. Removing twice is no
    error. The handle does not keep the table alive, and with a table that is gone,
    `remove()` does nothing. `with handle as h:` gives the handle itself as `h`, and
    removes the hook at the end of the block; what the block raises goes on.
    """

    def __init__(self, table): ...

    def remove(self): ...

    def __enter__(self): ...

    def __exit__(self, *exception): ...


# %% tags=["check"]
check(Handle)

# %% [markdown]
# ### Exercise 9 · The call
#
# Everything together. `MiniSteps` is an `nn.Module` with the five steps as methods (the course's answers, so that you can
# begin here), and with torch's own way in closed. Write `__call__`.


# %% tags=["answer"]
class MiniModule(MiniSteps):
    """`nn.Module` with a `__call__` of its own, which fires all hooks in torch's
    order.

    The steps are there as methods: `takes_fast_path()`, `hooks_in_order(kind)`,
    `run_pre_hooks(hooks, args)`, `run_forward_hooks(hooks, args, output, started)`,
    `run_always_called(hooks, started, args, output)`, and `always_called()`, which
    gives the hooks for the last one. For the backward hooks, if there are any, use
    a `BackwardHook`. If anything raises, run the always-called hooks and raise it
    again.
    """

    def __call__(self, *args): ...


# %% tags=["check"]
check(MiniModule)

# %% [markdown]
# ## Your call against torch's
#
# `plug_in` makes one class of your answers; where there is none yet, the course's stands in.

# %%
Mini = plug_in(takes_fast_path, hooks_in_order, run_pre_hooks, run_forward_hooks, run_always_called, MiniModule)

# %% [markdown]
# Now the proof: the same network twice, once made of `nn.Module` and once of your class, with all kinds of hooks on
# everything. Both are traced, and the two traces are compared line by line.


# %% tags=["setup"]
def make_network(base):
    """A network of two layers, all of them of the class `base`."""

    class Twice(base):
        def forward(self, x):
            return 2 * x

    class Network(base):
        def __init__(self):
            super().__init__()
            self.first, self.second = Twice(), Twice()

        def forward(self, x):
            return self.second(self.first(x))

    return Network()


# %%
orders = []
for base in (nn.Module, Mini):
    network = make_network(base)
    add_local_hooks(network, network.first, network.second)
    with global_hooks(**dict.fromkeys(KINDS, look)):
        orders.append(trace(network, x).order())
torchs, mine = orders
differences = [pair for pair in itertools.zip_longest(torchs, mine) if pair[0] != pair[1]]
print(f"torch: {len(torchs)} events   MiniModule: {len(mine)} events")
print("first difference (torch, MiniModule):", differences[0] if differences else "none")

# %% [markdown]
# 33 events, and not one of them out of place. What torch's hundred lines have that your forty have not:
# keyword arguments, legacy hooks, compiled and traced calls, and good error messages.

# %% [markdown] tags=["instructor"]
# **Misconceptions, by exercise:** forgetting one of the eight tables (1); local before global (2); `if result:` instead of
# `is not None`, which loses a 0 or fails on a tensor (3, 4); adding the key after the call, so that a hook that raises runs
# again (4, 5); returning nothing for the words in backward (6); the node before the pre-hooks, a swallowed exception (9).
#
# **Ask, whatever the exercise:** "Which of your lines would you have to change to run local hooks first? Which programs
# would break?" (All that rely on a global hook to see things before anybody has changed them: profilers, tracers.)
#
# **For discussion (8):** what would a handle that holds the table keep alive? (The table, and with it the hooks, and what
# these refer to: often the whole network.)

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | `__call__` runs pre-hooks, then `forward`, then forward hooks, then backward hooks. | In this order, but backward hooks do not run in the call: it only prepares them. And there are global hooks, before the local ones of the same kind. |
# | `__call__` is the function to read. | It is an alias of `_wrapped_call_impl`, which goes on to `_call_impl`, since PyTorch 2.1. |
# | `__call__` walks to `grad_fn` and hangs the backward hooks there. | Legacy hooks only. Full backward hooks put nodes of their own around forward. |
# | Every call checks for hooks one by one. | Without any hook, local or global, the fast path calls `forward` at once. |
# | Calling `forward()` directly is the same. | The result is. The module's own hooks, and the global ones for it, do not run. |
# | If `forward` raises, no forward hook runs. | Those with `always_call=True` do. |
#
# ## Summary
#
# - `module(x)` → `_wrapped_call_impl` → `_call_impl` → `forward`. Hooks belong to the brackets, not to `forward`.
# - No hooks anywhere: the fast path. A local hook takes one module off it, a global one all of them.
# - Order: pre-hooks, node before the inputs, forward, forward hooks, node behind the outputs; in each, global first.
# - Backward: pre-hooks when the gradient of the output is there, full hooks when that of the input is. The outermost
#   module's full hook comes last.
# - Full backward hooks make views of inputs and outputs: no in-place changes, no gradients for keywords, no dicts.
# - `always_call=True` hooks run when the call raises, with the output None if there is none.
#
# ## Go further
#
# - Lesson 05: forward hooks at work, on the feature maps of a network.
# - Read `_call_impl` in one go: `import inspect; print(inspect.getsource(nn.Module._call_impl))`
# - [`torch.nn.Module.register_full_backward_hook`](https://pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_full_backward_hook)
# - [Extending PyTorch: `torch.autograd.Function`](https://pytorch.org/docs/stable/notes/extending.html), for nodes of your own.
