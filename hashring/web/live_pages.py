"""The pages that stay up to date, and their parts as HTML.

A page is rendered once after each reading, for all its visitors, and only when it has any.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hashring._version import __version__
from hashring.core.picture import PALETTE, Mark, node_colors, ring_picture
from hashring.errors import RedisUnavailable
from hashring.store.commands import Snapshot
from hashring.store.lock_commands import Lock
from hashring.web import formatting
from hashring.web.event_stream import Feed
from hashring.web.group_view import GroupView
from hashring.web.ring_view import Heir, RingView
from hashring.web.service import Service
from hashring.web.watchers import Failure, GroupWatcher, RingWatcher, Watcher

V = TypeVar("V", bound=RingView | GroupView)

Parts = dict[str, Markup]
Rows = dict[str, tuple[Any, Markup]]

_LOG: Final = 40  # events on a ring's page


@dataclass(frozen=True)
class Lookup:
    """What is known of a key.

    Attributes:
        key: the key.
        error: why it has no owner to be told of; empty when it has.
        point, owner, next, algorithm: where it is, whose it is, who comes next, by which hash.
        lock: who holds its lock, if anybody does.
        lock_error: why that is not known; empty when it is.
    """

    key: str
    error: str = ""
    point: int = 0
    owner: str | None = None
    next: tuple[str, ...] = ()
    algorithm: str = ""
    lock: Lock | None = None
    lock_error: str = ""


class Templates:
    """Renders. Needs no request, so that what a page is made of is made once for everybody.

    Args:
        base_path: what every path of the service begins with; empty or ``/like/this``.
        redis: where Redis is, for people: without a password.
        actions: whether there are buttons to act with.
    """

    def __init__(self, base_path: str, redis: str, *, actions: bool) -> None:
        self.base_path = base_path
        self._environment = Environment(
            loader=PackageLoader("hashring.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            shown=formatting.shown,
            duration=formatting.duration,
            clock=formatting.clock,
            day=formatting.day,
            field=formatting.field,
            iso=formatting.iso,
            percent=formatting.percent,
            ratio=formatting.ratio,
            spans=formatting.spans,
        )
        self._environment.globals.update(
            link=self.link, redis=redis, actions=actions, package_version=__version__
        )
        # With the globals in it, which an import into a template would not have.
        self._parts: Any = self._environment.get_template("parts.html").module

    def link(self, path: str, **query: str) -> str:
        """A path of the service, with a query."""
        return f"{self.base_path}{path}" + (f"?{urlencode(query)}" if query else "")

    def part(self, name: str, *values: Any) -> Markup:
        """A part of a page."""
        return Markup(getattr(self._parts, name)(*values).strip())

    def page(self, template: str, **values: Any) -> str:
        """A whole page."""
        return self._environment.get_template(template).render(**values)


def failure_values(failure: Failure | None) -> dict[str, Any] | None:
    """What a page says of a failure."""
    if failure is None:
        return None
    return {
        "gone": isinstance(failure.error, RedisUnavailable),
        "since": failure.since,
        "text": str(failure.error),
    }


class LivePage(ABC):
    """A page whose parts change.

    Attributes:
        feed: what changes, for those who watch.

    Args:
        templates: what renders.
    """

    def __init__(self, templates: Templates) -> None:
        self.feed = Feed()
        self._templates = templates
        self._rendering = threading.Lock()
        self._made: Any = None
        self._parts: Parts = {}
        self._rows = Markup()

    @abstractmethod
    def _state(self) -> Any:
        """Another object after each look."""

    @abstractmethod
    def _make(self) -> tuple[float, Parts, Rows]:
        """Redis time, the parts, and the rows of the table."""

    def looked(self) -> None:
        """There is something new: tell those who watch."""
        if self.feed.readers:
            self.current()

    def current(self) -> tuple[str, Parts, Markup]:
        """The version of what there is now, its parts, and the rows of its table."""
        with self._rendering:
            state = self._state()
            if state != self._made:
                at, self._parts, rows = self._make()
                self._rows = Markup("".join(html for _, html in rows.values()))
                self.feed.publish(at, self._parts, rows)
                self._made = state
            return self.feed.version, self._parts, self._rows


class WatchedPage(LivePage, Generic[V]):
    """The page of what a watcher looks at.

    Args:
        watcher: looks at it again and again.
    """

    def __init__(self, templates: Templates, watcher: Watcher[V]) -> None:
        super().__init__(templates)
        self._watcher = watcher
        self._colors: dict[str, int] = {}

    def _state(self) -> Any:
        return (self._watcher.looks, self._watcher.view is None)

    def _make(self) -> tuple[float, Parts, Rows]:
        view, part = self._watcher.view, self._templates.part
        failure = failure_values(self._watcher.failure)
        if view is None:
            return 0.0, {"failure": part("failure", failure, None)}, {}
        parts, rows = self._made_of(view)
        return view.now, {"failure": part("failure", failure, view.now)} | parts, rows

    @abstractmethod
    def _made_of(self, view: V) -> tuple[Parts, Rows]:
        """The parts and the rows of a view."""


class RingPage(WatchedPage[RingView]):
    """The page of a ring.

    Args:
        watcher: the ring's.
    """

    def __init__(self, templates: Templates, watcher: RingWatcher) -> None:
        super().__init__(templates, watcher)
        self._picture_of: tuple[str, tuple[str, ...]] | None = None
        self._picture = Markup()

    def _made_of(self, view: RingView) -> tuple[Parts, Rows]:
        part, colors = self._templates.part, self.colors(view)
        parts = {
            "notes": part("notes", view),
            "figures": part("figures", view),
            "picture": self._drawn(view),
            "log": part("log", view, _LOG),
        }
        rows = {
            node.id: (node.key, part("row", node, view, colors[node.name])) for node in view.nodes
        }
        return parts, rows

    def colors(self, view: RingView) -> dict[str, str]:
        """The colour of each node, as CSS has it."""
        # A node that left and came back has its colour again.
        kept = node_colors(view.by_name, self._colors)
        if kept != self._colors:
            self._colors = kept
        return {name: PALETTE[color] for name, color in kept.items()}

    def _drawn(self, view: RingView) -> Markup:
        expired = {node.name: _points(view.snapshot, node.name) for node in view.expired}
        wanted = (view.ring.fingerprint, tuple(expired))
        if wanted != self._picture_of:
            self._picture = Markup(
                ring_picture(
                    view.ring,
                    title=view.name,
                    colors=self._colors,
                    expired=expired,
                    link=lambda node: (
                        self._templates.link("/ring", name=view.name, node=node) + "#leaves"
                    ),
                    style=False,
                )
            )
            self._picture_of = wanted
        return self._picture

    def leaves(self, view: RingView, node: str | None, *, act: bool) -> Markup:
        """Who inherits when the node leaves."""
        heirs: tuple[Heir, ...] | None = None
        if node is not None and node in view.by_name:
            heirs = view.heirs(node)
        return self._templates.part("leaves", view, node, heirs, self.colors(view), act)

    def lookup(self, view: RingView, found: Lookup | None, *, act: bool) -> Markup:
        """What is known of a key."""
        return self._templates.part("lookup", view, found, self.colors(view), act)

    def marked(self, view: RingView, found: Lookup | None, node: str | None) -> Markup:
        """The picture with a key marked and a node shown."""
        return Markup(
            ring_picture(
                view.ring,
                title=view.name,
                colors=self._colors or None,
                expired={each.name: _points(view.snapshot, each.name) for each in view.expired},
                highlight=() if node is None or node not in view.ring else (node,),
                mark=None
                if found is None or found.error
                else Mark(found.point, formatting.shown(found.key)),
                link=lambda each: (
                    self._templates.link("/ring", name=view.name, node=each) + "#leaves"
                ),
                style=False,
            )
        )


def _points(snapshot: Snapshot, node: str) -> tuple[int, ...]:
    return tuple(replica.point for replica in snapshot.replicas_of(node))


class GroupPage(WatchedPage[GroupView]):
    """The page of a partition group."""

    def _made_of(self, view: GroupView) -> tuple[Parts, Rows]:
        part, colors = self._templates.part, self._colors_of(view)
        parts = {
            "head": part("group_head", view),
            "waits": part("waits", view),
            "grid": part("grid", view, colors),
            "members": part("members", view, colors),
            "log": part("decisions", view),
        }
        return parts, {}

    def _colors_of(self, view: GroupView) -> dict[str, str]:
        names = {member.name for member in view.status.members}
        for cell in view.cells:
            names.update(name for name in (cell.owner, cell.to) if name is not None)
        self._colors = node_colors(names, self._colors)
        return {name: PALETTE[color] for name, color in self._colors.items()}


class IndexPage(LivePage):
    """The list of rings and groups.

    Args:
        service: whose.
    """

    def __init__(self, templates: Templates, service: Service) -> None:
        super().__init__(templates)
        self._service = service

    def _state(self) -> Any:
        return self._service.looks

    def _make(self) -> tuple[float, Parts, Rows]:
        part = self._templates.part
        rings, groups = self._service.listed()
        known = [ring.view.now for ring in rings if ring.view is not None]
        known += [group.view.now for group in groups if group.view is not None]
        at = max(known, default=0.0)
        failure = failure_values(self._service.failure)
        parts = {
            "failure": part("failure", failure, at or None),
            "rings": part("rings", [_entry(ring) for ring in rings]),
            "groups": part("groups", [_entry(group) for group in groups]),
        }
        return at, parts, {}


def _entry(watcher: RingWatcher | GroupWatcher) -> Mapping[str, Any]:
    return {
        "name": watcher.name,
        "view": watcher.view,
        "failure": failure_values(watcher.failure),
    }


class LivePages:
    """Every page that stays up to date; made when first asked for.

    Attributes:
        index: the list of rings and groups.

    Args:
        service: what the pages show.
        templates: what renders.
    """

    def __init__(self, service: Service, templates: Templates) -> None:
        self.index = IndexPage(templates, service)
        self._templates = templates
        self._lock = threading.Lock()
        self._pages: dict[RingWatcher | GroupWatcher, RingPage | GroupPage] = {}

    def ring(self, watcher: RingWatcher) -> RingPage:
        """The page of a ring."""
        page = self._page(watcher, lambda: RingPage(self._templates, watcher))
        assert isinstance(page, RingPage)
        return page

    def group(self, watcher: GroupWatcher) -> GroupPage:
        """The page of a partition group."""
        page = self._page(watcher, lambda: GroupPage(self._templates, watcher))
        assert isinstance(page, GroupPage)
        return page

    def _page(
        self, watcher: RingWatcher | GroupWatcher, make: Callable[[], RingPage | GroupPage]
    ) -> RingPage | GroupPage:
        with self._lock:
            page = self._pages.get(watcher)
            if page is None:
                page = make()
                if watcher.stopping:
                    # Forgotten between the request's arrival and now: shown once more, not kept.
                    page.feed.close()
                else:
                    self._pages[watcher] = page
        return page

    def looked(self, watcher: RingWatcher | GroupWatcher) -> None:
        """Bring the page of what was read up to date."""
        page = self._pages.get(watcher)
        if page is not None:
            page.looked()

    def pulsed(self) -> None:
        """Bring the list up to date."""
        self.index.looked()

    def forgotten(self, watcher: RingWatcher | GroupWatcher) -> None:
        """End the page of what is not watched any more."""
        with self._lock:
            page = self._pages.pop(watcher, None)
        if page is not None:
            page.feed.close()

    def stopped(self) -> None:
        """End all streams."""
        with self._lock:
            pages = list(self._pages.values())
        for page in (*pages, self.index):
            page.feed.close()
