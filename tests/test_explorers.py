"""What all explorers share, on a small one; a picture of one's own; and what the panel promises, for all seven."""

import gc
import io
import sys
from types import SimpleNamespace

import ipywidgets as widgets
import numpy as np
import pytest
import torch
from panels import control, controls, read_png, shown, upload
from PIL import Image
from torch import nn
from torch.utils.hooks import RemovableHandle

from course_utils import explorers
from course_utils.explorers import feature_maps, grad_cam, guided_backprop
from course_utils.explorers.markup import make_paragraph, make_problem, make_table
from course_utils.explorers.own_picture import OwnPicture
from course_utils.explorers.panel import Explorer, View, make_choice, make_slider
from course_utils.root import CourseError
from course_utils.vision.pictures import draw_strokes, put_on_white
from course_utils.vision.toys import EDGES

VIEW = "application/vnd.jupyter.widget-view+json"
SVG = (
    '<svg role="img" width="80" height="9" style="color:var(--jp-ui-font-color1, currentColor)"><title>{}</title></svg>'
)


class Powers(Explorer):
    """2 or 3 to the power of a number, up to 10. "Largest" goes to the end, "Other" makes a slider that ends at 3."""

    def __init__(self, number=1, base="two", drawn=True):
        self.drawn, self.looks = drawn, 0
        slider = make_slider("Number", 0, 12, number)
        choice = make_choice(widgets.Dropdown, "Base", {"2": "two", "3": "three"}, base)
        largest, other = (widgets.Button(description=words) for words in ("Largest", "Other"))
        everything = {"number": slider, "base": choice, "largest": largest, "other": other, "note": widgets.HTML()}
        super().__init__(
            everything, [("number", "largest", "other"), "base", "picture", widgets.Label("words"), "note"]
        )

    def fit(self, name):
        if name == "largest":
            self.controls["base"].value = "three"
            self.controls["number"].value = 10
        if name == "other":
            self.put("number", make_slider("Number", 0, 3, 2))

    def look(self, number, base):
        self.looks += 1
        if number > 10:
            raise CourseError("<that> is too large")
        result = {"two": 2, "three": 3}[base] ** number
        picture = SVG.format(result) if self.drawn else torch.full((3, 4, 5), 1 / result)
        return View(picture, f"It is {result}.", "a grey picture", more={"note": f"<i>{base}</i>"})


def test_the_panel_has_its_rows_and_looks_at_the_values_of_its_controls():
    explorer = Powers(3)
    kinds = [type(each).__name__ for each in explorer.widget.children]
    assert kinds == ["HBox", "Dropdown", "HTML", "Label", "HTML", "HTML", "HTML"]
    assert explorer.sentence == "It is 8."
    control(explorer, "Base").value = "three"
    assert explorer.sentence == "It is 27."
    assert all(words in shown(explorer) for words in (make_paragraph("It is 27."), SVG.format(27), "<i>three</i>"))
    assert explorer.values == {"number": 3, "base": "three"}


def test_a_problem_is_said_and_the_last_picture_stays():
    explorer = Powers(10)
    control(explorer, "Number").value = 11
    assert make_problem("<that> is too large") in shown(explorer)
    assert "<that>" not in shown(explorer)
    assert SVG.format(1024) in shown(explorer)
    assert explorer.sentence == "It is 1024."
    control(explorer, "Number").value = 9
    assert "That does not work yet" not in shown(explorer)
    with pytest.raises(CourseError, match="too large"):
        Powers(11)


def test_what_fit_changes_is_looked_at_once_and_a_new_control_takes_the_place_of_another():
    explorer = Powers()
    looks, old = explorer.looks, control(explorer, "Number")
    control(explorer, "Largest").click()
    assert (explorer.sentence, explorer.looks) == ("It is 59049.", looks + 1)
    control(explorer, "Other").click()
    new = control(explorer, "Number")
    assert (new.max, explorer.sentence, old.comm) == (3, "It is 9.", None)
    new.value = 3
    assert explorer.sentence == "It is 27."
    assert [each.description for each in explorer.widget.children[0].children] == ["Number", "Largest", "Other"]


def test_faces_of_a_drawing_and_of_a_sheet():
    data, metadata = Powers(3)._repr_mimebundle_()
    assert (set(data), metadata) == ({"text/plain", "image/svg+xml", VIEW}, {})
    assert "color:#1f1f1f;background:#ffffff" in data["image/svg+xml"]
    explorer = Powers(1, drawn=False)
    data, metadata = explorer._repr_mimebundle_()
    assert (set(data), metadata["image/png"]["alt"]) == ({"text/plain", "image/png", VIEW}, "a grey picture")
    assert read_png(data["image/png"]).tolist() == np.full((4, 5, 3), 128).tolist()
    assert '<img alt="a grey picture" src="data:image/png;base64,' in shown(explorer)


def test_words_are_escaped_and_no_problem_has_no_box():
    markup = make_paragraph("<b>x") + make_problem("<b>x") + make_table(["<b>x"], [["<b>x", "<b>x"]], "<b>x")
    assert (markup.count("<b>x"), markup.count("&lt;b&gt;x"), make_problem("")) == (0, 6, "")


WHITE = "(3, 60, 60) 1.000"


class Upload(Explorer):
    """The mean colour of a picture of one's own."""

    def __init__(self, own=None):
        own = OwnPicture(60, own, drawing=True)
        super().__init__({"own": own}, ["own", own.pad])

    def look(self, own):
        return View(SVG.format("x"), "none" if own is None else f"{tuple(own.shape)} {own.mean().item():.3f}")


def encode(mode, size, colour, format="PNG"):
    buffer = io.BytesIO()
    Image.new(mode, size, colour).save(buffer, format)
    return buffer.getvalue()


PNG = encode("RGB", (300, 200), "#333333")


def test_a_picture_is_uploaded_and_left_again():
    explorer = Upload()
    back = control(explorer, "Back to the course's pictures")
    assert back.layout.display == "none"
    upload(explorer, PNG)
    assert explorer.sentence == "(3, 60, 60) 0.200"
    assert control(explorer, "Your own picture").value == (), "no file is saved with the notebook"
    assert back.layout.display is None
    back.click()
    assert (explorer.sentence, back.layout.display) == ("none", "none")


@pytest.mark.parametrize("content", [b"hello", PNG[:60]], ids=["text", "cut off"])
def test_a_bad_upload_gets_a_sentence_each_time_and_the_picture_stays(content):
    explorer = Upload(torch.ones(3, 60, 60))
    assert control(explorer, "Back to the course's pictures").layout.display is None
    for _ in range(2):
        upload(explorer, content)
        assert "picture" in shown(explorer).partition("That does not work yet.")[2]
        assert explorer.sentence == WHITE
        upload(explorer, PNG)
        assert "That does not work yet." not in shown(explorer)
        explorer.controls["own"].value = torch.ones(3, 60, 60)


class Canvas(widgets.Box):
    """ipycanvas.Canvas as far as the pad uses it, with `play` in the place of a mouse."""

    def __init__(self, **_):
        super().__init__()
        self.handlers, self.drawn = {}, []

    def __getattr__(self, name):
        if name.startswith(("on_mouse_", "on_touch_")):
            return lambda handler: self.handlers.update({name[3:]: handler})
        raise AttributeError(name)

    def fill_rect(self, *box):
        self.drawn.clear()

    def stroke_line(self, *ends):
        self.drawn.append(ends)

    def play(self, *events):
        for name, *where in events:
            self.handlers[name](*where)


@pytest.fixture
def pad(monkeypatch):
    """An explorer with its drawing pad open."""
    monkeypatch.setitem(sys.modules, "ipycanvas", SimpleNamespace(Canvas=Canvas))
    explorer = Upload()
    control(explorer, "Draw one").click()
    return explorer


def test_a_drawing_is_shown_stroke_by_stroke_and_wiped(pad):
    (canvas,) = controls(pad, Canvas)
    canvas.play(("mouse_move", 5, 5), ("mouse_down", 15, 30), ("mouse_move", 30, 30), ("mouse_move", 45, 30))
    assert pad.sentence == WHITE
    canvas.play(("mouse_up", 45, 30), ("mouse_move", 0, 0), ("mouse_out", 0, 0))
    assert canvas.drawn == [(15, 30, 30, 30), (30, 30, 45, 30)]
    drawing = put_on_white(draw_strokes([((25, 50), (50, 50), (75, 50))], size=60))
    assert torch.allclose(pad.values["own"], drawing, atol=1e-6)
    line = pad.sentence
    canvas.play(("touch_start", [(5, 5)]), ("touch_move", [(50, 40)]), ("touch_end", []))
    both = pad.sentence
    canvas.play(("mouse_down", 15, 15), ("mouse_out", 15, 15))  # a dot
    assert len({WHITE, line, both, pad.sentence}) == 4
    control(pad, "Wipe").click()
    assert (pad.sentence, canvas.drawn) == (WHITE, [])
    upload(pad, PNG)
    assert controls(pad, Canvas) == []


def test_without_ipycanvas_drawing_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipycanvas", None)
    explorer = Upload()
    control(explorer, "Draw one").click()
    assert "Drawing needs the package ipycanvas: run %pip install ipycanvas" in shown(explorer)
    assert explorer.sentence == "none"


@pytest.mark.parametrize("name", explorers.__all__)
def test_each_control_has_words_and_does_its_work_and_no_hook_is_left(name, monkeypatch):
    """By mouse and keyboard in a browser: tests/browser."""
    handles, register = [], RemovableHandle.__init__
    monkeypatch.setattr(
        RemovableHandle, "__init__", lambda self, *a, **more: handles.append(self) or register(self, *a, **more)
    )
    for cached in (feature_maps.find_maps, grad_cam.run_network, guided_backprop.find_gradient):
        cached.cache_clear()
    explorer = getattr(explorers, name)(**{"start": "features.10"} if name == "GuidedBackprop" else {})
    for each in controls(explorer, (widgets.ValueWidget, widgets.Button)):
        assert each.description or isinstance(each, widgets.HTML) or each.layout.display == "none", each
    for words in {each.description for each in controls(explorer, widgets.IntSlider)}:
        slider, before = control(explorer, words, widgets.IntSlider), shown(explorer)
        slider.value = slider.min if slider.value > slider.min else min(slider.value + 1, slider.max)
        assert shown(explorer) != before or words == "Opacity %" or slider.min == slider.max, words
    assert "That does not work yet" not in shown(explorer)
    gc.collect()
    assert handles
    assert not [each for each in handles if each.id in (each.hooks_dict_ref() or ())]


HOOKS = [("forward hook", "fc1"), ("full backward hook", "fc1"), ("forward pre-hook", "global")]
FLOW = ("GradientFlow", {"hooks": {"a": "times 6"}, "step": 1})
MAPS = ("FeatureMaps", {"layer": "features.13", "channel": 26, "picture": 30})
CAM = ("GradCam", {"picture": 2, "kind": "fish", "buoy": True})
PATCH = ("Patching", {"row": 7, "column": 1})
STRONGEST = {"layer": None, "channel": None}


@pytest.mark.parametrize(
    ("name", "options", "words", "value", "change"),
    [
        (*FLOW, "Step", 4, {"step": 4}),
        (*FLOW, "Graph", "square", {"graph": "square", "hooks": (), "step": 0}),
        ("ModelHooks", {"hooks": [("relu", "forward hook")]}, "Model", "residual block", {"hooks": ()}),
        ("LifeOfACall", {"hooks": HOOKS, "step": 13}, "Step", 14, {"step": 14}),
        ("LifeOfACall", {}, "The relu is", "raises an error", {"model": "raises an error"}),
        (*MAPS, "Picture", 12, {"picture": 12}),
        (*MAPS, "Layer", "features.2", STRONGEST | {"layer": "features.2"}),
        (*MAPS, "Channel", 5, {"channel": 5}),
        (*MAPS, "Network", EDGES, STRONGEST | {"network": EDGES}),
        (*CAM, "Picture", 5, {"picture": 5}),
        (*CAM, "with a buoy", False, {"buoy": False}),
        (*CAM, "Class", "boat", {"kind": "boat"}),
        (*CAM, "Layer", "features.6", {"layer": "features.6"}),
        (*CAM, "Opacity %", 30, {"opacity": 0.3}),
        ("GuidedBackprop", {}, "Picture", 2, {"picture": 2}),
        ("GuidedBackprop", {}, "Class", "dog", {"kind": "dog"}),
        ("GuidedBackprop", {}, "Start at", "features.10", {"start": "features.10"}),
        ("GuidedBackprop", {}, "Rule", "gradient", {"rule": "gradient"}),
        ("GuidedBackprop", {}, "Shown as", "zero is grey", {"normalisation": "zero is grey"}),
        (*PATCH, "Pair", 3, {"pair": 3}),
        (*PATCH, "Network", "honest", {"network": "honest"}),
        (*PATCH, "Layer", "features.16", {"layer": "features.16"}),
        (*PATCH, "Row", 6, {"row": 6}),
        (*PATCH, "Column", 2, {"column": 2}),
        (*PATCH, "Size", 4, {"size": 4}),
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
    assert "image/svg+xml" in data or metadata["image/png"]["alt"]
    assert make_paragraph(data["text/plain"]) in shown(explorer)
    return data, metadata


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("GradientFlow", {"graph": "two path"}, r"Graph: there is no 'two path' here; did you mean 'two paths'\?"),
        ("GradientFlow", {"hooks": {"q": "print"}}, "no tensor with a gradient called 'q'; there is 'w', 'x', 'a'"),
        ("GradientFlow", {"hooks": {"a": "times 7"}}, r"There is no hook 'times 7'; .*Did you mean 'times [26]'\?"),
        ("GradientFlow", {"step": 6}, "There is no step 6: backward through this graph has the steps 0 to 5"),
        ("LifeOfACall", {"model": nn.ReLU()}, "needs inputs"),
        ("LifeOfACall", {"model": nn.Sequential(*map(nn.ReLU, [False] * 8)), "inputs": 1}, "9 modules; at most 8"),
        ("LifeOfACall", {"hooks": [("hook", "fc1")]}, "no hook kind 'hook'"),
        ("LifeOfACall", {"step": 17}, "no step 17: this call has the steps 1 to 16"),
        ("LifeOfACall", {"step": 0}, "no step 0"),
        ("ModelHooks", {"hooks": [("relu2", "forward hook")]}, r"no module 'relu2'; .* Did you mean 'relu'\?"),
        ("ModelHooks", {"hooks": [("relu", "backward hook")]}, "no kind of hook 'backward hook'; .* Did you"),
        ("ModelHooks", {"hooks": [("relu", "forward hook", "one")]}, "no effect 'one'; there is 'look', 'replace"),
        ("FeatureMaps", {"network": "alexnett"}, "Network: there is no 'alexnett' here; did you mean 'alexnet'"),
        ("FeatureMaps", {"layer": "features.99"}, "Layer: there is no 'features.99' here; did you mean 'features.8'"),
        ("FeatureMaps", {"layer": "features.2", "channel": 24}, "Channel is a whole number from 0 to 23, got 24"),
        ("GradCam", {"picture": torch.zeros(3, 64, 64)}, r"\(3, 64, 64\): read_picture\(file, size=112\)"),
        ("GradCam", {"kind": "fisch"}, "Class: there is no 'fisch' here; did you mean 'fish'"),
        ("GradCam", {"opacity": 60}, "from 0 .picture only. to 1 .map only., got 60"),
        ("GuidedBackprop", {"rule": "xyz"}, "Rule: there is no 'xyz' here; There are: gradient, deconvnet, guided$"),
        ("Patching", {"pair": "1"}, "Pair is a whole number from 1 to 6, got '1'"),
        ("Patching", {"size": 0}, "Size is a whole number from 1 to 14"),
    ],
)
def test_what_there_is_not_is_named_with_what_there_is(name, options, says):
    with pytest.raises((CourseError, KeyError), match=says):
        getattr(explorers, name)(**options)
