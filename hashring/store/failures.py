"""From a Redis client's exception to this package's.

redis-py and valkey-py have trees of their own with the same names, and a server tells some
refusals only in the text of a ``ResponseError``: so classes are known by name, texts by code.
"""

from __future__ import annotations

from typing import Final

from hashring.errors import (
    OutOfMemory,
    PermissionDenied,
    ReadOnlyReplica,
    RedisRefused,
    RedisUnavailable,
    StoreError,
    WrongKeyType,
)

_PASSWORD: Final = "check the user and the password in the URL"
_NO_PASSWORD: Final = "give the password in the URL: redis://user:password@host"
_PRIMARY: Final = "connect to the primary (or through Sentinel)"
_ADDRESS: Final = "check host, port and that Redis runs"
_CLUSTER: Final = (
    "this server is one of a Redis Cluster, and the ring is on another: use a client of the "
    "cluster (RedisCluster)"
)
_LOADING: Final = "Redis is loading its data: wait"
_MEMORY: Final = "raise maxmemory, or free memory"
_ALLOW: Final = (
    "let the user run the ring's commands on its keys and channel "
    "(documentation: reference/redis-layout)"
)

# Inside a script Redis 6.2 puts the code in the middle of the text, 7 at its beginning.
_CODES: Final[tuple[tuple[str, type[StoreError], str], ...]] = (
    ("WRONGTYPE", WrongKeyType, "choose another ring name, or remove the key that is in the way"),
    ("NOAUTH", PermissionDenied, _NO_PASSWORD),
    ("must be called with the client already authenticated", PermissionDenied, _NO_PASSWORD),
    ("WRONGPASS", PermissionDenied, _PASSWORD),
    ("invalid password", PermissionDenied, _PASSWORD),
    ("invalid username-password", PermissionDenied, _PASSWORD),
    (
        "NOPERM",
        PermissionDenied,
        _ALLOW,
    ),
    (
        "No permissions",
        PermissionDenied,
        _ALLOW,
    ),
    (
        "can't run this command",
        PermissionDenied,
        _ALLOW,
    ),
    ("READONLY", ReadOnlyReplica, _PRIMARY),
    ("read only replica", ReadOnlyReplica, _PRIMARY),
    ("OOM", OutOfMemory, _MEMORY),
    ("maxmemory", OutOfMemory, _MEMORY),
    ("MISCONF", RedisRefused, "Redis cannot write its snapshot: look at the server's log"),
    ("NOREPLICAS", RedisRefused, "min-replicas-to-write is not met: look at the replicas"),
    ("LOADING", RedisUnavailable, _LOADING),
    ("MASTERDOWN", RedisUnavailable, "the replica lost its primary: wait, or look at it"),
    ("CLUSTERDOWN", RedisUnavailable, "the cluster does not cover all slots: look at its nodes"),
    ("TRYAGAIN", RedisUnavailable, "slots are moving: wait"),
    ("BUSY", RedisUnavailable, "a script of somebody's blocks Redis: SCRIPT KILL ends it"),
)

_CLASSES: Final[dict[str, tuple[type[StoreError], str]]] = {
    "AuthenticationError": (PermissionDenied, _PASSWORD),
    "AuthorizationError": (PermissionDenied, _PASSWORD),
    "NoPermissionError": (
        PermissionDenied,
        _ALLOW,
    ),
    "ReadOnlyError": (ReadOnlyReplica, _PRIMARY),
    "MovedError": (RedisRefused, _CLUSTER),
    "OutOfMemoryError": (OutOfMemory, _MEMORY),
    "BusyLoadingError": (RedisUnavailable, _LOADING),
    "TimeoutError": (RedisUnavailable, "Redis did not answer in time"),
    "ConnectionError": (RedisUnavailable, _ADDRESS),
    "ClusterError": (RedisUnavailable, "look at the cluster's nodes"),
    "RedisClusterException": (RedisUnavailable, "look at the cluster's nodes"),
    "OSError": (RedisUnavailable, _ADDRESS),
}


def translate(error: Exception, doing: str) -> StoreError:
    """This package's error for a client's; raise it ``from`` the client's.

    Args:
        doing: what was being done, for the text: ``"heartbeat of ring 'accounts'"``.
    """
    names = [base.__name__ for base in type(error).__mro__]
    text = str(error).rstrip(". ") or type(error).__name__
    if names[0] == "MovedError":
        text = f"MOVED {text}"
    # A refusal at connecting (a password) is an AuthenticationError that is a ConnectionError
    # too, so texts and the nearer classes go before the farther ones.
    for code, kind, remedy in _CODES:
        if code in text:
            return kind(f"{doing}: {text}; {remedy}")
    for name in names:
        if name in _CLASSES:
            kind, remedy = _CLASSES[name]
            return kind(f"{doing}: {text}; {remedy}")
    return RedisRefused(f"{doing}: {type(error).__name__}: {text}")
