"""The ring's history in Redis: reading it, and its events as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any, Final, Protocol

from hashring.store.commands import Event, read_event

_PAGE: Final = 1000


class Caller(Protocol):
    """Whatever runs plain Redis commands."""

    def call(self, *arguments: Any) -> Any:
        """Run one.

        Raises:
            StoreError: it was not done.
        """


def newest(redis: Caller, stream: bytes, count: int) -> list[Event]:
    """The last ``count`` events, oldest first.

    Raises:
        StoreError: they could not be read.
    """
    found: list[Event] = []
    end = "+"
    while len(found) < count:
        size = min(_PAGE, count - len(found))
        page = redis.call("XREVRANGE", stream, end, "-", "COUNT", size)
        found.extend(read_event(entry) for entry in page)
        if len(page) < size:
            break
        end = f"({found[-1].id}"
    return found[::-1]


def after(redis: Caller, stream: bytes, id_: str) -> Iterator[Event]:
    """The events after that id, oldest first.

    Raises:
        StoreError: they could not be read.
    """
    while True:
        page = redis.call("XRANGE", stream, f"({id_}", "+", "COUNT", _PAGE)
        for entry in page:
            event = read_event(entry)
            id_ = event.id
            yield event
        if len(page) < _PAGE:
            return


def event_json(event: Event) -> dict[str, Any]:
    """The event as JSON types."""
    change = event.change
    return {
        "id": event.id,
        "at": iso_time(event.at),
        "kind": event.kind,
        "by": event.by,
        "nodes": list(change.nodes) if change else [],
        "points": list(change.points) if change else [],
        "reason": change.reason if change else "",
        "epoch": change.stamp.epoch if change else None,
        "keys": event.keys or None,
    }


def iso_time(at: float) -> str:
    """Seconds since 1970 in UTC, as JSON readers expect it."""
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")
