"""A fleet of workers on a real Redis, each behind a proxy of its own, and what can be done to it.

A fleet has a server (with a replica and Sentinels where asked for), and workers. It notes when it
did what, on the clock that the workers use.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from hashring.store.command import Command
from hashring.store.embedded_server import RedisServer
from hashring.store.redis_store import RedisStore
from tests.chaos.history import Cut, Hold, Life, Sweep, Write
from tests.chaos.worker import PEER, Job
from tests.proxy import Proxy

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
"""Seconds until a process that does not start, or does not end, counts as a failure."""

T = TypeVar("T")

_MINE = itertools.count()


class FleetError(Exception):
    """The fleet did not get where it should be in time."""


@dataclass(frozen=True)
class Timing:
    """What all nodes are set to, in seconds."""

    ttl: float = 3.0
    heartbeat: float = 0.5
    interval: float = 0.02

    @property
    def window(self) -> float:
        """The announced propagation window: a node knows of a change at the latest after this.

        One heartbeat, the moment that a message may be late, and a fetch: the bound that
        ``hashring.testing.simulator.ring.node_rules`` checks in virtual time, with 0.15 s for
        calls.
        """
        return self.heartbeat + 1.5 * min(0.25, 0.25 * self.heartbeat) + 0.15


@dataclass(frozen=True)
class Variant:
    """What the nodes are: a name for people, the kinds of worker taken in turn, locks or not."""

    name: str
    kinds: tuple[str, ...]
    lock: bool = False

    @property
    def peer(self) -> bool:
        return PEER in self.kinds


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("threads", ("thread",)),
        Variant("gevent", ("gevent",)),
        Variant("asyncio", ("asyncio",)),
        Variant("locks", ("thread", "gevent", "asyncio"), lock=True),
        Variant(PEER, (PEER,)),
    )
}


@dataclass
class Worker:
    """A worker process, from outside. A veteran is neither killed nor stopped by a fault."""

    job: Job
    process: subprocess.Popen[bytes]
    proxy: Proxy | None
    file: Path
    veteran: bool
    cuts: list[Cut] = field(default_factory=list)
    stopped_at: float | None = None

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def lines(self) -> list[list[Any]]:
        """What it has written; a line that SIGKILL cut short is left out."""
        text = self.file.read_text() if self.file.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("]")]

    def told(self, what: str) -> int:
        return sum(line[0] == what for line in self.lines())


class Fleet:
    """``with Fleet(variant, ...) as fleet``: servers and proxies run; workers are added.

    Args:
        resource: the url of a Redis that no fault touches, for fenced writes.
        topology: ``"single"``; ``"replica"``: with a replica; ``"sentinel"``: and a Sentinel,
            through which the workers find the primary, without a proxy.
        program: the Redis server.
    """

    def __init__(
        self,
        variant: Variant,
        timing: Timing,
        *,
        resource: str = "",
        topology: str = "single",
        program: Path | None = None,
        seed: int = 0,
        report: float = 0.0,
    ) -> None:
        self.variant = variant
        self.timing = timing
        self.rng = Random(seed)
        self.workers: list[Worker] = []
        self.marks: list[tuple[float, str]] = []
        self._resource = resource
        self._topology = topology
        self._program = program
        self._report = report
        self._stack = ExitStack()
        self.ring = f"ring-{os.getpid()}-{next(_MINE)}"
        self._sentinels: tuple[int, ...] = ()

    def __enter__(self) -> Fleet:
        try:
            self._setup()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _setup(self) -> None:
        self.directory = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-"))
        )
        self.server = self._server()
        self.redis = self._client(self.server)
        self.upstream: Path | tuple[str, int] = self.server.socket
        if self._topology == "single":
            return
        # Through a proxy, so that what is not yet replicated can be kept from the replica.
        self.replication = self._stack.enter_context(Proxy(("127.0.0.1", self.server.port or 0)))
        self.replica = self._server(f"replicaof 127.0.0.1 {self.replication.port}")
        replica = self._client(self.replica)
        until(lambda: replica.info("replication")["master_link_status"] == "up", "it replicates")
        if self._topology == "sentinel":
            self._start_sentinel()

    def _start_sentinel(self) -> None:
        # Only one: of several, the vote may be split, and the next one is two timeouts later. The
        # timeout is long, because when it has passed Sentinel points a replica to the address
        # at which it knows the primary itself.
        sentinel = self._server(
            f"sentinel monitor ours 127.0.0.1 {self.server.port} 1",
            "sentinel down-after-milliseconds ours 500",
            "sentinel failover-timeout ours 60000",
        )
        self.sentinel = self._client(sentinel)
        until(lambda: self.sentinel.sentinel_master("ours")["num-slaves"] == 1, "it is found")
        self._sentinels = (sentinel.port or 0,)

    def _server(self, *config: str) -> RedisServer:
        port = None if self._topology == "single" else 0
        made = RedisServer(self._program, port=port, config=config)
        return self._stack.enter_context(made)

    def _client(self, server: RedisServer) -> Redis:
        client = Redis(unix_socket_path=str(server.socket))
        self._stack.callback(client.close)
        return client

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.wait()
            if worker.proxy is not None:
                worker.proxy.stop()
        self._stack.close()

    # --- workers ------------------------------------------------------------------------------

    def add(
        self, count: int = 1, *, wait: bool = True, veteran: bool = False, **changes: Any
    ) -> list[Worker]:
        """Start workers, each with one node unless told otherwise, and wait until they own keys."""
        made = [self._add(veteran, changes) for _ in range(count)]
        if wait:
            self.wait_live(made)
        return made

    def _add(self, veteran: bool, changes: dict[str, Any]) -> Worker:
        number = len(self.workers)
        proxy = None if self._sentinels else Proxy(self.upstream)
        job = Job(
            kind=self.variant.kinds[number % len(self.variant.kinds)],
            name=f"w{number}",
            url=proxy.url if proxy else "",
            ring=self.ring,
            out=str(self.directory / f"w{number}"),
            interval=self.timing.interval,
            ttl=self.timing.ttl,
            heartbeat=self.timing.heartbeat,
            lock=self.variant.lock,
            fence=self._resource if self.variant.lock else "",
            sentinels=self._sentinels,
            burn=self.timing.ttl + 1,
            clock_offset=(120.0, -120.0, 0.0)[number % 3],
            report=self._report,
        )
        job = replace(job, **changes)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.worker", job.as_json()],
            cwd=ROOT,
            start_new_session=True,
            # redis-hashring's dying thread and the like: the history has it.
            stderr=subprocess.DEVNULL,
        )
        worker = Worker(job, process, proxy, Path(job.out), veteran)
        self.workers.append(worker)
        return worker

    def wait_live(self, workers: list[Worker]) -> None:
        until(
            lambda: all(worker.told("live") >= worker.job.nodes for worker in workers),
            "the workers' nodes are on the ring",
        )

    @property
    def running(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.alive]

    def victim(self) -> Worker:
        """A running worker, by the fleet's own chance."""
        return self.rng.choice(self.running)

    def mortal(self, spared: Worker | None = None) -> Worker:
        """The same, of those that are no veterans, and not the one that is spared."""
        return self.rng.choice([w for w in self.running if not w.veteran and w is not spared])

    # --- what can be done to them -------------------------------------------------------------

    def names(self) -> dict[str, str]:
        """The name on the ring of each running node, by that in the histories."""
        return {
            f"{worker.job.name}-{line[2]}": line[3]
            for worker in self.running
            for line in worker.lines()
            if line[0] == "live"
        }

    def run(self, command: Command[T]) -> T:
        """Run a command of this library on Redis, past the proxies."""
        return RedisStore(self.redis, PATIENCE).run(command)

    def kill(self, worker: Worker) -> None:
        """SIGKILL. It may have run on until now, and not longer."""
        worker.process.kill()
        worker.process.wait()
        worker.cuts.append((time.monotonic(), float("inf")))

    def pause(self, worker: Worker) -> None:
        """SIGSTOP; returns when the process stands still."""
        os.kill(worker.process.pid, signal.SIGSTOP)
        os.waitpid(worker.process.pid, os.WUNTRACED)
        worker.stopped_at = time.monotonic()

    def resume(self, worker: Worker) -> None:
        """SIGCONT. It counts as stopped until now, that is, not longer than it was."""
        assert worker.stopped_at is not None
        worker.cuts.append((worker.stopped_at, time.monotonic()))
        worker.stopped_at = None
        os.kill(worker.process.pid, signal.SIGCONT)

    def stop(self, worker: Worker) -> None:
        """SIGTERM, and wait for its end."""
        worker.process.terminate()
        try:
            worker.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            name = worker.job.name
            raise FleetError(f"{name} did not end within {PATIENCE:g} s of SIGTERM") from None
        worker.cuts.append((time.monotonic(), float("inf")))

    def tell(self, worker: Worker, number: signal.Signals) -> None:
        worker.process.send_signal(number)

    def restart_nodes(self, worker: Worker) -> None:
        """Have it restart its nodes one after another, and wait until it has."""
        before = worker.told("restarted")
        self.tell(worker, signal.SIGHUP)
        until(lambda: worker.told("restarted") > before, "the nodes are restarted", 0.1)

    def wait_promoted(self) -> None:
        """Wait until Sentinel says that the replica is the primary, and so does it."""
        replica = self._client(self.replica)
        until(
            lambda: (
                self.sentinel.sentinel_master("ours")["port"] == self.replica.port
                and _role(replica) == "master"
            ),
            "the replica takes over",
        )
        self.redis = replica

    def promote(self) -> None:
        """Let replica and primary change roles. The proxies stay as they are."""
        replica = self._client(self.replica)
        replica.replicaof("NO", "ONE")
        self.redis.replicaof("127.0.0.1", str(self.replica.port))
        self.upstream, self.redis = self.replica.socket, replica

    def mark(self, what: str) -> float:
        now = time.monotonic()
        self.marks.append((now, what))
        return now

    def marked(self, what: str) -> float:
        """When it was last marked."""
        return max(at for at, name in self.marks if name == what)

    # --- what they wrote ----------------------------------------------------------------------

    def lives(self) -> list[Life]:
        found = []
        for worker in self.workers:
            sweeps: dict[int, list[Sweep]] = {n: [] for n in range(worker.job.nodes)}
            live: dict[int, float] = {}
            for line in worker.lines():
                if isinstance(line[0], int):
                    sweeps[line[0]].append(Sweep(line[1], line[2], int(line[3], 16)))
                elif line[0] == "live":
                    live.setdefault(line[2], line[1])
            found += [
                Life(
                    f"{worker.job.name}-{number}",
                    each,
                    worker.cuts,
                    live.get(number, float("inf")),
                )
                for number, each in sweeps.items()
            ]
        return found

    def save(self, directory: Path) -> None:
        """Keep what the workers wrote, and what was done to them when."""
        directory.mkdir(parents=True, exist_ok=True)
        for worker in self.workers:
            if worker.file.exists():
                (directory / worker.file.name).write_bytes(worker.file.read_bytes())
        done = sorted(
            [*self.marks, *((at, f"{w.job.name} cut") for w in self.workers for at, _ in w.cuts)]
        )
        (directory / "marks").write_text("".join(f"{at:.3f} {what}\n" for at, what in done))

    def escaped(self) -> list[str]:
        """Exceptions that reached the user, and processes that ended by themselves."""
        found = [
            f"{worker.job.name} ({worker.job.kind}), {line[2]}: {line[3]}"
            for worker in self.workers
            for line in worker.lines()
            if line[0] == "escaped"
        ]
        found += [
            f"{worker.job.name} ({worker.job.kind}) ended with {worker.process.returncode}"
            for worker in self.workers
            if not worker.alive and not any(end == float("inf") for _, end in worker.cuts)
        ]
        return found

    def count(self, what: str) -> int:
        return sum(worker.told(what) for worker in self.workers)

    def holds(self) -> list[Hold]:
        """Which keys were held in leases, and when."""
        return [
            Hold(*line[1:])
            for worker in self.workers
            for line in worker.lines()
            if line[0] == "held"
        ]

    def writes(self) -> list[Write]:
        """What this fleet wrote to the resource, in the resource's order."""
        if not self._resource:
            return []
        with Redis.from_url(self._resource) as client:
            return [
                Write(*json.loads(words)) for words in client.lrange(f"{self.ring}:writes", 0, -1)
            ]


def _role(client: Redis) -> str:
    try:
        return str(client.info("replication")["role"])
    except RedisConnectionError:
        return ""  # it drops its clients when it becomes the primary


def until(holds: Callable[[], object], what: str, pause: float = 0.05) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise FleetError(f"not within {PATIENCE:g} s: {what}")
        time.sleep(pause)
