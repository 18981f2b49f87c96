"""What every member has, whatever protocol it follows: threads, callbacks, and what it holds.

Three threads: the *renewer* talks to Redis and keeps the deadlines, and nothing of the
application's ever runs in it; the *listener* waits for messages; the *caller* runs the
application's callbacks, one after the other. So an application that computes, hangs or sleeps
does not cost its member the lease, and whether it makes progress is a signal of its own
(``tick``).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import queue
import secrets
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, TypeVar

from hashring.core.groups.member import Change, ChangeKind, Membership
from hashring.core.hashing import hash_algorithm
from hashring.core.replica import check_node_name
from hashring.errors import ConfigError, HashringError, NodeStateError, StoreError
from hashring.store.executor import RedisStore, Store, Told

logger = logging.getLogger("hashring.groups")

M = TypeVar("M", bound="LiveMember")

monotonic = time.monotonic

RETRY: Final = 0.5
"""Seconds until Redis is asked again after it did not answer."""

OnAssigned = Callable[[int, int], object]
OnRevoked = Callable[[int, float], object]
OnPartition = Callable[[int], object]


@dataclass(frozen=True)
class Wake:
    """Something is to be told or fetched."""


@dataclass(frozen=True)
class Stop:
    """The member is to leave."""

    handover: bool


@dataclass(frozen=True)
class Callbacks:
    """What the application wants to be told; ``None`` for what it does not."""

    on_assigned: OnAssigned | None = None
    on_revoked: OnRevoked | None = None
    on_lost: OnPartition | None = None
    on_warmup: OnPartition | None = None
    on_drain: OnPartition | None = None


class LiveMember(ABC):
    """A member kept alive by threads of its own; subclasses follow a protocol.

    Args:
        redis: a sync client; connections of the member's own are made from it.
        name: the group's name.
        member: the member's name; made up unless given.
        channels: tell of what concerns members.
        ttl: seconds the lease lasts without renewal.
        interval: seconds between renewals.
        grace: seconds that work may take to end when the member leaves.
        progress_timeout: seconds without :meth:`tick` after which the member is stalled.
    """

    def __init__(
        self,
        redis: Any,
        name: str,
        *,
        member: str | None,
        channels: tuple[bytes, ...],
        ttl: float,
        interval: float,
        grace: float,
        progress_timeout: float | None,
        callbacks: Callbacks,
    ) -> None:
        self.name = name
        unique = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.member = check_node_name(unique if member is None else member)
        if not 0 < interval <= ttl / 3:
            raise ConfigError(
                "heartbeat_interval",
                interval,
                f"must be above 0 and at most a third of the ttl of {ttl:g} s: with less room, "
                f"one late renewal costs a member everything",
            )
        self.heartbeat_interval = interval
        if progress_timeout is not None and not (
            progress_timeout > 0 and math.isfinite(progress_timeout)
        ):
            raise ConfigError("progress_timeout", progress_timeout, "must be above 0")
        self._channels = channels
        self._grace = grace
        self._progress_timeout = progress_timeout
        self._callbacks = callbacks
        self._store: Store = RedisStore(redis, min(5.0, ttl / 3))
        self._membership = Membership(ttl)
        # The renewer and the application both change what is held.
        self._lock = threading.RLock()
        self._inbox: queue.SimpleQueue[Wake | Stop] = queue.SimpleQueue()
        self._calls: queue.SimpleQueue[Change | None] = queue.SimpleQueue()
        self._iterators: list[queue.SimpleQueue[Change | None]] = []
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()
        self._last_tick = 0.0
        self._leave_at = math.inf
        self._running = False
        self.error: HashringError | None = None
        """What is wrong now, if anything."""

    # --- the protocol -------------------------------------------------------------------------

    @abstractmethod
    def _enter(self) -> None:
        """Become a member.

        Raises:
            HashringError: it was not done, and nothing was left behind.
        """

    @abstractmethod
    def _beat(self) -> float:
        """Renew, report, take up the answer; seconds until it is to be done again.

        Raises:
            HashringError: it was not done.
        """

    @abstractmethod
    def _hand_over(self) -> float:
        """Begin to hand over; seconds after which to leave in any case."""

    @abstractmethod
    def _depart(self) -> None:
        """Be no member any more.

        Raises:
            HashringError: it was not done.
        """

    @abstractmethod
    def _concerns(self, told: Told) -> bool:
        """Whether a message is about this member. Called by the listener."""

    # --- running ------------------------------------------------------------------------------

    def start(self) -> None:
        """Join, and stay a member from threads of this object's own until :meth:`stop`.

        Returns once the member is in the group; partitions follow by ``on_assigned``.

        Raises:
            NodeStateError: it runs already.
            MemberExists: the group has a live member of this name.
            GroupMismatch: the group has other terms.
            ConfigError: no count was given, and the group does not exist.
            RedisUnavailable, RedisRefused: what stopped it.
        """
        if self._running:
            raise NodeStateError(f"group {self.name!r} runs already in this object")
        self._membership = Membership(self._membership.ttl, self._membership.seen)
        self._inbox, self._calls = queue.SimpleQueue(), queue.SimpleQueue()
        self._ended.clear()
        self._leave_at = math.inf
        self._last_tick = monotonic()
        try:
            self._enter()
        except BaseException:
            self._store.close()
            raise
        self._running = True
        for target, what in (
            (self._renew, "renewer"),
            (self._listen, "listener"),
            (self._call, "caller"),
        ):
            thread = threading.Thread(
                target=target, name=f"hashring group {self.name} {what}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self, *, handover: bool = False) -> None:
        """Leave the group.

        Every held partition is revoked first, with ``max_handoff_time`` to end its work. Calling
        it again does nothing.

        Args:
            handover: stay until others have taken over all partitions (with ``learner``: have
                warmed up for them), at most ``leave_timeout`` seconds.
        """
        if not self._running:
            return
        self._inbox.put(Stop(handover))
        if threading.current_thread() not in self._threads:
            *others, caller = self._threads
            for thread in others:
                thread.join()
            # A callback that never returns must not keep anybody from leaving.
            caller.join(self._grace + 1.0)
            self._threads.clear()

    def __enter__(self: M) -> M:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- what is held -------------------------------------------------------------------------

    @property
    @abstractmethod
    def partitions(self) -> int:
        """How many partitions the group has, as far as this member knows."""

    @property
    def held(self) -> dict[int, int]:
        """The partitions held now, with their fencing tokens. No I/O."""
        return self._membership.held(monotonic())

    def token(self, partition: int) -> int | None:
        """The fencing token of a partition held now; ``None`` when it is not. No I/O."""
        return self._membership.holding.token(partition, monotonic())

    def owns(self, partition: int) -> bool:
        """Whether the partition is held now. No I/O."""
        return self.token(partition) is not None

    def partition_of(self, key: str | bytes) -> int:
        """The partition of a key: its CRC-32 modulo the count.

        Raises:
            KeyTypeError, KeyValueError: the key has no point.
        """
        return hash_algorithm("crc-32").point(key) % self.partitions

    # --- what the application says ------------------------------------------------------------

    def tick(self) -> None:
        """The application makes progress."""
        self._last_tick = monotonic()
        if self._membership.stalled:
            self._inbox.put(Wake())

    def release(self, partition: int) -> bool:
        """Let go of a partition that is to be let go of, or of any other; whether it was held.

        For the iterator style; a callback's return says the same.
        """
        with self._lock:
            token = self.token(partition)
            done = token is not None and self._membership.release(partition, token)
        if done:
            self._inbox.put(Wake())
        return done

    def ready(self, partition: int) -> bool:
        """This member is warm for a partition; whether it was to warm up for it."""
        return self.lag(partition, 0.0)

    def lag(self, partition: int, behind: float) -> bool:
        """How far this member is behind on a partition; whether it was to warm up for it."""
        with self._lock:
            done = self._membership.lag(partition, behind)
        if done:
            self._inbox.put(Wake())
        return done

    def drained(self, partition: int) -> bool:
        """A removed partition is empty; whether this member was to empty it."""
        with self._lock:
            done = self._membership.drained(partition)
        if done:
            self._inbox.put(Wake())
        return done

    def changes(self) -> Iterator[Change]:
        """What happens to this member's partitions, as it happens, until it has left::

            for change in group.changes():
                if change.kind is ChangeKind.REVOKED:
                    finish(change.partition)

        A partition that was revoked is let go of when the loop asks for the next change.
        """
        mine: queue.SimpleQueue[Change | None] = queue.SimpleQueue()
        with self._lock:
            now = monotonic()
            for partition, token in sorted(self._membership.held(now).items()):
                mine.put(Change(ChangeKind.ASSIGNED, partition, token))
            self._iterators.append(mine)
        try:
            while (change := mine.get()) is not None:
                yield change
                if change.kind is ChangeKind.REVOKED:
                    self._let_go(change)
        finally:
            with self._lock:
                self._iterators.remove(mine)

    # --- the renewer --------------------------------------------------------------------------

    def _renew(self) -> None:
        next_beat = monotonic()
        handing_over = False
        try:
            while True:
                item = self._next(min(next_beat, self._leave_at))
                now = monotonic()
                self._tell(self._tick(now))
                if isinstance(item, Stop):
                    if not item.handover:
                        return
                    handing_over = True
                    self._leave_at = now + self._hand_over()
                if now >= self._leave_at:
                    return
                next_beat = now + self._try_beat()
                if handing_over and self._empty_handed():
                    return
        finally:
            self._finish()

    def _try_beat(self) -> float:
        try:
            wait = self._beat()
        except HashringError as error:
            if type(error) is not type(self.error):
                # Once, and not with every try.
                logger.warning("hashring group %s: %s: %s", self.name, self.member, error)
            self.error = error
            return min(RETRY, self.heartbeat_interval)
        self.error = None
        return wait

    @abstractmethod
    def _empty_handed(self) -> bool:
        """Whether the group knows that this member holds nothing."""

    def _next(self, until: float) -> Wake | Stop | None:
        """The next item, or ``None`` when it is time for something."""
        until = min(until, self._membership.due(), self._stall_at())
        try:
            item = self._inbox.get(timeout=max(0.0, until - monotonic()))
        except queue.Empty:
            return None
        while isinstance(item, Wake):
            # Many wakes are one.
            try:
                item = self._inbox.get_nowait()
            except queue.Empty:
                break
        return item

    def _stall_at(self) -> float:
        if self._progress_timeout is None or self._membership.stalled:
            return math.inf
        return self._last_tick + self._progress_timeout

    def _tick(self, now: float) -> list[Change]:
        with self._lock:
            if self._progress_timeout is not None:
                self._membership.stalled = now - self._last_tick >= self._progress_timeout
            return self._membership.tick(now)

    def _finish(self) -> None:
        """Revoke everything, give the callbacks their time, and leave."""
        now = monotonic()
        deadline = min(now + self._grace, self._membership.holding.lease_until)
        for partition, token in sorted(self._membership.held(now).items()):
            self._tell([Change(ChangeKind.REVOKED, partition, token, deadline)])
        while self._membership.held(monotonic()) and monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                self._inbox.get(timeout=max(0.0, deadline - monotonic()))
        with self._lock:
            last = [
                Change(ChangeKind.LOST, partition, token)
                for partition, token in sorted(self._membership.held(monotonic()).items())
            ]
            self._membership = Membership(self._membership.ttl, self._membership.seen)
        self._tell(last)
        try:
            self._depart()
        except HashringError as error:
            logger.warning(
                "hashring group %s: %s: %s; the lease ends by itself", self.name, self.member, error
            )
        self._running = False
        self._ended.set()
        self._calls.put(None)
        with self._lock:
            for each in self._iterators:
                each.put(None)
        self._store.close()

    # --- the listener -------------------------------------------------------------------------

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                subscription = self._store.subscribe(*self._channels)
            except StoreError:
                self._ended.wait(RETRY)
                continue
            try:
                while not self._ended.is_set():
                    notice = subscription.wait(0.2)
                    if notice is None:
                        continue
                    if not isinstance(notice, Told) or self._concerns(notice):
                        self._inbox.put(Wake())
            except StoreError:
                # What was missed meanwhile is noticed with the next renewal.
                self._ended.wait(RETRY)
            finally:
                subscription.close()

    # --- the caller ---------------------------------------------------------------------------

    def _tell(self, changes: list[Change]) -> None:
        for change in changes:
            with self._lock:
                iterators = list(self._iterators)
            for each in iterators:
                each.put(change)
            if (
                change.kind is ChangeKind.REVOKED
                and self._callbacks.on_revoked is None
                and not iterators
            ):
                self._let_go(change)
                continue
            self._calls.put(change)

    def _call(self) -> None:
        while (change := self._calls.get()) is not None:
            try:
                self._call_back(change)
            except Exception:
                logger.exception(
                    "hashring group %s: the callback for %s of partition %d raised",
                    self.name,
                    change.kind.value,
                    change.partition,
                )
            if change.kind is ChangeKind.REVOKED and self._callbacks.on_revoked is not None:
                self._let_go(change)

    def _call_back(self, change: Change) -> None:
        partition = change.partition
        if change.kind is ChangeKind.ASSIGNED:
            # Not when it has gone meanwhile, behind a callback that took long.
            if self._callbacks.on_assigned is not None and self.token(partition) == change.token:
                self._callbacks.on_assigned(partition, change.token)
        elif change.kind is ChangeKind.REVOKED:
            if self._callbacks.on_revoked is not None and self.token(partition) == change.token:
                self._callbacks.on_revoked(partition, change.deadline)
        elif change.kind is ChangeKind.LOST:
            if self._callbacks.on_lost is not None:
                self._callbacks.on_lost(partition)
        elif change.kind is ChangeKind.WARMUP:
            if self._callbacks.on_warmup is not None:
                self._callbacks.on_warmup(partition)
        elif change.kind is ChangeKind.DRAIN and self._callbacks.on_drain is not None:
            self._callbacks.on_drain(partition)

    def _let_go(self, change: Change) -> None:
        with self._lock:
            done = self._membership.release(change.partition, change.token)
        if done:
            self._inbox.put(Wake())
