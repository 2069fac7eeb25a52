"""Static pages of lessons: one HTML file each, with everything in it, so that nothing is loaded from anywhere.

`flatten_outputs` replaces what needs a kernel or a script (widgets) by what can be read without, and gives every
picture its words; `export` makes the page with nbconvert. Formulas become MathML, which browsers draw themselves.
"""

from __future__ import annotations

import copy
import html
import os
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import HTMLExporter, SlidesExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode

from course_utils.authoring.build import WIDGET, WIDGET_VIEW
from course_utils.authoring.source import called_with, tags_of
from course_utils.exercises.engine import Prediction, find_prediction
from course_utils.root import CourseError

# ------------------------------------------------------------------------------------------------------------- outputs


def flatten_outputs(notebook: NotebookNode) -> NotebookNode:
    """A copy of `notebook` in which each output is text or static HTML, and no widget is left.

    A widget becomes its saved first picture with its sentence below; a prediction becomes its question and options.
    """
    notebook = copy.deepcopy(notebook)
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "data" in output:
                output.data = NotebookNode(_flatten(output))
    return notebook


def _flatten(output: NotebookNode) -> dict[str, str]:
    data, picture = output.data, _picture(output)
    words = data.get("text/plain", "")
    if picture and (WIDGET_VIEW in data or output.metadata.get(WIDGET)):
        return {"text/html": f"<figure>{picture}<figcaption>{_lines(words)}</figcaption></figure>"}
    if "text/html" in data:
        return {"text/html": data["text/html"]}
    return {"text/html": f"<figure>{picture}</figure>"} if picture else {"text/plain": words}


def _picture(output: NotebookNode) -> str:
    """The output's picture as HTML with its words, or an empty string where it has none."""
    data = output.data
    if "image/svg+xml" in data:
        return data["image/svg+xml"]  # an SVG carries its words itself
    for mime in ("image/png", "image/jpeg"):
        if mime in data:
            alt = output.metadata.get(mime, {}).get("alt") or output.metadata.get("alt") or data.get("text/plain", "")
            code = data[mime].replace("\n", "")
            return f'<img alt="{html.escape(alt)}" src="data:{mime};base64,{code}">'
    return ""


def _lines(text: str) -> str:
    return "<br>".join(html.escape(line) for line in text.strip().splitlines())


def settle_predictions(notebook: NotebookNode) -> None:
    """Change `notebook`: each prediction's cell shows its question and options, and no code."""
    for cell in notebook.cells:
        if "predict" in tags_of(cell):
            prediction = find_prediction(called_with(cell.source, "predict") or "")
            data = {"text/html": show_prediction(prediction)}
            cell.outputs = [nbformat.v4.new_output("display_data", data=data)]
            hide_code(cell)


def hide_code(cell: NotebookNode) -> None:
    """Change `cell`: a page shows its outputs only."""
    cell.metadata["transient"] = {"remove_source": True}


def show_prediction(prediction: Prediction) -> str:
    """The question and its options as HTML; the answer is not in it."""
    options = "".join(f"<li>{_inline(option)}</li>" for option in prediction.options)
    return f'<div class="predict"><p><b>Predict:</b> {_inline(prediction.question)}</p><ul>{options}</ul></div>'


def _inline(text: str) -> str:
    """A sentence as HTML: what stands between backticks is code, between stars it is emphasised."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(str(text), quote=False))
    return re.sub(r"(?<![\w*])\*([^\s*][^*]*)\*(?![\w*])", r"<em>\1</em>", text)


# ------------------------------------------------------------------------------------------------------------ the page


class _Offline:
    """What both exporters share: Markdown with formulas as MathML, no prompts, no scripts of others."""

    def markdown2html(self, source: str) -> str:
        """Markdown with formulas to HTML."""
        return MarkdownWithMath(renderer=_Renderer(escape=False)).render(source)

    def default_filters(self) -> Iterator[tuple[str, Any]]:
        yield from super().default_filters()
        yield "markdown2html", self.markdown2html


class _Page(_Offline, HTMLExporter):
    pass


class _Slides(_Offline, SlidesExporter):
    pass


class _Renderer(IPythonRenderer):
    def block_math(self, body: str) -> str:
        return f"<p>{_mathml(body, 'block')}</p>"

    def inline_math(self, body: str) -> str:
        return _mathml(body, "inline")

    def link(self, text: str, url: str, title: str | None = None) -> str:
        # Another lesson's notebook does not lie beside the page.
        return text if url.endswith(".ipynb") else super().link(text, url, title)


def _mathml(formula: str, display: str) -> str:
    try:
        from latex2mathml.converter import convert
    except ImportError:
        raise CourseError(explain_missing("latex2mathml")) from None
    formula = convert(html.unescape(formula).strip(), display=display)
    return formula.replace("<mo>&#x023DF;</mo>", '<mo stretchy="true">&#x023DF;</mo>')  # a brace as wide as its sum


def explain_missing(package: str) -> str:
    """The sentence for who has not installed the extra `instructor`."""
    return (
        f"The package {package} is missing. Install it once with:  {sys.executable} -m pip install -e '.[instructor]'"
    )


PAGE = """
{%- extends 'index.html.j2' -%}
{%- block header -%}
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ resources.course.title | e }}</title>
<style>{{ resources.course.style }}</style>
</head>
{%- endblock header -%}
{%- block body_header -%}
<body>
<main>
{{ resources.course.before }}
{%- endblock body_header -%}
{%- block body_footer -%}
{{ resources.course.after }}
</main>
{{ resources.course.scripts }}
</body>
{%- endblock body_footer -%}
{%- block footer -%}</html>
{%- endblock footer -%}
"""

# Colours of text and ground are at least 4.5 : 1 apart (WCAG AA).
STYLE = """
:root { color-scheme: light; --ink: #1f1f1f; --quiet: #595959; --line: #c9c9c9; --code: #f6f6f4; --note: #eef3fb; }
body { color: var(--ink); background: #fff; font: 17px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; margin: 0; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem 1.25rem 4rem; }
h1, h2, h3 { line-height: 1.25; } h2 { margin-top: 2.2em; border-top: 1px solid var(--line); padding-top: .6em; }
a { color: #0b5cad; } a.anchor-link { display: none; }
pre, code { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: .86em; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.35; }
.highlight, main > pre, .jp-RenderedMarkdown > pre { background: var(--code); border-radius: 4px;
  padding: .55em .8em; margin: .5em 0; }
.highlight .highlight { padding: 0; margin: 0; }
.jp-Cell-outputWrapper { margin: .3em 0 1em; border-left: 3px solid var(--line); padding-left: .8em; }
.jp-OutputArea-child + .jp-OutputArea-child { margin-top: .5em; }
img, svg { max-width: 100%; height: auto; } figure { margin: 0; } figcaption { color: var(--quiet); font-size: .9em; }
table { border-collapse: collapse; margin: .6em 0; } th, td { border: 1px solid var(--line); padding: .3em .6em;
  text-align: left; vertical-align: top; }
.predict { background: var(--note); border-radius: 4px; padding: .4em 1em; }
.about { background: var(--note); border-radius: 4px; padding: .8em 1em; }
@media print { body { font-size: 11pt; } .jp-Cell-outputWrapper, .highlight { break-inside: avoid; } }
"""


def export(
    notebook: NotebookNode, title: str, *, style: str = "", before: str = "", after: str = "", scripts: str = ""
) -> str:
    """The page of `notebook`, whose outputs must be flat, as one HTML text that needs nothing else.

    style: CSS that comes after the pages' own. before, after: HTML around the cells. scripts: HTML at the end.
    """
    return _run(_Page(), notebook, title, style, before, after, scripts)


def export_slides(notebook: NotebookNode, title: str, *, style: str, before: str, after: str, scripts: str) -> str:
    """As `export`, with a `<section>` for each slide, as the cells' metadata `slideshow` say."""
    return _run(_Slides(), notebook, title, style, before, after, scripts)


def _run(exporter: HTMLExporter, notebook: NotebookNode, title: str, style: str, *parts: str) -> str:
    exporter.raw_template = PAGE
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    course = dict(zip(("before", "after", "scripts"), parts, strict=True))
    course |= {"title": title, "style": STYLE + _code_style() + style}
    page, _ = exporter.from_notebook_node(notebook, resources={"course": course})
    if requests := find_requests(page):
        raise ValueError(f"the page would load {', '.join(requests[:3])}: everything has to be in it")
    return page


def _code_style() -> str:
    from pygments.formatters import HtmlFormatter

    return HtmlFormatter(style="vs", nobackground=True).get_style_defs(".highlight")


# ------------------------------------------------------------------------------------------------- what a page loads


class _Finder(HTMLParser):
    """Collects the addresses that a browser would load to show the page. Links to follow are no such addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.in_style = tag == "style"
        names = ["src", "srcset", "poster", "data", "background", "data-src"]
        names += ["href", "xlink:href"] if tag in ("link", "image", "use", "script") else []
        self.found += [values[name] for name in names if values.get(name)]
        self._look_into_style(values.get("style") or "")

    def handle_endtag(self, tag: str) -> None:
        self.in_style = self.in_style and tag != "style"

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self._look_into_style(data)

    def _look_into_style(self, text: str) -> None:
        self.found += re.findall(r"""url\(\s*["']?([^"')]+)""", text)
        self.found += re.findall(r"""@import\s+["']([^"']+)""", text)


def find_requests(page: str) -> list[str]:
    """The addresses that a browser would ask for when it shows the HTML text `page`; none if all is in the page."""
    finder = _Finder()
    finder.feed(page)
    finder.close()
    return [address[:80] for address in finder.found if not address.startswith(("data:", "#"))]


def write_page(page: str, path: Path) -> Path:
    """Write the HTML text `page` to `path` in one step, so that an interruption leaves no half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        unfinished.write_text(page, encoding="utf-8", newline="\n")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path
