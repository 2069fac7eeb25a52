"""A class under load: learners, each with an open stream, answer within two seconds, and Chromium shows the page.

    python -m tests.bench.live          60 and 300 learners, a flood of wrong codes, the disk

Everything is on 127.0.0.1. An answer's time goes from the moment it is sent to the moment it is counted on the page. It
is on the disk before it is answered, so the machine's disk is in all of these times.
"""

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from course_utils.live.store import Store
from tests.bench.bench import Row, table
from tests.browser.lab_page import SCRIPTS, find_port, start_browser
from tests.browser.live_class import start

WITHIN = 2.0  # seconds in which all of them answer
FLOOD = 20, 5.0  # so many send wrong codes at once, for so many seconds
VOTE = {"kind": "prediction", "name": "hook_on_a", "said": "15", "cause": ""}  # of every learner
VOTED = r"(\d+) of \d+ voted"


async def answer_all(address: str, code: str, learners: int, stream: str) -> list[float]:
    """Join with so many learners, and then let all of them vote; returns when each vote was sent.

    Each holds a `stream` open: `events` as a kernel does, `ballot` as a phone does.
    """
    AsyncHTTPClient.configure(None, max_clients=2 * learners + 10)
    client, host = AsyncHTTPClient(), address.removeprefix("http://")
    headers, tokens, streams = {"Content-Type": "application/json"}, [], []
    for number in range(learners):
        body = json.dumps({"code": code, "name": f"Learner with number {number}"})
        answer = await client.fetch(f"{address}/join", method="POST", body=body, headers=headers)
        tokens.append(json.loads(answer.body)["token"])
        reader, writer = await asyncio.open_connection(*host.split(":"))
        writer.write(f"GET /{stream} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {tokens[-1]}\r\n\r\n".encode())
        streams.append((reader, writer))

    async def send(token: str) -> float:
        await asyncio.sleep(random.uniform(0, WITHIN))
        sent, own = time.time(), headers | {"Authorization": f"Bearer {token}"}
        body = json.dumps({"id": token} | VOTE)
        await client.fetch(f"{address}/report", method="POST", body=body, headers=own)
        return sent

    sent = await asyncio.gather(*map(send, tokens))
    for _, writer in streams:
        writer.close()
    return sorted(sent)


@contextmanager
def serve() -> Iterator[tuple[str, str, str]]:
    """A class in a process of its own: its address, its room code, and the instructor's key."""
    with tempfile.TemporaryDirectory() as folder:
        port = find_port()
        server, code, key = start(folder, port, "01")
        try:
            yield f"http://127.0.0.1:{port}", code, key
        finally:
            server.terminate()
            server.wait()


def measure(learners: int, stream: str = "events") -> list[Row]:
    """How long the slowest vote and the middle one take to the page, with so many learners."""
    with serve() as (address, code, mine), start_browser() as browser:
        page = browser.new_page(viewport={"width": 1920, "height": 1080})
        page.goto(f"{address}/class?key={mine}")
        page.locator("#screen-votes").click()
        page.locator("#prediction-hook_on_a").click()
        page.evaluate(SCRIPTS["note_counts"], VOTED)
        # The learners are in a process of their own.
        command = [sys.executable, "-m", "tests.bench.live", address, code, str(learners), stream]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        sent = [float(each) for each in done.stdout.split()]
        page.wait_for_function("all => window.counts.some(([, count]) => count === all)", arg=learners)
        counts = page.evaluate("() => window.counts")
    # The n-th answer is on the page when n are counted.
    times = [
        1000 * (next(at for at, count in counts if count >= number) / 1000 - when)
        for number, when in enumerate(sent, start=1)
    ]
    what = f"{learners} {'phones' if stream == 'ballot' else 'kernels'} within {WITHIN:.0f} s"
    slowest = Row(f"{what}: the slowest is on the page", max(times), 1000, "ms")
    return [slowest, Row(f"{what}: the middle one", sorted(times)[len(times) // 2], None, "ms")]


def measure_flood() -> list[Row]:
    """How long a right code takes while others send wrong ones from the same address, and how many these are."""
    with serve() as (address, code, _):
        times, wrong = asyncio.run(_join_in_flood(address, code))
    slowest = Row("a right code in a flood of wrong ones: the slowest answer", 1000 * max(times), 1000, "ms")
    return [slowest, Row("wrong codes in a second", wrong / FLOOD[1], None, "a second")]


async def _join_in_flood(address: str, code: str) -> tuple[list[float], int]:
    client = AsyncHTTPClient(force_instance=True, max_clients=2 * FLOOD[0])
    headers, end = {"Content-Type": "application/json"}, time.monotonic() + FLOOD[1]

    async def join(with_code: str) -> float:
        start = time.perf_counter()
        body = json.dumps({"code": with_code})
        await client.fetch(f"{address}/join", method="POST", body=body, headers=headers)
        return time.perf_counter() - start

    async def guess() -> int:
        count = 0
        while time.monotonic() < end:
            try:
                await join("AAAAAA")
            except HTTPClientError:
                count += 1
        return count

    guessing = [asyncio.create_task(guess()) for _ in range(FLOOD[0])]
    times = []
    while time.monotonic() < end:
        times.append(await join(code))
        await asyncio.sleep(0.1)
    return times, sum([await each for each in guessing])


def measure_disk(rounds: int = 50) -> list[Row]:
    """What it costs to wait for the disk, for one report and for a hundred that come together."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for together in (1, 100):
            store, times = Store(Path(folder) / f"{together}"), []
            for number in range(rounds):
                for each in range(together):
                    store.put(f"report {number} {each}", ["a learner", "hook_on_a", "15"])
                start = time.perf_counter()
                store.save()
                times.append(1000 * (time.perf_counter() - start))
            store.close()
            what = f"until {together} {'report is' if together == 1 else 'reports are'} on the disk, the middle one"
            rows.append(Row(what, sorted(times)[rounds // 2], None, "ms"))
    return rows


if __name__ == "__main__":
    if len(sys.argv) > 1:  # be the learners
        address, code, learners, stream = sys.argv[1:]
        print(*asyncio.run(answer_all(address, code, int(learners), stream)))
    else:
        votes = [row for many in (60, 300) for row in measure(many)]
        print(table([*votes, *measure(300, "ballot"), *measure_flood(), *measure_disk()]))
