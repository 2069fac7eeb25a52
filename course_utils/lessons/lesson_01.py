"""Exercises and predictions of lesson 01: tensor hooks."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

from course_utils.exercises.cases import Case
from course_utils.exercises.engine import exercise, prediction
from course_utils.hooks.inventory import list_hooks

# --- predictions ------------------------------------------------------------------------------------------------------

prediction(
    "who_has_a_gradient",
    lesson=1,
    question="after `y.backward()`, which of w, x, a, b, y have a `.grad`?",
    options={
        "all five": "Backward computes a gradient for each of them, but it keeps only those of the leaves.",
        "w and x": "They are the leaves. The gradients of a, b and y were computed, used and thrown away.",
        "only y": "Backward starts at y, with the gradient 1, but this gradient is not kept either.",
        "a and b": "a and b were computed from other tensors, so their gradients are not kept.",
    },
    answer="w and x",
    why="""
        `w` and `x` are **leaves**: you made them, and no operation did. Backward writes their gradients into `.grad`,
        here 5 and 2, as you worked out with a pencil.

        `a`, `b` and `y` had a gradient too, but only for a moment. Backward passed it on and then threw it away, which
        saves a lot of memory in a deep network. If you read their `.grad`, you get None, and PyTorch warns you that
        this is probably not what you want. (Lesson 02 shows the warning.) A hook sees these gradients while they are
        there.
    """,
    ask={
        "all five": "All five require a gradient. In the printout, which of them show None, and what else do these "
        "lines have in common?",
        "only y": "What is the gradient of y with respect to y itself? Is it another number in another graph?",
        "a and b": "Take `w` for a weight and `a` for an activation. Which of their gradients does the optimizer read "
        "after backward?",
    },
)
prediction(
    "patient_layers",
    lesson=1,
    question="every parameter of the patient has a hook, and we go backward once. In which layers do the hooks run?",
    options={
        "in all four": "So it is in a healthy network. Here the gradient does not get that far.",
        "in second, third and last": "The gradient would have to pass `standardise` to get to `second`.",
        "in third and last": "From the loss, the gradient comes as far as `third`. It never arrives at `second`.",
        "only in last": "The gradient passes from `last` through the ReLU to `third` without any trouble.",
        "in none": "Then no layer would learn at all, and backward would have raised an error.",
    },
    answer="in third and last",
    why="""
        The hooks of `first` and `second` never ran, so no gradient arrived there, and these two layers keep their
        random weights for ever. The gradient got lost between `third` and `second`. Only one step of `forward` lies in
        between: `standardise`.

        There, everything happens under `torch.no_grad()`, the `return` included. Under `no_grad`, PyTorch notes no
        operation for backward. So what `standardise` returns does not know that it was computed from `h`, and backward
        ends there.

        No error was raised, because `third` and `last` still have something to learn. That is why the loss falls a
        little. Three lines with a hook were enough to find the place. The cure comes at the end of this lesson.
    """,
    ask={
        "in all four": "Walk back from the loss, step by step. Which function do you meet between `third` and "
        "`second`, and how does its code begin?",
        "in second, third and last": "In `forward`, which of the two comes later: `second` or `standardise`? So which "
        "of them does backward meet first?",
        "only in last": "Which step of `forward` lies between `third` and `last`? Does it run under `no_grad`?",
        "in none": "The loss of the patient falls a little. Which weights must have changed for that, and what does "
        "training need to change a weight?",
    },
)
prediction(
    "hook_on_w",
    lesson=1,
    question="the hook on the leaf w doubles the gradient in place and returns three times that. What is w.grad?",
    options={
        5: "That is the gradient without the hook. A hook that returns a tensor replaces the gradient.",
        10: "Doubling is only the first line; the hook also returns three times the doubled gradient.",
        15: "Returning `grad * 3` is only the second line: `grad` had already been doubled.",
        30: "5 is doubled in place to 10, and what is returned, 30, is what the leaf accumulates.",
    },
    answer=30,
    why="""
        5 · 2 · 3 = 30. The hook ran once, on the sum of what came along both paths. `x.grad` is still 2, because
        backward does not pass through `w` on its way to `x`.
    """,
    ask={
        5: "What does `change_gradient` return if you give it 5? And what does PyTorch do with a tensor that a hook "
        "returns?",
        10: "How would you have to change the last line of the hook, so that 10 is right?",
        15: "When the last line of the hook runs, which number is in `grad`?",
    },
)
prediction(
    "hook_on_a",
    lesson=1,
    question="the same hook, six times the gradient, now sits on a instead of w. What is w.grad?",
    options={
        5: "That is the gradient without any hook; the part that comes through a is changed.",
        12: "That is the part through a (6 · 2). The part through b comes on top.",
        15: "6 · 2 arrives through a, and the untouched 3 through b: 12 + 3.",
        30: "For 30 both paths would have to pass through the hook; the path through b does not.",
    },
    answer=15,
    why="""
        The hook sees only what flows through `a`, and turns its 2 into 12. The 3 that arrives through `b` does not meet
        the hook. So `w` receives 12 + 3 = 15. `x` has no second path, so all of its gradient is multiplied: it receives
        12.
    """,
    ask={
        5: "Which gradient arrives at `a`, and which one does the hook pass on? Which leaves receive it?",
        12: "How many arrows lead to w in backward? One of them comes through the hook: what does the other one bring?",
        30: "Follow the arrows from `y` through `b` to `w` with your finger. Where on this path do you meet the hook?",
    },
)
prediction(
    "first_hook_to_fire",
    lesson=1,
    question="y = x - 2, then z = (y - x)², hooks on y and on z. Whose hook runs first in backward?",
    options={
        "y": "y was computed first, so it comes last: backward walks from the result to the leaves.",
        "z": "z is the result, and backward starts there.",
        "whichever was registered first": "That decides between two hooks on the same tensor, not between two tensors.",
    },
    answer="z",
    why="""
        `z` comes first although its hook was registered last, because backward starts at the result. Then `y` receives
        2 · (y - x) = -4. `x` receives -4 through `y` and +4 on the direct path, which is 0 together.
    """,
    ask={
        "y": "Which gradient must backward know before it can work out the gradient of `y`?",
        "whichever was registered first": "In the cell, which hook was registered first, and which one printed first? "
        "What changes if you swap the two lines?",
    },
)
prediction(
    "sibling_gradient",
    lesson=1,
    question="e = c + d, and a hook on c multiplies its gradient by 100 in place. What is d.grad (2 without the hook)?",
    options={
        2: "So it should be. But c and d are handed the very same gradient tensor, and the hook writes into it.",
        100: "The hook multiplies what is there, 2.",
        200: "c and d share one gradient tensor. The hook wrote into it before it reached d.",
        "an error": "Here nothing stops it, and that is what makes it dangerous.",
    },
    answer=200,
    why="""
        PyTorch does not copy the gradient for each operand of an addition: the siblings `c` and `d` receive **the same
        tensor**.

        - With the hook on `c`, both gradients are 200. `c` came first, the hook wrote into the shared tensor, and `d`
          found it changed.
        - With the hook on `d`, `c` had already taken its gradient, so only `d` is changed.

        The result depends on which of the two comes first, and that is not yours to choose.
    """,
    ask={
        2: "With the hook on `c`, what did the cell print for `d.grad`? What does this tell you about the two gradient "
        "tensors?",
        100: "Which number does the hook find in `grad`? What does `mul_(100)` make of it?",
        "an error": "Which line should raise the error? And how could PyTorch know there that this change was not "
        "wanted?",
    },
)

# --- exercises --------------------------------------------------------------------------------------------------------


@exercise(
    lesson=1,
    points=1,
    hints=[
        "Make an empty list first. The hook fills it later, when backward runs.",
        "`tensor.register_hook(f)` calls `f(grad)` in every backward. What `f` stores must be a copy: someone may "
        "change the gradient in place afterwards.",
        "`tensor.register_hook(lambda grad: seen.append(grad.clone()))`, and return the list.",
    ],
)
def record_gradient(tensor):
    """Return a list that will receive a copy of every gradient that reaches
    `tensor`.

    The list is empty when you return it. Each backward adds one tensor to it. The
    gradients themselves do not change.
    """
    seen = []
    tensor.register_hook(lambda grad: seen.append(grad.clone()))
    return seen


@record_gradient.cases
def _(rng):
    w, x = rng.leaf(), rng.leaf()
    a = w + x
    y = a * (w + 1)

    def one_pass(seen):
        before = list(seen)
        y.backward()
        return {"your list before backward": before, "w.grad": w.grad, "x.grad": x.grad}

    yield Case({"tensor": a}, one_pass, shown="a in y = a·b")
    leaf, slope = rng.whole(2, 1).double().requires_grad_(), rng.quarters(2, 1)
    earlier = []

    def three_passes(seen):
        (slope * leaf).sum().backward()
        (0 * leaf).sum().backward()
        (leaf * leaf).sum().backward()
        earlier.append(seen)

    shown = "a leaf of dtype float64 and three backward passes, of which the second brings zeros"
    yield Case({"tensor": leaf}, three_passes, shown=shown)
    x, slope = rng.leaf(2), rng.quarters(2)
    d = 3 * rng.leaf(2)
    h = 2 * x
    e = h + d

    def changed_later(_):
        for tensor in (h, d):
            tensor.register_hook(lambda grad: grad.mul_(100))
        for _ in range(2):
            (e * slope).sum().backward(retain_graph=True)
        (3 * leaf).sum().backward()
        leaf._backward_hooks = None  # torch never frees a leaf that `register_multi_grad_hook` still watches
        return {"x.grad": x.grad, "the list of the call before, after a backward more,": earlier.pop()}

    shown = "h in e = h + d, two backwards, and gradients that are changed in place after your hook"
    yield Case({"tensor": h}, changed_later, shown=shown)


@record_gradient.accept
def _(tensor):
    seen = []

    def copy_gradient(grad):
        seen.append(grad.detach().clone())
        return grad

    tensor.register_hook(copy_gradient)
    return seen


@record_gradient.accept
def _(tensor):
    class Recorder(list):
        def __call__(self, grad):
            self.append(torch.empty_like(grad).copy_(grad))

    recorder = Recorder()
    tensor.register_hook(recorder)
    return recorder


record_gradient.equivalent(
    "A hook that returns nothing leaves the gradient as it is.", "no return: - return grad + grad"
)
record_gradient.equivalent(
    "The gradient that a hook gets has no graph of its own that a copy could keep alive.",
    "no detach: - seen.append(grad.detach().clone()) + seen.append(grad.clone())",
    "mixed up: - seen.append(grad.detach().clone()) + seen.append(grad.clone().clone())",
)


@record_gradient.mistake(
    "You stored the gradient itself. Whoever changes it in place later changes your record too: store `grad.clone()`."
)
def _(tensor):
    seen = []
    tensor.register_hook(seen.append)
    return seen


@record_gradient.mistake(
    "What you stored shares its memory with the gradient, as a detached tensor does. Whoever changes the gradient in "
    "place later changes your record too: store `grad.clone()`."
)
def _(tensor):
    seen = []
    tensor.register_hook(lambda grad: seen.append(grad.detach()))
    return seen


@record_gradient.mistake(
    "You read `.grad` at once, but backward has not run yet. Register a hook; it is called when the gradient arrives."
)
def _(tensor):
    tensor.retain_grad()
    return [tensor.grad]


@record_gradient.mistake(
    "You store what `.grad` holds, and this gradient is not in it yet. Store a copy of what the hook is given."
)
def _(tensor):
    seen = []
    tensor.register_hook(lambda grad: seen.append(tensor.grad))
    return seen


@record_gradient.mistake(
    "Your hook changes the gradients that go on. A hook that only looks returns nothing and does not write into `grad`."
)
def _(tensor):
    seen = []

    def hook(grad):
        seen.append(grad.clone())
        return torch.zeros_like(grad)

    tensor.register_hook(hook)
    return seen


@record_gradient.mistake(
    "Your hook returns what is no gradient. What a tensor's hook returns takes the gradient's place: a hook that only "
    "looks returns nothing."
)
def _(tensor):
    seen = []
    tensor.register_hook(lambda grad: seen.append(grad.clone()) or seen)
    return seen


@record_gradient.mistake("You stored the values of the tensor. The hook's argument is the gradient.")
def _(tensor):
    seen = []
    tensor.register_hook(lambda grad: seen.append(tensor.detach().clone()))
    return seen


@record_gradient.mistake("You returned the handle. Return the list that your hook fills.")
def _(tensor):
    seen = []
    return tensor.register_hook(lambda grad: seen.append(grad.clone()))


@record_gradient.mistake("Your list stays empty: is a hook registered on `tensor` itself, and does it fill this list?")
def _(tensor):
    return []


@record_gradient.mistake("Each backward throws away what was in the list. Add to it: `append`.")
def _(tensor):
    grads = []

    def keep(grad):
        grads[:] = [grad.clone()]

    tensor.register_hook(keep)
    return grads


@exercise(
    lesson=1,
    points=2,
    hints=[
        "A hook that returns nothing looks; a hook that returns a tensor replaces the gradient.",
        "`register_hook` returns a handle. The task asks for it, so that whoever called you can end the scaling.",
        "`return tensor.register_hook(lambda grad: ...)`, where `...` is a new tensor made from `grad` and `factor`.",
    ],
)
def scale_gradient(tensor, factor):
    """Make every gradient that flows back through `tensor` `factor` times as large,
    and return the hook's handle.

    The values of `tensor` stay as they are, and so do the gradients of its
    siblings.
    """
    return tensor.register_hook(lambda grad: grad * factor)


@scale_gradient.cases
def _(rng):
    for factor in (3, -0.5, 0):
        x, slope = rng.leaf(2, 2), rng.quarters(2, 2)
        h = x * rng.whole(2, 2)

        def scaled_then_not(handle, x=x, h=h, slope=slope):
            found = {}
            for words, sign in ("first backward", 1), ("second backward", -1), ("backward after handle.remove()", 1):
                if "remove" in words:
                    handle.remove()
                x.grad = None
                (h * slope * sign).sum().backward(retain_graph=True)
                found[f"the gradient that reached x in the {words}"] = x.grad
            return found

        yield Case({"tensor": h, "factor": factor}, scaled_then_not)
    c, d = rng.leaf(2), rng.leaf(2)
    e = c + d

    def sibling(_):
        (100 * e).sum().backward()
        return {"the gradient of its sibling d in e = c + d": d.grad}

    yield Case({"tensor": c, "factor": 10}, sibling, shown="tensor = c in e = c + d, factor = 10")
    both = rng.leaf(2, 2).detach().double().requires_grad_()
    a, b = (both * both).unbind()

    def one_of_two(_):
        (a + 3 * b).sum().backward()
        return {"x.grad": both.grad}

    yield Case({"tensor": a, "factor": 4}, one_of_two, shown="tensor = a in a, b = (x·x).unbind(), float64, factor = 4")


@scale_gradient.accept
def _(tensor, factor):
    def hook(grad):
        new = grad.clone()
        new *= factor
        return new

    handle = tensor.register_hook(hook)
    return handle


@scale_gradient.accept
def _(tensor, factor):
    return tensor.register_hook(lambda grad: torch.mul(grad, torch.tensor(factor, dtype=grad.dtype)))


scale_gradient.equivalent(
    "The copy is the hook's own, so that it does not matter whether it is written into.",
    "not in place: - new *= factor + new = new * factor",
)
scale_gradient.equivalent(
    "A tensor without dimensions does not change the dtype of a product, whatever its own.",
    "an argument less: - return tensor.register_hook(lambda grad: torch.mul(grad, torch.tensor(factor, "
    "dtype=grad.dtype))) + return tensor.register_hook(lambda grad: torch.mul(grad, torch.tensor(factor)))",
)


@scale_gradient.mistake(
    "The gradient goes on unchanged. Does your hook return the new one, and is it still on `tensor` when backward runs?"
)
def _(tensor, factor):
    def hook(grad):
        grad * factor

    return tensor.register_hook(hook)


@scale_gradient.mistake("The hook works; its handle is lost. Return what `register_hook` returns.")
def _(tensor, factor):
    tensor.register_hook(lambda grad: grad * factor)


@scale_gradient.mistake(
    "Your hook changes `grad` in place. Siblings share one gradient tensor, so theirs changes too: return a new tensor."
)
def _(tensor, factor):
    def hook(grad):
        grad *= factor
        return grad

    return tensor.register_hook(hook)


@scale_gradient.mistake("Your hook returns the value of `tensor` times `factor`. Multiply the gradient it is given.")
def _(tensor, factor):
    return tensor.register_hook(lambda grad: tensor.detach() * factor)


@scale_gradient.mistake("A `factor` of 0 is a factor too: the gradient becomes 0.")
def _(tensor, factor):
    return tensor.register_hook(lambda grad: grad * factor if factor else None)


@scale_gradient.mistake("You scaled the values of `tensor`. Leave them alone and register a hook that scales `grad`.")
def _(tensor, factor):
    tensor.data *= factor
    return tensor.register_hook(lambda grad: None)


@scale_gradient.mistake("What a hook returns must be a tensor of the gradient's shape: no plain number, and no tuple.")
def _(tensor, factor):
    return tensor.register_hook(lambda grad: factor)


@scale_gradient.mistake("The hook of a tensor is given one thing, the gradient: `def hook(grad)`.")
def _(tensor, factor):
    def hook(tensor, grad):
        return grad * factor

    return tensor.register_hook(hook)


@scale_gradient.mistake("What you registered is no function. Give `register_hook` the hook itself, without calling it.")
def _(tensor, factor):
    return tensor.register_hook(tensor.detach() * factor)


@exercise(
    lesson=1,
    points=1,
    hints=[
        "The hook gets the gradient as a tensor; which operation replaces negative numbers by 0 and keeps the rest?",
        "`grad.clamp(min=0)` makes a new tensor; `grad.clamp_(min=0)` writes into one that others may share.",
        "`return tensor.register_hook(lambda grad: grad.clamp(min=0))`",
    ],
)
def keep_positive(tensor):
    """Let only the positive part of the gradient flow back through `tensor`, and
    return the hook's handle.

    Each negative number of the gradient becomes 0. This one line is half of Guided
    Backpropagation (lesson 06).
    """
    return tensor.register_hook(lambda grad: grad.clamp(min=0))


@keep_positive.cases
def _(rng):
    x, slope = rng.leaf(4), torch.cat([rng.mixed(2) * 10, rng.mixed(2, high=3) / 4])
    h = x * rng.mixed(4)

    def kept_then_not(handle):
        found = {}
        for words, sign in ("first backward", 1), ("second backward", -1), ("backward after handle.remove()", 1):
            if "remove" in words:
                handle.remove()
            x.grad = None
            (h * slope * sign).sum().backward(retain_graph=True)
            found[f"the gradient that reached x in the {words}"] = x.grad
        return found

    yield Case({"tensor": h}, kept_then_not, shown="tensor = h = x·s")
    c, d = rng.leaf(2, 2), rng.leaf(2, 2)
    e = c + d
    slopes = rng.mixed(2, 2, high=3) / 4

    def sibling(_):
        (e * slopes).sum().backward()
        return {"the gradient of its sibling d in e = c + d": d.grad}

    yield Case({"tensor": c}, sibling, shown="tensor = c in e = c + d")
    number = rng.leaf().detach().double().requires_grad_()
    negated = -number

    def negative_alone(_):
        (2 * negated - 5 * negated).backward()
        return {"the gradient that reached x": number.grad}

    yield Case({"tensor": negated}, negative_alone, shown="tensor = -x, one float64 number, and a negative gradient")


@keep_positive.accept
def _(tensor):
    return tensor.register_hook(torch.relu)


@keep_positive.accept
def _(tensor):
    return tensor.register_hook(lambda grad: torch.where(grad > 0, grad, torch.zeros_like(grad)))


@keep_positive.accept
def _(tensor):
    def hook(grad):
        return grad * (grad > 0)

    return tensor.register_hook(hook)


keep_positive.equivalent(
    "A gradient of 0 stays 0, on whichever side of the border it falls.",
    "compare otherwise: - return tensor.register_hook(lambda grad: torch.where(grad > 0, grad, "
    "torch.zeros_like(grad))) + return tensor.register_hook(lambda grad: torch.where(grad >= 0, grad, "
    "torch.zeros_like(grad)))",
    "compare otherwise: - return grad * (grad > 0) + return grad * (grad >= 0)",
)


@keep_positive.mistake("You removed the positive part. `clamp(min=0)` keeps what is above 0.")
def _(tensor):
    return tensor.register_hook(lambda grad: grad.clamp(max=0))


@keep_positive.mistake("`abs` turns a negative gradient round; the task is to set it to 0.")
def _(tensor):
    return tensor.register_hook(torch.abs)


@keep_positive.mistake("You look at the sign of the tensor's values. Look at the sign of the gradient.")
def _(tensor):
    return tensor.register_hook(lambda grad: grad * (tensor.detach() > 0))


@keep_positive.mistake(
    "Your hook writes into the gradient, which the sibling shares: use `clamp`, which makes a new tensor."
)
def _(tensor):
    return tensor.register_hook(lambda grad: grad.clamp_(min=0))


@keep_positive.mistake(
    "`if`, `and` and Python's `max` ask for one number, and a gradient has many: use an operation of tensors."
)
def _(tensor):
    return tensor.register_hook(lambda grad: grad if grad > 0 else torch.zeros_like(grad))


@keep_positive.mistake(
    "Your hook returns a tensor of another dtype than the gradient's. If it is a mask, which is of dtype bool, "
    "multiply the gradient by it."
)
def _(tensor):
    return tensor.register_hook(lambda grad: grad > 0)


@keep_positive.mistake(
    "Your hook returns a tensor of another shape than the gradient's. If it is `grad[mask]`, the numbers that the mask "
    "leaves out have to become 0."
)
def _(tensor):
    return tensor.register_hook(lambda grad: grad[grad > 0])


@keep_positive.mistake("Each positive number became 1, as in a mask: multiply the gradient by the mask.")
def _(tensor):
    return tensor.register_hook(lambda grad: (grad > 0).to(grad.dtype))


@keep_positive.mistake("Positive numbers must stay as they are: yours end at 1. `clamp(min=0)` has no upper end.")
def _(tensor):
    return tensor.register_hook(lambda grad: grad.clamp(0, 1))


@keep_positive.mistake(
    "The gradient goes on unchanged. Does your hook return a new one, and is it still on `tensor` when backward runs?"
)
def _(tensor):
    return tensor.register_hook(lambda grad: None)


@exercise(
    lesson=1,
    points=2,
    hints=[
        "`model.named_parameters()` gives names such as `0.bias` or `head.bias`, at every depth.",
        "The parameters must still require their gradient: it is the hook that turns it into zeros.",
        "For each name that ends in `bias`: `handles.append(parameter.register_hook(torch.zeros_like))`",
    ],
)
def freeze_biases(model):
    """Make the gradient of every bias of `model` zero, at any depth, with hooks;
    return the list of their handles.

    A bias is a parameter whose name ends in "bias". After `handle.remove()` on each
    handle it learns again.
    """
    return [
        parameter.register_hook(torch.zeros_like)
        for name, parameter in model.named_parameters()
        if name.endswith("bias")
    ]


class _Shift(nn.Module):
    """A layer with two biases, and a `bias_scale`, which is none."""

    def __init__(self):
        super().__init__()
        self.in_proj_bias, self.s, self.bias, self.bias_scale = (nn.Parameter(torch.ones(2)) for _ in range(4))

    def forward(self, x):
        return self.bias_scale * x + (self.in_proj_bias + self.s) + self.bias


@freeze_biases.cases
def _(rng):
    models = {  # the parameter that comes last is no bias: it may be frozen already
        "two linear layers": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1, bias=False)),
        "layers inside Sequentials": nn.Sequential(
            nn.Sequential(nn.Linear(2, 3, bias=False), nn.Conv1d(1, 1, kernel_size=2)),
            nn.Sequential(nn.Linear(2, 1), nn.Flatten(), nn.Linear(1, 1, bias=False)),
        ),
        "the parameters in_proj_bias, s, bias and bias_scale": _Shift().double(),
    }
    for words, model in models.items():
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(rng.whole(*parameter.shape))
        x = rng.whole(1, 2).to(parameter.dtype)

        def frozen_then_not(handles, model=model, x=x):
            for _ in range(2):
                model(x).sum().backward()
            frozen = {key: parameter.grad for key, parameter in model.named_parameters()}
            for handle in handles:
                handle.remove()
            model.zero_grad()
            model(x).sum().backward()
            return {"the gradients after two backwards": frozen}

        yield Case({"model": model}, frozen_then_not, shown=f"a model of {words}")


@freeze_biases.accept
def _(model):
    handles = []
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name.endswith("bias"):
                handles.append(parameter.register_hook(lambda grad: grad * 0))
    return handles


@freeze_biases.accept
def _(model):
    def zero(grad):
        return torch.zeros(grad.shape, dtype=grad.dtype)

    return [p.register_hook(zero) for n, p in model.named_parameters() if n[-4:] == "bias"]


freeze_biases.equivalent(
    "The task asks for a list of the handles in no particular order.",
    "backwards: - return [parameter.register_hook(torch.zeros_like) for name, parameter in model.named_parameters() "
    "if name.endswith('bias')] + return [parameter.register_hook(torch.zeros_like) for name, parameter in "
    "list(model.named_parameters())[::-1] if name.endswith('bias')]",
    "backwards: - for module in model.modules(): + for module in list(model.modules())[::-1]:",
    "backwards: - for name, parameter in module.named_parameters(recurse=False): + for name, parameter in "
    "list(module.named_parameters(recurse=False))[::-1]:",
    "backwards: - return [p.register_hook(zero) for n, p in model.named_parameters() if n[-4:] == 'bias'] + return "
    "[p.register_hook(zero) for n, p in list(model.named_parameters())[::-1] if n[-4:] == 'bias']",
)


@freeze_biases.mistake(
    "You switched `requires_grad` off. That freezes them too, but leaves the model changed, and no handle can undo it."
)
def _(model):
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.requires_grad_(False)
    return []


@freeze_biases.mistake("You froze every parameter. Choose by the name: `name.endswith('bias')`.")
def _(model):
    return [parameter.register_hook(torch.zeros_like) for parameter in model.parameters()]


@freeze_biases.mistake(
    "You set the gradients to zero now; backward has not run yet and fills them again. A hook runs in time."
)
def _(model):
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.grad = torch.zeros_like(parameter)
    return []


@freeze_biases.mistake("Only the biases of the direct children are frozen: `named_parameters()` walks to every depth.")
def _(model):
    return [
        child.bias.register_hook(torch.zeros_like)
        for child in model.children()
        if getattr(child, "bias", None) is not None
    ]


@freeze_biases.mistake(
    "Only the model's own `bias` is frozen. That of a layer has more in front of its name, such as `0.bias`: look at "
    "the end of the name."
)
def _(model):
    return [parameter.register_hook(torch.zeros_like) for name, parameter in model.named_parameters() if name == "bias"]


@freeze_biases.mistake(
    "Biases of the model itself, such as `bias` and `in_proj_bias`, are missed: ask of every parameter whether its "
    "name ends in bias, with or without a dot before it."
)
def _(model):
    return [p.register_hook(torch.zeros_like) for name, p in model.named_parameters() if name.endswith(".bias")]


@freeze_biases.mistake(
    "A bias with another name than `bias`, such as `in_proj_bias`, is missed: look at the names' ends."
)
def _(model):
    found = [p for name, p in model.named_parameters() if name.split(".")[-1] == "bias"]
    return [parameter.register_hook(torch.zeros_like) for parameter in found]


@freeze_biases.mistake("A parameter such as `bias_scale` is frozen too, and it is no bias: look at the names' ends.")
def _(model):
    return [p.register_hook(torch.zeros_like) for name, p in model.named_parameters() if "bias" in name]


@freeze_biases.mistake(
    "Your hook writes into the gradient, which the parameters of a sum share: return a new tensor of zeros."
)
def _(model):
    return [p.register_hook(lambda grad: grad.zero_()) for name, p in model.named_parameters() if name.endswith("bias")]


@freeze_biases.mistake("A hook must return a tensor of the gradient's shape: a plain 0 will not do.")
def _(model):
    return [p.register_hook(lambda grad: 0) for name, p in model.named_parameters() if name.endswith("bias")]


@freeze_biases.mistake(
    "Your hook returns zeros of dtype float32, whatever the gradient is: `torch.zeros_like(grad)` has the same dtype."
)
def _(model):
    found = [p for name, p in model.named_parameters() if name.endswith("bias")]
    return [p.register_hook(lambda grad: torch.zeros(grad.shape)) for p in found]


@freeze_biases.mistake(
    "Your hook returns a tensor of another shape than the gradient's: `torch.zeros_like(grad)` has the same."
)
def _(model):
    found = [p for name, p in model.named_parameters() if name.endswith("bias")]
    return [parameter.register_hook(lambda grad: torch.tensor(0.0)) for parameter in found]


@freeze_biases.mistake(
    "The gradients stay as they are. Does your hook return zeros, and is it still on the parameter when backward runs?"
)
def _(model):
    return [p.register_hook(lambda grad: None) for name, p in model.named_parameters() if name.endswith("bias")]


@freeze_biases.mistake(
    "What you registered the hook on requires no gradient, as the tensors of `state_dict()` and `.data` do not. Take "
    "the parameters themselves, from `named_parameters()`."
)
def _(model):
    return [p.register_hook(torch.zeros_like) for name, p in model.state_dict().items() if name.endswith("bias")]


@freeze_biases.mistake("Return a list of what `register_hook` returns: no dict, and not the parameters.")
def _(model):
    found = [p for name, p in model.named_parameters() if name.endswith("bias")]
    for parameter in found:
        parameter.register_hook(torch.zeros_like)
    return found


@freeze_biases.mistake("The hooks work; their handles are lost. Collect them in a list and return it.")
def _(model):
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.register_hook(torch.zeros_like)


@exercise(
    lesson=1,
    points=2,
    hints=[
        "A hook may remove itself: it only needs its own handle.",
        "The inner function may use `handle` although it is assigned below it: it is looked up when the hook runs.",
        "`def once(grad): handle.remove(); return hook(grad)`, then `handle = tensor.register_hook(once)`",
    ],
)
def hook_once(tensor, hook):
    """Run `hook` on the first gradient that reaches `tensor`, and on no later one.

    What `hook` returns counts, as with `register_hook`. After the first backward no
    hook is left on `tensor`, not even if `hook` raised. Return nothing.
    """

    def once(grad):
        handle.remove()
        return hook(grad)

    handle = tensor.register_hook(once)


@hook_once.cases
def _(rng):
    calls = []

    def multiply(grad):
        calls.append(grad.clone())
        return grad * -1.5

    def look(grad):
        calls.append(grad.clone())

    def stop(grad):
        calls.append(grad.clone())
        return torch.zeros_like(grad)

    def fail(grad):
        calls.append(grad.clone())
        raise ValueError

    waiting = rng.leaf(2)
    hooks = (multiply, "multiplies by -1.5"), (look, "returns nothing"), (stop, "returns zeros")
    for hook, does in (*hooks, (multiply, "multiplies by -1.5"), (fail, "raises")):
        x, slope = rng.leaf(2), rng.quarters(2)
        tensor = x if does == "returns nothing" else x * 2

        def three_passes(_, x=x, tensor=tensor, slope=slope):
            found = {}
            for number in ("first", "second", "third"):
                with contextlib.suppress(ValueError):
                    (tensor * slope).sum().backward(retain_graph=True)
                found[f"x.grad in the {number} backward"], x.grad = x.grad, None
                found[f"the number of hooks on the tensor after the {number} backward"] = len(list_hooks(tensor))
            found["what `hook` was called with"] = list(calls)
            calls.clear()
            return found

        what = "a leaf x" if tensor is x else "tensor = 2x"
        yield Case({"tensor": tensor, "hook": hook}, three_passes, shown=f"{what} and a hook that {does}")

    def later_hook(_):
        waiting.register_hook(lambda grad: grad + 1)

    yield Case({"tensor": waiting, "hook": multiply}, later_hook, shown="a leaf z whose backward comes later")
    x = rng.leaf(2)

    def both(_):
        (3 * x).sum().backward()
        for _ in range(2):
            (waiting * slope).sum().backward()
        hooks = {"x": len(list_hooks(x)), "z": len(list_hooks(waiting))}
        return {"z.grad after two backwards": waiting.grad, "the number of hooks, with one more on z, then": hooks}

    yield Case({"tensor": x, "hook": multiply}, both, shown="a leaf x, after a leaf z that is still waiting,")


@hook_once.accept
def _(tensor, hook):
    handles = []

    def run(grad):
        handles.pop().remove()
        return hook(grad)

    handles.append(tensor.register_hook(run))


hook_once.equivalent(
    "The hook is gone after its first run, so that there is no second one.",
    "only once: + if getattr(once, 'has_run', False): + return None + once.has_run = True",
    "only once: + if getattr(run, 'has_run', False): + return None + run.has_run = True",
)


@hook_once.mistake("Your hook stays: it runs in every backward. Call `handle.remove()` inside it.")
def _(tensor, hook):
    tensor.register_hook(hook)


@hook_once.mistake(
    "`hook` never runs. Register it on `tensor` itself, and remove it from inside the hook, not before a backward ran."
)
def _(tensor, hook):
    handle = tensor.register_hook(hook)
    handle.remove()


@hook_once.mistake("Your hook calls `hook`, but what `hook` returned is lost: `return hook(grad)`.")
def _(tensor, hook):
    def once(grad):
        handle.remove()
        hook(grad)

    handle = tensor.register_hook(once)


@hook_once.mistake("It acts once, but the hook itself is left on the tensor and is called for ever: remove its handle.")
def _(tensor, hook):
    done = []

    def once(grad):
        if not done:
            done.append(True)
            return hook(grad)

    tensor.register_hook(once)


@hook_once.mistake(
    "If `hook` raises, your hook is left on the tensor. Call `handle.remove()` before you call `hook`, or in a "
    "`finally`."
)
def _(tensor, hook):
    def once(grad):
        new = hook(grad)
        handle.remove()
        return new

    handle = tensor.register_hook(once)


@hook_once.mistake(
    "After the first backward your hook is still on the tensor: remove its handle in its first run, not in a later one."
)
def _(tensor, hook):
    done = []

    def once(grad):
        if done:
            handle.remove()
            return None
        done.append(True)
        return hook(grad)

    handle = tensor.register_hook(once)


@hook_once.mistake("`hook` runs twice in the first backward. Keep what it returned in a variable.")
def _(tensor, hook):
    def once(grad):
        handle.remove()
        if hook(grad) is not None:
            return hook(grad)

    handle = tensor.register_hook(once)


@hook_once.mistake(
    "A second hook of yours is left on the tensor. One can do both: remove its own handle, then call `hook`."
)
def _(tensor, hook):
    handle = tensor.register_hook(hook)
    tensor.register_hook(lambda grad: handle.remove())


@hook_once.mistake("You called `hook` yourself, on the values. Register it; backward calls it with the gradient.")
def _(tensor, hook):
    hook(tensor.detach())


@exercise(
    lesson=1,
    points=2,
    hints=[
        "Every hook needs to know its own name. Which name does it see when it runs, long after the loop has ended?",
        "A lambda looks its variables up when it *runs*. Give the name as a default value, or make the hook in a "
        "function that has the name as its argument.",
        "`tensor.register_hook(lambda grad, name=name: seen.update({name: grad.clone()}))`",
    ],
)
def record_by_name(tensors):
    """Return a dict that will map each name in `tensors` (a dict of name to tensor)
    to a copy of its gradient.

    The dict is empty when you return it; backward fills it, in the order in which
    the gradients arrive. A later backward puts its gradients in place of the
    earlier ones; a name that gets none keeps the one it has.
    """
    seen = {}

    def recorder(name):
        def record(grad):
            seen[name] = grad.clone()

        return record

    for name, tensor in tensors.items():
        tensor.register_hook(recorder(name))
    return seen


@record_by_name.cases
def _(rng):
    w, x = rng.leaf(), rng.leaf()
    a, b = w + x, w + 1
    y = a * b

    earlier = []

    def arrived(seen):
        before = list(seen)
        earlier.append(seen)
        y.backward()
        return {
            "the names before backward": before,
            "the names, in order of arrival": list(seen),
            "w.grad": w.grad,
            "x.grad": x.grad,
        }

    given = {"w": w, "x": x, "a": a, "b": b, "y": y}
    yield Case({"tensors": given}, arrived, shown="the graph a = w + x, b = w + 1, y = a·b")
    leaf, slope = rng.leaf(2), rng.quarters(2)
    d = 3 * rng.leaf(2)
    h = leaf * 2
    e = h + d

    def two_passes(seen):
        for tensor in (leaf, h, d):
            tensor.register_hook(lambda grad: grad.mul_(100))
        (e * e).sum().backward(retain_graph=True)
        first = dict(seen)
        (e * slope).sum().backward()
        (w + 3 * x).backward()
        return {
            "what the first backward recorded": first,
            "the dict of the call before, after a backward of w + 3x,": earlier.pop(),
        }

    given = {"input": leaf, "hidden": h, "input again": leaf}
    shown = (
        "hidden = 2 · input in e = hidden + d, two backwards, and gradients that are changed in place after your hook"
    )
    yield Case({"tensors": given}, two_passes, shown=shown)


@record_by_name.accept
def _(tensors):
    seen = {}
    for name, tensor in tensors.items():
        tensor.register_hook(lambda grad, name=name: seen.update({name: grad.clone()}))
    return seen


@record_by_name.accept
def _(tensors):
    from functools import partial

    seen = {}

    def record(name, grad):
        seen[name] = grad.detach().clone()

    for name in tensors:
        tensors[name].register_hook(partial(record, name))
    return seen


record_by_name.equivalent(
    "The gradients arrive in the order of backward, in whichever order the hooks were registered.",
    "backwards: - for name, tensor in tensors.items(): + for name, tensor in list(tensors.items())[::-1]:",
    "backwards: - for name in tensors: + for name in list(tensors)[::-1]:",
)
record_by_name.equivalent(
    "The gradient that a hook gets has no graph of its own that a copy could keep alive.",
    "no detach: - seen[name] = grad.detach().clone() + seen[name] = grad.clone()",
    "mixed up: - seen[name] = grad.detach().clone() + seen[name] = grad.clone().clone()",
)


@record_by_name.mistake(
    "All gradients land under one name: a hook made in a loop looks `name` up when it runs, and by then the loop has "
    "ended. Bind it now: `lambda grad, name=name: ...`."
)
def _(tensors):
    seen = {}
    for name, tensor in tensors.items():
        tensor.register_hook(lambda grad: seen.update({name: grad.clone()}))  # noqa: B023 - this is the mistake
    return seen


@record_by_name.mistake(
    "You stored the gradients themselves. Whoever changes one in place later changes your record too: store "
    "`grad.clone()`."
)
def _(tensors):
    seen = {}
    for name, tensor in tensors.items():
        tensor.register_hook(lambda grad, name=name: seen.update({name: grad}))
    return seen


@record_by_name.mistake(
    "What you stored shares its memory with the gradient, as a detached tensor does. Whoever changes the gradient in "
    "place later changes your record too: store `grad.clone()`."
)
def _(tensors):
    seen = {}
    for name, tensor in tensors.items():
        tensor.register_hook(lambda grad, name=name: seen.update({name: grad.detach()}))
    return seen


@record_by_name.mistake(
    "You store what `.grad` holds, and these gradients are not in it yet. Store a copy of what the hook is given."
)
def _(tensors):
    seen = {}
    for name, tensor in tensors.items():
        tensor.register_hook(lambda grad, name=name, tensor=tensor: seen.update({name: tensor.grad}))
    return seen


@record_by_name.mistake("The gradients of the first backward stay. Those of a later backward have to take their place.")
def _(tensors):
    seen = {}

    def recorder(name):
        def record(grad):
            if name not in seen:
                seen[name] = grad.clone()

        return record

    for name, tensor in tensors.items():
        tensor.register_hook(recorder(name))
    return seen


@record_by_name.mistake("Only the first name is recorded. Does a `return` stand inside the loop?")
def _(tensors):
    seen = {}
    for name, tensor in tensors.items():
        tensor.register_hook(lambda grad: seen.update({name: grad.clone()}))  # noqa: B023 - it ends at once
        return seen


@record_by_name.mistake("A name is a string and has no hooks: the tensors are the values of the dict.")
def _(tensors):
    seen = {}
    for name in tensors:
        name.register_hook(lambda grad, name=name: seen.update({name: grad.clone()}))
    return seen


@record_by_name.mistake("You filled the dict at once from `.grad`, which is None until backward has run.")
def _(tensors):
    return {name: tensor.grad for name, tensor in tensors.items() if tensor.is_leaf}


@record_by_name.mistake(
    "Your dict stays empty: is a hook registered on each of the tensors, and does it fill this very dict?"
)
def _(tensors):
    return {}


@record_by_name.mistake("You stored the values of the tensors. The hook's argument is the gradient.")
def _(tensors):
    seen = {}
    for name, tensor in tensors.items():
        tensor.register_hook(lambda grad, name=name, tensor=tensor: seen.update({name: tensor.detach().clone()}))
    return seen


@record_by_name.mistake(
    "Your hook changes the gradients that go on. A hook that only looks returns nothing and does not write into `grad`."
)
def _(tensors):
    seen = {}

    def recorder(name):
        def record(grad):
            seen[name] = grad.clone()
            return torch.zeros_like(grad)

        return record

    for name, tensor in tensors.items():
        tensor.register_hook(recorder(name))
    return seen


@exercise(
    lesson=1,
    points=2,
    hints=[
        "One hook a tensor fires as soon as its own gradient is there. You need one that waits for all of them.",
        "`torch.autograd.graph.register_multi_grad_hook(tensors, f)` calls `f(grads)` once; a tensor that took no part "
        "has None in `grads`.",
        "In `f`: `total = sum(grad.pow(2).sum() for grad in grads if grad is not None)`, then append "
        "`total.sqrt().item()`",
    ],
)
def record_total_norm(tensors):
    """Return a list that will receive, once a backward, the norm of all gradients
    of `tensors` together.

    The norm is the square root of the sum of all squares, as a Python float. A
    tensor that took no part adds nothing.
    """
    norms = []

    def record(grads):
        total = sum(grad.pow(2).sum() for grad in grads if grad is not None)
        norms.append(total.sqrt().item())

    torch.autograd.graph.register_multi_grad_hook(tensors, record)
    return norms


@record_total_norm.cases
def _(rng):
    p, q = rng.leaf(2, 2), rng.leaf(3)
    slopes = rng.quarters(2, 2), rng.mixed(3)
    earlier = []

    def one_pass(norms):
        ((p * slopes[0]).sum() + (q * slopes[1]).sum()).backward()
        earlier.append(norms)

    yield Case({"tensors": [p, q]}, one_pass, shown="the leaves p and q of (p·s).sum() + (q·t).sum()")
    a, b, unused = rng.leaf(), rng.leaf(3), rng.leaf(2)
    h = 2 * b

    def three_passes(norms):
        before = list(norms)
        ((a * a).sum() + (h * slopes[1]).sum()).backward()
        first = list(norms)
        (a * 3).sum().backward()
        (a * 0).sum().backward()
        (p * 4).sum().backward()
        return {
            "your list before backward": before,
            "your list after the first backward": first,
            "a.grad": a.grad,
            "b.grad": b.grad,
            "the list of the call before, after a backward of p alone,": earlier.pop(),
        }

    shown = "a number a, u and h = 2b, where u takes no part; then two backwards of a alone, with the gradients 3 and 0"
    yield Case({"tensors": [a, unused, h]}, three_passes, shown=shown)


@record_total_norm.accept
def _(tensors):
    norms = []

    def record(grads):
        flat = torch.cat([grad.reshape(-1) for grad in grads if grad is not None])
        norms.append(float(torch.linalg.vector_norm(flat)))

    torch.autograd.graph.register_multi_grad_hook(tuple(tensors), record)
    return norms


record_total_norm.equivalent(
    "A sum is the same in whichever order its parts are added.",
    "backwards: - total = sum((grad.pow(2).sum() for grad in grads if grad is not None)) + total = "
    "sum((grad.pow(2).sum() for grad in list(grads)[::-1] if grad is not None))",
    "backwards: - flat = torch.cat([grad.reshape(-1) for grad in grads if grad is not None]) + flat = "
    "torch.cat([grad.reshape(-1) for grad in list(grads)[::-1] if grad is not None])",
)
record_total_norm.equivalent(
    "`register_multi_grad_hook` takes a list as well as a tuple.",
    "no call: - torch.autograd.graph.register_multi_grad_hook(tuple(tensors), record) + "
    "torch.autograd.graph.register_multi_grad_hook(tensors, record)",
)


@record_total_norm.mistake("One number a tensor: each has its own hook. Use one hook that waits for all gradients.")
def _(tensors):
    norms = []
    for tensor in tensors:
        tensor.register_hook(lambda grad: norms.append(grad.norm().item()))
    return norms


@record_total_norm.mistake("You add up the norms. Add up the squares and take the root of the sum.")
def _(tensors):
    norms = []

    def record(grads):
        norms.append(sum(grad.norm() for grad in grads if grad is not None).item())

    torch.autograd.graph.register_multi_grad_hook(tensors, record)
    return norms


@record_total_norm.mistake("The root is missing: the norm is the square root of the sum of squares.")
def _(tensors):
    norms = []

    def record(grads):
        norms.append(sum(grad.pow(2).sum() for grad in grads if grad is not None).item())

    torch.autograd.graph.register_multi_grad_hook(tensors, record)
    return norms


@record_total_norm.mistake("A tensor that took no part in the backward has None among the gradients: leave it out.")
def _(tensors):
    norms = []

    def record(grads):
        norms.append(sum(grad.pow(2).sum() for grad in grads).sqrt().item())

    torch.autograd.graph.register_multi_grad_hook(tensors, record)
    return norms


@record_total_norm.mistake("You stored a tensor. The list is for numbers: `.item()` makes one.")
def _(tensors):
    norms = []

    def record(grads):
        norms.append(sum(grad.pow(2).sum() for grad in grads if grad is not None).sqrt())

    torch.autograd.graph.register_multi_grad_hook(tensors, record)
    return norms


@record_total_norm.mistake("Your list stays empty: is a hook registered on the tensors, and does it fill this list?")
def _(tensors):
    return []


@record_total_norm.mistake(
    "You read `.grad`, and some gradients are not in it yet when your hook runs. Use those that the hook is given."
)
def _(tensors):
    norms = []

    def record(grads):
        norms.append(sum(each.grad.pow(2).sum().item() for each in tensors if each.grad is not None) ** 0.5)

    torch.autograd.graph.register_multi_grad_hook(tensors, record)
    return norms


@record_total_norm.mistake(
    "You count the gradients, and wait for one that never comes: a tensor may take no part. A hook for several "
    "tensors, `register_multi_grad_hook`, knows when all that come are there."
)
def _(tensors):
    norms, squares, tensors = [], [], list(tensors)

    def keep(grad):
        squares.append(grad.square().sum().item())
        if len(squares) == len(tensors):
            norms.append(sum(squares) ** 0.5)
            squares.clear()

    for tensor in tensors:
        tensor.register_hook(keep)
    return norms


@exercise(
    lesson=1,
    points=3,
    hints=[
        "`register_hook` runs before the gradient is added to `.grad`. Here you need the moment after.",
        "`parameter.register_post_accumulate_grad_hook(f)` calls `f(parameter)` when `parameter.grad` is complete.",
        "In `f`: change the values under `torch.no_grad()` with `parameter -= rate * parameter.grad`, then set "
        "`parameter.grad = None`.",
    ],
)
def step_in_backward(parameters, rate):
    """Make every parameter take a step of plain gradient descent during backward;
    return the list of handles.

    As soon as a parameter's `.grad` is complete, `rate` times this `.grad` is
    subtracted from the parameter's values in place, and its `.grad` is set to None,
    so that no two gradients are in memory at a time.
    """

    def step(parameter):
        with torch.no_grad():
            parameter -= rate * parameter.grad
        parameter.grad = None

    return [parameter.register_post_accumulate_grad_hook(step) for parameter in parameters]


@step_in_backward.cases
def _(rng):
    for rate in (0.5, 1):
        p, q = rng.leaf(2), rng.leaf(2)
        slope = rng.quarters(2)

        def train(handles, p=p, q=q, slope=slope):
            memory, grads, values = p.detach(), [], []

            def note(_):
                grads.append([p.grad, q.grad])
                values.append([p.detach().clone(), q.detach().clone()])

            own = [each.register_post_accumulate_grad_hook(note) for each in (p, q)]
            (p * slope + 3 * q).sum().backward()
            found = {
                "p after one backward": p.detach().clone(),
                "the memory that p had before": memory.clone(),
                "q after one backward": q.detach().clone(),
                "p.grad after one backward": p.grad,
                "q.grad after one backward": q.grad,
                "p.grad and q.grad after each of the two steps": grads,
                "p and q after each of the two steps": values,
            }
            (p * slope + p * q).sum().backward()
            found |= {"p after two backwards": p.detach().clone(), "q after two backwards": q.detach().clone()}
            for handle in (*handles, *own):
                handle.remove()
            (p * slope).sum().backward()
            return found | {"p after handle.remove() and another backward": p.detach().clone()}

        yield Case({"parameters": [p, q], "rate": rate}, train, shown=f"two leaves p and q, rate = {rate}")


@step_in_backward.accept
def _(parameters, rate):
    handles = []
    for parameter in parameters:

        def step(leaf):
            leaf.data.add_(leaf.grad, alpha=-rate)
            leaf.grad = None

        handles.append(parameter.register_post_accumulate_grad_hook(step))
    return handles


@step_in_backward.accept
def _(parameters, rate):
    def step(leaf):
        optimizer = torch.optim.SGD([leaf], lr=rate)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return [leaf.register_post_accumulate_grad_hook(step) for leaf in parameters]


step_in_backward.equivalent(
    "PyTorch records no graph while a backward runs, unless the backward itself is to be differentiated.",
    "no with: - with torch.no_grad(): - parameter -= rate * parameter.grad + parameter -= rate * parameter.grad",
)
step_in_backward.equivalent(
    "The task asks for a list of the handles in no particular order.",
    "backwards: - return [parameter.register_post_accumulate_grad_hook(step) for parameter in parameters] + return "
    "[parameter.register_post_accumulate_grad_hook(step) for parameter in list(parameters)[::-1]]",
    "backwards: - for parameter in parameters: + for parameter in list(parameters)[::-1]:",
    "backwards: - return [leaf.register_post_accumulate_grad_hook(step) for leaf in parameters] + return "
    "[leaf.register_post_accumulate_grad_hook(step) for leaf in list(parameters)[::-1]]",
)
step_in_backward.equivalent(
    "To set gradients to None is what `zero_grad` does unless it is told otherwise.",
    "an argument less: - optimizer.zero_grad(set_to_none=True) + optimizer.zero_grad()",
)


@step_in_backward.mistake(
    "Where your hook reads `.grad`, it is None. `register_hook` runs before `.grad` is filled, "
    "`register_post_accumulate_grad_hook` after it. In a loop, use the parameter that the hook is given: by then the "
    "loop's own name stands for the last one."
)
def _(parameters, rate):
    def step(parameter):
        with torch.no_grad():
            parameter -= rate * parameter.grad
        parameter.grad = None

    return [parameter.register_hook(step) for parameter in parameters]


@step_in_backward.mistake("`.grad` is still there afterwards, and the next backward adds to it: set it to None.")
def _(parameters, rate):
    def step(parameter):
        with torch.no_grad():
            parameter -= rate * parameter.grad

    return [parameter.register_post_accumulate_grad_hook(step) for parameter in parameters]


@step_in_backward.mistake("`.grad` is full of zeros afterwards, and still in memory: set it to None.")
def _(parameters, rate):
    def step(parameter):
        with torch.no_grad():
            parameter -= rate * parameter.grad
        parameter.grad.zero_()

    return [parameter.register_post_accumulate_grad_hook(step) for parameter in parameters]


@step_in_backward.mistake("Where your hook reads `.grad`, it is None. Set the parameter's to None only after the step.")
def _(parameters, rate):
    def step(parameter):
        parameter.grad = None
        parameter.data -= rate * parameter.grad

    return [parameter.register_post_accumulate_grad_hook(step) for parameter in parameters]


@step_in_backward.mistake(
    "Only the last parameter takes its steps. A hook made in a loop looks names up when it runs, and by then the loop "
    "has ended: use the parameter that the hook is given."
)
def _(parameters, rate):
    handles = []
    for parameter in parameters:

        def step(_):
            if parameter.grad is not None:  # noqa: B023 - this is the mistake
                parameter.data -= rate * parameter.grad  # noqa: B023
                parameter.grad = None  # noqa: B023

        handles.append(parameter.register_post_accumulate_grad_hook(step))
    return handles


@step_in_backward.mistake(
    "After backward each parameter has its old values and its gradient. Change the values in place: `parameter = "
    "parameter - ...` only gives the name inside your function to a new tensor."
)
def _(parameters, rate):
    def step(parameter):
        parameter = parameter - rate * parameter.grad
        parameter.grad = None

    return [parameter.register_post_accumulate_grad_hook(step) for parameter in parameters]


@step_in_backward.mistake(
    "A hook of `register_hook` runs before the gradient is in `.grad`, so that it is still there afterwards. Use "
    "`register_post_accumulate_grad_hook`."
)
def _(parameters, rate):
    handles = []
    for parameter in parameters:

        def step(grad, parameter=parameter):
            parameter.data -= rate * grad
            parameter.grad = None

        handles.append(parameter.register_hook(step))
    return handles


@step_in_backward.mistake(
    "The parameter gets new memory, as with `parameter.data = ...`; whoever shares the old memory keeps the old "
    "values. Change the values in place, as `-=` does."
)
def _(parameters, rate):
    def step(parameter):
        parameter.data = parameter.data - rate * parameter.grad
        parameter.grad = None

    return [parameter.register_post_accumulate_grad_hook(step) for parameter in parameters]


@step_in_backward.mistake("Your hook subtracts the values themselves: it is given the parameter, not the gradient.")
def _(parameters, rate):
    def step(parameter):
        parameter.data -= rate * parameter.data
        parameter.grad = None

    return [parameter.register_post_accumulate_grad_hook(step) for parameter in parameters]


@step_in_backward.mistake("This hook is given the parameter and nothing else. The gradient is the parameter's `.grad`.")
def _(parameters, rate):
    def step(parameter, grad):
        parameter.data -= rate * grad
        parameter.grad = None

    return [parameter.register_post_accumulate_grad_hook(step) for parameter in parameters]


@step_in_backward.mistake("You walk uphill: descent subtracts the gradient.")
def _(parameters, rate):
    def step(parameter):
        with torch.no_grad():
            parameter += rate * parameter.grad
        parameter.grad = None

    return [parameter.register_post_accumulate_grad_hook(step) for parameter in parameters]


@step_in_backward.mistake(
    "The parameter itself never changes. Change it in place, and set `.grad` to None only after that. "
    "(`parameter = parameter - ...` gives the name inside your function to a new tensor.)"
)
def _(parameters, rate):
    def step(parameter):
        grad, parameter.grad = parameter.grad, None
        parameter = parameter - rate * grad

    return [parameter.register_post_accumulate_grad_hook(step) for parameter in parameters]


@step_in_backward.mistake("You take the step now, before any backward. Register a hook that takes it.")
def _(parameters, rate):
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.data -= rate * parameter.grad
    return []
