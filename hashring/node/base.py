"""What a node is and what it answers, whatever runs it."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Final

from hashring._version import __version__
from hashring.core.hashing import HashAlgorithm, hash_algorithm, key_bytes
from hashring.core.placement import check_placement
from hashring.core.replica import check_node_name
from hashring.core.ring import Range, Ring
from hashring.errors import ConfigError, NodeForked
from hashring.node.machine import NodeConfig, NodeMachine, NodeState, View, ownership_change
from hashring.node.status import NodeStatus, status_of
from hashring.store.commands import Scoring
from hashring.store.keys import ring_keys

# The defaults of redis-hashring 0.7.
DEFAULT_REPLICAS: Final = 16
DEFAULT_TTL: Final = 60.0
DEFAULT_HEARTBEAT_INTERVAL: Final = 10.0

# A Redis that is silent for this long, in seconds, counts as failed; less for short ttls.
_LONGEST_SILENCE: Final = 5.0

MAX_POINTS: Final = 100_000
"""The most points one node may place: its heartbeat refreshes each of them in one call."""

OnChange = Callable[[tuple[Range, ...], tuple[Range, ...]], Any]


def _checked_seconds(setting: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ConfigError(setting, value, "give a positive number of seconds")
    return float(value)


def _checked_points(n_replicas: int, weight: float) -> int:
    if isinstance(n_replicas, bool) or not isinstance(n_replicas, int) or n_replicas < 1:
        raise ConfigError("n_replicas", n_replicas, "a node needs at least one replica")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e6:
        raise ConfigError("weight", weight, "give a positive number; 1 is an ordinary node")
    # However low its weight, a node gets a point: a weight is not a way to switch a node off.
    points = max(1, round(n_replicas * weight))
    if points > MAX_POINTS:
        raise ConfigError(
            "n_replicas", n_replicas, f"times weight {weight} is more than {MAX_POINTS} points"
        )
    return points


_names: weakref.WeakValueDictionary[tuple[bytes, str], BaseNode] = weakref.WeakValueDictionary()
_names_lock = threading.Lock()


def _own_name(ring: bytes, node: BaseNode) -> str:
    """``host:pid``, with a number after it for further nodes of one process on one ring."""
    base = f"{socket.gethostname()}:{os.getpid()}"
    with _names_lock:
        name, number = base, 1
        while (ring, name) in _names:
            number += 1
            name = f"{base}.{number}"
        _names[ring, name] = node
    return name


class BaseNode:
    """The part of a node that needs no I/O: its settings, and what it answers about keys."""

    _asynchronous = False

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
        keys = ring_keys(ring)
        if wire not in (None, "redis-hashring"):
            raise ConfigError("wire", wire, "unknown; leave it out, or say 'redis-hashring'")
        if on_change is not None and not callable(on_change):
            raise ConfigError("on_change", on_change, "give a callable of (gained, lost)")
        ttl = _checked_seconds("ttl", ttl)
        heartbeat_interval = _checked_seconds("heartbeat_interval", heartbeat_interval)
        if ttl < 2 * heartbeat_interval:
            raise ConfigError(
                "ttl",
                ttl,
                f"is less than two heartbeats of {heartbeat_interval:g} s: one late heartbeat "
                f"would cost the node its keys; use at least {2 * heartbeat_interval:g}",
            )
        self._redis = redis
        self._wire = wire
        self._named = name is not None
        self._weight = float(weight)
        self._points = _checked_points(n_replicas, weight)
        self._n_replicas = n_replicas
        self._keys = keys
        self._algorithm = _algorithm(hash_algorithm or ("xxh32" if wire else HashAlgorithm.CRC32))
        self._placement = check_placement(placement)
        self._ttl = ttl
        self._heartbeat_interval = heartbeat_interval
        self._on_change = on_change
        self._parent: int | None = None
        self._setup(check_node_name(name) if name is not None else _own_name(keys.ring, self))
        _nodes.add(self)

    def _setup(self, name: str) -> None:
        """A machine of its own, of that name, which has not started."""
        if self._wire and name.count(":") != 1:
            raise ConfigError(
                "name",
                name,
                "on a ring shared with redis-hashring a name is host:pid, with one colon: "
                "its nodes end on anything else",
            )
        config = NodeConfig(
            keys=self._keys,
            name=name,
            named=self._named,
            points=self._points,
            ttl=self._ttl,
            heartbeat_interval=self._heartbeat_interval,
            io_timeout=min(_LONGEST_SILENCE, self._ttl / 3),
            scoring=(
                Scoring.last_heartbeat(self._ttl) if self._wire else Scoring.expiry(self._ttl)
            ),
            algorithm=self._algorithm,
            placement=self._placement,
            follow_foreign=self._wire is not None,
            told={
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "weight": self._weight,
                "hash_algorithm": self._algorithm.name,
                "version": __version__,
            },
        )
        # Seeded by the operating system: forked or cloned processes must not place alike.
        self._machine = NodeMachine(config, random.SystemRandom())
        self._view = self._machine.view()
        self._point_of_bytes = self._algorithm.point_of_bytes
        # What `contains` reads, in one piece; None in a forked child.
        self._lease: tuple[tuple[int, ...], float] | None = (
            self._view.bounds,
            self._view.deadline,
        )

    # --- about keys ---------------------------------------------------------------------------

    def contains(self, key: str | bytes) -> bool:
        """Whether this node owns the key now.

        No lock and no I/O: it reads the last view of the ring, and the node's own clock. Two
        nodes may both say yes for as long as a change takes to travel (milliseconds; one
        heartbeat when a message is lost). Where that must not be, use locks.

        Raises:
            KeyTypeError, KeyValueError: the key has no point.
            NodeForked: the node was started in a parent process.
        """
        if not key:
            key_bytes(key)
        try:
            point = self._point_of_bytes(key.encode())  # type: ignore[union-attr]
        except (AttributeError, UnicodeEncodeError):
            point = self.key_as_ring_point(key)
        try:
            bounds, deadline = self._lease  # type: ignore[misc]
        except TypeError:
            self._refuse_if_forked()
            raise
        return bisect_right(bounds, point) & 1 == 1 and monotonic() < deadline

    def owner(self, key: str | bytes) -> str:
        """The name of the node that owns the key, on the ring as this node last saw it.

        Raises:
            EmptyRingError: it has seen no node yet.
            KeyTypeError, KeyValueError: the key has no point.
        """
        return self._view.ring.owner(key)

    def key_as_ring_point(self, key: str | bytes) -> int:
        """The key's point, in ``[0, 2**32)``.

        Raises:
            KeyTypeError, KeyValueError: the key has no point.
        """
        return self._algorithm.point(key)

    # --- about the node and the ring ----------------------------------------------------------

    def get_ranges(self) -> tuple[Range, ...]:
        """The ranges this node owns now: rising, disjoint, neighbours merged; none once fenced."""
        view = self._view
        return view.ranges if monotonic() < view.deadline else ()

    def get_node_count(self) -> int:
        """How many nodes are on the ring, as this node last saw it."""
        return self._view.ring.node_count

    @property
    def ring(self) -> Ring:
        """The ring as this node last saw it; frozen."""
        return self._view.ring

    @property
    def name(self) -> str:
        """The node's name on the ring."""
        return self._machine.name

    @property
    def state(self) -> NodeState:
        """The node's state; see the table in :mod:`hashring.node.machine`."""
        return self._machine.state

    @property
    def status(self) -> NodeStatus:
        """Everything the node can say of itself now."""
        return status_of(
            self._machine, self._view, monotonic(), self._keys.ring.decode("utf-8", "replace")
        )

    @property
    def weight(self) -> float:
        """The node's weight; it has ``n_replicas * weight`` points."""
        return self._weight

    @property
    def n_replicas(self) -> int:
        """Replicas of an ordinary node; see :attr:`weight`."""
        return self._n_replicas

    @property
    def ttl(self) -> float:
        """Seconds after its last heartbeat at which the node owns nothing."""
        return self._ttl

    @property
    def heartbeat_interval(self) -> float:
        """Seconds between heartbeats."""
        return self._heartbeat_interval

    @property
    def hash_algorithm(self) -> HashAlgorithm:
        """The function from key to point."""
        return self._algorithm

    @property
    def placement(self) -> str:
        """How the node places its points."""
        return self._placement

    def __repr__(self) -> str:
        ring = self._keys.ring.decode("utf-8", "replace")
        return f"<{type(self).__name__} {self.name!r} on ring {ring!r}: {self.state.value}>"

    # --- for the runners ----------------------------------------------------------------------

    def _publish(self) -> tuple[tuple[Range, ...], tuple[Range, ...]] | None:
        """Show readers the machine's view; what was gained and lost, if anything was."""
        before, after = self._view, self._machine.view()
        if after is before:
            return None
        # The ring first, then the ranges: both are whole in themselves.
        self._view = after
        self._lease = (after.bounds, after.deadline)
        if after.ranges == before.ranges:
            return None
        return ownership_change(before, after)

    def _own_nothing(self) -> None:
        self._lease = ((), float("-inf"))

    # --- fork ---------------------------------------------------------------------------------

    def _refuse_if_forked(self) -> None:
        if self._parent is not None:
            raise NodeForked(self.name, self._parent)

    def _abandon(self) -> None:
        """In a forked child: the node is the parent's."""
        if self._machine.state is NodeState.NEW:
            self._setup(self.name if self._named else _own_name(self._keys.ring, self))
            return
        self._parent = os.getppid()
        self._lease = None
        self._view = View((), float("-inf"), (), self._view.ring)

    def _adopt_in_child(self) -> None:
        """Become a node of this process, before it starts here."""
        if self._parent is None:
            return
        if self._named:
            # The name is the parent's, and taking it would take the parent's points.
            raise NodeForked(self.name, self._parent)
        self._parent = None
        self._setup(_own_name(self._keys.ring, self))


monotonic = time.monotonic

# The constructor's parameter has the function's name, which is the word users know.
_algorithm = hash_algorithm

_nodes: weakref.WeakSet[BaseNode] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    global _names_lock  # noqa: PLW0603 - another thread may have held it when the process forked
    _names_lock = threading.Lock()
    for node in list(_nodes):
        node._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
