"""Networks, pictures and measures that the tests of saliency maps share: float64, seeded, alive on both sides of 0."""

import torch
import torch.nn.functional as F
from torch import nn
from torchvision import models


class Small(nn.Module):
    """Two convolutions, global average pooling, a linear head: all that the methods need, and CAM exists."""

    def __init__(self, change=lambda logits: logits):
        super().__init__()
        self.first, self.bn, self.second = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3)
        self.head, self.change, self.runs = nn.Linear(6, 5), change, 0

    def maps(self, x):
        self.runs += 1
        return self.second(F.relu(self.bn(self.first(x))))

    def forward(self, x):
        return self.change(self.head(F.relu(self.maps(x)).mean((2, 3))))


class Deep(nn.Sequential):
    """A head with a hidden layer, so that the gradients differ from place to place: Grad-CAM without CAM."""

    def __init__(self):
        super().__init__()
        relus = [nn.ReLU(inplace=True) for _ in range(3)]
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), relus[0], nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), relus[1])
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(6 * 9, 8), relus[2], nn.Linear(8, 5))


class PreActivation(nn.Module):
    """norm, ReLU in place, convolution, and the sum with what came in, in place: the stem's output is used twice."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.conv = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4 * 100, 5)

    def forward(self, x):
        x = self.stem(x)
        out = self.conv(F.relu(self.norm(x), inplace=True))
        out += x
        return self.head(F.relu(out).flatten(1))


class InPlaceAfterwards(PreActivation):
    """Operations in place follow the layer `stem`, on all of it and on views, and the layer `norm`."""

    def forward(self, x):
        x = self.stem(x)
        x.mul_(1.5).add_(0.1)
        x.view(len(x), -1)[:, ::3].mul_(-1)
        x[:, 1:3].relu_()
        return self.head(torch.relu_(self.norm(x)).flatten(1))


def of_torchvision(name, classes=7):
    return lambda: getattr(models, name)(num_classes=classes)


def seeded(model):
    """`model` in float64 and eval mode, with weights and statistics that leave activations alive on both sides of 0."""
    rng = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=rng)
            module.running_var.uniform_(0.5, 2, generator=rng)
        elif isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.normal_(module.weight, 0, (2 / module.weight[0].numel()) ** 0.5, generator=rng)
            if module.bias is not None:
                nn.init.normal_(module.bias, 0, 0.1, generator=rng)
    return model.double().eval()


def noise(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def images(count=2, size=12):
    return noise(count, 3, size, size)


def relative(got, wanted, scale=None):
    """The largest difference, relative to the largest value of `scale`, which is `wanted` if it is not given."""
    assert got.shape == wanted.shape
    largest = (wanted if scale is None else scale).abs().max()
    assert largest > 0
    return ((got - wanted).abs().max() / largest).item()
