"""A lease challenge in virtual time: its processes, and a Redis in memory.

A faithful challenge is played in the same world, so that the two can be measured side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hashring.core.groups.lease_challenge import LeaseChallengeRules, LeaseTable
from hashring.errors import RedisUnavailable
from hashring.protocol.group.faithful_challenge_machine import FaithfulChallengeMachine
from hashring.protocol.group.lease_challenge_machine import LeaseChallengeMachine
from hashring.store.lease_challenge.commands import TableReading, challenge_keys, read_table
from hashring.store.memory_store import MemoryServer
from hashring.testing.simulator.challenge.history import ChallengeHistory, ChallengerSpec
from hashring.testing.simulator.challenge.process import ChallengeProcess
from hashring.testing.simulator.rules import Rule
from hashring.testing.simulator.virtual_time import NEVER
from hashring.testing.simulator.world import Fault, World


@dataclass
class Measured:
    """What an observer of all members measured, since :attr:`since`.

    Attributes:
        since: true time.
        moves: how often a partition began to be worked on by another member than before.
        unowned: seconds that partitions were worked on by nobody, added up.
        doubled: seconds that partitions were worked on by more than one, added up.
    """

    since: float = 0.0
    moves: int = 0
    unowned: float = 0.0
    doubled: float = 0.0


class ChallengeWorld(World[ChallengeProcess]):
    """A lease challenge in virtual time; see :class:`hashring.testing.simulator.world.World`.

    Args:
        table, faithful: make a member's protocol, of the lease challenge and of the faithful one;
            a test plants its faults here.
    """

    history: ChallengeHistory

    def __init__(
        self,
        history: ChallengeHistory,
        rules: Sequence[ChallengeRule],
        faults: dict[str, Fault],
        table: Callable[..., LeaseChallengeMachine] = LeaseChallengeMachine,
        faithful: Callable[..., FaithfulChallengeMachine] = FaithfulChallengeMachine,
        *,
        server: Callable[[Callable[[], float]], MemoryServer] = MemoryServer,
        story: bool = False,
    ) -> None:
        terms = history.terms
        self.io_timeout = (
            terms.ttl if isinstance(terms, LeaseChallengeRules) else terms.max_lease
        ) / 3
        self.measured = Measured()
        self._workers: list[set[str]] = [set() for _ in range(history.partitions)]
        self._has: dict[str, set[int]] = {}
        self._last: dict[int, str] = {}
        self._at = 0.0
        self._table = table
        self._faithful = faithful
        super().__init__(history, rules, faults, server, story=story)

    def make(self, spec: ChallengerSpec) -> ChallengeProcess:
        """A member's process."""
        return ChallengeProcess(self, spec, self._table, self._faithful)

    def start(self, label: str) -> None:
        """Start a process, once members may come."""
        if self.now < self.open_at:
            self.late_until = max(self.late_until, self.open_at)
            self.at(self.open_at, lambda: self.start(label))
        else:
            super().start(label)

    @property
    def open_at(self) -> float:
        """When members may come that do not know of the last loss of data.

        Such a process cannot know that others are about to return: exclusion is not promised then.
        The faithful challenge promises none at all.
        """
        terms = self.history.terms
        return (
            self.lost_at + 2 * terms.ttl + 1e-6 if isinstance(terms, LeaseChallengeRules) else NEVER
        )

    def may_lose(self) -> bool:
        """Whether Redis may lose its data now: not while a member enters that cannot notice it."""
        return self.history.faithful or not any(p.unaware for p in self.processes.values())

    def read(self) -> TableReading:
        """What a member would read of the table now."""
        return self.server.run(read_table(challenge_keys("work")))

    def table(self) -> LeaseTable:
        """The table as it is now; one without members if there is none."""
        return self.read().table or LeaseTable(self.history.partitions)

    def counts(self) -> dict[str, int]:
        """How many partitions each process works on."""
        return {process.spec.label: len(process.held()) for process in self.alive}

    # --- the measure --------------------------------------------------------------------------

    def measure(self, process: ChallengeProcess) -> None:
        """What a process works on may have changed."""
        label, held = process.spec.label, set(process.held())
        had = self._has.get(label, set())
        if held == had:
            return
        self.measure_time()
        self._has[label] = held
        for partition in had - held:
            self._workers[partition].discard(label)
        for partition in held - had:
            self._workers[partition].add(label)
            self.measured.moves += self._last.get(partition, label) != label
            self._last[partition] = label

    def measure_time(self) -> None:
        """Add up to now for how long partitions had no member, or several."""
        seconds, self._at = self.now - self._at, self.now
        self.measured.unowned += seconds * sum(not workers for workers in self._workers)
        self.measured.doubled += seconds * sum(len(workers) > 1 for workers in self._workers)

    def measure_anew(self) -> None:
        """Measure from here."""
        self.measure_time()
        self.measured = Measured(self.now)

    def summary(self, reply: Any) -> str:
        """An answer of Redis' for the story."""
        return "failed" if isinstance(reply, RedisUnavailable) else str(reply)[:100]


ChallengeRule = Rule[ChallengeWorld, ChallengeProcess]
