"""The cases of the exercise in lesson 00, which is there to be solved together."""

from __future__ import annotations

import torch

from course_utils.exercises.cases import Case
from course_utils.exercises.engine import exercise


@exercise
def largest(rng):
    odd = 2 * rng.integer(0, 4) + 1  # an odd number of quarters is no whole number
    yield Case({"tensor": odd * torch.tensor([1.25, 3.75, -9.75, 2.25])})
    yield Case({"tensor": odd * torch.tensor([-4250.0, -1250.0, -2750.0])})
    yield Case({"tensor": odd * torch.tensor([[1.25, -9.75], [2.75, 3.25], [0.25, 2.25]])})
    yield Case({"tensor": odd * torch.tensor([-0.5, 1.75, 2.25]) / 1024})
    yield Case({"tensor": torch.tensor([rng.integer(1, 4), -7, 5])}, shown="a tensor of whole numbers, of dtype int64")
    columns = torch.tensor([[odd * 1e40, 2.0], [-7.0, 0.5]], dtype=torch.float64)  # too large for float32
    yield Case({"tensor": columns.t()})
    yield Case({"tensor": odd * torch.tensor([[[1.25, -9.75]], [[0.25, 2.75]]])})
