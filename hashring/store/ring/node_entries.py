"""A node's entry in the ring's hash of nodes: the session that holds the name, and a JSON object.

The scripts read entries in the same way (``_node_entries.lua``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hashring.store.command import pairs

SESSION_LENGTH: Final = 16
AWAY: Final = b"-" * SESSION_LENGTH
"""Stands for the session in the entry of a node that stopped to come back."""
ANCHOR: Final = "anchor"
"""The field for the scripts that holds the replica that stands for the node's heartbeat."""
PLACED: Final = "placed"
"""The field for the scripts that tells which of its session's sets of points the node has."""
# What stays while the node is away, also for the scripts.
_STAYS: Final = "stays"
_ENTRY: Final = re.compile(rb"([A-Za-z0-9_-]{%d})\{" % SESSION_LENGTH)


@dataclass(frozen=True)
class NodeRecord:
    """What a node tells of itself.

    Attributes:
        session: the process that holds the name; empty when the entry was not written by one.
        told: host, pid, started, weight and so on; empty when it is unreadable.
        away: it stopped to come back; no session has the name.
    """

    session: str
    told: Mapping[str, Any]
    away: bool = False


def told_of(entry: bytes) -> dict[str, Any]:
    """What a node tells of itself, from its entry; nothing for one not written here."""
    try:
        told = json.loads(entry[SESSION_LENGTH:])
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def holder_of(entry: bytes) -> str:
    """The session that holds a name, from the name's entry; empty when none does.

    That is so in an entry not written here, and in that of a node that stopped to come back.
    """
    written = _ENTRY.match(entry)
    return written[1].decode() if written and written[1] != AWAY else ""


def read_node(entry: bytes) -> NodeRecord:
    """What a node tells of itself, without what only the scripts use."""
    told = told_of(entry)
    for field_of_scripts in (ANCHOR, PLACED, _STAYS):
        told.pop(field_of_scripts, None)
    return NodeRecord(holder_of(entry), told, entry.startswith(AWAY))


def read_nodes(entries: Sequence[bytes]) -> dict[str, NodeRecord]:
    """What the nodes of a ring tell of themselves, by name.

    Args:
        entries: name and entry of each, one after the other, as Redis states a hash.
    """
    found: dict[str, NodeRecord] = {}
    for name, entry in pairs(entries):
        try:
            node = name.decode()
        except UnicodeDecodeError:
            continue
        found[node] = read_node(entry)
    return found
