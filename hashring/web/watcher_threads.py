"""Read Redis once for all visitors: one watcher per ring and group, and one for Redis itself.

A watcher reads when a message arrives on the channel, and once per interval. While Redis does not
respond it keeps the last reading, records since when, and tries again. No error ends its thread.
Pages show what the watchers have read, so the number of open pages does not matter to Redis.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from zlib import crc32

from hashring.errors import HashringError, RedisUnavailable
from hashring.metrics.fleet_collector import STALE
from hashring.store.discovery import Found
from hashring.store.interface import Subscription
from hashring.store.redis_store import RedisStore
from hashring.web.last_hour import LastHour

V = TypeVar("V")

log = logging.getLogger("hashring.web")

INTERVAL: Final = 1.0
"""Seconds between two looks without messages."""

_PART: Final = 10  # without messages, looking takes 1/10 of the time at most, unless it is slow
_LONGEST_REST: Final = STALE / 2  # seconds; with a look of as many after it no more than STALE
_LEAST_PAUSE: Final = 0.05  # seconds between two looks, however fast changes come
_RETRY: Final = 0.5  # seconds


@dataclass(frozen=True)
class Failure:
    """Redis does not answer, or refuses.

    Attributes:
        since: this machine's time of the first failure of the row, seconds since 1970.
        error: the newest one.
    """

    since: float
    error: HashringError


def until_turn(name: str, pace: float, now: float) -> float:
    """Seconds until it is a watcher's turn to look, ``pace`` at most.

    Watchers that began together would look together, again and again. By their names they have
    turns of their own, evenly spread.

    Args:
        name: whose turn.
        pace: seconds between two turns of the same watcher.
        now: a monotonic clock.
    """
    turn = crc32(name.encode()) / 2**32
    return pace - (now / pace - turn) % 1.0 * pace


class Watcher(Generic[V]):
    """Looks again and again.

    Attributes:
        view: what was seen last; ``None`` when nothing was yet.
        hour: the last hour of what it sees.
        seen_at: when, by this process' monotonic clock.
        took: seconds the last look took.
        failure: why there is nothing newer; ``None`` when there is.
        lost: whether Redis has no trace any more of what ran when it was seen last.
        fault: the error that ``looked`` raised after the last look; ``None`` when it raised none.
        looked: called after each look. What it raises is logged, and never ends the watcher.
        pace: seconds between two looks while nobody follows and no change is announced.
        followed: whether somebody follows what it sees, so that it looks once per interval.
        looks: how often it has looked, successfully or not.

    Args:
        store: where Redis is.
        channel: what tells of changes; ``None`` when nothing does.
    """

    def __init__(self, store: RedisStore, channel: bytes | None) -> None:
        self.view: V | None = None
        self.hour = LastHour()
        self.seen_at = 0.0
        self.took = 0.0
        self._usual = 0.0
        self._worked = 0.0
        self.failure: Failure | None = None
        self.lost = False
        self.fault: Exception | None = None
        self.looks = 0
        self._store = store
        self._channel = channel
        self.looked: Callable[[], None] = lambda: None
        self.pace = INTERVAL
        self.followed: Callable[[], bool] = lambda: False
        self._subscription: Subscription | None = None
        self._stopping = threading.Event()
        self._new = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; does not wait for it."""
        self._stopping.set()
        with self._new:
            self._new.notify_all()
        subscription = self._subscription
        if subscription is not None:
            subscription.end()

    def join(self, timeout: float) -> None:
        """Wait for the end, ``timeout`` seconds at most."""
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def wait_for_look(self, looks: int, timeout: float) -> int:
        """Return how often it has looked, once that is another number, or the time is over.

        Args:
            looks: how often it had looked as far as the caller knows; 0 waits for the first look.
            timeout: seconds.
        """
        with self._new:
            if self.looks == looks and not self.stopping:
                self._new.wait(timeout)
            return self.looks

    @property
    def stopping(self) -> bool:
        """Whether it has been told to stop."""
        return self._stopping.is_set()

    def _look(self) -> V | None:
        """Look. Only the watcher's own thread does: what it keeps from look to look has no lock.

        Raises:
            HashringError: there is nothing to see.
        """
        raise NotImplementedError

    def _note(self, view: V | None) -> None:
        """Add what was seen to the last hour."""

    @property
    def since_seen(self) -> float:
        """Seconds since it was seen."""
        return time.monotonic() - self.seen_at

    @property
    def running(self) -> bool:
        """Whether its thread lives, or was never started."""
        return self._thread.ident is None or self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._channel is not None and self._subscription is None:
                    self._subscription = self._store.subscribe(self._channel)
                self._again()
                self._pause()
            except HashringError as error:
                self._failed(error)
            except Exception as error:
                log.exception("%s", self)
                self._failed(RedisUnavailable(f"{type(error).__name__}: {error}"))
        self._unsubscribe()

    def _again(self) -> None:
        started, worked = time.monotonic(), time.thread_time()
        view = self._look()
        self._note(view)
        # In this order, a reader never adds the time since the look before.
        self.seen_at = time.monotonic()
        self.view = view
        if self.failure is not None:
            log.info("%s: Redis answers again", self)
            self.failure = None
        self._tell()
        took = time.monotonic() - started
        # One slow look, such as while Redis was busy, is no reason to look away for long.
        self._usual, self.took = min(self.took, took), took
        self._worked = time.thread_time() - worked

    def _tell(self) -> None:
        with self._new:
            self.looks += 1
            self._new.notify_all()
        try:
            self.looked()
        except Exception as error:
            # Called from the handler of another error too, where it would end the thread.
            if self.fault is None:
                log.exception("%s: was read, and could not be shown", self)
            self.fault = error
        else:
            self.fault = None

    def _pause(self) -> None:
        # All messages of this time are followed by one look: a storm of changes takes half of a
        # processor at most. Where others use it, a look takes longer, and pauses need not.
        self._stopping.wait(max(_LEAST_PAUSE, self._worked))
        if self._subscription is None:
            self._stopping.wait(INTERVAL)
            return
        notice = self._subscription.wait(0.0 if self.stopping else self._rest())
        # Then the rest of what came meanwhile, and no longer if it never ends.
        ends = time.monotonic() + INTERVAL
        while notice is not None and not self.stopping and time.monotonic() < ends:
            notice = self._subscription.wait(0.0)

    def _rest(self) -> float:
        """Seconds until the next look, if no message comes."""
        interval = INTERVAL
        if not self.followed():
            interval = until_turn(str(self), self.pace, time.monotonic())
        # The pause after the look, as long as its work, was part of the rest.
        return max(interval, min(_PART * self._usual, _LONGEST_REST) - self._worked)

    def _failed(self, error: HashringError) -> None:
        if self.failure is None:
            log.warning("%s: %s", self, error)
        since = self.failure.since if self.failure else time.time()
        self.failure = Failure(since, error)
        self._unsubscribe()
        self._tell()
        self._stopping.wait(_RETRY)

    def _unsubscribe(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None


class FoundWatcher(Watcher[V]):
    """Watches a ring or a group.

    Attributes:
        found: its kind and name.
        name: its name.
    """

    def __init__(self, store: RedisStore, found: Found, channel: bytes) -> None:
        super().__init__(store, channel)
        self.found = found
        self.name = found.name

    def __str__(self) -> str:
        return f"{self.found.kind} {self.name!r}"


class PulseWatcher(Watcher[float]):
    """Watches whether Redis answers at all; sees the seconds that a round trip takes."""

    def __init__(self, store: RedisStore) -> None:
        super().__init__(store, None)

    def __str__(self) -> str:
        return "service"

    def _look(self) -> float:
        """A round trip."""
        started = time.perf_counter()
        self._store.call("PING")
        return time.perf_counter() - started
