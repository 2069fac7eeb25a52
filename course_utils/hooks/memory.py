"""Count the bytes of the tensors that a block of code creates: exact, and the same on every machine.

    with measure_memory() as memory:
        loss.backward()
    memory.peak, memory.live

A storage (the numbers that a tensor and its views share) counts from its creation until its last tensor is gone.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Memory(TorchDispatchMode):
    """The bytes of the strided tensors' storages created in a `with` block and still alive (`live`), and the most that
    were alive at once (`peak`). `live` goes on counting down after the block, as tensors are deleted; `peak` stays.

    What an operation needs inside and frees before it returns is not seen. CPU only: on a GPU, backward runs in a
    thread of its own, and `torch.cuda.max_memory_allocated` tells.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    @property
    def live(self) -> int:
        """Bytes that are alive now."""
        self._sizes = {key: (storage, size) for key, (storage, size) in self._sizes.items() if not storage.expired()}
        return sum(size for _, size in self._sizes.values())

    def __repr__(self) -> str:
        return f"{self.live} bytes live, {self.peak} bytes at the peak"

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing here is compiled, and True makes the first operation import torch's compiler: 2 s

    def __torch_dispatch__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See each operation after autograd has been dealt with, those of backward and of hooks included."""
        result = func(*args, **(kwargs or {}))
        old = {storage._cdata for storage in _storages((args, kwargs))}  # of views and of in-place results: nothing new
        for storage in _storages(result):
            if storage._cdata not in old:
                # The weak reference keeps the address from being used again, so it can serve as the key.
                reference = StorageWeakRef(storage)
                self._sizes[reference.cdata] = (reference, storage.nbytes())
        self.peak = max(self.peak, self.live)
        return result


def _storages(value: Any) -> list[torch.UntypedStorage]:
    tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided]
    return [tensor.untyped_storage() for tensor in tensors]


measure_memory = Memory
