"""The explorer of gradients that flow back through a small graph."""

from ast import literal_eval

import ipywidgets as widgets
import torch
from torch import Tensor

from course_utils.explorers.graph import ACTIONS, EXAMPLES, TensorHooks, format_tensor, parse, read_hooks
from course_utils.explorers.graph_picture import TABLE_HEADER, Backward, draw, tabulate, tell
from course_utils.explorers.markup import make_table, wrap_words
from course_utils.explorers.panel import WRAPPED, Explorer, View, make_choice, make_slider
from course_utils.root import CourseError

OWN = "my own"
OWN_TEXT = "w = 2\nx = [1, 2, 3]\nh = w * x\ny = sum(h ** 2)"


class GradientFlow(Explorer):
    """Step through backward on a small graph, with hooks on its arrows to switch on and off.

    A tensor's hook sits on the arrow into its card, behind the point where arrows meet: torch calls it with their sum.

    "Commit" fixes what you expect as the gradient of a tensor; then backward runs step by step until it is there.

    graph: the name of an example (`graph.EXAMPLES`), or lines such as `"w = 1; y = w * w"` (see `graph.parse`).
    hooks: where which hook sits: a mapping such as `{"a": "times 6"}` or `{"w": ["times 2", "print"]}`, or pairs in the
        order of registration; the actions are the keys of `graph.ACTIONS`.
    step: the step of backward to open at: 0 before backward, -1 after its last step.
    """

    def __init__(self, graph: str = "two paths", *, hooks: TensorHooks = (), step: int = 0) -> None:
        own = "=" in graph
        drop, style, button = widgets.Dropdown, {"description_width": "60px"}, {"layout": {"width": "100px"}}
        wide, late = {"width": "380px"}, {"continuous_update": False}
        choice = make_choice(drop, "Graph", [*EXAMPLES, OWN], OWN if own else graph, width=380)
        self._graph = parse(graph if own else EXAMPLES.get(graph, OWN_TEXT))
        self._switches = [self._make_switch(*hook) for hook in read_hooks(self._graph, hooks)]
        stopped = Backward(self._graph, self._hooks, step)
        text = graph.replace("; ", "\n") if own else OWN_TEXT
        does = {each.code if name in each.code else f"{name}: {each.code}": name for name, each in ACTIONS.items()}
        controls = {
            "graph": choice,
            "step": make_slider("Step", 0, stopped.last_step, stopped.step, width=380),
            "lines": widgets.Textarea(text, description="Lines", rows=5, style=style, layout=wide, **late),
            "draw": widgets.Button(description="Draw this graph", tooltip="Draw the graph of these lines"),
            "node": widgets.Dropdown(description="Hook on", style=style, layout={"width": "270px"}),
            "action": make_choice(drop, "that does", does, "times 6", width=280, indent=70),
            "add": widgets.Button(description="Add hook", tooltip="Register this hook", **button),
            "clear": widgets.Button(description="Remove all", tooltip="Remove all hooks", **button),
            "hooks": widgets.HTML(),
            "at": widgets.Dropdown(description="I expect at", layout={"width": "220px"}),
            "guess": widgets.Text(description="gradient", placeholder="3 or [1, 2]", layout={"width": "230px"}),
            "commit": widgets.Button(description="Commit", tooltip="Fix this, and watch the gradient arrive", **button),
            "play": widgets.Play(max=stopped.last_step, interval=900, layout={"display": "none"}),
            "numbers": widgets.Checkbox(description="All numbers as a table", indent=False),
            "table": widgets.HTML(),
        }
        self._expected: tuple[str, Tensor] | None = None
        help_text = widgets.HTML(
            '<div style="line-height:1.4;margin:0 8px">Numbers first, such as <code>w = 2</code> or <code>x = [1, 2]'
            "</code>. Then operations. Backward starts from the last line.</div>"
        )
        beside = widgets.VBox([help_text, controls["draw"]], layout=wide)
        self._own = widgets.HBox([controls["lines"], beside], layout=WRAPPED)
        self._chips = widgets.HBox([controls["hooks"]], layout=WRAPPED)
        rows = [("graph", "step"), self._own, ("node", "action", "add", "clear"), self._chips]
        rows.append(("at", "guess", "commit", "play"))
        super().__init__(controls, [*rows, "picture", "sentence", "problem", "numbers", "table"])

    @property
    def _hooks(self) -> list[tuple[str, str]]:
        return [switch.hook for switch in self._switches if switch.value]

    def _make_switch(self, node: str, action: str) -> widgets.ToggleButton:
        switch = widgets.ToggleButton(value=True, layout={"width": "auto"})
        switch.hook = (node, action)
        self.watch("switch", switch)
        return switch

    def fit(self, name: str) -> None:
        """Fit the hooks, the steps and the lists to the graph."""
        own = self.controls["graph"].value == OWN
        name = "commit" if name == "guess" else name
        self._own.layout.display = None if own else "none"  # also when the lines cannot be read
        if name in ("graph", "lines", "draw"):
            self._graph = parse(self.controls["lines"].value if own else EXAMPLES[self.controls["graph"].value])
            self._switches = [each for each in self._switches if own and each.hook[0] in self._graph.hookable]
            self.put("step", make_slider("Step", 0, Backward(self._graph).last_step, 0, width=380))
        if name in ("", "graph", "lines", "draw"):
            self.controls["node"].options = {self._graph.name_with_senders(name): name for name in self._graph.hookable}
            self.controls["at"].options = self._graph.hookable
            for part in ("node", "at"):
                self.controls[part].value = self._graph.hookable[0]
        if name == "add":
            self._switches.append(self._make_switch(self.controls["node"].value, self.controls["action"].value))
        if name == "clear":
            self._switches = []
        if name not in ("", "at", "guess", "numbers", "play", "step"):
            self._expected, self.controls["play"].playing = None, False
        if name == "commit":
            self._commit()
        if name in ("add", "clear", "commit"):
            self.controls["step"].value = 0  # nothing is told before it is asked for
        if name == "play":
            self.controls["step"].value = self.controls["play"].value
        for switch in self._switches:
            node, action = switch.hook
            switch.description = f"{node}: {ACTIONS[action].code}, {'on' if switch.value else 'off'}"
        words = "Hooks, in the order of registration (press to switch off or on):"
        self.controls["hooks"].value = wrap_words(words if self._switches else "No hook is registered.")
        for switch in set(self._chips.children[1:]) - set(self._switches):
            switch.close()
        self._chips.children = [self.controls["hooks"], *self._switches]
        self.controls["clear"].disabled = not self._switches

    def _commit(self) -> None:
        node, guess, play = self.controls["at"].value, self.controls["guess"].value, self.controls["play"]
        try:
            self._expected = node, torch.tensor(literal_eval(guess.strip()), dtype=torch.float32)
        except (ValueError, SyntaxError, TypeError, RuntimeError):
            raise CourseError(f"{guess!r} is no gradient: type a number such as 3, or a list such as [1, 2].") from None
        steps = [*Backward(self._graph, self._hooks).steps]
        play.value, play.max = 0, 1 + steps.index(node) if node in steps else len(steps)
        play.playing = True

    def _compare(self, stopped: Backward) -> str:
        if not self._expected:
            return ""
        node, expected = self._expected
        words = f" You expect {format_tensor(expected)} at {node}"
        if not (done := stopped.past.get(node)):
            return f"{words}{'; none arrives' if stopped.step == stopped.last_step else ': go on step by step'}."
        right = expected.shape == done.passed_on.shape and torch.allclose(expected, done.passed_on, rtol=1e-3)
        return f"{words}, and so it is." if right else f"{words}; it is {format_tensor(done.passed_on)}."

    def look(self, step: int, numbers: bool, **_: object) -> View:
        """Tell the chosen step of backward, with the hooks that are switched on."""
        stopped = Backward(self._graph, self._hooks, step)
        caption = f"After step {step} of {stopped.last_step}"
        table = make_table(TABLE_HEADER, tabulate(stopped).values(), caption) if numbers else ""
        return View(draw(stopped), tell(stopped) + self._compare(stopped), more={"table": table})
