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

from course_utils.exercises import classroom, saved_progress
from course_utils.root import write_whole

CHANCE = random.Random()  # of its own: the lesson's numbers stay those of its seed
FILE = "class.json"  # in the work folder: by this a learner's next kernel is the same learner
PATIENCE = 5  # seconds for an answer
PAUSES = 0.5, 15  # seconds between two tries to send a report: at first, and at most
SILENCE = 40  # seconds without a sign; the class gives one every ten
ALONE = 120  # seconds without the class until explanations open as ever
JOINED = """From now on, `predict` and `check` in this notebook also tell your class what you chose, how far your answer
came, and its likely cause. They never send your code or its output, or what you did before."""
LEAVING = "To leave, restart the kernel. In another notebook of this lesson, run this line again."
LOST = "Your class cannot be reached just now. Go on as ever: what you do is sent when it is there again."
REFUSED = {403: "The room code is another one: look at the projected page.", 429: "Wait a few seconds, and try again."}
UNREACHED = "This notebook's kernel cannot reach the instructor's computer. Is the address the one on the page?"

_members: list["_Member"] = []  # in this kernel: one, or none yet


def join(address: str, code: str, name: str = "") -> classroom.Note:
    """Join the class at `address` with its room `code`, both as the projected page shows them; `name` is optional.

    Never raises: whatever comes in, a sentence comes out.
    """
    address = str(address).strip().rstrip("/")
    address = address if address.startswith(("http://", "https://")) else f"http://{address}"
    content = {"code": str(code), "name": str(name), "token": _known(address)}
    try:
        with _open(f"{address}/join", content) as answer:
            found = json.loads(answer.read(10_000))
        token, name = str(found["token"]), str(found["name"])
    except urllib.error.HTTPError as error:
        return classroom.Note("join: not in the class", (REFUSED.get(error.code, f"The class says: {error}."),))
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return classroom.Note(f"join: no class at {address}", (UNREACHED,))
    if path := saved_progress.location():
        with contextlib.suppress(OSError):
            write_whole(path.with_name(FILE), json.dumps({address: token}))
    for other in _members:
        other.leave()
    _members[:] = [_Member(address, token)]
    return classroom.Note(f"You are in the class as {name}.", (JOINED, LEAVING), symbol="✓")


def _known(address: str) -> str:
    tokens = {each.address: each.token for each in _members}
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):  # no folder, no file, a damaged one
        tokens = json.loads(saved_progress.location().with_name(FILE).read_text(encoding="utf-8")) | tokens
    return str(tokens.get(address, ""))


def _open(url: str, content: object = None, token: str = "", patience: float = 0) -> http.client.HTTPResponse:
    data = None if content is None else json.dumps(content).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    return urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=patience or PATIENCE)


class _Member:
    def __init__(self, address: str, token: str) -> None:
        self.address, self.token = address, token
        self._waiting: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()
        self._lost = self._told = self._gone = False
        classroom.joined_class.listeners.append(self.tell)
        for work in (self._send, self._follow):
            threading.Thread(target=work, daemon=True).start()

    def leave(self) -> None:
        self._gone = True
        with contextlib.suppress(ValueError):
            classroom.joined_class.listeners.remove(self.tell)

    def tell(self, kind: str, name: str, said: str, cause: str) -> str:
        """Report what was checked or chosen; what it answers is shown to the learner."""
        self._waiting.put({"id": uuid.uuid4().hex, "kind": kind, "name": name, "said": said, "cause": cause})
        if self._lost and not self._told:
            self._told = True
            return LOST
        return f"Your class gets `{said}` as your vote." * (kind == "prediction")

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
            if error.code == 401:  # the class has forgotten its learners
                self.leave()
            return error.code != 429 and error.code < 500
        except (OSError, http.client.HTTPException):
            self._lost = True
            return False
        self._lost = False
        return True

    def _follow(self) -> None:
        heard = time.monotonic()
        while not self._gone:
            try:
                with _open(f"{self.address}/events", None, self.token, SILENCE) as lines:
                    for line in lines:
                        heard = time.monotonic()
                        if line.startswith(b"data: ") and not self._gone:
                            classroom.follow_class(json.loads(line[6:]))
            except urllib.error.HTTPError as error:
                if error.code == 401:
                    self.leave()
            except (OSError, ValueError, TypeError, http.client.HTTPException):
                pass
            if self._gone or time.monotonic() - heard > ALONE:
                classroom.follow_class({})
            time.sleep(CHANCE.uniform(0.5, 2))
