"""A process that runs nodes as a user would, and writes down what they answer.

``python -m tests.chaos.worker JSON`` with the fields of :class:`Job`. It asks its nodes about
every key every ``interval`` seconds, and appends JSON lines to ``out``, unbuffered, so that
SIGKILL loses none. Signals are all that it can be told:

- SIGTERM: stop the nodes and end.
- SIGHUP: restart the nodes, one after another.
- SIGUSR1: burn CPU for ``burn`` seconds, asking on.
- SIGUSR2: the wall clock (``time.time``) is off by ``clock_offset`` seconds from now on.

The same code runs with and without an event loop: without one, nothing in it ever waits, except
in :func:`pause`.
"""

from __future__ import annotations

import json
import sys

if __name__ == "__main__":
    _KIND = json.loads(sys.argv[1])["kind"]
    if _KIND == "gevent":
        from gevent import monkey

        monkey.patch_all()

import asyncio
import gc
import inspect
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

from hashring import AsyncRingNode, HashringError, RingNode, StaleToken
from hashring.fencing import RedisFence

PEER = "redis-hashring"
KINDS = ("thread", "gevent", "asyncio", PEER)
_RETRY = 0.2  # seconds until a node that could not start is started again, as a supervisor would


@dataclass(frozen=True)
class Job:
    """What a worker is to do.

    Attributes:
        kind: one of :data:`KINDS`.
        name: of the worker; its nodes are ``name-0``, ``name-1``...
        url: of Redis; unused with ``sentinels``.
        sentinels: ports of Sentinels that know the primary ``ours``.
        fence: url of the resource that locked nodes write to, and which checks their tokens.
        out: the file to write to.
        report: seconds between reports of resources; 0 for none.
    """

    kind: str
    name: str
    url: str
    ring: str
    out: str
    nodes: int = 1
    keys: int = 64
    interval: float = 0.02
    ttl: float = 3.0
    heartbeat: float = 0.5
    lock: bool = False
    fence: str = ""
    sentinels: tuple[int, ...] = ()
    burn: float = 0.0
    clock_offset: float = 0.0
    report: float = 0.0

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def key_names(count: int) -> list[str]:
    return [f"account-{number}" for number in range(count)]


class _Pause:
    """Awaited without an event loop: :func:`run_blocking` sleeps for it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __await__(self) -> Generator[float, None, None]:
        yield self.seconds


def run_blocking(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that awaits only :class:`_Pause`."""
    while True:
        try:
            seconds = coroutine.send(None)
        except StopIteration:
            return
        time.sleep(seconds)


async def done(value: Any) -> Any:
    """What a call of either kind of node gives."""
    return await value if inspect.isawaitable(value) else value


class Worker:
    """See the module's text."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.asynchronous = job.kind == "asyncio"
        self.peer = job.kind == PEER
        self.keys = key_names(job.keys)
        self.out = os.open(job.out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.nodes: list[Any] = [None] * job.nodes
        self.asked: set[int] = set()
        self.turn = 0
        self.reported = 0.0
        self.offset = 0.0
        self.pause: Callable[[float], Awaitable[Any]] = (
            asyncio.sleep if self.asynchronous else _Pause
        )
        self.resource = redis.Redis.from_url(job.fence) if job.fence else None
        self._watch_escapes()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, lambda number, _: self.asked.add(number))

    # --- what is written down -----------------------------------------------------------------

    def tell(self, *line: Any) -> None:
        os.write(self.out, json.dumps(line).encode() + b"\n")

    def escaped(self, where: str, error: object) -> None:
        self.tell("escaped", time.monotonic(), where, repr(error)[:300])

    def _watch_escapes(self) -> None:
        threading.excepthook = lambda args: self.escaped("thread", args.exc_value)
        sys.unraisablehook = lambda args: self.escaped("unraisable", args.exc_value)
        if self.job.kind == "gevent":
            import gevent  # noqa: PLC0415

            gevent.get_hub().print_exception = lambda _c, _k, error, _t: self.escaped(
                "greenlet", error
            )

    # --- nodes --------------------------------------------------------------------------------

    def client(self) -> Any:
        module: Any = redis.asyncio if self.asynchronous else redis
        if self.job.sentinels:
            addresses = [("127.0.0.1", port) for port in self.job.sentinels]
            return module.sentinel.Sentinel(addresses, socket_timeout=1).master_for("ours")
        return module.Redis.from_url(self.job.url)

    def make(self) -> Any:
        job = self.job
        if self.peer:
            import redis_hashring  # noqa: PLC0415

            # Its timers are constants of the module, read whenever they are used. All are
            # shortened by the same factor, so that their proportions are as shipped.
            factor = job.ttl / 60
            redis_hashring.NODE_TIMEOUT_SECONDS = 60 * factor
            redis_hashring.POLL_INTERVAL_SECONDS = 10 * factor
            redis_hashring.CLEANUP_INTERVAL_SECONDS = 120 * factor
            return redis_hashring.RingNode(self.client(), job.ring)
        kind = AsyncRingNode if self.asynchronous else RingNode
        return kind(
            self.client(),
            job.ring,
            ttl=job.ttl,
            heartbeat_interval=job.heartbeat,
            lock=job.lock,
        )

    async def start(self, number: int) -> None:
        while signal.SIGTERM not in self.asked:
            node = self.make()
            self.nodes[number] = node
            try:
                await done(node.gevent_start() if self.job.kind == "gevent" else node.start())
            except Exception as error:  # noqa: BLE001 - a supervisor tries again whatever it was
                self.tell("not started", time.monotonic(), repr(error)[:300])
                self.nodes[number] = None
                await self.pause(_RETRY)
                continue
            self.tell("live", time.monotonic(), number, None if self.peer else node.name)
            return

    async def stop(self, number: int) -> None:
        node, self.nodes[number] = self.nodes[number], None
        if node is None:
            return
        try:
            await done(node.gevent_stop() if self.job.kind == "gevent" else node.stop())
        except Exception as error:  # noqa: BLE001 - that is what we look for
            self.escaped("stop", error)

    # --- work ---------------------------------------------------------------------------------

    async def ask(self, number: int) -> None:
        """One round of questions to one node."""
        node = self.nodes[number]
        begun = time.monotonic()
        mask = 0
        try:
            if node is None:
                pass
            elif self.job.lock:
                mine = set(await done(node.select(self.keys)))
                mask = sum(1 << bit for bit, key in enumerate(self.keys) if key in mine)
            else:
                for bit, key in enumerate(self.keys):
                    if node.contains(key):
                        mask |= 1 << bit
        except Exception as error:  # noqa: BLE001 - that is what we look for
            self.escaped("contains", error)
        self.tell(number, begun, time.monotonic(), f"{mask:x}")
        if self.job.lock and mask:
            await self.write(number, node, mask)

    async def write(self, number: int, node: Any, mask: int) -> None:
        """Work on one of the keys: hold it, and write with its token."""
        mine = [key for bit, key in enumerate(self.keys) if mask >> bit & 1]
        key = mine[self.turn % len(mine)]
        self.turn += 1
        try:
            if self.asynchronous:
                async with node.hold(key) as lease:
                    begun = time.monotonic()
                    await self.pause(self.job.interval)
                    call = partial(self.write_fenced, number, key, lease.token)
                    await asyncio.get_running_loop().run_in_executor(None, call)
                    self.held(number, key, begun, lease)
            else:
                with node.hold(key) as lease:
                    begun = time.monotonic()
                    await self.pause(self.job.interval)
                    self.write_fenced(number, key, lease.token)
                    self.held(number, key, begun, lease)
        except StaleToken:
            self.tell("refused", time.monotonic(), key)
        except HashringError as error:
            self.tell("not held", time.monotonic(), key, repr(error)[:300])
        except Exception as error:  # noqa: BLE001 - that is what we look for
            self.escaped("hold", error)

    def write_fenced(self, number: int, key: str, token: int) -> None:
        words = json.dumps([key, token, f"{self.job.name}-{number}"])
        ring = self.job.ring
        RedisFence(self.resource).write(f"{ring}:{key}", token, ["RPUSH", f"{ring}:writes", words])

    def held(self, number: int, key: str, begun: float, lease: Any) -> None:
        """Write down from when to when a key was held, at most until the lease's own deadline."""
        ended = min(time.monotonic(), lease.deadline)
        if ended > begun:  # a lost lease has no deadline
            self.tell("held", key, lease.token, f"{self.job.name}-{number}", begun, ended)

    def report(self) -> None:
        """What a leak would make grow."""
        if not self.job.report or time.monotonic() < self.reported + self.job.report:
            return
        self.reported = time.monotonic()
        gc.collect()
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        counts = {
            "resident": resident,
            "descriptors": len(os.listdir("/proc/self/fd")),
            "threads": len(os.listdir("/proc/self/task")),
        }
        if self.asynchronous:
            counts["tasks"] = len(asyncio.all_tasks())
        if self.job.kind == "gevent":
            from greenlet import greenlet  # noqa: PLC0415

            counts["greenlets"] = sum(
                isinstance(thing, greenlet) and not thing.dead for thing in gc.get_objects()
            )
        self.tell("resources", self.reported, counts)

    async def burn(self) -> None:
        """What a loop that never waits does to everything else in the process."""
        until = time.monotonic() + self.job.burn
        threads = []
        if self.job.kind in ("thread", PEER):
            threads = [threading.Thread(target=_spin, args=(until,)) for _ in range(2)]
            for thread in threads:
                thread.start()
        while time.monotonic() < until:
            _spin(time.monotonic() + self.job.interval)
            for number in range(len(self.nodes)):
                if not self.job.lock:
                    await self.ask(number)
        for thread in threads:
            thread.join()

    def set_clock(self) -> None:
        real = time.time
        self.offset = self.job.clock_offset
        time.time = lambda: real() + self.offset

    async def main(self) -> None:
        if self.asynchronous:
            asyncio.get_running_loop().set_exception_handler(
                lambda _loop, context: self.escaped("task", context)
            )
        for number in range(len(self.nodes)):
            self.tell(number, time.monotonic(), time.monotonic(), "0")
        for number in range(len(self.nodes)):
            await self.start(number)
        while signal.SIGTERM not in self.asked:
            for number in range(len(self.nodes)):
                await self.ask(number)
            self.report()
            for asked in tuple(self.asked):
                self.asked.discard(asked)
                if asked == signal.SIGUSR1:
                    await self.burn()
                elif asked == signal.SIGUSR2:
                    self.set_clock()
                elif asked == signal.SIGHUP:
                    await self.restart_all()
                else:
                    self.asked.add(asked)
            await self.pause(self.job.interval)
        for number in range(len(self.nodes)):
            self.tell(number, time.monotonic(), time.monotonic(), "0")
            await self.stop(number)
        self.tell("ended", time.monotonic())

    async def restart_all(self) -> None:
        for number in range(len(self.nodes)):
            await self.stop(number)
            await self.ask(number)
            await self.start(number)
            for each in range(len(self.nodes)):
                await self.ask(each)
        self.tell("restarted", time.monotonic())


def _spin(until: float) -> None:
    while time.monotonic() < until:
        sum(range(1000))


def main() -> None:
    fields = json.loads(sys.argv[1])
    job = Job(**{**fields, "sentinels": tuple(fields["sentinels"])})
    if job.kind == "asyncio":
        asyncio.run(Worker(job).main())
    else:
        run_blocking(Worker(job).main())


if __name__ == "__main__":
    main()
