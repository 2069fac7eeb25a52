"""An update keeps what is the learner's: answers, cells of their own, edits and outputs. So is the file as it was."""

import copy
import json
import re

import nbformat
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from course_utils.lab import update
from course_utils.lab.update import BACKUPS, BASE, merge, update_lessons
from course_utils.root import ROOT

SKELETON = 'def {name}(x):\n    """{task}"""\n    ...'
ANSWER = 'def {name}(x):\n    """{task}"""\n    return x + {number}'


def cell(cell_id: str, source: str, kind: str = "code", **more) -> dict:
    extra = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return {"id": cell_id, "cell_type": kind, "metadata": {}, "source": source, **extra, **more}


def notebook(*cells: dict) -> dict:
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [copy.deepcopy(one) for one in cells]}


def skeleton(name: str, task: str = "Do it.") -> dict:
    return cell(f"answer-{name}", SKELETON.format(name=name, task=task))


def answered(name: str, number: int = 1, task: str = "Do it.") -> dict:
    return cell(f"answer-{name}", ANSWER.format(name=name, number=number, task=task))


TITLE = cell("text-1", "# A lesson", "markdown")
SETUP = cell("setup-1", "import math")
EXAMPLE = cell("code-1", "print(math.pi)")
END = cell("text-2", "## Summary", "markdown")
OLD = notebook(TITLE, SETUP, skeleton("f"), EXAMPLE, skeleton("g"), END)


def read(made: dict) -> nbformat.NotebookNode:
    return update._read(json.dumps(made).encode())


def merged(mine: dict, new: dict, base: dict | None = OLD) -> tuple[list[dict], str]:
    """The cells and the words of a merge, whose notebook is valid."""
    made, words = merge(read(mine), read(new), base and read(base))
    nbformat.validate(made)
    return made.cells, words


def sources(cells: list[dict]) -> list[str]:
    return [one["source"] for one in cells]


# ------------------------------------------------------------------------------------------------------- what is kept


def test_an_answer_stands_in_its_cell_with_its_output_and_the_rest_is_new():
    output = {"output_type": "stream", "name": "stdout", "text": "hello"}
    mine = notebook(TITLE, SETUP, answered("f") | {"outputs": [output]}, EXAMPLE, skeleton("g"), END)
    new = notebook(
        TITLE | {"source": "# The lesson", "id": "text-9"},
        SETUP,
        skeleton("f"),
        cell("n", "More.", "markdown"),
        EXAMPLE,
    )
    expected = copy.deepcopy(new["cells"])
    expected[2] = mine["cells"][2]
    assert merged(mine, new) == (expected, "with your 1 answer and 0 cells of your own.")


def test_cells_of_ones_own_stay_behind_the_cell_they_followed_in_whatever_order_the_lesson_comes():
    note, code, first = cell("n1", "my note", "markdown"), cell("n2", "1 + 1"), cell("n3", "first", "markdown")
    mine = notebook(first, TITLE, note, SETUP, skeleton("f"), EXAMPLE, code, skeleton("g"), END)
    fresh = cell("code-9", "new()")
    cells, words = merged(mine, notebook(TITLE, fresh, SETUP, EXAMPLE, skeleton("f"), skeleton("g"), END))
    assert [one.id for one in cells] == [
        *("n3", "text-1", "n1", "code-9", "setup-1", "code-1", "n2", "answer-f", "answer-g", "text-2")
    ]
    assert words == "with your 0 answers and 3 cells of your own."


@pytest.mark.parametrize(
    ("base", "mine", "new", "found"),
    [
        ("a = 1", "a = 2", "a = 1", ["a = 2"]),
        ("a = 1", "a = 1", "a = 3", ["a = 3"]),
        ("a = 1", "a = 2", "a = 2", ["a = 2"]),
        ("a = 1\nb = 1\nc = 1", "a = 2\nb = 1\nc = 1", "a = 1\nb = 1\nc = 3", ["a = 2\nb = 1\nc = 3"]),
        ("a = 1", "a = 2", "a = 3", ["a = 3", update.CHANGED, "a = 2"]),
    ],
    ids=["only the learner", "only the course", "both the same", "both, other lines", "both, the same line"],
)
def test_a_cell_that_somebody_changed(base, mine, new, found):
    notebooks = [notebook(TITLE, cell("the-one", text), END) for text in (mine, new, base)]
    cells, words = merged(*notebooks)
    assert sources(cells) == ["# A lesson", *found, "## Summary"]
    assert ("both versions are there" in words) == (len(found) == 3)


def test_an_edited_cell_that_the_update_removed_is_there_with_a_note_and_others_are_gone():
    mine = notebook(TITLE, SETUP | {"source": "x = 1\ny = 2\nimport cmath"}, EXAMPLE, skeleton("f"))
    cells, _ = merged(mine, notebook(TITLE, skeleton("f")))
    assert sources(cells) == ["# A lesson", update.GONE, "x = 1\ny = 2\nimport cmath", skeleton("f")["source"]]


def test_a_cell_that_was_reworded_under_another_id_is_the_same_cell():
    old = cell("text-a", "Hooks see the gradient as soon as it is computed.\nThey may change it.", "markdown")
    mine = old | {"source": f"{old['source']}\n\n*My note.*"}
    new = old | {"id": "text-b", "source": old["source"].replace("soon", "quickly")}
    cells, _ = merged(notebook(TITLE, mine, EXAMPLE), notebook(TITLE, new, EXAMPLE), notebook(TITLE, old, EXAMPLE))
    assert sources(cells)[1] == f"{new['source']}\n\n*My note.*"
    assert cells[1].id == "text-b"


def test_a_new_task_is_shown_above_an_answer_to_the_old_one():
    mine = notebook(TITLE, answered("f"), skeleton("g"))
    new = notebook(TITLE, skeleton("f", "Do it well."), skeleton("g", "Do it well."))
    (_, note, answer, untouched), _ = merged(mine, new, notebook(TITLE, skeleton("f"), skeleton("g")))
    assert note.cell_type == "markdown"
    assert "Do it well." in note.source
    assert (answer.id, answer.source) == ("answer-f", answered("f")["source"])
    assert untouched.source == skeleton("g", "Do it well.")["source"]


def test_a_cell_of_another_kind_under_a_known_id_is_the_learners_own():
    mine = notebook(TITLE, EXAMPLE | {"cell_type": "raw"}, END)
    del mine["cells"][1]["outputs"], mine["cells"][1]["execution_count"]
    cells, _ = merged(mine, OLD)
    assert [one.cell_type for one in cells if one.source == "print(math.pi)"] in (["raw", "code"], ["code", "raw"])


def test_without_a_base_the_ids_tell_what_the_learner_changed():
    """A cell without a name is called by its text, so an old one that was not edited shows as such."""
    by_text = cell("code-41c2f5d3", "old()")
    made = update.hashlib.sha256(b"old()").hexdigest()[:8]
    edited = cell(f"code-{made[::-1]}", "mine()")
    mine = notebook(TITLE, by_text | {"id": f"code-{made}"}, edited, answered("f"), answered("gone"))
    cells, words = merged(mine, notebook(TITLE, cell("code-9", "new()"), skeleton("f")), None)
    assert sorted(sources(cells)[1:]) == sorted(
        ["new()", "mine()", *(answered(name)["source"] for name in ("f", "gone"))]
    )
    assert words.startswith("with your 1 answer and 2 cells of your own.")


# ------------------------------------------------------------------------------------ what a learner's notebook may be


def edit_at_random(draw, old: dict) -> tuple[dict, list[str]]:
    """A learner's notebook made from the edition `old`, and the texts in it that are the learner's own."""
    mine, own = copy.deepcopy(old), []
    words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
    for one in mine["cells"]:
        if one["id"].startswith("answer") and draw(st.booleans()):
            body = draw(st.sampled_from(["return x", "return (", "x = 1\n    return x", "print('é ü 漢')", "..."]))
            one["source"] = f"def {one['id'][-1]}(x):\n    {body}  # {len(own)}"
        elif not one["id"].startswith("answer") and draw(st.integers(0, 3)) == 0:
            one["source"] = f"# {draw(words)!r} {len(own)}"
        else:
            continue
        own.append(one["source"])
    for number in range(draw(st.integers(0, 4))):
        source = draw(st.sampled_from(["def f(x):\n    return 2", "import os", "x = (", "", "%time 1", "# my note"]))
        own.append(f"{source}\n# {draw(words)!r} {number} of my own")
        one = cell(f"own-{number}", own[-1], draw(st.sampled_from(["code", "markdown"])))
        mine["cells"].insert(draw(st.integers(0, len(mine["cells"]))), one)
    return mine, own


def spoil_ids(draw, mine: dict) -> bool:
    """What editors and copies do: another order, ids lost or doubled, sources as lists; whether the ids are left."""
    mine["cells"] = draw(st.permutations(mine["cells"])) if draw(st.booleans()) else mine["cells"]
    how = draw(st.sampled_from(["as they are", "none", "some", "doubled"]))
    for one in mine["cells"]:
        if how == "none" or (how == "some" and draw(st.booleans())):
            one.pop("id", None)
        if how == "doubled" and draw(st.booleans()):
            one["id"] = draw(st.sampled_from(mine["cells"]))["id"]
        one["source"] = one["source"].splitlines(keepends=True) if draw(st.booleans()) else one["source"]
    mine["nbformat_minor"] = 4 if how == "none" else 5
    return how == "as they are"


def change_edition(draw, old: dict) -> dict:
    """Another edition: cells reworded, removed, added, in another order."""
    cells = []
    for number, one in enumerate(copy.deepcopy(old["cells"])):
        what, answer = draw(st.sampled_from(["same", "same", "reworded", "renamed", "removed"])), "def" in one["source"]
        if what in ("reworded", "renamed"):
            one["source"] = one["source"].replace("Do it.", "Do it anew.") if answer else f"{one['source']}  # new"
        one["id"] = f"renamed-{number}" if what == "renamed" and not answer else one["id"]
        cells += [] if what == "removed" and not answer else [one]
    cells += [cell(f"added-{number}", f"# added {number}") for number in range(draw(st.integers(0, 3)))]
    return notebook(*draw(st.permutations(cells)))


# An example that fails says enough as it is: to find the smallest one takes minutes.
@pytest.mark.filterwarnings("ignore")  # of nbformat, about ids
@settings(deadline=None, max_examples=40, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_whatever_the_learner_did_an_update_loses_nothing(data):
    mine, own = edit_at_random(data.draw, OLD)
    as_they_are = spoil_ids(data.draw, mine)
    new = change_edition(data.draw, OLD)
    base = OLD if data.draw(st.booleans()) else None
    cells, _ = merged(mine, new, base)
    assert set(own) <= set(sources(cells)), "every text of the learner's is there, to the letter"
    ids = [one.id for one in cells]
    assert len(ids) == len(set(ids))
    wanted = [one["id"] for one in new["cells"]]
    assert [each for each in ids if each in wanted] == wanted, "every cell of the edition is there, in its order"
    answers = {one["id"]: "".join(one["source"]) for one in mine["cells"] if as_they_are and "answer" in one["id"]}
    kept = {one.id: one.source for one in cells}
    assert all(kept[name] == answer for name, answer in answers.items() if answer in own), "an answer stays in its cell"
    made = notebook(*cells)
    assert sources(merged(made, new, new)[0]) == sources(cells), "a second update to the same edition changes nothing"
    assert set(own) <= set(sources(merged(made, new, base)[0])), "one that was interrupted goes on"


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("0[1-8]*.ipynb")), ids=lambda path: path.stem)
def test_a_real_lesson_keeps_answers_notes_and_outputs(path):
    new = json.loads(path.read_text(encoding="utf-8"))
    mine = copy.deepcopy(new)
    del mine["cells"][3:5]  # as the edition before had them
    answers = {}
    for one in mine["cells"]:
        one["source"] = "".join(one["source"])
        if one["id"].startswith("answer-"):
            answers[one["id"]] = one["source"] = one["source"].replace("...", "return 'my answer'")
    base = copy.deepcopy(mine)
    for one in base["cells"]:
        one["source"] = one["source"].replace("return 'my answer'", "...") if one["id"] in answers else one["source"]
    mine["cells"].insert(9, cell("mine", "my own cell"))
    cells, words = merged(mine, new, base)
    assert answers.items() <= {one.id: one.source for one in cells}.items()
    assert [one.id for one in cells if one.id != "mine"] == [one["id"] for one in new["cells"]]
    assert words == f"with your {len(answers)} answers and 1 cell of your own."
    assert [one.get("outputs") for one in cells if one.id != "mine"] == [one.get("outputs") for one in read(new).cells]


# ------------------------------------------------------------------------------------------------------------ the files


@pytest.fixture
def course(tmp_path):
    """A lesson, and a learner's copy of it."""
    lesson = tmp_path / "notebooks" / "01_one.ipynb"
    lesson.parent.mkdir()
    write(lesson, OLD)
    list(update_lessons([lesson], tmp_path / "work"))
    return lesson, tmp_path / "work" / "01_one.ipynb"


def write(path, made: dict) -> None:
    path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def edition(number: int) -> dict:
    return notebook(cell(f"text-{number}0", f"# Edition {number}", "markdown"), skeleton("f"), skeleton("g"))


def names_in(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_nothing_is_said_or_written_while_the_edition_is_the_same(course):
    lesson, mine = course
    assert mine.read_bytes() == lesson.read_bytes()
    mine.write_text("whatever")
    assert list(update_lessons([lesson], mine.parent)) == []
    assert names_in(mine.parent) == [BASE, "01_one.ipynb"]
    assert mine.read_text() == "whatever"


def test_an_untouched_copy_is_replaced_without_a_backup(course):
    lesson, mine = course
    write(lesson, edition(2))
    assert list(update_lessons([lesson], mine.parent)) == [("01_one.ipynb: a new edition.", mine, None)]
    assert mine.read_bytes() == lesson.read_bytes()
    assert names_in(mine.parent) == [BASE, "01_one.ipynb"]
    assert list(update_lessons([lesson], mine.parent)) == []


def test_a_copy_with_answers_is_renewed_and_no_backup_is_overwritten(course, monkeypatch):
    lesson, mine = course
    monkeypatch.setattr(update.time, "strftime", lambda _: "2030-01-02_0304")
    written = []
    for number in range(2, 5):
        write(mine, notebook(TITLE, answered("f", number), cell("n1", "mine", "markdown")))
        written.append(mine.read_bytes())
        write(lesson, edition(number))
        (found,) = update_lessons([lesson], mine.parent)
        assert answered("f", number)["source"] in sources(read(json.loads(mine.read_text())).cells)
    assert re.fullmatch(
        r"01_one\.ipynb: a new edition, with your 1 answer and \d cells? of your own\. "
        r"The file as it was: backups/01_one\.2030-01-02_0304-3\.ipynb\.",
        found.sentence,
    )
    backups = [mine.parent / BACKUPS / f"01_one.2030-01-02_0304{end}.ipynb" for end in ("", "-2", "-3")]
    assert [path.read_bytes() for path in backups] == written
    assert found.backup == backups[-1]


@pytest.mark.parametrize(
    "content", [b"", json.dumps(OLD).encode()[:-20], b"\xff", b"[1]", b'{"nbformat": 4, "cells": 3}']
)
def test_what_is_no_notebook_is_left_alone_and_named(course, content):
    lesson, mine = course
    mine.write_bytes(content)
    write(lesson, edition(2))
    for _ in range(2):  # and said again the next time
        (found,) = update_lessons([lesson], mine.parent)
        assert re.match(r"01_one\.ipynb: left as it is \(.+\)\. For the new edition, rename it", found.sentence)
        assert found.written is None
        assert mine.read_bytes() == content


def test_a_folder_and_a_notebook_of_another_name_are_left_alone_and_named(course):
    lesson, mine = course
    mine.rename(mine.with_name("my_first.ipynb"))
    mine.mkdir()
    write(lesson, edition(2))
    sentences = [found.sentence for found in update_lessons([lesson], mine.parent)]
    assert "Is a directory" in sentences[0]
    assert sentences[1] == "my_first.ipynb: left as it is, because no lesson has this name."


@pytest.mark.parametrize("step", range(3))
def test_interrupted_at_any_write_nothing_is_lost_and_the_next_run_goes_on(course, monkeypatch, step):
    lesson, mine = course
    write(mine, notebook(TITLE, answered("f"), cell("n1", "mine", "markdown"), EXAMPLE | {"source": "edited()"}))
    before = mine.read_bytes()
    write(lesson, edition(2))
    calls = []

    def interrupted(path, content):
        calls.append(path)
        if len(calls) > step:
            raise KeyboardInterrupt
        return write_whole(path, content)

    write_whole = update.write_whole
    with monkeypatch.context() as patch:
        patch.setattr(update, "write_whole", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(update_lessons([lesson], mine.parent))
    list(update_lessons([lesson], mine.parent))
    found = sources(read(json.loads(mine.read_text())).cells)
    assert {"# Edition 2", answered("f")["source"], "mine", "edited()"} <= set(found)
    assert before in [path.read_bytes() for path in mine.parent.glob(f"{BACKUPS}/*.ipynb")]
    assert list(update_lessons([lesson], mine.parent)) == []
