"""The committed notebooks are what their sources give, run the same everywhere, and leave nothing behind."""

import base64
import io
import re

import nbformat
import pytest
from lesson_runs import run_nbval, twice
from PIL import Image, ImageDraw

from course_utils.authoring import build, source
from course_utils.exercises.classroom import SEALED
from course_utils.exercises.engine import find, predictions_of

LESSONS = source.sources()
NOTEBOOKS = [*LESSONS, *source.pages()]
BUILT = {each: source.FOLDER / f"{each.stem}.ipynb" for each in NOTEBOOKS}
QUICK = ("01_tensor_hooks",)  # under nbval in the fast tier too
MARKED = [pytest.param(each, id=each.stem, marks=[pytest.mark.slow][each.stem in QUICK :]) for each in NOTEBOOKS]
each_notebook = pytest.mark.parametrize("lesson", NOTEBOOKS, ids=lambda path: path.stem)
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)


@each_notebook
def test_source_and_notebook_agree(lesson, tmp_path):
    assert {path.stem for path in source.FOLDER.glob("*.ipynb")} == {path.stem for path in NOTEBOOKS}
    assert build.find_differences(lesson, BUILT[lesson]) == []
    build.write(nbformat.read(BUILT[lesson], as_version=4), tmp_path / "again.ipynb")
    assert (tmp_path / "again.ipynb").read_bytes() == BUILT[lesson].read_bytes(), "written as the pipeline writes it"


@pytest.mark.parametrize("lesson", MARKED)
def test_nbval_agrees_with_every_output_and_again_when_all_answers_are_there(lesson, tmp_path):
    bare, built = source.learner(lesson), nbformat.read(BUILT[lesson], as_version=4)
    answers = {name: find(name).source for name in source.answer_cells(bare, lesson.stem)}
    notebook = twice(built, source.put_answers(bare, answers))
    passed, report = run_nbval(notebook, tmp_path)
    assert passed == sum(cell.cell_type == "code" for cell in notebook.cells), report


@each_lesson
def test_a_page_without_a_kernel_shows_each_widget_how_to_commit_and_answers_below_a_fold(lesson):
    cells = nbformat.read(BUILT[lesson], as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    widgets = [output.data for output in outputs if output.get("metadata", {}).get(build.WIDGET)]
    assert widgets
    for data in widgets:
        assert {"image/svg+xml", "image/png", "text/html"} & data.keys()
        assert not re.search(r"Widget\(|Box\(", data["text/plain"])
    for prediction in predictions_of(source.number_of(lesson)):
        assert any(f'predict("{prediction.name}", ' in data["text/plain"] for data in widgets)
    folds = [data["text/html"] for data in widgets if data["text/plain"] == SEALED]
    assert len(folds) == len(predictions_of(source.number_of(lesson)))
    assert all(re.match("<details><summary>[^<]+</summary>.*It is ", fold, re.DOTALL) for fold in folds)


def drawn(*, shift=0, width=320):
    """A PNG like a small figure on white: a thick line."""
    image = Image.new("RGB", (width, 240), "white")
    ImageDraw.Draw(image).line((40 + shift, 200 + shift, 280 + shift, 40 + shift), fill="#1f77b4", width=3)
    image.save(buffer := io.BytesIO(), "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.mark.slow
def test_nbval_passes_what_agrees_and_names_what_differs(tmp_path):
    picture = "from IPython.display import Image\nimport base64\nImage(base64.b64decode({!r}), alt='A line')".format
    png = {"data": {"image/png": drawn(), "text/plain": "<IPython.core.display.Image object>"}}
    made = [
        ("print('first line')", [nbformat.v4.new_output("stream", text="first line\n")]),
        ("print('first line')", [nbformat.v4.new_output("stream", text="another line\n")]),
        (picture(drawn(shift=1, width=322)), [nbformat.v4.new_output("execute_result", **png)]),
        (picture(drawn(shift=6)), [nbformat.v4.new_output("execute_result", **png)]),
        (picture(drawn(width=323)), [nbformat.v4.new_output("execute_result", **png)]),
        (picture(drawn()), []),
        ("import ipywidgets\nipywidgets.HTML('hello')", []),
    ]
    cells = [nbformat.v4.new_code_cell(code, outputs=outputs, execution_count=1) for code, outputs in made]
    passed, report = run_nbval(nbformat.v4.new_notebook(cells=cells), tmp_path)
    assert passed == 2, report
    for difference in (
        "another line",
        "pixels differ",
        "size is 323 x 240",
        "png: 1 instead of 0",
        "widgets: 1 instead",
    ):
        assert difference in report
