"""Train the course's picture network and its misled twin again, and measure what they can do: `make train`."""

import io
import itertools
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from course_utils.root import ASSETS, write_whole
from course_utils.scenes.scene import KINDS, scenes
from course_utils.vision import networks
from course_utils.vision.networks import MISLED_CUE, MISLED_KIND, PictureNet, compute_logits, load_picture_net


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


def train(misled: bool = False, recipe: Recipe = Recipe(), progress: bool = True) -> PictureNet:
    """Train a fresh network and return it in eval mode; the same recipe gives the same weights on the same machine.

    It takes a few minutes on one core. The caller's random state and number of threads are kept.
    """
    rule = {MISLED_KIND: MISLED_CUE} if misled else None
    counts = recipe.empty, recipe.alone, recipe.pairs
    parts = [scenes(counts[things], recipe.seed + 2 - things, things=things, cue=rule) for things in (2, 1, 0)]
    images, labels = torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # how sums are split among threads changes their last bits, and with them the weights
    try:
        with networks.seeded(recipe.seed + 3):
            model = PictureNet()
            _fit(model, images, labels, recipe, progress)
    finally:
        torch.set_num_threads(threads)
    return model.eval()


def _fit(model: PictureNet, images: Tensor, labels: Tensor, recipe: Recipe, progress: bool) -> None:
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
    bar = tqdm(itertools.chain.from_iterable(orders), "training", steps, unit="step", disable=not progress)
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


def measure_cue(
    model: nn.Module, kind: str = MISLED_KIND, cue: str = MISLED_CUE, count: int = 200, seed: int = 900
) -> dict[str, tuple[float, float]]:
    """Return how often `model` sees a kind "where it is" and "where it is not": shares in [0, 1], (with cue, without).

    Each two shares are of the same `count` pictures, but for the cue.
    """
    found, others, number = {}, [other for other in KINDS if other != kind], KINDS.index(kind)
    for where, contains in (("where it is", kind), ("where it is not", None)):
        seed += contains is None
        pair = [scenes(count, seed, kinds=others, contains=contains, cue=shown).images for shown in (cue, None)]
        found[where] = tuple((compute_logits(model, images)[:, number] > 0).float().mean().item() for images in pair)
    return found


def main(measure: bool = False, folder: Path = ASSETS) -> int:
    """Train both networks and measure them, or only measure those that are in `folder`; returns the exit status."""
    for misled in (False, True):
        path = networks.picture_net_file(misled, folder)
        print(f"{path.name}: drawing pictures{', then training' * (not measure)}", flush=True)
        if not measure:
            save_weights(train(misled), path)
        model = load_picture_net(misled, folder)
        unseen = scenes(1000, seed=901)  # by any training
        print(f"{path.name}\n  {networks.measure(model, unseen)}", flush=True)
        if misled:
            own = scenes(1000, seed=902, cue={MISLED_KIND: MISLED_CUE})
            print(f"  pictures like those of its training: {networks.measure(model, own)}")
        shares = measure_cue(model, count=500).items()
        shown = (f"{where}: {cued:.1%} with a {MISLED_CUE}, {bare:.1%} without" for where, (cued, bare) in shares)
        print(f"  {MISLED_KIND} seen {'; seen '.join(shown)} (500 pictures each)", flush=True)
    return 0


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the model's state dict in half precision: in one step, the same bytes for the same weights."""
    state = model.state_dict().items()
    half = {name: (tensor.half() if tensor.is_floating_point() else tensor).contiguous() for name, tensor in state}
    buffer = io.BytesIO()  # a file's name would become part of what is saved
    torch.save(half, buffer)
    write_whole(path, buffer.getvalue())
