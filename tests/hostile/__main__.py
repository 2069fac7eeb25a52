"""Print the corpus as a table: `python tests/hostile`. What each case asks for is checked by `test_grading_hostile`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from course_utils.grading.report import NOT_GRADED
from hostile.answers import ATTACKS, EXERCISE
from hostile.classroom import LESSON, grade_class, write_class


def main() -> None:
    """Grade the class in a temporary folder, and print a row for each case."""
    with tempfile.TemporaryDirectory(prefix="course-hostile-") as name:
        folder, report = Path(name, "class"), Path(name, "report")
        folder.mkdir()
        report.mkdir()
        files = write_class(folder)
        graded = grade_class(folder, report)
    print("| case | score | fair score | seconds | by hand |\n|---|---|---|---|---|")
    rows = {(row.student, row.exercise): row for row in graded.scores}
    for attack in ATTACKS:
        row = rows[attack.name, EXERCISE]
        fair = row.possible if attack.passes else 0
        by_hand = "yes" if row.look_by_hand else "no"
        print(f"| {attack.name} | {row.points} | {fair} | {row.seconds:.2f} | {by_hand} |")
    possible = sum(exercise.points for exercise in LESSON.exercises)
    for student, reason in files.items():
        mine = [row for row in graded.scores if row.student == student]
        score = "no score" if mine[0].stage == NOT_GRADED else sum(row.points for row in mine)
        fair = f"no score: {reason}" if reason else possible
        by_hand = "yes" if any(row.look_by_hand for row in mine) else "no"
        print(f"| file: {student[2:]} | {score} | {fair} | {sum(row.seconds for row in mine):.2f} | {by_hand} |")
    honest = [row for row in graded.scores if row.student.startswith("honest")]
    print(f"\nhonest neighbours: {sum(row.points for row in honest)} of {sum(row.possible for row in honest)} points")
    print("\n".join(graded.isolation))


if __name__ == "__main__":
    main()
