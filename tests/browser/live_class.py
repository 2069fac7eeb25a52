"""A class on 127.0.0.1 for tests: a server in a thread, and requests as anybody might send them."""

import asyncio
import contextlib
import json
import re
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
        """The JSON that comes back, or with another `status` nothing; the request is a POST where it has a content."""
        body = content if isinstance(content, bytes | None) else json.dumps(content).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"} | headers
        request = urllib.request.Request(self.address + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=patience) as answer:
                assert (answer.status, path) == (status, path)
                return json.loads(answer.readline().removeprefix(b"data: "))
        except urllib.error.HTTPError as error:
            if error.code != status:
                raise AssertionError(f"{path}: {error.code} {error.read()}") from None

    def join(self, name="", **more):
        return self.ask("/join", {"code": self.room.code, "name": name} | more)["token"]

    def report(self, token, name, said, cause="", key="", kind="exercise", status=200):
        key = key or f"{token[:9]}{len(self.room.reports)}"
        content = {"id": key, "kind": kind, "name": name, "said": said, "cause": cause}
        return self.ask("/report", content, token, status)

    def vote(self, token, name, said):
        return self.report(token, name, said, kind="prediction")

    @property
    def cookie(self):
        return {"Cookie": f"class{self.address.rpartition(':')[2]}={self.room.key}"}

    def press(self, what, value):
        self.ask("/class/do", {"what": what, "value": value}, **self.cookie)

    def see(self, screen, names="yes"):
        return self.ask(f"/class/see?screen={screen}&names={names}", **self.cookie)


@contextlib.contextmanager
def running(folder, port=None, lesson="01"):
    """A class on a lesson, whose file is in `folder`; what it keeps can go on in another one, at the same `port`."""
    ready, found, port = threading.Event(), {}, port or find_port()

    def work():
        found["class"] = LiveClass(f"http://127.0.0.1:{port}", None)
        room = Room(folder / server.FILE, lambda: time.time() + found["class"].seconds)
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
