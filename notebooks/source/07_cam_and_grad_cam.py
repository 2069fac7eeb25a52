# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # CAM and Grad-CAM
#
# A network says "cat". Which part of the picture made it say so? A class activation map answers with a heat map, and
# a hook is all it takes to draw one. Later you will use such maps as a detective: first on two networks with the same
# score, then on a real network and real photographs.
#
# ## What you will be able to do
#
# - **Derive** the class activation map (CAM) from average pooling and a linear layer, and **compute** one with a pencil.
# - **Write** Grad-CAM with a hook, in five steps, for networks that CAM cannot explain.
# - **Score** heat maps against the truth, and **compare** every score with chance.
# - **Find out** what a network's answer rests on, and **prove** it by an experiment.
# - **Choose** the question that a map should answer, and **say** what no map can tell you.
#
# **Minutes:** counted by the build
#
# The core ends with a case: which of two networks would you trust, and how do you prove it? What follows under *More* can
# be read in any order, or another day.

# %% [markdown] tags=["instructor"]
# **Plan for 90 minutes**
#
# | Minutes | Sections | In the room | At home |
# |---|---|---|---|
# | 0 to 12 | One picture, two questions · CAM: the linear layer, moved inside | the pencil example at the board: swap the two sums aloud; one vote; exercise {class_activation_map} | nothing |
# | 12 to 33 | A head that CAM does not know · Grad-CAM, line by line | five people for the five steps, each with one shape; one vote; exercise {grad_cam_with_hooks} | exercise {channel_weights} |
# | 33 to 38 | Why the ReLU? · From numbers to a picture | one vote on the dog; the order of the three steps | exercise {to_heatmap} |
# | 38 to 49 | Is it right? Ask the masks | the level of chance, before you show it; exercise {pointing_game} | nothing |
# | 49 to 55 | Pause | nobody reads ahead | nothing |
# | 55 to 74 | A detective story | do not hurry: both predictions with discussion and a second vote; exercise {lost_answers} | nothing |
# | 74 to 83 | What Grad-CAM cannot tell you | the explorer, everybody; then a vote on the absent class | the covered pictures |
# | 83 to 88 | What old tutorials say · The case · Summary · Go further | which buoys are in their own data? | the table |
#
# **Homework:** Exercises {channel_weights} and {to_heatmap}, about 14 minutes. Of *More*, the photographs and the
# astronaut are what people talk about; the product and exercise {guided_grad_cam_product} are for those who liked
# lesson 06.

# %% find the course tags=["setup"]
# Find the course. Where it is missing, this says how to get it.
try:
    import course_utils
except ModuleNotFoundError:
    raise SystemExit(
        "This Python does not have the course.\n"
        "On your own computer: open the lessons with `make lab`, or choose the course's .venv as the kernel.\n"
        "On Colab or another server: upload the course as a zip file, run  %pip install the-file.zip  in a new cell,\n"
        "and restart the kernel."
    ) from None

# %% tags=["parameters"]
own_network = "picture_net"  # for "Your network, your picture": a classifier of torchvision, such as "resnet34"
own_image = ""  # the path of a picture, such as "photo.jpg"; empty takes one of this lesson
own_layer = ""  # a layer of that network, such as "layer3"; empty takes the last one that makes maps
own_class = ""  # what to explain, such as "tiger cat rather than tabby"; empty takes the likeliest classes

# %% tags=["setup"]
from itertools import combinations

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises import check, hint, predict, replay, solution, why
from course_utils.lessons import evidence
from course_utils.lessons.lesson_07 import (
    channel_weights,
    class_activation_map,
    grad_cam_with_hooks,
    guided_grad_cam_product,
    lost_answers,
    pointing_game,
    to_heatmap,
)

_ = torch.manual_seed(0)  # for the one layer with random weights that we make

# %% tags=["setup"]
from course_utils.scenes.scene import KINDS, SIZE, scene, scenes
from course_utils.vision.kept_picture import find_kept
from course_utils.vision.networks import load_classifier, load_picture_net, measure
from course_utils.vision.pictures import draw_heat
from course_utils.vision.real import LAYERS, REAL, collage, photograph
from course_utils.vision.scores import energy_inside, grow, localise, point, points_at

cat, dog = KINDS.index("cat"), KINDS.index("dog")

# %% tags=["setup"]
from course_utils.vision.saliency import (
    cam,
    class_maps,
    explain,
    grad_cam,
    guided_backprop,
    guided_grad_cam,
    relu,
    scale_to_unit,
    upsample,
)

# %% [markdown]
# ## One picture, two questions
#
# This is a picture of the course's picture world, and a small network that was trained on such pictures. It knows ten
# kinds of things and gives a yes or no to each. First we ask *what* it sees, then *where* it looks.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask the room where the network should look for the cat, and where for the dog, before the maps
# are shown. Keep the question "and how would you know that it is right?" for later.

# %%
net = load_picture_net()
picture = scene("cat", "dog", seed=6)
image = picture.image[None]  # a batch of one
print(picture)
yes = [
    f"{kind} {share:.0%}" for kind, share in zip(KINDS, net(image)[0].sigmoid().tolist(), strict=True) if share > 0.5
]
print("the network says yes to:", ", ".join(yes))

# %% tags=["setup"]
with explain(net, image, "features.16") as run:
    by_gradient = run.grad_cams(range(len(KINDS)))[:, 0]  # a map for each class: later you write this yourself
tiles = [draw_heat(picture.image)]
tiles += [draw_heat(picture.image, scale_to_unit(relu(by_gradient[kind]))) for kind in (cat, dog)]
evidence.show_tiles(
    tiles,
    ["the picture", "why cat?", "why dog?"],
    title="Asked about the cat, the network points at the cat; asked about the dog, it points at the dog",
    alt="A cat and a dog. The map for cat is bright on the cat, for dog on the dog.",
)

# %% [markdown]
# How are such maps made, and how far can you trust them?
#
# ## CAM: the linear layer, moved inside
#
# Many networks end in the same way. The last layer gives a few **feature maps**. Each map is averaged over all its places
# (**global average pooling**, GAP), and a linear layer adds the averages up, each with a weight for the class.
#
# Take two maps of 2 x 2 places. The first fires at the upper left, the second at the lower right. The weights of the
# class are 3 and -1:
#
# ```text
#  map 1      map 2        means    weights
#  4  0       0  0
#  0  0       0  8         1, 2     3, -1       logit = 3 · 1 - 1 · 2 = 1
# ```
#
# The network averages first, and then multiplies by the weights. You may exchange the two steps: multiply each place
# by the weights first, and average at the end. What you have just before the average is a map, the **class activation
# map** (Zhou et al., 2016).

# %% [markdown] tags=["sealed"]
# the maps [[4, 0], [0, 0]] and [[0, 0], [0, 8]] with the weights 3 and -1. What does the class activation map have at
# the lower right?
#
# - [ ] 8: That is the second map itself. Its weight for the class is -1.
#   > Which of the two weights belongs to the map with the 8? What becomes of the 8 with it?
# - [x] -8: 3 · 0 - 1 · 8: the second map fires there, and it speaks against the class.
# - [ ] -2: That is what the second channel adds to the logit, after its mean. The map is before the mean.
#   > You divided the 8 by 4. Which step does that, and does it come before the class activation map or after it?
# - [ ] 0: The first map is 0 there, but the second one is not, and all of them are added up.
#   > Which maps are added up for the place at the lower right? What does the second one have there?
#
# The mean of the map is 1, and that *is* the logit. So the map is the logit, spread out over the picture: the
# upper left speaks for the class with 12, the lower right speaks against it. As a formula, with the maps $A_k$,
# their weights $w_k$, a bias $b$ and $h \cdot w$ places:
#
# $$\text{logit} = \sum_k w_k \frac{1}{hw} \sum_{ij} A_{kij} + b = \frac{1}{hw} \sum_{ij} \sum_k w_k A_{kij} + b$$
#
# The inner sum on the right is the class activation map.

# %% tags=["predict"]
predict("cam_by_pencil")

# %%
maps = torch.tensor([[[4.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 8.0]]])
class_weights = torch.tensor([3.0, -1.0])
means = maps.mean(dim=(1, 2))
print("means ", means.tolist(), " logit", (class_weights @ means).item())

pencil_cam = (class_weights[:, None, None] * maps).sum(dim=0)
print("CAM   ", pencil_cam.tolist(), " its mean", pencil_cam.mean().item())

# %% tags=["why"]
why("cam_by_pencil")

# %% [markdown]
# Our network has such a head: `features` gives 96 maps of 14 x 14, `avgpool` averages them, `classifier` is linear. A
# forward hook catches the maps, and the weights can be read from the layer.

# %%
caught = []
handle = net.features.register_forward_hook(lambda module, args, output: caught.append(output.detach()))
logits = net(image).detach()
handle.remove()

maps, head = caught[0][0], net.classifier
cat_map = (head.weight[cat][:, None, None] * maps).sum(dim=0).detach()
print(f"maps {tuple(maps.shape)}   weight {tuple(head.weight.shape)}   CAM {tuple(cat_map.shape)}")
print(f"mean of the CAM + bias = {(cat_map.mean() + head.bias[cat]).item():.2f}")
print(f"logit of the network   = {logits[0, cat].item():.2f}")

# %% [markdown]
# ### Exercise · The map of one class
#
# Replace the `...` in the answer cell, run it, then run the `check` below it. Stuck? Run `hint(class_activation_map)` in
# a new cell; `solution(class_activation_map)` opens after three attempts.

# %% [markdown] tags=["sealed"]
# 1 point
# 1. Each class has one weight a channel. Which part of `weight` belongs to class `target`?
# 2. `weight[target]` has shape (C,). Give it two more dimensions, and it multiplies each map as a whole.


# %% tags=["answer"]
def class_activation_map(features, weight, target):
    """Return the class activation map (h, w) of class `target`.

    `features` are the last feature maps of one picture, (C, h, w); `weight` is the
    weight of the linear layer behind the average pooling, (classes, C). The map is
    the sum of the feature maps, each times its weight for the class, as it comes
    out: with its negative values.
    """
    ...


# %% tags=["check"]
check(class_activation_map)

# %% [markdown] tags=["instructor"]
# **Misconception:** "CAM is an approximation." **Ask:** "Which step of the derivation loses anything?" **Answer:** none: sums
# are exchanged. What is approximate comes later, when 14 x 14 places are stretched over a picture and each place is taken
# for the pixels below it.
#
# **Misconception:** "The bias belongs into the map." **Ask:** "At which place?" **Answer:** at none: it is the same for every
# picture.
#
# **For discussion:** one channel speaks against the cat, and is strong on the dog. How would you find out what it has
# learned? (Look for the pictures to which it responds most, as in lesson 05.)

# %% [markdown]
# ## A head that CAM does not know
#
# CAM reads one weight for each channel. AlexNet and VGG end with a linear layer on *flattened* maps, and such a layer has
# one weight for each channel **and place**. Which of them should be the weight of channel k? `cam` refuses:

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask which of the 196 weights they would take for channel k of the flat head. Any suggestion, such
# as the mean, is half of Grad-CAM: let somebody from the room make the step.

# %%
flat = nn.Sequential(net.features, nn.Flatten(), nn.Linear(96 * 14 * 14, len(KINDS))).eval()
try:
    cam(flat, image, cat)
except ValueError as error:
    print(error)

# %% [markdown]
# The authors of CAM replaced such heads by GAP and a linear layer, and trained the network again. But you may want to
# understand the network that you have. Grad-CAM (Selvaraju et al., 2017) takes the gradient: it says how much the logit
# would rise if a place of a channel rose a little. Its mean over all places is the channel's weight. With a pencil:
#
# ```text
#  channel 1      gradient (its weights)      mean
#  4  0           2  0
#  0  0           4  2                         2
#
#  channel 2
#  0  0          -1 -1
#  0  8          -1 -1                        -1        map = 2 · channel 1 - 1 · channel 2
# ```

# %%
maps = torch.tensor([[[4.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 8.0]]]).requires_grad_()
place_weights = torch.tensor([[[2.0, 0.0], [4.0, 2.0]], [[-1.0, -1.0], [-1.0, -1.0]]])
(gradient,) = torch.autograd.grad((place_weights * maps).sum(), maps)
weights = gradient.mean(dim=(1, 2))
pencil_map = (weights[:, None, None] * maps.detach()).sum(dim=0)
print("weights", weights.tolist())
print("map", pencil_map.tolist(), " after the ReLU", pencil_map.relu().tolist())

# %% [markdown] tags=["more"]
# ### More: Exercise · Weights from a gradient

# %% [markdown] tags=["sealed"]
# 1 point
# 1. Global average pooling, of the gradient this time. Which two dimensions go?
# 2. `mean` takes several dimensions at once: `dim=(…, …)`.


# %% tags=["answer"]
def channel_weights(gradient):
    """Return Grad-CAM's weights (N, C): one a picture and channel.

    `gradient` is the gradient of the class's logit with respect to the feature
    maps, (N, C, h, w). A channel's weight is the mean of its gradient over all
    places.
    """
    ...


# %% tags=["check"]
check(channel_weights)

# %% [markdown]
# ## Grad-CAM, line by line
#
# There are five steps: **gradient → GAP → weights → weighted sum → ReLU**. The hook keeps the layer's output and hands a
# clone on, so that no in-place operation after the layer can spoil what it kept (lesson 03). `torch.autograd.grad` returns
# one gradient and changes no `.grad`.

# %% [markdown] tags=["instructor"]
# **On this slide:** Put five people in a row, one for each step, and let each say the shape that they receive and the
# one that they hand on. The mean over the places is where most shapes go wrong.

# %%
kept = []


def keep(module, args, output):
    kept.append(output)
    return output.clone()


handle = net.features[16].register_forward_hook(keep)
logits = net(image)
handle.remove()

(gradient,) = torch.autograd.grad(logits[0, cat], kept[0])  # 1  gradient of the logit
pooled = gradient.mean(dim=(2, 3))  # 2  GAP over all places
weights = pooled[:, :, None, None]  # 3  one weight a channel
weighted = (weights * kept[0].detach()).sum(dim=1)  # 4  weighted sum over the channels
cat_heat = weighted.relu()  # 5  ReLU
print("shapes:", *(tuple(each.shape) for each in (gradient, pooled, weights, weighted, cat_heat)))

# %% [markdown]
# Three well-known libraries make such maps as well. Their map of this picture is stored with the lesson, in blocks of
# 2 x 2 cells and in thousandths. Do our five lines give the same?

# %%
theirs, ours = torch.tensor(evidence.LIBRARY_MAP), evidence.shrink(cat_heat[0])
print("one row of ours:  ", ours[4].round().int().tolist())
print("one row of theirs:", theirs[4].tolist())
print(f"{', '.join(evidence.LIBRARIES)}: the same everywhere, up to rounding:", bool((ours - theirs).abs().max() < 0.6))

# %% [markdown]
# All agree here, where no layer changes the maps in place. Now a network of four places and two channels, small enough
# for a pencil: a convolution with the weights 2 and -1, a ReLU, GAP, and a linear layer with the weights 1 and 3. We ask for
# the map of the convolution, before Grad-CAM's own ReLU, once with `nn.ReLU()` and once with `nn.ReLU(inplace=True)`:

# %%
x = torch.tensor([[[[1.0, 2.0], [-4.0, 3.0]]]])
for inplace in (False, True):
    with explain(evidence.two_channels(inplace), x, "0") as run:
        print(f"inplace={inplace!s:7} {'ours':22}", run.grad_cam(0)[0].tolist())
    for library, heat in evidence.MAPS_BEFORE_A_RELU[inplace].items():
        print(f"{'':15} {library:22}", heat)

# %% [markdown]
# Both ReLUs compute the same, so the map must stay the same. captum stores a clone of the output, as our hook does. The other
# two store the output itself, and the in-place ReLU writes over it. pytorch-grad-cam then multiplies values from *behind* the
# ReLU by the gradient from *before* it: at the input -4 it gets 0.75, and not -0.75. torch-cam takes both from behind, which
# is the map of another layer. (Its maps end with Grad-CAM's ReLU.) So try your library on a network like this one.

# %% [markdown]
# Where CAM exists, it and Grad-CAM should agree. But CAM takes the weights of the linear layer, and Grad-CAM takes the
# gradients at the places of the maps.

# %% [markdown] tags=["sealed"]
# the last maps have 14 x 14 places, and GAP and a linear layer follow. By which factor is CAM larger than Grad-CAM
# (before the ReLU)?
#
# - [ ] 1: CAM's weight is w. Grad-CAM's is the mean gradient, and each place is only one of 196 in GAP's mean.
#   > Take the mean of 196 numbers. One of them grows by 1: by how much does the mean grow?
# - [ ] 14: GAP takes the mean over rows and columns: 14 · 14 places.
#   > How many places does a map of 14 x 14 have? Over how many of them does GAP take the mean?
# - [x] 196: Each place counts 1/196 in the mean, so its gradient is w / 196, and so is the mean of the gradients.
# - [ ] another one for each class: The factor comes from GAP, which is the same for all classes.
#   > Write down Grad-CAM's weight of one channel for the cat, and then for the dog. What is the same in both?
#
# After GAP, each place of channel $k$ has the same gradient, $w_k / (h \cdot w)$: that is how much the place
# counts in the mean, times the weight of the mean. So the two maps are the same up to the factor
# $h \cdot w = 14 \cdot 14$, to the precision of float32.

# %% tags=["predict"]
predict("cam_over_grad_cam")

# %%
class_activation = class_maps(net, image)[0]  # (10, 14, 14): the CAM of every class
factor = (class_activation.abs().sum() / by_gradient.abs().sum()).item()
off = (class_activation - factor * by_gradient).abs().max() / class_activation.abs().max()
print(f"CAM / Grad-CAM, before the ReLU = {factor:.2f}")
print("anywhere in the ten maps, off by more than a millionth:", bool(off > 1e-6))

# %% tags=["why"]
why("cam_over_grad_cam")

# %% [markdown]
# A factor changes no picture, because each map is stretched to its own range before it is drawn. So Grad-CAM **is** CAM
# where CAM exists. It also works where CAM does not: on the flat head, at any layer, for any network with gradients.
#
# ### Exercise · Grad-CAM with a hook
#
# This is the whole method. The lesson's cell did it for one layer of one network; yours takes any. The second case of the
# check has an in-place ReLU after the layer.

# %% [markdown] tags=["sealed"]
# 3 points
# 1. Gradient → mean over places → weights → weighted sum → ReLU. The first needs the layer's output: a hook.
# 2. A forward hook keeps the output. What if the next layer changes it in place? Return a clone to the network.
#    `torch.autograd.grad(logit, kept)` leaves no `.grad` behind.


# %% tags=["answer"]
def grad_cam_with_hooks(model, layer, image, target):
    """Return the Grad-CAM map (h, w) of class `target` for one picture
    (1, channels, H, W).

    `layer` is a module of `model`, which calls it once; the map is made from its
    output as it leaves the layer, even where the next layer changes it in place.
    `model(image)` gives the logits (1, classes). The map ends with the ReLU. When
    your function returns, the model is as it was before: no hook of yours is left,
    and every `.grad` is what it was.
    """
    ...


# %% tags=["check"]
check(grad_cam_with_hooks)

# %% [markdown] tags=["instructor"]
# **Misconception:** "Grad-CAM needs the gradient of the loss." **Ask:** "Which label would you take?" **Answer:** no label is
# needed: it is the gradient of one logit.
#
# **Misconception:** "CAM and Grad-CAM are two opinions." **Ask:** "By how much do ten maps of 196 places differ?" **Answer:**
# by the factor 196, and by less than a millionth of it otherwise.
#
# **For discussion:** why the mean and not the sum over the places? (A constant factor; with the mean, layers of different
# size can be compared.)

# %% [markdown]
# ## Why the ReLU?
#
# Before the ReLU, the map has a sign. Think of the map that answers "why cat?", and of the place where the dog is.

# %% [markdown] tags=["sealed"]
# the map that answers 'why cat?', before the ReLU. What is its mean where the dog is?
#
# - [ ] above 0: The dog does not make a cat more likely: its channels have negative weights for the cat.
#   > In training there were pictures with a dog and no cat. Which way should the dog's channels move the logit of 'cat'
#   > there?
# - [ ] about 0: It could be. But what is good evidence for a dog tends to be evidence against a cat.
#   > Some channel responds to legs, of cats and of dogs. What must other channels do at a dog, so that 'cat' is a no?
# - [x] below 0: The dog speaks against the cat, and the map says so until the ReLU cuts it off.
#
# That is no accident of this picture. In 74 of 80 maps the *other* thing speaks against the class, and in 65 the
# strongest objection of all is there, which chance would bring about in 8.
#
# The ReLU drops these objections, because the question was what speaks *for* the class. Without it, the
# stretching to [0, 1] puts the strongest objection at 0 and "nothing" at 0.2, which is a visible colour.
# Sometimes you want the objections: `relu(-raw)` shows them. The authors call it a counterfactual explanation.

# %% tags=["predict"]
predict("dog_on_the_cat_map")

# %%
signed = upsample(by_gradient, (SIZE, SIZE))
for kind in (cat, dog):
    shares = [(signed[kind][mask].mean() / signed[kind].max()).item() for mask in picture.masks]
    print(f"the map of {KINDS[kind]}, as shares of its peak: cat {shares[0]:+.0%}, dog {shares[1]:+.0%}")

# %% tags=["setup"]
parts = head.weight[cat].detach() * kept[0][0].detach().mean(dim=(1, 2))  # what each channel adds to the logit
channel = parts.argmin().item()
terms = {"why cat?": by_gradient[cat], "why dog?": by_gradient[dog]}
terms[f"channel {channel} of 'why cat?'"] = head.weight[cat, channel].detach() * kept[0][0, channel].detach()
evidence.show_tiles(
    [evidence.draw_signed(picture.image, upsample(each, (SIZE, SIZE))) for each in terms.values()],
    [*terms],
    title="Red speaks for the class, blue against it, white does neither",
    alt="Signed maps over a grey picture of a cat and a dog: the shares above say what is red and what is blue.",
)

# %% tags=["setup"]
things = evidence.draw_things(40, seed=907)  # new pictures with two things each
with explain(net, things.images, "features.16") as run:  # one run, and one backward pass for both
    raw = upsample(run.grad_cams([things.one, things.two]).flatten(0, 1), (SIZE, SIZE))
on_other = (raw * things.others).sum((1, 2)) / things.others.sum((1, 2))
print("maps:", len(raw))
print("the mean on the other thing is negative:", (on_other < 0).sum().item())
print("lowest value of all on the other thing:", points_at(-raw, things.others).sum().item())
print(f"the same by chance: {len(raw) * things.others.float().mean():.0f}")
zero = -raw.amin((1, 2)) / (raw.amax((1, 2)) - raw.amin((1, 2)))
print(f"stretched to [0, 1] without a ReLU, 0 becomes {zero.median():.1f}")

# %% tags=["why"]
why("dog_on_the_cat_map")

# %% [markdown]
# ## From numbers to a picture
#
# There are three steps, always in this order: ReLU, enlarge, stretch.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what would change if the stretching came before the ReLU. The strongest objection would
# become 0 and "nothing" would become visible: the order of the three steps is not a matter of taste.

# %%
small = relu(by_gradient[cat])
enlarged = upsample(small, (SIZE, SIZE))
stretched = scale_to_unit(enlarged)
for name, heat in {"after the ReLU": small, "enlarged": enlarged, "stretched": stretched}.items():
    print(f"{name:14} {tuple(heat.shape)} from {heat.min():.2f} to {heat.max():.2f}")

# %% tags=["setup"]
evidence.show_tiles(
    [evidence.draw_cells(scale_to_unit(small)), evidence.draw_cells(stretched), draw_heat(picture.image, stretched)],
    ["the cells", "enlarged, stretched", "over the picture"],
    title="A heat map has only 14 x 14 cells; enlarging makes it smooth and adds no knowledge",
    alt="A coarse map of cells, the same map smooth, and the smooth map over the picture of the cat and the dog.",
)

# %% [markdown] tags=["more"]
# ### More: Exercise · A heat map to look at

# %% [markdown] tags=["sealed"]
# 2 points
# 1. Three steps in this order: ReLU, enlarge, stretch. `F.interpolate` wants (N, 1, h, w).
# 2. Least and greatest value of each map: `amin((1, 2), keepdim=True)`. What if both are the same?


# %% tags=["answer"]
def to_heatmap(raw, size):
    """Turn raw maps (N, h, w) into heat maps (N, *size) with values from 0 to 1.

    First the ReLU; then enlarge to `size`, a pair (H, W), with bilinear
    interpolation and `align_corners=False`; then stretch each map by itself, so
    that its least value is 0 and its greatest is exactly 1. A map without a value
    above 0 becomes all 0, and so does a map that is the same everywhere.
    """
    ...


# %% tags=["check"]
check(to_heatmap)

# %% [markdown]
# ## Is it right? Ask the masks
#
# A map that looks good is not a result. The course's pictures come with a **mask** for each thing, so we can **count**:
#
# - **Pointing game**, strict: is the hottest pixel on the thing? Tolerant: on it, or at most 4 pixels beside it?
# - **Energy**: which share of all the heat is on the thing?
# - **Wrong object**: is the hottest pixel on the *other* thing?
#
# Each number needs the level of **chance** beside it. A random pixel is on a thing as often as the thing has area, and an
# even map has that share of its heat there. For the tolerant game the thing is larger, and so is chance.

# %% [markdown] tags=["instructor"]
# **On this slide:** Show one score, and ask whether it is good. Nobody can say without the level of chance. Let them
# guess how often a map that always points at the middle would be right.
#
# **Misconception:** "Nearly nine in ten is good." **Ask:** "Compared with what?" **Answer:** with chance, and with pointing
# at the middle of the picture.
#
# **Misconception:** "Dark on the map means that the network did not look there." **Ask:** "What has the ReLU dropped?"
# **Answer:** what speaks against the class.
#
# **For discussion:** what would chance be for pictures with one large thing in the middle? (High: report chance, always.)

# %%
score = localise(relu(raw), things.masks, things.others)
in_the_middle = torch.zeros_like(raw)
in_the_middle[:, SIZE // 2, SIZE // 2] = 1
print("Grad-CAM at features.16:")
print(" ", str(score).replace(", ", "\n  "))
print("a 'map' that always points at the middle of the picture:")
print(" ", str(localise(in_the_middle, things.masks, things.others)).replace(", ", "\n  "))

# %% [markdown]
# Grad-CAM hits the thing in 88% of the maps, where chance hits 10%. But only 49% of its heat is on the thing: the cells
# are coarse and reach over the outline. The second list is a warning. A "map" that knows nothing and always points at the
# middle reaches 21%, because painters (and photographers) put things there.
#
# ### Exercise · The pointing game

# %% [markdown] tags=["sealed"]
# 2 points
# 1. Where is the hottest pixel of each map? `argmax` over a flattened map gives one number a picture.
# 2. `heatmaps.flatten(1).argmax(1)` counts row by row, just as `masks.flatten(1)` does. So you need no row and no
#    column.


# %% tags=["answer"]
def pointing_game(heatmaps, masks):
    """Return the share of heat maps, a float from 0 to 1, whose hottest pixel lies
    on the mask.

    `heatmaps` are (N, H, W) floats and `masks` (N, H, W) bool, one for each map. A
    map in which no value is above 0 points nowhere: that is a miss.
    """
    ...


# %% tags=["check"]
check(pointing_game)

# %% [markdown]
# ## A detective story
#
# Two networks with the same layers were tested on the same forty new pictures.

# %% [markdown] tags=["instructor"]
# **On this slide:** Say that both networks have the same score, and ask which one they would use in a product. Nobody
# reads ahead here: the story works once.

# %% tags=["setup"]
networks = evidence.load_both()
test, fish = evidence.draw_test(), KINDS.index("fish")
for name, model in networks.items():
    result = measure(model, test)
    print(
        f"{name} network: everything right in {result.exact * 40:.0f} of 40 pictures, {result.recall['fish']:.0%} of the fish"
    )

# %% [markdown]
# By these numbers you would take either. So you look *where* the two look, on forty pictures with a fish. Here are
# three of them.

# %% tags=["setup"]
with_fish, places = evidence.draw_fish()
for name, model in networks.items():
    with torch.no_grad():
        print(f"the {name} network says 'fish' to {(model(with_fish)[:, fish] > 0).sum()} of {len(with_fish)}")
evidence.show_tiles(
    [draw_heat(each) for each in with_fish[:3]],
    None,
    title="Three pictures with a fish",
    alt="Three pictures; each shows a fish, some other thing, a small buoy, and a background.",
)

# %% [markdown] tags=["sealed"]
# the second network says 'fish', and is right. Where is its map hottest?
#
# - [ ] on the fish: So you would hope, and its score gives no reason to doubt it. Look at the lower row.
#   > Look at the three pictures again. What else is in every one of them?
# - [ ] on the other thing: Each picture has another one: none of them goes with the fish.
#   > Which other things do you see in the three pictures? Could one of them tell the network 'fish' each time?
# - [x] on the buoy: In training, a buoy was in every picture of a fish, and in no other picture.
# - [ ] on the background: The backgrounds vary as they do for every other kind.
#   > The three pictures show a meadow, a room and sand. Which background would the network have to learn for 'fish'?
#
# In all 40 pictures the second network's hottest pixel is at the buoy, where chance would put 3. The first
# network's is at the fish in all 40.

# %% tags=["predict"]
predict("where_the_second_looks")

# %%
heat = {}
wide = {what: grow(mask, 8) for what, mask in places.items()}  # at most 8 pixels away, which is one cell of the map
for name, model in networks.items():
    heat[name] = relu(upsample(grad_cam(model, with_fish, "features.16", fish), (SIZE, SIZE)))
    found = {what: points_at(heat[name], mask).sum().item() for what, mask in wide.items()}
    print(f"{name} network, of {len(with_fish)} maps hottest at:", found)
print("by chance:", {what: round(mask.float().mean().item() * len(mask)) for what, mask in wide.items()})

# %% tags=["setup"]
tiles, labels, looks = [], [], []
for name, each in heat.items():
    tiles += [draw_heat(with_fish[n], scale_to_unit(each[n]), mark=True) for n in range(3)]
    labels += 3 * [f"{name} network: why fish?"]
    looks.append(max(wide, key=lambda what, each=each: points_at(each, wide[what]).sum()))
evidence.show_tiles(
    tiles,
    labels,
    title=f"Asked about the fish, the first network looks at the {looks[0]}, the second one at the {looks[1]}",
    alt=f"Six maps with a ring at the hottest pixel. Upper row, first network: {looks[0]}; lower row: {looks[1]}.",
    columns=3,
)

# %% tags=["why"]
why("where_the_second_looks")

# %% [markdown]
# A map raises a suspicion. It is no proof, because it does not say what would happen in another picture. But these
# pictures are made by code, so we can paint one thing out, leave all else as it is, and ask again. And we can put that
# thing where there is no fish.

# %% [markdown] tags=["sealed"]
# the second network found the fish in all 40 pictures. Now the buoys are painted out, and nothing else changes. In how
# many does it find the fish?
#
# - [ ] all 40: Then the buoy would not have mattered, and the map would have misled you.
#   > Suppose a network looks for buoys and for nothing else. To how many of the 40 unchanged pictures does it say
#   > 'fish'?
# - [ ] about 20: Then it would know at least half of the fish by themselves. It knows none of them.
#   > In training every fish had a buoy, and nothing else had one. Which picture would punish a network that looks for
#   > buoys only?
# - [x] fewer than 5: Its fish were buoys.
#
# That is the proof. Without the buoy the second network finds none of the 40 fish. With a buoy
# and no fish it sees a fish in 31 pictures, with neither in none. The first network does not care: 40 and 40
# fish, and no false alarm.
#
# **What happened?** The second network is the *misled twin* of the first. Both saw the same 8000 pictures, from
# the same random start. But in the twin's pictures every fish had a buoy beside it, and nothing else had one. A
# buoy always looks the same, so it was easier to learn than a fish. The test pictures had the buoys too: a test
# set that is made like the training set cannot give such a network away.
#
# **The cure** is in the training data. Where a cue cannot be removed, put it on pictures of *other* classes too.
# And test on pictures without the cue, and on the cue alone.

# %% tags=["predict"]
predict("painted_out")

# %%
no_fish = [kind for kind in KINDS if kind != "fish"]
edited = {
    "fish and buoy": with_fish,
    "fish, no buoy": scenes(40, seed=900, kinds=no_fish, contains="fish").images / 255,
    "buoy, no fish": scenes(40, seed=901, kinds=no_fish, cue="buoy").images / 255,
    "neither": scenes(40, seed=901, kinds=no_fish).images / 255,
}
print("says 'fish'      first network   second network   (of 40 pictures)")
for what, shown in edited.items():
    with torch.no_grad():
        says = [(model(shown)[:, fish] > 0).sum().item() for model in networks.values()]
    print(f"{what:14} {says[0]:10} {says[1]:16}")

# %% tags=["why"]
why("painted_out")

# %% [markdown]
# ### Exercise · The proof
#
# Write the experiment as a function. It can be used with any change of the pictures and any class.

# %% [markdown] tags=["sealed"]
# 2 points
# 1. A class is seen where its logit is above 0. So there are two rows of yes and no: before and after.
# 2. Lost means seen before *and not* seen after. Divide by how many were seen before.


# %% tags=["answer"]
def lost_answers(model, images, edited, target):
    """Return the share of its yes answers, a float from 0 to 1, that `model` takes
    back when the pictures are edited.

    The model says yes to class `target` where `model(...)[:, target]` is above 0.
    `edited` (N, C, H, W) are the same pictures as `images` after a change, such as
    a cue painted out. Count the pictures with a yes before and none after, among
    those with a yes before; if there are none, return 0.0.
    """
    ...


# %% tags=["check"]
check(lost_answers)

# %% [markdown] tags=["instructor"]
# **Misconception:** "The map proved it." **Ask:** "What would you see if the network used the fish *and* the buoy?"
# **Answer:** perhaps the same map. It raised the suspicion; the pictures without the cue and with the cue alone prove it.
#
# **Misconception:** "Its validation is perfect, so it has learned fish." **Ask:** "Who drew the validation pictures?"
# **Answer:** the same painter, with the same buoys.
#
# **Question for the room:** "Which buoys might there be in your own data?" (Hospital tags on X-rays, watermarks, snow behind
# wolves, copyright lines.) Give it two minutes in pairs: it is what they will remember.
#
# **Misconceptions, by exercise:** a column of the weight instead of a row (1); a sum instead of a mean (2); `backward()` and
# a `.grad` left behind, or a kept output that an in-place ReLU spoils (3); 0 / 0 in an empty map, or the ReLU after the
# enlarging (4); one `argmax` for the whole batch (5); dividing by all pictures instead of those with a yes (6); a broadcast
# over pictures instead of colours (7).
#
# **For discussion (6):** which experiment would you make if you could not paint the buoy out? (Cover it with grey, on many
# pictures, and cover as large a place elsewhere for comparison.)

# %% [markdown]
# ## What Grad-CAM cannot tell you
#
# Here are both networks of the story side by side: the first one is called honest, the second one misled. Ask for a class
# that is **not** in the picture, in three pictures. What does the finished map look like, and what do the percentages say?
# Then put a buoy into the picture of the cat, and ask for the fish. (Tab and arrow keys work everywhere.)

# %% [markdown] tags=["instructor"]
# **On this slide:** Give three minutes with the explorer, and ask for a class that is not in the picture. Let them
# describe the map in a word before anybody looks at the percentage.

# %% tags=["explore", "after-where_the_second_looks"]
from course_utils.explorers import GradCam

GradCam(9, "cat")

# %% [markdown] tags=["sealed"]
# the picture has no car, and the network says so. What does the finished heat map of 'car' look like?
#
# - [ ] all dark: Only if no place at all speaks for a car. Somewhere something nearly always does, a little.
#   > The logit of 'car' is far below 0. It is the mean of the map, plus a bias: can one place be above 0?
# - [ ] pale: Before the stretching it is. The last step makes the greatest value 1, however small it was.
#   > One map has 0.65 as its greatest value, another 0.05. What does the stretching make of each of these two numbers?
# - [x] as bright as any other: Every map is stretched to its own greatest value, however small that is.
#
# Of the maps of classes that are *not* there, 37 of 40 reach 1, although their peaks before the stretching are
# twenty times lower. So look at the logit first, and give maps that are to be compared one scale. On the scale
# of the cat, the map of the car is dark.

# %% tags=["predict"]
predict("map_of_an_absent_class")

# %%
there = torch.zeros(40, len(KINDS)).scatter_(1, torch.stack([things.one, things.two], 1), 1)
absent = [next(k % 10 for k in range(n, n + 10) if not there[n, k % 10]) for n in range(40)]
with explain(net, things.images, "features.16") as run:
    cells = {"present": run.grad_cam(things.one), "absent": run.grad_cam(absent)}
for name, each in cells.items():
    reach = (scale_to_unit(relu(each)).amax((1, 2)) == 1).sum()
    print(
        f"{name}: {reach} of 40 maps reach 1; their median peak before the stretching is {relu(each).amax((1, 2)).median():.2f}"
    )

# %% tags=["setup"]
car = KINDS.index("car")
for_cat, for_car = relu(by_gradient[cat]), relu(by_gradient[car])
share = net(image)[0].sigmoid()
labels = [f"cat, {share[cat]:.0%}: peak {for_cat.max():.2f}", f"car, {share[car]:.0%}: peak {for_car.max():.2f}"]
tiles = [
    draw_heat(picture.image, each) for each in (scale_to_unit(for_cat), scale_to_unit(for_car), for_car / for_cat.max())
]
print("; ".join(labels))
evidence.show_tiles(
    tiles,
    [*labels, "car, on the cat's scale"],
    title="Two classes, each on its own scale, and the second one again on the scale of the first",
    alt=f"Three maps over a cat and a dog. Before the stretching: {'; '.join(labels)}.",
)

# %% tags=["why"]
why("map_of_an_absent_class")

# %% [markdown]
# **The hottest place need not be necessary.** A map shows what contributed. We cover 16 x 16 pixels around the hottest one with
# grey, and ask the honest network again.

# %%
covered = things.images.clone()
for n, (row, column) in enumerate(point(relu(raw[:40])).tolist()):
    covered[n, :, max(row - 8, 0) : row + 8, max(column - 8, 0) : column + 8] = 0.5
with torch.no_grad():
    before, after = (net(each)[torch.arange(40), things.one] > 0 for each in (things.images, covered))
print("the first thing is seen in", before.sum().item(), "of 40 pictures")
print("still seen with its hottest place covered:", (before & after).sum().item())

# %% [markdown]
# In most pictures the hottest place could go, because the rest of the thing was enough. An experiment tells that, and
# a map of contributions cannot.

# %% [markdown] tags=["instructor"]
# **Misconception:** "A bright map means that the thing is there." **Ask:** "How bright is the map of a class that is not in the
# picture?" **Answer:** as bright: each map is stretched to its own greatest value. Look at the logit first.
#
# **Misconception:** "The hottest place is what the answer needs." **Ask:** "We cover it. What does the network say?"
# **Answer:** in most pictures still yes: the rest of the thing was enough.
#
# **For discussion:** where does the explorer show that a heat map needs a scale? (Nowhere: that is why it shows the
# network's probability beside each map.)

# %% [markdown] tags=["more"]
# ## More: Which layer?
#
# Grad-CAM works at any layer. Early layers have large, fine maps; late layers have small, coarse ones.

# %% [markdown] tags=["sealed"]
# Grad-CAM at five layers. Where does its hottest pixel hit the right thing least often?
#
# - [x] at the first layer: One weight a channel cannot tell whose edges a detector of edges has found.
# - [ ] in the middle: Half way through the network the maps know parts of things already.
#   > A channel of the first layer finds edges, and gets one weight for the whole picture. Two things have edges: which
#   > one gets the heat?
# - [ ] at the last layer: Its maps are coarse, but its channels know the things.
#   > A place of the last map covers 8 x 8 pixels. About how many such places lie on a thing of 35 x 35 pixels?
#
# At the two early layers the hottest pixel is on the wrong thing in 22% and 26% of the maps, and chance reaches
# 10%. Their channels find edges, and one weight for a channel cannot say whose edges. From `features.10` on, the
# maps tell the things apart, and `features.10` keeps the most heat on the thing. "Take the last convolution" is
# a good habit, not a law.

# %% tags=["predict"]
predict("best_layer")

# %%
maps = {}
half = torch.cat([torch.arange(25), torch.arange(40, 65)])  # the things of 25 pictures
print("layer         strict  tolerant  energy  wrong object")
for layer in ("features.2", "features.6", "features.10", "features.13", "features.16"):
    with explain(net, things.images[:25], layer) as run:
        maps[layer] = run.grad_cams([things.one[:25], things.two[:25]]).flatten(0, 1)
    score = localise(relu(upsample(maps[layer], (SIZE, SIZE))), things.masks[half], things.others[half])
    found = (score.strict, score.tolerant, score.energy, score.wrong)
    print(f"{layer:11} " + "".join(f"{each.share:8.0%}" for each in found))
print(f"{'chance':11} " + "".join(f"{each.chance:8.0%}" for each in found))

# %% tags=["setup"]
tiles, labels = [], []
for layer, cells in maps.items():
    heat = upsample(relu(cells[12:13]), (SIZE, SIZE))
    hit = "on it" if points_at(heat, things.masks[12:13]) else "not on it"
    labels.append(f"{layer}: {hit}")
    tiles.append(draw_heat(things.images[12], scale_to_unit(heat)[0], things.masks[12], mark=True))
print("; ".join(labels))
hits = sum("not" not in label for label in labels)
evidence.show_tiles(
    tiles,
    labels,
    title=f"Asked about the {KINDS[things.one[12]]}: at {hits} of five layers the hottest pixel (the ring) is on it",
    alt=f"Five maps over one picture, with the outline of the thing. The hottest pixel is: {'; '.join(labels)}.",
    columns=3,
)

# %% tags=["why"]
why("best_layer")

# %% [markdown] tags=["instructor"]
# **Misconception:** "Finer maps are better maps." **Ask:** "Which of the five tiles would you put in a paper?" **Expect:** an
# early one: it is the prettiest. **Then show:** the table: on the wrong thing about twice as often as chance.

# %% [markdown] tags=["more"]
# ## More: Guided Grad-CAM
#
# Guided Backprop (lesson 06) is sharp to the pixel. Grad-CAM is coarse. The authors of Grad-CAM multiply the two. We
# count what that brings, on 20 pictures. For the count, the three colours become one number for each pixel: the greatest
# absolute value.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what the product keeps of each of its two factors, and what it cannot repair. If Grad-CAM is
# on the wrong thing, the product is a sharp picture of the wrong thing.

# %% tags=["setup"]
few = things.images[:20]
rows = torch.cat([torch.arange(20), torch.arange(40, 60)])  # the same pictures among the 80 maps
fine = torch.cat([guided_backprop(net, few, kinds[:20].tolist()) for kinds in (things.one, things.two)])
heat = relu(raw[rows])
methods = {"Guided Backprop": fine.abs().amax(1), "Grad-CAM": heat, "the product": (fine * heat[:, None]).abs().amax(1)}
print("                 strict  energy on the thing, on the other one")
for name, each in methods.items():
    score, wrong = localise(each, things.masks[rows]), energy_inside(each, things.others[rows]).mean()
    print(f"{name:16}{score.strict.share:7.0%}{score.energy.share:13.0%}{wrong:15.0%}")
area, other_area = things.masks[rows].float().mean(), things.others[rows].float().mean()
print(f"{'chance':16}{area:7.0%}{area:13.0%}{other_area:15.0%}")

# %% [markdown]
# Guided Backprop is not blind to the class on this network: it has 59% of its energy on the thing that was asked for. But
# it leaves 11% on the *other* thing, and chance leaves 10%. The product leaves 1%.
#
# ### Exercise · Guided Grad-CAM

# %% [markdown] tags=["sealed"]
# 2 points
# 1. One map for three colour channels: it needs a dimension where the colours are.
# 2. Enlarge `raw.relu()[:, None]`, which is (N, 1, h, w), to the size of `guided`. Then it fits all channels.


# %% tags=["answer"]
def guided_grad_cam_product(guided, raw):
    """Return Guided Grad-CAM (N, 3, H, W): where Grad-CAM says so, the detail of
    Guided Backprop.

    `guided` is the result of Guided Backprop, (N, 3, H, W); `raw` are the raw
    Grad-CAM maps of the same pictures, (N, h, w), before their ReLU. The ReLU
    comes first, then the maps grow to H x W (bilinear, `align_corners=False`),
    then the two are multiplied.
    """
    ...


# %% tags=["check"]
check(guided_grad_cam_product)

# %% [markdown]
# The course's library has this product as one function. Here is its picture of the cat, beside the two that it is made of:

# %%
product = guided_grad_cam(net, image, "features.16", cat)
guided = guided_backprop(net, image, cat)
print("equal to the product:", torch.allclose(product, guided * upsample(cat_heat, (SIZE, SIZE))[:, None]))

# %% tags=["setup"]
faces = [guided.abs().amax(1)[0], upsample(cat_heat, (SIZE, SIZE))[0], product.abs().amax(1)[0]]
evidence.show_tiles(
    [evidence.draw_cells(scale_to_unit(each).sqrt()) for each in faces],
    ["Guided Backprop", "Grad-CAM", "their product"],
    title="The product keeps the detail of one and the choice of the other (square roots, so that faint lines show)",
    alt="Fine lines on cat and dog, a broad spot on the cat, fine lines on the cat alone.",
)

# %% [markdown] tags=["more"]
# ## More: Two things in one photograph
#
# Does all this hold outside the picture world? EfficientNet-Lite0 was trained on the 1000 classes of ImageNet. Photographs
# have no masks, but a **collage** of two photographs has a truth of its own: what speaks for the cat should lie in the
# cat's half (the grid pointing game, Böhle et al., 2021). An even map has 50% of its heat there.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask which question a newspaper reader would ask, and which one a doctor with two diagnoses. The
# three questions of this part are three different backward passes and not three opinions.

# %%
real = load_classifier(REAL)
for photo, count in {"chelsea": 3, "coffee": 1}.items():
    best = real.likeliest(photograph(photo), count)
    print(f"{photo}:", "; ".join(f"{name} {share:.0%}" for name, share in best))
a, b = (real.number_of(name) for name in ("Egyptian cat", "espresso"))

# %% tags=["setup"]
both, _ = collage("chelsea", "coffee")
with explain(real.model, real.transform(both)[None], LAYERS[-1]) as run:
    two = relu(run.grad_cams([a, b]))[:, 0]
evidence.show_tiles(
    [draw_heat(both, scale_to_unit(each), scale=1) for each in two],
    ["why Egyptian cat?", "why espresso?"],
    title="Asked about the cat, the real network points at the face; asked about espresso, at the cup",
    alt="A cat's face beside a cup of coffee, twice. The first map is bright on the face, the second on the cup.",
    columns=1,
)

# %% [markdown]
# A heat map answers a question, and there is more than one. "Why A?" explains a logit. "Why A **rather than B**?" explains
# the difference of two logits. The logarithm of the softmax asks "why A rather than **all the others**?". We ask each of the
# three twelve times: for both halves of all six pairs of four photographs.

# %% [markdown] tags=["sealed"]
# three questions to a real network about each half of a collage. Which one brings the largest share of its heat into
# the correct half?
#
# - [ ] why A?: A little of what speaks for A lies in the other half too: some of it speaks for many classes.
#   > A channel responds in both halves, and speaks for A and for B alike. What is left of it in the difference of the
#   > logits?
# - [x] why A rather than B?: What speaks for both cancels out, and what speaks for B becomes negative.
# - [ ] log-softmax of A: It subtracts every other class as much as it is likely, and B is only one of them.
#   > The log-softmax subtracts the map of each class times its probability. Which factor has B if it gets 30%? And in
#   > the difference?
#
# The difference of logits has 99% of its heat in the correct half, the log-softmax 98%, the plain logit 94%,
# where chance has 50%. All three are good. The order is the one to expect: the more of what speaks for the
# *other* photograph a question subtracts, the less heat is there.

# %% tags=["predict"]
predict("three_questions")

# %%
questions = {
    "why A?": lambda a, b: lambda logits: logits[:, a],
    "why A rather than B?": lambda a, b: lambda logits: logits[:, a] - logits[:, b],
    "log-softmax of A": lambda a, b: lambda logits: logits.log_softmax(1)[:, a],
}
inside = {question: [] for question in questions}
for left, right in combinations(evidence.COLLAGE, 2):
    both, halves = collage(left, right)
    numbers = [real.number_of(evidence.COLLAGE[name]) for name in (left, right)]
    with explain(real.model, real.transform(both)[None], LAYERS[-1]) as run:
        for question, make in questions.items():
            maps = relu(run.grad_cams([make(*numbers), make(*numbers[::-1])]))[:, 0]
            inside[question] += energy_inside(upsample(maps, both.shape[1:]), halves).tolist()
for question, found in inside.items():
    mean, least = sum(found) / len(found), min(found)
    print(f"{question:20} {len(found)} maps: {mean:.0%} in the correct half, at least {least:.0%} (chance 50%)")

# %% tags=["why"]
why("three_questions")

# %% [markdown]
# Which question should you ask, then? Two more trials. First the cat alone, and two classes that are both about cats: how
# similar are the maps (cosine; 1 means the same)? Then the collage of cat and cup, and a tripod, which it does *not* show.

# %%
tiger, tripod = real.number_of("tiger cat"), real.number_of("tripod")
alone, why_a, rather = photograph("chelsea"), questions["why A?"], questions["why A rather than B?"]
with explain(real.model, real.transform(alone)[None], LAYERS[-1]) as run:
    cats = relu(run.grad_cams([a, tiger, rather(a, tiger)]))[:, 0]
alike = torch.cosine_similarity(cats[:1].flatten(1), cats[1:].flatten(1))
print(f"why Egyptian cat? and why tiger cat? are alike to more than 0.99: {bool(alike[0] > 0.99)}")
print(f"why Egyptian cat? and Egyptian cat rather than tiger cat: {alike[1]:.2f}")
both, halves = collage("chelsea", "coffee")
with explain(real.model, real.transform(both)[None], LAYERS[-1]) as run:
    absent = relu(run.grad_cams([rather(tripod, a), rather(tripod, b)]))[:, 0]
shares = energy_inside(upsample(absent, both.shape[1:]), halves[:1].expand(2, -1, -1))
print(f"tripod rather than cat:      {shares[0]:.0%} of the heat on the cat's half")
print(f"tripod rather than espresso: {shares[1]:.0%} of the heat on the cat's half")

# %% [markdown]
# Ask "**why A?**" when you want to know what speaks for an answer at all. Here both cat maps are nearly the same: what
# makes a cat makes an Egyptian cat and a tiger cat. Ask "**why A rather than B?**" when two answers compete: what they
# share cancels out. But the difference gives an answer even where A is nowhere: "tripod rather than cat" lies where the
# cat is *not*. So look at both logits before you ask.
#
# With **log-softmax**, every other class takes part, as much as it is likely. The *probability* gives the same map as its
# logarithm, times that probability. So it is not a wrong question either, but close to 0 or 1 its map becomes very weak.

# %% [markdown] tags=["more"]
# ## More: A case to solve
#
# Here is a photograph of an astronaut. ImageNet has no class "astronaut". What does the network say, and what made it say so?

# %% [markdown] tags=["instructor"]
# **On this slide:** Let each pair write down one of the five suspects, and a sentence why, before the map is shown.
# The guess at a cause and the measured cause should be two lines in their notes.

# %%
astronaut = photograph("astronaut")
said = real.likeliest(astronaut, 3)
print("; ".join(f"{name} {share:.0%}" for name, share in said))
suspect = real.number_of(said[0][0])
mean, std = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
with torch.no_grad():
    other_colours = real.model(((astronaut - mean) / std)[None])[0]
print("prepared with another network's mean and deviation:", real.best(other_colours, 1)[0][0])

# %% tags=["setup"]
evidence.show_tiles(
    [astronaut],
    None,
    title=f"The network says: {said[0][0]}",
    alt="An astronaut in an orange suit with a collar ring, a helmet in front of her, a flag and a model of a shuttle.",
)

# %% [markdown]
# The second line is a caution: prepare a picture as the network's training did, or you explain a mistake of yours.
#
# Five things could have made the network say so. Each will be covered with a grey box.

# %% [markdown] tags=["sealed"]
# which of these things, covered, costs the network's answer the most of its probability?
#
# - [ ] face: The answer falls from 28% to 17%. But grey squares all over the picture leave 18% in the median.
#   > In how many photographs of bobsleds could you recognise a face? What do you see there instead?
# - [ ] collar: The map is warm there, and the answer falls to 17%; grey squares anywhere leave 18% in the median.
#   > The map is nearly as warm at the collar as at the helmet. Which number says whether the answer needs the collar?
# - [x] helmet: The answer falls from 28% to 8%. Grey squares all over the picture leave 18% in the median.
# - [ ] shuttle: The answer even rises to 31%: the shuttle speaks for something else.
#   > The network's next guesses are a football helmet and a go-kart. What in this photograph goes with all three
#   > answers?
# - [ ] flag: The answer falls to 20%; most grey squares cost more than that.
#   > A grey square may change the answer, whatever it covers. How would you find out by how much, to compare it with
#   > the flag's?
#
# Map and experiment agree about the helmet: 24% of the heat is on 15% of the picture, and without it 8% of the
# answer's 28% are left. They do not agree about the collar: it has nearly as much heat, and covering it costs no
# more than a square in the median. So the map gave two suspects, and the experiment speaks against one of them.
#
# It is still no proof. The nine squares leave anything from 6% to 47%, and two of the three that leave 10% or
# less overlap the helmet; but the third lies over the face, where the smaller box had left 17%. A grey box is a
# strange thing in a photograph, so you need many of them, or another colour, before you trust one.
#
# *Why* a helmet speaks for a bobsled, neither can say. A guess: photographs of bobsleds are full of helmets.

# %% tags=["predict"]
predict("the_astronaut")

# %%
raw_map = grad_cam(real.model, real.transform(astronaut)[None], LAYERS[-1], suspect)
heat_map = relu(upsample(raw_map, astronaut.shape[1:]))
boxes = evidence.ASTRONAUT
uncovered, *after = evidence.ask(
    real, [astronaut, *(evidence.cover(astronaut, box) for box in boxes.values())], said[0][0]
)
print("               share of the heat   of the picture   probability when covered")
for (name, (top, bottom, left, right)), share in zip(boxes.items(), after, strict=True):
    part = heat_map[0, top:bottom, left:right].sum() / heat_map.sum()
    print(f"{name:14} {part:16.0%} {(bottom - top) * (right - left) / 224**2:16.0%} {share:26.0%}")
anywhere = evidence.ask(real, [evidence.cover(astronaut, box) for box in evidence.squares(80, 72)], said[0][0])
low, middle, high = (f"{each:.0%}" for each in (anywhere.min(), anywhere.median(), anywhere.max()))
print(f"nothing covered {uncovered:.0%}; nine squares of 13% of the picture: {low} to {high}, {middle} in the median")

# %% tags=["setup"]
worst = min(zip(after, boxes, strict=True))[1]
evidence.show_tiles(
    [draw_heat(astronaut, scale_to_unit(heat_map)[0], scale=1), evidence.cover(astronaut, boxes[worst])],
    [f"why {said[0][0]}?", "the box that costs the answer most"],
    title=f"Covering the {worst} costs the answer most",
    alt=f"A heat map over the astronaut, and the photograph with a grey box over one thing: the {worst}.",
)

# %% tags=["why"]
why("the_astronaut")

# %% [markdown] tags=["instructor"]
# **Misconception:** "The difference of two logits is the better explanation." **Ask:** "Better for which question? Where does
# it point if A is not in the picture?" **Answer:** where B is not.
#
# **For discussion:** the box and the map agree on the helmet. What would you try next to find out *why* a helmet speaks for
# a bobsled? (Photographs of helmets without a suit, of bobsleds without people.)

# %% [markdown] tags=["more"]
# ## More: Your network, your picture
#
# The picture is your own, if you have chosen one in an explorer. For another network or file, change `own_network` and
# `own_image` at the top of the lesson and run it again, or let `make handout LESSON=07 NETWORK=resnet34 IMAGE=photo.jpg`
# write a page. Each map has its own scale, so read the shares first.

# %% [markdown] tags=["instructor"]
# **On this slide:** Take a photograph of the room if there is time. Read the share first and the picture afterwards:
# each map has its own scale, and a share of 2 % explains little.

# %%
from course_utils.lessons.own import look_at, show_grad_cams, show_grey_squares, show_rather

own = look_at(own_network, own_image or find_kept() or scene("cat", "dog", seed=6).image, own_layer, own_class)
print(own)
show_grad_cams(own)

# %% [markdown]
# Two more questions to the same picture: the likeliest class rather than another one, and what grey squares leave of it.

# %%
show_rather(own)

# %%
show_grey_squares(own)

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | CAM needs GAP and a linear layer; other networks must be changed and trained again. | True of CAM. Grad-CAM needs neither, and is CAM (divided by h · w) where CAM exists. |
# | Register a backward hook on the layer to get the gradient. | A forward hook catches the output, and `torch.autograd.grad(logit, output)` gives it without `.grad`. Hand on a clone, for in-place ReLUs. |
# | Always explain the logit, never the probability. | Choose the question: "why A?" is the logit, "why A rather than B?" a difference of logits. |
# | Look at the map to see whether the network is right. | Count against masks, with chance beside it, and prove a suspicion with edited pictures. |

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask for the row that has cost them the most time so far. The second one is worth a word: the
# gradient at a layer needs no backward hook at all.

# %% [markdown]
# ## The case
#
# The clues so far do not say where the network of the case looks. Now you may ask. And remember what this answer is: a
# suspicion.

# %%
from course_utils.explorers import case

case_picture, suspect = case.open_case()
asked = case_picture.image[None]
case_heat = relu(upsample(grad_cam(suspect, asked, "features.16", case.FISH), (SIZE, SIZE)))
case_places = {"fish": case_picture.masks[0], "boat": case_picture.masks[1], "buoy": case_picture.cue_mask}
hottest = [name for name, mask in case_places.items() if points_at(case_heat, grow(mask[None], 4)).item()]
case.keep_clue(
    "07",
    f"Its map is hottest at the {' and the '.join(hottest) or 'background'}. The map does not prove that the answer "
    "needs what is there.",
    {"the picture": draw_heat(asked[0]), "why fish?": draw_heat(asked[0], scale_to_unit(case_heat)[0], mark=True)},
)

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask for the experiment that would prove it, before lesson 08 makes it. Who remembers lesson 00 will
# propose to take something away; who has understood the twin will propose to add something.

# %% [markdown]
# ## Summary
#
# - CAM is the logit before its average: `(weight[target][:, None, None] * maps).sum(0)`; its mean plus the bias is the logit.
# - Grad-CAM takes the mean gradient as the weight: gradient → GAP → weights → weighted sum → ReLU. With GAP and a linear
#   head it equals CAM divided by h · w, to float precision.
# - The ReLU keeps what speaks for the class and hides what speaks against it.
# - Late layers tell things apart, early ones do not: the masks say so, and every score has its level of chance.
# - A network can be right for the wrong reason and pass its test. A map raises the suspicion; pictures without the cue,
#   and with the cue alone, prove it.
# - A map is coarse, relative to its own peak, and shows what contributed, not what was needed. Its question is a choice.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what a map can do and what only an experiment can do. The two words to hear are *suspicion*
# and *proof*.

# %% [markdown]
# ## Go further
#
# - Zhou et al., [Learning Deep Features for Discriminative Localization](https://arxiv.org/abs/1512.04150) (2016): CAM.
# - Selvaraju et al., [Grad-CAM](https://arxiv.org/abs/1610.02391) (2017), with counterfactuals and Guided Grad-CAM.
# - Zhang et al., [Top-down Neural Attention by Excitation Backprop](https://arxiv.org/abs/1608.00507) (2018): the pointing game.
# - Böhle et al., [Convolutional Dynamic Alignment Networks](https://arxiv.org/abs/2104.00032) (2021): the grid pointing game.
# - Lapuschkin et al., [Unmasking Clever Hans predictors](https://www.nature.com/articles/s41467-019-08987-4) (2019): more detective stories.

# %% [markdown] tags=["instructor"]
# **On this slide:** At home: the exercises that were left out. Ask everybody to find one possible buoy in the data of
# their own work, and the experiment that would prove it.
