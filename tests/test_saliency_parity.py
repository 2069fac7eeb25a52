"""saliency.py beside captum, torch-cam and pytorch-grad-cam: equal where they are right, and where they are not.

Everything is float64 with seeded random weights. Where a library is wrong, `saliency` is compared with a
plain reference that uses none of the three, and the library's error is asserted to be there: a test that fails when a
library gets it right documents a bug that is gone.
"""

import copy

import pytest
import torch
from saliency_nets import by_patching, images, relative, seeded
from torch import nn
from torchvision import models

from course_utils.vision.saliency import (
    cam,
    class_maps,
    deconvnet,
    explain,
    grad_cam,
    guided_backprop,
    input_gradient,
    relu,
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
            model = NETWORKS[name]()
            if name == "alexnet":
                for place, size in ((1, (9216, 32)), (4, (32, 32)), (6, (32, CLASSES))):  # wide ones cost seconds
                    model.classifier[place] = nn.Linear(*size)
            made[name] = seeded(model)
        return made[name]

    return get


@pytest.fixture
def batch():
    return images(2, SIZE)


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


def ask_guided(model, batch):
    extractor = pytorch_grad_cam.GuidedBackpropReLUModel(copy.deepcopy(model))  # it exchanges the ReLUs for good
    return torch.from_numpy(extractor(batch[:1].clone(), TARGET).transpose(2, 0, 1).copy())


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
        assert relative(got, wanted, raw) < EQUAL
        assert relative(grad_cam(model, batch, layer, target), raw) < EQUAL
    clear_gradients(model)


@pytest.mark.parametrize("name", ["alexnet", "resnet18", "resnet34", "squeezenet"])
def test_gradients_at_the_input_are_equal(networks, batch, name):
    """captum's hooks do see nn.ReLU, in place and reused; its Guided Backprop is right on these four."""
    model = networks(name)
    plain = captum_attr.Saliency(model).attribute(batch.clone(), TARGET, abs=False)
    assert relative(input_gradient(model, batch, TARGET), plain) < EQUAL
    for ours, theirs in ((guided_backprop, captum_attr.GuidedBackprop), (deconvnet, captum_attr.Deconvolution)):
        assert relative(ours(model, batch, TARGET), theirs(model).attribute(batch.clone(), TARGET)) < EQUAL


@pytest.mark.parametrize("name", ["alexnet", "resnet18", "squeezenet"])
def test_guided_backprop_is_equal_to_that_of_pytorch_grad_cam(networks, batch, name):
    model = networks(name)
    assert relative(guided_backprop(model, batch[:1], TARGET)[0], ask_guided(model, batch)) < EQUAL


@pytest.mark.parametrize("name", ["resnet18", "resnet34"])
def test_cam_is_equal(networks, batch, name):
    model = networks(name)
    with torchcam_methods.CAM(model, "layer4", "fc") as extractor, torch.no_grad():
        model(batch)
        wanted = extractor(TARGET, normalized=False)[0]
    assert relative(cam(model, batch, TARGET), wanted) < EQUAL
    assert relative(class_maps(model, batch)[:, TARGET], wanted) < EQUAL


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
    assert relative(got, wanted) < 1e-12
    assert relative(ask_captum(model, layer, batch), wanted) < 1e-12
    errors = {
        "torch-cam": relative(ask_torch_cam(model, layer, batch), relu(wanted), wanted),
        "pytorch-grad-cam": relative(ask_pytorch_grad_cam(model, layer, batch), wanted),
    }
    clear_gradients(model)
    report(capsys, f"Grad-CAM, {name} {layer}", errors)
    assert min(errors.values()) > 0.1, errors


@pytest.mark.parametrize("name", ["googlenet", "densenet"])
def test_captum_and_pytorch_grad_cam_miss_functional_relus(networks, batch, name, monkeypatch, capsys):
    """Their rules hang on nn.ReLU modules: GoogLeNet has none (all F.relu), DenseNet ends with one F.relu."""
    model, errors = networks(name), {}
    for ours, theirs in ((guided_backprop, captum_attr.GuidedBackprop), (deconvnet, captum_attr.Deconvolution)):
        wanted = by_patching(model, batch, TARGET, monkeypatch, ours is deconvnet)
        assert relative(ours(model, batch, TARGET), wanted) < 1e-10
        got = theirs(model).attribute(batch.clone(), TARGET)
        errors[f"captum {ours.__name__}"] = relative(got, wanted)
        if name == "googlenet":  # what captum returns for it is the plain gradient, in disguise
            assert relative(got, input_gradient(model, batch, TARGET)) < EQUAL
    wanted = by_patching(model, batch[:1], TARGET, monkeypatch)[0]
    errors["pytorch-grad-cam guided_backprop"] = relative(ask_guided(model, batch), wanted)
    report(capsys, name, errors)
    assert min(errors.values()) > 0.1, errors


def report(capsys, title, errors):
    with capsys.disabled():
        off = ", ".join(f"{name} {100 * value:.0f} % off" for name, value in errors.items())
        print(f"\n  {title}: {off}", end=" ")
