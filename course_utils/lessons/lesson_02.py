"""Exercises and predictions of lesson 02: retain_grad or a hook."""

from __future__ import annotations

import itertools
from functools import partial

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from course_utils.exercises.cases import Case
from course_utils.exercises.engine import exercise, prediction
from course_utils.hooks.memory import measure_memory

# --- predictions ------------------------------------------------------------------------------------------------------

prediction(
    "around_retain_grad",
    lesson=2,
    question="z gets a hook that doubles, then retain_grad(), then a hook that multiplies by 10. The gradient arrives "
    "as [1, 2, 3, 4]. What is z.grad?",
    options={
        "[1, 2, 3, 4]": "That is what arrives. Both hooks have worked on it before it is kept.",
        "[2, 4, 6, 8]": "So it would be if `retain_grad` stood in the queue of hooks. But it always comes last.",
        "[10, 20, 30, 40]": "Both hooks run, in the order of their registration, wherever `retain_grad` was called.",
        "[20, 40, 60, 80]": "`retain_grad` keeps the gradient after all hooks, just as it is passed on.",
    },
    answer="[20, 40, 60, 80]",
    why="""
        `z.grad` is the same as `x.grad`: both hooks ran before the gradient was kept. `retain_grad` is not one more
        hook in the queue of hooks. It always comes last, wherever you call it. So `z.grad` is the gradient that `z`
        **passes on**, not the one that arrived.
    """,
    ask={
        "[1, 2, 3, 4]": "The cell printed `x.grad` too. Which hooks has that gradient passed, and is `z.grad` the same "
        "or another one?",
        "[2, 4, 6, 8]": "In the explorer, `retain_grad` stood between the two hooks, and then last. What was `z.grad` "
        "each time?",
        "[10, 20, 30, 40]": "For this result, one of the two hooks must not have run. Which one, and what would have "
        "stopped it?",
    },
)
prediction(
    "retain_then_change",
    lesson=2,
    question="retain_grad() is called on h, then h.mul_(10), then h.sum().backward(). What is each number in h.grad?",
    options={
        1: "`retain_grad` moves on with the tensor: `h.grad` is the gradient of the values that h has now.",
        10: "That is the gradient of the values that h had before. A hook registered then would see it.",
        "None": "A tensor changed in place still keeps its gradient.",
        "an error": "In-place changes are allowed here: nothing needs the old values of h.",
    },
    answer=1,
    why="""
        The hook stayed with the old values, whose gradient is 10. `retain_grad` moved on with the tensor: `h.grad` is
        1, the gradient of the values that `h` has **now**. This makes sense, because whoever reads `h` and `h.grad`
        side by side expects that the two belong together. In real networks, an in-place ReLU after a layer has the same
        effect.
    """,
    ask={
        10: "`h` has had two values. To which of them does the gradient 10 belong, and which one do you see if you "
        "print `h`?",
        "None": "Compare `h.mul_(10)` with `h = h * 10`. After which of the two is `h` still the tensor on which you "
        "called `retain_grad()`?",
        "an error": "Which operation would need the old values of `h` in backward: `3 * x`, `mul_(10)` or `sum()`?",
    },
)
prediction(
    "second_backward",
    lesson=2,
    question="z.retain_grad(), then o.backward(retain_graph=True), then o.backward(). The gradient of z is [1, 2, 3, "
    "4] each time. What is z.grad?",
    options={
        "[1, 2, 3, 4]": "So it would be if each backward replaced the last. It adds, as it does on a leaf.",
        "[2, 4, 6, 8]": "A kept gradient adds up over backward passes, just like the `.grad` of a leaf.",
        "None": "`retain_grad` lasts as long as the tensor; it is not used up by the first backward.",
    },
    answer="[2, 4, 6, 8]",
    why="""
        The gradients add up, as they do on a leaf. But `first`, which we took after the first pass, has not changed. On
        a result the sum is a new tensor, and the old one stays as it is. If you want the passes apart, set `z.grad =
        None` between them.
    """,
    ask={
        "[1, 2, 3, 4]": "What happens to the `.grad` of a weight if you call backward twice without `zero_grad()`?",
        "None": "After the first pass, `z.grad` held numbers. Which line of the cell would take them away?",
    },
)
prediction(
    "gradients_alive",
    lesson=2,
    question="16 activations of 1 MiB each, in a chain, without any hook. How many MiB of gradients are alive at the "
    "peak of backward?",
    options={
        1: "To compute the next gradient, the one before must still be there: two at a time.",
        2: "The gradient that arrives and the one computed from it. Then the first is freed.",
        16: "So it would be if all were kept. Each is freed as soon as the next one is computed.",
        17: "So it would be if all were kept, and the one of x besides.",
    },
    answer=2,
    why="""
        At any moment there are the gradient that arrived and the one that is computed from it. Then the first of the
        two is freed. This is the reason why PyTorch does not keep the gradients of results: a chain of a thousand
        layers would need no more than this one. (To be exact, there are 4 bytes more, for the gradient of `loss`.)
    """,
    ask={
        1: "While backward computes the gradient of activation 7, which other gradient does it still need?",
        16: "Backward has come to activation 3. Who still needs the gradient of activation 15?",
        17: "After backward, which of the 17 tensors has a `.grad` that you can read? What became of the other 16 "
        "gradients?",
    },
)
prediction(
    "slices_kept",
    lesson=2,
    question="each of 16 hooks keeps only grad[0], one row of 256. How many MiB of gradients are alive at the peak?",
    options={
        2: "So it should be. But `grad[0]` is a view: it keeps the memory of the whole gradient alive.",
        "2.06": "So it is for `grad[0].clone()`. `grad[0]` alone is a view into the whole gradient.",
        17: "Each view keeps its whole gradient of 1 MiB alive, and that of the leaf comes on top.",
    },
    answer=17,
    why="""
        `grad[0]` is a **view**. It has no memory of its own, and it keeps the memory of the whole gradient alive. A
        copy of the row takes 4 KiB, and 16 copies take the 0.06 MiB that you see in the second line. `detach()` would
        not help, because it makes a view too.
    """,
    ask={
        2: "Where in memory are the numbers of `grad[0]`? Can PyTorch free the other 255 rows while you keep this one?",
        "2.06": "To get 2.06 MiB, each row needs 4 KiB of its own. Which of the two hooks in the cell makes this new "
        "memory, and how?",
    },
)
prediction(
    "half_of_2049",
    lesson=2,
    question="y = x · x with x = 2049. The saved x is packed as float16. What is x.grad (4098 without packing)?",
    options={
        4098: "float16 has 11 binary digits: it cannot hold 2049.",
        4096: "float16 rounds 2049 to 2048, and 2 · 2048 = 4096. No error is raised, the number is just wrong.",
        "inf": "float16 ends at 65504; 2049 is still in its range, but not exactly.",
        "an error": "Rounding raises nothing.",
    },
    answer=4096,
    why="""
        float16 has 11 binary digits, so 2049 is rounded to 2048. The largest number of float16 is 65504, so 70000
        becomes inf. Its smallest number is about 6e-8, so 1e-8 becomes 0. bfloat16 has the range of float32 but only 8
        binary digits: nothing becomes inf or 0 here, but everything is rounded more. In no case was there an error.
    """,
    ask={
        4098: "Run `torch.tensor(2049.0).half()`. Which number comes out, and what is twice this number?",
        "inf": "Look at the row of float16. Under which x does it show inf, and what does it show under 2049?",
        "an error": "After `unpack`, with which number would PyTorch have to compare 2048? Is that number still kept "
        "for backward?",
    },
)
prediction(
    "patient_memory",
    lesson=2,
    question="the training notes grad.norm(), grad[0] and loss_of(net) after each step. Which note keeps the most "
    "memory alive?",
    options={
        "grad.norm()": "The norm is a tensor of its own with one number, so it keeps 8 bytes alive.",
        "grad[0]": "It keeps the whole gradient alive, but the gradient of this layer is small: 2 KiB.",
        "loss_of(net)": "This loss has a graph, and no backward ever frees what forward saved for it.",
        "all three the same": "They are all short to write, but different things hang on them.",
    },
    answer="loss_of(net)",
    why="""
        - `grad.norm()` is a new tensor with one number: 8 bytes.
        - `grad[0]` is a view, so the whole gradient of 2 KiB stays alive in each step.
        - `loss_of(net)` is one number too, but it is a **result**: it holds its graph, and the graph holds everything
          that forward saved. The loss in the training itself is harmless, because its backward frees what was saved.
          For this one nobody calls backward. So each step keeps about 328 KiB.

        `.item()` turns a loss or a norm into a plain number, and `.clone()` makes a copy of the row.
    """,
    ask={
        "grad.norm()": "How many numbers are in `grad.norm()`? Does it look at the memory of the gradient, or does it "
        "have its own?",
        "grad[0]": "The memory grows by about 330 KiB a step. How much of it is the gradient of `second.weight`, 16 · "
        "16 numbers of 8 bytes?",
        "all three the same": "Take the notes one by one. Which of them is a view, which has a `grad_fn`, and which "
        "has neither?",
    },
)

# --- exercises --------------------------------------------------------------------------------------------------------


@exercise(
    lesson=2,
    points=1,
    hints=[
        "After a plain backward only leaves have a `.grad`. What do you ask of the others, and when?",
        "`tensor.retain_grad()` must be called before backward. On a leaf it does nothing, so you may call it on all.",
        "Loop over `tensors.values()` and call `retain_grad()`; then backward from the last one; then "
        "`{name: tensor.grad for name, tensor in tensors.items()}`",
    ],
)
def gradients_of_all(tensors):
    """Run one backward from the last of `tensors` (a dict of name to tensor);
    return the gradients of all, by name.

    The dict holds leaves and results alike, and none has a gradient or a hook yet;
    the last one is a single number. Afterwards the graph is freed, as usual, and no
    hook of yours is left.
    """
    *_, last = tensors.values()
    for tensor in tensors.values():
        tensor.retain_grad()
    last.backward()
    return {name: tensor.grad for name, tensor in tensors.items()}


@gradients_of_all.cases
def _(rng):
    w, x = rng.leaf(), rng.leaf()
    a, b = w + x, w + 1
    y = a * b
    given = {"w": w, "x": x, "a": a, "b": b, "y": y}
    yield Case({"tensors": given}, _watch_passes(y), shown="the graph a = w + x, b = w + 1, y = a·b", fresh=True)
    x, w = rng.quarters(4).requires_grad_(), rng.quarters(4).requires_grad_()
    z, v = x * rng.quarters(4), 2 * w
    o = v @ z
    given = {"v": v, "z": z, "x": x, "w": w, "z again": z, "o": o}
    shown = "the graph z = x · factors, v = 2w, o = v · z, with z under two names"
    yield Case({"tensors": given}, _watch_passes(o), shown=shown, fresh=True)


def _watch_passes(result):
    """What to look at afterwards: how often backward came by `result`, and whether its graph is freed."""
    passes = []
    result.grad_fn.register_hook(lambda *_: passes.append(None))

    def look(_):
        freed = False
        try:
            result.grad_fn._saved_self  # noqa: B018 - reading it raises when backward has freed it
        except RuntimeError:
            freed = True
        return {"`backward ran exactly once`": len(passes) == 1, "`the graph is freed`": freed}

    return look


@gradients_of_all.accept
def _(tensors):
    seen, handles = {}, []
    for name, tensor in tensors.items():
        handles.append(tensor.register_hook(lambda grad, name=name: seen.update({name: grad.clone()})))
    tensors[list(tensors)[-1]].backward()
    for handle in handles:
        handle.remove()
    return seen


@gradients_of_all.accept
def _(tensors):
    values = list(tensors.values())
    return dict(zip(tensors, torch.autograd.grad(values[-1], values), strict=True))


gradients_of_all.equivalent(
    "The order plays no part: neither of calls nor of names.",
    "backwards: - for tensor in tensors.values(): + for tensor in list(tensors.values())[::-1]:",
    "backwards: - return {name: tensor.grad for name, tensor in tensors.items()} + return {name: "
    "tensor.grad for name, tensor in list(tensors.items())[::-1]}",
    "backwards: - for name, tensor in tensors.items(): + for name, tensor in list(tensors.items())[::-1]:",
    "backwards: - for handle in handles: + for handle in list(handles)[::-1]:",
)
gradients_of_all.equivalent(
    "Nobody else has a hook on the tensors, so nobody changes a gradient later.",
    "no clone: - handles.append(tensor.register_hook(lambda grad, name=name: seen.update({name: "
    "grad.clone()}))) + handles.append(tensor.register_hook(lambda grad, name=name: seen.update({name: "
    "grad})))",
    "mixed up: - handles.append(tensor.register_hook(lambda grad, name=name: seen.update({name: "
    "grad.clone()}))) + handles.append(tensor.register_hook(lambda grad, name=name: seen.update({name: "
    "grad.detach()})))",
)
gradients_of_all.equivalent(
    "There is one gradient for each name.",
    "an argument less: - return dict(zip(tensors, torch.autograd.grad(values[-1], values), strict=True)) "
    "+ return dict(zip(tensors, torch.autograd.grad(values[-1], values)))",
    "other constant: - return dict(zip(tensors, torch.autograd.grad(values[-1], values), strict=True)) + "
    "return dict(zip(tensors, torch.autograd.grad(values[-1], values), strict=False))",
)


@gradients_of_all.mistake(
    "The results have no gradient: `retain_grad()` must be called on each of them, and before backward. Afterwards it "
    "is too late."
)
def _(tensors):
    *_, last = tensors.values()
    last.backward()
    for tensor in tensors.values():
        tensor.retain_grad()
    return {name: tensor.grad for name, tensor in tensors.items()}


@gradients_of_all.mistake(
    "`retain_graph=True` keeps the graph for another backward, but no gradients. Call `retain_grad()` on each tensor."
)
def _(tensors):
    *_, last = tensors.values()
    last.backward(retain_graph=True)
    return {name: tensor.grad for name, tensor in tensors.items()}


@gradients_of_all.mistake("Only the last tensor keeps its gradient: call `retain_grad()` on every one.")
def _(tensors):
    *_, last = tensors.values()
    last.retain_grad()
    last.backward()
    return {name: tensor.grad for name, tensor in tensors.items()}


@gradients_of_all.mistake(
    "You run backward once for each tensor, and the gradients add up. One backward computes all of them."
)
def _(tensors):
    *_, last = tensors.values()
    for tensor in tensors.values():
        tensor.retain_grad()
        last.backward(retain_graph=True)
    return {name: tensor.grad for name, tensor in tensors.items()}


@gradients_of_all.mistake(
    "The gradients are right, and the graph is still there. Backward frees it unless it is told to keep it, by "
    "`retain_graph=True` or `create_graph=True`."
)
def _(tensors):
    *_, last = tensors.values()
    for tensor in tensors.values():
        tensor.retain_grad()
    last.backward(retain_graph=True)
    return {name: tensor.grad for name, tensor in tensors.items()}


@gradients_of_all.mistake("You returned the values of the tensors. Their gradients are in `.grad`.")
def _(tensors):
    *_, last = tensors.values()
    last.backward()
    return {name: tensor.detach() for name, tensor in tensors.items()}


@gradients_of_all.mistake(
    "You go back once for each tensor. One backward is enough: `torch.autograd.grad` takes all of them at once."
)
def _(tensors):
    last = list(tensors.values())[-1]
    return {name: torch.autograd.grad(last, tensor, retain_graph=True)[0] for name, tensor in tensors.items()}


@exercise(
    lesson=2,
    points=2,
    hints=[
        "Gradients arrive from the last activation to the first. Your list is in the other order.",
        "Make the list first, one None a tensor. Each hook must know its own place; a lambda looks its variables up "
        "when it runs, so bind the place: `lambda grad, place=place: ...`",
        "In the hook: `norms[place] = grad.norm().item()`, and no `return`.",
    ],
)
def record_norms(activations):
    """Return a list with a place for each tensor of `activations`: backward puts
    the norm of its gradient there.

    The order is that of `activations`. A norm is a Python float; a place is None
    until a gradient has come by, and a later backward replaces it. No gradient is
    kept, and none is changed.
    """
    norms = [None] * len(activations)

    def recorder(place):
        def record(grad):
            norms[place] = grad.norm().item()

        return record

    for place, activation in enumerate(activations):
        activation.register_hook(recorder(place))
    return norms


@record_norms.cases
def _(rng):
    def kept(activations):
        return {"`retains_grad` of the activations": [each.retains_grad for each in activations]}

    x, factor = rng.leaf(2, 3), rng.integer(2, 4)
    first = factor * x
    second = first * rng.quarters(2, 3)
    third = second.sum(0) + 1
    chain, slope = [first, second, third], rng.quarters(3)

    def backward(norms, x=x):
        before = list(norms)
        (third * slope).sum().backward()
        return {"the list before backward": before, "x.grad": x.grad} | kept(chain)

    yield Case({"activations": chain}, backward, shown="a chain of three activations")
    leaf, slope_of_other = rng.leaf(2), rng.mixed(2)
    used, other, unused = 2 * leaf, 3 * leaf, 5 * leaf
    given = [leaf, unused, used, other, used]

    def thrice(norms):
        gradients = []
        used.register_hook(lambda grad: gradients.append(StorageWeakRef(grad.untyped_storage())))
        (other * slope_of_other + used * slope_of_other * 3).sum().backward(retain_graph=True)
        first = list(norms)
        (used * 0).sum().backward(retain_graph=True)
        second = list(norms)
        (used * 2).sum().backward()
        freed = {"`the gradients are freed`": all(each.expired() for each in gradients)}
        lists = {"the list after the first backward": first, "the list after the second backward": second}
        return lists | {"leaf.grad": leaf.grad} | freed | kept(given)

    shown = (
        "[leaf, unused, used, other, used] and three backwards, the last two from `used` alone, with gradients 0 and 2,"
    )
    yield Case({"activations": given}, thrice, shown=shown)


@record_norms.accept
def _(activations):
    norms = [None for _ in activations]
    for place, activation in enumerate(activations):
        activation.register_hook(
            lambda grad, place=place: norms.__setitem__(place, float(torch.linalg.vector_norm(grad)))
        )
    return norms


@record_norms.accept
def _(activations):
    def note(place, grad):
        norms[place] = grad.pow(2).sum().sqrt().item()
        return grad

    norms = [None] * len(activations)
    for place in range(len(activations)):
        activations[place].register_hook(partial(note, place))
    return norms


record_norms.equivalent(
    "The hooks may be registered in any order, since each has its place.",
    "backwards: - for place, activation in enumerate(activations): + for place, activation in "
    "list(enumerate(activations))[::-1]:",
    "backwards: - for place in range(len(activations)): + for place in list(range(len(activations)))[::-1]:",
    "backwards: - norms = [None for _ in activations] + norms = [None for _ in list(activations)[::-1]]",
)
record_norms.equivalent(
    "A hook that returns nothing and one that returns its argument leave the gradient as it is.",
    "no return: - activation.register_hook(lambda grad, place=place: norms.__setitem__(place, "
    "float(torch.linalg.vector_norm(grad)))) + activation.register_hook(lambda grad, place=place: "
    "(norms.__setitem__(place, float(torch.linalg.vector_norm(grad))), None)[1])",
    "no return: - return grad + grad",
)


@record_norms.mistake(
    "You append as the gradients arrive: from the last activation to the first. Give each tensor its own place."
)
def _(activations):
    norms = []
    for activation in activations:
        activation.register_hook(lambda grad: norms.append(grad.norm().item()))
    return norms


@record_norms.mistake(
    "All norms land in the last place. A hook made in a loop looks the loop's variables up when it runs, and by then "
    "the loop has ended. Bind the place when you make the hook: `lambda grad, place=place: ...`."
)
def _(activations):
    norms = [None] * len(activations)
    for place, activation in enumerate(activations):
        activation.register_hook(lambda grad: norms.__setitem__(place, grad.norm().item()))  # noqa: B023 - the mistake
    return norms


@record_norms.mistake(
    "Your hook returns the norm, and what a hook returns replaces the gradient. Store it and return nothing."
)
def _(activations):
    norms = [None] * len(activations)

    def recorder(place):
        def record(grad):
            norm = grad.norm()
            norms[place] = norm.item()
            return norm

        return record

    for place, activation in enumerate(activations):
        activation.register_hook(recorder(place))
    return norms


@record_norms.mistake(
    "You also called `retain_grad()`, which keeps every gradient whole: that is the memory you wanted to save."
)
def _(activations):
    norms = [None] * len(activations)
    for place, activation in enumerate(activations):
        activation.retain_grad()
        activation.register_hook(lambda grad, place=place: norms.__setitem__(place, grad.norm().item()))
    return norms


@record_norms.mistake(
    "The norms are right, and something of yours keeps the gradients themselves: keep only the numbers."
)
def _(activations):
    norms, gradients = [None] * len(activations), [None] * len(activations)

    def recorder(place):
        def record(grad):
            gradients[place] = grad
            norms[place] = grad.norm().item()

        return record

    for place, activation in enumerate(activations):
        activation.register_hook(recorder(place))
    return norms


@record_norms.mistake(
    "You run a backward yourself, and it frees the graph that your caller needs. Return the list: backward comes later."
)
def _(activations):
    norms = [None] * len(activations)
    for place, activation in enumerate(activations):
        activation.register_hook(lambda grad, place=place: norms.__setitem__(place, grad.norm().item()))
    activations[-1].sum().backward()
    return norms


@record_norms.mistake("You stored a tensor. One number takes `.item()`.")
def _(activations):
    norms = [None] * len(activations)
    for place, activation in enumerate(activations):
        activation.register_hook(lambda grad, place=place: norms.__setitem__(place, grad.norm()))
    return norms


@record_norms.mistake("You stored the norm of the values. The hook's argument is the gradient.")
def _(activations):
    norms = [None] * len(activations)
    for place, activation in enumerate(activations):
        value = activation.detach().norm().item()
        activation.register_hook(lambda grad, place=place, value=value: norms.__setitem__(place, value))
    return norms


@exercise(
    lesson=2,
    points=2,
    hints=[
        "Which of two hooks on one tensor runs first? And when does `retain_grad` keep the gradient?",
        "Register your own hook before `hooks`; it stores a copy of what arrives. Where you call `retain_grad()` does "
        "not matter.",
        "`tensor.register_hook(lambda grad: arrived.append(grad.clone()))`, then a loop that registers `hooks`, then "
        "`tensor.retain_grad()`.",
    ],
)
def arrived_and_passed_on(tensor, hooks):
    """Register `hooks` on `tensor`, in their order, and make both ends of this queue
    visible.

    Return a list that will receive a copy of each gradient as it arrives, before
    the first of `hooks`. `tensor.grad` keeps the gradient as it is passed on, after
    the last of them.
    """
    arrived = []
    tensor.register_hook(lambda grad: arrived.append(grad.clone()))
    for hook in hooks:
        tensor.register_hook(hook)
    tensor.retain_grad()
    return arrived


@arrived_and_passed_on.cases
def _(rng):
    def double(grad):
        return grad * 2

    def add_one(grad):
        return grad + 1

    def negate_in_place(grad):
        grad.neg_()

    for hooks, shown in (
        ([double, add_one], "two hooks: ·2, then +1"),
        ([add_one, None, double], "three hooks: +1, then one that returns nothing, then ·2"),
        (
            [negate_in_place, double, double],
            "three hooks: one that changes the gradient in place, then twice the same one, ·2",
        ),
        ([], "no hooks at all"),
    ):
        seen = []
        x, slope = rng.leaf(2), rng.quarters(2)
        h = 3 * x

        def look(grad, seen=seen):
            seen.append(grad.clone())

        def backward(_, x=x, h=h, slope=slope, seen=seen):
            (h * slope).sum().backward(retain_graph=True)
            first = h.grad if h.grad is None else h.grad.clone()
            (h * slope * 3).sum().backward()
            return {
                "after the first backward tensor.grad": first,
                "after the second backward tensor.grad": h.grad,
                "what the hook that returns nothing saw": seen,
                "the gradient that reached x": x.grad,
            }

        given = {"tensor": h, "hooks": [hook or look for hook in hooks]}
        yield Case(given, backward, shown=f"{shown}; two backwards")


@arrived_and_passed_on.accept
def _(tensor, hooks):
    arrived = []
    tensor.retain_grad()  # wherever it is called, it comes last

    def keep(grad):
        arrived.append(grad.detach().clone())
        return grad

    for hook in [keep, *hooks]:
        tensor.register_hook(hook)
    return arrived


arrived_and_passed_on.equivalent(
    "A hook that returns nothing and one that returns its argument leave the gradient as it is.",
    "no return: - return grad + grad",
)
arrived_and_passed_on.equivalent(
    "The task does not ask for a copy without a graph, and a gradient has one only with `create_graph=True`.",
    "no detach: - arrived.append(grad.detach().clone()) + arrived.append(grad.clone())",
    "mixed up: - arrived.append(grad.detach().clone()) + arrived.append(grad.clone().clone())",
)


@arrived_and_passed_on.mistake(
    "What you stored is what the others have made of the gradient. Register your own hook on `tensor`, before them."
)
def _(tensor, hooks):
    arrived = []
    for hook in hooks:
        tensor.register_hook(hook)
    tensor.register_hook(lambda grad: arrived.append(grad.clone()))
    tensor.retain_grad()
    return arrived


@arrived_and_passed_on.mistake("`tensor.grad` is None: `tensor` is not a leaf, so ask for it with `retain_grad()`.")
def _(tensor, hooks):
    arrived = []
    tensor.register_hook(lambda grad: arrived.append(grad.clone()))
    for hook in hooks:
        tensor.register_hook(hook)
    return arrived


@arrived_and_passed_on.mistake(
    "What you stored shares its memory with the gradient, and one of the hooks changes that in place afterwards: store "
    "`grad.clone()`."
)
def _(tensor, hooks):
    arrived = []
    tensor.register_hook(arrived.append)
    for hook in hooks:
        tensor.register_hook(hook)
    tensor.retain_grad()
    return arrived


@arrived_and_passed_on.mistake(
    "You read `tensor.grad` inside a hook. It is filled after all hooks have run: use the argument of the hook."
)
def _(tensor, hooks):
    arrived = []
    tensor.retain_grad()
    tensor.register_hook(lambda grad: arrived.append(tensor.grad))
    for hook in hooks:
        tensor.register_hook(hook)
    return arrived


@arrived_and_passed_on.mistake(
    "None of `hooks` works on the gradient: register each of them on `tensor`, and leave it there."
)
def _(tensor, hooks):
    arrived = []
    tensor.register_hook(lambda grad: arrived.append(grad.clone()))
    tensor.retain_grad()
    return arrived


@arrived_and_passed_on.mistake(
    "A hook that returns nothing keeps the gradient. You hand its None to the next: register each of `hooks` by "
    "itself, and torch does that for you."
)
def _(tensor, hooks):
    arrived = []
    tensor.retain_grad()

    def run(grad):
        arrived.append(grad.clone())
        for hook in hooks:
            grad = hook(grad)
        return grad

    tensor.register_hook(run)
    return arrived


@exercise(
    lesson=2,
    points=2,
    hints=[
        "A hook belongs to the values that the tensor has when you register it. You need two hooks, at two moments.",
        "`tensor.mul_(factor)` is the in-place product, and autograd follows it. One hook goes before it, one after.",
        'Before: `tensor.register_hook(lambda grad: grads.update(before=grad.clone()))`. After: the same with "after".',
    ],
)
def multiply_in_place(tensor, factor):
    """Multiply `tensor` by `factor` in place; return a dict that backward will fill
    with two gradients.

    Under "before" is a copy of the gradient of the values that `tensor` came with,
    under "after" a copy of that of the values it has now. A later backward replaces
    both.
    """
    grads = {}
    tensor.register_hook(lambda grad: grads.update(before=grad.clone()))
    tensor.mul_(factor)
    tensor.register_hook(lambda grad: grads.update(after=grad.clone()))
    return grads


@multiply_in_place.cases
def _(rng):
    for factors, change, shown in (
        ((0.25, 0.75, 1.5, 3), 1, ""),
        ((-2.5, -0.75, -0.5), 10, ", and hooks that change the gradients in place afterwards"),
    ):
        x, factor, slope = rng.leaf(2), rng.choice(factors), rng.quarters(2)
        sibling, h = 2 * rng.leaf(2), x + rng.whole(2)
        values = f"tensor = {h.tolist()}, factor = {factor}"

        def backward(grads, x=x, h=h, sibling=sibling, slope=slope, change=change):
            if change != 1:
                for tensor in (
                    x,
                    sibling,
                ):  # sums pass the gradients of h, of its old and its new values, to these, too
                    tensor.register_hook(lambda grad: grad.mul_(change))
            later = []
            h.register_hook(lambda grad: later.append(grad.clone()))
            ((h + sibling) * slope).sum().backward(retain_graph=True)
            first = dict(grads)
            ((h + sibling) * slope * 3).sum().backward()
            return {
                "after the first of two backwards the dict": first,
                "what a later hook on tensor saw": later,
                "the gradient that reached x": x.grad,
            }

        yield Case({"tensor": h, "factor": factor}, backward, shown=values + shown)
    x, factor, slope = rng.leaf(2), rng.choice((0.25, 0.75, 3)), rng.quarters(2)
    h = x + rng.whole(2)
    other = h + 1

    def both_ways(_, x=x, h=h, other=other, slope=slope):
        (h * slope + 2 * other).sum().backward()
        return {"the gradient that reached x": x.grad}

    shown = "and the old values are used elsewhere, too"
    yield Case({"tensor": h, "factor": factor}, both_ways, shown=f"tensor = {h.tolist()}, factor = {factor}, {shown}")


@multiply_in_place.accept
def _(tensor, factor):
    grads = {}

    def keep(key, grad):
        grads[key] = grad.detach().clone()

    tensor.register_hook(partial(keep, "before"))
    tensor *= factor
    tensor.register_hook(partial(keep, "after"))
    return grads


multiply_in_place.equivalent(
    "The task does not ask for a copy without a graph, and a gradient has one only with `create_graph=True`.",
    "no detach: - grads[key] = grad.detach().clone() + grads[key] = grad.clone()",
    "mixed up: - grads[key] = grad.detach().clone() + grads[key] = grad.clone().clone()",
)


@multiply_in_place.mistake(
    "Both gradients are those of the old values: a hook that is registered before the change belongs to them. Register "
    "another one after it."
)
def _(tensor, factor):
    grads = {}
    tensor.register_hook(lambda grad: grads.update(before=grad.clone()))
    tensor.register_hook(lambda grad: grads.update(after=grad.clone()))
    tensor.mul_(factor)
    return grads


@multiply_in_place.mistake(
    "Both gradients are those of the new values: a hook that is registered after the change belongs to them. Register "
    "another one before it."
)
def _(tensor, factor):
    grads = {}
    tensor.mul_(factor)
    tensor.register_hook(lambda grad: grads.update(before=grad.clone()))
    tensor.register_hook(lambda grad: grads.update(after=grad.clone()))
    return grads


@multiply_in_place.mistake(
    "The product is a new tensor, and your caller's keeps its values. Change `tensor` itself, with `mul_`."
)
def _(tensor, factor):
    grads = {}
    tensor.register_hook(lambda grad: grads.update(before=grad.clone()))
    tensor = tensor * factor
    tensor.register_hook(lambda grad: grads.update(after=grad.clone()))
    return grads


@multiply_in_place.mistake(
    "You changed the values behind autograd's back (.data, .detach(), torch.no_grad()), so the factor is missing in "
    "every gradient that comes later in backward. Multiply `tensor` itself, where autograd can see it."
)
def _(tensor, factor):
    grads = {}
    tensor.register_hook(lambda grad: grads.update(before=grad.clone()))
    with torch.no_grad():
        tensor.mul_(factor)
    tensor.register_hook(lambda grad: grads.update(after=grad.clone()))
    return grads


@multiply_in_place.mistake(
    "The two gradients are the wrong way round: the hook registered before the change belongs to the old values."
)
def _(tensor, factor):
    grads = {}
    tensor.register_hook(lambda grad: grads.update(after=grad.clone()))
    tensor.mul_(factor)
    tensor.register_hook(lambda grad: grads.update(before=grad.clone()))
    return grads


@multiply_in_place.mistake(
    "You stored the gradients themselves, and what somebody changes in place afterwards changes in your dict, too: "
    "store `grad.clone()`."
)
def _(tensor, factor):
    grads = {}
    tensor.register_hook(lambda grad: grads.update(before=grad))
    tensor.mul_(factor)
    tensor.register_hook(lambda grad: grads.update(after=grad))
    return grads


@multiply_in_place.mistake(
    "You read `.grad` now, and backward has not run yet. Let hooks fill the dict when the gradients arrive."
)
def _(tensor, factor):
    tensor.retain_grad()
    before = tensor.grad
    tensor.mul_(factor)
    return {"before": before, "after": tensor.grad}


@multiply_in_place.mistake(
    'Nothing arrives under "before". Register its hook on `tensor` itself, before the change, and leave it there: a '
    "copy of it takes no part in backward."
)
def _(tensor, factor):
    grads, old = {}, tensor.clone()
    old.register_hook(lambda grad: grads.update(before=grad.clone()))
    tensor.mul_(factor)
    tensor.register_hook(lambda grad: grads.update(after=grad.clone()))
    return grads


@multiply_in_place.mistake(
    "Both gradients stay None: the hooks have to write into the dict that you return, and they run only in backward."
)
def _(tensor, factor):
    before = after = None

    def keep_before(gradient):
        nonlocal before
        before = gradient.clone()

    def keep_after(gradient):
        nonlocal after
        after = gradient.clone()

    tensor.register_hook(keep_before)
    tensor.mul_(factor)
    tensor.register_hook(keep_after)
    return {"before": before, "after": after}


@multiply_in_place.mistake(
    "You run a backward yourself, and it frees the graph that your caller needs. Return the dict: backward comes later."
)
def _(tensor, factor):
    grads = {}
    tensor.register_hook(lambda grad: grads.update(before=grad.clone()))
    tensor.mul_(factor)
    tensor.register_hook(lambda grad: grads.update(after=grad.clone()))
    tensor.sum().backward()
    return grads


@multiply_in_place.mistake(
    'Under "after" stands what `tensor.grad` is now, which is None: backward has not run yet. A hook can put it there.'
)
def _(tensor, factor):
    grads = {}
    tensor.register_hook(lambda grad: grads.update(before=grad.clone()))
    tensor.mul_(factor)
    tensor.retain_grad()
    grads["after"] = tensor.grad
    return grads


@multiply_in_place.mistake(
    "You work the one gradient out from the other. What uses the old values elsewhere adds to their gradient: let a "
    "hook that is registered before the change see it."
)
def _(tensor, factor):
    grads = {}
    tensor.mul_(factor)
    tensor.register_hook(lambda grad: grads.update(before=grad * factor, after=grad.clone()))
    return grads


@exercise(
    lesson=2,
    points=2,
    hints=[
        "`grad[0]` looks small. Whose memory are its numbers in?",
        "A view keeps the storage of the whole tensor alive. A copy of the view has a storage of its own.",
        "`tensor.register_hook(lambda grad: rows.append(grad[0].clone()))`",
    ],
)
def keep_first_row(tensor):
    """Return a list that will receive a copy of the first row of each gradient of
    `tensor`, which has two dimensions: a tensor for each backward.

    The list keeps those rows alive and nothing else: not one byte of the other
    rows.
    """
    rows = []
    tensor.register_hook(lambda grad: rows.append(grad[0].clone()))
    return rows


@keep_first_row.cases
def _(rng):
    def kept_bytes(rows):
        tensors = [row for row in rows if isinstance(row, torch.Tensor)] if isinstance(rows, list) else []
        storages = {row.untyped_storage().data_ptr(): row.untyped_storage().nbytes() for row in tensors}
        return {"the number of bytes that the list keeps alive": sum(storages.values())}

    for shape, dtype in (((3, 2), torch.float32), ((2, 4), torch.float64)):
        x, slope = rng.leaf(*shape), rng.quarters(*shape)
        h = 2 * x.to(dtype)

        def backward(rows, x=x, h=h, slope=slope):
            gradients = []
            h.register_hook(lambda grad: gradients.append(StorageWeakRef(grad.untyped_storage())))
            (h * slope).sum().backward(retain_graph=True)
            (h * slope / 3).sum().backward()
            freed = {"`the gradients are freed`": all(each.expired() for each in gradients)}
            return kept_bytes(rows) | freed | {"the gradient that reached x": x.grad}

        name = str(dtype).removeprefix("torch.")
        yield Case({"tensor": h}, backward, shown=f"a {name} tensor of shape {shape} and two backwards")
    x, slope = rng.leaf(1, 3), rng.quarters(1, 3)
    h = 2 * x

    def changed_later(rows):
        h.register_hook(lambda grad: grad.mul_(100))
        (h * slope).sum().backward()
        return kept_bytes(rows) | {"the gradient that reached x": x.grad}

    yield Case(
        {"tensor": h}, changed_later, shown="a tensor of one row whose gradient is changed in place after your hook"
    )


@keep_first_row.accept
def _(tensor):
    rows = []

    def keep(grad):
        rows.append(torch.empty_like(grad[0]).copy_(grad[0]))
        return grad

    tensor.register_hook(keep)
    return rows


@keep_first_row.accept
def _(tensor):
    rows = []
    tensor.register_hook(lambda grad: rows.append(torch.tensor(grad[0].tolist(), dtype=grad.dtype)))
    return rows


keep_first_row.equivalent(
    "A hook that returns nothing and one that returns its argument leave the gradient as it is.",
    "no return: - return grad + grad",
)
keep_first_row.equivalent(
    "All rows have the same shape and dtype, and the numbers are overwritten.",
    "other constant: - rows.append(torch.empty_like(grad[0]).copy_(grad[0])) + "
    "rows.append(torch.empty_like(grad[-1]).copy_(grad[0]))",
)
keep_first_row.equivalent(
    "`torch.tensor` copies a tensor just as it copies a list.",
    "no tolist: - tensor.register_hook(lambda grad: rows.append(torch.tensor(grad[0].tolist(), "
    "dtype=grad.dtype))) + tensor.register_hook(lambda grad: rows.append(torch.tensor(grad[0], "
    "dtype=grad.dtype)))",
)


@keep_first_row.mistake(
    "`grad[0]` is a view: it keeps the memory of the whole gradient alive, and changes with it. Copy the row: "
    "`grad[0].clone()`."
)
def _(tensor):
    rows = []
    tensor.register_hook(lambda grad: rows.append(grad[0]))
    return rows


@keep_first_row.mistake(
    "You copy the whole gradient and then take a view of the copy, which keeps all of the copy alive. The other way "
    "round: `grad[0].clone()`."
)
def _(tensor):
    rows = []
    tensor.register_hook(lambda grad: rows.append(grad.clone()[0]))
    return rows


@keep_first_row.mistake(
    "Nothing reaches your list. Put the hook on `tensor` itself, with `register_hook`, and leave it there: `tensor[0]` "
    "is a new tensor, which takes no part in backward."
)
def _(tensor):
    rows = []
    tensor[0].register_hook(lambda grad: rows.append(grad.clone()))
    return rows


@keep_first_row.mistake("You also called `retain_grad()`, which keeps every gradient whole.")
def _(tensor):
    rows = []
    tensor.retain_grad()
    tensor.register_hook(lambda grad: rows.append(grad[0].clone()))
    return rows


@keep_first_row.mistake(
    "Your hook returns the row, and what a hook returns replaces the gradient. Store it and return nothing."
)
def _(tensor):
    rows = []

    def keep(grad):
        row = grad[0].clone()
        rows.append(row)
        return row

    tensor.register_hook(keep)
    return rows


@keep_first_row.mistake("You kept a list of numbers. The task asks for a tensor: `grad[0].clone()`.")
def _(tensor):
    rows = []
    tensor.register_hook(lambda grad: rows.append(grad[0].tolist()))
    return rows


@keep_first_row.mistake("`grad[:1]` has two dimensions, one row of them. `grad[0]` is the row itself.")
def _(tensor):
    rows = []
    tensor.register_hook(lambda grad: rows.append(grad[:1].clone()))
    return rows


@keep_first_row.mistake("That is the first column, `grad[:, 0]`. The first row is `grad[0]`.")
def _(tensor):
    rows = []
    tensor.register_hook(lambda grad: rows.append(grad[:, 0].clone()))
    return rows


@keep_first_row.mistake("Each backward throws away the row of the one before. Add to the list: `append`.")
def _(tensor):
    rows = []

    def keep(grad):
        rows[:] = [grad[0].clone()]

    tensor.register_hook(keep)
    return rows


@exercise(
    lesson=2,
    points=2,
    hints=[
        "`pack` is called with every tensor that forward saves. It may simply take note and return the tensor itself.",
        "Two saved tensors may share one storage. `tensor.untyped_storage()` has `.data_ptr()` to recognise it by and "
        "`.nbytes()` for its size.",
        "In `pack`: `sizes[storage.data_ptr()] = storage.nbytes()`, then `return tensor`. At the end: "
        "`sum(sizes.values())`.",
    ],
)
def count_saved_bytes(function, x):
    """Run `function(x)`, once, and return how many bytes of memory it keeps for
    backward, as an int.

    Each storage counts once and whole, however many saved tensors lie in it.
    `saved_tensors_hooks` shows you what is saved; a backward, in `function` or later,
    must find it unchanged. No hook stays on, not even if `function` raises an error.
    """
    sizes = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(x)  # noqa: F841 - while the result lives, no storage's address is used again
    return sum(sizes.values())


@count_saved_bytes.cases
def _(rng):
    def chain(x):
        for _ in range(3):
            x = torch.tanh(x)
        return x

    def use_a_gradient(x):
        (slope,) = torch.autograd.grad((x * x).sum(), x)
        return x * slope * x

    count, places = rng.integer(3, 9), torch.tensor([rng.integer(0, 1) for _ in range(3)])
    outer, weight = rng.leaf(count), rng.leaf(count)
    for function, x, shown in (
        (lambda x: x * outer, outer, f"x * x, {count} numbers"),
        (chain, rng.leaf(2, 3), "three times tanh, a (2, 3) tensor"),
        (
            lambda x: (x[0] * x[1])[places],
            rng.leaf(4, 3),
            "(x[0] * x[1])[places], a (4, 3) tensor and 3 places (int64)",
        ),
        (torch.exp, rng.whole(3).double().requires_grad_(), "exp, 3 float64 numbers"),
        (use_a_gradient, rng.leaf(3), "x * slope * x with slope from a backward of its own, 3 numbers"),
        (lambda x: x * weight, rng.whole(count), f"x * weight, {count} numbers, where x requires no gradient"),
        (lambda x: x + 1, rng.leaf(3), "x + 1"),
    ):
        results = []

        def function_kept(x, function=function, results=results):
            results.append(function(x))
            return results[-1]

        def backward(count, results=results):
            for result in results[-1:]:
                result.sum().backward()
            left = 0
            while torch._C._autograd._top_saved_tensors_default_hooks(True):
                torch._C._autograd._pop_saved_tensors_default_hooks()
                left += 1
            return {
                "the number of saved_tensors_hooks that are still on": left,
                "`function(x) ran exactly once`": len(results) == 1,
                "the type of what you returned": type(count).__name__,
            }

        yield Case({"function": function_kept, "x": x}, backward, shown=f"{shown}, and a backward afterwards")

    def refuse(x):
        raise ValueError("this function has had enough")

    yield Case({"function": refuse, "x": rng.leaf(2)}, shown="a function that raises a ValueError")


@count_saved_bytes.accept
def _(function, x):
    saved = []

    def pack(tensor):
        saved.append(tensor)
        return len(saved) - 1

    with saved_tensors_hooks(pack, saved.__getitem__):
        function(x)
    return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in saved}.values())


@count_saved_bytes.accept
def _(function, x):
    seen, total = {}, 0

    def pack(tensor):
        nonlocal total
        key = tensor.untyped_storage()._cdata
        if key not in seen:
            seen[key] = tensor
            total += tensor.untyped_storage().size()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        function(x)
    return total


count_saved_bytes.equivalent(
    "A storage that lives has one Python object, and the dict keeps it alive.",
    "no data_ptr: - sizes[storage.data_ptr()] = storage.nbytes() + sizes[storage] = storage.nbytes()",
    "no data_ptr: - return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() "
    "for tensor in saved}.values()) + return sum({tensor.untyped_storage(): "
    "tensor.untyped_storage().nbytes() for tensor in saved}.values())",
)
count_saved_bytes.equivalent(
    "A sum does not depend on the order.",
    "backwards: - return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for "
    "tensor in saved}.values()) + return sum({tensor.untyped_storage().data_ptr(): "
    "tensor.untyped_storage().nbytes() for tensor in list(saved)[::-1]}.values())",
)
count_saved_bytes.equivalent(
    "A Python number has no in-place addition.",
    "not in place: - total += tensor.untyped_storage().size() + total = total + tensor.untyped_storage().size()",
)


@count_saved_bytes.mistake(
    "You count a storage as often as it is saved. `x * x` saves x twice, in one and the same memory: count each "
    "storage once."
)
def _(function, x):
    total = 0

    def pack(tensor):
        nonlocal total
        total += tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        function(x)
    return total


@count_saved_bytes.mistake(
    "You add up the sizes of all tensors that are saved. Two of them may share one storage, and a view keeps its whole "
    "storage alive: count each `untyped_storage()` once."
)
def _(function, x):
    total = 0

    def pack(tensor):
        nonlocal total
        total += tensor.nbytes
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        function(x)
    return total


@count_saved_bytes.mistake(
    "Two views of one storage count as two. Know the storage again, not the tensor: by the address at which "
    "`untyped_storage()` begins."
)
def _(function, x):
    sizes = {}

    def pack(tensor):
        sizes[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(x)  # noqa: F841 - keeps the addresses in use
    return sum(sizes.values())


@count_saved_bytes.mistake(
    "Backward found nothing where it needs a tensor: `pack` has to return the tensor, and `unpack` to give it back."
)
def _(function, x):
    sizes = {}

    def pack(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(x)  # noqa: F841 - keeps the addresses in use
    return sum(sizes.values())


@count_saved_bytes.mistake(
    "You add up the numbers in all tensors that are saved. A float32 has 4 bytes, a float64 has 8; and each storage "
    "counts once and whole, with `untyped_storage().nbytes()`."
)
def _(function, x):
    total = 0

    def pack(tensor):
        nonlocal total
        total += tensor.numel()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        function(x)
    return total


@count_saved_bytes.mistake("You count numbers, not bytes: a float32 has 4 bytes, a float64 has 8.")
def _(function, x):
    sizes = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(x)  # noqa: F841 - keeps the addresses in use
    return sum(sizes.values())


@count_saved_bytes.mistake(
    "You count the numbers that a view shows. It keeps its whole storage alive: count `untyped_storage().nbytes()`."
)
def _(function, x):
    sizes = {}

    def pack(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(x)  # noqa: F841 - keeps the addresses in use
    return sum(sizes.values())


@count_saved_bytes.mistake(
    "Nothing is counted. `function(x)` must run inside the block of `with saved_tensors_hooks(...)`, and `pack` must "
    "add to what you return."
)
def _(function, x):
    sizes = {}

    def pack(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    result = function(x)  # noqa: F841 - too early
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        pass
    return sum(sizes.values())


@count_saved_bytes.mistake(
    "You run a backward yourself, and it frees the graph that your caller needs. Count in `pack`, "
    "while `function` runs."
)
def _(function, x):
    sizes = {}

    def pack(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        function(x).sum().backward()
    return sum(sizes.values())


@count_saved_bytes.mistake(
    "You leave the leaves out. They are in memory anyway, but backward needs them too: count whatever is saved."
)
def _(function, x):
    sizes = {}

    def pack(tensor):
        if not tensor.is_leaf:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(x)  # noqa: F841 - keeps the addresses in use
    return sum(sizes.values())


@count_saved_bytes.mistake("That is the size of the result. What is saved for backward may be more, less, or nothing.")
def _(function, x):
    return function(x).untyped_storage().nbytes()


@exercise(
    lesson=2,
    points=3,
    hints=[
        "`pack` gets a tensor and may return anything; `unpack` gets just that and must make the tensor again.",
        "Let `pack` return two things: the numbers as float16, and the dtype to go back to. "
        "`tensor.is_floating_point()` tells numbers from indices and masks.",
        "`pack`: `return (tensor.half() if tensor.is_floating_point() else tensor), tensor.dtype`; `unpack`: "
        "`tensor, dtype = packed` and `return tensor.to(dtype)`.",
    ],
)
def save_as_half():
    """Return two functions for `saved_tensors_hooks`, `pack` and `unpack`, that
    keep floating-point tensors as float16.

    `unpack(pack(tensor))` has the dtype of `tensor`: float32 and float64 come back
    as such, with the precision of float16. The original numbers are not kept, but a
    leaf, which is in memory anyway, may stay as it is. Tensors of whole numbers or
    bools stay exactly as they are.
    """

    def pack(tensor):
        return (tensor.half() if tensor.is_floating_point() else tensor), tensor.dtype

    def unpack(packed):
        tensor, dtype = packed
        return tensor.to(dtype)

    return pack, unpack


# What to add to small numbers so that the next smaller dtype, or a float, cannot hold them.
LARGE = {torch.int64: 2**60, torch.int32: 2**24, torch.int16: 2**11, torch.uint8: 0}


@save_as_half.cases
def _(rng):
    for dtype, count in ((torch.float32, 3), (torch.float64, 1)):
        leaf = torch.stack([rng.whole(count) + 2048, rng.quarters(count) / 3]).to(dtype).requires_grad_()

        def pack_and_unpack(functions, leaf=leaf):
            pack, unpack = functions
            tensor = leaf * 1  # no leaf: those may stay as they are
            original = StorageWeakRef(tensor.untyped_storage())
            with torch.no_grad(), measure_memory() as memory:  # autograd calls `pack` without a graph, too
                packed = pack(tensor)
            new_bytes, same = memory.live, torch.equal(tensor, leaf)
            with torch.no_grad():
                again = pack(tensor)  # x * x saves x twice
            del tensor
            return {
                "unpack(pack(tensor))": unpack(packed),
                "the number of new bytes that pack(tensor) holds": new_bytes,
                "`tensor itself is unchanged`": same,
                "`the original can be freed`": original.expired(),
                "the second unpack(pack(tensor))": unpack(again),
            }

        name = str(dtype).removeprefix("torch.")
        shown = f"a {name} tensor of {2 * count} numbers, half of them above 2048, the result of an operation"
        yield Case({}, pack_and_unpack, shown=shown)
    whole = rng.whole(3).long() * 2 + 199
    tensors = {str(dtype).removeprefix("torch."): (whole + large).to(dtype) for dtype, large in LARGE.items()}
    tensors |= {"bool": whole > whole.min(), "float16": rng.quarters(2).half(), "bfloat16": rng.quarters(2).bfloat16()}

    def pack_all(functions):
        pack, unpack = functions
        packed = {name: pack(tensor) for name, tensor in tensors.items()}
        unpacked = {name: unpack(each) for name, each in packed.items()}
        same = [isinstance(each, torch.Tensor) and torch.equal(each, tensors[name]) for name, each in unpacked.items()]
        seen = {f"unpack(pack(tensor)) for dtype {name}": each for name, each in unpacked.items()}
        return seen | {"the list of dtypes that come back exactly": list(itertools.compress(tensors, same))}

    yield Case({}, pack_all, shown="seven tensors of other dtypes, all packed before the first is unpacked,")
    x, places = rng.whole(2100).requires_grad_(), [2049 + 2 * rng.integer(0, 20), rng.integer(0, 9)]
    scale = rng.leaf(2)

    def backward(functions):
        with saved_tensors_hooks(*functions):
            loss = (x.gather(0, torch.tensor(places)) * scale).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return {"the places where x.grad is not 0": x.grad.nonzero().flatten(), "scale.grad": scale.grad}

    shown = "two backwards of (x.gather(0, places) * scale).sum() inside saved_tensors_hooks(pack, unpack)"
    yield Case({}, backward, shown=shown)


@save_as_half.accept
def _():
    class Packed:
        def __init__(self, tensor):
            self.dtype = tensor.dtype
            self.tensor = tensor.to(torch.float16) if tensor.is_floating_point() else tensor

    return Packed, lambda packed: packed.tensor.to(packed.dtype)


@save_as_half.accept
def _():
    def pack(tensor):
        if tensor.dtype in (torch.float32, torch.float64):
            return {"numbers": tensor.detach().type(torch.half), "dtype": tensor.dtype}
        return {"numbers": tensor}

    def unpack(packed):
        return packed["numbers"].type(packed["dtype"]) if "dtype" in packed else packed["numbers"]

    return pack, unpack


@save_as_half.accept
def _():
    def pack(tensor):
        if tensor.is_leaf or not tensor.is_floating_point():
            return tensor
        return tensor.to(torch.float16), tensor.dtype

    def unpack(packed):
        return packed[0].to(packed[1]) if isinstance(packed, tuple) else packed

    return pack, unpack


save_as_half.equivalent(
    "Autograd calls `pack` in `torch.no_grad()`: what it computes has no graph.",
    "no detach: - return {'numbers': tensor.detach().type(torch.half), 'dtype': tensor.dtype} + return "
    "{'numbers': tensor.type(torch.half), 'dtype': tensor.dtype}",
    "mixed up: - return {'numbers': tensor.detach().type(torch.half), 'dtype': tensor.dtype} + return "
    "{'numbers': tensor.clone().type(torch.half), 'dtype': tensor.dtype}",
)
save_as_half.equivalent(
    "Leaves may be packed or not, and tensors of whole numbers or bools are always leaves.",
    "and for or: - if tensor.is_leaf or not tensor.is_floating_point(): + if tensor.is_leaf and (not "
    "tensor.is_floating_point()):",
    "a condition less: - if tensor.is_leaf or not tensor.is_floating_point(): + if not tensor.is_floating_point():",
    "a condition less: - if tensor.is_leaf or not tensor.is_floating_point(): + if tensor.is_leaf:",
)


@save_as_half.mistake(
    "`unpack` returns float16. Backward would go on in float16, or fail: `unpack` must give back the original dtype."
)
def _():
    return lambda tensor: tensor.half() if tensor.is_floating_point() else tensor, lambda packed: packed


@save_as_half.mistake(
    "`unpack` turns everything into float32, but float64 must come back as float64: `pack` has to return the dtype too."
)
def _():
    def unpack(packed):
        return packed.float() if packed.is_floating_point() else packed

    return lambda tensor: tensor.half() if tensor.is_floating_point() else tensor, unpack


@save_as_half.mistake(
    "`half()` and `float()` for everything is right for float32 alone: float64 must come back as float64, and whole "
    "numbers and bools must stay as they are."
)
def _():
    return lambda tensor: tensor.half(), lambda packed: packed.float()


@save_as_half.mistake(
    "You pack whole numbers as float16 too. Above 2048 it cannot hold every one of them, and an index then points to "
    "the wrong place: pack only what `is_floating_point()`."
)
def _():
    return lambda tensor: (tensor.half(), tensor.dtype), lambda packed: packed[0].to(packed[1])


@save_as_half.mistake(
    "The original is kept beside its float16 copy, so more memory is in use than before, not less. Keep the copy and "
    "the dtype only."
)
def _():
    def unpack(packed):
        half, original = packed
        return half.to(original.dtype)

    return lambda tensor: (tensor.half() if tensor.is_floating_point() else tensor, tensor), unpack


@save_as_half.mistake(
    "What `pack` returns has the old dtype again, rounded, and is as large as before. Keep the float16 numbers, and "
    "let `unpack` go back to the dtype."
)
def _():
    def pack(tensor):
        return tensor.half().to(tensor.dtype) if tensor.is_floating_point() else tensor

    return pack, lambda packed: packed


@save_as_half.mistake(
    "Only float32 is packed as float16. float64 and bfloat16 are floating-point numbers, too: ask "
    "`is_floating_point()`, and keep the dtype."
)
def _():
    def unpack(packed):
        return packed[0].to(packed[1])

    return lambda tensor: (tensor.half() if tensor.dtype == torch.float32 else tensor, tensor.dtype), unpack


@save_as_half.mistake(
    "`unpack` goes back to the dtype of a tensor that was packed later. Many are packed before the first is unpacked: "
    "`pack` must return each dtype together with its numbers."
)
def _():
    last = []

    def pack(tensor):
        if not tensor.is_floating_point():
            return tensor
        last[:] = [tensor.dtype]
        return tensor.half()

    return pack, lambda packed: packed.to(last[0]) if packed.is_floating_point() else packed


@save_as_half.mistake(
    "The dtypes do not come back in the order in which you stored them: autograd unpacks when it needs a tensor, and "
    "perhaps twice. Let `pack` return each dtype together with its numbers."
)
def _():
    dtypes = []

    def pack(tensor):
        dtypes.append(tensor.dtype)
        return tensor.half() if tensor.is_floating_point() else tensor

    return pack, lambda packed: packed.to(dtypes.pop())


@save_as_half.mistake("The two functions are the wrong way round: `pack` comes first.")
def _():
    def pack(tensor):
        return (tensor.half() if tensor.is_floating_point() else tensor), tensor.dtype

    return lambda packed: packed[0].to(packed[1]), pack


@save_as_half.mistake("Return the two functions themselves. Who calls you writes the `with saved_tensors_hooks(...)`.")
def _():
    def pack(tensor):
        return (tensor.half() if tensor.is_floating_point() else tensor), tensor.dtype

    return saved_tensors_hooks(pack, lambda packed: packed[0].to(packed[1]))


@save_as_half.mistake(
    "You note one dtype for all tensors: that of the last one packed. Let `pack` return the dtype together with the "
    "numbers."
)
def _():
    dtype = None

    def pack(tensor):
        nonlocal dtype
        dtype = tensor.dtype
        return tensor.half() if tensor.is_floating_point() else tensor

    def unpack(packed):
        return packed.to(dtype)

    return pack, unpack
