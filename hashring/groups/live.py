"""A member of a partition group, kept alive by threads of its own.

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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Final

from hashring.core.assignors import AssignFunction, Assignor, Member, as_assignor
from hashring.core.groups import foresight, kernel
from hashring.core.groups.foresight import Foresight, GroupStatus
from hashring.core.groups.member import Change, ChangeKind, Membership
from hashring.core.groups.state import GroupState, MemberFacts, Terms, View
from hashring.core.hashing import hash_algorithm
from hashring.core.replica import check_node_name
from hashring.errors import (
    ConfigError,
    GroupMismatch,
    HashringError,
    MemberExists,
    NodeStateError,
    StoreError,
)
from hashring.store.executor import RedisStore, Store, Told
from hashring.store.group_commands import (
    Reading,
    Taken,
    beat,
    commit,
    concerned,
    group_keys,
    join,
    leave,
    read,
)

logger = logging.getLogger("hashring.groups")

monotonic = time.monotonic

_RETRY: Final = 0.5
"""Seconds until Redis is asked again after it did not answer."""
_TRIES: Final = 50
"""How often a decision is tried against others before the next renewal is waited for."""

OnAssigned = Callable[[int, int], object]
OnRevoked = Callable[[int, float], object]
OnPartition = Callable[[int], object]


@dataclass(frozen=True)
class _Wake:
    """Something is to be told or fetched."""


@dataclass(frozen=True)
class _Stop:
    handover: bool


class PartitionGroup:
    """A group of members that share numbered partitions, one owner each.

    ::

        group = PartitionGroup(redis, "orders", partitions=64, on_assigned=begin, on_revoked=end)
        with group:
            ...

    Args:
        redis: a sync client of redis-py or valkey-py. The group takes from it where Redis is,
            and makes connections of its own.
        name: the group's name.
        partitions: how many; ``None`` to take what the group has.
        assignor: who should own what: ``"balanced"``, ``"contiguous"``, ``"learner"``,
            ``"ring"``, or an assignor of your own.
        member: this member's name, unique in the group; made up unless given.
        weight: its share relative to the others'.
        ttl: seconds its lease lasts without renewal; at least three heartbeats.
        heartbeat_interval: seconds between renewals; a quarter of the ttl unless given.
        rebalance_delay, max_handoff_time, handoffs, leave_timeout: see
            :class:`hashring.core.groups.state.Terms`.
        progress_timeout: seconds without :meth:`tick` after which the member counts as stalled:
            it gets nothing new, and sheds one partition at a time. ``None``: never.
        migrate: change the group's terms to this member's, instead of refusing them.
        on_assigned: called with ``(partition, token)`` when work may begin.
        on_revoked: called with ``(partition, deadline)``, a time of ``time.monotonic()``, when
            work has to end. When it returns, or raises, the partition is let go of.
        on_lost: called with ``(partition,)`` when the partition is not held any more and
            ``on_revoked`` was not called or not over: the lease or the deadline has ended.
        on_warmup: called with ``(partition,)`` when this member should get ready to take over;
            to be answered by :meth:`ready` or :meth:`lag`.
        on_drain: called with ``(partition,)`` when a held partition was removed; to be answered
            by :meth:`drained`.

    Callbacks run one at a time in a thread of their own; what they raise is logged.

    Raises:
        ConfigError: an argument cannot work.
    """

    def __init__(
        self,
        redis: Any,
        name: str,
        partitions: int | None = None,
        assignor: str | Assignor | AssignFunction = "balanced",
        *,
        member: str | None = None,
        weight: float = 1.0,
        ttl: float = 10.0,
        heartbeat_interval: float | None = None,
        rebalance_delay: float = 5.0,
        max_handoff_time: float = 3.0,
        handoffs: int = 1,
        leave_timeout: float = 30.0,
        progress_timeout: float | None = None,
        migrate: bool = False,
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
        on_lost: OnPartition | None = None,
        on_warmup: OnPartition | None = None,
        on_drain: OnPartition | None = None,
    ) -> None:
        self.name = name
        self._keys = group_keys(name)
        self._assignor = as_assignor(assignor)
        self._mine = Terms(
            1 if partitions is None else partitions,
            self._assignor.name,
            ttl,
            rebalance_delay,
            max_handoff_time,
            handoffs,
            leave_timeout,
        )
        self._partitions = partitions
        self._migrate = migrate
        unique = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.member = check_node_name(unique if member is None else member)
        self.weight = Member(self.member, weight=weight).weight
        interval = ttl / 4 if heartbeat_interval is None else heartbeat_interval
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
        self._progress_timeout = progress_timeout
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_lost
        self._on_warmup = on_warmup
        self._on_drain = on_drain
        self._store: Store = RedisStore(redis, min(5.0, ttl / 3))
        self._terms = self._mine
        self._membership = Membership(ttl)
        # The renewer and the application both change what is held.
        self._lock = threading.RLock()
        self._inbox: queue.SimpleQueue[_Wake | _Stop] = queue.SimpleQueue()
        self._calls: queue.SimpleQueue[Change | None] = queue.SimpleQueue()
        self._iterators: list[queue.SimpleQueue[Change | None]] = []
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()
        self._session = ""
        self._claims: dict[int, int] = {}
        self._known = ""
        self._view: View | None = None
        self._leaving: float | None = None
        self._redis_now = 0.0
        self._last_tick = 0.0
        self._running = False
        self.error: HashringError | None = None
        """What is wrong now, if anything."""

    # --- running ------------------------------------------------------------------------------

    def start(self) -> None:
        """Join, and stay a member from threads of this group's own until :meth:`stop`.

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
        self._terms = self._agreed_terms()
        self._membership = Membership(self._terms.ttl, self._membership.seen)
        self._known, self._view, self._leaving = "", None, None
        self._inbox, self._calls = queue.SimpleQueue(), queue.SimpleQueue()
        self._ended.clear()
        self._last_tick = monotonic()
        try:
            self._join()
        except BaseException:
            with contextlib.suppress(StoreError):
                self._store.run(leave(self._keys, self.member, self._session))
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
        self._inbox.put(_Stop(handover))
        if threading.current_thread() not in self._threads:
            *others, caller = self._threads
            for thread in others:
                thread.join()
            # A callback that never returns must not keep anybody from leaving.
            caller.join(self._terms.max_handoff_time + 1.0)
            self._threads.clear()

    def __enter__(self) -> PartitionGroup:
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
    def partitions(self) -> int:
        """How many partitions the group has, as far as this member knows."""
        return self._terms.partitions

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
            self._inbox.put(_Wake())

    def release(self, partition: int) -> bool:
        """Let go of a partition that is to be let go of, or of any other; whether it was held.

        For the iterator style; a callback's return says the same.
        """
        with self._lock:
            token = self.token(partition)
            done = token is not None and self._membership.release(partition, token)
        if done:
            self._inbox.put(_Wake())
        return done

    def ready(self, partition: int) -> bool:
        """This member is warm for a partition; whether it was to warm up for it."""
        return self.lag(partition, 0.0)

    def lag(self, partition: int, behind: float) -> bool:
        """How far this member is behind on a partition; whether it was to warm up for it."""
        with self._lock:
            done = self._membership.lag(partition, behind)
        if done:
            self._inbox.put(_Wake())
        return done

    def drained(self, partition: int) -> bool:
        """A removed partition is empty; whether this member was to empty it."""
        with self._lock:
            done = self._membership.drained(partition)
        if done:
            self._inbox.put(_Wake())
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

    # --- looking ------------------------------------------------------------------------------

    def status(self) -> GroupStatus:
        """Where the group stands, for whom it waits, and until when.

        Raises:
            StoreError: it could not be read.
            ConfigError: there is no such group.
        """
        state, reading = self._standing()
        return foresight.status(state, reading.facts)

    def plan(
        self,
        *,
        join: Iterable[str | Member] = (),
        leave: Iterable[str] = (),
        partitions: int | None = None,
    ) -> Foresight:
        """What would happen if these joined and left and the count became this; touches nothing.

        Raises:
            StoreError: the group could not be read.
            UnknownMemberError, ConfigError: the plan is none.
        """
        state, reading = self._standing()
        return foresight.foresee(
            state, reading.facts, self._assignor, join=join, leave=leave, partitions=partitions
        )

    def explain(self) -> Foresight:
        """What is happening, and why; touches nothing.

        Raises:
            StoreError: the group could not be read.
        """
        return self.plan()

    def resize(self, partitions: int) -> None:
        """Change the number of partitions of the whole group.

        Raises:
            ConfigError: the count cannot work.
            StoreError: it could not be done.
        """
        self._change(lambda state: kernel.resize(state, partitions))

    def _standing(self) -> tuple[GroupState, Reading]:
        reading = self._store.run(read(self._keys))
        state = reading.standing()
        if state is None:
            raise ConfigError("name", self.name, "there is no such group: no member ever joined")
        return state, reading

    def _change(self, decide: Callable[[GroupState], kernel.Outcome]) -> None:
        while True:
            state, reading = self._standing()
            outcome = decide(state)
            if outcome.state is state:
                return
            now = reading.facts.now
            due = kernel.Outcome(outcome.state, outcome.events, now)
            if self._store.run(commit(self._keys, reading, due, self.member)) is not None:
                break
        self._terms = outcome.state.terms
        self._inbox.put(_Wake())

    # --- joining ------------------------------------------------------------------------------

    def _agreed_terms(self) -> Terms:
        """The terms to join with: the group's own where it has some."""
        reading = self._store.run(read(self._keys))
        standing = reading.standing()
        theirs = reading.terms if standing is None else standing.terms
        if theirs is None:
            if self._partitions is None:
                raise ConfigError(
                    "partitions", None, f"say how many: the group {self.name!r} does not exist yet"
                )
            return self._mine
        mine = asdict(self._mine)
        if self._partitions is None:
            mine["partitions"] = theirs.partitions
        for setting, value in mine.items():
            if value != getattr(theirs, setting):
                if self._migrate:
                    self._change(lambda state: kernel.migrate(state, Terms(**mine)))
                    return Terms(**mine)
                raise GroupMismatch(self.name, setting, value, getattr(theirs, setting))
        return theirs

    def _facts(self) -> MemberFacts:
        words = self._membership.words()
        return MemberFacts(
            self.member,
            self._session,
            0,
            0.0,
            self.weight,
            words.seen,
            self._leaving,
            words.stalled,
            words.released,
            words.drained,
            words.lags,
            self._claims,
        )

    def _join(self) -> None:
        """Join as a new session, with what is still held."""
        before, self._session = self._session, secrets.token_hex(8)
        with self._lock:
            self._claims = self._membership.held(monotonic())
            facts = self._facts()
        answer = self._store.run(join(self._keys, facts, self._terms, before))
        if isinstance(answer, Taken):
            self._session = before
            raise MemberExists(self.name, self.member, answer.expires_in)
        for setting, value in asdict(self._terms).items():
            if value != getattr(answer.terms, setting):
                # Two first members at once, or a change since they were read.
                self._store.run(leave(self._keys, self.member, self._session))
                raise GroupMismatch(self.name, setting, value, getattr(answer.terms, setting))
        self._known, self._view = "?", None
        self._redis_now = answer.now
        self._step()

    # --- the renewer --------------------------------------------------------------------------

    def _renew(self) -> None:
        next_beat = monotonic()
        leave_at = math.inf
        try:
            while True:
                item = self._next(min(next_beat, leave_at))
                now = monotonic()
                self._tell(self._tick(now))
                if isinstance(item, _Stop):
                    if not item.handover:
                        return
                    self._leaving = self._redis_now
                    leave_at = now + self._terms.leave_timeout
                if now >= leave_at:
                    return
                next_beat = self._beat(now)
                if self._leaving is not None and self._handed_over():
                    return
        finally:
            self._finish()

    def _next(self, until: float) -> _Wake | _Stop | None:
        """The next item, or ``None`` when it is time for something."""
        until = min(until, self._membership.due(), self._stall_at())
        try:
            item = self._inbox.get(timeout=max(0.0, until - monotonic()))
        except queue.Empty:
            return None
        while isinstance(item, _Wake):
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

    def _beat(self, now: float) -> float:
        """Renew, report, take up the answer; when to do so again."""
        try:
            while True:
                asked_at = monotonic()
                with self._lock:
                    facts = self._facts()
                answer = self._store.run(beat(self._keys, facts, self._terms.ttl, self._known))
                if answer is None:
                    self._join()
                    continue
                self._redis_now, self._known = answer.now, answer.tag
                self._view = answer.view or self._view
                if self._view is not None and self._view.seated:
                    self._claims = {}
                changes: list[Change] = []
                if self._view is not None:
                    with self._lock:
                        changes = self._membership.heard(
                            self._view, asked_at, answer.now, monotonic()
                        )
                        more = self._membership.words().released != facts.released
                    self._tell(changes)
                else:
                    more = False
                if answer.due:
                    more = self._step() or more
                if not more:
                    break
            self.error = None
        except HashringError as error:
            if type(error) is not type(self.error):
                # Once, and not with every try.
                logger.warning("hashring group %s: %s: %s", self.name, self.member, error)
            self.error = error
            return now + min(_RETRY, self.heartbeat_interval)
        if self._view is not None and self._view.revoked:
            # Say soon that the deadlines are known.
            return now + min(_RETRY, self.heartbeat_interval)
        return now + self.heartbeat_interval

    def _step(self) -> bool:
        """Take the next step of the group; whether anything was decided.

        Raises:
            StoreError: Redis did not do it.
            AssignorError: the assignor's answer is none.
        """
        decided = False
        for _ in range(_TRIES):
            reading = self._store.run(read(self._keys))
            state = reading.standing()
            if state is None:
                return decided
            if self._terms != state.terms and state.terms.assignor == self._assignor.name:
                self._terms = state.terms
                self._membership.ttl = state.terms.ttl
            outcome = kernel.step(state, reading.facts, self._assignor)
            done = self._store.run(commit(self._keys, reading, outcome, self.member))
            if done is None:
                continue
            decided = decided or outcome.state is not state
            if not done.again:
                break
        return decided

    def _handed_over(self) -> bool:
        view = self._view
        return view is not None and view.seated and not view.held

    def _finish(self) -> None:
        """Revoke everything, give the callbacks their time, and leave."""
        now = monotonic()
        deadline = min(now + self._terms.max_handoff_time, self._membership.holding.lease_until)
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
            self._membership = Membership(self._terms.ttl, self._membership.seen)
        self._tell(last)
        try:
            self._store.run(leave(self._keys, self.member, self._session))
            self._step()
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
                subscription = self._store.subscribe(self._keys.channel)
            except StoreError:
                self._ended.wait(_RETRY)
                continue
            try:
                while not self._ended.is_set():
                    notice = subscription.wait(0.2)
                    if notice is None:
                        continue
                    if not isinstance(notice, Told) or self.member in concerned(notice.payload):
                        self._inbox.put(_Wake())
            except StoreError:
                # What was missed meanwhile is noticed with the next renewal.
                self._ended.wait(_RETRY)
            finally:
                subscription.close()

    # --- the caller ---------------------------------------------------------------------------

    def _tell(self, changes: list[Change]) -> None:
        for change in changes:
            with self._lock:
                iterators = list(self._iterators)
            for each in iterators:
                each.put(change)
            if change.kind is ChangeKind.REVOKED and self._on_revoked is None and not iterators:
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
            if change.kind is ChangeKind.REVOKED and self._on_revoked is not None:
                self._let_go(change)

    def _call_back(self, change: Change) -> None:
        partition = change.partition
        if change.kind is ChangeKind.ASSIGNED:
            # Not when it has gone meanwhile, behind a callback that took long.
            if self._on_assigned is not None and self.token(partition) == change.token:
                self._on_assigned(partition, change.token)
        elif change.kind is ChangeKind.REVOKED:
            if self._on_revoked is not None and self.token(partition) == change.token:
                self._on_revoked(partition, change.deadline)
        elif change.kind is ChangeKind.LOST:
            if self._on_lost is not None:
                self._on_lost(partition)
        elif change.kind is ChangeKind.WARMUP:
            if self._on_warmup is not None:
                self._on_warmup(partition)
        elif change.kind is ChangeKind.DRAIN and self._on_drain is not None:
            self._on_drain(partition)

    def _let_go(self, change: Change) -> None:
        with self._lock:
            done = self._membership.release(change.partition, change.token)
        if done:
            self._inbox.put(_Wake())
