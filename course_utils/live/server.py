"""`make class`: the class's server, for the page that is projected and for the learners' kernels.

It listens on the chosen address only. A learner has a token, minted at `join`; the instructor another, in a cookie that
no script can read. Hosts and origins are checked, and sizes and rates are limited.
"""

import asyncio
import contextlib
import json
import re
import shutil
import socket
import sys
import time
import webbrowser
from collections.abc import Callable
from datetime import timedelta
from hmac import compare_digest
from pathlib import Path
from urllib.parse import urlsplit

from jinja2 import Environment
from markupsafe import Markup
from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.locks import Condition
from tornado.web import Application, HTTPError, RequestHandler

from course_utils.authoring.page import draw_formulas
from course_utils.live.room import Room, Store
from course_utils.root import ROOT, CourseError
from course_utils.show import page_templates, render_markdown

FOLDER = ROOT / "build" / "class"
FILE = "class.sqlite"
SCREENS = {"join": "Join", "votes": "Predict", "class": "Who is where", "help": "Help", "plan": "Plan"}
OVER = 12 * 3600  # seconds after which a class is another day's
MOST_BYTES = 8192  # of a request
BEAT = 10  # seconds between two signs of life
GATHER = 0.2  # seconds in which reports are gathered before the page changes
RATES = {"guess": (20, 0.5), "report": (30, 2), "stream": (10, 0.02)}  # so many at once, and so many a second
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
HEADERS |= {"Content-Security-Policy": "frame-ancestors 'none'"}
NO_QR = "There is no QR code, because segno is missing: .venv/bin/python -m pip install -e '.[instructor]'"


def serve(
    lesson: str = "", host: str = "", port: int = 8900, address: str = "", new: bool = False, forget: bool = False,
    folder: Path = FOLDER, show: bool = True,
) -> int:  # fmt: skip
    """Serve a class on a lesson (`01`) until Ctrl-C, then write its file; with `forget`, delete all that was kept.

    `address` is what learners type where it is not `http://host:port`, as behind a tunnel. A class of the last hours
    goes on, unless it shall be `new`. Raises `CourseError` where a class is running, or the address is not to be had.
    """
    if forget:
        if (folder / FILE).exists():
            Store(folder / FILE).close()  # none is running
        shutil.rmtree(folder, ignore_errors=True)
        print(f"Forgotten: nothing of any class is left in {folder}.")
        return 0
    room = Room(folder / FILE)
    if new or time.time() - room.began > OVER:
        room.write_summary(folder)
        room.store.close()
        (folder / FILE).replace(folder / f"class-{room.began:.0f}.sqlite")
        room = Room(folder / FILE)
    room.choose(lesson or f"{room.lesson:02d}")
    host = host or _own_address()
    address = (address or f"http://{host}:{port}").rstrip("/")
    try:
        asyncio.run(_listen(room, address, host, port, show))
    except OSError as error:
        reason = f"{host}:{port} is not to be had ({error.strerror or error})."
        raise CourseError(f"{reason} Use another one:  make class PORT={port + 1}") from None
    finally:
        print(f"\nWhat the class did is in {room.write_summary(folder)}.")
        room.store.close()
    return 0


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        return probe.getsockname()[0]
    return "127.0.0.1"


async def _listen(room: Room, address: str, host: str, port: int, show: bool) -> None:
    here = f"http://{host}:{port}"
    own = {urlsplit(each).netloc for each in (address, here)}
    app = Application(
        [("/(|join|report|events)", ForLearners), ("/(class|class/see|class/do)", ForInstructor)], room=room, own=own,
        templates=_templates(address), rates={}, news=Condition(), moves=Condition(), cookie=f"class{port}",
        log_function=lambda handler: None,
    )  # fmt: skip
    server = HTTPServer(app, max_body_size=MOST_BYTES, max_header_size=MOST_BYTES, body_timeout=10)
    server.listen(port, address=host)
    print(f"The class is at {address}, room code {room.code}. Ctrl-C ends it.")
    print(f"The page to project, for you alone: {here}/class?key={room.key}", flush=True)
    if show:
        webbrowser.open(f"{here}/class?key={room.key}")
    try:
        await asyncio.Event().wait()
    finally:
        server.stop()
        await server.close_all_connections()


def _templates(address: str) -> Environment:
    def markdown(text: str) -> Markup:
        made = render_markdown(text)
        with contextlib.suppress(CourseError):  # latex2mathml is missing
            made = draw_formulas(made)
        return Markup(re.sub(r' style="[^"]*"', "", made))  # which the page's policy forbids

    templates, qr = page_templates(), ""
    try:
        import segno

        qr = segno.make(address).svg_inline(scale=8, border=4, light="#fff", omitsize=True)
    except ImportError:
        print(NO_QR, file=sys.stderr)
    templates.filters |= {"markdown": markdown, "wrapped": lambda name: Markup("_<wbr>").join(name.split("_"))}
    templates.globals |= {"screens": SCREENS, "address": address, "qr": Markup(qr)}
    return templates


class _Handler(RequestHandler):
    def prepare(self) -> None:
        """Refuse what comes from, or thinks it goes to, another place."""
        self.room, self.news, self.moves = (self.settings[each] for each in ("room", "news", "moves"))
        origin = self.request.headers.get("Origin", f"//{self.request.host}")
        if self.request.host not in self.settings["own"] or urlsplit(origin).netloc != self.request.host:
            raise HTTPError(403, reason="Another host or origin")

    def set_default_headers(self) -> None:
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def page(self, name: str, **values: object) -> str:
        return self.settings["templates"].get_template(f"live_{name}.html.j2").render(**values)

    def content(self) -> dict[str, object]:
        """The JSON object that was sent."""
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(self.request.body)
            if isinstance(found, dict) and self.request.headers.get("Content-Type") == "application/json":
                return found
        raise HTTPError(400, reason="Not a JSON object")

    def limit(self, kind: str, whose: object, cost: int = 1) -> None:
        """Refuse with 429 where requests of this kind come too fast; each costs one of those that are left."""
        rates, (most, refill), now = self.settings["rates"], RATES[kind], time.monotonic()
        left, then = rates.get((kind, whose), (most, now))
        left = min(most, left + (now - then) * refill)
        if left < 1:
            raise HTTPError(429)
        if len(rates) > 5000:
            rates.clear()
        rates[kind, whose] = left - cost, now

    async def stream(self, make: Callable[[], object], news: Condition) -> None:
        """Send what `make` returns, and again when there is `news` and it is another; else signs of life."""
        self.set_header("Content-Type", "text/event-stream")
        sent = None
        with contextlib.suppress(StreamClosedError, asyncio.CancelledError):  # who listened has gone
            while True:
                told, content = news.wait(timedelta(seconds=BEAT)), make()
                self.write(f"data: {json.dumps(content)}\n\n" if content != sent else ": \n\n")
                sent = content
                await self.flush()
                await told
                await asyncio.sleep(GATHER)


class ForLearners(_Handler):
    def learner(self) -> int:
        """The number of the learner whose token came; 401 without one."""
        found = self.room.find_learner(self.request.headers.get("Authorization", "").removeprefix("Bearer "))
        if found is None:
            self.limit("guess", self.request.remote_ip)
            raise HTTPError(401)
        return found

    async def get(self, what: str) -> None:
        """What to type in a notebook; or which explanations are open, now and each time that this changes."""
        if what == "events":
            self.limit("stream", self.learner())
            return await self.stream(self.room.opened, self.moves)
        self.finish(self.page("join"))

    def post(self, what: str) -> None:
        """Let a learner in, who knows the room code or was here before; or keep what a learner did."""
        content = self.content()
        if what == "join":
            self.limit("guess", self.request.remote_ip, cost=0)
            if not (joined := self.room.join(content)):
                self.limit("guess", self.request.remote_ip)
                raise HTTPError(403)
            self.finish(joined)
        else:
            learner = self.learner()
            self.limit("report", learner)
            self.finish({"new": self.room.report(learner, content)})
        self.news.notify_all()


class ForInstructor(_Handler):
    def prepare(self) -> None:
        """Refuse with 401 who is not the instructor, by the key in the address or by the cookie."""
        super().prepare()
        key = self.get_argument("key", "") or self.get_cookie(self.settings["cookie"], "")
        if not compare_digest(key.encode(), self.room.key.encode()):
            self.limit("guess", self.request.remote_ip)
            raise HTTPError(401)

    async def get(self, what: str) -> None:
        """The page to project; or one of its screens, now and each time that it changes."""
        if key := self.get_argument("key", ""):  # it goes into a cookie, and leaves the address bar
            self.set_cookie(self.settings["cookie"], key, httponly=True, samesite="Strict", expires_days=1)
            self.redirect("/class")
        elif what == "class":
            self.finish(self.page("class", room=self.room))
        else:
            screen, names = self.get_argument("screen", ""), self.get_argument("names", "no") == "yes"
            if screen not in SCREENS:
                raise HTTPError(404)
            await self.stream(lambda: self.page("view", **self.room.see(screen, names)), self.news)

    def post(self, _: str) -> None:
        """Do what was pressed on the page."""
        content = self.content()
        self.room.act(str(content.get("what")), str(content.get("value")))
        self.news.notify_all()
        self.moves.notify_all()
        self.finish({})
