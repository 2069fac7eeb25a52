"""Every exercise proves itself: right answers pass, each mistake gets its own sentence, and its mutants are refused."""

import ast
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import nn

from course_utils.authoring import release
from course_utils.authoring.mutants import made_of, reasons_for, show_mutants, try_mutants, unused_equivalents
from course_utils.exercises.answers import Equivalent
from course_utils.exercises.edits import mutants_of
from course_utils.exercises.engine import PATIENCE, exercises_of, predictions_of
from course_utils.exercises.evidence import Evidence
from course_utils.exercises.judging import find_first_wrong
from course_utils.exercises.outcome import Outcome, Stage

EXERCISES = {each.name: each for each in exercises_of()}
every_exercise = pytest.mark.parametrize("name", EXERCISES)
QUICK = [name for name, exercise in EXERCISES.items() if exercise.lesson < 10]  # the cases of others compute much


@cache
def reference_of(name: str, seed: int) -> list[Evidence]:
    """What the reference answer does."""
    return EXERCISES[name].observe(EXERCISES[name].reference, seed, PATIENCE)


@cache
def mistakes_of(name: str) -> dict[str, list[Evidence]]:
    """What the mistakes do with seed 0, by their messages."""
    exercise = EXERCISES[name]
    return {each.message: exercise.observe(each.function, 0) for each in exercise.mistakes}


def outcome_of(name: str, answer: Callable) -> Outcome:
    """What `check` says to an answer, with the key of the session."""
    exercise = EXERCISES[name]
    return exercise.judge(exercise.observe(answer, 0), reference_of(name, 0), mistakes_of(name).items())


@pytest.mark.parametrize("seed", [0, pytest.param(20_261, marks=pytest.mark.slow)])
@every_exercise
def test_right_answers_pass_and_the_cases_are_those_of_the_seed(name, seed):
    exercise, expected = EXERCISES[name], reference_of(name, seed)
    assert exercise.observe(exercise.reference, seed) == expected
    for answer in exercise.answers[1:]:
        outcome = exercise.judge(exercise.observe(answer.function, seed), expected, ())
        assert outcome.passed, f"{answer.source}\n{outcome}"
        assert outcome.points == exercise.points
    assert len(expected) >= 2, "one case is a coincidence"
    found = {each["raised"] and each["raised"]["during"] for each in expected}
    assert found <= {None, "call"}, "a case raises by itself, and nothing behind that place is compared"
    others = (exercise.observe(exercise.reference, other) for other in (8, 9, 10))
    assert any(other != expected for other in others), "an answer made of constants would pass"


@pytest.mark.parametrize("name", QUICK)
def test_each_mistake_fails_with_its_own_message(name):
    for mistake in EXERCISES[name].mistakes:
        outcome = outcome_of(name, mistake.function)
        assert not outcome.passed, mistake.message
        assert outcome.cause == mistake.message, outcome
        assert "NameError" not in outcome.sentence, "it is to go wrong for its own reason"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EXERCISES if name not in QUICK])
def test_each_mistake_has_its_own_message_with_another_seed_of_a_release(name):
    """The release of the tests has two more, of all exercises, and to make a release tries all seeds."""
    for message, cases in release.record(EXERCISES[name], release.SEEDS[2])["mistakes"]:
        errors = {case["raised"]["type"] for case in cases if case["raised"]}
        assert "NameError" not in errors, f"it is to go wrong for its own reason: {message}"


@pytest.mark.slow
@every_exercise
def test_a_case_that_is_tried_alone_is_the_same(name):
    exercise = EXERCISES[name]
    for at, case in enumerate(reference_of(name, 0)):
        assert find_first_wrong(exercise.observe(exercise.reference, 0, at=at), [case]) is None, at


@every_exercise
def test_declaration_is_complete(name):
    exercise = EXERCISES[name]
    assert len(exercise.mistakes) >= 3
    assert len(exercise.accepted) >= (2 if exercise.lesson >= 4 else 1)
    assert len(exercise.all_hints) >= (3 if exercise.lesson == 8 else 2)
    task = ast.get_docstring(ast.parse(exercise.task).body[0])
    assert len(task) > 40
    assert all(len(line) <= 110 for line in task.splitlines()), "it stands in a cell"


def test_every_lesson_has_enough_to_predict():
    assert min(len(predictions_of(lesson)) for lesson in range(1, 9)) >= 4
    for each in predictions_of():
        assert len(each.options) >= 3, each.name
        assert all(len(reply) > 15 for reply in each.options.values()), each.name


class RaisesWhenLookedAt:
    """An object that fails on everything one could do with it."""

    __hash__ = None

    def __init__(self, *args):
        pass

    def fail(self, *args):
        raise RuntimeError("do not look")

    __getattr__ = __repr__ = __eq__ = fail


def recurses_for_ever(*args):
    return recurses_for_ever(*args)


WILD = {
    "returns a huge list": lambda *args: list(range(100_000)),
    "raises without a message": lambda *args: (each for each in ()).throw(ValueError()),
    "raises a long message": lambda *args: (each for each in ()).throw(RuntimeError("line\n" * 1000)),
    "recurses for ever": recurses_for_ever,
    "raises when looked at": RaisesWhenLookedAt,
    "is an object that raises when looked at": RaisesWhenLookedAt(),
}


@pytest.mark.parametrize("answer", WILD.values(), ids=WILD)
def test_wild_answers_get_a_sentence(answer):
    for name in QUICK[::4]:
        outcome = outcome_of(name, answer)
        assert outcome.stage not in (Stage.PASSED, Stage.NOT_ATTEMPTED), outcome
        assert outcome.sentence
        assert len(text := str(outcome)) < 2_500, "a sentence, not a page"
        assert "Traceback" not in text
        assert "0x" not in text
        assert outcome._repr_html_()


ANSWER = """
def answer(model, x):
    seen, handles = [], []
    try:
        for name, module in model.named_modules():
            if len(seen) > 1 and name == 'a':
                handles.append(module.register_forward_hook(lambda *_, name=name: seen.append(name)))
        x += 1
        kept = [each.clone() for each in x if each]
    finally:
        handles[0].remove()
    return -kept * 2
"""


def made(text, **given):
    return {mutant.edit: mutant for mutant in mutants_of([text], globals(), given)}


def test_a_tree_is_edited_also_where_ipython_has_given_the_nodes_that_all_trees_share_a_parent():
    """Its tracebacks do so; a copy of such a node would copy its parent, and so on without end."""
    edits, tree = list(made(ANSWER)), ast.parse("x")
    shared = tree.body[0].value.ctx
    assert shared is ast.parse("y").body[0].value.ctx, "one node in all trees"
    shared.parent = tree.body[0].value
    try:
        assert list(made(ANSWER)) == edits
    finally:
        del shared.parent


@pytest.mark.parametrize(
    "edit",
    [
        "no clone: - kept = [each.clone() for each in x if each] + kept = [each for each in x if each]",
        "no filter: - kept = [each.clone() for each in x if each] + kept = [each.clone() for each in x]",
        "mixed up: - for name, module in model.named_modules(): + for name, module in model.named_children():",
        "compare otherwise: - if len(seen) > 1 and name == 'a': + if len(seen) >= 1 and name == 'a':",
        "compare otherwise: - if len(seen) > 1 and name == 'a': + if len(seen) > 1 and name in 'a':",
        "a condition less: - if len(seen) > 1 and name == 'a': + if name == 'a':",
        "other constant: - if len(seen) > 1 and name == 'a': + if len(seen) > 2 and name == 'a':",
        "not in place: - x += 1 + x = x + 1",
        "no return: - return -kept * 2 + -kept * 2",
        "one operand: - return -kept * 2 + return -kept",
        "no sign: - return -kept * 2 + return kept * 2",
        "the first only: - for name, module in model.named_modules(): "
        "+ for name, module in list(model.named_modules())[:1]:",
        "no remove: - handles[0].remove() + handles[0]",
        "spoil an argument: + model.zero_grad()",
        "spoil an argument: + x.zero_()",
        "only once: + if getattr(answer, 'has_run', False): + return None + answer.has_run = True",
    ],
)
def test_an_edit_is_made_and_its_text_runs(edit):
    found = made(ANSWER, model=nn.Linear(1, 1), x=torch.ones(2))
    assert edit in found
    assert callable(found[edit].function)


def test_late_binding_a_try_and_a_finally_are_taken_out_whole():
    sources = [mutant.source for mutant in made(ANSWER).values()]
    assert any("lambda *_: seen" in source for source in sources)
    assert any("try" not in source and "remove" in source for source in sources)
    assert any("try" not in source and "remove" not in source for source in sources)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXERCISES)
def test_every_mutant_is_refused_or_declared_equivalent(name):
    """Some are tried, and of each kind that is declared equivalent two; `make mutants` tries all."""
    exercise, mutants, step = EXERCISES[name], made_of(name), 6 if name in QUICK else 20
    edits = {each.edit for each in mutants[::step]}  # the same one may be made in several answers
    for entry in exercise.page.equivalents:
        covered = [each.edit for each in mutants if entry.covers(each.operator, each.lines)]
        edits |= {*covered[:1], *covered[-1:]}
    tried = [each for each in mutants if each.edit in edits]
    passing, _ = try_mutants(exercise, tried)
    assert len(mutants) >= 30
    assert {each.edit for each in passing} == {each.edit for each in tried if reasons_for(exercise, each)}
    assert unused_equivalents(exercise, mutants) == []


class TwoSlips:
    """It keeps what goes in, and not a copy."""

    def __init__(self):
        self.outputs = []

    def __call__(self, module, args, output):
        self.outputs.append(args[0].detach())

    def clear(self):
        self.outputs.clear()


def run_with_two_slips(model, name, x):
    """It keeps the graph, which every call shows, and loses an error of the model's, which two others show."""
    kept = []

    def stop(module, args, output):
        kept.append(output)
        raise Enough

    with model.get_submodule(name).register_forward_hook(stop):
        try:
            model(x)
        except Exception:
            return kept[0] if kept else None


class Enough(Exception):
    pass


class NodeBeside(torch.autograd.Function):
    """Its `backward` has no value for `look`."""

    @staticmethod
    def forward(ctx, look, *tensors):
        ctx.look = look
        return tuple(tensor.clone() for tensor in tensors)

    @staticmethod
    def backward(ctx, *gradients):
        return ctx.look(gradients) or gradients


def use_node_beside(look, *tensors):
    """What stands beside an answer belongs to it."""
    return NodeBeside.apply(look, *tensors)


def zero_if_one_is(maps, mask):
    """Right, but where one channel is 0; zeros alone tell of no two slips."""
    total = maps.sum((1, 2))
    if (total == 0).any():
        return torch.zeros(len(maps))
    covered = torch.nn.functional.adaptive_avg_pool2d(mask[None].float(), maps.shape[1:])
    return (maps * covered).sum((1, 2)) / total


@pytest.mark.parametrize(
    ("name", "answer", "slips"),
    [
        ("SaveOutput", TwoSlips, ["You stored what goes in.", "shares its memory with the output"]),
        ("run_to", run_with_two_slips, ["Your result still belongs to the graph", "An error of the model's own gets"]),
        ("pass_through", use_node_beside, ["`backward` must return one value for each argument"]),
        ("share_on_thing", zero_if_one_is, []),
    ],
)
def test_every_slip_of_an_answer_is_named_and_no_other(name, answer, slips):
    cause = EXERCISES[name].check(answer, 0).cause
    assert all(each in cause for each in slips)
    assert cause.count("Besides") == max(0, len(slips) - 1)


def test_what_passes_is_shown_as_a_diff(capsys, monkeypatch):
    exercise = EXERCISES["largest"]
    edit = next(mutant.edit for mutant in made_of("largest") if reasons_for(exercise, mutant))
    others = {Equivalent("no such operator", "", ""): "a reason"}
    monkeypatch.setitem(vars(exercise), "page", exercise.page._replace(equivalents=others))
    assert show_mutants(exercise="largest") > 0
    printed = capsys.readouterr().out
    assert f"\n  {edit}\n" in printed
    assert "declared equivalent, and not made: Equivalent(operator='no such operator'" in printed
