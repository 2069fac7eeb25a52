"""saliency.py: targets of every kind, nothing of the caller's changed, and a sentence for what cannot be explained."""

import contextlib
import functools
import warnings
from unittest import mock

import pytest
import torch
from saliency_nets import Deep, Small, images, relative, seeded
from torch import nn

from course_utils.hooks.inventory import no_hooks_left
from course_utils.hooks.record import record
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
        *(lambda logits: logits[:, 2], functools.partial(torch.select, dim=1, index=2)),
        lambda logits: logits.mul_(1)[:, 2].sum(),  # it may change what it gets
    ],
)
def test_targets_of_every_kind_name_the_same_class(target):
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
    assert relative(slopes, p[:, 3] * (maps[3] - sum(p[:, c] * maps[c] for c in range(5)))) < 1e-10


def test_logits_with_positions_need_a_function():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 1)).double()
    with pytest.raises(CourseError, match=r"needs logits \(N, classes\), the model returned \(2, 5, 10, 10\)"):
        grad_cam(model, images(), "0", 3)
    assert grad_cam(model, images(), "0", lambda logits: logits[:, 3].mean((1, 2))).shape == (2, 10, 10)


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        (5, CourseError, "class 5 is out of range: the model has 5 classes, 0 to 4"),
        ([0, 9], CourseError, "class 9 is out of range"),
        ([0, 1, 2], CourseError, "got 3 targets for a batch of 2: a sequence has one for each image"),
        (torch.tensor([[0, 1]]), CourseError, "got 1 targets for a batch of 2"),
        ("cat", TypeError, "a target is a class index, a sequence with one for each image"),
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
    at_input, changed = explain(seeded(Small()), images()), explain(model := seeded(Small()), images(), "second")
    nn.init.ones_(model.head.weight)
    with explain(seeded(Small()), images(), "second") as closed:
        pass
    for ask, words in (
        (lambda: at_input.grad_cam(0), "Grad-CAM needs a layer"),
        (lambda: at_input.gradient(0, relu_rule="guided"), r"explain\(\.\.\., watch_relus=True\)"),
        (lambda: at_input.gradient(0, relu_rule="guide"), "got 'guide'"),
        (lambda: closed.grad_cam(1), "this run is closed"),
        (lambda: changed.grad_cams([0, 1, 2]), "changed in place: weights after the run"),
    ):
        with pytest.raises(CourseError, match=words):
            ask()
    assert not closed._logits.requires_grad
    assert closed.logits.shape == (2, 5)


def state(model, batch):
    tensors = [*model.parameters(), *model.buffers(), batch]
    flags = [(id(tensor), id(tensor.grad), tensor.requires_grad) for tensor in tensors]
    values = [tensor.detach().clone() for each in tensors for tensor in (each, each.grad) if tensor is not None]
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch._C._len_torch_function_stack()
    return [flags, modes, [module.training for module in model.modules()], values]


@contextlib.contextmanager
def unchanged(model, batch):
    before = state(model, batch)
    with no_hooks_left(model, batch):
        yield
    torch.testing.assert_close(state(model, batch), before, rtol=0, atol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("frozen", [False, True])
def test_nothing_changes_and_the_map_is_the_same_in_every_mode(method, mode, frozen):
    model, batch = seeded(Small()), images().requires_grad_(not frozen)
    model.requires_grad_(not frozen)
    model.head.weight.grad = torch.ones_like(model.head.weight)
    random = torch.get_rng_state()
    with mode(), unchanged(model, batch):
        got = METHODS[method](model, batch)
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(got, METHODS[method](seeded(Small()), images()))
    assert not got.is_inference()
    assert not got.requires_grad


@pytest.mark.parametrize("method", METHODS)
def test_tensors_made_in_inference_mode_can_be_explained(method):
    wanted = METHODS[method](seeded(Small()), images())
    with torch.inference_mode():
        model, batch = seeded(Small()), images()
        with unchanged(model, batch):
            assert torch.equal(METHODS[method](model, batch), wanted)
    assert torch.equal(METHODS[method](model, batch), wanted)


explode = mock.Mock(side_effect=RecursionError)  # a RuntimeError, as torch's own are


@pytest.mark.parametrize("method", ["explain", "input_gradient", "guided_grad_cam"])
@pytest.mark.parametrize(
    "stage",
    [
        lambda model: model.register_forward_pre_hook(explode),  # before the first layer
        lambda model: setattr(model.second, "forward", explode),  # in the layer
        lambda model: setattr(model, "change", explode),  # after it
        lambda model: setattr(model, "change", lambda y: (y, y.register_hook(explode))[0]),
    ],
)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_nothing_changes_when_something_raises(method, stage, mode):
    model, batch = seeded(Small()), images()
    stage(model)
    with mode(), unchanged(model, batch), pytest.raises(RecursionError):
        METHODS[method](model, batch)


@pytest.mark.parametrize(("part", "title"), [("0.bn", "BatchNorm2d '0.bn'"), ("1", "Dropout '1'")])
def test_training_mode_is_kept_and_gives_a_warning(part, title):
    model, batch = seeded(nn.Sequential(Small(), nn.Dropout(0.5))), images()
    model.get_submodule(part).train()
    words = rf"{title} of Sequential is in training mode.*model.eval\(\) first"
    with unchanged(model, batch), pytest.warns(UserWarning, match=words) as caught:
        assert grad_cam(model, batch, "0.second", 1).shape == (2, 8, 8)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(("part", "runs"), [("maps", 2), ("forward", 1)])
def test_a_forward_that_turns_gradients_off_around_the_layer_or_the_whole(part, runs):
    model, batch = seeded(Small()), images()
    setattr(model, part, torch.no_grad()(getattr(model, part)))
    assert torch.equal(grad_cam(model, batch, "second"), grad_cam(seeded(Small()), batch, "second"))
    assert model.runs == runs
    with pytest.raises(CourseError, match="the logits do not depend on the input"):
        input_gradient(model, batch)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("forward", lambda forward: torch.inference_mode()(forward)),
        ("maps", lambda maps: lambda x: maps(x).detach()),
        ("maps", lambda maps: lambda x: (maps(x), x.repeat(1, 2, 1, 1))[1]),  # the layer is not on the way
    ],
)
@pytest.mark.parametrize("targets", [[0], [0, 1, 2]])
def test_logits_without_a_way_back_to_the_layer_are_no_silent_zero_map(part, change, targets):
    model = seeded(Small())
    setattr(model, part, change(getattr(model, part)))
    with pytest.raises(CourseError, match=r"the logits do not depend on layer 'second'.*\.detach\(\)"):
        explain(model, images(), "second").grad_cams(targets)


FLOATS = images().float()
ODD = Small()
ODD.unused, ODD.twice = nn.Conv2d(3, 3, 3), nn.ReLU()
ODD.maps = lambda x: ODD.second(ODD.twice(ODD.twice(ODD.first(x))))
SPOILT, PIXEL, BYTES = Small(), images(), torch.zeros(1, 3, 12, 12, dtype=torch.uint8)
SPOILT.second.bias.data[1] = PIXEL[1, 0, 3, 3] = torch.nan
FLAT, MAPS = nn.Sequential(nn.Flatten(), nn.Linear(432, 5)), "a map needs positions, one floating-point tensor"
ONE_TENSOR = "expected one floating-point tensor of logits (2, classes): call model.eval()"


@pytest.mark.parametrize(
    ("model", "batch", "layer", "words"),
    [
        (Small(lambda y: {"logits": y}), images(), "second", "Small returned dict {'logits': (2, 5)}, " + ONE_TENSOR),
        (Small(lambda y: y.argmax(1)), images(), "second", "Small returned Tensor (2,)"),
        (Small(), torch.ones(3, 12, 12), "second", "(3, 12, 12) torch.float32: images[None] adds the batch dimension"),
        (Small(), torch.ones(0, 3, 12, 12), "second", "at least one of them; got (0, 3, 12, 12)"),
        (Small(), BYTES, "second", "got (1, 3, 12, 12) torch.uint8"),
        (Small(), [[0.0]], "second", "images are floating-point numbers (N, C, H, W), at least one of them; got list"),
        (Small(), PIXEL, "second", "logits of Small have NaN values; NaN or infinite before the run: 'images'"),
        (SPOILT, images(), "second", "NaN or infinite before the run: 'second.bias'"),
        (Small(lambda y: y - torch.inf * 0), images(), "second", "before the run: none"),
        (Small(lambda y: (y - y).sqrt() + y), images(), "second", "gradient at layer 'second' has NaN or infinite"),
        (ODD, images(), "secnd", "layer 'secnd' is not in Small (nearest: second,"),
        (ODD, images(), nn.Conv2d, "Conv2d chooses 3 layers: name one of them, such as 'unused'"),
        (ODD, images(), "head", f"returns (2, 5): {MAPS} (2, K, h, w); the last convolution is 'unused'"),
        (FLAT, images(), "1", f"{MAPS} (2, K, h, w)"),
        (ODD, images(), "twice", "ran 2 times in one call of the model"),
        (ODD, images(), "unused", "layer 'unused' never ran when the model was called"),
    ],
)
def test_what_has_no_map_gets_a_sentence(model, batch, layer, words):
    model.double().eval()
    with no_hooks_left(model), pytest.raises(CourseError) as raised:
        grad_cam(model, batch, layer)
    assert words in str(raised.value)
    if words.startswith(("Small returned", "logits of", "images are")):
        with pytest.raises(CourseError) as raised:
            class_maps(model, batch)
        assert words in str(raised.value)


def test_a_logit_of_minus_infinity_is_a_class_that_is_masked_out():
    model = seeded(Small(lambda y: y.masked_fill(torch.arange(5) == 1, -torch.inf)))
    assert torch.equal(grad_cam(model, images(), "second", 2), grad_cam(seeded(Small()), images(), "second", 2))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Small().to("meta"), "the meta device has shapes and no values: load its weights first"),
        (lambda: torch.jit.trace(Deep().eval(), FLOATS), "TorchScript, where no hook runs: give what was"),
        (lambda: nn.Sequential(torch.jit.script(nn.ReLU())), "RecursiveScriptModule is TorchScript"),
        (lambda: torch.export.export(Small(), (FLOATS,)), "got ExportedProgram; give the module that was"),
        (lambda: nn.Sequential(torch.ao.nn.quantized.DeQuantize()), "DeQuantize is quantised and has no gradients"),
    ],
)
def test_what_hides_its_layers_or_has_no_gradients_is_named(build, words):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = build()
    for ask in (lambda: grad_cam(model, FLOATS, "second"), lambda: class_maps(model, FLOATS)):
        with pytest.raises(CourseError, match=words):
            ask()


def test_an_exported_module_only_keeps_weights():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.export.export(Small().eval(), (FLOATS,)).module()
    with pytest.raises(CourseError, match=r"comes from torch\.export, whose layers only keep weights"):
        grad_cam(model, FLOATS, "second")
    with record(model, "second") as seen:
        model(FLOATS)
    with pytest.raises(CourseError, match=r"comes from torch\.export, whose layers only keep weights"):
        _ = seen["second"].output
