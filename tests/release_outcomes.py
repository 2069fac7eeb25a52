"""Print what `check` says to each kind of answer to every exercise, in whatever edition of the course is imported.

    python release_outcomes.py LESSONS SEED

LESSONS is the folder of the whole course's modules of exercises: the right answers and two mistakes each are taken from
there. They are read as if they stood in the imported edition, so that no line of theirs counts as a learner's own.
"""

import json
import sys
import types
from pathlib import Path

from course_utils.authoring import source
from course_utils.exercises import engine


def read_answers(folder: Path) -> dict[str, engine.Exercise]:
    """The exercises declared in the modules in `folder`, kept apart from those of the imported edition."""
    engine.exercises_of()
    own = engine._exercises, engine._predictions
    engine._exercises, engine._predictions = whole, _ = {}, {}
    for path in sorted(folder.glob("lesson_[0-9][0-9].py")):
        module = sys.modules[f"whole_{path.stem}"] = types.ModuleType(f"whole_{path.stem}")
        place = Path(engine.__file__).with_name(path.name)
        exec(compile(path.read_text(encoding="utf-8"), str(place), "exec"), vars(module))
    engine._exercises, engine._predictions = own
    return whole


def main(folder: Path, seed: int) -> None:
    """Print the outcomes as JSON: {exercise: {answer: text}}."""
    whole, said = read_answers(folder), {}
    learners = map(source.learner, source.sources())
    cells = {name: cell for each in learners for name, cell in source.answer_cells(each).items()}
    for exercise in engine.exercises_of():
        exercise.limit = 300.0  # a slow machine must not decide
        namespace = vars(sys.modules[f"course_utils.lessons.lesson_{exercise.lesson:02}"]) | {"__name__": "notebook"}
        exec(compile(cells[exercise.name].source, "<cell>", "exec"), namespace)
        answers = {"reference": whole[exercise.name].reference, "skeleton": namespace[exercise.name]}
        answers |= {"raises": lambda *_, **__: 1 / 0, "prints": lambda *_, **__: print("an answer that prints")}
        answers |= {f"mistake {n}": whole[exercise.name].mistakes[n].function for n in (0, -1)}
        said[exercise.name] = {kind: str(exercise.check(answer, seed)) for kind, answer in answers.items()}
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
