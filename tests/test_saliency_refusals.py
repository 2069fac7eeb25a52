"""saliency.py: targets of every kind, nothing of the caller's changed, and a sentence for what cannot be explained."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from saliency_nets import Deep, Small, images, relative, seeded
from torch import nn

from course_utils.hooks.inventory import no_hooks_left
from course_utils.root import CourseError
from course_utils.vision.saliency import cam, class_maps, explain, grad_cam, guided_grad_cam, input_gradient

pytestmark = pytest.mark.filterwarnings("error")
METHODS = {
    "explain": lambda model, batch: explain(model, batch, "second").grad_cams([0, 1, 2]),
    "input_gradient": input_gradient,
    "guided_grad_cam": lambda model, batch: guided_grad_cam(model, batch, "second"),
    "cam": cam,
    "class_maps": class_maps,
}


@pytest.mark.parametrize(
    "target",
    [
        *(torch.tensor(2), torch.tensor([2, 2], dtype=torch.int32), torch.tensor([2, 2]).numpy(), (2, 2)),
        lambda logits: logits[:, 2],
        lambda logits: logits.mul_(1)[:, 2].sum(),  # it may change what it gets
        nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (2, 5)), nn.Linear(5, 1, bias=False), nn.Flatten(0)),
    ],
)
def test_targets_of_every_kind_name_the_same_class(target):
    if isinstance(target, nn.Module):
        target[2].weight = nn.Parameter(torch.eye(5).double()[2:3])
    run = explain(seeded(Deep()), images(), "features.3")
    assert torch.equal(run.grad_cam(target), run.grad_cam(2))


def test_the_default_target_is_the_predicted_class_of_each_image():
    model, batch = seeded(Deep()), images(8)
    model.head[3].bias.data -= model(batch).mean(0).detach()
    predicted = model(batch).argmax(1)
    assert len(set(predicted.tolist())) > 1
    assert torch.equal(grad_cam(model, batch, "features.3"), grad_cam(model, batch, "features.3", predicted))


def test_a_function_of_the_logits_is_explained_with_its_own_slope():
    with explain(seeded(Deep()), images(), "features.3") as run:
        p = run.logits.softmax(1)[:, :, None, None]
        maps = run.grad_cams(range(5))
        slopes = run.grad_cam(lambda logits: logits.softmax(1)[:, 3])
    rest = sum(p[:, c] * maps[c] for c in range(5))
    assert relative(slopes, p[:, 3] * (maps[3] - rest)) < 1e-10


def test_logits_with_positions_need_a_function():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 1)).double()
    with pytest.raises(CourseError, match=r"needs logits \(N, classes\), the model returned \(2, 5, 10, 10\)"):
        grad_cam(model, images(), "0", 3)
    assert grad_cam(model, images(), "0", lambda logits: logits[:, 3].mean((1, 2))).shape == (2, 10, 10)


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        (5, CourseError, "class 5 is out of range: the model has 5 classes, 0 to 4"),
        (-1, CourseError, "class -1 is out of range"),
        ([0, 9], CourseError, "class 9 is out of range"),
        ([0, 1, 2], CourseError, "got 3 targets for a batch of 2: a sequence has one for each image"),
        (torch.tensor([[0, 1]]), CourseError, "got 1 targets for a batch of 2"),
        ("cat", TypeError, "a target is a class index, a sequence with one for each image"),
        (1.0, TypeError, "got float 1.0"),
        (1j, TypeError, "got complex 1j"),
        (True, TypeError, "got bool True"),
        ([0, None], TypeError, "got list [0, None]"),
        (lambda logits: logits[:, :1], CourseError, "returns a score for each image, shape (2,), or one number"),
        (lambda logits: logits.detach()[:, 0], CourseError, "computed from the logits with PyTorch; got (2,)"),
        (lambda logits: 3, CourseError, "got int"),
    ],
)
def test_a_target_that_does_not_exist_gets_a_sentence(target, error, words):
    model, batch = seeded(Small()), images()
    run = explain(model, batch, "second")
    for ask in (run.grad_cam, lambda t: run.grad_cams([0, t]), lambda t: cam(model, batch, t)):
        with pytest.raises(error) as raised:
            ask(target)
        assert words in str(raised.value)


def test_what_a_run_cannot_answer():
    at_input = explain(seeded(Small()), images())
    with explain(seeded(Small()), images(), "second") as closed:
        pass
    for ask, words in (
        (lambda: at_input.grad_cam(0), "Grad-CAM needs a layer"),
        (lambda: at_input.gradient(0, relu_rule="guided"), r"explain\(\.\.\., watch_relus=True\)"),
        (lambda: at_input.gradient(0, relu_rule="guide"), "got 'guide'"),
        (lambda: closed.grad_cam(1), "this run is closed"),
    ):
        with pytest.raises(CourseError, match=words):
            ask()
    assert not closed._logits.requires_grad
    assert closed.logits.shape == (2, 5)


def state(model, batch):
    """All that belongs to the caller, as one list."""
    tensors = [*model.parameters(), *model.buffers(), batch]
    flags = [(id(tensor), id(tensor.grad), tensor.requires_grad) for tensor in tensors]
    values = [tensor.detach().clone() for each in tensors for tensor in (each, each.grad) if tensor is not None]
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch._C._len_torch_function_stack()
    return [*itertools.chain(*flags), *modes, *(module.training for module in model.modules()), *values]


def assert_unchanged(model, batch, before):
    for now, then in zip(state(model, batch), before, strict=True):
        assert torch.equal(now, then) if isinstance(now, torch.Tensor) else now == then


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("frozen", [False, True])
def test_nothing_changes_and_the_map_is_the_same_in_every_mode(method, mode, frozen):
    model, batch = seeded(Small()), images().requires_grad_(not frozen)
    model.requires_grad_(not frozen)
    model.head.weight.grad = torch.ones_like(model.head.weight)
    random = torch.get_rng_state()
    with mode(), no_hooks_left(model, batch):
        before = state(model, batch)
        got = METHODS[method](model, batch)
        assert_unchanged(model, batch, before)
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(got, METHODS[method](seeded(Small()), images()))
    assert not got.is_inference()
    assert not got.requires_grad


@pytest.mark.parametrize("method", METHODS)
def test_tensors_made_in_inference_mode_can_be_explained(method):
    wanted = METHODS[method](seeded(Small()), images())
    with torch.inference_mode():
        model, batch = seeded(Small()), images()
        before = state(model, batch)
        assert torch.equal(METHODS[method](model, batch), wanted)
        assert_unchanged(model, batch, before)
    assert torch.equal(METHODS[method](model, batch), wanted)


class Boom(RuntimeError):
    pass


class BackwardBoom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise Boom


def explode(*_):
    raise Boom


STAGES = {
    "before the first layer": lambda model: model.register_forward_pre_hook(explode),
    "in the layer": lambda model: setattr(model.second, "forward", explode),
    "after the layer": lambda model: model.head.register_forward_pre_hook(explode),
    "in the backward pass": lambda model: model.head.register_forward_hook(lambda *seen: BackwardBoom.apply(seen[-1])),
}


@pytest.mark.parametrize("method", ["explain", "input_gradient", "guided_grad_cam"])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_nothing_changes_when_something_raises(method, stage, mode):
    model, batch = seeded(Small()), images()
    STAGES[stage](model)
    with mode(), no_hooks_left(model, batch):
        before = state(model, batch)
        with pytest.raises(Boom):
            METHODS[method](model, batch)
        assert_unchanged(model, batch, before)


@pytest.mark.parametrize("part", [0, 1])
def test_training_mode_is_kept_and_gives_a_warning(part):
    model, batch = seeded(nn.Sequential(Small(), nn.Dropout(0.5))), images()
    (model[0].bn, model[1])[part].train()
    before, name = state(model, batch), ("BatchNorm2d '0.bn'", "Dropout '1'")[part]
    with pytest.warns(UserWarning, match=rf"{name} of Sequential is in training mode.*model.eval\(\) first") as caught:
        assert grad_cam(model, batch, "0.second", 1).shape == (2, 8, 8)
    assert [warning.filename for warning in caught] == [__file__]
    assert_unchanged(model, batch, before)


class Whole(Small):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)


class Inference(Small):
    @torch.inference_mode()
    def forward(self, x):
        return super().forward(x)


class Frozen(Small):
    def forward(self, x):
        with torch.no_grad():
            x = self.maps(x)
        return self.head(F.relu(x).mean((2, 3)))


@pytest.mark.parametrize(("network", "runs"), [(Frozen, 2), (Whole, 1)])
def test_a_forward_that_turns_gradients_off_around_the_layer_or_the_whole(network, runs):
    model, batch = seeded(network()), images()
    assert torch.equal(grad_cam(model, batch, "second"), grad_cam(seeded(Small()), batch, "second"))
    assert model.runs == runs
    with pytest.raises(CourseError, match="the logits do not depend on the input"):
        input_gradient(model, batch)


class Cut(Small):
    """The graph is cut between the layer `second` and the logits."""

    def forward(self, x):
        return self.head(F.relu(self.maps(x)).detach().mean((2, 3)))


class Beside(Small):
    """The layer `second` is not on the way to the logits."""

    def forward(self, x):
        self.maps(x)
        return self.head(F.pad(self.first(x), (0, 0, 0, 0, 0, 2)).mean((2, 3)))


@pytest.mark.parametrize("network", [Inference, Cut, Beside])
@pytest.mark.parametrize("targets", [[0], [0, 1, 2]])
def test_logits_without_a_way_back_to_the_layer_are_no_silent_zero_map(network, targets):
    with pytest.raises(CourseError, match=r"the logits do not depend on layer 'second'.*\.detach\(\)"):
        explain(seeded(network()), images(), "second").grad_cams(targets)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: {"logits": y}, "Small returned dict {'logits': (2, 5)}, expected one floating-point tensor"),
        (lambda y: y.argmax(1), "Small returned Tensor (2,)"),
        (lambda y: y.sum(), "Small returned Tensor ()"),
        (lambda y: None, "Small returned NoneType None, expected one floating-point tensor of logits (2, classes)"),
    ],
)
@pytest.mark.parametrize("method", ["explain", "cam"])
def test_an_output_that_is_not_logits_gets_a_sentence(method, change, words):
    with pytest.raises(CourseError, match=r"model\.eval\(\)") as raised:
        METHODS[method](seeded(Small(change)), images())
    assert words in str(raised.value)


class Odd(Small):
    def __init__(self):
        super().__init__()
        self.twice, self.unused = nn.Sequential(nn.ReLU()), nn.Conv2d(3, 3, 3)

    def forward(self, x):
        return self.head(self.twice[0](self.second(self.twice[0](self.first(x)))).mean((2, 3)))


@pytest.mark.parametrize(
    ("model", "layer", "words"),
    [
        (Odd(), "secnd", r"layer 'secnd' is not in Odd \(nearest: second,"),
        (Odd(), nn.Conv2d, "Conv2d chooses 3 layers: name one of them, such as 'unused'"),
        (
            Odd(),
            "head",
            r"returns \(2, 5\): a map needs positions, .* \(2, K, h, w\); the last convolution is 'unused'",
        ),
        (nn.Sequential(nn.Flatten(), nn.Linear(432, 5)), "1", r"one floating-point tensor \(2, K, h, w\)$"),
        (Odd(), "twice.0", "ran 2 times in one call of the model"),
        (Odd(), "unused", "layer 'unused' never ran when the model was called"),
    ],
)
def test_a_layer_that_has_no_map_gets_a_sentence(model, layer, words):
    with no_hooks_left(seeded(model)), pytest.raises(CourseError, match=words):
        grad_cam(model, images(), layer, 0)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (torch.randn(3, 12, 12), "got (3, 12, 12) torch.float32: images[None] adds the batch dimension"),
        (torch.randn(0, 3, 12, 12), "at least one of them; got (0, 3, 12, 12)"),
        (torch.zeros(1, 3, 12, 12, dtype=torch.uint8), "got (1, 3, 12, 12) torch.uint8"),
        ([[0.0]], "images are floating-point numbers (N, C, H, W), at least one of them; got list"),
    ],
)
@pytest.mark.parametrize("method", ["explain", "class_maps"])
def test_images_that_are_no_batch_get_a_sentence(method, batch, words):
    with pytest.raises(CourseError) as raised:
        METHODS[method](Small().eval(), batch)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("change", "spoilt", "words"),
    [
        (lambda y: y, "image", "logits of Small have NaN values; NaN or infinite before the run: 'images'"),
        (lambda y: y, "weight", "NaN or infinite before the run: 'second.bias'"),
        (lambda y: y - torch.inf * 0, "", "before the run: none"),
        (lambda y: (y - y).sqrt() + y, "", "the gradient at layer 'second' has NaN or infinite values"),
    ],
)
def test_nan_is_named_where_it_is(change, spoilt, words):
    model, batch = seeded(Small(change)), images()
    batch[1, 0, 3, 3] = torch.nan if spoilt == "image" else 0
    model.second.bias.data[1] = torch.nan if spoilt == "weight" else 0
    with pytest.raises(CourseError, match=words):
        grad_cam(model, batch, "second")


def test_a_logit_of_minus_infinity_is_a_class_that_is_masked_out():
    model = seeded(Small(lambda y: y.masked_fill(torch.arange(5) == 1, -torch.inf)))
    assert torch.equal(grad_cam(model, images(), "second", 2), grad_cam(seeded(Small()), images(), "second", 2))
