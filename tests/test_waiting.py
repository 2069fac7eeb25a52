"""Outputs that wait for a commit, in a real kernel, which is told what JupyterLab tells it."""

import os

import pytest
from jupyter_client.manager import start_new_kernel

from course_utils.authoring import source
from course_utils.exercises.declaration import find_prediction, predictions_of
from course_utils.exercises.engine import find

pytestmark = pytest.mark.slow

NAME, AFTER = "hook_on_w", "hook_on_a"  # both of lesson 01
CELL, LATER = (find_prediction(name).waits[0] for name in (NAME, AFTER))
HIDDEN = "Commit to an answer first"
SHOWS = "import sys; print('thirty'); display('shown'); print('late', file=sys.stderr); 6 * 5"
FIGURE = "import matplotlib.pyplot as plt; plt.plot([1, 2]); print('drawn')"
PNG = "image/png"


class FrontEnd:
    """A notebook in front of a kernel: what stands below each cell, as the messages of the protocol put it there."""

    def __init__(self, client) -> None:
        self.client, self.below, self.places = client, {}, {}

    def run(self, cell: str, code: str, metadata=None, allow_stdin: bool = True) -> list:
        """Run a cell, and return what stands below it: texts, kinds of pictures, names of errors."""
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": allow_stdin}
        metadata = {"cellId": cell} if metadata is None else metadata
        message = self.client.session.msg("execute_request", content, metadata=metadata)
        self.client.shell_channel.send(message)
        below = self.below[cell] = []
        while True:
            told = self.client.get_iopub_msg(timeout=60)
            kind, said = told["msg_type"], told["content"]
            if kind == "status" and said["execution_state"] == "idle":
                if told["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                    return self.read(cell)
            elif kind == "update_display_data":
                self.places.get(said["transient"]["display_id"], [])[:] = [_look(said["data"])]
            elif kind in ("display_data", "execute_result"):
                below.append([_look(said["data"])])
                self.places[said.get("transient", {}).get("display_id")] = below[-1]
            elif kind == "stream":
                below.append([said["text"]])
            elif kind == "error":
                below.append([said["ename"]])

    def read(self, cell: str) -> list:
        """What stands below a cell now, but for places that are empty."""
        return [one for (one,) in self.below[cell] if one]


def _look(data) -> str:
    return PNG if PNG in data else data["text/plain"]


@pytest.fixture(scope="module")
def kernel():
    manager, client = start_new_kernel(env={**os.environ, "COURSE_PROGRESS": "off", "MPLBACKEND": ""})
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.fixture
def front(kernel):
    """A notebook in which a prediction was asked, and nothing committed."""
    front = FrontEnd(kernel)
    front.run("setup", "%matplotlib inline\nfrom course_utils.exercises import predict, saved_progress, why")
    front.run("setup", "saved_progress._in_memory.clear()")
    front.run("asks", f"predict('{NAME}')")
    return front


def test_all_that_a_cell_shows_waits_for_the_commit_and_comes_in_its_order(front):
    (note,) = front.run(CELL, SHOWS)
    assert note.startswith(HIDDEN)
    assert front.run("next", "_ + 1") == ["31"], "what the cell computed is there"
    assert "Compare it with the output below." in front.run("commits", f"predict('{NAME}', 30)")[0]
    assert front.read(CELL) == ["You said 30.", "thirty\n", "'shown'", "late\n", "30"]
    assert front.run(CELL, SHOWS) == ["thirty\n", "'shown'", "late\n", "30"], "run again, it is a cell like any other"


def test_a_figure_waits_too_and_an_error_never_does(front):
    (note,) = front.run(CELL, FIGURE)
    assert note.startswith(HIDDEN)
    front.run("commits", f"predict('{NAME}', 5)")
    said, drawn, figure = front.read(CELL)
    assert (said, drawn, figure) == ("You said 5.", "drawn\n", PNG)
    front.run("setup", "saved_progress._in_memory.clear()")
    error, note = front.run(CELL, "print('thirty'); 1 / 0")
    assert (error, note[: len(HIDDEN)]) == ("ZeroDivisionError", HIDDEN)
    assert front.run(CELL, "1 +") == ["SyntaxError"]
    assert front.run("other", "print(1); 2") == ["1\n", "2"], "the streams are back in their places"


def test_each_prediction_has_its_own_cells_and_a_second_run_takes_the_place_of_the_first(front):
    for _ in range(2):
        assert all(front.run(cell, f"print('{cell}')")[0].startswith(HIDDEN) for cell in (CELL, LATER))
    front.run("commits", f"predict('{AFTER}', 15)")
    assert front.read(LATER) == ["You said 15.", f"{LATER}\n"]
    assert front.read(CELL)[0].startswith(HIDDEN)
    front.run(CELL, "x = 1")
    assert front.read(CELL) == [], "a cell that shows nothing needs no note"


def test_several_cells_of_one_prediction_come_together_below_one_guess(front):
    several = find_prediction("reused_relu").waits  # of lesson 03
    front.run("asks", "predict('reused_relu')")
    assert [front.run(cell, f"print({n})")[0][: len(HIDDEN)] for n, cell in enumerate(several)] == [HIDDEN] * 2
    option = next(iter(find_prediction("reused_relu").options))
    front.run("commits", f"predict('reused_relu', {option!r})")
    assert [front.read(cell) for cell in several] == [[f"You said {option}.", "0\n"], ["1\n"]]
    assert front.run(CELL, "print('thirty')")[0].startswith(HIDDEN), "those of the other lesson still wait"


def test_what_the_class_keeps_closed_opens_with_it(front):
    tell = "from course_utils.exercises.predictions import follow_class; follow_class({{'" + NAME + "': {}}})"
    front.run("class", tell.format(False))
    front.run(CELL, "print('thirty')")
    front.run("commits", f"predict('{NAME}', 30)")
    assert "your instructor reveals" in front.read(CELL)[0]
    front.run("class", tell.format(True))
    assert front.read(CELL) == ["You said 30.", "thirty\n"]
    front.run("class", "follow_class({})")


@pytest.mark.parametrize(
    ("metadata", "allow_stdin"),
    [({}, True), ({"cellId": CELL}, False), ({"cellId": "vscode-notebook-cell:/01.ipynb#W1"}, True)],
    ids=["no cell is named", "nobody sits there", "another name of the cell"],
)
def test_where_no_front_end_names_its_cells_nothing_waits(front, metadata, allow_stdin):
    assert front.run(CELL, "print('thirty')", metadata, allow_stdin) == ["thirty\n"]


def test_only_a_front_end_shows_a_question_about_an_answer_and_the_ticket_comes_first(front):
    answer = "def make_twelve(w):\n    return w.register_hook(lambda grad: 0 * grad + 12)\n"
    front.run("setup", f"import torch\nfrom course_utils.exercises import check\n{answer}")
    ticket, question = front.run("checks", "check(make_twelve)")[:2]
    assert "make_twelve: passed" in ticket
    assert question.startswith("A question about your own code")
    assert front.run("later", "1") == ["1"], "and never below another cell"
    assert len(front.run("papermill", "check(make_twelve)", metadata={}, allow_stdin=False)) == 1
    failing = front.run("wrong", "def make_twelve(w): return w.register_hook(abs)\ncheck(make_twelve)")
    assert "your own code" not in " ".join(failing)
    names = "import torch\nfrom torch import nn\n"
    shown = front.run("class", f"{names}{find('Guide').source}\ncheck(Guide)")
    assert len(shown) == 2, "the text of a class, for which Python knows no file, is found too"


@pytest.mark.parametrize("lesson", source.sources(), ids=lambda path: path.stem)
def test_every_prediction_has_cells_that_wait_and_no_answer_waits(lesson):
    tags = {cell.id: source.tags_of(cell) for cell in source.learner(lesson).cells if cell.cell_type == "code"}
    for prediction in predictions_of(source.number_of(lesson)):
        assert prediction.waits
        assert [cell for cell in prediction.waits if {"answer", "check", "predict"} & set(tags[cell])] == []
