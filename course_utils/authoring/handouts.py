"""Handouts: a lesson as one HTML file to read or print; run again where another network or picture is wanted."""

from __future__ import annotations

import html
import re
from pathlib import Path

from nbformat import NotebookNode

from course_utils.authoring import build, page
from course_utils.authoring.editions import (
    BUILD,
    choose_lessons,
    read_built,
    title_of,
)
from course_utils.authoring.source import LessonError, learner, tags_of
from course_utils.root import CourseError

FOLDER = BUILD / "handout"
SECTION = "Your network, your picture"
PARAMETERS = ("own_network", "own_image", "own_layer")


def write_handout(
    source: Path, network: str = "", image: str = "", layer: str = "", folder: Path | None = None
) -> tuple[Path, str]:
    """Write the lesson `source` as HTML into `folder` (build/handout); returns the file and a sentence about it.

    Without network, picture and layer it is the lesson as it was built. With one of them, the lesson is run again by
    papermill, and its section "Your network, your picture" shows what that network makes of that picture.
    Raises `CourseError` for a lesson without this section, an unknown network, a picture that cannot be read, damaged
    weights, a layer without maps; nothing is written then.
    """
    folder = folder or FOLDER
    chosen = {name: value for name, value in zip(PARAMETERS, (network, image, layer), strict=True) if value}
    if not chosen:
        page = make_page(read_built(source))
        return page.write_page(page, folder / f"{source.stem}.html"), "the lesson as a page, as it was built."
    _refuse_other_lessons(source)
    picture = _check_picture(image) if image else None
    note = _fetch_network(network) if network else ""
    _try_first(network, picture, layer)
    notebook = _run(source, chosen, picture)
    about = [note, f"The picture is {picture.name}." if picture else ""]
    page = make_page(notebook, " ".join(part for part in about if part))
    named = (network, picture.stem if picture else "", layer)
    words = "-".join(re.sub(r"[^\w.]+", "_", part) for part in named if part)
    path = page.write_page(page, folder / f"{source.stem}-{words}.html")
    return path, f"the lesson, run with your choice. See {SECTION!r} in it. {note}".strip()


def make_page(notebook: NotebookNode, about: str = "") -> str:
    """The page of a run lesson; with `about`, a box on top says so and leads to the section that it is about."""
    flat = page.flatten_outputs(notebook)
    page.settle_predictions(flat)
    box = ""
    if about:
        place = SECTION.replace(" ", "-")
        box = f'<p class="about">{html.escape(about)} What it shows: <a href="#{place}">{SECTION}</a>.</p>'
    return page.export(flat, title_of(notebook), before=box)


def _refuse_other_lessons(source: Path) -> None:
    if _takes_parameters(source):
        return
    able = [path.stem[:2] for path in choose_lessons([], source.parents[1]) if _takes_parameters(path)]
    raise CourseError(
        f"Lesson {source.stem[:2]} looks into no picture: NETWORK, IMAGE and LAYER go with {', '.join(able)}. "
        f"Without them:  make handout LESSON={source.stem[:2]}"
    )


def _takes_parameters(source: Path) -> bool:
    """Whether the lesson's cell tagged `parameters` sets a network and an image."""
    for cell in learner(source).cells:
        if "parameters" in tags_of(cell):
            return all(re.search(rf"^{name} = ", cell.source, re.MULTILINE) for name in PARAMETERS)
    return False


def _check_picture(image: str) -> Path:
    from course_utils.vision.pictures import read_picture

    try:
        read_picture(image)
    except CourseError as error:
        raise CourseError(f"IMAGE={image}: {error}.") from None
    return Path(image)


def _fetch_network(name: str) -> str:
    """Get the network's weights into torch's cache if they can be had; returns one sentence about them."""
    from course_utils.vision.networks import WeightsError, load_classifier

    try:
        return load_classifier(name).note
    except WeightsError as error:
        reason = error
    except CourseError as error:
        raise CourseError(f"NETWORK={name}: {error}.") from None
    try:
        note = load_classifier(name, pretrained="if cached").note
    except WeightsError as error:  # the cached file is damaged
        raise CourseError(f"NETWORK={name}: {error}.") from None
    return f"{note} ({reason})"


def _try_first(network: str, picture: Path | None, layer: str) -> None:
    """Look once, which takes seconds, before the lesson is run, which takes a minute."""
    from course_utils.scenes.scene import scene
    from course_utils.vision.own import look_at

    try:
        look_at(network or "picture_net", picture or scene("cat", seed=1).image, layer)
    except CourseError as error:
        raise CourseError(f"NETWORK={network or 'picture_net'}: {error}.") from None


def _run(source: Path, chosen: dict[str, str], picture: Path | None) -> NotebookNode:
    if picture:
        chosen = {**chosen, "own_image": picture.name}  # it lies in the folder of the run; the page names no other
    try:
        return build.run(learner(source), source.stem, chosen, [picture] if picture else [])
    except LessonError as error:
        raise CourseError(f"No handout was written. {_first_line(error)}") from None


def _first_line(error: LessonError) -> str:
    """Which cell raised what, without its traceback."""
    return str(error).splitlines()[0]
