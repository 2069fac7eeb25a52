"""What lesson 07 says: numbers for a pencil, and words that tell what its committed notebook shows."""

import re

import torch
from lesson_pages import LessonPage, why

from course_utils.exercises.engine import find_prediction

PAGE = LessonPage("07_cam_and_grad_cam")
shows = PAGE.shows


def test_pencil_examples():
    maps = torch.tensor([[[4.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 8.0]]])
    assert (3 * maps[0] - maps[1]).tolist() == [[12, 0], [0, -8]]
    assert 3 * maps[0].mean() - maps[1].mean() == 1
    assert shows("means [1.0, 2.0] logit 1.0 CAM [[12.0, 0.0], [0.0, -8.0]] its mean 1.0")
    assert (2 * maps[0] - maps[1]).tolist() == [[8, 0], [0, -8]]
    assert shows("CAM / Grad-CAM, before the ReLU = 196.00")  # the places of a map; `test_saliency_maps` has the reason
    assert shows("weights [2.0, -1.0] map [[8.0, 0.0], [0.0, -8.0]] after the ReLU [[8.0, 0.0], [0.0, 0.0]]")


def test_what_the_words_say_about_the_scores_of_the_last_layer():
    below, lowest, by_chance = PAGE.numbers(
        r"other thing is negative: (\d+) lowest value of all on the other thing: (\d+) the same by chance: (\d+)"
    )
    told = f"In {below} of 80 maps the *other* thing speaks against the class, and in {lowest}"
    assert told in why("dog_on_the_cat_map")
    assert f"which chance would bring about in {by_chance}." in why("dog_on_the_cat_map")
    strict, by_chance, energy, middle = PAGE.numbers(
        r"features\.16: 80 maps: on the thing (\d+)% \(chance (\d+)%\) .*? energy inside (\d+)% .*?"
        r"middle of the picture: 80 maps: on the thing (\d+)%"
    )
    assert f"hits the thing in {strict}% of the maps, where chance hits {by_chance}%" in PAGE.prose
    assert f"only {energy}% of its heat is on the thing" in PAGE.prose
    assert f"always points at the middle reaches {middle}%" in PAGE.prose


def test_what_the_prose_says_about_printed_numbers():
    rows = re.findall(r"(features\.\d+) (\d+)% (\d+)% (\d+)% (\d+)%", PAGE.in_one_line)
    strict, _, energy, wrong = zip(*([int(number) for number in numbers] for _, *numbers in rows), strict=True)
    assert len(rows) == 5
    assert (strict.index(min(strict)), energy.index(max(energy))) == (0, 2)
    assert f"the wrong thing in {wrong[0]}% and {wrong[1]}% of the maps" in why("best_layer")
    assert max(wrong[2:]) <= 2
    found = re.findall(r"(Guided Backprop|the product) \d+% (\d+)% (\d+)%", PAGE.in_one_line)
    (_, on, off), (_, _, left) = found
    assert f"it has {on}% of its energy on the thing that was asked for" in PAGE.prose
    assert f"it leaves {off}% on the *other* thing, and chance leaves 10%. The product leaves {left}%." in PAGE.prose
    peaks = re.findall(r"(?:absent|present): (\d+) of 40 maps reach 1; .*? stretching is ([\d.]+)", PAGE.in_one_line)
    (_, present), (bright, absent) = ((int(maps), float(peak)) for maps, peak in peaks)
    assert f"{bright} of 40 reach 1" in why("map_of_an_absent_class")
    assert 15 < present / absent < 25, "twenty times lower"


def test_what_the_words_say_about_the_proof():
    rows = ("fish and buoy", "fish, no buoy", "buoy, no fish", "neither")
    (honest, both), (other, alone), (false, cue), neither = (PAGE.numbers(rf"{row} (\d+) (\d+)") for row in rows)
    assert (both, alone, false, neither) == (40, 0, 0, [0, 0])
    assert "the second network finds none of the 40 fish" in why("painted_out")
    assert f"it sees a fish in {cue} pictures" in why("painted_out")
    assert f"{honest} and {other} fish, and no false alarm" in why("painted_out")


def test_what_the_words_say_about_the_real_network():
    questions = (r"why A\?", r"why A rather than B\?", "log-softmax of A")
    logit, rather, log = (PAGE.numbers(rf"{each} 12 maps: (\d+)%")[0] for each in questions)
    told = f"has {rather}% of its heat in the correct half, the log-softmax {log}%, the plain logit {logit}%"
    assert told in why("three_questions")
    (share,) = PAGE.numbers(r"bobsled (\d+)%;")
    told = find_prediction("the_astronaut")
    left = {name: PAGE.numbers(rf"{name} \d+% \d+% (\d+)%")[0] for name in told.options}
    assert min(left, key=left.get) == told.answer
    assert f"from {share}% to {left[told.answer]}%" in told.options[told.answer]
