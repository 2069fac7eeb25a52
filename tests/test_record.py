"""record.py: layers by name, what they compute, which gradients reach them, and odd modules."""

import collections
import copy
import dataclasses
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

from course_utils.hooks.inventory import count_hooks, no_hooks_left
from course_utils.hooks.record import find_layer, find_layers, record, shapes_in, tensors_in
from course_utils.root import CourseError
from course_utils.vision.toys import SmallNet

ONES = torch.ones(1, 3)


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function


def share():
    first = nn.Linear(2, 2)
    first.unused = nn.Linear(2, 2)
    return nn.Sequential(collections.OrderedDict(first=first, again=first))


def test_find_layers_by_name_module_and_type_in_the_models_order():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sequential(nn.ReLU(), nn.Conv2d(2, 2, 3)))
    assert list(find_layers(model, nn.Conv2d)) == ["0", "1.1"]
    assert list(find_layers(model, "", model[1], nn.ReLU)) == ["", "1", "1.0"]
    assert list(find_layers(share(), nn.Linear)) == ["first", "first.unused"]  # a shared module counts once
    assert find_layer(shared := share(), "again") == ("again", shared.first)
    assert find_layer(shared, shared.again) == ("first", shared.first)
    with pytest.raises(CourseError, match=r"Conv2d chooses 2 layers: name one of them, such as '1\.1'"):
        find_layer(model, nn.Conv2d)


TWELVE = nn.Sequential(*[nn.ReLU() for _ in range(12)])
TWENTY = nn.Sequential(*[nn.Sequential(nn.Linear(1, 1)) for _ in range(20)])


@pytest.mark.parametrize(
    ("model", "layer", "words"),
    [
        (SmallNet(), "fc3", r"'fc3' is not in SmallNet \(nearest: fc\d, fc\d\); the model has fc1, relu, fc2$"),
        (SmallNet(), "fc1.weight", "'fc1' has no layers inside$"),
        (TWENTY, "3.1", r"'3' has 3\.0$"),
        (TWENTY, "x", r"the model has 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … \(20 in all\)$"),
        (TWELVE, "x", "has 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11$"),
        (SmallNet(), nn.Linear(3, 4), r"the Linear you gave is not a module of SmallNet; its Linear .* fc1, fc2\."),
        (TWELVE, nn.Sequential(), r'its Sequential layers are "" \(the model\)'),
        (SmallNet(), nn.Conv2d, "SmallNet has no Conv2d; its modules are of type Linear, ReLU, SmallNet$"),
        *[(SmallNet(), wrong, "a layer is a dotted name, a module or a module type") for wrong in (3, int, None)],
    ],
)
def test_an_unknown_layer_is_named_with_what_fits(model, layer, words):
    known = isinstance(layer, (str, nn.Module)) or layer is nn.Conv2d
    with pytest.raises(CourseError if known else TypeError, match=words), record(model, layer):
        pass


FACTORS = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
SQUARE = torch.arange(6.0).reshape(2, 3)
TURN, TURNED = Apply(lambda x: x.transpose(0, 1)[1:]), [[1, 4], [2, 5]]  # a view with an offset and strides


@pytest.mark.parametrize(
    ("layer", "after", "x", "output", "gradient", "result"),
    [
        (Apply(lambda x: 3 * x), lambda y, x: y.add_(x) ** 2, [[2.0]], [[6]], [[16]], [[64]]),
        (TURN, lambda y, x: 10 * y + y.mul_(FACTORS), SQUARE.tolist(), TURNED, [[11, 12], [13, 14]], None),
        (Apply(lambda x: x.expand(2, 3)), lambda y, x: y * SQUARE, [1.0, 1, 1], [[1, 1, 1]] * 2, SQUARE.tolist(), None),
        # The operation changes x as well: a clone handed on would change the result.
        (nn.Identity(), lambda y, x: (y.mul_(2), x)[1], [1.0, 1, 1], [1, 1, 1], [2, 2, 2], [2, 2, 2]),
    ],
)
def test_what_is_changed_in_place_afterwards(layer, after, x, output, gradient, result):
    with record(model := nn.Sequential(layer), "0", gradients=True) as seen:
        x = torch.tensor(x, requires_grad=True) * 1.0  # a result, not the leaf
        got = after(model(x), x)
        got.sum().backward()
    assert seen["0"].output.tolist() == output
    assert seen["0"].gradient.tolist() == gradient
    assert result is None or got.tolist() == result


def test_gradients_of_undetached_outputs_belong_to_the_graph():
    model, x = nn.Sequential(Apply(lambda x: x * 1.0)), torch.tensor(2.0, requires_grad=True)
    with record(model, "0", gradients=True, detach=False) as seen:
        torch.autograd.grad(model(x) ** 3, x, create_graph=True)
    assert seen["0"].gradient.item() == 12  # 3 x², and its own slope is 6 x
    assert torch.autograd.grad(seen["0"].gradient, x)[0].item() == 12


def test_several_backward_passes_add_up_and_other_hooks_do_not_disturb():
    model = SmallNet()
    with record(model, "fc1", gradients=True) as seen:
        output = model(ONES)
        output.backward(retain_graph=True)
        output.backward()
    assert seen["fc1"].gradient.tolist() == [[2, 0, 6, 0]]
    assert repr(seen) == f"fc1: ran once; {str(seen.calls[0])[5:]}" == "fc1: ran once; output (1, 4), with its gradient"
    with record(model, "fc1", gradients=True) as seen:
        hidden = model.fc1(ONES)
        hidden.register_hook(lambda grad: grad.mul_(100))
        (hidden * torch.arange(4.0)).sum().backward()
    assert seen["fc1"].gradient.tolist() == [[0, 1, 2, 3]]


def test_a_module_with_two_names_that_runs_several_times_and_one_that_never_runs():
    model, got = share(), "; output (1, 2), with its gradient"
    with record(model, nn.Linear, gradients=True) as seen:
        model(torch.ones(1, 2)).sum().backward()
        model.first(torch.ones(1, 2))  # no gradient reaches this call
    assert seen["first"] is seen["again"] is seen[model.first]
    assert repr(seen) == f"first: ran 3 times{got}{got}; output (1, 2)\nfirst.unused: ran 0 times"
    assert [call.has_gradient for call in seen["first"].calls] == [True, True, False]
    torch.testing.assert_close(seen["first"].outputs[1], model(torch.ones(1, 2)).detach())
    with pytest.raises(CourseError, match=r"layer 'first' ran 3 times in this block: choose one of `\.calls`"):
        _ = seen["first"].output
    with pytest.raises(CourseError, match="'first' has no gradient: no backward pass reached it inside the block"):
        _ = seen["first"].calls[2].gradient
    for name in ("output", "gradient"):
        with pytest.raises(CourseError, match=r"'first\.unused' has no output: it never ran .*`model\.forward`"):
            getattr(seen["first.unused"], name)


def test_a_fused_path_is_left_and_weights_used_without_a_call_are_explained():
    model, x = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval(), torch.linspace(-1, 1, 48).reshape(2, 3, 8)
    with torch.no_grad(), record(model, nn.Module) as seen:
        found = model(x)
    with torch.no_grad():
        torch.testing.assert_close(found, model(x))
    assert seen["linear1"].output.shape == (2, 3, 2048)
    with pytest.raises(CourseError, match="uses its weights without calling it"):
        _ = seen["self_attn.out_proj"].output


@dataclasses.dataclass(frozen=True)
class Answer:
    scores: torch.Tensor
    name: str


Pair = collections.namedtuple("Pair", ["left", "right"])


@pytest.mark.parametrize("detach", [True, False])
@pytest.mark.parametrize(
    ("change", "shapes"),
    [
        (lambda x: (2 * x, [None, 3 * x]), ((2,), [None, (2,)])),
        (lambda x: collections.defaultdict(list, b=(2 * x,), a=7), {"b": ((2,),), "a": "int"}),
        (lambda x: Pair(2 * x, [3 * x, "text"]), ((2,), [(2,), "str"])),
        (lambda x: Answer(2 * x, "text"), Answer((2,), "str")),
        (lambda x: torch.max(2 * x, dim=0), ((), ())),
        (lambda x: (2 * x, x.shape, Answer), ((2,), "Size", "type")),
    ],
)
def test_structured_outputs(change, shapes, detach):
    model, x = nn.Sequential(Apply(change)), torch.ones(2, requires_grad=True)
    with record(model, "0", gradients=True, detach=detach) as seen:
        output = model(x)
        sum((5 * t).sum() for t in tensors_in(output) if t.requires_grad).backward()
    kept, gradient = seen["0"].output, seen["0"].gradient
    assert type(kept) is type(output) is type(gradient) is type(change(x))
    assert shapes_in(kept) == shapes
    torch.testing.assert_close(tensors_in(kept), tensors_in(change(x)))
    assert [t.unique().item() for t in tensors_in(gradient)] == [5] * sum(t.requires_grad for t in tensors_in(output))


NO_TENSOR = nn.Sequential(Apply(lambda x: "text"))
SMALL, FROZEN = SmallNet(), SmallNet().requires_grad_(False)


@pytest.mark.parametrize(
    ("model", "layer", "gradients", "mode", "words"),
    [
        (SMALL, "fc1", False, torch.enable_grad, "gradients=True"),
        (SMALL, "fc1", True, torch.enable_grad, "no backward pass reached it inside the block"),
        (FROZEN, "fc1", True, torch.enable_grad, "frozen parameters"),
        (FROZEN, "fc1", True, torch.no_grad, r"under torch\.no_grad\(\)"),
        (SMALL, "fc1", True, torch.inference_mode, r"under torch\.inference_mode\(\)"),
        (NO_TENSOR, "0", True, torch.enable_grad, "its output holds no tensor"),
    ],
)
def test_a_gradient_that_is_not_there_is_explained(model, layer, gradients, mode, words):
    with record(model, layer, gradients=gradients) as seen, mode():
        model(ONES)
    kept = seen[layer].output
    assert kept == "text" if model is NO_TENSOR else kept.tolist() == [[7, -13, 27, -29]] and not kept.is_inference()
    with pytest.raises(CourseError, match=f"layer '{layer}' has no gradient: .*{words}"):
        _ = seen[layer].gradient


def test_a_layer_that_was_not_recorded():
    with record(SMALL, "fc1") as seen:
        pass
    for layer in ("fc2", nn.Linear, SMALL.fc2):
        with pytest.raises(CourseError, match=r"fc2 was not recorded; recorded: fc1\. Index with a name"):
            _ = seen[layer]
    with pytest.raises(CourseError, match="'fc9' is not in SmallNet"):
        _ = seen["fc9"]
    with pytest.raises(CourseError, match=r"record\(model, \.\.\.\) needs a layer"), record(SMALL):
        pass


def test_nothing_stays_when_registering_fails(monkeypatch):
    monkeypatch.setattr((model := SmallNet()).relu, "register_forward_hook", lambda hook: 1 / 0)
    with pytest.raises(ZeroDivisionError), record(model, nn.Module):
        pass
    assert count_hooks(model).total() == 0


def test_a_copy_made_inside_the_block_records_nothing_afterwards():
    with record(SMALL, "fc1", gradients=True) as seen:
        twin = copy.deepcopy(SMALL)
    twin(ONES).backward()
    assert seen["fc1"].calls == []


@pytest.mark.slow
def test_a_model_compiled_before_the_block_says_so_and_one_compiled_inside_is_recorded():
    pytest.importorskip("torch._dynamo").reset()
    model = nn.Sequential(torch.compile(SmallNet(), backend="eager"), nn.Linear(1, 1))
    model(ONES)
    words = r"nothing was recorded for 0._orig_mod.fc1: it never ran, or it ran in code comp"
    with pytest.warns(UserWarning, match=words) as warned, record(model, "0._orig_mod.fc1", "1") as seen:
        model(ONES)
    assert warned[0].filename == __file__, "the warning points at the block"
    assert len(seen["1"].calls) == 1
    with pytest.raises(CourseError, match="code compiled before the block, which does not see hooks added later"):
        _ = seen["0._orig_mod.fc1"].output
    torch.compiler.reset()
    model = torch.compile(SmallNet(), backend="eager")
    with warnings.catch_warnings(record=True) as warned, record(model, "fc1", model, gradients=True) as seen:
        model(ONES).backward()
    assert not any("nothing was recorded" in str(warning.message) for warning in warned)
    assert seen["_orig_mod.fc1"].output.tolist() == [[7, -13, 27, -29]]
    assert seen["fc1"].gradient.tolist() == [[1, 0, 3, 0]]
    assert seen[model] is seen[""]
    model(ONES)
    assert len(seen["fc1"].calls) == 1, "compiled code went on recording after the block"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["a wrapper", "in place"])
def test_recording_the_model_inside_a_compiled_one_warns_if_hooks_were_skipped(way):
    pytest.importorskip("torch._dynamo").reset()
    net = SmallNet()
    compiled = torch.compile(net, backend="eager") if way == "a wrapper" else net
    net.compile(backend="eager") if way == "in place" else None
    compiled(ONES)
    words = r"nothing was recorded for fc1, fc2: it never ran, or it ran in"
    with pytest.warns(UserWarning, match=words), record(net, nn.Linear) as seen:
        compiled(ONES)
    assert seen.calls == []
    other = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.Linear(1, 1)))
    with warnings.catch_warnings(record=True) as warned, record(other, nn.Linear):
        other[0](torch.ones(1))
    assert warned == [], "this model is not compiled"
    torch.compiler.reset()


@pytest.mark.slow
def test_hooks_and_saliency_import_no_heavy_module():
    code = """
import sys, torch, course_utils.hooks.call, course_utils.hooks.memory as m
from course_utils.hooks import trace
from course_utils.vision.saliency import grad_cam
with m.measure_memory(): trace(torch.nn.Linear(1, 1), torch.ones(1, 1))
grad_cam(torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.Flatten()), torch.ones(1, 3, 4, 4), "0", 0)
heavy = {"torchvision", "matplotlib", "timm", "skimage", "ipywidgets", "IPython", "PIL", "torch._dynamo"}
print(heavy & set(sys.modules))
import course_utils.vision.networks, course_utils.vision.real
print(heavy & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n{'PIL'}\n"


def test_inputs_are_kept_as_they_were_before_the_layer_ran():
    class Adds(nn.Module):
        def forward(self, x, y, scale=1):
            return x + scale * y

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.relu, self.adds = nn.ReLU(inplace=True), Adds()

        def forward(self, x):
            return self.adds(self.relu(self.relu(x)), x, scale=2)

    model, x = Net(), torch.tensor([-1.0, 2])
    with no_hooks_left(model), record(model, nn.ReLU, Adds, inputs=True) as seen:
        model(x.clone())
    assert [call.input.tolist() for call in seen["relu"].calls] == [[-1, 2], [0, 2]]
    first, second, named = seen["adds"].input
    assert (first.tolist(), second.tolist(), named) == ([0, 2], [0, 2], {"scale": 2})
    with record(model, "adds") as seen:
        model(x.clone())
    with pytest.raises(CourseError, match=r"'adds' has no input: record\(\.\.\., inputs=True\)"):
        _ = seen["adds"].input


def test_the_model_stops_after_the_last_layer_asked_for():
    model, ran = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.Tanh()), []
    for number, layer in enumerate(model):
        layer.register_forward_pre_hook(lambda *_, number=number: ran.append(number))
    with record(model, "2", "0", stop=True) as seen:
        model(torch.ones(1, 2))
        pytest.fail("the block ends with the model")
    assert (ran, seen["2"].output.shape, len(seen.calls)) == ([0, 1, 2], (1, 2), 2)
    with record(model, "3") as outer, record(model, "0", stop=True):
        model(torch.ones(1, 2))
    assert outer["3"].calls == []
    assert model(torch.ones(1, 2)).shape == (1, 2)


@pytest.mark.parametrize("detach", [True, False])
def test_what_an_edit_returns_is_recorded_and_goes_on(detach):
    model, x = nn.Sequential(nn.Identity(), nn.ReLU(), nn.Identity()), torch.tensor([-2.0, 3], requires_grad=True)
    edit = {model[0]: lambda y: -2 * y, "2": lambda y: None}
    with record(model, nn.ReLU, edit=edit, gradients=True, detach=detach) as seen:
        got = model(x)
        got.sum().backward()
    assert (got.tolist(), [*seen]) == ([4, 0], ["0", "1", "2"])
    assert (seen["0"].output.tolist(), seen["0"].gradient.tolist(), x.grad.tolist()) == ([4, -6], [1, 0], [-2, 0])
    assert model(x).tolist() == [0, 3]
