"""A live node over an asyncio client."""

from __future__ import annotations

import asyncio
import inspect
import logging
from types import TracebackType
from typing import Any

from hashring.core.hashing import HashAlgorithm
from hashring.errors import ConfigError, NodeStateError, StoreError
from hashring.node.base import (
    DEFAULT_HEARTBEAT_INTERVAL,
    DEFAULT_REPLICAS,
    DEFAULT_TTL,
    BaseNode,
    OnChange,
    monotonic,
)
from hashring.node.log import NodeLog
from hashring.node.machine import Finished, NodeState, Run, Subscribe, Wait
from hashring.store.client import is_async
from hashring.store.executor import AsyncRedisStore, Told

logger = logging.getLogger("hashring")

# How long one wait for a message lasts, in seconds; cancelling ends it at once.
_LISTEN = 60.0


class AsyncRingNode(BaseNode):
    """A node of a consistent hash ring, for asyncio.

    ::

        async with AsyncRingNode(redis.asyncio.Redis(), "accounts") as node:
            mine = [key for key in keys if node.contains(key)]

    Arguments, promises and errors are those of :class:`hashring.RingNode`; ``contains``, ``owner``
    and the other questions about keys are plain calls, since they do no I/O. ``on_change`` may be
    a coroutine function. A node belongs to the event loop that started it. A loop that is
    blocked for a ttl sends no heartbeat, and the node owns nothing until it does again.
    """

    def __init__(
        self,
        redis: Any,
        ring: str | bytes,
        *,
        n_replicas: int = DEFAULT_REPLICAS,
        hash_algorithm: str | HashAlgorithm | None = None,
        name: str | None = None,
        weight: float = 1.0,
        ttl: float = DEFAULT_TTL,
        heartbeat_interval: float = DEFAULT_HEARTBEAT_INTERVAL,
        placement: str = "random",
        on_change: OnChange | None = None,
        wire: str | None = None,
    ) -> None:
        super().__init__(
            redis,
            ring,
            n_replicas=n_replicas,
            hash_algorithm=hash_algorithm,
            name=name,
            weight=weight,
            ttl=ttl,
            heartbeat_interval=heartbeat_interval,
            placement=placement,
            on_change=on_change,
            wire=wire,
        )
        if not is_async(redis):
            raise ConfigError("redis", redis, "is not an asyncio client: use RingNode")
        self._run: _Loop | None = None

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
        self._machine.start(monotonic(), strict=True)
        run = self._run = _Loop(self)
        try:
            await run.settled.wait()
        except asyncio.CancelledError:
            await self.stop()
            raise
        if self._machine.state is NodeState.LIVE:
            return
        error = self._machine.error
        await self.stop()
        raise error or NodeStateError(f"node {self.name!r} was stopped while it started")

    async def stop(self) -> None:
        """Leave the ring, and own nothing from now on.

        Returns when the node has left, or after one timeout when Redis does not answer: then the
        ring forgets it after its ttl. Calling it again does nothing.
        """
        run = self._run
        if run is None:
            return
        self._own_nothing()
        run.stop()
        await asyncio.wait([run.task])
        if self._run is run:
            self._run = None

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


class _Loop:
    """One run of a node's protocol, from ``start()`` to its end."""

    def __init__(self, node: AsyncRingNode) -> None:
        self._node = node
        self._machine = node._machine
        self._config = node._machine.config
        self._store = AsyncRedisStore(node._redis, self._config.io_timeout)
        self._log = NodeLog(node._machine)
        self._woken = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None
        self._callback: asyncio.Task[None] | None = None
        self._changes: asyncio.Queue[Any] = asyncio.Queue()
        self.settled = asyncio.Event()
        self.task = asyncio.create_task(self._main(), name=f"hashring {node.name}")

    def stop(self) -> None:
        """Make the node leave."""
        self._machine.stop()
        self._woken.set()

    async def _main(self) -> None:
        if self._node._on_change is not None:
            self._callback = asyncio.create_task(self._call_back(self._node._on_change))
        try:
            while await self._try_step():
                self._log.state()
                if self._machine.state is not NodeState.JOINING:
                    self.settled.set()
        finally:
            self._publish()
            self._log.state()
            self.settled.set()
            self._changes.put_nowait(None)
            await self._drop_listener()
            await self._store.close()

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
            self._listener = asyncio.create_task(self._listen(step.number))
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
        failing = self._machine.failed_since is not None
        try:
            reply = await self._store.run(step.command)
        except StoreError as error:
            step.failed(error, monotonic())
            self._log.failure(failing, error)
            return
        step.done(reply, sent, monotonic())
        self._log.success(failing)

    def _publish(self) -> None:
        change = self._node._publish()
        if change is not None and self._callback is not None:
            self._changes.put_nowait(change)

    async def _call_back(self, on_change: OnChange) -> None:
        while (change := await self._changes.get()) is not None:
            try:
                result = on_change(*change)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                logger.exception("on_change raised")

    # --- the subscription ---------------------------------------------------------------------

    async def _listen(self, number: int) -> None:
        machine = self._machine
        subscription = None
        error: StoreError | None = None
        try:
            subscription = await self._store.subscribe(*machine.channels)
            timeout = self._config.io_timeout
            while True:
                notice = await subscription.wait(timeout)
                if notice is None:
                    if timeout != _LISTEN:
                        break
                    continue
                timeout = _LISTEN
                if isinstance(notice, Told):
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
