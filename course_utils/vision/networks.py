"""Networks to look into: the course's own small one, its misled twin, and torchvision's classifiers by name.

    model = load_picture_net()                  trained on the picture world of `course_utils.scenes.scene`
    twin = load_picture_net(misled=True)        trained where a buoy came with every fish, and with nothing else
    network = load_classifier("resnet34", pretrained="if cached")

`python -m course_utils train` trains the first two again and writes them to `course_utils/assets`, the only source that
they have.
"""

from __future__ import annotations

import difflib
import io
import math
import pickle
import socket
import threading
import urllib.request
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from course_utils.root import ASSETS
from course_utils.scenes.scene import (
    KINDS,
    SIZE,
    SceneBatch,
)

MISLED_KIND, MISLED_CUE = "fish", "buoy"

ANSWER_SECONDS = 8  # for a first answer of a server, looking up its name included; a page opens in less
STALL_SECONDS = 15  # for the next bytes of a download that has begun

# What reading a damaged file raises, depending on where the damage is.
_DAMAGE = (OSError, RuntimeError, EOFError, KeyError, ValueError, zipfile.BadZipFile, pickle.UnpicklingError)

_PICTURE_NETS = {"picture_net": False, "picture_net_misled": True}


class WeightsError(RuntimeError):
    """Weights that cannot be had: the message says which, why, and what to do. A notebook shows that sentence alone."""

    def _render_traceback_(self) -> list[str]:  # IPython asks for this
        return [f"{type(self).__name__}: {self}"]


# --- the course's own network -----------------------------------------------------------------------------------------


class PictureNet(nn.Module):
    """A small network in the shape of AlexNet, which tells the kinds of things in a picture of 112 x 112 pixels.

    `features`: five convolutions, each with batch-norm and ReLU, the first two with max-pooling: 14 x 14 in the end.
    `avgpool`, `classifier`: the mean of each of the 96 last maps, and one linear layer, so that class activation maps
    exist (Zhou et al. 2016). Every ReLU is a module of its own and not in-place, so that hooks can watch it.

    Input: (N, 3, H, W) float32, RGB in [0, 1]; the network itself centres and scales it. It was trained at 112 x 112
    and takes any size from 32.
    Output: (N, len(KINDS)) logits in the order of `KINDS`, one yes-or-no answer each: a thing is said to be there
    where its logit is above 0 (its sigmoid above one half). Several things may be.
    """

    kinds = KINDS

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_convolution(3, 24, kernel_size=7, stride=2),
            nn.MaxPool2d(2),
            *_convolution(24, 48),
            nn.MaxPool2d(2),
            *_convolution(48, 64),
            *_convolution(64, 96),
            *_convolution(96, 96),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(96, len(KINDS))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (N, len(KINDS)). Raises TypeError or ValueError for what is no batch of pictures."""
        _check_images(images)
        maps = self.features((images - 0.5) / 0.25)
        return self.classifier(self.avgpool(maps).flatten(1))


def _convolution(inputs: int, outputs: int, kernel_size: int = 3, stride: int = 1) -> list[nn.Module]:
    """A convolution that keeps the size (divided by `stride`), batch-norm in place of its bias, and a ReLU."""
    padding = kernel_size // 2
    convolution = nn.Conv2d(inputs, outputs, kernel_size, stride=stride, padding=padding, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


def _check_images(images: Tensor) -> None:
    if not images.is_floating_point():
        raise TypeError(f"PictureNet takes pictures as floats in [0, 1], got {images.dtype}: divide by 255")
    if images.dim() != 4 or images.shape[1] != 3 or min(images.shape[2:]) < 32:
        cure = "; add the batch dimension with image[None]" if images.dim() == 3 else ""
        raise ValueError(f"PictureNet takes (N, 3, H, W) with H and W from 32, got {tuple(images.shape)}{cure}")


def load_picture_net(misled: bool = False) -> PictureNet:
    """Return the trained network, or its misled twin, in eval mode, on the CPU, as float32.

    The twin saw the same training pictures but for one respect: a `MISLED_CUE` beside every `MISLED_KIND`, and nowhere
    else. Raises `WeightsError` where the file is missing, damaged or of another network.
    """
    with _seeded(0):  # the random start, which is overwritten, would use up the caller's random numbers
        model = PictureNet()
    load_weights(model, _asset(misled))
    return model.eval()


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill `model` with the state dict in the file `path`, whatever floating-point type that is stored in.

    Only plain tensors are read (`weights_only=True`): no file can run code. Raises `WeightsError`, and leaves the model
    as it is, where the file is missing or damaged, or does not fit the model.
    """
    path = Path(path)
    again = "restore it from the course's repository, or remake it with `make train`"
    try:
        stored = io.BytesIO(path.read_bytes())
    except FileNotFoundError:
        raise WeightsError(f"{path} is missing: {again}") from None
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror}") from None
    try:
        damaged = zipfile.ZipFile(stored).testzip()  # compares checksums, which torch.load does not
        stored.seek(0)
        state = None if damaged else torch.load(stored, map_location="cpu", weights_only=True)
    except _DAMAGE:
        damaged = True
    if damaged:
        raise WeightsError(f"{path} is damaged, or is no file of weights: {again}")
    if misfit := _find_misfit(state, model.state_dict()):
        raise WeightsError(f"{path} does not fit {type(model).__name__}: {misfit}; {again}")
    model.load_state_dict(state)


def _find_misfit(state: object, wanted: dict[str, Tensor]) -> str | None:
    """The first respect in which a loaded `state` is not what the model wants, or None."""
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        return "it holds no state dict"
    if missing := [name for name in wanted if name not in state]:
        return f"it has no {missing[0]!r}"
    if foreign := [name for name in state if name not in wanted]:
        return f"it has {foreign[0]!r}, which the model has not"
    for name, tensor in wanted.items():
        if state[name].shape != tensor.shape:
            return f"{name!r} is {tuple(state[name].shape)} instead of {tuple(tensor.shape)}"
        if not state[name].isfinite().all():
            return f"{name!r} has values that are not finite"
    return None


def _asset(misled: bool, folder: Path = ASSETS) -> Path:
    return folder / ("picture_net_misled.pt" if misled else "picture_net.pt")


# --- what a network can do --------------------------------------------------------------------------------------------


def compute_logits(model: nn.Module, images: Tensor, batch_size: int = 100) -> Tensor:
    """Return the logits (N, classes) of many pictures, in eval mode and without a graph.

    images: (N, 3, H, W), uint8 in 0…255 as in `SceneBatch.images`, or float in [0, 1]. The model's own mode is kept.
    """
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            return torch.cat([model(_as_floats(part)) for part in images.split(batch_size)])
    finally:
        for module, training in modes.items():
            module.training = training


def _as_floats(images: Tensor) -> Tensor:
    return images if images.is_floating_point() else images.float() / 255


@dataclass(frozen=True)
class Scores:
    """How often a network is right about a batch of pictures; shares in [0, 1], or nan where nothing could be counted.

    exact: pictures for which it names all the things that are there and nothing else (logits above 0).
    ranked: pictures with the things that are there on top, however sure it is of them.
    recall: for each kind, the share of its pictures in which the network sees it.
    false_alarms: for each kind, the share of the pictures without it in which the network sees it nevertheless.
    """

    pictures: int
    exact: float
    ranked: float
    recall: dict[str, float] = field(repr=False)
    false_alarms: dict[str, float] = field(repr=False)

    def __str__(self) -> str:
        text = (
            f"{self.pictures} pictures: all things right and nothing else {self.exact:.1%}, the right things on top "
            f"{self.ranked:.1%}"
        )
        counted = {kind: share for kind, share in self.recall.items() if not math.isnan(share)}
        if not counted:
            return text
        rarest = min(counted, key=counted.__getitem__)
        return f"{text}; seen least often: {rarest} ({counted[rarest]:.1%})"


def measure(model: nn.Module, pictures: SceneBatch) -> Scores:
    """Compare what `model` says about `pictures`, in the order of `KINDS`, with what is there."""
    there = pictures.labels.bool()
    logits = compute_logits(model, pictures.images)
    seen = logits > 0
    lowest_present = logits.masked_fill(~there, torch.inf).amin(1)
    highest_absent = logits.masked_fill(there, -torch.inf).amax(1)
    return Scores(
        pictures=len(pictures),
        exact=(seen == there).all(1).float().mean().item(),
        ranked=(lowest_present > highest_absent).float().mean().item(),
        recall={kind: seen[there[:, k], k].float().mean().item() for k, kind in enumerate(KINDS)},
        false_alarms={kind: seen[~there[:, k], k].float().mean().item() for k, kind in enumerate(KINDS)},
    )


# --- torchvision's classifiers ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Classifier:
    """A network with what one needs to ask it about a picture.

    model: in eval mode, on the CPU.
    transform: from a picture, a PIL image or a tensor (3, H, W) or (N, 3, H, W), uint8 or float in [0, 1], to what the
        model takes: resized, cropped and normalised as in its training.
    classes: the name of each logit.
    pretrained: whether its weights are trained ones; if not, they are random ones from a seed.
    several: whether several classes may be right at once (sigmoids), or exactly one (a softmax).
    note: one sentence about the weights.
    """

    name: str
    model: nn.Module = field(repr=False)
    transform: Callable[..., Tensor] = field(repr=False)
    classes: tuple[str, ...] = field(repr=False)
    pretrained: bool
    several: bool
    note: str

    def best(self, logits: Tensor, count: int = 3) -> list[tuple[str, float]]:
        """The names and probabilities of the `count` highest of the logits (classes,) of one picture, best first."""
        if logits.shape != (len(self.classes),):
            raise ValueError(f"{self.name} gives logits ({len(self.classes)},) per picture, got {tuple(logits.shape)}")
        shares = logits.detach().sigmoid() if self.several else logits.detach().softmax(0)
        top = shares.topk(min(count, len(self.classes)))
        return [(self.classes[k], share) for k, share in zip(top.indices.tolist(), top.values.tolist(), strict=True)]


def list_classifiers() -> list[str]:
    """The names that `load_classifier` takes: the course's two networks, then torchvision's in alphabetical order."""
    from torchvision import models

    return [*_PICTURE_NETS, *sorted(models.list_models(module=models))]


def load_classifier(name: str, pretrained: bool | Literal["if cached"] = True, seed: int = 0) -> Classifier:
    """Load a classifier by its name, such as "resnet34", with its transform and the names of its classes.

    pretrained: True takes weights trained on ImageNet from torch's cache, or downloads them into it; "if cached" takes
        them from the cache, else random ones; False takes random ones. `note` says which it was.
        The course's own "picture_net" and "picture_net_misled" are always trained.
    seed: of random weights, which are the same each time.

    Raises ValueError for an unknown name (the nearest are suggested) or another value of `pretrained`; `WeightsError`
    where the weights are neither cached nor to be had within seconds, or the cached file is damaged.
    """
    known = list_classifiers()
    if name not in known:
        near = difflib.get_close_matches(str(name).strip().lower(), known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "networks.list_classifiers() lists all of them"
        raise ValueError(f"there is no network {name!r}; {hint}")
    if pretrained not in (True, False, "if cached"):
        raise ValueError(f"pretrained is True, False or 'if cached', got {pretrained!r}")
    if name in _PICTURE_NETS:
        return _describe_picture_net(name)
    return _load_torchvision(name, pretrained, seed)


def _describe_picture_net(name: str) -> Classifier:
    from torchvision.transforms import v2

    misled = _PICTURE_NETS[name]
    world = f"where every {MISLED_KIND} has a {MISLED_CUE} beside it" if misled else "of the course"
    return Classifier(
        name=name,
        model=load_picture_net(misled),
        transform=v2.Compose(
            [
                v2.ToImage(),
                v2.Resize(SIZE, antialias=True),
                v2.CenterCrop(SIZE),
                v2.ToDtype(torch.float32, scale=True),
                v2.ToPureTensor(),
            ]
        ),
        classes=KINDS,
        pretrained=True,
        several=True,
        note=f"{name} was trained on the picture world {world}.",
    )


def _load_torchvision(name: str, pretrained: bool | str, seed: int) -> Classifier:
    from torchvision import models

    versions = list(models.get_model_weights(name))
    default = models.get_model_weights(name).DEFAULT
    weights = default
    if pretrained:
        # An older version that is here is better than a newer one that is not.
        cached = [each for each in [default, *versions] if _cached_file(each).is_file()]
        weights = cached[0] if cached else default if pretrained is True else None
        if pretrained is True and not cached:
            _check_server(name, default.url)
    if pretrained and weights is not None:
        model, note = _build_pretrained(name, weights), f"{name} has weights trained on ImageNet ({weights.name})."
    else:
        with _seeded(seed), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of two old networks, about how they draw random weights
            model = models.get_model(name, weights=None)
        reason = "" if pretrained is False else ": trained ones are not in torch's cache"
        note = f"{name} has random weights{reason}."
    described = weights or default
    return Classifier(
        name=name,
        model=model.eval(),
        transform=described.transforms(),
        classes=tuple(described.meta["categories"]),
        pretrained=bool(pretrained) and weights is not None,
        several=False,
        note=note,
    )


def _cached_file(weights: object) -> Path:
    """Where torch keeps the file of these weights once it was downloaded."""
    return Path(torch.hub.get_dir(), "checkpoints", Path(weights.url).name)


def _build_pretrained(name: str, weights: object) -> nn.Module:
    from torchvision import models

    path = _cached_file(weights)
    was_cached = path.is_file()
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALL_SECONDS)  # torch's own download would wait for ever
    try:
        return models.get_model(name, weights=weights)
    except OSError as error:
        raise WeightsError(_no_download(name, weights.url, str(error))) from None
    except _DAMAGE:
        if was_cached:
            raise WeightsError(f"{path} is damaged: delete it, and it is downloaded again") from None
        raise WeightsError(_no_download(name, weights.url, "what came is not the file it should be")) from None
    finally:
        socket.setdefaulttimeout(before)


def _check_server(name: str, url: str) -> None:
    """Raise `WeightsError` unless the server answers soon.

    A timeout of a socket does not cover looking up a name, which may take minutes where a firewall swallows all: hence
    a thread that is left behind.
    """
    reason = [f"no answer within {ANSWER_SECONDS} s"]

    def ask() -> None:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=ANSWER_SECONDS):
                reason.clear()
        except (OSError, ValueError) as error:  # HTTP errors and refused connections are OSErrors
            reason[:] = [str(getattr(error, "reason", error))]

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(ANSWER_SECONDS)
    if reason:
        raise WeightsError(_no_download(name, url, reason[0]))


def _no_download(name: str, url: str, reason: str) -> str:
    folder = Path(torch.hub.get_dir(), "checkpoints")
    return (
        f"the weights of {name} are not in {folder} and could not be downloaded ({reason}): put {Path(url).name} "
        "there, or go on with load_picture_net(), or with pretrained=False for random weights"
    )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Torch's random state starts from `seed` in the block and is as before after it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
