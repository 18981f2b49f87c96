"""States as data: a table of (state, event) -> state that code goes by.

The texts of modules, the tables on pages and the diagrams are all made from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Generic, TypeVar

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class StateTable(Generic[S, E]):
    """All transitions of one machine.

    Args:
        meanings: what each state means, in one line; in the order in which tables list them.
        transitions: where each event leads from each state. An event that is not listed for a
            state cannot happen in it.
    """

    def __init__(self, meanings: Mapping[S, str], transitions: Mapping[S, Mapping[E, S]]) -> None:
        self.meanings = dict(meanings)
        self.transitions = {state: dict(events) for state, events in transitions.items()}

    def after(self, state: S, event: E) -> S:
        """The state that an event leads to.

        Raises:
            LookupError: the event cannot happen in the state.
        """
        try:
            return self.transitions[state][event]
        except KeyError:
            raise LookupError(f"{event.value!r} cannot happen while {state.value!r}") from None

    def may(self, state: S, event: E) -> bool:
        """Whether an event can happen in a state."""
        return event in self.transitions.get(state, {})

    def final(self, state: S) -> bool:
        """Whether nothing leads out of a state."""
        return not self.transitions.get(state)

    def __iter__(self) -> Iterator[tuple[S, E, S]]:
        for state, events in self.transitions.items():
            for event, after in events.items():
                yield state, event, after

    def as_text(self) -> str:
        """The table for a docstring or a page: a simple table of reStructuredText."""
        rows = [("state", "meaning", "event -> next state")]
        for state, meaning in self.meanings.items():
            events = [f"{e.value} -> {s.value}" for e, s in self.transitions.get(state, {}).items()]
            first, *more = events or ["the end"]
            rows.append((f"``{state.value}``", meaning, first))
            rows += [("\\", "", each) for each in more]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        rule = "  ".join("=" * width for width in widths)
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([rule, lines[0], rule, *lines[1:], rule])


def with_tables(text: str, **tables: StateTable[Any, Any]) -> str:
    """A module's text with its tables, each where the text has its name in braces."""
    if text:  # ``python -OO`` takes it away
        for name, table in tables.items():
            text = text.replace(f"{{{name}}}", table.as_text())
    return text
