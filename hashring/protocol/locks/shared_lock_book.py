"""A book of locks for several threads: those of the user, and the node's loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from hashring.monkey_patching import native_lock
from hashring.protocol.locks.calls_under_way import AskedKey
from hashring.protocol.locks.key_lease import LeaseHolder
from hashring.protocol.locks.lock_book import LockBook
from hashring.protocol.locks.lock_config import LockConfig
from hashring.protocol.locks.verdicts import Verdict
from hashring.protocol.machine_steps import Run
from hashring.store.ring.key_names import RingKeys

P = ParamSpec("P")
T = TypeVar("T")


def _alone(
    method: Callable[Concatenate[Any, P], T],
    inside_another: Callable[..., T] | None = None,
) -> Callable[Concatenate[SharedLockBook, P], T]:
    """The method of a book that lets in one caller at a time.

    Args:
        inside_another: in its place for a signal handler that has interrupted another call: it
            must not change what that call is at work on.
    """

    @wraps(method)
    def alone(self: SharedLockBook, *args: P.args, **kwargs: P.kwargs) -> T:
        inside = self.entered
        if inside and inside_another is not None:
            return inside_another(self, *args, **kwargs)
        with self._guard:
            if self._torn:
                self._mend()
            try:
                while self._leaving and not inside:
                    # Taken out once it is done: a handler may raise in between, and then the next
                    # call does it again.
                    LockBook.unpin(self, *self._leaving[0])
                    self._leaving.popleft()
                return method(self, *args, **kwargs)
            except BaseException:
                self._torn = True
                raise

    return cast("Callable[Concatenate[SharedLockBook, P], T]", alone)


def _ask_inside(book: LockBook, *asked: Any) -> Verdict:
    return Verdict.YES if book.holds(*asked) else Verdict.NO


def _ask_many_inside(
    book: LockBook, asked: Iterable[AskedKey], bounds: Sequence[int], until: float, now: float
) -> tuple[list[AskedKey], list[AskedKey]]:
    return [each for each in asked if book.holds(each[0], each[1], bounds, until, now)], []


def _pin_inside(book: LockBook, *_: object) -> None:
    """No new lease: that call may be at work on all of them."""


class SharedLockBook(LockBook):
    """A book that lets in one caller at a time.

    Each call is short and does no I/O. What may be read whatever goes on: ``held``, ``count``,
    ``limit``, and the rest of what a status shows.
    """

    def __init__(self, names: RingKeys, config: LockConfig, retry: float) -> None:
        # Reentrant: a signal handler may run anywhere. Threads of the operating system's may ask as
        # well as greenlets, which have nothing to wait for inside.
        self._guard = native_lock()
        # Whether a call did not come to its end: a signal handler may raise anywhere, too.
        self._torn = False
        # Those that are to leave their leases, and when.
        self._leaving: deque[tuple[LeaseHolder, float]] = deque()
        super().__init__(names, config, retry)

    ask = _alone(LockBook.ask, _ask_inside)
    ask_many = _alone(LockBook.ask_many, _ask_many_inside)
    take = _alone(LockBook.take)
    acquired = _alone(LockBook.acquired)
    acquire_failed = _alone(LockBook.acquire_failed)
    interrupted = _alone(LockBook.interrupted)
    busy = _alone(LockBook.busy)
    in_doubt = _alone(LockBook.in_doubt)
    pin = _alone(LockBook.pin, _pin_inside)
    pin_again = _alone(LockBook.pin_again)
    part = _alone(LockBook.part)
    begin = _alone(LockBook.begin)
    drain = _alone(LockBook.drain)
    see = _alone(LockBook.see)
    heartbeat = _alone(LockBook.heartbeat)
    listening = _alone(LockBook.listening)
    news = _alone(LockBook.news)
    due = _alone(LockBook.due)
    end = _alone(LockBook.end)
    session_ended = _alone(LockBook.session_ended)
    forget_releases = _alone(LockBook.forget_releases)

    @property
    def entered(self) -> bool:
        """Whether the caller is inside the book already: a signal handler may find itself so."""
        guard: Any = self._guard
        return bool(guard._is_owned())

    @_alone
    def step(self, now: float) -> Run | None:
        """What the loop has to run now, if anything."""
        return self._told_alone(super().step(now))

    @_alone
    def leave(self, now: float) -> Run | None:
        """The node leaves: let go of everything that nobody works on, a call at a time."""
        return self._told_alone(super().leave(now))

    def unpin(self, holder: LeaseHolder, now: float) -> bool:
        """Leave a lease; whether a key is to be let go now.

        The caller may be inside of another call already: the collector has closed a generator with
        a hold in it. Then the next call begins with this. So it does where a signal handler raises
        in it.
        """
        self._leaving.append((holder, now))
        if self.entered:
            self.due_calls.stirred = True
            return False
        return self._unpin_all()

    @_alone
    def _unpin_all(self) -> bool:
        # Each call begins with that.
        return self._releases.due

    def _told_alone(self, step: Run | None) -> Run | None:
        """A call of the loop's, whose answer lets in one caller at a time, too."""
        if step is None:
            return None
        return Run(
            step.command,
            lambda reply, sent, now: self._then(partial(step.done, reply, sent, now)),
            lambda error, now: self._then(partial(step.failed, error, now)),
        )

    @_alone
    def _then(self, told: Callable[[], None]) -> None:
        told()

    def _mend(self) -> None:
        self.mend()
        # At last: a handler may raise once more meanwhile.
        self._torn = False
