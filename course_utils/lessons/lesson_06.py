"""Exercises and predictions of lesson 06: Guided Backpropagation."""

from __future__ import annotations

import collections
import contextlib
import copy

import torch
from torch import nn

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.engine import exercise, prediction
from course_utils.hooks.inventory import list_hooks
from course_utils.lessons.lesson_03 import whole_weights

# --- predictions ------------------------------------------------------------------------------------------------------

prediction(
    "deconvnet_silent_unit",
    lesson=6,
    question="the third unit put out 0, and the gradient 4 arrives at it. What does the deconvnet rule let through?",
    options={
        0: "Backprop stops it there: what a silent unit receives does not count. The deconvnet does not look at f.",
        4: "The rule asks one question only, whether R is above 0, and 4 is. What the unit put out plays no part.",
        -4: "No rule turns a sign round: each one lets a number pass as it is, or stops it.",
    },
    answer=4,
    why="""
        The deconvnet lets 4 through. The third unit was silent, so backprop and the guided rule stop its 4, but the
        deconvnet does not ask. The second unit was active, and its R is negative: backprop lets -3 pass, the two
        others stop it. Only the first unit is open in all three rules.
    """,
    ask={
        0: "Look at the code `(R > 0) * R`. Which number does it compare with 0, and what is this number at the third "
        "unit?",
        -4: "A rule multiplies R by 0 or by 1. Which numbers can come out for R = 4?",
    },
)
prediction(
    "guided_first_input",
    lesson=6,
    question="backprop gives x1 the gradient -7, the deconvnet 6. What does guided backpropagation give it?",
    options={
        -1: "Guided backpropagation is not the sum of the two. A unit passes only where both rules let it.",
        0: "The first unit passes both tests: its 2 goes on to x1 over a weight of 1.",
        2: "Only the first unit passes both tests: 2 times its weight to x1, which is 1.",
        6: "That would need the third unit, which is silent: guided backpropagation stops it as backprop does.",
    },
    answer=2,
    why="""
        Guided gives x1 a 2. The three rules have three answers, and only the first, -7, is the derivative: if x1
        grows by a little, y **falls** seven times as much. So guided backpropagation does not show how the output
        would change. It shows what is *active and speaks for it*.

        Negative numbers may still come out at the inputs, such as the -4 of the deconvnet, because there is no ReLU
        below the last weights.
    """,
    ask={
        -1: "At the second unit, backprop lets the -3 pass and the deconvnet stops it. What does a rule do that needs "
        "a yes from both?",
        0: "The first unit put out 5, and a 2 arrives there. Which of the two tests stops it?",
        6: "From which units does the 6 of the deconvnet come? What did each of these units put out?",
    },
)
prediction(
    "functional_relu",
    lesson=6,
    question="the network calls `F.relu`, and your hooks sit on every `nn.ReLU` that it has. What do you get?",
    options={
        "an error": "Nothing is wrong for PyTorch: a loop over no modules registers no hooks, and that is allowed.",
        "the gradient of your rule": "A function is no module: no hook of yours is called when it runs.",
        "the plain gradient": "There is no `nn.ReLU` to hook, so nothing changes, and nothing says so.",
        "zeros": "Zeros would at least be seen. The result is the ordinary gradient, and looks plausible.",
    },
    answer="the plain gradient",
    why="""
        There are 0 hooks and no error, and the result is [-7, 7]: the plain gradient under the name of another
        method. This is the worst kind of failure, because the picture would look plausible. Count your hooks.
    """,
    ask={
        "an error": "How many modules does `hook_relus` find in this network? What does Python do in a loop over an "
        "empty list?",
        "the gradient of your rule": "The forward calls `F.relu(x)`. On which Python object does your hook sit?",
        "zeros": "No hook is called here. Who computes the gradient at the ReLU then, and by which of the three rules?",
    },
)
prediction(
    "a_thousand_times",
    lesson=6,
    question="the gradient becomes 1000 times as large, everywhere. What becomes of its normalised picture?",
    options={
        "all black or white": "So it would be without the division by the standard deviation.",
        "more contrast": "The contrast is always the same: a standard deviation of 0.1, however large the gradient.",
        "the same picture": "Mean and standard deviation grow by the same factor, and it cancels out.",
    },
    answer="the same picture",
    why="""
        The picture stays the same for any factor. So **the size is hidden**: a gradient that is almost zero looks as
        convincing as a large one. On a fixed scale, a tenth of the gradient fades. Two more things are hidden:

        - The strongest values are clipped to black and white, and nobody sees by how much they lead.
        - The **sign** is hard to read. With all signs turned round, you get the negative of the picture, and on a
          coloured dot of three channels nobody sees which one it is.

        When you compare two gradients, put them on one scale, or give the numbers beside the pictures.
    """,
    ask={
        "all black or white": "Take [-1, 0, 1] and [-1000, 0, 1000]. What is the standard deviation of each, and what "
        "comes out after the division?",
        "more contrast": "Divide any numbers by their own standard deviation. How far do the results spread, for small "
        "numbers and for large ones?",
    },
)
prediction(
    "most_on_the_thing",
    lesson=6,
    question="which rule puts the largest part of its map on the thing that was asked for, on this small network?",
    options={
        "gradient": "It is the exact derivative, but much of it lies elsewhere: 0.73 here, where 0.5 is chance.",
        "deconvnet": "It ignores which units were active, and with that most of what it could know.",
        "guided": "Said to be blind to the class, it is the clearest of the three on this small network.",
        "none": "That is what the texts say of Guided Backprop. On this small network it is not so.",
    },
    answer="guided",
    why="""
        The guided rule puts 0.82 on the thing that was asked for, the gradient 0.73, and the deconvnet 0.51. So on
        **this** network Guided Backprop does follow the class. The one that is blind is the deconvnet, which draws
        the same for both (Mahendran & Vedaldi, 2016, found this on large networks).

        The other columns say more. The **cosine** of the two gradients is -0.39: some of what speaks for the one
        thing speaks against the other. The guided maps have 0.38, because a rule that stops everything negative
        cannot show what speaks *against* a class. Their **rank correlation** is the highest, 0.69: the two maps share
        most of their lines, and differ in how bold these are.
    """,
    ask={
        "gradient": "The gradient for the cat also says what speaks *against* a cat. On which pixels may that lie, and "
        "does it count as strength?",
        "deconvnet": "A unit put out 0, because it found nothing in this picture. What does the deconvnet do with a "
        "positive gradient that arrives there?",
        "none": "In the explorer, take the guided rule and ask for the cat, then for the boat. How much of the map "
        "lies on each?",
    },
)
prediction(
    "two_classes_of_a_photograph",
    lesson=6,
    question="the large network makes two guided maps of a photograph, one for what is there and one for what is not. "
    "What is their cosine?",
    options={
        "about 0.4": "So it is on the small network. On this one, far less of the class is left.",
        "about 0.7": "They are more alike still: nobody could tell them apart.",
        "1.0": "Whatever you ask for, you get the same map.",
    },
    answer="1.0",
    why="""
        The cosine is 1.0 for all three photographs. The guided map of the cat is the same whether you ask for
        *Egyptian cat* or for *espresso*, and so is the deconvnet's. Texts say that Guided Backprop is blind to the
        class, and **on this network it is.** The plain gradient and Grad-CAM change a lot with the class; where the
        cosine is negative, a place that speaks for one class speaks against the other.

        The last table shows where the class is lost. At `blocks.6.0` there is one ReLU on the way, and the two maps
        have a cosine of 0.6. With every block further down they become more alike, and at `blocks.5.1` it is 1.0
        already, long before the pixels. A ReLU that stops everything negative makes the two maps more alike, and this
        network has 33 of them; the small one has five. In the end the map redraws the picture's own edges (Nie, Zhang
        & Patel, 2018; Sixt, Granz & Landgraf, 2020).
    """,
    ask={
        "about 0.4": "In the small network there are five ReLUs on the way to the pixels, here 33. What does the "
        "guided rule drop at each?",
        "about 0.7": "Suppose the two maps are the same at some layer in the middle. What could make them differ again "
        "on the way to the pixels?",
    },
)
prediction(
    "random_classifier",
    lesson=6,
    question="the last layer, the only one that knows classes, becomes random. How similar does the guided map stay?",
    options={
        0.0: "So it should be, if the map explained the class. Rank correlation 0 means: unrelated.",
        0.3: "The guided map keeps far more, and even the plain gradient keeps 0.5.",
        0.6: "More still. Which pixels are bright depends mostly on the layers below.",
        0.9: "Nearly all of the map's pattern comes from layers that do not know the classes.",
    },
    answer=0.9,
    why="""
        Read by absolute value, the guided map still correlates at 0.89 with the original one when the classifier
        knows nothing, and at 0.63 when four layers of six are random. Most of the drawing comes from the lower
        layers, which find edges. You may trust it for "which edges are active below", not for "why this class".

        Compare the other methods **in the same way**. By absolute value the gradient keeps 0.54 and Grad-CAM 0.58. By
        sign, as in the last row, both keep 0.2. If you read the gradient by absolute value and Grad-CAM by sign, as
        is often done, you find a difference between the two that is not there. The guided map stays most similar in
        both ways.

        Even all layers random do not give 0: the maps of an untrained network know where the edges are, too.
    """,
    ask={
        0.0: "Only the last layer is random. Which layers lie between it and the pixels, and how many of these have "
        "changed?",
        0.3: "Think of the guided map of a cat: which lines does it draw? Which layers find such lines, and have these "
        "layers changed?",
        0.6: "An edge detector never looks at the network. Which number would it get in this test, and what does the "
        "guided map show?",
    },
)

# --- what the cases are made of ---------------------------------------------------------------------------------------


def every_sign(count: int) -> torch.Tensor:
    """All combinations of `count` signs, one a column: (count, 2 ** count), of 1 and -1."""
    return 1.0 - 2.0 * (torch.arange(2**count) // 2 ** torch.arange(count)[:, None] % 2)


class Each(nn.Module):
    """Every number times a weight of its own, plus a bias."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, x):
        return x * self.weight + self.bias


def telling_net(rng: Numbers) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A net, an input, and what arrives at its output, such that every mistake shows in the gradient at the input.

    Of its ReLUs, one is called twice, and two lie one and two levels down. Each of the 256 units is a path of its own,
    with another combination of signs: whether the first and the last ReLU are active, of what arrives, of the weights.
    """
    first, last, arriving, b, c, d = rng.quarters(6, 64, high=2).abs() * every_sign(6)
    zero, twice = torch.zeros(64), nn.ReLU()
    e, turn = every_sign(2)[:, :, None] * torch.ones(64)
    inner = nn.Sequential(Each(c, zero + 20), nn.ReLU())
    block = nn.Sequential(Each(b, zero), nn.LeakyReLU(0.5), inner, Each(d, zero + 100), nn.ReLU())
    top = [Each(first, zero), twice, block, Each(e * turn, zero), Each(turn, 400 * last.sign()), twice]
    return nn.Sequential(*top), rng.quarters(1, 64).abs().repeat(4, 1), arriving


def gradient_at(x: torch.Tensor, model: nn.Module, arriving: torch.Tensor) -> torch.Tensor:
    """The gradient at `x`, where `arriving` is the gradient at the output of `model`."""
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad((model(x) * arriving).sum(), x)[0]


def look(*_: object) -> None:
    """A hook of somebody else's, which changes nothing."""


# --- exercises --------------------------------------------------------------------------------------------------------


@exercise(
    lesson=6,
    points=1,
    hints=[
        "Each rule is a mask times `grad`. A comparison such as `grad > 0` is a mask, and masks may be multiplied.",
        'backprop: `(f > 0) * grad`; the deconvnet asks the same question of `grad`; "guided" asks both.',
        '`if rule == "guided": return (f > 0) * (grad > 0) * grad`, and one such line for each other rule.',
    ],
)
def pass_relu(rule, f, grad):
    """Return the gradient that goes on through a ReLU by `rule`: "backprop",
    "deconvnet" or "guided".

    `f` is what the ReLU put out, `grad` the gradient that arrives. Backprop lets it
    pass where `f` is above 0, the deconvnet where `grad` is, guided backpropagation
    where both are. Everything else becomes 0.
    """
    if rule == "backprop":
        return (f > 0) * grad
    if rule == "deconvnet":
        return (grad > 0) * grad
    return (f > 0) * (grad > 0) * grad


@pass_relu.cases
def _(rng):
    for rule in ("backprop", "deconvnet", "guided"):
        f, grad = rng.quarters(2, 5).abs(), rng.quarters(2, 5).abs()
        f[[0, 1, 1], [3, 0, 2]] = 0
        f[0, :3], grad[:, :2] = rng.whole(3, high=3) / 100, rng.whole(2, 2, high=3) / 100  # above 0, however little
        grad[:, [1, 3]] *= -1
        grad[:, 4] = 0
        yield Case({"rule": rule, "f": f, "grad": grad})


@pass_relu.accept
def _(rule, f, grad):
    passed = grad.clone()
    if rule != "deconvnet":
        passed[f == 0] = 0
    if rule != "backprop":
        passed[grad < 0] = 0
    return passed


@pass_relu.accept
def _(rule, f, grad):
    active = torch.ones_like(f) if rule == "deconvnet" else f.sign()
    return active * (grad if rule == "backprop" else grad.clamp(min=0))


@pass_relu.accept
def _(rule, f, grad):
    masks = {"backprop": f > 0, "deconvnet": grad > 0, "guided": (f > 0) & (grad > 0)}
    return torch.where(masks[rule], grad, torch.zeros_like(grad))


pass_relu.equivalent(
    "A rule that is in the name of another is not among the three.",
    "compare otherwise: - if rule == 'backprop': + if rule in 'backprop':",
    "compare otherwise: - if rule == 'deconvnet': + if rule in 'deconvnet':",
    "compare otherwise: - active = torch.ones_like(f) if rule == 'deconvnet' else f.sign() + active = "
    "torch.ones_like(f) if rule in 'deconvnet' else f.sign()",
    "compare otherwise: - return active * (grad if rule == 'backprop' else grad.clamp(min=0)) + return active "
    "* (grad if rule in 'backprop' else grad.clamp(min=0))",
)
pass_relu.equivalent(
    "A gradient of 0 goes on as 0, whether it passes or not.",
    "compare otherwise: - return (grad > 0) * grad + return (grad >= 0) * grad",
    "compare otherwise: - return (f > 0) * (grad > 0) * grad + return (f > 0) * (grad >= 0) * grad",
    "compare otherwise: - passed[grad < 0] = 0 + passed[grad <= 0] = 0",
    "compare otherwise: - masks = {'backprop': f > 0, 'deconvnet': grad > 0, 'guided': (f > 0) & (grad > 0)} "
    "+ masks = {'backprop': f > 0, 'deconvnet': grad >= 0, 'guided': (f > 0) & (grad > 0)}",
    "compare otherwise: - masks = {'backprop': f > 0, 'deconvnet': grad > 0, 'guided': (f > 0) & (grad > 0)} "
    "+ masks = {'backprop': f > 0, 'deconvnet': grad > 0, 'guided': (f > 0) & (grad >= 0)}",
)
pass_relu.equivalent(
    "Of `f` only its sign is asked, which no floating-point type changes.", "spoil an argument: + f = f.double()"
)


@pass_relu.mistake("You multiply by `f` itself. The derivative of a ReLU is 1 where it is active: multiply by `f > 0`.")
def _(rule, f, grad):
    passed = grad if rule == "backprop" else grad.clamp(min=0)
    return passed if rule == "deconvnet" else f * passed


@pass_relu.mistake("`f >= 0` is true everywhere, because a ReLU puts out nothing below 0. Ask for `f > 0`.")
def _(rule, f, grad):
    passed = grad if rule == "backprop" else grad.clamp(min=0)
    return passed if rule == "deconvnet" else (f >= 0) * passed


@pass_relu.mistake('Your "guided" is the deconvnet: it has to ask whether `f` is above 0 as well.')
def _(rule, f, grad):
    return (f > 0) * grad if rule == "backprop" else grad.clamp(min=0)


@pass_relu.mistake("Your deconvnet asks about `f`. It looks at the gradient only; both questions make the guided rule.")
def _(rule, f, grad):
    return (f > 0) * (grad if rule == "backprop" else grad.clamp(min=0))


@pass_relu.mistake("You return the mask. Multiply it by `grad`.")
def _(rule, f, grad):
    return {"backprop": f > 0, "deconvnet": grad > 0, "guided": (f > 0) & (grad > 0)}[rule]


@pass_relu.mistake("You made the negative gradients positive with `abs()`. They are to become 0.")
def _(rule, f, grad):
    passed = grad if rule == "backprop" else grad.abs()
    return passed if rule == "deconvnet" else (f > 0) * passed


@pass_relu.mistake(
    'Your "backprop" and your "deconvnet" have changed places. Backprop asks about `f`, the other about `grad`.'
)
def _(rule, f, grad):
    mask = {"backprop": grad > 0, "deconvnet": f > 0, "guided": (f > 0) & (grad > 0)}[rule]
    return mask * grad


@pass_relu.mistake('Your "deconvnet" and your "guided" have changed places. Only the guided rule asks both questions.')
def _(rule, f, grad):
    mask = {"backprop": f > 0, "deconvnet": (f > 0) & (grad > 0), "guided": grad > 0}[rule]
    return mask * grad


@pass_relu.mistake('Your "guided" lets pass where one of the two is above 0. Both have to be: join the masks by "and".')
def _(rule, f, grad):
    mask = {"backprop": f > 0, "deconvnet": grad > 0, "guided": (f > 0) | (grad > 0)}[rule]
    return mask * grad


@pass_relu.mistake(
    'Your "guided" multiplies by `f` itself. Ask whether it is above 0, and multiply by the answer: `f > 0`.'
)
def _(rule, f, grad):
    return {"backprop": (f > 0) * grad, "deconvnet": grad.clamp(min=0), "guided": f * grad.clamp(min=0)}[rule]


@pass_relu.mistake('Your "guided" has the gradient in it twice, so it is squared. Multiply both masks by it once.')
def _(rule, f, grad):
    backprop, deconvnet = (f > 0) * grad, (grad > 0) * grad
    return {"backprop": backprop, "deconvnet": deconvnet, "guided": backprop * deconvnet}[rule]


@pass_relu.mistake("You hand on only the numbers that pass, without their places. Put 0 where the others stood.")
def _(rule, f, grad):
    return grad[{"backprop": f > 0, "deconvnet": grad > 0, "guided": (f > 0) & (grad > 0)}[rule]]


@exercise(
    lesson=6,
    points=2,
    hints=[
        "The lesson's hook for the deconvnet replaces `grad_input` by a new one. What has `grad_input` already been "
        "multiplied by?",
        "`grad_input[0]` is `(f > 0) * R`: backward through the ReLU has been done. What is left is the question about "
        "the sign.",
        "`relu.register_full_backward_hook(lambda module, grad_input, grad_output: (grad_input[0].clamp(min=0),))`",
    ],
)
def guide_relu(relu):
    """Make the module `relu`, an nn.ReLU, follow the guided rule in backward, and
    return the hook's handle.

    It lets a gradient pass where the unit was active and the gradient is above 0.
    The forward pass stays as it is. The module may be called more than once.
    """
    return relu.register_full_backward_hook(lambda module, grad_input, grad_output: (grad_input[0].clamp(min=0),))


@guide_relu.cases
def _(rng):
    relu = nn.ReLU()
    relu.register_full_backward_hook(look)
    of_x, of_gradient = every_sign(2)
    x = rng.quarters(2, 4).abs() * of_x
    arriving = rng.quarters(2, 4).abs() * of_gradient * torch.tensor([[0.25], [8]])  # below 1, and above

    def once(handle):
        seen = {
            "the output": relu(x),
            "the gradient at x": gradient_at(x, relu, arriving),
            "the gradient at x of a second call": gradient_at(x, relu, -arriving),
        }
        handle.remove()
        return seen | {"the gradient at x after handle.remove()": gradient_at(x, relu, arriving)}

    yield Case({"relu": relu}, once, shown="a ReLU that has a hook from before")
    again = nn.ReLU()
    y, weight, shift, later = rng.quarters(4, 16).abs() * every_sign(4)
    inputs = y.requires_grad_(), (-y).detach().requires_grad_()

    def twice(_):
        between = [again(each) * weight + 40 * shift for each in inputs]
        outputs = [again(each) + each for each in between]  # the ReLU's gradient is its neighbour's, too
        for output in outputs:
            (output * later).sum().backward()
        return {"the output": outputs[0], "x.grad": inputs[0].grad, "x.grad of another forward": inputs[1].grad}

    yield Case({"relu": again}, twice, shown="a ReLU that is called twice")


@guide_relu.accept
def _(relu):
    return relu.register_full_backward_pre_hook(lambda module, grad_output: (grad_output[0].clamp(min=0),))


@guide_relu.accept
def _(relu):
    def hook(module, grad_input, grad_output):
        return tuple(torch.relu(grad) for grad in grad_input)

    return relu.register_full_backward_hook(hook)


@guide_relu.accept
def _(relu):
    def hook(module, grad_input, grad_output):
        (grad,) = grad_input
        return (grad * (grad > 0),)

    return relu.register_full_backward_hook(hook)


guide_relu.equivalent(
    "A ReLU has one input and one output: both tuples have one item.",
    "other constant: - return relu.register_full_backward_hook(lambda module, grad_input, grad_output: "
    "(grad_input[0].clamp(min=0),)) + return relu.register_full_backward_hook(lambda module, grad_input, "
    "grad_output: (grad_input[-1].clamp(min=0),))",
    "other constant: - return relu.register_full_backward_pre_hook(lambda module, grad_output: "
    "(grad_output[0].clamp(min=0),)) + return relu.register_full_backward_pre_hook(lambda module, "
    "grad_output: (grad_output[-1].clamp(min=0),))",
    "of an argument the first only: + grad_input = grad_input[:1]",
    "the first only: - return tuple((torch.relu(grad) for grad in grad_input)) + return "
    "tuple((torch.relu(grad) for grad in list(grad_input)[:1]))",
    "backwards: - return tuple((torch.relu(grad) for grad in grad_input)) + return tuple((torch.relu(grad) "
    "for grad in list(grad_input)[::-1]))",
)
guide_relu.equivalent(
    "A gradient of 0 goes on as 0, whether it passes or not.",
    "compare otherwise: - return (grad * (grad > 0),) + return (grad * (grad >= 0),)",
)


@guide_relu.mistake(
    "The gradient goes on unchanged. When backward runs, a full backward hook has to be on the module, and to *return* "
    "the new gradient."
)
def _(relu):
    def hook(module, grad_input, grad_output):
        (grad_input[0].clamp(min=0),)

    return relu.register_full_backward_hook(hook)


@guide_relu.mistake(
    "This is the deconvnet's rule: `grad_output` does not know yet which units were active. Begin with `grad_input`."
)
def _(relu):
    return relu.register_full_backward_hook(lambda module, grad_input, grad_output: (grad_output[0].clamp(min=0),))


@guide_relu.mistake("`clamp(max=0)` keeps what is *below* 0. You want `clamp(min=0)`.")
def _(relu):
    return relu.register_full_backward_hook(lambda module, grad_input, grad_output: (grad_input[0].clamp(max=0),))


@guide_relu.mistake(
    "You keep what a call put out, or got, in one place, and the second call of the module overwrites it before the "
    "first one goes backward. You need not keep it: `grad_input` was multiplied by the mask already."
)
def _(relu):
    kept = {}
    note = relu.register_forward_hook(lambda module, args, output: kept.update(f=output.detach().clone()))

    def hook(module, grad_input, grad_output):
        note.remove()  # so that nothing but the overwritten output is wrong
        return ((kept["f"] > 0) * grad_output[0].clamp(min=0),)

    return relu.register_full_backward_hook(hook)


@guide_relu.mistake("`grad_input` is a tuple, and so is what replaces it: return `(new,)`, with the comma.")
def _(relu):
    return relu.register_full_backward_hook(lambda module, grad_input, grad_output: grad_input[0].clamp(min=0))


@guide_relu.mistake("The rule holds for one backward only. The hook has to stay until the caller removes it.")
def _(relu):
    def hook(module, grad_input, grad_output):
        handle.remove()
        return (grad_input[0].clamp(min=0),)

    handle = relu.register_full_backward_hook(hook)
    return handle


@guide_relu.mistake("What goes on is a mask of ones and zeros. Multiply the gradient by it.")
def _(relu):
    def hook(module, grad_input, grad_output):
        return ((grad_input[0] > 0).to(grad_input[0].dtype),)

    return relu.register_full_backward_hook(hook)


@exercise(
    lesson=6,
    points=3,
    hints=[
        "`model.modules()` gives the modules at every depth; choose those that are `isinstance(module, nn.ReLU)`.",
        "Register in `__enter__` and keep the handles in `self`; remove them in `__exit__`, which runs in any case.",
        "`__exit__` gets the exception of the block, if there is one. Return nothing, so that it goes on its way.",
    ],
)
class Guide:
    """A context manager: in its block, every nn.ReLU of `model`, at any depth,
    follows the guided rule.

    Before the block and after it, by whatever way it ends, none of its hooks is on
    the model. Hooks of others stay.
    """

    def __init__(self, model):
        self.model = model
        self.handles = []

    def __enter__(self):
        for module in self.model.modules():
            if isinstance(module, nn.ReLU):
                hook = module.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0].clamp(min=0),))
                self.handles.append(hook)

    def __exit__(self, *exception):
        for handle in self.handles:
            handle.remove()


def count_hooks(model: nn.Module) -> int:
    """How many hooks of any kind a model and its modules have."""
    return sum(hook.scope == "local" for hook in list_hooks(model))


@Guide.cases
def _(rng):
    model, x, arriving = telling_net(rng)

    def in_and_out(manager):
        found = {"the number of hooks before the block": count_hooks(model)}
        with manager:
            found["the gradient at the input, in the block"] = gradient_at(x, model, arriving)
            found["the gradient at the input, for another output"] = gradient_at(x, model, -arriving)
            found["the gradient at a ReLU of another model, in the block"] = gradient_at(x, nn.ReLU(), arriving)
        found["the number of hooks after the block"] = count_hooks(model)
        found["the gradient at the input, after the block"] = gradient_at(x, model, arriving)
        return found

    yield Case({"model": model}, in_and_out, shown="a model with ReLUs at three depths")
    other, y, coming = telling_net(rng)
    other[1].register_full_backward_hook(look)

    def block_raises(manager):
        caught = "nothing"
        try:
            with manager:
                other[1].register_full_backward_hook(look)
                inside = gradient_at(y, other, coming)
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            caught = "KeyboardInterrupt"
        return {
            "the gradient at the input, in the block": inside,
            "the exception that came out of the block": caught,
            "the number of hooks after a block that raised, with two of others": count_hooks(other),
            "the gradient at the input, after the block": gradient_at(y, other, coming),
        }

    yield Case({"model": other}, block_raises, shown="a block that raises, and hooks of others")


@Guide.accept
@contextlib.contextmanager
def _(model):
    handles = []
    try:
        for _, module in model.named_modules():
            if type(module) is nn.ReLU:
                handles.append(
                    module.register_full_backward_pre_hook(lambda module, outputs: (torch.relu(outputs[0]),))
                )
        yield
    finally:
        while handles:
            handles.pop().remove()


@Guide.accept
class _GuideWithStack:
    def __init__(self, model):
        self.relus = [module for module in model.modules() if isinstance(module, nn.ReLU)]
        self.stack = contextlib.ExitStack()

    @staticmethod
    def hook(module, grad_input, grad_output):
        return tuple((grad > 0) * grad for grad in grad_input)

    def __enter__(self):
        for relu in self.relus:
            self.stack.enter_context(relu.register_full_backward_hook(self.hook))
        return self

    def __exit__(self, *exception):
        self.stack.close()


Guide.equivalent(
    "The order in which hooks of different modules are registered or removed does not matter.",
    "backwards: - for module in self.model.modules(): + for module in list(self.model.modules())[::-1]:",
    "backwards: - for handle in self.handles: + for handle in list(self.handles)[::-1]:",
    "backwards: - for _, module in model.named_modules(): + for _, module in list(model.named_modules())[::-1]:",
    "backwards: - for relu in self.relus: + for relu in list(self.relus)[::-1]:",
    "backwards: - self.relus = [module for module in model.modules() if isinstance(module, nn.ReLU)] + "
    "self.relus = [module for module in list(model.modules())[::-1] if isinstance(module, nn.ReLU)]",
)
Guide.equivalent(
    "Whether a model that is itself a ReLU has that as one of its own, the task does not say.",
    "not the first: - for module in self.model.modules(): + for module in list(self.model.modules())[1:]:",
    "not the first: - for _, module in model.named_modules(): + for _, module in list(model.named_modules())[1:]:",
    "not the first: - self.relus = [module for module in model.modules() if isinstance(module, nn.ReLU)] + "
    "self.relus = [module for module in list(model.modules())[1:] if isinstance(module, nn.ReLU)]",
)
Guide.equivalent(
    "A ReLU has one input and one output: both tuples have one item.",
    "other constant: - hook = module.register_full_backward_hook(lambda module, inputs, outputs: "
    "(inputs[0].clamp(min=0),)) + hook = module.register_full_backward_hook(lambda module, inputs, outputs: "
    "(inputs[-1].clamp(min=0),))",
    "other constant: - handles.append(module.register_full_backward_pre_hook(lambda module, outputs: "
    "(torch.relu(outputs[0]),))) + handles.append(module.register_full_backward_pre_hook(lambda module, "
    "outputs: (torch.relu(outputs[-1]),)))",
    "of an argument the first only: + grad_input = grad_input[:1]",
    "the first only: - return tuple(((grad > 0) * grad for grad in grad_input)) + return tuple(((grad > 0) * "
    "grad for grad in list(grad_input)[:1]))",
    "backwards: - return tuple(((grad > 0) * grad for grad in grad_input)) + return tuple(((grad > 0) * grad "
    "for grad in list(grad_input)[::-1]))",
)
Guide.equivalent("Nobody is told to write `with Guide(model) as guide`.", "no return: - return self + self")
Guide.equivalent(
    "A gradient of 0 goes on as 0, whether it passes or not.",
    "compare otherwise: - return tuple(((grad > 0) * grad for grad in grad_input)) + return tuple(((grad >= "
    "0) * grad for grad in grad_input))",
)


class _WrongGuide:
    """What the mistakes below have in common: they change one step each."""

    def __init__(self, model):
        self.model, self.handles = model, []

    def choose(self):
        return [module for module in self.model.modules() if isinstance(module, nn.ReLU)]

    def hook(self, module, grad_input, grad_output):
        return (grad_input[0].clamp(min=0),)

    def __enter__(self):
        self.handles = [module.register_full_backward_hook(self.hook) for module in self.choose()]

    def __exit__(self, *exception):
        for handle in self.handles:
            handle.remove()


@Guide.mistake("Only ReLUs at the top follow the rule. `modules()` goes to every depth, `children()` does not.")
class _GuideChildren(_WrongGuide):
    def choose(self):
        return [module for module in self.model.children() if isinstance(module, nn.ReLU)]


@Guide.mistake("This is the deconvnet: you clamp `grad_output`, which does not know which units were active.")
class _GuideDeconvnet(_WrongGuide):
    def hook(self, module, grad_input, grad_output):
        return (grad_output[0].clamp(min=0),)


@Guide.mistake("Your hooks stay on the model after the block. Remove every handle in `__exit__`.")
class _GuideStays(_WrongGuide):
    def __exit__(self, *exception):
        self.handles = []


@Guide.mistake("Your hooks are on the model before the block begins. Register them in `__enter__`.")
class _GuideTooEarly(_WrongGuide):
    def __init__(self, model):
        super().__init__(model)
        self.handles = [module.register_full_backward_hook(self.hook) for module in self.choose()]

    def __enter__(self):
        return self


@Guide.mistake(
    "The exception of the block does not come out. An `__exit__` that returns True swallows it: return nothing."
)
class _GuideSwallows(_WrongGuide):
    def __exit__(self, *exception):
        for handle in self.handles:
            handle.remove()
        return True


@Guide.mistake("You remove all hooks of the ReLUs, those of others too. Remove your own handles.")
class _GuideClears(_WrongGuide):
    def __exit__(self, *exception):
        for module in self.choose():
            module._backward_hooks.clear()


@Guide.mistake("Your hooks sit on every layer. Only ReLUs follow the rule: the gradient of a Linear may be negative.")
class _GuideEverything(_WrongGuide):
    def choose(self):
        return [module for module in self.model.modules() if not list(module.children())]

    def hook(self, module, grad_input, grad_output):
        return tuple(None if grad is None else grad.clamp(min=0) for grad in grad_input)


@Guide.mistake("You hook the LeakyReLU, too. It is no nn.ReLU, whatever it is called: `isinstance(module, nn.ReLU)`.")
class _GuideByName(_WrongGuide):
    def choose(self):
        return [module for module in self.model.modules() if "ReLU" in type(module).__name__]


@Guide.mistake(
    "In the block the gradient is the usual one. The hooks have to be on the modules of `model` itself, until the "
    "block ends, and what they *return* is the new gradient."
)
class _GuideNothing(_WrongGuide):
    def hook(self, module, grad_input, grad_output):
        grad_input[0].clamp(min=0)


@Guide.mistake(
    "When the block raises, your hooks stay. Remove them by whatever way it ends: `__exit__` runs then, too, and so "
    "does what a generator has under `finally`."
)
class _GuideOnlyWithoutError(_WrongGuide):
    def __exit__(self, kind, *rest):
        if kind is None:
            for handle in self.handles:
                handle.remove()


@Guide.mistake("After the block only one of your hooks is gone. Keep the handle of every ReLU, and remove them all.")
class _GuideLastHandle(_WrongGuide):
    def __exit__(self, *exception):
        self.handles[-1].remove()


@Guide.mistake("Only the first ReLU follows the rule. Every one has to: go through all before `__enter__` ends.")
class _GuideFirst(_WrongGuide):
    def choose(self):
        return super().choose()[:1]


@Guide.mistake("`grad_input` is a tuple, and so is what replaces it: return `(new,)`, with the comma.")
class _GuideNoTuple(_WrongGuide):
    def hook(self, module, grad_input, grad_output):
        return grad_input[0].clamp(min=0)


@exercise(
    lesson=6,
    points=2,
    hints=[
        "`torch.autograd.grad(number, tensor)` returns the gradient and writes no `.grad` anywhere.",
        "Make a leaf of your own: `images.detach().clone().requires_grad_()`. Pick one logit per picture: "
        "`logits[torch.arange(len(classes)), classes]`.",
        "The pictures do not influence each other, so one backward from the *sum* of the picked logits is enough.",
    ],
)
def class_gradient(model, images, classes):
    """Return the gradient, at each of `images`, of the logit of its class: a tensor
    of their shape.

    `classes[n]` is the class for picture n; `model(images)` gives logits (N,
    classes). Afterwards no `.grad` and no `requires_grad` is another than before.
    """
    leaf = images.detach().clone().requires_grad_()
    logits = model(leaf)
    picked = logits[torch.arange(len(classes)), classes]
    (gradient,) = torch.autograd.grad(picked.sum(), leaf)
    return gradient


@class_gradient.cases
def _(rng):
    for count in (1, 4):
        classes = (torch.arange(count) * 2 + rng.integer(1, 2)) % 3
        while True:
            model = whole_weights(nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), rng)
            model[3].weight.data /= 4
            images = rng.quarters(count, 2, 1, 2).requires_grad_()
            logits = model(images)
            gradients = [torch.autograd.grad(logit, images, retain_graph=True)[0] for logit in logits.sum(0)]
            awake = all(gradient.flatten(1).any(1).all() for gradient in gradients)  # for each picture and each class
            if awake and (logits.argmax(1) != classes).any():
                break
        images.requires_grad_(count > 1)
        shown = f"{count} picture{'s' * (count > 1)} of 2 channels, classes = {classes.tolist()}"
        yield Case({"model": model, "images": images, "classes": classes}, shown=shown)


@class_gradient.accept
def _(model, images, classes):
    gradients = []
    for image, wanted in zip(images, classes, strict=True):
        image = image[None].clone().requires_grad_()
        gradients += torch.autograd.grad(model(image)[0, wanted], image)
    return torch.cat(gradients)


@class_gradient.accept
def _(model, images, classes):
    leaf = images.detach().requires_grad_()
    logits = model(leaf)
    one_hot = torch.zeros_like(logits).scatter_(1, classes[:, None], 1)
    return torch.autograd.grad(logits, leaf, grad_outputs=one_hot)[0]


@class_gradient.accept
def _(model, images, classes):
    def picked(images):
        return model(images).gather(1, classes[:, None]).sum()

    return torch.func.grad(picked)(images)


class_gradient.equivalent(
    "Nothing writes into this tensor: it may share its memory with the pictures.",
    "no clone: - leaf = images.detach().clone().requires_grad_() + leaf = images.detach().requires_grad_()",
    "mixed up: - leaf = images.detach().clone().requires_grad_() + leaf = images.detach().detach().requires_grad_()",
    "no clone: - image = image[None].clone().requires_grad_() + image = image[None].requires_grad_()",
    "mixed up: - image = image[None].clone().requires_grad_() + image = image[None].detach().requires_grad_()",
)
class_gradient.equivalent(
    "`torch.autograd.grad` goes back to the clone and no further: it need not be detached.",
    "no detach: - leaf = images.detach().clone().requires_grad_() + leaf = images.clone().requires_grad_()",
    "mixed up: - leaf = images.detach().clone().requires_grad_() + leaf = images.clone().clone().requires_grad_()",
)
class_gradient.equivalent(
    "There are as many classes as pictures.",
    "an argument less: - for image, wanted in zip(images, classes, strict=True): + for image, wanted in "
    "zip(images, classes):",
    "other constant: - for image, wanted in zip(images, classes, strict=True): + for image, wanted in "
    "zip(images, classes, strict=False):",
)
class_gradient.equivalent(
    "`torch.autograd.grad` goes back to this tensor and no further, whether or not it is a copy.",
    "mixed up: - leaf = images.detach().requires_grad_() + leaf = images.clone().requires_grad_()",
)
class_gradient.equivalent(
    "A tensor of zeros that nobody else has may be written to or not.",
    "not in place: - one_hot = torch.zeros_like(logits).scatter_(1, classes[:, None], 1) + one_hot = "
    "torch.zeros_like(logits).scatter(1, classes[:, None], 1)",
)
class_gradient.equivalent(
    "There is one tensor, so it is the first and the last.",
    "other constant: - return torch.autograd.grad(logits, leaf, grad_outputs=one_hot)[0] + return "
    "torch.autograd.grad(logits, leaf, grad_outputs=one_hot)[-1]",
)
class_gradient.equivalent(
    "`torch.func.grad` calls this function once, and each call of the answer makes another.",
    "only once: + if getattr(picked, 'has_run', False): + return None + picked.has_run = True",
)
class_gradient.equivalent(
    "A batch of one picture has one row.",
    "other constant: - gradients += torch.autograd.grad(model(image)[0, wanted], image) + gradients += "
    "torch.autograd.grad(model(image)[-1, wanted], image)",
)


@class_gradient.mistake("You go backward from the sum of all logits. Pick the one of each picture's class.")
def _(model, images, classes):
    leaf = images.clone().requires_grad_()
    return torch.autograd.grad(model(leaf).sum(), leaf)[0]


@class_gradient.mistake(
    "`backward()` writes into the `.grad` of all the model's parameters. `torch.autograd.grad` leaves them alone."
)
def _(model, images, classes):
    leaf = images.detach().clone().requires_grad_()
    model(leaf)[range(len(classes)), classes].sum().backward()
    return leaf.grad


@class_gradient.mistake(
    "What stood in the `.grad` of the parameters before is lost. `torch.autograd.grad` leaves it alone."
)
def _(model, images, classes):
    leaf = images.detach().clone().requires_grad_()
    model(leaf)[range(len(classes)), classes].sum().backward()
    model.zero_grad()
    return leaf.grad


@class_gradient.mistake("You take the class of the first picture for all of them. Each picture has one of its own.")
def _(model, images, classes):
    leaf = images.detach().clone().requires_grad_()
    return torch.autograd.grad(model(leaf)[:, classes[0]].sum(), leaf)[0]


@class_gradient.mistake("That is the gradient of the largest logit. Asked for is the one of the class that was given.")
def _(model, images, classes):
    leaf = images.detach().clone().requires_grad_()
    return torch.autograd.grad(model(leaf).amax(1).sum(), leaf)[0]


@class_gradient.mistake("That is the gradient of a loss. Asked for is the one of the logit itself.")
def _(model, images, classes):
    leaf = images.detach().clone().requires_grad_()
    return torch.autograd.grad(nn.functional.cross_entropy(model(leaf), classes, reduction="sum"), leaf)[0]


@class_gradient.mistake("That is the gradient of the logarithm of a probability. Asked for is the one of the logit.")
def _(model, images, classes):
    leaf = images.detach().clone().requires_grad_()
    return -torch.autograd.grad(nn.functional.cross_entropy(model(leaf), classes, reduction="sum"), leaf)[0]


@class_gradient.mistake("You switched `requires_grad` on for the caller's own tensor. Make a leaf of your own of it.")
def _(model, images, classes):
    images.requires_grad_()
    logits = model(images)
    return torch.autograd.grad(logits[torch.arange(len(classes)), classes].sum(), images)[0]


@class_gradient.mistake(
    "`logits[:, classes]` takes all these classes from *every* picture. One each: "
    "`logits[torch.arange(len(classes)), classes]`."
)
def _(model, images, classes):
    leaf = images.clone().requires_grad_()
    return torch.autograd.grad(model(leaf)[:, classes].sum(), leaf)[0]


@class_gradient.mistake("The mean of the logits divides each gradient by the number of pictures. Take the sum.")
def _(model, images, classes):
    leaf = images.clone().requires_grad_()
    logits = model(leaf)
    return torch.autograd.grad(logits[torch.arange(len(classes)), classes].mean(), leaf)[0]


@class_gradient.mistake("That is the gradient of a probability. Asked for is the one of the logit, before any softmax.")
def _(model, images, classes):
    leaf = images.clone().requires_grad_()
    shares = model(leaf).softmax(1)
    return torch.autograd.grad(shares[torch.arange(len(classes)), classes].sum(), leaf)[0]


@exercise(
    lesson=6,
    points=2,
    hints=[
        "Four steps in this order: subtract the mean, divide by the standard deviation, times 0.1 plus 0.5, clip.",
        "`gradient.std()` is 0 for a constant gradient, and 0 / 0 is nan. What should come out there?",
        "`if gradient.min() == gradient.max(): return torch.full_like(gradient, 0.5)`; at last `.clamp(0, 1)`.",
    ],
)
def to_picture(gradient):
    """Turn a gradient (3, H, W) into a picture: mean 0.5, standard deviation 0.1,
    clipped to [0, 1].

    Mean and standard deviation are those of all its numbers together, as
    `gradient.mean()` and `gradient.std()` give them. A constant gradient gives 0.5
    everywhere; for any other, nothing is added to the standard deviation.
    """
    if gradient.min() == gradient.max():
        return torch.full_like(gradient, 0.5)
    return ((gradient - gradient.mean()) / gradient.std() * 0.1 + 0.5).clamp(0, 1)


@to_picture.cases
def _(rng):
    gradient = rng.quarters(3, 2, 2)
    gradient[1, 0, 1] = 0
    yield Case({"gradient": gradient})
    yield Case({"gradient": rng.quarters(1, 2, 3).abs().repeat(3, 1, 1)}, shown="a gradient of three equal channels")
    spike = rng.mixed(3, 4, 6, high=3)
    spike[0, 0, 0], spike[2, 1, 1] = 400.0 + rng.integer(0, 9), -300.0
    yield Case({"gradient": spike}, shown="a gradient with two numbers that are far larger than the others")
    yield Case({"gradient": rng.quarters(3, 2, 3, high=1) / 1e18}, shown="a gradient of numbers below 1e-18")
    yield Case({"gradient": torch.full((3, 1, 2), rng.choice((0.25, -0.5)))}, shown="a constant gradient")


@to_picture.accept
def _(gradient):
    centred = gradient - gradient.mean()
    spread = (centred.square().sum() / (gradient.numel() - 1)).sqrt()
    return torch.clip(0.5 + 0.1 * centred / (spread if spread > 0 else 1), 0, 1)


@to_picture.accept
def _(gradient):
    spread, mean = torch.std_mean(gradient)
    if len(gradient.unique()) == 1:
        return gradient * 0 + 0.5
    return ((gradient - mean) / spread * 0.1).clamp(-0.5, 0.5).add(0.5)


to_picture.equivalent(
    "Tensors of one number each are compared by `in` as by `==`.",
    "compare otherwise: - if gradient.min() == gradient.max(): + if gradient.min() in gradient.max():",
)
to_picture.equivalent(
    "Rounding apart, a constant gradient minus its mean is 0, whatever it is divided by.",
    "other constant: - return torch.clip(0.5 + 0.1 * centred / (spread if spread > 0 else 1), 0, 1) + return "
    "torch.clip(0.5 + 0.1 * centred / (spread if spread > 0 else 2), 0, 1)",
)


@to_picture.mistake("A constant gradient has the standard deviation 0, and 0 / 0 is nan. Give 0.5 there.")
def _(gradient):
    return ((gradient - gradient.mean()) / gradient.std() * 0.1 + 0.5).clamp(0, 1)


@to_picture.mistake("You divided by the variance. The standard deviation is its root: `gradient.std()`.")
def _(gradient):
    spread = gradient.var()
    return ((gradient - gradient.mean()) / (spread if spread > 0 else 1) * 0.1 + 0.5).clamp(0, 1)


@to_picture.mistake("Values outside [0, 1] are no colours. Clip as the last step: `.clamp(0, 1)`.")
def _(gradient):
    spread = gradient.std()
    return (gradient - gradient.mean()) / (spread if spread > 0 else 1) * 0.1 + 0.5


@to_picture.mistake("You clip too early: what is below the mean becomes 0 before you add 0.5. Clip as the last step.")
def _(gradient):
    spread = gradient.std()
    return ((gradient - gradient.mean()) / (spread if spread > 0 else 1)).clamp(0, 1) * 0.1 + 0.5


@to_picture.mistake("You took `abs()` first. A gradient below its mean belongs below 0.5.")
def _(gradient):
    gradient = gradient.abs()
    spread = gradient.std()
    return ((gradient - gradient.mean()) / (spread if spread > 0 else 1) * 0.1 + 0.5).clamp(0, 1)


@to_picture.mistake("Each channel has a mean of its own here, which shifts its colours. Take all numbers together.")
def _(gradient):
    mean, spread = gradient.mean((1, 2), keepdim=True), gradient.std((1, 2), keepdim=True)
    return ((gradient - mean) / spread.where(spread > 0, 1) * 0.1 + 0.5).clamp(0, 1)


@to_picture.mistake("You clip before you add 0.5, so that all below the mean comes out as 0.5. Clip as the last step.")
def _(gradient):
    spread = gradient.std()
    return ((gradient - gradient.mean()) / (spread if spread > 0 else 1) * 0.1).clamp(0, 1) + 0.5


@to_picture.mistake(
    "You stretched the numbers from 0 to 1, and a constant gradient gives nan. Mean and standard deviation decide "
    "here: 0.5 and 0.1."
)
def _(gradient):
    return (gradient - gradient.min()) / (gradient.max() - gradient.min())


@to_picture.mistake("You stretched the numbers from 0 to 1. Mean and standard deviation decide here: 0.5 and 0.1.")
def _(gradient):
    if gradient.min() == gradient.max():
        return torch.full_like(gradient, 0.5)
    return (gradient - gradient.min()) / (gradient.max() - gradient.min())


@to_picture.mistake("You divided the sum of squares by how many there are. `gradient.std()` divides by one less.")
def _(gradient):
    spread = gradient.std(correction=0)
    return ((gradient - gradient.mean()) / (spread if spread > 0 else 1) * 0.1 + 0.5).clamp(0, 1)


@to_picture.mistake("The contrast is ten times what it should be: the standard deviation of the picture is 0.1.")
def _(gradient):
    spread = gradient.std()
    return ((gradient - gradient.mean()) / (spread if spread > 0 else 1) + 0.5).clamp(0, 1)


@to_picture.mistake("For a constant gradient you return one number. It is a picture too, of the gradient's shape.")
def _(gradient):
    spread = gradient.std()
    return ((gradient - gradient.mean()) / spread * 0.1 + 0.5).clamp(0, 1) if spread > 0 else 0.5


@to_picture.mistake(
    "A gradient of very small numbers comes out as 0.5 everywhere, as if it were constant. Only one whose numbers are "
    "all equal is: ask for that, without a number that you add to the standard deviation or compare it with."
)
def _(gradient):
    return ((gradient - gradient.mean()) / (gradient.std() + 1e-8) * 0.1 + 0.5).clamp(0, 1)


@to_picture.mistake("A constant gradient comes out as 0. It has no contrast, so it is grey everywhere: 0.5.")
def _(gradient):
    return ((gradient - gradient.mean()) / gradient.std() * 0.1 + 0.5).clamp(0, 1).nan_to_num()


@to_picture.mistake("You did not subtract the mean, so the mean of the picture is not 0.5.")
def _(gradient):
    if gradient.min() == gradient.max():
        return torch.full_like(gradient, 0.5)
    return (gradient / gradient.std() * 0.1 + 0.5).clamp(0, 1)


@exercise(
    lesson=6,
    points=1,
    hints=[
        "A module is in place if its attribute says so: `module.inplace`. You can set it.",
        "`named_modules()` gives the dotted names with the modules, at every depth.",
        "`for name, module in model.named_modules(): if isinstance(module, nn.ReLU) and module.inplace: ...`",
    ],
)
def stop_in_place(model):
    """Make every nn.ReLU of `model`, at any depth, work out of place; return the
    dotted names of those that worked in place.

    The names are in the order of `model.named_modules()`. The model itself is
    changed: no module is replaced, and all other layers stay as they are.
    """
    names = []
    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU) and module.inplace:
            module.inplace = False
            names.append(name)
    return names


@stop_in_place.cases
def _(rng):
    first, second = rng.choice([(True, False), (False, True)])
    inner = nn.Sequential(nn.Dropout(inplace=True), nn.ReLU(inplace=True), nn.Sequential(nn.ReLU(inplace=True)))
    parts = {"stem": nn.Linear(2, 2), "gate": nn.ReLU(inplace=first), "door": nn.ReLU(inplace=second), "body": inner}
    parts |= {"act": nn.ReLU(inplace=True), "leaky": nn.LeakyReLU(inplace=True), "six": nn.ReLU6(inplace=True)}
    model = nn.Sequential(collections.OrderedDict(parts))
    inner.eval()
    modules = list(model.modules())

    def look(_):
        found = {
            f"inplace of layer {name}": module.inplace
            for name, module in model.named_modules()
            if hasattr(module, "inplace")
        }
        return found | {"whether its modules are the same objects": list(model.modules()) == modules}

    yield Case({"model": model}, look, shown="a model with in-place ReLUs at three depths")
    plain = nn.Sequential(nn.ReLU(), nn.ReLU())
    yield Case({"model": plain}, shown="a model of which no ReLU is in place")


@stop_in_place.accept
def _(model):
    found = {name: module for name, module in model.named_modules() if isinstance(module, nn.ReLU) and module.inplace}
    for module in found.values():
        module.inplace = False
    return list(found)


@stop_in_place.accept
def _(model):
    wanted = [name for name, each in model.named_modules() if type(each) is nn.ReLU and each.inplace]
    for name in wanted:
        model.get_submodule(name).inplace = False
    return wanted


stop_in_place.equivalent(
    "Whether a model that is itself a ReLU has that as one of its own, the task does not say.",
    "not the first: - for name, module in model.named_modules(): + for name, module in "
    "list(model.named_modules())[1:]:",
    "not the first: - found = {name: module for name, module in model.named_modules() if isinstance(module, "
    "nn.ReLU) and module.inplace} + found = {name: module for name, module in list(model.named_modules())[1:] "
    "if isinstance(module, nn.ReLU) and module.inplace}",
    "not the first: - wanted = [name for name, each in model.named_modules() if type(each) is nn.ReLU and "
    "each.inplace] + wanted = [name for name, each in list(model.named_modules())[1:] if type(each) is "
    "nn.ReLU and each.inplace]",
)
stop_in_place.equivalent(
    "The order in which flags are set does not matter.",
    "backwards: - for module in found.values(): + for module in list(found.values())[::-1]:",
    "backwards: - for name in wanted: + for name in list(wanted)[::-1]:",
)


@stop_in_place.mistake(
    "You put new ReLUs in. Hooks, and whoever has the old ones, know nothing of them: set `inplace` on what is there."
)
def _(model):
    names = []
    for name, module in list(model.named_modules()):
        if type(module) is nn.ReLU and module.inplace:
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, nn.ReLU())
            names.append(name)
    return names


@stop_in_place.mistake("You looked at the direct children only. `named_modules()` goes to every depth.")
def _(model):
    names = []
    for name, module in model.named_children():
        if isinstance(module, nn.ReLU) and module.inplace:
            module.inplace = False
            names.append(name)
    return names


@stop_in_place.mistake(
    "In the model that you were given, the ReLUs still say `inplace=True`. Set the flag there: a copy does not do, and "
    "`==` does not set anything."
)
def _(model):
    names = []
    for name, module in copy.deepcopy(model).named_modules():
        if isinstance(module, nn.ReLU) and module.inplace:
            module.inplace = False
            names.append(name)
    return names


@stop_in_place.mistake("You list every ReLU. Only those that were in place are asked for.")
def _(model):
    names = []
    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
            names.append(name)
    return names


@stop_in_place.mistake("You set the flag before you looked at it, so no ReLU seems to have been in place.")
def _(model):
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    return [name for name, module in model.named_modules() if isinstance(module, nn.ReLU) and module.inplace]


@stop_in_place.mistake("Other layers have the attribute `inplace` too, nn.Dropout for one. Change the ReLUs only.")
def _(model):
    names = []
    for name, module in model.named_modules():
        if getattr(module, "inplace", False):
            module.inplace = False
            names.append(name)
    return names


@stop_in_place.mistake("A LeakyReLU is no nn.ReLU, and neither is a ReLU6, whatever they are called. Ask `isinstance`.")
def _(model):
    names = []
    for name, module in model.named_modules():
        if "ReLU" in type(module).__name__ and module.inplace:
            module.inplace = False
            names.append(name)
    return names


@stop_in_place.mistake("A name has to say the way from the model: the names of `named_modules()`, dots and all.")
def _(model):
    names = []
    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU) and module.inplace:
            module.inplace = False
            names.append(name.split(".")[-1])
    return names


@stop_in_place.mistake(
    "You stop at the first ReLU that is in place. Return the names after the loop, when it has ended."
)
def _(model):
    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU) and module.inplace:
            module.inplace = False
            return [name]
    return []


@exercise(
    lesson=6,
    points=2,
    hints=[
        "How strongly a pixel counts is the sum of the *absolute* values of its three channels.",
        "`strength = gradient.abs().sum(0)` is (H, W), as the mask is; `strength[mask]` are the pixels on the thing.",
        "Divide the sum on the mask by the sum everywhere; where the latter is 0, return 0.0. `.item()` makes a float.",
    ],
)
def share_on(gradient, mask):
    """Return which share of the strength of a gradient lies on a mask, as a Python
    float.

    `gradient` is (3, H, W), `mask` (H, W) and bool. The strength of a pixel is the
    sum of the absolute values of its channels. A gradient that is 0 everywhere has
    the share 0.0.
    """
    strength = gradient.abs().sum(0)
    total = strength.sum()
    return (strength[mask].sum() / total).item() if total > 0 else 0.0


@share_on.cases
def _(rng):
    for kind in ("any", "of sum 0", "small and negative"):
        gradient, mask = rng.quarters(3, 2, 3), torch.zeros(2, 3, dtype=torch.bool)
        mask[rng.integer(0, 1), rng.integer(0, 2)] = True
        mask[0, 0] = mask[1, 2] = True
        gradient[0, 1, 0] = 0
        gradient[1, 1, 2] = -gradient[0, 1, 2] - rng.integer(1, 3)
        if kind == "of sum 0":
            gradient[2, 0, 1] -= gradient.sum()
        if kind == "small and negative":
            gradient = gradient.abs() / -1e20
        yield Case({"gradient": gradient, "mask": mask})
    nothing, nowhere = torch.zeros(3, 2, 2), torch.zeros(2, 2, dtype=torch.bool)
    first = torch.tensor([[True, False], [False, False]])
    yield Case({"gradient": nothing, "mask": first}, shown="a gradient of zeros")
    yield Case({"gradient": rng.quarters(3, 2, 2), "mask": nowhere}, shown="a mask that is False everywhere")


@share_on.accept
def _(gradient, mask):
    inside, total = (gradient.abs() * mask).sum().item(), gradient.abs().sum().item()
    return inside / total if total else 0.0


@share_on.accept
def _(gradient, mask):
    strength = gradient.abs().mean(dim=0)
    share = strength[mask].sum() / strength.sum().clamp(min=1e-30)
    return float(share)


share_on.equivalent(
    "The mean over the three channels is a third of the sum, above and below the fraction line.",
    "mixed up: - strength = gradient.abs().sum(0) + strength = gradient.abs().mean(0)",
    "mixed up: - strength = gradient.abs().mean(dim=0) + strength = gradient.abs().sum(dim=0)",
)
share_on.equivalent(
    "What comes out is a Python float, and a mask of 0 and 1 may be multiplied in any type.",
    "spoil an argument: + gradient = gradient.double()",
    "spoil an argument: + mask = mask.double()",
)


@share_on.mistake("A gradient of zeros has a sum of 0, and 0 / 0 is not a number. Return 0.0 for it.")
def _(gradient, mask):
    strength = gradient.abs().sum(0)
    return (strength[mask].sum() / strength.sum()).item()


@share_on.mistake("Without `abs()` what is positive and what is negative cancel out, and a share means nothing.")
def _(gradient, mask):
    total = gradient.sum()
    return (gradient[:, mask].sum() / total).item() if total != 0 else 0.0


@share_on.mistake("You took `abs()` after the sum over the channels, where red and green may have cancelled out.")
def _(gradient, mask):
    strength = gradient.sum(0).abs()
    total = strength.sum()
    return (strength[mask].sum() / total).item() if total > 0 else 0.0


@share_on.mistake("You compared means. A share is a sum by a sum: a small mask holds less, however strong its pixels.")
def _(gradient, mask):
    strength = gradient.abs().sum(0)
    total = strength.mean()
    return (strength[mask].mean() / total).item() if total > 0 else 0.0


@share_on.mistake("That is the share of the *area*: the mask alone decides it. Weigh each pixel by its strength.")
def _(gradient, mask):
    return mask.float().mean().item() if gradient.any() else 0.0


@share_on.mistake("You return a tensor. `.item()` makes a Python float of it.")
def _(gradient, mask):
    strength = gradient.abs().sum(0)
    total = strength.sum()
    return strength[mask].sum() / total if total > 0 else 0.0


@share_on.mistake("You return a tensor, for a gradient of zeros too. `.item()` makes a Python float of it.")
def _(gradient, mask):
    strength = gradient.abs().sum(0)
    total = strength.sum()
    return strength[mask].sum() / total if total > 0 else total


@share_on.mistake(
    "You return a tensor, which is nan for a gradient of zeros. Return 0.0 there, and a float elsewhere: `.item()`."
)
def _(gradient, mask):
    strength = gradient.abs().sum(0)
    return strength[mask].sum() / strength.sum()


@share_on.mistake("You sum signed numbers, which cancel out, and a sum below 0 counts as nothing. Take `abs()` first.")
def _(gradient, mask):
    total = gradient.sum()
    return (gradient[:, mask].sum() / total).item() if total > 0 else 0.0


def _share(strength, mask):
    total = strength.sum()
    return (strength[mask].sum() / total).item() if total > 0 else 0.0


@share_on.mistake("You take the strongest channel of each pixel. Its strength is the sum of the three.")
def _(gradient, mask):
    return _share(gradient.abs().amax(0), mask)


@share_on.mistake("You take the length of the three channels together, a root of squares. Sum their absolute values.")
def _(gradient, mask):
    return _share(gradient.norm(dim=0), mask)


@share_on.mistake("You leave out what is negative. It counts as much as what is positive: take absolute values.")
def _(gradient, mask):
    return _share(gradient.clamp(min=0).sum(0), mask)


@share_on.mistake(
    "The share of a gradient of very small numbers comes out as 0. Only a sum of exactly 0 has that share: ask for it, "
    "without a number that you add to the sum or compare it with."
)
def _(gradient, mask):
    strength = gradient.abs().sum(0)
    return (strength[mask].sum() / (strength.sum() + 1e-8)).item()


@share_on.mistake(
    "You return 0.0 where positive and negative numbers sum to 0. Only a gradient that is 0 everywhere has that share."
)
def _(gradient, mask):
    strength = gradient.abs().sum(0)
    return (strength[mask].sum() / strength.sum()).item() if gradient.sum() != 0 else 0.0


@exercise(
    lesson=6,
    points=2,
    hints=[
        "`copy.deepcopy(model)` first. A layer that can be randomised has a method: `hasattr(m, 'reset_parameters')`.",
        "Put those layers in a list, in the order of `modules()`, and take the last ones with a slice.",
        "`layers[-count:]` is the whole list when count is 0. `layers[len(layers) - count:]` is not.",
    ],
)
def randomise_last(model, count, seed):
    """Return a copy of `model` whose last `count` layers have new random
    parameters.

    Layers are the modules with a method `reset_parameters`, in the order of
    `model.modules()`. Call `torch.manual_seed(seed)` once and then that method on
    each of them, the last layer first. With a count of 0 nothing is randomised.
    """
    twin = copy.deepcopy(model)
    layers = [module for module in twin.modules() if hasattr(module, "reset_parameters")]
    torch.manual_seed(seed)
    for layer in layers[::-1][:count]:
        layer.reset_parameters()
    return twin


class Within(nn.Module):
    """A layer that has another one in it, and a parameter of another name than most."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.inner = nn.Parameter(torch.ones(2)), nn.Linear(2, 2)

    def reset_parameters(self):
        nn.init.normal_(self.gain)

    def forward(self, x):
        return self.gain * self.inner(x)


def state_after(model: nn.Module):
    def look(twin):
        values = {f"{name} of the copy": value.detach().clone() for name, value in twin.state_dict().items()}
        return values | {
            "whether the copy is another object": twin is not model,
            "the modes (training) of the copy": [module.training for module in twin.modules()],
            "requires_grad of the copy": [parameter.requires_grad for parameter in twin.parameters()],
        }

    return look


@randomise_last.cases
def _(rng):
    for count in (1, 3, 0):
        block = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.BatchNorm1d(2))
        parts = {"stem": nn.Linear(2, 2), "act": nn.ReLU(), "block": block, "head": nn.Linear(2, 2)}
        model = whole_weights(nn.Sequential(collections.OrderedDict(parts)), rng)
        block[2].running_mean += 1
        given = {"model": model, "count": count, "seed": rng.integer(0, 99)}
        shown = f"a model with three Linear layers and a BatchNorm1d, count = {count}"
        yield Case(given, state_after(model), shown=shown)
    linear = whole_weights(nn.Linear(2, 2), rng)
    given = {"model": linear, "count": 1, "seed": rng.integer(0, 99)}
    yield Case(given, state_after(linear), shown="a model that is one Linear layer, count = 1")
    nested = whole_weights(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False), Within()), rng)
    nested[1].running_mean += 1
    given = {"model": nested, "count": 3, "seed": rng.integer(0, 99)}
    shown = "a model with a BatchNorm1d without parameters, and a layer that has another in it, count = 3"
    yield Case(given, state_after(nested), shown=shown)


@randomise_last.accept
def _(model, count, seed):
    twin = copy.deepcopy(model)
    torch.manual_seed(seed)
    for module in reversed(list(twin.modules())):
        if count > 0 and hasattr(module, "reset_parameters"):
            module.reset_parameters()
            count -= 1
    return twin


@randomise_last.accept
def _(model, count, seed):
    twin = copy.deepcopy(model)
    names = [name for name, module in twin.named_modules() if hasattr(module, "reset_parameters")]
    torch.manual_seed(seed)
    for _ in range(count):
        twin.get_submodule(names.pop()).reset_parameters()
    return twin


randomise_last.equivalent(
    "A Python number is never changed in place.", "not in place: - count -= 1 + count = count - 1"
)
randomise_last.equivalent(
    "Which round of the loop it is, is not used.",
    "backwards: - for _ in range(count): + for _ in list(range(count))[::-1]:",
)


def _randomise(twin, chosen, seed):
    torch.manual_seed(seed)
    for layer in chosen:
        layer.reset_parameters()
    return twin


def _layers_of(model):
    return [module for module in model.modules() if hasattr(module, "reset_parameters")]


@randomise_last.mistake("You randomised the model that you were given, and its training is lost. `copy.deepcopy` it.")
def _(model, count, seed):
    return _randomise(model, _layers_of(model)[::-1][:count], seed)


@randomise_last.mistake(
    "The model that you were given is randomised too. Copy it before that, and whole: a shallow copy, as a "
    "`state_dict()`, shares its tensors with the model."
)
def _(model, count, seed):
    twin = copy.copy(model)
    return _randomise(twin, _layers_of(twin)[::-1][:count], seed)


@randomise_last.mistake("You randomised the first layers. The check goes from the last one downwards.")
def _(model, count, seed):
    twin = copy.deepcopy(model)
    return _randomise(twin, _layers_of(twin)[:count], seed)


@randomise_last.mistake(
    "With a count of 0 you randomise all. Beware of `layers[-count:]`: -0 is 0, and that is the whole list."
)
def _(model, count, seed):
    twin = copy.deepcopy(model)
    return _randomise(twin, _layers_of(twin)[-count:][::-1], seed)


@randomise_last.mistake("You seed before each layer, so that equally large layers get the same numbers. Seed once.")
def _(model, count, seed):
    twin = copy.deepcopy(model)
    for layer in _layers_of(twin)[::-1][:count]:
        torch.manual_seed(seed)
        layer.reset_parameters()
    return twin


@randomise_last.mistake("You counted the ReLU as a layer. Only modules with a method `reset_parameters` count.")
def _(model, count, seed):
    twin = copy.deepcopy(model)
    leaves = [module for module in twin.modules() if not list(module.children())]
    chosen = [leaf for leaf in leaves[::-1][:count] if hasattr(leaf, "reset_parameters")]
    return _randomise(twin, chosen, seed)


@randomise_last.mistake("The numbers are not those of this seed. Call `manual_seed` once, before the first layer.")
def _(model, count, seed):
    twin = copy.deepcopy(model)
    for layer in _layers_of(twin)[::-1][:count]:
        layer.reset_parameters()
    return twin


@randomise_last.mistake("You randomise one layer more than you were asked to.")
def _(model, count, seed):
    twin = copy.deepcopy(model)
    return _randomise(twin, _layers_of(twin)[::-1][: count + 1], seed)


@randomise_last.mistake("You choose layers by their type. Each module with a method `reset_parameters` is one.")
def _(model, count, seed):
    twin = copy.deepcopy(model)
    layers = [module for module in twin.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    return _randomise(twin, layers[::-1][:count], seed)


@randomise_last.mistake(
    "The layer that has another layer in it is passed over. Each module with a method `reset_parameters` counts, "
    "whatever it holds."
)
def _(model, count, seed):
    twin = copy.deepcopy(model)
    layers = [layer for layer in _layers_of(twin) if not list(layer.children())]
    return _randomise(twin, layers[::-1][:count], seed)


@randomise_last.mistake("The order is another one: the last layer comes first. `reversed(...)` turns a list round.")
def _(model, count, seed):
    twin = copy.deepcopy(model)
    layers = _layers_of(twin)
    return _randomise(twin, layers[len(layers) - count :], seed)


@randomise_last.mistake("You looked at the direct children only. `modules()` goes to every depth.")
def _(model, count, seed):
    twin = copy.deepcopy(model)
    layers = [layer for layer in twin.children() if hasattr(layer, "reset_parameters")]
    return _randomise(twin, layers[::-1][:count], seed)


@randomise_last.mistake("You counted modules that are no layers. Only those with a method `reset_parameters` count.")
def _(model, count, seed):
    twin = copy.deepcopy(model)
    chosen = list(twin.modules())[::-1][:count]
    return _randomise(twin, [layer for layer in chosen if hasattr(layer, "reset_parameters")], seed)


@randomise_last.mistake(
    "The layers that you randomise are those of the model that you were given, and the copy stays as it was. Take the "
    "layers from the copy."
)
def _(model, count, seed):
    twin = copy.deepcopy(model)
    _randomise(model, _layers_of(model)[::-1][:count], seed)
    return twin


@randomise_last.mistake(
    "You begin with the first layer: `layers[-0]` is `layers[0]`, and the last one is `layers[-1]`."
)
def _(model, count, seed):
    twin = copy.deepcopy(model)
    layers = _layers_of(twin)
    return _randomise(twin, [layers[-number] for number in range(count)], seed)
