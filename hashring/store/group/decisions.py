"""The decisions in a group's history, as its stream has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hashring.core.groups.json_codec import load_events
from hashring.core.groups.state import GroupEvent
from hashring.errors import GroupFormatError


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


def read_decision(entry: Any) -> Decision:
    """The decision that a raw stream entry ``(id, fields)`` is.

    Raises:
        GroupFormatError: it is none.
    """
    id_, fields = entry
    if not isinstance(fields, dict):
        fields = dict(zip(fields[::2], fields[1::2], strict=True))
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
