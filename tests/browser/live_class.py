"""A class on 127.0.0.1 for tests: a server in a thread, and requests as anybody might send them."""

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field

from course_utils.live import server
from course_utils.live.room import Room
from tests.browser.lab_page import find_port


@dataclass
class LiveClass:
    """A running class; its clock is `seconds` ahead."""

    address: str
    room: Room
    seconds: float = 0
    own: dict[str, str] = field(default_factory=dict)

    def ask(self, path, content=None, token="", status=200, patience=10, **headers):
        """The JSON that comes back, if it is any; the request is a POST where it has a content."""
        body = content if isinstance(content, bytes | None) else json.dumps(content).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"} | headers
        request = urllib.request.Request(self.address + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=patience) as answer:
                assert (answer.status, path) == (status, path)
                return json.loads(answer.readline().removeprefix(b"data: "))
        except urllib.error.HTTPError as error:
            said = error.read()
            if error.code != status:
                raise AssertionError(f"{path}: {error.code} {said}") from None
            return json.loads(said) if said.startswith(b"{") else None

    def join(self, name="", **more):
        return self.enter(name, **more)["token"]

    def enter(self, name="", status=200, **more):
        """What the class answers to whoever joins."""
        return self.ask("/join", {"code": self.room.people.code, "name": name} | more, status=status)

    def report(self, token, name, said, cause="", key="", kind="exercise", status=200):
        key = key or f"{token[:9]}{len(self.room.reports)}"
        content = {"id": key, "kind": kind, "name": name, "said": said, "cause": cause}
        return self.ask("/report", content, token, status)

    def vote(self, token, name, said, status=200):
        return self.report(token, name, said, kind="prediction", status=status)

    def vote_each(self, name, *choices):
        """A new learner votes for each of `choices`; returns their tokens."""
        tokens = [self.join() for _ in choices]
        for token, said in zip(tokens, choices, strict=True):
            self.vote(token, name, said)
        return tokens

    @property
    def cookie(self):
        return {"Cookie": f"class{self.address.rpartition(':')[2]}={self.room.key}"}

    def press(self, what, value):
        self.ask("/desk/do", {"what": what, "value": str(value)}, **self.cookie)

    def see(self, screen="", page="class"):
        """What is on the projected page, or on the instructor's own one, the `desk`."""
        if screen:
            self.press("screen", screen)
        return self.ask(f"/{page}/see", **self.cookie)

    def connect(self, path="", token=""):
        """A connection as anybody may open it; with a path, what a learner asks for is sent on it."""
        host = self.address.removeprefix("http://")
        connection = socket.create_connection(host.split(":"), timeout=10)
        if path:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        return connection

    def see_phone(self, token):
        return self.ask("/ballot", Cookie=f"learner{self.address.rpartition(':')[2]}={token}")


@contextlib.contextmanager
def running(folder, port=None, lesson="01", roster=()):
    """A class on a lesson, whose file is in `folder`; what it keeps can go on in another one, at the same `port`."""
    ready, found, port = threading.Event(), {}, port or find_port()

    def work():
        found["class"] = LiveClass(f"http://127.0.0.1:{port}", None)
        room = Room(folder / server.FILE, lambda: time.time() + found["class"].seconds, roster)
        room.choose(lesson)
        found["class"].room = room

        async def serve():
            found["loop"], found["task"] = asyncio.get_running_loop(), asyncio.current_task()
            asyncio.get_running_loop().call_later(0.05, ready.set)
            await server._listen(room, found["class"].address, "127.0.0.1", port, show=False)

        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(serve())
        room.store.close()

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(60)
    try:
        yield found["class"]
    finally:
        found["loop"].call_soon_threadsafe(found["task"].cancel)
        thread.join()


SERVE = """import sys; from pathlib import Path; from course_utils.live.server import serve
serve(sys.argv[3], "127.0.0.1", int(sys.argv[2]), folder=Path(sys.argv[1]), show=False)"""


def start(folder, port, lesson):
    """A class in a process of its own, as `make class` starts it: the process, the room code, the instructor's key."""
    command = [sys.executable, "-c", SERVE, str(folder), str(port), lesson]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    said = "".join(process.stdout.readline() for _ in range(3))  # it listens
    return process, re.search(r"room code (\w+)", said)[1], re.search(r"key=(\S+)", said)[1]


def wait_for(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen in 5 s")


def votes_in(page):
    """How many chose each option, at first and then, as the revealed page says."""
    rows = re.findall(r'<th scope="row">(?:✓ )?(.*?)</th>\s*<td>(\d+) .*?<td>(\d+) ', page, re.DOTALL)
    return {option: (int(first), int(second)) for option, first, second in rows}
