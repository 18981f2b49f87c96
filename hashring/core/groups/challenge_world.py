"""Both modes of the lease challenge in virtual time, with members that are slow to answer.

A member's *lag* is how much later than it should it does anything: hear a challenge, set the
grab, stop a partition, renew. It is drawn anew each time, uniformly from 0 to twice its mean.
The measure is taken by somebody who sees all members: how often a partition changes its owner,
and for how long it has none or two.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hashring.core.groups import challenge
from hashring.core.groups.challenge import AfterRace, Rules, Signal, Spans, Table
from hashring.core.groups.simulate import Random


@dataclass(frozen=True)
class Measure:
    """What somebody who sees everything measured.

    Attributes:
        hours: how long.
        moves: how often a partition began to be worked on by another member than before.
        unowned: seconds that partitions were worked on by nobody, added up.
        doubled: seconds that partitions were worked on by more than one, added up.
        counts: how many partitions each member had at the end.
    """

    hours: float
    moves: int
    unowned: float
    doubled: float
    counts: Mapping[str, int]

    @property
    def moves_per_hour(self) -> float:
        """Moves, per hour."""
        return self.moves / self.hours


class _World:
    def __init__(
        self, rng: Random, partitions: int, lags: Mapping[str, float], drain: float
    ) -> None:
        self.rng = rng
        self.partitions = partitions
        self.lags = dict(lags)
        self.drain = drain
        self.now = 1_000_000.0
        self.working: dict[str, set[int]] = {name: set() for name in lags}
        self.dead: set[str] = set()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._last: dict[int, str] = {}
        self.reset()

    def reset(self) -> None:
        """Measure from here."""
        self.started = self.now
        self.moves = 0
        self.unowned = self.doubled = 0.0

    def after(self, delay: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay, next(self._order), do))

    def lag(self, name: str) -> float:
        return self.rng.uniform(0.0, 2 * self.lags[name]) + self.rng.uniform(0.0, 0.005)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            time, _, do = heapq.heappop(self._queue)
            self._pass(time)
            do()
        self._pass(end)

    def _pass(self, time: float) -> None:
        seconds, self.now = time - self.now, time
        busy = [0] * self.partitions
        for partitions in self.working.values():
            for partition in partitions:
                busy[partition] += 1
        self.unowned += seconds * sum(count == 0 for count in busy)
        self.doubled += seconds * sum(count > 1 for count in busy)

    def start(self, name: str, partition: int) -> None:
        if partition not in self.working[name]:
            self.working[name].add(partition)
            self.moves += self._last.get(partition, name) != name
            self._last[partition] = name

    def stop(self, name: str, partition: int) -> None:
        self.working[name].discard(partition)

    def kill(self, name: str) -> None:
        """A member dies without a word."""
        self.dead.add(name)
        self.working[name].clear()

    def add(self, name: str, lag: float = 0.0) -> None:
        """Another member starts."""
        self.lags[name] = lag
        self.working[name] = set()
        self.enter(name)

    def enter(self, name: str) -> None:
        """What a member does when it starts."""
        raise NotImplementedError

    def measure(self) -> Measure:
        """What was measured since the last reset."""
        return Measure(
            (self.now - self.started) / 3600,
            self.moves,
            self.unowned,
            self.doubled,
            {n: len(p) for n, p in self.working.items() if n not in self.dead},
        )


class FaithfulWorld(_World):
    """The article's algorithm.

    Args:
        lags: the mean lag of each member, in seconds.
        drain: seconds that stopping a partition takes.
    """

    def __init__(
        self,
        rng: Random,
        partitions: int,
        lags: Mapping[str, float],
        spans: Spans | None = None,
        drain: float = 0.2,
    ) -> None:
        super().__init__(rng, partitions, lags, drain)
        self.spans = spans or Spans()
        self.grab: dict[int, str] = {}
        self.allocation: dict[int, str] = {}
        self.heard: dict[str, dict[int, float]] = {}
        self.racing: set[tuple[str, int]] = set()
        self.waiting: dict[int, str] = {}
        for name in lags:
            self.enter(name)

    def enter(self, name: str) -> None:
        """Begin as if every partition had been challenged at some time in the last lease."""
        self.heard[name] = {}
        for partition in range(self.partitions):
            self.heard[name][partition] = self.now - self.rng.uniform(0, self.spans.normal_lease)
            self._arm(name, partition)

    def _arm(self, name: str, partition: int) -> None:
        at = self.heard[name][partition]
        # A moment of its own for each, so that one challenge resets the others' timers.
        wait = at + self.spans.normal_lease + self.rng.uniform(0.1, 1.0) - self.now

        def fire() -> None:
            if name in self.dead:
                return
            if self.heard[name][partition] == at:
                self._signal(name, partition)
            self._arm(name, partition)

        self.after(max(wait, 1.0), fire)

    def _signal(self, name: str, partition: int) -> None:
        what = challenge.signal(
            owned=partition in self.working[name],
            grabbed=partition in self.grab,
            silent=self.now - self.heard[name][partition],
            spans=self.spans,
        )
        if what is Signal.NOTHING:
            return
        if what is Signal.CLEAR_AND_CHALLENGE:
            self.grab.pop(partition, None)
            self.allocation.pop(partition, None)
        for other in self.working:
            self.after(self.lag(other), lambda o=other: self._hear(o, partition))  # type: ignore[misc]

    def _hear(self, name: str, partition: int) -> None:
        if name in self.dead:
            return
        self.heard[name][partition] = self.now
        if (name, partition) in self.racing:
            return
        self.racing.add((name, partition))
        owned = partition in self.working[name]
        wait = challenge.race_wait(owned=owned, active=len(self.working[name]), spans=self.spans)
        self.after(wait + self.lag(name), lambda: self._race(name, partition))

    def _race(self, name: str, partition: int) -> None:
        self.racing.discard((name, partition))
        if name in self.dead:
            return
        won = partition not in self.grab
        if won:
            self.grab[partition] = name
            self.after(self.spans.min_grab, lambda: self._open(name, partition))
        what = challenge.after_race(
            won=won or self.grab[partition] == name,
            owned=partition in self.working[name],
            busy=self.allocation.get(partition, name) != name,
        )
        if what is AfterRace.STOP:
            self.after(self.drain + self.lag(name), lambda: self._stopped(name, partition))
        elif what is AfterRace.START:
            self._begin(name, partition)
        elif what is AfterRace.WAIT:
            self.waiting[partition] = name
            self.after(self.spans.max_shutdown, lambda: self._begin(name, partition))

    def _stopped(self, name: str, partition: int) -> None:
        self.stop(name, partition)
        if self.allocation.get(partition) == name:
            del self.allocation[partition]
        winner = self.waiting.pop(partition, None)
        if winner is not None:
            self.after(self.lag(winner), lambda: self._begin(winner, partition))

    def _begin(self, name: str, partition: int) -> None:
        if name in self.dead or self.grab.get(partition) != name:
            return
        self.allocation[partition] = name
        self.start(name, partition)

    def _open(self, name: str, partition: int) -> None:
        if self.grab.get(partition) == name:
            del self.grab[partition]


class FixedWorld(_World):
    """The fixed mode: one table, renewals of their own, requests instead of races.

    Args:
        lags: the mean lag of each member, in seconds: of its renewals as well as of its work.
        drain: seconds that stopping a partition takes.
    """

    def __init__(
        self,
        rng: Random,
        partitions: int,
        lags: Mapping[str, float],
        rules: Rules | None = None,
        drain: float = 0.2,
    ) -> None:
        super().__init__(rng, partitions, lags, drain)
        self.rules = rules or Rules()
        self.table = Table(partitions)
        self.released: dict[str, set[int]] = {}
        self.until: dict[tuple[str, int], float] = {}
        self.stopping: set[tuple[str, int]] = set()
        # An answer may be older than a word: what was let go of is not begun again.
        self.let_go: dict[tuple[str, int], int] = {}
        for name in lags:
            self.enter(name)

    def enter(self, name: str) -> None:
        """Begin to renew, at a moment of its own."""
        self.released[name] = set()
        self.after(self.rng.uniform(0, self.rules.interval), lambda: self._beat(name))

    def _beat(self, name: str) -> None:
        if name in self.dead:
            return
        asked_at = self.now
        # Sent now, answered later: the lag lies on either side.
        self.after(self.lag(name) / 2, lambda: self._arrive(name, asked_at))
        jitter = self.rng.uniform(0.9, 1.0)
        self.after(self.rules.interval * jitter + self.lag(name), lambda: self._beat(name))

    def _arrive(self, name: str, asked_at: float) -> None:
        if name in self.dead:
            return
        self.table = challenge.beat(self.table, name, self.now, self.rules, self.released[name])
        self.released[name] = set()
        held = self.table.held(name, self.now)
        self.after(self.lag(name) / 2, lambda: self._hear(name, asked_at, held))

    def _hear(self, name: str, asked_at: float, held: Mapping[int, challenge.Lease]) -> None:
        if name in self.dead:
            return
        for partition in list(self.working[name]):
            if partition not in held:
                self.stop(name, partition)
        for partition, lease in held.items():
            if self.let_go.get((name, partition)) == lease.token:
                continue
            if (name, partition) in self.stopping:
                continue
            end = asked_at + self.rules.ttl
            if lease.deadline is not None:
                # Once it is asked for, the lease ends at the deadline, or when it ended anyway.
                end = min(end, max(lease.deadline, self.until.get((name, partition), 0.0)))
            self.until[name, partition] = end
            self.start(name, partition)
            self.after(max(0.0, end - self.now), lambda p=partition, e=end: self._end(name, p, e))  # type: ignore[misc]
            if lease.wanted_by is not None:
                self.stopping.add((name, partition))
                wait = self.drain + self.lag(name)
                self.after(wait, lambda p=partition, t=lease.token: self._drained(name, p, t))  # type: ignore[misc]

    def _end(self, name: str, partition: int, end: float) -> None:
        if self.until.get((name, partition)) == end:
            self.stop(name, partition)

    def _drained(self, name: str, partition: int, token: int) -> None:
        self.stopping.discard((name, partition))
        if name in self.dead:
            return
        self.stop(name, partition)
        self.let_go[name, partition] = token
        if self.table.leases[partition].token != token:
            return
        self.released[name].add(partition)
        # The word is sent at once; who asked hears of it and takes at once as well.
        self._arrive(name, self.now)
        lease = self.table.leases[partition]
        if lease.wanted_by is not None and lease.wanted_by not in self.dead:
            asker = lease.wanted_by
            self.after(self.lag(asker), lambda: self._arrive(asker, self.now))
