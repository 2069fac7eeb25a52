"""Lesson 06: what it says about networks of torchvision and the real one."""

import torch
from lesson_pages import LessonPage
from torch import nn
from torchvision import models

from course_utils.vision.networks import load_classifier
from course_utils.vision.real import REAL


def test_the_counts_of_relus_in_the_words():
    def count(model, kind=nn.ReLU):
        return sum(isinstance(module, kind) for module in model.modules())

    told = "GoogLeNet and Inception v3 have no `nn.ReLU` at all, and DenseNet has 120"
    assert told in LessonPage("06_guided_backprop").prose
    with torch.device("meta"):  # nobody needs the weights
        networks = models.densenet121(), models.googlenet(init_weights=False), models.inception_v3(init_weights=False)
    assert [count(each) for each in networks] == [120, 0, 0]
    assert count(load_classifier(REAL).model, nn.ReLU6) == 33
