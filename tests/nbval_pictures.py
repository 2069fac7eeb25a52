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
    one, other = _pixels(reference), _pixels(found)
    if np.abs(np.subtract(one.shape, other.shape)).max() > SIZE_PIXELS:
        return f"the size is {other.shape[1]} x {other.shape[0]} pixels instead of {one.shape[1]} x {one.shape[0]}"
    height, width = np.minimum(one.shape, other.shape)[:2]
    difference = one[:height, :width] - other[:height, :width]
    rows, columns = -(-height // BLOCK_PIXELS), -(-width // BLOCK_PIXELS)
    filled = ((0, rows * BLOCK_PIXELS - height), (0, columns * BLOCK_PIXELS - width), (0, 0))
    blocks = np.pad(difference, filled, mode="edge").reshape(rows, BLOCK_PIXELS, columns, BLOCK_PIXELS, 3)
    mean, block = float(np.abs(difference).mean()), float(np.abs(blocks.mean(axis=(1, 3))).max())
    if mean <= MEAN_DIFFERENCE and block <= BLOCK_DIFFERENCE:
        return None
    return f"the pixels differ by {mean:.3f} in the mean and by {block:.3f} in one block of {BLOCK_PIXELS} pixels"


def _pixels(picture: str | bytes) -> np.ndarray:
    """The picture on white, `(height, width, 3)` floats in [0, 1]."""
    data = base64.b64decode(picture) if isinstance(picture, str) else picture
    image = Image.open(io.BytesIO(data)).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image).convert("RGB"), dtype=float) / 255


def find_picture_differences(found: list, reference: list) -> list[str]:
    """How the pictures and widgets of two lists of outputs differ, in words. A lesson has a mark where a widget was."""
    differences = []
    kinds = {"widgets": lambda each: WIDGET_VIEW in each.get("data", {}) or each.get("metadata", {}).get("widget")}
    kinds |= {kind: lambda each, kind=kind: each.get("data", {}).get(kind) for kind in ("image/png", "image/jpeg")}
    for kind, get in kinds.items():
        one, other = ([get(each) for each in some if get(each)] for some in (reference, found))
        if len(one) != len(other):
            differences.append(f"{kind}: {len(other)} instead of {len(one)}")
        elif kind != "widgets":
            differences += [f"{kind}: {each}" for each in map(picture_difference, one, other) if each]
    return differences


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
