"""What a test may ask of a host about locks; a part of ``tests.host_process``.

Each answers the same whatever runs the node: where a node's method is a coroutine function, so is
the answer here.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hashring.errors import HashringError


@dataclass
class Load:
    """What the workers of one hammer share."""

    node: Any
    keys: list[str]
    rounds: int
    enough: int
    found: list[Any] = field(default_factory=list)
    most: int = 0

    def turns(self) -> Iterator[None]:
        """As many as asked for, and more until enough was held by all workers together."""
        for turn in itertools.count():
            if turn >= self.rounds and len(self.found) >= self.enough:
                return
            yield


class LockRequests:
    """See the module's text. The host gives ``nodes``, and how it spawns and sleeps."""

    nodes: dict[str, Any]
    asynchronous: bool

    def __init__(self) -> None:
        super().__init__()
        self.leases: dict[str, tuple[Any, Any]] = {}

    def spawn(self, target: Any) -> Any:
        """Begin to call; the answer's ``join()`` waits for its end."""
        raise NotImplementedError

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    # --- leases -----------------------------------------------------------------------------------

    def hold(self, node: str, lease: str, key: str, timeout: float = 0.0) -> Any:
        """Enter ``with node.hold(key)``, and stay inside until :meth:`finish`."""
        manager = self.nodes[node].hold(key, timeout=timeout)
        if self.asynchronous:
            return self._hold_async(manager, lease)
        entered = manager.__enter__()
        self.leases[lease] = manager, entered
        return entered.token

    async def _hold_async(self, manager: Any, lease: str) -> Any:
        entered = await manager.__aenter__()
        self.leases[lease] = manager, entered
        return entered.token

    def finish(self, lease: str) -> Any:
        manager, _ = self.leases[lease]
        if self.asynchronous:
            return manager.__aexit__(None, None, None)
        return manager.__exit__(None, None, None)

    def lease(self, lease: str) -> dict[str, Any]:
        _, entered = self.leases[lease]
        return {
            "token": entered.token,
            "lost": entered.lost.is_set(),
            "revoked": entered.revoked.is_set(),
            "left": entered.deadline - time.monotonic(),
        }

    def check(self, lease: str) -> None:
        self.leases[lease][1].check()

    def same(self, first: str, second: str) -> bool:
        return self.leases[first][1] is self.leases[second][1]

    def wait(self, lease: str, event: str) -> Any:
        """Wait for an event of the lease, as the user's code would."""
        return getattr(self.leases[lease][1], event).wait()

    def long_ago(self, node: str, keys: list[str]) -> None:
        """As if nobody had asked for these keys for longer than any idle time."""
        for key in keys:
            self.nodes[node]._machine.book.held[key.encode()].asked = float("-inf")

    # --- load -------------------------------------------------------------------------------------

    def hold_at_once(self, node: str, keys: list[str]) -> Any:
        """Hold each of the keys in a worker of its own; how many were held."""
        if self.asynchronous:
            return self._hold_at_once_async(node, keys)
        held: list[str] = []

        def work(key: str) -> None:
            with contextlib.suppress(HashringError), self.nodes[node].hold(key):
                held.append(key)

        for each in [self.spawn(lambda key=key: work(key)) for key in keys]:
            each.join()
        return len(held)

    async def _hold_at_once_async(self, node: str, keys: list[str]) -> int:
        async def work(key: str) -> bool:
            with contextlib.suppress(HashringError):
                async with self.nodes[node].hold(key):
                    return True
            return False

        return sum(await asyncio.gather(*map(work, keys)))

    def hammer(  # noqa: PLR0917 - as it is asked for
        self, node: str, keys: list[str], workers: int, rounds: int, enough: int, seed: int
    ) -> Any:
        """Ask from many workers at once; what each held, and from when to when.

        The answer is a list of ``(key, token, start, end)`` in seconds of the machine's monotonic
        clock: the lease was given before the start, and its check passed at the end; and the
        greatest number of keys that the node held.
        """
        rngs = [random.Random(seed * 1000 + worker) for worker in range(workers)]
        load = Load(self.nodes[node], keys, rounds, enough)
        if self.asynchronous:
            return self._hammer_async(load, rngs)
        spawned = [self.spawn(lambda rng=rng: self._work(load, rng)) for rng in rngs]
        for each in spawned:
            each.join()
        return [load.found, load.most]

    def _work(self, load: Load, rng: random.Random) -> None:
        node = load.node
        for _ in load.turns():
            load.most = max(load.most, node.status.held)
            key, kind = rng.choice(load.keys), rng.random()
            if kind < 0.4:
                node.contains(key)
            elif kind < 0.6:
                node.select(rng.sample(load.keys, 10))
            else:
                try:
                    with node.hold(key, timeout=rng.choice((0.0, 0.0, 0.02))) as lease:
                        start = time.monotonic()
                        self.sleep(rng.random() * 0.004)
                        end = time.monotonic()
                        lease.check()
                        load.found.append((key, lease.token, start, end))
                except HashringError:
                    self.sleep(0.001)

    async def _hammer_async(self, load: Load, rngs: list[random.Random]) -> Any:
        await asyncio.gather(*(self._work_async(load, rng) for rng in rngs))
        return [load.found, load.most]

    async def _work_async(self, load: Load, rng: random.Random) -> None:
        node = load.node
        for _ in load.turns():
            load.most = max(load.most, node.status.held)
            key, kind = rng.choice(load.keys), rng.random()
            if kind < 0.4:
                node.contains(key)
                await asyncio.sleep(0)
            elif kind < 0.6:
                await node.select(rng.sample(load.keys, 10))
            else:
                try:
                    async with node.hold(key, timeout=rng.choice((0.0, 0.0, 0.02))) as lease:
                        start = time.monotonic()
                        await asyncio.sleep(rng.random() * 0.004)
                        end = time.monotonic()
                        lease.check()
                        load.found.append((key, lease.token, start, end))
                except HashringError:
                    await asyncio.sleep(0.001)
