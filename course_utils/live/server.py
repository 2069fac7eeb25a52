"""`make class`: the class's server, for the projected page, the instructor's own page, kernels and phones.

It listens on the chosen address only. Who may ask for what is in `handlers`.
"""

import asyncio
import contextlib
import shutil
import socket
import time
import webbrowser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.web import Application

from course_utils.live.drawing import make_templates
from course_utils.live.handlers import ROUTES, Hall
from course_utils.live.people import read_roster
from course_utils.live.room import Room
from course_utils.live.store import Store
from course_utils.live.summary import write_summary
from course_utils.root import ROOT, CourseError

FOLDER = ROOT / "build" / "class"
FILE = "room.sqlite"
OVER = 12 * 3600  # seconds after which a class is another day's
MOST_BYTES = 8192  # of a request
MOST_CONNECTIONS = 9216  # a thousand learners' streams and the rest, where the system allows it; often 1024 at first
IDLE = 60  # seconds that a connection may take for its request, or wait for another one


class _Server(HTTPServer):
    def initialize(self, *given: Any, hall: Hall, **more: Any) -> None:
        self._hall = hall
        super().initialize(*given, **more)

    def handle_stream(self, stream: IOStream, address: tuple) -> None:
        """Take a new connection, however many there are."""
        self._hall.let_rest(stream)
        super().handle_stream(stream, address)


def serve(
    lesson: str = "", host: str = "", port: int = 8900, address: str = "", roster: Path | None = None,
    new: bool = False, forget: bool = False, folder: Path = FOLDER, show: bool = True,
) -> int:  # fmt: skip
    """Serve a class on a lesson (`01`) until Ctrl-C, then write its file; with `forget`, delete all that was kept.

    `address` is what learners type where it is not `http://host:port`, as behind a tunnel. With a `roster`, a text file
    with a name on each line, nobody else comes in. A class of the last hours goes on, unless it shall be `new`. Raises
    `CourseError` where a class is running, the address is not to be had, or the roster cannot be read.
    """
    if forget:
        return _forget(folder)
    room = _open_room(folder, new, [] if roster is None else read_roster(roster))
    host = host or _own_address()
    address = (address or f"http://{host}:{port}").rstrip("/")
    try:
        room.choose(lesson or f"{room.lesson:02d}")
        asyncio.run(_listen(room, address, host, port, show))
    except OSError as error:
        reason = f"{host}:{port} is not to be had ({error.strerror or error})."
        ways = f"Try another port, `PORT={port + 1}`, or an address that this computer has, with `HOST=`."
        raise CourseError(f"{reason} {ways}") from None
    finally:
        path = write_summary(room, folder)
        print(f"\nWhat the class did is in {path}.\nWhat its answers say is in {path.with_suffix('.html')}.")
        room.store.close()
    return 0


def _forget(folder: Path) -> int:
    if (folder / FILE).exists():
        Store(folder / FILE).close()  # it raises where a class is running
    shutil.rmtree(folder, ignore_errors=True)
    print(f"Forgotten: nothing of any class is left in {folder}.")
    return 0


def _open_room(folder: Path, new: bool, roster: list[str]) -> Room:
    is_first = not (folder / FILE).exists()
    room = Room(folder / FILE, roster=roster)
    if is_first or (not new and time.time() - room.began <= OVER):
        return room
    past = write_summary(room, folder)
    room.store.close()
    (folder / FILE).replace(past.with_suffix(".sqlite"))
    return Room(folder / FILE, roster=roster)


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        return probe.getsockname()[0]
    return "127.0.0.1"


async def _listen(room: Room, address: str, host: str, port: int, show: bool) -> None:
    here = f"http://{host}:{port}"
    hall = Hall(room, {urlsplit(each).netloc for each in (address, here)}, make_templates(address), port)
    handlers = [(pattern, handler, {"hall": hall}) for pattern, handler in ROUTES]
    server = _Server(
        Application(handlers, log_function=lambda handler: None), hall=hall,
        max_body_size=MOST_BYTES, max_header_size=MOST_BYTES, body_timeout=10, idle_connection_timeout=IDLE,
    )  # fmt: skip
    _allow_many_connections()
    server.listen(port, address=host)
    print(f"The class is at {address}, room code {room.people.code}. Ctrl-C ends it.")
    print(f"Your own page, for you alone: {here}/desk?key={room.key}")
    print(f"The page to project, if another computer does it: {here}/class?key={room.key}", flush=True)
    if show:
        webbrowser.open(f"{here}/desk?key={room.key}")
    try:
        await asyncio.Event().wait()
    finally:
        server.stop()
        await server.close_all_connections()


def _allow_many_connections() -> None:
    """Each learner holds one connection or two, and many systems begin with 1024 in all."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, MOST_CONNECTIONS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
