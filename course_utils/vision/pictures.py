"""Tensors to pictures, and files to tensors: colour maps, outlines, grids, fast PNG, alt text in notebooks.

A picture is a tensor (3, H, W), float in [0, 1] or uint8 in 0…255; a map is (H, W), float in [0, 1]. The functions up
to `light_up` take any number of leading dimensions before these, and return float32.
"""

from __future__ import annotations

import base64
import html
import io
import math
import os
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageColor, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from course_utils.root import CourseError
from course_utils.scenes.shapes import polygon
from course_utils.scenes.things import read_artwork
from course_utils.show import running_cell
from course_utils.vision.saliency import scale_to_unit, upsample
from course_utils.vision.scores import grow, point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
MOST_PIXELS = 50_000_000  # of a file to read: more than any phone's camera takes, decoded in 200 MB
PAPER, INK = (66, 69, 74), (245, 245, 245)  # of titles and labels: a ground that is calm in light and dark themes
STRONGEST = 8  # as many small maps fit in a row under the three large ones


def centre(values: Tensor, dims: int = 2) -> Tensor:
    """Scale each map to [0, 1] with zero at one half, for a colour map with a neutral middle such as "RdBu_r".

    The greatest absolute value becomes 0 or 1; all zeros become 0.5. `dims=3` takes each (C, H, W) together, so that
    channels keep their proportions. Raises `CourseError` for values that are not finite.
    """
    values = _finite(values)
    most = values.abs().amax(tuple(range(-dims, 0)), keepdim=True)
    return 0.5 + values / (2 * most.where(most > 0, 1))


def _finite(values: Tensor) -> Tensor:
    # Half precision or whole numbers could overflow in a difference.
    values = values.detach().to("cpu", torch.float32)
    if not (finite := values.isfinite()).all():
        wrong = int((~finite).sum())
        raise CourseError(f"{wrong} of {values.numel()} values are nan or infinite: look where they come from")
    return values


def colourise(maps: Tensor, colours: str = "viridis") -> Tensor:
    """Give each value of a map its colour: (..., H, W) in [0, 1] to (..., 3, H, W) in [0, 1].

    colours: the name of one of matplotlib's colour maps. Raises `CourseError` for values out of range.
    """
    import matplotlib  # takes a tenth of a second, and not everyone colours maps

    maps = _in_range(maps, "scale_to_unit(map) stretches it")
    found = matplotlib.colormaps[colours]((maps * 255).round().int().numpy())
    return torch.from_numpy(found[..., :3].astype(np.float32)).movedim(-1, -3)


def _in_range(values: Tensor, cure: str) -> Tensor:
    values = values.detach().to("cpu", torch.float32)
    low, high = (end.item() for end in values.aminmax())
    if not (low >= -1e-6 and high <= 1 + 1e-6):
        _finite(values)
        raise CourseError(f"what is shown has values in [0, 1], got {low:g} to {high:g}: {cure}")
    return values.clamp(0, 1)


def resize_maps(maps: Tensor, size: Sequence[int]) -> Tensor:
    """(..., h, w) to (..., *size), bilinear with `align_corners=False`: the convention of the whole course."""
    return upsample(_finite(maps), size)


def outline(images: Tensor, masks: Tensor, colour: str = "white", width: int = 1) -> Tensor:
    """Draw the border of masks into pictures: (..., 3, H, W) and (..., H, W) bool to (..., 3, H, W).

    The outermost `width` pixels inside the mask get the colour (a name or "#rrggbb"), as many outside a contrasting
    black or white, so that the line is seen on any ground. Nothing is drawn along the picture's edge.
    """
    images, masks = _as_floats(images), masks.to("cpu")
    if masks.dtype != torch.bool or masks.shape != (*images.shape[:-3], *images.shape[-2:]):
        raise CourseError(f"pictures {tuple(images.shape)} need bool masks, got {masks.dtype} {tuple(masks.shape)}")
    light = torch.tensor(ImageColor.getrgb(colour)[:3])[:, None, None] / 255
    around = 1.0 if light.flatten() @ torch.tensor([0.299, 0.587, 0.114]) < 0.5 else 0.0
    inside, outside = (_find_edge(each, width).unsqueeze(-3) for each in (masks, ~masks))
    return torch.where(inside, light, torch.where(outside, around, images))


def _find_edge(masks: Tensor, width: int) -> Tensor:
    """The pixels of masks (..., H, W) that are at most `width` rows and columns away from one outside."""
    beyond = (~masks).float().reshape(-1, *masks.shape[-2:])
    near = F.max_pool2d(beyond, 2 * width + 1, stride=1, padding=width) > 0
    return masks & near.reshape_as(masks)


def _as_floats(images: Tensor) -> Tensor:
    if images.dim() < 3 or images.shape[-3] != 3 or not images.numel():
        raise CourseError(f"expected pictures (..., 3, H, W), got shape {tuple(images.shape)}")
    if images.dtype == torch.uint8:
        return images.detach().to("cpu", torch.float32) / 255
    return _in_range(images, "scale_to_unit(image, dims=3) stretches a picture")


def light_up(images: Tensor, maps: Tensor, most: float = 0) -> Tensor:
    """Show pictures as lit by maps: (..., 3, H, W) and (..., h, w) to (..., 3, H, W), all float in [0, 1].

    Where a map has its greatest number, or `most` where that is given, the picture keeps its light; where it is 0 or
    less, only 0.3 of it.
    """
    positive = F.pad(maps.clamp(min=0), (1, 0))  # 0 stays 0, whatever the least is
    positive = (positive / most if most else scale_to_unit(_finite(positive)))[..., 1:]
    return images * (0.3 + 0.7 * resize_maps(positive, images.shape[-2:]).unsqueeze(-3))


def show_fixed(gradients: Tensor) -> Tensor:
    """Make gradients (..., C, H, W) pictures on one scale for all: 0.5 is zero, and size and sign can be compared."""
    return (0.5 + 1.5 * gradients).clamp(0, 1)  # 1/3 is white, -1/3 black: only the strongest ones reach that


def find_strongest(maps: Tensor, count: int = STRONGEST) -> tuple[int, ...]:
    """Return the channels of (C, h, w) with the greatest mean response, negative numbers counted as 0, best first."""
    return tuple(maps.clamp(min=0).mean((1, 2)).argsort(descending=True, stable=True)[:count].tolist())


def colour_channel(one: Tensor, scale: Tensor) -> Tensor:
    """(h, w) to (3, h, w): zero is dark where nothing is negative, and white where something is.

    scale: numbers whose greatest, or farthest from zero, has the full colour: those of the map, or of all its layer's.
    """
    part = one / scale.abs().max().clamp(min=1e-12)
    return colourise(0.5 + part / 2, "RdBu_r") if scale.min() < 0 else colourise(part, "inferno")


def undo_colours(network: Any, x: Tensor) -> Tensor:
    """The picture that a `Classifier` sees, before its colours were normalised (the course's network does not)."""
    mean, std = getattr(network.transform, "mean", [0.0] * 3), getattr(network.transform, "std", [1.0] * 3)
    return (x * torch.tensor(std)[:, None, None] + torch.tensor(mean)[:, None, None]).clamp(0, 1)


def draw_heat(
    image: Tensor,
    heat: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    opacity: float = 0.6,
    colours: str = "inferno",
    mark: bool = False,
    scale: int = 2,
) -> Tensor:
    """Return a picture at twice its size (or `scale` times), with a heat map over it and an outline where asked for.

    image: (3, H, W), float in [0, 1] or uint8. heat: (h, w) in [0, 1]. mask: (H, W) bool, outlined in white.
    opacity: 0 shows the picture only, 1 the map only. colours: as in `colourise`. mark: rings the map's hottest pixel.
    Raises `CourseError` for values out of range, and for a mark without a map.
    """
    tile, shape = _as_floats(image), image.shape[-2:]
    if heat is not None:
        heat = resize_maps(heat, shape)
        tile = tile + opacity * (colourise(heat, colours) - tile)
    elif mark:
        raise CourseError("the hottest pixel of what? Give a heat map with mark=True")
    size = [scale * length for length in shape]
    if scale != 1:
        tile = F.interpolate(tile[None], size, mode="bicubic", align_corners=False)[0].clamp(0, 1)
    if mask is not None:
        tile = outline(tile, resize_maps(mask, size) > 0.5)
    if mark:
        row, column = (scale * point(heat[None])[0]).tolist()
        dot = torch.zeros(size, dtype=torch.bool)
        dot[row, column] = True
        tile = outline(tile, grow(dot[None], 7)[0], "cyan", width=2)
    return tile


def draw_strokes(strokes: Sequence[Sequence[Sequence[float]]] | None = None, size: int = 112) -> Tensor:
    """Draw lines in black ink on a transparent ground: (4, size, size) float32 in [0, 1], RGBA as a file stores it.

    strokes: each a row of points (x, y) from (0, 0), top left, to (100, 100); without any, a cat's face.
    """
    if strokes is None:
        strokes = [polygon(stroke.get("points")) for stroke in read_artwork()["strokes of a cat"]]
    fine = 4 * size  # drawn large and averaged, so that lines are smooth
    ink = Image.new("L", (fine, fine))
    pencil, width = ImageDraw.Draw(ink), max(fine // 40, 1)
    for stroke in strokes:
        points = [(x * fine / 100, y * fine / 100) for x, y in stroke]
        pencil.line(points, fill=255, width=width, joint="curve")
        for x, y in (points[0], points[-1]):
            pencil.ellipse((x - width / 2, y - width / 2, x + width / 2, y + width / 2), fill=255)
    solid = torch.from_numpy(np.array(ink, dtype=np.float32))[None] / 255
    return torch.cat([torch.zeros(3, size, size), F.avg_pool2d(solid, 4)])


def put_on_white(rgba: Tensor) -> Tensor:
    """Put a picture with transparency on white paper: (4, H, W) to (3, H, W), both float in [0, 1]."""
    return rgba[:3] * rgba[3:] + (1 - rgba[3:])


def grid(
    pictures: Tensor | Sequence[Tensor], columns: int = 0, padding: int = 4, labels: Sequence[str] = (), scale: int = 1
) -> Tensor:
    """Put equally large pictures side by side: N of (3, H, W), or maps (H, W) in grey, to one picture (3, H', W').

    columns: how many in a row; 0 makes the grid about square. padding: pixels between and around them.
    labels: a short text under each. scale: how often each pixel is repeated, to see small maps pixel by pixel.
    """
    tiles = torch.stack([_enlarge(tile, scale) for tile in pictures])
    if labels:
        if len(labels) != len(tiles):
            raise CourseError(f"{len(tiles)} pictures need as many labels, got {len(labels)}")
        tiles = torch.cat([tiles, torch.stack([_draw_text([label], tiles.shape[-1]) for label in labels])], dim=-2)
    height, width = (side + padding for side in tiles.shape[-2:])
    columns = min(columns or math.ceil(math.sqrt(len(tiles))), len(tiles))
    paper = torch.tensor(PAPER, dtype=torch.float32)[:, None, None] / 255
    sheet = paper.repeat(1, math.ceil(len(tiles) / columns) * height + padding, columns * width + padding)
    for number, tile in enumerate(tiles):
        top, left = (number // columns) * height + padding, (number % columns) * width + padding
        sheet[:, top : top + tile.shape[-2], left : left + tile.shape[-1]] = tile
    return sheet


def _enlarge(image: Tensor, times: int = 1) -> Tensor:
    image = _as_floats(image.expand(3, -1, -1) if image.dim() == 2 else image)
    return image if times == 1 else image.repeat_interleave(times, -2).repeat_interleave(times, -1)


def _draw_text(lines: Sequence[str], width: int) -> Tensor:
    strip = Image.new("RGB", (width, 17 * len(lines) + 3), PAPER)
    for number, text in enumerate(lines):
        ImageDraw.Draw(strip).text((2, 2 + 17 * number), text, fill=INK, font=ImageFont.load_default(13))
    return torch.from_numpy(np.array(strip)).movedim(-1, 0).float() / 255


def png(image: Tensor, small: bool = False, jpeg: bool = False) -> bytes:
    """Encode a picture (3, H, W) or a grey map (H, W) as PNG: 3 to 5 ms for 224 x 224.

    small: take twice as long for an eighth fewer bytes, for a picture that is stored in a notebook.
    jpeg: a JPEG instead, a tenth of the time and a quarter of the bytes; of a higher quality where not `small`.
    """
    pixels = (_enlarge(image) * 255).round_().to(torch.uint8).movedim(0, -1).contiguous().numpy()
    if not jpeg:
        options = {"format": "PNG", "compress_level": 6 if small else 1}
    elif small:
        options = {"format": "JPEG", "quality": 88}
    else:
        options = {"format": "JPEG", "quality": 92, "subsampling": 0}  # each pixel keeps its own colour
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, **options)
    return buffer.getvalue()


@dataclass(frozen=True, repr=False)
class Picture:
    """A PNG or JPEG with its words: a notebook shows the picture, with `alt` for those who do not see it.

    text: what the picture shows as plain text, with its numbers, for nbval and for pages without pictures; else `alt`.
    light: it is dark on white, and JupyterLab may show it the other way round on a dark page.
    """

    data: bytes
    alt: str
    text: str = ""
    light: bool = False

    def __post_init__(self) -> None:
        if not self.alt.strip():
            raise CourseError("alt is empty: say in a sentence what the picture shows, for readers who cannot see it")

    def __repr__(self) -> str:
        return self.text or self.alt

    @property
    def kind(self) -> str:
        """What the data are: "image/png" or "image/jpeg"."""
        return "image/jpeg" if self.data.startswith(b"\xff\xd8") else "image/png"

    def html(self, width: str = "auto") -> str:
        """Return the picture as HTML with its alt text, at most as wide as the page; width: as CSS has it."""
        # "/" and "+" in percent code, which browsers undo: no stretch of the picture can look like the path of a file.
        data = base64.b64encode(self.data).decode("ascii").replace("/", "%2F").replace("+", "%2B")
        look = "course-figure jp-needs-light-background" if self.light else "course-figure"
        source = f'src="data:{self.kind};base64,{data}" class="{look}"'
        return f'<img alt="{html.escape(self.alt)}" {source} style="width:{width};max-width:100%;height:auto">'

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        if running_cell():  # JupyterLab reads no words beside an image, and takes HTML with them
            return {"text/html": self.html(), "text/plain": repr(self)}, {}
        kind = self.kind
        data = {kind: base64.b64encode(self.data).decode("ascii"), "text/plain": repr(self)}
        return data, {kind: {"alt": self.alt}} | ({"needs_background": "light"} if self.light else {})


def show(image: Tensor, alt: str, title: str | None = None, scale: int = 1, jpeg: bool = False) -> Picture:
    """Make a picture (3, H, W), a grey map (H, W) or a `grid` the output of a cell.

    alt: a sentence that says what there is to see; it must not be empty. scale: how often each pixel is repeated.
    title: drawn above the picture, in as many lines as it needs: the finding, in a few words. jpeg: as in `png`.
    """
    image = _enlarge(image, scale)
    if title:
        per_letter = ImageFont.load_default(13).getlength("average text") / len("average text")
        lines = textwrap.wrap(title, max(int((image.shape[-1] - 4) / per_letter), 8), break_long_words=False)
        image = torch.cat([_draw_text(lines, image.shape[-1]), image], dim=-2)
    return Picture(png(image, small=True, jpeg=jpeg), alt)


def figure_with_alt(figure: Figure, alt: str, text: str = "") -> Picture:
    """Render a matplotlib figure on white and give it alt text, and plain text where that is more than `alt`."""
    buffer = io.BytesIO()  # without the version of matplotlib, so that the same picture has the same bytes
    figure.savefig(buffer, format="png", dpi=100, bbox_inches="tight", facecolor="white", metadata={"Software": None})
    return Picture(buffer.getvalue(), alt, text, light=True)


def read_picture(source: bytes | bytearray | memoryview | str | os.PathLike, size: int | None = None) -> Tensor:
    """Read a picture from a file or its bytes: (3, H, W) float32 in [0, 1], RGB.

    size: makes it size x size pixels: the largest square from the middle, resized with antialiasing. None leaves it.
    Grey, 16-bit, palette and CMYK pictures become RGB; what is transparent becomes white; a photo that was held
    sideways is turned upright (EXIF); of an animation the first picture is taken.
    Raises `CourseError` for a file that is missing, damaged, none of `FORMATS` or of more than `MOST_PIXELS` pixels.
    """
    path = Path(source) if isinstance(source, str | os.PathLike) else None
    try:
        data = path.read_bytes() if path else source
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's about what is refused or mended here
            image = Image.open(io.BytesIO(data), formats=FORMATS)
            if image.width * image.height > MOST_PIXELS:
                raise Image.DecompressionBombError
            return _decode(image, size)
    except Image.DecompressionBombError:
        problem = f"has more than {MOST_PIXELS:,} pixels: make it smaller first"
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        problem = f"cannot be read: {error.strerror}"
    except Exception:  # what Pillow raises depends on where in which format the damage is
        problem = f"is damaged, or no picture that can be read here: give {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
    raise CourseError(f"{path.name if path else 'the picture'} {problem}")


def _decode(image: Image.Image, size: int | None) -> Tensor:
    if size is not None:
        image.draft("RGB", (2 * size, 2 * size))  # a JPEG is decoded at a fraction of its size: no work for nothing
    image = ImageOps.exif_transpose(image)
    is_deep = image.mode.startswith("I")  # 16-bit grey, which Pillow would clip at 255 as RGB
    if is_deep:
        image = Image.fromarray(np.asarray(image).astype(np.float32))
    elif "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    else:
        image = image.convert("RGB")
    if size is not None:
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        image = image.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.array(image, dtype=np.float32))
    return (pixels / 65535).clamp(0, 1).expand(3, -1, -1) if is_deep else (pixels / 255).movedim(-1, 0).contiguous()
