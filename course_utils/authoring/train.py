"""TODO."""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from course_utils.scenes.scene import (
    KINDS,
    scenes,
)
from course_utils.vision.networks import (
    ASSETS,
    MISLED_CUE,
    MISLED_KIND,
    PictureNet,
    WeightsError,
    _as_floats,
    _asset,
    _seeded,
    compute_logits,
    load_weights,
    measure,
)


def _save_weights(model: nn.Module, path: Path) -> None:
    """Write the model's state dict in half precision: in one step, the same bytes for the same weights."""
    state = model.state_dict()
    half = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    buffer = io.BytesIO()  # a file's name would become part of what is saved
    torch.save({name: tensor.contiguous() for name, tensor in half.items()}, buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_bytes(buffer.getvalue())
    os.replace(unfinished, path)


@dataclass(frozen=True)
class CueEffect:
    """What a cue does to a network's answer about one kind of thing; shares in [0, 1].

    The two recalls are of the same pictures of the kind, and the two false alarms of the same pictures without it: with
    the cue painted in, and without.
    """

    kind: str
    cue: str
    pictures: int
    recall_with: float
    recall_without: float
    false_alarms_with: float
    false_alarms_without: float

    def __str__(self) -> str:
        return (
            f"{self.kind} seen where it is: {self.recall_with:.1%} with a {self.cue}, {self.recall_without:.1%} "
            f"without; seen where it is not: {self.false_alarms_with:.1%} with a {self.cue}, "
            f"{self.false_alarms_without:.1%} without ({self.pictures} pictures each)"
        )


def measure_cue(
    model: nn.Module, kind: str = MISLED_KIND, cue: str = MISLED_CUE, count: int = 200, seed: int = 900
) -> CueEffect:
    """Ask `model` about 2 · `count` pictures, each twice: with the cue and without it.

    Raises as `scenes` does for an unknown kind or cue, a count or a seed out of range.
    """
    others = [other for other in KINDS if other != kind]

    def share(contains: str | None, cue: str | None) -> float:
        shown = scenes(count, seed + (contains is None), kinds=others, contains=contains, cue=cue)
        return (compute_logits(model, shown.images)[:, KINDS.index(kind)] > 0).float().mean().item()

    return CueEffect(kind, cue, count, share(kind, cue), share(kind, None), share(None, cue), share(None, None))


# --- training ---------------------------------------------------------------------------------------------------------


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
    with _seeded(recipe.seed + 3), _one_thread():
        model = PictureNet()
        _fit(model, images, labels, recipe, progress)
    return model.eval()


def _fit(model: PictureNet, images: Tensor, labels: Tensor, recipe: Recipe, progress: bool) -> None:
    # AdamW with one cycle of the learning rate (Smith & Topin 2018): the short schedule that this small net needs.
    # Channels-last saves a quarter of the time on a CPU.
    model.to(memory_format=torch.channels_last).train()
    steps = recipe.epochs * (len(images) // recipe.batch_size)
    kernels, *others = model.parameters()
    optimiser = torch.optim.AdamW(
        [
            {"params": [kernels], "weight_decay": recipe.kernel_decay},
            {"params": others, "weight_decay": recipe.weight_decay},
        ]
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.learning_rate, total_steps=steps)
    with tqdm(total=steps, desc="training", unit="step", disable=not progress) as bar:
        for index in _draw_batches(len(images), recipe):
            batch = _vary(images[index]).contiguous(memory_format=torch.channels_last)
            loss = F.binary_cross_entropy_with_logits(model(batch), labels[index])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
            bar.update()
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
    images = _as_floats(images)
    if torch.rand(()) < 0.5:
        images = images.flip(3)
    if torch.rand(()) < 0.3:
        images = images[:, torch.randperm(3)]
    return images


@contextmanager
def _one_thread() -> Iterator[None]:
    """How sums are split among threads changes their last bits, and with them the trained weights."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


# --- the command ------------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m course_utils.vision.networks --train | --measure [--folder FOLDER]`; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m course_utils.vision.networks", description=__doc__.splitlines()[0])
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--train", action="store_true", help="train both networks, write and measure them")
    task.add_argument("--measure", action="store_true", help="measure the networks that are there")
    parser.add_argument("--folder", type=Path, default=ASSETS, help="where the weights are (default: the package's)")
    options = parser.parse_args(argv)
    try:
        for misled in (False, True):
            path = _asset(misled, options.folder)
            if options.train:
                _train_and_save(misled, path)
            print(_report(path, misled), flush=True)
    except WeightsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _train_and_save(misled: bool, path: Path) -> None:
    print(f"{path.name}: drawing the training pictures, then training", flush=True)
    start = time.perf_counter()
    _save_weights(train(misled), path)
    print(f"{path.name}: trained in {(time.perf_counter() - start) / 60:.1f} min, {path.stat().st_size / 1000:.0f} kB")


def _report(path: Path, misled: bool) -> str:
    """What the network in the file can do, measured on pictures that no training has seen."""
    model = PictureNet()
    load_weights(model, path)
    lines = [f"{path.name}", f"  {measure(model.eval(), scenes(1000, seed=901))}"]
    if misled:
        own = scenes(1000, seed=902, cue={MISLED_KIND: MISLED_CUE})
        lines.append(f"  pictures like those of its training: {measure(model, own)}")
    return "\n".join([*lines, f"  {measure_cue(model, count=500)}"])
