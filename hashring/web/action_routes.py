"""The pages that ask before something is done, and do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from flask import Blueprint, abort, request
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import NotFound

from hashring.web.actions import Actions
from hashring.web.formatting import shown
from hashring.web.live_pages import Templates
from hashring.web.login import Notice
from hashring.web.login_routes import Login, see
from hashring.web.parameters import address_of, ring_of
from hashring.web.service import Service


@dataclass(frozen=True)
class Question:
    """What is asked before something is done.

    Attributes:
        text: the question.
        fields: what the form sends.
        back: where the visitor goes after, whatever the answer.
        events: the page with the history that the deed is in.
    """

    text: str
    fields: dict[str, str]
    back: str
    events: str


class ActionRoutes:
    """Asks, acts, and leads back to where the visitor came from.

    Args:
        service: what it is done to.
        templates: what renders.
        actions: what can be done.
        login: who may do it.
    """

    def __init__(
        self, service: Service, templates: Templates, actions: Actions, login: Login
    ) -> None:
        self._service = service
        self._link = templates.link
        self._templates = templates
        self._actions = actions
        self._login = login
        self._questions: dict[str, Callable[[MultiDict[str, str]], Question]] = {
            "remove": self._remove,
            "forget": self._forget,
            "release": self._release,
            "rebalance": self._rebalance,
        }
        self.blueprint = Blueprint("actions", __name__)
        add = self.blueprint.add_url_rule
        add("/act/<what>", "confirm", self._confirm, methods=["GET"])
        add("/act/<what>", "act", self._act, methods=["POST"])

    def _confirm(self, what: str) -> Any:
        self._login.required_right()
        question = self._question(what, request.args)
        return self._page(what, question) if self._login.session() else self._sign_in(what)

    def _act(self, what: str) -> Any:
        self._login.required_right()
        session = self._login.session()
        if session is None:
            return self._sign_in(what)
        # The answer to the question may have changed meanwhile, and who asked it is not known.
        if not self._login.is_own_form(session):
            question = self._question(what, request.form)
            wrong = "This form was not from your session. If you mean it, answer again."
            return self._page(what, question, wrong), 403
        sent = {k: v for k, v in request.form.items() if k not in ("csrf", "by", "next")}
        try:
            asked = msgspec.convert({**sent, "by": session.by}, self._actions.asked(what))
        except msgspec.ValidationError as error:
            abort(400, f"this form cannot be what the service sent: {error}")
        deed = self._actions.do(asked, address_of(request))
        question = self._question(what, request.form)
        event = f"{question.events}#e-{deed.event}" if deed.event else ""
        session.notice = Notice(deed.text, event)
        return see(question.back)

    def _sign_in(self, what: str) -> Any:
        """Lead to the login, and from there to the question."""
        sent = {name: value for name, value in request.values.items() if name != "csrf"}
        here = self._link(f"/act/{what}", **sent)
        return see(self._link("/login", next=here))

    def _page(self, what: str, question: Question, wrong: str = "") -> str:
        return self._templates.page(
            "confirm.html",
            what=what,
            question=question,
            wrong=wrong,
            live=None,
            **self._login.visitor(),
        )

    # --- questions ----------------------------------------------------------------------------

    def _question(self, what: str, given: MultiDict[str, str]) -> Question:
        if what not in self._questions:
            raise NotFound("nothing of that name can be done")
        found = self._questions[what](given)
        following = given.get("next")
        if not following:
            return found
        back = self._login.inside(following)
        return Question(found.text, {**found.fields, "next": back}, back, found.events)

    def _remove(self, given: MultiDict[str, str]) -> Question:
        ring, node = _of(given, "ring"), _of(given, "node")
        _, view = ring_of(self._service, ring)
        known = view.by_name.get(node)
        text = f"Take {shown(node)} off the ring {shown(ring)}? The others take over at once."
        if known is not None and not known.facts.expired:
            text += " It has not expired: if its process lives, it comes back by itself."
        back = self._link("/ring", name=ring)
        return Question(text, {"ring": ring, "node": node}, back, back)

    def _forget(self, given: MultiDict[str, str]) -> Question:
        ring = _of(given, "ring")
        ring_of(self._service, ring)
        text = (
            f"Forget the ring {shown(ring)}? Do so if it was stopped for good: no service shows it "
            "any more and no alert fires for it, until a node joins it. Its history stays in Redis."
        )
        return Question(text, {"ring": ring}, self._link("/"), self._link("/ring", name=ring))

    def _release(self, given: MultiDict[str, str]) -> Question:
        ring, key, token = _of(given, "ring"), _of(given, "key"), _of(given, "token")
        text = (
            f"Take the lock of {shown(key)} away from its holder? If its process lives, it "
            "loses the lease at its next heartbeat, and may write until then: only writes "
            "that carry the fencing token are safe from it."
        )
        back = self._link("/ring", name=ring, key=key)
        fields = {"ring": ring, "key": key, "token": token}
        return Question(text, fields, back, self._link("/ring", name=ring))

    def _rebalance(self, given: MultiDict[str, str]) -> Question:
        group = _of(given, "group")
        text = f"Let {shown(group)} move partitions now, without the rest of its rebalance delay?"
        back = self._link("/group", name=group)
        return Question(text, {"group": group}, back, back)


def _of(given: MultiDict[str, str], name: str) -> str:
    value = given.get(name)
    if not value:
        abort(400, f"say which {name}: {name}=…")
    return value
