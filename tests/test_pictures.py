"""Pictures from tensors, with values worked out by hand, and from any file that a learner may bring; and charts."""

import base64
import io
import math
import xml.etree.ElementTree as ET
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from IPython.core.formatters import DisplayFormatter
from panels import read_png
from PIL import Image

from course_utils.lessons.figures import draw_attention
from course_utils.root import CourseError
from course_utils.vision import pictures as module
from course_utils.vision.charts import bars
from course_utils.vision.pictures import centre, colourise, draw_heat, grid, outline, png, read_picture


def same(found, wanted, tolerance=1e-6):
    torch.testing.assert_close(found, torch.as_tensor(wanted, dtype=torch.float32), rtol=0, atol=tolerance)


def plain(value, height=2, width=2):
    return torch.full((3, height, width), float(value))


def test_zero_is_centred_and_the_greatest_value_reaches_an_end():
    same(centre(torch.tensor([[[-1.0, 0.0, 4.0]], [[0.0, 0.0, 0.0]]])), [[[0.375, 0.5, 1]], [[0.5, 0.5, 0.5]]])
    same(centre(torch.tensor([[[-2.0]], [[1.0]], [[0.0]]]), dims=3), [[[0]], [[0.75]], [[0.5]]])


def test_colours_are_those_of_the_published_table_and_come_before_the_last_two_dimensions():
    wanted = torch.tensor([[0x44, 0xFD], [0x01, 0xE7], [0x54, 0x25]]) / 255  # from #440154 to #fde725
    same(colourise(torch.tensor([[[0.0, 1.0]]] * 2)), wanted[:, None].expand(2, 3, 1, 2), tolerance=0.003)


@pytest.mark.parametrize(("opacity", "wanted"), [(0, [0.2, 0.2]), (0.25, [0.15, 0.4]), (1, [0, 1])])
def test_heat_is_mixed_with_a_picture_of_floats_or_bytes(opacity, wanted):
    heat = torch.tensor([[0.0] * 8 + [1.0] * 8]).expand(8, 16)
    for image in (plain(0.2, 8, 16), torch.full((3, 8, 16), 51, dtype=torch.uint8)):
        found = draw_heat(image, heat, opacity=opacity, colours="gray")
        assert found.shape == (3, 16, 32)
        same(found[:, 8, [2, 29]], [wanted] * 3, tolerance=1e-5)  # 0.75 * 0.2 + 0.25 * (0, 1)


def test_the_hottest_pixel_gets_a_ring_and_the_mask_a_line():
    heat, mask = torch.zeros(16, 16), torch.zeros(16, 16, dtype=torch.bool)
    heat[8, 4], mask[2:6, 10:14] = 1, True
    bare, ringed, lined = (draw_heat(plain(0.5, 16, 16), heat, **kw) for kw in ({}, {"mark": True}, {"mask": mask}))
    changed = (bare != ringed).any(0).nonzero()
    assert ((changed - torch.tensor([16, 8])) ** 2).sum(1).max() <= 10**2
    same(ringed[:, 16, 8 + 7], [0, 1, 1])  # cyan, at the ring's radius
    assert ((bare != lined)[:, 2:14, 18:30].any(), (bare != lined)[..., :16].any()) == (True, False)


def test_an_outline_is_a_ring_inside_the_mask_and_a_contrasting_one_outside():
    mask = torch.zeros(7, 7, dtype=torch.bool)
    mask[2:5, 2:5] = True
    for colour, inside, outside in (("white", 1, 0), ("#000", 0, 1)):
        wanted = plain(0.5, 7, 7)
        wanted[:, 1:6, 1:6], wanted[:, 2:5, 2:5], wanted[:, 3, 3] = outside, inside, 0.5
        same(outline(plain(0.5, 7, 7), mask, colour), wanted)
    for nothing in (mask | True, mask & False):  # no line along the edge of the picture
        same(outline(plain(0.5, 7, 7), nothing), plain(0.5, 7, 7))


def test_a_grid_repeats_the_pixels_of_maps_and_puts_labels_under_them():
    maps = torch.tensor([[[0.0, 1.0]], [[1.0, 0.0]], [[1.0, 1.0]]])
    sheet = grid(maps, padding=1, scale=2)
    assert sheet.shape == (3, 7, 11)  # two rows of two
    same(sheet[:, 1:3, 1:5], [[[0, 0, 1, 1]] * 2] * 3)
    same(sheet[:, 4:6, 1:5], plain(1, 2, 4))
    same(sheet[:, [0, 3, 4], [0, 5, 8]], [[value / 255] * 3 for value in module.PAPER])
    labelled = grid(maps, columns=3, padding=1, scale=30, labels=["cat", "boat", "cat"])
    assert labelled.shape == (3, 1 + 30 + 20 + 1, 1 + 3 * 61)
    one, other, third = (labelled[:, 31:51, left : left + 60] for left in (1, 62, 123))
    assert (one.equal(third), one.equal(other), max(one.min(), other.min()) < 0.4) == (True, False, True)  # ink


def test_a_notebook_gets_the_picture_its_title_and_its_words():
    image = torch.randint(0, 256, (3, 20, 120), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    assert np.array_equal(read_png(png(image)), image.permute(1, 2, 0).numpy())
    data, metadata = DisplayFormatter().format(module.show(image, "Noise."))
    assert (data["text/plain"], metadata) == ("Noise.", {"image/png": {"alt": "Noise."}})
    assert np.array_equal(read_png(data["image/png"]), read_png(png(image)))
    short, long = (read_png(module.show(image, "Noise.", title).data) for title in ("Short", "A finding " * 6))
    assert 20 < len(short) < len(long)
    assert np.array_equal(long[-20:], read_png(png(image)))
    assert (long[:-20, -1] == module.PAPER).all()  # no letter is cut off at the right
    data, metadata = module.show(image, "Noise.", jpeg=True)._repr_mimebundle_()  # as a photograph
    assert (data.keys(), metadata) == ({"image/jpeg", "text/plain"}, {"image/jpeg": {"alt": "Noise."}})
    assert Image.open(io.BytesIO(base64.b64decode(data["image/jpeg"]))).size == (120, 20)


def test_jupyterlab_gets_html_with_the_words_as_alt_text(monkeypatch):
    picture = module.Picture(png(torch.zeros(3, 4, 4)), 'A "black" <square>.', light=True)
    monkeypatch.setattr(module, "running_cell", lambda: "a-cell-that-somebody-runs")
    data, metadata = picture._repr_mimebundle_()
    assert (data.keys(), metadata, data["text/plain"]) == ({"text/html", "text/plain"}, {}, picture.alt)
    (image,) = ET.fromstring(f"<p>{data['text/html'].removesuffix('>')}/></p>")
    assert (image.get("alt"), "jp-needs-light-background" in image.get("class")) == (picture.alt, True)
    assert unquote(image.get("src")).removeprefix("data:image/png;base64,") == base64.b64encode(picture.data).decode()


def encode(image, kind="PNG", **options):
    image.save(buffer := io.BytesIO(), kind, **options)
    return buffer.getvalue()


LEFT_RIGHT = Image.new("RGB", (64, 48), "red")
LEFT_RIGHT.paste("blue", (32, 0, 64, 48))
STRIPES = Image.new("RGB", (120, 40), "black")
STRIPES.paste("white", (40, 0, 80, 40))
SEE_THROUGH = LEFT_RIGHT.copy()
SEE_THROUGH.putalpha(Image.fromarray(np.uint8([[255, 128], [0, 255]])).resize((64, 48), Image.Resampling.NEAREST))
SIDEWAYS = Image.Exif()
SIDEWAYS[0x0112] = 6  # "rotate 90 clockwise to view": what is stored at the left belongs at the top
RED, BLUE, WHITE, GREY = (1, 0, 0), (0, 0, 1), (1, 1, 1), (0.2, 0.2, 0.2)
GREYS = Image.new("L", (4, 4), 51), Image.new("LA", (4, 4), (51, 255)), Image.fromarray(np.uint16([[13107] * 4] * 4))
ANIMATED = {"save_all": True, "append_images": [Image.new("RGB", (64, 48), "white")] * 2}


@pytest.mark.parametrize(
    ("data", "size", "shape", "corners", "tolerance"),
    [
        *((encode(LEFT_RIGHT, kind), None, (48, 64), [RED, BLUE] * 2, 0) for kind in ("PNG", "BMP", "GIF")),
        *((encode(LEFT_RIGHT, kind, quality=95), None, (48, 64), [RED, BLUE] * 2, 0.06) for kind in ("JPEG", "WEBP")),
        *((encode(LEFT_RIGHT, kind, **ANIMATED), None, (48, 64), [RED, BLUE] * 2, 0) for kind in ("GIF", "PNG")),
        (encode(LEFT_RIGHT, "WEBP", lossless=True, **ANIMATED), None, (48, 64), [RED, BLUE] * 2, 0.01),
        (encode(LEFT_RIGHT.convert("CMYK"), "JPEG", quality=95), None, (48, 64), [RED, BLUE] * 2, 0.06),
        (encode(LEFT_RIGHT, "JPEG", exif=SIDEWAYS), None, (64, 48), [RED, RED, BLUE, BLUE], 0.06),
        (encode(LEFT_RIGHT.resize((2000, 1000)), "JPEG"), 112, (112, 112), [RED, BLUE] * 2, 0.06),  # decoded small
        (encode(SEE_THROUGH), None, (48, 64), [RED, (127 / 255, 127 / 255, 1), WHITE, BLUE], 0.005),  # on white
        (encode(STRIPES), 20, (20, 20), [WHITE] * 4, 0.01),  # the middle square
        (encode(STRIPES.rotate(90, expand=True)), 20, (20, 20), [WHITE] * 4, 0.01),
        (encode(Image.fromarray(np.uint8(np.indices((64, 64)).sum(0) % 2 * 255))), 8, (8, 8), [(0.5,) * 3] * 4, 0.02),
        (encode(Image.new("1", (4, 4), 1)), None, (4, 4), [WHITE] * 4, 0),
        *((encode(grey), None, (4, 4), [GREY] * 4, 1e-6) for grey in GREYS),
        (encode(GREYS[2]), 2, (2, 2), [GREY] * 4, 1e-6),
    ],
)
def test_every_kind_of_file_is_read(tmp_path, data, size, shape, corners, tolerance):
    (tmp_path / "picture").write_bytes(data)
    found = read_picture(tmp_path / "picture", size)
    assert torch.equal(found, read_picture(memoryview(data), size))
    assert found.shape == (3, *shape)
    same(found[:, [0, 0, -1, -1], [0, -1, 0, -1]].T, corners, tolerance)


@pytest.mark.parametrize("side", [7_100, 60_000])  # the second is refused by Pillow itself
def test_a_file_with_far_too_many_pixels_is_refused_before_it_is_decoded(side):
    data = encode(LEFT_RIGHT, "BMP")
    data = data[:18] + 2 * side.to_bytes(4, "little") + data[26:]  # its width and height
    with pytest.raises(CourseError, match=r"^the picture has .*50,000,000.*: make it smaller first$"):
        read_picture(data)


def test_a_file_that_is_no_picture_or_cannot_be_read_gets_a_sentence_with_its_name(tmp_path):
    files = {"notes.txt": b"hello", "drawing.svg": b"<svg/>", "photo.tiff": b"II*\0" + bytes(40), "empty.png": b""}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        says = rf"^{name} is damaged, or no picture that can be read here: give PNG, JPEG, GIF, WEBP or BMP$"
        with pytest.raises(CourseError, match=says):
            read_picture(tmp_path / name)
    with pytest.raises(CourseError, match=r"nowhere.png cannot be read: No such file or directory$"):
        read_picture(str(tmp_path / "nowhere.png"))


def test_errors_that_a_learner_can_cause_are_said():
    for call, says in (
        (lambda: centre(torch.tensor([[0.0, math.nan]])), "1 of 2 values are nan or infinite"),
        (lambda: colourise(torch.tensor([[-1.0, 1]])), r"in \[0, 1\], got -1 to 1: scale_to_unit\(map\) stretches it"),
        (lambda: png(plain(9)), r"values in \[0, 1\], got 9 to 9: scale_to_unit\(image, dims=3\) stretches a picture"),
        (lambda: png(torch.zeros(1, 4, 4)), r"expected pictures .*, got shape \(1, 4, 4\)"),
        (lambda: outline(plain(0), torch.zeros(2, 2)), r"\(3, 2, 2\) need bool masks, got torch.float32 \(2, 2\)"),
        (lambda: grid([plain(0), plain(1)], labels=["one"]), "2 pictures need as many labels, got 1"),
        (lambda: draw_heat(plain(0), mark=True), "the hottest pixel of what"),
        (lambda: draw_attention(torch.zeros(1, 2, 2), ["a"], ["b"], "t", "alt"), r"go with \(1, 1, 1\), got \(1, 2"),
        (lambda: module.show(plain(0), alt="  \n"), "alt is empty: say in a sentence what the picture shows"),
    ):
        with pytest.raises(CourseError, match=says):
            call()


CHART = {"values": [18, 16, 2, 0], "labels": ["a", "b & c", "d", "e"], "title": "b < a", "unit": "MiB"}


def test_bars_are_as_long_as_their_values():
    red, _, blue = read_picture(bars(**CHART).data)
    assert b"matplotlib" not in bars(**CHART).data  # the same picture has the same bytes with its next version
    lengths = [0, *(blue - red > 0.4).sum(1).tolist()]
    starts = [n for n in range(1, len(lengths)) if lengths[n] and not lengths[n - 1]]
    found = [max(lengths[n : n + 5]) for n in starts]  # the first row of a bar may be half as blue
    assert found == pytest.approx([found[0], found[0] * 16 / 18, found[0] * 2 / 18], abs=2)  # and none for the 0


def test_the_plain_text_has_the_numbers_in_columns_and_a_screen_reader_gets_a_sentence():
    assert repr(bars(**CHART)) == "b < a\n  a      18 MiB\n  b & c  16 MiB\n  d      2 MiB\n  e      0 MiB"
    assert bars(**CHART).alt == "a: 18 MiB; b & c: 16 MiB; d: 2 MiB; e: 0 MiB."
    assert bars(**CHART, alt="two long bars").alt == "two long bars"
    short = bars([0, 3.0, 2.0625, 999_999, 16_777_216], "abcde", "t")
    assert repr(short) == "t\n  a  0\n  b  3\n  c  2.062\n  d  999999\n  e  1.678e+07"
    assert repr(bars([0], ["a"], "nothing")) == "nothing\n  a  0"


def test_what_cannot_be_drawn_is_said():
    for values, labels in (([1, 2], ["a"]), ([], [])):
        with pytest.raises(CourseError, match=f"got {len(values)} values and {len(labels)} labels"):
            bars(values, labels, "title")
    for bad in (-2, math.nan, math.inf):
        with pytest.raises(CourseError, match="the value of 'b' is no length"):
            bars([1, bad, 0], "abc", "title")
