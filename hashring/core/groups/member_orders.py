"""Orders about members: to drain one, or to give it another weight. They stand until lifted.

An order names a member, not a process, and is part of what the group has decided. So it outlasts
restarts of a named member, and of two operators the later one is obeyed; the history has both.
A drain may end by itself, at a Redis time. Orders are lost when Redis loses the group's state.

Nobody starts again under a made-up name. The step that finds such a member gone lifts the orders
about it. If its lease ended, it may be back: a later order then lifts them, a day after they were
given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hashring.core.assignors.situation import GroupMember
from hashring.core.groups.made_up_names import is_made_up
from hashring.core.groups.next_state import StepOutcome
from hashring.core.groups.state import (
    EventKind,
    GroupEvent,
    GroupState,
    MemberOrder,
)
from hashring.core.order_checks import checked_lasting
from hashring.errors import ConfigError, UnknownMemberError

DAY: Final = 86_400.0
"""Seconds for which an order about a made-up name stands at least, if its member is gone."""


def drain(
    state: GroupState,
    member: str,
    now: float,
    by: str,
    *,
    seconds: float | None = None,
    force: bool = False,
) -> StepOutcome:
    """Order a member to hand over what it has; it gets nothing new until the order is lifted.

    Args:
        now: Redis time.
        by: who orders it.
        seconds: after which the order ends by itself; ``None`` for never.
        force: order it although no other member is left to take anything.

    Raises:
        UnknownMemberError: the group has no such member.
        ConfigError: the time is none; or no other member is left, without ``force``.
    """
    seconds = checked_lasting(seconds)
    _check_known(state, member)
    standing = state.orders_at(now)
    if is_last(state, member, now) and not force:
        kept = sum(state.holder(p) == member for p in state.existing)
        raise ConfigError(
            "drain",
            member,
            f"no other member is left to take over: {kept} of {len(state.existing)} partitions "
            "would stay with it, or be unserved when it stops; start another member first, or "
            "force it",
        )
    until = None if seconds is None else now + seconds
    order = replace(standing.get(member, NOTHING), by=by, since=now, drained=True, until=until)
    span = "" if seconds is None else f" for {seconds:g} s"
    event = GroupEvent(EventKind.DRAIN, member, why=f"by {by}{span}")
    return _ordered(state, member, order, event, now)


def is_last(state: GroupState, member: str, now: float) -> bool:
    """Whether no other member is left that may take over from a member.

    Args:
        now: Redis time.
    """
    standing = state.orders_at(now)
    return not any(
        name != member and seat.session and not standing.get(name, NOTHING).drained
        for name, seat in state.roster.items()
    )


def undrain(state: GroupState, member: str, now: float, by: str) -> StepOutcome:
    """Lift the order to drain a member; nothing happens if there is none.

    Raises:
        UnknownMemberError: the group has no such member, and no order about it.
    """
    standing = state.orders_at(now)
    if member not in standing:
        _check_known(state, member)
    order = standing.get(member, NOTHING)
    if not order.drained:
        return StepOutcome(state, (), None)
    event = GroupEvent(EventKind.UNDRAIN, member, why=f"by {by}")
    return _ordered(state, member, order.undrained(), event, now)


def weigh(state: GroupState, member: str, weight: float | None, now: float, by: str) -> StepOutcome:
    """Give a member another weight than its own; ``None`` gives it its own back.

    Raises:
        UnknownMemberError: the group has no such member, and no order about it.
        ConfigError: it is no weight that a :class:`GroupMember` may have.
    """
    standing = state.orders_at(now)
    if member not in standing:
        _check_known(state, member)
    if weight is not None:
        weight = float(GroupMember(member, weight=weight).weight)
    before = standing.get(member, NOTHING)
    if weight == before.weight:
        return StepOutcome(state, (), None)
    order = replace(before, weight=weight, weighed_by="" if weight is None else by)
    if not order.drained:
        order = replace(order, since=now)
    why = f"to {'its own' if weight is None else f'{weight:g}'} by {by}"
    event = GroupEvent(EventKind.WEIGHED, member, why=why)
    return _ordered(state, member, order, event, now)


NOTHING = MemberOrder(by="", since=0.0)
"""No order at all."""


def _check_known(state: GroupState, member: str) -> None:
    if member not in state.roster:
        raise UnknownMemberError(member, state.roster)


def _ordered(
    state: GroupState,
    member: str,
    order: MemberOrder,
    event: GroupEvent,
    now: float,
) -> StepOutcome:
    orders = {
        name: found
        for name, found in state.orders_at(now).items()
        if name in state.roster or not is_made_up(name) or found.since > now - DAY
    }
    orders[member] = order
    if not order.drained and order.weight is None:
        del orders[member]
    changed = replace(state, generation=state.generation + 1, orders=orders, committed=None)
    return StepOutcome(changed, (event,), None)
