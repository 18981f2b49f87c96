"""The ring's history in Redis: reading it, and its events as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

from hashring.core.readable_numbers import in_calendar
from hashring.core.ring_change_message import RingChange, parse_change
from hashring.errors import EventsLost, MessageFormatError
from hashring.store.command import pairs, text
from hashring.store.interface import RedisCaller
from hashring.store.ring.key_names import RingKeys

EVENTS_KEPT: Final = 10_000
"""About how many entries the history of a ring keeps."""

BEFORE_ALL: Final = "0-0"
"""An id below those of all events."""

_PAGE: Final = 1000


@dataclass(frozen=True)
class RingEvent:
    """An entry of the ring's history.

    Attributes:
        id: the stream's id; its first part is Redis time in milliseconds.
        kind: join, leave, expire, ...
        by: the node (or the tool) that made the entry.
        change: the change of the ring; ``None`` for other kinds.
        keys: for ``unserved`` how many keys that node must leave unserved, for ``release`` the
            key whose lock was taken away.
        node: for ``drain``, ``undrain`` and ``weight`` the node that it was about.
        reason: for ``drain`` how long the order lasts, for ``undrain`` why it ended; empty when it
            has no end, or somebody lifted it. For ``weight`` the weight, and why.
    """

    id: str
    kind: str
    by: str
    change: RingChange | None
    keys: str = ""
    node: str = ""
    reason: str = ""

    @property
    def at(self) -> float:
        """Redis time in seconds since 1970."""
        return int(self.id.partition("-")[0]) / 1000

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it happened to."""
        if self.change is not None:
            return self.change.nodes
        return (self.node,) if self.node else ()


def read_event(entry: Any) -> RingEvent:
    """The event that a raw stream entry ``(id, fields)`` is."""
    id_, fields = entry
    values = {text(name): value for name, value in pairs(fields)}
    change = None
    if "data" in values:
        try:
            change = parse_change(values["data"])
        except MessageFormatError:
            change = None
    return RingEvent(
        text(id_),
        text(values.get("kind", "")),
        text(values.get("by", "")),
        change,
        *(text(values.get(name, "")) for name in ("keys", "node", "reason")),
    )


def newest(redis: RedisCaller, keys: RingKeys, count: int) -> list[RingEvent]:
    """The last ``count`` events, oldest first.

    Raises:
        StoreError: they could not be read.
    """
    found: list[RingEvent] = []
    end = "+"
    while len(found) < count:
        size = min(_PAGE, count - len(found))
        page = redis.call("XREVRANGE", keys.events, end, "-", "COUNT", size)
        found.extend(read_event(entry) for entry in page)
        if len(page) < size:
            break
        end = f"({found[-1].id}"
    return found[::-1]


def after(redis: RedisCaller, keys: RingKeys, id_: str, until: str = "+") -> Iterator[RingEvent]:
    """The events after that id, up to and with ``until``, oldest first.

    Whether those right after ``id_`` were dropped before is not told.

    Raises:
        EventsLost: some were dropped between two that were read.
        StoreError: they could not be read.
    """
    return _beginning(redis, keys, f"({id_}", until)


def _beginning(redis: RedisCaller, keys: RingKeys, first: str, until: str) -> Iterator[RingEvent]:
    """As :func:`after`, from a beginning as ``XRANGE`` takes it."""
    page = redis.call("XRANGE", keys.events, first, until, "COUNT", _PAGE)
    while True:
        for entry in page:
            event = read_event(entry)
            id_ = event.id
            yield event
        if len(page) < _PAGE:
            return
        # The history is cut from its old end: while the last one is there, those after it are, too.
        last, *page = redis.call("XRANGE", keys.events, id_, until, "COUNT", _PAGE + 1) or [None]
        if last is None or text(last[0]) != id_:
            remedy = "they were dropped while the history was read: read it again"
            raise EventsLost(text(keys.ring), id_, oldest(redis, keys), remedy)


def continued(
    redis: RedisCaller, keys: RingKeys, known: Sequence[RingEvent], count: int
) -> tuple[Sequence[RingEvent], list[RingEvent]]:
    """Of the known events those that stand, and those that came after these, oldest first.

    A failover, or a restart with older data, may take back the last of those that are known. What
    the server noted instead comes after those that stand, whatever its ids. None stands of a
    history that began again, or that dropped all of them.

    If the ring drops some meanwhile, what came are those before; who asks again gets those after
    them.

    Args:
        known: the last ones of an earlier reading.
        count: how many of the last to read if none is known, or if the last one does not stand.

    Raises:
        StoreError: they could not be read.
    """
    if known:
        found: list[RingEvent] = []
        with suppress(EventsLost):
            found.extend(_beginning(redis, keys, known[-1].id, "+"))
        if found and found[0] == known[-1]:
            return known, found[1:]
    found = newest(redis, keys, count)
    standing, old = in_both(known, found)
    return known[:standing], found[old:]


def in_both(known: Sequence[RingEvent], found: Sequence[RingEvent]) -> tuple[int, int]:
    """How many events each of two readings has up to the last one that both have; else 0, 0."""
    by_id = {event.id: place for place, event in enumerate(known)}
    for number in range(len(found), 0, -1):
        event = found[number - 1]
        place = by_id.get(event.id)
        if place is not None and known[place] == event:
            return place + 1, number
    return 0, 0


def is_left(redis: RedisCaller, keys: RingKeys, id_: str) -> bool:
    """Whether the event is there. Then so is all that came after it: the oldest are dropped first.

    Raises:
        StoreError: it could not be read.
    """
    return bool(redis.call("XRANGE", keys.events, id_, id_))


def oldest(redis: RedisCaller, keys: RingKeys) -> str | None:
    """The id of the oldest event that is left; ``None`` when there is none.

    Raises:
        StoreError: it could not be read.
    """
    found = redis.call("XRANGE", keys.events, "-", "+", "COUNT", 1)
    return text(found[0][0]) if found else None


def last_and_added(redis: RedisCaller, keys: RingKeys) -> tuple[str, str]:
    """The id of the last event ever, and how many there ever were: empty where Redis counts none.

    Raises:
        StoreError: they could not be read.
    """
    if not redis.call("EXISTS", keys.events):
        return BEFORE_ALL, "0"
    found = redis.call("XINFO", "STREAM", keys.events)
    told = {text(name): value for name, value in pairs(found)}
    return text(told["last-generated-id"]), str(told.get("entries-added", ""))


def id_order(id_: str) -> tuple[int, ...]:
    """A key by which the ids of events are in order."""
    return tuple(int(part) for part in id_.split("-"))


def event_json(event: RingEvent) -> dict[str, Any]:
    """The event as JSON types."""
    change = event.change
    return {
        "id": event.id,
        "at": iso_time(event.at),
        "kind": event.kind,
        "by": event.by,
        "nodes": list(event.nodes),
        "points": list(change.points) if change else [],
        "reason": change.reason if change else event.reason,
        "epoch": change.stamp.epoch if change else None,
        "keys": event.keys or None,
    }


def iso_time(at: float, to: str = "milliseconds") -> str:
    """Seconds since 1970 in UTC, as JSON readers expect it."""
    return datetime.fromtimestamp(in_calendar(at), timezone.utc).isoformat(timespec=to)
