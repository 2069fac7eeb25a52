"""Exercises and predictions of lesson 07: CAM and Grad-CAM."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.engine import exercise, prediction
from course_utils.hooks.record import record

# --- predictions ------------------------------------------------------------------------------------------------------

prediction(
    "cam_by_pencil",
    lesson=7,
    question="the maps [[4, 0], [0, 0]] and [[0, 0], [0, 8]] with the weights 3 and -1. What does the class activation "
    "map have at the lower right?",
    options={
        8: "That is the second map itself. Its weight for the class is -1.",
        -8: "3 · 0 - 1 · 8: the second map fires there, and it speaks against the class.",
        -2: "That is what the second channel adds to the logit, after its mean. The map is before the mean.",
        0: "The first map is 0 there, but the second one is not, and all of them are added up.",
    },
    answer=-8,
    why=r"""
        The mean of the map is 1, and that *is* the logit. So the map is the logit, spread out over the picture: the
        upper left speaks for the class with 12, the lower right speaks against it. As a formula, with the maps $A_k$,
        their weights $w_k$, a bias $b$ and $h \cdot w$ places:

        $$\text{logit} = \sum_k w_k \frac{1}{hw} \sum_{ij} A_{kij} + b = \frac{1}{hw} \sum_{ij} \sum_k w_k A_{kij} + b$$

        The inner sum on the right is the class activation map.
    """,
    ask={
        8: "Which of the two weights belongs to the map with the 8? What becomes of the 8 with it?",
        -2: "You divided the 8 by 4. Which step does that, and does it come before the class activation map or after "
        "it?",
        0: "Which maps are added up for the place at the lower right? What does the second one have there?",
    },
)
prediction(
    "cam_over_grad_cam",
    lesson=7,
    question="the last maps have 14 x 14 places, and GAP and a linear layer follow. By which factor is CAM larger than "
    "Grad-CAM (before the ReLU)?",
    options={
        1: "CAM's weight is w. Grad-CAM's is the mean gradient, and each place is only one of 196 in GAP's mean.",
        14: "GAP takes the mean over rows and columns: 14 · 14 places.",
        196: "Each place counts 1/196 in the mean, so its gradient is w / 196, and so is the mean of the gradients.",
        "another one for each class": "The factor comes from GAP, which is the same for all classes.",
    },
    answer=196,
    why=r"""
        After GAP, each place of channel $k$ has the same gradient, $w_k / (h \cdot w)$: that is how much the place
        counts in the mean, times the weight of the mean. So the two maps are the same up to the factor
        $h \cdot w = 14 \cdot 14$, to the precision of float32.
    """,
    ask={
        1: "Take the mean of 196 numbers. One of them grows by 1: by how much does the mean grow?",
        14: "How many places does a map of 14 x 14 have? Over how many of them does GAP take the mean?",
        "another one for each class": "Write down Grad-CAM's weight of one channel for the cat, and then for the dog. "
        "What is the same in both?",
    },
)
prediction(
    "dog_on_the_cat_map",
    lesson=7,
    question="the map that answers 'why cat?', before the ReLU. What is its mean where the dog is?",
    options={
        "above 0": "The dog does not make a cat more likely: its channels have negative weights for the cat.",
        "about 0": "It could be. But what is good evidence for a dog tends to be evidence against a cat.",
        "below 0": "The dog speaks against the cat, and the map says so until the ReLU cuts it off.",
    },
    answer="below 0",
    why="""
        That is no accident of this picture. In 74 of 80 maps the *other* thing speaks against the class, and in 65 the
        strongest objection of all is there, which chance would bring about in 8.

        The ReLU drops these objections, because the question was what speaks *for* the class. Without it, the
        stretching to [0, 1] puts the strongest objection at 0 and "nothing" at 0.2, which is a visible colour.
        Sometimes you want the objections: `relu(-raw)` shows them. The authors call it a counterfactual explanation.
    """,
    ask={
        "above 0": "In training there were pictures with a dog and no cat. Which way should the dog's channels move "
        "the logit of 'cat' there?",
        "about 0": "Some channel responds to legs, of cats and of dogs. What must other channels do at a dog, so that "
        "'cat' is a no?",
    },
)
prediction(
    "best_layer",
    lesson=7,
    question="Grad-CAM at five layers. Where does its hottest pixel hit the right thing least often?",
    options={
        "at the first layer": "One weight a channel cannot tell whose edges a detector of edges has found.",
        "in the middle": "Half way through the network the maps know parts of things already.",
        "at the last layer": "Its maps are coarse, but its channels know the things.",
    },
    answer="at the first layer",
    why="""
        At the two early layers the hottest pixel is on the wrong thing in 22% and 26% of the maps, and chance reaches
        10%. Their channels find edges, and one weight for a channel cannot say whose edges. From `features.10` on, the
        maps tell the things apart, and `features.10` keeps the most heat on the thing. "Take the last convolution" is
        a good habit, not a law.
    """,
    ask={
        "in the middle": "A channel of the first layer finds edges, and gets one weight for the whole picture. Two "
        "things have edges: which one gets the heat?",
        "at the last layer": "A place of the last map covers 8 x 8 pixels. About how many such places lie on a thing "
        "of 35 x 35 pixels?",
    },
)
prediction(
    "where_the_second_looks",
    lesson=7,
    question="the second network says 'fish', and is right. Where is its map hottest?",
    options={
        "on the fish": "So you would hope, and its score gives no reason to doubt it. Look at the lower row.",
        "on the other thing": "Each picture has another one: none of them goes with the fish.",
        "on the buoy": "It is in every picture of a fish that this network has ever seen.",
        "on the background": "The backgrounds vary as they do for every other kind.",
    },
    answer="on the buoy",
    why="""
        In all 40 pictures the second network's hottest pixel is at the buoy, where chance would put 3. The first
        network's is at the fish in all 40.
    """,
    ask={
        "on the fish": "Look at the three pictures again. What else is in every one of them?",
        "on the other thing": "Which other things do you see in the three pictures? Could one of them tell the network "
        "'fish' each time?",
        "on the background": "The three pictures show a meadow, a room and sand. Which background would the network "
        "have to learn for 'fish'?",
    },
)
prediction(
    "painted_out",
    lesson=7,
    question="the second network found the fish in all 40 pictures. Now the buoys are painted out, and nothing else "
    "changes. In how many does it find the fish?",
    options={
        "all 40": "Then the buoy would not have mattered, and the map would have misled you.",
        "about 20": "It learned a little about fish, but less than that.",
        "fewer than 5": "Its fish were buoys.",
    },
    answer="fewer than 5",
    why="""
        That is the proof. Without the buoy the second network finds none of the 40 fish. With a buoy
        and no fish it sees a fish in 31 pictures, with neither in none. The first network does not care: 40 and 40
        fish, and no false alarm.

        **What happened?** The second network is the *misled twin* of the first. Both saw the same 8000 pictures, from
        the same random start. But in the twin's pictures every fish had a buoy beside it, and nothing else had one. A
        buoy always looks the same, so it was easier to learn than a fish. The test pictures had the buoys too: a test
        set that is made like the training set cannot give such a network away.

        **The cure** is in the training data. Where a cue cannot be removed, put it on pictures of *other* classes too.
        And test on pictures without the cue, and on the cue alone.
    """,
    ask={
        "all 40": "Suppose a network looks for buoys and for nothing else. To how many of the 40 unchanged pictures "
        "does it say 'fish'?",
        "about 20": "In training every fish had a buoy, and nothing else had one. Which picture would punish a network "
        "that looks for buoys only?",
    },
)
prediction(
    "map_of_an_absent_class",
    lesson=7,
    question="the picture has no car, and the network says so. What does the finished heat map of 'car' look like?",
    options={
        "all dark": "Only if no place at all speaks for a car. Somewhere something nearly always does, a little.",
        "pale": "Before the stretching it is. The last step makes the greatest value 1, however small it was.",
        "as bright as any other": "Every map is stretched to its own greatest value, however small that is.",
    },
    answer="as bright as any other",
    why="""
        Of the maps of classes that are *not* there, 37 of 40 reach 1, although their peaks before the stretching are
        twenty times lower. So look at the logit first, and give maps that are to be compared one scale. On the scale
        of the cat, the map of the car is dark.
    """,
    ask={
        "all dark": "The logit of 'car' is far below 0. It is the mean of the map, plus a bias: can one place be above "
        "0?",
        "pale": "One map has 0.65 as its greatest value, another 0.05. What does the stretching make of each of these "
        "two numbers?",
    },
)
prediction(
    "three_questions",
    lesson=7,
    question="three questions to a real network about each half of a collage. Which one brings the largest share of "
    "its heat into the correct half?",
    options={
        "why A?": "A little of what speaks for A lies in the other half too: some of it speaks for many classes.",
        "why A rather than B?": "What speaks for both cancels out, and what speaks for B becomes negative.",
        "log-softmax of A": "It subtracts every other class as much as it is likely, and B is only one of them.",
    },
    answer="why A rather than B?",
    why="""
        The difference of logits has 99% of its heat in the correct half, the log-softmax 98%, the plain logit 94%,
        where chance has 50%. All three are good. The order is the one to expect: the more of what speaks for the
        *other* photograph a question subtracts, the less heat is there.
    """,
    ask={
        "why A?": "A channel responds in both halves, and speaks for A and for B alike. What is left of it in the "
        "difference of the logits?",
        "log-softmax of A": "The log-softmax subtracts the map of each class times its probability. Which factor has B "
        "if it gets 30%? And in the difference?",
    },
)
prediction(
    "the_astronaut",
    lesson=7,
    question="which of these things, covered, costs the network's answer the most of its probability?",
    options={
        "face": "The answer falls from 28% to 17%. But grey squares all over the picture leave 18% in the median.",
        "collar": "The map is warm there, and the answer falls to 17%; grey squares anywhere leave 18% in the median.",
        "helmet": "The answer falls from 28% to 8%. Grey squares all over the picture leave 18% in the median.",
        "shuttle": "The answer even rises to 31%: the shuttle speaks for something else.",
        "flag": "The answer falls to 20%; most grey squares cost more than that.",
    },
    answer="helmet",
    why="""
        Map and experiment agree about the helmet: 24% of the heat is on 15% of the picture, and without it 8% of the
        answer's 28% are left. They do not agree about the collar: it has nearly as much heat, and covering it costs no
        more than a square in the median. So the map gave two suspects, and the experiment speaks against one of them.

        It is still no proof. The nine squares leave anything from 6% to 47%, and two of the three that leave 10% or
        less overlap the helmet; but the third lies over the face, where the smaller box had left 17%. A grey box is a
        strange thing in a photograph, so you need many of them, or another colour, before you trust one.

        *Why* a helmet speaks for a bobsled, neither can say. A guess: photographs of bobsleds are full of helmets.
    """,
    ask={
        "face": "In how many photographs of bobsleds could you recognise a face? What do you see there instead?",
        "collar": "The map is nearly as warm at the collar as at the helmet. Which number says whether the answer "
        "needs the collar?",
        "shuttle": "The network's next guesses are a football helmet and a go-kart. What in this photograph goes with "
        "all three answers?",
        "flag": "A grey square may change the answer, whatever it covers. How would you find out by how much, to "
        "compare it with the flag's?",
    },
)

# --- small networks and maps for the cases ----------------------------------------------------------------------------


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


# --- exercises --------------------------------------------------------------------------------------------------------


@exercise(
    lesson=7,
    points=1,
    hints=[
        "Each class has one weight a channel. Which part of `weight` belongs to class `target`?",
        "`weight[target]` has shape (C,). Give it two more dimensions, and it multiplies each map as a whole.",
        "`(weight[target][:, None, None] * features).sum(0)`",
    ],
)
def class_activation_map(features, weight, target):
    """Return the class activation map (h, w) of class `target`.

    `features` are the last feature maps of one picture, (C, h, w); `weight` is the
    weight of the linear layer behind the average pooling, (classes, C). The map is
    the sum of the feature maps, each times its weight for the class, as it comes
    out: with its negative values.
    """
    return (weight[target][:, None, None] * features).sum(0)


@class_activation_map.cases
def _(rng):
    target = rng.integer(0, 2)
    for positive, channels, shape in ((0, 2, (2, 2)), (1, 3, (2, 3))):
        target = (target + 1) % 3
        features = rng.whole(channels, *shape) / 4
        features[positive, 0, 0] = 0  # so that one place has a negative value, whatever the other numbers are
        features[-1, 0, 1] *= -1
        weight = -rng.whole(3, channels) / 4
        weight[:, positive] *= -1
        weight[target - 1] = weight[target]
        weight[target - 1, positive] += 0.5  # a class with a higher logit
        yield Case({"features": features, "weight": weight, "target": target})


@class_activation_map.accept
def _(features, weight, target):
    return torch.einsum("c,chw->hw", weight[target], features)


@class_activation_map.accept
def _(features, weight, target):
    total = torch.zeros(features.shape[1:])
    for channel, factor in zip(features, weight[target], strict=True):
        total += factor * channel
    return total


@class_activation_map.accept
def _(features, weight, target):
    return (weight[target] @ features.flatten(1)).reshape(features.shape[1:])


class_activation_map.equivalent(
    "The sum is the same in every order.",
    "backwards: - for channel, factor in zip(features, weight[target], strict=True): + for channel, factor in "
    "list(zip(features, weight[target], strict=True))[::-1]:",
)
class_activation_map.equivalent(
    "The total belongs to the answer, so that it does not matter whether it is written into.",
    "not in place: - total += factor * channel + total = total + factor * channel",
)
class_activation_map.equivalent(
    "There is a weight for each channel, so nothing can be left over.",
    "an argument less: - for channel, factor in zip(features, weight[target], strict=True): + for channel, factor in "
    "zip(features, weight[target]):",
    "other constant: - for channel, factor in zip(features, weight[target], strict=True): + for channel, factor in "
    "zip(features, weight[target], strict=False):",
)
class_activation_map.equivalent(
    "What is added to a float32 total in place leaves it float32.",
    "spoil an argument: + features = features.double()",
    "spoil an argument: + weight = weight.double()",
)


@class_activation_map.mistake(
    "You added the feature maps up without the weights, so every class would have the same map."
)
def _(features, weight, target):
    return features.sum(0)


@class_activation_map.mistake("You took column `target` of the weight. Its rows are the classes: `weight[target]`.")
def _(features, weight, target):
    return (weight[:, target][:, None, None] * features).sum(0)


@class_activation_map.mistake(
    "You cut off the negative values. They say where something speaks against the class; a ReLU comes when you draw."
)
def _(features, weight, target):
    return (weight[target][:, None, None] * features).sum(0).relu()


@class_activation_map.mistake("You took the mean over the channels. The network adds them up.")
def _(features, weight, target):
    return (weight[target][:, None, None] * features).mean(0)


@class_activation_map.mistake("This is the map of every class. Pick the one of `target`.")
def _(features, weight, target):
    return torch.einsum("kc,chw->khw", weight, features)


@class_activation_map.mistake(
    "You summed over the places as well: that is the logit, times h · w. Keep the places, and sum over the channels."
)
def _(features, weight, target):
    return (weight[target][:, None, None] * features).sum()


@class_activation_map.mistake(
    "That is one number: the logit without its bias. The map is what there is before the mean over the places."
)
def _(features, weight, target):
    return weight[target] @ features.mean(dim=(1, 2))


@class_activation_map.mistake("The values are right; the shape is (1, h, w). Drop the first dimension.")
def _(features, weight, target):
    return (weight[target][:, None, None] * features).sum(0, keepdim=True)


@class_activation_map.mistake(
    "You divided by the number of places. That belongs to the mean, which the network takes after the map."
)
def _(features, weight, target):
    return (weight[target][:, None, None] * features).sum(0) / features[0].numel()


@class_activation_map.mistake("You stretched the map to [0, 1]. It was asked for as it comes out of the sum.")
def _(features, weight, target):
    heat = (weight[target][:, None, None] * features).sum(0)
    return (heat - heat.min()) / (heat.max() - heat.min())


@class_activation_map.mistake(
    "You dropped the signs of the weights. A channel that speaks against the class has a negative one."
)
def _(features, weight, target):
    return (weight[target].abs()[:, None, None] * features).sum(0)


@exercise(
    lesson=7,
    points=1,
    hints=[
        "Global average pooling, of the gradient this time. Which two dimensions go?",
        "`mean` takes several dimensions at once: `dim=(…, …)`.",
        "`gradient.mean(dim=(2, 3))`",
    ],
)
def channel_weights(gradient):
    """Return Grad-CAM's weights (N, C): one a picture and channel.

    `gradient` is the gradient of the class's logit with respect to the feature
    maps, (N, C, h, w). A channel's weight is the mean of its gradient over all
    places.
    """
    return gradient.mean(dim=(2, 3))


@channel_weights.cases
def _(rng):
    yield Case({"gradient": rng.mixed(1, 2, 2, 2) / 4})
    gradient = rng.mixed(2, 3, 2, 4) / 4
    gradient[0, 1, 0, 2] = gradient[1, 2, 1] = 0  # a place without a gradient counts in the mean as well
    yield Case({"gradient": gradient})
    gradient = (rng.mixed(2, 3, 4, 2) / 4).transpose(2, 3)
    yield Case({"gradient": gradient}, shown="a gradient (2, 3, 2, 4) whose rows are not in one piece of memory")


@channel_weights.accept
def _(gradient):
    return F.adaptive_avg_pool2d(gradient, 1).flatten(1)


@channel_weights.accept
def _(gradient):
    return gradient.flatten(2).sum(2) / gradient[0, 0].numel()


channel_weights.equivalent(
    "All maps of a gradient have the same size.",
    "other constant: - return gradient.flatten(2).sum(2) / gradient[0, 0].numel() + return "
    "gradient.flatten(2).sum(2) / gradient[-1, 0].numel()",
    "other constant: - return gradient.flatten(2).sum(2) / gradient[0, 0].numel() + return "
    "gradient.flatten(2).sum(2) / gradient[0, 1].numel()",
    "other constant: - return gradient.flatten(2).sum(2) / gradient[0, 0].numel() + return "
    "gradient.flatten(2).sum(2) / gradient[0, -1].numel()",
)


@channel_weights.mistake("You took the sum. With it a larger map would count more; the weight is the mean.")
def _(gradient):
    return gradient.sum(dim=(2, 3))


@channel_weights.mistake("You averaged over the channels and kept the places. It is the other way round.")
def _(gradient):
    return gradient.mean(dim=1)


@channel_weights.mistake("You averaged over the batch as well. Each picture has weights of its own.")
def _(gradient):
    return gradient.mean(dim=(0, 2, 3))


@channel_weights.mistake("You dropped the signs. A channel that speaks against the class has a negative weight.")
def _(gradient):
    return gradient.abs().mean(dim=(2, 3))


@channel_weights.mistake("You cut off the negative gradients. The ReLU belongs on the map, after the weighted sum.")
def _(gradient):
    return gradient.relu().mean(dim=(2, 3))


@channel_weights.mistake("The values are right; the shape is (N, C, 1, 1). Drop the two last dimensions.")
def _(gradient):
    return gradient.mean(dim=(2, 3), keepdim=True)


@channel_weights.mistake(
    "You averaged over the channels and the rows, dimensions 1 and 2. With a batch the places are dimensions 2 and 3."
)
def _(gradient):
    return gradient.mean(dim=(1, 2))


@channel_weights.mistake(
    "There is no such dimension or index. The places are dimensions 2 and 3. A mean takes its own dimension away, and "
    "those behind it move up: `mean(dim=(2, 3))` takes both at once."
)
def _(gradient):
    return gradient.mean(2).mean(3)


@channel_weights.mistake(
    "A batch of one picture has lost its dimension, as it does in a `squeeze()` that does not say which. Give (1, C)."
)
def _(gradient):
    return gradient.mean(dim=(2, 3)).squeeze()


@channel_weights.mistake("These are the weights of the first picture only. Keep the dimension of the pictures.")
def _(gradient):
    return gradient[0].mean(dim=(1, 2))


@channel_weights.mistake(
    "You left the places out whose gradient is 0. They belong to the mean: divide by the number of all places."
)
def _(gradient):
    return gradient.sum(dim=(2, 3)) / (gradient != 0).sum(dim=(2, 3)).clamp(min=1)


@channel_weights.mistake(
    "`view` needs the numbers of a channel side by side in memory, and a gradient need not have them so. `flatten(2)` "
    "does without, and so does `mean` over two dimensions."
)
def _(gradient):
    return gradient.view(*gradient.shape[:2], -1).mean(2)


@exercise(
    lesson=7,
    points=3,
    hints=[
        "Gradient → mean over places → weights → weighted sum → ReLU. The first needs the layer's output: a hook.",
        "A forward hook keeps the output. What if the next layer changes it in place? Return a clone to the network. "
        "`torch.autograd.grad(logit, kept)` leaves no `.grad` behind.",
        "Hook: `kept.append(output); return output.clone()`. Then `gradient, = torch.autograd.grad(model(image)[0, "
        "target], kept[0])`, weights `gradient.mean((2, 3), keepdim=True)`, remove the handle.",
    ],
)
def grad_cam_with_hooks(model, layer, image, target):
    """Return the Grad-CAM map (h, w) of class `target` for one picture
    (1, channels, H, W).

    `layer` is a module of `model`, which calls it once; the map is made from its
    output as it leaves the layer, even where the next layer changes it in place.
    `model(image)` gives the logits (1, classes). The map ends with the ReLU. When
    your function returns, the model is as it was before: no hook of yours is left,
    and every `.grad` is what it was.
    """
    kept = []

    def keep(module, args, output):
        kept.append(output)
        return output.clone()

    handle = layer.register_forward_hook(keep)
    try:
        logits = model(image)
    finally:
        handle.remove()
    (gradient,) = torch.autograd.grad(logits[0, target], kept[0])
    weights = gradient.mean(dim=(2, 3), keepdim=True)
    return (weights * kept[0]).sum(dim=1).relu()[0].detach()


@grad_cam_with_hooks.cases
def _(rng):
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


@grad_cam_with_hooks.accept
def _(model, layer, image, target):
    leaf = None

    def cut(module, args, output):
        nonlocal leaf
        leaf = output.detach().requires_grad_()
        return leaf.clone()

    with layer.register_forward_hook(cut):
        logit = model(image)[0, target]
    (gradient,) = torch.autograd.grad(logit, leaf)
    return torch.einsum("c,chw->hw", gradient[0].mean((1, 2)), leaf[0]).clamp(min=0).detach()


@grad_cam_with_hooks.accept
def _(model, layer, image, target):
    with record(model, layer, detach=False) as seen:
        logit = model(image)[0, target]
    output = seen[layer].output
    (gradient,) = torch.autograd.grad(logit, output)
    weights = gradient.mean((2, 3), keepdim=True)
    return (weights * output).sum(1).relu().squeeze(0)


@grad_cam_with_hooks.accept
def _(model, layer, image, target):
    gradients = []
    activations = []

    def keep(module, args, output):
        activations.append(output.detach().clone())
        output.register_hook(gradients.append)

    before = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    with layer.register_forward_hook(keep):
        model(image)[0, target].backward()
    for parameter, grad in zip(model.parameters(), before, strict=True):
        parameter.grad = grad
    return F.relu(torch.einsum("nc,nchw->hw", gradients[0].mean((2, 3)), activations[0]))


grad_cam_with_hooks.equivalent(
    "The task says what is left when the function returns, not when the model raises.",
    "no try: - try: - logits = model(image) + logits = model(image) - finally: - handle.remove() + handle.remove()",
)
grad_cam_with_hooks.equivalent(
    "One picture is a batch of one, so its first and its last part are the whole.",
    "of an argument the first only: + image = image[:1]",
    "of an argument the first only: + output = output[:1]",
    "other constant: - gradient, = torch.autograd.grad(logits[0, target], kept[0]) + gradient, = "
    "torch.autograd.grad(logits[-1, target], kept[0])",
    "other constant: - return (weights * kept[0]).sum(dim=1).relu()[0].detach() + return (weights * "
    "kept[0]).sum(dim=1).relu()[-1].detach()",
    "other constant: - logit = model(image)[0, target] + logit = model(image)[-1, target]",
    "other constant: - return torch.einsum('c,chw->hw', gradient[0].mean((1, 2)), leaf[0]).clamp(min=0).detach() + "
    "return torch.einsum('c,chw->hw', gradient[0].mean((1, 2)), leaf[-1]).clamp(min=0).detach()",
    "other constant: - return torch.einsum('c,chw->hw', gradient[0].mean((1, 2)), leaf[0]).clamp(min=0).detach() + "
    "return torch.einsum('c,chw->hw', gradient[-1].mean((1, 2)), leaf[0]).clamp(min=0).detach()",
    "other constant: - model(image)[0, target].backward() + model(image)[-1, target].backward()",
)
grad_cam_with_hooks.equivalent(
    "The layer runs once in a call, and every call makes a hook of its own.",
    "only once: + if getattr(keep, 'has_run', False): + return None + keep.has_run = True",
    "only once: + if getattr(cut, 'has_run', False): + return None + cut.has_run = True",
)
grad_cam_with_hooks.equivalent(
    "The list holds the output of the only run, or its gradient.",
    "no index: - gradient, = torch.autograd.grad(logits[0, target], kept[0]) + gradient, = "
    "torch.autograd.grad(logits[0, target], kept)",
    "other constant: - gradient, = torch.autograd.grad(logits[0, target], kept[0]) + gradient, = "
    "torch.autograd.grad(logits[0, target], kept[-1])",
    "other constant: - return (weights * kept[0]).sum(dim=1).relu()[0].detach() + return (weights * "
    "kept[-1]).sum(dim=1).relu()[0].detach()",
    "other constant: - return F.relu(torch.einsum('nc,nchw->hw', gradients[0].mean((2, 3)), activations[0])) + "
    "return F.relu(torch.einsum('nc,nchw->hw', gradients[0].mean((2, 3)), activations[-1]))",
    "other constant: - return F.relu(torch.einsum('nc,nchw->hw', gradients[0].mean((2, 3)), activations[0])) + "
    "return F.relu(torch.einsum('nc,nchw->hw', gradients[-1].mean((2, 3)), activations[0]))",
)
grad_cam_with_hooks.equivalent(
    "Whether the map still belongs to a graph is left open.",
    "no detach: - return (weights * kept[0]).sum(dim=1).relu()[0].detach() + return (weights * "
    "kept[0]).sum(dim=1).relu()[0]",
    "mixed up: - return (weights * kept[0]).sum(dim=1).relu()[0].detach() + return (weights * "
    "kept[0]).sum(dim=1).relu()[0].clone()",
    "no detach: - return torch.einsum('c,chw->hw', gradient[0].mean((1, 2)), leaf[0]).clamp(min=0).detach() + return "
    "torch.einsum('c,chw->hw', gradient[0].mean((1, 2)), leaf[0]).clamp(min=0)",
    "mixed up: - return torch.einsum('c,chw->hw', gradient[0].mean((1, 2)), leaf[0]).clamp(min=0).detach() + return "
    "torch.einsum('c,chw->hw', gradient[0].mean((1, 2)), leaf[0]).clamp(min=0).clone()",
    "no detach: - activations.append(output.detach().clone()) + activations.append(output.clone())",
    "mixed up: - activations.append(output.detach().clone()) + activations.append(output.clone().clone())",
)
grad_cam_with_hooks.equivalent(
    "The gradient at the output is the same whether or not the graph goes on before it.",
    "no detach: - leaf = output.detach().requires_grad_() + leaf = output.requires_grad_()",
    "mixed up: - leaf = output.detach().requires_grad_() + leaf = output.clone().requires_grad_()",
)
grad_cam_with_hooks.equivalent(
    "The order in which gradients are put back does not matter, and there is one for each parameter.",
    "backwards: - for parameter, grad in zip(model.parameters(), before, strict=True): + for parameter, grad "
    "in list(zip(model.parameters(), before, strict=True))[::-1]:",
    "an argument less: - for parameter, grad in zip(model.parameters(), before, strict=True): + for parameter, grad "
    "in zip(model.parameters(), before):",
    "other constant: - for parameter, grad in zip(model.parameters(), before, strict=True): + for parameter, grad in "
    "zip(model.parameters(), before, strict=False):",
)


def _weigh(gradient, output):
    return (gradient.mean((2, 3), keepdim=True) * output).sum(1)


def _sketch(
    model, layer, image, target, *, keep_clone=True, relu=True, pick=None, combine=_weigh, clean=True, backward=False
):
    """The steps of the reference with one of them changed: most of the mistakes below."""
    kept = []

    def keep(module, args, output):
        kept.append(output)
        return output.clone() if keep_clone else None

    handle = layer.register_forward_hook(keep)
    logits = model(image)
    if clean:
        handle.remove()
    if backward:
        kept[0].retain_grad()
        logits[0, target].backward()
        gradient = kept[0].grad
    else:
        (gradient,) = torch.autograd.grad(logits[0, target] if pick is None else pick(logits), kept[0])
    heat = combine(gradient, kept[0])
    return (heat.relu() if relu else heat)[0].detach()


@grad_cam_with_hooks.mistake(
    "The activation that you kept was changed by the in-place ReLU that follows. Return `output.clone()` from the "
    "hook, so that the network goes on with a copy."
)
def _(model, layer, image, target):
    return _sketch(model, layer, image, target, keep_clone=False)


@grad_cam_with_hooks.mistake("The last step is missing: the ReLU, which keeps only what speaks for the class.")
def _(model, layer, image, target):
    return _sketch(model, layer, image, target, relu=False)


@grad_cam_with_hooks.mistake("Your hook stays on the layer. Keep its handle, and remove it when the call is over.")
def _(model, layer, image, target):
    return _sketch(model, layer, image, target, clean=False)


@grad_cam_with_hooks.mistake(
    "You multiplied the gradient and the activation place by place. Grad-CAM first averages the gradient over all "
    "places: one weight a channel."
)
def _(model, layer, image, target):
    return _sketch(model, layer, image, target, combine=lambda gradient, output: (gradient * output).sum(1))


@grad_cam_with_hooks.mistake("You went back from all logits together. The map is of one class: `logits[0, target]`.")
def _(model, layer, image, target):
    return _sketch(model, layer, image, target, pick=lambda logits: logits.sum())


@grad_cam_with_hooks.mistake(
    "You went back from the probability. Its gradient mixes in the other classes, and fades where the network is "
    "sure. Start from the logit."
)
def _(model, layer, image, target):
    return _sketch(model, layer, image, target, pick=lambda logits: logits.softmax(1)[0, target])


@grad_cam_with_hooks.mistake(
    "`backward()` filled `.grad` of the model's parameters. `torch.autograd.grad(logit, kept)` returns the one "
    "gradient that you need and leaves the rest alone."
)
def _(model, layer, image, target):
    return _sketch(model, layer, image, target, backward=True)


@grad_cam_with_hooks.mistake(
    "You emptied the `.grad` of the parameters, and so wiped the gradients that were there before your function ran. "
    "`torch.autograd.grad(logit, kept)` touches no `.grad` at all."
)
def _(model, layer, image, target):
    try:
        return _sketch(model, layer, image, target, backward=True)
    finally:
        model.zero_grad()


@grad_cam_with_hooks.mistake(
    "A hook from `register_full_backward_hook` and an in-place operation after the layer do not go together (lesson "
    "03). Keep the output with a forward hook, and ask `torch.autograd.grad` for its gradient."
)
def _(model, layer, image, target):
    outputs, gradients = [], []
    handles = [
        layer.register_forward_hook(lambda module, args, output: outputs.append(output)),
        layer.register_full_backward_hook(lambda module, inputs, grads: gradients.append(grads[0])),
    ]
    try:
        model(image)[0, target].backward()
    finally:
        for handle in handles:
            handle.remove()
    model.zero_grad()
    return (gradients[0].mean((2, 3), keepdim=True) * outputs[0]).sum(1).relu()[0].detach()


@grad_cam_with_hooks.mistake(
    "`backward()` filled `.grad` of the parameters, and a hook from `register_full_backward_hook` does not go together "
    "with the in-place operation after the layer (lesson 03). A forward hook and `torch.autograd.grad` do without both."
)
def _(model, layer, image, target):
    outputs, gradients = [], []
    forward = layer.register_forward_hook(lambda module, args, output: outputs.append(output))
    backward = layer.register_full_backward_hook(lambda module, inputs, grads: gradients.append(grads[0]))
    model(image)[0, target].backward()
    forward.remove()
    backward.remove()
    return (gradients[0].mean((2, 3), keepdim=True) * outputs[0]).sum(1).relu()[0].detach()


@grad_cam_with_hooks.mistake(
    "PyTorch stopped your answer; its words above say why. If a tensor is 'not used in the graph', the network went on "
    "without what you kept, such as a copy: keep the output itself, and return its clone from the hook. If one 'does "
    "not require grad', it was detached, or made under `no_grad`."
)
def _(model, layer, image, target):
    kept = []
    with layer.register_forward_hook(lambda module, args, output: kept.append(output.clone())):
        logits = model(image)
    return _weigh(*torch.autograd.grad(logits[0, target], kept), kept[0])


@grad_cam_with_hooks.mistake("You went back from the highest logit. The map is of the class that `target` names.")
def _(model, layer, image, target):
    return _sketch(model, layer, image, target, pick=lambda logits: logits.max())


@grad_cam_with_hooks.mistake("You summed the gradient over the places. The weight of a channel is the mean.")
def _(model, layer, image, target):
    return _sketch(
        model,
        layer,
        image,
        target,
        combine=lambda gradient, output: (gradient.sum((2, 3), keepdim=True) * output).sum(1),
    )


@grad_cam_with_hooks.mistake(
    "You cut off the negative weights. A channel that speaks against the class pulls the map down: the ReLU comes "
    "after the sum."
)
def _(model, layer, image, target):
    return _sketch(
        model,
        layer,
        image,
        target,
        combine=lambda gradient, output: (gradient.mean((2, 3), keepdim=True).relu() * output).sum(1),
    )


@grad_cam_with_hooks.mistake("You averaged over the channels. The map is their sum, each channel times its weight.")
def _(model, layer, image, target):
    return _sketch(
        model,
        layer,
        image,
        target,
        combine=lambda gradient, output: (gradient.mean((2, 3), keepdim=True) * output).mean(1),
    )


@grad_cam_with_hooks.mistake("You stretched the map, so that its greatest value is 1. It ends with the ReLU.")
def _(model, layer, image, target):
    heat = _sketch(model, layer, image, target)
    return heat / heat.max()


@grad_cam_with_hooks.mistake(
    "You enlarged the map to the size of the picture. It has as many places as the output of the layer."
)
def _(model, layer, image, target):
    heat = _sketch(model, layer, image, target)
    return F.interpolate(heat[None, None], image.shape[2:], mode="bilinear")[0, 0]


@exercise(
    lesson=7,
    points=2,
    hints=[
        "Three steps in this order: ReLU, enlarge, stretch. `F.interpolate` wants (N, 1, h, w).",
        "Least and greatest value of each map: `amin((1, 2), keepdim=True)`. What if both are the same?",
        "`heat = F.interpolate(raw.relu()[:, None], size, mode='bilinear', align_corners=False)[:, 0]`; then "
        "`(heat - low) / (high - low).clamp(min=1e-12)`",
    ],
)
def to_heatmap(raw, size):
    """Turn raw maps (N, h, w) into heat maps (N, *size) with values from 0 to 1.

    First the ReLU; then enlarge to `size`, a pair (H, W), with bilinear
    interpolation and `align_corners=False`; then stretch each map by itself, so
    that its least value is 0 and its greatest is exactly 1. A map without a value
    above 0 becomes all 0.
    """
    heat = F.interpolate(raw.relu()[:, None], size, mode="bilinear", align_corners=False)[:, 0]
    low, high = heat.amin((1, 2), keepdim=True), heat.amax((1, 2), keepdim=True)
    span = high - low
    return (heat - low) / span.where(span > 0, 1)


@to_heatmap.cases
def _(rng):
    yield Case({"raw": rng.mixed(1, 2, 2) / 4, "size": (4, 4)})
    raw = rng.mixed(4, 3, 4) / 4
    raw[0, 1, 2] = 4  # the middle of this cell falls between the pixels, so that the enlarged map does not reach 4
    raw[1] = raw[1].abs() + 4  # another scale, and nothing near 0
    raw[2] = -raw[2].abs()
    raw[3] /= 2**22  # about a millionth: not to be taken for 0
    shown = "four maps of 3 x 4 cells, to become 8 x 9: the third is below 0 everywhere, the fourth has tiny values"
    yield Case({"raw": raw, "size": (8, 9)}, shown=shown)


@to_heatmap.accept
def _(raw, size):
    heat = F.interpolate(raw.clamp(min=0).unsqueeze(1), size=size, mode="bilinear").squeeze(1)
    heat = heat - heat.flatten(1).min(1).values[:, None, None]
    return heat / heat.flatten(1).max(1).values.clamp(min=1e-9)[:, None, None]


@to_heatmap.accept
def _(raw, size):
    maps = []
    for one in raw:
        heat = F.interpolate(one.relu()[None, None], size, mode="bilinear", align_corners=False)[0, 0]
        heat = heat - heat.min()
        maps.append(heat / heat.max() if heat.max() > 0 else heat)
    return torch.stack(maps)


to_heatmap.equivalent(
    "`align_corners` is False unless it is asked for.",
    "an argument less: - heat = F.interpolate(raw.relu()[:, None], size, mode='bilinear', align_corners=False)[:, 0] "
    "+ heat = F.interpolate(raw.relu()[:, None], size, mode='bilinear')[:, 0]",
    "an argument less: - heat = F.interpolate(one.relu()[None, None], size, mode='bilinear', align_corners=False)[0, "
    "0] + heat = F.interpolate(one.relu()[None, None], size, mode='bilinear')[0, 0]",
)
to_heatmap.equivalent(
    "The dimension has one item, which is the first and the last.",
    "other constant: - heat = F.interpolate(raw.relu()[:, None], size, mode='bilinear', align_corners=False)[:, 0] + "
    "heat = F.interpolate(raw.relu()[:, None], size, mode='bilinear', align_corners=False)[:, -1]",
    "other constant: - heat = F.interpolate(one.relu()[None, None], size, mode='bilinear', align_corners=False)[0, "
    "0] + heat = F.interpolate(one.relu()[None, None], size, mode='bilinear', align_corners=False)[-1, 0]",
    "other constant: - heat = F.interpolate(one.relu()[None, None], size, mode='bilinear', align_corners=False)[0, "
    "0] + heat = F.interpolate(one.relu()[None, None], size, mode='bilinear', align_corners=False)[0, -1]",
)
to_heatmap.equivalent(
    "Where the span is 0, so is every value, whatever it is divided by.",
    "other constant: - return (heat - low) / span.where(span > 0, 1) + return (heat - low) / span.where(span > 0, 2)",
)
to_heatmap.equivalent(
    "The enlarged map belongs to the answer, so that it does not matter whether it is written into.",
    "in place: - heat = heat - heat.flatten(1).min(1).values[:, None, None] + heat -= "
    "heat.flatten(1).min(1).values[:, None, None]",
    "in place: - heat = heat - heat.min() + heat -= heat.min()",
)


def _stretch(heat):
    low, high = heat.amin((1, 2), keepdim=True), heat.amax((1, 2), keepdim=True)
    return (heat - low) / (high - low).clamp(min=1e-12)


def _enlarge(raw, size, **options):
    options = {"mode": "bilinear", "align_corners": False, **options}
    return F.interpolate(raw[:, None], size, **options)[:, 0]


@to_heatmap.mistake(
    "A map without differences has 0 / 0, which is nan. Divide by `(high - low).clamp(min=1e-12)`, or leave it at 0."
)
def _(raw, size):
    heat = _enlarge(raw.relu(), size)
    low, high = heat.amin((1, 2), keepdim=True), heat.amax((1, 2), keepdim=True)
    return (heat - low) / (high - low)


@to_heatmap.mistake(
    "You stretched all maps together, so that one bright map darkens the others. Stretch each by itself."
)
def _(raw, size):
    heat = _enlarge(raw.relu(), size)
    return (heat - heat.min()) / (heat.max() - heat.min())


@to_heatmap.mistake(
    "You left the ReLU out. The stretching then lifts what speaks against the class up to 0, and 'nothing' to a colour."
)
def _(raw, size):
    return _stretch(_enlarge(raw, size))


@to_heatmap.mistake("The ReLU comes first, on the raw map. After the enlarging the negative cells have bled outwards.")
def _(raw, size):
    return _stretch(_enlarge(raw, size).relu())


@to_heatmap.mistake("You divided by the greatest value only. The least value of each map has to become 0.")
def _(raw, size):
    heat = _enlarge(raw.relu(), size)
    return heat / heat.amax((1, 2), keepdim=True).clamp(min=1e-12)


@to_heatmap.mistake(
    "You added a small number to the span, so the greatest value of a faint map stays below 1. Keep the span as it is, "
    "and only where it is 0 divide by something else: `(high - low).clamp(min=1e-12)`."
)
def _(raw, size):
    heat = _enlarge(raw.relu(), size)
    low, high = heat.amin((1, 2), keepdim=True), heat.amax((1, 2), keepdim=True)
    return (heat - low) / (high - low + 1e-8)


@to_heatmap.mistake(
    "The greatest value of a faint map stays below 1: a number such as 1e-6 is added to its span, by which you divide. "
    "Divide by the span alone, and by something else only where it is 0."
)
def _(raw, size):
    heat = _enlarge(raw.relu(), size)
    low, high = heat.amin((1, 2), keepdim=True), heat.amax((1, 2), keepdim=True)
    return (heat - low) / (high - low + 1e-6)


@to_heatmap.mistake(
    "The greatest value of a faint map stays below 1: its span is smaller than 1e-6, by which you divided instead. "
    "Divide by the span, and by something else only where it is 0."
)
def _(raw, size):
    heat = _enlarge(raw.relu(), size)
    low, high = heat.amin((1, 2), keepdim=True), heat.amax((1, 2), keepdim=True)
    return (heat - low) / (high - low).clamp(min=1e-6)


@to_heatmap.mistake(
    "You took a faint map for an empty one. Only a map without a value above 0 becomes all 0: compare with 0."
)
def _(raw, size):
    heat = _stretch(_enlarge(raw.relu(), size))
    return heat * (raw.amax((1, 2), keepdim=True) > 1e-3)


@to_heatmap.mistake(
    "You stretched the maps before you enlarged them. The enlarging mixes neighbours, so that the least value is not "
    "0 any more, or the greatest not 1. Stretch last."
)
def _(raw, size):
    return _enlarge(_stretch(raw.relu()), size)


@to_heatmap.mistake("The dimension that `F.interpolate` wants is still there: (N, 1, H, W). Drop it.")
def _(raw, size):
    return _stretch(_enlarge(raw.relu(), size))[:, None]


@to_heatmap.mistake(
    "A batch of one map has lost its dimension, as it does in a `squeeze()` that does not say which. Give (1, H, W)."
)
def _(raw, size):
    return _stretch(_enlarge(raw.relu(), size)).squeeze()


@to_heatmap.mistake("You repeated the cells: that is `mode='nearest'`. Ask for `mode='bilinear'`.")
def _(raw, size):
    return _stretch(_enlarge(raw.relu(), size, mode="nearest", align_corners=None))


@to_heatmap.mistake(
    "With `align_corners=True` the corner cells sit in the corner pixels, and the map is shifted. Use False."
)
def _(raw, size):
    return _stretch(_enlarge(raw.relu(), size, align_corners=True))


@exercise(
    lesson=7,
    points=2,
    hints=[
        "Where is the hottest pixel of each map? `argmax` over a flattened map gives one number a picture.",
        "`heatmaps.flatten(1).argmax(1)` counts row by row, just as `masks.flatten(1)` does. So you need no row and no "
        "column.",
        "`hit = masks.flatten(1).gather(1, place[:, None])[:, 0] & (heatmaps.flatten(1).amax(1) > 0)`; then the mean, "
        "as a float.",
    ],
)
def pointing_game(heatmaps, masks):
    """Return the share of heat maps, a float from 0 to 1, whose hottest pixel lies
    on the mask.

    `heatmaps` are (N, H, W) floats and `masks` (N, H, W) bool, one for each map. A
    map in which no value is above 0 points nowhere: that is a miss.
    """
    place = heatmaps.flatten(1).argmax(1)
    hit = masks.flatten(1).gather(1, place[:, None])[:, 0]
    hit = hit & (heatmaps.flatten(1).amax(1) > 0)
    return hit.float().mean().item()


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


@pointing_game.cases
def _(rng):
    hits = [True, False, True, True, True, False, True, True, False, True, rng.choice([True, False])]
    heatmaps, masks = _maps_that_point(rng, hits, (3, 4))
    heatmaps[:5] /= 2**24
    heatmaps[5] *= 2
    masks[3], masks[6, 0, 0] = True, False  # not every other pixel leads to the opposite, and the first not always
    shown = f"eleven maps, five of them faint, of which {sum(hits)} point at their masks"
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


@pointing_game.accept
def _(heatmaps, masks):
    hits = 0
    for heat, mask in zip(heatmaps, masks, strict=True):
        row, column = divmod(heat.argmax().item(), heat.shape[1])
        hits += bool(heat.max() > 0 and mask[row, column])
    return hits / len(heatmaps)


@pointing_game.accept
def _(heatmaps, masks):
    best = heatmaps.amax((1, 2), keepdim=True)
    hit = ((heatmaps == best) & masks & (best > 0)).any(2).any(1)
    return float(hit.sum()) / hit.numel()


pointing_game.equivalent(
    "The answer writes only into what it has made itself.",
    "in place: - hit = hit & (heatmaps.flatten(1).amax(1) > 0) + hit &= heatmaps.flatten(1).amax(1) > 0",
    "not in place: - hits += bool(heat.max() > 0 and mask[row, column]) + hits = hits + bool(heat.max() > 0 and "
    "mask[row, column])",
)
pointing_game.equivalent(
    "The dimension has one item, which is the first and the last.",
    "other constant: - hit = masks.flatten(1).gather(1, place[:, None])[:, 0] + hit = masks.flatten(1).gather(1, "
    "place[:, None])[:, -1]",
)
pointing_game.equivalent(
    "Another dtype changes neither where a number is greatest nor what is true.",
    "spoil an argument: + heatmaps = heatmaps.double()",
    "spoil an argument: + masks = masks.double()",
)
pointing_game.equivalent(
    "Hits can be counted in every order.",
    "backwards: - for heat, mask in zip(heatmaps, masks, strict=True): + for heat, mask in list(zip(heatmaps, "
    "masks, strict=True))[::-1]:",
)
pointing_game.equivalent(
    "There is a mask for each map, so nothing can be left over.",
    "an argument less: - for heat, mask in zip(heatmaps, masks, strict=True): + for heat, mask in zip(heatmaps, "
    "masks):",
    "other constant: - for heat, mask in zip(heatmaps, masks, strict=True): + for heat, mask in zip(heatmaps, masks, "
    "strict=False):",
)
pointing_game.equivalent(
    "Two dimensions are left to look through, in either order.",
    "other constant: - hit = ((heatmaps == best) & masks & (best > 0)).any(2).any(1) + hit = ((heatmaps == best) & "
    "masks & (best > 0)).any(1).any(1)",
)


@pointing_game.mistake("You took the pixel of the greatest size, also where it is negative. The hottest is above all.")
def _(heatmaps, masks):
    place = heatmaps.abs().flatten(1).argmax(1)
    hit = masks.flatten(1).gather(1, place[:, None])[:, 0] & (heatmaps.flatten(1).amax(1) > 0)
    return hit.float().mean().item()


@pointing_game.mistake("You counted the hits. Divide by the number of maps.")
def _(heatmaps, masks):
    place = heatmaps.flatten(1).argmax(1)
    hit = masks.flatten(1).gather(1, place[:, None])[:, 0] & (heatmaps.flatten(1).amax(1) > 0)
    return float(hit.sum())


@pointing_game.mistake(
    "A map without a value above 0 points nowhere, and yet it has a greatest value: count it as a miss."
)
def _(heatmaps, masks):
    place = heatmaps.flatten(1).argmax(1)
    return masks.flatten(1).gather(1, place[:, None]).float().mean().item()


@pointing_game.mistake(
    "This is the energy: the share of the heat on the mask. The game asks for the hottest pixel only."
)
def _(heatmaps, masks):
    heat = heatmaps.sum((1, 2)).clamp(min=1e-12)
    return ((heatmaps * masks).sum((1, 2)) / heat).mean().item()


@pointing_game.mistake("You looked for one hottest pixel in the whole batch. Every map has its own.")
def _(heatmaps, masks):
    return float(masks.flatten()[heatmaps.argmax()] and heatmaps.max() > 0)


@pointing_game.mistake("Row and column are `divmod(place, W)`, with the width. You divided by the height.")
def _(heatmaps, masks):
    hits = 0
    for heat, mask in zip(heatmaps, masks, strict=True):
        row, column = divmod(heat.argmax().item(), heat.shape[0])
        hits += bool(heat.max() > 0 and row < heat.shape[0] and mask[row, column])
    return hits / len(heatmaps)


def _find_hits(heatmaps, masks):
    place = heatmaps.flatten(1).argmax(1)
    return masks.flatten(1).gather(1, place[:, None])[:, 0]


@pointing_game.mistake("You left out the maps that point nowhere. They are misses: divide by the number of all maps.")
def _(heatmaps, masks):
    warm = heatmaps.amax((1, 2)) > 0
    return (_find_hits(heatmaps, masks) & warm).sum().item() / max(warm.sum().item(), 1)


@pointing_game.mistake(
    "You count a map in which the greatest value is exactly 0. Only with a value above 0 does it point."
)
def _(heatmaps, masks):
    return (_find_hits(heatmaps, masks) & (heatmaps.amax((1, 2)) >= 0)).float().mean().item()


@pointing_game.mistake(
    "You sort out the maps that are all 0, and not those that are below 0 everywhere. Ask whether the greatest value "
    "is above 0."
)
def _(heatmaps, masks):
    return (_find_hits(heatmaps, masks) & (heatmaps != 0).any(2).any(1)).float().mean().item()


@pointing_game.mistake(
    "A pixel on the mask that is only warm makes a hit in your answer. Only the hottest pixel of the map counts."
)
def _(heatmaps, masks):
    return ((heatmaps > 0) & masks).any(2).any(1).float().mean().item()


@pointing_game.mistake("You took a faint map for one that points nowhere. Every value above 0 counts: compare with 0.")
def _(heatmaps, masks):
    return (_find_hits(heatmaps, masks) & (heatmaps.amax((1, 2)) > 1e-3)).float().mean().item()


@pointing_game.mistake(
    "You ask whether the *sum* of a map is above 0. Negative values can outweigh its hottest pixel: ask for the "
    "greatest."
)
def _(heatmaps, masks):
    place = heatmaps.flatten(1).argmax(1)
    hit = masks.flatten(1).gather(1, place[:, None])[:, 0]
    return (hit & (heatmaps.sum((1, 2)) > 0)).float().mean().item()


@exercise(
    lesson=7,
    points=2,
    hints=[
        "A class is seen where its logit is above 0. So there are two rows of yes and no: before and after.",
        "Lost means seen before *and not* seen after. Divide by how many were seen before.",
        "`before, after = model(images)[:, target] > 0, model(edited)[:, target] > 0`; then `(before & ~after).sum()`",
    ],
)
def lost_answers(model, images, edited, target):
    """Return the share of its yes answers, a float from 0 to 1, that `model` takes
    back when the pictures are edited.

    The model says yes to class `target` where `model(...)[:, target]` is above 0.
    `edited` (N, C, H, W) are the same pictures as `images` after a change, such as
    a cue painted out. Count the pictures with a yes before and none after, among
    those with a yes before; if there are none, return 0.0.
    """
    with torch.no_grad():
        before = model(images)[:, target] > 0
        after = model(edited)[:, target] > 0
    lost = (before & ~after).sum().item()
    return lost / max(before.sum().item(), 1)


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


@lost_answers.cases
def _(rng):
    model, target = _turning_net(), rng.integer(0, 2)
    for before, after, shown in (
        (
            [1, -1, 0.25, 3, 0, 1, 2, -2, -0.5, 0.5, 1, 1],
            [0, 1, -0.25, 0.5, 0.25, 1, 2, 0.5, 1, 0, 0.75, 1],
            "12 pictures: 8 times yes, 3 of them lost (in two the logit becomes 0), 4 gained",
        ),
        ([-1, 2, 0, 0], [-2, 0, -0.5, 0], "4 pictures: 1 yes, which is lost (its logit becomes 0)"),
        ([-1, 0], [-2, -1], "2 pictures without a yes"),
    ):
        target = (target + 1) % 3
        images, edited = _logit_pictures(rng, before, target, 4), _logit_pictures(rng, after, target, 2)
        yield Case(
            {"model": model, "images": images, "edited": edited, "target": target}, shown=f"{shown}, target = {target}"
        )


@lost_answers.accept
def _(model, images, edited, target):
    pairs = zip(model(images)[:, target].tolist(), model(edited)[:, target].tolist(), strict=True)
    afterwards = [after for before, after in pairs if before > 0]
    return sum(after <= 0 for after in afterwards) / len(afterwards) if afterwards else 0.0


@lost_answers.accept
def _(model, images, edited, target):
    with torch.inference_mode():
        yes = model(images)[:, target] > 0
        if not yes.any():
            return 0.0
        return (model(edited[yes])[:, target] <= 0).double().mean().item()


lost_answers.equivalent(
    "Only a number comes back, so nobody sees whether there was a graph.",
    "no with: - with torch.no_grad(): - before = model(images)[:, target] > 0 + before = model(images)[:, target] > "
    "0 - after = model(edited)[:, target] > 0 + after = model(edited)[:, target] > 0",
    "mixed up: - with torch.no_grad(): + with torch.enable_grad():",
    "no with: - with torch.inference_mode(): - yes = model(images)[:, target] > 0 + yes = model(images)[:, target] > "
    "0 - if not yes.any(): + if not yes.any(): - return 0.0 + return 0.0 - return (model(edited[yes])[:, target] <= "
    "0).double().mean().item() + return (model(edited[yes])[:, target] <= 0).double().mean().item()",
)
lost_answers.equivalent(
    "There are as many pictures before as after, so nothing can be left over.",
    "an argument less: - pairs = zip(model(images)[:, target].tolist(), model(edited)[:, target].tolist(), "
    "strict=True) + pairs = zip(model(images)[:, target].tolist(), model(edited)[:, target].tolist())",
    "other constant: - pairs = zip(model(images)[:, target].tolist(), model(edited)[:, target].tolist(), "
    "strict=True) + pairs = zip(model(images)[:, target].tolist(), model(edited)[:, target].tolist(), strict=False)",
)
lost_answers.equivalent(
    "A tensor of one number compares as the number does.",
    "no tolist: - pairs = zip(model(images)[:, target].tolist(), model(edited)[:, target].tolist(), strict=True) + "
    "pairs = zip(model(images)[:, target], model(edited)[:, target].tolist(), strict=True)",
)
lost_answers.equivalent(
    "Answers can be counted in every order.",
    "backwards: - afterwards = [after for before, after in pairs if before > 0] + afterwards = [after for before, "
    "after in list(pairs)[::-1] if before > 0]",
    "backwards: - return sum((after <= 0 for after in afterwards)) / len(afterwards) if afterwards else 0.0 + return "
    "sum((after <= 0 for after in list(afterwards)[::-1])) / len(afterwards) if afterwards else 0.0",
)


@lost_answers.mistake("You divided by all pictures. The share is of those in which the model said yes before.")
def _(model, images, edited, target):
    before, after = model(images)[:, target] > 0, model(edited)[:, target] > 0
    return (before & ~after).float().mean().item()


@lost_answers.mistake(
    "This is the share of the answers that stay. Count those that are lost: yes before, no yes after."
)
def _(model, images, edited, target):
    before, after = model(images)[:, target] > 0, model(edited)[:, target] > 0
    return (before & after).sum().item() / max(before.sum().item(), 1)


@lost_answers.mistake("You missed the answers whose logit becomes exactly 0. Yes is above 0, so 0 is no yes any more.")
def _(model, images, edited, target):
    before, after = model(images)[:, target] > 0, model(edited)[:, target] < 0
    return (before & after).sum().item() / max(before.sum().item(), 1)


@lost_answers.mistake("You counted every answer that changed. An answer that is gained is not lost.")
def _(model, images, edited, target):
    before, after = model(images)[:, target] > 0, model(edited)[:, target] > 0
    return (before != after).sum().item() / max(before.sum().item(), 1)


@lost_answers.mistake("You subtracted the two counts, so that answers gained hide those that were lost.")
def _(model, images, edited, target):
    before, after = model(images)[:, target] > 0, model(edited)[:, target] > 0
    return (before.sum() - after.sum()).item() / max(before.sum().item(), 1)


@lost_answers.mistake(
    "Your yes depends on the other classes, as it does with the highest logit or with a softmax. Several classes may "
    "be in one picture: ask whether the logit of `target` is above 0."
)
def _(model, images, edited, target):
    before, after = model(images).argmax(1) == target, model(edited).argmax(1) == target
    return (before & ~after).sum().item() / max(before.sum().item(), 1)


@lost_answers.mistake("If there was no yes before, you divide by 0. Return 0.0 then.")
def _(model, images, edited, target):
    before, after = model(images)[:, target] > 0, model(edited)[:, target] > 0
    return (before & ~after).sum().item() / before.sum().item()


@lost_answers.mistake(
    "If there was no yes before, there is nothing to divide by or to take the mean of, and a tensor makes nan of that. "
    "Return 0.0 then."
)
def _(model, images, edited, target):
    before, after = model(images)[:, target] > 0, model(edited)[:, target] > 0
    return ((before & ~after).sum() / before.sum()).item()


@lost_answers.mistake("You counted the lost answers. Divide by the number of the pictures with a yes before.")
def _(model, images, edited, target):
    before, after = model(images)[:, target] > 0, model(edited)[:, target] > 0
    return float((before & ~after).sum())


@lost_answers.mistake("You counted every picture without a yes after. Only a yes from before can be lost.")
def _(model, images, edited, target):
    before, after = model(images)[:, target] > 0, model(edited)[:, target] > 0
    return (~after).sum().item() / before.sum().item() if before.any() else 0.0


@lost_answers.mistake("A logit of exactly 0 counts as a yes in your answer, before and after. Yes is above 0.")
def _(model, images, edited, target):
    before, after = model(images)[:, target] >= 0, model(edited)[:, target] >= 0
    return (before & ~after).sum().item() / max(before.sum().item(), 1)


@lost_answers.mistake(
    "Your limit for a yes is too high. Yes is a logit above 0; 0.5 would be the limit of a probability."
)
def _(model, images, edited, target):
    before, after = model(images)[:, target] > 0.5, model(edited)[:, target] > 0.5
    return (before & ~after).sum().item() / max(before.sum().item(), 1)


@lost_answers.mistake(
    "`images` and `edited` have changed places: this is the share of a yes after the change that was none before."
)
def _(model, images, edited, target):
    before, after = model(images)[:, target] > 0, model(edited)[:, target] > 0
    return (after & ~before).sum().item() / max(after.sum().item(), 1)


@lost_answers.mistake(
    "You subtracted the number of yes answers after from that before: a new yes in one picture hides a lost one in "
    "another. Compare picture by picture."
)
def _(model, images, edited, target):
    with torch.no_grad():
        before, after = ((model(each)[:, target] > 0).sum().item() for each in (images, edited))
    return max(before - after, 0) / max(before, 1)


@exercise(
    lesson=7,
    points=2,
    hints=[
        "One map for three colour channels: it needs a dimension where the colours are.",
        "Enlarge `raw.relu()[:, None]`, which is (N, 1, h, w), to the size of `guided`. Then it fits all channels.",
        "`guided * F.interpolate(raw.relu()[:, None], guided.shape[2:], mode='bilinear', align_corners=False)`",
    ],
)
def guided_grad_cam_product(guided, raw):
    """Return Guided Grad-CAM (N, 3, H, W): where Grad-CAM says so, the detail of
    Guided Backprop.

    `guided` is the result of Guided Backprop, (N, 3, H, W); `raw` are the raw
    Grad-CAM maps of the same pictures, (N, h, w), before their ReLU. The ReLU
    comes first, then the maps grow to H x W (bilinear, `align_corners=False`),
    then the two are multiplied.
    """
    heat = F.interpolate(raw.relu()[:, None], guided.shape[2:], mode="bilinear", align_corners=False)
    return guided * heat


@guided_grad_cam_product.cases
def _(rng):
    yield Case({"guided": rng.mixed(1, 3, 4, 4) / 4, "raw": rng.mixed(1, 2, 2) / 4})
    shown = "three pictures of 6 x 7 pixels, with maps of 3 x 4 cells"
    yield Case({"guided": rng.mixed(3, 3, 6, 7) / 4, "raw": rng.mixed(3, 3, 4) / 4}, shown=shown)


@guided_grad_cam_product.accept
def _(guided, raw):
    heat = F.interpolate(raw.clamp(min=0).unsqueeze(1), size=tuple(guided.shape[-2:]), mode="bilinear")
    return heat.expand_as(guided) * guided


@guided_grad_cam_product.accept
def _(guided, raw):
    return guided * F.interpolate(raw.relu()[:, None], guided.shape[2:], mode="bilinear", align_corners=False)


@guided_grad_cam_product.accept
def _(guided, raw):
    products = []
    for picture, heat in zip(guided, raw, strict=True):
        large = F.interpolate(heat.relu()[None, None], picture.shape[1:], mode="bilinear", align_corners=False)
        products.append(picture * large[0])
    return torch.stack(products)


guided_grad_cam_product.equivalent(
    "`align_corners` is False unless it is asked for.",
    "an argument less: - heat = F.interpolate(raw.relu()[:, None], guided.shape[2:], mode='bilinear', "
    "align_corners=False) + heat = F.interpolate(raw.relu()[:, None], guided.shape[2:], mode='bilinear')",
    "an argument less: - return guided * F.interpolate(raw.relu()[:, None], guided.shape[2:], mode='bilinear', "
    "align_corners=False) + return guided * F.interpolate(raw.relu()[:, None], guided.shape[2:], mode='bilinear')",
    "an argument less: - large = F.interpolate(heat.relu()[None, None], picture.shape[1:], mode='bilinear', "
    "align_corners=False) + large = F.interpolate(heat.relu()[None, None], picture.shape[1:], mode='bilinear')",
)
guided_grad_cam_product.equivalent(
    "The product lines the one channel up with the colours by itself.",
    "no expand_as: - return heat.expand_as(guided) * guided + return heat * guided",
)
guided_grad_cam_product.equivalent(
    "The size may be given as any sequence, and the last two of four dimensions begin at 2.",
    "no call: - heat = F.interpolate(raw.clamp(min=0).unsqueeze(1), size=tuple(guided.shape[-2:]), mode='bilinear') "
    "+ heat = F.interpolate(raw.clamp(min=0).unsqueeze(1), size=guided.shape[-2:], mode='bilinear')",
    "no sign: - heat = F.interpolate(raw.clamp(min=0).unsqueeze(1), size=tuple(guided.shape[-2:]), mode='bilinear') "
    "+ heat = F.interpolate(raw.clamp(min=0).unsqueeze(1), size=tuple(guided.shape[2:]), mode='bilinear')",
)
guided_grad_cam_product.equivalent(
    "There is a map for each picture, so nothing can be left over.",
    "an argument less: - for picture, heat in zip(guided, raw, strict=True): + for picture, heat in zip(guided, raw):",
    "other constant: - for picture, heat in zip(guided, raw, strict=True): + for picture, heat in zip(guided, raw, "
    "strict=False):",
)
guided_grad_cam_product.equivalent(
    "The dimension has one item, which is the first and the last.",
    "other constant: - products.append(picture * large[0]) + products.append(picture * large[-1])",
)


@guided_grad_cam_product.mistake(
    "Your maps are (N, H, W) or (1, N, H, W): beside (N, 3, H, W), PyTorch lines the *pictures* up with the colours. "
    "It fits by accident for 1 or 3 pictures. Keep a dimension for the colours: (N, 1, H, W)."
)
def _(guided, raw):
    return guided * F.interpolate(raw.relu()[:, None], guided.shape[2:], mode="bilinear", align_corners=False)[:, 0]


@guided_grad_cam_product.mistake(
    "You left the ReLU out. Where Grad-CAM is negative, the product turns the detail round."
)
def _(guided, raw):
    return guided * F.interpolate(raw[:, None], guided.shape[2:], mode="bilinear", align_corners=False)


@guided_grad_cam_product.mistake("You added the two. The product is 0 where one of them is; a sum is not.")
def _(guided, raw):
    return guided + F.interpolate(raw.relu()[:, None], guided.shape[2:], mode="bilinear", align_corners=False)


@guided_grad_cam_product.mistake(
    "The negative values of `guided` are cut off, by a ReLU over it or over the product. Only the map goes through one."
)
def _(guided, raw):
    return guided.relu() * F.interpolate(raw.relu()[:, None], guided.shape[2:], mode="bilinear", align_corners=False)


@guided_grad_cam_product.mistake("You repeated the cells of the map. Enlarge it with `mode='bilinear'`.")
def _(guided, raw):
    return guided * F.interpolate(raw.relu()[:, None], guided.shape[2:])


@guided_grad_cam_product.mistake("The ReLU comes first. After the enlarging the negative cells have bled outwards.")
def _(guided, raw):
    return guided * F.interpolate(raw[:, None], guided.shape[2:], mode="bilinear", align_corners=False).relu()


@guided_grad_cam_product.mistake(
    "With `align_corners=True` the corner cells sit in the corner pixels, and the map is shifted. Use False."
)
def _(guided, raw):
    return guided * F.interpolate(raw.relu()[:, None], guided.shape[2:], mode="bilinear", align_corners=True)


@guided_grad_cam_product.mistake(
    "The sizes do not fit. What `guided` is multiplied by has to be (N, 1, H, W), with its own height and width: the "
    "maps have to grow first."
)
def _(guided, raw):
    return guided * raw.relu()[:, None]


@guided_grad_cam_product.mistake(
    "You asked only whether the map is above 0. Multiply by its values: the more Grad-CAM says, the more stays."
)
def _(guided, raw):
    heat = F.interpolate(raw.relu()[:, None], guided.shape[2:], mode="bilinear", align_corners=False)
    return guided * (heat > 0)


@guided_grad_cam_product.mistake("You stretched the map, so that its greatest value is 1. It is multiplied as it is.")
def _(guided, raw):
    heat = F.interpolate(raw.relu()[:, None], guided.shape[2:], mode="bilinear", align_corners=False)
    return guided * heat / heat.amax((2, 3), keepdim=True)
