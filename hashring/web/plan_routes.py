"""The pages that show what a change would do, before anybody makes it. They only read."""

from __future__ import annotations

from typing import Any, Final

from flask import Blueprint, request
from werkzeug.exceptions import HTTPException

from hashring.core.groups.group_plan import GroupForesight
from hashring.errors import HashringError
from hashring.web.api_queries import PlannedGroupChange, PlannedRingChange
from hashring.web.change_plans import PicturedPlan, group_after, pictured_plan, ring_after
from hashring.web.costly_requests import Turns
from hashring.web.group_view import GroupView
from hashring.web.login_routes import Login
from hashring.web.page_templates import Templates
from hashring.web.query_parameters import read_query
from hashring.web.request_parameters import group_of, ring_of, status_of, text_of
from hashring.web.ring_view import RingView
from hashring.web.service import Service

_ROWS: Final = 200  # rows of a table


class PlanRoutes:
    """The pages of plans.

    Args:
        service: what is planned for.
        templates: what renders.
        login: who has signed in.
        turns: whose turn it is to do costly work.
    """

    def __init__(self, service: Service, templates: Templates, login: Login, turns: Turns) -> None:
        self._service = service
        self._templates = templates
        self._login = login
        self._turns = turns
        self.blueprint = Blueprint("plans", __name__)
        self.blueprint.add_url_rule("/plan/ring", "ring", self._ring, methods=["GET"])
        self.blueprint.add_url_rule("/plan/group", "group", self._group, methods=["GET"])

    def _ring(self) -> Any:
        _, view = ring_of(self._service, text_of(request.args, "ring"))
        plan: PicturedPlan | None = None
        wrong: HashringError | HTTPException | None = None
        change = PlannedRingChange()
        try:
            change = read_query(PlannedRingChange, request.args, lines=True)
            if not change.empty:
                with self._turns.turn():
                    plan = pictured_plan(view, ring_after(view, change))
        except (HashringError, HTTPException) as error:
            wrong = error
        return self._page("plan_ring.html", view, change, plan, wrong)

    def _group(self) -> Any:
        _, view = group_of(self._service, text_of(request.args, "group"))
        found: GroupForesight | None = None
        wrong: HashringError | HTTPException | None = None
        change = PlannedGroupChange()
        try:
            change = read_query(PlannedGroupChange, request.args, lines=True)
            if not change.empty:
                with self._turns.turn():
                    found = group_after(view, change)
        except (HashringError, HTTPException) as error:
            wrong = error
        return self._page("plan_group.html", view, change, found, wrong)

    def _page(
        self,
        template: str,
        view: RingView | GroupView,
        change: PlannedRingChange | PlannedGroupChange,
        plan: PicturedPlan | GroupForesight | None,
        wrong: HashringError | HTTPException | None,
    ) -> Any:
        choices = len(view.nodes if isinstance(view, RingView) else view.status.members)
        with self._turns.turn_if_long(choices):
            text = self._templates.page(
                template,
                view=view,
                change=change,
                leaving=set(request.args.getlist("leave")),
                # What was typed stays, also when it cannot work.
                typed={name: "\n".join(request.args.getlist(name)) for name in ("join", "weight")},
                plan=plan,
                wrong=_text(wrong),
                rows=_ROWS,
                here=self._templates.base_path + request.full_path,
                **self._login.visitor(),
            )
        if wrong is None:
            return text
        status = status_of(wrong) if isinstance(wrong, HashringError) else wrong.code
        return text, status or 400


def _text(wrong: HashringError | HTTPException | None) -> str:
    if wrong is None:
        return ""
    return str(wrong) if isinstance(wrong, HashringError) else str(wrong.description)
