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
# You write `module(x)`, and the module's `forward` runs. Between the two, PyTorch runs a function of more than a hundred
# lines. It calls the forward hooks, and it prepares everything for the backward hooks. In this lesson you read this
# function, part by part, in the torch that is installed on your machine, and you write its steps yourself. Whoever wants more then writes
# a whole call of about forty lines, which runs all hooks in exactly torch's order.
#
# ## What you will be able to do
#
# - **Name** the parts of a call, and **read** each of them in the installed torch.
# - **Predict** which hooks run and in which order: forward and backward, global and local, and when something raises.
# - **Explain** what full backward hooks do to inputs and outputs, and when such a hook stays silent.
# - **Find out** why a hook does not run.
# - **Write** the steps of a call, and in the parts called *More* a whole `__call__`, and **prove** that it does what torch's
#   does.
#
# **Minutes:** counted by the build

# %% [markdown] tags=["instructor"]
# **Plan for 90 minutes**
#
# | Minutes | Sections | In the room | At home |
# |---|---|---|---|
# | 0 to 4 | Patient C | let the room count the lines; give no answer | nothing |
# | 4 to 13 | One call, step by step | the explorer in pairs, all three tasks | nothing |
# | 13 to 26 | The fast path | the prediction with discussion and a second vote; exercise {takes_fast_path} | nothing |
# | 26 to 30 | `forward()` directly | one vote; ask who has written `model.forward(x)` | nothing |
# | 30 to 39 | Who comes first: global or local? | one vote; exercise {hooks_in_order} | nothing |
# | 39 to 61 | Before and after forward | read the loop together, one line each, in turn; exercises {run_pre_hooks} and {run_forward_hooks} | nothing |
# | 61 to 64 | Pause | a rest, or time to finish an exercise | nothing |
# | 64 to 72 | The order of everything | pairs write the twelve hooks on paper before the last cell; the prediction with discussion and a second vote | nothing |
# | 72 to 79 | What a full backward hook does to your tensors | draw the two nodes, and let the room find the consequences; one vote | nothing |
# | 79 to 90 | Back to patient C · What old tutorials say · The case · Summary · Go further | in pairs: first experiment, then commit, then run; one sentence each from two people | the table |
#
# **Homework:** From the parts called *More*, *The proof*: `MiniSteps` has the steps that nobody has written yet.

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
import html
import inspect
import itertools
import warnings

import torch
from IPython.display import display
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils.hooks import BackwardHook

from course_utils.exercises import check, hint, predict, replay, solution, why
from course_utils.hooks.call import life_of_a_call, read_parts
from course_utils.hooks.explain import explain_hook
from course_utils.hooks.inventory import list_hooks
from course_utils.hooks.trace import trace

# %% tags=["setup"]
from course_utils.lessons.lesson_04 import (
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
from course_utils.lessons.patient import Patient, admit, draw_curves, make_task, train
from course_utils.show import code_spans

# %% tags=["setup"]
parts = {part.name: part for part in read_parts()}  # reads torch's source, for later


def print_source(*names):
    """Print parts of a call as they stand in the installed torch."""
    for part in map(parts.get, names):
        print(f"--- {part.name}: {part.function}, lines {part.first} to {part.last}\n{part.source}")


def fold_source(*names):
    """Show parts of a call as they stand in the installed torch, each folded below a line that says what it does."""
    for part in map(parts.get, names):
        said = f"{part.name}: {part.does}"
        page = f"<details><summary>{code_spans(said)}</summary><pre>{html.escape(part.source)}</pre></details>"
        display({"text/html": page, "text/plain": f"{said}\n{part.source}"}, raw=True)


def print_largest(name):
    """A forward hook that prints the largest number in the output."""
    return lambda module, args, output: print(f"{name:7} largest number {output.max():8.1f}")


# %% [markdown]
# ## Patient C
#
# This patient has the same layers as the two of lesson 03, and it does not learn either:

# %% [markdown] tags=["instructor"]
# **On this slide:** Let them count the lines and the layers, and say nothing when somebody finds the missing one. Ask
# for guesses why, and write them down.

# %%
before = train(admit("C"))

# %% tags=["setup"]
draw_curves(
    {"patient C": before},
    title="The loss of patient C ends higher than it began",
    alt="The loss of patient C on a logarithmic axis. It starts near 500, jumps above 100,000 and ends above 1,000.",
    log=True,
)

# %% [markdown]
# As in lesson 03, we put a forward hook on each layer: `first`, `relu1`, `second`, `relu2`, `third`, `relu3` and `last`.

# %%
numbers, answers = make_task()
patient = admit("C")
with contextlib.ExitStack() as stack:
    for name, layer in patient.named_children():
        stack.enter_context(layer.register_forward_hook(print_largest(name)))
    patient(numbers)

# %% [markdown]
# Compare these lines with the list of layers. Something is strange, and it hides the place where the trouble begins. To
# understand it, you have to know what happens in a call.

# %% [markdown]
# ## One call, step by step
#
# Here is the network for a pencil again: `fc1` makes [7, -13, 27, -29] out of three ones, `relu` makes [7, 0, 27, 0] out of
# that, and `fc2` computes 7 + 3 · 27 + 1 = 89. The explorer goes through one call of it, step by step, and then through the
# backward pass. As soon as you touch a control, it shows the source in *your* torch.
#
# 1. There is one forward hook, on `fc1`. Go on with **Next**. Which parts run in the call of `fc1`, and which in that of
#    `relu`?
# 2. Under **More**, choose the hooks of `global` and tick "forward pre-hook". What has changed for `relu`?
# 3. Add hooks of other kinds, and play the game: **predict which hook fires next**. The explorer goes there and compares.

# %% [markdown] tags=["instructor"]
# **On this slide:** Give the pairs five minutes, and ask each of them for one part that surprised them. Whoever has not
# reached the third task can play it with you at the projector.

# %% tags=["explore"]
from course_utils.explorers import LifeOfACall

LifeOfACall(hooks=[("forward hook", "fc1")], step=1)


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

# %% [markdown]
# In Python, `net(x)` means `type(net).__call__(net, x)`. For nearly all modules this is `nn.Module._wrapped_call_impl`; what
# `torch.compile` or `torch.fx` returns has a `__call__` of its own. It asks whether there is a compiled call (`net.compile()`
# makes one). If not, it goes on to `_call_impl`, which deals with the hooks. We now go through it in the order in which it
# runs.

# %% [markdown]
# ## The fast path
#
# Most modules never get a hook. So `_call_impl` first asks whether eight tables are empty: forward pre-hooks, forward hooks,
# full backward pre-hooks and backward hooks, each once for this module and once for all modules.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask "What does a module without hooks have to pay for hooks?" It asks whether eight tables are
# empty, and no more. This makes the next vote a real question.

# %% tags=["nbval-ignore-output"]
# Not compared: the source text and its line numbers belong to the torch release.
print_source("dispatch", "choose forward", "fast path")

# %% [markdown]
# We can watch which parts run: `life_of_a_call` goes through a call step by step. There is one hook, a forward hook on `fc1`.


# %% tags=["setup"]
def print_parts(model, x, hooks=()):
    """Call the model with hooks, and print which parts of each module's call ran."""
    ran = {}
    for moment in life_of_a_call(model, x, hooks, backward=False):
        if moment.what == "part" and moment.taken:
            ran.setdefault(moment.module or "net", []).append(moment.part.name)
    for name, parts in ran.items():
        print(f"{name}: {', '.join(parts)}")


# %% [markdown] tags=["sealed"]
# `net` calls `fc1`, `relu` and `fc2`. There is one hook, a forward hook on `fc1`. Which calls leave the fast path?
#
# - [x] only that of fc1: Each module looks at its own tables and at the global ones, not at its children's.
# - [ ] those of fc1 and net: net has no hook of its own. It calls forward, and what happens in there is fc1's.
#   > Whose tables does the call of `net` look into? Is there a hook in any of them?
# - [ ] all four: This would be right with a global hook. A hook on fc1 stands in fc1's table only.
#   > Into which table does `fc1.register_forward_hook` put the hook? Does the call of `relu` look into that one?
#
# Only `fc1` goes the long way. `net` calls `fc1`, but the call of `net` looks into the tables of `net` and into
# the global ones, and all of these are empty.

# %% tags=["predict"]
predict("who_leaves_the_fast_path")

# %%
print_parts(Net(), x, hooks=[("forward hook", "fc1")])

# %% tags=["why"]
why("who_leaves_the_fast_path")

# %% [markdown]
# A **global** hook is registered for all modules. It stands in a table that every module looks into:

# %%
print_parts(Net(), x, hooks=[("forward hook", "global")])

# %% [markdown]
# Now no call takes the fast path. So use global hooks for debugging only: they slow down every call in the program.
#
# ### Exercise · The fast path
#
# In the exercises you write a call of your own, step by step, without keyword arguments and legacy hooks. No exercise needs
# your answer to another one.
#
# `module._forward_hooks` is an ordered dict of key to hook, and so are `_forward_pre_hooks`, `_backward_hooks` and
# `_backward_pre_hooks`. The tables for all modules are in `torch.nn.modules.module`, here called `torch_module`:
# `torch_module._global_forward_hooks` and so on. The underscore says that they are torch's own business. Read them here to
# learn, and use the `register_…` functions in your programs.

# %% [markdown] tags=["sealed"]
# 1 point
# 1. Four kinds of hooks, and two places for each: eight tables. An empty table is false.
# 2. `module._forward_hooks` and `torch_module._global_forward_hooks` are two of them. `getattr(module, "_" + kind)`
#    gets one by name.


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
# ## `forward()` directly
#
# `forward` is an ordinary method, and you may call it by its name. `net` and `fc1` get a forward hook each.

# %% [markdown] tags=["sealed"]
# `net` and its layer `fc1` have a forward hook each. Which of them fire in `net.forward(x)`?
#
# - [ ] none: `forward` skips the hooks of net. But inside, net calls `self.fc1(x)`, with brackets.
#   > `net.forward(x)` runs one line of code. How does this line call `fc1`: with brackets, or as `fc1.forward`?
# - [x] only that of fc1: net's hook needs net's `__call__`, which nobody ran. fc1 is called in the ordinary way.
# - [ ] both: Hooks are run by `__call__`. `net.forward(x)` is a plain method call and runs none of net's.
#   > Where is the code that calls the hook of `net`? Can you find it in the `forward` of the class `Net`?
#
# The result is the same, but one hook is missing. `forward` knows nothing about hooks: they are run by the call
# with brackets. `net.forward(x)` skips those of `net`, while `self.fc1(x)` inside it works as always.
#
# So if a layer of yours never fires its hook, check whether somebody calls `layer.forward(x)`. Or somebody takes
# only its weights and calls a function, such as `F.linear(x, layer.weight)`. Then not even its `forward` runs.

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

# %% tags=["why"]
why("forward_directly")

# %% [markdown] tags=["instructor"]
# **Misconception:** "A hook belongs to forward." **Ask:** "Where in the class Net is the code that calls the hook?" There is
# none. "And in nn.Linear?" Nor there. **Then show:** let somebody find the line in `_call_impl`.
#
# **Misconception:** "net calls fc1, so net leaves the fast path as well." **Ask:** "Whose tables does the call of net look
# into?" **Answer:** its own and the global ones, not its children's.
#
# **For discussion:** a layer of a library never fires your hook. What are your first two guesses? (Somebody calls
# `layer.forward(x)`, or takes its weights and calls a function.) Do not mention patient C yet.

# %% [markdown]
# ## Who comes first: global or local?
#
# `fc1` gets a forward pre-hook of its own. After that, a global one is registered.

# %% [markdown] tags=["sealed"]
# `fc1` gets a forward pre-hook, and after that a global forward pre-hook is registered. Which one runs first in a
# call of `fc1`?
#
# - [ ] the one on fc1: The order of registration counts inside one table. Between the tables, global comes first.
#   > The hook on `fc1` was registered first, and it printed second. Do the two hooks stand in one table or in two?
# - [x] the global one: `_call_impl` goes through the global table first, whenever its hooks were registered.
# - [ ] both at once: Hooks run one after the other: what one returns is what the next one gets.
#   > Suppose that one hook doubles the input and the other one adds 1. Does it matter which of them runs first?
#
# Global hooks come first, and this holds for each of the four kinds. The order of registration decides only
# inside one table. `prepend=True` puts a hook at the front of its own table, so it still runs after the global
# ones.

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

# %% tags=["why"]
why("which_pre_hook_first")

# %% [markdown]
# ### Exercise · The hooks of a call

# %% [markdown] tags=["sealed"]
# 1 point
# 1. Two tables, each an ordered dict of key to hook. Put the items of both into a new dict, in order.
# 2. `getattr(torch_module, f"_global_{kind}")` is the global table, `getattr(module, f"_{kind}")` the local one.


# %% tags=["answer"]
def hooks_in_order(module, kind):
    """Return the hooks of one kind that a call of `module` runs, in a new dict, in
    the order in which they run.

    `kind` is "forward_pre_hooks", "forward_hooks", "backward_pre_hooks" or
    "backward_hooks"; keys and hooks are those of the two tables. A hook may remove
    itself while somebody walks through your dict.
    """
    ...


# %% tags=["check"]
check(hooks_in_order)

# %% [markdown]
# ## Before and after forward
#
# Look for four things in the part "forward pre-hooks": which table comes first, why a hook may remove itself, what happens
# with what a hook returns, and what happens if that is a single tensor.

# %% [markdown] tags=["instructor"]
# **On this slide:** Read the loop aloud, one line each, in turn. Stop at `is not None`, and ask what would go wrong
# with a plain `if result:` when a hook returns a tensor of several numbers.

# %% tags=["nbval-ignore-output"]
# Not compared: the source text and its line numbers belong to the torch release.
print_source("forward pre-hooks", "forward", "forward hooks", "return")

# %% [markdown]
# - The loop goes over both tables, in the order that you have seen.
# - Before the first hook runs, the stars make a tuple of them all, so a hook may remove itself.
# - `args_result is not None`: what a hook returns replaces the arguments, and the next hook gets the new ones.
# - `(args_result,)`: PyTorch puts a single value into a tuple.
#
# The forward hooks work in the same way, but here no tuple is made: what a hook returns is the new output.
#
# ### Exercise · Before forward

# %% [markdown] tags=["sealed"]
# 2 points
# 1. Walk through `hooks.values()`. Each hook gets what the one before it has left in `args`.
# 2. Ask `is not None`, not whether the result is true: a tensor of zeros is a result as well.


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
# ### Exercise · After forward
#
# The keys in `started` are for exercise {run_always_called}. If something raises, the call must know which hooks have
# had their turn.

# %% [markdown] tags=["sealed"]
# 2 points
# 1. Almost the loop of the exercise before. But here you need the keys as well: `hooks.items()`.
# 2. What a forward hook returns *is* the new output: nothing is put into a tuple.


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
# ## The order of everything
#
# Now all four kinds sit on one layer, global and local, in one call and its backward pass. `trace` writes down what happens:

# %% [markdown] tags=["instructor"]
# **On this slide:** Let pairs write the twelve hooks of the last cell on paper first. Forward is easy for everybody;
# in backward the question to ask is what each hook has to wait for.


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
# In forward the pre-hooks run, then `forward`, then the forward hooks. In backward the pre-hooks run first. They see the
# gradient of the output. The full hooks follow, which also see the gradient of the input. In each pair, global and local
# come in the same order as before.
#
# "backward" in line 9 is the moment at which the gradient reaches what `forward` returned. The backward pre-hooks have run
# before it, on a node between this tensor and the rest of the network. The layer gets what they return.
#
# Now the whole network, with local hooks on `net`, `fc1` and `fc2`. As before, x requires a gradient.

# %% [markdown] tags=["sealed"]
# `net`, `fc1` and `fc2` have full backward hooks, and `x` requires a gradient. Whose fires last?
#
# - [ ] that of fc1: fc1 is the last *layer* in backward. But the gradient of fc1's input is also that of net's.
#   > `fc1` gets the gradient of x as its `grad_input`. Which other hook waits for this same gradient?
# - [ ] that of fc2: fc2 is the last layer in forward, so it is the first in backward.
#   > What must `fc1` receive before it can begin? Through which layers has that come?
# - [x] that of net: net's hook waits for the gradient of net's input, and that comes out of fc1.
#
# Forward is nested like brackets: `net` opens first and closes last. Here backward is nested too. The pre-hook
# of `net` is the first of all, and its full hook is the last. A full backward hook waits for the gradient of
# its module's *input*. For `net` this is the same gradient as for `fc1`, and it takes the whole backward pass
# to compute it.
#
# If x required no gradient, there would be nothing to wait for, and the full hook of `net` would fire before
# those of its layers, as you saw in lesson 03.

# %% tags=["predict"]
predict("last_in_backward")

# %%
net = Net()
add_local_hooks(net, net.fc1, net.fc2)
order = trace(net, x).order()
fired = [f"{name or 'net'}: {kind}" for kind, name, _, hook in order if hook]
print("forward: ", *fired[:6], sep="\n  ")
print("backward:", *fired[6:], sep="\n  ")

# %% tags=["why"]
why("last_in_backward")

# %% [markdown] tags=["instructor"]
# **Misconception:** "The full backward hook of net comes first, because net is the outermost." **Ask:** "What does it get as
# grad_input? When is that known?" **Answer:** with the gradient of the input, at the very end. With plain data as the input
# it does come first, as in lesson 03.
#
# **Misconception:** "`prepend=True` goes before the global hooks." **Ask:** "In which table does it prepend?" **Answer:** in
# the module's own; the global table comes first all the same.
#
# **For discussion:** why does the backward pre-hook run before "backward" in the trace? (Its node comes after the output in
# forward, so the gradient meets it first. What the hook returns is what the layer gets.)

# %% [markdown]
# ## What a full backward hook does to your tensors
#
# In backward, autograd knows tensors and operations. It does not know what a module is. So how can a hook wait for the
# gradients of a module's inputs? `_call_impl` puts two nodes of its own into the graph:
#
# ```text
# x ──► [node] ──► forward ──► [node] ──► output
#         ▲                      ▲
#   full backward hooks   full backward pre-hooks
# ```
#
# Both nodes hand on what they get. The class `BackwardHook` makes them. What does the layer receive as its input?

# %% [markdown] tags=["sealed"]
# `x` is a leaf, and the layer has a full backward hook. What does its `forward` receive?
#
# - [ ] x itself: This is right without the hook. With it, a node has to stand between x and the layer.
#   > With the hook, `Peek` printed the name of a node. What does it print for a leaf such as x, and why?
# - [ ] a copy of x: Nothing is copied: the memory is the same.
#   > What did `Peek` print after `same memory`? What would it print for `x.clone()`?
# - [x] a view of x: It shares the memory of x, and its `grad_fn` is the node at which the hook waits.
#
# The input is a **view** of `x`: the same memory, but a tensor of its own, whose `grad_fn` is the new node. The
# output is such a view too. PyTorch does this only while autograd is recording, and only if some input
# requires a gradient: then *all* input tensors become views. The same holds for the outputs. The source
# stands in the part *The nodes themselves* below.

# %% tags=["predict"]
predict("what_forward_receives")


# %% tags=["setup"]
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

# %% tags=["why"]
why("what_forward_receives")

# %% [markdown]
# Two things follow. **What comes out of such a node must not be changed in place**, neither by a line of yours nor by an
# in-place ReLU that comes next. Lesson 03 shows this error and two cures, in its part *A ReLU that writes over its input*.
#
# **An output gets a node if it is a tensor, or if it stands directly in a tuple.** So what happens with a dict, and with an
# LSTM? It returns a tuple with another tuple in it: `output, (hidden, cell)`.


# %% tags=["setup"]
class InADict(nn.Module):
    def forward(self, x):
        return {"twice": 2 * x}


def try_hook(layer, use, given):
    """Whether a full backward hook fires if the loss is made of one part of the output, and whether PyTorch warns."""
    fired = []
    with warnings.catch_warnings(record=True) as caught, layer.register_full_backward_hook(lambda *_: fired.append(1)):
        warnings.simplefilter("always")
        use(layer(given)).sum().backward()
    return f"the hook fired: {bool(fired)!s:5}  PyTorch warned: {bool(caught)}"


# %%
sequence = torch.ones(2, 1, 3, requires_grad=True)
print("dict:        ", try_hook(InADict(), lambda output: output["twice"], sequence))
print("LSTM, output:", try_hook(nn.LSTM(3, 4), lambda output: output[0], sequence))
print("LSTM, hidden:", try_hook(nn.LSTM(3, 4), lambda output: output[1][0], sequence))

# %% [markdown]
# With a dict the hook does not fire, and PyTorch warns. With a nested tuple there is **no warning**. If the loss is made of
# `hidden`, as in many classifiers of sequences, the hook does not fire. Inputs given by keyword get no node either.

# %% [markdown] tags=["instructor"]
# **Misconception:** "The hook changes my tensor." **Ask:** "`x itself: False, same memory: True`. What is it, then?"
# **Answer:** a view; nothing was copied or changed, and the error with in-place operations comes from that.
#
# **Ask, before the cells:** "Two nodes, one before forward, one after it. What follows for in-place changes? For keyword
# arguments? For a dict?" **Expect:** somebody finds one of the three. **Then show:** the cells for the others.
#
# **For discussion:** why does the legacy hook raise nothing with an in-place ReLU? (It adds no node and makes no view. It
# only sits on the last operation, and silently reports the wrong thing.)

# %% [markdown]
# ## Back to patient C
#
# At the beginning of this lesson, the numbers became large between `relu2` and `relu3`, and there was no line at all from
# `third`, the layer between them. The network must use its weights, otherwise they could do no harm. So why does its hook
# not fire? `list_hooks` lists the hooks on a network. `trace` lists every `forward` that runs, whether hooks run or not.
# Make your experiments here, then commit:

# %%
patient = admit("C")
handle = patient.third.register_forward_hook(print_largest("third"))
# Two experiments to begin with: print(list_hooks(patient)), and print(trace(patient, numbers, backward=False))

# %% [markdown] tags=["sealed"]
# the hook on `third` never fires, and yet the network uses this layer. Which is the reason?
#
# - [ ] it uses the weights in a function: Then no `forward` of third would run. The trace has one.
#   > Suppose that the network called `F.linear(h, self.third.weight)`. Which lines of the trace would be missing?
# - [x] it calls forward by its name: The trace shows that third's forward runs, and a hook that is there does not.
# - [ ] the hook has been removed: `list_hooks` finds it: it is on third all the time.
#   > What did `list_hooks` print here? What would it print after `handle.remove()`?
# - [ ] it calls another module: The trace knows modules by their names, and it is third whose forward runs.
#   > On which module did `list_hooks` find the hook? Whose `forward` does the trace show between `relu2` and `relu3`?
#
# `list_hooks` finds the hook, so it was not removed. The trace shows `forward` of `third`, so this very module
# computes something. But there is no line for its hook. Only one explanation is left, and the source confirms
# it: `self.third.forward(h)`, where `self.third(h)` should stand.
#
# In a network whose code you cannot change, put hooks on the neighbours. A forward pre-hook on `relu3` gets
# what `third` gave.

# %% tags=["predict"]
predict("silent_hook")

# %%
print(*list_hooks(patient), sep="\n")
print(trace(patient, numbers, backward=False))
print(inspect.getsource(type(patient).forward))

# %% tags=["why"]
why("silent_hook")

# %% [markdown]
# In the class `Patient` this line is as it should be. We give such a network the same numbers. Then the hook fires, and
# we can treat the layer as in lesson 03.

# %%
repaired = admit(Patient)
repaired.load_state_dict(patient.state_dict())
with repaired.third.register_forward_hook(print_largest("third")):
    print("the same answers:", torch.equal(repaired(numbers), patient(numbers)))
handle.remove()
torch.manual_seed(0)
repaired.third.reset_parameters()
after = train(repaired)

# %% tags=["setup"]
draw_curves(
    {"before": before, "after": after},
    title="Patient C learns once its layer has fresh weights",
    alt="The loss of patient C on a logarithmic axis: before, it stays above 1,000; after the treatment it starts at 0.7 "
    "and falls far below.",
    log=True,
)

# %% [markdown]
# The patient's story ends here. The parts called *More* can wait: the lesson goes on with
# [what old tutorials say](#What-old-tutorials-say).

# %% [markdown] tags=["more"]
# ## More: When forward raises
#
# A layer fails. It has a plain forward hook, and one registered with `always_call=True`.

# %% [markdown] tags=["sealed"]
# `forward` raises. A forward hook registered with `always_call=True`: what does it get as the output?
#
# - [ ] it does not run: A plain forward hook does not. This is what `always_call=True` is for.
#   > There were two hooks on the layer. Which of them printed a line, and how had it been registered?
# - [x] None: There is no output yet. The hook runs all the same, and then the exception goes on.
# - [ ] the exception: The hook is not told what went wrong. Its output is None.
#   > A forward hook gets what `forward` has returned. What had the `forward` of this layer returned when the hook ran?
#
# The plain hook stays silent. The other one runs with None as the output, and after it the exception goes on as
# it was. This is right for a hook that has to stop or undo something, such as a timer.

# %% tags=["predict"]
predict("always_call_when_forward_raises")


# %% tags=["setup"]
class Fragile(nn.Module):
    """A layer that fails."""

    def forward(self, x):
        raise ValueError("forward gave up")


# %%
layer = Fragile()
layer.register_forward_hook(lambda module, args, output: print("plain:", output))
layer.register_forward_hook(lambda module, args, output: print("always_call:", output), always_call=True)
try:
    layer(x)
except ValueError as error:
    print("caught:", error)

# %% tags=["why"]
why("always_call_when_forward_raises")

# %% tags=["nbval-ignore-output"]
# Not compared: the source text and its line numbers belong to the torch release.
fold_source("after an exception")

# %% [markdown]
# Everything after the fast path stands in a `try`, and the part above is its `except`. (Click on its line to read it.) It
# runs the always-called hooks *that have not run yet*, global ones first. If one of these raises too, PyTorch only warns
# about it, because the first exception is the one that you need to see.
#
# ### Exercise · When something raises

# %% [markdown] tags=["sealed"]
# 2 points
# 1. The call is about to fail. Give each hook in `hooks` that is not in `started` its turn, and let none of them get in
#    the way of the next.
# 2. `try`/`except Exception` belongs around *one* call of a hook, inside the loop.


# %% tags=["answer"]
def run_always_called(module, hooks, started, args, output):
    """Something in the call has raised: run the hooks in the dict `hooks`, in
    order, as far as they have not started yet.

    `hooks` holds the forward hooks registered with `always_call=True`, `started`
    the keys of those that ran already. A function that stands under two keys counts
    as two hooks. A hook is called with `(module, args,
    output)`. What it raises becomes a warning of its own (`warnings.warn`) that
    contains its message; what it returns is not used. Return nothing.
    """
    ...


# %% tags=["check"]
check(run_always_called)

# %% [markdown] tags=["instructor"]
# **Misconception:** "If forward raises, no hook runs." **Ask:** "What would a timer need?" **Answer:** `always_call=True`;
# it gets None as the output, and the exception goes on.

# %% [markdown] tags=["more"]
# ## More: The nodes themselves
#
# Here is all that `_call_impl` and `BackwardHook` do for backward hooks. Click on a line to read its source, above all on
# "wrap inputs", "wrap outputs" and "insert a node".

# %% tags=["nbval-ignore-output"]
# Not compared: the source text and its line numbers belong to the torch release.
fold_source(
    "collect backward pre-hooks", "collect backward hooks", "sort backward hooks", "wrap inputs", "wrap outputs"
)
fold_source("insert a node", "backward pre-hooks", "full backward hooks", "legacy backward hooks")

# %% [markdown]
# The last of these parts is for legacy hooks (`register_backward_hook`). They get no nodes. PyTorch walks from the output to its
# `grad_fn` and puts the hook there, on the *last operation*. Lesson 09 shows what comes of it.
#
# ### Exercise · A node that does nothing
#
# This is the heart of `BackwardHook`. A class derived from `torch.autograd.Function` has a `forward` and a `backward`, both
# static methods, and `apply` puts its node into the graph. This one triples what goes forward, and prints what comes back:

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what `None` stands for in the last line of `backward`: there is one place for each input of
# `forward`, and the words have no gradient. Most errors in this exercise are about this tuple.


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

# %% [markdown] tags=["sealed"]
# 3 points
# 1. A class derived from `torch.autograd.Function` is a kind of node: `forward(ctx, …)` makes its outputs,
#    `backward(ctx, *gradients)` gets one gradient an output. `apply` puts a new node into the graph.
# 2. Give `look` to `apply` as the first argument and keep it: `ctx.look = look`. `backward` returns one value for each
#    argument of `apply`: for `look` that is None.


# %% tags=["answer"]
def pass_through(look, *tensors):
    """Return the tensors, all of which require a gradient, unchanged, as the outputs
    of one new node of the graph: a tuple of tensors with the same values.

    In backward, when the gradients of all of them are known, `look(gradients)` is
    called once with a tuple. If it returns a tuple, this goes on instead; None
    keeps the gradients.
    """
    ...


# %% tags=["check"]
check(pass_through)

# %% [markdown]
# ### Exercise · Forward between two nodes
#
# `BackwardHook` does the same for inputs and outputs, and it can deal with more than tensors:
#
# - `BackwardHook(module, full_hooks, pre_hooks)` takes two lists of hooks,
# - `setup_input_hook(args)` puts a node on the inputs, and returns the tuple of inputs that `forward` should get,
# - `setup_output_hook(output)` puts another node on the output, and returns the output that the caller should get.

# %% [markdown] tags=["sealed"]
# 2 points
# 1. `BackwardHook(module, full_hooks, pre_hooks)` makes both nodes: `setup_input_hook(args)` the one for the inputs,
#    `setup_output_hook(output)` the one for the output.
# 2. Both return what you go on with: the inputs for forward, the output for the caller.


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

# %% [markdown] tags=["more"]
# ## More: The proof
#
# Now put everything together. `MiniSteps` is an `nn.Module` with the steps of exercises {takes_fast_path} to
# {run_always_called} as methods, so you can begin here even without your own answers. It does not let you call torch's
# own `__call__`. Write your own. For the backward hooks you need the class `BackwardHook`, which exercise
# {forward_between_nodes} explains.

# %% [markdown] tags=["instructor"]
# **On this slide:** Say that a first difference is a success: it names the line to look at. Ask those who have "none"
# to break one line on purpose, and to see where the traces part.

# %% [markdown]
# ### Exercise · The call

# %% [markdown] tags=["sealed"]
# 4 points
# 1. In the order of torch's `_call_impl`: fast path; then in a `try`: pre-hooks, node for the inputs, forward, forward
#    hooks, node for the output. What comes in the `except`?
# 2. Full and pre-hooks: `list(self.hooks_in_order("backward_hooks").values())`. Make a `BackwardHook` only if there are
#    any. `output` and `started` need a value before the `try`.


# %% tags=["answer"]
class MiniModule(MiniSteps):
    """`nn.Module` with a `__call__` of its own, which fires all hooks in torch's
    order.

    The steps are there as methods: `takes_fast_path()`, `hooks_in_order(kind)`,
    `run_pre_hooks(hooks, args)`, `run_forward_hooks(hooks, args, output, started)`,
    `run_always_called(hooks, started, args, output)`, and `always_called()`, which
    gives the hooks for the last one. For the backward hooks, if there are any, use
    a `BackwardHook`. If anything raises, run the always-called hooks, with the
    arguments and the output that there are by then, and raise it again.
    """

    def __call__(self, *args): ...


# %% tags=["check"]
check(MiniModule)

# %% [markdown]
# `plug_in` makes one class of your answers. Where there is none yet, the course's answer stands in.

# %%
Mini = plug_in(takes_fast_path, hooks_in_order, run_pre_hooks, run_forward_hooks, run_always_called, MiniModule)

# %% [markdown]
# We make the same network twice, once of `nn.Module` and once of your class, put all kinds of hooks on everything, trace both,
# and compare the two traces line by line.


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
# All 33 events are in the same order. Torch's hundred lines also deal with keyword arguments, legacy hooks, and compiled and
# traced calls.

# %% [markdown] tags=["instructor"]
# **Misconceptions, by exercise:** forgetting one of the eight tables (1); local before global (2); `if result:` instead of
# `is not None`, which loses a 0 or fails on a tensor (3, 4); adding the key after the call, so that a hook that raises runs
# again (4, 5); returning nothing for the words in backward (6); the node before the pre-hooks, a swallowed exception (8).
#
# **Ask, whatever the exercise:** "Which of your lines would you have to change to run local hooks first? Which programs
# would break?" (All that rely on a global hook to see things before anybody has changed them: profilers, tracers.)
#
# **For discussion:** which of the tables could a module keep to itself, and which must all modules share?

# %% [markdown] tags=["more"]
# ## More: Ask what happened to a hook
#
# You now know the rules by which a hook runs. In a project of your own, a hook that does nothing rarely shows its reason:
# there is no error and no warning, only an empty list. `explain_hook` watches one hook while a block of code runs, and
# says what happened to it. It changes nothing in the run, and it leaves nothing behind.

# %% [markdown] tags=["instructor"]
# **On this slide:** Let the room name the reason first. Then ask for other reasons why a hook may not run, and try one of
# them in this cell.


# %%
def keep(module, args, output):
    """Keep what the module returned."""
    kept.append(output.detach())


kept, net = [], nn.Sequential(nn.Linear(2, 2), nn.ReLU())
net.register_forward_hook(keep)
with explain_hook(net, keep) as story:
    net.forward(torch.ones(1, 2))
print(story)

# %% [markdown]
# Put such a block around a step of your own training, with your model and your hook. It knows some thirty reasons, and
# where it does not know the reason, it says so.

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | `__call__` runs pre-hooks, then `forward`, then forward hooks, then backward hooks. | The call only prepares the backward hooks. They run in the backward pass. And global hooks run before local ones. |
# | `__call__` walks to `grad_fn` and puts the backward hooks there. | This is true of legacy hooks only. Full backward hooks put nodes of their own around `forward`. |
# | If `forward` raises, no forward hook runs. | Those with `always_call=True` do. |

# %% [markdown] tags=["instructor"]
# **On this slide:** Take the first row, and ask what the call itself does for the backward hooks. It only prepares
# the nodes; whoever says that it runs them should look at the trace again.

# %% [markdown]
# ## The case
#
# That is hard to believe: perhaps somebody's hook has a hand in the answer? You know now what a call does. So compare the
# call with `forward` alone, and with a call in which a hook looks on, and count the hooks. In the picture, each bright
# stripe is a logit above 0.

# %%
from course_utils.explorers import case
from course_utils.hooks.inventory import count_hooks

picture, suspect = case.open_case()
image, seen = picture.image[None], []
with torch.no_grad():
    logits = {"the call": suspect(image)[0], "forward alone": suspect.forward(image)[0]}
    with suspect.register_forward_hook(lambda module, args, output: seen.append(output[0])):
        suspect(image)
logits["seen by a hook"] = seen[0]
same = all(torch.equal(each, logits["the call"]) for each in logits.values())
case.keep_clue(
    "04",
    f"The ten logits are {'the same' if same else 'not the same'} in all three, to the last bit, and "
    f"{count_hooks(suspect).total()} hooks are on the network. The answer is its own.",
    {name: each.relu().expand(4, -1) for name, each in logits.items()},
)

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask which of the three would have been different if another's hook had changed the output, and
# which if it had been a global hook.

# %% [markdown]
# ## Summary
#
# - `module(x)` → `_wrapped_call_impl` → `_call_impl` → `forward`. Whoever calls `forward` by its name skips the hooks.
# - Without a hook a call takes the fast path. A local hook takes one module off it, a global hook all of them.
# - In forward: pre-hooks, node for the inputs, `forward`, forward hooks, node for the output. Global hooks come first.
# - In backward: pre-hooks when the gradient of the output is there, full hooks when that of the inputs is. So the outermost
#   module's full hook comes last, but only if the input requires a gradient.
# - The nodes make views, which must not be changed in place. Keyword arguments, dicts and nested outputs have no node.
# - `always_call=True` hooks run when the call raises, with None as the output if there is none yet.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask for three reasons why a hook stays silent. The lesson has `forward` called by its name, which
# was patient C, an output or input without a node, and a plain forward hook where forward raises.

# %% [markdown]
# ## Go further
#
# - Lesson 05: forward hooks at work, on the feature maps of a network.
# - Lesson 09: handles, legacy hooks, and every other kind of hook.
# - [`torch.nn.Module.register_full_backward_hook`](https://pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_full_backward_hook)
# - [Extending PyTorch: `torch.autograd.Function`](https://pytorch.org/docs/stable/notes/extending.html), for nodes of your own.

# %% [markdown] tags=["instructor"]
# **On this slide:** At home: the exercises that were left out. No later lesson needs this one, except for lesson 09,
# so those who are tired may rest here.
