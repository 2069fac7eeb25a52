"""The patient: a small network that learns a simple task when it is well, and a picture of its loss.

    net = admit(Patient)                 # fresh, and the same each time
    losses = train(net)
    draw_curves({"before": losses}, title="The loss stops half-way", alt="…")

Each number is a float64, so that the curve is the same on every machine. The lessons 01 to 04 each have a patient whose
training fails; what is wrong with those of `CASES` stands here, below, and not in the lessons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from course_utils.root import CourseError
from course_utils.vision.charts import BLUE, GREY, ORANGE, canvas
from course_utils.vision.pictures import Picture, figure_with_alt

GUESSING = math.log(2)  # the loss of a network that says yes and no with the same probability
STEPS = 120  # patients B and C have chaotic losses, which after 150 steps would differ from machine to machine


def make_task() -> tuple[Tensor, Tensor]:
    """512 rows of 8 numbers, and for each row 1 if its first two numbers have the same sign, else 0: (512, 1)."""
    numbers = torch.randn(512, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return numbers, (numbers[:, :1] * numbers[:, 1:2] > 0).double()


class Patient(nn.Module):
    """Eight numbers in; one number out, above 0 for yes. This one is well."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.relu1 = nn.Linear(8, 16), nn.ReLU()
        self.second, self.relu2 = nn.Linear(16, 16), nn.ReLU()
        self.third, self.relu3 = nn.Linear(16, 8), nn.ReLU()
        self.last = nn.Linear(8, 1)

    def forward(self, numbers: Tensor) -> Tensor:
        """Return a number for each row."""
        h = self.relu1(self.first(numbers))
        h = standardise(self.relu2(self.second(h)))
        return self.last(self.relu3(self.third(h)))


def standardise(h: Tensor) -> Tensor:
    """Shift and scale each column to mean 0 and standard deviation 1."""
    return (h - h.mean(dim=0)) / (h.std(dim=0) + 1e-5)


def admit(case: str | Callable[[], nn.Module]) -> nn.Module:
    """Return a fresh network in float64, with the same numbers each time: one of `CASES`, or of your own class."""
    if isinstance(case, str) and case not in CASES:
        raise CourseError(f"There is no case {case!r}; there is {', '.join(map(repr, CASES))}.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return (CASES[case] if isinstance(case, str) else case)().double()


def loss_of(net: nn.Module) -> Tensor:
    """The loss of the network on the whole task: 0.69 for guessing, near 0 for a network that has learned it."""
    numbers, answers = make_task()
    return nn.functional.binary_cross_entropy_with_logits(net(numbers), answers)


def train(net: nn.Module, steps: int = STEPS, after_step: Callable[[], object] | None = None) -> list[float]:
    """Train the network by gradient descent with momentum, and return its loss before each step.

    after_step: is called after each step.
    """
    # By hand: the first use of torch.optim imports torch's compiler, which takes seconds.
    parameters = list(net.parameters())
    speeds = [torch.zeros_like(parameter) for parameter in parameters]
    losses = []
    for _ in range(steps):
        net.zero_grad()
        loss = loss_of(net)
        loss.backward()
        with torch.no_grad():
            for parameter, speed in zip(parameters, speeds, strict=True):
                if parameter.grad is not None:
                    parameter -= 0.1 * speed.mul_(0.9).add_(parameter.grad)
        losses.append(loss.item())
        del loss
        if after_step:
            after_step()
    return losses


def draw_curves(
    curves: Mapping[str, Sequence[float]],
    title: str,
    alt: str,
    *,
    ylabel: str = "loss",
    guessing: bool = True,
    log: bool = False,
) -> Picture:
    """Draw one or two labelled curves over the training steps; the plain text has where each begins and ends.

    title: the finding. alt: what is to be seen, in a sentence. guessing: draw the loss of a network that guesses.
    log: a logarithmic axis. What is not finite is not drawn; the plain text says so.
    """
    axes = canvas(6.2, 2.9, title)
    axes.axis("on")
    lines = [title]
    for (label, values), colour, style in zip(curves.items(), (ORANGE, BLUE), ("-", "--"), strict=False):
        drawn = [value if math.isfinite(value) else math.nan for value in values]
        axes.plot(drawn, color=colour, linestyle=style, linewidth=2.2, label=label)
        lines.append(f"  {label}: {_round(values[0])} at the start, {_round(values[-1])} at the end")
    if guessing:
        axes.axhline(GUESSING, color=GREY, linewidth=1.2, linestyle=":", label="guessing: 0.7")
    if log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.1 * max(value for values in curves.values() for value in values if math.isfinite(value)))
    axes.set(xlabel="training step", ylabel=ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=3)
    return figure_with_alt(axes.figure, alt, text="\n".join(lines))


def _round(value: float) -> str:
    """A number coarse enough to be the same on every machine."""
    if not math.isfinite(value):
        return "not a number"
    return f"{value:.1f}" if value < 10 else f"over {10 ** int(math.log10(value)):,}"


# What follows says what is wrong with the cases. Look for it with hooks first.


class _Other(Patient):
    def forward(self, numbers: Tensor) -> Tensor:
        h = self.relu1(self.first(numbers))
        h = standardise(self.relu2(self.second(h)))
        return self.last(self.relu3(self.third.forward(h)))


def _change(name: str, change: Callable[[Tensor], object], kind: type[Patient] = Patient) -> Patient:
    net = kind()
    change(net.get_parameter(name))
    return net


CASES: dict[str, Callable[[], nn.Module]] = {
    "A": lambda: _change("second.bias", lambda bias: nn.init.constant_(bias, -10)),
    "B": lambda: _change("third.weight", lambda weight: nn.init.normal_(weight, std=1000)),
    "C": lambda: _change("third.weight", lambda weight: nn.init.normal_(weight, std=1000), _Other),
}
