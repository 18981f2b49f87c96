"""The ring's history, as it is shown."""

from __future__ import annotations

from hashring.cli.output import local_time
from hashring.core.printable import printable
from hashring.store.ring.ring_events import RingEvent


def event_line(event: RingEvent) -> str:
    """The event for people, on one line."""
    words = []
    change = event.change
    if change is None:
        words += [*event.nodes, _keys_of(event), event.reason]
        words.append(f"by {event.by}" if event.by and event.by not in event.nodes else "")
    else:
        words.append(", ".join(change.nodes) or "garbage")
        about = [change.reason] if change.reason and change.reason != "expired" else []
        if change.points:
            about.append(f"{len(change.points)} points")
        if event.by and event.by not in change.nodes:
            about.append(f"by {event.by}")
        about.append(f"epoch {change.stamp.epoch}")
        words.append(f"({', '.join(about)})")
    what = " ".join(word for word in words if word)
    return printable(f"{local_time(event.at)}  {event.kind:6}  {what}").rstrip()


def _keys_of(event: RingEvent) -> str:
    if event.kind != "unserved":
        return event.keys
    return "no keys any more" if event.keys == "0" else f"{event.keys} keys"
