"""What all explorers share: a panel of declared controls over a pure function of their values.

class Squares(Explorer):
    def __init__(self, number: int = 3) -> None:
        super().__init__({"number": make_slider("Number", 1, 9, number)}, rows=["number"])

    look = staticmethod(draw_square)        # draw_square(number=3) returns a View
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import ipywidgets as widgets
from torch import Tensor

from course_utils.explorers import markup
from course_utils.root import CourseError, require
from course_utils.show import code_spans, make_panel, say_how_to_wake
from course_utils.vision.pictures import Picture, png

SHOWN = ("picture", "sentence", "problem")
WIDEST = "1300px"
STEPS = ("step", "back", "next")  # the controls of `make_steps`
WRAPPED = {"flex_flow": "row wrap", "align_items": "center", "min_height": "33px"}  # as with a Combobox


@dataclass(frozen=True)
class View:
    """What an explorer shows for one state.

    picture: a sheet (3, H, W), float in [0, 1], or an SVG with an `aria-label`.
    sentence: what the picture shows, with its key numbers. alt: the same, shorter; only a sheet needs it.
    more: HTML for further parts of the panel, by name. facts: values that the picture shows.
    """

    picture: Tensor | str = field(repr=False)
    sentence: str
    alt: str = ""
    more: Mapping[str, str] = field(default_factory=dict, repr=False)
    facts: Sequence = ()


class Explorer:
    """A panel of controls, the picture of their values with a sentence, and both for pages without a running kernel.

    controls: by name, with the boxes and HTML that a subclass fills itself, or places itself.
    rows: what stands below each other: a name, several names side by side (a tuple), rows behind the button "More" (a
        list), or a widget. The "picture", the "sentence" and the "problem" are made here, and come last where no row
        names them.
    sentence: the words under the picture, with its key numbers: also the plain-text form of the explorer.
    look: a pure function of the controls' values, by name; it returns what to show.

    A subclass has `look`; for a control that does more than have a value, such as a button, `use_<its name>`; and `fit`
    where controls depend on others. A `CourseError` in one of them is shown in words under the last picture, except in
    the first look, where it is raised.
    """

    look: Callable[..., View]
    lines = 2  # of the sentence, for which there always is room, so that what stands below it keeps its place

    def __init__(self, controls: Mapping[str, widgets.Widget], rows: Sequence) -> None:
        self.controls = {**{name: widgets.HTML() for name in SHOWN}, **controls}
        rows = [*rows, *(name for name in SHOWN if name not in rows and name not in controls)]
        self.controls["sentence"].layout.min_height = f"calc({1.5 * self.lines} * var(--jp-content-font-size1, 14px))"
        self.widget = make_panel([self._lay_out(row) for row in rows], WIDEST)
        for name, control in controls.items():
            self.watch(name, control)
        self._refresh("")

    def _lay_out(self, row: str | tuple | widgets.Widget) -> widgets.Widget:
        if isinstance(row, list):
            return make_fold([self._lay_out(part) for part in row])
        if isinstance(row, tuple):
            return widgets.HBox([self._lay_out(part) for part in row], layout=WRAPPED)
        return self.controls.get(row, row)

    def fit(self, name: str) -> None:
        """Adapt other controls after the control `name` was used, before the look; at the start the name is empty."""

    @property
    def values(self) -> dict[str, object]:
        """The controls' values by name. (A button has none.)"""
        return {name: control.value for name, control in self.controls.items() if _has_value(control)}

    def watch(self, name: str, control: widgets.Widget) -> None:
        """Take a click on a control, or a new value, as a use of the control `name`."""
        if isinstance(control, widgets.Button):
            control.on_click(lambda _: self._use(name))
        elif isinstance(control, widgets.Text) and control.continuous_update:  # it tells of each key, and Enter uses it
            control.on_msg(lambda _, told, __: self._use(name) if told.get("event") == "submit" else None)
        elif _has_value(control):
            control.observe(lambda _: self._use(name), "value")
        if control.has_trait("problem"):
            control.observe(lambda change: self._complain(change["new"]), "problem")

    def put(self, name: str, control: widgets.Widget) -> None:
        """Put a new control in the place of one, which is closed.

        A slider for another range is a new one: in the browser, the End key keeps to the range that it began with.
        """
        outdated, self.controls[name] = self.controls[name], control
        self.watch(name, control)
        _replace(self.widget, outdated, control)
        outdated.close()

    def put_buttons(self, row: str, words: str, buttons: Mapping[str, str]) -> None:
        """Fill a row anew, with words and buttons; `buttons` has the label of each, by its name."""
        outdated, shown = self.controls[row].children, [markup.make_label(words)]
        for name, says in buttons.items():
            shown.append(widgets.Button(description=says, layout={"width": "auto"}))
            self.watch(name, shown[-1])
        self.controls[row].children = shown
        for each in outdated:
            each.close()

    def put_steps(self, low: int, high: int, step: int) -> None:
        """Put a slider for other steps in the place of that of `make_steps`."""
        self.put("step", make_slider("Step", low, high, step))

    def use_back(self) -> None:
        self.controls["step"].value -= 1  # a slider keeps to its ends

    def use_next(self) -> None:
        self.controls["step"].value += 1

    def _refresh(self, name: str) -> None:
        self._fitting = True
        try:
            getattr(self, f"use_{name}", lambda: None)()
            self.fit(name)
            self._mark_next()
            self.show(self.look(**self.values))
        finally:
            self._fitting = False

    def _mark_next(self) -> None:
        """Let *Next* stand out as long as there is a next step. It may have the focus, so it stays enabled."""
        if step := self.controls.get("step"):
            self.controls["next"].button_style = "primary" if step.value < step.max else ""

    def _use(self, name: str) -> None:
        if not self._fitting:
            try:
                self._refresh(name)
            except CourseError as error:
                self._complain(str(error))

    def _complain(self, message: str) -> None:
        self.controls["problem"].value = markup.make_problem(message)

    def show(self, view: View) -> None:
        """Put a view on the panel: the only place where the picture changes."""
        self.view, self.sentence = view, view.sentence
        if isinstance(view.picture, str):
            picture = markup.make_drawing(view.picture)
        else:
            picture = markup.make_picture(Picture(png(view.picture, jpeg=True), view.alt), view.picture.shape[2])
        words = {"picture": picture, "sentence": markup.make_paragraph(view.sentence), "problem": "", **view.more}
        for name, html in words.items():
            self.controls[name].value = html

    @property
    def still_picture(self) -> str | Picture:
        """The present picture as a `Picture`, or as SVG that is readable on a page of any colour."""
        if isinstance(picture := self.view.picture, str):
            return markup.put_on_paper(picture)
        return Picture(png(picture, small=True), self.view.alt)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict, dict]:
        """Show the panel where there are widgets, else the still picture, else the sentence."""
        say_how_to_wake()
        still = self.still_picture
        if isinstance(still, str):
            data, metadata = {"image/svg+xml": still}, {}
        else:
            data, metadata = still._repr_mimebundle_()
            if "text/html" in data:  # where somebody runs the cell: what is saved of it
                data["text/html"] += f"<p>{code_spans(self.sentence)}</p>"
        return {**data, **self.widget._repr_mimebundle_(), "text/plain": self.sentence}, metadata


def _replace(box: widgets.Widget, outdated: widgets.Widget, control: widgets.Widget) -> None:
    if outdated in (children := getattr(box, "children", ())):
        box.children = [control if child is outdated else child for child in children]
    for child in children:
        _replace(child, outdated, control)


def begin(words: str) -> str:
    """Return words as the beginning of a sentence: with a capital letter, and all else as it is."""
    return words[0].upper() + words[1:]


def name_place(strength: Tensor) -> str:
    """Say in words where a map (H, W) is greatest: in which part of three by three."""
    height, width = strength.shape
    row, column = divmod(strength.argmax().item(), width)
    across, down = (", left", "", ", right"), ("at the top", "in the middle", "at the bottom")
    return down[3 * row // height] + across[3 * column // width]


def _has_value(control: widgets.Widget) -> bool:
    return control.has_trait("value") and not isinstance(control, widgets.HTML)


def make_slider(
    label: str, low: int, high: int, value: int, *, width: int = 360, indent: int = 60
) -> widgets.IntSlider:
    """Return a slider of whole numbers, its label `indent` pixels wide. Raises `CourseError` for a value outside.

    value: a negative one counts from the end; -1 is the last.
    """
    if value not in (*range(low, high + 1), *range(low - high - 1, 0)):
        raise CourseError(f"{label} is a whole number from {low} to {high}, got {value!r}")
    look = {"style": {"description_width": f"{indent}px"}, "layout": {"width": f"{width}px"}}
    return widgets.IntSlider(description=label, min=low, max=high, value=value % (high + 1), **look)


def make_fold(rows: Sequence[widgets.Widget]) -> widgets.VBox:
    """Return a button "More" over widgets that it shows and hides. (Colab cannot show an Accordion.)"""
    button = widgets.ToggleButton(description="More", tooltip="Show more controls", layout={"width": "90px"})
    below = widgets.VBox(rows, layout={"display": "none"})
    button.observe(lambda change: below.layout.set_trait("display", None if change["new"] else "none"), "value")
    return widgets.VBox([button, below])


def make_steps(low: int, high: int, step: int) -> dict[str, widgets.Widget]:
    """Return a slider of steps with a button on each side of the present one; `STEPS` names them."""
    ways = {"back": ("Back", "One step back", ""), "next": ("Next", "One step on", "primary")}
    steps = {"step": make_slider("Step", low, high, step)}
    for name, (words, tooltip, style) in ways.items():
        steps[name] = widgets.Button(description=words, tooltip=tooltip, button_style=style, layout={"width": "90px"})
    return steps


def make_choice(
    kind: type, label: str, options: Iterable[str], value: str, *, width: int = 360, indent: int = 60
) -> widgets.Widget:
    """Return a `Dropdown`, a `SelectionSlider` or `ToggleButtons`, each button of which is so wide (0: as its words).

    options: the values, or a mapping of words to values. Raises `CourseError` for a value that is not among them.
    """
    require(label, value, options.values() if isinstance(options, Mapping) else options)
    style, wide = {"description_width": f"{indent}px"}, {"width": f"{width}px" if width else "auto"}
    if kind is widgets.ToggleButtons:
        style["button_width"] = wide["width"]
        wide = {"width": "auto", "display": "flex", "flex_flow": "row wrap"}  # on the line of its label
    return kind(description=label, options=options, value=value, style=style, layout=wide)
