"""The addresses of the JSON API. :mod:`hashring.web.openapi` describes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
from flask import Blueprint, Response, abort, request

from hashring.core.hashing import key_bytes
from hashring.store.ring.ring_events import BEFORE_ALL
from hashring.web import answers_from_views as answers
from hashring.web import api_queries as queries
from hashring.web import api_types as api
from hashring.web.actions import ACTIONS, Actions, plan_path
from hashring.web.change_plans import group_after, ring_after
from hashring.web.costly_requests import Turns
from hashring.web.group_actions import PlannedGroupAction
from hashring.web.group_watcher import GroupWatcher
from hashring.web.key_lookup import looked_up
from hashring.web.login_routes import Login
from hashring.web.openapi import GET_OPERATIONS, document
from hashring.web.parameter_kinds import read_query
from hashring.web.proxy_users import current_client
from hashring.web.request_checks import address_of, group_of, ring_of
from hashring.web.ring_actions import PlannedRingAction
from hashring.web.ring_watcher import RingWatcher
from hashring.web.server_sent_events import Streams, changes_after, live_changes
from hashring.web.service import Service
from hashring.web.watcher_health import doubts

T = TypeVar("T")
Q = TypeVar("Q", bound=queries.NodeQuery)
M = TypeVar("M", bound=queries.MemberQuery)
W = TypeVar("W", RingWatcher, GroupWatcher)


class ApiRoutes:
    """The API."""

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
        for path, view in self._views().items():
            add(path, path[1:], partial(_answer, view, GET_OPERATIONS[path].query), methods=["GET"])
        add("/openapi.json", view_func=self._openapi, methods=["GET"])
        add("/api/owners", view_func=self._owners, methods=["POST"])
        add("/api/act/<what>", view_func=self._act, methods=["POST"])

    def _views(self) -> dict[str, Callable[[Any], Response]]:
        """What answers each path, given the query that :data:`GET_OPERATIONS` has for it."""
        views: dict[str, Callable[[Any], Response]] = {
            "/api/status": self._status,
            "/api/rings": self._rings,
            "/api/ring": self._ring,
            "/api/nodes": self._nodes,
            "/api/owner": self._owner,
            "/api/changes": self._changes,
            "/api/changes/live": self._live,
            "/api/plan": self._plan,
            "/api/groups": self._groups,
            "/api/group": self._group,
            "/api/group/plan": self._group_plan,
        }
        for name in ACTIONS:
            action = self._actions.named(name)
            if isinstance(action, PlannedRingAction):
                views[plan_path(name)] = partial(self._plan_ring_order, action)
            elif isinstance(action, PlannedGroupAction):
                views[plan_path(name)] = partial(self._plan_group_order, action)
        return views

    def _openapi(self) -> Response:
        return Response(self._description, mimetype="application/json")

    def _status(self, asked: queries.NoQuery) -> Response:
        return _json(answers.overview(self._service))

    # --- rings --------------------------------------------------------------------------------

    def _rings(self, asked: queries.PageQuery) -> Response:
        searched, (rings, _) = self._service.searched, self._service.listed()
        page, following = self._page(rings, asked, searched=searched)
        return _json(
            api.Rings(
                rings=[answers.ring_in_list(ring) for ring in page],
                next=following,
                failure=answers.search_failure(self._service),
            )
        )

    def _page(
        self, watchers: list[W], asked: queries.PageQuery, *, searched: bool
    ) -> tuple[list[W], str | None]:
        """Those after the name that was asked for, and the name to ask for next."""
        if not (searched or watchers):
            # No empty list before anybody looked.
            for doubt in doubts(self._service)[:1]:
                abort(503, doubt.text + (f"; {doubt.remedy}" if doubt.remedy else ""))
        rest = [watcher for watcher in watchers if watcher.name > asked.after]
        following = rest[asked.count - 1].name if len(rest) > asked.count else None
        return rest[: asked.count], following

    def _ring(self, asked: queries.RingQuery) -> Response:
        watcher, view = ring_of(self._service, asked.ring)
        return _json(answers.ring(watcher, view))

    def _nodes(self, asked: queries.NodesQuery) -> Response:
        watcher, view = ring_of(self._service, asked.ring)
        after = asked.after.encode()
        rest = [node for node in view.nodes if node.name.encode() > after]
        page = rest[: asked.count]
        return _json(
            api.Nodes(
                ring=view.name,
                nodes=[answers.node(node) for node in page],
                next=page[-1].name if len(page) < len(rest) else None,
                failure=answers.failure(watcher),
            )
        )

    def _owner(self, asked: queries.OwnerQuery) -> Response:
        watcher, view = ring_of(self._service, asked.ring)
        found = looked_up(self._service, watcher, view, asked.key)
        return _json(answers.owner(watcher, view, found))

    def _owners(self) -> Response:
        asked = _body(api.OwnersAsked)
        watcher, view = ring_of(self._service, asked.ring)
        view.check_hashes()
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
                failure=answers.failure(watcher),
            )
        )

    def _plan(self, asked: queries.RingPlanQuery) -> Response:
        watcher, view = ring_of(self._service, asked.ring)
        with self._turns.turn():
            after = ring_after(view, asked)
            return _json(answers.plan(watcher, view, after))

    def _plan_ring_order(self, action: PlannedRingAction[Any, Q], asked: Q) -> Response:
        with self._turns.turn():  # also to read the whole ring
            order = action.order(asked)
            after, exact = order.ring_after()
            found = answers.plan(order.watcher, order.view, after, exact=exact, note=order.note)
            return _json(found)

    # --- changes ------------------------------------------------------------------------------

    def _changes(self, asked: queries.ChangesQuery) -> Response:
        watcher, view = ring_of(self._service, asked.ring)
        new = changes_after(view.events, view.standing(asked.after), watcher.latest_time(view))
        events = new[-asked.count :]
        return _json(
            api.Changes(
                ring=view.name,
                changes=[answers.change(event) for event in events],
                failure=answers.failure(watcher),
            )
        )

    def _live(self, asked: queries.LiveChangesQuery) -> Response:
        watcher, view = ring_of(self._service, asked.ring)
        since = request.headers.get("Last-Event-ID") or asked.after
        if not since:
            since = view.events[-1].id if view.events else BEFORE_ALL
        return self._streams.response(live_changes(watcher, since), current_client())

    # --- groups -------------------------------------------------------------------------------

    def _groups(self, asked: queries.PageQuery) -> Response:
        searched, (_, groups) = self._service.searched, self._service.listed()
        page, following = self._page(groups, asked, searched=searched)
        return _json(
            api.Groups(
                groups=[answers.group_in_list(group) for group in page],
                next=following,
                failure=answers.search_failure(self._service),
            )
        )

    def _group(self, asked: queries.GroupQuery) -> Response:
        watcher, view = group_of(self._service, asked.group)
        with self._turns.turn_if_long(view.status.partitions):
            return _json(answers.group(watcher, view))

    def _group_plan(self, asked: queries.GroupPlanQuery) -> Response:
        watcher, view = group_of(self._service, asked.group)
        with self._turns.turn():
            found = group_after(view, asked)
            return _json(answers.group_plan(watcher, found))

    def _plan_group_order(self, action: PlannedGroupAction[Any, M], asked: M) -> Response:
        with self._turns.turn():
            order = action.order(asked)
            return _json(answers.group_plan(order.watcher, order.plan(), order.note))

    # --- acting -------------------------------------------------------------------------------

    def _act(self, what: str) -> Response:
        user = self._login.bearer()
        action = self._actions.named(what)
        asked = _body(action.asked, {"by": user} if user else {})
        deed = action.do(asked, address_of(request))
        return _json(api.Done(done=deed.text, event=deed.event or None))


def _answer(view: Callable[[Any], Response], query: type[Any]) -> Response:
    return view(read_query(query, request.args))


def _json(answer: Any) -> Response:
    return Response(msgspec.json.encode(answer), mimetype="application/json")


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
