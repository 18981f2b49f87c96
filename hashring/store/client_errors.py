"""From a Redis client's exception to this package's.

redis-py and valkey-py have trees of their own with the same names, and a server reports some
refusals only in the text of a ``ResponseError``: so classes are known by name, texts by code.
Texts differ among servers: ``tests/contract/test_refusals.py`` provokes each on every server.
"""

from __future__ import annotations

import re
from typing import Final

from hashring.errors import (
    OutOfMemory,
    PermissionDenied,
    ReadOnlyReplica,
    RedisRefused,
    RedisUnavailable,
    StoreError,
    WritesPaused,
    WrongKeyType,
    WrongServer,
)

_PASSWORD: Final = "check the user and the password in the URL"
_NO_PASSWORD: Final = "give the password in the URL: redis://user:password@host"
_PRIMARY: Final = "connect to the primary (or through Sentinel)"
_MASTER_DOWN: Final = "the replica lost its primary: wait, or look at it"
_ADDRESS: Final = "check host, port and that Redis runs"
_CLUSTER: Final = (
    "this server is one of a Redis Cluster, and the ring is on another: use a client of the "
    "cluster (RedisCluster)"
)
_CLUSTER_DOWN: Final = "the cluster does not cover all slots: look at its nodes"
_MOVING: Final = "slots are moving: wait"
_LOADING: Final = "Redis is loading its data: wait"
_MEMORY: Final = "raise maxmemory, or free memory"
_ALLOW: Final = (
    "let the user run the ring's commands on its keys and channel "
    "(documentation: reference/redis-layout)"
)
_RENAMED: Final = "restore the command (rename-command); hashring doctor names those missing"

# What a server puts around an error inside a script: Redis 6.2 before it, later servers behind it.
_BEFORE: Final = re.compile(r"^Error running script \(call to \w+\): (?:@user_script: ?\d+: )*-?")
_BEHIND: Final = re.compile(r"\.? script: \w+, on @user_script:\d+$")

# First words of what the server wrote.
_CODES: Final[dict[str, tuple[type[StoreError], str]]] = {
    "WRONGTYPE": (WrongKeyType, "choose another ring name, or remove the key that is in the way"),
    "NOAUTH": (PermissionDenied, _NO_PASSWORD),
    "WRONGPASS": (PermissionDenied, _PASSWORD),
    "NOPERM": (PermissionDenied, _ALLOW),
    "READONLY": (ReadOnlyReplica, _PRIMARY),
    "OOM": (OutOfMemory, _MEMORY),
    "MISCONF": (WritesPaused, "Redis cannot write its snapshot: look at the server's log"),
    "NOREPLICAS": (WritesPaused, "min-replicas-to-write is not met: look at the replicas"),
    "LOADING": (RedisUnavailable, _LOADING),
    "MASTERDOWN": (RedisUnavailable, _MASTER_DOWN),
    "CLUSTERDOWN": (RedisUnavailable, _CLUSTER_DOWN),
    "TRYAGAIN": (RedisUnavailable, _MOVING),
    "ASK": (RedisUnavailable, _MOVING),
    "MOVED": (WrongServer, _CLUSTER),
    "BUSY": (RedisUnavailable, "another script blocks Redis: SCRIPT KILL ends it"),
}

# Parts of texts without a code. A client may put words of its own around them.
_PHRASES: Final[tuple[tuple[str, type[StoreError], str], ...]] = (
    ("must be called with the client already authenticated", PermissionDenied, _NO_PASSWORD),
    ("Authentication required", PermissionDenied, _NO_PASSWORD),
    ("invalid password", PermissionDenied, _PASSWORD),
    ("invalid username-password", PermissionDenied, _PASSWORD),
    # Inside a script: Redis up to 7.0, then later servers.
    ("The user executing the script can't", PermissionDenied, _ALLOW),
    ("ACL failure in script", PermissionDenied, _ALLOW),
    ("Unknown Redis command called from", RedisRefused, _RENAMED),
    ("Unknown command called from", RedisRefused, _RENAMED),
    ("max number of clients reached", RedisUnavailable, "raise maxclients, or use fewer clients"),
)

# Clients take these codes off the text, and make a class of them.
_TAKEN_OFF: Final = {
    "NoPermissionError": "NOPERM",
    "ReadOnlyError": "READONLY",
    "AskError": "ASK",
    "MovedError": "MOVED",
    "OutOfMemoryError": "OOM",
    "BusyLoadingError": "LOADING",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN",
}

_CLASSES: Final[dict[str, tuple[type[StoreError], str]]] = {
    "AuthenticationError": (PermissionDenied, _PASSWORD),
    "AuthorizationError": (PermissionDenied, _PASSWORD),
    "TimeoutError": (RedisUnavailable, "Redis did not answer in time"),
    "ConnectionError": (RedisUnavailable, _ADDRESS),
    "ClusterError": (RedisUnavailable, "look at the cluster's nodes"),
    "RedisClusterException": (RedisUnavailable, "look at the cluster's nodes"),
    "OSError": (RedisUnavailable, _ADDRESS),
}


def translate(error: Exception, doing: str) -> StoreError:
    """This package's error for a client's; raise it ``from`` the client's.

    Its text is the same for an error inside a script and outside.

    Args:
        doing: what was being done, for the text: ``"heartbeat of ring 'accounts'"``.
    """
    names = [base.__name__ for base in type(error).__mro__]
    text = _bare(str(error)) or type(error).__name__
    if names[0] in _TAKEN_OFF:
        text = f"{_TAKEN_OFF[names[0]]} {text}"
    kind, remedy = _judged(names, text)
    if kind is None:
        return RedisRefused(f"{doing}: {type(error).__name__}: {text}")
    return kind(f"{doing}: {text}; {remedy}")


def _judged(names: list[str], text: str) -> tuple[type[StoreError] | None, str]:
    # A refusal at connecting (a password) is an AuthenticationError that is a ConnectionError
    # too, so texts and the nearer classes go before the farther ones.
    code = text.partition(" ")[0]
    if code in _CODES:
        return _CODES[code]
    for phrase, kind, remedy in _PHRASES:
        if phrase in text:
            return kind, remedy
    for name in names:
        if name in _CLASSES:
            return _CLASSES[name]
    return None, ""


def _bare(text: str) -> str:
    text = _BEFORE.sub("", text.rstrip(". "))
    return _BEHIND.sub("", text).rstrip(". ")
