"""An update keeps what is the learner's: answers, cells of their own, edits and outputs. So is the file as it was."""

import copy
import json
import os
import random
import re
import subprocess
import sys

import nbformat
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from course_utils.authoring import source as lesson_source
from course_utils.exercises.engine import exercises_of
from course_utils.grading.answers import code_cells
from course_utils.grading.collect import collect_answers
from course_utils.grading.lessons import read_lessons
from course_utils.grading.submissions import find_submissions
from course_utils.lab import update
from course_utils.lab.carry import (
    answer_ids,
    carry,
    digests,
    find_answers,
    text,
)
from course_utils.lab.update import (
    BACKUPS,
    RECORD,
    remember,
    renew_lessons,
)

SKELETON = 'def {name}(x):\n    """{task}"""\n    ...'
ANSWER = 'def {name}(x):\n    """{task}"""\n    return x + {number}'


def cell(cell_id: str, source: str, kind: str = "code", tags: tuple[str, ...] = (), **more) -> dict:
    extra = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return {"id": cell_id, "cell_type": kind, "metadata": {"tags": list(tags)}, "source": source, **extra, **more}


def notebook(*cells: dict) -> dict:
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [copy.deepcopy(one) for one in cells]}


def skeleton(name: str, task: str = "Do it.") -> dict:
    return cell(f"answer-{name}", SKELETON.format(name=name, task=task), tags=("answer",))


def answered(name: str, number: int = 1, task: str = "Do it.") -> dict:
    return cell(f"answer-{name}", ANSWER.format(name=name, number=number, task=task), tags=("answer",))


def sources(made: dict) -> list[str]:
    return [text(one) for one in made["cells"]]


TITLE = cell("text-1", "# A lesson", "markdown")
SETUP = cell("setup-1", "import math", tags=("setup",))
EXAMPLE = cell("code-1", "print(math.pi)")
END = cell("text-2", "## Summary", "markdown")
OLD = notebook(TITLE, SETUP, skeleton("f"), EXAMPLE, skeleton("g"), END)


def carry_over(mine: dict, new: dict, old: dict | None = OLD):
    before = copy.deepcopy((mine, new))
    carried = carry(mine, new, digests(old) if old else None)
    assert (mine, new) == before, "what is given stays as it is"
    nbformat.validate(nbformat.from_dict(carried.notebook))
    return carried


# ------------------------------------------------------------------------------------------------------- what is kept


def test_an_answer_stands_in_its_cell_with_its_output_and_the_rest_is_new():
    mine = copy.deepcopy(OLD)
    mine["cells"][2] = answered("f") | {"outputs": [{"output_type": "stream", "name": "stdout", "text": "hello"}]}
    more = cell("text-3", "More.", "markdown")
    new = notebook(
        TITLE | {"source": "# The lesson", "id": "text-9"}, SETUP, skeleton("f"), more, EXAMPLE, skeleton("g")
    )
    carried = carry_over(mine, new)
    expected = copy.deepcopy(new)
    expected["cells"][2] = mine["cells"][2]
    assert carried.notebook == expected
    assert (carried.answers, carried.cells, carried.clashes) == (1, 0, 0)


def test_cells_of_ones_own_stay_behind_the_cell_they_followed():
    note, code, first = cell("n1", "my note", "markdown"), cell("n2", "1 + 1"), cell("n3", "first", "markdown")
    mine = notebook(first, TITLE, note, SETUP, skeleton("f"), EXAMPLE, code, skeleton("g"), END)
    new = notebook(TITLE, cell("code-9", "new()"), SETUP, EXAMPLE, skeleton("f"), skeleton("g"), END)
    carried = carry_over(mine, new)
    assert sources(carried.notebook) == sources(
        notebook(first, TITLE, note, cell("code-9", "new()"), SETUP, EXAMPLE, code, skeleton("f"), skeleton("g"), END)
    )
    assert carried.cells == 3


def test_a_note_on_a_cell_that_was_written_anew_follows_the_new_one():
    mine = notebook(TITLE, SETUP, EXAMPLE, cell("n1", "so that is pi", "markdown"), END)
    new = notebook(TITLE, SETUP, cell("code-9", "print(math.tau)"), cell("text-8", "Twice as much.", "markdown"), END)
    assert sources(carry_over(mine, new).notebook)[2:] == [
        "print(math.tau)",
        "so that is pi",
        "Twice as much.",
        "## Summary",
    ]


def test_an_edited_cell_stands_where_the_course_did_not_change_it():
    mine = copy.deepcopy(OLD)
    mine["cells"][3]["source"] = "print(math.e)"
    new = notebook(TITLE, SETUP, skeleton("f"), EXAMPLE, skeleton("g"), cell("text-9", "## In short", "markdown"))
    assert sources(carry_over(mine, new).notebook)[3] == "print(math.e)"


@pytest.mark.parametrize("kind", ["code", "markdown"])
def test_where_both_changed_a_cell_both_versions_are_there(kind):
    old = notebook(TITLE, cell("the-one", "a = 1", kind), END)
    mine = notebook(TITLE, cell("the-one", "a = 2", kind), END)
    carried = carry_over(mine, notebook(TITLE, cell("the-one", "a = 3", kind), END), old)
    assert sources(carried.notebook)[1] == "a = 3"
    assert sources(carried.notebook)[2].startswith("**The update changed the cell above")
    assert sources(carried.notebook)[3:] == ["a = 2", "## Summary"]
    assert carried.clashes == 1


def test_an_edited_cell_that_the_update_removed_is_there_with_a_note():
    mine = copy.deepcopy(OLD)
    mine["cells"][1]["source"] = "import math\nimport cmath"
    new = notebook(TITLE, cell("setup-9", "import numpy", tags=("setup",)), skeleton("f"), END)
    found = sources(carry_over(mine, new).notebook)
    assert found[1] == "import numpy"
    assert "removed, or wrote anew" in found[2]
    assert found[3] == "import math\nimport cmath"


def test_a_new_task_is_shown_above_an_answer_to_the_old_one():
    mine = notebook(TITLE, answered("f"), skeleton("g"))
    new = notebook(TITLE, skeleton("f", "Do it well."), skeleton("g", "Do it well."))
    carried = carry_over(mine, new, notebook(TITLE, skeleton("f"), skeleton("g")))
    _, note, answer, untouched = carried.notebook["cells"]
    assert note["cell_type"] == "markdown"
    assert "Do it well." in note["source"]
    assert (answer["id"], answer["source"]) == ("answer-f", answered("f")["source"])
    assert untouched["source"] == skeleton("g", "Do it well.")["source"]


def test_what_ones_own_code_uses_stays_though_the_update_removed_it():
    helper, other = cell("code-2", "def double(x):\n    return 2 * TWO * x"), cell("code-3", "unused = 1")
    two = cell("code-4", "TWO = 1")
    old = notebook(TITLE, two, helper, other, skeleton("f"))
    mine = notebook(TITLE, two, helper, other, answered("f"), cell("n1", "double(f(3))"))
    found = sources(carry_over(mine, notebook(TITLE, skeleton("f")), old).notebook)
    assert found == ["# A lesson", two["source"], helper["source"], answered("f")["source"], "double(f(3))"]


def test_outputs_of_what_is_unchanged_stay_and_their_widgets_with_them():
    def shown(model_id: str) -> list[dict]:
        view = {"version_major": 2, "version_minor": 0, "model_id": model_id}
        data = {"text/plain": "A panel.", "application/vnd.jupyter.widget-view+json": view}
        return [{"output_type": "display_data", "metadata": {}, "data": data}]

    def model(*children: str) -> dict:
        return {"model_name": "M", "model_module": "m", "state": {"children": [f"IPY_MODEL_{one}" for one in children]}}

    def saved(made: dict, **models: dict) -> dict:
        state = {"state": models, "version_major": 2, "version_minor": 0}
        return made | {"metadata": {"widgets": {"application/vnd.jupyter.widget-state+json": state}}}

    mine = saved(
        notebook(TITLE, EXAMPLE | {"outputs": shown("m1")}, cell("code-2", "old()", outputs=shown("m3"))),
        m1=model("m2"),
        m2=model(),
        m3=model(),
    )
    old = notebook(TITLE, EXAMPLE, cell("code-2", "old()"))
    new = saved(notebook(TITLE, EXAMPLE, cell("code-9", "new()", outputs=shown("w1"))), w1=model(), unseen=model())
    made = carry_over(mine, new, old).notebook
    kept = made["metadata"]["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    assert set(kept) == {"m1", "m2", "w1"}
    assert made["cells"][1]["outputs"] == shown("m1")


def test_without_a_record_the_ids_tell_what_the_learner_changed():
    """A cell without a name is called by its text, so an old one that was not edited shows as such."""

    def by_text(source: str, kind: str = "code") -> dict:
        name = {"code": "code", "markdown": "text"}[kind]
        return cell(f"{name}-{digests(notebook(cell('x', source)))['x'][:8]}", source, kind)

    mine = notebook(
        by_text("# Title", "markdown"), by_text("old()"), by_text("was()") | {"source": "mine()"}, answered("f")
    )
    new = notebook(by_text("# Title", "markdown"), by_text("new()"), skeleton("f"))
    found = sources(carry_over(mine, new, None).notebook)
    assert found[:2] == ["# Title", "new()"]
    assert "removed, or wrote anew" in found[2]
    assert found[3:] == ["mine()", answered("f")["source"]]


# ------------------------------------------------------------------------------------ what a learner's notebook may be


def edit_at_random(draw, old: dict) -> tuple[dict, list[str]]:
    """A learner's notebook made from the edition `old`, and the texts in it that are the learner's own."""
    mine = copy.deepcopy(old)
    own = []
    words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
    for one in mine["cells"]:
        if "answer" in one["metadata"]["tags"]:
            name = one["id"].removeprefix("answer-")
            if draw(st.booleans()):
                body = draw(st.sampled_from(["return x", "return (", "x = 1\n    return x", "print('é ü 漢')", "..."]))
                one["source"] = f"def {name}(x):\n    {body}  # {len(own)}"
                own.append(one["source"])
        elif draw(st.integers(0, 3)) == 0:
            one["source"] = f"# {draw(words)!r} {len(own)}"
            own.append(one["source"])
    for _ in range(draw(st.integers(0, 4))):
        source = draw(st.sampled_from(["def f(x):\n    return 2", "import os", "x = (", "", "%time 1", "# my note"]))
        source = f"{source}\n# {draw(words)!r} {len(own)}"
        own.append(source)
        one = cell(f"own-{len(own)}", source, draw(st.sampled_from(["code", "markdown"])))
        mine["cells"].insert(draw(st.integers(0, len(mine["cells"]))), one)
    change_ids(draw, mine)
    return mine, own


def change_ids(draw, mine: dict) -> None:
    """What editors and copies do: ids lost, tags lost, ids doubled, another order, sources as lists of lines."""
    if draw(st.booleans()):
        mine["cells"] = draw(st.permutations(mine["cells"]))
    how = draw(st.sampled_from(["as they are", "none", "some", "doubled"]))
    for one in mine["cells"]:
        if how == "none" or (how == "some" and draw(st.booleans())):
            one.pop("id", None)
        if how == "doubled" and draw(st.booleans()):
            one["id"] = draw(st.sampled_from(mine["cells"])).get("id")
        if draw(st.integers(0, 5)) == 0:
            one["metadata"] = {}
        if draw(st.booleans()):
            one["source"] = one["source"].splitlines(keepends=True)
    if how == "none":
        mine["nbformat_minor"] = 4


def change_edition(draw, old: dict) -> dict:
    """Another edition: cells reworded, removed, added, in another order."""
    cells = []
    for number, one in enumerate(copy.deepcopy(old["cells"])):
        what = draw(st.sampled_from(["same", "same", "reworded", "renamed", "removed"]))
        answer = "answer" in one["metadata"]["tags"]
        if what == "removed" and not answer:
            continue
        if what in ("reworded", "renamed"):
            one["source"] = one["source"].replace("Do it.", "Do it anew.") if answer else f"{one['source']}  # new"
        if what == "renamed" and not answer:
            one["id"] = f"renamed-{number}"
        cells.append(one)
    cells += [cell(f"added-{number}", f"# added {number}") for number in range(draw(st.integers(0, 3)))]
    return notebook(*draw(st.permutations(cells)))


# An example that fails says enough as it is: to find the smallest one takes minutes.
@settings(deadline=None, max_examples=100, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_whatever_the_learner_did_an_update_loses_nothing(data):
    mine, own = edit_at_random(data.draw, OLD)
    new = change_edition(data.draw, OLD)
    old = digests(OLD) if data.draw(st.booleans()) else None
    before = json.dumps([mine, new])
    made = carry(mine, new, old).notebook
    assert json.dumps([mine, new]) == before
    found = sources(made)
    for source in own:
        assert source in found, "every text of the learner's is there, to the letter"
    ids = answer_ids(new)
    assert find_answers(made, ids) == find_answers(mine, ids)
    for one in new["cells"] if old else []:  # without a record, a cell with a name counts as the learner's
        kept = next(other for other in made["cells"] if other["id"] == one["id"])
        theirs = [text(cell) for cell in mine["cells"] if cell.get("id") == one["id"]]
        assert text(kept) in (text(one), *own, *theirs), "a cell of the edition, or what the learner had in its place"
    names = [one["id"] for one in made["cells"]]
    assert len(names) == len(set(names))
    assert carry(made, new, old).notebook == made, "an update that was interrupted goes on to the same end"
    if old:
        assert carry(made, new, digests(new)).notebook == made, "a second update to the same edition changes nothing"


# ------------------------------------------------------------------------------------------------------------ the files


@pytest.fixture
def course(tmp_path):
    """A folder of lessons with one lesson in it, and a learner's copy."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "work").mkdir()
    lesson = tmp_path / "notebooks" / "01_one.ipynb"
    write(lesson, OLD)
    (tmp_path / "work" / "01_one.ipynb").write_bytes(lesson.read_bytes())
    remember({lesson.name: lesson}, tmp_path / "work")
    return lesson, tmp_path / "work" / "01_one.ipynb"


def write(path, made: dict) -> None:
    path.write_text(json.dumps(made, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def edition(number: int) -> dict:
    return notebook(cell(f"text-{number}0", f"# Edition {number}", "markdown"), skeleton("f"), skeleton("g"))


def names_in(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_nothing_is_said_or_written_while_the_edition_is_the_same(course):
    lesson, mine = course
    write(mine, notebook(TITLE, answered("f")))
    before = mine.read_bytes()
    assert renew_lessons([lesson], mine.parent) == []
    assert mine.read_bytes() == before
    assert names_in(mine.parent) == [RECORD, "01_one.ipynb"]


def test_an_untouched_copy_is_replaced_without_a_backup(course):
    lesson, mine = course
    write(lesson, edition(2))
    (found,) = renew_lessons([lesson], mine.parent)
    assert (found.sentence, found.renewed, found.backup) == ("01_one.ipynb: a new edition.", mine, None)
    assert mine.read_bytes() == lesson.read_bytes()
    assert names_in(mine.parent) == [RECORD, "01_one.ipynb"]
    assert renew_lessons([lesson], mine.parent) == []


def test_a_copy_with_answers_is_renewed_and_the_old_file_kept_byte_for_byte(course):
    lesson, mine = course
    write(mine, notebook(TITLE, answered("f"), cell("n1", "mine", "markdown")))
    progress = mine.with_name("progress.json")
    progress.write_text('{"predictions": {"p": "5"}}')
    before = mine.read_bytes()
    write(lesson, edition(2))
    (found,) = renew_lessons([lesson], mine.parent)
    assert re.fullmatch(
        r"01_one\.ipynb: a new edition, with your 1 answer and 1 cell of your own\. "
        r"The file as it was: backups/01_one\.\d{4}-\d\d-\d\d_\d{4}\.ipynb\.",
        found.sentence,
    )
    assert found.backup.read_bytes() == before
    assert "# Edition 2" in mine.read_text()
    assert answered("f")["source"] in sources(json.loads(mine.read_text()))
    assert progress.read_text() == '{"predictions": {"p": "5"}}'


def test_no_backup_is_ever_overwritten(course, monkeypatch):
    lesson, mine = course
    monkeypatch.setattr(update.time, "strftime", lambda _: "2030-01-02_0304")
    written = []
    for number in range(2, 6):
        write(mine, notebook(TITLE, answered("f", number)))
        written.append(mine.read_bytes())
        write(lesson, edition(number))
        renew_lessons([lesson], mine.parent)
    backups = mine.parent / BACKUPS
    assert names_in(backups) == [f"01_one.2030-01-02_0304{end}.ipynb" for end in ("-2", "-3", "-4", "")]
    assert sorted(path.read_bytes() for path in backups.iterdir()) == sorted(written)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (json.dumps(OLD).encode()[:-20], "not complete JSON"),
        (b"\xff\xfe", "not text in UTF-8"),
        (b"[1]", "not a notebook"),
        (b'{"nbformat": 4, "cells": 3}', "without a list of cells"),
    ],
)
def test_a_broken_notebook_is_left_alone_with_a_sentence(course, content, reason):
    lesson, mine = course
    mine.write_bytes(content)
    write(lesson, edition(2))
    for _ in range(2):  # and said again the next time
        (found,) = renew_lessons([lesson], mine.parent)
        assert re.match(rf"01_one\.ipynb: left as it is, because .*{reason}.*rename it", found.sentence)
        assert found.renewed is None
        assert mine.read_bytes() == content
    assert names_in(mine.parent) == [RECORD, "01_one.ipynb"]


def test_a_renamed_notebook_is_left_alone_with_a_sentence(course):
    lesson, mine = course
    renamed = mine.with_name("my_first.ipynb")
    renamed.write_text("whatever")
    write(lesson, edition(2))
    sentences = [found.sentence for found in renew_lessons([lesson], mine.parent)]
    assert sentences == [
        "01_one.ipynb: a new edition.",
        "my_first.ipynb: left as it is, because no lesson has this name.",
    ]
    assert renamed.read_text() == "whatever"


def test_a_folder_or_a_file_that_cannot_be_read_is_left_alone(course):
    lesson, mine = course
    mine.unlink()
    mine.mkdir()
    write(lesson, edition(2))
    (found,) = renew_lessons([lesson], mine.parent)
    assert "left as it is, because it cannot be read" in found.sentence


def test_a_broken_lesson_of_the_course_leaves_the_learners_alone(course):
    lesson, mine = course
    write(mine, notebook(TITLE, answered("f")))
    before = mine.read_bytes()
    lesson.write_text("<<<<<<< HEAD")
    (found,) = renew_lessons([lesson], mine.parent)
    assert "the course's own file is broken" in found.sentence
    assert mine.read_bytes() == before


@pytest.mark.parametrize("record", [None, "{", "[]", '{"01_one.ipynb": 3}', '{"01_one.ipynb": {"cells": 1}}'])
def test_a_lost_or_damaged_record_costs_nothing(course, record):
    lesson, mine = course
    write(mine, notebook(TITLE, answered("f"), cell("n1", "mine", "markdown"), skeleton("g")))
    (mine.parent / RECORD).unlink()
    if record is not None:
        (mine.parent / RECORD).write_text(record)
    write(lesson, edition(2))
    renew_lessons([lesson], mine.parent)
    found = sources(json.loads(mine.read_text()))
    assert "# Edition 2" in found
    assert answered("f")["source"] in found
    assert "mine" in found
    assert renew_lessons([lesson], mine.parent) == []


@pytest.mark.parametrize("step", range(8))
def test_interrupted_at_any_write_nothing_is_lost_and_the_next_run_goes_on(course, monkeypatch, step):
    """The power goes before the write or rename number `step`; each step of a renewal is tried."""
    lesson, mine = course
    write(mine, notebook(TITLE, answered("f"), cell("n1", "mine", "markdown"), EXAMPLE | {"source": "edited()"}))
    before = mine.read_bytes()
    write(lesson, edition(2))
    steps = iter(range(8))

    def interruptible(function):
        def run(*arguments):
            if next(steps, 9) == step:
                raise KeyboardInterrupt
            return function(*arguments)

        return run

    with monkeypatch.context() as patch:
        patch.setattr(update, "_write", interruptible(update._write))
        patch.setattr(update.os, "replace", interruptible(os.replace))
        try:
            renew_lessons([lesson], mine.parent)
            assert step >= 6, "a renewal writes three files, in two steps each"
        except KeyboardInterrupt:
            kept = [path.read_bytes() for path in mine.parent.glob(f"{BACKUPS}/*.ipynb")]
            assert before in (mine.read_bytes(), *kept)
            json.loads(mine.read_text())
    renew_lessons([lesson], mine.parent)
    made = json.loads(mine.read_text())
    assert made == carry(json.loads(before), edition(2), digests(OLD)).notebook
    assert before in [path.read_bytes() for path in mine.parent.glob(f"{BACKUPS}/*.ipynb")]
    assert not list(mine.parent.glob(".*.part"))
    assert renew_lessons([lesson], mine.parent) == []


def test_while_no_edition_is_new_nothing_heavy_is_imported(course):
    lesson, mine = course
    code = (
        "import pathlib, sys; from course_utils.lab.update import renew_lessons; "
        f"renew_lessons([pathlib.Path({str(lesson)!r})], pathlib.Path({str(mine.parent)!r})); "
        "print([name for name in ('torch', 'nbformat', 'jupytext', 'IPython') if name in sys.modules])"
    )
    write(mine, notebook(TITLE, answered("f")))
    for _ in ("no new edition", "a new edition"):
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
        write(lesson, edition(2))
    assert answered("f")["source"] in sources(json.loads(mine.read_text())), "the second run carried the answer"


# ---------------------------------------------------------------------------------------------------- the real lessons

LESSONS = lesson_source.sources()
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)


def read_edition(lesson) -> dict:
    return json.loads((lesson_source.FOLDER / f"{lesson.stem}.ipynb").read_text(encoding="utf-8"))


def earlier_edition(new: dict, rng: random.Random) -> dict:
    """What the edition before might have been: some cells other, some missing, some more."""
    cells = []
    for number, one in enumerate(copy.deepcopy(new["cells"])):
        tags = one["metadata"].get("tags", [])
        if not {"answer", "setup"} & set(tags):
            if rng.random() < 0.1:
                continue
            if rng.random() < 0.2:
                source = text(one) + ("\n# as it was" if one["cell_type"] == "code" else "\n\nAs it was.")
                one |= {"source": source, "id": f"was-{number}"}
        cells.append(one)
    cells.insert(len(cells) // 2, cell("was-there", "a_name_of_old = 1"))
    return {**new, "cells": cells}


def work_on(old: dict, answers: dict[str, str], how: str, rng: random.Random) -> dict:
    """The notebook of a learner who answered, added notes, edited an example, and lost what `how` says."""
    mine = copy.deepcopy(old)
    for one in mine["cells"]:
        if "answer" in one["metadata"].get("tags", []):
            one["source"] = answers[lesson_source.defined_name(text(one))].splitlines(keepends=True)
    for number in range(4):
        kind = ("code", "markdown")[number % 2]
        mine["cells"].insert(rng.randrange(len(mine["cells"])), cell(f"own-{number}", f"# own cell {number}", kind))
    if how == "ids lost":
        mine["nbformat_minor"] = 4
        for one in mine["cells"]:
            del one["id"]
    if how == "ids and tags lost":
        for one in mine["cells"]:
            one.pop("id")
            one["metadata"] = {}
    if how == "ids doubled":
        for one in mine["cells"]:
            one["id"] = rng.choice(mine["cells"])["id"]
    if how == "reordered":
        rng.shuffle(mine["cells"])
    return mine


@each_lesson
@pytest.mark.parametrize("how", ["as it came", "ids lost", "ids and tags lost", "ids doubled", "reordered"])
def test_a_real_lesson_keeps_its_answers_to_the_letter(lesson, how):
    rng = random.Random(f"{lesson.stem} {how}")
    new = read_edition(lesson)
    old = earlier_edition(new, rng)
    answers = {one.name: one.source for one in exercises_of(int(lesson.stem[:2]))}
    mine = work_on(old, answers, how, rng)
    made = carry(mine, new, digests(old)).notebook
    known = read_lessons()[lesson.stem]
    before, after = (
        {one.exercise.name: (one.source, one.outcome) for one in collect_answers(code_cells(each["cells"]), known)}
        for each in (mine, made)
    )
    assert after == before, "the grader takes the same answers out of both"
    assert len(before) == len(known.exercises)
    assert all(source for source, _ in before.values())
    found = sources(made)
    assert all(f"# own cell {number}" in found for number in range(4))
    assert [one["id"] for one in made["cells"] if one["id"] in {each["id"] for each in new["cells"]}] == [
        one["id"] for one in new["cells"]
    ], "every cell of the new edition is there, in its order"
    assert "a_name_of_old = 1" not in found or how.startswith("ids"), "the old edition's own cell is gone"


def test_the_grader_passes_over_backups_in_a_work_folder_that_was_handed_in(tmp_path):
    work = tmp_path / "anna"
    (work / BACKUPS).mkdir(parents=True)
    for path in (work / "01_tensor_hooks.ipynb", work / BACKUPS / "01_tensor_hooks.2026-01-02_0304.ipynb"):
        write(path, OLD)
    found = find_submissions(tmp_path, read_lessons())
    assert [(one.student, one.name, one.reason) for one in found] == [("anna", "01_tensor_hooks", "")]


@each_lesson
def test_the_ids_of_cells_without_a_name_tell_their_text(lesson):
    """What `carry` relies on where no record of the old edition is left."""
    for one in read_edition(lesson)["cells"]:
        if found := re.fullmatch(r"(?:code|explore|setup|text)-([0-9a-f]{8})", one["id"]):
            assert digests({"cells": [one]})[one["id"]].startswith(found.group(1))
