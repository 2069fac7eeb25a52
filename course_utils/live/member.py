"""A learner in a class: after `join`, `predict` and `check` also report, in the background.

What is reported: the exercise with the stage that the answer reached and its likely cause, or the prediction with the
choice. Never code, never output, never what was done before. Where the class cannot be reached, reports wait.
"""

import contextlib
import http.client
import json
import queue
import random
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping

from course_utils.exercises import classroom, saved_progress
from course_utils.root import write_whole

CHANCE = random.Random()  # of its own: the lesson's numbers stay those of its seed
FILE = "class.json"  # in the work folder: by this a learner's next kernel is the same learner
PATIENCE = 5  # seconds for an answer
PAUSES = 0.5, 15  # seconds between two tries to send a report: at first, and at most
SILENCE = 40  # seconds without a sign; the class gives one every ten
ALONE = 120  # seconds without the class until explanations open as ever
MOST_BYTES = 10_000  # of an answer
JOINED = """From now on, `predict` and `check` in this notebook also tell your class what you chose, how far your answer
came, its likely cause, and whether you answer a question about it right. They never send your code or its output, or
what you did before."""
PHONE = "To vote from your phone as the same learner, open {0} there, with your own code {1} as the room code."
LEAVING = "To leave, restart the kernel. In another notebook of this lesson, run this line again."
LOST = "Your class cannot be reached just now. Go on as ever: what you do is sent when it is there again."
FORGOTTEN = "You are not in the class any more, so nothing is sent. To come back, run `join` with the room code again."
UNREACHED = "This notebook's kernel cannot reach the instructor's computer. Is the address the one on the page?"
BROWSER = "If your browser or your phone can open {0}, you can vote there."

_members: list["_Member"] = []  # in this kernel: one, or none yet


def join(address: str, code: str, name: str = "") -> classroom.Note:
    """Join the class at `address` with its room `code`, both as the projected page shows them; `name` is optional.

    Your own code, which a phone shows after you joined there, makes the same learner of both. Never raises: whatever
    comes in, a sentence comes out.
    """
    address = str(address).strip().rstrip("/")
    address = address if address.startswith(("http://", "https://")) else f"http://{address}"
    content = {"code": str(code), "name": str(name), "token": _read_token(address)}
    try:
        found = _ask_to_join(address, content)
    except urllib.error.HTTPError as error:
        return classroom.Note("join: not in the class", (_read_reason(error),))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException):
        return classroom.Note(f"join: no class at {address}", (UNREACHED, BROWSER.format(address)))
    _keep_token(address, found["token"])
    for other in _members:
        other.leave()
    _members[:] = [_Member(address, found["token"], found["opened"])]
    lines = JOINED, PHONE.format(address, found["code"]), LEAVING
    return classroom.Note(f"You are in the class as {found['name']}.", lines, symbol="✓")


def _ask_to_join(address: str, content: Mapping[str, str]) -> dict:
    """What the class answers: token, name and own code as texts, and by prediction whether it is `opened`."""
    with _open(f"{address}/join", content) as answer:
        found = json.loads(answer.read(MOST_BYTES))
    texts = {key: str(found[key]) for key in ("token", "name", "code")}
    return texts | {"opened": {str(name): bool(opened) for name, opened in found["opened"].items()}}


def _read_reason(error: urllib.error.HTTPError) -> str:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return str(json.loads(error.read(MOST_BYTES))["refused"])
    return f"The class says: {error}."


def _read_token(address: str) -> str:
    tokens = {each.address: each.token for each in _members}
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):  # no folder, no file, a damaged one
        tokens = json.loads(saved_progress.location().with_name(FILE).read_text(encoding="utf-8")) | tokens
    return str(tokens.get(address, ""))


def _keep_token(address: str, token: str) -> None:
    if path := saved_progress.location():
        with contextlib.suppress(OSError):
            write_whole(path.with_name(FILE), json.dumps({address: token}))


def _open(url: str, content: object = None, token: str = "", patience: float = 0) -> http.client.HTTPResponse:
    data = None if content is None else json.dumps(content).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    return urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=patience or PATIENCE)


class _Member:
    """The learner of this kernel, from `join` until `leave`, with a thread that sends and one that follows."""

    def __init__(self, address: str, token: str, opened: Mapping[str, bool]) -> None:
        self.address, self.token = address, token
        self._waiting: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()
        self._lost = self._told = self._gone = self._forgotten = False
        classroom.follow_class(opened)  # before the first vote, which would open one
        classroom.joined_class.listeners.append(self.tell)
        for work in (self._send, self._follow):
            threading.Thread(target=work, daemon=True).start()

    def leave(self) -> None:
        """Report nothing any more."""
        self._gone = True
        with contextlib.suppress(ValueError):  # it has left already
            classroom.joined_class.listeners.remove(self.tell)

    def tell(self, kind: str, name: str, said: str, cause: str) -> str:
        """Report what was checked or chosen; what it answers is shown to the learner."""
        if self._forgotten:
            self.leave()
            classroom.follow_class({})
            return FORGOTTEN
        self._waiting.put({"id": uuid.uuid4().hex, "kind": kind, "name": name, "said": said, "cause": cause})
        if self._lost and not self._told:
            self._told = True
            return LOST
        return f"Your class gets `{said}` as your vote." if kind == "prediction" else ""

    def _send(self) -> None:
        while not self._gone:
            report, pause = self._waiting.get(), PAUSES[0]
            while not self._gone and not self._deliver(report):
                time.sleep(pause * CHANCE.uniform(0.5, 1.5))
                pause = min(2 * pause, PAUSES[1])

    def _deliver(self, report: dict[str, str]) -> bool:
        """Whether there is nothing more to do for this report."""
        try:
            _open(f"{self.address}/report", report, self.token).close()
        except urllib.error.HTTPError as error:
            self._forgotten = self._forgotten or error.code == 401
            return error.code != 429 and error.code < 500
        except (OSError, http.client.HTTPException):
            self._lost = True
            return False
        self._lost = False
        return True

    def _follow(self) -> None:
        heard = time.monotonic()
        while not (self._gone or self._forgotten):
            try:
                with _open(f"{self.address}/events", None, self.token, SILENCE) as lines:
                    for line in lines:
                        heard = time.monotonic()
                        if line.startswith(b"data: ") and not self._gone:
                            classroom.follow_class(json.loads(line.removeprefix(b"data: ")))
            except urllib.error.HTTPError as error:
                self._forgotten = self._forgotten or error.code == 401
            except (OSError, ValueError, TypeError, http.client.HTTPException):
                pass  # the class is away: try again
            if time.monotonic() - heard > ALONE:
                classroom.follow_class({})
            time.sleep(CHANCE.uniform(0.5, 2))
        if self._forgotten:
            classroom.follow_class({})
