"""The exercise engine from a learner's side: what comes in is wild, what comes out is a sentence."""

import copy
import functools
import importlib
import json
import math
import signal
import sys
import time
import types
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import nn

from course_utils.exercises import check, classroom, engine, evidence, repair, saved_progress
from course_utils.exercises.answers import Answer, Mistake, Page
from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.declaration import is_blank
from course_utils.exercises.engine import Exercise, exercise, find
from course_utils.exercises.evidence import TimeIsUp, time_limit
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.exercises.plain import plain, show
from course_utils.root import CourseError
from course_utils.show import CAUTION, GOOD, NEUTRAL, code_spans

pytestmark = pytest.mark.usefixtures("nothing_remembered")


@pytest.fixture
def declare(monkeypatch):
    """Declare an exercise for one test only; `given` makes the arguments of its two cases."""

    def make(reference, given, limit=10.0):
        asked = {"name": reference.__name__, "lesson": 99, "points": 2, "hints": ("nudge", "concept"), "task": ""}
        declared = Exercise(**asked, make_cases=lambda rng: (Case(given(rng)) for _ in range(2)), limit=limit)
        declared.page = Page("", [], ["code"], [], {})
        declared.answers, declared.mistakes = [Answer("", reference)], []
        for known in (engine._declared(), engine._exercises):
            monkeypatch.setitem(known, declared.name, declared)
        return declared

    return make


def square(x):
    return x * x


def write_answer(source, tmp_path, name):
    """A function from source text, with a file behind it, as in a notebook cell."""
    path = tmp_path / "answer.py"
    path.write_text(source)
    namespace = {"torch": torch}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    return namespace[name]


@pytest.mark.parametrize(
    ("answer", "stage", "words"),
    [
        ("return torch.tensor([1.0, 4.0])", Stage.PASSED, ""),
        ("y = None; return y", Stage.RETURNED_NOTHING, "returned nothing (None); expected [1., 4.]"),
        ("return [1.0, 4.0]", Stage.WRONG_TYPE, "a list of 2; expected a tensor of shape (2,)"),
        ("return torch.empty(2, device='meta')", Stage.WRONG_TYPE, "a tensor whose numbers cannot be read"),
        ("return torch.eye(2).to_sparse()", Stage.WRONG_TYPE, "a tensor whose numbers cannot be read"),
        ("return torch.ones(3)", Stage.WRONG_SHAPE, "a tensor of shape (3,); expected shape (2,)"),
        ("return torch.tensor([1, 4])", Stage.WRONG_DTYPE, "of dtype int64; expected float32"),
        ("return torch.tensor([1.0, float('nan')])", Stage.NOT_FINITE, "[1., nan]; expected [1., 4.]"),
        ("return torch.tensor([1.0, 5.0])", Stage.WRONG_VALUE, "[1., 5.]; expected [1., 4.]"),
        ("x.mul_(2); return torch.tensor([1.0, 4.0])", Stage.SIDE_EFFECT, "changed its input `x` in place"),
        ("x.requires_grad_(); return torch.tensor([1.0, 4.0])", Stage.SIDE_EFFECT, "`requires_grad`"),
        ("raise type('Odd', (BaseException,), {})('no')", Stage.RAISED, "raised Odd: no"),
        ("raise type('Mute', (Exception,), {'__str__': 1})", Stage.RAISED, "raised Mute"),
        ("return 1 / 0", Stage.RAISED, "your line 2, `return 1 / 0`, raised ZeroDivisionError: division by zero"),
        (
            "from dataclasses import make_dataclass as of; hash(of('A', 'b', frozen=True)([]))",
            Stage.RAISED,
            "line 2, `from",
        ),
        ("raise KeyboardInterrupt", Stage.RAISED, "You interrupted the check"),
        ("torch.set_default_dtype(torch.float64); raise KeyboardInterrupt", Stage.RAISED, "You interrupted the check"),
        ("yield torch.tensor([1.0, 4.0])", Stage.WRONG_TYPE, "a generator"),
        ("import sys; sys.exit(3)", Stage.RAISED, "SystemExit"),
        ("torch.set_default_dtype(torch.float64); return x * x", Stage.SIDE_EFFECT, "changed default dtype"),
    ],
)
def test_first_failing_stage_is_the_outcome(answer, stage, words, declare, tmp_path):
    declare(square, lambda rng: {"x": torch.tensor([1.0, 2.0])})
    outcome = check(write_answer(f"def square(x):\n    {answer}\n", tmp_path, "square"))
    assert outcome.stage is stage, outcome
    assert words in str(outcome)
    assert outcome.points == (2 if stage is Stage.PASSED else 0)
    assert torch.get_default_dtype() == torch.float32


BAD_HOOK = "scale_gradient(x, n):\n def hook(grad):\n  return grad * facto\n return x.register_hook(hook)"
STORED = "scale_gradient(x, n, kept=[]):\n kept.append(x)\n return x.register_hook(lambda g: g * n)"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda model, x: model.register_forward_hook(lambda *_: None) and model(x), "left a hook on `model`"),
        (lambda model, x: model(x).sum().backward() or model(x), "model.0.weight.grad was a tensor of shape (1, 2)"),
        (lambda model, x: setattr(model, "a", model[0]) or model(x)[0], "changed its input `model` in place"),
        (
            lambda model, x: model.register_parameter("w", nn.Parameter(x)) or model(x),
            "changed an attribute of `model`",
        ),
        (lambda model, x: setattr(model, "training", torch) or model(x), "in another mode"),
        (lambda model, x: setattr(model, "named_modules", None) or model(x), "'NoneType' object is not callable"),
    ],
)
def test_what_is_left_on_a_module_is_told(answer, words, declare):
    given = {"model": nn.Sequential(nn.Linear(2, 1)), "x": torch.ones(1, 2)}
    declared = declare(lambda model, x: model(x), lambda rng: copy.deepcopy(given))
    assert words in declared.check(answer, 0).sentence
    assert json.dumps(declared.observe(answer, 0))


def test_cases_have_modules_of_their_own_seed_and_the_learner_keeps_the_random_numbers(declare):
    declared = declare(lambda model, x: model(x), lambda rng: {"model": nn.Linear(2, 2), "x": rng.whole(1, 2)})
    state = torch.random.get_rng_state()
    assert declared.check(lambda model, x: torch.rand(17) is None or model(x), 3).passed
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_case_that_follows_others_is_tried_alone_after_them(declare):
    def make_cases(_):
        earlier = []
        yield Case({"x": torch.ones(1)}, earlier.append)
        yield Case({"x": torch.zeros(1)}, lambda _: {"what came back before": earlier[0]}, follows=True)

    declared = declare(square, None)
    declared.make_cases = make_cases
    (alone,) = declared.observe(square, 0, at=1)
    assert alone["seen"] == declared.observe(square, 0)[1]["seen"]
    assert alone["seen"]["what came back before"]["values"] == [1.0]


def test_a_change_that_the_task_asks_for_must_come_out_right(declare):
    def change(by, evaluate=True):
        return lambda x, model: [x.add_(by), model.train(not evaluate)].clear()

    declared = declare(change(1), lambda rng: {"x": torch.ones(2), "model": nn.Dropout()})
    assert declared.check(change(1), 0).passed
    assert "afterwards `x` was [3., 3.]; expected [2., 2.]" in declared.check(change(2), 0).sentence
    found = declared.check(change(1, evaluate=False), 0)
    assert "`model` did not end in the state (training) it should" in found.sentence


SWALLOWS = "while True:\n        try:\n            while True: pass\n        except Exception: pass"


@pytest.mark.parametrize("body", ["import time\n    time.sleep(60)", SWALLOWS], ids=["sleeps", "swallows exceptions"])
def test_endless_answer_is_stopped_with_a_sentence(body, declare, tmp_path):
    declared = declare(square, lambda rng: {"x": rng.whole(2)}, limit=0.3)
    handler = signal.getsignal(signal.SIGALRM)
    outcome = declared.check(write_answer(f"def square(x):\n    {body}\n", tmp_path, "square"), 0)
    assert outcome.stage is Stage.RAISED
    assert "did not come to an end in time and was stopped (it was in your line" in outcome.sentence
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


LIBRARY = """
import contextlib, time

@contextlib.contextmanager
def puts_back(done):
    try:
        yield
    finally:
        time.sleep(0.3)
        done.append("put back")
"""


def test_a_library_is_not_cut_off_while_it_loads_or_puts_things_back(tmp_path, monkeypatch):
    """With half of torch loaded, or half of its patches taken away, nothing else would work any more."""
    (tmp_path / "slow_part.py").write_text("import time\ntime.sleep(0.3)\nwhole = True\n")
    (tmp_path / "patching_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(evidence, "NOT_OWN", (*evidence.NOT_OWN, str(tmp_path)))
    puts_back, done = importlib.import_module("patching_library").puts_back, []

    def run(part, goes_on=True):
        if part == "loads":
            importlib.import_module("slow_part")
        with puts_back(done) if part == "puts back" else nullcontext():
            pass
        while goes_on:
            pass

    for part in ("loads", "puts back"):
        with pytest.raises(TimeIsUp), time_limit(0.1):
            run(part)
    assert (sys.modules["slow_part"].whole, done) == (True, ["put back"])
    monkeypatch.setattr(evidence, "SECONDS_MORE", 0)
    with pytest.raises(TimeIsUp), time_limit(0.1):
        run("puts back", goes_on=False)
    assert done == ["put back"], "but not for ever"


@contextmanager
def clears_up_for_seconds(ended):
    try:
        yield
    finally:
        end = time.monotonic() + evidence.SECONDS_MORE / 2
        while time.monotonic() < end:
            pass
        ended.append("by itself")


def test_what_a_library_calls_of_an_answer_while_it_puts_things_back_is_cut_off():
    ended = []
    with pytest.raises(TimeIsUp), time_limit(0.1), clears_up_for_seconds(ended):
        pass
    assert ended == []


def test_what_is_printed_is_not_kept(declare, capsys):
    declared, answer = declare(square, lambda rng: {"x": rng.whole(2)}), lambda x: print("x" * 10_000) or x * x
    assert declared.check(answer, 0).passed, "printing is allowed"
    assert "xxx" not in str(declared.observe(answer, 0)) + capsys.readouterr().out


def unwrapped(*given):
    def wrapper(*args):
        return function(*args)

    if given:  # else the wrapper uses what is not there yet
        (function,) = given
    return wrapper


async def in_the_background(tensor):
    return tensor


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (None, "this is None"),
        (torch.ones(2), "a value of type Tensor"),
        (lambda tensor: tensor, "A lambda has no name"),
        ("scale_gradient", "without quotes: check(scale_gradient)."),
        ("scale_gradien", "quotes. `scale_gradien` is not the name of an exercise; did you mean scale_gradient"),
        (functools.partial(print, 1), "functools.partial"),
        (print, "did you mean run_to? Keep the name that the answer cell came with"),
        (types.MethodType(find("scale_gradient").reference, torch), "is a method"),
        (nn.ReLU(), "an object of the class ReLU"),
        (unwrapped(find("scale_gradient").reference), "hides the name of scale_gradient: put `@functools.wraps"),
        (unwrapped(), "`wrapper` is not the name of an exercise"),
        (in_the_background, "written with `async def`"),
    ],
)
def test_check_of_something_else_says_what_to_give(thing, words):
    outcome = check(thing)
    assert outcome.stage is Stage.NOT_AN_EXERCISE
    assert words in str(outcome)
    assert words.replace("check(", "hint(") in str(classroom.hint(thing))
    assert words.replace("check(", "solution(") in str(classroom.solution(thing))


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (lambda x: -x, "Every wrong number has the other sign."),
        (lambda x: x.abs(), "Where numbers are wrong, only signs are."),
        (lambda x: x.flip(0), "Where numbers are wrong, the right ones stand there in another order."),
        (lambda x: x * 4, "Every wrong number is 4. times what it should be."),
        (lambda x: x - 0.5, "Every wrong number differs by -0.5 from what it should be."),
        (lambda x: x * torch.tensor([1.0, 2.0, 3.0]), ""),
        (lambda x: x.tolist(), ""),
    ],
)
def test_what_all_numbers_have_in_common_is_a_cause(answer, cause, declare):
    outcome = declare(lambda x: x, lambda rng: {"x": torch.tensor([-1.0, 2.0, 4.5])}).check(answer, 0)
    assert outcome.cause == cause
    assert ("The cause is not known" in str(outcome)) == (not cause and outcome.stage is Stage.WRONG_VALUE)


@pytest.mark.parametrize(
    ("body", "said", "not_said"),
    [
        (BAD_HOOK, "your line 3, `return grad * facto`, raised NameError: name 'facto' is not defined", "left a hook"),
        (BAD_HOOK, "; it ran after your function had returned", "Likely cause"),
        (STORED, "an input is still in memory when all is over, so something that your answer made", "leave out"),
        (STORED, "make the default value of the argument anew in each call", "not known"),
        ("scale_gradient(x):\n return x", "was called as its task says, and that failed: TypeError: scale_", "cause"),
        ("scale_gradient(tensor, factor):\n tensor.register_hook(lambda g: 1)", "returned nothing", "left a hook"),
        ("step_in_backward(these, rate):\n return map(lambda p: p.register_hook(abs), these)", "Make a list", "place"),
        ("record_norms(these):\n all = dict.fromkeys(these)\n return list(all.values())", "None", "`list`"),
        ("make_twelve(w):\n w.register_post_accumulate_grad_hook(lambda p: None)\n return w.register_hook(lambda g: "
         "g * 0 + 12)", "left a hook on `w`: removing what you returned does not take it away", "an error comes"),
        ("attention_maps(layer, x):\n all = []\n pre = layer.self_attn.register_forward_pre_hook(lambda m, a, k: (a, "
         "k | {'need_weights': True, 'average_attn_weights': False}), with_kwargs=True)\n with pre, layer.self_attn."
         "register_forward_hook(lambda m, a, out: all.append(out[1][0].detach())):\n  layer(x)\n return all[0]",
         "leave out `[0]`", "another index"),
        ("step_in_backward(these, rate):\n these[0].register_hook(print)\n return []", "a hook's handle", "not known"),
        ("record_gradient(x):\n all = []\n x.register_hook(lambda g: all.append(g) or all)\n return all",
         "What a tensor's hook returns takes the gradient's place", "is missing"),
        ("record_gradient(x):\n all = []\n def f(g):\n  all.append(g)\n  handle.remove()\n handle = x.register_hook(f)"
         "\n return all", "leave out this step. Besides: You stored the gradient itself", "would pass"),
        ("step_in_backward(all, rate):\n def f(p):\n  p.data -= rate * p.grad.sign()\n  p.grad = None\n return ["
         "p.register_post_accumulate_grad_hook(f) for p in all]", "leave out the call of `sign`", "the minus"),
        ("logits_without(model, layer, along, x):\n with layer.register_forward_hook(lambda _, __, out: out - (out * "
         "along).sum(1)):\n  return model(x)", "must match the size", "one part of the calculation"),
        ("logits_without(model, layer, along, x):\n return model(x)[:, :2]", "1 picture, your", "1 pictures"),
        ("share_on_the_cut(method, model, later, keep, dead):\n h = later.register_forward_hook(lambda _, __, out: out"
         " * keep)\n heat = method(model).relu()\n h.remove()\n return float(heat[dead].sum() / max(heat.sum(), 1e-9))",
         "left a hook on `later`: remove those that have done their work, even if an error", "Besides"),
        ("largest(tensor):\n return torch.max(tensor).item() - 1",
         "line 2, `return torch.max(tensor).item() - 1`: leave out one part of", "not known"),
        ("largest(tensor):\n return tensor.flatten().sort().values[-2].item()",
         "change one of the numbers or flags", "not known"),
        ("channel_weights(gradient):\n return gradient.sum((2, 3))", "Likely cause: You took the sum.", "Try this"),
        ("pass_relu(rule, f, grad):\n return grad * (f > 0) * (grad > 0) if rule == 'guided' else grad * (f > 0)",
         "See both runs", "Likely cause"),
        ("largest(tensor):\n return 7.25", "The cause is not known", "Likely cause"),
    ],
)  # fmt: skip
def test_what_is_said_is_true_of_the_answer_and_helps(body, said, not_said, tmp_path, monkeypatch):
    monkeypatch.setattr(repair, "SECONDS", 60.0)  # however busy the machine
    monkeypatch.setattr(engine, "SECONDS_FOR_AN_EDIT", 10.0)
    text = str(check(write_answer(f"def {body}\n", tmp_path, body.split("(")[0])))
    assert said in text
    assert not_said not in text


def doubled(x, net):
    return x.clone() + x


def test_a_side_effect_is_told_beside_the_cause(declare):
    declared = declare(doubled, lambda rng: {"x": rng.leaf(2), "net": nn.Linear(1, 1)})
    declared.mistakes.append(Mistake("", lambda x, net: x.clone() * 0, "You subtract."))
    outcome = declared.check(lambda x, net: [net.register_forward_hook(print)] and x - x, 0)
    assert outcome.cause == "You subtract."
    assert " Besides, your function left a hook on `net`: " in outcome.sentence


def test_a_removed_hook_is_told_of_the_innermost_module_with_a_name(declare):
    def make(rng):
        layer = nn.Linear(1, 1)
        layer.register_forward_hook(lambda *_: None)
        return {"net": nn.Sequential(layer), "layer": layer}

    declared = declare(lambda net, layer: None, make)
    sentence = declared.check(lambda net, layer: layer._forward_hooks.clear(), 0).sentence
    assert "removed a hook from `layer` that is not its own" in sentence


def test_a_message_is_said_only_where_what_it_names_is_in_the_answer(declare):
    declared = declare(doubled, lambda rng: {"x": rng.whole(3), "net": nn.Linear(1, 1)})
    declared.mistakes.append(Mistake("", lambda x, net: x.square(), "`square` is not what is asked for."))
    assert "`square`" in declared.check(lambda x, net: torch.square(x), 0).cause
    assert "`square`" not in declared.check(lambda x, net: x * x, 0).cause


@pytest.mark.parametrize("given", [{"x": [torch.ones(1), nn.Linear(1, 1)]}, {"x": {"a": torch.ones(1)}}])
def test_what_lies_in_a_list_or_dict_is_watched(given, declare):
    def spoil(x):
        (x["a"] if isinstance(x, dict) else x[0]).add_(1)

    declared = declare(lambda x: None, lambda rng: {"x": copy.copy(given["x"])})
    for change in (spoil, lambda x: x.clear()):
        assert "changed its input `x" in declared.check(change, 0).sentence


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda net: net._forward_hooks.clear(), "removed a hook from `net` that is not its own"),
        (lambda net: net.zero_grad(), "net.weight.grad was None"),
        (lambda net: net.train(), "left `net` in another mode"),
        (lambda net: net.requires_grad_(), "changed `requires_grad` of its input `net`"),
        (lambda net: setattr(net, "forward", abs), "changed an attribute of `net`"),
    ],
)
def test_a_network_is_tried_as_somebody_has_used_it(spoil, words, declare):
    declared = declare(lambda net: None, lambda rng: {"net": nn.Linear(1, 1)})
    sentence = declared.check(lambda net: [spoil(net)].clear(), 0).sentence
    assert words in sentence
    assert (evidence.IN_USE in sentence) is ("attribute" not in sentence)
    declared.make_cases = lambda rng: (Case({"net": nn.Linear(1, 1)}, fresh=True) for _ in range(2))
    assert declared.check(lambda net: [net.train()].clear(), 0).passed


def test_a_new_module_is_said_to_be_new_and_not_to_have_another_mode(declare):
    declared = declare(lambda net: None, lambda rng: {"net": nn.Sequential(nn.ReLU()).eval()})
    sentence = declared.check(lambda net: [setattr(net, "0", nn.ReLU())].clear(), 0).sentence
    assert "gave it a new one" in sentence
    assert "another mode" not in sentence


def test_before_the_answer_cell_ran_and_of_another_number_of_functions():
    assert "Give one function" in str(check()) == str(check(square, square))
    outcome = check(find("scale_gradient"))
    assert outcome.stage is Stage.NOT_ATTEMPTED
    assert "Run the answer cell first" in str(outcome)
    assert repr(find("scale_gradient")).startswith("scale_gradient: run the answer cell")
    with pytest.raises(NotImplementedError, match="Run the answer cell that defines scale_gradient first"):
        find("scale_gradient")(torch.ones(1), 2)


@pytest.mark.parametrize(
    ("body", "blank"),
    [
        *((body, True) for body in ("...", "pass", "return", "return None", '"""doc"""', '"""doc"""\n    ...')),
        *((body, False) for body in ("print()", "return 0", "return tensor", "yield", "raise")),
    ],
)
def test_what_does_nothing_is_not_attempted_and_not_counted(body, blank, tmp_path):
    answer = write_answer(f"def scale_gradient(tensor, factor):\n    {body}\n", tmp_path, "scale_gradient")
    outcome = check(answer)
    assert (outcome.stage is Stage.NOT_ATTEMPTED) is blank
    assert ("Replace the `...`" in str(outcome)) is ("..." in body)
    assert saved_progress.of_exercise("scale_gradient")["attempts"] == (not blank)
    source = f"class A:\n  def g(self): ...\n  def f(self, tensor):\n    {body}\n"
    assert is_blank(write_answer(source, tmp_path, "A")) is blank
    assert not is_blank(print)


@pytest.mark.parametrize(
    ("body", "blank"),
    [
        ("class A: ...", True),
        ('class A:\n    """Text."""\n    x: int', True),
        ("class A:\n    def f(self): ...", True),
        ("class A:\n    def __new__(cls, x): return x", False),
        ("class A:\n    @classmethod\n    def f(cls): return 1", False),
        ("class A:\n    __call__ = max", False),
        ("class A(dict): pass", False),
        ("class A(dict):\n    def f(self): ...", True),
    ],
)
def test_a_class_is_blank_as_long_as_it_does_nothing_in_whatever_way(body, blank, tmp_path):
    assert is_blank(write_answer(body, tmp_path, "A")) is blank


@pytest.mark.parametrize("wrap", [lambda function: function, contextmanager])
def test_same_function_again_is_probably_an_edit_that_was_not_run(wrap, tmp_path, declare):
    declare(square, lambda rng: {"x": rng.whole(2)})
    answers = [wrap(write_answer(f"def square(x):\n    yield {n}\n", tmp_path, "square")) for n in (1, 2)]
    said = ["same function as at the last check" in str(check(answers[number])) for number in (0, 0, 0, 1, 0)]
    assert said == [False, True, True, False, False]
    check(square)
    assert classroom.session.failed_code == {}


def test_answer_made_of_constants_fails_on_fresh_inputs(declare):
    declared = declare(square, lambda rng: {"x": rng.integer(1, 10**6)})
    known = {case["given"]: case["returned"]["value"] for case in declared.observe(square, classroom.VISIBLE_SEED)}
    outcome = check(functools.wraps(square)(lambda x: known.get(f"x = {x}", 0)))
    assert outcome.stage is Stage.WRONG_VALUE
    assert "On the first inputs it was right" in outcome.note


def test_both_faces_say_the_same():
    outcome = Outcome("f", Stage.WRONG_VALUE, "for x = 1 <b> it was `2`.", "forgot & lost", "", 3, 2)
    text = "f: not yet (wrong value)\n  for x = 1 <b> it was `2`.\n  Likely cause: forgot & lost\n  Stuck? hint(f)"
    assert str(outcome) == repr(outcome) == text
    page = outcome._repr_html_()
    assert all(part in page for part in ("&lt;b&gt;", "forgot &amp; lost", "<code>2</code>", "✗"))
    (passed, not_yet) = (Outcome("f", stage, possible=1) for stage in (Stage.PASSED, Stage.NOT_ATTEMPTED))
    assert (passed.symbol, passed.edge, str(passed)) == ("✓", GOOD, "f: passed (1 point)")
    assert (not_yet.symbol, not_yet.edge, str(not_yet)) == ("○", NEUTRAL, "f: not attempted yet")
    assert (outcome.symbol, outcome.edge) == ("✗", CAUTION)
    assert code_spans("a ` b <script>\n") == "a ` b &lt;script&gt;<br>"
    assert code_spans("the *first* of `a *b*`, 2 * 3 * 4, *args and **kwargs*") == (
        "the <em>first</em> of <code>a *b*</code>, 2 * 3 * 4, *args and **kwargs*"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.tensor([[1.0, -2.5], [0.1, 3e-7]]), "[[1., -2.5], [0.1, 3e-07]]"),
        (torch.zeros(2, 0), "[[], []]"),
        (torch.arange(4.0).reshape(2, 1, 2), "[[[0., 1.]], [[2., 3.]]]"),
        ([torch.tensor([-0.0]), -0.0], "[[0.], 0.]"),
        ((1, "a", None, True), "(1, 'a', None, True)"),
        ({2}, "{2}"),
        ({1: 2.0}, "{1: 2.}"),
        (list(range(13)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …]"),
        (torch.zeros(100), "a tensor of shape (100,) that begins with 0., 0., 0., 0."),
        (torch.float32, "'torch.float32'"),
        (nn.Parameter(torch.ones(1)).register_hook(print), "a hook's handle"),
        (nn.ReLU(), "a module (ReLU)"),
        (torch.no_grad(), "a context manager"),
        (print, "a function"),
        (object(), "an object of type object"),
        (10**100, "an object of type huge int"),
        (math.inf, "inf"),
        (torch.tensor([1 + 2j, 3]), "[1., 3.]"),
        (functools.reduce(lambda inner, _: [inner], range(12), 1), "[[[[a list of 1]]]]"),
    ],
)
def test_values_are_short_and_exact_in_messages(value, text):
    assert show(json.loads(json.dumps(plain(value)))) == text


def test_cases_that_no_lesson_asks_for_are_refused():
    def nobody_asks(rng):
        yield Case({})

    with pytest.raises(CourseError, match=r"nobody_asks has cases, and no lesson .* asks for it"):
        exercise(nobody_asks)


def test_numbers_are_exact_small_and_the_same_everywhere():
    rng, mixed, leaf = Numbers(0), Numbers(3).mixed(6), Numbers(1).leaf(2, 2)
    assert [rng.integer(1, 9) for _ in range(5)] == [8, 7, 4, 3, 5]
    assert ((mixed != 0).all(), (mixed[:-1] * mixed[1:] < 0).all()) == (True, True)
    assert (leaf.is_leaf, leaf.requires_grad) == (True, True)
