"""What the service costs.

    python scripts/bench/service.py
    python scripts/bench/service.py --nodes 50 --pages 20
    python scripts/bench/service.py --rings 500

A ring of 200 nodes with 16 replicas, a real Redis and ``hashring serve`` as a process: how long a
page takes, how long a join takes to reach 200 open pages, and how much of Redis one page and 200
pages use. With ``--rings``: the processor time of the service with so many rings of five nodes, at
rest and with a change of five of them each second, without a page and with the list open.
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
SPAN = 5.0  # seconds over which Redis' commands are counted
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
        self.connection.close()


def page_loads(port: int) -> None:
    taken = []
    for _ in range(LOADS):
        gevent.sleep(0.05)
        began = time.perf_counter()
        body = ask(port, f"/ring?name={RING}")
        taken.append((time.perf_counter() - began) * 1000)
    say("page", f"{len(body) / 1000:.0f} kB")
    middle = round(median(taken), 1)
    say("page load, median", f"{middle} ms", value=middle, unit="ms", target="page")
    say("page load, worst of twenty", f"{sorted(taken)[-len(taken) // 20]:.1f} ms")


def version(port: int) -> str:
    return re.search(rb'data-version="([^"]*)"', ask(port, f"/ring?name={RING}"))[1].decode()


def commands(client: Redis) -> float:
    """Commands a second that Redis was asked; this question's own are left out."""
    before = client.info("stats")["total_commands_processed"]
    gevent.sleep(SPAN)
    return (client.info("stats")["total_commands_processed"] - before - 1) / SPAN


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


def of_one_ring(client: Redis, url: str, nodes: int, open_pages: int) -> None:
    """What pages of a ring cost."""
    fill(client, nodes)
    with serving(url) as (port, pid):
        gevent.sleep(2)
        say("ring", f"{nodes} x 16")
        page_loads(port)
        one = [Page(port, version(port))]
        few = commands(client)
        say("commands a second, 1 page open", f"{few:.1f}")
        pages = [*one, *(Page(port, version(port)) for _ in range(open_pages - 1))]
        many = commands(client)
        say(f"commands a second, {len(pages)} pages open", f"{many:.1f}")
        what = "commands a second, many pages against one"
        say(what, "", value=many / few, target="page-load")
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
    while (passed := time.monotonic() - began) < SPAN * 3:
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
