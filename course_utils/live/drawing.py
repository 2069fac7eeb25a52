"""How the class's pages are drawn: their templates, and what these can do with texts, links and code."""

import contextlib
import re
import sys

from jinja2 import Environment
from markupsafe import Markup

from course_utils.authoring.page import draw_formulas
from course_utils.live.material import lessons
from course_utils.live.room import COUNTDOWNS, PHASES, SCREENS
from course_utils.live.screens import FINISHED
from course_utils.root import CourseError
from course_utils.show import page_templates, render_markdown

NO_QR = "There is no QR code, because segno is missing: .venv/bin/python -m pip install -e '.[instructor]'"


def make_templates(address: str) -> Environment:
    """The templates of a class whose learners type `address`."""
    templates = page_templates()
    templates.filters |= {"markdown": _draw_markdown, "wrapped": lambda name: Markup("_<wbr>").join(name.split("_"))}
    templates.globals |= {
        "screens": SCREENS, "phases": PHASES, "countdowns": COUNTDOWNS, "lessons": lessons(), "address": address,
        "draw_qr": _draw_qr, "size_of": size_of, "finished": FINISHED,
    }  # fmt: skip
    return templates


def _draw_markdown(text: str) -> Markup:
    made = render_markdown(text)
    with contextlib.suppress(CourseError):  # latex2mathml is missing
        made = draw_formulas(made)
    return Markup(re.sub(r' style="[^"]*"', "", made))  # which the page's policy forbids


def _draw_qr(link: str) -> Markup:
    try:
        import segno
    except ImportError:
        print(NO_QR, file=sys.stderr)
        return Markup("")
    return Markup(segno.make(link).svg_inline(scale=8, border=4, light="#fff", omitsize=True))


def size_of(code: str) -> str:
    """How large code can be shown beside a question: `large`, `medium` or `small`, by its lines and their lengths."""
    lines = code.splitlines()
    longest = max(map(len, lines), default=0)
    if len(lines) <= 12 and longest <= 60:
        return "large"
    return "medium" if len(lines) <= 18 and longest <= 80 else "small"
