"""Any network, any picture: what the network says about it, and what its layers, gradients and maps show.

    own = look_at("squeezenet1_1", "photo.jpg")
    print(own)
    show_strongest_maps(own)
    show_gradients(own)
    show_grad_cams(own)

Lessons 05 to 07 end with these, for the network and the picture that their `parameters` name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from course_utils.hooks.record import find_layer, record
from course_utils.root import CourseError
from course_utils.vision.networks import Classifier, load_classifier
from course_utils.vision.pictures import (
    Picture,
    draw_heat,
    find_strongest,
    grid,
    light_up,
    read_picture,
    resize_maps,
    show,
    undo_colours,
)
from course_utils.vision.saliency import (
    explain,
    guided_backprop,
    input_gradient,
    relu,
    scale_to_unit,
)
from course_utils.vision.sanity import find_strength

SIDE = 112  # pixels of the pictures that are drawn; `draw_heat` doubles them
CLASSES = 3
LIT = 8


@dataclass(frozen=True)
class OwnLook:
    """A network and a picture that it has looked at.

    shown: the picture as the network sees it, (3, H, W) float32 in [0, 1]. batch: what the model takes, (1, 3, H, W).
    layer: the dotted name of the layer whose maps are shown. maps: these maps, (C, h, w).
    best: number, name and probability of the most likely classes, the best first.
    """

    network: Classifier
    shown: Tensor = field(repr=False)
    batch: Tensor = field(repr=False)
    layer: str
    maps: Tensor = field(repr=False)
    best: tuple[tuple[int, str, float], ...]

    def __str__(self) -> str:
        said = ", ".join(f"{name} {share:.0%}" for _, name, share in self.best)
        size = " x ".join(map(str, self.maps.shape[1:]))
        lines = [self.network.note, f"It says: {said}.", f"Layer {self.layer}: {len(self.maps)} maps of {size}."]
        if not self.network.pretrained:
            lines[1] = f"It has learned nothing, so its answers are chance: {said}."
            lines.append(
                f"With trained weights: run load_classifier({self.network.name!r}) once, which downloads them."
            )
        return "\n".join(lines)


def look_at(network: str = "picture_net", image: str | os.PathLike | Tensor = "", layer: str = "") -> OwnLook:
    """Load a network and a picture, and ask the one about the other.

    network: a name that `load_classifier` takes; its weights are trained ones if they are in torch's cache.
    image: a picture's file, or (3, H, W) float in [0, 1].
    layer: a dotted name; empty takes the last layer that makes maps with more than one place.
    Raises ValueError for an unknown network, `PictureError` for a file that is no picture, `CourseError` for an unknown
    layer, for one without maps, and for a network whose only maps are those of its first layer.
    """
    found = load_classifier(network, pretrained="if cached")
    picture = image if isinstance(image, Tensor) else read_picture(image)
    batch = found.transform(picture)[None]
    wanted = find_layer(found.model, layer)[0] if layer else ""
    with torch.no_grad(), record(found.model, *([wanted] if wanted else [nn.Module])) as seen:
        logits = found.model(batch)[0]
    chosen = wanted or _find_last_maps(found, seen.calls)
    maps = seen[chosen].calls[-1].output
    if not _has_places(maps):
        raise CourseError(f"layer {chosen!r} of {network} returns {_shape(maps)}, no maps (1, C, h, w): choose another")
    numbers = logits.argsort(descending=True)[:CLASSES].tolist()
    best = [(k, *answer) for k, answer in zip(numbers, found.best(logits, CLASSES), strict=True)]
    return OwnLook(found, undo_colours(found, batch[0]), batch, chosen, maps[0], tuple(best))


def _find_last_maps(found: Classifier, calls: Sequence) -> str:
    """The last layer, by the end of its call, that makes maps, runs once, and is more than a pool or dropout."""
    names = [call.layer for call in calls]
    makers = [
        call.layer
        for call in calls
        if _has_places(call.output)
        and names.count(call.layer) == 1
        and call.layer
        and call.output.shape[1] != len(found.classes)  # one map a class: the answer itself, not what it is made of
        and not any(word in type(found.model.get_submodule(call.layer)).__name__ for word in ("Pool", "Dropout"))
    ]
    if len(makers) < 2:
        raise CourseError(
            f"{found.name} makes maps only in its first layer, before it has looked at anything: choose a network of "
            "convolutions, such as resnet34"
        )
    return makers[-1]


def _has_places(output: object) -> bool:
    return isinstance(output, Tensor) and output.dim() == 4 and min(output.shape[2:]) > 1


def _shape(output: object) -> str:
    return str(tuple(output.shape)) if isinstance(output, Tensor) else type(output).__name__


def show_strongest_maps(own: OwnLook) -> Picture:
    """The picture, lit by the channels of the layer that respond most."""
    strongest = find_strongest(own.maps, LIT)
    picture = _small(own.shown)
    tiles = [light_up(picture, own.maps[channel]) for channel in strongest]
    labels = [f"channel {channel}" for channel in strongest]
    words = f"The picture, lit where the strongest channels of layer {own.layer} respond: {', '.join(labels)}."
    return show(
        grid(tiles, columns=4, scale=2, labels=labels), alt=words, title=f"{own.network.name}, layer {own.layer}"
    )


def show_gradients(own: OwnLook) -> Picture:
    """For the most likely class: the strength of the gradient at each pixel, plain and guided, side by side.

    A network without a ReLU has no guided gradient; the title says so.
    """
    number, name, _ = own.best[0]
    tiles, labels = [_small(own.shown)], ["the picture"]
    title = f"Why {name}? The strength of the gradient at each pixel"
    for label, method in (("gradient", input_gradient), ("guided", guided_backprop)):
        try:
            strength = find_strength(method(own.network.model, own.batch, number))[0]
        except CourseError:
            title += f"; {own.network.name} has no ReLU, so there is no guided one"
            continue
        tiles.append(_small(scale_to_unit(strength.sqrt()).expand(3, -1, -1)))  # the root: weak ones are seen as well
        labels.append(label)
    words = f"{', '.join(labels)}: where a pixel matters for {name}, it is bright."
    return show(grid(tiles, columns=len(tiles), scale=2, labels=labels), alt=words[0].upper() + words[1:], title=title)


def show_grad_cams(own: OwnLook) -> Picture:
    """The Grad-CAM maps of the most likely classes, each stretched to its own greatest value, over the picture."""
    with explain(own.network.model, own.batch, own.layer) as run:
        heat = scale_to_unit(relu(run.grad_cams([number for number, _, _ in own.best])))[:, 0]
    picture = _small(own.shown)
    tiles = [draw_heat(picture)] + [draw_heat(picture, each) for each in heat]
    labels = ["the picture"] + [f"why {name}? ({share:.0%})" for _, name, share in own.best]
    where = f"{own.network.name}, layer {own.layer}"
    return show(
        grid(tiles, columns=len(tiles), labels=labels), alt=f"Grad-CAM of {where}: {', '.join(labels)}.", title=where
    )


def _small(image: Tensor) -> Tensor:
    return resize_maps(image, (SIDE, SIDE)).clamp(0, 1)
