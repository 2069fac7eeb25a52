"""How lessons become pages of the web site; tests/browser looks at the site itself."""

import sys
from importlib.util import find_spec

import nbformat
import pytest

from course_utils.authoring import site
from course_utils.exercises.engine import find
from course_utils.root import CourseError


def test_outputs_are_folded_up_to_the_explanation_and_a_check_makes_room_for_an_answer():
    tags = ["", "predict", "", "check", "why", "", "setup"]
    calls = {"predict": 'predict("gradient_of_square")', "check": "check(largest)", "why": 'why("gradient_of_square")'}
    printed = nbformat.v4.new_output("stream", text="6")
    cells = [nbformat.v4.new_code_cell(calls.get(tag, "1"), outputs=[printed]) for tag in tags]
    for cell, tag in zip(cells, tags, strict=True):
        cell.metadata["tags"] = [tag] * bool(tag)
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
    with pytest.raises(CourseError, match=r"sphinx.* is missing. Install it once with: .* -e '\.\[site\]'"):
        site.write_site(folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["old.html"]
