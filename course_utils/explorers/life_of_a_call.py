"""The explorer of the life of a call: step through torch's own source, and predict which hook fires next.

The pictures and sentences are the same for every torch release; the source beside them is that of the installed one.
"""

import textwrap
from collections.abc import Sequence
from functools import cache
from html import escape

import ipywidgets as widgets
import torch
from torch import Tensor, nn

from course_utils.explorers import markup
from course_utils.explorers.panel import STEPS, WRAPPED, Explorer, View, begin, make_choice, make_steps
from course_utils.hooks.call import HOOK_KINDS, Hooks, Moment, life_of_a_call, read_parts
from course_utils.root import CourseError
from course_utils.vision.toys import RELUS, SmallNet

MAX_MODULES = 8
MODEL, GLOBAL, NO_OTHER = "the model", "global", "no hook any more"
WIDTH, LEAF_WIDTH = 504, 150  # at 0.72 of it, which can still be read, it fits a narrow page beside the list of files
ACROSS = 62  # the most characters of a value on a line of the picture
LINE, PAD, TOP = 18, 10, 40
RIGHT = 420  # where the list of hooks begins
MOST_LINES = 16
BESIDE = ("sentence", "reply", "source", "fired", "guesses")  # what stands beside the parts of the call
SHORT = {"always-called forward hook": "forward hook, always"}
LEGEND = "► now   ● has fired, or has run   ○ waits   - skipped"
SIGNS = {"►": "now", "●": "done", "○": "waits", "-": "skipped"}


@cache
def list_parts() -> tuple[str, ...]:
    """Return the names of the parts of a call in the order in which they run, without those that wait for backward."""
    names = [part.name for part in read_parts()]
    return tuple(names[: names.index("after an exception") + 1])


def choose_stops(moments: Sequence[Moment], skipped: bool = False) -> list[int]:
    """Return the places of the moments to stop at: with `skipped`, also parts whose condition did not hold."""
    return [place for place, moment in enumerate(moments) if skipped or moment.taken or moment.part is None]


def tell_moment(moments: Sequence[Moment], place: int, stops: Sequence[int]) -> str:
    """Return a sentence about `moments[place]`, one of the stops, with its key facts."""
    moment = moments[place]
    if moment.what == "part" and moment.part is not None:
        words = f"{_title(moment)}{'' if moment.taken else ', because its condition does not hold'}. {moment.part.does}"
    else:
        words = moment.sentence.split(". ")[0] if moment.what == "raises" else moment.sentence
        if words.startswith((MODEL, GLOBAL)):  # a layer's name keeps its small letter
            words = begin(words)
    value = f" {_show_value(moment)}." if moment.what in ("part", "gradient") and _show_value(moment) else ""
    step = f"Step {stops.index(place) + 1} of {len(stops)}"
    return f"{step}. {words.rstrip('.')}.{value} Hooks fired so far: {len(moment.fired)}."


def _title(moment: Moment) -> str:
    where = moment.module or MODEL
    if moment.what == "part" and moment.part:
        return f"The call of {where}: {moment.part.name}" + ("" if moment.taken else ", skipped")
    titles = {
        "hook": f"A hook fires: {_name_hook(moment)}",
        "gradient": f"Backward: the gradient of the output of {where} is there",
        "raises": "The exception leaves the call",
        "warning": "PyTorch warns",
        "part": "There is no backward pass",
    }
    return titles[moment.what]


def _name_hook(moment: Moment) -> str:
    return moment.hook + (f", for {moment.module or MODEL}" if moment.hook.startswith(f"{GLOBAL}: ") else "")


def _show_value(moment: Moment) -> str:
    if moment.values == "None":
        return ""
    parts = list_parts()
    before = moment.part is None or moment.part.name in parts[: parts.index("forward") + 1]
    words = {"gradient": "Gradient", "hook": "The hook sees"}.get(moment.what, "Arguments" if before else "Output")
    text = f"{words}: {moment.values}"
    return text if len(text) <= 104 else f"{text[:103]}…"


def show_source(moment: Moment) -> str:
    """Return the source of the active part, from the installed torch, as HTML, with its line marked."""
    part = moment.part
    if part is None:
        return markup.wrap_words("No line of the call is running now: this is autograd, or the caller.")
    now = "The hook is called in there." if moment.what == "hook" else f"The call is at line {moment.line}."
    place = f"“{part.name}”, lines {part.first} to {part.last} of its file, in {part.function} of your torch"
    numbered = enumerate(map(escape, part.source.rstrip("\n").splitlines()), part.first)
    lines = [f"<b>► {i}  {line}</b>" if i == moment.line else f"  {i}  {line}" for i, line in numbered]
    heading = markup.wrap_words(f"{place}, {torch.__version__}. {now}")
    return heading + markup.fill("source", lines="\n".join(lines))


class CallPicture:
    """The picture of one moment of a call: the modules with their hooks, the parts of the call, the hooks so far."""

    def __init__(self, moments: Sequence[Moment], place: int, model: nn.Module, hooks: Hooks) -> None:
        self.past, self.moment, self.hooks = moments[: place + 1], moments[place], hooks
        self.names = [name for name, _ in model.named_modules()]
        if len(self.names) > MAX_MODULES:
            raise CourseError(f"The model has {len(self.names)} modules; at most {MAX_MODULES} can be drawn.")

    def list_parts(self) -> list[str]:
        """Return the parts of the present call, or the gradients of backward, below a title."""
        if self.moment.phase == "backward":
            return ["The backward pass", *_keep_last(self._list_gradients())]
        # A warning or an exception has no part of its own: show the call in which it came.
        told = [moment for moment in self.past if moment.part is not None]
        module, parts, reached = told[-1].module, list_parts(), {}
        for each in told:
            if (each.what, each.module) == ("part", module):
                if each.part.name == parts[0]:
                    reached = {}  # it begins a new call
                reached[each.part.name] = each.taken
        signs = {name: "●" if reached.get(name) else "-" for name in parts}
        signs |= dict.fromkeys(parts[1 + max(map(parts.index, reached)) :], "○")
        if self.moment.part:
            signs[self.moment.part.name] = "►"
        return [f"The call of {module or MODEL}", *(f"{signs[name]} {name}" for name in parts)]

    def _list_gradients(self) -> list[str]:
        lines = []
        for moment in self.past:
            if moment.phase == "backward":
                words = {"hook": _name_hook(moment), "gradient": f"gradient of the output of {moment.module or MODEL}"}
                sign = "►" if moment is self.moment else "●"
                lines.append(f"{sign} {words.get(moment.what, 'no graph, no backward pass')}")
        return lines

    def list_fired(self) -> list[str]:
        """Return the hooks that have fired, below a title."""
        fired = [_name_hook(moment) for moment in self.past if moment.what == "hook"]
        lines = [f"{number}. {hook}" for number, hook in enumerate(fired, 1)]
        return ["Hooks fired so far", *(_keep_last(lines) or ["none"])]

    def draw(self, sentence: str, lists: bool = True) -> str:
        """Return the picture as SVG, described by `sentence`; without `lists` only the modules and their hooks."""
        width = max(2 * RIGHT if lists else WIDTH, self._leaves("") * LEAF_WIDTH + 60)
        hooks = self._hook_lines(GLOBAL)
        around = ["global: all modules" + ("" if hooks else ", no hook"), *hooks]
        top, height = TOP + 20 + LINE * len(around), self._height("")
        values = textwrap.wrap(_show_value(self.moment), ACROSS) or [""]
        below = top + height + 26 + LINE * (len(values) - 1)
        columns = {8: self.list_parts(), RIGHT: self.list_fired()} if lists else {}
        end = below + (58 + LINE * max(map(len, columns.values())) if lists else 10)
        line = 'fill="none" stroke="currentColor" stroke-opacity="0.55"'
        body = [
            markup.draw_box(4, TOP, width - 8, top - TOP - 8, 6, f'{line} stroke-dasharray="5 4"'),
            _draw_list(around, 4 + PAD, TOP + 19, 12, 1),
            self._draw_module("", 4, top, width - 8, height),
        ]
        for number, value in enumerate(reversed(values)):
            body.append(markup.draw_text(8, below - LINE * number, value, family=markup.MONO, size=12))
        body += [_draw_list(lines, x, below + 28) for x, lines in columns.items()]
        body += [markup.draw_text(8, end - 8, LEGEND, size=12, opacity=0.85)] if lists else []
        modules = [[name or MODEL, *(self._hook_lines(name) or ["no hook"])] for name in self.names]
        said = [_show_value(self.moment), *map(_describe, [around, *modules, *columns.values()])]
        return markup.draw_picture(width, end, _title(self.moment), sentence, "".join(body), said)

    def _inside(self, name: str) -> list[str]:
        return [each for each in self.names if each and each.rpartition(".")[0] == name]

    def _leaves(self, name: str) -> int:
        return sum(map(self._leaves, self._inside(name))) or 1

    def _height(self, name: str) -> int:
        inner = max(map(self._height, self._inside(name)), default=0)
        return 30 + LINE * len(self._hook_lines(name)) + (inner + PAD if inner else 0)

    def _hook_lines(self, place: str) -> list[str]:
        lines = []
        for kind in [kind for kind, where in self.hooks if where == place]:
            label = f"{place or MODEL}: {kind}"
            count = self.moment.fired.count(label)
            sign = "●" if count else "○"
            if self.moment.hook == label:
                sign = "►"
            words = f"{sign} {SHORT.get(kind, kind)}" + (f" {count}\u00d7" if count > 1 else "")
            most = 60 if place == GLOBAL else 20
            lines += textwrap.wrap(words, most, subsequent_indent="    ", break_on_hyphens=False)
        return lines

    def _draw_module(self, name: str, x: float, y: float, width: float, height: float) -> str:
        here = self.moment.module == name and self.moment.what in ("part", "hook", "gradient")
        colour = markup.ORANGE if self.moment.phase == "backward" else markup.BLUE
        line = f'stroke="{colour}" stroke-width="3"' if here else 'stroke="currentColor" stroke-opacity="0.55"'
        title = (name.rpartition(".")[2] or MODEL) + ("  ◄ here" if here else "")
        lines, inside = self._hook_lines(name), self._inside(name)
        drawing = markup.draw_box(x, y, width, height, 6, f'fill="none" {line}')
        drawing += _draw_list([title, *lines], x + PAD, y + 19, 12, 1)
        top, left = y + 28 + LINE * len(lines), x + PAD
        room = width - 2 * PAD - 8 * (len(inside) - 1)
        for each in inside:
            share = room * self._leaves(each) / self._leaves(name)
            drawing += self._draw_module(each, left, top, share, y + height - PAD - top)
            left += share + 8
        return drawing


def _describe(lines: Sequence[str]) -> str:
    said = (f"{line[2:]}, {SIGNS[line[0]]}" if line[0] in SIGNS else line for line in lines[1:])
    return f"{lines[0]}: {'; '.join(said)}"


def _keep_last(lines: list[str]) -> list[str]:
    earlier = len(lines) - MOST_LINES
    return [f"… {earlier + 1} earlier", *lines[earlier + 1 :]] if earlier > 0 else lines


def _look_of(line: str, faint: float = 0.75) -> dict[str, float]:
    return {"opacity": faint if line[0] in "-○" else 1, "weight": 600 if line[0] == "►" else 400}


def _write_list(lines: Sequence[str], below: str = "") -> str:
    rows = "".join(markup.fill("line", words=escape(line), **_look_of(line)) for line in lines[1:])
    return markup.fill("list", title=escape(lines[0]), rows=rows, below=below)


def _draw_list(lines: Sequence[str], x: float, y: float, size: int = 13, faint: float = 0.75) -> str:
    drawing = markup.draw_text(x, y, lines[0], weight=600)
    for row, line in enumerate(lines[1:], 1):
        drawing += markup.draw_text(x, y + LINE * row + 4 * (size - 12), line, size=size, **_look_of(line, faint))
    return drawing


class LifeOfACall(Explorer):
    """Step through one call of a small network and its backward pass, and predict which hook fires next.

    model: what the relu of the network fc1, relu, fc2 does ("plain", "in place" or "raises an error"), or a model of
        your own with at most 8 modules; then `inputs` is what to call it with, a tensor or a tuple of arguments.
    hooks: the hooks to begin with, in the order of registration: `(kind, place)` with a kind of
        `course_utils.hooks.call.HOOK_KINDS`; the place is a dotted name, "" for the model, or "global".
    step: the step to open at, from 1; -1 for the last.

    The source of each part comes from the installed torch, and shows as soon as a control is used.
    """

    def __init__(
        self, model: str | nn.Module = "plain", inputs: Tensor | tuple | None = None, hooks: Hooks = (), step: int = 1
    ) -> None:
        self._own = None if isinstance(model, str) else (model, inputs)
        if self._own and inputs is None:
            raise CourseError("A model of your own needs inputs: LifeOfACall(model, x)")
        buttons = widgets.ToggleButtons
        relu = make_choice(buttons, "The relu is", [*RELUS], "plain" if self._own else model, width=0, indent=75)
        self._hooks, self._guesses = list(hooks), []
        self._call(relu.value)
        self._stops = choose_stops(self._moments)
        places = {GLOBAL: GLOBAL} | {name or MODEL: name for name, _ in self._model.named_modules()}
        controls = {
            "relu": relu,
            "place": make_choice(buttons, "Hooks of", places, "", width=0, indent=75),
            **{kind: widgets.Checkbox(indent=False, layout={"width": "266px", "margin": "0"}) for kind in HOOK_KINDS},
            "clear": widgets.Button(description="Remove all", tooltip="Remove all hooks", layout={"width": "100px"}),
            **make_steps(1, len(self._stops), step),
            "skipped": widgets.Checkbox(description="Also stop at parts that are skipped", indent=False),
            "choices": widgets.HBox(layout=WRAPPED),
            **{name: widgets.HTML() for name in ("registered", "parts", *BESIDE)},
        }
        wide = {"flex": "1 1 330px", "min_width": "0"}
        top = {"flex_flow": "row wrap", "align_items": "flex-start", "grid_gap": "16px"}
        top["min_height"] = "360px"  # as where most is told
        beside = widgets.VBox([controls[name] for name in BESIDE], layout=wide)
        told = widgets.HBox([controls["parts"], beside], layout=top)
        hooks = [("place",) if self._own else ("relu", "place"), HOOK_KINDS, ("registered", "clear"), "skipped"]
        super().__init__(controls, [STEPS, "choices", "picture", told, "problem", hooks])

    def _call(self, relu: str) -> None:
        self._model, inputs = self._own or (SmallNet(RELUS[relu]), torch.ones(1, 3, requires_grad=True))
        self._moments = life_of_a_call(self._model, inputs, self._hooks)

    def fit(self, name: str) -> None:
        """Make the call anew when it has changed, and let the other controls fit it."""
        controls = self.controls
        self._reply, self._live = "", name != ""
        if name in ("clear", "relu", *HOOK_KINDS):
            self._change_call(name)
            self._fit_steps(0)
        elif name.startswith("said "):
            self._compare(name.removeprefix("said "))
        place = controls["place"].value
        for kind in HOOK_KINDS:
            controls[kind].description = f"{place or 'model'}: {kind}"  # "the model" would not fit
            controls[kind].value = (kind, place) in self._hooks
        if name in ("", "clear", "relu", *HOOK_KINDS):
            hooks = [*dict.fromkeys(f"{where or MODEL}: {kind}" for kind, where in self._hooks), NO_OTHER]
            self.put_buttons("choices", "Predict: which hook fires next?", {f"said {each}": each for each in hooks})
        controls["clear"].disabled = not self._hooks

    def _change_call(self, name: str) -> None:
        before, hook = self._hooks, (name, self.controls["place"].value)
        self._hooks = [] if name == "clear" else [each for each in before if each != hook]
        if name in HOOK_KINDS and self.controls[name].value:
            self._hooks.append(hook)
        try:
            self._call(self.controls["relu"].value)
        except RuntimeError as error:  # torch refuses full and legacy backward hooks on one module
            self._hooks, self.controls[name].value = before, False
            raise CourseError(f"torch refuses this hook: {error}") from None
        self._guesses = []

    def use_skipped(self) -> None:
        self._fit_steps(self._stops[self.controls["step"].value - 1])  # the moment stays

    def _fit_steps(self, moment: int) -> None:
        self._stops = choose_stops(self._moments, self.controls["skipped"].value)
        reached = sum(stop <= moment for stop in self._stops)
        self.put_steps(1, len(self._stops), reached)

    def _compare(self, said: str) -> None:
        step, actual, words = self.controls["step"], NO_OTHER, "no hook fires any more"
        later = [self._moments[stop] for stop in self._stops[step.value :]]
        if fires := [ahead for ahead, moment in enumerate(later, 1) if moment.what == "hook"]:
            moment = later[fires[0] - 1]
            actual, words = moment.hook, f"the next to fire was {_name_hook(moment)}"
        step.value += fires[0] if fires else len(later)
        self._guesses.append((said, actual if said == actual else f"{actual} (not as predicted)"))
        self._reply = markup.make_paragraph(f"{'Right' if said == actual else 'Not this time'}: {words}.")

    def look(self, step: int, **_: object) -> View:
        """Tell and draw one moment of the call, with its source and the predictions so far."""
        place = self._stops[step - 1]
        sentence = tell_moment(self._moments, place, self._stops)
        names = [f"{number}. {where or MODEL}: {kind}" for number, (kind, where) in enumerate(self._hooks, 1)]
        rows = [(str(number), *guess) for number, guess in enumerate(self._guesses, 1)]
        drawing = CallPicture(self._moments, place, self._model, self._hooks)
        # What is saved in a notebook must not depend on the release: the source comes with the first move.
        later = "Press Next: here you will read the source of each part, as it is in your torch."
        more = {
            "registered": markup.wrap_words(f"Registered, in this order: {', '.join(names) or 'no hook'}."),
            "reply": self._reply,
            "guesses": markup.make_table(("hook", "you said", "it was"), rows, "Predicted and actual") if rows else "",
            "parts": _write_list(drawing.list_parts(), markup.wrap_words("(► now, ● has run, ○ waits, - skipped)")),
            "fired": _write_list(drawing.list_fired()),
            "source": show_source(self._moments[place]) if self._live else markup.wrap_words(later),
        }
        return View(drawing.draw(sentence, lists=False), sentence, more=more, facts=[drawing])

    @property
    def still_picture(self) -> str:
        """The picture with the lists that stand below it on the panel."""
        return markup.put_on_paper(self.view.facts[0].draw(self.sentence))
