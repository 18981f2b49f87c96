"""Contiguous chunks in order of joining: the rule of Runnel.

The first member gets the first chunk, the second the next, and so on; the first ``partitions mod
members`` get one more. Anybody can compute it in the head, and neighbours stay together. The
price is movement: when a member joins 15 others on 256 partitions, 135 move where 16 would do.
"""

from __future__ import annotations

from hashring.core.assignors.quotas import quotas
from hashring.core.assignors.situation import GroupSituation
from hashring.core.assignors.target_assignment import TargetAssignment


class ContiguousAssignor:
    """Contiguous chunks, in order of joining; chunks are proportional to weights."""

    name = "contiguous"
    lasting = True

    def assign(self, situation: GroupSituation) -> TargetAssignment:
        """Who should own what; ``previous`` does not matter."""
        members = situation.candidates()
        quota = quotas(members, situation.partitions)
        return TargetAssignment.at_once(
            member.name for member in members for _ in range(quota[member.name])
        )
