"""Events that chance draws for a history: which kinds, how often, and how long each lasts."""

from __future__ import annotations

from random import Random
from typing import Final

from hashring.testing.simulator.history import Event

# Kinds of events that every world has, and how often each is drawn. What each does is in
# `fault_effects`.
KINDS: Final[dict[str, int]] = {
    "start": 0,
    "stop": 3,
    "kill": 6,
    "pause": 8,
    "cut": 5,
    "hole": 6,
    "lose reply": 5,
    "slow command": 5,
    "slow reply": 3,
    "slow join": 4,
    "lose messages": 5,
    "delay messages": 4,
    "unsubscribe": 3,
    "deaf": 4,
    "down": 3,
    "hang": 3,
    "wipe": 3,
    "failover": 5,
}


def seconds(rng: Random) -> float:
    """How long a fault lasts: moments, about a heartbeat, longer than the ttl."""
    low, high = rng.choice(((0.02, 0.6), (0.5, 2.0), (1.5, 3.5), (3.0, 5.0)))
    return round(rng.uniform(low, high), 3)


def drawn(kind: str, at: float, label: str, rng: Random) -> Event:
    """An event of one of the :data:`KINDS`, with what is left to chance of it."""
    match kind:
        case "pause" | "cut" | "delay messages":
            return Event(at, kind, label, seconds(rng))
        case "hole":
            return Event(at, kind, label, seconds(rng), rng.choice(("late", "lost")))
        case "slow command" | "slow reply" | "slow join":
            return Event(at, kind, label, seconds(rng))
        case "lose messages":
            return Event(at, kind, label, what=rng.choice("1124"))
        case "down":
            return Event(at, kind, seconds=seconds(rng), what=rng.choice(("kept", "empty")))
        case "hang":
            return Event(at, kind, seconds=seconds(rng))
        case "wipe":
            return Event(at, kind)
        case "failover":
            # What was written in the last moments is lost; the new server's clock is a bit off.
            skew = rng.choice((0.0, 0.0, -0.2, 0.1, 0.2))
            return Event(at, kind, what=f"{rng.uniform(0.0, 2.0):.3f} {skew:+}")
        case _:
            return Event(at, kind, label)
