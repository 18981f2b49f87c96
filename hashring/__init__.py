"""Split a moving set of keys over a fleet of Python processes with nothing but Redis."""

from hashring._version import __version__
from hashring.core.hashing import RING_SIZE, HashAlgorithm
from hashring.core.replica import Replica
from hashring.core.ring import Move, Range, Ring
from hashring.errors import (
    ConfigError,
    EmptyRingError,
    HashringError,
    HoldTimeout,
    KeyTypeError,
    KeyValueError,
    LeaseLost,
    MissingDependencyError,
    NodeForked,
    NodeStateError,
    NodeSuperseded,
    NotHeld,
    OutOfMemory,
    PermissionDenied,
    ReadOnlyReplica,
    RedisRefused,
    RedisUnavailable,
    StaleToken,
    StoreError,
    UnknownNodeError,
    WrongKeyType,
)
from hashring.node.aio import AsyncRingNode
from hashring.node.live import RingNode
from hashring.node.locks import Lease
from hashring.node.machine import NodeState
from hashring.node.status import NodeStatus

__all__ = [
    "RING_SIZE",
    "AsyncRingNode",
    "ConfigError",
    "EmptyRingError",
    "HashAlgorithm",
    "HashringError",
    "HoldTimeout",
    "KeyTypeError",
    "KeyValueError",
    "Lease",
    "LeaseLost",
    "MissingDependencyError",
    "Move",
    "NodeForked",
    "NodeState",
    "NodeStateError",
    "NodeStatus",
    "NodeSuperseded",
    "NotHeld",
    "OutOfMemory",
    "PermissionDenied",
    "Range",
    "ReadOnlyReplica",
    "RedisRefused",
    "RedisUnavailable",
    "Replica",
    "Ring",
    "RingNode",
    "StaleToken",
    "StoreError",
    "UnknownNodeError",
    "WrongKeyType",
    "__version__",
]
