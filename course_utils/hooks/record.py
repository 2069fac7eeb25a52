"""Record what layers compute and which gradients reach them, trace a call, count hooks.

    with record(model, "features.0", nn.Linear, gradients=True) as seen:
        model(x).sum().backward()
    seen["features.0"].output       # what the layer returned: a detached clone
    seen["features.0"].gradient     # the gradient of that output, same shape

    print(trace(model, x))          # one call as a timeline, your own hooks included
    with no_hooks_left(model):      # fails if the block forgets a handle
        ...

Hooks are registered inside context managers only, and removed on every way out of them. What happens with odd modules:

- It runs several times: one `Call` each, in order, in `.calls`, `.outputs` and `.gradients`.
- It never runs: `.outputs` is empty, and `.output` raises a sentence with the possible reasons.
- It has two names: one record, reachable under both.
- It returns tuples, lists, dicts, named tuples or dataclasses: the record has the same structure; what is not a tensor
  stays as it is, and has the gradient None.
- It returns its input (`nn.Identity`, dropout in eval mode): the gradient is that of the tensor, all its uses together.
- An in-place operation follows: the record holds the values, and the gradient, from before it.
- It sits in a compiled model that skipped its hooks: a warning when the block ends, and a sentence in each error.
"""

import copy
import dataclasses
import difflib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Layer = str | nn.Module | type[nn.Module]


class UnknownLayerError(KeyError):
    """A layer that is not in the model, or not in the recording."""

    def __str__(self) -> str:  # KeyError shows its message in quotes
        return self.args[0]


class NothingRecordedError(RuntimeError):
    """An output or a gradient that was asked for and does not exist; the message says why."""


# -- Layers by name, by module, by type -------------------------------------------------------------------------------


def find_layers(model: nn.Module, *layers: Layer) -> dict[str, nn.Module]:
    """Return the chosen layers of `model` by their first dotted name, in the model's own order.

    A layer is a dotted name (`"features.0"`; `""` is the model itself), a module of the model, or a type (`nn.Conv2d`),
    which chooses every module of that type or a subclass. For a model from `torch.compile`, names count from the model
    inside. Raises `UnknownLayerError` for a name, module or type that the model lacks, with what it has instead.
    """
    model = _inside(model)
    named = dict(model.named_modules(remove_duplicate=False))
    chosen = {id(module) for layer in layers for module in _modules_that_match(model, named, layer)}
    return {name: module for name, module in model.named_modules() if id(module) in chosen}


def _modules_that_match(model: nn.Module, named: dict[str, nn.Module], layer: Layer) -> list[nn.Module]:
    title = type(model).__name__
    if isinstance(layer, str):
        if layer.removeprefix("_orig_mod.") in named:
            return [named[layer.removeprefix("_orig_mod.")]]
        raise UnknownLayerError(
            f"layer {layer!r} is not in {title}{_nearest(layer, named)}; {_what_fits(layer, named)}"
        )
    if isinstance(layer, nn.Module):
        if any(module is _inside(layer) for module in named.values()):
            return [_inside(layer)]
        same = [name for name, module in named.items() if type(module) is type(layer)]
        has = f"its {type(layer).__name__} layers are {_enumerate(same)}" if same else "it has no layer of that type"
        raise UnknownLayerError(
            f"the {type(layer).__name__} you gave is not a module of {title}; {has}. "
            "Give a module of this very model (a copy is another module), or its dotted name."
        )
    if isinstance(layer, type) and issubclass(layer, nn.Module):
        if found := [module for module in named.values() if isinstance(module, layer)]:
            return found
        types = sorted({type(module).__name__ for module in named.values()})
        raise UnknownLayerError(f"{title} has no {layer.__name__}; its modules are of type {_enumerate(types)}")
    raise TypeError(
        f"a layer is a dotted name, a module or a module type such as nn.Conv2d; got {type(layer).__name__} {layer!r}"
    )


def _nearest(name: str, names: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, [known for known in names if known], n=3, cutoff=0.5)
    return f" (nearest: {_enumerate(near)})" if near else ""


def _what_fits(name: str, named: dict[str, nn.Module]) -> str:
    parent = name
    while parent not in named:
        parent = parent.rpartition(".")[0]
    children = [f"{parent}.{child}".strip(".") for child in named[parent]._modules]
    where = repr(parent) if parent else "the model"
    return f"{where} has {_enumerate(children)}" if children else f"{where} has no layers inside"


def _enumerate(words: list[str], most: int = 12) -> str:
    shown = ", ".join(word or '"" (the model)' for word in words[:most])
    return shown if len(words) <= most else f"{shown}, … ({len(words)} in all)"


def _inside(model: nn.Module) -> nn.Module:
    """Return the module that `torch.compile` wrapped; any other module as it is."""
    return model._orig_mod if "_orig_mod" in model._modules else model


# -- Tensors in nested structures -------------------------------------------------------------------------------------


def _unchanged(value: Any) -> Any:
    return value


def map_tensors(change: Callable[[Tensor], Any], value: Any, other: Callable[[Any], Any] = _unchanged) -> Any:
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
        twin = copy.copy(value)  # not `replace`: it would run __post_init__ again
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
    return map_tensors(
        lambda tensor: tuple(tensor.shape), value, lambda leaf: None if leaf is None else type(leaf).__name__
    )


def _copy_detached(tensor: Tensor) -> Tensor:
    with torch.inference_mode(False):  # so that the copy is a normal tensor, which may be used in a graph later
        return tensor.detach().clone()


def watch_gradient(stack: ExitStack, tensor: Tensor, receive: Callable[[Tensor], None]) -> None:
    """Call `receive(gradient)` when the gradient of `tensor`, with the value it has now, is computed.

    A Tensor hook stays with the value it was registered on, also when an in-place operation follows: unlike a full
    backward hook it changes nothing in the forward pass. One case needs care: when a *view* is changed in place,
    PyTorch rewrites the history of its base, and the gradient passes by the hook on the view. One on the base sees it.
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


# -- Recording --------------------------------------------------------------------------------------------------------


class Call:
    """One run of one layer: `layer` (its first name), `output`, and `gradient`, the gradient of the output."""

    def __init__(self, layer: str, output: Any, obstacle: str) -> None:
        self.layer = layer
        self.output = output
        self._obstacle = obstacle  # why there is no gradient (yet), as the rest of a sentence
        self._gradients: list[Tensor | None] = [None] * len(tensors_in(output))

    @property
    def has_gradient(self) -> bool:
        """Whether a gradient reached any tensor of the output."""
        return any(gradient is not None for gradient in self._gradients)

    @property
    def gradient(self) -> Any:
        """The gradient, in the structure of `output` (None beside what got none); several backward passes add up."""
        if not self.has_gradient:
            raise NothingRecordedError(f"layer {self.layer!r} has no gradient: {self._obstacle}")
        gradients = iter(self._gradients)
        return map_tensors(lambda _: next(gradients), self.output, lambda _: None)

    def __repr__(self) -> str:
        return f"{self.layer}: output {shapes_in(self.output)}{', with its gradient' if self.has_gradient else ''}"


class LayerRecord:
    """What one layer did inside a `record` block: `names` (all it has in the model) and `calls`, in order."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.calls: list[Call] = []
        self._obstacle = (
            "it never ran in this block. Call the model (not `model.forward`) inside it. A layer's hooks do not run if "
            "its parent uses its weights without calling it (nn.MultiheadAttention and its out_proj), or in a function "
            "that was compiled before"
        )

    @property
    def output(self) -> Any:
        """The output of the only call. Raises `NothingRecordedError` unless the layer ran exactly once."""
        return self._only_call("outputs").output

    @property
    def gradient(self) -> Any:
        """The gradient of the output of the only call. Raises `NothingRecordedError` when there is none."""
        return self._only_call("gradients").gradient

    @property
    def outputs(self) -> list[Any]:
        """The output of each call; an empty list when the layer never ran."""
        return [call.output for call in self.calls]

    @property
    def gradients(self) -> list[Any]:
        """The gradient of each call's output, None for a call that no gradient reached.

        Raises `NothingRecordedError` when there were calls and none of them got a gradient.
        """
        if self.calls and not any(call.has_gradient for call in self.calls):
            return [call.gradient for call in self.calls]  # raises, and says why
        return [call.gradient if call.has_gradient else None for call in self.calls]

    def _only_call(self, plural: str) -> Call:
        if not self.calls:
            raise NothingRecordedError(f"layer {self.names[0]!r} has no output: {self._obstacle}")
        if len(self.calls) > 1:
            raise NothingRecordedError(
                f"layer {self.names[0]!r} ran {len(self.calls)} times in this block: choose one of `.{plural}`"
            )
        return self.calls[0]

    def __repr__(self) -> str:
        ran = f"ran {len(self.calls)} times" if len(self.calls) != 1 else "ran once"
        return f"{' = '.join(name or 'the model' for name in self.names)}: {ran}" + "".join(
            f"; {str(call).removeprefix(f'{call.layer}: ')}" for call in self.calls
        )


class Recording(Mapping[str, LayerRecord]):
    """The records of a `record` block: index it with a name or a module, loop over it by first name in model order.

    `calls` lists the calls of all recorded layers in the order in which they returned.
    """

    def __init__(self, records: dict[str, LayerRecord], modules: dict[str, nn.Module]) -> None:
        self.calls: list[Call] = []
        self._records = records
        self._modules = modules
        self._aliases = {name: record for record in records.values() for name in record.names}
        self._open = True

    def _close(self) -> None:
        self._open = False

    def __getitem__(self, layer: str | nn.Module) -> LayerRecord:
        if isinstance(layer, str):
            if layer.removeprefix("_orig_mod.") in self._aliases:
                return self._aliases[layer.removeprefix("_orig_mod.")]
            near, asked = _nearest(layer, self._aliases), repr(layer)
        else:
            for name, module in self._modules.items():
                if isinstance(layer, nn.Module) and module is _inside(layer):
                    return self._records[name]
            near, asked = "", f"{layer.__name__}, a type," if isinstance(layer, type) else type(layer).__name__
        raise UnknownLayerError(
            f"layer {asked} was not recorded{near}; recorded: {_enumerate(list(self._aliases))}. "
            "Index with a name or a module, or loop over .items()."
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.values()))


@contextmanager
def record(model: nn.Module, *layers: Layer, gradients: bool = False, detach: bool = True) -> Iterator[Recording]:
    """Record the outputs of `layers`, and with `gradients=True` their gradients, while the block runs.

    Recorded tensors are detached clones, with the layer's shape and dtype. The model's outputs, gradients, modes and
    `requires_grad` are what they would be without recording; it works under `no_grad`, `inference_mode` and on frozen
    models. (One part of PyTorch looks for hooks: `nn.TransformerEncoderLayer` leaves its fused path in eval mode.)

    With `detach=False`, what is recorded belongs to the graph: `torch.autograd.grad(y, seen[name].output)` works. The
    layer then hands a clone on: an in-place operation on it no longer reaches tensors that shared its memory, and
    autograd may add gradients in another order (the last bits differ).

    A forward hook registered inside the block runs after the recording; a backward pass must run inside the block.
    Raises `UnknownLayerError` (see `find_layers`), `TypeError` without layers. Warns at the end of the block when a
    layer never ran because the model had been compiled before: compiled code does not see hooks that come later.
    """
    if not layers:
        raise TypeError(
            "record(model, ...) needs at least one layer: a dotted name, a module or a type such as nn.Conv2d"
        )
    modules = find_layers(model, *layers)
    names: dict[int, list[str]] = {}
    for name, module in _inside(model).named_modules(remove_duplicate=False):
        names.setdefault(id(module), []).append(name)
    records = {name: LayerRecord(tuple(names[id(module)])) for name, module in modules.items()}
    seen = Recording(records, modules)
    with ExitStack() as stack:
        stack.callback(seen._close)
        for name, module in modules.items():
            hook = _recording_hook(seen, name, stack, gradients=gradients, detach=detach)
            stack.enter_context(module.register_forward_hook(hook))
        ran_compiled = _watch_compiled(model, stack)
        yield seen
        _explain_skipped(records, ran_compiled)


def _recording_hook(
    seen: Recording, name: str, stack: ExitStack, *, gradients: bool, detach: bool
) -> Callable[[nn.Module, tuple[Any, ...], Any], Any]:
    def keep_output(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if not seen._open:  # a copy of the model, made inside the block, keeps this hook: it must do nothing later
            return None
        kept = map_tensors(_copy_detached if detach else torch.clone, output)
        call = Call(name, kept, _why_no_gradient(output) if gradients else "record(..., gradients=True) records them")
        seen._records[name].calls.append(call)
        seen.calls.append(call)
        if gradients:
            for index, tensor in enumerate(tensors_in(output if detach else kept)):
                if tensor.requires_grad:
                    watch_gradient(stack, tensor, functools.partial(keep_gradient, call, index))
        return None if detach else map_tensors(torch.clone, kept)

    def keep_gradient(call: Call, index: int, gradient: Tensor) -> None:
        gradient = _copy_detached(gradient) if detach else gradient
        earlier = call._gradients[index]
        call._gradients[index] = gradient if earlier is None else earlier + gradient

    # The compiler must call this hook, not trace it. It is asked only where it is loaded: importing it takes seconds.
    return torch.compiler.disable(keep_output) if "torch._dynamo" in sys.modules else keep_output


def _why_no_gradient(output: Any) -> str:
    if torch.is_inference_mode_enabled():
        return "it ran under torch.inference_mode(), which builds no graph"
    if not torch.is_grad_enabled():
        return "it ran under torch.no_grad(), which builds no graph"
    if any(tensor.requires_grad for tensor in tensors_in(output)):
        return (
            "no backward pass reached it inside the block; call .backward() there, on a value computed from its output"
        )
    if not tensors_in(output):
        return "its output holds no tensor"
    return "nothing before it requires a gradient (frozen parameters?); give the model x.requires_grad_() as its input"


def _watch_compiled(model: nn.Module, stack: ExitStack) -> list[str]:
    """Return a list that gets the name of each compiled part of the model (`""` is all of it) that runs."""
    ran: list[str] = []
    for name, module in model.named_modules():
        if _inside(module) is not module:  # hooks on the wrapper itself run outside the compiled code
            stack.enter_context(module.register_forward_pre_hook(lambda *_, name=name: ran.append(name)))
    return ran


def _explain_skipped(records: dict[str, LayerRecord], ran_compiled: list[str]) -> None:
    skipped = []
    for record_ in records.values():
        if not record_.calls and any(name.startswith(part) for part in ran_compiled for name in record_.names):
            skipped.append(record_.names[0])
            record_._obstacle = (
                "the model ran compiled, and code compiled before the block does not see hooks added later; "
                "record the model inside (compiled._orig_mod), or call torch.compiler.reset() first"
            )
    if skipped:
        warnings.warn(f"nothing was recorded for {_enumerate(skipped)}: {records[skipped[0]]._obstacle}", stacklevel=4)
