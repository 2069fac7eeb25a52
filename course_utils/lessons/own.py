"""Any network, any picture: what the network says about it, and what its layers, gradients and maps show."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from course_utils.hooks.record import Recording, find_layers, record
from course_utils.lessons.evidence import cover
from course_utils.root import CourseError
from course_utils.vision import pictures
from course_utils.vision.networks import PICTURE_NETS, RATHER, Classifier, load_classifier
from course_utils.vision.real import REAL
from course_utils.vision.saliency import explain, guided_backprop, input_gradient, relu, scale_to_unit
from course_utils.vision.scores import find_strength

SIDE = 224  # pixels of the shorter side of the pictures that are drawn
LONGEST = 4  # how many times as long as wide a picture may be; of a longer one, only the middle is looked at
WIDEST = 1050  # pixels of the pictures in a row: what a page can show
SAID, EXPLAINED, LIT = 5, 3, 7  # classes that are named, those that get a map, channels that are shown


@dataclass(frozen=True, repr=False)
class OwnLook:
    """A network and a picture that it has looked at.

    shown: the picture as the network sees it, with the proportions of the photograph, (3, H, W) float32 in [0, 1].
    batch: what the model takes, (1, 3, H, W).
    layer: the dotted name of the layer whose maps are shown. maps: these maps, (C, h, w).
    shares: the probability of every class by its name, the likeliest first.
    chosen: what was asked for, a class or "one rather than another"; else empty.
    cut: whether the network sees only the middle of the picture, as torchvision's do of one that is not square.
    """

    network: Classifier
    shown: Tensor
    batch: Tensor
    layer: str
    maps: Tensor
    shares: dict[str, float]
    chosen: str = ""
    cut: bool = False

    @property
    def best(self) -> list[tuple[str, float]]:
        """Name and probability of the most likely classes, the best first."""
        return [*self.shares.items()][:SAID]

    @property
    def asked(self) -> list[str]:
        """The classes that `chosen` names, one or two."""
        return self.chosen.split(RATHER, 1) if self.chosen else []

    def name(self, asked: str, words: str = "") -> str:
        """A class, or `words` about it, with its probability, like "tabby (19%)"; a pair of classes has none."""
        return f"{words or asked} ({self.shares[asked]:.0%})" if asked in self.shares else words or asked

    @property
    def said(self) -> str:
        """The likeliest classes and their probabilities, in words."""
        return ", ".join(f"{name} {share:.0%}" for name, share in self.best)

    def __str__(self) -> str:
        where = f"Layer {self.layer}: {len(self.maps)} maps of {' x '.join(map(str, self.maps.shape[1:]))}."
        if self.chosen:
            where += f"\nYou asked about: {', '.join(map(self.name, self.asked))}."
        if self.cut:
            where += "\nThe network sees only the middle of the picture."
        if self.network.pretrained:
            return f"{self.network.note}\nIt says: {self.said}.\n{where}"
        cure = f"With trained weights: run load_classifier({self.network.name!r}) once, which downloads them."
        return f"{self.network.note}\nIt has learned nothing, so its answers are chance: {self.said}.\n{where}\n{cure}"


def look_at(network: str = "", image: str | os.PathLike | Tensor = "", layer: str = "", chosen: str = "") -> OwnLook:
    """Load a network and a picture, and ask the one about the other.

    network: a name that `load_classifier` takes; its weights are trained ones if they are in torch's cache.
        Photographs go to the real network in the place of the course's own, which knows nothing of them.
    image: a picture's file, or (3, H, W) float in [0, 1]. It keeps its proportions: the real network sees all of it if
        it is at most `LONGEST` times as long as wide, torchvision's networks see the square in its middle.
    layer: a dotted name; empty takes the last layer that makes maps with more than one place.
    chosen: the class to explain, such as "tiger cat" or "tiger cat rather than tabby"; empty takes the likeliest ones.
    Raises as `load_classifier`, `read_picture` and `find_layers` do, and `CourseError` where there are no maps.
    """
    from torchvision.transforms.v2.functional import center_crop  # its import takes seconds, as loading a network does

    if network in ("", *PICTURE_NETS):
        network = (network or PICTURE_NETS[0]) if isinstance(image, Tensor) else REAL
    found = load_classifier(network, pretrained="if cached")
    if chosen:
        found.read_target(chosen)
    image = image if isinstance(image, Tensor) else pictures.read_picture(image)
    longest = LONGEST * min(image.shape[1:])
    batch = found.transform(center_crop(image, [min(side, longest) for side in image.shape[1:]]))[None]
    wanted = list(find_layers(found.model, layer)) if layer else []
    with torch.no_grad(), record(found.model, *(wanted or [nn.Module])) as seen:
        logits = found.model(batch)[0]
    layer = wanted[0] if wanted else _find_last_maps(found, seen)
    maps = seen[layer].calls[-1].output
    if not _has_places(maps):
        raise CourseError(f"layer {layer!r} of {network} returns no maps (1, C, h, w): choose another")
    shown, shares = pictures.undo_colours(found, batch[0]), dict(found.best(logits, len(found.classes)))
    before, after = (each.shape[1] / each.shape[2] for each in (image, shown))
    return OwnLook(found, shown, batch, layer, maps[0], shares, chosen, cut=abs(after / before - 1) > 0.02)


def _find_last_maps(found: Classifier, seen: Recording) -> str:
    """The last layer, by the end of its call, that makes maps, runs once, and is more than a pool or dropout."""
    makers = [
        call.layer
        for call in seen.calls
        if call.layer
        and _has_places(call.output)
        and len(seen[call.layer].calls) == 1
        and call.output.shape[1] != len(found.classes)  # one map a class: the answer itself, not what it is made of
        and not any(word in type(found.model.get_submodule(call.layer)).__name__ for word in ("Pool", "Dropout"))
    ]
    if len(makers) > 1:
        return makers[-1]
    why = "makes maps only in its first layer, before it has looked at anything: choose a network of convolutions"
    raise CourseError(f"{found.name} {why}, such as resnet34")


def _has_places(output: object) -> bool:
    return isinstance(output, Tensor) and output.dim() == 4 and min(output.shape[2:]) > 1


def show_strongest_maps(own: OwnLook, titled: bool = True) -> pictures.Picture:
    """The picture, and over it the maps of the channels of the layer that respond most, each on its own scale."""
    strongest = pictures.find_strongest(own.maps, LIT)
    maps = [relu(own.maps[channel]) for channel in strongest]
    heat = [None, *map(scale_to_unit, maps)]
    labels = [
        "the picture",
        *(_say_zero(f"channel {channel}", each) for channel, each in zip(strongest, maps, strict=True)),
    ]
    sheet = _lay_out([pictures.draw_heat(_fit(own.shown), each, scale=1) for each in heat], labels)
    where = f"layer {own.layer} of {own.network.name}"
    words = f"The picture, and where the strongest channels of {where} respond: {', '.join(labels[1:])}."
    title = f"Where the strongest channels of {where} respond" if titled else None
    return pictures.show(sheet, alt=words, title=title, jpeg=True)


def show_gradients(own: OwnLook, titled: bool = True) -> pictures.Picture:
    """For the chosen or the likeliest class: the strength of the gradient at each pixel, plain and guided.

    A network without a ReLU has no guided gradient; the title says so.
    """
    name = own.chosen or own.best[0][0]
    tiles, labels = [_fit(own.shown)], ["the picture"]
    title = f"Why {own.name(name)}? The root of the gradient's strength at each pixel, so that weak ones are seen"
    for label, method in (("gradient", input_gradient), ("guided", guided_backprop)):
        try:
            strength = find_strength(method(own.network.model, own.batch, own.network.read_target(name)))[0]
        except CourseError:
            title += f"; {own.network.name} has no ReLU, so there is no guided one"
            break
        tiles.append(_fit(scale_to_unit(strength.sqrt()).expand(3, -1, -1)))
        labels.append(_say_zero(label, strength))
    words = f"The picture, {', '.join(labels[1:])}: where a pixel matters for {own.name(name)}, it is bright."
    return pictures.show(_lay_out(tiles, labels), alt=words, title=title if titled else None, jpeg=True)


def show_grad_cams(own: OwnLook, titled: bool = True) -> pictures.Picture:
    """The Grad-CAM maps of the likeliest classes, or of the chosen one, each stretched to its own greatest value.

    "One rather than another" shows the maps of both as well.
    """
    names = [name for name, _ in own.best[:EXPLAINED]]
    if own.chosen:
        names = list(dict.fromkeys([*own.asked, own.chosen]))
    with explain(own.network.model, own.batch, own.layer) as run:
        maps = relu(run.grad_cams([own.network.read_target(name) for name in names]))
    tiles = [pictures.draw_heat(_fit(own.shown), each, scale=1) for each in (None, *scale_to_unit(maps)[:, 0])]
    asked = [own.name(name, f"why {name}?") for name in names]
    labels = ["the picture", *map(_say_zero, asked, maps)]
    where = f"{own.network.name}, layer {own.layer}"
    sheet = _lay_out(tiles, labels)
    alt = f"Grad-CAM of {where}: {', '.join(labels)}."
    return pictures.show(sheet, alt=alt, title=where if titled else None, jpeg=True)


def show_rather(own: OwnLook) -> pictures.Picture:
    """Grad-CAM for the likeliest class rather than for another one, and the other way round.

    The other one is that of the likely classes whose own map is least like that of the first. Likely are those with a
    tenth of its probability or more, and in any case the second.
    """
    (_, highest), *_ = own.best
    likely = [name for name, share in own.best if share >= highest / 10]
    names = likely if len(likely) > 1 else [name for name, _ in own.best[:2]]
    with explain(own.network.model, own.batch, own.layer) as run:
        maps = relu(run.grad_cams([own.network.number_of(name) for name in names])).flatten(1)
        other = names[torch.cosine_similarity(maps[:1], maps).argmin()]
        asked = [f"{names[0]}{RATHER}{other}", f"{other}{RATHER}{names[0]}"]
        maps = relu(run.grad_cams([own.network.read_target(each) for each in asked]))
    tiles = [pictures.draw_heat(_fit(own.shown), each, scale=1) for each in scale_to_unit(maps)[:, 0]]
    labels = [*map(_say_zero, asked, maps)]
    alt = f"Two maps over the picture: {labels[0]}, and {labels[1]}."
    return pictures.show(_lay_out(tiles, labels), alt=alt, jpeg=True)


@torch.no_grad()
def cover_parts(own: OwnLook) -> tuple[list[tuple[int, int, int, int]], list[float]]:
    """Cover the picture with one grey square after another, and ask for the likeliest class each time.

    Returns the squares (top, bottom, left, right), in pixels of what the network sees, and the probabilities: first
    that of the uncovered picture, then as many as there are squares.
    """
    height, width = own.shown.shape[1:]
    side = round(0.36 * min(height, width))
    tops, lefts = (range(0, length - side + 1, round(0.9 * side)) for length in (height, width))
    boxes = [(top, top + side, left, left + side) for top in tops for left in lefts]
    mean, std = (getattr(own.network.transform, name, [rest]) for name, rest in (("mean", 0.0), ("std", 1.0)))
    images = torch.stack([own.shown, *(cover(own.shown, box) for box in boxes)])
    logits = own.network.model((images - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None])
    shares = logits.sigmoid() if own.network.several else logits.softmax(1)
    return boxes, shares[:, own.network.number_of(own.best[0][0])].tolist()


def show_grey_squares(own: OwnLook) -> pictures.Picture:
    """The picture, and the same with the grey square that costs the likeliest class most; the words are about all."""
    (boxes, (before, *left)), name = cover_parts(own), own.best[0][0]
    least, most, middle = min(left), max(left), statistics.median(left)
    tiles = [_fit(own.shown), _fit(cover(own.shown, boxes[left.index(least)]))]
    sheet = _lay_out(tiles, [f"{name}: {before:.0%}", f"covered here: {least:.0%}"])
    words = f"With one of {len(boxes)} grey squares on the picture, it gets {least:.0%} to {most:.0%}"
    alt = f"Uncovered, {name} gets {before:.0%}. {words}, {middle:.0%} in the median. The picture shows the worst one."
    return pictures.show(sheet, alt=alt, jpeg=True)


def _say_zero(label: str, heat: Tensor) -> str:
    """The label of a map that has nothing to show says so."""
    return label if heat.any() else f"{label} zero everywhere"


def _fit(image: Tensor) -> Tensor:
    """The picture with its shorter side `SIDE` pixels long, and its proportions as they are."""
    size = [round(SIDE * side / min(image.shape[1:])) for side in image.shape[1:]]
    return pictures.resize_maps(image, size).clamp(0, 1)


def _lay_out(tiles: list[Tensor], labels: list[str]) -> Tensor:
    """As many beside each other, up to four, as a page can show; and as many in each row."""
    fitting = [n for n in (2, 3, 4) if len(tiles) % n == 0 and n * tiles[0].shape[2] <= WIDEST]
    return pictures.grid(tiles, max(fitting, default=1), 4, labels)
