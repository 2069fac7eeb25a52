"""The explorer of Grad-CAM: what it shows for a choice, how little another class costs, what each control does."""

import base64
import datetime

import ipywidgets as widgets
import pytest
import torch

from course_utils.explorers import GradCam, cam_pictures, make_picture
from course_utils.explorers.cam_pictures import (
    CAM_LAYERS,
    CAM_PICTURES,
    NETWORKS,
    CamChoice,
    CamError,
    draw_cams,
)
from course_utils.scenes.scene import KINDS, SIZE, scene
from course_utils.vision.networks import load_picture_net
from course_utils.vision.pictures import Picture, draw_heat, png
from course_utils.vision.saliency import (
    grad_cam,
    relu,
    scale_to_unit,
    upsample,
)

VIEW = "application/vnd.jupyter.widget-view+json"
FISH = CamChoice(2, "fish", buoy=True)


def found(explorer, kind, description=None):
    """All widgets of a kind in the panel, by what a learner reads on them."""
    seen, waiting = [], [explorer.widget]
    while waiting:
        widget = waiting.pop(0)
        waiting += getattr(widget, "children", ())
        if isinstance(widget, kind) and (description is None or widget.description == description):
            seen.append(widget)
    return seen


def control(explorer, kind, description):
    (one,) = found(explorer, kind, description)
    return one


def picture_of(explorer):
    """The picture in the panel, as the text of its <img>."""
    (image,) = (each.value for each in found(explorer, widgets.HTML) if "<img" in each.value)
    return image


def face(view):
    return make_picture(Picture(png(view.sheet), view.alt))


# --- the pure part ----------------------------------------------------------------------------------------------------


def test_the_sentence_tells_the_story_of_the_twin():
    sentence = draw_cams(FISH).sentence
    assert sentence.startswith("Picture 2: a fish and a boat on the water, by day, with a buoy.")
    assert "The honest network answers fish: yes (100%); its map is hottest on the fish" in sentence
    assert "The misled network answers fish: yes (100%); its map is hottest on the buoy" in sentence
    without = draw_cams(CamChoice(2, "fish")).sentence
    assert "The misled network answers fish: no" in without
    assert "buoy" not in without


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("layer", CAM_LAYERS)
def test_maps_are_those_of_saliency(network, layer):
    view = draw_cams(CamChoice(2, "boat", layer, buoy=True))
    image = scene("fish", "boat", seed=2, cue="buoy").image[None]
    raw = grad_cam(load_picture_net(misled=NETWORKS[network]), image, layer, KINDS.index("boat"))
    (look,) = [each for each in view.looks if each.network == network]
    assert torch.allclose(look.heat, scale_to_unit(upsample(relu(raw), (SIZE, SIZE)))[0], atol=1e-5)


def test_another_class_and_another_opacity_run_no_network():
    draw_cams(FISH)
    before = cam_pictures.RUNS.made
    for kind in KINDS:
        for opacity in (0, 0.5, 1):
            draw_cams(CamChoice(2, kind, buoy=True, opacity=opacity))
    assert cam_pictures.RUNS.made == before
    draw_cams(CamChoice(2, "fish"))
    assert cam_pictures.RUNS.made <= before + 2  # both networks, unless an earlier test ran them


def test_no_more_runs_are_kept_than_said_and_the_oldest_are_closed():
    runs = cam_pictures.Runs(most=2)
    image = scene("cat", "dog", seed=1).image
    first = runs.get("honest", image, "features.16")
    assert runs.get("honest", image, "features.16") is first
    runs.get("honest", image, "features.13")
    runs.get("honest", image, "features.10")
    with pytest.raises(ValueError, match="closed"):
        first.grad_cam(0)
    assert runs.get("honest", image, "features.16") is not first
    assert runs.made == 4


@pytest.mark.parametrize("number", range(1, len(CAM_PICTURES) + 1))
def test_the_honest_network_is_right_about_every_picture(number):
    *kinds, _ = CAM_PICTURES[number - 1]
    for kind in kinds:
        honest, _ = draw_cams(CamChoice(number, kind)).looks
        assert honest.probability > 0.5, (number, kind)
        assert honest.words in (f"is hottest on the {kind}", f"is hottest beside the {kind}"), (number, kind)


def test_a_class_that_is_not_there_is_said_to_be_absent():
    sentence = draw_cams(CamChoice(1, "car")).sentence
    assert "There is no car in it." in sentence
    assert "By chance" not in sentence


def test_the_outline_shows_the_truth_and_can_be_left_out():
    plain, outlined = (draw_cams(CamChoice(1, "cat", truth=truth)).sheet for truth in (False, True))
    assert plain.shape == outlined.shape
    changed = (plain != outlined).any(0)
    assert 0.001 < changed.float().mean() < 0.05
    absent, _ = (draw_cams(CamChoice(1, "car", truth=truth)).sheet for truth in (False, True))
    assert absent.equal(draw_cams(CamChoice(1, "car", truth=True)).sheet)


def test_a_picture_of_ones_own():
    own = scene("bird", "house", seed=40).image
    view = draw_cams(CamChoice(own, "house"))
    assert view.sentence.startswith("Your own picture. The honest network answers house: yes")
    assert "is hottest in the middle" in view.sentence or "is hottest at the" in view.sentence
    assert "By chance" not in view.sentence


def test_an_empty_map_is_said_to_be_empty():
    grey = torch.full((3, SIZE, SIZE), 0.5)
    words = {look.words for kind in KINDS for look in draw_cams(CamChoice(grey, kind)).looks}
    heats = [look.heat for kind in KINDS for look in draw_cams(CamChoice(grey, kind)).looks]
    assert any(not heat.any() for heat in heats) == ("finds nothing that speaks for it" in words)
    assert all(heat.isfinite().all() for heat in heats)


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        (CamChoice(0), "a number from 1 to 10, got 0"),
        (CamChoice(11), "a number from 1 to 10"),
        (CamChoice("cat"), "a number from 1 to 10, got 'cat'"),
        (CamChoice(torch.zeros(3, 64, 64)), r"read_picture\(file, size=112\)"),
        (CamChoice(1, "fisch"), "did you mean 'fish'"),
        (CamChoice(1, "cat", "features.17"), "did you mean 'features.1"),
        (CamChoice(1, "cat", opacity=60), "from 0 .picture only. to 1"),
    ],
)
def test_what_there_is_not_gets_a_sentence(choice, says):
    with pytest.raises(CamError, match=says):
        draw_cams(choice)


def test_draw_heat_doubles_the_size_and_marks_the_hottest_pixel():
    image, heat = torch.full((3, 40, 40), 0.5), torch.zeros(40, 40)
    heat[10, 30] = 1
    tile = draw_heat(image, heat, opacity=0, mark=True)
    assert tile.shape == (3, 80, 80)
    changed = ((tile - 0.5).abs() > 0.01).any(0).nonzero()
    assert (changed.float().mean(0) - torch.tensor([20.0, 60.0])).abs().max() < 1
    assert draw_heat((image * 255).to(torch.uint8)).sub(127 / 255).abs().max() < 1e-6
    with pytest.raises(ValueError, match="Give a heat map"):
        draw_heat(image, mark=True)


# --- the panel --------------------------------------------------------------------------------------------------------


def test_it_opens_where_a_lesson_says():
    explorer = GradCam(2, "fish", buoy=True)
    view = draw_cams(FISH)
    assert explorer.sentence == view.sentence
    assert picture_of(explorer) == face(view)
    (words,) = [each.value for each in found(explorer, widgets.HTML) if "role" in each.value]
    assert view.sentence in words


@pytest.mark.parametrize(
    ("kind", "description", "value", "choice"),
    [
        (widgets.IntSlider, "Picture", 5, CamChoice(5, "fish", buoy=True)),
        (widgets.Checkbox, "with a buoy", False, CamChoice(2, "fish")),
        (widgets.ToggleButtons, "Class", "boat", CamChoice(2, "boat", buoy=True)),
        (widgets.SelectionSlider, "Layer", "features.6", CamChoice(2, "fish", "features.6", buoy=True)),
        (widgets.IntSlider, "Opacity %", 30, CamChoice(2, "fish", buoy=True, opacity=0.3)),
        (widgets.Checkbox, "outline of the truth", False, CamChoice(2, "fish", buoy=True, truth=False)),
    ],
)
def test_each_control_changes_its_part(kind, description, value, choice):
    explorer = GradCam(2, "fish", buoy=True)
    control(explorer, kind, description).value = value
    view = draw_cams(choice)
    assert explorer.sentence == view.sentence
    assert picture_of(explorer) == face(view)


def upload(explorer, content):
    file = {"name": "own.png", "type": "image/png", "size": len(content), "content": memoryview(content)}
    file["last_modified"] = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    control(explorer, widgets.FileUpload, "Your own picture").value = (file,)


def test_a_picture_is_uploaded_and_left_again():
    explorer = GradCam(2, "fish", buoy=True)
    before = explorer.sentence
    back = control(explorer, widgets.Button, "Back to the course's pictures")
    assert back.layout.display == "none"
    upload(explorer, png(scene("cat", "tree", seed=77, size=224).image))
    assert explorer.sentence.startswith("Your own picture.")
    assert control(explorer, widgets.IntSlider, "Picture").disabled
    assert control(explorer, widgets.FileUpload, "Your own picture").value == (), "no file is saved with the notebook"
    assert back.layout.display is None
    control(explorer, widgets.ToggleButtons, "Class").value = "tree"
    assert explorer.sentence.startswith("Your own picture. The honest network answers tree")
    back.click()
    control(explorer, widgets.ToggleButtons, "Class").value = "fish"
    assert explorer.sentence == before
    assert not control(explorer, widgets.IntSlider, "Picture").disabled


@pytest.mark.parametrize(("content", "says"), [(b"no picture", "no picture that can be read"), (b"", "is empty")])
def test_a_bad_upload_gets_a_sentence_and_the_picture_stays(content, says):
    explorer = GradCam(2, "fish")
    before = picture_of(explorer)
    upload(explorer, content)
    problems = [each.value for each in found(explorer, widgets.HTML) if "does not work yet" in each.value]
    assert len(problems) == 1
    assert says in problems[0]
    assert picture_of(explorer) == before
    control(explorer, widgets.ToggleButtons, "Class").value = "boat"
    assert not [each for each in found(explorer, widgets.HTML) if "does not work yet" in each.value]


def test_every_control_has_a_label_and_nothing_is_printed():
    explorer = GradCam()
    kinds = (
        widgets.IntSlider,
        widgets.SelectionSlider,
        widgets.ToggleButtons,
        widgets.Checkbox,
        widgets.Button,
        widgets.FileUpload,
    )
    assert len(found(explorer, kinds)) == 8
    assert all(each.description for each in found(explorer, kinds))
    assert not found(explorer, (widgets.Output, widgets.Dropdown))


def test_what_a_notebook_stores_is_the_same_every_time():
    (first, metadata), (second, again) = (GradCam(2, "fish", buoy=True)._repr_mimebundle_() for _ in range(2))
    assert first.pop(VIEW)["model_id"] != second.pop(VIEW)["model_id"]
    assert (first, metadata) == (second, again)
    assert first["text/plain"] == draw_cams(FISH).sentence
    assert base64.b64decode(first["image/png"]) == png(draw_cams(FISH).sheet, small=True)
    assert metadata["image/png"]["alt"] == draw_cams(FISH).alt


def test_a_wrong_beginning_raises():
    with pytest.raises(CamError, match="did you mean 'cat'"):
        GradCam(1, "cats")


def test_a_picture_of_ones_own_as_the_beginning():
    own = scene("cat", "tree", seed=77).image
    explorer = GradCam(own, "tree")
    assert explorer.sentence == draw_cams(CamChoice(own, "tree")).sentence
    assert control(explorer, widgets.IntSlider, "Picture").disabled
