"""Figures of one lesson: the gates and the cascade of 06, the layers, tokens and attention of 11."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

from torch import Tensor

from course_utils.root import CourseError
from course_utils.vision.charts import BLUE, GREEN, GREY, INK, ORANGE, canvas
from course_utils.vision.pictures import Picture, figure_with_alt

_LINES = ((BLUE, "o", "-"), (ORANGE, "s", "--"), (GREEN, "^", "-."), (INK, "D", ":"))

RULES = {  # which gate opens, for an output f and an arriving gradient R
    "backprop": ("opens where f > 0", lambda f, r: f > 0),
    "deconvnet": ("opens where R > 0", lambda f, r: r > 0),
    "guided": ("opens where both are", lambda f, r: f > 0 and r > 0),
}


def draw_attention(weights: Tensor, words: Sequence[str], labels: Sequence[str], title: str, alt: str) -> Picture:
    """Draw the attention maps of one sentence, (heads, L, L) with rows that add up to 1, one beside the other.

    A row is a word that looks, a column a word that is looked at. words: L of them. labels: one for each head.
    title: the finding. alt: what is to be seen, in a sentence. Raises `CourseError` for shapes that do not go together.
    """
    wanted = (len(labels), len(words), len(words))
    if weights.shape != wanted:
        raise CourseError(f"{len(labels)} labels and {len(words)} words go with {wanted}, got {tuple(weights.shape)}")
    from matplotlib.colors import LinearSegmentedColormap

    pale = LinearSegmentedColormap.from_list("pale", ["white", "#8fbcf0"])  # dark numbers can be read on all of it
    length, wide, lines = len(words), max(map(len, words)), [title]
    axes = canvas(0.52 * len(labels) * (length + 1.6), 0.52 * (length + 1.4), title)
    axes.set(xlim=(-1.2, len(labels) * (length + 1.6) - 1.2), ylim=(length + 0.2, -1.2))
    for number, (label, shares) in enumerate(zip(labels, weights.tolist(), strict=True)):
        left = number * (length + 1.6)
        edges = [left + column for column in range(length + 1)]
        axes.pcolormesh(edges, range(length + 1), shares, cmap=pale, vmin=0, vmax=1, edgecolors=GREY, linewidth=0.5)
        axes.text(left, -0.75, label, weight="bold")
        lines.append(f"{label}:")
        for row, (word, found) in enumerate(zip(words, shares, strict=True)):
            lines.append(f"  {word:<{wide}}  " + "  ".join(f"{share:.2f}" for share in found))
            axes.text(left - 0.15, row + 0.5, word, ha="right", va="center")
            axes.text(left + row + 0.5, -0.15, word, ha="center")
            for column, share in enumerate(found):
                axes.text(left + column + 0.5, row + 0.5, f"{share:.2f}", ha="center", va="center", fontsize=9)
    return figure_with_alt(axes.figure, alt, text="\n".join(lines))


def draw_rules(outputs: Sequence[float], arriving: Sequence[float], title: str) -> Picture:
    """Draw units that put out `outputs` in forward and get the gradients `arriving` in backward, a row for each.

    A gate for each of the three `RULES` is open (an arrow) or closed (a cross), with what it lets through beside it.
    """
    axes = canvas(6.8, 0.7 + 0.56 * len(outputs), title)
    axes.set(xlim=(0, 6.8), ylim=(len(outputs) - 0.4, -1.2))
    units = list(zip(outputs, arriving, strict=True))
    passed = {rule: [r if opens(f, r) else 0 for f, r in units] for rule, (_, opens) in RULES.items()}
    for column, (rule, (words, opens)) in enumerate(RULES.items()):
        x = 2.3 + 1.54 * column
        axes.text(x, -0.9, rule, weight="bold")
        axes.text(x, -0.6, words, fontsize=9)
        for row, number in enumerate(passed[rule]):
            mark, colour = ("\u2192", BLUE) if opens(*units[row]) else ("\u00d7", ORANGE)  # arrow, cross
            gate = {"boxstyle": "round", "facecolor": "white", "edgecolor": colour, "linewidth": 2}
            axes.text(x + 0.18, row, mark, color=colour, size=15, ha="center", va="center", weight="bold", bbox=gate)
            axes.text(x + 0.5, row, f"{number:g}", size=14, va="center", weight="bold")
    lines = [title, "  unit  puts out f  arriving R  " + "  ".join(f"{rule:>9}" for rule in RULES)]
    for row, (f, r, *found) in enumerate(zip(outputs, arriving, *passed.values(), strict=True)):
        axes.text(0.2, row, row + 1, ha="center", va="center", bbox={"boxstyle": "circle", "fill": False})
        axes.text(0.55, row, f"put out f = {f:g}\narriving R = {r:g}", va="center")
        lines.append(f"  {row + 1:4}  {f:10g}  {r:10g}  " + "  ".join(f"{number:9g}" for number in found))
    told = "; ".join(f"{rule} lets through {', '.join(f'{n:g}' for n in numbers)}" for rule, numbers in passed.items())
    return figure_with_alt(axes.figure, f"{title}. Of the units from the first to the last, {told}.", "\n".join(lines))


def draw_cascade(layers: Sequence[str], curves: Mapping[str, Sequence[float]], title: str, alt: str) -> Picture:
    """Draw how the similarity with the original map falls, one labelled line a method, one step a layer.

    layers: the name of the layer that became random at each step. curves: for each method, best not more than four, a
    similarity for each step.
    """
    axes = canvas(6.2, 3.4, title)
    axes.axis("on")
    axes.axhline(0, color=GREY, linewidth=1)
    for (method, values), (colour, marker, style) in zip(curves.items(), cycle(_LINES), strict=False):
        axes.plot(values, color=colour, marker=marker, linestyle=style, linewidth=2, label=method)
    axes.set_xticks(range(len(layers)), layers)
    axes.set(xlabel="random, from the last layer down to", ylabel="rank correlation with the original map")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=3)
    return figure_with_alt(axes.figure, alt)


def draw_places(shares: Tensor, words: Sequence[str], layers: Sequence[int], title: str, alt: str) -> Picture:
    """Draw a table of shares (layers, T), where 0 is white and 1 is full blue: a row a layer, a column a token.

    words: the T tokens. layers: the numbers of the rows. title: the finding. alt: what is to be seen, in a sentence.
    """
    from matplotlib.colors import LinearSegmentedColormap

    pale = LinearSegmentedColormap.from_list("pale", ["white", "#8fbcf0"])
    axes = canvas(0.85 * len(words) + 0.8, 0.3 * (len(layers) + 1), title)
    axes.set(xlim=(-0.9, len(words) + 0.05), ylim=(len(layers) + 0.05, -1))
    edges = [range(len(words) + 1), range(len(layers) + 1)]
    axes.pcolormesh(*edges, shares.tolist(), cmap=pale, vmin=0, vmax=1, edgecolors=GREY, linewidth=0.5)
    for column, word in enumerate(words):
        axes.text(column + 0.5, -0.3, word.strip(), ha="center", weight="bold")
    lines = [title, "  layer  " + "  ".join(f"{word.strip():>9}" for word in words)]
    for row, (layer, found) in enumerate(zip(layers, shares.tolist(), strict=True)):
        axes.text(-0.1, row + 0.5, f"layer {layer}", ha="right", va="center")
        shown = [f"{abs(round(100 * share))}%" if round(100 * share) == 0 else f"{share:.0%}" for share in found]
        lines.append(f"  {layer:5}  " + "  ".join(f"{share:>9}" for share in shown))
        for column, share in enumerate(shown):
            axes.text(column + 0.5, row + 0.5, share, ha="center", va="center", fontsize=9)
    return figure_with_alt(axes.figure, alt, text="\n".join(lines))
