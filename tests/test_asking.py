"""Questions about an answer that passes: what is true is what a second run shows, and nothing is left behind."""

import contextlib
import itertools
import re

import pytest
import torch

from course_utils.exercises import asking, progress
from course_utils.exercises.asking import make_question
from course_utils.exercises.changes import changes_of, read_source
from course_utils.exercises.engine import find
from course_utils.exercises.plain import show

pytestmark = pytest.mark.usefixtures("nothing_remembered")


def questions_about(answer):
    """One question after the other, until there is none."""
    exercise, keys = find(answer.__name__), []
    assert exercise.check(answer, 0).passed
    while asked := make_question(exercise, answer, keys):
        assert asked.key not in keys
        keys.append(asked.key)
        yield asked


def largest(tensor):
    """Return the largest number."""
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    result = tensor.max().item()
    torch.set_grad_enabled(before)
    return result


def make_twelve(w):
    return w.register_hook(lambda grad: torch.full_like(grad, 12))


def silence_channel(layer, channel):
    def hook(module, args, output):
        silent = output.clone()
        silent[:, channel] = 0
        return silent

    return layer.register_forward_hook(hook)


@contextlib.contextmanager
def hooked(modules, hook):
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield handles
    finally:
        for handle in handles:
            handle.remove()


class Guide:
    def __init__(self, model):
        self.model = model
        self.handles = []

    def __enter__(self):
        for module in self.model.modules():
            if isinstance(module, torch.nn.ReLU):
                self.handles.append(module.register_full_backward_hook(self.guide))
        return self

    def guide(self, module, into, out):
        return (into[0].clamp(min=0),)

    def __exit__(self, *error):
        for handle in self.handles:
            handle.remove()


def strongest_channels(maps, count):
    means = [channel.clamp(min=0).mean().item() for channel in maps]
    found = []
    while len(found) < count:
        best = max(range(len(means)), key=means.__getitem__)
        found.append(best)
        means[best] = -1.0
    return found


def test_the_answer_is_what_another_run_shows():
    """A hook that returns nothing is as good as none: the case shows the gradient without the hook later on."""
    exercise = find("make_twelve")
    asked = make_question(exercise, make_twelve)
    assert asked.text.splitlines()[2] == "to `return w.register_hook(lambda grad: None)`."
    (case,) = (each for each in exercise.observe(make_twelve, 0) if f": {each['given']}?" in asked.text)
    alone = show(case["seen"]["w.grad after handle.remove()"])
    assert asked.answer == f"`w.grad` is {alone}."
    assert "With your code as it is: `w.grad` is [12., 12.]" in asked.text
    reason = f"receives {alone} and returns nothing, so {alone} goes on; in your own run [12., 12.] goes on."
    assert asked.explain() == f"In the first backward your tensor hook on `w` {reason}"


def test_an_option_is_not_true_at_another_moment_either():
    """When the case is over, w.grad is [4., 3.] in any case, unless an error came in the call and ended all."""
    offered, asked = "`w.grad` is [4., 3.].", [*questions_about(make_twelve)]
    assert all(offered not in each.options or each.answer == offered or "error stops" in each.answer for each in asked)
    assert len(asked) > 1


@pytest.mark.parametrize("answer", [make_twelve, silence_channel, hooked, Guide])
def test_options_differ_one_is_true_and_none_is_asked_again(answer):
    texts = []
    for asked in itertools.islice(questions_about(answer), 3):
        assert 3 <= len(asked.options) <= 4
        assert len({*asked.options}) == len(asked.options)
        assert asked.options.count(asked.answer) == 1
        assert asked.explain(), "there is a reason"
        if "What happens then" in asked.text and not re.search(r"= \[*-?\d+\.", asked.text.partition("With your")[0]):
            bare = {re.sub(r"-?\d+\.\d*", "0.", option) for option in asked.options}
            assert len(bare) == len(asked.options), "numbers alone tell nothing to who sees no numbers"
        texts.append(asked.text)
    assert texts
    assert len({*texts}) == len(texts)


def test_an_option_is_never_true_beside_the_answer():
    """By hand: where hooks stay, two things are true: their number, and the side effect. One of them is offered."""
    for asked in questions_about(hooked):
        if "number of hooks" in asked.answer:
            assert not any("leaves a hook" in option for option in asked.options)


def test_a_change_runs_under_the_limits_of_a_check_and_its_world_is_restored():
    for asked in questions_about(largest):
        assert torch.is_grad_enabled()
        assert "Return the largest number" not in asked.text
    endless = make_question(find("strongest_channels"), strongest_channels)  # without its `append` it never ends
    assert endless is None or "TimeIsUp" not in "".join(endless.options)


def test_nothing_is_asked_where_there_is_no_text():
    names = {"torch": torch}
    exec("def make_twelve(w):\n    return w.register_hook(lambda grad: torch.full_like(grad, 12))", names)
    assert find("make_twelve").check(names["make_twelve"], 0).passed
    assert make_question(find("make_twelve"), names["make_twelve"]) is None


def test_answers_are_counted_apart_from_points_and_three_questions_are_enough():
    exercise, before = find("silence_channel"), str(progress())
    assert "your own code" not in before
    told = []
    for wanted in (True, False, True, None):
        view = asking.find_view(exercise, silence_channel)
        if wanted is None or view is None:
            break
        wrong = next(option for option in view.question.options if option != view.question.answer)
        told.append(str(view.commit(view.question.answer if wanted else wrong)))
    assert told[0].startswith("Yes, that is what happened")
    assert told[1].startswith("You said: ")
    assert asking.find_view(exercise, silence_channel) is None
    assert f"Questions about your own code: {len(told)} answered, {len(told) - 1} of them right." in str(progress())
    assert "Questions about your own code" in progress()._repr_html_()
    assert str(progress()).splitlines()[1] == before.splitlines()[1], "no point, no exercise more"


def clear_all(lists):
    for each in lists:
        each.clear()
    return lists


def test_pass_takes_the_place_of_a_line_that_stands_alone():
    words = [change.words for change in changes_of(read_source(clear_all))]
    (said,) = (each for each in words if each.endswith("`each.clear()`."))
    assert said.startswith("You put `pass` in place of line ")


means = [1.0, 2.0]  # such as a lesson's own cell may have left in the kernel


def without_a_binding(numbers):
    means = [number / 2 for number in numbers]
    return means


def test_no_name_of_the_kernel_stands_in_for_one_that_is_bound_no_more():
    changes = [change.words for change in changes_of(read_source(without_a_binding))]
    assert changes
    assert not any(words.startswith("You leave out line") and "means =" in words for words in changes)


def first_arrival(tensors, seen):
    return torch.autograd.graph.register_multi_grad_hook(tensors, lambda grad: seen.append(grad.clone()), mode="any")


def test_what_torch_puts_around_a_hook_is_not_counted():
    assert not any(asked.text.startswith("How often") for asked in questions_about(first_arrival))


def stop_unheard(limit):
    def forward(x):
        if (x > limit).any():
            raise KeyboardInterrupt
        return x

    return forward


def test_the_order_of_lines_is_asked_only_where_every_input_takes_the_same_way():
    for asked in questions_about(stop_unheard):
        assert not ("raise KeyboardInterrupt" in asked.text and "`return x`" in asked.text)


def share_on(gradient, mask):
    size = gradient.double().abs()
    total = float(size.sum())
    return float((size * mask).sum()) / total if total else 0.0


def test_no_number_is_asked_for_that_comes_of_numbers_nobody_sees():
    for asked in questions_about(share_on):
        if "that begins with" in asked.text:
            assert len([option for option in asked.options if re.search(r"returns -?\d", option)]) < 2
        assert "goes on, and makes" not in asked.explain()


def go_through(model, hook):
    handles = []

    @contextlib.contextmanager
    def hooked():
        for module in model.modules():
            handles.append(
                module.register_forward_hook(hook, prepend=bool(handles), with_kwargs=False, always_call=not handles)
            )
        if handles:
            yield handles

    return hooked()


def test_pass_stands_for_a_long_line_alone_in_its_block_and_an_if_is_not_left_out_with_the_one_yield():
    words = [change.words for change in changes_of(read_source(go_through))]
    assert any(
        re.match(r"You put `pass` in place of lines \d+ to \d+, from `handles\.append\(`", each) for each in words
    )
    assert not any("`if handles:` and the lines in it" in each for each in words)
    assert any("`if handles:` and keep the lines in it" in each for each in words)
