"""Feature maps told as pictures and sentences: against maps computed without hooks, and shares counted by pixel."""

import base64
import dataclasses
import io
import re
import sys
from datetime import datetime, timezone
from types import SimpleNamespace
from urllib.parse import unquote

import ipywidgets as widgets
import pytest
import torch
from PIL import Image
from torch import nn

from course_utils.explorers import FeatureMaps, feature_views, make_problem
from course_utils.explorers.feature_views import (
    NETWORKS,
    PICTURES,
    MapError,
    load_network,
    numbered_scene,
    tell_channel,
    view_numbered,
    view_picture,
)
from course_utils.hooks.inventory import count_hooks
from course_utils.scenes.scene import KINDS, scene, scenes
from course_utils.vision import toys
from course_utils.vision.networks import WeightsError, load_picture_net
from course_utils.vision.pictures import (
    draw_strokes,
    find_strongest,
    light_up,
    put_on_white,
)
from course_utils.vision.scores import follow_things, share_on
from course_utils.vision.toys import make_edge_net

# --- one convolution and a drawing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "brighter"),
    [
        (0, lambda ramp: ramp),
        (1, lambda ramp: ramp.flip(1)),
        (2, lambda ramp: ramp.T),
        (3, lambda ramp: ramp.T.flip(0)),
    ],
    ids=["right", "left", "down", "up"],
)
def test_each_edge_kernel_answers_to_one_direction(channel, brighter):
    image = brighter(torch.linspace(0, 1, 20).expand(20, 20)).expand(1, 3, -1, -1)
    answers = make_edge_net()(image)[0, :, 5:15, 5:15].mean((1, 2))
    assert answers[channel] > 0.1
    assert answers.sum().item() == pytest.approx(answers[channel].item(), abs=1e-6)


def test_edge_kernels_do_not_answer_to_an_even_picture_and_at_most_with_one():
    net = make_edge_net()
    assert net(torch.full((1, 3, 9, 9), 0.7)).abs().max() < 1e-6
    step = torch.zeros(1, 3, 9, 9)
    step[..., 4:] = 1
    assert net(step).max() <= 1


def test_a_drawing_is_black_ink_on_a_transparent_ground():
    drawing = draw_strokes()
    assert drawing.shape == (4, 112, 112)
    assert not drawing[:3].any()
    assert 0.02 < drawing[3].mean() < 0.2
    assert (drawing[3].min(), drawing[3].max()) == (0, 1)


def test_strokes_lie_where_their_points_are():
    alpha = draw_strokes([((25, 50), (75, 50))], size=40)[3]
    rows, columns = (alpha > 0.5).nonzero().T
    assert set(rows.tolist()) <= {19, 20}
    assert (columns.min(), columns.max()) == (10, 29)


def test_paper_shows_through_where_there_is_no_ink():
    rgba = torch.tensor([0.2, 0.4, 0.6, 0.5])[:, None, None]
    assert put_on_white(rgba).flatten().tolist() == pytest.approx([0.6, 0.7, 0.8])


# --- all maps of a network --------------------------------------------------------------------------------------------


def test_the_maps_are_those_that_the_layers_compute():
    picture = scene("cat", "boat", seed=3)
    views = view_picture("picture_net", picture)
    net, x = load_picture_net(), (picture.image[None] - 0.5) / 0.25
    with torch.no_grad():
        for index, layer in enumerate(net.features):
            x = layer(x)
            if f"features.{index}" in views.layers:
                assert torch.allclose(views.layers[f"features.{index}"], x[0], atol=1e-5)
    assert list(views.layers)[-1] == "features.16"
    assert not any(isinstance(net.get_submodule(name), nn.BatchNorm2d) for name in views.layers)


def test_the_network_sees_the_picture_as_it_is_and_keeps_no_hook():
    picture = scene("cat", "boat", seed=3)
    views = view_picture("picture_net", picture)
    assert torch.allclose(views.image, picture.image, atol=1e-6)
    assert torch.equal(views.masks["boat"], picture.masks[1])
    assert views.title == str(picture)
    assert count_hooks(load_network("picture_net").model).total() == 0


@pytest.mark.parametrize("network", ["alexnet", "resnet34"])
def test_large_networks_see_the_middle_of_the_picture(network):
    picture = scene("cat", "boat", seed=3)
    views = view_picture(network, picture)
    middle = nn.functional.interpolate(picture.image[None], size=(256, 256), mode="bilinear")[0, :, 16:240, 16:240]
    assert (views.image - middle).abs().mean() < 0.02
    area, cropped = picture.masks[0].float().mean(), views.masks["cat"].float().mean()
    assert area < cropped < area * (256 / 224) ** 2 + 0.01


def test_a_module_that_runs_twice_has_two_entries():
    layers = view_numbered("resnet34", 0).layers
    first, second = layers["layer1.0.relu (run 1)"], layers["layer1.0.relu (run 2)"]
    assert first.shape == second.shape
    assert not torch.equal(first, second)
    assert torch.equal(layers["relu"], layers["relu"].relu())


def test_convolutions_before_an_in_place_relu_keep_their_negative_numbers():
    layers = view_numbered("alexnet", 0).layers
    assert layers["features.0"].min() < 0
    assert torch.equal(layers["features.0"].relu(), layers["features.1"])


def test_a_picture_of_ones_own_has_no_truth():
    views = view_picture(toys.EDGES, torch.rand(3, 224, 224))
    assert views.masks == {}
    story = tell_channel(views, "1")
    assert "your own picture" in story.sentence
    assert "Of its response" not in story.sentence


def test_unknown_networks_and_layers_and_channels_are_named():
    with pytest.raises(MapError, match=r"'alexnett' is not a network here \(did you mean alexnet\?\)"):
        load_network("alexnett")
    views = view_numbered("picture_net", 0)
    with pytest.raises(MapError, match=r"'features.12' is not a layer shown here.*there are: features\.0, features\.2"):
        tell_channel(views, "features.12")
    with pytest.raises(MapError, match=r"features\.13 has the channels 0 to 95, not 96"):
        tell_channel(views, "features.13", 96)
    with pytest.raises(MapError, match="0 to 89, not 90"):
        numbered_scene(PICTURES)


def test_the_sentence_about_weights_names_no_folder(monkeypatch):
    found = load_network("alexnet")
    told = dataclasses.replace(found, note="alexnet has random weights: no trained ones are in /home/me/.cache")
    monkeypatch.setattr(feature_views, "load_network", lambda network: told)
    story = tell_channel(view_picture("alexnet", scene("cat", seed=1)), "features.0")
    assert story.sentence.endswith("alexnet has random weights.")


# --- one channel ------------------------------------------------------------------------------------------------------


def test_the_strongest_channels_by_hand():
    maps = torch.tensor([[[0.0, 1.0]], [[4.0, -9.0]], [[1.0, 2.0]], [[-1.0, -1.0]]])
    assert find_strongest(maps) == (1, 2, 0, 3)
    assert find_strongest(maps, 2) == (1, 2)
    assert find_strongest(torch.zeros(3, 2, 2)) == (0, 1, 2)


def test_the_sentence_tells_what_the_map_holds():
    picture = scene("cat", "boat", seed=3)
    views = view_picture("picture_net", picture)
    maps = views.layers["features.13"]
    channel = find_strongest(maps)[2]
    story = tell_channel(views, "features.13", channel)
    one = maps[channel]
    assert f"Channel {channel} of layer features.13 (96 channels of 14 x 14) in the course's network" in story.sentence
    assert f"for {picture}." in story.sentence
    assert (
        f"It goes from 0 to {one.max().item():.2g}; {(one == 0).float().mean().item():.0%} of its numbers are 0."
        in (story.sentence)
    )
    on_cat = sum(one[row // 8, column // 8].item() for row, column in picture.masks[0].nonzero().tolist()) / (
        64 * one.sum().item()
    )
    assert f"Of its response {on_cat:.0%} on the cat" in story.sentence
    assert "It is number 3 of the 8 strongest here." in story.sentence
    assert story.strongest == find_strongest(maps)


def test_a_silent_channel_is_told_and_drawn_dark():
    views = view_numbered("picture_net", 0)
    silent = dataclasses.replace(views, layers={"quiet": torch.zeros(9, 14, 14)})
    story = tell_channel(silent, "quiet", 8)
    assert "Nothing in this picture makes it respond: it is 0 everywhere. It is not one of the 8" in story.sentence
    assert Image.open(io.BytesIO(story.picture.data)).size == (676, 355)


def test_the_picture_shows_the_map():
    """Light where the map is, and another picture for another channel."""
    views = view_numbered("picture_net", 3)
    spot = torch.zeros(2, 14, 14)
    spot[0, 2, 3] = 5.0
    story = tell_channel(dataclasses.replace(views, layers={"spot": spot}), "spot", 0)
    image = Image.open(io.BytesIO(story.picture.data)).convert("L")
    gap, panel = feature_views.GAP, feature_views.PANEL
    left = 2 * gap + panel  # of the second panel
    cell = panel / 14

    def shade(row, column):
        return image.getpixel((int(left + (column + 0.5) * cell), int(gap + (row + 0.5) * cell)))

    assert shade(2, 3) > 200
    assert shade(10, 10) < 20
    assert story.picture.data != tell_channel(dataclasses.replace(views, layers={"spot": spot}), "spot", 1).picture.data


def test_light_falls_where_the_map_is_positive():
    image = torch.full((3, 4, 4), 0.8)
    lit = light_up(image, torch.tensor([[2.0, -5.0], [2.0, 0.0]]), dark=0.25)
    assert lit[0, 0, 0].item() == pytest.approx(0.8)
    assert lit[0, 0, 3].item() == pytest.approx(0.2)
    even = light_up(image, torch.full((2, 2), 3.0))
    assert torch.allclose(even, image), "a map that is the same everywhere lights everything"


@pytest.mark.parametrize("number", [0, 29, PICTURES - 1])
def test_pictures_come_by_number(number):
    picture = numbered_scene(number)
    assert torch.equal(picture.image, scene(*picture.labels, seed=number).image)


def test_the_numbers_go_through_all_pairs():
    assert {tuple(numbered_scene(number).labels) for number in range(PICTURES)} == {
        (one, other) for one in KINDS for other in KINDS if one != other
    }


# --- what channels follow ---------------------------------------------------------------------------------------------


def test_the_share_on_a_mask_by_hand():
    maps = torch.tensor([[[1.0, 3.0]], [[0.0, 0.0]], [[-4.0, 2.0]]])
    mask = torch.tensor(
        [[True, True, False, False], [True, True, True, False]]
    )  # all of one place, a quarter of the other
    assert share_on(maps, mask).tolist() == pytest.approx([(1 + 0.75) / 4, 0, 0.25])


def test_channels_made_of_masks_follow_their_kinds():
    batch = scenes(60, seed=77)
    cat, boat = batch.masks("cat"), batch.masks("boat")
    maps = torch.stack([cat.float(), 1 - boat.float(), torch.ones(cat.shape)], 1)
    followed = follow_things(maps, batch)
    k, b = KINDS.index("cat"), KINDS.index("boat")
    assert followed.share[0, k].item() == pytest.approx(1)
    assert followed.tells[0, k].item() == 1
    assert followed.best_channel("cat") == 0
    assert followed.share[1, b].item() == 0
    assert followed.tells[1, b].item() == 0
    area = cat[batch.labels[:, k] > 0].float().mean()
    assert followed.share[2, k].item() == pytest.approx(area.item(), abs=1e-5)
    assert followed.tells[2, k].item() == 0.5


def test_too_few_pictures_are_said():
    batch = scenes(2, seed=1)
    with pytest.raises(ValueError, match="2 pictures need as many maps, got 1"):
        follow_things(torch.zeros(1, 2, 7, 7), batch)
    with pytest.raises(ValueError, match=r"of 2 pictures, 0 show a \w+: take more pictures"):
        follow_things(torch.zeros(2, 2, 7, 7), batch)


# --- the explorer -----------------------------------------------------------------------------------------------------


def controls(explorer, kind, description=None):
    found, waiting = [], [explorer.widget]
    while waiting:
        widget = waiting.pop(0)
        waiting += getattr(widget, "children", ())
        if isinstance(widget, kind) and (description is None or widget.description == description):
            found.append(widget)
    return found


def control(explorer, kind, description=None):
    (found,) = controls(explorer, kind, description)
    return found


def panel_picture(explorer):
    """The PNG on the panel."""
    (found,) = re.findall(r'<img alt="[^"]+" src="data:image/png;base64,([^"]+)"', words(explorer))
    return base64.b64decode(unquote(found), validate=True)


def words(explorer):
    return "".join(each.value for each in controls(explorer, widgets.HTML))


def upload(explorer, data):
    file = {"name": "x", "type": "", "size": len(data), "content": data, "last_modified": datetime.now(timezone.utc)}
    control(explorer, widgets.FileUpload).value = (file,)


def encoded(image, format="PNG"):
    buffer = io.BytesIO()
    image.save(buffer, format)
    return buffer.getvalue()


def test_it_opens_where_a_lesson_says():
    explorer = FeatureMaps("picture_net", layer="features.13", channel=26, picture=30)
    story = tell_channel(view_numbered("picture_net", 30), "features.13", 26)
    assert explorer.sentence == story.sentence
    assert panel_picture(explorer) == story.picture.data
    assert control(explorer, widgets.IntSlider, "Channel").value == 26
    assert control(explorer, widgets.SelectionSlider, "Layer").value == "features.13"


def test_without_more_it_opens_at_the_strongest_channel_of_the_last_layer():
    explorer = FeatureMaps()
    views = view_numbered("picture_net", 0)
    assert explorer.sentence == tell_channel(views, "features.16").sentence


def test_sliders_and_buttons_change_the_channel():
    explorer = FeatureMaps(layer="features.13", picture=30)
    control(explorer, widgets.IntSlider, "Channel").value = 5
    views = view_numbered("picture_net", 30)
    assert explorer.sentence == tell_channel(views, "features.13", 5).sentence
    strongest = find_strongest(views.layers["features.13"])
    control(explorer, widgets.Button, str(strongest[4])).click()
    assert explorer.sentence == tell_channel(views, "features.13", strongest[4]).sentence
    assert control(explorer, widgets.IntSlider, "Channel").value == strongest[4]


def test_another_layer_has_its_own_channels():
    explorer = FeatureMaps(layer="features.13")
    control(explorer, widgets.SelectionSlider, "Layer").value = "features.2"
    assert control(explorer, widgets.IntSlider, "Channel").max == 23
    assert explorer.sentence == tell_channel(view_numbered("picture_net", 0), "features.2").sentence


def test_another_picture_keeps_layer_and_channel():
    explorer = FeatureMaps(layer="features.13", channel=7)
    control(explorer, widgets.IntSlider, "Picture").value = 12
    assert explorer.sentence == tell_channel(view_numbered("picture_net", 12), "features.13", 7).sentence


@pytest.mark.parametrize("network", NETWORKS)
def test_every_network_opens(network):
    explorer = FeatureMaps()
    control(explorer, widgets.ToggleButtons, "Network").value = network
    views = view_numbered(network, 0)
    last = list(views.layers)[-1]
    assert explorer.sentence == tell_channel(views, last).sentence
    channels = len(views.layers[last])
    buttons = [each for each in controls(explorer, widgets.Button) if each.description.isdigit()]
    assert sum(each.layout.display != "none" for each in buttons) == min(8, channels)
    assert control(explorer, widgets.IntSlider, "Channel").max == channels - 1


def test_weights_that_cannot_be_read_are_a_sentence(monkeypatch):
    explorer = FeatureMaps(layer="features.13", channel=3)
    before = explorer.sentence

    def fail_for_alexnet(network, number):
        if network == "alexnet":
            raise WeightsError("alexnet's file is damaged: delete it")
        return view_numbered(network, number)

    monkeypatch.setattr("course_utils.explorers.feature_maps.view_numbered", fail_for_alexnet)
    control(explorer, widgets.ToggleButtons, "Network").value = "alexnet"
    assert control(explorer, widgets.ToggleButtons, "Network").value == "picture_net"
    assert make_problem("alexnet's file is damaged: delete it") in words(explorer)
    assert explorer.sentence == before
    control(explorer, widgets.IntSlider, "Channel").value = 4
    assert "damaged" not in words(explorer)


GREY16 = Image.fromarray((torch.rand(40, 30) * 60_000).to(torch.int32).numpy().astype("uint16"))
UPLOADS = {
    "PNG": encoded(Image.new("RGB", (300, 200), "#28a")),
    "JPEG": encoded(Image.new("RGB", (90, 400), "#a28"), "JPEG"),
    "grey": encoded(Image.new("L", (64, 64), 90)),
    "transparent": encoded(Image.new("RGBA", (64, 64), (0, 0, 0, 0))),
    "16-bit": encoded(GREY16),
    "one pixel": encoded(Image.new("RGB", (1, 1), "red")),
}


@pytest.mark.parametrize("name", UPLOADS)
def test_uploads_just_work(name):
    explorer = FeatureMaps(layer="features.2", channel=3)
    upload(explorer, UPLOADS[name])
    assert "Channel 3 of layer features.2" in explorer.sentence
    assert "your own picture" in explorer.sentence
    assert "alert" not in words(explorer)
    assert control(explorer, widgets.IntSlider, "Picture").disabled
    control(explorer, widgets.Button, "Back to the course's pictures").click()
    assert explorer.sentence == tell_channel(view_numbered("picture_net", 0), "features.2", 3).sentence
    assert not control(explorer, widgets.IntSlider, "Picture").disabled


@pytest.mark.parametrize("data", [b"", b"hello", UPLOADS["PNG"][:60]], ids=["empty", "text", "cut off"])
def test_uploads_that_do_not_work_are_a_sentence(data):
    explorer = FeatureMaps()
    before, shown = explorer.sentence, panel_picture(explorer)
    upload(explorer, data)
    assert "That does not work yet." in words(explorer)
    assert "is damaged, or no picture" in words(explorer)
    assert (explorer.sentence, panel_picture(explorer)) == (before, shown)
    control(explorer, widgets.IntSlider, "Picture").value = 1
    assert "That does not work yet." not in words(explorer)


class Canvas(widgets.Box):
    """ipycanvas.Canvas as far as the pad uses it, with `play` in the place of a mouse."""

    def __init__(self, **_):
        super().__init__()
        self.handlers, self.drawn = {}, []

    def __getattr__(self, name):
        if name.startswith("on_mouse_") or name.startswith("on_touch_"):
            return lambda handler: self.handlers.update({name[3:]: handler})
        raise AttributeError(name)

    def fill_rect(self, *box):
        self.drawn.clear()

    def stroke_line(self, *ends):
        self.drawn.append(ends)

    def play(self, *events):
        for name, *where in events:
            self.handlers[name](*where)


@pytest.fixture
def pad(monkeypatch):
    """An explorer of the edge kernels with its drawing pad open."""
    monkeypatch.setitem(sys.modules, "ipycanvas", SimpleNamespace(Canvas=Canvas))
    explorer = FeatureMaps(toys.EDGES)
    control(explorer, widgets.Button, "Draw one").click()
    return explorer


def test_a_drawing_is_shown_as_it_grows(pad):
    canvas = control(pad, Canvas)
    empty = panel_picture(pad)
    assert "your own picture" in pad.sentence
    canvas.play(("mouse_move", 5, 5), ("mouse_down", 56, 112), ("mouse_move", 112, 112), ("mouse_move", 168, 112))
    assert panel_picture(pad) == empty
    canvas.play(("mouse_up", 168, 112), ("mouse_move", 0, 0))
    assert canvas.drawn == [(56, 112, 112, 112), (112, 112, 168, 112)]
    image = put_on_white(draw_strokes([((25, 50), (50, 50), (75, 50))], size=224))
    assert pad.sentence == tell_channel(view_picture(toys.EDGES, image), "1", 3).sentence


def test_an_empty_square_gives_nothing_at_all(pad):
    assert "Nothing in this picture makes it respond" in pad.sentence


def test_a_finger_and_a_dot_draw_too_and_all_can_be_wiped(pad):
    canvas = control(pad, Canvas)
    empty = panel_picture(pad)
    canvas.play(("touch_start", [(50, 50)]), ("touch_move", [(90, 60)]), ("touch_end", []))
    line = panel_picture(pad)
    canvas.play(("mouse_down", 150, 150), ("mouse_out", 150, 150))
    assert len({empty, line, panel_picture(pad)}) == 3
    control(pad, widgets.Button, "Wipe").click()
    assert panel_picture(pad) == empty
    assert canvas.drawn == []


def test_the_pad_goes_with_the_drawing(pad):
    control(pad, widgets.Button, "Back to the course's pictures").click()
    assert controls(pad, Canvas) == []
    assert "your own picture" not in pad.sentence
    control(pad, widgets.Button, "Draw one").click()
    upload(pad, UPLOADS["PNG"])
    assert controls(pad, Canvas) == []


def test_without_ipycanvas_drawing_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipycanvas", None)
    explorer = FeatureMaps()
    before = explorer.sentence
    control(explorer, widgets.Button, "Draw one").click()
    assert "Drawing needs the package ipycanvas: run %pip install ipycanvas" in words(explorer)
    assert explorer.sentence == before


def test_ones_own_picture_from_the_start():
    explorer = FeatureMaps(toys.EDGES, picture=put_on_white(draw_strokes()))
    assert "your own picture" in explorer.sentence
    assert control(explorer, widgets.IntSlider, "Picture").disabled


def test_a_page_without_a_kernel_gets_picture_and_sentence():
    explorer = FeatureMaps()
    data, metadata = explorer._repr_mimebundle_()
    assert data["text/plain"] == explorer.sentence
    assert metadata["image/png"]["alt"]
    assert set(data) == {"text/plain", "image/png", "application/vnd.jupyter.widget-view+json"}


def test_every_control_has_a_name():
    explorer = FeatureMaps()
    kinds = (widgets.IntSlider, widgets.SelectionSlider, widgets.ToggleButtons, widgets.Button, widgets.FileUpload)
    for kind in kinds:
        assert controls(explorer, kind)
        for each in controls(explorer, kind):
            assert each.description, each


def test_wrong_beginnings_are_named():
    for arguments, complaint in (
        ({"network": "vgg"}, "is not a network here"),
        ({"layer": "features.99"}, "is not a layer shown here"),
        ({"layer": "features.2", "channel": 24}, "channels 0 to 23"),
        ({"picture": -1}, "0 to 89, not -1"),
    ):
        with pytest.raises(MapError, match=complaint):
            FeatureMaps(**arguments)


def test_a_network_runs_once_for_each_picture(monkeypatch):
    view_numbered.cache_clear()
    runs = []
    net = load_network("picture_net").model
    with net.register_forward_hook(lambda *_: runs.append(1)):
        explorer = FeatureMaps(layer="features.13", picture=41)
        for channel in (1, 2, 3):
            control(explorer, widgets.IntSlider, "Channel").value = channel
        control(explorer, widgets.SelectionSlider, "Layer").value = "features.2"
        assert len(runs) == 1
        control(explorer, widgets.IntSlider, "Picture").value = 42
        control(explorer, widgets.IntSlider, "Picture").value = 41
        assert len(runs) == 2


def test_views_of_the_same_state_are_the_same():
    one, other = (tell_channel(view_picture("picture_net", numbered_scene(5)), "features.13", 4) for _ in range(2))
    assert (one.picture.data, one.sentence) == (other.picture.data, other.sentence)
