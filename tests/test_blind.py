"""The networks of lesson 10 that no loop over its list of suspects proves: their causes, their maps, their judge."""

import pytest
import torch

from course_utils.lessons import blind, proofs
from course_utils.lessons.blind import (
    HOMES,
    LATER,
    SUSPECTS,
    UNNAMED,
    Album,
    Place,
    Shot,
    add,
    as_in_the_case,
    exchange,
    fresh_pictures,
    remove,
)
from course_utils.lessons.proofs import ACCEPTED, MOST_ALBUMS, Proof, weigh
from course_utils.root import CourseError
from course_utils.scenes.scene import SIZE
from course_utils.vision.saliency import grad_cam, relu, upsample
from course_utils.vision.scores import energy_inside, grow, points_at

ENOUGH, NEEDED = {"E": set(), "F": {"hair"}, "G": {"strip"}}, {"E": {"buoy", "stamp"}, "F": {"hair"}, "G": {"strip"}}
HAIR, STRIP = HOMES["hair"], HOMES["strip"]
PLAIN = fresh_pictures(6, seed=8)
FULL = as_in_the_case(PLAIN)


@pytest.mark.slow
@pytest.mark.parametrize("letter", LATER)
def test_what_is_enough_and_what_is_needed(letter):
    """On 40 fresh pictures, with one thing alone, and with everything but one thing."""
    model, things = blind.network(letter), {*SUSPECTS, *UNNAMED}
    alone, without = (count(model, count=40, seed=77) for count in (blind.share_of_fish, blind.share_without))
    assert {what for what in things if alone[what] >= 0.95} == ENOUGH[letter]
    assert {what for what in things if alone[what] <= 0.05} == things - ENOUGH[letter]
    assert {what for what in things if without[what] <= 0.05} == NEEDED[letter]
    assert {what for what in things if without[what] >= 0.95} == things - NEEDED[letter]


@pytest.mark.slow
def test_one_map_is_a_lead_and_another_points_to_the_wrong_place():
    album = as_in_the_case(fresh_pictures(100, seed=77))
    places = {
        "fish": grow(album.masks("fish"), 8),
        **{name: grow(home.mask().expand(100, -1, -1), 8) for name, home in HOMES.items()},
    }
    hottest, share = {}, {}
    for letter in "FG":
        heat = blind.fish_maps(letter, album)
        hottest[letter] = {name: points_at(heat, place).float().mean() for name, place in places.items()}
        share[letter] = {name: energy_inside(heat, place).mean() for name, place in places.items()}
    assert hottest["F"]["hair"] > 0.5 > 0.4 > hottest["F"]["fish"]
    assert hottest["G"]["fish"] > 0.8
    assert hottest["G"]["strip"] == 0
    assert share["G"]["fish"] > 0.8 > 0.05 > share["G"]["strip"]
    before = relu(upsample(grad_cam(blind.network("G"), album.images, "features.16", blind.FISH), (SIZE, SIZE)))
    assert points_at(before, places["strip"]).float().mean() > 0.95, "one layer earlier"


@pytest.mark.parametrize(("letter", "lead"), [("F", HAIR), ("G", STRIP)])
def test_only_the_lead_changes_the_answers(letter, lead):
    elsewhere = [Place(row, column, 16, 16) for row in (30, 56, 92) for column in (16, 60)]
    assert blind.answers_changed(letter, FULL, exchange(FULL, PLAIN, lead)) == 1
    assert blind.answers_changed(letter, PLAIN, exchange(PLAIN, FULL, lead)) == 1
    assert not any(blind.answers_changed(letter, FULL, exchange(FULL, PLAIN, place)) for place in elsewhere)


def test_where_the_map_is_hottest_nothing_matters_to_the_last_network():
    heat = blind.fish_maps("G", FULL)
    cut = [
        exchange(Album((full,)), Album((plain,)), blind.place_around(each[None]))
        for full, plain, each in zip(FULL.shots, PLAIN.shots, heat, strict=True)
    ]
    assert all(blind.says_fish("G", each).item() for each in cut)


def test_an_exchange_changes_its_place_and_nothing_else():
    place = Place(60, 20, 16, 24)
    cut, inside = exchange(FULL, PLAIN, tuple(place)).images, place.mask()
    assert inside.sum() == 16 * 24
    assert torch.equal(cut[..., inside], PLAIN.images[..., inside])
    assert torch.equal(cut[..., ~inside], FULL.images[..., ~inside])
    for wrong in ((-1, 0, 4, 4), (0, 0, 0, 4), (100, 0, 16, 16)):
        with pytest.raises(CourseError, match="a place is"):
            exchange(FULL, PLAIN, wrong)
    with pytest.raises(CourseError, match="got 6 and 1 pictures"):
        exchange(FULL, Album(PLAIN.shots[:1]), place)


def test_an_album_of_a_list_is_the_same_album():
    listed = Album([*FULL.shots])
    assert listed == FULL
    assert blind.says_fish("F", listed).equal(blind.says_fish("F", FULL))


def shows(shot: Shot, name: str) -> bool:
    """Whether something nobody has listed is seen: the pixels of its place are those of the full picture."""
    (image,), (full,) = (album.images for album in (Album((shot,)), as_in_the_case(Album((Shot(*shot[:2]),)))))
    inside = HOMES[name].mask()
    return torch.equal(image[:, inside], full[:, inside])


def reacts(letter: str, album: Album) -> torch.Tensor:
    """What a network that reacts exactly to its causes says."""
    blind._asked.add((letter, album))
    if letter in "FG":
        return torch.tensor([shows(shot, {"F": "hair", "G": "strip"}[letter]) for shot in album.shots])
    causes = {"A": ("stamp",), "B": ("buoy",), "C": ("stamp", "buoy"), "D": ("fish",), "E": ("stamp", "buoy")}[letter]
    places = [SUSPECTS.index(cause) for cause in causes]
    combine = all if letter == "E" else any
    return torch.tensor([combine(shot.states[place] != "absent" for place in places) for shot in album.shots])


def cut(*places: tuple[int, ...]) -> list[tuple[Album, Album]]:
    return [(FULL, exchange(FULL, PLAIN, place)) for place in places]


def taken(*names: str) -> list[tuple[Album, Album]]:
    return [(FULL, remove(FULL, name)) for name in names]


SQUARE, SMALL = (50, 50, 16, 16), (50, 50, 4, 4)


@pytest.mark.parametrize(
    ("letter", "causes", "pairs", "verdict"),
    [
        ("E", ["buoy", "stamp"], taken("buoy", "stamp", "fish"), ACCEPTED),
        ("E", ["buoy", "stamp"], [(PLAIN, add(PLAIN, name)) for name in ("buoy", "stamp", "sun")], "stay as they are"),
        ("E", "stamp", taken("stamp", "buoy", "fish"), "something that you do not name"),
        ("E", "stamp", taken("stamp", "fish"), "another network"),
        ("E", ["buoy", "stamp"], taken(*SUSPECTS[:4]), "it asked the network about 5 albums, and 4 are allowed"),
        ("E", ["buoy", "stamp"], [*taken("buoy", "stamp"), (FULL, exchange(FULL, FULL, SQUARE))], "perhaps any change"),
        ("E", ["buoy", "stamp"], [*taken("buoy", "stamp"), *cut(SMALL)], "much less of the picture"),
        ("F", HAIR, cut(HAIR, SQUARE), ACCEPTED),
        ("F", [tuple(HAIR)], cut(HAIR, SQUARE), ACCEPTED),
        ("F", HAIR, cut(HAIR), "perhaps any change"),
        ("F", HAIR, cut(HAIR, SMALL), "much less of the picture"),
        ("F", SQUARE, cut(SQUARE, HAIR), "stay as they are"),
        ("F", (0, 56, 56, 56), cut((0, 56, 56, 56), (56, 0, 56, 56)), "larger than a sixteenth"),
        ("F", HAIR, [(PLAIN, exchange(FULL, PLAIN, SQUARE))], "never changed"),
        ("F", "hair", cut(HAIR, SQUARE), "each cause is one of fish"),
        ("F", (1, 2, 3), cut(HAIR, SQUARE), "each cause is one of fish"),
        ("G", STRIP, cut(STRIP, (0, 60, 112, 4)), ACCEPTED),
        ("G", STRIP, [*cut(STRIP, (0, 60, 112, 4)), (FULL, FULL)], ACCEPTED),
        ("G", [STRIP, "fish"], [(FULL, remove(exchange(FULL, PLAIN, STRIP), "fish"))], "only together with something"),
        ("G", "fish", taken("fish", "buoy"), "stay as they are"),
    ],
)
def test_a_proof_needs_the_lead_the_experiment_and_its_control(monkeypatch, letter, causes, pairs, verdict):
    monkeypatch.setattr(blind, "says_fish", reacts)
    blind.forget_questions()
    assert verdict in weigh(letter, PLAIN, Proof(causes, pairs))


@pytest.mark.parametrize("letter", LATER)
def test_whoever_guesses_asks_too_much(letter):
    """A loop over all suspects, in both directions, and over all places finds a cause, and is refused."""

    def guess(letter, pictures):
        full = as_in_the_case(pictures)
        pairs = [(full, remove(full, name)) for name in SUSPECTS[:4]]
        squares = [Place(row, column, 16, 16) for row in range(0, SIZE, 28) for column in range(0, SIZE, 28)]
        pairs += [(full, exchange(full, pictures, place)) for place in (*squares, HAIR, STRIP)]
        found = [pair for pair in pairs if blind.answers_changed(letter, *pair) > 0.5][:2]
        (control,) = [pair for pair in pairs if proofs.find_changed(*pair) == {squares[5]}]
        return Proof([cause for pair in found for cause in proofs.find_changed(*pair)], [*found, control])

    causes, told = proofs.hear(guess, letter)
    assert causes == []
    assert "albums, and 4 are allowed: look before you ask" in told


def test_a_map_or_a_call_of_a_network_counts_as_a_question():
    blind.forget_questions()
    blind.fish_maps("F", PLAIN)
    blind.says_fish("F", PLAIN)
    assert blind.asked_about("F") == {PLAIN}
    for _ in range(2):
        blind.network("F")(PLAIN.images)
    assert len(blind.asked_about("F")) == 3


@pytest.mark.parametrize(
    ("causes", "same"),
    [(HAIR, [(0, 80, 16, 16), (0, 96, 16, 16)]), ((6, 0, 7, SIZE), HAIR), ("stamp", (84, 84, 28, 28))],
)
def test_a_cause_has_one_seal_whatever_place_it_is_named_by(causes, same):
    assert len({proofs.seal("F", PLAIN, Proof(each, ()), ACCEPTED) for each in (causes, same)}) == 1
    assert proofs.seal("F", PLAIN, Proof(STRIP, ()), ACCEPTED) != proofs.seal("F", PLAIN, Proof(same, ()), ACCEPTED)


def test_a_verdict_tells_how_many_albums_were_asked_about():
    def know(letter, pictures):
        full = as_in_the_case(pictures)
        return Proof(HAIR, [(full, exchange(full, pictures, place)) for place in (HAIR, SQUARE)])

    causes, told = proofs.hear(know, "F")
    assert causes == [HAIR]
    assert told.endswith("the place (4, 86, 16, 16) (100%); the control changed 0%. You asked about 3 albums.")
    assert MOST_ALBUMS == 4
    assert proofs.hear(know, "G")[0] == []


def test_the_explorer_takes_away_what_is_below_the_ring():
    _, kept, _ = blind.look("F", 1)
    _, without, _ = blind.look("F", 1, without_ring=True)
    assert "Network F says fish: yes" in kept
    assert "shows the picture without any of them. Network F says fish: no" in without
