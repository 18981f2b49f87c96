"""A member of a partition group, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar

from hashring.core.assignors import Member
from hashring.core.groups.foresight import Foresight, GroupStatus
from hashring.core.groups.membership import PartitionChange, PartitionChangeKind
from hashring.groups.base import BaseMember, Stay
from hashring.groups.group import GroupMember
from hashring.protocol.flow import Flow, run_flow_async
from hashring.store.cancellation import callback_over
from hashring.store.command import Command
from hashring.store.memory_store import MemoryStore
from hashring.store.redis_store import AsyncRedisStore

M = TypeVar("M", bound="AsyncMember")
T = TypeVar("T")


class AsyncMember(BaseMember):
    """A member whose callbacks run in a task of the event loop that started it."""

    _asynchronous = True
    _caller: asyncio.Task[None] | None = None
    _callback: asyncio.Future[Any] | None = None
    _ended: asyncio.Event | None = None

    async def start(self, *, wait: bool = True) -> None:
        """Join, and stay a member until :meth:`stop`.

        Returns once the member is in the group; partitions follow by ``on_assigned``. When the
        call is cancelled, the member leaves. Waits one heartbeat at most for the first decision,
        so a slow assignor does not hold it up.

        Args:
            wait: if another session has the member's name, as after a crash of this program,
                wait until its lease ends: one ttl at most. ``False``: raise at once.

        Raises:
            NodeStateError: it runs already.
            MemberForked: it was made in a parent process, and has a name of its own.
            MemberExists: the group has a live member of this name. With ``wait``: it has renewed
                its lease meanwhile.
            AssignorError: the assignor gave a wrong answer to the first question.
            GroupMismatch: the group has other terms.
            ConfigError: no count was given, and the group does not exist.
            RedisUnavailable, RedisRefused: what stopped it.
        """
        self._refuse_to_start()
        self._waits_for_name = wait
        calls, put = _mailbox()
        entered, ended = asyncio.Event(), asyncio.Event()
        soon = asyncio.get_running_loop().call_soon_threadsafe
        stay = Stay(put, _if_open(soon, entered.set), _if_open(soon, ended.set))
        self._ended = ended
        self._launch(stay)
        try:
            await entered.wait()
            if stay.failure is not None:
                await ended.wait()
                raise stay.failure
        except BaseException:
            stay.abandon()
            raise
        self._caller = asyncio.create_task(self._call(stay, calls), name=f"hashring {self.name}")

    async def stop(self, *, handover: bool = False) -> None:
        """Leave the group.

        Every held partition is revoked first, with ``max_handoff_time`` to end its work. Returns
        when the member has left; in a callback at once. Calling it again does nothing.

        Args:
            handover: stay until others have taken over all partitions (with ``learner``: have
                warmed up for them), at most ``leave_timeout`` seconds.
        """
        stay, ended, caller = self._stay, self._ended, self._caller
        if stay is None or ended is None:
            return
        stay.stop(handover=handover)
        if asyncio.current_task() in (caller, self._callback):
            return
        await ended.wait()
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def changes(self) -> AsyncIterator[PartitionChange]:
        """What happens to this member's partitions, as it happens, until it has left::

            async for change in group.changes():
                if change.kind is ChangeKind.REVOKED:
                    await finish(change.partition)

        A partition that was revoked is let go of when the loop asks for the next change. In a
        forked child, which holds nothing, the loop ends.

        Raises:
            NodeStateError: the member does not run.
        """
        forks = self._forks
        mine, put = _mailbox()
        self._held_changes(put)
        try:
            while self._forks == forks and (change := await mine.get()) is not None:
                yield change
                self.tick()
                if change.kind is PartitionChangeKind.REVOKED:
                    self._let_go(change)
        finally:
            self._tell_no_more(put)

    async def _close_asking(self) -> None:
        """Close what questions of the application's were asked through."""

    async def _call(self, stay: Stay, calls: asyncio.Queue[PartitionChange | None]) -> None:
        try:
            while (change := await calls.get()) is not None:
                await self._call_one(change)
                self._called_back(change)
        finally:
            # Cancelled with the whole event loop, as a rule: nobody is left who could work.
            stay.abandon()

    async def _call_one(self, change: PartitionChange) -> None:
        try:
            result = self._call_back(change)
            if not inspect.isawaitable(result):
                return
            self._callback = asyncio.ensure_future(result)
            await callback_over(self._callback)
        except Exception:  # noqa: BLE001 - the next is to be called all the same
            self._raised(change)

    def _abandon(self) -> None:
        super()._abandon()
        self._caller = self._ended = self._callback = None


def _mailbox() -> tuple[
    asyncio.Queue[PartitionChange | None], Callable[[PartitionChange | None], None]
]:
    """A queue of this event loop's, and what any thread may put into it with.

    What it is put with raises RuntimeError once the loop is closed.
    """
    box: asyncio.Queue[PartitionChange | None] = asyncio.Queue()
    soon = asyncio.get_running_loop().call_soon_threadsafe

    def put(change: PartitionChange | None) -> None:
        soon(box.put_nowait, change)

    return box, put


def _if_open(soon: Callable[..., Any], do: Callable[[], None]) -> Callable[[], None]:
    def tell() -> None:
        # A closed event loop waits for nothing.
        with contextlib.suppress(RuntimeError):
            soon(do)

    return tell


class AsyncPartitionGroup(GroupMember, AsyncMember):
    """A group of members that share numbered partitions, one owner each, for asyncio.

    ::

        async with AsyncPartitionGroup(redis.asyncio.Redis(), "orders", 64) as group:
            async for change in group.changes(): ...

    Arguments, promises and errors are those of :class:`hashring.PartitionGroup`, with an asyncio
    client. Callbacks may be coroutine functions; they run one at a time in a task of the event
    loop that started the member. Questions about what is held are plain calls, since they do no
    I/O.

    The lease is renewed by a thread with connections and an event loop of its own, so work that
    blocks the application's event loop does not cost it the lease; but callbacks wait for it.
    When the event loop is closed the member leaves.
    """

    _asking: AsyncRedisStore | None = None

    async def status(self) -> GroupStatus:
        """Where the group stands, for whom it waits, and until when.

        Raises:
            StoreError: it could not be read.
            ConfigError: there is no such group.
        """
        return await self._ask(self._status())

    async def plan(
        self,
        *,
        join: Iterable[str | Member] = (),
        leave: Iterable[str] = (),
        partitions: int | None = None,
        access: str | None = None,
    ) -> Foresight:
        """What would happen if these joined and left and count and access became these.

        It touches nothing.

        Raises:
            StoreError: the group could not be read.
            UnknownMemberError, ConfigError: the plan is none.
            AssignorError: the assignor gave a wrong answer.
        """
        return await self._ask(self._foresee(join, leave, partitions, access))

    async def explain(self) -> Foresight:
        """What is happening, and why; touches nothing.

        Raises:
            StoreError: the group could not be read.
        """
        return await self.plan()

    async def resize(self, partitions: int) -> None:
        """Change the number of partitions of the whole group.

        Raises:
            ConfigError: the count cannot work.
            StoreError: it could not be done.
        """
        await self._ask(self._resize(partitions))

    async def drain(self, seconds: float | None = None, *, force: bool = False) -> None:
        """Hand over what this member has, and get nothing new until the order is lifted.

        The order stands in the group, and outlasts restarts of a member of this name. Owners
        let go as in any handoff, so no partition has two owners.

        Args:
            seconds: after which the order ends by itself; ``None`` for never.
            force: order it although no other member is left to take anything.

        Raises:
            ConfigError: no other member is left, without ``force``; or the time is none.
            UnknownMemberError: this member is not in the group.
            StoreError: it could not be done.
        """
        await self._ask(self._drain(seconds, force))

    async def undrain(self) -> None:
        """Lift the order to drain this member; nothing happens if there is none.

        Raises:
            UnknownMemberError: this member is not in the group, and has no order.
            StoreError: it could not be done.
        """
        await self._ask(self._undrain())

    async def weigh(self, weight: float | None) -> None:
        """Give this member another weight than the one it started with.

        It stands in the group until it is changed, and outlasts restarts of a member of this name.

        Args:
            weight: ``None`` for the member's own again.

        Raises:
            ConfigError: it is no finite number above 0.
            UnknownMemberError: this member is not in the group, and has no order.
            StoreError: it could not be done.
        """
        await self._ask(self._weigh(weight))

    async def _ask(self, flow: Flow[T]) -> T:
        try:
            return await run_flow_async(self._ask_redis, flow)
        finally:
            if not self._running:
                await self._close_asking()

    async def _ask_redis(self, command: Command[Any]) -> Any:
        if isinstance(self._redis, MemoryStore):
            return self._redis.run(command)
        if self._asking is None:
            self._asking = AsyncRedisStore(self._redis, self._timeout)
        return await self._asking.run(command)

    async def _close_asking(self) -> None:
        store, self._asking = self._asking, None
        if store is not None:
            await store.close()

    def _abandon(self) -> None:
        super()._abandon()
        self._asking = None
