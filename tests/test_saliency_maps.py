"""saliency.py: maps against pencil, finite differences, formulas, and torch with another ReLU."""

import copy

import pytest
import torch
import torch.nn.functional as F
from saliency_nets import (
    Deep,
    InPlaceAfterwards,
    PreActivation,
    Small,
    by_patching,
    images,
    noise,
    of_torchvision,
    relative,
    seeded,
)
from torch import nn
from torchvision import models

from course_utils.hooks.inventory import no_hooks_left
from course_utils.hooks.record import record
from course_utils.root import CourseError
from course_utils.vision import saliency
from course_utils.vision.saliency import (
    deconvnet,
    explain,
    grad_cam,
    guided_backprop,
    guided_grad_cam,
    input_gradient,
    relu,
    scale_to_unit,
    standardise,
    upsample,
)

pytestmark = pytest.mark.filterwarnings("error")
LARGE = pytest.mark.slow


# -- Independent references, slow and plain --


def tap(model, layer, image, change=lambda output: output.clone()):
    """The logits of `model` when `layer` hands on `change(its output)`, and that output as it was."""
    kept = []

    def hook(module, args, output):
        kept.append(output.clone())
        return change(output.clone())

    handle = model.get_submodule(layer).register_forward_hook(hook)
    try:
        with torch.no_grad():
            return model(image), kept[0]
    finally:
        handle.remove()


def grad_cam_by_differences(model, layer, image, target, step=1e-7):
    """Grad-CAM of one image without any backward pass: one channel after the other is raised a little, everywhere."""
    maps = tap(model, layer, image)[1]
    channels, positions = maps.shape[1], maps[0, 0].numel()

    def raise_channels(output):
        one_each = torch.eye(channels, dtype=output.dtype)[:, :, None, None] * step
        return output + torch.cat([one_each, -one_each])

    if isinstance(model, PreActivation):  # the other branch needs the same batch; in the others all goes on from here
        image = image.repeat(2 * channels, 1, 1, 1)
    raised, _ = tap(model, layer, image, raise_channels)
    up, down = raised[:, target].split(channels)
    weights = (up - down) / (2 * step) / positions
    return (weights[:, None, None] * maps[0]).sum(0)[None]


# -- Grad-CAM --


@pytest.mark.parametrize(
    ("build", "layer", "size"),
    [
        (Small, "second", 12),
        (Deep, "features.3", 12),  # an in-place ReLU follows
        (Deep, "features.4", 12),  # is an in-place ReLU
        (Deep, "features.0", 12),
        (PreActivation, "stem", 12),
        (PreActivation, "norm", 12),
        (InPlaceAfterwards, "stem", 12),
        (InPlaceAfterwards, "norm", 12),
        pytest.param(of_torchvision("resnet18"), "layer4.1.bn2", 64, marks=LARGE),
        pytest.param(of_torchvision("resnet34"), "layer4", 64, marks=LARGE),
        # an operation in place follows each of these
        pytest.param(of_torchvision("squeezenet1_1"), "classifier.1", 64, marks=LARGE),
        pytest.param(of_torchvision("densenet121"), "features.norm5", 64, marks=LARGE),
        pytest.param(of_torchvision("googlenet", init_weights=False), "conv2.bn", 64, marks=LARGE),
    ],
)
def test_grad_cam_equals_finite_differences(build, layer, size):
    model, image = seeded(build()), images(1, size)
    wanted = grad_cam_by_differences(model, layer, image, 3)
    assert relative(grad_cam(model, image, layer, 3), wanted) < 1e-6


@LARGE
def test_grad_cam_of_alexnet_equals_a_copy_without_in_place_operations():
    model, image = models.alexnet(num_classes=7), images(2, 64)
    model.classifier[1], model.classifier[4], model.classifier[6] = nn.Linear(9216, 9), nn.Linear(9, 9), nn.Linear(9, 7)
    seeded(model)
    slow = copy.deepcopy(model)
    for module in slow.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    maps = slow.features[:11](image)
    logits = slow.classifier(slow.avgpool(slow.features[11:](maps)).flatten(1))
    gradient = torch.autograd.grad(logits[:, 2].sum(), maps)[0]
    wanted = (gradient.mean((2, 3), keepdim=True) * maps).sum(1)
    assert relative(grad_cam(model, image, "features.10", 2), wanted) < 1e-12


def test_grad_cam_by_pencil():
    """Maps A1 = [1, 2], A2 = [0, 4]; y = 3 A1[0] + A1[1] - 2 A2[1]: weights 2 and -1, the map is 2 A1 - A2."""
    model = nn.Sequential(nn.Identity(), nn.Flatten(), nn.Linear(4, 1, bias=False))
    with torch.no_grad():
        model[2].weight.copy_(torch.tensor([[3.0, 1, 0, -2]]))
    maps = torch.tensor([[[[1.0, 2]], [[0, 4]]]])
    assert grad_cam(model, maps, "0").tolist() == [[[2, 0]]]
    assert relu(-grad_cam(model, maps, "0")).tolist() == [[[0, 0]]]


def test_each_image_of_a_batch_gets_its_own_map():
    model, batch = seeded(Deep()), images(3)
    together = grad_cam(model, batch, "features.3", [4, 0, 2])
    alone = [grad_cam(model, image[None], "features.3", target) for image, target in zip(batch, [4, 0, 2], strict=True)]
    assert together.shape == (3, 3, 3)
    assert relative(together, torch.cat(alone)) < 1e-12


def test_the_layer_may_be_a_name_a_module_or_a_type_that_only_it_has():
    model, batch = seeded(Small()), images()
    wanted = grad_cam(model, batch, "bn")
    assert torch.equal(grad_cam(model, batch, model.bn), wanted)
    assert torch.equal(grad_cam(model, batch, nn.BatchNorm2d), wanted)


# -- Run once, explain many --


def test_the_network_runs_once_however_many_classes_are_asked_for():
    model, batch = seeded(Small()), images()
    with explain(model, batch, "second") as run:
        maps = [run.grad_cam(target) for target in range(5)] + [run.grad_cam()]
        several = run.grad_cams(range(5))
    assert model.runs == 1
    assert several.shape == (5, 2, 8, 8)
    assert relative(several, torch.stack(maps[:5])) < 1e-12
    assert torch.equal(run.logits, model(batch))
    assert run.layer == "second"


def test_there_is_a_graph_from_the_layer_on_and_none_before():
    modes, saved = {}, []
    model, batch = seeded(Deep()), images()
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda *_, name=name: modes.update({name: torch.is_grad_enabled()}))
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor.shape) or tensor, lambda t: t):
        run = explain(model, batch, "features.3")
    assert [name for name in modes if not modes[name]] == ["", "features", *(f"features.{i}" for i in range(4))]
    before = {tuple(tap(model, f"features.{i}", batch)[1].shape) for i in range(3)} | {tuple(batch.shape)}
    assert saved
    assert not before & {tuple(shape) for shape in saved}
    assert run._leaf.is_leaf


def test_many_classes_are_batched_in_pieces(monkeypatch):
    model, batch = seeded(Deep(classes=7)), images()
    with explain(model, batch, "features.3") as run:
        whole = run.gradients(range(7))
        monkeypatch.setattr(saliency, "_MOST_AT_ONCE", 3)
        assert relative(run.gradients(range(7)), whole) < 1e-12


class NoBatching(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        NoBatching.calls += gradient.sum().item() == gradient.sum().item()  # a number of a batched tensor: refused
        return gradient * 2


def test_a_backward_that_cannot_be_batched_goes_class_by_class():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(400, 3)).double()
    wrapped, batch = nn.Sequential(*model, nn.Identity()), images()
    wrapped[3].forward = NoBatching.apply
    got = explain(wrapped, batch, "0").grad_cams([2, 0, 1])
    assert NoBatching.calls == 3
    assert relative(got, 2 * explain(model, batch, "0").grad_cams([2, 0, 1])) < 1e-12


def test_what_a_run_hands_out_is_a_copy():
    model, batch = seeded(Deep()), images()
    run = explain(model, batch, "features.3")
    wanted = run.grad_cams([0, 1])
    run.activation.zero_()
    run.logits.fill_(torch.nan)
    assert torch.equal(run.logits, model(batch))
    run.grad_cam(0).zero_()
    assert torch.equal(run.grad_cams([0, 1]), wanted)
    assert not wanted.requires_grad
    assert torch.equal(run.activation, tap(model, "features.3", batch)[1])


def test_an_earlier_tensor_that_shares_the_layers_memory_may_change_later():
    class Reuses(Small):
        def __init__(self):
            super().__init__()
            self.same = nn.Identity()

        def forward(self, x):
            x = self.second(F.relu(self.bn(self.first(x))))
            logits = self.head(F.relu(self.same(x)).mean((2, 3)))
            x.zero_()
            return logits

    assert torch.equal(grad_cam(seeded(Reuses()), images(), "same"), grad_cam(seeded(Small()), images(), "second"))


def test_weights_that_changed_after_the_run_are_no_silent_mistake():
    model = seeded(Deep())
    run = explain(model, images(), "features.3")
    with torch.no_grad():
        model.head[3].weight.add_(1)
    for targets in ([0], [0, 1]):
        with pytest.raises(CourseError, match="changed in place: weights after the run"):
            run.grad_cams(targets)


# -- Input gradient, Guided Backprop, deconvnet --


class Units(nn.Module):
    """Three inputs, three hidden units (3, -1, 2 for ones), two logits; `rectify` is any form of ReLU."""

    def __init__(self, rectify):
        super().__init__()
        self.rectify = rectify
        self.hidden = torch.tensor([[1.0, 2, 0], [-1, 1, -1], [2, -1, 1]])
        self.out = torch.tensor([[1.0, 5, -2], [0, 1, 1]])

    def forward(self, x):
        return self.rectify(x.flatten(1) @ self.hidden.T) @ self.out.T


def forget_result(change):
    def rectify(x):
        change(x)
        return x

    return rectify


FORMS = {
    "nn.ReLU": nn.ReLU(),
    "nn.ReLU in place": nn.ReLU(inplace=True),
    "F.relu": F.relu,
    "F.relu in place": lambda x: F.relu(x, inplace=True),
    "F.relu in place, positional": lambda x: F.relu(x, True),
    "F.relu in place, result unused": forget_result(lambda x: F.relu(x, inplace=True)),
    "F.relu_": F.relu_,
    "torch.relu": torch.relu,
    "torch.relu by keyword": lambda x: torch.relu(input=x),
    "torch.relu_": torch.relu_,
    "torch.relu_, result unused": forget_result(torch.relu_),
    "Tensor.relu": lambda x: x.relu(),
    "Tensor.relu_": lambda x: x.relu_(),
    "Tensor.relu_ on a view": forget_result(lambda x: x[:, 1:].relu_()),
    "nn.ReLU6": nn.ReLU6(),
    "nn.ReLU6 in place": nn.ReLU6(inplace=True),
    "F.relu6": F.relu6,
    "nn.Hardtanh(0, 6)": nn.Hardtanh(0, 6),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_three_rules_by_pencil_for_every_form_of_relu(form):
    model, ones = Units(FORMS[form]), torch.ones(1, 3, 1, 1)
    assert input_gradient(model, ones, 0).flatten().tolist() == [-3, 4, -2]  # R where f > 0: 1, -, -2
    assert guided_backprop(model, ones, 0).flatten().tolist() == [1, 2, 0]  # and R > 0: 1, -, -
    assert deconvnet(model, ones, 0).flatten().tolist() == [-4, 7, -5]  # R where R > 0: 1, 5, -
    with explain(model, ones, watch_relus=True) as run:
        assert run.logits.tolist() == [[-1, 2]]
        rules = [run.gradient(0, relu_rule=rule).flatten().tolist() for rule in ("plain", "guided", "deconvnet")]
        assert run.gradients([0, 1], relu_rule="guided")[0].flatten().tolist() == [1, 2, 0]
    assert rules == [[-3, 4, -2], [1, 2, 0], [-4, 7, -5]]


def test_relu6_lets_no_gradient_pass_above_six():
    model, image = nn.Sequential(nn.ReLU6(), nn.Flatten()), torch.tensor([-1.0, 0, 3, 6, 7]).reshape(1, 5, 1, 1)
    ones = {"target": lambda logits: logits.sum(1)}
    assert guided_backprop(model, image, **ones).flatten().tolist() == [0, 0, 1, 0, 0]
    assert torch.equal(guided_backprop(model, image, **ones), input_gradient(model, image, **ones))
    assert deconvnet(model, image, **ones).flatten().tolist() == [1, 1, 1, 1, 1]


def test_a_reused_relu_follows_the_rule_each_time():
    weights = [noise(4, 3, seed=2), noise(4, 4, seed=3), noise(2, 4, seed=4)]
    rectify = nn.ReLU(inplace=True)

    class Reused(nn.Module):
        def forward(self, x):
            x = rectify(x.flatten(1) @ weights[0].T)
            return rectify(x @ weights[1].T) @ weights[2].T

    x = noise(3, 3, seed=5)
    first = x @ weights[0].T
    second = first.clamp(min=0) @ weights[1].T
    signal = weights[2][1].expand(3, 4)
    signal = (signal * (second > 0) * (signal > 0)) @ weights[1]
    signal = (signal * (first > 0) * (signal > 0)) @ weights[0]
    assert relative(guided_backprop(Reused(), x[:, :, None, None], 1).flatten(1), signal) < 1e-12


@pytest.mark.parametrize(
    "build",
    [
        Deep,
        PreActivation,
        pytest.param(of_torchvision("resnet18"), marks=LARGE),
        pytest.param(of_torchvision("densenet121"), marks=LARGE),
        pytest.param(of_torchvision("googlenet", init_weights=False), marks=LARGE),
    ],
)
def test_guided_backprop_equals_torch_with_another_relu(build, monkeypatch):
    model = seeded(build())
    batch = images(2, 12 if isinstance(model, (Deep, PreActivation)) else 64)
    wanted = by_patching(model, batch, 2, monkeypatch)
    assert relative(guided_backprop(model, batch, 2), wanted) < 1e-10
    assert relative(input_gradient(model, batch, 2), wanted) > 0.01


def test_the_input_gradient_equals_finite_differences_and_a_run_that_watches_relus():
    model, image, step = seeded(Deep()), images(1), 1e-6
    pixels = torch.eye(image.numel(), dtype=torch.float64).reshape(-1, *image.shape[1:]) * step
    with torch.no_grad():
        wanted = (model(image + pixels) - model(image - pixels))[:, 1].reshape(image.shape) / (2 * step)
    got = input_gradient(model, image, 1)
    assert relative(got, wanted) < 1e-6
    assert torch.equal(explain(model, image, watch_relus=True).gradient(1), got)


def test_the_rules_hold_at_a_layer_too():
    model, batch = seeded(Deep()), images()
    with explain(model, batch, "features.0", watch_relus=True) as run:
        guided = run.gradient(1, relu_rule="guided")
        several = run.gradients([3, 1], relu_rule="guided")
        plain = run.gradient(1)
    weight = model.features[0].weight
    assert relative(F.conv_transpose2d(guided, weight), guided_backprop(model, batch, 1)) < 1e-12
    assert relative(F.conv_transpose2d(plain, weight), input_gradient(model, batch, 1)) < 1e-12
    assert relative(several[1], guided) < 1e-12


def test_guided_grad_cam_is_the_product():
    model, batch = seeded(Deep()), images()
    heat = F.interpolate(grad_cam(model, batch, "features.3", 2)[:, None].clamp(min=0), (12, 12), mode="bilinear")
    wanted = guided_backprop(model, batch, 2) * heat
    assert torch.equal(guided_grad_cam(model, batch, "features.3", 2), wanted)
    predicted = model(batch).argmax(1)
    assert torch.equal(
        guided_grad_cam(model, batch, "features.3"), guided_grad_cam(model, batch, "features.3", predicted)
    )


@pytest.mark.parametrize("rectify", [nn.GELU(), nn.LeakyReLU(), lambda x: x.clamp(min=0), torch.sigmoid])
def test_a_network_without_any_relu_says_so(rectify):
    for method in (guided_backprop, deconvnet):
        with pytest.raises(CourseError, match=r"no ReLU lies between the input and the logits.*GELU"):
            method(Units(rectify), torch.ones(1, 3, 1, 1), 0)


def test_relus_before_the_layer_do_not_count():
    model = nn.Sequential(nn.ReLU(), nn.Conv2d(3, 2, 3), nn.Flatten())
    with (
        explain(model, torch.randn(1, 3, 4, 4), "1", watch_relus=True) as run,
        pytest.raises(CourseError, match="no ReLU lies between layer '1' and the logits"),
    ):
        run.gradient(0, relu_rule="guided")


@pytest.mark.parametrize("targets", [[0], [0, 1]])
def test_relus_beside_the_way_to_the_logits_do_not_count(targets):
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.conv = nn.Parameter(torch.ones(1)), nn.Conv2d(3, 2, 3)

        def forward(self, x):
            return F.gelu(self.conv(x)).mean((2, 3)) * F.relu(self.gate) + F.relu(torch.ones(2))

    run = explain(Gated(), torch.randn(1, 3, 4, 4), watch_relus=True)
    with pytest.raises(CourseError, match="no ReLU lies between the input and the logits"):
        run.gradients(targets, relu_rule="guided")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_maps_have_the_dtype_of_the_layer(dtype):
    model, batch = seeded(Deep()).to(dtype), images().to(dtype)
    got = grad_cam(model, batch, "features.3", 1)
    assert got.dtype == dtype
    assert relative(got.double(), grad_cam(seeded(Deep()), images(), "features.3", 1)) < 100 * torch.finfo(dtype).eps


# -- Compiled models --


@pytest.mark.slow
@pytest.mark.parametrize("where", ["whole", "part", "in place"])
def test_compiled_models_run_uncompiled(where):
    torch.compiler.reset()
    plain, batch, model, layer = seeded(Deep()), images(), seeded(Deep()), "features.3"
    compiled = torch.compile(model, backend="eager") if where == "whole" else model
    if where == "part":
        model.features, layer = torch.compile(model.features, backend="eager"), "features._orig_mod.3"
    if where == "in place":
        model.compile(backend="eager")
    compiled(batch)
    with torch.no_grad():
        compiled(batch)  # from now on a hook inside compiled code would be skipped
    with no_hooks_left(model):
        assert torch.equal(grad_cam(compiled, batch, layer, 1), grad_cam(plain, batch, "features.3", 1))
        assert torch.equal(guided_backprop(compiled, batch, 1), guided_backprop(plain, batch, 1))
    assert torch.equal(compiled(batch), plain(batch))
    with record(model, "head.3") as seen:
        model.head(model.features(batch))
    assert len(seen["head.3"].calls) == 1
    torch.compiler.reset()


# -- From a raw map to a picture --


def test_upsampling_is_bilinear_without_aligned_corners():
    assert upsample(torch.tensor([[[0.0, 1]]]), (1, 4)).tolist() == [[[0, 0.25, 0.75, 1]]]
    maps = noise(4, 2, 3, 5)
    assert upsample(maps, torch.Size([6, 10])).shape == (4, 2, 6, 10)
    assert torch.equal(upsample(maps[0, 0], (7, 9)), upsample(maps, (7, 9))[0, 0])


def test_scaling_stretches_each_map_alone():
    maps = torch.stack(
        [torch.tensor([[-1.0, 3], [1, 1]]), torch.full((2, 2), 7.0), torch.tensor([[0.0, 0], [0, 1e-30]])]
    )
    assert scale_to_unit(maps).tolist() == [[[0, 1], [0.5, 0.5]], [[0, 0], [0, 0]], [[0, 0], [0, 1]]]
    together = scale_to_unit(noise(2, 3, 4, 5), dims=3)
    assert together.amin((1, 2, 3)).tolist() == [0, 0]
    assert together.amax((1, 2, 3)).tolist() == [1, 1]
    assert (together.amax((2, 3)) == 1).sum() == 2


def test_relu_keeps_what_is_positive():
    assert relu(torch.tensor([-1.0, 0, 2])).tolist() == [0, 0, 2]


def test_standardised_gradients_are_centred_and_hide_their_scale():
    gradients = noise(2, 3, 8, 8)
    got = standardise(gradients)
    wanted = [(g - g.mean()) / g.std() * 0.1 + 0.5 for g in gradients]
    assert relative(got, torch.stack(wanted).clamp(0, 1)) < 1e-12
    assert relative(standardise(gradients * 1e-3 + 2), got) < 1e-9
    for constant in (4.0, 0.0):
        assert standardise(torch.full((1, 3, 2, 2), constant)).unique().tolist() == [0.5]
    spike = torch.zeros(1, 1, 20, 20)
    spike[..., 0, 0] = 1
    assert standardise(spike).max() == 1


def test_batched_gradients_give_no_warning_about_slow_paths():
    model, batch = seeded(Deep()), images()
    explain(model, batch, "features.0").grad_cams(range(3))
    explain(model, batch, watch_relus=True).gradients(range(3), relu_rule="guided")
