"""Split a moving set of keys over a fleet of Python processes with Redis alone.

What is public is imported when it is first asked for: a program that uses the ring alone loads no
groups, and ``hashring --help`` no Redis client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from hashring._version import __version__

if TYPE_CHECKING:
    from hashring.core.assignors import (
        Assignor,
        BalancedAssignor,
        ContiguousAssignor,
        GroupMember,
        GroupSituation,
        LearnerAssignor,
        LoadAssignor,
        MemberState,
        RingAssignor,
        TargetAssignment,
    )
    from hashring.core.groups.group_foresight import GroupForesight
    from hashring.core.groups.group_status import GroupStatus
    from hashring.core.groups.lease_challenge import LeaseChallengeRules
    from hashring.core.groups.partition_change import PartitionChange, PartitionChangeKind
    from hashring.core.groups.state import GroupPhase
    from hashring.core.hashing import RING_SIZE, HashAlgorithm
    from hashring.core.ranges import PointRange, RangeMove
    from hashring.core.replica import Replica
    from hashring.core.ring import Ring
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
        NoDataError,
        NodeForked,
        NodeStateError,
        NodeSuperseded,
        NotHeld,
        OutOfMemory,
        OutputExists,
        OutputRefused,
        PermissionDenied,
        ReadOnlyReplica,
        RedisRefused,
        RedisUnavailable,
        RetryLater,
        RingFileError,
        StaleToken,
        StoreError,
        UnknownMemberError,
        UnknownNodeError,
        WriteConflict,
        WritesPaused,
        WrongKeyType,
        WrongServer,
    )
    from hashring.groups.async_partition_group import AsyncPartitionGroup
    from hashring.groups.lease_challenge import async_lease_challenge, lease_challenge
    from hashring.groups.partition_group import PartitionGroup
    from hashring.node.async_ring_node import AsyncRingNode
    from hashring.node.ring_node import RingNode
    from hashring.node.status import NodeStatus
    from hashring.protocol.locks.key_lease import KeyLease
    from hashring.protocol.node.node_states import NodeState

__all__ = [
    "RING_SIZE",
    "Assignor",
    "AssignorError",
    "AsyncPartitionGroup",
    "AsyncRingNode",
    "BalancedAssignor",
    "ConfigError",
    "ContiguousAssignor",
    "EmptyRingError",
    "GroupForesight",
    "GroupFormatError",
    "GroupMember",
    "GroupMismatch",
    "GroupPhase",
    "GroupSituation",
    "GroupStatus",
    "HashAlgorithm",
    "HashringError",
    "HoldTimeout",
    "KeyLease",
    "KeyTypeError",
    "KeyValueError",
    "LearnerAssignor",
    "LeaseChallengeRules",
    "LeaseLost",
    "LoadAssignor",
    "MemberExists",
    "MemberForked",
    "MemberState",
    "MissingDependencyError",
    "NoDataError",
    "NodeForked",
    "NodeState",
    "NodeStateError",
    "NodeStatus",
    "NodeSuperseded",
    "NotHeld",
    "OutOfMemory",
    "OutputExists",
    "OutputRefused",
    "PartitionChange",
    "PartitionChangeKind",
    "PartitionGroup",
    "PermissionDenied",
    "PointRange",
    "RangeMove",
    "ReadOnlyReplica",
    "RedisRefused",
    "RedisUnavailable",
    "Replica",
    "RetryLater",
    "Ring",
    "RingAssignor",
    "RingFileError",
    "RingNode",
    "StaleToken",
    "StoreError",
    "TargetAssignment",
    "UnknownMemberError",
    "UnknownNodeError",
    "WriteConflict",
    "WritesPaused",
    "WrongKeyType",
    "WrongServer",
    "__version__",
    "async_lease_challenge",
    "lease_challenge",
]

_HOMES: Final = dict.fromkeys(__all__, "hashring.errors") | {
    "Assignor": "hashring.core.assignors",
    "AsyncPartitionGroup": "hashring.groups.async_partition_group",
    "AsyncRingNode": "hashring.node.async_ring_node",
    "BalancedAssignor": "hashring.core.assignors",
    "ContiguousAssignor": "hashring.core.assignors",
    "GroupForesight": "hashring.core.groups.group_foresight",
    "GroupMember": "hashring.core.assignors",
    "GroupPhase": "hashring.core.groups.state",
    "GroupSituation": "hashring.core.assignors",
    "GroupStatus": "hashring.core.groups.group_status",
    "HashAlgorithm": "hashring.core.hashing",
    "KeyLease": "hashring.protocol.locks.key_lease",
    "LearnerAssignor": "hashring.core.assignors",
    "LeaseChallengeRules": "hashring.core.groups.lease_challenge",
    "LoadAssignor": "hashring.core.assignors",
    "MemberState": "hashring.core.assignors",
    "NodeState": "hashring.protocol.node.node_states",
    "NodeStatus": "hashring.node.status",
    "PartitionChange": "hashring.core.groups.partition_change",
    "PartitionChangeKind": "hashring.core.groups.partition_change",
    "PartitionGroup": "hashring.groups.partition_group",
    "PointRange": "hashring.core.ranges",
    "RING_SIZE": "hashring.core.hashing",
    "RangeMove": "hashring.core.ranges",
    "Replica": "hashring.core.replica",
    "Ring": "hashring.core.ring",
    "RingAssignor": "hashring.core.assignors",
    "RingNode": "hashring.node.ring_node",
    "TargetAssignment": "hashring.core.assignors",
    "async_lease_challenge": "hashring.groups.lease_challenge",
    "lease_challenge": "hashring.groups.lease_challenge",
}
"""The module of each public name: of the errors, unless another is named here."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
