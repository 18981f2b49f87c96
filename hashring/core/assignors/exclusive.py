"""One member has everything, the others stand by: exclusive access, in Solace's words.

The owner is the member that has the most already; if members have equally many, the one that
joined first. So a member that joins or returns takes nothing away from it.
"""

from __future__ import annotations

from collections import Counter

from hashring.core.assignors.situation import GroupSituation
from hashring.core.assignors.target_assignment import TargetAssignment


class ExclusiveAssignor:
    """All partitions to one member; used for a group whose access is exclusive."""

    name = "exclusive"

    def assign(self, situation: GroupSituation) -> TargetAssignment:
        """Who should own what."""
        having = Counter(situation.keepers())
        # Among equals `max` takes the first.
        owner = max(situation.candidates(), key=lambda member: having[member.name])
        return TargetAssignment.at_once([owner.name] * situation.partitions)
