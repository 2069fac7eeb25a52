"""What all explorers share: what the panel promises, for all seven; and a picture of one's own."""

import gc
import xml.etree.ElementTree as ET
from html import escape
from urllib.parse import unquote

import ipywidgets as widgets
import pytest
import torch
from ipycanvas import Canvas
from panels import control, controls, read_png, shown, upload
from torch import nn
from torch.utils.hooks import RemovableHandle

from course_utils import explorers
from course_utils.explorers import feature_maps, grad_cam, guided_backprop
from course_utils.explorers.markup import draw_picture, make_paragraph, make_problem, make_table
from course_utils.explorers.own_picture import OwnPicture
from course_utils.explorers.panel import Explorer, View
from course_utils.root import CourseError
from course_utils.vision.pictures import draw_strokes, png, put_on_white
from course_utils.vision.toys import EDGES

VIEW = "application/vnd.jupyter.widget-view+json"
PNG = png(torch.full((3, 200, 300), 0.2))
WHITE = "your own picture (3, 224, 224) 1.00000"


def test_words_are_escaped_and_no_problem_has_no_box():
    markup = make_paragraph("<b>x") + make_problem("<b>x") + make_table(["<b>x"], [["<b>x", "<b>x"]], "<b>x")
    assert (markup.count("<b>x"), markup.count("&lt;b&gt;x"), make_problem("")) == (0, 6, "")


def test_a_picture_is_as_wide_as_its_title():
    """At some 9 px for each character."""
    narrow, wide = (ET.fromstring(draw_picture(200, 50, "x" * count, "", "", [])) for count in (10, 50))
    assert (narrow.get("width"), float(wide.get("width")) > 9 * 50) == ("200", True)


class Upload(Explorer):
    """The mean colour of a picture of one's own."""

    def __init__(self, own=None):
        own = OwnPicture(own, drawing=True)
        super().__init__({"own": own}, ["own", own.pad])

    def look(self, own):
        words = "none" if own is None else f"{own.title} {tuple(own.image.shape)} {own.image.mean().item():.5f}"
        return View('<svg width="80"></svg>', words)


def test_a_picture_is_uploaded_left_and_found_again():
    explorer = Upload()
    choice, uploaded = control(explorer, "Photograph"), "your own picture (3, 224, 224) 0.20000"
    choice.value = "your own picture"
    assert (explorer.sentence, "Upload a picture first" in shown(explorer)) == ("none", True)
    for _ in range(2):
        upload(explorer, PNG)
        assert explorer.sentence == uploaded
        assert control(explorer, "Your own picture").value == (), "no file is saved with the notebook"
        choice.value = "chelsea"
        assert explorer.sentence.startswith("a ginger cat (3, 224, 224) ")
        choice.value = "your own picture"
        assert explorer.sentence == uploaded
        choice.value = ""
        assert explorer.sentence == "none"


@pytest.mark.parametrize("content", [b"hello", PNG[:60]], ids=["text", "cut off"])
def test_a_bad_upload_gets_a_sentence_each_time_and_the_picture_stays(content):
    explorer = Upload(torch.ones(3, 224, 300))  # the square in its middle is taken
    for picture in (WHITE, "your own picture (3, 224, 224) 0.20000"):
        upload(explorer, content)
        assert "picture" in shown(explorer).partition("That does not work yet.")[2]
        assert explorer.sentence == picture
        upload(explorer, PNG)
        assert "That does not work yet." not in shown(explorer)


def test_a_drawing_is_shown_stroke_by_stroke_and_wiped(monkeypatch):
    explorer, drawn = Upload(), []
    monkeypatch.setattr(Canvas, "stroke_line", lambda canvas, *ends: drawn.append(ends))
    monkeypatch.setattr(Canvas, "fill_rect", lambda canvas, *box: drawn.clear())
    control(explorer, "Draw one").click()
    (canvas,) = controls(explorer, Canvas)

    def play(*events):
        for name, x, y in events:  # as the browser sends them
            content = {"event": name, "x": x, "y": y, "touches": [{"x": x, "y": y}]}
            canvas._handle_frontend_event(canvas, content, [])
        return explorer.sentence

    stroke = ("mouse_down", 45, 90), ("mouse_move", 90, 90), ("mouse_move", 135, 90)
    assert play(("mouse_move", 5, 5), *stroke) == WHITE
    line = play(("mouse_up", 135, 90), ("mouse_move", 0, 0), ("mouse_out", 0, 0))
    assert drawn == [(45, 90, 90, 90), (90, 90, 135, 90)]
    drawing = put_on_white(draw_strokes([((25, 50), (50, 50), (75, 50))], size=224))
    assert torch.allclose(explorer.values["own"].image, drawing, atol=1e-6)
    both = play(("touch_start", 5, 5), ("touch_move", 50, 40), ("touch_end", 50, 40))
    assert len({WHITE, line, both, play(("mouse_down", 15, 15), ("mouse_out", 15, 15))}) == 4, "the last is a dot"
    control(explorer, "Wipe").click()
    assert (explorer.sentence, drawn) == (WHITE, [])
    upload(explorer, PNG)
    assert controls(explorer, Canvas) == []


@pytest.mark.parametrize("name", explorers.__all__)
def test_each_control_has_words_and_does_its_work_and_no_hook_is_left(name, monkeypatch):
    """By mouse and keyboard in a browser: tests/browser."""
    handles, register = [], RemovableHandle.__init__
    keep = lambda self, *given, **more: handles.append(self) or register(self, *given, **more)  # noqa: E731
    monkeypatch.setattr(RemovableHandle, "__init__", keep)
    for cached in (feature_maps.find_maps, grad_cam.run_network, guided_backprop.find_gradient):
        cached.cache_clear()
    explorer = getattr(explorers, name)(**{"start": "features.10"} if name == "GuidedBackprop" else {})
    for each in controls(explorer, (widgets.ValueWidget, widgets.Button)):
        assert each.description or isinstance(each, widgets.HTML) or each.layout.display == "none", each
    assert not controls(explorer, (widgets.Output, widgets.Accordion, widgets.Tab)), "which Colab cannot show"
    for words in {each.description for each in controls(explorer, widgets.IntSlider)}:
        slider, before = control(explorer, words, widgets.IntSlider), shown(explorer)
        slider.value = slider.min if slider.value > slider.min else min(slider.value + 1, slider.max)
        assert shown(explorer) != before or words == "Opacity %" or slider.min == slider.max, words
    assert "That does not work yet" not in shown(explorer)
    everything = controls(explorer)
    assert [everything.count(explorer.controls[part]) for part in ("picture", "sentence", "problem")] == [1, 1, 1]
    gc.collect()
    assert handles or name == "TheCase", "which only asks"
    assert not [each for each in handles if each.id in (each.hooks_dict_ref() or ())]


HOOKS = [("forward hook", "fc1"), ("full backward hook", "fc1"), ("forward pre-hook", "global")]
FLOW = ("GradientFlow", {"hooks": {"a": "times 6"}, "step": 1})
MAPS = ("FeatureMaps", {"layer": "features.13", "channel": 26, "picture": 30})
CAM = ("GradCam", {"picture": 2, "kind": "fish", "buoy": True})
STRONGEST = {"layer": None, "channel": None}
WORDS = {"buoy": "with a buoy", "kind": "Class", "start": "Start at", "normalisation": "Shown as"}


def each(name, options, **changes):
    return [(name, options, WORDS.get(key, key.title()), value, {key: value}) for key, value in changes.items()]


@pytest.mark.parametrize(
    ("name", "options", "words", "value", "change"),
    [
        *each(*FLOW, step=4),
        (*FLOW, "Graph", "square", {"graph": "square", "hooks": (), "step": 0}),
        ("ModelHooks", {"hooks": [("relu", "forward hook")]}, "Model", "residual block", {"hooks": ()}),
        *each("LifeOfACall", {"hooks": HOOKS, "step": 13}, step=14),
        ("LifeOfACall", {}, "The relu is", "raises an error", {"model": "raises an error"}),
        *each(*MAPS, picture=12, channel=5),
        (*MAPS, "Layer", "features.2", STRONGEST | {"layer": "features.2"}),
        (*MAPS, "Network", EDGES, STRONGEST | {"network": EDGES}),
        *each(*CAM, picture=5, buoy=False, kind="boat", layer="features.6"),
        (*CAM, "Opacity %", 30, {"opacity": 0.3}),
        *each("GuidedBackprop", {}, picture=2, kind="dog", start="features.10", rule="gradient"),
        *each("GuidedBackprop", {}, normalisation="zero is grey"),
        *each("Patching", {"row": 7, "column": 1}, pair=3, network="honest", layer="features.16"),
        *each("Patching", {"row": 7, "column": 1}, row=6, column=2, size=4),
    ],
)
def test_a_control_leads_to_what_opens_with_its_value(name, options, words, value, change):
    make = getattr(explorers, name)
    explorer, wanted = make(**options), make(**options | ({"model": value} if words == "Model" else {}) | change)
    faces = [faces_of(explorer), faces_of(wanted)]
    assert faces[0] != faces[1]
    control(explorer, words).value = value
    assert faces_of(explorer) == faces[1]
    assert explorer.controls["picture"].value == wanted.controls["picture"].value


def faces_of(explorer):
    """What a notebook stores: the sentence, and the SVG or the PNG with its alt text."""
    data, metadata = explorer._repr_mimebundle_()
    assert data.pop(VIEW)
    assert data["text/plain"] == explorer.sentence
    assert make_paragraph(explorer.sentence) in shown(explorer)
    if isinstance(explorer.view.picture, str):
        assert (data.keys(), metadata) == ({"text/plain", "image/svg+xml"}, {})
        assert "color:#1f1f1f;background:#ffffff" in data["image/svg+xml"]
    else:
        assert (data.keys(), metadata["image/png"]["alt"]) == ({"text/plain", "image/png"}, explorer.view.alt)
        live = explorer.controls["picture"].value.removeprefix(f'<img alt="{escape(explorer.view.alt)}" src="')
        for each in (unquote(live.split('"')[0].removeprefix("data:image/jpeg;base64,")), data["image/png"]):
            seen = torch.tensor(read_png(each)).permute(2, 0, 1) / 255
            assert (seen - explorer.view.picture).abs().mean() < 0.02
    return data, metadata


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("GradientFlow", {"graph": "two path"}, r"Graph: there is no 'two path'; did you mean 'two paths'\?"),
        ("GradientFlow", {"hooks": {"q": "print"}}, "with a gradient: there is no 'q'. There are: 'w', 'x', 'a'"),
        ("GradientFlow", {"hooks": {"a": "times 7"}}, "there is no 'times 7'; did you mean 'times [26]'"),
        ("GradientFlow", {"step": 6}, "Step is a whole number from 0 to 5, got 6"),
        ("LifeOfACall", {"model": nn.ReLU()}, "needs inputs"),
        ("LifeOfACall", {"model": nn.Sequential(*map(nn.ReLU, [False] * 8)), "inputs": 1}, "9 modules; at most 8"),
        ("LifeOfACall", {"step": 17}, "Step is a whole number from 1 to 16, got 17"),
        ("ModelHooks", {"hooks": [("relu2", "forward hook")]}, r"there is no 'relu2'; did you mean 'relu'\?"),
        ("FeatureMaps", {"layer": "features.99"}, "Layer: there is no 'features.99'; did you mean 'features.8'"),
        ("FeatureMaps", {"layer": "features.2", "channel": 24}, "Channel is a whole number from 0 to 23, got 24"),
        ("GradCam", {"picture": torch.zeros(1, 64, 64)}, r"is \(3, H, W\), got \(1, 64, 64\): see read_picture"),
        ("GradCam", {"picture": "chelsey"}, "Photographs: there is no 'chelsey'; did you mean 'chelsea'"),
        ("GradCam", {"opacity": 60}, "from 0 .picture only. to 1 .map only., got 60"),
        ("GuidedBackprop", {"rule": "xyz"}, "Rule: there is no 'xyz'. There are: 'gradient', 'deconvnet', 'guided'.$"),
        ("Patching", {"pair": "1"}, "Pair is a whole number from 1 to 6, got '1'"),
    ],
)
def test_what_there_is_not_is_named_with_what_there_is(name, options, says):
    with pytest.raises((CourseError, KeyError), match=says):
        getattr(explorers, name)(**options)
