"""The colours of everything that the course shows as HTML or SVG, against JupyterLab's light and dark backgrounds.

No colour is listed by hand: the markup comes from the outputs saved in the lessons and from what a lesson can show
besides, the themes' colours from the installed JupyterLab. Contrast is WCAG 2.2's: 4.5 for text, 3 for large text
and for shapes that tell something (success criteria 1.4.3 and 1.4.11).
"""

import re
import sys
from functools import cache
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup, Tag
from matplotlib.colors import to_rgba
from panels import shown

from course_utils import explorers
from course_utils.exercises import classroom
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.explorers.markup import make_problem, make_table
from course_utils.lab import doctor

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
THEMES = Path(sys.prefix) / "share" / "jupyter" / "lab" / "themes" / "@jupyterlab"
SHAPES = ("rect", "path", "circle", "line", "polygon", "polyline", "ellipse")
# A shape fainter than this only guides the eye: hairlines between rows, the tint of a box that has an edge and words.
DECORATION = 0.3

Colour = tuple[float, float, float, float]  # red, green, blue and opacity, from 0 to 1


@cache
def theme(name: str) -> dict[str, str]:  # the variables of JupyterLab's theme `light` or `dark`
    css = (THEMES / f"theme-{name}-extension" / "index.css").read_text(encoding="utf-8")
    return dict(re.findall(r"(--[\w-]+):([^;}]+)", css))


def resolve(value: str, variables: dict[str, str]) -> str:
    """A CSS value with its variables replaced, by their fallback where the theme has none."""
    while found := re.search(r"var\((--[\w-]+)(?:,((?:[^()]|\([^()]*\))*))?\)", value):
        value = value.replace(found[0], variables.get(found[1], (found[2] or "").strip()))
    return value.strip()


def parse_colour(text: str) -> Colour:
    """A name, `#rgb`, `#rrggbb`, `rgb(…)` or `rgba(…)` as numbers. Raises ValueError for any other."""
    if found := re.fullmatch(r"rgba?\(([\d.]+),\s*([\d.]+),\s*([\d.]+)(?:,\s*([\d.]+))?\)", text):
        *colour, opacity = found.groups()
        return (*(float(each) / 255 for each in colour), float(opacity or 1))
    return to_rgba(text)


def blend(over: Colour, under: Colour, opacity: float = 1) -> Colour:
    """`over`, drawn on the opaque colour `under`."""
    share = over[3] * opacity
    return (*(share * top + (1 - share) * bottom for top, bottom in zip(over[:3], under[:3], strict=True)), 1.0)


def contrast(*pair: Colour) -> float:
    """WCAG's contrast ratio of two opaque colours, from 1 to 21."""
    linear = [[part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in each] for each in pair]
    darker, lighter = sorted(0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue, _ in linear)
    return (lighter + 0.05) / (darker + 0.05)


def find_faint(markup: str, theme_name: str) -> list[str]:
    """What has too little contrast in `markup` under a theme, on the page and in a table's shaded row."""
    variables, soup, found = theme(theme_name), BeautifulSoup(markup, "html.parser"), []
    page = parse_colour(resolve("var(--jp-layout-color0)", variables))
    shade = parse_colour(resolve("var(--jp-rendermime-table-row-background)", variables))
    for background in (page, blend(shade, page)) if "<td" in markup else (page,):
        look = {"color": resolve("var(--jp-ui-font-color1)", variables), "fill": "black", "stroke": "none"}
        look |= {"background": background, "opacity": 1.0, "size": 14.0, "where": None}
        read(soup, look, variables, [], found)
    return found


def read(  # noqa: C901  a walk: a branch for each kind of element
    element: Tag, look: dict, variables: dict[str, str], boxes: list[tuple], found: list[str]
) -> None:
    """Walk down from an element, whose `look` its children inherit; a text lies on the `boxes` drawn so far."""
    for child in element.children:
        if isinstance(child, Tag):
            style = dict(re.findall(r"([\w-]+)\s*:\s*([^;]+)", child.get("style", "")))
            given = {name: resolve(str(value), variables) for name, value in (child.attrs | style).items()}
            mine = look | {each: given[each] for each in ("color", "fill", "stroke") if each in given}
            if mine["color"] in ("inherit", "currentColor"):
                mine["color"] = look["color"]
            if background := parse(mine, given.get("background", "none")):
                mine["background"] = blend(background, look["background"])
            if font := re.search(r"([\d.]+)px", given.get("font", "") or given.get("font-size", "")):
                mine["size"] = float(font.group(1))
            if child.name == "text":
                mine["where"] = float(given.get("x", 0)), float(given.get("y", 0))
            mine["opacity"] *= float(given.get("opacity", 1))
            ratios = measure_shape(child.name, given, mine, boxes) if child.name in SHAPES else []
            if edge := given.get("border-left") or given.get("border"):
                drawn = blend(parse(mine, edge.split(" ", 2)[-1]), mine["background"])
                ratios.append(contrast(drawn, mine["background"]))
            found += [f"{max(ratios):.2f} < 3: {child.name} {given}"] if ratios and max(ratios) < 3 else []
            read(child, mine, variables, boxes, found)
        elif child.strip() and element.name not in ("title", "desc", "style"):
            background, where = look["background"], look["where"]
            for left, top, right, bottom, colour in boxes:
                if where and left <= where[0] + 1 <= right and top <= where[1] - 4 <= bottom:
                    background = blend(colour, background)
            drawn = blend(parse(look, look["fill"] if where else "inherit"), background, look["opacity"])
            if (ratio := contrast(drawn, background)) < (3 if look["size"] >= 24 else 4.5):
                found.append(f"{ratio:.2f}: text {child.strip()!r}")


def parse(look: dict, name: str) -> Colour | None:
    text = look["color"] if name in ("currentColor", "inherit") else name
    return None if text in ("none", "transparent") else parse_colour(text)


def measure_shape(name: str, given: dict[str, str], look: dict, boxes: list[tuple]) -> list[float]:
    """The contrast of what is drawn of a shape, the higher one of fill and stroke; a rectangle is added to `boxes`."""
    straight = re.fullmatch(r"M[-\d. ]+[hHvV] ?[-\d.]+", given.get("d", ""))  # then there is nothing to fill
    ratios = []
    for part, paint in (("fill", "none" if straight else look["fill"]), ("stroke", look["stroke"])):
        colour, share = parse(look, paint), look["opacity"] * float(given.get(f"{part}-opacity", 1))
        if colour and name == "rect" and part == "fill" and "width" in given:
            x, y, width, height = (float(given.get(each, 0)) for each in ("x", "y", "width", "height"))
            boxes.append((x, y, x + width, y + height, (*colour[:3], colour[3] * share)))
        if colour and share >= DECORATION:
            ratios.append(contrast(blend(colour, look["background"], share), look["background"]))
    return [max(ratios)] if ratios else []


def besides() -> dict[str, str]:
    """What a learner can call up that no saved lesson shows."""
    parts = ("got `1`, expected `2`", "a cause", "a note", 1, 3)
    findings = tuple(doctor.Finding(status, "`torch`", "details", "do this") for status in doctor.MARKS)
    flow = explorers.GradientFlow("dot product", hooks=[("z", "times 2"), ("z", "print")], step=3)
    hooks = explorers.ModelHooks("small net", hooks=[("relu", "forward hook", "replace by zero")])
    call = explorers.LifeOfACall("plain", hooks=[("forward hook", "relu"), ("forward pre-hook", "global")], step=9)
    return {
        **{f"outcome: {stage}": Outcome("f", stage, *parts)._repr_html_() for stage in Stage},
        **{name: shown(getattr(explorers, name)()) for name in explorers.__all__},
        "prediction": shown(classroom.predict("gradient_of_square")._widget()),
        "hint": classroom.Note("Hint 1 of 3", ("a nudge",), "→")._repr_html_(),
        "solution": classroom.Note("One answer", symbol="→", code="return 1")._repr_html_(),
        "progress": classroom.Progress((classroom.Done(1, "One", "01.ipynb", 1, 2, 0, 1),), kept=False)._repr_html_(),
        "doctor": doctor.Diagnosis(findings)._repr_html_(),
        "problem": make_problem("no such thing"),
        "table": make_table(("a", "b"), [("1", "2"), ("3", "4")], "caption"),
        "gradient flow on paper": flow.still_picture,
        **{f"{type(each).__name__} with hooks": shown(each) for each in (flow, hooks, call)},
    }


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("[0-9]*.ipynb")), ids=lambda path: path.stem)
def test_all_that_a_lesson_shows_can_be_seen(path):
    outputs = [output for cell in nbformat.read(path, as_version=4).cells for output in cell.get("outputs", ())]
    kinds = ("text/html", "image/svg+xml")
    pieces = [output.data[kind] for output in outputs for kind in kinds if kind in output.get("data", {})]
    assert pieces, "a lesson without any HTML: is this still the right place to look?"
    assert not {line for markup in pieces for name in ("light", "dark") for line in find_faint(markup, name)}


@pytest.mark.slow
def test_all_that_a_learner_can_call_up_can_be_seen():
    faint = {(what, name): find_faint(markup, name) for what, markup in besides().items() for name in ("light", "dark")}
    assert not {where: lines for where, lines in faint.items() if lines}


@pytest.mark.parametrize(
    ("markup", "light", "dark"),
    [
        ('<p style="color:#888">grey</p>', 1, 0),
        ('<p style="color:var(--nowhere, #888)">grey</p>', 1, 0),
        ('<p style="color:#888;font-size:24px">large grey</p>', 0, 0),
        ('<svg><text fill="#ffffff">white</text></svg>', 1, 0),
        ('<svg><text x="0" y="9" fill="black">unthemed</text></svg>', 0, 1),
        ('<svg><g opacity="0.4"><text x="0" y="9" fill="currentColor">faint</text></g></svg>', 1, 1),
        ('<svg><rect width="9" height="20" fill="#333"/><text x="2" y="9" fill="#222">on</text></svg>', 1, 2),
        ('<svg><path d="M0 0 h9" stroke="#eee" fill="none"/></svg>', 1, 0),
        ('<div style="border-left:4px solid #222">x</div>', 0, 1),
    ],
)
def test_what_is_faint_is_found(markup, light, dark):
    assert (len(find_faint(markup, "light")), len(find_faint(markup, "dark"))) == (light, dark)
