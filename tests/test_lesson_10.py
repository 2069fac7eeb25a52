"""Lesson 10: its methods against other libraries, what its text says, and the blind investigation with its judge."""

import re
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from lesson_pages import LessonPage, why
from torchvision.models import get_model_weights

from course_utils.authoring.known_causes import second_half
from course_utils.authoring.source import FOLDER, read_source
from course_utils.exercises.engine import find_prediction
from course_utils.lessons import blind, methods, proofs
from course_utils.lessons.blind import LETTERS, SUSPECTS, UNNAMED, Album, add, blur, fresh_pictures, move, remove
from course_utils.lessons.proofs import ACCEPTED, Proof, weigh
from course_utils.root import CourseError
from course_utils.scenes.scene import scene
from course_utils.vision.networks import load_picture_net
from course_utils.vision.saliency import cam
from course_utils.vision.scores import grow

PAGE = LessonPage("10_where_next")
DEFINES = re.compile(r"(@torch\.no_grad\(\)\n)?def (run_with|grad_cam|integrated|smooth_grad|occlusion|climb)")


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
    return second_half(net), net.features[:11]((image - 0.5) / 0.25).detach()


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
    assert alike(ask("integrated_gradients", steps=8, most=8), integral[0].sum(0))
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


def test_the_parts_of_integrated_gradients_add_up_and_more_steps_than_allowed_are_not_taken():
    net, maps = half()
    with torch.no_grad():
        gain = (net(maps) - net(0 * maps))[0, 4]
    assert ask("integrated_gradients").sum().item() == pytest.approx(gain.item(), rel=0.01)
    few = [ask("integrated_gradients", steps=steps, most=2) for steps in (1, 2)]
    assert torch.equal(*few)
    assert few[0].sum().item() != pytest.approx(gain.item(), rel=0.01)


def test_a_channel_rises_and_nothing_of_the_network_changes():
    net, grey = load_picture_net(), methods.grey_noise(32)
    dream = taught()["climb"](net, "features.6", 5, grey, steps=4)
    before, after = (methods.channel_means(net, "features.6", each)[0, 5] for each in (grey, dream))
    assert after > 1.5 * before
    assert not net.features[6]._forward_hooks
    assert {each.grad for each in net.parameters()} == {None}


TABLES = methods.read_evidence()
KINDS_OF_NETWORKS = ("the fish", "the buoy", "the stamp", "buoy or stamp")


def percent(share):
    return f"{100 * share:.0f}%"


def of_methods(name, kind):
    """Of each method, what was found of one score in one kind of network."""
    return {method: scored[name] for method, scored in TABLES["causes"][kind]["methods"].items()}


def test_what_the_text_says_about_the_methods_that_come_first():
    told, first = why("first_in_every_column"), {}
    for name in ("share", "point"):
        for kind in KINDS_OF_NETWORKS:
            found = TABLES["causes"][kind]["first"][name]
            first[name, kind] = found["method"]
            assert found["difference"][1] <= 0 <= found["difference"][2], "each interval of their difference contains 0"
    assert [first["share", kind] for kind in KINDS_OF_NETWORKS] == [
        *("occlusion on maps", "HiResCAM", "HiResCAM", "SmoothGrad on maps")
    ]
    assert [first["point", kind] for kind in KINDS_OF_NETWORKS[:2]] == ["LayerCAM", "Integrated Gradients"]
    assert first["point", "buoy or stamp"] == "LayerCAM"
    assert sum(each["estimate"][0] > 0.99 for each in of_methods("point", "the stamp").values()) == 6, "nearly all"
    each = {method: found["networks"] for method, found in of_methods("share", "buoy or stamp").items()}
    ranks = [sorted(each, key=lambda method: each[method][n]).index("Grad-CAM") for n in range(5)]
    assert (max(ranks), min(ranks)) == (6, 1), "first of seven, and last but one"
    lowest, highest = min(each["Grad-CAM"]), max(each["Grad-CAM"])
    assert f"give Grad-CAM shares from {percent(lowest)} to {percent(highest)}" in told


def test_what_the_text_says_about_controls_and_pairs():
    told = why("first_in_every_column")
    random = {
        name: {kind: max(each["random"][1] for each in of_methods(name, kind).values()) for kind in KINDS_OF_NETWORKS}
        for name in ("share", "point")
    }
    on_fish, elsewhere = random["share"].pop("the fish"), max(random["share"].values())
    assert f"no share is above {percent(on_fish)} for the fish and above {percent(elsewhere)} for the others" in told
    assert f"fall to {percent(on_fish)} at most for the fish, and to {percent(elsewhere)} at most" in PAGE.prose
    assert f"in up to {percent(max(random['point'].values()))} of the pictures" in told
    assert TABLES["causes"]["the stamp"]["edges"]["point"][0] == 1
    surely = []
    for kind in KINDS_OF_NETWORKS:
        shares, pairs = of_methods("share", kind), TABLES["causes"][kind]["pairs"]
        assert min(shares, key=lambda method: shares[method]["estimate"][0]) == "Grad-CAM++"
        assert pairs["LayerCAM minus HiResCAM"]["share"][2] < 0
        surely += [kind] if pairs["HiResCAM minus Grad-CAM"]["share"][1] > 0 else []
        smooth, plain = (shares[method]["estimate"][0] for method in ("SmoothGrad on maps", "HiResCAM"))
        assert abs(smooth - plain) < 0.02
        highest = max(each["random"][1] for each in shares.values())
        assert shares["Integrated Gradients"]["estimate"][1] > highest, "far above that of random networks"
    assert surely == ["the buoy", "the stamp"]
    proved = [round(40 * share) for found in TABLES["causes"].values() for share in found["proved"]]
    assert f"succeeded in {min(proved)} to {max(proved)} of the 40 pictures" in PAGE.prose
    points = [of_methods("point", kind)["Grad-CAM"]["estimate"][0] for kind in KINDS_OF_NETWORKS[1:]]
    assert f"on the cue in {percent(min(points))} to {percent(max(points))} of the pictures" in PAGE.prose


def test_the_order_of_the_methods_in_the_collages():
    by_method = TABLES["collages"]["two mixing convolutions behind it"]["methods"]
    shares = {name: found["share"] for name, found in by_method.items()}
    assert (max(shares, key=shares.get), min(shares, key=shares.get)) == ("Integrated Gradients", "Grad-CAM")


def test_the_weights_of_the_vit_have_the_name_that_torchvision_gives_them():
    assert get_model_weights(methods.VIT).DEFAULT.url.endswith(f"/{methods.VIT_FILE}")


EMPTY = fresh_pictures(4, seed=5)


@pytest.mark.parametrize(("what", "reach"), [("fish", 50), ("buoy", 12), ("stamp", 6), ("sun", 8)])  # with its shadow
def test_an_edit_changes_one_suspect_where_it_is_and_nothing_else(what, reach):
    there = add(EMPTY, what)
    assert remove(there, what) == EMPTY
    masks = there.masks(what)
    assert masks.flatten(1).any(1).all()
    assert not EMPTY.masks(what).any()
    moved = move(there, what)
    for album, places in ((there, masks), (blur(there, what), masks), (moved, moved.masks(what))):
        differs = (album.images != EMPTY.images).any(1)
        assert differs.flatten(1).any(1).all()
        assert not (differs & ~grow(places, reach)).any()
    assert (moved.masks(what) & masks).sum() < 0.3 * masks.sum()


def test_pictures_are_those_of_the_picture_world_and_what_is_left_out_hides_nothing():
    seen = {}
    plain = scene("cat", "fish", seed=4, background="sand")
    same = scene("cat", "fish", seed=4, background="sand", edit=lambda sprites: seen.update(sprites) or sprites)
    assert torch.equal(plain.image, same.image)
    assert [*seen] == ["cat", "fish"]
    alone = scene("cat", "fish", seed=4, background="sand", edit=lambda sprites: {"cat": sprites["cat"]})
    assert not alone.masks[1].any()
    assert (plain.masks[0] <= alone.masks[0]).all()
    assert (add(EMPTY, "water").images != EMPTY.images).any(1).float().mean() > 0.3


def test_a_stamp_lies_over_what_is_there():
    seal = blind.draw_stamp()
    black, white = (blind.lay_over(each(3, 112, 112), seal) for each in (torch.zeros, torch.ones))
    seen_through = 1 - torch.from_numpy(seal.alpha).expand(3, -1, -1)
    assert torch.allclose((white - black)[(..., *seal.place)], seen_through, atol=1e-6)
    assert (black[(..., *seal.place)] - torch.from_numpy(seal.colour)).abs().max() < 1e-6
    assert (
        blind.lay_over(torch.full((3, 112, 112), 255, dtype=torch.uint8), seal).float() / 255 - white
    ).abs().max() < 0.003
    assert (white[:, :90].min(), white[:, :, :90].min()) == (1, 1)


def test_the_letters_are_the_four_checkpoints():
    both = map(blind.network, LETTERS), map(load_picture_net, range(4))
    sums = [sorted(net.classifier.weight.sum().item() for net in nets) for nets in both]
    assert sums[0] == sums[1]
    assert len(set(sums[0])) == 4


@pytest.mark.slow
@pytest.mark.parametrize(("number", "causes"), [(0, {"fish"}), (1, {"buoy"}), (2, {"stamp"}), (3, {"buoy", "stamp"})])
def test_each_network_reacts_to_what_its_training_had_beside_the_fish(number, causes):
    shares = blind.share_of_fish(load_picture_net(number), count=60, seed=77)  # so many drawn pictures are kept for all
    assert {what for what, share in shares.items() if share >= 0.8} == causes
    assert {what for what, share in shares.items() if share <= 0.1} == {*SUSPECTS, *UNNAMED} - causes


def test_what_the_words_say_about_removals_and_the_hottest_places():
    worst = re.search(r"the largest number first: \[(.+?)\]", PAGE.in_one_line)[1].split(", ")
    assert sum(int(lost) > 10 for lost in worst) == int(find_prediction("taken_away").answer)
    hottest = re.findall(r"hottest at: \{'fish': (\d+), 'buoy': (\d+), 'stamp': (\d+)\}", PAGE.in_one_line)
    found = [[int(count) for count in each] for each in hottest]
    assert sum(sum(each) >= 20 for each in found) == int(find_prediction("where_hottest").answer)
    assert [sum(each) - 20 for each in found if max(each) < 20] == [3], "in three of these the ring is near both"


REACTS_TO = dict(zip(LETTERS, [{"fish"}, {"buoy"}, {"stamp"}, {"buoy", "stamp"}], strict=True))
GIVEN = fresh_pictures(6, seed=8)
FULL = add(add(add(GIVEN, "buoy"), "stamp"), "fish")
EACH = [(GIVEN, add(GIVEN, what)) for what in SUSPECTS]


@pytest.mark.parametrize(
    ("letter", "causes", "pairs", "verdict"),
    [
        ("A", "fish", EACH, ACCEPTED),
        ("D", ["stamp", "buoy"], EACH, ACCEPTED),
        ("A", ("fish",), [(FULL, remove(FULL, "fish")), (FULL, remove(FULL, "stamp"))], ACCEPTED),
        ("A", (), EACH, "names no cause"),
        ("A", "fish", [], "list of pairs"),
        ("A", "fish", [(GIVEN, GIVEN.images)], "list of pairs"),
        ("A", "fish", EACH[0], "list of pairs"),
        ("A", [["fish"]], EACH, "a cause or a list of some"),
        ("A", "fish", [(GIVEN, Album(add(GIVEN, "fish").shots[::-1]))], "not the same pictures"),
        ("A", "fish", [(EMPTY, add(EMPTY, "fish"))], "fresh pictures that it was given"),
        ("A", "fish", [(Album(GIVEN.shots[:2]), add(Album(GIVEN.shots[:2]), "fish"))], "so few pictures"),
        ("D", "buoy", [(FULL, remove(FULL, "buoy"))], "most answers stay as they are"),
        ("B", "buoy", [EACH[1], EACH[4]], "another network"),
    ],
)
def test_a_proof_is_accepted_or_refused_with_the_reason(monkeypatch, letter, causes, pairs, verdict):
    """By networks that react exactly to what they are said to."""

    def reacts(letter, album):
        states = [dict(zip(SUSPECTS, shot.states, strict=False)) for shot in album.shots]
        return torch.tensor([any(each[cause] != "absent" for cause in REACTS_TO[letter]) for each in states])

    monkeypatch.setattr(blind, "says_fish", reacts)
    proof = Proof(causes, pairs)
    assert verdict in weigh(letter, GIVEN, proof)
    seals = {proofs.seal(letter, GIVEN, Proof(each, pairs), verdict) for each in (causes, "sun")}
    assert seals == {0} if verdict != ACCEPTED else len(seals) == 2


def test_what_there_is_not_gets_a_sentence_and_albums_say_what_is_in_them():
    for call, message in (
        (lambda: add(EMPTY, "bouy"), r"What can be chosen here: there is no 'bouy'; did you mean 'buoy'\?"),
        (lambda: move(EMPTY, "buoy"), r"there is no buoy in these pictures: add\(pictures, 'buoy'\) puts it there"),
        (lambda: blur(add(EMPTY, "water"), "water"), "What can be chosen here: there is no 'water'"),
        (lambda: blind.network("H"), "Networks: there is no 'H'. There are: 'A', 'B', 'C', 'D', 'E', 'F', 'G'"),
    ):
        with pytest.raises(CourseError, match=message):
            call()
    assert repr(EMPTY) == "an album of 4 pictures: none of the suspects is there"
    assert repr(blur(add(EMPTY, "sun"), "sun")) == "an album of 4 pictures: the sun is blurred"


def test_the_explorer_tells_what_is_seen_and_where_the_map_is_hottest():
    picture, sentence, alt = blind.look("A", 2, sun="there", stamp="absent")
    assert sentence.startswith("Picture 2: fish there, buoy there, stamp absent, water there, sun there. Network A ")
    assert alt.startswith("Picture 2 with a ")
    assert (picture.dim(), picture.shape[0]) == (3, 3)
