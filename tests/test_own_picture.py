"""Any network, any picture: what the last sections of lessons 05 to 07 show."""

from collections import OrderedDict

import numpy as np
import pytest
from PIL import Image
from torch import nn
from torchvision.transforms import v2
from torchvision.utils import save_image

from course_utils.hooks.inventory import count_hooks
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


def test_the_courses_network_names_both_things_and_every_picture_leaves_no_hook():
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
        assert count_hooks(own.network.model).total() == 0
        assert all(parameter.grad is None for parameter in own.network.model.parameters())


@pytest.mark.slow
def test_a_file_of_any_size_and_a_network_without_weights(tmp_path):
    Image.new("RGB", (300, 90), "orange").save(tmp_path / "photo.jpg")
    found = look_at("squeezenet1_1", tmp_path / "photo.jpg")
    first, second, *_, last = str(found).splitlines()
    assert first == "squeezenet1_1 has random weights: trained ones are not in torch's cache."
    assert second.startswith("It has learned nothing, so its answers are chance: ")
    assert "run load_classifier('squeezenet1_1') once" in last
    assert found.layer == "features", "the layer behind has a map for each class: the answer itself"
    assert found.shown.shape == (3, 224, 224)
    assert all(draw(found).alt for draw in (show_strongest_maps, show_gradients, show_grad_cams))


@pytest.mark.slow
@pytest.mark.parametrize("network", ["", "picture_net", "picture_net_misled"])
def test_a_file_goes_to_the_real_network_and_never_to_the_courses(tmp_path, network):
    save_image(photograph("chelsea"), tmp_path / "cat.png")
    own = look_at(network, tmp_path / "cat.png", chosen="tiger cat rather than tabby")
    assert own.network.name == REAL
    assert str(own).splitlines()[1].startswith("It says: Egyptian cat ")
    assert "the picture, why tiger cat? (3" in show_grad_cams(own).alt
    assert ", why tabby? (1" in show_grad_cams(own).alt
    assert show_grad_cams(own).alt.endswith(", why tiger cat rather than tabby?.")
    assert "matters for tiger cat rather than tabby" in show_gradients(own).alt
    with pytest.raises(CourseError, match="has no class 'tiger kat' among its 1000; did you mean tiger cat"):
        look_at(network, tmp_path / "cat.png", chosen="tiger kat")


def test_a_layer_of_ones_own():
    assert look_at("picture_net", IMAGE, "features.2").maps.shape == (24, 56, 56)
    with pytest.raises(CourseError, match=r"features\.99"):
        look_at("picture_net", IMAGE, "features.99")
    with pytest.raises(CourseError, match=r"layer 'classifier' of picture_net returns no maps"):
        look_at("picture_net", IMAGE, "classifier")


@pytest.fixture
def show_to(monkeypatch):
    """Make a network of `body`, which `look_at` then asks about a picture."""

    def show_to(body, image=IMAGE, transform=lambda image: image):
        model = nn.Sequential(OrderedDict(body=body, mean=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten()))
        model.append(nn.Linear(7, 10)).eval()
        found = Classifier("mine", model, transform, KINDS, True, True, "It is made up.")
        monkeypatch.setattr(own_module, "load_classifier", lambda *_, **__: found)
        return look_at("mine", image)

    return show_to


def test_a_network_needs_maps_behind_its_first_layer_and_a_relu_for_guided_gradients(show_to):
    with pytest.raises(CourseError, match="mine makes maps only in its first layer"):
        show_to(nn.Conv2d(3, 7, 28, stride=28))  # as in a vision transformer
    found = show_to(nn.Sequential(nn.Conv2d(3, 6, 5, stride=4), nn.SiLU(), nn.Conv2d(6, 7, 3), nn.SiLU()))
    assert found.layer == "body"
    assert show_gradients(found).alt.startswith("The picture, gradient: ")
    assert show_grad_cams(found).alt.startswith("Grad-CAM of mine, layer body")


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "1", "P", "CMYK", "I;16"])
@pytest.mark.parametrize("size", [(8, 8), (300, 200), (30, 75), (16, 80), (200, 10)])
def test_a_picture_keeps_its_proportions_under_every_map(show_to, monkeypatch, tmp_path, mode, size):
    """A white square on a black ground is a square in what is drawn, of a photo that was held sideways too."""
    image, middle, half = Image.new("L", size), [side // 2 for side in size], min(size) // 4
    image.paste(255, [side - half for side in middle] + [side + half for side in middle])
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn, by which the picture is shown
    image = Image.fromarray(np.uint16(image) * 257) if mode == "I;16" else image.convert(mode)
    image.save(tmp_path / "photo", "JPEG" if mode == "CMYK" else "PNG", exif=exif)
    body = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(), nn.Conv2d(6, 7, 3, 2, 1), nn.ReLU())
    own = show_to(body, tmp_path / "photo", v2.Resize(32, antialias=True))
    wide, high = (min(side, 4 * min(size)) for side in reversed(size))
    assert own.cut == (max(size) > 4 * min(size))
    assert own.cut == str(own).endswith("\nThe network sees only the middle of the picture.")
    monkeypatch.setattr(own_module.pictures, "show", lambda sheet, **_: sheet)
    height, width = (round(224 * side / min(size)) for side in (high, wide))
    for draw, count in ((show_strongest_maps, 7), (show_gradients, 3), (show_grad_cams, 4)):
        sheet = draw(own)
        columns = (sheet.shape[2] - 4) // (width + 4)
        assert (count % columns, sheet.shape[2]) == (0, columns * (width + 4) + 4)
        if count < 7:  # the first tile is the picture as it is
            tile = sheet[0, 4 : 4 + height, 4 : 4 + width] > 0.5
            lengths = [tile.any(side).sum().item() for side in (0, 1)]
            assert lengths == pytest.approx([224 * 2 * half / min(size)] * 2, abs=6)
