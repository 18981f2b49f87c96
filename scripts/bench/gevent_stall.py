#!/usr/bin/env python
"""How long gevent's hub stands still while Redis answers 500 ms late, without monkey-patching.

    python scripts/bench/gevent_stall.py

A greenlet notes the time every millisecond; the longest gap is the stall. Redis is made to sleep
for half a second again and again. Ours is a node started with ``gevent_start()``; the other line
is the same heartbeats made directly from a greenlet, as code that knows nothing of gevent does.
"""

from __future__ import annotations

import argparse
import threading
import time

import gevent
from redis import Redis

from hashring import RingNode
from hashring.store.embedded_server import RedisServer

SECONDS = 6.0
LATE = 0.5


def longest_gap(seconds: float) -> float:
    """The longest time between two turns of a greenlet that wants one every millisecond."""
    worst, last = 0.0, time.perf_counter()
    end = last + seconds
    while last < end:
        gevent.sleep(0.001)
        now = time.perf_counter()
        worst, last = max(worst, now - last), now
    return worst


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    with RedisServer() as server:
        stop = threading.Event()

        def delay() -> None:
            with Redis.from_url(server.url) as slow:
                while not stop.wait(0.2):
                    slow.client_pause(int(LATE * 1000))
                    time.sleep(LATE)

        slowing = threading.Thread(target=delay)
        slowing.start()
        try:
            node = RingNode(Redis.from_url(server.url), "stall", ttl=20, heartbeat_interval=0.3)
            node.gevent_start()
            ours = longest_gap(SECONDS)
            beats = node.status.heartbeats
            node.gevent_stop()

            direct = RingNode(Redis.from_url(server.url), "direct", ttl=20, heartbeat_interval=0.3)

            def beat() -> None:
                while True:
                    direct.heartbeat()
                    gevent.sleep(0.3)

            beating = gevent.spawn(beat)
            theirs = longest_gap(SECONDS)
            beating.kill()
        finally:
            stop.set()
            slowing.join()
    print(f"gevent_start(), {beats} heartbeats: longest stall {ours * 1e3:6.1f} ms")
    print(f"heartbeats made in the hub's thread:  longest stall {theirs * 1e3:6.1f} ms")


if __name__ == "__main__":
    main()
