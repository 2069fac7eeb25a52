"""The judge of the blind investigation of lesson 10: what a verdict about a network needs.

proof = Proof("buoy", [(pictures, add(pictures, "buoy")), (pictures, add(pictures, "sun"))])
weigh("A", pictures, proof)     # "accepted", or "refused: …" with the reason
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from course_utils.lessons.blind import (
    HOMES,
    LATER,
    LETTERS,
    SUSPECTS,
    UNNAMED,
    Album,
    Place,
    answers_changed,
    asked_about,
    forget_questions,
    fresh_pictures,
)
from course_utils.scenes.scene import SIZE

LARGEST = SIZE**2 // 16  # pixels of a place that may be named as a cause
MOST_ALBUMS = 4  # that a proof about a network of `LATER` may ask about: one as it was, and three changed ones
EFFECT = 0.5  # the share of changed answers from which a change counts as one that matters
Cause = str | Place


@dataclass(frozen=True, repr=False)
class Proof:
    """A verdict and the experiment that is to prove it.

    causes: what the network takes for a fish: one of `SUSPECTS` or a place (top, left, height, width), or several.
    pairs: albums (before, after) of the same pictures; the networks are asked about both.
    """

    causes: Cause | Collection[Cause]
    pairs: Sequence[tuple[Album, Album]]


ACCEPTED = "accepted"


def weigh(letter: str, pictures: Album, proof: Proof) -> str:
    """Make the experiment of a proof about a network, and return "accepted", or "refused" with the reason.

    A proof is accepted if each cause, changed alone, changes most answers; if nothing else that is changed alone does;
    if there is something else, for control; and if no other network gives the same answers to all pairs. A place must
    be small. A control must be about as large as the cause, unless both are things on the list. About a network of
    `LATER` no more than `MOST_ALBUMS` may have been asked.
    """
    rivals = set(LETTERS + LATER if letter in LATER else LETTERS) - {letter}
    try:
        causes, pairs = _read(proof)
        for before, after in pairs:
            _refuse_other_pictures(pictures, before, after)
        if letter in LATER:
            _refuse_guessing(len(asked_about(letter).union(*pairs)))
        changed = [Change(find_changed(*pair), answers_changed(letter, *pair), count_pixels(*pair)) for pair in pairs]
        _refuse_causes_without_effect(causes, changed)
        _refuse_other_effects(causes, changed)
        if any(all(_alike(letter, other, *pair) for pair in pairs) for other in rivals):
            raise _Refused("another network gives the same answers to all your pairs")
    except _Refused as reason:
        return f"refused: {reason}"
    return ACCEPTED


class _Refused(Exception):
    """Why a proof is not accepted."""


class Change(NamedTuple):
    """What differs between two albums, in which share of them the answer does, and how many pixels do, on average."""

    what: set[Cause]
    share: float
    pixels: float


def _read(proof: Proof) -> tuple[set[Cause], list[tuple[Album, Album]]]:
    try:
        return _read_causes(proof), _read_pairs(proof)
    except TypeError:  # something that is neither a list nor a set, or cannot be in one
        raise _Refused("causes are a cause or a list of some, and an experiment is a list of pairs") from None


def _read_causes(proof: Proof) -> set[Cause]:
    causes = proof.causes
    if isinstance(causes, str) or all(isinstance(each, int) for each in causes):
        causes = [causes] if causes else []
    found = {_read_cause(each) for each in causes}
    places = {each for each in found if isinstance(each, Place)}
    if not found - places <= set(SUSPECTS):
        raise _Refused(f"each cause is one of {', '.join(SUSPECTS)}, or a place (top, left, height, width)")
    if not found:
        raise _Refused("it names no cause")
    if any(each.height * each.width > LARGEST for each in places):
        raise _Refused("a place that you name is larger than a sixteenth of the picture: say more exactly where it is")
    return found


def _read_cause(cause: object) -> object:
    is_place = isinstance(cause, tuple | list) and len(cause) == len(Place._fields)
    return Place(*cause) if is_place else cause


def _read_pairs(proof: Proof) -> list[tuple[Album, Album]]:
    pairs = [tuple(pair) for pair in proof.pairs]
    if not pairs or not all(len(pair) == 2 and all(isinstance(each, Album) for each in pair) for pair in pairs):
        raise _Refused("an experiment is a list of pairs of albums, (before, after)")
    return pairs


def _refuse_other_pictures(pictures: Album, before: Album, after: Album) -> None:
    given, numbers = {shot.number for shot in pictures.shots}, [shot.number for shot in before.shots]
    if numbers != [shot.number for shot in after.shots]:
        raise _Refused("before and after are not the same pictures, so that all of the picture differs")
    if not given.issuperset(numbers):
        raise _Refused("the experiment was not made on the fresh pictures that it was given")
    if 2 * len(set(numbers)) < len(given):
        raise _Refused("what happens in so few pictures may be an accident of these pictures")


def _refuse_guessing(count: int) -> None:
    if count > MOST_ALBUMS:
        raise _Refused(f"it asked the network about {count} albums, and {MOST_ALBUMS} are allowed: look before you ask")


def _refuse_causes_without_effect(causes: set[Cause], changed: Sequence[Change]) -> None:
    for cause in sorted(causes, key=str):
        alone = [change.share for change in changed if change.what == {cause}]
        if not alone:
            together = any(cause in change.what for change in changed)
            how = "is changed only together with something else" if together else "is never changed"
            raise _Refused(f"a cause that you name {how}")
        if max(alone) < EFFECT:
            raise _Refused("a cause that you name is changed alone, and most answers stay as they are")


def _refuse_other_effects(causes: set[Cause], changed: Sequence[Change]) -> None:
    others = [change for change in changed if len(change.what) == 1 and change.pixels and not change.what <= causes]
    if not others:
        raise _Refused("nothing but the cause is ever changed alone, so perhaps any change does the same")
    if max(change.share for change in others) >= EFFECT:
        raise _Refused("something that you do not name, changed alone, changes most answers as well")
    things = (
        {*SUSPECTS} if any(change.what <= {*SUSPECTS} for change in others) else set()
    )  # any thing controls another
    alone = [change for change in changed if len(change.what) == 1 and change.what <= causes]
    large = [change.pixels for change in alone if not change.what <= things]
    if large and 2 * max(change.pixels for change in others) < min(large):
        raise _Refused("your control changes much less of the picture than the cause that you name")


def seal(letter: str, pictures: Album, proof: Proof, verdict: str) -> int:
    """Return a number that belongs to an accepted verdict and its causes, so that nobody can write it without them."""
    if verdict != ACCEPTED:
        return 0
    causes = sorted({_name(cause) for cause in _read_causes(proof)})
    return zlib.crc32(f"{letter} {pictures.shots} {causes}".encode())


def _name(cause: Cause) -> str:
    if isinstance(cause, str):
        return cause
    return max(HOMES, key=lambda name: (HOMES[name].mask() & cause.mask()).sum())


def hear(answer: Callable, letter: str) -> tuple[list[Cause], str]:
    """Return the causes that a learner's function proves for a network, none if it does not, and a sentence about it.

    Which network it is stays unsaid as long as there is no proof.
    """
    pictures = fresh_pictures(12, seed=40)
    forget_questions()
    try:
        proof = answer(letter, pictures)
    except Exception as error:  # whatever the learner's function raises
        return [], f"`{answer.__name__}` raised {type(error).__name__}."
    if not isinstance(proof, Proof):
        return [], f"`{answer.__name__}` returns no Proof yet."
    verdict = weigh(letter, pictures, proof)
    if verdict != ACCEPTED:
        return [], f"the proof was {verdict}."
    changed = [(find_changed(*pair), answers_changed(letter, *pair)) for pair in proof.pairs]
    causes = sorted(_read_causes(proof), key=str)
    found = [f"{_say(each)} ({max(share for what, share in changed if what == {each}):.0%})" for each in causes]
    control = max(share for what, share in changed if len(what) == 1 and not what <= {*causes})
    return causes, (
        f"your proof is accepted. On {len(pictures)} fresh pictures, these changes alone changed its answers: "
        f"{', '.join(found)}; the control changed {control:.0%}. You asked about {len(asked_about(letter))} albums."
    )


def _say(cause: Cause) -> str:
    return f"the {cause}" if isinstance(cause, str) else f"the place {tuple(cause)}"


def find_changed(before: Album, after: Album) -> set[Cause]:
    """Return what differs between two albums of the same pictures: names of things, and places."""
    changed = set()
    for one, other in zip(before.shots, after.shots, strict=True):
        states = zip(SUSPECTS + UNNAMED, one.states, other.states, strict=True)
        changed |= {name for name, mine, theirs in states if mine != theirs}
        changed |= {place for place, _ in {*one.exchanged} ^ {*other.exchanged}}
    return changed


def count_pixels(before: Album, after: Album) -> float:
    """Return how many pixels of a picture differ between two albums, on average."""
    return (before.images != after.images).any(1).sum().item() / len(before)


def _alike(letter: str, other: str, before: Album, after: Album) -> bool:
    return abs(answers_changed(letter, before, after) - answers_changed(other, before, after)) < EFFECT
