"""What the service costs.

    python scripts/bench/service.py
    python scripts/bench/service.py --nodes 50 --pages 20
    python scripts/bench/service.py --rings 500

A ring of 200 nodes with 16 replicas, a real Redis and ``hashring serve`` as a process: how long a
whole page takes after heartbeats of all nodes, how long a join takes to reach 200 open pages, and
how much of Redis one page and 200 pages use. With ``--rings``: the processor time of the service
with so many rings of five nodes, at rest and with a change of five of them each second, without a
page and with the list open.
"""

# ruff: noqa: E402 - greenlets first
from gevent import monkey

monkey.patch_all()

import http.client
import json
import os
import random
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import gevent
import program
from redis import Redis
from result import Result
from timing import median

from hashring import RingNode
from hashring.core.ring import Ring
from hashring.store.embedded_server import RedisServer

RING = "fleet"
LOADS = 60
JOINS = 5
ROUNDS = 5  # in each, Redis' commands are counted with one page open, and with many
WINDOW = 1.5  # seconds over which they are counted, at least
READING = 10  # commands at once that only a reading of the ring makes
PATIENCE = 30.0  # seconds until the next reading of the ring
SPAN = 15.0  # seconds over which processor time is counted
SETTLE = 10.0  # seconds until every ring has been looked at, and none is new
ROOT = Path(__file__).parents[2]
RESULT = Result()
say = RESULT.add


def fill(client: Redis, nodes: int, ring: str = RING) -> None:
    """A ring of nodes that do not beat, and do not expire meanwhile."""
    rng = random.Random(ring)
    points = {
        f"ip-10-0-{n // 50}-{n % 50}.internal:{4000 + n}": [rng.randrange(2**32) for _ in range(16)]
        for n in range(nodes)
    }
    seen = {"tag": "", "fingerprint": Ring(points).fingerprint}
    expiry = client.time()[0] + 3600
    for node, own in points.items():
        client.zadd(ring, {f"{point}:{node}:{number}": expiry for number, point in enumerate(own)})
        told = {"host": node.partition(":")[0], "pid": 4000, "ttl": 3600, "sees": seen}
        client.hset(f"{{{ring}}}:nodes", node, "0123456789abcdef" + json.dumps(told))


@contextmanager
def serving(url: str) -> Iterator[tuple[int, int]]:
    """``hashring serve``; its port and its pid."""
    program = [sys.executable, "-c", "from hashring.cli import main; main()", "serve"]
    process = subprocess.Popen(
        [*program, "--url", url, "--ring", RING, "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        line = process.stderr.readline()
        yield int(re.search(r":(\d+)/", line)[1]), process.pid
    finally:
        process.terminate()
        began = time.monotonic()
        process.wait()
        RESULT.add("ended after SIGTERM", f"{time.monotonic() - began:.2f} s")


def beat(client: Redis, port: int) -> None:
    """Let all nodes beat, so that the next page has every row anew; returns when that was read."""
    client.zadd(RING, dict.fromkeys(client.zrange(RING, 0, -1), redis_time(client) + 3600))
    beaten = redis_time(client)
    client.publish(RING, "")
    while read_at(port) < beaten:
        gevent.sleep(0.01)


def redis_time(client: Redis) -> float:
    """In whole milliseconds, like the times of the API."""
    seconds, micros = client.time()
    return seconds + micros // 1000 / 1000


def read_at(port: int) -> float:
    """When the service last read the ring, in Redis time."""
    ring = json.loads(ask(port, f"/api/ring?ring={RING}"))
    return datetime.fromisoformat(ring["at"]).timestamp()


def ask(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


class Page:
    """An open page: notes when it hears of a node."""

    def __init__(self, port: int, since: str, path: str = f"/ring/feed?name={RING}&since=") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        address = path + since
        self.connection.request("GET", address, headers={"Accept-Encoding": "gzip"})
        self.answer = self.connection.getresponse()
        self.heard: dict[bytes, float] = {}
        self.awaited = b"joiner-0"
        self.bytes = 0
        self.greenlet = gevent.spawn(self.read)

    def read(self) -> None:
        unpack = zlib.decompressobj(16 + zlib.MAX_WBITS)
        text = b""
        while data := self.answer.read1():
            self.bytes += len(data)
            text += unpack.decompress(data)
            *lines, text = text.split(b"\n")
            # A new version of the ring's page ends a line.
            for line in lines:
                if self.awaited in line:
                    self.heard.setdefault(self.awaited, time.time())

    def close(self) -> None:
        self.greenlet.kill()
        self.answer.close()  # it keeps the connection, which would stay open


def load(port: int) -> bytes:
    """The page with all its rows."""
    return ask(port, f"/ring?name={RING}&all=1")


def page_loads(client: Redis, port: int) -> None:
    taken = []
    for _ in range(LOADS):
        beat(client, port)
        began = time.perf_counter()
        body = load(port)
        taken.append((time.perf_counter() - began) * 1000)
    say("page", f"{len(body) / 1000:.0f} kB")
    middle = round(median(taken), 1)
    say("page load, median", f"{middle} ms", value=middle, unit="ms", target="page")
    say("page load, worst of twenty", f"{sorted(taken)[-len(taken) // 20]:.1f} ms")


def version(port: int) -> str:
    return re.search(rb'data-version="([^"]*)"', load(port))[1].decode()


class Commands:
    """Counts the commands that Redis is asked; those of the counting are left out."""

    def __init__(self, client: Redis) -> None:
        self.client = client
        self.asked = 0

    def count(self) -> int:
        self.asked += 1
        return self.client.info("stats")["total_commands_processed"] - self.asked

    def next_reading(self) -> tuple[float, int]:
        """The time and the count after the next reading of the ring."""
        before, deadline = self.count(), time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            gevent.sleep(0.02)
            count = self.count()
            if count - before >= READING:
                gevent.sleep(0.05)  # the reading may not have ended
                return time.monotonic(), self.count()
            before = count
        raise RuntimeError(f"the service did not read the ring for {PATIENCE:g} s")

    def rate(self) -> float:
        """Commands a second, from one reading to another: a window that begins and ends anywhere
        has one more or one less by chance."""
        began, first = self.next_reading()
        while True:
            ended, last = self.next_reading()
            if ended - began >= WINDOW:
                return (last - first) / (ended - began)


def open_pages(port: int, count: int) -> list[Page]:
    since = version(port)
    return [Page(port, since) for _ in range(count)]


def page_counts(client: Redis, port: int, most: int) -> list[Page]:
    """What one page and many pages ask of Redis, in turn; the pages that are open at the end."""
    counter = Commands(client)
    few, many = [], []
    pages = open_pages(port, 1)
    for _ in range(ROUNDS):
        for page in pages[1:]:
            page.close()
        del pages[1:]
        beat(client, port)  # the service finds out that they are closed
        gevent.sleep(0.5)
        few.append(counter.rate())
        pages += open_pages(port, most - 1)
        many.append(counter.rate())
    say("commands a second, 1 page open", f"{median(few):.1f}")
    say(f"commands a second, {most} pages open", f"{median(many):.1f}")
    ratio = median(many) / median(few)
    say("commands a second, many pages against one", "", value=ratio, target="page-load")
    return pages


def cpu_time(pid: int) -> float:
    """Seconds of processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def joins(client: Redis, pages: list[Page], pid: int) -> None:
    delays = []
    used = 0.0
    before = pages[0].bytes
    for number in range(JOINS):
        name = b"joiner-%d" % number
        for page in pages:
            page.awaited = name
        node = RingNode(client, RING, name=name.decode(), ttl=60)
        began, spent = time.time(), cpu_time(pid)
        node.start()
        deadline = time.monotonic() + 30
        while not all(name in page.heard for page in pages) and time.monotonic() < deadline:
            gevent.sleep(0.01)
        delays += [page.heard.get(name, float("inf")) - began for page in pages]
        used += cpu_time(pid) - spent
        node.stop()
        gevent.sleep(0.5)
    say(
        "sent to a page, for a join and a leave",
        f"{(pages[0].bytes - before) / JOINS / 1000:.0f} kB",
    )
    say(f"processor time of a join, {len(pages)} pages", f"{used / JOINS * 1000:.0f} ms")
    say(f"a join reaches {len(pages)} pages, median", f"{median(delays) * 1000:.0f} ms")
    last = round(max(delays), 3)
    what, shown = f"a join reaches {len(pages)} pages, last", f"{last * 1000:.0f} ms"
    say(what, shown, value=last, unit="s", target="page-live")


def of_one_ring(client: Redis, url: str, nodes: int, most: int) -> None:
    """What pages of a ring cost."""
    fill(client, nodes)
    with serving(url) as (port, pid):
        gevent.sleep(2)
        say("ring", f"{nodes} x 16")
        page_loads(client, port)
        pages = page_counts(client, port, most)
        joins(client, pages, pid)
        for page in pages:
            page.close()


def of_many_rings(client: Redis, url: str, rings: int) -> None:
    """The processor time of the service that watches so many rings."""
    for number in range(rings):
        fill(client, 5, f"ring-{number:03}")
        client.set(f"{{ring-{number:03}}}:epoch", "1 ab")
    with serving(url) as (port, pid):
        while len(json.loads(ask(port, "/api/rings"))["rings"]) < rings:
            gevent.sleep(0.5)
        gevent.sleep(SETTLE)
        say("rings of 5 nodes", f"{rings}")
        for what, pages in (("no page", 0), ("the list open", 1)):
            opened = [Page(port, "", "/feed?since=") for _ in range(pages)]
            gevent.sleep(2)
            for changes in (0, 5):
                used = processor(client, pid, changes, rings)
                bound = "at most 20 %" if rings == 500 else ""
                say(f"processor, {what}, {changes} changes a second", f"{100 * used:.1f} %", bound)
            for page in opened:
                page.close()


def processor(client: Redis, pid: int, changes: int, rings: int) -> float:
    """The part of one core that the process uses, while so many rings change each second."""
    began, before = time.monotonic(), cpu_time(pid)
    number = 0
    while (passed := time.monotonic() - began) < SPAN:
        if number < passed * changes:
            number += 1
            node = RingNode(client, f"ring-{number * 7 % rings:03}", name="joiner", ttl=60)
            node.start()
            node.stop()
        else:
            gevent.sleep(0.02)
    return (cpu_time(pid) - before) / (time.monotonic() - began)


def main() -> None:
    parser = program.parser(__doc__)
    parser.add_argument("--nodes", type=int, default=200, help="on the ring; %(default)s")
    parser.add_argument("--pages", type=int, default=200, help="open at once; %(default)s")
    parser.add_argument("--rings", type=int, default=0, help="watched at once, instead of one")
    given = parser.parse_args()
    with RedisServer() as server, Redis(unix_socket_path=str(server.socket)) as client:
        if given.rings:
            of_many_rings(client, server.url, given.rings)
        else:
            of_one_ring(client, server.url, given.nodes, given.pages)
    program.tell(RESULT, given)


if __name__ == "__main__":
    main()
