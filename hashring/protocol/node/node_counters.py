"""What a node's machine counts, for its status and its metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Counters:
    """What happened since the machine was made, for the status."""

    heartbeats: int = 0
    failures: int = 0
    fetches: int = 0
    gaps: int = 0
    subscriptions: int = 0
    bad_messages: int = 0
    fences: int = 0
    losses: int = 0
    changes: Counter[str] = field(default_factory=Counter)
