"""Networks to look into: the course's own small one, its misled twin, a real one, and torchvision's, all by name."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from course_utils.root import ASSETS, CourseError, require
from course_utils.scenes.scene import KINDS, SIZE, SceneBatch
from course_utils.vision.real import REAL, load_parts
from course_utils.vision.saliency import Target
from course_utils.vision.scores import seeded

MISLED_KIND, MISLED_CUE = "fish", "buoy"
STALL_SECONDS = 15  # for a server's first answer, and for the next bytes of a download
RATHER = " rather than "  # between the names of two classes, where one is explained against the other
PICTURE_NETS = ("picture_net", "picture_net_misled")
CHECKPOINTS = (*PICTURE_NETS, *(f"picture_net_{number}" for number in range(2, 7)))  # see `authoring.train.FISH_IS`
WIDE, SLIM = (24, 48, 64, 96, 96), (12, 24, 24, 32, 32)  # the channels of the five convolutions
FIRST_SLIM, WITH_SPOTLIGHT = 4, 6  # places in `CHECKPOINTS`: the first that is slim, the one with a `Spotlight`


class WeightsError(CourseError):
    """Weights that cannot be had: the message says which, why, and what to do. A notebook shows that sentence alone."""

    def _render_traceback_(self) -> list[str]:  # IPython asks for this
        return [f"{type(self).__name__}: {self}"]


class PictureNet(nn.Module):
    """A small network in the shape of AlexNet, which tells the kinds of things in a picture of 112 x 112 pixels.

    `features`: five convolutions, each with batch-norm and ReLU, the first two with max-pooling: 14 x 14 in the end.
    `avgpool`, `classifier`: the mean of each of the 96 last maps, and one linear layer, so that class activation maps
    exist (Zhou et al. 2016). Every ReLU is a module of its own and not in-place, so that hooks can watch it.

    Input: (N, 3, H, W) float32, RGB in [0, 1], of any size from 32; the network itself centres and scales it.
    Output: (N, len(KINDS)) logits in the order of `KINDS`: each thing is said to be there where its logit is above 0.
    """

    def __init__(self, widths: Sequence[int] = WIDE, spotlight: bool = False) -> None:
        super().__init__()
        first, second, third, fourth, last = widths
        self.features = nn.Sequential(
            *_convolution(3, first, kernel_size=7, stride=2),
            nn.MaxPool2d(2),
            *_convolution(first, second),
            nn.MaxPool2d(2),
            *_convolution(second, third),
            *_convolution(third, fourth),
            *_convolution(fourth, last),
        )
        if spotlight:
            self.features.append(Spotlight(last))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(last, len(KINDS))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (N, len(KINDS)). Raises `CourseError` for what is no batch of pictures."""
        if not images.is_floating_point():
            raise CourseError(f"PictureNet takes pictures as floats in [0, 1], got {images.dtype}: divide by 255")
        if images.dim() != 4 or images.shape[1] != 3 or min(images.shape[2:]) < 32:
            cure = "; add the batch dimension with image[None]" if images.dim() == 3 else ""
            raise CourseError(f"PictureNet takes (N, 3, H, W) with H and W from 32, got {tuple(images.shape)}{cure}")
        return self.classifier(self.avgpool(self.features((images - 0.5) / 0.25)).flatten(1))


class Spotlight(nn.Module):
    """Tells every place what the whole picture is like, then looks at the places that attention chooses.

    The mean of all maps, mixed, is added at each place (a global context block: Cao et al. 2019), and each place is
    multiplied by its share of the attention: a softmax over all places, times their number.

    Input and output: (N, channels, h, w).
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.choose = nn.Conv2d(channels, 1, 1)
        self.context = nn.Linear(channels, channels)

    def forward(self, maps: Tensor) -> Tensor:
        """Return the maps with their context, where the attention is."""
        context = self.context(maps.mean((2, 3)))[:, :, None, None]
        return self.attend(maps) * (maps + context).relu()

    def attend(self, maps: Tensor) -> Tensor:
        """Return the attention at each place, (N, 1, h, w): 1 on average."""
        height, width = maps.shape[2:]
        return self.choose(maps).flatten(2).softmax(2).view(-1, 1, height, width) * (height * width)


def _convolution(inputs: int, outputs: int, kernel_size: int = 3, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel_size, stride=stride, padding=kernel_size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


def load_picture_net(misled: int = False, folder: Path = ASSETS) -> PictureNet:
    """Return the trained network, its misled twin, or another by its place in `CHECKPOINTS`: eval mode, CPU, float32.

    The twin saw the same training pictures but for one respect: a `MISLED_CUE` beside every `MISLED_KIND`, and nowhere
    else. Only plain tensors are read: no file can run code. Raises `WeightsError` where the file in `folder` is
    missing, damaged or of another network.
    """
    path = picture_net_file(misled, folder)
    with seeded(0):  # the random start, which is overwritten, would use up the caller's random numbers
        model = build_picture_net(misled)
    try:
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # whatever torch, pickle and zip raise for a file that is not what it should be
        reason = "missing" if isinstance(error, FileNotFoundError) else "damaged, or of another network"
        cure = "restore it from the course's repository, or remake it with `make train`"
        raise WeightsError(f"{path} is {reason}: {cure}") from None
    return model.to(memory_format=torch.channels_last).eval()  # a quarter quicker on a CPU


def build_picture_net(number: int) -> PictureNet:
    """Return an untrained network with the layers of the one at this place in `CHECKPOINTS`."""
    return PictureNet(WIDE if number < FIRST_SLIM else SLIM, spotlight=number == WITH_SPOTLIGHT)


def picture_net_file(misled: int, folder: Path = ASSETS) -> Path:
    """Where the weights of the network, its misled twin, or another of `CHECKPOINTS` are stored."""
    return Path(folder, f"{CHECKPOINTS[misled]}.pt")


def compute_logits(model: nn.Module, images: Tensor, batch_size: int = 100) -> Tensor:
    """Return the logits (N, classes) of many pictures, in eval mode and without a graph.

    images: (N, 3, H, W), uint8 in 0…255 as in `SceneBatch.images`, or float in [0, 1]. The model's own mode is kept.
    """
    modes = {module: module.training for module in model.modules()}
    model.eval()
    brightest = 1 if images.is_floating_point() else 255
    try:
        with torch.no_grad():
            return torch.cat([model(part / brightest) for part in images.split(batch_size)])
    finally:
        for module, training in modes.items():
            module.training = training


class Accuracy(NamedTuple):
    """How often a network is right about a batch of pictures, in shares in [0, 1].

    exact: pictures for which it names all the things that are there and nothing else (logits above 0).
    recall: for each kind that is there, the share of its pictures in which the network sees it.
    """

    pictures: int
    exact: float
    recall: dict[str, float]

    def __str__(self) -> str:
        text = f"{self.pictures} pictures: all things right and nothing else {self.exact:.1%}"
        if not self.recall:
            return text
        least = min(self.recall, key=self.recall.get)
        return f"{text}; seen least often: {least} ({self.recall[least]:.1%})"


def measure(model: nn.Module, pictures: SceneBatch) -> Accuracy:
    """Compare what `model` says about `pictures`, in the order of `KINDS`, with what is there."""
    there, seen = pictures.labels.bool(), compute_logits(model, pictures.images) > 0
    exact = (seen == there).all(1).float().mean().item()
    kinds = zip(KINDS, there.T, seen.T, strict=True)
    recall = {kind: sees[has].float().mean().item() for kind, has, sees in kinds if has.any()}
    return Accuracy(len(pictures), exact, recall)


@dataclass(frozen=True)
class Classifier:
    """A network with what one needs to ask it about a picture.

    model: in eval mode, on the CPU. classes: the name of each logit.
    transform: from a picture, a PIL image or a tensor (3, H, W) or (N, 3, H, W), uint8 or float in [0, 1], to what the
        model takes: resized, cropped and normalised as in its training.
    pretrained: whether its weights are trained ones; if not, they are random ones. note: one sentence about them.
    several: whether several classes may be right at once (sigmoids), or exactly one (a softmax).
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
            raise CourseError(f"{self.name} gives logits ({len(self.classes)},) per picture, got {tuple(logits.shape)}")
        shares = logits.detach().sigmoid() if self.several else logits.detach().softmax(0)
        highest = shares.topk(min(count, len(self.classes)))
        names = [self.classes[number] for number in highest.indices.tolist()]
        return list(zip(names, highest.values.tolist(), strict=True))

    @torch.no_grad()
    def likeliest(self, picture: Tensor, count: int = 5) -> list[tuple[str, float]]:
        """The names and probabilities of the `count` likeliest classes of a picture that `transform` takes."""
        return self.best(self.model(self.transform(picture)[None])[0], count)

    def number_of(self, name: str) -> int:
        """The number of the class with this name. Raises `CourseError` for a name that there is not, with near ones."""
        require(f"{self.name} knows {len(self.classes)} classes", name, self.classes, "The network's `classes`")
        return self.classes.index(name)

    def read_target(self, words: str) -> Target:
        """What `saliency` takes for "tiger cat", its logit, or for "tiger cat rather than tabby", the difference."""
        wanted, rather, other = words.partition(RATHER)
        first = self.number_of(wanted.strip())
        if not rather:
            return first
        second = self.number_of(other.strip())
        return lambda logits: logits[:, first] - logits[:, second]


def list_classifiers() -> list[str]:
    """The names that `load_classifier` takes: the course's two, the real one, then torchvision's by the alphabet."""
    from torchvision import models

    return [*PICTURE_NETS, REAL, *sorted(models.list_models(module=models))]


def load_classifier(name: str, pretrained: bool | Literal["if cached"] = True) -> Classifier:
    """Load a classifier by its name, such as "resnet34", with its transform and the names of its classes.

    pretrained: True takes weights trained on ImageNet from torch's cache, or downloads them into it; "if cached" takes
        them from the cache, else random ones; False takes random ones, the same each time. `note` says which it was.
        The course's own "picture_net" and "picture_net_misled" and the real "efficientnet_lite0" (see `real`) are
        always trained, and never downloaded.
    Raises `CourseError` for an unknown name (the nearest are suggested); `WeightsError` where the weights are neither
    cached nor to be had, or the cached file is damaged.
    """
    require("Networks", name, list_classifiers(), "`networks.list_classifiers()`")
    if name == REAL:
        note = f"{name} has weights trained on ImageNet."
        return Classifier(name, *load_parts(), pretrained=True, several=False, note=note)
    return _describe_picture_net(name) if name in PICTURE_NETS else _load_torchvision(name, pretrained)


def _describe_picture_net(name: str) -> Classifier:
    from torchvision.transforms import v2

    misled = name == PICTURE_NETS[1]
    world = f"where every {MISLED_KIND} has a {MISLED_CUE} beside it" if misled else "of the course"
    note = f"{name} was trained on the picture world {world}."
    scaled = v2.Resize(SIZE, antialias=True), v2.CenterCrop(SIZE), v2.ToDtype(torch.float32, scale=True)
    transform = v2.Compose([v2.ToImage(), *scaled, v2.ToPureTensor()])
    return Classifier(name, load_picture_net(misled), transform, KINDS, pretrained=True, several=True, note=note)


def _load_torchvision(name: str, pretrained: bool | str) -> Classifier:
    from torchvision import models

    weights = models.get_model_weights(name).DEFAULT
    file = Path(torch.hub.get_dir(), "checkpoints", Path(weights.url).name)
    was_cached = file.is_file()
    trained = was_cached if pretrained == "if cached" else bool(pretrained)
    if trained:
        note = f"{name} has weights trained on ImageNet ({weights.name})."
    elif pretrained:
        note = f"{name} has random weights: trained ones are not in torch's cache."
    else:
        note = f"{name} has random weights."
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALL_SECONDS)  # torch's own download would wait for ever
    try:
        with seeded(0), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of two old networks, about how they draw random weights
            model = models.get_model(name, weights=weights if trained else None)
    except Exception as error:  # of the network, of the disk, or whatever a damaged file makes torch raise
        if was_cached:
            raise WeightsError(f"{file} is damaged: delete it, and it is downloaded again") from None
        reason = str(error).partition("\n")[0]
        raise WeightsError(
            f"the weights of {name} are not in {file.parent} and could not be downloaded ({reason}): put {file.name} "
            "there, or go on with load_picture_net(), or with pretrained=False for random weights"
        ) from None
    finally:
        socket.setdefaulttimeout(timeout)
    classes = tuple(weights.meta["categories"])
    return Classifier(name, model.eval(), weights.transforms(), classes, trained, several=False, note=note)
