"""A ring's history kept in files, longer than Redis keeps it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from hashring.atomic_writes import new_file
from hashring.cli.connection import Connection
from hashring.errors import EventsLost, InputDamaged, OutputRefused
from hashring.store.command import text
from hashring.store.ring.ring_events import after, event_json, iso_time

_BEGINNING: Final = "0-0"
_FILE: Final = re.compile(r"[0-9]+-[0-9]+\.json")


def archive(connection: Connection, ring: str, folder: Path) -> int:
    """Write the events that are not in the folder yet to a new file in it.

    A file is named for the last event of the file before it. So the files are a chain, and of two
    processes that write at once one fails.

    Returns:
        How many events were written; of none there is no file.

    Raises:
        EventsLost: the ring has dropped events that were never written.
        InputDamaged: the newest file is not whole.
        OutputExists: another process has just written these events.
        OutputRefused: the folder cannot be written.
        StoreError: the events could not be read.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [file for file in folder.iterdir() if _FILE.fullmatch(file.name)]
    except OSError as error:
        raise OutputRefused(str(folder), error.strerror or str(error)) from error
    last = _last(files)
    stream = connection.keys.events
    events = list(after(connection, stream, last))
    # Looked at after reading: as long as it is there, nothing after it was dropped.
    if last != _BEGINNING and not connection.call("XRANGE", stream, last, last):
        oldest = connection.call("XRANGE", stream, "-", "+", "COUNT", 1)
        remedy = "archive into another directory, beside an exported ring, and more often"
        raise EventsLost(ring, last, text(oldest[0][0]) if oldest else None, remedy)
    if events:
        with new_file(folder / f"{last}.json") as aside, aside.open("w", encoding="utf-8") as file:
            for event in events:
                told = event_json(event)
                if event.change:
                    stamp = event.change.stamp
                    # The id of the entry has milliseconds; an audit compares with the change.
                    at = iso_time(stamp.at / 1e6, "microseconds")
                    told |= {"at": at, "tag": stamp.tag, "prev": event.change.prev}
                file.write(json.dumps(told, ensure_ascii=False) + "\n")
    return len(events)


def _last(files: list[Path]) -> str:
    """The id of the newest event in the files."""
    if not files:
        return _BEGINNING
    newest = max(files, key=lambda file: [int(n) for n in file.stem.split("-")])
    try:
        # Names may hold what str.splitlines() takes for the end of a line, such as U+2028.
        lines = newest.read_text(encoding="utf-8").rstrip("\n").split("\n")
        found = json.loads(lines[-1])["id"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputDamaged(str(newest), str(error)) from error
    return str(found)
