"""A pytest plugin that makes nbval compare pictures by what they show (`pytest --nbval -p nbval_pictures`).

nbval itself leaves PNG and JPEG outputs out, and a widget's view with them: their bytes differ between versions of
matplotlib, FreeType and zlib, and a model's id is chance. Here each picture must be there, be of the same size within
`SIZE_PIXELS`, and look the same; each widget view must be there.
"""

import base64
import io

import numpy as np
from PIL import Image

SIZE_PIXELS = 2  # a tight bounding box moves with the font by a pixel or two
MEAN_DIFFERENCE = 0.05  # per pixel and channel, black to white is 1: a shift by a pixel passes
BLOCK_DIFFERENCE = 0.08  # between the means of blocks: a missing line is small in the whole, large in its block
BLOCK_PIXELS = 16
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def picture_difference(reference: str | bytes, found: str | bytes) -> str | None:
    """How two encoded pictures (bytes, or base64 text) differ, in words; None if they show the same."""
    if reference == found:
        return None
    one, other = _pixels(reference), _pixels(found)
    if np.abs(np.subtract(one.shape, other.shape)).max() > SIZE_PIXELS:
        return f"the size is {other.shape[1]} x {other.shape[0]} pixels instead of {one.shape[1]} x {one.shape[0]}"
    height, width = np.minimum(one.shape, other.shape)[:2]
    one, other = one[:height, :width], other[:height, :width]
    mean = float(np.abs(one - other).mean())
    block = float(np.abs(_block_means(one) - _block_means(other)).max())
    if mean <= MEAN_DIFFERENCE and block <= BLOCK_DIFFERENCE:
        return None
    return f"the pixels differ by {mean:.3f} in the mean and by {block:.3f} in one block of {BLOCK_PIXELS} pixels"


def _pixels(picture: str | bytes) -> np.ndarray:
    """The picture on white, `(height, width, 3)` floats in [0, 1]."""
    data = base64.b64decode(picture) if isinstance(picture, str) else picture
    image = Image.open(io.BytesIO(data)).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image).convert("RGB"), dtype=float) / 255


def _block_means(pixels: np.ndarray) -> np.ndarray:
    """Means over blocks of `BLOCK_PIXELS` squared; the last rows and columns are repeated to fill a block."""
    height, width = pixels.shape[:2]
    padded = np.pad(pixels, ((0, -height % BLOCK_PIXELS), (0, -width % BLOCK_PIXELS), (0, 0)), mode="edge")
    rows, columns = padded.shape[0] // BLOCK_PIXELS, padded.shape[1] // BLOCK_PIXELS
    return padded.reshape(rows, BLOCK_PIXELS, columns, BLOCK_PIXELS, 3).mean(axis=(1, 3))


def find_picture_differences(found: list, reference: list) -> list[str]:
    """How the pictures and widget views of two lists of outputs differ, in words."""
    differences = []
    views = [sum(map(_is_widget, outputs)) for outputs in (reference, found)]
    if views[0] != views[1]:
        differences.append(f"{views[1]} widgets instead of {views[0]}")
    for mime in ("image/png", "image/jpeg"):
        one, other = (
            [each["data"][mime] for each in some if mime in each.get("data", {})] for some in (reference, found)
        )
        if len(one) != len(other):
            differences.append(f"{len(other)} pictures ({mime}) instead of {len(one)}")
        for number, pair in enumerate(zip(one, other, strict=False), start=1):
            if difference := picture_difference(*pair):
                differences.append(f"picture {number} ({mime}): {difference}")
    return differences


def _is_widget(output: dict) -> bool:
    """Whether an output is a widget: its view in a run, and in a lesson the mark where it was."""
    return WIDGET_VIEW in output.get("data", {}) or bool(output.get("metadata", {}).get("widget"))


def pytest_configure(config):
    """Add the comparison of pictures to that of nbval's cells."""
    from nbval.plugin import IPyNbCell

    compare_the_rest = IPyNbCell.compare_outputs

    def compare_outputs(cell, test, ref, skip_compare=None):
        same = compare_the_rest(cell, test, ref, skip_compare)
        differences = find_picture_differences(test, ref)
        cell.comparison_traceback.extend(differences)
        return same and not differences

    IPyNbCell.compare_outputs = compare_outputs
    config.add_cleanup(lambda: setattr(IPyNbCell, "compare_outputs", compare_the_rest))
