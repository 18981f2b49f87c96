"""The error and the remedy for each refusal of a Redis server or its client.

Texts differ among servers: ``tests/contract/test_refusals.py`` provokes each on every server.
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
    WritesPaused,
    WrongKeyType,
    WrongServer,
)

_PASSWORD: Final = "check the user and the password in the URL"
_NO_PASSWORD: Final = "give the password in the URL: redis://user:password@host"
_PRIMARY: Final = "connect to the primary (or through Sentinel)"
_MASTER_DOWN: Final = "the replica lost its primary: wait, or look at it"
_ADDRESS: Final = "check host, port and that Redis runs"
_DATABASE: Final = "name a database that the server has: 0, if it is one of a Redis Cluster"
_CERTIFICATE: Final = (
    "name the file of the authority (ssl_ca_certs), and a host that the certificate is for"
)
_OWN_CERTIFICATE: Final = (
    "the server asks its clients for a certificate: name the files of yours (ssl_certfile, "
    "ssl_keyfile)"
)
_REFUSED_CERTIFICATE: Final = (
    "the server does not accept your certificate (ssl_certfile): check its authority and its dates"
)
_FILES: Final = (
    "check what is in the files for TLS: ssl_ca_certs has certificates of authorities, "
    "ssl_certfile your certificate, ssl_keyfile its key"
)
_NO_REDIS: Final = "check host and port: no Redis or Valkey server answers there"
_CLUSTER: Final = (
    "this server is one of a Redis Cluster, and the ring is on another: use a client of the "
    "cluster (RedisCluster)"
)
_CLUSTER_DOWN: Final = "the cluster does not cover all slots: look at its nodes"
_MOVING: Final = "slots are moving: wait"
_LOADING: Final = "Redis is loading its data: wait"
_MEMORY: Final = "raise maxmemory, or free memory"
_ALLOW: Final = (
    "give the user the rights of a node, of a reader or of an operator "
    "(documentation: reference/redis-layout)"
)
_RENAMED: Final = "restore the command (rename-command); hashring doctor names those missing"
_UNKNOWN: Final = (
    "if this is the port of a Sentinel, give the primary's; else restore the command "
    "(rename-command)"
)
_NO_SENTINEL: Final = (
    "no Sentinel answers that knows it: check the addresses of the Sentinels, and the name"
)
_HUNG_UP: Final = "the server ended the connection: check that it runs, and its maxclients"
_CANCELLED: Final = (
    "look at what your client awaits when it connects, such as its credential provider"
)
_POOL: Final = "all connections of your client are in use: raise its max_connections"

ENDED: Final = (
    "reset by peer",
    "Connection closed by server",
    "Broken pipe",
    "EOF occurred",
    "Connection lost",
)
"""What a client's error says when the server has ended the connection.

A server with too many clients says so and hangs up. A client that still writes then fails with one
of these, and has not read why.
"""

TLS_FILES: Final = ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_OR_CRL_FOUND", "PEM lib")
"""What a client's error says when it cannot use its files for TLS; it has not connected then."""

# First words of what the server wrote.
_CODES: Final[dict[str, tuple[type[StoreError], str]]] = {
    "WRONGTYPE": (WrongKeyType, "choose another name, or remove the key that is in the way"),
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
    # To a command of more than ten words.
    ("unauthenticated multibulk length", PermissionDenied, _NO_PASSWORD),
    ("unauthenticated bulk length", PermissionDenied, _NO_PASSWORD),
    ("invalid password", PermissionDenied, _PASSWORD),
    ("invalid username-password", PermissionDenied, _PASSWORD),
    # Inside a script: Redis up to 7.0, then later servers.
    ("The user executing the script can't", PermissionDenied, _ALLOW),
    ("ACL failure in script", PermissionDenied, _ALLOW),
    ("Unknown Redis command called from", RedisRefused, _RENAMED),
    ("Unknown command called from", RedisRefused, _RENAMED),
    ("unknown command", RedisRefused, _UNKNOWN),
    ("DB index is out of range", RedisRefused, _DATABASE),
    ("SELECT is not allowed in cluster mode", RedisRefused, _DATABASE),
    ("CERTIFICATE_VERIFY_FAILED", RedisUnavailable, _CERTIFICATE),
    ("CERTIFICATE_REQUIRED", RedisUnavailable, _OWN_CERTIFICATE),
    ("ALERT_UNKNOWN_CA", RedisUnavailable, _REFUSED_CERTIFICATE),
    ("ALERT_BAD_CERTIFICATE", RedisUnavailable, _REFUSED_CERTIFICATE),
    ("ALERT_CERTIFICATE_EXPIRED", RedisUnavailable, _REFUSED_CERTIFICATE),
    *((words, RedisUnavailable, _FILES) for words in TLS_FILES),
    # A client of a cluster was sent from server to server until it gave up.
    ("TTL exhausted", RedisUnavailable, _MOVING),
    ("the credential provider failed", RedisUnavailable, "look at the service that it asks"),
    ("_connect_func failed", RedisUnavailable, "look at what your client calls once connected"),
    ("cancelled, and not by its caller", RedisUnavailable, _CANCELLED),
    ("Too many connections", RedisUnavailable, _POOL),
    ("No connection available", RedisUnavailable, _POOL),
    # Of uvloop.
    ("the handler is closed", RedisUnavailable, _ADDRESS),
    ("max number of clients reached", RedisUnavailable, "raise maxclients, or use fewer clients"),
    ("No master found for", RedisUnavailable, _NO_SENTINEL),
    ("No slave found for", RedisUnavailable, _NO_SENTINEL),
    *((words, RedisUnavailable, _HUNG_UP) for words in ENDED),
)

_CLASSES: Final[dict[str, tuple[type[StoreError], str]]] = {
    "AuthenticationError": (PermissionDenied, _PASSWORD),
    "AuthorizationError": (PermissionDenied, _PASSWORD),
    # Of an asyncio client of a cluster, without any text.
    "MaxConnectionsError": (RedisUnavailable, _POOL),
    "TimeoutError": (RedisUnavailable, "Redis did not answer in time"),
    "ConnectionError": (RedisUnavailable, _ADDRESS),
    "InvalidResponse": (RedisRefused, _NO_REDIS),
    "ClusterError": (RedisUnavailable, "look at the cluster's nodes"),
    "RedisClusterException": (RedisUnavailable, "look at the cluster's nodes"),
    "ValkeyClusterException": (RedisUnavailable, "look at the cluster's nodes"),
    "OSError": (RedisUnavailable, _ADDRESS),
}


def error_and_remedy(names: list[str], text: str) -> tuple[type[StoreError] | None, str]:
    """The class of this package's error for a client's, and what to do.

    Args:
        names: of the client error's class and its bases, nearest first.
        text: its text, with the server's code at its beginning.

    Returns:
        ``None`` and no remedy, if nothing is known of such an error.
    """
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
