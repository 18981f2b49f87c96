"""The pages that ask before something is done, and do it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import msgspec
from flask import Blueprint, abort, request
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import HTTPException

from hashring.errors import ConfigError, HashringError
from hashring.web.actions import Actions
from hashring.web.base_action import Question
from hashring.web.costly_requests import Turns
from hashring.web.login_routes import Login, see
from hashring.web.page_templates import Templates
from hashring.web.request_parameters import address_of, status_of
from hashring.web.sessions import Notice

_LASTING: Final = {
    "": "until somebody lifts it",
    "900": "15 minutes",
    "3600": "1 hour",
    "7200": "2 hours",
    "28800": "8 hours",
    "86400": "1 day",
}
"""How long an order to drain may stand, by the seconds that the form sends."""
_LONGEST: Final = 32_768  # characters of an address that browsers and proxies let pass
_ROWS: Final = 20  # of the table of what moves


class ConfirmRoutes:
    """Asks, acts, and leads back to where the visitor came from.

    Args:
        templates: what renders.
        actions: what can be done.
        login: who may do it.
        turns: whose turn it is to do costly work, of those who may act.
    """

    def __init__(
        self,
        templates: Templates,
        actions: Actions,
        login: Login,
        turns: Turns,
    ) -> None:
        self._link = templates.link
        self._templates = templates
        self._actions = actions
        self._login = login
        self._turns = turns
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
        sent = {k: v for k, v in request.form.items() if v and k not in ("csrf", "by", "next")}
        action = self._actions.named(what)
        try:
            asked = msgspec.convert({**sent, "by": session.by}, action.asked, strict=False)
        except msgspec.ValidationError as error:
            abort(400, f"this form cannot be what the service sent: {error}")
        try:
            deed = action.do(asked, address_of(request))
        except ConfigError as error:
            # What somebody else did meanwhile, or a box that was not ticked.
            page = self._page(what, self._question(what, request.form), str(error))
            return page, status_of(error)
        back, events = self._ways(what)
        session.notice = Notice(deed.text, f"{events}#e-{deed.event}" if deed.event else "")
        return see(back)

    def _ways(self, what: str) -> tuple[str, str]:
        """Where the visitor goes after a deed, and the page with the history that it is in."""
        given = request.form
        try:
            question = self._question(what, given)
        except (HashringError, HTTPException):
            # It was done: what it was about may be gone with it, or Redis.
            kind = "group" if given.get("group") else "ring"
            page = self._link(f"/{kind}", name=given.get(kind, ""))
            return page, page
        return question.back, question.events

    def _sign_in(self, what: str) -> Any:
        """Lead to the login, and from there to the question."""
        sent = {name: value for name, value in request.values.items() if name != "csrf"}
        here = self._link(f"/act/{what}", **sent)
        address = self._link("/login", next=here)
        if len(address) > _LONGEST:
            abort(413, "this form is too long to be kept while you sign in: sign in first")
        return see(address)

    def _page(self, what: str, question: Question, wrong: str = "") -> str:
        plan, unforeseen = None, question.unforeseen
        if question.plan is not None:
            try:
                with self._turns.turn():
                    plan = question.plan()
            except ConfigError as error:
                unforeseen = str(error)
        return self._templates.page(
            "confirm.html",
            what=what,
            question=question,
            plan=plan,
            unforeseen=unforeseen,
            wrong=wrong,
            given=request.values,
            lasting=_LASTING,
            rows=_ROWS,
            **self._login.visitor(),
        )

    def _question(self, what: str, given: MultiDict[str, str]) -> Question:
        found = self._actions.named(what).question(given)
        following = given.get("next")
        if not following:
            return found
        back = self._login.inside(following)
        return replace(found, fields={**found.fields, "next": back}, back=back)
