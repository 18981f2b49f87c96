"""What a member of a lease challenge asks of Redis, in either mode; without I/O."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping

from hashring.core.groups import challenge
from hashring.core.groups.challenge import (
    AfterRace,
    LeaseTable,
    PartitionLease,
    Rules,
    Signal,
    Spans,
)
from hashring.core.groups.state import MemberView, Phase
from hashring.errors import GroupMismatch, StoreError, WriteConflict
from hashring.protocol.flow import Flow, committed
from hashring.protocol.member import MemberMachine
from hashring.store.challenge.commands import (
    ChallengeKeys,
    begin,
    end,
    look,
    open_again,
    race,
    read_table,
    signal,
    told_partition,
    write_table,
)


class FixedMachine(MemberMachine):
    """The fixed mode: see :mod:`hashring.core.groups.challenge`.

    Args:
        group, keys: the challenge's name, and its keys.
        member: the member's name.
        partitions: how many; the same for all members.
        rules: the time spans.
        new_suffix: tells this process from others of its name; a different text each time.
        chance: a number ``0 <= x < 1``, another one each time.
    """

    def __init__(
        self,
        group: str,
        keys: ChallengeKeys,
        member: str,
        *,
        partitions: int,
        rules: Rules,
        new_suffix: Callable[[], str],
        chance: Callable[[], float],
    ) -> None:
        super().__init__(
            member,
            channels=(keys.told,),
            ttl=rules.ttl,
            interval=rules.interval,
            grace=rules.max_handoff_time,
            progress_timeout=None,
        )
        self.partitions = partitions
        self._group = group
        self._keys = keys
        self._rules = rules
        self._new_suffix = new_suffix
        self._chance = chance
        self._what = f"lease challenge {group!r}"
        self._me = ""
        self._was_there = self._saw_table = False

    def enter(self) -> Flow[None]:
        """Renew for the first time."""
        # Two processes of one name are two members: each holds its own leases.
        self._me = f"{self.member}#{self._new_suffix()}"
        self._was_there = self._saw_table = False
        yield from self.renew()

    def renew(self) -> Flow[float]:
        """Renew, let go, take and ask, in one step of the table."""
        now, asked_at, after = yield from committed(self._what, self._renewal)
        self._was_there = True
        held = after.held(self._me, now)
        revoked = {p: x.expires for p, x in held.items() if x.wanted_by is not None}
        view = MemberView(
            1, Phase.READY, {p: x.token for p, x in held.items()}, revoked, seated=True
        )
        self.heard(view, asked_at, now)
        return self.interval

    def _renewal(self) -> Flow[tuple[float, float, LeaseTable] | None]:
        """Redis time of the reading, before it was sent, and the table as it was written."""
        # Before the reading is sent: leases count from its Redis time.
        claims = self.membership.held(self.now)
        reading = yield read_table(self._keys)
        asked_at = self.sent
        table = self._table(reading.table)
        # A newcomer knows of a loss, too, if there was a table when it looked before.
        lost = reading.table is None and self._saw_table
        self._saw_table |= reading.table is not None
        if lost or (self._was_there and self._me not in table.members):
            table = challenge.recover(table, self._me, reading.now, self._rules, claims)
        released = [
            p
            for p, token in self.membership.words().released.items()
            if (lease := table.leases.get(p)) is not None and lease.token == token
        ]
        after = challenge.beat(table, self._me, reading.now, self._rules, released)
        names = self._concerned(reading.table, after)
        written = yield write_table(self._keys, reading, after, names)
        return (reading.now, asked_at, after) if written else None

    def again_after(self, error: Exception) -> float:
        """Seconds after which a renewal that failed is tried again."""
        pause = super().again_after(error)
        # Members that stood in each other's way are not to meet again.
        return pause * self._chance() if isinstance(error, WriteConflict) else pause

    def _table(self, found: LeaseTable | None) -> LeaseTable:
        if found is None:
            return LeaseTable(self.partitions)
        if found.partitions != self.partitions:
            raise GroupMismatch(self._group, "partitions", self.partitions, found.partitions)
        return found

    def _concerned(self, before: LeaseTable | None, after: LeaseTable) -> set[str]:
        """Whom a change of the table is about, but for this member."""
        old: Mapping[int, PartitionLease] = {} if before is None else before.leases
        names: set[str | None] = set()
        for partition, lease in after.leases.items():
            was = old.get(partition)
            if was is None or (was.owner, was.wanted_by) != (lease.owner, lease.wanted_by):
                names |= {lease.wanted_by, lease.owner, None if was is None else was.owner}
        return {name for name in names if name is not None and name != self._me}

    def hand_over(self) -> float:
        """Nobody assigns: what is let go of is taken by the member that has least."""
        return 0.0

    def empty_handed(self) -> bool:
        """Nobody waits for others to take over."""
        return True

    def depart(self) -> Flow[None]:
        """Take this member out of the table."""
        yield from committed(self._what, self._departure)

    def _departure(self) -> Flow[bool | None]:
        reading = yield read_table(self._keys)
        if reading.table is None or self._me not in reading.table.members:
            return True
        after = challenge.leave(reading.table, self._me, reading.now)
        return (yield write_table(self._keys, reading, after, after.members)) or None

    def concerns(self, channel: bytes, payload: bytes) -> bool:
        """Whether a change of the table is about this member."""
        return self._me in payload.decode("utf-8", "replace").split("\n")


class FaithfulMachine(MemberMachine):
    """The article's algorithm: five time spans, two hashes, two channels, and no fencing.

    The article has no tokens. A partition's "token" counts this member's stays: it tells a word
    about an earlier stay from one about this, and fences nothing. Work goes on until the member
    loses a race, or its application lets go; when Redis is silent, until the maximum lease time
    ends. What Redis did not do is tried again with the next renewal.

    Args:
        keys, member, partitions, new_suffix: as for :class:`FixedMachine`.
        spans: the article's five time spans.
        chance: a number ``0 <= x < 1``, another one each time.
    """

    def __init__(
        self,
        keys: ChallengeKeys,
        member: str,
        *,
        partitions: int,
        spans: Spans,
        new_suffix: Callable[[], str],
        chance: Callable[[], float],
    ) -> None:
        super().__init__(
            member,
            channels=(keys.grabs, keys.allocated),
            ttl=spans.max_lease,
            interval=min(1.0, spans.max_lease / 3),
            grace=spans.max_shutdown,
            progress_timeout=None,
        )
        self.partitions = partitions
        self._keys = keys
        self._spans = spans
        self._new_suffix = new_suffix
        self._chance = chance
        self._me = ""
        # Each with the number of the stay.
        self._active: dict[int, int] = {}
        self._stopping: dict[int, int] = {}
        self._followed: dict[int, int] = {}
        self._stays = itertools.count(1)
        self._waiting: set[int] = set()
        self._racing: set[int] = set()
        self._heard_at: dict[int, float] = {}
        self._news: list[tuple[bytes, int]] = []
        self._timers: list[tuple[float, int, Callable[[], Flow[None]]]] = []
        self._numbers = itertools.count()

    def enter(self) -> Flow[None]:
        """Begin as if every partition had been challenged at some time in the last lease."""
        self._me = f"{self.member}#{self._new_suffix()}"
        yield look(self._keys)
        self._active, self._stopping, self._followed = {}, {}, {}
        self._waiting, self._racing = set(), set()
        self._timers, self._news = [], []
        for partition in range(self.partitions):
            self._heard_at[partition] = self.now - self._chance() * self._spans.normal_lease
            self._arm(partition)

    def renew(self) -> Flow[float]:
        """Hear what was told, and do what is due."""
        while self._news:
            yield from self._hear(*self._news[0])
            self._news.pop(0)
        # What becomes due meanwhile waits: messages come first, and work is to be followed.
        begun = self.now
        while self._timers and self._timers[0][0] <= begun:
            timer = heapq.heappop(self._timers)
            try:
                yield from timer[2]()
            except StoreError:
                heapq.heappush(self._timers, timer)
                raise
        yield from self._look_for_stopped()
        self._follow()
        wait = self._timers[0][0] - self.now if self._timers else self.interval
        return min(max(0.0, wait), self.interval)

    def _later(self, at: float, do: Callable[[], Flow[None]]) -> None:
        heapq.heappush(self._timers, (at, next(self._numbers), do))

    def _arm(self, partition: int) -> None:
        at = self._heard_at[partition]
        spread = self._spans.held_delay * (1 + self._chance())

        def fire() -> Flow[None]:
            if self._heard_at[partition] == at:
                yield from self._signal(partition)
            self._arm(partition)

        self._later(max(at + self._spans.normal_lease, self.now) + spread, fire)

    def _signal(self, partition: int) -> Flow[None]:
        if partition in self._active:
            # An owner challenges nothing, and need not ask Redis for that.
            return
        _, grab = yield look(self._keys)
        what = challenge.signal(
            owned=partition in self._active,
            grabbed=partition in grab,
            silent=self.now - self._heard_at[partition],
            spans=self._spans,
        )
        if what is not Signal.NOTHING:
            clear = what is Signal.CLEAR_AND_CHALLENGE
            yield signal(self._keys, partition, clear=clear)

    def _follow(self) -> None:
        """Tell the application what this member works on by now."""
        self._followed = held = {**self._active, **self._stopping}
        revoked = dict.fromkeys(self._stopping, self.now + self._spans.max_shutdown)
        view = MemberView(1, Phase.READY, held, revoked, seated=True)
        self.heard(view, self.now, self.now)

    def _hear(self, channel: bytes, partition: int) -> Flow[None]:
        if channel == self._keys.allocated:
            yield from self._impatient(partition)
            return
        self._heard_at[partition] = self.now
        if partition in self._racing or partition in self._stopping:
            return
        self._racing.add(partition)
        wait = challenge.race_wait(
            owned=partition in self._active, active=len(self._active), spans=self._spans
        )
        self._later(self.now + wait, lambda: self._race(partition))

    def _race(self, partition: int) -> Flow[None]:
        won, busy = yield race(self._keys, partition, self._me)
        what = challenge.after_race(
            won=won, owned=partition in self._active, busy=busy not in ("", self._me)
        )
        if what is AfterRace.START:
            yield from self._begin_work(partition)
        self._racing.discard(partition)
        if won:
            self._later(self.now + self._spans.min_grab, lambda: self._open(partition))
        if what is AfterRace.STOP:
            self._stopping[partition] = self._active.pop(partition)
        elif what is AfterRace.WAIT:
            self._waiting.add(partition)
            self._later(self.now + self._spans.max_shutdown, lambda: self._impatient(partition))

    def _impatient(self, partition: int) -> Flow[None]:
        if partition in self._waiting:
            yield from self._begin_work(partition)
            self._waiting.discard(partition)

    def _begin_work(self, partition: int) -> Flow[None]:
        if (yield begin(self._keys, partition, self._me)):
            self._active.setdefault(partition, next(self._stays))

    def _open(self, partition: int) -> Flow[None]:
        yield open_again(self._keys, partition, self._me)

    def _look_for_stopped(self) -> Flow[None]:
        held = self.membership.holding.partitions
        for partition in [p for p in self._stopping if p not in held]:
            yield end(self._keys, partition, self._me)
            del self._stopping[partition]
        followed, active = self._followed, self._active
        for partition in [p for p in active if followed.get(p) == active[p] and p not in held]:
            # Released by the application, or its lease expired: the next challenge decides it.
            yield from self._give_up(partition)
            del active[partition]

    def _give_up(self, partition: int) -> Flow[None]:
        yield open_again(self._keys, partition, self._me)
        yield end(self._keys, partition, self._me)

    def hand_over(self) -> float:
        """Nobody assigns: what is let go of is challenged."""
        return 0.0

    def empty_handed(self) -> bool:
        """Nobody waits for others to take over."""
        return True

    def depart(self) -> Flow[None]:
        """Let what this member worked on be challenged."""
        for partition in (*self._active, *self._stopping):
            yield from self._give_up(partition)

    def concerns(self, channel: bytes, payload: bytes) -> bool:
        """Whether a message names a partition, which is then looked at with the next renewal."""
        partition = told_partition(payload, self.partitions)
        if partition is None:
            return False
        self._news.append((channel, partition))
        return True
