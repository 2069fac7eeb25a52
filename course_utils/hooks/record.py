"""Record what layers compute and which gradients reach them.

    with record(model, "features.0", nn.Linear, gradients=True) as seen:
        model(x).sum().backward()
    seen["features.0"].output       # what the layer returned: a detached clone
    seen["features.0"].gradient     # the gradient of that output, same shape

    with record(model, "features.0", edit={"features.0": torch.zeros_like}):     # the layer hands zeros on
        model(x)

Odd modules: one that runs several times has one `Call` each. One with two names has one record, reachable under both.
Nested outputs (tuples, dicts, dataclasses, …) are recorded in the same structure. What an in-place operation changes
afterwards is recorded as it was before. The gradient of a layer that returns its very input (`nn.Identity`, dropout in
eval mode) is that of the tensor, all its uses together.
"""

import copy
import dataclasses
import functools
import gc
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.root import CourseError, nearest

Layer = str | nn.Module | type[nn.Module]

_SKIPPED = "it never ran, or it ran in code compiled before the block, which does not see hooks added later; "
_SKIPPED += "call the model itself and not the compiled one, or call torch.compiler.reset() first"


def find_layers(model: nn.Module, *layers: Layer) -> dict[str, nn.Module]:
    """Return the chosen layers of `model` by their first dotted name, in the model's own order.

    A layer is a dotted name (`"features.0"`; `""` is the model itself), a module of the model, or a type (`nn.Conv2d`),
    which chooses every module of that type or a subclass. For a model from `torch.compile`, names count from the model
    inside. Raises `CourseError` for a name, module or type that the model lacks, with what it has instead.
    """
    check_model(model)
    model = uncompiled(model)
    named = dict(model.named_modules(remove_duplicate=False))
    chosen = {id(module) for layer in layers for module in _matches(type(model).__name__, named, layer)}
    return {name: module for name, module in model.named_modules() if id(module) in chosen}


def find_layer(model: nn.Module, layer: Layer) -> tuple[str, nn.Module]:
    """Return the name, as it was given or the first one, and the module of one layer; see `find_layers`.

    Raises `CourseError` as well for a type that chooses several layers.
    """
    if isinstance(layer, str):
        with suppress(AttributeError):  # the quick way; a name inside a compiled model, and an error, take the other
            return layer, model.get_submodule(layer)
    found = list(find_layers(model, layer).items())
    if len(found) > 1:
        raise CourseError(f"{layer.__name__} chooses {len(found)} layers: name one of them, such as {found[-1][0]!r}")
    return found[0]


def _matches(title: str, named: dict[str, nn.Module], layer: Layer) -> list[nn.Module]:
    if isinstance(layer, str):
        name = layer.removeprefix("_orig_mod.")
        if name in named:
            return [named[name]]
        raise CourseError(f"layer {layer!r} is not in {title}{_list_what_is_near(name, named)}")
    if isinstance(layer, nn.Module):
        if found := [module for module in named.values() if module is uncompiled(layer)]:
            return found
        kind = type(layer).__name__
        same = join_names([name for name, module in named.items() if type(module) is type(layer)]) or "none"
        fix = "Give a module of this very model (a copy is another module), or its dotted name."
        raise CourseError(f"the {kind} you gave is not a module of {title}; its {kind} layers are {same}. {fix}")
    if isinstance(layer, type) and issubclass(layer, nn.Module):
        if found := [module for module in named.values() if isinstance(module, layer)]:
            return found
        types = sorted({type(module).__name__ for module in named.values()})
        raise CourseError(f"{title} has no {layer.__name__}; its modules are of type {join_names(types)}")
    got = f"{type(layer).__name__} {layer!r}"
    raise TypeError(f"a layer is a dotted name, a module or a module type such as nn.Conv2d; got {got}")


def _list_what_is_near(name: str, named: dict[str, nn.Module]) -> str:
    names = nearest(name, filter(None, named))
    near = f" (nearest: {', '.join(names)})" if names else ""
    parent = name
    while parent not in named:
        parent = parent.rpartition(".")[0]
    where = repr(parent) if parent else "the model"
    children = [f"{parent}.{child}".strip(".") for child in named[parent]._modules]
    return f"{near}; {where} has {join_names(children) or 'no layers inside'}"


def join_names(names: Sequence[str], most: int = 12) -> str:
    """Return the names in a row, of a long list the first ones and how many there are."""
    shown = ", ".join(name or '"" (the model)' for name in names[:most])
    return shown if len(names) <= most else f"{shown}, … ({len(names)} in all)"


def check_model(model: nn.Module, gradients: bool = False) -> tuple[list[nn.Module], list[Tensor]]:
    """Return the modules of the model, itself first, and their tensors, shared ones perhaps twice; quick, not by name.

    Raises `CourseError` for what no hook can look into; with `gradients`, also for what has none, or no values.
    """
    if not isinstance(model, nn.Module):
        fix = "; give the module that was exported" if hasattr(model, "graph_signature") else ""
        raise CourseError(f"a model is an nn.Module, got {type(model).__name__}{fix}")
    modules, tables = [model], []
    for module in modules:  # the list grows on the way; `model.modules()` takes twice as long
        modules += [child for child in module._modules.values() if child is not None]
        tables += module._parameters, module._buffers
    tensors = [tensor for table in tables for tensor in table.values() if tensor is not None]
    for kind in {*map(type, modules)}:
        if issubclass(kind, torch.jit.ScriptModule):
            raise CourseError(f"{kind.__name__} is TorchScript, where no hook runs: give what was scripted or traced")
        if gradients and ".quantized" in kind.__module__ and not kind.__name__.endswith("FloatFunctional"):
            raise CourseError(f"a layer {kind.__name__} is quantised and has no gradients: give the model in float")
    if gradients and any(tensor.is_meta for tensor in tensors):
        raise CourseError("a model on the meta device has shapes and no values: load its weights first")
    return modules, tensors


def why_never(module: nn.Module) -> str:
    """Say why a layer perhaps did not run when its model was called, as the rest of a sentence."""
    if type(module) is nn.Module:
        return "the model comes from torch.export, whose layers only keep weights: give the module that was exported"
    return (
        "its forward leaves it out (a head for training only?), uses its weights without calling it (as "
        "nn.MultiheadAttention does its out_proj), calls its .forward, which skips hooks, or was compiled before"
    )


def uncompiled(model: nn.Module) -> nn.Module:
    """Return the module that `torch.compile` wrapped; any other module as it is."""
    return model._orig_mod if "_orig_mod" in model._modules else model


def map_tensors(change: Callable[[Tensor], Any], value: Any, other: Callable[[Any], Any] = lambda leaf: leaf) -> Any:
    """Return `value` with `change(tensor)` in the place of each tensor and `other(leaf)` in that of any other leaf.

    Tuples, named tuples, lists, dicts and dataclasses are rebuilt with their own type; everything else is a leaf.
    """
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        items = [map_tensors(change, item, other) for item in value]
        return type(value)._make(items) if hasattr(value, "_make") else type(value)(items)
    if isinstance(value, MutableMapping):
        twin = copy.copy(value)  # keeps what a subclass knows besides its items
        for key, item in value.items():
            twin[key] = map_tensors(change, item, other)
        return twin
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        twin = copy.copy(value)  # not `dataclasses.replace`: it would run __post_init__ again
        for field in dataclasses.fields(value):
            object.__setattr__(twin, field.name, map_tensors(change, getattr(value, field.name), other))
        return twin
    return other(value)


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors in a nested structure, in the order in which `map_tensors` meets them."""
    found: list[Tensor] = []
    map_tensors(found.append, value)
    return found


def shapes_in(value: Any) -> Any:
    """Return `value` with the shape of each tensor, as a tuple, in its place, and the type's name for other leaves."""
    return map_tensors(lambda t: tuple(t.shape), value, lambda leaf: None if leaf is None else type(leaf).__name__)


def graph_of(roots: Any) -> set[Any]:
    """Return the nodes of the graph that a backward pass from these tensors or edges would go through."""
    new = {_node_of(root) for root in roots} - {None}
    nodes: set[Any] = set()
    while new:
        nodes |= new
        new = {parent for node in new for parent, _ in node.next_functions} - nodes - {None}
    return nodes


def _node_of(root: Any) -> Any:
    if not isinstance(root, Tensor):
        return root.node  # an edge
    return torch.autograd.graph.get_gradient_edge(root).node if root.requires_grad else None


def _copy_detached(tensor: Tensor) -> Tensor:
    with torch.inference_mode(False):  # so that the copy is a normal tensor, which may be used in a graph later
        return tensor.detach().clone()


def watch_gradient(stack: ExitStack, tensor: Tensor, receive: Callable[[Tensor], None]) -> None:
    """Call `receive(gradient)` when the gradient of `tensor`, with the value it has now, is computed.

    A Tensor hook stays with its value when an in-place operation follows, except on a view: then PyTorch rewrites the
    history of the base, and only a hook on the base sees the gradient.
    """
    base, window = tensor._base, None
    if base is not None and base.requires_grad and 0 not in (*tensor.stride(), *base.stride()):  # 0: expanded, safe
        window = tensor.detach()  # shares memory and version counter with the view, and keeps no graph
        version, size, stride = window._version, base.size(), base.stride()
        view = window.size(), window.stride(), window.storage_offset() - base.storage_offset()

    def from_tensor(gradient: Tensor) -> None:
        if window is None or window._version == version:
            receive(gradient)

    def from_base(gradient: Tensor) -> None:
        if window._version != version:
            receive(gradient.new_empty_strided(size, stride).copy_(gradient).as_strided(*view))

    stack.enter_context(tensor.register_hook(from_tensor))
    if window is not None:
        stack.enter_context(base.register_hook(from_base))


def why_no_gradient(output: Any) -> str:
    """Say why no gradient can reach `output`, or has reached it so far, as the rest of a sentence."""
    if torch.is_inference_mode_enabled():
        return "it ran under torch.inference_mode(), which builds no graph"
    if not torch.is_grad_enabled():
        return "it ran under torch.no_grad(), which builds no graph"
    if not (tensors := tensors_in(output)):
        return "its output holds no tensor"
    if any(tensor.requires_grad for tensor in tensors):
        return "no backward pass reached it inside the block; call .backward() there, on a value computed from it"
    return "nothing before it requires a gradient (frozen parameters?); give the model x.requires_grad_() as its input"


class Call:
    """One run of one layer: `layer` (its first name), `output`, `input`, and `gradient`, the gradient of the output."""

    def __init__(self, layer: str, output: Any, obstacle: str, given: tuple[Any, ...]) -> None:
        self.layer = layer
        self.output = output
        self._input = given
        self._obstacle = obstacle  # why there is no gradient (yet), as the rest of a sentence
        self._gradients: list[Tensor | None] = [None] * len(tensors_in(output))

    @property
    def input(self) -> Any:
        """What the layer was given: one argument as it is, several as a tuple, a dict of those by name at its end."""
        if not self._input:
            raise CourseError(f"layer {self.layer!r} has no input: record(..., inputs=True) records what it was given")
        return self._input if len(self._input) > 1 else self._input[0]

    @property
    def has_gradient(self) -> bool:
        """Whether a gradient reached any tensor of the output."""
        return any(gradient is not None for gradient in self._gradients)

    @property
    def gradient(self) -> Any:
        """The gradient, in the structure of `output` (None beside what got none); several backward passes add up."""
        if not self.has_gradient:
            raise CourseError(f"layer {self.layer!r} has no gradient: {self._obstacle}")
        gradients = iter(self._gradients)
        return map_tensors(lambda _: next(gradients), self.output, lambda _: None)

    def _describe(self) -> str:
        return f"output {shapes_in(self.output)}" + (", with its gradient" if self.has_gradient else "")

    def __repr__(self) -> str:
        return f"{self.layer}: {self._describe()}"


class LayerRecord:
    """What one layer did inside a `record` block: its `calls`, in order.

    `output`, `input` and `gradient` are those of its only call: they raise `CourseError` unless it ran exactly once.
    """

    output = property(attrgetter("_only_call.output"), doc="The output of the only call.")
    input = property(attrgetter("_only_call.input"), doc="The input of the only call; see `Call.input`.")
    gradient = property(attrgetter("_only_call.gradient"), doc="The gradient of the output of the only call, if any.")

    def __init__(self, name: str, module: nn.Module) -> None:
        self._name = name
        self.calls: list[Call] = []
        mend = f"Call the model (not `model.forward`) in it. Or {why_never(module)}"
        self._obstacle = f"it never ran in this block. {mend}"

    @property
    def outputs(self) -> list[Any]:
        """The output of each call; an empty list when the layer never ran."""
        return [call.output for call in self.calls]

    @property
    def _only_call(self) -> Call:
        if not self.calls:
            raise CourseError(f"layer {self._name!r} has no output: {self._obstacle}")
        if len(self.calls) > 1:
            raise CourseError(f"layer {self._name!r} ran {len(self.calls)} times in this block: choose one of `.calls`")
        return self.calls[0]

    def __repr__(self) -> str:
        ran = "ran once" if len(self.calls) == 1 else f"ran {len(self.calls)} times"
        return "; ".join([f"{self._name or 'the model'}: {ran}", *(call._describe() for call in self.calls)])


class Recording(dict[str, LayerRecord]):
    """The records of a `record` block by first name, in model order; another name and the module are an index as well.

    `calls` lists the calls of all recorded layers in the order in which they returned.
    """

    def __init__(self, model: nn.Module, modules: Mapping[str, nn.Module]) -> None:
        super().__init__({name: LayerRecord(name, module) for name, module in modules.items()})
        self.calls: list[Call] = []
        self._model, self._open = model, True

    def __missing__(self, layer: Layer) -> LayerRecord:
        found = list(find_layers(self._model, layer))
        if len(found) == 1 and found[0] in self:
            return self[found[0]]
        words = f"layer {join_names(found)} was not recorded; recorded: {join_names(list(self))}"
        raise CourseError(f"{words}. Index with a name or a module, or loop over .items().")

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.values()))


class _Reached(Exception):
    """Ends a run of the model when all layers of the recording in it have run."""


@contextmanager
def record(
    model: nn.Module,
    *layers: Layer,
    gradients: bool = False,
    detach: bool = True,
    inputs: bool = False,
    stop: bool = False,
    edit: Mapping[Layer, Callable[[Any], Any]] | None = None,
) -> Iterator[Recording]:
    """Record the outputs of `layers`, and with `gradients=True` their gradients, while the block runs.

    Recorded tensors are detached clones, with the layer's shape and dtype. The model's outputs, gradients, modes and
    `requires_grad` are what they would be without recording; it works under `no_grad`, `inference_mode` and on frozen
    models. (`nn.TransformerEncoderLayer` leaves its fused path in eval mode when it sees hooks.)

    With `detach=False`, what is recorded belongs to the graph: `torch.autograd.grad(y, seen[name].output)` works. The
    layer then hands a clone on: an in-place operation on it no longer reaches tensors that shared its memory.

    inputs: record as well what each layer is given, before it runs. stop: the model stops, and with it the block, as
    soon as every layer has run. edit: functions of the outputs of layers, which are recorded too; what a function
    returns (not None) is recorded and goes on in the output's place.

    A backward pass must run inside the block. Raises `CourseError` for an unknown layer (see `find_layers`) and without
    layers. Warns at the end when a layer of a model that was compiled, in whichever way, never ran.
    """
    if not layers and not edit:
        raise CourseError("record(model, ...) needs a layer: a dotted name, a module or a type such as nn.Conv2d")
    edits = {name: change for layer, change in (edit or {}).items() for name in find_layers(model, layer)}
    modules = find_layers(model, *layers, *edits)
    seen = Recording(model, modules)
    with ExitStack() as stack:
        stack.callback(setattr, seen, "_open", False)
        for name, module in modules.items():
            hooks = _LayerHooks(seen, name, edits.get(name), gradients, detach, stop, stack)
            if inputs:
                keep_input = _uncompiled_hook(hooks.keep_input)
                stack.enter_context(module.register_forward_pre_hook(keep_input, with_kwargs=True))
            stack.enter_context(module.register_forward_hook(_uncompiled_hook(hooks.keep_output)))
        try:
            yield seen
        except _Reached as reached:
            if reached.args[0] is not seen:
                raise
    _tell_skipped(model, seen)


@dataclasses.dataclass(eq=False)
class _LayerHooks:
    """The hooks of a `record` block on one layer: they keep in `seen` what it does, until the block ends."""

    seen: Recording
    name: str
    change: Callable[[Any], Any] | None  # edits what the layer returns
    gradients: bool
    detach: bool
    stop: bool
    stack: ExitStack
    given: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)  # to calls that run now, the innermost last

    def __deepcopy__(self, memo: dict) -> "_LayerHooks":
        return self  # so that also on a copy of the model, made inside the block, they do nothing later

    def keep_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.seen._open:
            self.given.append(map_tensors(_copy_detached, (*args, kwargs) if kwargs else args))

    def keep_output(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if not self.seen._open:
            return None
        edited = self.change(output) if self.change else None
        output = output if edited is None else edited
        kept = map_tensors(_copy_detached if self.detach else torch.clone, output)
        obstacle = why_no_gradient(output) if self.gradients else "record(..., gradients=True) records them"
        call = Call(self.name, kept, obstacle, self.given.pop() if self.given else ())
        self.seen[self.name].calls.append(call)
        self.seen.calls.append(call)
        for place, tensor in enumerate(tensors_in(output if self.detach else kept)):
            if self.gradients and tensor.requires_grad:
                watch_gradient(self.stack, tensor, functools.partial(self.keep_gradient, call, place))
        if self.stop and all(layer.calls for layer in self.seen.values()):
            raise _Reached(self.seen)
        return output if self.detach else map_tensors(torch.clone, kept)

    def keep_gradient(self, call: Call, place: int, gradient: Tensor) -> None:
        gradient = _copy_detached(gradient) if self.detach else gradient
        before = call._gradients[place]
        call._gradients[place] = gradient if before is None else before + gradient


def _tell_skipped(model: nn.Module, seen: Recording) -> None:
    """Warn of the layers that never ran and are inside a compiled part, which does not see the hooks of the block."""
    silent = [name for name, layer in seen.items() if not layer.calls]
    parts = _compiled_parts(model) if silent else []
    skipped = [name for name in silent if any(part in ("", name) or name.startswith(f"{part}.") for part in parts)]
    for name in skipped:
        seen[name]._obstacle = _SKIPPED
    if skipped:
        warnings.warn(f"nothing was recorded for {join_names(skipped)}: {_SKIPPED}", stacklevel=4)


def _compiled_parts(model: nn.Module) -> list[str]:
    """Return the names of the modules of `model` that are compiled: in place, or with a wrapper in or around it."""
    if not (dynamo := sys.modules.get("torch._dynamo")):
        return []
    # A module does not know its wrapper, so look for wrappers among all objects.
    wrappers = [each for each in gc.get_objects() if type(each) is dynamo.OptimizedModule]
    compiled = {id(each) for wrapper in wrappers for each in (wrapper, wrapper._orig_mod)}
    return [name for name, each in model.named_modules() if id(each) in compiled or each._compiled_call_impl]


def _uncompiled_hook(hook: Callable) -> Callable:
    # The compiler must call this hook, not trace it. It is asked only where it is loaded: importing it takes seconds.
    return torch.compiler.disable(hook) if "torch._dynamo" in sys.modules else hook
