"""Which rings there are on this Redis, for a user who named one that is not there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from hashring.cli.connection import Connection
from hashring.core.readable_numbers import listed
from hashring.core.safe_text import printable
from hashring.errors import ConfigError, StoreError
from hashring.store.discovery import discover
from hashring.store.ring.ring_events import newest
from hashring.store.ring.snapshot import Snapshot

SHOWN: Final = 20
"""How many names are listed as text."""

_PATIENCE: Final = 2.0  # seconds: nobody waits longer for a hint


def check_exists(connection: Connection, seen: Snapshot) -> None:
    """Refuse a ring of which Redis has no trace, as of one whose name is misspelt.

    Args:
        seen: the ring of the connection.

    Raises:
        ConfigError: there is no such ring.
        StoreError: its history could not be read.
    """
    if not exists(connection, seen):
        raise ConfigError(
            "ring", connection.ring, "there is no such ring; hashring status shows those there are"
        )


def exists(connection: Connection, seen: Snapshot) -> bool:
    """Whether Redis has a trace of the ring: an entry, a node, or a history.

    Args:
        seen: the ring of the connection.

    Raises:
        StoreError: its history could not be read.
    """
    traces = (seen.stamp.epoch, seen.replicas, seen.unvouched, seen.garbage, seen.nodes)
    return any(traces) or bool(newest(connection, connection.keys, 1))


def rings_instead(connection: Connection, seen: Snapshot) -> str:
    """``rings here: accounts, feeds`` if there is no such ring; empty if there is, or no other.

    Only a hint, so it is empty as well if Redis refuses to look.

    Args:
        seen: the ring of the connection.
    """
    names: set[str] = set()
    end = ", and perhaps more"
    with suppress(StoreError):
        if exists(connection, seen):
            return ""
        deadline = time.monotonic() + _PATIENCE
        for name in _rings(connection):
            if name is not None:
                names.add(name)
            elif time.monotonic() > deadline:
                break
        else:
            end = ""
    return printable(f"rings here: {listed(sorted(names), SHOWN)}{end}") if names else ""


def _rings(connection: Connection) -> Iterator[str | None]:
    """The rings of all servers; ``None`` wherever the caller can stop."""
    for server in connection.servers():
        for found in discover(server):
            if found is None or found.kind == "ring":
                yield found and found.name
        yield None
