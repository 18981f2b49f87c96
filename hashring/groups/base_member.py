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
import os
import secrets
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from operator import index
from typing import Any, Final

from hashring.core.groups.made_up_names import made_up_name
from hashring.core.groups.partition_change import PartitionChange, PartitionChangeKind
from hashring.core.hashing import hash_algorithm
from hashring.core.value_checks import (
    check_least_interval,
    check_member_name,
    checked_seconds,
    plain_number,
)
from hashring.errors import (
    ConfigError,
    HashringError,
    MemberForked,
    NodeStateError,
    RedisRefused,
    RedisUnavailable,
    StoreError,
)
from hashring.groups.callbacks import Callbacks
from hashring.groups.member_stay import Stay
from hashring.groups.timely_store import TimelyStore
from hashring.monkey_patching import native_lock
from hashring.protocol.group.base_member_machine import ENDED, BaseMemberMachine, Stage
from hashring.protocol.machine_steps import Machine, io_timeout
from hashring.running.forked import abandon_in_children, notice_fork
from hashring.running.host_name import host_name
from hashring.running.loop_log import LoopLog
from hashring.running.machine_loop import Loop
from hashring.running.native_threads import NativeThreads, start_native_thread
from hashring.running.not_copied import NotCopied
from hashring.running.threads_and_greenlets import Latch
from hashring.store.client_kind import is_async
from hashring.store.interface import Store
from hashring.store.loop_store import LoopStore
from hashring.store.memory_store import MemoryStore
from hashring.store.redis_store import RedisStore
from hashring.store.ring_and_group_names import name_bytes

logger = LoopLog("hashring.groups")

monotonic = time.monotonic

_ENTERING: Final = (
    Stage.OUTSIDE,
    Stage.ENTERING,
    Stage.WAITING,
    Stage.JOINED,
    Stage.WITHDRAWING,
    Stage.FAILED,
)
"""The stages in which nobody knows yet whether ``start()`` succeeds."""

_OF_HELD: Final = (
    PartitionChangeKind.ASSIGNED,
    PartitionChangeKind.REVOKED,
    PartitionChangeKind.DRAIN,
)
"""What is told only while the partition is held under the token that the change names."""

_OF_PARTITION: Final = (*_OF_HELD, PartitionChangeKind.LOST)
"""Changes of one partition, under the token that the change names."""

_ACTIVITY: Final = -1
"""Stands for being active, among partitions that have gone."""

_PATIENCE_AT_EXIT: Final = 1.0
"""Seconds that the end of the program waits for members to leave."""


class _MemberLoop(Loop):
    # A process may have hundreds of members; the end of a subscription ends the wait for it.
    listen = 2.0
    deaf: Callable[[RedisRefused], None] | None = None
    """Called once, when Redis refuses to let the member listen."""

    def _unsubscribed(self, number: int, failure: StoreError | None, now: float) -> None:
        super()._unsubscribed(number, failure, now)
        # A Redis that does not answer is told of by renewals.
        if isinstance(failure, RedisRefused) and self.deaf is not None:
            self.deaf(failure)
            self.deaf = None


Put = Callable[[PartitionChange | None], None]
"""Tells a loop over the changes; ``None`` is the last."""


@dataclass
class _Ending:
    """A partition that was revoked, and that the application is to end its work on.

    Attributes:
        loops: those over the changes that have not asked for the next one yet. The caller of
            callbacks is one of them while a callback may be at work.
        ended: whether any loop has.
        left: whether any has gone in the middle of it.
    """

    loops: set[Put] = field(default_factory=set)
    ended: bool = False
    left: bool = False


@dataclass
class _News:
    """Changes that nobody has been told of yet.

    Attributes:
        loops: those that are to be told. A loop that has begun since was told what is so already.
    """

    changes: list[PartitionChange]
    loops: list[Put]


def checked_partition(partition: Any) -> int:
    """The number of a partition, whether the group has it or not.

    Raises:
        ConfigError: it is not a whole number; then a report about it would be unreadable.
    """
    if isinstance(partition, bool) or not hasattr(partition, "__index__"):
        raise ConfigError("partition", partition, "give the number of a partition, as an int")
    return index(partition)


class BaseMember(NotCopied, ABC):
    """A member kept alive by threads of its own; subclasses follow a protocol, and say who runs
    the application.

    Arguments as for :class:`hashring.PartitionGroup`; ``interval`` is the one between heartbeats.
    """

    _asynchronous = False
    _kind = "group"
    _twins = ("PartitionGroup", "AsyncPartitionGroup")
    """What takes a sync client, and what takes an asyncio one."""

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        *,
        member: str | None,
        ttl: float,
        interval: float,
        progress_timeout: float | None,
        callbacks: Callbacks,
    ) -> None:
        if not isinstance(redis, MemoryStore) and is_async(redis) is not self._asynchronous:
            kind = "not an" if self._asynchronous else "an"
            use = self._twins[not self._asynchronous]
            raise ConfigError("redis", type(redis), f"is {kind} asyncio client: use {use}")
        if not self._asynchronous:
            callbacks.refuse_coroutine_functions(self._twins[1])
        # As text, also of bytes and of an enum of texts: errors, logs and metrics show it.
        self.name = name_bytes(self._kind, name).decode()
        self._named = member is not None
        self.member = check_member_name(_made_up() if member is None else member)
        plain = plain_number(interval)
        if plain is None or not 0 < plain <= ttl / 3:
            raise ConfigError(
                "heartbeat_interval",
                interval,
                f"must be above 0 and at most a third of the ttl of {ttl:g} s: with less room, "
                f"one late renewal costs a member everything",
            )
        if progress_timeout is not None:
            progress_timeout = checked_seconds("progress_timeout", progress_timeout)
        self._redis = redis
        self._progress_timeout = progress_timeout
        self._callbacks = callbacks
        # The renewer and the application both change what is held.
        self._lock = native_lock()
        # The loops over the changes of this stay.
        self._iterators: list[Put] = []
        self._news: list[_News] = []
        # What was revoked, by partition and token, and who has not ended its work on it yet.
        self._ending: dict[tuple[int, int], _Ending] = {}
        # What callbacks are told nothing of.
        self._gone: dict[int, int] = {}
        self._forks = 0
        self._stay: Stay | None = None
        self._parent: int | None = None
        self._logged_error: Exception | None = None
        self._interval = check_least_interval(plain)
        self._machine = self._new_machine()
        self._forget_callers()
        _members[id(self)] = self

    def _io_timeout(self) -> float:
        """Seconds that Redis may take to answer now."""
        return io_timeout(self._machine.holdings.ttl)

    def _new_store(self, timeout: float) -> Store:
        """A store for one thread. Each has its own: see :func:`start_native_thread`."""
        if isinstance(self._redis, MemoryStore):
            return self._redis
        if self._asynchronous:
            return LoopStore(self._redis, timeout)
        return RedisStore(self._redis, timeout)

    @abstractmethod
    def _new_machine(self) -> BaseMemberMachine:
        """The protocol of a member that has not started."""

    # --- what is held -------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether it has been started and has not left yet."""
        return self._stay is not None and not self._stay.over.wait(0)

    @property
    @abstractmethod
    def partitions(self) -> int:
        """How many partitions the group has, as far as this member knows."""

    @property
    def error(self) -> Exception | None:
        """What is wrong now, if anything."""
        return self._machine.error

    @property
    def held(self) -> dict[int, int]:
        """The partitions held now, with their fencing tokens. No I/O."""
        return self._machine.holdings.held(monotonic())

    @property
    def active(self) -> bool:
        """Whether any partition is held now. No I/O. Solace calls it the active indicator."""
        now = monotonic()
        holding = self._machine.holdings.holding
        return any(holding.token(partition, now) for partition in holding.partitions)

    def token(self, partition: int) -> int | None:
        """The fencing token of a partition held now; ``None`` when it is not. No I/O.

        Raises:
            ConfigError: ``partition`` is not a whole number.
        """
        partition = checked_partition(partition)
        return self._machine.holdings.holding.token(partition, monotonic())

    def owns(self, partition: int) -> bool:
        """Whether the partition is held now. No I/O.

        Raises:
            ConfigError: ``partition`` is not a whole number.
        """
        return self.token(partition) is not None

    def partition_of(self, key: str | bytes) -> int:
        """The partition of a key: its CRC-32 modulo the count.

        Raises:
            KeyTypeError, KeyValueError: the key has no point.
        """
        return hash_algorithm("crc-32").point(key) % self.partitions

    # --- what the application says ------------------------------------------------------------

    def tick(self) -> None:
        """The application makes progress.

        So do :meth:`release` and other reports about a partition, a callback that returns, and
        asking for the next of the changes.
        """
        self._machine.tick(monotonic())
        if self._machine.holdings.stalled:
            self._wake()

    def release(self, partition: int) -> bool:
        """Let go of a partition that is to be let go of, or of any other; whether it was held.

        For the iterator style; a callback's return says the same.

        Not guaranteed: that another member gets it. If this one is to have it, the group grants it
        again at once, without a pause.

        Raises:
            ConfigError: ``partition`` is not a whole number.
        """
        partition = checked_partition(partition)

        def release() -> bool:
            token = self.token(partition)
            return token is not None and self._machine.release(partition, token, monotonic())

        return self._report(release)

    def _report(self, report: Callable[[], bool]) -> bool:
        """Report something of a partition to the machine; whether that was news."""
        self.tick()
        with self._lock:
            news = report()
        if news:
            self._wake()
        return news

    def _wake(self) -> None:
        stay = self._stay
        if stay is not None and stay.loop is not None:
            stay.loop.wake()

    # --- for those who run it -----------------------------------------------------------------

    @property
    def heartbeat_interval(self) -> float:
        """Seconds between renewals."""
        return self._machine.interval

    @property
    def _given_up(self) -> bool:
        """Whether it is leaving by itself: a start was given up, or what ran callbacks ended."""
        return self._stay is not None and self._stay.deaf and self.running

    @property
    def _patience(self) -> float:
        """Seconds that a callback may go on after the member has left."""
        return self._machine.grace + 1.0

    def _refuse_to_start(self) -> None:
        """
        Raises:
            NodeStateError: it runs already.
            MemberForked: it has a name of its own, and runs in the parent process.
        """
        if self.running:
            raise NodeStateError(
                f"group {self.name!r} runs already in this object: call stop() before starting it "
                "again"
            )
        self._refuse_in_child()

    def _refuse_in_child(self) -> None:
        """
        Raises:
            MemberForked: it has a name of its own, and runs in the parent process.
        """
        notice_fork()
        if self._parent is not None:
            raise MemberForked(self.name, self.member, self._parent)

    def _launch(self, stay: Stay, launched: Callable[[], None] = lambda: None) -> None:
        """Begin to enter, in threads of the operating system's.

        Args:
            launched: called once it is sure that this stay is the only one.

        Raises:
            NodeStateError, MemberForked: see :meth:`_refuse_to_start`.
            RedisUnavailable: see :meth:`_thread`.
        """
        # Two may start at once.
        with self._lock:
            self._refuse_to_start()
            if self._machine.stage not in ENDED:
                # A fault ended the thread that drove it.
                self._machine = self._new_machine()
            machine = stay.machine = self._machine
            stay.loop = self._loop(stay, machine, "renewer", lambda: self._show(stay), self._lock)
            stay.loop.deaf = self._log_deafness
            self._logged_error = None
            # Of a stay that was interrupted before it began.
            loops = self._forget_loops()
            self._stay = stay
            launched()
        for put in loops:
            put(None)
        self._thread(stay, lambda: self._live(stay), "renewer")

    def _give_up(self, stay: Stay) -> None:
        """Have the member leave: its start has failed, or was interrupted."""
        stay.abandon()
        with self._lock:
            # Where it began, the renewer's thread ends them.
            loops = self._forget_loops() if stay is self._stay and not self.running else []
        for put in loops:
            put(None)

    def _begin(self, stay: Stay) -> None:  # most have nothing beside it
        """Make what stands beside the renewer for this stay."""

    def _end(self, stay: Stay) -> None:  # the same
        """End what stands beside the renewer; the member has left, or did not enter."""

    def _loop(
        self,
        stay: Stay,
        machine: Machine,
        what: str,
        publish: Callable[[], None] = lambda: None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> _MemberLoop:
        ground = NativeThreads(lambda target, name: self._spawn(stay, target, name))
        return _MemberLoop(
            machine,
            lambda: TimelyStore(self._new_store, self._io_timeout),
            ground,
            monotonic,
            publish=publish,
            lock=lock,
        )

    def _thread(self, stay: Stay, target: Callable[[], None], what: str) -> Latch:
        """Start a thread of this stay's; what is set at its end.

        Raises:
            RedisUnavailable: the process may have no more file descriptors for one.
            RuntimeError: it may have no more threads.
        """
        try:
            return self._spawn(stay, target, what)
        except OSError as error:
            raise RedisUnavailable(f"there is no thread for the {what}: {error}") from error

    def _spawn(self, stay: Stay, target: Callable[[], None], what: str) -> Latch:
        ended = start_native_thread(target, f"hashring group {self.name} {what}")
        # Where nobody may listen, each try has a thread, for as long as the member lives.
        for thread in [thread for thread in stay.threads if thread.is_set()]:
            with suppress(ValueError):  # another thread was first
                stay.threads.remove(thread)
        stay.threads.append(ended)
        return ended

    def _live(self, stay: Stay) -> None:
        """The renewer's thread."""
        assert stay.loop is not None
        if not stay.begun.acquire(blocking=False):
            # start() was interrupted.
            return
        try:
            self._begin(stay)
            self._machine.start(monotonic())
            try:
                stay.loop.run()
            finally:
                self._end(stay)
        except Exception as error:
            if stay.inside:
                raise
            stay.failure = error  # it is raised where start() was called
        finally:
            stay.failure = stay.failure or self._machine.failure
            with self._lock:
                stay.over.set()
                loops = self._forget_loops()
            if stay.failure is None:
                stay.deliver(None)
            for put in loops:
                put(None)
            stay.entered()
            stay.ended()

    def _show(self, stay: Stay) -> None:
        """After each step: tell the application what it changed."""
        machine = self._machine
        with self._lock:
            self._collect()
            news, self._news = self._news, []
        for each in news:
            self._tell(stay, each)
        self._logged_error = self._log(machine.error, self._logged_error)
        if not stay.inside and machine.stage not in _ENTERING and machine.failure is None:
            stay.inside = True
            stay.entered()

    def _log(self, error: Exception | None, last: Exception | None) -> Exception | None:
        """The error, which is logged unless it is like the last one."""
        if error is not None and type(error) is not type(last):
            unexpected = None if isinstance(error, HashringError) else error
            leaving = "; the lease ends by itself" if self._machine.stage is Stage.LEFT else ""
            logger.warning(
                "hashring group %s: %s: %s%s",
                self.name,
                self.member,
                error,
                leaving,
                exc_info=unexpected,
            )
        return error

    def _log_deafness(self, error: RedisRefused) -> None:
        logger.warning(
            "hashring group %s: %s hears of changes only when it renews its lease, every %g s: %s",
            self.name,
            self.member,
            self.heartbeat_interval,
            error,
        )

    # --- the caller ---------------------------------------------------------------------------

    def _collect(self) -> None:
        """Note who is to be told what has changed. Needs the lock.

        A loop that begins is told what is so already, so before it begins: of what has changed
        until then it must not be told again.
        """
        changes, self._machine.changes = self._machine.changes, []
        if changes:
            self._news.append(_News(changes, list(self._iterators)))
            for put in self._iterators:
                self._await_end(put, changes)
            if self._stay is not None and self._callbacks.may_work:
                self._await_end(self._stay.deliver, changes)

    def _tell(self, stay: Stay, news: _News) -> None:
        """Tell the application; what nobody works on or wants to hear of is let go of at once."""
        unheard = []
        for change in news.changes:
            for put in news.loops:
                put(change)
            revoked = change.kind is PartitionChangeKind.REVOKED
            # A callback may be at work on what is revoked: the caller comes to it after that.
            at_work = revoked and self._callbacks.may_work
            if at_work or self._callbacks.call_for(change) is not None:
                stay.deliver(change)
            elif revoked and not news.loops:
                unheard.append(change)
        self._let_go(*unheard)

    def _call_back(self, change: PartitionChange) -> object:
        """Call what is to be called now; what it returns."""
        if self._came_to_nothing(change, self._gone):
            return None
        if change.kind in _OF_HELD and not self._holds(change):
            return None
        call = self._callbacks.call_for(change)
        return None if call is None else call()

    def _holds(self, change: PartitionChange) -> bool:
        """Whether the partition is held under the token that the change names."""
        # An answer that prolongs the lease may be read at its end. With the lock it has either been
        # taken up, or comes too late for that.
        with self._lock:
            return self.token(change.partition) == change.token

    def _raised(self, change: PartitionChange) -> None:
        logger.exception(
            "hashring group %s: the callback for %s of partition %d raised",
            self.name,
            change.kind.value,
            change.partition,
        )

    def _called_back(self, stay: Stay, change: PartitionChange) -> None:
        """A callback is over, or has raised."""
        self.tick()
        if change.kind is PartitionChangeKind.REVOKED:
            self._end_work(stay.deliver, change)

    def _came_to_nothing(self, change: PartitionChange, gone: dict[int, int]) -> bool:
        """Whether the application is to be told nothing of a partition, or of being active.

        It has gone before the application came to its assignment, behind work that took long.

        Args:
            gone: such partitions, with their tokens, as far as the application has come; also
                :data:`_ACTIVITY`.
        """
        if change.kind is PartitionChangeKind.ACTIVE:
            with self._lock:  # see _holds()
                gone.pop(_ACTIVITY, None)
                if not self.active:
                    gone[_ACTIVITY] = change.token
            return _ACTIVITY in gone
        if change.kind is PartitionChangeKind.INACTIVE:
            return gone.pop(_ACTIVITY, None) is not None
        if change.kind is PartitionChangeKind.ASSIGNED:
            if self._holds(change):
                gone.pop(change.partition, None)
            else:
                gone[change.partition] = change.token
        return gone.get(change.partition) == change.token and change.kind in _OF_PARTITION

    def _asks_for_next(self, change: PartitionChange, put: Put) -> None:
        """A loop over the changes has ended its work on one."""
        self.tick()
        if change.kind is not PartitionChangeKind.REVOKED or self._callbacks.on_revoked is not None:
            return
        self._end_work(put, change, ended=True)

    def _end_work(self, put: Put, change: PartitionChange, *, ended: bool = False) -> None:
        """A loop, or the caller, is not at work any more on what was revoked. The last lets go.

        Args:
            ended: whether it is a loop, which has ended the work.
        """
        key = change.partition, change.token
        with self._lock:
            ending = self._ending.setdefault(key, _Ending())
            ending.ended = ending.ended or ended
            over = self._is_over(put, key)
        if over:
            self._let_go(change)

    def _is_over(self, put: Put, key: tuple[int, int]) -> bool:
        """Whether to let go of what was revoked, now that this one is done. Needs the lock."""
        ending = self._ending[key]
        ending.loops.discard(put)
        if ending.loops:
            return False  # Another may be at work still.
        del self._ending[key]
        return ending.ended or not ending.left

    def _await_end(self, put: Put, changes: Iterable[PartitionChange]) -> None:
        """Let what these changes revoke wait for a loop that receives them. Needs the lock."""
        for change in changes:
            if change.kind is PartitionChangeKind.REVOKED and self._callbacks.on_revoked is None:
                self._ending.setdefault((change.partition, change.token), _Ending()).loops.add(put)

    def _let_go(self, *changes: PartitionChange) -> None:
        self._let_go_of((change.partition, change.token) for change in changes)

    def _let_go_of(self, held: Iterable[tuple[int, int]]) -> None:
        """Let go of partitions, each by its number and token.

        A loop may have begun since, and been told of one: then that loop ends the work on it.
        """
        done = False
        with self._lock:
            for partition, token in held:
                if (partition, token) not in self._ending:
                    done |= self._machine.release(partition, token, monotonic())
        if done:
            self._wake()

    def _held_changes(self, put: Put) -> None:
        """Begin to tell an iterator: first of what is so already, then of changes."""
        with self._lock:
            if not self.running:
                raise NodeStateError(f"group {self.name!r} does not run: start it first")
            self._collect()
            standing = self._machine.holdings.standing(monotonic())
            self._await_end(put, standing)
            for change in standing:
                put(change)
            self._iterators.append(put)

    def _forget_loops(self) -> list[Put]:
        """The loops over the changes of a stay that is over. Needs the lock.

        One may be at work still. The next stay does not wait for it.
        """
        loops, self._iterators = self._iterators, []
        self._news, self._ending = [], {}
        return loops

    def _tell_no_more(self, put: Put, last: PartitionChange | None) -> None:
        """A loop is over. What it did not begin to end waits for it no more.

        Args:
            last: the change that it was at work on; ``None`` for none.
        """
        stay = self._stay
        if self._lock._is_owned() and stay is not None and stay.loop is not None:
            # Python collects it, or a signal handler closes it, in the middle of something else.
            stay.loop.tell(lambda now: self._end_loop(put, last))
        else:
            self._end_loop(put, last)

    def _end_loop(self, put: Put, last: PartitionChange | None) -> None:
        at_work = None
        if last is not None and last.kind is PartitionChangeKind.REVOKED:
            at_work = last.partition, last.token
        with self._lock:
            # It is forgotten at the end of its stay, and in a forked child.
            if put in self._iterators:
                self._iterators.remove(put)
            over = []
            for key, ending in list(self._ending.items()):
                ending.left = ending.left or (key == at_work and put in ending.loops)
                over += [key] if self._is_over(put, key) else []
        self._let_go_of(over)

    @abstractmethod
    def _forget_callers(self) -> None:
        """Nobody calls back for this member yet."""

    # --- fork ---------------------------------------------------------------------------------

    def _abandon(self) -> None:
        """In a forked child: what is held is the parent's."""
        self._lock = native_lock()
        self._forget_loops()
        self._forget_callers()
        self._forks += 1
        if not self._named:
            # Also before a start: the parent, and each of its children, may start one.
            self.member = _made_up()
        elif self.running:
            self._parent = os.getppid()
        # Connections, too: closing them here would close them there.
        self._stay = None
        self._machine = self._new_machine()


def _made_up() -> str:
    return made_up_name(host_name(), os.getpid(), secrets.token_hex(3))


# By identity: a subclass may define when its members are equal, or have no hash.
_members: weakref.WeakValueDictionary[int, BaseMember] = weakref.WeakValueDictionary()


def _leave_at_exit() -> None:
    """The program ends without having stopped its members: they leave, and their threads end."""
    stays = [stay for member in _members.values() if (stay := member._stay) is not None]
    for stay in stays:
        # Nothing of the application's runs any more.
        stay.abandon()
    deadline = monotonic() + _PATIENCE_AT_EXIT
    for stay in stays:
        for thread in tuple(stay.threads):
            thread.wait(max(0.0, deadline - monotonic()))


atexit.register(_leave_at_exit)
abandon_in_children(lambda: list(_members.values()))
