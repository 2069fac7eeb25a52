"""A picture of one's own, uploaded or drawn: the one place where explorers take one in."""

from collections.abc import Callable

import ipywidgets as widgets
import traitlets
from torch import Tensor

from course_utils.explorers.markup import make_label
from course_utils.root import CourseError
from course_utils.vision.pictures import draw_strokes, put_on_white, read_picture


class OwnPicture(widgets.HBox):
    """Buttons to upload or draw a picture, and to leave it again.

    value: the picture, (3, size, size) float32 in [0, 1]; None for the course's own pictures.
    problem: what was wrong with the last try, in words. pad: where the `DrawingPad` appears.
    """

    value = traitlets.Any(None)
    problem = traitlets.Unicode()

    def __init__(self, size: int, value: Tensor | None = None, *, drawing: bool = False) -> None:
        layout, tooltip = {"width": "180px"}, "Draw with the mouse or a finger"
        upload = widgets.FileUpload(description="Your own picture", accept="image/*", multiple=False, layout=layout)
        draw = widgets.Button(description="Draw one", tooltip=tooltip, layout={"width": "110px"})
        self._back = widgets.Button(description="Back to the course's pictures", layout={"width": "210px"})
        super().__init__([upload, draw, self._back] if drawing else [upload, self._back])
        self.layout.flex_flow, self.layout.align_items = "row wrap", "center"
        self.size, self.pad = size, widgets.HBox()
        self.observe(self._show_way_back, "value")
        self.value = value
        self._show_way_back()
        upload.observe(self._read, "value")
        draw.on_click(self._open_pad)
        self._back.on_click(lambda _: self._take(None))

    def _show_way_back(self, change: object = None) -> None:
        self._back.layout.display = "none" if self.value is None else None

    def _take(self, picture: Tensor | None) -> None:
        self.pad.children = []
        self.value = picture

    def _read(self, change: dict) -> None:
        if not change["new"]:
            return
        self.problem, change["owner"].value = "", ()  # else the file would be saved with the notebook
        try:
            self._take(read_picture(change["new"][-1]["content"], size=self.size))
        except CourseError as error:
            self.problem = str(error)

    def _open_pad(self, button: object) -> None:
        self.problem = ""
        try:
            self.pad.children = [DrawingPad(self._draw, self.size)]
        except ModuleNotFoundError:
            install = "run %pip install ipycanvas, restart JupyterLab, and open this page again. Or upload a picture."
            self.problem = f"Drawing needs the package ipycanvas: {install}"

    def _draw(self, strokes: list) -> None:
        self.value = put_on_white(draw_strokes(strokes, self.size))


class DrawingPad(widgets.HBox):
    """A white square to draw on in black, with the mouse or a finger, by the package ipycanvas.

    `on_change(strokes)` is called at the start, at the end of each stroke and when the square was wiped, with rows of
    points as `pictures.draw_strokes` takes them. Raises `ModuleNotFoundError` without ipycanvas.
    """

    def __init__(self, on_change: Callable[[list], None], size: int = 224) -> None:
        from ipycanvas import Canvas  # a notebook that only uploads needs no such package

        self._strokes: list[list[tuple[float, float]]] = []  # in pixels
        self._on_change, self._size, self._drawing = on_change, size, False
        self._canvas = canvas = Canvas(width=size, height=size, layout={"border": "1px solid gray"})
        canvas.line_width, canvas.line_cap = size / 40, "round"
        canvas.on_mouse_down(self._begin)
        canvas.on_mouse_move(self._go_on)
        canvas.on_mouse_up(self._end)
        canvas.on_mouse_out(self._end)
        canvas.on_touch_start(lambda points: self._begin(*points[0]))
        canvas.on_touch_move(lambda points: self._go_on(*points[0]))
        canvas.on_touch_end(self._end)
        wipe = widgets.Button(description="Wipe", tooltip="Begin with an empty square", layout={"width": "110px"})
        wipe.on_click(lambda _: self._wipe())
        super().__init__([canvas, widgets.VBox([make_label("Draw here; the maps follow each line."), wipe])])
        self._wipe()

    def _begin(self, x: float, y: float) -> None:
        self._drawing = True
        self._strokes.append([(x, y)])

    def _go_on(self, x: float, y: float) -> None:
        if self._drawing:
            self._canvas.stroke_line(*self._strokes[-1][-1], x, y)
            self._strokes[-1].append((x, y))

    def _end(self, *_: float) -> None:
        if self._drawing:
            self._drawing = False
            scale = 100 / self._size
            self._on_change([[(scale * x, scale * y) for x, y in stroke] for stroke in self._strokes])

    def _wipe(self) -> None:
        self._strokes.clear()
        self._canvas.fill_style = "white"
        self._canvas.fill_rect(0, 0, self._size, self._size)
        self._on_change([])
