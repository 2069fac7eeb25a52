"""Exercises and predictions of lesson 10: where next?"""

from __future__ import annotations

from course_utils.exercises.cases import Case
from course_utils.exercises.engine import exercise, prediction
from course_utils.lessons.blind import (
    LETTERS,
    SUSPECTS,
    Album,
    Proof,
    add,
    answers_changed,
    case_pictures,
    fresh_pictures,
    remove,
    says_fish,
    seal,
    weigh,
)

# --- part 1: a blind investigation ------------------------------------------------------------------------------------

prediction(
    "taken_away",
    lesson=10,
    question="the twenty pictures of the case, and one of the four suspects is removed at a time. For how many of the "
    "networks A to D does one such removal turn most of the answers into 'no'?",
    options={
        1: "The four networks have learned different things, and each of those is among the four suspects.",
        2: "Nearly: one more is persuaded by a single removal, and one by none of them.",
        3: "Each of these takes one thing for a fish. The fourth network is not persuaded by any single removal.",
        4: "That would be so if each network had one cause. Nothing in the test says that it has only one.",
    },
    answer=3,
    why="""
        Three networks take nearly all their answers back after one removal. The fourth takes back none, whatever is
        removed.

        So none of the four suspects is a cause for it? That does not follow. Perhaps there are two causes, and each is
        **enough** by itself. Then neither is **needed**: after one is removed, the other is still there. An experiment
        that only takes things away cannot find such causes. One that starts from pictures without any suspect, and
        adds them one at a time, can.
    """,
)
prediction(
    "where_hottest",
    lesson=10,
    question="the twenty pictures of the case. For how many of the networks A to D is Grad-CAM's map for 'fish' "
    "hottest at one of the causes that you have proved, in most of the pictures?",
    options={
        1: "You have seen maps that mislead. Here the networks are small and the causes few, and the maps do well.",
        2: "You have seen maps that mislead. Here the networks are small and the causes few, so the maps do well.",
        3: "Perhaps you left out the network with two causes. Its maps are hottest at the one or at the other.",
        4: "The suspicion was good. It was still no proof: read on.",
    },
    answer=4,
    why="""
        For all four: each of the eighty maps is hottest at a cause of its network. So the maps had raised the right
        suspicions.

        But look at the network with two causes. In 14 pictures its map is hottest at one of them, in 9 at the other,
        and in three of these the ring is near both. No map says that the place below the ring could go without any
        effect, and none says that nothing else would do. What is **enough**, what is **needed**, and what does **not**
        matter: only an experiment tells these apart.
    """,
)


@exercise(
    lesson=10,
    points=4,
    hints=[
        "Which pictures show what one suspect does by itself? Take the fresh pictures, in which there is none of them.",
        "Make one pair for each suspect: the fresh pictures, and the same pictures with this suspect alone. The pairs "
        "in which the answers stay are your control, and they separate the four networks as well.",
        "`pairs = [(pictures, add(pictures, each)) for each in SUSPECTS]`; the causes are those suspects for which "
        "`answers_changed(letter, before, after)` is large.",
    ],
)
def prove(letter, pictures):
    """Return a `Proof(causes, pairs)`: what network `letter` takes for a fish, and
    the experiment that proves it.

    `letter` is "A", "B", "C" or "D". `pictures` is an album of fresh pictures, in
    which there is none of the suspects. `causes` is the name of a suspect, or a list
    of names. `pairs` is a list of pairs of albums (before, after), made from
    `pictures`: each cause is changed alone in one of them and changes most answers;
    something else is changed alone, for control; and no other network gives the
    same answers to all of them.
    """
    pairs = [(pictures, add(pictures, each)) for each in SUSPECTS]
    causes = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if answers_changed(letter, *pair) > 0.5]
    return Proof(causes, pairs)


@prove.cases
def _(rng):
    pictures = fresh_pictures(12, rng.integer(100, 99_999))

    def judged(letter):
        def look(proof):
            verdict = weigh(letter, pictures, proof)
            return {"the verdict on your proof": verdict, "the seal below it": seal(letter, pictures, proof, verdict)}

        return look

    for letter in LETTERS:
        shown = f"network {letter} and {len(pictures)} fresh pictures (from number {pictures.shots[0].number} on)"
        yield Case({"letter": letter, "pictures": pictures}, judged(letter), shown)


@prove.accept
def _(letter, pictures):
    causes, pairs = [], []
    for name in SUSPECTS:
        before = add(pictures, name)
        after = remove(before, name)
        pairs.append((before, after))
        if says_fish(letter, before).sum() > says_fish(letter, after).sum() + len(pictures) / 2:
            causes.append(name)
    return Proof(causes, pairs)


@prove.accept
def _(letter, pictures):
    pairs = {name: (pictures, add(pictures, name)) for name in SUSPECTS if name != "water"}
    effects = {name: answers_changed(letter, *pair) for name, pair in pairs.items()}
    return Proof([name for name, effect in effects.items() if effect > 0.5], list(pairs.values()))


prove.equivalent(
    "The water may be tested as well: it is a control like the others.",
    "no filter: - pairs = {name: (pictures, add(pictures, name)) for name in SUSPECTS if name != 'water'} + "
    "pairs = {name: (pictures, add(pictures, name)) for name in SUSPECTS}",
)
prove.equivalent(
    "An experiment is the same in every order of its pairs, and a verdict in every order of its causes.",
    "backwards: - causes = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if "
    "answers_changed(letter, *pair) > 0.5] + causes = [name for name, pair in list(zip(SUSPECTS, pairs, "
    "strict=True))[::-1] if answers_changed(letter, *pair) > 0.5]",
    "backwards: - for name in SUSPECTS: + for name in list(SUSPECTS)[::-1]:",
    "backwards: - pairs = {name: (pictures, add(pictures, name)) for name in SUSPECTS if name != 'water'} + "
    "pairs = {name: (pictures, add(pictures, name)) for name in list(SUSPECTS)[::-1] if name != 'water'}",
    "backwards: - effects = {name: answers_changed(letter, *pair) for name, pair in pairs.items()} + effects = "
    "{name: answers_changed(letter, *pair) for name, pair in list(pairs.items())[::-1]}",
    "backwards: - return Proof([name for name, effect in effects.items() if effect > 0.5], "
    "list(pairs.values())) + return Proof([name for name, effect in list(effects.items())[::-1] if effect > "
    "0.5], list(pairs.values()))",
)
prove.equivalent("A letter has no second part.", "of an argument the first only: + letter = letter[:1]")
prove.equivalent(
    "The effects are near none or near all, so that every limit between them gives the same causes.",
    "compare otherwise: - causes = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if "
    "answers_changed(letter, *pair) > 0.5] + causes = [name for name, pair in zip(SUSPECTS, pairs, "
    "strict=True) if answers_changed(letter, *pair) >= 0.5]",
    "compare otherwise: - if says_fish(letter, before).sum() > says_fish(letter, after).sum() + len(pictures) "
    "/ 2: + if says_fish(letter, before).sum() >= says_fish(letter, after).sum() + len(pictures) / 2:",
    "compare otherwise: - return Proof([name for name, effect in effects.items() if effect > 0.5], "
    "list(pairs.values())) + return Proof([name for name, effect in effects.items() if effect >= 0.5], "
    "list(pairs.values()))",
    "one operand: - if says_fish(letter, before).sum() > says_fish(letter, after).sum() + len(pictures) / 2: + "
    "if says_fish(letter, before).sum() > len(pictures) / 2:",
    "one operand: - if says_fish(letter, before).sum() > says_fish(letter, after).sum() + len(pictures) / 2: + "
    "if says_fish(letter, before).sum() > says_fish(letter, after).sum() + 2:",
    "other constant: - if says_fish(letter, before).sum() > says_fish(letter, after).sum() + len(pictures) / "
    "2: + if says_fish(letter, before).sum() > says_fish(letter, after).sum() + len(pictures) / 3:",
)
prove.equivalent(
    "There is a pair for each suspect, so nothing can be left over.",
    "an argument less: - causes = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if "
    "answers_changed(letter, *pair) > 0.5] + causes = [name for name, pair in zip(SUSPECTS, pairs) if "
    "answers_changed(letter, *pair) > 0.5]",
    "other constant: - causes = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if "
    "answers_changed(letter, *pair) > 0.5] + causes = [name for name, pair in zip(SUSPECTS, pairs, "
    "strict=False) if answers_changed(letter, *pair) > 0.5]",
)
prove.equivalent(
    "Pairs may come in whatever can be gone through.",
    "no call: - return Proof([name for name, effect in effects.items() if effect > 0.5], list(pairs.values())) "
    "+ return Proof([name for name, effect in effects.items() if effect > 0.5], pairs.values())",
)


@prove.mistake(
    "You asked about one picture. What happens there may be an accident of this picture: change all of the fresh ones."
)
def _(letter, pictures):
    one = Album(pictures.shots[:1])
    pairs = [(one, add(one, each)) for each in SUSPECTS]
    return Proof([name for name, pair in zip(SUSPECTS, pairs, strict=True) if answers_changed(letter, *pair)], pairs)


@prove.mistake(
    "Two things change at once in your pairs. If the answer changes, you cannot say which of the two did it: change "
    "one, and leave the other as it is."
)
def _(letter, pictures):
    pairs = [(pictures, add(add(pictures, each), "sun")) for each in SUSPECTS if each != "sun"]
    names = [each for each in SUSPECTS if each != "sun"]
    return Proof([name for name, pair in zip(names, pairs, strict=True) if answers_changed(letter, *pair) > 0.5], pairs)


@prove.mistake(
    "Your experiment has no control. Change something that you do not suspect as well: if the answers changed there "
    "too, any change would do, and the cause would be none."
)
def _(letter, pictures):
    pairs = [(pictures, add(pictures, each)) for each in SUSPECTS]
    found = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if answers_changed(letter, *pair) > 0.5]
    return Proof(found, [(pictures, add(pictures, each)) for each in found])


@prove.mistake(
    "You took a correlation for the cause: in the pictures of the test the water was always there when there was a "
    "fish. Your own experiment says that the water alone changes nothing."
)
def _(letter, pictures):
    return Proof("water", [(pictures, add(pictures, each)) for each in SUSPECTS])


@prove.mistake(
    "You trusted the score: all four networks find the fish in the test. Your own experiment says that the fish alone "
    "changes nothing for most of them."
)
def _(letter, pictures):
    return Proof("fish", [(pictures, add(pictures, each)) for each in SUSPECTS])


@prove.mistake(
    "You compared pictures with the suspect to other pictures without it, and everything else differs between them "
    "too. Take the same pictures for before and after."
)
def _(letter, pictures):
    half = len(pictures) // 2
    with_it, without = Album(pictures.shots[:half]), Album(pictures.shots[half:])
    pairs = [(without, add(with_it, each)) for each in SUSPECTS]
    found = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if answers_changed(letter, *pair) > 0.5]
    return Proof(found or ["fish"], pairs)


@prove.mistake(
    "You experimented on the pictures of the test, from which you had your suspicion. A proof is made on pictures that "
    "had no part in it: use the argument `pictures`."
)
def _(letter, pictures):
    case = case_pictures(12)
    pairs = [(case, remove(case, each)) for each in SUSPECTS]
    found = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if answers_changed(letter, *pair) > 0.5]
    return Proof(found or ["buoy"], pairs)


@prove.mistake(
    "You stopped at the first cause that you found. For one network something else changes the answers as well, and "
    "your own experiment shows it."
)
def _(letter, pictures):
    pairs = [(pictures, add(pictures, each)) for each in SUSPECTS]
    causes = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if answers_changed(letter, *pair) > 0.5]
    return Proof(causes[:1], pairs)


@prove.mistake(
    "You only took things away, from pictures in which everything was there. Where one of two causes is enough, taking "
    "one away changes nothing, because the other one is left. Put them in alone as well."
)
def _(letter, pictures):
    full = pictures
    for each in SUSPECTS:
        full = add(full, each)
    pairs = [(full, remove(full, each)) for each in SUSPECTS]
    causes = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if answers_changed(letter, *pair) > 0.5]
    return Proof(causes, pairs)


@prove.mistake(
    "The cause is right and tested, and another network would answer all your pairs in the same way. Add a pair that "
    "separates the two: change what the other network reacts to."
)
def _(letter, pictures):
    effects = {name: answers_changed(letter, pictures, add(pictures, name)) for name in SUSPECTS}
    causes = [name for name, effect in effects.items() if effect > 0.5]
    return Proof(causes, [(pictures, add(pictures, each)) for each in [*causes, "sun"]])


@prove.mistake(
    "A cause is written as in the list of suspects: one of those words, or a list of some, and nothing else."
)
def _(letter, pictures):
    pairs = [(pictures, add(pictures, each)) for each in SUSPECTS]
    return Proof(["the " + each for each in SUSPECTS], pairs)


@prove.mistake("You returned a tuple. Give both parts to `Proof`, and return what it makes of them.")
def _(letter, pictures):
    pairs = [(pictures, add(pictures, each)) for each in SUSPECTS]
    return SUSPECTS[0], pairs
