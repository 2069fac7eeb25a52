"""The cases of lesson 07: CAM and Grad-CAM."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.engine import exercise


def two_channel_picture(rng: Numbers) -> Tensor:
    """(1, 2, 2, 3): places where both channels, one of them, or the other one are above 0."""
    signs = torch.tensor([[[1.0, -1.0, 1.0], [1.0, 1.0, -1.0]], [[-1.0, 1.0, 1.0], [1.0, -1.0, 1.0]]])
    return (rng.whole(2, 2, 3) / 4 * signs)[None]


def scaling_layer(rng: Numbers, bias: tuple[float, float] = (0.0, 0.0), stride: int = 1) -> nn.Conv2d:
    """A 1 x 1 convolution that multiplies each of two channels by a number of its own, above 0, and adds another."""
    layer = nn.Conv2d(2, 2, 1, stride)
    with torch.no_grad():
        layer.weight.copy_(torch.diag(rng.whole(2, high=5) / 4)[:, :, None, None])
        layer.bias.copy_(torch.tensor(bias))
    return layer


def for_and_against(rng: Numbers, inputs: int) -> nn.Linear:
    """Three classes: the first half of the inputs speaks for 0 and 2 and against 1, the second half the reverse."""
    layer = nn.Linear(inputs, 3)
    signs = torch.ones(3, inputs)
    signs[::2, inputs // 2 :] = signs[1, : inputs // 2] = -1
    with torch.no_grad():
        layer.weight.copy_(rng.whole(3, inputs) / 4 * signs)
        layer.bias.zero_()
    return layer


def averaging_net(rng: Numbers) -> tuple[nn.Sequential, nn.Module]:
    """A net with the head that CAM needs, means and one linear layer, and the layer to explain: a ReLU inside.

    Its first layer halves the height and the width of the picture.
    """
    inner = nn.Sequential(scaling_layer(rng), nn.ReLU(), scaling_layer(rng, (1.0, 0.1)))
    head = nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), for_and_against(rng, 2)
    return nn.Sequential(scaling_layer(rng, stride=2), inner, *head), inner[1]


def flattening_net(rng: Numbers) -> tuple[nn.Sequential, nn.Module]:
    """A net, in eval mode, with a weight for each place, and the layer to explain: an in-place ReLU comes after it."""
    inner = nn.Sequential(scaling_layer(rng), nn.ReLU(inplace=True), scaling_layer(rng, (1.0, 0.1)))
    net = nn.Sequential(scaling_layer(rng), inner, nn.Flatten(), for_and_against(rng, 12))
    return net.eval(), inner[0]


@exercise
def class_activation_map(rng):
    target = rng.choice([2, 0])  # with two channels it is 0 or 1, so that the weight has a column of this number
    for positive, channels, shape in ((0, 2, (2, 2)), (1, 3, (1, 3))):
        target = (target + 1) % 3
        features = rng.whole(channels, *shape) / 4
        features[positive, 0, 0] = 0  # so that one place has a negative value, whatever the other numbers are
        features[-1, 0, 1] *= -1
        weight = -rng.whole(3, channels) / 3
        weight[:, positive] *= -1
        weight[target - 1] = weight[target]
        weight[target - 1, positive] += 0.5  # a class with a higher logit
        yield Case({"features": features, "weight": weight.requires_grad_(), "target": target})


@exercise
def channel_weights(rng):
    yield Case({"gradient": rng.mixed(1, 2, 2, 2) / 4})
    gradient = rng.mixed(2, 3, 3, 4) / 4
    gradient[0, 1, 0, 2] = gradient[1, 2, 1] = 0  # a place without a gradient counts in the mean as well
    yield Case({"gradient": gradient})
    gradient = (rng.mixed(2, 3, 5, 2) / 4).transpose(2, 3)
    yield Case({"gradient": gradient}, shown="a gradient (2, 3, 2, 5) whose rows are not in one piece of memory")


@exercise
def grad_cam_with_hooks(rng):
    target = rng.integer(0, 2)
    for make, size, scale, shown in (
        (averaging_net, (2, 3), 2, "a small net with average pooling and a picture of 4 x 6"),
        (flattening_net, (1, 6), 1, "a layer that an in-place ReLU follows, a picture of one row"),
    ):
        (model, layer), target = make(rng), (target + 1) % 3
        image = F.interpolate(two_channel_picture(rng).reshape(1, 2, *size), scale_factor=scale)
        with torch.no_grad():  # the logit of `target` becomes -1, that of the next class 1, of the other 0
            model[-1].bias -= model(image)[0]
            model[-1].bias[target] -= 1
            model[-1].bias[(target + 1) % 3] += 1
        yield Case(
            {"model": model, "layer": layer, "image": image, "target": target},
            lambda _, inner=model[1]: {
                "`inplace` of the ReLU": inner[1].inplace,
                "the names in the layer": [sorted(vars(each)) for each in inner],
            },
            shown=f"{shown}, target = {target}",
        )


@exercise
def to_heatmap(rng):
    yield Case({"raw": rng.mixed(1, 2, 2) / 4, "size": (4, 4)})
    raw = rng.mixed(5, 3, 4) / 4
    raw[0, 1, 2] = 4  # the middle of this cell falls between the pixels, so that the enlarged map does not reach 4
    raw[1] = raw[1].abs() + 4  # another scale, and nothing near 0
    raw[2] = -raw[2].abs()
    raw[3] /= 2**22  # about a millionth: not to be taken for 0
    raw[4] /= 2**34
    shown = "five maps of 3 x 4 cells, to become 8 x 9: the third is below 0 everywhere, the last two have tiny values"
    yield Case({"raw": raw, "size": (8, 9)}, shown=shown)
    raw = torch.zeros(8, 1, 2)
    raw[:, 0, rng.integer(0, 1)] = torch.tensor([41.0, 47, 55, 61, 82, 83, 94, 97]) / 4
    raw[1] = rng.integer(1, 9) / 4

    def greatest(heat):
        return {"the greatest values that are exactly 1": [bool((each == 1).any()) for each in heat]}

    shown = "eight maps of two cells, one of them 0, in the second map both the same"
    yield Case({"raw": raw, "size": (1, 4)}, greatest, shown=shown)
    raw = rng.quarters(3, 5, 6).abs() * 2.0**-110
    raw[0] = 3.3  # what the enlarging makes of it is not quite the same everywhere, because it is rounded
    raw[2], raw[2, rng.integer(0, 4), 3] = -rng.whole(5, 6, low=5), 4
    shown = "three maps of 5 x 6 cells, to become 32 x 48: 3.3 everywhere, values below 1e-32, one value above 0"
    yield Case({"raw": raw, "size": (32, 48)}, shown=shown)


def _maps_that_point(rng: Numbers, hits: list[bool], size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Maps with one hottest pixel, not in the first row, and a warm one beside it; its mask holds just that and the
    first pixel, or all others: who looks at another pixel gets the opposite. `pointing_game` changes a few of them.
    """
    heatmaps = -rng.whole(len(hits), *size) / 4
    masks = torch.tensor(hits).logical_not()[:, None, None].repeat(1, *size)
    masks[:, 0, 0] = True
    for heat, mask, hit in zip(heatmaps, masks, hits, strict=True):
        heat[0] *= -1 / 16
        heat[1:, 0] -= 5  # so that neither the sums of the columns nor the greatest size lead to the first pixel
        row, column = hottest = rng.integer(1, size[0] - 1), rng.integer(0, size[1] - 1)
        heat[hottest], mask[hottest] = rng.integer(5, 7) / 8, hit
        heat[row, column - 1] = heat[hottest] * 0.75
        heat[0, column] /= 16  # so that the first row leads to another column
    return heatmaps, masks


@exercise
def pointing_game(rng):
    hits = [True, False, True, True, True, False, True, True, False, True, rng.choice([True, False])]
    heatmaps, masks = _maps_that_point(rng, hits, (3, 4))
    heatmaps[:5] *= 2.0**-110
    heatmaps[5] *= 2
    masks[3], masks[6, 0, 0] = True, False  # not every other pixel leads to the opposite, and the first not always
    shown = f"eleven maps, {sum(hits)} of which point at their masks; five of the maps are faint"
    yield Case({"heatmaps": heatmaps, "masks": masks}, shown=shown)
    heatmaps, masks = _maps_that_point(rng, [True] * 6 + [False, True, True], (5, 2))
    heatmaps[:3] = 0
    heatmaps[3:6] -= 5
    heatmaps[7] *= 2
    masks[5] = False
    shown = (
        "nine maps: the first three are all 0, the next three are below 0 everywhere, one of them with an empty mask"
    )
    yield Case({"heatmaps": heatmaps, "masks": masks}, shown=shown)
    hottest = float(rng.integer(16, 19))
    heatmap, mask = torch.full((1, 2, 4), 0.875 * hottest), torch.zeros(1, 2, 4, dtype=torch.bool)
    heatmap[0, 0, 3], heatmap[0, 1, 2] = hottest, -hottest - 4
    mask[0, 0, 3] = mask[0, 1, 1] = True  # pixel number 3 in rows of 4, and in rows of 2
    heatmap[0, 1, 1] = -hottest  # so that the mask is cooler than what lies beside it
    other = [0, 3, 2, 1]  # of a second map, which points beside the first mask
    yield Case({"heatmaps": torch.cat((heatmap, heatmap[..., other])), "masks": torch.cat((mask, mask[..., other]))})
    heatmap, mask = rng.whole(1, 3, 3, high=3), torch.zeros(1, 3, 3, dtype=torch.bool)
    heatmap[0, 0, 0], heatmap[0, 1, 1:], heatmap[0, 2, 1] = 9, 8, 7  # neither in the hottest row nor in that column
    mask[0, 0, 0] = True
    yield Case({"heatmaps": heatmap, "masks": mask})


def _turning_net() -> nn.Sequential:
    """Three logits for a picture of three numbers: each is half the number after it, the last one half the first."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(3, 3, bias=False))
    with torch.no_grad():
        net[1].weight.copy_(torch.eye(3).roll(1, 1) / 2)
    return net


def _logit_pictures(rng: Numbers, levels: list[float], target: int, step: int) -> Tensor:
    """(N, 3, 1, 1): pictures in which `_turning_net` finds these logits of `target`, all times one number above 0.

    The other classes are ahead of `target` in one picture of `step`, and behind it in the others.
    """
    logits = rng.quarters(len(levels), 3) - 7
    logits[::step] += 14
    logits[:, target] = torch.tensor(levels) * rng.integer(1, 4) / 4
    return 2 * logits.roll(1, 1)[:, :, None, None]


@exercise
def lost_answers(rng):
    # Those that stay rise from 3 to 13, and so they do where they are divided by 4.
    model, target, stay = _turning_net(), rng.integer(0, 2), rng.integer(2, 5)
    for before, after, shown in (
        (
            [3, -1, 2.0**-100, 3, 0, 3, -2, -0.5, 0.5, -1, -1] + [3] * stay,
            [0, 3, -0.25, 0.5, 0.25, 2.0**-100, 0.5, 3, 0, -2, -2] + [13] * stay,
            f"{stay + 11} pictures: {stay + 5} times yes, 3 of them lost (in two the logit becomes 0), 4 gained, 2 "
            "without a yes",
        ),
        ([-1, 2, 0, 0], [-2, 0, -0.5, 0], "4 pictures: 1 yes, which is lost (its logit becomes 0)"),
        ([-1, 0], [-2, -1], "2 pictures without a yes"),
    ):
        target = (target + 1) % 3
        images, edited = _logit_pictures(rng, before, target, 4), _logit_pictures(rng, after, target, 2)
        given = {"model": model, "images": images, "edited": edited, "target": target}
        yield Case(given, shown=f"{shown}, target = {target}")


@exercise
def guided_grad_cam_product(rng):
    yield Case({"guided": rng.mixed(1, 3, 4, 4) / 4, "raw": rng.mixed(1, 2, 2) / 4})
    shown = "three pictures of 6 x 7 pixels, with maps of 3 x 4 cells"
    yield Case({"guided": rng.mixed(3, 3, 6, 7) / 3, "raw": rng.mixed(3, 3, 4) / 3}, shown=shown)
