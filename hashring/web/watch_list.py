"""Which rings and groups a service watches: those that were found, as far as there is place."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any, Final, Protocol

from hashring.core.readable import counted
from hashring.errors import HashringError
from hashring.health import State
from hashring.metrics import FleetCollector
from hashring.store.discovery import Found
from hashring.store.group.commands import group_keys, read
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import FORGET, Scoring, snapshot
from hashring.store.ring.key_names import ring_keys
from hashring.web.redis_requests import RedisRequests
from hashring.web.watchers import INTERVAL, GroupWatcher, RingWatcher, Watcher

log = logging.getLogger("hashring.web")

MOST: Final = 500
"""How many rings and groups are watched; of more, those that were stopped are not."""

LOOKS: Final = 80
"""Looks per second at all rings and groups together that nobody follows, at most."""

_FIRST_LOOK: Final = 2.0  # seconds that a page waits for the first look at its ring


class NotWatched(HashringError):
    """There is such a ring or group, and no place to watch it."""


class Listener(Protocol):
    """Receives what a service's watchers have read. Called from their threads."""

    def looked(self, watcher: RingWatcher | GroupWatcher) -> None:
        """A ring or group was read, or could not be."""

    def pulsed(self) -> None:
        """Redis responded, or did not."""

    def forgotten(self, watcher: RingWatcher | GroupWatcher) -> None:
        """A ring or group is not watched any more."""

    def stopped(self) -> None:
        """The service has stopped."""


class WatchList:
    """The watchers of a Redis' rings and groups.

    Args:
        store: Redis.
        responding: the same for a request that waits; raises when Redis does not respond.
        wanted: rings to watch whether they are found or not.
        scoring: what the scores of ``wanted`` mean, or without any, of all rings; by default what
            they mean to this package's nodes, as on all other rings.
        forget_after: seconds after which a ring that was stopped is not watched any more, until a
            node joins it again; ``inf`` for never. Those that are wanted always are.
        metrics: told what was read.

    Attributes:
        listeners: told of what was read.
        unwatched: how many of the rings and groups that were found have no place to be watched.
            Those that were stopped, and made way for others, are not among them.

    Raises:
        ConfigError: no ring can have that name.
    """

    def __init__(
        self,
        store: RedisStore,
        *,
        responding: Callable[[], RedisRequests],
        wanted: Iterable[str],
        scoring: Scoring | None,
        forget_after: float,
        metrics: FleetCollector,
    ) -> None:
        self._store = store
        self._responding = responding
        self._wanted = tuple(wanted)
        for name in self._wanted:
            ring_keys(name)
        self._scoring = scoring
        self._forget_after = forget_after
        self._metrics = metrics
        self.listeners: list[Listener] = []
        self.unwatched = 0
        self._lock = threading.Lock()
        self._rings: dict[str, RingWatcher] = {}
        self._groups: dict[str, GroupWatcher] = {}
        self._over: set[str] = set()
        self._aside: set[Found] = set()
        self._stopped = False

    def start(self) -> None:
        """Begin with what is wanted."""
        for name in self._wanted:
            self._watch_ring(name)

    def end(self) -> list[Watcher[Any]]:
        """Watch nothing more from now on; the watchers, which are to be stopped."""
        with self._lock:
            self._stopped = True
            return [*self._rings.values(), *self._groups.values()]

    def listed(self) -> tuple[list[RingWatcher], list[GroupWatcher]]:
        """The watchers, by name."""
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
            NotWatched: there is one, and no place for it.
        """
        watcher = self._rings.get(name)
        if watcher is None:
            seen = self._responding().run(snapshot(ring_keys(name), scoring=self._scoring_of(name)))
            if not seen.stamp.epoch and not seen.replicas:
                return None
            self._make_way(1)
            watcher = self._watch_ring(name)
            self._check_place("ring", name, watcher)
        if watcher is not None:
            watcher.wait_for_first(_FIRST_LOOK)
        return watcher

    def group(self, name: str) -> GroupWatcher | None:
        """The watcher of a group; as :meth:`ring`."""
        watcher = self._groups.get(name)
        if watcher is None:
            if self._responding().run(read(group_keys(name))).standing() is None:
                return None
            self._make_way(1)
            watcher = self._watch_group(name)
            self._check_place("group", name, watcher)
        if watcher is not None:
            watcher.wait_for_first(_FIRST_LOOK)
        return watcher

    def adopt(self, found: frozenset[Found]) -> None:
        """Watch what was found, and nothing that is gone."""
        self._watch_found(found)
        names = {kind: {f.name for f in found if f.kind == kind} for kind in ("ring", "group")}
        names["ring"].update(self._wanted)
        rings, groups = self.listed()
        every: list[Watcher[Any]] = [*rings, *groups]
        for each in every:
            each.pace = max(INTERVAL, len(every) / LOOKS)
        for watcher in rings:
            if self._is_over(watcher):
                self._over.add(watcher.name)
                self._forget(watcher)
            # One that was asked for may be newer than the search.
            elif watcher.name not in names["ring"] and watcher.is_gone:
                self._forget(watcher)
        for other in groups:
            if other.name not in names["group"] and other.is_gone:
                self._forget(other)

    def _scoring_of(self, ring: str) -> Scoring:
        if self._scoring is None or (self._wanted and ring not in self._wanted):
            return Scoring.expiry(0.0)
        return self._scoring

    def _check_place(self, kind: str, name: str, watcher: Watcher[Any] | None) -> None:
        if watcher is None and not self._stopped:
            raise NotWatched(
                f"there is a {kind} {name!r}, and it is not watched: this service watches {MOST} "
                "rings and groups at most; hashring status looks at all of them"
            )

    def _watch_ring(self, name: str) -> RingWatcher | None:
        with self._lock:
            if name in self._rings or not self._room:
                return self._rings.get(name)
            watcher = RingWatcher(self._store, name, self._scoring_of(name))
            watcher.looked = lambda: self._ring_looked(watcher)
            self._rings[name] = watcher
            watcher.start()
        return watcher

    def _watch_group(self, name: str) -> GroupWatcher | None:
        with self._lock:
            if name in self._groups or not self._room:
                return self._groups.get(name)
            watcher = GroupWatcher(self._store, name)
            watcher.looked = lambda: self._group_looked(watcher)
            self._groups[name] = watcher
            watcher.start()
        return watcher

    def _ring_looked(self, watcher: RingWatcher) -> None:
        view = watcher.view
        if watcher.failure is None and view is not None:
            self._metrics.saw_ring(view.metrics_reading(watcher.new_events))
        for listener in self.listeners:
            listener.looked(watcher)

    def _group_looked(self, watcher: GroupWatcher) -> None:
        view = watcher.view
        if watcher.failure is None and view is not None:
            self._metrics.saw_group(view.metrics_reading())
        for listener in self.listeners:
            listener.looked(watcher)

    @property
    def _room(self) -> int:
        """How many more may be watched."""
        return 0 if self._stopped else max(0, MOST - len(self._rings) - len(self._groups))

    def _watch_found(self, found: frozenset[Found]) -> None:
        """Watch what was found as far as there is place."""
        self._aside &= found
        new = [each for each in _in_turn(found) if not self._is_watched(each)]
        new = [each for each in new if each.kind != "ring" or not self._is_still_over(each.name)]
        aside = [each for each in new if each in self._aside and not self._runs_again(each)]
        first = [each for each in new if each not in aside]
        self._make_way(len(first))
        # Those that are stopped have what place is left.
        for kind, name in (*first, *aside)[: self._room]:
            self._aside.discard(Found(kind, name))
            if kind == "ring":
                self._watch_ring(name)
            else:
                self._watch_group(name)
        unwatched = 0 if self._stopped else sum(not self._is_watched(each) for each in first)
        if unwatched and unwatched != self.unwatched:
            text = "%s not watched: a service watches %d at most"
            log.warning(text, counted(unwatched, "ring or group", "rings and groups"), MOST)
        self.unwatched = unwatched
        self._metrics.left_out(unwatched)

    def _is_watched(self, found: Found) -> bool:
        return found.name in (self._rings if found.kind == "ring" else self._groups)

    def _runs_again(self, found: Found) -> bool:
        """Whether a ring or group that was stopped has nodes or members again."""
        if found.kind == "ring":
            return bool(self._store.call("ZCARD", ring_keys(found.name).ring))
        return bool(self._store.call("HLEN", group_keys(found.name).members))

    def _make_way(self, wanted: int) -> None:
        """Watch some of those no more that were stopped, if so many others have no place."""
        missing = wanted - self._room
        if missing <= 0 or self._stopped:
            return
        rings, groups = self.listed()
        watchers: list[RingWatcher | GroupWatcher] = [*rings, *groups]
        stopped = [each for each in watchers if self._is_stopped(each) and not each.followed()]
        for watcher in stopped[:missing]:
            kind = "ring" if isinstance(watcher, RingWatcher) else "group"
            self._aside.add(Found(kind, watcher.name))
            self._forget(watcher)

    def _is_stopped(self, watcher: RingWatcher | GroupWatcher) -> bool:
        view = watcher.view
        if view is None or watcher.failure is not None:
            return False
        wanted = isinstance(watcher, RingWatcher) and watcher.name in self._wanted
        return not wanted and view.health.state is State.STOPPED

    def _is_over(self, watcher: RingWatcher) -> bool:
        """Whether its nodes left so long ago that nobody wants to see it."""
        view = watcher.view
        if watcher.name in self._wanted or watcher.failure is not None or view is None:
            return False
        if view.health.state is not State.STOPPED or not view.events:
            return False
        if view.events[-1].kind == FORGET:
            return True
        return view.now - view.events[-1].at > self._forget_after

    def _is_still_over(self, name: str) -> bool:
        if name in self._over and self._store.call("ZCARD", ring_keys(name).ring):
            self._over.discard(name)
        return name in self._over

    def _forget(self, watcher: RingWatcher | GroupWatcher) -> None:
        of_ring = isinstance(watcher, RingWatcher)
        watchers: dict[str, Any] = self._rings if of_ring else self._groups
        with self._lock:
            watchers.pop(watcher.name, None)
        watcher.stop()
        forget = self._metrics.forget_ring if of_ring else self._metrics.forget_group
        forget(watcher.name)
        for listener in self.listeners:
            listener.forgotten(watcher)


def _in_turn(found: Iterable[Found]) -> list[Found]:
    """By name, a ring and a group in turn, so that many of one kind leave place for the other."""
    ordered = sorted(found)
    rings = [each for each in ordered if each.kind == "ring"]
    groups = [each for each in ordered if each.kind != "ring"]
    return [each for pair in zip_longest(rings, groups) for each in pair if each is not None]
