"""Two processes that train one model, for lesson 09: each has its own input, and `DistributedDataParallel` the mean.

They run on this computer alone, on the CPU (`gloo`), and find each other by a file.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

Seen = dict[str, float]


def train(rank: int, communicate: Callable | None = None) -> Seen:
    """Go backward once in process number `rank`, where the gradient is 2 (rank 0) or 6 (rank 1)."""
    layer, seen = nn.Linear(1, 1, bias=False), {}
    model = DistributedDataParallel(layer)
    if communicate:
        model.register_comm_hook(None, communicate)
    layer.weight.register_hook(lambda grad: seen.update({"tensor hook": grad.item()}))
    layer.weight.register_post_accumulate_grad_hook(lambda w: seen.update({"post-accumulate hook": w.grad.item()}))
    model(torch.tensor([[2.0 + 4 * rank]])).backward()
    return seen | {".grad afterwards": layer.weight.grad.item()}


def keep_local(state: object, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook that exchanges nothing: each process goes on with its own gradients."""
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def run_two_processes() -> list[tuple[Seen, Seen]]:
    """What `train` returns in each of two processes, without a communication hook and with `keep_local`.

    Raises `RuntimeError` with the last line of what a process said, where the two cannot be run.
    """
    environment = dict(os.environ)
    if sys.platform != "win32":  # only this computer: no other network is looked for
        environment["GLOO_SOCKET_IFNAME"] = next(
            (name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo"
        )
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", __name__, os.path.join(folder, "meeting")]
        options = {"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes = [subprocess.Popen([*command, rank], **options) for rank in "01"]
        try:
            said = [process.communicate(timeout=60) for process in processes]
        except subprocess.TimeoutExpired:
            raise RuntimeError("the two did not find each other within a minute") from None
        finally:
            for process in processes:
                process.kill()
    if any(process.returncode for process in processes):
        raise RuntimeError(next((error for _, error in said if error), "one of them failed").strip().splitlines()[-1])
    return [tuple(json.loads(printed.splitlines()[-1])) for printed, _ in said]


def _main(file: str, rank: int) -> None:
    store = torch.distributed.FileStore(file, 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    print(json.dumps([train(rank), train(rank, keep_local)]), flush=True)
    os._exit(0)  # gloo's threads may end a process badly that cleans up behind itself


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
