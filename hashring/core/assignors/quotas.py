"""How many partitions each member should have, and how many it has.

A member's fair share is ``partitions * weight / sum of weights``. Its quota is that share rounded
down or up, so that the quotas add up to the number of partitions. With equal weights they differ
by at most one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hashring.core.assignors.situation import GroupMember

# Shares are floats; a share this close to an integer is that integer. The error of a sum of a
# million weights is far below, and no fair difference of weights is.
_EPSILON: Final = 1e-9


def fair_shares(members: Sequence[GroupMember], partitions: int) -> dict[str, float]:
    """What each member would have, could partitions be cut."""
    total = math.fsum(member.weight for member in members)
    return {member.name: partitions * member.weight / total for member in members}


def round_down(share: float) -> int:
    """The greatest whole number not above the share."""
    return math.floor(share + _EPSILON)


def round_up(share: float) -> int:
    """The least whole number not below the share."""
    return math.ceil(share - _EPSILON)


def quotas(
    members: Sequence[GroupMember], partitions: int, held: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The quota of each member.

    Args:
        members: in order of joining.
        held: how many each has now. Who has more than its share rounded down is rounded up
            first, since that leaves one partition where it is.

    Ties are broken by the greater fraction that rounding down cuts off, then by joining earlier.
    """
    having = held or {}
    shares = fair_shares(members, partitions)
    quota = {name: round_down(share) for name, share in shares.items()}
    roundable = [
        (having.get(name, 0) <= quota[name], round(quota[name] - share, 9), order, name)
        for order, (name, share) in enumerate(shares.items())
        if round_up(share) > quota[name]
    ]
    roundable.sort()
    for _, _, _, name in roundable[: partitions - sum(quota.values())]:
        quota[name] += 1
    return quota


def counts(owners: Sequence[str | None]) -> dict[str, int]:
    """How many partitions each member that has any has."""
    found: dict[str, int] = {}
    for owner in owners:
        if owner is not None:
            found[owner] = found.get(owner, 0) + 1
    return found


def by_need(missing: dict[str, int]) -> Iterable[str]:
    """Each name as often as it misses a partition, always the neediest next.

    Args:
        missing: how many each misses, in order of joining, which breaks ties.
    """
    heap = [(-count, order, name) for order, (name, count) in enumerate(missing.items()) if count]
    heapq.heapify(heap)
    while heap:
        negative, order, name = heap[0]
        yield name
        if negative == -1:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (negative + 1, order, name))
