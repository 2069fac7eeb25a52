"""The file that is handed in, and which files and names the grader finds; hostile ones are only read."""

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import nbformat
import pytest
from grading_samples import LESSONS, START, Crew, DeskHere, grade_here, handed_out, put

from course_utils.authoring import build, source
from course_utils.exercises.engine import exercises_of
from course_utils.grading.roster import NOT_HANDED_IN, NOT_ON_ROSTER, add_roster, read_roster
from course_utils.grading.sandbox.own_folder import LOCK, PREFIX, OwnFolder
from course_utils.grading.submissions import (
    DAMAGED,
    MAX_BYTES,
    MAX_OTHERS,
    Submission,
    find_submissions,
    name_by_cells,
    read_submission,
)
from course_utils.grading.submit import submit
from course_utils.root import ROOT, CourseError

BLANK = nbformat.writes(handed_out(START))
BOTH = [("ann", START.name, True), ("bo", START.name, True)]


def seen(place):
    """Student, name, and whether it can be graded, of everything found."""
    return [(one.student, one.name, one.reason == "") for one in find_submissions(place, LESSONS)]


@pytest.mark.parametrize(
    ("ann", "bo"),
    [
        ("ann/LESSON.ipynb", "bo/LESSON.ipynb"),
        ("LESSON/ann.ipynb", "LESSON/bo.ipynb"),
        ("submitted/ann/LESSON/LESSON.ipynb", "submitted/bo/LESSON/LESSON.ipynb"),
        ("ann/LESSON/LESSON.ipynb", "bo/LESSON/LESSON.ipynb"),
        ("ann/LESSON.ipynb", "LESSON/bo.ipynb"),
    ],
)
@pytest.mark.parametrize("above", ["", "class/"])
def test_every_layout_is_understood(ann, bo, above, tmp_path):
    """In a folder, in a zip, and in a zip of the folder."""
    folder, places = tmp_path / "class", [place.replace("LESSON", START.name) for place in (ann, bo)]
    put(folder, *places, text=BLANK)
    assert seen(folder) == BOTH
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
        for place in places:
            archive.write(folder / place, f"{above}{place}")
        archive.writestr(f"__MACOSX/._{START.name}.ipynb", "")
    assert seen(tmp_path / "class.zip") == BOTH


def test_other_folders_of_nbgrader_and_of_a_learner_are_not_looked_at(tmp_path):
    nested, one = f"{START.name}/{START.name}.ipynb", f"ann/{START.name}.ipynb"
    put(tmp_path / "one", f"submitted/ann/{nested}", f"source/{nested}", text=BLANK)
    put(tmp_path / "two", one, f"ann/backups/{START.name}.ipynb", text=BLANK)
    assert seen(tmp_path / "one") == seen(tmp_path / "two") == BOTH[:1]
    assert seen(tmp_path / "two" / one) == [("student", START.name, True)], "one file alone"


def test_every_file_in_the_folder_gets_a_row(tmp_path):
    folder, outside = tmp_path / "class", tmp_path / "outside"
    for name in ("ann", "empty", "up..down", "line\nbreak", ".git"):
        (folder / name).mkdir(parents=True)
    name = f"{START.name}.ipynb"
    put(outside, "secret.ipynb", text=BLANK)
    put(folder, f"ann/{name}", "ann/00_start_her (1).ipynb", "loose.ipynb", text=BLANK)
    put(folder, f"cy/homework/{name}", f"di/{name}", f"{START.name}/di.ipynb", text=BLANK)
    put(folder, "ann/notes.txt", "empty/answers.py", "readme.md", text="mine")
    (folder / "ann" / "01_tensor_hooks.ipynb").symlink_to(outside / "secret.ipynb")
    (folder / "linked").symlink_to(outside, target_is_directory=True)
    found = {(each.student, each.name): each.reason for each in find_submissions(folder, LESSONS) if each.reason}
    wanted = {
        ("ann", "00_start_her (1)"): "the nearest is 00_start_here.ipynb",
        ("ann", "01_tensor_hooks"): "links are not followed",
        ("empty", ""): "only answers.py",
        ("linked", ""): "links are not followed",
        ("up..down", ""): "should have",
        ("line\\nbreak", ""): "should have",
        ("", "loose.ipynb"): "not in a student's folder",
        ("cy", START.name): "too deep",
        ("di", START.name): "second notebook",
    }
    assert found.keys() == wanted.keys()
    assert not [where for where, words in wanted.items() if words not in found[where]]


def test_only_small_regular_files_are_opened(tmp_path):
    (tmp_path / "folder.ipynb").mkdir()
    (tmp_path / "large.ipynb").write_bytes(b" " * (MAX_BYTES + 1))
    (tmp_path / "link.ipynb").symlink_to(tmp_path / "large.ipynb")
    os.mkfifo(tmp_path / "pipe.ipynb")
    reasons = dict.fromkeys(("folder", "link", "pipe"), "not a regular file")
    for name, reason in (reasons | {"large": "than 20 MB", "gone": "cannot be read: No such file"}).items():
        with pytest.raises(CourseError, match=reason):
            read_submission(Submission("ann", name, tmp_path / f"{name}.ipynb"))


def test_a_hostile_zip_is_only_read(tmp_path):
    path, name = tmp_path / "class.zip", f"{START.name}.ipynb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for place in ("../..", "/etc", "ann"):
            archive.writestr(f"{place}/{name}", BLANK)
        archive.writestr(f"bomb/{name}", b" " * 100_000_000)
        link = zipfile.ZipInfo(f"link/{name}")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    found = {one.student: one for one in find_submissions(path, LESSONS)}
    assert [student for student, one in found.items() if not one.reason] == ["ann", "bomb"]
    assert len(found) == 5
    assert read_submission(found["ann"]) == BLANK.encode()
    with pytest.raises(CourseError, match="larger than 20 MB"):
        read_submission(found["bomb"])
    data = path.read_bytes()
    place = data.index(f"ann/{name}".encode()) + len(f"ann/{name}")
    path.write_bytes(data[:place] + bytes(40) + data[place + 40 :])
    with pytest.raises(CourseError, match="cannot be read"):
        read_submission(found["ann"])
    assert os.listdir(tmp_path) == ["class.zip"]


def zipped(files):
    """The bytes of a zip; a name may occur twice."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for place, text in files:
            archive.writestr(place, text)
    return data.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_a_name_that_is_twice_in_a_zip_the_first_is_read_and_the_second_noted(tmp_path):
    name = f"ann/{START.name}.ipynb"
    files = (name, "first"), (name, "second"), (f"bo\\{START.name}.ipynb", BLANK)
    (tmp_path / "class.zip").write_bytes(zipped(files))
    first, second, other = find_submissions(tmp_path / "class.zip", LESSONS)
    assert (first.student, first.reason, read_submission(first)) == ("ann", "", b"first")
    assert (second.student, second.reason) == ("ann", "it is a second notebook for this lesson; the first counts")
    assert (other.student, read_submission(other)) == ("bo", BLANK.encode()), "a zip that Windows made"


def test_the_zip_of_a_student_counts_as_a_folder_and_nothing_hidden_is_lost(tmp_path):
    name, folder = f"{START.name}.ipynb", tmp_path / "class"
    inner = zipped([(name, BLANK)])
    before = ("ann/", "..up/", ".cy/", "ann/.", "ann/.ipynb_checkpoints/")
    put(folder, *(f"{each}{name}" for each in before), text=BLANK)
    put(folder, ".idea/x", ".DS_Store", f"ann/._{name}", "Ed.rar", "ann/data.gz", "cut.zip", text="x")
    for place, files in {
        "Bo.zip": [(f"work/{name}", BLANK), (f"work/backups/{name}", BLANK)],
        "Moodle_7/any.ZIP": [(f"a/b/c/{name}", BLANK)],
        f"{START.name}/di.zip": [(name, BLANK)],
        "empty.zip": [("docs/", "")],
        "deep.zip": [("one.zip", inner), ("two.zip", zipped([("three.zip", inner)]))],
        "many.zip": [(f"{number}", "") for number in range(2001)],
    }.items():
        put(folder, place, text=zipped(files))
    put(folder, "large.zip", text=b"")
    os.truncate(folder / "large.zip", MAX_BYTES + 1)
    whole = Path(shutil.make_archive(tmp_path / "class", "zip", folder))
    for place in (folder, whole):
        found = find_submissions(place, LESSONS)
        taken = {each.student: read_submission(each) for each in found if not each.reason}
        assert taken == dict.fromkeys(("ann", "Bo", "Moodle_7", "di", "deep"), BLANK.encode())
        reasons = {f"{each.student}/{each.name}": each.reason for each in found if each.reason}
        assert [where for where, words in REASONS.items() if words not in reasons.pop(where)] == []
        assert [where for where in reasons if not where.startswith("..up/")] == [], "and no row too many"
    put(tmp_path, "Bo.zip", text=inner)
    assert seen(tmp_path / "Bo.zip") == [("Bo", START.name, True)], "given by itself"


REASONS = {
    f"ann/.{START.name}": "is hidden",
    f".cy/{START.name}": "is hidden",
    "/Ed.rar": "not in a student's folder",
    "cut/": "cut.zip is not a zip that can be read",
    "empty/": "no notebook in the folder, only nothing",
    "deep/three.zip": "a zip in a zip in a zip",
    "large/": "larger than 20 MB",
    "many/": "it holds 2,001 files",
}


@pytest.mark.parametrize(
    "data",
    [
        b"student,mail\nann,a@b\n\nZo\xc3\xa9 Day,\n",
        "mail,Student\r\na,ann\r\nz,\r\nx, zoé  day".encode(),
        "\ufeffStudent ID;Gruppe\nann;1\nANN;1\nZoé Day;2\n".encode(),
        "sep=;\nlogin;x\nann;1\nZoé Day;2\n".encode(),
        "First name\tSurname\n\tann\nZoe\u0301\tDay\nZoé\tDay\n".encode("utf-16"),
        "Last name,First name,ID number\nann,,7\nDay,Zoé,8\n".encode("utf-16-le"),
        "Student,SIS Login ID\n,Manual\n    Points Possible,\nann,a\nStudent,SIS Login ID\nZoé Day,z".encode(),
        '"Full name";"e,mail"\n"ann";"x"\n"Zoé\u00a0Day";"Lee, Zoé"\n'.encode(),
    ],
)
def test_rosters_as_they_are_exported_are_read(data, tmp_path):
    (tmp_path / "roster.csv").write_bytes(data)
    assert [name.casefold() for name in read_roster(tmp_path / "roster.csv")] == ["ann", "zoé day"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "begins with nothing; its first row has to be headings"),
        (b"ann\nzoe\n", "begins with ann; its first row"),
        (b"Teilnehmer;Mail\nann;a@b\n", "begins with Teilnehmer, Mail; its first row"),
        (b"student\n \n", "holds no names"),
        ("student\né".encode("latin-1"), "not CSV in UTF-8 or UTF-16"),
        (b'student\n"ann\nzoe\n', "not CSV in UTF-8 or UTF-16"),
        (b"student,mail\nLee, Ann,a@b\n", "more cells than headings beside Lee"),
        (b"name,login\nAnn Lee,a1\nann lee,a2\n", "two students called Ann Lee"),
    ],
)
def test_what_is_no_roster_is_refused_in_a_sentence(data, words, tmp_path):
    (tmp_path / "roster.csv").write_bytes(data)
    with pytest.raises(CourseError, match=words):
        read_roster(tmp_path / "roster.csv")


def test_a_roster_keeps_its_columns(tmp_path):
    put(tmp_path, "roster.csv", text="Section;Student;ID\nA; ann ;1\n;zoe\n")
    found = {name: list(row.items()) for name, row in read_roster(tmp_path / "roster.csv").items()}
    assert found["ann"] == [("Section", "A"), ("Student", "ann"), ("ID", "1")]
    assert found["zoe"] == [("Section", ""), ("Student", "zoe"), ("ID", "")]


def test_a_folder_called_almost_as_a_student_is_theirs(tmp_path):
    put(tmp_path, *(f"{name}/{START.name}.ipynb" for name in ("zoe\u0301  DAY", "ann", "Ann")), text=BLANK)
    people = {"Ann": {}, "Zoé Day": {}, "bo": {}}
    found = add_roster(find_submissions(tmp_path, LESSONS), people, {START.name: START})
    wanted = [("Ann", ""), ("Ann", "it is a second notebook for this lesson; the first counts")]
    assert [(each.student, each.reason) for each in found] == [*wanted, ("Zoé Day", ""), ("bo", NOT_HANDED_IN)]
    (guest,) = add_roster(found[:1], {"bo": {}}, {})
    assert guest.remark == NOT_ON_ROSTER
    damaged = Submission("Ánn", "", reason=f"Ánn.zip is no zip {DAMAGED}")
    found = [Submission("ZOE", START.name), damaged, Submission("Zoey", "")]
    found = add_roster(found, {"Zoë": {}, "Ann": {}}, {START.name: START})
    wanted = [("Ann", ""), ("Zoey", f"{NOT_ON_ROSTER}; did you mean Zoë?"), ("Zoë", "")]
    assert [(each.student, each.remark) for each in found] == wanted


TENSORS = "01_tensor_hooks"
MOODLE_ROSTER = """Identifier,Full name,Email address,Status,Grade,Maximum grade
Participant 1204500,Ann Lee,ann@x.org,Submitted for grading,-,8.00
Participant 1204501,Zoé O'Neill Day,zoe@x.org,"Submitted for grading, 2 hours 5 mins late",,8.00
Participant 1204502,Ann Lee,ann2@x.org,Submitted for grading,,8.00
Participant 1204503,Fei Wang,fei@x.org,No submission,,8.00
"""
CANVAS_ROSTER = """Student,ID,SIS User ID,SIS Login ID,Section,old (3)
    Points Possible,,,,,8
"Lee, Ann",4400,s1,alee,A,-
"O'Neill Day, Zoé",4401,s2,zday,A,
"Wang, Fei",4402,s3,fwang,A,
"Student, Test",4499,,x,A,
"""
# What platforms write, with its roster, and who handed in what: student, lesson, late.
DOWNLOADS = {
    "Moodle, a folder each": (
        MOODLE_ROSTER,
        {
            "Ann Lee_1204500_assignsubmission_file/Ann Lee.zip": "zip",
            "Ann Lee_1204500_assignsubmission_onlinetext/onlinetext.html": "page",
            "Zoé O'Neill Day_1204501_assignsubmission_file/work/START.ipynb": "notebook",
            "Ann Lee_1204502_assignsubmission_file_/START.ipynb": "notebook",
        },
        {"Ann Lee (Participant 1204500)", "Ann Lee (Participant 1204502)", "Zoé O'Neill Day late"},
    ),
    "Moodle, all in one folder": (
        MOODLE_ROSTER,
        {
            "Ann Lee_1204500_assignsubmission_file_Ann Lee.zip": "zip",
            "O'Neill Day Zoe_99_assignsubmission_file_START.ipynb": "notebook",  # by the words: the number is another's
        },
        {"Ann Lee (Participant 1204500)", "Zoé O'Neill Day late"},
    ),
    "Moodle, anonymous": (
        MOODLE_ROSTER,
        {"Participant_1204500_assignsubmission_file/START.ipynb": "notebook"},
        {"Ann Lee (Participant 1204500)"},
    ),
    "Canvas": (
        CANVAS_ROSTER,
        {
            "leeann_4400_990000_Ann Lee.zip": "zip",
            "oneilldayzo_LATE_4401_990001_START-1.ipynb": "notebook",
            "wangfei_4402_text.html": "page",
            "studenttest_4499_990002_START.ipynb": "notebook",
        },
        {"Lee, Ann", "O'Neill Day, Zoé late", "Wang, Fei: there is no notebook in the folder, only text.html"},
    ),
    "Canvas, with a roster that has no numbers": (
        CANVAS_ROSTER.replace("ID,SIS User ID", "x,y"),
        {"leeann_4400_990000_Ann Lee.zip": "zip", "zday/START.ipynb": "notebook"},
        {"Lee, Ann", "O'Neill Day, Zoé"},
    ),
    "plain folders beside a roster of Canvas": (
        CANVAS_ROSTER,
        {"Ann Lee/START.ipynb": "notebook", "fei  WANG/START.ipynb": "notebook", "zoe o_neill day.zip": "zip"},
        {"Lee, Ann", "O'Neill Day, Zoé", "Wang, Fei"},
    ),
}


FORMS = [(name, form) for name in DOWNLOADS for form in ("folder", "zip")]
FORMS += [(name, "a download in a folder") for name in DOWNLOADS if "roster" not in name]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_downloads_of_platforms_are_matched_with_their_rosters(name, form, tmp_path):
    roster, files, wanted = DOWNLOADS[name]
    inner = zipped([(f"Ann Lee/{START.name}.ipynb", BLANK), ("Ann Lee/submission.json", "{}")])
    texts = {"zip": inner, "notebook": BLANK, "page": "<html>"}
    folder = tmp_path / "class"
    put(folder, "readme.txt", text="mine")
    for place, kind in files.items():
        put(folder, place.replace("START", START.name), text=texts[kind])
    if form != "folder":
        (folder / "readme.txt").unlink()
        whole = Path(shutil.make_archive(tmp_path / "whole" / "PY-Lesson 1-998", "zip", folder))
        folder = whole if form == "zip" else whole.parent
    put(tmp_path, "roster.csv", text=roster)
    people = read_roster(tmp_path / "roster.csv")
    found = [one for one in add_roster(find_submissions(folder, LESSONS), people, {START.name: START}) if one.path]
    found += [one for one in add_roster(find_submissions(folder, LESSONS), people, {}) if not one.path and not one.name]
    said = {one.student + " late" * one.late + (f": {one.reason}" if one.reason else "") for one in found}
    assert (said, {one.remark for one in found}) == (wanted, {""})


IMPOSTORS = [
    (f"ann/Bo Roe_1204500_assignsubmission_file_{START.name}.ipynb", BLANK),
    (f"ann/Bo Roe_1204500_assignsubmission_file_/{START.name}.ipynb", BLANK),
    ("ann.zip", zipped([(f"Bo Roe_1204500_assignsubmission_file_/{START.name}.ipynb", BLANK)])),
    ("ann.zip", zipped([(f"boroe_4400_990000_{START.name}.ipynb", BLANK)])),
]


@pytest.mark.parametrize(("place", "content"), IMPOSTORS)
def test_nobody_hands_in_under_another_name(place, content, tmp_path):
    """What looks like a platform's name is one only where all folders and zips beside it are such downloads."""
    put(tmp_path, f"cy/{START.name}.ipynb", text=BLANK)
    put(tmp_path, place, text=content)
    assert {one.student for one in find_submissions(tmp_path, LESSONS)} == {"ann", "cy"}


def test_names_and_zips_that_would_keep_the_grader_busy_are_not_looked_at(tmp_path):
    """To compose this name's letters takes seconds for each file; to find a zip's list of files, it is unpacked."""
    slow = "a" + "\u0345" * 16_000 + "\u0334" * 16_000
    names = [*(f"{slow}{number}.ipynb" for number in range(30)), f"{START.name}.ipynb"]
    put(tmp_path, "ann.zip", text=zipped([(name, BLANK) for name in names]))
    with zipfile.ZipFile(tmp_path / "bo.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(5):
            archive.writestr(f"{number}.zip", zipped([("pad", " " * (MAX_BYTES // 4))]))
    found = find_submissions(tmp_path, LESSONS)
    assert [one.name for one in found if not one.reason] == [START.name]
    (reason,) = (one.reason for one in found if one.student == "bo")
    assert reason.endswith("the zips in it hold more than 20 MB")
    assert max(len(one.name) + len(one.reason) for one in found) < 200


def test_a_flood_of_files_gets_few_rows_and_little_time(tmp_path, monkeypatch):
    put(tmp_path, "ann.zip", text=zipped([(f"{number}.ipynb", "{}") for number in range(500)]))
    put(tmp_path, f"bo/{START.name}.ipynb", *(f"bo/{number}.ipynb" for number in range(20)), text=BLANK)
    found = find_submissions(tmp_path, LESSONS)
    named = name_by_cells(found, LESSONS, DeskHere())
    flood = [one for one in named if one.student == "ann"]
    assert (len(flood), [one.reason for one in flood if not one.name]) == (
        MAX_OTHERS + 1,
        ["it is one of 480 more files that belong to no lesson"],
    )
    assert len([one for one in named if one.student == "bo"]) == 21
    monkeypatch.setattr("course_utils.grading.submissions.MAX_SECONDS", 0.0)
    name_by_cells(found, LESSONS, desk=None)  # no time, so nothing is read


def test_who_cannot_be_told_apart_is_for_a_person_and_nobody_is_taken_for_somebody_else(tmp_path):
    put(tmp_path, "roster.csv", text=MOODLE_ROSTER)
    people = read_roster(tmp_path / "roster.csv")
    found = {name: add_roster([Submission(name, START.name)], people, {})[0] for name in ("Ann Lee", "Lee, Anne", "Bo")}
    assert "several on the roster are called so" in found["Ann Lee"].remark
    assert found["Lee, Anne"].remark.startswith(f"{NOT_ON_ROSTER}; did you mean Ann Lee (")
    assert found["Bo"].remark == NOT_ON_ROSTER
    put(tmp_path, "roster.csv", text=CANVAS_ROSTER.replace('"Lee, Ann",4400', '"Lee, Bo",4403'))
    people = read_roster(tmp_path / "roster.csv")
    (guest,) = add_roster([Submission("Ann Lee", START.name)], people, {})
    assert "Wang" not in guest.remark


@pytest.mark.parametrize(
    "file",
    [
        "{}-Copy1.ipynb",
        "{} (1).ipynb",
        "{}-2.ipynb",
        "Copy of {}.ipynb",
        "ann_{}.ipynb",
        "Ann Lee - {} final.IPYNB",
        "{}.ipynb.txt",
        "{}.ipynb.json",
        "{}.py",
        "01 Tensor-Hooks.ipynb",
        "homework.ipynb",
    ],
)
def test_a_notebook_that_was_renamed_is_graded(file, tmp_path):
    place = tmp_path / "ann" / file.format(TENSORS)
    script = "# %% [markdown]\n# Hooks\n# %%\n%matplotlib inline\n# %%\ndef scale_gradient(t, f): ...\n"
    put(place.parent, place.name, text=script if file.endswith("py") else nbformat.writes(handed_out(LESSONS[TENSORS])))
    (found,) = name_by_cells(find_submissions(tmp_path, LESSONS), LESSONS, DeskHere())
    assert (found.student, found.name, found.reason, found.lesson) == ("ann", TENSORS, "", LESSONS[TENSORS])
    put(place.parent, f"{TENSORS}.ipynb", text=nbformat.writes(handed_out(LESSONS[TENSORS])))
    first, *more = name_by_cells(find_submissions(tmp_path, LESSONS), LESSONS, DeskHere())
    assert (first.file, first.reason) == (f"{TENSORS}.ipynb", "")
    second = [f"{place.name} is a second notebook for this lesson; {first.file} counts"]
    assert [each.reason for each in more] == ([] if file.endswith("py") else second)


def test_a_notebook_that_fits_no_lesson_or_two_is_for_a_person(tmp_path):
    both = handed_out(START)
    both.cells += handed_out(LESSONS[TENSORS]).cells
    put(tmp_path, "ann/both.ipynb", text=nbformat.writes(both))
    put(tmp_path, "bo/none.ipynb", text=nbformat.writes(nbformat.v4.new_notebook()))
    put(tmp_path, f"cy/{TENSORS} {START.name}.ipynb", text=nbformat.writes(both))
    found = name_by_cells(find_submissions(tmp_path, LESSONS), LESSONS, DeskHere())
    assert [(each.student, each.lesson, "not the name of a lesson" in each.reason) for each in found] == [
        ("ann", None, True),
        ("bo", None, True),
        ("cy", None, True),
    ]


def test_a_killed_process_leaves_its_folder_to_the_next_and_a_living_one_keeps_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    put(tmp_path, "kept/file", text="")
    links = {tmp_path / f"{PREFIX}link{end}" for end in ("", LOCK, "2")}
    for link in links:
        link.symlink_to(tmp_path / "kept")
    put(tmp_path, f"{PREFIX}link2{LOCK}", text="")
    others = {*tmp_path.iterdir()}
    code = "import os\nfrom course_utils.grading.sandbox.own_folder import OwnFolder\nown = OwnFolder()\n"
    for end, left in (("os.kill(os.getpid(), 9)", 1), ("pass", 0)):
        subprocess.run([sys.executable, "-c", code + end], check=False)
        assert len([path for path in {*tmp_path.iterdir()} - others if path.is_dir()]) == left
        with OwnFolder() as first, OwnFolder() as second:
            assert {path for path in {*tmp_path.iterdir()} - others if path.is_dir()} == {first.path, second.path}
        assert {*tmp_path.iterdir()} == others
    assert [*tmp_path.rglob("file")] == [tmp_path / "kept" / "file"]


@pytest.fixture
def work(tmp_path):
    """Lesson 01 half done, with a slip and an answer that is assigned; 02 damaged; 03 as it came; the others not there.

    There is a copy with its own name.
    """
    folder = tmp_path / "work"
    answers = {each.name: each.source for each in exercises_of(1)[:3]}
    answers[exercises_of(1)[7].name] = f"{exercises_of(1)[7].name} = print\n"
    answers["keep_positive"] = "def keep_positive(tensor):\n    return tensor register_hook\n"
    lesson = nbformat.read(ROOT / "notebooks" / f"{TENSORS}.ipynb", as_version=4)
    build.write(source.put_answers(lesson, answers), folder / f"{TENSORS}.ipynb")
    for name in ("03_module_hooks.ipynb", "inventory.ipynb"):
        shutil.copy(ROOT / "notebooks" / name, folder)
    (folder / "02_retain_grad_or_hook.ipynb").write_text('{"cells": [')
    (folder / "My \n copy.ipynb").write_text("{}")
    return folder


def test_what_is_there_and_what_is_missing_is_said_and_the_grader_reads_the_file(work, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(" Ann  Lee \n"))
    assert submit(work=work, folder=tmp_path) == 0
    said = capsys.readouterr().out
    for line in (
        f"{TENSORS}: 4 of 8 exercises attempted; not yet {', '.join(each.name for each in exercises_of(1)[3:7])}.",
        "    keep_positive: your line 2, `return tensor register_hook`, is not Python: invalid syntax.",
        "02_retain_grad_or_hook: left out, because it is not complete JSON",
        "03_module_hooks: left out, because none of its exercises has been attempted.",
        "04_inside_call: left out, because it is not in the folder `work`.",
        "My \\n copy.ipynb: left out, because no lesson has this name.",
        f"\nIt is written, and not sent yet. Send this one file to your instructor:  {tmp_path / 'Ann Lee.zip'}",
    ):
        assert line in said
    assert "inventory" not in said, "it is no lesson, and nothing to hand in"
    with zipfile.ZipFile(tmp_path / "Ann Lee.zip") as archive:
        about = json.loads(archive.read("Ann Lee/submission.json"))
        archive.extractall(tmp_path / "class")
    assert (about["name"], about["attempted"], " whole " in about["edition"]) == ("Ann Lee", {TENSORS: 4}, True)
    assert about["torch"]
    for place in ("Ann Lee.zip", "class"):
        (found,) = find_submissions(tmp_path / place, LESSONS)
        assert (found.student, found.name, found.reason) == ("Ann Lee", TENSORS, "")


def test_an_own_file_is_replaced_another_persons_stays_and_nothing_is_half_written(work, tmp_path):
    for name in ("Ann/Lee", "Ann/Lee", "Bob"):
        submit(name, work=work, folder=tmp_path)
    (tmp_path / "Cy.zip").write_bytes(b"no zip")
    kept = {path: path.read_bytes() for path in tmp_path.glob("*.zip")}
    for name in ("Ann-Lee", "Cy"):
        with pytest.raises(CourseError, match=rf"{name}\.zip is there already, and not from {name}\."):
            submit(name, work=work, folder=tmp_path)
    with pytest.raises(CourseError, match="There is nothing to hand in"):
        submit("Dee", work=tmp_path / "nowhere", folder=tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == kept


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("../../etc/passwd", "etc-passwd"),
        ("..hidden", "hidden"),
        ("Zoe\u0301 O'Neill (B)", "Zo\u00e9 O'Neill (B)"),
        ("\u674e\u660e", "\u674e\u660e"),
        ("C:\\x\u202e\n\udc80 y", "C-x y"),
        ("\U0001f41f" * 60, "\U0001f41f" * 30),
        (TENSORS, TENSORS),
    ],
)
def test_an_odd_name_is_a_folder_that_the_grader_reads(work, tmp_path, name, folder):
    submit(name, work=work, folder=tmp_path)
    (found,) = find_submissions(tmp_path / f"{folder}.zip", LESSONS)
    assert (found.student, found.name, found.reason) == (folder, TENSORS, "")


@pytest.mark.parametrize("name", ["", " ", "..", "/", "\u200b", "submitted", "__MACOSX", "submission.json"])
def test_what_is_no_name_is_refused(name, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(CourseError, match=r'make submit NAME="Ann Lee"'):
        submit(name)


def test_nothing_is_run_but_on_demand(work, tmp_path, capsys, monkeypatch):
    grade_here(monkeypatch)
    for is_asked in (False, True):
        submit("Ann", is_asked, work, tmp_path)
        assert (bool(Crew.given), "scale_gradient: passed" in capsys.readouterr().out) == (is_asked, is_asked)
