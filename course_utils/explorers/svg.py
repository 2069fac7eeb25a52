"""Small pieces of SVG: text that takes the page's own colour and fonts, and numbers that are the same everywhere."""

from __future__ import annotations

from html import escape

MONO = "var(--jp-code-font-family, ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace)"
SANS = "var(--jp-ui-font-family, system-ui, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif)"

PAGE = 864  # a picture of this width, scaled down to a page of 800, has type of 12 px at least
# Middle tones with a contrast above 3 on white and on #111. They colour lines only: text is always `currentColor`.
BLUE, ORANGE = "#3f82d8", "#d0602a"


def draw_picture(width: float, height: float, title: str, sentence: str, body: str) -> str:
    """A picture with its title at the top; `sentence` is what a screen reader says about it.

    One that is wider than the page scrolls: it hardly shrinks, and its title stands where the page begins.
    """
    least = f"min-width:{px(0.93 * width)}px;" if width > PAGE else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {px(width)} {px(height)}" width="{px(width)}" '
        f'height="{px(height)}" role="img" aria-label="{escape(title)}" '
        f'style="max-width:100%;{least}height:auto;color:var(--jp-ui-font-color1, currentColor)">'
        f"<title>{escape(title)}</title><desc>{escape(sentence)}</desc>"
        f"{draw_text(min(width, PAGE) / 2, 22, title, size=16, anchor='middle', weight=600)}{body}</svg>"
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
    """A line of text whose baseline begins (or, by `anchor`, has its "middle" or "end") at (x, y); size in pixels."""
    extra = "" if anchor == "start" else f' text-anchor="{anchor}"'
    extra += "" if opacity == 1 else f' opacity="{opacity}"'
    look = f"font:{style} {weight} {size}px {family};white-space:pre"
    place = f'x="{px(x)}" y="{px(y)}"'
    return f'<text {place} fill="currentColor"{extra} style="{escape(look)}">{escape(words)}</text>'


def draw_fish_hook(x: float, y: float) -> str:
    """The sign for a hook, 6 pixels wide and 10 high; (x, y) is the top of its shaft."""
    shape = f"M{px(x)} {px(y)} v7 a3.2 3.2 0 0 1 -6.4 0 v-1.6"
    return f'<path d="{shape}" fill="none" stroke="{BLUE}" stroke-width="1.8" stroke-linecap="round"/>'


def px(length: float) -> str:
    """A length with at most one decimal: enough for a picture, and no rounding noise in the text."""
    return f"{length:.1f}".removesuffix(".0")
