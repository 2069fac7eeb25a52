"""The colours of everything that the course shows as HTML or SVG, against JupyterLab's light and dark backgrounds.

No colour is listed by hand: the markup comes from the outputs saved in the lessons and from what a lesson can show
besides, the themes' colours from the installed JupyterLab. Contrast is WCAG 2.2's: 4.5 for text, 3 for large text
and for shapes that tell something (success criteria 1.4.3 and 1.4.11).
"""

import json
import re
import sys
from dataclasses import dataclass, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import ipywidgets as widgets
import nbformat
import pytest

from course_utils import explorers
from course_utils.exercises import classroom
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.lab import doctor

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
THEMES = Path(sys.prefix) / "share" / "jupyter" / "lab" / "themes" / "@jupyterlab"
KINDS = ("text/html", "image/svg+xml")
SHAPES = ("rect", "path", "circle", "line", "polygon", "polyline", "ellipse")
# A shape fainter than this only guides the eye: hairlines between rows, the tint of a box that has an edge and words.
DECORATION = 0.3


# ---- colours


@cache
def theme(name: str) -> dict[str, str]:
    """The variables of JupyterLab's theme `light` or `dark`."""
    css = (THEMES / f"theme-{name}-extension" / "index.css").read_text(encoding="utf-8")
    return dict(re.findall(r"(--[\w-]+):([^;}]+)", css))


def resolve(value: str, variables: dict[str, str]) -> str:
    """A CSS value with its variables replaced, by their fallback where the theme has none."""
    while found := re.search(r"var\((--[\w-]+)(?:,((?:[^()]|\([^()]*\))*))?\)", value):
        name, fallback = found.groups()
        value = value[: found.start()] + variables.get(name, (fallback or "").strip()) + value[found.end() :]
    return value.strip()


Colour = tuple[float, float, float, float]  # red, green, blue from 0 to 255; opacity from 0 to 1


def parse_colour(text: str) -> Colour:
    """`#rgb`, `#rrggbb`, `rgb(…)`, `rgba(…)`, "white" or "black" as numbers. Raises ValueError for any other."""
    text = {"white": "#ffffff", "black": "#000000", "gray": "#808080"}.get(text, text)
    if re.fullmatch(r"#[0-9a-fA-F]{3}", text):
        text = "#" + "".join(2 * digit for digit in text[1:])
    if re.fullmatch(r"#[0-9a-fA-F]{6}", text):
        return (*(float(int(text[at : at + 2], 16)) for at in (1, 3, 5)), 1.0)
    if found := re.fullmatch(r"rgba?\(([\d.]+),\s*([\d.]+),\s*([\d.]+)(?:,\s*([\d.]+))?\)", text):
        red, green, blue, opacity = found.groups()
        return (float(red), float(green), float(blue), float(opacity or 1))
    raise ValueError(f"a colour that this test cannot read: {text!r}")


def blend(over: Colour, under: Colour, opacity: float = 1) -> Colour:
    """`over`, drawn on the opaque colour `under`."""
    share = over[3] * opacity
    return (*(share * top + (1 - share) * bottom for top, bottom in zip(over[:3], under[:3], strict=True)), 1.0)


def luminance(colour: Colour) -> float:
    channels = [value / 255 for value in colour[:3]]
    red, green, blue = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Colour, other: Colour) -> float:
    """WCAG's contrast ratio of two opaque colours, from 1 to 21."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


# ---- markup


@dataclass(frozen=True)
class Look:
    """What an element hands down: colours as CSS text, the background as a colour, opacity multiplied up."""

    color: str
    background: Colour
    fill: str = "black"
    stroke: str = "none"
    opacity: float = 1.0
    size: float = 14.0
    bold: bool = False

    @property
    def needed(self) -> float:
        """The contrast that text of this size needs."""
        return 3.0 if self.size >= 24 or (self.bold and self.size >= 18.66) else 4.5


VOID = {"br", "img", "hr", "input", "meta", "rect", "path", "circle", "line", "polygon", "polyline", "ellipse"}


class Reader(HTMLParser):
    """Walk through HTML or SVG with a theme's colours, and collect what has too little contrast."""

    def __init__(self, variables: dict[str, str], even_row: bool = False) -> None:
        super().__init__()
        self.variables = variables
        page = parse_colour(resolve("var(--jp-layout-color0)", variables))
        if even_row:  # of a table: JupyterLab gives every other row a background of its own
            page = blend(parse_colour(resolve("var(--jp-rendermime-table-row-background)", variables)), page)
        self.stack = [("", Look(resolve("var(--jp-ui-font-color1)", variables), page))]
        self.boxes: list[tuple[float, float, float, float, Colour]] = []
        self.texts: list[tuple[str, Look, tuple[float, float] | None]] = []
        self.where: tuple[float, float] | None = None
        self.shapes: list[tuple[str, float]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        style = dict(re.findall(r"([\w-]+)\s*:\s*([^;]+)", given.get("style", "")))
        look = self._inherit({**given, **style}, style)
        if tag == "text":
            self.where = (float(given.get("x", 0)), float(given.get("y", 0)))
        if tag in SHAPES:
            self._note_shape(tag, given, look)
        if tag not in VOID:
            self.stack.append((tag, look))
        if "border-left" in style or "border" in style:
            edge = resolve(style.get("border-left") or style["border"], self.variables).split(" ", 2)[-1]
            self._note_line("edge", edge, look)

    handle_startendtag = handle_starttag

    def _inherit(self, given: dict[str, str], style: dict[str, str]) -> Look:
        look = self.stack[-1][1]
        color = resolve(given.get("color", "inherit"), self.variables)
        if color not in ("inherit", "currentColor"):
            look = replace(look, color=color)
        for name in ("fill", "stroke"):
            if name in given:
                look = replace(look, **{name: resolve(given[name], self.variables)})
        if (background := resolve(style.get("background", "none"), self.variables)) != "none":
            look = replace(look, background=blend(parse_colour(background), look.background))
        font = re.search(r"(\d+) ([\d.]+)px", given.get("font", ""))
        size = font.group(2) if font else given.get("font-size", "").removesuffix("px")
        weight = font.group(1) if font else given.get("font-weight", "")
        look = replace(look, opacity=look.opacity * float(given.get("opacity", 1)))
        look = replace(look, size=float(size)) if re.fullmatch(r"[\d.]+", size) else look
        return replace(look, bold=weight in ("600", "700", "bold")) if weight else look

    def handle_endtag(self, tag: str) -> None:
        if any(name == tag for name, _ in self.stack):
            while self.stack.pop()[0] != tag:
                pass
        if tag == "text":
            self.where = None

    def handle_data(self, words: str) -> None:
        tag, look = self.stack[-1]
        if words.strip() and tag not in ("title", "desc", "style"):
            self.texts.append((words.strip(), look, self.where))

    def _colour(self, name: str, look: Look) -> Colour | None:
        text = look.color if name in ("currentColor", "inherit") else name
        return None if text in ("none", "transparent") else parse_colour(text)

    def _note_shape(self, tag: str, given: dict[str, str], look: Look) -> None:
        fill, stroke = self._colour(look.fill, look), self._colour(look.stroke, look)
        if re.fullmatch(r"M[-\d. ]+[hHvV] ?[-\d.]+", given.get("d", "")):
            fill = None  # one straight line: there is nothing to fill
        fill_share = look.opacity * float(given.get("fill-opacity", 1))
        stroke_share = look.opacity * float(given.get("stroke-opacity", 1))
        if tag == "rect" and fill and "width" in given:
            x, y, width, height = (float(given.get(name, 0)) for name in ("x", "y", "width", "height"))
            self.boxes.append((x, y, x + width, y + height, (*fill[:3], fill[3] * fill_share)))
        seen = [
            contrast(blend(colour, look.background, share), look.background)
            for colour, share in ((fill, fill_share), (stroke, stroke_share))
            if colour and share >= DECORATION
        ]
        if seen:
            self.shapes.append((self.get_starttag_text(), max(seen)))

    def _note_line(self, what: str, colour: str, look: Look) -> None:
        drawn = self._colour(colour, look)
        self.shapes.append((f"{what} {colour}", contrast(blend(drawn, look.background, look.opacity), look.background)))

    def find_faint(self) -> list[str]:
        """Every text and every shape with too little contrast, in words."""
        found = [f"{ratio:.2f} < 3: {what}" for what, ratio in self.shapes if ratio < 3]
        for words, look, where in self.texts:
            background = look.background
            for left, top, right, bottom, colour in self.boxes:
                if where and left <= where[0] + 1 <= right and top <= where[1] - 4 <= bottom:
                    background = blend(colour, background)
            name = look.fill if where is not None else "currentColor"
            ratio = contrast(blend(self._colour(name, look), background, look.opacity), background)
            if ratio < look.needed:
                found.append(f"{ratio:.2f} < {look.needed}: text {words!r}")
        return found


def find_faint(markup: str, theme_name: str) -> list[str]:
    """What has too little contrast in `markup` under a theme, on the page and in a table's shaded row."""
    found = []
    for even_row in (False, True) if "<td" in markup else (False,):
        reader = Reader(theme(theme_name), even_row)
        reader.feed(markup)
        reader.close()
        found += reader.find_faint()
    return found


# ---- what the course shows


def in_lesson(path: Path) -> list[str]:
    """All HTML and SVG in the outputs saved in a lesson."""
    lesson = nbformat.read(path, as_version=4)
    outputs = [output for cell in lesson.cells for output in cell.get("outputs", ())]
    return [output.data[kind] for output in outputs for kind in KINDS if kind in output.get("data", {})]


def in_widgets(widget: widgets.Widget) -> str:
    """All HTML that a widget and those inside it show."""
    own = widget.value if isinstance(widget, widgets.HTML) else ""
    return own + "".join(in_widgets(child) for child in getattr(widget, "children", ()))


@cache
def besides() -> dict[str, str]:
    """What a learner can call up that no saved lesson shows."""
    stages = {
        f"outcome: {stage}": Outcome("f", stage, "got `1`, expected `2`", "a cause", "a note", 1, 3)._repr_html_()
        for stage in Stage
    }
    findings = tuple(doctor.Finding("a", status, "`torch`", "details", "do this") for status in doctor.EDGES)
    flow = explorers.GradientFlow("dot product", hooks=[("z", "times 2"), ("z", "print")], step=3)
    hooks = explorers.ModelHooks("small net", hooks=[("relu", "forward hook", "replace by zero")])
    call = explorers.LifeOfACall("plain", hooks=[("forward hook", "relu"), ("forward pre-hook", "global")], step=9)
    live = {name: getattr(explorers, name) for name in explorers.__all__}
    live = {
        name: kind for name, kind in live.items() if isinstance(kind, type) and issubclass(kind, explorers.Explorer)
    }
    del live["Explorer"]  # what the others are made from
    return {
        **stages,
        **{name: in_widgets(kind().widget) for name, kind in live.items()},
        "prediction": in_widgets(classroom.predict("gradient_of_square")._widget()),
        "hint": classroom.Note("Hint 1 of 3", ("a nudge",), "→")._repr_html_(),
        "solution": classroom.Note("One answer", symbol="→", code="return 1")._repr_html_(),
        "progress": classroom.Progress(((1, 1, 2, 0, 1), (2, 0, 2, 1, 1)), kept=False)._repr_html_(),
        "doctor": doctor.Diagnosis(findings, details=True)._repr_html_(),
        "problem": explorers.make_problem("no such thing"),
        "table": explorers.make_table(("a", "b"), [("1", "2"), ("3", "4")], "caption"),
        "gradient flow": flow._story.picture,
        "gradient flow on paper": flow.still_picture,
        "model hooks": hooks._story.picture,
        "life of a call": call._story.picture,
    }


@pytest.mark.parametrize("name", ["light", "dark"])
@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_all_that_a_lesson_shows_can_be_seen(path, name):
    pieces = in_lesson(path)
    assert pieces, "a lesson without any HTML: is this still the right place to look?"
    faint = {line for markup in pieces for line in find_faint(markup, name)}
    assert not faint, "\n".join(sorted(faint))


@pytest.mark.parametrize("name", ["light", "dark"])
def test_all_that_a_learner_can_call_up_can_be_seen(name):
    faint = [f"{what}: {line}" for what, markup in besides().items() for line in find_faint(markup, name)]
    assert not faint, "\n".join(faint)


# ---- the measure itself


def test_the_contrast_is_wcags():
    assert contrast(parse_colour("#000"), parse_colour("white")) == pytest.approx(21)
    assert contrast(parse_colour("#767676"), parse_colour("#ffffff")) == pytest.approx(4.54, abs=0.005)
    assert contrast(parse_colour("#777777"), parse_colour("rgb(255, 255, 255)")) == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize(
    ("markup", "says"),
    [
        ('<p style="color:#888">grey</p>', {"light": 1, "dark": 0}),
        ('<p style="color:var(--nowhere, #888)">grey</p>', {"light": 1, "dark": 0}),
        ('<p style="color:#888;font-size:24px">large grey</p>', {"light": 0, "dark": 0}),
        ('<svg><text fill="#ffffff">white</text></svg>', {"light": 1, "dark": 0}),
        ('<svg><text x="0" y="9" fill="black">unthemed</text></svg>', {"light": 0, "dark": 1}),
        ('<svg><g opacity="0.4"><text x="0" y="9" fill="currentColor">faint</text></g></svg>', {"light": 1, "dark": 1}),
        (
            '<svg><rect x="0" y="0" width="9" height="20" fill="#333"/><text x="2" y="9" fill="#222">on</text></svg>',
            {"light": 1, "dark": 2},
        ),
        ('<svg><path d="M0 0 h9" stroke="#eee" fill="none"/></svg>', {"light": 1, "dark": 0}),
        ('<div style="border-left:4px solid #222">x</div>', {"light": 0, "dark": 1}),
    ],
)
def test_what_is_faint_is_found(markup, says):
    assert {name: len(find_faint(markup, name)) for name in says} == says


def test_the_themes_are_jupyterlabs_own():
    assert parse_colour(resolve("var(--jp-layout-color0)", theme("light"))) == (255, 255, 255, 1)
    assert parse_colour(resolve("var(--jp-layout-color0)", theme("dark"))) == (17, 17, 17, 1)
    assert json.dumps(theme("dark")) != json.dumps(theme("light"))
