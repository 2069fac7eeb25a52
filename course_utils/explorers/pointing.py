"""Pictures to click, drag and draw on, with the mouse or a finger, by the package ipycanvas."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import ipywidgets as widgets
import traitlets

from course_utils.explorers import markup

if TYPE_CHECKING:
    from ipycanvas import Canvas

FINE = 1000  # how finely a place is read: its pixels stretch over the whole picture


def follow_pointer(canvas: Canvas, begin: Callable, go_on: Callable, end: Callable[[], None]) -> None:
    """Call `begin(x, y)` when a button or a finger goes down on a canvas, `go_on(x, y)` when it moves, and `end()`.

    `go_on` is called for a mouse without a pressed button as well.
    """
    canvas.on_mouse_down(begin)
    canvas.on_mouse_move(go_on)
    canvas.on_touch_start(lambda points: begin(*points[0]))
    canvas.on_touch_move(lambda points: go_on(*points[0]))
    for ended in (canvas.on_mouse_up, canvas.on_mouse_out, canvas.on_touch_end):
        ended(lambda *_: end())


class PointedPicture(widgets.Box):
    """A picture, shown by an HTML widget, with a transparent canvas on it that tells where it is clicked or dragged.

    value: where the last drag began and how far it has come, ((x, y), (x, y)), from 0 to 1 across the picture and down;
        both are the same for a click. None before the first one. canvas: the canvas, over the picture or not yet.
    on_key: called with the name of each key that is pressed while the picture has the focus, such as "ArrowLeft".

    The canvas comes when the front end says that it has the package ipycanvas; else only the picture is there.
    """

    value = traitlets.Any(None)

    def __init__(self, picture: widgets.HTML, on_key: Callable[[str], None] | None = None) -> None:
        from ipycanvas import Canvas  # its import takes a while

        style = widgets.HTML(markup.fill("pointed"), layout={"display": "none"})
        super().__init__([style, picture])
        self.add_class("course-pointed")
        self.canvas = canvas = Canvas(width=FINE, height=FINE).add_class("course-pointer")
        self._start: tuple[float, float] | None = None  # where the button went down that is still down
        follow_pointer(canvas, self._begin, self._go_on, self._end)
        if on_key:
            canvas.on_key_down(lambda key, *_: on_key(key))
        canvas.on_client_ready(lambda: self.set_trait("children", [style, picture, canvas]))

    def _begin(self, x: float, y: float) -> None:
        self._start = (x / FINE, y / FINE)
        self.value = (self._start, self._start)

    def _go_on(self, x: float, y: float) -> None:
        if self._start:
            self.value = (self._start, (x / FINE, y / FINE))

    def _end(self) -> None:
        self._start = None
