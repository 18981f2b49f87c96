"""The pages that ask before something is done, and do it."""

from __future__ import annotations

from typing import Any

import msgspec
from flask import Blueprint, abort, request
from werkzeug.exceptions import NotFound

from hashring.web.actions import Actions
from hashring.web.formatting import shown
from hashring.web.live_pages import Templates
from hashring.web.login_routes import Login, see
from hashring.web.parameters import address_of, ring_of, text_of
from hashring.web.service import Service


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
        self._templates = templates
        self._actions = actions
        self._login = login
        self.blueprint = Blueprint("actions", __name__)
        add = self.blueprint.add_url_rule
        add("/act/<what>", "confirm", self._confirm, methods=["GET"])
        add("/act/<what>", "act", self._act, methods=["POST"])

    def _confirm(self, what: str) -> Any:
        self._login.required_guard()
        question, fields, back = self._question(what)
        visitor = self._login.visitor()
        if not visitor["by"]:
            here = self._templates.link(f"/act/{what}", **fields)
            return see(self._templates.link("/login", next=here))
        return self._templates.page(
            "confirm.html",
            what=what,
            question=question,
            fields=fields,
            back=back,
            live=None,
            **visitor,
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
                f"Let {shown(group)} move partitions now, without the rest of its rebalance delay?"
            )
            return text, {"group": group}, link("/group", name=group)
        raise NotFound("nothing of that name can be done")

    def _act(self, what: str) -> Any:
        session = self._login.required()
        fields = {name: value for name, value in request.form.items() if name not in ("csrf", "by")}
        try:
            asked = msgspec.convert({**fields, "by": session.by}, self._actions.asked(what))
        except msgspec.ValidationError as error:
            abort(400, f"this form cannot be what the service sent: {error}")
        session.notice = self._actions.do(asked, address_of(request))
        return see(self._back(what, fields))

    def _back(self, what: str, fields: dict[str, str]) -> str:
        link = self._templates.link
        if what == "rebalance":
            return link("/group", name=fields["group"])
        if what == "release":
            return link("/ring", name=fields["ring"], key=fields["key"])
        return link("/ring", name=fields["ring"])
