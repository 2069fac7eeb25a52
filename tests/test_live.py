"""A class: what is reported and what is not, votes, who is where, what stays, and who is kept out."""

import json
import random
import re
import socket
import sqlite3
import threading
import urllib.request

import pytest

from course_utils.authoring.item_analysis import read_class
from course_utils.exercises import asking, check, classroom, engine, predict, saved_progress, why
from course_utils.exercises.engine import find
from course_utils.grading.report import Score, write_pages
from course_utils.live import handlers, join, member, people, screens, server
from course_utils.live.material import lessons, plan_of, settings_of
from course_utils.live.room import Room
from course_utils.live.store import Store
from course_utils.live.summary import write_summary
from course_utils.root import CourseError
from course_utils.show import code_spans
from tests.browser.live_class import running, votes_in, wait_for

CAUSE = find("scale_gradient").mistakes[0].message
HOSTILE = "<img src=x onerror=alert(1)>"
ASKED = engine.find_prediction("hook_on_a")  # 5, 12, 15 (right), 30


@pytest.fixture
def live(tmp_path):
    with running(tmp_path) as live:
        yield live


@pytest.fixture(autouse=True)
def _out_of_class(monkeypatch):
    monkeypatch.setattr(saved_progress, "_in_memory", {})
    monkeypatch.setattr(classroom.session, "explanations", {})
    monkeypatch.setattr(classroom.joined_class, "votes", {})
    monkeypatch.setattr(classroom.joined_class, "listeners", [])
    yield
    for each in member._members:
        each.leave()
    member._members.clear()
    classroom.follow_class({})


def names_in(live):
    return [*live.room.people.names.values()]


def scale_gradient(tensor, factor):
    secret_word = 5
    return tensor * secret_word


def test_what_is_done_after_join_is_reported_without_code_output_or_the_time_before(live):
    live.press("waits", "no")
    check(scale_gradient)
    predict("hook_on_w", 10)
    said = str(join(live.address.removeprefix("http://"), live.room.people.code.lower(), "Ann"))
    assert re.match(r"You are in the class as Ann\.[\s\S]*They never send your code", said)
    check(find("keep_positive").reference)
    outcome = check(scale_gradient)
    assert "Your class gets `30` as your vote." in str(predict("hook_on_a", 30))
    assert "You said 30 at first, and now 15." in str(predict("hook_on_a", 15))
    assert "You said 30, and then 15, and so it is." in str(why("hook_on_a"))
    assert predict("hook_on_a")._widget().children[1].value == "15"
    wait_for(lambda: len(live.room.reports) == 4)
    told = [(each.learner, each.name, each.said, each.phase) for each in live.room.reports]
    checked = (1, "keep_positive", "passed", ""), (1, "scale_gradient", outcome.stage, "")
    assert told == [*checked, (1, "hook_on_a", "30", "vote"), (1, "hook_on_a", "15", "vote")]
    assert "secret_word" not in str(live.room.reports)


def keep_positive(tensor):
    def hook(grad):
        positive = grad.clamp(min=0)
        return positive

    handle = tensor.register_hook(hook)
    return handle


def test_answers_to_questions_about_ones_own_code_are_counted_and_not_told(live, tmp_path):
    join(live.address, live.room.people.code)
    live.room.choose("01")
    for wanted in (True, False):
        asked = asking.find_view(find("keep_positive"), keep_positive)
        wrong = next(option for option in asked.question.options if option != asked.question.answer)
        asked.commit(asked.question.answer if wanted else wrong)
    wait_for(lambda: len(live.room.reports) == 2)
    assert [(each.name, each.said, each.cause) for each in live.room.reports] == [
        ("keep_positive", "right", ""), ("keep_positive", "wrong", "")
    ]  # fmt: skip
    (place,) = (place for place in screens.see_places(live.room) if place.exercise == "keep_positive")
    assert (place.passed, place.right, place.asked) == (0, 1, 2)
    assert live.see("class", "desk").count("questions about their own code: 1 of 2 right") == 1
    path = write_summary(live.room, tmp_path)
    write_pages([Score("ann", "01_tensor_hooks", "keep_positive", stage="passed")], tmp_path, (), read_class(path))
    for page in (tmp_path / "index.html", path.with_suffix(".html")):
        told = page.read_text(encoding="utf-8").partition("Questions about their own code")[2]
        assert "|keep_positive|2|1|" in re.sub(r"(\s*<[^>]+>\s*)+", "|", told)


def test_explanations_wait_for_the_reveal_unless_the_instructor_lets_them_open(live):
    live.press("prediction", "hook_on_a")
    shown = why("hook_on_a")._widget()
    join(live.address, live.room.people.code)
    assert classroom.WAITS in str(predict("hook_on_a", 30)), "sealed before the first vote, and by default"
    assert classroom.WAITS in shown.value
    live.press("phase", "reveal")
    wait_for(lambda: "You said 30; it is 15." in shown.value)
    live.press("phase", "vote")
    wait_for(lambda: classroom.WAITS in shown.value)
    live.press("waits", "no")
    wait_for(lambda: "You said 30; it is 15." in shown.value)


def test_a_class_that_does_not_answer_costs_nothing_is_said_once_and_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(member, "PATIENCE", 1)
    monkeypatch.setattr(member, "PAUSES", (0.05, 0.1))
    numbers = random.getstate()
    with running(tmp_path) as live:
        port = int(live.address.rpartition(":")[2])
        join(live.address, live.room.people.code)
    with socket.create_server(("127.0.0.1", port)):  # it takes calls, and is silent
        told = [str(predict("hook_on_a", 30))]
        assert not member._members[0]._lost, "the call is over before the request is"
        wait_for(lambda: member._members[0]._lost)
        told += [str(predict("hook_on_a", 12)), str(check(find("largest").reference))]
    assert [member.LOST in each for each in told] == [False, True, False]
    with running(tmp_path, port) as live:
        wait_for(lambda: len(live.room.reports) == 3)
        assert [each.said for each in live.room.reports] == ["30", "12", "passed"]
    assert random.getstate() == numbers, "the lesson's random numbers stay those of its seed"


@pytest.mark.parametrize("address", ["127.0.0.1:9", "file:///etc/passwd", "", None, "http://[", "http://a b"])
def test_a_class_that_is_not_there_is_a_sentence(address):
    assert str(join(address, "ABCDEF")).startswith("join: no class at ")


def test_a_wrong_code_is_a_sentence_and_a_new_kernel_is_the_same_learner(live, tmp_path, monkeypatch):
    (tmp_path / saved_progress.MARKER).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COURSE_PROGRESS")
    assert "The room code is another one" in str(join(live.address, "ABC"))
    assert "You are in the class as Learner 1." in str(join(live.address, live.room.people.code))
    member._members.clear()
    assert "as Bo." in str(join(live.address, "", "Bo"))
    assert names_in(live) == ["Bo"]


def test_votes_are_hidden_until_the_reveal_and_then_stand_side_by_side(live):
    live.press("prediction", "hook_on_a")
    tokens = live.vote_each("hook_on_a", "30", "30", "12", "15")
    for phase in ("vote", "discuss", "again"):
        live.press("phase", phase)
        pages = live.see("votes") + live.see_phone(tokens[3])
        assert not any(told in pages for told in (*ASKED.options.values(), "untouched", "%", "right"))
    live.vote(tokens[0], "hook_on_a", "12")
    live.vote(tokens[0], "hook_on_a", "15")
    assert "1 of 4 voted again" in live.see("votes")
    live.vote(tokens[1], "hook_on_a", "12")
    live.press("phase", "reveal")
    live.vote(tokens[2], "hook_on_a", "15")  # too late
    assert votes_in(page := live.see("votes")) == {"5": (0, 0), "12": (1, 1), "15": (1, 1), "30": (2, 0)}
    told = *ASKED.options.values(), "The hook sees only what", "For those who said 12", "How many arrows lead to w"
    assert [each for each in told if each not in page] == []


def test_the_instructor_alone_sees_percentages_names_and_questions_while_the_room_votes(live):
    live.press("prediction", "hook_on_a")
    for name, said in (("Ann", "30"), ("Bo", "15"), ("Cy", "30"), ("Di", "5")):
        live.vote(live.join(name), "hook_on_a", said)
    desk = live.see("votes", "desk")
    assert votes_in(desk) == {"5": (1, 0), "12": (0, 0), "15": (1, 0), "30": (2, 0)}
    assert re.search(r"<p>30</p><ul[^>]*><li>Ann</li><li>Cy</li></ul>", desk)
    assert all(code_spans(question) in desk for question in ASKED.ask.values())
    assert re.search(r"→ The most frequent wrong answer\.</strong> Follow the arrows", desk)
    assert [each for each in ("Ann", "25 %", "Follow the arrows", "Mazur") if each in live.see("votes")] == []


@pytest.mark.parametrize(
    ("right", "wrong", "advice"),
    [
        (0, 0, screens.WAIT), (29, 71, screens.EXPLAIN), (30, 70, screens.DISCUSS), (1, 1, screens.DISCUSS),
        (70, 30, screens.DISCUSS), (71, 29, screens.GO_ON), (4, 0, screens.GO_ON),
    ],
)  # fmt: skip
def test_thirty_to_seventy_percent_right_are_the_time_to_discuss(tmp_path, right, wrong, advice):
    room = Room(tmp_path / "room")
    room.act("prediction", "hook_on_a")
    for number, said in enumerate(["15"] * right + ["30"] * wrong):
        learner, _ = room.people.join(room.people.code, "", "", "", 0)
        room.report(
            learner.number, REPORT | {"id": f"{number}", "kind": "prediction", "name": "hook_on_a", "said": said}
        )
    assert screens.advise(room) == advice
    room.act("phase", "again")
    assert screens.advise(room) == screens.WAIT
    room.act("phase", "reveal")
    assert screens.advise(room) == ""
    room.store.close()


def test_after_the_second_vote_the_advice_compares_both(live):
    live.press("prediction", "hook_on_a")
    tokens = live.vote_each("hook_on_a", "30", "30", "12", "15")
    live.press("phase", "again")
    for token in tokens[1:]:
        live.vote(token, "hook_on_a", "15")
    assert screens.BETTER.format(100, 25) in live.see("votes", "desk")
    live.vote(tokens[1], "hook_on_a", "30")
    live.vote(tokens[2], "hook_on_a", "30")
    live.vote(tokens[3], "hook_on_a", "5")
    assert screens.NOT_BETTER.format(0, 25) in live.see("votes", "desk")


def test_the_question_comes_with_its_code_and_its_figure():
    around = settings_of(1)["hook_on_a"]
    for told in ("def two_path_graph():", "return 3 * doubled", "a.register_hook(change_gradient)"):
        assert told in around.code
    assert "def read_grad" not in around.code, "what only a print needs takes the space of what matters"
    photograph = settings_of(7)["where_the_second_looks"]
    assert (photograph.code, photograph.figure.kind) == ("", "image/jpeg")
    assert "each shows a fish" in photograph.figure.alt
    graph = settings_of(1)["who_has_a_gradient"]
    assert graph.figure.data.startswith(b"<svg")
    assert "y.backward()" in graph.code
    known = {each.name for each in engine.predictions_of()}
    shown = {name: each for lesson in lessons() for name, each in settings_of(int(lesson)).items()}
    assert shown.keys() == known
    assert [name for name, each in shown.items() if not (each.code or each.figure)] == []


def test_the_figure_is_sent_to_everybody_and_nothing_else_is(live):
    with urllib.request.urlopen(f"{live.address}/figure?of=where_the_second_looks") as answer:
        assert answer.headers["Content-Type"] == "image/jpeg"
        assert answer.read(2) == b"\xff\xd8"
    for name in ("hook_on_a", "../room.sqlite", ""):
        live.ask(f"/figure?of={name}", status=404)


def test_a_countdown_runs_on_every_page_and_ends_with_the_step(live):
    ann = live.join()
    live.press("screen", "votes")
    live.press("countdown", 60)
    live.seconds = 20
    pages = live.see(), live.see(page="desk"), live.see_phone(ann)
    left = [int(re.search(r'data-left="(\d+)"', page)[1]) for page in pages]
    assert all(38 <= each <= 40 for each in left), left
    live.seconds = 100
    assert 'data-left="0"' in live.see()
    live.press("phase", "discuss")
    assert "data-left" not in live.see() + live.see(page="desk") + live.see_phone(ann)


def test_another_lesson_is_chosen_without_a_restart_and_each_goes_on_where_it_was(live, tmp_path):
    ann = live.join("Ann")
    live.press("prediction", "hook_on_a")
    live.press("timer", "start")
    live.press("at", 2)
    live.report(ann, "largest", "passed")
    live.press("lesson", "00")
    assert "x = 3 and y = x²" in live.see("votes")
    assert "Start the timer" in live.see("plan")
    assert "1 of 1" in live.see("class")
    live.vote(ann, "gradient_of_square", "6")
    live.press("lesson", "01")
    assert code_spans(ASKED.question) in live.see("votes")
    assert re.search(r'aria-current="step"><td class="number">13 to 26', live.see("plan"))
    said = json.loads(write_summary(live.room, tmp_path).read_text())
    assert (said["lessons"], said["learners"][0]["exercises"]["largest"]) == ([0, 1], ["passed", 1])
    assert said["predictions"]["gradient_of_square"] == [1, 1, 0, 0]


def test_who_is_where_which_causes_and_who_is_stuck(live):
    ann, bo, _ = live.join("Ann"), live.join("Bo"), live.join("Cy")
    live.report(ann, "record_gradient", "passed")
    live.report(ann, "scale_gradient", "wrong value", CAUSE)
    live.report(bo, "scale_gradient", "raised")
    live.seconds = 601
    live.report(bo, "scale_gradient", "wrong value", CAUSE)
    live.report(ann, "scale_gradient", "passed")
    live.report(ann, "scale_gradient", "wrong value", "<b>Words of my own</b>")
    rows = re.findall(
        r'<th scope="row">(.*?)</th><td class="number">(\d).*?<ul[^>]*>(.*?)</ul>', live.see("class", "desk")
    )
    found = {name.replace("<wbr>", ""): (passed, re.findall("<li>(.*?)</li>", here)) for name, passed, here in rows}
    assert {name: told for name, told in found.items() if told != ("0", [])} == {
        "record_gradient": ("1", ["Cy"]), "scale_gradient": ("1", ["✗ 2 Bo"]), "keep_positive": ("0", ["Ann"]),
    }  # fmt: skip
    assert "Ann" not in live.see("class")
    live.press("names", "yes")
    assert "✗ 2 Bo" in live.see("class")
    desk, told = (live.see("help", "desk"), [code_spans(each) for each in (CAUSE, *find("scale_gradient").all_hints)])
    stuck = "Bo: <code>scale_gradient</code> for 10 minutes, 2 tries"
    assert all(each in desk for each in (told[0], told[2], "Hint 2 of 3", stuck))


def test_the_room_gets_a_nudge_and_neither_a_cause_nor_a_later_hint(live):
    exercise = find("scale_gradient")
    for token in (live.join("Ann"), live.join("Bo")):
        for _ in range(5):
            live.report(token, "scale_gradient", "wrong value", CAUSE)
    live.seconds = 601
    live.press("names", "yes")
    page = live.see("help")
    assert code_spans(exercise.hints[0]) in page
    assert "2 are at it" in page
    for told in (CAUSE, *exercise.all_hints[1:], "Ann", "Bo"):
        assert code_spans(told) not in page


def test_the_teacher_has_a_question_for_each_wrong_option_and_the_plan_is_a_timer(live):
    assert [each.name for each in engine.predictions_of() if each.ask.keys() ^ each.options != {each.answer}] == []
    parts = plan_of(1)
    assert [parts[0][:3], parts[-1][:2]] == [(0, 4, "A network that does not learn"), (65, 70)]
    live.press("timer", "start")
    live.press("at", "1")
    live.seconds = 60 * 15 + 5
    assert "Minute 15 of 70, 2 behind the plan" in (page := live.see("plan", "desk"))
    row = r'aria-current="step"><td class="number">4 to 13</td>[\s\S]*?<td>the third task of the explorer</td>'
    assert re.search(row, page)
    assert "behind" not in live.see("plan"), "the room need not know"


def test_names_are_shown_as_they_are_typed_and_formulas_stay_text(live):
    for name in (HOSTILE, "=1+1\n\u202egnp.exe", "$x_1$", "x" * 999, "\ud800", "\u2800\u3164", "Bo" + 38 * "\u0301"):
        live.join(name)
    shown = [HOSTILE, "=1+1 gnp.exe", "$x_1$", "x" * 40, "Learner 5", "Learner 6", "Bo\u0301\u0301"]
    assert names_in(live) == shown
    live.press("names", "yes")
    for page in (live.see("class"), live.see("class", "desk"), live.see("join"), live.see("join", "desk")):
        assert "<img" not in page
        assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_what_stays_is_shown_beside_the_grades(live, tmp_path):
    ann, bo = live.join(HOSTILE), live.join("Bo")
    live.press("prediction", "hook_on_a")
    for token, said in ((ann, "30"), (bo, "15")):
        live.vote(token, "hook_on_a", said)
        live.report(token, "scale_gradient", "raised")
    live.report(bo, "scale_gradient", "passed")
    live.press("phase", "again")
    live.vote(ann, "hook_on_a", "15")
    path = write_summary(live.room, tmp_path)
    assert [each["name"] for each in json.loads(path.read_text())["learners"]] == [HOSTILE, "Bo"]
    write_pages([Score("ann", "01_tensor_hooks", "scale_gradient", stage="passed")], tmp_path, (), read_class(path))
    in_class = (tmp_path / "index.html").read_text().partition("In the lesson")[2]
    for page in (in_class, path.with_suffix(".html").read_text()):
        cells = re.sub(r"(\s*<[^>]+>\s*)+", "|", page)
        assert "|scale_gradient|2|1|50 % (9 to 91)|2|\u2013|hook_on_a|2|1|50 % (9 to 91)|\u2013|\u2013|" in cells
        assert ("|hook_on_a|2|1|1|1|" in cells, "hook_on_w" in cells) == (True, False), "nobody answered the other"
        assert (HOSTILE in page, "Ann" in page) == (False, False)
    assert (CAUSE in in_class, "record_gradient" in in_class) == (False, False)
    for content in ("{", "[]", '{"predictions": {}, "learners": [{"exercises": {"a": 5}}]}', '{"predictions": 1}'):
        path.write_text(content)
        with pytest.raises(CourseError, match="is not a file that `make class` wrote"):
            read_class(path)


def test_the_ten_minutes_are_compared_in_pairs_and_without_names(live, tmp_path):
    """Differences 7, 4 and 6: mean 5.67, standard deviation 1.53, and t = 4.303 with 2 degrees of freedom."""
    assert "Ten minutes" not in write_summary(live.room, tmp_path).with_suffix(".html").read_text()
    for name, *scores in (("Ann", 2, 9), ("Bo", 4, 8), ("Cy", 5, 11), ("Di", 7)):
        token = live.join(name)
        for when, score in zip(("before", "after"), scores, strict=False):
            live.report(token, when, str(score), kind="inventory")
    page = write_summary(live.room, tmp_path).with_suffix(".html").read_text()
    assert "3 learners have answered the twelve questions before the course" in page
    assert "3.7 of 12 answers were right before and 9.3 after: a difference of +5.7, with an interval of " in page
    assert "95 % from +1.9 to +9.5." in page
    assert "Cy" not in page


def test_two_classes_of_one_day_leave_two_files_and_each_goes_on_in_its_own(tmp_path):
    paths = []
    for number in range(2):
        room = Room(tmp_path / f"room-{number}", clock=lambda: 1_800_000_000)
        paths += [write_summary(room, tmp_path), write_summary(room, tmp_path)]
        room.store.close()
    assert paths[0] == paths[1] != paths[2] == paths[3]
    again = Room(tmp_path / "room-0")
    assert write_summary(again, tmp_path) == paths[0]
    again.store.close()


REPORT = {"id": "1", "kind": "exercise", "name": "largest", "said": "passed", "cause": ""}
WRONG = {"name": "nothing"}, {"said": "won"}, {"id": ["1"]}, {"kind": "x"}, {"cause": "x" * 9000}
WRONG += {"kind": "inventory"}, {"kind": "inventory", "name": "after", "said": "13"}
REVEAL = {"what": "phase", "value": "reveal"}


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """A class that stays as it is, and the token of the one learner in it."""
    with running(tmp_path_factory.mktemp("class")) as live:
        yield live, live.join()


@pytest.mark.parametrize(
    ("path", "content", "headers", "status"),
    [
        ("/report", REPORT, {}, 401),
        ("/report", REPORT, {"Authorization": "Bearer INSTRUCTOR"}, 401), ("/events", None, {}, 401),
        ("/class", None, {}, 401), ("/class?key=guess", None, {}, 401), ("/class?key=%FF", None, {}, 400),
        ("/slides", None, {}, 401), ("/slides", {}, {"Cookie": "COOKIE=INSTRUCTOR"}, 405),
        ("/desk/do", {"what": "ask", "value": "nothing"}, {"Cookie": "COOKIE=INSTRUCTOR"}, 400),
        ("/desk", None, {}, 401), ("/desk/see", None, {"Authorization": "Bearer LEARNER"}, 401),
        ("/class/see", None, {"Authorization": "Bearer LEARNER"}, 401), ("/ballot", None, {}, 401),
        ("/class/do", None, {"Cookie": "COOKIE=INSTRUCTOR"}, 405), ("/join", None, {}, 405), ("/events", {}, {}, 405),
        ("/desk/do", {"what": "screen", "value": "../x"}, {"Cookie": "COOKIE=INSTRUCTOR"}, 400),
        ("/desk/do", {"what": "remove", "value": "2"}, {"Cookie": "COOKIE=INSTRUCTOR"}, 400),
        ("/desk/do", {"what": "lesson", "value": "99"}, {"Cookie": "COOKIE=INSTRUCTOR"}, 400),
        ("/desk/do", REVEAL, {"Cookie": "COOKIE=LEARNER"}, 401),
        ("/desk/do", REVEAL, {"Cookie": "COOKIE=INSTRUCTOR", "Origin": "http://evil.example"}, 403),
        ("/desk/do", REVEAL, {"Cookie": "COOKIE=INSTRUCTOR", "Content-Type": "text/plain"}, 400),
        ("/desk/do", REVEAL | {"value": "drop"}, {"Cookie": "COOKIE=INSTRUCTOR"}, 400),
        ("/join", {"code": "AAAAAA"}, {}, 403), ("/join", {"code": "CODE"}, {"Origin": "null"}, 403),
        ("/join", {"code": "CODE"}, {"Origin": "http://["}, 403),
        ("/join", {"code": "CODE"}, {"Host": "rebound.example"}, 403),
        ("/join", b"[" * 5000, {}, 400), ("/join", b"\xff", {}, 400), ("/join", b"[]", {}, 400),
        *(("/report", REPORT | wrong, {"Authorization": "Bearer LEARNER"}, 400) for wrong in WRONG),
    ],
)  # fmt: skip
def test_what_is_refused_changes_nothing(strict, path, content, headers, status):
    live, learner = strict
    known = {"LEARNER": learner, "INSTRUCTOR": live.room.key, "CODE": live.room.people.code}
    known["COOKIE"], before = live.cookie["Cookie"].partition("=")[0], live.see("votes")
    words, sent = re.compile("LEARNER|INSTRUCTOR|CODE|COOKIE"), {"content": content, "headers": headers}
    if not isinstance(content, bytes):
        sent = json.loads(words.sub(lambda word: known[word[0]], json.dumps(sent)))
    live.ask(path, sent["content"], status=status, **sent["headers"])
    assert (live.see("votes"), live.room.reports, len(names_in(live))) == (before, [], 1)


@pytest.mark.parametrize("header", [b"Content-Length: 10000000", b"Transfer-Encoding: chunked"])
def test_a_body_of_ten_megabytes_is_not_read(live, header):
    with live.connect() as client:
        client.sendall(b"POST /join HTTP/1.1\r\nHost: " + live.address[7:].encode() + b"\r\n" + header + b"\r\n\r\n")
        with pytest.raises(OSError, match=r"reset|Broken"):
            client.sendall((b"100000\r\n" + b"x" * 2**20 + b"\r\n") * 10)
    live.join()


def test_a_replay_counts_once_and_a_flood_is_refused_for_one_learner_only(live, monkeypatch):
    monkeypatch.setattr(handlers, "PACE", (5, 0))
    ann, bo = live.join(), live.join()
    assert [live.report(ann, "largest", "passed", key="k")["new"] for _ in range(2)] == [True, False]
    for status in (200, 200, 200, 429, 429):
        live.ask("/report", REPORT, ann, status)
    assert live.report(bo, "largest", "passed", key="k")["new"]


def test_wrong_codes_are_counted_and_never_stop_a_right_one_or_a_member(live):
    ann = live.join("Ann")
    for _ in range(200):
        said = live.enter(code="GUESS", status=403)
    assert said == {"refused": people.WRONG_CODE}
    assert live.enter("Bo")["name"] == "Bo", "from the same address"
    live.report(ann, "largest", "passed")
    assert live.ask("/join", {"token": ann})["name"] == "Ann"
    assert "200 wrong codes" in live.see("join", "desk")
    with pytest.raises(ConnectionRefusedError):  # it listens on the chosen address only
        socket.create_connection(("127.0.0.2", int(live.address.rpartition(":")[2])), timeout=5)


def test_a_full_room_takes_a_right_code_and_the_flood_gives_way(tmp_path, monkeypatch):
    monkeypatch.setattr(people, "MOST_LEARNERS", 5)
    with running(tmp_path) as live:
        ann = live.join("Ann")
        live.report(ann, "largest", "passed")
        bots = [live.join(f"Bot {number}") for number in range(50)]
        assert live.enter("Bo")["name"] == "Bo"
        assert {"Ann", "Bo"} < set(names_in(live))
        assert len(names_in(live)) == 5
        live.report(bots[40], "record_gradient", "passed", status=401)
        live.report(ann, "record_gradient", "passed")
        left = names_in(live)
    with running(tmp_path) as live:
        assert names_in(live) == left
        live.report(bots[40], "record_gradient", "passed", status=401)
        live.report(ann, "keep_positive", "passed")


def test_a_name_is_there_once(live):
    names = [live.enter(name)["name"] for name in ("Ann Lee", "ann  lee", "\uff21nn L\u00e9e", "", "", "Learner 5")]
    assert names == ["Ann Lee", "ann lee (2)", "\uff21nn L\u00e9e (3)", "Learner 4", "Learner 5", "Learner 5 (2)"]
    ann = live.join("Ann")
    assert live.ask("/join", {"token": ann, "name": "Ann"})["name"] == "Ann", "it is the same person's"
    assert live.ask("/join", {"token": ann, "name": "Ann Lee"})["name"] == "Ann Lee (4)"


def test_with_a_roster_its_names_come_in_once_and_nobody_else(tmp_path):
    (tmp_path / "names.txt").write_text("\ufeffAnn Lee\n\nZo\u00eb Okafor\n", encoding="utf-8")
    roster = people.read_roster(tmp_path / "names.txt")
    assert roster == ["Ann Lee", "Zo\u00eb Okafor"]
    with running(tmp_path, roster=roster) as live:
        assert live.enter("Mallory", status=403) == {"refused": people.NOT_LISTED}
        assert live.enter("", status=403) == {"refused": people.NOT_LISTED}
        ann = live.enter("ann lee")
        assert ann["name"] == "Ann Lee"
        assert live.enter("Ann Lee", status=403) == {"refused": people.TAKEN}
        assert "Not here yet: 1 of 2" in (desk := live.see("join", "desk"))
        assert "Zo\u00eb Okafor" in desk
        live.press("remove", 1)
        live.report(ann["token"], "largest", "passed", status=401)
        assert live.enter("Ann Lee")["name"] == "Ann Lee", "the name is free again"
    for text, told in (("", "holds no names"), ("Ann\nB\u00f6\nBo\n", "has B\u00f6 twice")):
        (tmp_path / "names.txt").write_text(text, encoding="utf-8")
        with pytest.raises(CourseError, match=told):
            people.read_roster(tmp_path / "names.txt")
    with pytest.raises(CourseError, match="cannot be read"):
        people.read_roster(tmp_path / "nowhere.txt")


def test_a_locked_room_and_a_new_code_keep_those_who_are_in(live):
    old, ann = live.room.people.code, live.join("Ann")
    live.press("locked", "yes")
    assert live.enter(status=403) == {"refused": people.LOCKED}
    live.report(ann, "largest", "passed")
    live.press("locked", "no")
    live.press("code", "new")
    assert old != live.room.people.code
    assert live.enter(code=old, status=403) == {"refused": people.WRONG_CODE}
    live.report(ann, "keep_positive", "passed")
    live.join("Bo")
    assert live.room.people.code in live.see("join")


@pytest.mark.parametrize(("what", "value"), [("remove", "2"), ("remove_later", "2"), ("remove_address", "127.0.0.1")])
def test_whoever_is_removed_is_gone_with_all_votes_and_comes_back_only_with_the_code(live, what, value):
    tokens = [live.join(name) for name in ("Ann", "Bo", "Cy")]
    live.press("prediction", "hook_on_a")
    for token in tokens:
        live.vote(token, "hook_on_a", "30")
    assert "3 of 3 voted" in live.see("votes")
    live.press(what, value)
    left = {"remove": ["Ann", "Cy"], "remove_later": ["Ann"], "remove_address": []}[what]
    assert names_in(live) == left
    assert f"{len(left)} of {len(left)} voted" in live.see("votes")
    live.vote(tokens[1], "hook_on_a", "30", status=401)
    live.ask("/events", token=tokens[1], status=401)
    live.press("code", "new")
    assert live.enter(token=tokens[1], code="ABCDEF", status=403) == {"refused": people.WRONG_CODE}
    back = live.enter("Bo", token=tokens[1])
    assert (back["token"], back["name"]) == (tokens[1], "Bo")
    assert f"{len(left) + 1} of {len(left) + 1} voted" in live.see("votes")


def test_a_kernel_that_was_removed_says_so_once_and_the_lesson_goes_on(live):
    join(live.address, live.room.people.code)
    live.press("remove", 1)
    wait_for(lambda: member._members[0]._forgotten)
    told = [str(check(find("largest").reference)) for _ in range(2)]
    assert [member.FORGOTTEN in each for each in told] == [True, False]
    assert classroom.WAITS not in str(predict("hook_on_a", 15))


def test_a_ninth_stream_of_one_learner_ends_the_first(live, monkeypatch):
    monkeypatch.setattr(handlers, "MOST_STREAMS", 2)
    ann, streams = live.join(), []
    for _ in range(3):
        streams.append(live.connect("/events", ann))
        assert b"data: " in streams[-1].recv(10_000)
    live.press("waits", "no")
    assert [b"data: {}" in each.recv(10_000) for each in streams] == [False, True, True]


def test_a_flood_of_connections_shuts_nobody_out(live, monkeypatch):
    monkeypatch.setattr(handlers, "MOST_RESTING", 5)
    following = live.connect("/events", live.join("Ann"))
    assert b"data: " in following.recv(10_000)
    flood = [live.connect() for _ in range(20)]
    assert live.enter("Bo")["name"] == "Bo"
    assert [each.recv(1) for each in flood[:15]] == [b""] * 15, "the oldest gave way"
    live.press("waits", "no")
    assert b"data: {}" in following.recv(10_000)


def test_many_pages_share_what_was_counted(live):
    live.vote(live.join(), "hook_on_a", "30")
    assert live.room.votes("hook_on_a") is live.room.votes("hook_on_a")


# ---- phones


def test_a_phone_votes_and_sees_only_what_the_room_may_see(live):
    phone = live.join("Ann")
    assert "The next question appears here" in live.see_phone(phone)
    live.press("prediction", "hook_on_a")
    live.press("screen", "votes")
    page = live.see_phone(phone)
    assert re.findall(r'name="said" value="(\d+)"', page) == [*ASKED.options]
    assert "a.register_hook(change_gradient)" in page
    live.vote(phone, "hook_on_a", "30")
    page = live.see_phone(phone)
    assert "You said 30." in page
    assert "<form" not in page, "the first vote stays, as in a notebook"
    live.press("phase", "again")
    assert "<form" in live.see_phone(phone)
    live.vote(phone, "hook_on_a", "15")
    live.press("phase", "reveal")
    page = live.see_phone(phone)
    assert "You said 30, and then 15." in page
    assert "The hook sees only what" in page
    assert "<form" not in page


def test_a_phone_and_a_kernel_with_one_code_are_one_learner(live):
    live.press("prediction", "hook_on_a")
    said = str(join(live.address, live.room.people.code, "Ann"))
    code = re.search(r"your own code (\w{8})", said)[1]
    phone = live.enter("", code=f"{code[:4]}-{code[4:]}".lower())
    assert phone["name"] == "Ann"
    live.vote(phone["token"], "hook_on_a", "30")
    predict("hook_on_a", 15)
    wait_for(lambda: len(live.room.reports) == 2)
    assert "1 of 1 voted" in live.see("votes")
    assert live.room.votes("hook_on_a") == {1: ["30", ""]}
    live.press("code", "new")
    live.press("locked", "yes")
    assert live.enter(code=code)["name"] == "Ann", "somebody's own code opens a locked room"


def test_a_phone_that_came_first_takes_its_votes_along_to_the_kernel(live):
    phone, kernel, bo = live.enter("Ann"), live.enter("Ann at home"), live.enter("Bo")
    live.vote(phone["token"], "hook_on_a", "30")
    live.report(kernel["token"], "largest", "passed")
    live.ask("/join", {"token": kernel["token"], "code": phone["code"]})
    assert names_in(live) == ["Ann", "Bo"]
    live.report(kernel["token"], "keep_positive", "passed")
    assert [(each.learner, each.name) for each in live.room.reports] == [
        (1, "hook_on_a"), (1, "largest"), (1, "keep_positive"),
    ]  # fmt: skip
    live.press("remove", 1)
    live.report(kernel["token"], "largest", "passed", status=401)
    live.report(bo["token"], "largest", "passed")


# ---- what is kept


def test_nothing_is_answered_before_it_is_on_the_disk(live, monkeypatch):
    ann, may_save, saving, save = live.join("Ann"), threading.Event(), threading.Event(), live.room.store.save

    def wait_and_save():
        saving.set()
        assert may_save.wait(30)
        save()

    monkeypatch.setattr(live.room.store, "save", wait_and_save)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(live.report(ann, "largest", "passed")))
    asking.start()
    assert saving.wait(10)
    asking.join(0.3)
    assert answers == []
    may_save.set()
    asking.join(10)
    assert answers == [{"new": True}]


def test_what_a_full_disk_refuses_is_not_answered_and_tried_again(live, monkeypatch):
    ann, file = live.join("Ann"), live.room.store._file

    class Full:
        in_transaction = False

        def execute(self, *_):
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(live.room.store, "_file", Full())
    live.report(ann, "largest", "passed", key="k", status=503)
    monkeypatch.setattr(live.room.store, "_file", file)
    assert live.room.store._unsaved
    assert not live.report(ann, "largest", "passed", key="k")["new"], "it is known, and counts once"
    assert not live.room.store._unsaved


def test_the_store_waits_for_the_disk_and_many_changes_cost_one_wait(tmp_path):
    store, written = Store(tmp_path / "store"), []
    assert store._file.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
    store._file.set_trace_callback(written.append)
    for number in range(100):
        store.put(f"{number}", number)
    store.save()
    store.save()
    assert (written.count("BEGIN"), written.count("COMMIT")) == (1, 1)
    store.close()
    again = Store(tmp_path / "store")
    assert again.kept == {f"{number}": number for number in range(100)}
    again.close()


def test_one_class_at_a_time_and_all_is_forgotten_on_request(tmp_path):
    folder = tmp_path / "class"
    with running(folder) as live:
        live.join("Ann")
        with pytest.raises(CourseError, match="A class is running here already"):
            server.serve(forget=True, folder=folder)
    assert (folder / server.FILE).stat().st_mode & 0o077 == 0
    assert server.serve(forget=True, folder=folder) == 0
    assert not folder.exists()


def test_a_new_class_leaves_the_one_before_in_files_of_its_own(tmp_path, monkeypatch):
    async def listen(room, *_):
        room.people.join(room.people.code, "Ann", "", "", 0)

    monkeypatch.setattr(server, "_listen", listen)
    for _ in range(2):
        server.serve("01", "127.0.0.1", new=True, folder=tmp_path)
    names = [[each["name"] for each in json.loads(path.read_text())["learners"]] for path in tmp_path.glob("*.json")]
    assert names == [["Ann"], ["Ann"]]
    assert len([*tmp_path.glob("class-*.sqlite")]) == 1
