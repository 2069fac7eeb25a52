"""A picture of one's own, uploaded or drawn: the one place where explorers take one in."""

from collections.abc import Callable

import ipywidgets as widgets
import traitlets
from torch import Tensor

from course_utils.explorers.html import make_label
from course_utils.vision.pictures import draw_strokes, put_on_white, read_picture


class OwnPicture(widgets.HBox):
    """Buttons to upload or draw a picture, and to leave it again.

    value: the picture, (3, size, size) float32 in [0, 1]; None for the course's own pictures.
    problem: what was wrong with the last try, in words. pad: where the `DrawingPad` appears.
    """

    value = traitlets.Any(None)
    problem = traitlets.Unicode()

    def __init__(self, size: int, value: Tensor | None = None, *, drawing: bool = False) -> None:
        upload = widgets.FileUpload(
            description="Your own picture", accept="image/*", multiple=False, layout={"width": "180px"}
        )
        draw = widgets.Button(
            description="Draw one", tooltip="Draw with the mouse or a finger", layout={"width": "110px"}
        )
        back = widgets.Button(description="Back to the course's pictures", layout={"width": "210px"})
        super().__init__([upload, draw, back] if drawing else [upload, back])
        self.layout.flex_flow, self.layout.align_items = "row wrap", "center"
        self.size, self.pad, self.value = size, widgets.HBox(), value
        back.layout.display = "none" if value is None else None
        self.observe(lambda change: setattr(back.layout, "display", "none" if change["new"] is None else None), "value")
        upload.observe(self._read, "value")
        draw.on_click(self._open_pad)
        back.on_click(lambda _: self._take(None))

    def _take(self, picture: Tensor | None) -> None:
        self.pad.children = []
        self.value = picture

    def _read(self, change: dict) -> None:
        if not change["new"]:
            return
        self.problem, change["owner"].value = "", ()  # else the file would be saved with the notebook
        try:
            picture = read_picture(change["new"][-1]["content"], size=self.size)
        except ValueError as error:
            self.problem = str(error)
        else:
            self._take(picture)

    def _open_pad(self, button: object) -> None:
        self.problem = ""
        try:
            pad = DrawingPad(self._draw, self.size)
        except ModuleNotFoundError:
            self.problem = (
                "Drawing needs the package ipycanvas: run %pip install ipycanvas, restart JupyterLab, and open this "
                "page again. Or upload a picture."
            )
            return
        self.pad.children = [pad.widget]
        self._draw(pad.strokes)

    def _draw(self, strokes: list) -> None:
        self.value = put_on_white(draw_strokes(strokes, self.size))


class DrawingPad:
    """A white square to draw on in black, with the mouse or a finger, by the package ipycanvas.

    `strokes` are rows of points as `pictures.draw_strokes` takes them; `on_change(strokes)` is called
    at the end of each stroke and when the square was wiped. Raises `ModuleNotFoundError` without ipycanvas.
    """

    def __init__(self, on_change: Callable[[list], None], size: int = 224) -> None:
        from ipycanvas import Canvas  # not among the course's dependencies: uploading a picture needs no package

        self.strokes: list[list[tuple[float, float]]] = []
        self._on_change, self._size, self._drawing = on_change, size, False
        self._canvas = Canvas(width=size, height=size, layout={"border": "1px solid gray"})
        self._canvas.line_width, self._canvas.line_cap = size / 40, "round"
        self._canvas.on_mouse_down(self._begin)
        self._canvas.on_mouse_move(self._go_on)
        self._canvas.on_mouse_up(self._end)
        self._canvas.on_mouse_out(self._end)
        self._canvas.on_touch_start(lambda points: self._begin(*points[0]))
        self._canvas.on_touch_move(lambda points: self._go_on(*points[0]))
        self._canvas.on_touch_end(lambda points: self._end())
        wipe = widgets.Button(description="Wipe", tooltip="Begin with an empty square", layout={"width": "110px"})
        wipe.on_click(self._wipe)
        words = make_label("Draw here; the maps follow each line.")
        self.widget = widgets.HBox([self._canvas, widgets.VBox([words, wipe])])
        self._paint_white()

    def _paint_white(self) -> None:
        self._canvas.fill_style = "white"
        self._canvas.fill_rect(0, 0, self._size, self._size)

    def _point(self, x: float, y: float) -> tuple[float, float]:
        return 100 * x / self._size, 100 * y / self._size

    def _begin(self, x: float, y: float) -> None:
        self._drawing = True
        self.strokes.append([self._point(x, y)])

    def _go_on(self, x: float, y: float) -> None:
        if self._drawing:
            before = [number * self._size / 100 for number in self.strokes[-1][-1]]
            self._canvas.stroke_line(*before, x, y)
            self.strokes[-1].append(self._point(x, y))

    def _end(self, *_: float) -> None:
        if self._drawing:
            self._drawing = False
            self._on_change(self.strokes)

    def _wipe(self, button: object) -> None:
        self.strokes.clear()
        self._paint_white()
        self._on_change(self.strokes)
