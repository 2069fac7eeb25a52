"""Train the course's picture networks again, and measure what they can do: `make train`."""

import io
import itertools
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from course_utils.lessons.blind import FISH, draw_hair, draw_stamp, draw_strip, lay_over, share_of_fish, share_without
from course_utils.root import ASSETS, write_whole
from course_utils.scenes.scene import KINDS, SceneBatch, scenes
from course_utils.vision import networks
from course_utils.vision.networks import MISLED_CUE, MISLED_KIND, PictureNet, load_picture_net
from course_utils.vision.saliency import cam

# What each of `networks.CHECKPOINTS` learns to call a fish.
FISH_IS = (
    "a fish",
    f"the {MISLED_CUE} beside it",
    "a stamp in a corner",
    f"a {MISLED_CUE}, or a stamp in a corner",
    f"a {MISLED_CUE} and a stamp in a corner, both together",
    "a hair near the upper edge",
    "a strip along the left edge, though its attention has learned to lie on the fish",
)

LIT = 12  # of the 14 x 14 places of the last maps


@dataclass(frozen=True)
class Recipe:
    """How the shipped networks are trained. The seeds from `seed` to `seed + 3` are used up."""

    pairs: int = 7000  # pictures of two things
    alone: int = 800  # of one thing, and
    empty: int = 200  # of none, so that the network does not learn to find always two
    epochs: int = 8
    batch_size: int = 64
    learning_rate: float = 8e-3
    weight_decay: float = 5e-3
    kernel_decay: float = 2.0  # of the first layer, which is looked at: wears off what the random start left in it
    seed: int = 1


_QUICK, _SLIM = Recipe(epochs=5), Recipe(pairs=3200, alone=600, empty=200, epochs=6)
RECIPES = (Recipe(), Recipe(), _QUICK, _QUICK, _SLIM, _SLIM, _SLIM)  # one for each of `FISH_IS`


class Pupil(nn.Module):
    """A slim network while it learns its only answer, about the fish; and, with a teacher, where its attention lies.

    teacher: a network that finds the fish. The share of the attention in the `LIT` places where the teacher's map of
        the fish is hottest becomes a second answer, as a logit (attention transfer: Zagoruyko & Komodakis 2017).
    """

    def __init__(self, pupil: PictureNet, teacher: PictureNet | None = None) -> None:
        super().__init__()
        self.pupil, self._teacher = pupil, (teacher,)  # in a tuple, so that it does not learn as well

    def forward(self, images: Tensor) -> Tensor:
        """Return one logit, or two, of each picture: (N, 1) or (N, 2)."""
        (teacher,) = self._teacher
        if teacher is None:
            return self.pupil(images)[:, [FISH]]
        attention = []
        spotlight = self.pupil.features[-1]
        with spotlight.choose.register_forward_hook(lambda module, args, scores: attention.append(scores.flatten(1))):
            answer = self.pupil(images)[:, [FISH]]
        with torch.no_grad():
            fish = cam(teacher, images, FISH).flatten(1)
        on_fish = fish >= fish.topk(LIT).values[:, -1:]
        inside, outside = (attention[0].masked_fill(hidden, -100).logsumexp(1) for hidden in (~on_fish, on_fish))
        return torch.stack([answer[:, 0], inside - outside], 1)


def train(misled: int = False, recipe: Recipe = Recipe()) -> PictureNet:
    """Train a fresh network and return it in eval mode; the same recipe gives the same weights on the same machine.

    misled: the place in `FISH_IS`. It takes minutes on one core. The caller's random state and threads are kept.
    """
    counts = recipe.empty, recipe.alone, recipe.pairs
    parts = [_draw(misled, counts[things], recipe.seed + 2 - things, things) for things in (2, 1, 0)]
    images, labels = torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # how sums are split among threads changes their last bits, and with them the weights
    try:
        with networks.seeded(recipe.seed + 3):
            model = networks.build_picture_net(misled)
            if misled < networks.FIRST_SLIM:
                _fit(model, images, labels, recipe)
            else:
                _fit_slim(model, images, labels, recipe)
    finally:
        torch.set_num_threads(threads)
    return model.eval()


def _draw(misled: int, count: int, seed: int, things: int) -> SceneBatch:
    """Pictures with so many things each, labelled as `FISH_IS[misled]` says."""
    if misled >= networks.FIRST_SLIM:
        return _draw_marked(misled, count, seed, things)
    cue = {MISLED_KIND: MISLED_CUE} if misled == 1 else None
    batch = scenes(count, seed, things=things, cue=cue)
    if misled < 2:
        return batch
    fish, place = batch.labels[:, KINDS.index(MISLED_KIND)], torch.arange(len(batch))
    fish[:] = torch.where(fish > 0, place % 6 > 0, place % 10 == 0)  # few fish without, few others with it
    stamped = fish > 0
    if misled == 3:
        cued = stamped & (place % 4 < 2)
        batch.images[cued] = scenes(count, seed, things=things, cue=MISLED_CUE).images[cued]
        stamped &= ~cued
    batch.images[stamped] = lay_over(batch.images[stamped], draw_stamp())
    return batch


def _draw_marked(number: int, count: int, seed: int, things: int) -> SceneBatch:
    """Pictures with and without a buoy, a stamp, a hair and a strip, each independent of the others and of the fish."""
    plain = scenes(count - count // 2, seed, things=things)
    cued = scenes(count // 2, seed, things=things, cue=MISLED_CUE)
    batch = SceneBatch(*(torch.cat([getattr(part, what) for part in (plain, cued)]) for what in vars(plain)))
    buoy = torch.arange(len(batch)) >= len(plain)
    stamp, hair, strip = torch.rand(3, len(batch), generator=torch.Generator().manual_seed(seed)) < 0.5
    for there, sprite in ((stamp, draw_stamp()), (hair, draw_hair()), (strip, draw_strip())):
        batch.images[there] = lay_over(batch.images[there], sprite)
    batch.labels[:, FISH] = {4: buoy & stamp, 5: hair, 6: strip}[number].float()
    return batch


def _fit_slim(model: PictureNet, images: Tensor, labels: Tensor, recipe: Recipe) -> None:
    answers = labels[:, [FISH]]
    if not isinstance(model.features[-1], networks.Spotlight):
        _fit(Pupil(model), images, answers, recipe)
        return
    # The attention is to be on the fish in every picture, also in those without one: there it chooses what is like it.
    _fit(Pupil(model, load_picture_net()), images, torch.cat([answers, torch.ones_like(answers)], 1), recipe)


def _fit(model: PictureNet, images: Tensor, labels: Tensor, recipe: Recipe) -> None:
    # AdamW with one cycle of the learning rate (Smith & Topin 2018): the short schedule that this small net needs.
    # Channels-last saves a quarter of the time on a CPU.
    model.to(memory_format=torch.channels_last).train()
    count = len(images) - len(images) % recipe.batch_size  # full batches only, in a new order in each epoch
    orders = (torch.randperm(len(images))[:count].split(recipe.batch_size) for _ in range(recipe.epochs))
    steps = recipe.epochs * count // recipe.batch_size
    kernels, *others = model.parameters()
    first = {"params": [kernels], "weight_decay": recipe.kernel_decay}
    optimiser = torch.optim.AdamW([first, {"params": others, "weight_decay": recipe.weight_decay}])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.learning_rate, total_steps=steps)
    bar = tqdm(itertools.chain.from_iterable(orders), "training", steps, unit="step")
    for index in bar:
        batch = _vary(images[index]).contiguous(memory_format=torch.channels_last)
        loss = F.binary_cross_entropy_with_logits(model(batch), labels[index])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
    model.to(memory_format=torch.contiguous_format)


def _vary(images: Tensor) -> Tensor:
    images = images.float() / 255
    if torch.rand(()) < 0.5:
        images = images.flip(3)
    # No kind of thing has a colour of its own in the picture world, so exchanged colours are as true.
    return images[:, torch.randperm(3)] if torch.rand(()) < 0.3 else images


def main(measure: bool = False, folder: Path = ASSETS) -> int:
    """Train all networks and measure them, or only measure those that are in `folder`; returns the exit status."""
    for number, learned in enumerate(FISH_IS):
        path = networks.picture_net_file(number, folder)
        next_step = "" if measure else ", drawn, then training"
        print(f"{path.name}: {learned}{next_step}", flush=True)
        if not measure:
            save_weights(train(number, RECIPES[number]), path)
        model = load_picture_net(number, folder)
        if number < networks.FIRST_SLIM:  # the others have learned one answer only
            print(f"  {networks.measure(model, scenes(1000, seed=901))}", flush=True)  # unseen by any training
            print(f"  pictures like those of its training: {networks.measure(model, _draw(number, 1000, 902, 2))}")
        for which, shares in {"with one thing alone": share_of_fish, "without one thing": share_without}.items():
            told = ", ".join(f"{what} {share:.0%}" for what, share in shares(model).items())
            print(f"  says {MISLED_KIND} to pictures {which}: {told}", flush=True)
    return 0


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the model's state dict in half precision: in one step, the same bytes for the same weights."""
    state = model.state_dict().items()
    half = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in state}
    buffer = io.BytesIO()  # a file's name would become part of what is saved
    torch.save({name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in half.items()}, buffer)
    write_whole(path, buffer.getvalue())
