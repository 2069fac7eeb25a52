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
def test_training_is_the_same_each_time_and_leaves_the_caller_alone(capsys):
    threads, random = torch.get_num_threads(), torch.get_rng_state()
    model = train(recipe=TINY)
    assert "training: 100%" in capsys.readouterr().err
    first, second = model.state_dict(), train(recipe=TINY, progress=False).state_dict()
    assert capsys.readouterr().err == ""
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), random)
    assert not model.training
    assert all(tensor.is_contiguous() for tensor in model.parameters())
    assert all(torch.equal(first[name], second[name]) for name in first)
    # What the recipe gave when the shipped networks were trained; another machine's last bits may differ.
    assert first["classifier.bias"][:3].tolist() == pytest.approx([-0.030415, 0.038432, -0.020065], abs=1e-4)


@pytest.mark.slow
def test_the_training_pictures_of_the_twin_differ_in_the_cue_only(monkeypatch):
    drawn = {False: [], True: []}
    for misled in drawn:

        def draw(*args, into=drawn[misled], **kwargs):
            into.append(scenes(*args, **kwargs))
            return into[-1]

        monkeypatch.setattr(module, "scenes", draw)
        train(misled, TINY, progress=False)
    for plain, cued in zip(drawn[False], drawn[True], strict=True):
        assert torch.equal(plain.labels, cued.labels)
        fish = plain.labels[:, KINDS.index(MISLED_KIND)] > 0
        assert torch.equal(cued.cue_masks().flatten(1).any(1), fish)
        assert not plain.cue_masks().any()
        assert torch.equal((plain.images == cued.images).flatten(1).all(1), ~fish)


class Says(nn.Module):
    """Sees a boat, or all the other kinds, whatever the picture."""

    def __init__(self, boat):
        super().__init__()
        self.logits, self.seen = torch.full((len(KINDS),), -float(boat)), []
        self.logits[KINDS.index("boat")] = boat

    def forward(self, images):
        self.seen.append(images)
        return self.logits.expand(len(images), -1)


@pytest.mark.parametrize(("boat", "share"), [(1, 1), (-1, 0)])
def test_a_cue_is_measured_by_one_logit_on_pairs_of_pictures_that_differ_in_nothing_else(boat, share):
    model = Says(boat)
    assert measure_cue(model, "boat", "flag", count=5, seed=3) == {
        "where it is": (share, share),
        "where it is not": (share, share),
    }
    for one, other in (model.seen[:2], model.seen[2:]):
        changed = (one != other).any(1).float().mean((1, 2))
        assert ((changed > 0.001) & (changed < 0.08)).all()


def test_saved_weights_come_back_and_are_the_same_bytes_each_time(tmp_path):
    honest = load_picture_net()
    for folder in ("one", "two"):
        save_weights(honest, picture_net_file(False, tmp_path / folder))
    stored = [picture_net_file(False, tmp_path / folder).read_bytes() for folder in ("one", "two")]
    assert stored == [picture_net_file(False).read_bytes()] * 2
    again = load_picture_net(folder=tmp_path / "one")
    assert torch.equal(again.classifier.weight, honest.classifier.weight)  # half precision lost its rest before


@pytest.mark.slow
@pytest.mark.parametrize("argv", [["--train"], ["--measure"]])
def test_the_command_trains_unless_told_and_measures_both(tmp_path, monkeypatch, capsys, argv):
    monkeypatch.setattr(module, "train", load_picture_net)
    monkeypatch.setattr(module, "scenes", lambda count, *args, **kwargs: scenes(min(count, 6), *args, **kwargs))
    if argv == ["--measure"]:
        for misled in (False, True):
            save_weights(load_picture_net(misled), picture_net_file(misled, tmp_path))
    assert main([*argv, "--folder", str(tmp_path)]) == 0
    for misled in (False, True):
        assert picture_net_file(misled, tmp_path).read_bytes() == picture_net_file(misled).read_bytes()
    printed = capsys.readouterr().out
    assert printed.count("6 pictures: all things right") == 3
    assert printed.count("fish seen where it is: ") == printed.count("% without; seen where it is not: ") == 2
    assert printed.count("then training") == (0 if argv == ["--measure"] else 2)
