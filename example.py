#!/usr/bin/env python
"""Split 100 accounts over as many processes as you start.

Start it in two or three terminals, then end one of them with Ctrl-C or kill -9:

  python example.py                      a node: prints its accounts whenever they change
  python example.py --print              the ring as it is now
  python example.py --nodes 3            three nodes, each a process of its own
  python example.py --keys accounts.txt  split the lines of a file instead

Without a Redis named, the processes on this machine share one that the first of them starts and
the last one ends. Here a node beats every second and expires after 3 seconds without a heartbeat,
so that you see takeovers soon. An application keeps the defaults, 10 and 60 seconds.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue

from redis import Redis

from hashring import HashringError, RingNode
from hashring.testing import shared_server

HEARTBEAT, TTL = 1, 3  # seconds
SHOWN = 100  # keys on a line of the log
STOP = {signal.SIGINT, signal.SIGTERM}


def run_node(redis: Redis, ring: str, keys: Sequence[object]) -> int:
    """Be a node, and log its keys whenever they change, until SIGINT or SIGTERM."""
    inbox: SimpleQueue[str] = SimpleQueue()
    for number in STOP:
        signal.signal(number, lambda *_: inbox.put("stop"))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*STOP, signal.SIGCHLD})
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
            mine = [key for key in keys if node.contains(str(key))]
            if inbox.empty() and mine != before:
                before = mine
                more = f" and {len(mine) - SHOWN} more" if len(mine) > SHOWN else ""
                logging.info("PID %d, %d keys (%s%s)", os.getpid(), len(mine), mine[:SHOWN], more)
    return 0


def wait(inbox: SimpleQueue[str]) -> str:
    while True:
        # Not for ever: a signal that comes just before a wait begins does not end it.
        with suppress(Empty):
            return inbox.get(timeout=1)


def run_nodes(count: int, run: Callable[[], int]) -> int:
    """Run so many processes until they end, or until a signal ends them all."""

    def child() -> None:
        threading.Thread(target=end_with_parent, daemon=True).start()
        sys.exit(run())

    # The signals are waited for, and never handled here. A child unblocks them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*STOP, signal.SIGCHLD})
    fork = multiprocessing.get_context("fork")
    # Daemons: they end if one that comes after them cannot be started.
    nodes = [fork.Process(target=child, daemon=True) for _ in range(count)]
    for node in nodes:
        node.start()
    stopping, alive = False, nodes
    while alive:
        if signal.sigwait({*STOP, signal.SIGCHLD}) in STOP:
            stopping = True
            for node in alive:
                node.terminate()
                os.kill(node.pid, signal.SIGCONT)  # a paused process cannot end
        ended = [node for node in alive if node.exitcode is not None]
        alive = [node for node in alive if node not in ended]
        for node in ended:
            if node.exitcode < 0 and not stopping:
                killer = signal.Signals(-node.exitcode).name
                logging.warning(
                    "PID %d was killed by %s; the others take over within %d s",
                    *(node.pid, killer, TTL + HEARTBEAT),
                )
    return int(any(node.exitcode for node in nodes) and not stopping)


def end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os.kill(os.getpid(), signal.SIGTERM)


class Log(logging.StreamHandler):
    """Standard error; the process leaves when nobody reads it any more (2>&1 | head)."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        os.kill(os.getpid(), signal.SIGTERM)


def number(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


def lines(name: str) -> list[str]:
    with open(0 if name == "-" else name, encoding="utf-8-sig") as file:
        try:
            return [line for line in file.read().split("\n") if line]
        except UnicodeDecodeError as error:
            raise ValueError(f"{name} is not UTF-8: {error}") from None


def client(url: str) -> Redis:
    try:
        if "@" in url.partition("?")[2]:
            raise ValueError
        return Redis.from_url(url)
    except ValueError:  # its text may have a part of the password
        raise ValueError(
            "--url cannot be read: give redis://user:password@host:port/db, and write /, ?, #, [ "
            "and ] in the password as %2F, %3F, %23, %5B and %5D, and @ in an option as %40"
        ) from None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--print", action="store_true", help="print the ring and end")
    parser.add_argument("--ring", default="ring", help="the ring's name (default: ring)")
    parser.add_argument("--url", help="of Redis: redis://user:password@host:port/db")
    parser.add_argument("--host", help="of Redis (default: localhost)")
    parser.add_argument("--port", type=number, help="of Redis (default: 6379)")
    parser.add_argument("--nodes", type=number, metavar="N", help="run N nodes, not one")
    parser.add_argument("--keys", metavar="FILE", help="one key a line; - is standard input")
    options = parser.parse_args()
    if options.url and (options.host or options.port):
        parser.error("give --url, or --host and --port, not both")

    logging.basicConfig(level=logging.INFO, handlers=[Log()])
    logging.getLogger("hashring").setLevel(logging.WARNING)
    with ExitStack() as stack:
        if options.url:
            redis = client(options.url)
        elif options.host or options.port:
            redis = Redis(options.host or "localhost", options.port or 6379)
        else:
            redis = Redis.from_url(stack.enter_context(shared_server()).url)
        observer = RingNode(redis, options.ring, name="observer")  # never joins
        if options.print:
            observer.debug_print()
            return 0
        keys = lines(options.keys) if options.keys else range(100)
        if options.nodes is None:
            return run_node(redis, options.ring, keys)
        observer.update()  # a fault of Redis is reported once, not by every process
        return run_nodes(
            options.nodes, lambda: guarded(lambda: run_node(redis, options.ring, keys))
        )


def guarded(run: Callable[[], int]) -> int:
    """Run it; if it fails, print why in one line."""
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
