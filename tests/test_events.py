"""What happens in an answer's run, and the first event that differs from a right one."""

import contextlib
from dataclasses import replace

import pytest
import torch

from course_utils.exercises import check
from course_utils.exercises.divergence import find_divergence
from course_utils.exercises.engine import exercises_of, find
from course_utils.exercises.events import record_run
from course_utils.exercises.timelines import NoComparison, compare_runs, right_runs


def one_too_many(tensor, hook):
    tensor.register_hook(hook)
    tensor.register_hook(lambda grad: None)


def hook_called_twice(tensor, hook):
    def once(grad):
        handle.remove()
        return hook(grad) * 0 + hook(grad)

    handle = tensor.register_hook(once)


def nothing_returned(tensor, factor):
    def scale(grad):
        grad * factor

    return tensor.register_hook(scale)


def changed_in_place(tensor, factor):
    return tensor.register_hook(lambda grad: grad.mul_(factor))


def another_kind(layer, channel):
    return layer.register_forward_pre_hook(lambda module, args: None)


def read_too_early(tensor):
    seen = []
    tensor.register_hook(lambda grad: seen.append(tensor.grad))
    return seen


def stored_itself(tensors):
    seen = {}
    for name, tensor in tensors.items():
        tensor.register_hook(lambda grad, name=name: seen.update({name: grad}))
    return seen


@contextlib.contextmanager
def first_stays(modules, hook):
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield handles
    finally:
        for handle in handles[1:]:
            handle.remove()


def old_arguments(module, hooks, args):
    new = args
    for hook in hooks.values():
        result = hook(module, args)
        if result is not None:
            new = result if isinstance(result, tuple) else (result,)
    return new


def only_children(model, x):
    shapes, handles = {}, []
    for name, module in model.named_children():

        def note(_, args, output, name=name):
            shapes[name] = tuple(output.shape)

        handles.append(module.register_forward_hook(note))
    model(x)
    for handle in handles:
        handle.remove()
    return shapes


def mean_of_all(gradient):
    flat = gradient.flatten(2)
    return flat.mean(1)


def no_mean(gradient):
    return gradient.sum(dim=(2, 3))


@pytest.mark.parametrize(
    ("exercise", "answer", "said"),
    [
        ("hook_once", hook_called_twice, "In the first backward `hook` runs twice; in a right run it runs once."),
        ("scale_gradient", nothing_returned,
         "returns nothing, so [[-1.75, -2.5], [1.5, 2.75]] goes on; in a right run [[-4.375, -6.25], [3.75, 6.875]]"),
        ("scale_gradient", changed_in_place,
         "receives [100., 100.], changes it in place and returns [1000., 1000.]; in a right run what it received"),
        ("silence_channel", another_kind, "your answer registers a forward pre-hook on `layer`; the course's "
         "right answers register a forward hook on `layer`."),
        ("record_gradient", read_too_early, "reads `grad` of `tensor`, which is None then (your line LINE, `tensor."),
        ("record_by_name", stored_itself, "in a right run it holds {'second.x': [46., 48.], 'first.x': [9200., 9600.]"),
        ("hooked", first_stays, "At the end of a `with` block your forward hook on `modules[0]` is not removed; in a "),
        ("run_pre_hooks", old_arguments, "([2.75, -1.5],) (call number 3); in a right run with ([27.5, -15.],)."),
        ("output_shapes", only_children, "registers a forward hook on `model.1`; the course's right answers register a "
         "forward hook on `model.1.0` and a forward hook on `model.1.1.layer`."),
        ("channel_weights", mean_of_all, "Your line LINE, `return flat.mean(1)`, makes a tensor of shape (1, 4) from a "
         "tensor of shape (1, 2, 4); a right run makes a tensor of shape (1, 2) from it."),
        ("channel_weights", no_mean, "Your answer ends with [[-0.5, -1.5]]; a right run goes on, and makes [[-0.125,"),
    ],
)  # fmt: skip
def test_the_first_event_that_differs_is_said(exercise, answer, said):
    line = answer.__code__.co_firstlineno + 2
    assert said.replace("LINE", str(line)) in compare_runs(find(exercise), answer, 0).divergence.sentence


def test_a_refusal_without_a_known_cause_says_the_first_event(nothing_remembered):
    one_too_many.__name__ = "hook_once"
    said = str(check(one_too_many))
    assert "Likely cause" not in said
    assert "  First difference: In the call your answer registers 2 tensor hooks on `tensor`; the course's" in said
    assert said.endswith("See both runs side by side: replay(hook_once)")


def a_second_way(layer, channel):
    nothing = torch.zeros(1)

    def silence(module, args, output):
        silent = torch.zeros_like(output, dtype=torch.bool)
        silent[:, channel] = True
        return torch.where(silent, nothing, output)

    return layer.register_forward_hook(silence)


def test_what_passes_has_no_first_difference():
    with pytest.raises(NoComparison, match="Your answer passes"):
        compare_runs(find("silence_channel"), a_second_way, 0)


@pytest.mark.slow
@pytest.mark.parametrize("exercise", exercises_of(), ids=lambda each: each.name)
def test_right_answers_behave_as_ever_when_they_are_watched_and_none_differs_from_itself(exercise):
    exercise = replace(exercise, limit=60.0)  # however busy the machine
    reference = exercise.observe(exercise.reference, 0)
    runs = right_runs(exercise, 0, 0, reference[0])
    assert len(runs) == len(exercise.answers)
    for answer in exercise.answers:
        evidence, again = record_run(exercise.make_cases, answer.function, 0, exercise.limit, 0)
        assert find_divergence(again, runs, evidence) is None


def no_gradients_for_anybody(tensor):
    torch.set_grad_enabled(False)
    return 0.0


def test_an_answer_that_changes_the_world_of_everybody_is_not_run_once_more():
    with pytest.raises(NoComparison, match="changes something that other code uses"):
        compare_runs(find("largest"), no_gradients_for_anybody, 0)
