"""Who has the partitions that were removed, until they are empty."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping

from hashring.core.assignors.situation import GroupMember, GroupSituation
from hashring.core.assignors.target_assignment import TargetAssignment
from hashring.core.groups.state import EXCLUSIVE, Terms


def draining_owners(
    draining: Mapping[int, str | None],
    target: TargetAssignment,
    members: tuple[GroupMember, ...],
    terms: Terms,
) -> dict[int, str | None]:
    """Who should have each of the removed partitions that drain.

    A partition that drains stays where it is; without an owner that can stay, it goes to the member
    that has the least. With exclusive access, the member that has everything has these as well.

    Args:
        draining: who has each of them now, or had it last.
        target: of the partitions that are counted.
    """
    if not draining:
        return {}
    candidates = GroupSituation(members, terms.partitions).candidates()
    having = Counter(target.owners)
    if terms.access == EXCLUSIVE:
        candidates = tuple(member for member in candidates if member.name in having)
    names = {member.name for member in candidates}
    emptiest = [(having[m.name] / m.weight, m.joined, m) for m in candidates]
    heapq.heapify(emptiest)
    found: dict[int, str | None] = {}
    for partition, owner in draining.items():
        found[partition] = owner if owner in names else None
        if owner not in names and emptiest:
            _, joined, least = emptiest[0]
            found[partition] = least.name
            having[least.name] += 1
            heapq.heapreplace(emptiest, (having[least.name] / least.weight, joined, least))
    return found
