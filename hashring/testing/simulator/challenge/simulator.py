"""The engine for the lease challenge, and beside it for the faithful one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hashring.core.groups.lease_challenge import LeaseChallengeRules
from hashring.protocol.group.faithful_challenge_machine import FaithfulChallengeMachine
from hashring.protocol.group.lease_challenge_machine import LeaseChallengeMachine
from hashring.store.memory_store import MemoryServer
from hashring.testing.simulator.challenge.faithful_rules import faithful_patience
from hashring.testing.simulator.challenge.fault_effects import CHALLENGE_FAULTS
from hashring.testing.simulator.challenge.history import ChallengeHistory
from hashring.testing.simulator.challenge.lease_rules import patience, uneven
from hashring.testing.simulator.challenge.rule_sets import challenge_rules
from hashring.testing.simulator.challenge.world import ChallengeRule, ChallengeWorld
from hashring.testing.simulator.play import Simulator
from hashring.testing.simulator.random_events import has_returns, is_rare


@dataclass(frozen=True)
class ChallengeSimulator(Simulator[ChallengeHistory, ChallengeWorld]):
    """Plays histories of lease challenges.

    Attributes:
        table, faithful: make a member's protocol, of the lease challenge and of the faithful one. A
            test plants faults here.
        server: makes the server in memory, from its clock. Here as well.
        rules: makes a fresh set of rules for a history.
    """

    table: Callable[..., LeaseChallengeMachine] = LeaseChallengeMachine
    faithful: Callable[..., FaithfulChallengeMachine] = FaithfulChallengeMachine
    server: Callable[[Callable[[], float]], MemoryServer] = MemoryServer
    rules: Callable[[ChallengeHistory], Sequence[ChallengeRule]] = challenge_rules

    def world(self, history: ChallengeHistory, *, story: bool = False) -> ChallengeWorld:
        """A run of a history that is about to begin."""
        return ChallengeWorld(
            history,
            self.rules(history),
            CHALLENGE_FAULTS,
            self.table,
            self.faithful,
            server=self.server,
            story=story,
        )

    def patience(self, history: ChallengeHistory) -> tuple[float, float]:
        """Seconds to become level, and seconds to stay so."""
        if isinstance(history.terms, LeaseChallengeRules):
            return patience(history, history.terms)
        return faithful_patience(history, history.terms)

    def recover(self, world: ChallengeWorld, until: float) -> None:
        """Let time pass until the members have been level for a lease's length."""
        terms = world.history.terms
        if not isinstance(terms, LeaseChallengeRules):
            world.run(until)
            return
        world.run(max(world.now, world.late_until))
        level = world.now
        while world.now < min(until, level + 2 * terms.ttl):
            world.run(min(until, world.now + terms.interval))
            if uneven(world):
                level = world.now

    def again(self, history: ChallengeHistory) -> str:
        """The command line's options that play the history."""
        returns = "--returns " * has_returns(history)
        returns += "--set-back " * (history.set_back > 0)
        return "--challenge " + returns + "--rare " * is_rare(history)
