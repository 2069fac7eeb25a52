"""What lesson 06 teaches, found by a second method, and that its committed notebook shows just these values."""

from __future__ import annotations

import ipywidgets as widgets
import pytest
import torch
import torch.nn.functional as F
from lesson_pages import LessonPage
from torch import nn

from course_utils.exercises.engine import exercises_of, predictions_of
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
from course_utils.vision.networks import load_picture_net
from course_utils.vision.pictures import Picture, png, show_fixed

PAGE = LessonPage("06_guided_backprop")
shows = PAGE.shows


# --- the three rules --------------------------------------------------------------------------------------------------


def test_pencil_example():
    assert shows("f = [5.0, 1.0, 0.0] R = [2.0, -3.0, 4.0]")
    assert shows("backprop: [-7.0, 7.0] deconvnet: [6.0, -4.0] guided: [2.0, 4.0]")


def test_pencil_example_by_finite_differences():
    def y(x1, x2):
        return 2 * max(x1 + 2 * x2, 0) - 3 * max(3 * x1 - x2, 0) + 4 * max(x1 - 2 * x2, 0)

    step = 2**-10
    assert y(1, 2) == 7
    slopes = [(y(1 + step, 2) - y(1 - step, 2)) / (2 * step), (y(1, 2 + step) - y(1, 2 - step)) / (2 * step)]
    assert slopes == [-7, 7]


def by_hand(images: torch.Tensor, target: int, rule: str) -> torch.Tensor:
    """The map of one picture, layer by layer from the weights; no hook, no function mode and no graph takes part."""
    model = load_picture_net()
    values, steps = (images - 0.5) / 0.25, []
    with torch.no_grad():
        for module in model.features:
            before, values = values, module(values)
            steps.append((module, before, values))
        size = values.shape[-2] * values.shape[-1]
        R = (model.classifier.weight[target][None, :, None, None] / size).expand_as(values)
        for module, before, after in reversed(steps):
            if isinstance(module, nn.ReLU):
                active, positive = after > 0, R > 0
                R = R * {"gradient": active, "deconvnet": positive, "guided": active & positive}[rule]
            elif isinstance(module, nn.BatchNorm2d):
                R = R * (module.weight / (module.running_var + module.eps).sqrt())[None, :, None, None]
            elif isinstance(module, nn.Conv2d):
                R = nn.grad.conv2d_input(before.shape, module.weight, R, module.stride, module.padding)
            else:
                _, places = F.max_pool2d(before, 2, return_indices=True)
                R = F.max_unpool2d(R, places, 2, output_size=before.shape[-2:])
    return R / 0.25


@pytest.mark.parametrize("rule", RULES)
def test_shares_of_the_side_by_side_section(rule):
    picture = scene("cat", "boat", seed=3)
    for kind in picture.labels:
        strength = by_hand(picture.image[None], KINDS.index(kind), rule)[0].abs().sum(0)
        cat, boat = [(strength[mask].sum() / strength.sum()).item() for mask in picture.masks]
        assert shows(f"{rule} for the {kind:4}: {cat:.2f} on the cat, {boat:.2f} on the boat")


# --- what it cannot do, what it hides ---------------------------------------------------------------------------------


def test_relus_without_hooks():
    assert shows("nn.ReLU 1 hooks, gradient [6.0, -4.0] F.relu 0 hooks, gradient [-7.0, 7.0]")
    assert shows("RuntimeError: Output 0 of BackwardHookFunction is a view and is being modified inplace")
    assert shows("nn.ReLU [2.0, 4.0] in place [2.0, 4.0] F.relu [2.0, 4.0]")


def test_any_size_gives_the_same_picture():
    assert PAGE.printed.count("largest difference in the picture: 0.000") == 3
    assert shows("picture and negative add up to 1, up to 0.000")


# --- the two measurements ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gradient 0.73 -0.39", "point in opposite directions"),
        ("deconvnet 0.51 0.67", "0.51, one hundredth from chance"),
        ("guided 0.82 0.38 0.69", "at 0.69 it is the highest for guided"),
        ("classifier 0.52 0.40 0.88 0.20", "still correlates at 0.88 with the original"),
        ("features.11 0.37 0.40 0.72", "at 0.72 when three layers of six are random"),
    ],
)
def test_what_the_prose_says_was_measured(line, words):
    assert shows(line)
    assert words in PAGE.prose


# --- the lesson as a whole --------------------------------------------------------------------------------------------


def test_enough_to_predict_and_to_do():
    assert len(predictions_of(6)) >= 4
    assert len(exercises_of(6)) >= 6
    assert all(len(each.mistakes) >= 3 and len(each.accepted) >= 2 for each in exercises_of(6))


@pytest.mark.parametrize(
    ("name", "answer", "shown"),
    [
        ("deconvnet_silent_unit", "4", "3 0 4 0 4 0"),
        ("guided_first_input", "2", "guided: [2.0, 4.0]"),
        ("functional_relu", "the plain gradient", "F.relu 0 hooks, gradient [-7.0, 7.0]"),
        ("a_thousand_times", "the same picture", "times 1000 largest difference in the picture: 0.000"),
        ("most_on_the_thing", "guided", "guided 0.82"),
        ("random_classifier", "0.9", "classifier 0.52 0.40 0.88"),
    ],
)
def test_predictions_come_out_as_their_cells_do(name, answer, shown):
    (asked,) = [each for each in predictions_of(6) if each.name == name]
    assert asked.answer == answer
    assert shows(shown)


def test_all_three_gates_are_asked_by_name():
    exercise = next(each for each in exercises_of(6) if each.name == "pass_relu")
    f, grad = torch.tensor([1.0, 1.0, 0.0, 0.0]), torch.tensor([2.0, -2.0, 2.0, -2.0])
    found = [exercise.reference(rule, f, grad).tolist() for rule in ("backprop", "deconvnet", "guided")]
    assert found == [[2, -2, 0, 0], [2, 0, 2, 0], [2, 0, 0, 0]]


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
