"""A live node over a sync client: run by a thread, or by a greenlet."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeVar, cast

from hashring.core.ring import Ring
from hashring.errors import EmptyRingError, NodeStateError, StoreError
from hashring.monkey_patching import threads_are_greenlets
from hashring.node.base_node import Node
from hashring.node.forks import remembered
from hashring.node.key_answers import listed, monotonic
from hashring.node.lock_flows import Asking
from hashring.node.node_runner import Runner
from hashring.node.on_change_calls import OnChangeCalls
from hashring.node.states import AT_WORK, ENDED, STARTABLE, NodeState
from hashring.protocol.flow import Pause, UserFlow, run_flow
from hashring.protocol.locks.lease import KeyLease
from hashring.protocol.locks.verdicts import Verdict
from hashring.protocol.machine import Run
from hashring.running.loop_log import LoopLog
from hashring.running.threads_and_greenlets import (
    Backend,
    GeventBackend,
    ThreadBackend,
    is_logging,
    where_it_may_wait,
)
from hashring.store.command import Command
from hashring.store.interface import Store
from hashring.store.memory_store import MemoryStore
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import owner, snapshot, sweep
from hashring.store.ring.node_orders import OrderStatus, check_order
from hashring.store.ring.printed_tables import ring_tables

logger = LoopLog("hashring")

T = TypeVar("T")
N = TypeVar("N", bound="RingNode")

_PATIENCE_AT_EXIT: Final = 1.0
"""Seconds that the end of the program waits for nodes to leave."""


class RingNode(Node):
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
        conn, key: other names for ``redis`` and ``ring``, those of redis-hashring.
        n_replicas: how many points an ordinary node has. More points, more even shares.
        hash_algorithm: from key to point; the same on all nodes. ``"crc-32"`` unless given.
        name: the node's name on the ring; ``host:pid`` unless given. A name of your own keeps
            its points over restarts; no two running processes may have the same.
        weight: the node has ``n_replicas * weight`` points, at least one.
        ttl: seconds after its last heartbeat at which the node owns nothing, and others take
            over. At least two heartbeats, and 0.1 s.
        heartbeat_interval: seconds between heartbeats.
        placement: ``"random"``, or ``"balanced"`` for even shares (docs/explanation/placement.rst).
        on_change: called with ``(gained, lost)``, tuples of ranges, after the node's ranges
            changed; one call at a time, in order, in a thread (greenlet) of its own. What it
            raises is logged. Coroutine functions are for :class:`hashring.AsyncRingNode`.
            ``stop()`` does not wait for it. If the node is started again while a
            call goes on, the next ones wait until that has returned.
        lock: whether each key is locked in Redis while this node works on it. ``contains`` is
            then true only for keys whose lock the node holds, and takes it on first asking.
        limit: how many keys the node holds at most. With ``lock``, what it must refuse goes to
            the node that would inherit it; without, nobody serves it.
        lock_ttl: seconds that a lock lasts unless renewed; the ttl unless given.
        idle: seconds after which a held key that nobody asked for is let go; the ttl unless
            given. Work that takes longer between two questions belongs in :meth:`hold`.
        max_handoff_time: seconds that a lease may go on once the key belongs to another node;
            the ttl unless given.
        wire: ``"redis-hashring"`` shares a ring with nodes of redis-hashring 0.7.
        follow: whether the node keeps a copy of the whole ring, and receives every change of it.
            Unless given, it does not: it knows its own ranges, Redis sends it the changes next to
            them, and it costs the same whatever the ring's size. :meth:`owner`, :attr:`ring` and
            :meth:`update` then ask Redis. With ``wire="redis-hashring"`` it always follows.
        zone: where the node runs, such as ``"eu-1a"``. It is shown beside the node, and
            :meth:`hashring.Ring.owners` reads it; it does not change who owns a key.

    Raises:
        ConfigError: an argument cannot work.
        MissingDependencyError: the hash algorithm's package is not installed.

    With locks, at most one node holds a key at any time, and every hold has a fencing token.
    Not guaranteed without locks: that two nodes never both own a key. After a change of the
    ring they may for as long as the message travels, or for one heartbeat when it is lost.
    """

    _store: Store | None = None
    _runner: Runner | None = None
    _stops = 0

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
        self._start(_backend_of_threads)

    def gevent_start(self) -> None:
        """Like :meth:`start`, from a greenlet.

        Works monkey-patched or not. Not patched, calls to Redis are made in threads of gevent's
        pool, and the hub is never blocked by them. The hub must run until :meth:`stop` has
        returned: a thread that stops the node of another thread's hub waits for that hub. When
        that thread has ended, or the hub was destroyed, the node no longer renews its points, and
        expires; ``stop()`` and the next start then make its calls to Redis in their own thread.

        Raises:
            RedisUnavailable, RedisRefused, NodeStateError, NodeForked: see :meth:`start`.
            MissingDependencyError: gevent is not installed.
        """
        self._start(GeventBackend)

    def _start(self, make_backend: Callable[[], Backend]) -> None:
        stops = self._stops
        backend = make_backend()
        try:
            runner = self._launch(backend, stops, strict=True)
            backend.spawn(runner.run, runner.label)
            runner.settled.wait()
            state, error = self._machine.state, self._machine.error
            if self._stopping or state not in AT_WORK:
                runner.ended.wait()
                raise error or NodeStateError(f"node {self.name!r} was stopped while it started")
        except BaseException:
            # Not joined; or Ctrl-C, or what a signal handler raised: nobody will call stop().
            if (started := self._launched(backend)) is not None:
                self._own_nothing()
                started.stop()
                patience = 2 * self._machine.config.io_timeout
                ended = started.cancel() or started.ended.wait(patience)
                if ended and self._forget_runner(started):
                    self._stop_by_hand()
            raise

    def stop(self, *, stay: bool = False) -> None:
        """Leave the ring, and own nothing from now on.

        Args:
            stay: for a restart of a named node. Its points stay on the ring for one ttl, and the
                next process of that name takes them back. No key moves, and other nodes get no
                message. No node owns its keys meanwhile. If no process comes back in time, the
                node expires as after a crash.

        It also closes the connections of a node that never ran, and was only asked.

        Returns when the node has left, or when Redis did not answer in time: then the ring
        forgets it after its ttl. Calling it again does nothing. Safe in a signal handler, where
        it does not wait when what it interrupted is the node's own work (a question about a
        locked key, a call to Redis, the loop), gevent's hub, or a log handler that the loop may
        need: then the node leaves once the handler has returned.
        In a forked child, which inherits its parent's handlers and blocks, it does nothing.

        Raises:
            ConfigError: the node is to stay, and has no name of its own.
        """
        self._check_stay(stay)
        if self._parent is not None:
            return
        self._stops += 1
        self._own_nothing()
        runner = self._runner
        if runner is None:
            where_it_may_wait(partial(self._stop_by_hand, stay=stay))
            return
        if sys.is_finalizing():
            # What ran the loop is gone, and with it who could say that the node has left.
            return
        runner.stop(stay=stay)
        waits = runner.may_wait() and not self._is_interrupted(runner)
        if waits:
            runner.wait()
        if runner.gone():
            where_it_may_wait(partial(self._stop_by_hand, stay=stay, gone=runner))
        elif waits and self._forget_runner(runner) and self._machine.state not in ENDED:
            # Its greenlet was killed before it had left.
            self._stop_by_hand(stay=stay)

    gevent_stop = stop

    def poll(self) -> None:
        """Join the ring, and stay on it from the calling thread until :meth:`stop`.

        While Redis does not answer, it keeps trying. An exception of a signal handler's ends it,
        and the node leaves.

        Raises:
            NodeStateError: the node runs already.
            NodeForked: it has a name of its own, and runs in the parent process.
        """
        stops, backend = self._stops, _backend_of_threads()
        try:
            self._launch(backend, stops, strict=False).run()
        except BaseException:
            # Ctrl-C in the loop: leave the ring as stop() would, then let it through.
            runner = self._launched(backend)
            if runner is not None and self._forget_runner(runner):
                self._stop_by_hand()
                runner.publish()
            raise
        if (runner := self._launched(backend)) is not None:
            self._forget_runner(runner)

    def __enter__(self: N) -> N:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- keys ---------------------------------------------------------------------------------

    def select(self, items: Iterable[T], key: Callable[[T], str | bytes] | None = None) -> list[T]:
        """Those of the items whose keys this node may work on now, in their order.

        The fast way to ask for many: without locks a bulk filter, with locks one round trip for
        each few thousand keys that are not held yet.

        Args:
            key: the key of an item; the item itself unless given.

        Raises:
            KeyTypeError, KeyValueError: a key has no point, or is too long to be locked. Nothing
                was taken for items after it.
            ConfigError: the items are one text, or none; or ``key`` cannot be called.
            NodeForked: the node was started in a parent process.
        """
        if self._asking is None:
            return self._select_owned(items, key)
        return self._run_flow(self._asking, self._asking.select(listed(items, key), key))

    @contextmanager
    def hold(self, key: str | bytes, *, timeout: float = 0.0) -> Iterator[KeyLease]:
        """Hold a key for as long as the block runs::

            with node.hold("account-7") as lease:
                for page in pages:
                    lease.check()
                    write(page, token=lease.token)

        The node goes on renewing the lock, asked for or not. When the key comes to belong to
        another node, ``lease.revoked`` is set, and the lock is not renewed past
        ``max_handoff_time``. After the block the key stays held like any other, or is let go
        if it was revoked. ``lease.check()`` raises :exc:`hashring.LeaseLost` from then
        on. A hold inside a hold of the same key, or beside it in another thread, is the same
        lease, and ends with the last of the blocks.

        Args:
            timeout: seconds to wait while another node still holds the lock, or while it is not
                known what came of an earlier call about it.

        Raises:
            NotHeld: the key is not this node's to hold; names the node that has it, if known.
            HoldTimeout: another node still held it; says which.
            ConfigError: the node has no locks, or the timeout is no number of seconds.
            KeyTypeError, KeyValueError: the key has no point, or is too long to be locked.
            NodeForked: the node was started in a parent process.
        """
        runner = self._runner
        asking = self._locks()
        event = runner.backend.event if runner else threading.Event
        lease = self._run_flow(asking, asking.pin(key, timeout, event))
        try:
            yield lease
        finally:
            if self._unpin(asking, lease):
                self._release_late(asking, runner)

    def _ask_book(self, data: bytes) -> bool:
        asking = cast(Asking, self._asking)
        verdict, asked = asking.ask(data)
        if verdict is not Verdict.TAKE:
            return verdict is Verdict.YES
        return self._run_flow(asking, asking.take_one(asked))

    def _run_flow(self, asking: Asking, flow: UserFlow[T]) -> T:
        runner = self._runner

        def do(step: Command[Any] | Pause) -> Any:
            if isinstance(step, Pause):
                return runner is None or runner.ended.wait(step.seconds)
            return self._ask_redis(step)

        try:
            return run_flow(do, flow)
        finally:
            if asking.book.left:
                self._release_late(asking, runner)

    @property
    def _loops(self) -> bool:
        return self._runner is not None

    def _poke(self) -> None:
        runner = self._runner
        if runner is not None:
            runner.wake()

    def _beat_soon(self) -> None:
        runner = self._runner
        if runner is not None:
            runner.tell(self._machine.beat_at_once)

    def _release_late(self, asking: Asking, runner: Runner | None) -> None:
        """Let go of what is left after the node has stopped, or while it does.

        Args:
            runner: what ran the node when the caller asked.
        """
        if sys.is_finalizing():
            # There is nothing left to connect with: what is left ends after its ttl.
            return
        # On connections of its own: stop() closes the node's others meanwhile.
        store = self._make_store()
        run: Callable[[Command[Any]], Any] = store.run
        if runner is not None:
            run = partial(runner.backend.call_for_user, run)
        try:
            run_flow(run, asking.let_go())
        finally:
            store.close()

    def _ask_owner(self, point: int) -> str:
        found = self._ask_redis(owner(self._settings.keys, point))
        if found is None:
            raise EmptyRingError
        return found

    def _ask_ring(self) -> Ring:
        config = self._machine.config
        command = snapshot(config.keys, scoring=config.scoring)
        return self._ask_redis(command).ring(config.algorithm)

    def _ask_redis(self, command: Command[T]) -> T:
        runner = self._runner
        run: Callable[[Command[T]], T] = self._get_store().run
        if runner is None:
            return self._run_by_hand(command)
        return self._as_caller(
            runner.backend.current(), partial(runner.backend.call_for_user, run, command)
        )

    def _run_by_hand(self, command: Command[T]) -> T:
        return self._as_caller(threading.get_ident(), partial(self._get_store().run, command))

    def _as_caller(self, caller: object, run: Callable[[], T]) -> T:
        call = object()
        self._calling[call] = caller
        try:
            try:
                return run()
            finally:
                self._calling.pop(call, None)
        finally:
            # Once more: a signal handler may have raised before the line above.
            self._calling.pop(call, None)

    # --- orders -------------------------------------------------------------------------------

    def drain(self, seconds: float | None = None, *, force: bool = False) -> None:
        """Own nothing from now on, and hand over what is locked, until the order is lifted.

        The node goes on running and beating; its state is ``drained``. Its keys go to the other
        nodes at once, and locked ones as in any handoff. The order stands in Redis, and outlasts
        restarts of a node with a name of its own.

        Args:
            seconds: after which the order ends by itself; ``None`` for never.
            force: drain although no other node is left, so that nobody serves any key.

        Raises:
            ConfigError: no other node is left, without ``force``; or the time is none.
            NodeStateError: the node does not run.
            RedisUnavailable, RedisRefused: it is not known whether it was ordered.
            NodeForked: the node was started in a parent process.
        """
        self._obey(self._drain_order(seconds, force))

    def undrain(self) -> None:
        """Be on the ring again; nothing happens if no order to drain this node stands.

        Raises:
            NodeStateError: the node does not run.
            RedisUnavailable, RedisRefused: it is not known whether the order was lifted.
            NodeForked: the node was started in a parent process.
        """
        self._obey(self._undrain_order())

    def _obey(self, order: Command[OrderStatus]) -> None:
        if check_order(self._ask_redis(order), self.name, self._settings.ring_name):
            self._ask(self._machine.beat_step)

    # --- by hand ------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        """Join the ring, or refresh this node's replicas on it, now.

        A running node does so by itself. Any thread may call it: without a loop, this and the other
        calls by hand are made one at a time, and each waits for the ones before.

        Raises:
            RedisUnavailable, RedisRefused: it could not.
            NodeSuperseded: another process has taken the name.
            NodeStateError: the node stopped meanwhile.
            NodeForked: the node was started in a parent process.
        """
        if not self._by_hand(self._beat_by_hand):
            # A node that has lost its name would get points back that nobody serves.
            if self._machine.state is not NodeState.SUPERSEDED:
                self._ask(self._machine.beat_step)
            self._raise_error()

    def _beat_by_hand(self) -> None:
        # One that is leaving could not, as Redis did not answer remove().
        if self._machine.state in (*STARTABLE, NodeState.LEAVING):
            self._adopt_in_child()
            self._begin_lease()
            self._machine.start(monotonic(), strict=False)
        machine, began = self._machine, monotonic()
        while machine.state is not NodeState.SUPERSEDED:
            self._ask(machine.beat_step)
            # A step may only look where to join, or where more points are to be.
            renewed = machine.last_beat is not None and machine.last_beat >= began
            if renewed or machine.state not in AT_WORK:
                break
        book = machine.book
        while book is not None and (step := book.step(monotonic())):
            self._run_now(step)
        self._raise_error()

    def _raise_error(self) -> None:
        if self._machine.error is not None:
            raise self._machine.error

    def update(self) -> None:
        """Read the ring now. A running node needs no such call.

        With ``follow=True`` the node keeps what it read. Otherwise a node on the ring sends a
        heartbeat, whose answer has its ranges, and any other node counts the nodes on the ring.

        Raises:
            RedisUnavailable, RedisRefused: it could not.
            NodeStateError: the node stopped meanwhile.
            NodeForked: the node was started in a parent process.
        """
        self._ask(self._machine.look_step)

    def cleanup(self) -> None:
        """Take expired nodes off the ring now. Every heartbeat does so by itself.

        Raises:
            RedisUnavailable, RedisRefused: it could not.
            NodeStateError: the node stopped meanwhile.
            NodeForked: the node was started in a parent process.
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
            RedisUnavailable, RedisRefused: it could not; a node that does not run owns nothing all
                the same.
            NodeStateError: the node stopped meanwhile.
            NodeForked: the node was started in a parent process.
        """
        self._refuse_if_forked()
        if not self._by_hand(self._remove_by_hand) and self._machine.replicas:
            self._ask(lambda: self._machine.leave_step("removed"))

    def _remove_by_hand(self) -> None:
        self._own_nothing()
        self._machine.stop()
        self._publish(self._lease)
        book = self._machine.book
        while book is not None and (step := book.leave(monotonic())) is not None:
            self._run_now(step)
        if self._machine.replicas:
            # The node has ended, and what is on its way of it comes to nothing.
            self._run_now(self._machine.leave_step("stop"))

    def debug_print(self) -> None:
        """Print the ring's replicas and nodes, expired ones marked.

        Raises:
            RedisUnavailable, RedisRefused: the ring could not be read.
        """
        config = self._machine.config
        command = snapshot(config.keys, scoring=config.scoring)
        ring = config.keys.ring.decode("utf-8", "replace")
        print("\n".join(ring_tables(ring, self._ask_redis(command), config.scoring)))

    # --- inside -------------------------------------------------------------------------------

    def _setup(self, name: str) -> None:
        super()._setup(name)
        on_change = self._settings.on_change
        self._calls = None if on_change is None else OnChangeCalls(on_change)
        # Who is in a call to Redis on the node's connections: of each call its thread, or greenlet.
        self._calling: dict[object, object] = {}

    def _is_interrupted(self, runner: Runner) -> bool:
        """Whether the caller, a signal handler then, interrupted what the loop may wait for."""
        return (
            (self._asking is not None and self._asking.book.entered)
            or runner.backend.current() in list(self._calling.values())
            or is_logging(logger.logger)
        )

    def _launch(self, backend: Backend, stops: int, *, strict: bool) -> Runner:
        """A runner that is ready to run; the node is its.

        Args:
            stops: how often stop() had been called when the start began. A signal handler may
                have called it since, when there was no runner to tell.
        """
        if (last := self._runner) is not None and last.gone():
            backend.call(partial(self._stop_by_hand, gone=last))
        runner = self._driving.run(partial(self._new_runner, backend))
        self._machine.start(monotonic(), strict=strict)
        if self._stops != stops:
            self._own_nothing()
            runner.stop()
        return runner

    def _new_runner(self, backend: Backend) -> Runner:
        if self._runner is not None and not self._runner.ended.wait(0):
            raise NodeStateError(
                f"node {self.name!r} runs already: call stop() before starting it again"
            )
        self._adopt_in_child()
        label = f"hashring {self.name}"
        runner = Runner(self._machine, self._get_store(), backend, monotonic, label)
        runner.publish = self._publisher(runner, self._begin_lease())
        self._runner = runner
        return runner

    def _launched(self, backend: Backend) -> Runner | None:
        """The node's runner, if it is the one that runs on this backend."""
        runner = self._runner
        return runner if runner is not None and runner.backend is backend else None

    def _publisher(self, runner: Runner, lease: list[Any]) -> Callable[[], None]:
        if self._calls is None:
            return lambda: self._publish(lease)
        calls = self._calls.of_run(runner.backend, runner.label, self._view.ranges)

        def publish() -> None:
            self._publish(lease)
            calls.note(self._view.ranges, ended=self._machine.state not in AT_WORK)

        return publish

    def _get_store(self) -> Store:
        if self._store is None:
            self._store = self._make_store()
        return self._store

    def _make_store(self) -> Store:
        if isinstance(self._redis, MemoryStore):
            return self._redis
        return RedisStore(self._redis, self._machine.config.io_timeout)

    def _forget_runner(self, runner: Runner) -> bool:
        """The runner has ended: the node has none, unless another thread has started it again."""

        def forget() -> bool:
            if self._runner is not runner:
                return False
            self._runner = None
            if self._store is not None:
                self._store.close()
            return True

        return self._driving.run(forget)

    def _stop_by_hand(self, *, stay: bool = False, gone: Runner | None = None) -> None:
        """Leave the ring when no loop runs: after heartbeats by hand, or not at all.

        Args:
            gone: what ran the node, and will never go on.
        """
        failures: list[StoreError] = []

        def leave() -> None:
            if gone is None or self._forget_runner(gone):
                self._by_hand(lambda: self._leave_by_hand(failures, stay=stay))

        # In one: another thread must not start the node before it has left.
        self._driving.run(leave)
        if gone is not None:
            gone.bury()
        # Later: a signal handler may have interrupted a log handler, and wait for its turn.
        for error in failures:
            logger.warning("hashring %s: %s; it expires by itself", self.name, error)

    def _leave_by_hand(self, failures: list[StoreError], *, stay: bool) -> None:
        self._own_nothing()
        if self._machine.state in (NodeState.STOPPED, NodeState.NEW):
            self._close_store()
            return
        self._machine.stop(stay=stay)
        while isinstance(step := self._machine.next(monotonic()), Run):
            try:
                self._run_now(step)
            except StoreError as error:
                failures.append(error)
        self._publish(self._lease)
        self._close_store()

    def _close_store(self) -> None:
        """Close the connections of a node without a loop; the next call makes new ones."""
        # Whoever has a lock of the client's may never let go of it: a call that a signal handler
        # has interrupted, or a thread that the end of the interpreter has ended.
        interrupted = threading.get_ident() in list(self._calling.values())
        if self._store is not None and not interrupted and not sys.is_finalizing():
            self._store.close()

    def _ask(self, make: Callable[[], Run]) -> None:
        """Run a step now: in the loop when one runs, since only it may touch the machine."""
        self._refuse_if_forked()
        if self._by_hand(lambda: self._run_now(make())):
            return
        runner = self._runner
        if runner is None:
            raise NodeStateError(f"node {self.name!r} has stopped")
        request = runner.ask(make)
        while not request.latch.wait(1.0):
            if runner.ended.wait(0.001) or sys.is_finalizing():
                raise NodeStateError(f"node {self.name!r} has stopped")
            if runner.gone():
                raise NodeStateError(
                    f"node {self.name!r} runs no more: the thread of its greenlets has ended, or "
                    "their hub was destroyed. Call stop(), or start it again"
                )
        if request.error is not None:
            raise request.error

    def _by_hand(self, do: Callable[[], None]) -> bool:
        """Do it in the caller's thread, when no loop runs; false when one does."""
        if self._runner is not None:
            return False

        def unless_it_runs() -> bool:
            # A start may have come first.
            if self._loops:
                return False
            do()
            return True

        return self._driving.run(unless_it_runs)

    def _run_now(self, step: Run) -> None:
        """Run a step in the caller's thread, when no loop runs."""
        lease, sent = self._lease, monotonic()
        try:
            reply = self._run_by_hand(step.command)
        except StoreError as error:
            step.failed(error, monotonic())
            raise
        step.done(reply, sent, monotonic())
        self._publish(lease)

    def _part(self) -> Runner | None:
        """Own nothing from now on, and begin to leave the ring; what runs the node, if anything."""
        runner = self._runner
        if runner is not None:
            self._stops += 1
            self._own_nothing()
            runner.stop()
        return runner

    def _abandon(self) -> None:
        super()._abandon()
        # Connections and loop are the parent's; closing them here would close them there.
        if self._runner is not None:
            self._runner.abandon()
        self._runner = None
        self._store = None
        if self._calls is not None:
            self._calls.abandon()


def _backend_of_threads() -> Backend:
    """What a loop runs on in a program of threads, which gevent may have patched."""
    # Other threads may put into the inboxes of greenlets, and wait for their latches; into the
    # queues that gevent has put in the place of the standard library's they may not.
    return GeventBackend() if threads_are_greenlets() else ThreadBackend()


def _ignore(reply: Any, sent: float, now: float) -> None:
    pass


def _ignore_error(error: StoreError, now: float) -> None:
    pass


def _leave_at_exit() -> None:
    """The program ends without having stopped its nodes: those that have a loop leave."""
    leaving = [
        (node, runner)
        for node in remembered()
        if isinstance(node, RingNode) and (runner := node._part()) is not None
    ]
    deadline = monotonic() + _PATIENCE_AT_EXIT
    gone = []
    for node, runner in leaving:
        if runner.gone():
            gone.append((node, runner))
        elif runner.may_wait() and runner.ended.wait(max(0.0, deadline - monotonic())):
            node._forget_runner(runner)
    for number, (node, runner) in enumerate(gone):
        # Where Redis does not answer, the first finds out for all.
        if number == 0 or monotonic() < deadline:
            node._stop_by_hand(gone=runner)


atexit.register(_leave_at_exit)
