"""What an instructor makes of the lessons: notes that are true, slides and pages that load nothing, handouts."""

import html
import os
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from PIL import Image

from course_utils.authoring import commands, editions, handouts, instructor, slides
from course_utils.authoring import page as pages
from course_utils.authoring import source as lesson_source
from course_utils.authoring.build import WIDGET, WIDGET_VIEW
from course_utils.authoring.source import called_with, tags_of
from course_utils.exercises.engine import exercises_of, find_prediction, predictions_of
from course_utils.root import CourseError

LESSONS = lesson_source.sources()
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
needs_formulas = pytest.mark.skipif(
    not find_spec("latex2mathml"),
    reason="formulas need latex2mathml: pip install -e '.[instructor]'",
)
needs_reveal = pytest.mark.skipif(
    not find_spec("pyreveal"),
    reason="slides need reveal.js, which pyreveal carries: pip install -e '.[instructor]'",
)


def source_of(number: str) -> Path:
    return next(path for path in LESSONS if path.stem.startswith(number))


@cache
def built(lesson: Path):
    return nbformat.read(lesson_source.FOLDER / f"{lesson.stem}.ipynb", as_version=4)


def notes_of(lesson: Path) -> list[str]:
    return [cell.source for cell in lesson_source.read_source(lesson).cells if "instructor" in tags_of(cell)]


def headings_of(lesson: Path) -> list[str]:
    text = "\n".join(cell.source for cell in lesson_source.learner(lesson).cells if cell.cell_type == "markdown")
    return re.findall(r"^## (.+?) *$", text, re.MULTILINE)


# --------------------------------------------------------------------------------------------------- notes for teachers


def plan_rows(lesson: Path) -> list[list[str]]:
    """The rows of the plan, which is the first note: minutes, sections, how."""
    plan = notes_of(lesson)[0]
    assert plan.startswith("**Plan**")
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in plan.splitlines() if line.startswith("|")]
    return rows[2:]


def minutes_of(lesson: Path) -> int:
    """How many minutes the lesson says that it takes."""
    return int(re.search(r"\babout (\d+) minutes\b", lesson_source.learner(lesson).cells[0].source).group(1))


@each_lesson
def test_the_plans_minutes_add_up_to_those_of_the_lesson(lesson):
    assert sum(int(minutes) for minutes, *_ in plan_rows(lesson)) == minutes_of(lesson)


@each_lesson
def test_the_plan_has_every_section_in_order(lesson):
    planned = [section for _, sections, *_ in plan_rows(lesson) for section in sections.split(" · ")]
    planned = [section for section in planned if section != "the exercises at the end of each part"]
    assert planned == [heading for heading in headings_of(lesson) if heading != "What you will be able to do"]


@each_lesson
def test_the_plan_gives_the_exercises_the_time_that_the_lesson_says(lesson):
    top = lesson_source.learner(lesson).cells[0].source
    said = re.search(r"(\d+) for\s+the exercises", top)
    if said:
        rows = [row for row in plan_rows(lesson) if re.match(r"(the e|E)xercises|Your call against", row[1])]
        assert sum(int(minutes) for minutes, *_ in rows) == int(said.group(1))


@each_lesson
def test_every_misconception_comes_with_the_question_that_shows_it(lesson):
    text = "\n\n".join(notes_of(lesson))
    paragraphs = [part for part in text.split("\n\n") if part.startswith("**Misconception")]
    for paragraph in paragraphs:
        if not paragraph.startswith("**Misconceptions, by exercise:**"):
            assert re.search(r'\*\*Ask\b[^*]*\*\*\s+"', paragraph), paragraph
    assert len(paragraphs) >= (2 if editions.number_of(lesson) == 0 else 6)
    if editions.number_of(lesson):
        assert len(re.findall(r"\*\*(?:For discussion|Discussion|Question for the room)", text)) >= 3


@each_lesson
def test_nobody_teaches_longer_than_twenty_minutes_without_a_note(lesson):
    minutes = {section: int(row[0]) for row in plan_rows(lesson) for section in row[1].split(" · ")[:1]}
    waited = 0
    for cell in lesson_source.read_source(lesson).cells[1:]:
        if "instructor" in tags_of(cell) and not cell.source.startswith("**Plan**"):
            waited = 0
        for heading in re.findall(r"^## (.+?) *$", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else []:
            waited += 0 if heading.startswith("Exercises") else minutes.get(heading, 0)
            assert waited <= 20, heading


@each_lesson
def test_the_appendix_has_what_the_lesson_declares(lesson):
    number = editions.number_of(lesson)
    text = editions.write_appendix(number).replace(r"\$", "$")
    for exercise in exercises_of(number):
        for mistake in exercise.mistakes:
            assert " ".join(mistake.message.split()) in text
    for prediction in predictions_of(number):
        assert f"- Right: **{prediction.answer}**." in text
        for option, why in prediction.options.items():
            assert " ".join(why.split()) in text
            assert option == prediction.answer or f"- Who says {option}: " in text


@each_lesson
def test_the_instructors_edition_has_answers_notes_and_an_appendix(lesson):
    edition, learner = instructor.compose(lesson), lesson_source.learner(lesson)
    answers = lesson_source.answer_cells(edition, lesson.stem)
    for exercise in exercises_of(editions.number_of(lesson)):
        assert answers[exercise.name].source == exercise.source.rstrip("\n")
    texts = "\n".join(cell.source for cell in edition.cells)
    assert all(note in texts for note in notes_of(lesson))
    assert edition.cells[-1].source == editions.write_appendix(editions.number_of(lesson))
    assert len(edition.cells) == len(learner.cells) + len(notes_of(lesson)) + 1
    nbformat.validate(edition)


# --------------------------------------------------------------------------------------------------- what a page loads


@pytest.mark.parametrize(
    ("page", "loads"),
    [
        ('<script src="https://somewhere/require.js"></script>', ["https://somewhere/require.js"]),
        ('<script src="reveal.js"></script>', ["reveal.js"]),
        ('<link rel="stylesheet" href="//host/a.css">', ["//host/a.css"]),
        ('<img alt="a" src="http://host/a.png">', ["http://host/a.png"]),
        ('<img alt="a" srcset="a.png 2x" src="data:image/png;base64,AA">', ["a.png 2x"]),
        ('<svg><image href="a.png"/><use xlink:href="b.svg#c"/></svg>', ["a.png", "b.svg#c"]),
        ("<style>p { background: url('https://host/a.png') }</style>", ["https://host/a.png"]),
        ('<style>@import "https://host/font.css";</style>', ["https://host/font.css"]),
        ('<p style="background: url(a.png)">', ["a.png"]),
        ('<a href="https://pytorch.org">to follow</a> <a href="#top">up</a>', []),
        ('<svg><use href="#arrow"/></svg><img src="data:image/png;base64,AA" alt="a">', []),
        ("<pre>&lt;script src='https://host/a.js'&gt; url(x)</pre>", []),
    ],
)
def test_what_a_page_would_load_is_found(page, loads):
    assert pages.find_requests(page) == loads


def test_a_page_that_would_load_something_is_not_made():
    cell = nbformat.v4.new_markdown_cell("# Title\n\n![a cat](https://host/cat.png)")
    with pytest.raises(ValueError, match=r"would load https://host/cat\.png: everything has to be in it"):
        pages.export(nbformat.v4.new_notebook(cells=[cell]), "Title")


class Reader(HTMLParser):
    """The tags of a page, and the pictures among them that have no words."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.wordless = set(), []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        values = dict(attrs)
        if tag == "img" and not (values.get("alt") or "").strip():
            self.wordless.append(values.get("src", "")[:60])
        if tag == "svg" and not (
            values.get("aria-label") or values.get("aria-hidden") or values.get("aria-labelledby")
        ):
            self.wordless.append("svg")


@needs_formulas
@each_lesson
def test_a_lessons_page_stands_alone_and_has_words_for_every_picture(lesson):
    page = handouts.make_page(built(lesson))
    assert pages.find_requests(page) == []
    assert "In&nbsp;[" not in page
    reader = Reader(page)
    assert reader.wordless == []
    assert "script" not in reader.tags
    page = html.unescape(page)
    for cell in built(lesson).cells:
        if "predict" in tags_of(cell):
            question = find_prediction(called_with(cell.source, "predict")).question
            assert page.count(pages.show_prediction(find_prediction(called_with(cell.source, "predict")))) == 1, (
                question
            )


@needs_formulas
def test_formulas_are_mathml_and_links_to_other_lessons_are_words():
    text = (
        "# T\n\nThe weight $w_k$, and\n\n$$\\underbrace{a}_{b}$$\n\nIn [lesson two](02_x.ipynb), [torch](https://a.b)."
    )
    page = pages.export(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)]), "T")
    assert "<msub><mi>w</mi><mi>k</mi></msub>" in page
    assert 'display="block"' in page
    assert "$" not in page.split("<body>")[1]
    assert "In lesson two," in page
    assert '<a href="https://a.b">torch</a>' in page


def output(data, metadata=None):
    return nbformat.v4.new_output("display_data", data=data, metadata=metadata or {})


@pytest.mark.parametrize(
    ("given", "flat"),
    [
        (output({"text/plain": "3"}), {"text/plain": "3"}),
        (output({"text/html": "<b>3</b>", "text/plain": "3"}), {"text/html": "<b>3</b>"}),
        (
            output({"image/png": "AA\nBB", "text/plain": "x"}, {"image/png": {"alt": 'a "cat"'}}),
            {"text/html": '<figure><img alt="a &quot;cat&quot;" src="data:image/png;base64,AABB"></figure>'},
        ),
        (
            output({WIDGET_VIEW: {"model_id": "a"}, "image/svg+xml": "<svg></svg>", "text/plain": "one\n<two>"}),
            {"text/html": "<figure><svg></svg><figcaption>one<br>&lt;two&gt;</figcaption></figure>"},
        ),
        (
            output({"image/svg+xml": "<svg></svg>", "text/plain": "one"}, {WIDGET: True}),
            {"text/html": "<figure><svg></svg><figcaption>one</figcaption></figure>"},
        ),
        (output({WIDGET_VIEW: {"model_id": "a"}, "text/plain": "one"}), {"text/plain": "one"}),
    ],
)
def test_outputs_become_what_can_be_read_without_a_kernel(given, flat):
    cell = nbformat.v4.new_code_cell("x", outputs=[given])
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"widgets": {"state": {}}})
    result = pages.flatten_outputs(notebook)
    assert result.cells[0].outputs[0].data == flat
    assert "widgets" not in result.metadata
    assert "widgets" in notebook.metadata


# -------------------------------------------------------------------------------------------------------------- slides


def notebook_of(*cells):
    return nbformat.v4.new_notebook(cells=list(cells))


def text(source, *tags):
    cell = nbformat.v4.new_markdown_cell(source)
    return cell if not tags else nbformat.v4.new_markdown_cell(source, metadata={"tags": list(tags)})


def code(source, *tags, outputs=()):
    return nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)}, outputs=list(outputs))


def stream(words):
    return nbformat.v4.new_output("stream", name="stdout", text=words)


def laid_out(*cells):
    """Each slide as the first words of what is on it."""
    found = slides.lay_out(slides.cut(notebook_of(*cells)))
    return [[piece.cell.source[:12] for piece in slide.pieces if piece.height or piece.heading] for slide in found]


def test_headings_begin_slides():
    found = laid_out(text("# Title\n\nWords.\n\n## Part\n\nMore.\n### Below\n\nLess."))
    assert found == [["# Title", "Words."], ["## Part", "More."], ["### Below", "Less."]]


def test_what_does_not_fit_goes_on_under_the_same_heading():
    long = "word " * 100
    found = slides.lay_out(slides.cut(notebook_of(text("## Part\n\n" + "\n\n".join([long] * 6)))))
    assert [slide.heading for slide in found] == ["Part", "Part", "Part"]
    assert [slide.level for slide in found] == [2, 0, 0]
    assert all(slide.height <= slides.ROOM for slide in found)
    page = slides.to_notebook(found)
    assert '<p class="goes-on">Part</p>' in [cell.source for cell in page.cells]


def test_an_announcement_stays_with_what_it_announces():
    filler = "word " * 260
    assert laid_out(text(f"## Part\n\n{filler}\n\nLook:"), code("\n".join("abcdefghi"))) == [
        ["## Part", filler[:12]],
        ["Look:", "a\nb\nc\nd\ne\nf\n"],
    ]


def test_a_question_ends_its_slide_and_its_answer_is_in_the_notes():
    name = predictions_of(1)[0].name
    found = slides.lay_out(slides.cut(notebook_of(text("## Part"), code(f'predict("{name}")', "predict"), text("So."))))
    assert [len(slide.pieces) for slide in found] == [2, 1]
    question = found[0].pieces[1].cell
    assert question.metadata["transient"] == {"remove_source": True}
    answer = find_prediction(name).answer
    assert f"Right: **{answer}**" in "\n".join(found[0].notes)
    shown = html.unescape(question.outputs[0].data["text/html"])
    assert all(f"<li>{option}</li>" in shown for option in find_prediction(name).options)
    assert find_prediction(name).options[answer] not in shown


def test_a_code_fence_is_not_cut():
    assert slides._split_blocks("One.\n\n```text\na\n\n# b\n```\n\nTwo.") == ["One.", "```text\na\n\n# b\n```", "Two."]


def test_imports_checks_and_parameters_are_left_out_and_definitions_are_not():
    cells = [
        code("import torch", "setup"),
        code("import torch\n_ = torch.manual_seed(0)", "setup"),
        code("try:\n    import torch\nexcept ImportError:\n    raise", "setup"),
        code("seed = 3", "parameters"),
        code("check(f)", "check"),
        code("import torch\ntorch.ones(2)"),
        code("def f(): ...", "setup"),
    ]
    assert laid_out(text("# T"), *cells) == [["# T", "import torch", "def f(): ..."]]


def test_notes_are_no_slide_of_their_own():
    found = slides.lay_out(slides.cut(notebook_of(text("# T"), text("Ask the room.", "instructor"), text("## U"))))
    assert [slide.notes for slide in found] == [["Ask the room."], []]


def test_pieces_are_measured_by_what_they_show():
    wide, high = (output({"text/html": f'<svg viewBox="0 0 300 {h}"></svg>'}) for h in (50, 900))
    assert slides._output_height(wide) < slides._output_height(high) <= slides.PICTURE_HEIGHT + 20
    assert slides._output_height(stream("a\nb")) > slides._output_height(stream("a"))
    assert slides._text_height("| a | b |\n|---|---|\n| " + "word " * 60 + "| c |") > slides._text_height("| a | b |")


@each_lesson
def test_slides_have_all_of_a_lesson_and_its_notes(lesson):
    whole = pages.flatten_outputs(editions.with_notes(lesson, built(lesson)))
    found = slides.lay_out(slides.cut(whole))
    shown = [piece.cell for slide in found for piece in slide.pieces]
    words = "".join(cell.source for cell in shown if cell.cell_type == "markdown")
    for cell in whole.cells:
        if cell.cell_type == "markdown" and "instructor" not in tags_of(cell):
            assert "".join(cell.source.split()) in "".join(words.split())
    assert (
        sum(len(cell.get("outputs", [])) for cell in shown)
        >= sum(
            len(cell.outputs) for cell in whole.cells if cell.cell_type == "code" and not {"check"} & set(tags_of(cell))
        )
        - 1
    )  # the start's own check is among those left out
    notes = "\n".join(note for slide in found for note in slide.notes)
    assert all(note in notes for note in notes_of(lesson))
    for exercise in exercises_of(editions.number_of(lesson)):
        assert exercise.source.strip() in notes
        assert exercise.source.strip() not in [cell.source.strip() for cell in shown]
    too_tall = [slide.heading for slide in found if slide.height > slides.ROOM and len(slide.pieces) > 2]
    assert too_tall == []


@needs_reveal
@needs_formulas
def test_slides_are_one_page_that_loads_nothing():
    lesson = source_of("07")
    page = slides.make_slides(editions.with_notes(lesson, built(lesson)), slides.read_reveal())
    assert pages.find_requests(page) == []
    reader = Reader(page)
    assert reader.wordless == []
    assert {"section", "aside", "math"} <= reader.tags
    found = slides.lay_out(slides.cut(pages.flatten_outputs(editions.with_notes(lesson, built(lesson)))))
    columns = sum(slide.level in (1, 2) for slide in found)
    assert page.count("<section") == len(found) + columns
    assert page.count('<aside class="notes">') == sum(bool(slide.notes) for slide in found)
    assert "Reveal.initialize" in page


def test_without_reveal_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CourseError, match=r"pyreveal.* is missing. Install it once with: .* -m pip install"):
        slides.read_reveal()


# ------------------------------------------------------------------------------------------------------------ commands


@pytest.fixture
def build_folders(tmp_path, monkeypatch):
    for module in (instructor, slides, handouts):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["slides", "77"], r"There is no lesson 77; there is 00_start_here"),
        (["instructor", "07_cam_and_gradcam"], r"no lesson 07_cam_and_gradcam; there is 07_cam_and_grad_cam"),
        (["handout"], r"Say which lesson:  make handout LESSON=07"),
        (["handout", "--lesson", "17"], r"There is no lesson 17"),
        (["handout", "--lesson", "07", "--network", "resnet43"], r"no network 'resnet43'; did you mean resnet34"),
        (
            ["handout", "--lesson", "07", "--image", "no-such-photo.jpg"],
            r"no-such-photo.jpg cannot be read: No such file",
        ),
        (["handout", "--lesson", "05", "--layer", "features.99"], r"NETWORK=picture_net: .*features\.99"),
        (["handout", "--lesson", "05", "--layer", "classifier"], r"'classifier' .* returns \(1, 10\), no maps"),
        (["handout", "--lesson", "01", "--network", "alexnet"], r"Lesson 01 looks into no picture: .* 05, 06, 07"),
    ],
)
def test_what_cannot_be_made_is_a_sentence_and_leaves_no_file(build_folders, arguments, sentence):
    with pytest.raises(CourseError, match=sentence) as caught:
        commands.main(arguments)
    assert "\n" not in str(caught.value)
    assert list(build_folders.iterdir()) == []


def test_a_file_that_is_no_picture_is_refused(build_folders, tmp_path_factory):
    text_file = tmp_path_factory.mktemp("own") / "photo.jpg"
    text_file.write_text("not a picture")
    with pytest.raises(CourseError, match=r"photo\.jpg is damaged, or no picture"):
        commands.main(["handout", "--lesson", "07", "--image", str(text_file)])
    assert list(build_folders.iterdir()) == []


@needs_formulas
def test_a_handout_without_wishes_is_the_lesson_as_it_was_built(build_folders, capsys):
    assert commands.main(["handout", "--lesson", "03"]) == 0
    (path,) = build_folders.iterdir()
    assert path.name == "03_module_hooks.html"
    assert "the lesson as a page, as it was built." in capsys.readouterr().out
    assert pages.find_requests(path.read_text(encoding="utf-8")) == []


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        pages.write_page("<p>", tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_notebook_that_is_out_of_date_is_not_made_into_slides(tmp_path):
    (tmp_path / "source").mkdir()
    path = tmp_path / "source" / "91_new.py"
    path.write_text("# %% [markdown]\n# # New\n")
    with pytest.raises(CourseError, match=r"91_new.ipynb was not built yet.*make notebooks ARGS=91"):
        editions.read_built(path, tmp_path)


def test_importing_the_package_loads_nothing_heavy():
    program = (
        "import sys, course_utils.authoring.commands; print({'nbconvert', 'torch', 'nbformat'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ------------------------------------------------------------------------------------------------- with a kernel, slow


@pytest.mark.slow
def test_the_instructors_edition_runs_and_passes_its_checks(build_folders, capsys):
    assert commands.main(["instructor", "01"]) == 0
    (path,) = build_folders.iterdir()
    assert path.name == "01_tensor_hooks.ipynb"
    notebook = nbformat.read(path, as_version=4)
    checks = [cell for cell in notebook.cells if "check" in tags_of(cell)]
    assert len(checks) == len(exercises_of(1))
    for cell in checks:
        assert "passed" in cell.outputs[0].data["text/plain"], cell.source
    assert "answers and notes for the teacher" in capsys.readouterr().out


@pytest.fixture
def photo(tmp_path_factory):
    """Half red, half blue, 300 x 200."""
    path = tmp_path_factory.mktemp("photos") / "my photo.png"
    image = Image.new("RGB", (300, 200), "red")
    image.paste("blue", (150, 0, 300, 200))
    image.save(path)
    return path


@pytest.mark.slow
@needs_formulas
@pytest.mark.parametrize("number", ["05", "06", "07"])
def test_a_handout_shows_the_chosen_network_and_picture(build_folders, photo, number):
    network = "picture_net_misled"
    assert commands.main(["handout", "--lesson", number, "--network", network, "--image", str(photo)]) == 0
    (path,) = build_folders.iterdir()
    assert path.name.startswith(f"{number}_")
    assert path.name.endswith(f"-{network}-my_photo.html")
    page = path.read_text(encoding="utf-8")
    assert str(photo.parent) not in page
    code = html.unescape(re.sub(r"<[^>]+>", "", page))
    assert 'own_image = "my photo.png"' in code
    section = page.split('id="Your-network,-your-picture"')[1]
    assert "picture_net_misled was trained on the picture world where every fish has a buoy beside it." in section
    assert pages.find_requests(page) == []
    assert Reader(page).wordless == []


@pytest.mark.slow
@needs_formulas
@pytest.mark.pretrained
def test_a_handout_with_a_real_network_and_a_real_photo(build_folders, monkeypatch):
    beside = Path(__file__).parents[2] / "shared" / "real_network"
    folder = Path(os.environ.get("COURSE_REAL_NETWORK", beside))
    if not (folder / "hub" / "checkpoints" / "squeezenet1_1-b8a52dc0.pth").is_file():
        pytest.skip("no SqueezeNet 1.1 weights: COURSE_REAL_NETWORK names a folder that has hub/checkpoints and photos")
    monkeypatch.setenv("TORCH_HOME", str(folder))
    image = folder / "photos" / "cat_dog.png"
    assert commands.main(["handout", "--lesson", "07", "--network", "squeezenet1_1", "--image", str(image)]) == 0
    (path,) = build_folders.iterdir()
    section = path.read_text(encoding="utf-8").split('id="Your-network,-your-picture"')[1]
    assert "squeezenet1_1 has weights trained on ImageNet (IMAGENET1K_V1)." in section
    assert re.search(r"why Great Dane\? \(4\d%\)", section)


# --------------------------------------------------------------------------------------------------------- in a browser

CHROMIUM = next((path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if Path(path).exists()), None)


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright's Python package is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium in /usr/bin")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.mark.browser
@pytest.mark.slow
@needs_reveal
@needs_formulas
@each_lesson
def test_in_a_browser_slides_ask_for_nothing_and_fit(browser, lesson, tmp_path):
    page_file = tmp_path / "slides.html"
    page_file.write_text(slides.make_slides(editions.with_notes(lesson, built(lesson)), slides.read_reveal()))
    context = browser.new_context(viewport={"width": 1280, "height": 720}, offline=True)
    requests, errors = [], []
    context.on("request", lambda request: requests.append(request.url))
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(page_file.as_uri())
    page.wait_for_function("window.Reveal && Reveal.isReady()")
    total, wide, tall = page.evaluate("Reveal.getTotalSlides()"), [], []
    for number in range(total):
        size = page.evaluate(
            "(() => { const s = Reveal.getCurrentSlide();"
            " return [s.scrollWidth - s.clientWidth, s.scrollHeight - s.clientHeight]; })()"
        )
        wide += [number] if size[0] > 0 else []
        tall += [number] if size[1] > 0 else []
        page.evaluate("Reveal.next()")
    assert errors == []
    assert wide == []
    assert len(tall) <= max(1, total // 20), f"slides that have to be scrolled: {tall} of {total}"
    assert [url for url in requests if not url.startswith(("data:", page_file.as_uri()))] == []
    context.close()


@pytest.mark.browser
@pytest.mark.slow
@needs_reveal
@needs_formulas
def test_in_a_browser_the_speaker_view_has_the_notes(browser, tmp_path):
    lesson = source_of("01")
    page_file = tmp_path / "slides.html"
    page_file.write_text(slides.make_slides(editions.with_notes(lesson, built(lesson)), slides.read_reveal()))
    context = browser.new_context(offline=True)
    requests = []
    context.on("request", lambda request: requests.append(request.url))
    page = context.new_page()
    page.goto(page_file.as_uri())
    page.wait_for_function("window.Reveal && Reveal.isReady()")
    page.evaluate("Reveal.slide(1)")  # the plan stands with what the lesson is for
    with context.expect_page() as opened:
        page.keyboard.press("s")
    notes = opened.value.locator(".speaker-controls-notes .value")
    notes.filter(has_text="Where did my gradient go?").wait_for(timeout=60_000)
    assert "chalk" in notes.inner_text()
    assert [url for url in requests if not url.startswith(("data:", page_file.as_uri(), "about:"))] == []
    context.close()
