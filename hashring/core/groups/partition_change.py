"""Changes of what a member has to do with its partitions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum


class PartitionChangeKind(str, Enum):
    """What changes for a member."""

    ASSIGNED = "assigned"
    """The partition is held; work may begin."""
    REVOKED = "revoked"
    """Work has to end by the deadline; then say so."""
    LOST = "lost"
    """The partition is not held any more, finished or not."""
    WARMUP = "warmup"
    """Get ready to take the partition over."""
    COOLED = "cooled"
    """No need to be ready for the partition any more."""
    DRAIN = "drain"
    """The partition is removed, and nothing new comes. Call ``drained()`` when it is empty."""
    ACTIVE = "active"
    """The member gets its first partition. It comes before the assignment."""
    INACTIVE = "inactive"
    """The member has lost its last partition, and stands by."""


@dataclass(frozen=True)
class PartitionChange:
    """A change of what a member has to do.

    Attributes:
        kind: what changes.
        partition: its number; for ``ACTIVE`` the first that the member gets, for ``INACTIVE`` the
            last that it had.
        token: the fencing token it is or was held under; 0 for warm-ups.
        deadline: for ``REVOKED``, the monotonic time by which work must have ended.
    """

    kind: PartitionChangeKind
    partition: int
    token: int = 0
    deadline: float = math.inf
