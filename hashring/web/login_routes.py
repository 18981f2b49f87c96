"""Signing in and out, and who a request is from."""

from __future__ import annotations

import hmac
import re
from collections import defaultdict
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from flask import Blueprint, abort, redirect, request
from werkzeug.wrappers import Response

from hashring.core.order_checks import LONGEST_NAME, checked_by
from hashring.errors import ConfigError
from hashring.web.actions import ACTIONS
from hashring.web.page_templates import Templates
from hashring.web.proxy_users import Users, current_user
from hashring.web.request_checks import address_of
from hashring.web.sessions import Session, Sessions
from hashring.web.token_guard import Guard

_PORT: Final = re.compile(r":([0-9]+)$")


class Login:
    """Who may act.

    Args:
        guard: knows the token; ``None`` when nothing can be done.
    """

    def __init__(
        self, templates: Templates, guard: Guard | None, sessions: Sessions, users: Users
    ) -> None:
        self._users = users
        self._templates = templates
        self._guard = guard
        self._sessions = sessions
        self.blueprint = Blueprint("login", __name__)
        add = self.blueprint.add_url_rule
        add("/login", "form", self._form, methods=["GET"])
        add("/login", "login", self._login, methods=["POST"])
        add("/logout", "logout", self._logout, methods=["POST"])

    @property
    def possible(self) -> bool:
        """Whether anything can be done."""
        return self._guard is not None or self._users.any_may_act

    def session(self) -> Session | None:
        """The visitor's session; ``None`` when not signed in."""
        user = current_user()
        if self._users.may_act(user):
            return self._sessions.of_user(user)
        return (
            None if self._guard is None else self._sessions.find(request.cookies.get(_cookie(), ""))
        )

    def visitor(self) -> dict[str, Any]:
        """What every page shows of a visitor who has signed in; nothing of any other."""
        session = self.session()
        if session is None:
            return {}
        return {
            "by": session.by,
            "csrf": session.form_token,
            "notice": session.take_notice(),
            # The proxy signs its users in and out.
            "known": self._users.may_act(current_user()),
        }

    def is_own_form(self, session: Session) -> bool:
        """Whether the form that was sent is one of the session's."""
        sent = request.form.get("csrf", "")
        return hmac.compare_digest(sent.encode(), session.form_token.encode())

    def required_right(self) -> None:
        """Let a request pass if anybody may act at all.

        Raises:
            HTTPException: nobody may.
        """
        if not self.possible:
            self.required_guard()

    def required_guard(self) -> Guard:
        """What knows the token.

        Raises:
            HTTPException: the service was started without one.
        """
        if self._guard is None and self._users.any_may_act:
            abort(403, "you may look, and not act: --act-user names those who may")
        if self._guard is None:
            abort(
                403,
                "nothing can be done from here: the service was not started with --allow-actions",
            )
        return self._guard

    def bearer(self) -> str:
        """Let a request pass that carries the token, or is from a user who may act.

        Returns:
            The user, as a proxy names it; empty without one: the request says itself who acts.

        Raises:
            HTTPException: it is neither, or must wait.
        """
        user = current_user()
        if self._users.may_act(user):
            return user
        self.required_guard()
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            abort(401, "send the token: Authorization: Bearer …")
        wrong = self._refusal(token)
        if wrong is not None:
            status, text, wait = wrong
            abort(status, text, **({"retry_after": wait} if wait else {}))
        return user

    def _refusal(self, token: str) -> tuple[int, str, int] | None:
        guard, address = self.required_guard(), address_of(request)
        wait = guard.wait(address)
        if wait > 0:
            return 429, f"too many wrong tokens: wait {wait:.0f} s", int(wait) + 1
        if not guard.admits(token.strip(), address):
            return 401, "that is not the token this service was started with (HASHRING_TOKEN)", 0
        return None

    # --- pages --------------------------------------------------------------------------------

    def _form(self) -> str:
        self.required_guard()
        return self._page("", current_user(), request.args.get("next", ""))

    def _page(self, error: str, by: str, following: str) -> str:
        return self._templates.page(
            "login.html",
            error=error,
            name=by,
            longest_name=LONGEST_NAME,
            next=self.inside(following),
            asked=self._asked(self.inside(following)),
        )

    def _asked(self, following: str) -> str:
        parts = urlsplit(following)
        what = parts.path.removeprefix(f"{self._templates.base_path}/act/")
        given = defaultdict(str, parse_qsl(parts.query))
        return ACTIONS[what].words.format_map(given) if what in ACTIONS else ""

    def _login(self) -> Any:
        self.required_guard()
        # A form of another site would sign the visitor in under a name of its choice.
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            abort(403, "This form is not from this service.")
        # Whom a proxy names has no other name here.
        name = current_user() or request.form.get("by", "")
        following = request.form.get("next", "")
        try:
            by = checked_by(name)
        except ConfigError as error:
            return self._page(str(error), name, following), 400
        wrong = self._refusal(request.form.get("token", ""))
        if wrong is not None:
            status, text, wait = wrong
            headers = {"Retry-After": str(wait)} if wait else {}
            return self._page(text, name, following), status, headers
        self._sessions.end(request.cookies.get(_cookie(), ""))
        response = see(self.inside(following))
        response.set_cookie(
            _cookie(),
            self._sessions.begin(by),
            path=f"{self._templates.base_path}/",
            secure=request.is_secure,
            httponly=True,
            samesite="Strict",
        )
        return response

    def inside(self, address: str) -> str:
        """An address of this service's; its first page for any other."""
        base = f"{self._templates.base_path}/"
        plain = address.isprintable() and "\\" not in address and not address.startswith("//")
        return address if plain and address.startswith(base) else base

    def _logout(self) -> Response:
        self.required_right()
        session = self.session()
        if session is None:
            abort(401, "Your session has ended: go back and sign in again.")
        if not self.is_own_form(session):
            abort(403, "This form is not from this service, or is too old: go back and reload it.")
        self._sessions.end(request.cookies.get(_cookie(), ""))
        response = see(f"{self._templates.base_path}/")
        response.delete_cookie(_cookie(), path=f"{self._templates.base_path}/")
        return response


def _cookie() -> str:
    """The name of the cookie, which is each service's own on a host that has several.

    Browsers keep one cookie of a name for all ports of a host. The port is that which the browser
    asked for, and not the one that is listened on: a proxy may be between them.
    """
    port = _PORT.search(request.host)
    return f"hashring-{port[1]}" if port else "hashring"


def see(address: str) -> Response:
    """Send the visitor to another address, by GET."""
    return redirect(address, 303)
