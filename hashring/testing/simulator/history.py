"""What happens in a simulated history: processes, and events at their times.

A history is data. The same history gives the same run, bit for bit, so one that finds a fault
can be played again, and made smaller by leaving events out.
"""

from __future__ import annotations

from ast import literal_eval
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    """Something that happens, from outside the protocol.

    Attributes:
        at: seconds from the beginning.
        kind: which of :data:`.random_events.KINDS`, or of those that a world adds.
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

    @property
    def set_back(self) -> float:
        """By how many seconds Redis' clock is set back."""
        return float(self.what) if self.kind == "set back" else 0.0

    @property
    def term(self) -> tuple[str, Any]:
        """Of a migration: which of a group's settings is changed, and to what."""
        name, value = self.what.split(maxsplit=1)
        return name, value if name == "assignor" else literal_eval(value)

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
        events: given in any order, and put in order of time.
    """

    seed: int
    processes: tuple[Any, ...]
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.events, key=lambda event: event.at))
        object.__setattr__(self, "events", ordered)  # frozen

    @property
    def last_at(self) -> float:
        """When the last event begins, in seconds from the beginning."""
        return self.events[-1].at if self.events else 0.0

    @property
    def faults_end(self) -> float:
        """When the last event is over, in seconds from the beginning."""
        return max((event.at + event.seconds for event in self.events), default=0.0)

    @property
    def set_back(self) -> float:
        """By how many seconds Redis' clock is set back in all."""
        return sum(event.set_back for event in self.events)
