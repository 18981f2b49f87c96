"""The JSON API. :mod:`hashring.web.openapi` describes it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from flask import Blueprint, Response, abort, request
from werkzeug.exceptions import BadRequest

from hashring.core.assignors import assignor_named
from hashring.core.groups import foresight
from hashring.core.hashing import RING_SIZE, key_bytes
from hashring.core.planning import planned_ring
from hashring.core.ring import Ring
from hashring.store.commands import Event
from hashring.store.events import event_json
from hashring.web.actions import Actions, checked_by
from hashring.web.asking import (
    failure_dict,
    group_of,
    looked_up,
    number_of,
    ring_of,
    text_of,
)
from hashring.web.feed import KEEPALIVE, event_bytes
from hashring.web.openapi import document
from hashring.web.service import Service
from hashring.web.streams import Streams
from hashring.web.views import RingView
from hashring.web.watch import EVENTS, RingWatcher

MOST_KEYS: Final = 10_000
"""How many keys one request may ask for."""
_MOST_JOINING: Final = 100
_MOST_REPLICAS: Final = 4096
_MOST_MOVES: Final = 10_000


class Api:
    """The API.

    Args:
        service: what is asked.
        actions: what can be done.
        streams: all that are open.
    """

    def __init__(self, service: Service, actions: Actions, streams: Streams) -> None:
        self._service = service
        self._actions = actions
        self._streams = streams
        self.blueprint = Blueprint("api", __name__)
        add = self.blueprint.add_url_rule
        for rule, view in (
            ("/openapi.json", self._openapi),
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
        add("/api/owners", view_func=self._owners, methods=["POST"])
        add("/api/act/<what>", view_func=self._act, methods=["POST"])

    def _openapi(self) -> dict[str, Any]:
        return document(self._service.base_path)

    # --- rings --------------------------------------------------------------------------------

    def _rings(self) -> dict[str, Any]:
        rings, _ = self._service.listed()
        return {
            "rings": [
                {
                    **({"ring": ring.name} if ring.view is None else ring.view.as_dict()),
                    "failure": failure_dict(ring),
                }
                for ring in rings
            ]
        }

    def _asked(self) -> tuple[RingWatcher, RingView]:
        return ring_of(self._service, text_of(request, "ring"))

    def _ring(self) -> dict[str, Any]:
        watcher, view = self._asked()
        return {**view.as_dict(), "failure": failure_dict(watcher)}

    def _nodes(self) -> dict[str, Any]:
        watcher, view = self._asked()
        return {
            "ring": view.name,
            "nodes": [node.as_dict() for node in view.nodes],
            "failure": failure_dict(watcher),
        }

    def _owner(self) -> dict[str, Any]:
        watcher, view = self._asked()
        found = looked_up(self._service, watcher, view, text_of(request, "key"))
        lock = found.lock
        return {
            "ring": view.name,
            "key": found.key,
            "point": found.point,
            "owner": found.owner,
            "next": list(found.next),
            "hash_algorithm": found.algorithm,
            "epoch": view.epoch,
            "lock": None
            if lock is None
            else {
                "node": lock.node,
                "token": str(lock.token),
                "expires_in": lock.expires_in,
                "waiter": lock.waiter or None,
            },
            "lock_error": found.lock_error or None,
            "failure": failure_dict(watcher),
        }

    def _owners(self) -> dict[str, Any]:
        asked = _body()
        keys = asked.get("keys")
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            abort(400, 'keys: give a list of texts, such as {"ring": "accounts", "keys": ["a"]}')
        if len(keys) > MOST_KEYS:
            abort(400, f"keys: {len(keys)} are too many for one request; at most {MOST_KEYS}")
        watcher, view = ring_of(self._service, _text(asked, "ring"))
        for key in keys:
            key_bytes(key)
        ring = view.ring
        owners = [ring.owner(key) for key in keys] if ring.node_count else [None] * len(keys)
        return {
            "ring": view.name,
            "epoch": view.epoch,
            "hash_algorithm": ring.hash_algorithm.name,
            "owners": owners,
            "failure": failure_dict(watcher),
        }

    def _plan(self) -> dict[str, Any]:
        watcher, view = self._asked()
        join, leave = request.args.getlist("join"), request.args.getlist("leave")
        if len(join) > _MOST_JOINING:
            abort(400, f"join: at most {_MOST_JOINING} nodes in one plan")
        after = planned_ring(
            view.ring,
            join=join,
            leave=leave,
            n_replicas=number_of(request, "replicas", 16, 1, _MOST_REPLICAS),
            placement=request.args.get("placement", "random"),
            rng_for=lambda node: random.Random(f"{view.ring.fingerprint}:{node}"),
        )
        moves = view.ring.moves(after)
        flows: dict[tuple[str | None, str | None], int] = {}
        for move in moves:
            way = (move.before, move.after)
            flows[way] = flows.get(way, 0) + move.points
        return {
            "ring": view.name,
            "epoch": view.epoch,
            "moved": sum(flows.values()) / RING_SIZE,
            "flows": [
                {"from": before, "to": to, "part": points / RING_SIZE}
                for (before, to), points in sorted(flows.items(), key=lambda flow: -flow[1])
            ][:_MOST_MOVES],
            "before": _shares(view.ring),
            "after": _shares(after),
            "failure": failure_dict(watcher),
        }

    # --- changes ------------------------------------------------------------------------------

    def _changes(self) -> dict[str, Any]:
        watcher, view = self._asked()
        count = number_of(request, "count", 100, 1, EVENTS)
        events = _after(view.events, request.args.get("after", ""))[-count:]
        return {
            "ring": view.name,
            "changes": [event_json(event) for event in events],
            "failure": failure_dict(watcher),
        }

    def _live(self) -> Response:
        watcher, view = self._asked()
        since = request.headers.get("Last-Event-ID") or request.args.get("after")
        if since is None:
            since = view.events[-1].id if view.events else "0-0"
        _id(since)
        return self._streams.response(self._follow(watcher, since))

    def _follow(self, watcher: RingWatcher, since: str) -> Iterator[bytes]:
        yield b"retry: 1000\n\n"
        looks = -1
        told = time.monotonic()
        while not watcher.stopping:
            looks = watcher.wait_for_look(looks, KEEPALIVE)
            view = watcher.view
            new = _after(view.events, since) if view else ()
            for event in new:
                since = event.id
                yield event_bytes(event.id, event_json(event))
            if new:
                told = time.monotonic()
            elif time.monotonic() - told > KEEPALIVE:
                told = time.monotonic()
                yield b":\n\n"

    # --- groups -------------------------------------------------------------------------------

    def _groups(self) -> dict[str, Any]:
        _, groups = self._service.listed()
        return {
            "groups": [
                {
                    "group": group.name,
                    "phase": group.view.status.phase.value if group.view else None,
                    "generation": group.view.status.generation if group.view else None,
                    "partitions": group.view.status.partitions if group.view else None,
                    "members": len(group.view.status.members) if group.view else None,
                    "failure": failure_dict(group),
                }
                for group in groups
            ]
        }

    def _group(self) -> dict[str, Any]:
        watcher, view = group_of(self._service, text_of(request, "group"))
        return {**view.as_dict(), "failure": failure_dict(watcher)}

    def _group_plan(self) -> dict[str, Any]:
        watcher, view = group_of(self._service, text_of(request, "group"))
        join, leave = request.args.getlist("join"), request.args.getlist("leave")
        if len(join) > _MOST_JOINING:
            abort(400, f"join: at most {_MOST_JOINING} members in one plan")
        partitions = None
        if "partitions" in request.args:
            partitions = number_of(request, "partitions", 1, 1, 100_000)
        found = foresight.foresee(
            view.state,
            view.reading.facts,
            assignor_named(view.state.terms.assignor),
            join=join,
            leave=leave,
            partitions=partitions,
        )
        told = asdict(found)
        told["moves"] = told["moves"][:_MOST_MOVES]
        return {"group": view.name, **told, "failure": failure_dict(watcher)}

    # --- acting -------------------------------------------------------------------------------

    def _act(self, what: str) -> dict[str, str]:
        self._actions.bearer()
        asked = _body()
        by = asked.get("by", "")
        done = self._actions.do(what, asked, checked_by(by if isinstance(by, str) else ""))
        return {"done": done}


def _body() -> dict[str, Any]:
    # A body of unknown length is read up to the limit and cut there.
    if len(request.get_data()) >= (request.max_content_length or 0):
        abort(413)
    try:
        asked = request.get_json()
    except RecursionError:
        abort(400, "the body is JSON nested too deeply")
    if not isinstance(asked, dict):
        abort(400, "the body is no JSON object")
    return asked


def _text(asked: dict[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value:
        abort(400, f"{name}: give a text that is not empty")
    return value


def _shares(ring: Ring) -> dict[str, float]:
    return {node: points / RING_SIZE for node, points in ring.shares.items()}


def _after(events: tuple[Event, ...], id_: str) -> tuple[Event, ...]:
    if not id_:
        return events
    since = _id(id_)
    return tuple(event for event in events if _id(event.id) > since)


def _id(text: str) -> tuple[int, int]:
    first, _, second = text.partition("-")
    if all(
        part.isascii() and part.isdigit() and len(part) <= 20 for part in (first, second or "0")
    ):
        return int(first), int(second or "0")
    raise BadRequest("after: give the id of a change, such as 1700000000000-0")
