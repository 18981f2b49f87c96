"""What a group is about to do, and what it would do. Nothing is touched.

:func:`foresee` asks the assignor what the next decision would, for the members there are or for
others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from hashring.core.assignors import assignor_named
from hashring.core.assignors.exclusive import ExclusiveAssignor
from hashring.core.assignors.quotas import counts, fair_shares
from hashring.core.assignors.situation import GroupMember, GroupSituation, MemberState
from hashring.core.assignors.target import Assignor, checked_target
from hashring.core.groups import reported_loads
from hashring.core.groups.heirs import Place, heirs
from hashring.core.groups.next_state import draining_owners, member_state, rule, takers
from hashring.core.groups.state import (
    EXCLUSIVE,
    Facts,
    GroupPhase,
    GroupState,
    MemberFacts,
    MemberOrder,
    Terms,
    check_partitions,
)
from hashring.core.readable import counted, duration
from hashring.core.value_checks import check_node_name
from hashring.errors import ConfigError, UnknownMemberError


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
class GroupForesight:
    """What is to happen.

    Attributes:
        moves: by partition.
        rounds: how many rounds of handoffs, or of warm-ups if those are more, until the end.
        delay: seconds before the first handoff: what is left of the holddown, or all of it.
        longest: seconds the handoffs take at most, when every owner needs all its time and none
            has to warm up; ``paced`` included.
        before, after: how many partitions each member has and will have: those that leave first,
            then in order of joining.
        paced: seconds that moves for load wait, because of the limit of such moves in a minute.
    """

    moves: tuple[PartitionMove, ...]
    rounds: int
    delay: float
    longest: float
    before: Mapping[str, int]
    after: Mapping[str, int]
    paced: float = 0.0

    @property
    def unowned(self) -> str:
        """A sentence on what has no owner afterwards, if no member is left; else empty."""
        if any(self.after.values()) or not any(self.before.values()):
            return ""
        lost = counted(sum(self.before.values()), "partition")
        return f"no member is left, so nobody owns {lost}"

    def lines(self) -> tuple[str, ...]:
        """The same in words, one line a move, then one on how long it takes."""
        if not self.moves:
            return (self.unowned or "nothing moves",)
        found = [
            f"partition {move.partition}: {move.before or 'nobody'} -> {move.after or 'nobody'} "
            f"({move.why})"
            for move in self.moves
        ]
        handoffs = sum(move.handoff for move in self.moves)
        found.append(
            f"{counted(len(self.moves), 'move')} in {counted(self.rounds, 'round')}, {handoffs} "
            f"handed off by a live owner; the first begins after {duration(self.delay)}, and "
            f"owners have {self.longest - self.paced:g} s at most"
        )
        if self.paced:
            found[-1] += (
                f"; the limit of moves for load in a minute adds {duration(self.paced)} at most"
            )
        return tuple(found)


def assignor_of(terms: Terms, access: str | None = None) -> Assignor:
    """What a group of these terms asks, made from its name.

    Args:
        access: another access type, if the plan is about one.

    Raises:
        ConfigError: it is an assignor of the user's own.
    """
    if (terms.access if access is None else access) == EXCLUSIVE:
        return ExclusiveAssignor()
    return assignor_named(terms.assignor)


def foresee(
    state: GroupState,
    facts: Facts,
    assignor: Assignor,
    *,
    join: Iterable[str | GroupMember] = (),
    leave: Iterable[str] = (),
    partitions: int | None = None,
    access: str | None = None,
) -> GroupForesight:
    """What would happen if these members joined and left and count and access became these.

    Without any change: what is happening. Handoffs under way count as done.

    Args:
        join: names, or members where weights matter; ``joined`` is given by the order here.
        leave: names of present members, that leave at once.

    Raises:
        UnknownMemberError: one that is to leave is not there.
        ConfigError: one that is to join is there already, or has a name that no member may have,
            or the count cannot work, or there is no such access type.
        AssignorError: the assignor gave a wrong answer.
    """
    present = state.present(facts)
    orders = state.orders_at(facts.now)
    join = _listed(
        "join", join, (str, GroupMember), "give a list of names, or of members with weights"
    )
    leaving = set(_listed("leave", leave, (str,), "give a list of names"))
    for name in sorted(leaving):
        if name not in present:
            raise UnknownMemberError(name, present)
    count = check_partitions(state.terms.partitions if partitions is None else partitions)
    terms = state.terms if access is None else replace(state.terms, access=access)
    owners = list(state.owners)
    held: list[str | None] = [state.holder(p) for p in range(len(owners))]
    for partition, handoff in state.handoffs.items():
        owners[partition] = held[partition] = handoff.to
    members, replacing = _hypothetical(state, present, leaving, join, owners, orders=orders)
    taking = takers(members)
    held = [None if owner in leaving or owner not in present else owner for owner in held]
    # What a member had that may not have it again is as if nobody had had it.
    barred = {member.name for member in members} - taking
    situation = GroupSituation(
        members,
        count,
        tuple(
            None if holder is None and owner in barred else owner
            for holder, owner in zip(held, owners[:count], strict=False)
        ),
        {p: n for p, n in state.warming.items() if p < count},
        {p: n for p, n in state.standbys.items() if p < count},
        {n: m.lags for n, m in present.items() if n not in leaving and m.lags},
        replacing,
        reported_loads.reported(present.values(), owners.__getitem__, min(count, len(owners))),
        len(reported_loads.recent(state.load_moves, facts.now)),
        state.phase is GroupPhase.REBALANCING,
    )
    target = checked_target(rule(terms, assignor), situation)
    reasons = _Reasons(situation, state, present, leaving, for_load=target.for_load, orders=orders)
    # When all are about to leave, nobody is granted anything, and everybody keeps what it has.
    now = [held[p] if p < len(held) else None for p in range(count)]
    then = [
        to if to in taking or to is None else was
        for was, to in zip(now, target.owners, strict=True)
    ]
    moves = [
        reasons.move(p, was, to, target.interim[p] != to and p not in target.for_load)
        for p, (was, to) in enumerate(zip(now, then, strict=True))
        if to != was
    ]
    draining = {
        p: owners[p]
        for p in range(count, len(owners))
        if p < state.terms.partitions or p in state.draining
    }
    beyond = draining_owners(draining, target, members, replace(terms, partitions=count))
    moves.extend(
        _removed(p, owner, held[p], beyond[p] if beyond[p] in taking else None)
        for p, owner in draining.items()
    )
    rounds = _rounds(moves, members, state.terms.handoffs)
    waiting = sum(move.warm_up for move in moves)
    warmups = math.ceil(waiting / max(1, len(target.warmups)))
    switched = terms.access != state.terms.access or count != state.terms.partitions
    delay = 0.0
    active = {member.name for member in members if member.state is MemberState.ACTIVE}
    stopping = {name for name, member in present.items() if member.stopping}
    # Members that have nothing take over at once what nobody holds.
    spare = {*replacing.values(), *(active - {*held})}
    full = len(active) >= max(1, state.settled)
    if not switched and not _begin_at_once(moves, active | stopping, spare, full=full):
        delay = _delay(state, facts.now)
    paced = reported_loads.paced(
        rule(terms, assignor),
        sum(move.handoff and move.partition in target.for_load for move in moves),
        situation.recent_moves,
    )
    had = counts([state.holder(p) for p in range(len(state.owners))])
    before, after = counts(held), counts(then)
    going = {name: had.get(name, 0) for name in sorted(leaving)}
    staying = [m.name for m in sorted(members, key=lambda m: m.joined)]
    return GroupForesight(
        tuple(moves),
        max(rounds, warmups),
        delay,
        rounds * state.terms.max_handoff_time + paced,
        going | {name: before.get(name, 0) for name in staying},
        dict.fromkeys(going, 0) | {name: after.get(name, 0) for name in staying},
        paced,
    )


def _removed(
    partition: int, owner: str | None, holder: str | None, to: str | None
) -> PartitionMove:
    """The end of a partition that drains.

    Args:
        owner: who had it last.
        holder: who holds it, if anybody does.
        to: who is to drain it.
    """
    handoff = holder is not None and to is not None and to != holder
    why = (
        f"removed: drains at {to}, then it is gone"
        if handoff
        else "removed: drains, then it is gone"
    )
    return PartitionMove(partition, owner, None, MoveReason.REMOVED, handoff, False, why)


def _rounds(moves: Iterable[PartitionMove], members: Iterable[GroupMember], at_once: int) -> int:
    """How many rounds of handoffs there are at most; a stalled member makes one at a time."""
    handing = Counter(move.before for move in moves if move.handoff)
    stalled = {member.name for member in members if member.state is MemberState.STALLED}
    one_by_one = max((count for name, count in handing.items() if name in stalled), default=0)
    return one_by_one + math.ceil((handing.total() - one_by_one) / at_once)


def _begin_at_once(
    moves: Sequence[PartitionMove], patient: set[str], spare: set[str], *, full: bool
) -> bool:
    """Whether the moves do not wait for the rebalance delay; see :mod:`.next_state`.

    Args:
        patient: the members that need not hand over what they have at once.
        spare: those that take over at once what nobody holds.
        full: whether there are as many members as before.
    """
    handing = [move for move in moves if move.handoff]
    if any(move.before not in patient for move in handing):
        return True
    if any(not move.warm_up for move in handing):
        return False
    if full and any(move.before is None for move in moves):
        return True
    return not handing and all(move.after in (None, *spare) for move in moves)


def _delay(state: GroupState, now: float) -> float:
    """Seconds that what waits for the rebalance delay has to wait."""
    if state.phase is GroupPhase.REBALANCING:
        return 0.0
    if state.holddown is None:
        return state.terms.rebalance_delay
    return max(0.0, state.holddown.until - now)


def _listed(what: str, given: Iterable[Any], kinds: tuple[type, ...], remedy: str) -> list[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ConfigError(what, given, remedy)
    found = list(given)
    for each in found:
        if not isinstance(each, kinds):
            raise ConfigError(what, each, remedy)
    return found


def _hypothetical(
    state: GroupState,
    present: Mapping[str, MemberFacts],
    leaving: set[str],
    join: Iterable[str | GroupMember],
    owners: Sequence[str | None],
    *,
    orders: Mapping[str, MemberOrder],
) -> tuple[tuple[GroupMember, ...], dict[str, str]]:
    """The members there would be, and for those that would be gone who takes their place."""
    joiners = {}
    for joiner in join:
        name = check_node_name(joiner if isinstance(joiner, str) else joiner.name)
        if (name in present and name not in leaving) or name in joiners:
            raise ConfigError("join", name, "is a member already")
        joiners[name] = 1.0 if isinstance(joiner, str) else joiner.weight
    weights = {name: seat.weight for name, seat in state.roster.items()}
    weights |= {name: member.weight for name, member in present.items()}
    weights |= joiners
    weights |= {n: o.weight for n, o in orders.items() if o.weight is not None and n in joiners}
    seats = {name: seat.place for name, seat in state.roster.items()}
    joined = {name: member.joined for name, member in present.items()}
    known = sorted(
        {*seats, *present}, key=lambda n: (seats.get(n, math.inf), joined.get(n, math.inf), n)
    )
    order = {name: number for number, name in enumerate(dict.fromkeys([*known, *joiners]))}
    staying = {
        name: member_state(member, orders.get(name))
        for name, member in present.items()
        if name not in leaving
    }
    # An order outlasts restarts of its member, and stands about one that is to join.
    staying |= {
        name: MemberState.DRAINED if name in orders and orders[name].drained else MemberState.ACTIVE
        for name in joiners
    }

    # Also a member that is back, and is to get what it had.
    busy = {*owners, *state.warming.values()}
    replacing = heirs(
        (Place(order[n], n, weights[n]) for n in known if n not in staying and n in owners),
        (
            Place(order[name], name, weights[name])
            for name, kind in staying.items()
            if kind is MemberState.ACTIVE and name not in busy
        ),
    )
    order |= {heir: order[name] for name, heir in replacing.items()}
    members = [
        GroupMember(name, order[name], weights[name], kind) for name, kind in staying.items()
    ]
    return tuple(sorted(members, key=lambda member: member.joined)), replacing


class _Reasons:
    """Why a partition moves, with the numbers."""

    def __init__(
        self,
        situation: GroupSituation,
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
        kind = member_state(self._present[before], self._orders.get(before))
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
