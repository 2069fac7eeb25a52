"""The explorer of activation patching: put a piece of one picture's activation into another one's run."""

import ipywidgets as widgets

from course_utils.explorers.panel import (
    Explorer,
    label_width,
    make_paragraph,
    make_picture,
)
from course_utils.explorers.patch_pictures import (
    NETWORKS,
    PATCH_LAYERS,
    PATCH_PAIRS,
    PLACES,
    PatchChoice,
    PatchView,
    draw_patch,
)
from course_utils.vision.pictures import Picture, png


class Patching(Explorer):
    """Two pictures that differ in one respect, and a block of a layer that is taken from one into the other.

    pair: the number of one of `patch_pictures.PATCH_PAIRS`, from 1.
    network: "honest" or "misled".
    layer: one of `patch_pictures.PATCH_LAYERS`.
    row, column, size: the block, in cells of a grid of 14 x 14 over the picture.

    By keyboard: Tab from control to control, arrow keys on sliders, Space for buttons.
    Raises `PatchError` (a `ValueError`) for what there is not.
    """

    def __init__(
        self,
        pair: int = 1,
        network: str = "misled",
        *,
        layer: str = PATCH_LAYERS[1],
        row: int = 0,
        column: int = 0,
        size: int = 3,
    ) -> None:
        self._view = draw_patch(PatchChoice(pair, network, layer, row, column, size))
        self._make_controls(pair, network, layer, row, column, size)
        self._show(self._view)

    @property
    def sentence(self) -> str:
        return self._view.sentence

    @property
    def still_picture(self) -> Picture:
        return Picture(png(self._view.sheet, small=True), self._view.alt)

    def _make_controls(self, pair: int, network: str, layer: str, row: int, column: int, size: int) -> None:
        wide = widgets.Layout(width="300px")

        def make_slider(name: str, low: int, high: int, value: int) -> widgets.IntSlider:
            return widgets.IntSlider(
                description=name, min=low, max=high, value=value, style=label_width(60), layout=wide
            )

        self._pair = make_slider("Pair", 1, len(PATCH_PAIRS), pair)
        self._network = widgets.ToggleButtons(
            description="Network",
            options=tuple(NETWORKS),
            value=network,
            style={"button_width": "90px", "description_width": "60px"},
        )
        self._layer = widgets.SelectionSlider(
            description="Layer", options=PATCH_LAYERS, value=layer, style=label_width(60), layout={"width": "360px"}
        )
        self._row = make_slider("Row", 0, PLACES - 1, row)
        self._column = make_slider("Column", 0, PLACES - 1, column)
        self._size = make_slider("Size", 1, PLACES, size)
        self._picture, self._words = widgets.HTML(), widgets.HTML()
        wrap = {"flex_flow": "row wrap", "align_items": "center"}
        self.widget = widgets.VBox(
            [
                widgets.HBox([self._pair, self._layer], layout=wrap),
                self._network,
                widgets.HBox([self._row, self._column, self._size], layout=wrap),
                self._picture,
                self._words,
            ],
            layout={"max_width": "960px"},
        )
        for control in (self._pair, self._network, self._layer, self._row, self._column, self._size):
            control.observe(self._refresh, "value")

    def _refresh(self, change: object = None) -> None:
        choice = PatchChoice(
            self._pair.value,
            self._network.value,
            self._layer.value,
            self._row.value,
            self._column.value,
            self._size.value,
        )
        self._show(draw_patch(choice))

    def _show(self, view: PatchView) -> None:
        """Put a view on the panel: the only place where the picture changes."""
        self._view = view
        self._picture.value = make_picture(Picture(png(view.sheet), view.alt))
        self._words.value = make_paragraph(view.sentence)
