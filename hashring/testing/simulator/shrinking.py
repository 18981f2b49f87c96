"""Makes a history that breaks a rule as small as it goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from hashring.testing.simulator.history import Event, History

H = TypeVar("H", bound=History)


def smallest(history: H, fails: Callable[[H], bool], attempts: int = 400) -> H:
    """The history with as many events left out as it takes to fail no more, one by one.

    Delta debugging (Zeller and Hildebrandt 2002): first halves are left out, then quarters, and
    so on down to single events. What is left may not be the smallest there is, but no single
    event of it can be spared, unless ``attempts`` runs were not enough.
    """
    events = list(history.events)
    chunk = max(1, len(events) // 2)
    while attempts > 0:
        start, smaller = 0, False
        while start < len(events) and attempts > 0:
            attempts -= 1
            candidate = _with(history, events[:start] + events[start + chunk :])
            if fails(candidate):
                events = list(candidate.events)
                smaller = True
            else:
                start += chunk
        if chunk == 1 and not smaller:
            break
        chunk = chunk if smaller and chunk == 1 else max(1, chunk // 2)
    return _with(history, events)


def _with(history: H, events: Sequence[Event]) -> H:
    labels = {event.who for event in events if event.kind == "start"}
    processes = tuple(spec for spec in history.processes if spec.label in labels)
    return replace(history, processes=processes, events=tuple(events))
