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
# A convolutional network turns a picture into other pictures, dozens in each layer: its **feature maps**.
# Nobody asked for them, and the next layer has used them up before you could look. A forward hook shows them to you.
#
# ## What you will be able to do
#
# - **Read** the kernels of a first layer, and **explain** how a kernel becomes a map.
# - **Collect** the maps of any layers with hooks, past the three traps: one key for two layers, in-place layers, a graph
#   that stays in memory.
# - **Show** maps as a grid, here and in TensorBoard.
# - **Measure** what deeper layers do: how much is zero, what is dead, which channel follows which thing.
# - **Choose** between hooks and `create_feature_extractor`.
#
# **Time:** about 70 minutes: 35 to read, predict and run, 35 for the exercises.
#
# Run a cell with Shift+Enter. Where you see **Predict**, commit to an answer before you run the next cell.
#
# Everything here runs offline. The two large networks, AlexNet and ResNet-34, have random weights here. To see them trained,
# run `load_classifier("alexnet")` and `load_classifier("resnet34")` once, which downloads 244 and 87 MB, set
# `pretrained = True` and run the lesson again. The numbers in the text are those of random weights.

# %% [markdown] tags=["instructor"]
# **Plan**
#
# | Minutes | Sections | How |
# |---|---|---|
# | 8 | A network, and a picture for it · The first kernels are small pictures · From a kernel to a map | hide the labels of the four maps, and let them say which is which |
# | 9 | A hook on every convolution | the recipe has two bugs: let the room look for them before you run |
# | 2 | The same in TensorBoard | run and read |
# | 2 | Deeper: ResNet-34 | run and read |
# | 4 | Without hooks: `create_feature_extractor` | a vote on the in-place question |
# | 5 | What do deeper layers do? | cover the last row of the table; let them guess it |
# | 2 | What does keeping cost? | a vote |
# | 1 | Explore · Your network, your picture | one picture of somebody in the room, if there is time |
# | 35 | Exercises | 1, 3, 4, 6, 7, 8 in the room; 2 and 5 at home if time is short |
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
pretrained = False
seed = 30
own_network = "picture_net"  # for "Your network, your picture": a classifier of torchvision, such as "resnet34"
own_image = ""  # the path of a picture, such as "photo.jpg"; empty takes one of this lesson
own_layer = ""  # a layer of that network, such as "layer3"; empty takes the last one that makes maps

# %% tags=["setup"]
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.utils import make_grid

from course_utils.exercises import check, hint, predict, solution, why
from course_utils.hooks.record import record

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
from course_utils.scenes.scene import KINDS, scene, scenes
from course_utils.vision.networks import load_classifier, load_picture_net
from course_utils.vision.pictures import centre, colourise, grid, normalise, outline, show

# %% [markdown]
# ## A network, and a picture for it
#
# The course has a small network of its own: five convolutions, trained to say which of ten kinds of things are in a
# picture. It has never seen this one.

# %%
net = load_picture_net()
picture = scene("balloon", "cat", seed=seed)
with torch.no_grad():
    shares = net(picture.image[None]).sigmoid()[0]
for k in shares.argsort(descending=True)[:3].tolist():
    print(f"{KINDS[k]:8} {shares[k]:.0%}")
show(picture.image, scale=3, title="It sees a balloon and a cat", alt=f"A drawing: {picture}.")

# %% [markdown]
# ## The first kernels are small pictures
#
# The first convolution has 24 kernels. Each is 7 x 7 pixels large and looks at red, green and blue, so a kernel *is* a
# picture: of what it looks for. Grey in the middle means 0.

# %%
kernels = net.features[0].weight.detach()
print("kernels:", tuple(kernels.shape))
sheet = grid(centre(kernels, dims=3), columns=8, scale=10)
show(
    sheet,
    title="Stripes, spots, and changes of colour: nobody drew these kernels, training did",
    alt="24 kernels of 7 x 7 pixels, some with stripes, some dark beside light.",
)

# %% [markdown]
# Dark beside light: such a kernel finds edges. One colour beside another: it finds changes of colour.
#
# The next layer has no such picture. Its weight has the shape (48, 24, 3, 3): each kernel looks at 24 channels at once,
# and no screen has 24 colours. From here on you look at what a layer **makes** of a picture, not at its kernels.

# %% [markdown]
# ## From a kernel to a map
#
# Let us do one by hand. Here is a drawing: black ink on a transparent ground, as drawing programs save it, with four
# channels: red, green, blue, and alpha, which says how solid each pixel is.
#
# An old recipe to get a grey picture out of it: take the first channel.

# %% tags=["predict"]
predict("first_channel_of_a_drawing")

# %%
from course_utils.vision.pictures import draw_strokes, put_on_white
from course_utils.vision.toys import make_edge_net

drawing = draw_strokes()
print("the drawing:", tuple(drawing.shape))
for number, channel in enumerate(("red", "green", "blue", "alpha")):
    numbers = drawing[number].unique().numel()
    print(f"{channel:5} has {'one number' if numbers == 1 else 'a picture'}")
paper = put_on_white(drawing)

# %% [markdown]
# Only alpha knows the cat. Put it on white paper first: `rgb * alpha + (1 - alpha)`.
#
# Now one 7 x 7 convolution and a ReLU, with four kernels made by hand: from dark to light towards the right, the left,
# down and up. The forward hook keeps what comes out.

# %%
edges = make_edge_net()
kept = []
with edges.register_forward_hook(lambda module, args, output: kept.append(output.detach())):
    edges(paper[None])
maps = kept[0][0]
print("maps:", tuple(maps.shape))
by_hand = colourise(centre(edges[0].weight.detach()[:, 0]), "RdBu_r")
show(
    grid(by_hand, columns=4, scale=16, labels=["to the right", "to the left", "down", "up"]),
    title="Four kernels, from negative (blue) over 0 (white) to positive (red)",
    alt="Four ramps of 7 x 7 pixels from blue to red: to the right, to the left, down, up.",
)

# %%
tiles = [1 - paper[0], *normalise(maps)]
words = ["the drawing", "to the right", "to the left", "down", "up"]
right, left, down, up = maps > 0.05
print(f"right responds at {right.float().mean():.0%} of the places, ", end="")
print(f"together with down at {(right & down).float().mean():.0%}, ", end="")
print(f"together with left at {(right & left).float().mean():.0%}")
show(
    grid(tiles, columns=5, labels=words),
    title="Each map keeps one side of the lines: where it gets brighter in its direction",
    alt="The drawing, and four maps: right, left, lower and upper sides of its lines.",
)

# %% [markdown]
# Right and left never respond at the same place: one kernel is the other's negative, and the ReLU has removed the No's.
# That is all a feature map is: how well the kernel fits, at every place.
#
# With [the explorer](#Explore) below you can see a drawing of your own with these four kernels.

# %% [markdown] tags=["instructor"]
# **Misconception:** "The kernel is the feature." **Ask:** "Which of the two pictures changes with the input, the kernel or
# the map?" **Answer:** the map. The kernel is the question, the map the answers.
#
# **Misconception:** "An RGBA file has the drawing in red, green and blue." **Ask:** "Black ink on nothing: what colour is
# nothing?" **Answer:** here black, too; only alpha knows the cat. The bug is from a real tutorial. **Then ask:** why did its
# author see a picture nevertheless? (White paper had been stored under the transparency.)
#
# **For discussion:** right and left never respond at the same place. Would they without the ReLU? (Each would be the
# other's negative, at every place.)

# %% [markdown]
# ## A hook on every convolution
#
# Now a large network. AlexNet has five convolutions: `features.0`, `.3`, `.6`, `.8` and `.10`. A recipe that many
# tutorials share hooks each one and stores what it returns in a dict, under **the shape of its weight**:


# %%
def keep_by_shape(model, x):
    drawers, handles = {}, []

    def keep(module, args, output):
        drawers.setdefault(tuple(module.weight.shape), []).append(output)

    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            handles.append(module.register_forward_hook(keep))
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return drawers


# %% tags=["pretrained"]
alexnet = load_classifier("alexnet", pretrained="if cached" if pretrained else False)
resnet34 = load_classifier("resnet34", pretrained="if cached" if pretrained else False)
for network in (alexnet, resnet34):
    print(f"{network.name}: {'trained' if network.pretrained else 'random'} weights")
x = alexnet.transform(picture.image)[None]
print("both take a picture of", tuple(x.shape))

# %%
drawers = keep_by_shape(alexnet.model, x)
for shape, outputs in drawers.items():
    print(f"{shape!s:18} {len(outputs)} map stack of {tuple(outputs[0].shape)}")

# %% [markdown]
# Five layers, five drawers, one stack of maps in each. It seems to work. It works by luck: no two convolutions of AlexNet
# have the same shape. ResNet-34 has 36 convolutions.

# %% tags=["predict"]
predict("drawers_by_shape")

# %%
crowded = keep_by_shape(resnet34.model, x)
print("drawers:", len(crowded))
print("outputs in them:", [len(outputs) for outputs in crowded.values()])
print("never seen:", sum(len(outputs) - 1 for outputs in crowded.values()))

# %% [markdown]
# The recipe then shows the first entry of each drawer, and 25 of the 36 layers are never seen. Worse, nothing says so.
#
# **Mended:** the key is the layer's **name**, which no other layer has. `course_utils.hooks.record.record` does that, and takes
# its hooks away when the block ends:

# %%
with torch.no_grad(), record(resnet34.model, nn.Conv2d) as seen:
    resnet34.model(x)
print("layers:", len(seen))
print("first and last:", next(iter(seen)), [*seen][-1])

# %% [markdown]
# ### The second trap
#
# There is one more bug in the recipe, and it *does* strike in AlexNet. The hook stores `output` itself, and the next
# layer of AlexNet is `ReLU(inplace=True)`.

# %% tags=["predict"]
predict("lowest_number_stored")

# %%
stored = drawers[(64, 3, 11, 11)][0]
with torch.no_grad(), record(alexnet.model, nn.Conv2d) as seen:  # keeps a clone
    alexnet.model(x)
copied = seen["features.0"].output
for name, maps in {"the output itself": stored, "a clone of it": copied}.items():
    negative, zero = (maps < 0).float().mean(), (maps == 0).float().mean()
    print(f"{name:18} negative numbers: {negative:3.0%}   zeros: {zero:3.0%}")

# %% [markdown]
# You asked for the convolution and got the ReLU. `output.detach().clone()` in the hook keeps what the layer returned.
#
# ### As a grid
#
# `make_grid` lays tiles side by side. It wants (tiles, colours, height, width), so the 64 channels of the first picture
# become 64 grey tiles: (1, 64, 55, 55) to (64, 1, 55, 55). `normalize=True, scale_each=True` stretches each tile by
# itself, and `nrow` is the number of tiles in a row: the square root of their number makes a square.

# %%
first = copied[0].unsqueeze(1)
sheet = make_grid(first, nrow=int(len(first) ** 0.5), normalize=True, scale_each=True)
print(tuple(first.shape), "in a sheet of", tuple(sheet.shape))
show(
    sheet,
    title="64 maps of AlexNet's first convolution: each still shows the whole scene",
    alt="8 x 8 grey maps. Cat, balloon and window can be made out in nearly all of them.",
)

# %% [markdown]
# With random weights too, the scene is there: a random kernel is still a kernel, and some edges fit it. What training adds
# shows in our own network. Here are its first and its fourth layer, after the ReLU, in colour: black is 0.

# %%
with torch.no_grad(), record(net, nn.ReLU) as seen:
    net(picture.image[None])
print(seen)
first = normalise(seen["features.2"].output[0])
show(
    grid(colourise(first, "inferno"), columns=6, scale=2, padding=3),
    title="The first layer: 24 ways to see edges and colours, 56 x 56 each",
    alt="24 maps: outlines of cat, balloon and window, areas of one colour, lines.",
)

# %%
fourth = normalise(seen["features.13"].output[0])
show(
    grid(colourise(fourth, "inferno"), columns=16, scale=3, padding=3),
    title="The fourth layer: 96 maps of 14 x 14. Few places are lit, many are nearly black",
    alt="96 small maps, mostly black, with one or two bright spots each.",
)

# %% [markdown] tags=["instructor"]
# **Misconception:** "A hook stores a copy." **Ask:** "Which line of the recipe makes one?" **Answer:** none: a hook stores
# what you store.
#
# **Misconception:** "AlexNet's maps are never negative." **Ask:** "Is there a ReLU in the convolution?" **Then show:** the
# clone, half of it negative: the stored tensor was overwritten by the next layer.
#
# **Misconception:** "Five layers, five drawers: it works." **Ask:** "How would you notice that it does not?" **Answer:**
# count: 36 convolutions, 11 drawers. Nothing raises.
#
# **For discussion:** which of the two bugs would you mend first? (The key: it loses layers whole. The other changes
# numbers, which is worse if you compute with them, and invisible if you only look.)

# %% [markdown]
# ## The same in TensorBoard
#
# TensorBoard shows what a program wrote into *event files*, in a browser, also from another machine and while the program
# runs. `SummaryWriter.add_image` takes the same sheet. We write into a temporary folder and read the file back, to see
# what it holds.

# %%
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

with tempfile.TemporaryDirectory() as folder:
    with SummaryWriter(folder) as writer:
        for name in seen:
            tiles = seen[name].output[0].unsqueeze(1)
            sheet = make_grid(tiles, nrow=8, normalize=True, scale_each=True)
            writer.add_image(name, sheet)
    written = EventAccumulator(folder).Reload()
    images = {tag: written.Images(tag)[-1] for tag in written.Tags()["images"]}
for tag, image in images.items():
    print(f"{tag:12} PNG of {image.width} x {image.height} pixels")

# %%
from course_utils.vision.pictures import read_picture

inside = read_picture(images["features.6"].encoded_image_string)
show(
    inside,
    scale=2,
    title="Read back from the event file: 48 maps of the second layer",
    alt="48 grey maps of 28 x 28 pixels: parts of cat, balloon and window light up.",
)

# %% [markdown]
# To look at it in TensorBoard itself, write into a folder that stays (`SummaryWriter("runs/maps")`), then run
# `tensorboard --logdir runs` in a terminal and open the address that it prints; or, in a notebook,
# `%load_ext tensorboard` and `%tensorboard --logdir runs`.

# %% [markdown]
# ## Deeper: ResNet-34
#
# A classic picture shows the outputs of the first, the 15th and the 30th convolution of ResNet-34, 64 channels of each,
# under the words "deeper is more abstract". A recording keeps the calls in the order in which they happened:

# %%
from course_utils.vision.pictures import resize_maps

with torch.no_grad(), record(resnet34.model, nn.Conv2d) as calls:
    resnet34.model(x)
sheets = []
for number in (1, 15, 30):
    call = calls.calls[number - 1]
    print(f"convolution {number:2}: {call.layer:15} {tuple(call.output.shape[1:])}")
    maps = normalise(resize_maps(call.output[0, :64], (28, 28)))
    sheets.append(grid(maps, columns=8, padding=1))
show(
    grid(sheets, columns=3, labels=["convolution 1", "convolution 15", "convolution 30"]),
    title="Deeper maps are coarser: from 112 x 112 over 28 x 28 to 7 x 7",
    alt="Three grids of 64 maps: the scene is sharp, then blurred, then a few blocks.",
)

# %% [markdown]
# Coarser, certainly: that is the stride's work, and needs no training; with random weights you see it as well. "More
# abstract" is a claim about *trained* weights, and a grid of grey tiles cannot prove it. Below we measure it.

# %% [markdown]
# ## Without hooks: `create_feature_extractor`
#
# torchvision can also rewrite a model, so that it returns the maps you name. It follows one call symbolically, notes each
# step as a node of a graph, and drops what lies behind the last map that you asked for.

# %%
from torchvision.models.feature_extraction import create_feature_extractor

wanted = {"features.2": "first", "features.6": "second"}
try:
    create_feature_extractor(net, wanted)
except torch.fx.proxy.TraceError as error:
    print("TraceError:", error)

# %% [markdown]
# *Symbolically*: no numbers flow. Our network looks at its input before it starts (`if` it is not a batch of pictures, it
# says so), and without numbers that `if` has no answer. Its part `features` has no `if`, and can be followed.

# %%
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
# The same tensors, and ten of the layers were not even run. Where it works, is it the better tool? Ask it about AlexNet,
# whose ReLUs are in-place.

# %% tags=["predict"]
predict("extractor_and_inplace")

# %%
asked = create_feature_extractor(alexnet.model, ["features.0", "features.3"])
with torch.no_grad():
    maps = asked(x)["features.0"]
print(f"negative numbers in features.0: {(maps < 0).float().mean():.0%}")
print("equal to the clone of the hook:", torch.equal(maps, copied))
print("equal to its ReLU:", torch.equal(maps, copied.relu()))

# %% [markdown]
# It makes no copies, and the in-place ReLU strikes again. What else differs: a hook belongs to a *module*, a node to a
# *step*. ResNet-34 calls one ReLU module twice in each block. The extractor has a name for each of the two steps:

# %%
from torchvision.models.feature_extraction import get_graph_node_names

_, nodes = get_graph_node_names(resnet34.model)
print([node for node in nodes if node.startswith("layer1.0.")])

# %% [markdown]
# | | hooks | `create_feature_extractor` |
# |---|---|---|
# | reaches | what goes in and out of modules | every step, also `torch.relu(x)` and `x + y` in a forward |
# | the rest of the model | runs | is dropped behind the last map |
# | a forward with an `if` or a loop that depends on values | no problem | cannot be followed |
# | gradients, changing an output | yes | the maps are in the graph; an output cannot be replaced |
# | in-place layers | clone in the hook | no copies: ask for the step before, or make the layer not in-place |
# | afterwards | remove the hooks | nothing to remove: it is another model with the same weights |
#
# **In short:** maps of a standard network, again and again: the extractor. A look into any model as it stands, gradients,
# or changes: hooks.

# %% [markdown]
# ## What do deeper layers do?
#
# Now with numbers. 200 pictures that the network has never seen, with the truth about each: which things are in it,
# and which pixels are theirs. For each of the five ReLUs:
#
# - **zeros:** the share of its numbers that are exactly 0,
# - **dead:** channels that are 0 in all places of all pictures,
# - **on the thing:** of all that a channel responds to pictures with a cat, which share lies on the cat? We take the best
#   channel for each kind, and the mean over the ten kinds. Things cover 10 % of a picture: so much is chance,
# - **tells:** how often the best channel responds more to a picture with the thing than to one without. Chance is 50 %.

# %%
from course_utils.vision.scores import follow_things

batch = scenes(200, seed=905)
with torch.no_grad(), record(net, nn.ReLU) as seen:
    net(batch.images.float() / 255)
followed = {}
print("layer        maps           zeros  dead  on the thing  tells")
for name, layer in seen.items():
    maps = layer.output
    followed[name] = follow_things(maps, batch)
    zeros, dead = (maps == 0).float().mean(), int((maps.amax((0, 2, 3)) == 0).sum())
    on = followed[name].share.amax(0).mean()
    tells = followed[name].tells.amax(0).mean()
    shape = str(tuple(maps.shape[1:]))
    print(f"{name:12} {shape:14} {zeros:4.0%} {dead:5} {on:11.0%} {tells:9.0%}")

# %%
from course_utils.vision.charts import bars

names = ["first", "second", "third", "fourth", "fifth"]
share = [round(100 * each.share.amax(0).mean().item()) for each in followed.values()]
bars(
    share,
    [f"{name} ReLU" for name in names],
    title="The best channels keep closer and closer to the things, up to the fourth layer",
    unit="% on the thing",
)

# %% [markdown]
# Up to the fourth layer, the best channels keep ever closer to their things and tell them ever better; by then, eight in
# ten numbers are 0, and for each of the ten kinds there is a channel that tells it almost without a mistake. *That* is what
# "more abstract" can mean, measured.
#
# The fifth breaks the row. It still tells the kinds apart, but less of it is zero and less of it lies on the thing. Behind
# it comes the mean over all places, so *where* a channel responds no longer matters to the network, only how much in all.
# Deeper is not always sharper.
#
# No channel is dead here. In your own networks, look: a dead channel costs time and learns nothing, because the gradient
# of a ReLU that is 0 everywhere is 0.
#
# ### Which channel follows which thing?
#
# For each kind the channel of the fourth layer that follows it best, in a picture of the 200 to which it responds
# strongly. The picture is lit where the channel responds; the white line is the true outline.

# %%
from course_utils.vision.pictures import light_up

fourth, follow = seen["features.13"].output, followed["features.13"]
tiles, words = [], []
for k, kind in enumerate(KINDS):
    channel = follow.best_channel(kind)
    index = int(fourth[:, channel].mean((1, 2)).argmax())
    lit = light_up(batch.images[index].float() / 255, fourth[index, channel])
    tiles.append(outline(lit, batch.masks(kind)[index]))
    words.append(f"{kind}: {channel}")
    on = f"{follow.share[channel, k]:.0%} on it"
    print(f"{kind:8} channel {channel:2}: {on}", end="\n" if k % 2 else "     ")
show(
    grid(tiles, columns=5, labels=words),
    title="Ten channels of the fourth layer, and the thing that each one follows",
    alt="Ten pictures, each dark but for one thing: " + ", ".join(words) + ".",
)

# %% [markdown]
# Nobody told the network where the things are: it was trained on names alone. These channels found the places by
# themselves. Lesson 07 adds them up into a map for a whole class.

# %% [markdown]
# ## What does keeping cost?
#
# One of our pictures makes 2 MiB of maps, all 17 layers together; a batch of 64 makes 126. How much of it stays depends on
# one word in the hook.

# %% tags=["predict"]
predict("maps_kept_by_one")

# %%
from course_utils.hooks.memory import measure_memory

many = batch.images[:64].float() / 255
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

# %% [markdown]
# The map itself is 4.6 MiB. Stored with its graph, it holds on to everything that a backward would need: the maps of
# nearly all layers. Detached it costs what it weighs, and if the means are all you want, next to nothing. With
# `torch.no_grad()` around the call there is no graph to begin with.

# %% [markdown] tags=["instructor"]
# **Misconception:** "Sparse means dead." **Ask:** "A channel that is 0 in 99 % of the pictures: dead, or a specialist?"
# **Answer:** you cannot tell from zeros alone; look at the other 1 %.
#
# **Misconception:** "Deeper is more abstract, and so better." **Ask:** "Why does the share on the thing fall in the last
# layer?" **Answer:** behind it comes the mean over all places, so nothing in the loss rewards the place.
#
# **Misconception:** "Keeping one map costs one map." **Ask:** "What hangs on it?" **Answer:** the graph, and with it the
# maps of nearly all layers.
#
# **For discussion:** the best of 96 channels was chosen on the same pictures on which it is measured. What does that do to
# the number? (It flatters it: the best of many is partly luck. Choose on 100 pictures, and measure on 100 others.)

# %% [markdown]
# ## Explore
#
# Every network of this lesson, each of its layers, each channel. Move the sliders (arrow keys work), or press one of the
# strongest channels. It opens at the channel that follows cats: go on to other pictures (4, 12, 14, 21 and 24 have cats)
# and see whether it does so there. Then upload a drawing or a photo of your own, or draw one with the mouse or a finger
# (that needs one more package: `%pip install ipycanvas`).

# %% tags=["explore"]
from course_utils.explorers import FeatureMaps

cat = follow.best_channel("cat")
FeatureMaps("picture_net", layer="features.13", channel=cat, picture=30)

# %% [markdown]
# ## Your network, your picture
#
# Hooks do not care whose network it is. Here are the channels that respond most, in the last layer that still has maps.
# To choose a network and a picture of your own, change `own_network` and `own_image` at the top of the lesson and run it
# again. Or let `make handout LESSON=05 NETWORK=resnet34 IMAGE=photo.jpg` do that; it writes a page.

# %%
from course_utils.vision.own import look_at, show_strongest_maps

own = look_at(own_network, own_image or picture.image, own_layer)
print(own)
show_strongest_maps(own)

# %% [markdown]
# Each tile is the picture, lit where one channel responds. A channel that lights up the same kind of thing in many
# pictures follows it; one picture is no proof. With random weights, the tiles tell you what the picture has edges of,
# and nothing else.

# %% [markdown]
# ## Exercises
#
# Replace the `...` in an answer cell, run it, then run the `check` below it. A check tells you what is wrong and for
# which input. Stuck? Run `hint(keep_maps)` in a new cell; `solution(keep_maps)` opens after three attempts.
#
# ### Exercise 1 · Keep the maps


# %% tags=["answer"]
def keep_maps(model, names, x):
    """Call `model(x)` once and return a dict: each dotted name in `names` to a copy
    of what that layer returned.

    A copy stays as it is, whatever the layers behind do to the layer's output, and
    holds no graph. No hook is left behind.
    """
    ...


# %% tags=["check"]
check(keep_maps)

# %% [markdown]
# ### Exercise 2 · Tiles for a grid


# %% tags=["answer"]
def tile_maps(maps):
    """Turn the maps (N, C, H, W) of one layer into grey tiles for a grid: those of
    the first picture, as a float32 tensor (C, 1, H, W).

    Each tile is stretched to [0, 1] by itself, a faint one as well: its lowest number
    becomes 0, its highest 1. A constant tile becomes all 0. `maps` stays as it is.
    """
    ...


# %% tags=["check"]
check(tile_maps)

# %% [markdown]
# ### Exercise 3 · The strongest channels


# %% tags=["answer"]
def strongest_channels(maps, count):
    """Return the numbers of the `count` channels that respond most to one picture,
    the strongest first, as a list of ints.

    `maps` is (C, H, W). How much a channel responds is the mean of its map, with
    negative numbers counted as 0.
    """
    ...


# %% tags=["check"]
check(strongest_channels)

# %% [markdown]
# ### Exercise 4 · How much is zero?


# %% tags=["answer"]
def zero_shares(model, x):
    """Call `model(x)` once and return a dict: the dotted name of each `nn.ReLU` to
    the share of exact zeros in what it returned, a float from 0 to 1.

    A ReLU that runs several times in the call counts all that it returned,
    together. No hook is left behind.
    """
    ...


# %% tags=["check"]
check(zero_shares)

# %% [markdown]
# ### Exercise 5 · Dead channels


# %% tags=["answer"]
def dead_channels(model, layer, batches):
    """Run `model` on each of `batches` and return the numbers of the channels of
    `layer` that were never above 0, as a list of ints in ascending order.

    `layer` is a module of `model` and returns (N, C, H, W). Never means: at no
    place of no picture of no batch. No hook is left behind.
    """
    ...


# %% tags=["check"]
check(dead_channels)

# %% [markdown]
# ### Exercise 6 · On the thing


# %% tags=["answer"]
def share_on_thing(maps, mask):
    """Return for each channel which share of its response lies on the thing: a
    float32 tensor (C,) with numbers from 0 to 1.

    `maps` is (C, h, w), with no negative numbers. `mask` is (H, W), bool, and H and
    W are multiples of h and w: a place of the map that the thing covers by a
    quarter counts by a quarter. A channel that is 0 everywhere has the share 0.
    """
    ...


# %% tags=["check"]
check(share_on_thing)

# %% [markdown]
# ### Exercise 7 · A mean without the maps


# %% tags=["answer"]
def channel_means(model, layer, batches):
    """Run `model` on each of `batches` and return the mean of each channel of
    `layer` over all pictures and places: a float32 tensor (C,) without a graph.

    `layer` is a module of `model` and returns (N, C, H, W); the batches differ in
    their number of pictures, N. The maps of a batch are let go before the next is
    run. No hook is left behind.
    """
    ...


# %% tags=["check"]
check(channel_means)

# %% [markdown]
# ### Exercise 8 · So far and no further


# %% tags=["answer"]
def run_to(model, name, x):
    """Return what the layer with the dotted name `name` gives for the input `x`,
    detached, and compute nothing behind it.

    The model may run its layers in any order, not only in that in which they were
    made. It stays as it was: no hook left behind, each module in the mode it was in.
    """
    ...


# %% tags=["check"]
check(run_to)

# %% [markdown] tags=["instructor"]
# **Misconceptions, by exercise:** storing the output itself (1); stretching the whole sheet instead of each tile (2); a mean
# that lets negative numbers cancel positive ones (3); forgetting that a ReLU may run twice (4); looking at the last batch
# only (5); dividing by zero in an empty channel (6); a mean of means over batches of different size (7); removing the hook
# on the line after the call that raised (8).
#
# **Ask, whatever the exercise:** "What is left on the model if the call fails?"
#
# **For discussion (8):** when is a hook that raises a good idea? (When nothing behind the layer is wanted, and the `with`
# block takes the hook away. The exception must be one of your own, or you will catch somebody else's.)

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | Store the maps under `str(module.weight.shape)`. | Layers of one shape share the key: 25 of ResNet-34's 36 convolutions are never seen. Use the name. |
# | `fmaps.append(output)` in the hook. | An in-place layer overwrites it, and it holds the graph. `output.detach().clone()`. |
# | `fmap.transpose_(0, 1)` before `make_grid`. | The underscore turns your stored tensor itself round. `output[0].unsqueeze(1)` does not. |
# | `models.alexnet(pretrained=True)` | Deprecated since torchvision 0.13: `weights="DEFAULT"`. |
# | `image[:, :, 0]` makes an RGBA drawing grey. | For black ink on a transparent ground that is a black square. Put it on white first. |
# | Deeper layers are more abstract. | Coarser, always. What they follow has to be measured, and the last layer need not be the sharpest. |
#
# ## Summary
#
# - A feature map says how well a kernel fits, at every place. Kernels of the first layer are pictures; later ones are not.
# - In a forward hook: store under the layer's **name**, a **detached clone**, and remove the hook.
# - `make_grid` takes (tiles, colours, H, W); TensorBoard takes its result with `add_image`.
# - `create_feature_extractor` gives the same tensors, reaches functional steps and stops early, but makes no copies.
# - Measure before you believe: zeros, dead channels, the share on the thing.
# - A map kept with its graph keeps almost every other map too.
#
# ## Go further
#
# - Lesson 06: the gradient with respect to the picture, cleaned up on its way by hooks. Lesson 07: maps added up by class.
# - [Feature extraction for model inspection](https://pytorch.org/vision/stable/feature_extraction.html) in torchvision's
#   documentation.
# - [torch.utils.tensorboard](https://pytorch.org/docs/stable/tensorboard.html), and how to
#   [use TensorBoard in notebooks](https://www.tensorflow.org/tensorboard/tensorboard_in_notebooks).
# - Bau, Zhou, Khosla, Oliva, Torralba 2017: [Network Dissection](https://arxiv.org/abs/1704.05796), which measures with
#   masks which channel follows which thing, for large networks.
