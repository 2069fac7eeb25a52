"""Charts: what their plain text says, that they are pictures with words, and the errors for what cannot be drawn."""

import math

import pytest
import torch

from course_utils.lessons.figures import draw_attention, draw_cascade, draw_rules
from course_utils.root import CourseError
from course_utils.vision.charts import bars
from course_utils.vision.pictures import read_picture

CHART = {"values": [18, 16, 2, 0], "labels": ["a", "b & c", "d", "e"], "title": "b < a", "unit": "MiB"}


def test_bars_are_as_long_as_their_values():
    red, _, blue = read_picture(bars(**CHART).data)
    lengths = [0, *(blue - red > 0.4).sum(1).tolist()]
    starts = [n for n in range(1, len(lengths)) if lengths[n] and not lengths[n - 1]]
    found = [max(lengths[n : n + 5]) for n in starts]  # the first row of a bar may be half as blue
    assert found == pytest.approx([found[0], found[0] * 16 / 18, found[0] * 2 / 18], abs=2)  # and none for the 0


def test_the_plain_text_has_the_numbers_in_columns_and_a_screen_reader_gets_a_sentence():
    assert repr(bars(**CHART)) == "b < a\n  a      18 MiB\n  b & c  16 MiB\n  d      2 MiB\n  e      0 MiB"
    assert bars(**CHART).alt == "a: 18 MiB; b & c: 16 MiB; d: 2 MiB; e: 0 MiB."
    assert bars(**CHART, alt="two long bars").alt == "two long bars"
    short = bars([0, 3.0, 2.0625, 999_999, 16_777_216], "abcde", "t")
    assert repr(short) == "t\n  a  0\n  b  3\n  c  2.062\n  d  999999\n  e  1.678e+07"
    assert repr(bars([0], ["a"], "nothing")) == "nothing\n  a  0"


def test_what_cannot_be_drawn_is_said():
    for values, labels in (([1, 2], ["a"]), ([], [])):
        with pytest.raises(CourseError, match=f"got {len(values)} values and {len(labels)} labels"):
            bars(values, labels, "title")
    for bad in (-2, math.nan, math.inf):
        with pytest.raises(CourseError, match="the value of 'b' is no length"):
            bars([1, bad, 0], "abc", "title")


def test_attention_says_the_same_in_words_and_numbers():
    drawn = draw_attention(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]), ["the", "b"], ["head"], "One & all", "A table.")
    assert repr(drawn).splitlines() == ["One & all", "head:", "  the  1.00  0.00", "  b    0.25  0.75"]
    assert drawn.alt == "A table."
    with pytest.raises(CourseError, match=r"1 labels and 1 words go with \(1, 1, 1\), got \(1, 2, 2\)"):
        draw_attention(torch.zeros(1, 2, 2), ["a"], ["head"], "title", "alt")


def test_each_rule_lets_through_what_its_formula_says():
    drawn = draw_rules((5, 1, 0), (2, -3, 4), "Gates")
    assert repr(drawn).splitlines() == [
        "Gates",
        "  unit  puts out f  arriving R   backprop  deconvnet     guided",
        "     1           5           2          2          2          2",
        "     2           1          -3         -3          0          0",
        "     3           0           4          0          4          0",
    ]
    assert "backprop lets through 2, -3, 0; deconvnet lets through 2, 0, 4; guided lets through 2, 0, 0." in drawn.alt


def test_a_cascade_draws_every_curve_and_says_its_words():
    curves = {"a": [1, 0.5], "b": [0.9, 0.8], "c": [0, 0], "d": [0.3, -0.1]}
    one, four = (draw_cascade(["x", "y"], dict(list(curves.items())[:n]), "Title", "They fall.") for n in (1, 4))
    assert repr(four) == four.alt == "They fall."
    pixels, fewer = (read_picture(each.data) for each in (four, one))
    assert (pixels[:, 0] == 1).all()
    assert b"matplotlib" not in four.data  # the same picture has the same bytes with its next version
    assert len(pixels.flatten(1).unique(dim=1)[0]) > len(fewer.flatten(1).unique(dim=1)[0])  # colours
