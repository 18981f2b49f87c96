"""Which rings and partition groups there are on a Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from hashring.errors import ConfigError, RedisRefused
from hashring.store.group.key_names import group_keys
from hashring.store.interface import RedisCaller
from hashring.store.ring.key_names import ring_keys

_RING: Final = b":epoch"
_GROUP: Final = b":group:state"
# What ends in `:epoch` or `:state`, and little else: one walk over the keys finds both.
_PATTERN: Final = "*:[es][pt][oa][ct][he]"
_ANY_KEY: Final = b"{hashring}:epoch"
_STEP: Final = 500  # keys that Redis looks at in one step


class Found(NamedTuple):
    """A name found on Redis.

    Attributes:
        kind: ``"ring"`` or ``"group"``.
        name: as its nodes or members give it.
    """

    kind: str
    name: str


def discover(redis: RedisCaller) -> Iterator[Found | None]:
    """Every ring and group, in no order; a name may come twice.

    Steps through the keys of the whole database; ``None`` comes after each step, so that the
    caller can pause. A ring is found once it has a history: not when only nodes of
    redis-hashring are on it. Names that no ring can have are passed over. Of a Redis Cluster, only
    the server that is asked answers.

    Raises:
        StoreError: Redis cannot be asked.
    """
    cursor: Any = 0
    while True:
        cursor, keys = redis.call("SCAN", cursor, "MATCH", _PATTERN, "COUNT", _STEP)
        for key in keys:
            for kind in ("ring", "group"):
                name = _name(kind, key)
                if name is not None:
                    yield Found(kind, name)
        if int(cursor) == 0:
            return
        yield None


def check_slots_served(redis: RedisCaller) -> None:
    """Refuse a server of a Redis Cluster that is down: it has no rings, and yet answers ``SCAN``.

    Raises:
        RedisUnavailable: it is down, or cannot be asked.
    """
    # Another server of a cluster may have the key; some users may not read it.
    with suppress(RedisRefused):
        redis.call("GET", _ANY_KEY)


def _name(kind: str, key: bytes) -> str | None:
    base = key.removesuffix(_RING if kind == "ring" else _GROUP)
    if base == key or not base:
        return None
    inner = base[1:-1]
    # `{name}:epoch`, unless the name has a hash tag of its own.
    whole = base[:1] == b"{" and base[-1:] == b"}" and inner and not set(b"{}") & set(inner)
    if not whole and not (b"{" in base and b"}" in base):
        return None  # not written by a ring: its keys have braces
    try:
        name = (inner if whole else base).decode()
        own = ring_keys(name).epoch if kind == "ring" else group_keys(name).state
        return name if own == key else None
    except (UnicodeDecodeError, ConfigError):
        # Anybody may write such a key. No ring can have the name, or no group.
        return None
