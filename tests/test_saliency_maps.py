"""saliency.py: maps against pencil, finite differences, formulas, and torch with another ReLU."""

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

from course_utils.hooks.inventory import no_hooks_left
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
slow = pytest.mark.slow


def grad_cam_by_differences(model, layer, image, target, step=1e-7):
    """Grad-CAM of one image without any backward pass: one channel after the other is raised a little, everywhere."""
    kept = []

    def raise_channels(module, args, output):
        kept.append(output[:1].clone())
        one_each = torch.eye(output.shape[1], dtype=output.dtype)[:, :, None, None] * step
        return output[:1] + torch.cat([torch.zeros_like(one_each), one_each, -one_each])

    channels = {"stem": 4, "norm": 4}.get(layer, 0)  # another branch goes round the layer: it needs the same batch
    with torch.no_grad(), model.get_submodule(layer).register_forward_hook(raise_channels):
        _, up, down = model(image.repeat(3 * channels or 1, 1, 1, 1))[:, target].chunk(3)
    weights = (up - down) / (2 * step) / kept[0][0, 0].numel()
    return (weights[:, None, None] * kept[0][0]).sum(0)[None]


@pytest.mark.parametrize(
    ("build", "layer", "size"),
    [
        (Small, "second", 12),
        (Deep, "features.3", 12),  # an in-place ReLU follows
        (Deep, "features.4", 12),  # is an in-place ReLU
        *[(build, layer, 12) for build in (PreActivation, InPlaceAfterwards) for layer in ("stem", "norm")],
        pytest.param(of_torchvision("densenet121"), "features.norm5", 64, marks=slow),  # followed in place, as is
        pytest.param(of_torchvision("googlenet"), "conv2.bn", 64, marks=slow),
    ],
)
def test_grad_cam_equals_finite_differences(build, layer, size):
    model, image = seeded(build()), images(1, size)
    assert relative(grad_cam(model, image, layer, 3), grad_cam_by_differences(model, layer, image, 3)) < 1e-6


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
    together = grad_cam(model, batch, model.features[3], [4, 0, 2])
    alone = [grad_cam(model, batch[i : i + 1], "features.3", target) for i, target in enumerate([4, 0, 2])]
    assert relative(together, torch.cat(alone)) < 1e-12


def test_the_network_runs_once_and_hands_out_copies_however_many_classes_are_asked_for(monkeypatch):
    model, batch = seeded(Small()), images()
    with explain(model, batch, "second") as run:
        maps = [run.grad_cam(target) for target in range(5)]
        for each in (run.activation, run.grad_cam(0), run.logits):
            each.fill_(torch.nan)
        several = run.grad_cams(range(5))
        monkeypatch.setattr(saliency, "_MOST_AT_ONCE", 3)
        assert relative(run.grad_cams(range(5)), several) < 1e-12
    assert model.runs == 1
    assert several.shape == (5, 2, 8, 8)
    assert not several.requires_grad
    assert relative(several, torch.stack(maps)) < 1e-12
    assert torch.equal(run.logits, model(batch))
    assert torch.equal(run.activation, model.maps(batch))
    assert run.layer == "second"


def test_there_is_a_graph_from_the_layer_on_and_none_before():
    modes, saved = {}, []
    model, batch = seeded(Deep()), images()
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda *_, name=name: modes.update({name: torch.is_grad_enabled()}))
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor.shape) or tensor, lambda t: t):
        explain(model, batch, "features.3")
    assert [name for name in modes if not modes[name]] == ["", "features", *(f"features.{i}" for i in range(4))]
    assert saved
    assert not {(2, 3, 12, 12), (2, 4, 10, 10), (2, 4, 5, 5)} & {tuple(shape) for shape in saved}


def test_an_earlier_tensor_that_shares_the_layers_memory_may_change_later():
    class Reuses(Small):
        def forward(self, x):
            logits = self.head(F.relu(self.same(x := self.maps(x))).mean((2, 3)))
            x.zero_()
            return logits

    model = seeded(Reuses())
    model.same = nn.Identity()
    assert torch.equal(grad_cam(model, images(), "same"), grad_cam(seeded(Small()), images(), "second"))


def test_weights_that_changed_after_the_run_are_no_silent_mistake():
    model = seeded(Deep())
    run = explain(model, images(), "features.3")
    with torch.no_grad():
        model.head[3].weight.add_(1)
    with pytest.raises(CourseError, match="changed in place: weights after the run"):
        run.grad_cams([0, 1, 2])


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
    return lambda x: (change(x), x)[1]


@pytest.mark.parametrize(
    "rectify",
    [
        *(nn.ReLU(), nn.ReLU(inplace=True), nn.ReLU6(), nn.ReLU6(inplace=True), nn.Hardtanh(0, 6)),
        *(F.relu, F.relu_, F.relu6, torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_),
        lambda x: F.relu(x, True),
        lambda x: torch.relu(input=x),
        forget_result(lambda x: F.relu(x, inplace=True)),
        forget_result(torch.relu_),
        forget_result(lambda x: x[:, 1:].relu_()),
    ],
)
def test_the_three_rules_by_pencil_for_every_form_of_relu(rectify):
    model, ones = Units(rectify), torch.ones(1, 3, 1, 1)
    assert input_gradient(model, ones, 0).flatten().tolist() == [-3, 4, -2]  # R where f > 0: 1, -, -2
    assert guided_backprop(model, ones, 0).flatten().tolist() == [1, 2, 0]  # and R > 0: 1, -, -
    assert deconvnet(model, ones, 0).flatten().tolist() == [-4, 7, -5]  # R where R > 0: 1, 5, -
    with explain(model, ones, watch_relus=True) as run:
        rules = [run.gradient(0, relu_rule=rule).flatten().tolist() for rule in ("plain", "guided", "deconvnet")]
        assert run.gradients([0, 1, 1], relu_rule="guided")[0].flatten().tolist() == [1, 2, 0]
    assert rules == [[-3, 4, -2], [1, 2, 0], [-4, 7, -5]]


def test_relu6_lets_no_gradient_pass_above_six():
    model, image = nn.Sequential(nn.ReLU6(), nn.Flatten()), torch.tensor([-1.0, 0, 3, 6, 7]).reshape(1, 5, 1, 1)
    for method, wanted in ((guided_backprop, [0, 0, 1, 0, 0]), (deconvnet, [1] * 5), (input_gradient, [0, 0, 1, 0, 0])):
        assert method(model, image, lambda logits: logits.sum(1)).flatten().tolist() == wanted


@pytest.mark.parametrize("build", [Deep, PreActivation])
def test_guided_backprop_equals_torch_with_another_relu(build, monkeypatch):
    model, batch = seeded(build()), images()
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


def test_guided_grad_cam_is_the_product():
    model, batch = seeded(Deep()), images()
    predicted = model(batch).argmax(1)
    heat = F.interpolate(grad_cam(model, batch, "features.3")[:, None].clamp(min=0), (12, 12), mode="bilinear")
    wanted = guided_backprop(model, batch, predicted) * heat
    assert torch.equal(guided_grad_cam(model, batch, "features.3"), wanted)
    assert torch.equal(guided_grad_cam(model, batch, "features.3", predicted), wanted)


class Gated(nn.Module):
    """ReLUs beside the way from the images to the logits."""

    def __init__(self):
        super().__init__()
        self.gate, self.conv = nn.Parameter(torch.ones(1)), nn.Conv2d(3, 2, 3)

    def forward(self, x):
        return F.gelu(self.conv(x)).mean((2, 3)) * F.relu(self.gate) + F.relu(torch.ones(2))


@pytest.mark.parametrize(
    ("model", "layer"),
    [
        *[(Units(rectify), None) for rectify in (nn.GELU(), nn.LeakyReLU(), lambda x: x.clamp(min=0))],
        (nn.Sequential(nn.ReLU(), nn.Conv2d(3, 2, 3), nn.Flatten()), "1"),
        (Gated(), None),
    ],
)
def test_a_rule_without_a_relu_on_the_way_says_so(model, layer):
    run = explain(model, torch.randn(1, 3, *((1, 1) if isinstance(model, Units) else (4, 4))), layer, watch_relus=True)
    place = "layer '1'" if layer else "the input"
    for targets in ([0], [0, 1, 1]):
        with pytest.raises(CourseError, match=f"no ReLU lies between {place} and the logits.*GELU"):
            run.gradients(targets, relu_rule="guided")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_maps_have_the_dtype_of_the_layer(dtype):
    model, batch = seeded(Deep()).to(dtype), images().to(dtype)
    got = grad_cam(model, batch, "features.3", 1)
    assert got.dtype == dtype
    assert relative(got.double(), grad_cam(seeded(Deep()), images(), "features.3", 1)) < 100 * torch.finfo(dtype).eps


@slow
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
    torch.compiler.reset()


def test_upsampling_is_bilinear_without_aligned_corners():
    assert upsample(torch.tensor([[[0.0, 1]]]), (1, 4)).tolist() == [[[0, 0.25, 0.75, 1]]]
    assert upsample(noise(4, 2, 3, 5), torch.Size([6, 10])).shape == (4, 2, 6, 10)
    assert torch.equal(upsample(noise(2, 3, 5)[1], (7, 9)), upsample(noise(2, 3, 5), (7, 9))[1])


def test_scaling_stretches_each_map_alone():
    maps = torch.tensor([[[-1.0, 3], [1, 1]], [[7, 7], [7, 7]], [[0, 0], [0, 1e-30]]])
    assert scale_to_unit(maps).tolist() == [[[0, 1], [0.5, 0.5]], [[0, 0], [0, 0]], [[0, 0], [0, 1]]]
    assert scale_to_unit(maps[None, :2], dims=3).tolist() == [[[[0, 0.5], [0.25, 0.25]], [[1, 1], [1, 1]]]]


def test_standardised_gradients_are_centred_and_hide_their_scale():
    gradients = noise(2, 3, 8, 8)
    got = standardise(gradients)
    wanted = [(g - g.mean()) / g.std() * 0.1 + 0.5 for g in gradients]
    assert relative(got, torch.stack(wanted).clamp(0, 1)) < 1e-12
    assert relative(standardise(gradients * 1e-3 + 2), got) < 1e-9
    assert standardise(torch.full((1, 3, 2, 2), 4.0)).unique().tolist() == [0.5]
    assert standardise(F.pad(torch.ones(1, 1, 1, 1), (0, 19, 0, 19))).max() == 1
