"""What lesson 03 shows, found by a second method."""

import pytest
import torch
import torch.nn.functional as F
from lesson_pages import LessonPage

from course_utils.exercises.engine import find_prediction
from course_utils.lessons.patient import admit, loss_of, make_task, standardise
from course_utils.vision.toys import SmallNet

PAGE = LessonPage("03_module_hooks")
printed_by = PAGE.printed_by


def test_a_feature_map_and_its_gradient_under_l1_loss():
    image, weight = torch.ones(1, 1, 4, 4), torch.tensor([1.0, 2.0]).reshape(2, 1, 1, 1).expand(2, 1, 3, 3)
    feature_map = F.conv2d(image, weight).requires_grad_()
    assert feature_map.flatten().tolist() == [9] * 4 + [18] * 4
    assert str(feature_map.detach()) in printed_by("name, args, feature_map = seen[0]")
    # The mean of two maxima: the first place of each channel gets 1/2, and a convolution of ones adds what it covers.
    gradient = torch.tensor([0.5, 0, 0, 0] * 2).reshape(1, 2, 2, 2)
    F.l1_loss(F.max_pool2d(feature_map, 2), torch.zeros(1, 2, 1, 1)).backward()
    assert torch.equal(feature_map.grad, gradient)
    text = printed_by("register_full_backward_hook(print_channels)")
    assert f"grad_output (1, 2, 2, 2)\n{gradient}" in text
    assert f"grad_input (1, 1, 4, 4) {[[1.5, 1.5, 1.5, 0.0]] * 3 + [[0.0] * 4]}" in text


def values_and_gradients() -> list[tuple[list, list]]:
    """Input and output of each layer of the small network, and their gradients: by autograd's own function."""
    values = [torch.ones(1, 3, requires_grad=True)]
    for layer in SmallNet():  # which `test_toys` works out by hand
        values.append(layer(values[-1]))
    gradients = torch.autograd.grad(values[-1], values)
    return [(value.tolist(), gradient.tolist()) for value, gradient in zip(values, gradients, strict=True)]


def test_values_and_gradients_of_the_small_network():
    (x, of_x), (fc1, of_fc1), (relu, of_relu), (fc2, of_fc2) = values_and_gradients()
    assert (fc2, of_x, of_relu) == ([[89]], [[22, 26, 30]], [[1, 2, 3, 4]])
    outputs = f"fc1: {x} -> {fc1}\nrelu: {fc1} -> {relu}\nfc2: {relu} -> {fc2}\n"
    assert printed_by("print_output(name)) for name, child") == outputs
    assert printed_by("net.named_children():\n        stack.enter_context(child.register_full_backward") == (
        f"fc2: grad_output ({of_fc2},) -> grad_input ({of_relu},)\n"
        f"relu: grad_output ({of_relu},) -> grad_input ({of_fc1},)\n"
        f"fc1: grad_output ({of_fc1},) -> grad_input ({of_x},)\n"
    )
    assert printed_by('print_gradients("the model")') == f"the model: grad_output ({of_fc2},) -> grad_input ({of_x},)\n"
    rows = (10, of_x), (1, relu), (10, relu)
    tenfold, plain, scaled = ([[factor * value for value in row]] for factor, (row,) in rows)
    assert printed_by("fc2.register_full_backward_pre_hook") == (
        f"hook:     x.grad = {tenfold}  fc2.weight.grad = {plain}\n"
        f"pre-hook: x.grad = {tenfold}  fc2.weight.grad = {scaled}\n"
    )


@pytest.mark.parametrize(("case", "layer"), [("A", "second"), ("B", "third")])
def test_each_patient_has_the_illness_that_the_lesson_finds(case, layer):
    """Layer by layer without a hook; the first whose numbers are all below 0, or above 1000, is the one."""
    assert find_prediction(f"layer_of_patient_{case.lower()}").answer == layer
    patient, (h, _) = admit(case), make_task()
    outputs = {}
    for name in ("first", "second", "third"):
        outputs[name] = h = F.linear(h, patient.get_submodule(name).weight, patient.get_submodule(name).bias)
        h = standardise(h.relu()) if name == "second" else h.relu()
    assert layer == next(name for name, output in outputs.items() if output.max() < 0 or output.max() > 1000)
    gradients = torch.autograd.grad(loss_of(patient), [patient.get_submodule(n).weight for n in (*outputs, "last")])
    alive = [name for name, gradient in zip((*outputs, "last"), gradients, strict=True) if gradient.any()]
    assert alive == (["last"] if case == "A" else [*outputs, "last"])
    assert "after: 0.7 at the start, 0.0 at the end" in str(PAGE.printed).split(f"Patient {case} learns")[1]
