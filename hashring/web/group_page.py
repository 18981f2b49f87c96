"""The page of a partition group: its parts, its grid and the rows of its members as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from markupsafe import Markup

from hashring.core.groups.state import EventKind
from hashring.drawing.node_colors import node_colors
from hashring.drawing.partition_grid import partition_grid
from hashring.store.group.decision_history import Decision
from hashring.web import page_templates
from hashring.web.group_view import GroupView
from hashring.web.group_watcher import GroupWatcher
from hashring.web.last_hour import Track, differences
from hashring.web.live_page import Parts, Rows, WatchedPage
from hashring.web.page_templates import Templates
from hashring.web.ring_view import element_id
from hashring.web.server_sent_events import Row

_MOST_CELLS: Final = 512  # partitions that are drawn one by one
_MOST_DRAWN: Final = 20_000


class GroupPage(WatchedPage[GroupView]):
    """The page of a partition group."""

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
