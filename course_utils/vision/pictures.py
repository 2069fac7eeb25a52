"""Tensors to pictures, and files to tensors: colour maps, overlays, outlines, grids, fast PNG, alt text in notebooks.

A picture is a tensor (3, H, W), float in [0, 1] or uint8 in 0…255; a map is (H, W), float in [0, 1]. The functions up
to `outline` take any number of leading dimensions before these, and return float32.

    show(overlay(image, normalise(heat)), alt="The map is brightest on the cat.")
"""

from __future__ import annotations

import base64
import functools
import io
import operator
import os
import struct
import textwrap
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageColor, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from course_utils.vision.networks import Classifier
from course_utils.vision.scores import grow, point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colour maps that keep their order for colour-blind readers and in grey print, by matplotlib's names. The last two have
# a neutral middle, for values around zero: `centre` scales those.
COLOURS = ("viridis", "magma", "inferno", "plasma", "cividis", "gray", "RdBu_r", "PuOr")

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
MOST_PIXELS = 50_000_000  # of a file to read: more than any phone's camera takes, decoded in 200 MB

PAPER, INK = (246, 246, 244), (24, 24, 28)  # of titles and labels: their own ground reads in light and dark themes
_FONT_PIXELS = 13


class PictureError(ValueError):
    """A file that is no picture one could use; the message says why, and what to give instead."""


# --- maps -------------------------------------------------------------------------------------------------------------


def normalise(values: Tensor, dims: int = 2) -> Tensor:
    """Stretch each map to [0, 1]: its least value becomes 0, its greatest 1; a constant map becomes all 0.

    values: (..., H, W) of any number type; `dims=2` takes every (H, W) for itself, `dims=3` every (C, H, W) together,
        so that channels keep their proportions. Returns float32 of the same shape.
    Raises ValueError for values that are not finite, fewer dimensions than `dims`, or an empty tensor.
    """
    values = _finite(values, dims)
    last = tuple(range(-dims, 0))
    low, high = values.amin(last, keepdim=True), values.amax(last, keepdim=True)
    span = high - low
    return torch.where(span > 0, (values - low) / span.where(span > 0, 1), 0)


def centre(values: Tensor, dims: int = 2) -> Tensor:
    """Scale each map to [0, 1] with zero at one half, for a colour map with a neutral middle such as "RdBu_r".

    The greatest absolute value becomes 0 or 1; all zeros become 0.5. Shapes and errors as in `normalise`.
    """
    values = _finite(values, dims)
    most = values.abs().amax(tuple(range(-dims, 0)), keepdim=True)
    return 0.5 + values / (2 * most.where(most > 0, 1))


def _finite(values: Tensor, dims: int) -> Tensor:
    """`values` as detached float32 on the CPU; half precision or whole numbers could overflow in a difference."""
    if dims not in (2, 3):
        raise ValueError(f"dims is 2 for each map or 3 for each picture, got {dims!r}")
    if values.dim() < dims or not values.numel():
        raise ValueError(f"expected maps (..., {'C, ' * (dims == 3)}H, W) with values, got shape {tuple(values.shape)}")
    values = values.detach().to("cpu", torch.float32)
    if not values.isfinite().all():
        count = int((~values.isfinite()).sum())
        raise ValueError(f"{count} of {values.numel()} values are nan or infinite: look where they come from")
    return values


def colourise(maps: Tensor, colours: str = "viridis") -> Tensor:
    """Give each value of a map its colour: (..., H, W) in [0, 1] to (..., 3, H, W) in [0, 1].

    colours: one of `COLOURS`. Raises ValueError for another name, or for values out of range (`normalise` them first).
    """
    table = _colour_table(colours)
    maps = _finite(maps, 2)
    low, high = maps.min().item(), maps.max().item()
    if low < -1e-6 or high > 1 + 1e-6:
        raise ValueError(f"a map to colour has values in [0, 1], got {low:g} to {high:g}: normalise(map) stretches it")
    index = (maps * (len(table) - 1)).round().long().clamp(0, len(table) - 1)
    return table[index].movedim(-1, -3)


@functools.cache
def _colour_table(colours: str) -> Tensor:
    """(256, 3) float32 in [0, 1]."""
    if colours not in COLOURS:
        raise ValueError(f"{colours!r} is not a colour map here; there are: {', '.join(COLOURS)}")
    import matplotlib  # takes a tenth of a second, and not everyone colours maps

    steps = matplotlib.colormaps[colours](np.arange(256))[:, :3]
    return torch.from_numpy(steps.astype(np.float32))


def overlay(images: Tensor, heat: Tensor, opacity: float = 0.5, colours: str = "inferno") -> Tensor:
    """Lay coloured maps over pictures: (..., 3, H, W) and (..., h, w) in [0, 1] to (..., 3, H, W).

    heat: of the same leading dimensions; resized to H x W bilinearly with `align_corners=False`.
    opacity: 0 shows the picture only, 1 the map only.
    Raises ValueError for shapes that do not go together, an opacity or values out of range, an unknown colour map.
    """
    images = as_floats(images)
    if heat.shape[:-2] != images.shape[:-3] or heat.dim() < 2:
        wanted = (*images.shape[:-3], "h", "w")
        raise ValueError(
            f"pictures {tuple(images.shape)} go with maps ({', '.join(map(str, wanted))}), got {tuple(heat.shape)}"
        )
    if not 0 <= opacity <= 1:
        raise ValueError(f"opacity is from 0 (picture only) to 1 (map only), got {opacity!r}")
    coloured = colourise(resize_maps(heat, images.shape[-2:]), colours)
    return images + opacity * (coloured - images)


def resize_maps(maps: Tensor, size: Sequence[int]) -> Tensor:
    """(..., h, w) to (..., *size), bilinear with `align_corners=False`: the convention of the whole course."""
    maps = _finite(maps, 2)
    flat = maps.reshape(-1, 1, *maps.shape[-2:])
    resized = F.interpolate(flat, size=tuple(size), mode="bilinear", align_corners=False)
    return resized.reshape(*maps.shape[:-2], *size)


def outline(images: Tensor, masks: Tensor, colour: str = "white", width: int = 1) -> Tensor:
    """Draw the border of masks into pictures: (..., 3, H, W) and (..., H, W) bool to (..., 3, H, W).

    The outermost `width` pixels inside the mask get the colour (a name or "#rrggbb"), as many outside a contrasting
    black or white, so that the line is seen on any ground. Nothing is drawn along the picture's edge.
    Raises ValueError for other shapes, an unknown colour or a width below 1, TypeError for masks that are not bool.
    """
    images = as_floats(images)
    if masks.dtype != torch.bool:
        raise TypeError(f"masks are bool, got {masks.dtype}: compare first, as in `mask > 0`")
    if masks.shape != (*images.shape[:-3], *images.shape[-2:]):
        raise ValueError(f"pictures {tuple(images.shape)} and masks {tuple(masks.shape)} do not go together")
    width = _whole(width, "width", 1, 64)
    red, green, blue = rgb = ImageColor.getrgb(colour)[:3]
    around = 1.0 if 0.299 * red + 0.587 * green + 0.114 * blue < 128 else 0.0
    masks = masks.to("cpu")
    inside, outside = masks & _grow(~masks, width), ~masks & _grow(masks, width)
    line = torch.tensor(rgb, dtype=torch.float32)[:, None, None] / 255
    images = torch.where(outside.unsqueeze(-3), around, images)
    return torch.where(inside.unsqueeze(-3), line, images)


def _grow(masks: Tensor, width: int) -> Tensor:
    """Add the pixels up to `width` rows or columns away. What lies beyond the picture's edge adds nothing."""
    flat = masks.reshape(-1, 1, *masks.shape[-2:]).float()
    return F.max_pool2d(flat, 2 * width + 1, stride=1, padding=width).reshape(masks.shape) > 0


def as_floats(images: Tensor) -> Tensor:
    """Pictures (..., 3, H, W), uint8 or float in [0, 1], as detached float32 on the CPU.

    Raises ValueError for another shape and for values that are out of range or not finite.
    """
    if images.dim() < 3 or images.shape[-3] != 3 or not images.numel():
        raise ValueError(f"expected pictures (..., 3, H, W), got shape {tuple(images.shape)}")
    if images.dtype == torch.uint8:
        return images.detach().to("cpu", torch.float32) / 255
    images = _finite(images, 3)
    low, high = images.min().item(), images.max().item()
    if low < -1e-6 or high > 1 + 1e-6:
        raise ValueError(f"float pictures have values in [0, 1], got {low:g} to {high:g}: normalise(image, dims=3)?")
    return images.clamp(0, 1)


# --- grids ------------------------------------------------------------------------------------------------------------


def grid(
    pictures: Tensor | Sequence[Tensor],
    columns: int | None = None,
    padding: int = 4,
    labels: Sequence[str] | None = None,
    scale: int = 1,
) -> Tensor:
    """Put equally large pictures side by side: N of (3, H, W), or maps (H, W) in grey, to one picture (3, H', W').

    columns: how many in a row; None makes the grid about square.
    padding: pixels between and around them.
    labels: a short text under each, cut off where it is wider than the picture.
    scale: how often each pixel is repeated, to see small maps pixel by pixel.
    Raises ValueError for no pictures, unequal shapes, or not as many labels as pictures.
    """
    tiles = [_in_three_channels(tile) for tile in pictures]
    shapes = sorted({tuple(tile.shape) for tile in tiles})
    if len(shapes) != 1 or len(shapes[0]) != 3:
        raise ValueError(f"a grid takes one or more equally large pictures, got {shapes or 'none'}")
    if labels is not None and len(labels) != len(tiles):
        raise ValueError(f"{len(tiles)} pictures need as many labels, got {len(labels)}")
    columns = _whole(columns or int(np.ceil(np.sqrt(len(tiles)))), "columns", 1, 10_000)
    padding = _whole(padding, "padding", 0, 1000)
    stacked = _repeat_pixels(as_floats(torch.stack(tiles)), scale)
    if labels is not None:
        strips = [_draw_text([label], stacked.shape[-1]) for label in labels]
        stacked = torch.cat([stacked, torch.stack(strips)], dim=-2)
    height, width = (side + padding for side in stacked.shape[-2:])
    columns = min(columns, len(tiles))
    rows = -(-len(tiles) // columns)
    paper = torch.tensor(PAPER, dtype=torch.float32)[:, None, None] / 255
    sheet = paper.repeat(1, rows * height + padding, columns * width + padding)
    for number, tile in enumerate(stacked):
        top, left = (number // columns) * height + padding, (number % columns) * width + padding
        sheet[:, top : top + tile.shape[-2], left : left + tile.shape[-1]] = tile
    return sheet


def _in_three_channels(image: Tensor) -> Tensor:
    """A map (H, W) as a grey picture; a picture as it is."""
    return image.expand(3, -1, -1) if image.dim() == 2 else image


def _repeat_pixels(images: Tensor, times: int) -> Tensor:
    times = _whole(times, "scale", 1, 64)
    return images.repeat_interleave(times, -2).repeat_interleave(times, -1) if times > 1 else images


def _draw_text(lines: Sequence[str], width: int) -> Tensor:
    """A strip of text (3, H, width), dark on light."""
    height = len(lines) * (_FONT_PIXELS + 4) + 3
    strip = Image.new("RGB", (width, height), PAPER)
    pencil = ImageDraw.Draw(strip)
    for number, text in enumerate(lines):
        pencil.text((2, 2 + number * (_FONT_PIXELS + 4)), text, fill=INK, font=_font())
    return torch.from_numpy(np.array(strip)).movedim(-1, 0).float() / 255


@functools.cache
def _font() -> Any:
    try:
        return ImageFont.load_default(_FONT_PIXELS)
    except (TypeError, ImportError):  # Pillow 10.0 takes no size, and one without FreeType has only a small bitmap font
        return ImageFont.load_default()


# --- PNG and notebooks ------------------------------------------------------------------------------------------------


def png(image: Tensor, small: bool = False) -> bytes:
    """Encode a picture (3, H, W) or a grey map (H, W) as PNG: 2 ms for 224 x 224.

    small: take twice as long for an eighth fewer bytes, for a picture that is stored in a notebook.
    """
    image = as_floats(_in_three_channels(image))
    if image.dim() != 3:
        raise ValueError(f"one PNG holds one picture (3, H, W), got {tuple(image.shape)}: grid() joins several")
    pixels = (image * 255).round().to(torch.uint8).movedim(0, -1).contiguous().numpy()
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=6 if small else 1)
    return buffer.getvalue()


@dataclass(frozen=True, repr=False)
class Picture:
    """A PNG with its words: a notebook shows the picture, with `alt` for those who do not see it and for nbval."""

    data: bytes = field(repr=False)
    alt: str

    def __post_init__(self) -> None:
        if not self.alt.strip():
            raise ValueError("alt is empty: say in a sentence what the picture shows, for readers who cannot see it")

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
        data = {"image/png": base64.b64encode(self.data).decode("ascii"), "text/plain": self.alt}
        return data, {"image/png": {"alt": self.alt}}


def show(image: Tensor, alt: str, title: str | None = None, scale: int = 1) -> Picture:
    """Make a picture (3, H, W), a grey map (H, W) or a `grid` the output of a cell.

    alt: a sentence that says what there is to see; it must not be empty.
    title: drawn above the picture, in as many lines as it needs: the finding, in a few words.
    scale: how often each pixel is repeated.
    """
    image = _repeat_pixels(as_floats(_in_three_channels(image)), scale)
    if title:
        image = torch.cat([_draw_text(_wrap(title, image.shape[-1] - 4), image.shape[-1]), image], dim=-2)
    return Picture(png(image, small=True), alt)


def _wrap(text: str, pixels: int) -> list[str]:
    """Break the text into lines that are at most so wide; a longer word stays whole."""
    per_letter = _font().getlength("average text") / len("average text")
    return textwrap.wrap(text, max(int(pixels / per_letter), 8), break_long_words=False)


def figure_with_alt(figure: Figure, alt: str, dpi: int = 100) -> Picture:
    """Render a matplotlib figure on white, close it so that it is not shown twice, and give it alt text."""
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    try:
        # Without the version of matplotlib, which is the default and would make the same picture's bytes differ.
        figure.savefig(
            buffer, format="png", dpi=dpi, bbox_inches="tight", facecolor="white", metadata={"Software": None}
        )
    finally:
        plt.close(figure)
    return Picture(buffer.getvalue(), alt)


# --- files ------------------------------------------------------------------------------------------------------------


def read_picture(source: bytes | bytearray | memoryview | str | os.PathLike, size: int | None = None) -> Tensor:
    """Read a picture from a file or its bytes: (3, H, W) float32 in [0, 1], RGB.

    size: makes it size x size pixels: the largest square from the middle, resized with antialiasing. None leaves it.
    Grey, 16-bit, palette and CMYK pictures become RGB; what is transparent becomes white; a photo that was held
    sideways is turned upright (EXIF); of an animation the first picture is taken.

    Raises `PictureError` for a file that is missing, empty, damaged, none of `FORMATS` or of more than `MOST_PIXELS`
    pixels; TypeError for another source or size, ValueError for a size not in 1…4096.
    """
    if size is not None:
        size = _whole(size, "size", 1, 4096)
    name, stream = _open(source)
    with stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's about what `_decode` refuses or mends
        try:
            return _decode(name, stream, size)
        except PictureError:
            raise
        except Image.DecompressionBombError:
            raise PictureError(f"{name} has more than {MOST_PIXELS:,} pixels: make it smaller first") from None
        except Image.UnidentifiedImageError:
            raise PictureError(
                f"{name} is damaged, or no picture that can be read here: give {_list_formats()}"
            ) from None
        except (OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, EOFError, struct.error, zlib.error):
            # What Pillow raises depends on where in which format the damage is.
            raise PictureError(f"{name} is damaged or cut off: save or send it again") from None


def _open(source: Any) -> tuple[str, io.BufferedIOBase]:
    """What to call the source in a message, and its bytes as a stream."""
    if isinstance(source, bytes | bytearray | memoryview):
        name, stream = "the picture", io.BytesIO(source)
        empty = not len(stream.getbuffer())
    elif isinstance(source, str | os.PathLike):
        path = Path(source)
        name = path.name or str(path)
        try:
            stream = path.open("rb")
        except OSError as error:
            raise PictureError(f"{path} cannot be read: {error.strerror}") from None
        empty = not path.stat().st_size
    else:
        raise TypeError(f"a picture is read from its bytes or a path, got {type(source).__name__}")
    if empty:
        stream.close()
        raise PictureError(f"{name} is empty: 0 bytes")
    return name, stream


def _decode(name: str, stream: io.BufferedIOBase, size: int | None) -> Tensor:
    with Image.open(stream, formats=FORMATS) as image:
        if image.width * image.height > MOST_PIXELS:
            raise PictureError(
                f"{name} has {image.width} x {image.height} pixels, more than {MOST_PIXELS:,}: make it smaller first"
            )
        if size is not None:
            image.draft("RGB", (2 * size, 2 * size))  # a JPEG is decoded at a fraction of its size: no work for nothing
        upright = ImageOps.exif_transpose(image)
        flat = _flatten(upright)
        if size is not None:
            flat = _cut_square(flat).resize((size, size), Image.Resampling.BILINEAR)  # averages when it makes smaller
        pixels = torch.from_numpy(np.array(flat, dtype=np.float32))
    if flat.mode == "F":
        return (pixels / 65535).clamp(0, 1).expand(3, -1, -1).contiguous()
    return (pixels / 255).movedim(-1, 0).contiguous()


def _cut_square(image: Image.Image) -> Image.Image:
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))


def _flatten(image: Image.Image) -> Image.Image:
    """RGB on white; or, for 16-bit grey, mode F with values up to 65535, which Pillow would clip at 255 as RGB."""
    if image.mode.startswith("I"):
        return Image.fromarray(np.asarray(image).astype(np.float32))
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def _list_formats() -> str:
    return f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"


def _whole(value: int, what: str, low: int, high: int) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{what} is a whole number from {low} to {high}, got {value!r}")
    if not low <= number <= high:
        raise ValueError(f"{what} is from {low} to {high}, got {number}")
    return number


HEAT_SCALE = 2  # small pictures are shown larger, smoothly
MARK = 7  # pixels: the radius of the ring around the hottest pixel


# --- drawing ----------------------------------------------------------------------------------------------------------


def draw_heat(
    image: Tensor,
    heat: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    opacity: float = 0.6,
    colours: str = "inferno",
    mark: bool = False,
) -> Tensor:
    """Return a picture at twice its size, (3, 2H, 2W), with a heat map over it and an outline in it where asked for.

    image: (3, H, W), float in [0, 1] or uint8. heat: (h, w) in [0, 1]. mask: (H, W) bool, outlined in white.
    opacity, colours: of the map, see `course_utils.vision.pictures.overlay`. mark: whether to ring the hottest pixel.
    Raises as `overlay` and `outline` do, and ValueError for a mark without a map.
    """
    image = image.float() / 255 if image.dtype == torch.uint8 else image
    if mark and heat is None:
        raise ValueError("the hottest pixel of what? Give a heat map with mark=True")
    tile = image if heat is None else overlay(image, heat, opacity, colours)
    size = [HEAT_SCALE * length for length in tile.shape[1:]]
    tile = F.interpolate(tile[None], size, mode="bicubic", align_corners=False)[0].clamp(0, 1)
    if mask is not None:
        tile = outline(tile, resize_maps(mask, size) > 0.5)
    if mark:
        row, column = (HEAT_SCALE * point(resize_maps(heat, image.shape[1:])[None])[0]).tolist()
        dot = torch.zeros(size, dtype=torch.bool)
        dot[row, column] = True
        tile = outline(tile, grow(dot[None], MARK)[0], "cyan", width=2)
    return tile


STRONGEST = 8  # as many small maps fit in a row under the three large ones


CAT = (  # the strokes of a drawing, in hundredths of the picture: the head, the face, the whiskers
    ((22, 52), (23, 20), (40, 32), (60, 32), (77, 20), (78, 52), (72, 74), (50, 84), (28, 74), (22, 52)),
    ((37, 48), (37, 55)),
    ((63, 48), (63, 55)),
    ((46, 62), (54, 62), (50, 67), (46, 62)),
    ((50, 67), (50, 71), (43, 75)),
    ((50, 71), (57, 75)),
    ((34, 66), (10, 61)),
    ((34, 70), (11, 73)),
    ((66, 66), (90, 61)),
    ((66, 70), (89, 73)),
)


def draw_strokes(strokes: Sequence[Sequence[Sequence[float]]] = CAT, size: int = 112) -> Tensor:
    """Draw lines in black ink on a transparent ground: (4, size, size) float32 in [0, 1], RGBA as a file stores it.

    strokes: each a row of points (x, y) from (0, 0), top left, to (100, 100); without any, a cat's face.
    """
    fine = 4 * size  # drawn large and averaged, so that lines are smooth
    ink = Image.new("L", (fine, fine))
    pencil = ImageDraw.Draw(ink)
    width = max(fine // 40, 1)
    for stroke in strokes:
        points = [(x * fine / 100, y * fine / 100) for x, y in stroke]
        pencil.line(points, fill=255, width=width, joint="curve")
        for x, y in (points[0], points[-1]):
            pencil.ellipse((x - width / 2, y - width / 2, x + width / 2, y + width / 2), fill=255)
    solid = torch.frombuffer(bytearray(ink.tobytes()), dtype=torch.uint8).reshape(1, 1, fine, fine).float() / 255
    alpha = F.avg_pool2d(solid, 4)[0]
    return torch.cat([torch.zeros(3, size, size), alpha])


def put_on_white(rgba: Tensor) -> Tensor:
    """Put a picture with transparency on white paper: (4, H, W) to (3, H, W), both float in [0, 1]."""
    return rgba[:3] * rgba[3:] + (1 - rgba[3:])


def undo_colours(found: Classifier, x: Tensor) -> Tensor:
    """The picture that a network sees, before its colours were normalised (the course's own network does not)."""
    mean, std = (getattr(found.transform, name, default) for name, default in (("mean", [0.0] * 3), ("std", [1.0] * 3)))
    return (x * torch.tensor(std)[:, None, None] + torch.tensor(mean)[:, None, None]).clamp(0, 1)


def find_strongest(maps: Tensor, count: int = STRONGEST) -> tuple[int, ...]:
    """Return the channels of (C, h, w) with the greatest mean response, negative numbers counted as 0, best first.

    Equal ones come in the order of their numbers.
    """
    responses = maps.clamp(min=0).mean((1, 2))
    return tuple(responses.argsort(descending=True, stable=True)[:count].tolist())


def light_up(images: Tensor, maps: Tensor, dark: float = 0.3) -> Tensor:
    """Show pictures as lit by maps: (..., 3, H, W) and (..., h, w) to (..., 3, H, W), all float in [0, 1].

    Where a map has its greatest number the picture keeps its light; where it is 0 or less, only the share `dark` of it.
    """
    positive = normalise(F.pad(maps.clamp(min=0), (1, 0)))[..., 1:]  # the padding: 0 stays 0, whatever the least is
    return images * (dark + (1 - dark) * resize_maps(positive, images.shape[-2:]).unsqueeze(-3))


def _colour(one: Tensor) -> Tensor:
    """(h, w) to (3, h, w): zero is dark where nothing is negative, and white where something is."""
    if one.min() < 0:
        return colourise(centre(one), "RdBu_r")
    return colourise(one / one.max().clamp(min=1e-12), "inferno")


FIXED_SCALE = 1.5  # a gradient of 1/3 is white, of -1/3 black: only the strongest ones reach that


def show_fixed(gradients: Tensor) -> Tensor:
    """Make gradients (..., C, H, W) pictures on one scale for all: 0.5 is zero, and size and sign can be compared."""
    return (0.5 + FIXED_SCALE * gradients).clamp(0, 1)
