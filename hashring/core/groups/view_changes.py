"""What a decision changes for a member.

A member has its part of the group, a :class:`~hashring.core.groups.state.MemberView`. It may hold
thousands of partitions, of which a decision changes a few, so members are told changes. A member
that missed some reads the whole decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from hashring.core.groups.partition_map import PartitionMap
from hashring.core.groups.state import Asked, GroupPhase, GroupState, MemberView


@dataclass(frozen=True)
class ViewChange:
    """What is different in a member's part of a group.

    Attributes:
        held: partitions it holds that it did not hold before under that token.
        not_held: those that it does not hold any more.
        revoked: those that it has to let go of, with the deadline.
        not_revoked: those that it need not let go of any more.
        warming, not_warming: those to be warm for now, and those no more.
        draining, not_draining: those to be emptied now, and those no more.
        fresh: whether the member had no part before, as this session.
    """

    held: Mapping[int, int] = field(default_factory=dict)
    not_held: tuple[int, ...] = ()
    revoked: Mapping[int, float] = field(default_factory=dict)
    not_revoked: tuple[int, ...] = ()
    warming: tuple[int, ...] = ()
    not_warming: tuple[int, ...] = ()
    draining: tuple[int, ...] = ()
    not_draining: tuple[int, ...] = ()
    fresh: bool = field(default=False, compare=False)

    @property
    def grants(self) -> bool:
        """Whether it lets the member begin with anything."""
        return self.fresh or bool(self.held)


def changed_views(before: GroupState | None, after: GroupState) -> dict[str, ViewChange]:
    """What a decision changes for the members that have a seat; those alone for whom it does.

    Args:
        before: what stood; ``None`` when nothing did.
    """
    seats = {} if before is None else before.roster
    fresh = {
        name
        for name, seat in after.roster.items()
        if seat.session and (name not in seats or seats[name].session != seat.session)
    }
    staying = {name for name, seat in after.roster.items() if seat.session} - fresh
    held: dict[str, dict[int, int]] = {name: {} for name in fresh}
    if fresh:
        # Mostly nothing, but a member that Redis forgot may hold what it claims.
        for partition, owner in enumerate(after.owners):
            if owner in fresh and partition not in after.free:
                held[owner][partition] = after.tokens[partition]
    lost: dict[str, list[int]] = {}
    if before is not None:
        for partition in _moved(before, after):
            was, now = _holding(before, partition), _holding(after, partition)
            if was == now:
                continue
            if was[0] in staying and was[0] != now[0]:
                lost.setdefault(str(was[0]), []).append(partition)
            if now[0] in staying:
                held.setdefault(str(now[0]), {})[partition] = now[1]
    nothing = Asked()
    asked_before = {} if before is None else before.asked()
    asked = after.asked()
    concerned = {*fresh, *held, *lost, *(staying & {*asked, *asked_before})}
    found = {}
    for name in (name for name in after.roster if name in concerned):
        was_asked = nothing if name in fresh else asked_before.get(name, nothing)
        is_asked = asked.get(name, nothing)
        change = ViewChange(
            held.get(name, {}),
            tuple(lost.get(name, ())),
            {p: at for p, at in is_asked.revoked.items() if was_asked.revoked.get(p) != at},
            tuple(was_asked.revoked.keys() - is_asked.revoked.keys()),
            tuple(sorted(is_asked.warming - was_asked.warming)),
            tuple(sorted(was_asked.warming - is_asked.warming)),
            tuple(sorted(is_asked.draining - was_asked.draining)),
            tuple(sorted(was_asked.draining - is_asked.draining)),
            name in fresh,
        )
        if change.fresh or change != ViewChange():
            found[name] = change
    return found


def _moved(before: GroupState, after: GroupState) -> set[int]:
    """The partitions whose holder or token may have changed."""
    return {
        *before.owners.differing(after.owners),
        *before.tokens.differing(after.tokens),
        *(before.free ^ after.free),
    }


def _holding(state: GroupState, partition: int) -> tuple[str | None, int]:
    """Who holds a partition, and under which token; nobody does under 0."""
    holder = state.holder(partition) if partition < len(state.owners) else None
    return (None, 0) if holder is None else (holder, state.tokens[partition])


def changed_view(
    view: MemberView, changes: Iterable[ViewChange], generation: int, phase: GroupPhase
) -> MemberView:
    """A member's part of the group after these changes, in their order.

    Args:
        view: its part before.
        generation, phase: of the group, now.
    """
    every = [*changes]
    if not every:
        return replace(view, generation=generation, phase=phase)
    # A member may hold thousands: what the changes leave is put together once for all of them.
    held: dict[int, int] = {}
    not_held: set[int] = set()
    revoked = dict(view.revoked)
    warming, draining = set(view.warming), set(view.draining)
    for change in every:
        for partition in change.not_held:
            held.pop(partition, None)
        not_held.update(change.not_held)
        held.update(change.held)
        for partition in change.not_revoked:
            revoked.pop(partition, None)
        revoked.update(change.revoked)
        warming.difference_update(change.not_warming)
        warming.update(change.warming)
        draining.difference_update(change.not_draining)
        draining.update(change.draining)
    return MemberView(
        generation,
        phase,
        PartitionMap.of(view.held).changed(held, without=not_held),
        revoked,
        frozenset(warming),
        frozenset(draining),
        seated=True,
    )
