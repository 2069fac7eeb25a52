"""The explorer of feature maps: network, layer, channel, and a picture of the course's or of one's own."""

from collections.abc import Callable

import ipywidgets as widgets
from torch import Tensor

from course_utils.explorers.feature_views import (
    NETWORKS,
    PICTURES,
    THUMB,
    ChannelStory,
    Views,
    tell_channel,
    view_numbered,
    view_picture,
)
from course_utils.explorers.panel import (
    Explorer,
    label_width,
    make_label,
    make_paragraph,
    make_picture,
    make_problem,
)
from course_utils.root import CourseError
from course_utils.vision.networks import WeightsError
from course_utils.vision.pictures import STRONGEST, Picture, draw_strokes, put_on_white, read_picture

OWN_SIZE = 224  # of a picture of one's own: what the large networks take


class DrawingPad:
    """A white square to draw on in black, with the mouse or a finger, by the package ipycanvas.

    `strokes` are rows of points as `pictures.draw_strokes` takes them; `on_change(strokes)` is called
    at the end of each stroke and when the square was wiped. Raises `ModuleNotFoundError` without ipycanvas.
    """

    def __init__(self, on_change: Callable[[list], None]) -> None:
        from ipycanvas import Canvas  # not among the course's dependencies: uploading a picture needs no package

        self.strokes: list[list[tuple[float, float]]] = []
        self._on_change, self._drawing = on_change, False
        self._canvas = Canvas(width=OWN_SIZE, height=OWN_SIZE, layout={"border": "1px solid gray"})
        self._canvas.line_width, self._canvas.line_cap = OWN_SIZE / 40, "round"
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
        self._canvas.fill_rect(0, 0, OWN_SIZE, OWN_SIZE)

    def _begin(self, x: float, y: float) -> None:
        self._drawing = True
        self.strokes.append([(100 * x / OWN_SIZE, 100 * y / OWN_SIZE)])

    def _go_on(self, x: float, y: float) -> None:
        if self._drawing:
            before = [number * OWN_SIZE / 100 for number in self.strokes[-1][-1]]
            self._canvas.stroke_line(*before, x, y)
            self.strokes[-1].append((100 * x / OWN_SIZE, 100 * y / OWN_SIZE))

    def _end(self, *_: float) -> None:
        if self._drawing:
            self._drawing = False
            self._on_change(self.strokes)

    def _wipe(self, button: object) -> None:
        self.strokes.clear()
        self._paint_white()
        self._on_change(self.strokes)


class FeatureMaps(Explorer):
    """What each channel of each layer of a network makes of a picture of the course, or of one's own.

    network: one of `feature_views.NETWORKS`.
    layer, channel: what to show first; without them, the last layer, and the channel that responds most.
    picture: a number from 0 to 89, or a picture of one's own, (3, H, W) float in [0, 1].

    A network runs once for each picture; after that, layers and channels are only drawn. By keyboard: Tab from control
    to control, arrow keys on sliders, Space for buttons. Raises `MapError` (a `ValueError`) for what there is not.
    """

    def __init__(
        self,
        network: str = "picture_net",
        *,
        layer: str | None = None,
        channel: int | None = None,
        picture: int | Tensor = 0,
    ) -> None:
        self._own = picture if isinstance(picture, Tensor) else None
        self._views = self._look(network, 0 if self._own is not None else picture)
        story = tell_channel(self._views, layer or [*self._views.layers][-1], channel)
        self._make_controls(network, 0 if self._own is not None else picture)
        self._fit_source()
        self._fit_layers(story)
        self._fit_channels(story)
        self._show(story)

    @property
    def sentence(self) -> str:
        return self._story.sentence

    @property
    def still_picture(self) -> Picture:
        return self._story.picture

    # The panel

    def _make_controls(self, network: str, number: int) -> None:
        self._network = widgets.ToggleButtons(
            description="Network",
            options=[(words, name) for name, words in NETWORKS.items()],
            value=network,
            style={"button_width": "166px", "description_width": "60px"},
        )
        self._number = widgets.IntSlider(
            description="Picture",
            min=0,
            max=PICTURES - 1,
            value=number,
            style=label_width(60),
            layout={"width": "350px"},
        )
        self._upload = widgets.FileUpload(
            description="Your own picture", accept="image/*", multiple=False, layout={"width": "190px"}
        )
        self._draw = widgets.Button(
            description="Draw one", tooltip="Draw with the mouse or a finger", layout={"width": "110px"}
        )
        self._back = widgets.Button(description="Back to the course's pictures", layout={"width": "230px"})
        self._pad = widgets.HBox()
        self._where = widgets.HBox(layout={"flex_flow": "row wrap", "align_items": "center"})
        self._buttons = [self._make_button() for _ in range(STRONGEST)]
        self._picture, self._words, self._problem = (widgets.HTML() for _ in range(3))
        wrap = {"flex_flow": "row wrap", "align_items": "center"}
        self.widget = widgets.VBox(
            [
                self._network,
                widgets.HBox([self._number, self._upload, self._draw, self._back], layout=wrap),
                self._pad,
                self._where,
                self._picture,
                make_label("The channels that respond most to this picture, strongest first (press to see one):"),
                widgets.HBox(self._buttons),
                self._words,
                self._problem,
            ],
            layout={"max_width": "900px"},
        )
        self._network.observe(self._change_network, "value")
        self._number.observe(self._change_picture, "value")
        self._upload.observe(self._take_own, "value")
        self._draw.on_click(self._open_pad)
        self._back.on_click(self._leave_own)

    def _make_button(self) -> widgets.Button:
        # As wide as the small map above it, and narrower together with it.
        layout = {"flex": "1 1 0px", "width": "auto", "min_width": "0", "max_width": f"{THUMB}px", "margin": "2px"}
        button = widgets.Button(layout=layout)
        button.on_click(lambda pressed: setattr(self._channel, "value", int(pressed.description)))
        return button

    def _fit_layers(self, story: ChannelStory) -> None:
        """Make a new slider for each network: in the browser, the End key keeps to the range a slider began with."""
        layers = [*self._views.layers]
        self._layer = widgets.SelectionSlider(
            description="Layer",
            options=layers,
            value=story.layer,
            style=label_width(60),
            layout={"width": "400px"},
            continuous_update=True,
        )
        self._layer.observe(self._change_layer, "value")

    def _fit_channels(self, story: ChannelStory) -> None:
        """Make a new slider for the channels of a layer, for the same reason, and put both on the panel."""
        self._channel = widgets.IntSlider(
            description="Channel",
            min=0,
            max=len(self._views.layers[story.layer]) - 1,
            value=story.channel,
            style=label_width(60),
            layout={"width": "350px"},
        )
        self._channel.observe(self._refresh, "value")
        outdated = [slider for slider in self._where.children if slider is not self._layer]
        self._where.children = [self._layer, self._channel]
        for slider in outdated:
            slider.close()

    def _fit_source(self) -> None:
        own = self._own is not None
        self._number.disabled = own
        self._back.layout.display = None if own else "none"

    # What happens when a control changes

    def _look(self, network: str, number: int) -> Views:
        return view_numbered(network, number) if self._own is None else view_picture(network, self._own)

    def _change_network(self, change: dict) -> None:
        if self._network.value == self._views.network:  # put back after a failure
            return
        try:
            self._views = self._look(self._network.value, self._number.value)
        except WeightsError as error:
            self._network.value = change["old"]
            self._problem.value = make_problem(str(error))
            return
        story = tell_channel(self._views, [*self._views.layers][-1])
        self._fit_layers(story)
        self._fit_channels(story)
        self._show(story)

    def _change_picture(self, change: object = None) -> None:
        """The layer and the channel stay, so that one can see what else the channel responds to."""
        self._views = self._look(self._network.value, self._number.value)
        self._refresh()

    def _change_layer(self, change: object) -> None:
        story = tell_channel(self._views, self._layer.value)
        self._fit_channels(story)
        self._show(story)

    def _take_own(self, change: object) -> None:
        if not self._upload.value:
            return
        try:
            own = read_picture(self._upload.value[-1]["content"], size=OWN_SIZE)
        except CourseError as error:
            self._problem.value = make_problem(str(error))
            return
        self._own, self._pad.children = own, []
        self._fit_source()
        self._change_picture()

    def _open_pad(self, button: object) -> None:
        try:
            pad = DrawingPad(self._take_drawing)
        except ModuleNotFoundError:
            self._problem.value = make_problem(
                "Drawing needs the package ipycanvas: run %pip install ipycanvas, restart JupyterLab, and open this "
                "page again. Or upload a picture."
            )
            return
        self._pad.children = [pad.widget]
        self._take_drawing(pad.strokes)

    def _take_drawing(self, strokes: list) -> None:
        self._own = put_on_white(draw_strokes(strokes, OWN_SIZE))
        self._fit_source()
        self._change_picture()

    def _leave_own(self, button: object) -> None:
        self._own = None
        self._pad.children = []
        self._fit_source()
        self._change_picture()

    def _refresh(self, change: object = None) -> None:
        self._show(tell_channel(self._views, self._layer.value, self._channel.value))

    def _show(self, story: ChannelStory) -> None:
        """Put a story on the panel: the only place where the picture changes."""
        self._story = story
        self._picture.value = make_picture(story.picture)
        for place, button in enumerate(self._buttons):
            there = place < len(story.strongest)
            button.layout.display = None if there else "none"
            if there:
                button.description = str(story.strongest[place])
                button.tooltip = f"Show channel {story.strongest[place]}"
        self._words.value, self._problem.value = make_paragraph(story.sentence), ""
