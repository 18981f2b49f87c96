"""What the service knows of one Redis: whether it responds, and its rings and groups."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from hashring.errors import RedisUnavailable
from hashring.metrics import FleetCollector
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import Scoring
from hashring.web.group_watcher import GroupWatcher
from hashring.web.names_watcher import NamesWatcher
from hashring.web.redis_requests import RedisRequests
from hashring.web.ring_watcher import RingWatcher
from hashring.web.watcher_threads import Failure, PulseWatcher, Watcher
from hashring.web.watchers_by_name import Listener, WatchList

FORGOTTEN: Final = 7 * 86_400.0
"""Seconds after which a ring whose nodes all left is not shown any more."""

_PATIENCE: Final = 5.0  # seconds that Redis may take to answer


class Service:
    """Watches all rings and groups of a Redis. :func:`hashring.web.create_app` shows them.

    Args:
        redis: a sync client of redis-py or valkey-py. The service takes from it where Redis is,
            and makes its own connections.
        rings: rings to watch from the beginning, besides those that are found: a ring is found
            once a node of this package has joined it.
        scoring: what the scores of ``rings`` mean, or without any, of all rings; by default what
            they mean to this package's nodes, as on all other rings.
        forget_after: seconds after which a ring or group that was stopped is not watched any more,
            until a node or member joins it again; ``inf`` for never. Those in ``rings`` always are.

    Attributes:
        metrics: what Prometheus reads.

    Raises:
        ConfigError: no ring can have that name.
    """

    def __init__(
        self,
        redis: Any,
        *,
        rings: Iterable[str] = (),
        scoring: Scoring | None = None,
        forget_after: float = FORGOTTEN,
    ) -> None:
        self._store = RedisStore(redis, _PATIENCE)
        self._requests = RedisRequests(self._store)
        self.metrics = FleetCollector()
        self._watched = WatchList(
            self._store,
            responding=lambda: self.store,
            wanted=rings,
            scoring=scoring,
            forget_after=forget_after,
            metrics=self.metrics,
        )
        self._pulse = PulseWatcher(self._store)
        self._names = NamesWatcher(self._store)
        self._stopped = False
        self._adopted = False
        self._pulse.looked = self._pulsed
        self._names.looked = self._searched

    # --- beginning and end --------------------------------------------------------------------

    def listen(self, listener: Listener) -> None:
        """Report to the listener from now on."""
        self._watched.listeners.append(listener)

    def start(self) -> None:
        """Begin to watch. Redis need not be there yet."""
        self._watched.start()
        self._pulse.start()
        self._names.start()

    def stop(self, timeout: float = 1.0) -> None:
        """End all watchers and all streams.

        Args:
            timeout: seconds to wait for watchers; one that waits for an answer of Redis ends
                when that comes, or its time is over.
        """
        deadline = time.monotonic() + timeout
        self._stopped = True
        watchers: list[Watcher[Any]] = [*self._watched.end(), self._pulse, self._names]
        for watcher in watchers:
            watcher.stop()
        for listener in self._watched.listeners:
            listener.stopped()
        for watcher in watchers:
            watcher.join(max(0.0, deadline - time.monotonic()))
        self._store.close()

    # --- what is watched ----------------------------------------------------------------------

    @property
    def store(self) -> RedisRequests:
        """Redis itself, for what nobody watches: the lock of one key, actions.

        Raises:
            RedisUnavailable: see :meth:`check_responds`.
        """
        self.check_responds()
        return self._requests

    def check_responds(self) -> None:
        """Refuse to ask a Redis that does not respond.

        Each request would wait until its time is over, and keep its thread from others.

        Raises:
            RedisUnavailable: it did not respond to the last ``PING``.
        """
        failure = self.failure
        if failure is not None and isinstance(failure.error, RedisUnavailable):
            raise RedisUnavailable(str(failure.error))

    @property
    def failure(self) -> Failure | None:
        """Why Redis does not answer; ``None`` when it does."""
        return self._pulse.failure

    @property
    def answered(self) -> bool:
        """Whether Redis has ever responded."""
        return self._pulse.view is not None

    @property
    def search_failure(self) -> Failure | None:
        """Why rings and groups cannot be looked for; ``None`` when they can."""
        return self._names.failure

    @property
    def searched(self) -> bool:
        """Whether all rings and groups were looked for once, and are listed."""
        return self._adopted

    @property
    def unwatched(self) -> int:
        """How many of the rings and groups that were found have no place to be watched.

        Those that were stopped, and made way for others, are not among them.
        """
        return self._watched.unwatched

    @property
    def fault(self) -> str:
        """What is wrong besides Redis' silence, so that not all is shown; empty when nothing is."""
        for watcher in (self._pulse, self._names):
            if not watcher.running and not self._stopped:
                return f"{watcher} has ended"
            if watcher.fault is not None:
                return f"{watcher}: {watcher.fault!r}"
        if self._names.failure is not None:
            return f"{self._names}: {self._names.failure.error}"
        return ""

    @property
    def ready(self) -> bool:
        """Whether Redis responded to the last request, and the service itself works."""
        return self.answered and self._pulse.failure is None and not self.fault

    @property
    def looks(self) -> int:
        """Another number at least once a second while anything is watched."""
        return self._pulse.looks + self._names.looks

    def listed(self) -> tuple[list[RingWatcher], list[GroupWatcher]]:
        """The watchers of all rings and groups, by name."""
        return self._watched.listed()

    def ring(self, name: str) -> RingWatcher | None:
        """The watcher of a ring; see :meth:`WatchList.ring`."""
        return self._watched.ring(name)

    def group(self, name: str) -> GroupWatcher | None:
        """The watcher of a group; as :meth:`ring`."""
        return self._watched.group(name)

    def _searched(self) -> None:
        if self._names.failure is None and self._names.view is not None:
            try:
                self._watched.adopt(self._names.view)
            finally:  # what was found stands, also if there is no thread for some of it
                self._adopted = True

    def _pulsed(self) -> None:
        if self._pulse.failure is None and self._pulse.view is not None:
            self.metrics.redis_answered(self._pulse.view)
        else:
            self.metrics.redis_failed()
        for listener in self._watched.listeners:
            listener.pulsed()
