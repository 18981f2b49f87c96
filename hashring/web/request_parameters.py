"""The parameters of requests, checked; and the HTTP status of each error."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes

from flask import Request, abort
from werkzeug.datastructures import MultiDict

from hashring.core.placement import MAX_POINTS
from hashring.errors import (
    ConfigError,
    EmptyRingError,
    HashringError,
    KeyTypeError,
    KeyValueError,
    StoreError,
    UnknownMemberError,
    UnknownNodeError,
)
from hashring.web.group_view import GroupView
from hashring.web.page_templates import shown
from hashring.web.ring_view import RingView
from hashring.web.service import Service
from hashring.web.watch_list import NotWatched
from hashring.web.watchers import GroupWatcher, RingWatcher

MAX_BODY: Final = 1 << 20
"""Bytes that a request's body may have."""
MOST_JOINING: Final = 100
"""How many nodes or members may join in one plan."""
MOST_LEAVING: Final = 1000
"""How many may leave in one plan."""
MOST_NODES: Final = 1000
"""How many nodes one answer lists."""
MOST_REPLICAS: Final = MAX_POINTS
"""How many points a node of a plan may have: as many as one may start with."""
MOST_PARTITIONS: Final = 100_000
"""Partitions that a group may have to be planned for."""

_STATUS: Final[tuple[tuple[type[HashringError], int], ...]] = (
    (StoreError, 503),
    (NotWatched, 503),
    (UnknownNodeError, 404),
    (UnknownMemberError, 404),
    (EmptyRingError, 409),
    (ConfigError, 400),
    (KeyTypeError, 400),
    (KeyValueError, 400),
)


def status_of(error: HashringError) -> int:
    """The HTTP status that tells of an error."""
    if isinstance(error, ConfigError) and error.setting == "drain":  # of the last node or member
        return 409
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 400)


def check_query(request: Request) -> None:
    """Refuse a query that is not UTF-8: another key would be looked up than was meant."""
    try:
        unquote_to_bytes(request.query_string).decode()
    except UnicodeDecodeError:
        abort(400, "the query is not UTF-8: encode it as UTF-8, and then with percent signs")


def text_of(given: MultiDict[str, str], name: str) -> str:
    """A part of a query or of a form that must be there."""
    value = given.get(name)
    if not value:
        abort(400, f"say which {name}: {name}=…")
    return value


def number_of(request: Request, name: str, default: int, least: int, most: int) -> int:
    """A whole number in the query."""
    text = request.args.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and least <= int(text) <= most):
        abort(400, f"{name}={shown(text)!r}: give a whole number from {least} to {most}")
    return int(text)


def list_of(request: Request, name: str, most: int) -> list[str]:
    """A part of the query that may come more than once."""
    values = request.args.getlist(name)
    if len(values) > most:
        abort(422, f"{name}: at most {most} in one request, and these are {len(values)}")
    return values


def weight_of(text: str) -> float | None:
    """A weight in a form or an address; ``None`` when it is empty.

    Raises:
        ConfigError: it is none.
    """
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigError("weight", shown(text), "give a number above 0") from None


def address_of(request: Request) -> str:
    """Where a request comes from, as far as is known."""
    return request.remote_addr or ""


def ring_of(service: Service, name: str) -> tuple[RingWatcher, RingView]:
    """A ring that has been read.

    Raises:
        StoreError: it could not be, so far.
        NotWatched: there is no place for it.
        ConfigError: no ring can have that name.
    """
    watcher = service.ring(name)
    if watcher is None:
        abort(404, f"there is no ring {shown(name)!r}: the list of rings shows those there are")
    if watcher.view is None:
        if watcher.failure is not None:
            raise watcher.failure.error
        abort(503, f"ring {shown(name)!r} has not been read yet: try again in a second")
    return watcher, watcher.view


def group_of(service: Service, name: str) -> tuple[GroupWatcher, GroupView]:
    """A group that has been read; see :func:`ring_of`."""
    watcher = service.group(name)
    if watcher is None or (watcher.view is None and watcher.is_gone):
        abort(404, f"there is no group {shown(name)!r}: the list of groups shows those there are")
    if watcher.view is None:
        if watcher.failure is not None:
            raise watcher.failure.error
        abort(503, f"group {shown(name)!r} has not been read yet: try again in a second")
    return watcher, watcher.view
