"""Lesson 07: numbers for a pencil, and what the order of others means."""

import re

import torch
from lesson_pages import LessonPage

from course_utils.exercises.engine import find_prediction
from course_utils.lessons import evidence
from course_utils.scenes.scene import KINDS, scenes

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


def test_what_the_order_of_the_numbers_means():
    rows = re.findall(r"features\.\d+ (\d+)% \d+% (\d+)% (\d+)%", PAGE.in_one_line)
    strict, energy, wrong = ([int(row[column]) for row in rows] for column in range(3))
    assert (len(rows), strict.index(min(strict)), energy.index(max(energy))) == (5, 0, 2)
    assert max(wrong[2:]) <= 2
    present, absent = re.findall(r"peak before the stretching is ([\d.]+)", PAGE.in_one_line)
    assert 15 < float(present) / float(absent) < 25, "twenty times lower"
    told = find_prediction("the_astronaut")
    left = {name: int(re.search(rf"{name} \d+% \d+% (\d+)%", PAGE.in_one_line)[1]) for name in told.options}
    assert min(left, key=left.get) == told.answer


def test_the_things_of_a_picture_are_where_they_are_drawn():
    things, batch = evidence.draw_things(6, seed=907), scenes(6, seed=907)
    kinds = torch.cat([things.one, things.two]).tolist()
    masks = torch.stack([batch.masks(KINDS[kind])[number % 6] for number, kind in enumerate(kinds)])
    assert torch.equal(things.masks, masks)
    assert torch.equal(things.others, masks.roll(6, 0)), "the other thing of the same picture"
