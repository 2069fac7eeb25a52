"""The explorer of Grad-CAM: the honest network beside its misled twin."""

import ipywidgets as widgets
from torch import Tensor

from course_utils.explorers.cam_pictures import (
    CAM_LAYERS,
    CAM_PICTURES,
    CamChoice,
    CamView,
    draw_cams,
)
from course_utils.explorers.cam_pictures import KINDS as CAM_KINDS
from course_utils.explorers.panel import (
    Explorer,
    label_width,
    make_paragraph,
    make_picture,
    make_problem,
)
from course_utils.root import CourseError
from course_utils.scenes.scene import SIZE
from course_utils.vision.pictures import (
    Picture,
    png,
    read_picture,
)


class GradCam(Explorer):
    """Where the honest network and its misled twin look for a class, on a picture of the course or one's own.

    picture: the number of one of `cam_pictures.CAM_PICTURES`, from 1, or a picture of one's own,
        (3, 112, 112) in [0, 1], as `read_picture(file, size=112)` makes it.
    kind: the class, one of `scene.KINDS`.
    layer: the layer whose maps are weighted, one of `cam_pictures.CAM_LAYERS`.
    opacity: of the map over the picture, from 0 to 1.
    buoy: whether a buoy is painted into the picture.

    A network runs once for each picture and layer; another class costs one short backward pass, another opacity none.
    By keyboard: Tab from control to control, arrow keys on sliders, Space for buttons and check boxes.
    Raises `CamError` (a `ValueError`) for what there is not.
    """

    def __init__(
        self,
        picture: int | Tensor = 1,
        kind: str = "cat",
        *,
        layer: str = CAM_LAYERS[-1],
        opacity: float = 0.6,
        buoy: bool = False,
    ) -> None:
        self._own = picture if isinstance(picture, Tensor) else None
        self._view = draw_cams(CamChoice(picture, kind, layer, opacity, buoy))
        self._make_controls(1 if self._own is not None else picture, kind, layer, opacity, buoy)
        self._fit_source()
        self._show(self._view)

    @property
    def sentence(self) -> str:
        return self._view.sentence

    @property
    def still_picture(self) -> Picture:
        return Picture(png(self._view.sheet, small=True), self._view.alt)

    # The panel

    def _make_controls(self, picture: int, kind: str, layer: str, opacity: float, buoy: bool) -> None:
        wide = widgets.Layout(width="360px")
        self._number = widgets.IntSlider(
            description="Picture", min=1, max=len(CAM_PICTURES), value=picture, style=label_width(60), layout=wide
        )
        self._buoy = widgets.Checkbox(description="with a buoy", value=buoy, indent=False, layout={"width": "120px"})
        self._truth = widgets.Checkbox(
            description="outline of the truth", value=True, indent=False, layout={"width": "160px"}
        )
        self._upload = widgets.FileUpload(
            description="Your own picture", accept="image/*", multiple=False, layout={"width": "180px"}
        )
        self._back = widgets.Button(description="Back to the course's pictures", layout={"width": "210px"})
        self._kind = widgets.ToggleButtons(
            description="Class",
            options=CAM_KINDS,
            value=kind,
            style={"button_width": "76px", "description_width": "60px"},
        )
        self._layer = widgets.SelectionSlider(
            description="Layer", options=CAM_LAYERS, value=layer, style=label_width(60), layout=wide
        )
        self._opacity = widgets.IntSlider(
            description="Opacity %",
            min=0,
            max=100,
            step=10,
            value=round(100 * opacity),
            style=label_width(70),
            layout=wide,
        )
        self._picture, self._words, self._problem = (widgets.HTML() for _ in range(3))
        wrap = {"flex_flow": "row wrap", "align_items": "center"}
        self.widget = widgets.VBox(
            [
                widgets.HBox([self._number, self._buoy, self._upload, self._back], layout=wrap),
                self._kind,
                widgets.HBox([self._layer, self._opacity, self._truth], layout=wrap),
                self._picture,
                self._words,
                self._problem,
            ],
            layout={"max_width": "900px"},
        )
        for control in (self._number, self._buoy, self._truth, self._kind, self._layer, self._opacity):
            control.observe(self._refresh, "value")
        self._upload.observe(self._take_own, "value")
        self._back.on_click(self._leave_own)

    # What happens when a control changes

    def _take_own(self, change: object) -> None:
        if not self._upload.value:
            return
        content = self._upload.value[-1]["content"]
        self._upload.value = ()  # else the file would be saved with the notebook
        try:
            self._own = read_picture(content, size=SIZE)
        except CourseError as error:
            self._problem.value = make_problem(str(error))
            return
        self._fit_source()
        self._refresh()

    def _leave_own(self, button: object) -> None:
        self._own = None
        self._fit_source()
        self._refresh()

    def _fit_source(self) -> None:
        """A picture of one's own has no number, no buoy and no known truth."""
        own = self._own is not None
        self._number.disabled = self._buoy.disabled = self._truth.disabled = own
        self._back.layout.display = None if own else "none"

    def _refresh(self, change: object = None) -> None:
        picture = self._number.value if self._own is None else self._own
        choice = CamChoice(
            picture,
            self._kind.value,
            self._layer.value,
            self._opacity.value / 100,
            self._buoy.value,
            self._truth.value,
        )
        self._show(draw_cams(choice))

    def _show(self, view: CamView) -> None:
        """Put a view on the panel: the only place where the picture changes."""
        self._view = view
        self._picture.value = make_picture(Picture(png(view.sheet), view.alt))
        self._words.value, self._problem.value = make_paragraph(view.sentence), ""
