"""Mutants of the right answers: what is made, and that the checks refuse all that are not equivalent."""

import ast

import pytest
import torch
from exercise_keys import EXERCISES
from torch import nn

from course_utils.authoring.edits import mutate
from course_utils.authoring.mutants import Tried, made_of, make_pairs, show_mutants, slips_of, try_mutants
from course_utils.exercises.bare import strip
from course_utils.exercises.slips import slip_of

ANSWER = """
def answer(model, x):
    seen = []
    handles = []
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
    return {mutant.edit: mutant for mutant in mutate(ast.parse(text).body[0], __name__, given)}


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
    exercise = EXERCISES[name]
    tried = try_mutants(exercise, made_of(name))
    assert len(made_of(name)) >= 30
    assert {mutant.edit for mutant in tried.passing} == set(exercise.equivalents)
    known = [slip_of(name, each.evidence) for each in tried.refused if slips_of(Tried([], [each]))]
    assert sum(map(bool, known)) >= 0.9 * len(known), "write the slips: make mutants ARGS=--write"


def test_what_no_mistake_explains_may_be_the_slip_of_a_mutant():
    exercise = EXERCISES["largest"]
    for mutant, *_ in try_mutants(exercise, made_of("largest")).refused:
        assert exercise.check(mutant.function, 0).cause, mutant.edit
    causes = {exercise.check(mutant.function, 0).cause for mutant in made_of("largest")}
    assert any(cause.startswith("Your answer does what a right one would do if") for cause in causes)
    assert not exercise.check(lambda tensor: 7.25, 0).cause


def test_what_passes_is_shown_as_a_diff(capsys, monkeypatch):
    exercise = EXERCISES["largest"]
    edit, *_ = exercise.equivalents
    monkeypatch.delitem(exercise.equivalents, edit)
    monkeypatch.setitem(exercise.equivalents, "no such edit", "a reason")
    assert show_mutants(exercise="largest") > 0
    printed = capsys.readouterr().out
    assert f"\n  {edit}\n" in printed
    assert "does not pass, or is not made: no such edit" in printed
    assert [pair.source for pair in make_pairs("largest")] == [pair.source for pair in make_pairs("largest")]


def test_what_is_equivalent_is_not_in_an_edition_without_answers():
    text = "@exercise()\ndef f(x):\n    return x.clone()\n\n\nf.equivalent('why', 'no clone: - x.clone() + x')\n"
    assert ast.unparse(strip(text)) == "@exercise()\ndef f(x):\n    ..."
