"""A ring's history kept in files, longer than Redis keeps it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from hashring.atomic_writes import new_file
from hashring.cli.connection import Connection
from hashring.errors import ConfigError, EventsLost, InputDamaged, OutputRefused
from hashring.store.ring.ring_events import (
    BEFORE_ALL,
    after,
    event_json,
    id_order,
    is_left,
    iso_time,
    oldest,
)

_ID: Final = re.compile(r"[0-9]+-[0-9]+")


def archive(connection: Connection, ring: str, folder: Path) -> int:
    """Write the events that are not in the folder yet to a new file in it.

    A file is named for the last event of the file before it. So the files are a chain, and of two
    processes that write at once one fails. Each event has the name of its ring, so that a folder
    takes no events of another one.

    Returns:
        How many events were written; of none there is no file.

    Raises:
        ConfigError: the folder has events of another ring.
        EventsLost: the ring has dropped events that were never written, or Redis lost them.
        InputDamaged: the newest file is not whole.
        OutputExists: another process has just written these events.
        OutputRefused: the folder cannot be written.
        StoreError: the events could not be read.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [
            file for file in folder.iterdir() if file.suffix == ".json" and _ID.fullmatch(file.stem)
        ]
    except OSError as error:
        raise OutputRefused(str(folder), error.strerror or str(error)) from error
    last, of = _last(files)
    if of not in (None, ring):
        remedy = f"has events of ring {of!r}, not of {ring!r}: give each ring its own directory"
        raise ConfigError("archive", str(folder), remedy)
    keys = connection.keys
    events = list(after(connection, keys, last))
    # Looked at after reading: nothing after it was dropped until then.
    if last != BEFORE_ALL and not is_left(connection, keys, last):
        left = oldest(connection, keys)
        remedy = "archive into another directory, beside an exported ring"
        if left is None or id_order(left) < id_order(last):
            # A ring drops its oldest events alone, and never all of them.
            cause = (
                "Redis lost its data, a failover took that event back, or the directory is of a "
                "ring on another Redis"
            )
            raise EventsLost(ring, last, left, f"{cause}; {remedy}")
        raise EventsLost(ring, last, left, f"{remedy}, and more often")
    if events:
        with new_file(folder / f"{last}.json") as aside, aside.open("w", encoding="utf-8") as file:
            for event in events:
                told = event_json(event) | {"ring": ring}
                if event.change:
                    stamp = event.change.stamp
                    # The id of the entry has milliseconds; an audit compares with the change.
                    at = iso_time(stamp.at / 1e6, "microseconds")
                    told |= {"at": at, "tag": stamp.tag, "prev": event.change.prev}
                file.write(json.dumps(told, ensure_ascii=False) + "\n")
    return len(events)


def _last(files: list[Path]) -> tuple[str, str | None]:
    """The id of the newest event in the files, and its ring; ``None`` if it does not say."""
    if not files:
        return BEFORE_ALL, None
    newest = max(files, key=lambda file: id_order(file.stem))
    try:
        # Names may hold what str.splitlines() takes for the end of a line, such as U+2028.
        lines = newest.read_text(encoding="utf-8").rstrip("\n").split("\n")
        found = json.loads(lines[-1])
        id_, ring = found["id"], found.get("ring")
        if not _ID.fullmatch(id_):
            raise ValueError(f"{id_!r} is no id of an event")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputDamaged(str(newest), str(error)) from error
    return id_, ring
