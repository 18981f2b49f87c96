"""What a decision of a group did, as the page lists it: pure, computed from the decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hashring.core.groups.state import EventKind
from hashring.store.group.decision_history import Decision

_GIVEN: Final = frozenset({EventKind.GRANTED.value, EventKind.WARMUP.value})


@dataclass(frozen=True)
class Happening:
    """One thing that a decision did, to as many partitions as it is.

    Attributes:
        kind: what.
        partitions: which, rising; empty when it was about a member or the group.
        member, to: whose they were or are, and for whom they are.
        why: the reason.
    """

    kind: str
    partitions: tuple[int, ...]
    member: str | None
    to: str | None
    why: str

    @property
    def of(self) -> str:
        """The word between the partitions and the member; empty where there is none."""
        if not self.partitions:
            return ""
        return "to" if self.kind in _GIVEN else "from"


def happenings(decision: Decision) -> tuple[Happening, ...]:
    """What a decision did; the partitions to which the same happened together."""
    found: dict[tuple[str, str | None, str | None, str], list[int]] = {}
    for event in decision.events:
        key = (event.kind.value, event.member, event.to, event.why)
        numbers = found.setdefault(key, [])
        if event.partition is not None:
            numbers.append(event.partition)
    return tuple(
        Happening(kind, tuple(sorted(numbers)), member, to, why)
        for (kind, member, to, why), numbers in found.items()
    )
