"""A class under load: learners, each with an open stream, answer within two seconds, and Chromium shows the page.

    python -m tests.bench.live          60 and 300 learners, and what a call costs where the class does not answer

Everything is on 127.0.0.1. An answer's time goes from the moment it is sent to the moment it is counted on the page.
"""

import asyncio
import json
import random
import re
import socket
import subprocess
import sys
import tempfile
import time

from tornado.httpclient import AsyncHTTPClient

from course_utils.exercises import predict
from course_utils.live import member
from tests.bench.bench import Row, table
from tests.browser.lab_page import find_port, start_browser

WITHIN = 2.0  # seconds in which all of them answer
# What the learners report, the key of the page's screen, and where it counts.
VOTES = {"kind": "prediction", "name": "hook_on_a", "said": "15", "cause": ""}, "2", r"(\d+) of \d+ voted"
MATRIX = {"kind": "exercise", "name": "keep_positive", "said": "passed", "cause": ""}, "3", r"keep_positive(\d+) of"
SERVE = """import sys; from pathlib import Path; from course_utils.live.server import serve
serve("01", "127.0.0.1", int(sys.argv[2]), folder=Path(sys.argv[1]), show=False)"""
KINDS = {"votes": VOTES, "matrix": MATRIX}
WATCH = """pattern => {
    window.counts = [];
    const note = () => {
        const found = new RegExp(pattern).exec(document.getElementById('view').textContent);
        if (found) requestAnimationFrame(() => window.counts.push([Date.now(), Number(found[1])]));
    };
    new MutationObserver(note).observe(document.getElementById('view'), {childList: true, subtree: true});
}"""


async def answer_all(address: str, code: str, learners: int, report: dict[str, str]) -> list[float]:
    """Join with so many learners, and then let all of them answer; returns when each answer was sent."""
    AsyncHTTPClient.configure(None, max_clients=2 * learners + 10)
    client, host = AsyncHTTPClient(), address.removeprefix("http://")
    headers, tokens, streams = {"Content-Type": "application/json"}, [], []
    for number in range(learners):
        body = json.dumps({"code": code, "name": f"Learner with number {number}"})
        answer = await client.fetch(f"{address}/join", method="POST", body=body, headers=headers)
        tokens.append(json.loads(answer.body)["token"])
        reader, writer = await asyncio.open_connection(*host.split(":"))
        writer.write(f"GET /events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {tokens[-1]}\r\n\r\n".encode())
        streams.append((reader, writer))

    async def send(token: str) -> float:
        await asyncio.sleep(random.uniform(0, WITHIN))
        sent, own = time.time(), headers | {"Authorization": f"Bearer {token}"}
        body = json.dumps({"id": token} | report)
        await client.fetch(f"{address}/report", method="POST", body=body, headers=own)
        return sent

    sent = await asyncio.gather(*map(send, tokens))
    for _, writer in streams:
        writer.close()
    return sorted(sent)


def measure(learners: int, where: str, report: dict[str, str], key: str, pattern: str) -> list[Row]:
    """How long the slowest answer and the middle one take to the page, with so many learners."""
    with tempfile.TemporaryDirectory() as folder:
        port = find_port()
        address = f"http://127.0.0.1:{port}"
        server = subprocess.Popen([sys.executable, "-c", SERVE, folder, str(port)], stdout=subprocess.PIPE, text=True)
        said = server.stdout.readline() + server.stdout.readline()
        code, mine = re.search(r"room code (\w+)", said)[1], re.search(r"key=(\S+)", said)[1]
        try:
            with start_browser() as browser:
                page = browser.new_page(viewport={"width": 1920, "height": 1080})
                page.goto(f"{address}/class?key={mine}")
                page.keyboard.press("2")
                page.locator("#prediction-hook_on_a").click()
                page.keyboard.press(key)
                page.evaluate(WATCH, pattern)
                sent = [float(each) for each in run_learners(address, code, learners, report)]
                page.wait_for_function("all => window.counts.some(([, count]) => count === all)", arg=learners)
                counts = page.evaluate("() => window.counts")
        finally:
            server.terminate()
            server.wait()
    # The n-th answer is on the page when n are counted.
    times = [
        1000 * (next(at for at, count in counts if count >= number) / 1000 - when)
        for number, when in enumerate(sent, start=1)
    ]
    what = f"{learners} learners within {WITHIN:.0f} s, {where}"
    slowest = Row(f"{what}: the slowest is on the page", max(times), 1000, "ms")
    return [slowest, Row(f"{what}: the middle one", sorted(times)[len(times) // 2], None, "ms")]


def run_learners(address: str, code: str, learners: int, report: dict[str, str]) -> list[str]:
    """The learners in a process of their own; returns when each answer was sent."""
    command = [sys.executable, "-m", "tests.bench.live", address, code, str(learners), json.dumps(report)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def measure_silence(calls: int = 50) -> list[Row]:
    """What a call of `predict` costs in a class that takes every connection and never answers."""
    bare = [_time_call() for _ in range(calls)]
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        member._members[:] = [member._Member(f"http://127.0.0.1:{silent.getsockname()[1]}", "token")]
        reporting = [_time_call() for _ in range(calls)]
    return [Row("a call of predict while the class is silent, more than alone", max(reporting) - min(bare), 50, "ms")]


def _time_call() -> float:
    start = time.perf_counter()
    predict("hook_on_a", 30)
    return 1000 * (time.perf_counter() - start)


if __name__ == "__main__":
    if len(sys.argv) > 1:  # be the learners
        print(*asyncio.run(answer_all(sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4]))))
    else:
        rows = [
            row for many in (60, 300) for where in ("votes", "matrix") for row in measure(many, where, *KINDS[where])
        ]
        print(table([*rows, *measure_silence()]))
