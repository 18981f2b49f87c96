"""A live node over an asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar, cast

from hashring.core.ranges import PointRange
from hashring.core.ring import Ring
from hashring.errors import EmptyRingError, NodeStateError, RedisUnavailable
from hashring.monkey_patching import native_lock
from hashring.node.async_node_runner import AsyncRunner
from hashring.node.base_node import Node
from hashring.node.key_answers import Shown, listed, monotonic
from hashring.node.lock_flows import Asking, Hold, TryAgain
from hashring.protocol.flow import Flow, run_flow_async
from hashring.protocol.locks.calls_under_way import AskedKey
from hashring.protocol.locks.key_lease import KeyLease
from hashring.protocol.locks.verdicts import Verdict
from hashring.protocol.node.node_states import AT_WORK
from hashring.running.callback_turns import TaskTurns
from hashring.running.calls_at_once import CallsAtOnce
from hashring.running.forked import notice_fork
from hashring.store.async_memory_store import async_store
from hashring.store.command import Command
from hashring.store.interface import AsyncStore
from hashring.store.redis_answers import told_failure
from hashring.store.ring.commands import owner
from hashring.store.ring.node_orders import OrderStatus

T = TypeVar("T")
N = TypeVar("N", bound="AsyncRingNode")

_LOOK: Final = 0.01
"""Seconds between two looks whether a node has left that another event loop runs."""


class _LeaseEvent(asyncio.Event):
    """An event that may be set when the event loop of those who wait for it was closed."""

    def set(self) -> None:
        with suppress(RuntimeError):
            super().set()


class AsyncRingNode(Node):
    """A node of a consistent hash ring, for asyncio.

    ::

        async with AsyncRingNode(redis.asyncio.Redis(), "accounts") as node:
            mine = [key for key in keys if node.contains(key)]

    Arguments, promises and errors are those of :class:`hashring.RingNode`; ``contains`` and
    ``get_ranges`` are plain calls, since they do no I/O. :meth:`fetch_owner` and :meth:`fetch_ring`
    ask Redis. ``owner`` and ``ring`` are plain calls too: without ``follow=True`` they raise
    ``NodeStateError``. ``on_change`` may be a coroutine function. With locks, ``contains`` cannot
    wait for Redis: the first time it is asked about a key the lock is taken beside it, and it says
    yes from the next time on; :meth:`select` and :meth:`hold` wait.

    A node belongs to the event loop that started it. Plain calls may be made in any thread, and
    :meth:`stop`, :meth:`fetch_owner` and :meth:`fetch_ring` in any event loop. In another one than
    the node's, :meth:`select` and :meth:`hold` with locks, and orders, raise ``NodeStateError``.
    An event loop that is blocked for a ttl sends no heartbeat, and the node owns nothing until it
    does again.
    """

    _asynchronous = True
    _run: AsyncRunner | None = None

    async def start(self) -> None:
        """Join the ring, and stay on it from a task until :meth:`stop`.

        Returns when the node is on the ring and knows its ranges. When it cannot join, or the
        call is cancelled, it leaves nothing behind.

        Raises:
            RedisUnavailable, RedisRefused: what stopped it.
            NodeStateError: the node runs already, or was stopped meanwhile.
            NodeForked: it has a name of its own, and runs in the parent process.
        """
        notice_fork()
        # Two event loops, in two threads, may start it at the same moment.
        with self._starting:
            run = self._new_run()
        try:
            await run.settled.wait()
        except asyncio.CancelledError:
            if self._run is run:
                await self.stop()
            raise
        # Another event loop may have stopped this run, and started the next.
        with self._starting:
            is_last = self._run is run
            if is_last and self._machine.state in AT_WORK and not self._stopping:
                return
            error = self._machine.error if is_last else None
        if is_last:
            await self.stop()
        raise error or NodeStateError(f"node {self.name!r} was stopped while it started")

    def _new_run(self) -> AsyncRunner:
        if self._run is not None and not self._run.over:
            raise NodeStateError(
                f"node {self.name!r} runs already: call stop() before starting it again"
            )
        self._adopt_in_child()
        store = self._make_store()
        lease = self._begin_lease()
        self._machine.start(monotonic(), strict=True)
        self._run = AsyncRunner(
            self._machine,
            store,
            show=lambda: self._show_in(lease),
            take=self._take,
            ranges=self._view.ranges,
            on_change=self._settings.on_change,
            turns=self._turns,
        )
        return self._run

    async def stop(self, *, stay: bool = False) -> None:
        """Leave the ring, and own nothing from now on.

        Args:
            stay: leave a named node's points on the ring for one ttl, for its restart; see
                :meth:`hashring.RingNode.stop`.

        Returns when the node has left, or when Redis did not answer in time: then the ring forgets
        it after its ttl. The same goes for a node whose event loop was closed while it ran, or does
        not run. Any event loop may call it.
        Calling it again does nothing. When the call is cancelled, the node goes on leaving.

        Raises:
            ConfigError: the node is to stay, and has no name of its own.
        """
        self._check_stay(stay)
        notice_fork()
        # Another event loop, in another thread, may start the node at the same moment.
        with self._starting:
            run = self._run
            if run is None:
                return
            self._own_nothing()
            if run.over:
                self._machine.stop(stay=stay)
        if run.home is asyncio.get_running_loop():
            run.stop(stay=stay)
            await asyncio.wait([run.task])
        else:
            run.stop(stay=stay)
            # If that event loop does not run, the node leaves when it does.
            while not run.over and run.home.is_running():
                await asyncio.sleep(_LOOK)
        if self._run is run and run.over:
            self._run = None

    # --- orders -------------------------------------------------------------------------------

    async def drain(self, seconds: float | None = None, *, force: bool = False) -> None:
        """Own nothing from now on, until the order is lifted; see :meth:`hashring.RingNode.drain`.

        Raises:
            ConfigError: no other node is left, without ``force``; or the time is none.
            NodeStateError: the node does not run, or in another event loop, or is not on the ring
                just now.
            RedisUnavailable, RedisRefused: it is not known whether it was ordered.
            NodeForked: the node was started in a parent process.
        """
        await self._obey(self._drain_order(seconds, force))

    async def undrain(self) -> None:
        """Be on the ring again; see :meth:`hashring.RingNode.undrain`.

        Raises:
            NodeStateError: the node does not run, or in another event loop.
            RedisUnavailable, RedisRefused: it is not known whether the order was lifted.
            NodeForked: the node was started in a parent process.
        """
        await self._obey(self._undrain_order())

    def _refuse_elsewhere(self) -> None:
        run = self._run
        if run is not None and not run.over and run.home is not asyncio.get_running_loop():
            raise NodeStateError(
                f"node {self.name!r} runs in another event loop: make this call there, for example "
                "with asyncio.run_coroutine_threadsafe()"
            )

    async def _obey(self, order: Command[OrderStatus]) -> None:
        self._refuse_elsewhere()
        if not self._is_ordered(await self._ask(order)):
            return
        if self._run is not None:
            await self._run.beaten_since(monotonic())

    # --- keys ---------------------------------------------------------------------------------

    async def select(
        self, items: Iterable[T], key: Callable[[T], str | bytes] | None = None
    ) -> list[T]:
        """Those of the items whose keys this node may work on now, in their order.

        See :meth:`hashring.RingNode.select`.

        Raises:
            KeyTypeError, KeyValueError: a key has no point, or is too long to be locked. Nothing
                was taken for items after it.
            ConfigError: the items are one text, or none; or ``key`` cannot be called.
            NodeForked: the node was started in a parent process.
            NodeStateError: with locks or a limit, the node runs in another event loop.
        """
        if self._asking is None:
            return self._select_owned(items, key)
        self._refuse_elsewhere()
        return await self._run_flow(self._asking, self._asking.select(listed(items, key), key))

    @asynccontextmanager
    async def hold(
        self, key: str | bytes, *, timeout: float = 0.0
    ) -> AsyncIterator[KeyLease[asyncio.Event]]:
        """Hold a key for as long as the block runs; see :meth:`hashring.RingNode.hold`.

        ``lease.lost`` and ``lease.revoked`` are ``asyncio.Event``.

        Raises:
            NotHeld: the key is not this node's to hold; names the node that has it, if known.
            HoldTimeout: another node still held it; says which.
            ConfigError: the node has no locks, or the timeout is no number of seconds.
            KeyTypeError, KeyValueError: the key has no point, or is too long to be locked.
            NodeForked: the node was started in a parent process.
            NodeStateError: the node runs in another event loop.
        """
        asking = self._locks()
        self._refuse_elsewhere()
        hold, late = asking.hold(key, timeout, _LeaseEvent), None
        try:
            yield await self._held(hold)
        finally:
            try:
                late = self._unpin(asking, hold)
            finally:
                if late is None:
                    # A signal handler has raised: once more.
                    self._unpin(asking, hold)
            if late:
                await self._release_late(asking)

    async def fetch_owner(self, key: str | bytes) -> str:
        """The name of the node that owns the key. Without ``follow=True`` it asks Redis.

        Raises:
            EmptyRingError: no node is on the ring.
            KeyTypeError, KeyValueError: the key has no point.
            RedisUnavailable, RedisRefused: Redis could not be asked.
        """
        if self._settings.follow:
            return self.owner(key)
        found = await self._ask(owner(self._settings.keys, self.key_as_ring_point(key)))
        if found is None:
            raise EmptyRingError
        return found

    async def fetch_ring(self) -> Ring:
        """The ring as it is in Redis.

        Raises:
            RedisUnavailable, RedisRefused: Redis could not be asked.
        """
        seen = await self._ask(self._ring_snapshot())
        return seen.ring(self._settings.algorithm)

    async def _ask(self, command: Command[T]) -> T:
        run = self._run
        if run is not None and not run.over and run.home is asyncio.get_running_loop():
            return await self._ask_redis(run, command)
        async with self._line.turn(command):
            store = self._make_store()
            try:
                return await store.run(command)
            finally:
                await store.close()

    def _ask_owner(self, point: int) -> str:
        raise NodeStateError(
            f"node {self.name!r} does not follow the ring, and a plain call cannot wait for Redis: "
            "use `await node.fetch_owner(key)`, or make the node with follow=True"
        )

    def _ask_ring(self) -> Ring:
        raise NodeStateError(
            f"node {self.name!r} does not follow the ring, and a plain call cannot wait for Redis: "
            "use `await node.fetch_ring()`, or make the node with follow=True"
        )

    def _ask_book(self, data: bytes) -> bool:
        # A plain call cannot wait for Redis: what it may take is taken by the loop, at once,
        # and is held when it is asked for the next time.
        verdict, asked = cast(Asking, self._asking).ask(data)
        if verdict is Verdict.TAKE and self._run is not None:
            self._run.take_soon(asked)
        return verdict is Verdict.YES

    def _show_in(self, lease: Shown) -> tuple[PointRange, ...]:
        self._publish(lease)
        return self._view.ranges

    async def _take(self, wanted: list[AskedKey]) -> None:
        asking = self._locks()
        await self._run_flow(asking, asking.take(wanted))
        # What moved away meanwhile is let go.
        asking.ask_again(wanted)

    async def _run_flow(self, asking: Asking, flow: Flow[T]) -> T:
        try:
            return await run_flow_async(partial(self._ask_redis, self._run), flow)
        finally:
            if asking.book.left:
                await self._release_late(asking)

    async def _held(self, hold: Hold) -> KeyLease[asyncio.Event]:
        """The lease of a hold, tried until it is there or there is no use."""
        run = self._run
        ask = partial(self._ask_redis, run)
        try:
            while isinstance(lease := await run_flow_async(ask, hold.attempt()), TryAgain):
                if run is None or (await asyncio.wait([run.task], timeout=lease.seconds))[0]:
                    raise hold.refusal(waited=False)
            return lease
        finally:
            hold.over()
            if hold.asking.book.left:
                await self._release_late(hold.asking)

    async def _ask_redis(self, run: AsyncRunner | None, command: Command[T]) -> T:
        if run is None:
            raise RedisUnavailable(f"node {self.name!r} has no connection: it does not run")
        async with self._line.turn(command):
            try:
                return await run.store.run(command)
            finally:
                if run.ended:
                    # The run has closed its connections, perhaps without the one in use here.
                    await run.store.close()

    def _equip(self) -> None:
        self._turns = TaskTurns()
        self._line = CallsAtOnce(self._settings.io_timeout)
        self._starting = native_lock()

    @property
    def _loop(self) -> AsyncRunner | None:
        return self._run

    async def _release_late(self, asking: Asking) -> None:
        """Let go of what is left after the node has stopped. When cancelled, it goes on."""
        task = asyncio.create_task(self._release(asking))
        _late.add(task)
        task.add_done_callback(_late.discard)
        await asyncio.wait([task])

    async def _release(self, asking: Asking) -> None:
        store = self._make_store()

        async def run(command: Command[Any]) -> Any:
            try:
                return await store.run(command)
            except Exception as error:
                raise told_failure(error, command) from error

        try:
            await run_flow_async(run, asking.let_go())
        finally:
            await store.close()

    def _make_store(self) -> AsyncStore:
        return async_store(self._redis, self._machine.config.io_timeout)

    async def __aenter__(self: N) -> N:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _abandon(self) -> None:
        super()._abandon()
        # Connections and loop are the parent's.
        if self._run is not None:
            self._run.abandoned = True
        self._run = None
        self._turns = TaskTurns()
        self._starting = native_lock()


# Tasks that let go of locks when nobody waits for them: asyncio itself does not keep them alive.
_late: Final[set[asyncio.Task[None]]] = set()
