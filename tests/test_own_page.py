"""The page about one's own picture, and the picture that all lessons find again."""

import base64
import io
import re

import pytest
import torch
from bs4 import BeautifulSoup
from panels import upload
from PIL import Image

from course_utils.explorers.own_picture import OWN, OwnPicture
from course_utils.lessons import own
from course_utils.lessons.own_page import FILE, PLACEHOLDER_NOTE, write_page
from course_utils.scenes.scene import KINDS, scene
from course_utils.vision.kept_picture import find_kept
from course_utils.vision.pictures import png, read_picture
from course_utils.vision.real import REAL, photograph

PARTS = ["What it says", "What its channels answer to", "Which pixels matter", "Where it looks",
         "One answer rather than another", "An experiment"]  # fmt: skip


def test_a_picture_is_chosen_once_and_found_in_the_next_lesson(work):
    assert find_kept() == ""
    upload(OwnPicture(), png(photograph("coffee")))
    in_the_next_lesson = OwnPicture()
    assert in_the_next_lesson.value is None, "a lesson begins with its own pictures"
    in_the_next_lesson.choice.value = OWN
    assert (in_the_next_lesson.value.image - photograph("coffee")).abs().mean() < 0.01
    assert in_the_next_lesson.problem == ""
    assert own.look_at("picture_net", find_kept()).network.name == REAL


def test_a_drawing_is_kept_too_and_an_empty_square_is_not(work):
    own = OwnPicture(drawing=True)
    own.children[-1].click()  # Draw one
    assert find_kept() == ""
    canvas = own.pad.children[0].children[0]
    for name, x in (("mouse_down", 45), ("mouse_move", 135), ("mouse_up", 135)):
        canvas._handle_frontend_event(canvas, {"event": name, "x": x, "y": 90}, [])
    in_the_next_lesson = OwnPicture()
    in_the_next_lesson.choice.value = OWN
    image = in_the_next_lesson.value.image
    assert (image[:, 112, 112].max() < 0.1, image[:, 20].min() > 0.9) == (True, True), "a black line across the middle"


def test_without_a_learners_folder_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    upload(OwnPicture(), png(photograph("coffee")))
    assert find_kept() == ""
    assert list(tmp_path.iterdir()) == []


def test_grey_squares_cost_what_a_second_computation_says():
    look = own.look_at("picture_net", scene("cat", "dog", seed=6).image)
    boxes, (before, *shares) = own.cover_parts(look)
    assert len(boxes) == len(shares) == 9
    assert before == pytest.approx(dict(look.best)["cat"], abs=1e-5)
    for (top, bottom, left, right), share in zip(boxes, shares, strict=True):
        covered = look.shown.clone()
        covered[:, top:bottom, left:right] = 0.5
        logit = look.network.model(covered[None])[0, KINDS.index("cat")]
        assert share == pytest.approx(logit.sigmoid().item(), abs=1e-5)
    words = own.show_grey_squares(look).alt
    assert words.startswith("Uncovered, cat gets 100%. With one of 9 grey squares on the picture, it gets ")
    assert f"it gets {min(shares):.0%} to {max(shares):.0%}, {sorted(shares)[4]:.0%} in the median." in words


@pytest.mark.slow
def test_the_page_has_all_parts_with_words_and_nothing_outside_of_it(work):
    assert write_page().lines[-1] == PLACEHOLDER_NOTE
    text = (work / FILE).read_text(encoding="utf-8")
    assert "This is a picture of the course, in the place of one of your own." in text
    assert "espresso rather than Egyptian cat, and Egyptian cat rather than espresso" in text
    upload(OwnPicture(), png(photograph("chelsea")))
    note = write_page()
    assert str(note).startswith(f"Your page is {FILE}")
    assert PLACEHOLDER_NOTE not in str(note)
    text = (work / FILE).read_text(encoding="utf-8")
    page = BeautifulSoup(text, "html.parser")
    assert [heading.contents[1].strip() for heading in page("h2")] == PARTS
    assert len(page(class_="caution")) == len(PARTS)
    assert not page(["script", "link", "iframe"])
    assert not re.search(r"""(?:https?:)?//\w|url\(|@import|src="(?!data:)""", re.sub(r"base64,[\w+/=]+", "", text))
    for image in page("img"):
        assert len(image["alt"]) > 20
        kind, data = re.fullmatch(r"data:image/(\w+);base64,(.+)", image["src"]).groups()
        assert Image.open(io.BytesIO(base64.b64decode(data))).format.lower() == kind
    network = own.look_at(REAL, find_kept()).network
    kept = network.transform(read_picture(find_kept()))[None]
    with torch.no_grad():
        name, share = network.best(network.model(kept)[0], 1)[0]
    assert name == "Egyptian cat"
    assert f"Its five likeliest answers: {name} {share:.0%}, tiger cat " in text
    assert f"Uncovered, {name} gets {share:.0%}." in text


def test_rather_compares_the_likeliest_class_with_a_likely_one_that_lies_elsewhere():
    words = own.show_rather(own.look_at("picture_net", scene("cat", "dog", seed=6).image)).alt
    assert words == "Two maps over the picture: cat rather than dog, and dog rather than cat."
