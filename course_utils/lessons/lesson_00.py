"""The exercise of lesson 00, which is there to be solved together, and its prediction."""

from __future__ import annotations

import torch

from course_utils.exercises.cases import Case
from course_utils.exercises.engine import exercise, prediction

prediction(
    "gradient_of_square",
    lesson=0,
    question="x = 3 and y = x². After `y.backward()`, what is x.grad?",
    options={
        3: "That is the value of x. `.grad` holds the derivative of y with respect to x.",
        6: "The derivative of x² is 2x, and 2 · 3 = 6.",
        9: "That is the value of y. `.grad` holds the derivative of y with respect to x.",
    },
    answer=6,
    why="""
        The gradient says how much $y$ grows when $x$ grows a little. Take $x = 3.01$: then $x^2$ is about $9.06$, so
        $y$ has grown by six times the $0.01$ that were added to $x$. `y.backward()` works this number out and stores
        it in `x.grad`.
    """,
    ask={
        3: "Take y = 5 · x, with x = 3 again. If x grows by 1, does y grow by 3 or by another number?",
        9: "Let x grow from 3 to 3.01. By how much does y grow, roughly, and how many times as much is this as 0.01?",
    },
)


@exercise(
    lesson=0,
    points=1,
    hints=[
        "`tensor.max()` gives a tensor that holds one number. The task asks for the number itself.",
        "`.item()` turns a tensor that holds one number into a Python number.",
        "`return tensor.max().item()`",
    ],
)
def largest(tensor):
    """Return the largest number in `tensor` as a Python float."""
    return tensor.max().item()


@largest.cases
def _(rng):
    odd = 2 * rng.integer(0, 4) + 1  # an odd number of quarters is no whole number
    yield Case({"tensor": odd * torch.tensor([1.25, 3.75, -9.75, 2.25])})
    yield Case({"tensor": odd * torch.tensor([-4250.0, -1250.0, -2750.0])})
    yield Case({"tensor": odd * torch.tensor([[1.25, -9.75], [2.75, 3.25], [0.25, 2.25]])})
    columns = torch.tensor([[odd * 1e40, 2.0], [-7.0, 0.5]], dtype=torch.float64)  # too large for float32
    yield Case({"tensor": columns.t()})


@largest.accept
def _(tensor):
    return max(tensor.reshape(-1).tolist())


@largest.accept
def _(tensor):
    return float(torch.sort(tensor.flatten()).values[-1])


largest.equivalent(
    "Every float32 number is a float64 number too, and the caller's tensor stays as it is.",
    "spoil an argument: + tensor = tensor.double()",
)


@largest.mistake("You return a tensor that holds the number. `.item()` makes a Python number of it.")
def _(tensor):
    return tensor.max()


@largest.mistake("You return the place of the largest number (argmax). The task asks for the number.")
def _(tensor):
    return tensor.argmax().item()


@largest.mistake("You return the largest distance from 0. A negative number is smaller than 0, however long it is.")
def _(tensor):
    return tensor.abs().max().item()


@largest.mistake("`return` gives the number to whoever called the function; printing only shows it to you.")
def _(tensor):
    print(tensor.max().item())


@largest.mistake(
    "Python's `max` gives a tensor again, and it cannot compare the rows of one with two dimensions. Use "
    "`tensor.max().item()`."
)
def _(tensor):
    return max(tensor)


@largest.mistake(
    "Python's `max` cannot compare the rows of a tensor with two dimensions. `tensor.max()` looks at every number."
)
def _(tensor):
    return max(tensor).item()


@largest.mistake("You return 0 where all numbers are negative. The largest of them is negative, too.")
def _(tensor):
    return max([0.0, *tensor.flatten().tolist()])


@largest.mistake("You cut the decimals off. `.item()` gives the number as it is.")
def _(tensor):
    return int(tensor.max())
