"""The decisions in a group's history, as its stream has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hashring.core.groups.json_codec import load_events
from hashring.core.groups.state import GroupEvent
from hashring.errors import GroupFormatError
from hashring.store.command import pairs
from hashring.store.group.key_names import GroupKeys
from hashring.store.interface import RedisCaller


@dataclass(frozen=True)
class Decision:
    """An entry of a group's history.

    Attributes:
        id: the stream's id; its first part is Redis time in milliseconds.
        generation: the decision's number.
        phase: the group's from then on.
        by: who decided.
        events: what the decision consists of.
    """

    id: str
    generation: int
    phase: str
    by: str
    events: tuple[GroupEvent, ...]

    @property
    def at(self) -> float:
        """Redis time in seconds since 1970."""
        return int(self.id.partition("-")[0]) / 1000


def newest_decisions(redis: RedisCaller, keys: GroupKeys, count: int) -> list[Decision]:
    """The last ``count`` decisions of a group, newest first.

    Raises:
        StoreError: they could not be read.
        GroupFormatError: an entry is none.
    """
    entries = redis.call("XREVRANGE", keys.control, "+", "-", "COUNT", count)
    return [read_decision(entry) for entry in entries]


def read_decision(entry: Any) -> Decision:
    """The decision that a raw stream entry ``(id, fields)`` is.

    Raises:
        GroupFormatError: it is none.
    """
    id_, fields = entry
    fields = dict(pairs(fields))
    try:
        return Decision(
            id_.decode(),
            int(fields[b"generation"]),
            fields[b"phase"].decode(),
            fields[b"by"].decode("utf-8", "replace"),
            load_events(fields[b"events"]),
        )
    except (KeyError, ValueError) as error:
        raise GroupFormatError("history", fields, "is not whole") from error
