"""Any network, any picture: what the last sections of lessons 05 to 07 show."""

import re
from collections import OrderedDict
from dataclasses import replace

import pytest
from PIL import Image
from torch import nn
from torchvision.transforms import v2
from torchvision.utils import save_image

from course_utils.lessons import own as own_module
from course_utils.lessons.own import look_at, show_grad_cams, show_gradients, show_strongest_maps
from course_utils.root import CourseError
from course_utils.scenes.scene import KINDS, scene
from course_utils.vision.networks import Classifier
from course_utils.vision.pictures import read_picture
from course_utils.vision.real import REAL, photograph

IMAGE = scene("cat", "dog", seed=6).image


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """No weights of torchvision are here, whatever the user's cache has."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))


def test_the_courses_network_names_both_things_and_every_picture_has_words():
    own = look_at("picture_net", IMAGE)
    assert [name for name, _ in own.best][:3] == ["cat", "dog", "tree"]
    assert str(own).splitlines() == [
        "picture_net was trained on the picture world of the course.",
        "It says: cat 100%, dog 100%, " + ", ".join(f"{name} {share:.0%}" for name, share in own.best[2:]) + ".",
        f"Layer {own.layer}: 96 maps of 14 x 14.",
    ]
    for draw in (show_strongest_maps, show_gradients, show_grad_cams):
        picture = draw(own)
        assert picture.alt.endswith(".")
        assert min(read_picture(picture.data).shape[1:]) > 200


@pytest.mark.slow
def test_a_network_without_weights_says_so_and_sees_the_square_in_the_middle():
    found = look_at("squeezenet1_1", photograph("chelsea")[:, :90])
    assert found.layer == "features", "the layer behind has a map for each class: the answer itself"
    assert (found.shown.shape, found.cut) == ((3, 224, 224), True)
    told = "random weights: trained .* are chance: .* sees only the middle .* run load_classifier.'squeezenet1_1'. once"
    assert re.search(told, str(found), re.DOTALL)


@pytest.mark.slow
def test_a_file_goes_to_the_real_network_and_never_to_the_courses(tmp_path):
    save_image(photograph("chelsea"), tmp_path / "cat.png")
    for network in ("", "picture_net", "picture_net_misled"):
        own = look_at(network, tmp_path / "cat.png", chosen="tiger cat rather than tabby")
        assert own.network.name == REAL
    assert str(own).splitlines()[1].startswith("It says: Egyptian cat ")
    assert "the picture, why tiger cat? (3" in show_grad_cams(own).alt
    assert ", why tabby? (1" in show_grad_cams(own).alt
    assert show_grad_cams(own).alt.endswith(", why tiger cat rather than tabby?.")
    assert "matters for tiger cat rather than tabby" in show_gradients(own).alt
    with pytest.raises(CourseError, match=r"knows 1000 classes: there is no 'tiger kat'; did you mean 'tiger cat'"):
        look_at("", tmp_path / "cat.png", chosen="tiger kat")


def test_a_layer_of_ones_own():
    assert look_at("picture_net", IMAGE, "features.2").maps.shape == (24, 56, 56)
    with pytest.raises(CourseError, match=r"features\.99"):
        look_at("picture_net", IMAGE, "features.99")
    with pytest.raises(CourseError, match=r"layer 'classifier' of picture_net returns no maps"):
        look_at("picture_net", IMAGE, "classifier")


def show_to(monkeypatch, body, image=IMAGE, transform=lambda image: image):
    """Ask a network of `body` about a picture, as `look_at` does."""
    model = nn.Sequential(
        OrderedDict(body=body, mean=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), last=nn.Linear(7, 10))
    )
    found = Classifier("mine", model.eval(), transform, KINDS, True, True, "It is made up.")
    monkeypatch.setattr(own_module, "load_classifier", lambda *_, **__: found)
    return look_at("mine", image)


def test_a_network_needs_maps_behind_its_first_layer_and_a_relu_for_guided_gradients(monkeypatch):
    with pytest.raises(CourseError, match="mine makes maps only in its first layer"):
        show_to(monkeypatch, nn.Conv2d(3, 7, 28, stride=28))  # as in a vision transformer
    found = show_to(monkeypatch, nn.Sequential(nn.Conv2d(3, 6, 5, stride=4), nn.SiLU(), nn.Conv2d(6, 7, 3), nn.SiLU()))
    assert found.layer == "body"
    assert show_gradients(found).alt.startswith("The picture, gradient: ")
    assert show_grad_cams(found).alt.startswith("Grad-CAM of mine, layer body")


@pytest.mark.parametrize("size", [(8, 8), (300, 200), (30, 75), (16, 80), (200, 10)])
def test_a_picture_keeps_its_proportions_under_every_map(monkeypatch, tmp_path, size):
    """A white square on a black ground is a square in what is drawn, of a photo that was held sideways too."""
    image, half, exif = Image.new("L", size), min(size) // 4, Image.Exif()
    image.paste(255, [side // 2 - half for side in size] + [side // 2 + half for side in size])
    exif[0x0112] = 6  # a quarter turn, by which the picture is shown
    image.save(tmp_path / "photo", "PNG", exif=exif)
    body = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(), nn.Conv2d(6, 7, 3, 2, 1), nn.ReLU())
    own = show_to(monkeypatch, body, tmp_path / "photo", v2.Resize(32, antialias=True))
    assert own.cut == (max(size) > 4 * min(size)) == ("sees only the middle of the picture" in str(own))
    monkeypatch.setattr(own_module.pictures, "show", lambda sheet, **_: sheet)
    sheets = [draw(own) for draw in (show_strongest_maps, show_gradients, show_grad_cams)]
    height, width = (round(224 * min(side / min(size), 4)) for side in size)
    assert [sheet.shape[2] % (width + 4) for sheet in sheets] == [4] * 3
    for sheet in sheets[1:]:  # which begin with the picture as it is
        tile = sheet[0, 4 : 4 + height, 4 : 4 + width] > 0.5
        assert [tile.any(side).sum().item() for side in (0, 1)] == pytest.approx([448 * half / min(size)] * 2, abs=6)


def test_a_map_of_zeros_says_so_and_a_chosen_class_comes_with_its_share(monkeypatch):
    body = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(), nn.Conv2d(6, 7, 3, 2, 1), nn.ReLU())
    nn.init.zeros_(body[2].weight)
    nn.init.constant_(body[2].bias, -1.0)  # so the last ReLU lets nothing through
    own = show_to(monkeypatch, body)
    assert [show_grad_cams(own).alt.count("zero everywhere"), show_gradients(own).alt.count("zero everywhere")] == [
        3,
        2,
    ]
    assert show_strongest_maps(own).alt.count("zero everywhere") == 7
    asked = replace(own, chosen="cat rather than dog")
    cat, dog = (f"{own.network.model[-1].bias[KINDS.index(name)].sigmoid():.0%}" for name in ("cat", "dog"))
    assert f"You asked about: cat ({cat}), dog ({dog})." in str(asked)
    assert f"matters for cat ({cat})," in show_gradients(replace(own, chosen="cat")).alt
    sees = show_to(
        monkeypatch, nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.Sigmoid(), nn.Conv2d(6, 7, 3, 2, 1), nn.Sigmoid())
    )
    assert "zero everywhere" not in show_strongest_maps(sees).alt
