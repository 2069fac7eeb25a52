"""Feature maps: all of a network's for one picture, told as a picture and a sentence; and what channels follow.

    views = view_picture("picture_net", scene("cat", "boat", seed=3).image)
    story = tell_channel(views, "features.13", channel=44)
    story.picture, story.sentence, story.strongest

A feature map is what one channel of a layer computes from a picture: (h, w). A layer gives (C, h, w) for one picture.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.hooks.record import record
from course_utils.scenes.scene import (
    KINDS,
    Scene,
    scene,
)
from course_utils.vision.networks import Classifier, load_classifier
from course_utils.vision.pictures import (
    STRONGEST,
    Picture,
    colour_channel,
    find_strongest,
    grid,
    light_up,
    outline,
    png,
    resize_maps,
    undo_colours,
)
from course_utils.vision.scores import share_on
from course_utils.vision.toys import EDGES, make_edge_net

SHOWN_LAYERS = (nn.Conv2d, nn.ReLU, nn.MaxPool2d)
NOISE = 1e-6
PANEL, THUMB, GAP = 220, 79, 4  # pixels: 3 · 220 + 4 · 4 and 8 · 79 + 9 · 4 are about the same
NETWORKS = {
    "picture_net": "the course's network",
    "picture_net_misled": "its misled twin",
    EDGES: "one 7 x 7 convolution",
    "alexnet": "AlexNet",
    "resnet34": "ResNet-34",
}


class MapError(ValueError):
    """A network, layer or channel that does not exist; the message says what there is."""


# --- all maps of a network for one picture ----------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, eq=False)  # each is a key for what was drawn of it
class Views:
    """What one network makes of one picture.

    image: (3, H, W) float32 in [0, 1], the picture as the network sees it: resized and cropped.
    masks: for each thing, by its name, where it is: (H, W) bool; empty for a picture without a known truth.
    layers: for each layer that was run, in the order of the run, its maps (C, h, w) float32.
    title: what the picture shows, in words.
    """

    network: str
    title: str
    image: Tensor
    masks: Mapping[str, Tensor]
    layers: Mapping[str, Tensor]
    note: str


@functools.lru_cache(maxsize=len(NETWORKS))
def load_network(network: str) -> Classifier:
    """Load one of `NETWORKS`, once; torchvision's with trained weights if they are cached, else with random ones.

    Raises `MapError` for another name, `networks.WeightsError` for weights that cannot be read.
    """
    if network not in NETWORKS:
        raise MapError(f"{network!r} is not a network here{_nearest(network, NETWORKS)}; there are: {_list(NETWORKS)}.")
    if network != EDGES:
        return load_classifier(network, pretrained="if cached")
    own = load_classifier("picture_net")
    words = "Its four kernels were made by hand."
    return Classifier(EDGES, make_edge_net(), own.transform, ("right", "left", "down", "up"), True, True, words)


def view_picture(network: str, picture: Scene | Tensor, title: str = "your own picture") -> Views:
    """Run a picture through one of `NETWORKS` and keep the maps of its convolutions, ReLUs and pools.

    picture: a scene, or (3, H, W) float in [0, 1], of which `title` says what it shows.
    A layer that runs several times has the number of the run after its name. Raises as `load_network` does.
    """
    found = load_network(network)
    if isinstance(picture, Scene):
        image, title, masks = picture.image, str(picture), dict(zip(picture.labels, picture.masks, strict=True))
    else:
        image, masks = picture, {}
    x = found.transform(image)
    with torch.no_grad(), record(found.model, *_shown_types(found.model)) as seen:
        found.model(x[None])
    layers: dict[str, Tensor] = {}
    for call in seen.calls:
        if call.output.dim() != 4:  # a ReLU between linear layers makes no maps
            continue
        runs = len(seen[call.layer].calls)
        number = sum(name.split(" ")[0] == call.layer for name in layers) + 1
        layers[call.layer if runs == 1 else f"{call.layer} (run {number})"] = _without_noise(call.output[0])
    return Views(
        network=network,
        title=title,
        image=undo_colours(found, x),
        masks={kind: undo_colours(found, found.transform(_as_picture(mask)))[0] > 0.5 for kind, mask in masks.items()},
        layers=layers,
        note=found.note.split(":")[0].rstrip(".") + ".",  # without the folder that the weights would be in
    )


def _without_noise(maps: Tensor) -> Tensor:
    """Make 0 what rounding left of a sum that is 0: stretched to full light, it would look like a response."""
    return torch.where(maps.abs() > NOISE, maps, 0)


def _shown_types(model: nn.Module) -> list[type[nn.Module]]:
    types = {type(module) for module in model.modules()}
    return [shown for shown in SHOWN_LAYERS if shown in types]


def _as_picture(mask: Tensor) -> Tensor:
    return mask.float().expand(3, -1, -1)


def _nearest(name: object, names: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(str(name), list(names), n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def _list(names: Mapping[str, object]) -> str:
    return ", ".join(names)


# --- one channel ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class ChannelStory:
    """One channel of one layer: the picture (PNG), its sentence, and the channels that respond most here."""

    layer: str
    channel: int
    picture: Picture
    sentence: str
    strongest: tuple[int, ...]


def tell_channel(views: Views, layer: str, channel: int | None = None) -> ChannelStory:
    """Show one channel: the picture, the map, and the picture lit by the map; below, the strongest channels' maps.

    channel: from 0; None takes the strongest. A map without negative numbers runs from dark (0) to bright; one with
        them from blue (negative) over white (0) to red.
    Raises `MapError` for a layer or a channel that does not exist.
    """
    maps = _find_maps(views, layer)
    strongest = find_strongest(maps)
    channel = strongest[0] if channel is None else channel
    if not 0 <= channel < len(maps):
        raise MapError(f"{layer} has the channels 0 to {len(maps) - 1}, not {channel!r}.")
    sentence = _describe(views, layer, channel, strongest)
    alt = f"The picture, the map of channel {channel} of layer {layer}, the picture lit by it; strongest ones below."
    return ChannelStory(layer, channel, Picture(png(_draw(views, layer, channel)), alt), sentence, strongest)


def _find_maps(views: Views, layer: str) -> Tensor:
    if layer not in views.layers:
        near = _nearest(layer, views.layers)
        raise MapError(f"{layer!r} is not a layer shown here{near}; there are: {_list(views.layers)}.")
    return views.layers[layer]


def _draw(views: Views, layer: str, channel: int) -> Tensor:
    """(3, H, W) float32: three large panels in a row, and a row of small ones."""
    image, lines, sheet = _draw_frame(views, layer)
    sheet, one = sheet.clone(), views.layers[layer][channel]
    lit = light_up(image, one)
    for place, panel in ((1, _resize_nearest(colour_channel(one), PANEL)), (2, torch.where(lines == 0.5, lit, lines))):
        left = GAP + place * (PANEL + GAP)
        sheet[:, GAP : GAP + PANEL, left : left + PANEL] = panel
    return sheet


@functools.lru_cache(maxsize=8)
def _draw_frame(views: Views, layer: str) -> tuple[Tensor, Tensor, Tensor]:
    """What is the same for every channel: the picture, the outlines on even grey, and the sheet without the channel."""
    image = resize_maps(views.image, (PANEL, PANEL))
    lines = torch.full_like(image, 0.5)
    for mask in views.masks.values():
        lines = outline(lines, _resize_nearest(mask.float()[None], PANEL)[0] > 0.5)
    labels = ["the picture", "the channel's map", "lit where it responds"]
    panels = grid([image] * 3, columns=3, padding=GAP, labels=labels)
    maps = views.layers[layer]
    strongest = find_strongest(maps)
    tiles = [_resize_nearest(colour_channel(maps[number]), THUMB) for number in strongest]
    thumbs = grid(tiles, columns=STRONGEST, padding=GAP, labels=[str(number) for number in strongest])
    paper = panels[:, :1, :1]
    width = max(panels.shape[2], thumbs.shape[2])
    rows = [torch.cat([row, paper.expand(-1, row.shape[1], width - row.shape[2])], 2) for row in (panels, thumbs)]
    return image, lines, torch.cat(rows, 1)


def _resize_nearest(maps: Tensor, size: int) -> Tensor:
    """(C, h, w) to (C, size, size), each number a block of its own: what the layer gave, and no more."""
    return F.interpolate(maps[None], size=(size, size), mode="nearest")[0]


def _describe(views: Views, layer: str, channel: int, strongest: Sequence[int]) -> str:
    maps = views.layers[layer]
    one = maps[channel]
    size = f"{len(maps)} channels of {one.shape[0]} x {one.shape[1]}"
    if not one.any():
        seen = "Nothing in this picture makes it respond: it is 0 everywhere."
    else:
        zeros = f"; {(one == 0).float().mean().item():.0%} of its numbers are 0" if not (one < 0).any() else ""
        seen = f"It goes from {_number(one.min())} to {_number(one.max())}{zeros}."
        if views.masks and (one > 0).any():
            seen += f" {_tell_shares(one, views.masks)}"
    rank = f"It is number {strongest.index(channel) + 1}" if channel in strongest else "It is not one"
    order = f"{rank} of the {len(strongest)} strongest here." if len(maps) > len(strongest) else ""
    where = f"Channel {channel} of layer {layer} ({size}) in {NETWORKS[views.network]}, for {views.title}."
    words = views.note if "random" in views.note else ""
    return " ".join(filter(None, [where, seen, order, words]))


def _tell_shares(one: Tensor, masks: Mapping[str, Tensor]) -> str:
    shares, areas = [], []
    for kind, mask in masks.items():
        shares.append(f"{share_on(one[None], mask)[0].item():.0%} on the {kind}")
        areas.append(f"{mask.float().mean().item():.0%}")
    covers = "which covers" if len(masks) == 1 else "which cover"
    return f"Of its response {' and '.join(shares)}, {covers} {' and '.join(areas)} of the picture."


def _number(value: Tensor) -> str:
    number = value.item()
    return f"{number:.2g}" if abs(number) < 100 else f"{number:.0f}"


# --- pictures for the explorer ----------------------------------------------------------------------------------------


PICTURES = len(KINDS) * (len(KINDS) - 1)  # one for each pair of things, in both orders


def numbered_scene(number: int) -> Scene:
    """Draw picture `number`, from 0 to `PICTURES` - 1: two things, in every combination. Raises MapError for others."""
    if not 0 <= number < PICTURES:
        raise MapError(f"the pictures have the numbers 0 to {PICTURES - 1}, not {number!r}.")
    first = number % len(KINDS)
    second = (first + 1 + number // len(KINDS) % (len(KINDS) - 1)) % len(KINDS)
    return scene(KINDS[first], KINDS[second], seed=number)


@functools.lru_cache(maxsize=8)
def view_numbered(network: str, number: int) -> Views:
    """Run picture `number` through one of `NETWORKS`; the last few are kept. Raises as `view_picture` does."""
    return view_picture(network, numbered_scene(number))
