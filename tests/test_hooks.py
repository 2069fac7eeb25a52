"""hooks.py: layers by name, recording, odd modules, counting, the guard, and timelines."""

import collections
import copy
import dataclasses
import functools
import importlib
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from course_utils.hooks import inventory
from course_utils.hooks import record as record_module
from course_utils.hooks.inventory import (
    HooksLeftError,
    count_hooks,
    list_hooks,
    no_hooks_left,
)
from course_utils.hooks.record import (
    NothingRecordedError,
    UnknownLayerError,
    find_layers,
    record,
)
from course_utils.hooks.trace import trace, tracing


@pytest.fixture(autouse=True)
def _clean_global_hooks(monkeypatch):
    # torch remembers for ever whether the first global backward hook was a full one: put back what other tests find.
    monkeypatch.setattr(torch_module, "_global_is_full_backward_hook", None)
    yield
    assert count_hooks(nn.Identity()).total() == 0, "a test left a global hook"


class Pencil(nn.Module):
    """fc1 (3 to 4), ReLU, fc2 (4 to 1) with weights that a pencil can follow: 89 for an input of ones."""

    def __init__(self, inplace=False):
        super().__init__()
        self.fc1, self.relu, self.fc2 = nn.Linear(3, 4), nn.ReLU(inplace), nn.Linear(4, 1)
        with torch.no_grad():
            self.fc1.weight.copy_(torch.tensor([[1.0, 2, 3], [-4, -5, -6], [7, 8, 9], [-10, -11, -12]]))
            self.fc1.bias.copy_(torch.tensor([1.0, 2, 3, 4]))
            self.fc2.weight.copy_(torch.tensor([[1.0, 2, 3, 4]]))
            self.fc2.bias.fill_(1.0)

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x)))


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.again = self.first
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.again(self.first(x))


# -- Layers --


def test_find_layers_by_name_module_and_type_in_the_models_order():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sequential(nn.ReLU(), nn.Conv2d(2, 2, 3)))
    assert list(find_layers(model, nn.Conv2d)) == ["0", "1.1"]
    assert list(find_layers(model, "1.1", model[0])) == ["0", "1.1"]
    assert list(find_layers(model, "", model[1], nn.ReLU)) == ["", "1", "1.0"]


def test_a_shared_module_counts_once_under_its_first_name():
    assert list(find_layers(Shared(), nn.Linear)) == ["first", "unused"]
    assert list(find_layers(Shared(), "again")) == ["first"]


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ("fc3", ["'fc3' is not in Pencil", "nearest: fc", "the model has fc1, relu, fc2"]),
        ("fc1.weight", ["'fc1' has no layers inside"]),
        (nn.Linear(3, 4), ["the Linear you gave is not a module of Pencil", "its Linear layers are fc1, fc2"]),
        (nn.GRU(1, 1), ["it has no layer of that type"]),
        (nn.Conv2d, ["Pencil has no Conv2d", "Linear, Pencil, ReLU"]),
    ],
)
def test_an_unknown_layer_is_named_with_what_fits(layer, words):
    with pytest.raises(UnknownLayerError) as raised, record(Pencil(), layer):
        pass
    assert all(word in str(raised.value) for word in words), str(raised.value)


@pytest.mark.parametrize("layer", [3, int, torch.ones(1), None])
def test_what_is_no_layer_is_a_type_error(layer):
    with pytest.raises(TypeError, match="a layer is a dotted name, a module or a module type"):
        find_layers(Pencil(), layer)


def test_record_needs_a_layer():
    with pytest.raises(TypeError, match="at least one layer"), record(Pencil()):
        pass


def test_what_fits_is_shown_near_the_mistake_and_cut_when_long():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(1, 1)) for _ in range(20)])
    with pytest.raises(UnknownLayerError, match=r"'3' has 3.0$"):
        find_layers(model, "3.1")
    with pytest.raises(UnknownLayerError, match=r"… \(20 in all\)"):
        find_layers(model, "x")


# -- Recording --


def test_the_pencil_network():
    model = Pencil()
    with record(model, nn.Linear, "relu", gradients=True) as seen:
        model(torch.ones(1, 3)).backward()
    assert list(seen) == ["fc1", "relu", "fc2"]
    assert seen["fc1"].output.tolist() == [[7, -13, 27, -29]]
    assert seen["relu"].output.tolist() == [[7, 0, 27, 0]]
    assert seen[model.fc2].output.tolist() == [[89]]
    assert seen["relu"].gradient.tolist() == [[1, 2, 3, 4]]
    assert seen["fc1"].gradient.tolist() == [[1, 0, 3, 0]]
    assert [call.layer for call in seen.calls] == ["fc1", "relu", "fc2"]
    assert repr(seen["fc1"]) == "fc1: ran once; output (1, 4), with its gradient"


def test_an_in_place_operation_afterwards_spoils_neither_output_nor_gradient():
    model = Pencil(inplace=True)
    with record(model, nn.Module, gradients=True) as seen:
        model(torch.ones(1, 3)).backward()
    assert seen["fc1"].output.tolist() == [[7, -13, 27, -29]]
    assert seen["fc1"].gradient.tolist() == [[1, 0, 3, 0]]
    assert seen["relu"].gradient.tolist() == [[1, 2, 3, 4]]


def test_adding_the_identity_in_place_afterwards():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Linear(1, 1, bias=False)

        def forward(self, x):
            out = self.scale(x)
            out += x
            return out**2

    model = Block()
    nn.init.constant_(model.scale.weight, 3.0)
    with record(model, "scale", gradients=True) as seen:
        model(torch.tensor([[2.0]])).backward()
    assert (seen["scale"].output.item(), seen["scale"].gradient.item()) == (6, 16)


class Turned(nn.Module):
    """A view of its input, with an offset and strides of its own."""

    def forward(self, x):
        return x.transpose(0, 1)[1:]


@pytest.mark.parametrize("use_before", [0, 10])
def test_a_view_that_is_changed_in_place_afterwards(use_before):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.turned = Turned()

        def forward(self, x):
            view = self.turned(x * 1.0)
            before = use_before * view
            view.mul_(factors)
            return view + before

    factors = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    model = Net()
    with record(model, "turned", gradients=True) as seen:
        model(x).sum().backward()
    assert seen["turned"].output.tolist() == [[1, 4], [2, 5]]
    assert torch.equal(seen["turned"].gradient, factors + use_before)


@pytest.mark.parametrize("layer", [nn.Identity(), nn.Flatten(0), nn.Dropout().eval()])
def test_recording_keeps_the_memory_that_a_layer_shares_with_its_input(layer):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            x = x * 1.0
            self.layer(x).mul_(2)  # changes x as well: a clone handed on would change the result
            return x

    model, x = Net(), torch.ones(3, requires_grad=True)
    with record(model, "layer", gradients=True) as seen:
        output = model(x)
        output.sum().backward()
    assert output.tolist() == [2, 2, 2]
    assert seen["layer"].output.tolist() == [1, 1, 1]
    assert seen["layer"].gradient.tolist() == [2, 2, 2]


def test_an_expanded_output():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.spread = nn.Module()
            self.spread.forward = lambda x: x.expand(2, 3)

        def forward(self, x):
            return self.spread(x * 1.0) * torch.arange(6.0).reshape(2, 3)

    model = Net()
    with record(model, "spread", gradients=True) as seen:
        model(torch.ones(3, requires_grad=True)).sum().backward()
    assert seen["spread"].gradient.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_recorded_tensors_are_detached_and_keep_no_graph():
    model = Pencil()
    with record(model, "fc1", gradients=True) as seen:
        output = model(torch.ones(1, 3))
        torch.autograd.grad(output, list(model.parameters()), create_graph=True)
    for tensor in (seen["fc1"].output, seen["fc1"].gradient):
        assert not tensor.requires_grad
        assert tensor.grad_fn is None


def test_undetached_outputs_belong_to_the_graph_despite_in_place():
    model = Pencil(inplace=True)
    with record(model, "fc1", detach=False) as seen:
        output = model(torch.ones(1, 3))
    assert seen["fc1"].output.tolist() == [[7, -13, 27, -29]]
    (gradient,) = torch.autograd.grad(output, seen["fc1"].output)
    assert gradient.tolist() == [[1, 0, 3, 0]]
    assert model.fc1.weight.grad is None


def test_undetached_gradients_can_be_differentiated_again():
    class Cube(nn.Module):
        def forward(self, x):
            return x * 1.0

    model, x = nn.Sequential(Cube()), torch.tensor(2.0, requires_grad=True)
    with record(model, "0", gradients=True, detach=False) as seen:
        torch.autograd.grad(model(x) ** 3, x, create_graph=True)
    assert seen["0"].gradient.item() == 12
    assert torch.autograd.grad(seen["0"].gradient, x)[0].item() == 12


def test_gradients_of_several_backward_passes_add_up():
    model = Pencil()
    with record(model, "fc1", gradients=True) as seen:
        output = model(torch.ones(1, 3))
        output.backward(retain_graph=True)
        output.backward()
    assert seen["fc1"].gradient.tolist() == [[2, 0, 6, 0]]


def test_a_later_hook_that_changes_the_gradient_in_place_does_not_reach_the_record():
    model = Pencil()
    with record(model, "fc1", gradients=True) as seen:
        hidden = model.fc1(torch.ones(1, 3))
        hidden.register_hook(lambda grad: grad.mul_(100))
        (hidden * torch.arange(4.0)).sum().backward()
    assert seen["fc1"].gradient.tolist() == [[0, 1, 2, 3]]


def test_a_full_backward_hook_of_the_learner_works_beside_it():
    model, shapes = Pencil(), []
    handle = model.fc1.register_full_backward_hook(lambda module, given, taken: shapes.append(taken[0].shape))
    with handle, record(model, "fc1", gradients=True) as seen:
        model(torch.ones(1, 3, requires_grad=True)).backward()
    assert shapes == [(1, 4)]
    assert seen["fc1"].gradient.tolist() == [[1, 0, 3, 0]]


# -- Odd modules --


def test_a_module_that_runs_several_times():
    model = nn.RNNCell(2, 2)
    wrapper = nn.Sequential(model)
    with record(wrapper, "0", gradients=True) as seen:
        state = wrapper(torch.ones(1, 2))
        wrapper(state).sum().backward()
        wrapper(state)  # no gradient reaches this call
    assert len(seen["0"].calls) == len(seen["0"].outputs) == 3
    assert [gradient is None for gradient in seen["0"].gradients] == [False, False, True]
    with pytest.raises(NothingRecordedError, match=r"ran 3 times in this block: choose one of `.outputs`"):
        _ = seen["0"].output
    with pytest.raises(NothingRecordedError, match=r"choose one of `.gradients`"):
        _ = seen["0"].gradient
    with pytest.raises(NothingRecordedError, match="no backward pass reached it"):
        _ = seen["0"].calls[2].gradient


def test_two_names_reach_one_record():
    model = Shared()
    with record(model, "again", gradients=True) as seen:
        model(torch.ones(1, 2)).sum().backward()
    assert seen["first"] is seen["again"] is seen[model.first]
    assert seen["first"].names == ("first", "again")
    assert len(seen) == 1
    assert len(seen["again"].outputs) == 2
    assert repr(seen).startswith("first = again: ran 2 times")


def test_a_module_that_never_runs():
    model = Shared()
    with record(model, nn.Linear, gradients=True) as seen:
        model(torch.ones(1, 2))
    assert seen["unused"].outputs == seen["unused"].gradients == []
    for name in ("output", "gradient"):
        with pytest.raises(NothingRecordedError, match="'unused' has no output: it never ran in this block"):
            getattr(seen["unused"], name)


def test_forward_called_directly_records_nothing():
    model = Pencil()
    with record(model, "") as seen:
        model.forward(torch.ones(1, 3))
    with pytest.raises(NothingRecordedError, match=r"not `model.forward`"):
        _ = seen[""].output


def test_a_fused_path_is_left_and_weights_used_without_a_call_are_explained():
    model = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    x = torch.linspace(-1, 1, 48).reshape(2, 3, 8)
    with torch.no_grad():
        expected = model(x)
        with record(model, nn.Module) as seen:
            torch.testing.assert_close(model(x), expected)
    assert seen["linear1"].output.shape == (2, 3, 2048)
    with pytest.raises(NothingRecordedError, match="its parent uses its weights without calling it"):
        _ = seen["self_attn.out_proj"].output


@dataclasses.dataclass(frozen=True)
class Answer:
    scores: torch.Tensor
    name: str


Pair = collections.namedtuple("Pair", ["left", "right"])


class Structured(nn.Module):
    def __init__(self, build):
        super().__init__()
        self.build = build

    def forward(self, x):
        return self.build(x)


STRUCTURES = {
    "tuple": lambda x: (2 * x, 3 * x),
    "list": lambda x: [2 * x, None, 3 * x],
    "dict": lambda x: {"a": 2 * x, "count": 7},
    "ordered dict": lambda x: collections.OrderedDict(b=(2 * x,), a=3 * x),
    "default dict": lambda x: collections.defaultdict(list, a=2 * x),
    "named tuple": lambda x: Pair(2 * x, [3 * x, "text"]),
    "dataclass": lambda x: Answer(2 * x, "text"),
    "return type": lambda x: torch.max(2 * x, dim=1),
    "shape": lambda x: (2 * x, x.shape),
}


@pytest.mark.parametrize("detach", [True, False])
@pytest.mark.parametrize("kind", STRUCTURES)
def test_structured_outputs(kind, detach):
    model, x = nn.Sequential(Structured(STRUCTURES[kind])), torch.ones(1, 2, requires_grad=True)
    expected = STRUCTURES[kind](x)
    with record(model, "0", gradients=True, detach=detach) as seen:
        output = model(x)
        sum((5 * t).sum() for t in record_module.tensors_in(output) if t.requires_grad).backward()
    kept, gradient = seen["0"].output, seen["0"].gradient
    assert type(kept) is type(output) is type(gradient) is type(expected)
    assert record_module.shapes_in(kept) == record_module.shapes_in(expected)
    for ours, theirs in zip(record_module.tensors_in(kept), record_module.tensors_in(expected), strict=True):
        assert torch.equal(ours, theirs)
        assert ours is not theirs
    reached = record_module.tensors_in(gradient)
    assert len(reached) == sum(t.requires_grad for t in record_module.tensors_in(expected))
    assert all((t == 5).all() for t in reached)


def test_packed_sequences():
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


def test_an_output_without_tensors():
    model = nn.Sequential(Structured(lambda x: "text"))
    with record(model, "0", gradients=True) as seen:
        model(torch.ones(1))
    assert seen["0"].output == "text"
    with pytest.raises(NothingRecordedError, match="its output holds no tensor"):
        _ = seen["0"].gradient


# -- Where no gradient flows --


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        (torch.no_grad, "under torch.no_grad()"),
        (torch.inference_mode, "under torch.inference_mode()"),
        (torch.enable_grad, "frozen parameters"),
    ],
)
def test_activations_without_a_graph_and_a_sentence_for_gradients(mode, sentence):
    model = Pencil().requires_grad_(False)
    with record(model, "fc1", gradients=True) as seen, mode():
        model(torch.ones(1, 3))
    assert seen["fc1"].output.tolist() == [[7, -13, 27, -29]]
    assert not seen["fc1"].output.is_inference()
    for name in ("gradient", "gradients"):
        with pytest.raises(NothingRecordedError, match="has no gradient") as raised:
            getattr(seen["fc1"], name)
        assert sentence in str(raised.value)


def test_gradients_of_a_frozen_model_from_its_input():
    model = Pencil().requires_grad_(False)
    with record(model, "fc1", gradients=True) as seen:
        model(torch.ones(1, 3, requires_grad=True)).backward()
    assert seen["fc1"].gradient.tolist() == [[1, 0, 3, 0]]
    assert not any(p.requires_grad for p in model.parameters())


def test_gradients_that_were_not_asked_for_or_came_too_late():
    model = Pencil()
    with record(model, "fc1") as seen:
        model(torch.ones(1, 3)).backward()
    with pytest.raises(NothingRecordedError, match="gradients=True"):
        _ = seen["fc1"].gradient
    with record(model, "fc1", gradients=True) as seen:
        output = model(torch.ones(1, 3))
    output.backward()
    with pytest.raises(NothingRecordedError, match="no backward pass reached it inside the block"):
        _ = seen["fc1"].gradient


def test_a_layer_that_was_not_recorded():
    with record(Pencil(), "fc1") as seen:
        pass
    for layer in ("fc2", nn.Linear, nn.Linear(1, 1), 7):
        with pytest.raises(UnknownLayerError, match=r"was not recorded.*recorded: fc1\."):
            _ = seen[layer]
    assert "fc2" not in seen


# -- Every way out --


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("manager", [lambda m: record(m, nn.Module, gradients=True), tracing])
def test_nothing_stays_behind_on_any_way_out(manager, error):
    model, kept = Pencil(inplace=True), []
    before = {name: dict(vars(module)) for name, module in model.named_modules()}

    def stop_halfway():
        with manager(model):
            kept.append(model.fc1(torch.ones(1, 3)))
            raise error

    with pytest.raises(error):
        stop_halfway()
    assert count_hooks(model).total() == 0
    assert count_hooks(kept[0]).total() == 0
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_stays_behind_when_a_hook_cannot_be_registered(error, monkeypatch):
    model = Pencil()

    def refuse(hook):
        raise error("no more hooks")

    monkeypatch.setattr(model.relu, "register_forward_hook", refuse)
    with pytest.raises(error, match="no more hooks"), record(model, nn.Module):
        pass
    assert count_hooks(model).total() == 0


def test_an_error_in_forward_passes_through():
    model = Pencil()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), record(model, nn.Linear):
        model(torch.ones(1, 5))
    assert count_hooks(model).total() == 0


def test_a_copy_made_inside_the_block_records_nothing_afterwards():
    model = Pencil()
    with record(model, "fc1", gradients=True) as seen:
        twin = copy.deepcopy(model)
    twin(torch.ones(1, 3)).backward()
    assert seen["fc1"].calls == []


def test_blocks_may_be_nested():
    model = Pencil()
    with record(model, "fc1") as outer, record(model, "fc1", gradients=True) as inner:
        model(torch.ones(1, 3)).backward()
    assert torch.equal(outer["fc1"].output, inner["fc1"].output)
    assert count_hooks(model).total() == 0


# -- Compiled models --


def _compiled(model):
    pytest.importorskip("torch._dynamo")
    torch.compiler.reset()
    return torch.compile(model, backend="eager")


def test_a_model_compiled_before_the_block_says_that_its_hooks_were_skipped():
    model = Pencil()
    compiled = _compiled(model)
    compiled(torch.ones(1, 3))
    warns = pytest.warns(UserWarning, match="nothing was recorded for fc1, fc2: the model ran compiled")
    with warns as warned, record(compiled, nn.Linear) as seen:
        compiled(torch.ones(1, 3))
    assert warned[0].filename == __file__, "the warning points at the block"
    with pytest.raises(NothingRecordedError, match="code compiled before the block does not see hooks added later"):
        _ = seen["fc1"].output
    assert count_hooks(compiled).total() == 0


def test_a_compiled_part_of_a_model_is_noticed_too():
    model = nn.Sequential(_compiled(Pencil()), nn.Linear(1, 1))
    model(torch.ones(1, 3))
    warns = pytest.warns(UserWarning, match="nothing was recorded for 0._orig_mod.fc1: ")
    with warns, record(model, "0._orig_mod.fc1", "1") as seen:
        model(torch.ones(1, 3))
    assert len(seen["1"].calls) == 1


def test_a_model_that_is_first_compiled_inside_the_block_is_recorded():
    model = Pencil()
    compiled = _compiled(model)
    layers = ("fc1", "_orig_mod.fc2", compiled)
    with warnings.catch_warnings(record=True) as warned, record(compiled, *layers, gradients=True) as seen:
        compiled(torch.ones(1, 3)).backward()
    assert not any("nothing was recorded" in str(warning.message) for warning in warned)
    assert seen["fc1"].output.tolist() == [[7, -13, 27, -29]]
    assert seen["fc1"].gradient.tolist() == [[1, 0, 3, 0]]
    assert seen["_orig_mod.fc2"] is seen["fc2"]
    assert seen[compiled] is seen[""]
    compiled(torch.ones(1, 3))
    assert len(seen["fc1"].calls) == 1, "compiled code went on recording after the block"


def test_a_compiled_model_is_traced_by_the_model_inside():
    model = Pencil()
    compiled = _compiled(model)
    compiled(torch.ones(1, 3))
    assert trace(compiled, torch.ones(1, 3)).order() == trace(model, torch.ones(1, 3)).order()


# -- Counting and the guard --


def test_count_hooks_knows_every_kind():
    model = nn.Sequential(nn.BatchNorm1d(2))
    model.register_forward_pre_hook(print)
    model.register_forward_hook(print)
    model[0].register_forward_hook(print, always_call=True, with_kwargs=True)
    model.register_full_backward_pre_hook(print)
    model.register_full_backward_hook(print)
    model[0].register_backward_hook(print)
    model.register_state_dict_pre_hook(print)
    model.register_state_dict_post_hook(lambda *args: None)  # torch marks it, so it cannot be print
    model.register_load_state_dict_pre_hook(print)
    model.register_load_state_dict_post_hook(print)
    model[0].weight.register_hook(print)
    model[0].weight.register_post_accumulate_grad_hook(print)
    assert dict(count_hooks(model)) == {
        "forward pre-hook": 1,
        "forward hook": 2,
        "full backward pre-hook": 1,
        "full backward hook": 1,
        "legacy backward hook": 1,
        "state-dict pre-hook": 1,
        "state-dict hook": 1,
        "load-state-dict pre-hook": 1,
        "load-state-dict post-hook": 1,
        "tensor hook": 1,
        "post-accumulate-grad hook": 1,
    }


GLOBAL = {
    "global forward pre-hook": torch_module.register_module_forward_pre_hook,
    "global forward hook": torch_module.register_module_forward_hook,
    "global full backward pre-hook": torch_module.register_module_full_backward_pre_hook,
    "global full backward hook": torch_module.register_module_full_backward_hook,
    "global buffer registration hook": torch_module.register_module_buffer_registration_hook,
    "global module registration hook": torch_module.register_module_module_registration_hook,
    "global parameter registration hook": torch_module.register_module_parameter_registration_hook,
}


@pytest.mark.parametrize("kind", GLOBAL)
def test_count_hooks_knows_the_global_kinds(kind):
    with GLOBAL[kind](lambda *args: None):
        assert dict(count_hooks(nn.Identity())) == {kind: 1}
    assert count_hooks(nn.Identity())[kind] == 0


def test_count_hooks_knows_every_table_of_the_installed_torch():
    ours = set(inventory._TABLES.values())
    theirs = {name for name, value in vars(nn.Identity()).items() if "hooks" in name and isinstance(value, dict)}
    assert {name for name in theirs if not name.endswith(("_with_kwargs", "_always_called"))} == ours
    ours = {f"_global{inventory._TABLES[kind]}" for kind in inventory._CALL_KINDS} | set(
        inventory._REGISTRATION_TABLES.values()
    )
    theirs = {name for name, value in vars(torch_module).items() if "hooks" in name and isinstance(value, dict)}
    assert {name for name in theirs if not name.endswith(("_with_kwargs", "_always_called"))} == ours


def test_count_hooks_of_a_tensor():
    tensor = torch.ones(1, requires_grad=True)
    assert count_hooks(tensor).total() == 0
    tensor.register_hook(print)
    assert dict(count_hooks(tensor)) == {"tensor hook": 1}
    with pytest.raises(TypeError, match=r"nn.Module or a Tensor, got list"):
        count_hooks([tensor])


def test_list_hooks_says_where_and_which():
    model = Pencil()
    model.fc2.register_forward_hook(functools.partial(print, "x"))
    (found,) = list_hooks(model)
    assert (found.kind, found.owner, found.scope, found.name) == ("forward hook", "fc2", "local", "print")


def test_the_guard_names_what_was_left():
    model = Pencil()
    model.fc1.register_forward_hook(print)  # from before: may stay
    guard, handles = no_hooks_left(model), []
    guard.__enter__()
    handles.append(torch_module.register_module_forward_hook(print))
    handles.append(model.fc2.register_forward_pre_hook(print))
    model.register_forward_hook(print)
    model.fc1.bias.register_hook(print)
    with pytest.raises(HooksLeftError) as raised:
        guard.__exit__(None, None, None)
    handles[0].remove()
    text = str(raised.value)
    assert "left 4 hooks behind" in text
    for words in (
        "global forward hook print for all modules",
        "forward hook print on Pencil",
        "forward pre-hook print on fc2",
        "tensor hook print on fc1.bias",
    ):
        assert words in text
    assert len(raised.value.left) == 4
    assert handles[1].id in model.fc2._forward_pre_hooks, "the guard tells, it does not remove"


def test_the_guard_notices_a_hook_that_replaced_another():
    model = Pencil()
    old = model.register_forward_hook(print)

    def replace():
        with no_hooks_left(model):
            old.remove()
            model.register_forward_hook(print)

    with pytest.raises(HooksLeftError, match="left 1 hook behind"):
        replace()


def test_the_guard_is_silent_when_all_is_removed_and_hides_no_other_error():
    model, tensor = Pencil(), torch.ones(1, requires_grad=True)
    with no_hooks_left(model, tensor):
        model.register_forward_hook(print).remove()
    with pytest.raises(ZeroDivisionError), no_hooks_left(model):
        model.register_forward_hook(print) and 1 / 0
    with pytest.raises(HooksLeftError, match="tensor hook"), no_hooks_left(tensor):
        tensor.register_hook(print)
    with pytest.raises(TypeError, match="at least one"), no_hooks_left():
        pass


# -- Tracing --


def test_a_trace_shows_all_hooks_in_torchs_order():
    model = Pencil()

    def spy(*args):
        return None

    with (
        model.fc2.register_forward_hook(spy),
        model.fc2.register_forward_pre_hook(spy),
        model.fc2.register_full_backward_hook(spy),
        model.fc2.register_full_backward_pre_hook(spy),
        torch_module.register_module_forward_pre_hook(spy),
        torch_module.register_module_forward_hook(spy),
        torch_module.register_module_full_backward_hook(spy),
        torch_module.register_module_full_backward_pre_hook(spy),
    ):
        timeline = trace(model, torch.ones(1, 3, requires_grad=True))
    fc2 = [(kind, scope) for kind, module, scope, _ in timeline.order() if module == "fc2"]
    assert fc2 == [
        ("forward pre-hook", "global"),
        ("forward pre-hook", "local"),
        ("forward", ""),
        ("returns", ""),
        ("forward hook", "global"),
        ("forward hook", "local"),
        ("full backward pre-hook", "global"),
        ("full backward pre-hook", "local"),
        ("backward", ""),
        ("full backward hook", "global"),
        ("full backward hook", "local"),
    ]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert count_hooks(model).total() == 0


def test_the_table_is_plain_and_deterministic():
    model = Pencil(inplace=True)

    def double(module, args, output):
        return 2 * output

    with model.fc2.register_forward_hook(double):
        timeline = trace(model, torch.ones(1, 3))
    assert (
        repr(timeline)
        == """\
    what            module  hook          sees
 1  forward         Pencil                ((1, 3),)
 2    forward       fc1                   ((1, 3),)
 3    returns       fc1                   (1, 4)
 4    forward       relu                  ((1, 4),)
 5    returns       relu                  (1, 4)
 6    forward       fc2                   ((1, 4),)
 7    returns       fc2                   (1, 1)
 8    forward hook  fc2     local double  (((1, 4),), (1, 1)) -> (1, 1)
 9  returns         Pencil                (1, 1)
10  backward        Pencil                (1, 1)
11    backward      fc2                   (1, 1)
12    backward      relu                  (1, 4)
13    backward      fc1                   (1, 4)"""
    )


def test_a_trace_compares_a_hand_written_call():
    class Mini(Pencil):
        def __call__(self, *args):
            for hook in self._forward_hooks.values():  # wrong: a forward hook before forward
                hook(self, args, None)
            return self.forward(*args)

    orders = []
    for model in (Pencil(), Mini()):
        with model.register_forward_hook(lambda *args: None):
            orders.append(trace(model, torch.ones(1, 3)).order("forward", "forward hook"))
    assert orders[0][-1] == orders[1][0] == ("forward hook", "", "local", "<lambda>")


def test_options_of_wrapped_hooks_stay_and_everything_is_put_back():
    model, seen = Pencil(), []

    def spy(*args, tag=""):
        seen.append(len(args))

    model.fc1.register_forward_hook(spy, with_kwargs=True)
    model.fc1.register_forward_hook(functools.partial(spy, tag="p"), prepend=True)
    before = dict(model.fc1._forward_hooks)
    timeline = trace(model, torch.ones(1, 3))
    assert seen == [3, 4]
    assert [hook for *_, hook in timeline.order("forward hook")] == ["spy", "spy"]
    assert list(model.fc1._forward_hooks.items()) == list(before.items())
    assert "forward" not in vars(model)


def test_a_hook_that_removes_itself_and_an_own_forward_survive_a_trace():
    model, handles = Pencil(), []
    handles.append(model.fc1.register_forward_hook(lambda *args: handles[0].remove()))
    model.relu.forward = torch.relu
    assert len(trace(model, torch.ones(1, 3)).order("forward hook")) == 1
    assert count_hooks(model).total() == 0
    assert model.relu.forward is torch.relu


def test_tracing_keeps_the_timeline_when_forward_raises():
    model = Pencil()
    model.fc1.register_forward_hook(lambda *args: None, always_call=True)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), tracing(model) as timeline:
        model(torch.ones(1, 5))
    assert [event.kind for event in timeline.events] == ["forward", "forward", "raises", "forward hook", "raises"]
    assert timeline.events[2].sees == "RuntimeError"


def test_a_legacy_hook_and_a_module_outside_are_named():
    model = Pencil()
    with (
        model.fc2.register_backward_hook(lambda *args: None),
        torch_module.register_module_forward_pre_hook(lambda *args: None),
        warnings.catch_warnings(),
        tracing(model) as timeline,
    ):
        warnings.simplefilter("ignore", FutureWarning)
        nn.L1Loss()(model(torch.ones(1, 3)), torch.zeros(1, 1)).backward()
    model.zero_grad()
    assert ("legacy backward hook", "fc2", "local", "<lambda>") in timeline.order()
    assert ("forward pre-hook", "(L1Loss, not in the model)", "global", "<lambda>") in timeline.order()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_without_a_graph_the_trace_says_why_there_is_no_backward(mode):
    with mode():
        timeline = trace(Pencil().requires_grad_(False), torch.ones(1, 3))
    assert repr(timeline).splitlines()[-1].startswith("No backward pass through Pencil: ")
    assert not timeline.order("backward")


def test_a_trace_of_kwargs_and_structures_without_backward():
    class Net(nn.Module):
        def forward(self, x, *, scale):
            return {"out": x * scale, "n": 3}

    timeline = trace(Net(), torch.ones(2), scale=2.0, backward=False)
    assert [event.sees for event in timeline.events] == [((2,), {"scale": "float"}), {"out": (2,), "n": "int"}]
    assert timeline.note == ""
    x = torch.ones(2, requires_grad=True)
    assert [kind for kind, *_ in trace(Net(), x, scale=2.0).order()] == ["forward", "returns", "backward"]
    assert x.grad is None


def test_backward_after_the_trace_writes_nothing():
    model = Pencil()
    with tracing(model) as timeline:
        output = model(torch.ones(1, 3))
    before = len(timeline.events)
    output.backward()
    assert len(timeline.events) == before == 8


# -- The module itself --


def test_importing_hooks_imports_no_heavy_module():
    heavy = "{'torchvision', 'matplotlib', 'ipywidgets'}"
    code = f"import sys, course_utils.hooks.trace; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_public_functions_say_what_they_do():
    module = importlib.import_module("course_utils.hooks.record")
    public = [value for name, value in vars(module).items() if not name.startswith("_") and callable(value)]
    ours = [value for value in public if getattr(value, "__module__", "") == module.__name__]
    assert len(ours) > 10
    assert all(value.__doc__ for value in ours)
