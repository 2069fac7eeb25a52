"""The two heads by the formula of attention, without PyTorch's module; and the picture of their maps."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import pytest
import torch

from course_utils.hooks.inventory import count_hooks
from course_utils.vision.attention import draw_attention
from course_utils.vision.toys import (
    HEADS,
    ODDS,
    encode,
    make_two_head_block,
)

SENTENCES = [["the", "cat", "saw", "the", "dog"], ["a", "b"], ["la", "la", "la", "land"]]


def expected_shares(words: list[str]) -> torch.Tensor:
    """(2, L, L) by counting: a place that fits has 96 parts, another one has 1; without any that fits all are alike."""
    tables = []
    for fits in (lambda i, j: j == i - 1, lambda i, j: words[i] == words[j]):
        parts = [[ODDS if fits(i, j) else 1 for j in range(len(words))] for i in range(len(words))]
        tables.append([[part / sum(row) for part in row] for row in parts])
    return torch.tensor(tables)


@pytest.mark.parametrize("words", SENTENCES, ids=" ".join)
def test_the_heads_look_where_they_say(words):
    block, x = make_two_head_block(words), encode(words)
    weights = block.self_attn(x, x, x, need_weights=True, average_attn_weights=False)[1]
    assert torch.allclose(weights[0], expected_shares(words), atol=1e-5)


@pytest.mark.parametrize("words", SENTENCES, ids=" ".join)
def test_the_formula_of_attention_on_the_blocks_own_matrices(words):
    length = len(words)
    block, x = make_two_head_block(words), encode(words)[0]
    query, key, _ = (x @ part.T for part in block.self_attn.in_proj_weight.detach().chunk(3))
    for head, expected in enumerate(expected_shares(words)):
        part = slice(head * length, (head + 1) * length)
        scores = query[:, part] @ key[:, part].T / math.sqrt(length)
        assert torch.allclose(scores.softmax(1), expected, atol=1e-5)


def test_only_the_second_head_is_read():
    words = SENTENCES[0]
    block, x = make_two_head_block(words), encode(words)
    before = block(x)
    with torch.no_grad():  # other values for a head: what it brings is another thing
        block.self_attn.in_proj_weight[20:25] *= 5
    assert torch.equal(block(x), before)
    with torch.no_grad():
        block.self_attn.in_proj_weight[25:] *= 5
    assert not torch.allclose(block(x), before)


def test_the_fast_path_and_the_slow_one_agree():
    words = SENTENCES[0]
    block, x = make_two_head_block(words), encode(words)
    slow = block(x).detach()
    with torch.no_grad():
        assert torch.allclose(block(x), slow, atol=1e-5)
    assert count_hooks(block).total() == 0
    assert not block.training


def test_a_word_that_comes_twice_differs_in_its_place_only():
    x = encode(["the", "cat", "the"])
    assert x.shape == (1, 3, 6)
    assert torch.equal(x[0, 0, :3], x[0, 2, :3])
    assert torch.equal(x[0, :, 3:], torch.eye(3))
    assert not torch.equal(x[0, 0, :3], x[0, 1, :3])


def picture():
    words = ["the", "<b>"]
    return draw_attention(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]), words, HEADS[:1], "One & all", "A table.")


def test_the_picture_says_the_same_in_words_and_numbers():
    drawn = picture()
    root = ElementTree.fromstring(drawn.svg)
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:2] == ["One & all", HEADS[0]]
    assert texts.count("<b>") == 2  # a row and a column
    assert [text for text in texts if text[0].isdigit()] == ["1.00", "0.00", "0.25", "0.75"]
    assert str(drawn).splitlines() == ["One & all", f"{HEADS[0]}:", "  the  1.00  0.00", "  <b>  0.25  0.75"]
    assert root.get("aria-label") == "One & all"
    assert root.find("{http://www.w3.org/2000/svg}desc").text == "A table."
    assert set(drawn._repr_mimebundle_()) == {"text/plain", "text/html"}


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_numbers_can_be_read_on_every_cell():
    root = ElementTree.fromstring(picture().svg)
    ink = luminance(root.get("fill"))
    fills = {each.get("fill") for each in root.iter("{http://www.w3.org/2000/svg}rect")}
    assert len(fills) == 4  # the more attention, the darker
    for fill in fills:
        assert (luminance(fill) + 0.05) / (ink + 0.05) > 4.5


@pytest.mark.parametrize(
    ("weights", "words", "complaint"),
    [
        (torch.zeros(2, 2, 2), ["a", "b"], r"1 labels and 2 words go with \(1, 2, 2\), got \(2, 2, 2\)"),
        (torch.zeros(1, 2, 2), ["a"], "1 words"),
        (torch.full((1, 1, 1), 1.5), ["a"], "from 0 to 1, got 1.5"),
        (torch.full((1, 1, 1), -0.5), ["a"], "from 0 to 1, got -0.5"),
    ],
)
def test_what_cannot_be_drawn_is_said(weights, words, complaint):
    with pytest.raises(ValueError, match=complaint):
        draw_attention(weights, words, ["head"], "title", "alt")
