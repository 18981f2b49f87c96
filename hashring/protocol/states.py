"""States of a machine as data: which event leads from which state to which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


@dataclass(frozen=True)
class Moves(Generic[S, E]):
    """The moves that a machine may make.

    Attributes:
        after: the state that follows a state and an event. What is not there cannot happen.
    """

    after: Mapping[tuple[S, E], S]

    def next(self, state: S, event: E) -> S:
        """The state after the event.

        Raises:
            RuntimeError: the machine makes a move that the table does not have; a fault in it.
        """
        try:
            return self.after[state, event]
        except KeyError:
            raise RuntimeError(f"{event.name} cannot happen in state {state.value}") from None

    def table(self) -> str:
        """The moves as a simple table in reStructuredText, one line for each event and outcome."""
        ways: dict[tuple[E, S], list[S]] = {}
        for (state, event), outcome in self.after.items():
            ways.setdefault((event, outcome), []).append(state)
        rows = [
            (str(event.value), _words(before), str(outcome.value))
            for (event, outcome), before in ways.items()
        ]
        rows.insert(0, ("event", "from", "to"))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        rule = "  ".join("=" * width for width in widths)
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([rule, lines[0], rule, *lines[1:], rule])


def _words(states: Sequence[Enum]) -> str:
    if len(states) == len(type(states[0])):
        return "any"
    return ", ".join(str(state.value) for state in states)
