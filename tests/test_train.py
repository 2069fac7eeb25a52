"""Training the picture networks: the same each time, the twin in its cue only; what is written comes back."""

import pytest
import torch
from torch import nn

from course_utils.authoring import train as module
from course_utils.authoring.train import Recipe, main, measure_cue, save_weights, train
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


@pytest.mark.parametrize("boat", [1, -1])
def test_a_cue_is_measured_by_one_logit_on_pairs_of_pictures_that_differ_in_nothing_else(boat):
    logits, seen = torch.full((len(KINDS),), -float(boat)), []
    logits[KINDS.index("boat")] = boat  # a boat, or all the other kinds, whatever the picture
    model = nn.Module()
    model.forward = lambda images: seen.append(images) or logits.expand(len(images), -1)
    wanted = dict.fromkeys(("where it is", "where it is not"), ((boat + 1) / 2,) * 2)
    assert measure_cue(model, "boat", "flag", count=5, seed=3) == wanted
    for one, other in (seen[:2], seen[2:]):
        changed = (one != other).any(1).float().mean((1, 2))
        assert 0.001 < changed.min() <= changed.max() < 0.08


@pytest.mark.slow
@pytest.mark.parametrize("trained", [True, False])
def test_the_command_trains_unless_told_and_measures_both(tmp_path, monkeypatch, capsys, trained):
    monkeypatch.setattr(module, "train", load_picture_net)
    monkeypatch.setattr(module, "scenes", lambda count, *args, **kwargs: scenes(min(count, 6), *args, **kwargs))
    for misled in () if trained else (False, True):
        save_weights(load_picture_net(misled), picture_net_file(misled, tmp_path))
    assert main(measure=not trained, folder=tmp_path) == 0
    for misled in (False, True):  # the same weights give the same bytes
        assert picture_net_file(misled, tmp_path).read_bytes() == picture_net_file(misled).read_bytes()
    printed = capsys.readouterr().out
    assert printed.count("6 pictures: all things right") == 3
    assert printed.count("fish seen where it is: ") == printed.count("% without; seen where it is not: ") == 2
    assert printed.count("then training") == 2 * trained
