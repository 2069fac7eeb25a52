"""A Llama in plain PyTorch, whose modules have the names and the tree that they have in transformers.

RMSNorm (Zhang & Sennrich, 2019), rotary positions (Su et al., 2021), grouped queries (Ainslie et al., 2023) and a gated
MLP (Shazeer, 2020), put together as in Touvron et al., 2023. Each module returns what it returns in transformers 5: a
layer a tensor, `self_attn` a pair of its result and of the attention weights, which are None unless it is `eager`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

# For each layer the keys and the values of the tokens so far, each (N, groups, T, width of a head).
Cache = list[tuple[torch.Tensor, torch.Tensor] | None]


@dataclass(frozen=True)
class Settings:
    """The sizes of a network."""

    vocabulary: int = 49152
    width: int = 576
    layers: int = 30
    heads: int = 9
    groups: int = 3
    inner: int = 1536
    base: float = 100_000.0
    epsilon: float = 1e-5


class Attention(nn.Module):
    """Each token mixes the values of the tokens up to itself, and returns (N, T, width) and None.

    eager: compute the weights step by step, and return them as well, (N, heads, T, all tokens so far).
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.head_dim, self.eager = settings.width // settings.heads, False
        self.q_proj = nn.Linear(settings.width, settings.width, bias=False)
        self.k_proj = nn.Linear(settings.width, settings.groups * self.head_dim, bias=False)
        self.v_proj = nn.Linear(settings.width, settings.groups * self.head_dim, bias=False)
        self.o_proj = nn.Linear(settings.width, settings.width, bias=False)

    def forward(self, x, angles, mask, cache, layer):
        query, key, value = (
            project(x).unflatten(2, (-1, self.head_dim)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = rotate(query, angles), rotate(key, angles)
        if cache is not None:
            if cache[layer]:
                key, value = (torch.cat(pair, 2) for pair in zip(cache[layer], (key, value), strict=True))
            cache[layer] = key, value
        weights = None
        if self.eager:
            weights = weigh(query, key, mask)
            mixed = weights @ value.repeat_interleave(weights.shape[1] // value.shape[1], 1)
        else:
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2)), weights


def weigh(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The attention weights softmax(query · key / sqrt(width of a head)), (N, heads, T, all tokens so far).

    query is (N, heads, T, width of a head); key has fewer heads, each for several of them; mask is True where to look.
    """
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Turn the pairs (i, i + half) of the last dimension by `angles` (N, T, half)."""
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


class MLP(nn.Module):
    """A gated network for each token by itself."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(settings.width, settings.inner, bias=False)
        self.up_proj = nn.Linear(settings.width, settings.inner, bias=False)
        self.down_proj = nn.Linear(settings.inner, settings.width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and MLP each read the residual stream `x` (N, T, width), and add to it."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(settings.width, settings.epsilon)
        self.self_attn = Attention(settings)
        self.post_attention_layernorm = nn.RMSNorm(settings.width, settings.epsilon)
        self.mlp = MLP(settings)

    def forward(self, x, angles, mask, cache, layer):
        mixed, _ = self.self_attn(self.input_layernorm(x), angles, mask, cache, layer)
        x = x + mixed
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    """From tokens (N, T) to the normed residual stream (N, T, width)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(settings.vocabulary, settings.width)
        self.layers = nn.ModuleList([Layer(settings) for _ in range(settings.layers)])
        self.norm = nn.RMSNorm(settings.width, settings.epsilon)
        half = settings.width // settings.heads // 2
        self.register_buffer("speeds", settings.base ** (-torch.arange(half) / half), persistent=False)

    def forward(self, tokens, real, cache):
        """`real` (N, all tokens so far) is 0 at padding; positions are counted without it."""
        places = (real.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        angles = places[..., None].float() * self.speeds.float()
        count = torch.arange(real.shape[1], device=tokens.device)
        seen = count[None] <= count[-tokens.shape[1] :, None]  # a token looks at itself and what stands before it
        itself = count[None] == count[-tokens.shape[1] :, None]  # also where it is padding, so that no row is empty
        mask = (seen & real[:, None].bool() | itself)[:, None]
        x = self.embed_tokens(tokens)
        for number, layer in enumerate(self.layers):
            x = layer(x, angles=angles, mask=mask, cache=cache, layer=number)
            x = x[0] if isinstance(x, tuple) else x  # as in older versions of transformers
        return self.norm(x)


class LanguageModel(nn.Module):
    """`model(tokens)` gives logits (N, T, vocabulary): at each token, those of the next one.

    `tokens` is (N, T), int64. `real` (N, T), of the same dtype, is 1 at tokens and 0 at padding. With a `cache` (see
    `empty_cache`) a call takes only the new tokens, and `real` covers the old ones too.
    """

    def __init__(self, settings: Settings = Settings()) -> None:
        super().__init__()
        self.settings = settings
        self.model = Body(settings)
        self.lm_head = nn.Linear(settings.width, settings.vocabulary, bias=False)
        self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens, real=None, cache=None):
        if real is None:
            old = cache[0][0].shape[2] if cache and cache[0] else 0
            real = tokens.new_ones(len(tokens), old + tokens.shape[1])
        return self.lm_head(self.model(tokens, real, cache))

    def empty_cache(self) -> Cache:
        return [None] * len(self.model.layers)


@torch.no_grad()
def write(model: LanguageModel, tokens: torch.Tensor, count: int, *, cached: bool = True) -> Iterator[torch.Tensor]:
    """Yield `count` times the next token of each row of `tokens` (N, T), the likeliest: a tensor (N,).

    With a cache, the first call has all tokens and each later one has only the token that was written last.
    """
    cache = model.empty_cache() if cached else None
    given = tokens
    for _ in range(count):
        new = model(given, cache=cache)[:, -1:].argmax(-1)
        yield new[:, 0]
        given = new if cached else torch.cat((given, new), 1)


def make_small(seed: int = 0, *, vocabulary: int = 24, layers: int = 3) -> LanguageModel:
    """A network with random weights, small enough for cases that are computed at once; float64, in eval mode."""
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    settings = Settings(vocabulary, width=12, layers=layers, heads=3, groups=1, inner=16, base=100.0)
    model = LanguageModel(settings).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6) if parameter.ndim > 1 else nn.init.uniform_(parameter, 0.5, 1.5)
    torch.set_rng_state(state)
    return model
