"""What a member of a faithful challenge asks of Redis; without I/O."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from hashring.core.groups import faithful_challenge
from hashring.core.groups.faithful_challenge import AfterRace, FaithfulChallengeSpans, Signal
from hashring.core.groups.state import GroupPhase, MemberView
from hashring.errors import StoreError
from hashring.protocol.flow import Flow
from hashring.protocol.group.base_member_machine import BaseMemberMachine
from hashring.store.faithful_challenge.commands import (
    FaithfulKeys,
    begin,
    end,
    look,
    open_again,
    race,
    signal,
    told_partition,
)


class FaithfulChallengeMachine(BaseMemberMachine):
    """The article's algorithm: five time spans, two hashes, two channels, and no fencing.

    The article has no tokens. A partition's "token" counts this member's stays: it tells a word
    about an earlier stay from one about this, and fences nothing. Work goes on until the member
    loses a race, or its application lets go; when Redis is silent, until the maximum lease time
    ends. What Redis did not do is tried again with the next renewal.

    Args:
        keys, member, partitions, new_suffix: as for
            :class:`hashring.protocol.group.lease_challenge_machine.LeaseChallengeMachine`.
        spans: the article's five time spans.
        chance: a number ``0 <= x < 1``, another one each time.
    """

    def __init__(
        self,
        keys: FaithfulKeys,
        member: str,
        *,
        partitions: int,
        spans: FaithfulChallengeSpans,
        new_suffix: Callable[[], str],
        chance: Callable[[], float],
    ) -> None:
        super().__init__(
            member,
            channels=(keys.grabs, keys.allocated),
            ttl=spans.max_lease,
            interval=min(1.0, spans.max_lease / 3),
            grace=spans.max_shutdown,
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
        what = faithful_challenge.signal(
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
        view = MemberView(1, GroupPhase.READY, held, revoked, seated=True)
        self.heard(view, self.now, self.now)

    def _hear(self, channel: bytes, partition: int) -> Flow[None]:
        if channel == self._keys.allocated:
            yield from self._impatient(partition)
            return
        self._heard_at[partition] = self.now
        if partition in self._racing or partition in self._stopping:
            return
        self._racing.add(partition)
        wait = faithful_challenge.race_wait(
            owned=partition in self._active, active=len(self._active), spans=self._spans
        )
        self._later(self.now + wait, lambda: self._race(partition))

    def _race(self, partition: int) -> Flow[None]:
        won, busy = yield race(self._keys, partition, self._me)
        what = faithful_challenge.after_race(
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
        held = self.holdings.holding.partitions
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
