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
# # Feature maps
#
# A convolutional network turns a picture into other pictures, dozens in each layer: its **feature maps**. The next
# layer uses them, and then they are gone. A forward hook keeps them, so that you can look at them.
#
# ## What you will be able to do
#
# - **Read** the kernels of a first layer, and **explain** how a kernel becomes a map.
# - **Collect** the maps of any layers with hooks, and **avoid** the mistakes that many tutorials make.
# - **Show** maps as a grid, and **say** what the scale of a grid hides.
# - **Measure** what deeper layers do, and **compare** it with what chance does.
# - More: **show** maps in TensorBoard, and **choose** between hooks and `create_feature_extractor`.
#
# **Minutes:** counted by the build
#
# Run a cell with Shift+Enter. Where you see **Predict**, commit to an answer before you run the next cell. Everything
# here runs offline.

# %% [markdown] tags=["instructor"]
# **Plan for 90 minutes**
#
# | Minutes | Sections | In the room | At home |
# |---|---|---|---|
# | 0 to 10 | A network and a photograph · The first kernels are small pictures · From a kernel to a map | one vote; hide the labels of the four maps, and let them say which is which | reading about the two networks |
# | 10 to 30 | A hook on every convolution | the recipe has two bugs: let the room look for them before you run; the first prediction with discussion and a second vote, the second by one vote; exercise {keep_maps} | nothing |
# | 30 to 36 | Maps as a grid | one vote on the scale | exercise {tile_maps} |
# | 36 to 47 | Five depths of a real network | the five sheets with covered titles, to be put in order; exercise {zero_shares} | exercise {dead_channels} |
# | 47 to 53 | Pause | the first half can end here | nothing |
# | 53 to 67 | What does a channel follow? | the explorer, everybody, before anybody says what it is; one vote; exercise {strongest_channels} | nothing |
# | 67 to 84 | What do deeper layers do? | the guesses for the five layers on the board; the prediction with discussion and a second vote; the table; exercise {share_on_thing} | the ten channels |
# | 84 to 88 | What old tutorials say · The case · Summary · Go further | which of these lines have they copied? | the table |
#
# **Homework:** Exercises {tile_maps} and {dead_channels}, about 14 minutes; whoever keeps many maps also needs *What does
# keeping cost?* and exercise {channel_means}.

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
seed = 30
own_network = "efficientnet_lite0"  # for "Your network, your picture": "picture_net", or one of torchvision's
own_image = ""  # the path of a picture, such as "photo.jpg"; empty takes a photograph of the course
own_layer = ""  # a layer of that network, such as "layer3"; empty takes the last one that makes maps

# %% tags=["setup"]
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.utils import make_grid

from course_utils.exercises import check, hint, predict, replay, solution, why
from course_utils.hooks.memory import measure_memory
from course_utils.hooks.record import record
from course_utils.lessons.channels import follow_things

# %% tags=["setup"]
from course_utils.lessons.lesson_05 import (
    channel_means,
    dead_channels,
    keep_maps,
    run_to,
    share_on_thing,
    strongest_channels,
    tile_maps,
    zero_shares,
)
from course_utils.lessons.own import look_at, show_strongest_maps
from course_utils.scenes.scene import KINDS, scene, scenes
from course_utils.vision.charts import bars
from course_utils.vision.kept_picture import find_kept
from course_utils.vision.networks import PictureNet, load_classifier, load_picture_net

# %% tags=["setup"]
from course_utils.vision.pictures import (
    centre,
    colourise,
    draw_strokes,
    grid,
    light_up,
    outline,
    put_on_white,
    resize_maps,
    show,
)
from course_utils.vision.real import LAYERS, REAL, photograph
from course_utils.vision.scores import grow, share_on
from course_utils.vision.toys import make_edge_net

# %% [markdown]
# ## A network and a photograph
#
# EfficientNet-Lite0 is a network for phones. It was trained on ImageNet: more than a million photographs of a thousand
# classes. Its weights are among the packages of this course. What does it say about this photograph?

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what the network can say about where the cat is. Nothing so far: it gives a thousand numbers
# for the whole picture. Then explain why a second network with drawn pictures is needed: there the places are known.

# %%
real = load_classifier(REAL)
photo = photograph("chelsea")
for name, probability in real.likeliest(photo, 3):
    print(f"{name:12} {probability:.1f}")

# %% tags=["setup"]
show(photo, title="A photograph of 224 x 224 pixels", alt="The face of a ginger cat, seen from near.")

# %% [markdown]
# A photograph does not say which of its pixels belong to the cat, and this lesson wants to measure where maps respond.
# So the course has a second, small network with five convolutions. It was trained on drawn pictures, and says which of
# ten kinds of things are in them. For a drawn picture, the place of each thing is known.

# %%
net = load_picture_net()
picture = scene("balloon", "cat", seed=seed)
with torch.no_grad():
    probabilities = net(picture.image[None]).sigmoid()[0]
for k in probabilities.argsort(descending=True)[:3].tolist():
    print(f"{KINDS[k]:8} {probabilities[k]:.0%}")

# %% tags=["setup"]
show(picture.image, scale=3, title="A drawn picture of 112 x 112 pixels", alt=f"A drawing: {picture}.")

# %% [markdown]
# ## The first kernels are small pictures
#
# The first convolution of the small network has 24 kernels. Each kernel covers 7 x 7 pixels and three colours, so it
# can be drawn as a picture: it shows what the kernel looks for. Grey in the middle means 0.

# %% [markdown] tags=["instructor"]
# **On this slide:** Let the room find one kernel for edges and one for colours. Then ask why nobody shows the kernels
# of the second layer: each of them has 24 channels and no colours.

# %%
kernels = net.features[0].weight.detach()
print("kernels:", tuple(kernels.shape))

# %% tags=["setup"]
show(
    grid(centre(kernels, dims=3), columns=8, scale=10),
    title="Training made stripes, spots, and changes of colour",
    alt="24 kernels of 7 x 7 pixels, some with stripes, some dark beside light.",
)

# %% [markdown]
# A kernel with dark beside light finds edges. A kernel with one colour beside another finds changes of colour. Each
# kernel makes one **channel** of the layer's output. What a channel shows for one picture is a **map**.
#
# In the next layer, each kernel looks at 24 channels at once, and no screen has 24 colours. So from here on you look
# at what a layer **makes** of a picture, not at its kernels.

# %% [markdown]
# ## From a kernel to a map
#
# Let us make a map by hand. Here is a drawing of a cat's face: black ink on a transparent ground, as drawing programs
# save it. It has four channels: red, green, blue, and alpha. Alpha says how solid each pixel is.
#
# A recipe in an old tutorial makes a grey picture of it by taking the first channel, red.

# %% [markdown] tags=["sealed"]
# black ink on a transparent ground, saved as RGBA. How many different numbers are in its first channel?
#
# - [x] 1: Ink is black, (0, 0, 0). What is transparent is stored as (0, 0, 0) too. Only the fourth channel differs.
# - [ ] 2: This would be right on white paper. But a transparent pixel has a colour as well, and here that is black.
#   > A pixel without ink has four numbers, too. Which of them says that nothing is there? Does it then matter what the
#   > other three are?
# - [ ] many: The soft edges of the ink are in the fourth channel, which says how solid each pixel is.
#   > Go from the inside of a line over its soft edge to the outside. Which of a pixel's four numbers changes on the
#   > way?
#
# The first channel has one number, 0, at every place, and so have green and blue. Black ink is stored as (0, 0,
# 0), and the transparent ground is stored as (0, 0, 0) as well. The cat is stored only in the alpha channel.

# %% tags=["predict"]
predict("first_channel_of_a_drawing")

# %%
drawing = draw_strokes()
print("the drawing:", tuple(drawing.shape))
for channel, values in zip(("red", "green", "blue", "alpha"), drawing, strict=True):
    count = values.unique().numel()
    print(f"{channel:5} has {'1 number' if count == 1 else 'many different numbers'}")

# %% tags=["why"]
why("first_channel_of_a_drawing")

# %% [markdown]
# Before a network gets the drawing, put it on white paper: `rgb * alpha + (1 - alpha)`. `put_on_white` does this.
#
# Then take one 7 x 7 convolution and a ReLU. Its four kernels were made by hand: they look for a change from dark to
# light towards the right, the left, down and up. The forward hook keeps what comes out.


# %% tags=["setup"]
def draw_kernels_and_maps(kernels, paper, maps):
    """The drawing and the four kernels; below, all maps added and each map, on one scale, dark where they respond."""
    coloured = F.interpolate(colourise(centre(kernels), "RdBu_r"), scale_factor=16)
    below = 1 - torch.cat([maps.amax(0, keepdim=True), maps])[:, None].expand(-1, 3, -1, -1) / maps.max()
    names = ["right", "left", "down", "up"]
    labels = [
        "the drawing",
        *(f"kernel: {name}" for name in names),
        "all four maps",
        *(f"map: {name}" for name in names),
    ]
    return show(
        grid([paper, *coloured, *below], columns=5, labels=labels),
        title="Each kernel (red above 0, blue below) finds one side of the lines; its map is dark where it responds",
        alt="A drawn cat's face and four ramps from blue to red. Below, maps of its right, left, lower and upper sides.",
    )


# %%
paper = put_on_white(drawing)
edges = make_edge_net()
kept = []
with edges.register_forward_hook(lambda module, args, output: kept.append(output.detach())):
    edges(paper[None])
maps = kept[0][0]
right, left, down, up = maps > 0.05
print(f"right and down respond together at {(right & down).float().mean():.0%} of the places, ", end="")
print(f"right and left at {(right & left).float().mean():.0%}")

# %% tags=["setup"]
draw_kernels_and_maps(edges[0].weight.detach()[:, 0], paper, maps)

# %% [markdown]
# A feature map says how well the kernel fits, at every place of the picture. The maps "right" and "left" never respond
# at the same place, because one is the negative of the other, and the ReLU turns everything negative into 0.

# %% [markdown] tags=["instructor"]
# **Misconception:** "The kernel is the feature." **Ask:** "Which of the two pictures changes with the input, the
# kernel or the map?" **Answer:** the map. The kernel is the question, the map has the answers.
#
# **Misconception:** "An RGBA file has the drawing in red, green and blue." **Ask:** "Black ink on nothing: what colour
# is nothing?" **Then ask:** why did the author of the tutorial see a picture all the same? (White paper had been
# stored under the transparency.)
#
# **For discussion:** right and left never respond at the same place. Would they without the ReLU? (Each would be the
# other's negative, at every place.)

# %% [markdown]
# ## A hook on every convolution
#
# Now all convolutions of a network. A recipe that many tutorials share puts a forward hook on each convolution. The
# hook stores what the layer returns in a dict, under **the shape of the layer's weight**:

# %% [markdown] tags=["instructor"]
# **On this slide:** Show the recipe, and give two minutes to find what is wrong with it. Take suggestions and run
# nothing yet: on the small network it works, and this is why it spread.


# %%
def keep_by_shape(model, x):
    stored, handles = {}, []

    def keep(module, args, output):
        stored.setdefault(tuple(module.weight.shape), []).append(output)

    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            handles.append(module.register_forward_hook(keep))
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return stored


# %%
for shape, outputs in keep_by_shape(net, picture.image[None]).items():
    print(f"{shape!s:16} {len(outputs)} stack of maps, {tuple(outputs[0].shape)}")

# %% [markdown]
# The small network has five convolutions, and the dict has five keys. EfficientNet-Lite0 has 49 convolutions.

# %% [markdown] tags=["sealed"]
# EfficientNet-Lite0 has 49 convolutions. With the shape of the weight as the key, how many keys has the dict?
#
# - [ ] 49: This would be right if each layer had its own key. A shape is shared by all layers that have it.
#   > Two layers have weights of the same shape. What does `stored.setdefault(...)` do when this shape comes for the
#   > second time?
# - [x] 31: There are 31 different shapes. The other 18 convolutions share a key with one before them.
# - [ ] 5: Its maps have five different sizes. But the key is the shape of the weight, which has channels in it.
#   > In the small network, three convolutions return maps of 14 x 14. How many keys do these three have?
#
# The dict has 31 keys, because the 49 weights have 31 different shapes. The recipe then shows the first output
# under each key, so **18 of the 49 layers are never seen**, and nothing says so. With the small network it
# worked by luck: its five weights have five different shapes. So have the five of AlexNet, on which the
# tutorials try it.

# %% tags=["predict"]
predict("drawers_by_shape")

# %%
x = real.transform(photo)[None]
stored = keep_by_shape(real.model, x)
print("convolutions:", sum(isinstance(module, nn.Conv2d) for module in real.model.modules()))
print("keys:", len(stored))

# %% tags=["why"]
why("drawers_by_shape")

# %% [markdown]
# Another key is the layer's **name**. `course_utils.hooks.record.record` uses it, and removes its hooks when the block
# ends:

# %%
with torch.no_grad(), record(real.model, nn.Conv2d) as seen:
    real.model(x)
print("layers:", len(seen))
print("first and last:", next(iter(seen)), [*seen][-1])

# %% [markdown]
# ### What exactly is stored?
#
# The recipe stores `output` itself. Look at SqueezeNet, in which `ReLU(inplace=True)` follows the first convolution,
# as it does in AlexNet and VGG. (Its weights are random here. For this question it makes no difference.)

# %% [markdown] tags=["sealed"]
# the hook stores the output of SqueezeNet's first convolution as it is, and the model runs on. What is the lowest
# number in it afterwards?
#
# - [ ] below 0: The convolution did return negative numbers. The next layer has changed that very tensor.
#   > How many tensors are there after the hook has run, one or two? Which line of `keep` would make the second?
# - [x] exactly 0: The next layer is `ReLU(inplace=True)`: it writes its result into the tensor that you stored.
# - [ ] an error: Nothing notices: the hook holds a reference, and in-place changes reach everyone who does.
#   > Try `a = torch.tensor([-2.0])`, `b = a`, `a.relu_()`. Does anything complain, and what is in `b` now?
#
# The lowest number is exactly 0. You asked for the output of the convolution, and you got that of the ReLU. The
# hook stored the tensor itself, and `ReLU(inplace=True)` wrote its result into that tensor.
#
# `output.detach().clone()` keeps what the layer returned, as `record` does. Without `detach()` the copy would
# keep the graph in memory.

# %% tags=["predict"]
predict("lowest_number_stored")

# %%
squeezenet = load_classifier("squeezenet1_1", pretrained=False)
prepared = squeezenet.transform(photo)[None]
stored = keep_by_shape(squeezenet.model, prepared)[64, 3, 3, 3][0]
with torch.no_grad(), record(squeezenet.model, "features.0") as seen:  # keeps a clone
    squeezenet.model(prepared)
copied = seen["features.0"].output
for name, maps in {"the output itself": stored, "a clone of it": copied}.items():
    print(f"{name:18} negative: {(maps < 0).float().mean():3.0%}   zero: {(maps == 0).float().mean():3.0%}")

# %% tags=["why"]
why("lowest_number_stored")

# %% [markdown] tags=["instructor"]
# **Misconception:** "A hook stores a copy." **Ask:** "Which line of the recipe makes one?" **Answer:** none: a hook
# stores what you store.
#
# **Misconception:** "Five layers, five keys: it works." **Ask:** "How would you notice that it does not?" **Answer:**
# count the layers and the keys. Nothing raises.
#
# **For discussion:** which of the two bugs would you mend first? (The key: it loses whole layers. The other one
# changes numbers, which is worse if you compute with them, and invisible if you only look.)

# %% [markdown]
# Replace the `...` in an answer cell, run it, then run the `check` below it. Stuck? Run `hint(keep_maps)` in a new
# cell; `solution(keep_maps)` opens after three attempts.

# %% [markdown]
# ### Exercise · Keep the maps

# %% [markdown] tags=["sealed"]
# 2 points
# 1. The key is the layer's dotted name. `model.get_submodule(name)` finds the layer for it.
# 2. Whatever follows may write into the output, and the output holds the graph: store `output.detach().clone()`.


# %% tags=["answer"]
def keep_maps(model, names, x):
    """Call `model(x)` once and return a dict: each dotted name in `names` to a copy
    of what that layer returned.

    A copy stays as it is, whatever the layers behind do to the layer's output, and
    holds no graph. No name stands twice in `names`, and each of these layers runs
    once. When your function returns, no hook is left.
    """
    ...


# %% tags=["check"]
check(keep_maps)

# %% [markdown]
# ## Maps as a grid
#
# `make_grid` of torchvision lays tiles side by side. It wants (tiles, colours, height, width), so the 32 channels of
# the real network's first convolution, (1, 32, 112, 112), become 32 grey tiles, (32, 1, 112, 112). `nrow` is the
# number of tiles in a row, and `normalize=True, scale_each=True` stretches each tile from its own lowest to its own
# highest number.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what the brightest tile tells about the channel. Most say that it responds most strongly, and
# with `scale_each` the picture cannot tell. Let them say so before the vote.

# %%
with torch.no_grad(), record(real.model, "conv_stem") as seen:
    real.model(x)
stem = seen["conv_stem"].output[0].unsqueeze(1)  # (32, 1, 112, 112)
small = F.avg_pool2d(stem, 3)  # a third as large, to fit the page
each_by_itself = make_grid(small, nrow=8, normalize=True, scale_each=True)
print(tuple(stem.shape), "in rows of 8")

# %% tags=["setup"]
show(
    each_by_itself,
    scale=2,
    title="32 channels of the first convolution: the cat can be seen in nearly all of them",
    alt="4 rows of 8 grey maps. Nearly all show the cat's face.",
)

# %% [markdown] tags=["sealed"]
# the span of a channel is its highest number minus its lowest. The largest span of the 32 channels is about 23. Sort
# the channels by their spans: how large is the 20th?
#
# - [ ] about 20: The tiles look alike because each one was stretched by itself, not because the spans are alike.
#   > Say that one channel goes from 0 to 23, another from 0 to 0.001. How bright does `scale_each=True` draw the
#   > highest number of each?
# - [ ] about 10: Less than that. Each tile was stretched by itself, so the sheet says nothing about the spans.
#   > What on the sheet made you say 10? What would look different there if the span were 1?
# - [x] about 4: Each tile was stretched from black to white by itself. A span of 4 looks like a span of 23.
#
# The span of the 20th channel is about 4. In the first sheet it looks as strong as all others, because each
# tile runs from its own black to its own white. In some channels the convolution returns almost nothing.
#
# `scale_each=True` is good for seeing the *pattern* of each channel. To compare tiles, draw them on **one
# scale**.

# %% tags=["predict"]
predict("widest_and_narrowest_tile")

# %%
span = (stem.amax((1, 2, 3)) - stem.amin((1, 2, 3))).sort(descending=True).values
print(f"the largest span: {span[0]:.0f}, the 10th: {span[9]:.0f}, the 20th: {span[19]:.0f}", end=", ")
print("the smallest is below 0.001:", bool(span[-1] < 0.001))
one_scale = make_grid(small, nrow=8, normalize=True)

# %% tags=["setup"]
show(
    one_scale,
    scale=2,
    title="The same 32 channels, drawn on one scale for all",
    alt="The same 4 rows of 8 grey maps. They differ in contrast.",
)

# %% tags=["why"]
why("widest_and_narrowest_tile")

# %% [markdown] tags=["more"]
# ### More: Exercise · Tiles for a grid

# %% [markdown] tags=["sealed"]
# 1 point
# 1. `make_grid` takes (number of tiles, colour channels, H, W). Here each channel of the map is one grey tile.
# 2. `maps[0].unsqueeze(1)` is (C, 1, H, W). The lowest and highest number of each tile: `amin((1, 2, 3), keepdim=True)`
#    and `amax`.


# %% tags=["answer"]
def tile_maps(maps):
    """Turn the maps of one layer, (N, C, H, W) in float32, into grey tiles for a
    grid: those of the first picture, as a float32 tensor (C, 1, H, W).

    Each tile is stretched to [0, 1] by itself, a faint one as well: its lowest number
    becomes 0, its highest 1. A constant tile becomes all 0; in any other, these two
    are at least 1e-9 apart. `maps` stays as it is.
    """
    ...


# %% tags=["check"]
check(tile_maps)

# %% [markdown]
# ## Five depths of a real network
#
# A well-known figure shows the maps of an early, a middle and a late layer of a large network under the words "deeper
# is more abstract". Here are the first 25 channels of five layers of EfficientNet-Lite0, which `LAYERS` names, and how
# many channels each of them has. Each layer ends in a ReLU6, which returns numbers from 0 to 6. So one scale fits all tiles: black is 0, and bright yellow is 6.

# %% [markdown] tags=["instructor"]
# **On this slide:** Cover the titles and let the room put the five sheets in order. They will succeed; ask by what.
# It is by the size of the blocks, which random weights would show as well.


# %% tags=["setup"]
def draw_depths(depths):
    """The photograph, and 25 maps of each layer, (1, C, h, w) from 0 to 6, as 28 x 28 tiles on one scale."""
    sheets = [resize_maps(photo, (292, 292)).clamp(0, 1)]
    for maps in depths.values():
        tiles = F.interpolate(maps[:, :25] / 6, size=(28, 28), mode="area")[0]
        sheets.append(grid(colourise(tiles, "inferno"), columns=5, padding=2, scale=2))
    labels = ["the photograph", *(f"{name}: {maps.shape[1]} channels" for name, maps in depths.items())]
    return show(
        grid(sheets, columns=3, labels=labels),
        title="Deeper layers have more channels and fewer places, and more of their numbers are 0",
        alt="A cat's face, and five sheets of 25 maps. The cat is sharp in the first; later maps have a few blocks and are mostly black.",
    )


# %%
with torch.no_grad(), record(real.model, *LAYERS) as depths:
    real.model(x)
for name, layer in depths.items():
    print(f"{name:15} {tuple(layer.output[0].shape)!s:15} zeros: {(layer.output == 0).float().mean():.0%}")

# %% tags=["setup"]
draw_depths({name: layer.output for name, layer in depths.items()})

# %% [markdown]
# Each of these layers has half as many rows and columns as the one before, because of strides. With random weights it
# would be the same. And not every layer is coarser than the one before: the last three of our small network have 14 x
# 14.
#
# "More abstract" is a claim about *trained* weights, and a grid of tiles cannot prove it. Below, we measure it. First
# count what you see: exact zeros, which mean that a kernel does not fit there at all, and **dead** channels, which are
# 0 at every place of every picture.

# %% [markdown]
# ### Exercise · How much is zero?

# %% [markdown] tags=["sealed"]
# 2 points
# 1. A forward hook on each `nn.ReLU` of `model.named_modules()`. A hook may run more than once in a call.
# 2. Count zeros and numbers separately, for all runs of the layer; divide at the end.


# %% tags=["answer"]
def zero_shares(model, x):
    """Call `model(x)` once and return a dict: the dotted name of each `nn.ReLU` to
    the share of exact zeros in what it returned, a float from 0 to 1. The name of
    `model` itself is `""`.

    A ReLU that runs several times in the call counts all that it returned,
    together; one that does not run is not in the dict. When your function returns, no
    hook is left.
    """
    ...


# %% tags=["check"]
check(zero_shares)

# %% [markdown] tags=["more"]
# ### More: Exercise · Dead channels

# %% [markdown] tags=["sealed"]
# 2 points
# 1. A channel is alive as soon as one number of it, in any picture at any place, is above 0.
# 2. In the hook: `(output > 0).any(3).any(2).any(0)` is (C,). Combine it over the batches with `|`.


# %% tags=["answer"]
def dead_channels(model, layer, batches):
    """Run `model` on each of `batches` and return the numbers of the channels of
    `layer` that were never above 0, as a list of ints in ascending order.

    `layer` is a module of `model` and returns (N, C, H, W), without a nan. Never means:
    at no place of any picture of any batch, and, where the layer runs twice in a call,
    in neither run. `batches` is a list of inputs that differ in N alone, and the
    model runs on all of it. When your function returns, no hook is left.
    """
    ...


# %% tags=["check"]
check(dead_channels)

# %% [markdown]
# ## What does a channel follow?
#
# This explorer shows the small network. It opens at channel 53 of the layer `features.13`. Move the
# picture's slider from 30 to 39 (the arrow keys work, too), and find out what makes this channel respond.

# %% [markdown] tags=["instructor"]
# **On this slide:** Everybody tries all ten pictures before anybody says a word. Then ask for a picture that speaks
# against the first suggestion: looking only for those that fit is the mistake to show.

# %% tags=["explore"]
from course_utils.explorers import FeatureMaps

FeatureMaps("picture_net", layer="features.13", channel=53, picture=30)

# %% [markdown] tags=["sealed"]
# what makes channel 53 of `features.13` respond?
#
# - [ ] boats: Picture 38 has a boat and no fish, and the channel hardly responds to it.
#   > Move the slider to picture 36: what is lit there, and where is the boat?
# - [ ] balloons: Picture 30 has a balloon and no fish, and the channel hardly responds to it.
#   > Move the slider to picture 32: what is lit there? Is there a balloon in it?
# - [x] fish: It responds strongly to pictures 32 and 36. Both have a fish, and none of the other eight has one.
# - [ ] whatever is brightest: It hardly responds to many pictures, although each of them has a brightest place.
#   > Pictures 32 and 33 both have white clouds. From 0 to which number does the channel go in each?
#
# Channel 53 follows fish. Among the pictures 30 to 39 it responds strongly only to 32 and 36, the two with a
# fish, and the fish is what is lit. In the sixty other pictures, too, its mean response is by far the largest
# where there is a fish. It also responds a little to other things.

# %% tags=["predict"]
predict("what_channel_53_follows")

# %% [markdown]
# Ten pictures are few. How much does the channel respond to each kind of thing in sixty other pictures, on
# average?

# %%
first_sixty = scenes(60, seed=905)
with torch.no_grad(), record(net, "features.13") as seen:
    net(first_sixty.images.float() / 255)
response = seen["features.13"].output[:, 53].mean((1, 2))
by_kind = {kind: response[first_sixty.labels[:, k] > 0].mean().item() for k, kind in enumerate(KINDS)}

# %% tags=["setup"]
falling = sorted(by_kind, key=by_kind.get, reverse=True)
bars(
    [round(100 * by_kind[kind] / by_kind[falling[0]]) for kind in falling],
    falling,
    title=f"Channel 53 responds most to pictures with a {falling[0]} (means, in % of the largest)",
    unit="%",
)

# %% tags=["why"]
why("what_channel_53_follows")

# %% [markdown]
# Go back to the explorer and try other channels, layers and networks. You can also upload a photo, or draw with the
# mouse or a finger.

# %% [markdown]
# ### Exercise · The strongest channels

# %% [markdown] tags=["sealed"]
# 1 point
# 1. A negative number says that the pattern is not there: `clamp(min=0)` first.
# 2. One number a channel: the mean over height and width, `mean((1, 2))`.


# %% tags=["answer"]
def strongest_channels(maps, count):
    """Return the numbers of the `count` channels that respond most to one picture,
    the strongest first, as a list of ints.

    `maps` is (C, H, W). How much a channel responds is the mean of its map, with
    negative numbers counted as 0; no two channels respond equally.
    """
    ...


# %% tags=["check"]
check(strongest_channels)

# %% [markdown]
# ## What do deeper layers do?
#
# Now we measure, with drawn pictures. For each ReLU layer of the small network and for each of the ten kinds of
# things, we take the **best channel**. Two numbers say how good it is; the table shows their means over the ten kinds:
#
# - **on the thing:** of all that the channel responds to pictures with a cat, which share lies on the cat?
# - **tells:** of all pairs of a picture with a cat and a picture without one, in how many does the channel respond
#   more to the one with the cat?
#
# By chance, *one* channel has 10 % on the thing, because things cover 10 % of a picture, and it tells in 50 % of the
# pairs. But the best of 96 channels is better than one channel, even if nothing was learned. So we choose the best
# channels on the first sixty pictures and measure them on another sixty. And we do the same with an **untrained**
# network, whose weights are random.

# %% [markdown] tags=["sealed"]
# which layer of the trained network has the best channels that lie most on their things?
#
# - [ ] the first ReLU: Its channels respond to edges and colours, and these are everywhere.
#   > Take a channel that finds edges, and a picture of a cat and a boat on grass. At which places does it respond?
# - [ ] the third ReLU: It is better than the two before it, and the fourth is better still.
#   > What gets worse from the third ReLU to the fourth, if the maps of both have 14 x 14 places?
# - [x] the fourth ReLU: Two thirds of what its best channels respond lie on the thing.
# - [ ] the fifth ReLU: It tells the kinds apart as well as the fourth, but less of it lies on the thing.
#   > Behind the fifth ReLU comes the mean over all places. If a response moves from the cat to the place beside it,
#   > does this mean change?
#
# The fourth. Compare each number with that of the untrained network:
#
# - **The first layer** has 19 % on the thing and tells the kinds apart in 55 % of the pairs. That is more than
#   the 10 % and 50 % of one channel, but the best channels of an *untrained* network reach about as much. It is
#   no finding.
# - **The fourth layer** has 64 % and 98 %, and the untrained network 15 % and 51 %. That is a finding: training
#   has made channels that follow things. This is what "more abstract" can mean, measured.
# - **The fifth layer** tells the kinds apart as well as the fourth, but only 43 % lie on the thing. The place
#   is not lost, it is spread: with the region grown by one place of the map, about three quarters are inside.
#   (Behind this layer comes the mean over all places. That may be the reason, but we have not tested it.)

# %% tags=["predict"]
predict("layer_that_is_most_on_the_things")

# %% tags=["setup"]
second_sixty = scenes(60, seed=906)


def follow(model, batch):
    """For each ReLU layer of `model`, its maps of the pictures, and how each channel follows each kind of thing."""
    with torch.no_grad(), record(model, nn.ReLU) as seen:
        model(batch.images.float() / 255)
    return {name: (layer.output, follow_things(layer.output, batch)) for name, layer in seen.items()}


def measure(model):
    """For each ReLU layer: the best channels, one a kind; the means of their two numbers on new pictures; its maps."""
    chosen, tested, kinds = follow(model, first_sixty), follow(model, second_sixty), range(len(KINDS))
    rows = {}
    for name, (maps, found) in tested.items():
        best = [chosen[name][1].best_channel(kind) for kind in KINDS]
        rows[name] = best, found.share[best, kinds].mean(), found.tells[best, kinds].mean(), maps
    return rows


# %% tags=["setup"]
def share_in_grown(pixels):
    """By layer, how much of the best channels' response lies on their things, grown by so many pixels; and the area."""
    shares, areas = {name: [] for name in tables["trained"]}, []
    for k, kind in enumerate(KINDS):
        there = second_sixty.labels[:, k] > 0
        region = grow(second_sixty.masks(kind)[there], pixels)
        areas.append(region.float().mean())
        for name, (best, _, _, maps) in tables["trained"].items():
            shares[name].append(share_on(maps[there, best[k]].flatten(0, 1)[None], region.flatten(0, 1)))
    return {name: torch.stack(each).mean() for name, each in shares.items()}, torch.stack(areas).mean()


# %%
torch.manual_seed(0)
untrained = PictureNet().eval()
tables = {"trained": measure(net), "untrained": measure(untrained)}
print("                     on the thing          tells")
print("layer        places  trained untrained     trained untrained")
for name in tables["trained"]:
    (_, on, tells, maps), (_, on_random, tells_random, _) = (table[name] for table in tables.values())
    places = "{} x {}".format(*maps.shape[2:])
    print(f"{name:12} {places} {on:7.0%} {on_random:9.0%} {tells:11.0%} {tells_random:9.0%}")

# %% [markdown]
# How much of the response lies on the thing **or beside it**? Let each region grow by 8 pixels on all sides, which is
# one place of a map of 14 x 14.

# %%
shares, area = share_in_grown(8)
print(f"the things, grown by 8 pixels, cover {area:.0%} of a picture; on them lie")
for name, share in shares.items():
    print(f"{share:.0%} of the response of {name}")

# %% tags=["why"]
why("layer_that_is_most_on_the_things")

# %% [markdown]
# Here is, for each kind, its best channel of the layer that is most on the things, in that picture of the second
# sixty to which it responds most. The picture is lit where the channel responds; full light is where this channel is strongest. The
# white line is the true outline.


# %% tags=["setup"]
def draw_channels(maps, best):
    """For each kind, the picture to which its best channel responds most, lit by it."""
    tiles = []
    for kind, channel in zip(KINDS, best, strict=True):
        index = int(maps[:, channel].mean((1, 2)).argmax())
        lit = light_up(second_sixty.images[index].float() / 255, maps[index, channel])
        tiles.append(outline(lit, second_sixty.masks(kind)[index]))
    words = [f"{kind}: {channel}" for kind, channel in zip(KINDS, best, strict=True)]
    alt = f"Ten pictures, each dark but for one thing. Things and channels: {', '.join(words)}."
    title = "Ten channels of one layer (their numbers below), each with the thing that it follows"
    return show(grid(tiles, columns=5, labels=words), title=title, alt=alt)


# %%
best, _, _, maps = max(tables["trained"].values(), key=lambda row: row[1])
draw_channels(maps, best)

# %% [markdown]
# Nobody told the network where the things are: it was trained on their names alone. Lesson 07 adds channels up into
# one map for a whole class.

# %% [markdown]
# ### Exercise · On the thing

# %% [markdown] tags=["sealed"]
# 2 points
# 1. One place of a map covers several pixels of the mask. How much of it is thing? The mean of the mask there.
# 2. `F.adaptive_avg_pool2d(mask[None].float(), maps.shape[1:])` is the covered share of each place, (1, h, w).


# %% tags=["answer"]
def share_on_thing(maps, mask):
    """Return for each channel which share of its response lies on the thing: a
    float32 tensor (C,) with numbers from 0 to 1.

    `maps` is (C, h, w) in float32, with no negative numbers. `mask` is (H, W), bool,
    and H and W are multiples of h and w: a place of the map that the thing covers by
    a quarter counts by a quarter. A channel that is 0 everywhere has the share 0; the
    numbers of any other add up to more than 1e-6.
    """
    ...


# %% tags=["check"]
check(share_on_thing)

# %% [markdown] tags=["instructor"]
# **Misconception:** "Sparse means dead." **Ask:** "A channel is 0 in 99 % of the pictures. Is it dead, or a
# specialist?" **Answer:** you cannot tell from zeros alone; look at the other 1 %.
#
# **Misconception:** "Deeper is more abstract, and so better." **Ask:** "Why does the share on the thing fall in the
# last layer?" **Answer:** behind it comes the mean over all places, so nothing in the loss rewards the exact place. That
# may be the reason; it has not been tested.
#
# **Misconception:** "19 % on the thing is nearly twice as much as chance." **Ask:** "The chance of what?"
# **Answer:** of one channel. The best channels of an untrained network reach as much.
#
# **For discussion:** why two batches of pictures? (The best of many is partly luck. Luck does not come back
# on new pictures.)

# %% [markdown] tags=["more"]
# ## More: The same in TensorBoard
#
# TensorBoard shows in a browser what a program has written into *event files*, also while the program runs.
# `SummaryWriter.add_image` takes a sheet of tiles. Here we write the last three of the five layers into a temporary
# folder, and read back what the file holds. (Tutorials take the square root of the number of channels for `nrow`.)

# %% [markdown] tags=["instructor"]
# **On this slide:** Run and read. The one thing to say is that the sheet is made once and can be watched while a
# training runs; whoever does not use TensorBoard can leave this part out.

# %%
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

with tempfile.TemporaryDirectory() as folder:
    with SummaryWriter(folder) as writer:
        for name in LAYERS[2:]:
            tiles = depths[name].output[0].unsqueeze(1)
            sheet = make_grid(tiles, nrow=int(len(tiles) ** 0.5), normalize=True)
            writer.add_image(name, sheet)
    written = EventAccumulator(folder).Reload()
    images = {tag: written.Images(tag)[-1] for tag in written.Tags()["images"]}
for tag, image in images.items():
    print(f"{tag:15} PNG of {image.width} x {image.height} pixels")

# %% [markdown]
# To look at it in TensorBoard, write into a folder that stays (`SummaryWriter("runs/maps")`), run
# `tensorboard --logdir runs` in a terminal, and open the address that it prints.

# %% [markdown] tags=["more"]
# ## More: Without hooks: `create_feature_extractor`
#
# torchvision can also rewrite a model, so that it returns the maps you name. It follows one call without numbers,
# notes each step as a node of a graph, and drops what lies behind the last map that you asked for. An `if` that looks
# at the numbers has no answer then, and our network starts with one. So we take its part `features`, which has none.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask which of the two tools they would take for a network whose code they have never seen. Who
# wants only a few maps of a standard network, many times, is better served without hooks.

# %%
from torchvision.models.feature_extraction import create_feature_extractor

short = create_feature_extractor(net.features, {"2": "first", "6": "second"})
with torch.no_grad():
    extracted = short((picture.image[None] - 0.5) / 0.25)  # what net does before features
    with record(net, "features.2", "features.6") as hooked:
        net(picture.image[None])
for name, layer in {"first": "features.2", "second": "features.6"}.items():
    same = torch.equal(extracted[name], hooked[layer].output)
    print(f"{name}: equal to the hook's, number by number: {same}")
print("layers inside:", len(list(short.children())), "of", len(net.features))

# %% [markdown]
# Both ways give the same tensors, and the extractor did not even run ten of the layers. But it makes no copies. In
# SqueezeNet, it hands out the very tensor that the in-place ReLU writes into on the way to the next layer. Asking for
# an earlier step does not help, because there is none between the convolution and the ReLU. Setting `inplace` to False
# does.

# %%
for inplace in (True, False):
    for module in squeezenet.model.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = inplace
    asked = create_feature_extractor(squeezenet.model, ["features.0", "features.3.squeeze"])
    with torch.no_grad():
        same = torch.equal(asked(prepared)["features.0"], copied)
    print(f"inplace={inplace}: equal to what the convolution returned: {same}")

# %% [markdown]
# | | hooks | `create_feature_extractor` |
# |---|---|---|
# | reaches | what goes in and out of modules | every step, also `torch.relu(x)` and `x + y` in a forward |
# | the rest of the model | runs, unless a hook raises (exercise {run_to}) | is dropped behind the last map |
# | an `if` or a loop that depends on values | no problem | cannot be followed |
# | in-place layers | clone in the hook | set their `inplace` to False first |
#
# Take the extractor for the maps of a standard network, again and again. Take hooks to look into any model as it
# stands, for gradients, and for changes.

# %% [markdown]
# ### Exercise · So far and no further

# %% [markdown] tags=["sealed"]
# 3 points
# 1. What is behind the layer must not run. What stops a function in the middle, from inside?
# 2. A forward hook may raise an exception of your own, and you catch it around `model(x)`. Or let
#    `create_feature_extractor(model, [name])` build the shorter network, and put back the modes that it changes.


# %% tags=["answer"]
def run_to(model, name, x):
    """Return what the layer with the dotted name `name` gives for the input `x`,
    detached, and compute nothing behind it.

    `name` is one of the names that `model.named_modules()` gives, but not the empty
    one, and its layer runs once. The model may run its layers in any order, not only
    in that in which they were made. It stays as it was: no hook left behind, each
    module in the mode it was in. What the model itself raises goes on to the caller,
    and no part of the model catches an error.
    """
    ...


# %% tags=["check"]
check(run_to)

# %% [markdown] tags=["more"]
# ## More: What does keeping cost?
#
# A drawn picture makes 2 MiB of maps in the 17 layers of `features`, and a batch of 32 makes 63 MiB. How much of it
# stays in memory depends on one word in the hook.

# %% [markdown] tags=["sealed"]
# a hook keeps the output of the last ReLU as it is, without `detach()`. Everything else is dropped. What stays in
# memory?
#
# - [ ] that one map: This would be right with `detach()`. As it is, the map holds on to the graph it came from.
#   > You could still call `backward()` from this map. Which numbers would that need, and who keeps them until then?
# - [ ] the five convolutions' maps: The graph keeps what backward needs, and that is more than those.
#   > Between two convolutions there are other layers. What does a ReLU need for its backward pass?
# - [x] the maps of nearly all layers: Each step of the graph keeps what its backward needs: the maps before it.
#
# The maps of nearly all layers stay. The map itself has 2.3 MiB, but its graph holds on to everything that a
# backward pass would need. Detached, it costs what it weighs, and the means alone cost next to nothing. With
# `torch.no_grad()` around the call there is no graph to begin with.

# %% tags=["predict"]
predict("memory_of_one_map")

# %%
many = first_sixty.images[:32].float() / 255
keeping = {
    "nothing": lambda output: None,
    "output": lambda output: output,
    "output.detach().clone()": lambda output: output.detach().clone(),
    "output.detach().mean((2, 3))": lambda output: output.detach().mean((2, 3)),
}
for what, keep in keeping.items():
    kept = []
    handle = net.features[16].register_forward_hook(lambda m, a, out: kept.append(keep(out)))
    with measure_memory() as memory, handle:
        net(many)
    print(f"the hook keeps {what:29} {memory.live / 2**20:6.1f} MiB stay")
kept = []

# %% tags=["why"]
why("memory_of_one_map")

# %% [markdown]
# ### Exercise · A mean without the maps

# %% [markdown] tags=["sealed"]
# 2 points
# 1. Keep one sum a channel and one count, and let the maps go.
# 2. Batches differ in size, so a mean of means is wrong: add up sums, and divide once at the end.


# %% tags=["answer"]
def channel_means(model, layer, batches):
    """Run `model` on each of `batches` and return the mean of each channel of
    `layer` over all pictures and places: a float32 tensor (C,) without a graph.

    `layer` is a module of `model` that runs once in a call and returns (N, C, H, W) in
    float32; `batches` is a list of inputs, which differ in their number of pictures, N.
    The maps of a batch are let go, at the latest when those of the next are there. When
    your function returns, no hook is left.
    """
    ...


# %% tags=["check"]
check(channel_means)

# %% [markdown] tags=["instructor"]
# **Misconception:** "Keeping one map costs one map." **Ask:** "What does it keep alive?" **Answer:** its graph.
#
# **Misconceptions, by exercise:** storing the output itself (1); stretching the whole sheet instead of each tile (2);
# forgetting that a ReLU may run twice (3); looking at the last batch only (4); a mean that lets negative numbers
# cancel positive ones (5); dividing by zero in an empty channel (6); removing the hook on the line after the call that
# raised (7); a mean of means over batches of different size (8).
#
# **Ask, whatever the exercise:** "What is left on the model if the call fails?"
#
# **For discussion (7):** when is a hook that raises a good idea? (When nothing behind the layer is wanted, and the
# `with` block takes the hook away. The exception must be one of your own, or you will catch somebody else's.)

# %% [markdown] tags=["more"]
# ## More: Your network, your picture
#
# Here are the channels that respond most, in the last layer with maps. The picture is the one that you chose in
# the explorer, if any. For others, change `own_network` and `own_image` at the top of the lesson and run it again, or run
# `make handout LESSON=05 NETWORK=resnet34 IMAGE=photo.jpg`, which writes a page.

# %% [markdown] tags=["instructor"]
# **On this slide:** Use a picture from the room if there is one. Ask before it is shown which part of the picture the
# strongest channel will follow, and count how often the room is right.

# %%
own = look_at(own_network, own_image or find_kept() or photograph("grace_hopper"), own_layer)
print(own)
show_strongest_maps(own)

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | Store the maps under `str(module.weight.shape)`. | Layers of one shape share the key, and you never see some of them. Use the layer's name. |
# | `fmaps.append(output)` in the hook. | An in-place layer overwrites it, and it holds the graph. Use `output.detach().clone()`. |
# | `fmap.transpose_(0, 1)` before `make_grid`. | The underscore changes the stored tensor itself. `output[0].unsqueeze(1)` does not. |
# | `scale_each=True` | Good for seeing patterns. But a channel that hardly responds looks like the strongest one. |
# | `models.alexnet(pretrained=True)` | Deprecated: use `weights="DEFAULT"`. |
# | `image[:, :, 0]` makes an RGBA drawing grey. | For black ink on a transparent ground that is a black square. Put it on white first. |
# | Deeper layers are more abstract. | They are coarser where a stride or a pool makes them so. What they follow has to be measured, and the last layer need not be the sharpest. |

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask which of these lines stands in code that they have copied. The second one,
# `fmaps.append(output)`, is the most common, and the two things wrong with it are different ones.

# %% [markdown]
# ## The case
#
# Which channels of the last layer speak for "fish", and where do they respond? A channel speaks for it by its mean
# response times its weight for the class. Here are the strongest three, where the fish is.

# %%
from course_utils.explorers import case
from course_utils.vision.pictures import light_up

picture, suspect = case.open_case()
with torch.no_grad(), record(suspect, "features.16") as seen:
    suspect(picture.image[None])
maps = seen["features.16"].output[0]
speaks = suspect.classifier.weight[case.FISH] * maps.mean((1, 2))
best, cells = speaks.topk(3).indices.tolist(), case.find_cells(picture.masks[0], 14)
shares = [(maps[channel][cells].sum() / maps[channel].sum()).item() for channel in best]
case.keep_clue(
    "05",
    f"Of what the three channels respond, {min(shares):.0%} to {max(shares):.0%} is where the fish is, on "
    f"{cells.float().mean():.0%} of the map.",
    {"the fish": case.close_up(picture.image)}
    | {f"lit by channel {n}": case.close_up(light_up(picture.image, maps[n])) for n in best},
)

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what these channels may respond to instead. Collect all suspects at the board, and do not take
# any of them up: nobody has looked yet.

# %% [markdown]
# ## Summary
#
# - A feature map says how well a kernel fits, at every place.
# - In a forward hook, store a **detached clone** under the layer's **name**, and remove the hook.
# - `make_grid` takes (tiles, colours, H, W). Tiles that you compare need one scale.
# - `create_feature_extractor` gives the same tensors, reaches functional steps and stops early, but makes no copies.
# - Compare the best channel with the best channel of an untrained network, on pictures that you did not choose it
#   with.
# - A map kept with its graph keeps almost every other map too.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask for the three words that belong to every stored map: detached, cloned, and under the layer's
# name. Then ask what each of them protects from.

# %% [markdown]
# ## Go further
#
# - Lesson 06: the gradient with respect to the picture, changed on its way by hooks. Lesson 07: maps added up by
#   class.
# - [Feature extraction for model inspection](https://pytorch.org/vision/stable/feature_extraction.html) in
#   torchvision's documentation.
# - [torch.utils.tensorboard](https://pytorch.org/docs/stable/tensorboard.html).
# - Bau et al. 2017: [Network Dissection](https://arxiv.org/abs/1704.05796), which measures with masks which channel
#   follows which thing, for large networks.

# %% [markdown] tags=["instructor"]
# **On this slide:** At home: the exercises that were left out. For lesson 06, ask them to think about the opposite
# way: from an answer back to the pixels.
