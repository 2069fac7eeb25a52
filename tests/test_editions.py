"""What an instructor makes of the lessons: notes that are true, slides and pages that load nothing, handouts."""

import html
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from PIL import Image

from course_utils.authoring import editions, page, slides
from course_utils.authoring.build import WIDGET
from course_utils.authoring.source import answer_cells, learner, number_of, read_source, sources, tags_of
from course_utils.exercises.engine import exercises_of, predictions_of
from course_utils.root import CourseError

LESSONS = sources()
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
needs_extra = pytest.mark.skipif(
    not (find_spec("latex2mathml") and find_spec("pyreveal")),
    reason="formulas and slides need latex2mathml and pyreveal: pip install -e '.[instructor]'",
)


@cache
def notes_of(lesson):
    return [cell.source for cell in read_source(lesson).cells if "instructor" in tags_of(cell)]


def plan_rows(lesson):
    """The rows of the plan, which is the first note: minutes, sections, how."""
    assert notes_of(lesson)[0].startswith("**Plan**")
    lines = re.findall(r"^\|(.*)\|", notes_of(lesson)[0], re.M)[2:]
    return [[part.strip() for part in line.split("|")] for line in lines]


@each_lesson
def test_the_plan_has_every_section_in_order_and_the_lessons_minutes(lesson):
    rows, cells = plan_rows(lesson), learner(lesson).cells
    top = cells[0].source
    assert sum(int(minutes) for minutes, *_ in rows) == int(re.search(r"\babout (\d+) minutes\b", top)[1])
    planned = [section for _, sections, *_ in rows for section in sections.split(" · ")]
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    headings = re.findall(r"^## (.+?) *$", text, re.M)
    assert [each for each in planned if each != "the exercises at the end of each part"] == headings[1:]
    if said := re.search(r"(\d+) for\s+the exercises", top):
        exercises = [row for row in rows if re.match(r"(the e|E)xercises|Your call against", row[1])]
        assert sum(int(minutes) for minutes, *_ in exercises) == int(said[1])


@each_lesson
def test_misconceptions_come_with_a_question_and_notes_every_twenty_minutes(lesson):
    text = "\n\n".join(notes_of(lesson))
    paragraphs = [part for part in text.split("\n\n") if part.startswith("**Misconception")]
    for paragraph in paragraphs:
        assert re.search(r'^\*\*Misconceptions, by exercise:\*\*|\*\*Ask\b[^*]*\*\*\s+"', paragraph)
    discussions = re.findall(r"\*\*(?:For discussion|Discussion|Question for the room)", text)
    assert (len(paragraphs), len(discussions)) >= ((6, 3) if number_of(lesson) else (2, 0))
    minutes = {section: int(row[0]) for row in plan_rows(lesson) for section in row[1].split(" · ")[:1]}
    waited = 0
    for cell in read_source(lesson).cells[1:]:
        if "instructor" in tags_of(cell) and not cell.source.startswith("**Plan**"):
            waited = 0
        for heading in re.findall(r"^## (.+?) *$", cell.source, re.M) if cell.cell_type == "markdown" else []:
            waited += 0 if heading.startswith("Exercises") else minutes.get(heading, 0)
            assert waited <= 20, heading


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
        assert f"**{exercise.name}** ({exercise.points} point{'' if exercise.points == 1 else 's'})\n" in appendix
        assert all(" ".join(mistake.message.split()) in appendix for mistake in exercise.mistakes)
    for prediction in predictions_of(number):
        for option, why in prediction.options.items():
            start = f"- Right: **{option}**." if option == prediction.answer else f"- Who says {option}:"
            assert f"{start} {' '.join(why.split())}" in appendix


@cache
def read_page(text):
    return BeautifulSoup(text, "html.parser")


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
    words = {"img": ["alt"], "svg": ["aria-label", "aria-hidden", "aria-labelledby"]}
    pictures = read_page(text).find_all(list(words))
    return [each.attrs for each in pictures if not any(each.get(name, "").strip() for name in words[each.name])]


@pytest.mark.parametrize(
    ("text", "loads"),
    [
        ('<script src="https://somewhere/require.js"></script>', ["https://somewhere/require.js"]),
        ('<link rel="stylesheet" href="//host/a.css">', ["//host/a.css"]),
        ('<img alt="a" srcset="a.png 2x" src="data:image/png;base64,AA">', ["a.png 2x"]),
        ('<svg><image href="a.png"/><use xlink:href="b.svg#c"/></svg>', ["a.png", "b.svg#c"]),
        ("<style>p { background: url('https://host/a.png') }</style>", ["https://host/a.png"]),
        ('<style>@import "https://a/f.css";</style><p style="background: url(a.png)">', ["https://a/f.css", "a.png"]),
        ('<a href="https://pytorch.org">to follow</a> <svg><use href="#arrow"/></svg> <pre>url(x)</pre>', []),
    ],
)
def test_what_a_page_would_load_is_found(text, loads):
    assert find_loads(text) == loads
    assert len(find_wordless(text)) == text.count("<svg>")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Write a lesson's page and slides, once; returns their paths."""
    folder = tmp_path_factory.mktemp("editions")

    @cache
    def make(stem):
        assert (editions.write_handout(stem, folder=folder), slides.write_slides(stem, folder)) == (0, 0)
        return folder / f"{stem}.html", folder / f"{stem}.slides.html"

    return make


@needs_extra
@pytest.mark.slow
@each_lesson
def test_page_and_slides_stand_alone_and_have_all_of_a_lesson(lesson, made, capsys):
    text, deck = (path.read_text(encoding="utf-8") for path in made(lesson.stem))
    said = capsys.readouterr().out
    assert f"{lesson.stem}.html: the lesson as a page, as it was built.\n" in said
    assert f"{lesson.stem}.slides.html: the slides; S opens the speaker view" in said
    for each in (text, deck):
        assert (find_loads(each), find_wordless(each)) == ([], [])
    assert "<script" not in text
    assert "In&nbsp;[" not in text
    for prediction in predictions_of(number_of(lesson)):
        assert html.unescape(text).count(page.show_prediction(prediction)) == 1

    built = editions.read_built(lesson)
    cells = slides.cut(page.flatten_outputs(slides.with_notes(lesson, built))).cells
    kinds = [cell.metadata["slideshow"]["slide_type"] for cell in cells]
    notes = "\n".join(cell.source for cell, kind in zip(cells, kinds, strict=True) if kind == "notes")
    words = "".join("".join(cell.source for cell in cells if cell.cell_type == "markdown").split())
    assert all("".join(cell.source.split()) in words for cell in learner(lesson).cells if cell.cell_type == "markdown")
    assert all(note in notes for note in notes_of(lesson))
    shown = [cell.source for cell in cells if cell.cell_type == "code"]
    for cell in built.cells:
        if any(WIDGET in each.get("metadata", {}) for each in cell.get("outputs", [])) and cell.id != "progress":
            assert cell.source in shown
    for exercise in exercises_of(number_of(lesson)):
        assert exercise.source.strip() in notes
        assert exercise.source.strip() not in shown
    assert len(read_page(deck).find_all("section")) == 2 * kinds.count("slide") + kinds.count("subslide")
    assert len(read_page(deck).find_all("aside")) == kinds.count("notes")


@needs_extra
def test_formulas_are_mathml_and_links_to_other_lessons_are_words():
    text = "# T\n\nThe *weight* $w_k$,\n\n$$\\underbrace{a}_{b}$$\n\nIn [lesson two](02_x.ipynb), [torch](https://a.b)."
    lesson = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
    made = page.export(lesson, "T", about="With <resnet34>.", section="Your network, your picture")
    assert "<msub><mi>w</mi><mi>k</mi></msub>" in made
    assert 'display="block"' in made
    assert '<mo stretchy="true">' in made
    assert "$" not in made.split("<body>")[1]
    assert "In lesson two," in made
    assert '<a href="https://a.b">torch</a>' in made
    assert 'With &lt;resnet34&gt;. What it shows: <a href="#Your-network,-your-picture">' in made


@pytest.mark.parametrize(
    ("data", "metadata", "flat"),
    [
        ({"text/plain": "3"}, {}, {"text/plain": "3"}),
        ({"text/html": "<b>3</b>", "text/plain": "3"}, {}, {"text/html": "<b>3</b>"}),
        (
            {"image/png": "AA\nBB", "text/plain": "x"},
            {"image/png": {"alt": 'a "cat"'}},
            {"text/html": '<figure><img alt="a &quot;cat&quot;" src="data:image/png;base64,AABB"></figure>'},
        ),
        (
            {"image/svg+xml": "<svg></svg>", "text/plain": "one\n<two>"},
            {WIDGET: True},
            {"text/html": "<figure><svg></svg><figcaption>one<br>&lt;two&gt;</figcaption></figure>"},
        ),
        ({"text/plain": "one"}, {WIDGET: True}, {"text/plain": "one"}),
    ],
)
def test_outputs_become_what_can_be_read_without_a_kernel(data, metadata, flat):
    output = nbformat.v4.new_output("display_data", data=data, metadata=metadata)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x", outputs=[output])])
    assert page.flatten_outputs(notebook).cells[0].outputs[0].data == flat


def text(source, *tags):
    return nbformat.v4.new_markdown_cell(source, metadata={"tags": list(tags)})


def code(source, *tags, prints=""):
    outputs = [nbformat.v4.new_output("stream", text=prints)] if prints else []
    return nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)}, outputs=outputs)


def cut(*cells):
    """(what it begins, its first words) for each cell of the slides."""
    found = slides.cut(page.flatten_outputs(nbformat.v4.new_notebook(cells=list(cells)))).cells
    return [(cell.metadata["slideshow"]["slide_type"], cell.source[:9].strip()) for cell in found]


def test_a_heading_begins_a_slide_and_so_do_text_after_code_and_code_after_an_output():
    fence = "Before.\n\n```python\n# no heading\n```\n"
    lesson = [
        text("# The `T`\n\nWords."),
        text("More."),
        text("Ask the room.", "instructor"),
        code("1"),
        code("2", prints="2"),
    ]
    lesson += [code("3"), text("So."), text(fence + "## U\n### V\n\nEnd")]
    on = ("subslide", "<p class=")
    assert cut(*lesson) == [
        ("slide", "# The `T`"),
        ("-", "More."),
        ("notes", "Ask the r"),
        ("-", "1"),
        ("-", "2"),
        on,
        ("-", "3"),
        on,
        ("-", "So."),
        ("-", "Before."),
        ("slide", "## U"),
        ("subslide", "### V\n\nEn"),
    ]


def test_a_question_ends_its_slide_and_its_answer_is_in_the_notes():
    prediction = predictions_of(1)[0]
    lesson = [text("## The `Part`"), code(f'predict("{prediction.name}")', "predict"), code("run()")]
    cells = slides.cut(page.flatten_outputs(nbformat.v4.new_notebook(cells=lesson))).cells
    kinds = [cell.metadata["slideshow"]["slide_type"] for cell in cells]
    assert kinds == ["slide", "-", "notes", "notes", "subslide", "-"]
    assert cells[1].metadata["transient"] == {"remove_source": True}
    asked = html.unescape(cells[1].outputs[0].data["text/html"])
    assert all(f"<li>{option}</li>" in asked for option in prediction.options)
    assert prediction.options[prediction.answer] not in asked
    assert f"Right: **{prediction.answer}**" in cells[3].source
    assert cells[4].source == '<p class="goes-on">The Part</p>'


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
    assert [words for _, words in cut(text("# T"), *left_out, *kept)] == ["# T", "import to", "def f():", "import a"]


def test_without_reveal_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CourseError, match=r"pyreveal.* is missing. Install it once with: .* -m pip install"):
        slides.write_slides()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"lesson": ""}, r"Say which lesson:  make handout LESSON=07"),
        ({"network": "resnet43"}, r"no network 'resnet43'; did you mean resnet34"),
        ({"image": "no-such-photo.jpg"}, r"IMAGE=no-such-photo.jpg: .*no-such-photo.jpg cannot be read: No such file"),
        ({"lesson": "05", "layer": "features.99"}, r"NETWORK=picture_net: .*features\.99"),
        ({"lesson": "01", "network": "alexnet"}, r"Lesson 01 looks into no picture: .* 05, 06, 07"),
    ],
)
def test_what_cannot_be_made_is_a_sentence_and_leaves_no_file(tmp_path, wish, sentence):
    with pytest.raises(CourseError, match=sentence) as caught:
        editions.write_handout(**{"lesson": "07", **wish}, folder=tmp_path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_notebook_that_is_out_of_date_is_not_made_into_a_page(tmp_path):
    (tmp_path / "91_new.py").write_text("# %% [markdown]\n# # New\n")
    with pytest.raises(CourseError, match=r"91_new.ipynb was not built yet.*make notebooks ARGS=91"):
        editions.read_built(tmp_path / "91_new.py", tmp_path)


@pytest.mark.slow
def test_the_instructors_edition_runs_and_passes_its_checks(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert editions.write_instructor("01", tmp_path / "new") == 0
    notebook = nbformat.read(tmp_path / "new" / "01_tensor_hooks.ipynb", as_version=4)
    checks = [cell for cell in notebook.cells if "check" in tags_of(cell)]
    assert len(checks) == len(exercises_of(1))
    assert all("passed" in cell.outputs[0].data["text/plain"] for cell in checks)
    place = Path("new") / "01_tensor_hooks.ipynb"
    assert capsys.readouterr().out.startswith(f"{place}: the lesson with answers and notes for the teacher (")


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
    assert 'own_image = "my photo.png"' in read_page(made).get_text()
    about = read_page(made).find(class_="about").get_text()
    assert re.match(r"picture_net_misled was trained on .* The picture is my photo\.png\. What it shows:", about)
    section = made.split('id="Your-network,-your-picture"')[1]
    assert "picture_net_misled was trained on the picture world where every fish has a buoy beside it." in section
    assert (find_loads(made), find_wordless(made)) == ([], [])


@pytest.mark.browser
@needs_extra
def test_in_a_browser_slides_ask_for_nothing_and_the_speaker_view_has_the_notes(made):
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright's Python package is not installed")
    chromium = next((path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if Path(path).exists()), None)
    if chromium is None:
        pytest.skip("there is no Chromium in /usr/bin")
    address, asked, errors, wide = made("01_tensor_hooks")[1].as_uri(), [], [], []
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
