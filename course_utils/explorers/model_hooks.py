"""The explorer of a model's hooks: register them, and see what they see and change."""

from collections.abc import Iterable

import ipywidgets as widgets

from course_utils.explorers.model_hooks_story import (
    EFFECTS,
    KINDS,
    HookStory,
    PlacementError,
    describe,
    module_names,
    read_placements,
    tell_hooks,
    title_of,
)
from course_utils.explorers.panel import (
    Explorer,
    label_width,
    make_drawing,
    make_label,
    make_paragraph,
    make_problem,
    put_on_paper,
)
from course_utils.vision.toys import MODELS


class ModelHooks(Explorer):
    """Register hooks on the modules of a small model, remove them, and see what they see and change.

    model: one of `toys.MODELS`.
    hooks: the hooks to begin with, in the order of registration: `(module, kind)` or `(module, kind, effect)`, with the
        kinds and effects of `model_hooks_story`; the module is a dotted name, "" is the model itself.

    The hooks exist only while the picture is computed, on a model made for it. By keyboard: Tab from control to
    control, Space for buttons, arrow keys on lists (see `GradientFlow`). Raises `PlacementError` (a `ValueError`) for
    what does not exist.
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
            description="Model", options=[*MODELS], value=model, style=label_width(60), layout={"width": "300px"}
        )
        self._module = widgets.Dropdown(description="Hook on", style=label_width(60), layout={"width": "170px"})
        self._kind = widgets.Dropdown(
            description="Kind",
            options=[*KINDS],
            value="forward hook",
            style=label_width(40),
            layout={"width": "235px"},
        )
        self._effect = widgets.Dropdown(
            description="that does", options=[*EFFECTS], style=label_width(70), layout={"width": "215px"}
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
        self._chips.children = [make_label(words), *(self._make_chip(hook) for hook in self._hooks)]
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
        self._picture.value = make_drawing(story.picture)
        self._words.value, self._problem.value = make_paragraph(story.sentence), ""
