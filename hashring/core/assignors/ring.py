"""The partition's owner on a consistent hash ring: the rule of redis-hashring.

Each member has points on a ring, proportional to its weight; a partition belongs to the owner of
the key that is its number, ``"17"`` for partition 17. Only names and weights decide, so
two members that know the same members agree without any history, and a member that joins or
leaves moves only what it gains or had. The price is uneven counts: use ``balanced`` where that
matters.

Unlike a node's points on a live ring, a member's points are not random but the first bytes of
``blake2b(name + NUL + i)``, so that everybody computes the same ones.

If members had more points than :data:`MOST_POINTS` together, each has half of them, or a quarter,
and so on: weights may be as large as 1,000. Only then does a change of one member change the points
of others, each time the sum of all weights doubles or halves.
"""

from __future__ import annotations

import math
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from hashring.core.assignors.situation import GroupSituation
from hashring.core.assignors.target_assignment import TargetAssignment
from hashring.core.ring import Ring
from hashring.core.value_checks import checked_whole
from hashring.errors import ConfigError

MOST_POINTS: Final = 2**18
"""With more, a decision would take seconds, and the ring hundreds of megabytes."""


class RingAssignor:
    """Partition -> owner on the ring of the members.

    Args:
        replicas: points of a member of weight 1; fewer if these are too many for the whole group.
    """

    lasting = True

    def __init__(self, replicas: int = 64) -> None:
        self.replicas = checked_whole("replicas", replicas)
        if self.replicas < 1:
            raise ConfigError("replicas", replicas, "a member has at least one point")

    @property
    def name(self) -> str:
        """The rule and how many points a member has."""
        return f"ring({self.replicas})"

    def assign(self, situation: GroupSituation) -> TargetAssignment:
        """Who should own what; ``previous`` does not matter."""
        members = situation.candidates()
        of_weight_1: float = self.replicas
        # Every member computes this, so the sum must not depend on their order.
        while math.fsum(member.weight for member in members) * of_weight_1 > MOST_POINTS:
            of_weight_1 /= 2
        ring = Ring(
            {
                # A low weight still gets a point.
                member.name: _points(member.name, max(1, round(member.weight * of_weight_1)))
                for member in members
            }
        )
        return TargetAssignment.at_once(ring.owner(str(p)) for p in range(situation.partitions))


@lru_cache(maxsize=4096)
def _points(name: str, count: int) -> tuple[int, ...]:
    return tuple(
        int.from_bytes(blake2b(f"{name}\0{i}".encode(), digest_size=4).digest(), "big")
        for i in range(count)
    )
