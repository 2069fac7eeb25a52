"""How the course's objects show themselves: a widget with a sentence beside it, and the colours of cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipywidgets import Widget

# Of the edge of a card, whose words say the same. Middle tones, with a contrast above 3 on JupyterLab's light page and
# on its dark one; JupyterLab's own colours for warnings and borders have less.
GOOD, CAUTION, BAD, NEUTRAL = "#388e3c", "#c46a00", "#d84343", "#808080"


def widget_bundle(widget: Widget, text: str) -> dict[str, object]:
    """The MIME bundle of `widget` with `text` as its plain-text face, for use in `_repr_mimebundle_`.

    A widget's own text face lists its internals; `text` says what it shows, and is the same on every run, so that nbval
    can compare it and a page without widgets still teaches.
    """
    return {**widget._repr_mimebundle_(), "text/plain": text}
