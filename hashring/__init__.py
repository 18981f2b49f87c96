"""Split a moving set of keys over a fleet of Python processes with nothing but Redis."""

from hashring._version import __version__
from hashring.core.assignors import (
    Assignor,
    Balanced,
    Contiguous,
    Learner,
    Member,
    MemberState,
    RingOwner,
    Situation,
    Target,
)
from hashring.core.groups.challenge import Rules, Spans
from hashring.core.groups.foresight import Foresight, GroupStatus
from hashring.core.groups.member import Change, ChangeKind
from hashring.core.groups.state import Phase
from hashring.core.hashing import RING_SIZE, HashAlgorithm
from hashring.core.replica import Replica
from hashring.core.ring import Move, Range, Ring
from hashring.errors import (
    AssignorError,
    ConfigError,
    EmptyRingError,
    GroupFormatError,
    GroupMismatch,
    HashringError,
    HoldTimeout,
    KeyTypeError,
    KeyValueError,
    LeaseLost,
    MemberExists,
    MemberForked,
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
    UnknownMemberError,
    UnknownNodeError,
    WrongKeyType,
)
from hashring.groups.aio import AsyncPartitionGroup
from hashring.groups.challenge import async_lease_challenge, lease_challenge
from hashring.groups.live import PartitionGroup
from hashring.node.aio import AsyncRingNode
from hashring.node.live import RingNode
from hashring.node.locks import Lease
from hashring.node.machine import NodeState
from hashring.node.status import NodeStatus

__all__ = [
    "RING_SIZE",
    "Assignor",
    "AssignorError",
    "AsyncPartitionGroup",
    "AsyncRingNode",
    "Balanced",
    "Change",
    "ChangeKind",
    "ConfigError",
    "Contiguous",
    "EmptyRingError",
    "Foresight",
    "GroupFormatError",
    "GroupMismatch",
    "GroupStatus",
    "HashAlgorithm",
    "HashringError",
    "HoldTimeout",
    "KeyTypeError",
    "KeyValueError",
    "Learner",
    "Lease",
    "LeaseLost",
    "Member",
    "MemberExists",
    "MemberForked",
    "MemberState",
    "MissingDependencyError",
    "Move",
    "NodeForked",
    "NodeState",
    "NodeStateError",
    "NodeStatus",
    "NodeSuperseded",
    "NotHeld",
    "OutOfMemory",
    "PartitionGroup",
    "PermissionDenied",
    "Phase",
    "Range",
    "ReadOnlyReplica",
    "RedisRefused",
    "RedisUnavailable",
    "Replica",
    "Ring",
    "RingNode",
    "RingOwner",
    "Rules",
    "Situation",
    "Spans",
    "StaleToken",
    "StoreError",
    "Target",
    "UnknownMemberError",
    "UnknownNodeError",
    "WrongKeyType",
    "__version__",
    "async_lease_challenge",
    "lease_challenge",
]
