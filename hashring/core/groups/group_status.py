"""Where a group stands, for whom it waits, and until when. Nothing is touched."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from hashring.core.assignors import assignor_named
from hashring.core.assignors.situation import GroupMember, GroupSituation, MemberState
from hashring.core.groups import reported_loads
from hashring.core.groups.next_state import member_state, rule
from hashring.core.groups.state import (
    NON_EXCLUSIVE,
    Facts,
    GroupPhase,
    GroupState,
    MemberFacts,
    MemberOrder,
)
from hashring.errors import ConfigError


class WaitKind(str, Enum):
    """What somebody is waited for to do."""

    RELEASE = "release"
    """To let go of a partition it was asked for."""
    LEASE = "lease"
    """To answer at all; otherwise for its lease to end."""
    WARMUP = "warm-up"
    """To warm up for a partition."""
    DRAIN = "drain"
    """To empty a removed partition."""
    CHANGES = "changes"
    """For the membership to come to rest."""
    RETURN = "return"
    """For members to say what they hold, after Redis lost what was decided."""


@dataclass(frozen=True)
class GroupWait:
    """Something a group waits for.

    Attributes:
        kind: for what.
        member: for whom; ``None`` where it is for nobody in particular.
        partition: about which partition.
        until: Redis time by which the wait ends in any case; ``None`` when only the member can
            end it.
    """

    kind: WaitKind
    member: str | None = None
    partition: int | None = None
    until: float | None = None


@dataclass(frozen=True)
class Waits:
    """What a group waits for one member to do, in as many partitions as it is.

    Attributes:
        kind: what.
        member: whom it waits for; ``None`` where it is for nobody in particular.
        partitions: which, rising.
        until: Redis time by which the last of the waits ends; ``None`` when only the member can
            end them.
    """

    kind: WaitKind
    member: str | None
    partitions: tuple[int, ...]
    until: float | None


@dataclass(frozen=True)
class MemberStatus:
    """A member, for people.

    Attributes:
        name: its name.
        state: what may be given to it.
        partitions: what it holds.
        expires_in: seconds until its lease ends unless it is renewed.
    """

    name: str
    state: MemberState
    partitions: tuple[int, ...]
    expires_in: float

    @property
    def active(self) -> bool:
        """Whether it holds a partition. The others stand by."""
        return bool(self.partitions)


@dataclass(frozen=True)
class GroupStatus:
    """Where a group stands.

    Attributes:
        phase: Ready, Holddown or Rebalancing; without members, as they left it.
        generation: number of the last decision.
        partitions: how many.
        until: Redis time at which the holddown ends, or by which the last handoff under way
            does; ``None`` when there is neither.
        waits: what it waits for; nothing without members, since nobody waits.
        unowned: partitions that nobody holds, those of members included that are gone.
        draining: removed partitions that are not empty yet.
        members: in order of joining.
        latest: Redis time by which the group acts on ``until`` in any case. A few members wait
            for that time and act at once; if all of them stop first, the next renewal of any
            member does, a third of the ttl later at most.
        access: ``"non-exclusive"``, or ``"exclusive"`` if one member has all the partitions.
        too_hot: with the assignor ``load`` the partitions that are too busy for any member, the
            busiest first.
        orders: what was ordered about members, by name; also about members that are not there.
        expired: the names of members whose leases ended before they left. The next decision of
            a live member removes them.
        unreadable: the names of members whose leases stand, and whose reports in Redis cannot be
            read. Each keeps the partitions it has and gets no others.
    """

    phase: GroupPhase
    generation: int
    partitions: int
    until: float | None
    waits: tuple[GroupWait, ...]
    unowned: tuple[int, ...]
    draining: tuple[int, ...]
    members: tuple[MemberStatus, ...]
    latest: float | None = None
    access: str = NON_EXCLUSIVE
    too_hot: tuple[int, ...] = ()
    orders: Mapping[str, MemberOrder] = field(default_factory=dict)
    expired: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def has_members(self) -> bool:
        """Whether any lease stands."""
        return bool(self.members or self.unreadable)

    @property
    def blocking(self) -> tuple[str, ...]:
        """The members that others wait for."""
        return tuple(sorted({wait.member for wait in self.waits if wait.member is not None}))

    @property
    def waits_together(self) -> tuple[Waits, ...]:
        """What it waits for, that of one member together; in order of the first partition."""
        found: dict[tuple[WaitKind, str | None], list[GroupWait]] = {}
        for wait in self.waits:
            found.setdefault((wait.kind, wait.member), []).append(wait)
        return tuple(
            Waits(
                kind,
                member,
                tuple(sorted(w.partition for w in waits if w.partition is not None)),
                max((w.until for w in waits if w.until is not None), default=None),
            )
            for (kind, member), waits in found.items()
        )


_ENDING = (WaitKind.CHANGES, WaitKind.RETURN, WaitKind.RELEASE, WaitKind.LEASE)


def status(state: GroupState, facts: Facts) -> GroupStatus:
    """Where a group stands, for whom it waits, and until when."""
    present = state.present(facts)
    orders = state.orders_at(facts.now)
    waits = tuple(_waits(state, present)) if facts.live else ()
    # A decision may be older than the facts: a session that is gone holds nothing any more.
    seats = {name: seat.session for name, seat in state.roster.items()}
    seated = {name for name, member in present.items() if seats.get(name) == member.session}
    having: dict[str, list[int]] = {}
    unowned = []
    for partition in state.existing:
        holder = state.holder(partition)
        if holder in seated:
            having.setdefault(str(holder), []).append(partition)
        else:
            unowned.append(partition)
    ends = [w.until for w in waits if w.kind in _ENDING and w.until is not None]
    until = max(ends, default=None)
    return GroupStatus(
        state.phase,
        state.generation,
        state.terms.partitions,
        until,
        waits,
        tuple(unowned),
        tuple(sorted(state.draining)),
        tuple(
            MemberStatus(
                member.name,
                member_state(member, orders.get(member.name)),
                tuple(having.get(member.name, ())),
                member.expires - facts.now,
            )
            for member in sorted(present.values(), key=lambda m: _place(state, m))
        ),
        None if until is None else until + state.terms.ttl / 3,
        state.terms.access,
        _too_hot(state, present, orders),
        orders,
        tuple(
            sorted(
                member.name
                for member in (*facts.members, *facts.unreadable)
                if member.expires <= facts.now and member.name not in present
            )
        ),
        tuple(sorted(m.name for m in facts.unreadable if m.expires > facts.now)),
    )


def _waits(state: GroupState, present: Mapping[str, MemberFacts]) -> Iterator[GroupWait]:
    if state.holddown is not None:
        yield GroupWait(WaitKind.CHANGES, until=state.holddown.until)
    if state.recovering is not None:
        yield GroupWait(WaitKind.RETURN, until=state.recovering)
    for partition, handoff in sorted(state.handoffs.items()):
        owner = present.get(handoff.owner)
        heard = owner is None or owner.seen >= handoff.generation
        yield GroupWait(
            WaitKind.RELEASE if heard else WaitKind.LEASE,
            handoff.owner,
            partition,
            handoff.ends_by(handoff.generation if owner is None else owner.seen),
        )
    for partition, name in sorted(state.warming.items()):
        owner = present.get(state.owners[partition] or "")
        leaving = None if owner is None else owner.leaving
        until = None if leaving is None else leaving + state.terms.leave_timeout
        yield GroupWait(WaitKind.WARMUP, name, partition, until)
    for partition in sorted(state.draining):
        yield GroupWait(WaitKind.DRAIN, state.holder(partition), partition)


def _too_hot(
    state: GroupState, present: Mapping[str, MemberFacts], orders: Mapping[str, MemberOrder]
) -> tuple[int, ...]:
    try:
        assignor = rule(state.terms, assignor_named(state.terms.assignor))
    except ConfigError:  # an assignor of the user's own
        return ()
    if not present or not reported_loads.looks(assignor):
        return ()
    members = tuple(
        GroupMember(
            member.name, number, member.weight, member_state(member, orders.get(member.name))
        )
        for number, member in enumerate(sorted(present.values(), key=lambda m: m.name))
    )
    partitions = state.terms.partitions
    found = reported_loads.reported(present.values(), state.owners.__getitem__, partitions)
    return reported_loads.hot(assignor, GroupSituation(members, partitions, loads=found))


def _place(state: GroupState, member: MemberFacts) -> tuple[float, int, str]:
    seat = state.roster.get(member.name)
    return (math.inf if seat is None else seat.place, member.joined, member.name)
