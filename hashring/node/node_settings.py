"""What a node is made with: checked once, and frozen."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from hashring._version import __version__
from hashring.core.hashing import (
    RING_SIZE,
    HashAlgorithm,
    hash_algorithm,
    is_known,
    known_name,
)
from hashring.core.point_placement import LEAST_REFUSED_WEIGHT, MAX_POINTS, check_placement
from hashring.core.ranges import PointRange
from hashring.core.value_checks import (
    TOO_LARGE,
    check_least_interval,
    check_least_ttl,
    check_node_name,
    check_wire,
    check_zone,
    plain_number,
    plain_whole,
)
from hashring.errors import ConfigError, MissingDependencyError
from hashring.protocol.locks.lock_config import LockConfig
from hashring.protocol.machine_steps import io_timeout
from hashring.protocol.node.node_machine import NodeConfig
from hashring.running.host_name import host_name
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import RingKeys, ring_keys

# The defaults of redis-hashring 0.7.
DEFAULT_REPLICAS: Final = 16
DEFAULT_TTL: Final = 60.0
DEFAULT_HEARTBEAT_INTERVAL: Final = 10.0

# Enough to find a function of signed points, or of longer ones.
_TRIED_KEYS: Final = 32

_TOO_LONG: Final = 1e9  # seconds

OnChange = Callable[[tuple[PointRange, ...], tuple[PointRange, ...]], Any]


@dataclass(frozen=True)
class NodeSettings:
    """The checked arguments of a node; see :class:`hashring.RingNode` for their meaning.

    Attributes:
        keys: the ring's keys in Redis.
        name: the name that the user gave; ``None`` for one that is made up.
        n_replicas, weight: as given.
        ttl, heartbeat_interval: seconds.
        algorithm: from key to point.
        placement: ``"random"`` or ``"balanced"``.
        wire: ``"redis-hashring"`` on a ring that its nodes share; else ``None``.
        locks: how the node locks; ``None`` without locks and limit.
        on_change: called with the ranges gained and lost.
        zone: where the node runs, as the user names it; ``None`` when not given.
        follow: whether it follows the whole ring, or knows only its own ranges.
    """

    keys: RingKeys
    name: str | None
    n_replicas: int
    weight: float
    ttl: float
    heartbeat_interval: float
    algorithm: HashAlgorithm
    placement: str
    wire: str | None
    locks: LockConfig | None
    on_change: OnChange | None
    zone: str | None
    follow: bool

    @property
    def ring_name(self) -> str:
        """The ring's name, for people."""
        return self.keys.ring.decode()

    @classmethod
    def checked(
        cls,
        ring: Any,
        *,
        name: Any,
        n_replicas: Any,
        weight: Any,
        ttl: Any,
        heartbeat_interval: Any,
        algorithm: Any,
        placement: Any,
        wire: Any,
        on_change: Any,
        lock: Any,
        limit: Any,
        lock_ttl: Any,
        idle: Any,
        max_handoff_time: Any,
        zone: Any,
        follow: Any,
    ) -> NodeSettings:
        """The settings that these arguments make.

        Raises:
            ConfigError: an argument cannot work.
            MissingDependencyError: the hash algorithm's package is not installed.
        """
        keys = ring_keys(ring)
        check_wire(wire)
        if on_change is not None and not callable(on_change):
            raise ConfigError("on_change", on_change, "give a callable of (gained, lost)")
        if follow is None:
            # A ring that is shared with redis-hashring has no index of points.
            follow = wire is not None
        if not isinstance(follow, bool):
            raise ConfigError("follow", follow, "say True or False")
        if wire and not follow:
            raise ConfigError(
                "follow",
                follow,
                "a ring that is shared with redis-hashring has no index: leave it out",
            )
        n_replicas = _checked_replicas(n_replicas)
        ttl = _checked_ttl("ttl", ttl)
        heartbeat_interval = _checked_seconds("heartbeat_interval", heartbeat_interval)
        if ttl < 2 * heartbeat_interval:
            raise ConfigError(
                "ttl",
                ttl,
                f"is less than two heartbeats of {heartbeat_interval:g} s: one late heartbeat "
                f"would cost the node its keys; use at least {2 * heartbeat_interval:g}",
            )
        checked_locks = _checked_locks(
            lock, limit, lock_ttl, idle, max_handoff_time, ttl, heartbeat_interval
        )
        check_least_interval(heartbeat_interval)
        if algorithm is None:
            algorithm = "xxh32" if wire else HashAlgorithm.CRC32
        return cls(
            keys=keys,
            n_replicas=n_replicas,
            weight=checked_weight(n_replicas, weight),
            ttl=ttl,
            heartbeat_interval=heartbeat_interval,
            algorithm=_checked_algorithm(algorithm),
            placement=check_placement(placement),
            wire=wire,
            on_change=on_change,
            zone=None if zone is None else check_zone(zone),
            locks=checked_locks,
            follow=follow,
            name=None if name is None else check_node_name(name),
        )

    @property
    def io_timeout(self) -> float:
        """Seconds that Redis may take to answer."""
        return io_timeout(self.ttl)

    def node(self, name: str) -> NodeConfig:
        """What the protocol of a node of this name needs to know, in this process.

        Raises:
            ConfigError: on a ring shared with redis-hashring, the name cannot be a node's.
        """
        if self.wire and name.count(":") != 1:
            raise ConfigError(
                "name",
                name,
                "on a ring shared with redis-hashring a name is host:pid, with one colon: "
                "its nodes end on anything else",
            )
        return NodeConfig(
            keys=self.keys,
            name=name,
            named=self.name is not None,
            n_replicas=self.n_replicas,
            weight=self.weight,
            ttl=self.ttl,
            heartbeat_interval=self.heartbeat_interval,
            io_timeout=self.io_timeout,
            scoring=Scoring.last_heartbeat(self.ttl) if self.wire else Scoring.expiry(self.ttl),
            algorithm=self.algorithm,
            placement=self.placement,
            follow_foreign=self.wire is not None,
            follow=self.follow,
            locks=self.locks,
            told={
                "host": host_name(),
                "pid": os.getpid(),
                "hash_algorithm": self.algorithm.name,
                "version": __version__,
                "n_replicas": self.n_replicas,
                **({"placement": self.placement} if self.placement != "random" else {}),
                **({"zone": self.zone} if self.zone is not None else {}),
            },
        )


def _checked_seconds(setting: str, value: float) -> float:
    seconds = plain_number(value)
    if seconds is None or not 0 < seconds < _TOO_LONG:
        raise ConfigError(
            setting, value, f"give a positive number of seconds below {_TOO_LONG:.0f}"
        )
    return float(seconds)


def _checked_ttl(setting: str, value: float) -> float:
    return check_least_ttl(setting, _checked_seconds(setting, value))


def _checked_replicas(n_replicas: Any) -> int:
    count = plain_whole(n_replicas)
    if count is None or count < 1:
        raise ConfigError(
            "n_replicas", n_replicas, "give a whole number, at least 1: a node needs a replica"
        )
    return count


def _checked_algorithm(algorithm: Any) -> HashAlgorithm:
    """The algorithm, when it is hashable, and its points are on the ring.

    A function of the user's own is tried on some keys: to check each point that it gives would
    cost every question about a key. One that only knows keys of some form may raise.
    """
    if not isinstance(algorithm, HashAlgorithm):
        return hash_algorithm(algorithm)
    try:
        hash(algorithm)
    except TypeError as error:
        raise ConfigError(
            "hash_algorithm",
            algorithm.name,
            "its function is not hashable, so a node cannot find the tables that it made for it: "
            "give a plain function, or make its dataclass frozen",
        ) from error
    for number in range(_TRIED_KEYS):
        key = f"key-{number}"
        try:
            point = algorithm.point(key)
        except Exception:  # noqa: BLE001 - what it does on real keys is not known
            continue
        whole = plain_whole(point)
        if whole is None or not 0 <= whole < RING_SIZE:
            raise ConfigError(
                "hash_algorithm",
                algorithm.name,
                f"its function gives {point!r} for the key {key!r}: return an int in "
                f"[0, {RING_SIZE}), for example the first 32 bits of the hash",
            )
    with suppress(MissingDependencyError):  # a function in the place of a package
        if known_name(algorithm.name) is not None and not is_known(algorithm):
            raise ConfigError(
                "hash_algorithm",
                algorithm.name,
                "is the name of another algorithm, which readers of the ring would take for yours: "
                "give it a name of its own",
            )
    return algorithm


def checked_weight(n_replicas: int, weight: float) -> float:
    """A node's weight, when it may have it.

    Raises:
        ConfigError: it is none, or makes too many points.
    """
    plain = plain_number(weight)
    if plain is None or not 0 < plain < LEAST_REFUSED_WEIGHT:
        raise ConfigError(
            "weight",
            weight,
            f"give a positive number below {LEAST_REFUSED_WEIGHT:.0f}; 1 is an ordinary node",
        )
    try:
        points = round(n_replicas * plain)
    except OverflowError:
        # No float is as large as this count.
        points = MAX_POINTS + 1
    if points > MAX_POINTS:
        raise ConfigError(
            "n_replicas", n_replicas, f"times weight {weight} is more than {MAX_POINTS} points"
        )
    return float(plain)


def checked_load(load: Any) -> float | None:
    """A node's load, when it may report it; ``None`` for none.

    Raises:
        ConfigError: it is not a finite number, or is below 0.
    """
    if load is None:
        return None
    plain = plain_number(load)
    if plain is None or not 0 <= plain < TOO_LARGE:
        raise ConfigError(
            "load",
            load,
            f"give a number of at least 0 and below {TOO_LARGE:g}, or None for no report",
        )
    return float(plain)


def _checked_locks(  # noqa: PLR0917 - the node's own arguments, in their order
    lock: bool,
    limit: int | None,
    lock_ttl: float | None,
    idle: float | None,
    max_handoff_time: float | None,
    ttl: float,
    heartbeat_interval: float,
) -> LockConfig | None:
    if not isinstance(lock, bool):
        raise ConfigError("lock", lock, "say True or False")
    most = None if limit is None else plain_whole(limit)
    if limit is not None and most is None:
        raise ConfigError("limit", limit, "give a number of keys, or None for any number")
    if most is not None and most < 1:
        raise ConfigError("limit", limit, "a node that may hold no key should not be started")
    if most is not None and most >= TOO_LARGE:
        raise ConfigError(
            "limit", limit, f"give less than {TOO_LARGE:g} keys, or None for any number"
        )
    checked_ttl = ttl if lock_ttl is None else _checked_ttl("lock_ttl", lock_ttl)
    if checked_ttl < 2 * heartbeat_interval:
        raise ConfigError(
            "lock_ttl",
            checked_ttl,
            f"is less than two heartbeats of {heartbeat_interval:g} s: one late "
            f"heartbeat would lose every lock; use at least {2 * heartbeat_interval:g}",
        )
    config = LockConfig(
        locking=lock,
        limit=most,
        ttl=checked_ttl,
        idle=ttl if idle is None else _checked_seconds("idle", idle),
        max_handoff_time=(
            ttl
            if max_handoff_time is None
            else _checked_seconds("max_handoff_time", max_handoff_time)
        ),
    )
    for setting, value in (("lock_ttl", lock_ttl), ("max_handoff_time", max_handoff_time)):
        if value is not None and not lock:
            raise ConfigError(setting, value, "is for a node with locks: pass lock=True too")
    if idle is not None and not lock and limit is None:
        raise ConfigError("idle", idle, "is for a node with locks or a limit: pass one too")
    return config if lock or limit is not None else None
