"""An answer's run and a right one side by side."""

import re

import pytest

from course_utils.exercises import replay
from course_utils.exercises.engine import find

TWO_RUNS = """\
replay(hook_once) for tensor = 2x and a hook that multiplies by -1.5
In the first backward your tensor hook on `tensor` is not removed; in a right run it is.
  your run                                         | a right run, up to the first difference
in the call:
  tensor hook on `tensor` is registered            | tensor hook on `tensor` is registered
  None is returned                                 | None is returned
  tensor hooks on `tensor` that are there now: 1   | tensor hooks on `tensor` that are there now: 1
in the first backward:
  tensor hook on `tensor` receives [-1.75, -2.5];  | tensor hook on `tensor` receives [-1.75, -2.5];
  [2.625, 3.75] goes on                            | [2.625, 3.75] goes on
                                                   | tensor hook on `tensor` is removed
  `hook` is called with [-1.75, -2.5] and gives    | `hook` is called with [-1.75, -2.5] and gives
  [2.625, 3.75]                                    | [2.625, 3.75]
  >> first difference:
  (nothing of the kind)                            | tensor hooks on `tensor` that are there now: 0
in the second backward:
  tensor hook on `tensor` receives [-1.75, -2.5];
  [2.625, 3.75] goes on
"""


def hook_once(tensor, hook):
    tensor.register_hook(lambda grad: hook(grad))


def test_both_runs_stand_side_by_side_up_to_the_first_difference():
    text = str(replay(hook_once))
    assert text.startswith(TWO_RUNS)
    assert "|" not in text.split("in the second backward:")[1], "the right run ends with the first difference"
    assert "handle" not in text, "no name of the right answer's own"


def test_the_table_marks_the_difference_in_words_and_names_its_columns():
    page = replay(hook_once)._repr_html_()
    assert page.count("<strong>first difference:</strong>") == 2
    assert "<caption><code>replay(hook_once)</code> for tensor = 2x" in page
    assert page.count("<tbody>") == page.count('scope="rowgroup"') == 4, "a heading for each part"
    assert re.findall(r'<th scope="col"[^>]*>([^<]*)', page) == ["Your run", "A right run, up to the first difference"]
    assert "<code>tensor</code> is not removed" in page


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (find("hook_once").reference, "Your answer passes"),
        (find("hook_once"), "Run the answer cell first"),
        ("hook_once", "Give the function itself, without quotes: replay(hook_once)."),
    ],
)
def test_where_nothing_can_be_shown_replay_says_why(answer, words):
    assert words in str(replay(answer))
