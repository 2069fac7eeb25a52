"""A block of a transformer whose two heads of attention are set by hand, so that their shares can be counted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

HEADS = ("the word before", "the same word")
ODDS = 96  # a place that is looked for gets this many times the attention of another one


def encode(words: Sequence[str]) -> Tensor:
    """Return the words as vectors, (1, L, 2L): which word it is, and which place it has, each as a one among zeros.

    A word that comes twice has the same first half.
    """
    places, names = torch.eye(len(words)), list(dict.fromkeys(words))
    return torch.cat([places[[names.index(word) for word in words]], places], dim=1)[None]


@torch.no_grad()
def make_two_head_block(words: Sequence[str]) -> nn.TransformerEncoderLayer:
    """Return a block for sentences of `len(words)` words, in eval mode, with two heads set by hand (see `HEADS`).

    A head scores ln(96) for a place that fits and 0 for another one, so that its softmax gives 96 to 1. The value of a
    place is its vector; the output projection drops what the first head brings. The feed-forward part adds nothing.
    """
    length = len(words)
    block = nn.TransformerEncoderLayer(2 * length, 2, dim_feedforward=2, dropout=0.0, batch_first=True)
    for parameter in block.parameters():
        parameter.zero_()
    block.norm1.weight.fill_(1)
    block.norm2.weight.fill_(1)
    query, key, value = block.self_attn.in_proj_weight.chunk(3)
    fits = math.log(ODDS) * math.sqrt(length)  # attention divides scores by the square root of the head's size
    query[:length, length:] = fits * torch.ones(length - 1).diag(1)  # head 1: my place asks for the place before
    key[:length, length:] = torch.eye(length)
    query[length:, :length] = fits * torch.eye(length)  # head 2: my word asks for the same word
    key[length:, :length] = torch.eye(length)
    value.copy_(torch.eye(2 * length))
    block.self_attn.out_proj.weight[length:, length:] = torch.eye(length)
    return block.eval()
