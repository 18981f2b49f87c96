"""What a group waits for, what it is about to do, and what it would do. Nothing is touched.

All three answer from the same code that decides: :func:`foresee` asks the assignor what the
kernel would ask it, for the members there are or for others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from hashring.core.assignors import assignor_named
from hashring.core.assignors.protocol import (
    Assignor,
    Member,
    MemberState,
    Situation,
    checked_target,
    counts,
)
from hashring.core.assignors.quotas import fair_shares
from hashring.core.groups import reported_loads, succession
from hashring.core.groups.kernel import rule
from hashring.core.groups.state import (
    NON_EXCLUSIVE,
    Facts,
    GroupState,
    MemberFacts,
    MemberOrder,
    Phase,
    check_partitions,
)
from hashring.core.groups.succession import Place
from hashring.errors import ConfigError, UnknownMemberError

# --- status -----------------------------------------------------------------------------------


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
        """Whether it holds a partition: Solace's active indicator. The others stand by."""
        return bool(self.partitions)


@dataclass(frozen=True)
class GroupStatus:
    """Where a group stands.

    Attributes:
        phase: Ready, Holddown or Rebalancing.
        generation: number of the last decision.
        partitions: how many.
        until: Redis time at which the holddown ends, or by which the last handoff under way
            does; ``None`` when there is neither.
        waits: what it waits for.
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
    """

    phase: Phase
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

    @property
    def blocking(self) -> tuple[str, ...]:
        """The members that others wait for."""
        return tuple(sorted({wait.member for wait in self.waits if wait.member is not None}))


def status(state: GroupState, facts: Facts) -> GroupStatus:
    """Where a group stands, for whom it waits, and until when."""
    present = _present(state, facts)
    orders = state.orders_at(facts.now)
    waits = []
    if state.holddown is not None:
        waits.append(GroupWait(WaitKind.CHANGES, until=state.holddown.until))
    if state.recovering is not None:
        waits.append(GroupWait(WaitKind.RETURN, until=state.recovering))
    for partition, handoff in sorted(state.handoffs.items()):
        owner = present.get(handoff.owner)
        heard = owner is None or owner.seen >= handoff.generation
        waits.append(
            GroupWait(
                WaitKind.RELEASE if heard else WaitKind.LEASE,
                handoff.owner,
                partition,
                handoff.ends_by(handoff.generation if owner is None else owner.seen),
            )
        )
    for partition, name in sorted(state.warming.items()):
        owner = present.get(state.owners[partition] or "")
        leaving = None if owner is None else owner.leaving
        until = None if leaving is None else leaving + state.terms.leave_timeout
        waits.append(GroupWait(WaitKind.WARMUP, name, partition, until))
    waits.extend(GroupWait(WaitKind.DRAIN, state.holder(p), p) for p in sorted(state.draining))
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
        tuple(waits),
        tuple(unowned),
        tuple(sorted(state.draining)),
        tuple(
            MemberStatus(
                member.name,
                _kind(member, orders.get(member.name)),
                tuple(having.get(member.name, ())),
                member.expires - facts.now,
            )
            for member in sorted(present.values(), key=lambda m: _place(state, m))
        ),
        None if until is None else until + state.terms.ttl / 3,
        state.terms.access,
        _too_hot(state, present, orders),
        orders,
    )


def _present(state: GroupState, facts: Facts) -> dict[str, MemberFacts]:
    """The members whose leases stand, with the weights that were ordered."""
    return {m.name: state.obeyed(m, facts.now) for m in facts.members if m.expires > facts.now}


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
        Member(member.name, number, member.weight, _kind(member, orders.get(member.name)))
        for number, member in enumerate(sorted(present.values(), key=lambda m: m.name))
    )
    partitions = state.terms.partitions
    found = reported_loads.reported(present.values(), state.owners.__getitem__, partitions)
    return reported_loads.hot(assignor, Situation(members, partitions, loads=found))


_ENDING = (WaitKind.CHANGES, WaitKind.RETURN, WaitKind.RELEASE, WaitKind.LEASE)


def _kind(member: MemberFacts, order: MemberOrder | None) -> MemberState:
    if member.leaving is not None:
        return MemberState.LEAVING
    if order is not None and order.drained:
        return MemberState.DRAINED
    return MemberState.STALLED if member.stalled else MemberState.ACTIVE


def _place(state: GroupState, member: MemberFacts) -> tuple[float, int, str]:
    seat = state.roster.get(member.name)
    return (math.inf if seat is None else seat.place, member.joined, member.name)


# --- foresight --------------------------------------------------------------------------------


class MoveReason(str, Enum):
    """Why a partition is to move."""

    NEW = "new"
    """It never had an owner."""
    GONE = "owner gone"
    LEAVING = "owner leaving"
    STALLED = "owner stalled"
    DRAINED = "owner drained"
    BALANCE = "balance"
    """Its owner has more than its fair share."""
    LOAD = "load"
    """Its owner is busier than others, as members report."""
    RULE = "rule"
    """The assignor's rule places it elsewhere, whatever the counts."""
    REMOVED = "removed"
    """The partition count shrinks: it is to be drained, and then it is gone."""


@dataclass(frozen=True)
class PartitionMove:
    """A partition that changes hands.

    Attributes:
        partition: its number.
        before, after: who has it, and who should; ``None`` for nobody.
        reason: why.
        handoff: whether a live owner has to let go of it first.
        warm_up: whether the receiver has to warm up first.
        why: the reason with its numbers, for people.
    """

    partition: int
    before: str | None
    after: str | None
    reason: MoveReason
    handoff: bool
    warm_up: bool
    why: str


@dataclass(frozen=True)
class Foresight:
    """What is to happen.

    Attributes:
        moves: by partition.
        rounds: how many rounds of handoffs, or of warm-ups if those are more, until the end.
        delay: seconds before the first handoff: what is left of the holddown, or all of it.
        longest: seconds the handoffs take at most, when every owner needs all its time and none
            has to warm up.
        before, after: how many partitions each member has and will have: those that leave first,
            then in order of joining.
    """

    moves: tuple[PartitionMove, ...]
    rounds: int
    delay: float
    longest: float
    before: Mapping[str, int]
    after: Mapping[str, int]

    def lines(self) -> tuple[str, ...]:
        """The same in words, one line a move, then one on how long it takes."""
        if not self.moves:
            return ("nothing moves",)
        found = [
            f"partition {move.partition}: {move.before or 'nobody'} -> {move.after or 'nobody'} "
            f"({move.why})"
            for move in self.moves
        ]
        handoffs = sum(move.handoff for move in self.moves)
        moves = "1 move" if len(self.moves) == 1 else f"{len(self.moves)} moves"
        rounds = "1 round" if self.rounds == 1 else f"{self.rounds} rounds"
        found.append(
            f"{moves} in {rounds}, {handoffs} handed off by a live owner; the first begins after "
            f"{self.delay:g} s, and owners have {self.longest:g} s at most"
        )
        return tuple(found)


def foresee(
    state: GroupState,
    facts: Facts,
    assignor: Assignor,
    *,
    join: Iterable[str | Member] = (),
    leave: Iterable[str] = (),
    partitions: int | None = None,
    access: str | None = None,
) -> Foresight:
    """What would happen if these members joined and left and count and access became these.

    Without any change: what is happening. Handoffs under way count as done.

    Args:
        join: names, or members where weights matter; ``joined`` is given by the order here.
        leave: names of present members, that leave at once.

    Raises:
        UnknownMemberError: one that is to leave is not there.
        ConfigError: one that is to join is there already, or the count cannot work, or there is
            no such access type.
        AssignorError: the assignor gave a wrong answer.
    """
    present = _present(state, facts)
    orders = state.orders_at(facts.now)
    for what, names in (("join", join), ("leave", leave)):
        if isinstance(names, str):
            raise ConfigError(what, names, "give a list of names")
    leaving = set(leave)
    for name in sorted(leaving):
        if name not in present:
            raise UnknownMemberError(name, present)
    count = check_partitions(state.terms.partitions if partitions is None else partitions)
    terms = state.terms if access is None else replace(state.terms, access=access)
    owners = list(state.owners)
    held: list[str | None] = [state.holder(p) for p in range(len(owners))]
    for partition, handoff in state.handoffs.items():
        owners[partition] = held[partition] = handoff.to
    members, heirs = _hypothetical(state, present, leaving, join, owners, orders=orders)
    joins_or_leaves = leaving or len(members) > len(present)
    held = [None if owner in leaving or owner not in present else owner for owner in held]
    situation = Situation(
        members,
        count,
        tuple(owners[:count]),
        {p: n for p, n in state.warming.items() if p < count},
        {p: n for p, n in state.standbys.items() if p < count},
        {n: m.lags for n, m in present.items() if n not in leaving and m.lags},
        heirs,
        reported_loads.reported(present.values(), owners.__getitem__, min(count, len(owners))),
        len(reported_loads.recent(state.load_moves, facts.now)),
    )
    target = checked_target(rule(terms, assignor), situation)
    reasons = _Reasons(situation, state, present, leaving, for_load=target.for_load, orders=orders)
    moves = [
        reasons.move(
            p,
            held[p] if p < len(held) else None,
            to,
            target.interim[p] != to and p not in target.for_load,
        )
        for p, to in enumerate(target.owners)
        if to != (held[p] if p < len(held) else None)
    ]
    moves.extend(
        PartitionMove(
            p, owners[p], None, MoveReason.REMOVED, False, False, "removed: drains, then it is gone"
        )
        for p in range(count, len(owners))
        if p < state.terms.partitions or p in state.draining
    )
    handoffs = math.ceil(sum(move.handoff for move in moves) / state.terms.handoffs)
    waiting = sum(move.warm_up for move in moves)
    warmups = math.ceil(waiting / max(1, len(target.warmups)))
    switched = terms.access != state.terms.access or count != state.terms.partitions
    urgent = switched or not any(move.handoff for move in moves)
    delay = 0.0
    if state.holddown is not None and not urgent:
        delay = max(0.0, state.holddown.until - facts.now)
    elif state.phase is Phase.READY and moves and joins_or_leaves:
        fewer = sum(m.state is MemberState.ACTIVE for m in members) < state.settled
        if not urgent or (fewer and not switched):
            delay = state.terms.rebalance_delay
    had = counts([state.holder(p) for p in range(len(state.owners))])
    before, after = counts(held), counts(target.owners)
    going = {name: had.get(name, 0) for name in sorted(leaving)}
    staying = [m.name for m in sorted(members, key=lambda m: m.joined)]
    return Foresight(
        tuple(moves),
        max(handoffs, warmups),
        delay,
        handoffs * state.terms.max_handoff_time,
        going | {name: before.get(name, 0) for name in staying},
        dict.fromkeys(going, 0) | {name: after.get(name, 0) for name in staying},
    )


def _hypothetical(
    state: GroupState,
    present: Mapping[str, MemberFacts],
    leaving: set[str],
    join: Iterable[str | Member],
    owners: Sequence[str | None],
    *,
    orders: Mapping[str, MemberOrder],
) -> tuple[tuple[Member, ...], dict[str, str]]:
    """The members there would be, and for those that would be gone who takes their place."""
    joiners = {}
    for joiner in join:
        name = joiner if isinstance(joiner, str) else joiner.name
        if (name in present and name not in leaving) or name in joiners:
            raise ConfigError("join", name, "is a member already")
        joiners[name] = 1.0 if isinstance(joiner, str) else joiner.weight
    weights = {name: seat.weight for name, seat in state.roster.items()}
    weights |= {name: member.weight for name, member in present.items()}
    weights |= joiners
    seats = {name: seat.place for name, seat in state.roster.items()}
    joined = {name: member.joined for name, member in present.items()}
    known = sorted(
        {*seats, *present}, key=lambda n: (seats.get(n, math.inf), joined.get(n, math.inf), n)
    )
    order = {name: number for number, name in enumerate(dict.fromkeys([*known, *joiners]))}
    staying = {
        name: _kind(member, orders.get(name))
        for name, member in present.items()
        if name not in leaving
    }
    staying |= dict.fromkeys(joiners, MemberState.ACTIVE)

    # Also a member that is back, and is to get what it had.
    busy = {*owners, *state.warming.values()}
    heirs = succession.heirs(
        (Place(order[n], n, weights[n]) for n in known if n not in staying and n in owners),
        (
            Place(order[name], name, weights[name])
            for name, kind in staying.items()
            if kind is MemberState.ACTIVE and name not in busy
        ),
    )
    order |= {heir: order[name] for name, heir in heirs.items()}
    members = [Member(name, order[name], weights[name], kind) for name, kind in staying.items()]
    return tuple(sorted(members, key=lambda member: member.joined)), heirs


class _Reasons:
    """Why a partition moves, with the numbers."""

    def __init__(
        self,
        situation: Situation,
        state: GroupState,
        present: Mapping[str, MemberFacts],
        leaving: set[str],
        *,
        for_load: frozenset[int],
        orders: Mapping[str, MemberOrder],
    ) -> None:
        self._orders = orders
        self._for_load = for_load
        self._loads = situation.loads
        self._state = state
        self._present = present
        self._gone = leaving
        self._fair = fair_shares(situation.members, situation.partitions)
        self._having = counts(situation.previous)

    def move(
        self, partition: int, before: str | None, after: str | None, warm_up: bool
    ) -> PartitionMove:
        reason, why = self._why(partition, before, str(after))
        if warm_up:
            why += f"; once {after} is warm"
        return PartitionMove(partition, before, after, reason, before is not None, warm_up, why)

    def _why(self, partition: int, before: str | None, after: str) -> tuple[MoveReason, str]:
        last = self._state.owners[partition] if partition < len(self._state.owners) else None
        if before is None:
            if last is None:
                return MoveReason.NEW, "never had an owner"
            return MoveReason.GONE, f"{last} is gone" if last not in self._present else (
                f"{last} leaves" if last in self._gone else f"{last} let go of it"
            )
        kind = _kind(self._present[before], self._orders.get(before))
        if kind is MemberState.LEAVING:
            return MoveReason.LEAVING, f"{before} is leaving"
        if kind is MemberState.DRAINED:
            return MoveReason.DRAINED, f"{before} is drained"
        if kind is MemberState.STALLED:
            return MoveReason.STALLED, f"{before} makes no progress"
        if partition in self._for_load:
            load = self._loads.get(partition)
            known = "nobody reports" if load is None else f"is {load:.4g}"
            return MoveReason.LOAD, f"evens out loads; its own {known}"
        has, gets = self._having.get(before, 0), self._having.get(after, 0)
        fair_before, fair_after = self._fair[before], self._fair[after]
        text = (
            f"{before} has {has}, its fair share is {fair_before:.4g}; "
            f"{after} has {gets} of {fair_after:.4g}"
        )
        if has > fair_before:
            return MoveReason.BALANCE, text
        return MoveReason.RULE, f"the assignor's rule; {text}"
