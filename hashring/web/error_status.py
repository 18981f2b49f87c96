"""The HTTP status of each error."""

from __future__ import annotations

from typing import Final

from hashring.errors import (
    ConfigError,
    EmptyRingError,
    GroupNotEmpty,
    HashringError,
    KeyTypeError,
    KeyValueError,
    RingNotEmpty,
    StoreError,
    UnknownMemberError,
    UnknownNodeError,
)
from hashring.web.ring_view import UnknownHash
from hashring.web.watchers_by_name import NotWatched

_STATUS: Final[tuple[tuple[type[HashringError], int], ...]] = (
    (StoreError, 503),
    (NotWatched, 503),
    (UnknownHash, 503),
    (UnknownNodeError, 404),
    (UnknownMemberError, 404),
    (EmptyRingError, 409),
    (GroupNotEmpty, 409),
    (RingNotEmpty, 409),
    (ConfigError, 400),
    (KeyTypeError, 400),
    (KeyValueError, 400),
)


def status_of(error: HashringError) -> int:
    """The HTTP status that tells of an error."""
    if isinstance(error, ConfigError) and error.setting == "drain":  # of the last node or member
        return 409
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 400)
