"""How the course's objects show themselves: as cards, and as a widget with a sentence beside it."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course_utils.root import ASSETS

if TYPE_CHECKING:
    from ipywidgets import Widget
    from jinja2 import Environment

# Of the edge of a card, whose words say the same. Middle tones, with a contrast above 3 on JupyterLab's light page and
# on its dark one; JupyterLab's own colours for warnings and borders have less.
GOOD, CAUTION, BAD, NEUTRAL = "#388e3c", "#c46a00", "#d84343", "#808080"


def make_panel(rows: Sequence[Widget], width: str = "none") -> Widget:
    """Widgets below each other, in a box that keeps their keys from JupyterLab, as `assets/keep_keys.html` says."""
    from ipywidgets import HTML, VBox

    keys = HTML((ASSETS / "keep_keys.html").read_text(), layout={"display": "none"})
    return VBox([*rows, keys], layout={"max_width": width}).add_class("course-panel")


def make_choice(
    question: str,
    options: Sequence[str],
    said: str | None,
    may_change: Callable[[], bool],
    commit: Callable[[str], tuple[str, str]],
) -> Widget:
    """A question, given as HTML, with radio buttons and a button that commits to one of the options.

    said: the option that was committed to before. commit: gets the option, and returns the one that counts and a reply
    as HTML. may_change: whether one may commit to another one afterwards, as in a class that votes.
    """
    import ipywidgets as widgets

    is_fixed = said is not None and not may_change()
    layout = widgets.Layout(width="max-content", max_width="100%")
    choice = widgets.RadioButtons(options=list(options), value=said, layout=layout, disabled=is_fixed)
    button = widgets.Button(description="Committed" if is_fixed else "Commit", tooltip="Fix your answer")
    reply = widgets.HTML()

    def on_commit(_: object) -> None:
        if choice.value is None:
            reply.value = Note("Choose an answer first, and then commit to it.")._repr_html_()
            return
        choice.value, reply.value = commit(choice.value)
        choice.disabled = not may_change()
        # The button stays enabled, for it has the focus.
        button.description = "Vote again" if may_change() else "Committed"

    button.on_click(on_commit)
    shown = widgets.HTML(value=f'<div style="line-height:1.5">{question}</div>')
    return make_panel([shown, choice, button, reply])


def running_shell() -> Any:
    """IPython's shell in a kernel; None elsewhere."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython import get_ipython

    shell = get_ipython()
    return shell if hasattr(shell, "kernel") else None


def running_cell() -> str:
    """The id of the cell that runs, where somebody runs it in JupyterLab or Notebook 7; "" elsewhere."""
    shell = running_shell()
    asked = (shell and shell.get_parent()) or {}
    cell = str(asked.get("metadata", {}).get("cellId", ""))
    is_id = ":" not in cell  # VS Code tells an address in its place
    return cell if is_id and asked.get("content", {}).get("allow_stdin") else ""


def say_how_to_wake() -> None:
    """For JupyterLab without the course's settings: beside a widget, a style for the day when its kernel has ended.

    There, a saved widget would be an error message.
    """
    if running_cell():
        style = f"<style>{(ASSETS / 'asleep.css').read_text(encoding='utf-8')}</style>"
        running_shell().display_pub.publish({"text/html": style, "text/plain": ""})


class WithWidget:
    """What is shown as a widget where widgets work, and elsewhere as HTML or text."""

    def _widget(self) -> Widget:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        raise NotImplementedError

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        say_how_to_wake()
        return {**self._widget()._repr_mimebundle_(), "text/plain": str(self), "text/html": self._repr_html_()}


class Told:
    """What is told in words: a headline and lines below it, as plain text and as a card."""

    headline: str
    lines: Sequence[str]
    symbol: str
    edge = NEUTRAL  # the colour of the card's edge

    def __str__(self) -> str:
        return "\n".join([self.headline, *(f"  {line}" for line in self.lines)])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        card, below = (ASSETS / "card.html").read_text(encoding="utf-8").splitlines()
        lines = "".join(below.format(code_spans(line)) for line in self.lines)
        return card.format(self.edge, self.symbol, code_spans(self.headline), lines)


@dataclass(frozen=True, repr=False)
class Note(Told):
    """A piece of text for the learner: a headline and lines, as plain text and as HTML; `code` is shown as it is."""

    headline: str
    lines: tuple[str, ...] = ()
    symbol: str = "○"
    code: str = ""

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *self.code.splitlines()])

    def _repr_html_(self) -> str:
        code = f"<pre><code>{html.escape(self.code)}</code></pre>" if self.code else ""
        return super()._repr_html_() + code


_SPAN = re.compile(r"`([^`]*)`|(?<![\w*])\*([^\s*`](?:[^*`]*[^\s*`])?)\*(?![\w*])")


def code_spans(text: str) -> str:
    """Escape `text` for HTML; set what stands between backquotes as code, and what is between asterisks as emphasis.

    Line breaks are kept.
    """
    text = html.escape(text, quote=False).replace("\n", "<br>")
    if text.count("`") % 2:  # one is odd, so all stay as they are
        return text
    return _SPAN.sub(lambda span: f"<em>{span[2]}</em>" if span[2] else f"<code>{span[1]}</code>", text)


def render_markdown(text: str) -> str:
    """Markdown as HTML that looks like a cell of text: HTML in it is escaped, formulas are left for MathJax."""
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    def keep(formula: str, options: dict[str, bool]) -> str:
        dollars = "$$" if options["display_mode"] else "$"
        return f"{dollars}{html.escape(formula)}{dollars}"

    reader = MarkdownIt("js-default").use(dollarmath_plugin, allow_digits=False, double_inline=True, renderer=keep)
    look = "line-height:1.6;max-width:80ch;overflow-x:auto;position:relative"  # wide formulas scroll
    focusable = ' tabindex="0"' if "$$" in text else ""  # so that the arrow keys scroll, too
    return f'<div class="jp-RenderedHTMLCommon" style="{look}"{focusable}>{reader.render(text)}</div>'


def still_picture(data: Mapping[str, str], metadata: Mapping[str, Any]) -> str:
    """The picture among the data of an output as HTML with its words; "" where there is none."""
    picture = data.get("image/svg+xml", "")  # which carries its words itself
    for mime in {"image/png", "image/jpeg"} & set(data):
        alt = html.escape(metadata.get(mime, {}).get("alt") or metadata.get("alt") or data.get("text/plain", ""))
        picture = f'<img alt="{alt}" src="data:{mime};base64,{data[mime]}">'.replace("\n", "")
    return picture


def page_templates() -> Environment:
    """The templates of pages, in which all that comes in is escaped: names, code and messages are hostile."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    blocks = {"trim_blocks": True, "lstrip_blocks": True}
    templates = Environment(loader=FileSystemLoader(ASSETS), autoescape=True, undefined=StrictUndefined, **blocks)
    templates.filters["code"] = lambda text: Markup(code_spans(text))
    templates.filters["digest"] = lambda text: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return templates
