"""The web site, as it is built and in a browser: whole, offline, no link leads nowhere, answers are below folds."""

import copy
import socket
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup
from faults import find_faults

from course_utils.authoring import page, site
from course_utils.authoring.source import learner, number_of, sources
from course_utils.exercises.engine import predictions_of
from course_utils.hooks.firing_matrix import read_programs
from tests.browser.lab_page import SCRIPTS
from tests.sealing import find_told
from tests.test_editions import find_loads, find_wordless, read_page

pytestmark = pytest.mark.slow
for package in ("furo", "latex2mathml", "myst_nb", "sphinx"):
    pytest.importorskip(package, reason=f"the site needs {package}: pip install -e '.[site]'")

OPEN_FOLDS = "() => { for (const each of document.querySelectorAll('details')) each.open = true; }"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Every file of HTML in the site as text; it was made where no connection can be opened."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "old.html").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", None)
        patch.setattr(site, "repository", lambda: "https://github.com/us/hooks")
        assert site.write_site(folder=folder) == 0
    found = {path.resolve(): path.read_text(encoding="utf-8") for path in folder.rglob("*.html")}
    names = {path.stem for path in found if path.parent.name != "proofs"}
    others = {"causes", "cite", "index", "glossary", "hooks", "inventory", "matrix", "search", "print", "questions"}
    assert names == {path.stem for path in sources()} | others
    assert len(found) == len(names) + len(read_programs().hooks), "a page of programs for each hook"
    return found


def test_all_it_loads_is_in_it_every_link_leads_somewhere_and_every_picture_has_words(pages):
    broken = []
    anchors = {path: {each["id"] for each in read_page(text).find_all(id=True)} for path, text in pages.items()}
    for path, text in pages.items():
        links = {each["href"] for each in read_page(text).find_all("a", href=True)}
        for link in {*find_loads(text), *(each for each in links if not each.startswith("https://"))}:
            split = urlsplit(link)
            there = path.parent.joinpath(unquote(split.path)).resolve() if split.path else path
            here = not (split.scheme or split.netloc) and there.is_file()
            if not here or (split.fragment and unquote(split.fragment) not in anchors[there]):
                broken.append(f"{path.name}: {link}")
        broken += [f"{path.name}: {each}" for each in find_wordless(str(read_page(text).find("article")))]
    assert broken == []


@pytest.mark.parametrize("lesson", sources(), ids=lambda path: path.stem)
def test_a_page_has_the_whole_lesson_and_no_answer_outside_a_fold(pages, lesson):
    (page_text,) = [text for path, text in pages.items() if path.stem == lesson.stem]
    article = copy.copy(read_page(page_text).find("article"))
    text = " ".join(article.get_text().split())
    cells = [cell for cell in learner(lesson).cells if cell.cell_type == "markdown"]
    headings = [line.lstrip("# ") for cell in cells for line in cell.source.splitlines() if line.startswith("## ")]
    assert [each for each in headings if each.replace("`", "") not in text] == []
    assert not article.find(["input", "button", "script"])
    assert "$" not in text
    folded = "".join(fold.extract().get_text() for fold in article.select("details:not(details details)"))
    left = article.get_text()
    for each in predictions_of(number_of(lesson)):
        asked = BeautifulSoup(page.show_prediction(each), "html.parser").get_text()
        assert (left.count(asked), find_told(left, each)) == (1, [])
        assert f"It is {each.answer}.".replace("`", "") in folded
    assert ("With other settings" in folded) == (number_of(lesson) < 9)


def test_each_page_says_where_to_run_it_to_edit_it_and_how_to_cite_it(pages):
    for path, text in pages.items():
        if path.stem not in ("search", "print") and path.parent.name != "proofs":
            links = [each["href"] for each in read_page(text).select(".onwards a")]
            lesson = path.stem if path.stem[:2].isdigit() else "00_start_here"
            assert [link.split("/")[2] for link in links[:3]] == [
                "mybinder.org",
                "colab.research.google.com",
                "github.com",
            ]
            assert all("us/hooks" in link for link in links[:3])
            assert all(f"/{lesson}.ipynb" in link for link in links[:2])
            assert links[2].endswith(f"/source/{path.stem}.py") == (lesson == path.stem)
            assert links[3:] in (["cite.html"], ["#"])
    cited = next(text for path, text in pages.items() if path.stem == "cite")
    assert "@software{pytorch_hooks_course," in read_page(cited).get_text()


@pytest.mark.browser
@pytest.mark.parametrize(
    ("theme", "width", "looked_through"),
    [("light", 1280, ("index", "00_start_here", "glossary", "search")), ("dark", 390, ("06_guided_backprop", "hooks"))],
)
def test_in_a_browser_it_asks_for_nothing_fits_and_axe_finds_nothing(browser, pages, theme, width, looked_through):
    asked, wrong = [], []
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, color_scheme=theme)
    context.on("request", lambda request: asked.append(request.url))
    shown = context.new_page()
    shown.on("pageerror", lambda error: wrong.append(str(error)))
    for path in pages:
        if path.stem != "print":
            shown.goto(path.as_uri())
            shown.evaluate(OPEN_FOLDS)
            wrong += [f"{path.name}: {fault}" for fault in shown.evaluate(SCRIPTS["find_faults_of_site"])]
            wrong += [
                f"{path.name}: {fault}" for fault in (find_faults(shown, "html") if path.stem in looked_through else ())
            ]
    shown.goto(next(path for path in pages if path.stem == "search").as_uri() + "?q=retain_grad")
    shown.locator("#search-results li", has_text="retain_grad or a hook").first.wait_for(timeout=60_000)
    context.close()
    assert wrong == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
