"""What is answered to whom: to kernels and phones, which have a learner's token, and to the instructor's pages.

A learner's token is minted at `join`; the instructor has another one, in a cookie that no script can read. Hosts and
origins are checked, and sizes are limited. No limit ever refuses a right code or a known token because of what
somebody else does: many learners may share one address.
"""

import asyncio
import contextlib
import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from hmac import compare_digest

from jinja2 import Environment
from tornado.iostream import IOStream, StreamClosedError
from tornado.locks import Condition
from tornado.web import HTTPError, RequestHandler

from course_utils.live import screens
from course_utils.live.material import Setting, settings_of
from course_utils.live.people import Learner, Refused
from course_utils.live.room import Room, Unknown
from course_utils.root import ROOT

MOST_STREAMS = 8  # of one learner: a ninth ends the first
MOST_RESTING = 1000  # connections on which nobody follows the class
BEAT = 10  # seconds between two signs of life
GATHER = 0.2  # seconds in which reports are gathered before the page changes
TOGETHER = 0.01  # seconds in which reports are gathered before they go to the disk together
PACE = (30, 2.0)  # reports of one learner: so many at once, and so many a second
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
HEADERS |= {"Content-Security-Policy": "frame-ancestors 'none'"}
SLIDES = ROOT / "build" / "slides"
NO_SLIDES = "There are no slides of lesson {0:02d} yet. Write them first:  make slides LESSON={0:02d}"
DISK = "The class cannot write to its disk"


class Hall:
    """What all requests of a class share: the room, who listens, and the next time that the disk is waited for."""

    def __init__(self, room: Room, own: set[str], templates: Environment, port: int) -> None:
        self.room, self.own, self.templates = room, own, templates
        self.news, self.moves = Condition(), Condition()  # of anything, and of what the instructor does
        self.streams: dict[int, list[_Handler]] = defaultdict(list)  # of each learner, the oldest first
        self.cookies = {"instructor": f"class{port}", "learner": f"learner{port}"}
        self._paces: dict[int, tuple[float, float]] = {}
        self._saving: asyncio.Task | None = None
        self._resting: list[IOStream] = []

    async def save(self) -> None:
        """Wait until all that was kept up to now is on the disk; those who wait together wait once."""
        if self._saving is None:
            self._saving = asyncio.create_task(self._save())
        try:
            await asyncio.shield(self._saving)
        except sqlite3.Error:
            raise HTTPError(503, reason=DISK) from None

    async def _save(self) -> None:
        await asyncio.sleep(TOGETHER)
        self._saving = None  # what is kept from now on waits for the next time
        self.room.store.save()

    def let_rest(self, connection: IOStream) -> None:
        """Note a connection on which nobody follows the class. Of too many, the oldest one gives way."""
        self._resting = [each for each in self._resting if not each.closed()]
        if len(self._resting) >= MOST_RESTING:
            self._resting.pop(0).close()
        self._resting.append(connection)

    @contextlib.contextmanager
    def following(self, connection: IOStream) -> Iterator[None]:
        """Within this, the connection stays, because somebody who is known follows the class on it."""
        with contextlib.suppress(ValueError):  # it had to give way just now
            self._resting.remove(connection)
        try:
            yield
        finally:
            self.let_rest(connection)

    def hold_pace(self, learner: int) -> None:
        """Refuse with 429 where this learner reports too fast; nobody else notices."""
        (most, refill), now = PACE, time.monotonic()
        left, then = self._paces.get(learner, (most, now))
        left = min(most, left + (now - then) * refill)
        if left < 1:
            raise HTTPError(429)
        self._paces[learner] = left - 1, now


class _Handler(RequestHandler):
    def initialize(self, hall: Hall) -> None:
        self.hall, self.room, self.ended = hall, hall.room, False

    def prepare(self) -> None:
        """Refuse what comes from, or thinks it goes to, another place."""
        origin = self.request.headers.get("Origin", f"//{self.request.host}")
        if self.request.host not in self.hall.own or origin.partition("//")[2] != self.request.host:
            raise HTTPError(403, reason="Another host or origin")

    def set_default_headers(self) -> None:
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def render_page(self, name: str, **values: object) -> str:
        return self.hall.templates.get_template(f"live_{name}.html.j2").render(**values)

    def content(self) -> dict[str, object]:
        """The JSON object that was sent."""
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(self.request.body)
            if isinstance(found, dict) and self.request.headers.get("Content-Type") == "application/json":
                return found
        raise HTTPError(400, reason="Not a JSON object")

    def keep_cookie(self, whose: str, value: str) -> None:
        self.set_cookie(self.hall.cookies[whose], value, httponly=True, samesite="Strict", expires_days=1)

    def read_cookie(self, whose: str) -> str:
        return self.get_cookie(self.hall.cookies[whose], "") or ""

    async def stream(self, make: Callable[[], object], news: Condition) -> None:
        """Send what `make` returns, and again when there is `news` and it is another; else signs of life.

        Ends as soon as `make` returns None.
        """
        self.set_header("Content-Type", "text/event-stream")
        sent, gone = None, (StreamClosedError, asyncio.CancelledError)  # who listened
        with self.hall.following(self.request.connection.stream), contextlib.suppress(*gone):
            while not self.ended:
                told, content = news.wait(timedelta(seconds=BEAT)), make()
                if content is None:
                    return
                self.write(f"data: {json.dumps(content)}\n\n" if content != sent else ": \n\n")
                sent = content
                await self.flush()
                await told
                await asyncio.sleep(GATHER)


class ForLearners(_Handler):
    """Kernels, which send their token in a header, and phones, which have it in a cookie."""

    def token(self) -> str:
        scheme, _, token = self.request.headers.get("Authorization", "").partition(" ")
        return token if scheme == "Bearer" and token else self.read_cookie("learner")

    def learner(self) -> Learner:
        """The learner whose token came; 401 without one."""
        found = self.room.people.find(self.token())
        if found is None:
            raise HTTPError(401)
        return found

    async def get(self, what: str) -> None:
        """The page for a phone; a figure; or, each time it changes, what is on that page or which explanations open."""
        if what == "":
            self.finish(self.render_page("phone", known=self.room.people.find(self.token()) is not None))
        elif what == "figure":
            self._send_figure()
        elif what == "favicon.ico":  # browsers ask for it
            self.set_status(204)
        elif what == "ballot":
            await self._follow(lambda learner: self.render_page("ballot", **screens.see_ballot(self.room, learner)))
        elif what == "events":
            await self._follow(lambda learner: self.room.opened())
        else:
            raise HTTPError(405)

    async def post(self, what: str) -> None:
        """Let a learner in, or keep what a learner did. Both are on the disk before they are answered."""
        content = self.content()
        if what == "join":
            answer = self._join(content)
        elif what == "report":
            answer = self._report(content)
        else:
            raise HTTPError(405)
        if self.get_status() == 200:
            await self.hall.save()
            self.hall.news.notify_all()
        self.finish(answer)

    def _join(self, content: dict[str, object]) -> dict[str, object]:
        code, name, token = (str(content.get(each, "")) for each in ("code", "name", "token"))
        token = token or self.read_cookie("learner")
        try:
            learner, token = self.room.people.join(code, name, token, self.request.remote_ip or "", self.room.clock())
        except Refused as refused:
            self.set_status(403)
            self.hall.news.notify_all()  # wrong codes are counted on the instructor's page
            return {"refused": str(refused)}
        self.keep_cookie("learner", token)
        return {"token": token, "name": learner.name, "code": learner.code, "opened": self.room.opened()}

    def _report(self, content: dict[str, object]) -> dict[str, object]:
        learner = self.learner()
        self.hall.hold_pace(learner.number)
        try:
            return {"new": self.room.report(learner.number, content)}
        except Unknown as unknown:
            raise HTTPError(400, reason=str(unknown)) from None

    async def _follow(self, make: Callable[[int], object]) -> None:
        """Stream to this learner until they are removed, or have opened too many other streams."""
        number = self.learner().number
        streams = self.hall.streams[number]
        streams.append(self)
        if len(streams) > MOST_STREAMS:
            streams[0].ended = True
        try:
            await self.stream(lambda: make(number) if number in self.room.people.here else None, self.hall.moves)
        finally:
            streams.remove(self)

    def _send_figure(self) -> None:
        name = self.get_argument("of", "")
        asked = self.room.predictions.get(name)
        figure = settings_of(asked.lesson).get(name, Setting()).figure if asked else None
        if figure is None:
            raise HTTPError(404)
        self.set_header("Content-Type", figure.kind)
        self.set_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
        self.set_header("Cache-Control", "max-age=3600")
        self.finish(figure.data)


class ForInstructor(_Handler):
    """The projected page, `class`, the instructor's own one, `desk`, and the `slides`, which lead to the `class`."""

    def prepare(self) -> None:
        """Refuse with 401 who is not the instructor, by the key in the address or by the cookie."""
        super().prepare()
        key = self.get_argument("key", "") or self.read_cookie("instructor")
        if not compare_digest(key.encode(), self.room.key.encode()):
            raise HTTPError(401)

    async def get(self, page: str, part: str) -> None:
        """A page, or what it shows, now and each time that this changes."""
        if key := self.get_argument("key", ""):  # it goes into a cookie, and leaves the address bar
            self.keep_cookie("instructor", key)
            self.redirect(f"/{page}")
        elif page == "slides":
            self._send_slides()
        elif part == "":
            self.finish(self.render_page(page))
        elif part == "/see":
            see = screens.see_public if page == "class" else screens.see_private
            view = "public" if page == "class" else "private"
            await self.stream(lambda: self.render_page(view, **see(self.room)), self.hall.news)
        else:
            raise HTTPError(405)

    async def post(self, page: str, part: str) -> None:
        """Do what was pressed on a page."""
        content = self.content()
        if part != "/do":
            raise HTTPError(405)
        try:
            self.room.act(str(content.get("what")), str(content.get("value")))
        except Unknown as unknown:
            raise HTTPError(400, reason=str(unknown)) from None
        await self.hall.save()
        self.hall.news.notify_all()
        self.hall.moves.notify_all()
        self.finish({})

    def _send_slides(self) -> None:
        found = sorted(SLIDES.glob(f"{self.room.lesson:02d}_*.slides.html"))
        self.set_header("Content-Security-Policy", "frame-ancestors 'self'")  # the speaker view shows them in frames
        if not found:
            self.set_status(404)
            self.set_header("Content-Type", "text/plain")
        self.finish(found[0].read_bytes() if found else NO_SLIDES.format(self.room.lesson))


ROUTES = [
    ("/(|join|report|events|ballot|figure|favicon.ico)", ForLearners),
    ("/(class|desk)(/see|/do|)", ForInstructor),
    ("/(slides)()", ForInstructor),
]
