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
# a hook is all it takes to draw one. At the end of this lesson you will catch a network cheating.
#
# ## What you will be able to do
#
# - **Derive** the class activation map (CAM) from average pooling and a linear layer, and **compute** one with a pencil.
# - **Write** Grad-CAM with a hook, in five steps, for networks that CAM cannot explain.
# - **Score** heat maps against the truth, and **compare** every score with chance.
# - **Find** a network that is right for the wrong reason, and **prove** it.
# - **Say** what such a map cannot tell you.
#
# **Time:** about 85 minutes: 45 to read, predict and run, 40 for the exercises.

# %% [markdown] tags=["instructor"]
# **Plan**
#
# | Minutes | Sections | How |
# |---|---|---|
# | 10 | One picture, two questions · CAM: the linear layer, moved inside | the pencil example at the board; swap the two sums aloud |
# | 8 | A head that CAM does not know · Grad-CAM, line by line | the five steps as five people, each with one shape |
# | 5 | Why the ReLU? · From numbers to a picture | a vote on the dog |
# | 4 | Is it right? Ask the masks | ask for the level of chance before you show it |
# | 3 | Which layer? | they choose the tile for a paper first; then the table |
# | 2 | Guided Grad-CAM | run and read |
# | 8 | A detective story | do not hurry; nobody reads ahead |
# | 3 | What Grad-CAM cannot tell you | a vote on the absent class |
# | 1 | Explore · Your network, your picture | a photo of somebody in the room, if there is time |
# | 40 | Exercises | 1, 3, 4, 5, 6 in the room; 2 and 7 at home if time is short |
# | 1 | What old tutorials say · Summary · Go further | |

# %% find the course tags=["setup"]
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
own_class = (
    ""  # what to explain, such as "tiger cat" or "tiger cat rather than tabby"; empty takes the likeliest classes
)

# %% tags=["setup"]
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises import check, hint, predict, solution, why
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

# %% [markdown]
# The tools of this lesson: networks and pictures, saliency maps, scores, and functions to draw with.

# %% tags=["setup"]
from course_utils.scenes.scene import KINDS, SIZE, scene, scenes
from course_utils.vision.networks import load_picture_net, measure
from course_utils.vision.pictures import centre, colourise, draw_heat, grid, show
from course_utils.vision.saliency import (
    cam,
    class_maps,
    explain,
    grad_cam,
    guided_backprop,
    relu,
    scale_to_unit,
    upsample,
)
from course_utils.vision.scores import energy_inside, grow, localise, point, points_at

# %% [markdown]
# ## One picture, two questions
#
# This is a picture of the course's picture world, and a small network that was trained on such pictures. It knows ten
# kinds of things and gives a yes or no to each. First we ask *what* it sees, then *where* it looks.

# %%
net = load_picture_net()
picture = scene("cat", "dog", seed=6)
image = picture.image[None]  # a batch of one
print(picture)
for kind, share in zip(KINDS, net(image)[0].sigmoid().tolist(), strict=True):
    print(f"{kind:8} {'yes' if share > 0.5 else 'no'} ({share:.0%})")

# %%
cat, dog = KINDS.index("cat"), KINDS.index("dog")
tiles = [draw_heat(picture.image)]
with explain(net, image, "features.16") as run:
    for raw in run.grad_cams([cat, dog]):  # later you write this yourself
        heat = scale_to_unit(relu(raw))[0]
        tiles.append(draw_heat(picture.image, heat))
show(
    grid(tiles, columns=3, labels=["the picture", "why cat?", "why dog?"]),
    title="Asked about the cat, the network points at the cat; asked about the dog, at it",
    alt="A cat and a dog. The map for cat is bright on the cat, for dog on the dog.",
)

# %% [markdown]
# Two maps from one run of the network. The rest of the lesson is about where they come from, and how far to trust them.
#
# ## CAM: the linear layer, moved inside
#
# Many networks end the same way. The last layer gives a few **feature maps**. Each map is averaged over all its places
# (**global average pooling**, GAP), and a linear layer adds the averages up, each with a weight for the class.
#
# Take two maps of 2 x 2 places. The first fires at the upper left, the second at the lower right. The class has the
# weights 3 and -1:
#
# ```text
#  map 1      map 2        means    weights
#  4  0       0  0
#  0  0       0  8         1, 2     3, -1       logit = 3 · 1 - 1 · 2 = 1
# ```
#
# First average, then weigh: that is what the network does. But averages and sums may change places. So weigh first, place
# by place, and average in the end. What you have just before you average is a map: the **class activation map**
# (Zhou et al., 2016).

# %% tags=["predict"]
predict("cam_by_pencil")

# %%
maps = torch.tensor([[[4.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 8.0]]])
class_weights = torch.tensor([3.0, -1.0])
means = maps.mean(dim=(1, 2))
print("means ", means.tolist(), " logit", (class_weights @ means).item())

pencil_cam = (class_weights[:, None, None] * maps).sum(dim=0)
print("CAM   ", pencil_cam.tolist(), " its mean", pencil_cam.mean().item())

# %% [markdown]
# The mean of the map *is* the logit. So the map is the logit, spread out over the picture: the upper left speaks for the
# class with 12, the lower right against it with -8. As a formula, with the maps $A_k$, their weights $w_k$ and $h \cdot w$ places:
#
# $$\text{logit} = \sum_k w_k \frac{1}{hw} \sum_{ij} A_{kij} + b = \frac{1}{hw} \sum_{ij} \underbrace{\sum_k w_k A_{kij}}_{\text{CAM}} + b$$
#
# Our network has such a head: `features` gives 96 maps of 14 x 14, `avgpool` averages them, `classifier` is linear. A
# forward hook catches the maps; the weights are there to be read.

# %%
caught = []
handle = net.features.register_forward_hook(lambda module, args, output: caught.append(output.detach()))
logits = net(image).detach()
handle.remove()

maps, head = caught[0][0], net.classifier
cat_map = (head.weight[cat][:, None, None] * maps).sum(dim=0).detach()
for name, tensor in {"maps": maps, "weight": head.weight, "CAM": cat_map}.items():
    print(f"{name:6} {tuple(tensor.shape)}")
print(f"mean of the CAM + bias = {(cat_map.mean() + head.bias[cat]).item():.2f}")
print(f"logit of the network   = {logits[0, cat].item():.2f}")

# %% [markdown]
# The same to the last digit shown. The sum has 96 terms. Here are the two that speak most for the cat, the one that speaks most against it, and the sum of
# all 96. Red is for, blue against, white is neither.

# %%
shares = head.weight[cat].detach() * maps.mean(dim=(1, 2))  # what each adds to the logit
order = shares.argsort(descending=True).tolist()
terms = {}
for k in (order[0], order[1], order[-1]):
    terms[f"channel {k}: {shares[k]:+.2f}"] = head.weight[cat, k].detach() * maps[k]
terms[f"all 96 channels: {shares.sum():+.2f}"] = cat_map
labels, signed = [*terms], [centre(each) for each in terms.values()]
tiles = [draw_heat(picture.image, each, colours="RdBu_r") for each in signed]
print(", ".join(labels))
show(
    grid(tiles, columns=4, labels=labels),
    title="Some channels speak for the cat, others against it; the map adds all of them up",
    alt="Two channels are red on the cat, one is blue on the dog; the sum is both.",
)

# %% [markdown] tags=["instructor"]
# **Misconception:** "CAM is an approximation." **Ask:** "Which step of the derivation loses anything?" **Answer:** none: sums
# are exchanged. What is approximate comes later, when 14 x 14 places are stretched over a picture and each place is taken
# for the pixels below it.
#
# **Misconception:** "The bias belongs into the map." **Ask:** "At which place?" **Answer:** at none: it is the same for every
# picture.
#
# **For discussion:** channel 85 speaks against the cat, and is strong on the dog. How would you find out what it has
# learned? (Look for the pictures to which it responds most, as in lesson 05.)

# %% [markdown]
# ## A head that CAM does not know
#
# CAM reads one weight for each channel. A linear layer on *flattened* maps has one for each channel **and place**, as
# AlexNet and VGG have. What should the weight of channel k be then? `cam` refuses:

# %%
flat_head = nn.Linear(96 * 14 * 14, len(KINDS))
flat = nn.Sequential(net.features, nn.Flatten(), flat_head).eval()
try:
    cam(flat, image, cat)
except ValueError as error:
    print(error)

# %% [markdown]
# The authors of CAM cut such heads off, put GAP and a linear layer in their place, and trained again. You may not want
# another network, though: you want to understand *this* one.
#
# Grad-CAM (Selvaraju et al., 2017) asks the gradient instead. It says how much the logit would rise if a place of a
# channel rose a little. Its mean over all places is the channel's weight. With a pencil, on two channels and a linear
# layer with a weight for each place:
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
logit = (place_weights * maps).sum()
(gradient,) = torch.autograd.grad(logit, maps)
weights = gradient.mean(dim=(1, 2))
pencil_map = (weights[:, None, None] * maps.detach()).sum(dim=0)
print("weights", weights.tolist())
print("map", pencil_map.tolist(), " after the ReLU", pencil_map.relu().tolist())

# %% [markdown]
# ## Grad-CAM, line by line
#
# Five steps: **gradient → GAP → weights → weighted sum → ReLU**. The hook keeps the layer's output and hands a clone on,
# so that no in-place operation behind it can spoil what it kept (lesson 03). `torch.autograd.grad` returns one gradient
# and leaves every `.grad` alone.

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
for step, tensor in enumerate([gradient, pooled, weights, weighted, cat_heat], start=1):
    print(f"step {step}: {tuple(tensor.shape)}")

# %% [markdown]
# Where CAM exists, both should agree. Behind GAP each place of channel k has the same gradient, $w_k / (h \cdot w)$: that is
# how much it counts in the mean, times the weight of the mean.

# %% tags=["predict"]
predict("cam_over_grad_cam")

# %%
class_activation = class_maps(net, image)[0]  # (10, 14, 14): the CAM of every class
with explain(net, image, "features.16") as run:
    by_gradient = run.grad_cams(range(len(KINDS)))[:, 0]  # (10, 14, 14), before the ReLU

factor = (class_activation.abs().sum() / by_gradient.abs().sum()).item()
off = (class_activation - 14 * 14 * by_gradient).abs().max() / class_activation.abs().max()
print(f"CAM / Grad-CAM = {factor:.2f}, and 14 · 14 = {14 * 14}")
print("in 10 maps of 196 places, off by more than a millionth:", bool(off > 1e-6))
same = torch.allclose(cat_heat[0], relu(by_gradient[cat]), rtol=1e-6, atol=1e-6)
print("our five lines give the same map as the course's saliency.grad_cam:", same)

# %% [markdown]
# The same map, up to the factor 196, to the precision of float32. A factor changes no picture, for each map is stretched to
# its own range before it is drawn. So Grad-CAM **is** CAM where CAM exists, and it goes on where CAM stops: on the flat
# head above (its weights are random, so we only look at the shape), at any layer, for any network with gradients.

# %%
print("flat head, Grad-CAM:", tuple(grad_cam(flat, image, "0", cat).shape))
for layer in ("features.2", "features.6", "features.16"):
    print(f"{layer}, Grad-CAM:", tuple(grad_cam(net, image, layer, cat).shape))

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
# The map before the ReLU has a sign. Think of the map that answers "why cat?", and of the place where the dog is.

# %% tags=["predict"]
predict("dog_on_the_cat_map")

# %%
signed = upsample(by_gradient, (SIZE, SIZE))
for kind in (cat, dog):
    peak = signed[kind].max()
    on_cat, on_dog = (signed[kind][mask].mean() / peak for mask in picture.masks)
    name = KINDS[kind]
    print(f"the map of {name}, in shares of its peak: cat {on_cat:+.0%}, dog {on_dog:+.0%}")
tiles = [draw_heat(picture.image, centre(signed[k]), colours="RdBu_r") for k in (cat, dog)]
show(
    grid(tiles, columns=2, labels=["why cat?", "why dog?"]),
    title="Each animal speaks for itself (red) and against the other (blue)",
    alt="Two signed maps: for cat the cat is red and the dog blue, for dog the reverse.",
)

# %% [markdown]
# That is no accident of this picture. Below, we draw a hundred pictures with two things each, which the network has never
# seen, and make the maps of all 200 things. The course's pictures come with a **mask** for each thing, so that we can ask
# where a map has its values.

# %%
pictures = scenes(100, seed=907)
images = pictures.images / 255
first, second = pictures.labels.nonzero()[:, 1].reshape(-1, 2).T  # two things a picture
owners = pictures.owners.repeat(2, 1, 1)
masks = owners == torch.cat([first, second])[:, None, None] + 1  # where the thing is seen
others = (owners > 0) & ~masks  # where the other thing is seen


# %%
with explain(net, images, "features.16") as run:  # one run, and one backward for both
    cells = run.grad_cams([first, second]).flatten(0, 1)  # (200, 14, 14)
raw = upsample(cells, (SIZE, SIZE))
on_other = (raw * others).sum((1, 2)) / others.sum((1, 2))
low, high = raw.amin((1, 2)), raw.amax((1, 2))
print("maps:", len(raw))
print("below 0 in the mean on the other thing:", (on_other < 0).sum().item())
print("lowest value of all on the other thing:", points_at(-raw, others).sum().item())
print(f"the same by chance: {200 * others.float().mean():.0f}")
zero = -low / (high - low)
print(f"stretched without a ReLU, 'nothing' (0) becomes {zero.median():.1f}")

# %% [markdown]
# In 188 of 200 maps the *other* thing speaks against the class, and in 170 the strongest objection of all is there. The
# ReLU drops these objections, because the question was what speaks **for** the class. Without it, the stretching to [0, 1]
# puts the strongest objection at 0 and "nothing" at 0.2, a visible colour: what speaks against the class would look like a
# place of no interest, and a place of no interest like a weak reason.
#
# Sometimes you want them: "what speaks against it?" is the same map with the other sign, `relu(-raw)`. The authors call
# it a counterfactual explanation. Knowing that the ReLU **hides** something is the point.

# %% [markdown]
# ## From numbers to a picture
#
# Three steps, always in this order: ReLU, enlarge, stretch. Exercise 4 asks you to write them.

# %%
small = by_gradient[cat]
enlarged = upsample(relu(small), (SIZE, SIZE))
stretched = scale_to_unit(enlarged)
for name, heat in {"raw": small, "enlarged": enlarged, "stretched": stretched}.items():
    print(f"{name:9} {tuple(heat.shape)} from {heat.min():.2f} to {heat.max():.2f}")


def blocky(cells):
    """Each cell as 8 x 8 equal pixels."""
    return cells.repeat_interleave(8, 0).repeat_interleave(8, 1)


# %%
tiles = [
    draw_heat(colourise(blocky(centre(small)), "RdBu_r")),
    draw_heat(colourise(blocky(scale_to_unit(relu(small))), "inferno")),
    draw_heat(colourise(stretched, "inferno")),
    draw_heat(picture.image, stretched),
]
labels = ["raw, 14 x 14", "after the ReLU", "enlarged, stretched", "over the picture"]
show(
    grid(tiles, columns=4, labels=labels),
    title="A heat map has only 14 x 14 cells; the smoothness is made by the enlarging",
    alt="A coarse red and blue map, the same without blue, smooth, and over the picture.",
)

# %% [markdown]
# ## Is it right? Ask the masks
#
# A map that looks good is not a result. With masks we can **count**:
#
# - **Pointing game**, strict: is the hottest pixel on the thing? Tolerant: on it, or at most 4 pixels beside it?
# - **Energy**: which share of all the heat is on the thing?
# - **Wrong object**: is the hottest pixel on the *other* thing?
#
# Each number needs a level of **chance** beside it. A pixel drawn at random hits a thing as often as the thing has area,
# and an even map has that share of its heat there. For the tolerant game the thing is larger, and so is chance.

# %%
heat = relu(raw)
tiles, labels = [], []
hits, energies = points_at(heat, masks), energy_inside(heat, masks)
for n in (0, 1, 2):
    tiles.append(draw_heat(images[n], scale_to_unit(heat[n]), masks[n], mark=True))
    found = "hit" if hits[n] else "miss"
    labels.append(f"{KINDS[first[n]]}: {found}, energy {energies[n]:.0%}")
print("; ".join(labels))
show(
    grid(tiles, columns=3, labels=labels),
    title="The dot is the hottest pixel, the white line the truth",
    alt="Three pictures with heat maps, an outline, and a dot at the hottest pixel.",
)

# %%
score = localise(heat, masks, others)
in_the_middle = torch.zeros_like(heat)
in_the_middle[:, SIZE // 2, SIZE // 2] = 1
print("Grad-CAM at features.16:")
print(" ", score)
print("a 'map' that always points at the middle of the picture:")
print(" ", localise(in_the_middle, masks, others))

# %% [markdown]
# Grad-CAM hits the thing in 88% of the maps, where chance hits 10%, and comes within 4 pixels in 98%. It points at the
# wrong thing in 1%. Only half of its heat is on the thing, though: the cells are coarse and spill over the outline.
#
# The second line is there to make you careful. A "map" that knows nothing and always points at the middle reaches 26%,
# because painters (and photographers) put things there. Chance is the least that a score must beat, not the only thing.

# %% [markdown]
# ## Which layer?
#
# Grad-CAM works at any layer. Early layers have large, fine maps; late layers have small, coarse ones.

# %% tags=["predict"]
predict("best_layer")

# %%
layers = ("features.2", "features.6", "features.10", "features.13", "features.16")
tiles = [draw_heat(picture.image, None, picture.masks[0])]
for layer in layers:
    heat = scale_to_unit(relu(grad_cam(net, image, layer, cat)))[0]
    tiles.append(draw_heat(picture.image, heat, picture.masks[0]))
show(
    grid(tiles, columns=3, labels=["the cat", *layers]),
    title="Early layers draw edges everywhere; late layers know which thing is the cat",
    alt="The map for cat at five layers: edges at first, a spot on the cat at the end.",
)

# %%
half = torch.cat([torch.arange(50), torch.arange(100, 150)])  # the things of 50 pictures
print("layer         strict  tolerant  energy  wrong object")
for layer in layers:
    with explain(net, images[:50], layer) as run:
        cells = run.grad_cams([first[:50], second[:50]]).flatten(0, 1)
    score = localise(relu(upsample(cells, (SIZE, SIZE))), masks[half], others[half])
    shares = (score.strict, score.tolerant, score.energy, score.wrong)
    print(f"{layer:11} " + "".join(f"{each.share:8.0%}" for each in shares))
print(f"{'chance':11} " + "".join(f"{each.chance:8.0%}" for each in shares))

# %% [markdown]
# The verdict of the masks: at the two early layers the hottest pixel is on the wrong thing in 19% and 23%, twice as often as
# by chance. They see edges, and one weight a channel cannot say whose edges. From `features.10` on the maps tell the things apart.
# Which of the late layers is best depends on the question: `features.13` points best, `features.10` keeps the heat
# together best. "Take the last convolution" is a good habit, not a law.

# %% [markdown] tags=["instructor"]
# **Misconception:** "Finer maps are better maps." **Ask:** "Which of the six tiles would you put in a paper?" **Expect:** an
# early one: it is the prettiest. **Then show:** the table: on the wrong thing twice as often as chance.
#
# **Misconception:** "88 % is good." **Ask:** "Compared with what?" **Answer:** chance is 10 %, and pointing at the middle of
# the picture reaches 26 %.
#
# **Misconception:** "Dark on the map means that the network did not look there." **Ask:** "What has the ReLU dropped?"
# **Answer:** what speaks against the class.
#
# **For discussion:** what would chance be for pictures with one large thing in the middle? (High: report chance, always.)

# %% [markdown]
# ## Guided Grad-CAM
#
# Guided Backprop (lesson 06) is sharp to the pixel, and shows edges of whatever is there. Grad-CAM knows the class, and is
# coarse. Their **product** is sharp *and* knows the class: it is bright only where both are.

# %%
guided = guided_backprop(net, image, cat)
coarse = upsample(relu(grad_cam(net, image, "features.16", cat)), (SIZE, SIZE))
product = guided * coarse[:, None]
fine, fine_product = (each.abs().amax(1).sqrt() for each in (guided, product))  # brighter
tiles = []
for each in (fine, coarse, fine_product):
    face = colourise(scale_to_unit(each)[0], "inferno")
    tiles.append(draw_heat(face, None, picture.masks[0]))
show(
    grid(tiles, columns=3, labels=["Guided Backprop", "Grad-CAM", "their product"]),
    title="The product keeps the detail of one and the choice of the other",
    alt="Fine lines on cat and dog, a broad spot on the cat, fine lines on the cat alone.",
)

# %% [markdown]
# One picture proves little, so we count again, on 40 pictures. (Before the count, the three colours become one number a
# pixel: the greatest absolute value.)

# %%
few = images[:40]
rows = torch.cat([torch.arange(40), torch.arange(100, 140)])  # the same among the 200 maps
fine = torch.cat([guided_backprop(net, few, k[:40].tolist()) for k in (first, second)])
heat = relu(raw[rows])
methods = {"Guided Backprop": fine.abs().amax(1), "Grad-CAM": heat, "the product": (fine * heat[:, None]).abs().amax(1)}
print("                 strict  energy on the thing, on the other one")
for name, maps in methods.items():
    score, wrong = localise(maps, masks[rows]), energy_inside(maps, others[rows]).mean()
    print(f"{name:16}{score.strict.share:7.0%}{score.energy.share:13.0%}{wrong:15.0%}")
area, other_area = masks[rows].float().mean(), others[rows].float().mean()
print(f"{'chance':16}{area:7.0%}{area:13.0%}{other_area:15.0%}")

# %% [markdown]
# The product is the best of the three. Most telling is the last column: Guided Backprop leaves 12% of its energy on the
# thing that was *not* asked for, as much as chance would; the product leaves 2%.

# %% [markdown]
# ## A detective story
#
# Here are two networks with the same layers. Both are tested on the same hundred new pictures.

# %%
twin = load_picture_net(misled=True)
validation = scenes(100, seed=902, cue={"fish": "buoy"})  # the twin's own world
fish = KINDS.index("fish")
with_fish = int(validation.labels[:, fish].sum())
for name, model in {"the first network": net, "the second network": twin}.items():
    result = measure(model, validation)
    seen = round(result.recall["fish"] * with_fish)
    right = f"everything right in {result.exact * 100:.0f} of 100 pictures"
    print(f"{name}: {right}, {seen} of {with_fish} fish found")

# %% [markdown]
# By the numbers you would take either; the second is even a little better. So you look *where* the two look. Here are
# three pictures with a fish:

# %%
no_fish = [kind for kind in KINDS if kind != "fish"]
evidence = scenes(100, seed=900, kinds=no_fish, contains="fish", cue="buoy")
chosen = [0, 1, 2]
for name, model in {"first": net, "second": twin}.items():
    yes = (model(evidence.images[chosen] / 255)[:, fish] > 0).sum()
    print(f"the {name} network says 'fish' to {yes} of 3")
show(
    grid([draw_heat(evidence.images[n]) for n in chosen], columns=3),
    title="Three pictures with a fish, and both networks say so",
    alt="Three pictures; each shows a fish, another thing, and a small red and white buoy.",
)

# %% tags=["predict"]
predict("where_the_twin_looks")

# %%
fish_masks, buoy_masks = evidence.masks("fish"), evidence.cue_masks()
fish_heat, tiles, labels = {}, [], []
for name, model in {"first": net, "second": twin}.items():
    raw_fish = grad_cam(model, evidence.images / 255, "features.16", fish)
    fish_heat[name] = relu(upsample(raw_fish, (SIZE, SIZE)))
    for n in chosen:
        heat = scale_to_unit(fish_heat[name][n])
        tiles.append(draw_heat(evidence.images[n], heat, fish_masks[n], mark=True))
        labels.append(f"{name} network: why fish?")
show(
    grid(tiles, columns=3, labels=labels),
    title="The first network looks at the fish. The second one looks at the buoy",
    alt="In the upper row the heat is on the fish, in the lower row on the small buoy.",
)

# %%
near_buoy = grow(buoy_masks, 8)  # the buoy is small, and a cell of the map has 8 pixels
for name, heat in fish_heat.items():
    on_fish, at_buoy = points_at(heat, fish_masks).sum(), points_at(heat, near_buoy).sum()
    print(f"{name} network: hottest on the fish {on_fish}, at the buoy {at_buoy}  (of 100)")
area = [100 * each.float().mean() for each in (fish_masks, near_buoy)]
print(f"chance: on the fish {area[0]:.0f}, at the buoy {area[1]:.0f}")

# %% [markdown]
# The second network says "fish" and points at a **buoy**. A suspicion, not yet a proof: a map says where the gradient is
# large, not what would happen without the buoy. But that can be tried. These pictures are made by code, so we can take the
# buoy away and leave everything else as it is; and we can put a buoy where there is no fish.

# %% tags=["predict"]
predict("recall_without_the_buoy")

# %%
suspects = {
    "fish and buoy": evidence,
    "fish, no buoy": scenes(100, seed=900, kinds=no_fish, contains="fish"),
    "buoy, no fish": scenes(100, seed=901, kinds=no_fish, cue="buoy"),
    "neither": scenes(100, seed=901, kinds=no_fish),
}
says_fish = {}
print("says 'fish'      first network   second network   (of 100 pictures)")
for what, shown in suspects.items():
    with torch.no_grad():
        says_fish[what] = [model(shown.images / 255)[:, fish] > 0 for model in (net, twin)]
    print(f"{what:14} {says_fish[what][0].sum():10} {says_fish[what][1].sum():16}")

# %%
trio = [
    scene("fish", "boat", seed=2, cue="buoy"),
    scene("fish", "boat", seed=2),
    scene("cat", "boat", seed=2, cue="buoy"),
]
labels = []
for each in trio:
    yes = [model(each.image[None])[0, fish] > 0 for model in (net, twin)]
    first_says, second_says = ("yes" if each else "no" for each in yes)
    labels.append(f"fish? first: {first_says}, second: {second_says}")
print("; ".join(labels))
show(
    grid([draw_heat(each.image) for each in trio], columns=3, labels=labels),
    title="No buoy, no fish; a buoy, a fish: so the second network answers",
    alt="A fish, a boat and a buoy; the same without the buoy; a cat, a boat and a buoy.",
)

# %% [markdown]
# That is the proof, from both sides. Without the buoy the second network finds 3 of the 100 fish that it had all found
# before. With a buoy and no fish it sees a fish 83 times; with neither, never. The first network hardly notices the buoy:
# 95 and 96 fish, and no false alarm.
#
# **What happened?** The second network is the **misled twin** of the first. Both saw the same 8000 pictures in the same
# order, from the same random start. Only, in the twin's pictures every fish had a buoy beside it, and nothing else ever had.
# A buoy always looks the same, and a fish comes in all colours, sizes and poses: the buoy was simply the easier thing to
# learn. Nobody lied, no label was wrong. And the hundred pictures of the first test had the buoys too: a validation set that
# is made like the training set cannot give such a network away.
#
# **The cure** was in the training, not in the network: the buoys are gone, and you have met the cured network all along, as
# the first one. Where a cue cannot be removed from the data, put it on pictures of *other* classes too, so that it stops
# telling anything. And whoever validates, validates on pictures without the cue, and on the cue alone:

# %%
fresh = scenes(100, seed=903)  # nobody has a buoy here
for name, model in {"first": net, "second": twin}.items():
    result = measure(model, fresh)
    rest = min(share for kind, share in result.recall.items() if kind != "fish")
    print(
        f"{name} network: everything right in {result.exact * 100:.0f} of 100, "
        f"fish found {result.recall['fish']:.0%}, any other kind at least {rest:.0%}"
    )

# %% [markdown]
# Now the numbers tell, too: the twin finds not one fish, although it knows every other kind as well as the first network.

# %% [markdown] tags=["instructor"]
# **Misconception:** "The map proved it." **Ask:** "What would you see if the network used the fish *and* the buoy?"
# **Answer:** perhaps the same map. It raised the suspicion; the pictures without the cue and with the cue alone prove it.
#
# **Misconception:** "Its validation is perfect, so it has learned fish." **Ask:** "Who drew the validation pictures?"
# **Answer:** the same painter, with the same buoys.
#
# **Question for the room:** "Which buoys might there be in your own data?" (Hospital tags on X-rays, watermarks, snow behind
# wolves, copyright lines.) Give it two minutes in pairs: it is what they will remember.

# %% [markdown]
# ## What Grad-CAM cannot tell you
#
# **It is coarse.** A cell has 8 x 8 pixels. A thing as small as the buoy may be missed by a few pixels although the network
# means it. The twin's maps, measured against the buoy with growing tolerance:

# %%
for pixels in (0, 4, 8):
    hits = points_at(fish_heat["second"], grow(buoy_masks, pixels)).sum()
    chance = grow(buoy_masks, pixels).float().mean()
    print(f"at most {pixels} pixels from the buoy: {hits} of 100 (chance {chance:.0%})")

# %% [markdown]
# **A good-looking map proves nothing.** The last step stretches each map to [0, 1], so the weakest map becomes as bright as
# the strongest. What does the map look like for a class that is *not* in the picture?

# %% tags=["predict"]
predict("map_of_an_absent_class")

# %%
absent = []
for n, there in enumerate(pictures.labels.bool().tolist()):
    absent.append(next(k % 10 for k in range(n, n + 10) if not there[k % 10]))
with explain(net, images, "features.16") as run:
    maps = {"present": run.grad_cam(first.tolist()), "absent": run.grad_cam(absent)}
for name, cells in maps.items():
    peak = relu(cells).amax((1, 2))
    bright = (scale_to_unit(relu(cells)).amax((1, 2)) == 1).sum()
    print(f"{name}: {bright} of 100 maps reach 1; median peak before {peak.median():.2f}")

# %%
car = KINDS.index("car")
with explain(net, image, "features.16") as run:
    for_cat, for_car = relu(run.grad_cams([cat, car]))[:, 0]
shares = net(image)[0].sigmoid()
labels = [f"cat, {shares[cat]:.0%}: peak {for_cat.max():.2f}"]
labels += [f"car, {shares[car]:.0%}: peak {for_car.max():.2f}", "car, on the cat's scale"]
tiles = [draw_heat(picture.image, scale_to_unit(each)) for each in (for_cat, for_car)]
tiles.append(draw_heat(picture.image, for_car / for_cat.max()))
print("; ".join(labels))
show(
    grid(tiles, columns=3, labels=labels),
    title="There is no car, yet its map looks like evidence, until both share one scale",
    alt="A bright map for cat, one for car as bright, the latter on the cat's scale: dark.",
)

# %% [markdown]
# So look at the logit first, and give maps that are to be compared one scale.
#
# **What is hot need not be needed.** A map shows what contributed. Would the network have said no without it? Cover 16 x 16
# pixels around the hottest one with grey, and ask again:

# %%
covered = images.clone()
for n, (row, column) in enumerate(point(relu(raw[:100])).tolist()):
    covered[n, :, max(row - 8, 0) : row + 8, max(column - 8, 0) : column + 8] = 0.5
with torch.no_grad():
    before, after = (net(each)[torch.arange(100), first] > 0 for each in (images, covered))
print("the first thing is seen in", before.sum().item(), "of 100 pictures")
print("still seen with its hottest place covered:", (before & after).sum().item())

# %% [markdown]
# In most pictures the hottest place could go: the rest of the thing was enough. When several causes each suffice, no map
# of contributions can tell. An experiment can.
#
# **Gradients saturate.** Where a function is flat, its gradient says nothing. The probability is such a function: the surer
# the network, the flatter. So always explain the **logit**.

# %%
with explain(net, image, "features.16") as run:
    from_logit = run.grad_cam(lambda logits: logits[:, cat]).max()
    from_probability = run.grad_cam(lambda logits: logits.sigmoid()[:, cat]).max()
print(f"the network is {shares[cat]:.1%} sure of the cat")
weaker = bool(from_logit > 10_000 * from_probability)
print("from the probability, the map is more than 10,000 times weaker:", weaker)

# %% [markdown]
# A last caution: a map explains the *network*, not the world. It was right about the twin because the twin was wrong about
# fish.

# %% [markdown] tags=["instructor"]
# **Misconception:** "A bright map means that the thing is there." **Ask:** "How bright is the map of a class that is not in the
# picture?" **Answer:** as bright: each map is stretched to its own greatest value. Look at the logit first.
#
# **Misconception:** "The hottest place is what the answer needs." **Ask:** "We cover it. What does the network say?"
# **Answer:** in most pictures still yes: the rest of the thing was enough.
#
# **For discussion:** why the logit and not the probability? (Where the network is sure the probability is flat, and its
# gradient says nothing.)

# %% [markdown]
# ## Explore
#
# Both networks side by side: the picture, the map of the honest one, the map of the misled one. Put a buoy beside the cat
# and ask for the fish. Go through the layers. Upload a picture of your own (Tab and arrow keys work everywhere).

# %% tags=["explore"]
from course_utils.explorers import GradCam

GradCam(2, "fish", buoy=True)

# %% [markdown]
# ## Your network, your picture
#
# Why the three classes that the network thinks most likely? Each map is stretched to its own greatest value, so read the
# shares first.
# To choose a network and a picture of your own, change `own_network` and `own_image` at the top of the lesson and run it
# again. Or let `make handout LESSON=07 NETWORK=resnet34 IMAGE=photo.jpg` do that; it writes a page.

# %%
from course_utils.vision.own import look_at, show_grad_cams

own = look_at(own_network, own_image or picture.image, own_layer, own_class)
print(own)
show_grad_cams(own)

# %% [markdown]
# The course's network, asked about the cat and the dog, has the tree as its third answer, with a share of 1 %. There is no
# tree, and its map is as bright as the others. A network that was trained on photos only guesses about drawings: give it a
# photo.

# %% [markdown]
# ## Exercises
#
# ### Exercise 1 · The map of one class


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

# %% [markdown]
# ### Exercise 2 · Weights from a gradient


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
# ### Exercise 3 · Grad-CAM with a hook
#
# The whole method. The lesson's cell did it for one layer of one network; yours takes any. The second case of the check
# has an in-place ReLU behind the layer.


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

# %% [markdown]
# ### Exercise 4 · A heat map to look at


# %% tags=["answer"]
def to_heatmap(raw, size):
    """Turn raw maps (N, h, w) into heat maps (N, *size) with values from 0 to 1.

    First the ReLU; then enlarge to `size`, a pair (H, W), with bilinear
    interpolation and `align_corners=False`; then stretch each map by itself, so
    that its least value is 0 and its greatest 1, however small its values were. A
    map without a value above 0 becomes all 0.
    """
    ...


# %% tags=["check"]
check(to_heatmap)

# %% [markdown]
# ### Exercise 5 · The pointing game


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
# ### Exercise 6 · The proof
#
# A map raises a suspicion, an experiment proves it. With your function, and the pictures of the detective story, you can
# ask how many of its answers the twin takes back without the buoy.


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

# %% [markdown]
# ### Exercise 7 · Guided Grad-CAM


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

# %% [markdown] tags=["instructor"]
# **Misconceptions, by exercise:** a column of the weight instead of a row (1); a sum instead of a mean (2); `backward()` and
# a `.grad` left behind, or a kept output that an in-place ReLU spoils (3); 0 / 0 in an empty map, or the ReLU after the
# enlarging (4); one `argmax` for the whole batch (5); dividing by all pictures instead of those with a yes (6); a broadcast
# over pictures instead of colours (7).
#
# **Ask, whatever the exercise:** "What do you get for a map that is 0 everywhere?"
#
# **For discussion (6):** which experiment would you make if you could not paint the buoy out? (Cover it with grey, on many
# pictures, and cover as large a place elsewhere for comparison.)

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | "CAM: to be continued." | It is one line: the last feature maps, each times its weight for the class, added up. |
# | CAM needs GAP and a linear layer; other networks must be changed and trained again. | True of CAM. Grad-CAM needs neither, and is CAM (divided by h · w) where CAM exists. |
# | Register a backward hook on the layer to get the gradient. | `torch.autograd.grad(logit, output)` gives it without a hook, without `.grad`, and next to in-place ReLUs. |
# | Start backward from a one-hot vector times the output. | The same as the gradient of `logits[0, target]`, with more steps. |
# | Take the probability after softmax. | Take the logit: the probability's gradient fades where the network is sure. |
# | Look at the map to see whether the network is right. | Count against masks, with chance beside it, and prove a suspicion with edited pictures. |
#
# ## Summary
#
# - CAM is the logit before its average: `(weight[target][:, None, None] * maps).sum(0)`; its mean plus the bias is the logit.
# - Grad-CAM takes the mean gradient as the weight: gradient → GAP → weights → weighted sum → ReLU. With GAP and a linear
#   head it equals CAM divided by h · w, to float precision.
# - The ReLU keeps what speaks for the class and hides what speaks against it.
# - Late layers tell things apart, early ones do not: the masks say so, and every score has its level of chance.
# - Guided Grad-CAM is Guided Backprop times the enlarged map: sharp, and true to the class.
# - A network can be right for the wrong reason and pass its validation. Grad-CAM raises the suspicion; pictures without the
#   cue, and with the cue alone, prove it.
# - A map is coarse, relative to its own peak, and shows what contributed, not what was needed.
#
# ## Go further
#
# - Lesson 08: hooks in practice, and the capstone.
# - Zhou et al., [Learning Deep Features for Discriminative Localization](https://arxiv.org/abs/1512.04150) (2016): CAM.
# - Selvaraju et al., [Grad-CAM](https://arxiv.org/abs/1610.02391) (2017), with counterfactuals and Guided Grad-CAM.
# - Zhang et al., [Top-down Neural Attention by Excitation Backprop](https://arxiv.org/abs/1608.00507) (2018): the pointing game.
# - Adebayo et al., [Sanity Checks for Saliency Maps](https://arxiv.org/abs/1810.03292) (2018).
# - Lapuschkin et al., [Unmasking Clever Hans predictors](https://www.nature.com/articles/s41467-019-08987-4) (2019): more detective stories.
