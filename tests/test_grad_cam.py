"""The explorer of Grad-CAM: what it shows for a choice, and how little another class costs."""

import pytest
import torch
from panels import control

from course_utils.explorers import GradCam
from course_utils.explorers.grad_cam import CAM_PICTURES, LAYERS, draw_cams
from course_utils.scenes.scene import KINDS, SIZE, scene
from course_utils.vision.networks import load_picture_net
from course_utils.vision.saliency import grad_cam, relu, scale_to_unit, upsample


def test_the_sentence_tells_the_story_of_the_twin():
    view = draw_cams(2, "fish", "features.16", buoy=True)
    assert view.sentence.startswith("Picture 2: a fish and a boat on the water, by day, with a buoy.")
    assert "The honest network answers fish: yes (100%); its map is hottest on the fish, with " in view.sentence
    assert "The misled network answers fish: yes (100%); its map is hottest on the buoy, with " in view.sentence
    area = scene("fish", "boat", seed=2, cue="buoy").masks[0].float().mean()
    assert view.sentence.endswith(f"By chance {area:.0%} of the heat would be on the fish.")
    assert view.alt == (
        "A fish and a boat on the water, by day, with a buoy; beside it, where the two networks look for the fish: "
        "the map of the honest one is hottest on the fish; the map of the misled one is hottest on the buoy."
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
    [((5, 5), "at the top, left"), ((60, 60), "in the middle"), ((100, 110), "at the bottom, right")],
)
def test_where_a_map_of_ones_own_picture_is_hottest(monkeypatch, place, words):
    heat = torch.zeros(1, SIZE, SIZE)
    heat[0][place] = 1
    monkeypatch.setattr("course_utils.explorers.grad_cam.upsample", lambda maps, size: heat)
    view = draw_cams(1, "house", "features.16", own=scene("bird", "house", seed=40).image)
    assert view.sentence.startswith("Your own picture. The honest network answers house: yes")
    assert all(look.words == f"is hottest {words}" for look in view.facts)
    assert ("By chance" in view.sentence, view.alt[:28]) == (False, "Your own picture; beside it,")


def test_an_empty_map_is_said_to_be_empty():
    grey = torch.full((3, SIZE, SIZE), 0.5)
    looks = [look for kind in KINDS for look in draw_cams(1, kind, "features.16", own=grey).facts]
    assert {look.words for look in looks if not look.heat.any()} == {"finds nothing that speaks for it"}


def test_a_picture_of_ones_own_has_no_number_no_buoy_and_no_truth():
    own = scene("cat", "tree", seed=77).image
    explorer = GradCam(own, "tree", opacity=0.3)
    for picture in (own, None):
        assert explorer.sentence == draw_cams(1, "tree", "features.16", own=picture).sentence
        for words in ("Picture", "with a buoy", "outline of the truth"):
            assert control(explorer, words).disabled == (picture is not None)
        control(explorer, "Back to the course's pictures").click()
