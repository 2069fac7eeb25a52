"""The cases of lesson 02, retain_grad or a hook. Tasks stand in its source, answers on the pages in `answers`."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from course_utils.exercises.cases import Case, stop
from course_utils.exercises.engine import exercise
from course_utils.hooks.memory import measure_memory


@exercise
def gradients_of_all(rng):
    w, x = rng.leaf(), rng.leaf()
    a, b = w + x, w + 1
    y = a * b
    given = {"w": w, "x": x, "a": a, "b": b, "y": y}
    yield Case({"tensors": given}, _watch_passes(y), shown="the graph a = w + x, b = w + 1, y = a·b", fresh=True)
    x, w = (rng.quarters(4) / 3).requires_grad_(), rng.quarters(4).requires_grad_()
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


def _watch_gradients(tensor: torch.Tensor) -> Callable[[], dict[str, bool]]:
    """What to look at after backwards: whether the gradients that `tensor` has got from now on are freed."""
    gradients: list[StorageWeakRef] = []
    tensor.register_hook(lambda grad: gradients.append(StorageWeakRef(grad.untyped_storage())))
    return lambda: {"`the gradients are freed`": all(each.expired() for each in gradients)}


@exercise
def record_norms(rng):
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
        freed = _watch_gradients(used)
        losses = [(other * slope_of_other + used * slope_of_other * 3).sum(), (used * 0).sum(), (used * 2).sum()]
        with measure_memory() as memory:
            losses[0].backward(retain_graph=True)
            first = list(norms)
            losses[1].backward(retain_graph=True)
            second = list(norms)
            losses[2].backward()
        left = {"the number of bytes that the backwards leave in memory": memory.live}
        lists = {"the list after the first backward": first, "the list after the second backward": second}
        return lists | {"leaf.grad": leaf.grad} | freed() | kept(given) | left

    passes = "three backwards, the last two from `used` alone, with gradients 0 and 2"
    yield Case({"activations": given}, thrice, shown=f"[leaf, unused, used, other, used] and {passes}")


@exercise
def arrived_and_passed_on(rng):
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
        ([], "no hooks at all, and a tensor that is a leaf"),
    ):
        seen = []
        x, slope = rng.leaf(2), rng.quarters(2)
        h = 3 * x if hooks else x

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


@exercise
def multiply_in_place(rng):
    for factors, change, shown in (
        ((0.25, 0.75, 1.5, 3), 1, ""),
        ((-2.5, -0.75, -0.5), 10, ", and hooks that change the gradients in place afterwards"),
    ):
        x, factor, slope = rng.leaf(2), rng.choice(factors), rng.quarters(2)
        sibling, h = 2 * rng.leaf(2), x + rng.whole(2)
        values = f"tensor = {h.tolist()}, factor = {factor}"

        def backward(grads, x=x, h=h, sibling=sibling, slope=slope, change=change):
            if change != 1:  # sums pass the gradients of h, of its old and its new values, to these, too
                for tensor in (x, sibling):
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
    x, factor, slope = rng.leaf(2), 1, rng.quarters(2)
    h = x + rng.whole(2)
    other = h + 1

    def both_ways(_, x=x, h=h, other=other, slope=slope):
        (h * slope + 2 * other).sum().backward()
        return {"the gradient that reached x": x.grad}

    shown = "and the old values are used elsewhere, too"
    yield Case({"tensor": h, "factor": factor}, both_ways, shown=f"tensor = {h.tolist()}, factor = {factor}, {shown}")


@exercise
def keep_first_row(rng):
    def kept_bytes(rows):
        tensors = [row for row in rows if isinstance(row, torch.Tensor)] if isinstance(rows, list) else []
        storages = {row.untyped_storage().data_ptr(): row.untyped_storage().nbytes() for row in tensors}
        return {"the number of bytes that the list keeps alive": sum(storages.values())}

    for shape, dtype in (((3, 2), torch.float32), ((3, 1), torch.float64)):
        x, slope = rng.leaf(*shape), rng.quarters(*shape)
        h = 2 * x.to(dtype)

        def backward(rows, x=x, h=h, slope=slope):
            freed = _watch_gradients(h)
            (h * slope).sum().backward(retain_graph=True)
            (h * slope / 3).sum().backward()
            return kept_bytes(rows) | freed() | {"the gradient that reached x": x.grad}

        name = str(dtype).removeprefix("torch.")
        yield Case({"tensor": h}, backward, shown=f"a {name} tensor of shape {shape} and two backwards")
    x, slope = rng.leaf(1, 3), rng.quarters(1, 3)
    h = 2 * x

    def changed_later(rows):
        h.register_hook(lambda grad: grad.mul_(100))
        (h * slope).sum().backward(retain_graph=True)
        (h * slope * 0).sum().backward()
        return kept_bytes(rows) | {"the gradient that reached x": x.grad}

    shown = "a tensor of one row, two backwards, the second with zeros; gradients are changed in place after your hook"
    yield Case({"tensor": h}, changed_later, shown=shown)


@exercise
def count_saved_bytes(rng):
    def chain(x):
        for _ in range(3):
            x = torch.tanh(x)
        return x

    def use_a_gradient(x):
        (slope,) = torch.autograd.grad((x * x).sum(), x)
        return x * slope * x

    def pick_rows(x):
        return (x[0] * x[1])[places]

    count, places = rng.integer(3, 9), torch.tensor([rng.integer(0, 1) for _ in range(3)])
    outer, weight = rng.leaf(count), rng.leaf(count)
    for function, x, shown in (
        (lambda x: x * outer, outer, f"x * x, {count} numbers"),
        (chain, rng.leaf(2, 3), "three times tanh, a (2, 3) tensor"),
        (pick_rows, rng.leaf(5, 3), "(x[0] * x[1])[places], a (5, 3) tensor and 3 places (int64)"),
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

    def exp_twice(x):
        torch.autograd.grad(x.exp().sum(), x)  # when this is over, the memory of its exp is used again
        return x.exp()

    memory = []

    def note_memory(x):
        result = exp_twice(x)
        memory.append(StorageWeakRef(result.untyped_storage()))
        return result

    def look(_):
        return {"whether the memory of the result is freed": memory[0].expired()}

    shown = "exp, after a backward of another exp of its own, 4 numbers, and no backward afterwards"
    yield Case({"function": note_memory, "x": rng.leaf(4)}, look, shown=shown)

    buffers, living = [bytearray(16) for _ in range(8)], {}

    def reuse_memory(x):
        for _ in range(8):
            number = next(each for each in range(8) if each not in living or living[each].expired())
            factor = torch.frombuffer(buffers[number], dtype=torch.float32)
            living[number] = StorageWeakRef(factor.untyped_storage())
            torch.autograd.grad((x * factor).sum(), x)
            del factor
        return x + 1

    shown = "eight products with a backward of its own, each with 4 other numbers, in memory that is used again"
    yield Case({"function": reuse_memory, "x": rng.leaf(4)}, shown=shown)

    same = rng.leaf(2)
    yield Case({"function": torch.square, "x": same}, shown="the square of 2 numbers")
    yield Case({"function": torch.square, "x": same}, shown="the square of the same tensor once more", follows=True)

    def refuse(x):
        raise ValueError("this function has had enough")

    yield Case({"function": refuse, "x": rng.leaf(2)}, shown="a function that raises a ValueError")
    shown = "a function that raises what is no `Exception`, like Ctrl-C"
    yield Case({"function": stop, "x": rng.leaf(2)}, shown=shown)


# What to add to small numbers so that the next smaller dtype, or a float, cannot hold them.
LARGE = {torch.int64: 2**60, torch.int32: 2**24, torch.int16: 2**11, torch.uint8: 0}


@exercise
def save_as_half(rng):
    for dtype, count, least in ((torch.float32, 3, 2048), (torch.float64, 1, 2048), (torch.float32, 2, 70_000)):
        leaf = torch.stack([rng.whole(count) + least, rng.quarters(count) / 3]).to(dtype).requires_grad_()

        def pack_and_unpack(functions, leaf=leaf):
            pack, unpack = functions
            tensor = leaf * 1  # no leaf: those may stay as they are
            original = StorageWeakRef(tensor.untyped_storage())
            with torch.no_grad(), measure_memory() as memory:  # autograd calls `pack` without a graph, too
                packed = pack(tensor)
            too_many, same = max(0, memory.live - 2 * leaf.numel()), torch.equal(tensor, leaf)
            with torch.no_grad():
                again = pack(tensor)  # x * x saves x twice
            del tensor
            return {
                "unpack(pack(tensor))": unpack(packed),
                "the number of bytes that pack(tensor) holds beyond those of float16": too_many,
                "`tensor itself is unchanged`": same,
                "`the original can be freed`": original.expired(),
                "the second unpack(pack(tensor))": unpack(again),
            }

        name = str(dtype).removeprefix("torch.")
        shown = f"a {name} tensor of {2 * count} numbers, half of them above {least}, the result of an operation"
        yield Case({}, pack_and_unpack, shown=shown)
    whole = rng.whole(4, 20).long() * 2 + 199
    tensors = {str(dtype).removeprefix("torch."): (whole + large).to(dtype) for dtype, large in LARGE.items()}
    tensors |= {"bool": whole > whole.min(), "float16": rng.quarters(2).half(), "bfloat16": rng.quarters(2).bfloat16()}

    def pack_all(functions):
        pack, unpack = functions
        packed = {name: pack(tensor) for name, tensor in tensors.items()}
        unpacked = {name: unpack(each) for name, each in packed.items()}
        same = [isinstance(each, torch.Tensor) and torch.equal(each, tensors[name]) for name, each in unpacked.items()]
        seen = {f"unpack(pack(tensor)) for dtype {name}": each for name, each in unpacked.items()}
        return seen | {"the list of dtypes that come back exactly": list(itertools.compress(tensors, same))}

    yield Case({}, pack_all, shown="seven tensors of other dtypes, all packed before the first is unpacked")
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
