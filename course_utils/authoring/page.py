"""Static pages of lessons: one HTML file each, with everything in it, so that nothing is loaded from anywhere.

What needs a kernel or a script is replaced by what can be read without. Formulas become MathML, which browsers draw.
"""

import copy
import html
import re
import sys

import nbformat
from nbconvert import HTMLExporter, SlidesExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from pygments.formatters import HtmlFormatter

from course_utils.authoring.build import WIDGET
from course_utils.authoring.source import called_with, tags_of
from course_utils.exercises.declaration import Prediction
from course_utils.exercises.engine import find_prediction
from course_utils.root import ASSETS, CourseError
from course_utils.show import code_spans, still_picture

_LINK = re.compile(r'<a href="[^"]*\.ipynb">(.*?)</a>')  # another lesson's notebook does not lie beside the page
_FORMULA = re.compile(r'<(span|div) class="math (inline|block)">\s*\$+(.*?)\$+\s*</\1>', re.DOTALL)
SECTION = "More: Your network, your picture"  # of a lesson: what a handout with a choice is about


def flatten_outputs(notebook: NotebookNode) -> NotebookNode:
    """A copy of `notebook` in which each output is text or static HTML, and no widget is left.

    A widget becomes its saved first picture with its sentence below; a prediction its question and options, and what
    explains it stays below its fold.
    """
    notebook = copy.deepcopy(notebook)
    for cell in notebook.cells:
        if "predict" in tags_of(cell):
            question = show_prediction(find_prediction(called_with(cell.source, "predict")))
            cell.outputs = [nbformat.v4.new_output("display_data", data={"text/html": question})]
        if {"predict", "why"} & set(tags_of(cell)):
            cell.metadata["transient"] = {"remove_source": True}
        for output in cell.get("outputs", []):
            if "data" in output:
                output.data = NotebookNode(flatten(output))
    return notebook


def flatten(output: NotebookNode) -> dict[str, str]:
    """The data of an output as text or static HTML."""
    data, metadata, words = output.data, output.metadata, output.data.get("text/plain", "")
    picture = still_picture(data, metadata)
    if picture and metadata.get(WIDGET):
        return {"text/html": f"<figure>{picture}<figcaption>{code_spans(words.strip())}</figcaption></figure>"}
    if "text/html" in data:
        return {"text/html": _LINK.sub(r"\1", draw_formulas(data["text/html"]))}
    return {"text/html": f"<figure>{picture}</figure>"} if picture else {"text/plain": words}


def draw_formulas(rendered: str) -> str:
    """HTML of `show.render_markdown` with MathML for its formulas."""
    return _FORMULA.sub(lambda found: mathml(found[3], found[2]), rendered)


def show_prediction(prediction: Prediction) -> str:
    """The question and its options as HTML; the answer is not in it."""
    options = "".join(f"<li>{code_spans(option)}</li>" for option in prediction.options)
    return f'<div class="predict"><p><b>Predict:</b> {code_spans(prediction.question)}</p><ul>{options}</ul></div>'


def export(notebook: NotebookNode, *, about: str = "", reveal: tuple[str, ...] = ()) -> str:
    """The page of `notebook`, whose outputs must be flat, as one HTML text that needs nothing else.

    about: a sentence for a box on top.
    reveal: the style and the scripts of reveal.js; with them it is slides, as the cells' metadata `slideshow` say.
    """
    exporter = SlidesExporter() if reveal else HTMLExporter()
    exporter.raw_template = (ASSETS / "page.html.j2").read_text(encoding="utf-8")
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    title = notebook.cells[0].source.splitlines()[0].lstrip("# ")
    styles = [(ASSETS / "page.css").read_text(encoding="utf-8")]
    styles.append(HtmlFormatter(style="vs", nobackground=True).get_style_defs(".highlight"))
    if reveal:
        title += ": slides"
        styles += [reveal[0], (ASSETS / "slides.css").read_text(encoding="utf-8")]
    course = {"title": title, "style": "\n".join(styles), "about": about, "reveal": reveal[1:]}
    exporter.register_filter("markdown2html", MarkdownWithMath(renderer=_Renderer(escape=False)).render)
    return exporter.from_notebook_node(notebook, resources={"course": course})[0]


class _Renderer(IPythonRenderer):
    block_math = staticmethod(lambda body: f"<p>{mathml(body, 'block')}</p>")
    inline_math = staticmethod(lambda body: mathml(body, "inline"))

    def link(self, text: str, url: str, title: str | None = None) -> str:
        return text if url.endswith(".ipynb") else super().link(text, url, title)


def mathml(formula: str, display: str) -> str:
    """A formula in TeX as MathML; display: "inline" or "block"."""
    try:
        from latex2mathml.converter import convert
    except ImportError:
        raise CourseError(explain_missing("latex2mathml")) from None
    formula = convert(html.unescape(formula).strip(), display=display)
    return re.sub("(?<=<mo)(?=>&#x0?23DF;)", ' stretchy="true"', formula)  # a brace as wide as its sum


def explain_missing(package: str | None, extra: str = "instructor") -> str:
    """The sentence for someone without an extra of pyproject.toml."""
    return f"{package} is missing. Install it once with:  {sys.executable} -m pip install -e '.[{extra}]'"
