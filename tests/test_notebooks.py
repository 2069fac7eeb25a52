"""The committed notebooks are what their sources give, run the same everywhere, and leave nothing behind."""

import base64
import io
import re

import nbformat
import pytest
from lesson_runs import run_nbval, twice
from nbval_pictures import WIDGET_VIEW, find_picture_differences
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
    checks = [cell.outputs[0].data["text/plain"] for cell in cells if "check" in source.tags_of(cell)]
    assert all("not attempted yet" in each for each in checks)
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
    """An output with a picture like a small figure on white: a thick line."""
    image = Image.new("RGB", (width, 240), "white")
    ImageDraw.Draw(image).line((40 + shift, 200 + shift, 280 + shift, 40 + shift), fill="#1f77b4", width=3)
    image.save(buffer := io.BytesIO(), "PNG")
    return nbformat.v4.new_output("display_data", data={"image/png": base64.b64encode(buffer.getvalue()).decode()})


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        ([drawn(shift=1, width=322)], ""),
        ([drawn(shift=6)], "pixels differ"),
        ([drawn(width=323)], "size is 323 x 240"),
        ([], "png: 0 instead of 1"),
        ([drawn(), nbformat.v4.new_output("display_data", data={WIDGET_VIEW: {}})], "widgets: 1 instead of 0"),
    ],
)
def test_pictures_are_compared_by_what_they_show(found, difference):
    differences = find_picture_differences(found, [drawn()])
    assert difference in differences[0] if difference else differences == []


@pytest.mark.slow
def test_nbval_finds_another_picture_and_what_a_second_run_reveals(tmp_path):
    picture = drawn(shift=6).data["image/png"]
    made = {
        "import torch\nfrom torch.nn.modules import module\nnet = torch.nn.Linear(1, 1)": [],
        "_ = module.register_module_forward_hook(lambda *_: None)": [],
        "torch.set_default_dtype(torch.float64)": [],
        "torch.nn.ReLU.kept = [*getattr(torch.nn.ReLU, 'kept', []), net]; _ = net.register_forward_hook(print)": [],
        "torch.w = w = getattr(torch, 'w', torch.ones(1, requires_grad=True)); _ = w.register_hook(print)": [],
        "print(getattr(torch, 'seen', 'first time')); torch.seen = 'again'": [
            nbformat.v4.new_output("stream", text="first time\n")
        ],
        f"from IPython.display import display\ndisplay({{'image/png': {picture!r}}}, raw=True)": [drawn()],
    }
    cells = [nbformat.v4.new_code_cell(code, outputs=outputs, execution_count=1) for code, outputs in made.items()]
    lesson = nbformat.v4.new_notebook(cells=cells)
    passed, report = run_nbval(twice(lesson, lesson), tmp_path)
    assert passed == 2 * len(cells) + 3 - 4, report
    assert "pixels differ" in report
    assert re.search(r"hooks on all modules .*: OrderedDict\(\) became .*lambda", report)
    assert re.search(r"default dtype \(\d+\): torch.float32 became torch.float64", report)
    assert "count of hooks on modules: 1 became 2" in report
    assert re.search(r"count of hooks on tensors: \d became \d", report)
    assert "'first time\\n' == 'again\\n'" in report
