"""The explorer of feature maps: network, layer, channel, and a picture of the course's or a photograph.

A feature map is what one channel of a layer computes from a picture: (h, w). A layer gives (C, h, w) for one picture.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import ipywidgets as widgets
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.explorers.markup import make_label
from course_utils.explorers.own_picture import Chosen, OwnPicture, Subject, load_real, read_scene
from course_utils.explorers.panel import Explorer, View, begin, make_choice, make_slider, name_place
from course_utils.explorers.pointing import PointedPicture
from course_utils.hooks.record import record
from course_utils.root import CourseError
from course_utils.scenes.scene import KINDS, scene
from course_utils.vision import pictures, real
from course_utils.vision.networks import Classifier, load_classifier
from course_utils.vision.scores import share_on
from course_utils.vision.toys import EDGES, make_edge_net

SHOWN_LAYERS = (nn.Conv2d, nn.ReLU, nn.MaxPool2d)
NOISE = 1e-6  # what rounding leaves of a sum that is 0: stretched to full light, it would look like a response
PANEL, THUMB, GAP, WORDS = 220, 79, 4, 20  # pixels: 3 · 220 + 4 · 4 and 8 · 79 + 9 · 4 are about the same
SHEET = 3 * (PANEL + GAP) + GAP, PANEL + THUMB + 2 * WORDS + 4 * GAP
NETWORKS = {
    "picture_net": "the course's network",
    "picture_net_misled": "a second network",
    EDGES: "one 7 x 7 convolution",
    real.REAL: "EfficientNet-Lite0",
}
PICTURES = len(KINDS) * (len(KINDS) - 1)  # one for each pair of things, in both orders
FOR_PHOTOS = (real.REAL, EDGES)  # the networks that are shown photographs; the others know drawn pictures
FIRST_LAYERS = {real.REAL: real.LAYERS[1]}  # where one can see something; of the others, the last


@dataclass(frozen=True, repr=False, eq=False)
class PictureMaps:
    """What one network makes of one picture.

    title: what the picture shows, in words. image: (3, H, W) float32 in [0, 1], as the network sees it.
    masks: for each thing, by its name, where it is: (H, W) bool; empty for a picture without a known truth.
    layers: for each layer that was run, in the order of the run, its maps (C, h, w) float32.
    answer: what the real network says about a photograph, in a sentence.
    """

    network: str
    title: str
    image: Tensor
    masks: Mapping[str, Tensor]
    layers: Mapping[str, Tensor]
    answer: str = ""


@functools.cache
def load_network(network: str) -> Classifier:
    """Load one of `NETWORKS`, once. Raises `CourseError` for weights that cannot be read."""
    if network == EDGES:  # it has a channel for each direction, and takes the pictures that picture_net takes
        own = {"classes": ("right", "left", "down", "up"), "note": "Its four kernels were made by hand."}
        return replace(load_classifier("picture_net"), name=EDGES, model=make_edge_net(), **own)
    return load_real() if network == real.REAL else load_classifier(network)


@functools.lru_cache(maxsize=8)
def find_maps(network: str, picture: Subject) -> PictureMaps:
    """Run a picture through one of `NETWORKS`, and keep the maps of convolutions, ReLUs and pools.

    Of the real network: `real.LAYERS`. The last few are kept. Raises as `load_network`.
    """
    found = load_network(network)
    x = found.transform(picture.image)
    types = {type(module) for module in found.model.modules()}
    shown = real.LAYERS if network == real.REAL else [each for each in SHOWN_LAYERS if each in types]
    with torch.no_grad(), record(found.model, *shown) as seen:
        logits = found.model(x[None])
    answer = ""
    if network == real.REAL:
        ((name, share),) = found.best(logits[0], 1)
        answer = f"{NETWORKS[network]} says: {name} ({share:.0%})."
    layers = {call.layer: torch.where(call.output[0].abs() > NOISE, call.output[0], 0) for call in seen.calls}
    return PictureMaps(network, picture.title, pictures.undo_colours(found, x), picture.masks, layers, answer)


@functools.lru_cache(maxsize=8)
def find_numbered(number: int) -> Subject:
    """Draw picture `number`, from 0 to `PICTURES` - 1, once for the last few: two things, in every combination."""
    first, further = number % len(KINDS), 1 + number // len(KINDS) % (len(KINDS) - 1)
    return read_scene(scene(KINDS[first], KINDS[(first + further) % len(KINDS)], seed=number))


def draw_channel(maps: PictureMaps, layer: str, channel: int, own_scale: bool = False) -> View:
    """Show one channel, from 0: the picture, the map, and the picture lit by the map; below, the strongest ones' maps.

    All maps are on one scale, from 0 to the layer's greatest number, or each is on its own. A layer without negative
    numbers runs from dark (0) to bright; one with them from blue (negative) over white to red.
    """
    whole, one = maps.layers[layer], maps.layers[layer][channel]
    strongest = pictures.find_strongest(whole)
    place = f"greatest {name_place(one)}" if one.any() else "0 everywhere"
    alt = (
        f"{begin(maps.title)}; the map of channel {channel} of layer {layer}, {place}; the picture "
        f"lit by it. Below, the maps of the strongest channels: {', '.join(map(str, strongest))}."
    )
    image = pictures.resize_maps(maps.image, (PANEL, PANEL))
    lit = pictures.light_up(image, one, 0 if own_scale else whole.max().item())
    for mask in maps.masks.values():
        lit = pictures.outline(lit, _resize_nearest(mask.float()[None], PANEL)[0] > 0.5)
    drawn = _resize_nearest(pictures.colour_channel(one, one if own_scale else whole), PANEL)
    labels = ["the picture", f"channel {channel}: {_show_range(one)}", "lit where it responds"]
    sheet = pictures.grid([image, drawn, lit], 3, GAP, labels=labels)
    thumbs = _draw_strongest(maps, layer, own_scale)
    paper = sheet[:, :1, :1].expand(-1, thumbs.shape[1], sheet.shape[2] - thumbs.shape[2])
    sheet = torch.cat([sheet, torch.cat([thumbs, paper], 2)], 1)
    return View(sheet, _tell(maps, layer, channel, strongest, own_scale), alt, facts=strongest)


@functools.lru_cache(maxsize=8)
def _draw_strongest(maps: PictureMaps, layer: str, own_scale: bool) -> Tensor:
    whole = maps.layers[layer]
    strongest = pictures.find_strongest(whole)
    tiles = [pictures.colour_channel(whole[number], whole[number] if own_scale else whole) for number in strongest]
    labels = [f"{number}: max {_show_number(whole[number].max())}" for number in strongest]
    return pictures.grid([_resize_nearest(tile, THUMB) for tile in tiles], pictures.STRONGEST, GAP, labels)


def find_thumb(x: float, y: float) -> int | None:
    """Return the place, from 0, of the small map at a point of the sheet (from 0 to 1 across and down), or None."""
    place = int((x * SHEET[0] - GAP) / (THUMB + GAP))
    return place if y * SHEET[1] > PANEL + WORDS + 2 * GAP and place < pictures.STRONGEST else None


def _show_number(number: Tensor) -> str:
    return f"{number:.2g}" if abs(number) < 100 else f"{number:.0f}"


def _show_range(one: Tensor) -> str:
    return f"from {_show_number(one.min())} to {_show_number(one.max())}"


def _resize_nearest(maps: Tensor, size: int) -> Tensor:
    """(C, h, w) to (C, size, size), each number a block of its own: what the layer gave, and no more."""
    return F.interpolate(maps[None], size=(size, size), mode="nearest")[0]


def _tell(maps: PictureMaps, layer: str, channel: int, strongest: tuple[int, ...], own_scale: bool) -> str:
    count, one = len(maps.layers[layer]), maps.layers[layer][channel]
    size = f"{count} channels of {one.shape[0]} x {one.shape[1]}"
    sentences = [maps.answer] if maps.answer else []
    sentences.append(f"Channel {channel} of layer {layer} ({size}) in {NETWORKS[maps.network]}, for {maps.title}.")
    if not one.any():
        sentences.append("Nothing in this picture makes it respond: it is 0 everywhere.")
    else:
        zeros = f"; {(one == 0).float().mean().item():.0%} of its numbers are 0" if not (one < 0).any() else ""
        sentences.append(f"It goes {_show_range(one)}{zeros}.")
    if maps.masks and (one > 0).any():
        shares = [f"{share_on(one[None], mask)[0].item():.0%} on the {kind}" for kind, mask in maps.masks.items()]
        areas = [f"{mask.float().mean().item():.0%}" for mask in maps.masks.values()]
        cover = "covers" if len(areas) == 1 else "cover"
        response = f"Of its response {' and '.join(shares)}"
        sentences.append(f"{response}, which {cover} {' and '.join(areas)} of the picture.")
    if count > len(strongest):
        rank = f"It is number {strongest.index(channel) + 1}" if channel in strongest else "It is not one"
        sentences.append(f"{rank} of the {len(strongest)} strongest here.")
    if own_scale:
        sentences.append("Each map has its own scale.")
    else:
        most = _show_number(maps.layers[layer].abs().max())
        sentences.append(f"All maps have one scale; its end, {most}, is the layer's greatest number for this picture.")
    return " ".join(sentences)


class FeatureMaps(Explorer):
    """What each channel of each layer of a network makes of a picture of the course, or of a photograph.

    network: one of `NETWORKS`.
    layer, channel: what to show first; without them, the last layer, and the channel that responds most.
    picture: a number from 0 to 89; or, for the real network, the name of one of `real.PHOTOGRAPHS` or a picture of
        one's own, (3, H, W) float in [0, 1]. The course's networks know drawn pictures only.

    A network runs once for each picture; after that, layers and channels are only drawn.
    """

    lines = 6

    def __init__(
        self, network: str = "picture_net", *, layer: str = "", channel: int | None = None, picture: Chosen = 0
    ) -> None:
        own, networks = OwnPicture(picture, drawing=True), {words: name for name, words in NETWORKS.items()}
        shown = widgets.HTML()
        controls = {
            "network": make_choice(widgets.ToggleButtons, "Network", networks, network, width=166),
            "number": make_slider("Picture", 0, PICTURES - 1, 0 if own.value else picture, width=250),
            "own": own,
            **{name: widgets.HTML() for name in ("layer", "channel")},  # `fit` puts sliders there
            "picture": shown,
            "spot": PointedPicture(shown),
            "own_scale": widgets.Checkbox(description="Each map on its own scale", indent=False),
        }
        self._network, self._course = "", "picture_net"
        self._first = (layer, channel)  # what to open at, once
        words = make_label("Small maps: the channels that respond most. Click one.")
        rows = ["network", ("own", "number"), ("layer", "channel"), (words, "own_scale"), ("spot", own.pad), "sentence"]
        super().__init__(controls, rows)

    def look(self, network: str, layer: str, channel: int, own_scale: bool, **_: object) -> View:
        return draw_channel(find_maps(network, self._find_picture()), layer, channel, own_scale)

    def use_spot(self) -> None:
        """Show the channel whose small map was clicked on."""
        (start, _) = self.controls["spot"].value
        place = find_thumb(*start)
        if place is not None and place < len(self.view.facts):
            self.controls["channel"].value = self.view.facts[place]

    def _find_picture(self) -> Subject:
        return self.controls["own"].value or find_numbered(self.controls["number"].value)

    def fit(self, name: str) -> None:
        """Another network has its own layers, another layer its own channels; another picture keeps both.

        The course's networks get the course's pictures, the real one gets photographs.
        """
        network, own = self.controls["network"], self.controls["own"]
        self._keep_apart(name or ("network" if own.value is None else "own"))
        if network.value not in FOR_PHOTOS:
            self._course = network.value  # the one that the course's pictures go back to
        self.controls["number"].layout.visibility = "visible" if own.value is None else "hidden"
        if network.value != self._network or name == "layer":
            self._choose_channel(network)

    def _keep_apart(self, used: str) -> None:
        network, own = self.controls["network"], self.controls["own"]
        if used == "own" and (own.value is None or network.value not in FOR_PHOTOS):
            network.value = self._course if own.value is None else real.REAL
        elif used == "network" and network.value not in FOR_PHOTOS:
            own.choice.value = ""
        elif used == "network" and network.value == real.REAL and own.value is None:
            own.choice.value = next(iter(real.PHOTOGRAPHS))

    def _choose_channel(self, network: widgets.Widget) -> None:
        (layer, channel), self._first = self._first, ("", None)
        try:
            layers = find_maps(network.value, self._find_picture()).layers
        except CourseError:
            network.value = self._network or network.value
            raise
        if network.value != self._network:
            self._network = network.value
            layer = layer or FIRST_LAYERS.get(network.value) or list(layers)[-1]
            self.put("layer", make_choice(widgets.SelectionSlider, "Layer", list(layers), layer, width=400))
        maps = layers[self.controls["layer"].value]
        if channel is None:
            channel = pictures.find_strongest(maps)[0]
        self.put("channel", make_slider("Channel", 0, len(maps) - 1, channel, width=350))
