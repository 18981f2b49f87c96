"""Situations written as one would draw them."""

from __future__ import annotations

from dataclasses import replace

from hashring.core.assignors import (
    GroupMember,
    GroupSituation,
    MemberState,
    Owners,
    TargetAssignment,
)


def members(
    *names: str, weights: tuple[float, ...] = (), leaving: str = ""
) -> tuple[GroupMember, ...]:
    """Members in this order of joining."""
    return tuple(
        GroupMember(
            name,
            joined,
            weights[joined] if weights else 1.0,
            MemberState.LEAVING if name == leaving else MemberState.ACTIVE,
        )
        for joined, name in enumerate(names)
    )


def owners(first: int = 0, /, **having: list[int]) -> Owners:
    """An assignment from the partitions of each member, the lowest of them being ``first``."""
    found = {partition - first: name for name, own in having.items() for partition in own}
    return tuple(found.get(partition) for partition in range(max(found, default=-1) + 1))


def having(assignment: Owners, first: int = 0) -> dict[str, list[int]]:
    """The partitions of each member, numbered from ``first``."""
    found: dict[str, list[int]] = {}
    for partition, name in enumerate(assignment):
        if name is not None:
            found.setdefault(name, []).append(partition + first)
    return found


def sizes(situation: GroupSituation, target: TargetAssignment) -> list[int]:
    """How many partitions each member should end with, in order of joining."""
    return [sum(o == member.name for o in target.owners) for member in situation.members]


def moves(before: Owners, after: Owners) -> int:
    """How many partitions change their member."""
    return sum(was != now for was, now in zip(before, after, strict=True))


def follow(target: TargetAssignment, situation: GroupSituation) -> GroupSituation:
    """The situation once the interim assignment is reached, everything else unchanged."""
    return replace(
        situation,
        previous=target.interim,
        warming=dict(target.warmups),
        standbys=dict(target.standbys),
    )
