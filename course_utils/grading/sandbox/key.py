"""The key: what the course's own answers and its declared mistakes do with the seeds, or did when it was released.

No student's code comes here. Who makes it is forked from a process that has imported torch (see `host`), or started.
"""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from course_utils.exercises.plain import Evidence
from course_utils.grading.sandbox.tasks import environment

COMMAND = (sys.executable, "-m", "course_utils.grading.sandbox.key")


@dataclass(frozen=True)
class Key:
    """What the reference answer and the mistakes (with their messages) of an exercise do, or in `reason` why not."""

    evidence: Sequence[Evidence] = ()
    mistakes: Sequence[tuple[str, Sequence[Evidence]]] = ()
    reason: str = ""


def ask_for_key(wanted: Sequence[tuple[str, int]], connection: socket.socket | None = None) -> dict[str, Key]:
    """The keys for the `wanted` names of exercises and seeds, by name. Raises `CalledProcessError` if none is made.

    The process at the other end of the `connection` makes them, once; where there is none any more, a new one.
    """
    request, answer = json.dumps(wanted).encode(), b""
    if connection:
        with contextlib.suppress(OSError):  # its end is no answer
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.makefile("rb").read()
    if not answer:
        answer = subprocess.run(COMMAND, input=request, stdout=subprocess.PIPE, env=environment(), check=True).stdout
    return {name: Key(**found) for name, found in json.loads(answer).items()}


def make_key(request: bytes) -> bytes:
    """The answer to a request of `ask_for_key`."""
    from course_utils.exercises.engine import find

    found = {}
    for name, seed in json.loads(request) if request else ():
        try:
            evidence, mistakes = find(name).key(seed)
            found[name] = {"evidence": evidence, "mistakes": [*mistakes.items()]}
        except Exception as error:
            found[name] = {"reason": f"the course's own answer did not work here: {type(error).__name__}: {error}"}
    return json.dumps(found).encode()


def serve(fd: int) -> None:
    with socket.socket(fileno=fd) as connection:
        connection.sendall(make_key(connection.makefile("rb").read()))


if __name__ == "__main__":
    sys.stdout.buffer.write(make_key(sys.stdin.buffer.read()))
