"""The release for students: no answers in it, checks that say the same, lessons that run, grades as ever."""

import json
import re
import subprocess
import sys
import zipfile

import nbformat
import pytest
import release_outcomes
from grading_samples import read_scores, renamed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lesson_runs import run_python
from test_readme import find_broken

from course_utils import root
from course_utils.authoring import build, release, source
from course_utils.exercises import classroom, recorded
from course_utils.exercises.engine import Exercise, exercises_of
from course_utils.exercises.timelines import compare_runs
from course_utils.root import ROOT, CourseError, write_whole

EXERCISES = {each.name: each for each in exercises_of()}
pytestmark = pytest.mark.slow
LARGEST = "def largest(tensor):\n    return max(tensor.flatten().tolist())\n"


@pytest.mark.parametrize("kind", ["whole", "spread over the files", "renamed"])
def test_the_search_finds_planted_answers(kind):
    for name, exercise in EXERCISES.items():
        for body in exercise.page.answers:
            said = release.words(code := release.body_of(body))
            parts = range(0, len(said), 6)
            files = {
                "whole": {"a.md": f"Write\n\n    {code}\n", "b.ipynb": json.dumps({"deep": [1, {"text": body}]})},
                "spread over the files": {f"{at}.py": f"# so: {' '.join(said[at : at + 12])}" for at in parts},
                "renamed": {"c.py": renamed(re.sub("  # .*", "", body))},
            }[kind]
            files = {path: text.encode() for path, text in files.items()}
            enough = release.SHORTEST if kind == "whole" else 25
            if len(said) >= enough:
                assert [*release.find_answers(files, [exercise])] == [name]
    nothing = {"a.md": b"`return guided * heat` is a part", "net.pt": b"\x80\xff"}
    assert release.find_answers(nothing, list(EXERCISES.values())) == {}


def test_hints_that_complete_an_answer_are_left_out_and_a_whole_answer_is_refused():
    exercise = EXERCISES["hook_once"]
    path, body = "course_utils/assets/sealed_01.json", release.body_of(exercise.page.answers[0])
    asked = {name: {"hints": ["A nudge.", "Another."]} for name in EXERCISES if EXERCISES[name].lesson == 1}
    asked["hook_once"] = {"hints": ["A nudge.", body]}
    files = {"note.md": b"nothing", path: json.dumps({"exercises": asked}).encode()}
    kept = release.leave_out_hints(files, [exercise])
    assert kept == {"hook_once": 1}
    assert json.loads(files[path])["exercises"]["hook_once"]["hints"] == ["A nudge."]
    files["note.md"] = body.encode()
    with pytest.raises(CourseError, match=r"would hold answers:\nnote\.md: an answer to hook_once"):
        release.leave_out_hints(files, [exercise])


def test_an_answer_that_is_spread_over_files_is_refused_by_name_and_place_unless_the_lessons_teach_it():
    exercise = EXERCISES["hook_once"]
    said = release.words(release.body_of(exercise.page.answers[0]))
    half = len(said) // 2
    parts = {"a.py": said[: half + 6], "b.py": said[half:]}
    files = {name: " ".join(part).encode() for name, part in parts.items()}
    found = release.find_answers(files, [exercise])
    assert re.fullmatch(r"(a|b)\.py, (a|b)\.py and others: \d+% of an answer to hook_once", found["hook_once"])
    assert release.find_answers(files, [exercise], taught=["hook_once"]) == {}
    assert release.find_taught(files, [exercise]) == ["hook_once"]
    hidden = {f"course_utils/assets/sealed_{number}.json": text for number, text in enumerate(files.values())}
    assert release.find_taught(hidden, [exercise]) == []


def test_a_notebook_that_is_not_what_its_source_says_is_refused(tmp_path):
    (tmp_path / "README.md").write_text("# The course\n")
    build.write(nbformat.v4.new_notebook(), tmp_path / "notebooks" / "00_start.ipynb")
    write_whole(tmp_path / "notebooks" / "source" / "00_start.py", "# %%\nprint(1)\n")
    with pytest.raises(CourseError, match=r"00_start\.ipynb has 0 cells, .* Build it first:  make notebooks"):
        release.collect_files(tmp_path)


def farthest(tensor):
    return tensor.abs().max().item()


def test_recorded_results_are_what_was_seen_and_the_answers_are_with_the_instructor(monkeypatch, tmp_path):
    (exercise,), path = exercises_of(0), tmp_path / "recorded_00.json"
    seen = {seed: exercise.key(seed) for seed in release.SEEDS[:3]}
    kept = {str(seed): release.record(exercise, seed) for seed in seen}
    path.write_text(json.dumps({"torch": "1.0", "seeds": list(seen), "exercises": {exercise.name: kept}}))
    recorded._read.cache_clear()
    different = compare_runs(exercise, farthest, 0).divergence.sentence
    monkeypatch.setattr(root, "ASSETS", tmp_path)
    monkeypatch.setattr(root, "ANSWERS", tmp_path / "answers")
    assert compare_runs(exercise, farthest, 0).divergence.sentence == different
    assert not re.search(r'"(line|text)"|max|item', json.dumps(kept["0"]["runs"])), "no code of a right answer"
    assert "your instructor has them" in str(classroom.solution(exercise, now=True))
    assert "Your instructor has the answers." in [str(classroom.hint(exercise)) for _ in range(4)][-1]
    for seed, whole in seen.items():
        reference, mistakes = exercise.key(seed)
        assert [{**case, "names": 0} for case in reference] == [{**case, "names": 0} for case in whole[0]]
        assert list(mistakes) == list(whole[1])
        assert reference[0]["names"] == [], "which functions a right answer calls is an answer"
    assert {exercise.fresh_seed() for _ in range(60)} == set(release.SEEDS[1:3])
    first, second = classroom.check(exercise.reference), classroom.check(exercise.reference)
    assert (first.passed, second.passed, second.note) == (True, True, ""), "another torch is said, and only once"
    assert re.match(r"This is torch \d.*, and the results were recorded with 1\.0\. Numbers", first.note)
    broken = {'{"seeds": [0], "exercises": {}}': "No result of largest", "half": "Unpack the course again"}
    for content, said in broken.items():
        path.write_text(content)
        recorded._read.cache_clear()
        assert said in str(classroom.check(exercise.reference))
    recorded._read.cache_clear()


WORDS = st.text("abc", max_size=4)
OBJECTS = st.recursive(
    st.none() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(found=st.dictionaries(WORDS, OBJECTS, max_size=4), times=st.integers(1, 5))
def test_what_is_recorded_comes_back_and_stands_once(found, times):
    many = {"many": [{"of": found, "number": number} for number in range(times)]}
    text = recorded.write_once(many)
    assert json.dumps(recorded.read_once(text)) == json.dumps(many), "with the same order of keys"
    again = [each["of"] for each in recorded.read_once(text)["many"]]
    assert all(each is again[0] for each in again)
    assert len({*text.splitlines()}) == text.count("\n"), "no line stands there twice"


def test_results_that_would_tell_nothing_are_not_recorded(monkeypatch):
    (exercise,) = exercises_of(0)
    cases, _ = exercise.key(0)
    monkeypatch.setattr(type(exercise), "key", lambda *_: (cases, {"No mistake.": cases}))
    with pytest.raises(CourseError, match=r"largest was not recognised .* No mistake\."):
        release.record_results()


KEYS = {}
lazy_key = Exercise.lazy_key


def run_once(exercise, seed):
    """The key of an exercise, for which the answers and mistakes run once in all tests of this file."""
    if (exercise.name, seed) not in KEYS:
        KEYS[exercise.name, seed] = lazy_key(exercise, seed)
    return KEYS[exercise.name, seed]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The release of this course with the results of two seeds, written as a zip and unpacked somewhere else.

    What happens while a right answer runs is recorded of every fourth exercise: watching takes the most time.
    """
    folder, record_runs, some = tmp_path_factory.mktemp("student"), release.record_runs, [*EXERCISES][::4]

    def record_some_runs(exercise, reference):
        return record_runs(exercise, reference) if exercise.name in some else []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "record_runs", record_some_runs)
        patch.setattr(release, "SEEDS", (0, 44))
        patch.setattr(Exercise, "lazy_key", run_once)
        assert release.write_release(folder / "new" / "course.zip") == 0
    with zipfile.ZipFile(folder / "new" / "course.zip") as archive:
        assert archive.namelist() == sorted(archive.namelist()), "the same files give the same zip"
        kinds = {(each.date_time, each.external_attr >> 16) for each in archive.infolist()}
        assert kinds == {((1980, 1, 1, 0, 0, 0), 0o644)}
        archive.extractall(folder)
    return folder / release.FOLDER


def test_the_release_has_what_students_need_and_nothing_else(unpacked):
    paths = {path.relative_to(unpacked).as_posix(): path for path in unpacked.rglob("*") if path.is_file()}
    kinds = re.compile(r"(?:.*[./])?(py|ipynb|md|json|toml|yml|pt|svg|css|js|txt|html|j2|gitignore|LICENSE|Makefile)")
    assert [name for name in paths if not kinds.fullmatch(name)] == []
    assert not [name for name in paths if name.startswith(("tests", "report", "work", "build", ".git/"))]
    assert not [name for name in paths if "answers/" in name], "what is secret is a folder, and it stays here"
    secret = re.compile(r"sealed|instructor")
    assert not any(secret.search(line) for path in paths.values() if path.parent.name == "source"
                   for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# %%"))  # fmt: skip
    readme = paths["README.md"].read_text(encoding="utf-8")
    assert re.match("# .*\n\nThis is the students' edition", readme)
    assert not re.search(r"## (?:Teach|Grade) it|\[!\[", readme), "the teacher's parts, and badges"
    assert {"lab"} <= set(re.findall(r"\bmake ([\w-]+)", readme)) <= set(root.STUDENT_COMMANDS)
    assert [*find_broken(readme, unpacked, lesson=False)] == []
    needed = {*release.FILES}
    needed |= {f"notebooks/{lesson.stem}.ipynb" for lesson in source.sources()}
    needed |= {f"course_utils/assets/{path.name}" for path in ROOT.glob("course_utils/assets/*.pt")}
    needed |= {f"course_utils/assets/recorded_{each.lesson:02d}.json" for each in EXERCISES.values()}
    assert needed <= paths.keys()
    for lesson in source.sources():  # without the teacher's notes, and with all else
        released, here = source.read_source(paths[f"notebooks/source/{lesson.name}"]), source.learner(lesson)
        released.cells[0].id = here.cells[0].id  # it is made of the text, in which the minutes stand now
        assert released.cells == here.cells
    there = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in paths}
    for name, path in paths.items():  # but for the commands, which say of themselves what needs the whole course
        text = path.read_text(encoding="utf-8") if re.search(r"(?<!__main__)\.py$", name) else ""
        assert set(re.findall(r"^ *(?:from|import) (course_utils[\w.]*)", text, re.MULTILINE)) <= there, name


def test_every_check_says_in_the_release_what_it_says_in_the_whole_course(unpacked, monkeypatch):
    """To a right answer, a mistake, and an answer that only prints."""
    monkeypatch.setattr(Exercise, "lazy_key", run_once)
    here = release_outcomes.find_outcomes(root.ANSWERS, 44)
    assert json.loads(run_python(unpacked, release_outcomes.__file__, root.ANSWERS, 44)) == here
    for name, said in here.items():
        assert said["reference"].startswith(f"{name}: passed")
        assert re.match(f"{name}: not [\\s\\S]*Likely cause", said["mistake"])
        assert said["prints"].startswith(f"{name}: not ")


def test_a_lesson_runs_and_its_check_works_where_the_release_is_installed(unpacked, tmp_path):
    """Installed as wheels are, without what is not declared as the package's data. 04 builds on its own answers."""
    site = tmp_path / "site"
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(unpacked)], check=True)
    program = f"import sys, papermill, course_utils\nfrom course_utils.exercises import check\n{LARGEST}"
    program += "print(course_utils.__file__)\nprint(check(largest))\n"
    program += "papermill.execute_notebook(sys.argv[1], 'out.ipynb', kernel_name='python3', progress_bar=False)\n"
    said = run_python(site, "-c", program, unpacked / "notebooks" / "04_inside_call.ipynb", cwd=tmp_path)
    assert said.startswith(str(site))
    assert "largest: passed (1 point)" in said
    assert "not attempted yet" in (tmp_path / "out.ipynb").read_text(encoding="utf-8")


def test_a_student_hands_in_half_of_a_lesson_and_the_file_gets_what_make_check_said(unpacked, tmp_path):
    half = exercises_of(1)[:4]
    for name, answers in (("01_tensor_hooks", {each.name: each.source for each in half}), ("03_module_hooks", {})):
        released = nbformat.read(unpacked / "notebooks" / f"{name}.ipynb", as_version=4)
        build.write(source.put_answers(released, answers), unpacked / "work" / f"{name}.ipynb")
    worth = [each.points for each in half] + [0] * (len(exercises_of(1)) - len(half))
    checked = run_python(unpacked, "-m", "course_utils", "check", "--lesson=01", cwd=unpacked)
    assert f"total: {sum(worth)} of {sum(each.points for each in exercises_of(1))}" in checked
    said = run_python(unpacked, "-m", "course_utils", "submit", "--name=Ann Lee", cwd=unpacked)
    assert "01_tensor_hooks: 4 of 8 exercises attempted; not yet" in said
    assert "03_module_hooks: left out, because none" in said
    assert " released " in said
    run_python(ROOT, "-m", "course_utils", "grade", unpacked / "Ann Lee.zip", "--report", tmp_path / "report")
    points = [(row["student"], row["exercise"], row["points"]) for row in read_scores(tmp_path / "report")]
    assert points == [("Ann Lee", each.name, worth[place]) for place, each in enumerate(exercises_of(1))]
