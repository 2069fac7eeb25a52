"""A transformer block whose attention can be checked with a pencil, and a picture of attention maps.

    block = make_two_head_block(words)
    block(encode(words))

The weights are set by hand. One head looks at the word before, the other one at the same word: each finds what it looks
for with 96 hundredths of its attention and spreads the rest. Only the second head is read by what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from torch import Tensor

from course_utils.explorers.svg import SANS

CELL, LEFT, TOP, GAP = 52, 70, 78, 24
PAPER, INK, FULL = "#ffffff", "#1f1f1f", (0x8F, 0xBC, 0xF0)  # dark numbers on white to light blue, on any page


@dataclass(frozen=True)
class AttentionPicture:
    """Attention maps as a table of shares for each head. Shows itself in a notebook; `str()` has the same numbers."""

    shares: tuple[tuple[tuple[float, ...], ...], ...]
    words: tuple[str, ...]
    labels: tuple[str, ...]
    title: str
    alt: str

    @property
    def svg(self) -> str:
        """A row is a word that looks, a column a word that is looked at; the darker, the more attention."""
        side = CELL * len(self.words)
        width = len(self.shares) * (LEFT + side + GAP)
        height = TOP + side + 10
        maps = "".join(
            self._draw_map(number * (LEFT + side + GAP), shares, label)
            for number, (shares, label) in enumerate(zip(self.shares, self.labels, strict=True))
        )
        title = escape(self.title)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="{title}" font-family="{SANS}" fill="{INK}" '
            f'style="max-width:100%;height:auto;background:{PAPER}"><title>{title}</title>'
            f"<desc>{escape(self.alt)}</desc>"
            f'<text x="8" y="22" font-size="16" font-weight="600">{title}</text>{maps}</svg>'
        )

    def _draw_map(self, x: int, shares: tuple[tuple[float, ...], ...], label: str) -> str:
        text = f'<text x="{x + LEFT}" y="48" font-size="14" font-weight="600">{escape(label)}</text>'
        for column, word in enumerate(self.words):
            middle = x + LEFT + CELL * column + CELL // 2
            text += f'<text x="{middle}" y="{TOP - 8}" font-size="13" text-anchor="middle">{escape(word)}</text>'
        for row, word in enumerate(self.words):
            y = TOP + CELL * row
            text += f'<text x="{x + LEFT - 8}" y="{y + 31}" font-size="13" text-anchor="end">{escape(word)}</text>'
            text += "".join(_draw_cell(x + LEFT + CELL * column, y, share) for column, share in enumerate(shares[row]))
        return text

    def __str__(self) -> str:
        wide = max(map(len, self.words))
        lines = [self.title]
        for label, shares in zip(self.labels, self.shares, strict=True):
            lines.append(f"{label}:")
            lines += [
                f"  {word:<{wide}}  " + "  ".join(f"{share:.2f}" for share in row)
                for word, row in zip(self.words, shares, strict=True)
            ]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self.svg}


def draw_attention(
    weights: Tensor, words: Sequence[str], labels: Sequence[str], title: str, alt: str
) -> AttentionPicture:
    """Draw the attention maps of one sentence, (heads, L, L) with rows that add up to 1, one beside the other.

    words: L of them. labels: one for each head. title: the finding. alt: what is to be seen, in a sentence.
    Raises ValueError for shapes that do not go together, or for values that are no shares.
    """
    wanted = (len(labels), len(words), len(words))
    if weights.shape != wanted:
        raise ValueError(f"{len(labels)} labels and {len(words)} words go with {wanted}, got {tuple(weights.shape)}")
    if weights.min() < 0 or weights.max() > 1 + 1e-5:
        raise ValueError(f"attention is from 0 to 1, got {weights.min():g} to {weights.max():g}")
    shares = tuple(tuple(tuple(row) for row in head) for head in weights.detach().tolist())
    return AttentionPicture(shares, tuple(words), tuple(labels), title, alt)


def _draw_cell(x: int, y: int, share: float) -> str:
    red, green, blue = (round(255 + (full - 255) * min(share, 1)) for full in FULL)
    return (
        f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" fill="#{red:02x}{green:02x}{blue:02x}" '
        f'stroke="#8a8a8a" stroke-width="1"/><text x="{x + CELL // 2 - 1}" y="{y + 31}" font-size="13" '
        f'text-anchor="middle">{share:.2f}</text>'
    )
