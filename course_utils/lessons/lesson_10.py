"""The cases of lesson 10: where next?"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from course_utils.exercises.cases import Case, Numbers, stop
from course_utils.exercises.engine import exercise
from course_utils.lessons.blind import LATER, LETTERS, Album, forget_questions, fresh_pictures
from course_utils.lessons.proofs import ACCEPTED, seal, weigh


def judge_proof(letter: str, pictures: Album) -> Case:
    """A network, and fresh pictures to prove on what it takes for a fish. Only questions from now on are counted."""

    def look(proof):
        verdict = weigh(letter, pictures, proof)
        wrong = "nothing" if verdict == ACCEPTED else verdict.removeprefix("refused: ")
        return {"what was wrong with your proof": wrong, "its seal": seal(letter, pictures, proof, verdict)}

    forget_questions()
    shown = f"network {letter} and {len(pictures)} fresh pictures (from number {pictures.shots[0].number} on)"
    return Case({"letter": letter, "pictures": pictures}, look, shown)


@exercise
def prove(rng):
    pictures = fresh_pictures(12, rng.integer(100, 99_999))
    for letter in LETTERS:
        yield judge_proof(letter, pictures)


@exercise
def find_cause(rng):
    pictures = fresh_pictures(12, rng.integer(100, 99_999))
    for letter in LATER:
        yield judge_proof(letter, pictures)


def positive_net(rng: Numbers) -> nn.Sequential:
    """Two mixing layers and a head, whose numbers are all above 0: each place of each channel speaks for each class."""
    net = nn.Sequential(
        nn.Conv2d(2, 2, 1, bias=False),
        nn.ReLU(),
        nn.Conv2d(2, 2, 1, bias=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2, 3),
    )
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(rng.whole(*parameter.shape) / 4)
    return net


class Asked:
    """A method of the cases: a gradient at the picture, times the picture.

    kind: "each place", "mean" over all places, or "both", one after the other, added up; or "occlusion", which needs no
    gradient: how much each place adds to the logit.
    """

    def __init__(self, image: Tensor, target: int, kind: str) -> None:
        self.image, self.target, self.kind = image, target, kind

    def __call__(self, model: nn.Module) -> Tensor:
        """Return a map (h, w) with a sign."""
        if self.kind == "occlusion":
            return self._occlude(model)
        gradients = []
        for kind in ("mean", "each place") if self.kind == "both" else (self.kind,):
            image = self.image.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(model(image)[0, self.target], image)
            gradients.append(gradient if kind == "each place" else gradient.mean((2, 3), keepdim=True))
        return (sum(gradients) * self.image)[0].sum(0)

    @torch.no_grad()
    def _occlude(self, model: nn.Module) -> Tensor:
        changed = self.image.repeat(self.image[0, 0].numel(), 1, 1, 1)
        for place, image in enumerate(changed):
            image.flatten(1)[:, place] = 0
        logits = model(self.image) - model(changed)
        return logits[:, self.target].reshape(self.image.shape[2:])


@exercise
def share_on_the_cut(rng):
    def test(image: Tensor, kind: str, layer: int, words: str) -> Case:
        keep = torch.ones(2, 4)
        keep[0, rng.integer(1, 2) :] = keep[1, 3:] = 0
        net, method = positive_net(rng), Asked(image, rng.integer(0, 2), kind)
        if "stopped" in words:
            net[5].register_forward_pre_hook(stop)
        given = {"method": method, "model": net, "later": net[layer], "keep": keep, "dead": keep == 0}
        return Case(given, shown=f"{words}, a network, its layer {layer}, keep = {keep.int().tolist()}")

    signs = torch.tensor([[1.0, 1, 1, -1], [1, 1, -1, 1]])
    yield test(rng.whole(1, 2, 2, 4), "mean", 2, "a method with the mean gradient")
    yield test(rng.whole(1, 2, 2, 4), "each place", 2, "a method with the gradient at each place")
    yield test(rng.whole(1, 2, 2, 4) * signs, "both", 0, "a method that runs twice, with a map of both signs")
    yield test(rng.whole(1, 2, 2, 4), "both", 2, "a method that runs twice")
    yield test(-rng.whole(1, 2, 2, 4), "mean", 2, "a method whose map is negative everywhere")
    yield test(
        rng.whole(1, 2, 2, 4), "occlusion", 0, "a method that hides one place after the other, without gradients"
    )
    image = -8 * rng.whole(1, 2, 2, 4)
    image[..., [0, 3]] /= -8  # among the places that live, and among those that are dead
    yield test(image, "mean", 2, "a method whose map has more below 0 than above")
    yield test(rng.whole(1, 3, 2, 4), "mean", 2, "a method whose picture has a channel too many: it raises an error")
    yield test(rng.whole(1, 2, 2, 4), "mean", 2, "a method that is stopped, by something that is no Exception")
    yield test(rng.whole(1, 2, 2, 4) * 2.0**-110, "both", 2, "a method with a faint map")
    yield test(rng.whole(1, 2, 2, 4), "both", 1, "a method that runs twice; layer 1 is a ReLU")
    net, keep = positive_net(rng), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    net[2] = nn.Conv2d(2, 2, (1, 2), stride=2, bias=False).requires_grad_(False)
    net[2].weight.copy_(rng.whole(2, 2, 1, 2) / 4)
    method, dead = Asked(rng.whole(1, 2, 4, 4), 0, "both"), torch.zeros(4, 4, dtype=torch.bool)
    dead[1::2] = dead[0, 2:] = True
    given = {"method": method, "model": net, "later": net[2], "keep": keep, "dead": dead}
    yield Case(given, shown="a method that runs twice, and a layer whose output is smaller than its input")


@exercise
def logits_without(rng):
    def take_away(words: str, net: nn.Sequential, layer: int, direction: list[float], count: int) -> Case:
        given = {"model": net, "layer": net[layer], "direction": torch.tensor(direction)}
        shown = f"{words}, the direction {direction}, and {count} {'picture' if count == 1 else 'pictures'}"
        size = (3, 2) if count == 2 else (2, 3)
        return Case({**given, "images": rng.mixed(count, 2, *size)}, shown=shown)

    for count, layer, direction in ((1, 0, [3.0, 4.0]), (2, 2, [-8.0, 6.0]), (3, 0, [1.0, 0.0])):
        yield take_away(f"a network, its layer {layer}", positive_net(rng), layer, direction, count)
    yield take_away("a network, its layer 2", positive_net(rng), 2, [3e-14, -4e-14], 2)
    net = positive_net(rng)
    with torch.no_grad():
        net[0], net[2] = (nn.Conv2d(*shape, 1, bias=False) for shape in ((2, 3), (3, 2)))
        for layer in (net[0], net[2]):
            layer.weight.copy_(rng.whole(*layer.weight.shape) / 4)
    yield take_away("a network, its layer 0 with three channels", net, 0, [1.0, 2.0, -2.0], 2)
    net = positive_net(rng)
    net[2] = net[0]
    yield take_away("a network that runs its layer 0 twice", net, 0, [3.0, 4.0], 2)
    net = positive_net(rng)
    net[5] = nn.Linear(3, 2)
    yield take_away("a network whose last layer raises an error", net, 0, [3.0, 4.0], 2)
    net = positive_net(rng)
    net[5].register_forward_pre_hook(stop)
    yield take_away("a network whose call is stopped by something that is no Exception", net, 0, [3.0, 4.0], 2)
    net = nn.Sequential(nn.Identity(), positive_net(rng))
    yield take_away("a layer that hands its very input on", net, 0, [3.0, 4.0], 2)
