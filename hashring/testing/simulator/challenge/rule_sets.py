"""The rules that are checked in a history of a lease challenge, and of the faithful one."""

from __future__ import annotations

from hashring.core.groups.lease_challenge import LeaseChallengeRules
from hashring.protocol.group.base_member_machine import ENDED
from hashring.testing.simulator.challenge.faithful_rules import FaithfulService
from hashring.testing.simulator.challenge.history import ChallengeHistory
from hashring.testing.simulator.challenge.lease_rules import (
    ChallengeDeadline,
    ChallengeGoodbye,
    ChallengeHolder,
    ChallengeLevel,
    ChallengeNobody,
    ChallengeRenewal,
    ChallengeTokens,
)
from hashring.testing.simulator.challenge.world import ChallengeRule
from hashring.testing.simulator.rules import Hears, Stops


def challenge_rules(history: ChallengeHistory) -> list[ChallengeRule]:
    """A fresh instance of each rule that the history must keep."""
    if not isinstance(history.terms, LeaseChallengeRules):
        return [FaithfulService(), Hears()]
    most = history.terms.max_handoff_time + history.terms.ttl
    return [
        ChallengeHolder(),
        ChallengeRenewal(),
        ChallengeDeadline(),
        ChallengeTokens(),
        ChallengeGoodbye(),
        Stops(most, lambda process: process.machine.stage in ENDED),
        ChallengeNobody(history.terms),
        ChallengeLevel(),
        Hears(),
    ]
