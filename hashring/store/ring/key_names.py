"""The names of a ring's keys in Redis.

All keys of one ring share a hash slot, so that one script may touch them on Redis Cluster:
``{<ring>}:epoch`` hashes like ``<ring>`` itself. A ring whose name holds a hash tag of its own
(``{team-a}:accounts``) keeps it: its keys are ``{team-a}:accounts:epoch`` and so on. The ZSET has
the ring's name itself, as with redis-hashring. So no ring may be named like a key of another.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from hashring.store.ring_and_group_names import name_bytes, tagged


@dataclass(frozen=True)
class RingKeys:
    """The key names of one ring, as bytes.

    Attributes:
        ring: the ZSET of replicas; its name is also the channel's.
        epoch, nodes, events, left, full, points, full_points, places, orders, drained, ended,
            token, lock_server: see docs/reference/redis-layout.rst.
        locks: what every lock's key begins with.
    """

    ring: bytes
    epoch: bytes
    nodes: bytes
    events: bytes
    left: bytes
    full: bytes
    points: bytes
    full_points: bytes
    places: bytes
    orders: bytes
    drained: bytes
    ended: bytes
    token: bytes
    lock_server: bytes
    locks: bytes

    @property
    def channel(self) -> bytes:
        """The channel that tells of changes."""
        return self.ring

    def script_keys(self) -> tuple[bytes, ...]:
        """The KEYS of every script, in their order: all but those about locks."""
        *names, _token, _lock_server, _locks = vars(self).values()
        return tuple(names)

    def lock(self, key: bytes) -> bytes:
        """The name of a key's lock."""
        return self.locks + key

    def node_channel(self, node: str) -> bytes:
        """The channel that tells one node of its ranges, of locks, and of orders about it."""
        return self.locks[: -len(b"lock:")] + b"to:" + node.encode()


_PARTS: Final = {
    field.name: field.name.replace("_", "-").encode()
    for field in fields(RingKeys)
    if field.name not in ("ring", "locks")
}


def ring_keys(name: str | bytes) -> RingKeys:
    """The keys of the ring of that name.

    Raises:
        ConfigError: the name cannot be one: see :func:`hashring.store.ring_and_group_names.tagged`.
    """
    base = tagged("ring", name, words=(b"group", b"challenge"), last_words=_PARTS.values())
    return RingKeys(
        ring=name_bytes("ring", name),
        locks=base + b":lock:",
        **{field: base + b":" + part for field, part in _PARTS.items()},
    )
