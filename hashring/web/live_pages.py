"""The pages that stay up to date, and their parts as HTML.

A page is rendered once after each reading, for all its visitors, and only when it has any.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, TypeVar

from markupsafe import Markup

from hashring.core.groups.state import EventKind
from hashring.core.ring_change import ChangeKind
from hashring.drawing.charts import small_chart
from hashring.drawing.palette import node_colors
from hashring.drawing.partition_grid import partition_grid
from hashring.drawing.ring_picture import Mark, ring_colors, ring_picture
from hashring.errors import RedisUnavailable
from hashring.health import Health, NodeHealth, Reason, State, unreadable, worst, worst_first
from hashring.store.group.commands import Decision
from hashring.store.ring.commands import Snapshot
from hashring.web import page_templates
from hashring.web.event_stream import Feed, Row
from hashring.web.group_view import GroupView
from hashring.web.key_lookup import Lookup
from hashring.web.last_hour import (
    SAMPLES,
    SPAN,
    Track,
    counted_spans,
    differences,
    span_of,
)
from hashring.web.page_templates import Templates
from hashring.web.ring_view import Heir, RingView, element_id
from hashring.web.service import Service
from hashring.web.watchers import EVENTS, Failure, GroupWatcher, RingWatcher, Watcher

V = TypeVar("V", bound=RingView | GroupView)

Parts = dict[str, Markup]
Rows = dict[str, Row]

_LOG: Final = 40  # events on a ring's page
_MOST_CELLS: Final = 512  # partitions that are drawn one by one
_MOST_DRAWN: Final = 20_000


_MARKS: Final = {
    State.CHANGING: "◐ changing · ",
    State.DEGRADED: "▲ degraded · ",
    State.UNKNOWN: "◇ unknown · ",
    State.DOWN: "■ down · ",
}
_SIGNS: Final = {
    "none": ("#6b7280", '<circle cx="8" cy="8" r="4.5" fill="none" stroke-width="3"/>'),
    "healthy": ("#1a7f43", '<circle cx="8" cy="8" r="6"/>'),
    "stopped": ("#6b7280", '<circle cx="8" cy="8" r="5" fill="none" stroke-width="2.5"/>'),
    "changing": ("#2563eb", '<path d="M8 2a6 6 0 0 1 0 12Z"/><path d="M8 3a5 5 0 0 0 0 10"/>'),
    "degraded": ("#d97706", '<path d="M8 1L15.5 15H.5Z"/>'),
    "unknown": ("#6b7280", '<path d="M8 1L15 8L8 15L1 8Z" fill="none" stroke-width="2.5"/>'),
    "down": ("#dc2626", '<path d="M1 1H15V15H1Z"/>'),
}
ICONS: Final = {
    state: f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="{color}" '
    f'stroke="{color}" stroke-width="0">{sign}</svg>'
    for state, (color, sign) in _SIGNS.items()
}
"""The icon of a page in each state; ``none`` for pages without one."""
_ROW_ORDER: Final = {
    NodeHealth.EXPIRED: 0,
    NodeHealth.LATE: 1,
    NodeHealth.DRAINED: 2,
    NodeHealth.AWAY: 3,
    NodeHealth.FULL: 4,
    NodeHealth.UP: 5,
}
_WRONG: Final = (State.DEGRADED, State.UNKNOWN, State.DOWN)
_REASONS: Final = 8  # of the list's verdict
_UNREADABLE: Final = Health.of(
    [
        Reason(
            State.UNKNOWN,
            "its key in Redis has no state that can be read",
            "remove the key if no group uses it",
        )
    ]
)


def mark(state: State) -> str:
    """What a page's title begins with in this state; nothing when all is well."""
    return _MARKS.get(state, "")


def _reason(reason: Reason) -> dict[str, str]:
    return {
        "state": reason.state.value,
        "text": reason.text,
        "remedy": reason.remedy,
        "command": reason.command,
        "link": "",
    }


def verdict_of(watcher: Watcher[Any]) -> Health:
    """The verdict on what is watched: unknown while it cannot be read."""
    if watcher.failure is not None:
        return unreadable(watcher.failure.error)
    if watcher.view is not None:
        return watcher.view.health  # type: ignore[no-any-return]
    return _UNREADABLE if watcher.looks else Health(State.UNKNOWN)


def verdict_on_all(service: Service) -> Health:
    """The verdict on all rings and groups of a service, with the reasons of the worst, by name."""
    if service.failure is not None:
        return unreadable(service.failure.error)
    rings, groups = service.listed()
    found: dict[str, Health] = {f"ring {ring.name}": verdict_of(ring) for ring in rings}
    found |= {f"group {group.name}": verdict_of(group) for group in groups}
    state = worst(found.values())
    wrong = sorted(found.items(), key=lambda item: (worst_first(item[1]), item[0]))
    reasons = [
        replace(reason, text=f"{name}: {reason.text}")
        for name, health in wrong
        for reason in health.reasons
        if health.state is state
    ]
    return Health(state, tuple(reasons))


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
        self._rows: Rows = {}

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

    def current(self) -> tuple[str, Parts, Rows]:
        """The version of what there is now, its parts, and the rows of its tables by their ids."""
        with self._rendering:
            state = self._state()
            if state != self._made:
                at, self._parts, self._rows = self._make()
                self.feed.publish(at, self._parts, self._rows)
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
        self._hour_of: Any = None
        self._hour_made = Markup()

    def _state(self) -> Any:
        return (self._watcher.looks, self._watcher.view is None)

    def _charts(
        self, now: float, tracks: Sequence[Track], times: Mapping[str, list[float]], **name: str
    ) -> Markup:
        """The last hour; times of events by the class of their marks."""
        wanted = (span_of(now), [(list(track.values), track.now) for track in tracks], times)
        if wanted != self._hour_of:
            marks = [
                (kind, [place for place, n in enumerate(counted_spans(found, now)) if n])
                for kind, found in times.items()
            ]
            charts = []
            for track in tracks:
                drawn = small_chart(track.title, track.values, marks=marks, bars=track.bars)
                charts.append((track, Markup(drawn)))
            began = (span_of(now) - SAMPLES + 1) * SPAN
            dashboard = self._templates.dashboard(**name)
            self._hour_made = self._templates.part("hour", charts, began, dashboard)
            self._hour_of = wanted
        return self._hour_made

    @property
    def health(self) -> Health:
        """The verdict: unknown while it cannot be read."""
        return verdict_of(self._watcher)

    def _make(self) -> tuple[float, Parts, Rows]:
        view, part = self._watcher.view, self._templates.part
        failure = failure_values(self._watcher.failure)
        health = self.health
        # What Redis reports is in the banner already.
        reasons = [] if failure else [_reason(reason) for reason in health.reasons]
        common = {
            "failure": part("failure", failure, view.now if view else None),
            "verdict": part("verdict", health.state.value, mark(health.state), reasons),
        }
        if view is None:
            return 0.0, common, {}
        parts, rows = self._made_of(view, stale=failure is not None)
        return view.now, common | parts, rows

    @abstractmethod
    def _made_of(self, view: V, *, stale: bool) -> tuple[Parts, Rows]:
        """The parts and the rows of a view; stale when Redis does not respond since."""


class RingPage(WatchedPage[RingView]):
    """The page of a ring.

    Args:
        watcher: the ring's.
    """

    def __init__(self, templates: Templates, watcher: RingWatcher) -> None:
        super().__init__(templates, watcher)
        self._picture_of: tuple[str, tuple[str, ...]] | None = None
        self._picture = Markup()
        self._colors_of: tuple[str, tuple[str, ...]] | None = None

    def _made_of(self, view: RingView, *, stale: bool) -> tuple[Parts, Rows]:
        part, colors = self._templates.part, self.colors(view)
        parts = {
            "notes": part("notes", view),
            "figures": part("figures", view),
            "picture": self._drawn(view),
            "log": part("log", view, _LOG),
            "hour": self._hour(view),
        }
        rows = {
            node.id: Row(
                (node.key, stale), partial(part, "row", node, view, colors[node.name], stale)
            )
            for node in sorted(view.nodes, key=lambda node: _ROW_ORDER[node.state])
        }
        return parts, rows

    def _hour(self, view: RingView) -> Markup:
        nodes, peak, unserved = self._watcher.hour.tracks(view.now)
        changes = [event for event in view.events if event.change is not None]
        # Of more events than are kept, those before are not known.
        since = view.events[0].at if len(view.events) >= EVENTS else None
        counts = counted_spans([event.at for event in changes], view.now, since=since)
        tracks = (
            Track("Nodes", nodes, len(view.live)),
            Track(
                "Busiest",
                peak,
                view.balance.peak_to_mean if view.balance else 0.0,
                unit="\N{MULTIPLICATION SIGN}",
            ),
            Track("Changes", counts, bars=True),
            Track("Keys unserved", unserved, view.unserved, alarm=True),
        )
        bad = [event.at for event in changes if event.kind == ChangeKind.EXPIRE.value]
        others = [event.at for event in changes if event.kind != ChangeKind.EXPIRE.value]
        return self._charts(view.now, tracks, {"": others, "bad": bad}, ring=view.name)

    def colors(self, view: RingView) -> dict[str, str]:
        """The colour of each node, as a class of the style sheet."""
        wanted = (view.ring.fingerprint, tuple(view.by_name))
        if wanted != self._colors_of:
            kept = {**self._colors, **ring_colors(view.ring, self._colors)}
            # Expired nodes are not on the ring, and keep their colour as well.
            self._colors = node_colors(view.by_name, kept)
            self._colors_of = wanted
        return {name: f"hr-f{color}" for name, color in self._colors.items()}

    def _drawn(self, view: RingView) -> Markup:
        wanted = (view.ring.fingerprint, tuple(node.name for node in view.expired))
        if wanted != self._picture_of:
            self._picture = self.marked(view, None, None)
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
                else Mark(found.point, page_templates.shown(found.key)),
                link=lambda each: (
                    self._templates.link("/ring", name=view.name, node=each) + "#leaves"
                ),
                style=False,
            )
        )


def _points(snapshot: Snapshot, node: str) -> tuple[int, ...]:
    return tuple(replica.point for replica in snapshot.replicas_of(node))


class GroupPage(WatchedPage[GroupView]):
    """The page of a partition group.

    Args:
        watcher: the group's.
    """

    def __init__(self, templates: Templates, watcher: GroupWatcher) -> None:
        super().__init__(templates, watcher)
        self._log_of: tuple[Sequence[Decision], str] = ((), "")
        self._log_made = Markup()

    def _log(self, view: GroupView) -> Markup:
        # A decision of a large group has thousands of events.
        decisions, day = self._log_of
        today = page_templates.day(view.now)[:10]
        if decisions is not view.decisions or day != today:
            self._log_of = view.decisions, today
            self._log_made = self._templates.part("decisions", view)
        return self._log_made

    def _made_of(self, view: GroupView, *, stale: bool) -> tuple[Parts, Rows]:
        part, colors = self._templates.part, self._colors_of(view)
        parts = {
            "head": part("group_head", view, stale),
            "orders": part("orders", view),
            "waits": part("waits", view, stale),
            "grid": self._grid(view, colors),
            "log": self._log(view),
            "hour": self._hour(view),
        }
        rows = {}
        blocking = set(view.status.blocking)
        for member in view.status.members:
            id_ = element_id(member.name)
            shown = (member, view.now + member.expires_in, member.name in blocking, stale)
            rows[id_] = Row(shown, partial(part, "member_row", member, id_, view, colors, stale))
        return parts, rows

    def _hour(self, view: GroupView) -> Markup:
        members, unowned, handoffs, generation = self._watcher.hour.tracks(view.now)
        tracks = (
            Track("Members", members, len(view.status.members)),
            Track("Without an owner", unowned, len(view.status.unowned), alarm=True),
            Track("Handoffs under way", handoffs, len(view.state.handoffs)),
            Track("Decisions", differences(generation), bars=True),
        )
        bad: list[float] = []
        others: list[float] = []
        for decision in view.decisions:
            gone = any(event.kind is EventKind.EXPIRED for event in decision.events)
            (bad if gone else others).append(decision.at)
        return self._charts(view.now, tracks, {"": others, "bad": bad}, group=view.name)

    def _grid(self, view: GroupView, colors: Mapping[str, str]) -> Markup:
        cells = view.cells
        if len(cells) <= _MOST_CELLS:
            return self._templates.part("grid", view, colors)
        if len(cells) > _MOST_DRAWN:
            return self._templates.part("too_many", len(cells))
        return Markup(
            partition_grid(
                {cell.number: cell.owner for cell in cells},
                self._colors,
                moving={cell.number: cell.to for cell in cells if cell.to is not None},
                draining=[cell.number for cell in cells if cell.doing == "drain"],
                label="Partitions by owner; the table of members says the same in words",
            )
        )

    def _colors_of(self, view: GroupView) -> dict[str, str]:
        names = {member.name for member in view.status.members}
        for cell in view.cells:
            names.update(name for name in (cell.owner, cell.to) if name is not None)
        self._colors = node_colors(names, self._colors)
        return {name: f"hr-f{color}" for name, color in self._colors.items()}


class _Entry:
    """A ring or group in the list; the same object while nothing new was read of it.

    Attributes:
        watcher, view: what is listed, and what was read of it last.
        of: what it was made of.
        id, kind, name, state, reasons, health: what the row shows.
        order: the worst first.
        size: how many nodes or members live.
        row: of the table.
    """

    def __init__(
        self,
        kind: str,
        watcher: RingWatcher | GroupWatcher,
        of: tuple[Any, ...],
        health: Health,
        templates: Templates,
    ) -> None:
        view = of[0]
        self.watcher, self.of, self.kind, self.view = watcher, of, kind, view
        self.id = f"{kind}-{element_id(watcher.name)}"
        self.name, self.health = watcher.name, health
        self.state, self.reasons = health.state.value, health.reasons
        self.order = worst_first(health)
        self.size = 0
        shown: list[Any] = [health.state, [reason.text for reason in health.reasons[:1]]]
        if isinstance(view, RingView):
            self.size = len(view.live)
            peak = view.balance.peak_to_mean if view.balance else 0.0
            last = view.events[-1].id if view.events else ""
            off = [len(nodes) for nodes in (view.drained, view.away, view.expired)]
            shown += [self.size, *off, round(peak, 2), last]
        elif view is not None:
            self.size = len(view.status.members)
            shown += [self.size, view.status.partitions, view.status.generation]
        self.row = Row(shown, partial(templates.part, f"{kind}_row", self))


class IndexPage(LivePage):
    """The list of rings and groups.

    Args:
        service: whose.
    """

    def __init__(self, templates: Templates, service: Service) -> None:
        super().__init__(templates)
        self._service = service
        self._entries: dict[RingWatcher | GroupWatcher, _Entry] = {}

    def _state(self) -> Any:
        return self._service.looks

    @property
    def health(self) -> Health:
        """The verdict on everything."""
        return verdict_on_all(self._service)

    def _make(self) -> tuple[float, Parts, Rows]:
        part = self._templates.part
        rings, groups = self._service.listed()
        entries = [self._entry("ring", ring) for ring in rings]
        entries += [self._entry("group", group) for group in groups]
        self._entries = {entry.watcher: entry for entry in entries}
        at = max((entry.view.now for entry in entries if entry.view is not None), default=0.0)
        parts = {
            "failure": part("failure", failure_values(self._service.failure), at or None),
            "verdict": self._verdict(entries),
            "totals": part(
                "totals",
                len(rings),
                len(groups),
                sum(entry.size for entry in entries[: len(rings)]),
                sum(entry.size for entry in entries[len(rings) :]),
            ),
        }
        # Of equal ones, those of earlier names are first.
        entries.sort(key=lambda entry: (entry.kind != "ring", entry.order))
        return at, parts, {entry.id: entry.row for entry in entries}

    def _entry(self, kind: str, watcher: RingWatcher | GroupWatcher) -> _Entry:
        # A ring that is looked at rarely has not met the failure yet.
        # Nor need each row say what stands above the list.
        blind = self._service.failure is not None
        of = (watcher.view, watcher.failure, watcher.looks > 0, blind)
        known = self._entries.get(watcher)
        if known is not None and all(a is b for a, b in zip(known.of, of, strict=True)):
            return known
        health = Health(State.UNKNOWN) if blind else verdict_of(watcher)
        return _Entry(kind, watcher, of, health, self._templates)

    def _verdict(self, every: list[_Entry]) -> Markup:
        state = self.health.state
        wrong = [entry for entry in every if entry.health.state in _WRONG]
        wrong.sort(key=lambda entry: entry.order)
        reasons = [
            _reason(reason)
            | {
                "name": entry.name,
                "link": self._templates.link(f"/{entry.kind}", name=entry.name),
            }
            for entry in wrong
            for reason in entry.reasons
        ]
        if self._service.failure is not None:
            reasons, headline = [], "Redis does not respond, so nothing is known."
        elif wrong:
            verb = "needs" if len(wrong) == 1 else "need"
            kinds = " and ".join(
                f"{kind}s" for kind in ("ring", "group") if any(e.kind == kind for e in every)
            )
            headline = f"{len(wrong)} of {len(every)} {kinds} {verb} attention."
        elif every:
            headline = "All rings and groups are as they should be."
        else:
            headline = "There is nothing here yet."
        more = max(0, len(reasons) - _REASONS)
        return self._templates.part(
            "overview", state.value, mark(state), headline, reasons[:_REASONS], more
        )


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
                    feed = page.feed
                    watcher.followed = lambda: feed.readers > 0
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
