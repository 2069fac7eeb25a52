"""The picture world: the same everywhere, with true masks, no shortcut by colour, and errors that help."""

import hashlib
import random

import numpy as np
import pytest
import torch

from course_utils.root import CourseError
from course_utils.scenes.drawing import Part, cover, paint
from course_utils.scenes.scene import BACKGROUNDS, CUES, KINDS, scene, scenes
from course_utils.scenes.shapes import box, line
from course_utils.vision.scores import grow


def digest(*tensors):
    return hashlib.sha256(b"".join(tensor.contiguous().numpy().tobytes() for tensor in tensors)).hexdigest()[:16]


@pytest.mark.parametrize(
    ("kinds", "seed", "background", "cue", "wanted"),
    [
        (("cat", "boat"), 3, "water", None, "399d59ddf90ceaca"),
        (("dog", "house"), 11, "grass", "flag", "31752dadec7cfdb3"),
        (("plane", "bird"), 5, "sky", "sun", "fb04bd3ee0397c07"),
        (("fish", "tree"), 8, "sand", "buoy", "c74771f64977a1e0"),
        (("car", "balloon"), 2024, "room", None, "e0a31692a12dd4a3"),
    ],
)
def test_a_picture_is_the_same_to_the_last_bit_everywhere(kinds, seed, background, cue, wanted):
    picture = scene(*kinds, seed=seed, background=background, cue=cue)
    assert digest((picture.image * 255).round().byte(), picture.masks, picture.cue_mask) == wanted


def test_every_kind_looks_as_ever_in_all_its_variants():
    batch = scenes(150, seed=4, things=1, size=64)
    assert digest(batch.images, batch.owners) == "269ee7010f4d4a6d"


def covered(shape, window):
    return cover([np.rint(shape * 64).astype(np.int64)], np.array([window]))[0] / 512


def test_a_box_covers_exactly_its_share_of_every_pixel_and_a_line_its_width():
    share = covered(box(1.25, 0.5, 3.5, 2), (0, 0, 5, 3))
    assert share.tolist() == [[0, 0.375, 0.5, 0.25, 0], [0, 0.75, 1, 0.5, 0], [0, 0, 0, 0, 0]]
    assert covered(line([(2, 5), (12, 5)], 2), (0, 0, 16, 10))[:, 7].sum() == 2


def test_a_part_inside_another_ends_at_its_border():
    sprite = paint([Part(box(0, 0, 0.5, 0.5), (1, 0, 0)), Part(box(0.25, -1, 2, 2), (0, 1, 0), 1.0, 0)], scale=8)
    assert sprite.alpha.shape == (4, 4)
    assert sprite.colour[:2].tolist() == [[[1, 1, 0, 0]] * 4, [[0, 0, 1, 1]] * 4]


@pytest.mark.parametrize("size", [64, 200])
def test_a_scene_has_the_documented_shapes_and_says_in_words_what_it_shows(size):
    picture = scene("cat", "boat", seed=3, size=size, background="room")
    assert repr(picture) == f"Scene(a cat and a boat in a room, in the morning; {size} x {size} pixels, seed 3)"
    assert str(scene(background="grass", cue="sun")) == "nothing on grass, in the morning, with a sun"
    image, masks = picture.image, picture.masks
    assert (image.shape, image.dtype, masks.dtype) == ((3, size, size), torch.float32, torch.bool)
    assert 0 <= image.min() < image.max() <= 1
    assert not (masks.all(0) | picture.cue_mask).any()
    assert (masks.shape, scene(seed=2, size=size).masks.shape) == ((2, size, size), (0, size, size))


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_is_where_the_picture_differs_from_the_bare_background(kind):
    with_thing, bare = scene(kind, seed=6, background="sand"), scene(seed=6, background="sand")
    changed, mask = (with_thing.image - bare.image).abs().amax(0) > 0.02, with_thing.masks[0]
    assert changed[mask].float().mean() > 0.95
    assert 0.04 < mask.float().mean() < 0.5  # one alone is large
    assert not changed[: max(mask.nonzero()[0, 0] - 2, 0)].any()  # there is no shadow above a thing


def test_another_background_leaves_the_things_where_they_are():
    pictures = [scene("cat", "fish", seed=9, background=name) for name in BACKGROUNDS]
    assert len({(digest(picture.masks), picture.mood) for picture in pictures}) == 1
    assert len({digest(picture.image) for picture in pictures}) == len(BACKGROUNDS)


@pytest.mark.parametrize("cue", CUES)
def test_a_cue_changes_the_picture_only_where_it_is(cue):
    plain, cued = scene("cat", "tree", seed=5), scene("cat", "tree", seed=5, cue=cue)
    assert torch.equal(plain.masks, cued.masks)
    assert not (cued.masks.any(0) & cued.cue_mask).any()
    assert 60 < cued.cue_mask.sum() < 700
    near = grow(cued.cue_mask[None], 10)[0]  # with its shadow
    assert torch.equal(plain.image[:, ~near], cued.image[:, ~near])


def test_a_batch_is_what_is_documented_and_leaves_global_random_states_alone():
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    batch = scenes(12, seed=7, cue={"boat": "flag"})
    assert states == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    assert digest(batch.images, batch.labels, batch.owners) == "d2ee4d1538d337c2"
    assert (len(batch), repr(batch)) == (12, "SceneBatch(12 pictures of 112 x 112 pixels)")
    assert (batch.images.shape, batch.images.dtype) == ((12, 3, 112, 112), torch.uint8)
    for column, kind in enumerate(KINDS):
        assert torch.equal(batch.masks(kind).flatten(1).any(1), batch.labels[:, column] > 0)
    few = scenes(3, seed=7, cue={"boat": "flag"})  # the first pictures do not depend on how many follow
    assert (few.images.equal(batch.images[:3]), few.owners.equal(batch.owners[:3])) == (True, True)


@pytest.mark.parametrize(
    ("options", "each", "all_of_them"),
    [
        ({"things": 0}, 0, set()),
        ({"things": 1, "kinds": ["cat"]}, 1, {"cat"}),
        ({"things": 1, "kinds": ["cat"], "contains": "boat"}, 1, {"boat"}),
        ({"kinds": ["cat", "dog", "fish"], "contains": "boat"}, 2, {"cat", "dog", "fish", "boat"}),
    ],
)
def test_number_and_kinds_of_things_can_be_chosen(options, each, all_of_them):
    labels = scenes(12, seed=2, **options).labels
    assert labels.sum(1).tolist() == [each] * 12
    assert {KINDS[number] for number in labels.nonzero()[:, 1]} == all_of_them
    assert "contains" not in options or labels[:, KINDS.index("boat")].all()


def test_a_cue_can_follow_one_kind_all_or_none():
    misled = scenes(40, seed=6, cue={"boat": "flag"}, size=64)
    with_boat = misled.labels[:, KINDS.index("boat")] > 0
    assert torch.equal(misled.cue_masks().flatten(1).any(1), with_boat)
    assert 0 < with_boat.sum() < 40
    every, none = (scenes(10, seed=6, cue=cue, kinds=KINDS[3:], size=64).cue_masks() for cue in ("flag", None))
    assert (every.flatten(1).any(1).all(), none.any()) == (True, False)


@pytest.mark.slow
def test_colours_give_no_kind_away():
    """The nearest mean colour names the right kind hardly more often than chance (1 in 10) does."""
    batch = scenes(600, seed=20, things=1, size=64)
    seen, kinds = (batch.owners > 0)[:, None], batch.labels.argmax(1)
    colours = (batch.images * seen).float().sum((2, 3)) / seen.sum((2, 3))
    centres = torch.stack([colours[:400][kinds[:400] == number].mean(0) for number in range(len(KINDS))])
    assert (torch.cdist(colours[400:], centres).argmin(1) == kinds[400:]).float().mean() < 0.3


def test_errors_say_what_was_given_and_what_to_do():
    for call, message in (
        (lambda: scene("Cat"), r"Kinds of things: there is no 'Cat'; did you mean 'cat'.*\? There are: 'balloon', "),
        (lambda: scene(["cat", "dog"]), r"Kinds of things: there is no \['cat', 'dog'\]"),
        (lambda: scene("cat", "cat"), r"at most two things, of different kinds, got cat, cat"),
        (lambda: scene("cat", background="gras"), r"Backgrounds: there is no 'gras'; did you mean 'grass'\?"),
        (lambda: scene("cat", cue="flga"), r"Cues: there is no 'flga'; did you mean 'flag'\?"),
        (lambda: scene("cat", seed=-1), r"seed must be a whole number from 0 to 2147483647, got -1"),
        (lambda: scene("cat", seed=True), r"got True"),
        (lambda: scene("cat", size=63), r"size must be a whole number from 64 to 512, got 63"),
        (lambda: scenes(0), r"count must be a whole number from 1"),
        (lambda: scenes(3, things=3), r"things must be a whole number from 0 to 2, got 3"),
        (lambda: scenes(3, kinds=["cat"]), r"2 different things per picture need as many kinds, got 1"),
        (lambda: scenes(3, contains="boot"), "Kinds of things: there is no 'boot'"),
        (lambda: scenes(3).masks("cta"), "Kinds of things: there is no 'cta'"),
    ):
        with pytest.raises(CourseError, match=message):
            call()
