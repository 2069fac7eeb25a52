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
# # Every hook
#
# This is a reference that runs. Look up what you need in the index, follow the link, and run the cell below it: each cell
# is short and shows one thing. It needs only the folded setup cells; a few cells continue the one right above them.
# Nobody has to read this notebook from start to end.
#
# At the end there are twelve puzzles of one line each, and five sentences of this course for you to refute. Six puzzles
# and two sentences are the core. What follows under *More* is for those who want to know it all.
#
# ## What you will be able to do
#
# - **Find** the hook for a task, with its signature, the moment when it runs, what it may return, and its trap.
# - **Explain** why a hook did not fire, or fired twice.
# - **Choose** between a hook, a mode, a rewritten graph and a feature extractor.
# - **Solve** small tasks with one line of code.
#
# **Minutes:** counted by the build
#
# The reference itself is looked up and not read, so only the exercises are counted.

# %% [markdown] tags=["instructor"]
# **Plan for 90 minutes**
#
# | Minutes | Sections | In the room | At home |
# |---|---|---|---|
# | 0 to 6 | Index | everybody looks for the answer to one question of their own | nothing |
# | 6 to 15 | Hooks on tensors · Hooks on the graph · Hooks on what forward saves · Hooks on modules · Hooks on all modules · Hooks on saving and loading · Hooks on optimizers · The order of a call | one entry for each pair, told to the room in one sentence with its trap | all other entries; exercises {Handle} and {compute_again} |
# | 15 to 22 | When it does not fire, or fires twice | the prediction with discussion and a second vote; one case for each pair | the other cases |
# | 22 to 24 | Several devices and processes · Hooks that are not run here | the numbers of the two processes | everything else |
# | 24 to 27 | History: the legacy backward hook | one vote, for those who maintain old code | the further cells |
# | 27 to 30 | When something else is the better tool | one question: which one would you have used? | the four tools |
# | 30 to 66 | Exercises: six puzzles | in pairs, five minutes each with the explanation | puzzles 7 to 12 |
# | 66 to 71 | Pause | nothing | nothing |
# | 71 to 83 | Exercises: break this rule | rules 1 and 2 | rules 3 to 5 |
# | 83 to 86 | What old tutorials say · Summary · Go further | the cheat sheet for everybody | the table |
#
# **Homework:** Puzzles 7 to 12, about 36 minutes; exercises {Handle} and {compute_again} and rules 3 to 5 for those who
# liked it.

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
import functools
import inspect
import io
import itertools
import textwrap
import warnings
import weakref

import torch
from IPython.display import HTML
from torch import nn
from torch.autograd import graph
from torch.nn.modules import module as all_modules
from torch.utils.checkpoint import checkpoint

# %% tags=["setup"]
from course_utils.exercises import hint, predict, replay, solution, why
from course_utils.hooks.firing_matrix import (
    load_matrices,
    load_matrix,
    read_programs,
    render_changes,
    render_matrix,
    write_proof,
)
from course_utils.hooks.inventory import count_hooks, list_hooks
from course_utils.lessons.lesson_09 import Handle, compute_again
from course_utils.lessons.side_by_side import check
from course_utils.vision.toys import SmallNet


# %% tags=["setup"]
class Times(nn.Module):
    """The input times a weight, which is 2 at first."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0]))

    def forward(self, x):
        return x * self.weight


def leaf(*numbers):
    """A leaf that requires its gradient."""
    return torch.tensor(numbers, requires_grad=True)


def telling(name):
    """A pair of hooks on saved tensors that changes nothing, and tells when it runs."""
    return (
        lambda tensor: print(name, "packs", tensor.item()) or tensor.detach()
    ), lambda packed: print(name, "unpacks") or packed


def show(values):
    """A tuple of gradients, or of arguments, as numbers."""
    return tuple(value.tolist() if isinstance(value, torch.Tensor) else value for value in values)


# %% tags=["setup"]
class Chain(nn.Module):
    """Two layers, one after the other, and a function between them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Times(), Times()

    def forward(self, x):
        return self.second(nn.functional.relu(self.first(x)) + 1)


def report(module, grad_input, grad_output):
    """A full backward hook that prints what it gets."""
    print(f"{type(module).__name__}: grad_input {show(grad_input)}, grad_output {show(grad_output)}")


# %% [markdown]
# ## Index
#
# ### I want to …
#
# | I want to … | Look here |
# |---|---|
# | see or change the gradient of one tensor | [Tensor.register_hook](#Tensor.register_hook) |
# | use `.grad` as soon as it is complete | [Tensor.register_post_accumulate_grad_hook](#Tensor.register_post_accumulate_grad_hook) |
# | train without keeping all gradients in memory | [An optimizer step in backward](#An-optimizer-step-in-backward) |
# | wait until several gradients are there | [register_multi_grad_hook](#register_multi_grad_hook) |
# | do something once, when backward has ended | [queue_callback](#queue_callback) |
# | have gradients for a few tensors only | [backward with inputs](#backward-with-inputs) |
# | name a place in the graph, whatever becomes of the tensor | [get_gradient_edge](#get_gradient_edge) |
# | change a gradient at one operation only, also at a function | [after it](#Node.register_hook) · [before it](#Node.register_prehook) |
# | know which operation made which node | [node_creation_hook](#node_creation_hook) |
# | store what forward saves in another form | [saved_tensors_hooks](#saved_tensors_hooks) · [of one tensor](#SavedTensor.register_hooks) · [on the CPU](#save_on_cpu) |
# | forbid that, or allow changes in place | [disable_saved_tensors_hooks](#disable_saved_tensors_hooks) · [allow_mutation_on_saved_tensors](#allow_mutation_on_saved_tensors) |
# | choose what checkpointing keeps | [Selective checkpointing](#Selective-checkpointing) |
# | find the operation whose gradient is nan | [detect_anomaly](#detect_anomaly) |
# | give an operation of my own a backward | [torch.library.register_autograd](#torch.library.register_autograd) |
# | see or change what goes into a layer | [Module.register_forward_pre_hook](#Module.register_forward_pre_hook) |
# | see or change what comes out of a layer | [Module.register_forward_hook](#Module.register_forward_hook) |
# | see or change the gradients at a layer | [after it](#Module.register_full_backward_hook) · [before it](#Module.register_full_backward_pre_hook) |
# | know which module is running | [ModuleTracker](#ModuleTracker) |
# | watch every module of the program | [Module hooks for all modules](#Module-hooks-for-all-modules) |
# | notice when a layer or a parameter is added to a model | [Registration hooks](#Registration-hooks) |
# | change what is saved, or load an old file | [Saving](#Module.register_state_dict_post_hook), [before it](#Module.register_state_dict_pre_hook) · [Loading](#Module.register_load_state_dict_pre_hook), [after it](#Module.register_load_state_dict_post_hook) · [private](#The-private-hooks-of-libraries) |
# | save more with an optimizer | [Saving](#Optimizer.register_state_dict_pre_hook-and-register_state_dict_post_hook) · [Loading](#Optimizer.register_load_state_dict_pre_hook-and-register_load_state_dict_post_hook) |
# | do something at each step of any optimizer | [Optimizer steps](#Optimizer.register_step_pre_hook-and-register_step_post_hook) · [all optimizers](#Step-hooks-for-all-optimizers) |
# | change how processes exchange gradients | [DistributedDataParallel.register_comm_hook](#DistributedDataParallel.register_comm_hook) |
# | train in pieces, or with fewer inputs here than there | [fully_shard](#fully_shard) · [Join and JoinHook](#Join-and-JoinHook) |
# | know who comes first | [The order of a call](#The-order-of-a-call) |
# | see operations that belong to no module | [TorchFunctionMode](#TorchFunctionMode) · [TorchDispatchMode](#TorchDispatchMode) |
# | change the network itself | [torch.fx](#torch.fx) |
# | have a few feature maps and nothing else | [create_feature_extractor](#create_feature_extractor) |
#
# ### It does not fire because …
#
# | It does not fire because … | Look here |
# |---|---|
# | the gradient was asked for with `torch.autograd.grad` | [autograd.grad instead of backward](#autograd.grad-instead-of-backward) |
# | the weight is computed from another parameter | [A parametrized weight](#A-parametrized-weight) |
# | the inputs came as keyword arguments or in a list | [Keyword arguments and lists](#Keyword-arguments-and-lists) |
# | the output is a tuple in a tuple, or a dict | [Nested outputs](#Nested-outputs) |
# | forward raised, or somebody pressed Ctrl-C | [An exception in forward](#An-exception-in-forward) |
# | the model was compiled before | [torch.compile](#torch.compile) |
# | the model was exported or traced | [torch.export](#torch.export) · [torch.jit.trace](#torch.jit.trace) |
# | backward was asked for other tensors | [backward with inputs](#backward-with-inputs) |
# | nothing there requires a gradient | [No gradient required](#No-gradient-required) |
# | this is a copy of the model | [Copies](#Copies) |
# | somebody called `forward` itself | lesson 04 |
#
# | It fires, but … | Look here |
# |---|---|
# | it fires twice | [Checkpointing](#Checkpointing) |
# | it raises under `torch.func` | [torch.func](#torch.func) |
# | PyTorch says "is a view and is being modified inplace" | [Module.register_full_backward_hook](#Module.register_full_backward_hook) |
# | the model cannot be saved any more | [Saving a whole model](#Saving-a-whole-model) |
# | what it stores on `module` is gone | [DataParallel](#DataParallel) |
# | its gradient is not the one in `.grad` | [DistributedDataParallel](#DistributedDataParallel) |
# | it sees another dtype than you expect | [torch.autocast](#torch.autocast) |
# | it fails only sometimes | [Four traps in PyTorch itself](#More:-Four-traps-in-PyTorch-itself) |
# | it comes from old code, with `register_backward_hook` | [Module.register_backward_hook](#Module.register_backward_hook) |

# %% [markdown] tags=["instructor"]
# **On this slide:** Let everybody find the answer to one question of their own in these tables, and say how many
# seconds it took. The lesson is a place to look things up; knowing this index is its first half.

# %% [markdown] tags=["reference"]
# ### All entries
#
# What you write, with the parameters of the torch that built this page, and the first version that has it, as its packages
# from 1.0 on show. What 1.0 has may be older.
#
# | Entry | Write | Since torch |
# |---|---|---|
# | [Tensor.register_hook](#Tensor.register_hook) | `torch.Tensor.register_hook(hook)` | 1.0 |
# | [Tensor.register_post_accumulate_grad_hook](#Tensor.register_post_accumulate_grad_hook) | `torch.Tensor.register_post_accumulate_grad_hook(hook)` | 2.1 |
# | [register_multi_grad_hook](#register_multi_grad_hook) | `torch.autograd.graph.register_multi_grad_hook(tensors, fn, *, mode='all')` | 2.0; `mode` 2.3 |
# | [Node.register_prehook](#Node.register_prehook) | `torch.autograd.graph.Node.register_prehook(fn)` | 2.0 |
# | [Node.register_hook](#Node.register_hook) | `torch.autograd.graph.Node.register_hook(fn)` | 1.0 |
# | [node_creation_hook](#node_creation_hook) | `torch.autograd.graph.node_creation_hook(hook)` | 2.14 |
# | [saved_tensors_hooks](#saved_tensors_hooks) | `torch.autograd.graph.saved_tensors_hooks(pack_hook, unpack_hook)` | 1.10 |
# | [disable_saved_tensors_hooks](#disable_saved_tensors_hooks) | `torch.autograd.graph.disable_saved_tensors_hooks(error_message)` | 1.13 |
# | [SavedTensor.register_hooks](#SavedTensor.register_hooks) | `SavedTensor.register_hooks(pack, unpack)` | 1.10 |
# | [Module.register_forward_pre_hook](#Module.register_forward_pre_hook) | `torch.nn.Module.register_forward_pre_hook(hook, *, prepend=False, with_kwargs=False)` | 1.0; `prepend`, `with_kwargs` 2.0 |
# | [Module.register_forward_hook](#Module.register_forward_hook) | `torch.nn.Module.register_forward_hook(hook, *, prepend=False, with_kwargs=False, always_call=False)` | 1.0; `prepend`, `with_kwargs` 2.0, `always_call` 2.1 |
# | [Module.register_full_backward_pre_hook](#Module.register_full_backward_pre_hook) | `torch.nn.Module.register_full_backward_pre_hook(hook, prepend=False)` | 2.0 |
# | [Module.register_full_backward_hook](#Module.register_full_backward_hook) | `torch.nn.Module.register_full_backward_hook(hook, prepend=False)` | 1.8; `prepend` 2.0 |
# | [Module hooks for all modules](#Module-hooks-for-all-modules) | `torch.nn.modules.module.register_module_forward_pre_hook(hook)` | 1.6 |
# | [Module hooks for all modules](#Module-hooks-for-all-modules) | `torch.nn.modules.module.register_module_forward_hook(hook, *, with_kwargs=False, always_call=False)` | 1.6; `always_call` 2.1, `with_kwargs` 2.6 |
# | [Module hooks for all modules](#Module-hooks-for-all-modules) | `torch.nn.modules.module.register_module_full_backward_pre_hook(hook)` | 2.0 |
# | [Module hooks for all modules](#Module-hooks-for-all-modules) | `torch.nn.modules.module.register_module_full_backward_hook(hook)` | 1.8 |
# | [Registration hooks](#Registration-hooks) | `torch.nn.modules.module.register_module_module_registration_hook(hook)` | 2.0 |
# | [Registration hooks](#Registration-hooks) | `torch.nn.modules.module.register_module_parameter_registration_hook(hook)` | 2.0 |
# | [Registration hooks](#Registration-hooks) | `torch.nn.modules.module.register_module_buffer_registration_hook(hook)` | 2.0 |
# | [Module.register_state_dict_pre_hook](#Module.register_state_dict_pre_hook) | `torch.nn.Module.register_state_dict_pre_hook(hook)` | 2.0 |
# | [Module.register_state_dict_post_hook](#Module.register_state_dict_post_hook) | `torch.nn.Module.register_state_dict_post_hook(hook)` | 2.5 |
# | [Module.register_load_state_dict_pre_hook](#Module.register_load_state_dict_pre_hook) | `torch.nn.Module.register_load_state_dict_pre_hook(hook)` | 2.5 |
# | [Module.register_load_state_dict_post_hook](#Module.register_load_state_dict_post_hook) | `torch.nn.Module.register_load_state_dict_post_hook(hook)` | 1.12 |
# | [Optimizer.register_step_pre_hook and register_step_post_hook](#Optimizer.register_step_pre_hook-and-register_step_post_hook) | `torch.optim.Optimizer.register_step_pre_hook(hook)` | 2.0 |
# | [Optimizer.register_step_pre_hook and register_step_post_hook](#Optimizer.register_step_pre_hook-and-register_step_post_hook) | `torch.optim.Optimizer.register_step_post_hook(hook)` | 2.0 |
# | [Step hooks for all optimizers](#Step-hooks-for-all-optimizers) | `torch.optim.optimizer.register_optimizer_step_pre_hook(hook)` | 2.0 |
# | [Step hooks for all optimizers](#Step-hooks-for-all-optimizers) | `torch.optim.optimizer.register_optimizer_step_post_hook(hook)` | 2.0 |
# | [Optimizer.register_state_dict_pre_hook and register_state_dict_post_hook](#Optimizer.register_state_dict_pre_hook-and-register_state_dict_post_hook) | `torch.optim.Optimizer.register_state_dict_pre_hook(hook, prepend=False)` | 2.1 |
# | [Optimizer.register_state_dict_pre_hook and register_state_dict_post_hook](#Optimizer.register_state_dict_pre_hook-and-register_state_dict_post_hook) | `torch.optim.Optimizer.register_state_dict_post_hook(hook, prepend=False)` | 2.1 |
# | [Optimizer.register_load_state_dict_pre_hook and register_load_state_dict_post_hook](#Optimizer.register_load_state_dict_pre_hook-and-register_load_state_dict_post_hook) | `torch.optim.Optimizer.register_load_state_dict_pre_hook(hook, prepend=False)` | 2.1 |
# | [Optimizer.register_load_state_dict_pre_hook and register_load_state_dict_post_hook](#Optimizer.register_load_state_dict_pre_hook-and-register_load_state_dict_post_hook) | `torch.optim.Optimizer.register_load_state_dict_post_hook(hook, prepend=False)` | 2.1 |
# | [DistributedDataParallel.register_comm_hook](#DistributedDataParallel.register_comm_hook) | `torch.nn.parallel.DistributedDataParallel.register_comm_hook(state, hook)` | 1.8 |
# | [Module.register_backward_hook](#Module.register_backward_hook) | `torch.nn.Module.register_backward_hook(hook)` | 1.0 |
# | [Module.register_backward_hook](#Module.register_backward_hook) | `torch.nn.modules.module.register_module_backward_hook(hook)` | 1.6 |
# | [queue_callback](#queue_callback) | `torch.autograd.graph.queue_callback(callback)` | 2.15 |
# | [backward with inputs](#backward-with-inputs) | `torch.Tensor.backward(gradient=None, retain_graph=None, create_graph=False, inputs=None)` | 1.0; `inputs` 1.8 |
# | [get_gradient_edge](#get_gradient_edge) | `torch.autograd.graph.get_gradient_edge(tensor)` | 2.2 |
# | [allow_mutation_on_saved_tensors](#allow_mutation_on_saved_tensors) | `torch.autograd.graph.allow_mutation_on_saved_tensors()` | 2.0 |
# | [save_on_cpu](#save_on_cpu) | `torch.autograd.graph.save_on_cpu(pin_memory=False, device_type='cuda')` | 1.10 |
# | [Selective checkpointing](#Selective-checkpointing) | `torch.utils.checkpoint.create_selective_checkpoint_contexts(policy_fn_or_list, allow_cache_entry_mutation=False)` | 2.5 |
# | [detect_anomaly](#detect_anomaly) | `torch.autograd.detect_anomaly(check_nan=True)` | 1.0; `check_nan` 1.13 |
# | [torch.library.register_autograd](#torch.library.register_autograd) | `torch.library.register_autograd(op, backward, /, *, setup_context=None, lib=None)` | 2.4 |
# | [torch.autocast](#torch.autocast) | `torch.autocast(device_type, dtype=None, enabled=True, cache_enabled=None)` | 1.10 |
# | [torch.export](#torch.export) | `torch.export.export(mod, args, kwargs=None, *, dynamic_shapes=None, strict=False, preserve_module_call_signature=(), prefer_deferred_runtime_asserts_over_guards=False)` | 2.1 |
# | [torch.jit.trace](#torch.jit.trace) | `torch.jit.trace(func, example_inputs=None, optimize=None, check_trace=True, check_inputs=None, check_tolerance=1e-05, strict=True, example_kwarg_inputs=None)` | 1.0 |
# | [fully_shard](#fully_shard) | `torch.distributed.fsdp.fully_shard(module, *, mesh=None, reshard_after_forward=None, shard_placement_fn=None, mp_policy=..., offload_policy=..., ignored_params=None, dp_mesh_dims=None)` | 2.6 |
# | [Join and JoinHook](#Join-and-JoinHook) | `torch.distributed.algorithms.join.Join(joinables, enable=True, throw_on_early_termination=False, **kwargs)` | 1.10 |
# | [Join and JoinHook](#Join-and-JoinHook) | `torch.distributed.algorithms.join.JoinHook()` | 1.10 |
# | [ModuleTracker](#ModuleTracker) | `torch.utils.module_tracker.ModuleTracker()` | 2.4 |
# | [The private hooks of libraries](#The-private-hooks-of-libraries) | `torch.nn.Module._register_state_dict_hook(hook)` | 1.0 |
# | [The private hooks of libraries](#The-private-hooks-of-libraries) | `torch.nn.Module._register_load_state_dict_pre_hook(hook, with_module=False)` | 1.0; `with_module` 1.10 |

# %% [markdown]
# ## Hooks on tensors
#
# ### Tensor.register_hook
#
# - **Call:** `tensor.register_hook(hook)` with `hook(grad)`
# - **Runs:** in each backward, and in `autograd.grad`, as soon as the whole gradient of the tensor is known
# - **Returns:** a tensor of the same shape and dtype replaces the gradient; `None` keeps it
# - **Trap:** never write into `grad`, because siblings may share it. Return a new tensor. (Lesson 01)

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask the room for the trap before they read it. All entries have the same four lines, and the last
# one is the one that costs time at work.

# %%
x = leaf(1.0, 2.0)
y = 3 * x
y.register_hook(lambda grad: 10 * grad)
y.sum().backward()
print("x.grad =", x.grad.tolist())

# %% [markdown]
# ### Tensor.register_post_accumulate_grad_hook
#
# - **Call:** `leaf.register_post_accumulate_grad_hook(hook)` with `hook(leaf)`
# - **Runs:** in backward, after the gradient was added to `leaf.grad`; not in `autograd.grad`
# - **Returns:** nothing; any other value raises, but for the leaf itself. It may change or clear `leaf.grad`
# - **Trap:** `leaf.grad` is the sum of all backwards since it was last cleared, not the gradient of this one.

# %%
w = leaf(5.0)
w.register_post_accumulate_grad_hook(lambda leaf: print("w.grad is now", leaf.grad.item()))
(2 * w).backward()
(3 * w).backward()

# %% [markdown]
# ### An optimizer step in backward
#
# The best known use: each parameter has an optimizer of its own, which steps as soon as the gradient is there and then
# throws it away. So the gradients are never all in memory. (It is not quite one at a time: the node of a Linear layer hands
# on the gradients of its weight and its bias together.) Clipping by the norm of *all* gradients is no longer
# possible then.

# %%
net = nn.Sequential(Times(), Times())
optimizers = {parameter: torch.optim.SGD([parameter], lr=0.25) for parameter in net.parameters()}


def step(parameter):
    optimizers[parameter].step()
    parameter.grad = None


for parameter in net.parameters():
    parameter.register_post_accumulate_grad_hook(step)
net(torch.ones(1)).backward()
print("weights:", [each.item() for each in net.parameters()], " gradients:", [each.grad for each in net.parameters()])

# %% [markdown]
# ### register_multi_grad_hook
#
# - **Call:** `graph.register_multi_grad_hook(tensors, hook, mode="all")` with `hook(grads)`, or `hook(grad)` if `mode="any"`
# - **Runs:** once in a backward: when all the gradients are there, or with `mode="any"` at the first one
# - **Returns:** nothing; it cannot change a gradient
# - **Trap:** it does not wait for a tensor that is not needed in this backward, and shows `None` for it.

# %%
a, b, c = leaf(2.0), leaf(3.0), leaf(4.0)
every = graph.register_multi_grad_hook((a, b, c), lambda grads: print("all:", show(grads)))
first = graph.register_multi_grad_hook((a, b, c), lambda grad: print("any:", grad.tolist()), mode="any")
with every, first:
    (a * (5 * b)).backward()

# %% [markdown]
# ## Hooks on the graph
#
# ### Node.register_prehook
#
# - **Call:** `tensor.grad_fn.register_prehook(hook)` with `hook(grad_outputs)`
# - **Runs:** in backward, before the node computes, after all hooks on its output and after what `retain_grad()` keeps
# - **Returns:** a tuple replaces the gradients of the node's outputs; `None` keeps them
# - **Trap:** a node belongs to one graph: the next forward makes a new one, without your hook.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask when a tensor's hook is not enough: where the operation is what matters, and where no line of
# yours holds the tensor. Lesson 06 used it for functional ReLUs.

# %%
x = leaf(3.0)
y = x * x
y.retain_grad()
y.grad_fn.register_prehook(lambda grad_outputs: (10 * grad_outputs[0],))
y.backward()
print("y.grad =", y.grad.item(), " x.grad =", x.grad.item())

# %% [markdown]
# ### Node.register_hook
#
# - **Call:** `tensor.grad_fn.register_hook(hook)` with `hook(grad_inputs, grad_outputs)`
# - **Runs:** in backward, after the node has computed
# - **Returns:** a tuple, with an entry for each input of the operation, replaces `grad_inputs`; `None` keeps them
# - **Trap:** the entries belong to the *operation*, in its own order, and not to the arguments of your layer.

# %%
a, b = leaf(3.0), leaf(4.0)
product = a * b
with product.grad_fn.register_hook(lambda grad_inputs, grad_outputs: (grad_inputs[0], 10 * grad_inputs[1])):
    product.backward()
print("a.grad =", a.grad.item(), " b.grad =", b.grad.item())

# %% [markdown]
# ### node_creation_hook
#
# - **Call:** `with graph.node_creation_hook(hook):` with `hook(node)`
# - **Runs:** whenever an operation in the block makes a node: in forward, and in a backward with `create_graph=True`
# - **Returns:** nothing
# - **Trap:** the node of a leaf (`AccumulateGrad`) is made once and used again, so it is not announced every time.

# %%
x, names = leaf(3.0), []
with graph.node_creation_hook(lambda node: names.append(node.name())):
    y = (2 * x).exp()
print([name for name in names if "Accumulate" not in name])

# %% [markdown]
# ## Hooks on what forward saves
#
# ### saved_tensors_hooks
#
# - **Call:** `with graph.saved_tensors_hooks(pack, unpack):` with `pack(tensor)` and `unpack(packed)`
# - **Runs:** `pack` in forward, for each tensor that an operation saves; `unpack` in backward, when it is needed
# - **Returns:** `pack` anything at all; `unpack` a tensor with the shape and dtype that was saved
# - **Trap:** of nested pairs only the innermost runs. Nobody checks the values: wrong ones give wrong gradients. To keep the
#   tensor as it is, `pack` returns `tensor.detach()`: the tensor itself may never be freed. (Lesson 02)

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what may be done with a tensor between `pack` and `unpack`: it can be stored in another form,
# another place, or not at all, if it can be computed again. Lesson 02 measured the first.

# %%
x = leaf(9.0)
with graph.saved_tensors_hooks(*telling("outer")), graph.saved_tensors_hooks(*telling("inner")):
    y = x.sqrt()
y.backward()

# %% [markdown]
# ### disable_saved_tensors_hooks
#
# - **Call:** `with graph.disable_saved_tensors_hooks(message):`
# - **Runs:** it is not a hook: in the block, `saved_tensors_hooks` raises `RuntimeError(message)`
# - **Returns:** nothing
# - **Trap:** `save_on_cpu` and `checkpoint` with `use_reentrant=False` are built on these hooks, so they raise too.

# %%
for what in ("saved_tensors_hooks", "checkpoint"):
    try:
        with graph.disable_saved_tensors_hooks("no hooks on saved tensors here"):
            if what == "checkpoint":
                checkpoint(Times(), leaf(1.0), use_reentrant=False)
            else:
                graph.saved_tensors_hooks(*telling("never")).__enter__()
    except RuntimeError as error:
        print(f"{what}: {error}")

# %% [markdown]
# ### SavedTensor.register_hooks
#
# - **Call:** `tensor.grad_fn._raw_saved_NAME.register_hooks(pack, unpack)`: for one saved tensor
# - **Runs:** `pack` at once, `unpack` in backward
# - **Returns:** as for `saved_tensors_hooks`
# - **Trap:** one pair only; a second one raises. Which names there are depends on the operation: `_raw_saved_result`,
#   `_raw_saved_self`, …

# %%
x = leaf(3.0, -3.0)
y = x * x
y.grad_fn._raw_saved_self.register_hooks(lambda tensor: tensor.tolist(), lambda packed: torch.tensor(packed))
y.sum().backward()
print("x.grad =", x.grad.tolist(), " saved:", sorted(name for name in dir(y.grad_fn) if name.startswith("_raw_saved")))

# %% [markdown] tags=["instructor"]
# **Misconception:** "`register_post_accumulate_grad_hook` gives me the gradient of this backward." **Ask:** "After two
# backwards the cell prints 2 and 5. Which number is the gradient of the second one?" **Answer:** 3, and no hook printed it:
# `.grad` is a sum.
#
# **Misconception:** "A hook on a node is the same as one on its tensor." **Ask:** "Which of the two sees the gradients of
# *both* factors?" **Answer:** the node's. The tensor's hook sees only what arrives at the product.
#
# **For discussion:** why does an outer pair of saved-tensor hooks not see what the inner pair packs? (The inner pair may
# have made anything of it, such as a file's name. There is no tensor any more to be packed.)

# %% [markdown]
# ## Hooks on modules
#
# ### Module.register_forward_pre_hook
#
# - **Call:** `module.register_forward_pre_hook(hook, prepend=False, with_kwargs=False)` with `hook(module, args)`, or
#   `hook(module, args, kwargs)`
# - **Runs:** in each call, before `forward`
# - **Returns:** new arguments: a tuple, or one value; with `with_kwargs=True` a pair `(args, kwargs)`; `None` keeps them
# - **Trap:** without `with_kwargs=True` it neither sees nor changes a keyword argument.

# %% [markdown] tags=["instructor"]
# **On this slide:** Let them write the arguments of the four module hooks from memory, and compare. Whoever
# misses `with_kwargs=True` has found the trap of this entry.

# %%
layer, x = Times(), torch.tensor([3.0])
with layer.register_forward_pre_hook(lambda module, args: (10 * args[0],)):
    print("positional:", layer(x).item())
with layer.register_forward_pre_hook(lambda module, args, kwargs: (args, {"x": 10 * kwargs["x"]}), with_kwargs=True):
    print("keyword:   ", layer(x=x).item())

# %% [markdown]
# ### Module.register_forward_hook
#
# - **Call:** `module.register_forward_hook(hook, prepend=False, with_kwargs=False, always_call=False)` with
#   `hook(module, args, output)`, or `hook(module, args, kwargs, output)`
# - **Runs:** in each call, after `forward`; with `always_call=True` also if something raised
# - **Returns:** anything but `None` replaces the output
# - **Trap:** `output` is the real one. Keep `output.detach().clone()`, or you keep the graph and see later in-place changes.

# %%
layer, x = Times(), torch.tensor([3.0])
with layer.register_forward_hook(lambda module, args, output: output + 100):
    print("with the hook:", layer(x).item())
print("after it:     ", layer(x).item())

# %%
layer, x = Times(), torch.tensor([3.0])
for prepend in (False, True):
    ran = []
    old = layer.register_forward_hook(lambda *_: ran.append("old"))
    new = layer.register_forward_hook(lambda *_: ran.append("new"), prepend=prepend)
    with old, new:
        layer(x)
    print(f"prepend={prepend}: {ran}")

# %% [markdown]
# ### Module.register_full_backward_pre_hook
#
# - **Call:** `module.register_full_backward_pre_hook(hook, prepend=False)` with `hook(module, grad_output)`
# - **Runs:** in backward, when the gradients of the module's outputs have arrived
# - **Returns:** a tuple, also for one output, replaces `grad_output`; `None` keeps it
# - **Trap:** what it changes also changes the gradients of the module's own parameters.

# %%
layer, x = Times(), leaf(3.0)
with layer.register_full_backward_pre_hook(lambda module, grad_output: (10 * grad_output[0],)):
    layer(x).backward()
print("x.grad =", x.grad.item(), " weight.grad =", layer.weight.grad.item(), " without the hook: 2 and 3")

# %% [markdown]
# ### Module.register_full_backward_hook
#
# - **Call:** `module.register_full_backward_hook(hook, prepend=False)` with `hook(module, grad_input, grad_output)`
# - **Runs:** in backward, when the gradients of the module's inputs are known
# - **Returns:** a tuple, also for one input, replaces `grad_input`; `None` keeps it
# - **Trap:** inputs and outputs become views, so an in-place operation on the input in the module, or on the output after
#   it, raises. One on the input *before* the call does no harm. (Lesson 03)

# %%
layer, x = Times(), leaf(3.0)
with layer.register_full_backward_hook(lambda module, grad_input, grad_output: (10 * grad_input[0],)):
    layer(x).backward()
    print("x.grad =", x.grad.item(), " weight.grad =", layer.weight.grad.item())
    try:
        layer(x).relu_()
    except RuntimeError as error:
        print(str(error).split(" and is being")[0])

# %% [markdown] tags=["more"]
# ### More: Exercise · The handle
#
# Registering takes a key, puts the hook into a table, and returns a handle. The handle must not keep the table alive: a
# handle that somebody forgot in a list would otherwise keep a whole network in memory. `weakref.ref(table)` refers to
# an object without keeping it.

# %% [markdown] tags=["sealed"]
# 3 points
# 1. A handle knows a table and a key of its own. `remove` deletes that key, if both are still there.
# 2. `itertools.count()` gives a new number each time. `weakref.ref(table)` is called to get the table: None if it is
#    gone.


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
# ## Hooks on all modules
#
# ### Module hooks for all modules
#
# - **Call:** `register_module_forward_pre_hook(hook)`, `register_module_forward_hook(hook)`,
#   `register_module_full_backward_pre_hook(hook)`, `register_module_full_backward_hook(hook)`, in `torch.nn.modules.module`
# - **Runs:** for every module of every model, before the hooks of the module itself
# - **Returns:** as the hook of the same name on one module
# - **Trap:** they stay until the kernel ends and slow every module down: use them in a `with` block.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask for one good use and one price. They see every module without being told of it, and no call
# in the program takes the fast path any more.

# %%
net = nn.Sequential(Times())
kinds = ("forward_pre_hook", "forward_hook", "full_backward_pre_hook", "full_backward_hook")
for kind in kinds:
    called = []
    with getattr(all_modules, f"register_module_{kind}")(lambda module, *_: called.append(type(module).__name__)):
        net(leaf(1.0)).backward()
    print(f"register_module_{kind}: {called}")

# %% [markdown]
# ### Registration hooks
#
# - **Call:** `register_module_module_registration_hook(hook)`, `register_module_parameter_registration_hook(hook)`,
#   `register_module_buffer_registration_hook(hook)`, with `hook(module, name, new)`
# - **Runs:** whenever a module, a parameter or a buffer is put into any module
# - **Returns:** another module, parameter or tensor takes its place; `None` keeps it
# - **Trap:** they also run while somebody else's `__init__` builds a model, so keep the block short.

# %%
with (
    all_modules.register_module_module_registration_hook(lambda module, name, new: print("module", name)),
    all_modules.register_module_parameter_registration_hook(lambda module, name, new: print("parameter", name)),
    all_modules.register_module_buffer_registration_hook(lambda module, name, new: print("buffer", name)),
):
    net = nn.Sequential(Times())
    net.register_buffer("mean", torch.zeros(1))
    net.mean = torch.ones(1)

# %% [markdown]
# ## Hooks on saving and loading
#
# ### Module.register_state_dict_pre_hook
#
# - **Call:** `module.register_state_dict_pre_hook(hook)` with `hook(module, prefix, keep_vars)`
# - **Runs:** in `state_dict()`, before the module writes its entries
# - **Returns:** nothing
# - **Trap:** `prefix` is the module's place in the model, with a dot at its end: `"0."`, or `""` for the model itself.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what they would do with an old checkpoint whose keys have other names. A load hook mends it
# in the model, and nobody has to write the file anew.

# %%
net = nn.Sequential(Times())
net[0].register_state_dict_pre_hook(lambda module, prefix, keep_vars: print("about to save", repr(prefix)))
print(list(net.state_dict()))

# %% [markdown]
# ### Module.register_state_dict_post_hook
#
# - **Call:** `module.register_state_dict_post_hook(hook)` with `hook(module, state_dict, prefix, local_metadata)`
# - **Runs:** in `state_dict()`, after the module and its children wrote their entries
# - **Returns:** nothing; it changes `state_dict` in place. Any other value raises
# - **Trap:** whoever loads the file needs the inverse, so register a load pre-hook as well.

# %%
net = nn.Sequential(Times())
net[0].register_state_dict_post_hook(
    lambda module, state, prefix, metadata: state.update({f"{prefix}half": state[f"{prefix}weight"] / 2})
)
print({name: value.item() for name, value in net.state_dict().items()})

# %% [markdown]
# ### Module.register_load_state_dict_pre_hook
#
# - **Call:** `module.register_load_state_dict_pre_hook(hook)` with `hook(module, state_dict, prefix, local_metadata, strict,
#   missing_keys, unexpected_keys, error_msgs)`
# - **Runs:** in `load_state_dict()`, before the module reads its entries
# - **Returns:** nothing; it changes `state_dict` in place, which is a shallow copy of the caller's
# - **Trap:** `state_dict` holds the entries of this module and its children, under their full names: use `prefix`.
#
# The best known use is to load an old file: here the weight was once called `kernel`.

# %%
net = nn.Sequential(Times())
net[0].register_load_state_dict_pre_hook(
    lambda module, state, prefix, *rest: state.update({f"{prefix}weight": state.pop(f"{prefix}kernel")})
)
print(net.load_state_dict({"0.kernel": torch.tensor([7.0])}), net[0].weight.item())

# %% [markdown]
# ### Module.register_load_state_dict_post_hook
#
# - **Call:** `module.register_load_state_dict_post_hook(hook)` with `hook(module, incompatible_keys)`
# - **Runs:** in `load_state_dict()`, after the module and its children were loaded
# - **Returns:** nothing; it may change the two lists in `incompatible_keys` in place
# - **Trap:** with `strict=True` an empty list means no error: this hook can hide a missing weight.

# %%
layer = nn.Linear(1, 1)
layer.register_load_state_dict_post_hook(lambda module, keys: print("missing:", keys.missing_keys) or keys[0].clear())
print(layer.load_state_dict({"weight": torch.ones(1, 1)}))

# %% [markdown]
# ## Hooks on optimizers
#
# ### Optimizer.register_step_pre_hook and register_step_post_hook
#
# - **Call:** `optimizer.register_step_pre_hook(hook)` and `register_step_post_hook(hook)`, with
#   `hook(optimizer, args, kwargs)`
# - **Runs:** before and after each `step()`
# - **Returns:** the pre-hook may return new `(args, kwargs)`; the post-hook nothing
# - **Trap:** a `GradScaler` leaves a step out if a gradient is inf or nan, and then neither runs. With a *fused* optimizer it
#   calls `step()` all the same: both hooks run, and the weights stay as they are.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what a hook on a step sees that a hook on a gradient cannot: all parameters at one moment,
# and the optimizer's own settings.

# %%
w = leaf(1.0)
optimizer = torch.optim.SGD([w], lr=0.5)
w.grad = torch.tensor([1.0])
before = optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: print("before:", w.item()))
after = optimizer.register_step_post_hook(lambda optimizer, args, kwargs: print("after: ", w.item()))
with before, after:
    optimizer.step()

# %% [markdown]
# ### Step hooks for all optimizers
#
# - **Call:** `register_optimizer_step_pre_hook(hook)` and `register_optimizer_step_post_hook(hook)`, in
#   `torch.optim.optimizer`
# - **Runs:** around each `step()` of every optimizer: the pre-hook before the optimizer's own, the post-hook after them
# - **Returns:** as the hooks on one optimizer
# - **Trap:** they stay until the kernel ends: use them in a `with` block.

# %%
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

optimizer = torch.optim.SGD([w := leaf(1.0)], lr=0.5)
w.grad = torch.tensor([1.0])
before = register_optimizer_step_pre_hook(lambda optimizer, *_: print("before:", type(optimizer).__name__, w.item()))
after = register_optimizer_step_post_hook(lambda optimizer, *_: print("after: ", type(optimizer).__name__, w.item()))
with before, after:
    optimizer.step()

# %% [markdown]
# ### Optimizer.register_state_dict_pre_hook and register_state_dict_post_hook
#
# - **Call:** `optimizer.register_state_dict_pre_hook(hook)` with `hook(optimizer)`, and `register_state_dict_post_hook(hook)`
#   with `hook(optimizer, state_dict)`
# - **Runs:** before and after `optimizer.state_dict()`
# - **Returns:** the post-hook may return another dict, which takes the place of `state_dict`
# - **Trap:** a module's post-hook must not return anything; an optimizer's may.

# %%
optimizer = torch.optim.SGD([leaf(1.0)], lr=0.5)
optimizer.register_state_dict_pre_hook(lambda optimizer: print("about to save"))
optimizer.register_state_dict_post_hook(lambda optimizer, state: {**state, "epoch": 3})
print(sorted(optimizer.state_dict()))

# %% [markdown]
# ### Optimizer.register_load_state_dict_pre_hook and register_load_state_dict_post_hook
#
# - **Call:** `optimizer.register_load_state_dict_pre_hook(hook)` with `hook(optimizer, state_dict)`, and
#   `register_load_state_dict_post_hook(hook)` with `hook(optimizer)`
# - **Runs:** before and after `optimizer.load_state_dict(state_dict)`
# - **Returns:** the pre-hook may return another dict, which is loaded instead; the post-hook nothing
# - **Trap:** `state_dict` is a shallow copy: adding a key does not reach the caller, writing into a tensor does.

# %%
optimizer = torch.optim.SGD([leaf(1.0)], lr=0.5)
optimizer.register_load_state_dict_pre_hook(lambda optimizer, state: print("epoch", state.pop("epoch")))
optimizer.register_load_state_dict_post_hook(lambda optimizer: print("loaded"))
optimizer.load_state_dict({**optimizer.state_dict(), "epoch": 3})

# %% [markdown] tags=["instructor"]
# **Misconception:** "`hook(module, args)` sees all that the layer gets." **Ask:** "How was the layer called in the second
# line of the cell?" **Answer:** with a keyword argument; without `with_kwargs=True` the hook's `args` would be empty.
#
# **Misconception:** "A hook on `state_dict` returns the new dict." **Ask:** "On a module, or on an optimizer?" **Answer:** a
# module's post-hook changes the dict in place and raises if it returns one; an optimizer's may return one.
#
# **For discussion:** a library registers a global forward hook when it is imported. Who notices, and how? (Every call of
# every module becomes slower, because there is no fast path any more; `list_hooks` of this course shows it.)

# %% [markdown]
# ## The order of a call
#
# One module with a hook of every kind, its weight, its output and an optimizer with hooks too. The cell lists them as they
# run. The hooks of all modules were registered *last*. (Lesson 04 shows the source that makes this order.)

# %% [markdown] tags=["instructor"]
# **On this slide:** Let pairs write down the first and the last line of the list before the cell runs. The full list
# is for looking up: nobody has to learn it.

# %% tags=["setup"]
order = []


def tell(what):
    """A hook of any kind that changes nothing, and writes down when it runs."""
    return lambda *_: order.append(what)


class Telling(Times):
    """Tells when forward runs, and hooks what forward computes."""

    def forward(self, x):
        order.append("forward")
        result = super().forward(x)
        result.register_hook(tell("tensor hook on what forward returned"))
        result.grad_fn.register_prehook(tell("pre-hook on the node of the operation"))
        result.grad_fn.register_hook(tell("hook on the node of the operation"))
        return result


# %% the order of a call
kinds = ("forward_pre_hook", "forward_hook", "full_backward_pre_hook", "full_backward_hook")
layer, x, order[:] = Telling(), leaf(3.0), []
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
steps = ("step_pre_hook", "step_post_hook")
layer.weight.register_hook(tell("tensor hook on the weight"))
layer.weight.register_post_accumulate_grad_hook(tell("post-accumulate hook on the weight"))
x.register_hook(tell("tensor hook on the input"))
handles = [getattr(layer, f"register_{kind}")(tell(f"{kind} of the module")) for kind in kinds]
handles += [getattr(all_modules, f"register_module_{kind}")(tell(f"{kind} of all modules")) for kind in kinds]
handles += [getattr(optimizer, f"register_{kind}")(tell(f"{kind} of the optimizer")) for kind in steps]
output = layer(x)
output.register_hook(tell("tensor hook on the module's output"))
output.backward()
optimizer.step()
for handle in handles:
    handle.remove()
print(*(f"{number:2} {what}" for number, what in enumerate(order, start=1)), sep="\n")

# %% [markdown]
# ## When it does not fire, or fires twice
#
# ### autograd.grad instead of backward
#
# `torch.autograd.grad` returns the gradient and does not touch `.grad`. So the tensor's hook fires, and the
# post-accumulate hook, which waits for `.grad`, does not.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask which of the two hooks waits for `.grad`. The rule behind it finds several of the other
# cases: first ask what a hook waits for, and then whether that ever happens.

# %%
w, ran = leaf(3.0), []
w.register_hook(lambda grad: ran.append("tensor hook"))
w.register_post_accumulate_grad_hook(lambda leaf: ran.append("post-accumulate hook"))
torch.autograd.grad(2 * w, w)
print("autograd.grad:", ran)
ran.clear()
(2 * w).backward()
print("backward:     ", ran)

# %% [markdown]
# ### No gradient required
#
# Forward hooks run whether or not anything requires a gradient. Backward hooks need a graph: under `torch.no_grad()`, or in
# a frozen layer whose input requires no gradient either, there is none.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what has to require a gradient for each kind of hook to run: a parameter, an input or any of
# them. Frozen networks are where people meet this.

# %%
layer, ran = Times(), []
layer.register_forward_hook(lambda *_: ran.append("forward"))
layer.register_full_backward_hook(lambda *_: ran.append("backward"))
with torch.no_grad():
    print("no_grad: requires_grad =", layer(leaf(1.0)).requires_grad, ran)
ran.clear()
layer.requires_grad_(False)
print("frozen:  requires_grad =", layer(torch.ones(1)).requires_grad, ran)

# %% [markdown]
# ### A parametrized weight
#
# A parametrization (also `weight_norm` and `spectral_norm` of `torch.nn.utils.parametrizations`) computes the weight anew
# whenever you write `layer.weight`. A hook on that tensor belongs to a tensor that nobody uses. Put the hook on the parameter
# that stays: `original`, or `original0` and `original1` of `weight_norm`.
#
# The old `weight_norm` and `spectral_norm` of `torch.nn.utils` compute the weight in a forward pre-hook, once in each call. A
# hook on `layer.weight` from before the call does not run there. Put it on `weight_g` and `weight_v`, or on `weight_orig`.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask how many tensors stand behind the name `weight` here, and which of them the optimizer
# changes. The hook sits on the one that is computed anew in every call.


# %%
class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


layer, ran = Times(), []
nn.utils.parametrize.register_parametrization(layer, "weight", Doubled())
layer.weight.register_hook(lambda grad: ran.append("layer.weight"))
layer.parametrizations.weight.original.register_hook(lambda grad: ran.append("original"))
layer(torch.ones(1)).backward()
print("twice the same tensor:", layer.weight is layer.weight, " hooks that ran:", ran)

# %% [markdown]
# ### Keyword arguments and lists
#
# A full backward hook follows the tensors among the *positional* arguments. A tensor that comes by keyword is not among
# them, and a list counts as one argument without a gradient. The hook runs, with `()`
# or `(None,)` as `grad_input`, and PyTorch warns.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask somebody to call a layer with a keyword argument and to guess the length of `args`. The cell
# shows what becomes of a full backward hook on such an input.


# %%
class Sum(nn.Module):
    def forward(self, tensors):
        return sum(tensors)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # "... since no inputs require gradients"
    for layer, args, kwargs in ((Times(), (), {"x": leaf(3.0)}), (Sum(), ([leaf(3.0), leaf(4.0)],), {})):
        with layer.register_full_backward_hook(report):
            layer(*args, **kwargs).backward()

# %% [markdown]
# ### Nested outputs
#
# Of the outputs, a full backward hook follows those that are tensors, or tensors in one tuple. In a tuple in a tuple it sees
# nothing: if backward starts only from there, the hook is not called. If the output is a dict, the hook is never called,
# and PyTorch warns.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask for a layer of PyTorch with a tuple in a tuple: the LSTM. The silent case is the dangerous
# one, so ask how they would notice it.


# %%
class Nested(nn.Module):
    def forward(self, x):
        return 2 * x, (3 * x,)


layer = Nested()
with layer.register_full_backward_hook(report):
    outer, (inner,) = layer(leaf(1.0))
    print("backward from the inner tensor:")
    inner.backward(retain_graph=True)
    print("backward from the outer tensor:")
    outer.backward()

# %% [markdown]
# ### An exception in forward
#
# If `forward` raises, plain forward hooks do not run; those with `always_call=True` do, with `None` for the output. But this
# holds for an `Exception` only. `KeyboardInterrupt` (Ctrl-C, or the stop button of Jupyter) and `SystemExit` do not count as
# one, and no forward hook runs. Whatever has to happen in any case belongs in a `finally` around the call.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what a timer made of a pre-hook and a hook would show after an exception. `always_call=True`
# helps for errors, and not when somebody presses Ctrl-C.


# %%
class Fails(nn.Module):
    def forward(self, error):
        raise error


layer = Fails()
layer.register_forward_hook(lambda module, args, output: print("  plain:", output))
layer.register_forward_hook(lambda module, args, output: print("  always called:", output), always_call=True)
for error in (ValueError(), KeyboardInterrupt()):
    print(type(error).__name__)
    try:
        layer(error)
    except (ValueError, KeyboardInterrupt):
        print("  went on to the caller")

# %% [markdown]
# ### Checkpointing
#
# A checkpointed piece runs again in backward, to compute anew what it did not keep. So its forward hooks run **twice**. With
# `use_reentrant=False`, the repetition stops as soon as backward has what it needs, so a hook at the end of the piece may
# run only once. Where a hook counts, or keeps outputs, a part of what it has is the repetition. Full backward hooks run once.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask how often the forward hook should run, and why it is more than once. Lesson 02 has the
# reason: backward computes the piece again.

# %%
for use_reentrant in (False, True):
    piece, ran = nn.Sequential(Times(), Times()), []
    for name, layer in (("first", piece[0]), ("second", piece[1])):
        layer.register_forward_hook(lambda *_, name=name: ran.append(name))
    piece[0].register_full_backward_hook(lambda *_: ran.append("backward hook"))
    output = checkpoint(piece, leaf(3.0), use_reentrant=use_reentrant)
    ran.append("| backward begins:")
    output.backward()
    print(f"use_reentrant={use_reentrant}:", *ran)

# %% [markdown]
# ### torch.func
#
# `grad` of `torch.func` does not go through the nodes that a full backward hook needs: it raises. `vmap` alone does not
# raise, and does not call the hook either. Forward hooks work; what they see under `vmap` is one sample,
# although they run once for all of them. A tensor hook can be registered inside `grad`. Inside `vmap` this raises, because no
# tensor requires a gradient there. One that was registered outside sees the gradient of the whole batch.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what is special about the tensors inside such a function. Under `vmap` one call stands for
# many samples, and under `grad` the nodes that a full hook needs are not there.

# %%
layer, batch, ran = Times(), torch.ones(3, 1), []
with layer.register_forward_hook(lambda module, args, output: print("forward hook sees", tuple(output.shape))):
    print("vmap:", torch.func.vmap(layer)(batch).flatten().tolist())
layer.register_full_backward_hook(lambda *_: ran.append("full hook"))
torch.func.vmap(layer)(batch.clone().requires_grad_()).sum().backward()
print("full hook under vmap:", ran)
try:
    torch.func.grad(lambda x: layer(x).sum())(torch.ones(1))
except RuntimeError as error:
    print("full hook under grad:", str(error).split(" with ")[0])

# %% [markdown]
# ### torch.compile
#
# `torch.compile` translates a model when it is first called, with the hooks of that moment. Of the hooks that come later,
# some run and some are **silently skipped**. `backend="eager"` needs no C compiler, and treats hooks as any other backend.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask when a hook has to be there to be compiled in. Whoever adds one afterwards gets
# neither a call nor a warning; resetting the compiler is the cure to show.


# %%
def late_calls(place, hooked_before):
    """How often a late hook runs in the next call, and in the one after `torch.compiler.reset()`."""
    model, ran = Chain(), []
    if hooked_before:
        model.get_submodule(place).register_forward_hook(lambda *_: None)
    compiled = torch.compile(model, backend="eager")
    compiled(torch.ones(1))
    model.get_submodule(place).register_forward_hook(lambda *_: ran.append(place))
    compiled(torch.ones(1))
    at_once = len(ran)
    torch.compiler.reset()  # throws all compiled code away, so that the next call compiles again
    compiled(torch.ones(1))
    torch.compiler.reset()
    return at_once, len(ran) - at_once


# %%
try:
    for place, hooked_before in (("first", False), ("first", True), ("", False)):
        at_once, after_reset = late_calls(place, hooked_before)
        what = f"hook on {place or 'the model'}{', which had one before' * hooked_before}"
        print(f"{what}: calls at once: {at_once}, after a reset: {after_reset}")
except RuntimeError as error:  # torch.compile does not exist for every Python and system
    print("torch.compile does not work here:", str(error).split(".")[0])

# %% [markdown]
# So a late hook on a layer is skipped if the layer had none when the model was compiled. A late hook on the model itself
# runs, unless the model is of one of PyTorch's own classes, such as `nn.Sequential`. A tensor hook on a parameter runs.
# There are four cures: register your hooks before the first compiled call; call `torch.compiler.reset()`; call the model
# inside, `compiled._orig_mod`; or let the compiled code look for new hooks in each call, with
# `torch._dynamo.config.skip_nnmodule_hook_guards = False` before the first one. This course's `record` warns you when it
# has missed something:

# %%
from course_utils.hooks.record import record

model = Chain()
try:
    compiled = torch.compile(model, backend="eager")
    compiled(torch.ones(1))
    with warnings.catch_warnings(record=True) as caught, record(compiled, "first"):
        warnings.simplefilter("always")
        compiled(torch.ones(1))
    print(*(str(warning.message).split(":")[0] for warning in caught))
except RuntimeError as error:
    print("torch.compile does not work here:", str(error).split(".")[0])
torch.compiler.reset()

# %% [markdown]
# ### Copies
#
# `copy.deepcopy` is the usual way to keep the best model of a training.

# %% [markdown] tags=["sealed"]
# `copy.deepcopy(layer)`, where layer has a forward hook. Does the copy have it too?
#
# - [x] yes: The hooks are copied with the module, and both copies call the same function.
# - [ ] no: The tables of hooks are attributes of the module, and deepcopy copies all attributes.
#   > Run `'_forward_hooks' in vars(layer)`. What does `deepcopy` do with everything that is in `vars(layer)`?
# - [ ] it raises: Functions can be deep-copied: the copy refers to the same function.
#   > Try `f = lambda: 1` and then `copy.deepcopy(f) is f`. What do you get?
#
# The copy has the hook, both call the *same* function, and the handle knows the original only: after
# `handle.remove()` the layer is free of it, and the copy is not. Remove hooks before you copy.

# %% tags=["predict"]
predict("hooks_and_deepcopy")

# %%
layer, callers = Times(), []
handle = layer.register_forward_hook(lambda module, args, output: callers.append(module))
twin = copy.deepcopy(layer)
handle.remove()
layer(torch.ones(1))
twin(torch.ones(1))
print("hooks on the layer and on its copy:", count_hooks(layer).total(), count_hooks(twin).total())
print("the hook was called by the layer:", layer in callers, " and by its copy:", twin in callers)

# %% tags=["why"]
why("hooks_and_deepcopy")

# %% [markdown]
# That was a lambda on a module. An object with `__call__` is copied with everything that it holds, and a hook on a *tensor*
# is not copied:


# %%
class Keep:
    def __init__(self):
        self.outputs = []

    def __call__(self, module, args, output):
        self.outputs.append(output.item())


layer, keep, ran = Times(), Keep(), []
layer.register_forward_hook(keep)
layer.weight.register_hook(lambda grad: ran.append("tensor hook"))
copy.deepcopy(layer)(torch.ones(1)).backward()
print("kept by the object that you hold:", keep.outputs, " tensor hooks that ran:", ran)

# %% [markdown]
# ### Saving a whole model
#
# `torch.save(model, file)` pickles the hooks too, and a lambda, or a function in a function, cannot be pickled.
# `model.state_dict()` has no hooks in it. Save that, or remove the hooks first.

# %%
layer = Times()
handle = layer.register_forward_hook(lambda *_: None)
for what, value in (("the model", layer), ("its state_dict", layer.state_dict())):
    try:
        torch.save(value, io.BytesIO())
        print(f"{what} was saved")
    except Exception as error:  # pickle's error or an AttributeError, by the version of Python
        print(f"{what} cannot be saved: {'pickle' in str(error)}")

# %% [markdown] tags=["instructor"]
# **Misconception:** "Removing the hook from my model also removes it from the copy that I checkpointed." **Ask:** "Whose
# table does the handle know?" **Answer:** the original's. Remove hooks before you copy.
#
# **Misconception:** "A compiled model calls my hooks." **Ask:** "When was it compiled, and which hooks were there then?"
# **Expect:** "It would warn." **Then show:** 0 calls, no warning; after a reset, 1.
#
# **Misconception:** "`always_call=True` is a `finally`." **Ask:** "What does the cell print for `KeyboardInterrupt`?"
# **Answer:** only that the exception went on to the caller; the hook did not run.
#
# **For discussion:** which of these surprises would a test with `no_hooks_left` have found? (Forgotten handles. Not the
# copy, which is another model, and not the compiled one, which does not have one hook too many but one call too few.)

# %% [markdown]
# ### Every hook in many situations
#
# For this table, every hook was run in every situation, each time by a program of some ten lines. Three situations come
# first, and below them are folds with all of them. On the web site of the course each cell leads to its program.

# %% [markdown] tags=["instructor"]
# **On this slide:** Cover the table, name a hook and a situation, and let the room say how often the hook runs.


# %% tags=["setup"]
def render(situations):
    """The table of a few situations, which scrolls in a frame of its own on a narrow page."""
    frame = '<div style="overflow-x: auto" role="region" aria-label="How often each hook runs" tabindex="0">{}</div>'
    return frame.format(render_matrix(load_matrix(), situations))


def render_fold(situations):
    """The same below a fold."""
    return f"<details><summary>{' · '.join(situations)}</summary>{render(situations)}</details>"


# %% tags=["reference"]
HTML(render(["forward and backward", "layer.forward called", "checkpoint"]))

# %% tags=["reference"]
situations = list(read_programs().situations)
HTML("".join(render_fold(situations[first : first + 3]) for first in range(0, len(situations), 3)))

# %% [markdown]
# `write_proof` gives the program of any cell. Here is the one for a forward hook under checkpointing, which runs twice:

# %%
print(write_proof("forward hook", "checkpoint"))

# %% [markdown]
# The same programs were run with older versions of torch. This is what changed since then:

# %%
for older in load_matrices()[1:]:
    print(render_changes(older))

# %% [markdown]
# ## Several devices and processes
#
# ### DataParallel
#
# With two or more devices, `nn.DataParallel` makes a *replica* of the model for each of them in every call. The replica
# shares the hooks, so a hook runs once per device, in several threads. Its `module` is the replica, which is gone after the call, together with whatever
# the hook stored on it. The method that makes replicas also works on the CPU.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask where the hook's notes are after the call. They are on a replica that is gone; a list outside
# of the module would still have them.

# %%
layer = nn.ReLU()
layer.register_forward_hook(lambda module, args, output: setattr(module, "last", output.item()))
replica = layer._replicate_for_data_parallel()
replica(torch.ones(1))
print("on the replica:", hasattr(replica, "last"), " on the layer:", hasattr(layer, "last"))

# %% [markdown]
# ### DistributedDataParallel
#
# There is one process per device, each with its own model; after backward all have the mean gradient. Two processes on this
# computer show what a hook sees. The gradient is 2 in the first process and 6 in the second, and this is what each of them
# runs, once without and once with a communication hook:

# %% [markdown] tags=["instructor"]
# **On this slide:** Let them compare the numbers of the two processes with the mean. A hook on a parameter sees the
# gradient of its own process, before the exchange.

# %%
from course_utils.lessons import two_processes

print(inspect.getsource(two_processes.train))

# %%
try:
    seen = two_processes.run_two_processes()
    for process, (plain, _) in enumerate(seen):
        print(f"process {process}:", plain)
except (RuntimeError, OSError) as error:  # no gloo, or no processes of one's own, as in some browsers
    print("Two processes do not work here:", error)

# %% [markdown]
# Tensor hooks and post-accumulate hooks see the **local** gradient, because the processes exchange theirs later, in whole
# buckets. The mean is in `.grad` only after `backward()` has ended. So clip, log and step after backward, not in a hook.
#
# ### DistributedDataParallel.register_comm_hook
#
# - **Call:** `model.register_comm_hook(state, hook)` with `hook(state, bucket)`
# - **Runs:** in backward, for each bucket of gradients, in the place of the all-reduce
# - **Returns:** a `torch.futures.Future` with the bucket's new content
# - **Trap:** the hook *is* the exchange. This one, in the same two processes, exchanges nothing, so the models drift apart.

# %%
print(inspect.getsource(two_processes.keep_local))
try:
    for process, (_, local) in enumerate(seen):
        print(f"process {process}:", local)
except NameError:
    print("Two processes do not work here.")

# %% [markdown]
# `torch.distributed.algorithms.ddp_comm_hooks` has ready ones, such as compression to half precision, which
# `register_ddp_comm_hook` registers.
#
# ### FullyShardedDataParallel
#
# There is no cell for this one: it is made for several accelerators. Each process keeps only a slice of every parameter.
# FSDP collects whole parameters just before a module's forward and backward, and gives each process its slice of the mean
# gradients afterwards. It uses forward and backward hooks of its own for this. For your hooks, this means:
#
# - Module hooks run, with whole activations, once in each process.
# - A parameter that you look at outside its module's forward is a slice, or empty.
# - A hook on a parameter that you registered *before* wrapping may sit on a tensor that is no longer used: register later.
# - `FullyShardedDataParallel.register_comm_hook` replaces the exchange, as `register_comm_hook` above.
#
# ## Hooks that are not run here
#
# The PyTorch that built this page has these as well. The first two need a GPU, the third several processes with one each, and
# the last has nothing to do with tensors.
#
# | Where | Methods | What for |
# |---|---|---|
# | `torch.cuda.CUDAGraph` | `CUDAGraph.register_destroy_callback`, `CUDAGraph.retain_object`, `register_capture_start_hook`, `register_capture_end_hook`, `register_post_instantiate_hook`, `register_replay_start_hook`, `register_replay_end_hook` | the life of one CUDA graph |
# | `torch.cuda.graphs` | `register_graph_capture_start_hook`, `register_graph_capture_end_hook`, `register_graph_instantiate_hook`, `register_graph_replay_start_hook`, `register_graph_replay_end_hook`, `register_graph_destroy_hook` | the same for all CUDA graphs |
# | `torch.distributed.fsdp.FSDPModule` | `set_all_reduce_hook` | to change the sum of the gradients, or to look at it |
# | `torch.package.PackageExporter` | `register_extern_hook`, `register_mock_hook`, `register_intern_hook` | what happens to each module that is packed |
#
# A remote module (`torch.distributed.nn.RemoteModule`) takes no hooks from here: they belong on the module that it stands
# for, in the other process.

# %% [markdown] tags=["instructor"]
# **On this slide:** Leave this out in the room. It is here so that a search in the index finds every name that
# PyTorch has.

# %% [markdown]
# ## History: the legacy backward hook
#
# Before PyTorch 1.8 modules had one backward hook, `register_backward_hook`. Many tutorials still use it. It still exists,
# and usually warns. Here it sits on the small network of lesson 03: `fc1`, `relu`, `fc2`. Full hooks gave `fc2` a
# `grad_input` of ([1, 2, 3, 4]).

# %% [markdown] tags=["sealed"]
# the legacy backward hook on fc2, a Linear layer with one input: how many entries has its grad_input?
#
# - [ ] 1: This would be right for a full backward hook, which has one entry per input of forward.
#   > The hook sits on the node of the operation `addmm`. Count the arrows to earlier nodes: which tensors went in?
# - [ ] 2: The layer has two parameters, but the legacy hook does not count those either.
#   > Weight and bias make two. Without which other gradient could backward not go on to `fc1`?
# - [x] 3: It shows the inputs of the last *operation* (addmm): bias, input and transposed weight.
#
# Three entries for `fc2`: the gradients of its bias, of its input, and of its weight, transposed to (4, 1).
# Such a hook does not know about modules. It sits on the **node** of the autograd graph that made the output, and
# sees the inputs of that operation, `addmm(bias, input, weightᵀ)`.
#
# `relu` is an operation with one input, so it has one entry, and nobody notices the difference there. PyTorch does
# not even warn there, because a ReLU on the result of another layer is a single operation on the module's input.

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

# %% tags=["why"]
why("legacy_entries")

# %% [markdown]
# ### Module.register_backward_hook
#
# - **Call:** `module.register_backward_hook(hook)` with `hook(module, grad_input, grad_output)`: deprecated; for all modules
#   `register_module_backward_hook(hook)`
# - **Runs:** in backward, at the node of the *last operation* in `forward`
# - **Returns:** a tuple replaces the gradients of that operation's inputs
# - **Trap:** `grad_input` does not belong to the module's inputs. Use the full hook; the two cannot be on one module.
#
# On a **whole model** it sees the last operation and nothing else: these are the entries of `fc2` again, and the gradient of
# the model's input, [22, 26, 30], is not among them. A hook on the node itself gets the same.

# %%
net, x = SmallNet(), torch.ones(1, 3, requires_grad=True)
print(*backward_with_legacy_hooks({"the model": net}, lambda: net(x)), sep="\n")
output = net.fc2(torch.tensor([[7.0, 0.0, 27.0, 0.0]], requires_grad=True))
with output.grad_fn.register_hook(lambda grad_inputs, grad_outputs: print(*show(grad_inputs), sep="\n    ")):
    print("the node:", output.grad_fn.name(), end="\n    ")
    output.backward()

# %% [markdown]
# Each operation has its own entries. For a convolution, they are input, weight and bias. So `grad_input[0]` means another
# thing for each kind of layer, and a module with several operations reports a part of its own work:


# %%
def print_entry_shapes(module, grad_input, grad_output):
    print(f"{type(module).__name__}: entries {[tuple(grad.shape) for grad in grad_input]}")


for layer, batch in ((nn.Linear(2, 3), torch.ones(5, 2)), (nn.Conv2d(2, 3, 2), torch.ones(5, 2, 4, 4))):
    with warnings.catch_warnings(), layer.register_backward_hook(print_entry_shapes):
        warnings.simplefilter("ignore")  # the same warning as above
        layer(batch.requires_grad_()).sum().backward()


# %%
class TwoOperations(nn.Module):
    def forward(self, x):
        return (2 * x) * 3


for register in ("register_backward_hook", "register_full_backward_hook"):
    layer = TwoOperations()
    with warnings.catch_warnings(), getattr(layer, register)(lambda module, into, out: print(register, show(into))):
        warnings.simplefilter("ignore")
        layer(leaf(1.0)).backward()

# %% [markdown]
# The form for all modules, `register_module_backward_hook`, has one more trap: in a program in which a *full* global hook was
# ever registered, as above, it is refused, even if that hook is gone.

# %%
try:
    all_modules.register_module_backward_hook(lambda *_: None).remove()
except RuntimeError as error:
    print(str(error).split(". ")[0])

# %% [markdown]
# ## When something else is the better tool
#
# A hook belongs to a tensor, a node or a module. Where none of these is at hand, or where you want to change the network
# itself, there is something better.
#
# | You want | Take |
# |---|---|
# | to see or change every call of a *function* of PyTorch, `F.relu` as well as `+` | `TorchFunctionMode` |
# | to see or change every *operation* that really runs, backward included | `TorchDispatchMode` |
# | another network: an operation replaced, removed or added | `torch.fx` |
# | the outputs of some layers, once and for all, as a new module | `create_feature_extractor` |
# | one layer, now, and without a trace afterwards | a hook |

# %% [markdown] tags=["instructor"]
# **On this slide:** Name three tasks: count all additions, replace every ReLU, keep two maps. Let the room choose the
# tool for each, and say why a hook would be the wrong one.

# %% [markdown]
# ### TorchFunctionMode
#
# Its method gets each call of a function of PyTorch's Python interface in the block, as you wrote it, and may change it.

# %%
from torch.overrides import TorchFunctionMode, resolve_name


class TanhForRelu(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        print(resolve_name(function))
        return torch.tanh(*args) if function is nn.functional.relu else function(*args, **(kwargs or {}))


with TanhForRelu():
    y = nn.functional.relu(torch.tensor(1.0) * 2)
print(round(y.item(), 3))

# %% [markdown]
# ### TorchDispatchMode
#
# Its method gets what is left when autograd has done its part: the operations that compute, in forward *and* in backward.
# That is the tool for counting them, for measuring memory, or for finding the operation that made the first NaN.

# %%
from torch.utils._python_dispatch import TorchDispatchMode


class Operations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function).split(".")[1])
        return function(*args, **(kwargs or {}))


layer, x = Times(), leaf(3.0)
with Operations() as forward:
    y = layer(x).relu()
with Operations() as backward:
    y.backward()
print("forward: ", [name for name in forward.names if name != "detach"])
print("backward:", "mul" in backward.names, "threshold_backward" in backward.names)

# %% [markdown]
# ### torch.fx
#
# `symbolic_trace` writes down what `forward` does as a graph that you can edit, and makes Python code of it again. The new
# network uses the same layers of `torch.nn`, with the hooks on them. Modules of your own are taken apart, so their hooks run
# at most while tracing. `symbolic_trace` cannot follow an `if` that depends on a tensor's values. Here
# `F.relu` becomes `torch.neg`: 2 · (2 + 1) = 6 becomes 2 · (-2 + 1) = -2.

# %%
traced = torch.fx.symbolic_trace(Chain())
for node in traced.graph.nodes:
    if node.target is nn.functional.relu:
        node.target, node.kwargs = torch.neg, {}
traced.recompile()
print("before:", Chain()(torch.ones(1)).item(), " after:", traced(torch.ones(1)).item())

# %% [markdown]
# ### create_feature_extractor
#
# torchvision's `create_feature_extractor` is built on `torch.fx`: it returns a module whose output is a dict of the results
# you named, functions included, and which does not compute what comes after the last of them.

# %%
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

names, _ = get_graph_node_names(Chain())
print(names)
extractor = create_feature_extractor(Chain(), ["first", "relu"])
print({name: value.item() for name, value in extractor(torch.ones(1)).items()})

# %% [markdown] tags=["instructor"]
# **Misconception:** "With DDP my hook sees the mean gradient." **Ask:** "When do the processes exchange their gradients?"
# **Answer:** bucket by bucket, after the hooks. Both hooks see 2 and 6; 4 is in `.grad` afterwards.
#
# **Misconception:** "`grad_input[0]` is the gradient of the input" in old code. **Ask:** "For Linear, what was entry 0 of the
# legacy hook?" **Answer:** the bias. For a convolution it was the input: the same line of code means another thing.
#
# **For discussion:** you want to know which ReLU of a stranger's network made the first NaN, and half of them are functions.
# Which tool? (A `TorchDispatchMode`, or a `TorchFunctionMode`; a hook sees modules only.)

# %% [markdown]
# ## Exercises: six puzzles
#
# Each puzzle is solved by **one line** that returns what registering returns. Replace the `...`, run the cell, and run the
# check below it. If something is wrong, the check draws side by side what was wanted and what came. The puzzles go from
# easy to hard. `hint(make_twelve)` helps with the first one, and the reference above has all that you need.

# %% [markdown] tags=["instructor"]
# **On this slide:** Pairs take the first six, and the rule is that they write the line on paper before they type it.
# Whoever is done early explains one of them to somebody else.

# %% [markdown]
# ### Puzzle 1

# %% tags=["setup"]
from course_utils.lessons.lesson_09 import (
    block_gradient,
    clear_after_step,
    first_arrival,
    forget_gradient,
    freeze_weight,
    halve_output,
    make_twelve,
    note_failures,
    pretend_saved,
    save_as_kernel,
    twelve_from_afar,
    zero_second_factor,
)

# %% [markdown] tags=["sealed"]
# 1 point
# 1. A tensor hook that returns something replaces the gradient. What has the shape of `grad`, and 12 everywhere?
# 2. `torch.full_like(grad, 12)` is a new tensor with the shape and dtype of `grad`.


# %% tags=["answer"]
def make_twelve(w):
    """Let every finite gradient that reaches the leaf `w` be 12 everywhere; return the handle."""
    ...


# %% tags=["check"]
check(make_twelve)

# %% [markdown]
# ### Puzzle 2

# %% [markdown] tags=["sealed"]
# 1 point
# 1. What a forward hook returns takes the place of the output.
# 2. `layer.register_forward_hook(lambda module, args, output: ...)`; make a new tensor of `output`.


# %% tags=["answer"]
def halve_output(layer):
    """Let each call of `layer` give half of what it gave before; return the handle."""
    ...


# %% tags=["check"]
check(halve_output)

# %% [markdown]
# ### Puzzle 3

# %% [markdown] tags=["sealed"]
# 1 point
# 1. One kind of hook runs when the gradient has been added to `.grad`. It gets the leaf.
# 2. A lambda cannot hold `leaf.grad = None`; `setattr(leaf, 'grad', None)` is an expression.


# %% tags=["answer"]
def forget_gradient(leaf):
    """Let `leaf.grad` be None again as soon as a backward has completed it; return the handle.

    Hooks on the gradient of `leaf`, and all other gradients, are as before.
    """
    ...


# %% tags=["check"]
check(forget_gradient)

# %% [markdown]
# ### Puzzle 4

# %% [markdown] tags=["sealed"]
# 1 point
# 1. The weight of a layer is a tensor like any other, and tensors have hooks.
# 2. A hook is a function from a gradient to a gradient. PyTorch has one that makes zeros of anything.


# %% tags=["answer"]
def freeze_weight(layer):
    """Let `layer.weight` get 0 for a finite gradient, and everything else what it got before; return the handle."""
    ...


# %% tags=["check"]
check(freeze_weight)

# %% [markdown]
# ### Puzzle 5

# %% [markdown] tags=["sealed"]
# 1 point
# 1. Which hook of a module replaces what the layer passes on, and not what it receives?
# 2. `layer.register_full_backward_hook(hook)`; what `hook(module, grad_input, grad_output)` returns is a tuple.


# %% tags=["answer"]
def block_gradient(layer):
    """Let `layer` pass the gradient 0 on to its one input, and learn as before; return the handle.

    The input requires a gradient.
    """
    ...


# %% tags=["check"]
check(block_gradient)

# %% [markdown]
# ### Puzzle 6

# %% [markdown] tags=["sealed"]
# 1 point
# 1. Which hook also runs if `forward` raised, and what does it get for the output then?
# 2. `register_forward_hook(hook, always_call=True)`; in the hook, `output is None` tells.


# %% tags=["answer"]
def note_failures(layer, notes):
    """After each call of `layer`, append True to the list `notes` if forward raised a ValueError, and
    else False; return the handle.

    The layer raises nothing else. It returns one tensor, which stays as it is.
    """
    ...


# %% tags=["check"]
check(note_failures)

# %% [markdown] tags=["instructor"]
# **Misconception:** "A hook needs a function of mine." (Puzzle 4) **Ask:** "What does a hook get, and what does it return?
# Which function of PyTorch does just that?" **Answer:** a gradient in, a gradient out: `torch.zeros_like`.
#
# **Misconception:** "To block the gradient I return zeros, wherever." (Puzzles 4 and 5) **Ask:** "Who else lives from this
# gradient?" **Then show:** the tables side by side: which of the three gradients differs?

# %% [markdown]
# ## Exercises: break this rule
#
# Here are two sentences of this course, and further down three more. Each of them is true of the program of its lesson,
# and too wide in general. Write the counterexample. The check runs the lesson's program and yours, and tests whether the
# rule holds in each.

# %% [markdown] tags=["instructor"]
# **On this slide:** Say what is new: here you make a correct program fail. Ask which rule of the course they
# trust least, and let them start with it.

# %% [markdown]
# ### Rule 1
#
# > Backward writes their gradients into `.grad`
#
# says lesson 01 of the leaves.

# %% tags=["setup"]
from course_utils.lessons.lesson_09 import (
    leaf_without_gradient,
    lost_in_the_copy,
    out_of_order,
    pass_on_twice,
    stop_unheard,
)

# %% [markdown] tags=["sealed"]
# 1 point
# 1. `backward` has arguments. One of them says for which tensors a gradient is wanted.
# 2. `y.backward(inputs=[...])` computes what these tensors need, and nothing else.


# %% tags=["answer"]
def leaf_without_gradient(w, x):
    """Compute y = w * x, go backward from it once so that `x.grad` is there and nothing was ever added to
    `w.grad`, and return y.

    `w` and `x` are leaves of one number that require a gradient, and `w` is in the graph of y. Your backward
    frees that graph, as usual.
    """
    ...


# %% tags=["check"]
check(leaf_without_gradient)

# %% [markdown]
# ### Rule 2
#
# > Hooks on one tensor run in the order of their registration
#
# says lesson 01.

# %% [markdown] tags=["sealed"]
# 1 point
# 1. The rule holds among hooks of one kind. A leaf can have hooks of two kinds.
# 2. A post-accumulate hook runs after all tensor hooks, whenever it was registered.


# %% tags=["answer"]
def out_of_order(w, first, second):
    """Register the function `first` as a hook on the leaf `w`, then `second` as another one, so that `second`
    runs before `first`; return the two handles, in the order in which you registered.

    Both functions take whatever they are given, and return None.
    """
    ...


# %% tags=["check"]
check(out_of_order)

# %% [markdown] tags=["instructor"]
# **Misconception:** "A counterexample shows that the lesson is wrong." **Ask:** "What does the rule say about the program of
# the lesson?" **Answer:** the truth. The rule lacks a condition: say it with the condition, in one sentence.
#
# **Misconception:** "`w.grad = None` afterwards is also a counterexample." (Rule 1) **Ask:** "Did backward add something to
# `w.grad`?" **Answer:** yes, and it was thrown away; the check counts what was added.

# %% [markdown] tags=["more"]
# ## More: six harder puzzles
#
# Each of them is one line, too. Some ask for a hook that no lesson before this one has used.

# %% [markdown]
# ### Puzzle 7

# %% [markdown] tags=["sealed"]
# 1 point
# 1. An optimizer has two hooks around its step. Which one, and with what is it called?
# 2. `optimizer.register_step_post_hook(lambda optimizer, args, kwargs: ...)`


# %% tags=["answer"]
def clear_after_step(optimizer):
    """Let `optimizer` set all gradients to None after each of its steps; return the handle."""
    ...


# %% tags=["check"]
check(clear_after_step)

# %% [markdown]
# ### Puzzle 8

# %% [markdown] tags=["sealed"]
# 1 point
# 1. One hook can watch several tensors, and need not wait for all of them.
# 2. `graph.register_multi_grad_hook(tensors, hook, mode="any")` calls `hook(grad)` once per backward.


# %% tags=["answer"]
def first_arrival(tensors, seen):
    """In each backward, append a copy of the first gradient that arrives at any of `tensors` to the list
    `seen`, and no other; return the handle.
    """
    ...


# %% tags=["check"]
check(first_arrival)

# %% [markdown]
# ### Puzzle 9

# %% [markdown] tags=["sealed"]
# 1 point
# 1. Which hook runs when `state_dict()` has its entries, and may change them in place?
# 2. The hook gets `(module, state_dict, prefix, local_metadata)`. `dict.pop(key)` takes an entry out.


# %% tags=["answer"]
def save_as_kernel(layer):
    """Let the weight of `layer` stand under the name "kernel" in every state_dict, the layer's own and that of
    any model with the layer in it; return the handle.
    """
    ...


# %% tags=["check"]
check(save_as_kernel)

# %% [markdown]
# ### Puzzle 10

# %% [markdown] tags=["sealed"]
# 1 point
# 1. You have only the product. Which object knows both factors, and has hooks?
# 2. `product.grad_fn` is the node. Its hook gets `(grad_inputs, grad_outputs)`: one entry per factor.


# %% tags=["answer"]
def zero_second_factor(product):
    """`product` is `a * b`. In backward, let `a` get its gradient and `b` zeros; return the handle.

    You have neither `a` nor `b`, only `product`. All gradients are finite.
    """
    ...


# %% tags=["check"]
check(zero_second_factor)

# %% [markdown]
# ### Puzzle 11

# %% [markdown] tags=["sealed"]
# 1 point
# 1. The node of `y` knows the nodes before it: `y.grad_fn.next_functions`.
# 2. The node of a leaf is an `AccumulateGrad`, and its attribute `variable` is the leaf.


# %% tags=["answer"]
def twelve_from_afar(y):
    """`y` was computed by one operation from one leaf, and perhaps from tensors that require no gradient. Let
    every gradient that reaches this leaf, on whatever path, be 12 everywhere; return the handle.

    You do not have the leaf, only `y`.
    """
    ...


# %% tags=["check"]
check(twelve_from_afar)

# %% [markdown]
# ### Puzzle 12

# %% [markdown] tags=["sealed"]
# 1 point
# 1. Backward reads what forward has saved. Who may put something else there?
# 2. `graph.saved_tensors_hooks(pack, unpack)` is a context manager; `unpack` gets what `pack` returned.


# %% tags=["answer"]
def pretend_saved(value):
    """Return a context manager: whatever forward saves in its block, backward finds tensors full of `value`
    instead. The values that forward computes stay right, and nothing is kept in memory for longer than usual.
    """
    ...


# %% tags=["check"]
check(pretend_saved)

# %% [markdown] tags=["instructor"]
# **For discussion:** in puzzle 12 forward is right and backward is wrong. Who would notice, and how? (A check with finite
# differences, `torch.autograd.gradcheck`, compares backward with forward.)

# %% [markdown] tags=["more"]
# ## More: three more rules
#
# The check is the same: the rule has to hold in the program of its lesson, and to fail in yours.

# %% [markdown]
# ### Rule 3
#
# > The hooks are copied with the module
#
# says the prediction about deepcopy, above.

# %% [markdown] tags=["sealed"]
# 1 point
# 1. The tables of a module are copied with it. Which hooks of a layer are in no table of the module?
# 2. A hook on a parameter sits on the tensor, and deepcopy makes new parameters without hooks.


# %% tags=["answer"]
def lost_in_the_copy(layer, hook):
    """Register `hook` so that it runs in a backward through a call of `layer`, and not in one through a call of
    a deep copy of `layer`; return the handle.

    `hook` takes whatever it is given, and returns None.
    """
    ...


# %% tags=["check"]
check(lost_in_the_copy)

# %% [markdown]
# ### Rule 4
#
# > The kept gradient is the one that is passed on
#
# says lesson 02 of `retain_grad()`.

# %% [markdown] tags=["sealed"]
# 1 point
# 1. After the tensor's hooks, and after what `retain_grad()` keeps, comes the node.
# 2. `y.grad_fn.register_prehook(lambda grad_outputs: ...)` returns a tuple.


# %% tags=["answer"]
def pass_on_twice(y):
    """`y.retain_grad()` was called, and `y` may be one of several results of an operation. Let backward pass on
    twice of what it keeps in `y.grad`, and keep there what arrived; return the handle.
    """
    ...


# %% tags=["check"]
check(pass_on_twice)

# %% [markdown]
# ### Rule 5
#
# > `always_call=True` hooks run when the call raises
#
# says lesson 04.

# %% [markdown] tags=["sealed"]
# 1 point
# 1. torch catches what forward raises with `except Exception`. What can be raised and is not an `Exception`?
# 2. `KeyboardInterrupt`, `SystemExit`, or a class of your own that is derived from `BaseException`.


# %% tags=["answer"]
def stop_unheard(limit):
    """Return a function to be the forward of a layer.

    It gives back its input, a tensor with at least one number and without nan. Where a
    number in it is above `limit`, it raises, and a hook with `always_call=True` does not
    run.
    """
    ...


# %% tags=["check"]
check(stop_unheard)

# %% [markdown] tags=["instructor"]
# **For discussion:** let each pair put the missing condition into one of the five sentences. (1: of the leaves that it is
# asked for. 2: hooks of one kind. 3: those in a table of the module. 4: by the tensor, its node comes later. 5: an
# `Exception`.)

# %% [markdown] tags=["more"]
# ## More: Backward and its graph
#
# These are not registered on a tensor or a module, and whoever works with hooks meets them soon.

# %% [markdown]
# ### queue_callback
#
# - **Call:** `graph.queue_callback(callback)` with `callback()`: from inside a hook, or from the `backward` of a function of
#   your own
# - **Runs:** once, when this backward pass has ended and all gradients are there; a callback that is queued twice runs twice
# - **Returns:** nothing; what the callback returns is not used
# - **Trap:** outside of a backward pass it raises. If the backward pass raises, the callback does not run. PyTorch 2.14 has
#   it only as a method of its engine, which is private.

# %%
engine = torch.autograd.Variable._execution_engine
queue_callback = getattr(graph, "queue_callback", engine.queue_callback)
w = leaf(3.0)


def when_done(grad):
    queue_callback(lambda: print("at the end: w.grad =", w.grad.item()))
    print("in the hook: w.grad =", w.grad)


w.register_hook(when_done)
(2 * w).backward()

# %% [markdown]
# ### backward with inputs
#
# - **Call:** `loss.backward(inputs=[tensor, …])`
# - **Runs:** it is not a hook: backward computes what these tensors need, and adds to their `.grad` and to no other
# - **Returns:** nothing
# - **Trap:** hooks beside the path do not run. With the weight as the only input, a full backward hook does not run, because
#   the gradient of the module's own input is not computed.

# %%
layer, x, ran = Times(), leaf(3.0), []
layer.weight.register_hook(lambda grad: ran.append("hook on the weight"))
layer.register_full_backward_hook(lambda *_: ran.append("full backward hook"))
for name, tensor in (("the weight", layer.weight), ("x", x)):
    ran.clear()
    layer(x).backward(inputs=[tensor])
    print(f"inputs = [{name}]: {ran}")

# %% [markdown]
# ### get_gradient_edge
#
# - **Call:** `edge = graph.get_gradient_edge(tensor)`: a `GradientEdge`, which has a `node` and an `output_nr`
# - **Runs:** it is not a hook: it names a place in the graph, and `autograd.grad` and `backward(inputs=…)` take it in the place
#   of the tensor
# - **Returns:** the edge, which keeps the graph in memory, and not the numbers of the tensor
# - **Trap:** an operation in place moves the tensor to another place of the graph. The edge stays where it was.

# %%
x = leaf(3.0)
h = 2 * x
edge = graph.get_gradient_edge(h)
h.mul_(10)
y = 1 * h
for name, place in (("the edge", edge), ("the tensor", h)):
    print(f"the gradient at {name}:", torch.autograd.grad(y, place, retain_graph=True)[0].item())

# %% [markdown]
# ### allow_mutation_on_saved_tensors
#
# - **Call:** `with graph.allow_mutation_on_saved_tensors():`
# - **Runs:** a ready pair of hooks on saved tensors, together with a mode that makes a copy of a saved tensor before something
#   writes into it
# - **Returns:** nothing that you need
# - **Trap:** backward has to run inside the block, too. Outside of it, PyTorch raises.

# %%
for allowed in (False, True):
    x = leaf(3.0)
    try:
        with graph.allow_mutation_on_saved_tensors() if allowed else contextlib.nullcontext():
            h = 2 * x
            y = h * h
            h.zero_()
            y.backward()
            print(f"allowed={allowed}: x.grad =", x.grad.item())
    except RuntimeError as error:
        print(f"allowed={allowed}:", str(error).split(":")[0])

# %% [markdown]
# ### save_on_cpu
#
# - **Call:** `with graph.save_on_cpu(pin_memory=False):`
# - **Runs:** a ready pair of hooks on saved tensors: `pack` copies to the CPU, `unpack` copies back to the device
# - **Returns:** nothing
# - **Trap:** of nested pairs only the innermost runs, so it does nothing around a block with a pair of your own. What is on
#   the CPU already is not copied.

# %%
for first in ("save_on_cpu", "my own"):
    pairs = [
        graph.save_on_cpu(),
        graph.saved_tensors_hooks(lambda tensor: packed.append(1) or tensor.detach(), lambda p: p),
    ]
    outer, inner = pairs if first == "save_on_cpu" else reversed(pairs)
    packed = []
    with outer, inner:
        leaf(9.0).sqrt()
    print(f"{first} is the outer one. Packed by my own pair: {len(packed)}")

# %% [markdown]
# ### Selective checkpointing
#
# - **Call:** `checkpoint(piece, x, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts,
#   policy))` with `policy(ctx, op, …)`, or a list of operations to keep
# - **Runs:** the policy is asked about each operation of the piece
# - **Returns:** the policy a `CheckpointPolicy`, such as `MUST_SAVE` or `PREFER_RECOMPUTE`
# - **Trap:** only operations are spared. The Python code of the piece runs twice, and so do its forward hooks.

# %%
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import create_selective_checkpoint_contexts


class Operations(TorchDispatchMode):
    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        ran.append(operation)
        return operation(*args, **(kwargs or {}))


addmm, ran = torch.ops.aten.addmm.default, []
keep = functools.partial(create_selective_checkpoint_contexts, [addmm])
for name, options in (("all again", {}), ("addmm is kept", {"context_fn": keep})):
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda *_: ran.append("hook"))
    output = checkpoint(nn.Sequential(layer, nn.Tanh()), leaf([1.0, 1.0]), use_reentrant=False, **options)
    ran.clear()
    with Operations():
        output.sum().backward()
    print(f"{name}: backward repeats addmm {ran.count(addmm)} times, and the hook {ran.count('hook')} times")

# %% [markdown]
# ### detect_anomaly
#
# - **Call:** `with torch.autograd.detect_anomaly(check_nan=True):` around forward and backward
# - **Runs:** forward notes the line that made each node; backward looks at what each node has computed
# - **Returns:** nothing; at the first nan it raises, with the name of the node, and warns with the line of forward
# - **Trap:** it looks at nodes and not at hooks. A nan that a tensor hook makes is blamed on the next node, or, on a leaf,
#   on nobody.

# %%
for where in ("in the middle", "at the leaf"):
    x = leaf(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is slow, says PyTorch, and where the node was made
        try:
            with torch.autograd.detect_anomaly():
                y = 2 * x
                (y if where == "in the middle" else x).register_hook(lambda grad: grad * torch.nan)
                y.exp().backward()
            print(f"a hook that makes nan {where}: x.grad = {x.grad.item()}, and no error")
        except RuntimeError as error:
            print(f"a hook that makes nan {where}: {error}")

# %% [markdown]
# ### torch.library.register_autograd
#
# - **Call:** `torch.library.register_autograd(op, backward, setup_context=None)` with `backward(ctx, grad)`; `op` is an
#   operation of your own, made by `torch.library.custom_op`
# - **Runs:** in backward, as the node of this operation
# - **Returns:** a gradient, or `None`, for each input of the operation
# - **Trap:** the whole operation is one node. What it computes inside has no nodes, so no hook can look there.


# %%
@torch.library.custom_op("course::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return (x * x) * 3 / x


torch.library.register_autograd("course::triple", lambda ctx, grad: 3 * grad)
names, x = [], leaf(2.0)
with graph.node_creation_hook(lambda node: names.append(node.name().partition("_")[0])):
    y = triple(x)
y.backward()
print("nodes:", [name for name in names if "Accumulate" not in name], " x.grad =", x.grad.item())

# %% [markdown] tags=["more"]
# ## More: Types, compilers, processes
#
# What these do to your hooks, each in one cell.

# %% [markdown]
# ### torch.autocast
#
# - **Call:** `with torch.autocast("cpu", dtype=torch.bfloat16):`
# - **Runs:** it is not a hook: in the block, each operation takes the dtype that suits it
# - **Returns:** nothing
# - **Trap:** hooks of one module see two dtypes: the output and its gradient are bfloat16, the inputs and the gradients of
#   the parameters stay float32. Write `.float()` before you compute statistics.

# %%
layer, x = nn.Linear(2, 2), torch.ones(1, 2, requires_grad=True)
layer.register_forward_hook(lambda module, args, output: print("forward: ", args[0].dtype, output.dtype))
layer.register_full_backward_hook(lambda module, into, out: print("backward:", into[0].dtype, out[0].dtype))
with torch.autocast("cpu", dtype=torch.bfloat16):
    output = layer(x)
output.float().sum().backward()
print("weight:  ", layer.weight.grad.dtype)

# %% [markdown]
# ### torch.export
#
# - **Call:** `program = torch.export.export(model, (x,))`, and then `program.module()(x)`
# - **Runs:** forward hooks run once, while the model is exported; what they *compute* becomes a part of the program
# - **Returns:** a program that has none of the hooks
# - **Trap:** whatever else a hook does, such as to append to a list, is not in the program. Backward hooks are lost.

# %%
model, ran = Chain(), []
model.first.register_forward_hook(lambda module, args, output: ran.append("hook") or 10 * output)
program = torch.export.export(model, (torch.ones(1),)).module()
at_export = len(ran)
print("10 · 2 = 20 in the program:", program(torch.ones(1)).item(), "= 2 · (20 + 1)")
print(f"the hook ran {at_export} time while exporting, and {len(ran) - at_export} times in the program")

# %% [markdown]
# ### torch.jit.trace
#
# - **Call:** `traced = torch.jit.trace(model, x)`: deprecated
# - **Runs:** forward hooks run while the model is traced, and again where the trace is checked; what they compute is recorded
# - **Returns:** a model that has none of the hooks
# - **Trap:** as with `torch.export`. `torch.jit.script` goes another way: it compiles the hooks of the modules too, and raises
#   where it cannot understand one.

# %%
model, ran = Chain(), []
model.first.register_forward_hook(lambda module, args, output: ran.append("hook") or 10 * output)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    traced = torch.jit.trace(model, torch.ones(1), check_trace=False)
ran.clear()
print("the traced model:", traced(torch.ones(1)).item(), " runs of the hook in it:", len(ran))


# %% tags=["setup"]
@contextlib.contextmanager
def one_process():
    """A group of processes in which this one is alone; gives its mesh of devices."""
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield distributed.init_device_mesh("cpu", (1,))
    finally:
        distributed.destroy_process_group()


# %% [markdown]
# ### fully_shard
#
# - **Call:** `fully_shard(module, mesh=mesh)`, in `torch.distributed.fsdp`: first for the inner modules, then for the model
# - **Runs:** hooks of its own: a forward pre-hook collects whole parameters, a forward hook gives them away, and tensor hooks
#   on the outputs collect them again in backward
# - **Returns:** the module itself, whose class is now also an `FSDPModule`
# - **Trap:** afterwards a parameter is a `DTensor`, the process's own piece. A tensor hook on it does not run, because forward
#   used the whole parameter; a post-accumulate hook runs, and its `.grad` is a piece as well.

# %%
from torch.distributed.fsdp import fully_shard

try:
    with one_process() as mesh:
        net = fully_shard(nn.Sequential(nn.Linear(2, 1)), mesh=mesh)
        print("its own:", [f"{hook.kind} {hook.name}" for hook in list_hooks(net) if "dict" not in hook.kind])
        net[0].register_forward_pre_hook(lambda module, args: print("forward pre-hook:", type(module.weight).__name__))
        net[0].weight.register_hook(lambda grad: print("tensor hook"))
        net[0].weight.register_post_accumulate_grad_hook(lambda w: print("post-accumulate:", type(w.grad).__name__))
        net(torch.ones(1, 2)).sum().backward()
except RuntimeError as error:  # no gloo here
    print("A group of processes does not work here:", error)

# %% [markdown]
# ### Join and JoinHook
#
# - **Call:** `with Join([joinable, …]):`, in `torch.distributed.algorithms.join`; `joinable.join_hook()` returns a `JoinHook`
#   with the methods `main_hook()` and `post_hook(is_last_joiner)`
# - **Runs:** `main_hook` in a process that has no more inputs, once for each step of the others; `post_hook` when all are done
# - **Returns:** nothing
# - **Trap:** nothing is noticed by itself: your class calls `Join.notify_join_context(self)` in each step. A process that is
#   alone never waits, so here `main_hook` does not run.


# %%
from torch.distributed.algorithms.join import Join, Joinable, JoinHook


class Tells(JoinHook):
    def post_hook(self, is_last_joiner):
        print("post_hook: is_last_joiner =", is_last_joiner)


class Counter(Joinable):
    join_device, join_process_group = torch.device("cpu"), None

    def __init__(self):
        super().__init__()

    def join_hook(self, **kwargs):
        return Tells()


try:
    with one_process(), Join([counter := Counter()]):
        Join.notify_join_context(counter)
        print("a step")
except RuntimeError as error:
    print("A group of processes does not work here:", error)

# %% [markdown]
# ### ModuleTracker
#
# - **Call:** `with ModuleTracker() as tracker:`, in `torch.utils.module_tracker`; then `tracker.parents` and `tracker.is_bw`
# - **Runs:** hooks of all modules, and multi-grad hooks on the inputs and outputs of each call
# - **Returns:** `parents`: the names of the modules that are running; `is_bw`: whether this is a backward pass
# - **Trap:** names begin with the class of the outermost module. In backward a module is left as soon as the gradient of its
#   input is there, which may be before a hook on its weight runs.

# %%
from torch.utils.module_tracker import ModuleTracker

net = nn.Sequential(Times(), Times())
with ModuleTracker() as tracker:
    net[0].register_forward_pre_hook(lambda module, args: print("forward:", sorted(tracker.parents)))
    output = net(leaf(1.0))
    net[0].weight.register_hook(lambda grad: print("weight: ", sorted(tracker.parents), "is_bw =", tracker.is_bw))
    output.backward()

# %% [markdown]
# ### The private hooks of libraries
#
# - **Call:** `module._register_state_dict_hook(hook)` with `hook(module, state_dict, prefix, local_metadata)`, and
#   `module._register_load_state_dict_pre_hook(hook, with_module=False)`, without the module unless you ask for it
# - **Runs:** as the public hooks of these names
# - **Returns:** the first may return another dict; it counts only where `state_dict()` was called on this very module
# - **Trap:** older than the public ones, they are in most libraries. In a model, what the first one returns is silently
#   thrown away. They may change without notice.

# %%
layer = Times()
layer._register_state_dict_hook(lambda module, state, prefix, metadata: {"mine": 1})
layer._register_load_state_dict_pre_hook(lambda state, *rest: print("load hook gets:", sorted(state)))
net = nn.Sequential(layer)
print("the layer:", list(layer.state_dict()), " the model:", list(net.state_dict()))
print(net.load_state_dict({"0.weight": torch.ones(1)}))

# %% [markdown]
# ### What registers hooks without being asked
#
# Some functions and classes of PyTorch put hooks on your modules, or hand hooks on. Whoever lists the hooks of a model meets
# these.
#
# | Who | Which hooks | Until when |
# |---|---|---|
# | `LazyModuleMixin`: `nn.LazyLinear` and its kind | a pre-hook that makes the weights, and one for loading | the first call |
# | `BasePruningMethod.apply`: all of `torch.nn.utils.prune` | a pre-hook that multiplies the weight by its mask | `prune.remove` |
# | `WeightNorm.apply`, `SpectralNorm.apply`: the old norms | a pre-hook that computes the weight; the second also for saving and loading | `remove_weight_norm`, `remove_spectral_norm` |
# | `weight_norm` of `parametrizations` | one for loading old files | always |
# | `DistributedDataParallel` | on every parameter, for the exchange | always |
# | `FullyShardedDataParallel`, `fully_shard` | around each call, on outputs, for saving and loading | always |
# | `input_reshard`, `PrepareModuleInput`, `PrepareModuleOutput`: `torch.distributed.tensor.parallel` | around each call, to split and to gather tensors | always; `input_reshard` takes its own away if you ask for nothing |
# | `swap_module`, `fuse_known_modules`, `QuantizedGraphModule`: `torch.ao` | hand the hooks on to the module that replaces yours | always |
# | `GraphModule`, `GraphTransformObserver`, `generate_inputs_for_submodules`: `torch.fx` | functions that are told of changes in a graph; a pre-hook that notes inputs | the end of their work |
# | `swap_tensors` | a pre-hook on the tensor's node, which refuses a later backward | the graph goes |
# | `BackwardHook`, by `setup_output_hook` | tensor hooks and nodes, for each full backward hook of yours | the graph goes |

# %% [markdown] tags=["more"]
# ## More: Four traps in PyTorch itself
#
# ### A bound method as a state-dict hook
#
# `register_state_dict_post_hook` writes an attribute onto your function, and a bound method takes no attributes. Wrap it in a
# lambda, or give it as `functools.partial(self.method)`.


# %%
class Saver:
    def note(self, module, state, prefix, metadata):
        print("saving", sorted(state))


saver, layer = Saver(), Times()
try:
    layer.register_state_dict_post_hook(saver.note)
except AttributeError as error:
    print("AttributeError:", error)
layer.register_state_dict_post_hook(lambda *args: saver.note(*args))
layer.state_dict()

# %% [markdown]
# ### A global hook with keywords, and an exception
#
# A forward hook for all modules with `with_kwargs=True` and `always_call=True` gets `(module, args, kwargs, output)`. When
# forward raises, it is called with `(module, args, output)` all the same. If it takes four arguments, it fails, and PyTorch
# turns this into a warning. Let it take `*rest`, and look at `rest[-1]`. Its handle also forgets one of PyTorch's own tables,
# which the last line of the cell puts in order.


# %%
class Refuses(nn.Module):
    def forward(self, x, scale=1):
        if scale == 0:
            raise ValueError("scale is 0")
        return x * scale


with all_modules.register_module_forward_hook(
    lambda module, *rest: print("the hook got", len(rest), "arguments after the module"),
    with_kwargs=True,
    always_call=True,
):
    for scale in (3, 0):
        try:
            Refuses()(torch.ones(1), scale=scale)
        except ValueError as error:
            print("ValueError:", error)
print("left behind by the handle:", len(all_modules._global_forward_hooks_with_kwargs))
all_modules._global_forward_hooks_with_kwargs.clear()

# %% [markdown]
# ### A full hook that returns gradients nobody asked for
#
# A full backward hook that returns new gradients for its inputs works until somebody feeds plain data: where no input
# requires a gradient, it must return None. So ask: `if grad_input[0] is None: return None`.

# %%
layer = Times()
with warnings.catch_warnings(), layer.register_full_backward_hook(lambda module, into, out: (torch.ones(1),)):
    warnings.simplefilter("ignore")  # "... no inputs require gradients"
    for x in (leaf(3.0), torch.tensor([3.0])):
        try:
            layer(x).backward()
            print("requires_grad =", x.requires_grad, " it works")
        except RuntimeError as error:
            print("requires_grad =", x.requires_grad, "", error)

# %% [markdown]
# ### The first argument of a step hook
#
# A step hook gets `(optimizer, args, kwargs)`, and the first of `args` is the optimizer once more, because `step` was called
# as a function of it. A pre-hook that returns new arguments has to put it there, or `step` has no `self`.

# %%
optimizer = torch.optim.SGD([leaf(1.0)], lr=0.5)
with optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: print(len(args), args[0] is optimizer)):
    optimizer.step()
with optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: ((), {})):
    try:
        optimizer.step()
    except IndexError as error:
        print("IndexError:", error)

# %% [markdown] tags=["more"]
# ## More: Hook archaeology
#
# PyTorch is the largest user of its own hooks. Here are four of them, as they are in the torch that runs this page. For each,
# find three things before you read the sentence below it: who registers the hook, what it returns, and who takes it away.


# %% tags=["setup"]
import torch.distributed.fsdp._fully_shard._fsdp_state as fsdp_state
from torch.utils.module_tracker import ModuleTracker


def dig(where, first="", last="@"):
    """Print the source of `where`, as installed, from the line with `first` to the next one with `last`, or to the end."""
    lines = inspect.getsource(where).splitlines()
    begin = next(number for number, line in enumerate(lines) if first in line)
    end = next((number for number, line in enumerate(lines) if number >= begin and last in line), len(lines))
    print(textwrap.dedent("\n".join(lines[begin : end + 1])))


# %% [markdown]
# ### weight_norm loads old files

# %%
dig(nn.utils.parametrizations.weight_norm, "def _weight_norm_compat_hook", "module._register")

# %% [markdown]
# The old `weight_norm` saved `weight_g` and `weight_v`, and today's saves other names. A private load hook renames the
# entries in place, under the prefix that it is given, so it returns nothing. Nobody takes it away: it belongs to the layer.
#
# ### ModuleTracker goes backward

# %%
dig(ModuleTracker._fw_post_hook)

# %% [markdown]
# It uses no full backward hook, which would make views. A forward hook for all modules finds the tensors in the output, in
# whatever nesting, and hangs a multi-grad hook on those that require a gradient. The handles go into a list, and
# `__exit__` removes them.
#
# ### fully_shard collects its parameters in time

# %%
dig(fsdp_state.FSDPState, "tensors = collect_grad_tensors(output)", "t.register_hook(self._pre_backward)")

# %% [markdown]
# A tensor hook on each output is the first sign that backward comes near this module. It returns the gradient as it was; what
# counts is what it does: it asks for the whole parameters. No handle is kept, because the hook goes with the graph. The
# warning is about what lesson 03 says of views: after a change in place, a hook on the old tensor is not on the way any more.
#
# ### checkpoint keeps a number instead of a tensor

# %%
dig(torch.utils.checkpoint._checkpoint_hook, "def pack_hook", "return holder")
dig(torch.utils.checkpoint._checkpoint_hook, "if not frame.is_recomputed", "frame.is_recomputed[gid] = True")
dig(torch.utils.checkpoint._checkpoint_hook, "ret = frame.recomputed", "return ret")

# %% [markdown]
# There are two pairs of hooks on saved tensors. The first pair keeps nothing: for each tensor, `pack` returns an empty holder,
# whose place in a list is its number. At the first `unpack`, the function runs again, with gradients enabled, below a second pair, which
# catches the tensors as they are saved once more, in the same order. What remains is to look up the number.

# %% [markdown] tags=["more"]
# ### More: Exercise · Rebuild checkpoint
#
# Twelve lines are enough for the heart of it. Do without the graph's number, and without stopping early.

# %% [markdown] tags=["sealed"]
# 2 points
# 1. Forward runs below `graph.saved_tensors_hooks(pack, unpack)`. What does `pack` return, if it may keep no tensor?
# 2. `unpack` runs in backward, where no gradients are recorded: under `torch.enable_grad()` the function saves its
#    tensors again, and a second pair of hooks can catch them.


# %% tags=["answer"]
def compute_again(function, x):
    """Return `function(x)`, and keep in memory nothing of what it saves for backward.

    Backward gives the gradients that it gives without you. For this, `function` runs
    a second time when the first saved tensor is needed, and not more often than that.
    `function` takes and returns one tensor, does the same in each run, and there is
    one backward pass for each call. Other saved tensors are left alone.
    """
    ...


# %% tags=["check"]
check(compute_again)

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | Use `register_backward_hook`. | Deprecated since 1.8: it shows the gradients of the last operation's inputs. Use `register_full_backward_hook`. |
# | `grad_input` of a Linear layer is (bias, input, weight). | These are the entries of its last operation. A full hook gets one entry for each input of `forward`. |
# | A backward hook on a whole model sees only the last layer. | This is true of the legacy one. The full one has the gradients of the model's inputs and outputs. |
# | Save the model with `torch.save(model)`. | With a hook on it, this may fail. Save `model.state_dict()`. |
# | Use `DataParallel` for several devices. | Use `DistributedDataParallel`. Hooks then see the local gradient. |

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask how old the tutorial is that they learned hooks from. What was written before PyTorch 1.8
# means the legacy hook when it says "backward hook".

# %% [markdown]
# ## Summary
#
# Five traps, of all kinds of hooks together:
#
# 1. **`return` is missing.** `None` keeps what is there. A hook that is meant to change something returns the new value.
# 2. **The hook writes into what it gets.** Gradients are shared, and the output is the network's own. Make a new tensor.
# 3. **Nobody removes the hook.** Keep the handle, or use `with`. A hook stays when its cell runs again, and goes into copies.
# 4. **The hook is in a place that is never used:** on a parametrized weight, on a layer that was compiled before, or under
#    `no_grad`. A function has no hooks at all.
# 5. **The hook runs more often than you think:** in a checkpoint, for a shared layer, in each replica, in each backward.
#
# If you have the whole course, you can run `make cheatsheet`. It writes these five traps, the order of a call and a table
# of all kinds of hooks on one page.

# %% [markdown] tags=["instructor"]
# **On this slide:** Let each person name one kind of hook that they had never heard of, and a task for it. The others
# may object.

# %% [markdown]
# ## Go further
#
# - [Autograd mechanics: backward hooks execution](https://pytorch.org/docs/stable/notes/autograd.html#backward-hooks-execution),
#   the rules in PyTorch's own words.
# - [`torch.nn.Module`](https://pytorch.org/docs/stable/generated/torch.nn.Module.html) and
#   [`torch.autograd.graph`](https://pytorch.org/docs/stable/autograd.html#autograd-graph), with every method of this page.
# - *Questions people ask*, each with its thread and a program that answers it: `course_utils/assets/questions.md`.
# - [Tensor Puzzles](https://github.com/srush/Tensor-Puzzles), whose idea the puzzles follow.

# %% [markdown] tags=["instructor"]
# **On this slide:** Print the cheat sheet (`make cheatsheet`) for everybody. At home: the puzzles and rules that are
# left.
