"""The methods of lesson 10 against other libraries and second methods; its notebook shows what its text says."""

import re
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from lesson_pages import LessonPage, why

from course_utils.authoring.source import FOLDER, read_source
from course_utils.lessons import methods
from course_utils.scenes.scene import scene
from course_utils.vision.networks import load_picture_net
from course_utils.vision.saliency import cam

PAGE = LessonPage("10_where_next")
DEFINES = re.compile(r"(@torch\.no_grad\(\)\n)?def (run_with|grad_cam|integrated|occlusion|climb)")


@cache
def taught() -> dict:
    """The functions that the lesson's own cells define."""
    names = {"torch": torch, "F": F}
    for cell in read_source(FOLDER / "source" / "10_where_next.py").cells:
        if cell.cell_type == "code" and DEFINES.match(cell.source):
            exec(cell.source, names)
    return names


@cache
def half() -> tuple[torch.nn.Module, torch.Tensor]:
    """The second half of the picture network, and the maps of one picture where it starts."""
    net, image = load_picture_net(), scene("cat", "dog", seed=6).image[None]
    return methods.second_half(net), net.features[:11]((image - 0.5) / 0.25).detach()


def ask(name: str, **options: object) -> torch.Tensor:
    return taught()[name](half()[0], "start", half()[1], 4, **options).detach()


def alike(got, wanted):
    return (got - wanted).abs().max() <= 1e-4 * wanted.abs().max()


@pytest.mark.parity
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "theirs"), [("grad_cam_plus_plus", "GradCAMPlusPlus"), ("layer_cam", "LayerCAM"),
                                              ("hires_cam", "HiResCAM"), ("grad_cam", "GradCAM")])  # fmt: skip
def test_the_cams_are_those_of_pytorch_grad_cam(name, theirs):
    library = pytest.importorskip("pytorch_grad_cam")
    net, maps = half()[0], half()[1].clone().requires_grad_()
    targets = [library.utils.model_targets.ClassifierOutputTarget(4)]
    with getattr(library, theirs)(net, [net.start]) as extractor:
        extractor(maps, targets)
        kept = extractor.activations_and_grads
        seen = (kept.activations[0].numpy(), kept.gradients[0].numpy())
        assert alike(ask(name), torch.from_numpy(extractor.get_cam_image(maps, None, targets, *seen, False))[0])


@pytest.mark.parity
def test_the_others_are_those_of_captum():
    attr = pytest.importorskip("captum.attr")
    net, maps = half()
    integral = attr.IntegratedGradients(net).attribute(maps, 0, 4, n_steps=8, method="riemann_middle")
    assert alike(ask("integrated_gradients"), integral[0].sum(0))
    windows = {"sliding_window_shapes": (64, 2, 2), "strides": (64, 2, 2), "baselines": 0}
    assert alike(ask("occlusion"), attr.Occlusion(net).attribute(maps, target=4, **windows)[0, 0])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tunnel = attr.NoiseTunnel(attr.Saliency(net))
        spread = (0.15 * (maps.max() - maps.min())).item()
        mean = tunnel.attribute(maps, nt_samples=8, stdevs=spread, target=4, abs=False)
    assert alike(ask("smooth_grad"), (mean * maps)[0].sum(0))


def test_with_average_pooling_and_a_linear_layer_behind_them_the_methods_are_one():
    net, image = load_picture_net(), scene("cat", "dog", seed=6).image[None]
    wanted = cam(net, image, 4)[0] / 196
    for name in ("grad_cam", "hires_cam", "integrated_gradients", "smooth_grad"):
        assert alike(taught()[name](net, "features.16", image, 4), wanted)
    assert alike(taught()["occlusion"](net, "features.16", image, 4, side=1), wanted)


def test_what_the_scores_and_intervals_count():
    question = methods.Question(torch.rand(1, 1, 2, 2), 0, torch.eye(2).bool(), torch.rand(3, 2, 2))
    heat = torch.tensor([[3.0, 1.0], [-5.0, 1.0]])
    found = methods.score(lambda *_: heat, torch.nn.Identity(), [question])
    assert (found.point.item(), found.share.item()) == (1, 4 / 5)
    assert methods.bootstrap(torch.tensor([0.0, 0.0, 1.0, 1.0]), groups=2) == (0, 1)
    assert methods.bootstrap(torch.tensor([0.0, 1.0, 0.0, 1.0]), groups=2) == (0.5, 0.5), "pictures, not questions"
    responses = torch.tensor([[3.0, 1.0], [2.0, 1.0], [1.0, 1.0], [2.0, 0.0]])
    assert methods.tells(responses, torch.tensor([True, True, False, False])).tolist() == [3.5 / 4, 3 / 4]


def test_a_channel_rises_and_nothing_of_the_network_changes():
    net, grey = load_picture_net(), methods.grey_noise(32)
    dream = taught()["climb"](net, "features.6", 5, grey, steps=4)
    before, after = (methods.channel_means(net, "features.6", each)[0, 5] for each in (grey, dream))
    assert after > 1.5 * before
    assert not net.features[6]._forward_hooks
    assert {each.grad for each in net.parameters()} == {None}


def test_what_the_text_says_about_the_table():
    lines = PAGE.printed_by("methods.print_table").splitlines()[2:]
    rows = {line[:22].strip(): [int(each) for each in re.findall(r"(\d+)%", line[22:])] for line in lines}
    controls = [rows.pop(name) for name in list(rows) if name.startswith("(")]
    point, share, _, _, random, photo_point, photo_share, _, _ = (
        dict(zip(rows, column, strict=True)) for column in zip(*rows.values(), strict=True)
    )

    def best(column):
        return {name for name in column if column[name] == max(column.values())}

    told = why("first_in_every_column")
    assert (best(point), best(share)) == ({"Integrated Gradients", "SmoothGrad"}, {"Grad-CAM"})
    assert sorted(point, key=point.get)[:2] == ["Grad-CAM++", "Grad-CAM"]
    assert (best(photo_point), best(photo_share)) == ({"LayerCAM", "Grad-CAM++"}, {"LayerCAM"})
    assert f"in the collages, where it is at {photo_share['HiResCAM']}% and an even map" in told
    assert f"and here it has {photo_share['Grad-CAM']}%" in told
    assert f"all methods fall to {min(random.values())}% or {max(random.values())}%" in told
    assert f"Edges have seen no network and reach {controls[-1][1]}%" in told
    found = re.findall(r"(point|share) [+-]\d+%, interval ([+-]\d+)% to ([+-]\d+)%", PAGE.printed_by("def compare"))
    signs = [(int(low) > 0) - (int(high) < 0) for _, low, high in found]
    assert signs[:4] == [1, -1, 0, -1], "of the first pair, the difference of the shares stays"
    assert signs[5::2] == [1, -1], "the second pair is the other way round in the collages"


def test_what_the_text_says_about_channels_and_probes():
    assert PAGE.shows("trained the best channel: 1.00 on the pictures that it was chosen on, 1.00 on new ones")
    (score,) = set(re.findall(r"random +the best channel: ([\d.]+) .*?, \1 on new ones", PAGE.in_one_line))
    assert f"It is {score}, on the pictures that it was chosen on and on new ones" in why("best_of_96")
    (trained, drawn), (random, by_chance) = (
        re.findall(rf"{name} weights, \w+ *: +\d+% of .*? learned on, +(\d+)% of new ones", PAGE.in_one_line)
        for name in ("trained", "random")
    )
    told = why("probe_of_a_random_network")
    assert f"from {random}% of the new pictures with random weights, and from {trained}% with trained ones" in told
    assert f"of the pair of things from {drawn}% of the new pictures" in told
    assert f"reads it from {by_chance}%, which is chance" in told
