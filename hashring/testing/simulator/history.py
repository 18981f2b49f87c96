"""What happens in a simulated history: processes, and events at their times.

A history is data. The same history gives the same run, bit for bit, so one that finds a fault
can be played again, and made smaller by leaving events out.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Final


@dataclass(frozen=True)
class Event:
    """Something that happens, from outside the protocol.

    Attributes:
        at: seconds from the beginning.
        kind: which of :data:`KINDS`, or of those that a world adds.
        who: the label of the process it happens to; empty for Redis.
        seconds: how long it lasts, or by how much it delays.
        what: which key, which garbage, how it ends.
    """

    at: float
    kind: str
    who: str = ""
    seconds: float = 0.0
    what: str = ""

    @property
    def lag_and_skew(self) -> tuple[float, float]:
        """Of a failover: how old the new server's data is, how far off its clock, in seconds.

        Of older keys that are put back: how old they are, and 0.
        """
        lag, skew = self.what.split()
        return float(lag), float(skew)

    def __str__(self) -> str:
        parts = [f"{self.at:7.3f}  {self.who or 'redis':<6} {self.kind}"]
        if self.seconds:
            parts.append(f"{self.seconds:g} s")
        if self.what:
            parts.append(self.what)
        return " ".join(parts)


@dataclass(frozen=True)
class History:
    """Processes and what happens to them.

    Attributes:
        seed: where everything left to chance comes from: points, sessions, jitter, latencies.
        processes: what the world has to know of each; one that no ``start`` event names never
            runs.
        events: in order of time.
    """

    seed: int
    processes: tuple[Any, ...]
    events: tuple[Event, ...]

    @property
    def faults_end(self) -> float:
        """When the last event is over, in seconds from the beginning."""
        return max((event.at + event.seconds for event in self.events), default=0.0)


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
