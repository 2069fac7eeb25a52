"""The page of questions: each has a thread, a program that prints what stands below it, and links that work."""

import re
import warnings

import nbformat
import pytest
import torch

from course_utils.root import ASSETS, ROOT

START, *SECTIONS = (ASSETS / "questions.md").read_text(encoding="utf-8").split("\n## ")
QUESTIONS = {section.partition("\n")[0]: section for section in SECTIONS}


def block(kind: str, text: str) -> str:
    """The one block of this kind, such as "python", in a text."""
    (code,) = re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return code


def test_there_are_twenty_questions_with_a_thread_and_one_more():
    assert len(QUESTIONS) == 21
    without = [name for name, text in QUESTIONS.items() if "\n\nAsked " not in text]
    assert without == ["Do hooks work on a quantised model?"]
    assert all("Deeper: [" in " ".join(text.split()) for text in QUESTIONS.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_program_prints_what_stands_below_it(name, capsys):
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        exec(block("python", START) + block("python", QUESTIONS[name]), {"__name__": "a program"})
    assert capsys.readouterr().out == block("text", QUESTIONS[name])


def test_links_to_lessons_lead_to_a_heading():
    for text in SECTIONS:
        for file, anchor in re.findall(r"\]\(\.\./\.\./(notebooks/\w+\.ipynb)#?([^)]*)\)", text):
            cells = nbformat.read(ROOT / file, as_version=4).cells
            prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
            headings = [each.strip().replace(" ", "-") for each in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)]
            assert not anchor or anchor in headings, f"{file} has no heading {anchor}"
