"""What a class's answers say: measures against a second method, and planted faults that have to be found."""

import math
from collections import Counter

import numpy as np
import pytest

from course_utils.authoring import item_analysis
from course_utils.authoring.item_analysis import Answer, analyse, answers_in_class, find_share, study
from course_utils.exercises.declaration import find_prediction, predictions_of, read_declarations
from course_utils.exercises.engine import find

WRONG = [f"wrong {number}" for number in range(3)]
SMALL = (60, 20, 0.5, 0.85)  # the shares of faults found in a class of 60 are in the guide; here not fewer
BAD = ["reversed", "flat", "easy", "hard", "unused"]


def answers_of(right, said=None, mask=None):
    """Answers from a table of students and items, and from another one of what wrong answers say."""
    places = [(student, item) for item in range(right.shape[1]) for student in range(len(right))]
    return [
        Answer(f"s{at[0]}", f"i{at[1]}", bool(right[at]), () if said is None or right[at] else tuple(said[at]))
        for at in places
        if mask is None or mask[at]
    ]


def simulate(rng, students, items, bad=()):
    """A class by the model of Birnbaum (two parameters): difficulties, each item's kind, and the answers.

    An item that is `reversed` is passed by weak students, a `flat` one by chance, an `easy` or `hard` one by nearly all
    or nearly none; of one with an `unused` option, that option is never chosen.
    """
    ability, difficulty = rng.normal(size=(students, 1)), rng.normal(size=items)
    slope = rng.lognormal(0, 0.25, items)
    kinds = np.full(items, "sound", dtype="<U8")
    kinds[rng.choice(items, len(bad), replace=False)] = bad
    slope[kinds == "reversed"] *= -1
    chance = 1 / (1 + np.exp(-slope * (ability - difficulty)))
    chance[:, kinds == "flat"] = rng.uniform(0.2, 0.8, (kinds == "flat").sum())
    chance[:, kinds == "easy"], chance[:, kinds == "hard"] = 0.995, 0.005
    right = rng.random(chance.shape) < chance
    chosen = rng.choice(WRONG, right.shape, p=[0.5, 0.3, 0.2])
    two = kinds == "unused"
    chosen[:, two] = rng.choice(WRONG[:2], (students, two.sum()), p=[0.6, 0.4])
    return difficulty, kinds, answers_of(right, chosen[:, :, np.newaxis])


def measure(students, items, bad, classes, seed):
    """Over many classes: the mean correlation with the planted difficulties, and the share flagged, by kind."""
    rng, recovered, flagged, planted = np.random.default_rng(seed), [], Counter(), Counter()
    for _ in range(classes):
        difficulty, kinds, answers = simulate(rng, students, items, bad)
        found = analyse(answers, {f"i{number}": WRONG for number in range(items)})
        sound = kinds == "sound"
        shares = np.array([item.share.value for item in found])
        recovered.append(-np.corrcoef(difficulty[sound], shares[sound])[0, 1])
        planted.update(kinds.tolist())
        flagged.update(kind for kind, item in zip(kinds.tolist(), found, strict=True) if item.doubts)
    return np.mean(recovered), {kind: flagged[kind] / planted[kind] for kind in planted}


@pytest.mark.slow
@pytest.mark.parametrize(("students", "items", "flat", "others"), [(200, 20, 0.9, 0.9), (200, 60, 0.9, 0.9), SMALL])
def test_in_simulated_classes_difficulties_are_recovered_and_planted_faults_are_found(students, items, flat, others):
    recovered, flagged = measure(students, items, BAD, classes=25, seed=items)
    assert (recovered >= 0.9, flagged.pop("sound") <= 0.05) == (True, True)
    assert (flagged.pop("flat") >= flat, min(flagged.values()) >= others) == (True, True), flagged


def test_measures_agree_with_a_second_method():
    """Wilson's interval for 8 of 10 by its formula; a discrimination by the definition of its rest score."""
    z, n, p = 1.959964, 10, 0.8
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    assert find_share(8, 10) == pytest.approx((p, (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)))
    right = np.random.default_rng(0).random((50, 6)) < np.linspace(0.2, 0.9, 50)[:, None]
    rest = [sum(row[1:] - right[:, 1:].mean(axis=0)) / 5 for row in right.astype(float)]
    r = np.corrcoef(right[:, 0], rest)[0, 1]
    low, high = (math.tanh(math.atanh(r) + sign * z / math.sqrt(47)) for sign in (-1, 1))
    assert analyse(answers_of(right), {})[0].discrimination == pytest.approx((r, low, high))


def test_who_answered_only_hard_items_is_not_taken_for_weak():
    """Ability decides everything; the better half has answered the hard items 0 to 4, the others the easy ones 5 to 9.

    With the plain share of right answers as the rest score, item 10 would look reversed.
    """
    rng = np.random.default_rng(3)
    ability = np.linspace(-2, 2, 200)
    difficulty = np.array([2.0] * 5 + [-2.0] * 5 + [0.0])
    right = rng.random((200, 11)) < 1 / (1 + np.exp(-2 * (ability[:, None] - difficulty)))
    mask = np.ones((200, 11), bool)
    mask[:100, :5], mask[100:, 5:10] = False, False
    item = analyse(answers_of(right, mask=mask), {})[10]
    plain = [np.mean(row[kept]) for row, kept in zip(right[:, :10], mask[:, :10], strict=True)]
    assert np.corrcoef(right[:, 10], plain)[0, 1] < 0 < item.discrimination.low


def test_with_few_answers_nothing_is_doubted_and_no_number_is_made_up():
    right = np.array([[1, 1], [1, 0], [1, 0], [0, 1]], bool)
    found = analyse(answers_of(right), {"i0": WRONG})
    assert [(item.answers, item.right, item.tries, item.discrimination) for item in found] == [
        (4, 3, None, None), (4, 2, None, None),
    ]  # fmt: skip
    assert all(not item.doubts and not item.unused for item in found)
    assert analyse([], {}) == []
    alone = analyse([Answer("ann", "i0", True, (), 3), Answer("bo", "i0", True, (), 8)], {})[0]
    assert (alone.tries, alone.share.value) == (3, 1)


def test_a_class_is_told_what_to_discuss_where_it_is_taught_and_what_to_ask():
    asked, cause = find_prediction("hook_on_a"), find("scale_gradient").mistakes[0].message
    learners = [
        {"name": str(number), "exercises": {"scale_gradient": ["passed", 2 + number % 2, cause]},
         "votes": {asked.name: ["30", "15"] if number < 30 else ["", "15"], "no_such_prediction": ["1", ""]}}
        for number in range(40)
    ]  # fmt: skip
    found = study(answers_in_class({"learners": learners}))
    exercise, prediction = found.items
    assert (exercise.answers, exercise.right, exercise.tries) == (40, 40, 2)
    assert (prediction.answers, prediction.right, prediction.said) == (40, 10, [("30", 30)])
    assert sorted(prediction.unused) == sorted({*asked.options} - {"30", "15"})
    first, second = found.topics
    assert (first.said, first.students, first.ask) == (cause, 40, "")
    assert first.place == "Lesson 01, Tensor hooks · A hook that changes · Exercise 2 · Scale a gradient"
    assert (second.question, second.ask) == (asked.question, asked.ask["30"])
    assert [items for _, items in found.doubts] == [[exercise], [prediction]]


def test_what_looks_broken_is_not_what_to_discuss():
    rng = np.random.default_rng(5)
    ability = rng.normal(size=(100, 1))
    right = rng.random((100, 8)) < 1 / (1 + np.exp(-2 * ability * np.array([-1] + [1] * 7)))
    said = np.array([[(f"of {item}", "of many") for item in range(8)]] * 100)
    found = analyse(answers_of(right, said), {})
    assert found[0].doubts == [item_analysis.REVERSED]
    names = [item.name for item, _, _ in item_analysis.choose_topics(found)]
    assert ("i0" in names, len({*names})) == (False, 3), "three items, and not one of them twice"


@pytest.mark.slow
def test_every_exercise_and_every_prediction_has_its_place():
    for each in (*read_declarations(), *predictions_of()):
        assert item_analysis.find_place(each.name).count(" · ") >= 1, each.name
