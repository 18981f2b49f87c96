"""What every member has, whatever runs it and whatever protocol it follows.

The *renewer* talks to Redis and keeps the deadlines; nothing of the application's ever runs in
it, and it is a thread of the operating system's also where greenlets or an event loop run the
application. The *listener*, such a thread too, waits for messages. The *caller* (a thread, a
greenlet or a task) runs the application's callbacks, one after the other. So an application that
computes, hangs or sleeps does not cost its member the lease, and whether it makes progress is a
signal of its own (``tick``).
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import queue
import secrets
import socket
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from hashring.core.assignors.protocol import is_finite
from hashring.core.groups.member import Change, ChangeKind, Membership
from hashring.core.hashing import hash_algorithm
from hashring.core.replica import check_node_name
from hashring.errors import ConfigError, HashringError, MemberForked, NodeStateError, StoreError
from hashring.running.backend import (
    Latch,
    native_latch,
    native_lock,
    native_queue,
    start_native_thread,
)
from hashring.store.client import is_async
from hashring.store.executor import RedisStore, Store, Subscribed, Told
from hashring.store.loop_store import LoopStore
from hashring.store.memory import MemoryStore

logger = logging.getLogger("hashring.groups")

monotonic = time.monotonic

RETRY: Final = 0.5
"""Seconds until Redis is asked again after it did not answer."""

_LISTEN: Final = 0.2
"""Seconds between two looks of the listener at whether it is over."""

_LONGEST_WAIT: Final = 3600.0

_PATIENCE_AT_EXIT: Final = 1.0
"""Seconds that the end of the program waits for members to leave."""

_OF_HELD: Final = (ChangeKind.ASSIGNED, ChangeKind.REVOKED, ChangeKind.DRAIN)
"""What is told only while the partition is held under the token that the change names."""

OnAssigned = Callable[[int, int], object]
OnRevoked = Callable[[int, float], object]
OnPartition = Callable[[int], object]
OnActive = Callable[[bool], object]


@dataclass(frozen=True)
class Wake:
    """Something is to be told or fetched."""


@dataclass(frozen=True)
class Watch:
    """The member is to renew at a time, since a step is due then.

    Attributes:
        at: monotonic.
    """

    at: float


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
    on_active: OnActive | None = None

    def __post_init__(self) -> None:
        for name, callback in vars(self).items():
            if callback is not None and not callable(callback):
                raise ConfigError(name, callback, "give something that can be called")


@dataclass(eq=False)
class Run:
    """One stay in a group, from ``start()`` to its end. All it calls may be called by any thread.

    Attributes:
        deliver: hands a change to the caller; ``None`` is the last.
        entered: says that the member has entered, or has failed to.
        ended: says that all is over.
        inbox: what the renewer is told.
        over: set when the renewer has let go of everything.
        threads: each set at the end of a thread.
        hears: the subscription stands, so that messages wake the renewer.
        failure: why the member did not enter.
        deaf: nobody runs callbacks any more.
    """

    deliver: Callable[[Change | None], None]
    entered: Callable[[], None]
    ended: Callable[[], None]
    inbox: queue.SimpleQueue[Wake | Watch | Stop] = field(default_factory=native_queue)
    over: Latch = field(default_factory=native_latch)
    threads: list[Latch] = field(default_factory=list)
    hears: bool = False
    failure: BaseException | None = None
    deaf: bool = False


class BaseMember(ABC):
    """A member kept alive by threads of its own; subclasses follow a protocol, and say who runs
    the application.

    Args:
        redis: a client; connections of the member's own are made from it.
        name: the group's name.
        member: the member's name; made up unless given.
        channels: tell of what concerns members.
        ttl: seconds the lease lasts without renewal.
        interval: seconds between renewals.
        grace: seconds that work may take to end when the member leaves.
        progress_timeout: seconds without a sign of progress after which the member is stalled.
    """

    _asynchronous = False
    _fenced = True
    _twins = ("PartitionGroup", "AsyncPartitionGroup")
    """What takes a sync client, and what takes an asyncio one."""

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
        if not isinstance(redis, MemoryStore) and is_async(redis) is not self._asynchronous:
            kind = "not an" if self._asynchronous else "an"
            use = self._twins[not self._asynchronous]
            raise ConfigError("redis", redis, f"is {kind} asyncio client: use {use}")
        self.name = name
        self._named = member is not None
        self.member = check_node_name(_made_up() if member is None else member)
        if not is_finite(interval) or not 0 < interval <= ttl / 3:
            raise ConfigError(
                "heartbeat_interval",
                interval,
                f"must be above 0 and at most a third of the ttl of {ttl:g} s: with less room, "
                f"one late renewal costs a member everything",
            )
        self.heartbeat_interval = interval
        if progress_timeout is not None and not (
            is_finite(progress_timeout) and progress_timeout > 0
        ):
            raise ConfigError("progress_timeout", progress_timeout, "must be above 0")
        self._redis = redis
        self._channels = channels
        self._grace = grace
        self._progress_timeout = progress_timeout
        self._callbacks = callbacks
        self._timeout = min(5.0, ttl / 3)
        # The renewer's alone.
        self._store = self._new_store()
        self._membership = self._new_membership(ttl)
        # The renewer and the application both change what is held.
        self._lock = native_lock()
        self._iterators: list[Callable[[Change | None], None]] = []
        self._forks = 0
        self._waits_for_name = True
        self._run: Run | None = None
        self._parent: int | None = None
        self._last_tick = 0.0
        self._began = 0.0
        self._leave_at = math.inf
        self._error: Exception | None = None
        _members.add(self)

    def _new_store(self) -> Store:
        """A store for one thread. Each has its own: see :func:`start_native_thread`."""
        if isinstance(self._redis, MemoryStore):
            return self._redis
        if self._asynchronous:
            return LoopStore(self._redis, self._timeout)
        return RedisStore(self._redis, self._timeout)

    def _new_membership(self, ttl: float, seen: int = 0) -> Membership:
        return Membership(ttl, seen, fenced=self._fenced)

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
    def _empty_handed(self) -> bool:
        """Whether the group knows that this member holds nothing."""

    @abstractmethod
    def _depart(self) -> None:
        """Be no member any more.

        Raises:
            HashringError: it was not done.
        """

    @abstractmethod
    def _concerns(self, told: Told) -> bool:
        """Whether a message is about this member. Called by the listener."""

    # --- what is held -------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether it has been started and has not left yet."""
        return self._running

    @property
    @abstractmethod
    def partitions(self) -> int:
        """How many partitions the group has, as far as this member knows."""

    @property
    def error(self) -> Exception | None:
        """What is wrong now, if anything."""
        return self._error

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

    @property
    def active(self) -> bool:
        """Whether any partition is held now: Solace's active indicator. No I/O."""
        now = monotonic()
        holding = self._membership.holding
        return any(holding.token(partition, now) for partition in holding.partitions)

    def partition_of(self, key: str | bytes) -> int:
        """The partition of a key: its CRC-32 modulo the count.

        Raises:
            KeyTypeError, KeyValueError: the key has no point.
        """
        return hash_algorithm("crc-32").point(key) % self.partitions

    # --- what the application says ------------------------------------------------------------

    def tick(self) -> None:
        """The application makes progress.

        So do :meth:`release`, :meth:`ready`, :meth:`lag` and :meth:`drained`, a callback that
        returns, and asking for the next of the changes.
        """
        self._last_tick = monotonic()
        if self._membership.stalled:
            self._wake()

    def release(self, partition: int) -> bool:
        """Let go of a partition that is to be let go of, or of any other; whether it was held.

        For the iterator style; a callback's return says the same.
        """
        self.tick()
        with self._lock:
            token = self.token(partition)
            done = token is not None and self._membership.release(partition, token)
        if done:
            self._wake()
        return done

    def ready(self, partition: int) -> bool:
        """This member is warm for a partition; whether it was to warm up for it."""
        return self.lag(partition, 0.0)

    def lag(self, partition: int, behind: float) -> bool:
        """How far this member is behind on a partition; whether it was to warm up for it.

        Raises:
            ConfigError: ``behind`` is no finite number, 0 or more.
        """
        if not is_finite(behind) or behind < 0:
            raise ConfigError("behind", behind, "give a finite number, 0 or more")
        self.tick()
        with self._lock:
            done = self._membership.lag(partition, behind)
        if done:
            self._wake()
        return done

    def drained(self, partition: int) -> bool:
        """A removed partition is empty; whether this member was to empty it."""
        self.tick()
        with self._lock:
            done = self._membership.drained(partition)
        if done:
            self._wake()
        return done

    def _wake(self) -> None:
        run = self._run
        if run is not None:
            run.inbox.put(Wake())

    # --- for those who run it -----------------------------------------------------------------

    @property
    def _running(self) -> bool:
        return self._run is not None and not self._run.over.wait(0)

    def _refuse_to_start(self) -> None:
        """
        Raises:
            NodeStateError: it runs already.
            MemberForked: it was made in a parent process, and has a name of its own.
        """
        if self._running:
            raise NodeStateError(f"group {self.name!r} runs already in this object")
        if self._parent is not None:
            if self._named:
                raise MemberForked(self.name, self.member, self._parent)
            self._parent, self.member = None, _made_up()

    def _launch(self, run: Run) -> None:
        """Start the renewer."""
        self._membership = self._new_membership(self._membership.ttl, self._membership.seen)
        self._leave_at = math.inf
        self._last_tick = self._began = monotonic()
        self._error = None
        self._run = run
        self._thread(lambda: self._renew(run), "renewer")

    def _thread(self, target: Callable[[], None], what: str) -> Latch:
        """Start a thread of this run's; what is set at its end."""
        ended = start_native_thread(target, f"hashring group {self.name} {what}")
        if self._run is not None:
            self._run.threads.append(ended)
        return ended

    # --- the renewer --------------------------------------------------------------------------

    def _renew(self, run: Run) -> None:
        self._store = self._new_store()
        try:
            try:
                self._enter()
            except BaseException as error:  # noqa: BLE001 - raised again where start() was called
                run.failure = error
                return
            listener = self._thread(lambda: self._listen(run), "listener")
            run.entered()
            try:
                self._keep(run)
            finally:
                self._finish(run)
                listener.wait()
        finally:
            self._store.close()
            run.over.set()
            run.entered()
            run.ended()

    def _keep(self, run: Run) -> None:
        """Renew until it is time to leave."""
        next_beat = monotonic()
        handing_over = False
        while True:
            item = self._next(run, min(next_beat, self._leave_at))
            now = monotonic()
            self._tell(self._tick(now))
            if isinstance(item, Stop):
                if not item.handover:
                    return
                if not handing_over:
                    # Only once: to ask again must not put off leaving.
                    handing_over = True
                    self._leave_at = now + self._hand_over()
            if now >= self._leave_at:
                return
            next_beat = now + self._try_beat()
            if handing_over and self._empty_handed():
                return

    def _renew_lease(self) -> float:
        """Renew while the application ends its work; seconds until it is to be done again.

        Unless the protocol can renew without taking part, the lease ends the work if need be.
        """
        return _LONGEST_WAIT

    def _try_beat(self) -> float:
        try:
            wait = self._beat()
        except Exception as error:  # noqa: BLE001
            # Also a fault of this package: the member must live on, or fence itself.
            self._error = self._logged(error, self._error)
            return min(RETRY, self.heartbeat_interval)
        self._error = None
        return wait

    def _logged(self, error: Exception, last: Exception | None) -> Exception:
        """The error, which was logged unless it is like the last one."""
        if type(error) is not type(last):
            unexpected = None if isinstance(error, HashringError) else error
            logger.warning(
                "hashring group %s: %s: %s", self.name, self.member, error, exc_info=unexpected
            )
        return error

    def _next(self, run: Run, until: float) -> Stop | None:
        """The order to stop, or ``None`` when it is time for something, or somebody woke it."""
        woken = False
        while True:
            # Many wakes are one.
            at = -math.inf if woken else min(until, self._membership.due(), self._stall_at())
            try:
                item = run.inbox.get(timeout=min(max(0.0, at - monotonic()), _LONGEST_WAIT))
            except queue.Empty:
                return None
            if isinstance(item, Stop):
                return item
            if isinstance(item, Watch):
                self._membership.watch(item.at)
            else:
                woken = True

    def _stall_at(self) -> float:
        if self._progress_timeout is None or self._membership.stalled:
            return math.inf
        return self._last_tick + self._progress_timeout

    def _tick(self, now: float) -> list[Change]:
        with self._lock:
            if self._progress_timeout is not None:
                self._membership.stalled = now - self._last_tick >= self._progress_timeout
            return self._membership.tick(now)

    def _finish(self, run: Run) -> None:
        """Revoke everything, give the callbacks their time, and leave."""
        now = next_beat = monotonic()
        self._tell(self._tick(now))
        with self._lock:
            changes = self._membership.close(now + self._grace)
        self._tell(changes)
        while not run.deaf and self._membership.holding.partitions:
            self._next(run, next_beat)
            now = monotonic()
            self._tell(self._tick(now))
            if now >= next_beat and self._membership.holding.partitions:
                next_beat = now + self._renew_lease()
        with self._lock:
            changes = self._membership.end()
            self._membership = self._new_membership(self._membership.ttl, self._membership.seen)
        self._tell(changes)
        try:
            self._depart()
        except HashringError as error:
            logger.warning(
                "hashring group %s: %s: %s; the lease ends by itself", self.name, self.member, error
            )
        run.over.set()
        self._deliver(run, None)
        with self._lock:
            iterators = list(self._iterators)
        for put in iterators:
            put(None)

    # --- the listener -------------------------------------------------------------------------

    def _listen(self, run: Run) -> None:
        store = self._new_store()
        try:
            while not run.over.wait(0):
                try:
                    self._follow_messages(run, store)
                except StoreError:
                    # What was missed meanwhile is noticed with the next renewal.
                    run.over.wait(RETRY)
                except Exception:
                    logger.exception("hashring group %s: unexpected error", self.name)
                    run.over.wait(RETRY)
        finally:
            store.close()

    def _follow_messages(self, run: Run, store: Store) -> None:
        subscription = store.subscribe(*self._channels)
        try:
            while not run.over.wait(0):
                notice = subscription.wait(_LISTEN)
                run.hears = run.hears or isinstance(notice, Subscribed)
                if notice is not None and (not isinstance(notice, Told) or self._concerns(notice)):
                    run.inbox.put(Wake())
        finally:
            run.hears = False
            subscription.close()

    # --- the caller ---------------------------------------------------------------------------

    def _tell(self, changes: list[Change]) -> None:
        """Tell the application; what nobody wants to hear of is let go of at once."""
        run = self._run
        if run is None:
            return
        with self._lock:
            iterators = list(self._iterators)
        listening = bool(iterators) or self._callbacks.on_revoked is not None
        for change in changes:
            for put in iterators:
                put(change)
            if change.kind is ChangeKind.REVOKED and not listening:
                with self._lock:
                    self._membership.release(change.partition, change.token)
            elif self._wanted(change):
                self._deliver(run, change)

    def _warm_by_itself(self) -> bool:
        """Whether no part of the application hears of warm-ups.

        A loop over the changes may begin a moment after the member: it has one interval.
        """
        return (
            self._callbacks.on_warmup is None
            and not self._iterators
            and monotonic() >= self._began + self.heartbeat_interval
        )

    def _deliver(self, run: Run, change: Change | None) -> None:
        try:
            run.deliver(change)
        except RuntimeError:
            # The event loop is closed: there is no application left to work on anything.
            run.deaf = True
            run.inbox.put(Stop(handover=False))

    def _wanted(self, change: Change) -> bool:
        callbacks = self._callbacks
        return {
            ChangeKind.ASSIGNED: callbacks.on_assigned,
            ChangeKind.REVOKED: callbacks.on_revoked,
            ChangeKind.LOST: callbacks.on_lost,
            ChangeKind.WARMUP: callbacks.on_warmup,
            ChangeKind.DRAIN: callbacks.on_drain,
            ChangeKind.COOLED: None,
            ChangeKind.ACTIVE: callbacks.on_active,
            ChangeKind.INACTIVE: callbacks.on_active,
        }[change.kind] is not None

    def _call_back(self, change: Change) -> object:
        """Call what is to be called now; what it returns."""
        callbacks, partition = self._callbacks, change.partition
        if change.kind in _OF_HELD and self.token(partition) != change.token:
            # It has gone meanwhile, behind a callback that took long.
            return None
        if change.kind is ChangeKind.ASSIGNED and callbacks.on_assigned is not None:
            return callbacks.on_assigned(partition, change.token)
        if change.kind is ChangeKind.REVOKED and callbacks.on_revoked is not None:
            return callbacks.on_revoked(partition, change.deadline)
        if change.kind is ChangeKind.LOST and callbacks.on_lost is not None:
            return callbacks.on_lost(partition)
        if change.kind is ChangeKind.WARMUP and callbacks.on_warmup is not None:
            return callbacks.on_warmup(partition)
        if change.kind is ChangeKind.DRAIN and callbacks.on_drain is not None:
            return callbacks.on_drain(partition)
        if callbacks.on_active is not None:
            return callbacks.on_active(change.kind is ChangeKind.ACTIVE)
        return None

    def _raised(self, change: Change) -> None:
        logger.exception(
            "hashring group %s: the callback for %s of partition %d raised",
            self.name,
            change.kind.value,
            change.partition,
        )

    def _called_back(self, change: Change) -> None:
        """A callback is over, or has raised."""
        self.tick()
        if change.kind is ChangeKind.REVOKED:
            self._let_go(change)

    def _let_go(self, change: Change) -> None:
        with self._lock:
            done = self._membership.release(change.partition, change.token)
        if done:
            self._wake()

    def _held_changes(self, put: Callable[[Change | None], None]) -> None:
        """Begin to tell an iterator: first of what is held and to warm up for, then of changes."""
        with self._lock:
            if not self._running:
                raise NodeStateError(f"group {self.name!r} does not run: start it first")
            for number, (partition, token) in enumerate(sorted(self.held.items())):
                if not number:
                    put(Change(ChangeKind.ACTIVE, partition, token))
                put(Change(ChangeKind.ASSIGNED, partition, token))
            for partition in sorted(self._membership.cold):
                put(Change(ChangeKind.WARMUP, partition))
            self._iterators.append(put)

    def _tell_no_more(self, put: Callable[[Change | None], None]) -> None:
        with self._lock:
            # A forked child has forgotten its parent's iterators.
            if put in self._iterators:
                self._iterators.remove(put)

    # --- fork ---------------------------------------------------------------------------------

    def _abandon(self) -> None:
        """In a forked child: what is held is the parent's."""
        self._lock = native_lock()
        self._iterators = []
        self._forks += 1
        if self._running:
            self._parent = os.getppid()
        self._run = None
        # Connections, too: closing them here would close them there.
        self._store = self._new_store()
        self._membership = self._new_membership(self._membership.ttl)


def _made_up() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


_members: weakref.WeakSet[BaseMember] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for member in list(_members):
        member._abandon()


def _leave_at_exit() -> None:
    """The program ends without having stopped its members: they leave, and their threads end."""
    runs = [run for member in _members if (run := member._run) is not None]
    for run in runs:
        # Nothing of the application's runs any more.
        run.deaf = True
        run.inbox.put(Stop(handover=False))
    deadline = monotonic() + _PATIENCE_AT_EXIT
    for run in runs:
        for thread in run.threads:
            thread.wait(max(0.0, deadline - monotonic()))


atexit.register(_leave_at_exit)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
