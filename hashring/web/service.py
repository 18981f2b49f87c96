"""The service: its watchers, its pages, and its WSGI application."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from hashring.errors import ConfigError
from hashring.metrics import FleetCollector
from hashring.store.commands import Scoring, snapshot
from hashring.store.discovery import Found
from hashring.store.executor import RedisStore
from hashring.store.group_commands import group_keys, read
from hashring.store.keys import ring_keys
from hashring.web.watch import (
    Failure,
    GroupWatcher,
    NamesWatcher,
    PulseWatcher,
    RingWatcher,
    Watcher,
)

if TYPE_CHECKING:
    from flask import Flask

log = logging.getLogger("hashring.web")

MOST: Final = 500
"""How many rings and groups are watched; of more, the first by name."""

_PATIENCE: Final = 5.0  # seconds that Redis may take to answer
_FIRST_LOOK: Final = 2.0  # seconds that a page waits for the first look at its ring


class Service:
    """Watches all rings and groups of a Redis, and shows them.

    Args:
        redis: a sync client of redis-py or valkey-py. The service takes from it where Redis is,
            and makes connections of its own.
        rings: rings to watch from the beginning, besides those that are found: a ring is found
            once a node of this package has joined it.
        scoring: what the scores of the rings mean; by default that of this package's nodes.
        redis_shown: where Redis is, as pages and logs may show it: without a password.
        base_path: what every path begins with, such as ``/hashring``; empty for nothing.
        allowed_hosts: names that requests may ask for, besides IP addresses, ``localhost`` and
            this machine's name; ``*`` for any.
        token: the secret that actions need; ``None`` for no actions.

    Attributes:
        base_path, redis_shown: as given.
        metrics: what Prometheus is told.

    Raises:
        ConfigError: an argument cannot work.
    """

    def __init__(
        self,
        redis: Any,
        *,
        rings: Iterable[str] = (),
        scoring: Scoring | None = None,
        redis_shown: str = "",
        base_path: str = "",
        allowed_hosts: Iterable[str] = (),
        token: str | None = None,
    ) -> None:
        # These two know what a service is.
        from hashring.web import app, pages  # noqa: PLC0415

        self.base_path = checked_base_path(base_path)
        self.redis_shown = redis_shown
        self._store = RedisStore(redis, _PATIENCE)
        self._scoring = scoring or Scoring.expiry(0.0)
        self._lock = threading.Lock()
        self._stopped = False
        self._rings: dict[str, RingWatcher] = {}
        self._groups: dict[str, GroupWatcher] = {}
        self._wanted = tuple(rings)
        for name in self._wanted:
            ring_keys(name)
        self._pages = pages
        self._templates = pages.Templates(self.base_path, redis_shown, actions=token is not None)
        self._ring_pages: dict[str, pages.RingPage] = {}
        self._group_pages: dict[str, pages.GroupPage] = {}
        self._pulse = PulseWatcher(self._store)
        self._names = NamesWatcher(self._store)
        self.index: pages.IndexPage = pages.IndexPage(self._templates, self)
        self.metrics = FleetCollector()
        self._pulse.looked = self._pulsed
        self._names.looked = self._adopt
        self.app: Flask = app.create_app(self, self._templates, allowed_hosts, token)

    # --- beginning and end --------------------------------------------------------------------

    def start(self) -> None:
        """Begin to watch. Redis need not be there yet."""
        for name in self._wanted:
            self._watch_ring(name)
        self._pulse.start()
        self._names.start()

    def stop(self, timeout: float = 1.0) -> None:
        """End all watchers and all streams.

        Args:
            timeout: seconds to wait for watchers; one that waits for an answer of Redis ends
                when that comes, or its time is over.
        """
        deadline = time.monotonic() + timeout
        with self._lock:
            self._stopped = True
            watchers: list[Watcher[Any]] = [*self._rings.values(), *self._groups.values()]
            feeds = [page.feed for page in self._ring_pages.values()]
            feeds += [page.feed for page in self._group_pages.values()]
        watchers += [self._pulse, self._names]
        for watcher in watchers:
            watcher.stop()
        for feed in (*feeds, self.index.feed):
            feed.close()
        for watcher in watchers:
            watcher.join(max(0.0, deadline - time.monotonic()))
        self._store.close()

    @property
    def stopped(self) -> bool:
        """Whether it has been told to stop."""
        return self._stopped

    # --- what is watched ----------------------------------------------------------------------

    @property
    def store(self) -> RedisStore:
        """Redis itself, for what nobody watches: the lock of one key, actions."""
        return self._store

    @property
    def failure(self) -> Failure | None:
        """Why Redis does not answer; ``None`` when it does."""
        return self._pulse.failure

    @property
    def latency(self) -> float | None:
        """Seconds that the last round trip to Redis took; ``None`` before the first."""
        return self._pulse.view.latency if self._pulse.view else None

    @property
    def ready(self) -> bool:
        """Whether Redis has answered, and did so last time."""
        return self._pulse.view is not None and self._pulse.failure is None

    @property
    def looks(self) -> int:
        """Another number at least once a second while anything is watched."""
        return self._pulse.looks + self._names.looks

    def listed(self) -> tuple[list[RingWatcher], list[GroupWatcher]]:
        """The watchers of all rings and groups, by name."""
        with self._lock:
            rings, groups = list(self._rings.values()), list(self._groups.values())
        rings.sort(key=lambda watcher: watcher.name)
        groups.sort(key=lambda watcher: watcher.name)
        return rings, groups

    def ring(self, name: str) -> RingWatcher | None:
        """The watcher of a ring; ``None`` when there is no such ring, as far as is known.

        A ring that nobody has found yet is looked for.

        Raises:
            ConfigError: no ring can have that name.
            StoreError: Redis does not say whether there is one.
        """
        watcher = self._rings.get(name)
        if watcher is None:
            seen = self._store.run(snapshot(ring_keys(name), scoring=self._scoring))
            if not seen.stamp.epoch and not seen.replicas:
                return None
            watcher = self._watch_ring(name)
        if watcher is not None:
            watcher.wait_for_first(_FIRST_LOOK)
        return watcher

    def group(self, name: str) -> GroupWatcher | None:
        """The watcher of a group; as :meth:`ring`."""
        watcher = self._groups.get(name)
        if watcher is None:
            if self._store.run(read(group_keys(name))).standing() is None:
                return None
            watcher = self._watch_group(name)
        if watcher is not None:
            watcher.wait_for_first(_FIRST_LOOK)
        return watcher

    def ring_page(self, watcher: RingWatcher) -> Any:
        """The page of a watched ring."""
        return self._ring_pages[watcher.name]

    def group_page(self, watcher: GroupWatcher) -> Any:
        """The page of a watched group."""
        return self._group_pages[watcher.name]

    def _watch_ring(self, name: str) -> RingWatcher | None:
        with self._lock:
            if name in self._rings or self._full():
                return self._rings.get(name)
            watcher = RingWatcher(self._store, name, self._scoring)
            page = self._pages.RingPage(self._templates, watcher)
            watcher.looked = lambda: self._ring_looked(watcher, page)
            self._ring_pages[name], self._rings[name] = page, watcher
            watcher.start()
        return watcher

    def _watch_group(self, name: str) -> GroupWatcher | None:
        with self._lock:
            if name in self._groups or self._full():
                return self._groups.get(name)
            watcher = GroupWatcher(self._store, name)
            page = self._pages.GroupPage(self._templates, watcher)
            watcher.looked = lambda: self._group_looked(watcher, page)
            self._group_pages[name], self._groups[name] = page, watcher
            watcher.start()
        return watcher

    def _pulsed(self) -> None:
        if self._pulse.failure is None and self._pulse.view is not None:
            self.metrics.redis_answered(self._pulse.view.latency)
        else:
            self.metrics.redis_failed()
        self.index.looked()

    def _ring_looked(self, watcher: RingWatcher, page: Any) -> None:
        view = watcher.view
        if watcher.failure is None and view is not None:
            self.metrics.saw_ring(view.metrics_reading(watcher.new_events))
        page.looked()

    def _group_looked(self, watcher: GroupWatcher, page: Any) -> None:
        view = watcher.view
        if watcher.failure is None and view is not None:
            self.metrics.saw_group(view.metrics_reading())
        page.looked()

    def _full(self) -> bool:
        return self._stopped or len(self._rings) + len(self._groups) >= MOST

    def _adopt(self) -> None:
        """Watch what was found, and nothing that is gone."""
        found: frozenset[Found] | None = self._names.view
        if found is None or self._names.failure is not None:
            return
        for kind, name in sorted(found):
            if kind == "ring":
                self._watch_ring(name)
            else:
                self._watch_group(name)
        names = {kind: {f.name for f in found if f.kind == kind} for kind in ("ring", "group")}
        names["ring"].update(self._wanted)
        rings, groups = self.listed()
        for watcher in rings:
            # One that was asked for may be newer than the search.
            if watcher.name not in names["ring"] and watcher.is_gone:
                self._forget(watcher, self._rings, self._ring_pages)
                self.metrics.forget_ring(watcher.name)
        for other in groups:
            if other.name not in names["group"] and other.is_gone:
                self._forget(other, self._groups, self._group_pages)
                self.metrics.forget_group(other.name)

    def _forget(self, watcher: Any, watchers: dict[str, Any], pages: dict[str, Any]) -> None:
        with self._lock:
            watchers.pop(watcher.name, None)
            page = pages.pop(watcher.name, None)
        watcher.stop()
        if page is not None:
            page.feed.close()


def checked_base_path(path: str) -> str:
    """The path itself, when it can be one.

    Raises:
        ConfigError: it is not empty and does not look like ``/one/two``.
    """
    parts = path.split("/")
    plain = all(part and part.replace("-", "").replace("_", "").isalnum() for part in parts[1:])
    if path and not (parts[0] == "" and plain and path.isascii()):
        raise ConfigError(
            "base_path", path, "begins with a slash, ends without one, and has plain words between"
        )
    return path
