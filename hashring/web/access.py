"""Who may look at the service, who may act, and by which way."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from time import monotonic

from hashring.core.order_checks import checked_token
from hashring.web.proxy_users import Users
from hashring.web.token_guard import Guard


@dataclass(frozen=True)
class Access:
    """Who may look, who may act, and by which way.

    Attributes:
        allowed_hosts: names that requests may ask for, besides IP addresses, ``localhost`` and
            this machine's name; ``*`` for any.
        trusted_proxies: addresses and networks of proxies whose ``X-Forwarded-For``,
            ``X-Forwarded-Proto`` and ``X-Forwarded-User`` are believed.
        token: the secret that actions need, of printable ASCII characters; white space around it
            is removed. ``None`` for no actions with a token.
        view_users: who may look, of those whom a trusted proxy names in ``X-Forwarded-User``;
            ``*`` for each of them. Without any, everybody may.
        act_users: who may act, and look, without the token; as ``view_users``.
    """

    allowed_hosts: Collection[str] = ()
    trusted_proxies: Collection[str] = ()
    token: str | None = None
    view_users: Collection[str] = ()
    act_users: Collection[str] = ()

    @property
    def users(self) -> Users:
        """The rights of users."""
        return Users(self.view_users, self.act_users)

    def guard(self) -> Guard | None:
        """What knows the token, if there is one.

        Raises:
            ConfigError: the token is too short, or no HTTP header can carry it.
        """
        return None if self.token is None else Guard(checked_token(self.token), monotonic)
