"""Even counts with the fewest moves: the rule of Solace's partitioned queues, generalised.

Solace hands one partition at a time from the member with the most to the member with the least
until their counts differ by at most one. The end of that loop can be computed at once: every
member keeps what it has up to its quota, and what is over goes to those below theirs. The moves are
then made in Solace's order. With weights the quota is the fair share, rounded.

A member that has taken the place of one that is gone counts as having what that one had.

No assignment within the quotas needs fewer moves: a member above its share rounded up must give
the difference, and those who have more than their share rounded down are rounded up first.

Ties: of a member that must give, the highest partitions go; freed partitions are taken in rising
order, each by the member that is furthest below its quota, among equals by who joined first.
"""

from __future__ import annotations

from hashring.core.assignors.quotas import by_need, quotas
from hashring.core.assignors.situation import GroupSituation
from hashring.core.assignors.target_assignment import TargetAssignment


class BalancedAssignor:
    """Counts as even as weights allow, by the fewest moves."""

    name = "balanced"
    lasting = True

    def assign(self, situation: GroupSituation) -> TargetAssignment:
        """Who should own what."""
        members = situation.candidates()
        having: dict[str, list[int]] = {member.name: [] for member in members}
        owners: list[str | None] = [None] * situation.partitions
        free: list[int] = []
        for partition, owner in enumerate(situation.keepers()):
            if owner is not None and owner in having:
                having[owner].append(partition)
                owners[partition] = owner
            else:
                free.append(partition)

        quota = quotas(members, situation.partitions, {n: len(p) for n, p in having.items()})
        for name, partitions in having.items():
            free.extend(partitions[quota[name] :])
            del partitions[quota[name] :]

        free.sort()
        missing = {name: quota[name] - len(partitions) for name, partitions in having.items()}
        for partition, name in zip(free, by_need(missing), strict=True):
            owners[partition] = name
        return TargetAssignment.at_once(owners)
