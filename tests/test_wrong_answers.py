"""Wrong answers that no exercise declares: each gets a stage and a sentence, and never a pass or an exception."""

from __future__ import annotations

import pytest
import torch
from exercise_keys import EXERCISES, outcome_of

from course_utils.exercises.outcome import Stage


class RaisesWhenLookedAt:
    """An object that fails on everything one could do with it."""

    __hash__ = None

    def __init__(self, *args):
        pass

    def fail(self, *args):
        raise RuntimeError("do not look")

    __getattr__ = __repr__ = __eq__ = fail


def raising(error):
    def answer(*args):
        raise error

    return answer


def a_list_that_holds_itself(*args):
    loop = []
    loop.append(loop)
    return loop


def recurses_for_ever(*args):
    return recurses_for_ever(*args)


def yields(*args):
    yield 1


async def awaits(*args):
    return 1


WILD = {
    "returns its first argument": lambda *args: args[0] if args else object(),
    "returns a word": lambda *args: "done",
    "returns a huge list": lambda *args: list(range(100_000)),
    "returns a list that holds itself": a_list_that_holds_itself,
    "returns not a number": lambda *args: torch.tensor(float("nan")),
    "returns an exception": lambda *args: ValueError("not raised"),
    "raises without a message": raising(ValueError()),
    "raises a long message": raising(RuntimeError("line\n" * 1000)),
    "recurses for ever": recurses_for_ever,
    "exits": raising(SystemExit("bye")),
    "asks for keywords": lambda *, tensor: tensor,
    "yields": yields,
    "awaits": awaits,
    "raises when looked at": RaisesWhenLookedAt,
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a coroutine that nobody awaits
@pytest.mark.parametrize("answer", WILD.values(), ids=WILD)
def test_wild_answers_get_a_sentence(answer):
    for name in EXERCISES:
        outcome = outcome_of(name, answer)
        assert outcome.stage not in (Stage.PASSED, Stage.NOT_ATTEMPTED), outcome
        text = str(outcome)
        assert outcome.sentence
        assert len(text) < 2_500, "a sentence, not a page"
        assert "Traceback" not in text
        assert "0x" not in text
        assert outcome._repr_html_()
    assert torch.get_default_dtype() is torch.float32
    assert torch.is_grad_enabled()
    assert not torch.nn.modules.module._global_forward_hooks


def hook_answer(hook):
    """An answer that registers `hook(grad, *other arguments)` on its first argument and returns the handle."""
    return lambda tensor, *others: tensor.register_hook(lambda grad: hook(grad, *others))


@pytest.mark.parametrize(
    ("name", "answer", "stage"),
    [
        ("scale_gradient", hook_answer(lambda grad, factor: grad + factor), Stage.WRONG_VALUE),
        ("scale_gradient", hook_answer(lambda grad, factor: grad / factor), Stage.WRONG_VALUE),
        ("scale_gradient", hook_answer(lambda grad, factor: grad[:1] * factor), Stage.RAISED),
        ("scale_gradient", hook_answer(lambda grad, factor: (grad * factor).double()), Stage.RAISED),
        ("scale_gradient", lambda tensor, factor: tensor * factor, Stage.WRONG_TYPE),
        ("scale_gradient", lambda tensor, factor: [tensor.register_hook(lambda grad: grad * factor)], Stage.WRONG_TYPE),
        ("keep_positive", hook_answer(lambda grad: grad.clamp(min=1)), Stage.WRONG_VALUE),
        ("keep_positive", hook_answer(lambda grad: grad[grad > 0]), Stage.RAISED),
        ("keep_positive", hook_answer(torch.sign), Stage.WRONG_VALUE),
        ("record_gradient", lambda tensor: tensor.grad, Stage.RETURNED_NOTHING),
        ("record_gradient", lambda tensor: (), Stage.WRONG_VALUE),
        ("freeze_biases", lambda model: [], Stage.WRONG_VALUE),
        ("freeze_biases", lambda model: model.requires_grad_(False), Stage.WRONG_TYPE),
        ("record_by_name", lambda tensors: tensors, Stage.WRONG_VALUE),
        ("record_by_name", lambda tensors: {}, Stage.WRONG_VALUE),
        ("hook_once", lambda tensor, hook: tensor.register_hook(hook), Stage.WRONG_TYPE),
        ("record_total_norm", lambda tensors: [0.0], Stage.WRONG_VALUE),
        ("step_in_backward", lambda parameters, rate: [], Stage.WRONG_VALUE),
        ("largest", lambda tensor: int(tensor.max()) + 1, Stage.WRONG_VALUE),
        ("largest", lambda tensor: float("nan"), Stage.NOT_FINITE),
    ],
)
def test_undeclared_mistakes_stop_at_the_stage_one_would_expect(name, answer, stage):
    assert outcome_of(name, answer).stage is stage
