"""What is made of the lessons: notes that are true, slides and pages that load nothing, handouts, the web site."""

import html
import re
import sys
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import nbformat
import pytest
from bs4 import BeautifulSoup
from PIL import Image

from course_utils.authoring import editions, pace, page, site, slides
from course_utils.authoring.build import WIDGET
from course_utils.authoring.source import answer_cells, learner, number_of, read_source, read_whole, sources, tags_of
from course_utils.exercises import classroom
from course_utils.exercises.engine import exercises_of, find, predictions_of
from course_utils.root import CourseError

LESSONS = sources()
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
read_page = cache(partial(BeautifulSoup, features="html.parser"))
LACKING = "formulas and slides need latex2mathml and pyreveal: pip install -e '.[instructor]'"
needs_extra = pytest.mark.skipif(not (find_spec("latex2mathml") and find_spec("pyreveal")), reason=LACKING)
ALT = {"image/png": {"alt": 'a "cat"'}}
CAT = '<figure><img alt="a &quot;cat&quot;" src="data:image/png;base64,AB"></figure>'
DRAWN = "<figure><svg></svg><figcaption>one<br>&lt;two&gt;</figcaption></figure>"


@cache
def notes_of(lesson):
    return [cell.source for cell in read_source(lesson).cells if "instructor" in tags_of(cell)]


def headings_of(*cells):
    return re.findall(r"^## (.+?) *$", "\n".join(cell.source for cell in cells if cell.cell_type == "markdown"), re.M)


def parts_of(lesson):
    return pace.parts(read_whole(lesson).cells, lesson.stem[:2])


@each_lesson
def test_the_teacher_has_notes_for_every_25_minutes_of_talk(lesson):
    section, noted = "", set()  # where there are notes
    for cell in read_source(lesson).cells:
        section = [section, *(title.removeprefix("More: ") for title in headings_of(cell))][-1]
        if "instructor" in tags_of(cell):
            noted.add(section)
    waited = 0.0
    for part in parts_of(lesson):
        waited = 0.0 if part.section in noted else waited + part.reading
        assert waited <= 25, part.section


@each_lesson
def test_the_plan_of_90_minutes_is_the_core_and_pauses_and_says_what_stays_for_home(lesson):
    plan = notes_of(lesson)[0]
    assert plan.startswith("**Plan for 90 minutes**")
    rows = re.findall(r"^\| (\d+) to (\d+) \| (.+?) \| (.+?) \| (.+?) \|$", plan, re.M)
    starts, ends = ([int(row[column]) for row in rows] for column in (0, 1))
    assert starts == [0, *ends[:-1]]
    assert [0, *ends] == sorted({0, *ends})
    core = pace.total(parts_of(lesson), pace.CORE)
    most = {0: 20, 1: 70}.get(number_of(lesson), 90)  # lessons 00 and 01 share the first session
    assert core <= ends[-1] <= most, f"the plan ends at {ends[-1]}; the core takes {core} minutes"
    planned = [each for row in rows for each in row[2].split(" · ") if each != "Pause"]
    wanted = [title for title in headings_of(*learner(lesson).cells)[1:] if not title.startswith("More: ")]
    assert planned == wanted
    assert "**Homework:**" in plan


@each_lesson
def test_misconceptions_come_with_the_question_that_shows_them(lesson):
    text = "\n\n".join(notes_of(lesson))
    paragraphs = [part for part in text.split("\n\n") if part.startswith("**Misconception")]
    asked = r'^\*\*Misconceptions, by exercise:\*\*|\*\*Ask\b[^*]*\*\*\s+"'
    assert all(re.search(asked, paragraph) for paragraph in paragraphs)
    assert len(paragraphs) >= (2 if number_of(lesson) == 0 else 6)
    discussions = re.findall(r"\*\*(?:For discussion|Discussion|Question for the room)", text)
    assert number_of(lesson) == 0 or len(discussions) >= 3


@each_lesson
def test_the_instructors_edition_has_answers_notes_and_an_appendix(lesson):
    edition, number = editions.compose(lesson), number_of(lesson)
    nbformat.validate(edition)
    answers, texts = answer_cells(edition, lesson.stem), "\n".join(cell.source for cell in edition.cells)
    assert all(note in texts for note in notes_of(lesson))
    assert len(edition.cells) == len(learner(lesson).cells) + len(notes_of(lesson)) + 1
    appendix = edition.cells[-1].source.replace(r"\$", "$")
    for exercise in exercises_of(number):
        assert answers[exercise.name].source == exercise.source.rstrip("\n")
        assert f"**{exercise.name}** ({exercise.points} point" in appendix
        assert all(" ".join(mistake.message.split()) in appendix for mistake in exercise.mistakes)
    for prediction in predictions_of(number):
        for option, why in prediction.options.items():
            start = f"- Right: **{option}**." if option == prediction.answer else f"- Who says {option}:"
            assert f"{start} {' '.join(why.split())}" in appendix


def find_loads(text):
    """The addresses that a browser would load to show a page."""
    found = []
    for tag in read_page(text).find_all(True):
        names = ["src", "srcset", "poster", "data", "background", "data-src"]
        names += ["href", "xlink:href"] if tag.name in ("link", "image", "use", "script") else []
        style = f"{tag.get('style')} {tag.string if tag.name == 'style' else ''}"
        found += [tag[name] for name in names if tag.get(name)]
        found += ["".join(each) for each in re.findall(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""", style)]
    return [each for each in found if not each.strip().startswith(("data:", "#"))]


def find_wordless(text):
    """The pictures in a page without words."""
    words = ("alt", "aria-label", "aria-hidden", "aria-labelledby")
    pictures = read_page(text).find_all(["img", "svg"])
    return [each.attrs for each in pictures if not any(each.get(name, "").strip() for name in words)]


def test_what_a_page_would_load_is_found():
    text = '<script src="//a/r.js"></script><link href="b.css"><img srcset="c 2x" src="data:,"><svg><use href="d"/>'
    text += "</svg><style>p { background: url('e') } @import \"f\";</style><p style='background: url(g)'>"
    text += '<a href="https://pytorch.org">to follow</a><svg aria-label="h"><use href="#h"/></svg><pre>url(x)</pre>'
    assert find_loads(text) == ["//a/r.js", "b.css", "c 2x", "d", "e", "f", "g"]
    assert len(find_wordless(text)) == 2


@needs_extra
@each_lesson
def test_slides_have_all_of_a_lesson(lesson):
    built = editions.read_built(lesson)
    cells, kinds = cut(*slides.with_notes(lesson, built).cells)
    notes = "\n".join(cell.source for cell, kind in zip(cells, kinds, strict=True) if kind == "notes")
    words = "".join("".join(cell.source for cell in cells if cell.cell_type == "markdown").split())
    given = [cell for cell in learner(lesson).cells if cell.cell_type == "markdown"]
    texts = "\n\n".join(cell.source for cell in given if "reference" not in tags_of(cell)).split("\n\n")
    lost = [text for text in texts if "".join(text.replace(*slides.NEXT).split()) not in words]
    assert [text for text in lost if not re.search(r"Shift\+Enter|\bfolded\b|\*\*Minutes|can wait", text)] == []
    assert all(note in notes for note in notes_of(lesson))
    shown = [cell.source for cell in cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    explorers = [cell for cell in page.flatten_outputs(built).cells if "explore" in tags_of(cell)]
    assert all(output in outputs for cell in explorers for output in cell.outputs)
    answers = [exercise.source.strip() for exercise in exercises_of(number_of(lesson))]
    assert all(each in notes and each not in shown for each in answers)


@needs_extra
@pytest.mark.slow
def test_page_and_slides_stand_alone(tmp_path):
    """The page of every lesson stands in the web site as well, whose tests look at each."""
    lesson = LESSONS[7]
    assert editions.write_handout(lesson.stem, folder=tmp_path) == 0
    assert slides.write_slides(lesson.stem, everything=True, folder=tmp_path) == 0
    text, deck = ((tmp_path / f"{lesson.stem}{end}.html").read_text(encoding="utf-8") for end in ("", ".slides"))
    assert [find(each) for each in (text, deck) for find in (find_loads, find_wordless)] == [[]] * 4
    assert not re.search(r"<script|In&nbsp;\[", text)
    folded = read_page(text).select(".celltag_setup .jp-Cell-inputWrapper")
    assert folded
    assert all(each.find_parent("details") for each in folded)
    for prediction in predictions_of(7):
        assert html.unescape(text).count(page.show_prediction(prediction)) == 1
    _, kinds = cut(*slides.with_notes(lesson, editions.read_built(lesson)).cells)
    assert len(read_page(deck).find_all("section")) == 2 * kinds.count("slide") + kinds.count("subslide")
    assert len(read_page(deck).find_all("aside")) == kinds.count("notes")


@needs_extra
def test_formulas_are_mathml_and_links_to_other_lessons_are_words():
    text = "# T\n\nThe *weight* $w_k$,\n\n$$\\underbrace{a}_{b}$$\n\nIn [lesson two](02_x.ipynb), [torch](https://a.b)."
    lesson = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
    made = page.export(lesson, about="With <resnet34>.")
    parts = ["<msub><mi>w</mi><mi>k</mi></msub>", 'display="block"', '<mo stretchy="true">', "<title>T</title>"]
    parts += ["In lesson two,", '<a href="https://a.b">torch</a>']
    parts += ["With &lt;resnet34&gt;."]
    assert [part for part in parts if part not in made] == []
    assert "$" not in made.split("<body>")[1]


@needs_extra
def test_an_explanation_stays_below_its_fold_with_its_formulas_and_is_open_on_slides():
    made = classroom.why(predictions_of(0)[0].name)
    output = nbformat.v4.new_output("execute_result", data={"text/html": made._repr_html_(), "text/plain": str(made)})
    lesson = [cell("# T"), cell("f(3)"), cell('why("gradient_of_square")', "why")]
    lesson[2].outputs = [output]
    flat = page.flatten_outputs(nbformat.v4.new_notebook(cells=lesson)).cells[2]
    assert flat.metadata["transient"] == {"remove_source": True}
    shown = flat.outputs[0].data["text/html"]
    assert re.match(r"<details><summary>[^<]+</summary>.*It is 6\..*<msup><mi>x</mi><mn>2</mn></msup>", shown, re.S)
    assert "$" not in shown
    cells, kinds = cut(*lesson)
    assert kinds == ["slide", "-", "-"]
    assert cells[2].outputs[0].data["text/html"].startswith("<details open><summary>")


@pytest.mark.parametrize(
    ("data", "metadata", "mime", "flat"),
    [
        ({"text/html": "<b>3</b>", "text/plain": "3"}, {}, "text/html", "<b>3</b>"),
        ({"image/png": "A\nB"}, ALT, "text/html", CAT),
        ({"image/svg+xml": "<svg></svg>", "text/plain": "one\n<two>"}, {WIDGET: True}, "text/html", DRAWN),
        ({"text/plain": "one"}, {WIDGET: True}, "text/plain", "one"),
    ],
)
def test_outputs_become_what_can_be_read_without_a_kernel(data, metadata, mime, flat):
    output = nbformat.v4.new_output("display_data", data=data, metadata=metadata)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x", outputs=[output])])
    assert page.flatten_outputs(notebook).cells[0].outputs[0].data == {mime: flat}


def cell(source, *tags, prints=""):
    if source.startswith(("#", "T")):
        return nbformat.v4.new_markdown_cell(source, metadata={"tags": list(tags)})
    outputs = [nbformat.v4.new_output("stream", text=prints)] if prints else []
    return nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)}, outputs=outputs)


def cut(*cells):
    """The cells of the slides, and what each begins."""
    found = slides.cut(page.flatten_outputs(nbformat.v4.new_notebook(cells=list(cells)))).cells
    return found, [each.metadata["slideshow"]["slide_type"] for each in found]


def test_a_slide_is_what_leads_to_a_cell_the_cell_and_what_was_found():
    def show(*parts):
        cells, kinds = cut(*parts)
        kinds = [
            "found" if each.metadata.get("tags") == ["found"] else kind for each, kind in zip(cells, kinds, strict=True)
        ]
        return [f"{each.source[:6].strip()} {kind}" for each, kind in zip(cells, kinds, strict=True)]

    note = cell("To the teacher.", "instructor")
    assert show(cell("# The `T`\n\nW."), cell("Then."), note, cell("1")) == [
        "# The slide",
        "Then. -",
        "To the notes",
        "1 -",
    ]
    ran = cell("## T"), cell("2", prints="2")
    assert show(*ran, cell("3"))[2:] == ["<p cla subslide", "3 -"]
    assert show(*ran, cell("Two:\n\n- a\n\nThe next."), cell("3"))[2:] == [
        "Two: found",
        "<p cla subslide",
        "The ne -",
        "3 -",
    ]
    assert show(*ran, cell("The next."), note, cell("3"))[2:] == ["<p cla subslide", "The ne -", "To the notes", "3 -"]
    assert show(*ran, cell("Two.\n\nThree."), cell("## U\n### V\n\nEnd"))[2:] == ["Two. found", "## U slide", "### V -"]


def test_the_deck_has_the_plan_and_ends_with_what_to_do_at_home(tmp_path):
    text = """\
    # %% [markdown]
    # # Title
    #
    # ## Now

    # %% [markdown] tags=["instructor"]
    # **Plan for 90 minutes**
    #
    # | Minutes | Sections | In the room | At home |
    # |---|---|---|---|
    # | 0 to 90 | Now | two votes, and exercises {one} and {three} | the table |
    #
    # **Homework:** Exercise {two}.
    #
    # For you.

    # %% [markdown]
    # Words.
    #
    # ### Exercise · One

    # %% tags=["answer"]
    def one(): ...

    # %% [markdown]
    # Between.
    #
    # ### Exercise · Two

    # %% tags=["answer"]
    def two(): ...

    # %% tags=["check"]
    check(two)

    # %% [markdown]
    # Behind.
    #
    # ### Exercise · Three

    # %% tags=["answer"]
    def three(): ...

    # %% [markdown] tags=["more"]
    # ## More: Later

    # %%
    later()

    # %% [markdown]
    # ## Summary
    """
    (tmp_path / "source").mkdir()
    path = tmp_path / "source" / "90_example.py"
    path.write_text(dedent(text), encoding="utf-8")
    deck = slides.follow_plan(path, read_source(path))
    said = [cell.source for cell in deck.cells if "instructor" not in tags_of(cell)]
    assert said[1:3] == ["Words.\n\n### Exercise 1 · One", "def one(): ..."]
    assert said[3].strip() == "Between."
    assert said[4:-2] == ["Behind.\n\n### Exercise 3 · Three", "def three(): ..."]
    assert said[-2:] == ["## Summary", "## At home\n\nExercise 2.\n\n- *Now:* the table"]


def test_a_class_is_told_no_keys_and_a_heading_without_words_stays_with_the_next():
    keys = "T 1.\n\nPress\n**Shift+Enter** in 00. Commit before you run the next cell. (It is folded.)"
    cells, kinds = cut(*map(cell, ["# T", "## U", keys, "### V\n\nW", "## X", "1", "### Y"]))
    assert cells[2].source == "T 1.\n\nCommit before the next slide."
    assert kinds == ["slide", "-", "-", "subslide", "slide", "-", "subslide"]


def test_a_question_ends_its_slide_and_its_answer_is_in_the_notes():
    prediction = predictions_of(1)[0]
    cells, kinds = cut(cell("## The `Part`"), cell(f'predict("{prediction.name}")', "predict"), cell("run()"))
    assert kinds == ["slide", "-", "notes", "notes", "subslide", "-"]
    assert cells[1].metadata["transient"] == {"remove_source": True}
    asked = html.unescape(cells[1].outputs[0].data["text/html"])
    assert re.findall("<li>(.*?)</li>", asked) == list(prediction.options)
    assert f"Right: **{prediction.answer}**" in cells[3].source
    assert cells[4].source == '<p class="goes-on">The Part</p>'


def test_of_folded_code_a_class_sees_what_it_shows_and_the_notes_have_what_it_defines():
    left_out = [cell("import torch"), cell("seed = 3", "parameters"), cell("check(f)", "check")]
    left_out += [cell("import torch\n_ = torch.ones(2)", "setup"), cell("def g(): ...", "setup")]
    shown = [
        cell("draw(g, alt='A g.')", "setup", prints="a picture"),
        cell("GradientFlow()", "explore", prints="cards"),
    ]
    cells, kinds = cut(cell("# A"), *left_out, *shown)
    assert kinds == ["slide", "notes", "-", "subslide", "-"]
    assert "def g(): ..." in cells[1].source
    assert [each.metadata["transient"] for each in (cells[2], cells[4])] == [{"remove_source": True}] * 2


def test_without_reveal_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CourseError, match=r"pyreveal.* is missing.* -m pip install"):
        slides.write_slides()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"network": "resnet43"}, "Networks: there is no 'resnet43'; did you mean 'resnet34'"),
        ({"image": "no-such-photo.jpg"}, "no-such-photo.jpg cannot be read: No such file"),
    ],
)
def test_what_cannot_be_made_is_a_sentence_and_leaves_no_file(tmp_path, wish, sentence):
    with pytest.raises(CourseError, match=sentence) as caught:
        editions.write_handout("07", **wish, folder=tmp_path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_instructors_edition_is_run_and_written_where_it_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def ran(notebook, lesson):  # `test_notebooks` runs all answers
        return nbformat.v4.new_notebook(cells=notebook.cells, metadata={"ran": lesson})

    monkeypatch.setattr(editions.build, "run", ran)
    assert editions.write_instructor("01", tmp_path / "new") == 0
    place = Path("new") / "01_tensor_hooks.ipynb"
    assert nbformat.read(place, as_version=4) == ran(editions.compose(LESSONS[1]), "01_tensor_hooks")
    assert str(place) in capsys.readouterr().out


@pytest.mark.slow
@needs_extra
def test_a_handout_shows_the_chosen_network_and_picture(tmp_path):
    image = Image.new("RGB", (300, 200), "red")
    image.paste("blue", (150, 0, 300, 200))
    image.save(tmp_path / "my photo.png")
    asked = "tiger cat rather than tabby"
    editions.write_handout("07", image=str(tmp_path / "my photo.png"), chosen=asked, folder=tmp_path / "new")
    name = "07_cam_and_grad_cam-my_photo-tiger_cat_rather_than_tabby.html"
    made = (tmp_path / "new" / name).read_text(encoding="utf-8")
    assert str(tmp_path) not in made
    about = read_page(made).find(class_="about").get_text()
    headings = [each.get_text().strip("¶") for each in read_page(made).find_all(["h1", "h2"])]
    assert headings[0] == "Your network, your picture"
    assert "More: Your network, your picture" not in headings
    section = made.split("<h1")[1]
    assert (section.count("data:image/jpeg"), headings[2]) == (3, "What you will be able to do")
    assert "my photo.png" in about
    assert all("efficientnet_lite0 has weights trained on ImageNet." in text for text in (about, section))
    assert f"why {asked}?" in section
    assert (find_loads(made), find_wordless(made)) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("number", ["05", "06"])
def test_a_section_about_ones_own_picture_runs(number, tmp_path):
    picture = tmp_path / "my.png"
    Image.new("RGB", (300, 200), "red").save(picture)
    (path,) = [each for each in LESSONS if each.stem.startswith(number)]
    ran = editions.build.run(editions._own_section(path), path.stem, {"own_image": picture.name}, [picture])
    assert any("image/jpeg" in output.get("data", {}) or "image/png" in output.get("data", {})
               for each in ran.cells for output in each.get("outputs", ()))  # fmt: skip


def test_outputs_are_folded_up_to_the_explanation_and_a_check_makes_room_for_an_answer():
    cells = [cell("1", prints="6"), cell('predict("gradient_of_square")', "predict"), cell("1", prints="6")]
    cells += [cell("check(largest)", "check", prints="6"), cell('why("gradient_of_square")', "why")]
    cells += [cell("1", prints="6"), cell("1", "setup", prints="6")]
    for answers, instead in ((False, "remove-cell"), (True, "hide-input")):
        folded = site.fold(nbformat.v4.new_notebook(cells=cells), answers=answers).cells
        wanted = [[], ["remove-input"], ["hide-output"], [instead], ["remove-input"], [], ["hide-input"]]
        assert [each.metadata.tags for each in folded] == wanted
        assert (folded[3].source, folded[3].outputs) == (find("largest").source.strip(), [])


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("sphinx"), reason="the site needs Sphinx: pip install -e '.[site]'")
def test_a_link_to_nowhere_and_a_missing_sphinx_are_said_and_the_old_site_stays(monkeypatch, tmp_path):
    (tmp_path / "old.html").touch()
    files = {"index.md": "# Title\n\n[here](nowhere.md)", "_static/site.css": ""}
    monkeypatch.setattr(site, "make_files", lambda *_: files)
    with pytest.raises(CourseError, match=r"index\.md:3: WARNING: .*nowhere"):
        site.write_site(folder=tmp_path)
    monkeypatch.setitem(sys.modules, "sphinx.application", None)
    with pytest.raises(CourseError, match=r"sphinx.* is missing.* -e '\.\[site\]'"):
        site.write_site(folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["old.html"]
