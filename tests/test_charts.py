"""Bar charts: their numbers in every face, their form, and the errors for what cannot be drawn."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from course_utils.vision.charts import BAR_WIDTH, WIDTH, bars

SVG = "{http://www.w3.org/2000/svg}"


def chart(**changes):
    given = {"values": [18, 16, 2, 0], "labels": ["a", "b & c", "d", "e"], "title": "b < a", "unit": "MiB"}
    return bars(**(given | changes))


def test_bars_are_as_long_as_their_values():
    root = ElementTree.fromstring(chart().svg)
    lengths = [float(bar.get("width")) for bar in root.iter(f"{SVG}rect")]
    assert lengths == pytest.approx([BAR_WIDTH, BAR_WIDTH * 16 / 18, BAR_WIDTH * 2 / 18, 1], abs=0.1)


def test_the_picture_says_its_numbers_in_text():
    root = ElementTree.fromstring(chart().svg)
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert texts == ["b < a", "a", "18 MiB", "b & c", "16 MiB", "d", "2 MiB", "e", "0 MiB"]


def test_the_plain_face_has_the_same_numbers_in_columns():
    assert str(chart()) == "b < a\n  a      18 MiB\n  b & c  16 MiB\n  d      2 MiB\n  e      0 MiB"
    assert repr(chart()) == str(chart())


def test_both_faces_are_in_the_bundle():
    assert chart()._repr_mimebundle_() == {"text/plain": str(chart()), "text/html": chart().svg}


def test_a_screen_reader_gets_title_and_description():
    root = ElementTree.fromstring(chart(alt="two long bars").svg)
    assert (root.get("role"), root.get("aria-label")) == ("img", "b < a")
    assert root.find(f"{SVG}title").text == "b < a"
    assert root.find(f"{SVG}desc").text == "two long bars"
    assert (
        ElementTree.fromstring(chart().svg).find(f"{SVG}desc").text == "a: 18 MiB; b & c: 16 MiB; d: 2 MiB; e: 0 MiB."
    )


def test_text_takes_the_colour_of_the_page():
    root = ElementTree.fromstring(chart().svg)
    assert root.get("fill") == "currentColor"
    assert all(element.get("fill") is None for element in root.iter(f"{SVG}text"))


def test_the_bar_colour_is_seen_on_white_and_on_near_black():
    red, green, blue = (int(part, 16) / 255 for part in re.search('fill="#(..)(..)(..)"', chart().svg).groups())

    def linear(part):
        return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4

    light = 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
    assert 1.05 / (light + 0.05) > 3
    assert (light + 0.05) / (linear(0x11 / 255) + 0.05) > 3


def test_every_number_fits_beside_its_bar():
    root = ElementTree.fromstring(chart(values=[999_999, 0.1234567, 1e20, 3], unit="").svg)
    for text in root.iter(f"{SVG}text"):
        if text.get("font-weight") == "600" and text.get("y") != "22":
            assert float(text.get("x")) + 9 * len(text.text) <= WIDTH


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (3.0, "3"), (2.0625, "2.062"), (999_999, "999999"), (16_777_216, "1.678e+07")]
)
def test_numbers_are_short(value, text):
    assert str(bars([value], ["x"], "t")) == f"t\n  x  {text}"


def test_only_zeros_can_be_drawn():
    root = ElementTree.fromstring(bars([0, 0], ["a", "b"], "nothing").svg)
    assert [bar.get("width") for bar in root.iter(f"{SVG}rect")] == ["1", "1"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ["a"]}, "4 values with 1 labels: give each value one label"),
        ({"values": [], "labels": []}, "at least one"),
        ({"values": [1, -2, 3, 4]}, "the value of 'b & c' is -2"),
        ({"values": [1, 2, float("nan"), 4]}, "the value of 'd' is nan"),
        ({"values": [1, 2, 3, float("inf")]}, "the value of 'e' is inf"),
        ({"title": " "}, "the title is empty"),
    ],
)
def test_what_cannot_be_drawn_is_said(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        chart(**changes)
