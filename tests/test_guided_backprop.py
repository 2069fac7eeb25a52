"""The explorer of Guided Backprop: gradients as pictures, the unit to start at, and what each control changes."""

import pytest
import torch
from panels import control, pixels_of, read_png

from course_utils.explorers import GuidedBackprop, guided_backprop
from course_utils.explorers.guided_backprop import (
    CLASS,
    GUIDED_PICTURES,
    NORMALISATIONS,
    RULES,
    STARTS,
    draw_guided,
    find_unit,
    show_sign,
    show_strength,
)
from course_utils.hooks.inventory import count_hooks
from course_utils.root import CourseError
from course_utils.scenes.scene import KINDS, SIZE, scene
from course_utils.vision.networks import load_picture_net
from course_utils.vision.pictures import png, show_fixed


def test_normalisations_by_hand():
    gradients = torch.zeros(3, 1, 2)
    gradients[:, 0, 1] = torch.tensor([0.1, -0.2, 0.0])
    assert show_fixed(gradients)[:, 0].tolist() == [[0.5, pytest.approx(0.65)], [0.5, pytest.approx(0.2)], [0.5, 0.5]]
    signs = show_sign(gradients)
    assert signs[:, 0, 0].tolist() == [0.5, 0.5, 0.5]
    assert signs[0, 0, 1] > 0.5 > signs[1, 0, 1]
    assert torch.allclose(show_sign(10 * gradients), signs)
    assert show_strength(gradients)[:, 0, 0].tolist() == [0, 0, 0]
    assert show_strength(gradients)[:, 0, 1].tolist() == [1, 1, 1]


@pytest.mark.parametrize("show", NORMALISATIONS.values(), ids=list(NORMALISATIONS))
def test_a_gradient_of_zeros_is_a_picture(show):
    found = show(torch.zeros(3, 4, 4))
    assert found.shape == (3, 4, 4)
    assert len(found.unique()) == 1


def test_a_gradient_of_zeros_is_said(monkeypatch):
    monkeypatch.setattr(guided_backprop, "_find_gradient", lambda *_: (torch.zeros(3, SIZE, SIZE), "from here"))
    view = draw_guided(1, "cat", "features.2", "guided", "strength")
    assert view.sentence == "Guided from here: the gradient is 0 everywhere."


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("rule", RULES)
def test_every_start_and_rule(start, rule):
    view = draw_guided(2, "dog", start, rule, "strength")
    assert view.sentence.startswith(rule.capitalize())
    assert start in view.sentence or start == CLASS
    assert f"the {rule} map for the dog, from {start}" in view.alt
    assert 0 <= view.picture.min() <= view.picture.max() <= 1


def test_the_unit_is_the_one_that_counts_most():
    """Silencing it lowers the logit; the gradient says by how much, as the rest of the network is linear from there."""
    model, picture = load_picture_net(), scene("cat", "boat", seed=3).image[None]
    channel, row, column = find_unit(model, picture, "features.16", KINDS.index("cat"))
    drops = []
    for silenced in [(channel, row, column), (0, 0, 0), (5, 7, 7), (channel, row, column - 3)]:

        def silence(module, args, output, place=silenced):
            output = output.clone()
            output[(0, *place)] = 0
            return output

        with torch.no_grad(), model.features[16].register_forward_hook(silence):
            drops.append(-model(picture)[0, KINDS.index("cat")].item())
    assert drops[0] == max(drops)
    assert sum(count_hooks(model).values()) == 0


def test_a_unit_sees_no_more_than_its_receptive_field():
    sheet = draw_guided(1, "cat", "features.2", "gradient", "strength").picture
    lit = (sheet[:, 4:340, 344:680].amax(0) > 0.02).nonzero()  # the right half, without the paper around it
    assert lit.numel()
    extent = (lit.amax(0) - lit.amin(0) + 1).tolist()
    assert max(extent) <= 3 * (7 + 2), "a kernel of 7 pixels, drawn three times as large and smoothed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"picture": 0}, f"Picture is a whole number from 1 to {len(GUIDED_PICTURES)}, got 0"),
        ({"kind": "hause"}, "Class: there is no 'hause' here; did you mean 'house'"),
        ({"start": "features.3"}, "Start at: there is no 'features.3' here; did you mean"),
        ({"rule": "backprop"}, "Rule: there is no 'backprop' here.*gradient, deconvnet, guided"),
        ({"normalisation": "none"}, "Shown as: there is no 'none' here"),
    ],
)
def test_choices_that_do_not_exist(change, words):
    with pytest.raises(CourseError, match=words):
        GuidedBackprop(**change)


def test_every_control_changes_picture_and_sentence():
    explorer, state = GuidedBackprop(), [1, "cat", CLASS, "guided", "mean 0.5, std 0.1"]
    for label, place, value in (
        ("Picture", 0, 2),
        ("Class", 1, "dog"),
        ("Start at", 2, "features.10"),
        ("Rule", 3, "gradient"),
        ("Shown as", 4, "zero is grey"),
    ):
        before = pixels_of(explorer)
        control(explorer, label).value = state[place] = value
        view = draw_guided(*state)
        assert explorer.sentence == view.sentence
        assert (pixels_of(explorer) == read_png(png(view.picture))).all()
        assert (pixels_of(explorer) != before).any()


def test_without_a_kernel_there_are_a_picture_and_a_sentence():
    data, metadata = GuidedBackprop(picture=3, kind="fish")._repr_mimebundle_()
    assert data["text/plain"].startswith("Guided from the class fish")
    assert metadata["image/png"]["alt"].startswith("A fish and a tree")
