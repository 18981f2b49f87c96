"""The pages that show what a change would do, before anybody makes it. They only read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from flask import Blueprint, request
from werkzeug.exceptions import HTTPException

from hashring.core.groups.group_foresight import GroupForesight
from hashring.errors import HashringError
from hashring.web.api_queries import PlannedGroupChange, PlannedRingChange
from hashring.web.change_plans import PicturedPlan, group_after, pictured_plan, ring_after
from hashring.web.costly_requests import Turns
from hashring.web.error_status import status_of
from hashring.web.group_view import GroupView
from hashring.web.login_routes import Login
from hashring.web.page_templates import Templates
from hashring.web.parameter_kinds import read_query, schemas
from hashring.web.request_checks import group_of, ring_of, text_of
from hashring.web.ring_view import RingView
from hashring.web.service import Service

C = TypeVar("C", PlannedRingChange, PlannedGroupChange)

_ROWS: Final = 200  # rows of a table
_LONGEST: Final = 2000  # characters of an address to which each of the plan's links leads back


class PlanRoutes:
    """The pages of plans."""

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
        leaving = set(request.args.getlist("leave"))
        choices = [n.name for n in view.nodes if n.name in view.ring or n.name in leaving]

        def plan(change: PlannedRingChange) -> PicturedPlan:
            return pictured_plan(view, ring_after(view, change))

        return self._page("ring", view, choices, PlannedRingChange, plan)

    def _group(self) -> Any:
        _, view = group_of(self._service, text_of(request.args, "group"))
        choices = [member.name for member in view.status.members]
        return self._page("group", view, choices, PlannedGroupChange, partial(group_after, view))

    def _page(
        self,
        kind: str,
        view: RingView | GroupView,
        choices: list[str],
        query: type[C],
        foresee: Callable[[C], PicturedPlan | GroupForesight],
    ) -> Any:
        change, plan = query(), None
        here = self._templates.base_path + request.full_path
        wrong: HashringError | HTTPException | None = None
        try:
            change = read_query(query, request.args, lines=True)
            if not change.empty:
                with self._turns.turn():
                    plan = foresee(change)
        except (HashringError, HTTPException) as error:
            wrong = error
        with self._turns.turn_if_long(len(choices)):
            text = self._templates.page(
                f"plan_{kind}.html",
                kind=kind,
                view=view,
                choices=choices,
                change=change,
                schemas=schemas(query),
                leaving=set(request.args.getlist("leave")),
                # What was typed stays, also when it cannot work.
                typed={name: "\n".join(request.args.getlist(name)) for name in ("join", "weight")},
                plan=plan,
                wrong=_text(wrong),
                rows=_ROWS,
                here=here if len(here) <= _LONGEST else "",
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
