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
# # Guided Backprop
#
# Backward can go all the way down to the pixels. What arrives there says how each pixel would have to change for the
# network to be surer of its answer. Drawn as a picture it looks like noise, and one small change, a question that every
# ReLU asks, turns the noise into a clear drawing. This lesson makes that change with hooks, and then asks whether the
# drawing tells you what you think it does.
#
# ## What you will be able to do
#
# - **Compute** the gradient of a class at the pixels, and **draw** it.
# - **Explain** the three rules, backprop, deconvnet and guided, with a pencil and with one line of code each.
# - **Build** Guided Backprop with full backward hooks, and **say** for which networks such hooks do nothing.
# - **Say** what the usual normalisation hides.
# - **Test** an explanation: does it change with the class, and does it change when the network forgets?
#
# **Time:** about 70 minutes: 40 to read, predict and run, 30 for the exercises. "What the picture hides" is a good
# place for a pause.

# %% [markdown] tags=["instructor"]
# **Plan**
#
# | Minutes | Sections | How |
# |---|---|---|
# | 10 | Which pixels matter? · Three units and a pencil | everybody crosses out on paper what each rule stops |
# | 5 | The rules as hooks | they write the deconvnet's line before you show it |
# | 5 | ReLUs that no hook sees | a vote; let the room name networks that call `F.relu` |
# | 2 | Side by side | look first, read the shares then |
# | 5 | What the picture hides | a vote; a good place for a pause follows |
# | 5 | Does it follow the class? | write the guesses for the three rules on the board |
# | 5 | Does it follow what was learned? | sketch the four curves before the chart |
# | 1 | Explore · Your network, your picture | start at features.2 and go up |
# | 30 | Exercises | 1, 2, 3, 4, 7 in the room; 5, 6 and 8 at home if time is short |
# | 2 | What old tutorials say · Summary · Go further | |

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

# %% tags=["setup"]
import copy

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises import check, hint, predict, solution, why
from course_utils.lessons.lesson_06 import (
    Guide,
    class_gradient,
    guide_relu,
    pass_relu,
    randomise_last,
    share_on,
    stop_in_place,
    to_picture,
)
from course_utils.scenes.scene import KINDS, scene, scenes

# %% tags=["setup"]
from course_utils.vision.charts import draw_cascade, draw_rules
from course_utils.vision.networks import load_classifier, load_picture_net
from course_utils.vision.pictures import grid, show, show_fixed
from course_utils.vision.saliency import deconvnet, grad_cam, guided_backprop, input_gradient, standardise
from course_utils.vision.scores import (
    cosine_similarity,
    find_strength,
    measure_class_sensitivity,
    randomise_cascading,
    rank_correlation,
)

# %% [markdown]
# ## Which pixels matter?
#
# The course has a small network of its own that tells ten kinds of things in pictures, several at once. Here is a
# picture, and what the network says about it: a logit above 0 means "it is there".

# %%
model = load_picture_net()
picture = scene("cat", "boat", seed=3)
image = picture.image
with torch.no_grad():
    logits = model(image[None])[0]
best = logits.argsort(descending=True)
print("seen:", ", ".join(f"{KINDS[k]} ({logits[k].item():.1f})" for k in best[:2]))
print("all other logits are below 0:", bool((logits[best[2:]] < 0).all()))
show(image, alt=f"The picture: {picture}.", scale=3)

# %% [markdown]
# Why a cat? Ask backward: the gradient of the cat's logit with respect to the **pixels** (Simonyan, Vedaldi &
# Zisserman, 2013). The picture becomes a leaf that requires its gradient; the weights stay as they are.

# %%
cat = KINDS.index("cat")
pixels = image[None].clone().requires_grad_()
(gradient,) = torch.autograd.grad(model(pixels)[0, cat], pixels)
print("shape:", tuple(gradient.shape), " that of the picture:", tuple(pixels.shape))
print("share of negative values:", f"{(gradient < 0).float().mean().item():.1f}")
tiles = [image, standardise(gradient)[0]]
labels = ["the picture", "gradient of the cat's logit"]
show(
    grid(tiles, columns=2, scale=3, labels=labels),
    alt="A cat and a boat; beside it the gradient, a coloured noise, strongest on the cat.",
    title="The gradient is strongest on the cat, and looks like noise",
)

# %% [markdown]
# Grey means about 0, and a coloured dot says: more of this colour here, and the logit rises. The dots gather on the
# cat, but no cat is to be seen in them. Half of the values are negative: along some paths a pixel speaks for the cat,
# along others against it, and what you see is their sum. (How a gradient becomes a picture is a section of its own,
# further down.)
#
# ## Three units and a pencil
#
# What could be cleared away? Take a net small enough for a pencil: two inputs, three ReLU units, one output.
#
# ```text
# x1 = 1     unit 1:  relu(1·x1 + 2·x2) = relu( 5) = 5      weight to y:  2
# x2 = 2     unit 2:  relu(3·x1 - 1·x2) = relu( 1) = 1      weight to y: -3
#            unit 3:  relu(1·x1 - 2·x2) = relu(-3) = 0      weight to y:  4
#
#            y = 2·5 - 3·1 + 4·0 = 7
# ```
#
# Backward starts with 1 at y and hands each unit its weight: the gradients R = 2, -3, 4 **arrive** at the ReLUs. Now
# each ReLU decides what goes on, from its own output f and from R. There are three rules:
#
# - **Backprop:** let R pass where the unit was active, f > 0. That is the derivative.
# - **Deconvnet** (Zeiler & Fergus, 2013): let R pass where R > 0, whatever the unit put out. Only what speaks *for* the
#   output goes back.
# - **Guided backpropagation** (Springenberg et al., 2014): let R pass where both are above 0.

# %% tags=["predict"]
predict("deconvnet_silent_unit")

# %%
title = "Each rule opens other gates; only unit 1 is open in all three"
draw_rules((5, 1, 0), (2, -3, 4), title)

# %% [markdown]
# The third unit was silent, so backprop stops its 4. The deconvnet does not ask, and lets it through. The second unit
# was active and its R is negative: backprop lets -3 pass, the two others stop it.
#
# Now the formulas are nothing new. A comparison such as `f > 0` is a mask of True and False, which count as 1 and 0:
#
# | rule | formula | code |
# |---|---|---|
# | backprop | $(f > 0) \cdot R$ | `(f > 0) * R` |
# | deconvnet | $(R > 0) \cdot R$ | `(R > 0) * R` |
# | guided | $(f > 0) \cdot (R > 0) \cdot R$ | `(f > 0) * (R > 0) * R` |
#
# From the units it goes on to the inputs, each unit's number times its weights. Backprop gives x1 the gradient
# 2·1 - 3·3 = -7, the deconvnet 2·1 + 4·1 = 6.

# %% tags=["predict"]
predict("guided_first_input")

# %%
weights = torch.tensor([[1.0, 2.0], [3.0, -1.0], [1.0, -2.0]])
f = torch.relu(weights @ torch.tensor([1.0, 2.0]))
R = torch.tensor([2.0, -3.0, 4.0])
print("f =", f.tolist(), " R =", R.tolist())
print("backprop: ", ((f > 0) * R @ weights).tolist())
print("deconvnet:", ((R > 0) * R @ weights).tolist())
print("guided:   ", ((f > 0) * (R > 0) * R @ weights).tolist())

# %% [markdown]
# Three rules, three answers: [-7, 7], [6, -4], [2, 4]. Only the first is the derivative of y. If x1 grows by a little,
# y **falls** seven times as much; guided backpropagation shows a 2 there. It does not show how the output would change.
# It shows what is *active and speaks for it*. (Negative numbers may still come out at the inputs, as the deconvnet's
# -4: there is no ReLU below the last weights.)

# %% [markdown] tags=["instructor"]
# **Misconception:** "Guided backpropagation is a more exact gradient." **Ask:** "y falls when x1 grows. Which of the three
# rules tells you so?" **Answer:** only backprop, with -7. **Then show:** put 1.01 for x1 and compute y: 6.93.
#
# **Misconception:** "The deconvnet also asks whether the unit was active." **Ask:** "What does it do with the 4 at the silent
# unit?" **Answer:** it lets it through.
#
# **For discussion:** half of the gradient is negative. What does a negative number at a pixel say? (More of this colour
# here, and the logit falls.)

# %% [markdown]
# ## The rules as hooks
#
# A full backward hook on an `nn.ReLU` module is called with `grad_input`, what the module is about to pass on, and
# `grad_output`, what has arrived (lesson 03). Each is a tuple with one entry. What the hook returns replaces
# `grad_input`.


# %% tags=["setup"]
def three_units():
    """The net of the pencil example as modules: Linear, ReLU, Linear."""
    net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 2.0], [3.0, -1.0], [1.0, -2.0]]))
        net[2].weight.copy_(torch.tensor([[2.0, -3.0, 4.0]]))
    return net


def gradient_at_input(net):
    """The gradient of the net's output at x = [1, 2]."""
    x = torch.tensor([[1.0, 2.0]], requires_grad=True)
    return torch.autograd.grad(net(x).sum(), x)[0].tolist()[0]


# %%
def look(module, grad_input, grad_output):
    print("arrived:   ", grad_output[0].tolist()[0])
    print("will go on:", grad_input[0].tolist()[0])


net = three_units()
handle = net[1].register_full_backward_hook(look)
print("at x:", gradient_at_input(net))
handle.remove()

# %% [markdown]
# `grad_output` is R, and `grad_input` is what backprop makes of it: `(f > 0) * R` has been done already. So the
# deconvnet needs one line, which begins with `grad_output` and throws `grad_input` away:


# %%
def deconvnet_hook(module, grad_input, grad_output):
    return (grad_output[0].clamp(min=0),)  # a tuple, as grad_input is


handle = net[1].register_full_backward_hook(deconvnet_hook)
print("with the hook:   ", gradient_at_input(net))
handle.remove()
print("without the hook:", gradient_at_input(net))

# %% [markdown]
# [6, -4], as with the pencil. The guided rule is as short, and you will find it: exercise 2 is that hook, exercise 3
# puts it on every ReLU of a network and takes it off again, exercise 4 asks for the gradient. Together they are the
# class "Guided Backprop" of the tutorials, without its second hook: they also store the output of every ReLU in a
# forward hook. There is no need to, since `grad_input` has been multiplied by `f > 0` when your hook sees it.
#
# ## ReLUs that no hook sees
#
# Hooks sit on modules. Many networks, DenseNet and GoogLeNet among them, call a function instead. Here is the pencil
# net once more, with the same weights:


# %% tags=["setup"]
class FunctionalNet(nn.Module):
    """The pencil net, with F.relu in the place of the module."""

    def __init__(self):
        super().__init__()
        self.first, _, self.second = three_units()

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


def hook_relus(net, hook):
    """Put `hook` on every nn.ReLU of `net`; returns the handles."""
    relus = [module for module in net.modules() if isinstance(module, nn.ReLU)]
    return [relu.register_full_backward_hook(hook) for relu in relus]


# %% tags=["predict"]
predict("functional_relu")

# %%
for name, net in {"nn.ReLU": three_units(), "F.relu": FunctionalNet()}.items():
    handles = hook_relus(net, deconvnet_hook)
    print(f"{name:8} {len(handles)} hooks, gradient {gradient_at_input(net)}")
    for handle in handles:
        handle.remove()

# %% [markdown]
# No hook, no error, and the plain gradient [-7, 7] under the name of another method. That is the worst kind of failure:
# the picture would look plausible. Count your hooks.
#
# The second kind is loud. AlexNet, VGG and SqueezeNet have ReLUs that work **in place**, and these cannot have a full
# backward hook:

# %%
net = three_units()
net[1].inplace = True
handles = hook_relus(net, deconvnet_hook)
try:
    gradient_at_input(net)
except RuntimeError as error:
    print("RuntimeError:", str(error).split(".")[0])
handles[0].remove()

# %% [markdown]
# The hook wraps the module's input in a view, and an in-place operation on it would lose the hook (lesson 03). Exercise
# 6 switches the flag off. What works for all of them, functions too, is to watch the *function* that every ReLU calls:
# `torch.overrides.TorchFunctionMode` is a context manager that sees each call of a torch function in its block, and may
# answer in its place. `course_utils.vision.saliency.guided_backprop` does this:


# %%
def as_pictures(net):
    """Let images (N, 2, 1, 1) into a net that takes (N, 2)."""
    return nn.Sequential(nn.Flatten(), net)


in_place = three_units()
in_place[1].inplace = True
x = torch.tensor([1.0, 2.0]).reshape(1, 2, 1, 1)
nets = {"nn.ReLU": three_units(), "in place": in_place, "F.relu": FunctionalNet()}
for name, net in nets.items():
    print(f"{name:8} {guided_backprop(as_pictures(net), x, target=0).flatten().tolist()}")
try:
    guided_backprop(as_pictures(nn.Linear(2, 1)), x, target=0)
except ValueError as error:
    print("no ReLU:", str(error).split(",")[0])

# %% [markdown]
# [2, 4] three times, and a network without any ReLU is an error that says so.

# %% [markdown] tags=["instructor"]
# **Misconception:** "Hooks are registered on operations." **Ask:** "Which Python object does the hook sit on when the code
# says F.relu(x)?" **Answer:** on none: there is no module.
#
# **Misconception:** "The guided hook needs the ReLU's output." **Ask:** "What has happened to grad_input when the hook gets
# it?" **Answer:** it was multiplied by f > 0 already.
#
# **Misconception:** "No error, so it worked." **Ask:** "What does [-7, 7] tell you?" **Answer:** that it is the plain
# gradient. Count your hooks. (Who knows `__torch_function__` may look at `_WatchRelus` in `saliency.py`.)

# %% [markdown]
# ## Side by side
#
# The same three rules on the course's network, for the cat and for the boat in the same picture. A short name for each:

# %%
RULES = {"gradient": input_gradient, "deconvnet": deconvnet, "guided": guided_backprop}
maps = {
    (rule, kind): explain(model, image[None], KINDS.index(kind))[0]
    for kind in picture.labels
    for rule, explain in RULES.items()
}
for (rule, kind), each in maps.items():
    strength = each.abs().sum(0)
    shares = [strength[mask].sum().item() / strength.sum().item() for mask in picture.masks]
    on_cat, on_boat = shares
    print(f"{rule:9} for the {kind:4}: {on_cat:.2f} on the cat, {on_boat:.2f} on the boat")

# %%
labels = [f"{rule}, {kind}" for rule, kind in maps]
show(
    grid([standardise(each) for each in maps.values()], columns=3, scale=2, labels=labels),
    alt="Three maps for the cat, three for the boat. The gradient: noise, denser on the "
    "thing asked for. The deconvnet: a pattern all over the picture, the same for both. "
    "Guided: a clear drawing, mostly of the thing.",
    title="Guided draws the thing asked for; the deconvnet draws the same for both",
)

# %% [markdown]
# Guided Backprop draws the cat's face and stripes when asked for the cat, and the boat when asked for the boat. The
# shares above say the same: each thing covers about a tenth of the picture and gets more than half of the guided map's
# strength. The deconvnet gives about 0.15 to either thing, whichever you ask for.
#
# ## What the picture hides
#
# A gradient has no natural picture. The tutorials all use one recipe, with the mean and the standard deviation of all
# its numbers: $0.5 + 0.1 \cdot (I - \text{mean}) / \text{std}$, clipped to [0, 1]. In code that is `((I - I.mean()) /
# I.std() * 0.1 + 0.5).clamp(0, 1)`; `standardise` did it above.

# %% tags=["predict"]
predict("a_thousand_times")

# %%
guided = maps["guided", "cat"]
for factor in (0.001, 1, 1000):
    changed = standardise(factor * guided)
    difference = (changed - standardise(guided)).abs().max().item()
    print(f"times {factor:<5g}  largest difference in the picture: {difference:.3f}")
mean, spread = changed.mean().item(), changed.std().item()
print(f"mean {mean:.2f}, standard deviation about {spread:.1f}")
clipped = ((guided - guided.mean()) / guided.std()).abs() > 5
print(f"clipped: {clipped.float().mean().item():.1%} of the values", end=", ")
held = guided[clipped].abs().sum() / guided.abs().sum()
print(f"which hold {held.item():.0%} of the strength")

# %% [markdown]
# Any factor gives the very same picture: **the size is hidden**. A gradient that is almost zero looks as convincing as
# a large one. So is part of the shape: the strongest pixels are clipped to black and white, and nobody sees by how much
# they lead. And the **sign** is hard to read: what is darker than grey speaks *against* more of that colour, but on a
# coloured dot of three channels nobody sees it. Turn every sign round, and you get the negative of the picture:

# %%
usual, negative = standardise(guided), standardise(-guided)
fixed, tenth = show_fixed(guided), show_fixed(guided / 10)
difference = (usual + negative - 1).abs().max().item()
print(f"picture and negative add up to 1, up to {difference:.3f}")
print(f"contrast on the fixed scale: {fixed.std().item():.2f} and {tenth.std().item():.2f}")
tiles = [usual, negative, fixed, tenth]
names = ["guided", "its negative", "a fixed scale", "fixed, a tenth as large"]
show(
    grid(tiles, columns=4, scale=2, labels=names),
    alt="The guided map of the cat four times: normalised, the negative of that, on a "
    "fixed scale, and a tenth as large on that scale, where hardly anything is left.",
    title="At a tenth of the size the usual picture is the same; on a fixed scale it fades",
)

# %% [markdown]
# **The rule:** when you compare two gradients, put them on one scale, or say the numbers beside the pictures.

# %% [markdown] tags=["instructor"]
# **Misconception:** "A clear picture means that the network is sure." **Ask:** "Which of these pictures would change if the
# network's last layer were multiplied by 0.001?" **Answer:** only those on a fixed scale.
#
# **Misconception:** "Grey is nothing, bright is much." **Ask:** "And darker than grey?" **Answer:** it speaks against more of
# that colour; on a dot of three channels nobody sees it.
#
# **For discussion:** how would you print two gradients in a paper so that they can be compared? (One scale for both, or the
# numbers beside them.) A pause fits here.

# %% [markdown]
# ## Does it follow the class?
#
# Guided Backprop is said to be insensitive to the class: whatever you ask for, you get the same drawing. One picture is
# no proof for or against it, so we measure. 24 pictures with two things each; for each picture one map for the first
# thing and one for the second. How much of the strength on both things lies on the one asked for? A map that is blind
# to the class gets 0.50: what it gives one thing when that is wanted, it takes from it when the other one is.
#
# The drawn pictures have perfectly even areas, where max-pooling finds equal values and chance decides which of them
# gets the gradient. A little noise, less than anyone would see, makes the numbers below the same on every machine.

# %% tags=["predict"]
predict("most_on_the_thing")

# %%
batch = scenes(24, seed=61)
grain = torch.rand(batch.images.shape, generator=torch.Generator().manual_seed(0)) - 0.5
images = (batch.images + 4 * grain) / 255  # a little noise, as every camera adds
first, second = torch.stack([row.nonzero().flatten() for row in batch.labels]).T
on_first = batch.owners == (first + 1)[:, None, None]  # owners: 1 + index of the kind
on_second = batch.owners == (second + 1)[:, None, None]
print("rule       on its own thing   cosine   rank correlation")
for rule, explain in RULES.items():
    pair = explain(model, images, first), explain(model, images, second)
    found = measure_class_sensitivity(*pair, on_first, on_second)
    print(f"{rule:9}  {found.on_own:16.2f} {found.cosine:8.2f} {found.ranks:18.2f}")

# %% [markdown]
# On this network the claim does **not** hold. Guided Backprop puts about four fifths on the thing that was asked for,
# more than the plain gradient. The one that is blind is the deconvnet: 0.51, one hundredth from chance (Mahendran &
# Vedaldi, 2016, found the same on large networks).
#
# The other two columns compare the two maps of a picture with each other. The **cosine** is 1 for the same map, -1 for
# its negative: the plain gradients point in opposite directions, because what makes the net surer of the one thing
# makes it less sure of the other. The guided maps do not: a rule that stops everything negative cannot show what speaks
# *against* a class. The **rank correlation** looks only at which pixels are brighter than which, and at 0.69 it is the
# highest for guided: the two guided maps share most of their lines, and differ in how bold these are.
#
# Where does the claim come from, then? From much deeper networks with a thousand classes. If trained weights of
# SqueezeNet are in torch's cache, this cell shows it; `load_classifier("squeezenet1_1")`, without `pretrained=`,
# downloads them (5 MB).

# %% tags=["pretrained"]
# NBVAL_IGNORE_OUTPUT
# Not compared: it shows more where trained weights are in torch's cache
large = load_classifier("squeezenet1_1", pretrained="if cached")
if large.pretrained:
    prepared = large.transform(scene("cat", "dog", seed=6, size=224).image)[None]
    wanted = [large.classes.index(name) for name in ("tabby", "golden retriever")]
    for rule, explain in RULES.items():
        pair = [explain(large.model, prepared, k) for k in wanted]
        ranks = rank_correlation(*map(find_strength, pair)).item()
        cosine = cosine_similarity(*pair).item()
        print(f"{rule:9} cosine {cosine:.2f}, rank correlation {ranks:.2f}")
else:
    print("SqueezeNet's trained weights are not in the cache: this cell goes on without.")

# %% [markdown]
# With the weights you read, for a tabby and a golden retriever, the cosines 0.40 (gradient), 1.00 (deconvnet) and 0.97
# (guided). There the two guided maps can hardly be told apart, and the claim holds. The reason is known: where layer
# upon layer stops everything negative, the map forgets where it started and comes to redraw the picture's own edges
# (Nie, Zhang & Patel, 2018; Sixt, Granz & Landgraf, 2020). Five layers are not deep enough to forget.
#
# ## Does it follow what was learned?
#
# A harder question (Adebayo et al., 2018). If a map explains the network, it has to change when the network changes. So
# take the last layer and give it **random weights**, as before any training. It was the only layer that knew the names
# of the classes. Then the layer before it too, and so on down to the first: the *cascading parameter randomisation*.
# Each time, compare the map with the original one.

# %% tags=["predict"]
predict("random_classifier")

# %%
some, wanted = images[:12], first[:12]
METHODS = {
    "gradient": lambda net: find_strength(input_gradient(net, some, wanted)),
    "deconvnet": lambda net: find_strength(deconvnet(net, some, wanted)),
    "guided": lambda net: find_strength(guided_backprop(net, some, wanted)),
    "Grad-CAM": lambda net: grad_cam(net, some, "features.16", wanted),  # lesson 07
}


original = {method: explain(model) for method, explain in METHODS.items()}


def compare(net):
    """For each method, how its maps of `net` correlate with the original ones, by rank."""
    maps = {method: explain(net) for method, explain in METHODS.items()}
    return {m: rank_correlation(maps[m], original[m]).mean().item() for m in METHODS}


# %%
layers, rows = ["nothing"], [compare(model)]
two_seeds = randomise_cascading(model, seed=0), randomise_cascading(model, seed=1)
for (layer, one), (_, other) in zip(*two_seeds, strict=True):
    layers.append(layer)
    found, again = compare(one), compare(other)
    rows.append({method: (found[method] + again[method]) / 2 for method in METHODS})
print(f"{'random down to':14} " + " ".join(f"{method:>9}" for method in METHODS))
for layer, row in zip(layers, rows, strict=True):
    print(f"{layer:14} " + " ".join(f"{value:9.2f}" for value in row.values()))

# %%
draw_cascade(
    layers,
    {method: [row[method] for row in rows] for method in METHODS},
    title="Without the layer that knows the classes, the guided map stays nearly the same",
    alt="Rank correlation with the original map, as more layers become random. Guided "
    "falls slowly from 1 and is highest throughout; the gradient and the deconvnet fall at "
    "once to about one half or less, Grad-CAM to 0.2 and then to 0.",
)

# %% [markdown]
# With a classifier that knows nothing, the guided map still correlates at 0.88 with the original, and at 0.72 when
# three layers of six are random: most of the drawing comes from the lower layers, which find edges. The plain gradient
# drops to 0.52 at once, and Grad-CAM, which lesson 07 builds, to 0.20. (Not even all layers random give 0: the maps of
# an untrained network know where the edges are, too.)
#
# So both are true here: the map puts most of its *strength* where the class is, and most of its *pattern* does not
# depend on what the network knows of classes. You may trust it for "which edges are active below", not for "why this
# class".
#
# Take the test itself with care, too. This is what others found:
#
# - Sundararajan & Taly (2018): whether a method passes depends on how its map is made into numbers, with absolute
#   values or with signs. (Here: ranks of absolute values, but for Grad-CAM, which keeps its sign.)
# - Kokhlikyan et al. (2021): the outcome changes with the architecture and with the kind of input.
# - Yona & Greenfeld (2021): the task takes part. Where the only edges belong to the thing, an honest map looks like an
#   edge detector, and a map may change little for good reasons.
# - Binder et al. (2023): random upper layers still hand on which units below were active, so a good map *should* stay
#   partly the same, and similarity measures favour noisy maps, which change much.
#
# So a map that stays the same is a warning, and a map that changes has passed one test of many.

# %% [markdown] tags=["instructor"]
# **Misconception:** "It failed the sanity check, so the picture is wrong." **Ask:** "Wrong as an answer to which question?"
# **Answer:** to "why this class"; not to "which edges are active below".
#
# **Misconception:** "Guided Backprop is blind to the class: everybody says so." **Ask:** "What is our number, and what would a
# blind map get?" **Answer:** about four fifths against 0.50. On a network with a thousand classes and many more layers the
# claim holds.
#
# **For discussion:** what number would a plain edge detector get in the randomisation test? (1.00 everywhere: it does not
# look at the network at all.) And is a map that changes a good one? (Noise changes most of all.)

# %% [markdown]
# ## Explore
#
# Ask for a thing that is there, for the other one, and for one that is not there. Change the rule. Then let backward
# *start at a layer*: from the one unit there that counts most for the class. The frame in the picture is all that this
# unit can see. From "features.2" upwards it grows, and so does what the unit responds to.

# %% tags=["explore"]
from course_utils.explorers import GuidedBackprop

GuidedBackprop(picture=1, kind="cat", rule="guided")

# %% [markdown]
# ## Your network, your picture
#
# The two gradients once more, for the class that the network thinks most likely; bright is strong, whatever the sign.
# To choose a network and a picture of your own, change `own_network` and `own_image` at the top of the lesson and run it
# again. Or let `make handout LESSON=06 NETWORK=resnet34 IMAGE=photo.jpg` do that; it writes a page.

# %%
from course_utils.vision.own import look_at, show_gradients

own = look_at(own_network, own_image or image, own_layer)
print(own)
show_gradients(own)

# %% [markdown]
# Before you believe the clearer one: what would it show with random weights? Choose a network of torchvision whose
# weights are not in torch's cache, and see. A network without a ReLU, such as "efficientnet_b0", has no guided gradient.

# %% [markdown]
# ## Exercises
#
# Replace the `...` in an answer cell, run it, then run the `check` below it. Stuck? Run `hint(pass_relu)` in a new
# cell; `solution(pass_relu)` opens after three attempts.
#
# ### Exercise 1 · Three rules


# %% tags=["answer"]
def pass_relu(rule, f, grad):
    """Return the gradient that goes on through a ReLU by `rule`: "backprop",
    "deconvnet" or "guided".

    `f` is what the ReLU put out, `grad` the gradient that arrives. Backprop lets it
    pass where `f` is above 0, the deconvnet where `grad` is, guided backpropagation
    where both are. Everything else becomes 0.
    """
    ...


# %% tags=["check"]
check(pass_relu)

# %% [markdown]
# ### Exercise 2 · One guided ReLU
#
# The first piece of the class. What `grad_input` holds when your hook is called, you have seen above.


# %% tags=["answer"]
def guide_relu(relu):
    """Make the module `relu`, an nn.ReLU, follow the guided rule in backward, and
    return the hook's handle.

    It lets a gradient pass where the unit was active and the gradient is above 0.
    The forward pass stays as it is. The module may be called more than once.
    """
    ...


# %% tags=["check"]
check(guide_relu)

# %% [markdown]
# ### Exercise 3 · All of them, for a while


# %% tags=["answer"]
class Guide:
    """A context manager: in its block, every nn.ReLU of `model`, at any depth,
    follows the guided rule.

    Before the block and after it, by whatever way it ends, none of its hooks is on
    the model. Hooks of others stay.
    """

    def __init__(self, model): ...

    def __enter__(self): ...

    def __exit__(self, *exception): ...


# %% tags=["check"]
check(Guide)

# %% [markdown]
# ### Exercise 4 · The gradient of a class
#
# The last piece. Then `with Guide(model): class_gradient(model, images, classes)` is Guided Backprop, and you may
# compare it with `guided_backprop(model, images, classes)`.


# %% tags=["answer"]
def class_gradient(model, images, classes):
    """Return the gradient, at each of `images`, of the logit of its class: a tensor
    of their shape.

    `classes[n]` is the class for picture n; `model(images)` gives logits (N,
    classes). Afterwards no `.grad` and no `requires_grad` is another than before.
    """
    ...


# %% tags=["check"]
check(class_gradient)

# %% [markdown]
# ### Exercise 5 · The usual picture


# %% tags=["answer"]
def to_picture(gradient):
    """Turn a gradient (3, H, W) into a picture: mean 0.5, standard deviation 0.1,
    clipped to [0, 1].

    Mean and standard deviation are those of all its numbers together, as
    `gradient.mean()` and `gradient.std()` give them. A constant gradient gives 0.5
    everywhere; any other gives the same picture when it is a thousand times smaller.
    """
    ...


# %% tags=["check"]
check(to_picture)

# %% [markdown]
# ### Exercise 6 · ReLUs that cannot be hooked


# %% tags=["answer"]
def stop_in_place(model):
    """Make every nn.ReLU of `model`, at any depth, work out of place; return the
    dotted names of those that worked in place.

    The names are in the order of `model.named_modules()`. The model itself is
    changed: no module is replaced, and all other layers stay as they are.
    """
    ...


# %% tags=["check"]
check(stop_in_place)

# %% [markdown]
# ### Exercise 7 · How much lies on the thing?


# %% tags=["answer"]
def share_on(gradient, mask):
    """Return which share of the strength of a gradient lies on a mask, as a Python
    float.

    `gradient` is (3, H, W), `mask` (H, W) and bool. The strength of a pixel is the
    sum of the absolute values of its channels. A gradient that is 0 everywhere has
    the share 0.0.
    """
    ...


# %% tags=["check"]
check(share_on)

# %% [markdown]
# ### Exercise 8 · A network that forgets


# %% tags=["answer"]
def randomise_last(model, count, seed):
    """Return a copy of `model` whose last `count` layers have new random
    parameters.

    Layers are the modules with a method `reset_parameters`, in the order of
    `model.modules()`. Call `torch.manual_seed(seed)` once and then that method on
    each of them, the last layer first. With a count of 0 nothing is randomised.
    """
    ...


# %% tags=["check"]
check(randomise_last)

# %% [markdown] tags=["instructor"]
# **Misconceptions, by exercise:** 0 counted as above 0 (1); `clamp` on `grad_output` instead of `grad_input`, which is the
# deconvnet (2); `children()` instead of `modules()` (3, 6); removing hooks of others (3); `backward()`, which fills `.grad`
# of all weights (4); mean and standard deviation by channel (5); the sum of signed values (7); randomising the model itself
# instead of a copy (8).
#
# **Ask, whatever the exercise:** "Why need the hook not know f?"
#
# **For discussion (3):** what if the block raises? (`__exit__` runs all the same. That is why the hooks are in a context
# manager, and not between two calls.)

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | Store every ReLU's output with a forward hook, and take it from a stack in backward. | Not needed: `grad_input` is `(f > 0) * R` already. The stack breaks when one backward does not follow one forward. |
# | `module.register_backward_hook(f)` | Deprecated: for modules of several operations it shows the wrong `grad_input`. Use `register_full_backward_hook`. |
# | A hook on the first convolution catches the gradient of the picture. | Let the picture require its gradient and ask `torch.autograd.grad` for it; the order of layers no longer matters. |
# | It works for any network with ReLUs. | For `nn.ReLU` modules that are not in place. `F.relu` is passed over in silence, in place raises. |
# | Guided Backprop is insensitive to the class. | It depends on the network: 0.82 on the right thing (chance 0.50) on the course's small one, hardly any difference on SqueezeNet. Measure it on yours. |
# | The bright parts are what made the network decide. | They are active edges that speak for the class. The map hardly changes when the classifier is random. |
#
# ## Summary
#
# - The gradient of a logit at the pixels is exact, and noisy: positive and negative paths add up.
# - At each ReLU: backprop passes R where f > 0, the deconvnet where R > 0, guided backpropagation where both are.
# - With hooks, guided is one line on `grad_input`. Functional ReLUs are not hooked, and nothing tells you; in-place ones
#   raise.
# - The usual normalisation gives the same picture for any size of the gradient.
# - Test explanations with numbers: by the class, with masks; by what was learned, with random layers.
#
# ## Go further
#
# - Lesson 07: CAM and Grad-CAM, which point at the class, and Guided Grad-CAM, the product of both worlds.
# - Simonyan, Vedaldi & Zisserman, [Deep inside convolutional networks](https://arxiv.org/abs/1312.6034), 2013; Zeiler &
#   Fergus, [Visualizing and understanding convolutional networks](https://arxiv.org/abs/1311.2901), 2013; Springenberg et
#   al., [Striving for simplicity](https://arxiv.org/abs/1412.6806), 2014: the three rules.
# - Mahendran & Vedaldi, Salient deconvolutional networks, ECCV 2016; Nie, Zhang & Patel,
#   [A theoretical explanation for perplexing behaviors of backpropagation-based visualizations](https://arxiv.org/abs/1805.07039),
#   2018; Sixt, Granz & Landgraf, [When explanations lie](https://arxiv.org/abs/1912.09818), 2020: why they redraw the picture.
# - Adebayo et al., [Sanity checks for saliency maps](https://arxiv.org/abs/1810.03292), 2018, and its critics:
#   [Sundararajan & Taly, 2018](https://arxiv.org/abs/1806.04205),
#   [Kokhlikyan et al., 2021](https://arxiv.org/abs/2106.07475), [Yona & Greenfeld, 2021](https://arxiv.org/abs/2110.14297),
#   [Binder et al., 2023](https://arxiv.org/abs/2211.12486).
