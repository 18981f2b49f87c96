"""Histories of partition groups: members, and what happens to them."""

from __future__ import annotations

from dataclasses import dataclass, field

from hashring.core.assignors import assignor_named
from hashring.core.groups import reported_loads
from hashring.core.groups.state import Terms
from hashring.testing.simulator.history import History


@dataclass(frozen=True)
class MemberSpec:
    """A process that is a member.

    Attributes:
        label: what the story calls it.
        name: the member's name; processes may share one.
        weight: its share relative to the others'.
        warms_up: whether its application hears of what to warm up for.
        insistent: whether it starts again when it could not enter, or was stopped by a fault.
        progress_timeout: as for :class:`hashring.PartitionGroup`.
        lag: the most seconds by which its network is slower than others'.
        monotonic: what its monotonic clock shows at the beginning, in seconds.
        rate: how many seconds that clock goes on in a second.
    """

    label: str
    name: str
    weight: float = 1.0
    warms_up: bool = True
    insistent: bool = True
    progress_timeout: float | None = None
    lag: float = 0.0
    monotonic: float = 0.0
    rate: float = 1.0


@dataclass(frozen=True)
class GroupHistory(History):
    """A history of one partition group.

    Attributes:
        terms: what all members agree on.
        handoff: the most seconds an application takes to let go; it may exceed what it is given.
        drain: the most seconds an application takes to empty a removed partition.
        warm_up: the most seconds a warm-up takes.
        interval: seconds between renewals.
    """

    terms: Terms = field(default_factory=lambda: Terms(8))
    handoff: float = 1.0
    drain: float = 1.0
    warm_up: float = 2.0
    interval: float = 1.0

    def most(self, setting: str) -> float:
        """The greatest value that one of the group's settings ever has."""
        changed = (event.term for event in self.events if event.kind == "migrate")
        values = [getattr(self.terms, setting), *(v for name, v in changed if name == setting)]
        return float(max(values))

    @property
    def looks_at_loads(self) -> bool:
        """Whether loads ever matter."""
        changed = (event.term for event in self.events if event.kind == "migrate")
        names = [self.terms.assignor, *(v for name, v in changed if name == "assignor")]
        return any(reported_loads.looks(assignor_named(name)) for name in names)
