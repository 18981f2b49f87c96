"""A live node over a sync client: run by a thread, or by a greenlet."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar, cast

from hashring.core.ring import Ring
from hashring.errors import EmptyRingError
from hashring.node.base_node import Node
from hashring.node.forks import remembered
from hashring.node.key_answers import listed, monotonic
from hashring.node.lock_flows import Asking
from hashring.node.node_runner import Runner
from hashring.node.single_calls import SingleCalls
from hashring.node.start_and_stop import Life, backend_of_threads
from hashring.node.user_calls import UserCalls
from hashring.protocol.locks.key_lease import KeyLease
from hashring.protocol.locks.verdicts import Verdict
from hashring.running.forked import notice_fork
from hashring.running.threads_and_greenlets import GeventBackend, event_of_threads
from hashring.store.command import Command
from hashring.store.ring.commands import owner
from hashring.store.ring.node_orders import OrderStatus
from hashring.store.ring.replica_and_node_tables import ring_tables

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
            Redis is, and makes connections of its own. In tests, a
            :class:`hashring.testing.MemoryStore`.
        ring: the ring's name; nodes with the same name share it.
        conn, key: other names for ``redis`` and ``ring``, those of redis-hashring.
        n_replicas: how many points an ordinary node has. More points, more even shares.
        hash_algorithm: from key to point; the same on all nodes. ``"crc-32"`` unless given. Others
            are ``"xxh32"`` (the extra ``xxhash``), each 32-bit CRC of crcmod such as ``"crc-32c"``,
            or a :class:`hashring.HashAlgorithm` of your own.
        name: the node's name on the ring; ``host:pid`` unless given. A name of your own keeps
            its points over restarts; no two running processes may have the same.
        weight: the node has ``n_replicas * weight`` points, at least one.
        ttl: seconds after its last heartbeat at which the node owns nothing, and others take
            over. At least two heartbeats, and 0.1 s.
        heartbeat_interval: seconds between heartbeats, at least 0.01.
        placement: ``"random"``, or ``"balanced"`` for even shares (docs/explanation/placement.rst).
        on_change: called with ``(gained, lost)``, tuples of ranges, after the node's ranges
            changed; one call at a time, in order, in a thread (greenlet) of its own. What it
            raises is logged. Coroutine functions are for :class:`hashring.AsyncRingNode`.
            ``stop()`` does not wait for it. If the node is started again while a
            call goes on, the next ones wait until that has returned.
            While a call does not return, 64 changes wait for it; of more, the newest are one.
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
            ``hashring owner --owners`` goes by it; it does not change who owns a key.

    Raises:
        ConfigError: an argument cannot work.
        MissingDependencyError: the hash algorithm's package is not installed.

    With locks, at most one node holds a key at any time, and every hold has a fencing token.
    Not guaranteed without locks: that two nodes never both own a key. After a change of the
    ring they may for as long as the message travels, for one heartbeat when it is lost, and for
    up to the ttl when the old owner cannot reach Redis.
    """

    def _equip(self) -> None:
        self._calls = UserCalls(self._redis, self._settings.io_timeout)
        self._single_calls = SingleCalls(self._calls)
        self._life = Life(self._calls, self._single_calls, self._settings.on_change)

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
        notice_fork()
        self._life.start(self, backend_of_threads)

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
        notice_fork()
        self._life.start(self, GeventBackend)

    def stop(self, *, stay: bool = False) -> None:
        """Leave the ring, and own nothing from now on.

        Args:
            stay: for a restart of a named node. Its points stay on the ring for one ttl, and the
                next process of that name takes them back. No key moves, and other nodes get no
                message. No node owns its keys meanwhile. If no process comes back in time, the
                node expires as after a crash.

        It also closes the connections of a node that never ran, and was only asked.

        Returns when the node has left, or when Redis did not answer in time: then the ring
        forgets it after its ttl. Redis has no lock of a node that has left, but those of open
        :meth:`hold` blocks: the end of a block releases its lock. Calling it again does nothing.
        Safe in a signal handler, where it does not wait when what it interrupted is the node's own
        work (a question about a locked key, a call to Redis, the loop), gevent's hub, or a log
        handler that the loop may need: then the node leaves once the handler has returned.
        In a forked child, which inherits its parent's handlers and blocks, it does nothing.

        Raises:
            ConfigError: the node is to stay, and has no name of its own.
        """
        self._check_stay(stay)
        notice_fork()
        if self._parent is not None:
            return
        self._life.stop(self, stay=stay)

    def gevent_stop(self, *, stay: bool = False) -> None:
        """The same as :meth:`stop`, under the name that goes with :meth:`gevent_start`."""
        self.stop(stay=stay)

    def poll(self) -> None:
        """Join the ring, and stay on it from the calling thread until :meth:`stop`.

        While Redis does not answer, it keeps trying. An exception of a signal handler's ends it,
        and the node leaves.

        Raises:
            NodeStateError: the node runs already.
            NodeForked: it has a name of its own, and runs in the parent process.
        """
        notice_fork()
        self._life.poll(self)

    def __enter__(self: N) -> N:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
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
        return self._calls.run_flow(self._asking, self._asking.select(listed(items, key), key))

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
        runner = self._calls.runner
        asking = self._locks()
        event = runner.backend.event if runner else event_of_threads
        hold, late = asking.hold(key, timeout, event), None
        try:
            yield self._calls.held(hold)
        finally:
            try:
                late = self._unpin(asking, hold)
            finally:
                if late is None:
                    # A signal handler has raised: once more.
                    self._unpin(asking, hold)
            if late:
                self._calls.release_late(asking, runner)

    def _ask_book(self, data: bytes) -> bool:
        asking = cast(Asking, self._asking)
        verdict, asked = asking.ask(data)
        if verdict is not Verdict.TAKE:
            return verdict is Verdict.YES
        return self._calls.run_flow(asking, asking.take_one(asked))

    @property
    def _loop(self) -> Runner | None:
        return self._calls.runner

    def _ask_owner(self, point: int) -> str:
        found = self._calls.run(owner(self._settings.keys, point))
        if found is None:
            raise EmptyRingError
        return found

    def _ask_ring(self) -> Ring:
        return self._calls.run(self._ring_snapshot()).ring(self._settings.algorithm)

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
            NodeStateError: the node does not run, or is not on the ring just now.
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
        if self._is_ordered(self._calls.run(order)):
            self._single_calls.ask(self, self._machine.beat_step)

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
        notice_fork()
        self._single_calls.heartbeat(self)

    def update(self) -> None:
        """Read the ring now. A running node needs no such call.

        With ``follow=True`` the node keeps what it read. Otherwise a node on the ring sends a
        heartbeat, whose answer has its ranges, and any other node counts the nodes on the ring.

        Raises:
            RedisUnavailable, RedisRefused: it could not.
            NodeStateError: the node stopped meanwhile.
            NodeForked: the node was started in a parent process.
        """
        self._single_calls.ask(self, self._machine.look_step)

    def cleanup(self) -> None:
        """Take expired nodes off the ring now. Every heartbeat does so by itself.

        Raises:
            RedisUnavailable, RedisRefused: it could not.
            NodeStateError: the node stopped meanwhile.
            NodeForked: the node was started in a parent process.
        """
        self._single_calls.cleanup(self)

    def remove(self) -> None:
        """Take this node off the ring now. A running node comes back: use :meth:`stop`.

        Raises:
            RedisUnavailable, RedisRefused: it could not; a node that does not run owns nothing all
                the same.
            NodeStateError: the node stopped meanwhile.
            NodeForked: the node was started in a parent process.
        """
        self._single_calls.remove(self)

    def debug_print(self) -> None:
        """Print the ring's replicas and nodes, expired ones marked.

        Raises:
            RedisUnavailable, RedisRefused: the ring could not be read.
        """
        seen, scoring = self._calls.run(self._ring_snapshot()), self._machine.config.scoring
        print("\n".join(ring_tables(self._settings.ring_name, seen, scoring)))

    # --- inside -------------------------------------------------------------------------------

    def _abandon(self) -> None:
        super()._abandon()
        self._life.abandon()


def _leave_at_exit() -> None:
    """The program ends without having stopped its nodes: those that have a loop leave."""
    leaving = [
        (node, runner)
        for node in remembered()
        if isinstance(node, RingNode) and (runner := node._life.part(node)) is not None
    ]
    deadline = monotonic() + _PATIENCE_AT_EXIT
    gone = [(node, runner) for node, runner in leaving if node._life.end(runner, deadline)]
    for number, (node, runner) in enumerate(gone):
        # Where Redis does not answer, the first finds out for all.
        if number == 0 or monotonic() < deadline:
            node._life.bury(node, runner)


atexit.register(_leave_at_exit)
