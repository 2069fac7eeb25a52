"""What all explorers share, on a small one, and what holds for each."""

import io
import sys
from types import SimpleNamespace

import ipywidgets as widgets
import numpy as np
import pytest
import torch
from panels import control, controls, pixels_of, read_png, shown, upload
from PIL import Image

from course_utils import explorers
from course_utils.explorers.html import make_paragraph, make_problem, make_table
from course_utils.explorers.own_picture import OwnPicture
from course_utils.explorers.panel import Explorer, View, make_choice, make_slider
from course_utils.root import CourseError
from course_utils.vision.pictures import draw_strokes, put_on_white

VIEW = "application/vnd.jupyter.widget-view+json"
SVG = (
    '<svg role="img" width="80" height="9" style="color:var(--jp-ui-font-color1, currentColor)"><title>{}</title></svg>'
)


# --- the panel --------------------------------------------------------------------------------------------------------


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


def test_a_look_at_the_values_of_the_controls():
    explorer = Powers(3)
    assert explorer.sentence == "It is 8."
    control(explorer, "Base").value = "three"
    assert explorer.sentence == "It is 27."
    assert make_paragraph("It is 27.") in shown(explorer)
    assert SVG.format(27) in shown(explorer)
    assert "<i>three</i>" in shown(explorer)
    assert explorer.values == {"number": 3, "base": "three"}


def test_rows_stand_as_declared_with_the_missing_parts_below():
    kinds = [type(each).__name__ for each in Powers().widget.children]
    assert kinds == ["HBox", "Dropdown", "HTML", "Label", "HTML", "HTML", "HTML"]
    assert [each.description for each in Powers().widget.children[0].children] == ["Number", "Largest", "Other"]


def test_a_problem_is_said_and_the_last_picture_stays():
    explorer = Powers(10)
    control(explorer, "Number").value = 11
    assert make_problem("<that> is too large") in shown(explorer)
    assert "<that>" not in shown(explorer)
    assert explorer.sentence == "It is 1024."
    assert SVG.format(1024) in shown(explorer)
    control(explorer, "Number").value = 9
    assert "That does not work yet" not in shown(explorer)
    with pytest.raises(CourseError, match="too large"):
        Powers(11)


def test_what_fit_sets_is_looked_at_once():
    explorer = Powers()
    looks = explorer.looks
    control(explorer, "Largest").click()
    assert explorer.sentence == "It is 59049."
    assert explorer.looks == looks + 1
    control(explorer, "Number").value = 0
    assert explorer.sentence == "It is 1."


def test_a_control_in_the_place_of_another():
    explorer = Powers(9)
    old = control(explorer, "Number")
    control(explorer, "Other").click()
    new = control(explorer, "Number")
    assert (new.max, explorer.sentence, old.comm) == (3, "It is 4.", None)
    new.value = 3
    assert explorer.sentence == "It is 8."
    assert [each.description for each in explorer.widget.children[0].children] == ["Number", "Largest", "Other"]


def test_faces_of_a_drawing_and_of_a_sheet():
    data, metadata = Powers(3)._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/svg+xml", VIEW}
    assert "color:#1f1f1f;background:#ffffff" in data["image/svg+xml"]
    assert metadata == {}
    explorer = Powers(1, drawn=False)
    data, metadata = explorer._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png", VIEW}
    assert metadata["image/png"]["alt"] == "a grey picture"
    assert read_png(data["image/png"]).tolist() == np.full((4, 5, 3), 128).tolist()
    assert np.array_equal(pixels_of(explorer), read_png(data["image/png"]))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"number": 13}, "Number is a whole number from 0 to 12, got 13"),
        ({"number": -1}, "got -1"),
        ({"number": 1.5}, "got 1.5"),
        ({"number": "1"}, "got '1'"),
        ({"base": "tow"}, r"Base: there is no 'tow' here; did you mean 'two'\? There are: two, three"),
        ({"base": "2"}, "there is no '2' here; There are: two"),
    ],
)
def test_what_no_control_can_be_set_to_gets_a_sentence(arguments, says):
    with pytest.raises(CourseError, match=says):
        Powers(**arguments)


def test_controls_are_as_wide_as_they_are_told():
    toggles = make_choice(widgets.ToggleButtons, "Rule", ["a", "b"], "b", width=80, indent=40)
    assert (toggles.style.button_width, toggles.style.description_width, toggles.value) == ("80px", "40px", "b")
    assert make_choice(widgets.ToggleButtons, "Rule", ["a"], "a", width=0).style.button_width == "auto"
    assert make_choice(widgets.SelectionSlider, "Layer", ["a"], "a", width=90).layout.width == "90px"
    slider = make_slider("Opacity", 0, 100, 60, step=10, width=70, indent=30)
    assert (slider.layout.width, slider.style.description_width, slider.step) == ("70px", "30px", 10)


def test_words_are_escaped():
    assert "<b>x" not in make_paragraph("<b>x")
    assert "<b>x" not in make_problem("<b>x")
    assert "<b>x" not in make_table(["<b>x"], [["<b>x", "<b>x"]], "<b>x")
    assert make_problem("") == ""


# --- a picture of one's own -------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("content", "mean"),
    [
        (PNG, 0.2),
        (encode("RGB", (90, 400), "#666666", "JPEG"), 0.4),
        (encode("L", (1, 1), 51), 0.2),
        (encode("RGBA", (64, 64), (0, 0, 0, 0)), 1),
        (encode("I;16", (40, 30), 13107), 0.2),
    ],
    ids=["PNG", "JPEG", "grey pixel", "transparent", "16-bit"],
)
def test_a_picture_is_uploaded_and_left_again(content, mean):
    explorer = Upload()
    back = control(explorer, "Back to the course's pictures")
    assert back.layout.display == "none"
    upload(explorer, content)
    assert explorer.sentence == f"(3, 60, 60) {mean:.3f}"
    assert control(explorer, "Your own picture").value == (), "no file is saved with the notebook"
    assert back.layout.display is None
    back.click()
    assert explorer.sentence == "none"
    assert back.layout.display == "none"


@pytest.mark.parametrize("content", [b"", b"hello", PNG[:60]], ids=["empty", "text", "cut off"])
def test_a_bad_upload_gets_a_sentence_each_time_and_the_picture_stays(content):
    explorer = Upload(torch.zeros(3, 60, 60))
    assert control(explorer, "Back to the course's pictures").layout.display is None
    for _ in range(2):
        upload(explorer, content)
        assert "That does not work yet." in shown(explorer)
        assert "picture" in shown(explorer).partition("not work yet.")[2]
        assert explorer.sentence == "(3, 60, 60) 0.000"
        upload(explorer, PNG)
        assert "That does not work yet." not in shown(explorer)
        control(explorer, "Back to the course's pictures").click()
        explorer.controls["own"].value = torch.zeros(3, 60, 60)


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


def test_a_drawing_is_shown_stroke_by_stroke(pad):
    (canvas,) = controls(pad, Canvas)
    assert pad.sentence == "(3, 60, 60) 1.000"
    canvas.play(("mouse_move", 5, 5), ("mouse_down", 15, 30), ("mouse_move", 30, 30), ("mouse_move", 45, 30))
    assert pad.sentence == "(3, 60, 60) 1.000"
    canvas.play(("mouse_up", 45, 30), ("mouse_move", 0, 0))
    assert canvas.drawn == [(15, 30, 30, 30), (30, 30, 45, 30)]
    assert torch.equal(pad.values["own"], put_on_white(draw_strokes([((25, 50), (50, 50), (75, 50))], size=60)))


def test_a_finger_and_a_dot_draw_too_and_all_can_be_wiped(pad):
    (canvas,) = controls(pad, Canvas)
    canvas.play(("touch_start", [(5, 5)]), ("touch_move", [(50, 40)]), ("touch_end", []))
    line = pad.sentence
    canvas.play(("mouse_down", 15, 15), ("mouse_out", 15, 15))
    assert len({"(3, 60, 60) 1.000", line, pad.sentence}) == 3
    control(pad, "Wipe").click()
    assert pad.sentence == "(3, 60, 60) 1.000"
    assert canvas.drawn == []


def test_the_pad_goes_with_the_drawing(pad):
    control(pad, "Back to the course's pictures").click()
    assert controls(pad, Canvas) == []
    assert pad.sentence == "none"
    control(pad, "Draw one").click()
    upload(pad, PNG)
    assert controls(pad, Canvas) == []


def test_without_ipycanvas_drawing_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipycanvas", None)
    explorer = Upload()
    control(explorer, "Draw one").click()
    assert "Drawing needs the package ipycanvas: run %pip install ipycanvas" in shown(explorer)
    assert explorer.sentence == "none"


# --- every explorer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", explorers.__all__)
def test_each_control_has_words_and_does_its_work(name):
    """By mouse and keyboard in a browser: tests/browser."""
    explorer = getattr(explorers, name)()
    assert not controls(explorer, widgets.Output)
    named = (widgets.ValueWidget, widgets.Button)
    for each in controls(explorer, named):
        if not isinstance(each, widgets.HTML) and each.layout.display != "none":
            assert each.description, each
    for words in {each.description for each in controls(explorer, widgets.IntSlider)} - {"Opacity %"}:
        slider = control(explorer, words, widgets.IntSlider)
        if slider.max > slider.min:
            before = shown(explorer)
            slider.value = slider.min if slider.value > slider.min else slider.value + 1
            assert shown(explorer) != before, words
    assert "That does not work yet" not in shown(explorer)


@pytest.mark.parametrize("name", explorers.__all__)
def test_what_a_notebook_stores_is_the_same_every_time(name):
    (first, metadata), (second, again) = (getattr(explorers, name)()._repr_mimebundle_() for _ in range(2))
    assert first.pop(VIEW)["model_id"] != second.pop(VIEW)["model_id"]
    assert (first, metadata) == (second, again)
    assert first["text/plain"] == getattr(explorers, name)().sentence
    assert "image/svg+xml" in first or metadata["image/png"]["alt"]
