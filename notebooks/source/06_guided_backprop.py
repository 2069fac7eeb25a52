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
# network to be surer of its answer. Drawn as a picture, it looks like noise. A small change at every ReLU turns the
# noise into a clear drawing. In this lesson you make that change with hooks. Then you test whether the drawing tells
# you what you think it does.
#
# ## What you will be able to do
#
# - **Compute** the gradient of a class at the pixels, and **draw** it.
# - **Explain** the three rules, backprop, deconvnet and guided, with a pencil and with one line of code each.
# - **Build** Guided Backprop with hooks, and **say** which networks need which kind of hook.
# - **Say** what the usual picture of a gradient shows, and what it does not.
# - **Test** an explanation: does it change with the class, and does it change when the network forgets?
#
# **Minutes:** counted by the build

# %% [markdown] tags=["instructor"]
# **Plan for 90 minutes**
#
# | Minutes | Sections | In the room | At home |
# |---|---|---|---|
# | 0 to 18 | Which pixels matter? · Three units and a pencil | everybody crosses out on paper what each rule stops; the first prediction by one vote, the second with discussion and a second vote; exercise {pass_relu} | nothing |
# | 18 to 41 | The rules as hooks | they write the deconvnet's line before you show it; exercises {guide_relu} and {Guide} | exercise {class_gradient} |
# | 41 to 43 | On a photograph | look first; write two conclusions down | nothing |
# | 43 to 48 | Pause | nothing | other kinds of ReLU, and exercise {stop_in_place} |
# | 48 to 53 | From a gradient to a picture | one vote | exercise {to_picture} |
# | 53 to 70 | Does it follow the class? | the explorer, everybody; guesses for the three rules on the board; the prediction with discussion and a second vote; exercise {share_on} | the two kinds of similarity |
# | 70 to 76 | And on photographs? | a vote before the table | the layers on the way down |
# | 76 to 83 | Does it follow what was learned? | sketch the four curves before the chart; the prediction with discussion and a second vote | what the critics found; exercise {randomise_last} |
# | 83 to 87 | What old tutorials say · The case · Summary · Go further | the two conclusions again; who still signs them? | the table |
#
# **Homework:** Exercises {class_gradient}, {to_picture} and {randomise_last}, about 24 minutes; *Other kinds of ReLU*
# with exercise {stop_in_place} for those who want it for their own network.

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
own_network = "efficientnet_lite0"  # for "Your network, your picture": "picture_net", or one of torchvision's
own_image = ""  # the path of a picture, such as "photo.jpg"; empty takes a photograph of the course
own_layer = ""  # a layer of that network, such as "layer3"; empty takes the last one that makes maps
own_class = ""  # what to explain, such as "tiger cat rather than tabby"; empty takes the likeliest classes

# %% tags=["setup"]
import copy

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises import check, hint, predict, replay, solution, why

# %% tags=["setup"]
from course_utils.lessons.figures import draw_cascade, draw_rules
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

# %% tags=["setup"]
from course_utils.lessons.own import look_at, show_gradients
from course_utils.lessons.sanity import (
    cosine_similarity,
    measure_class_sensitivity,
    randomise_cascading,
    rank_correlation,
)
from course_utils.scenes.scene import KINDS, scene, scenes
from course_utils.vision.kept_picture import find_kept
from course_utils.vision.networks import load_classifier, load_picture_net
from course_utils.vision.pictures import draw_heat, grid, resize_maps, show, show_fixed
from course_utils.vision.real import LAYERS, REAL, photograph
from course_utils.vision.saliency import explain, grad_cam, guided_backprop, relu, scale_to_unit, standardise, upsample
from course_utils.vision.scores import find_strength


def coarsely(pictures):
    """In steps of 1/20, which hardly anybody sees in noise, so that the file of this lesson stays small."""
    return (pictures * 20).round() / 20


# %% [markdown]
# ## Which pixels matter?
#
# The course has a small network of its own. It says which of ten kinds of things are in a picture, and there may be
# several. Here is a picture, and what the network says about it. A logit above 0 means "it is there".

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask whether they can see the cat in the gradient, and then whether they would have seen it
# without knowing the picture. Cover the left tile and show only the noise.

# %%
model = load_picture_net()
picture = scene("cat", "boat", seed=3)
image = picture.image
with torch.no_grad():
    logits = model(image[None])[0]
best = logits.argsort(descending=True)
print("seen:", ", ".join(f"{KINDS[k]} ({logits[k].item():.1f})" for k in best[:2]))
print("all other logits are below 0:", bool((logits[best[2:]] < 0).all()))

# %% [markdown]
# Which pixels made it say "cat"? Ask backward for the gradient of the cat's logit with respect to the **pixels**
# (Simonyan, Vedaldi & Zisserman, 2013). The picture becomes a leaf that requires its gradient.

# %%
cat = KINDS.index("cat")
pixels = image[None].clone().requires_grad_()
(gradient,) = torch.autograd.grad(model(pixels)[0, cat], pixels)
print("shape:", tuple(gradient.shape), " that of the picture:", tuple(pixels.shape))
print("share of negative values:", f"{(gradient < 0).float().mean().item():.1f}")

# %% tags=["setup"]
show(
    grid([image, coarsely(standardise(gradient)[0])], columns=2, scale=3, labels=["the picture", "gradient: cat"]),
    alt="A cat and a boat; beside it the gradient, a coloured noise, strongest on the cat.",
    title="The gradient is strongest on the cat, and looks like noise",
)

# %% [markdown]
# Grey means about 0. A coloured dot says: with more of this colour here, the logit rises. The dots gather on the cat,
# but you cannot see a cat in them. Half of the values are negative: along some paths a pixel speaks for the cat, along
# others against it, and what you see is their sum.
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
# Backward starts with 1 at y and hands each unit its weight: the gradients R = 2, -3, 4 **arrive** at the ReLUs. Each
# ReLU then decides what goes on. It can look at its own output f, and at R. There are three rules:
#
# | rule | R passes | formula | code |
# |---|---|---|---|
# | **backprop** | where the unit was active; this is the derivative | $(f > 0) \cdot R$ | `(f > 0) * R` |
# | **deconvnet** (Zeiler & Fergus, 2013) | where R speaks *for* the output | $(R > 0) \cdot R$ | `(R > 0) * R` |
# | **guided** (Springenberg et al., 2014) | where both hold | $(f > 0) \cdot (R > 0) \cdot R$ | `(f > 0) * (R > 0) * R` |
#
# A comparison such as `f > 0` is a mask of True and False, which count as 1 and 0.

# %% [markdown] tags=["sealed"]
# the third unit put out 0, and the gradient 4 arrives at it. What does the deconvnet rule let through?
#
# - [ ] 0: Backprop stops it there: what a silent unit receives does not count. The deconvnet does not look at f.
#   > Look at the code `(R > 0) * R`. Which number does it compare with 0, and what is this number at the third unit?
# - [x] 4: The rule asks one question only, whether R is above 0, and 4 is. What the unit put out plays no part.
# - [ ] -4: No rule flips a sign: each one lets a number pass as it is, or stops it.
#   > A rule multiplies R by 0 or by 1. Which numbers can come out for R = 4?
#
# The deconvnet lets 4 through. The third unit was silent, so backprop and the guided rule stop its 4, but the
# deconvnet does not ask. The second unit was active, and its R is negative: backprop lets -3 pass, the two
# others stop it. Only the first unit is open in all three rules.

# %% tags=["predict"]
predict("deconvnet_silent_unit")

# %%
draw_rules((5, 1, 0), (2, -3, 4), "What each rule lets through")

# %% tags=["why"]
why("deconvnet_silent_unit")

# %% [markdown]
# From the units it goes on to the inputs: each unit's number times its weight to the input. Backprop gives x1 the
# gradient 2·1 - 3·3 = -7, and the deconvnet 2·1 + 4·1 = 6.

# %% [markdown] tags=["sealed"]
# backprop gives x1 the gradient -7, the deconvnet 6. What does guided backpropagation give it?
#
# - [ ] -1: Guided backpropagation is not the sum of the two. A unit passes only where both rules let it.
#   > At the second unit, backprop lets the -3 pass and the deconvnet stops it. What does a rule do that needs a yes
#   > from both?
# - [ ] 0: The first unit passes both tests: its 2 goes on to x1 over a weight of 1.
#   > The first unit put out 5, and a 2 arrives there. Which of the two tests stops it?
# - [x] 2: Only the first unit passes both tests: 2 times its weight to x1, which is 1.
# - [ ] 6: That would need the third unit, which is silent: guided backpropagation stops it as backprop does.
#   > From which units does the 6 of the deconvnet come? What did each of these units put out?
#
# Guided gives x1 a 2. The three rules have three answers, and only the first, -7, is the derivative: if x1
# grows by a little, y **falls** seven times as much. So guided backpropagation does not show how the output
# would change. It shows what is *active and speaks for it*.
#
# Negative numbers may still come out at the inputs, such as the -4 of the deconvnet, because there is no ReLU
# below the last weights.

# %% tags=["predict"]
predict("guided_first_input")

# %%
weights = torch.tensor([[1.0, 2.0], [3.0, -1.0], [1.0, -2.0]])
f = torch.relu(weights @ torch.tensor([1.0, 2.0]))
R = torch.tensor([2.0, -3.0, 4.0])
print("backprop: ", ((f > 0) * R @ weights).tolist())
print("deconvnet:", ((R > 0) * R @ weights).tolist())
print("guided:   ", ((f > 0) * (R > 0) * R @ weights).tolist())

# %% tags=["why"]
why("guided_first_input")

# %% [markdown] tags=["instructor"]
# **Misconception:** "Guided backpropagation is a more exact gradient." **Ask:** "y falls when x1 grows. Which of the
# three rules tells you so?" **Answer:** only backprop, with -7. **Then show:** put 1.01 for x1 and compute y: 6.93.
#
# **Misconception:** "The deconvnet also asks whether the unit was active." **Ask:** "What does it do with the 4 at the
# silent unit?"
#
# **For discussion:** half of the gradient is negative. What does a negative number at a pixel say? (With more of this
# colour here, the logit falls.)

# %% [markdown]
# Replace the `...` in an answer cell, run it, then run the `check` below it. Stuck? Run `hint(pass_relu)` in a new
# cell; `solution(pass_relu)` opens after three attempts.

# %% [markdown]
# ### Exercise · Three rules

# %% [markdown] tags=["sealed"]
# 1 point
# 1. Each rule is a mask times `grad`. A comparison such as `grad > 0` is a mask, and masks may be multiplied.
# 2. backprop: `(f > 0) * grad`; the deconvnet asks the same question of `grad`; "guided" asks both.


# %% tags=["answer"]
def pass_relu(rule, f, grad):
    """Return the gradient that goes on through a ReLU by `rule`: "backprop",
    "deconvnet" or "guided".

    `f` is what the ReLU put out, `grad` the gradient that arrives. Backprop lets it
    pass where `f` is above 0, the deconvnet where `grad` is, guided backpropagation
    where both are. Everything else becomes 0. All numbers are finite.
    """
    ...


# %% tags=["check"]
check(pass_relu)

# %% [markdown]
# ## The rules as hooks
#
# A full backward hook on an `nn.ReLU` module is called with `grad_input`, what the module is about to pass on, and
# `grad_output`, what has arrived (lesson 03). Each is a tuple with one entry. What the hook returns replaces
# `grad_input`. `three_units()` makes the net of the pencil example.

# %% [markdown] tags=["instructor"]
# **On this slide:** Let them write the deconvnet's line before you show it. Whoever begins with `grad_input` has taken
# what the ReLU has already stopped; ask what stands in `grad_output` at the silent unit.


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
with net[1].register_full_backward_hook(look):
    print("at x:", gradient_at_input(net))

# %% [markdown]
# `grad_output` is R. `grad_input` is what backprop makes of it: it has been multiplied by `f > 0` already. So the
# deconvnet needs one line, which begins with `grad_output` and does not use `grad_input`:


# %%
def deconvnet_hook(module, grad_input, grad_output):
    return (grad_output[0].clamp(min=0),)  # a tuple, as grad_input is


with net[1].register_full_backward_hook(deconvnet_hook):
    print("with the hook:   ", gradient_at_input(net))
print("without the hook:", gradient_at_input(net))

# %% [markdown]
# This is the [6, -4] of the pencil. The guided rule is as short, and you will find it: exercise {guide_relu} is that
# hook, exercise {Guide} puts it on every ReLU of a network and takes it off again, and exercise {class_gradient} asks
# for the gradient. Together they are the class "Guided Backprop" of the tutorials. The tutorials also store the output
# of every ReLU in a forward hook. There is no need to, since `grad_input` has been multiplied by `f > 0` when your hook
# sees it.

# %% [markdown]
# ### Exercise · One guided ReLU

# %% [markdown] tags=["sealed"]
# 2 points
# 1. The lesson's hook for the deconvnet replaces `grad_input` by a new one. What has `grad_input` already been
#    multiplied by?
# 2. `grad_input[0]` is `(f > 0) * R`: backward through the ReLU has been done. What is left is the question about the
#    sign.


# %% tags=["answer"]
def guide_relu(relu):
    """Make the module `relu`, an nn.ReLU, follow the guided rule in backward, and
    return the hook's handle.

    It lets a gradient pass where the unit was active and the gradient is above 0.
    The forward pass stays as it is. The module may be called more than once,
    and does not work in place. The gradients are finite.
    """
    ...


# %% tags=["check"]
check(guide_relu)

# %% [markdown]
# ### Exercise · All of them, for a while

# %% [markdown] tags=["sealed"]
# 3 points
# 1. `model.modules()` gives the modules at every depth; choose those that are `isinstance(module, nn.ReLU)`.
# 2. Register in `__enter__` and keep the handles in `self`; remove them in `__exit__`, which runs in any case.


# %% tags=["answer"]
class Guide:
    """A context manager: in its block, every nn.ReLU of `model`, at any depth,
    follows the guided rule.

    `model` itself may be one. None of them works in place, and the gradients are
    finite. Before the block and after it, by whatever way it ends, none of its hooks
    is on the model. Hooks of others stay. Each block has a `Guide` of its own.
    """

    def __init__(self, model): ...

    def __enter__(self): ...

    def __exit__(self, *exception): ...


# %% tags=["check"]
check(Guide)

# %% [markdown] tags=["more"]
# ### More: Exercise · The gradient of a class

# %% [markdown] tags=["sealed"]
# 2 points
# 1. `torch.autograd.grad(number, tensor)` returns the gradient and writes no `.grad` anywhere.
# 2. Make a leaf of your own: `images.detach().clone().requires_grad_()`. Pick one logit per picture:
#    `logits[torch.arange(len(classes)), classes]`.


# %% tags=["answer"]
def class_gradient(model, images, classes):
    """Return the gradient, at each of `images`, of the logit of its class: a tensor
    of their shape.

    `classes` is a tensor, and `classes[n]` the class for picture n; `model(images)`
    gives logits (N, classes). Afterwards every `.grad` and every `requires_grad` is what it was.
    """
    ...


# %% tags=["check"]
check(class_gradient)

# %% [markdown]
# Now `with Guide(model): class_gradient(model, images, classes)` is Guided Backprop, and you may compare it with
# `guided_backprop(model, images, classes)` of the course.

# %% [markdown]
# ## On a photograph
#
# Pictures like the right one made the method famous. The network is EfficientNet-Lite0, which was trained on the
# photographs of ImageNet, and its weights are among the packages of this course. Its ReLUs work in place, and such a ReLU
# cannot have a full backward hook (*Other kinds of ReLU*, at the end of this lesson). So `explain`, a function of the
# course, puts its hooks on the graph instead.

# %% [markdown] tags=["instructor"]
# **On this slide:** Show the picture and say nothing. Ask what they would conclude from it about the network, and
# write two of the sentences down: the rest of the lesson tests them.


# %% tags=["setup"]
def draw_photo(photo, plain, guided):
    """A photograph of 224 x 224 pixels, its gradient and its guided gradient."""
    return show(
        coarsely(
            grid(
                [photo, standardise(plain), standardise(guided)],
                columns=3,
                labels=["the photograph", "gradient", "guided"],
            )
        ),
        alt="The face of a cat; its gradient, a coloured noise; its guided gradient, in which the eyes, the nose and "
        "the whiskers can be seen.",
        title="Guided Backprop draws eyes, nose and whiskers; the gradient looks like noise",
    )


# %%
real, photo = load_classifier(REAL), photograph("chelsea")
egyptian, espresso = real.number_of("Egyptian cat"), real.number_of("espresso")
with explain(real.model, real.transform(photo)[None], watch_relus=True) as run:
    plain, guided = (run.gradient(egyptian, relu_rule=rule)[0] for rule in ("plain", "guided"))
draw_photo(photo, plain, guided)

# %% [markdown]
# `explain` runs the network once. `gradient` then goes backward for a class by one of the three rules.
#
# ## From a gradient to a picture
#
# A gradient has no natural picture. The tutorials all use one recipe, with the mean and the standard deviation of all
# its numbers: $0.5 + 0.1 \cdot (I - \text{mean}) / \text{std}$, clipped to [0, 1]. Here this is `standardise`.

# %% [markdown] tags=["sealed"]
# the gradient becomes 1000 times as large, everywhere. What becomes of its normalised picture?
#
# - [ ] all black or white: This would be right without the division by the standard deviation.
#   > Take [-1, 0, 1] and [-1000, 0, 1000]. What is the standard deviation of each, and what comes out after the
#   > division?
# - [ ] more contrast: The contrast is always the same: a standard deviation of 0.1, however large the gradient.
#   > Divide any numbers by their own standard deviation. How far do the results spread, for small numbers and for large
#   > ones?
# - [x] the same picture: Mean and standard deviation grow by the same factor, and it cancels out.
#
# The picture stays the same for any factor. So **the size is hidden**: a gradient that is almost zero looks as
# convincing as a large one. On a fixed scale, a tenth of the gradient fades. Two more things are hidden:
#
# - The strongest values are clipped to black and white, and nobody sees by how much they lead.
# - The **sign** is hard to read. With all signs flipped, you get the negative of the picture, and on a
#   coloured dot of three channels nobody sees which one it is.
#
# When you compare two gradients, put them on one scale, or give the numbers beside the pictures.

# %% tags=["predict"]
predict("a_thousand_times")

# %%
guided = guided_backprop(model, image[None], cat)[0]
for factor in (0.001, 1, 1000):
    difference = (standardise(factor * guided) - standardise(guided)).abs().max().item()
    print(f"times {factor:<5g}  largest difference in the picture: {difference:.3f}")
clipped = ((guided - guided.mean()) / guided.std()).abs() > 5
held = guided[clipped].abs().sum() / guided.abs().sum()
print(f"clipped: {clipped.float().mean().item():.1%} of the values, which hold {held.item():.0%} of the strength")

# %% tags=["setup"]
tiles = [standardise(guided), standardise(-guided), show_fixed(guided), show_fixed(guided / 10)]
names = ["guided", "times -1", "a fixed scale", "fixed, divided by 10"]
show(
    coarsely(grid(tiles, columns=4, scale=2, labels=names)),
    alt="The guided map of the cat four times: as usual, with its signs flipped, and twice on a fixed scale.",
    title="One guided map, drawn in four ways",
)

# %% tags=["why"]
why("a_thousand_times")

# %% [markdown] tags=["instructor"]
# **Misconception:** "A clear picture means that the network is sure." **Ask:** "Which of these pictures would change
# if the network's last layer were multiplied by 0.001?" **Answer:** only those on a fixed scale.
#
# **For discussion:** how would you print two gradients in a paper so that they can be compared? (One scale for both,
# or the numbers beside them.) A pause fits here.

# %% [markdown] tags=["more"]
# ### More: Exercise · The usual picture

# %% [markdown] tags=["sealed"]
# 2 points
# 1. Four steps in this order: subtract the mean, divide by the standard deviation, times 0.1 plus 0.5, clip.
# 2. What should come out for a constant gradient? Ask whether all its numbers are equal: `gradient.std()` need not be
#    exactly 0 there, because sums are rounded, and where it is 0, 0 / 0 is nan.


# %% tags=["answer"]
def to_picture(gradient):
    """Turn a gradient (3, H, W) into a picture: mean 0.5, standard deviation 0.1,
    clipped to [0, 1].

    Mean and standard deviation are those of all its numbers together, as
    `gradient.mean()` and `gradient.std()` give them. A constant gradient gives 0.5
    everywhere; for any other, the standard deviation is above 1e-19, and nothing is
    added to it.
    """
    ...


# %% tags=["check"]
check(to_picture)

# %% [markdown]
# ## Does it follow the class?
#
# A map for the cat should lie on the cat, and a map for the boat on the boat. This explorer shows the small network.
# Ask for a thing that is there, for the other one, and for one that is not there. Change the rule and the picture. The
# sentence below it says how much of the map's strength lies on each thing.

# %% [markdown] tags=["instructor"]
# **On this slide:** Let everybody ask the explorer for a thing that is not in the picture before you talk about
# numbers. Then collect guesses for the three rules, as shares between 0 and 1.

# %% tags=["explore"]
from course_utils.explorers import GuidedBackprop

GuidedBackprop(picture=1, kind="cat")

# %% [markdown] tags=["sealed"]
# which rule puts the largest part of its map on the thing that was asked for, on this small network?
#
# - [ ] gradient: It is the exact derivative, but much of it lies elsewhere: 0.73 here, where 0.5 is chance.
#   > The gradient for the cat also says what speaks *against* a cat. On which pixels may that lie, and does it count as
#   > strength?
# - [ ] deconvnet: It ignores which units were active, and with that most of what it could know.
#   > A unit put out 0, because it found nothing in this picture. What does the deconvnet do with a positive gradient
#   > that arrives there?
# - [x] guided: Said to be blind to the class, it is the clearest of the three on this small network.
# - [ ] none: That is what the texts say of Guided Backprop. On this small network it is not so.
#   > In the explorer, take the guided rule and ask for the cat, then for the boat. How much of the map lies on each?
#
# The guided rule puts 0.82 on the thing that was asked for, the gradient 0.73, and the deconvnet 0.51. So on
# **this** network Guided Backprop does follow the class. The one that is blind is the deconvnet, which draws
# the same for both (Mahendran & Vedaldi, 2016, found this on large networks).
#
# The other columns say more. The **cosine** of the two gradients is -0.39: some of what speaks for the one
# thing speaks against the other. The guided maps have 0.38, because a rule that stops everything negative
# cannot show what speaks *against* a class. Their **rank correlation** is the highest, 0.69: the two maps share
# most of their lines, and differ in how bold these are.

# %% tags=["predict"]
predict("most_on_the_thing")

# %% tags=["setup"]
RULES = {"gradient": "plain", "deconvnet": "deconvnet", "guided": "guided"}


def draw_pairs(pairs):
    """For each rule the strengths of two maps, (2, H, W), on one scale: one pixel in 200 is clipped."""
    tiles = [tile for pair in pairs.values() for tile in (pair / pair.quantile(0.995)).clamp(0, 1)]
    labels = [f"{rule}: {kind}" for rule in pairs for kind in picture.labels]
    return show(
        coarsely(grid(tiles, columns=2, scale=2, labels=labels)),
        alt="The strength of three rules' maps, left for the cat and right for the boat.",
        title="Maps for the cat (left) and for the boat (right), one scale for each rule",
    )


# %%
pairs = {}
with explain(model, image[None], watch_relus=True) as run:
    for rule, name in RULES.items():
        pairs[rule] = find_strength(run.gradients([KINDS.index(kind) for kind in picture.labels], relu_rule=name)[:, 0])
draw_pairs(pairs)

# %% [markdown]
# One picture is no proof. Here are 24 pictures with two things each, and for each picture a map for the first thing
# and a map for the second. How much of the strength on both things lies on the one asked for? A map that is blind to
# the class gets 0.50. The **cosine** and the **rank correlation** compare the two maps of a picture: 1 means that they
# are the same.

# %% tags=["setup"]
# The drawn pictures have perfectly even areas, where max-pooling finds equal values, and rounding would decide which of
# them gets the gradient. A little noise, less than anyone would see, makes the numbers the same on every machine.
batch = scenes(24, seed=61)
grain = torch.rand(batch.images.shape, generator=torch.Generator().manual_seed(0)) - 0.5
images = (batch.images + 4 * grain) / 255
first, second = torch.stack([row.nonzero().flatten() for row in batch.labels]).T
on_first = batch.owners == (first + 1)[:, None, None]  # owners: 1 + index of the kind
on_second = batch.owners == (second + 1)[:, None, None]

# %%
pairs = {}
with explain(model, images, watch_relus=True) as run:
    for rule, name in RULES.items():
        pairs[rule] = [run.gradient(kinds, relu_rule=name) for kinds in (first, second)]
print("rule       on its own thing   cosine   rank correlation")
for rule, pair in pairs.items():
    found = measure_class_sensitivity(*pair, on_first, on_second)
    print(f"{rule:9}  {found.on_own:16.2f} {found.cosine:8.2f} {found.ranks:18.2f}")

# %% tags=["why"]
why("most_on_the_thing")

# %% [markdown]
# ### Exercise · How much lies on the thing?

# %% [markdown] tags=["sealed"]
# 2 points
# 1. How strongly a pixel counts is the sum of the *absolute* values of its three channels.
# 2. `strength = gradient.abs().sum(0)` is (H, W), as the mask is; `strength[mask]` are the pixels on the thing.


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
# ## And on photographs?
#
# Does a large network behave in the same way? The texts on Guided Backprop speak of such networks. So ask
# EfficientNet-Lite0 about three photographs, each with one class that is there and with one that is not: the cat with
# *Egyptian cat* and *espresso*, a cup of coffee with *espresso* and *tripod*, and a man with a camera with *tripod*
# and *Egyptian cat*. How similar are the two maps? Grad-CAM, which lesson 07 builds, is in the same table. It is a
# map of 7 x 7 places.

# %% [markdown] tags=["sealed"]
# the large network makes two guided maps of a photograph, one for what is there and one for what is not. What is their
# cosine?
#
# - [ ] about 0.4: This is right on the small network. On this one, far less of the class is left.
#   > In the small network there are five ReLUs on the way to the pixels, here 33. What does the guided rule drop at
#   > each?
# - [ ] about 0.7: They are more alike still: nobody could tell them apart.
#   > Suppose the two maps are the same at some layer in the middle. What could make them differ again on the way to the
#   > pixels?
# - [x] 1.0: Whatever you ask for, you get the same map.
#
# The cosine is 1.0 for all three photographs. The guided map of the cat is the same whether you ask for
# *Egyptian cat* or for *espresso*, and so is the deconvnet's. Texts say that Guided Backprop is blind to the
# class, and **on this network it is.** The plain gradient and Grad-CAM change a lot with the class; where the
# cosine is negative, a place that speaks for one class speaks against the other.
#
# The last table shows where the class is lost. At `blocks.6.0` there is one ReLU on the way, and the two maps
# have a cosine of 0.6. With every block further down they become more alike, and at `blocks.5.1` it is 1.0
# already, long before the pixels. A ReLU that stops everything negative makes the two maps more alike, and this
# network has 33 of them; the small one has five. In the end the map redraws the picture's own edges (Nie, Zhang
# & Patel, 2018; Sixt, Granz & Landgraf, 2020).

# %% tags=["predict"]
predict("two_classes_of_a_photograph")

# %%
names = ("chelsea", "coffee", "camera")
photos = torch.stack([real.transform(photograph(name)) for name in names])
there = torch.tensor([real.number_of(name) for name in ("Egyptian cat", "espresso", "tripod")])
pairs = {}
with explain(real.model, photos, watch_relus=True) as run:
    for rule, name in RULES.items():
        pairs[rule] = [run.gradient(classes, relu_rule=name) for classes in (there, there.roll(-1))]
with explain(real.model, photos, LAYERS[-1]) as run:
    pairs["Grad-CAM"] = [run.grad_cam(classes) for classes in (there, there.roll(-1))]
print("cosine      " + "".join(f"{name:>9}" for name in names))
for method, pair in pairs.items():
    print(f"{method:12}" + "".join(f"{cosine:9.1f}" for cosine in cosine_similarity(*pair).tolist()))


# %% tags=["setup"]
def draw_two_classes(photo, guided, cams, title):
    """The guided maps and the Grad-CAM maps of one photograph for two classes."""
    small = F.avg_pool2d(photo, 2)
    heats = scale_to_unit(relu(torch.stack(cams)))
    tiles = [F.avg_pool2d(standardise(each), 2) for each in guided]
    tiles += [F.avg_pool2d(draw_heat(small, heat), 2) for heat in heats]
    labels = [f"{method}: {name}" for method in ("guided", "Grad-CAM") for name in ("Egyptian cat", "espresso")]
    return show(
        coarsely(grid(tiles, columns=4, scale=2, labels=labels)),
        alt="Two guided maps and two Grad-CAM maps of a photograph of a cat, for two classes.",
        title=title,
    )


# %% tags=["setup"]
alike = {method: cosine_similarity(*pairs[method])[0].item() for method in ("guided", "Grad-CAM")}
draw_two_classes(
    photo,
    *([each[0] for each in pairs[method]] for method in alike),
    title="Two classes, one photograph. Cosine of the two: "
    + ", ".join(f"{method} {cosine:.1f}" for method, cosine in alike.items()),
)

# %% [markdown]
# And on the way down to the pixels? Stop the backward pass at a layer, and compare the two guided maps of the cat
# there.

# %%
for layer in ("blocks.6.0", "blocks.5.3", "blocks.5.2", "blocks.5.1", LAYERS[1], None):
    with explain(real.model, photos[:1], layer, watch_relus=True) as run:
        maps = [run.gradient(k, relu_rule="guided") for k in (egyptian, espresso)]
    print(f"{layer or 'the picture':15} {tuple(maps[0].shape[1:])!s:15} cosine {cosine_similarity(*maps).item():.1f}")

# %% tags=["why"]
why("two_classes_of_a_photograph")

# %% [markdown]
# ## Does it follow what was learned?
#
# A harder question (Adebayo et al., 2018). If a map explains the network, it has to change when the network changes.
# So take the last layer of the small network and give it **random weights**, as before any training. It was the only
# layer that knew the names of the classes. Then do the same with the layer before it too, and so on down to the first.
# This is the *cascading parameter randomisation*. Each time, compare the map with the original one.

# %% [markdown] tags=["sealed"]
# the last layer, the only one that knows classes, becomes random. How similar does the guided map stay?
#
# - [ ] 0.0: This would be right if the map explained the class. Rank correlation 0 means: unrelated.
#   > Only the last layer is random. Which layers lie between it and the pixels, and how many of these have changed?
# - [ ] 0.3: The guided map keeps far more, and even the plain gradient keeps 0.5.
#   > Think of the guided map of a cat: which lines does it draw? Which layers find such lines, and have these layers
#   > changed?
# - [ ] 0.6: More still. Which pixels are bright depends mostly on the layers below.
#   > An edge detector never looks at the network. Which number would it get in this test, and what does the guided map
#   > show?
# - [x] 0.9: Nearly all of the map's pattern comes from layers that do not know the classes.
#
# Read by absolute value, the guided map still correlates at 0.89 with the original one when the classifier
# knows nothing, and at 0.63 when four layers of six are random. Most of the drawing comes from the lower
# layers, which find edges. You may trust it for "which edges are active below", not for "why this class".
#
# Compare the other methods **in the same way**. By absolute value the gradient keeps 0.54 and Grad-CAM 0.58. By
# sign, as in the last row, both keep 0.2. If you read the gradient by absolute value and Grad-CAM by sign, as
# is often done, you find a difference between the two that is not there. The guided map stays most similar in
# both ways.
#
# Even all layers random do not give 0: the maps of an untrained network know where the edges are, too.

# %% tags=["predict"]
predict("random_classifier")

# %% tags=["setup"]
some, wanted = images[:8], first[:8]


def maps_of(net):
    """For each method its maps of eight pictures, (8, C, h, w), with their signs."""
    with explain(net, some, watch_relus=True) as run:
        found = {rule: run.gradient(wanted, relu_rule=name) for rule, name in RULES.items()}
    return found | {"Grad-CAM": grad_cam(net, some, "features.16", wanted)[:, None]}


def compare(all_maps, original, read):
    """For each method, how similar maps are to the original ones, by rank; `read` makes (8, h, w) of them."""
    means = {}
    for method in original:
        ranks = [rank_correlation(read(maps[method]), read(original[method])).mean() for maps in all_maps]
        means[method] = torch.stack(ranks).mean().item()
    return means


def print_row(name, row, form=".2f"):
    print(f"{name:21}" + "".join(f"{value:>10{form}}" for value in row))


# %% tags=["setup"]
def make_random(original):
    """The similarities, from the last layer down, as means of two random networks; and those of the first step by sign."""
    rows, by_sign = {"nothing": compare([original], original, find_strength)}, None
    for (layer, one), (_, other) in zip(*(randomise_cascading(model, seed) for seed in (0, 1)), strict=True):
        if layer not in ("features.11", "features.4"):  # four steps of six are enough for the chart
            both = [maps_of(one), maps_of(other)]
            rows[layer] = compare(both, original, find_strength)
            by_sign = by_sign or compare(both, original, lambda maps: maps.sum(1))
    return rows, by_sign


# %%
original = maps_of(model)
rows, by_sign = make_random(original)
print_row("random down to", original, "")
for layer, row in rows.items():
    print_row(layer, row.values())
print_row("classifier, by sign", by_sign.values(), ".1f")

# %% tags=["setup"]
most = max(original, key=rows["classifier"].get)
draw_cascade(
    list(rows),
    {method: [row[method] for row in rows.values()] for method in original},
    title=f"Of the four methods, {most} stays the most similar to its own map",
    alt="Rank correlation with the original map, as more layers become random: four falling curves.",
)

# %% tags=["why"]
why("random_classifier")

# %% [markdown]
# Take the test itself with care. This is what others found:
#
# - Sundararajan & Taly (2018): whether a method passes depends on how its map is made into numbers, with absolute
#   values or with signs. You have just seen it.
# - Yona & Greenfeld (2021): where the only edges belong to the thing, an honest map looks like an edge detector.
# - Binder et al. (2023): random upper layers still hand on which units below were active, so a good map *should* stay
#   partly the same, and similarity measures favour noisy maps, which change much.
#
# So a map that stays the same is a warning, and a map that changes has passed one test of many.

# %% [markdown] tags=["instructor"]
# **Misconception:** "It failed the sanity check, so the picture is wrong." **Ask:** "Wrong as an answer to which
# question?" **Answer:** to "why this class"; not to "which edges are active below".
#
# **Misconception:** "Grad-CAM passes and the gradient fails." **Ask:** "Which of them was read with its sign?"
# **Answer:** read in the same way, the two keep the same.
#
# **For discussion:** what number would a plain edge detector get in the randomisation test? (1.00 everywhere: it does
# not look at the network at all.) And is a map that changes a good one? (Noise changes most of all.)

# %% [markdown] tags=["more"]
# ### More: Exercise · A network that forgets

# %% [markdown] tags=["sealed"]
# 2 points
# 1. `copy.deepcopy(model)` first. A layer that can be randomised has a method: `hasattr(m, 'reset_parameters')`.
# 2. Put those layers in a list, in the order of `modules()`, and take the last ones with a slice.


# %% tags=["answer"]
def randomise_last(model, count, seed):
    """Return a copy of `model` whose last `count` layers have new random
    parameters.

    Layers are the modules with a method `reset_parameters`, in the order of
    `model.modules()`, which gives each once. Call `torch.manual_seed(seed)` once and
    then that method on each of them, the last layer first. With a count of 0 nothing is
    randomised.
    """
    ...


# %% tags=["check"]
check(randomise_last)

# %% [markdown] tags=["instructor"]
# **Misconceptions, by exercise:** 0 counted as above 0 (1); `clamp` on `grad_output` instead of `grad_input`, which is
# the deconvnet (2); `children()` instead of `modules()` (3, 8); removing hooks of others (3); `backward()`, which
# fills `.grad` of all weights (4); mean and standard deviation by channel (5); the sum of signed values (6);
# randomising the model itself instead of a copy (7).
#
# **Ask, whatever the exercise:** "Why need the hook not know f?"
#
# **For discussion (3):** what if the block raises? (`__exit__` runs all the same. That is why the hooks are in a
# context manager, and not between two calls.)

# %% [markdown] tags=["more"]
# ## More: Other kinds of ReLU
#
# A hook sits on a module. Some networks call a function instead: torchvision's GoogLeNet and Inception v3 have no
# `nn.ReLU` at all, and DenseNet has 120 of them and one call of `F.relu`. Here is the pencil net with the same weights
# and `F.relu`.


# %% tags=["setup"]
class FunctionalNet(nn.Module):
    """The pencil net, with F.relu in the place of the module."""

    def __init__(self):
        super().__init__()
        self.first, _, self.second = three_units()

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


class ReusedNet(nn.Module):
    """The pencil net, with one nn.ReLU that runs twice: behind the units, and behind y."""

    def __init__(self):
        super().__init__()
        self.first, self.relu, self.second = three_units()

    def forward(self, x):
        return self.relu(self.second(self.relu(self.first(x))))


# %% tags=["setup"]
def hook_relus(net, hook):
    """Put `hook` on every nn.ReLU of `net`; returns the handles."""
    relus = [module for module in net.modules() if isinstance(module, nn.ReLU)]
    return [relu.register_full_backward_hook(hook) for relu in relus]


# %% [markdown] tags=["sealed"]
# the network calls `F.relu`, and your hooks sit on every `nn.ReLU` that it has. What do you get?
#
# - [ ] an error: Nothing is wrong for PyTorch: a loop over no modules registers no hooks, and that is allowed.
#   > How many modules does `hook_relus` find in this network? What does Python do in a loop over an empty list?
# - [ ] the gradient of your rule: A function is not a module: no hook of yours is called when it runs.
#   > The forward calls `F.relu(x)`. On which Python object does your hook sit?
# - [x] the plain gradient: There is no `nn.ReLU` to hook, so nothing changes, and nothing says so.
# - [ ] zeros: Zeros would at least be seen. The result is the ordinary gradient, and looks plausible.
#   > No hook is called here. Who computes the gradient at the ReLU then, and by which of the three rules?
#
# There are 0 hooks and no error, and the result is [-7, 7]: the plain gradient under the name of another
# method. This is the worst kind of failure, because the picture would look plausible. Count your hooks.

# %% tags=["predict"]
predict("functional_relu")

# %%
for name, net in {"nn.ReLU": three_units(), "F.relu": FunctionalNet()}.items():
    handles = hook_relus(net, deconvnet_hook)
    print(f"{name:8} {len(handles)} hooks, gradient {gradient_at_input(net)}")
    for handle in handles:
        handle.remove()

# %% tags=["why"]
why("functional_relu")

# %% [markdown]
# AlexNet, VGG and SqueezeNet have ReLUs that work **in place**, and these cannot have a full backward hook. The hook
# wraps the module's input in a view, and an in-place operation on it would lose the hook:

# %%
in_place = three_units()
in_place[1].inplace = True
handles = hook_relus(in_place, deconvnet_hook)
try:
    gradient_at_input(in_place)
except RuntimeError as error:
    print("RuntimeError:", str(error).split(".")[0])
handles[0].remove()

# %% [markdown]
# One kind of hook works for all of them. Whatever calls a ReLU, a module or a function, in place or not, once or
# twice: each run makes a **node** in the graph, called `ReluBackward0`, and a node can have a hook as well. So here is
# Guided Backprop as a class that walks the graph from the logits to the input:


# %%
class GuideNodes:
    """In the block, each ReLU between `output` and the leaves follows the guided rule, whoever called it."""

    def __init__(self, output):
        self.nodes, waiting = set(), [output.grad_fn]
        while waiting:
            node = waiting.pop()
            if node is not None and node not in self.nodes:
                self.nodes.add(node)
                waiting += [earlier for earlier, _ in node.next_functions]

    def __enter__(self):
        relus = [node for node in self.nodes if node.name() == "ReluBackward0"]
        self.handles = [node.register_hook(lambda into, arrived: (into[0].clamp(min=0),)) for node in relus]

    def __exit__(self, *exception):
        for handle in self.handles:
            handle.remove()


# %%
nets = {"nn.ReLU": three_units(), "in place": in_place, "F.relu": FunctionalNet(), "reused": ReusedNet()}
for name, net in nets.items():
    x = torch.tensor([[1.0, 2.0]], requires_grad=True)
    y = net(x)
    with GuideNodes(y):
        (guided,) = torch.autograd.grad(y, x, retain_graph=True)
    (plain,) = torch.autograd.grad(y, x)
    print(f"{name:8} guided {guided.tolist()[0]}, after the block {plain.tolist()[0]}")

# %% [markdown]
# Four networks give the same [2, 4]. `guided_backprop` of the course works in this way, too. It also knows ReLU6,
# whose node has another name, and it raises an error for a network that has no ReLU at all.

# %% [markdown] tags=["instructor"]
# **Misconception:** "Hooks are registered on operations." **Ask:** "Which Python object does the hook sit on when the
# code says F.relu(x)?" **Answer:** on none: there is no module. The graph has a node for it.
#
# **Misconception:** "The guided hook needs the ReLU's output." **Ask:** "What has happened to grad_input when the hook
# gets it?" **Answer:** it was multiplied by f > 0 already.
#
# **Misconception:** "No error, so it worked." **Ask:** "How would you notice?" **Answer:** count your hooks.

# %% [markdown]
# ### Exercise · ReLUs that cannot be hooked

# %% [markdown] tags=["sealed"]
# 1 point
# 1. A module is in place if its attribute says so: `module.inplace`. You can set it.
# 2. `named_modules()` gives the dotted names with the modules, at every depth.


# %% tags=["answer"]
def stop_in_place(model):
    """Make every nn.ReLU of `model`, at any depth, work out of place; return the
    dotted names of those that worked in place. The name of `model` itself is `""`.

    The names are in the order of `model.named_modules()`. The model itself is
    changed: no module is replaced, and all other layers stay as they are.
    """
    ...


# %% tags=["check"]
check(stop_in_place)

# %% [markdown] tags=["more"]
# ## More: Your network, your picture
#
# Here are the two gradients for the class that you chose, otherwise for the likeliest one. The picture is your own, if you
# have chosen one in an explorer. For another network, file or class, change the names that begin with `own_` at the top of
# the lesson and run it again, or run `make handout LESSON=06 NETWORK=resnet34 IMAGE=photo.jpg CLASS="tiger cat"`, which
# writes a page.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask for the class that the room would like to see explained, and for one that is surely not in
# the picture. If the guided maps look alike, they have repeated the experiment of this lesson.

# %%
own = look_at(own_network, own_image or find_kept() or photograph("camera"), own_layer, own_class)
print(own)
show_gradients(own)

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | Store every ReLU's output with a forward hook, and take it from a stack in backward. | Not needed: `grad_input` is `(f > 0) * R` already. The stack breaks when one backward does not follow one forward. |
# | `module.register_backward_hook(f)` | Deprecated: for modules of several operations it shows the wrong `grad_input`. Use `register_full_backward_hook`. |
# | A hook on the first convolution catches the gradient of the picture. | Let the picture require its gradient and ask `torch.autograd.grad` for it. |
# | It works for any network with ReLUs. | Hooks on modules pass over `F.relu` in silence, and in-place ReLUs raise. Hooks on nodes see all. |
# | Guided Backprop is insensitive to the class. | It depends on the network. Measure it on yours. |
# | The bright parts are what made the network decide. | They are active edges. Test whether they depend on the class, and on what was learned. |

# %% [markdown] tags=["instructor"]
# **On this slide:** Take the last two rows together, and go back to the sentences that were written down at the
# photograph. Which of them would they still sign?

# %% [markdown]
# ## The case
#
# Guided Backprop draws sharply. So let it draw the fish as the network of the case sees it, and beside it as the course's
# own network does. Does either of them need the fish? For that, its pixels get the colour of grey.

# %%
from course_utils.explorers import case

picture, suspect = case.open_case()
image, fish, drawn, answers = picture.image, picture.masks[0], {}, []
for name, each in {"the case": suspect, "the course's": load_picture_net()}.items():
    drawn[name] = case.close_up(guided_backprop(each, image[None], case.FISH)[0].abs().amax(0))
    answers.append(case.ask_for_fish(each, image.where(~fish, 0.5)))
alike = torch.cosine_similarity(*(each.flatten() for each in drawn.values()), dim=0)
case.keep_clue(
    "06",
    f"Two networks draw the fish alike (cosine {alike:.2f}). With the fish painted grey, the one of the case still says "
    f"fish with {answers[0]:.0%}, the other one with {answers[1]:.0%}. The drawing does not tell them apart.",
    {"the fish": case.close_up(image)} | drawn,
)

# %% [markdown] tags=["instructor"]
# **On this slide:** Cover the names of the two drawings, and let the room vote which network needs the fish. The vote
# is the lesson.

# %% [markdown]
# ## Summary
#
# - The gradient of a logit at the pixels is exact, and noisy: positive and negative paths add up.
# - At each ReLU, backprop passes R where f > 0, the deconvnet where R > 0, and guided backpropagation where both hold.
# - With hooks on modules, guided is one line on `grad_input`. Hooks on nodes of the graph see functional, in-place and
#   reused ReLUs as well.
# - The usual normalisation gives the same picture for any size of the gradient.
# - Test explanations with numbers: by the class, and by what was learned. Read all methods in the same way, by sign or
#   by absolute value.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask for the one network in this lesson on which Guided Backprop followed the class, and the one
# on which it did not. The rule to take home is to measure it on their own.

# %% [markdown]
# ## Go further
#
# - Lesson 07: CAM and Grad-CAM, and Guided Grad-CAM, the product of both worlds.
# - The three rules: Simonyan et al. 2013, [Deep inside convolutional networks](https://arxiv.org/abs/1312.6034);
#   Zeiler & Fergus 2013, [Visualizing and understanding convolutional networks](https://arxiv.org/abs/1311.2901);
#   Springenberg et al. 2014, [Striving for simplicity](https://arxiv.org/abs/1412.6806).
# - Why they redraw the picture: Mahendran & Vedaldi 2016, Salient deconvolutional networks; Nie, Zhang & Patel 2018,
#   [A theoretical explanation](https://arxiv.org/abs/1805.07039); Sixt, Granz & Landgraf 2020,
#   [When explanations lie](https://arxiv.org/abs/1912.09818).
# - [Sanity checks for saliency maps](https://arxiv.org/abs/1810.03292), Adebayo et al. 2018, and its critics:
#   [Sundararajan & Taly 2018](https://arxiv.org/abs/1806.04205), [Yona & Greenfeld
#   2021](https://arxiv.org/abs/2110.14297), [Binder et al. 2023](https://arxiv.org/abs/2211.12486), [Kokhlikyan et al.
#   2021](https://arxiv.org/abs/2106.07475).

# %% [markdown] tags=["instructor"]
# **On this slide:** At home: the exercises that were left out. Ask those who like papers to read Adebayo et al. and
# one of its critics, and to tell the room in two minutes who is right about what.
