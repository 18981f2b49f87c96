"""The lease challenge in virtual time, in either mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hashring.core.groups.lease_table import LeaseTableRules
from hashring.protocol.lease_race_machine import FaithfulMachine
from hashring.protocol.lease_table_machine import FixedMachine
from hashring.store.memory_store import MemoryServer
from hashring.testing.simulator.challenge.fault_effects import CHALLENGE_FAULTS
from hashring.testing.simulator.challenge.history import ChallengeHistory
from hashring.testing.simulator.challenge.rules import challenge_rules, patience, uneven
from hashring.testing.simulator.challenge.world import ChallengeRule, ChallengeWorld
from hashring.testing.simulator.play import Simulator
from hashring.testing.simulator.random_events import has_returns, is_rare


@dataclass(frozen=True)
class ChallengeSimulator(Simulator[ChallengeHistory, ChallengeWorld]):
    """Plays histories of lease challenges.

    Attributes:
        fixed, faithful: make a member's protocol. A test plants faults here.
        server: makes the server in memory, from its clock. Here as well.
        rules: makes a fresh set of rules for a history.
    """

    fixed: Callable[..., FixedMachine] = FixedMachine
    faithful: Callable[..., FaithfulMachine] = FaithfulMachine
    server: Callable[[Callable[[], float]], MemoryServer] = MemoryServer
    rules: Callable[[ChallengeHistory], Sequence[ChallengeRule]] = challenge_rules

    def world(self, history: ChallengeHistory, *, story: bool = False) -> ChallengeWorld:
        """A run of a history that is about to begin."""
        return ChallengeWorld(
            history,
            self.rules(history),
            CHALLENGE_FAULTS,
            self.fixed,
            self.faithful,
            server=self.server,
            story=story,
        )

    def patience(self, history: ChallengeHistory) -> tuple[float, float]:
        """Seconds to become level, and seconds to stay so."""
        return patience(history)

    def recover(self, world: ChallengeWorld, until: float) -> None:
        """Let time pass until the members have been level for a lease's length."""
        terms = world.history.terms
        if not isinstance(terms, LeaseTableRules):
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
        return "--challenge " + returns + "--rare " * is_rare(history)
