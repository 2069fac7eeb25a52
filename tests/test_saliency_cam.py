"""saliency.py: class activation maps, against Grad-CAM, which they equal up to the number of positions."""

import pytest
import torch
import torch.nn.functional as F
from saliency_nets import Deep, Small, images, of_torchvision, relative, seeded
from torch import nn

from course_utils.root import CourseError
from course_utils.vision.saliency import cam, class_maps, explain, grad_cam

pytestmark = pytest.mark.filterwarnings("error")


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("resnet18", "layer4"),
        ("squeezenet1_1", "classifier.2"),  # no linear layer: the means are the logits
        ("densenet121", ""),  # F.relu in place follows its maps: no module returns what is averaged
    ],
)
def test_cam_equals_grad_cam_on_known_networks_and_averages_to_the_logit(name, layer):
    model, batch = seeded(of_torchvision(name)()), images(2, 64)
    maps = class_maps(model, batch)
    assert relative(cam(model, batch, 3), maps[:, 3]) < 1e-12
    if layer:
        wanted = explain(model, batch, layer).grad_cams(range(7))
        assert relative(maps, wanted.transpose(0, 1) * maps[0, 0].numel()) < 1e-12
    if heads := [module for module in model.modules() if isinstance(module, nn.Linear)]:
        assert relative(maps.mean((2, 3)) + heads[-1].bias, model(batch)) < 1e-12


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
