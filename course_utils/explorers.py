"""Explorers: small ipywidgets panels over pure functions. Values go in, a picture and a sentence come out.

Show one by making it the last line of a cell: `GradientFlow("two paths", hooks={"a": "times 6"}, step=3)`.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable
from html import escape

import ipywidgets as widgets
from torch import Tensor, nn

from course_utils.call_pictures import (
    EXAMPLE_CALLS,
    GLOBAL,
    MODEL,
    CallStory,
    choose_moments,
    guess_next_hook,
    make_example,
    show_source,
    tell_call,
)
from course_utils.calls import HOOK_KINDS, life_of_a_call
from course_utils.cam_pictures import CAM_LAYERS, CAM_PICTURES, CamChoice, CamView, draw_cams
from course_utils.cam_pictures import KINDS as CAM_KINDS
from course_utils.display import widget_bundle
from course_utils.feature_maps import (
    NETWORKS,
    PICTURES,
    STRONGEST,
    THUMB,
    ChannelStory,
    Views,
    draw_strokes,
    put_on_white,
    tell_channel,
    view_numbered,
    view_picture,
)
from course_utils.gradient_flow import ACTIONS, Hooks, read_hooks
from course_utils.gradient_stories import Story, backward_story
from course_utils.graphs import EXAMPLES, Graph, GraphError, example, parse
from course_utils.guided_pictures import (
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
from course_utils.model_hooks import (
    EFFECTS,
    KINDS,
    MODELS,
    HookStory,
    PlacementError,
    describe,
    module_names,
    read_placements,
    tell_hooks,
    title_of,
)
from course_utils.networks import WeightsError
from course_utils.pictures import Picture, PictureError, png, read_picture
from course_utils.scenes import SIZE

# --------------------------------------------------------------------------------------------------------------------
# What all explorers share
# --------------------------------------------------------------------------------------------------------------------


class Explorer:
    """A panel of controls with a sentence and a still picture, for pages without a running kernel.

    A subclass sets `widget` and implements `sentence` and `still_picture`.
    """

    widget: widgets.Widget

    @property
    def sentence(self) -> str:
        """The words under the picture, with its key numbers: also the plain-text form of the explorer."""
        raise NotImplementedError

    @property
    def still_picture(self) -> str:
        """The present picture as SVG that is readable on a page of any colour."""
        raise NotImplementedError

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        """Show the panel where there are widgets, else the still picture, else the sentence."""
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        return {
            "text/plain": self.sentence,
            "image/svg+xml": self.still_picture,
            "application/vnd.jupyter.widget-view+json": view,
        }


def make_paragraph(words: str) -> str:
    """Return a sentence as HTML that a screen reader announces when it changes."""
    return (
        '<div role="status" aria-live="polite" style="max-width:90ch;line-height:1.5;font-size:14px">'
        f"{escape(words)}</div>"
    )


def make_problem(message: str) -> str:
    """Return what is wrong with an input as HTML, its line breaks kept; nothing for an empty message."""
    if not message:
        return ""
    return (
        '<div role="alert" style="max-width:80ch;border-left:4px solid currentColor;padding:2px 10px;line-height:1.4">'
        '<b>That does not work yet.</b><pre style="margin:0;white-space:pre-wrap;color:inherit;background:none">'
        f"{escape(message)}</pre></div>"
    )


def make_picture(picture: Picture) -> str:
    """Return a PNG as HTML with its alt text. (An Image widget has none, and with a tooltip it fails in JupyterLab.)"""
    # "/" and "+" in percent code, which browsers undo: no stretch of the picture can look like the path of a file.
    data = b64encode(picture.data).decode().replace("/", "%2F").replace("+", "%2B")
    return f'<img alt="{escape(picture.alt)}" src="data:image/png;base64,{data}" style="max-width:100%;height:auto">'


def make_table(header: Iterable[str], rows: Iterable[Iterable[str]], caption: str) -> str:
    """Return an HTML table of text; the first entry of each row is its heading."""
    cell = "padding:2px 14px 2px 0;text-align:left;border-bottom:1px solid currentColor;font-weight:"
    head = "".join(f'<th scope="col" style="{cell}600">{escape(title)}</th>' for title in header)
    body = ""
    for first, *others in rows:
        entries = "".join(f'<td style="{cell}400">{escape(entry)}</td>' for entry in others)
        body += f'<tr><th scope="row" style="{cell}600">{escape(first)}</th>{entries}</tr>'
    return (
        f'<table style="border-collapse:collapse;font-size:13px;line-height:1.5"><caption style="text-align:left">'
        f"{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def put_on_paper(svg: str) -> str:
    """Give an SVG that takes its colours from the page a white background and dark lines of its own."""
    return svg.replace("color:var(--jp-ui-font-color1, currentColor)", "color:#1f1f1f;background:#ffffff", 1)


def _label_width(pixels: int) -> dict[str, str]:
    return {"description_width": f"{pixels}px"}


# --------------------------------------------------------------------------------------------------------------------
# Gradients through a small graph
# --------------------------------------------------------------------------------------------------------------------

OWN = "my own"
OWN_TEXT = "w = 2\nx = [1, 2, 3]\nh = w * x\ny = sum(h ** 2)"


class GradientFlow(Explorer):
    """Step through backward on a small graph, with hooks to switch on and off.

    graph: the name of an example (`course_utils.graphs.EXAMPLES`), an expression such as `"w = 1; y = w * w"`, or a
        graph made by `course_utils.graphs.parse`.
    hooks: where which hook sits: a mapping such as `{"a": "times 6"}` or `{"w": ["times 2", "print"]}`, or pairs in the
        order of registration; the actions are the keys of `course_utils.graphs.ACTIONS`.
    step: the step of backward to open at: 0 before backward, -1 after its last step.

    By keyboard: Tab from control to control, arrow keys on the slider, Space for buttons and to open a list. (An arrow
    key on a closed list belongs to JupyterLab, which moves to another cell.)

    Raises `GraphError` (a `ValueError`) when there is no such graph, hook or step.
    """

    def __init__(self, graph: str | Graph = "two paths", *, hooks: Hooks = (), step: int = 0) -> None:
        self._graph = _find_graph(graph)
        self._switches = [self._make_switch(*hook) for hook in read_hooks(self._graph, hooks)]
        story = backward_story(self._graph, self._hooks, step)
        self._make_controls(graph if isinstance(graph, str) and graph in EXAMPLES else OWN)
        self._begin(story)

    @property
    def sentence(self) -> str:
        return self._story.sentence

    @property
    def still_picture(self) -> str:
        return put_on_paper(self._story.picture)

    # The panel

    def _make_controls(self, choice: str) -> None:
        wide = widgets.Layout(width="380px")
        self._choice = widgets.Dropdown(
            description="Graph", options=[*EXAMPLES, OWN], value=choice, style=_label_width(60), layout=wide
        )
        self._text = widgets.Textarea(
            description="Lines",
            value=self._graph.text if choice == OWN else OWN_TEXT,
            continuous_update=False,
            rows=5,
            style=_label_width(60),
            layout=wide,
        )
        self._draw = widgets.Button(description="Draw this graph", tooltip="Draw the graph of these lines")
        help_text = widgets.HTML(
            '<div style="line-height:1.4;margin:0 8px">Numbers first, such as <code>w = 2</code> or <code>x = [1, 2]'
            "</code>. Then operations. Backward starts from the last line.</div>"
        )
        self._top = widgets.HBox(layout={"flex_flow": "row wrap"})
        self._own = widgets.HBox([self._text, widgets.VBox([help_text, self._draw], layout={"width": "380px"})])
        self._node = widgets.Dropdown(description="Hook on", style=_label_width(60), layout={"width": "190px"})
        self._action = widgets.Dropdown(
            description="that does",
            options=[
                (action.code if name in action.code else f"{name}: {action.code}", name)
                for name, action in ACTIONS.items()
            ],
            value="times 6",
            style=_label_width(70),
            layout={"width": "330px"},
        )
        self._add = widgets.Button(description="Add hook", tooltip="Register this hook", layout={"width": "100px"})
        self._clear = widgets.Button(description="Remove all", tooltip="Remove all hooks", layout={"width": "100px"})
        self._chips = widgets.HBox(layout={"flex_flow": "row wrap", "align_items": "center"})
        self._picture, self._words, self._problem, self._table = (widgets.HTML() for _ in range(4))
        self._with_table = widgets.Checkbox(description="All numbers as a table", indent=False)
        self.widget = widgets.VBox(
            [
                self._top,
                self._own,
                widgets.HBox([self._node, self._action, self._add, self._clear], layout={"flex_flow": "row wrap"}),
                self._chips,
                self._picture,
                self._words,
                self._problem,
                self._with_table,
                self._table,
            ],
            layout={"max_width": "900px"},
        )
        self._choice.observe(self._change_graph, "value")
        self._text.observe(self._change_graph, "value")
        self._draw.on_click(self._change_graph)
        self._with_table.observe(self._refresh, "value")
        self._add.on_click(self._add_hook)
        self._clear.on_click(self._remove_hooks)

    def _make_switch(self, node: str, action: str) -> widgets.ToggleButton:
        switch = widgets.ToggleButton(value=True, layout={"width": "auto"})
        switch.hook = (node, action)
        switch.observe(self._refresh, "value")
        return switch

    @property
    def _hooks(self) -> list[tuple[str, str]]:
        return [switch.hook for switch in self._switches if switch.value]

    # What happens when a control changes

    def _change_graph(self, change: object) -> None:
        own = self._choice.value == OWN
        try:
            graph = parse(self._text.value) if own else example(self._choice.value)
        except GraphError as error:
            self._own.layout.display = None
            self._problem.value = make_problem(str(error))
            return
        self._graph = graph
        self._switches = [switch for switch in self._switches if own and switch.hook[0] in graph.hookable]
        self._begin(backward_story(graph, self._hooks, 0))

    def _begin(self, story: Story) -> None:
        """Fit the controls to a graph, and show it."""
        self._make_slider(story)
        self._node.options = self._graph.hookable
        self._node.value = self._graph.hookable[0]
        self._own.layout.display = None if self._choice.value == OWN else "none"
        self._show_switches()
        self._show(story)

    def _make_slider(self, story: Story) -> None:
        """Make a new slider for each graph: in the browser, the End key keeps to the range that a slider began with."""
        self._step = widgets.IntSlider(
            description="Step", min=0, max=story.last_step, value=story.step, style=_label_width(60)
        )
        self._step.layout.width = "380px"
        self._step.observe(self._refresh, "value")
        outdated = self._top.children[1:]
        self._top.children = [self._choice, self._step]
        for slider in outdated:
            slider.close()

    def _add_hook(self, button: object) -> None:
        node, action = self._node.value, self._action.value
        try:
            read_hooks(self._graph, [*(switch.hook for switch in self._switches), (node, action)])
        except GraphError as error:
            self._problem.value = make_problem(str(error))
            return
        self._switches.append(self._make_switch(node, action))
        self._show_switches()
        self._refresh()

    def _remove_hooks(self, button: object) -> None:
        self._switches = []
        self._show_switches()
        self._refresh()

    def _refresh(self, change: object = None) -> None:
        self._show(backward_story(self._graph, self._hooks, self._step.value))

    def _show_switches(self) -> None:
        label = widgets.Label("Hooks, in the order of registration (press to switch off or on):")
        none = widgets.Label("No hook is registered.")
        self._chips.children = [label, *self._switches] if self._switches else [none]
        self._clear.disabled = not self._switches

    def _show(self, story: Story) -> None:
        """Put a story on the panel: the only place where the picture changes."""
        self._story = story
        for switch in self._switches:
            node, action = switch.hook
            switch.description = f"{node}: {ACTIONS[action].code}, {'on' if switch.value else 'off'}"
        self._picture.value, self._words.value, self._problem.value = story.picture, make_paragraph(story.sentence), ""
        self._table.value = _tabulate(story) if self._with_table.value else ""


def _find_graph(graph: str | Graph) -> Graph:
    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, str):
        return parse(graph) if "=" in graph or "\n" in graph else example(graph)
    raise GraphError(f"{graph!r} is no graph: give the name of an example, an expression, or the result of parse().")


def _tabulate(story: Story) -> str:
    rows = [(row.name, row.kind, row.value, row.gradient, row.gradient_without_hooks, row.grad) for row in story.table]
    header = ("tensor", "kind", "value", "gradient", "without hooks", ".grad")
    return make_table(header, rows, f"After step {story.step} of {story.last_step}")


# --------------------------------------------------------------------------------------------------------------------
# Hooks on the modules of a small model
# --------------------------------------------------------------------------------------------------------------------


class ModelHooks(Explorer):
    """Register hooks on the modules of a small model, remove them, and see what they see and change.

    model: one of `course_utils.model_hooks.MODELS`.
    hooks: the hooks to begin with, in the order of registration: `(module, kind)` or `(module, kind, effect)`, with the
        kinds and effects of `course_utils.model_hooks`; the module is a dotted name, "" is the model itself.

    The hooks exist only while the picture is computed, on a model made for it. By keyboard: Tab from control to
    control, Space for buttons and to open a list. Raises `PlacementError` (a `ValueError`) for what does not exist.
    """

    def __init__(self, model: str = "small net", hooks: Iterable[tuple[str, ...]] = ()) -> None:
        self._hooks = list(read_placements(model, hooks))
        story = tell_hooks(model, self._hooks)
        self._make_controls(model)
        self._fit_modules()
        self._show_hooks()
        self._show(story)

    @property
    def sentence(self) -> str:
        return self._story.sentence

    @property
    def still_picture(self) -> str:
        return put_on_paper(self._story.picture)

    # The panel

    def _make_controls(self, model: str) -> None:
        self._model = widgets.Dropdown(
            description="Model", options=[*MODELS], value=model, style=_label_width(60), layout={"width": "300px"}
        )
        self._module = widgets.Dropdown(description="Hook on", style=_label_width(60), layout={"width": "170px"})
        self._kind = widgets.Dropdown(
            description="Kind",
            options=[*KINDS],
            value="forward hook",
            style=_label_width(40),
            layout={"width": "235px"},
        )
        self._effect = widgets.Dropdown(
            description="that does", options=[*EFFECTS], style=_label_width(70), layout={"width": "215px"}
        )
        self._register = widgets.Button(
            description="Register", tooltip="Register this hook on the module", layout={"width": "96px"}
        )
        self._clear = widgets.Button(
            description="Remove all", tooltip="Remove all hooks from the model", layout={"width": "96px"}
        )
        self._chips = widgets.HBox(layout={"flex_flow": "row wrap", "align_items": "center"})
        self._picture, self._words, self._problem = (widgets.HTML() for _ in range(3))
        choices = [self._module, self._kind, self._effect, self._register, self._clear]
        row = widgets.HBox(choices, layout={"flex_flow": "row wrap"})
        self.widget = widgets.VBox(
            [self._model, row, self._chips, self._picture, self._words, self._problem], layout={"max_width": "900px"}
        )
        self._model.observe(self._change_model, "value")
        self._register.on_click(self._add_hook)
        self._clear.on_click(self._remove_all)

    # What happens when a control changes

    def _change_model(self, change: object) -> None:
        self._hooks = []
        self._fit_modules()
        self._refresh()

    def _add_hook(self, button: object) -> None:
        hook = (self._module.value, self._kind.value, self._effect.value)
        try:
            self._hooks = list(read_placements(self._model.value, [*self._hooks, hook]))
        except PlacementError as error:
            self._problem.value = make_problem(str(error))
            return
        self._refresh()

    def _remove_hook(self, button: widgets.Button) -> None:
        del self._hooks[self._chips.children.index(button) - 1]  # the label comes first
        self._refresh()

    def _remove_all(self, button: object) -> None:
        self._hooks = []
        self._refresh()

    def _refresh(self) -> None:
        self._show_hooks()
        self._show(tell_hooks(self._model.value, self._hooks))

    def _fit_modules(self) -> None:
        names = module_names(self._model.value)
        self._module.options = [(title_of(name), name) for name in names]
        self._module.value = names[1]

    def _show_hooks(self) -> None:
        words = (
            "Hooks, in the order of registration (press to remove one):" if self._hooks else "No hook is registered."
        )
        outdated = self._chips.children
        self._chips.children = [widgets.Label(words), *(self._make_chip(hook) for hook in self._hooks)]
        for chip in outdated:
            chip.close()
        self._clear.disabled = not self._hooks

    def _make_chip(self, hook: tuple[str, str, str]) -> widgets.Button:
        chip = widgets.Button(description=f"Remove {describe(hook)}", layout={"width": "auto"})
        chip.on_click(self._remove_hook)
        return chip

    def _show(self, story: HookStory) -> None:
        """Put a story on the panel: the only place where the picture changes."""
        self._story = story
        self._picture.value, self._words.value, self._problem.value = story.picture, make_paragraph(story.sentence), ""


# --------------------------------------------------------------------------------------------------------------------
# The life of a call
# --------------------------------------------------------------------------------------------------------------------

NO_OTHER = "no hook any more"


class LifeOfACall(Explorer):
    """Step through one call of a small network and its backward pass, and predict which hook fires next.

    model: what the relu of the network fc1, relu, fc2 does ("plain", "in place" or "raises an error"), or a model of
        your own with at most 8 modules; then `inputs` is what to call it with, a tensor or a tuple of arguments.
    hooks: the hooks to begin with, in the order of registration: `(kind, place)` with a kind of
        `course_utils.calls.HOOK_KINDS`; the place is a dotted name, "" for the model, or "global".
    step: the step to open at, from 1; -1 for the last.

    The source of each part comes from the installed torch, and shows as soon as a control is used. By keyboard: Tab
    from control to control, arrow keys on the slider, Space for buttons and boxes. Raises
    `ValueError` for an unknown model, kind or step, and `UnknownLayerError` for an unknown place.
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
            description="The relu is", options=[*EXAMPLE_CALLS], value=relu, style=_label_width(75)
        )
        self._relu.style.button_width = "auto"
        self._place = widgets.ToggleButtons(description="Hooks of", options=places, value="", style=_label_width(75))
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
        self._registered.value = f"<div>Registered, in this order: {escape(', '.join(names) or 'no hook')}.</div>"
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
        self._choices.children = [widgets.Label("Predict: which hook fires next?"), *buttons]
        for widget in outdated:
            widget.close()

    def _make_slider(self, place: int) -> None:
        """Make a new slider for each call: in the browser, the End key keeps to the range that a slider began with."""
        stops = self._stops()
        self._step = widgets.IntSlider(
            description="Step", min=1, max=len(stops), value=stops.index(place) + 1, style=_label_width(60)
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
        self._picture.value, self._words.value = self._story.picture, make_paragraph(self._story.sentence)
        # What is saved in a notebook must not depend on the release: the source comes with the first move.
        later = "<div>Move the slider: here you will read the source of each part, as it is in your torch.</div>"
        self._source.value = show_source(self._story.moment) if live else later
        self._problem.value = self._reply.value = ""
        rows = [(str(number), *guess) for number, guess in enumerate(self._guesses, 1)]
        self._table.value = make_table(("hook", "you said", "it was"), rows, "Predicted and actual") if rows else ""


# --------------------------------------------------------------------------------------------------------------------
# Feature maps
# --------------------------------------------------------------------------------------------------------------------

OWN_SIZE = 224  # of a picture of one's own: what the large networks take


class DrawingPad:
    """A white square to draw on in black, with the mouse or a finger, by the package ipycanvas.

    `strokes` are rows of points as `course_utils.feature_maps.draw_strokes` takes them; `on_change(strokes)` is called
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
        words = widgets.Label("Draw here; the maps follow each line.")
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

    network: one of `course_utils.feature_maps.NETWORKS`.
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

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict, dict]:
        """Show the panel where there are widgets, else the picture as a PNG, else the sentence."""
        data, metadata = self._story.picture._repr_mimebundle_()
        return {**data, **widget_bundle(self.widget, self.sentence)}, metadata

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
            style=_label_width(60),
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
        self._where = widgets.HBox(layout={"flex_flow": "row wrap"})
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
                widgets.Label("The channels that respond most to this picture, strongest first (press to see one):"),
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
            style=_label_width(60),
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
            style=_label_width(60),
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
        except PictureError as error:
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


# --------------------------------------------------------------------------------------------------------------------
# Grad-CAM
# --------------------------------------------------------------------------------------------------------------------


class GradCam(Explorer):
    """Where the honest network and its misled twin look for a class, on a picture of the course or one's own.

    picture: the number of one of `course_utils.cam_pictures.CAM_PICTURES`, from 1, or a picture of one's own,
        (3, 112, 112) in [0, 1], as `read_picture(file, size=112)` makes it.
    kind: the class, one of `course_utils.scenes.KINDS`.
    layer: the layer whose maps are weighted, one of `course_utils.cam_pictures.CAM_LAYERS`.
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

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict, dict]:
        """Show the panel where there are widgets, else the sheet as a PNG, else the sentence."""
        data = {**widget_bundle(self.widget, self.sentence), "image/png": b64encode(png(self._view.sheet)).decode()}
        return data, {"image/png": {"alt": self._view.alt}}

    # The panel

    def _make_controls(self, picture: int, kind: str, layer: str, opacity: float, buoy: bool) -> None:
        wide = widgets.Layout(width="360px")
        self._number = widgets.IntSlider(
            description="Picture", min=1, max=len(CAM_PICTURES), value=picture, style=_label_width(60), layout=wide
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
            description="Layer", options=CAM_LAYERS, value=layer, style=_label_width(60), layout=wide
        )
        self._opacity = widgets.IntSlider(
            description="Opacity %",
            min=0,
            max=100,
            step=10,
            value=round(100 * opacity),
            style=_label_width(70),
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
        except PictureError as error:
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


# --------------------------------------------------------------------------------------------------------------------
# Guided Backprop
# --------------------------------------------------------------------------------------------------------------------


class GuidedBackprop(Explorer):
    """Gradient, deconvnet and Guided Backprop on the course's network, from a class or from one unit of a layer.

    picture: the number of one of `course_utils.guided_pictures.GUIDED_PICTURES`, from 1.
    kind: the class, one of `course_utils.scenes.KINDS`.
    start: where backward starts, one of `course_utils.guided_pictures.STARTS`: the class, or the unit of a layer that
        counts most for it.
    rule, normalisation: of `course_utils.guided_pictures.RULES` and `NORMALISATIONS`.

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

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict, dict]:
        """Show the panel where there are widgets, else the sheet as a PNG, else the sentence."""
        data = {**widget_bundle(self.widget, self.sentence), "image/png": b64encode(png(self._view.sheet)).decode()}
        return data, {"image/png": {"alt": self._view.alt}}

    def _make_controls(self, choice: GuidedChoice) -> None:
        wide = widgets.Layout(width="360px")
        self._number = widgets.IntSlider(
            description="Picture",
            min=1,
            max=len(GUIDED_PICTURES),
            value=choice.picture,
            style=_label_width(60),
            layout=wide,
        )
        self._start = widgets.SelectionSlider(
            description="Start at", options=STARTS, value=choice.start, style=_label_width(60), layout=wide
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
