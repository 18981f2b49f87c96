"""Leases in one table, without any shared assignment: the lease challenge as it has to be.

Nothing is decided by who answers first, as in :mod:`.faithful_challenge`. Members and leases stand
in one table on Redis time; :func:`beat` is one atomic step in which a member renews, takes what is
free, and may *ask* for one partition of the member with the most, if that one has two more than
itself. The owner drains until the deadline and lets go, or its lease, which is not renewed beyond
the deadline, ends. A partition changes hands only when it is free, under a greater token.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from hashring.core.groups.state import check_partitions
from hashring.core.value_checks import checked_seconds, checked_ttl
from hashring.errors import ConfigError


@dataclass(frozen=True)
class LeaseChallengeRules:
    """The time spans of a lease challenge, in seconds.

    Attributes:
        ttl: how long a lease lasts without renewal; the same for all members, at least 0.1 s.
        interval: between renewals; ``ttl`` is at least three of it.
        max_handoff_time: how long an owner may drain a partition it was asked for, or all it has
            when it leaves; at most ``ttl - interval``. A member that leaves does not renew: if its
            last renewals failed, the end of its lease comes first.
        residency: how long a partition stays before it can be asked for.

    Raises:
        ConfigError: spans that contradict each other.
    """

    ttl: float = 60.0
    interval: float = 15.0
    max_handoff_time: float = 10.0
    residency: float = 30.0

    def __post_init__(self) -> None:
        # Frozen; and numpy's numbers may not stay what they are.
        put = partial(object.__setattr__, self)
        put("ttl", checked_ttl(self.ttl))
        for name in ("interval", "max_handoff_time"):
            put(name, checked_seconds(name, getattr(self, name)))
        put("residency", checked_seconds("residency", self.residency, may_be_0=True))
        if self.ttl < 3 * self.interval:
            raise ConfigError(
                "ttl", self.ttl, f"must be at least three intervals of {self.interval:g} s: with "
                f"less, one late renewal costs a member everything"
            )  # fmt: skip
        longest = self.ttl - self.interval
        if self.max_handoff_time > longest:
            raise ConfigError(
                "max_handoff_time", self.max_handoff_time, f"must be at most the ttl less one "
                f"interval, {longest:g} s: a member that leaves does not renew, and its work must "
                f"not outlast its leases"
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
        ttl: the ``ttl`` of the members' rules; 0 when no member has written it.
        as_of: Redis time of the last :func:`beat`; 0 when it was not noted.
    """

    partitions: int
    leases: Mapping[int, PartitionLease] = field(default_factory=dict)
    members: Mapping[str, float] = field(default_factory=dict)
    token: int = 0
    quiet_until: float = 0.0
    ttl: float = 0.0
    as_of: float = 0.0

    def __post_init__(self) -> None:
        check_partitions(self.partitions)

    def holder(self, partition: int, now: float) -> str | None:
        """Who holds the partition at ``now``."""
        lease = self.leases.get(partition)
        return lease.owner if lease is not None and lease.expires > now else None

    def other_ttl(self, ttl: float, now: float) -> float | None:
        """The ``ttl`` of the members that are alive at ``now``, if it is not this one.

        After a loss, each member waits for as long as its own leases last. That is long enough only
        if those of all others last as long.
        """
        return self.ttl if self._is_in_use(now) and self.ttl not in (0.0, ttl) else None

    def other_count(self, partitions: int, now: float) -> int | None:
        """How many partitions the members have that are alive at ``now``, if not that many."""
        other = self.partitions != partitions and self._is_in_use(now)
        return self.partitions if other else None

    def counting(self, partitions: int) -> LeaseTable:
        """This table with that many partitions; of another count, all its leases have ended."""
        if partitions == self.partitions:
            return self
        return replace(self, partitions=partitions, leases={})

    def at(self, now: float) -> LeaseTable:
        """This table in the time of a clock that shows ``now``, and may have been set back.

        No time is later than the last beat by more than it could be then. So if the clock shows
        less than then, all times are as much earlier: what was left of each then is left now.
        """
        back = self.as_of - now
        if back <= 0:
            return self
        return replace(
            self,
            leases={
                p: replace(
                    lease,
                    expires=lease.expires - back,
                    since=lease.since - back,
                    deadline=None if lease.deadline is None else lease.deadline - back,
                )
                for p, lease in self.leases.items()
            },
            members={name: until - back for name, until in self.members.items()},
            quiet_until=self.quiet_until - back,
            as_of=now,
        )

    def _is_in_use(self, now: float) -> bool:
        return any(until > now for until in self.members.values())

    def held(self, member: str, now: float) -> dict[int, PartitionLease]:
        """The leases of a member at ``now``."""
        return {
            p: lease
            for p, lease in self.leases.items()
            if lease.owner == member and lease.expires > now
        }


def beat(
    table: LeaseTable,
    member: str,
    now: float,
    rules: LeaseChallengeRules,
    released: Collection[int] = (),
) -> LeaseTable:
    """A member renews, lets go, takes, and asks: one atomic step.

    Args:
        released: partitions it was asked for and has stopped working on.
    """
    table = table.at(now)
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
    return replace(table, leases=leases, members=members, token=token, ttl=rules.ttl, as_of=now)


def recover(
    table: LeaseTable,
    member: str,
    now: float,
    rules: LeaseChallengeRules,
    claims: Mapping[int, int],
    *,
    newest: int,
    lost_by: float,
) -> LeaseTable:
    """A member that knows of a loss of the table, or of its last writes, brings back what it holds.

    Nothing is taken until every lease of before has ended. All members have one ``ttl``; see
    :meth:`LeaseTable.other_ttl`. Those of before may have had a longer one.

    Args:
        claims: the partitions it holds by its own clock, with their tokens.
        newest: the greatest token that it ever had: later ones are to be greater, also if Redis'
            clock was set back.
        lost_by: Redis time after which no lease of before was granted.
    """
    leases = dict(table.leases)
    for partition, token in claims.items():
        lease = leases.get(partition)
        if 0 <= partition < table.partitions and (lease is None or lease.token < token):
            leases[partition] = PartitionLease(member, token, now + rules.ttl, now)
    return replace(
        table,
        leases=leases,
        token=max(table.token, newest),
        quiet_until=max(table.quiet_until, lost_by + max(rules.ttl, table.ttl)),
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


def _renewed(
    lease: PartitionLease, member: str, now: float, rules: LeaseChallengeRules
) -> PartitionLease:
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
    rules: LeaseChallengeRules,
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
