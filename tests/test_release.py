"""The release for students: no answers in it, checks that say the same, lessons that run, grades as ever."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from lesson_runs import NotebookClient

from course_utils import root
from course_utils.__main__ import STUDENT_COMMANDS, main
from course_utils.authoring import build, release, source
from course_utils.authoring.answer_search import find_answers
from course_utils.authoring.release import (
    FOLDER,
    ROOT,
    SEEDS,
    gives_away,
    make_release,
    student_module,
    write_zip,
)
from course_utils.exercises import check, classroom, recorded
from course_utils.exercises.engine import exercises_of, find
from course_utils.exercises.outcome import Stage
from course_utils.exercises.recorded import NotRecorded, recorded_key
from course_utils.grading.batch import grade
from course_utils.grading.lessons import read_lessons
from course_utils.grading.submissions import find_submissions
from course_utils.root import CourseError, has_answers

EXERCISES = {each.name: each for each in exercises_of()}
LESSONS = read_lessons()
OUTCOMES = Path(__file__).with_name("release_outcomes.py")
MODULES = ROOT / "course_utils" / "exercises"


# ----------------------------------------------------------------------------------------------------------- searching


@pytest.mark.parametrize("name", EXERCISES)
def test_the_search_finds_every_reference_answer(name):
    exercise = EXERCISES[name]
    source = exercise.source
    tree = ast.parse(source)
    for node in ast.walk(tree):  # as another would write it: other names, other layout
        if isinstance(node, ast.FunctionDef) and node.name == name:
            node.name = "other"
    cells = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"x = 1\n\n\n{source}\nx = 2")])
    indented = "\n".join(f"        {line}" for line in source.splitlines())
    files = {
        "course_utils/a.py": f"import torch\n\n\nclass Holder:\n    if True:\n{indented}\n".encode(),
        "b.ipynb": nbformat.writes(cells).encode(),
        "c.md": f"Some text.\n\n```python\n{source}```\n".encode(),
        "d.py": ast.unparse(tree).encode(),
        "e.json": json.dumps({"deep": [{"text": source}]}).encode(),
    }
    found = find_answers(files, [exercise])
    assert {each.file for each in found if each.answer.kind == "the reference answer"} == set(files)


def test_the_search_finds_other_names_and_other_lines_between():
    exercise = EXERCISES["record_gradient"]
    renamed = "def f(t):\n    a = []\n    t.register_hook(lambda g: a.append(g.clone()))\n    return a\n"
    apart = "tensor.register_hook(lambda grad: seen.append(grad.clone()))"
    (found,) = find_answers({"renamed.py": renamed.encode()}, [exercise])
    assert (str(found.answer), found.how) == ("the reference answer of record_gradient", "as Python")
    assert not find_answers({"apart.md": apart.encode()}, [exercise]), "one line of three is a hint"
    exercise = EXERCISES["grad_cam_with_hooks"]
    spread = "\n\n# and then\n".join(exercise.source.splitlines()[9:])
    assert find_answers({"spread.txt": spread.encode()}, [exercise])[0].how == "line by line"


def test_the_search_is_about_text_files_only():
    assert not find_answers({"net.pt": b"\x80\x00", "image.png": b"\xff"}, list(EXERCISES.values()))


# -------------------------------------------------------------------------------------------------------- what is left


@pytest.mark.parametrize("path", sorted(MODULES.glob("lesson_[0-9][0-9].py")), ids=lambda path: path.stem)
def test_a_module_keeps_its_declarations_and_loses_its_answers(path):
    source = path.read_text(encoding="utf-8")
    text = student_module(source)
    tree = ast.parse(text)
    assert ".accept" not in text
    assert ".mistake(" not in text
    assert text.count("prediction(\n") == source.count("prediction(\n")
    for exercise in exercises_of(int(path.stem[-2:])):
        (node,) = (each for each in tree.body if getattr(each, "name", "") == exercise.name)
        assert [ast.dump(each) for each in node.body[1:]] == [ast.dump(ast.Expr(ast.Constant(...)))]
        assert ast.get_docstring(node) == exercise.doc
        assert f"@{exercise.name}.cases" in text
    imported = [alias for each in tree.body if isinstance(each, ast.Import | ast.ImportFrom) for alias in each.names]
    for alias in imported:
        name = (alias.asname or alias.name).partition(".")[0]
        assert name == "annotations" or len(re.findall(rf"\b{name}\b", text)) > 1, f"{name} is imported for nothing"


def test_hints_that_are_answers_are_left_out():
    exercise = EXERCISES["keep_positive"]
    assert [gives_away(hint, exercise) for hint in exercise.hints] == [False, False, True]
    text = student_module((MODULES / "lesson_01.py").read_text(encoding="utf-8"))
    assert exercise.hints[1].split("`")[1] in text
    assert "lambda grad: grad.clamp(min=0))`" not in text
    assert not gives_away("Words alone, and `a piece of code that is none`.", exercise)
    assert gives_away("Write `grad_hook = torch.relu`, then `tensor.register_hook(grad_hook)`.", exercise)


@pytest.mark.slow
def test_an_exercise_keeps_most_of_its_hints():
    left_out = {
        name: sum(gives_away(hint, exercise) for hint in exercise.hints) for name, exercise in EXERCISES.items()
    }
    assert all(len(EXERCISES[name].hints) - count >= 2 for name, count in left_out.items())
    assert 0 < sum(left_out.values()) < len(EXERCISES) / 2


@pytest.mark.parametrize("path", source.sources(), ids=lambda path: path.stem)
def test_a_source_loses_the_teachers_notes_only(path, tmp_path):
    copy = tmp_path / path.name
    copy.write_text(release.student_source(path.read_text(encoding="utf-8")), encoding="utf-8")
    assert '"instructor"' not in copy.read_text(encoding="utf-8")
    assert source.read_source(copy).cells == source.learner(path).cells


def test_the_readme_is_for_students():
    readme = release.student_readme((ROOT / "README.md").read_text(encoding="utf-8"))
    assert "students' edition" in readme
    assert "## For " not in readme
    assert set(re.findall(r"^make (\w+)", readme, re.MULTILINE)) <= set(STUDENT_COMMANDS)
    assert "make lab" in readme


def test_linked_files_are_those_of_the_course():
    text = '[a](docs/a.md#part) ![b](img/b.png) <img src="img/c.png"> [d](https://x.org/d) [e](#here)'
    assert release.linked_files(text) == ["docs/a.md", "img/b.png", "img/c.png"]


# ------------------------------------------------------------------------------------------------------------- refusing


def as_release(monkeypatch, folder, files=()):
    """Make this process think that it is a release, with these recorded results."""
    monkeypatch.setattr(root, "ASSETS", folder)
    (folder / "recorded_99.json").write_text("{}")
    for name, content in files:
        (folder / Path(name).name).write_bytes(content)
    recorded._read.cache_clear()


@pytest.fixture
def fresh_records():
    yield
    recorded._read.cache_clear()


def test_commands_that_need_the_whole_course_are_refused_in_a_release(monkeypatch, tmp_path, fresh_records, capsys):
    as_release(monkeypatch, tmp_path)
    assert main(["grade"]) == 1
    assert re.search(r"`grade` needs the whole course.*lab, check, doctor, setup", capsys.readouterr().err)
    with pytest.raises(CourseError, match="a release already"):
        make_release()


def test_a_release_with_an_answer_in_it_is_refused():
    files = {"notes.md": EXERCISES["grad_cam_with_hooks"].source.encode()}
    with pytest.raises(CourseError, match=r"notes\.md: the reference answer of grad_cam_with_hooks"):
        release.refuse_answers(files)


def test_a_notebook_that_is_not_built_is_refused(tmp_path):
    (tmp_path / "notebooks" / "source").mkdir(parents=True)
    source = tmp_path / "notebooks" / "source" / "00_start_here.py"
    source.write_bytes((ROOT / "notebooks" / "source" / source.name).read_bytes())
    with pytest.raises(CourseError, match=r"no 00_start_here\.ipynb: run  make notebooks"):
        release._lesson_files(source, tmp_path)
    built = tmp_path / "notebooks" / "00_start_here.ipynb"
    built.write_bytes((ROOT / "notebooks" / built.name).read_bytes())
    source.write_text(source.read_text(encoding="utf-8").replace("# # ", "# # New: ", 1), encoding="utf-8")
    with pytest.raises(CourseError, match="is not what its source says"):
        release._lesson_files(source, tmp_path)


def test_a_course_without_sources_is_refused(tmp_path):
    (tmp_path / "README.md").write_text("# The course\n")
    with pytest.raises(CourseError, match="has no folder `source`"):
        make_release(tmp_path)


def test_check_says_so_where_a_recorded_result_is_missing_or_damaged(monkeypatch, tmp_path, fresh_records):
    as_release(monkeypatch, tmp_path)
    outcome = check(EXERCISES["largest"].reference)
    assert outcome.stage is Stage.NOT_AN_EXERCISE
    assert "lesson 00 are missing or damaged. Unpack the course again." in str(outcome)
    (tmp_path / "recorded_00.json").write_text('{"torch": "2", "seeds": [0], "exercises": {}}')
    with pytest.raises(NotRecorded, match="No result of largest"):
        recorded_key(0, "largest", 0)


def test_recorded_results_are_what_was_seen_and_check_draws_among_them(monkeypatch, tmp_path, fresh_records):
    (exercise,) = exercises_of(0)
    seen = {seed: exercise.key(seed) for seed in SEEDS[:3]}
    content = json.dumps(recorded.record([exercise], SEEDS[:3])).encode()
    assert content == json.dumps(recorded.record([exercise], SEEDS[:3])).encode(), "the same every time"
    as_release(monkeypatch, tmp_path, [("recorded_00.json", content)])
    for seed, (reference, mistakes) in seen.items():
        got, theirs = exercise.key(seed)
        assert got == reference
        assert [{**case, "printed": ""} for cases in mistakes.values() for case in cases] == [
            case for cases in theirs.values() for case in cases
        ]
    assert {exercise.fresh_seed() for _ in range(60)} == set(SEEDS[1:3])
    assert classroom.check(exercise.reference).passed


def test_results_that_would_tell_nothing_are_not_recorded(monkeypatch):
    (exercise,) = exercises_of(0)
    right = exercise.key(0)
    late = [{**case, "raised": {"type": "TimeIsUp"}} for case in right[0]]
    monkeypatch.setattr(type(exercise), "key", lambda self, seed: (late, right[1]))
    with pytest.raises(NotRecorded, match="reference answer to largest did not come to an end"):
        recorded.record([exercise], [0])
    monkeypatch.setattr(type(exercise), "key", lambda self, seed: (right[0], {"No mistake at all.": right[0]}))
    with pytest.raises(CourseError, match=r"largest was not recognised here, .* No mistake at all\."):
        release.record_results([0])


def test_in_a_release_the_instructor_has_the_answers(monkeypatch, tmp_path, fresh_records):
    as_release(monkeypatch, tmp_path)
    assert "your instructor has them" in str(classroom.solution(find("largest"), now=True))
    assert "return" not in str(classroom.solution(find("largest"), now=True))
    last = [str(classroom.hint(find("largest"))) for _ in range(4)][-1]
    assert "Your instructor has the answers." in last


# ---------------------------------------------------------------------------------------------------------------- a zip


def test_the_same_files_give_the_same_zip(tmp_path):
    files = {"b/x.txt": b"one", "a.txt": b"two"}
    for name, given in (("1.zip", files), ("2.zip", dict(reversed(files.items())))):
        write_zip(given, tmp_path / "new" / name)
        os.utime(tmp_path, (0, 0))
    first, second = ((tmp_path / "new" / name).read_bytes() for name in ("1.zip", "2.zip"))
    assert first == second
    assert zipfile.ZipFile(tmp_path / "new" / "1.zip").namelist() == [f"{FOLDER}/a.txt", f"{FOLDER}/b/x.txt"]


@pytest.fixture(scope="module")
def files():
    """The release of this course, as files."""
    return make_release()


@pytest.fixture(scope="module")
def unpacked(files, tmp_path_factory):
    """The release, zipped and unpacked somewhere else."""
    folder = tmp_path_factory.mktemp("student")
    write_zip(files, folder / "course.zip")
    with zipfile.ZipFile(folder / "course.zip") as archive:
        archive.extractall(folder)
    return folder / FOLDER


def run_python(folder, *arguments, **options):
    """Run Python with the release in `folder` as its course, and nothing of this one."""
    environment = build.kernel_environment(folder.parent) | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], env=environment, capture_output=True, text=True, check=True, **options
    ).stdout


@pytest.mark.slow
def test_no_answer_is_in_the_release(files):
    assert find_answers(files, list(EXERCISES.values())) == []
    kinds = {name.rpartition(".")[2] for name in files}
    assert kinds <= {"py", "ipynb", "md", "json", "toml", "yml", "pt", "png", "gitignore", "LICENSE", "Makefile"}, kinds
    assert not [name for name in files if name.startswith(("tests", "report", "work", "build", ".git/"))]
    assert not [name for name, content in files.items() if name.endswith(".ipynb") and b'"instructor"' in content]


@pytest.mark.slow
def test_what_students_need_is_in_the_release(files):
    assert {"README.md", "Makefile", "pyproject.toml", "LICENSE", "environment.yml"} <= files.keys()
    for lesson in LESSONS:
        assert f"notebooks/{lesson}.ipynb" in files
    for path in ROOT.glob("course_utils/assets/*"):
        assert f"course_utils/assets/{path.name}" in files
    for lesson in {exercise.lesson for exercise in EXERCISES.values()}:
        assert f"course_utils/assets/recorded_{lesson:02d}.json" in files
    readme = files["README.md"].decode()
    assert all(name in files for name in release.linked_files(readme)), "links lead somewhere"


@pytest.mark.slow
def test_no_module_in_the_release_imports_one_that_is_not(files):
    """But for the commands, which say of themselves what needs the whole course."""
    there = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files}
    for name in files:
        if not name.endswith(".py") or name == "course_utils/__main__.py":
            continue
        for node in ast.walk(ast.parse(files[name])):
            wanted = [node.module] if isinstance(node, ast.ImportFrom) else []
            wanted += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            lacking = [module for module in wanted if module.startswith("course_utils") and module not in there]
            assert not lacking, f"{name} imports {lacking}"


@pytest.mark.slow
def test_every_check_says_in_the_release_what_it_says_in_the_whole_course(unpacked):
    """All right answers, all mistakes, skeletons, answers that raise or print; for the first inputs and for others."""
    arguments = [OUTCOMES, MODULES, SEEDS[0], SEEDS[-1]]
    here, there = (json.loads(run_python(folder, *arguments)) for folder in (ROOT, unpacked))
    assert here.keys() == EXERCISES.keys()
    assert {name: len(outcomes) for name, outcomes in here.items()} == {
        name: 2 * (1 + len(each.accepted) + len(each.mistakes) + 3) for name, each in EXERCISES.items()
    }
    for name, outcomes in here.items():
        for answer, text in outcomes.items():
            assert there[name][answer] == text, f"{name}, {answer}"
            expected = "passed" if answer.startswith(("reference", "accepted")) else "not "
            assert text.startswith(f"{name}: {expected}")
            assert ("Likely cause" in text) >= answer.startswith("mistake")


@pytest.mark.slow
@pytest.mark.parametrize("lesson", ["01_tensor_hooks", "04_inside_call"])
def test_a_lesson_of_the_release_runs(unpacked, lesson, tmp_path):
    """Lesson 04 is the one that builds on its own answers."""
    notebook = nbformat.read(unpacked / "notebooks" / f"{lesson}.ipynb", as_version=4)
    client = NotebookClient(
        notebook,
        kernel_name=source.KERNELSPEC["name"],
        timeout=build.CELL_SECONDS,
        resources={"metadata": {"path": str(tmp_path)}},
        extra_arguments=["--IPKernelApp.log_level=40"],
    )
    client.execute(env=build.kernel_environment(tmp_path) | {"PYTHONPATH": str(unpacked)})
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error"]
    assert any("not attempted yet" in json.dumps(output) for output in outputs)


@pytest.mark.slow
def test_make_check_works_in_the_release(unpacked, tmp_path):
    source = unpacked / "notebooks" / "00_start_here.ipynb"
    answer = "def largest(tensor):\n    return max(tensor.flatten().tolist())\n"
    notebook = source.put_answers(nbformat.read(source, as_version=4), {"largest": answer})
    nbformat.write(notebook, tmp_path / source.name)
    said = run_python(unpacked, "-m", "course_utils.grading", "--check", tmp_path, cwd=unpacked)
    assert "largest: passed (1 point)" in said
    assert "total: 1 of 1" in said


@pytest.mark.slow
def test_the_release_can_be_installed(unpacked, tmp_path):
    """As wheels are: what is not declared as the package's data would be missing."""
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", tmp_path / "site"]
    subprocess.run([sys.executable, "-m", "pip", "install", *map(str, options), str(unpacked)], check=True)
    program = (
        "import course_utils\nfrom course_utils.exercises import check\n"
        "def largest(tensor):\n    return max(tensor.flatten().tolist())\n"
        "print(course_utils.__file__)\nprint(check(largest))\n"
    )
    said = run_python(tmp_path / "site", "-c", program, cwd=tmp_path)
    assert str(tmp_path / "site") in said
    assert "largest: passed (1 point)" in said


@pytest.mark.slow
def test_right_answers_in_a_notebook_of_the_release_get_full_marks(unpacked, tmp_path):
    lesson = LESSONS["01_tensor_hooks"]
    assert has_answers()
    released = nbformat.read(unpacked / "notebooks" / f"{lesson.name}.ipynb", as_version=4)
    for student, answers in (
        ("right", {exercise.name: exercise.source for exercise in lesson.exercises}),
        ("empty", {}),
    ):
        path = tmp_path / student / f"{lesson.name}.ipynb"
        path.parent.mkdir()
        nbformat.write(source.put_answers(released, answers, lesson.name), path)
    rows = grade(find_submissions(tmp_path, {lesson.name: lesson})).scores
    points = {name: [row.points for row in rows if row.student == name] for name in ("right", "empty")}
    assert points["right"] == [exercise.points for exercise in lesson.exercises]
    assert points["empty"] == [0] * len(lesson.exercises)
