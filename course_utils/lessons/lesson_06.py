"""Exercises and predictions of lesson 06: Guided Backpropagation."""

from __future__ import annotations

import contextlib
import copy

import torch
from torch import nn

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.engine import exercise, prediction
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
)
prediction(
    "most_on_the_thing",
    lesson=6,
    question="which rule puts the largest part of its map on the thing that was asked for, here, on this network?",
    options={
        "gradient": "It is the exact derivative, but much of it lies elsewhere: 0.71 here, where 0.5 is chance.",
        "deconvnet": "It ignores which units were active, and with that most of what it could know.",
        "guided": "Said to be blind to the class, it is the clearest of the three on this small network.",
        "none": "That is what the texts say of Guided Backprop. On this small network it is not so.",
    },
    answer="guided",
)
prediction(
    "random_classifier",
    lesson=6,
    question="the last layer, the only one that knows classes, becomes random. How similar does the guided map stay?",
    options={
        0.0: "So it should be, if the map explained the class. Rank correlation 0 means: unrelated.",
        0.3: "That is near what the plain gradient keeps. The guided map keeps far more.",
        0.6: "More still. Which pixels are bright depends mostly on the layers below.",
        0.9: "Nearly all of the map's pattern comes from layers that do not know the classes.",
    },
    answer=0.9,
)

# --- small networks for the cases -------------------------------------------------------------------------------------


def gradient_by(model: nn.Module, x: torch.Tensor, rules: dict[nn.Module, str]) -> torch.Tensor:
    """The gradient of the first output with respect to `x`, some modules following another rule than backprop."""
    with contextlib.ExitStack() as stack:
        for module, rule in rules.items():
            place = {"guided": 0, "deconvnet": 1}[rule]  # full backward hooks see (grad_input, grad_output)
            hook = module.register_full_backward_hook(lambda *seen, place=place: (seen[1 + place][0].clamp(min=0),))
            stack.callback(hook.remove)
        x = x.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(x)[:, 0].sum(), x)
    return gradient


def telling_net(rng: Numbers) -> tuple[nn.Module, torch.Tensor]:
    """A net with one ReLU at the top and one inside a block, and an input at which every mistake shows.

    Weights are drawn until each choice of rule and of hooked modules gives another gradient at the input.
    """
    while True:
        block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        model = whole_weights(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), block, nn.Linear(4, 2)), rng)
        x = rng.whole(1, 3, high=4)
        upper, lower, linear = block[1], model[1], model[0]
        choices = [
            {},
            {lower: "guided"},
            {upper: "guided"},
            {lower: "guided", upper: "guided"},
            {lower: "deconvnet", upper: "deconvnet"},
            {lower: "guided", upper: "guided", linear: "guided"},
        ]
        found = [gradient_by(model, x, choice) for choice in choices]
        distinct = all(not torch.equal(a, b) for i, a in enumerate(found) for b in found[:i])
        if distinct and all(gradient.any() for gradient in found):
            return model, x


def plain_gradient(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return gradient_by(model, x, {})


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
        f, grad = rng.whole(6, low=2), rng.whole(6, low=2)
        f[[1, 4, 5]] = 0
        grad[[2, 4]] *= -1
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
    x = rng.whole(6, low=2)
    x[[1, 4, 5]] *= -1
    x.requires_grad_()
    arriving = rng.whole(6, low=2)
    arriving[[2, 4]] *= -1

    def once(handle):
        output = relu(x)
        (output * arriving).sum().backward()
        guided, x.grad = x.grad, None
        handle.remove()
        (relu(x) * arriving).sum().backward()
        return {"the output": output, "x.grad": guided, "x.grad after handle.remove()": x.grad}

    yield Case({"relu": relu}, once, shown="a ReLU that is called once")
    again, y = nn.ReLU(), rng.whole(4, low=2)
    y[[0, 1]] *= -1
    y.requires_grad_()
    weight = rng.whole(4, low=2)
    weight[[1, 3]] *= -1

    def twice(_):
        output = again(again(y) * weight + 1)
        (output * rng.whole(4)).sum().backward()
        return {"the output": output, "x.grad": y.grad}

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


@guide_relu.mistake("Your hook returns nothing, so the gradient goes on unchanged. Return the new one.")
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
    "You keep the output in one place, and the second call of the module overwrites it before the first one goes "
    "backward. You need not keep it: `grad_input` knows it."
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


def count_backward_hooks(model: nn.Module) -> int:
    """How many full backward hooks and pre-hooks the modules of a model have."""
    return sum(len(module._backward_hooks) + len(module._backward_pre_hooks) for module in model.modules())


@Guide.cases
def _(rng):
    model, x = telling_net(rng)

    def in_and_out(manager):
        found = {"the number of hooks before the block": count_backward_hooks(model)}
        with manager:
            found["the gradient at the input, in the block"] = plain_gradient(model, x)
        found["the number of hooks after the block"] = count_backward_hooks(model)
        found["the gradient at the input, after the block"] = plain_gradient(model, x)
        return found

    yield Case({"model": model}, in_and_out, shown="a model with a ReLU at the top and one inside a block")
    other, y = telling_net(rng)
    other[1].register_full_backward_hook(lambda module, inputs, outputs: None)

    def block_raises(manager):
        caught = "nothing"
        try:
            with manager:
                inside = plain_gradient(other, y)
                raise RuntimeError("the block failed")
        except RuntimeError as error:
            caught = str(error)
        return {
            "the gradient at the input, in the block": inside,
            "the exception that came out of the block": caught,
            "the number of hooks after a block that raised, with one from before": count_backward_hooks(other),
        }

    yield Case({"model": other}, block_raises, shown="a block that raises, and a hook from before")


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


@Guide.mistake("Only the ReLUs at the top follow the rule: `children()` stops there. `modules()` goes to every depth.")
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
        super().__enter__()

    def __enter__(self):
        return self


@Guide.mistake("`__exit__` returns something true, and that swallows the exception of the block. Return nothing.")
class _GuideSwallows(_WrongGuide):
    def __exit__(self, *exception):
        super().__exit__()
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


@Guide.mistake("Your hook returns nothing, so the gradient goes on as it is.")
class _GuideNothing(_WrongGuide):
    def hook(self, module, grad_input, grad_output):
        grad_input[0].clamp(min=0)


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
    for count in (1, 3):
        while True:
            model = whole_weights(nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)), rng)
            images = rng.whole(count, 1, 2, 2, high=4)
            leaf = images.clone().requires_grad_()
            logits = model(leaf).sum(0)
            gradients = [torch.autograd.grad(logit, leaf, retain_graph=True)[0] for logit in logits]
            if all(gradient.flatten(1).any(1).all() for gradient in gradients):  # no picture on which all units sleep
                break
        classes = torch.tensor([(n + rng.integer(0, 1)) % 3 for n in range(count)])
        shown = f"{count} picture{'s' * (count > 1)} of 2 x 2 pixels, classes = {classes.tolist()}"
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


@class_gradient.mistake("You go backward from the sum of all logits. Pick the one of each picture's class.")
def _(model, images, classes):
    leaf = images.clone().requires_grad_()
    return torch.autograd.grad(model(leaf).sum(), leaf)[0]


@class_gradient.mistake(
    "`backward()` writes into the `.grad` of all the model's parameters. `torch.autograd.grad` leaves them alone."
)
def _(model, images, classes):
    leaf = images.clone().requires_grad_()
    model(leaf)[torch.arange(len(classes)), classes].sum().backward()
    return leaf.grad


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
        "`spread = gradient.std()`; where it is 0, divide by 1 instead; at last `.clamp(0, 1)`.",
    ],
)
def to_picture(gradient):
    """Turn a gradient (3, H, W) into a picture: mean 0.5, standard deviation 0.1,
    clipped to [0, 1].

    Mean and standard deviation are those of all its numbers together, as
    `gradient.mean()` and `gradient.std()` give them. A constant gradient gives 0.5
    everywhere.
    """
    spread = gradient.std()
    if spread == 0:
        return torch.full_like(gradient, 0.5)
    return ((gradient - gradient.mean()) / spread * 0.1 + 0.5).clamp(0, 1)


@to_picture.cases
def _(rng):
    gradient = rng.mixed(3, 2, 2) / 4
    yield Case({"gradient": gradient})
    spike = rng.mixed(3, 4, 6, high=3)
    spike[0, 0, 0], spike[2, 1, 1] = 400.0 + rng.integer(0, 9), -300.0
    yield Case({"gradient": spike}, shown="a gradient with two numbers that are far larger than the others")
    yield Case({"gradient": torch.full((3, 1, 2), 0.25)}, shown="a constant gradient")


@to_picture.accept
def _(gradient):
    centred = gradient - gradient.mean()
    spread = (centred.square().sum() / (gradient.numel() - 1)).sqrt()
    return torch.clip(0.5 + 0.1 * centred / (spread if spread > 0 else 1), 0, 1)


@to_picture.accept
def _(gradient):
    spread, mean = torch.std_mean(gradient)
    return ((gradient - mean) / spread).nan_to_num(0.0, torch.inf, -torch.inf).mul(0.1).add(0.5).clamp(min=0, max=1)


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
    changed, and its other layers stay as they are.
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
    model = nn.Sequential(
        nn.Linear(2, 2),
        nn.ReLU(inplace=first),
        nn.ReLU(inplace=second),
        nn.Sequential(nn.Dropout(inplace=True), nn.ReLU(inplace=True)),
    )

    def look(_):
        return {
            f"inplace of layer {name}": module.inplace
            for name, module in model.named_modules()
            if hasattr(module, "inplace")
        }

    yield Case({"model": model}, look, shown="a model with in-place ReLUs at two depths")
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


@stop_in_place.mistake("You changed a copy. The hooks will sit on the model that you were given: change that one.")
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
    for _ in range(2):
        gradient, mask = rng.mixed(3, 2, 3), torch.zeros(2, 3, dtype=torch.bool)
        mask[rng.integer(0, 1), rng.integer(0, 2)] = True
        mask[0, 0] = mask[1, 2] = True
        gradient[1, 1, 2] = -gradient[0, 1, 2] - rng.integer(1, 3)
        yield Case({"gradient": gradient, "mask": mask})
    nothing = torch.zeros(3, 2, 2)
    yield Case(
        {"gradient": nothing, "mask": torch.tensor([[True, False], [False, False]])}, shown="a gradient of zeros"
    )


@share_on.accept
def _(gradient, mask):
    inside, total = (gradient.abs() * mask).sum().item(), gradient.abs().sum().item()
    return inside / total if total else 0.0


@share_on.accept
def _(gradient, mask):
    strength = gradient.abs().mean(dim=0)
    share = strength[mask].sum() / strength.sum().clamp(min=1e-30)
    return float(share)


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


def parameters_after(model: nn.Module):
    def look(twin):
        values = {f"{name} of the copy": value.detach().clone() for name, value in twin.named_parameters()}
        return values | {"whether the copy is another object": twin is not model}

    return look


@randomise_last.cases
def _(rng):
    for count in (1, 2, 0):
        block = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        model = whole_weights(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), block, nn.Linear(2, 2)), rng)
        given = {"model": model, "count": count, "seed": rng.integer(0, 99)}
        yield Case(given, parameters_after(model), shown=f"a model with three Linear layers, count = {count}")


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


@randomise_last.mistake("A shallow copy shares its layers with the model, so that is randomised too. `copy.deepcopy`.")
def _(model, count, seed):
    twin = copy.copy(model)
    return _randomise(twin, _layers_of(twin)[::-1][:count], seed)


@randomise_last.mistake("You randomised the first layers. The check goes from the last one downwards.")
def _(model, count, seed):
    twin = copy.deepcopy(model)
    return _randomise(twin, _layers_of(twin)[:count], seed)


@randomise_last.mistake("`layers[-count:]` with a count of 0 is the whole list: -0 is 0. Turn the list round first.")
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
