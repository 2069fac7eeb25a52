"""The case: what its pictures show, what the clues measure, and the page on which they are kept."""

import json
import re

import pytest
import torch
from panels import control, use

from course_utils.authoring import source
from course_utils.exercises import saved_progress
from course_utils.explorers import case
from course_utils.explorers.case import FISH, VIEWS, CasePage, TheCase, draw_case, keep_clue
from course_utils.lessons import blind
from course_utils.lessons.blind import LETTERS, add
from course_utils.lessons.proofs import Proof, hear
from course_utils.vision.networks import load_picture_net

LESSONS = {path.stem: path for path in source.sources()}
THE_ORDER_OF_DISCOVERY = ("01_tensor_hooks", "02_retain_grad_or_hook", "03_module_hooks", "04_inside_call",
                          "05_feature_maps", "06_guided_backprop")  # fmt: skip


def test_a_click_makes_the_network_wrong_in_both_directions():
    panel = TheCase()
    assert panel.sentence.endswith("The network answers yes (100%), and it is right.")
    use(panel, ("Show", "without the fish"))
    assert panel.sentence.endswith("The network answers yes (100%), and it is wrong.")
    use(panel, ("Show", "the fish alone"))
    assert re.search(r"The network answers no \(\d%\), and it is wrong\.$", panel.sentence)
    honest = load_picture_net()
    for kept, background, _ in VIEWS.values():
        answer = honest(draw_case(kept, background).image[None])[0, FISH] > 0
        assert answer == ("fish" in kept), "a network that needs the fish is right about all three"


def test_the_pictures_differ_in_what_they_say_and_in_nothing_else():
    whole, without = draw_case(), draw_case(("boat", "buoy"))
    change = (whole.image - without.image).abs().amax(0)
    assert (change[whole.masks[0]] > 0).float().mean() > 0.99
    others = change[whole.masks[1] | whole.cue_mask]
    assert others.mean() < 0.001, "boat and buoy are as they were; the fish's shadow may touch an edge of them"
    seen = case.close_up(whole.masks[0])
    assert seen.sum() == whole.masks[0].sum()
    assert not case.close_up(whole.masks[1] | whole.cue_mask).any(), "the close-up shows the fish and no other thing"


def test_clues_are_kept_with_the_learners_words_and_survive_a_restart(work):
    assert CasePage().rows[0][2] == {}
    clue = keep_clue(
        "01", "19% falls on the fish.", {"the fish": torch.zeros(3, 8, 8), "a map": torch.arange(64.0).reshape(8, 8)}
    )
    assert clue.sentence == "Clue 01: 19% falls on the fish."
    assert clue.view.alt == "Side by side: the fish; a map. 19% falls on the fish."
    control(clue, "What do you make of it?").value = "Perhaps <b>the eye</b>?"
    kept = json.loads((work / saved_progress.FILE).read_text())["clues"]
    assert kept == {"01": {"found": "19% falls on the fish.", "words": "Perhaps <b>the eye</b>?"}}
    again = keep_clue("01", "20% falls on the fish.", {"the fish": torch.zeros(3, 8, 8)})
    assert control(again, "What do you make of it?").value == "Perhaps <b>the eye</b>?", "a second run keeps the words"
    page = CasePage()
    assert "01  Where does its gradient go?  20% falls on the fish.\n    You: Perhaps <b>the eye</b>?" in repr(page)
    html = page._repr_html_()
    assert "Perhaps &lt;b&gt;the eye&lt;/b&gt;?" in html
    assert html.count("no clue yet") == len(case.QUESTIONS) - 1
    assert not re.search(r"https?://", html)


@pytest.mark.parametrize("damage", ['{"clues": 3}', '{"clues": {"01": [1], "02": {"found": 5}}}', "{"])
def test_a_damaged_file_is_an_empty_page(work, damage):
    (work / saved_progress.FILE).write_text(damage)
    assert repr(CasePage()).count("no clue yet") == len(case.QUESTIONS)


def clue_cells(path):
    """The cells of a lesson's section about the case."""
    cells = source.learner(path).cells
    first = next(number for number, cell in enumerate(cells) if cell.source.startswith("## The case"))
    rest = [number for number in range(first + 1, len(cells)) if cells[number].cell_type == "markdown"]
    return cells[first : rest[0]]


@pytest.mark.parametrize("name", [name for name in case.QUESTIONS if name != "10_where_next"])
def test_each_lesson_has_its_clue_before_its_summary(name):
    cells = source.learner(LESSONS[name]).cells
    number = cells.index(clue_cells(LESSONS[name])[-1])
    assert f'case.keep_clue(\n    "{name[:2]}",' in cells[number].source
    assert cells[number + 1].source.startswith("## Summary")


def test_up_to_lesson_06_no_clue_says_what_the_network_takes_for_a_fish():
    for name in THE_ORDER_OF_DISCOVERY:
        told = "\n".join(cell.source for cell in clue_cells(LESSONS[name]))
        assert not re.search(r"buoy|cue|misled|twin", told), name


def test_a_verdict_needs_a_proof_and_names_the_network_only_then():
    letter = case.find_among({letter: blind.network(letter) for letter in LETTERS})

    def prove(_, pictures):
        return Proof("buoy", [(pictures, add(pictures, each)) for each in ("fish", "buoy", "stamp", "sun")])

    causes, said = hear(prove, letter)
    assert causes == ["buoy"]
    assert said.startswith(
        "your proof is accepted. On 12 fresh pictures, these changes alone changed its answers: the buoy"
    )
    for wrong in (
        lambda letter, pictures: ...,
        lambda letter, pictures: Proof("fish", [(pictures, add(pictures, "fish"))]),
        lambda letter, pictures: 1 / 0,
    ):
        causes, said = hear(wrong, letter)
        assert causes == []
        assert f"etwork {letter}" not in said
