"""What a loop does for a machine, whatever the loop and whatever the machine: on a real Redis."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any, TypeVar

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from hashring.core.assignors import BalancedAssignor
from hashring.core.groups.faithful_challenge import FaithfulChallengeSpans
from hashring.core.groups.lease_challenge import LeaseChallengeRules
from hashring.core.groups.partition_change import PartitionChangeKind
from hashring.core.groups.state import Terms
from hashring.core.hashing import hash_algorithm
from hashring.protocol.group.base_member_machine import BaseMemberMachine, Stage
from hashring.protocol.group.faithful_challenge_machine import FaithfulChallengeMachine
from hashring.protocol.group.group_decider import Decider
from hashring.protocol.group.group_member_machine import GroupMemberMachine
from hashring.protocol.group.lease_challenge_machine import LeaseChallengeMachine
from hashring.protocol.machine_steps import Machine
from hashring.protocol.node.node_machine import NodeConfig, NodeMachine
from hashring.protocol.node.node_states import NodeState
from hashring.protocol.node.own_ranges_machine import machine_of
from hashring.running.async_machine_loop import AsyncLoop
from hashring.running.machine_loop import Loop
from hashring.running.native_threads import ThreadBackend
from hashring.store.async_redis_store import AsyncRedisStore
from hashring.store.embedded_server import RedisServer
from hashring.store.faithful_challenge.commands import faithful_keys
from hashring.store.group.key_names import group_keys
from hashring.store.lease_challenge.commands import challenge_keys
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import ring_keys
from tests.conftest import PATIENCE, eventually

TIMEOUT = 5.0
PARTITIONS = 4

T = TypeVar("T")
AnyLoop = Loop | AsyncLoop


# --- loops ----------------------------------------------------------------------------------------


class Loops(ABC):
    """Runs machines, each on a loop of its own."""

    @abstractmethod
    def make(self, machine: Machine, publish: Callable[[], None]) -> AnyLoop:
        """A loop for a machine."""

    @abstractmethod
    def run(self, loop: Any) -> Callable[[], None]:
        """Have it run; what waits until it has ended."""


class Threads(Loops):
    def __init__(self, url: str) -> None:
        self._redis = Redis.from_url(url)

    def make(self, machine: Machine, publish: Callable[[], None]) -> AnyLoop:
        def store() -> RedisStore:
            return RedisStore(self._redis, TIMEOUT)

        return Loop(machine, store, ThreadBackend(), time.monotonic, publish=publish)

    def run(self, loop: Any) -> Callable[[], None]:
        thread = threading.Thread(target=loop.run)
        thread.start()
        return thread.join


class Tasks(Loops):
    """One event loop has all of them, in a thread; the test tells them things from another."""

    def __init__(self, url: str, home: asyncio.AbstractEventLoop) -> None:
        self._url = url
        self._home = home

    def _do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._home).result(PATIENCE)

    def make(self, machine: Machine, publish: Callable[[], None]) -> AnyLoop:
        async def made() -> AsyncLoop:
            store = AsyncRedisStore(AsyncRedis.from_url(self._url), TIMEOUT)
            return AsyncLoop(machine, store, time.monotonic, publish=publish)

        return self._do(made())

    def run(self, loop: Any) -> Callable[[], None]:
        task = asyncio.run_coroutine_threadsafe(loop.run(), self._home)
        return lambda: task.result(PATIENCE)


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    home = asyncio.new_event_loop()
    thread = threading.Thread(target=home.run_forever)
    thread.start()
    try:
        yield home
    finally:
        home.call_soon_threadsafe(home.stop)
        thread.join()
        home.close()


@pytest.fixture(params=["thread", "task"])
def loops(request: pytest.FixtureRequest, redis_server: RedisServer) -> Iterator[Loops]:
    if request.param == "thread":
        yield Threads(redis_server.url)
        return
    with event_loop() as home:
        yield Tasks(redis_server.url, home)


# --- machines -------------------------------------------------------------------------------------


class Played(ABC):
    """A machine, or several, on their loops."""

    @abstractmethod
    def start(self) -> None:
        """Begin."""

    @abstractmethod
    def works(self) -> bool:
        """Whether it has joined, and has something to do."""

    @abstractmethod
    def stop(self) -> None:
        """Have it leave; returns when the loops have ended."""

    @abstractmethod
    def has_left(self) -> bool:
        """Whether it has left of its own will."""


class NodePlayed(Played):
    def __init__(self, loops: Loops, name: str) -> None:
        config = NodeConfig(
            keys=ring_keys("accounts"),
            name=name,
            named=True,
            n_replicas=4,
            ttl=30.0,
            heartbeat_interval=0.2,
            io_timeout=TIMEOUT,
            scoring=Scoring.expiry(30.0),
            algorithm=hash_algorithm("crc-32"),
            placement="random",
            follow_foreign=False,
            told={},
            follow=False,
        )
        self.machine: NodeMachine = machine_of(config, Random(name))
        self._loops = loops
        self._loop = loops.make(self.machine, lambda: None)

    def start(self) -> None:
        self.machine.start(time.monotonic(), strict=True)
        self._ended = self._loops.run(self._loop)

    def works(self) -> bool:
        return bool(self.machine.view(time.monotonic()).ranges)

    def stop(self) -> None:
        self._loop.tell(lambda now: self.machine.stop())
        self._ended()

    def has_left(self) -> bool:
        return self.machine.state is NodeState.STOPPED


class MemberPlayed(Played):
    """A member, which ends its work on a partition at once when it is to."""

    machine: BaseMemberMachine

    def __init__(self, loops: Loops, name: str) -> None:
        self.name = name
        self.machine = self.make()
        self._loops = loops
        self._loop = loops.make(self.machine, self._end_work)

    @abstractmethod
    def make(self) -> BaseMemberMachine:
        """Its protocol."""

    def _end_work(self) -> None:
        changes, self.machine.changes = self.machine.changes, []
        for each in changes:
            if each.kind is PartitionChangeKind.REVOKED:
                self._loop.tell(partial(self.machine.release, each.partition, each.token))

    def start(self) -> None:
        self.machine.start(time.monotonic())
        self._ended = self._loops.run(self._loop)

    @property
    def held(self) -> set[int]:
        return set(self.machine.holdings.held(time.monotonic()))

    def works(self) -> bool:
        return bool(self.held)

    def stop(self) -> None:
        self._loop.tell(self.machine.stop)
        self._ended()

    def has_left(self) -> bool:
        return self.machine.stage is Stage.LEFT


class GroupMemberPlayed(MemberPlayed):
    def __init__(self, loops: Loops, name: str) -> None:
        super().__init__(loops, name)
        self._deciding = loops.make(self.decider, lambda: None)

    def make(self) -> BaseMemberMachine:
        self.decider = Decider(
            "orders",
            group_keys("orders"),
            self.name,
            BalancedAssignor(),
            report=lambda decided: self._loop.tell(lambda now: self.group.decided(decided)),
            tell=lambda own: self._loop.tell(lambda now: self.group.own_decision(own, now)),
        )
        self.group = GroupMemberMachine(
            "orders",
            group_keys("orders"),
            self.name,
            weight=1.0,
            terms=Terms(PARTITIONS, ttl=30.0, rebalance_delay=0.0, handoffs=4),
            counted=True,
            migrate=False,
            interval=0.2,
            progress_timeout=None,
            decider=self.decider,
            ask=lambda number, brought: self._deciding.tell(
                lambda now: self.decider.ask(number, brought)
            ),
            new_session=lambda: secrets.token_hex(8),
            warms_up=lambda: False,
        )
        return self.group

    def start(self) -> None:
        self._decided = self._loops.run(self._deciding)
        super().start()

    def stop(self) -> None:
        super().stop()
        self._deciding.tell(lambda now: self.decider.end())
        self._decided()


class LeaseChallengePlayed(MemberPlayed):
    def make(self) -> BaseMemberMachine:
        numbers = itertools.count()
        return LeaseChallengeMachine(
            "work",
            challenge_keys("work"),
            self.name,
            partitions=PARTITIONS,
            rules=LeaseChallengeRules(ttl=30.0, interval=0.2, residency=0.5),
            new_suffix=lambda: f"{next(numbers)}",
            chance=Random(self.name).random,
        )


class FaithfulChallengePlayed(MemberPlayed):
    def make(self) -> BaseMemberMachine:
        numbers = itertools.count()
        return FaithfulChallengeMachine(
            faithful_keys("races"),
            self.name,
            partitions=PARTITIONS,
            spans=FaithfulChallengeSpans(
                normal_lease=0.5, max_lease=30.0, max_shutdown=0.1, min_grab=0.2, held_delay=0.02
            ),
            new_suffix=lambda: f"{next(numbers)}",
            chance=Random(self.name).random,
        )


KINDS: list[Callable[[Loops, str], Played]] = [
    NodePlayed,
    GroupMemberPlayed,
    LeaseChallengePlayed,
    FaithfulChallengePlayed,
]

Make = Callable[[str], Played]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__.removesuffix("Played"))
def make(request: pytest.FixtureRequest, loops: Loops) -> Make:
    return lambda name: request.param(loops, name)


# --- rules ----------------------------------------------------------------------------------------


def test_a_machine_enters_gets_its_share_and_leaves(make: Make) -> None:
    one = make("a")
    one.start()
    eventually(one.works, "a has all there is")
    one.stop()
    assert one.has_left()
    assert not one.works()


def test_a_machine_hears_of_one_that_leaves_at_once(make: Make) -> None:
    a, b = make("a"), make("b")
    a.start()
    eventually(a.works, "a has all there is")
    b.start()
    eventually(lambda: a.works() and b.works(), "they share")
    a.stop()
    assert a.has_left()
    assert b.works()
    b.stop()
    assert b.has_left()


def test_a_machine_goes_on_when_its_connections_were_closed(make: Make, redis: Redis) -> None:
    one = make("a")
    one.start()
    eventually(one.works, "it has all there is")
    redis.client_kill_filter(_type="normal", skipme=True)
    redis.client_kill_filter(_type="pubsub")
    eventually(lambda: len(redis.client_list(_type="pubsub")) == 1, "it listens again")
    eventually(one.works, "it has all there is")
    one.stop()
    assert one.has_left()
