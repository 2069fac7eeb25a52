"""The explorer of the logit lens: what a language model would write, if each layer were its last one."""

from __future__ import annotations

import ipywidgets as widgets
import torch
from torch import Tensor

from course_utils.explorers.markup import BLUE, draw_box, draw_picture, draw_text
from course_utils.explorers.panel import Explorer, View, make_slider
from course_utils.hooks.record import record
from course_utils.language.smollm import Language, load_language_model
from course_utils.root import CourseError

MOST = 10  # tokens of a prompt
WIDE, HIGH, LEFT, TOP = 78, 26, 84, 62  # pixels: of a cell, and of what stands beside and above the cells


@torch.no_grad()
def read_layers(language: Language, text: str) -> Tensor:
    """What each layer would write after each token: probabilities (layers, T, vocabulary).

    What a layer hands on goes through the last norm and the head (nostalgebraist, 2020). Raises `CourseError` unless
    `text` has 1 to 10 tokens.
    """
    tokens, model = language.tokens(text), language.model
    if not 1 <= tokens.shape[1] <= MOST:
        raise CourseError(f"a prompt of 1 to {MOST} tokens can be drawn, got {tokens.shape[1]}")
    layers = [f"model.layers.{number}" for number in range(len(model.model.layers))]
    with record(model, *layers) as seen:
        model(tokens)
    streams = torch.cat([seen[layer].output for layer in layers])
    return model.lm_head(model.model.norm(streams)).softmax(-1)


class LogitLens(Explorer):
    """Each layer's answer after each token of a prompt, and the five likeliest of one of them.

    text: the prompt. layer: from 1; -1 is the last. language: a network with its tokenizer; None loads SmolLM2.
    """

    def __init__(
        self, text: str = "The capital of France is", layer: int = 1, language: Language | None = None
    ) -> None:
        self._language, self._read = language or load_language_model(), {}
        layers = len(self._language.model.model.layers)
        controls = {
            "text": widgets.Text(text, description="Prompt", layout={"width": "560px"}, continuous_update=False),
            "layer": make_slider("Layer", 1, layers, layer),
            "token": make_slider("Token", 1, MOST, MOST),
        }
        super().__init__(controls, ["text", ("layer", "token")])

    def fit(self, name: str) -> None:
        """Give the slider as many places as the prompt has tokens, and choose the last one."""
        count = self._language.tokens(self.controls["text"].value).shape[1]
        if name in ("", "text") and 1 <= count <= MOST and count != self.controls["token"].max:
            self.put("token", make_slider("Token", 1, count, count))

    def look(self, text: str, layer: int, token: int) -> View:
        """Draw every third layer and the chosen one, with the token that each finds likeliest."""
        if text not in self._read:
            self._read = {text: read_layers(self._language, text)}
        shares, words = self._read[text], self._language.words(self._language.tokens(text))
        rows = sorted({*range(2, len(shares), 3), len(shares) - 2, len(shares) - 1, layer - 1})
        best = shares.max(-1)
        said = {row: self._language.words(best.indices[row]) for row in rows}
        top = shares[layer - 1, token - 1].topk(5)
        found = ", ".join(
            f"{quote(word)} {share:.0%}"
            for word, share in zip(self._language.words(top.indices), top.values.tolist(), strict=True)
        )
        sentence = f"After {quote(words[token - 1])}, layer {layer} of {len(shares)} would write: {found}."
        body = "".join(
            draw_text(LEFT + WIDE * column + WIDE / 2, TOP - 10, shorten(word), "middle", weight=600)
            for column, word in enumerate(words)
        )
        for line, row in enumerate(rows):
            y = TOP + HIGH * line
            body += draw_text(6, y + 18, f"layer {row + 1}", weight=600 if row == layer - 1 else 400)
            for column, word in enumerate(said[row]):
                chosen = (row, column) == (layer - 1, token - 1)
                edge = f'stroke="{BLUE}" stroke-width="2.5"' if chosen else 'stroke="none"'
                look = f'fill="{BLUE}" fill-opacity="{0.29 * best.values[row, column]:.2f}" {edge}'
                body += draw_box(LEFT + WIDE * column + 2, y + 1, WIDE - 4, HIGH - 2, 3, look)
                body += draw_text(LEFT + WIDE * column + WIDE / 2, y + 18, shorten(word), "middle")
        size = LEFT + WIDE * len(words) + 6, TOP + HIGH * len(rows) + 8
        parts = [f"layer {row + 1}: {', '.join(map(quote, said[row]))}" for row in rows]
        title = "What each layer would write next; the bluer, the surer"
        return View(draw_picture(max(size[0], 520), size[1], title, sentence, body, parts), sentence, facts=top.indices)


def quote(word: str) -> str:
    """A token in a sentence, where a no-break space would look like any other."""
    return "a no-break space" if word == "\N{NO-BREAK SPACE}" else repr(word)


def shorten(word: str) -> str:
    """A token as it fits into a cell: what cannot be seen is shown by a sign."""
    word = word.replace("\n", "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}").replace("\N{NO-BREAK SPACE}", " ")
    word = word.strip(" ") or "\N{OPEN BOX}"
    return word if len(word) < 10 else f"{word[:8]}\N{HORIZONTAL ELLIPSIS}"
