"""The pages' addresses."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, abort, jsonify, request
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder

from hashring.errors import KeyValueError
from hashring.web.actions import Actions
from hashring.web.asking import group_of, looked_up, ring_of, text_of
from hashring.web.pages import LivePage, Lookup, RingPage, Templates
from hashring.web.service import Service
from hashring.web.streams import Streams
from hashring.web.views import RingView
from hashring.web.watch import RingWatcher


class Site:
    """The pages.

    Args:
        service: what is shown.
        templates: what renders.
        actions: who has signed in.
        streams: all that are open.
    """

    def __init__(
        self, service: Service, templates: Templates, actions: Actions, streams: Streams
    ) -> None:
        self._service = service
        self._templates = templates
        self._actions = actions
        self._streams = streams
        self._registry = CollectorRegistry()
        self._registry.register(service.metrics)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)
        self.blueprint = Blueprint("site", __name__)
        for rule, view in (
            ("/", self._index),
            ("/feed", self._index_feed),
            ("/ring", self._ring),
            ("/ring/feed", self._ring_feed),
            ("/ring/asked", self._ring_asked),
            ("/group", self._group),
            ("/group/feed", self._group_feed),
            ("/healthz", self._alive),
            ("/readyz", self._ready),
            ("/metrics", self._metrics),
        ):
            self.blueprint.add_url_rule(rule, view_func=view, methods=["GET"])

    # --- the list -----------------------------------------------------------------------------

    def _index(self) -> str:
        version, parts, _ = self._service.index.current()
        live = {"feed": self._templates.link("/feed"), "version": version, "at": 0.0}
        return self._page("index.html", part=parts, live=live)

    def _index_feed(self) -> Response:
        return self._stream(self._service.index, 0.0)

    # --- a ring -------------------------------------------------------------------------------

    def _ring(self) -> str:
        name = text_of(request, "name")
        watcher = self._service.ring(name)
        if watcher is None:
            abort(404, f"There is no ring {name!r}. A ring appears once its first node has joined.")
        page: RingPage = self._service.ring_page(watcher)
        version, parts, rows = page.current()
        view = watcher.view
        key, node = request.args.get("key"), request.args.get("node")
        leaves = lookup = ""
        if view is not None:
            found = self._found(watcher, view, key)
            act = self._actions.possible
            leaves, lookup = page.leaves(view, node, act=act), page.lookup(view, found, act=act)
            if found is not None or node is not None:
                parts = {**parts, "picture": page.marked(view, found, node)}
        live = {
            "feed": self._templates.link("/ring/feed", name=name),
            "version": version,
            "at": _redis_time(watcher, view),
        }
        empty = dict.fromkeys(("failure", "notes", "figures", "picture", "log"), "")
        return self._page(
            "ring.html",
            name=name,
            part={**empty, **parts},
            rows=rows,
            leaves=leaves,
            lookup=lookup,
            key=key,
            node=node,
            seen=view.now if view else None,
            live=live,
        )

    def _ring_feed(self) -> Response:
        watcher = self._service.ring(text_of(request, "name"))
        if watcher is None:
            abort(404, "there is no such ring")
        return self._stream(self._service.ring_page(watcher), _redis_time(watcher, watcher.view))

    def _ring_asked(self) -> Response:
        watcher, view = ring_of(self._service, text_of(request, "name"))
        page: RingPage = self._service.ring_page(watcher)
        page.current()
        key, node = request.args.get("key"), request.args.get("node")
        found = self._found(watcher, view, key)
        act = self._actions.possible
        return jsonify(
            lookup=page.lookup(view, found, act=act),
            inherit=page.leaves(view, node, act=act),
            picture=page.marked(view, found, node),
        )

    def _found(self, watcher: RingWatcher, view: RingView, key: str | None) -> Lookup | None:
        if key is None:
            return None
        try:
            return looked_up(self._service, watcher, view, key)
        except KeyValueError as error:
            return Lookup(key, str(error))

    # --- a group ------------------------------------------------------------------------------

    def _group(self) -> str:
        name = text_of(request, "name")
        watcher = self._service.group(name)
        if watcher is None:
            abort(404, f"There is no group {name!r}. It appears once its first member has joined.")
        version, parts, _ = self._service.group_page(watcher).current()
        view = watcher.view
        live = {
            "feed": self._templates.link("/group/feed", name=name),
            "version": version,
            "at": 0.0 if view is None else view.now + watcher.since_seen,
        }
        empty = dict.fromkeys(("failure", "head", "waits", "grid", "members", "log"), "")
        seen = view.now if view else None
        part = {**empty, **parts}
        return self._page("group.html", name=name, part=part, seen=seen, live=live)

    def _group_feed(self) -> Response:
        watcher, view = group_of(self._service, text_of(request, "name"))
        return self._stream(self._service.group_page(watcher), view.now + watcher.since_seen)

    # --- health -------------------------------------------------------------------------------

    def _alive(self) -> dict[str, str]:
        return {"status": "alive"}

    def _ready(self) -> Any:
        if self._service.ready:
            return {"status": "ready", "redis": "answers"}
        failure = self._service.failure
        told: dict[str, Any] = {"status": "not ready", "redis": "has not answered yet"}
        if failure is not None:
            told |= {"redis": str(failure.error), "since": failure.since}
        return told, 503

    def _metrics(self) -> Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return Response(encode(self._registry), content_type=content_type)

    # --- all of them --------------------------------------------------------------------------

    def _stream(self, page: LivePage, at: float) -> Response:
        since = request.headers.get("Last-Event-ID") or request.args.get("since", "")
        page.current()
        deflated = bool(request.accept_encodings["gzip"])
        response = self._streams.response(page.feed.follow(since, at, deflated=deflated))
        if deflated:
            response.headers["Content-Encoding"] = "gzip"
        response.vary.add("Accept-Encoding")
        return response

    def _page(self, template: str, **values: Any) -> str:
        return self._templates.page(template, **self._actions.visitor(), **values)


def _redis_time(watcher: RingWatcher, view: RingView | None) -> float:
    return 0.0 if view is None else view.now + watcher.since_seen
