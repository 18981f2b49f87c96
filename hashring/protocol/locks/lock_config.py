"""How a node locks keys."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LockConfig:
    """How a node locks.

    Attributes:
        locking: whether keys are locked in Redis; else only the limit is kept, in this process.
        limit: how many keys the node may hold; ``None`` for any number.
        ttl: seconds that a lock lasts unless renewed.
        idle: seconds after which a key that is not asked for is let go.
        max_handoff_time: seconds that a lease may go on after it was asked to finish.
    """

    locking: bool
    limit: int | None
    ttl: float
    idle: float
    max_handoff_time: float
