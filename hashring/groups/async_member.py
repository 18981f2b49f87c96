"""A member in an asyncio program."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hashring.asyncio_cancellation import call_back, callback_over
from hashring.core.groups.partition_change import PartitionChange
from hashring.groups.base_member import BaseMember
from hashring.groups.member_stay import Stay
from hashring.running.callback_turns import TaskTurn, TaskTurns
from hashring.running.forked import notice_fork

M = TypeVar("M", bound="AsyncMember")

_LOOK: Final = 0.01
"""Seconds between two looks whether a member has left that another event loop started."""


@dataclass(eq=False)
class _Call:
    """A call of a member's callback.

    Attributes:
        over: whether it has returned. Tasks that it started may outlive it, with its context.
    """

    member: AsyncMember
    over: bool = False


_calls: Final[ContextVar[tuple[_Call, ...]]] = ContextVar("hashring_callbacks", default=())
"""The calls in which this code runs, also in tasks that they have started."""


@dataclass(eq=False, kw_only=True)
class _AsyncStay(Stay):
    """A stay whose callbacks run in a task.

    Attributes:
        home: the event loop of that task.
        end: set when all is over.
        caller: the task; ``None`` before it is made.
    """

    home: asyncio.AbstractEventLoop
    end: asyncio.Event
    caller: asyncio.Task[None] | None = None


class AsyncMember(BaseMember):
    """A member whose callbacks run in a task of the event loop that started it."""

    _asynchronous = True
    _callback: asyncio.Future[Any] | None = None

    async def start(self, *, wait: bool = True) -> None:
        """Join, and stay a member until :meth:`stop`.

        Arguments, promises and errors are those of :meth:`hashring.PartitionGroup.start`. When the
        call is cancelled, the member leaves.
        """
        notice_fork()
        stay = self._stay
        if isinstance(stay, _AsyncStay) and stay.home.is_closed():
            stay.abandon()
        if self._given_up:
            await self.stop()
        # A forked child has no event loop that runs.
        self._refuse_to_start()
        calls, put = _mailbox()
        entered, ended = asyncio.Event(), asyncio.Event()
        home = asyncio.get_running_loop()
        stay = _AsyncStay(
            put, _if_open(entered.set), _if_open(ended.set), wait, home=home, end=ended
        )
        try:
            self._launch(stay)
            await entered.wait()
            if stay.failure is not None:
                await ended.wait()
                raise stay.failure
        except BaseException:
            self._give_up(stay)
            raise
        turn = self._turns.join()
        call = self._call(stay, calls, turn)
        stay.caller = turn.task = home.create_task(call, name=f"hashring {self.name}")

    async def stop(self, *, handover: bool = False) -> None:
        """Leave the group; see :meth:`hashring.PartitionGroup.stop`."""
        notice_fork()
        stay = self._stay
        if not isinstance(stay, _AsyncStay):
            return
        stay.stop(handover=handover)
        if self._is_in_callback():
            return
        if stay.home is not asyncio.get_running_loop():
            # The event loop that started it was closed, or runs in another thread.
            while not stay.over.wait(0):
                await asyncio.sleep(_LOOK)
            caller = None
        else:
            await stay.end.wait()
            caller = stay.caller
        if caller is not None:
            # A callback that never returns must not keep anybody from leaving.
            await asyncio.wait([caller], timeout=self._patience)
            if not caller.done():
                caller.cancel()
                await asyncio.wait([caller])
        await self._close_asking()

    async def __aenter__(self: M) -> M:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def changes(self) -> AsyncIterator[PartitionChange]:
        """What happens to this member's partitions, as it happens, until it has left::

            async for change in group.changes():
                if change.kind is PartitionChangeKind.REVOKED:
                    await finish(change.partition)

        See :meth:`hashring.PartitionGroup.changes`.
        """
        forks = self._forks
        mine, put = _mailbox()
        last: PartitionChange | None = None
        gone: dict[int, int] = {}
        try:
            self._held_changes(put)
            while self._forks == forks and (change := await mine.get()) is not None:
                if not self._came_to_nothing(change, gone):
                    last = change
                    yield change
                    last = None
                self._asks_for_next(change, put)
        finally:
            self._tell_no_more(put, last)

    def _is_in_callback(self) -> bool:
        """Whether a callback is the caller, or a task that it has started and may wait for."""
        inside = any(call.member is self and not call.over for call in _calls.get())
        # The callback may be a task that it did not start itself.
        return inside or asyncio.current_task() is self._callback

    def _runs_here(self) -> bool:
        """Whether it has been started in this event loop, and has not left yet."""
        stay = self._stay
        here = isinstance(stay, _AsyncStay) and stay.home is asyncio.get_running_loop()
        return here and self.running

    async def _close_asking(self) -> None:
        """Close what questions of the application's were asked through."""

    def _show(self, stay: Stay) -> None:
        assert isinstance(stay, _AsyncStay)
        if not stay.deaf and stay.home.is_closed():
            # There is no application left to work on anything.
            stay.abandon()
        super()._show(stay)

    async def _call(
        self, stay: Stay, calls: asyncio.Queue[PartitionChange | None], turn: TaskTurn
    ) -> None:
        try:
            await turn.come()
            while (change := await calls.get()) is not None and not turn.passed:
                await self._call_one(change, turn)
                self._called_back(stay, change)
        finally:
            # Cancelled with the whole event loop, as a rule: nobody is left who could work.
            stay.abandon()

    async def _call_one(self, change: PartitionChange, turn: TaskTurn) -> None:
        call = _Call(self)
        before = _calls.set((*(each for each in _calls.get() if not each.over), call))
        try:
            result = call_back(self._call_back, change)
            if not inspect.isawaitable(result):
                return
            self._callback = turn.callback = asyncio.ensure_future(result)
            await callback_over(self._callback)
        except Exception:  # noqa: BLE001 - the next is to be called all the same
            self._raised(change)
        finally:
            call.over = True
            _calls.reset(before)

    def _forget_callers(self) -> None:
        self._turns = TaskTurns()
        self._callback = None


def _mailbox() -> tuple[
    asyncio.Queue[PartitionChange | None], Callable[[PartitionChange | None], None]
]:
    """A queue of this event loop's, and what any thread may put into it with."""
    box: asyncio.Queue[PartitionChange | None] = asyncio.Queue()
    return box, _if_open(box.put_nowait)


def _if_open(do: Callable[..., None]) -> Callable[..., None]:
    """What any thread may call to have it done in this event loop."""
    soon = asyncio.get_running_loop().call_soon_threadsafe

    def tell(*arguments: object) -> None:
        # A closed event loop waits for nothing.
        with contextlib.suppress(RuntimeError):
            soon(do, *arguments)

    return tell
