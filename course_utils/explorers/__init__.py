"""Explorers: small ipywidgets panels over pure functions. Values go in, a picture and a sentence come out.

Show one by making it the last line of a cell: `GradientFlow("two paths", hooks={"a": "times 6"}, step=3)`. By keyboard:
Tab from control to control, arrow keys on sliders and lists, Space for buttons and check boxes.
"""

from course_utils.explorers.case import TheCase
from course_utils.explorers.feature_maps import FeatureMaps
from course_utils.explorers.grad_cam import GradCam
from course_utils.explorers.gradient_flow import GradientFlow
from course_utils.explorers.guided_backprop import GuidedBackprop
from course_utils.explorers.life_of_a_call import LifeOfACall
from course_utils.explorers.logit_lens import LogitLens
from course_utils.explorers.model_hooks import ModelHooks
from course_utils.explorers.patching import Patching

__all__ = [
    "FeatureMaps",
    "GradCam",
    "GradientFlow",
    "GuidedBackprop",
    "LifeOfACall",
    "LogitLens",
    "ModelHooks",
    "Patching",
    "TheCase",
]
