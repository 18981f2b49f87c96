"""A member in a program of threads or greenlets."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from hashring.core.groups.partition_change import PartitionChange
from hashring.groups.base_member import BaseMember, logger
from hashring.groups.member_stay import Stay
from hashring.monkey_patching import threads_are_greenlets
from hashring.running.callback_turns import CallerTurn, CallerTurns
from hashring.running.forked import notice_fork
from hashring.running.loop_log import is_logging
from hashring.running.native_threads import ThreadBackend
from hashring.running.threads_and_greenlets import Backend, GeventBackend, Latch

M = TypeVar("M", bound="SyncMember")
T = TypeVar("T")

_LONG = 3600.0
_MOMENT = 1.0

END = object()
"""Comes after the last change."""


@dataclass(eq=False, kw_only=True)
class _SyncStay(Stay):
    """A stay whose callbacks run in a thread or in a greenlet.

    Attributes:
        backend: runs the caller.
        end: set when all is over.
        called: set when the caller has ended.
        come: set when it is the caller's turn: that of an earlier stay may be at work still.
        turn: its place in the line of callers.
        spawned: whether anything is to run callbacks; not before the member has entered.
        caller: what runs callbacks; ``None`` before it does.
    """

    backend: Backend
    end: Latch
    called: Latch
    come: Latch
    turn: CallerTurn
    spawned: bool = False
    caller: object = None


class SyncMember(BaseMember):
    """A member whose callbacks run in a thread or in a greenlet."""

    def start(self, *, wait: bool = True) -> None:
        """Join, and stay a member until :meth:`stop`. Callbacks run in a thread.

        Returns once the member is in the group; partitions follow by ``on_assigned``. Waits one
        heartbeat at most for the first decision, so a slow assignor does not hold it up.

        Args:
            wait: if another session has the member's name, as after a crash of this program,
                wait until its lease ends: one ttl at most. ``False``: raise at once.

        Raises:
            NodeStateError: it runs already, or was stopped while it started.
            MemberForked: it has a name of its own, and runs in the parent process.
            MemberExists: the group has a live member of this name. With ``wait``: it has renewed
                its lease meanwhile. In a lease challenge, two of one name are two members.
            AssignorError: the assignor gave a wrong answer to the first question.
            GroupMismatch: the group has other terms.
            ConfigError: no count was given, and the group does not exist.
            RedisUnavailable, RedisRefused: what stopped it.
        """
        # What is a thread to a patched program is a greenlet.
        self._start(GeventBackend() if threads_are_greenlets() else ThreadBackend(), wait=wait)

    def gevent_start(self, *, wait: bool = True) -> None:
        """Like :meth:`start`; callbacks run in a greenlet.

        Works monkey-patched or not. The hub is never blocked by Redis, and a hub that does not
        come round for a while does not keep the lease from being renewed.

        Raises:
            MissingDependencyError: gevent is not installed. Others: see :meth:`start`.
        """
        self._start(GeventBackend(), wait=wait)

    def _start(self, backend: Backend, *, wait: bool) -> None:
        notice_fork()
        if self._given_up:
            self.stop()
        calls = _Mailbox(backend)
        entered, ended, called, come = (backend.latch() for _ in range(4))
        turns = self._turns
        stay = _SyncStay(
            calls.put,
            entered.set,
            ended.set,
            wait,
            backend=backend,
            end=ended,
            called=called,
            come=come,
            turn=CallerTurn(come.set, backend.gone),
        )

        def line_up() -> None:
            if not backend.greenlets():
                turns.join(stay.turn)

        try:
            self._launch(stay, line_up)
            _wait(entered)
            if stay.failure is not None:
                _wait(ended)
                raise stay.failure
            stay.spawned = True
            backend.spawn(lambda: self._call(stay, calls), f"hashring group {self.name} caller")
        except BaseException:
            # Also Ctrl-C while it waits: nobody would run callbacks.
            self._give_up(stay)
            called.set()
            if stay.caller is None:
                turns.leave(stay.turn)
            backend.close()
            raise

    def stop(self, *, handover: bool = False) -> None:
        """Leave the group.

        Every held partition is revoked first, with ``max_handoff_time`` to end its work. Returns
        when the member has left; in a callback, in gevent's hub, and in a signal handler that has
        interrupted what the member needs, at once. Calling it again does nothing. Safe in a signal
        handler.

        A callback that has not returned by then keeps nobody from leaving. For such a callback, and
        for an assignor that does not return, it waits ``max_handoff_time`` and 1 s more, each.

        Args:
            handover: stay until others have taken over all partitions (with ``learner``: have
                warmed up for them), at most ``leave_timeout`` seconds.
        """
        notice_fork()
        stay = self._stay
        if not isinstance(stay, _SyncStay):
            return
        if sys.is_finalizing():
            # The renewer's thread is gone, and with it who could say that the member has left.
            return
        stay.stop(handover=handover)
        backend = stay.backend
        # A signal handler may have interrupted somebody whom the renewer has to wait for.
        interrupted = self._lock._is_owned() or is_logging(logger.logger)
        interrupted = interrupted or not stay.begun.locked()
        if interrupted or self._is_in_callback() or not backend.may_wait():
            return
        _wait(stay.end)
        if stay.spawned:
            # A callback that never returns must not keep anybody from leaving.
            stay.called.wait(self._patience)
        for thread in tuple(stay.threads):
            # Over but for a moment; an assignor that never returns is not waited for.
            thread.wait(_MOMENT)
        self._close_asking()

    def __enter__(self: M) -> M:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def changes(self) -> Iterator[PartitionChange]:
        """What happens to this member's partitions, as it happens, until it has left::

            for change in group.changes():
                if change.kind is PartitionChangeKind.REVOKED:
                    finish(change.partition)

        A partition that was revoked is let go of when the loop asks for the next change, of several
        loops the last, and no callback runs that may work on it; with ``on_revoked``, only when
        that has returned. A loop that begins later
        first gets what is so already. Of a partition that has gone before the loop came to its
        assignment, it gets nothing. In a forked child, which holds nothing, the loop ends.

        Raises:
            NodeStateError: the member does not run.
        """
        forks = self._forks
        mine = _Mailbox(self._backend or ThreadBackend())
        put = mine.put
        last: PartitionChange | None = None
        gone: dict[int, int] = {}
        try:
            self._held_changes(put)
            while self._forks == forks and (change := mine.first()) is not END:
                mine.taken()
                if not self._came_to_nothing(change, gone):
                    last = change
                    yield change
                    last = None
                self._asks_for_next(change, put)
        finally:
            self._tell_no_more(put, last)

    def _close_asking(self) -> None:
        """Close what questions of the application's were asked through."""

    def _is_in_callback(self) -> bool:
        """Whether a callback is the caller, be it one of an earlier stay."""
        return any(stay.caller == stay.backend.current() for stay in list(self._calling))

    @property
    def _backend(self) -> Backend | None:
        """What runs the caller; ``None`` before the first start."""
        return self._stay.backend if isinstance(self._stay, _SyncStay) else None

    def _show(self, stay: Stay) -> None:
        assert isinstance(stay, _SyncStay)
        if not stay.deaf and stay.backend.gone():
            # There is no greenlet left to work on anything.
            stay.abandon()
        super()._show(stay)

    def _call(self, stay: _SyncStay, calls: _Mailbox) -> None:
        backend, turns, calling = stay.backend, self._turns, self._calling
        try:
            self._call_each(stay, calls)
        finally:
            # Its greenlet was killed, unless the member has left: nobody is left who could work.
            try:
                stay.abandon()
                stay.called.set()
                with contextlib.suppress(ValueError):
                    calling.remove(stay)
                turns.leave(stay.turn)
            finally:
                turns.leave(stay.turn)
                backend.close()

    def _call_each(self, stay: _SyncStay, calls: _Mailbox) -> None:
        backend, forks, turns, calling = stay.backend, self._forks, self._turns, self._calling
        over: object = None
        failed: object = END
        while True:
            try:
                stay.caller = backend.current()
                if stay not in calling:
                    calling.append(stay)
                turns.join(stay.turn)
                stay.turn.wait(stay.come)
                # In a child that a callback has forked there is nothing to be told.
                while self._forks == forks and (change := calls.first()) is not END:
                    if change is not over:
                        try:
                            self._call_back(change)
                        except BaseException as error:  # noqa: BLE001 - the next is called, too
                            # What a signal handler raised in this greenlet is the main greenlet's.
                            if not backend.forward(error):
                                self._raised(change)
                        finally:
                            over = change
                    self._called_back(stay, change)
                    calls.taken()
                return
            except BaseException as error:
                # A signal handler raised between two callbacks. The member works on.
                if backend.forward(error):
                    continue
                if not isinstance(error, Exception) or failed is over:
                    raise
                failed = over
                logger.exception("hashring group %s: unexpected error between callbacks", self.name)

    def _forget_callers(self) -> None:
        self._turns = CallerTurns()
        self._calling: list[_SyncStay] = []

    def _abandon(self) -> None:
        backend = self._backend
        self._turns.abandon()
        super()._abandon()
        if backend is not None:
            backend.abandon()


class _Mailbox:
    """Changes, and the end of them, that any thread puts in. The first stays until it is taken.

    A caller that a signal handler interrupted reads it again.
    """

    def __init__(self, backend: Backend) -> None:
        self._inbox = backend.inbox()
        self._changes: deque[Any] = deque()

    def put(self, change: PartitionChange | None) -> None:
        """Add a change; ``None`` is the last."""
        self._changes.append(END if change is None else change)
        self._inbox.put(self)

    def first(self) -> Any:
        """The oldest of the changes; waits for one."""
        while not self._changes:
            self._inbox.get(_LONG)
        return self._changes[0]

    def taken(self) -> None:
        """The first was dealt with."""
        self._changes.popleft()


def _wait(latch: Latch) -> None:
    # With a timeout: without any timer gevent's hub would find nothing to wait for, and say so.
    while not latch.wait(_LONG):
        pass
