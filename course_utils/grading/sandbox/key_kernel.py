"""A kernel for the key that has imported torch before it is asked for: a fork of the process that forks (see `host`).

`Seat` is the grader's side: papermill runs the key's notebook with the kernel manager that `Seat.manager` gives, and to
papermill it is a kernel as any other. The other side is `wait_and_become_kernel`. No student's code runs in it, and it
is in no sandbox.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

from course_utils.grading.sandbox.tasks import MEBIBYTE

if TYPE_CHECKING:
    from jupyter_client import AsyncKernelManager


class Seat:
    """The process that waits to become a kernel. `close` ends it, whatever it is by then."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = 0

    def manager(self) -> AsyncKernelManager:
        """A kernel manager that starts the kernel here, once; its connection file is in Jupyter's runtime folder."""
        from jupyter_client import AsyncKernelManager
        from jupyter_core.paths import jupyter_runtime_dir

        place = os.path.join(jupyter_runtime_dir(), "key.json")
        manager = AsyncKernelManager(kernel_name="python3", connection_file=place)
        manager.provisioner = _provisioner_class()(kernel_id="key", kernel_spec=manager.kernel_spec, parent=manager)
        manager.provisioner.seat = self
        return manager

    def launch(self, command: list[str], environment: dict[str, str], folder: str) -> None:
        """Become the kernel that `command` starts: `python -m ipykernel_launcher -f FILE …`."""
        start = command.index("-m") + 2
        request = {"arguments": command[start:], "environment": environment, "folder": folder}
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        answer = self._connection.recv(100)
        if not answer:
            raise RuntimeError("the process that should become the key's kernel is gone")
        self.pid = int(answer)

    # ------------------------------------------- what jupyter_client wants of a process, as `subprocess.Popen` has it

    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        """None while it lives."""
        return 0 if select.select([self._connection], [], [], 0)[0] else None

    def wait(self) -> int:
        """Come back when it has ended."""
        select.select([self._connection], [], [])
        return 0

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it lives."""
        if self.pid and self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End it."""
        self.kill()
        self._connection.close()


def _provisioner_class() -> type:
    from jupyter_client.provisioning import LocalProvisioner

    class SeatProvisioner(LocalProvisioner):
        """Starts a kernel in a `Seat` instead of a new process."""

        seat: Seat

        async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
            """As the local one does."""
            self.seat.launch(cmd, dict(options.get("env") or os.environ), str(options.get("cwd") or os.getcwd()))
            self.process, self.pid, self.pgid = self.seat, self.seat.pid, None
            return self.connection_info

    return SeatProvisioner


def wait_and_become_kernel(fd: int) -> int:
    """In the child: be ready, wait for a request, and be an ordinary IPython kernel from then on."""
    from ipykernel import kernelapp

    with socket.socket(fileno=fd) as connection:
        request = b""
        while not request.endswith(b"\n"):
            chunk = connection.recv(MEBIBYTE)
            if not chunk:
                return 0
            request += chunk
        wanted = json.loads(request)
        os.environ.clear()
        os.environ.update(wanted["environment"])
        os.chdir(wanted["folder"])
        sys.argv = ["ipykernel_launcher", *wanted["arguments"]]
        connection.sendall(str(os.getpid()).encode())
        kernelapp.launch_new_instance()  # the socket stays open: its end is the end of the kernel
    return 0
