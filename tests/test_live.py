"""A class: what is reported and what is not, votes, who is where, what stays, and who is kept out."""

import json
import random
import re
import socket

import pytest

from course_utils.exercises import check, classroom, engine, predict, saved_progress, why
from course_utils.exercises.engine import find
from course_utils.grading.report import Score, read_class, write_pages
from course_utils.live import join, member, server
from course_utils.live.room import plan_of
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


def scale_gradient(tensor, factor):
    secret_word = 5
    return tensor * secret_word


def test_what_is_done_after_join_is_reported_without_code_output_or_the_time_before(live):
    check(scale_gradient)
    predict("hook_on_w", 10)
    said = str(join(live.address.removeprefix("http://"), live.room.code.lower(), "Ann"))
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


def test_explanations_wait_for_the_reveal_where_the_instructor_asks_for_it(live):
    live.press("prediction", "hook_on_a")
    live.press("waits", "yes")
    shown = why("hook_on_a")._widget()
    join(live.address, live.room.code)
    wait_for(lambda: classroom.WAITS in shown.value)
    assert classroom.WAITS in str(predict("hook_on_a", 30))
    live.press("phase", "reveal")
    wait_for(lambda: "You said 30; it is 15." in shown.value)


def test_a_class_that_does_not_answer_costs_nothing_is_said_once_and_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(member, "PATIENCE", 1)
    monkeypatch.setattr(member, "PAUSES", (0.05, 0.1))
    numbers = random.getstate()
    with running(tmp_path) as live:
        port = int(live.address.rpartition(":")[2])
        join(live.address, live.room.code)
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
    assert "You are in the class as Learner 1." in str(join(live.address, live.room.code))
    member._members.clear()
    assert "as Bo." in str(join(live.address, "", "Bo"))
    assert live.room.names == {1: "Bo"}


def test_votes_are_hidden_until_the_reveal_and_then_stand_side_by_side(live):
    live.press("prediction", "hook_on_a")
    tokens = [live.join() for _ in range(4)]
    for token, said in zip(tokens, ("30", "30", "12", "15"), strict=True):
        live.vote(token, "hook_on_a", said)
    for phase in ("vote", "discuss", "again"):
        live.press("phase", phase)
        assert not any(told in live.see("votes") for told in (*ASKED.options.values(), "untouched", "%", "right"))
    live.vote(tokens[0], "hook_on_a", "12")
    live.vote(tokens[0], "hook_on_a", "15")
    assert "1 of 4 voted again" in live.see("votes")
    live.vote(tokens[1], "hook_on_a", "12")
    live.press("phase", "reveal")
    assert votes_in(page := live.see("votes")) == {"5": (0, 0), "12": (1, 1), "15": (1, 1), "30": (2, 0)}
    told = *ASKED.options.values(), "The hook sees only what", "For those who said 12", "How many arrows lead to w"
    assert [each for each in told if each not in page] == []


def test_who_is_where_which_causes_and_who_is_stuck(live):
    ann, bo = live.join("Ann"), live.join("Bo")
    live.report(ann, "keep_positive", "passed")
    live.report(ann, "scale_gradient", "wrong value", CAUSE)
    live.report(bo, "scale_gradient", "raised")
    live.seconds = 601
    live.report(bo, "scale_gradient", "wrong value", CAUSE)
    live.report(ann, "scale_gradient", "passed")
    live.report(ann, "scale_gradient", "wrong value", "<b>Words of my own</b>")
    page = live.see("class")
    found = re.findall(r'<th scope="row">(\w+)</th>.*?([✗✓] \w+(?: \(\d\))?)', page)
    assert (found, page.count("○ not tried")) == ([("Ann", "✓ passed"), ("Bo", "✗ tried (2)")], 2 * 8 - 3)
    assert "Ann" not in live.see("class", names="no")
    page, told = live.see("help"), [code_spans(each) for each in (CAUSE, find("scale_gradient").hints[1])]
    assert all(
        each in page for each in (*told, "Hint 2 of 3", "Bo: <code>scale_gradient</code> for 10 minutes, 2 tries")
    )


def test_the_teacher_has_a_question_for_each_wrong_option_and_the_plan_is_a_timer(live):
    assert [each.name for each in engine.predictions_of() if each.ask.keys() ^ each.options != {each.answer}] == []
    parts = plan_of(1)
    assert [parts[0][:3], parts[-1][:2]] == [(0, 4, "A network that does not learn"), (70, 75)]
    live.press("timer", "start")
    live.press("at", "1")
    live.seconds = 60 * 15 + 5
    assert "Minute 15 of 75, 1 behind the plan" in (page := live.see("plan"))
    assert re.search(
        r'aria-current="step"><td class="number">4 to 14</td>[\s\S]*?<td>the third task of the explorer</td>', page
    )


def test_names_are_shown_as_they_are_typed_and_formulas_stay_text(live):
    for name in (HOSTILE, "=1+1\n\u202egnp.exe", "$x_1$", "x" * 999):
        live.join(name)
    assert list(live.room.names.values()) == [HOSTILE, "=1+1 gnp.exe", "$x_1$", "x" * 40]
    assert "<img" not in (page := live.see("class"))
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
    path = live.room.write_summary(tmp_path)
    assert [each["name"] for each in json.loads(path.read_text())["learners"]] == [HOSTILE, "Bo"]
    write_pages([Score("ann", "01_tensor_hooks", "scale_gradient", stage="passed")], tmp_path, (), read_class(path))
    rows = re.findall(r'class="name">(\w+)</th>(.*)</tr>', (tmp_path / "index.html").read_text())
    found = {name: [int(count) for count in re.findall(r">(\d+)<", row)] for name, row in rows}
    assert (found["scale_gradient"], found["hook_on_a"], found["hook_on_w"]) == ([2, 1], [2, 1, 1, 1], [0, 0, 0, 0])
    for content in ("{", "[]", '{"exercises": {"a": 5}, "predictions": {}}'):
        path.write_text(content)
        with pytest.raises(CourseError, match="is not a file that `make class` wrote"):
            read_class(path)


REPORT = {"id": "1", "kind": "exercise", "name": "largest", "said": "passed", "cause": ""}
WRONG = {"name": "nothing"}, {"said": "won"}, {"id": ["1"]}, {"kind": "x"}, {"cause": "x" * 9000}
REVEAL = {"what": "phase", "value": "reveal"}


@pytest.mark.parametrize(
    ("path", "content", "headers", "status"),
    [
        ("/report", REPORT, {}, 401),
        ("/report", REPORT, {"Authorization": "Bearer INSTRUCTOR"}, 401), ("/events", None, {}, 401),
        ("/class", None, {}, 401), ("/class?key=guess", None, {}, 401), ("/class?key=%FF", None, {}, 400),
        ("/class/see?screen=class", None, {"Authorization": "Bearer LEARNER"}, 401),
        ("/class/see?screen=../x", None, {"Cookie": "COOKIE=INSTRUCTOR"}, 404),
        ("/class/do", REVEAL, {"Cookie": "COOKIE=LEARNER"}, 401),
        ("/class/do", REVEAL, {"Cookie": "COOKIE=INSTRUCTOR", "Origin": "http://evil.example"}, 403),
        ("/class/do", REVEAL, {"Cookie": "COOKIE=INSTRUCTOR", "Content-Type": "text/plain"}, 400),
        ("/class/do", REVEAL | {"value": "drop"}, {"Cookie": "COOKIE=INSTRUCTOR"}, 400),
        ("/join", {"code": "AAAAAA"}, {}, 403), ("/join", {"code": "CODE"}, {"Origin": "null"}, 403),
        ("/join", {"code": "CODE"}, {"Host": "rebound.example"}, 403),
        ("/join", b"[" * 5000, {}, 400), ("/join", b"\xff", {}, 400), ("/join", b"[]", {}, 400),
        *(("/report", REPORT | wrong, {"Authorization": "Bearer LEARNER"}, 400) for wrong in WRONG),
    ],
)  # fmt: skip
def test_what_is_refused_changes_nothing(live, path, content, headers, status):
    known = {"LEARNER": live.join(), "INSTRUCTOR": live.room.key, "CODE": live.room.code}
    known["COOKIE"], before = live.cookie["Cookie"].partition("=")[0], live.see("votes")
    words, sent = re.compile("LEARNER|INSTRUCTOR|CODE|COOKIE"), {"content": content, "headers": headers}
    if not isinstance(content, bytes):
        sent = json.loads(words.sub(lambda word: known[word[0]], json.dumps(sent)))
    live.ask(path, sent["content"], status=status, **sent["headers"])
    assert (live.see("votes"), live.room.reports, len(live.room.names)) == (before, [], 1)


@pytest.mark.parametrize("header", [b"Content-Length: 10000000", b"Transfer-Encoding: chunked"])
def test_a_body_of_ten_megabytes_is_not_read(live, header):
    with socket.create_connection(("127.0.0.1", int(live.address.rpartition(":")[2])), timeout=10) as client:
        client.sendall(b"POST /join HTTP/1.1\r\nHost: " + live.address[7:].encode() + b"\r\n" + header + b"\r\n\r\n")
        with pytest.raises(OSError, match=r"reset|Broken"):
            client.sendall((b"100000\r\n" + b"x" * 2**20 + b"\r\n") * 10)
    live.join()


def test_a_replay_counts_once_and_a_flood_is_refused_for_one_learner_only(live, monkeypatch):
    monkeypatch.setitem(server.RATES, "report", (5, 0))
    ann, bo = live.join(), live.join()
    assert [live.report(ann, "largest", "passed", key="k")["new"] for _ in range(2)] == [True, False]
    for status in (200, 200, 200, 429, 429):
        live.ask("/report", REPORT, ann, status)
    assert live.report(bo, "largest", "passed", key="k")["new"]


def test_whoever_guesses_is_refused_even_with_the_right_code_and_members_are_not(live, monkeypatch):
    monkeypatch.setitem(server.RATES, "guess", (3, 0))
    ann = live.join()
    for status in (403, 403, 403, 429):
        live.ask("/join", {"code": "GUESS"}, status=status)
    live.ask("/join", {"code": live.room.code}, status=429)
    live.report(ann, "largest", "passed")
    with pytest.raises(ConnectionRefusedError):  # it listens on the chosen address only
        socket.create_connection(("127.0.0.2", int(live.address.rpartition(":")[2])), timeout=5)


def test_one_class_at_a_time_and_all_is_forgotten_on_request(tmp_path):
    folder = tmp_path / "class"
    with running(folder) as live:
        live.join("Ann")
        with pytest.raises(CourseError, match="A class is running here already"):
            server.serve(forget=True, folder=folder)
    assert (folder / server.FILE).stat().st_mode & 0o077 == 0
    assert server.serve(forget=True, folder=folder) == 0
    assert not folder.exists()
