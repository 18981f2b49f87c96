"""Rules for who should own which partition. One file each; see :mod:`.target_assignment`."""

from __future__ import annotations

from hashring.core.assignors.assignors_by_name import ASSIGNORS, as_assignor, assignor_named
from hashring.core.assignors.balanced import BalancedAssignor
from hashring.core.assignors.contiguous import ContiguousAssignor
from hashring.core.assignors.learner import LearnerAssignor
from hashring.core.assignors.load import LoadAssignor
from hashring.core.assignors.ring import RingAssignor
from hashring.core.assignors.situation import GroupMember, GroupSituation, MemberState, Owners
from hashring.core.assignors.target_assignment import (
    AssignFunction,
    Assignor,
    FunctionAssignor,
    TargetAssignment,
    checked_target,
)

__all__ = [
    "ASSIGNORS",
    "AssignFunction",
    "Assignor",
    "BalancedAssignor",
    "ContiguousAssignor",
    "FunctionAssignor",
    "GroupMember",
    "GroupSituation",
    "LearnerAssignor",
    "LoadAssignor",
    "MemberState",
    "Owners",
    "RingAssignor",
    "TargetAssignment",
    "as_assignor",
    "assignor_named",
    "checked_target",
]
