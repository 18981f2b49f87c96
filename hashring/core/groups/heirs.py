"""Who takes the place of a member that is gone.

A member that holds nothing, a spare or one that has just joined, takes over the place in the
order of joining and the partitions of one that is gone, if their weights are equal. So a group
that is as large as before is as before, under any assignor that looks at places and owners, and
nothing is handed off (Solace: "If the number of consumers returns to its previous state before
the delay timer expires, no partition handoffs occur").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A member's place, taken or vacant.

    Attributes:
        order: in the order of joining.
        name: of the member that has it, or had it.
        weight: that member's.
    """

    order: int
    name: str
    weight: float


def heirs(vacant: Iterable[Place], idle: Iterable[Place]) -> dict[str, str]:
    """For each member that is gone the one that takes its place, if there is one.

    Both sides in the order of joining, so that everybody computes the same.

    Args:
        vacant: places of members that are gone and whose partitions nobody holds.
        idle: members that hold nothing, and that nothing is on its way to.
    """
    waiting = sorted(idle, key=lambda place: place.order)
    found: dict[str, str] = {}
    for place in sorted(vacant, key=lambda place: place.order):
        heir = next((member for member in waiting if member.weight == place.weight), None)
        if heir is not None:
            waiting.remove(heir)
            found[place.name] = heir.name
    return found
