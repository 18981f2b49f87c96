"""Which rings and groups a service watches: those that were found, as far as there is place."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any, Final, Protocol

from hashring.core.readable_numbers import counted
from hashring.errors import HashringError
from hashring.health import State
from hashring.metrics import FleetCollector
from hashring.store.discovery import Found
from hashring.store.group.key_names import group_keys
from hashring.store.group.reading import read
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.snapshot import snapshot
from hashring.web.group_watcher import GroupWatcher
from hashring.web.redis_requests import RedisRequests
from hashring.web.ring_watcher import RingWatcher
from hashring.web.watcher_threads import INTERVAL, Watcher

log = logging.getLogger("hashring.web")

MOST: Final = 500
"""How many rings and groups are watched; of more, those that were stopped are not."""

LOOKS: Final = 80
"""Looks per second at all rings and groups together that nobody follows, at most."""

_FIRST_LOOK: Final = 2.0  # seconds that a page waits for the first look at its ring


class NotWatched(HashringError):
    """There is such a ring or group, and no place or no thread to watch it."""


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
        wanted, scoring, forget_after: ``rings`` and the others of :class:`hashring.web.Service`.
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
        self._watchers: dict[Found, RingWatcher | GroupWatcher] = {}
        self._over: set[Found] = set()
        self._aside: set[Found] = set()
        self._stopped = False

    def start(self) -> None:
        """Begin with what is wanted."""
        for name in self._wanted:
            self._watch(Found("ring", name))

    def end(self) -> list[Watcher[Any]]:
        """Watch nothing more from now on; the watchers, which are to be stopped."""
        with self._lock:
            self._stopped = True
            return list(self._watchers.values())

    def listed(self) -> tuple[list[RingWatcher], list[GroupWatcher]]:
        """The watchers of rings, and of groups, by name."""
        every = self._every()
        return (
            [watcher for watcher in every if isinstance(watcher, RingWatcher)],
            [watcher for watcher in every if isinstance(watcher, GroupWatcher)],
        )

    def _every(self) -> list[RingWatcher | GroupWatcher]:
        with self._lock:
            every = list(self._watchers.values())
        return sorted(every, key=lambda watcher: (watcher.found.kind != "ring", watcher.name))

    def ring(self, name: str) -> RingWatcher | None:
        """The watcher of a ring; ``None`` when there is no such ring, as far as is known.

        A ring that nobody has found yet is looked for.

        Raises:
            ConfigError: no ring can have that name.
            StoreError: Redis does not say whether there is one.
            NotWatched: there is one, and no place or no thread for it.
        """
        watcher = self._asked(Found("ring", name))
        assert watcher is None or isinstance(watcher, RingWatcher)
        return watcher

    def group(self, name: str) -> GroupWatcher | None:
        """The watcher of a group; as :meth:`ring`."""
        watcher = self._asked(Found("group", name))
        assert watcher is None or isinstance(watcher, GroupWatcher)
        return watcher

    def _asked(self, found: Found) -> RingWatcher | GroupWatcher | None:
        watcher = self._watchers.get(found)
        if watcher is None:
            if not self._exists(found):
                return None
            self._make_way(1)
            watcher = self._watch(found)
        if watcher is not None:
            watcher.wait_for_look(0, _FIRST_LOOK)
        elif not self._stopped:
            raise NotWatched(
                f"there is a {found.kind} {found.name!r}, and it is not watched: this service "
                f"watches {MOST} rings and groups at most; hashring status looks at all of them"
            )
        return watcher

    def _exists(self, found: Found) -> bool:
        redis = self._responding()
        if found.kind == "group":
            return redis.run(read(group_keys(found.name))).standing() is not None
        keys, scoring = ring_keys(found.name), self._scoring_of(found.name)
        seen = redis.run(snapshot(keys, scoring=scoring))
        return bool(seen.stamp.epoch or seen.replicas)

    def adopt(self, found: frozenset[Found]) -> None:
        """Watch what was found, and nothing that is gone.

        Raises:
            NotWatched: there is no thread for one of them. The next call tries again.
        """
        self._watch_found(found)
        there = found.union(Found("ring", name) for name in self._wanted)
        every = self._every()
        for watcher in every:
            watcher.pace = max(INTERVAL, len(every) / LOOKS)
            if self._is_over(watcher):
                self._over.add(watcher.found)
                self._forget(watcher)
            # One that was asked for may be newer than the search.
            elif watcher.found not in there and watcher.is_gone:
                self._forget(watcher)

    def _scoring_of(self, ring: str) -> Scoring:
        if self._scoring is None or (self._wanted and ring not in self._wanted):
            return Scoring.expiry(0.0)
        return self._scoring

    def _watch(self, found: Found) -> RingWatcher | GroupWatcher | None:
        """Watch it, if there is place.

        Raises:
            NotWatched: there is no thread for it.
        """
        name = found.name
        with self._lock:
            if found in self._watchers or not self._room:
                return self._watchers.get(found)
            watcher: RingWatcher | GroupWatcher = (
                RingWatcher(self._store, name, self._scoring_of(name))
                if found.kind == "ring"
                else GroupWatcher(self._store, name)
            )
            watcher.looked = lambda: self._looked(watcher)
            try:
                watcher.start()
            except RuntimeError as error:
                raise NotWatched(
                    f"there is no thread to watch the {found.kind} {name!r} ({error}): raise the "
                    "limit of processes, or watch fewer rings and groups"
                ) from error
            self._watchers[found] = watcher
        return watcher

    def _looked(self, watcher: RingWatcher | GroupWatcher) -> None:
        with self._lock:
            # One that was forgotten while it looked is not to have metrics again. Of one that Redis
            # lost, the last ones say what was lost: nobody left it.
            known = self._watchers.get(watcher.found) is watcher and not watcher.lost
            if watcher.failure is None and known:
                watcher.report(self._metrics)
        for listener in self.listeners:
            listener.looked(watcher)

    @property
    def _room(self) -> int:
        """How many more may be watched."""
        return 0 if self._stopped else max(0, MOST - len(self._watchers))

    def _watch_found(self, found: frozenset[Found]) -> None:
        """Watch what was found as far as there is place."""
        self._aside &= found
        self._over &= found
        new = [each for each in _in_turn(found) if each not in self._watchers]
        new = [each for each in new if not self._is_still_over(each)]
        aside = {each for each in new if each in self._aside and not self._runs_again(each)}
        first = [each for each in new if each not in aside]
        self._make_way(len(first))
        # Those that are stopped have what place is left.
        for each in sorted(new, key=aside.__contains__)[: self._room]:
            self._aside.discard(each)
            self._watch(each)
        unwatched = 0 if self._stopped else sum(each not in self._watchers for each in first)
        if unwatched and unwatched != self.unwatched:
            text = "%s not watched: a service watches %d at most"
            log.warning(text, counted(unwatched, "ring or group", "rings and groups"), MOST)
        self.unwatched = unwatched
        self._metrics.left_out(unwatched)

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
        stopped = [e for e in self._every() if self._is_stopped(e) and not e.followed()]
        for watcher in stopped[:missing]:
            self._aside.add(watcher.found)
            self._forget(watcher)

    def _is_stopped(self, watcher: RingWatcher | GroupWatcher) -> bool:
        view = watcher.view
        if view is None or watcher.failure is not None:
            return False
        wanted = isinstance(watcher, RingWatcher) and watcher.name in self._wanted
        return not wanted and view.health.state is State.STOPPED

    def _is_over(self, watcher: RingWatcher | GroupWatcher) -> bool:
        """Whether it was forgotten, or stopped so long ago that nobody wants to see it."""
        view = watcher.view
        if view is None or view.changed_at is None or not self._is_stopped(watcher):
            return False
        return view.is_forgotten or view.now - view.changed_at > self._forget_after

    def _is_still_over(self, found: Found) -> bool:
        if found in self._over and self._runs_again(found):
            self._over.discard(found)
        return found in self._over

    def _forget(self, watcher: RingWatcher | GroupWatcher) -> None:
        of_ring = isinstance(watcher, RingWatcher)
        forget = self._metrics.forget_ring if of_ring else self._metrics.forget_group
        with self._lock:
            self._watchers.pop(watcher.found, None)
            forget(watcher.name)
        watcher.stop()
        for listener in self.listeners:
            listener.forgotten(watcher)


def _in_turn(found: Iterable[Found]) -> list[Found]:
    """By name, a ring and a group in turn, so that many of one kind leave place for the other."""
    ordered = sorted(found)
    rings = [each for each in ordered if each.kind == "ring"]
    groups = [each for each in ordered if each.kind != "ring"]
    return [each for pair in zip_longest(rings, groups) for each in pair if each is not None]
