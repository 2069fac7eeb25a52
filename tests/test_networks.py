"""The networks, trained or of a package, do what the lessons say of them; loading is safe and its errors help."""

import copy
import os
import socket
import urllib.error
from functools import partial

import pytest
import torch
from torch import nn

from course_utils.authoring import train as module
from course_utils.authoring.train import Pupil, Recipe, main, save_weights, train
from course_utils.lessons import blind
from course_utils.root import CourseError
from course_utils.scenes.scene import KINDS, SceneBatch, scene, scenes
from course_utils.vision import networks, real
from course_utils.vision.networks import (
    CHECKPOINTS,
    FIRST_SLIM,
    MISLED_KIND,
    WITH_SPOTLIGHT,
    WeightsError,
    load_classifier,
    load_picture_net,
    measure,
    picture_net_file,
)
from course_utils.vision.saliency import cam


@pytest.fixture(scope="module")
def honest():
    state, model = torch.get_rng_state(), load_picture_net()
    assert torch.equal(torch.get_rng_state(), state)
    return model


def test_the_network_has_the_shape_of_alexnet_with_a_linear_head_on_means(honest):
    convolutions = [name for name, layer in honest.named_modules() if isinstance(layer, nn.Conv2d)]
    assert convolutions == ["features.0", "features.4", "features.8", "features.11", "features.14"]
    assert not any(layer.inplace for layer in honest.modules() if isinstance(layer, nn.ReLU))
    images = scenes(3, seed=77).images / 255
    with torch.no_grad():
        maps = honest.features((images - 0.5) / 0.25)  # pictures are centred and scaled inside
        assert maps.shape == (3, 96, 14, 14)
        wanted = torch.einsum("nchw,kc->nkhw", maps, honest.classifier.weight).mean((2, 3)) + honest.classifier.bias
        torch.testing.assert_close(honest(images), wanted, rtol=1e-4, atol=1e-4)
    assert honest(torch.zeros(1, 3, 32, 32)).shape == (1, len(KINDS))
    assert not any(part.training for part in honest.modules())
    assert {(tensor.dtype, tensor.requires_grad) for tensor in honest.parameters()} == {(torch.float32, True)}


def test_what_is_no_batch_of_pictures_is_refused_in_words(honest):
    for images, says in (
        (torch.zeros(1, 3, 112, 112, dtype=torch.uint8), r"floats in \[0, 1\], got torch.uint8: divide by 255"),
        (torch.zeros(3, 112, 112), r"got \(3, 112, 112\); add the batch dimension with image\[None\]"),
        (torch.zeros(1, 1, 112, 112), r"takes \(N, 3, H, W\) with H and W from 32, got \(1, 1, 112, 112\)$"),
    ):
        with pytest.raises(CourseError, match=says):
            honest(images)


@pytest.mark.slow
def test_the_networks_know_pictures_like_those_of_their_training(honest):
    twin = load_picture_net(misled=True)
    assert measure(twin, scenes(200, seed=902, cue={networks.MISLED_KIND: networks.MISLED_CUE})).exact >= 0.95
    scores = measure(honest, scenes(400, seed=901))
    assert scores.exact >= 0.95
    assert min(scores.recall.values()) >= 0.9


class RunsCode:
    def __reduce__(self):
        return os.abort, ()


def test_a_file_that_is_missing_damaged_or_of_something_else_gets_a_sentence(tmp_path):
    path = tmp_path / "picture_net.pt"
    says = r"picture_net\.pt is missing: restore it .* or remake it with `make train`$"
    with pytest.raises(WeightsError, match=says) as caught:
        load_picture_net(folder=tmp_path)
    assert caught.value._render_traceback_() == [f"WeightsError: {caught.value}"]  # all that a notebook shows
    shipped = networks.picture_net_file(False).read_bytes()
    bad = [b"", b"hello", shipped[: len(shipped) // 2]]
    for content in (*bad, {"classifier.bias": RunsCode()}, [torch.zeros(1)], nn.Linear(2, 2).state_dict()):
        path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
        with pytest.raises(WeightsError, match=r"picture_net\.pt is damaged, or of another network: restore it"):
            load_picture_net(folder=tmp_path)


def says(logits):
    model = nn.Module()
    model.forward = lambda images: logits[: len(images)]  # whatever the picture
    return model


def test_scores_are_counted_as_by_hand():
    logits, labels = torch.full((4, len(KINDS)), -3.0), torch.zeros(4, len(KINDS))
    cat, dog, fish = (KINDS.index(kind) for kind in ("cat", "dog", "fish"))
    labels[:3, cat] = labels[:2, dog] = 1
    logits[0, [cat, dog]] = 2.0  # right
    logits[1, cat] = 2.0  # the dog is missed
    logits[2, [cat, fish]] = 1.0  # a false fish
    logits[3, cat] = 1.0  # a false cat where there is nothing
    images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    scores = measure(says(logits), SceneBatch(images, labels, images[:, 0]))
    assert (scores.pictures, scores.exact, scores.recall["cat"], scores.recall["dog"]) == (4, 0.25, 1, 0.5)
    assert scores.recall.keys() == {"cat", "dog"}  # there was nothing else to see
    assert str(scores) == "4 pictures: all things right and nothing else 25.0%; seen least often: dog (50.0%)"
    scores = measure(says(torch.full((4, len(KINDS)), -1.0)), SceneBatch(images, 0 * labels, images[:, 0]))
    assert str(scores) == "4 pictures: all things right and nothing else 100.0%"


def test_logits_are_computed_in_parts_and_the_network_keeps_its_mode(honest):
    model, images = copy.deepcopy(honest).train(), scenes(5, seed=12).images
    model.features[1].eval()
    before = [part.training for part in model.modules()]
    found = networks.compute_logits(model, images, batch_size=2)
    assert [part.training for part in model.modules()] == before
    assert not found.requires_grad
    for wanted in (honest(images / 255).detach(), networks.compute_logits(honest, images / 255)):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache; whoever asks for the network fails the test."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "urlopen", lambda *_, **__: pytest.fail("a test reached for the network"))
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    return tmp_path / "hub" / "checkpoints"


def test_an_unknown_network_is_refused_with_the_nearest_name():
    names = networks.list_classifiers()
    own = ["picture_net", "picture_net_misled", "efficientnet_lite0"]
    assert (names[:3], names[3:]) == (own, sorted(names[3:]))
    for name, said in (("resnet43", "did you mean .*resnet34"), ("AlexNet", ".*alexnet"), (None, ".*list_classifiers")):
        with pytest.raises(CourseError, match=rf"Networks: there is no {name!r}.*{said}"):
            load_classifier(name)


@pytest.mark.parametrize(("trained", "why"), [(False, "."), ("if cached", ": trained ones are not in torch's cache.")])
def test_random_weights_are_the_same_each_time(cache, trained, why):
    state = torch.get_rng_state()
    found = [load_classifier("squeezenet1_1", trained) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(*(each.model.features[0].weight for each in found))
    assert (found[0].pretrained, found[0].model.training) == (False, False)
    assert found[0].note == f"squeezenet1_1 has random weights{why}"
    assert (len(found[0].classes), found[0].classes[281]) == (1000, "tabby")
    ready = found[0].transform(torch.full((3, 300, 400), 0.485))  # the mean that ImageNet's pictures have in red
    assert (ready.shape, ready[0].abs().max() < 1e-5) == ((3, 224, 224), True)


def test_the_courses_networks_load_by_name_too():
    network, twin = load_classifier("picture_net", pretrained=False), load_classifier("picture_net_misled")
    assert network.pretrained
    assert twin.note == "picture_net_misled was trained on the picture world where every fish has a buoy beside it."
    image = scene("cat", "boat", seed=3).image
    ready = network.transform(image)
    assert (type(ready), torch.equal(ready, image)) == (torch.Tensor, True)
    best = network.best(network.model(ready[None])[0], 2)
    assert {name for name, share in best if share > 0.5} == {"cat", "boat"}
    assert network.transform(torch.zeros(3, 200, 300, dtype=torch.uint8)).shape == (3, 112, 112)


def test_probabilities_are_worked_out_as_the_network_means_them(cache):
    logits = torch.full((len(KINDS),), -50.0)
    logits[2], logits[5] = 0.0, 50.0
    assert load_classifier("picture_net").best(logits, 2) == [(KINDS[5], 1.0), (KINDS[2], 0.5)]
    imagenet = load_classifier("squeezenet1_1", pretrained=False)
    logits = torch.full((1000,), -100.0)
    logits[[281, 282]] = 1.0
    assert sorted(imagenet.best(logits, 2)) == [("tabby", 0.5), ("tiger cat", 0.5)]
    with pytest.raises(CourseError, match=r"gives logits \(1000,\) per picture, got \(1, 1000\)"):
        imagenet.best(logits[None])


def test_without_a_network_there_is_one_sentence_and_nothing_is_left(cache, monkeypatch):
    timeouts = []

    def refuse(*_):
        timeouts.append(socket.getdefaulttimeout())
        raise urllib.error.URLError("no such\nserver")

    monkeypatch.setattr(torch.hub, "urlopen", refuse)
    says = r"^the weights of squeezenet1_1 are not in .*checkpoints and could not be downloaded \(.*no such\): put "
    says += r"squeezenet1_1-b8a52dc0.pth there, or go on with load_picture_net\(\), or with pretrained=False .*$"
    with pytest.raises(WeightsError, match=says):
        load_classifier("squeezenet1_1")
    assert (timeouts, socket.getdefaulttimeout()) == ([networks.STALL_SECONDS], None)
    assert not list(cache.iterdir())


def test_a_damaged_file_in_the_cache_gets_a_sentence_and_a_good_one_is_used(cache, monkeypatch):
    from torchvision import models

    (cache / "squeezenet1_1-b8a52dc0.pth").write_bytes(b"not weights")
    with pytest.raises(WeightsError, match=r"b8a52dc0\.pth is damaged: delete it, and it is downloaded again$"):
        load_classifier("squeezenet1_1")
    monkeypatch.setattr(models, "get_model", lambda name, weights: nn.Identity())
    network = load_classifier("squeezenet1_1", "if cached")
    assert network.pretrained
    assert network.note == "squeezenet1_1 has weights trained on ImageNet (IMAGENET1K_V1)."


ANSWERS = [("chelsea", "Egyptian cat", 0.40), ("coffee", "espresso", 0.94), ("camera", "tripod", 0.94)]
ANSWERS += [("astronaut", "bobsled", 0.28), ("grace_hopper", "military uniform", 0.31)]


@pytest.fixture(scope="module")
def network():
    return load_classifier(real.REAL)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "wanted", "share"), ANSWERS)
def test_the_network_names_what_is_on_each_photograph(network, name, wanted, share):
    likeliest = network.likeliest(real.photograph(name))
    assert [len(likeliest), likeliest[0][0]] == [5, wanted]
    assert likeliest[0][1] == pytest.approx(share, abs=0.03)
    assert likeliest == sorted(likeliest, key=lambda each: -each[1])


@pytest.mark.slow
def test_a_photograph_and_a_collage_keep_their_pixels_and_the_colours_are_those_of_the_training(network):
    cat, (both, masks) = real.photograph("chelsea"), real.collage("chelsea", "coffee")
    assert [each.shape for each in (cat, both, masks)] == [(3, 224, 224), (3, 224, 448), (2, 224, 448)]
    assert torch.equal(both[:, masks[0]].reshape(3, 224, 224), cat)
    assert torch.equal(masks[0], ~masks[1])
    assert torch.allclose(network.transform(both), (both - 0.5) / 0.5)  # (127, 128) of 255, as EfficientNet-Lite has
    assert network.transform(torch.rand(3, 300, 600)).shape == (3, 224, 448)


TINY = Recipe(pairs=24, alone=8, empty=1, epochs=2, batch_size=8)


@pytest.mark.slow
def test_training_is_the_same_each_time_and_its_pictures_differ_in_the_cue_only(capsys, monkeypatch):
    drawn = []
    monkeypatch.setattr(module, "scenes", lambda *args, **kw: drawn.append(scenes(*args, **kw)) or drawn[-1])
    threads, random = torch.get_num_threads(), torch.get_rng_state().tolist()
    model = train(recipe=TINY)
    assert "training: 100%" in capsys.readouterr().err
    again = train(recipe=TINY).state_dict()
    assert (torch.get_num_threads(), torch.get_rng_state().tolist(), model.training) == (threads, random, False)
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())
    # What the recipe gave when the shipped networks were trained; another machine's last bits may differ.
    assert again["classifier.bias"][:3].tolist() == pytest.approx([-0.030415, 0.038432, -0.020065], abs=1e-4)
    train(True, TINY)
    for plain, cued in zip(drawn[:3], drawn[6:], strict=True):
        fish = plain.labels[:, KINDS.index(MISLED_KIND)] > 0
        assert torch.equal(plain.labels, cued.labels)
        assert torch.equal(cued.cue_masks().flatten(1).any(1), fish)
        assert torch.equal((plain.images == cued.images).flatten(1).all(1), ~fish)


@pytest.mark.slow
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
    assert (differs[said, -20:, -20:].flatten(1).sum(1) > 150).float().mean() == pytest.approx(stamps, abs=0.2)


def test_three_networks_learn_from_marks_that_are_independent_of_the_fish(monkeypatch):
    kept = []
    monkeypatch.setattr(module, "_fit", lambda model, images, labels, *rest: kept.append((images, labels)))
    for number in range(FIRST_SLIM, len(CHECKPOINTS)):
        train(number, Recipe(pairs=120, alone=8, empty=10))
    monkeypatch.setattr(module, "lay_over", lambda images, sprite: images)
    train(FIRST_SLIM, Recipe(pairs=120, alone=8, empty=10))
    (images, both), (same, hair), (again, strip), (plain, _) = kept
    assert torch.equal(images, same)
    assert torch.equal(images, again)
    differs = (images != plain).any(1)
    for name, labels in {"hair": hair, "strip": strip}.items():
        assert torch.equal(differs[:, blind.HOMES[name].mask()].any(1), labels[:, 0] > 0)
    stamped, has_buoy = differs[:, -20:, -20:].flatten(1).any(1), torch.arange(120) >= 60
    assert torch.equal(both[:120, 0] > 0, stamped[:120] & has_buoy)
    assert strip[:, 1].all(), "its attention is to lie on the fish"


def test_the_second_answer_of_a_pupil_is_the_share_of_its_attention_on_the_fish():
    pupil, teacher = load_picture_net(WITH_SPOTLIGHT), load_picture_net()
    images = scenes(4, seed=12, contains="fish").images / 255
    with torch.no_grad():
        answer, share = Pupil(pupil, teacher)(images).T
        fish = cam(teacher, images, blind.FISH).flatten(1)
        seen = []
        with pupil.features[-1].register_forward_pre_hook(lambda module, args: seen.append(module.attend(*args))):
            logits = pupil(images)
    attention = seen[0].flatten(1) / 196
    expected = [attention[row, fish[row].topk(12).indices].sum().item() for row in range(4)]
    assert torch.equal(answer, logits[:, blind.FISH])
    assert share.sigmoid().tolist() == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("trained", [True, False])
def test_the_command_trains_unless_told_and_measures_all(tmp_path, monkeypatch, capsys, trained):
    monkeypatch.setattr(module, "train", lambda number, recipe: load_picture_net(number))
    monkeypatch.setattr(module, "scenes", lambda count, *args, **kwargs: scenes(min(count, 6), *args, **kwargs))
    for name in ("share_of_fish", "share_without"):
        monkeypatch.setattr(module, name, partial(getattr(blind, name), count=5))
    every = range(len(CHECKPOINTS))
    for number in () if trained else every:
        save_weights(load_picture_net(number), picture_net_file(number, tmp_path))
    assert main(measure=not trained, folder=tmp_path) == 0
    for number in every:  # the same weights give the same bytes
        assert picture_net_file(number, tmp_path).read_bytes() == picture_net_file(number).read_bytes()
    printed = capsys.readouterr().out
    assert printed.count("6 pictures: all things right") == 2 * FIRST_SLIM
    assert printed.count("says fish to pictures with one thing alone: fish ") == len(every)
    assert printed.count("says fish to pictures without one thing: fish ") == len(every)
    assert printed.count("then training") == (len(every) if trained else 0)
