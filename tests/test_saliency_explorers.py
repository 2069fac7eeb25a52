"""The explorers of Grad-CAM and of Guided Backprop: what they show for a choice, and where a gradient starts."""

import re

import pytest
import torch
from panels import control, shown, upload

from course_utils.explorers import GradCam, GuidedBackprop, guided_backprop
from course_utils.explorers.grad_cam import CAM_PICTURES, LAYERS, draw_cams, find_scene, say_where
from course_utils.explorers.guided_backprop import CLASS, NORMALISATIONS, RULES, STARTS, draw_guided, find_unit
from course_utils.explorers.panel import name_place
from course_utils.scenes.scene import KINDS, SIZE, scene
from course_utils.vision import saliency
from course_utils.vision.networks import load_classifier, load_picture_net
from course_utils.vision.pictures import png, show_fixed
from course_utils.vision.real import REAL, photograph
from course_utils.vision.saliency import grad_cam, relu, scale_to_unit, upsample


def test_the_sentence_tells_the_story_of_the_twin():
    view = draw_cams(2, "fish", "features.16", buoy=True)
    assert view.sentence.startswith("Picture 2: a fish and a boat on the water, by day, with a buoy.")
    assert "The honest network answers fish: yes (100%); its map is hottest on the fish, with " in view.sentence
    assert "The misled network answers fish: yes (100%); its map is hottest on the buoy, with " in view.sentence
    area = scene("fish", "boat", seed=2, cue="buoy").masks[0].float().mean()
    assert view.sentence.endswith(f"By chance {area:.0%} of the heat would be on the fish.")
    assert view.alt.startswith("A fish and a boat on the water, by day, with a buoy; ")
    assert re.search(
        r"honest one \(100%\) is hottest on the fish; .* misled one \(100%\) is hottest on the buoy", view.alt
    )
    without = draw_cams(2, "fish", "features.16").sentence
    assert "The misled network answers fish: no" in without
    assert "buoy" not in without


@pytest.mark.parametrize("layer", [LAYERS[0], LAYERS[-1]])
def test_maps_are_those_of_saliency(layer):
    image, boat = scene("fish", "boat", seed=2, cue="buoy").image[None], KINDS.index("boat")
    for look in draw_cams(2, "boat", layer, buoy=True).facts:
        model = load_picture_net(misled=look.network == "misled")
        heat = scale_to_unit(upsample(relu(grad_cam(model, image, layer, boat)), (SIZE, SIZE)))[0]
        assert torch.allclose(look.heat, heat, atol=1e-5)
        assert look.probability == pytest.approx(model(image)[0, boat].sigmoid().item(), abs=1e-5)


@pytest.mark.parametrize("number", range(1, len(CAM_PICTURES) + 1))
def test_the_honest_network_is_right_about_every_picture(number):
    for kind in CAM_PICTURES[number - 1][:2]:
        honest, _ = draw_cams(number, kind, "features.16").facts
        assert honest.probability > 0.5
        assert honest.words in (f"is hottest on the {kind}", f"is hottest beside the {kind}")


def test_the_outline_shows_the_truth_where_there_is_one():
    plain, outlined = (draw_cams(1, "cat", "features.16", truth=truth).picture for truth in (False, True))
    assert 0.001 < (plain != outlined).any(0).float().mean() < 0.05
    view, plain = (draw_cams(1, "car", "features.16", truth=truth) for truth in (True, False))
    assert ("There is no car in it." in view.sentence, "By chance" in view.sentence) == (True, False)
    assert torch.equal(view.picture, plain.picture)


@pytest.mark.parametrize(
    ("place", "words"),
    [((10, 10), "at the top, left"), ((120, 120), "in the middle"), ((200, 220), "at the bottom, right")],
)
def test_without_a_truth_a_place_is_a_part_of_the_picture(place, words):
    heat = torch.zeros(224, 224)
    heat[place] = 1
    assert say_where(heat, {}) == f"is hottest {words}"


@pytest.mark.slow
def test_a_photograph_is_for_the_real_network_which_names_its_likeliest_classes():
    explorer = GradCam("chelsea")
    words = name_place(explorer.view.facts[0].heat)
    assert re.fullmatch(
        r"A ginger cat\. EfficientNet-Lite0 says: Egyptian cat \d+%, tiger cat \d+%, tabby \d+%, lynx 4%, plastic bag "
        rf"0%\. Asked for Egyptian cat \(\d+%\), at layer bn2, the map is hottest {words}\.",
        explorer.sentence,
    )
    assert re.search(rf"looks for Egyptian cat \(\d+%\): the map is hottest {words}\.$", explorer.view.alt)


@pytest.mark.slow
def test_any_class_may_be_asked_for_and_one_rather_than_another_in_one_run(monkeypatch):
    explorer, network = GradCam("chelsea"), load_classifier(REAL)
    monkeypatch.setattr("course_utils.explorers.own_picture.explain", None)  # what follows are parts of the first run
    x = network.transform(photograph("chelsea"))[None]

    def ask(words, value):
        control(explorer, words).value = value
        return explorer.view.facts[0].heat

    def wanted(target, layer="bn2"):
        return scale_to_unit(upsample(relu(grad_cam(network.model, x, layer, target)), (224, 224)))[0]

    tiger, espresso = network.number_of("tiger cat"), network.number_of("espresso")
    assert torch.allclose(ask("Class", "tiger cat"), wanted(tiger), atol=1e-5)
    assert torch.allclose(ask("or", "espresso"), wanted(espresso), atol=1e-5)
    difference = wanted(lambda logits: logits[:, tiger] - logits[:, espresso])
    assert torch.allclose(ask("or", "tiger cat rather than espresso"), difference, atol=1e-5)
    assert "Asked for tiger cat rather than espresso, at layer bn2" in explorer.sentence
    ask("or", "tigers")
    assert "efficientnet_lite0 knows 1000 classes: there is no &#x27;tigers&#x27;; did you mean &#x27;tiger" in shown(
        explorer
    )
    for layer in STARTS[1][:-1]:
        ask("Class", "tabby"), ask("Layer", layer)
        assert torch.allclose(explorer.view.facts[0].heat, wanted(network.number_of("tabby"), layer), atol=1e-5)


@pytest.mark.slow
def test_an_upload_has_no_number_no_buoy_and_no_truth_and_the_courses_networks_never_see_it(monkeypatch):
    explorer = GradCam(3, "tree")
    before = explorer.sentence
    monkeypatch.setattr("course_utils.explorers.grad_cam.load_network", None)
    upload(explorer, png(torch.full((3, 300, 300), 0.5)))
    for own in (True, False):
        for words in ("Picture", "with a buoy", "outline of the truth"):
            assert (control(explorer, words).layout.visibility == "hidden") == own, "and its room stays"
        assert explorer.sentence.startswith("Your own picture. EfficientNet-Lite0 says: ") == own
        monkeypatch.undo()
        control(explorer, "Photograph").value = ""
    assert explorer.sentence == before, "the class is again the one before"


def test_normalisations_by_hand():
    gradients = torch.zeros(3, 1, 2)
    gradients[:, 0, 1] = torch.tensor([0.1, -0.2, 0.0])
    assert show_fixed(gradients)[:, 0].tolist() == [[0.5, pytest.approx(0.65)], [0.5, pytest.approx(0.2)], [0.5, 0.5]]
    signs = guided_backprop.show_sign(gradients)
    assert signs[:, 0, 0].tolist() == [0.5, 0.5, 0.5]
    assert signs[0, 0, 1] > 0.5 > signs[1, 0, 1]
    assert torch.allclose(guided_backprop.show_sign(10 * gradients), signs)
    assert guided_backprop.show_strength(gradients)[:, 0].T.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_a_gradient_of_zeros_and_an_empty_map_are_said(monkeypatch):
    assert say_where(torch.zeros(4, 4), {}) == "finds nothing that speaks for it"
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
    gradient, _ = guided_backprop.find_gradient("honest", find_scene(("fish", "tree", 5)), "fish", start, rule)
    place = name_place(gradient.abs().sum(0))
    assert f"; beside it, the {rule} map for the fish, from {start}, is strongest {place}." in view.alt
    assert 0 <= view.picture.min() <= view.picture.max() <= 1


def test_the_unit_is_the_one_that_counts_most():
    """The network is linear from there on: a unit adds to the logit its output times the weight of its channel."""
    model, picture, cat = load_picture_net(), find_scene(("cat", "boat", 3)), KINDS.index("cat")
    with torch.no_grad():
        counts = model.features((picture.image[None] - 0.5) / 0.25)[0] * model.classifier.weight[cat][:, None, None]
    assert counts[find_unit("honest", picture, "cat", "features.16")] == counts.max() > 0


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
    assert control(explorer, "Picture").layout.visibility == "hidden"
    gradient, words = guided_backprop.find_gradient(REAL, explorer.values["own"], "Egyptian cat", start, "guided")
    assert f"plastic bag 0%. Guided {words}. The values go from " in explorer.sentence
    if start == CLASS:
        image, target = network.transform(chelsea)[None], network.number_of("Egyptian cat")
        assert torch.allclose(gradient, saliency.guided_backprop(network.model, image, target)[0])
    assert gradient.any(), "the unit is one that a gradient passes"
    for photo in ("", "chelsea"):
        control(explorer, "Photograph").value = photo
    assert control(explorer, "Start at").options == STARTS[1], "the real network's layers, also from the class"
    control(explorer, "or").value = "espresso"
    assert "for the espresso" in explorer.sentence or "from the class espresso" in explorer.sentence
