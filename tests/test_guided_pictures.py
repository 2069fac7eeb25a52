"""The pictures of the Guided Backprop explorer, of the three rules and of the cascade."""

from __future__ import annotations

import ipywidgets as widgets
import pytest
import torch

from course_utils.explorers import GuidedBackprop, make_paragraph, make_picture
from course_utils.explorers.guided_pictures import (
    CLASS,
    GUIDED_PICTURES,
    NORMALISATIONS,
    RULES,
    STARTS,
    GuidedChoice,
    GuidedError,
    draw_guided,
    find_unit,
    show_sign,
    show_strength,
)
from course_utils.hooks.inventory import count_hooks
from course_utils.scenes.scene import KINDS, scene
from course_utils.vision.charts import draw_cascade, draw_rules
from course_utils.vision.networks import load_picture_net
from course_utils.vision.pictures import Picture, png, show_fixed

# --- the three rules --------------------------------------------------------------------------------------------------


def test_picture_of_the_rules():
    picture = draw_rules((5, 1, 0), (2, -3, 4), "Gates & rules")
    assert picture.passed == {"backprop": (2, -3, 0), "deconvnet": (2, 0, 4), "guided": (2, 0, 0)}
    assert 'aria-label="Gates &amp; rules"' in picture.svg
    assert picture.svg.count("l18 18 m0 -18") == 4, "a cross for each closed gate: colour alone says nothing"
    assert picture.svg.count("h26 m-8 -7") == 5
    with pytest.raises(ValueError, match="got 2 and 1"):
        draw_rules((1, 2), (1,), "Not as many")


# --- the two measurements ---------------------------------------------------------------------------------------------


def test_the_cascade_picture_refuses_what_it_cannot_draw():
    with pytest.raises(ValueError, match="guided has 1 values for 2 layers"):
        draw_cascade(["a", "b"], {"guided": [1.0]}, "Falls", "It falls.")
    with pytest.raises(ValueError, match="at most 4 curves"):
        draw_cascade(["a"], {str(n): [1.0] for n in range(5)}, "Falls", "It falls.")


# --- the explorer's pictures ------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("rule", RULES)
def test_every_start_and_rule(start, rule):
    view = draw_guided(GuidedChoice(2, "dog", start, rule))
    again = draw_guided(GuidedChoice(2, "dog", start, rule))
    assert view.sentence == again.sentence
    assert torch.equal(view.sheet, again.sheet)
    assert view.sentence.startswith(rule.capitalize())
    assert start in view.sentence or start == CLASS
    assert 0 <= view.sheet.min() <= view.sheet.max() <= 1


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
    sheet = draw_guided(GuidedChoice(1, "cat", "features.2", "gradient", "strength")).sheet
    lit = (sheet[:, 4:340, 344:680].amax(0) > 0.02).nonzero()  # the right half, without the paper around it
    assert lit.numel()
    extent = (lit.amax(0) - lit.amin(0) + 1).tolist()
    assert max(extent) <= 3 * (7 + 2), "a kernel of 7 pixels, drawn three times as large and smoothed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"picture": 0}, f"picture is a number from 1 to {len(GUIDED_PICTURES)}, got 0"),
        ({"kind": "hause"}, "no class 'hause' here; did you mean 'house'"),
        ({"start": "features.3"}, "no start 'features.3' here; did you mean"),
        ({"rule": "backprop"}, "no rule 'backprop' here.*gradient, deconvnet, guided"),
        ({"normalisation": "none"}, "no normalisation 'none' here"),
    ],
)
def test_choices_that_do_not_exist(change, words):
    with pytest.raises(GuidedError, match=words):
        draw_guided(GuidedChoice(**change))


# --- the panel --------------------------------------------------------------------------------------------------------


def controls(explorer) -> dict[str, widgets.Widget]:
    found, waiting = {}, [explorer.widget]
    while waiting:
        widget = waiting.pop()
        waiting += getattr(widget, "children", ())
        if isinstance(widget, widgets.ToggleButtons | widgets.SelectionSlider | widgets.IntSlider):
            found[widget.description] = widget
    return found


def test_every_control_changes_picture_and_sentence():
    explorer = GuidedBackprop()
    panel = controls(explorer)
    assert set(panel) == {"Picture", "Start at", "Class", "Rule", "Shown as"}
    choice = GuidedChoice()
    for label, field, value in (
        ("Picture", "picture", 2),
        ("Class", "kind", "dog"),
        ("Start at", "start", "features.10"),
        ("Rule", "rule", "gradient"),
        ("Shown as", "normalisation", "zero is grey"),
    ):
        before = explorer._picture.value
        panel[label].value = value
        choice = GuidedChoice(**{**vars(choice), field: value})
        view = draw_guided(choice)
        assert explorer.sentence == view.sentence
        assert explorer._words.value == make_paragraph(view.sentence)
        assert explorer._picture.value == make_picture(Picture(png(view.sheet), view.alt)) != before


def test_without_a_kernel_there_are_a_picture_and_a_sentence():
    data, metadata = GuidedBackprop(picture=3, kind="fish")._repr_mimebundle_()
    assert data["text/plain"].startswith("Guided from the class fish")
    assert data["image/png"]
    assert "A fish and a tree" in metadata["image/png"]["alt"]
    assert "application/vnd.jupyter.widget-view+json" in data
