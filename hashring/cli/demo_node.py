"""A node of ``hashring demo``: a process that says which of the keys are its own.

It reads one line of JSON from standard input: ``url``, ``ring``, ``name``, ``heartbeat``, ``ttl``
(seconds) and ``keys``. It writes a line of JSON whenever its keys have changed: ``at`` (seconds
of the machine's monotonic clock, which all processes share), ``keys`` (indexes into the given
ones), ``fences`` (how often it has fenced itself), and first of all one with ``started``. When
standard input ends, it leaves the ring and ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from queue import Empty, SimpleQueue
from typing import Any, Final

from redis import Redis

from hashring.errors import HashringError
from hashring.node.ring_node import RingNode

_LOOK: Final = 0.1  # seconds between two looks when nobody says that something changed


def main() -> int:
    """Run the node; the exit status."""
    # Blocked while we were started. SIGINT and SIGHUP stay so: a terminal sends them to all of its
    # processes, and they are for the one that plays the story.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    told = sys.stdin.buffer.readline()
    if not told:
        return 0  # the story was over before we came
    order: dict[str, Any] = json.loads(told)
    inbox: SimpleQueue[str] = SimpleQueue()

    def wait_for_the_end() -> None:
        # Not through sys.stdin: its lock, held here, would abort an end that comes first.
        while os.read(0, 4096):
            continue
        inbox.put("stop")

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    node = RingNode(
        Redis.from_url(order["url"]),
        order["ring"],
        name=order["name"],
        heartbeat_interval=order["heartbeat"],
        ttl=order["ttl"],
        on_change=lambda gained, lost: inbox.put("change"),
    )
    keys: list[str] = order["keys"]
    _say({"started": time.monotonic()})
    before: list[int] | None = None
    fences = 0
    try:
        with node:
            while True:
                # Asked as an application asks: whatever the protocol does, this is its outcome.
                mine = [index for index, key in enumerate(keys) if node.contains(key)]
                if mine != before or node.status.fences != fences:
                    before, fences = mine, node.status.fences
                    _say({"at": time.monotonic(), "keys": mine, "fences": fences})
                try:
                    if inbox.get(timeout=_LOOK) == "stop":
                        break
                except Empty:
                    continue
        _say({"at": time.monotonic(), "keys": [], "fences": fences})
    except HashringError as error:
        print(f"hashring demo: {order['name']}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Nobody listens: the story is over, and the node has left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)
