"""record.py: layers by name, what they compute, which gradients reach them, and odd modules."""

import collections
import copy
import dataclasses
import subprocess
import sys
import warnings

import pytest
import torch
from hook_nets import Apply, Pencil
from torch import nn

from course_utils.hooks.inventory import count_hooks
from course_utils.hooks.record import find_layer, find_layers, map_tensors, record, shapes_in, tensors_in
from course_utils.hooks.trace import tracing
from course_utils.root import CourseError

ONES = torch.ones(1, 3)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.again = self.first
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.again(self.first(x))


def raises(words, error=CourseError):
    return pytest.raises(error, match=words)


# -- Layers --


def test_find_layers_by_name_module_and_type_in_the_models_order():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sequential(nn.ReLU(), nn.Conv2d(2, 2, 3)))
    assert list(find_layers(model, nn.Conv2d)) == ["0", "1.1"]
    assert list(find_layers(model, "1.1", model[0])) == ["0", "1.1"]
    assert list(find_layers(model, "", model[1], nn.ReLU)) == ["", "1", "1.0"]
    assert list(find_layers(Shared(), nn.Linear)) == ["first", "unused"]  # a shared module counts once
    assert find_layer(shared := Shared(), "again") == ("again", shared.first)
    assert find_layer(shared, shared.again) == ("first", shared.first)
    with raises("Conv2d chooses 2 layers: name one of them, such as '1.1'"):
        find_layer(model, nn.Conv2d)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ("fc3", r"'fc3' is not in Pencil \(nearest: fc\d, fc\d\); the model has fc1, relu, fc2$"),
        ("zzzzz", "'zzzzz' is not in Pencil; the model has fc1, relu, fc2$"),
        ("fc1.weight", "'fc1' has no layers inside$"),
        (nn.Linear(3, 4), r"the Linear you gave is not a module of Pencil; its Linear layers are fc1, fc2\."),
        (nn.GRU(1, 1), "its GRU layers are none"),
        (nn.Conv2d, "Pencil has no Conv2d; its modules are of type Linear, Pencil, ReLU$"),
        *[(wrong, "a layer is a dotted name, a module or a module type") for wrong in (3, int, ONES, None)],
    ],
)
def test_an_unknown_layer_is_named_with_what_fits(layer, words):
    known = isinstance(layer, (str, nn.Module)) or layer is nn.Conv2d
    with raises(words, CourseError if known else TypeError), record(Pencil(), layer):
        pass


def test_what_fits_is_shown_near_the_mistake_and_cut_when_long():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(1, 1)) for _ in range(20)])
    with raises(r"'3' has 3\.0$"):
        find_layers(model, "3.1")
    with raises(r"the model has 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … \(20 in all\)$"):
        find_layers(model, "x")
    twelve = nn.Sequential(*[nn.ReLU() for _ in range(12)])
    with raises("has 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11$"):
        find_layers(twelve, "x")
    with raises(r'its Sequential layers are "" \(the model\)'):
        find_layers(twelve, nn.Sequential())
    with raises(r"record\(model, \.\.\.\) needs a layer"), record(Pencil()):
        pass


# -- Recording --


@pytest.mark.parametrize("inplace", [False, True])
def test_the_pencil_network_with_and_without_an_in_place_relu(inplace):
    model = Pencil(inplace)
    with record(model, nn.Linear, "relu", gradients=True) as seen:
        model(ONES).backward()
    assert list(seen) == ["fc1", "relu", "fc2"]
    assert seen["fc1"].output.tolist() == [[7, -13, 27, -29]]
    assert seen["relu"].output.tolist() == [[7, 0, 27, 0]]
    assert seen[model.fc2].output.tolist() == [[89]]
    assert seen["relu"].gradient.tolist() == [[1, 2, 3, 4]]
    assert seen["fc1"].gradient.tolist() == [[1, 0, 3, 0]]
    assert [call.layer for call in seen.calls] == ["fc1", "relu", "fc2"]
    assert repr(seen["fc1"]) == "fc1: ran once; output (1, 4), with its gradient"
    assert repr(seen.calls[0]) == "fc1: output (1, 4), with its gradient"
    assert repr(seen).splitlines()[1] == "relu: ran once; output (1, 4), with its gradient"
    for tensor in (seen["fc1"].output, seen["fc1"].gradient):
        assert not tensor.requires_grad
        assert tensor.grad_fn is None


class Turned(nn.Module):
    """A view of its input, with an offset and strides of its own."""

    def forward(self, x):
        return x.transpose(0, 1)[1:]


class Later(nn.Module):
    """`after(output of layer, x)`, where the layer sees a result, not the leaf."""

    def __init__(self, layer, after):
        super().__init__()
        self.layer, self.after = layer, after

    def forward(self, x):
        x = x * 1.0
        return self.after(self.layer(x), x)


FACTORS = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
SQUARE = torch.arange(6.0).reshape(2, 3)
IN_PLACE = {  # layer, what follows, input, output of the layer, its gradient, result
    "adding the input": (Apply(lambda x: 3 * x), lambda y, x: y.add_(x) ** 2, [[2.0]], [[6]], [[16]], [[64]]),
    "a view": (Turned(), lambda y, x: y.mul_(FACTORS), SQUARE.tolist(), [[1, 4], [2, 5]], FACTORS.tolist(), None),
    "a view, used before": (
        Turned(),
        lambda y, x: 10 * y + y.mul_(FACTORS),
        SQUARE.tolist(),
        [[1, 4], [2, 5]],
        (FACTORS + 10).tolist(),
        None,
    ),
    "expanded": (
        Apply(lambda x: x.expand(2, 3)),
        lambda y, x: y * SQUARE,
        [1.0, 1, 1],
        [[1, 1, 1], [1, 1, 1]],
        SQUARE.tolist(),
        None,
    ),
    **{  # the operation changes x as well: a clone handed on would change the result
        f"shared memory of {type(layer).__name__}": (
            layer,
            lambda y, x: (y.mul_(2), x)[1],
            [1.0, 1, 1],
            [1, 1, 1],
            [2, 2, 2],
            [2, 2, 2],
        )
        for layer in (nn.Identity(), nn.Flatten(0), nn.Dropout().eval())
    },
}


@pytest.mark.parametrize("case", IN_PLACE)
def test_what_is_changed_in_place_afterwards(case):
    layer, after, x, output, gradient, result = IN_PLACE[case]
    model = Later(layer, after)
    with record(model, "layer", gradients=True) as seen:
        got = model(torch.tensor(x, requires_grad=True))
        got.sum().backward()
    assert seen["layer"].output.tolist() == output
    assert seen["layer"].gradient.tolist() == gradient
    assert result is None or got.tolist() == result


def test_undetached_outputs_belong_to_the_graph_and_their_gradients_too():
    model = Pencil(inplace=True)
    with record(model, "fc1", detach=False) as seen:
        output = model(ONES)
    assert seen["fc1"].output.tolist() == [[7, -13, 27, -29]]
    assert torch.autograd.grad(output, seen["fc1"].output)[0].tolist() == [[1, 0, 3, 0]]
    assert model.fc1.weight.grad is None
    model, x = nn.Sequential(Apply(lambda x: x * 1.0)), torch.tensor(2.0, requires_grad=True)
    with record(model, "0", gradients=True, detach=False) as seen:
        torch.autograd.grad(model(x) ** 3, x, create_graph=True)
    assert seen["0"].gradient.item() == 12  # 3 x², and its own slope is 6 x
    assert torch.autograd.grad(seen["0"].gradient, x)[0].item() == 12


def test_several_backward_passes_add_up_and_other_hooks_do_not_disturb():
    model, shapes = Pencil(), []
    with record(model, "fc1", gradients=True) as seen:
        output = model(ONES)
        output.backward(retain_graph=True)
        output.backward()
    assert seen["fc1"].gradient.tolist() == [[2, 0, 6, 0]]
    with record(model, "fc1", gradients=True) as seen:
        hidden = model.fc1(ONES)
        hidden.register_hook(lambda grad: grad.mul_(100))
        (hidden * torch.arange(4.0)).sum().backward()
    assert seen["fc1"].gradient.tolist() == [[0, 1, 2, 3]]
    handle = model.fc1.register_full_backward_hook(lambda module, given, taken: shapes.append(taken[0].shape))
    with handle, record(model, "fc1") as outer, record(model, "fc1", gradients=True) as inner:
        model(torch.ones(1, 3, requires_grad=True)).backward()
    assert shapes == [(1, 4)]
    assert inner["fc1"].gradient.tolist() == [[1, 0, 3, 0]]
    assert torch.equal(outer["fc1"].output, inner["fc1"].output)


# -- Odd modules --


def test_a_module_that_runs_several_times():
    wrapper = nn.Sequential(nn.RNNCell(2, 2))
    with record(wrapper, "0", gradients=True) as seen:
        state = wrapper(torch.ones(1, 2))
        wrapper(state).sum().backward()
        wrapper(state)  # no gradient reaches this call
    assert len(seen["0"].calls) == len(seen["0"].outputs) == 3
    assert [gradient is None for gradient in seen["0"].gradients] == [False, False, True]
    with raises(r"ran 3 times in this block: choose one of `\.outputs`"):
        _ = seen["0"].output
    with raises(r"choose one of `\.gradients`"):
        _ = seen["0"].gradient
    with raises("layer '0' has no gradient: no backward pass reached it"):
        _ = seen["0"].calls[2].gradient


def test_two_names_reach_one_record_and_a_module_that_never_runs_says_so():
    model = Shared()
    with record(model, nn.Linear, gradients=True) as seen:
        model(torch.ones(1, 2)).sum().backward()
    assert seen["first"] is seen["again"] is seen[model.first]
    assert seen["first"].names == ("first", "again")
    assert len(seen) == 2
    assert len(seen["again"].outputs) == 2
    assert repr(seen).startswith("first = again: ran 2 times; output (1, 2), with its gradient; output (1, 2)")
    assert seen["unused"].outputs == seen["unused"].gradients == []
    for name in ("output", "gradient"):
        with raises(r"'unused' has no output: it never ran in this block.*not `model\.forward`"):
            getattr(seen["unused"], name)


def test_a_fused_path_is_left_and_weights_used_without_a_call_are_explained():
    model = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    x = torch.linspace(-1, 1, 48).reshape(2, 3, 8)
    with torch.no_grad():
        expected = model(x)
        with record(model, nn.Module) as seen:
            torch.testing.assert_close(model(x), expected)
    assert seen["linear1"].output.shape == (2, 3, 2048)
    with raises("its parent uses its weights without calling it"):
        _ = seen["self_attn.out_proj"].output


@dataclasses.dataclass(frozen=True)
class Answer:
    scores: torch.Tensor
    name: str


Pair = collections.namedtuple("Pair", ["left", "right"])
STRUCTURES = {
    "tuple": lambda x: (2 * x, 3 * x),
    "list": lambda x: [2 * x, None, 3 * x],
    "dict": lambda x: {"a": 2 * x, "count": 7},
    "ordered dict": lambda x: collections.OrderedDict(b=(2 * x,), a=3 * x),
    "default dict": lambda x: collections.defaultdict(list, a=2 * x),
    "named tuple": lambda x: Pair(2 * x, [3 * x, "text"]),
    "dataclass": lambda x: Answer(2 * x, "text"),
    "return type": lambda x: torch.max(2 * x, dim=1),
    "shape and type": lambda x: (2 * x, x.shape, Answer),
}


@pytest.mark.parametrize("detach", [True, False])
@pytest.mark.parametrize("kind", STRUCTURES)
def test_structured_outputs(kind, detach):
    model, x = nn.Sequential(Apply(STRUCTURES[kind])), torch.ones(1, 2, requires_grad=True)
    expected = STRUCTURES[kind](x)
    with record(model, "0", gradients=True, detach=detach) as seen:
        output = model(x)
        sum((5 * t).sum() for t in tensors_in(output) if t.requires_grad).backward()
    kept, gradient = seen["0"].output, seen["0"].gradient
    assert type(kept) is type(output) is type(gradient) is type(expected)
    assert shapes_in(kept) == shapes_in(expected)
    for ours, theirs in zip(tensors_in(kept), tensors_in(expected), strict=True):
        assert torch.equal(ours, theirs)
        assert ours is not theirs
    reached = tensors_in(gradient)
    assert len(reached) == sum(t.requires_grad for t in tensors_in(expected))
    assert all((t == 5).all() for t in reached)


def test_shapes_and_leaves_of_a_structure():
    value = {"a": (torch.ones(2, 3), None), "b": [Answer(torch.ones(()), "x"), torch.Size([1])]}
    assert shapes_in(value) == {"a": ((2, 3), None), "b": [Answer((), "str"), "Size"]}
    assert map_tensors(torch.numel, value)["b"] == [Answer(1, "x"), torch.Size([1])]


def test_packed_sequences_and_an_output_without_tensors():
    model = nn.LSTM(2, 3)
    packed = nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
    with record(model, "", gradients=True) as seen:
        output, _ = model(packed)
        output.data.sum().backward()
    kept, (hidden, cell) = seen[""].output
    assert torch.equal(kept.data, output.data)
    assert seen[""].gradient[0].data.shape == (4, 3)
    assert seen[""].gradient[1] == (None, None)
    assert hidden.shape == cell.shape == (1, 2, 3)
    with record(model := nn.Sequential(Apply(lambda x: "text")), "0", gradients=True) as seen:
        model(ONES)
    assert seen["0"].output == "text"
    with raises("its output holds no tensor"):
        _ = seen["0"].gradient


# -- Where no gradient flows --


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        (torch.no_grad, r"under torch\.no_grad\(\)"),
        (torch.inference_mode, r"under torch\.inference_mode\(\)"),
        (torch.enable_grad, "frozen parameters"),
    ],
)
def test_activations_without_a_graph_and_a_sentence_for_gradients(mode, sentence):
    model = Pencil().requires_grad_(False)
    with record(model, "fc1", gradients=True) as seen, mode():
        model(ONES)
    assert seen["fc1"].output.tolist() == [[7, -13, 27, -29]]
    assert not seen["fc1"].output.is_inference()
    for name in ("gradient", "gradients"):
        with raises(f"layer 'fc1' has no gradient: .*{sentence}"):
            getattr(seen["fc1"], name)
    with record(model, "fc1", gradients=True) as seen:
        model(torch.ones(1, 3, requires_grad=True)).backward()
    assert seen["fc1"].gradient.tolist() == [[1, 0, 3, 0]]
    assert not any(p.requires_grad for p in model.parameters())


def test_gradients_that_were_not_asked_for_or_came_too_late():
    model = Pencil()
    with record(model, "fc1") as seen:
        model(ONES).backward()
    with raises("gradients=True"):
        _ = seen["fc1"].gradient
    with record(model, "fc1", gradients=True) as seen:
        output = model(ONES)
    output.backward()
    with raises("no backward pass reached it inside the block"):
        _ = seen["fc1"].gradient


def test_a_layer_that_was_not_recorded():
    model = Pencil()
    with record(model, "fc1") as seen:
        pass
    for layer in ("fc2", nn.Linear, model.fc2):
        with raises(r"fc2 was not recorded; recorded: fc1\. Index with a name"):
            _ = seen[layer]
    for layer, words in (("fc9", "'fc9' is not in Pencil"), (nn.Linear(1, 1), "not a module of Pencil")):
        with raises(words):
            _ = seen[layer]
    assert "fc2" not in seen


# -- Every way out --


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("manager", [lambda m: record(m, nn.Module, gradients=True), tracing])
def test_nothing_stays_behind_on_any_way_out(manager, error, monkeypatch):
    model, kept = Pencil(inplace=True), []
    before = {name: dict(vars(module)) for name, module in model.named_modules()}

    def stop_halfway():
        with manager(model):
            kept.append(model.fc1(ONES))
            raise error

    with pytest.raises(error):
        stop_halfway()
    assert count_hooks(model).total() == 0
    assert count_hooks(kept[0]).total() == 0
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before

    def refuse(hook):
        raise error("no more hooks")

    monkeypatch.setattr(model.relu, "register_forward_hook", refuse)
    with pytest.raises(error, match="no more hooks"), record(model, nn.Module):
        pass
    assert count_hooks(model).total() == 0


def test_a_copy_made_inside_the_block_records_nothing_afterwards():
    model = Pencil()
    with record(model, "fc1", gradients=True) as seen:
        twin = copy.deepcopy(model)
    twin(ONES).backward()
    assert seen["fc1"].calls == []


# -- Compiled models --


def compiled(model):
    pytest.importorskip("torch._dynamo")
    torch.compiler.reset()
    return torch.compile(model, backend="eager")


@pytest.mark.slow
def test_a_model_compiled_before_the_block_says_that_its_hooks_were_skipped():
    whole = compiled(Pencil())
    whole(ONES)
    warns = pytest.warns(UserWarning, match="nothing was recorded for fc1, fc2: the model ran compiled")
    with warns as warned, record(whole, nn.Linear) as seen:
        whole(ONES)
    assert warned[0].filename == __file__, "the warning points at the block"
    with raises("code compiled before the block does not see hooks added later"):
        _ = seen["fc1"].output
    assert count_hooks(whole).total() == 0
    model = nn.Sequential(compiled(Pencil()), nn.Linear(1, 1))
    model(ONES)
    warns = pytest.warns(UserWarning, match=r"nothing was recorded for 0._orig_mod.fc1: ")
    with warns, record(model, "0._orig_mod.fc1", "1") as seen:
        model(ONES)
    assert len(seen["1"].calls) == 1


@pytest.mark.slow
def test_a_model_that_is_first_compiled_inside_the_block_is_recorded():
    model = compiled(Pencil())
    layers = ("fc1", "_orig_mod.fc2", model)
    with warnings.catch_warnings(record=True) as warned, record(model, *layers, gradients=True) as seen:
        model(ONES).backward()
    assert not any("nothing was recorded" in str(warning.message) for warning in warned)
    assert seen["fc1"].output.tolist() == [[7, -13, 27, -29]]
    assert seen["fc1"].gradient.tolist() == [[1, 0, 3, 0]]
    assert seen["_orig_mod.fc2"] is seen["fc2"]
    assert seen[model] is seen[""]
    model(ONES)
    assert len(seen["fc1"].calls) == 1, "compiled code went on recording after the block"


@pytest.mark.slow
def test_hooks_import_no_heavy_module():
    code = (
        "import sys, course_utils.hooks.trace as t, course_utils.hooks.call as c, course_utils.hooks.memory as m, torch"
    )
    code += "\nwith m.measure_memory(): t.trace(torch.nn.Linear(1, 1), torch.ones(1, 1))"
    code += "\nprint({'torchvision', 'matplotlib', 'ipywidgets', 'torch._dynamo'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
