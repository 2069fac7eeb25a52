"""Print what `check` says to each kind of answer to every exercise, in whatever edition of the course is imported.

    python release_outcomes.py PAGES SEED

PAGES is the whole course's folder of answers: a right answer and a mistake each are taken from there. They run as
if they stood in the imported edition, so that no line of theirs counts as a learner's own.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from course_utils.authoring import source
from course_utils.exercises import engine
from course_utils.exercises.answers import parse_page, run_answer


def read_answers(page: Path, exercise: engine.Exercise) -> dict[str, Callable]:
    """The reference answer and a mistake."""
    found = parse_page(page.read_text(encoding="utf-8"))
    names, place = dict(vars(sys.modules[exercise.make_cases.__module__])), engine.__file__
    exec(compile(found.shared, place, "exec"), names)
    texts = {"reference": found.answers[0], "mistake": found.mistakes[-1][1]}
    return {kind: run_answer(text, exercise.name, names, place) for kind, text in texts.items()}


def main(pages: Path, seed: int) -> None:
    """Print the outcomes as JSON: {exercise: {answer: text}}."""
    said = {}
    learners = map(source.learner, source.sources())
    cells = {name: cell for each in learners for name, cell in source.answer_cells(each).items()}
    for exercise in engine.exercises_of():
        exercise.limit = 300.0  # a slow machine must not decide
        names = vars(sys.modules[exercise.make_cases.__module__]) | {"__name__": "notebook"}
        exec(compile(cells[exercise.name].source, "<cell>", "exec"), names)
        answers = read_answers(pages / f"{exercise.name}.md", exercise) | {"skeleton": names[exercise.name]}
        answers |= {"raises": lambda *_, **__: 1 / 0, "prints": lambda *_, **__: print("an answer that prints")}
        said[exercise.name] = {kind: str(exercise.check(answer, seed)) for kind, answer in answers.items()}
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
