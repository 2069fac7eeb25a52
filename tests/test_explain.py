"""explain.py: the right cause for the snippets of many threads, nothing changed, nothing left behind."""

import gc
import re
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

from course_utils.hooks.explain import explain_hook, read_causes
from course_utils.hooks.inventory import list_hooks, no_hooks_left
from course_utils.root import ASSETS, CourseError

START = (ASSETS / "hook_causes.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
PAGE = Path(__file__).with_name("hook_snippets.md").read_text(encoding="utf-8")
X = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def spy(*seen):
    """A hook of any kind that only watches."""


class Net(nn.Module):
    """Two linear layers with a ReLU between them."""

    def __init__(self, inplace=False):
        super().__init__()
        self.fc1 = nn.Linear(3, 4)
        self.relu = nn.ReLU(inplace)
        self.fc2 = nn.Linear(4, 1)

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x)))


def read_snippets():
    """Return (cause, code) of each snippet of the page by its title, and the lines that stand before each."""
    start, *sections = PAGE.split("\n## ")
    snippets = {}
    for section in sections:
        cause, *found = section.split("\n### ")
        for each in found:
            title, code = re.fullmatch(r"(.+)\n\n```python\n(.+)```\s*", each, re.DOTALL).groups()
            snippets[title] = (cause.strip(), code)
    return snippets, start.partition("```python\n")[2].partition("```")[0]


SNIPPETS, BEFORE_EACH = read_snippets()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("title", SNIPPETS)
def test_the_cause_of_a_snippet_is_right(title):
    cause, code = SNIPPETS[title]
    names = {"Net": Net, "X": X}
    exec(compile(BEFORE_EACH + code, "snippet.py", "exec"), names)
    assert names["story"].cause == cause, str(names["story"])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cause", read_causes().values(), ids=lambda cause: cause.name)
def test_the_example_of_each_cause_has_it(cause):
    names = {}
    exec(compile(START + cause.example, "example.py", "exec"), names)
    assert names["story"].cause == cause.name, str(names["story"])


def run_and_collect(model, hook, explained):
    """One step of training with hooks of all kinds, inside of the block or without one."""
    x = X.clone().requires_grad_()
    handles = [
        model.fc1.register_forward_pre_hook(hook),
        model.fc1.register_forward_hook(hook),
        model.relu.register_full_backward_hook(hook),
        model.fc2.weight.register_hook(hook),
    ]

    def step():
        output = model(x)
        output.square().sum().backward()
        return [output, x.grad, *(parameter.grad for parameter in model.parameters())]

    if explained:
        with explain_hook(model, hook) as story:
            results = step()
        assert story.runs == 4
    else:
        results = step()
    for handle in handles:
        handle.remove()
    return results


def test_a_block_changes_no_result_and_no_table():
    torch.manual_seed(0)
    model, twin = Net(), Net()
    twin.load_state_dict(model.state_dict())
    with no_hooks_left(twin):
        explained = run_and_collect(twin, spy, explained=True)
    plain = run_and_collect(model, spy, explained=False)
    assert all(torch.equal(one, other) for one, other in zip(explained, plain, strict=True))


def test_hooks_stay_the_very_same_objects_in_the_block():
    model = Net()
    model.fc1.register_forward_hook(spy)
    before = dict(model.fc1._forward_hooks)
    with explain_hook(model, spy):
        assert dict(model.fc1._forward_hooks) == before
        assert "forward" not in vars(model.fc1)
        model(X)
    assert [(found.kind, found.owner) for found in list_hooks(model)] == [("forward hook", "fc1")]
    assert dict(model.fc1._forward_hooks) == before


def test_nothing_is_left_in_python_and_torch_also_after_an_exception():
    def profile(frame, event, value):
        """A profiler of the user's own."""

    def fail(number):
        model.fc1.register_forward_hook(spy)
        model(X)
        return number / 0

    model = Net()
    sys.setprofile(profile)
    try:
        with pytest.raises(ZeroDivisionError), explain_hook(model, spy) as story:
            fail(1)
        after = sys.getprofile()
    finally:
        sys.setprofile(None)
    assert after is profile
    assert threading.getprofile() is None
    assert torch.autograd.is_multithreading_enabled()
    assert story.cause == "it ran"
    assert story.lines[-1] == "The block ended with ZeroDivisionError: division by zero"


def test_a_story_keeps_no_tensor_and_no_module_alive():
    model = Net()
    with explain_hook(model, spy) as story:
        model.fc1.register_full_backward_hook(spy)
        output = model(X)
    alive = [weakref.ref(model), weakref.ref(output)]
    del model, output
    gc.collect()
    assert [each() for each in alive] == [None, None]
    assert story.cause == "no backward pass"


def test_a_story_says_where_and_what():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())

    def halve(module, args, output):
        return output / 2

    with explain_hook(model, halve) as story:
        assert "has not ended" in str(story)
        handle = model[1].register_forward_hook(halve)
        model(X)
        handle.remove()
    headline, means, mend, registered, run = str(story).splitlines()
    assert headline == "`halve`, a forward hook on `1`, ran once. Cause: it ran."
    assert means == "  The hook ran as it should."
    assert mend == "  " + read_causes()["it ran"].mend
    assert "Registered on `1` at test_explain.py:" in registered
    assert "`handle = model[1].register_forward_hook(halve)`, removed at test_explain.py:" in registered
    assert run.endswith(": `model(X)`: it saw (((2, 4),), (2, 4)). It returned (2, 4).")
    assert "<code>halve</code>" in story._repr_html_()


def test_what_holds_no_hook_is_refused():
    with pytest.raises(CourseError, match="got int"), explain_hook(3, spy):
        pass
    model = Net()
    handle = model.fc1.register_forward_hook(spy)
    handle.remove()
    with pytest.raises(CourseError, match="removed before the block"), explain_hook(model, handle):
        pass
