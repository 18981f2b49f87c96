"""What the service shows of a partition group: pure, computed from one reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from hashring.core.groups import group_status
from hashring.core.groups.group_status import GroupStatus
from hashring.core.groups.state import GroupState
from hashring.health import Health, decision_to_forget, group_health
from hashring.metrics.fleet_collector import GroupReading
from hashring.store.group.decision_history import Decision
from hashring.store.group.reading import Reading


@dataclass(frozen=True)
class Cell:
    """A partition, as the grid shows it.

    Attributes:
        number: the partition.
        owner: who holds it; ``None`` for nobody.
        doing: what is under way: ``handoff``, ``warm-up``, ``drain``, or nothing.
        to: whom it is going to.
    """

    number: int
    owner: str | None
    doing: str
    to: str | None


class GroupView:
    """A partition group at one instant. Immutable.

    Args:
        decisions: the last ones, newest first.
    """

    def __init__(
        self, name: str, reading: Reading, state: GroupState, decisions: tuple[Decision, ...]
    ) -> None:
        self.name = name
        self.reading = reading
        self.state = state
        self.decisions = decisions
        self.status: GroupStatus = group_status.status(state, reading.facts)

    @property
    def now(self) -> float:
        """Redis time of the reading."""
        return self.reading.facts.now

    @cached_property
    def health(self) -> Health:
        """Whether it is well, and if not, why."""
        return group_health(self.status, self.decisions, group=self.name, now=self.now)

    @property
    def is_forgotten(self) -> bool:
        """Whether somebody forgot it, and no member has joined since."""
        return not self.reading.facts.live and decision_to_forget(self.decisions) is not None

    @property
    def changed_at(self) -> float | None:
        """Redis time of the last decision; ``None`` before the first."""
        return self.decisions[0].at if self.decisions else None

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All partitions, by number."""
        return tuple(self._cells())

    @cached_property
    def owners(self) -> Mapping[int, str | None]:
        """Who holds each partition; ``None`` for nobody."""
        return {cell.number: cell.owner for cell in self.cells}

    def _cells(self) -> Iterator[Cell]:
        state = self.state
        # Of members that are gone the state keeps what they had until another decides.
        unowned = frozenset(self.status.unowned)
        for number in state.existing:
            doing, to = "", None
            if number in state.handoffs:
                doing, to = "handoff", state.handoffs[number].to
            elif number in state.warming:
                doing, to = "warm-up", state.warming[number]
            elif number in state.draining:
                doing = "drain"
            owner = None if number in unowned else state.holder(number)
            yield Cell(number, owner, doing, to)

    def metrics_reading(self, decisions: tuple[Decision, ...]) -> GroupReading:
        """What the metrics are made of.

        Args:
            decisions: those that are new since the reading before.
        """
        return GroupReading(self.name, self.status, decisions, self.health)
