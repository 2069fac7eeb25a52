"""Any network, any picture: what the last sections of lessons 05 to 07 show."""

import io

import pytest
import torch
from PIL import Image
from torch import nn

from course_utils.hooks.inventory import count_hooks
from course_utils.root import CourseError
from course_utils.scenes.scene import KINDS, scene
from course_utils.vision import own as own_module
from course_utils.vision.networks import Classifier
from course_utils.vision.own import (
    look_at,
    show_grad_cams,
    show_gradients,
    show_strongest_maps,
)
from course_utils.vision.pictures import PictureError

DRAWERS = (show_strongest_maps, show_gradients, show_grad_cams)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """No weights of torchvision are here, whatever the user's cache has."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def own():
    return look_at("picture_net", scene("cat", "dog", seed=6).image)


def test_the_courses_network_names_both_things(own):
    assert {name for _, name, _ in own_module.best[:2]} == {"cat", "dog"}
    assert [KINDS[number] for number, _, _ in own_module.best] == [name for _, name, _ in own_module.best]
    assert str(own).splitlines()[0] == "picture_net was trained on the picture world of the course."
    assert "It says: cat 100%, dog 100%, tree 1%." in str(own)
    assert own_module.maps.shape == (96, 14, 14)
    assert str(own).endswith(f"Layer {own_module.layer}: 96 maps of 14 x 14.")


def test_what_is_shown_is_what_the_network_saw(own):
    assert torch.allclose(own_module.shown, scene("cat", "dog", seed=6).image, atol=0.01)
    assert own_module.batch.shape == (1, 3, 112, 112)


@pytest.mark.parametrize("draw", DRAWERS)
def test_each_picture_has_words_and_leaves_no_hook(own, draw):
    picture = draw(own)
    assert picture.alt.endswith(".")
    assert min(Image.open(io.BytesIO(picture.data)).size) > 200
    assert count_hooks(own_module.network.model).total() == 0
    assert all(parameter.grad is None for parameter in own_module.network.model.parameters())


def test_a_file_of_any_size_and_a_network_without_weights(tmp_path):
    Image.new("RGB", (300, 90), "orange").save(tmp_path / "photo.jpg")
    found = look_at("squeezenet1_1", tmp_path / "photo.jpg")
    lines = str(found).splitlines()
    assert lines[0] == "squeezenet1_1 has random weights: trained ones are not in torch's cache."
    assert lines[1].startswith("It has learned nothing, so its answers are chance: ")
    assert "run load_classifier('squeezenet1_1') once" in lines[-1]
    assert found.layer == "features", "the layer behind has a map for each class: the answer itself"
    assert found.shown.shape == (3, 224, 224)
    for draw in DRAWERS:
        assert draw(found).alt


def test_a_layer_of_ones_own():
    image = scene("cat", "dog", seed=6).image
    assert look_at("picture_net", image, "features.2").maps.shape == (24, 56, 56)
    with pytest.raises(CourseError, match=r"features\.99"):
        look_at("picture_net", image, "features.99")
    with pytest.raises(CourseError, match=r"layer 'classifier' of picture_net returns \(1, 10\), no maps"):
        look_at("picture_net", image, "classifier")


def test_what_does_not_exist_is_said(tmp_path):
    with pytest.raises(ValueError, match="there is no network 'resnet43'; did you mean resnet34"):
        look_at("resnet43", scene("cat", seed=1).image)
    with pytest.raises(PictureError, match=r"none\.jpg cannot be read"):
        look_at("picture_net", tmp_path / "none.jpg")


class Patches(nn.Module):
    """Like a vision transformer: maps in the first layer, and a row of numbers from then on."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 6, 28, stride=28), nn.Linear(6, 10)

    def forward(self, images):
        return self.head(nn.functional.silu(self.patches(images)).mean((2, 3)))


class Smooth(nn.Module):
    """Two convolutions with SiLU, and no ReLU anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 5, stride=4), nn.SiLU(), nn.Conv2d(6, 7, 3), nn.SiLU())
        self.head = nn.Linear(7, 10)

    def forward(self, images):
        return self.head(self.body(images).mean((2, 3)))


@pytest.fixture
def use_model(monkeypatch):
    def use(model):
        known = own_module.load_classifier("picture_net")
        found = Classifier("mine", model.eval(), known.transform, KINDS, True, True, "It is made up.")
        monkeypatch.setattr(own_module, "load_classifier", lambda *_, **__: found)
        return scene("cat", seed=1).image

    return use


def test_a_network_that_has_maps_in_its_first_layer_only_is_refused(use_model):
    with pytest.raises(CourseError, match="mine makes maps only in its first layer"):
        look_at("mine", use_model(Patches()))


def test_a_network_without_relu_has_no_guided_gradient_and_the_title_says_so(use_model):
    found = look_at("mine", use_model(Smooth()))
    assert found.layer == "body"
    assert show_gradients(found).alt.startswith("The picture, gradient: ")
    assert show_grad_cams(found).alt.startswith("Grad-CAM of mine, layer body")
