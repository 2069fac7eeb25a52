"""The cases of lesson 09: every hook. Twelve puzzles of one line each, five rules to break, and a part of torch."""

from __future__ import annotations

import contextlib
import copy
import weakref
from collections import OrderedDict

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from course_utils.exercises.cases import Case
from course_utils.exercises.engine import exercise
from course_utils.lessons.small_nets import whole_weights


def kept(grad: torch.Tensor | None) -> torch.Tensor | None:
    """A copy of a gradient or of a weight, which nothing changes later; None where there is none."""
    return None if grad is None else grad.detach().clone()


class Shift(nn.Module):
    """A weight plus the input: in backward the two share one gradient tensor."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x):
        return self.weight + x


class Choosy(nn.Module):
    """Gives back its input, and raises `error` for a negative number."""

    def __init__(self, error: type[BaseException] = ValueError) -> None:
        super().__init__()
        self.error = error

    def forward(self, x):
        if (x < 0).any():
            raise self.error("a negative number")
        return x


class Moody(nn.Module):
    """Gives back its input, and raises a ValueError in every second call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls % 2 == 0:
            raise ValueError("every second call")
        return x


@exercise
def Handle(rng):
    names = [rng.choice(["look", "note", "store"]) for _ in range(3)]
    taken = rng.integer(0, 1)

    def register_three(first):
        make, table = type(first), OrderedDict()
        handles = []
        for name in names:
            handles.append(make(table))
            table[handles[-1].id] = name
        handles[taken].remove()
        found = {"what is left after one remove()": list(table.values())}
        handles[taken].remove()
        again = make(table)
        table[again.id] = "new"
        del again  # who forgets the handle keeps the hook
        table[handles[taken].id] = []  # a hook may be false, and stand there again
        found["what is there after a second remove(), a new hook, and one put back"] = list(table.values())
        for handle in handles:
            handle.remove()
        return found | {"what is left when all handles but the new one have removed": list(table.values())}

    yield Case({"table": OrderedDict()}, register_three, shown=f"the hooks {names}, of which one is removed")

    def many(first):
        make, kept = type(first), OrderedDict()
        together = [make(table) for table in (kept, OrderedDict(), kept)]
        ids = [handle.id for handle in together]
        del together
        for _ in range(20):
            handle = make(table := OrderedDict())
            ids.append(handle.id)
            table[handle.id] = "hook"
            handle.remove()
            del handle, table
        return {"whether 23 handles have 23 ids": len(set(ids)) == 23}

    yield Case({"table": OrderedDict()}, many, shown="23 handles, of which most are gone before the next is made")

    def as_context(fails):
        def run(first):
            make, table = type(first), OrderedDict()
            table["other"] = "from before"
            error, caught = LookupError("the block failed"), "nothing"
            same = make(table)
            table[same.id] = "its hook"
            try:
                with same as handle:
                    found = {"whether `with handle as h` gives the handle": handle is same}
                    found["what is there inside the block"] = list(table.values())
                    if fails:
                        raise error
                    same.remove()
            except LookupError as raised:
                caught = "what the block raised" if raised is error else "another LookupError"
            after = {"what came out of the block": caught, "what is left after the block": list(table.values())}
            return found | after

        words = "raises" if fails else "removes the hook itself"
        return Case({"table": OrderedDict()}, run, shown=f"a `with` block that {words}")

    def after_a_block(first):
        table = OrderedDict(other="from before")
        with type(first)(table) as handle:
            table[handle.id] = "hook"
        return {"what is left after the block": list(table.values())}

    yield as_context(fails=True)
    yield as_context(fails=False)
    yield Case({"table": OrderedDict()}, after_a_block, shown="a `with` block that ends as usual")

    def table_goes(first):
        table = OrderedDict()
        handle, watch = type(first)(table), weakref.ref(table)
        table[handle.id] = "hook"
        with handle:
            del table
            found = {"whether the table lives on when only its handle is left": watch() is not None}
        handle.remove()
        return found

    yield Case({"table": OrderedDict()}, table_goes, shown="a table that goes away")


@exercise
def make_twelve(rng):
    w, x = rng.leaf(2), rng.leaf(2)

    def product(handle):
        (w * x).sum().backward()
        found = {"w.grad": kept(w.grad), "x.grad": kept(x.grad)}
        (3 * w * x).sum().backward()
        found |= {"w.grad after a second backward": kept(w.grad)}
        w.grad = None
        (0 * w * x).sum().backward()
        found |= {"w.grad of a third backward, with a gradient of zeros,": kept(w.grad)}
        w.grad = None
        (2.0**30 * w * x).sum().backward()
        found |= {"w.grad of a fourth backward, with a very large gradient,": kept(w.grad)}
        handle.remove()
        w.grad = None
        (w * x).sum().backward()
        return found | {"w.grad after handle.remove()": w.grad}

    yield Case({"w": w}, product, shown="w in y = w · x", fresh=True)
    c, d = rng.leaf(2, 2).double().detach().requires_grad_(), rng.leaf(2, 2).double().detach().requires_grad_()
    slope = rng.quarters(2, 2).double()
    slope[0, 0], slope[1] = 0, torch.tensor([1.0, -1.0])  # what a condition may ask for

    def sibling(_):
        total = c + d
        (slope * total).sum().backward()
        return {"c.grad": c.grad, "the gradient of d, its sibling": d.grad}

    yield Case({"w": c}, sibling, shown="w = c in c + d, of dtype float64")


@exercise
def halve_output(rng):
    layer, x = whole_weights(nn.Linear(2, 2), rng), rng.leaf(1, 2)
    layer.register_forward_hook(lambda module, args, output: output + 1)

    def halved(handle):
        output = layer(x)
        output.sum().backward()
        found = {"the output": output, "x.grad": x.grad, "the output of a second call": layer(2 * x)}
        handle.remove()
        return found | {"the output after handle.remove()": layer(x)}

    yield Case({"layer": layer}, halved, shown="a Linear layer with a hook that adds 1")
    identity, y = nn.Sequential(nn.Identity()), rng.whole(3)

    def same_tensor(_):
        return {"the output": identity(y), "the input afterwards": y}

    yield Case({"layer": identity}, same_tensor, shown="a layer that gives back its very input")


@exercise
def forget_gradient(rng):
    for size in (1, 2):
        leaf, x, seen = rng.leaf(size), rng.leaf(size), []
        leaf.register_hook(lambda grad, seen=seen: seen.append(grad.detach().clone()))
        leaf.register_post_accumulate_grad_hook(lambda leaf, seen=seen: seen.append("the hook after it"))

        def twice(handle, leaf=leaf, x=x, seen=seen):
            (leaf * x).sum().backward()
            found = {"leaf.grad after backward": kept(leaf.grad), "x.grad": kept(x.grad)}
            early = x.register_hook(lambda _: seen.append(leaf.grad))  # backward comes to x after it has completed leaf
            (leaf * (2 * x)).sum().backward()
            early.remove()
            found |= {"leaf.grad after a second backward": kept(leaf.grad)}
            found |= {"what earlier hooks on leaf saw, and leaf.grad when the second backward came to x": list(seen)}
            (0 * leaf).sum().backward()
            found |= {"leaf.grad after a third backward, of zeros,": kept(leaf.grad)}
            (leaf**3).sum().backward(create_graph=True)
            found |= {"leaf.grad after a fourth backward, with create_graph=True,": kept(leaf.grad)}
            handle.remove()
            leaf.grad = None  # with the graph of the fourth one, which would keep the leaf alive
            (leaf * x).sum().backward()
            return found | {"leaf.grad after handle.remove()": leaf.grad}

        yield Case({"leaf": leaf}, twice, shown=f"a leaf of shape ({size},), in y = leaf · x")


@exercise
def freeze_weight(rng):
    x = rng.leaf(1, 2)
    layer = whole_weights(nn.Linear(2, 1), rng)

    def learn(handle, layer=layer, x=x):
        layer(x).sum().backward()
        found = {"weight.grad": kept(layer.weight.grad), "x.grad": kept(x.grad), "bias.grad": kept(layer.bias.grad)}
        layer(x).sum().backward()
        found |= {"weight.grad after a second backward": kept(layer.weight.grad)}
        handle.remove()
        layer.weight.grad = None
        (layer(x) * 2).sum().backward()
        return found | {"weight.grad after handle.remove()": layer.weight.grad}

    yield Case({"layer": layer}, learn, shown="a Linear layer")
    norm, slope = whole_weights(nn.LayerNorm(2), rng), rng.quarters(2)

    def same_shape(_):
        (slope * norm(x)).sum().backward()
        return {"weight.grad": norm.weight.grad, "bias.grad": norm.bias.grad}

    yield Case({"layer": norm}, same_shape, shown="a LayerNorm, whose bias has the shape of its weight")
    shift, y = Shift(rng.whole(2).double()), rng.leaf(2).detach().double().requires_grad_()

    def share(_):
        (3 * 2**30 * shift(y)).sum().backward()  # so that what is nearly 0 shows
        return {"weight.grad": shift.weight.grad, "x.grad": y.grad}

    yield Case({"layer": shift}, share, shown="a layer that adds its weight to x, both of dtype float64")
    outer = whole_weights(nn.Linear(2, 1), rng)
    outer.inner = whole_weights(nn.Linear(1, 1), rng)
    outer.register_forward_hook(lambda module, _, output: module.inner(output))

    def go_through_both(_):
        outer(x).sum().backward()
        return {"weight.grad": outer.weight.grad, "inner.weight.grad": outer.inner.weight.grad}

    yield Case({"layer": outer}, go_through_both, shown="a Linear layer with another one in it, which a hook calls")


@exercise
def block_gradient(rng):
    for size in (1, 2):
        layer, x = whole_weights(nn.Linear(2, size), rng), rng.leaf(1, 2)

        def learn(handle, layer=layer, x=x):
            layer(x).sum().backward()
            found = {"x.grad": kept(x.grad)}
            found |= {f"{name}.grad": kept(each.grad) for name, each in layer.named_parameters()}
            layer(x).sum().backward()
            found |= {"x.grad after a second backward": kept(x.grad)}
            handle.remove()
            x.grad = None
            layer(x).sum().backward()
            return found | {"x.grad after handle.remove()": x.grad}

        yield Case({"layer": layer}, learn, shown=f"a Linear layer from 2 to {size}")
    shift, y, slope = Shift(rng.whole(2).double()), rng.leaf(2).detach().double().requires_grad_(), rng.quarters(2)

    def share(_):
        (slope * (shift(y) + y)).sum().backward()
        return {"x.grad": y.grad, "weight.grad": shift.weight.grad}

    yield Case({"layer": shift}, share, shown="a float64 layer that adds its weight to x, and x also goes round it")
    deep, data = whole_weights(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), rng), rng.leaf(1, 2)

    def learn_in_depth(_):
        deep(data).sum().backward()
        return {"x.grad": data.grad, "the gradients of all weights": {n: p.grad for n, p in deep.named_parameters()}}

    yield Case({"layer": deep}, learn_in_depth, shown="a Sequential of two Linear layers")
    linear, features = whole_weights(nn.Linear(2, 1), rng), rng.leaf(1, 2)

    def overflow(_):
        (linear(features) * torch.inf).sum().backward()
        return {"x.grad": features.grad, "weight.grad": linear.weight.grad}

    yield Case({"layer": linear}, overflow, shown="a Linear layer from 2 to 1 at which an infinite gradient arrives")


@exercise
def note_failures(rng):
    one, two, three = (rng.integer(1, 9) for _ in range(3))
    for layer, numbers in (
        (Choosy(), (0, -one, two)),
        (Choosy(), (-two, -three, 0)),
        (Choosy(UnicodeError), (one, -two, three)),
        (Moody(), (-one, two, 0, three)),
    ):
        notes = [True, False]

        def call(handle, layer=layer, notes=notes, numbers=numbers):
            outputs, same = [], []
            for number in numbers:
                x = torch.tensor([float(number)])
                try:
                    outputs.append(layer(x))
                    same.append(outputs[-1] is x)
                except ValueError:
                    if isinstance(layer, Choosy):
                        layer(torch.full((1,), torch.nan))  # all is well again, though an error is being handled
            type(layer)()(torch.ones(1))  # another layer, whose calls are nobody's business here
            found = {"the list `notes`": list(notes), "the list of outputs": outputs}
            found |= {"whether the outputs are the very tensors that the layer returned": same}
            handle.remove()
            layer(torch.ones(1))
            return found | {"the list `notes` after handle.remove() and one call more": list(notes)}

        shown = f"notes from before, and a layer called with {', '.join(map(str, numbers))}"
        if isinstance(layer, Choosy):
            shown += "; while one of its errors is being handled, it is also called with nan"
        if getattr(layer, "error", ValueError) is not ValueError:
            shown += "; what it raises is a UnicodeError, which is a kind of ValueError"
        yield Case({"layer": layer, "notes": notes}, call, shown)


@exercise
def clear_after_step(rng):
    for momentum in (0.0, 0.5):
        w, x, v = rng.leaf(2), rng.leaf(2), rng.leaf(2)
        optimizer = torch.optim.SGD([{"params": [w, v]}, {"params": [x]}], lr=0.25, momentum=momentum)
        other = torch.optim.SGD([y := rng.leaf(1)], lr=0.25)

        def train(handle, w=w, x=x, v=v, y=y, optimizer=optimizer, other=other):
            for _ in range(2):
                (w * x + v).sum().backward()
                optimizer.step()
            found = {
                "w after two steps": kept(w),
                "w.grad": kept(w.grad),
                "x.grad": kept(x.grad),
                "v.grad": kept(v.grad),
            }
            (2 * y).sum().backward()
            other.step()
            found |= {"the gradient of another optimizer's parameter": kept(y.grad)}
            handle.remove()
            (w * x).sum().backward()
            optimizer.step()
            return found | {"w.grad after handle.remove() and a step": w.grad}

        yield Case({"optimizer": optimizer}, train, shown=f"SGD with momentum {momentum} on w, v and x")
    w, x, v, unused = (rng.leaf(2) for _ in range(4))
    optimizer = torch.optim.SGD([unused, w], lr=0.25)

    def add_later(_):
        optimizer.add_param_group({"params": [x, v]})
        (w * x + 0 * v).sum().backward()
        x.requires_grad_(False)
        optimizer.step()
        return {"w.grad": w.grad, "x.grad": x.grad, "v.grad": v.grad}

    shown = (
        "SGD on u, without a gradient, and w; after your function come v, with a gradient of zeros, and x, frozen later"
    )
    yield Case({"optimizer": optimizer}, add_later, shown=shown)


def _refuse(_: object) -> None:
    raise ValueError


@exercise
def first_arrival(rng):
    for first in (0, 1):
        x, seen, factor = rng.leaf(2), [torch.zeros(1), torch.ones(1)], rng.quarters(2) / 3
        a = 2 * x
        b = a * factor
        tensors = [a, b] if first else [b, a]

        def backward(handle, x=x, b=b, seen=seen, factor=factor):
            (b * factor).sum().backward(retain_graph=True)
            b.register_hook(lambda grad: grad.mul_(100))
            (b * factor).sum().backward(retain_graph=True)
            found = {"the list after two backwards": list(seen)}
            handle.remove()
            (b * 2).sum().backward()
            return found | {"the length of the list after handle.remove()": len(seen), "x.grad": x.grad}

        shown = f"tensors = {'[a, b]' if first else '[b, a]'}, where b = a · s"
        yield Case({"tensors": tensors, "seen": seen}, backward, shown, fresh=True)
    c, slope, alone = rng.leaf(2), rng.quarters(2), []
    d, e = 2 * c, 3 * c

    def one_of_two(handle):
        (d * slope).sum().backward(retain_graph=True)
        (d + 0 * e).sum().backward(retain_graph=True)
        (0 * e).sum().backward(retain_graph=True)
        found = {"the list after three backwards": list(alone)}
        with contextlib.suppress(ValueError), c.register_hook(_refuse):
            d.sum().backward(retain_graph=True)
        e.sum().backward()
        handle.remove()
        return found | {"the list after two more, of which the first raised an error": alone}

    shown = "tensors = [d, e], where d = 2c and e = 3c, and backwards from d, from both, from e with zeros"
    yield Case({"tensors": [d, e], "seen": alone}, one_of_two, shown, fresh=True)


@exercise
def save_as_kernel(rng):
    for size in (1, 2):
        layer, other = whole_weights(nn.Linear(size, 1), rng), whole_weights(nn.Linear(1, 1), rng)

        def save(handle, layer=layer, other=other):
            with torch.no_grad():
                layer.weight += 1
            model = nn.Sequential(other, layer)
            found = {"layer.state_dict()": dict(layer.state_dict()), "model.state_dict()": dict(model.state_dict())}
            outer = nn.ModuleDict({"weights": model})
            found |= {"the names in a model that has that model under the name `weights`": sorted(outer.state_dict())}
            found |= {"the parameters": [name for name, _ in layer.named_parameters()]}
            handle.remove()
            return found | {"layer.state_dict() after handle.remove()": sorted(layer.state_dict())}

        shown = f"a Linear layer from {size} to 1, whose weight grows by 1; also as the second layer of a model"
        yield Case({"layer": layer}, save, shown)


@exercise
def zero_second_factor(rng):
    for size in (1, 2):
        a, b, slope = rng.leaf(size), rng.leaf(3 - size), rng.quarters(2)
        product = a * b

        def backward(handle, a=a, b=b, product=product, slope=slope):
            (slope * product).sum().backward(retain_graph=True)
            (slope * product).sum().backward(retain_graph=True)
            found = {"a.grad after two backwards": kept(a.grad), "b.grad": kept(b.grad)}
            handle.remove()
            (slope * product).sum().backward()
            return found | {"b.grad after handle.remove()": b.grad}

        shown = f"a · b, where a has the shape ({size},) and b ({3 - size},)"
        yield Case({"product": product}, backward, shown, fresh=True)
    x, z = (rng.leaf(2).detach().double().requires_grad_() for _ in range(2))
    slope = rng.mixed(2) / 3
    product = (2 * x) * (3 * z)

    def go_back(handle):
        (slope * product).sum().backward()
        handle.remove()
        return {"x.grad": x.grad, "z.grad": z.grad}

    yield Case({"product": product}, go_back, shown="a · b, where a = 2x and b = 3z, of dtype float64", fresh=True)
    both, pair = rng.leaf(2), rng.leaf(2, 2)
    a, b = pair.unbind()
    for leaf, product, words in ((both, both * both, "both are x"), (pair, a * b, "a, b = x.unbind()")):

        def go_back_to_one(handle, leaf=leaf, product=product):
            (slope * product).sum().backward()
            handle.remove()
            return {"x.grad": leaf.grad}

        yield Case({"product": product}, go_back_to_one, shown=f"a · b, where {words}", fresh=True)


@exercise
def twelve_from_afar(rng):
    for size in (1, 2):
        x, slope = rng.leaf(size), rng.quarters(size)
        y = x.exp() if size > 1 else 3 * x

        def backward(handle, x=x, y=y, slope=slope):
            for _ in range(2):
                (slope * (y + x)).sum().backward(retain_graph=True)
            found = {"x.grad after two backwards": kept(x.grad), "whether x still requires a gradient": x.requires_grad}
            x.grad = None
            (0 * x).sum().backward()
            found |= {"x.grad of a third backward, with a gradient of zeros,": kept(x.grad)}
            x.grad = None
            (torch.inf * x).sum().backward()
            found |= {"x.grad of a backward with an infinite gradient": kept(x.grad)}
            y.detach_()
            x.grad = None
            (2.0**30 * x).sum().backward()
            found |= {"x.grad of one with a very large gradient and without y's graph": kept(x.grad)}
            handle.remove()
            x.grad = None
            (2 * x).sum().backward()
            return found | {"x.grad after handle.remove()": x.grad}

        shown = f"y = {'exp(x)' if size > 1 else '3 · x'}, and x is also used elsewhere"
        yield Case({"y": y}, backward, shown=shown, fresh=True)
    x, v, slope = rng.leaf(2), rng.leaf(2), rng.quarters(2)
    y, sibling = x.exp(), 3 * v

    def go_back(handle):
        (slope * (x + sibling)).sum().backward()
        handle.remove()
        return {"x.grad": x.grad, "the gradient that reached v beside it": v.grad}

    yield Case({"y": y}, go_back, shown="y = exp(x), and x + 3v is what backward begins with", fresh=True)
    row, factors = rng.leaf(2), rng.quarters(3, 2)
    table = factors * row

    def go_back_from_a_table(handle):
        table.sum().backward()
        handle.remove()
        return {"x.grad": row.grad}

    shown = "y = factors · x, where x has the shape (2,) and the factors (3, 2)"
    yield Case({"y": table}, go_back_from_a_table, shown=shown, fresh=True)
    base = rng.leaf(2)
    square = base * base

    def go_back_after_removal(handle):
        square.sum().backward()
        first, base.grad = base.grad, None
        handle.remove()
        (3 * base).sum().backward()
        return {"x.grad": first, "x.grad after handle.remove()": base.grad}

    yield Case({"y": square}, go_back_after_removal, shown="y = x · x", fresh=True)


@exercise
def pretend_saved(rng):
    for value, dtype in ((rng.integer(2, 9), torch.float32), (-0.25, torch.float64), (0, torch.float32)):
        x, factor = rng.whole(2).to(dtype).requires_grad_(), rng.whole(2, 2).to(dtype)
        factor[0, 0] = torch.inf

        def lie(manager, x=x, factor=factor):
            with manager:
                one_more = x * 1  # what is saved of it, nobody else holds
                square, product, unused = one_more * one_more, factor @ x, x.exp()
            memory = StorageWeakRef(unused.untyped_storage())  # `exp` saves its own result
            del unused, one_more
            (square.sum() + product.sum()).backward()
            found = {"x · x": square, "x.grad of x · x and F @ x together": kept(x.grad), "x": x, "F": factor}
            found["whether exp(x), made in the block and no longer used, has been freed"] = memory.expired()
            x.grad = None
            (x * x).sum().backward()
            return found | {"x.grad of x · x after the block": x.grad}

        yield Case({"value": value}, lie, shown=f"value = {value}, and x and F of {dtype}")
    z, places = rng.leaf(3), torch.tensor([2, 1])

    def lie_about_places(manager):
        with contextlib.suppress(ValueError), manager:
            chosen = z.gather(0, places)  # it saves `places`, which are whole numbers
            raise ValueError
        chosen.sum().backward()
        first, z.grad = z.grad, None
        (z * z).sum().backward()
        return {"x.gather(0, index)": chosen, "x.grad": first, "x.grad of x · x after the block": z.grad}

    shown = "value = 0, and x.gather(0, index), which saves an index; then an error ends the block"
    yield Case({"value": 0}, lie_about_places, shown=shown)


def _leads_to(y: torch.Tensor, leaf: torch.Tensor) -> bool:
    """Whether the graph of `y` leads to `leaf`."""
    found, nodes = set(), [y.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is not None and node not in found:
            found.add(node)
            nodes += [before for before, _ in node.next_functions]
    return any(getattr(node, "variable", None) is leaf for node in found)


def _is_freed(y: torch.Tensor, leaf: torch.Tensor) -> bool:
    """Whether a backward has freed the graph between `y` and a leaf."""
    try:
        torch.autograd.grad(y, leaf)
    except RuntimeError:
        return True
    return False


@exercise
def leaf_without_gradient(rng):
    for _ in range(2):
        w, x, added, came = rng.leaf(1), rng.leaf(1), [], []
        x.register_hook(came.append)

        def note(leaf, added=added):
            if leaf.grad is not None:  # of a leaf that is frozen meanwhile
                added.append(leaf.grad)

        w.register_post_accumulate_grad_hook(note)

        def compare(y, w=w, x=x, added=added, came=came):
            v, u = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
            (v * u).backward()
            return {
                "in the lesson's program: whether the leaf has a gradient": v.grad is not None,
                "in yours: whether w has a gradient": w.grad is not None,
                "in yours: how often backward added to w.grad": len(added),
                "in yours: x.grad": x.grad,
                "in yours: how often backward came to x": len(came),
                "in yours: whether w is in the graph of y": _leads_to(y, w),
                "in yours: whether the graph of y is freed": _is_freed(y, w),
            }

        yield Case({"w": w, "x": x}, compare, fresh=True)


def _number(handle) -> int:
    """The number that torch gave a hook; of a handle for several tensors, that of its first hook."""
    return handle.id if hasattr(handle, "id") else handle.handles[0].id


@exercise
def out_of_order(rng):
    for size in (1, 2):
        w, ran = rng.leaf(size), []
        hooks = [lambda *_, ran=ran, name=name: ran.append(name) for name in ("first", "second")]

        def compare(handles, w=w, ran=ran):
            def order(leaf):
                ran.clear()
                (2 * leaf).sum().backward()
                return list(ran)

            rule = torch.ones(1, requires_grad=True)
            for name in ("first", "second"):
                rule.register_hook(lambda grad, name=name: ran.append(name))
            (one, other), mine = handles, order(w)
            found = {"in the lesson's program: who ran": order(rule), "in yours: who ran": mine}
            found |= {"in yours: whether the first handle is the older one": _number(one) < _number(other)}
            one.remove()
            found |= {"in yours: who ran after the first handle was removed": order(w)}
            other.remove()
            return found | {"in yours: who ran after both were removed": order(w)}

        given = {"w": w, "first": hooks[0], "second": hooks[1]}
        yield Case(given, compare, shown=f"a leaf of shape ({size},): {w.tolist()}", fresh=True)


@exercise
def lost_in_the_copy(rng):
    for size in (1, 2):
        layer, ran = whole_weights(nn.Linear(size, 1), rng), []

        def compare(handle, layer=layer, ran=ran, size=size):
            def runs(module):
                ran.clear()
                output = module(torch.ones(1, size, requires_grad=True))
                if module is layer:
                    ran.clear()  # only backward counts
                output.sum().backward()
                return len(ran)

            rule = nn.Linear(size, 1)
            rule.register_forward_hook(lambda *_: ran.append("forward hook"))
            found = {
                "yours: how often the hook ran in backward": runs(layer),
                "yours: how often the hook of the copy ran": runs(twin := copy.deepcopy(layer)),
                "yours: how often the hook ran in the backward of a second call": runs(layer),
                "yours: how often the hook of the copy ran in a second call": runs(twin),
                "the lesson's program: how often the hook ran": runs(rule),
                "the lesson's program: how often the hook of the copy ran": runs(copy.deepcopy(rule)),
            }
            handle.remove()
            return found | {"yours: how often the hook ran in backward after handle.remove()": runs(layer)}

        given = {"layer": layer, "hook": lambda *_, ran=ran: ran.append("hook")}
        yield Case(given, compare, shown=f"a Linear layer from {size} to 1 with the weight {layer.weight.tolist()}")


@exercise
def pass_on_twice(rng):
    for size in (1, 2):
        x, slope = rng.leaf(size), rng.quarters(size)
        y = x * 1
        y.retain_grad()

        def compare(handle, x=x, y=y, slope=slope):
            for _ in range(2):
                (slope * y).sum().backward(retain_graph=True)
            v = torch.ones(1, requires_grad=True)
            z = v * 1
            z.retain_grad()
            z.register_hook(lambda grad: 2 * grad)
            z.sum().backward()
            found = {
                "the lesson's program: what was kept": z.grad,
                "the lesson's program: what was passed on": v.grad,
                "yours: what was kept in two backwards": kept(y.grad),
                "yours: the sum of what was passed on in two backwards": kept(x.grad),
            }
            handle.remove()
            x.grad = None
            (slope * y).sum().backward()
            return found | {"yours: what was passed on after handle.remove()": x.grad}

        yield Case({"y": y}, compare, shown=f"y = x · 1, and the gradient {slope.tolist()} arrives", fresh=True)
    a, b, v, slope = rng.leaf(2), rng.leaf(2), rng.leaf(2), rng.quarters(2)
    sibling = 3 * v
    product = a * b
    product.retain_grad()

    def go_back(handle):
        (slope * (product + sibling)).sum().backward()
        handle.remove()
        found = {"what was kept": product.grad, "a.grad": a.grad, "b.grad": b.grad}
        return found | {"the gradient that reached v beside it": v.grad}

    yield Case({"y": product}, go_back, shown="y = a · b, to which 3v is added", fresh=True)
    rows, weights = rng.leaf(3, 2), rng.quarters(3, 2)
    first, second, third = (rows * 1).unbind(0)
    second.retain_grad()

    def go_back_from_all(handle):
        (weights[0] * first + weights[1] * second + weights[2] * third).sum().backward()
        handle.remove()
        return {"what was kept": second.grad, "x.grad": rows.grad}

    shown = "first, y, third = (x · 1).unbind(0), and backward comes by all of them"
    yield Case({"y": second}, go_back_from_all, shown=shown, fresh=True)


class _Layer(nn.Module):
    """A layer with a forward that somebody gives."""

    def __init__(self, forward) -> None:
        super().__init__()
        self.forward = forward


@exercise
def stop_unheard(rng):
    for limit in (rng.integer(2, 9), -rng.integer(2, 9)):

        def compare(forward, limit=limit):
            def program(x):
                if (x > limit).any():
                    raise ValueError
                return x

            def tell(output, x):
                other = "another tensor" if isinstance(output, torch.Tensor) else "another object"
                return "x itself" if output is x else "None" if output is None else other

            def reached(forward, numbers):
                layer, who = _Layer(forward), []
                layer.register_forward_hook(lambda *_: who.append("the hook"), always_call=True)
                x = torch.tensor(numbers)
                try:
                    who.append(f"the caller, by {tell(layer(x), x)}")
                except BaseException as error:
                    kind = "an exception" if isinstance(error, Exception) else "a BaseException that is no Exception"
                    who.append(f"the caller, by {kind}")
                return who

            below, above = limit - 0.5, limit + 0.5
            at_the_limit = [[float(limit), below]]
            return {
                "yours: the list of who was reached at the limit": reached(forward, at_the_limit),
                "the lesson's program: the list of who was reached above the limit": reached(program, [[above]]),
                "yours: the list of who was reached above the limit": reached(forward, [[above]]),
                "yours: the list of who was reached with one of two above it": reached(forward, [[below - 3, above]]),
                "yours: the list of who was reached at the limit, after that": reached(forward, at_the_limit),
                "yours: the list of who was reached with a tensor without dimensions below it": reached(forward, below),
                "yours: the list of who was reached with 1 and -1": reached(forward, [1.0, -1.0]),
            }

        yield Case({"limit": limit}, compare)


@exercise
def compute_again(rng):
    for size in (1, 2):
        w, z, runs = rng.leaf(size), rng.leaf(size), []
        x = rng.leaf(size) if size > 1 else rng.whole(size)

        def function(x, w=w, runs=runs):
            runs.append("run")
            return (w * x).square() * (x + w)

        def go_back(y, w=w, x=x, z=z, runs=runs, function=function):
            found = {"the output": y, "how often the function ran in forward": len(runs)}
            (z * z).sum().backward()
            found |= {"how often it had run after a backward through z · z": len(runs), "z.grad": kept(z.grad)}
            y.sum().backward()
            found |= {"how often it had run after backward": len(runs), "x.grad": kept(x.grad), "w.grad": kept(w.grad)}
            w.grad = None
            (3 * function(x)).sum().backward()
            return found | {"w.grad of a call without yours": w.grad}

        needs = "requires a gradient" if x.requires_grad else "is plain data"
        yield Case({"function": function, "x": x}, go_back, f"(w · x)² · (x + w), where x {needs}", fresh=True)
    v, memory = rng.leaf(3), []

    def squared(x):
        doubled = 2 * x
        memory.append(StorageWeakRef(doubled.untyped_storage()))
        return doubled.square()

    def look(y):
        found = {"whether 2x, which the function saved, has been freed before backward": memory[-1].expired()}
        y.sum().backward()
        return found | {"x.grad": v.grad}

    yield Case({"function": squared, "x": v}, look, "(2x)²", fresh=True)
