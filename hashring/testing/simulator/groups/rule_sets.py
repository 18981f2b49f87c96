"""The rules that are checked in a history of a partition group."""

from __future__ import annotations

from hashring.testing.simulator.groups.at_rest_rules import GroupRest
from hashring.testing.simulator.groups.decision_rules import (
    AsBefore,
    DecisionRules,
    Decisions,
    Drained,
    Needed,
    PartitionTokens,
    StandbysFirst,
    Steady,
    TimeToLetGo,
)
from hashring.testing.simulator.groups.member_rules import (
    MemberRenewal,
    MemberReports,
    Once,
    PartitionHolder,
    Prompt,
)
from hashring.testing.simulator.groups.stop_rules import MemberGoodbye
from hashring.testing.simulator.groups.world import GroupRule
from hashring.testing.simulator.rules import Hears


def group_rules() -> list[GroupRule]:
    """A fresh instance of each rule."""
    return [
        PartitionHolder(),
        MemberRenewal(),
        Once(),
        Prompt(),
        MemberGoodbye(),
        DecisionRules(
            Decisions(),
            PartitionTokens(),
            StandbysFirst(),
            Needed(),
            AsBefore(),
            Drained(),
            TimeToLetGo(),
            Steady(),
        ),
        MemberReports(),
        GroupRest(),
        Hears(),
    ]
