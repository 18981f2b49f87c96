"""The list of rings and groups: its rows and the verdict on all of them as HTML."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from markupsafe import Markup

from hashring.health import Health, State, worst_first
from hashring.web.group_watcher import GroupWatcher
from hashring.web.live_page import LivePage, Parts, Rows, failure_values, time_of
from hashring.web.page_templates import Templates
from hashring.web.ring_view import RingView, element_id
from hashring.web.ring_watcher import RingWatcher
from hashring.web.server_sent_events import Row
from hashring.web.service import Service
from hashring.web.state_signs import sign
from hashring.web.watcher_health import doubts, verdict_of, verdict_on_all

_WRONG: Final = (State.DEGRADED, State.UNKNOWN, State.DOWN)
_REASONS: Final = 8  # of the list's verdict


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
    """The list of rings and groups."""

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

    @property
    def now(self) -> float:
        """See :class:`LivePage`."""
        rings, groups = self._service.listed()
        watchers: list[RingWatcher | GroupWatcher] = [*rings, *groups]
        return max(map(time_of, watchers), default=0.0)

    def _make(self) -> tuple[Parts, Rows]:
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
        return parts, {entry.id: entry.row for entry in entries}

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
            reason.as_dict()
            | {
                "name": entry.name,
                "link": self._templates.link(f"/{entry.kind}", name=entry.name),
            }
            for entry in wrong
            for reason in entry.reasons
        ]
        unknown = doubts(self._service)
        own = {"name": "this service", "link": self._templates.link("/")}
        reasons = [reason.as_dict() | own for reason in unknown] + reasons
        if self._service.failure is not None:
            reasons, headline = [], "Redis does not respond, so nothing is known."
        elif not self._service.answered:
            reasons, headline = [], "Redis has not responded yet, so nothing is known."
        elif wrong:
            verb = "needs" if len(wrong) == 1 else "need"
            kinds = " and ".join(
                f"{kind}s" for kind in ("ring", "group") if any(e.kind == kind for e in every)
            )
            headline = f"{len(wrong)} of {len(every)} {kinds} {verb} attention."
        elif self._service.unwatched:
            headline = "Not all rings and groups are watched."
        elif unknown:
            headline = "It is not known whether these are all rings and groups."
        elif every:
            headline = "All rings and groups are as they should be."
        else:
            headline = "There is nothing here yet."
        more = max(0, len(reasons) - _REASONS)
        return self._templates.part(
            "overview", state.value, sign(state), headline, reasons[:_REASONS], more
        )
