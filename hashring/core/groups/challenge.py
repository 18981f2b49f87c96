"""Leases by race, without any shared assignment: the lease challenge, as its author wrote it and
as it has to be.

**Faithful** (the first half of this module): once per normal lease time each partition is
challenged; everybody waits for a time that grows with the number of partitions it has, and then
tries to set the grab; who is first, owns. A node that answers late loses what it should keep and
a node under load always answers late: its author withdrew it for that. It is here to be looked
at, and to be measured against.

The article gives two formulas for each wait that contradict each other. This is the one pair of
them in which an owner with ``n`` partitions keeps against a challenger with ``n - 1`` and loses
against one with ``n - 2``, in both cases by half a delay.

**Fixed** (the second half): nothing is decided by who answers first. Members and leases stand in
one table on Redis time; :func:`beat` is one atomic step in which a member renews, takes what is
free, and may *ask* for one partition of the member with the most, if that one has two more than
itself. The owner drains until the deadline and lets go, or its lease, which is not renewed beyond
the deadline, ends. A partition changes hands only when it is free, under a greater token.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from hashring.core.groups.state import check_partitions
from hashring.errors import ConfigError

# --- faithful ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spans:
    """The article's five time spans, in seconds.

    Attributes:
        normal_lease: how long a partition is generally not challenged.
        max_lease: after so long without a signal its owner counts as gone; much longer.
        max_shutdown: how long an owner that lost may take to stop.
        min_grab: how long a won grab stands before it can be challenged; below ``normal_lease``.
        held_delay: the wait for each partition held.

    Raises:
        ConfigError: spans that contradict each other.
    """

    normal_lease: float = 60.0
    max_lease: float = 180.0
    max_shutdown: float = 2.0
    min_grab: float = 30.0
    held_delay: float = 0.25

    def __post_init__(self) -> None:
        for name in ("normal_lease", "max_lease", "max_shutdown", "min_grab", "held_delay"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ConfigError(name, value, "must be a finite number of seconds above 0")
        if self.max_lease < 2 * self.normal_lease:
            raise ConfigError(
                "max_lease", self.max_lease, f"must be at least twice the {self.normal_lease:g} s "
                f"of normal_lease"
            )  # fmt: skip
        if self.min_grab >= self.normal_lease:
            raise ConfigError(
                "min_grab", self.min_grab, f"must be below the {self.normal_lease:g} s of "
                f"normal_lease"
            )  # fmt: skip


class Signal(str, Enum):
    """What a node does about a partition when its timer fires (steps 1.1 and 1.2)."""

    NOTHING = "nothing"
    CHALLENGE = "challenge"
    CLEAR_AND_CHALLENGE = "clear and challenge"


def signal(*, owned: bool, grabbed: bool, silent: float, spans: Spans) -> Signal:
    """Whether to challenge a partition.

    Args:
        owned: this node has it.
        grabbed: the grab is set.
        silent: seconds since a challenge of it was last heard.
    """
    if owned:
        return Signal.NOTHING
    if silent > spans.max_lease:
        return Signal.CLEAR_AND_CHALLENGE
    if grabbed or silent < spans.normal_lease:
        return Signal.NOTHING
    return Signal.CHALLENGE


def race_wait(*, owned: bool, active: int, spans: Spans) -> float:
    """Seconds from hearing a challenge until trying to set the grab (step 2).

    Args:
        owned: this node has the partition.
        active: how many partitions it has, that one included.
    """
    return (active - 0.5 if owned else active + 1) * spans.held_delay


class AfterRace(str, Enum):
    """What a node does once the race is run (steps 3 to 5)."""

    KEEP = "keep"
    STOP = "stop"
    WAIT = "wait"
    """Won, but another still works: wait for it to stop, at most the maximum shutdown time."""
    START = "start"
    NOTHING = "nothing"


def after_race(*, won: bool, owned: bool, busy: bool) -> AfterRace:
    """What follows from a race.

    Args:
        won: this node set the grab.
        owned: it has the partition.
        busy: another node still works on it, says the lease allocation.
    """
    if owned:
        return AfterRace.KEEP if won else AfterRace.STOP
    if not won:
        return AfterRace.NOTHING
    return AfterRace.WAIT if busy else AfterRace.START


# --- fixed ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """The time spans of the fixed mode, in seconds.

    Attributes:
        ttl: how long a lease lasts without renewal.
        interval: between renewals; ``ttl`` is at least three of it.
        max_handoff_time: how long an owner may drain a partition it was asked for.
        residency: how long a partition stays before it can be asked for.

    Raises:
        ConfigError: spans that contradict each other.
    """

    ttl: float = 60.0
    interval: float = 15.0
    max_handoff_time: float = 10.0
    residency: float = 30.0

    def __post_init__(self) -> None:
        for name in ("ttl", "interval", "max_handoff_time"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ConfigError(name, value, "must be a finite number of seconds above 0")
        if not (self.residency >= 0 and math.isfinite(self.residency)):
            raise ConfigError("residency", self.residency, "must be a finite number, 0 or more")
        if self.ttl < 3 * self.interval:
            raise ConfigError(
                "ttl", self.ttl, f"must be at least three intervals of {self.interval:g} s: with "
                f"less, one late renewal costs a member everything"
            )  # fmt: skip


@dataclass(frozen=True)
class PartitionLease:
    """A partition's lease.

    Attributes:
        owner: who holds it; ``None`` when it was let go of.
        token: the fencing token it is or was held under.
        expires: Redis time at which it ends.
        since: Redis time of the grant.
        wanted_by: who has asked for it.
        deadline: until when the owner may keep it then.
    """

    owner: str | None
    token: int
    expires: float
    since: float
    wanted_by: str | None = None
    deadline: float | None = None


@dataclass(frozen=True)
class LeaseTable:
    """All leases and all members.

    Attributes:
        partitions: how many, numbered from 0.
        leases: of the partitions that ever had one.
        members: until when each member is alive. One without any lease counts as well: that is
            how a newcomer is seen.
        token: the greatest token granted so far.
        quiet_until: until when nothing is taken, since members may return that hold it.
    """

    partitions: int
    leases: Mapping[int, PartitionLease] = field(default_factory=dict)
    members: Mapping[str, float] = field(default_factory=dict)
    token: int = 0
    quiet_until: float = 0.0

    def __post_init__(self) -> None:
        check_partitions(self.partitions)

    def holder(self, partition: int, now: float) -> str | None:
        """Who holds the partition at ``now``."""
        lease = self.leases.get(partition)
        return lease.owner if lease is not None and lease.expires > now else None

    def held(self, member: str, now: float) -> dict[int, PartitionLease]:
        """The leases of a member at ``now``."""
        return {
            p: lease
            for p, lease in self.leases.items()
            if lease.owner == member and lease.expires > now
        }


def beat(
    table: LeaseTable, member: str, now: float, rules: Rules, released: Collection[int] = ()
) -> LeaseTable:
    """A member renews, lets go, takes, and asks: one atomic step.

    Args:
        released: partitions it was asked for and has stopped working on.
    """
    members = {name: until for name, until in table.members.items() if until > now}
    members[member] = now + rules.ttl
    leases = {p: _renewed(lease, member, now, rules) for p, lease in table.leases.items()}
    for partition in released:
        lease = leases.get(partition)
        if lease is not None and lease.owner == member:
            leases[partition] = replace(lease, owner=None, expires=now)

    counts = _counts(leases, members, now)
    most = math.ceil(table.partitions / len(members))
    token = table.token
    for partition in range(table.partitions):
        lease = leases.get(partition)
        if now < table.quiet_until or (lease is not None and lease.expires > now):
            continue
        wanted_by = lease.wanted_by if lease is not None else None
        mine = wanted_by == member
        if not mine and (wanted_by in members or counts[member] >= most):
            continue
        token = max(token + 1, int(now * 1e6))
        leases[partition] = PartitionLease(member, token, now + rules.ttl, now)
        counts[member] += not mine

    if all(lease.wanted_by != member for lease in leases.values()):
        wish = _wish(leases, counts, member, now, rules)
        if wish is not None:
            leases[wish] = replace(
                leases[wish], wanted_by=member, deadline=now + rules.max_handoff_time
            )
    return replace(table, leases=leases, members=members, token=token)


def recover(
    table: LeaseTable, member: str, now: float, rules: Rules, claims: Mapping[int, int]
) -> LeaseTable:
    """A member that finds itself gone from the table brings back what it still holds.

    An empty table means that Redis lost it: nothing is taken until every lease of before has
    ended.

    Args:
        claims: the partitions it holds by its own clock, with their tokens.
    """
    leases = dict(table.leases)
    for partition, token in claims.items():
        lease = leases.get(partition)
        if 0 <= partition < table.partitions and (lease is None or lease.token < token):
            leases[partition] = PartitionLease(member, token, now + rules.ttl, now)
    return replace(
        table,
        leases=leases,
        token=max(table.token, *claims.values(), 0),
        quiet_until=table.quiet_until if table.members else now + rules.ttl,
    )


def leave(table: LeaseTable, member: str, now: float) -> LeaseTable:
    """A member lets go of everything, and is gone."""
    return replace(
        table,
        leases={
            p: replace(lease, owner=None, expires=now) if lease.owner == member else lease
            for p, lease in table.leases.items()
        },
        members={name: until for name, until in table.members.items() if name != member},
    )


def _renewed(lease: PartitionLease, member: str, now: float, rules: Rules) -> PartitionLease:
    if lease.owner != member or lease.expires <= now:
        return lease
    until = now + rules.ttl
    if lease.deadline is not None:
        # What the owner was told before still holds; what it is told now ends at the deadline.
        until = max(lease.expires, min(until, lease.deadline))
    return replace(lease, expires=until)


def _counts(
    leases: Mapping[int, PartitionLease], members: Mapping[str, float], now: float
) -> dict[str, int]:
    """How many partitions each live member has, those on their way counted where they go."""
    counts = dict.fromkeys(members, 0)
    for lease in leases.values():
        name = lease.wanted_by if lease.wanted_by in counts else lease.owner
        if name in counts and (lease.expires > now or lease.wanted_by == name):
            counts[str(name)] += 1
    return counts


def _wish(
    leases: Mapping[int, PartitionLease],
    counts: Mapping[str, int],
    member: str,
    now: float,
    rules: Rules,
) -> int | None:
    """The partition to ask for: of the member with the most, if that is two more than mine."""
    donor = min(counts, key=lambda name: (-counts[name], name))
    if counts[donor] - counts[member] < 2:
        return None
    ripe = [
        (lease.since, partition)
        for partition, lease in leases.items()
        if lease.owner == donor
        and lease.expires > now
        and lease.wanted_by is None
        and now - lease.since >= rules.residency
    ]
    return min(ripe)[1] if ripe else None
