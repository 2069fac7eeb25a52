"""Pieces of HTML for panels: words, problems, pictures, tables."""

import re
from base64 import b64encode
from collections.abc import Iterable
from html import escape

import ipywidgets as widgets

from course_utils.vision.pictures import Picture


def make_paragraph(words: str) -> str:
    """Return a sentence as HTML that a screen reader announces when it changes."""
    return (
        '<div role="status" aria-live="polite" style="max-width:90ch;line-height:1.5;font-size:14px">'
        f"{escape(words)}</div>"
    )


def make_label(words: str) -> widgets.HTML:
    """Return words beside controls. (A Label widget cuts off what does not fit on its line.)"""
    return widgets.HTML(wrap_words(words))


def wrap_words(words: str) -> str:
    """Return words as HTML with lines close together (ipywidgets sets them as far apart as buttons)."""
    return f'<div style="line-height:1.5">{escape(words)}</div>'


def make_drawing(svg: str) -> str:
    """Return an SVG picture as HTML. On a narrow page it shrinks to three quarters; from there on it scrolls sideways.

    Smaller, its words could not be read. It can be reached by Tab, so that arrow keys scroll it.
    """
    least = round(0.75 * int(re.search(r' width="(\d+)"', svg).group(1)))
    return (
        '<div role="group" aria-label="picture" tabindex="0" style="overflow-x:auto">'
        f'<div style="min-width:{least}px">{svg}</div></div>'
    )


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
    """Return a PNG as HTML with its alt text. (An Image widget has none, and with a tooltip it fails in JupyterLab.)"""
    # "/" and "+" in percent code, which browsers undo: no stretch of the picture can look like the path of a file.
    data = b64encode(picture.data).decode().replace("/", "%2F").replace("+", "%2B")
    return f'<img alt="{escape(picture.alt)}" src="data:image/png;base64,{data}" style="max-width:100%;height:auto">'


def make_table(header: Iterable[str], rows: Iterable[Iterable[str]], caption: str) -> str:
    """Return an HTML table of text; the first entry of each row is its heading."""
    cell = "padding:2px 14px 2px 0;text-align:left;border-bottom:1px solid currentColor;font-weight:"
    head = "".join(f'<th scope="col" style="{cell}600">{escape(title)}</th>' for title in header)
    body = ""
    for first, *others in rows:
        entries = "".join(f'<td style="{cell}400">{escape(entry)}</td>' for entry in others)
        body += f'<tr><th scope="row" style="{cell}600">{escape(first)}</th>{entries}</tr>'
    return (
        f'<table style="border-collapse:collapse;font-size:13px;line-height:1.5"><caption style="text-align:left">'
        f"{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def put_on_paper(svg: str) -> str:
    """Give an SVG that takes its colours from the page a white background and dark lines of its own."""
    return svg.replace("color:var(--jp-ui-font-color1, currentColor)", "color:#1f1f1f;background:#ffffff", 1)
