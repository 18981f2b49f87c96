"""A member of a partition group, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar

from hashring.core.assignors import GroupMember
from hashring.core.groups.group_foresight import GroupForesight
from hashring.core.groups.group_status import GroupStatus
from hashring.groups.async_member import AsyncMember
from hashring.groups.base_partition_group import BasePartitionGroup
from hashring.protocol.flow import Flow, run_flow_async
from hashring.store.async_memory_store import async_store
from hashring.store.command import Command
from hashring.store.interface import AsyncStore

T = TypeVar("T")


class AsyncPartitionGroup(BasePartitionGroup, AsyncMember):
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

    _asking: tuple[asyncio.AbstractEventLoop, AsyncStore] | None = None
    """What questions go through, and the event loop that its connections belong to."""

    async def status(self) -> GroupStatus:
        """Where the group stands; see :meth:`hashring.PartitionGroup.status`."""
        return await self._ask(self._status())

    async def plan(
        self,
        *,
        join: Iterable[str | GroupMember] = (),
        leave: Iterable[str] = (),
        partitions: int | None = None,
        access: str | None = None,
    ) -> GroupForesight:
        """What would happen after such changes; see :meth:`hashring.PartitionGroup.plan`."""
        return await self._ask(self._foresee(join, leave, partitions, access))

    async def explain(self) -> GroupForesight:
        """What is happening, and why; see :meth:`hashring.PartitionGroup.explain`."""
        return await self.plan()

    async def resize(self, partitions: int) -> None:
        """Change the number of partitions; see :meth:`hashring.PartitionGroup.resize`."""
        await self._ask(self._resize(partitions))

    async def drain(self, seconds: float | None = None, *, force: bool = False) -> None:
        """Hand over what this member has; see :meth:`hashring.PartitionGroup.drain`."""
        await self._ask(self._drain(seconds, force))

    async def undrain(self) -> None:
        """Lift the order to drain; see :meth:`hashring.PartitionGroup.undrain`."""
        await self._ask(self._undrain())

    async def weigh(self, weight: float | None) -> None:
        """Give this member another weight; see :meth:`hashring.PartitionGroup.weigh`."""
        await self._ask(self._weigh(weight))

    async def _ask(self, flow: Flow[T]) -> T:
        if self._runs_here():
            try:
                return await run_flow_async(self._ask_redis, flow)
            finally:
                if not self._runs_here():
                    await self._close_asking()
        # On a connection of its own: only the member's event loop has a stop() that would close it.
        store = self._new_asking()
        try:
            return await run_flow_async(store.run, flow)
        finally:
            await store.close()

    async def _ask_redis(self, command: Command[Any]) -> Any:
        loop = asyncio.get_running_loop()
        asking = self._asking
        if asking is None or asking[0] is not loop:
            asking = self._asking = loop, self._new_asking()
        store = asking[1]
        try:
            return await store.run(command)
        finally:
            if self._asking is not asking:
                # stop() has closed it meanwhile, but for the connection that was in use.
                await store.close()

    def _new_asking(self) -> AsyncStore:
        return async_store(self._redis, self._io_timeout())

    async def _close_asking(self) -> None:
        asking, self._asking = self._asking, None
        if asking is None:
            return
        home, store = asking
        if home is asyncio.get_running_loop():
            await store.close()
        elif home.is_running():
            closing = asyncio.run_coroutine_threadsafe(store.close(), home)
            # That event loop may stop meanwhile.
            await asyncio.wait([asyncio.wrap_future(closing)], timeout=self._io_timeout())

    def _abandon(self) -> None:
        super()._abandon()
        self._asking = None
