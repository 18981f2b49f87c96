"""What a request names or brings, checked: its query, where it comes from, a ring or a group."""

from __future__ import annotations

from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes

from flask import Request, abort
from werkzeug.datastructures import MultiDict

from hashring.web.group_view import GroupView
from hashring.web.group_watcher import GroupWatcher
from hashring.web.page_templates import shown
from hashring.web.ring_view import RingView
from hashring.web.ring_watcher import RingWatcher
from hashring.web.service import Service

W = TypeVar("W", bound=RingWatcher | GroupWatcher)
V = TypeVar("V")

MAX_BODY: Final = 1 << 20
"""Bytes that a request's body may have."""


def check_query(request: Request) -> None:
    """Refuse a query that is not UTF-8: another key would be looked up than was meant."""
    try:
        unquote_to_bytes(request.query_string.decode()).decode()
    except UnicodeDecodeError:
        abort(400, "the query is not UTF-8: encode it as UTF-8, and then with percent signs")


def text_of(given: MultiDict[str, str], name: str) -> str:
    """A part of a query or of a form that must be there."""
    value = given.get(name)
    if not value:
        abort(400, f"say which {name}: {name}=…")
    return value


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
    return _read("ring", name, watcher, watcher.view if watcher else None)


def group_of(service: Service, name: str) -> tuple[GroupWatcher, GroupView]:
    """A group that has been read; see :func:`ring_of`."""
    watcher = service.group(name)
    return _read("group", name, watcher, watcher.view if watcher else None)


def _read(kind: str, name: str, watcher: W | None, view: V | None) -> tuple[W, V]:
    if watcher is None or (view is None and watcher.is_gone):
        abort(404, f"there is no {kind} {shown(name)!r}: the list of {kind}s shows those there are")
    if view is None:
        if watcher.failure is not None:
            raise watcher.failure.error
        abort(503, f"{kind} {shown(name)!r} has not been read yet: try again in a second")
    return watcher, view
