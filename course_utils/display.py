"""How an object that is a widget shows itself: the live widget where there is one, a sentence everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipywidgets import Widget


def widget_bundle(widget: Widget, text: str) -> dict[str, object]:
    """The MIME bundle of `widget` with `text` as its plain-text face, for use in `_repr_mimebundle_`.

    A widget's own text face lists its internals; `text` says what it shows, and is the same on every run, so that nbval
    can compare it and a page without widgets still teaches.
    """
    return {**widget._repr_mimebundle_(), "text/plain": text}
