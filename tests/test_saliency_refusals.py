"""saliency.py: targets of every kind, nothing of the caller's changed, and a sentence for what cannot be explained."""

import itertools
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from saliency_nets import Deep, Small, images, relative, seeded
from torch import nn

from course_utils.hooks.inventory import no_hooks_left
from course_utils.root import CourseError
from course_utils.vision.saliency import (
    cam,
    class_maps,
    deconvnet,
    explain,
    grad_cam,
    guided_backprop,
    guided_grad_cam,
    input_gradient,
)

pytestmark = pytest.mark.filterwarnings("error")
METHODS = {
    "explain": lambda model, batch: explain(model, batch, "second").grad_cams([0, 1]),
    "input_gradient": input_gradient,
    "guided_backprop": guided_backprop,
    "deconvnet": deconvnet,
    "grad_cam": lambda model, batch: grad_cam(model, batch, "second"),
    "guided_grad_cam": lambda model, batch: guided_grad_cam(model, batch, "second"),
    "cam": cam,
    "class_maps": class_maps,
}


# -- Targets --


def test_targets_of_every_kind_name_the_same_class():
    model, batch = seeded(Deep()), images()
    wanted = grad_cam(model, batch, "features.3", 2)
    for target in (
        torch.tensor(2),
        torch.tensor([2, 2], dtype=torch.int32),
        torch.tensor([2]).numpy()[0],
        [2, 2],
        (2, 2),
        torch.tensor([2, 2]).numpy(),
        lambda logits: logits[:, 2],
        lambda logits: logits[:, 2].sum(),
        nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (2, 5)), Pick(2)),
    ):
        assert torch.equal(grad_cam(model, batch, "features.3", target), wanted)


class Pick(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index

    def forward(self, logits):
        return logits[:, self.index]


def test_the_default_target_is_the_predicted_class_of_each_image():
    model, batch = seeded(Deep()), images(8)
    model.head[3].bias.data -= model(batch).mean(0).detach()
    predicted = model(batch).argmax(1)
    assert len(set(predicted.tolist())) > 1
    assert torch.equal(grad_cam(model, batch, "features.3"), grad_cam(model, batch, "features.3", predicted))
    assert torch.equal(cam(seeded(Small()), batch), cam(seeded(Small()), batch, seeded(Small())(batch).argmax(1)))


def test_a_function_of_the_logits_is_explained_with_its_own_slope():
    model, batch = seeded(Deep()), images()
    with explain(model, batch, "features.3") as run:
        p = run.logits.softmax(1)[:, 3]
        both = run.grad_cams([3, 4, lambda logits: logits[:, 3] - logits[:, 4]])
        slopes = run.grad_cam(lambda logits: logits.softmax(1)[:, 3])
        rest = torch.stack([run.logits.softmax(1)[:, c, None, None] * run.grad_cam(c) for c in range(5)]).sum(0)
    assert relative(both[2], both[0] - both[1]) < 1e-12
    assert relative(slopes, p[:, None, None] * (both[0] - rest)) < 1e-10


def test_a_target_function_may_change_the_logits_it_gets():
    model, batch = seeded(Small()), images()
    run = explain(model, batch, "second")
    assert torch.equal(run.grad_cam(lambda logits: logits.mul_(1)[:, 1]), run.grad_cam(1))
    assert torch.equal(run.logits, model(batch))


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
        ([], TypeError, "got list []"),
        ({"cat"}, TypeError, "got set {'cat'}"),
        ([0, None], TypeError, "got list [0, None]"),
        (lambda logits: logits[:, :1], CourseError, "returns a score for each image, shape (2,), or one number"),
        (lambda logits: logits.detach()[:, 0], CourseError, "computed from the logits with PyTorch; got (2,)"),
        (lambda logits: 3, CourseError, "got int"),
        (lambda logits: logits.argmax(1), CourseError, "computed from the logits"),
    ],
)
def test_a_target_that_does_not_exist_gets_a_sentence(target, error, words):
    model, batch = seeded(Small()), images()
    with explain(model, batch, "second") as run:
        for ask in (run.grad_cam, run.gradient, lambda t: run.grad_cams([0, t]), lambda t: cam(model, batch, t)):
            with pytest.raises(error) as raised:
                ask(target)
            assert words in str(raised.value)


def test_what_a_run_cannot_answer():
    run, at_input = explain(seeded(Small()), images(), "second"), explain(seeded(Small()), images())
    assert run.grad_cam(1).shape == (2, 8, 8)  # a run may outlive the call
    for ask, words in (
        (lambda: at_input.grad_cam(0), "Grad-CAM needs a layer"),
        (lambda: at_input.gradient(0, relu_rule="guided"), r"explain\(\.\.\., watch_relus=True\)"),
        (lambda: at_input.gradient(0, relu_rule="guide"), "got 'guide'"),
    ):
        with pytest.raises(CourseError, match=words):
            ask()
    run.close()
    assert run.logits.shape == (2, 5)
    with pytest.raises(CourseError, match="this run is closed"):
        run.grad_cam(1)


# -- Nothing of the caller's changes --


def state(model, batch):
    tensors = [*model.parameters(), *model.buffers(), batch]
    return {
        "grad": [id(tensor.grad) for tensor in tensors],
        "requires_grad": [tensor.requires_grad for tensor in tensors],
        "identity": [id(tensor) for tensor in tensors],
        "values": [tensor.detach().clone() for tensor in tensors],
        "grads": [None if tensor.grad is None else tensor.grad.clone() for tensor in tensors],
        "training": [module.training for module in model.modules()],
        "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch._C._len_torch_function_stack()),
        "random": torch.get_rng_state(),
    }


def same_state(one, other):
    flat = [itertools.chain.from_iterable(v if isinstance(v, list) else [v] for v in s.values()) for s in (one, other)]
    return one.keys() == other.keys() and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(*flat, strict=True)
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("frozen", [False, True])
def test_nothing_changes_and_the_map_is_the_same_in_every_mode(method, mode, frozen):
    model, batch = seeded(Small()), images()
    model.requires_grad_(not frozen)
    model.first.weight.requires_grad_(False)
    model.head.weight.grad = torch.ones_like(model.head.weight)
    batch.requires_grad_(not frozen)
    batch.grad = torch.zeros_like(batch)
    wanted = METHODS[method](seeded(Small()), images())
    with mode(), no_hooks_left(model, batch):
        before = state(model, batch)
        got = METHODS[method](model, batch)
        assert same_state(state(model, batch), before)
    assert torch.equal(got, wanted)
    assert not got.is_inference()
    assert not got.requires_grad


@pytest.mark.parametrize("method", METHODS)
def test_tensors_made_in_inference_mode_can_be_explained(method):
    wanted = METHODS[method](seeded(Small()), images())
    with torch.inference_mode():
        model, batch = seeded(Small()), images()
        assert all(tensor.is_inference() for tensor in [*model.parameters(), *model.buffers(), batch])
        before = state(model, batch)
        inside = METHODS[method](model, batch)
        assert same_state(state(model, batch), before)
    with no_hooks_left(model):
        assert torch.equal(METHODS[method](model, batch), wanted)
    assert torch.equal(inside, wanted)


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
    "before the layer": lambda model: model.bn.register_forward_hook(explode),
    "in the layer": lambda model: setattr(model.second, "forward", explode),
    "in a hook on the layer": lambda model: model.second.register_forward_hook(explode),
    "after the layer": lambda model: model.head.register_forward_pre_hook(explode),
    "after the model": lambda model: model.register_forward_hook(explode),
    "in the backward pass": lambda model: model.head.register_forward_hook(lambda *seen: BackwardBoom.apply(seen[-1])),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_nothing_changes_when_something_raises(method, stage, mode):
    if stage == "in the backward pass" and method in ("cam", "class_maps"):
        METHODS[method](seeded(Small()), images())  # they go nowhere backward
        return
    model, batch = seeded(Small()), images()
    STAGES[stage](model)
    with mode(), no_hooks_left(model, batch):
        before = state(model, batch)
        with pytest.raises(Boom):
            METHODS[method](model, batch)
        assert same_state(state(model, batch), before)


def test_an_exception_in_a_target_function_goes_on_and_the_run_stays_useful():
    model, batch = seeded(Small()), images()
    with no_hooks_left(model), explain(model, batch, "second") as run:
        before = state(model, batch)
        with pytest.raises(Boom):
            run.grad_cam(explode)
        assert same_state(state(model, batch), before)
        assert run.grad_cam(0).shape == (2, 8, 8)
    with pytest.raises(Boom), explain(model, batch, "second") as run:
        raise Boom
    with pytest.raises(CourseError, match="closed"):
        run.grad_cam(0)


def test_a_model_that_changes_its_input_does_not_change_the_callers_images():
    class Centre(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Small()

        def forward(self, x):
            return self.net(x.sub_(0.5).div_(0.25))

    model, batch = seeded(Centre()), images()
    for method in (lambda: grad_cam(model, batch, "net.second"), lambda: guided_backprop(model, batch)):
        first = method()
        assert torch.equal(batch, images())
        assert torch.equal(method(), first)


@pytest.mark.parametrize("part", ["bn", "dropout"])
def test_training_mode_is_kept_and_gives_a_warning(part):
    model, batch = seeded(nn.Sequential(Small(), nn.Dropout(0.5))), images()
    (model[0].bn if part == "bn" else model[1]).train()
    before = state(model, batch)
    with pytest.warns(UserWarning, match=r"is in training mode.*model.eval\(\) first") as caught:
        got = grad_cam(model, batch, "0.second", 1)
    assert len(caught) == 1
    before["random"] = torch.get_rng_state()  # dropout draws, as in any call
    assert same_state(state(model, batch), before)
    assert got.shape == (2, 8, 8)


# -- Odd models --


def test_a_forward_that_turns_gradients_off_around_the_layer():
    class Frozen(Small):
        def forward(self, x):
            self.runs += 1
            with torch.no_grad():
                x = self.second(F.relu(self.bn(self.first(x))))
            return self.head(F.relu(x).mean((2, 3)))

    model, batch = seeded(Frozen()), images()
    assert torch.equal(grad_cam(model, batch, "second"), grad_cam(seeded(Small()), batch, "second"))
    assert model.runs == 2
    with pytest.raises(CourseError, match="the logits do not depend on the input"):
        input_gradient(model, batch)


def test_a_forward_under_inference_mode_is_no_silent_zero_map():
    class Whole(Small):
        @torch.inference_mode()
        def forward(self, x):
            return super().forward(x)

    model = seeded(Whole())
    for method in (lambda: grad_cam(model, images(), "second"), lambda: guided_backprop(model, images())):
        with no_hooks_left(model), pytest.raises(CourseError, match=r"torch.inference_mode\(\)"):
            method()


def test_a_forward_under_no_grad_hinders_nothing_after_the_layer():
    class Whole(Small):
        @torch.no_grad()
        def forward(self, x):
            return super().forward(x)

    model = seeded(Whole())
    assert torch.equal(grad_cam(model, images(), "second"), grad_cam(seeded(Small()), images(), "second"))
    assert model.runs == 1


@pytest.mark.parametrize("cut", ["detach", "inference", "data"])
def test_logits_without_a_way_back_to_the_layer_are_no_silent_zero_map(cut):
    class Cut(Small):
        def forward(self, x):
            x = F.relu(self.second(F.relu(self.bn(self.first(x)))))
            if cut == "inference":
                with torch.inference_mode():
                    return self.head(x.mean((2, 3)))
            return self.head((x.detach() if cut == "detach" else x.data).mean((2, 3)))

    with pytest.raises(CourseError, match=r"the logits do not depend on layer 'second'.*\.detach\(\)"):
        grad_cam(seeded(Cut()), images(), "second")


def test_a_layer_beside_the_way_to_the_logits_is_no_silent_zero_map():
    class Beside(Small):
        def forward(self, x):
            self.seen = self.second(self.first(x))
            return self.head(F.pad(self.first(x), (0, 0, 0, 0, 0, 2)).mean((2, 3)))

    for targets in ([0], [0, 1]):
        with pytest.raises(CourseError, match="the logits do not depend on layer 'second'"):
            explain(seeded(Beside()), images(), "second").grad_cams(targets)


class Wrong(Small):
    """Returns something else than logits."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        return self.change(super().forward(x))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: {"logits": y}, "Wrong returned dict {'logits': (2, 5)}, expected one floating-point tensor"),
        (lambda y: (y, y), "Wrong returned tuple ((2, 5), (2, 5))"),
        (lambda y: y.argmax(1), "Wrong returned Tensor (2,)"),
        (lambda y: y.sum(), "Wrong returned Tensor ()"),
        (lambda y: y[:1], "Wrong returned Tensor (1, 5)"),
        (lambda y: None, "Wrong returned NoneType"),
    ],
)
def test_an_output_that_is_not_logits_gets_a_sentence(change, words):
    for method in METHODS.values():
        with pytest.raises(CourseError) as raised:
            method(seeded(Wrong(change)), images())
        assert words in str(raised.value)
        assert "model.eval()" in str(raised.value)


class Odd(Small):
    def __init__(self):
        super().__init__()
        self.twice, self.unused = nn.Sequential(nn.ReLU()), nn.Conv2d(3, 3, 3)

    def forward(self, x):
        x = self.twice[0](self.bn(self.first(x)))
        return self.head(self.twice[0](self.second(x)).mean((2, 3)))


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ("secnd", "layer 'secnd' is not in Odd (nearest: second,"),
        (nn.Conv2d(3, 4, 3), "the Conv2d you gave is not a module of Odd"),
        (nn.GELU, "Odd has no GELU"),
        (nn.Conv2d, "Conv2d chooses 3 layers: name one of them, such as 'unused'"),
        ("head", "layer 'head' returns (2, 5): a map needs positions, one floating-point tensor (2, K, h"),
        ("", "the last convolution is 'unused'"),
        ("twice.0", "ran 2 times in one call of the model"),
        ("unused", "layer 'unused' never ran when the model was called"),
        ("twice", "layer 'twice' never ran"),
    ],
)
def test_a_layer_that_has_no_map_gets_a_sentence(layer, words):
    model = seeded(Odd())
    with no_hooks_left(model), pytest.raises(CourseError) as raised:
        grad_cam(model, images(), layer, 0)
    assert words in str(raised.value)


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


@pytest.mark.parametrize("method", METHODS)
def test_nan_is_named_where_it_is(method):
    model, batch = seeded(Small()), images()
    model.second.bias.data[1] = torch.nan
    with pytest.raises(
        CourseError, match=r"logits of Small have NaN values; NaN or infinite before the run: 'second.bias'"
    ):
        METHODS[method](model, batch)
    batch[1, 0, 3, 3] = torch.nan
    with pytest.raises(CourseError, match="before the run: 'images'"):
        METHODS[method](seeded(Small()), batch)


def test_nan_that_comes_from_neither_weights_nor_images():
    with pytest.raises(CourseError, match="before the run: none"):
        input_gradient(Wrong(lambda y: y - torch.inf * 0).double().eval(), images())
    with pytest.raises(CourseError, match="the gradient at layer 'second' has NaN or infinite values"):
        grad_cam(seeded(Wrong(lambda y: (y - y).sqrt() + y)), images(), "second")


def test_a_logit_of_minus_infinity_is_a_class_that_is_masked_out():
    mask = torch.tensor([False, True, False, False, False])
    model = seeded(Wrong(lambda y: y.masked_fill(mask, -torch.inf)))
    assert torch.equal(grad_cam(model, images(), "second", 2), grad_cam(seeded(Small()), images(), "second", 2))


@pytest.mark.slow
def test_explaining_imports_no_torchvision_and_no_compiler():
    code = (
        "import sys, torch; from torch import nn; before = set(sys.modules)\n"
        "from course_utils.vision.saliency import grad_cam\n"
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before} - {'course_utils'}))\n"
        "grad_cam(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten()), torch.ones(1, 3, 4, 4), '0', 0)\n"
        "print('torch._dynamo' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    heavy = {"torchvision", "matplotlib", "ipywidgets", "IPython", "numpy", "PIL", "torch"}
    new, compiler = ran.stdout.splitlines()
    assert not heavy & set(eval(new))
    assert compiler == "False"
