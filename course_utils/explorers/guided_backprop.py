"""The explorer of Guided Backprop and the rules beside it."""

import ipywidgets as widgets

from course_utils.explorers.guided_pictures import (
    CLASS,
    GUIDED_KINDS,
    GUIDED_PICTURES,
    NORMALISATIONS,
    RULES,
    STARTS,
    GuidedChoice,
    GuidedView,
    draw_guided,
)
from course_utils.explorers.panel import (
    Explorer,
    label_width,
    make_paragraph,
    make_picture,
)
from course_utils.vision.pictures import Picture, png


class GuidedBackprop(Explorer):
    """Gradient, deconvnet and Guided Backprop on the course's network, from a class or from one unit of a layer.

    picture: the number of one of `guided_pictures.GUIDED_PICTURES`, from 1.
    kind: the class, one of `scene.KINDS`.
    start: where backward starts, one of `guided_pictures.STARTS`: the class, or the unit of a layer that
        counts most for it.
    rule, normalisation: of `guided_pictures.RULES` and `NORMALISATIONS`.

    By keyboard: Tab from control to control, arrow keys on sliders, Space for buttons. Raises `GuidedError` (a
    `ValueError`) for what there is not.
    """

    def __init__(
        self,
        picture: int = 1,
        kind: str = "cat",
        *,
        start: str = CLASS,
        rule: str = "guided",
        normalisation: str = "mean 0.5, std 0.1",
    ) -> None:
        choice = GuidedChoice(picture, kind, start, rule, normalisation)
        view = draw_guided(choice)
        self._make_controls(choice)
        self._show(view)

    @property
    def sentence(self) -> str:
        return self._view.sentence

    @property
    def still_picture(self) -> Picture:
        return Picture(png(self._view.sheet, small=True), self._view.alt)

    def _make_controls(self, choice: GuidedChoice) -> None:
        wide = widgets.Layout(width="360px")
        self._number = widgets.IntSlider(
            description="Picture",
            min=1,
            max=len(GUIDED_PICTURES),
            value=choice.picture,
            style=label_width(60),
            layout=wide,
        )
        self._start = widgets.SelectionSlider(
            description="Start at", options=STARTS, value=choice.start, style=label_width(60), layout=wide
        )
        self._kind = self._make_buttons("Class", GUIDED_KINDS, choice.kind, 74)
        self._rule = self._make_buttons("Rule", tuple(RULES), choice.rule, 100)
        self._normalisation = self._make_buttons("Shown as", tuple(NORMALISATIONS), choice.normalisation, 150)
        self._picture, self._words = widgets.HTML(), widgets.HTML()
        sliders = widgets.HBox([self._number, self._start], layout={"flex_flow": "row wrap", "align_items": "center"})
        self.widget = widgets.VBox(
            [sliders, self._kind, self._rule, self._normalisation, self._picture, self._words],
            layout={"max_width": "900px"},
        )
        for control in (self._number, self._start, self._kind, self._rule, self._normalisation):
            control.observe(self._refresh, "value")

    @staticmethod
    def _make_buttons(label: str, options: tuple[str, ...], value: str, pixels: int) -> widgets.ToggleButtons:
        return widgets.ToggleButtons(
            description=label,
            options=options,
            value=value,
            style={"button_width": f"{pixels}px", "description_width": "60px"},
        )

    def _refresh(self, change: object = None) -> None:
        choice = GuidedChoice(
            self._number.value, self._kind.value, self._start.value, self._rule.value, self._normalisation.value
        )
        self._show(draw_guided(choice))

    def _show(self, view: GuidedView) -> None:
        """Put a view on the panel: the only place where the picture changes."""
        self._view = view
        self._picture.value = make_picture(Picture(png(view.sheet), view.alt))
        self._words.value = make_paragraph(view.sentence)
