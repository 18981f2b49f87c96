"""A live node over an asyncio client."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, TypeVar, cast

from hashring.core.ring import Ring
from hashring.errors import EmptyRingError, NodeStateError, RedisUnavailable, StoreError
from hashring.node.base_node import Node
from hashring.node.lock_flows import Asking
from hashring.node.node_log import NodeLog
from hashring.node.reader import listed, monotonic
from hashring.node.settings import OnChange
from hashring.node.states import AT_WORK, RENEWING, NodeState
from hashring.protocol.flow import Pause, UserFlow, run_flow_async
from hashring.protocol.locks.lease import Lease
from hashring.protocol.locks.lock_book import Asked, Verdict
from hashring.protocol.machine import Finished, Run, Subscribe, Wait
from hashring.protocol.silent_subscription import Silence, Silent
from hashring.store.asyncio_cancellation import callback_over
from hashring.store.command import Command
from hashring.store.interface import Answered, Message
from hashring.store.locks.commands import LOCKS_A_CALL
from hashring.store.redis_store import AsyncRedisStore
from hashring.store.ring.commands import owner, snapshot
from hashring.store.ring.node_orders import OrderStatus, check_order

logger = logging.getLogger("hashring")

T = TypeVar("T")


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
    yes from the next time on; :meth:`select` and :meth:`hold` wait. A node belongs to the event
    loop that started it. A loop that is blocked for a ttl sends no heartbeat, and the node owns
    nothing until it does again.
    """

    _asynchronous = True
    _run: _Loop | None = None

    async def start(self) -> None:
        """Join the ring, and stay on it from a task until :meth:`stop`.

        Returns when the node is on the ring and knows its ranges. When it cannot join, or the
        call is cancelled, it leaves nothing behind.

        Raises:
            RedisUnavailable, RedisRefused: what stopped it.
            NodeStateError: the node runs already, or was stopped meanwhile.
            NodeForked: it has a name of its own, and runs in the parent process.
        """
        if self._run is not None and not self._run.task.done():
            raise NodeStateError(
                f"node {self.name!r} runs already: call stop() before starting it again"
            )
        self._adopt_in_child()
        lease = self._begin_lease()
        self._machine.start(monotonic(), strict=True)
        run = self._run = _Loop(self, lease)
        try:
            await run.settled.wait()
        except asyncio.CancelledError:
            await self.stop()
            raise
        if self._machine.state in AT_WORK and not self._stopping:
            return
        error = self._machine.error
        await self.stop()
        raise error or NodeStateError(f"node {self.name!r} was stopped while it started")

    async def stop(self, *, stay: bool = False) -> None:
        """Leave the ring, and own nothing from now on.

        Args:
            stay: leave a named node's points on the ring for one ttl, for its restart; see
                :meth:`hashring.RingNode.stop`.

        Returns when the node has left, or when Redis did not answer in time: then the ring forgets
        it after its ttl. Calling it again does nothing. When the call is cancelled, the node goes
        on leaving.

        Raises:
            ConfigError: the node is to stay, and has no name of its own.
        """
        self._check_stay(stay)
        run = self._run
        if run is None:
            return
        self._own_nothing()
        run.stop(stay=stay)
        await asyncio.wait([run.task])
        if self._run is run:
            self._run = None

    # --- orders -------------------------------------------------------------------------------

    async def drain(self, seconds: float | None = None, *, force: bool = False) -> None:
        """Own nothing from now on, until the order is lifted; see :meth:`hashring.RingNode.drain`.

        Raises:
            ConfigError: no other node is left, without ``force``; or the time is none.
            NodeStateError: the node does not run.
            RedisUnavailable, RedisRefused: it is not known whether it was ordered.
            NodeForked: the node was started in a parent process.
        """
        await self._obey(self._drain_order(seconds, force))

    async def undrain(self) -> None:
        """Be on the ring again; see :meth:`hashring.RingNode.undrain`.

        Raises:
            NodeStateError: the node does not run.
            RedisUnavailable, RedisRefused: it is not known whether the order was lifted.
            NodeForked: the node was started in a parent process.
        """
        await self._obey(self._undrain_order())

    async def _obey(self, order: Command[OrderStatus]) -> None:
        if not check_order(await self._ask(order), self.name, self._settings.ring_name):
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
            ConfigError: the items are one text.
            NodeForked: the node was started in a parent process.
        """
        if self._asking is None:
            return self._select_owned(items, key)
        return await self._run_flow(self._asking, self._asking.select(listed(items), key))

    @asynccontextmanager
    async def hold(self, key: str | bytes, *, timeout: float = 0.0) -> AsyncIterator[Lease]:
        """Hold a key for as long as the block runs; see :meth:`hashring.RingNode.hold`.

        ``lease.lost`` and ``lease.revoked`` are ``asyncio.Event``.

        Raises:
            NotHeld: the key is not this node's to hold; names the node that has it, if known.
            HoldTimeout: another node still held it; says which.
            ConfigError: the node has no locks, or the timeout is no number of seconds.
            KeyTypeError, KeyValueError: the key has no point, or is too long to be locked.
            NodeForked: the node was started in a parent process.
        """
        asking = self._locks()
        lease = await self._run_flow(asking, asking.pin(key, timeout, asyncio.Event))
        try:
            yield lease
        finally:
            if self._unpin(asking, lease):
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
        config = self._machine.config
        seen = await self._ask(snapshot(config.keys, scoring=config.scoring))
        return seen.ring(config.algorithm)

    async def _ask(self, command: Command[T]) -> T:
        store = AsyncRedisStore(self._redis, self._machine.config.io_timeout)
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

    async def _run_flow(self, asking: Asking, flow: UserFlow[T]) -> T:
        run = self._run

        async def do(step: Command[Any] | Pause) -> Any:
            if isinstance(step, Pause):
                if self._run is not None:
                    await asyncio.sleep(step.seconds)
                return self._run is None
            if run is None:
                raise RedisUnavailable(f"node {self.name!r} has no connection: it does not run")
            return await run.store.run(step)

        try:
            return await run_flow_async(do, flow)
        finally:
            if asking.book.left:
                await self._release_late(asking)

    @property
    def _loops(self) -> bool:
        return self._run is not None

    async def _release_late(self, asking: Asking) -> None:
        """Let go of what is left after the node has stopped. When cancelled, it goes on."""
        task = asyncio.create_task(self._release(asking))
        _late.add(task)
        task.add_done_callback(_late.discard)
        await asyncio.wait([task])

    async def _release(self, asking: Asking) -> None:
        store = AsyncRedisStore(self._redis, self._machine.config.io_timeout)
        try:
            await run_flow_async(store.run, asking.let_go())
        finally:
            await store.close()

    def _poke(self) -> None:
        if self._run is not None:
            self._run.wake()

    def _beat_soon(self) -> None:
        if self._run is not None:
            self._machine.beat_at_once(monotonic())
            self._run.wake()

    async def __aenter__(self) -> AsyncRingNode:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def _abandon(self) -> None:
        super()._abandon()
        # Connections and loop are the parent's.
        self._run = None


# Tasks that let go of locks when nobody waits for them: asyncio itself does not keep them alive.
_late: Final[set[asyncio.Task[None]]] = set()


class _Loop:
    """One run of a node's protocol, from ``start()`` to its end."""

    def __init__(self, node: AsyncRingNode, lease: list[Any]) -> None:
        self._node = node
        self._lease = lease
        self._machine = node._machine
        self._config = node._machine.config
        self.store = AsyncRedisStore(node._redis, self._config.io_timeout)
        self._log = NodeLog(node._machine)
        self._woken = asyncio.Event()
        self._published = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None
        self._callback: asyncio.Task[None] | None = None
        self._changes: asyncio.Queue[Any] = asyncio.Queue()
        self._wanted: dict[bytes, Asked] = {}
        self._taker: asyncio.Task[None] | None = None
        self.settled = asyncio.Event()
        self.task = asyncio.create_task(self._main(), name=f"hashring {node.name}")

    def stop(self, *, stay: bool = False) -> None:
        """Make the node leave."""
        self._machine.stop(stay=stay)
        self._woken.set()

    def wake(self) -> None:
        """Make the loop ask the machine what to do."""
        self._woken.set()

    async def beaten_since(self, moment: float) -> None:
        """Beat now, and wait for the answer to a heartbeat that was sent after that moment."""
        machine = self._machine
        machine.beat_at_once(moment)
        self.wake()
        while machine.state in RENEWING and machine.deadline < moment + self._config.ttl:
            self._published.clear()
            await self._published.wait()

    def take_soon(self, wanted: Asked) -> None:
        """Take a lock at the next turn of the event loop, together with others."""
        limit = self._config.locks.limit if self._config.locks else None
        if limit is not None and len(self._wanted) >= max(limit, LOCKS_A_CALL):
            return  # Far more than there can be places for: the rest is asked for again.
        self._wanted[wanted[0]] = wanted
        if self._taker is None:
            self._taker = asyncio.create_task(self._take_wanted())

    async def _take_wanted(self) -> None:
        asking = self._node._locks()
        try:
            while self._wanted:
                await asyncio.sleep(0)
                wanted, self._wanted = list(self._wanted.values()), {}
                for first in range(0, len(wanted), LOCKS_A_CALL):
                    part = wanted[first : first + LOCKS_A_CALL]
                    await self._node._run_flow(asking, asking.take(part))
                    # What moved away meanwhile is let go.
                    asking.ask_again(part)
        except Exception:
            logger.exception("hashring %s: unexpected error in taking locks", self._node.name)
        finally:
            self._taker = None

    async def _main(self) -> None:
        if self._node._settings.on_change is not None:
            self._callback = asyncio.create_task(self._call_back(self._node._settings.on_change))
        cancelled = False
        try:
            while True:
                try:
                    if not await self._try_step():
                        break
                except asyncio.CancelledError:
                    # With all that runs, when the event loop is closed; before Python 3.11, that
                    # is also what Ctrl-C does. It leaves the ring first, unless cancelled again.
                    if cancelled:
                        raise
                    cancelled = True
                    self.stop()
                self._log.state()
                if self._machine.state is not NodeState.JOINING:
                    self.settled.set()
        finally:
            self.settled.set()
            self._publish()
            self._log.state()
            self._changes.put_nowait(None)
            if self._taker is not None:
                self._wanted.clear()
                await asyncio.wait([self._taker])
            await self._drop_listener()
            await self.store.close()

    async def _try_step(self) -> bool:
        try:
            return await self._step()
        except Exception:
            # A fault of this package. The node must live on, or fence itself: try again after
            # a while, and say so.
            logger.exception("hashring %s: unexpected error in the node's loop", self._node.name)
            await asyncio.sleep(self._config.io_timeout)
            return True

    async def _step(self) -> bool:
        # Messages that have arrived go first.
        await asyncio.sleep(0)
        self._woken.clear()
        step = self._machine.next(monotonic())
        self._publish()
        if isinstance(step, Wait):
            await self._wait(step.until)
        elif isinstance(step, Run):
            await self._run(step)
        elif isinstance(step, Subscribe):
            await self._drop_listener()
            self._listener = asyncio.create_task(self._listen(step))
        elif isinstance(step, Finished):
            return False
        self._publish()
        return True

    async def _wait(self, until: float) -> None:
        timeout = max(0.0, min(until - monotonic(), 3600.0))
        handle = asyncio.get_running_loop().call_later(timeout, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            handle.cancel()

    async def _run(self, step: Run) -> None:
        sent = monotonic()
        failing = self._machine.failing
        try:
            reply = await self.store.run(step.command)
        except StoreError as error:
            step.failed(error, monotonic())
            self._log.failure(failing, error)
            return
        step.done(reply, sent, monotonic())
        self._log.success(failing)

    def _publish(self) -> None:
        change = self._node._publish(self._lease)
        self._published.set()
        if change is not None and self._callback is not None:
            self._changes.put_nowait(change)

    async def _call_back(self, on_change: OnChange) -> None:
        while (change := await self._changes.get()) is not None:
            try:
                result = on_change(*change)
                if inspect.isawaitable(result):
                    await callback_over(asyncio.ensure_future(result))
            except Exception:
                logger.exception("on_change raised")

    # --- the subscription ---------------------------------------------------------------------

    async def _listen(self, step: Subscribe) -> None:
        machine, number = self._machine, step.number
        subscription = None
        error: StoreError | None = None
        try:
            subscription = await self.store.subscribe(*machine.channels)
            silence = Silence(step, monotonic())
            while True:
                notice = await subscription.wait(silence.wait(monotonic()))
                if notice is None:
                    silent = silence.nothing(monotonic())
                    if silent is Silent.ASK:
                        await subscription.ask()
                    elif silent is Silent.LOST:
                        error = silence.error
                        break
                    continue
                silence.heard(monotonic())
                if isinstance(notice, Answered):
                    continue
                if isinstance(notice, Message):
                    machine.told(number, notice.channel, notice.payload, monotonic())
                else:
                    machine.subscribed(number, monotonic())
                # The main task may be waiting for an answer of Redis: readers need not.
                self._publish()
                self._woken.set()
        except StoreError as failure:
            error = failure
        except Exception:
            logger.exception("hashring %s: unexpected error while listening", self._node.name)
        finally:
            failing = machine.failed_since is not None
            machine.unsubscribed(number, error, monotonic())
            if error is not None:
                self._log.failure(failing, error)
            self._woken.set()
            if subscription is not None:
                await subscription.close()

    async def _drop_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            await asyncio.wait([listener])
