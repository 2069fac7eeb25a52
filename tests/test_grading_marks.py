"""The teacher's last word: decisions, what points are worth, and whose texts are alike."""

import csv

import pytest
from grading_samples import renamed

from course_utils.exercises.engine import exercises_of
from course_utils.grading.marks import COLUMNS, FILE, Rules, decide, read_decisions, read_weights, write_gradebook
from course_utils.grading.report import Score
from course_utils.grading.similar import PAGE, find_pairs, name_alike, write_similar
from course_utils.root import CourseError

SCORES = [
    Score("ann", "01_a", "f", 0, 2, "wrong value", look_by_hand=True, held=0.75, like="x"),
    Score("ann", "01_a", "g", 1, 1, "passed", look_by_hand=False, held=1.0),
    Score("ann", "02_b", "h", 4, 4, "passed", look_by_hand=False, held=1.0),
    Score("bo", "01_a", "f", 0, 2, "wrong value", look_by_hand=False, late=True, held=0.5, like="x"),
    Score("bo", "01_a", "g", 1, 1, "passed", look_by_hand=False, late=True, held=1.0),
    Score("bo", "02_b", "h", 0, 4, "not handed in", look_by_hand=False),
]


def decide_by(tmp_path, *rows):
    (tmp_path / FILE).write_text("\n".join([",".join(COLUMNS), *rows]), encoding="utf-8")
    return decide(SCORES, read_decisions(tmp_path))


def points(scores):
    return [score.points for score in scores]


def test_the_file_is_made_once_and_never_changed(tmp_path):
    assert read_decisions(tmp_path) == []
    text = (tmp_path / FILE).read_text() + "ann,,f,,2,Well argued.\n"
    (tmp_path / FILE).write_text(text)
    (decision,) = read_decisions(tmp_path)
    assert (decision.about, decision.points, decision.comment) == (
        {"student": "ann", "exercise": "f"},
        2,
        "Well argued.",
    )
    assert (tmp_path / FILE).read_text() == text


def test_points_and_comments_reach_a_student_a_lesson_everybody_or_all_who_wrote_the_same(tmp_path):
    decided, unused = decide_by(tmp_path, "ann,,f,,1.5,Half.", ",,,x,,The same slip.", "bo,01_a,,,,Late again.")
    assert (points(decided), unused) == ([1.5, 1, 4, 0, 1, 0], [])
    assert [score.comment for score in decided] == [
        "Half. The same slip.",
        "",
        "",
        "The same slip. Late again.",
        "Late again.",
        "",
    ]
    assert [score.given for score in decided] == [True] + [False] * 5
    assert not decided[0].look_by_hand, "a person has looked"


def test_the_last_points_count_and_what_was_not_handed_in_gets_some_by_name_only(tmp_path):
    assert points(decide_by(tmp_path, ",,h,,2,", ",,f,,1,", "ann,,f,,2,")[0]) == [2, 1, 2, 1, 1, 0]
    decided, _ = decide_by(tmp_path, "bo,,h,,3,Seen on paper.")
    assert (points(decided)[5], decided[5].counts, SCORES[5].counts) == (3, True, False)


def test_a_decision_about_nothing_is_named(tmp_path):
    assert decide_by(tmp_path, "ann,,f,,1,", "anna,,f,,1,")[1] == [3]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("ann,,f,,many,", "line 2: `points` is a number"),
        ("ann,,f,,-1,", "line 2: `points` is a number"),
        ("ann,,f,,1,a,b", "a text with a comma stands in quotes"),
        ("ann,,,,1,", "points are for one exercise"),
    ],
)
def test_a_row_that_cannot_be_understood_says_its_line(tmp_path, row, said):
    with pytest.raises(CourseError, match=said):
        decide_by(tmp_path, row)


def test_an_unknown_column_is_named(tmp_path):
    (tmp_path / FILE).write_text("student;mark\nann;1\n")
    with pytest.raises(CourseError, match="column 'mark'"):
        read_decisions(tmp_path)


def gradebook(tmp_path, rules, scores=SCORES, system="moodle"):
    write_gradebook(scores, tmp_path, {}, system, rules)
    with (tmp_path / "gradebook.csv").open(newline="") as file:
        return [tuple(row.values()) for row in csv.DictReader(file)]


def test_what_points_are_worth_by_hand(tmp_path):
    assert gradebook(tmp_path, Rules()) == [("ann", "1", "4", "5"), ("bo", "1", "", "1")]
    assert gradebook(tmp_path, Rules(late=0.2)) == [("ann", "1", "4", "5"), ("bo", "0.8", "", "0.8")]
    assert gradebook(tmp_path, Rules(weights={"g": 3, "02_b": 0.5})) == [("ann", "3", "2", "5"), ("bo", "3", "", "3")]
    # ann's lowest is 1 of 3; bo's is the one that was not handed in, 0 of 4.
    assert gradebook(tmp_path, Rules(drop=1)) == [("ann", "1", "4", "4", "100"), ("bo", "1", "", "1", "33.33")]
    assert gradebook(tmp_path, Rules(drop=5)) == gradebook(tmp_path, Rules(drop=1)), "the best one always counts"


def test_parts_of_a_task_count_where_the_teacher_wants_it():
    assert points(Rules(partial=True).with_parts(SCORES)) == [1.5, 1, 4, 1, 1, 0]
    assert points(Rules().with_parts(SCORES)) == points(SCORES)


def test_canvas_gets_the_weighted_points_possible(tmp_path):
    (possible, *_) = gradebook(tmp_path, Rules(weights={"f": 2}), system="canvas")
    assert possible[-2:] == ("5", "4")


def test_weights_are_of_what_there_is():
    assert read_weights(["f=2", "01_a=0.5"], ["f", "01_a"]) == {"f": 2, "01_a": 0.5}
    for text in ("f", "f=two", "k=1", "f=-1"):
        with pytest.raises(CourseError, match="--weight"):
            read_weights([text], ["f"])


ONE = """
def norms(model, batch):
    kept: list = []
    def keep(module, args, output):  # each layer
        kept.append((module, output.detach().norm().item()))
    handles = [layer.register_forward_hook(keep) for layer in model.modules()]
    model(batch)
    for handle in handles:
        handle.remove()
    return dict(kept)
"""
DISGUISED = """
def norms(net, x):
    def look(m, a, out):
        seen.append((m, out.detach().norm().item()))
    seen = []
    hooks = [one.register_forward_hook(look) for one in net.modules()]
    net(x)
    for each in hooks: each.remove()
    return dict(seen)
"""
OTHER = """
def norms(model, batch):
    found = {}
    with record(model) as seen:
        model(batch)
    for name in seen:
        found[name] = float(torch.linalg.vector_norm(seen[name]))
    return found
"""


def test_a_copy_in_disguise_is_alike_and_another_idea_is_not():
    assert name_alike(ONE) == name_alike(DISGUISED) != name_alike(OTHER)
    assert name_alike("def f(x):\n    return x + 1") != name_alike("def f(x):\n    return x + 2")
    texts = {"ann": {"norms": ONE}, "bo": {"norms": DISGUISED}, "cy": {"norms": OTHER}}
    (pair,), too_little = find_pairs(texts, {})
    assert (pair.one, pair.other, pair.share, pair.exercises, too_little) == ("ann", "bo", 1.0, ["norms"], [])
    found = find_pairs(texts, {"norms": [ONE]})
    assert found == ([], [*texts]), "what the course says is nobody's own, so nothing can be told"
    many = {f"s{number}": {"norms": ONE} for number in range(12)}
    assert find_pairs(many, {}) == ([], [*many]), "nor is what everybody wrote"


def test_planted_copies_are_found_in_a_class_and_hardly_any_other_pair():
    """Each student answers with texts drawn from all that the course knows, right and wrong; six copy in disguise."""
    exercises = [each for each in exercises_of() if each.lesson in (1, 2, 3)]
    pool = {each.name: [*each.page.answers, *(source for _, source in each.page.mistakes)] for each in exercises}
    known = {each.name: [each.task, *each.page.answers] for each in exercises}
    students = {
        f"s{number}": {
            name: texts[(number * 7 + at * at) % len(texts)] for at, (name, texts) in enumerate(pool.items())
        }
        for number in range(40)
    }
    planted = {(f"copy{number}", f"s{number}") for number in range(6)}
    for copy, original in planted:
        students[copy] = {name: renamed(text) for name, text in students[original].items()}
    found = {(pair.one, pair.other) for pair in find_pairs(students, known)[0]}
    pairs = len(students) * (len(students) - 1) / 2
    assert len(found & planted) >= 0.95 * len(planted)
    assert len(found - planted) <= 0.01 * pairs


def test_the_page_shows_both_texts_and_takes_them_as_text(tmp_path):
    students = {"ann": {"norms": ONE + "# <script>"}, "bo": {"norms": DISGUISED}}
    assert write_similar(students, {}, tmp_path).endswith(": 1 pairs of students with similar texts")
    text = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert "100 %" in text
    assert "&lt;script&gt;" in text
    said = write_similar(students | {"cy": {"norms": "def norms():\n    return {}"}}, {}, tmp_path)
    assert said.endswith("1 wrote too little of their own to tell")
    assert "for any comparison: cy." in (tmp_path / PAGE).read_text(encoding="utf-8")
