"""Acting: taking a dead node off, releasing a stuck lock, asking for a rebalance.

Off unless the service was given a token. A person signs in with the token and a name, which a
signed cookie then remembers; every form carries a token of its own against forgery. A program
sends the token with each request. Every action leaves an event that says who.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Any, Final

from flask import Blueprint, abort, redirect, request, session
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response

from hashring.core.groups import kernel
from hashring.core.hashing import key_bytes
from hashring.core.replica import check_node_name
from hashring.errors import ConfigError, UnknownNodeError
from hashring.store.commands import LeaveStatus, leave
from hashring.store.group_commands import commit, group_keys, read
from hashring.store.lock_commands import check_locked_key, look, take_away
from hashring.web.asking import group_of, ring_of, text_of
from hashring.web.guard import Guard
from hashring.web.pages import Templates
from hashring.web.service import Service
from hashring.web.text import shown

_LONGEST_NAME: Final = 100
_TRIES: Final = 20


class Actions:
    """What can be done, and who may do it.

    Args:
        service: what it is done to.
        templates: what renders.
        guard: knows the token; ``None`` when nothing can be done.
    """

    def __init__(self, service: Service, templates: Templates, guard: Guard | None) -> None:
        self._service = service
        self._templates = templates
        self._guard = guard
        self.blueprint = Blueprint("actions", __name__)
        for rule, view, methods in (
            ("/login", self._login_form, ["GET"]),
            ("/login", self._login, ["POST"]),
            ("/logout", self._logout, ["POST"]),
            ("/act/<what>", self._confirm, ["GET"]),
            ("/act/<what>", self._act, ["POST"]),
        ):
            name = f"{view.__name__}"
            self.blueprint.add_url_rule(rule, name, view, methods=methods)

    @property
    def possible(self) -> bool:
        """Whether anything can be done."""
        return self._guard is not None

    # --- who ----------------------------------------------------------------------------------

    def visitor(self) -> dict[str, str]:
        """What every page has to know of whoever looks at it."""
        if self._guard is None:
            return {"by": "", "csrf": ""}
        by = str(session.get("by", ""))
        # Only who can send a form needs it, so that looking sets no cookie.
        return {"by": by, "csrf": self._csrf() if by else ""}

    def _csrf(self) -> str:
        if "csrf" not in session:
            session["csrf"] = secrets.token_urlsafe(24)
        return str(session["csrf"])

    def _check_form(self) -> None:
        sent = request.form.get("csrf", "")
        known = str(session.get("csrf", ""))
        if not known or not hmac.compare_digest(sent.encode(), known.encode()):
            abort(403, "This form is not from this service, or is too old: go back and reload it.")

    def _check_token(self, token: str) -> None:
        guard = self._required_guard()
        address = request.remote_addr or ""
        wait = guard.wait(address)
        if wait > 0:
            abort(429, f"too many wrong tokens: wait {wait:.0f} s", retry_after=int(wait) + 1)
        if not guard.admits(token, address):
            abort(401, "that is not the token this service was started with (HASHRING_TOKEN)")

    def _required_guard(self) -> Guard:
        if self._guard is None:
            abort(
                403,
                "nothing can be done from here: the service was not started with --allow-actions",
            )
        return self._guard

    def bearer(self) -> None:
        """Let nobody pass whose request does not carry the token."""
        self._required_guard()
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            abort(401, "send the token: Authorization: Bearer …")
        self._check_token(token.strip())

    # --- pages --------------------------------------------------------------------------------

    def _login_form(self) -> str:
        self._required_guard()
        return self._page("login.html", csrf=self._csrf(), error="")

    def _login(self) -> Any:
        self._required_guard()
        self._check_form()
        by = checked_by(request.form.get("by", ""))
        self._check_token(request.form.get("token", ""))
        session.clear()
        session.permanent = True
        session["by"] = by
        self._csrf()
        return _see(self._templates.link("/"))

    def _logout(self) -> Response:
        self._required_guard()
        self._check_form()
        session.clear()
        return _see(self._templates.link("/"))

    def _confirm(self, what: str) -> Any:
        self._required_guard()
        question, fields, back = self._question(what)
        if not session.get("by"):
            return _see(self._templates.link("/login"))
        visitor = self.visitor()
        return self._page(
            "confirm.html", what=what, question=question, fields=fields, back=back, **visitor
        )

    def _question(self, what: str) -> tuple[str, dict[str, str], str]:
        link = self._templates.link
        if what == "remove":
            ring, node = text_of(request, "ring"), text_of(request, "node")
            _, view = ring_of(self._service, ring)
            known = view.by_name.get(node)
            text = f"Take {shown(node)} off the ring {shown(ring)}? The others take over at once."
            if known is not None and not known.facts.expired:
                text += " It has not expired: if its process lives, it comes back by itself."
            return text, {"ring": ring, "node": node}, link("/ring", name=ring, node=node)
        if what == "release":
            ring, key = text_of(request, "ring"), text_of(request, "key")
            token = text_of(request, "token")
            text = (
                f"Take the lock of {shown(key)} away from its holder? If its process lives, it "
                "loses the lease at its next heartbeat, and may write until then: only writes "
                "that carry the fencing token are safe from it."
            )
            back = link("/ring", name=ring, key=key)
            return text, {"ring": ring, "key": key, "token": token}, back
        if what == "rebalance":
            group = text_of(request, "group")
            text = (
                f"Let {shown(group)} move partitions now, whatever is left of its rebalance delay?"
            )
            return text, {"group": group}, link("/group", name=group)
        raise NotFound("nothing of that name can be done")

    def _act(self, what: str) -> Any:
        self._required_guard()
        if not session.get("by"):
            abort(401, "sign in first")
        self._check_form()
        text = self.do(what, request.form, str(session["by"]))
        return self._page("message.html", title="Done", text=text, **self.visitor())

    def _page(self, template: str, **values: Any) -> str:
        return self._templates.page(template, **{"by": "", "csrf": "", "live": None, **values})

    # --- the deeds ----------------------------------------------------------------------------

    def do(self, what: str, asked: Any, by: str) -> str:
        """Do it, and say what was done.

        Args:
            asked: what it is done to, by name.
            by: who asks, for the history.

        Raises:
            HashringError: it was not done.
        """
        who = f"{by} (hashring serve, from {request.remote_addr})"
        if what == "remove":
            return self._remove(_given(asked, "ring"), _given(asked, "node"), who)
        if what == "release":
            token = _given(asked, "token")
            if not (token.isascii() and token.isdigit() and len(token) <= 20):
                raise ConfigError("token", token, "give the fencing token of the lock to release")
            return self._release(_given(asked, "ring"), _given(asked, "key"), int(token), who)
        if what == "rebalance":
            return self._rebalance(_given(asked, "group"), who)
        raise NotFound("nothing of that name can be done")

    def _remove(self, ring: str, node: str, by: str) -> str:
        watcher, _ = ring_of(self._service, ring)
        view = watcher.look()
        replicas = view.snapshot.replicas_of(node)
        if not replicas and node not in view.snapshot.nodes:
            raise UnknownNodeError(node, ring)
        status = self._service.store.run(
            leave(watcher.keys, node=node, replicas=replicas, reason="removed", by=by)
        )
        if status is LeaveStatus.OK or not replicas:
            return f"{shown(node)} was taken off the ring {shown(ring)}."
        return f"{shown(node)} was gone from the ring {shown(ring)} already."

    def _release(self, ring: str, key: str, token: int, by: str) -> str:
        watcher, _ = ring_of(self._service, ring)
        data = check_locked_key(key_bytes(key))
        released = self._service.store.run(take_away(watcher.keys, key=data, by=by, token=token))
        if released:
            return f"The lock of {shown(key)} was released."
        held = self._service.store.run(look(watcher.keys, locked=[data])).get(data)
        now = "nobody holds it now" if held is None else f"{shown(held.node)} holds it now"
        return f"The lock of {shown(key)} was not released: the token was not {token}; {now}."

    def _rebalance(self, group: str, by: str) -> str:
        group_of(self._service, group)
        store, keys = self._service.store, group_keys(group)
        for _ in range(_TRIES):
            reading = store.run(read(keys))
            state = reading.standing()
            if state is None:
                break
            outcome = kernel.hasten(state, reading.facts.now, by)
            if store.run(commit(keys, reading, outcome, by)) is not None:
                return f"{shown(group)} was asked to rebalance."
        return f"{shown(group)} was not asked: it changes all the time, or is gone. Try again."


def checked_by(name: str) -> str:
    """Who acts, as the history will have it.

    Raises:
        ConfigError: it is no name.
    """
    if len(name) > _LONGEST_NAME:
        raise ConfigError("by", shown(name)[:40], f"at most {_LONGEST_NAME} characters")
    try:
        return check_node_name(name.strip())
    except ConfigError:
        raise ConfigError("by", name, "say who you are: the history will tell") from None


def _given(asked: Any, name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value:
        raise ConfigError(name, value, "say which: it is a text that is not empty")
    return value


def _see(address: str) -> Response:
    return redirect(address, 303)
