"""What all nodes have in common, whatever runs them: settings, machine, reader, locks."""

from __future__ import annotations

import os
import random
from typing import Any

from hashring.core.hashing import HashAlgorithm
from hashring.core.value_checks import is_coroutine_function
from hashring.errors import ConfigError, NodeStateError
from hashring.node.forks import own_name, remember
from hashring.node.key_answers import KeyAnswers, Shown, monotonic, without_ranges
from hashring.node.lock_flows import Asking, Hold
from hashring.node.node_settings import (
    DEFAULT_HEARTBEAT_INTERVAL,
    DEFAULT_REPLICAS,
    DEFAULT_TTL,
    NodeSettings,
    OnChange,
    checked_load,
    checked_weight,
)
from hashring.node.status import NodeStatus, status_of
from hashring.protocol.node.node_states import RENEWING, STARTABLE, NodeState
from hashring.protocol.node.own_ranges_machine import machine_of
from hashring.running.async_machine_loop import AsyncLoop
from hashring.running.machine_loop import Loop
from hashring.running.not_copied import NotCopied
from hashring.store.client_kind import is_async
from hashring.store.command import Command
from hashring.store.memory_store import MemoryStore
from hashring.store.ring.node_orders import OrderStatus, drain, order_took_effect, undrain
from hashring.store.ring.snapshot import Snapshot, snapshot


def _one_of(setting: str, value: Any, alias: str, aliased: Any) -> Any:
    """An argument that redis-hashring has under another name."""
    if value is not None and aliased is not None:
        raise ConfigError(alias, aliased, f"{setting} is given as well: leave out one of the two")
    return aliased if value is None else value


class Node(NotCopied, KeyAnswers):
    """A node that something else runs: :class:`hashring.RingNode`, :class:`hashring.AsyncRingNode`.

    It has checked settings, answers about keys, a machine with the protocol, and, with locks or a
    limit, a book of them and the flows that ask it. Subclasses add what runs the machine.
    """

    _asynchronous = False
    _asking: Asking | None

    def __init__(
        self,
        redis: Any = None,
        ring: str | bytes | None = None,
        *,
        conn: Any = None,
        key: str | bytes | None = None,
        n_replicas: int = DEFAULT_REPLICAS,
        hash_algorithm: str | HashAlgorithm | None = None,
        name: str | None = None,
        weight: float = 1.0,
        ttl: float = DEFAULT_TTL,
        heartbeat_interval: float = DEFAULT_HEARTBEAT_INTERVAL,
        placement: str = "random",
        on_change: OnChange | None = None,
        lock: bool = False,
        limit: int | None = None,
        lock_ttl: float | None = None,
        idle: float | None = None,
        max_handoff_time: float | None = None,
        wire: str | None = None,
        zone: str | None = None,
        follow: bool | None = None,
    ) -> None:
        redis = _one_of("redis", redis, "conn", conn)
        ring = _one_of("ring", ring, "key", key)
        if not isinstance(redis, MemoryStore) and is_async(redis) is not self._asynchronous:
            kind, use = ("not an", "RingNode") if self._asynchronous else ("an", "AsyncRingNode")
            raise ConfigError("redis", type(redis), f"is {kind} asyncio client: use {use}")
        if not self._asynchronous and is_coroutine_function(on_change):
            raise ConfigError("on_change", on_change, "is a coroutine function: use AsyncRingNode")
        self._settings = settings = NodeSettings.checked(
            ring,
            name=name,
            n_replicas=n_replicas,
            weight=weight,
            ttl=ttl,
            heartbeat_interval=heartbeat_interval,
            algorithm=hash_algorithm,
            placement=placement,
            wire=wire,
            on_change=on_change,
            lock=lock,
            limit=limit,
            lock_ttl=lock_ttl,
            idle=idle,
            max_handoff_time=max_handoff_time,
            zone=zone,
            follow=follow,
        )
        self._redis = redis
        self._equip()
        self._setup(settings.name or own_name(settings.keys.ring, self))
        remember(self)

    def _equip(self) -> None:
        """Make what runs the node, once."""
        raise NotImplementedError

    def _setup(self, name: str) -> None:
        """A machine of its own, of that name, which has not started."""
        config = self._settings.node(name)
        # Seeded by the operating system: forked or cloned processes must not place alike.
        self._machine = machine_of(config, random.SystemRandom())
        book = self._machine.book
        self._asking = None
        if book is not None:
            self._asking = Asking(self._machine, book, self._window, monotonic, self._poke)
        held = None if book is None else book.held
        self._answer_from(self._machine.view(monotonic()), held, self._settings.algorithm)

    @property
    def _follows(self) -> bool:
        return self._settings.follow

    @property
    def _loop(self) -> Loop | AsyncLoop | None:
        """What runs the machine, if anything."""
        raise NotImplementedError

    def _poke(self) -> None:
        if (loop := self._loop) is not None:
            loop.wake()

    def _publish(self, lease: Shown | None) -> None:
        """Show readers the machine's view; see :meth:`KeyAnswers._show`."""
        self._show(self._machine.view(monotonic()), lease)

    def _ring_snapshot(self) -> Command[Snapshot]:
        """What reads the ring."""
        config = self._machine.config
        return snapshot(config.keys, scoring=config.scoring)

    def _check_stay(self, stay: bool) -> None:
        if stay and self._settings.name is None:
            raise ConfigError(
                "stay", stay, "a made-up name does not come back: give the node a name= of its own"
            )

    # --- locks --------------------------------------------------------------------------------

    def _locks(self) -> Asking:
        """What asks for locks.

        Raises:
            ConfigError: the node has no locks.
        """
        asking = self._asking
        if asking is None or not asking.book.config.locking:
            raise ConfigError("lock", False, "holding a key needs a node with lock=True")
        return asking

    def _unpin(self, asking: Asking, hold: Hold) -> bool:
        """End a hold; whether its lock is left to the caller to let go of."""
        # In a forked child the lock is the parent's.
        if asking is not self._asking or self._parent is not None or hold.lease is None:
            return False
        if not asking.book.unpin(hold, monotonic()):
            return False
        asking.stir()
        return asking.book.left or self._loop is None

    # --- orders -------------------------------------------------------------------------------

    def _drain_order(self, seconds: float | None, force: bool) -> Command[OrderStatus]:
        """The order to drain this node.

        Raises:
            ConfigError: the time is none.
            NodeStateError: the node does not run.
            NodeForked: it was started in a parent process.
        """
        self._refuse_unless_on_ring()
        keys, lag = self._settings.keys, self._machine.config.scoring.lag
        return drain(keys, node=self.name, by=self.name, seconds=seconds, force=force, lag=lag)

    def _undrain_order(self) -> Command[OrderStatus]:
        """What lifts it; see :meth:`_drain_order`."""
        self._refuse_unless_on_ring()
        return undrain(self._settings.keys, node=self.name, by=self.name)

    def _is_ordered(self, status: OrderStatus) -> bool:
        """Whether an order about the node changed anything.

        Raises:
            ConfigError: no other node is left.
            NodeStateError: Redis does not have the node.
        """
        if status is OrderStatus.UNKNOWN:
            raise NodeStateError(
                f"node {self.name!r} is not on the ring just now: it stopped meanwhile, or Redis "
                "lost the ring. Try again after its next heartbeat"
            )
        return order_took_effect(status, self.name, self._settings.ring_name)

    def _refuse_unless_on_ring(self) -> None:
        self._refuse_if_forked()
        if self._machine.state not in (*RENEWING, NodeState.FENCED):
            raise NodeStateError(
                f"node {self.name!r} is {self.state.value}: start it first, or order it with "
                "`hashring drain` and `hashring undrain`"
            )

    # --- about the node -----------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The node's name on the ring."""
        return self._machine.name

    @property
    def state(self) -> NodeState:
        """The node's state; see the table in :mod:`hashring.protocol.node.node_states`."""
        return self._machine.state

    @property
    def inherited(self) -> bool:
        """Whether it runs in a parent process, and not in this one."""
        return self._parent is not None

    @property
    def status(self) -> NodeStatus:
        """Everything the node can say of itself now."""
        return status_of(
            self._machine,
            self._shown(),
            monotonic(),
            self._settings.ring_name,
        )

    @property
    def weight(self) -> float:
        """The node's weight; it has ``n_replicas * weight`` points, at least one.

        It may be assigned while the node runs. The node then adds points to its own, or gives some
        of them up, in one change, with a heartbeat that it sends at once; the assignment does not
        wait for it. What is assigned counts for this process, in the place of any order of
        ``hashring weight`` that the node has obeyed. A later order counts in its place.

        Raises:
            ConfigError: assigned was no positive number, or one that makes too many points.
            NodeForked: the node was started in a parent process.
        """
        return self._machine.weight

    @weight.setter
    def weight(self, weight: float) -> None:
        checked = checked_weight(self._settings.n_replicas, weight)
        self._refuse_if_forked()
        self._machine.weigh(checked)
        if (loop := self._loop) is not None:
            loop.tell(self._machine.beat_at_once)

    @property
    def load(self) -> float | None:
        """How much the node has to do, as your code assigned it last; ``None`` when it did not.

        The unit is yours, the same for all nodes: requests a second, the part of a CPU. The next
        heartbeat carries it, and ``hashring balance`` computes weights from it. It changes nothing
        by itself. A mean over some heartbeats is better than a momentary value.

        Raises:
            ConfigError: assigned was no finite number, or one below 0.
        """
        return self._machine.load

    @load.setter
    def load(self, load: float | None) -> None:
        self._machine.load = checked_load(load)

    @property
    def zone(self) -> str | None:
        """Where the node runs, as it was given; ``None`` when it was not."""
        return self._settings.zone

    @property
    def n_replicas(self) -> int:
        """Replicas of an ordinary node; see :attr:`weight`."""
        return self._settings.n_replicas

    @property
    def ttl(self) -> float:
        """Seconds after its last heartbeat at which the node owns nothing."""
        return self._settings.ttl

    @property
    def heartbeat_interval(self) -> float:
        """Seconds between heartbeats."""
        return self._settings.heartbeat_interval

    @property
    def hash_algorithm(self) -> HashAlgorithm:
        """The function from key to point."""
        return self._settings.algorithm

    @property
    def placement(self) -> str:
        """How the node places its points."""
        return self._settings.placement

    def __repr__(self) -> str:
        ring = self._settings.ring_name
        return f"<{type(self).__name__} {self.name!r} on ring {ring!r}: {self.state.value}>"

    # --- fork ---------------------------------------------------------------------------------

    def _abandon(self) -> None:
        """In a forked child: the node is the parent's, if it is anywhere."""
        if self._machine.state in STARTABLE:
            self._setup(
                self.name if self._settings.name else own_name(self._settings.keys.ring, self)
            )
            return
        self._parent = os.getppid()
        self._lease = None
        if self._asking is not None:
            self._asking.book.abandon()
        self._view = without_ranges(self._view)

    @property
    def _is_named(self) -> bool:
        return bool(self._settings.name)

    def _adopt_in_child(self) -> None:
        """Become a node of this process, before it starts here."""
        if self._is_named:
            # The name is the parent's, and taking it would take the parent's points.
            self._refuse_if_forked()
        if self._parent is None:
            return
        self._parent = None
        self._setup(own_name(self._settings.keys.ring, self))
