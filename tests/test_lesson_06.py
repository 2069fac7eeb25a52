"""What lesson 06 teaches, found by a second method, and that its committed notebook shows just these values."""

import pytest
from lesson_pages import LessonPage, why
from torch import nn
from torchvision import models

from course_utils.exercises.engine import predictions_of
from course_utils.vision.networks import load_classifier
from course_utils.vision.real import REAL

PAGE = LessonPage("06_guided_backprop")
shows = PAGE.shows


def test_the_pencil_example_is_shown_for_every_kind_of_relu():
    assert shows("1 5 2 2 2 2 2 1 -3 -3 0 0 3 0 4 0 4 0"), "unit, f, R, and what three rules let through"
    assert shows("backprop: [-7.0, 7.0] deconvnet: [6.0, -4.0] guided: [2.0, 4.0]")
    for kind in ("nn.ReLU", "in place", "F.relu", "reused"):
        assert shows(f"{kind} guided [2.0, 4.0], after the block [-7.0, 7.0]")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gradient 0.73 -0.39", "**cosine** of the two gradients is -0.39"),
        ("deconvnet 0.51 0.67", "and the deconvnet 0.51"),
        ("guided 0.82 0.38 0.69", "the highest, 0.69"),
        ("classifier 0.54 0.39 0.89 0.58", "0.89 with the original one"),
        ("classifier 0.54 0.39 0.89 0.58", "the gradient keeps 0.54 and Grad-CAM 0.58"),
        ("classifier, by sign 0.2 0.7 0.9 0.2", "both keep 0.2."),
        ("features.8 0.33 0.37 0.63", "0.63 when four layers of six are random"),
        ("guided 1.0 1.0 1.0", "1.0 for all three photographs"),
        ("blocks.6.0 (320, 7, 7) cosine 0.6", "a cosine of 0.6"),
        ("blocks.5.1 (192, 7, 7) cosine 1.0", "at `blocks.5.1` it is 1.0 already"),
    ],
)
def test_what_the_explanations_say_was_measured(line, words):
    assert shows(line)
    assert words in " ".join(why(asked.name) for asked in predictions_of(6))


@pytest.mark.slow
def test_the_counts_of_relus_in_the_words():
    def count(model, kind=nn.ReLU):
        return sum(isinstance(module, kind) for module in model.modules())

    assert "GoogLeNet and Inception v3 have no `nn.ReLU` at all, and DenseNet has 120" in PAGE.prose
    assert count(models.densenet121()) == 120
    assert count(models.googlenet(init_weights=False)) == count(models.inception_v3(init_weights=False)) == 0
    assert count(load_classifier(REAL).model, nn.ReLU6) == 33
