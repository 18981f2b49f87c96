"""What a partition group knows: what was decided, and what its members report.

**Decisions** (:class:`GroupState`) change only by compare-and-set on the generation. **Facts**
(:class:`Facts`) are written by each member about itself. Facts only ever grow within what they
are about: a lease that ran out is never renewed (the member must come back as a new session), a
partition given up under a token stays given up, a generation once seen stays seen. That is why a
decision computed from slightly old facts is still safe when it is committed: what it relied on
cannot have been taken back.

Times are seconds of Redis time, except where a name says otherwise. Everything here is immutable.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from itertools import compress, count, repeat
from operator import eq
from typing import Final

from hashring.core.groups.partition_column import Column
from hashring.core.state_table import StateTable
from hashring.core.value_checks import checked_seconds, checked_ttl, checked_whole
from hashring.errors import ConfigError

MAX_PARTITIONS: Final = 1_000_000
"""More would make every decision slower than the handoffs it decides on."""


NON_EXCLUSIVE: Final = "non-exclusive"
EXCLUSIVE: Final = "exclusive"


@dataclass(frozen=True)
class Terms:
    """What all members of a group must agree on.

    Attributes:
        partitions: how many, numbered from 0.
        assignor: the name of the assignor.
        ttl: seconds a member's lease lasts without renewal; at least 0.1.
        rebalance_delay: seconds from the first change of the membership until partitions move;
            0 for at once.
        max_handoff_time: seconds an owner may take to let go of a partition.
        handoffs: how many partitions may be on their way at once.
        leave_timeout: seconds a leaving member may wait for others to warm up.
        access: ``"non-exclusive"``: the assignor shares the partitions out; ``"exclusive"``: one
            member has all of them, the others stand by, and no assignor is asked.

    Raises:
        ConfigError: a value that cannot work.
    """

    partitions: int
    assignor: str = "balanced"
    ttl: float = 10.0
    rebalance_delay: float = 5.0
    max_handoff_time: float = 3.0
    handoffs: int = 1
    leave_timeout: float = 30.0
    access: str = NON_EXCLUSIVE

    def __post_init__(self) -> None:
        # Frozen; and numpy's numbers may not stay what they are.
        put = partial(object.__setattr__, self)
        put("partitions", check_partitions(self.partitions))
        put("ttl", checked_ttl(self.ttl))
        for name in ("rebalance_delay", "max_handoff_time", "leave_timeout"):
            put(name, checked_seconds(name, getattr(self, name), may_be_0=True))
        handoffs = checked_whole("handoffs", self.handoffs)
        if handoffs < 1:
            raise ConfigError("handoffs", self.handoffs, "without handoffs nothing could move")
        put("handoffs", handoffs)
        check_access(self.access)


def check_access(access: str) -> str:
    """The access type itself, when there is such a one.

    Raises:
        ConfigError: there is none of that name.
    """
    if access not in (NON_EXCLUSIVE, EXCLUSIVE):
        raise ConfigError("access", access, f"must be {NON_EXCLUSIVE!r} or {EXCLUSIVE!r}")
    return access


def check_partitions(partitions: int) -> int:
    """The count itself, if a group may have that many partitions.

    Raises:
        ConfigError: it is no whole number from 1 to a million.
    """
    count = checked_whole("partitions", partitions)
    if not 1 <= count <= MAX_PARTITIONS:
        raise ConfigError("partitions", partitions, f"must be from 1 to {MAX_PARTITIONS}")
    return count


# --- facts ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemberFacts:
    """What a member reports of itself, and when Redis last heard of it.

    Attributes:
        name: unique in the group.
        session: names the process; a name that comes back has another one.
        joined: a number that rises with every join of the group.
        expires: when the lease ends; from then on the member holds nothing.
        weight: its share relative to the others'.
        seen: the latest generation it acts on.
        leaving: since when it wants to hand over and go; ``None`` when it does not.
        stalled: alive, but its application makes no progress.
        released: partitions it has let go of, with the token it held each under.
        drained: removed partitions it has emptied, with the token.
        lags: how far behind it is on partitions it does not own.
        claims: what it still held when it found its own entry gone, with the token.
        loads: how busy the partitions are that it holds, or held a moment ago.
        lease: the longest ttl of the group that may still count for a lease, as far as this
            member took it up, in seconds.
        turn: how many times it took up terms.
        stopping: it takes nothing up any more, and what it has is free once its application has
            ended its work on it.
    """

    name: str
    session: str
    joined: int
    expires: float
    weight: float = 1.0
    seen: int = 0
    leaving: float | None = None
    stalled: bool = False
    released: Mapping[int, int] = field(default_factory=dict)
    drained: Mapping[int, int] = field(default_factory=dict)
    lags: Mapping[int, float] = field(default_factory=dict)
    claims: Mapping[int, int] = field(default_factory=dict)
    loads: Mapping[int, float] = field(default_factory=dict)
    lease: float = 0.0
    turn: int = 0
    stopping: bool = False

    @property
    def goes(self) -> bool:
        """Whether it is about to go: nothing is to be granted to it."""
        return self.stopping or self.leaving is not None


@dataclass(frozen=True)
class Facts:
    """All members at one instant.

    Attributes:
        now: that instant.
        members: in any order; one whose lease has ended counts as gone.
        server: identifies the run of the Redis server that was read; empty when unknown.
        unreadable: members whose report is missing or cannot be read, with what Redis itself has of
            them: when the lease ends, and the session, which is empty if that is unknown, too.
    """

    now: float
    members: tuple[MemberFacts, ...] = ()
    server: str = ""
    unreadable: tuple[MemberFacts, ...] = ()

    @property
    def live(self) -> tuple[str, ...]:
        """The names of the members whose leases stand, rising; unreadable ones included."""
        every = (*self.members, *self.unreadable)
        return tuple(sorted(member.name for member in every if member.expires > self.now))


# --- decisions --------------------------------------------------------------------------------


class GroupPhase(str, Enum):
    """Solace's three states of a partitioned queue."""

    READY = "Ready"
    """Nothing is to be moved."""
    HOLDDOWN = "Holddown"
    """Something is, once the rebalance delay is over."""
    REBALANCING = "Rebalancing"
    """Partitions are being moved."""


class PhaseTurn(str, Enum):
    """What leads from one phase of a group to the next."""

    CHANGED = "members change"
    BEGIN = "moves begin"
    NOTHING_LEFT = "nothing is left to move"
    ORDERED = "count or access changes"
    LOSS = "Redis lost decisions"


PHASES: Final = StateTable(
    {
        GroupPhase.READY: "nothing is to be moved",
        GroupPhase.HOLDDOWN: "waits for the rebalance delay",
        GroupPhase.REBALANCING: "partitions are being moved",
    },
    {
        GroupPhase.READY: {
            PhaseTurn.CHANGED: GroupPhase.HOLDDOWN,
            PhaseTurn.BEGIN: GroupPhase.REBALANCING,
            PhaseTurn.ORDERED: GroupPhase.REBALANCING,
            PhaseTurn.LOSS: GroupPhase.REBALANCING,
        },
        GroupPhase.HOLDDOWN: {
            PhaseTurn.NOTHING_LEFT: GroupPhase.READY,
            PhaseTurn.BEGIN: GroupPhase.REBALANCING,
            PhaseTurn.ORDERED: GroupPhase.REBALANCING,
            PhaseTurn.LOSS: GroupPhase.REBALANCING,
        },
        GroupPhase.REBALANCING: {
            PhaseTurn.NOTHING_LEFT: GroupPhase.READY,
            PhaseTurn.ORDERED: GroupPhase.REBALANCING,
            PhaseTurn.LOSS: GroupPhase.REBALANCING,
        },
    },
)


@dataclass(frozen=True)
class Holddown:
    """A rebalance that waits for the membership to come to rest.

    Attributes:
        began: when the first change was seen.
        until: when partitions begin to move. Later changes do not put it off.
    """

    began: float
    until: float


@dataclass(frozen=True)
class Handoff:
    """A partition that its owner has been asked to let go of.

    Attributes:
        owner: who holds it.
        to: whom it is meant for.
        generation: the decision that began it.
        deadline: until when the owner may keep it; after that it fences itself. Infinite until the
            decision is committed: the owner's time counts from then on, however long the assignor
            took.
        lease_end: until when an owner that has not heard of the handoff may believe that it
            holds the partition; ``None`` until the decision is known to be committed.
    """

    owner: str
    to: str
    generation: int
    deadline: float
    lease_end: float | None = None

    def ends_by(self, seen: int) -> float | None:
        """When the partition is free even without the owner's word.

        An owner that has seen the handoff lets go by the deadline. One that has not may go on
        until the lease it had when the handoff was committed ends: every later renewal would
        have told it.
        """
        if seen >= self.generation:
            return self.deadline
        return None if self.lease_end is None else max(self.deadline, self.lease_end)


@dataclass(frozen=True)
class Seat:
    """A member as the group has it.

    Attributes:
        place: its place in the order of joining.
        session: the session its partitions were granted to.
        sheds_after: when a stalled member may be asked for its next partition.
        weight: the member's.
    """

    place: int
    session: str
    sheds_after: float = 0.0
    weight: float = 1.0


@dataclass(frozen=True)
class MemberOrder:
    """What was ordered about a member; see :mod:`.member_orders`.

    Attributes:
        by: who ordered the drain; empty without one.
        since: Redis time of the order to drain; without one, of the order about the weight.
        drained: whether it is to hand over everything and get nothing new.
        until: Redis time at which the drain ends by itself; ``None`` for never.
        weight: its weight instead of its own; ``None`` for its own.
        weighed_by: who ordered the weight; empty without one.
    """

    by: str
    since: float
    drained: bool = False
    until: float | None = None
    weight: float | None = None
    weighed_by: str = ""

    def undrained(self) -> MemberOrder:
        """What is left without the drain."""
        since = 0.0 if self.weight is None else self.since
        return replace(self, by="", since=since, drained=False, until=None)


@dataclass(frozen=True)
class GroupState:
    """What was decided.

    Attributes:
        terms: what all members agree on; ``terms.partitions`` is the present count.
        generation: number of the last decision; 0 before the first.
        phase, holddown: where a rebalance stands.
        roster: the seats, by name. In a holddown also those of members that are gone, so that
            one that returns takes its old place, or another its place and its partitions.
        settled: how many active members there were when nothing was to be moved last.
        owners: for each partition its owner, or its last one; removed partitions that are not
            yet drained included, so it may be longer than ``terms.partitions``.
        tokens: for each partition the fencing token of its last grant; 0 before the first.
        free: the partitions that nobody holds.
        handoffs: the partitions on their way.
        warming: for each partition that a member warms up for, that member.
        standbys: for each partition the members that keep a warm copy.
        draining: removed partitions that still have an owner, to be emptied.
        token: the greatest token granted so far.
        recovering: until when nothing is granted, since members may return that hold it;
            ``None`` when there is nothing to wait for, infinite until the decision is committed
            that began it.
        committed: when this state was written; ``None`` for one that is not.
        longest_ttl: the longest ttl before the terms were changed; a member that has not heard
            of the change may have a lease of that length. 0 when there is none.
        longest_until: until when that may be; infinite until the decision is committed that
            changed it. A member hears of the change by its first answered renewal, which it
            sends within one lease of before; the lease that it renews is another.
        server: the run of the Redis server that the last step read; empty when unknown.
        load_moves: when partitions were asked for because of their load, within the last minute.
        orders: what was ordered about members, by name; see :meth:`orders_at`.
    """

    terms: Terms
    generation: int = 0
    phase: GroupPhase = GroupPhase.READY
    holddown: Holddown | None = None
    roster: Mapping[str, Seat] = field(default_factory=dict)
    settled: int = 0
    owners: Column[str | None] = field(default_factory=Column)
    tokens: Column[int] = field(default_factory=Column)
    free: frozenset[int] = frozenset()
    handoffs: Mapping[int, Handoff] = field(default_factory=dict)
    warming: Mapping[int, str] = field(default_factory=dict)
    standbys: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    draining: frozenset[int] = frozenset()
    token: int = 0
    recovering: float | None = None
    committed: float | None = None
    longest_ttl: float = 0.0
    longest_until: float = 0.0
    server: str = ""
    load_moves: tuple[float, ...] = ()
    orders: Mapping[str, MemberOrder] = field(default_factory=dict)

    def orders_at(self, now: float) -> dict[str, MemberOrder]:
        """The orders that stand at that Redis time: drains end by themselves."""
        standing = {}
        for name, order in self.orders.items():
            if order.until is not None and order.until <= now:
                order = order.undrained()  # noqa: PLW2901
            if order.drained or order.weight is not None:
                standing[name] = order
        return standing

    def present(self, facts: Facts) -> dict[str, MemberFacts]:
        """The members whose leases stand, by name, with the weights that were ordered.

        They include the :meth:`frozen` ones.
        """
        found = {member.name: member for member in facts.members if member.expires > facts.now}
        found |= self.frozen(facts)
        for name, order in self.orders.items():
            if order.weight is not None and name in found:
                found[name] = replace(found[name], weight=order.weight)
        return found

    def frozen(self, facts: Facts) -> dict[str, MemberFacts]:
        """The members with a seat whose leases stand, and whose reports cannot be read, by name.

        Each renews and works on, so it keeps what it has until its lease ends in Redis.
        """
        found = {}
        for member in facts.unreadable:
            seat = self.roster.get(member.name)
            if (
                seat is not None
                and seat.session
                and member.session in ("", seat.session)
                and member.expires > facts.now
            ):
                found[member.name] = replace(member, session=seat.session, weight=seat.weight)
        return found

    @property
    def longest_lease(self) -> float:
        """Seconds that a lease lasts at most which was renewed before now."""
        return max(self.terms.ttl, self.longest_ttl)

    @classmethod
    def new(cls, terms: Terms) -> GroupState:
        """A group without history."""
        return cls(
            terms,
            owners=Column([None] * terms.partitions),
            tokens=Column([0] * terms.partitions),
            free=frozenset(range(terms.partitions)),
        )

    @property
    def existing(self) -> tuple[int, ...]:
        """All partitions there are, those that drain included."""
        return (*range(self.terms.partitions), *sorted(self.draining))

    def holder(self, partition: int) -> str | None:
        """Who holds the partition now."""
        return None if partition in self.free else self.owners[partition]

    def stamped(self, committed: float) -> GroupState:
        """This state as it was written at that time.

        From then on every renewal tells of the handoffs it began, and no session of before a
        recovery renews. So a lease of before ends one lease later at the latest. The time that
        owners have to let go begins then, too.
        """
        # As commit.lua writes it.
        deadline = round(committed + self.terms.max_handoff_time, 6)
        lease_end = committed + self.longest_lease
        return replace(
            self,
            committed=committed,
            recovering=lease_end if self.recovering == math.inf else self.recovering,
            longest_until=committed + 2 * self.longest_ttl
            if self.longest_until == math.inf
            else self.longest_until,
            handoffs={
                partition: handoff
                if handoff.lease_end is not None
                else replace(
                    handoff,
                    deadline=deadline if handoff.deadline == math.inf else handoff.deadline,
                    lease_end=lease_end,
                )
                for partition, handoff in self.handoffs.items()
            },
        )

    def view(self, member: str, session: str) -> MemberView:
        """What the member has to know."""
        seat = self.roster.get(member)
        if seat is None or seat.session != session:
            return MemberView(self.generation, self.phase)
        owned = compress(count(), map(eq, self.owners, repeat(member)))
        held = {p: self.tokens[p] for p in owned if p not in self.free}
        more = self.asked().get(member, Asked())
        return MemberView(
            self.generation,
            self.phase,
            held,
            more.revoked,
            frozenset(more.warming),
            frozenset(more.draining),
            seated=True,
        )

    def asked(self) -> dict[str, Asked]:
        """What each member has to know besides what it holds, if there is anything."""
        found: dict[str, Asked] = defaultdict(Asked)
        for partition, handoff in self.handoffs.items():
            found[handoff.to].warming.add(partition)
            if self.holder(partition) == handoff.owner:
                found[handoff.owner].revoked[partition] = handoff.deadline
        for partition, name in self.warming.items():
            found[name].warming.add(partition)
        for partition, names in self.standbys.items():
            for name in names:
                found[name].warming.add(partition)
        for partition in self.draining:
            if (holder := self.holder(partition)) is not None:
                found[holder].draining.add(partition)
        return dict(found)


@dataclass
class Asked:
    """What a member has to know besides what it holds.

    Attributes:
        revoked: the partitions it has to let go of, with the deadline.
        warming: those that it has to be warm for.
        draining: those of its own that it has to empty.
    """

    revoked: dict[int, float] = field(default_factory=dict)
    warming: set[int] = field(default_factory=set)
    draining: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class MemberView:
    """A group as one member has to know it.

    Attributes:
        generation, phase: of the group.
        held: its partitions, with the fencing token of each.
        revoked: those of them that it has to let go of, with the deadline.
        warming: partitions to be warm for: to take over, or as a standby.
        draining: those of its partitions that were removed, and are to be emptied.
        seated: whether the group has taken note of this session of the member yet.
    """

    generation: int
    phase: GroupPhase
    held: Mapping[int, int] = field(default_factory=dict)
    revoked: Mapping[int, float] = field(default_factory=dict)
    warming: frozenset[int] = frozenset()
    draining: frozenset[int] = frozenset()
    seated: bool = False


# --- history ----------------------------------------------------------------------------------


class EventKind(str, Enum):
    """What happened to a group."""

    JOINED = "joined"
    LEFT = "left"
    EXPIRED = "expired"
    LEAVING = "leaving"
    HOLDDOWN = "holddown"
    CANCELLED = "cancelled"
    """The holddown ended without anything to move."""
    REBALANCING = "rebalancing"
    REVOKED = "revoked"
    """An owner was asked to let go."""
    RELEASED = "released"
    """The owner gave its word."""
    FORCED = "forced"
    """The owner gave no word in time, and has fenced itself."""
    GRANTED = "granted"
    WARMUP = "warmup"
    RESIZED = "resized"
    MIGRATED = "migrated"
    """Its terms were changed."""
    DRAINED = "drained"
    READY = "ready"
    DRAIN = "drain"
    """Somebody ordered a member to hand over everything."""
    UNDRAIN = "undrain"
    """The order was lifted, or its time is up."""
    WEIGHED = "weighed"
    """Somebody gave a member another weight."""
    ASKED = "asked"
    """Somebody wanted a rebalance without waiting for the rest of its delay."""
    RECOVERING = "recovering"
    """Redis lost what was decided; members say what they hold."""
    FORGOTTEN = "forgotten"
    """Somebody noted that the group, which has no members, was stopped for good."""


@dataclass(frozen=True)
class GroupEvent:
    """An entry of a group's history.

    Attributes:
        kind: what happened.
        member: to whom.
        partition: to which partition.
        to: whom the partition is for.
        why: for people.
    """

    kind: EventKind
    member: str | None = None
    partition: int | None = None
    to: str | None = None
    why: str = ""
