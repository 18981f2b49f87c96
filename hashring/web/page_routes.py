"""The addresses of the pages of rings and groups, and of the list of them."""

from __future__ import annotations

import gzip
from collections import defaultdict
from typing import Any, Final

from flask import Blueprint, Response, abort, jsonify, request
from markupsafe import Markup

from hashring.errors import KeyValueError
from hashring.health import State
from hashring.web.api_queries import MOST_KEY_BYTES
from hashring.web.costly_requests import Turns
from hashring.web.key_lookup import Lookup, looked_up
from hashring.web.live_page import LivePage
from hashring.web.login_routes import Login
from hashring.web.page_templates import Templates
from hashring.web.pages_by_watcher import LivePages
from hashring.web.proxy_users import current_client
from hashring.web.request_checks import group_of, ring_of, text_of
from hashring.web.ring_view import RingView, UnknownHash
from hashring.web.ring_watcher import RingWatcher
from hashring.web.server_sent_events import Streams
from hashring.web.service import Service
from hashring.web.state_signs import icon, sign

_FIRST_ROWS: Final = 40
"""Rows of a page's table; the stream brings the rest."""


class PageRoutes:
    """The pages."""

    def __init__(
        self,
        service: Service,
        templates: Templates,
        pages: LivePages,
        *,
        login: Login,
        streams: Streams,
        turns: Turns,
    ) -> None:
        self._service = service
        self._templates = templates
        self._pages = pages
        self._login = login
        self._streams = streams
        self._turns = turns
        self.blueprint = Blueprint("site", __name__)
        for rule, view in (
            ("/", self._index),
            ("/feed", self._index_feed),
            ("/ring", self._ring),
            ("/ring/feed", self._ring_feed),
            ("/ring/asked", self._ring_asked),
            ("/group", self._group),
            ("/group/feed", self._group_feed),
            ("/icon/<state>.svg", icon),
        ):
            self.blueprint.add_url_rule(rule, view_func=view, methods=["GET"])

    # --- the list -----------------------------------------------------------------------------

    def _index(self) -> Response:
        version, parts, every = self._pages.index.current()
        live = self._live(self._pages.index, version, "/feed")
        rows = {
            f"{kind}s": Markup(
                "".join(row.html for id_, row in every.items() if id_.startswith(kind))
            )
            for kind in ("ring", "group")
        }
        state = self._pages.index.health.state
        return self._page("index.html", state, part=parts, live=live, rows=rows)

    def _index_feed(self) -> Response:
        return self._stream(self._pages.index)

    # --- a ring -------------------------------------------------------------------------------

    def _ring(self) -> Response:
        name = text_of(request.args, "name")
        watcher = self._service.ring(name)
        if watcher is None:
            abort(404, f"There is no ring {name!r}. A ring appears once its first node has joined.")
        page = self._pages.ring(watcher)
        version, parts, every = page.current()
        view = watcher.view
        rows, more = list(every.values()), 0
        if len(rows) > _FIRST_ROWS and "all" not in request.args:
            # The rest comes by the stream, whose version this page therefore does not have.
            rows, more, version = rows[:_FIRST_ROWS], len(rows), ""
        key, node = request.args.get("key"), request.args.get("node")
        leaves = lookup = ""
        if view is not None:
            found = self._found(watcher, view, key)
            act = self._login.possible
            lookup = page.lookup(view, found, act=act)
            if found is not None or node is not None:
                with self._turns.turn():
                    leaves = page.leaves(view, node, act=act)
                    parts = {**parts, "picture": page.marked(view, found, node)}
        live = self._live(page, version, "/ring/feed", name=name)
        return self._page(
            "ring.html",
            page.health.state,
            size=len(rows),
            name=name,
            part=defaultdict(str, parts),
            rows=rows,
            more=more,
            shown_rows=len(rows),
            leaves=leaves,
            lookup=lookup,
            key=key,
            longest_key=MOST_KEY_BYTES,
            node=node,
            seen=view.now if view else None,
            live=live,
        )

    def _ring_feed(self) -> Response:
        watcher = self._service.ring(text_of(request.args, "name"))
        if watcher is None:
            abort(404, "there is no such ring")
        return self._stream(self._pages.ring(watcher))

    def _ring_asked(self) -> Response:
        watcher, view = ring_of(self._service, text_of(request.args, "name"))
        page = self._pages.ring(watcher)
        page.current()
        key, node = request.args.get("key"), request.args.get("node")
        found = self._found(watcher, view, key)
        act = self._login.possible
        with self._turns.turn():
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
        except (KeyValueError, UnknownHash) as error:
            return Lookup(key, str(error))

    # --- a group ------------------------------------------------------------------------------

    def _group(self) -> Response:
        name = text_of(request.args, "name")
        watcher = self._service.group(name)
        if watcher is None:
            abort(404, f"There is no group {name!r}. It appears once its first member has joined.")
        page = self._pages.group(watcher)
        version, parts, rows = page.current()
        view = watcher.view
        live = self._live(page, version, "/group/feed", name=name)
        return self._page(
            "group.html",
            page.health.state,
            size=max(len(rows), 0 if view is None else view.status.partitions),
            name=name,
            part=defaultdict(str, parts),
            rows=list(rows.values()),
            seen=view.now if view else None,
            live=live,
        )

    def _group_feed(self) -> Response:
        watcher, _ = group_of(self._service, text_of(request.args, "name"))
        return self._stream(self._pages.group(watcher))

    # --- all of them --------------------------------------------------------------------------

    def _stream(self, page: LivePage) -> Response:
        since = request.headers.get("Last-Event-ID") or request.args.get("since", "")
        page.current()
        deflated = bool(request.accept_encodings["gzip"])
        response = self._streams.response(
            page.feed.follow(since, page.now, deflated=deflated),
            current_client(),
            page.feed.wake,
        )
        if deflated:
            response.headers["Content-Encoding"] = "gzip"
        response.vary.add("Accept-Encoding")
        return response

    def _live(self, page: LivePage, version: str, feed: str, **query: str) -> dict[str, Any]:
        """What a page of this version needs, to follow its feed."""
        return {
            "feed": self._templates.link(feed, **query),
            "version": version,
            "at": page.now,
        }

    def _page(self, template: str, state: State, *, size: int = 0, **values: Any) -> Response:
        """Render a page.

        Args:
            size: how many rows or partitions it shows, if these may be many.
        """
        with self._turns.turn_if_long(size):
            text = self._templates.page(
                template, state=state.value, mark=sign(state), **self._login.visitor(), **values
            )
            response = Response(text, mimetype="text/html")
            response.vary.add("Accept-Encoding")
            if request.accept_encodings["gzip"]:
                response.set_data(gzip.compress(text.encode(), 3))
                response.headers["Content-Encoding"] = "gzip"
            return response
