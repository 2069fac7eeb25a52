"""The blind investigation: what an edit changes, what the networks have learned, and which proofs the judge refuses."""

import pytest
import torch

from course_utils.exercises.engine import find_prediction
from course_utils.lessons import blind
from course_utils.lessons.blind import LETTERS, SUSPECTS, Album, Proof, add, blur, fresh_pictures, move, remove, weigh
from course_utils.root import CourseError
from course_utils.scenes.scene import scene
from course_utils.vision.networks import load_picture_net
from course_utils.vision.scores import grow

EMPTY = fresh_pictures(4, seed=5)


@pytest.mark.parametrize(("what", "reach"), [("fish", 50), ("buoy", 12), ("stamp", 6), ("sun", 8)])  # with its shadow
def test_an_edit_changes_one_suspect_where_it_is_and_nothing_else(what, reach):
    there = add(EMPTY, what)
    assert remove(there, what) == EMPTY
    masks = there.masks(what)
    assert masks.flatten(1).any(1).all()
    assert not EMPTY.masks(what).any()
    for album, places in (
        (there, masks),
        (blur(there, what), masks),
        (move(there, what), move(there, what).masks(what)),
    ):
        differs = (album.images != EMPTY.images).any(1)
        assert differs.flatten(1).any(1).all()
        assert not (differs & ~grow(places, reach)).any()
    assert (move(there, what).masks(what) & masks).sum() < 0.3 * masks.sum()


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
    black, white = blind.stamp(torch.zeros(3, 112, 112)), blind.stamp(torch.ones(3, 112, 112))
    assert torch.allclose(
        (white - black)[(..., *seal.place)], 1 - torch.from_numpy(seal.alpha).expand(3, -1, -1), atol=1e-6
    )
    assert (black[(..., *seal.place)] - torch.from_numpy(seal.colour)).abs().max() < 1e-6
    assert (blind.stamp(torch.full((3, 112, 112), 255, dtype=torch.uint8)).float() / 255 - white).abs().max() < 0.003
    assert (white[:, :90].min(), white[:, :, :90].min()) == (1, 1)


def test_the_letters_are_the_four_checkpoints():
    sums = [
        sorted(net.classifier.weight.sum().item() for net in nets)
        for nets in (map(blind.network, LETTERS), map(load_picture_net, range(4)))
    ]
    assert sums[0] == sums[1]
    assert len(set(sums[0])) == 4


@pytest.mark.slow
@pytest.mark.parametrize(("number", "causes"), [(0, {"fish"}), (1, {"buoy"}), (2, {"stamp"}), (3, {"buoy", "stamp"})])
def test_each_network_reacts_to_what_its_training_had_beside_the_fish(number, causes):
    shares = blind.share_of_fish(load_picture_net(number), count=100, seed=77)
    assert {what for what, share in shares.items() if share >= 0.8} == causes
    assert {what for what, share in shares.items() if share <= 0.1} == {*SUSPECTS} - causes


def test_one_removal_turns_the_answers_of_three_networks_only():
    case = blind.case_pictures()
    assert all(blind.says_fish(letter, case).all() for letter in LETTERS)
    lost = [[(~blind.says_fish(letter, remove(case, each))).sum() for each in SUSPECTS] for letter in LETTERS]
    assert sum(max(counts) > 10 for counts in lost) == int(find_prediction("taken_away").answer)


def test_the_hottest_places_are_as_many_as_the_explanation_says():
    case, told = blind.case_pictures(), find_prediction("where_hottest")
    near = torch.stack([grow(case.masks(what), 8) for what in ("fish", "buoy", "stamp")])
    found = []
    for letter in LETTERS:
        hottest = blind.fish_maps(letter, case).flatten(1).argmax(1)
        found.append(near.flatten(2)[:, range(20), hottest].T)
    assert sum((each.any(1).sum() == 20).item() for each in found) == int(told.answer)
    (both,) = [each.sum(0).tolist() for each in found if 0 < each[:, 1].sum() < 20 and 0 < each[:, 2].sum() < 20]
    assert f"In {both[1]} pictures its map is hottest at one of them, in {both[2]} at the other" in told.why.replace(
        "\n", " "
    )
    assert both[1] + both[2] - 20 == 3, "three of these"


REACTS_TO = dict(zip(LETTERS, [{"fish"}, {"buoy"}, {"stamp"}, {"buoy", "stamp"}], strict=True))
GIVEN = fresh_pictures(6, seed=8)
FULL = add(add(add(GIVEN, "buoy"), "stamp"), "fish")
EACH = [(GIVEN, add(GIVEN, what)) for what in SUSPECTS]


@pytest.mark.parametrize(
    ("letter", "causes", "pairs", "verdict"),
    [
        ("A", "fish", EACH, blind.ACCEPTED),
        ("D", ["stamp", "buoy"], EACH, blind.ACCEPTED),
        ("A", ("fish",), [(FULL, remove(FULL, "fish")), (FULL, remove(FULL, "stamp"))], blind.ACCEPTED),
        ("A", "cat", EACH, "each cause is one of fish, buoy"),
        ("A", (), EACH, "names no cause"),
        ("A", "fish", [], "list of pairs"),
        ("A", "fish", [(GIVEN, GIVEN.images)], "list of pairs"),
        ("A", "fish", [(GIVEN, Album(add(GIVEN, "fish").shots[::-1]))], "not the same pictures"),
        ("A", "fish", [(EMPTY, add(EMPTY, "fish"))], "fresh pictures that it was given"),
        ("A", "fish", [(Album(GIVEN.shots[:2]), add(Album(GIVEN.shots[:2]), "fish"))], "so few pictures"),
        ("B", "buoy", EACH[:1], "is never changed"),
        ("B", "buoy", [(GIVEN, add(add(GIVEN, "buoy"), "sun"))], "only together with something else"),
        ("B", "water", EACH, "most answers stay as they are"),
        ("D", "buoy", [(FULL, remove(FULL, "buoy"))], "most answers stay as they are"),
        ("B", "buoy", EACH[1:2], "perhaps any change"),
        ("D", "buoy", EACH, "something that you do not name"),
        ("B", "buoy", [EACH[1], EACH[4]], "another network"),
    ],
)
def test_a_proof_is_accepted_or_refused_with_the_reason(monkeypatch, letter, causes, pairs, verdict):
    """By networks that react exactly to what they are said to."""

    def reacts(letter, album):
        states = [dict(zip(SUSPECTS, shot.states, strict=True)) for shot in album.shots]
        return torch.tensor([any(each[cause] != "absent" for cause in REACTS_TO[letter]) for each in states])

    monkeypatch.setattr(blind, "says_fish", reacts)
    proof = Proof(causes, pairs)
    assert verdict in weigh(letter, GIVEN, proof)
    seals = {blind.seal(letter, GIVEN, Proof(each, pairs), verdict) for each in (causes, [*proof.causes, "sun"])}
    assert seals == {0} if verdict != blind.ACCEPTED else len(seals) == 2


def test_what_there_is_not_gets_a_sentence_and_albums_say_what_is_in_them():
    for call, message in (
        (lambda: add(EMPTY, "bouy"), r"'bouy' is none of what can be chosen here; did you mean 'buoy'\?"),
        (lambda: move(EMPTY, "buoy"), r"there is no buoy in these pictures: add\(pictures, 'buoy'\) puts it there"),
        (lambda: blur(add(EMPTY, "water"), "water"), "'water' is none of what can be chosen here"),
        (lambda: blind.network("E"), "there is no network 'E'; there are A, B, C, D"),
    ):
        with pytest.raises(CourseError, match=message):
            call()
    assert repr(EMPTY) == "Album(4 pictures: nothing of what is suspected)"
    assert repr(blur(add(EMPTY, "sun"), "sun")) == "Album(4 pictures: sun blurred)"


def test_the_explorer_tells_what_is_seen_and_where_the_map_is_hottest():
    picture, sentence, alt = blind.look("A", 2, sun="there", stamp="absent")
    assert sentence.startswith(
        "Picture 2: fish there, buoy there, stamp absent, water there, sun there. Network A says "
    )
    assert alt.startswith("Picture 2 with a ")
    assert (picture.dim(), picture.shape[0]) == (3, 3)
