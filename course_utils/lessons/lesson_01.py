"""The cases of lesson 01, tensor hooks. Tasks stand in the lesson's source, answers on the pages in `answers`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch import nn

from course_utils.exercises.cases import Case, Stopped, stop
from course_utils.exercises.engine import exercise
from course_utils.hooks.inventory import list_hooks
from course_utils.hooks.memory import measure_memory
from course_utils.lessons.small_nets import fill


@exercise
def record_gradient(rng):
    w, x = rng.leaf(), rng.leaf()
    a = w + x
    y = a * (w + 1)

    def one_pass(seen):
        before = list(seen)
        y.backward()
        return {"your list before backward": before, "w.grad": w.grad, "x.grad": x.grad}

    yield Case({"tensor": a}, one_pass, shown="a in y = a·b")
    leaf, steep = rng.whole(2, 1).double().requires_grad_(), rng.quarters(2, 1) / 3
    earlier = []

    def three_passes(seen):
        (2**20 * steep * leaf).sum().backward()
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
    yield Case({"tensor": h}, changed_later, shown=shown, follows=True)


def _go_back_thrice(x: torch.Tensor, h: torch.Tensor, slope: torch.Tensor) -> Callable:
    """What reaches `x` in three backwards from `h`, which differ, and in one without the hook."""

    def passes(handle):
        found = {}
        ways = (("first backward", 1), ("second backward", -1), ("third backward", 2))
        for words, sign in (*ways, ("backward after handle.remove()", 1)):
            if "remove" in words:
                handle.remove()
            x.grad = None
            (h * slope * sign).sum().backward(retain_graph=True)
            found[f"the gradient that reached x in the {words}"] = x.grad
        return found

    return passes


@exercise
def scale_gradient(rng):
    for factor in (2.5, -0.5, 0):
        x, slope = rng.leaf(2, 2), rng.quarters(2, 2)
        h = x * rng.whole(2, 2)
        yield Case({"tensor": h, "factor": factor}, _go_back_thrice(x, h, slope))
    c, d = rng.leaf(2), rng.leaf(2)
    e = c + d

    def sibling(_):
        (100 * e).sum().backward()
        return {"the gradient of its sibling d in e = c + d": d.grad}

    yield Case({"tensor": c, "factor": 10}, sibling, shown="tensor = c in e = c + d, factor = 10")
    both = rng.leaf(2, 2).detach().double().requires_grad_()
    a, b = (both * both).unbind()

    def one_of_two(_):
        (2.0**130 * a + 3 * b).sum().backward()  # too large for float32
        return {"x.grad": both.grad}

    yield Case({"tensor": a, "factor": 4}, one_of_two, shown="tensor = a in a, b = (x·x).unbind(), float64, factor = 4")
    first, second = rng.leaf(2), rng.leaf(2)

    def both_tensors(_):
        (first * second).sum().backward()
        return {"the gradient of the tensor of the case before, whose factor is 3,": first.grad}

    yield Case({"tensor": first, "factor": 3})
    yield Case({"tensor": second, "factor": -2}, both_tensors, follows=True)


@exercise
def keep_positive(rng):
    x, slope = rng.leaf(4), torch.cat([rng.mixed(2) * 2**20, rng.mixed(2, high=3) / 2**14])
    h = x * rng.mixed(4)
    yield Case({"tensor": h}, _go_back_thrice(x, h, slope), shown="tensor = h = x·s")
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
        first, number.grad = number.grad, None
        (2.0**130 * negated).backward()  # too large for float32
        return {"the gradient that reached x": first, "the gradient that reached x after that": number.grad}

    yield Case(
        {"tensor": negated},
        negative_alone,
        shown="tensor = -x, one float64 number, and a negative gradient, then a large one",
    )


class _Shift(nn.Module):
    """A layer with two biases, one of which is a row (1, 2), and a `bias_scale`, which is none."""

    def __init__(self):
        super().__init__()
        self.in_proj_bias, self.s, self.bias, self.bias_scale = (nn.Parameter(torch.ones(2)) for _ in range(4))
        self.bias = nn.Parameter(torch.ones(1, 2))

    def forward(self, x):
        return self.bias_scale * x + (self.in_proj_bias + self.s) + self.bias


@exercise
def freeze_biases(rng):
    models = {  # the parameter that comes last is no bias: it may be frozen already
        "two linear layers": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1, bias=False)),
        "layers inside Sequentials": nn.Sequential(
            nn.Sequential(nn.Linear(2, 3, bias=False), nn.Conv1d(1, 1, kernel_size=2)),
            nn.Sequential(nn.Linear(2, 1), nn.Flatten(), nn.Linear(1, 1, bias=False)),
        ),
        "the parameters in_proj_bias, s, bias and bias_scale": _Shift().double(),
    }
    for words, model in models.items():
        fill(model, rng.whole)
        x = rng.whole(1, 2).to(next(model.parameters()).dtype)

        def frozen_then_not(handles, model=model, x=x):
            for scale in (1, 2.0**100):  # so that what is nearly 0 shows
                (scale * model(x)).sum().backward()
            frozen = {key: parameter.grad for key, parameter in model.named_parameters()}
            for handle in handles:
                handle.remove()
            model.zero_grad()
            model(x).sum().backward()
            return {"the gradients after two backwards": frozen}

        yield Case({"model": model}, frozen_then_not, shown=f"a model of {words}")


@exercise
def hook_once(rng):
    calls = []

    def note_and(answer):
        def hook(grad):
            calls.append(grad.clone())
            return answer(grad)

        return hook

    def fail(_):
        raise ValueError

    waiting, multiply = rng.leaf(2), note_and(lambda grad: grad * -1.5)
    for hook, does in (
        (multiply, "multiplies by -1.5"),
        (note_and(lambda _: None), "returns nothing"),
        (note_and(torch.zeros_like), "returns zeros"),
        (multiply, "multiplies by -1.5, where all gradients are 0"),
        (note_and(fail), "raises"),
        (note_and(stop), "raises what is no `Exception`, like Ctrl-C"),
    ):
        x, slope = rng.leaf(2), rng.quarters(2) * ("are 0" not in does)
        tensor = x if does == "returns nothing" else x * 2

        def three_passes(_, x=x, tensor=tensor, slope=slope):
            found = {}
            for number in ("first", "second", "third"):
                with contextlib.suppress(ValueError, Stopped):
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

    yield Case(
        {"tensor": x, "hook": multiply}, both, shown="a leaf x, after a leaf z that is still waiting", follows=True
    )
    base = rng.leaf(2)
    square = base * base

    def backward_twice(_):
        (first,) = torch.autograd.grad((square * square).sum(), base, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), base)
        calls.clear()
        return {"the gradient of x": first, "the gradient of that gradient": second}

    shown = "tensor = x·x, a hook that multiplies by -1.5, and the gradient of a gradient (create_graph=True)"
    yield Case({"tensor": square, "hook": multiply}, backward_twice, shown=shown)


@exercise
def record_by_name(rng):
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
    leaf, slope = rng.leaf(2), rng.quarters(2) / 3
    d = 3 * rng.leaf(2)
    h = leaf * 2
    e = h + d

    def two_passes(seen):
        for tensor in (leaf, h, d):
            tensor.register_hook(lambda grad: grad.mul_(100))
        (e * e).sum().backward(retain_graph=True)
        first = dict(seen)
        (e * slope).sum().backward(retain_graph=True)
        (w + 3 * x).backward()
        second = dict(seen)
        (0 * h).sum().backward()
        return {
            "what the first backward recorded": first,
            "what there is after the second backward": second,
            "the dict of the call before, after a backward of w + 3x,": earlier.pop(),
        }

    given = {"first.x": leaf, "second.x": h, "": leaf}
    shown = (
        "second.x = 2 · first.x in e = second.x + d, three backwards, of which the last brings zeros, and gradients "
        "that are changed in place after your hook; `first.x` has a second name, which is empty"
    )
    yield Case({"tensors": given}, two_passes, shown=shown, follows=True)


@exercise
def record_total_norm(rng):
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
    yield Case({"tensors": [a, unused, h]}, three_passes, shown=shown, follows=True)


@exercise
def step_in_backward(rng):
    for rate, factor in ((0.5, 3), (1, 0)):
        p, q = rng.leaf(2), rng.leaf(2)
        slope = rng.quarters(2)

        def train(handles, p=p, q=q, slope=slope, factor=factor):
            memory, grads, values = p.detach(), [], []

            def note(_):
                grads.append([p.grad, q.grad])
                values.append([p.detach().clone(), q.detach().clone()])

            own = [each.register_post_accumulate_grad_hook(note) for each in (p, q)]
            (p * slope + factor * q).sum().backward()
            found = {
                "p after one backward": p.detach().clone(),
                "the memory that p had before": memory.clone(),
                "q after one backward": q.detach().clone(),
                "p.grad after one backward": p.grad,
                "q.grad after one backward": q.grad,
                "the list of p.grad and q.grad after each step": grads,
                "the list of p and q after each step": values,
            }
            (p * slope + p * q).sum().backward()
            found |= {"p after two backwards": p.detach().clone(), "q after two backwards": q.detach().clone()}
            for handle in own:
                handle.remove()
            with measure_memory() as held:
                (p * slope + p * q).sum().backward()
            found["the number of bytes that are still held after a third backward"] = held.live
            for handle in handles:
                handle.remove()
            (p * slope).sum().backward()
            return found | {"p after handle.remove() and another backward": p.detach().clone()}

        shown = f"p and q of (p·s + {factor}·q).sum(), then of (p·s + p·q).sum(), rate = {rate}"
        yield Case({"parameters": [p, q], "rate": rate}, train, shown=shown)
