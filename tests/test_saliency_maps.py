"""saliency.py: maps against pencil, finite differences, formulas, torch with another ReLU; CAM against Grad-CAM."""

import pytest
import saliency_nets as nets
import torch
import torch.nn.functional as F
from saliency_nets import Deep, InPlaceAfterwards, PreActivation, Small, images, noise, relative, seeded
from torch import nn
from torch.utils.checkpoint import checkpoint
from torchvision import models

from course_utils.hooks.inventory import no_hooks_left
from course_utils.hooks.record import record
from course_utils.root import CourseError
from course_utils.vision import saliency
from course_utils.vision.saliency import cam, class_maps, explain, grad_cam, guided_backprop, input_gradient

pytestmark, slow = pytest.mark.filterwarnings("error"), pytest.mark.slow
GATE = torch.ones(3, requires_grad=True)


def grad_cam_by_differences(model, layer, image, target, step=1e-7):
    """Grad-CAM of one image without any backward pass: one channel after the other is raised a little, everywhere."""
    kept = []

    def raise_channels(module, args, output):
        kept.append(output[:1].clone())
        one_each = torch.eye(output.shape[1], dtype=output.dtype)[:, :, None, None] * step
        return output[:1] + torch.cat([one_each, -one_each])

    channels = 4 if layer in ("stem", "norm") else 1  # another branch goes round the layer: it needs the same batch
    with torch.no_grad(), model.get_submodule(layer).register_forward_hook(raise_channels):
        up, down = model(image.repeat(2 * channels, 1, 1, 1))[:, target].chunk(2)
    weights = (up - down) / (2 * step) / kept[0][0, 0].numel()
    return (weights[:, None, None] * kept[0][0]).sum(0)[None]


@pytest.mark.parametrize(
    ("build", "layer", "size"),
    [
        (Small, "second", 12),
        (Deep, "features.3", 12),  # an in-place ReLU follows
        (Deep, "features.4", 12),  # is an in-place ReLU
        *[(build, layer, 12) for build in (PreActivation, InPlaceAfterwards) for layer in ("stem", "norm")],
        pytest.param(nets.of_torchvision("densenet121"), "features.norm5", 64, marks=slow),  # followed in place, as is
    ],
)
def test_grad_cam_equals_finite_differences(build, layer, size):
    model, image = seeded(build()), images(1, size)
    assert relative(grad_cam(model, image, layer, 3), grad_cam_by_differences(model, layer, image, 3)) < 1e-6


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
    assert not {(2, 3, 12, 12), (2, 4, 10, 10), (2, 4, 5, 5)} & {*map(tuple, saved)}


def test_an_earlier_tensor_that_shares_the_layers_memory_may_change_later():
    class Reuses(Small):
        def forward(self, x):
            logits = self.head(F.relu(self.same(x := self.maps(x))).mean((2, 3)))
            x.zero_()
            return logits

    model = seeded(Reuses())
    model.same = nn.Identity()
    assert torch.equal(grad_cam(model, images(), "same"), grad_cam(seeded(Small()), images(), "second"))


class Units(nn.Module):
    """Three inputs, three hidden units (3, -1, 2 for ones), two logits; `rectify` is any form of ReLU."""

    def __init__(self, rectify):
        super().__init__()
        self.rectify = rectify
        self.hidden = torch.tensor([[1.0, 2, 0], [-1, 1, -1], [2, -1, 1]])
        self.out = torch.tensor([[1.0, 5, -2], [0, 1, 1]])

    def forward(self, x):
        return self.rectify(x.flatten(1) @ self.hidden.T) @ self.out.T


@pytest.mark.parametrize(
    "rectify",
    [
        *(nn.ReLU(), nn.ReLU(inplace=True), nn.ReLU6(), nn.ReLU6(inplace=True), nn.Hardtanh(0, 6)),
        *(F.relu, F.relu_, F.relu6, torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_),
        *(lambda x: F.relu(x, True), lambda x: torch.relu(input=x)),
        *(lambda x: (F.relu(x, inplace=True), x)[1], lambda x: (torch.relu_(x), x)[1]),
        lambda x: (x[:, 1:].relu_(), x)[1],
    ],
)
def test_the_three_rules_by_pencil_for_every_form_of_relu(rectify):
    model, ones = Units(rectify), torch.ones(1, 3, 1, 1)
    by_hand = {"plain": [-3, 4, -2], "guided": [1, 2, 0], "deconvnet": [-4, 7, -5]}  # R: 1, -, -2; 1, -, -; 1, 5, -
    with explain(model, ones, watch_relus=True) as run:
        for rule, wanted in by_hand.items():
            for targets in ([0], [0, 1, 1]):
                assert run.gradients(targets, relu_rule=rule)[0].flatten().tolist() == wanted


def test_relu6_lets_no_gradient_pass_above_six():
    image = torch.tensor([-1.0, 0, 3, 6, 7]).reshape(1, 5, 1, 1)
    run = explain(nn.Sequential(nn.ReLU6(), nn.Flatten()), image, watch_relus=True)
    for rule, wanted in (("guided", [0, 0, 1, 0, 0]), ("deconvnet", [1] * 5), ("plain", [0, 0, 1, 0, 0])):
        assert run.gradient(lambda logits: logits.sum(1), relu_rule=rule).flatten().tolist() == wanted


@pytest.mark.parametrize("build", [Deep, Small, PreActivation, InPlaceAfterwards])
@pytest.mark.parametrize("rule", ["guided", "deconvnet", "plain"])
def test_a_checkpoint_changes_nothing(build, rule):
    model, batch, outer = seeded(build()), images(), nn.Sequential(seeded(build())).eval()
    outer.forward = lambda x: checkpoint(outer[0], x, use_reentrant=False)
    assert torch.equal(*(explain(each, batch, watch_relus=True).gradient(2, relu_rule=rule) for each in (outer, model)))


def test_a_rule_that_guides_only_a_part_warns_and_counts_what_it_leaves():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.SiLU(), nn.Hardtanh(), nn.SiLU(), nn.Flatten()).double()
    words = r"the guided rule changes 1 ReLUs and leaves .* as they are: 1 of kind Hardtanh, 2 of kind Silu"
    with pytest.warns(UserWarning, match=words) as caught:
        guided_backprop(model, images(), 2)
    assert [each.filename for each in caught] == [__file__]


def test_the_input_gradient_equals_finite_differences_and_a_run_that_watches_relus():
    model, image, step = seeded(Deep()), images(1), 1e-6
    pixels = torch.eye(image.numel(), dtype=torch.float64).reshape(-1, *image.shape[1:]) * step
    with torch.no_grad():
        wanted = (model(image + pixels) - model(image - pixels))[:, 1].reshape(image.shape) / (2 * step)
    got = input_gradient(model, image, 1)
    assert relative(got, wanted) < 1e-6
    assert torch.equal(explain(model, image, watch_relus=True).gradient(1), got)


@pytest.mark.parametrize(
    ("build", "size", "layer", "reshape", "hint"),
    [
        (
            lambda: models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=5),
            *(32, "encoder.layers.encoder_layer_1.ln_1", lambda x: x[:, 1:].mT.unflatten(2, (4, 4))),
            r"returns \(2, 17, 16\): .* reshape=lambda x: x\[:, 1:\]\.mT\.unflatten\(2, \(4, 4\)\)",
        ),
        (
            lambda: models.SwinTransformer([4, 4], 16, [1, 1], [2, 2], [4, 4], num_classes=5),
            *(64, "features.3", lambda x: x.movedim(3, 1)),
            r"returns \(2, 8, 8, 32\), for images \(2, 3, 64, 64\): the channels seem .*x\.movedim\(3, 1\)",
        ),
    ],
)
def test_tokens_become_maps_by_reshape_and_are_refused_without(build, size, layer, reshape, hint):
    model, batch = seeded(build()), images(2, size)
    with pytest.raises(CourseError, match=hint):
        grad_cam(model, batch, layer, 3)
    with record(model, layer, detach=False) as seen:
        slopes = reshape(torch.autograd.grad(model(batch)[:, 3].sum(), seen[layer].output)[0])
    wanted = (slopes.mean((2, 3), keepdim=True) * reshape(seen[layer].output)).sum(1).detach()
    assert relative(grad_cam(model, batch, layer, 3, reshape=reshape), wanted) < 1e-12
    with pytest.raises(CourseError, match=r"is reshaped to \(2, .* a map needs positions"):
        grad_cam(model, batch, layer, 3, reshape=lambda x: x.flatten(1))


def test_guided_grad_cam_is_the_product():
    model, batch = seeded(Deep()), images()
    predicted = model(batch).argmax(1)
    heat = F.interpolate(grad_cam(model, batch, "features.3")[:, None].clamp(min=0), (12, 12), mode="bilinear")
    wanted = guided_backprop(model, batch, predicted) * heat
    assert torch.equal(saliency.guided_grad_cam(model, batch, "features.3"), wanted)
    assert torch.equal(saliency.guided_grad_cam(model, batch, "features.3", predicted), wanted)


@pytest.mark.parametrize(
    ("model", "layer", "place"),
    [
        *[(Units(rectify), None, "the input") for rectify in (nn.GELU(), nn.LeakyReLU())],
        (Units(lambda x: x.clamp(min=0) * F.relu(GATE) + F.relu(torch.ones(3))), None, "the input"),  # beside the way
        (nn.Sequential(nn.ReLU(), nn.Conv2d(3, 2, 1), nn.Flatten()), "1", "layer '1'"),
    ],
)
def test_a_rule_without_a_relu_on_the_way_says_so(model, layer, place):
    run = explain(model, torch.ones(1, 3, 1, 1), layer, watch_relus=True)
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


class Head(nn.Module):
    """Maps, one of many ways to average them, a linear head."""

    def __init__(self, average):
        super().__init__()
        self.maps, self.average, self.head = nn.Conv2d(3, 6, 3), average, nn.Linear(6, 5)

    def forward(self, x):
        return self.head(self.average(self.maps(x)))


@pytest.mark.parametrize(
    "average",
    [
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Sequential(nn.AvgPool2d(10), nn.Flatten(), nn.Dropout(0.5)),
        lambda maps: maps.mean(dim=[-2, -1]),
        lambda maps: torch.mean(maps, (2, 3)),
        lambda maps: F.adaptive_avg_pool2d(maps, (1, 1)).view(len(maps), -1),
    ],
)
def test_cam_equals_grad_cam_times_the_number_of_positions(average):
    model, batch = seeded(Head(average)), images()
    for target in (None, 0, [4, 1], lambda logits: logits[:, 1] - 2 * logits[:, 3]):
        assert relative(cam(model, batch, target), grad_cam(model, batch, "maps", target) * 100) < 1e-13


@slow
@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("resnet18", "layer4"),
        ("squeezenet1_1", "classifier.2"),  # no linear layer: the means are the logits
        ("densenet121", ""),  # F.relu in place follows its maps: no module returns what is averaged
    ],
)
def test_cam_equals_grad_cam_on_known_networks_and_averages_to_the_logit(name, layer):
    model, batch = seeded(nets.of_torchvision(name)()), images(2, 64)
    maps = class_maps(model, batch)
    assert relative(cam(model, batch, 3), maps[:, 3]) < 1e-12
    if layer:
        wanted = explain(model, batch, layer).grad_cams(range(7))
        assert relative(maps, wanted.transpose(0, 1) * maps[0, 0].numel()) < 1e-12
    heads = [module.bias for module in model.modules() if isinstance(module, nn.Linear)]
    assert relative(maps.mean((2, 3)) + sum(heads), model(batch)) < 1e-12


def test_cam_takes_the_maps_that_are_averaged_also_if_no_module_returns_them():
    model, batch = seeded(nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())), images()
    assert torch.equal(class_maps(model, batch), model[:2](batch))
    model = seeded(Head(lambda maps: F.adaptive_avg_pool2d(F.relu_(maps), 1).squeeze()))
    wanted = (model.head.weight[3][:, None, None] * model.maps(batch).relu()).sum(1)
    assert relative(cam(model, batch, 3), wanted) < 1e-13


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Deep(), r"Deep does not \(its last layer reads \(2, 8\), no means of maps"),
        (Head(lambda maps: maps.amax((2, 3))), r"reads \(2, 6\)"),
        (nn.Sequential(Small(), nn.Hardtanh(-1e-9, 1e-9)), "it ends otherwise"),
        (Head(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.ReLU())), "no means of maps"),
        (nn.Sequential(nn.Conv2d(3, 6, 12), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5)), "two or more"),
    ],
)
def test_a_model_without_cam_says_what_cam_needs(model, words):
    with pytest.raises(CourseError, match=f"CAM needs a model that averages its last maps.*{words}"):
        cam(seeded(model), images(), 0)


def test_upsampling_is_bilinear_without_aligned_corners_and_scaling_stretches_each_map_alone():
    assert saliency.upsample(torch.tensor([[[0.0, 1]]]), (1, 4)).tolist() == [[[0, 0.25, 0.75, 1]]]
    assert saliency.upsample(noise(4, 2, 3, 5), torch.Size([6, 10])).shape == (4, 2, 6, 10)
    assert torch.equal(saliency.upsample(noise(2, 3, 5)[1], (7, 9)), saliency.upsample(noise(2, 3, 5), (7, 9))[1])
    maps = torch.tensor([[[-1.0, 3], [1, 1]], [[7, 7], [7, 7]], [[0, 0], [0, 1e-30]]])
    assert saliency.scale_to_unit(maps).tolist() == [[[0, 1], [0.5, 0.5]], [[0, 0], [0, 0]], [[0, 0], [0, 1]]]
    assert saliency.scale_to_unit(maps[None, :2], dims=3).tolist() == [[[[0, 0.5], [0.25, 0.25]], [[1, 1], [1, 1]]]]


def test_standardised_gradients_are_centred_and_hide_their_scale():
    gradients = noise(2, 3, 8, 8)
    got = saliency.standardise(gradients)
    wanted = [(g - g.mean()) / g.std() * 0.1 + 0.5 for g in gradients]
    assert relative(got, torch.stack(wanted).clamp(0, 1)) < 1e-12
    assert relative(saliency.standardise(gradients * 1e-3 + 2), got) < 1e-9
    assert saliency.standardise(torch.full((1, 3, 2, 2), 4.0)).unique().tolist() == [0.5]
    assert saliency.standardise(F.pad(torch.ones(1, 1, 1, 1), (0, 19, 0, 19))).max() == 1
