"""Ask a network where it looks: input gradient, Guided Backprop, deconvnet, CAM, Grad-CAM, Guided Grad-CAM.

    heat = grad_cam(model, images, "features.10", target=3)                     # raw, (N, h, w)
    picture = scale_to_unit(upsample(relu(heat), images.shape[-2:]))

    with explain(model, images, "features.10") as run:                          # the network runs once
        both = run.grad_cams([3, lambda logits: logits[:, 3] - logits[:, 5]])   # (2, N, h, w), in one backward pass

Images are (N, C, H, W), a layer's output is (N, K, h, w), logits are (N, classes). Maps are raw: from the logit, before
any ReLU, resizing or scaling. For a layer of another shape, `reshape` makes (N, K, h, w) of its output by moving values
only: `lambda x: x[:, 1:].mT.unflatten(2, (14, 14))` for the tokens of a ViT, `lambda x: x.movedim(3, 1)` for Swin. A
target is a class index; a sequence of N of these; a function of the logits that returns scores, (N,) or one number; or
None: the class with the largest logit, for each image.

Nothing of yours changes: no `.grad`, `requires_grad`, mode, buffer or hook, also when something raises. It works on
frozen models, under `no_grad` and `inference_mode`; compiled models run uncompiled.
"""

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from course_utils.hooks.record import Layer, check_model, find_layer, shapes_in, why_never
from course_utils.root import CourseError
from course_utils.vision.relus import PartViews, find_relus, keep_positive

Target = int | Sequence[int] | Tensor | Callable[[Tensor], Tensor] | None
ReluRule = Literal["plain", "guided", "deconvnet"]
Reshape = Callable[[Tensor], Tensor] | None

_NOISY = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)  # where training mode spoils a map
_MOST_AT_ONCE = 32  # classes in one batched backward pass: it holds each gradient that many times


class Run(AbstractContextManager):
    """What `explain` keeps of one run: the logits, the output of `layer` ("" is the input), the graph between them."""

    def __init__(self, logits: Tensor, leaf: Tensor, layer: str, reshape: Reshape, relus: bool, views: Any) -> None:
        self.layer = layer
        self._logits, self._leaf, self._reshape = logits, leaf, reshape
        self._relus = find_relus(logits, leaf) if relus else None
        self._views = views  # the `PartViews` that the model ran with, or None
        self._open = True

    def part(self, layer: str = "", start: Tensor | None = None, end: Tensor | None = None) -> "Run":
        """Return a part of the run: from `start`, the output of `layer`, or up to `end`, in which targets then are.

        Both belong to the graph, as what `record(model, layer, detach=False)` keeps around `explain(model, images)`.
        """
        start = self._leaf if start is None else start
        end = self._logits if end is None else end
        return Run(end, start, layer, None, self._relus is not None, self._views)

    @property
    def logits(self) -> Tensor:
        """A copy of the logits, (N, classes)."""
        return self._logits.detach().clone()

    @property
    def activation(self) -> Tensor:
        """A copy of the layer's output, (N, K, h, w)."""
        return self._maps().clone()

    def gradient(self, target: Target = None, *, relu_rule: ReluRule = "plain") -> Tensor:
        """Return the gradient of the target's logit at the layer, (N, K, h, w).

        `relu_rule` says what a ReLU f = max(0, x) makes of a gradient R that comes back: "plain", R where f > 0;
        "guided", R where f > 0 and R > 0 (Springenberg et al. 2015, section 3.4); "deconvnet", R where R > 0 (Zeiler
        and Fergus 2014, section 2.1). The rule is a hook on the node of each ReLU or ReLU6 in the graph, whether a
        module made it or a function; all else, also `x.clamp(min=0)`, keeps its own gradient, and a warning counts
        such non-linearities. Raises `CourseError` for an unknown target, a rule without watched ReLUs or without any
        after the layer, and a gradient that is not finite.
        """
        return self.gradients([target], relu_rule=relu_rule)[0]

    def gradients(self, targets: Sequence[Target], *, relu_rule: ReluRule = "plain") -> Tensor:
        """Return the gradient for each of T targets, (T, N, K, h, w), in batched backward passes; see `gradient`."""
        if not self._open:
            raise CourseError("this run is closed, its graph is gone: ask inside the `with` block, or explain again")
        if relu_rule not in ("plain", "guided", "deconvnet"):
            raise CourseError(f'relu_rule is "plain", "guided" or "deconvnet", got {relu_rule!r}')
        if relu_rule != "plain" and self._relus is None:
            raise CourseError(f"the {relu_rule} rule needs a run that watched ReLUs: explain(..., watch_relus=True)")
        with torch.inference_mode(False), nullcontext() if relu_rule == "plain" else self._follow(relu_rule):
            gradients = self._go_backward([_weigh_logits(self._logits, each) for each in targets])
        if self._reshape:
            gradients = torch.stack([self._reshape(each) for each in gradients])
        if not math.isfinite(gradients.sum().item()) and not gradients.isfinite().all():  # the sum is quicker
            where = f"the gradient at {_say_place(self.layer)} has NaN or infinite values, the logits have no NaN"
            raise CourseError(f"{where}: an overflow in half precision, or a slope such as that of the root of 0?")
        return gradients

    def grad_cam(self, target: Target = None) -> Tensor:
        """Return the raw Grad-CAM map, (N, h, w): the layer's maps, weighted by the means of their gradients.

        Selvaraju et al. 2017, eq. 1 and 2, without the ReLU of eq. 2. Raises `CourseError` as `gradient` does.
        """
        return self.grad_cams([target])[0]

    def grad_cams(self, targets: Sequence[Target]) -> Tensor:
        """Return the raw Grad-CAM map for each of T targets, (T, N, h, w), in batched backward passes."""
        if not self.layer:
            raise CourseError("Grad-CAM needs a layer: explain(model, images, layer), often the last convolution")
        with torch.inference_mode(False):
            return (self.gradients(targets).mean((-2, -1), keepdim=True) * self._maps()).sum(2)

    def _maps(self) -> Tensor:
        return self._reshape(self._leaf.detach()) if self._reshape else self._leaf.detach()

    def __exit__(self, *raised: object) -> None:
        self._logits, self._open = self._logits.detach(), False  # frees the graph

    @contextmanager
    def _follow(self, rule: ReluRule) -> Iterator[None]:
        """Backward passes in the block follow the rule: a hook before each ReLU's node, or after it, in its place."""
        nodes, others = self._relus.nodes, self._relus.others
        if not nodes:
            place = _say_place(self.layer)
            raise CourseError(
                f"no ReLU lies between {place} and the logits, the {rule} rule is idle: nn.ReLU, nn.ReLU6 and the "
                "functions relu, relu_ and relu6 count; x.clamp(min=0), GELU or SiLU do not, and a checkpoint with "
                "use_reentrant=True hides what is in it"
            )
        if others:
            kinds = ", ".join(f"{count} of kind {kind}" for kind, count in sorted(others.items()))
            words = f"the {rule} rule changes {len(nodes)} ReLUs and leaves other non-linearities as they are: {kinds}"
            warnings.warn(words, stacklevel=6)
        with self._views or nullcontext(), ExitStack() as hooks:  # a checkpoint runs its part of the network again
            for node in nodes:
                register = node.register_prehook if rule == "guided" else node.register_hook
                hooks.enter_context(register(keep_positive))
            yield

    def _go_backward(self, rows: list[Tensor]) -> Tensor:
        """Return the vector-Jacobian products of T rows of the logits' shape, (T, N, K, h, w)."""

        def pull_back(outputs: Tensor, row: Tensor | None = None) -> Tensor | None:
            return torch.autograd.grad(outputs, self._leaf, row, retain_graph=True, allow_unused=True)[0]

        if len(rows) > 2:  # a batch of two is no faster than one after the other
            with suppress(RuntimeError, ValueError):  # what cannot be batched, or one of the reasons below
                batched = torch.vmap(lambda row: pull_back(self._logits, row), chunk_size=_MOST_AT_ONCE)
                return batched(torch.stack(rows))
        try:
            # The product has the gradient `row`; given as it is, torch 2.15 would import sympy first (0.5 s).
            gradients = [pull_back((self._logits * row).sum()) for row in rows]
        except RuntimeError as error:
            if "modified by an inplace operation" not in str(error):
                raise
            where = "weights after the run (explain again), or a value inside the model"
            raise CourseError(f"what the backward pass needs was changed in place: {where}") from error
        if gradients[0] is None:
            raise _independent(self.layer)
        return torch.stack(gradients) if len(gradients) > 1 else gradients[0][None]


def explain(
    model: nn.Module, images: Tensor, layer: Layer | None = None, *, watch_relus: bool = False, reshape: Reshape = None
) -> Run:
    """Run the network once and keep what explanations need; at the end of a `with` block the graph is freed.

    There is no graph before `layer` (a dotted name or a module; None is the input itself): its output becomes a leaf,
    and each class then costs one backward pass from the logits to it. `watch_relus=True` is for the rules of
    `Run.gradient`. A model whose `forward` turns gradients off around the layer runs a second time, with gradients on.

    Warns of batch-norm and dropout in training mode: a map then depends on the other images, or on chance. Raises
    `CourseError` for images that are not (N, C, H, W) and floating; a layer that is not there, never ran, ran several
    times, or has no positions (N, K, h, w); an output that is not one tensor with a row for each image, that has NaN,
    or that does not depend on the layer.
    """
    with _undisturbed():
        runner = _Runner(model, images, layer, reshape)
        # The second attempt has a graph before the layer too, for a forward that turns gradients off around the layer.
        for graph_before in [True] if layer is None else [False, True]:
            run = runner.run(watch_relus, graph_before)
            if run and run._relus and run._relus.may_hide:
                run = runner.run(watch_relus, graph_before, PartViews())  # not at once, for it costs up to 6 %
            if run:
                return run
    raise _independent(runner.name)


@contextmanager
def _undisturbed() -> Iterator[None]:
    compiler = "torch._dynamo" in sys.modules  # else nothing is compiled, and importing it would take seconds
    eager = torch.compiler.set_stance("force_eager") if compiler else nullcontext()  # compiled code skips the hook
    with torch.inference_mode(False), torch.no_grad(), eager:
        yield


class _Runner:
    """A model that can be run on images, from a layer on with a graph. What it is given and returns is checked."""

    def __init__(self, model: nn.Module, images: Tensor, layer: Layer | None = None, reshape: Reshape = None) -> None:
        modules, tensors = check_model(model, gradients=True)
        _check_images(images)
        self.model, self.images, self.reshape = model, images, reshape
        self.name, self.module = ("", None) if layer is None else find_layer(model, layer)
        self.stand_ins = self.make_stand_ins(modules, tensors)

    def make_stand_ins(self, modules: list[nn.Module], tensors: list[Tensor]) -> dict[str, Tensor]:
        """Copies of tensors that a run must not use: made in inference mode (no graph) or updated in training mode."""
        noisy = [module for module in modules if module.training and isinstance(module, _NOISY)]
        if not noisy and not any(tensor.is_inference() for tensor in tensors):
            return {}
        if noisy:
            name = next(name for name, module in self.model.named_modules() if module is noisy[0])
            title = f"{type(noisy[0]).__name__} {name!r} of {type(self.model).__name__}"
            danger = "maps depend on chance or on the other images of the batch. Call model.eval() first."
            warnings.warn(f"{title} is in training mode: {danger}", stacklevel=5)
        used = dict(self.model.named_buffers())
        used |= {name: each for name, each in self.model.named_parameters() if each.is_inference()}
        return {name: tensor.detach().clone() for name, tensor in used.items()}

    def call(self, images: Tensor) -> Any:
        images = images.clone()  # the model may change its input in place
        if self.stand_ins:
            return torch.func.functional_call(self.model, self.stand_ins, (images,))
        return self.model(images)

    def run(self, watch_relus: bool, graph_before: bool, views: PartViews | None = None) -> Run | None:
        """Run the model and keep the graph from the layer on; None where the logits do not depend on it."""
        with views or nullcontext(), torch.set_grad_enabled(graph_before):
            if self.module is None:
                leaf = self.images.detach().clone().requires_grad_()
                logits = self.call(leaf)
            else:
                logits, leaf = self.call_from_layer()
        self.check_logits(logits)
        return Run(logits, leaf, self.name, self.reshape, watch_relus, views) if logits.requires_grad else None

    def call_from_layer(self) -> tuple[Any, Tensor]:
        leaves: list[Tensor] = []

        def start_graph(_: nn.Module, args: tuple[Any, ...], output: Any) -> Tensor:
            self.check_maps(output)
            leaves.append(output.detach().clone().requires_grad_())  # a clone: an earlier tensor may share its memory
            torch.set_grad_enabled(True)  # until the surrounding block ends
            return leaves[-1].clone()  # a clone: an in-place operation that follows must not spoil the leaf

        with self.module.register_forward_hook(start_graph):
            logits = self.call(self.images)
        if not leaves:
            raise CourseError(f"layer {self.name!r} never ran when the model was called: {why_never(self.module)}")
        if len(leaves) > 1:
            times = f"ran {len(leaves)} times in one call of the model"
            raise CourseError(f"layer {self.name!r} {times}: choose another one")
        return logits, leaves[0]

    def check_maps(self, output: Any) -> None:
        is_tensor = isinstance(output, Tensor) and output.is_floating_point()
        maps = self.reshape(output.detach()) if self.reshape and is_tensor else output
        count = len(self.images)
        if not is_tensor or not isinstance(maps, Tensor) or maps.dim() != 4 or len(maps) != count:
            way = "returns" if maps is output else "is reshaped to"
            wanted = f"one floating-point tensor ({count}, K, h, w){self.suggest_layer(output)}"
            raise CourseError(f"layer {self.name!r} {way} {shapes_in(maps)}: a map needs positions, {wanted}")
        if not self.reshape and self.channels_come_last(maps):
            fix = "the channels seem to come last: say reshape=lambda x: x.movedim(3, 1), or lambda x: x if they do not"
            given = f"layer {self.name!r} returns {shapes_in(maps)}, for images {shapes_in(self.images)}"
            raise CourseError(f"{given}: {fix}")

    def suggest_layer(self, output: Any) -> str:
        """Say what to do about an output that is no maps, as the end of a sentence."""
        if isinstance(output, Tensor) and output.is_floating_point() and output.dim() == 3 and not self.reshape:
            side = math.isqrt(output.shape[1])
            form = f"x[:, {output.shape[1] - side**2}:].mT.unflatten(2, ({side}, {side}))"
            return f"; if it is tokens (N, L, C), say how to make maps of them, perhaps reshape=lambda x: {form}"
        convolutions = [name for name, layer in self.model.named_modules() if isinstance(layer, nn.Conv2d)]
        return f"; the last convolution is {convolutions[-1]!r}" if convolutions else ""

    def channels_come_last(self, maps: Tensor) -> bool:
        """Whether maps have the proportions of the images as (N, h, w, K), and not at all as (N, K, h, w)."""
        wide = self.images.shape[3] / self.images.shape[2]
        odd, odd_if_last = (abs(math.log(wide * maps.shape[n] / maps.shape[n + 1])) for n in (2, 1))
        return odd > 0.2 and odd_if_last < 0.05

    def check_logits(self, logits: Any) -> None:
        title, count = type(self.model).__name__, len(self.images)
        if not isinstance(logits, Tensor) or not logits.is_floating_point() or logits.shape[:1] != (count,):
            raise CourseError(
                f"{title} returned {type(logits).__name__} {shapes_in(logits)}, expected one floating-point tensor of "
                f"logits ({count}, classes): call model.eval() if this is what it returns in training, or wrap it in a "
                "module that returns the logits"
            )
        if math.isnan(logits.sum().item()) and logits.isnan().any():
            tensors = {"images": self.images, **dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
            bad = next((repr(name) for name, tensor in tensors.items() if not tensor.isfinite().all()), "none")
            raise CourseError(f"the logits of {title} have NaN values; NaN or infinite before the run: {bad}")


def input_gradient(model: nn.Module, images: Tensor, target: Target = None) -> Tensor:
    """Return the gradient of the target's logit at the images, (N, C, H, W): Simonyan et al. 2014, section 3.

    Raises `CourseError` as `explain` and `Run.gradient` do; so do the functions below.
    """
    with explain(model, images) as run:
        return run.gradient(target)


def guided_backprop(model: nn.Module, images: Tensor, target: Target = None) -> Tensor:
    """Return the Guided Backprop gradient at the images, (N, C, H, W): see `Run.gradient`. Needs a ReLU somewhere."""
    with explain(model, images, watch_relus=True) as run:
        return run.gradient(target, relu_rule="guided")


def grad_cam(
    model: nn.Module, images: Tensor, layer: Layer, target: Target = None, *, reshape: Reshape = None
) -> Tensor:
    """Return the raw Grad-CAM map at `layer`, (N, h, w), before the ReLU: see `Run.grad_cam`."""
    with explain(model, images, layer, reshape=reshape) as run:
        return run.grad_cam(target)


def guided_grad_cam(model: nn.Module, images: Tensor, layer: Layer, target: Target = None) -> Tensor:
    """Return Guided Backprop times the upsampled positive part of Grad-CAM, (N, C, H, W): Selvaraju et al., 3.2."""
    with torch.inference_mode(False), explain(model, images, layer) as run:
        heat = upsample(relu(run.grad_cam(target)), images.shape[-2:])
        target = run.logits.argmax(1) if target is None else target
        return guided_backprop(model, images, target) * heat[:, None]


def cam(model: nn.Module, images: Tensor, target: Target = None) -> Tensor:
    """Return the class activation map, (N, h, w), raw: Zhou et al. 2016, eq. 2. See `class_maps` for the models.

    Its mean over all positions is the target's logit, without the bias. A function as target is taken as linear, with
    the slope that it has at the logits.
    """
    logits, weights, maps = _find_head(model, images)
    with torch.inference_mode(False):
        return torch.einsum("nk,nkhw->nhw", _weigh_logits(logits, target) @ weights, maps)


def class_maps(model: nn.Module, images: Tensor) -> Tensor:
    """Return the class activation maps of all classes, (N, classes, h, w): the linear head, at every position.

    The model must average its last maps over all positions (a module or a function) and hand the means to one linear
    layer that returns the logits, or return the means themselves, as SqueezeNet does. This is checked on the values of
    the run. Raises `CourseError` for any other model, and as `explain` does.
    """
    _, weights, maps = _find_head(model, images)
    with torch.inference_mode(False):
        return torch.einsum("ck,nkhw->nchw", weights, maps)


class _WatchHead(TorchFunctionMode):
    """While active, notes each call that makes one value of each map (N, K, h, w), and each linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.poolings, self.linears = [], []  # (maps, pooled); (input, weight, output)

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        output = func(*args, **(kwargs or {}))
        given = dict(zip(("input", "weight"), args, strict=False)) | (kwargs or {})
        x = given.get("input")
        is_maps = isinstance(x, Tensor) and x.dim() == 4 and x.shape[2:].numel() > 1
        if func is F.linear:
            self.linears.append((x, given["weight"], output))
        elif is_maps and isinstance(output, Tensor) and output.shape in (x.shape[:2], (*x.shape[:2], 1, 1)):
            self.poolings.append((x, output))
        return output


def _find_head(model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits, the weights of the linear head (classes, K), and the maps that it reads the means of."""
    with _undisturbed():
        runner = _Runner(model, images)
        with _WatchHead() as head:
            logits = runner.call(images.detach())
        runner.check_logits(logits)
        linears = [(x, weight) for x, weight, output in head.linears if torch.equal(output, logits)]
        identity = torch.eye(logits.shape[-1], dtype=logits.dtype, device=logits.device)  # perhaps the means are logits
        means, weights = linears[-1] if linears else (logits, identity)
        for maps, pooled in head.poolings:
            exact, size = maps.double().mean((2, 3)), maps.double().abs().mean((2, 3))
            rounding = 32 * torch.finfo(means.dtype).eps * size
            if torch.equal(pooled.flatten(1), means) and ((exact - means).abs() <= rounding).all():
                return logits.detach(), weights.detach().clone(), maps.detach()
    reads = "it ends otherwise" if means is logits else f"its last layer reads {tuple(means.shape)}, no means of maps"
    raise CourseError(
        "CAM needs a model that averages its last maps over all of two or more positions and hands the means to one "
        f"linear layer that returns the logits; {type(model).__name__} does not ({reads}). Use grad_cam."
    )


def _weigh_logits(logits: Tensor, target: Target) -> Tensor:
    """Return the gradient of the target's score at the logits, of their shape: one-hot rows for classes."""
    if callable(target):
        return _find_slopes(logits, target)
    if logits.dim() != 2:
        given = f"a class needs logits (N, classes), the model returned {tuple(logits.shape)}"
        raise CourseError(f"{given}: give a function of them, such as lambda logits: logits[:, 3].mean((1, 2))")
    rows = torch.zeros_like(logits)
    if type(target) is int and 0 <= target < logits.shape[1]:  # the usual one, quickly
        rows.select(1, target).fill_(1)
        return rows
    return rows.scatter_(1, _read_classes(logits, target).expand(len(logits))[:, None], 1)


def _find_slopes(logits: Tensor, target: Callable[[Tensor], Tensor]) -> Tensor:
    with torch.enable_grad():
        leaf = logits.detach().clone().requires_grad_()
        scores = target(leaf.clone())  # a clone: the function may change it in place
        if not isinstance(scores, Tensor) or scores.shape not in ((), leaf.shape[:1]) or not scores.requires_grad:
            wanted = f"a score for each image, shape ({len(leaf)},), or one number, computed from the logits"
            raise CourseError(f"a target function returns {wanted} with PyTorch; got {shapes_in(scores)}")
        return torch.autograd.grad(scores.sum(), leaf)[0]


def _read_classes(logits: Tensor, target: int | Sequence[int] | Tensor | None) -> Tensor:
    """Return the classes that a target names, int64: (N,), or one for all images, ()."""
    try:
        classes = logits.argmax(1) if target is None else torch.as_tensor(target, device=logits.device)
    except (TypeError, ValueError, RuntimeError):
        classes = torch.empty(())
    if classes.dtype is torch.bool or classes.is_floating_point() or classes.is_complex():
        wanted = "a class index, a sequence with one for each image, a function of the logits or None"
        raise TypeError(f"a target is {wanted}; got {type(target).__name__} {target!r}")
    if classes.dim() and classes.shape != logits.shape[:1]:
        given = f"got {len(classes)} targets for a batch of {len(logits)}: a sequence has one for each image"
        raise CourseError(f"{given}; for several classes of the same images use .grad_cams([...]) of explain(...)")
    last = logits.shape[1] - 1
    if outside := [each for each in classes.reshape(-1).tolist() if not 0 <= each <= last]:
        raise CourseError(f"class {outside[0]} is out of range: the model has {last + 1} classes, 0 to {last}")
    return classes.long()


def _say_place(layer: str) -> str:
    return f"layer {layer!r}" if layer else "the input"


def _independent(layer: str) -> CourseError:
    way = "it is not on the way to them (an auxiliary head?), or the model cuts the graph after it"
    cuts = "(.detach(), .data, torch.no_grad(), torch.inference_mode(), NumPy)"
    return CourseError(f"the logits do not depend on {_say_place(layer)}: {way} {cuts}")


def _check_images(images: Tensor) -> None:
    if not isinstance(images, Tensor) or images.dim() != 4 or not images.numel() or not images.is_floating_point():
        given = f"{tuple(images.shape)} {images.dtype}" if isinstance(images, Tensor) else type(images).__name__
        fix = ": images[None] adds the batch dimension" if getattr(images, "ndim", 4) == 3 else ""
        raise CourseError(f"images are floating-point numbers (N, C, H, W), at least one of them; got {given}{fix}")


def relu(maps: Tensor) -> Tensor:
    """Keep what speaks for the target: negative values become 0; any shape (Selvaraju et al. 2017, eq. 2)."""
    return maps.relu()


def upsample(maps: Tensor, size: Sequence[int]) -> Tensor:
    """Resize maps (..., h, w) to (..., *size): bilinear, `align_corners=False`; same dtype and device."""
    flat = maps.reshape(-1, 1, *maps.shape[-2:])
    return F.interpolate(flat, tuple(size), mode="bilinear", align_corners=False).reshape(*maps.shape[:-2], *size)


def scale_to_unit(maps: Tensor, dims: int = 2) -> Tensor:
    """Stretch each map (..., h, w) to [0, 1], a constant one to 0; `dims=3` does so to gradients (..., C, H, W)."""
    last = tuple(range(-dims, 0))
    low, high = maps.amin(last, keepdim=True), maps.amax(last, keepdim=True)
    return (maps - low) / (high - low).where(high > low, 1)


def standardise(gradients: Tensor) -> Tensor:
    """Bring each gradient (..., C, H, W) to mean 0.5 and standard deviation 0.1, cut to [0, 1]; a constant is all 0.5.

    The usual picture of Guided Backprop. It hides the scale: a gradient a thousand times weaker looks the same.
    """
    each = {"dim": (-3, -2, -1), "keepdim": True}
    varies = gradients.amax(**each) > gradients.amin(**each)  # the deviation of many 0.1 is not exactly 0
    centred = (gradients - gradients.mean(**each)).where(varies, 0)
    return (centred / gradients.std(**each).where(varies, 1) * 0.1 + 0.5).clamp(0, 1)
