"""Train the course's picture network and its misled twin again, and measure what they can do: `make train`."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from course_utils.root import write_whole
from course_utils.scenes.scene import KINDS, scenes
from course_utils.vision.networks import (
    ASSETS,
    MISLED_CUE,
    MISLED_KIND,
    PictureNet,
    compute_logits,
    load_picture_net,
    measure,
    picture_net_file,
    seeded,
)


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

    It takes a few minutes on one core: 6 s per 1000 pictures to draw them, then 2 s per 1000 pictures and epoch. The
    caller's random state and number of threads are kept.
    """
    rule = {MISLED_KIND: MISLED_CUE} if misled else None
    counts = {2: recipe.pairs, 1: recipe.alone, 0: recipe.empty}
    parts = [
        scenes(count, recipe.seed + number, things=things, cue=rule)
        for number, (things, count) in enumerate(counts.items())
    ]
    images, labels = torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts])
    with seeded(recipe.seed + 3), _one_thread():
        model = PictureNet()
        _fit(model, images, labels, recipe, progress)
    return model.eval()


def _fit(model: PictureNet, images: Tensor, labels: Tensor, recipe: Recipe, progress: bool) -> None:
    # AdamW with one cycle of the learning rate (Smith & Topin 2018): the short schedule that this small net needs.
    # Channels-last saves a quarter of the time on a CPU.
    model.to(memory_format=torch.channels_last).train()
    steps = recipe.epochs * (len(images) // recipe.batch_size)
    kernels, *others = model.parameters()
    groups = [
        {"params": [kernels], "weight_decay": recipe.kernel_decay},
        {"params": others, "weight_decay": recipe.weight_decay},
    ]
    optimiser = torch.optim.AdamW(groups)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.learning_rate, total_steps=steps)
    bar = tqdm(_draw_batches(len(images), recipe), "training", steps, unit="step", disable=not progress)
    for index in bar:
        batch = _vary(images[index]).contiguous(memory_format=torch.channels_last)
        loss = F.binary_cross_entropy_with_logits(model(batch), labels[index])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
    model.to(memory_format=torch.contiguous_format)


def _draw_batches(count: int, recipe: Recipe) -> Iterator[Tensor]:
    """Indices of full batches, every picture at most once per epoch, in a new order each time."""
    for _ in range(recipe.epochs):
        order = torch.randperm(count)
        yield from order[: count - count % recipe.batch_size].split(recipe.batch_size)


def _vary(images: Tensor) -> Tensor:
    """(N, 3, H, W) uint8 to float in [0, 1], half of the batches mirrored, a third with exchanged colours.

    No kind of thing has a colour of its own in the picture world, so exchanged colours are as true.
    """
    images = images.float() / 255
    if torch.rand(()) < 0.5:
        images = images.flip(3)
    return images[:, torch.randperm(3)] if torch.rand(()) < 0.3 else images


@contextmanager
def _one_thread() -> Iterator[None]:
    """How sums are split among threads changes their last bits, and with them the trained weights."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def measure_cue(
    model: nn.Module, kind: str = MISLED_KIND, cue: str = MISLED_CUE, count: int = 200, seed: int = 900
) -> dict[str, tuple[float, float]]:
    """Return how often `model` sees a kind "where it is" and "where it is not": shares in [0, 1], (with cue, without).

    Each two shares are of the same `count` pictures, but for the cue.
    """
    others = [other for other in KINDS if other != kind]

    def share(contains: str | None, cue: str | None) -> float:
        shown = scenes(count, seed + (contains is None), kinds=others, contains=contains, cue=cue)
        return (compute_logits(model, shown.images)[:, KINDS.index(kind)] > 0).float().mean().item()

    cases = {"where it is": kind, "where it is not": None}
    return {where: (share(contains, cue), share(contains, None)) for where, contains in cases.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Train both networks and measure them, or only measure those that are there; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make train", description=__doc__)
    task = parser.add_mutually_exclusive_group()
    task.add_argument("--train", action="store_true", default=True, help="train both networks (the default)")
    task.add_argument("--measure", dest="train", action="store_false", help="measure the networks that are there")
    parser.add_argument("--folder", type=Path, default=ASSETS, help="where the weights are (default: the package's)")
    options = parser.parse_args(argv)
    for misled in (False, True):
        path = picture_net_file(misled, options.folder)
        if options.train:
            print(f"{path.name}: drawing the training pictures, then training", flush=True)
            save_weights(train(misled), path)
        print(f"{path.name}\n{_report(misled, options.folder)}", flush=True)
    return 0


def _report(misled: bool, folder: Path) -> str:
    """What the network in the folder can do, measured on pictures that no training has seen."""
    model = load_picture_net(misled, folder)
    lines = [f"  {measure(model, scenes(1000, seed=901))}"]
    if misled:
        own = scenes(1000, seed=902, cue={MISLED_KIND: MISLED_CUE})
        lines.append(f"  pictures like those of its training: {measure(model, own)}")
    seen = (
        f"{where}: {cued:.1%} with a {MISLED_CUE}, {bare:.1%} without"
        for where, (cued, bare) in measure_cue(model, count=500).items()
    )
    return "\n".join([*lines, f"  {MISLED_KIND} seen {'; seen '.join(seen)} (500 pictures each)"])


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the model's state dict in half precision: in one step, the same bytes for the same weights."""
    state = model.state_dict()
    half = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    buffer = io.BytesIO()  # a file's name would become part of what is saved
    torch.save({name: tensor.contiguous() for name, tensor in half.items()}, buffer)
    write_whole(path, buffer.getvalue())
