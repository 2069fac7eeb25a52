"""Lesson 03 from outside: what its cells print is what plain PyTorch gives, and it covers the whole interface."""

import ast
import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from lesson_pages import LessonPage, small_net
from torch import nn

from course_utils.authoring import source
from course_utils.exercises.engine import predictions_of

PAGE = LessonPage("03_module_hooks")
printed_by = PAGE.printed_by


def tiny_net() -> nn.Sequential:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([1.0, 2.0]).reshape(2, 1, 1, 1).expand(2, 1, 3, 3))
        net[0].bias.zero_()
    return net


# ------------------------------------------------------------------------------------------------ forward hooks: M1-M4


def test_feature_map_and_tuple():
    """M1."""
    net, image = tiny_net(), torch.ones(1, 1, 4, 4)
    feature_map = net[0](image).detach()
    assert feature_map.flatten().tolist() == [9] * 4 + [18] * 4
    assert printed_by("register_forward_hook(keep)") == f"the network returns {net(image).tolist()}\n"
    text = printed_by("name, args, feature_map = seen[0]")
    assert "Conv2d got a tuple of 1: a tensor of shape (1, 1, 4, 4)" in text
    assert "feature map of shape (1, 2, 2, 2)" in text
    assert str(feature_map) in text


def test_gradient_of_the_feature_map_under_l1_loss():
    """M3."""
    net, image = tiny_net(), torch.ones(1, 1, 4, 4, requires_grad=True)
    feature_map = net[0](image)
    feature_map.retain_grad()
    F.l1_loss(net[1](feature_map), torch.zeros(1, 2, 1, 1)).backward()
    assert feature_map.grad.flatten().tolist() == [0.5, 0, 0, 0, 0.5, 0, 0, 0]
    text = printed_by("register_full_backward_hook(print_channels)")
    assert f"grad_output (1, 2, 2, 2)\n{feature_map.grad}" in text
    assert f"grad_input (1, 1, 4, 4) {image.grad[0, 0].tolist()}" in text


def test_values_of_the_small_network():
    """M4."""
    net, lines, value = small_net(), "", torch.ones(1, 3)
    for name, layer in zip(("fc1", "relu", "fc2"), net, strict=True):
        before, value = value, layer(value)
        lines += f"{name}: {before.tolist()} -> {value.tolist()}\n"
    assert value.item() == 89
    assert printed_by("print_output(name)) for name, child") == lines


# -------------------------------------------------------------------------------------------------- backward: M5 to M9


def gradients_of_the_small_network():
    """The gradient of the input, of what each layer made, and of the result, in the order of forward."""
    values = [torch.ones(1, 3, requires_grad=True)]
    for layer in small_net():
        values.append(layer(values[-1]))
    return [grad.tolist() for grad in torch.autograd.grad(values[-1], values)]


def test_full_backward_hooks_on_every_child_and_on_the_model():
    """M5 and M6, today."""
    of_x, of_fc1, of_relu, of_fc2 = gradients_of_the_small_network()
    assert (of_x, of_relu) == ([[22, 26, 30]], [[1, 2, 3, 4]])
    assert printed_by("register_full_backward_hook(print_gradients(name))") == (
        f"fc2: grad_output ({of_fc2},) -> grad_input ({of_relu},)\n"
        f"relu: grad_output ({of_relu},) -> grad_input ({of_fc1},)\n"
        f"fc1: grad_output ({of_fc1},) -> grad_input ({of_x},)\n"
    )
    assert printed_by('print_gradients("the model")') == f"the model: grad_output ({of_fc2},) -> grad_input ({of_x},)\n"


def test_legacy_hooks_show_the_last_operation():
    """M5 and M6, as history, and the node that explains them."""
    bias, of_input, weight = "[1.0]", "[[1.0, 2.0, 3.0, 4.0]]", "[[7.0], [0.0], [27.0], [0.0]]"
    entries = f"    {bias}\n    {of_input}\n    {weight}\n"
    children = printed_by("backward_with_legacy_hooks(dict(net.named_children())")
    assert children.startswith(f"fc2:\n{entries}relu:\n")
    assert "fc1:\n    [1.0, 0.0, 3.0, 0.0]\n    [[22.0, 26.0, 30.0]]\n" in children
    assert "FutureWarning: Using a non-full backward hook" in children
    assert printed_by('backward_with_legacy_hooks({"the model"').startswith(f"the model:\n{entries}FutureWarning")
    assert printed_by("output.grad_fn.register_hook") == f"the node: AddmmBackward0\n{bias}\n{of_input}\n{weight}\n"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net, seen = small_net(), []
        net.register_backward_hook(lambda module, grad_input, grad_output: seen.extend(grad_input))
        net(torch.ones(1, 3, requires_grad=True)).backward()
    assert [str(grad.tolist()) for grad in seen] == [bias, of_input, weight]


def test_a_returned_value_replaces_the_output():
    """M7."""
    net = small_net()
    assert net[2](net[1](net[0](torch.ones(1, 3))) * 0).item() == 1
    assert printed_by("lambda module, args, output: output * 0") == "with the hook:    1.0\nwithout the hook: 89.0\n"
    doubled = printed_by("(2 * args[0],)")
    assert f"the input doubled: {net(torch.full((1, 3), 2.0)).item()}\n" in doubled


def test_an_input_without_gradient_gives_none_and_a_warning():
    """M8."""
    net, seen = small_net(), []
    net[0].register_full_backward_hook(lambda module, grad_input, grad_output: seen.append(grad_input))
    with pytest.warns(UserWarning, match="Full backward hook is firing") as caught:
        net(torch.ones(1, 3)).backward()
    assert seen == [(None,)]
    first = str(caught[0].message).split(". ")[0]
    text = printed_by('as caught, net.fc1.register_full_backward_hook(print_gradients("fc1"))')
    assert text == f"fc1: grad_output ([[1.0, 0.0, 3.0, 0.0]],) -> grad_input (None,)\nUserWarning: {first}.\n"


def test_convolution_and_batch_norm():
    """M9."""
    torch.manual_seed(0)
    conv, bn = nn.Conv2d(3, 1, 1), nn.BatchNorm2d(1)
    of_conv = conv(torch.rand(1, 3, 2, 2, requires_grad=True))
    of_bn = bn(of_conv)
    grads = torch.autograd.grad(torch.relu(of_bn).mean(), (of_bn, of_conv))
    to_bn, to_conv = ([round(value, 3) + 0.0 for value in grad.flatten().tolist()] for grad in grads)
    assert printed_by("block, images = ConvBatchNorm()") == (
        "conv forward:  (1, 3, 2, 2) -> (1, 1, 2, 2)\n"
        "bn forward:  (1, 1, 2, 2) -> (1, 1, 2, 2)\n"
        f"bn backward: (1, 1, 2, 2) -> (1, 1, 2, 2), arrived: {to_bn}\n"
        f"conv backward: (1, 1, 2, 2) -> (1, 3, 2, 2), arrived: {to_conv}\n"
    )
    assert sorted(to_bn) == [0, 0, 0.25, 0.25]


def test_a_pre_hook_reaches_the_parameters_and_a_hook_does_not():
    of_x, _, _, _ = gradients_of_the_small_network()
    tenfold = [[10 * value for value in of_x[0]]]
    assert printed_by("register_full_backward_pre_hook(ten_times_output)") == (
        f"hook:     x.grad = {tenfold}  fc2.weight.grad = [[7.0, 0.0, 27.0, 0.0]]\n"
        f"pre-hook: x.grad = {tenfold}  fc2.weight.grad = [[70.0, 0.0, 270.0, 0.0]]\n"
    )


# ------------------------------------------------------------------------------------ whole models and traps: M10-M14


def test_recursive_registration_and_what_it_misses():
    """M10: seven calls in order; the dict has six; the functions are nowhere."""
    lines = printed_by('"in the dict; relu:"').splitlines()
    assert lines[:2] == ["6 in the dict; relu: (1, 5)", "7 in the list:"]
    assert [line.split()[0] for line in lines[2:]] == ["Conv2d", "ReLU", "Linear", "ReLU", "Linear", "Tanh", "Linear"]
    assert lines[3].split(maxsplit=1)[1] == "(1, 10, 4, 4)"
    assert "A function is no module" in PAGE.prose
    assert "A module may run more than once" in PAGE.prose


def test_the_36_convolutions_of_resnet34():
    """M11."""
    from torchvision.models import resnet34

    convolutions = [module for module in resnet34(weights=None).modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 36
    text = printed_by("resnet34(weights=None)")
    assert text.startswith("36 outputs, from (1, 64, 32, 32) to (1, 512, 2, 2)\n")
    assert text.endswith("hooks left: 0\n")


def test_legacy_entries_of_linear_and_convolution_differ():
    """M12: another order, another shape of the weight."""
    assert printed_by("register_backward_hook(print_entry_shapes)") == (
        "Linear: weight (3, 2), entries [(3,), (5, 2), (2, 3)]\n"
        "Conv2d: weight (3, 2, 2, 2), entries [(5, 2, 4, 4), (3, 2, 2, 2), (3,)]\n"
    )


@pytest.mark.parametrize("place", [0, 1])
def test_inplace_relu_raises_in_forward(place):
    """M13."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True))
    net[place].register_full_backward_hook(lambda *_: None)
    with pytest.raises(
        RuntimeError, match="Output 0 of BackwardHookFunction is a view and is being modified"
    ) as raised:
        net(torch.ones(1, 2))
    lines = printed_by('enumerate(("the Linear layer before it"').splitlines()
    assert lines[place].endswith(f": {str(raised.value).split('. ')[0]}.")


# ------------------------------------------------------------------------------------------------- the interface: M15

CALLS = [node for cell in PAGE.code for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call)]
CALLED = {getattr(call.func, "attr", getattr(call.func, "id", "")) for call in CALLS}
KEYWORDS = {keyword.arg for call in CALLS for keyword in call.keywords}
MODULE_METHODS = sorted(name for name in dir(nn.Module) if name.startswith("register_") and name.endswith("hook"))


@pytest.mark.parametrize("method", MODULE_METHODS)
def test_every_hook_method_of_a_module_is_named(method):
    assert method in CALLED or f"`{method}`" in PAGE.prose


def test_what_is_run_and_what_is_only_named():
    run = {f"register_{kind}hook" for kind in ("forward_pre_", "forward_", "full_backward_pre_", "full_backward_")}
    run |= {"register_backward_hook", "register_module_forward_hook", "register_step_pre_hook"}
    run |= {"register_load_state_dict_pre_hook", "deepcopy", "no_grad", "compile"}
    assert run <= CALLED
    assert {"with_kwargs", "always_call", "prepend"} <= KEYWORDS
    named = ["register_post_accumulate_grad_hook", "register_multi_grad_hook", "register_step_post_hook"]
    assert all(f"`{name}`" in PAGE.prose for name in [*named, "nn.DataParallel", "DistributedDataParallel"])


def test_optimizer_and_state_dict_hooks():
    net = small_net()
    net(torch.ones(1, 3)).backward()
    squares = sum((parameter.grad**2).sum() for parameter in net.parameters())
    torch.optim.SGD(net.parameters(), lr=0.001).step()
    assert printed_by("register_step_pre_hook(print_norm)") == (
        f"norm of all gradients: {squares.sqrt().item():.2f}\n"
        f"the output after one step: {net(torch.ones(1, 3)).item():.2f}\n"
    )
    assert printed_by("register_load_state_dict_pre_hook(rename_kernel)").endswith("[[3.0, 4.0]]\n")


def test_copies_and_no_grad():
    layer = nn.Linear(1, 1)
    handle = layer.register_forward_hook(lambda *_: None)
    twin = copy.deepcopy(layer)
    handle.remove()
    kept = len(layer._forward_hooks), len(twin._forward_hooks)
    text = printed_by("twin = copy.deepcopy(layer)")
    assert text.splitlines() == [f"hooks on the layer and on its copy: {kept[0]} {kept[1]}", *text.splitlines()[1:]]
    assert text.endswith("called by the copy only: True\n")
    assert printed_by("with forward_hook, backward_hook, torch.no_grad()") == "forward hook\nrequires_grad: False\n"


@pytest.mark.slow
def test_hooks_registered_after_the_first_compiled_call():
    calls, model = [], small_net()
    try:
        compiled = torch.compile(model, backend="eager")
    except RuntimeError as error:
        pytest.skip(f"torch.compile is not available: {error}")
    compiled(torch.ones(1, 3))
    with model[1].register_forward_hook(lambda *_: calls.append("relu")):
        compiled(torch.ones(1, 3))
        at_once = len(calls)
        torch.compiler.reset()
        compiled(torch.ones(1, 3))
    torch.compiler.reset()
    assert printed_by("= count_late_calls()").splitlines() == [
        f"calls of the late hook: {at_once}",
        f"after torch.compiler.reset(): {len(calls)}",
    ]


# ----------------------------------------------------------------------------------------- what the learner has to do


@pytest.mark.parametrize("name", [prediction.name for prediction in predictions_of(3)])
def test_a_prediction_comes_before_the_cell_that_answers_it(name):
    """No text and no output stands between the question and the cell that answers it: at most definitions do."""
    (place,) = [index for index, cell in enumerate(PAGE.cells) if f'predict("{name}")' in cell.source]
    following = [cell for cell in PAGE.cells[place + 1 :] if "setup" not in source.tags_of(cell)]
    assert following[0].cell_type == "code"
