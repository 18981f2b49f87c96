"""What a group is about to do, and what it would do. Nothing is touched.

:func:`foresee` asks the assignor what the next decision would, for the members there are or for
others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from hashring.core.assignors.quotas import counts, fair_shares
from hashring.core.assignors.situation import GroupMember, GroupSituation, MemberState
from hashring.core.assignors.target import Assignor, checked_target
from hashring.core.groups import reported_loads
from hashring.core.groups.heirs import Place, heirs
from hashring.core.groups.next_state import member_state, rule
from hashring.core.groups.state import (
    Facts,
    GroupPhase,
    GroupState,
    MemberFacts,
    MemberOrder,
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
            f"owners have {self.longest:g} s at most"
        )
        return tuple(found)


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
    joins_or_leaves = leaving or len(members) > len(present)
    held = [None if owner in leaving or owner not in present else owner for owner in held]
    situation = GroupSituation(
        members,
        count,
        tuple(owners[:count]),
        {p: n for p, n in state.warming.items() if p < count},
        {p: n for p, n in state.standbys.items() if p < count},
        {n: m.lags for n, m in present.items() if n not in leaving and m.lags},
        replacing,
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
    elif state.phase is GroupPhase.READY and moves and joins_or_leaves:
        fewer = sum(m.state is MemberState.ACTIVE for m in members) < state.settled
        if not urgent or (fewer and not switched):
            delay = state.terms.rebalance_delay
    had = counts([state.holder(p) for p in range(len(state.owners))])
    before, after = counts(held), counts(target.owners)
    going = {name: had.get(name, 0) for name in sorted(leaving)}
    staying = [m.name for m in sorted(members, key=lambda m: m.joined)]
    return GroupForesight(
        tuple(moves),
        max(handoffs, warmups),
        delay,
        handoffs * state.terms.max_handoff_time,
        going | {name: before.get(name, 0) for name in staying},
        dict.fromkeys(going, 0) | {name: after.get(name, 0) for name in staying},
    )


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
    staying |= dict.fromkeys(joiners, MemberState.ACTIVE)

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
