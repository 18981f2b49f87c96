"""What a group is about to do, and what it would do. Nothing is touched.

:func:`foresee` plays the steps that the group would take (:mod:`.rehearsal`), with the members
there are or with others, and tells what is different at the end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

from hashring.core.assignors import assignor_named
from hashring.core.assignors.exclusive import ExclusiveAssignor
from hashring.core.assignors.quotas import counts, fair_shares
from hashring.core.assignors.situation import GroupMember, GroupSituation, MemberState
from hashring.core.assignors.target_assignment import Assignor
from hashring.core.groups import group_orders, reported_loads
from hashring.core.groups.next_state import FOR_LOAD, member_state, rule
from hashring.core.groups.rehearsal import Rehearsal, rehearse
from hashring.core.groups.state import (
    EXCLUSIVE,
    Facts,
    GroupState,
    MemberFacts,
    MemberOrder,
    Terms,
    check_partitions,
)
from hashring.core.readable_numbers import counted, duration
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
    """The assignor's rule, or exclusive access, places it elsewhere, whatever the counts."""
    REMOVED = "removed"
    """The partition count shrinks. The partition is to be drained, and then it is gone."""


@dataclass(frozen=True)
class PartitionMove:
    """A partition that changes hands.

    Attributes:
        partition: its number.
        before, after: who has it, and who should; ``None`` for nobody.
        reason: why.
        handoff: whether a live owner has to let go of it first, also one that stands in meanwhile.
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
        delay: seconds before the first handoff: what is left of the holddown, or all of it. Without
            a handoff, before the last partition has its owner.
        longest: seconds the handoffs take at most, when every owner needs all its time and none
            has to warm up; ``paced`` included.
        before, after: how many partitions each member has and will have: those that leave first,
            then in order of joining.
        paced: seconds that moves for load wait, because of the limit of such moves in a minute.
        at_rest: whether the group comes to rest. It does, unless the assignor is one of your own
            that goes on moving partitions. Then the moves are those that were found.
    """

    moves: tuple[PartitionMove, ...]
    rounds: int
    delay: float
    longest: float
    before: Mapping[str, int]
    after: Mapping[str, int]
    paced: float = 0.0
    at_rest: bool = True

    @property
    def unowned(self) -> str:
        """A sentence on what has no owner afterwards, if no member is left; else empty."""
        if any(self.after.values()) or not any(self.before.values()):
            return ""
        lost = counted(sum(self.before.values()), "partition")
        return f"no member is left, so nobody owns {lost}"

    def lines(self) -> tuple[str, ...]:
        """The same in words, one line a move, then one on how long it takes.

        One more if the group does not come to rest.
        """
        restless = "the assignor does not come to rest: it goes on moving partitions"
        if not self.moves:
            return (restless if not self.at_rest else self.unowned or "nothing moves",)
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
        return tuple(found) if self.at_rest else (*found, restless)


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
    join = _listed(
        "join", join, (str, GroupMember), "give a list of names, or of members with weights"
    )
    leaving = set(_listed("leave", leave, (str,), "give a list of names"))
    for name in sorted(leaving):
        if name not in present:
            raise UnknownMemberError(name, present)
    count = check_partitions(state.terms.partitions if partitions is None else partitions)
    terms = replace(state.terms, partitions=count)
    if access is not None:
        terms = replace(terms, access=access)
    staying = {name: member for name, member in present.items() if name not in leaving}
    supposed = _supposed(state, facts, staying, join)
    begun = group_orders.migrate(state, terms).state
    if begun.committed is None:
        begun = begun.stamped(facts.now)
    loads = {}
    if reported_loads.looks(rule(terms, assignor)):
        known = min(count, len(state.owners))
        loads = reported_loads.reported(present.values(), state.owners.__getitem__, known)
    told = {partition for member in supposed.members for partition in member.loads}
    lost = {partition: load for partition, load in loads.items() if partition not in told}
    played = rehearse(begun, supposed, assignor, lost)
    changes = _Changes(
        state,
        begun,
        played,
        present=present,
        orders=state.orders_at(facts.now),
        leaving=leaving,
        supposed=supposed,
    )
    moves = changes.moves(loads)
    rounds = changes.rounds(moves)
    warmups = math.ceil(sum(move.warm_up for move in moves) / max(1, played.warmups))
    paced = reported_loads.paced(
        rule(terms, assignor),
        sum(event.why == FOR_LOAD for event in played.asked),
        len(reported_loads.recent(state.load_moves, facts.now)),
    )
    return GroupForesight(
        moves,
        max(rounds, warmups),
        changes.began(moves, facts.now) - facts.now,
        rounds * terms.max_handoff_time + paced,
        *changes.counts(),
        paced,
        played.at_rest,
    )


def _listed(what: str, given: Iterable[Any], kinds: tuple[type, ...], remedy: str) -> list[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ConfigError(what, given, remedy)
    found = list(given)
    for each in found:
        if not isinstance(each, kinds):
            raise ConfigError(what, each, remedy)
    return found


def _held(state: GroupState) -> list[str | None]:
    """Who holds each partition."""
    held = [*state.owners]
    for partition in state.free:
        held[partition] = None
    return held


def _supposed(
    state: GroupState,
    facts: Facts,
    staying: Mapping[str, MemberFacts],
    join: Iterable[str | GroupMember],
) -> Facts:
    """The facts as they would be. Leases do not end, and Redis has lost nothing.

    A member that stops is gone: it gives up what it has without being asked. One whose report
    cannot be read keeps what it has.
    """
    members = {}
    frozen = state.frozen(facts).keys()
    for name, member in staying.items():
        if not member.stopping:
            seen = min(member.seen, state.generation)
            claims = {} if state.recovering is None else member.claims
            # There may be thousands, and `replace` takes several times as long.
            supposed = {**vars(member), "expires": math.inf, "seen": seen, "claims": claims}
            members[name] = MemberFacts(**supposed)
    joined = max((member.joined for member in facts.members), default=0)
    for joiner in join:
        name = check_node_name(joiner if isinstance(joiner, str) else joiner.name)
        if name in members or name in staying:
            raise ConfigError("join", name, "is a member already")
        joined += 1
        weight = 1.0 if isinstance(joiner, str) else joiner.weight
        members[name] = MemberFacts(name, f"planned/{joined}", joined, math.inf, weight)
    unreadable = tuple(members.pop(name) for name in frozen & members.keys())
    return Facts(facts.now, tuple(members.values()), state.server, unreadable)


class _Changes:
    """What is different after a rehearsal, and why.

    Args:
        state: as it is.
        begun: the state with which the rehearsal began.
        played: the rehearsal.
        present, orders: the members that are there, and the orders that stand.
        leaving: the members that leave at once.
        supposed: the facts with which it was played.
    """

    def __init__(
        self,
        state: GroupState,
        begun: GroupState,
        played: Rehearsal,
        *,
        present: Mapping[str, MemberFacts],
        orders: Mapping[str, MemberOrder],
        leaving: set[str],
        supposed: Facts,
    ) -> None:
        self._state = state
        self._present = present
        self._leaving = leaving
        self._supposed = supposed
        self._begun = begun
        self._played = played
        self._orders = orders
        self._asked = {event.partition: event for event in played.asked}
        # What is on its way counts as arrived.
        self._owners = [*state.owners]
        for partition, handoff in state.handoffs.items():
            self._owners[partition] = handoff.to
        there = {name for name in present if self._is_there(name)}
        self._held = [owner if owner in there else None for owner in self._owners]
        # A member whose report cannot be read is granted nothing, also not what is on its way.
        frozen = {member.name for member in supposed.unreadable}
        astray = [p for p, handoff in state.handoffs.items() if handoff.to in frozen]
        for partition in (*state.free, *astray):
            self._held[partition] = None
        size = begun.terms.partitions
        self._before = [*self._held[:size], *[None] * (size - len(self._held))]
        self._after = _held(played.state)[:size]
        self._seats = {name: seat for name, seat in played.state.roster.items() if seat.session}
        self._had = counts(self._before)

    @cached_property
    def _fair(self) -> dict[str, float]:
        """The fair share of each member that may be given anything at the end."""
        supposed = {member.name: member for member in self._supposed.members}
        orders = self._state.orders_at(self._played.ended_at)
        members = tuple(
            GroupMember(
                name, seat.place, seat.weight, member_state(supposed[name], orders.get(name))
            )
            for name, seat in self._seats.items()
            if name in supposed
        )
        size = len(self._before)
        return fair_shares(GroupSituation(members, size).candidates(), size)

    def _is_there(self, name: str) -> bool:
        """Whether a member has what the state says, and does not leave."""
        seat = self._state.roster.get(name)
        known = seat is None or seat.session == self._present[name].session
        return known and name not in self._leaving

    def moves(self, loads: Mapping[int, float]) -> tuple[PartitionMove, ...]:
        """The partitions that change hands, and those that end.

        Args:
            loads: how busy partitions are, as far as anybody reports it.
        """
        moves = [
            self._move(partition, was, to, loads)
            for partition, (was, to) in enumerate(zip(self._before, self._after, strict=True))
            if to is not None and to != was
        ]
        moves.extend(self._removed(partition) for partition in sorted(self._begun.draining))
        return tuple(moves)

    def rounds(self, moves: Iterable[PartitionMove]) -> int:
        """How many rounds of handoffs there are at most; a stalled member makes one at a time."""
        handing = Counter(event.member for event in self._played.asked)
        one_by_one = max(
            (n for name, n in handing.items() if self._kind(name) is MemberState.STALLED),
            default=0,
        )
        at_once = self._state.terms.handoffs
        asked = one_by_one + math.ceil((handing.total() - one_by_one) / at_once)
        # A member that stops gives up all it has at the same time.
        return max(asked, int(any(self._stops(move.before) for move in moves)))

    def began(self, moves: Iterable[PartitionMove], now: float) -> float:
        """When the first handoff begins; without one, when the last partition is granted.

        Args:
            now: the time for a plan in which nothing of it happens.
        """
        if self._played.asked_at is not None:
            return self._played.asked_at
        granted = self._played.granted_at
        return max((granted[m.partition] for m in moves if m.partition in granted), default=now)

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many partitions each member has before and after."""
        state = self._state
        had = counts(_held(state))
        going = sorted(self._leaving)
        places = {name: seat.place for name, seat in {**state.roster, **self._seats}.items()}
        staying = sorted(
            {*self._present, *self._seats} - self._leaving,
            key=lambda name: (places.get(name, math.inf), name),
        )
        before = {name: had[name] for name in going if name in had} | counts(self._held)
        after = counts(self._after)
        return (
            {name: before.get(name, 0) for name in (*going, *staying)},
            {name: after.get(name, 0) for name in (*going, *staying)},
        )

    def _kind(self, name: str | None) -> MemberState | None:
        """How a member is now; ``None`` for one that is not there."""
        member = self._present.get(name or "")
        return None if member is None else member_state(member, self._orders.get(member.name))

    def _stops(self, name: str | None) -> bool:
        member = self._present.get(name or "")
        return member is not None and member.stopping

    def _move(
        self, partition: int, before: str | None, after: str, loads: Mapping[int, float]
    ) -> PartitionMove:
        reason, why = self._why(partition, before, after, loads)
        asked = self._asked.get(partition)
        if asked is not None and before is None:
            why += f"; {asked.member} stands in"
        warm_up = (partition, after) in self._played.warmed
        if warm_up:
            why += f"; once {after} is warm"
        handoff = asked is not None or self._stops(before)
        return PartitionMove(partition, before, after, reason, handoff, warm_up, why)

    def _removed(self, partition: int) -> PartitionMove:
        """The end of a partition that drains."""
        asked = self._asked.get(partition)
        why = "removed: drains, then it is gone"
        if asked is not None:
            why = f"removed: drains at {asked.to}, then it is gone"
        return PartitionMove(
            partition,
            self._owners[partition],
            None,
            MoveReason.REMOVED,
            asked is not None,
            False,
            why,
        )

    def _why(
        self, partition: int, before: str | None, after: str, loads: Mapping[int, float]
    ) -> tuple[MoveReason, str]:
        last = self._state.owners[partition] if partition < len(self._state.owners) else None
        if before is None:
            if last is None:
                return MoveReason.NEW, "never had an owner"
            if last in self._leaving:
                return MoveReason.GONE, f"{last} leaves"
            there = last in self._present and self._is_there(last)
            return MoveReason.GONE, f"{last} let go of it" if there else f"{last} is gone"
        kind = self._kind(before)
        if kind is MemberState.LEAVING:
            return MoveReason.LEAVING, f"{before} is leaving"
        if kind is MemberState.DRAINED:
            return MoveReason.DRAINED, f"{before} is drained"
        if kind is MemberState.STALLED:
            return MoveReason.STALLED, f"{before} makes no progress"
        asked = self._asked.get(partition)
        if asked is not None and asked.why == FOR_LOAD:
            load = loads.get(partition)
            known = "nobody reports" if load is None else f"is {load:.4g}"
            return MoveReason.LOAD, f"evens out loads; its own {known}"
        if self._begun.terms.access == EXCLUSIVE:
            return MoveReason.RULE, f"{EXCLUSIVE} access: one member has everything"
        has, gets = self._had.get(before, 0), self._had.get(after, 0)
        # A group that does not come to rest may leave partitions at members without a share.
        fair_before, fair_after = self._fair.get(before, 0.0), self._fair.get(after, 0.0)
        text = (
            f"{before} has {has}, its fair share is {fair_before:.4g}; "
            f"{after} has {gets} of {fair_after:.4g}"
        )
        if has > fair_before:
            return MoveReason.BALANCE, text
        return MoveReason.RULE, f"the assignor's rule; {text}"
