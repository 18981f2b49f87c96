"""Find the rings and groups that there are, once for all visitors."""

from __future__ import annotations

from typing import Final

from hashring.store.discovery import Found, check_slots_served, discover
from hashring.store.redis_store import RedisStore
from hashring.web.watcher_threads import Watcher

_SCAN_INTERVAL: Final = 10.0
_SCAN_BREATH: Final = 0.005
_SCAN_PART: Final = 20


class NamesWatcher(Watcher[frozenset[Found]]):
    """Watches which rings and groups there are."""

    def __init__(self, store: RedisStore) -> None:
        super().__init__(store, None)
        self._rested = 0.0

    def __str__(self) -> str:
        return "search for rings and groups"

    def _look(self) -> frozenset[Found]:
        """Walk over the keys of the database, in steps."""
        check_slots_served(self._store)
        names = set()
        rested = 0.0
        for found in discover(self._store):
            if found is not None:
                names.add(found)
                continue
            if self._stopping.wait(_SCAN_BREATH):
                return self.view or frozenset()
            rested += _SCAN_BREATH
        self._rested = rested
        return frozenset(names)

    def _pause(self) -> None:
        # Rests between the steps are no work for Redis, and most of a walk over many keys.
        self._stopping.wait(max(_SCAN_INTERVAL, _SCAN_PART * (self._usual - self._rested)))
