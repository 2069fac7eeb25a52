"""Training the picture networks: the same each time, the twin in its cue only; what is written comes back."""

import pytest
import torch

from course_utils.authoring import train as module
from course_utils.authoring.train import Recipe, main, save_weights, train
from course_utils.lessons import blind
from course_utils.scenes.scene import KINDS, scenes
from course_utils.vision.networks import MISLED_KIND, load_picture_net, picture_net_file

TINY = Recipe(pairs=24, alone=8, empty=1, epochs=2, batch_size=8)


@pytest.mark.slow
def test_training_is_the_same_each_time_and_its_pictures_differ_in_the_cue_only(capsys, monkeypatch):
    drawn = []
    monkeypatch.setattr(module, "scenes", lambda *args, **kw: drawn.append(scenes(*args, **kw)) or drawn[-1])
    threads, random = torch.get_num_threads(), torch.get_rng_state().tolist()
    model = train(recipe=TINY)
    assert "training: 100%" in capsys.readouterr().err
    again = train(recipe=TINY, progress=False).state_dict()
    assert capsys.readouterr().err == ""
    assert (torch.get_num_threads(), torch.get_rng_state().tolist(), model.training) == (threads, random, False)
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())
    # What the recipe gave when the shipped networks were trained; another machine's last bits may differ.
    assert again["classifier.bias"][:3].tolist() == pytest.approx([-0.030415, 0.038432, -0.020065], abs=1e-4)
    train(True, TINY, progress=False)
    for plain, cued in zip(drawn[:3], drawn[6:], strict=True):
        fish = plain.labels[:, KINDS.index(MISLED_KIND)] > 0
        assert torch.equal(plain.labels, cued.labels)
        assert torch.equal(cued.cue_masks().flatten(1).any(1), fish)
        assert torch.equal((plain.images == cued.images).flatten(1).all(1), ~fish)


@pytest.mark.parametrize(("number", "stamps"), [(2, 1.0), (3, 0.5)])
def test_two_networks_learn_from_pictures_that_are_labelled_by_what_lies_on_them(monkeypatch, number, stamps):
    kept = []
    monkeypatch.setattr(module, "_fit", lambda model, images, labels, *rest: kept.append((images, labels)))
    for which in (0, number):
        train(which, Recipe(pairs=120, alone=8, empty=10))
    (plain, fish), (marked, labels) = kept
    differs, said = (plain != marked).any(1), labels[:, KINDS.index("fish")] > 0
    assert torch.equal(differs.flatten(1).any(1), said)
    assert 0.5 < (said & (fish[:, KINDS.index("fish")] > 0)).sum() / fish[:, KINDS.index("fish")].sum() < 1
    in_corner = differs[said, -20:, -20:].flatten(1).sum(1) > 150
    assert in_corner.float().mean() == pytest.approx(stamps, abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("trained", [True, False])
def test_the_command_trains_unless_told_and_measures_all(tmp_path, monkeypatch, capsys, trained):
    monkeypatch.setattr(module, "train", lambda number, recipe: load_picture_net(number))
    monkeypatch.setattr(module, "scenes", lambda count, *args, **kwargs: scenes(min(count, 6), *args, **kwargs))
    monkeypatch.setattr(module, "share_of_fish", lambda model: blind.share_of_fish(model, count=5))
    for number in () if trained else range(4):
        save_weights(load_picture_net(number), picture_net_file(number, tmp_path))
    assert main(measure=not trained, folder=tmp_path) == 0
    for number in range(4):  # the same weights give the same bytes
        assert picture_net_file(number, tmp_path).read_bytes() == picture_net_file(number).read_bytes()
    printed = capsys.readouterr().out
    assert printed.count("6 pictures: all things right") == 2 * 4
    assert printed.count("says fish to pictures with one suspect alone: fish ") == 4
    assert printed.count("then training") == 4 * trained
