"""Feature maps as pictures and sentences: against maps computed without hooks, and shares counted by pixel."""

import dataclasses
from collections import Counter
from unittest.mock import Mock

import pytest
import torch
from panels import control, shown, upload
from torch import nn

from course_utils.explorers import FeatureMaps, feature_maps
from course_utils.explorers.feature_maps import PICTURES, draw_channel, find_maps, find_numbered, find_thumb
from course_utils.explorers.own_picture import Subject, read_scene
from course_utils.explorers.panel import name_place
from course_utils.lessons.channels import follow_things
from course_utils.scenes.scene import KINDS, scene, scenes
from course_utils.vision.networks import WeightsError, load_classifier, load_picture_net
from course_utils.vision.pictures import colour_channel, draw_strokes, find_strongest, light_up, png, put_on_white
from course_utils.vision.real import REAL, photograph
from course_utils.vision.scores import share_on
from course_utils.vision.toys import EDGES, make_edge_net

CAT_AND_BOAT = scene("cat", "boat", seed=3)


def test_each_edge_kernel_answers_to_one_direction():
    right = torch.linspace(0, 1, 20).expand(20, 20)
    ramps = torch.stack([right, right.flip(1), right.T, right.T.flip(0)])
    answers = make_edge_net()(ramps[:, None].expand(-1, 3, -1, -1))[:, :, 5:15, 5:15].mean((2, 3))
    assert (answers.diag() > 0.1).all()
    assert torch.allclose(answers, answers.diag().diag(), atol=1e-6)


def test_strokes_are_black_ink_where_their_points_are_and_paper_shows_where_there_is_none():
    drawing = draw_strokes([((25, 50), (75, 50))], size=40)
    assert drawing.shape == (4, 40, 40)
    assert not drawing[:3].any()
    rows, columns = (drawing[3] > 0.5).nonzero().T
    assert set(rows.tolist()) <= {19, 20}
    assert (columns.min(), columns.max()) == (10, 29)
    assert 0.02 < draw_strokes()[3].mean() < 0.2, "the cat"
    rgba = torch.tensor([0.2, 0.4, 0.6, 0.5])[:, None, None]
    assert put_on_white(rgba).flatten().tolist() == pytest.approx([0.6, 0.7, 0.8])


def test_light_the_strongest_channels_and_the_share_on_a_mask_by_hand():
    image = torch.full((3, 4, 4), 0.8)
    lit = light_up(image, torch.tensor([[2.0, -5.0], [2.0, 0.0]]))
    assert (lit[0, 0, 0].item(), lit[0, 0, 3].item()) == pytest.approx((0.8, 0.24))
    assert torch.allclose(light_up(image, torch.full((2, 2), 3.0)), image), "the same everywhere lights everything"
    maps = torch.tensor([[[0.0, 1.0]], [[4.0, -9.0]], [[1.0, 2.0]], [[-1.0, -1.0]]])
    assert (find_strongest(maps), find_strongest(maps, 2)) == ((1, 2, 0, 3), (1, 2))
    assert find_strongest(torch.zeros(3, 2, 2)) == (0, 1, 2)
    maps = torch.tensor([[[1.0, 3.0]], [[0.0, 0.0]], [[-4.0, 2.0]]])
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]]) > 0  # all of one place, a quarter of the other
    assert share_on(maps, mask).tolist() == pytest.approx([(1 + 0.75) / 4, 0, 0.25])


def test_channels_made_of_masks_follow_their_kinds():
    batch = scenes(60, seed=77)
    cat, boat = batch.masks("cat"), batch.masks("boat")
    followed = follow_things(torch.stack([cat.float(), 1 - boat.float(), torch.ones(cat.shape)], 1), batch)
    k, b = KINDS.index("cat"), KINDS.index("boat")
    area = cat[batch.labels[:, k] > 0].float().mean().item()
    assert followed.share[::2, k].tolist() == pytest.approx([1, area], abs=1e-5)
    even = follow_things(torch.ones(60, 1, 14, 14), batch)  # a place of a map has many pixels
    assert even.share[0, k].item() == pytest.approx(area, abs=1e-5)
    assert (followed.best_channel("cat"), followed.tells[::2, k].tolist()) == (0, [1, 0.5])
    assert (followed.share[1, b].item(), followed.tells[1, b].item()) == (0, 0)
    for count, says in ((1, "2 pictures need as many maps, got 1"), (2, r"of 2 pictures, 0 show a \w+: take more")):
        with pytest.raises(ValueError, match=says):
            follow_things(torch.zeros(count, 2, 7, 7), scenes(2, seed=1))


def test_the_maps_are_those_that_the_layers_compute():
    maps = find_maps("picture_net", read_scene(CAT_AND_BOAT))
    net, x = load_picture_net(), (CAT_AND_BOAT.image[None] - 0.5) / 0.25
    with torch.no_grad():
        for index, layer in enumerate(net.features):
            x = layer(x)
            if f"features.{index}" in maps.layers:
                assert torch.allclose(maps.layers[f"features.{index}"], x[0], atol=1e-5)
    assert list(maps.layers)[-1] == "features.16"
    assert not any(isinstance(net.get_submodule(name), nn.BatchNorm2d) for name in maps.layers)
    assert torch.allclose(maps.image, CAT_AND_BOAT.image, atol=1e-6)
    assert torch.equal(maps.masks["boat"], CAT_AND_BOAT.masks[1])
    assert maps.title == str(CAT_AND_BOAT)


def test_what_rounding_leaves_of_zero_is_zero():
    maps = find_maps(EDGES, Subject("grey", torch.full((3, 50, 50), 0.3)))
    assert not any(layer.any() for layer in maps.layers.values())
    assert "it is 0 everywhere" in draw_channel(maps, "0", 1).sentence


def test_the_pictures_are_all_pairs_of_things():
    pairs = Counter(tuple(find_numbered(number).masks) for number in range(PICTURES))
    assert pairs == {(one, other): 1 for one in KINDS for other in KINDS if one != other}
    assert torch.equal(find_numbered(29).image, scene(*find_numbered(29).masks, seed=29).image)


def test_the_sentence_tells_what_the_map_holds():
    maps = find_maps("picture_net", read_scene(CAT_AND_BOAT))
    strongest = find_strongest(maps.layers["features.13"])
    channel = strongest[2]
    view, one = draw_channel(maps, "features.13", channel), maps.layers["features.13"][channel]
    zeros = f"{(one == 0).float().mean().item():.0%} of its numbers are 0"
    on_cat = sum(one[row // 8, column // 8].item() for row, column in CAT_AND_BOAT.masks[0].nonzero().tolist())
    areas = " and ".join(f"{mask.float().mean():.0%}" for mask in CAT_AND_BOAT.masks)
    for words in (
        f"Channel {channel} of layer features.13 (96 channels of 14 x 14)",
        f" from 0 to {one.max().item():.2g}; {zeros}. Of its response {on_cat / 64 / one.sum():.0%} on the cat",
        f"on the boat, which cover {areas} of the picture. It is number 3 of the 8 strongest here.",
    ):
        assert words in view.sentence
    start = f"A{str(CAT_AND_BOAT)[1:]}; the map of channel {channel} of layer features.13, greatest {name_place(one)}; "
    assert (view.facts, view.alt.startswith(start)) == (strongest, True)
    assert view.alt.endswith(f"lit by it. Below, the maps of the strongest channels: {str(strongest)[1:-1]}.")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layers": {"x": torch.zeros(9, 14, 14)}}, "it is 0 everywhere. It is not one of the 8 strongest here."),
        ({"layers": {"x": torch.full((9, 2, 2), -250.0)}}, "It goes from -250 to -250. It is not one"),
        ({"masks": {"cat": CAT_AND_BOAT.masks[0]}, "layers": {"x": torch.ones(9, 2, 2)}}, "on the cat, which covers"),
        ({"masks": {}, "layers": {"x": torch.ones(9, 2, 2)}}, "of its numbers are 0. It is not one"),
    ],
)
def test_other_sentences(change, words):
    maps = dataclasses.replace(find_maps("picture_net", find_numbered(0)), **change)
    assert words in draw_channel(maps, next(iter(maps.layers)), 8).sentence


def test_the_picture_shows_the_map():
    spot = torch.zeros(2, 14, 14)
    spot[0, 2, 3] = 5.0
    maps = dataclasses.replace(find_maps("picture_net", find_numbered(3)), layers={"spot": spot})
    sheet = draw_channel(maps, "spot", 0).picture
    assert sheet.shape == (3, 355, 676)
    panel = sheet[:, 4:224, 228:448].mean(0)  # the second one: a cell is 220 / 14 pixels
    assert panel[39, 55] > 0.75 > 0.1 > panel[165, 165]
    assert not torch.equal(sheet, draw_channel(maps, "spot", 1).picture)


def test_maps_share_one_scale_unless_each_has_its_own():
    maps = torch.zeros(2, 14, 14)
    maps[0, 2, 3], maps[1, 2, 3] = 0.5, 5  # the first is ten times weaker
    maps = dataclasses.replace(find_maps("picture_net", find_numbered(3)), layers={"spot": maps})
    light = {}
    for own in (False, True):
        view = draw_channel(maps, "spot", 0, own_scale=own)
        large, small = view.picture[:, 39, 228 + 55].mean(), view.picture[:, 252 + 14, 87 + 20].mean()
        light[own] = large.item()
        assert small == pytest.approx(large), "the weak channel is the second of the small maps"
    assert light[False] < 0.15 < 0.75 < light[True]
    words = {own: draw_channel(maps, "spot", 0, own_scale=own).sentence for own in (False, True)}
    assert words[False].endswith(
        "All maps have one scale; its end, 5, is the layer's greatest number for this picture."
    )
    assert words[True].endswith("Each map has its own scale.")
    signed = torch.tensor([[[-1.0, 0.5]], [[0.0, 2.0]]])
    negative, positive = colour_channel(signed[0], signed)[..., 0], colour_channel(signed[1], signed)[:, 0]
    assert negative[0, 0] < 0.75 < negative[2, 0], "blue, though pale: half as far from zero as 2"
    assert positive[0, 1] > positive[2, 1]
    assert colour_channel(signed[1], signed)[:, 0, 0].min() > 0.95, "zero is white on the scale of the layer"


@pytest.mark.parametrize(
    ("x", "y", "place"), [(5, 250, 0), (82, 300, 0), (88, 300, 1), (660, 300, 7), (670, 300, None), (300, 240, None)]
)
def test_a_small_map_is_found_where_it_is_drawn(x, y, place):
    assert find_thumb(x / 676, y / 355) == place


def test_a_click_on_a_small_map_shows_its_channel():
    explorer = FeatureMaps(picture=30)
    spot = (4 + 83 * 2 + 40) / 676, 300 / 355
    explorer.controls["spot"].value = (spot, spot)
    assert "It is number 3 of the 8 strongest here." in explorer.sentence
    before = explorer.sentence
    explorer.controls["spot"].value = ((0.1, 0.1), (0.1, 0.1))
    assert explorer.sentence == before


@pytest.mark.slow
@pytest.mark.parametrize("network", feature_maps.NETWORKS)
def test_every_network_opens(network):
    explorer = FeatureMaps()
    control(explorer, "Network").value = network
    layers = find_maps(network, explorer.values["own"] or find_numbered(0)).layers
    layer, maps = [*layers.items()][1 if network == REAL else -1]
    assert f"of layer {layer} ({len(maps)} channels" in explorer.sentence
    assert explorer.view.facts == find_strongest(maps)
    assert control(explorer, "Channel").max == len(maps) - 1


@pytest.mark.slow
def test_photographs_and_the_real_network_find_each_other_and_the_courses_networks_never_see_one():
    explorer = FeatureMaps("picture_net_misled", picture=30)

    def use(words, value):
        control(explorer, words).value = value
        own = explorer.values["own"]
        return explorer.values["network"], own and own.title, control(explorer, "Picture").layout.visibility

    upload(explorer, png(torch.full((3, 224, 224), 0.4)))
    assert explorer.values["network"] == REAL
    channels = [len(maps) for maps in find_maps(REAL, explorer.values["own"]).layers.values()]
    assert channels == [32, 144, 240, 672, 1280]
    assert use("Photograph", "") == ("picture_net_misled", None, "visible")
    assert use("Network", REAL) == (REAL, "a ginger cat", "hidden")
    ((name, share),) = load_classifier(REAL).likeliest(photograph("chelsea"), 1)
    assert explorer.sentence.startswith(f"EfficientNet-Lite0 says: {name} ({share:.0%}). Channel ")
    assert "in EfficientNet-Lite0, for a ginger cat." in explorer.sentence
    assert use("Network", EDGES) == (EDGES, "a ginger cat", "hidden")
    assert "Of its response" not in explorer.sentence, "it has no truth"
    assert use("Network", "picture_net") == ("picture_net", None, "visible")
    assert explorer.sentence == FeatureMaps(picture=30).sentence
    assert FeatureMaps("picture_net", picture="coffee").values["network"] == REAL


def test_it_opens_at_the_strongest_channel_of_the_last_layer():
    explorer = FeatureMaps(picture=30)
    assert "It is number 1 of the 8 strongest here." in explorer.sentence
    assert control(explorer, "Layer").value == "features.16"


def test_weights_that_cannot_be_read_are_a_sentence(monkeypatch):
    explorer = FeatureMaps(layer="features.13", channel=3)
    before = explorer.sentence
    damaged = WeightsError("the file is damaged: restore it")
    monkeypatch.setattr(feature_maps, "find_maps", Mock(side_effect=damaged))
    control(explorer, "Network").value = "picture_net_misled"
    assert control(explorer, "Network").value == "picture_net"
    assert "the file is damaged: restore it" in shown(explorer)
    assert explorer.sentence == before
