"""A page whose parts change.

It is rendered once after each reading, for all its visitors, and only when it has any.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from markupsafe import Markup

from hashring.drawing.charts import small_chart
from hashring.errors import RedisUnavailable
from hashring.health import Health
from hashring.web.group_view import GroupView
from hashring.web.last_hour import SAMPLES, SPAN, Track, counted_spans, span_of
from hashring.web.page_templates import Templates
from hashring.web.ring_view import RingView
from hashring.web.server_sent_events import Feed, Row
from hashring.web.state_signs import sign
from hashring.web.watcher_health import verdict_of
from hashring.web.watcher_threads import Failure, Watcher

V = TypeVar("V", bound=RingView | GroupView)

Parts = dict[str, Markup]
Rows = dict[str, Row]


def failure_values(failure: Failure | None) -> dict[str, Any] | None:
    """What a page says of a failure."""
    if failure is None:
        return None
    return {
        "gone": isinstance(failure.error, RedisUnavailable),
        "since": failure.since,
        "text": str(failure.error),
    }


def time_of(watcher: Watcher[Any]) -> float:
    """Redis time, counted on since the watcher read it; 0 while nothing was read."""
    view: RingView | GroupView | None = watcher.view
    return 0.0 if view is None else view.now + watcher.since_seen


class LivePage(ABC):
    """A page whose parts change.

    Attributes:
        feed: what changes, for those who watch.
    """

    def __init__(self, templates: Templates) -> None:
        self.feed = Feed()
        self._templates = templates
        self._rendering = threading.Lock()
        self._made: Any = None
        self._parts: Parts = {}
        self._rows: Rows = {}

    @property
    @abstractmethod
    def now(self) -> float:
        """Redis time, counted on since the last reading; 0 while nothing was read."""

    @abstractmethod
    def _state(self) -> Any:
        """Another object after each look."""

    @abstractmethod
    def _make(self) -> tuple[Parts, Rows]:
        """The parts, and the rows of the table."""

    def looked(self) -> None:
        """There is something new: tell those who watch."""
        if self.feed.readers:
            self.current()

    def current(self) -> tuple[str, Parts, Rows]:
        """The version of what there is now, its parts, and the rows of its tables by their ids."""
        with self._rendering:
            state = self._state()
            if state != self._made:
                self._parts, self._rows = self._make()
                self.feed.publish(self.now, self._parts, self._rows)
                self._made = state
            return self.feed.version, self._parts, self._rows


class WatchedPage(LivePage, Generic[V]):
    """The page of what a watcher looks at."""

    def __init__(self, templates: Templates, watcher: Watcher[V]) -> None:
        super().__init__(templates)
        self._watcher = watcher
        self._colors: dict[str, int] = {}
        self._hour_of: Any = None
        self._hour_made = Markup()

    @property
    def now(self) -> float:
        """See :class:`LivePage`."""
        return time_of(self._watcher)

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

    def _make(self) -> tuple[Parts, Rows]:
        view, part = self._watcher.view, self._templates.part
        failure = failure_values(self._watcher.failure)
        health = self.health
        # What Redis reports is in the banner already.
        reasons = [] if failure else [{**reason.as_dict(), "link": ""} for reason in health.reasons]
        common = {
            "failure": part("failure", failure, view.now if view else None),
            "verdict": part("verdict", health.state.value, sign(health.state), reasons),
        }
        if view is None:
            return common, {}
        parts, rows = self._made_of(view, stale=failure is not None)
        return common | parts, rows

    @abstractmethod
    def _made_of(self, view: V, *, stale: bool) -> tuple[Parts, Rows]:
        """The parts and the rows of a view; stale when Redis does not respond since."""
