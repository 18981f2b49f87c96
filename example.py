#!/usr/bin/env python
"""Split 100 accounts over as many processes as you start.

Start it in two or three terminals, then end one of them with Ctrl-C or kill -9:

  python example.py                      a node: prints its accounts whenever they change
  python example.py --print              the ring as it is now
  python example.py --nodes 3            three nodes, each a process of its own
  python example.py --keys accounts.txt  split the lines of a file instead

Without a Redis named, the processes on this machine share one that comes with the first of them
and goes with the last. So that one sees things happen, a node here beats every second and is
given up after 3 seconds of silence; an application keeps the defaults, 10 and 60.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue
from zlib import crc32

from redis import Redis

from hashring import HashringError, RingNode
from hashring.cli.keylines import KeyFile
from hashring.cli.processes import STOP, run_processes
from hashring.store.embedded import shared_server

HEARTBEAT, TTL = 1, 3  # seconds
SHOWN = 100  # keys on a line of the log


def run_node(redis: Redis, ring: str, keys: Iterable[object]) -> int:
    """Be a node, and log its keys whenever they change, until SIGINT or SIGTERM."""
    inbox: SimpleQueue[str] = SimpleQueue()
    for number in STOP:
        signal.signal(number, lambda *_: inbox.put("stop"))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)
    node = RingNode(
        redis,
        ring,
        heartbeat_interval=HEARTBEAT,
        ttl=TTL,
        on_change=lambda gained, lost: inbox.put("change"),
    )
    before = None
    with node:
        while wait(inbox) == "change":
            count, checksum, shown = 0, 0, []
            for key in keys:
                if node.contains(str(key)):
                    count, checksum = count + 1, crc32(str(key).encode(), checksum)
                    shown += [key] if count <= SHOWN else []
                if not inbox.empty():
                    break  # changed again, or time to go: what we have is old
            else:
                if (count, checksum) != before:
                    before = count, checksum
                    more = f" and {count - SHOWN} more" if count > SHOWN else ""
                    logging.info("PID %d, %d keys (%s%s)", os.getpid(), count, shown, more)
    return 0


def wait(inbox: SimpleQueue[str]) -> str:
    while True:
        # Not for ever: a signal that comes just before a wait begins does not end it.
        with suppress(Empty):
            return inbox.get(timeout=1)


class Log(logging.StreamHandler):
    """Standard error; the process leaves when nobody reads it any more (2>&1 | head)."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        os.kill(os.getpid(), signal.SIGTERM)


def number(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--print", action="store_true", help="print the ring and end")
    parser.add_argument("--ring", default="ring", help="the ring's name (default: ring)")
    parser.add_argument("--url", help="where Redis is: redis://user:password@host:port/db")
    parser.add_argument("--host", help="where Redis is: its host (default: localhost)")
    parser.add_argument("--port", type=number, help="where Redis is: its port (default: 6379)")
    parser.add_argument("--nodes", type=number, metavar="N", help="run N nodes, not one")
    parser.add_argument("--keys", metavar="FILE", help="one key a line; - is standard input")
    options = parser.parse_args()
    if options.url and (options.host or options.port):
        parser.error("give --url, or --host and --port, not both")

    logging.basicConfig(level=logging.INFO, handlers=[Log()])
    logging.getLogger("hashring").setLevel(logging.WARNING)
    with ExitStack() as stack:
        if options.url:
            redis = Redis.from_url(options.url)
        elif options.host or options.port:
            redis = Redis(options.host or "localhost", options.port or 6379)
        else:
            redis = Redis.from_url(stack.enter_context(shared_server()).url)
        observer = RingNode(redis, options.ring, name="observer")  # never joins
        if options.print:
            observer.debug_print()
            return 0
        keys: Iterable[object] = range(100)
        if options.keys:
            file = stack.enter_context(KeyFile(options.keys))
            file.check(logging.warning)
            keys = file
        if options.nodes is None:
            return run_node(redis, options.ring, keys)
        observer.update()  # what is wrong with Redis is said here, and not by every process
        return run_processes(
            options.nodes, lambda: guarded(lambda: run_node(redis, options.ring, keys)), lost
        )


def lost(pid: int, killer: str) -> None:
    wait = TTL + HEARTBEAT
    logging.warning("PID %d was killed by %s; the others take over within %d s", pid, killer, wait)


def guarded(run: Callable[[], int]) -> int:
    """Run it; where it fails, say why in one line."""
    try:
        return run()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    except (HashringError, OSError, ValueError) as error:
        print(f"example.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(guarded(main))
