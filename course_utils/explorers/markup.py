"""Pieces of HTML and SVG for panels: words, problems, tables and pictures, in the page's own colours and fonts."""

import re
from collections.abc import Iterable
from html import escape

import ipywidgets as widgets

from course_utils.show import code_spans
from course_utils.vision.pictures import Picture

MONO = "var(--jp-code-font-family, ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace)"
SANS = "var(--jp-ui-font-family, system-ui, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif)"
PAGE = 864  # a picture of this width, scaled down to a page of 800, has type of 12 px at least
# Middle tones with a contrast above 3 on white and on #111. They colour lines only: text is always `currentColor`.
BLUE, ORANGE = "#3f82d8", "#d0602a"
_COLOUR = "color:var(--jp-ui-font-color1, currentColor)"


def make_paragraph(words: str) -> str:
    """Return a sentence as HTML that a screen reader announces when it changes."""
    style = "max-width:90ch;line-height:1.5;font-size:14px"
    return f'<div role="status" aria-live="polite" style="{style}">{code_spans(words)}</div>'


def make_label(words: str) -> widgets.HTML:
    """Return words beside controls. (A Label widget cuts off what does not fit on its line.)"""
    return widgets.HTML(wrap_words(words))


def wrap_words(words: str) -> str:
    """Return words as HTML with lines close together (ipywidgets sets them as far apart as buttons)."""
    return f'<div style="line-height:1.5">{escape(words)}</div>'


def make_problem(message: str) -> str:
    """Return what is wrong with an input as HTML, its line breaks kept; nothing for an empty message."""
    if not message:
        return ""
    return (
        '<div role="alert" style="max-width:80ch;border-left:4px solid currentColor;padding:2px 10px;line-height:1.4">'
        '<b>That does not work yet.</b><pre style="margin:0;white-space:pre-wrap;color:inherit;background:none">'
        f"{escape(message)}</pre></div>"
    )


def make_picture(picture: Picture) -> str:
    """Return a picture as HTML with its alt text. (An Image widget has none; with a tooltip it fails in JupyterLab.)"""
    (kind, data), *_ = picture._repr_mimebundle_()[0].items()
    # "/" and "+" in percent code, which browsers undo: no stretch of the picture can look like the path of a file.
    data = data.replace("/", "%2F").replace("+", "%2B")
    return f'<img alt="{escape(picture.alt)}" src="data:{kind};base64,{data}" style="max-width:100%;height:auto">'


def make_table(header: Iterable[str], rows: Iterable[Iterable[str]], caption: str) -> str:
    """Return an HTML table of text; the first entry of each row is its heading."""

    def cell(words: str, tag: str = "td", weight: int = 400) -> str:
        style = f"padding:2px 14px 2px 0;text-align:left;border-bottom:1px solid currentColor;font-weight:{weight}"
        return f'<{tag} style="{style}">{escape(words)}</{tag.split()[0]}>'

    head = "".join(cell(title, 'th scope="col"', 600) for title in header)
    body = [cell(first, 'th scope="row"', 600) + "".join(map(cell, others)) for first, *others in rows]
    return (
        '<table style="border-collapse:collapse;font-size:13px;line-height:1.5"><caption style="text-align:left">'
        f"{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(f'<tr>{row}</tr>' for row in body)}</tbody></table>"
    )


def make_drawing(svg: str) -> str:
    """Return an SVG picture as HTML. On a narrow page it shrinks to 0.72 of its size, then it scrolls sideways.

    Smaller, its words could not be read. It can be reached by Tab, so that arrow keys scroll it.
    """
    least = round(0.72 * float(re.search(r' width="([\d.]+)"', svg).group(1)))
    return (
        '<div role="group" aria-label="picture" tabindex="0" style="overflow-x:auto">'
        f'<div style="min-width:{least}px">{svg}</div></div>'
    )


def put_on_paper(svg: str) -> str:
    """Give an SVG that takes its colours from the page a white background and dark lines of its own."""
    return svg.replace(_COLOUR, "color:#1f1f1f;background:#ffffff", 1)


def draw_picture(width: float, height: float, title: str, sentence: str, body: str, parts: Iterable[str]) -> str:
    """Return an SVG picture with its title at the top; `sentence` is what happens in it, `parts` what each part shows.

    One that is wider than the page scrolls: it hardly shrinks, and its title stands where the page begins.
    """
    least = f"min-width:{px(0.93 * width)}px;" if width > PAGE else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {px(width)} {px(height)}" width="{px(width)}" '
        f'height="{px(height)}" role="img" aria-label="{escape(". ".join(filter(None, [title, *parts])))}." '
        f'style="max-width:100%;{least}height:auto;{_COLOUR}">'
        f"<title>{escape(title)}</title><desc>{escape(sentence)}</desc>"
        f"{draw_text(6, 22, title, size=16, weight=600)}{body}</svg>"
    )


def draw_text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 13,
    family: str = SANS,
    anchor: str = "start",
    weight: int = 400,
    style: str = "normal",
    opacity: float = 1,
) -> str:
    """Return a line of text: its baseline begins (or, by `anchor`, has its "middle" or "end") at (x, y), in pixels."""
    extra = "" if anchor == "start" else f' text-anchor="{anchor}"'
    extra += "" if opacity == 1 else f' opacity="{opacity}"'
    look = f"font:{style} {weight} {size}px {family};white-space:pre"
    return f'<text x="{px(x)}" y="{px(y)}" fill="currentColor"{extra} style="{escape(look)}">{escape(words)}</text>'


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
