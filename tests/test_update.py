"""An update keeps what is the learner's: answers, cells of their own, edits and outputs. So is the file as it was."""

import json
import re
from unittest.mock import DEFAULT, patch

import nbformat
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from course_utils.lab import update
from course_utils.lab.merge import CHANGED, GONE, NEW_TASK, REMOVED, merge
from course_utils.lab.update import BACKUPS, BASE, update_lessons

TITLE, SETUP, EXAMPLE = "text-1: # A lesson", "setup-1: import math", "code-1: print(math.pi)"
F, G = (f'answer-{name}: def {name}(x):\n    """Do it."""\n    ...' for name in "fg")
MY_F, NEW_F = F.replace("...", "return x + 1"), F.replace("Do it", "Do it well")
END = "text-2: ## Summary"
OLD = (TITLE, SETUP, F, EXAMPLE, G, END)


def notebook(*cells: str) -> nbformat.NotebookNode:
    """A notebook of cells that are written as `id: source`; a text's or a note's id says that it is one."""
    made = nbformat.v4.new_notebook()
    for name, source in (cell.split(": ", 1) for cell in cells):
        new = nbformat.v4.new_markdown_cell if name.startswith(("text", "note")) else nbformat.v4.new_code_cell
        made.cells.append(new(source, id=name))
    return made


def merged(*notebooks: dict) -> tuple[list[nbformat.NotebookNode], str]:
    """The cells and the words of a merge of mine, new and base, whose notebook is valid."""
    made, words = merge(*(update._read(json.dumps(each).encode()) for each in notebooks))
    nbformat.validate(made)
    return made.cells, words


def texts(cells: list[nbformat.NotebookNode]) -> list[str]:
    """Cells as `id: source`; "?" is an id that the merge made: eight digits."""
    return [re.sub("^[0-9a-f]{8}:", "?:", f"{cell.id}: {cell.source}") for cell in cells]


def sources(cells: list[dict]) -> list[str]:
    return [one["source"] for one in cells]


FIRST, NOTE, OWN, NEW = "note-3: first", "note-1: mine", "own: 1 + 1", "code-9: new()"
LONG = "text-a: Hooks see the gradient as soon as it is computed.\nThey may change it."
NEW_LONG = LONG.replace("soon", "quickly").replace("text-a", "text-b")
NEW_G = G.replace("def g", "def k").replace("answer-g", "answer-k")
NONE = "your 0 answers and 0 cells"
CASES = {  # the old edition, the learner's copy, the new edition; what becomes of them, and a part of what is said
    "cells of one's own stay behind the cell they followed": (
        OLD, (FIRST, TITLE, NOTE, SETUP, F, EXAMPLE, OWN, G, END), (TITLE, NEW, SETUP, EXAMPLE, F, G, END),
        (FIRST, TITLE, NOTE, NEW, SETUP, EXAMPLE, OWN, F, G, END), "your 0 answers and 3 cells"),
    "one changed, the other changed": (["x: 1", "y: 1"], ["x: 2", "y: 1"], ["x: 1", "y: 2"], ["x: 2", "y: 2"], NONE),
    "both changed the same": (["x: a = 1"], ["x: a = 2"], ["x: a = 2"], ["x: a = 2"], NONE),
    "both, other lines": (["x: a\nb\nc"], ["x: A\nb\nc"], ["x: a\nb\nC"], ["x: A\nb\nC"], NONE),
    "both, one line": (["x: a = 1"], ["x: a = 2"], ["x: a = 3"], ["x: a = 3", f"?: {CHANGED}", "?: a = 2"], NONE),
    "reworded under another id": ([LONG], [f"{LONG}\n\n*Mine.*"], [NEW_LONG], [f"{NEW_LONG}\n\n*Mine.*"], NONE),
    "a new task": ([F], [MY_F], [NEW_F], [f"?: {NEW_TASK.format(NEW_F[10:])}", MY_F], "your 1 answer and 0 cells"),
    "a new task, not begun": ([F], [F], [NEW_F], [NEW_F], NONE),
    "edited and removed": (
        OLD, (TITLE, f"{SETUP}, re", EXAMPLE, F), (TITLE, F), (TITLE, f"?: {GONE}", "?: import math, re", F), NONE),
    "an exercise removed, another added": (
        OLD, (TITLE, MY_F, G, "own: f(1)"), (TITLE, NEW_G),
        (TITLE, f"?: {REMOVED.format('f')}", f"?: {MY_F[10:]}", "own: f(1)", NEW_G), "Exercises that are gone: f;"),
}  # fmt: skip


@pytest.mark.parametrize(("base", "mine", "new", "found", "said"), CASES.values(), ids=CASES)
def test_what_becomes_of_each_cell(base, mine, new, found, said):
    cells, words = merged(notebook(*mine), notebook(*new), notebook(*base))
    assert texts(cells) == list(found)
    assert said in words
    assert ("both versions are there" in words) == (not {f"?: {CHANGED}", f"?: {GONE}"}.isdisjoint(found))


def test_a_cell_of_another_kind_is_the_learners_own():
    mine = notebook(TITLE)
    mine.cells.append(nbformat.v4.new_raw_cell("print(math.pi)", id="code-1"))
    cells, _ = merged(mine, notebook(*OLD), notebook(*OLD))
    assert sorted(cell.cell_type for cell in cells if cell.source == "print(math.pi)") == ["code", "raw"]


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
BODIES = st.sampled_from(["return x", "return (", "x = 1\n    return x", "print('é ü 漢')", "..."])
TEXTS = st.sampled_from(["def f(x):\n    return 2", "import os", "x = (", "", "%time 1", "# my note"])


def edit_at_random(draw) -> tuple[dict, list[str]]:
    """A learner's copy of the old edition, and the texts in it that are the learner's own."""
    mine, own = list(OLD), []
    for place, name in enumerate(cell.split(": ")[0] for cell in OLD):
        if draw(st.integers(0, 2)) == 0:
            text = f"def {name[-1]}(x):\n    {draw(BODIES)}" if name.startswith("answer") else repr(draw(WORDS))
            own.append(f"{text}  # {place}")
            mine[place] = f"{name}: {own[-1]}"
    for number in range(draw(st.integers(0, 4))):
        own.append(f"{draw(TEXTS)}\n# {draw(WORDS)!r} {number} of my own")
        mine.insert(draw(st.integers(0, len(mine))), f"{draw(st.sampled_from(['own', 'note']))}-{number}: {own[-1]}")
    return notebook(*mine), own


def spoil_ids(draw, mine: dict) -> bool:
    """What editors and copies do: another order, ids lost or doubled, sources as lists; whether the ids are left."""
    if draw(st.booleans()):
        mine["cells"] = draw(st.permutations(mine["cells"]))
    how = draw(st.sampled_from(["as they are", "none", "some", "doubled"]))
    for one in mine["cells"]:
        if how == "none" or (how == "some" and draw(st.booleans())):
            del one["id"]
        if how == "doubled" and draw(st.booleans()):
            one["id"] = draw(st.sampled_from(mine["cells"]))["id"]
        if draw(st.booleans()):
            one["source"] = one["source"].splitlines(keepends=True)
    mine["nbformat_minor"] = 4 if how == "none" else 5
    return how == "as they are"


def change_edition(draw) -> dict:
    """Another edition: cells reworded, renamed, removed, added, in another order."""
    cells = [f"added-{number}: # added" for number in range(draw(st.integers(0, 3)))]
    for name, source in (cell.split(": ", 1) for cell in OLD):
        others = [] if name.startswith("answer") else ["renamed", "removed"]
        change = draw(st.sampled_from(["same", "same", "reworded", *others]))
        if change in ("reworded", "renamed"):
            source = source.replace("Do it.", "Do it anew.") if "Do it." in source else f"{source}  # new"
        if change != "removed":
            cells.append(f"{name}-renamed: {source}" if change == "renamed" else f"{name}: {source}")
    return notebook(*draw(st.permutations(cells)))


# An example that fails says enough as it is: to find the smallest one takes minutes.
@pytest.mark.filterwarnings("ignore")  # of nbformat, about ids
@settings(deadline=None, max_examples=40, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_whatever_the_learner_did_an_update_loses_nothing(data):
    mine, own = edit_at_random(data.draw)
    as_they_are = spoil_ids(data.draw, mine)
    new = change_edition(data.draw)
    base = notebook(*OLD) if data.draw(st.booleans()) else new  # where nobody knows what the copy was made from
    cells, _ = merged(mine, new, base)
    assert set(own) <= set(sources(cells)), "every text of the learner's is there, to the letter"
    ids = [one.id for one in cells]
    assert len(ids) == len(set(ids))
    wanted = [one["id"] for one in new["cells"]]
    assert [each for each in ids if each in wanted] == wanted, "every cell of the edition is there, in its order"
    answers = {one["id"]: "".join(one["source"]) for one in mine["cells"] if as_they_are and "answer" in one["id"]}
    kept = {one.id: one.source for one in cells}
    assert all(kept[name] == answer for name, answer in answers.items() if answer in own), "an answer stays in its cell"
    made = new | {"cells": cells}
    assert sources(merged(made, new, new)[0]) == sources(cells), "a second update to the same edition changes nothing"
    assert set(own) <= set(sources(merged(made, new, base)[0])), "one that was interrupted goes on"


def write(path, *cells: str):
    nbformat.write(notebook(*cells), path)
    return path


def read(path) -> list[nbformat.NotebookNode]:
    return nbformat.read(path, as_version=4).cells


@pytest.fixture
def course(tmp_path):
    """A lesson, and a learner's copy of it."""
    lesson = write(tmp_path / "01_one.ipynb", *OLD)
    list(update_lessons([lesson], tmp_path / "work"))
    return lesson, tmp_path / "work" / "01_one.ipynb"


def test_a_copy_comes_without_outputs_and_keeps_those_of_its_own_runs(tmp_path):
    made = notebook(*OLD)
    for cell in made.cells[1:5]:
        cell.outputs = [nbformat.v4.new_output("stream", text="as stored")]
    nbformat.write(made, lesson := tmp_path / "01_one.ipynb")
    (found,) = update_lessons([lesson], tmp_path / "work")
    assert not any(cell.get("outputs") for cell in read(found.written))
    came, mine, new = (update._read(nbformat.writes(made).encode()) for _ in range(3))  # of an edition with outputs
    for cell in new.cells[1:5]:
        cell.outputs = []
    mine.cells[3].outputs = [nbformat.v4.new_output("stream", text="as run")]
    assert [len(cell.get("outputs", [])) for cell in merge(mine, new, came)[0].cells] == [0, 0, 0, 1, 0, 0]


def test_an_untouched_copy_is_replaced_and_nothing_is_done_while_the_edition_is_the_same(course):
    lesson, mine = course
    write(lesson, TITLE, F)
    assert list(update_lessons([lesson], mine.parent)) == [("01_one.ipynb: a new edition.", mine, None)]
    assert mine.read_bytes() == lesson.read_bytes()
    mine.write_bytes(before := mine.read_bytes().replace(b"math", b"cmath"))
    assert (list(update_lessons([lesson], mine.parent)), mine.read_bytes()) == ([], before)
    assert {path.name for path in mine.parent.iterdir()} == {BASE, mine.name}, "no backup was needed"


def test_a_copy_with_answers_is_renewed_and_no_backup_is_overwritten(course, monkeypatch):
    lesson, mine = course
    monkeypatch.setattr(update.time, "strftime", lambda _: "2030-01-02_0304")
    for end in ("", "-2", "-3"):
        before = write(mine, MY_F, f"note-1: mine {end}").read_bytes()
        write(lesson, f"text-{end}: # Edition {end}", F, G)
        (found,) = update_lessons([lesson], mine.parent)
        place = f"{BACKUPS}/01_one.2030-01-02_0304{end}.ipynb"
        assert (found.written, found.backup) == (mine, mine.parent / place)
        assert place in found.sentence
        assert found.backup.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "damage"),
    [(b"", "is empty"), (None, "is a folder"), (b'{"cells": [', "was cut"), (b"\xff", "was cut"), (b"[1]", "was cut")],
)
def test_what_is_no_notebook_or_no_lessons_is_left_alone_and_named(course, content, damage):
    lesson, mine = course
    mine.rename(mine.with_name("my_first.ipynb"))
    mine.mkdir() if content is None else mine.write_bytes(content)
    for edition in (OLD, (TITLE,), (TITLE,)):  # at once, with an update, and again the next time
        write(lesson, *edition)
        (found,) = update_lessons([lesson], mine.parent)
        assert found.sentence.startswith(f"01_one.ipynb: left as it is, because it {damage}")
        assert found.written is None
        assert content is None or mine.read_bytes() == content
    mine.rename(mine.with_name("02.ipynb"))
    write(mine, MY_F)
    (_, other, _) = update_lessons([lesson], mine.parent)
    assert other.sentence.startswith("02.ipynb: left as it is")


def update_until(step: int, lessons, work) -> None:
    """Update, and be interrupted before file number `step` is written; then update again."""
    results = {"wraps": update.write_whole, "side_effect": [*[DEFAULT] * step, KeyboardInterrupt]}
    with patch.object(update, "write_whole", **results), pytest.raises(KeyboardInterrupt):
        list(update_lessons(lessons, work))
    list(update_lessons(lessons, work))
    assert list(update_lessons(lessons, work)) == []


@pytest.mark.parametrize("step", range(3))
def test_interrupted_at_any_write_nothing_is_lost_and_the_next_run_goes_on(course, step):
    lesson, mine = course
    before = write(mine, TITLE, MY_F, "note-1: mine", "code-1: edited()").read_bytes()
    write(lesson, "text-2: # Edition 2", F, G)
    update_until(step, [lesson], mine.parent)
    assert {"# Edition 2", MY_F[10:], "mine", "edited()"} <= set(sources(read(mine)))
    assert before in [path.read_bytes() for path in mine.parent.glob(f"{BACKUPS}/*.ipynb")]


@pytest.fixture
def moving(tmp_path):
    """Two lessons and the learner's copies, before an update which moves `f`, that has an answer, to the second."""
    one, two, work = tmp_path / "01_one.ipynb", tmp_path / "02_two.ipynb", tmp_path / "work"
    write(one, TITLE, F, EXAMPLE), write(two, TITLE, G, END)
    list(update_lessons([one, two], work))
    write(work / one.name, TITLE, MY_F, EXAMPLE, OWN)
    write(one, TITLE, EXAMPLE), write(two, TITLE, F, G, END)
    return one, two, work


MY_G = G.replace("...", "return x")


@pytest.mark.parametrize("step", range(6))
def test_an_answer_moves_with_its_exercise_to_another_lesson_whenever_it_is_interrupted(moving, step):
    one, two, work = moving
    write(work / two.name, TITLE, MY_G, NOTE, END)
    update_until(step, [one, two], work)
    assert texts(read(work / two.name)) == [TITLE, MY_F, MY_G, NOTE, END]
    assert texts(read(work / one.name)) == [TITLE, f"?: {REMOVED.format('f')}", f"?: {MY_F[10:]}", EXAMPLE, OWN]


@pytest.mark.parametrize("before", ["untouched", "deleted", "a new lesson"])
def test_an_answer_moves_where_the_learner_has_written_nothing_yet(moving, before):
    one, two, work = moving
    if before != "untouched":
        (work / two.name).unlink()
    if before == "a new lesson":
        (work / BASE / two.name).unlink()
    first, second = update_lessons([one, two], work)
    assert texts(read(second.written)) == [TITLE, MY_F, G, END]
    assert "gone: f;" in first.sentence
    assert "from another lesson, with your answers: f." in second.sentence
    assert (second.backup is None) == (before != "untouched")


def test_an_answer_moves_out_of_a_lesson_that_has_another_name_now(moving):
    one, two, work = moving
    renewed, left = update_lessons([two], work)
    assert MY_F[10:] in sources(read(renewed.written))
    assert left.sentence.startswith("01_one.ipynb: left as it is")
    assert texts(read(work / one.name)) == [TITLE, MY_F, EXAMPLE, OWN]


def test_what_moves_meets_a_new_task_and_a_function_of_its_name(moving):
    one, two, work = moving
    write(work / two.name, TITLE, G, END, "own: def f(x):\n    return 2")
    write(two, TITLE, NEW_F, G, END)
    list(update_lessons([one, two], work))
    note = f"?: {NEW_TASK.format(NEW_F[10:])}"
    assert texts(read(work / two.name)) == [TITLE, note, MY_F, G, END, "own: def f(x):\n    return 2"]


def test_an_exercise_without_an_answer_moves_as_it_comes(moving):
    one, two, work = moving
    write(work / one.name, TITLE, F, EXAMPLE)
    list(update_lessons([one, two], work))
    assert [sources(read(work / path.name)) for path in (one, two)] == [sources(read(path)) for path in (one, two)]
