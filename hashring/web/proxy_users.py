"""Who may look and who may act, by the name that a trusted proxy gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flask import request

from hashring.core.order_checks import checked_by
from hashring.errors import ConfigError
from hashring.web.request_checks import address_of
from hashring.web.token_guard import network_of

ANYBODY: Final = "*"
"""Stands for each name that a trusted proxy gives."""

_HEADER: Final = "X-Forwarded-User"


class Users:
    """The rights of users whom a proxy has signed in.

    Args:
        view: who may look; without any, everybody may.
        act: who may act, and look.
    """

    def __init__(self, view: Iterable[str] = (), act: Iterable[str] = ()) -> None:
        self._act = frozenset(act)
        self._view = frozenset(view)

    @property
    def any_may_act(self) -> bool:
        """Whether somebody has the right to act."""
        return bool(self._act)

    def may_look(self, user: str) -> bool:
        """Whether this user may look; an empty name is nobody's."""
        return not self._view or _among(user, self._view | self._act)

    def may_act(self, user: str) -> bool:
        """Whether this user may act; an empty name is nobody's."""
        return _among(user, self._act)


def _among(user: str, names: frozenset[str]) -> bool:
    return bool(user) and (user in names or ANYBODY in names)


def current_user() -> str:
    """The user of this request, as a trusted proxy gives it; empty if none does.

    Such a header of anybody else has been removed: see
    :class:`hashring.web.allowed_hosts.TrustedProxies`.
    """
    # A header is bytes, which WSGI gives as Latin-1.
    name = request.headers.get(_HEADER, "").encode("latin-1", "replace").decode("utf-8", "replace")
    try:
        return checked_by(name) if name else ""
    except ConfigError:
        return ""


def current_client() -> str:
    """Who a request is from, to share out what is scarce: its user, else its address."""
    return current_user() or network_of(address_of(request))
