"""The lease challenge, live: partitions shared without any common assignment.

``mode="fixed"`` is for use, ``mode="faithful"`` is the article's algorithm, to be looked at: its
author withdrew it, because under load partitions jump between members, and it has no fencing.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from hashring.core.groups import challenge
from hashring.core.groups.challenge import AfterRace, Lease, Rules, Signal, Spans, Table
from hashring.core.groups.state import Phase, View, check_partitions
from hashring.errors import ConfigError, GroupMismatch
from hashring.groups.aio import AsyncMember
from hashring.groups.base import (
    BaseMember,
    Callbacks,
    OnAssigned,
    OnPartition,
    OnRevoked,
    monotonic,
)
from hashring.groups.sync import LiveMember
from hashring.running.backend import native_queue
from hashring.store.challenge_commands import (
    begin,
    challenge_keys,
    end,
    look,
    open_again,
    race,
    read_table,
    signal,
    told_partition,
    write_table,
)
from hashring.store.executor import Told
from hashring.store.memory import MemoryStore


def lease_challenge(
    redis: Any,
    name: str,
    partitions: int,
    *,
    mode: str = "fixed",
    member: str | None = None,
    rules: Rules | None = None,
    spans: Spans | None = None,
    on_assigned: OnAssigned | None = None,
    on_revoked: OnRevoked | None = None,
    on_lost: OnPartition | None = None,
) -> LiveMember:
    """A member of a lease challenge; start it with ``start()`` or ``with``.

    Args:
        redis: a sync client of redis-py or valkey-py; in tests of the fixed mode, a
            :class:`hashring.testing.MemoryStore`.
        name: the challenge's name.
        partitions: how many; the same for all members.
        mode: ``"fixed"``, or ``"faithful"`` for the article's own algorithm.
        rules: the time spans of the fixed mode.
        spans: the article's five time spans, for the faithful one.
        on_assigned, on_revoked, on_lost: as for :class:`hashring.PartitionGroup`.

    Raises:
        ConfigError: an argument cannot work.
    """
    made = _settings(redis, partitions, mode, rules, spans)
    kind = _Fixed if "rules" in made else _Faithful
    made["callbacks"] = Callbacks(on_assigned, on_revoked, on_lost)
    return kind(redis, name, partitions, member=member, **made)


def async_lease_challenge(
    redis: Any,
    name: str,
    partitions: int,
    *,
    mode: str = "fixed",
    member: str | None = None,
    rules: Rules | None = None,
    spans: Spans | None = None,
    on_assigned: OnAssigned | None = None,
    on_revoked: OnRevoked | None = None,
    on_lost: OnPartition | None = None,
) -> AsyncMember:
    """A member of a lease challenge, for asyncio: ``async with``, or ``await`` its ``start()``.

    Arguments and errors are those of :func:`lease_challenge`, with an asyncio client; callbacks may
    be coroutine functions.
    """
    made = _settings(redis, partitions, mode, rules, spans)
    kind = _AsyncFixed if "rules" in made else _AsyncFaithful
    made["callbacks"] = Callbacks(on_assigned, on_revoked, on_lost)
    return kind(redis, name, partitions, member=member, **made)


def _settings(
    redis: Any, partitions: int, mode: str, rules: Rules | None, spans: Spans | None
) -> dict[str, Any]:
    """What only members of the mode are given, when everything fits it."""
    check_partitions(partitions)
    if mode not in ("fixed", "faithful"):
        raise ConfigError("mode", mode, "choose fixed or faithful")
    if mode == "fixed" and spans is not None:
        raise ConfigError("spans", spans, "are for mode='faithful'; give rules")
    if mode == "faithful" and rules is not None:
        raise ConfigError("rules", rules, "are for mode='fixed'; give spans")
    if mode == "faithful" and isinstance(redis, MemoryStore):
        raise ConfigError("mode", mode, "needs a Redis: a MemoryStore has mode='fixed'")
    return {"rules": rules or Rules()} if mode == "fixed" else {"spans": spans or Spans()}


_TWINS: Final = ("lease_challenge", "async_lease_challenge")


class FixedChallenge(BaseMember):
    """The fixed mode: see :mod:`hashring.core.groups.challenge`."""

    _twins = _TWINS

    def __init__(
        self,
        redis: Any,
        name: str,
        partitions: int,
        *,
        member: str | None,
        callbacks: Callbacks,
        rules: Rules,
    ) -> None:
        self._keys = challenge_keys(name)
        super().__init__(
            redis,
            name,
            member=member,
            channels=(self._keys.told,),
            ttl=rules.ttl,
            interval=rules.interval,
            grace=rules.max_handoff_time,
            progress_timeout=None,
            callbacks=callbacks,
        )
        self._rules = rules
        self._partitions = partitions
        self._me = ""
        self._was_there = False

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return self._partitions

    def _enter(self) -> None:
        # Two processes of one name are two members: each holds its own leases.
        self._me = f"{self.member}#{secrets.token_hex(4)}"
        self._was_there = False
        self._beat()

    def _beat(self) -> float:
        while True:
            asked_at = monotonic()
            reading = self._store.run(read_table(self._keys))
            table = self._table(reading.table)
            with self._lock:
                words = self._membership.words().released
                claims = self._membership.held(asked_at)
            if self._was_there and self._me not in table.members:
                table = challenge.recover(table, self._me, reading.now, self._rules, claims)
            released = [
                p
                for p, token in words.items()
                if (lease := table.leases.get(p)) is not None and lease.token == token
            ]
            after = challenge.beat(table, self._me, reading.now, self._rules, released)
            names = self._concerned(reading.table, after)
            if not self._store.run(write_table(self._keys, reading, after, names)):
                continue
            self._was_there = True
            held = after.held(self._me, reading.now)
            revoked = {p: x.expires for p, x in held.items() if x.wanted_by is not None}
            view = View(1, Phase.READY, {p: x.token for p, x in held.items()}, revoked, seated=True)
            with self._lock:
                changes = self._membership.heard(view, asked_at, reading.now, monotonic())
                more = self._membership.words().released.keys() - words.keys()
            self._tell(changes)
            if not more:
                return self.heartbeat_interval

    def _table(self, found: Table | None) -> Table:
        if found is None:
            return Table(self._partitions)
        if found.partitions != self._partitions:
            raise GroupMismatch(self.name, "partitions", self._partitions, found.partitions)
        return found

    def _concerned(self, before: Table | None, after: Table) -> set[str]:
        """Whom a change of the table is about, but for this member."""
        old: Mapping[int, Lease] = {} if before is None else before.leases
        names: set[str | None] = set()
        for partition, lease in after.leases.items():
            was = old.get(partition)
            if was is None or (was.owner, was.wanted_by) != (lease.owner, lease.wanted_by):
                names |= {lease.wanted_by, lease.owner, None if was is None else was.owner}
        return {name for name in names if name is not None and name != self._me}

    def _hand_over(self) -> float:
        # Nobody assigns: what is let go of is taken by whoever has least.
        return 0.0

    def _empty_handed(self) -> bool:
        return True

    def _depart(self) -> None:
        while True:
            reading = self._store.run(read_table(self._keys))
            if reading.table is None or self._me not in reading.table.members:
                return
            after = challenge.leave(reading.table, self._me, reading.now)
            if self._store.run(write_table(self._keys, reading, after, after.members)):
                return

    def _concerns(self, told: Told) -> bool:
        return self._me in told.payload.decode("utf-8", "replace").split("\n")


_NO_TOKEN: Final = 1


class FaithfulChallenge(BaseMember):
    """The article's algorithm: five time spans, two hashes, two channels, and no fencing.

    A partition's "token" is always 1: the article has none. Work goes on until the member loses
    a race; nothing ends it when Redis is silent.
    """

    _fenced = False

    _twins = _TWINS

    def __init__(
        self,
        redis: Any,
        name: str,
        partitions: int,
        *,
        member: str | None,
        callbacks: Callbacks,
        spans: Spans,
    ) -> None:
        self._keys = challenge_keys(name)
        super().__init__(
            redis,
            name,
            member=member,
            channels=(self._keys.grabs, self._keys.allocated),
            ttl=spans.max_lease,
            interval=min(1.0, spans.max_lease / 3),
            grace=spans.max_shutdown,
            progress_timeout=None,
            callbacks=callbacks,
        )
        self._spans = spans
        self._partitions = partitions
        self._me = ""
        self._active: set[int] = set()
        self._stopping: set[int] = set()
        self._waiting: set[int] = set()
        self._racing: set[int] = set()
        self._heard_at: dict[int, float] = {}
        self._news: queue.SimpleQueue[Told] = native_queue()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return self._partitions

    def _enter(self) -> None:
        self._me = f"{self.member}#{secrets.token_hex(4)}"
        self._store.run(look(self._keys))
        self._active, self._stopping = set(), set()
        self._waiting, self._racing = set(), set()
        self._timers = []
        now, span = monotonic(), self._spans.normal_lease
        for partition in range(self._partitions):
            # As if it had been challenged at some time in the last lease.
            self._heard_at[partition] = now - secrets.randbelow(1000) / 1000 * span
            self._arm(partition)

    def _later(self, at: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (at, next(self._numbers), do))

    def _arm(self, partition: int) -> None:
        at = self._heard_at[partition]
        spread = self._spans.held_delay * (1 + secrets.randbelow(1000) / 1000)

        def fire() -> None:
            try:
                if self._heard_at[partition] == at:
                    self._signal(partition)
            finally:
                self._arm(partition)

        self._later(max(at + self._spans.normal_lease, monotonic()) + spread, fire)

    def _signal(self, partition: int) -> None:
        _, grab = self._store.run(look(self._keys))
        what = challenge.signal(
            owned=partition in self._active,
            grabbed=partition in grab,
            silent=monotonic() - self._heard_at[partition],
            spans=self._spans,
        )
        if what is not Signal.NOTHING:
            clear = what is Signal.CLEAR_AND_CHALLENGE
            self._store.run(signal(self._keys, partition, clear=clear))

    def _beat(self) -> float:
        while not self._news.empty():
            self._hear(self._news.get())
        while self._timers and self._timers[0][0] <= monotonic():
            heapq.heappop(self._timers)[2]()
        self._look_for_stopped()
        self._follow()
        wait = self._timers[0][0] - monotonic() if self._timers else self.heartbeat_interval
        return min(max(0.0, wait), self.heartbeat_interval)

    def _follow(self) -> None:
        """Tell the application what this member works on by now."""
        held = dict.fromkeys(self._active | self._stopping, _NO_TOKEN)
        now = monotonic()
        revoked = dict.fromkeys(self._stopping, now + self._spans.max_shutdown)
        view = View(1, Phase.READY, held, revoked, seated=True)
        with self._lock:
            changes = self._membership.heard(view, now, now, now)
        self._tell(changes)

    def _hear(self, told: Told) -> None:
        partition = int(told.payload)
        if told.channel == self._keys.allocated:
            if partition in self._waiting:
                self._waiting.discard(partition)
                self._begin_work(partition)
            return
        now = monotonic()
        self._heard_at[partition] = now
        if partition in self._racing or partition in self._stopping:
            return
        self._racing.add(partition)
        wait = challenge.race_wait(
            owned=partition in self._active, active=len(self._active), spans=self._spans
        )
        self._later(now + wait, lambda: self._race(partition))

    def _race(self, partition: int) -> None:
        self._racing.discard(partition)
        won, busy = self._store.run(race(self._keys, partition, self._me))
        if won:
            self._later(monotonic() + self._spans.min_grab, lambda: self._open(partition))
        what = challenge.after_race(
            won=won, owned=partition in self._active, busy=busy not in ("", self._me)
        )
        if what is AfterRace.STOP:
            self._active.discard(partition)
            self._stopping.add(partition)
        elif what is AfterRace.START:
            self._begin_work(partition)
        elif what is AfterRace.WAIT:
            self._waiting.add(partition)
            self._later(monotonic() + self._spans.max_shutdown, lambda: self._impatient(partition))

    def _impatient(self, partition: int) -> None:
        if partition in self._waiting:
            self._waiting.discard(partition)
            self._begin_work(partition)

    def _begin_work(self, partition: int) -> None:
        if self._store.run(begin(self._keys, partition, self._me)):
            self._active.add(partition)

    def _open(self, partition: int) -> None:
        self._store.run(open_again(self._keys, partition, self._me))

    def _look_for_stopped(self) -> None:
        held = self._membership.holding.partitions
        for partition in [p for p in self._stopping if p not in held]:
            self._stopping.discard(partition)
            self._store.run(end(self._keys, partition, self._me))

    def _hand_over(self) -> float:
        return 0.0

    def _empty_handed(self) -> bool:
        return True

    def _depart(self) -> None:
        for partition in self._active | self._stopping:
            self._store.run(open_again(self._keys, partition, self._me))
            self._store.run(end(self._keys, partition, self._me))

    def _concerns(self, told: Told) -> bool:
        if told_partition(told.payload, self._partitions) is None:
            return False
        self._news.put(told)
        return True


class _Fixed(FixedChallenge, LiveMember):
    pass


class _Faithful(FaithfulChallenge, LiveMember):
    pass


class _AsyncFixed(FixedChallenge, AsyncMember):
    pass


class _AsyncFaithful(FaithfulChallenge, AsyncMember):
    pass
