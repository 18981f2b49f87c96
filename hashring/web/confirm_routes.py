"""The pages that ask before something is done, and do it."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from secrets import token_urlsafe
from typing import Any, Final

import msgspec
from flask import Blueprint, abort, request
from werkzeug.datastructures import MultiDict

from hashring.core.groups.group_foresight import GroupForesight
from hashring.core.ring_plan import RingPlan
from hashring.errors import ConfigError, GroupNotEmpty, RingNotEmpty, StoreError
from hashring.web.actions import Actions
from hashring.web.base_action import Question
from hashring.web.costly_requests import Turns
from hashring.web.error_status import status_of
from hashring.web.login_routes import Login, see
from hashring.web.page_templates import Templates
from hashring.web.request_checks import address_of
from hashring.web.sessions import PageNotice, Session

_LASTING: Final = {
    "": "until somebody lifts it",
    "900": "15 minutes",
    "3600": "1 hour",
    "7200": "2 hours",
    "28800": "8 hours",
    "86400": "1 day",
}
"""How long an order to drain may stand, by the seconds that the form sends."""
_SHOWN: Final = "shown"
"""The field of a form that names what the visitor was shown with the question."""
_FORM: Final = "form"
"""The field of a form by which it is known when it is sent again."""
_OWN_FIELDS: Final = ("csrf", "by", "next", _SHOWN, _FORM)  # those that are not about the action
_LONGEST: Final = 32_768  # characters of an address that browsers and proxies let pass
_ROWS: Final = 20  # of the table of what moves


class ConfirmRoutes:
    """Asks, acts, and leads back to where the visitor came from.

    Args:
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
        if self._login.session() is None:
            return self._sign_in(what)
        return self._page(what, self._question(what, request.args))

    def _act(self, what: str) -> Any:
        self._login.required_right()
        session = self._login.session()
        if session is None:
            return self._sign_in(what)
        # A second click waits for what the first one did, and leads to the same place.
        with session.acting:
            led = session.answers.get(request.form.get(_FORM, ""))
            return see(led) if led else self._answer(what, session)

    def _answer(self, what: str, session: Session) -> Any:
        question = self._question(what, request.form)
        # The answer to the question may have changed meanwhile, and who asked it is not known.
        if not self._login.is_own_form(session):
            wrong = "This form was not from your session. If you mean it, answer again."
            return self._page(what, question, wrong), 403
        plan, unforeseen = self._foreseen(question)
        if request.form.get(_SHOWN) != _digest(question, plan, unforeseen):
            wrong = "This has changed since you were asked. If you still mean it, answer again."
            return self._page(what, question, wrong), 409
        sent = {k: v for k, v in request.form.items() if v and k not in _OWN_FIELDS}
        action = self._actions.named(what)
        try:
            asked = msgspec.convert({**sent, "by": session.by}, action.asked, strict=False)
        except msgspec.ValidationError as error:
            abort(400, f"this form cannot be what the service sent: {error}")
        try:
            deed = action.do(asked, address_of(request))
        except (ConfigError, GroupNotEmpty, RingNotEmpty) as error:
            # What somebody else did meanwhile, or a box that was not ticked.
            page = self._page(what, self._question(what, request.form), str(error))
            return page, status_of(error)
        except StoreError:
            # It may have been done: the same form must not do it again.
            _note_answer(session, self._link(f"/act/{what}", **question.fields))
            raise
        link = f"{question.events}#e-{deed.event}" if deed.event else ""
        session.notice = PageNotice(deed.text, link)
        _note_answer(session, question.back)
        return see(question.back)

    def _sign_in(self, what: str) -> Any:
        """Lead to the login, and from there to the question."""
        sent = {
            name: value
            for name, value in request.values.items()
            if name not in ("csrf", _SHOWN, _FORM)
        }
        here = self._link(f"/act/{what}", **sent)
        address = self._link("/login", next=here)
        if len(address) > _LONGEST:
            abort(413, "this form is too long to be kept while you sign in: sign in first")
        return see(address)

    def _page(self, what: str, question: Question, wrong: str = "") -> str:
        plan, unforeseen = self._foreseen(question)
        return self._templates.page(
            "confirm.html",
            what=what,
            question=question,
            plan=plan,
            unforeseen=unforeseen,
            shown_now=_digest(question, plan, unforeseen),
            form=token_urlsafe(12),
            wrong=wrong,
            given=request.values,
            lasting=_LASTING,
            rows=_ROWS,
            **self._login.visitor(),
        )

    def _foreseen(self, question: Question) -> tuple[RingPlan | GroupForesight | None, str]:
        """What would move; or why that is not known."""
        if question.plan is None:
            return None, question.unforeseen
        try:
            with self._turns.turn():
                return question.plan(), question.unforeseen
        except ConfigError as error:
            return None, str(error)

    def _question(self, what: str, given: MultiDict[str, str]) -> Question:
        found = self._actions.named(what).question(given)
        following = given.get("next")
        if not following:
            return found
        back = self._login.inside(following)
        return replace(found, fields={**found.fields, "next": back}, back=back)


def _note_answer(session: Session, led: str) -> None:
    """Note where the answer to the form of this request leads, however often it is sent."""
    if form := request.form.get(_FORM):
        session.answered(form, led)


def _digest(question: Question, plan: RingPlan | GroupForesight | None, unforeseen: str) -> str:
    """A name for what the visitor is shown. Another name: another question.

    The figures are rounded: on a large ring some node always joins or leaves, which changes nothing
    that a person decides by, and must not keep anybody from acting.
    """
    figures: tuple[float, ...] = ()
    if isinstance(plan, RingPlan):
        figures = (round(plan.moved, 2), round(plan.after.peak_to_mean, 1) if plan.after else 0.0)
    elif plan is not None:
        partitions = sum(plan.before.values()) or 1
        most = max(plan.after.values(), default=0)
        figures = (round(len(plan.moves) / partitions, 1), round(most / partitions, 2))
    seen = (question.title, question.text, question.force, unforeseen, figures)
    return blake2b(repr(seen).encode(), digest_size=12).hexdigest()
