"""The explorer of the life of a call: step through torch's own source, and predict which hook fires next."""

from collections.abc import Iterable

import ipywidgets as widgets
from torch import Tensor, nn

from course_utils.explorers.call_pictures import (
    GLOBAL,
    MODEL,
    CallStory,
    choose_moments,
    guess_next_hook,
    show_source,
    tell_call,
)
from course_utils.explorers.panel import (
    Explorer,
    label_width,
    make_drawing,
    make_label,
    make_paragraph,
    make_problem,
    make_table,
    put_on_paper,
    wrap_words,
)
from course_utils.hooks.call import HOOK_KINDS, life_of_a_call
from course_utils.vision.toys import EXAMPLE_CALLS, make_example

NO_OTHER = "no hook any more"


class LifeOfACall(Explorer):
    """Step through one call of a small network and its backward pass, and predict which hook fires next.

    model: what the relu of the network fc1, relu, fc2 does ("plain", "in place" or "raises an error"), or a model of
        your own with at most 8 modules; then `inputs` is what to call it with, a tensor or a tuple of arguments.
    hooks: the hooks to begin with, in the order of registration: `(kind, place)` with a kind of
        `course_utils.hooks.call.HOOK_KINDS`; the place is a dotted name, "" for the model, or "global".
    step: the step to open at, from 1; -1 for the last.

    The source of each part comes from the installed torch, and shows as soon as a control is used. By keyboard: Tab
    from control to control, arrow keys on the slider, Space for buttons and boxes. Raises
    `ValueError` for an unknown model, kind, place or step.
    """

    def __init__(
        self,
        model: str | nn.Module = "plain",
        inputs: Tensor | tuple[object, ...] | None = None,
        *,
        hooks: Iterable[tuple[str, str]] = (),
        step: int = 1,
    ) -> None:
        self._own = None if isinstance(model, str) else (model, inputs)
        if self._own and inputs is None:
            raise ValueError("a model of your own needs inputs: LifeOfACall(model, x)")
        self._hooks = list(hooks)
        self._guesses: list[tuple[str, str]] = []
        self._filling = False
        self._make_controls(model if isinstance(model, str) else "plain")
        self._call()
        stops = self._stops()
        if not -len(stops) <= step <= len(stops) or step == 0:
            raise ValueError(f"there is no step {step}: this call has the steps 1 to {len(stops)}, and -1 is the last")
        self._begin(stops[step - 1 if step > 0 else step])

    @property
    def sentence(self) -> str:
        return self._story.sentence

    @property
    def still_picture(self) -> str:
        return put_on_paper(self._story.picture)

    # The panel

    def _make_controls(self, relu: str) -> None:
        network, _ = self._own or make_example(relu)
        places = [(GLOBAL, GLOBAL), *((name or MODEL, name) for name, _ in network.named_modules())]
        row = {"flex_flow": "row wrap", "align_items": "center"}
        self._relu = widgets.ToggleButtons(
            description="The relu is", options=[*EXAMPLE_CALLS], value=relu, style=label_width(75)
        )
        self._relu.style.button_width = "auto"
        self._place = widgets.ToggleButtons(description="Hooks of", options=places, value="", style=label_width(75))
        self._place.style.button_width = "auto"
        self._kinds = {
            kind: widgets.Checkbox(indent=False, layout={"width": "266px", "margin": "0"}) for kind in HOOK_KINDS
        }
        self._registered = widgets.HTML()
        self._clear = widgets.Button(description="Remove all", tooltip="Remove all hooks", layout={"width": "100px"})
        self._skipped = widgets.Checkbox(description="Also stop at parts that are skipped", indent=False)
        self._back = widgets.Button(description="Back", tooltip="One step back", layout={"width": "70px"})
        self._next = widgets.Button(description="Next", tooltip="One step on", layout={"width": "70px"})
        self._slider_row, self._choices = widgets.HBox(layout=row), widgets.HBox(layout=row)
        self._picture, self._words = widgets.HTML(), widgets.HTML()
        self._source = widgets.HTML(layout={"max_width": "100%", "overflow": "hidden"})
        self._problem, self._reply, self._table = (widgets.HTML() for _ in range(3))
        self.widget = widgets.VBox(
            [
                *([] if self._own else [self._relu]),
                self._place,
                widgets.HBox([*self._kinds.values()], layout={**row, "max_width": "800px"}),
                widgets.HBox([self._registered, self._clear], layout=row),
                self._problem,
                self._slider_row,
                self._picture,
                self._words,
                self._choices,
                self._reply,
                self._table,
                self._source,
            ],
            layout={"max_width": "840px"},
        )
        self._relu.observe(self._change_call, "value")
        self._place.observe(self._fill_boxes, "value")
        for kind, box in self._kinds.items():
            box.observe(lambda change, kind=kind: self._switch(kind, change["new"]), "value")
        self._clear.on_click(self._remove_hooks)
        self._skipped.observe(self._change_stops, "value")
        self._back.on_click(lambda _: self._move(-1))
        self._next.on_click(lambda _: self._move(1))

    def _fill_boxes(self, change: object = None) -> None:
        """Let the boxes show the hooks of the chosen place."""
        self._filling, place = True, self._place.value
        for kind, box in self._kinds.items():
            box.description = f"{place or 'model'}: {kind}"  # "the model" would not fit
            box.value = (kind, place) in self._hooks
        self._filling = False

    # What happens when a control changes

    def _switch(self, kind: str, on: bool) -> None:
        if self._filling:
            return
        before, hook = list(self._hooks), (kind, self._place.value)
        self._hooks = [*self._hooks, hook] if on else [each for each in self._hooks if each != hook]
        try:
            self._call()
        except RuntimeError as error:  # torch refuses full and legacy backward hooks on one module
            self._hooks = before
            self._fill_boxes()
            self._problem.value = make_problem(f"torch refuses this hook: {error}")
            return
        self._begin(self._stops()[0], live=True)

    def _remove_hooks(self, button: object) -> None:
        self._hooks = []
        self._change_call()

    def _change_call(self, change: object = None) -> None:
        self._call()
        self._begin(self._stops()[0], live=True)

    def _change_stops(self, change: object) -> None:
        self._make_slider(max(stop for stop in self._stops() if stop <= self._shown))
        self._show()

    def _move(self, by: int) -> None:
        self._step.value = min(max(self._step.value + by, 1), self._step.max)

    def _guess(self, said: str) -> None:
        guess, place = guess_next_hook(self._moments, self._shown, said)
        words = guess.fired or NO_OTHER
        self._guesses.append((said or NO_OTHER, words if guess.right else f"{words} (not as predicted)"))
        self._step.value = self._stops().index(max(stop for stop in self._stops() if stop <= place)) + 1
        self._show()
        self._reply.value = make_paragraph(guess.sentence)

    # The call and the picture

    def _call(self) -> None:
        model, inputs = self._own or make_example(self._relu.value)
        self._model, self._moments = model, life_of_a_call(model, inputs, self._hooks)

    def _stops(self) -> list[int]:
        return choose_moments(self._moments, skipped=self._skipped.value)

    def _begin(self, place: int, *, live: bool = False) -> None:
        """Fit the controls to a new call, and show it."""
        self._guesses = []
        self._fill_boxes()
        names = [f"{number}. {where or MODEL}: {kind}" for number, (kind, where) in enumerate(self._hooks, 1)]
        self._registered.value = wrap_words(f"Registered, in this order: {', '.join(names) or 'no hook'}.")
        self._clear.disabled = not self._hooks
        self._make_choices()
        self._make_slider(place)
        self._show(live=live)

    def _make_choices(self) -> None:
        labels = dict.fromkeys(f"{where or MODEL}: {kind}" for kind, where in self._hooks)
        buttons = []
        for said in [*labels, ""]:
            button = widgets.Button(description=said or NO_OTHER, layout={"width": "auto"})
            button.on_click(lambda _, said=said: self._guess(said))
            buttons.append(button)
        outdated = self._choices.children
        self._choices.children = [make_label("Predict: which hook fires next?"), *buttons]
        for widget in outdated:
            widget.close()

    def _make_slider(self, place: int) -> None:
        """Make a new slider for each call: in the browser, the End key keeps to the range that a slider began with."""
        stops = self._stops()
        self._step = widgets.IntSlider(
            description="Step", min=1, max=len(stops), value=stops.index(place) + 1, style=label_width(60)
        )
        self._step.layout.width = "330px"
        self._step.observe(self._show, "value")
        outdated = [each for each in self._slider_row.children if isinstance(each, widgets.IntSlider)]
        self._slider_row.children = [self._step, self._back, self._next, self._skipped]
        for slider in outdated:
            slider.close()

    def _show(self, change: object = None, *, live: bool = True) -> None:
        """Put a moment on the panel: the only place where the picture changes."""
        self._shown, skipped = self._stops()[self._step.value - 1], self._skipped.value
        self._story: CallStory = tell_call(self._moments, self._shown, self._model, self._hooks, skipped=skipped)
        self._picture.value = make_drawing(self._story.picture)
        self._words.value = make_paragraph(self._story.sentence)
        # What is saved in a notebook must not depend on the release: the source comes with the first move.
        later = wrap_words("Move the slider: here you will read the source of each part, as it is in your torch.")
        self._source.value = show_source(self._story.moment) if live else later
        self._problem.value = self._reply.value = ""
        rows = [(str(number), *guess) for number, guess in enumerate(self._guesses, 1)]
        self._table.value = make_table(("hook", "you said", "it was"), rows, "Predicted and actual") if rows else ""
