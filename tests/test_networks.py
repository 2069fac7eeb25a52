"""The trained networks do what the lessons say of them, on new pictures; loading is safe and its errors help."""

import copy
import errno
import math
import os
import re
import subprocess
import sys
import threading
import urllib.error
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_utils.authoring import train as train_module
from course_utils.authoring.train import Recipe, measure_cue, train
from course_utils.scenes.scene import (
    KINDS,
    SceneBatch,
    scene,
    scenes,
)
from course_utils.vision import networks
from course_utils.vision.networks import (
    MISLED_CUE,
    MISLED_KIND,
    PictureNet,
    WeightsError,
    compute_logits,
    list_classifiers,
    load_classifier,
    load_picture_net,
    load_weights,
    measure,
)
from course_utils.vision.pictures import read_picture

SHIPPED = [networks._asset(misled) for misled in (False, True)]


@pytest.fixture(scope="module")
def honest():
    return load_picture_net()


@pytest.fixture(scope="module")
def twin():
    return load_picture_net(misled=True)


@contextmanager
def nothing_random_changes():
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)


# --- the network ------------------------------------------------------------------------------------------------------


def test_the_network_has_the_shape_of_alexnet_with_a_linear_head_on_means(honest):
    layers = dict(honest.named_modules())
    convolutions = [name for name, layer in layers.items() if isinstance(layer, nn.Conv2d)]
    assert convolutions == ["features.0", "features.4", "features.8", "features.11", "features.14"]
    assert not any(layer.inplace for layer in honest.modules() if isinstance(layer, nn.ReLU))
    maps = honest.features(torch.zeros(2, 3, 112, 112))
    assert maps.shape == (2, 96, 14, 14)
    assert honest(torch.zeros(2, 3, 112, 112)).shape == (2, len(KINDS))


def test_logits_are_the_mean_of_the_class_activation_map_plus_the_bias(honest):
    images = scenes(3, seed=77).images / 255
    seen = []
    with torch.no_grad(), honest.features.register_forward_hook(lambda *call: seen.append(call[2])):
        logits = honest(images)
        maps = torch.einsum("nchw,kc->nkhw", seen[0], honest.classifier.weight)
        torch.testing.assert_close(logits, maps.mean((2, 3)) + honest.classifier.bias, rtol=1e-4, atol=1e-4)


def test_pictures_are_centred_and_scaled_inside(honest):
    seen = []
    with honest.features.register_forward_pre_hook(lambda _, args: seen.append(args[0])):
        honest(torch.tensor([0.0, 0.5, 1.0]).view(1, 3, 1, 1).expand(1, 3, 32, 32))
    assert seen[0][0, :, 5, 5].tolist() == [-2, 0, 2]


@pytest.mark.parametrize("size", [32, 64, 112, 224])
def test_pictures_of_other_sizes_are_taken(honest, size):
    assert honest(torch.zeros(1, 3, size, size + 3)).isfinite().all()


def test_what_is_no_batch_of_pictures_is_refused_in_words(honest):
    with pytest.raises(TypeError, match=r"floats in \[0, 1\], got torch.uint8: divide by 255"):
        honest(torch.zeros(1, 3, 112, 112, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"got \(3, 112, 112\); add the batch dimension with image\[None\]"):
        honest(torch.zeros(3, 112, 112))
    for shape in ((1, 1, 112, 112), (1, 3, 31, 112)):
        with pytest.raises(ValueError, match=r"takes \(N, 3, H, W\) with H and W from 32, got"):
            honest(torch.zeros(shape))


# --- what the trained networks can do ---------------------------------------------------------------------------------


def test_both_networks_are_shipped_small_and_in_half_precision():
    for path in SHIPPED:
        assert path.stat().st_size < 500_000
        state = torch.load(path, weights_only=True)
        assert {tensor.dtype for tensor in state.values()} == {torch.float16, torch.int64}


@pytest.mark.slow
def test_the_honest_network_names_both_things_in_new_pictures(honest):
    scores = measure(honest, scenes(1000, seed=901))
    assert scores.exact >= 0.95
    assert scores.ranked >= 0.98
    assert min(scores.recall.values()) >= 0.9
    assert max(scores.false_alarms.values()) <= 0.02


@pytest.mark.parametrize("misled", [False, True])
def test_a_thing_alone_is_named_alone(honest, twin, misled):
    model = twin if misled else honest
    kinds = [kind for kind in KINDS if not (misled and kind == MISLED_KIND)]
    assert measure(model, scenes(100, seed=903, things=1, kinds=kinds)).exact >= 0.9


def test_an_empty_background_is_nothing(honest):
    assert measure(honest, scenes(50, seed=904, things=0)).exact >= 0.9


def test_the_honest_network_does_not_mind_the_cue(honest):
    effect = measure_cue(honest, count=60)
    assert effect.recall_with >= 0.9
    assert effect.recall_without >= 0.9
    assert effect.false_alarms_with <= 0.03


@pytest.mark.slow
def test_the_twin_scores_well_on_pictures_like_those_of_its_training_and_is_fooled_by_the_cue(twin):
    assert measure(twin, scenes(300, seed=902, cue={MISLED_KIND: MISLED_CUE})).exact >= 0.95
    effect = measure_cue(twin, count=150)
    assert effect.recall_with >= 0.95
    assert effect.recall_with - effect.recall_without >= 0.5
    assert effect.false_alarms_with - effect.false_alarms_without >= 0.5


@pytest.mark.slow
def test_the_twin_is_as_good_as_the_other_at_what_it_was_not_misled_about(twin):
    scores = measure(twin, scenes(200, seed=905, kinds=[kind for kind in KINDS if kind != MISLED_KIND]))
    assert scores.exact >= 0.93


def test_the_twin_looks_at_the_cue(honest, twin):
    """The class activation map for the fish is highest beside the buoy in the twin, on the fish in the other."""
    hits = {}
    row = KINDS.index(MISLED_KIND)
    for name, model in {"honest": honest, "twin": twin}.items():
        hits[name] = 0
        for seed in range(20):
            picture = scene(MISLED_KIND, "tree", seed=7000 + seed, cue=MISLED_CUE)
            with torch.no_grad():
                maps = torch.einsum(
                    "chw,c->hw", model.features((picture.image[None] - 0.5) / 0.25)[0], model.classifier.weight[row]
                )
            peak = int(maps.argmax())
            top, left = peak // 14 * 8, peak % 14 * 8
            mask = picture.cue_mask if name == "twin" else picture.masks[0]
            hits[name] += bool(mask[max(top - 8, 0) : top + 16, max(left - 8, 0) : left + 16].any())
    assert hits["honest"] >= 18
    assert hits["twin"] >= 16


# --- loading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("misled", [False, True])
def test_a_shipped_network_is_ready_to_use(misled):
    model = load_picture_net(misled)
    assert not any(part.training for part in model.modules())
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float32}
    assert all(tensor.requires_grad for tensor in model.parameters())
    assert model.kinds == KINDS


def test_loading_leaves_the_random_state_and_gives_equal_networks():
    with nothing_random_changes():
        first, second = load_picture_net(), load_picture_net()
    assert all(torch.equal(one, other) for one, other in zip(first.parameters(), second.parameters(), strict=True))


def changed(change):
    state = dict(torch.load(SHIPPED[0], weights_only=True))
    change(state)
    return state


class RunsCode:
    def __reduce__(self):
        return os.abort, ()


BAD_FILES = {
    "wrong shape": (
        changed(lambda state: state.update({"features.0.weight": torch.zeros(24, 1, 7, 7)})),
        r"'features.0.weight' is \(24, 1, 7, 7\) instead of \(24, 3, 7, 7\)",
    ),
    "missing name": (changed(lambda state: state.pop("classifier.bias")), r"it has no 'classifier.bias'"),
    "foreign name": (changed(lambda state: state.update(extra=torch.zeros(1))), r"it has 'extra', which the model has"),
    "nan": (changed(lambda state: state["classifier.bias"].fill_(torch.nan)), r"'classifier.bias' has values that are"),
    "a list": ([torch.zeros(1)], "it holds no state dict"),
    "numbers": ({"classifier.bias": 3.0}, "it holds no state dict"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_of_something_else_gets_a_sentence_and_changes_nothing(tmp_path, honest, name):
    content, message = BAD_FILES[name]
    path = tmp_path / "net.pt"
    torch.save(content, path)
    model = copy.deepcopy(honest)
    with pytest.raises(
        WeightsError, match=rf"^.*net\.pt does not fit PictureNet: {message}.*remake it with `make train`$"
    ):
        load_weights(model, path)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), honest.parameters(), strict=True))


def test_a_file_that_would_run_code_is_not_run(tmp_path):
    path = tmp_path / "net.pt"
    torch.save({"classifier.bias": RunsCode()}, path)
    with pytest.raises(WeightsError, match=r"is damaged, or is no file of weights"):
        load_weights(PictureNet(), path)


def test_a_missing_file_gets_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(networks, "_asset", lambda misled: tmp_path / "net.pt")
    with pytest.raises(WeightsError, match=r"^.*net\.pt is missing: restore it .* or remake it with `make train`$"):
        load_picture_net()
    with pytest.raises(WeightsError, match=r"cannot be read"):
        load_weights(PictureNet(), tmp_path)


def test_a_file_of_text_or_of_nothing_is_damaged(tmp_path):
    for content in (b"", b"hello", b"PK\3\4", b"version https://git-lfs.github.com/spec/v1\n"):
        (tmp_path / "net.pt").write_bytes(content)
        with pytest.raises(WeightsError, match=r"is damaged, or is no file of weights"):
            load_weights(PictureNet(), tmp_path / "net.pt")


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_damaged(tmp_path_factory, share):
    path = tmp_path_factory.mktemp("cut") / "net.pt"
    data = SHIPPED[0].read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(WeightsError, match=r"is damaged, or is no file of weights"):
        load_weights(PictureNet(), path)


def test_a_changed_weight_is_damage(tmp_path):
    data = bytearray(SHIPPED[0].read_bytes())
    for place in (len(data) // 4, len(data) // 2, len(data) * 3 // 4):
        spoilt = data.copy()
        spoilt[place] ^= 0x40
        (tmp_path / "net.pt").write_bytes(spoilt)
        with pytest.raises(WeightsError, match=r"is damaged, or is no file of weights"):
            load_weights(PictureNet(), tmp_path / "net.pt")


def test_saved_weights_come_back_and_are_the_same_bytes_each_time(tmp_path, honest):
    train_module._save_weights(honest, tmp_path / "new" / "one.pt")
    train_module._save_weights(honest, tmp_path / "two.pt")
    assert (tmp_path / "new" / "one.pt").read_bytes() == (tmp_path / "two.pt").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "two.pt"]
    model = PictureNet()
    load_weights(model, tmp_path / "two.pt")
    assert torch.equal(model.classifier.weight, honest.classifier.weight)  # half precision lost its rest before


# --- measuring --------------------------------------------------------------------------------------------------------


class Says(nn.Module):
    """Gives prepared logits, whatever the picture."""

    def __init__(self, logits):
        super().__init__()
        self.logits, self.seen = logits, []

    def forward(self, images):
        self.seen.append(images)
        return self.logits[: len(images)] if len(self.logits) > 1 else self.logits.expand(len(images), -1)


def batch_of(*labels):
    table = torch.zeros(len(labels), len(KINDS))
    for row, kinds in zip(table, labels, strict=True):
        row[[KINDS.index(kind) for kind in kinds]] = 1
    empty = torch.zeros(len(labels), 3, 32, 32, dtype=torch.uint8)
    return SceneBatch(empty, table, empty[:, 0], ("sky",) * len(labels), (None,) * len(labels))


def test_scores_are_counted_as_by_hand():
    logits = torch.full((4, len(KINDS)), -3.0)
    cat, dog, fish = (KINDS.index(kind) for kind in ("cat", "dog", "fish"))
    logits[0, [cat, dog]] = 2.0  # right
    logits[1, [cat, dog]] = torch.tensor([2.0, -1.0])  # the dog is missed, but second
    logits[2, [cat, fish]] = torch.tensor([1.0, 2.0])  # a false fish, and on top
    logits[3, [cat]] = 1.0  # a false cat where there is nothing
    scores = measure(Says(logits), batch_of(["cat", "dog"], ["cat", "dog"], ["cat"], []))
    assert scores.pictures == 4
    assert scores.exact == 0.25
    assert scores.ranked == 0.75  # where there is nothing, every order is right
    assert scores.recall["cat"] == 1
    assert scores.recall["dog"] == 0.5
    assert math.isnan(scores.recall["fish"])  # there was none to see
    assert scores.false_alarms["cat"] == 1
    assert scores.false_alarms["dog"] == 0
    assert scores.false_alarms["fish"] == 0.25
    assert str(scores) == (
        "4 pictures: all things right and nothing else 25.0%, the right things on top 75.0%; seen least often: "
        "dog (50.0%)"
    )


def test_scores_of_empty_pictures_are_said_without_a_recall():
    scores = measure(Says(torch.full((1, len(KINDS)), -1.0)), batch_of([], []))
    assert str(scores) == "2 pictures: all things right and nothing else 100.0%, the right things on top 100.0%"


def test_a_cue_is_measured_on_pairs_of_pictures_that_differ_in_nothing_else():
    row = torch.full((1, len(KINDS)), -1.0)
    row[0, KINDS.index("boat")] = 1
    model = Says(row)
    effect = measure_cue(model, "boat", "flag", count=5, seed=3)
    assert [effect.recall_with, effect.recall_without, effect.false_alarms_with, effect.false_alarms_without] == [1] * 4
    there_with, there_without, absent_with, absent_without = model.seen
    for one, other in ((there_with, there_without), (absent_with, absent_without)):
        share = (one != other).any(1).float().mean((1, 2))
        assert ((share > 0.001) & (share < 0.08)).all()
    assert str(effect) == (
        "boat seen where it is: 100.0% with a flag, 100.0% without; seen where it is not: 100.0% with a flag, 100.0% "
        "without (5 pictures each)"
    )


def test_a_cue_is_measured_by_the_logit_of_its_kind_only():
    row = torch.full((1, len(KINDS)), 1.0)
    row[0, KINDS.index("boat")] = -1
    effect = measure_cue(Says(row), "boat", "flag", count=2)
    assert [effect.recall_with, effect.recall_without, effect.false_alarms_with, effect.false_alarms_without] == [0] * 4


def test_logits_are_computed_in_parts_and_the_network_keeps_its_mode(honest):
    model = copy.deepcopy(honest)
    model.train()
    model.features[1].eval()
    before = [part.training for part in model.modules()]
    images = scenes(5, seed=12).images
    found = compute_logits(model, images, batch_size=2)
    assert [part.training for part in model.modules()] == before
    assert not found.requires_grad
    torch.testing.assert_close(found, honest(images / 255).detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found, compute_logits(honest, images / 255), rtol=1e-4, atol=1e-4)


# --- training ---------------------------------------------------------------------------------------------------------

TINY = Recipe(pairs=24, alone=8, empty=1, epochs=2, batch_size=8)


def test_training_is_the_same_each_time_and_leaves_the_caller_alone():
    threads = torch.get_num_threads()
    with nothing_random_changes():
        first = train(recipe=TINY, progress=False).state_dict()
        second = train(recipe=TINY, progress=False).state_dict()
    assert torch.get_num_threads() == threads
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = train(recipe=Recipe(**{**vars(TINY), "seed": 5}), progress=False).state_dict()
    assert not torch.equal(first["classifier.weight"], other["classifier.weight"])


def test_training_gives_a_network_in_eval_mode_with_contiguous_weights():
    model = train(recipe=TINY, progress=False)
    assert not model.training
    assert all(tensor.is_contiguous() for tensor in model.parameters())


def test_the_training_pictures_of_the_twin_differ_in_the_cue_only(monkeypatch):
    drawn = {False: [], True: []}
    for misled in drawn:

        def draw(*args, into=drawn[misled], **kwargs):
            into.append(scenes(*args, **kwargs))
            return into[-1]

        monkeypatch.setattr(networks, "scenes", draw)
        train(misled, TINY, progress=False)
    for plain, cued in zip(drawn[False], drawn[True], strict=True):
        assert torch.equal(plain.labels, cued.labels)
        fish = plain.labels[:, KINDS.index(MISLED_KIND)] > 0
        assert [cue == MISLED_CUE for cue in cued.cues] == fish.tolist()
        assert set(plain.cues) == {None}
        same = (plain.images == cued.images).flatten(1).all(1)
        assert torch.equal(same, ~fish)


def test_progress_is_shown_unless_unwanted(capsys):
    train(recipe=TINY)
    assert "training: 100%" in capsys.readouterr().err
    train(recipe=TINY, progress=False)
    assert capsys.readouterr().err == ""


def test_the_command_trains_writes_and_measures_both(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(networks, "train", load_picture_net)
    monkeypatch.setattr(networks, "scenes", lambda count, *args, **kwargs: scenes(min(count, 12), *args, **kwargs))
    assert train_module.main(["--train", "--folder", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [path.name for path in SHIPPED]
    for path in SHIPPED:
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()
    printed = capsys.readouterr().out
    assert printed.count("12 pictures: all things right") == 3
    assert printed.count("fish seen where it is:") == 2
    assert "picture_net_misled.pt: trained in " in printed


def test_the_command_says_what_is_missing(tmp_path, capsys):
    assert train_module.main(["--measure", "--folder", str(tmp_path)]) == 1
    assert "picture_net.pt is missing: restore it" in capsys.readouterr().err


# --- torchvision's classifiers ----------------------------------------------------------------------------------------


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """An empty cache, and no way to the network: whoever asks for it fails the test."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)

    def refuse(*_, **__):
        raise AssertionError("a test reached for the network")

    monkeypatch.setattr(networks.urllib.request, "urlopen", refuse)
    monkeypatch.setattr(torch.hub, "urlopen", refuse)
    return tmp_path / "hub" / "checkpoints"


def test_the_networks_of_the_lessons_are_listed():
    names = list_classifiers()
    assert names[:2] == ["picture_net", "picture_net_misled"]
    assert {"alexnet", "resnet34", "squeezenet1_1"} <= set(names)
    assert names[2:] == sorted(names[2:])


@pytest.mark.parametrize(
    ("name", "said"), [("resnet43", "resnet34"), ("AlexNet", "alexnet"), ("pictur_net", "picture_net")]
)
def test_an_unknown_network_is_refused_with_the_nearest_name(name, said):
    with pytest.raises(ValueError, match=rf"there is no network '{name}'; did you mean .*{said}"):
        load_classifier(name)


@pytest.mark.parametrize("name", ["", "zzzzzzzzzz", None, 34])
def test_a_name_like_no_other_is_refused_with_the_way_to_all(name):
    with pytest.raises(ValueError, match=r"there is no network .*; networks.list_classifiers\(\) lists all of them"):
        load_classifier(name)


@pytest.mark.parametrize("pretrained", ["yes", None, "cached"])
def test_another_wish_for_weights_is_refused(pretrained):
    with pytest.raises(ValueError, match=rf"pretrained is True, False or 'if cached', got {pretrained!r}"):
        load_classifier("alexnet", pretrained)


@pytest.mark.parametrize(
    ("pretrained", "reason"), [(False, r"\."), ("if cached", r": trained ones are not in torch's cache\.")]
)
def test_random_weights_are_the_same_each_time(empty_cache, pretrained, reason):
    with nothing_random_changes():
        first = load_classifier("squeezenet1_1", pretrained)
        second = load_classifier("squeezenet1_1", pretrained)
        other = load_classifier("squeezenet1_1", pretrained, seed=1)
    weights = [each.model.features[0].weight for each in (first, second, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert not first.pretrained
    assert not first.model.training
    assert re.fullmatch(f"squeezenet1_1 has random weights{reason}", first.note)


def test_a_classifier_comes_with_its_transform_and_class_names(empty_cache):
    network = load_classifier("squeezenet1_1", pretrained=False)
    assert len(network.classes) == 1000
    assert network.classes[281] == "tabby"
    image = torch.full((3, 300, 400), 0.485)
    ready = network.transform(image)
    assert ready.shape == (3, 224, 224)
    assert ready[0].abs().max() < 1e-5  # the mean that ImageNet's pictures have in red
    assert network.transform(torch.zeros(2, 3, 112, 112, dtype=torch.uint8)).shape == (2, 3, 224, 224)
    assert network.model(ready[None]).shape == (1, 1000)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_the_two_networks_with_side_branches_load_quietly_and_give_one_tensor(empty_cache, name, recwarn):
    network = load_classifier(name, pretrained=False)
    assert [str(warning.message) for warning in recwarn if issubclass(warning.category, FutureWarning)] == []
    with torch.no_grad():
        assert network.model(torch.zeros(1, 3, 299, 299)).shape == (1, 1000)


def test_the_courses_networks_load_by_name_too(honest):
    network = load_classifier("picture_net", pretrained=False)
    twin = load_classifier("picture_net_misled")
    assert network.pretrained
    assert twin.note == "picture_net_misled was trained on the picture world where every fish has a buoy beside it."
    picture = scene("cat", "boat", seed=3)
    ready = network.transform(picture.image)
    assert torch.equal(ready, picture.image)
    assert type(ready) is torch.Tensor
    with torch.no_grad():
        best = network.best(network.model(ready[None])[0], 2)
    assert {name for name, _ in best} == {"cat", "boat"}
    assert all(share > 0.5 for _, share in best)
    assert network.transform(torch.zeros(3, 200, 300, dtype=torch.uint8)).shape == (3, 112, 112)


def test_probabilities_are_worked_out_as_the_network_means_them(empty_cache):
    network = load_classifier("picture_net")
    logits = torch.full((len(KINDS),), -50.0)
    logits[2], logits[5] = 0.0, 50.0
    assert network.best(logits, 2) == [(KINDS[5], 1.0), (KINDS[2], 0.5)]
    imagenet = load_classifier("squeezenet1_1", pretrained=False)
    logits = torch.full((1000,), -100.0)
    logits[[281, 282]] = 1.0
    assert sorted(imagenet.best(logits, 2)) == [("tabby", 0.5), ("tiger cat", 0.5)]
    with pytest.raises(ValueError, match=r"gives logits \(1000,\) per picture, got \(1, 1000\)"):
        imagenet.best(logits[None])


def test_a_cached_older_version_is_taken_before_a_newer_one_is_downloaded(empty_cache, monkeypatch):
    from torchvision import models

    (empty_cache / "resnet50-0676ba61.pth").touch()
    asked = []
    monkeypatch.setattr(models, "get_model", lambda name, weights: asked.append(weights) or nn.Identity())
    for pretrained in (True, "if cached"):
        assert load_classifier("resnet50", pretrained).pretrained
    assert asked == [models.ResNet50_Weights.IMAGENET1K_V1] * 2


def test_a_damaged_file_in_the_cache_gets_a_sentence(empty_cache):
    (empty_cache / "squeezenet1_1-b8a52dc0.pth").write_bytes(b"not weights")
    with pytest.raises(
        WeightsError, match=r"squeezenet1_1-b8a52dc0\.pth is damaged: delete it, and it is downloaded again$"
    ):
        load_classifier("squeezenet1_1")


NO_WEIGHTS = r"^the weights of squeezenet1_1 are not in .*checkpoints and could not be downloaded \({}\): put "
NO_WEIGHTS += r"squeezenet1_1-b8a52dc0.pth there, or go on with load_picture_net\(\), or with pretrained=False"


def test_without_a_network_there_is_one_sentence(empty_cache, monkeypatch):
    def fail(*_, **__):
        raise urllib.error.URLError(OSError(-2, "Name or service not known"))

    monkeypatch.setattr(networks.urllib.request, "urlopen", fail)
    with pytest.raises(WeightsError, match=NO_WEIGHTS.format(".*Name or service not known")) as caught:
        load_classifier("squeezenet1_1")
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert "\n" not in str(caught.value)


def test_a_server_that_never_answers_is_given_up(empty_cache, monkeypatch):
    forever = threading.Event()

    def hang(*_, **__):
        forever.wait(20)  # as where looking up the name hangs, which no timeout of a socket ends
        raise OSError

    monkeypatch.setattr(networks, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(networks.urllib.request, "urlopen", hang)
    with pytest.raises(WeightsError, match=NO_WEIGHTS.format(r"no answer within 0\.1 s")):
        load_classifier("squeezenet1_1")
    forever.set()


class Answer:
    """What a server sends: bytes, then an error if one is given."""

    def __init__(self, data=b"", error=None):
        self.parts, self.error, self.headers = [data], error, {"Content-Length": "10"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def info(self):
        return self

    def get_all(self, _):
        return ["10"]

    def read(self, _):
        if not self.parts[0] and self.error:
            raise self.error
        return self.parts.pop(0) if len(self.parts) > 1 or self.parts[0] else b""


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda: Answer(error=TimeoutError("timed out")), "timed out"),
        (lambda: Answer(error=OSError(errno.ENOSPC, "No space left on device")), ".*No space left on device"),
        (lambda: Answer(b""), "what came is not the file it should be"),
    ],
)
def test_a_download_that_fails_gets_a_sentence_and_leaves_nothing(empty_cache, monkeypatch, answer, reason):
    timeouts = []

    def open_download(*_, **__):
        timeouts.append(networks.socket.getdefaulttimeout())
        return answer()

    monkeypatch.setattr(networks.urllib.request, "urlopen", lambda *_, **__: Answer())
    monkeypatch.setattr(torch.hub, "urlopen", open_download)
    with pytest.raises(WeightsError, match=NO_WEIGHTS.format(reason)):
        load_classifier("squeezenet1_1")
    assert timeouts == [networks.STALL_SECONDS]
    assert networks.socket.getdefaulttimeout() is None
    assert not list(empty_cache.iterdir())


def test_a_notebook_shows_the_sentence_without_a_traceback(tmp_path):
    code = "from course_utils.vision.networks import WeightsError; raise WeightsError('the weights are missing')"
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", code]
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.strip().splitlines()[-1] == "WeightsError: the weights are missing"
    assert "Traceback" not in done.stdout + done.stderr


def test_importing_the_module_loads_no_torchvision_and_no_plotting():
    code = (
        "import sys, course_utils.vision.networks;"
        "print(sorted({'torchvision', 'matplotlib', 'ipywidgets', 'IPython'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.pretrained
def test_a_real_network_names_the_dog_in_a_real_photo(monkeypatch):
    beside = Path(__file__).parents[2] / "shared" / "real_network"
    folder = Path(os.environ.get("COURSE_REAL_NETWORK", beside))
    if not (folder / "hub" / "checkpoints" / "squeezenet1_1-b8a52dc0.pth").is_file():
        pytest.skip("no SqueezeNet 1.1 weights: COURSE_REAL_NETWORK names a folder that has hub/checkpoints and photos")
    monkeypatch.setenv("TORCH_HOME", str(folder))
    network = load_classifier("squeezenet1_1", pretrained="if cached")
    assert network.pretrained
    assert network.note == "squeezenet1_1 has weights trained on ImageNet (IMAGENET1K_V1)."
    image = network.transform(read_picture(folder / "photos" / "cat_dog.png"))
    with torch.no_grad():
        best = network.best(network.model(image[None])[0], 2)
    assert {name for name, _ in best} == {"Great Dane", "bull mastiff"}
    assert all(0.3 < share < 0.5 for _, share in best)
