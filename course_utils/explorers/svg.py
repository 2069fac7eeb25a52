"""Small pieces of SVG: text that takes the page's own colour and fonts, and numbers that are the same everywhere."""

from __future__ import annotations

from html import escape

MONO = "var(--jp-code-font-family, ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace)"
SANS = "var(--jp-ui-font-family, system-ui, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif)"


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


def px(length: float) -> str:
    """A length with at most one decimal: enough for a picture, and no rounding noise in the text."""
    return f"{length:.1f}".removesuffix(".0")
