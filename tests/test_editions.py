"""What an instructor makes of the lessons: notes that are true, slides and pages that load nothing, handouts."""

import html
import re
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from PIL import Image

from course_utils.authoring import editions, page, slides
from course_utils.authoring.build import WIDGET, WIDGET_VIEW
from course_utils.authoring.source import (
    FOLDER,
    answer_cells,
    choose,
    learner,
    number_of,
    read_source,
    sources,
    tags_of,
)
from course_utils.exercises.engine import exercises_of, predictions_of
from course_utils.root import CourseError

LESSONS = sources()
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
needs_extra = pytest.mark.skipif(
    not (find_spec("latex2mathml") and find_spec("pyreveal")),
    reason="formulas and slides need latex2mathml and pyreveal: pip install -e '.[instructor]'",
)


@cache
def built(lesson):
    return nbformat.read(FOLDER / f"{lesson.stem}.ipynb", as_version=4)


def notes_of(lesson):
    return [cell.source for cell in read_source(lesson).cells if "instructor" in tags_of(cell)]


# --------------------------------------------------------------------------------------------------- notes for teachers


def plan_rows(lesson):
    """The rows of the plan, which is the first note: minutes, sections, how."""
    plan = notes_of(lesson)[0]
    assert plan.startswith("**Plan**")
    return [[part.strip() for part in line.strip("|").split("|")] for line in plan.splitlines() if line[:1] == "|"][2:]


@each_lesson
def test_the_plan_has_every_section_in_order_and_the_lessons_minutes(lesson):
    rows, cells = plan_rows(lesson), learner(lesson).cells
    top = cells[0].source
    assert sum(int(minutes) for minutes, *_ in rows) == int(re.search(r"\babout (\d+) minutes\b", top)[1])
    planned = [section for _, sections, *_ in rows for section in sections.split(" · ")]
    planned = [section for section in planned if section != "the exercises at the end of each part"]
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    headings = re.findall(r"^## (.+?) *$", text, re.MULTILINE)
    assert planned == [heading for heading in headings if heading != "What you will be able to do"]
    if said := re.search(r"(\d+) for\s+the exercises", top):
        exercises = [row for row in rows if re.match(r"(the e|E)xercises|Your call against", row[1])]
        assert sum(int(minutes) for minutes, *_ in exercises) == int(said[1])


@each_lesson
def test_every_misconception_comes_with_the_question_that_shows_it(lesson):
    text = "\n\n".join(notes_of(lesson))
    paragraphs = [part for part in text.split("\n\n") if part.startswith("**Misconception")]
    for paragraph in paragraphs:
        assert paragraph.startswith("**Misconceptions, by exercise:**") or re.search(
            r'\*\*Ask\b[^*]*\*\*\s+"', paragraph
        )
    assert len(paragraphs) >= (6 if number_of(lesson) else 2)
    discussions = re.findall(r"\*\*(?:For discussion|Discussion|Question for the room)", text)
    assert len(discussions) >= (3 if number_of(lesson) else 0)


@each_lesson
def test_nobody_teaches_longer_than_twenty_minutes_without_a_note(lesson):
    minutes = {section: int(row[0]) for row in plan_rows(lesson) for section in row[1].split(" · ")[:1]}
    waited = 0
    for cell in read_source(lesson).cells[1:]:
        if "instructor" in tags_of(cell) and not cell.source.startswith("**Plan**"):
            waited = 0
        for heading in re.findall(r"^## (.+?) *$", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else []:
            waited += 0 if heading.startswith("Exercises") else minutes.get(heading, 0)
            assert waited <= 20, heading


@each_lesson
def test_the_instructors_edition_has_answers_notes_and_an_appendix(lesson):
    edition = editions.compose(lesson)
    nbformat.validate(edition)
    answers, number = answer_cells(edition, lesson.stem), number_of(lesson)
    texts = "\n".join(cell.source for cell in edition.cells)
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


# --------------------------------------------------------------------------------------------------------------- pages


class Reader(HTMLParser):
    """A page's tags, its pictures without words, and the addresses that a browser would load to show it."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.wordless, self.loads, self.in_style = [], [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append(tag)
        self.in_style = tag == "style"
        words = ["alt"] if tag == "img" else ["aria-label", "aria-hidden", "aria-labelledby"]
        if tag in ("img", "svg") and not any((values.get(each) or "").strip() for each in words):
            self.wordless.append(values)
        names = ["src", "srcset", "poster", "data", "background", "data-src"]
        names += ["href", "xlink:href"] if tag in ("link", "image", "use", "script") else []
        self.found([values[name] for name in names if values.get(name)])
        self.handle_style(values.get("style") or "")

    def handle_endtag(self, tag):
        self.in_style = self.in_style and tag != "style"

    def handle_data(self, data):
        if self.in_style:
            self.handle_style(data)

    def handle_style(self, text):
        self.found(re.findall(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""", text))

    def found(self, addresses):
        flat = ["".join(each) for each in addresses]
        self.loads += [each for each in flat if not each.strip().startswith(("data:", "#"))]


@pytest.mark.parametrize(
    ("text", "loads"),
    [
        ('<script src="https://somewhere/require.js"></script>', ["https://somewhere/require.js"]),
        ('<link rel="stylesheet" href="//host/a.css">', ["//host/a.css"]),
        ('<img alt="a" srcset="a.png 2x" src="data:image/png;base64,AA">', ["a.png 2x"]),
        ('<svg><image href="a.png"/><use xlink:href="b.svg#c"/></svg>', ["a.png", "b.svg#c"]),
        ("<style>p { background: url('https://host/a.png') }</style>", ["https://host/a.png"]),
        (
            '<style>@import "https://host/font.css";</style><p style="background: url(a.png)">',
            ["https://host/font.css", "a.png"],
        ),
        ('<a href="https://pytorch.org">to follow</a> <svg><use href="#arrow"/></svg> <pre>url(x)</pre>', []),
    ],
)
def test_what_a_page_would_load_is_found(text, loads):
    assert Reader(text).loads == loads


@needs_extra
@pytest.mark.slow
@each_lesson
def test_a_lessons_page_stands_alone_and_has_words_for_every_picture(lesson):
    text = editions.make_page(built(lesson))
    reader = Reader(text)
    assert (reader.loads, reader.wordless) == ([], [])
    assert "script" not in reader.tags
    assert "In&nbsp;[" not in text
    for prediction in predictions_of(number_of(lesson)):
        assert html.unescape(text).count(page.show_prediction(prediction)) == 1


@needs_extra
def test_formulas_are_mathml_and_links_to_other_lessons_are_words():
    text = "# T\n\nThe *weight* $w_k$,\n\n$$\\underbrace{a}_{b}$$\n\nIn [lesson two](02_x.ipynb), [torch](https://a.b)."
    made = editions.make_page(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)]), "With <resnet34>.")
    assert "<msub><mi>w</mi><mi>k</mi></msub>" in made
    assert 'display="block"' in made
    assert '<mo stretchy="true">' in made
    assert "$" not in made.split("<body>")[1]
    assert "In lesson two," in made
    assert '<a href="https://a.b">torch</a>' in made
    assert 'With &lt;resnet34&gt;. What it shows: <a href="#Your-network,-your-picture">' in made


def display(data, metadata=None):
    return nbformat.v4.new_output("display_data", data=data, metadata=metadata or {})


@pytest.mark.parametrize(
    ("given", "flat"),
    [
        (display({"text/plain": "3"}), {"text/plain": "3"}),
        (display({"text/html": "<b>3</b>", "text/plain": "3"}), {"text/html": "<b>3</b>"}),
        (
            display({"image/png": "AA\nBB", "text/plain": "x"}, {"image/png": {"alt": 'a "cat"'}}),
            {"text/html": '<figure><img alt="a &quot;cat&quot;" src="data:image/png;base64,AABB"></figure>'},
        ),
        (
            display({WIDGET_VIEW: {"model_id": "a"}, "image/svg+xml": "<svg></svg>", "text/plain": "one\n<two>"}),
            {"text/html": "<figure><svg></svg><figcaption>one<br>&lt;two&gt;</figcaption></figure>"},
        ),
        (
            display({"image/svg+xml": "<svg></svg>", "text/plain": "one"}, {WIDGET: True}),
            {"text/html": "<figure><svg></svg><figcaption>one</figcaption></figure>"},
        ),
        (display({WIDGET_VIEW: {"model_id": "a"}, "text/plain": "one"}), {"text/plain": "one"}),
    ],
)
def test_outputs_become_what_can_be_read_without_a_kernel(given, flat):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x", outputs=[given])])
    assert page.flatten_outputs(notebook).cells[0].outputs[0].data == flat


# -------------------------------------------------------------------------------------------------------------- slides


def text(source, *tags):
    return nbformat.v4.new_markdown_cell(source, metadata={"tags": list(tags)})


def code(source, *tags):
    return nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)})


def cut(*cells):
    return slides.cut(page.flatten_outputs(nbformat.v4.new_notebook(cells=list(cells))))


def shown(*cells):
    """Each slide: its level, its heading, the first words of its cells."""
    return [(slide.level, slide.heading, [cell.source[:9].strip() for cell in slide.cells]) for slide in cut(*cells)]


def test_a_heading_begins_a_slide_and_so_does_text_after_code():
    fence = "Before.\n\n```python\n# no heading\n```\n"
    assert shown(
        text("# The `T`\n\nWords."),
        text("More."),
        code("1"),
        code("2"),
        text("So."),
        text(fence + "## U\n### V\n\nEnd"),
    ) == [
        (1, "The T", ["# The `T`", "More.", "1", "2"]),
        (0, "The T", ["So.", "Before."]),
        (2, "U", ["## U"]),
        (3, "V", ["### V\n\nEn"]),
    ]


def test_a_question_ends_its_slide_and_its_answer_is_in_the_notes():
    prediction = predictions_of(1)[0]
    found = cut(text("## Part"), code(f'predict("{prediction.name}")', "predict"), code("run()"))
    assert [len(slide.cells) for slide in found] == [2, 1]
    assert [slide.level for slide in found] == [2, 0]
    question = found[0].cells[1]
    assert question.metadata["transient"] == {"remove_source": True}
    asked = html.unescape(question.outputs[0].data["text/html"])
    assert all(f"<li>{option}</li>" in asked for option in prediction.options)
    assert prediction.options[prediction.answer] not in asked
    assert f"Right: **{prediction.answer}**" in found[0].notes[1]
    cells = slides.to_notebook(found).cells
    assert [cell.metadata["slideshow"]["slide_type"] for cell in cells] == ["slide", "-", "notes", "subslide", "-"]
    assert cells[3].source == '<p class="goes-on">Part</p>'


def test_imports_checks_and_parameters_are_left_out_and_definitions_are_not():
    left_out = [
        code("import torch", "setup"),
        code("try:\n    import torch\nexcept ImportError:\n    raise", "setup"),
        code("import torch\n_ = torch.manual_seed(0)", "setup"),
        code("import torch"),
        code("seed = 3", "parameters"),
        code("check(f)", "check"),
    ]
    kept = [code("import torch\ntorch.ones(2)"), code("def f(): ...", "setup"), code("import a\ndef g(): ...", "setup")]
    assert shown(text("# T"), *left_out, *kept) == [(1, "T", ["# T", "import to", "def f():", "import a"])]


def test_notes_go_with_the_slide_before_and_are_no_slide_of_their_own():
    found = cut(text("# T"), text("Ask the room.", "instructor"), text("## U"))
    assert [slide.notes for slide in found] == [["Ask the room."], []]


@needs_extra
@pytest.mark.slow
@each_lesson
def test_slides_have_all_of_a_lesson_and_its_notes_and_load_nothing(lesson):
    whole = slides.with_notes(lesson, built(lesson))
    found = slides.cut(page.flatten_outputs(whole))
    cells = [cell for slide in found for cell in slide.cells]
    words = "".join("".join(cell.source for cell in cells if cell.cell_type == "markdown").split())
    notes = "\n".join(note for slide in found for note in slide.notes)
    assert all("".join(cell.source.split()) in words for cell in learner(lesson).cells if cell.cell_type == "markdown")
    assert all(note in notes for note in notes_of(lesson))
    pictures = [
        cell
        for cell in built(lesson).cells
        if any(WIDGET in each.get("metadata", {}) for each in cell.get("outputs", []))
    ]
    assert {cell.id for cell in pictures} - {cell.id for cell in cells} <= {"progress"}
    for exercise in exercises_of(number_of(lesson)):
        assert exercise.source.strip() in notes
        assert exercise.source.strip() not in [cell.source.strip() for cell in cells]
    made = slides.make_slides(whole, slides.read_reveal())
    reader = Reader(made)
    assert (reader.loads, reader.wordless) == ([], [])
    assert reader.tags.count("section") == len(found) + sum(slide.level in (1, 2) for slide in found)
    assert reader.tags.count("aside") == sum(bool(slide.notes) for slide in found)


def test_without_reveal_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CourseError, match=r"pyreveal.* is missing. Install it once with: .* -m pip install"):
        slides.write_slides()


@pytest.mark.slow
@needs_extra
def test_slides_are_written_and_named(tmp_path, capsys):
    assert slides.write_slides("01", tmp_path) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["01_tensor_hooks.slides.html"]
    assert "01_tensor_hooks.slides.html: the slides; S opens the speaker view" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------------ handouts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"lesson": ""}, r"Say which lesson:  make handout LESSON=07"),
        ({"lesson": "17"}, r"There is no lesson 17; there is 0"),
        ({"network": "resnet43"}, r"no network 'resnet43'; did you mean resnet34"),
        ({"image": "no-such-photo.jpg"}, r"IMAGE=no-such-photo.jpg: .*no-such-photo.jpg cannot be read: No such file"),
        ({"image": __file__}, r"test_editions\.py is damaged, or no picture"),
        ({"lesson": "05", "layer": "features.99"}, r"NETWORK=picture_net: .*features\.99"),
        ({"lesson": "05", "layer": "classifier"}, r"'classifier' .* returns \(1, 10\), no maps"),
        ({"lesson": "01", "network": "alexnet"}, r"Lesson 01 looks into no picture: .* 05, 06, 07"),
    ],
)
def test_what_cannot_be_made_is_a_sentence_and_leaves_no_file(tmp_path, wish, sentence):
    with pytest.raises(CourseError, match=sentence) as caught:
        editions.write_handout(**{"lesson": "07", **wish}, folder=tmp_path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@needs_extra
def test_a_handout_without_wishes_is_the_lesson_as_it_was_built(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert editions.write_handout("03", folder=tmp_path / "new") == 0
    assert (tmp_path / "new" / "03_module_hooks.html").read_text(encoding="utf-8") == editions.make_page(
        built(*choose(["03"]))
    )
    said = capsys.readouterr().out
    assert said == f"{Path('new') / '03_module_hooks.html'}: the lesson as a page, as it was built.\n"


def test_a_notebook_that_is_out_of_date_is_not_made_into_a_page(tmp_path):
    (tmp_path / "91_new.py").write_text("# %% [markdown]\n# # New\n")
    with pytest.raises(CourseError, match=r"91_new.ipynb was not built yet.*make notebooks ARGS=91"):
        editions.read_built(tmp_path / "91_new.py", tmp_path)


@pytest.mark.slow
def test_the_instructors_edition_runs_and_passes_its_checks(tmp_path, capsys):
    assert editions.write_instructor("01", tmp_path) == 0
    notebook = nbformat.read(tmp_path / "01_tensor_hooks.ipynb", as_version=4)
    checks = [cell for cell in notebook.cells if "check" in tags_of(cell)]
    assert len(checks) == len(exercises_of(1))
    assert all("passed" in cell.outputs[0].data["text/plain"] for cell in checks)
    assert "01_tensor_hooks.ipynb: the lesson with answers and notes for the teacher" in capsys.readouterr().out


@pytest.mark.slow
@needs_extra
@pytest.mark.parametrize("number", ["05", "06", "07"])
def test_a_handout_shows_the_chosen_network_and_picture(tmp_path, number):
    image = Image.new("RGB", (300, 200), "red")
    image.paste("blue", (150, 0, 300, 200))
    image.save(tmp_path / "my photo.png")
    editions.write_handout(number, "picture_net_misled", str(tmp_path / "my photo.png"), folder=tmp_path / "new")
    (path,) = (tmp_path / "new").iterdir()
    assert re.fullmatch(rf"{number}_\w+-picture_net_misled-my_photo.html", path.name)
    made = path.read_text(encoding="utf-8")
    assert str(tmp_path) not in made
    assert 'own_image = "my photo.png"' in html.unescape(re.sub(r"<[^>]+>", "", made))
    assert "picture_net_misled was trained on" in made.split('class="about"')[1].split("</p>")[0]
    section = made.split('id="Your-network,-your-picture"')[1]
    assert "picture_net_misled was trained on the picture world where every fish has a buoy beside it." in section
    assert (Reader(made).loads, Reader(made).wordless) == ([], [])


# --------------------------------------------------------------------------------------------------------- in a browser


@pytest.mark.browser
@needs_extra
def test_in_a_browser_slides_ask_for_nothing_and_the_speaker_view_has_the_notes(tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright's Python package is not installed")
    chromium = next((path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if Path(path).exists()), None)
    if chromium is None:
        pytest.skip("there is no Chromium in /usr/bin")
    slides.write_slides("01", tmp_path)
    address, asked, errors, wide = (tmp_path / "01_tensor_hooks.slides.html").as_uri(), [], [], []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(viewport={"width": 1280, "height": 720}, offline=True)
        context.on("request", lambda request: asked.append(request.url))
        shown = context.new_page()
        shown.on("pageerror", lambda error: errors.append(str(error)))
        shown.goto(address)
        shown.wait_for_function("window.Reveal && Reveal.isReady()")
        for number in range(shown.evaluate("Reveal.getTotalSlides()")):
            too_wide = "(slide => slide.scrollWidth > slide.clientWidth)(Reveal.getCurrentSlide())"
            wide += [number] if shown.evaluate(too_wide) else []
            shown.evaluate("Reveal.next()")
        shown.evaluate("Reveal.slide(1)")  # the plan stands with what the lesson is for
        with context.expect_page() as opened:
            shown.keyboard.press("s")
        notes = opened.value.locator(".speaker-controls-notes .value")
        notes.filter(has_text="Where did my gradient go?").wait_for(timeout=60_000)
        assert "chalk" in notes.inner_text()
        browser.close()
    assert (errors, wide) == ([], [])
    assert [url for url in asked if not url.startswith(("data:", address, "about:"))] == []
