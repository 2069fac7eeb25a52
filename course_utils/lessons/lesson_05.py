"""Exercises and predictions of lesson 05: feature maps."""

from __future__ import annotations

import contextlib
import gc

import torch
import torch.nn.functional as F
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.engine import exercise, prediction
from course_utils.hooks.record import record
from course_utils.lessons.lesson_03 import whole_weights

# --- predictions ------------------------------------------------------------------------------------------------------

prediction(
    "first_channel_of_a_drawing",
    lesson=5,
    question="black ink on a transparent ground, saved as RGBA. How many different numbers are in its first channel?",
    options={
        1: "Ink is black, (0, 0, 0). What is transparent is stored as (0, 0, 0) too. Only the fourth channel differs.",
        2: "So it would be on white paper. But a transparent pixel has a colour as well, and here that is black.",
        "many": "The soft edges of the ink are in the fourth channel, which says how solid each pixel is.",
    },
    answer=1,
    why="""
        The first channel has one number, 0, at every place, and so have green and blue. Black ink is stored as (0, 0,
        0), and the transparent ground is stored as (0, 0, 0) as well. The cat is stored only in the alpha channel.
    """,
    ask={
        2: "A pixel without ink has four numbers, too. Which of them says that nothing is there? Does it then matter "
        "what the other three are?",
        "many": "Go from the inside of a line over its soft edge to the outside. Which of a pixel's four numbers "
        "changes on the way?",
    },
)
prediction(
    "drawers_by_shape",
    lesson=5,
    question="EfficientNet-Lite0 has 49 convolutions. With the shape of the weight as the key, how many keys has the "
    "dict?",
    options={
        49: "So it is when each layer has a key of its own. A shape is shared by all layers that have it.",
        31: "There are 31 different shapes. The other 18 convolutions share a key with one before them.",
        5: "Its maps have five different sizes. But the key is the shape of the weight, which has channels in it.",
    },
    answer=31,
    why="""
        The dict has 31 keys, because the 49 weights have 31 different shapes. The recipe then shows the first output
        under each key, so **18 of the 49 layers are never seen**, and nothing says so. With the small network it
        worked by luck: its five weights have five different shapes. So have the five of AlexNet, on which the
        tutorials try it.
    """,
    ask={
        49: "Two layers have weights of the same shape. What does `stored.setdefault(...)` do when this shape comes "
        "for the second time?",
        5: "In the small network, three convolutions return maps of 14 x 14. How many keys do these three have?",
    },
)
prediction(
    "lowest_number_stored",
    lesson=5,
    question="the hook stores the output of SqueezeNet's first convolution as it is, and the model runs on. What is "
    "the lowest number in it afterwards?",
    options={
        "below 0": "The convolution did return negative numbers. The next layer has changed that very tensor.",
        "exactly 0": "The next layer is `ReLU(inplace=True)`: it writes its result into the tensor that you stored.",
        "an error": "Nothing notices: the hook holds a reference, and in-place changes reach everyone who does.",
    },
    answer="exactly 0",
    why="""
        The lowest number is exactly 0. You asked for the output of the convolution, and you got that of the ReLU. The
        hook stored the tensor itself, and `ReLU(inplace=True)` wrote its result into that tensor.

        `output.detach().clone()` keeps what the layer returned, as `record` does. Without `detach()` the copy would
        keep the graph in memory.
    """,
    ask={
        "below 0": "How many tensors are there after the hook has run, one or two? Which line of `keep` would make the "
        "second?",
        "an error": "Try `a = torch.tensor([-2.0])`, `b = a`, `a.relu_()`. Does anything complain, and what is in `b` "
        "now?",
    },
)
prediction(
    "widest_and_narrowest_tile",
    lesson=5,
    question="the span of a channel is its highest number minus its lowest. The largest span of the 32 channels is "
    "about 23. Sort the channels by their spans: how large is the 20th?",
    options={
        "about 20": "The tiles look alike because each one was stretched by itself, not because the spans are alike.",
        "about 10": "Less than that. Each tile was stretched by itself, so the sheet says nothing about the spans.",
        "about 4": "Each tile was stretched from black to white by itself. A span of 4 looks like a span of 23.",
    },
    answer="about 4",
    why="""
        The span of the 20th channel is about 4. In the first sheet it looks as strong as all others, because each
        tile runs from its own black to its own white. In some channels the convolution returns almost nothing.

        `scale_each=True` is good for seeing the *pattern* of each channel. To compare tiles, draw them on **one
        scale**.
    """,
    ask={
        "about 20": "Say that one channel goes from 0 to 23, another from 0 to 0.001. How bright does "
        "`scale_each=True` draw the highest number of each?",
        "about 10": "What on the sheet made you say 10? What would look different there if the span were 1?",
    },
)
prediction(
    "what_channel_53_follows",
    lesson=5,
    question="what makes channel 53 of `features.13` respond?",
    options={
        "boats": "Picture 38 has a boat and no fish, and the channel hardly responds to it.",
        "balloons": "Picture 30 has a balloon and no fish, and the channel hardly responds to it.",
        "fish": "It responds strongly to pictures 32 and 36. Both have a fish, and none of the other eight has one.",
        "whatever is brightest": "It hardly responds to many pictures, although each of them has a brightest place.",
    },
    answer="fish",
    why="""
        Channel 53 follows fish. Among the pictures 30 to 39 it responds strongly only to 32 and 36, the two with a
        fish, and the fish is what is lit. In the sixty other pictures, too, its mean response is by far the largest
        where there is a fish. It also responds a little to other things.
    """,
    ask={
        "boats": "Move the slider to picture 36: what is lit there, and where is the boat?",
        "balloons": "Move the slider to picture 32: what is lit there? Is there a balloon in it?",
        "whatever is brightest": "Pictures 32 and 33 both have white clouds. From 0 to which number does the channel "
        "go in each?",
    },
)
prediction(
    "layer_that_is_most_on_the_things",
    lesson=5,
    question="which layer of the trained network has the best channels that lie most on their things?",
    options={
        "the first ReLU": "Its channels respond to edges and colours, and these are everywhere.",
        "the third ReLU": "It is better than the two before it, and the fourth is better still.",
        "the fourth ReLU": "Two thirds of what its best channels respond lie on the thing.",
        "the fifth ReLU": "It tells the kinds apart as well as the fourth, but less of it lies on the thing.",
    },
    answer="the fourth ReLU",
    why="""
        The fourth. Compare each number with that of the untrained network:

        - **The first layer** has 19 % on the thing and tells the kinds apart in 55 % of the pairs. That is more than
          the 10 % and 50 % of one channel, but the best channels of an *untrained* network reach about as much. It is
          no finding.
        - **The fourth layer** has 64 % and 98 %, and the untrained network 15 % and 51 %. That is a finding: training
          has made channels that follow things. This is what "more abstract" can mean, measured.
        - **The fifth layer** tells the kinds apart as well as the fourth, but only 43 % lie on the thing. The place
          is not lost, it is spread: with the region grown by one place of the map, about three quarters are inside.
          (Behind this layer comes the mean over all places. That may be the reason, but we have not tested it.)
    """,
    ask={
        "the first ReLU": "Take a channel that finds edges, and a picture of a cat and a boat on grass. At which "
        "places does it respond?",
        "the third ReLU": "What gets worse from the third ReLU to the fourth, if the maps of both have 14 x 14 places?",
        "the fifth ReLU": "Behind the fifth ReLU comes the mean over all places. If a response moves from the cat to "
        "the place beside it, does this mean change?",
    },
)
prediction(
    "memory_of_one_map",
    lesson=5,
    question="a hook keeps the output of the last ReLU as it is, without `detach()`. Everything else is dropped. What "
    "stays in memory?",
    options={
        "that one map": "So it would be with `detach()`. As it is, the map holds on to the graph it came from.",
        "the five convolutions' maps": "The graph keeps what backward needs, and that is more than those.",
        "the maps of nearly all layers": "Each step of the graph keeps what its backward needs: the maps before it.",
    },
    answer="the maps of nearly all layers",
    why="""
        The maps of nearly all layers stay. The map itself has 2.3 MiB, but its graph holds on to everything that a
        backward pass would need. Detached, it costs what it weighs, and the means alone cost next to nothing. With
        `torch.no_grad()` around the call there is no graph to begin with.
    """,
    ask={
        "that one map": "You could still call `backward()` from this map. Which numbers would that need, and who keeps "
        "them until then?",
        "the five convolutions' maps": "Between two convolutions there are other layers. What does a ReLU need for its "
        "backward pass?",
    },
)

LEFT_CHANGED = "whether a layer was left with another setting or forward"

# --- small networks for the cases -------------------------------------------------------------------------------------


def _small_net(rng: Numbers) -> nn.Module:
    """Three convolutions, of which two have weights of one shape, each followed by an in-place ReLU but the last."""
    return whole_weights(
        nn.Sequential(
            nn.Conv2d(1, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(2, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(2, 2, 1)
        ),
        rng,
    )


class _Block(nn.Module):
    """x + conv2(relu(conv1(x))), then the same ReLU on half of the picture; made in another order than run."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(2, 2, 1)
        self.conv1 = nn.Conv2d(2, 2, 1)

    def forward(self, x):
        return self.relu((x + self.conv2(self.relu(self.conv1(x))))[..., :1])


def _nested(rng: Numbers) -> nn.Module:
    return whole_weights(nn.Sequential(nn.Conv2d(1, 2, 1), nn.Sequential(nn.ReLU(), _Block())), rng)


def _note_runs(*layers: nn.Module) -> list[int]:
    """A list that grows with each run of one of `layers`."""
    runs: list[int] = []
    for layer in layers:
        layer.register_forward_pre_hook(lambda module, args: runs.append(1))
    return runs


def _settings(model: nn.Module) -> tuple[str, list[bool]]:
    """What tells whether a layer has got another setting, such as `inplace`, or another forward."""
    return repr(model), ["forward" in vars(module) for module in model.modules()]


def _shuffled(rng: Numbers, count: int) -> list[int]:
    left = list(range(count))
    return [left.pop(rng.integer(0, len(left) - 1)) for _ in range(count)]


# --- exercises --------------------------------------------------------------------------------------------------------


@exercise(
    lesson=5,
    points=2,
    hints=[
        "The key is the layer's dotted name. `model.get_submodule(name)` finds the layer for it.",
        "Whatever follows may write into the output, and the output holds the graph: store `output.detach().clone()`.",
        "`layer.register_forward_hook(lambda m, a, out, name=name: maps.update({name: out.detach().clone()}))`; keep "
        "the handles, and remove each when the call is over.",
    ],
)
def keep_maps(model, names, x):
    """Call `model(x)` once and return a dict: each dotted name in `names` to a copy
    of what that layer returned.

    A copy stays as it is, whatever the layers behind do to the layer's output, and
    holds no graph. No hook is left behind.
    """
    maps, handles = {}, []
    for name in names:
        handles.append(
            model.get_submodule(name).register_forward_hook(
                lambda module, args, output, name=name: maps.update({name: output.detach().clone()})
            )
        )
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return maps


@keep_maps.cases
def _(rng):
    nested = [rng.choice(["1.1.conv1", "1.1.conv2"]), "0"]
    for model, names, shown in (
        (_small_net(rng), ["0", "2", "4"], "a Sequential of convolutions and in-place ReLUs, names = ['0', '2', '4']"),
        (_nested(rng), nested, f"a model of layers inside layers, names = {nested}"),
    ):
        runs = _note_runs(model)
        settings = _settings(model)

        def after(maps, model=model, settings=settings, runs=runs):
            graphs = [getattr(each, "requires_grad", False) for each in maps.values()]
            return {
                LEFT_CHANGED: _settings(model) != settings,
                "how often the model ran": len(runs),
                "whether one of the maps holds a graph": any(graphs),
            }

        yield Case({"model": model, "names": names, "x": rng.quarters(2, 1, 2, 2)}, after, shown=shown)


@keep_maps.accept
def _(model, names, x):
    with torch.no_grad(), record(model, *names) as seen:
        model(x)
    return {name: seen[name].output for name in names}


@keep_maps.accept
def _(model, names, x):
    maps, wanted = {}, {module: name for name, module in model.named_modules() if name in names}

    def keep(module, args, output):
        maps[wanted[module]] = torch.clone(output)

    handles = [module.register_forward_hook(keep) for module in wanted]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return maps


keep_maps.equivalent(
    "The order in which hooks are made or removed, and the order of the dict, make no difference.",
    "backwards: - for name in names: + for name in list(names)[::-1]:",
    "backwards: - for handle in handles: + for handle in list(handles)[::-1]:",
    "backwards: - return {name: seen[name].output for name in names} + return {name: seen[name].output for "
    "name in list(names)[::-1]}",
    "backwards: - handles = [module.register_forward_hook(keep) for module in wanted] + handles = "
    "[module.register_forward_hook(keep) for module in list(wanted)[::-1]]",
    "backwards: - maps, wanted = ({}, {module: name for name, module in model.named_modules() if name in "
    "names}) + maps, wanted = ({}, {module: name for name, module in list(model.named_modules())[::-1] if "
    "name in names})",
)
keep_maps.equivalent(
    "The task speaks of calls that succeed.",
    "no try: - try: - model(x) + model(x) - finally: - for handle in handles: + for handle in handles: - "
    "handle.remove() + handle.remove()",
)
keep_maps.equivalent(
    "What `record` keeps is detached in any case.",
    "mixed up: - with torch.no_grad(), record(model, *names) as seen: + with torch.enable_grad(), "
    "record(model, *names) as seen:",
)
keep_maps.equivalent(
    "The model itself is none of its layers: it has no dotted name.",
    "not the first: - maps, wanted = ({}, {module: name for name, module in model.named_modules() if name in "
    "names}) + maps, wanted = ({}, {module: name for name, module in list(model.named_modules())[1:] if name "
    "in names})",
)


@keep_maps.mistake(
    "Your key is the shape of the weight. Layers of one shape share it, and the last one wins: use the layer's name."
)
def _(model, names, x):
    maps, handles = {}, []

    def keep(module, args, output):
        maps[str(module.weight.shape)] = output.detach().clone()

    for name in names:
        handles.append(model.get_submodule(name).register_forward_hook(keep))
    model(x)
    for handle in handles:
        handle.remove()
    return maps


@keep_maps.mistake(
    "The in-place ReLU behind has written into what you kept. Make a `clone()` in the hook, and let the hook return "
    "nothing: what it returns goes on in place of the output."
)
def _(model, names, x):
    maps, handles = {}, []
    for name in names:
        layer = model.get_submodule(name)
        handles.append(layer.register_forward_hook(lambda m, a, out, name=name: maps.update({name: out.detach()})))
    model(x)
    for handle in handles:
        handle.remove()
    return maps


@keep_maps.mistake(
    "What you store holds the graph, and the in-place ReLU behind has written into it. Store "
    "`output.detach().clone()` in the hook, and let the hook return nothing."
)
def _(model, names, x):
    maps, handles = {}, []
    for name in names:
        layer = model.get_submodule(name)
        handles.append(layer.register_forward_hook(lambda m, a, out, name=name: maps.update({name: out})))
    model(x)
    for handle in handles:
        handle.remove()
    return maps


@keep_maps.mistake("Your copies still belong to the graph and keep all of it in memory: `detach()` them.")
def _(model, names, x):
    maps, handles = {}, []
    for name in names:
        layer = model.get_submodule(name)
        handles.append(layer.register_forward_hook(lambda m, a, out, name=name: maps.update({name: out.clone()})))
    model(x)
    for handle in handles:
        handle.remove()
    return maps


@keep_maps.mistake(
    "All maps land under one name: a hook made in a loop looks `name` up when it runs. Bind it: `name=name`."
)
def _(model, names, x):
    maps, handles = {}, []
    for name in names:
        handles.append(
            model.get_submodule(name).register_forward_hook(
                lambda m, a, out: maps.update({name: out.detach().clone()})  # noqa: B023 - this is the mistake
            )
        )
    model(x)
    for handle in handles:
        handle.remove()
    return maps


@keep_maps.mistake("The hooks stay on the model. Keep the handles, and remove each when the call is over.")
def _(model, names, x):
    maps = {}
    for name in names:
        model.get_submodule(name).register_forward_hook(
            lambda m, a, out, name=name: maps.update({name: out.detach().clone()})
        )
    model(x)
    return maps


@keep_maps.mistake("The model runs once for each name. Put a hook on every layer first, and call it once.")
def _(model, names, x):
    maps = {}
    for name in names:
        with record(model, name) as seen:
            model(x)
        maps[name] = seen[name].output
    return maps


@keep_maps.mistake(
    "The dict is empty: no hook was on the layers when the model ran, or none stored anything in this dict. A `with` "
    "block takes its hook away at its end: the call of the model has to stand in it."
)
def _(model, names, x):
    maps = {}
    for name in names:
        layer = model.get_submodule(name)
        with layer.register_forward_hook(lambda m, a, out, name=name: maps.update({name: out.detach().clone()})):
            pass
    model(x)
    return maps


@keep_maps.mistake(
    "You run the children one after the other. That is what a Sequential does; other models have a forward of their "
    "own. Call the model, and let hooks keep the maps."
)
def _(model, names, x):
    maps = {}
    with torch.no_grad():
        for name, layer in model.named_children():
            x = layer(x)
            if name in names:
                maps[name] = x.clone()
    return maps


@keep_maps.mistake("That is what goes *into* each layer. Keep what it returns: a forward hook gets it as `output`.")
def _(model, names, x):
    maps, handles = {}, []
    for name in names:
        layer = model.get_submodule(name)
        handles.append(layer.register_forward_pre_hook(lambda m, a, name=name: maps.update({name: a[0].detach() + 0})))
    model(x)
    for handle in handles:
        handle.remove()
    return maps


@exercise(
    lesson=5,
    points=1,
    hints=[
        "`make_grid` takes (number of tiles, colour channels, H, W). Here each channel of the map is one grey tile.",
        "`maps[0].unsqueeze(1)` is (C, 1, H, W). The lowest and highest number of each tile: `amin((1, 2, 3), "
        "keepdim=True)` and `amax`.",
        "A constant tile has highest = lowest: divide by `(high - low).clamp(min=1e-12)`, and 0 stays 0.",
    ],
)
def tile_maps(maps):
    """Turn the maps of one layer, (N, C, H, W) in float32, into grey tiles for a
    grid: those of the first picture, as a float32 tensor (C, 1, H, W).

    Each tile is stretched to [0, 1] by itself, a faint one as well: its lowest number
    becomes 0, its highest 1. A constant tile becomes all 0. `maps` stays as it is.
    """
    tiles = maps[0].unsqueeze(1)
    low, high = tiles.amin((1, 2, 3), keepdim=True), tiles.amax((1, 2, 3), keepdim=True)
    return (tiles - low) / (high - low).clamp(min=1e-12)


@tile_maps.cases
def _(rng):
    maps = rng.quarters(1, 2, 2, 2)
    faint = torch.tensor([0.0, 0.25, 0.5, 0.25])[_shuffled(rng, 4)] - rng.integer(0, 2)
    maps[0, rng.integer(0, 1)] = faint.reshape(2, 2)
    yield Case({"maps": maps})
    maps = rng.quarters(2, 3, 2, 3)
    constant, faint, _ = _shuffled(rng, 3)
    maps[0, constant] = float(rng.integer(1, 9))
    # So faint that a denominator of at least 0.01, or 0.00001 more than it should be, shows; 1e-8 more does not.
    maps[0, faint] = torch.tensor([0, 1, 2, 2, 3, 4])[_shuffled(rng, 6)].reshape(2, 3) / 2048
    yield Case(
        {"maps": maps}, shown="maps of shape (2, 3, 2, 3), of the first picture one channel constant and one very faint"
    )


@tile_maps.accept
def _(maps):
    tiles = []
    for channel in maps[0]:
        low, high = channel.min(), channel.max()
        tiles.append((channel - low) / (high - low) if high > low else torch.zeros_like(channel))
    return torch.stack(tiles).unsqueeze(1)


@tile_maps.accept
def _(maps):
    from course_utils.vision.saliency import scale_to_unit

    return scale_to_unit(maps[:1].transpose(0, 1))


tile_maps.equivalent("Only the first picture is asked for.", "of an argument the first only: + maps = maps[:1]")


@tile_maps.mistake(
    "You stretch all channels together, so that a faint one stays grey. Take the lowest and highest of each tile."
)
def _(maps):
    tiles = maps[0].unsqueeze(1)
    return (tiles - tiles.min()) / (tiles.max() - tiles.min())


@tile_maps.mistake("A constant tile gives 0 / 0, which is nan. Make sure that you never divide by 0.")
def _(maps):
    tiles = maps[0].unsqueeze(1)
    low, high = tiles.amin((1, 2, 3), keepdim=True), tiles.amax((1, 2, 3), keepdim=True)
    return (tiles - low) / (high - low)


@tile_maps.mistake(
    "`transpose_` (with the underscore) turns the caller's own tensor. Use `transpose`, or `maps[0].unsqueeze(1)`."
)
def _(maps):
    tiles = maps.transpose_(0, 1)[:, :1]
    low, high = tiles.amin((1, 2, 3), keepdim=True), tiles.amax((1, 2, 3), keepdim=True)
    return (tiles - low) / (high - low).clamp(min=1e-12)


@tile_maps.mistake("These are the first channels of all pictures. `maps[0]` is all channels of the first picture.")
def _(maps):
    tiles = maps[:, :1]
    low, high = tiles.amin((1, 2, 3), keepdim=True), tiles.amax((1, 2, 3), keepdim=True)
    return (tiles - low) / (high - low).clamp(min=1e-12)


@tile_maps.mistake("You divide by the highest number only. Subtract the lowest first, so that the tile begins at 0.")
def _(maps):
    tiles = maps[0].unsqueeze(1)
    return tiles / tiles.amax((1, 2, 3), keepdim=True)


@tile_maps.mistake("You set negative numbers to 0 first. The lowest number of a tile becomes 0, also a negative one.")
def _(maps):
    tiles = maps[0].unsqueeze(1).clamp(min=0)
    low, high = tiles.amin((1, 2, 3), keepdim=True), tiles.amax((1, 2, 3), keepdim=True)
    return (tiles - low) / (high - low).clamp(min=1e-12)


@tile_maps.mistake(
    "The highest number of a faint tile stays below 1, because you add a number to what you divide by. Divide by "
    "another one only where the tile is constant."
)
def _(maps):
    tiles = maps[0].unsqueeze(1)
    low, high = tiles.amin((1, 2, 3), keepdim=True), tiles.amax((1, 2, 3), keepdim=True)
    return (tiles - low) / (high - low + 1e-6)


@exercise(
    lesson=5,
    points=1,
    hints=[
        "A negative number says that the pattern is not there: `clamp(min=0)` first.",
        "One number a channel: the mean over height and width, `mean((1, 2))`.",
        "`maps.clamp(min=0).mean((1, 2)).topk(count).indices.tolist()`",
    ],
)
def strongest_channels(maps, count):
    """Return the numbers of the `count` channels that respond most to one picture,
    the strongest first, as a list of ints.

    `maps` is (C, H, W). How much a channel responds is the mean of its map, with
    negative numbers counted as 0.
    """
    return maps.clamp(min=0).mean((1, 2)).topk(count).indices.tolist()


@strongest_channels.cases
def _(rng):
    # What is positive adds up to 6, 5.75, 5.5, 4.75, 4 and 0.25. By other measures another row than the first wins: the
    # second by its greatest number, by the mean of what is positive and with `clamp(min=1)`, the third by the mean, the
    # median and how much is positive, the fourth by the mean of sizes. The third row is third by its greatest number,
    # fourth by the standard deviation and fifth by the mean of what is positive.
    rows = [
        [2.0, 2.0, 2.0] + [-0.25 * rng.integer(1, 4) for _ in range(7)],
        [3.0, 2.75] + [-0.25] * 8,
        [1.5] + [0.5] * 8 + [0.0],
        [1.25, 1.25, 1.25, 1.0] + [-0.25 * rng.integer(9, 12) for _ in range(6)],
        [0.75] * 4 + [0.5] * 2 + [-0.5] * 4,
        [0.25] + [-0.25 * rng.integer(1, 4) for _ in range(9)],
    ]
    for count in (1, 4):
        maps = torch.tensor([[rows[row][place] for place in _shuffled(rng, 10)] for row in _shuffled(rng, 6)])
        yield Case({"maps": maps.reshape(6, 2, 5), "count": count}, shown=f"maps of shape (6, 2, 5), count = {count}")


@strongest_channels.accept
def _(maps, count):
    responses = torch.relu(maps).flatten(1).sum(1)
    return [int(channel) for channel in responses.argsort(descending=True)[:count]]


@strongest_channels.accept
def _(maps, count):
    responses = F.adaptive_avg_pool2d(F.relu(maps), 1).flatten().tolist()
    return sorted(range(len(responses)), key=responses.__getitem__, reverse=True)[:count]


strongest_channels.equivalent(
    "All maps have the same number of places, so that sums have the order of means.",
    "mixed up: - return maps.clamp(min=0).mean((1, 2)).topk(count).indices.tolist() + return "
    "maps.clamp(min=0).sum((1, 2)).topk(count).indices.tolist()",
    "mixed up: - responses = torch.relu(maps).flatten(1).sum(1) + responses = torch.relu(maps).flatten(1).mean(1)",
)
strongest_channels.equivalent(
    "In float64 the order of the channels is the same.", "spoil an argument: + maps = maps.double()"
)
strongest_channels.equivalent(
    "Tensors and lists of one number are sorted as numbers are.",
    "no tolist: - responses = F.adaptive_avg_pool2d(F.relu(maps), 1).flatten().tolist() + responses = "
    "F.adaptive_avg_pool2d(F.relu(maps), 1).flatten()",
    "no flatten: - responses = F.adaptive_avg_pool2d(F.relu(maps), 1).flatten().tolist() + responses = "
    "F.adaptive_avg_pool2d(F.relu(maps), 1).tolist()",
)


@strongest_channels.mistake(
    "You let negative numbers count: they cancel a strong response elsewhere. `clamp(min=0)` first."
)
def _(maps, count):
    return maps.mean((1, 2)).topk(count).indices.tolist()


@strongest_channels.mistake(
    "You took the greatest number of each map: one bright spot beats a whole lit map. Take the mean."
)
def _(maps, count):
    return maps.amax((1, 2)).topk(count).indices.tolist()


@strongest_channels.mistake("`abs()` turns a strong No into a strong Yes. Count negative numbers as 0: `clamp(min=0)`.")
def _(maps, count):
    return maps.abs().mean((1, 2)).topk(count).indices.tolist()


@strongest_channels.mistake("These are the weakest. Sort in descending order, or use `topk`.")
def _(maps, count):
    return maps.clamp(min=0).mean((1, 2)).argsort()[:count].tolist()


@strongest_channels.mistake("These are the responses. The numbers of the channels are in `.indices` of topk's result.")
def _(maps, count):
    return maps.clamp(min=0).mean((1, 2)).topk(count).values.tolist()


@strongest_channels.mistake(
    "You take the mean of the positive numbers alone: one bright spot beats a whole lit map. The mean is over all "
    "places, and there negative numbers count as 0."
)
def _(maps, count):
    positive = maps.clamp(min=0)
    means = positive.sum((1, 2)) / (maps > 0).sum((1, 2)).clamp(min=1)
    return means.topk(count).indices.tolist()


@strongest_channels.mistake(
    "You count the places that respond. How much they respond counts: take the mean of the maps."
)
def _(maps, count):
    return (maps > 0).float().mean((1, 2)).topk(count).indices.tolist()


@exercise(
    lesson=5,
    points=2,
    hints=[
        "A forward hook on each `nn.ReLU` of `model.named_modules()`. A hook may run more than once in a call.",
        "Count zeros and numbers separately, for all runs of the layer; divide at the end.",
        "In the hook: `zeros[name] += int((output == 0).sum())` and `numbers[name] += output.numel()`",
    ],
)
def zero_shares(model, x):
    """Call `model(x)` once and return a dict: the dotted name of each `nn.ReLU` to
    the share of exact zeros in what it returned, a float from 0 to 1.

    A ReLU that runs several times in the call counts all that it returned,
    together. No hook is left behind.
    """
    zeros, numbers, handles = {}, {}, []

    def count(name, output):
        zeros[name] = zeros.get(name, 0) + int((output == 0).sum())
        numbers[name] = numbers.get(name, 0) + output.numel()

    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            handles.append(module.register_forward_hook(lambda m, a, output, name=name: count(name, output)))
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return {name: zeros[name] / numbers[name] for name in zeros}


def _reused_relu(rng: Numbers) -> tuple[nn.Module, torch.Tensor]:
    """A net in which one ReLU runs twice: first on 24 numbers, then on 8, each time with zeros."""
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Sequential(nn.ReLU(), _Block()))
    block = net[1][1]
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([1.0, 1.0]).reshape(2, 1, 1, 1))
        net[0].bias.zero_()
        block.conv1.weight.copy_(torch.eye(2).reshape(2, 2, 1, 1))
        block.conv1.bias.copy_(torch.tensor([-5.0, 0.0]))
        block.conv2.weight.copy_(torch.eye(2).reshape(2, 2, 1, 1))
        block.conv2.bias.copy_(torch.tensor([-1.0, 1.0]))
    x = rng.whole(2, 1, 2, 3, low=1, high=4)
    x[1] += 0.25
    x[0, 0, 0, rng.integer(0, 2)] = float(rng.integer(6, 9))
    x[0, 0, 1, 0] = -float(rng.integer(1, 9))  # in the part of the picture that the second run gets
    return net, x


@zero_shares.cases
def _(rng):
    x = rng.quarters(2, 5).abs()
    x[0, 0] = 0.25 * rng.integer(1, 3)
    for place in _shuffled(rng, 5)[: rng.integer(1, 3)]:
        x[1, place] *= -1
    zero, tiny, *_ = _shuffled(rng, 4)
    x[0, 1 + zero], x[0, 1 + tiny] = 0, 2.0**-30
    net = nn.Sequential(nn.Identity(), nn.Sequential(nn.ReLU()), nn.Hardsigmoid(inplace=True), nn.ReLU6())
    words = "nn.Sequential(nn.Identity(), nn.Sequential(nn.ReLU()), nn.Hardsigmoid(inplace=True), nn.ReLU6())"
    reusing, pictures = _reused_relu(rng)
    for model, given, shown in (
        (net, x, f"{words} and x = {x.tolist()}"),
        (reusing, pictures, "a model in which one ReLU runs twice, the second time on fewer numbers"),
    ):
        runs = _note_runs(model)
        yield Case(
            {"model": model, "x": given}, lambda _, runs=runs: {"how often the model ran": len(runs)}, shown=shown
        )


@zero_shares.accept
def _(model, x):
    with record(model, nn.ReLU) as seen:
        model(x)
    outputs = {name: torch.cat([output.flatten() for output in each.outputs]) for name, each in seen.items()}
    return {name: 1 - output.count_nonzero().item() / output.numel() for name, output in outputs.items()}


@zero_shares.accept
def _(model, x):
    found, handles = {}, []

    def note(name):
        def hook(module, args, output):
            found.setdefault(name, []).extend(output.flatten().tolist())

        return hook

    for name, module in model.named_modules():
        if type(module) is nn.ReLU:
            handles.append(module.register_forward_hook(note(name)))
    model(x)
    for handle in handles:
        handle.remove()
    return {name: numbers.count(0.0) / len(numbers) for name, numbers in found.items()}


zero_shares.equivalent(
    "The model itself is none of its layers: it has no dotted name.",
    "not the first: - for name, module in model.named_modules(): + for name, module in "
    "list(model.named_modules())[1:]:",
)
zero_shares.equivalent(
    "The order in which hooks are made or removed, and the order of the dict, make no difference.",
    "backwards: - for name, module in model.named_modules(): + for name, module in list(model.named_modules())[::-1]:",
    "backwards: - for handle in handles: + for handle in list(handles)[::-1]:",
    "backwards: - return {name: zeros[name] / numbers[name] for name in zeros} + return {name: zeros[name] / "
    "numbers[name] for name in list(zeros)[::-1]}",
    "backwards: - outputs = {name: torch.cat([output.flatten() for output in each.outputs]) for name, each in"
    " seen.items()} + outputs = {name: torch.cat([output.flatten() for output in each.outputs]) for name, "
    "each in list(seen.items())[::-1]}",
    "backwards: - return {name: 1 - output.count_nonzero().item() / output.numel() for name, output in "
    "outputs.items()} + return {name: 1 - output.count_nonzero().item() / output.numel() for name, output in "
    "list(outputs.items())[::-1]}",
    "backwards: - return {name: numbers.count(0.0) / len(numbers) for name, numbers in found.items()} + "
    "return {name: numbers.count(0.0) / len(numbers) for name, numbers in list(found.items())[::-1]}",
)
zero_shares.equivalent(
    "The task speaks of calls that succeed.",
    "no try: - try: - model(x) + model(x) - finally: - for handle in handles: + for handle in handles: - "
    "handle.remove() + handle.remove()",
)
zero_shares.equivalent(
    "`count` returns nothing anyway.",
    "no return: - handles.append(module.register_forward_hook(lambda m, a, output, name=name: count(name, "
    "output))) + handles.append(module.register_forward_hook(lambda m, a, output, name=name: (count(name, "
    "output), None)[1]))",
)
zero_shares.equivalent(
    "The order in which numbers are counted makes no difference.",
    "backwards: - outputs = {name: torch.cat([output.flatten() for output in each.outputs]) for name, each in"
    " seen.items()} + outputs = {name: torch.cat([output.flatten() for output in list(each.outputs)[::-1]]) "
    "for name, each in seen.items()}",
)


@zero_shares.mistake(
    "Where a ReLU runs twice, only its last run counts. What a hook assigns overwrites what it noted before: add the "
    "runs up."
)
def _(model, x):
    shares, handles = {}, []

    def note(name):
        return lambda m, a, output: shares.update({name: (output == 0).float().mean().item()})

    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            handles.append(module.register_forward_hook(note(name)))
    model(x)
    for handle in handles:
        handle.remove()
    return shares


@zero_shares.mistake(
    "You take the mean of the shares of the runs. The runs differ in size: count zeros and numbers, and divide at the "
    "end."
)
def _(model, x):
    with record(model, nn.ReLU) as seen:
        model(x)
    shares = {name: [(output == 0).float().mean() for output in each.outputs] for name, each in seen.items()}
    return {name: torch.stack(each).mean().item() for name, each in shares.items()}


@zero_shares.mistake("That is the share of numbers that are *not* 0. Turn it round: 1 minus it.")
def _(model, x):
    with record(model, nn.ReLU) as seen:
        model(x)
    outputs = {name: torch.cat([output.flatten() for output in each.outputs]) for name, each in seen.items()}
    return {name: output.count_nonzero().item() / output.numel() for name, output in outputs.items()}


@zero_shares.mistake("You look at what goes *into* the ReLU: there, negative numbers are not 0 yet. Take the output.")
def _(model, x):
    zeros, numbers, handles = {}, {}, []

    def note(name):
        def hook(module, args, output):
            zeros[name] = zeros.get(name, 0) + int((args[0] == 0).sum())
            numbers[name] = numbers.get(name, 0) + output.numel()

        return hook

    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            handles.append(module.register_forward_hook(note(name)))
    model(x)
    for handle in handles:
        handle.remove()
    return {name: zeros[name] / numbers[name] for name in zeros}


@zero_shares.mistake("The hooks stay on the model. Keep the handles, and remove each when the call is over.")
def _(model, x):
    found = {}

    def note(name):
        return lambda m, a, output: found.setdefault(name, []).extend(output.flatten().tolist())

    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            module.register_forward_hook(note(name))
    model(x)
    return {name: numbers.count(0.0) / len(numbers) for name, numbers in found.items()}


@zero_shares.mistake(
    "The in-place layer behind has written into what you kept. Count in the hook, or keep a `clone()` made there."
)
def _(model, x):
    found, handles = {}, []

    def note(name):
        return lambda m, a, output: found.setdefault(name, []).append(output.flatten()) and None

    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            handles.append(module.register_forward_hook(note(name)))
    model(x)
    for handle in handles:
        handle.remove()
    return {name: (torch.cat(outputs) == 0).float().mean().item() for name, outputs in found.items()}


@zero_shares.mistake("The model runs once for each ReLU. Put a hook on every one of them first, and call it once.")
def _(model, x):
    shares = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            numbers = []
            with module.register_forward_hook(lambda m, a, output: numbers.extend(output.flatten().tolist())):  # noqa: B023
                model(x)
            shares[name] = numbers.count(0.0) / len(numbers)
    return shares


@zero_shares.mistake("You count numbers close to 0 as well. Exact zeros alone count: `output == 0`.")
def _(model, x):
    with record(model, nn.ReLU) as seen:
        model(x)
    outputs = {name: torch.cat([output.flatten() for output in each.outputs]) for name, each in seen.items()}
    return {name: (numbers < 1e-6).double().mean().item() for name, numbers in outputs.items()}


@zero_shares.mistake("The ReLU that lies deepest is missing. `named_modules` finds them all, with their names.")
def _(model, x):
    zeros, numbers = {}, {}

    def count(name, output):
        zeros[name] = zeros.get(name, 0) + int((output == 0).sum())
        numbers[name] = numbers.get(name, 0) + output.numel()

    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, nn.ReLU) and name.count(".") < 2:
                hook = lambda m, a, output, name=name: count(name, output)  # noqa: E731
                stack.enter_context(module.register_forward_hook(hook))
        model(x)
    return {name: zeros[name] / numbers[name] for name in zeros}


@zero_shares.mistake("That is in per cent. A share is a number from 0 to 1.")
def _(model, x):
    with record(model, nn.ReLU) as seen:
        model(x)
    outputs = {name: torch.cat([output.flatten() for output in each.outputs]) for name, each in seen.items()}
    return {name: 100 * (numbers == 0).double().mean().item() for name, numbers in outputs.items()}


@zero_shares.mistake(
    "`named_children` stops at the model's own parts. `named_modules` finds the ReLUs inside them, too."
)
def _(model, x):
    zeros, numbers, handles = {}, {}, []

    def count(name, output):
        zeros[name] = zeros.get(name, 0) + int((output == 0).sum())
        numbers[name] = numbers.get(name, 0) + output.numel()

    for name, module in model.named_children():
        if isinstance(module, nn.ReLU):
            handles.append(module.register_forward_hook(lambda m, a, output, name=name: count(name, output)))
    model(x)
    for handle in handles:
        handle.remove()
    return {name: zeros[name] / numbers[name] for name in zeros}


@exercise(
    lesson=5,
    points=2,
    hints=[
        "A channel is alive as soon as one number of it, in any picture at any place, is above 0.",
        "In the hook: `(output > 0).any(3).any(2).any(0)` is (C,). Combine it over the batches with `|`.",
        "`alive = alive | now` in the hook, from `alive = False`; at the end `(~alive).nonzero().flatten().tolist()`",
    ],
)
def dead_channels(model, layer, batches):
    """Run `model` on each of `batches` and return the numbers of the channels of
    `layer` that were never above 0, as a list of ints in ascending order.

    `layer` is a module of `model` and returns (N, C, H, W). Never means: at no
    place of no picture of no batch. No hook is left behind.
    """
    alive = []

    def look(module, args, output):
        alive.append((output > 0).any(3).any(2).any(0))

    with layer.register_forward_hook(look), torch.no_grad():
        for batch in batches:
            model(batch)
    return (~torch.stack(alive).any(0)).nonzero().flatten().tolist()


def _some_dead(rng: Numbers, inplace: bool) -> tuple[nn.Module, list[torch.Tensor]]:
    """A layer of 8 channels, 3 of them dead, and batches of two and three pictures that each show a part of the truth.

    One of the dead is 0 everywhere, one is 0 at one place and negative elsewhere, one is negative everywhere.
    The layer turns every other channel round, so that what it returns cannot be seen in what it gets.
    """
    batches = [-rng.quarters(size, 8, 4, 5).abs() for size in (2, 3)]
    order = _shuffled(rng, 8)
    for channel, (batch, picture, number) in zip(
        order,
        ((0, 1, 0.0), (1, 2, 0.0), (0, 0, 2.0**-30), (0, 1, 0.5), (1, 0, 0.75), (1, 2, 0.25), (1, 1, 2.0)),
        strict=False,
    ):
        batches[batch][picture, channel, rng.integer(0, 3), rng.integer(0, 4)] = number
    batches[0][1, order[5], 0, 1] = 0.5  # so this one fires in both batches, and in neither in all pictures
    for batch in batches:
        batch[:, order[0]] = 0.0
        batch[:, order[6], 0, 0] = 2.0  # this one fires in every picture, and at most places
        batch[:, order[6], 1:] = 2.0
    batches[1][0, order[4], 1:] = 24.0  # the mean of this one is positive, though it sleeps in the other pictures
    # A look at the first place alone finds these two, and so is told from a look at each picture and at each batch.
    batches[0][1, order[3], 0, 0] = batches[1][2, order[5], 0, 0] = 0.25
    signs = torch.tensor([1.0, -1.0] * 4).reshape(8, 1, 1)
    layer = nn.Conv2d(8, 8, 1, groups=8, bias=False)
    with torch.no_grad():
        layer.weight.copy_(signs[..., None])
    behind = nn.Hardsigmoid(inplace=True) if inplace else nn.ReLU()  # makes what is 0 or a little below positive
    model = nn.Sequential(nn.Identity(), layer, behind, nn.Conv2d(8, 1, 1))
    return model, [batch * signs for batch in batches]


@dead_channels.cases
def _(rng):
    for inplace, shown in (
        (True, "two batches, and an in-place Hardsigmoid behind the layer"),
        (False, "two other batches"),
    ):
        model, batches = _some_dead(rng, inplace)
        runs = _note_runs(model)
        yield Case(
            {"model": model.train(inplace), "layer": model[1], "batches": batches},
            lambda _, runs=runs: {"how often the model ran": len(runs)},
            shown=shown,
        )


@dead_channels.accept
def _(model, layer, batches):
    highest = None

    def look(module, args, output):
        nonlocal highest
        now = output.detach().amax((0, 2, 3))
        highest = now if highest is None else torch.maximum(highest, now)

    handle = layer.register_forward_hook(look)
    try:
        for batch in batches:
            model(batch)
    finally:
        handle.remove()
    return [channel for channel, value in enumerate(highest.tolist()) if value <= 0]


@dead_channels.accept
def _(model, layer, batches):
    with record(model, layer) as seen:
        for batch in batches:
            model(batch)
    maps = torch.cat(seen[layer].outputs).transpose(0, 1).flatten(1)
    return torch.where(maps.amax(1) <= 0)[0].tolist()


dead_channels.equivalent(
    "The order of the batches makes no difference.",
    "backwards: - for batch in batches: + for batch in list(batches)[::-1]:",
)
dead_channels.equivalent(
    "Only numbers of channels are returned: a graph until then does no harm.",
    "mixed up: - with layer.register_forward_hook(look), torch.no_grad(): + with "
    "layer.register_forward_hook(look), torch.enable_grad():",
    "no detach: - now = output.detach().amax((0, 2, 3)) + now = output.amax((0, 2, 3))",
    "mixed up: - now = output.detach().amax((0, 2, 3)) + now = output.clone().amax((0, 2, 3))",
)
dead_channels.equivalent(
    "Without its axis 2, what was axis 3 is axis 2.",
    "other constant: - alive.append((output > 0).any(3).any(2).any(0)) + alive.append((output > "
    "0).any(2).any(2).any(0))",
)
dead_channels.equivalent(
    "The task speaks of calls that succeed.",
    "no try: - try: - for batch in batches: + for batch in batches: - model(batch) + model(batch) - finally: "
    "- handle.remove() + handle.remove()",
)
dead_channels.equivalent(
    "A tensor of one number compares as a number does.",
    "no tolist: - return [channel for channel, value in enumerate(highest.tolist()) if value <= 0] + return "
    "[channel for channel, value in enumerate(highest) if value <= 0]",
)
dead_channels.equivalent(
    "`torch.where` gives one tensor for each axis, and here there is one.",
    "other constant: - return torch.where(maps.amax(1) <= 0)[0].tolist() + return torch.where(maps.amax(1) <="
    " 0)[-1].tolist()",
)


@dead_channels.mistake(
    "Only the last batch counts. What a hook assigns overwrites what it saw before: combine the batches."
)
def _(model, layer, batches):
    alive = {}
    with layer.register_forward_hook(lambda m, a, out: alive.update(now=(out > 0).any(3).any(2).any(0))):
        for batch in batches:
            model(batch)
    return (~alive["now"]).nonzero().flatten().tolist()


@dead_channels.mistake("Only the first batch counts. A channel that sleeps there may fire in the next one.")
def _(model, layer, batches):
    alive = []
    with layer.register_forward_hook(lambda m, a, out: alive.append((out > 0).any(3).any(2).any(0))):
        model(batches[0])
    return (~alive[0]).nonzero().flatten().tolist()


@dead_channels.mistake(
    "A mean of 0 or less does not make a channel dead: one bright spot can hide among negative numbers. Look for any "
    "number above 0."
)
def _(model, layer, batches):
    means = []
    with layer.register_forward_hook(lambda m, a, out: means.append(out.detach().mean((0, 2, 3)))):
        for batch in batches:
            model(batch)
    return (torch.stack(means).mean(0) <= 0).nonzero().flatten().tolist()


@dead_channels.mistake(
    "You list channels that are silent in *some* picture. Dead means silent in all of them: one number above 0, in "
    "any picture, is enough to be alive."
)
def _(model, layer, batches):
    silent = []
    with layer.register_forward_hook(lambda m, a, out: silent.append(~(out > 0).any(3).any(2))):
        for batch in batches:
            model(batch)
    return torch.cat(silent).any(0).nonzero().flatten().tolist()


@dead_channels.mistake(
    "You list channels that are silent in *some* batch. Dead means silent in all of them: a channel that fires in one "
    "is alive."
)
def _(model, layer, batches):
    dead = set()
    with layer.register_forward_hook(
        lambda m, a, out: dead.update((out.amax((0, 2, 3)) <= 0).nonzero().flatten().tolist())
    ):
        for batch in batches:
            model(batch)
    return sorted(dead)


@dead_channels.mistake("These are the living ones. Turn the answer round.")
def _(model, layer, batches):
    alive = []
    with layer.register_forward_hook(lambda m, a, out: alive.append((out > 0).any(3).any(2).any(0))):
        for batch in batches:
            model(batch)
    return torch.stack(alive).any(0).nonzero().flatten().tolist()


@dead_channels.mistake("The hook stays on the layer. Use it in a `with` block, or call `handle.remove()`.")
def _(model, layer, batches):
    alive = []
    layer.register_forward_hook(lambda m, a, out: alive.append((out > 0).any(3).any(2).any(0)))
    for batch in batches:
        model(batch)
    return (~torch.stack(alive).any(0)).nonzero().flatten().tolist()


@dead_channels.mistake(
    "You leave out channels that stay below 0. They were never above 0 either: dead is a highest number of `<= 0`."
)
def _(model, layer, batches):
    highest = []
    with layer.register_forward_hook(lambda m, a, out: highest.append(out.detach().amax((0, 2, 3)))):
        for batch in batches:
            model(batch)
    return (torch.stack(highest).amax(0) == 0).nonzero().flatten().tolist()


@dead_channels.mistake(
    "You list only channels that are exactly 0 everywhere. Those that stay below 0 were never above 0 either."
)
def _(model, layer, batches):
    sizes = []
    with layer.register_forward_hook(lambda m, a, out: sizes.append(out.detach().abs().sum((0, 2, 3)))):
        for batch in batches:
            model(batch)
    return (sum(sizes) == 0).nonzero().flatten().tolist()


@dead_channels.mistake(
    "You list every channel that was at 0 or below somewhere. Dead means nowhere above 0: look for any number above 0."
)
def _(model, layer, batches):
    lowest = []
    with layer.register_forward_hook(lambda m, a, out: lowest.append(out.detach().amin((0, 2, 3)))):
        for batch in batches:
            model(batch)
    return (torch.stack(lowest).amin(0) <= 0).nonzero().flatten().tolist()


@dead_channels.mistake(
    "You count faint channels as dead. However little it is, what is above 0 is alive: no threshold."
)
def _(model, layer, batches):
    alive = []
    with layer.register_forward_hook(lambda m, a, out: alive.append((out > 1e-6).any(3).any(2).any(0))):
        for batch in batches:
            model(batch)
    return (~torch.stack(alive).any(0)).nonzero().flatten().tolist()


@dead_channels.mistake(
    "The in-place layer behind has written into what you kept. Look at the output in the hook, or keep a `clone()` "
    "made there."
)
def _(model, layer, batches):
    maps = []
    with layer.register_forward_hook(lambda m, a, out: maps.append(out.detach())):
        for batch in batches:
            model(batch)
    return (torch.cat(maps).amax((0, 2, 3)) <= 0).nonzero().flatten().tolist()


@exercise(
    lesson=5,
    points=2,
    hints=[
        "One place of a map covers several pixels of the mask. How much of it is thing? The mean of the mask there.",
        "`F.adaptive_avg_pool2d(mask[None].float(), maps.shape[1:])` is the covered share of each place, (1, h, w).",
        "`on = (maps * covered).sum((1, 2))`, then divide by `maps.sum((1, 2)).clamp(min=1e-12)`: 0 stays 0.",
    ],
)
def share_on_thing(maps, mask):
    """Return for each channel which share of its response lies on the thing: a
    float32 tensor (C,) with numbers from 0 to 1.

    `maps` is (C, h, w) in float32, with no negative numbers. `mask` is (H, W), bool,
    and H and W are multiples of h and w: a place of the map that the thing covers by
    a quarter counts by a quarter. A channel that is 0 everywhere has the share 0.
    """
    covered = F.adaptive_avg_pool2d(mask[None].float(), maps.shape[1:])
    return (maps * covered).sum((1, 2)) / maps.sum((1, 2)).clamp(min=1e-12)


@share_on_thing.cases
def _(rng):
    for height, width, tall, wide in ((2, 3, 3, 2), (2, 2, 4, 3)):
        maps = rng.quarters(4, height, width).abs()
        silent, faint, *_ = _shuffled(rng, 4)
        maps[[silent, faint]] = 0
        maps[faint, 0, 0] = maps[faint, 1, 1] = 2**-7  # so faint that 1e-6 more in the denominator shows; 1e-8 does not
        size = height * tall, width * wide
        mask = rng.whole(*size, low=0, high=1) > 0
        mask[0, 0], mask[0, 1] = True, False
        mask[-tall:, -wide:] = True  # one place is covered whole
        yield Case(
            {"maps": maps, "mask": mask},
            shown=f"maps of shape {tuple(maps.shape)}, one channel 0 and one faint, and a mask of {size}",
        )


@share_on_thing.accept
def _(maps, mask):
    tall, wide = mask.shape[0] // maps.shape[1], mask.shape[1] // maps.shape[2]
    large = maps.repeat_interleave(tall, 1).repeat_interleave(wide, 2)
    total = large.sum((1, 2))
    return torch.where(total > 0, large[:, mask].sum(1) / total, 0)


@share_on_thing.accept
def _(maps, mask):
    height, width = maps.shape[1:]
    covered = mask.float().reshape(height, mask.shape[0] // height, width, mask.shape[1] // width).mean((1, 3))
    shares = [float((channel * covered).sum() / channel.sum()) if channel.any() else 0.0 for channel in maps]
    return torch.tensor(shares)


share_on_thing.equivalent(
    "`float()` makes float32 of the mask, whatever comes.", "spoil an argument: + mask = mask.double()"
)
share_on_thing.equivalent(
    "`torch.tensor` takes tensors of one number as numbers.",
    "no call: - shares = [float((channel * covered).sum() / channel.sum()) if channel.any() else 0.0 for "
    "channel in maps] + shares = [(channel * covered).sum() / channel.sum() if channel.any() else 0.0 for "
    "channel in maps]",
)
share_on_thing.equivalent(
    "`torch.tensor` of floats is float32, whatever they were computed from.",
    "spoil an argument: + maps = maps.double()",
)


@share_on_thing.mistake("A channel that is 0 everywhere gives 0 / 0, which is nan. Its share is 0.")
def _(maps, mask):
    covered = F.adaptive_avg_pool2d(mask[None].float(), maps.shape[1:])
    return (maps * covered).sum((1, 2)) / maps.sum((1, 2))


@share_on_thing.mistake(
    "You look at one pixel of the mask for each place of the map. A place that is covered in part counts in part: take "
    "the mean of its pixels."
)
def _(maps, mask):
    covered = F.interpolate(mask[None, None].float(), size=maps.shape[1:], mode="nearest")[0]
    return (maps * covered).sum((1, 2)) / maps.sum((1, 2)).clamp(min=1e-12)


@share_on_thing.mistake(
    "You count a place in full as soon as one of its pixels belongs to the thing. Take the mean of its pixels."
)
def _(maps, mask):
    covered = F.adaptive_max_pool2d(mask[None].float(), maps.shape[1:])
    return (maps * covered).sum((1, 2)) / maps.sum((1, 2)).clamp(min=1e-12)


@share_on_thing.mistake(
    "That is the mean response on the thing. The share is what lies on the thing, divided by all of the channel."
)
def _(maps, mask):
    covered = F.adaptive_avg_pool2d(mask[None].float(), maps.shape[1:])
    return (maps * covered).sum((1, 2)) / covered.sum()


@share_on_thing.mistake(
    "Bilinear resizing spreads each number over its neighbours, and off the thing. Bring the mask to the size of the "
    "maps instead, by means."
)
def _(maps, mask):
    large = F.interpolate(maps[None], size=mask.shape, mode="bilinear", align_corners=False)[0]
    return large[:, mask].sum(1) / large.sum((1, 2)).clamp(min=1e-12)


@share_on_thing.mistake(
    "You count a place in full or not at all, by whether the thing covers more than half of it. One that is covered by "
    "a quarter counts by a quarter."
)
def _(maps, mask):
    covered = F.adaptive_avg_pool2d(mask[None].float(), maps.shape[1:]) > 0.5
    return (maps * covered).sum((1, 2)) / maps.sum((1, 2)).clamp(min=1e-12)


@share_on_thing.mistake(
    "You count only places that the thing covers whole. One that is covered by a quarter counts by a quarter."
)
def _(maps, mask):
    covered = F.adaptive_avg_pool2d(mask[None].float(), maps.shape[1:]) == 1
    return (maps * covered).sum((1, 2)) / maps.sum((1, 2)).clamp(min=1e-12)


@share_on_thing.mistake("You count the places that respond. Weigh each by how much it responds: multiply by the maps.")
def _(maps, mask):
    covered = F.adaptive_avg_pool2d(mask[None].float(), maps.shape[1:])
    lit = (maps > 0).float()
    return (lit * covered).sum((1, 2)) / lit.sum((1, 2)).clamp(min=1)


@share_on_thing.mistake("That is the share that lies *beside* the thing. Turn it round.")
def _(maps, mask):
    covered = F.adaptive_avg_pool2d((~mask)[None].float(), maps.shape[1:])
    return (maps * covered).sum((1, 2)) / maps.sum((1, 2)).clamp(min=1e-12)


@share_on_thing.mistake(
    "The share of a faint channel comes out too small, because you add a number to what you divide by. Divide by "
    "another number only where the channel is 0."
)
def _(maps, mask):
    covered = F.adaptive_avg_pool2d(mask[None].float(), maps.shape[1:])
    return (maps * covered).sum((1, 2)) / (maps.sum((1, 2)) + 1e-6)


@exercise(
    lesson=5,
    points=2,
    hints=[
        "Keep one sum a channel and one count, and let the maps go.",
        "Batches differ in size, so a mean of means is wrong: add up sums, and divide once at the end.",
        "In the hook, under `torch.no_grad()`: `total = total + output.sum((0, 2, 3))`, and the count grows by "
        "`output.numel() // output.shape[1]`.",
    ],
)
def channel_means(model, layer, batches):
    """Run `model` on each of `batches` and return the mean of each channel of
    `layer` over all pictures and places: a float32 tensor (C,) without a graph.

    `layer` is a module of `model` and returns (N, C, H, W) in float32; the batches
    differ in their number of pictures, N. The maps of a batch are let go, at the
    latest when those of the next are there. No hook is left behind.
    """
    total, count = 0, 0

    def add(module, args, output):
        nonlocal total, count
        total = total + output.sum((0, 2, 3))
        count += output.numel() // output.shape[1]

    with layer.register_forward_hook(add), torch.no_grad():
        for batch in batches:
            model(batch)
    return total / count


def _note_crowds(layer: nn.Module) -> list[bool]:
    """A list that says for each run of `layer` whether something of an earlier run than the one before is alive.

    The runs have to be of fewer and fewer pictures: then a tensor that is larger than the maps of the run before, and
    does not belong to this one, belongs to an earlier one. (A variable may well hold the last maps.)
    """
    crowded: list[bool] = []
    sizes: list[int] = []
    storages: list[StorageWeakRef] = []  # of what went in and came out, two a run; a graph may hold them

    def is_crowded(output):
        tensors = (each for each in gc.get_objects() if issubclass(type(each), torch.Tensor))
        large = (each.untyped_storage().data_ptr() for each in tensors if each.numel() > sizes[-1])
        others = set(large) - {output.untyped_storage().data_ptr()}
        return bool(others) or not all(storage.expired() for storage in storages[:-2])

    def watch(module, args, output):
        found = len(sizes) > 1 and is_crowded(output)
        if found:
            gc.collect()  # reference cycles are no fault
            found = is_crowded(output)
        crowded.append(found)
        sizes.append(output.numel())
        storages.extend(StorageWeakRef(tensor.untyped_storage()) for tensor in (args[0], output))

    layer.register_forward_hook(watch)
    return crowded


@channel_means.cases
def _(rng):
    for sizes in ((4, 2, 1), (5, 3, 2, 1)):
        model = nn.Sequential(
            nn.Conv2d(1, 1, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(1, 5, 1),
            nn.LeakyReLU(0.25, inplace=True),  # not what an answer does that counts negative numbers as 0
            nn.Conv2d(5, 2, 1),
        )
        negative = rng.integer(0, 4)
        with torch.no_grad():
            for parameter in whole_weights(model, rng).parameters():
                parameter.abs_()  # so that no channel has a mean near 0, which rounding could spoil
            model[2].weight[negative] *= -1
            model[2].bias[negative] *= -1
        model.train(len(sizes) == 3)
        runs, crowded = _note_runs(model), _note_crowds(model[2])

        def after(means, runs=runs, crowded=crowded):
            return {
                "how often the model ran": len(runs),
                "whether the maps of the batch before last were still in memory": any(crowded),
                "whether the result holds a graph": getattr(means, "requires_grad", False),
            }

        batches = [rng.whole(size, 1, 2, 4) / 4 for size in sizes]
        shown = f"batches of {', '.join(map(str, sizes))} pictures"
        yield Case({"model": model, "layer": model[2], "batches": batches}, after, shown=shown)


@channel_means.accept
def _(model, layer, batches):
    sums = []
    handle = layer.register_forward_hook(lambda m, a, out: sums.append(out.detach().transpose(0, 1).flatten(1).sum(1)))
    numbers = 0
    try:
        for batch in batches:
            output = model(batch)
            numbers += len(output) * output[0, 0].numel()
    finally:
        handle.remove()
    return sum(sums) / numbers


@channel_means.accept
def _(model, layer, batches):
    weights, means = [], []
    for batch in batches:
        with torch.no_grad(), record(model, layer) as seen:
            model(batch)
        means.append(seen[layer].output.mean((0, 2, 3)))
        weights.append(len(batch))
    weights = torch.tensor(weights) / sum(weights)
    return (torch.stack(means) * weights[:, None]).sum(0)


channel_means.equivalent(
    "A sum of the answer's own grows in place as well as by a new one.",
    "in place: - total = total + output.sum((0, 2, 3)) + total += output.sum((0, 2, 3))",
)
channel_means.equivalent(
    "The number of elements is a multiple of the number of channels.",
    "not in place: - count += output.numel() // output.shape[1] + count = count + output.numel() // output.shape[1]",
    "compute otherwise: - count += output.numel() // output.shape[1] + count += output.numel() / output.shape[1]",
)
channel_means.equivalent(
    "The order of the batches makes no difference.",
    "backwards: - for batch in batches: + for batch in list(batches)[::-1]:",
)
channel_means.equivalent(
    "The task speaks of calls that succeed.",
    "no try: - try: - for batch in batches: + for batch in batches: - output = model(batch) + output = "
    "model(batch) - numbers += len(output) * output[0, 0].numel() + numbers += len(output) * output[0, "
    "0].numel() - finally: - handle.remove() + handle.remove()",
)
channel_means.equivalent(
    "Every map of the output has the same number of places.",
    "not in place: - numbers += len(output) * output[0, 0].numel() + numbers = numbers + len(output) * "
    "output[0, 0].numel()",
    "other constant: - numbers += len(output) * output[0, 0].numel() + numbers += len(output) * output[-1, 0].numel()",
    "other constant: - numbers += len(output) * output[0, 0].numel() + numbers += len(output) * output[0, 1].numel()",
    "other constant: - numbers += len(output) * output[0, 0].numel() + numbers += len(output) * output[0, -1].numel()",
)
channel_means.equivalent(
    "What `record` keeps is detached in any case.",
    "mixed up: - with torch.no_grad(), record(model, layer) as seen: + with torch.enable_grad(), "
    "record(model, layer) as seen:",
)


@channel_means.mistake(
    "What you keep holds the maps of all batches until the end, by itself or by its graph. Add up detached sums in the "
    "hook, and let the maps go: that is the difference between one batch in memory and the whole data set."
)
def _(model, layer, batches):
    maps = []
    with layer.register_forward_hook(lambda m, a, out: maps.append(out.detach().clone())):
        for batch in batches:
            model(batch)
    return torch.cat(maps).mean((0, 2, 3))


@channel_means.mistake(
    "You add up after the call. By then the in-place layer behind has overwritten what you kept: add up in the hook."
)
def _(model, layer, batches):
    kept, total, count = [], 0, 0
    with layer.register_forward_hook(lambda m, a, out: kept.append(out.detach())):
        for batch in batches:
            model(batch)
            maps = kept.pop()
            total = total + maps.sum((0, 2, 3))
            count += maps.numel() // maps.shape[1]
    return total / count


@channel_means.mistake(
    "A mean of the batches' means gives a picture in a small batch more weight. Add up sums, and divide once."
)
def _(model, layer, batches):
    means = []
    with layer.register_forward_hook(lambda m, a, out: means.append(out.detach().mean((0, 2, 3)))), torch.no_grad():
        for batch in batches:
            model(batch)
    return torch.stack(means).mean(0)


@channel_means.mistake(
    "Your result belongs to the graph, and through it every map of every batch stays in memory: `detach()`, or work "
    "under `torch.no_grad()`."
)
def _(model, layer, batches):
    sums, numbers = [], 0

    def add(module, args, output):
        nonlocal numbers
        sums.append(output.sum((0, 2, 3)))
        numbers += output.numel() // output.shape[1]

    with layer.register_forward_hook(add):
        for batch in batches:
            model(batch)
    return sum(sums) / numbers


@channel_means.mistake(
    "Only the last batch counts. What a hook assigns overwrites what it noted before: add the batches up."
)
def _(model, layer, batches):
    means = {}
    with layer.register_forward_hook(lambda m, a, out: means.update(last=out.mean((0, 2, 3)))), torch.no_grad():
        for batch in batches:
            model(batch)
    return means["last"]


@channel_means.mistake("The hook stays on the layer. Use it in a `with` block, or call `handle.remove()`.")
def _(model, layer, batches):
    total, count = 0, 0

    def add(module, args, output):
        nonlocal total, count
        total = total + output.sum((0, 2, 3))
        count += output.numel() // output.shape[1]

    layer.register_forward_hook(add)
    with torch.no_grad():
        for batch in batches:
            model(batch)
    return total / count


@channel_means.mistake("You count negative numbers as 0. The mean is of all numbers, as they are.")
def _(model, layer, batches):
    total, count = 0, 0

    def add(module, args, output):
        nonlocal total, count
        total = total + output.relu().sum((0, 2, 3))
        count += output.numel() // output.shape[1]

    with layer.register_forward_hook(add), torch.no_grad():
        for batch in batches:
            model(batch)
    return total / count


class _Enough(Exception):
    """Raised by a hook to end a call early."""


@exercise(
    lesson=5,
    points=3,
    hints=[
        "What is behind the layer must not run. What stops a function in the middle, from inside?",
        "A forward hook may raise an exception of your own, and you catch it around `model(x)`. Or let "
        "`create_feature_extractor(model, [name])` build the shorter network, and put back the modes that it changes.",
        "In the hook: `found.append(output.detach()); raise Enough`. Around the call: `try: model(x)`, `except Enough: "
        "pass`, `finally: handle.remove()`.",
    ],
)
def run_to(model, name, x):
    """Return what the layer with the dotted name `name` gives for the input `x`,
    detached, and compute nothing behind it.

    The model may run its layers in any order, not only in that in which they were
    made. It stays as it was: no hook left behind, each module in the mode it was in.
    What the model itself raises goes on to the caller.
    """
    found = []

    class Enough(Exception):
        """Ends the call early."""

    def stop(module, args, output):
        found.append(output.detach())
        raise Enough

    handle = model.get_submodule(name).register_forward_hook(stop)
    try:
        model(x)
    except Enough:
        pass
    finally:
        handle.remove()
    return found[0]


class _OtherOrder(nn.Module):
    """Runs its layers in another order than they were made in."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Conv2d(2, 1, 1)
        self.middle = nn.Conv2d(2, 2, 1)
        self.first = nn.Conv2d(1, 2, 1)

    def forward(self, x):
        return self.last(torch.relu(self.middle(torch.relu(self.first(x)))))


class _OwnError(ValueError, KeyError, TypeError, AssertionError):
    """An error of the model's own, of several common kinds at once."""


def _refuse(module: nn.Module, args: tuple) -> None:
    raise _OwnError("not this input")


@run_to.cases
def _(rng):
    for model, order, choices, where in (
        (_small_net(rng), ["0", "1", "2", "3", "4"], ["0", "2"], "a Sequential"),
        (
            whole_weights(_OtherOrder(), rng),
            ["first", "middle", "last"],
            ["first", "middle"],
            "a model that runs its layers in another order than it made them",
        ),
        (
            _nested(rng),
            ["0", "1.0", "1.1.conv1", "1.1.relu", "1.1.conv2"],
            ["1.0", "1.1.conv1"],
            "a model of layers inside layers",
        ),
        (
            whole_weights(nn.Sequential(*_nested(rng), nn.Conv2d(2, 1, 1)), rng),
            ["0", "1", "2"],
            ["1"],
            "a model in which that layer is made of layers",
        ),
    ):
        name = rng.choice(choices)
        runs = _note_runs(*map(model.get_submodule, order[order.index(name) + 1 :]))
        settings = _settings(model)

        def after(output, model=model, settings=settings, runs=runs):
            return {
                "how many layers ran behind it": len(runs),
                "whether the result holds a graph": getattr(output, "requires_grad", False),
                LEFT_CHANGED: _settings(model) != settings,
            }

        x = rng.quarters(2, 1, 2, 2)
        yield Case({"model": model, "name": name, "x": x}, after, shown=f"name = {name!r} in {where}")
    model, x = _small_net(rng), rng.quarters(2, 3, 2, 2)
    shown = "an x with too many channels: a layer before raises an error"
    yield Case({"model": model, "name": "2", "x": x}, shown=shown)
    model, x = _small_net(rng), rng.quarters(2, 1, 2, 2)
    model[1].register_forward_pre_hook(_refuse)
    shown = "a layer before raises an error that is a ValueError, a KeyError, a TypeError and an AssertionError"
    yield Case({"model": model, "name": "2", "x": x}, shown=shown)


@run_to.accept
def _(model, name, x):
    from torchvision.models.feature_extraction import create_feature_extractor

    modes = {module: module.training for module in model.modules()}
    extractor = create_feature_extractor(model, {name: "output"})
    for module, mode in modes.items():
        module.training = mode
    return extractor(x)["output"].detach()


@run_to.accept
def _(model, name, x):
    layer = model.get_submodule(name)

    def stop(module, args, output):
        raise StopIteration(output)

    try:
        with layer.register_forward_hook(stop), torch.no_grad():
            model(x)
    except StopIteration as end:
        return end.value.clone()


run_to.equivalent("A docstring does nothing.", 'a statement less: - """Ends the call early.""" + pass')
run_to.equivalent(
    "The hook ends the call at its first run, so that it runs once.",
    "only once: + if getattr(stop, 'has_run', False): + return None + stop.has_run = True",
    "other constant: - return found[0] + return found[-1]",
)
run_to.equivalent(
    "The model's own mode is the one that `create_feature_extractor` puts back.",
    "not the first: - for module, mode in modes.items(): + for module, mode in list(modes.items())[1:]:",
    "not the first: - modes = {module: module.training for module in model.modules()} + modes = {module: "
    "module.training for module in list(model.modules())[1:]}",
)
run_to.equivalent(
    "The order of the modules makes no difference.",
    "backwards: - for module, mode in modes.items(): + for module, mode in list(modes.items())[::-1]:",
    "backwards: - modes = {module: module.training for module in model.modules()} + modes = {module: "
    "module.training for module in list(model.modules())[::-1]}",
)
run_to.equivalent(
    "Nothing behind the layer runs, and under `no_grad` there is no graph.",
    "no clone: - return end.value.clone() + return end.value",
    "mixed up: - return end.value.clone() + return end.value.detach()",
)


@run_to.mistake(
    "The whole model runs, also what is behind the layer. Let the hook raise an exception of your own and catch it, or "
    "use `create_feature_extractor`."
)
def _(model, name, x):
    found = []
    with model.get_submodule(name).register_forward_hook(lambda m, a, out: found.append(out.detach().clone())):
        model(x)
    return found[0]


@run_to.mistake(
    "The exception jumps over your `handle.remove()`, and the hook stays: remove it in a `finally`, or use a `with` "
    "block."
)
def _(model, name, x):
    found = []

    def stop(module, args, output):
        found.append(output.detach())
        raise _Enough

    handle = model.get_submodule(name).register_forward_hook(stop)
    try:
        model(x)
        handle.remove()
    except _Enough:
        pass
    return found[0]


@run_to.mistake(
    "You run the children one after the other. That is what a Sequential does; other models have a forward of their "
    "own."
)
def _(model, name, x):
    with torch.no_grad():
        for child, layer in model.named_children():
            x = layer(x)
            if child == name:
                return x.clone()


@run_to.mistake("You left the model in eval mode. Put back the mode in which you found it, or do not change it.")
def _(model, name, x):
    found = []

    def stop(module, args, output):
        found.append(output.detach())
        raise _Enough

    model.eval()
    with model.get_submodule(name).register_forward_hook(stop):
        try:
            model(x)
        except _Enough:
            return found[0]


@run_to.mistake(
    "You put all modules into one mode, as `model.train(was)` and `create_feature_extractor` do: a part that was in "
    "another mode has lost it. Note `training` of each module before, and put it back."
)
def _(model, name, x):
    found = []

    def stop(module, args, output):
        found.append(output.detach())
        raise _Enough

    was = model.training
    model.eval()
    with contextlib.suppress(_Enough), model.get_submodule(name).register_forward_hook(stop):
        model(x)
    model.train(was)
    return found[0]


@run_to.mistake("Your result still belongs to the graph: `detach()` it.")
def _(model, name, x):
    found = []

    def stop(module, args, output):
        found.append(output)
        raise _Enough

    with model.get_submodule(name).register_forward_hook(stop):
        try:
            model(x)
        except _Enough:
            return found[0]


@run_to.mistake(
    "The whole model runs, and an in-place layer behind has written into what you kept. Let the hook raise an "
    "exception of your own and catch it: then nothing behind the layer runs."
)
def _(model, name, x):
    found = []
    with model.get_submodule(name).register_forward_hook(lambda m, a, out: found.append(out.detach())):
        model(x)
    return found[0]


@run_to.mistake("That is what goes *into* the layer. Return what it gives: a forward hook gets it as `output`.")
def _(model, name, x):
    found = []

    def stop(module, args):
        found.append(args[0].detach())
        raise _Enough

    with contextlib.suppress(_Enough), model.get_submodule(name).register_forward_pre_hook(stop):
        model(x)
    return found[0]


@run_to.mistake(
    "You catch every exception, so an error of the model's own gets lost, too. Raise an exception of your own class, "
    "and catch that one alone."
)
def _(model, name, x):
    found = []

    def stop(module, args, output):
        found.append(output.detach())
        raise _Enough

    with contextlib.suppress(Exception), model.get_submodule(name).register_forward_hook(stop):
        model(x)
    return found[0] if found else None


@run_to.mistake(
    "What you catch is an error that the model may raise as well, and then it gets lost. Raise an exception of your "
    "own class, and catch that one alone."
)
def _(model, name, x):
    found = []

    def stop(module, args, output):
        found.append(output.detach())
        raise RuntimeError("far enough")

    with contextlib.suppress(RuntimeError), model.get_submodule(name).register_forward_hook(stop):
        model(x)
    return found[0]


@run_to.mistake(
    "What you catch is an error that a model may raise as well, such as a ValueError, and then it gets lost. Raise an "
    "exception of your own class, and catch that one alone."
)
def _(model, name, x):
    found = []

    def stop(module, args, output):
        found.append(output.detach())
        raise ValueError("far enough")

    with contextlib.suppress(ValueError), model.get_submodule(name).register_forward_hook(stop):
        model(x)
    return found[0]


@run_to.mistake(
    "If the model raises an error of its own, your hook stays: remove it in a `finally`, or use a `with` block."
)
def _(model, name, x):
    found = []

    def stop(module, args, output):
        found.append(output.detach())
        raise _Enough

    handle = model.get_submodule(name).register_forward_hook(stop)
    with contextlib.suppress(_Enough):
        model(x)
    handle.remove()
    return found[0]
