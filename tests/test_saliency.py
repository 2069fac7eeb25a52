"""saliency.py: maps against pencil, finite differences and formulas; targets, ReLUs, untouched state, sentences."""

import copy
import itertools
import subprocess
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchvision import models

from course_utils.hooks.inventory import no_hooks_left
from course_utils.hooks.record import UnknownLayerError, record
from course_utils.vision import saliency
from course_utils.vision.saliency import (
    SaliencyError,
    cam,
    class_maps,
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


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


class Small(nn.Module):
    """Two convolutions, global average pooling, a linear head: all that the methods need, and CAM exists."""

    def __init__(self, classes=5):
        super().__init__()
        self.first, self.bn, self.second = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3)
        self.head = nn.Linear(6, classes)
        self.runs = 0

    def forward(self, x):
        self.runs += 1
        x = F.relu(self.bn(self.first(x)))
        return self.head(F.relu(self.second(x)).mean((2, 3)))


class Deep(nn.Module):
    """A head with a hidden layer, so that the gradients differ from place to place: Grad-CAM without CAM."""

    def __init__(self, classes=5, inplace=True):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(inplace), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU(inplace)
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(6 * 9, 8), nn.ReLU(inplace), nn.Linear(8, classes))

    def forward(self, x):
        return self.head(self.features(x))


def seeded(model, seed=0):
    """`model` in float64 and eval mode, with weights and statistics that leave activations alive on both sides of 0."""
    rng = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=rng)
            module.running_var.uniform_(0.5, 2, generator=rng)
        elif isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.normal_(module.weight, 0, (2 / module.weight[0].numel()) ** 0.5, generator=rng)
            if module.bias is not None:
                nn.init.normal_(module.bias, 0, 0.1, generator=rng)
    return model.double().eval()


def noise(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def images(count=2, size=12, seed=1):
    return noise(count, 3, size, size, seed=seed)


def relative(got, wanted):
    return ((got - wanted).abs().max() / wanted.abs().max()).item()


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


class GuidedByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x > 0, x, 0)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x > 0) * (gradient > 0)


def guided_by_patching(model, x, target, monkeypatch):
    """Guided Backprop with `F.relu` exchanged in torch itself, never in place: nn.ReLU and networks find it there."""
    x = x.clone().requires_grad_()
    with monkeypatch.context() as patch:
        patch.setattr(F, "relu", lambda x, inplace=False: GuidedByHand.apply(x))
        logits = model(x)
    return torch.autograd.grad(logits[:, target].sum(), x)[0]


class PreActivation(nn.Module):
    """norm, ReLU in place, convolution, and the sum with what came in, in place: the stem's output is used twice."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.conv = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4 * 100, 5)

    def forward(self, x):
        x = self.stem(x)
        out = self.conv(F.relu(self.norm(x), inplace=True))
        out += x
        return self.head(F.relu(out).flatten(1))


class InPlaceAfterwards(PreActivation):
    """Operations in place follow the layer `stem`, on all of it and on views, and the layer `norm`."""

    def forward(self, x):
        x = self.stem(x)
        x.mul_(1.5).add_(0.1)
        x.view(len(x), -1)[:, ::3].mul_(-1)
        x[:, 1:3].relu_()
        x = torch.relu_(self.norm(x))
        return self.head(x.flatten(1))


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
        (lambda: models.resnet18(num_classes=7), "layer4.1.bn2", 64),
        (lambda: models.resnet34(num_classes=7), "layer4", 64),
        (lambda: models.squeezenet1_1(num_classes=7), "classifier.1", 64),  # an in-place ReLU follows
        (lambda: models.densenet121(num_classes=7), "features.norm5", 64),  # F.relu in place follows
        (lambda: models.googlenet(num_classes=7, init_weights=False), "conv2.bn", 64),  # F.relu in place follows
    ],
)
def test_grad_cam_equals_finite_differences(build, layer, size):
    model, image = seeded(build()), images(1, size)
    wanted = grad_cam_by_differences(model, layer, image, 3)
    assert relative(grad_cam(model, image, layer, 3), wanted) < 1e-6


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


def test_a_run_may_outlive_the_call_and_says_when_it_is_closed():
    run = explain(seeded(Small()), images(), "second")
    assert run.grad_cam(1).shape == (2, 8, 8)
    run.close()
    assert run.logits.shape == (2, 5)
    with pytest.raises(SaliencyError, match="this run is closed"):
        run.grad_cam(1)


def test_weights_that_changed_after_the_run_are_no_silent_mistake():
    model = seeded(Deep())
    run = explain(model, images(), "features.3")
    with torch.no_grad():
        model.head[3].weight.add_(1)
    for targets in ([0], [0, 1]):
        with pytest.raises(SaliencyError, match="changed in place: weights after the run"):
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
        lambda: models.resnet18(num_classes=7),
        lambda: models.densenet121(num_classes=7),
        lambda: models.googlenet(num_classes=7, init_weights=False),
    ],
)
def test_guided_backprop_equals_torch_with_another_relu(build, monkeypatch):
    model = seeded(build())
    batch = images(2, 12 if isinstance(model, (Deep, PreActivation)) else 64)
    wanted = guided_by_patching(model, batch, 2, monkeypatch)
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
        with pytest.raises(SaliencyError, match=r"no ReLU lies between the input and the logits.*GELU"):
            method(Units(rectify), torch.ones(1, 3, 1, 1), 0)


def test_relus_before_the_layer_do_not_count():
    model = nn.Sequential(nn.ReLU(), nn.Conv2d(3, 2, 3), nn.Flatten())
    with (
        explain(model, torch.randn(1, 3, 4, 4), "1", watch_relus=True) as run,
        pytest.raises(SaliencyError, match="no ReLU lies between layer '1' and the logits"),
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
    with pytest.raises(SaliencyError, match="no ReLU lies between the input and the logits"):
        run.gradients(targets, relu_rule="guided")


def test_a_rule_needs_a_name_and_a_run_that_watches():
    run = explain(seeded(Small()), images())
    with pytest.raises(SaliencyError, match=r"explain\(..., watch_relus=True\)"):
        run.gradient(0, relu_rule="guided")
    with pytest.raises(SaliencyError, match="got 'guide'"):
        run.gradient(0, relu_rule="guide")


# -- CAM --


class Head(nn.Module):
    """Maps, one of many ways to average them, a linear head."""

    def __init__(self, average):
        super().__init__()
        self.maps, self.average, self.head = nn.Conv2d(3, 6, 3), average, nn.Linear(6, 5)

    def forward(self, x):
        return self.head(self.average(self.maps(x)))


AVERAGES = {
    "modules": nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "nn.AvgPool2d": nn.Sequential(nn.AvgPool2d(10), nn.Flatten(), nn.Dropout(0.5)),
    "mean": lambda maps: maps.mean((2, 3)),
    "mean method by keyword": lambda maps: maps.mean(dim=[-2, -1]),
    "torch.mean": lambda maps: torch.mean(maps, (2, 3)),
    "F.adaptive_avg_pool2d": lambda maps: F.adaptive_avg_pool2d(maps, (1, 1)).view(len(maps), -1),
}


@pytest.mark.parametrize("average", AVERAGES)
def test_cam_equals_grad_cam_times_the_number_of_positions(average):
    model, batch = seeded(Head(AVERAGES[average])), images()
    for target in (None, 0, [4, 1], lambda logits: logits[:, 1] - 2 * logits[:, 3]):
        wanted = grad_cam(model, batch, "maps", target) * 100
        assert relative(cam(model, batch, target), wanted) < 1e-13
    assert torch.equal(model(batch), explain(model, batch).logits)


@pytest.mark.parametrize(
    ("build", "layer"),
    [
        (lambda: models.resnet18(num_classes=7), "layer4"),
        (lambda: models.squeezenet1_1(num_classes=7), "classifier.2"),  # no linear layer: the means are the logits
        (lambda: models.googlenet(num_classes=7, init_weights=False), "inception5b"),
    ],
)
def test_cam_equals_grad_cam_on_known_networks(build, layer):
    model, batch = seeded(build()), images(2, 64)
    wanted = explain(model, batch, layer).grad_cams(range(7))
    maps = class_maps(model, batch)
    assert relative(maps, wanted.transpose(0, 1) * maps[0, 0].numel()) < 1e-12
    assert relative(cam(model, batch, 3), maps[:, 3]) < 1e-12


def test_cam_takes_the_maps_that_are_averaged_also_if_no_module_returns_them():
    for rectify in (F.relu, F.relu_):
        model = seeded(Head(lambda maps, rectify=rectify: F.adaptive_avg_pool2d(rectify(maps), 1).squeeze()))
        wanted = (model.head.weight[3][:, None, None] * model.maps(images()).relu()).sum(1)
        assert relative(cam(model, images(), 3), wanted) < 1e-13


def test_a_class_activation_map_averages_to_its_logit():
    model, batch = seeded(models.densenet121(num_classes=7)), images(2, 64)
    maps = class_maps(model, batch)  # of the maps after F.relu in place, which no module returns
    assert relative(maps.mean((2, 3)) + model.classifier.bias, model(batch)) < 1e-12


class MaxPooled(Head):
    def __init__(self):
        super().__init__(lambda maps: maps.amax((2, 3)))


class Scaled(Head):
    def __init__(self):
        super().__init__(AVERAGES["mean"])

    def forward(self, x):
        return super().forward(x) * 3


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Deep(), "its last layer reads (2, 8), no means of maps"),
        (MaxPooled(), "reads (2, 6)"),
        (Scaled(), "it ends otherwise"),
        (nn.Sequential(Small(), nn.Softmax(1)), "it ends otherwise"),
        (Head(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.GroupNorm(1, 6), nn.Flatten())), "no means of maps"),
        (Head(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.ReLU())), "no means of maps"),
        (nn.Sequential(nn.Conv2d(3, 6, 12), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5)), "two or more"),
    ],
)
def test_a_model_without_cam_says_what_cam_needs(model, words):
    model = seeded(model)
    with pytest.raises(SaliencyError, match="CAM needs a model that averages its last maps") as raised:
        cam(model, images(), 0)
    assert words in str(raised.value)
    assert type(model).__name__ in str(raised.value)


# -- Targets --


NAMES = ["cat", "dog", "plane", "crane", "crane"]


def test_targets_of_every_kind_name_the_same_class():
    model, batch = seeded(Deep()), images()
    wanted = grad_cam(model, batch, "features.3", 2)
    same = [
        "plane",
        torch.tensor(2),
        torch.tensor([2, 2], dtype=torch.int32),
        torch.tensor([2]).numpy()[0],
        [2, "plane"],
        ("plane", 2),
        torch.tensor([2, 2]).numpy(),
        lambda logits: logits[:, 2],
        lambda logits: logits[:, 2].sum(),
        nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (2, 5)), Pick(2)),
    ]
    for target in same:
        assert torch.equal(grad_cam(model, batch, "features.3", target, class_names=NAMES), wanted)


class Pick(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index

    def forward(self, logits):
        return logits[:, self.index]


def test_the_default_target_is_the_predicted_class_of_each_image():
    model, batch = seeded(Deep()), images(8)
    model.head[3].bias.data -= model(batch).mean(0).detach()
    predicted = model(batch).argmax(1)
    assert len(set(predicted.tolist())) > 1
    assert torch.equal(grad_cam(model, batch, "features.3"), grad_cam(model, batch, "features.3", predicted))
    assert torch.equal(cam(seeded(Small()), batch), cam(seeded(Small()), batch, seeded(Small())(batch).argmax(1)))


def test_a_function_of_the_logits_is_explained_with_its_own_slope():
    model, batch = seeded(Deep()), images()
    with explain(model, batch, "features.3") as run:
        p = run.logits.softmax(1)[:, 3]
        both = run.grad_cams([3, 4, lambda logits: logits[:, 3] - logits[:, 4]])
        slopes = run.grad_cam(lambda logits: logits.softmax(1)[:, 3])
        rest = torch.stack([run.logits.softmax(1)[:, c, None, None] * run.grad_cam(c) for c in range(5)]).sum(0)
    assert relative(both[2], both[0] - both[1]) < 1e-12
    assert relative(slopes, p[:, None, None] * (both[0] - rest)) < 1e-10


def test_a_target_function_may_change_the_logits_it_gets():
    model, batch = seeded(Small()), images()
    run = explain(model, batch, "second")
    assert torch.equal(run.grad_cam(lambda logits: logits.mul_(1)[:, 1]), run.grad_cam(1))
    assert torch.equal(run.logits, model(batch))


def test_logits_with_positions_need_a_function():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 1)).double()
    with pytest.raises(
        SaliencyError, match=r"a class needs logits \(N, classes\), the model returned \(2, 5, 10, 10\)"
    ):
        grad_cam(model, images(), "0", 3)
    assert grad_cam(model, images(), "0", lambda logits: logits[:, 3].mean((1, 2))).shape == (2, 10, 10)


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        (5, SaliencyError, "class 5 is out of range: the model has 5 classes, 0 to 4"),
        (-1, SaliencyError, "class -1 is out of range"),
        ([0, 9], SaliencyError, "class 9 is out of range"),
        ("dgo", SaliencyError, "no class has the name 'dgo' (nearest: dog)"),
        ("zzz", SaliencyError, "no class has the name 'zzz' (the first are cat, dog, plane, crane, crane)"),
        ("crane", SaliencyError, "2 classes have the name 'crane': give the index, one of [3, 4]"),
        ([0, 1, 2], SaliencyError, "got 3 targets for a batch of 2: a sequence has one for each image"),
        ([], SaliencyError, "got 0 targets for a batch of 2"),
        (torch.tensor([[0, 1]]), SaliencyError, "got 1 targets for a batch of 2"),
        (1.0, TypeError, "a target is a class index, a class name"),
        (True, TypeError, "got bool True"),
        (torch.tensor([0.0, 1.0]), TypeError, "got float 0.0"),
        ({"cat"}, TypeError, "got set {'cat'}"),
        ([0, None], TypeError, "got NoneType None"),
        (lambda logits: logits[:, :1], SaliencyError, "returns a score for each image, shape (2,), or one number"),
        (lambda logits: logits.detach()[:, 0], SaliencyError, "computed from the logits with PyTorch; got (2,)"),
        (lambda logits: 3, SaliencyError, "got int"),
        (lambda logits: logits.argmax(1), SaliencyError, "computed from the logits"),
    ],
)
def test_a_target_that_does_not_exist_gets_a_sentence(target, error, words):
    model, batch = seeded(Small()), images()
    with explain(model, batch, "second", class_names=NAMES) as run:
        for ask in (run.grad_cam, run.gradient, lambda t: run.grad_cams([0, t])):
            with pytest.raises(error) as raised:
                ask(target)
            assert words in str(raised.value)
    with pytest.raises(error) as raised:
        cam(model, batch, target, class_names=NAMES)
    assert words in str(raised.value)


@pytest.mark.parametrize(("names", "words"), [(None, "class_names was not given"), (["cat"], "has 1 names")])
def test_a_class_name_needs_the_names_of_all_classes(names, words):
    with pytest.raises(SaliencyError, match=words):
        input_gradient(seeded(Small()), images(), "cat", class_names=names)


@pytest.mark.parametrize("targets", [[], "cat"])
def test_several_targets_are_a_sequence(targets):
    with pytest.raises(SaliencyError, match="expected a sequence of targets"):
        explain(seeded(Small()), images(), "second", class_names=NAMES).grad_cams(targets)


# -- Nothing of the caller's changes --


def state(model, batch):
    tensors = [*model.parameters(), *model.buffers(), batch]
    return {
        "grad": [id(tensor.grad) for tensor in tensors],
        "requires_grad": [tensor.requires_grad for tensor in tensors],
        "identity": [id(tensor) for tensor in tensors],
        "values": [tensor.detach().clone() for tensor in tensors],
        "grads": [None if tensor.grad is None else tensor.grad.clone() for tensor in tensors],
        "training": [module.training for module in model.modules()],
        "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch._C._len_torch_function_stack()),
        "random": torch.get_rng_state(),
    }


def same_state(one, other):
    flat = [itertools.chain.from_iterable(v if isinstance(v, list) else [v] for v in s.values()) for s in (one, other)]
    return one.keys() == other.keys() and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(*flat, strict=True)
    )


METHODS = {
    "explain": lambda model, batch: explain(model, batch, "second").grad_cams([0, 1]),
    "input_gradient": input_gradient,
    "guided_backprop": guided_backprop,
    "deconvnet": deconvnet,
    "grad_cam": lambda model, batch: grad_cam(model, batch, "second"),
    "guided_grad_cam": lambda model, batch: guided_grad_cam(model, batch, "second"),
    "cam": cam,
    "class_maps": class_maps,
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("frozen", [False, True])
def test_nothing_changes_and_the_map_is_the_same_in_every_mode(method, mode, frozen):
    model, batch = seeded(Small()), images()
    model.requires_grad_(not frozen)
    model.first.weight.requires_grad_(False)
    model.head.weight.grad = torch.ones_like(model.head.weight)
    batch.requires_grad_(not frozen)
    batch.grad = torch.zeros_like(batch)
    wanted = METHODS[method](seeded(Small()), images())
    with mode(), no_hooks_left(model, batch):
        before = state(model, batch)
        got = METHODS[method](model, batch)
        assert same_state(state(model, batch), before)
    assert torch.equal(got, wanted)
    assert not got.is_inference()
    assert not got.requires_grad


@pytest.mark.parametrize("method", METHODS)
def test_tensors_made_in_inference_mode_can_be_explained(method):
    wanted = METHODS[method](seeded(Small()), images())
    with torch.inference_mode():
        model, batch = seeded(Small()), images()
        assert all(tensor.is_inference() for tensor in [*model.parameters(), *model.buffers(), batch])
        before = state(model, batch)
        inside = METHODS[method](model, batch)
        assert same_state(state(model, batch), before)
    with no_hooks_left(model):
        assert torch.equal(METHODS[method](model, batch), wanted)
    assert torch.equal(inside, wanted)


class Boom(Exception):
    pass


class BackwardBoom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise Boom


def explode(*_):
    raise Boom


STAGES = {
    "before the first layer": lambda model: model.register_forward_pre_hook(explode),
    "before the layer": lambda model: model.bn.register_forward_hook(explode),
    "in the layer": lambda model: setattr(model.second, "forward", explode),
    "in a hook on the layer": lambda model: model.second.register_forward_hook(explode),
    "after the layer": lambda model: model.head.register_forward_pre_hook(explode),
    "after the model": lambda model: model.register_forward_hook(explode),
    "in the backward pass": lambda model: model.head.register_forward_hook(lambda *seen: BackwardBoom.apply(seen[-1])),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_nothing_changes_when_something_raises(method, stage, mode):
    if stage == "in the backward pass" and method in ("cam", "class_maps"):
        METHODS[method](seeded(Small()), images())  # they go nowhere backward
        return
    model, batch = seeded(Small()), images()
    STAGES[stage](model)
    with mode(), no_hooks_left(model, batch):
        before = state(model, batch)
        with pytest.raises(Boom):
            METHODS[method](model, batch)
        assert same_state(state(model, batch), before)


def test_an_exception_in_a_target_function_goes_on_and_the_run_stays_useful():
    model, batch = seeded(Small()), images()
    with no_hooks_left(model), explain(model, batch, "second") as run:
        before = state(model, batch)
        with pytest.raises(Boom):
            run.grad_cam(explode)
        assert same_state(state(model, batch), before)
        assert run.grad_cam(0).shape == (2, 8, 8)
    with pytest.raises(Boom), explain(model, batch, "second") as run:
        raise Boom
    with pytest.raises(SaliencyError, match="closed"):
        run.grad_cam(0)


def test_a_model_that_changes_its_input_does_not_change_the_callers_images():
    class Centre(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Small()

        def forward(self, x):
            return self.net(x.sub_(0.5).div_(0.25))

    model, batch = seeded(Centre()), images()
    for method in (lambda: grad_cam(model, batch, "net.second"), lambda: guided_backprop(model, batch)):
        first = method()
        assert torch.equal(batch, images())
        assert torch.equal(method(), first)


@pytest.mark.parametrize("part", ["bn", "dropout"])
def test_training_mode_is_kept_and_gives_a_warning(part):
    model, batch = seeded(nn.Sequential(Small(), nn.Dropout(0.5))), images()
    (model[0].bn if part == "bn" else model[1]).train()
    before = state(model, batch)
    with pytest.warns(UserWarning, match=r"is in training mode.*model.eval\(\) first") as caught:
        got = grad_cam(model, batch, "0.second", 1)
    assert len(caught) == 1
    before["random"] = torch.get_rng_state()  # dropout draws, as in any call
    assert same_state(state(model, batch), before)
    assert got.shape == (2, 8, 8)


# -- Odd models --


def test_a_forward_that_turns_gradients_off_around_the_layer():
    class Frozen(Small):
        def forward(self, x):
            self.runs += 1
            with torch.no_grad():
                x = self.second(F.relu(self.bn(self.first(x))))
            return self.head(F.relu(x).mean((2, 3)))

    model, batch = seeded(Frozen()), images()
    assert torch.equal(grad_cam(model, batch, "second"), grad_cam(seeded(Small()), batch, "second"))
    assert model.runs == 2
    with pytest.raises(SaliencyError, match="the logits do not depend on the input"):
        input_gradient(model, batch)


def test_a_forward_under_inference_mode_is_no_silent_zero_map():
    class Whole(Small):
        @torch.inference_mode()
        def forward(self, x):
            return super().forward(x)

    model = seeded(Whole())
    for method in (lambda: grad_cam(model, images(), "second"), lambda: guided_backprop(model, images())):
        with no_hooks_left(model), pytest.raises(SaliencyError, match=r"torch.inference_mode\(\)"):
            method()


def test_a_forward_under_no_grad_hinders_nothing_after_the_layer():
    class Whole(Small):
        @torch.no_grad()
        def forward(self, x):
            return super().forward(x)

    model = seeded(Whole())
    assert torch.equal(grad_cam(model, images(), "second"), grad_cam(seeded(Small()), images(), "second"))
    assert model.runs == 1


@pytest.mark.parametrize("cut", ["detach", "inference", "data"])
def test_logits_without_a_way_back_to_the_layer_are_no_silent_zero_map(cut):
    class Cut(Small):
        def forward(self, x):
            x = F.relu(self.second(F.relu(self.bn(self.first(x)))))
            if cut == "inference":
                with torch.inference_mode():
                    return self.head(x.mean((2, 3)))
            return self.head((x.detach() if cut == "detach" else x.data).mean((2, 3)))

    with pytest.raises(SaliencyError, match=r"the logits do not depend on layer 'second'.*\.detach\(\)"):
        grad_cam(seeded(Cut()), images(), "second")


def test_a_layer_beside_the_way_to_the_logits_is_no_silent_zero_map():
    class Beside(Small):
        def forward(self, x):
            self.seen = self.second(self.first(x))
            return self.head(F.pad(self.first(x), (0, 0, 0, 0, 0, 2)).mean((2, 3)))

    for targets in ([0], [0, 1]):
        with pytest.raises(SaliencyError, match="the logits do not depend on layer 'second'"):
            explain(seeded(Beside()), images(), "second").grad_cams(targets)


class Wrong(Small):
    """Returns something else than logits."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        return self.change(super().forward(x))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: {"logits": y}, "Wrong returned dict {'logits': (2, 5)}, expected one floating-point tensor"),
        (lambda y: (y, y), "Wrong returned tuple ((2, 5), (2, 5))"),
        (lambda y: y.argmax(1), "Wrong returned (2,)"),
        (lambda y: y.sum(), "Wrong returned ()"),
        (lambda y: y[:1], "Wrong returned (1, 5)"),
        (lambda y: None, "Wrong returned NoneType"),
    ],
)
def test_an_output_that_is_not_logits_gets_a_sentence(change, words):
    for method in METHODS.values():
        with pytest.raises(SaliencyError) as raised:
            method(seeded(Wrong(change)), images())
        assert words in str(raised.value)
        assert "model.eval()" in str(raised.value)


def test_googlenet_in_training_mode_returns_more_than_logits():
    model = models.googlenet(num_classes=4, init_weights=False).train()
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm2d, nn.Dropout)):
            module.eval()
    with pytest.raises(SaliencyError, match=r"GoogLeNet returned GoogLeNetOutputs .* call model.eval\(\) if this is"):
        grad_cam(model, torch.randn(1, 3, 64, 64), "inception5b", 0)


class Odd(Small):
    def __init__(self):
        super().__init__()
        self.twice, self.unused = nn.Sequential(nn.ReLU()), nn.Conv2d(3, 3, 3)

    def forward(self, x):
        x = self.twice[0](self.bn(self.first(x)))
        return self.head(self.twice[0](self.second(x)).mean((2, 3)))


@pytest.mark.parametrize(
    ("layer", "error", "words"),
    [
        ("secnd", UnknownLayerError, "layer 'secnd' is not in Odd (nearest: second,"),
        (nn.Conv2d(3, 4, 3), UnknownLayerError, "the Conv2d you gave is not a module of Odd"),
        (nn.GELU, UnknownLayerError, "Odd has no GELU"),
        (7, TypeError, "a layer is a dotted name"),
        (nn.Conv2d, SaliencyError, "Conv2d chooses 3 layers: name one of them, such as 'unused'"),
        (
            "head",
            SaliencyError,
            "layer 'head' returns (2, 5): a map needs positions, one floating-point tensor (2, K, h",
        ),
        ("", SaliencyError, "the last convolution is 'unused'"),
        (
            "twice.0",
            SaliencyError,
            "ran 2 times in one call of the model: choose a layer that runs once, perhaps 'twice'",
        ),
        ("unused", SaliencyError, "layer 'unused' never ran when the model was called"),
        ("twice", SaliencyError, "layer 'twice' never ran"),
    ],
)
def test_a_layer_that_has_no_map_gets_a_sentence(layer, error, words):
    model = seeded(Odd())
    with no_hooks_left(model), pytest.raises(error) as raised:
        grad_cam(model, images(), layer, 0)
    assert words in str(raised.value)


def test_grad_cam_without_a_layer_gets_a_sentence():
    with pytest.raises(SaliencyError, match="Grad-CAM needs a layer"):
        explain(seeded(Small()), images()).grad_cam(0)


@pytest.mark.parametrize(
    ("batch", "error", "words"),
    [
        (torch.randn(3, 12, 12), SaliencyError, "got shape (3, 12, 12): add the batch dimension with images[None]"),
        (torch.randn(0, 3, 12, 12), SaliencyError, "not empty, got shape (0, 3, 12, 12)"),
        (torch.zeros(1, 3, 12, 12, dtype=torch.uint8), SaliencyError, "got torch.uint8"),
        (torch.zeros(1, 3, 12, 12, device="meta"), SaliencyError, "the images are on meta, the model on cpu"),
        ([[0.0]], TypeError, "images are a tensor (N, C, H, W), got list"),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_images_that_are_no_batch_get_a_sentence(method, batch, error, words):
    with pytest.raises(error) as raised:
        METHODS[method](Small().eval(), batch)
    assert words in str(raised.value)


def test_a_model_on_several_devices_is_no_mistake():
    class Spread(Small):
        def __init__(self):
            super().__init__()
            self.first, first = nn.Linear(1, 1, device="meta"), self.first  # the first parameter, elsewhere and unused
            self.conv = first

        def forward(self, x):
            return self.head(F.relu(self.second(self.conv(x))).mean((2, 3)))

    assert grad_cam(Spread().eval(), images().float(), "second").shape == (2, 8, 8)


@pytest.mark.parametrize("method", METHODS)
def test_nan_is_named_where_it_is(method):
    model, batch = seeded(Small()), images()
    model.second.bias.data[1] = torch.nan
    with pytest.raises(SaliencyError, match=r"logits of Small have NaN values: 'second.bias' has NaN or infinite"):
        METHODS[method](model, batch)
    batch[1, 0, 3, 3] = torch.nan
    with pytest.raises(SaliencyError, match="NaN values: 'images' has NaN"):
        METHODS[method](seeded(Small()), batch)


def test_nan_that_comes_from_neither_weights_nor_images():
    with pytest.raises(SaliencyError, match="weights and images are finite"):
        input_gradient(Wrong(lambda y: y - torch.inf * 0).double().eval(), images())
    with pytest.raises(SaliencyError, match="the gradient at layer 'second' has NaN or infinite values"):
        grad_cam(seeded(Wrong(lambda y: (y - y).sqrt() + y)), images(), "second")


def test_a_logit_of_minus_infinity_is_a_class_that_is_masked_out():
    mask = torch.tensor([False, True, False, False, False])
    model = seeded(Wrong(lambda y: y.masked_fill(mask, -torch.inf)))
    assert torch.equal(grad_cam(model, images(), "second", 2), grad_cam(seeded(Small()), images(), "second", 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_maps_have_the_dtype_of_the_layer(dtype):
    model, batch = seeded(Deep()).to(dtype), images().to(dtype)
    got = grad_cam(model, batch, "features.3", 1)
    assert got.dtype == dtype
    assert relative(got.double(), grad_cam(seeded(Deep()), images(), "features.3", 1)) < 100 * torch.finfo(dtype).eps


# -- Compiled models --


@pytest.mark.slow
@pytest.mark.parametrize("run_before", [False, True])
@pytest.mark.parametrize("where", ["whole", "part", "in place"])
def test_compiled_models_run_uncompiled(where, run_before):
    torch.compiler.reset()
    plain, batch = seeded(Deep()), images()
    model = seeded(Deep())
    if where == "whole":
        compiled = torch.compile(model, backend="eager")
    else:
        compiled = model
        if where == "part":
            model.features = torch.compile(model.features, backend="eager")
        else:
            model.compile(backend="eager")
    if run_before:
        compiled(batch)
        with torch.no_grad():
            compiled(batch)  # from now on a hook inside compiled code would be skipped
    layer = plain_layer = "features.3"
    if where == "part":
        layer = "features._orig_mod.3"
    with no_hooks_left(model):
        got = grad_cam(compiled, batch, layer, 1)
        guided = guided_backprop(compiled, batch, 1)
    assert torch.equal(got, grad_cam(plain, batch, plain_layer, 1))
    assert torch.equal(guided, guided_backprop(plain, batch, 1))
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


# -- The module --


def test_importing_it_imports_no_torchvision_and_no_compiler():
    code = (
        "import sys, torch; before = set(sys.modules); import course_utils.vision.saliency\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new & {'torchvision', 'matplotlib', 'ipywidgets', 'IPython', 'numpy', 'PIL', 'torch'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.strip() == "[]"


def test_explaining_imports_no_compiler():
    code = (
        "import sys, torch; from torch import nn; from course_utils.vision.saliency import grad_cam\n"
        "grad_cam(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten()), torch.ones(1, 3, 4, 4), '0', 0)\n"
        "print('torch._dynamo' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.strip() == "False"


def test_batched_gradients_give_no_warning_about_slow_paths():
    model, batch = seeded(models.resnet18(num_classes=7)), images(2, 64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explain(model, batch, "layer2").grad_cams(range(3))
        explain(model, batch, watch_relus=True).gradients(range(3), relu_rule="guided")
