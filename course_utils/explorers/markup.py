"""Pieces of HTML and SVG for panels: words, problems, tables and pictures, in the page's own colours and fonts."""

import functools
import re
from collections.abc import Iterable
from html import escape

import ipywidgets as widgets

from course_utils.root import ASSETS
from course_utils.show import code_spans
from course_utils.vision.pictures import Picture

MONO = escape("var(--jp-code-font-family, ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace)")
SANS = escape("var(--jp-ui-font-family, system-ui, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif)")
FONT = {"style": "normal", "weight": 400, "size": 13, "family": SANS}
PAGE = 864  # a picture of this width, scaled down to a page of 800, has type of 12 px at least
# Middle tones with a contrast above 3 on white and on #111. They colour lines only: text is always `currentColor`.
BLUE, ORANGE = "#3f82d8", "#d0602a"
_COLOUR = "color:var(--jp-ui-font-color1, currentColor)"


def fill(piece: str, **parts: object) -> str:
    """Return a piece of `assets/explorer_pieces.html` with its parts filled in: words have to be escaped before."""
    return _read_pieces()[piece].format(**parts)


@functools.cache
def _read_pieces() -> dict[str, str]:
    text = re.sub(r"\n *(?=[<{])", "", (ASSETS / "explorer_pieces.html").read_text(encoding="utf-8"))
    return dict(re.findall(r'<template id="(.+?)">(.+?)</template>', re.sub(r"\n *", " ", text)))


def make_paragraph(words: str) -> str:
    """Return a sentence as HTML that a screen reader announces when it changes."""
    return fill("paragraph", words=code_spans(words))


def make_label(words: str) -> widgets.HTML:
    """Return words beside controls. (A Label widget cuts off what does not fit on its line.)"""
    return widgets.HTML(wrap_words(words))


def wrap_words(words: str) -> str:
    """Return words as HTML with lines close together (ipywidgets sets them as far apart as buttons)."""
    return fill("words", words=escape(words))


def make_problem(message: str) -> str:
    """Return what is wrong with an input as HTML, its line breaks kept; nothing for an empty message."""
    return fill("problem", message=escape(message)) if message else ""


def make_verdict(words: str) -> str:
    """Return what came of a prediction as HTML that stands out and is announced; nothing for empty words."""
    return fill("verdict", words=code_spans(words), blue=BLUE) if words else ""


def grow_with_page(width: float) -> str:
    """Return the width of a picture as CSS: as it is on a page of up to 1280 pixels, 1.4 times that from 1920 on."""
    return f"clamp({px(width)}px, {px(width)}px + (100vw - 1280px) * {0.4 * width / 640:.2f}, {px(1.4 * width)}px)"


def make_picture(picture: Picture, width: int) -> str:
    """Return a picture as HTML with its alt text. (An Image widget has none; with a tooltip it fails in JupyterLab.)"""
    return picture.html(grow_with_page(width))


def make_table(header: Iterable[str], rows: Iterable[Iterable[str]], caption: str) -> str:
    """Return an HTML table of text; the first entry of each row is its heading."""
    head = "".join(fill("column", words=escape(title)) for title in header)
    body = ""
    for first, *others in rows:
        cells = "".join(fill("cell", words=escape(words)) for words in others)
        body += f"<tr>{fill('row', words=escape(first))}{cells}</tr>"
    return fill("table", caption=escape(caption), head=head, body=body)


def make_drawing(svg: str) -> str:
    """Return an SVG picture as HTML. On a narrow page it shrinks to 0.72 of its size, then it scrolls sideways.

    Smaller, its words could not be read. It can be reached by Tab, so that arrow keys scroll it.
    """
    width = float(re.search(r' width="([\d.]+)"', svg).group(1))
    svg = svg.replace(' style="', f' style="width:{grow_with_page(width)};', 1)
    return fill("drawing", least=round(0.72 * width), svg=svg)


def put_on_paper(svg: str) -> str:
    """Give an SVG that takes its colours from the page a white background and dark lines of its own."""
    return svg.replace(_COLOUR, "color:#1f1f1f;background:#ffffff", 1)


def draw_picture(width: float, height: float, title: str, sentence: str, body: str, parts: Iterable[str]) -> str:
    """Return an SVG picture with its title at the top; `sentence` is what happens in it, `parts` what each part shows.

    One that is wider than the page scrolls: it hardly shrinks, and its title stands where the page begins.
    """
    width = max(width, 12 + 9.3 * len(title))  # a title is cut off nowhere
    words = {"label": ". ".join(filter(None, [title, *parts])), "title": title, "sentence": sentence}
    look = {"least": f"min-width:{px(0.93 * width)}px;" if width > PAGE else "", "colour": _COLOUR}
    words = {name: escape(each) for name, each in words.items()}
    body = draw_text(6, 22, title, size=16, weight=600) + body
    return fill("svg", width=px(width), height=px(height), body=body, **words, **look)


def draw_text(x: float, y: float, words: str, anchor: str = "start", opacity: float = 1, **font: object) -> str:
    """Return a line of text: its baseline begins (or, by `anchor`, has its "middle" or "end") at (x, y), in pixels.

    font: what is not as in `FONT`.
    """
    extra = "" if anchor == "start" else f' text-anchor="{anchor}"'
    extra += "" if opacity == 1 else f' opacity="{opacity}"'
    look = "font:{style} {weight} {size}px {family};white-space:pre".format(**FONT | font)
    return f'<text x="{px(x)}" y="{px(y)}" fill="currentColor"{extra} style="{look}">{escape(words)}</text>'


def draw_box(x: float, y: float, width: float, height: float, corner: int, look: str) -> str:
    """Return a rectangle with rounded corners, its colours and lines as in the attributes `look`."""
    return f'<rect x="{px(x)}" y="{px(y)}" width="{px(width)}" height="{px(height)}" rx="{corner}" {look}/>'


def draw_fish_hook(x: float, y: float) -> str:
    """Return the sign for a hook, 6 pixels wide and 10 high; (x, y) is the top of its shaft."""
    shape = f"M{px(x)} {px(y)} v7 a3.2 3.2 0 0 1 -6.4 0 v-1.6"
    return f'<path d="{shape}" fill="none" stroke="{BLUE}" stroke-width="1.8" stroke-linecap="round"/>'


def px(length: float) -> str:
    """Return a length with at most one decimal: enough for a picture, and no rounding noise in the text."""
    return f"{length:.1f}".removesuffix(".0")
