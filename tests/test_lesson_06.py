"""What lesson 06 says about the numbers that its committed notebook shows, and about networks of torchvision."""

import pytest
import torch
from lesson_pages import LessonPage, why
from torch import nn
from torchvision import models

from course_utils.exercises.engine import predictions_of
from course_utils.vision.networks import load_classifier
from course_utils.vision.real import REAL

PAGE = LessonPage("06_guided_backprop")


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
    assert PAGE.shows(line)
    assert words in " ".join(why(asked.name) for asked in predictions_of(6))


def test_the_counts_of_relus_in_the_words():
    def count(model, kind=nn.ReLU):
        return sum(isinstance(module, kind) for module in model.modules())

    assert "GoogLeNet and Inception v3 have no `nn.ReLU` at all, and DenseNet has 120" in PAGE.prose
    with torch.device("meta"):  # nobody needs the weights
        networks = models.densenet121(), models.googlenet(init_weights=False), models.inception_v3(init_weights=False)
    assert [count(each) for each in networks] == [120, 0, 0]
    assert count(load_classifier(REAL).model, nn.ReLU6) == 33
