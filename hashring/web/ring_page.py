"""The page of a ring: its parts, its picture and the rows of its nodes as HTML."""

from __future__ import annotations

from functools import partial
from typing import Final

from markupsafe import Markup

from hashring.core.ring_change_message import ChangeKind
from hashring.drawing.node_colors import node_colors
from hashring.drawing.ring_picture import Mark, ring_colors, ring_picture
from hashring.health import NodeHealth
from hashring.store.ring.snapshot import Snapshot
from hashring.web import page_templates
from hashring.web.key_lookup import Lookup
from hashring.web.last_hour import Track, counted_spans
from hashring.web.live_page import Parts, Rows, WatchedPage
from hashring.web.page_templates import Templates
from hashring.web.ring_view import RingView
from hashring.web.ring_watcher import EVENTS, RingWatcher
from hashring.web.server_sent_events import Row

_LOG: Final = 40  # events on a ring's page
_ROW_ORDER: Final = {
    NodeHealth.EXPIRED: 0,
    NodeHealth.LATE: 1,
    NodeHealth.DRAINED: 2,
    NodeHealth.AWAY: 3,
    NodeHealth.FULL: 4,
    NodeHealth.UP: 5,
}


class RingPage(WatchedPage[RingView]):
    """The page of a ring."""

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
        heirs = view.heirs(node) if node is not None and node in view.by_name else None
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
