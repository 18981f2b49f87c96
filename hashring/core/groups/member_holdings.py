"""The member's side: what it holds, by its own clock, and what it tells the group.

:class:`MemberHoldings` does no I/O. The code that talks to Redis drives it. It never counts a
partition as held longer than the group can know. Three deadlines see to that, all on the member's
own monotonic clock, and all measured from the moment a question was *sent*. So neither a slow
answer nor a slow clock in Redis can stretch them:

- the lease: ``ttl`` after the last answered renewal was sent, of a session that the group has
  counted;
- for a partition it was asked to let go of: the handoff's deadline;
- for a partition that is not in the group's answer any more: at once; so for all of them, if the
  group does not count a session any more that it has counted.

A partition that was lost is never taken up again under the same token. Its loss is reported as a
word given, and the group grants it anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Final

from hashring.core.groups.partition_change import PartitionChange, PartitionChangeKind
from hashring.core.groups.partition_map import PartitionMap
from hashring.core.groups.state import MemberView

_LOAD_KEPT: Final = 60.0
"""Seconds for which a member reports the load of a partition that it held last."""


@dataclass(frozen=True)
class Held:
    """A partition that is held.

    Attributes:
        token: its fencing token.
        until: monotonic time from which it is not held any more, whatever the lease says.
        draining: the partition was removed, and is to be emptied.
        emptying: the application has been asked to empty it. It may be there again since.
        asked: the Redis time by which the group asked for it last, to give it to another member.
    """

    token: int
    until: float = math.inf
    draining: bool = False
    emptying: bool = False
    asked: float | None = None


@dataclass(frozen=True)
class Holding:
    """Everything held, as one frozen picture.

    Attributes:
        partitions: what is held.
        lease_until: monotonic time at which all of it ends.
    """

    partitions: PartitionMap[Held] = field(default_factory=PartitionMap)
    lease_until: float = -math.inf

    def token(self, partition: int, now: float) -> int | None:
        """The token of a partition that is held at ``now``; ``None`` when it is not."""
        held = self.partitions.get(partition)
        if held is None or now >= self.lease_until or now >= held.until:
            return None
        return held.token


@dataclass(frozen=True)
class Words:
    """What a member tells with its next renewal; see :class:`.state.MemberFacts`."""

    seen: int
    released: Mapping[int, int]
    drained: Mapping[int, int]
    lags: Mapping[int, float]
    stalled: bool
    loads: Mapping[int, float] = field(default_factory=dict)


class MemberHoldings:
    """One session of a member. Not safe to drive from two threads at once; ``holding`` may be
    read from any.

    Args:
        ttl: seconds the lease lasts without renewal.
        seen: the latest generation an earlier session of this process acted on.
    """

    def __init__(self, ttl: float, seen: int = 0) -> None:
        self.ttl = ttl
        self.seen = seen
        self.closing = False
        # Whether the group has counted this session.
        self._seated = False
        self.holding = Holding()
        self.warming: frozenset[int] = frozenset()
        self.step_at = self._look_at = math.inf
        # What the application was told, and the last partition that was let go of.
        self._active = False
        # Of what is held, the partitions that end before the lease: their own deadlines, and these
        # in rising order. There may be thousands; one that is no deadline any more is passed over.
        self._deadlines: dict[int, float] = {}
        self._ends: list[tuple[float, int]] = []
        self._last = 0
        self.stalled = False
        # What was held by the last view that was taken up, and what of it was to be emptied.
        self._agreed: PartitionMap[int] = PartitionMap()
        self._draining: frozenset[int] = frozenset()
        # What that view holds and this member does not.
        self._absent: set[int] = set()
        self._lags: dict[int, float] = {}
        # With each load the monotonic time at which it is forgotten.
        self._loads: dict[int, tuple[float, float]] = {}
        # The greatest token under which each partition was ever held.
        self._past: dict[int, int] = {}
        # Words stay until the group's answer shows that they were heard.
        self._released: dict[int, int] = {}
        self._drained: dict[int, int] = {}

    # --- what is held -------------------------------------------------------------------------

    def held(self, now: float) -> dict[int, int]:
        """The partitions held at ``now``, with their tokens."""
        holding = self.holding
        if now >= holding.lease_until:
            return {}
        return {p: held.token for p, held in holding.partitions.items() if now < held.until}

    def standing(self, now: float) -> list[PartitionChange]:
        """What an application is to be told that begins to listen at ``now``."""
        kinds = PartitionChangeKind
        changes: list[PartitionChange] = []
        for partition, token in sorted(self.held(now).items()):
            held = self.holding.partitions[partition]
            if not changes:
                changes.append(PartitionChange(kinds.ACTIVE, partition, token))
            changes.append(PartitionChange(kinds.ASSIGNED, partition, token))
            if held.until < math.inf:
                changes.append(PartitionChange(kinds.REVOKED, partition, token, held.until))
            elif held.draining:
                changes.append(PartitionChange(kinds.DRAIN, partition, token))
        return changes + [PartitionChange(kinds.WARMUP, p) for p in sorted(self.cold)]

    def words(self) -> Words:
        """What to tell with the next renewal."""
        return Words(
            self.seen,
            dict(self._released),
            dict(self._drained),
            dict(self._lags),
            self.stalled,
            {partition: load for partition, (load, _) in self._loads.items()},
        )

    def close(self, until: float) -> list[PartitionChange]:
        """Begin to leave: everything has to end by that monotonic time, and nothing new begins.

        Renewals may go on meanwhile, and report what ends, so that others have it at once.
        """
        self.closing = True
        changes = []
        partitions = {}
        for partition, held in sorted(self.holding.partitions.items()):
            if held.until == math.inf:
                changes.append(
                    PartitionChange(PartitionChangeKind.REVOKED, partition, held.token, until)
                )
            partitions[partition] = replace(held, until=min(held.until, until))
            self._end_at(partition, partitions[partition].until)
        self.holding = Holding(PartitionMap(partitions), self.holding.lease_until)
        return changes

    # --- what the application says ------------------------------------------------------------

    def release(self, partition: int, token: int, now: float) -> bool:
        """The application has stopped working on a partition. Whether that was news.

        A word after the partition's time is none: :meth:`tick` reports the loss, even if it
        has not come round yet.
        """
        if self.holding.token(partition, now) != token:
            return False
        self._let_go(partition)
        return True

    def drained(self, partition: int, now: float) -> bool:
        """The application has emptied a removed partition. Whether it had to, and in time.

        If the partition is there again since, the group grants it anew: the application may have
        ended its work on it.
        """
        held = self.holding.partitions.get(partition)
        if held is None or not (held.draining or held.emptying):
            return False
        if self.holding.token(partition, now) is None:
            return False
        self._drop(partition)
        self._drained[partition] = held.token
        return True

    def lag(self, partition: int, behind: float) -> bool:
        """How far behind the application is on a partition it warms up for. Whether it has to."""
        if partition not in self.warming:
            return False
        self._lags[partition] = behind
        return True

    def behind(self, partition: int) -> float | None:
        """The lag that was reported last for a partition; ``None`` if there is none."""
        return self._lags.get(partition)

    def load(self, partition: int, value: float) -> bool:
        """How busy a partition is. Whether it is held."""
        if partition not in self.holding.partitions:
            return False
        self._loads[partition] = value, math.inf
        return True

    @property
    def newest_token(self) -> int:
        """The greatest token under which any partition was ever held; 0 before the first."""
        return max(self._past.values(), default=0)

    @property
    def cold(self) -> frozenset[int]:
        """The partitions to warm up for that the application has not answered for."""
        return self.warming - self._lags.keys()

    def warm_at_once(self) -> None:
        """Answer for all of them: the application has nothing to warm up."""
        self._lags.update(dict.fromkeys(self.cold, 0.0))

    # --- when to ask again --------------------------------------------------------------------

    def watch(self, at: float) -> None:
        """Be there at that monotonic time: a step of the group is due then, for this member."""
        self.step_at = at

    def look_again(self, at: float) -> None:
        """Renew at that monotonic time at the latest.

        The member knows then whether another took the step that was left to it, and the group has
        the latest lags.
        """
        self._look_at = min(self._look_at, at)

    # --- what the group says ------------------------------------------------------------------

    def joined(self) -> None:
        """The member is in the group as a new session.

        It keeps what it holds, and says so, until the group has counted it, or the lease ends that
        the session before renewed last.
        """
        self._seated = False

    def heard(
        self, view: MemberView, asked_at: float, redis_now: float, now: float
    ) -> list[PartitionChange]:
        """Take up an answer to a renewal.

        Args:
            view: the member's part of the group.
            asked_at: monotonic time before the question was sent.
            redis_now: Redis time of the answer.
            now: monotonic time.
        """
        earlier = self.tick(now)
        if view.generation < self.seen or now >= asked_at + self.ttl:
            # A group that lost its history, an answer that was overtaken, or one that lay in the
            # socket while this process was stopped. None of them may prolong anything.
            return earlier
        counted = view.seated or self._seated
        if counted or not self.holding.partitions:
            # The group goes by the leases of what it has counted. What an earlier session held, and
            # this one claims, ends with the last lease of that one.
            self.holding = replace(self.holding, lease_until=asked_at + self.ttl)
        if not counted:
            return earlier
        # Without its seat the session has nothing: others may have it by now.
        return earlier + self._take_up(view, asked_at, redis_now, now)

    def asked_for(
        self, view: MemberView, asked_at: float, redis_now: float, now: float
    ) -> list[PartitionChange]:
        """Take up a decision that grants nothing, and was no answer to a renewal.

        It prolongs nothing. Arguments as for :meth:`heard`; the view is of this session, and of
        the decision after the one that was taken up last.
        """
        earlier = self.tick(now)
        if now >= self.holding.lease_until:
            return earlier
        return earlier + self._take_up(view, asked_at, redis_now, now)

    def _take_up(
        self, view: MemberView, asked_at: float, redis_now: float, now: float
    ) -> list[PartitionChange]:
        self.seen, self._seated = view.generation, view.seated
        lost, looked_at = self._news(view)
        before = self.holding.partitions
        partitions: dict[int, Held] = {}
        changes = _lost({partition: before[partition] for partition in lost})
        for partition in lost:
            self._last = partition
            self._deadlines.pop(partition, None)
        for partition in looked_at:
            token = view.held[partition]
            mine = before.get(partition)
            if mine is not None and mine.token != token:
                changes.append(PartitionChange(PartitionChangeKind.LOST, partition, mine.token))
                self._deadlines.pop(partition, None)
                lost.append(partition)
                mine = None
            if mine is None:
                self._absent.add(partition)
                if not self._takes_up(partition, token, asked_back=partition in view.revoked):
                    continue
                mine = Held(token)
                changes.append(PartitionChange(PartitionChangeKind.ASSIGNED, partition, token))
            deadline = view.revoked.get(partition)
            if deadline is not None and deadline != mine.asked:
                # Asked again, after a loss in Redis, it may have less time.
                until = asked_at + deadline - redis_now
                if mine.until == math.inf:
                    changes.append(
                        PartitionChange(PartitionChangeKind.REVOKED, partition, token, until)
                    )
                mine = replace(mine, until=min(mine.until, until), asked=deadline)
                self._end_at(partition, mine.until)
            if partition in view.draining and not mine.draining:
                mine = replace(mine, draining=True)
                if mine.until == math.inf:
                    # Not if it is to be let go of: another member empties it.
                    mine = replace(mine, emptying=True)
                    changes.append(PartitionChange(PartitionChangeKind.DRAIN, partition, token))
            elif mine.draining and partition not in view.draining:
                mine = replace(mine, draining=False)
            partitions[partition] = mine
            self._absent.discard(partition)
        after = before.changed(partitions, without=lost)
        self.holding = Holding(after, self.holding.lease_until)
        for words in (self._released, self._drained):
            for partition in [p for p, token in words.items() if view.held.get(p) != token]:
                del words[partition]
        changes += self._warm_for(view)
        self._forget_loads(now)
        return self._with_activity(changes)

    def _takes_up(self, partition: int, token: int, *, asked_back: bool) -> bool:
        """Whether to begin with a partition that the group says is held here."""
        if token in (self._released.get(partition), self._drained.get(partition)):
            return False
        used = token <= self._past.get(partition, 0)
        if used or asked_back or self.closing:
            # Granted and asked back before we heard of it: never begun, so given up. Or
            # Redis has forgotten that it was let go of: others may have had it since. Or
            # granted before the group heard that this member stops.
            self._released[partition] = token
            return False
        self._past[partition] = token
        return True

    def _warm_for(self, view: MemberView) -> list[PartitionChange]:
        """Take up what to be warm for."""
        changes = [
            PartitionChange(kind, partition)
            for kind, partitions in (
                (PartitionChangeKind.WARMUP, view.warming - self.warming),
                (PartitionChangeKind.COOLED, self.warming - view.warming),
            )
            for partition in sorted(partitions)
        ]
        self.warming = view.warming
        self._lags = {p: behind for p, behind in self._lags.items() if p in view.warming}
        return changes

    def _news(self, view: MemberView) -> tuple[list[int], list[int]]:
        """What a view may say otherwise than this member has it, both in rising order.

        A member may hold thousands, of which an answer changes a few: only those are looked at.

        Returns:
            The partitions held here that are not in the view; those of the view to look at.
        """
        agreed, self._agreed = self._agreed, PartitionMap.of(view.held)
        different = self._agreed.differing(agreed)
        # Whatever is held here was in the view before.
        lost = [p for p in different if p in self.holding.partitions and p not in view.held]
        self._absent.difference_update(p for p in different if p not in view.held)
        found = {*self._draining, *view.revoked, *view.draining, *different, *self._absent}
        self._draining = view.draining
        return lost, sorted(p for p in found if p in view.held)

    def tick(self, now: float) -> list[PartitionChange]:
        """Let go of what time has ended: everything with the lease, a handoff with its deadline.

        A step that was waited for is over as well: the renewal that follows takes it.

        To be called at :meth:`due`, and before anything else after a pause.
        """
        if now >= self.step_at:
            self.step_at = math.inf
        if now >= self._look_at:
            self._look_at = math.inf
        if now >= self.holding.lease_until:
            ended = sorted(self.holding.partitions)
        else:
            ended = []
            while self._first_end() <= now:
                ended.append(self._ends[0][1])
                del self._deadlines[ended[-1]]
            ended.sort()
        return self._with_activity(_lost(self._let_go(*ended)))

    def end(self) -> list[PartitionChange]:
        """Lose everything: the member leaves, and nobody works on anything any more."""
        return self._with_activity(_lost(self._drop(*sorted(self.holding.partitions))))

    def _forget_loads(self, now: float) -> None:
        """Report the load of what is not held any more until its next holder does."""
        for partition, (load, until) in list(self._loads.items()):
            if partition in self.holding.partitions:
                continue
            if until == math.inf:
                self._loads[partition] = load, now + _LOAD_KEPT
            elif now >= until:
                del self._loads[partition]

    def _with_activity(self, changes: list[PartitionChange]) -> list[PartitionChange]:
        """These changes, and whether the member has become active or inactive by them."""
        active = bool(self.holding.partitions)
        if active and not self._active:
            at = next(i for i, c in enumerate(changes) if c.kind is PartitionChangeKind.ASSIGNED)
            changes.insert(at, replace(changes[at], kind=PartitionChangeKind.ACTIVE))
        elif self._active and not active:
            changes.append(PartitionChange(PartitionChangeKind.INACTIVE, self._last))
        self._active = active
        return changes

    def due(self) -> float:
        """The monotonic time of the next :meth:`tick`, and of the next renewal at the latest.

        It is a deadline of what is held, or the time of a step of the group that this member
        waits for; infinite when there is neither.
        """
        asks = min(self.step_at, self._look_at)
        if not self.holding.partitions:
            return asks
        return min(asks, self.holding.lease_until, self._first_end())

    def _end_at(self, partition: int, until: float) -> None:
        """Let it end at that time at the latest."""
        self._deadlines[partition] = until
        heappush(self._ends, (until, partition))

    def _first_end(self) -> float:
        """The first deadline of what is held; infinite when there is none."""
        while self._ends and self._deadlines.get(self._ends[0][1]) != self._ends[0][0]:
            heappop(self._ends)
        return self._ends[0][0] if self._ends else math.inf

    def _let_go(self, *partitions: int) -> dict[int, Held]:
        """Hold these no more, and report it; what they were."""
        dropped = self._drop(*partitions)
        self._released.update({partition: held.token for partition, held in dropped.items()})
        return dropped

    def _drop(self, *partitions: int) -> dict[int, Held]:
        """Hold these no more; what they were."""
        if not partitions:
            return {}
        before = self.holding.partitions
        dropped = {partition: before[partition] for partition in partitions}
        kept = before.changed({}, without=partitions)
        for partition in partitions:
            self._deadlines.pop(partition, None)
        self._last = partitions[-1]
        self._absent.update(partitions)
        self.holding = Holding(kept, self.holding.lease_until)
        return dropped


def _lost(dropped: Mapping[int, Held]) -> list[PartitionChange]:
    return [PartitionChange(PartitionChangeKind.LOST, p, held.token) for p, held in dropped.items()]
