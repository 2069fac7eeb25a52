"""Print what `check` says to each kind of answer to every exercise, in whatever edition of the course is imported.

    python release_outcomes.py PAGES SEED

PAGES is the whole course's folder of answers: a right answer and a mistake each are taken from there. They run as
if they stood in the imported edition, so that no line of theirs counts as a learner's own.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from course_utils.exercises import engine
from course_utils.exercises.answers import parse_page, run_answer


def read_answers(page: Path, exercise: engine.Exercise) -> dict[str, Callable]:
    """The reference answer and a mistake."""
    found = parse_page(page.read_text(encoding="utf-8"))
    names = dict(vars(sys.modules[exercise.make_cases.__module__]))
    place = str(Path(engine.__file__).with_name("no_file.py"))  # so that no text is taken for theirs
    exec(compile(found.shared, place, "exec"), names)
    texts = {"reference": found.answers[0], "mistake": found.mistakes[-1][1]}
    return {kind: run_answer(text, exercise.name, names, place) for kind, text in texts.items()}


def find_outcomes(pages: Path, seed: int) -> dict[str, dict[str, str]]:
    """What `check` says, by exercise and kind of answer."""
    said = {}
    for exercise in engine.exercises_of():
        patient = replace(exercise, limit=300.0)  # a slow machine must not decide
        answers = read_answers(pages / f"{exercise.name}.md", exercise)
        answers["prints"] = lambda *_, **__: print("an answer that prints")
        said[exercise.name] = {kind: str(patient.check(answer, seed)) for kind, answer in answers.items()}
    return said


if __name__ == "__main__":
    print(json.dumps(find_outcomes(Path(sys.argv[1]), int(sys.argv[2]))))
