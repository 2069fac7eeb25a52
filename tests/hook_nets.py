"""Small networks that the tests of hooks share, and what every one of these tests checks at its end."""

import contextlib

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from course_utils.hooks.inventory import count_hooks


class Pencil(nn.Module):
    """fc1 (3 to 4), ReLU, fc2 (4 to 1) with weights that a pencil can follow: 89 for an input of ones."""

    def __init__(self, inplace=False):
        super().__init__()
        self.fc1, self.relu, self.fc2 = nn.Linear(3, 4), nn.ReLU(inplace), nn.Linear(4, 1)
        with torch.no_grad():
            self.fc1.weight.copy_(torch.tensor([[1.0, 2, 3], [-4, -5, -6], [7, 8, 9], [-10, -11, -12]]))
            self.fc1.bias.copy_(torch.tensor([1.0, 2, 3, 4]))
            self.fc2.weight.copy_(torch.tensor([[1.0, 2, 3, 4]]))
            self.fc2.bias.fill_(1.0)

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x)))


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@contextlib.contextmanager
def global_hooks_checked(monkeypatch, flag):
    """`flag` is what torch remembers for ever of the first global backward hook: put back what other tests find."""
    monkeypatch.setattr(torch_module, "_global_is_full_backward_hook", flag)
    yield
    assert count_hooks(nn.Identity()).total() == 0, "a test left a global hook"
    assert torch_module._global_is_full_backward_hook in (flag, True), "a test left the global flag"
