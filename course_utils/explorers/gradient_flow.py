"""The explorer of gradients that flow back through a small graph."""

import ipywidgets as widgets

from course_utils.explorers.backward import ACTIONS, Hooks, read_hooks
from course_utils.explorers.graph import (
    EXAMPLES,
    Graph,
    GraphError,
    example,
    parse,
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
)
from course_utils.explorers.stories import Story, backward_story

OWN = "my own"
OWN_TEXT = "w = 2\nx = [1, 2, 3]\nh = w * x\ny = sum(h ** 2)"


class GradientFlow(Explorer):
    """Step through backward on a small graph, with hooks to switch on and off.

    graph: the name of an example (`graph.EXAMPLES`), an expression such as `"w = 1; y = w * w"`, or a
        graph made by `graph.parse`.
    hooks: where which hook sits: a mapping such as `{"a": "times 6"}` or `{"w": ["times 2", "print"]}`, or pairs in the
        order of registration; the actions are the keys of `graph.ACTIONS`.
    step: the step of backward to open at: 0 before backward, -1 after its last step.

    By keyboard: Tab from control to control, arrow keys on the slider and on lists, Space for buttons. (In a JupyterLab
    that `make lab` did not open, Space opens a list first; an arrow key on a closed one moves to another cell.)

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
            description="Graph", options=[*EXAMPLES, OWN], value=choice, style=label_width(60), layout=wide
        )
        self._text = widgets.Textarea(
            description="Lines",
            value=self._graph.text if choice == OWN else OWN_TEXT,
            continuous_update=False,
            rows=5,
            style=label_width(60),
            layout=wide,
        )
        self._draw = widgets.Button(description="Draw this graph", tooltip="Draw the graph of these lines")
        help_text = widgets.HTML(
            '<div style="line-height:1.4;margin:0 8px">Numbers first, such as <code>w = 2</code> or <code>x = [1, 2]'
            "</code>. Then operations. Backward starts from the last line.</div>"
        )
        self._top = widgets.HBox(layout={"flex_flow": "row wrap"})
        beside = widgets.VBox([help_text, self._draw], layout={"width": "380px"})
        self._own = widgets.HBox([self._text, beside], layout={"flex_flow": "row wrap"})
        self._node = widgets.Dropdown(description="Hook on", style=label_width(60), layout={"width": "190px"})
        self._action = widgets.Dropdown(
            description="that does",
            options=[
                (action.code if name in action.code else f"{name}: {action.code}", name)
                for name, action in ACTIONS.items()
            ],
            value="times 6",
            style=label_width(70),
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
            description="Step", min=0, max=story.last_step, value=story.step, style=label_width(60)
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
        words = "Hooks, in the order of registration (press to switch off or on):"
        outdated = self._chips.children[:1]
        self._chips.children = [make_label(words if self._switches else "No hook is registered."), *self._switches]
        for label in outdated:
            label.close()
        self._clear.disabled = not self._switches

    def _show(self, story: Story) -> None:
        """Put a story on the panel: the only place where the picture changes."""
        self._story = story
        for switch in self._switches:
            node, action = switch.hook
            switch.description = f"{node}: {ACTIONS[action].code}, {'on' if switch.value else 'off'}"
        self._picture.value = make_drawing(story.picture)
        self._words.value, self._problem.value = make_paragraph(story.sentence), ""
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
