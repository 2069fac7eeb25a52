"""Pictures from tensors, with values worked out by hand, and pictures from any file that a learner may bring."""

import base64
import io
import math
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from course_utils.authoring.build import find_problems
from course_utils.vision import pictures as module
from course_utils.vision.pictures import (
    COLOURS,
    Picture,
    PictureError,
    centre,
    colourise,
    figure_with_alt,
    grid,
    normalise,
    outline,
    overlay,
    png,
    read_picture,
    resize_maps,
    show,
)


def same(found, wanted, tolerance=1e-6):
    torch.testing.assert_close(found, torch.as_tensor(wanted, dtype=torch.float32), rtol=0, atol=tolerance)


def plain(value, height=2, width=2):
    return torch.full((3, height, width), float(value))


# --- maps -------------------------------------------------------------------------------------------------------------


def test_each_map_is_stretched_for_itself():
    maps = torch.tensor([[[1.0, 3.0], [2.0, 5.0]], [[-10.0, 10.0], [0.0, 0.0]]])
    same(normalise(maps), [[[0, 0.5], [0.25, 1]], [[0, 1], [0.5, 0.5]]])


def test_the_channels_of_a_picture_are_stretched_together():
    image = torch.tensor([[[0.0, 1.0]], [[2.0, 2.0]], [[4.0, 3.0]]])
    same(normalise(image, dims=3), [[[0, 0.25]], [[0.5, 0.5]], [[1, 0.75]]])


@pytest.mark.parametrize("value", [0.0, -7.5, 1e30])
def test_a_constant_map_becomes_zero(value):
    same(normalise(torch.full((2, 3, 3), value)), torch.zeros(2, 3, 3))


def test_one_constant_map_among_others_does_no_harm():
    same(normalise(torch.tensor([[[4.0, 4.0]], [[0.0, 2.0]]])), [[[0, 0]], [[0, 1]]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.uint8, torch.int64, torch.bool])
def test_maps_of_any_number_type_become_float32(dtype):
    same(normalise(torch.tensor([[0, 1], [1, 0]], dtype=dtype)), [[0, 1], [1, 0]])


def test_half_precision_is_stretched_without_overflow():
    same(normalise(torch.tensor([[-60000.0, 60000.0]], dtype=torch.float16)), [[0, 1]])


def test_a_map_that_is_part_of_a_graph_is_taken_as_its_values():
    found = normalise(torch.tensor([[0.0, 2.0]], requires_grad=True) * 2)
    assert not found.requires_grad


def test_zero_is_centred_and_the_greatest_value_reaches_an_end():
    same(centre(torch.tensor([[[-1.0, 0.0, 4.0]], [[0.0, 0.0, 0.0]]])), [[[0.375, 0.5, 1]], [[0.5, 0.5, 0.5]]])
    same(centre(torch.tensor([[[-2.0]], [[1.0]], [[0.0]]]), dims=3), [[[0]], [[0.75]], [[0.5]]])


@pytest.mark.parametrize("function", [normalise, centre])
def test_maps_that_cannot_be_stretched_are_refused_in_words(function):
    with pytest.raises(ValueError, match=r"1 of 4 values are nan or infinite"):
        function(torch.tensor([[0.0, 1.0], [float("nan"), 2.0]]))
    with pytest.raises(ValueError, match=r"expected maps \(\.\.\., H, W\) with values, got shape \(5,\)"):
        function(torch.zeros(5))
    with pytest.raises(ValueError, match=r"got shape \(0, 4, 4\)"):
        function(torch.zeros(0, 4, 4))
    with pytest.raises(ValueError, match=r"expected maps \(\.\.\., C, H, W\) with values, got shape \(4, 4\)"):
        function(torch.zeros(4, 4), dims=3)
    with pytest.raises(ValueError, match="dims is 2 for each map or 3 for each picture, got 1"):
        function(torch.zeros(4, 4), dims=1)


def test_maps_are_resized_with_the_convention_of_the_course():
    same(resize_maps(torch.tensor([[0.0, 1.0]]), (1, 4)), [[0, 0.25, 0.75, 1]])
    assert resize_maps(torch.zeros(2, 5, 7, 7), (9, 11)).shape == (2, 5, 9, 11)


# --- colours ----------------------------------------------------------------------------------------------------------


def test_grey_gives_every_channel_the_value():
    same(colourise(torch.tensor([[0.0, 1.0]]), "gray"), [[[0, 1]]] * 3)


def test_viridis_runs_from_its_violet_to_its_yellow():
    # The first and last entries of the published table: #440154 and #fde725.
    found = colourise(torch.tensor([[0.0, 1.0]]), "viridis")[:, 0]
    same(found[:, 0], torch.tensor([0x44, 0x01, 0x54]) / 255, tolerance=0.003)
    same(found[:, 1], torch.tensor([0xFD, 0xE7, 0x25]) / 255, tolerance=0.003)


@pytest.mark.parametrize("colours", COLOURS[:6])
def test_every_one_sided_map_grows_lighter_all_the_way(colours):
    ramp = colourise(torch.linspace(0, 1, 64)[None], colours)[:, 0]
    lightness = torch.tensor([0.2126, 0.7152, 0.0722]) @ ramp.pow(2.2)
    assert (lightness.diff() > 0).all()


@pytest.mark.parametrize("colours", COLOURS[6:])
def test_every_two_sided_map_is_lightest_in_its_neutral_middle(colours):
    low, middle, high = colourise(torch.tensor([[0.0, 0.5, 1.0]]), colours)[:, 0].T
    assert middle.max() - middle.min() < 0.03
    assert middle.mean() > max(low.mean(), high.mean()) + 0.3


def test_colours_are_added_before_the_last_two_dimensions():
    assert colourise(torch.zeros(4, 2, 5, 6)).shape == (4, 2, 3, 5, 6)


def test_colours_are_refused_in_words():
    with pytest.raises(ValueError, match="'jet' is not a colour map here; there are: viridis, magma"):
        colourise(torch.zeros(2, 2), "jet")
    with pytest.raises(ValueError, match=r"values in \[0, 1\], got -1 to 3: normalise\(map\) stretches it"):
        colourise(torch.tensor([[-1.0, 3.0]]))


# --- overlays and outlines --------------------------------------------------------------------------------------------


def test_an_overlay_mixes_picture_and_colour():
    found = overlay(plain(0.2, 1, 2), torch.tensor([[0.0, 1.0]]), opacity=0.25, colours="gray")
    same(found, [[[0.15, 0.4]]] * 3)  # 0.75 * 0.2 + 0.25 * (0, 1)


@pytest.mark.parametrize(("opacity", "wanted"), [(0, 0.2), (1, 1.0)])
def test_an_overlay_at_its_ends_is_the_picture_or_the_map(opacity, wanted):
    same(overlay(plain(0.2), torch.ones(1, 1), opacity, "gray"), plain(wanted))


def test_an_overlay_resizes_the_map_and_takes_batches():
    found = overlay(torch.zeros(2, 3, 1, 4), torch.tensor([[[0.0, 1.0]], [[1.0, 1.0]]]), 1, "gray")
    same(found[:, 0, 0], [[0, 0.25, 0.75, 1], [1, 1, 1, 1]], tolerance=0.002)  # a table has 256 steps


def test_an_overlay_takes_bytes():
    same(overlay(torch.full((3, 2, 2), 51, dtype=torch.uint8), torch.zeros(2, 2), 0), plain(0.2))


def test_overlays_are_refused_in_words():
    with pytest.raises(ValueError, match=r"pictures \(2, 3, 4, 4\) go with maps \(2, h, w\), got \(4, 4\)"):
        overlay(torch.zeros(2, 3, 4, 4), torch.zeros(4, 4))
    with pytest.raises(ValueError, match=r"opacity is from 0 .* got 50"):
        overlay(plain(0), torch.zeros(2, 2), 50)
    with pytest.raises(ValueError, match=r"float pictures have values in \[0, 1\], got 0 to 9: normalise"):
        overlay(torch.tensor([0.0, 3.0, 9.0]).reshape(3, 1, 1), torch.zeros(1, 1))
    with pytest.raises(ValueError, match=r"expected pictures \(\.\.\., 3, H, W\), got shape \(1, 4, 4\)"):
        overlay(torch.zeros(1, 4, 4), torch.zeros(4, 4))


def test_an_outline_is_a_ring_inside_the_mask_and_a_contrasting_one_outside():
    mask = torch.zeros(7, 7, dtype=torch.bool)
    mask[2:5, 2:5] = True
    found = outline(plain(0.5, 7, 7), mask)
    wanted = torch.full((7, 7), 0.5)
    wanted[1:6, 1:6] = 0  # black outside
    wanted[2:5, 2:5] = 1  # white inside
    wanted[3, 3] = 0.5
    same(found, wanted.expand(3, 7, 7))


def test_a_dark_outline_has_a_white_neighbour():
    mask = torch.tensor([[True, False, False]])
    same(outline(plain(0.5, 1, 3), mask, "#800000"), [[[128 / 255, 1, 0.5]], [[0, 1, 0.5]], [[0, 1, 0.5]]])


def test_no_outline_is_drawn_along_the_edge_of_the_picture_or_around_nothing():
    image = plain(0.5, 6, 6)
    for mask in (torch.ones(6, 6, dtype=torch.bool), torch.zeros(6, 6, dtype=torch.bool)):
        same(outline(image, mask), image)


def test_outlines_take_batches_and_leave_their_arguments_alone():
    images, masks = torch.full((4, 3, 8, 8), 0.5), torch.zeros(4, 8, 8, dtype=torch.bool)
    masks[1, 3:5, 3:5] = True
    found = outline(images, masks, "gold", width=2)
    assert [not torch.equal(one, other) for one, other in zip(found, images, strict=True)] == [
        False,
        True,
        False,
        False,
    ]
    assert (images == 0.5).all()


def test_outlines_are_refused_in_words():
    mask = torch.zeros(2, 2, dtype=torch.bool)
    with pytest.raises(TypeError, match=r"masks are bool, got torch.float32: compare first, as in `mask > 0`"):
        outline(plain(0), mask.float())
    with pytest.raises(ValueError, match=r"pictures \(3, 2, 2\) and masks \(3, 2\) do not go together"):
        outline(plain(0), torch.zeros(3, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match="reddish"):
        outline(plain(0), mask, "reddish")
    with pytest.raises(ValueError, match="width is from 1 to 64, got 0"):
        outline(plain(0), mask, width=0)


# --- grids ------------------------------------------------------------------------------------------------------------


def test_a_grid_puts_pictures_in_rows():
    sheet = grid([plain(0), plain(0.5), plain(1)], columns=2, padding=1)
    assert sheet.shape == (3, 7, 7)
    same(sheet[:, 1:3, 1:3], plain(0))
    same(sheet[:, 1:3, 4:6], plain(0.5))
    same(sheet[:, 4:6, 1:3], plain(1))
    paper = torch.tensor(module.PAPER) / 255
    for row, column in [(0, 0), (3, 3), (6, 6), (4, 4), (1, 3)]:  # around, between, and the place left over
        same(sheet[:, row, column], paper)


@pytest.mark.parametrize(("count", "columns", "padding"), [(1, 1, 4), (5, 3, 4), (4, 2, 0), (3, 7, 2), (6, None, 1)])
def test_a_grid_is_laid_out_as_torchvisions(count, columns, padding):
    from torchvision.utils import make_grid

    pictures = torch.rand(count, 3, 5, 7, generator=torch.Generator().manual_seed(count))
    nrow = columns or math.ceil(math.sqrt(count))
    wanted = make_grid(pictures, nrow=nrow, padding=padding, pad_value=torch.nan)
    if count == 1:  # of one picture it returns the picture alone
        wanted = torch.nn.functional.pad(pictures[0], [padding] * 4, value=torch.nan)
    paper = torch.tensor(module.PAPER)[:, None, None] / 255
    assert torch.equal(grid(pictures, columns, padding), torch.where(wanted.isnan(), paper, wanted))


def test_a_grid_of_one_has_its_padding_too():
    sheet = grid([plain(0.25)], padding=3)
    assert sheet.shape == (3, 8, 8)
    same(sheet[:, 3:5, 3:5], plain(0.25))


@pytest.mark.parametrize(("count", "rows", "columns"), [(1, 1, 1), (2, 1, 2), (5, 2, 3), (64, 8, 8)])
def test_a_grid_is_about_square_unless_told(count, rows, columns):
    assert grid(torch.zeros(count, 3, 2, 2), padding=0).shape == (3, 2 * rows, 2 * columns)


def test_a_grid_takes_maps_and_repeats_their_pixels():
    sheet = grid(torch.tensor([[[0.0, 1.0]], [[1.0, 0.0]]]), columns=1, padding=0, scale=2)
    same(sheet, [[[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]]] * 3)


def test_labels_stand_under_their_pictures_and_leave_them_whole():
    tiles = [plain(value, 40, 60) for value in (0, 1)]
    bare, labelled = (grid(tiles, columns=2, padding=2, labels=labels) for labels in (None, ["cat", "boat"]))
    assert labelled.shape[2] == bare.shape[2]
    assert labelled.shape[1] > bare.shape[1]
    same(labelled[:, :42], bare[:, :42])
    left, right = labelled[:, 42:, 2:62], labelled[:, 42:, 64:124]
    assert not torch.equal(left, right)
    assert min(left.min(), right.min()) < 0.4  # ink


def test_grids_are_refused_in_words():
    with pytest.raises(ValueError, match="one or more equally large pictures, got none"):
        grid([])
    with pytest.raises(ValueError, match=r"equally large pictures, got \[\(3, 2, 2\), \(3, 4, 4\)\]"):
        grid([plain(0), plain(0, 4, 4)])
    with pytest.raises(ValueError, match=r"float pictures have values in \[0, 1\], got 0 to 7"):
        grid([plain(0), plain(7)])
    with pytest.raises(ValueError, match="scale is from 1 to 64, got 100"):
        grid([plain(0)], scale=100)
    with pytest.raises(ValueError, match="2 pictures need as many labels, got 1"):
        grid([plain(0), plain(1)], labels=["one"])
    with pytest.raises(TypeError, match=r"columns is a whole number from 1 to 10000, got 2\.5"):
        grid([plain(0)], columns=2.5)


# --- PNG and notebooks ------------------------------------------------------------------------------------------------


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)))


def test_a_png_holds_the_values_to_the_nearest_step():
    image = torch.tensor([[[0.0, 1.0]], [[0.5, 0.2]], [[0.001, 0.999]]])
    assert pixels(png(image)).tolist() == [[[0, 128, 0], [255, 51, 255]]]


def test_bytes_go_through_a_png_unchanged():
    image = torch.randint(0, 256, (3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    assert np.array_equal(pixels(png(image)), image.permute(1, 2, 0).numpy())
    assert torch.equal((read_picture(png(image)) * 255).round().to(torch.uint8), image)


def test_a_map_becomes_a_grey_png():
    assert pixels(png(torch.tensor([[0.0, 1.0]]))).tolist() == [[[0, 0, 0], [255, 255, 255]]]


def test_a_png_of_several_pictures_is_refused_in_words():
    with pytest.raises(ValueError, match=r"one picture \(3, H, W\), got \(2, 3, 4, 4\): grid\(\) joins several"):
        png(torch.zeros(2, 3, 4, 4))


def test_a_notebook_gets_the_picture_and_its_words():
    from IPython.core.formatters import DisplayFormatter

    picture = show(plain(0.5, 8, 9), alt="A grey field.")
    data, metadata = DisplayFormatter().format(picture)
    assert data["text/plain"] == repr(picture) == "A grey field."
    assert pixels(base64.b64decode(data["image/png"])).shape == (8, 9, 3)
    assert metadata == {"image/png": {"alt": "A grey field."}}


def test_the_rules_for_lessons_accept_what_is_shown():
    from nbformat.v4 import new_code_cell, new_notebook, new_output

    data, metadata = show(plain(0.5), alt="A grey field.")._repr_mimebundle_()
    for words, count in ((metadata, 0), ({}, 1)):
        output = new_output("execute_result", data, execution_count=1, metadata=words)
        notebook = new_notebook(cells=[new_code_cell("show(x)", execution_count=1, outputs=[output], id="a")])
        assert len(find_problems(notebook)) == count


@pytest.mark.parametrize("alt", ["", "  \n"])
def test_a_picture_without_words_is_refused(alt):
    with pytest.raises(ValueError, match="alt is empty: say in a sentence what the picture shows"):
        show(plain(0), alt=alt)


def test_a_title_stands_above_the_picture_in_as_many_lines_as_it_needs():
    image = plain(0.5, 20, 120)
    heights = [pixels(show(image, "Grey.", title).data).shape[0] for title in (None, "Short", "A finding " * 6)]
    assert heights[0] == 20 < heights[1] < heights[2]
    titled = pixels(show(image, "Grey.", "A finding " * 6).data)
    assert (titled[-20:] == 128).all()
    assert (titled[:-20, -1] > 200).all()  # no letter is cut off at the right


def test_pixels_can_be_repeated_for_small_pictures():
    assert pixels(show(plain(0.5, 4, 6), "Grey.", scale=5).data).shape == (20, 30, 3)


def test_a_figure_is_rendered_with_words_and_closed():
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(2, 1))
    axes.plot([0, 1])
    picture = figure_with_alt(figure, "A line goes up.")
    assert isinstance(picture, Picture)
    assert repr(picture) == "A line goes up."
    assert not plt.fignum_exists(figure.number)
    assert (pixels(picture.data)[0, 0, :3] == 255).all()
    assert b"matplotlib" not in picture.data


def test_a_figure_without_words_is_refused_and_closed():
    import matplotlib.pyplot as plt

    figure = plt.figure()
    with pytest.raises(ValueError, match="alt is empty"):
        figure_with_alt(figure, "")
    assert not plt.fignum_exists(figure.number)


def test_importing_the_module_loads_no_plotting_no_torchvision_and_no_widgets():
    code = (
        "import sys, course_utils.vision.pictures;"
        "print(sorted({'torchvision', 'matplotlib', 'ipywidgets', 'IPython'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


# --- files ------------------------------------------------------------------------------------------------------------


def encode(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def left_red_right_blue(size=(8, 6)):
    image = Image.new("RGB", size, "red")
    image.paste("blue", (size[0] // 2, 0, *size))
    return image


RED, BLUE, WHITE, BLACK = [1.0, 0, 0], [0, 0, 1.0], [1.0, 1, 1], [0.0, 0, 0]


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF"])
def test_exact_formats_are_read_exactly(kind):
    found = read_picture(encode(left_red_right_blue(), kind))
    assert found.shape == (3, 6, 8)
    assert found.dtype == torch.float32
    same(found[:, 0, 0], RED)
    same(found[:, 5, 7], BLUE)


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_photo_formats_are_read_nearly(kind):
    found = read_picture(encode(left_red_right_blue((64, 48)), kind, quality=95))
    assert found.shape == (3, 48, 64)
    same(found[:, 20, 5], RED, tolerance=0.06)
    same(found[:, 20, 60], BLUE, tolerance=0.06)


def test_a_picture_is_read_from_a_path_its_text_and_every_kind_of_bytes(tmp_path):
    data = encode(left_red_right_blue())
    path = tmp_path / "picture.png"
    path.write_bytes(data)
    for source in (path, str(path), data, bytearray(data), memoryview(data)):
        assert torch.equal(read_picture(source), read_picture(data))


def test_size_takes_the_middle_square():
    stripes = Image.new("RGB", (120, 40), "black")
    stripes.paste("white", (40, 0, 80, 40))
    found = read_picture(encode(stripes), size=20)
    same(found, plain(1, 20, 20), tolerance=0.01)
    assert read_picture(encode(stripes.rotate(90, expand=True)), size=20).mean() > 0.99


def test_making_smaller_averages_instead_of_picking_pixels():
    board = Image.fromarray((np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8))
    same(read_picture(encode(board), size=8), plain(0.5, 8, 8), tolerance=0.02)


def test_making_larger_works():
    assert read_picture(encode(Image.new("RGB", (1, 1), "red")), size=112).shape == (3, 112, 112)


def test_a_large_photo_is_read_at_the_right_place_though_decoded_small():
    found = read_picture(encode(left_red_right_blue((2000, 1000)), "JPEG"), size=112)
    same(found[:, 50, 20], RED, tolerance=0.05)
    same(found[:, 50, 90], BLUE, tolerance=0.05)


def test_transparent_becomes_white():
    image = left_red_right_blue().convert("RGBA")
    image.putalpha(Image.fromarray(np.array([[255] * 2 + [0] * 2 + [128] * 4] * 6, dtype=np.uint8)))
    found = read_picture(encode(image))
    same(found[:, 0, 0], RED)
    same(found[:, 0, 2], WHITE)
    same(found[:, 0, 5], [127 / 255, 127 / 255, 1], tolerance=0.005)  # half blue on white


def test_the_transparent_colour_of_a_palette_becomes_white():
    image = left_red_right_blue().convert("P", palette=Image.Palette.ADAPTIVE, colors=2)
    red = image.getpixel((0, 0))
    found = read_picture(encode(image, transparency=red))
    same(found[:, 0, 0], WHITE)
    same(found[:, 0, 7], BLUE)


def test_a_transparent_colour_of_a_picture_without_alpha_becomes_white():
    found = read_picture(encode(left_red_right_blue(), transparency=(255, 0, 0)))
    same(found[:, 0, 0], WHITE)
    same(found[:, 0, 7], BLUE)


@pytest.mark.parametrize(("mode", "light", "wanted"), [("L", 51, 0.2), ("1", 1, 1.0), ("LA", (51, 255), 0.2)])
def test_grey_pictures_become_rgb(mode, light, wanted):
    found = read_picture(encode(Image.new(mode, (4, 4), light)))
    same(found, plain(wanted, 4, 4))


@pytest.mark.parametrize("size", [None, 2])
def test_sixteen_bits_are_scaled_and_not_clipped(size):
    image = Image.fromarray(np.full((4, 4), 13107, dtype=np.uint16))  # 65535 / 5
    same(read_picture(encode(image), size), plain(0.2, size or 4, size or 4))


def test_sixteen_bits_of_colour_are_read():
    # Pillow writes no such file, so this one is made by hand: IHDR with depth 16 and colour type 2, one IDAT, IEND.
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    row = b"\0" + struct.pack(">HHH", 65535, 0, 32896) * 2
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", 2, 2, 16, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(row * 2)),
        (b"IEND", b""),
    ]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)
    same(read_picture(data)[:, 0, 0], [1, 0, 128 / 255], tolerance=0.005)


def test_print_colours_are_read():
    found = read_picture(encode(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG"))
    same(found[:, 8, 8], RED, tolerance=0.03)


def test_a_photo_held_sideways_is_turned_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # "rotate 90 clockwise to view": what is stored at the left belongs at the top
    found = read_picture(encode(left_red_right_blue((64, 32)), "JPEG", exif=exif))
    assert found.shape == (3, 64, 32)
    same(found[:, 5, 16], RED, tolerance=0.06)
    same(found[:, 60, 16], BLUE, tolerance=0.06)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_the_first_picture_of_an_animation_is_taken(kind):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "white")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encode(frames[0], kind, save_all=True, append_images=frames[1:], duration=100, **options)
    same(read_picture(data)[:, 4, 4], RED, tolerance=0.01)


def test_a_file_with_far_too_many_pixels_is_refused_before_it_is_decoded():
    for side in (7_100, 60_000):  # the second is refused by Pillow itself
        header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        chunk = b"IHDR" + header
        data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
        data += struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
        with pytest.raises(PictureError, match=r"^the picture has .*50,000,000.*: make it smaller first$"):
            read_picture(data)


def test_what_is_no_picture_gets_a_sentence_with_its_name(tmp_path):
    for name, content in {"notes.txt": b"hello", "drawing.svg": b"<svg/>", "photo.tiff": b"II*\0" + bytes(40)}.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(
            PictureError, match=rf"^{name} is damaged, or no picture .*: give PNG, JPEG, GIF, WEBP or BMP$"
        ):
            read_picture(path)


def test_files_that_cannot_be_read_get_a_sentence(tmp_path):
    (tmp_path / "empty.png").touch()
    with pytest.raises(PictureError, match=r"^empty.png is empty: 0 bytes$"):
        read_picture(tmp_path / "empty.png")
    with pytest.raises(PictureError, match=r"^the picture is empty: 0 bytes$"):
        read_picture(b"")
    with pytest.raises(PictureError, match=r"nowhere.png cannot be read: No such file or directory$"):
        read_picture(tmp_path / "nowhere.png")
    with pytest.raises(PictureError, match="cannot be read: Is a directory"):
        read_picture(tmp_path)


NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8))
FILES = {kind: encode(NOISE, kind) for kind in module.FORMATS}


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_a_file_without_its_end_is_damaged(kind):
    with pytest.raises(PictureError, match=r"^the picture is damaged or cut off: save or send it again$"):
        read_picture(FILES[kind][: len(FILES[kind]) * 9 // 10])


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(module.FORMATS),
    cut=st.integers(0, 4000),
    changes=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=4),
)
def test_whatever_is_in_a_file_it_is_read_or_refused_in_words(kind, cut, changes):
    data = bytearray(FILES[kind][: cut or None])
    for place, value in changes:
        data[place % len(data)] = value
    try:
        found = read_picture(data, size=8)
    except PictureError:  # any other error fails
        return
    assert found.shape == (3, 8, 8)
    assert found.min() >= 0
    assert found.max() <= 1


def test_wrong_arguments_are_refused_in_words():
    with pytest.raises(TypeError, match="a picture is read from its bytes or a path, got Tensor"):
        read_picture(torch.zeros(3, 4, 4))
    with pytest.raises(TypeError, match=r"size is a whole number from 1 to 4096, got 11\.2"):
        read_picture(FILES["PNG"], size=11.2)
    with pytest.raises(ValueError, match="size is from 1 to 4096, got 0"):
        read_picture(FILES["PNG"], size=0)
