"""A pytest plugin that makes nbval compare pictures by what they show (`pytest --nbval -p nbval_pictures`).

nbval itself leaves PNG and JPEG outputs out, and a widget's view with them: their bytes differ between versions of
matplotlib, FreeType and zlib, and a model's id is chance. Here each picture must be there, be of the same size within
`SIZE_PIXELS`, and look the same; each widget view must be there.
"""

import base64
import io

import matplotlib
import numpy as np
from PIL import Image

from course_utils.root import skip_grammar

skip_grammar()  # before nbval is imported
SIZE_PIXELS = 2  # a tight bounding box moves with the font by a pixel or two
MEAN_DIFFERENCE = 0.05  # per pixel and channel, black to white is 1: a shift by a pixel passes
# Between the means of blocks: a missing line is small in the whole, large in its block. Before 3.11, which is all that
# there is for Python 3.10, matplotlib has an older FreeType, which writes the words otherwise.
BLOCK_DIFFERENCE = 0.08 if matplotlib.__version_info__ >= (3, 11) else 0.15
BLOCK_PIXELS = 16
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def picture_difference(reference: str, found: str) -> str | None:
    """How two pictures (base64 text) differ, in words; None if they show the same."""
    one, other = _on_white(reference), _on_white(found)
    if np.abs(np.subtract(one.size, other.size)).max() > SIZE_PIXELS:
        return f"the size is {other.width} x {other.height} pixels instead of {one.width} x {one.height}"
    one, other = (each.crop((0, 0, *map(min, one.size, other.size))) for each in (one, other))
    small = (each.reduce(BLOCK_PIXELS) for each in (one, other))
    mean = np.abs(np.subtract(one, other, dtype=float)).mean() / 255
    block = np.abs(np.subtract(*small, dtype=float)).max() / 255
    if mean <= MEAN_DIFFERENCE and block <= BLOCK_DIFFERENCE:
        return None
    return f"the pixels differ by {mean:.3f} in the mean and by {block:.3f} in one block of {BLOCK_PIXELS} pixels"


def _on_white(picture: str) -> Image.Image:
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


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
