"""The cases of lesson 11, hooks in a language model: small networks with random weights, which need no download."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.exercises.cases import Case, Numbers, stop
from course_utils.exercises.engine import exercise
from course_utils.language.network import LanguageModel, Layer, make_small, write
from course_utils.lessons.small_nets import count_runs, fill

__all__ = ["write"]  # what an exercise's task names
WORDS = 24  # in the vocabulary of the small networks


class PlainLayer(Layer):
    """A layer as in transformers 5: it hands on the residual stream, and nothing else."""

    def __call__(self, *args, **kwargs):
        stream = super().__call__(*args, **kwargs)
        if not torch.is_tensor(stream):
            raise TypeError("The layer hands on something else than the residual stream.")
        return stream


class TupleLayer(Layer):
    """A layer as in older versions of transformers: it hands on a tuple, the residual stream and what else there is."""

    MORE = "what else there is"

    def __call__(self, *args, **kwargs):
        stream, *more = super().__call__(*args, **kwargs)
        if more != [self.MORE, None]:
            raise ValueError("The layer hands on something else beside the residual stream.")
        return stream, *more

    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs), self.MORE, None


class InPlaceLayer(PlainLayer):
    """A layer that adds to the residual stream in place: what the layer before it handed on changes, too.

    The norms get copies: a tensor that autograd has saved and that then changes in place holds itself in memory.
    """

    def forward(self, x, angles, mask, cache, layer):
        x.add_(self.self_attn(self.input_layernorm(x.clone()), angles, mask, cache, layer)[0])
        return x.add_(self.mlp(self.post_attention_layernorm(x.clone())))


def small(rng: Numbers, kind: type[Layer] = PlainLayer, layers: int = 3) -> LanguageModel:
    """A network of this kind of layers."""
    model = make_small(rng.integer(0, 10_000), vocabulary=WORDS, layers=layers)
    for layer in model.model.layers:
        layer.__class__ = kind
    return model


def some_tokens(rng: Numbers, *shape: int) -> Tensor:
    """Tokens (N, T), int64, no two neighbours alike."""
    return (rng.whole(*shape, high=WORDS // 2 - 1) * 2 - torch.arange(shape[-1]) % 2).long()


def too_large(tokens: Tensor) -> Tensor:
    """The same tokens, but the last one is in no vocabulary: the model raises an error."""
    tokens = tokens.clone()
    tokens[:, -1] = WORDS
    return tokens


KINDS = {
    "a model whose layers return a tensor": PlainLayer,
    "a model whose layers return a tuple": TupleLayer,
    "a model whose layers work in place": InPlaceLayer,
}


@exercise
def residual_stream(rng):
    for (words, kind), layers in zip(KINDS.items(), (11, 3, 3), strict=True):
        rows, model = rng.integer(1, 2), small(rng, kind, layers)
        runs = count_runs(model)

        def look(result, runs=runs):
            return _tell_graph(result) | {"how often the model ran": len(runs)}

        given = {"model": model, "tokens": some_tokens(rng, rows, 4)}
        yield Case(given, look, shown=f"{words}, {layers} layers, and tokens ({rows}, 4)")
    given = {"model": small(rng), "tokens": too_large(some_tokens(rng, 1, 3))}
    yield Case(given, shown="a token that is in no vocabulary: the model raises an error")


def _tell_graph(result: object) -> dict[str, object]:
    return {"`requires_grad` of what your function returned": getattr(result, "requires_grad", None)}


@torch.no_grad()
def _telling_tokens(rng: Numbers, model: LanguageModel) -> Tensor:
    """Tokens for which the layers say different things, and other things without the norm, or read too late."""
    while True:
        tokens, states, copies = some_tokens(rng, 1, 5), [], []

        def keep(module: nn.Module, args: tuple, output: Any, states: list = states, copies: list = copies) -> None:
            states.append((output[0] if isinstance(output, tuple) else output)[0, -1])
            copies.append(states[-1].clone())

        with contextlib.ExitStack() as stack:
            for layer in model.model.layers:
                stack.enter_context(layer.register_forward_hook(keep))
            model(tokens)
        said, late, bare = (
            [int(model.lm_head(state).argmax()) for state in each]
            for each in (map(model.model.norm, copies), map(model.model.norm, states), copies)
        )
        is_late = not all(map(torch.equal, states, copies))
        if len({*said}) > 1 and said != bare and (said != late or not is_late):
            return tokens


@exercise
def layer_by_layer(rng):
    for words, kind in KINDS.items():
        model = small(rng, kind, 4)
        if kind is TupleLayer:
            model.lm_head = nn.Linear(model.lm_head.in_features, WORDS).double()
            fill(model.lm_head, rng.mixed)
            words += " and whose head has weights of its own and a bias"
        yield Case({"model": model, "tokens": _telling_tokens(rng, model)}, shown=f"{words}, and tokens (1, 5)")
    given = {"model": small(rng), "tokens": too_large(some_tokens(rng, 1, 3))}
    yield Case(given, shown="a token that is in no vocabulary: the model raises an error")


@exercise
def patch_token(rng):
    for words, kind in KINDS.items():
        for length in (5, 3, 1):
            layer, position = rng.integer(0, 1), rng.integer(1, length - 2) if length > 1 else 0
            source, target = some_tokens(rng, 1, length), some_tokens(rng, 1, length)
            given = {
                "model": small(rng, kind),
                "layer": layer,
                "position": position,
                "source": source,
                "target": target,
            }
            yield Case(given, _tell_graph, shown=f"{words}, {layer = }, {position = }, {length} tokens")
    for wrong in ("source", "target"):
        given = {"model": small(rng), "layer": 1, "position": 1}
        given |= {name: some_tokens(rng, 1, 4) for name in ("source", "target")}
        given[wrong] = too_large(given[wrong])
        yield Case(given, shown=f"a {wrong} with a token that is in no vocabulary: the model raises an error")


@exercise
def silence_head(rng):
    for heads in ([0], [2], [1, 2]):
        model, tokens, layer = small(rng), some_tokens(rng, 2, 4), rng.integer(0, 2)
        head, together = rng.choice(heads), model.model.layers[layer].self_attn.o_proj
        together.bias = nn.Parameter(rng.quarters(together.out_features).double())

        def use(handle, model=model, tokens=tokens):
            silenced = [model(tokens), model(tokens[:, :1])]
            handle.remove()
            return {"the logits of two calls": silenced, "the logits after remove()": model(tokens)}

        shown = (
            f"a model of three heads a layer, {layer = }, {head = }, two calls, the second with one token, and remove()"
        )
        yield Case({"model": model, "layer": layer, "head": head}, use, shown=shown)


class Keeps(nn.Module):
    """A layer that hands on a third of what it gets and keeps that, alone or with something else in a tuple."""

    def __init__(self, with_more: bool = False) -> None:
        super().__init__()
        self.with_more, self.kept = with_more, []

    def forward(self, x):
        self.kept.append(x / 3)
        return (self.kept[-1], x.double() * 0, "what else there is") if self.with_more else self.kept[-1]


@exercise
def steer(rng):
    for words, layer, dtype in (
        ("a layer that returns a tensor", Keeps(), torch.float32),
        ("a layer that returns a tuple", Keeps(with_more=True), torch.float32),
        ("a layer in half precision", Keeps(), torch.bfloat16),
        ("a layer in half precision that returns a tuple", Keeps(with_more=True), torch.bfloat16),
    ):
        x = rng.quarters(2, 3, 4).to(dtype)

        def use(handle, layer=layer, x=x):
            steered = [layer(x), layer(x[:, -1:])]
            handle.remove()
            found = {
                "what the layer hands on in two calls": steered,
                "what the layer has kept of its outputs": layer.kept,
            }
            return found | {"what it hands on after remove()": layer(x)}

        given = {"layer": layer, "direction": rng.quarters(4)}
        yield Case(given, use, shown=f"{words}, a call with three tokens and one with a single token, and remove()")


@exercise
def stream_while_writing(rng):
    for (words, kind), count in zip(KINDS.items(), (4, 1, 3), strict=True):
        layer, length = rng.integer(0, 1), rng.integer(3, 5)
        given = {"model": small(rng, kind), "layer": layer, "tokens": some_tokens(rng, 1, length), "count": count}
        yield Case(given, _tell_graph, shown=f"{words}, {layer = }, {length} tokens, {count = }")
    given = {"model": small(rng), "layer": 0, "tokens": too_large(some_tokens(rng, 1, 3)), "count": 2}
    yield Case(given, shown="a token that is in no vocabulary: the model raises an error")


@exercise
def last_states(rng):
    for kind, words, paddings in (
        ("a model whose layers return a tensor", "no padding", [(0, 0), (0, 0)]),
        ("a model whose layers return a tuple", "padding on the right", [(0, 2), (0, 0), (0, 4)]),
        ("a model whose layers work in place", "padding on the left", [(1, 0), (3, 0)]),
        ("a model whose layers return a tensor", "padding on both sides", [(1, 1)]),
        (
            "a model whose layers return a tensor",
            "padding on either side, and a real token with the number 0 at the end",
            [(1, 1), (2, 0), (0, 2)],
        ),
    ):
        real = torch.ones(len(paddings), 5, dtype=torch.int64)
        for row, (left, right) in zip(real, paddings, strict=True):
            row[:left] = row[5 - right :] = 0
        tokens = some_tokens(rng, len(paddings), 5)
        if "left" in words:
            tokens *= real  # padding may have any numbers
        if "number 0" in words:
            tokens[0, 3] = 0
        layer = rng.integer(0, 1) if "in place" in kind else rng.integer(0, 2)  # a later one has to be there
        given = {"model": small(rng, KINDS[kind]), "layer": layer, "tokens": tokens, "real": real}
        shown = f"{kind}, tokens ({len(paddings)}, 5) with {words}, {layer = }"
        yield Case(given, _tell_graph, shown=shown)


def _encoder(rng: Numbers, dropout: float, norm_first: bool) -> nn.TransformerEncoderLayer:
    """A block of PyTorch's own, with two heads of two numbers and small weights."""
    layer = nn.TransformerEncoderLayer(
        4, 2, dim_feedforward=2, dropout=dropout, batch_first=True, norm_first=norm_first
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(rng.mixed(*parameter.shape) / 16)
    return layer


@exercise
def attention_maps(rng):
    def attend(layer: nn.TransformerEncoderLayer, x: Tensor, shown: str) -> Case:
        outputs = []
        layer.register_forward_hook(lambda module, args, output: outputs.append(output.detach()))

        def then(maps):
            found = {"`requires_grad` of what your function returned": getattr(maps, "requires_grad", None)}
            return found | {"what the layer gave when you called it": outputs[-1:]}

        return Case({"layer": layer, "x": x}, then, shown)

    heads = "two heads, three pictures of four tokens, a layer"
    for norm_first, words in ((False, "in eval mode"), (True, "which normalises before the attention, in eval mode")):
        yield attend(_encoder(rng, 0.5, norm_first).eval(), rng.quarters(3, 4, 4), f"{heads} {words}")
    yield attend(_encoder(rng, 0.0, True), rng.quarters(3, 4, 4), f"{heads} in training mode, without dropout")
    yield attend(_encoder(rng, 0.5, False), rng.quarters(3, 4, 4), f"{heads} in training mode, with dropout")
    layer = _encoder(rng, 0.5, True).eval()
    yield attend(layer, rng.quarters(1, 2, 5), "tokens that are too long: the layer raises an error")
    layer = _encoder(rng, 0.5, True).eval()
    layer.linear1.register_forward_pre_hook(stop)
    yield attend(layer, rng.quarters(1, 2, 4), "a layer whose call is stopped, by something that is no Exception")
    layer, places = _encoder(rng, 0.5, True).eval(), rng.quarters(4, 4)
    layer.register_forward_pre_hook(lambda module, args: (args[0] + places, *args[1:]))
    yield attend(layer, rng.quarters(3, 4, 4), f"{heads} with a hook that adds a row for each place to x, in eval mode")
