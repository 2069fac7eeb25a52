"""The explorer of Guided Backprop: gradients as pictures, and the unit to start at."""

import pytest
import torch
from panels import control

from course_utils.explorers import GuidedBackprop, guided_backprop
from course_utils.explorers.guided_backprop import CLASS, NORMALISATIONS, RULES, STARTS, draw_guided, find_unit
from course_utils.explorers.panel import name_place
from course_utils.scenes.scene import KINDS, SIZE, scene
from course_utils.vision import saliency
from course_utils.vision.networks import load_classifier, load_picture_net
from course_utils.vision.pictures import show_fixed
from course_utils.vision.real import REAL, photograph


def test_normalisations_by_hand():
    gradients = torch.zeros(3, 1, 2)
    gradients[:, 0, 1] = torch.tensor([0.1, -0.2, 0.0])
    assert show_fixed(gradients)[:, 0].tolist() == [[0.5, pytest.approx(0.65)], [0.5, pytest.approx(0.2)], [0.5, 0.5]]
    signs = guided_backprop.show_sign(gradients)
    assert signs[:, 0, 0].tolist() == [0.5, 0.5, 0.5]
    assert signs[0, 0, 1] > 0.5 > signs[1, 0, 1]
    assert torch.allclose(guided_backprop.show_sign(10 * gradients), signs)
    assert guided_backprop.show_strength(gradients)[:, 0].T.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_a_gradient_of_zeros_is_said(monkeypatch):
    monkeypatch.setattr(guided_backprop, "find_gradient", lambda *_: (torch.zeros(3, SIZE, SIZE), "from here"))
    for start in ("features.2", CLASS):
        view = draw_guided(1, "cat", start, "guided", "strength")
        assert view.sentence == "Guided from here: the gradient is 0 everywhere."
    found = [show(torch.zeros(3, 4, 4)) for show in NORMALISATIONS.values()]
    assert [(each.shape, len(each.unique())) for each in found] == [((3, 4, 4), 1)] * 4


@pytest.mark.parametrize("start", STARTS[0])
@pytest.mark.parametrize("rule", RULES)
def test_every_start_and_rule(start, rule):
    view = draw_guided(3, "fish", start, rule, "strength")
    from_class = start == CLASS
    assert view.sentence.startswith(f"{rule.capitalize()} from {'the class fish (prob' if from_class else 'channel '}")
    assert from_class or f" of {start}, row " in view.sentence
    assert view.alt.startswith("A fish and a tree")
    place = name_place(guided_backprop.find_gradient(3, "fish", start, rule)[0].abs().sum(0))
    assert f"; beside it, the {rule} map for the fish, from {start}, is strongest {place}." in view.alt
    assert 0 <= view.picture.min() <= view.picture.max() <= 1


def test_the_unit_is_the_one_that_counts_most():
    """The network is linear from there on: a unit adds to the logit its output times the weight of its channel."""
    model, picture, cat = load_picture_net(), scene("cat", "boat", seed=3).image[None], KINDS.index("cat")
    with torch.no_grad():
        counts = model.features((picture - 0.5) / 0.25)[0] * model.classifier.weight[cat][:, None, None]
    assert counts[find_unit(model, picture, "features.16", cat)] == counts.max() > 0


def test_a_unit_sees_no_more_than_its_receptive_field():
    sheet = draw_guided(1, "cat", "features.2", "gradient", "strength").picture
    lit = (sheet[:, 4:340, 344:680].amax(0) > 0.02).nonzero()  # the right half, without the paper around it
    assert lit.numel()
    extent = (lit.amax(0) - lit.amin(0) + 1).tolist()
    assert max(extent) <= 3 * (7 + 2), "a kernel of 7 pixels, drawn three times as large and smoothed"


@pytest.mark.slow
@pytest.mark.parametrize("start", ["bn2", CLASS])
def test_a_photograph_is_for_the_real_network(start):
    network, chelsea = load_classifier(REAL), photograph("chelsea")
    explorer = GuidedBackprop("chelsea", start=start)
    assert control(explorer, "Picture").layout.display == "none"
    gradient, words = guided_backprop.find_gradient(explorer.values["own"], "Egyptian cat", start, "guided")
    assert f"plastic bag 0%. Guided {words}. The values go from " in explorer.sentence
    if start == CLASS:
        image, target = network.transform(chelsea)[None], network.number_of("Egyptian cat")
        assert torch.allclose(gradient, saliency.guided_backprop(network.model, image, target)[0])
    assert gradient.any(), "the unit is one that a gradient passes"
    control(explorer, "or").value = "espresso"
    assert "for the espresso" in explorer.sentence or "from the class espresso" in explorer.sentence
