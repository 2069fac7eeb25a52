"""Exercises that can be run: what a lesson says of them, the cases they are tried in, and the course's own answers.

`check`, hints, solutions, the grader and the engine's own tests follow from these. The answers and the mistakes are
read when they are first asked for, and never where a student's code runs.
"""

import contextlib
import functools
import importlib
import inspect
import itertools
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from course_utils.exercises.answers import Answer, Mistake, Page, combine, read_page, run_answer, with_docstrings
from course_utils.exercises.causes import (
    BESIDES,
    Mistakes,
    find_causes,
    find_differences,
    gives_zeros_alone,
    relate_numbers,
)
from course_utils.exercises.comparing import Cases
from course_utils.exercises.declaration import Declaration, find_by_name, is_blank, read_declarations
from course_utils.exercises.declaration import find_prediction as find_prediction  # and the next: for its callers
from course_utils.exercises.declaration import predictions_of as predictions_of
from course_utils.exercises.edits import define
from course_utils.exercises.evidence import CaseMaker, Evidence, names_used, observe_all
from course_utils.exercises.judging import find_first_wrong, judge
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.exercises.recorded import VISIBLE_SEED, recorded_key, recorded_seeds
from course_utils.exercises.repair import find_repair, with_return
from course_utils.root import ANSWERS, CourseError, has_answers

LESSONS = "course_utils.lessons"
PATIENCE = 300.0  # seconds that the reference has for a case: it is right, however busy the machine
SECONDS_FOR_AN_EDIT = 0.5  # that an edited answer has for a case


@dataclass(repr=False)
class Exercise(Declaration):
    """One exercise that can be run. Made by the decorator `exercise`.

    Before the learner's answer cell has run, the exercise itself stands under its name in the notebook and says so. An
    answer has `limit` seconds for each case.
    """

    make_cases: CaseMaker
    limit: float = 10.0

    @functools.cached_property
    def page(self) -> Page:
        """What is secret about it, as text. Raises `CourseError` in an edition without answers."""
        return read_page(self.name)

    @functools.cached_property
    def answers(self) -> list[Answer]:
        """The right answers; the first one is the reference."""
        return [Answer(source, self._run(source)) for source in self.page.answers]

    @property
    def reference(self) -> Callable:
        """The reference answer."""
        return self.answers[0].function

    @property
    def accepted(self) -> list[Callable]:
        """Other right answers."""
        return [answer.function for answer in self.answers[1:]]

    @functools.cached_property
    def mistakes(self) -> list[Mistake]:
        """The usual mistakes."""
        return [Mistake(source, self._run(source), message) for message, source in self.page.mistakes]

    @functools.cached_property
    def pairs(self) -> list[Mistake]:
        """Two of the usual mistakes in one answer, where both fit into a right one."""
        found = []
        for (message, one), (besides, other) in itertools.combinations(self.page.mistakes, 2):
            source = next(filter(None, (combine(base, one, other) for base in self.page.answers)), "")
            function = define(source, self.name, self.namespace) if source else None
            if function:
                found.append(Mistake(source, function, f"{message}{BESIDES}{besides}"))
        return found

    def _pairs_like(self, function: Callable) -> list[Mistake]:
        """The pairs of which a function uses at least half of the names: what does nothing, say, is like none."""
        mine = {*names_used(function)}
        used = [({*names_used(pair.function)}, pair) for pair in self.pairs]
        return [pair for names, pair in used if 2 * len(names & mine) >= len(names)]

    @property
    def source(self) -> str:
        """The reference answer's text with its task, as it would stand in a notebook."""
        return with_docstrings(self.page.answers[0], self.task)

    @property
    def all_hints(self) -> tuple[str, ...]:
        """The hints of its lesson and, where the answers are, the later ones."""
        return (*self.hints, *self.page.hints) if has_answers() else self.hints

    @functools.cached_property
    def namespace(self) -> dict[str, Any]:
        """The names among which its answers run: those of its lesson's module, and what they share."""
        found = dict(vars(sys.modules[self.make_cases.__module__]))
        exec(compile(self.page.shared, self._where, "exec", dont_inherit=True), found)
        return found

    @property
    def _where(self) -> str:
        return str(ANSWERS / f"{self.name}.md")

    def _run(self, source: str) -> Callable:
        return run_answer(source, self.name, self.namespace, self._where)

    def observe(self, function: Callable, seed: int, limit: float = 0, at: int | None = None) -> list[Evidence]:
        """What `function` does in every case of `seed`, or in number `at` alone; `limit` is in seconds, for each."""
        return observe_all(self.make_cases, function, seed, limit or self.limit, at)

    def key(self, seed: int) -> tuple[list[Evidence], dict[str, list[Evidence]]]:
        """What the reference does in every case of `seed`, and what each mistake does, by its message.

        Raises `NotRecorded` in an edition without answers, if nothing is recorded for `seed`.
        """
        reference, mistakes = self.lazy_key(seed)
        return reference, {message: found() if callable(found) else found for message, found in mistakes}

    def lazy_key(self, seed: int) -> tuple[list[Evidence], Mistakes]:
        """The key, with each mistake's cases run when they are asked for."""
        if not has_answers():
            reference, mistakes = recorded_key(self.lesson, self.name, seed)
            return reference, mistakes.items()
        return self.observe(self.reference, seed, PATIENCE), self._lazily(self.mistakes, seed)

    def _lazily(self, mistakes: list[Mistake], seed: int) -> Mistakes:
        return [
            (each.message, functools.cache(functools.partial(self.observe, each.function, seed))) for each in mistakes
        ]

    def fresh_seed(self) -> int:
        """A seed whose inputs the learner has not met yet; in an edition without answers, one of the recorded."""
        return secrets.randbits(31) if has_answers() else secrets.choice(recorded_seeds(self.lesson)[1:])

    def _other_seed(self, seed: int) -> int:
        if seed != VISIBLE_SEED:
            return VISIBLE_SEED
        return VISIBLE_SEED + 1 if has_answers() else recorded_seeds(self.lesson)[1]

    def check(self, function: Callable, seed: int) -> Outcome:
        """Try `function` in the cases of `seed` and say what came of it."""
        if is_blank(function):
            with contextlib.suppress(OSError, TypeError):
                if inspect.isfunction(function) and "..." not in inspect.getsource(function):
                    return self.not_attempted("your function does nothing yet: write its body, and run that cell.")
            return self.not_attempted("replace the `...` in the answer cell, run that cell, then run this one again.")
        got = self.observe(function, seed)
        reference, mistakes = self.lazy_key(seed)
        outcome = self.judge(got, reference, ())
        if outcome.passed:
            return outcome
        causes = find_causes(got, reference, mistakes)
        if outcome.stage is Stage.RETURNED_NOTHING and causes.messages:
            whole = with_return(function)
            behind = self.judge(self.observe(whole, seed), reference, mistakes).cause if whole else ""
            return replace(outcome, cause=_join_causes(str(causes), behind))
        if causes.explain_all and len(causes.messages) == 1:
            return replace(outcome, cause=str(causes))
        if not (causes.explain_all or gives_zeros_alone(got, reference)) and has_answers():
            pairs = find_causes(got, reference, self._lazily(self._pairs_like(function), seed))
            causes = pairs if pairs.explain_all or not causes.messages else causes
        two = str(causes) if causes.explain_all else ""  # one slip is likelier, where one is enough
        key = (reference, mistakes)
        cause = self._find_edit(function, seed, got, key, two) or str(causes) or self._relate(function, seed, got)
        return replace(outcome, cause=cause)

    def _find_edit(self, function: Callable, seed: int, got: Cases, key: tuple[Cases, Mistakes], two: str) -> str:
        """What is said of the edit with which the answer is right, on two seeds.

        Where there is none, `two`: the two slips of the answer; if these are not known, an edit and a declared mistake.
        """
        other = self._other_seed(seed)
        other_key, reference = self.lazy_key(other), key[0]
        at = find_first_wrong(got, reference)

        def find_rest(edited: Callable, may_have_rest: bool) -> str | None:  # as `_find_rest`, with two seeds
            there = self.observe(edited, seed, SECONDS_FOR_AN_EDIT, at)
            if not may_have_rest and find_first_wrong(there, reference[at : at + 1]) is not None:
                return None
            cases = self.observe(edited, seed, SECONDS_FOR_AN_EDIT)
            rest = _find_rest(cases, *key)
            if rest != "" and not (may_have_rest and _is_nearer(cases, got, reference)):
                return None
            again = _find_rest(self.observe(edited, other, SECONDS_FOR_AN_EDIT), *other_key)
            return rest if again == rest else None

        return find_repair(function, find_rest, two)

    def _relate(self, function: Callable, seed: int, got: Cases) -> str:
        """What all wrong numbers have in common, with the inputs of two seeds; empty if nothing."""
        relation, other = relate_numbers(got, self.lazy_key(seed)[0]), self._other_seed(seed)
        is_sure = relation and relate_numbers(self.observe(function, other), self.lazy_key(other)[0]) == relation
        return relation if is_sure else ""

    def judge(self, got: Cases, reference: Cases, mistakes: Mistakes) -> Outcome:
        """The outcome of the evidence `got`, by what the reference and the mistakes did on the same inputs."""
        return judge(self.name, got, reference, mistakes, self.points, len(self.hints))

    def __call__(self, *_: object, **__: object) -> None:
        raise NotImplementedError(f"Run the answer cell that defines {self.name} first; then run this cell again.")

    def __repr__(self) -> str:
        return f"{self.name}: run the answer cell that defines it, then check({self.name})"


def _find_rest(mine: Cases, reference: Cases, mistakes: Mistakes) -> str | None:
    """The message of the one mistake that an answer has; empty if it passes, None if it is something else."""
    if find_first_wrong(mine, reference) is None:
        return ""
    causes = find_causes(mine, reference, mistakes)
    return causes.messages[0] if causes.explain_all and len(causes.messages) == 1 else None


def _is_nearer(after: Cases, before: Cases, reference: Cases) -> bool:
    """Whether an edit mended something and spoiled nothing, and left all names in the answer that the reference uses.

    Not of an answer that raised: nobody knows what it would have done.
    """
    used, used_now, used_there = ({*cases[0]["names"]} for cases in (before, after, reference))
    wrong, wrong_now = (find_differences(cases, reference).keys() for cases in (before, after))
    raised = any(mine["raised"] and not right["raised"] for mine, right in zip(before, reference, strict=False))
    return wrong_now < wrong and used & used_there <= used_now and not raised


def _join_causes(cause: str, behind: str) -> str:
    """The causes that an answer has which returns nothing, and those that only show when it returns something."""
    return BESIDES.join(filter(None, dict.fromkeys((*cause.split(BESIDES), *behind.split(BESIDES)))))


def exercise(make_cases: CaseMaker) -> Exercise:
    """Decorator: the cases of the exercise that is called like the function below, which gets `Numbers` and yields
    each `Case` as it is needed.

    Raises `CourseError` where no lesson's source asks for an answer of that name.
    """
    declared = _declared().get(make_cases.__name__)
    if declared is None:
        mend = "Write its task in an answer cell, and seal the lesson:  make notebooks"
        raise CourseError(f"{make_cases.__name__} has cases, and no lesson in notebooks/source asks for it. {mend}")
    _exercises[declared.name] = Exercise(**vars(declared), make_cases=make_cases)
    return _exercises[declared.name]


_exercises: dict[str, Exercise] = {}


@functools.cache
def _declared() -> dict[str, Declaration]:
    return {each.name: each for each in read_declarations()}


def exercises_of(lesson: int | None = None) -> list[Exercise]:
    """The exercises of a lesson, or of all of them, in the order in which they are asked.

    Raises `CourseError` where one has no cases.
    """
    asked = [each for each in _declared().values() if lesson in (None, each.lesson)]
    for each in asked:
        if each.name not in _exercises:
            importlib.import_module(f"{LESSONS}.lesson_{each.lesson:02d}")
        if each.name not in _exercises:
            raise CourseError(f"Lesson {each.lesson:02d} asks for {each.name}, which has no cases in {LESSONS}.")
    return [_exercises[each.name] for each in asked]


def find(name: str) -> Exercise:
    """The exercise called `name`; `CourseError` with the nearest names if there is none."""
    declared = find_by_name(name, _declared(), "an exercise")
    return next(each for each in exercises_of(declared.lesson) if each.name == name)
