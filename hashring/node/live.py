"""A live node over a sync client: run by a thread, or by a greenlet."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from hashring.core.hashing import HashAlgorithm
from hashring.errors import ConfigError, NodeStateError, StoreError
from hashring.node.backend import Backend, GeventBackend, Inbox, ThreadBackend
from hashring.node.base import (
    DEFAULT_HEARTBEAT_INTERVAL,
    DEFAULT_REPLICAS,
    DEFAULT_TTL,
    BaseNode,
    OnChange,
    monotonic,
)
from hashring.node.machine import NodeState, Run
from hashring.node.runner import Request, Runner, Stop
from hashring.store.client import is_async
from hashring.store.commands import snapshot, sweep
from hashring.store.executor import RedisStore, Store
from hashring.store.memory import MemoryStore
from hashring.store.tables import ring_tables

logger = logging.getLogger("hashring")


class RingNode(BaseNode):
    """A node of a consistent hash ring in Redis.

    ::

        node = RingNode(redis, "accounts")
        node.start()                       # or gevent_start(), or `with node:`
        mine = [key for key in keys if node.contains(key)]
        node.stop()

    A drop-in for redis-hashring's class of that name; what differs is in CHANGES.rst.

    Args:
        redis: a sync client of redis-py or valkey-py, of any kind. The node takes from it where
            Redis is, and makes connections of its own.
        ring: the ring's name; nodes with the same name share it.
        n_replicas: how many points an ordinary node has. More points, more even shares.
        hash_algorithm: from key to point; the same on all nodes. ``"crc-32"`` unless given.
        name: the node's name on the ring; ``host:pid`` unless given. A name of your own keeps
            its points over restarts; no two running processes may have the same.
        weight: the node has ``n_replicas * weight`` points, at least one.
        ttl: seconds after its last heartbeat at which the node owns nothing, and others take
            over. At least two heartbeats.
        heartbeat_interval: seconds between heartbeats.
        placement: ``"random"``, or ``"balanced"`` for even shares (see docs/placement.rst).
        on_change: called with ``(gained, lost)``, tuples of ranges, after the node's ranges
            changed; one call at a time, in order, in a thread (greenlet) of its own. What it
            raises is logged.
        wire: ``"redis-hashring"`` shares a ring with nodes of redis-hashring 0.7.

    Raises:
        ConfigError: an argument cannot work.
        MissingDependencyError: the hash algorithm's package is not installed.

    Not guaranteed without locks: that two nodes never both own a key. After a change of the
    ring they may for as long as the message travels, or for one heartbeat when it is lost.
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
        if not isinstance(redis, MemoryStore) and is_async(redis):
            raise ConfigError("redis", redis, "is an asyncio client: use AsyncRingNode")
        self._store: Store | None = None
        self._runner: Runner | None = None
        self._changes: Inbox | None = None

    # --- running ------------------------------------------------------------------------------

    def start(self) -> None:
        """Join the ring, and stay on it from a thread until :meth:`stop`.

        Returns when the node is on the ring and knows its ranges. When it cannot join, it leaves
        nothing behind and raises.

        Raises:
            RedisUnavailable, RedisRefused: what stopped it.
            NodeStateError: the node runs already, or was stopped meanwhile.
            NodeForked: it has a name of its own, and runs in the parent process.
        """
        self._start(ThreadBackend())

    def gevent_start(self) -> None:
        """Like :meth:`start`, from a greenlet.

        Works monkey-patched or not. Not patched, calls to Redis are made in threads of gevent's
        pool, and the hub is never blocked by them.

        Raises:
            RedisUnavailable, RedisRefused, NodeStateError, NodeForked: see :meth:`start`.
        """
        self._start(GeventBackend())

    def _start(self, backend: Backend) -> None:
        runner = self._launch(backend, strict=True)
        backend.spawn(runner.run, runner.label)
        runner.settled.wait()
        if self._machine.state is NodeState.LIVE:
            return
        error = self._machine.error
        if runner is self._runner:
            runner.ended.wait()
            self._forget_runner()
        if error is not None:
            raise error
        if self._machine.state is not NodeState.FENCED:
            raise NodeStateError(f"node {self.name!r} was stopped while it started")

    def stop(self) -> None:
        """Leave the ring, and own nothing from now on.

        Returns when the node has left, or after one timeout when Redis does not answer: then the
        ring forgets it after its ttl. Calling it again does nothing. Safe in a signal handler.
        """
        runner = self._runner
        if runner is None:
            self._stop_by_hand()
            return
        self._own_nothing()
        runner.inbox.put(Stop())
        if runner.backend.may_wait() and runner.foreground != threading.get_ident():
            runner.ended.wait()
            if self._runner is runner:
                self._forget_runner()

    gevent_stop = stop

    def poll(self) -> None:
        """Join the ring, and stay on it from the calling thread until :meth:`stop`.

        While Redis does not answer, it keeps trying.

        Raises:
            NodeStateError: the node runs already.
            NodeForked: it has a name of its own, and runs in the parent process.
        """
        runner = self._launch(ThreadBackend(), strict=False)
        runner.foreground = threading.get_ident()
        try:
            runner.run()
        except BaseException:
            # Ctrl-C in the loop: leave the ring as stop() would, then let it through.
            self._forget_runner()
            self._stop_by_hand()
            raise
        if self._runner is runner:
            self._forget_runner()

    def __enter__(self) -> RingNode:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- by hand ------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        """Join the ring, or refresh this node's replicas on it, now.

        A running node does so by itself.

        Raises:
            RedisUnavailable, RedisRefused: it could not.
            NodeSuperseded: another process has taken the name.
        """
        machine = self._machine
        if self._runner is None and machine.state in (NodeState.NEW, NodeState.STOPPED):
            self._adopt_in_child()
            machine = self._machine
            machine.start(monotonic(), strict=False)
        self._ask(machine.beat_step)
        while self._runner is None and machine.state is NodeState.JOINING:
            self._ask(machine.beat_step)
        if machine.error is not None:
            raise machine.error

    def update(self) -> None:
        """Read the ring now. A running node follows it by itself.

        Raises:
            RedisUnavailable, RedisRefused: it could not.
        """
        self._ask(self._machine.look_step)

    def cleanup(self) -> None:
        """Take expired nodes off the ring now. Every heartbeat does so by itself.

        Raises:
            RedisUnavailable, RedisRefused: it could not.
        """
        config = self._machine.config
        self._ask(
            lambda: Run(
                sweep(config.keys, scoring=config.scoring, by=self.name), _ignore, _ignore_error
            )
        )

    def remove(self) -> None:
        """Take this node off the ring now. A running node comes back: use :meth:`stop`.

        Raises:
            RedisUnavailable, RedisRefused: it could not; the node owns nothing all the same.
        """
        if self._runner is None:
            self._own_nothing()
            self._machine.stop()
        if self._machine.replicas:
            self._ask(lambda: self._machine.leave_step("removed"))

    def debug_print(self) -> None:
        """Print the ring's replicas and nodes, expired ones marked.

        Raises:
            RedisUnavailable, RedisRefused: the ring could not be read.
        """
        config = self._machine.config
        command = snapshot(config.keys, scoring=config.scoring)
        ring = config.keys.ring.decode("utf-8", "replace")
        print("\n".join(ring_tables(ring, self._get_store().run(command), config.scoring)))

    # --- inside -------------------------------------------------------------------------------

    def _launch(self, backend: Backend, *, strict: bool) -> Runner:
        """A runner that is ready to run; the node is its."""
        if self._runner is not None and not self._runner.ended.wait(0):
            raise NodeStateError(
                f"node {self.name!r} runs already: call stop() before starting it again"
            )
        self._adopt_in_child()
        runner = Runner(
            machine=self._machine,
            store=self._get_store(),
            backend=backend,
            clock=monotonic,
            publish=lambda: None,
            label=f"hashring {self.name}",
        )
        runner.publish = self._publisher(runner)
        self._runner = runner
        self._machine.start(monotonic(), strict=strict)
        return runner

    def _publisher(self, runner: Runner) -> Callable[[], None]:
        on_change = self._on_change
        if on_change is None:
            return lambda: (self._publish(), None)[1]
        changes = runner.backend.inbox()
        runner.backend.spawn(lambda: _notify(changes, on_change), f"{runner.label} on_change")
        ended = False

        def publish() -> None:
            nonlocal ended
            change = self._publish()
            if change is not None:
                changes.put(change)
            if not ended and self._machine.state in (
                NodeState.STOPPED,
                NodeState.FAILED,
                NodeState.SUPERSEDED,
            ):
                ended = True
                changes.put(_END)

        return publish

    def _get_store(self) -> Store:
        if self._store is None:
            if isinstance(self._redis, MemoryStore):
                self._store = self._redis
            else:
                self._store = RedisStore(self._redis, self._machine.config.io_timeout)
        return self._store

    def _forget_runner(self) -> None:
        self._runner = None
        if self._store is not None:
            self._store.close()

    def _stop_by_hand(self) -> None:
        """Leave the ring when no loop runs: after heartbeats by hand, or not at all."""
        self._own_nothing()
        if self._machine.state in (NodeState.STOPPED, NodeState.NEW):
            return
        self._machine.stop()
        step = self._machine.next(monotonic())
        if isinstance(step, Run):
            try:
                self._ask(lambda: step)
            except StoreError as error:
                logger.warning("hashring %s: %s; it expires by itself", self.name, error)
        self._machine.next(monotonic())
        self._publish()
        if self._store is not None:
            self._store.close()

    def _ask(self, make: Callable[[], Run]) -> None:
        """Run a step now: in the loop when one runs, since only it may touch the machine."""
        self._refuse_if_forked()
        runner = self._runner
        if runner is None:
            step = make()
            sent = monotonic()
            try:
                reply = self._get_store().run(step.command)
            except StoreError as error:
                step.failed(error, monotonic())
                raise
            step.done(reply, sent, monotonic())
            self._publish()
            return
        request = Request(make, runner.backend.latch())
        runner.inbox.put(request)
        while not request.latch.wait(1.0):
            if runner.ended.wait(0.001):
                raise NodeStateError(f"node {self.name!r} has stopped")
        if request.error is not None:
            raise request.error

    def _abandon(self) -> None:
        super()._abandon()
        # Connections and loop are the parent's; closing them here would close them there.
        self._runner = None
        self._store = None


_END = object()


def _notify(changes: Inbox, on_change: OnChange) -> None:
    while (change := changes.get(60.0)) is not _END:
        if change is None:
            continue
        try:
            on_change(*change)
        except Exception:
            logger.exception("on_change raised")


def _ignore(reply: Any, sent: float, now: float) -> None:
    pass


def _ignore_error(error: StoreError, now: float) -> None:
    pass
