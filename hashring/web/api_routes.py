"""The addresses of the JSON API. :mod:`hashring.web.openapi` describes them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
from flask import Blueprint, Response, abort, request

from hashring.core.hashing import key_bytes
from hashring.web import api_answers
from hashring.web import api_types as api
from hashring.web.actions import ACTIONS, Actions, plan_path
from hashring.web.change_plans import group_after, ring_after
from hashring.web.costly_requests import Turns
from hashring.web.group_actions import PlannedGroupAction
from hashring.web.key_lookup import looked_up
from hashring.web.login_routes import Login
from hashring.web.openapi import document
from hashring.web.plan_parameters import group_change, ring_change
from hashring.web.request_parameters import (
    MOST_NODES,
    address_of,
    group_of,
    number_of,
    ring_of,
    text_of,
)
from hashring.web.ring_actions import PlannedRingAction
from hashring.web.ring_view import RingView
from hashring.web.server_sent_events import Streams, changes_after, live_changes
from hashring.web.service import Service
from hashring.web.users import current_client
from hashring.web.watch_list import MOST
from hashring.web.watchers import EVENTS, GroupWatcher, RingWatcher

T = TypeVar("T")


class ApiRoutes:
    """The API.

    Args:
        service: what is asked.
        actions: what can be done.
        login: who may do it.
        base_path: what every path begins with.
        streams: all that are open.
        turns: whose turn it is to do costly work.
    """

    def __init__(
        self,
        service: Service,
        actions: Actions,
        login: Login,
        base_path: str,
        *,
        streams: Streams,
        turns: Turns,
    ) -> None:
        self._service = service
        self._actions = actions
        self._login = login
        self._streams = streams
        self._turns = turns
        self._description = msgspec.json.encode(document(base_path))
        self.blueprint = Blueprint("api", __name__)
        add = self.blueprint.add_url_rule
        for rule, view in (
            ("/openapi.json", self._openapi),
            ("/api/status", self._status),
            ("/api/rings", self._rings),
            ("/api/ring", self._ring),
            ("/api/nodes", self._nodes),
            ("/api/owner", self._owner),
            ("/api/changes", self._changes),
            ("/api/changes/live", self._live),
            ("/api/plan", self._plan),
            ("/api/groups", self._groups),
            ("/api/group", self._group),
            ("/api/group/plan", self._group_plan),
        ):
            add(rule, view_func=view, methods=["GET"])
        for name in ACTIONS:
            action = actions.named(name)
            if isinstance(action, PlannedRingAction):
                add(plan_path(name), f"plan-{name}", partial(self._ring_order, action))
            elif isinstance(action, PlannedGroupAction):
                add(plan_path(name), f"plan-{name}", partial(self._group_order, action))
        add("/api/owners", view_func=self._owners, methods=["POST"])
        add("/api/act/<what>", view_func=self._act, methods=["POST"])

    def _openapi(self) -> Response:
        return Response(self._description, mimetype="application/json")

    def _status(self) -> Response:
        return _json(api_answers.overview(self._service))

    # --- rings --------------------------------------------------------------------------------

    def _rings(self) -> Response:
        rings, _ = self._service.listed()
        page, following = _page(rings)
        return _json(
            api.Rings(rings=[api_answers.ring_in_list(ring) for ring in page], next=following)
        )

    def _asked(self) -> tuple[RingWatcher, RingView]:
        return ring_of(self._service, text_of(request.args, "ring"))

    def _ring(self) -> Response:
        watcher, view = self._asked()
        return _json(api_answers.ring(watcher, view))

    def _nodes(self) -> Response:
        watcher, view = self._asked()
        after = request.args.get("after", "").encode()
        count = number_of(request, "count", MOST_NODES, 1, MOST_NODES)
        rest = [node for node in view.nodes if node.name.encode() > after]
        page = rest[:count]
        return _json(
            api.Nodes(
                ring=view.name,
                nodes=[api_answers.node(node) for node in page],
                next=page[-1].name if len(page) < len(rest) else None,
                failure=api_answers.failure(watcher),
            )
        )

    def _owner(self) -> Response:
        watcher, view = self._asked()
        found = looked_up(self._service, watcher, view, text_of(request.args, "key"))
        return _json(api_answers.owner(watcher, view, found))

    def _owners(self) -> Response:
        asked = _body(api.OwnersAsked)
        watcher, view = ring_of(self._service, asked.ring)
        for key in asked.keys:
            key_bytes(key)
        ring = view.ring
        with self._turns.turn():
            owners = [ring.owner(key) if ring.node_count else None for key in asked.keys]
        return _json(
            api.OwnersAnswer(
                ring=view.name,
                epoch=view.epoch,
                hash_algorithm=ring.hash_algorithm.name,
                owners=owners,
                failure=api_answers.failure(watcher),
            )
        )

    def _plan(self) -> Response:
        watcher, view = self._asked()
        change = ring_change()
        with self._turns.turn():
            after = ring_after(view, change)
            return _json(api_answers.plan(watcher, view, after))

    def _ring_order(self, action: PlannedRingAction[Any]) -> Response:
        order = action.order(request.args)
        with self._turns.turn():
            after, exact = order.ring_after()
            found = api_answers.plan(order.watcher, order.view, after, exact=exact, note=order.note)
            return _json(found)

    # --- changes ------------------------------------------------------------------------------

    def _changes(self) -> Response:
        watcher, view = self._asked()
        count = number_of(request, "count", 100, 1, EVENTS)
        events = changes_after(view.events, request.args.get("after", ""))[-count:]
        return _json(
            api.Changes(
                ring=view.name,
                changes=[api_answers.change(event) for event in events],
                failure=api_answers.failure(watcher),
            )
        )

    def _live(self) -> Response:
        watcher, view = self._asked()
        since = request.headers.get("Last-Event-ID") or request.args.get("after")
        if since is None:
            since = view.events[-1].id if view.events else "0-0"
        return self._streams.response(live_changes(watcher, since), current_client())

    # --- groups -------------------------------------------------------------------------------

    def _groups(self) -> Response:
        _, groups = self._service.listed()
        page, following = _page(groups)
        found = [api_answers.group_in_list(group) for group in page]
        return _json(api.Groups(groups=found, next=following))

    def _group(self) -> Response:
        watcher, view = group_of(self._service, text_of(request.args, "group"))
        with self._turns.turn_if_long(view.status.partitions):
            return _json(api_answers.group(watcher, view))

    def _group_plan(self) -> Response:
        watcher, view = group_of(self._service, text_of(request.args, "group"))
        change = group_change()
        with self._turns.turn():
            found = group_after(view, change)
            return _json(api_answers.group_plan(watcher, found))

    def _group_order(self, action: PlannedGroupAction[Any]) -> Response:
        order = action.order(request.args)
        with self._turns.turn():
            return _json(api_answers.group_plan(order.watcher, order.plan(), order.note))

    # --- acting -------------------------------------------------------------------------------

    def _act(self, what: str) -> Response:
        user = self._login.bearer()
        action = self._actions.named(what)
        asked = _body(action.asked, {"by": user} if user else {})
        deed = action.do(asked, address_of(request))
        return _json(api.Done(done=deed.text, event=deed.event or None))


def _json(answer: Any) -> Response:
    return Response(msgspec.json.encode(answer), mimetype="application/json")


W = TypeVar("W", RingWatcher, GroupWatcher)


def _page(watchers: list[W]) -> tuple[list[W], str | None]:
    """Those after the name that was asked for, and the name to ask for next."""
    count = number_of(request, "count", MOST, 1, MOST)
    after = request.args.get("after", "")
    rest = [watcher for watcher in watchers if watcher.name > after]
    return rest[:count], rest[count - 1].name if len(rest) > count else None


def _body(kind: type[T], known: Mapping[str, str] | None = None) -> T:
    """The request's body, checked.

    Args:
        known: what it need not have, and has no say in.

    Raises:
        HTTPException: it is not JSON, or not of that kind.
    """
    # A body of unknown length is read up to the limit and cut there.
    data = request.get_data()
    if len(data) >= (request.max_content_length or 0):
        abort(413)
    if not request.is_json:
        abort(415, "send JSON, with Content-Type: application/json")
    try:
        if not known:
            return msgspec.json.decode(data, type=kind)
        sent = msgspec.json.decode(data)
        return msgspec.convert({**sent, **known} if isinstance(sent, dict) else sent, kind)
    except msgspec.ValidationError as error:
        abort(400, f"the body is not as described in /openapi.json: {error}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        abort(400, f"the body is not JSON: {error}")
