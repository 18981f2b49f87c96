"""Read a ring once for all visitors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hashring.core.replica import Replica
from hashring.metrics import FleetCollector
from hashring.store.discovery import Found
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.ring_events import BEFORE_ALL, RingEvent, continued
from hashring.store.ring.snapshot import snapshot
from hashring.web.last_hour import LastHour
from hashring.web.ring_view import RingView
from hashring.web.watcher_threads import FoundWatcher

EVENTS: Final = 500
"""How many of a ring's last events a watcher keeps."""


class RingWatcher(FoundWatcher[RingView]):
    """Watches a ring.

    Attributes:
        new_events: those that the last look brought.
        scoring: what its scores mean.
    """

    def __init__(self, store: RedisStore, name: str, scoring: Scoring) -> None:
        self.keys = ring_keys(name)
        super().__init__(store, Found("ring", name), self.keys.channel)
        self.scoring = scoring
        self._events: tuple[RingEvent, ...] = ()
        self._taken_back: Mapping[str, str] = {}
        self._parsed: dict[bytes, Replica] = {}
        self.hour = LastHour(min, max, max)
        self.new_events: tuple[RingEvent, ...] = ()

    @property
    def is_gone(self) -> bool:
        """Whether it has looked, and there is nothing of the ring."""
        view = self.view
        return self.failure is None and view is not None and view.is_empty

    def _look(self) -> RingView:
        """Read the ring and what is new in its history."""
        seen = self._store.run(snapshot(self.keys, scoring=self.scoring, parsed=self._parsed))
        known = self._events
        stand, new = continued(self._store, self.keys, known, EVENTS)
        # All that are new, however many: a stream sends what it finds here.
        events = (*stand, *new)[-max(EVENTS, len(new)) :]
        if self._taken_back or len(stand) < len(known):
            self._take_back(known[len(stand) :], stand[-1].id if stand else BEFORE_ALL, new)
        before = self.view
        view = RingView(self.name, seen, events, self.scoring, before, taken_back=self._taken_back)
        # The last node leaves a trace, unless all were of redis-hashring.
        ran = self.lost or (before is not None and before.epoch > 0 and bool(before.live))
        self.lost = view.is_empty and ran
        # If some were taken back, all: by those that stand, the metrics know which come after them.
        self._events, self.new_events = events, tuple(new) if stand is known else events
        return view

    def _take_back(
        self, taken: Sequence[RingEvent], standing: str, new: Sequence[RingEvent]
    ) -> None:
        """Note which events do not stand, and the last one before them that does."""
        ids = {**self._taken_back, **dict.fromkeys((event.id for event in taken), standing)}
        for event in new:
            ids.pop(event.id, None)  # noted again, or another failover brought it back
        self._taken_back = dict([*ids.items()][-EVENTS:])

    def latest_time(self, view: RingView) -> float:
        """Redis time now, or a little later, seconds since 1970, given the last view.

        No change that another service has read already is later.
        """
        return view.now + self.took + self.since_seen

    def report(self, metrics: FleetCollector) -> None:
        """Report what was seen last to the metrics."""
        if self.view is not None:
            metrics.saw_ring(self.view.metrics_reading(self.new_events))

    def _note(self, view: RingView | None) -> None:
        if view is not None:
            peak = view.balance.peak_to_mean if view.balance else 0.0
            self.hour.add(view.now, len(view.live), peak, view.unserved)
