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

from hashring.core.replica import Replica
from hashring.errors import HashringError, RedisUnavailable
from hashring.metrics import FleetCollector
from hashring.metrics.fleet_collector import STALE
from hashring.store.discovery import Found, check_slots_served, discover
from hashring.store.group.commands import DECISIONS_KEPT
from hashring.store.group.decisions import Decision, newest_decisions
from hashring.store.group.key_names import group_keys
from hashring.store.group.reading import read
from hashring.store.interface import Subscription
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.ring_events import RingEvent, continued
from hashring.store.ring.snapshot import snapshot
from hashring.web.group_view import GroupView
from hashring.web.last_hour import LastHour
from hashring.web.ring_view import RingView

V = TypeVar("V")

log = logging.getLogger("hashring.web")

INTERVAL: Final = 1.0
"""Seconds between two looks without messages."""
EVENTS: Final = 500
"""How many of a ring's last events a watcher keeps."""
DECISIONS: Final = 20
"""How many of a group's last decisions a watcher keeps."""

_PART: Final = 10  # without messages, looking takes 1/10 of the time at most, unless it is slow
_LONGEST_REST: Final = STALE / 2  # seconds; with a look of as many after it no more than STALE
_LEAST_PAUSE: Final = 0.05  # seconds between two looks, however fast changes come
_RETRY: Final = 0.5  # seconds
_SCAN_INTERVAL: Final = 10.0
_SCAN_BREATH: Final = 0.005
_SCAN_PART: Final = 20


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
        patience = 0.0 if self.stopping else self._rest()
        while self._subscription.wait(patience) is not None and not self._stopping.is_set():
            patience = 0.0
            # The rest of what came meanwhile, if any; then look.

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
        events = (*stand, *new)[-EVENTS:]
        view = RingView(self.name, seen, events, self.scoring, self.view)
        before = self.view
        self.lost = view.is_empty and (self.lost or (before is not None and bool(before.live)))
        # If some were taken back, all: by the last of them, the metrics know which come after it.
        self._events, self.new_events = events, tuple(new) if stand is known else events
        return view

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


class GroupWatcher(FoundWatcher[GroupView]):
    """Watches a partition group; sees ``None`` while there is none.

    Attributes:
        new_decisions: those that the last look brought, and perhaps some before, newest first.
    """

    def __init__(self, store: RedisStore, name: str) -> None:
        self.keys = group_keys(name)
        super().__init__(store, Found("group", name), self.keys.channel)
        self.hour = LastHour(min, max, max, max)
        self._decisions: tuple[Decision, ...] = ()
        self._tag = ""
        self.new_decisions: tuple[Decision, ...] = ()

    @property
    def is_gone(self) -> bool:
        """Whether it has looked, and there is no such group."""
        return self.failure is None and self.looks > 0 and self.view is None

    def _look(self) -> GroupView | None:
        """Read the group, and its last decisions when there is a new one."""
        reading = self._store.run(read(self.keys))
        state = reading.standing()
        before = self.view
        ran = self.lost or (before is not None and before.status.has_members)
        self.lost = state is None and ran
        if state is None:
            return None
        new: tuple[Decision, ...] = ()
        if reading.tag != self._tag or not self._decisions:
            # Each decision has the next number: after an outage many may be new.
            known = self._decisions[0].generation if self._decisions else state.generation
            count = DECISIONS + min(DECISIONS_KEPT, max(0, state.generation - known))
            new = tuple(newest_decisions(self._store, self.keys, count))
            self._decisions, self._tag = new[:DECISIONS], reading.tag
        self.new_decisions = new
        return GroupView(self.name, reading, state, self._decisions)

    def report(self, metrics: FleetCollector) -> None:
        """Report what was seen last to the metrics."""
        if self.view is not None:
            metrics.saw_group(self.view.metrics_reading(self.new_decisions))

    def _note(self, view: GroupView | None) -> None:
        if view is not None:
            found, handoffs = view.status, len(view.state.handoffs)
            self.hour.add(
                view.now, len(found.members), len(found.unowned), handoffs, found.generation
            )


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
