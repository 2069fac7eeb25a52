"""saliency.py beside captum, torch-cam and pytorch-grad-cam: equal where they are right, and where they are not.

Everything is float64 with seeded random weights. Where a library is wrong, `saliency` is compared with a
plain reference that uses none of the three, and the library's error is asserted to be there: a test that fails when a
library gets it right documents a bug that is gone.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchvision import models

from course_utils.vision.saliency import (
    cam,
    class_maps,
    deconvnet,
    explain,
    grad_cam,
    guided_backprop,
    guided_grad_cam,
    input_gradient,
    relu,
    upsample,
)

REASON = "the reference libraries are not installed: pip install -e '.[parity]'"
captum_attr = pytest.importorskip("captum.attr", reason=REASON)
torchcam_methods = pytest.importorskip("torchcam.methods", reason=REASON)
pytorch_grad_cam = pytest.importorskip("pytorch_grad_cam", reason=REASON)

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]

SIZE, CLASSES, TARGET = 96, 10, 3
EQUAL = 1e-6
NETWORKS = {
    "alexnet": lambda: models.alexnet(num_classes=CLASSES),
    "resnet18": lambda: models.resnet18(num_classes=CLASSES),
    "resnet34": lambda: models.resnet34(num_classes=CLASSES),
    "squeezenet": lambda: models.squeezenet1_1(num_classes=CLASSES),
    "googlenet": lambda: models.googlenet(num_classes=CLASSES, init_weights=False),
    "densenet": lambda: models.densenet121(num_classes=CLASSES),
}
RIGHT = [
    ("alexnet", "features.12"),
    ("resnet18", "layer4"),
    ("resnet18", "layer2.1.conv1"),
    ("resnet34", "layer4"),
    ("resnet34", "layer3.2"),
    ("squeezenet", "features.12"),
    ("squeezenet", "features.7.squeeze_activation"),
]
IN_PLACE_FOLLOWS = [("alexnet", "features.10"), ("resnet18", "layer4.1.bn2"), ("squeezenet", "classifier.1")]


@pytest.fixture(scope="module")
def networks():
    """Each network once, float64, eval: a test that a library may change it in copies it."""
    made = {}

    def get(name):
        if name not in made:
            rng = torch.Generator().manual_seed(0)
            model = NETWORKS[name]()
            if name == "alexnet":
                for place, size in ((1, (9216, 32)), (4, (32, 32)), (6, (32, CLASSES))):  # wide ones cost seconds
                    model.classifier[place] = nn.Linear(*size)
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.running_mean.normal_(0, 0.1, generator=rng)
                    module.running_var.uniform_(0.5, 2, generator=rng)
                elif isinstance(module, (nn.Conv2d, nn.Linear)):
                    nn.init.normal_(module.weight, 0, (2 / module.weight[0].numel()) ** 0.5, generator=rng)
                    if module.bias is not None:
                        nn.init.normal_(module.bias, 0, 0.1, generator=rng)
            made[name] = model.double().eval()
        return made[name]

    return get


@pytest.fixture
def batch():
    return torch.randn(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def error(got, wanted, scale=None):
    """The largest difference, relative to the largest value of `scale`, which is the reference if it is not given."""
    assert got.shape == wanted.shape
    assert (wanted if scale is None else scale).abs().max() > 0
    return ((got - wanted).abs().max() / (wanted if scale is None else scale).abs().max()).item()


# -- What each library answers, as a raw map (N, h, w) or a gradient (N, C, H, W) --


def ask_captum(model, layer, batch, target=TARGET):
    return captum_attr.LayerGradCam(model, model.get_submodule(layer)).attribute(batch, target)[:, 0]


def ask_torch_cam(model, layer, batch, target=TARGET):
    with torchcam_methods.GradCAM(model, layer) as extractor:
        return extractor(target, model(batch), normalized=False)[0]


def ask_pytorch_grad_cam(model, layer, batch, target=TARGET):
    targets = [pytorch_grad_cam.utils.model_targets.ClassifierOutputTarget(target)] * len(batch)
    with pytorch_grad_cam.GradCAM(model, [model.get_submodule(layer)]) as extractor:
        extractor(batch, targets)
        kept = extractor.activations_and_grads
        activations, gradients = kept.activations[0].numpy(), kept.gradients[0].numpy()
        return torch.from_numpy(extractor.get_cam_image(batch, None, targets, activations, gradients))


def find_live_targets(model, batch, count=3):
    """The classes with the largest logits: with random weights some classes of SqueezeNet are 0 behind their ReLU."""
    with torch.no_grad():
        return model(batch).amin(0).topk(count).indices.tolist()


def clear_gradients(model):
    for parameter in model.parameters():
        parameter.grad = None


GRAD_CAMS = {"captum": ask_captum, "torch-cam": ask_torch_cam, "pytorch-grad-cam": ask_pytorch_grad_cam}


# -- Where they are right --


@pytest.mark.parametrize(("name", "layer"), RIGHT)
@pytest.mark.parametrize("library", GRAD_CAMS)
def test_grad_cam_is_equal(networks, batch, name, layer, library):
    model = networks(name)
    targets = find_live_targets(model, batch)
    with explain(model, batch, layer) as run:
        several = run.grad_cams(targets)
    for target, raw in zip(targets, several, strict=True):
        wanted = GRAD_CAMS[library](model, layer, batch, target)
        got = relu(raw) if library == "torch-cam" else raw  # which applies the ReLU itself
        assert error(got, wanted, raw) < EQUAL
        assert error(grad_cam(model, batch, layer, target), raw) < EQUAL
    clear_gradients(model)


@pytest.mark.parametrize("name", ["alexnet", "resnet18", "resnet34", "squeezenet"])
def test_gradients_at_the_input_are_equal(networks, batch, name):
    """captum's hooks do see nn.ReLU, in place and reused; its Guided Backprop is right on these four."""
    model = networks(name)
    plain = captum_attr.Saliency(model).attribute(batch.clone(), TARGET, abs=False)
    assert error(input_gradient(model, batch, TARGET), plain) < EQUAL
    for ours, theirs in ((guided_backprop, captum_attr.GuidedBackprop), (deconvnet, captum_attr.Deconvolution)):
        assert error(ours(model, batch, TARGET), theirs(model).attribute(batch.clone(), TARGET)) < EQUAL


@pytest.mark.parametrize("name", ["alexnet", "resnet18", "squeezenet"])
def test_guided_backprop_is_equal_to_that_of_pytorch_grad_cam(networks, batch, name):
    model = networks(name)
    extractor = pytorch_grad_cam.GuidedBackpropReLUModel(copy.deepcopy(model))  # it exchanges the ReLUs for good
    wanted = extractor(batch[:1].clone(), TARGET).transpose(2, 0, 1)
    assert error(guided_backprop(model, batch[:1], TARGET)[0], torch.from_numpy(wanted.copy())) < EQUAL


@pytest.mark.parametrize(("name", "layer"), [("alexnet", "features.12"), ("resnet18", "layer4")])
def test_guided_grad_cam_is_equal(networks, batch, name, layer):
    model = networks(name)
    theirs = captum_attr.GuidedGradCam(model, model.get_submodule(layer))
    for target in find_live_targets(model, batch):
        wanted = theirs.attribute(batch.clone(), target, interpolate_mode="bilinear")
        assert error(guided_grad_cam(model, batch, layer, target), wanted.detach()) < EQUAL


@pytest.mark.parametrize(("name", "layer", "head"), [("resnet18", "layer4", "fc"), ("resnet34", "layer4", "fc")])
def test_cam_is_equal(networks, batch, name, layer, head):
    model = networks(name)
    with torchcam_methods.CAM(model, layer, head) as extractor, torch.no_grad():
        model(batch)
        wanted = extractor(TARGET, normalized=False)[0]
    assert error(cam(model, batch, TARGET), wanted) < EQUAL
    assert error(class_maps(model, batch)[:, TARGET], wanted) < EQUAL


def test_upsampling_is_equal(networks, batch):
    model = networks("resnet18")
    maps = grad_cam(model, batch, "layer3", TARGET)
    wanted = captum_attr.LayerAttribution.interpolate(maps[:, None], (SIZE, SIZE), "bilinear")[:, 0]
    assert error(upsample(maps, (SIZE, SIZE)), wanted) < EQUAL


# -- Where they are not --


def grad_cam_by_hand(model, layer, batch):
    """The plain chain, with a graph of all of it: the layer's output copied, and the gradient of the copy."""
    kept = []

    def hand_a_copy_on(module, args, output):
        kept.append(output.clone())
        return kept[0].clone()

    handle = model.get_submodule(layer).register_forward_hook(hand_a_copy_on)
    try:
        score = model(batch)[:, TARGET].sum()
    finally:
        handle.remove()
    weights = torch.autograd.grad(score, kept[0])[0].mean((2, 3), keepdim=True)
    return (weights * kept[0].detach()).sum(1)


@pytest.mark.parametrize(("name", "layer"), IN_PLACE_FOLLOWS)
def test_torch_cam_and_pytorch_grad_cam_are_wrong_before_an_operation_in_place(networks, batch, name, layer, capsys):
    """They keep the layer's own memory, which the next operation overwrites; captum copies it."""
    model = networks(name)
    wanted = grad_cam_by_hand(model, layer, batch)
    got = grad_cam(model, batch, layer, TARGET)
    assert error(got, wanted) < 1e-12
    assert error(ask_captum(model, layer, batch), wanted) < 1e-12
    errors = {
        "torch-cam": error(ask_torch_cam(model, layer, batch), relu(wanted), wanted),
        "pytorch-grad-cam": error(ask_pytorch_grad_cam(model, layer, batch), wanted),
    }
    clear_gradients(model)
    report(capsys, f"Grad-CAM, {name} {layer}", errors)
    assert min(errors.values()) > 0.1, errors


class GuidedByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, deconvnet):
        ctx.deconvnet = deconvnet
        ctx.save_for_backward(x)
        return torch.where(x > 0, x, 0)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient * (gradient > 0)
        return gradient if ctx.deconvnet else gradient * (ctx.saved_tensors[0] > 0), None


@pytest.mark.parametrize("name", ["googlenet", "densenet"])
def test_captum_and_pytorch_grad_cam_miss_functional_relus(networks, batch, name, monkeypatch, capsys):
    """Their rules hang on nn.ReLU modules: GoogLeNet has none (all F.relu), DenseNet ends with one F.relu."""
    model, errors = networks(name), {}
    for ours, theirs in ((guided_backprop, captum_attr.GuidedBackprop), (deconvnet, captum_attr.Deconvolution)):
        leaf = batch.clone().requires_grad_()
        with monkeypatch.context() as patch:
            patch.setattr(F, "relu", lambda x, inplace=False, rule=ours is deconvnet: GuidedByHand.apply(x, rule))
            wanted = torch.autograd.grad(model(leaf)[:, TARGET].sum(), leaf)[0]
        assert error(ours(model, batch, TARGET), wanted) < 1e-10
        errors[f"captum {ours.__name__}"] = error(theirs(model).attribute(batch.clone(), TARGET), wanted)
        if ours is guided_backprop:
            extractor = pytorch_grad_cam.GuidedBackpropReLUModel(copy.deepcopy(model))
            image = torch.from_numpy(extractor(batch[:1].clone(), TARGET).transpose(2, 0, 1).copy())
            errors["pytorch-grad-cam guided_backprop"] = error(image, wanted[0])
    report(capsys, name, errors)
    assert min(errors.values()) > 0.1, errors
    if name == "googlenet":  # what captum returns for it is the plain gradient, in disguise
        plain = input_gradient(model, batch, TARGET)
        assert error(captum_attr.GuidedBackprop(model).attribute(batch.clone(), TARGET), plain) < EQUAL


def report(capsys, title, errors):
    with capsys.disabled():
        print(
            f"\n  {title}: " + ", ".join(f"{name} {100 * value:.0f} % off" for name, value in errors.items()), end=" "
        )


# -- What they leave behind --


def test_ours_leaves_no_gradient_where_pytorch_grad_cam_does(networks, batch):
    model = networks("resnet18")
    clear_gradients(model)
    explain(model, batch, "layer4").grad_cams([0, 1])
    guided_grad_cam(model, batch, "layer4")
    assert all(parameter.grad is None for parameter in model.parameters())
    ask_pytorch_grad_cam(model, "layer4", batch)
    assert any(parameter.grad is not None for parameter in model.parameters())
    clear_gradients(model)
