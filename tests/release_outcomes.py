"""Print what `check` says to every kind of answer to every exercise, in whatever edition of the course is imported.

    python release_outcomes.py LESSONS SEED [SEED …]

LESSONS is the folder of the whole course's modules of exercises: the right answers and the mistakes are taken from
there. They are read as if they stood in the imported edition, so that no line of theirs counts as a learner's own.
"""

from __future__ import annotations

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
    here = Path(engine.__file__).parent
    engine.import_lessons()
    own = engine._exercises, engine._predictions
    engine._exercises, engine._predictions = {}, {}
    try:
        for path in sorted(folder.glob("lesson_[0-9][0-9].py")):
            module = types.ModuleType(f"whole_{path.stem}")
            sys.modules[module.__name__] = module
            exec(compile(path.read_text(encoding="utf-8"), str(here / path.name), "exec"), vars(module))
        return engine._exercises
    finally:
        engine._exercises, engine._predictions = own


def skeletons() -> dict[str, object]:
    """The answers as the lessons' answer cells come."""
    found = {}
    for path in source.sources():
        for name, cell in source.answer_cells(source.learner(path)).items():
            lesson = sys.modules[f"course_utils.lessons.lesson_{path.stem[:2]}"]
            namespace = dict(vars(lesson))
            exec(compile(cell.source, "<cell>", "exec"), namespace)
            found[name] = namespace[name]
    return found


def raises(*_: object, **__: object) -> None:
    raise ValueError("an answer that raises")


def returns_nothing(*_: object, **__: object) -> None:
    print("an answer that prints")


def answers_to(whole: engine.Exercise, skeleton: object) -> Iterator[tuple[str, Callable]]:
    """Every kind of answer, by a name."""
    yield "reference", whole.reference
    yield from ((f"accepted {number}", function) for number, function in enumerate(whole.accepted))
    yield from ((f"mistake {number}", mistake.function) for number, mistake in enumerate(whole.mistakes))
    yield from (("skeleton", skeleton), ("raises", raises), ("prints", returns_nothing))


def main(folder: Path, seeds: list[int]) -> None:
    """Print the outcomes as JSON: {exercise: {answer and seed: text}}."""
    engine.Exercise.__hash__ = lambda self: hash(self.name)
    engine.Exercise.expected = functools.cache(engine.Exercise.expected)  # the same for every answer
    engine.Exercise.key = functools.cache(engine.Exercise.key)
    whole, blank = read_answers(folder), skeletons()
    for exercise in engine.exercises_of():
        exercise.limit = 300.0  # a slow machine must not decide
    print(
        json.dumps(
            {
                exercise.name: {
                    f"{kind}, seed {seed}": str(exercise.check(answer, seed))
                    for kind, answer in answers_to(whole[exercise.name], blank[exercise.name])
                    for seed in seeds
                }
                for exercise in engine.exercises_of()
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(seed) for seed in sys.argv[2:]])
