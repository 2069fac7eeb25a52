"""The lessons as a web site to read: Sphinx and myst-nb make its pages from the built notebooks, and load nothing.

An explorer is a few pictures, and what answers a prediction is folded. `assets/site.json` has all settings.
"""

import io
import json
import re
import shutil
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
import yaml
from jinja2 import Template
from nbformat import NotebookNode

from course_utils import explorers
from course_utils.authoring import build, page
from course_utils.authoring.cheatsheet import make_page
from course_utils.authoring.editions import BUILD, read_built
from course_utils.authoring.source import called_with, pages, sources, tags_of
from course_utils.exercises.engine import find
from course_utils.hooks.firing_matrix import (
    load_matrices,
    load_matrix,
    read_programs,
    render_changes,
    render_matrix,
    render_proofs,
    slug_of,
)
from course_utils.root import ASSETS, PLACEHOLDER, ROOT, CourseError, repository, write_whole

GLOSSARY = "glossary"  # the id of the cell with its entries
ENTRY = re.compile(r"^\*\*(.+?)\*\*(.*?): ((?:.+\n?)+)", re.MULTILINE)


def write_site(answers: bool = False, folder: Path = BUILD / "site") -> int:
    """Write the site in the place of `folder`, with `answers` to the exercises below folds; returns 0.

    Raises `CourseError`, and changes nothing, where Sphinx is missing or complains, or a lesson is out of date.
    """
    try:
        from sphinx.application import Sphinx
    except ModuleNotFoundError as error:
        raise CourseError(page.explain_missing(error.name, "site")) from None
    settings = json.loads((ASSETS / "site.json").read_text(encoding="utf-8"))
    published = not repository().endswith(PLACEHOLDER)  # else its links would lead nowhere
    settings["sphinx"]["html_context"] = {"repository": repository() if published else ""}
    with TemporaryDirectory() as name:
        source, made, said = Path(name, "source"), Path(name, "site"), io.StringIO()
        for file, content in make_files(settings, answers).items():
            write_whole(source / file, content)
        Sphinx(source, None, made, Path(name, "trees"), "html", settings["sphinx"], status=None, warning=said).build()
        if said.getvalue():
            raise CourseError(said.getvalue())
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
    print(f"{folder / 'index.html'}: the lessons as a web site. It needs no server and no network.")
    return 0


def make_files(settings: dict[str, Any], answers: bool = False) -> dict[str, str | bytes]:
    """What Sphinx makes the site of, by the files' names: the lessons, more pages, and what these show."""
    front = build.README.read_text(encoding="utf-8")
    about, table = front.partition("\n## ")[0], build.MAP.search(front)[0].replace("](notebooks/", "](")
    files: dict[str, str | bytes] = {}
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", about):
        files[picture] = (ROOT / picture).read_bytes()
    for name, asset in settings["assets"].items():
        files[name] = (ASSETS / asset).read_bytes()
    questions = (ASSETS / "questions.md").read_text(encoding="utf-8")
    files["questions.md"] = questions.replace("](../../notebooks/", "](")  # here all pages are in one folder
    for path in pages():
        notebook = read_built(path)
        notebook.metadata["orphan"] = True  # no table of contents leads there, but lesson 10 does
        files[f"{path.stem}.ipynb"] = nbformat.writes(notebook)
    titles = {}
    for path in sources():
        print(f"{path.stem} …", file=sys.stderr, flush=True)
        lesson, number = read_built(path), path.stem[:2]
        titles[path.stem] = lesson.cells[0].source.splitlines()[0].lstrip("# ")
        files |= _move_glossary(lesson)
        if number == "09":
            files["hooks.md"] = make_page(lesson, "site_hooks.md.j2")
            files["_static/print.html"] = make_page(lesson)
        frames = settings["frames"].get(number, ())
        text = nbformat.writes(fold(lesson, frames, answers))
        files[f"{path.stem}.ipynb"] = text.replace("`course_utils/assets/questions.md`", "[the page](questions.md)")
    files |= write_matrix() | {"cite.md": write_citation()}
    index = Template((ASSETS / "site_index.md.j2").read_text(encoding="utf-8"))
    files["index.md"] = index.render(about=about, table=table, titles=titles)
    return files


def write_citation() -> str:
    """The page that says how the course is cited, from CITATION.cff."""
    said = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    template = Template((ASSETS / "site_cite.md.j2").read_text(encoding="utf-8"))
    return template.render(said=said, address=said.get("repository-code", ""))


def write_matrix() -> dict[str, str]:
    """The table of every hook in every situation, and the pages with the programs to which its cells lead."""
    matrix, hooks = load_matrix(), read_programs().hooks
    table = render_matrix(matrix, page="proofs/{}.html")
    about = "Every cell was measured by running its program. Follow a link to read the program."
    table = f'<div class="matrix" role="region" aria-label="Every hook in every situation" tabindex="0">{table}</div>'
    changes = "\n".join(map(render_changes, load_matrices()[1:]))
    page = f"# Every hook in every situation\n\n{about}\n\n{table}\n\n## What changed between versions\n\n{changes}"
    files = {"matrix.md": page}
    orphan = "---\norphan: true\n---\n"  # the table leads there
    return files | {f"proofs/{slug_of(hook)}.md": orphan + render_proofs(hook, matrix) for hook in hooks}


def _move_glossary(lesson: NotebookNode) -> dict[str, str]:
    """The page of the glossary, by its name, in the place of which a link is put in the lesson that has it."""
    for cell in lesson.cells:
        if cell.id == GLOSSARY:
            terms = [f"{word}{more}\n  {' '.join(text.split())}\n" for word, more, text in ENTRY.findall(cell.source)]
            cell.source = "[The glossary](glossary.md) has a page of its own here."
            return {"glossary.md": "\n".join(["# Glossary\n", "```{glossary}", *terms, "```\n"])}
    return {}


def fold(notebook: NotebookNode, frames: Sequence[str] = (), answers: bool = False) -> NotebookNode:
    """A built lesson, tagged for myst-nb: what is shown between a prediction and its explanation is below folds.

    frames: other settings of its explorer, as calls. answers: in the place of its check, an exercise has an answer.
    """
    notebook = page.flatten_outputs(notebook)
    unexplained: set[str | None] = set()  # the predictions so far whose explanation comes later
    for cell in notebook.cells:
        tags = set(tags_of(cell))
        look = NotebookNode(tags=["hide-input"] if "setup" in tags else [])
        if "predict" in tags:
            unexplained.add(called_with(cell.source, "predict"))
            look.tags = ["remove-input"]
        elif "why" in tags:
            unexplained.discard(called_with(cell.source, "why"))
            look.tags = ["remove-input"]
        elif "check" in tags:
            cell.update(source=find(called_with(cell.source, "check")).source.strip(), outputs=[])
            look = NotebookNode(tags=["hide-input" if answers else "remove-cell"])
            look.mystnb = {"code_prompt_show": "One answer"}
        elif unexplained and cell.get("outputs"):
            look.tags.append("hide-output")
        if "explore" in tags and frames:
            stills = "".join(map(show_frame, frames))
            cell.outputs[0].data["text/html"] += f"<details><summary>With other settings</summary>{stills}</details>"
        cell.metadata = look
    return notebook


def show_frame(call: str) -> str:
    """What an explorer shows for the settings in a call, as a figure without controls below the call."""
    data, metadata = eval(call, vars(explorers))._repr_mimebundle_()
    output = nbformat.v4.new_output("display_data", data=data, metadata={**metadata, build.WIDGET: True})
    return f"<p><code>{escape(call)}</code></p>{page.flatten(output)['text/html']}"


def setup(app: Any) -> None:
    """Let Sphinx, which calls this, write formulas as MathML."""
    from docutils.nodes import SkipNode

    def write(writer: Any, formula: Any) -> None:
        writer.body.append(page.mathml(formula.astext(), "inline" if formula.tagname == "math" else "block"))
        raise SkipNode

    app.add_html_math_renderer("mathml", (write, None), (write, None))
