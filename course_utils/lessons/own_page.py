"""What a network saw in one's own picture, as a page to keep and to send: one file, with nothing outside of it."""

from __future__ import annotations

import base64
from dataclasses import replace

import torch

from course_utils.exercises.saved_progress import location
from course_utils.hooks.record import record
from course_utils.lessons import own
from course_utils.root import write_whole
from course_utils.show import Note, page_templates
from course_utils.vision.kept_picture import find_kept
from course_utils.vision.pictures import Picture, show
from course_utils.vision.real import REAL, collage

FILE = "what_my_network_saw.html"
PLACEHOLDER = ("chelsea", "coffee")  # two photographs of the course, side by side
PLACEHOLDER_NOTE = "It shows a picture of the course. Choose one of your own in an explorer of lesson 05, 06 or 07."
MAPS = "blocks.4.2.bn2"  # a layer in the middle of the real network, whose maps are finer than the last ones


def make_page() -> str:
    """Return the page as HTML: about the learner's own picture, or about a placeholder, which it says.

    The words are in `assets/own_page.html.j2`; each picture and each number is made here, by the real network.
    """
    last = own.look_at(REAL, find_kept() or collage(*PLACEHOLDER)[0])
    with torch.no_grad(), record(last.network.model, MAPS) as seen:
        last.network.model(last.batch)
    middle = replace(last, layer=MAPS, maps=seen[MAPS].output[0])
    pictures = {
        "said": show(last.shown, alt=f"The picture that the network was asked about. It says: {last.said}.", jpeg=True),
        "channels": own.show_strongest_maps(middle, titled=False),
        "gradients": own.show_gradients(last, titled=False),
        "grad_cams": own.show_grad_cams(last, titled=False),
        "rather": own.show_rather(last),
        "squares": own.show_grey_squares(last),
    }
    sources = {name: _embed(picture) for name, picture in pictures.items()}
    page = page_templates().get_template("own_page.html.j2")
    return page.render(own=last, middle=middle, pictures=pictures, sources=sources, chosen=bool(find_kept()))


def _embed(picture: Picture) -> str:
    """The picture as an address that holds all of it."""
    return f"data:{picture.kind};base64,{base64.b64encode(picture.data).decode('ascii')}"


def write_page() -> Note:
    """Write the page beside the lessons, and say where it is. Outside a learner's folder, none is made."""
    place = location()
    if place is None:
        return Note("There is no place for the page here: open the lessons with `make lab`.")
    write_whole(place.with_name(FILE), make_page())
    lines = ["Open it by a double click in the list of files. It is one file, and you can send it to anybody."]
    lines += [] if find_kept() else [PLACEHOLDER_NOTE]
    return Note(f"Your page is {FILE}, beside your lessons.", tuple(lines), symbol="✓")
