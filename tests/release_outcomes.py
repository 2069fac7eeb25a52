"""Print what `check` says to every kind of answer to every exercise, in whatever edition of the course is imported.

    python release_outcomes.py LESSONS SEED

LESSONS is the folder of the whole course's modules of exercises: the right answers and the mistakes are taken from
there. They are read as if they stood in the imported edition, so that no line of theirs counts as a learner's own.
"""

import functools
import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

from course_utils.authoring import source
from course_utils.exercises import engine


def read_answers(folder: Path) -> dict[str, engine.Exercise]:
    """The exercises declared in the modules in `folder`, kept apart from those of the imported edition."""
    engine.exercises_of()
    own = engine._exercises, engine._predictions
    engine._exercises, engine._predictions = {}, {}
    try:
        for path in sorted(folder.glob("lesson_[0-9][0-9].py")):
            module = types.ModuleType(f"whole_{path.stem}")
            sys.modules[module.__name__] = module
            place = Path(engine.__file__).with_name(path.name)
            exec(compile(path.read_text(encoding="utf-8"), str(place), "exec"), vars(module))
        return engine._exercises
    finally:
        engine._exercises, engine._predictions = own


def read_skeletons() -> dict[str, Callable]:
    """The answers as the lessons' answer cells come."""
    found = {}
    for path in source.sources():
        for name, cell in source.answer_cells(source.learner(path)).items():
            namespace = dict(vars(sys.modules[f"course_utils.lessons.lesson_{path.stem[:2]}"]))
            exec(compile(cell.source, "<cell>", "exec"), namespace)
            found[name] = namespace[name]
    return found


def raises(*_: object, **__: object) -> None:
    raise ValueError("an answer that raises")


def prints(*_: object, **__: object) -> None:
    print("an answer that prints and returns nothing")


def answers_to(whole: engine.Exercise, skeleton: Callable) -> Iterator[tuple[str, Callable]]:
    """Every kind of answer, by a name."""
    yield from (("reference", whole.reference), ("skeleton", skeleton), ("raises", raises), ("prints", prints))
    yield from ((f"mistake {number}", mistake.function) for number, mistake in enumerate(whole.mistakes))


def main(folder: Path, seed: int) -> None:
    """Print the outcomes as JSON: {exercise: {answer: text}}."""
    engine.Exercise.__hash__ = lambda self: hash(self.name)
    engine.Exercise.expected = functools.cache(engine.Exercise.expected)  # the same for every answer
    engine.Exercise.key = functools.cache(engine.Exercise.key)
    whole, skeletons, said = read_answers(folder), read_skeletons(), {}
    for exercise in engine.exercises_of():
        exercise.limit = 300.0  # a slow machine must not decide
        answers = answers_to(whole[exercise.name], skeletons[exercise.name])
        said[exercise.name] = {kind: str(exercise.check(answer, seed)) for kind, answer in answers}
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
