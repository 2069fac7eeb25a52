"""saliency.py beside captum, torch-cam and pytorch-grad-cam, in float64 with seeded random weights.

What these get wrong (a layer before an operation in place, ReLUs that are functions) is in `test_saliency_maps`.
"""

import copy
import functools

import pytest
import torch
from saliency_nets import images, of_torchvision, relative, seeded
from torch import nn

from course_utils.lessons import evidence
from course_utils.scenes.scene import KINDS, scene
from course_utils.vision.networks import load_picture_net
from course_utils.vision.saliency import cam, explain, guided_backprop, input_gradient, relu

REASON = "the reference libraries are not installed: pip install -e '.[parity]'"
captum_attr = pytest.importorskip("captum.attr", reason=REASON)
torchcam_methods = pytest.importorskip("torchcam.methods", reason=REASON)
pytorch_grad_cam = pytest.importorskip("pytorch_grad_cam", reason=REASON)

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]

TARGET, EQUAL = 3, 1e-6


@functools.cache
def make(name):
    """Each network once, float64, eval: who lets a library change it copies it."""
    model = of_torchvision(name, 10)()
    if name == "alexnet":
        for place, size in ((1, (9216, 32)), (4, (32, 32)), (6, (32, 10))):  # wide ones cost seconds
            model.classifier[place] = nn.Linear(*size)
    return seeded(model)


BATCH = images(2, 96)


def ask_captum(model, layer, target, batch=BATCH):
    return captum_attr.LayerGradCam(model, model.get_submodule(layer)).attribute(batch, target)[:, 0].detach()


def ask_torch_cam(model, layer, target, batch=BATCH):
    with torchcam_methods.GradCAM(model, layer) as extractor:
        return extractor(target, model(batch), normalized=False)[0]


def ask_pytorch_grad_cam(model, layer, target, batch=BATCH):
    targets = [pytorch_grad_cam.utils.model_targets.ClassifierOutputTarget(target)] * len(batch)
    with pytorch_grad_cam.GradCAM(model, [model.get_submodule(layer)]) as extractor:
        extractor(batch, targets)
        kept = extractor.activations_and_grads
        activations, gradients = kept.activations[0].numpy(), kept.gradients[0].numpy()
        return torch.from_numpy(extractor.get_cam_image(batch, None, targets, activations, gradients))


def ask_guided(model):
    extractor = pytorch_grad_cam.GuidedBackpropReLUModel(copy.deepcopy(model))  # it exchanges the ReLUs for good
    return torch.from_numpy(extractor(BATCH[:1].clone(), TARGET).transpose(2, 0, 1).copy())


GRAD_CAMS = {"captum": ask_captum, "torch-cam": ask_torch_cam, "pytorch-grad-cam": ask_pytorch_grad_cam}


@pytest.mark.parametrize("library", GRAD_CAMS)
def test_lesson_07_has_recorded_what_the_libraries_give(library):
    (recorded,) = [each for each in evidence.LIBRARIES if each.split()[0] == library]
    picture = scene("cat", "dog", seed=6).image[None]
    heat = GRAD_CAMS[library](load_picture_net(), "features.16", KINDS.index("cat"), picture)
    assert (evidence.shrink(heat[0].relu()) - torch.tensor(evidence.LIBRARY_MAP)).abs().max() < 0.6
    four = torch.tensor([[[[1.0, 2.0], [-4.0, 3.0]]]])
    for inplace, maps in evidence.MAPS_BEFORE_A_RELU.items():
        heat = GRAD_CAMS[library](evidence.two_channels(inplace), "0", 0, four)
        assert heat[0].tolist() == maps[recorded]


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("alexnet", "features.12"),
        ("resnet18", "layer4"),
        ("resnet34", "layer3.2"),
        ("squeezenet1_1", "features.12"),
        ("squeezenet1_1", "features.7.squeeze_activation"),
    ],
)
@pytest.mark.parametrize("library", GRAD_CAMS)
def test_grad_cam_is_equal(name, layer, library):
    model = make(name)
    with torch.no_grad():  # with random weights some classes of SqueezeNet are 0 behind their ReLU
        targets = model(BATCH).amin(0).topk(3).indices.tolist()
    for target, raw in zip(targets, explain(model, BATCH, layer).grad_cams(targets), strict=True):
        got = relu(raw) if library == "torch-cam" else raw  # which applies the ReLU itself
        assert relative(got, GRAD_CAMS[library](model, layer, target), raw) < EQUAL


@pytest.mark.parametrize("name", ["alexnet", "resnet18", "squeezenet1_1"])
def test_gradients_at_the_input_are_equal(name):
    model = make(name)
    plain = captum_attr.Saliency(model).attribute(BATCH.clone(), TARGET, abs=False)
    assert relative(input_gradient(model, BATCH, TARGET), plain) < EQUAL
    for rule, theirs in (("guided", captum_attr.GuidedBackprop), ("deconvnet", captum_attr.Deconvolution)):
        ours = explain(model, BATCH, watch_relus=True).gradient(TARGET, relu_rule=rule)
        assert relative(ours, theirs(model).attribute(BATCH.clone(), TARGET)) < EQUAL
    assert relative(guided_backprop(model, BATCH[:1], TARGET)[0], ask_guided(model)) < EQUAL


def test_cam_is_equal():
    with torchcam_methods.CAM(model := make("resnet18"), "layer4", "fc") as extractor, torch.no_grad():
        model(BATCH)
        assert relative(cam(model, BATCH, TARGET), extractor(TARGET, normalized=False)[0]) < EQUAL
