"""See to it that an answer leaves everything as it was:

world = World()
run(answer)
world.put_back()  # the names of what the answer left changed
"""

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np
import torch

from course_utils.exercises.world.of_functions import FUNCTIONS
from course_utils.exercises.world.of_python import PYTHON, VITAL
from course_utils.exercises.world.of_torch import DEFAULT_DTYPE, SETTINGS
from course_utils.exercises.world.state import State

STATES = (*VITAL, DEFAULT_DTYPE, *FUNCTIONS, *SETTINGS, *PYTHON)
OWN_GENERATOR = np.random.MT19937(0)  # of numpy's random numbers while answers run


class World:
    """Puts everything back as it was at the beginning of the block when the block ends, however it ends.

    `changed` then has the names of all that was different and should not be, sorted.
    """

    def __enter__(self) -> "World":
        self.changed: list[str] = []
        self._before = [(state, state.read()) for state in STATES]
        self._modules = len(sys.modules)
        return self

    def __exit__(self, *_: object) -> None:
        self._put_back(STATES)

    def put_back_python(self) -> None:
        """Put back, inside the block, that without which no code runs."""
        self._put_back(VITAL)

    def _put_back(self, states: Sequence[State]) -> None:
        has_imported = len(sys.modules) > self._modules
        names = set(self.changed)
        for state, before in self._before[: len(states)]:
            if state.is_changed(before):
                with suppress(Exception):  # a folder that is gone, for example: it is named all the same
                    state.write(before)
                if state.name and not (has_imported and state.imports_too):
                    names.add(state.name)
        self.changed = sorted(names)


@contextmanager
def random_numbers_from(seed: int) -> Iterator[None]:
    """In the block, Python's and numpy's random numbers begin with `seed`; behind it all go on as if it had not been.

    torch's are only put back: whoever needs them seeds the generator itself, for `torch.manual_seed` takes 3 ms.
    """
    before, generator = random.getstate(), np.random.get_bit_generator()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        random.seed(seed)
        np.random.set_bit_generator(OWN_GENERATOR)
        np.random.seed(seed % 2**32)
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(before)
        np.random.set_bit_generator(generator)
