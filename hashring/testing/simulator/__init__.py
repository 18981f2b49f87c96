"""A simulator of the ring: random histories of faults in virtual time, and what must hold in them.

::

    python -m hashring.testing.simulator                 # 2,000 histories
    python -m hashring.testing.simulator --locks         # with locks and limits
    python -m hashring.testing.simulator --seed 1234     # one, as a story when it fails

:mod:`.history` says what happens, :mod:`.world` runs it, :mod:`.deeds` does it, :mod:`.rules` and
:mod:`.lock_rules` watch. A history that breaks a rule is made as small as it goes, and told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from hashring.node.machine import NodeConfig, NodeMachine
from hashring.store.memory import MemoryServer
from hashring.testing.simulator.deeds import DEEDS
from hashring.testing.simulator.history import (
    Event,
    History,
    random_history,
    random_lock_history,
    smallest,
)
from hashring.testing.simulator.lock_rules import SETTLED, lock_rules
from hashring.testing.simulator.rules import RECOVERY, REST, all_rules
from hashring.testing.simulator.world import Rule, Violation, World

__all__ = [
    "Event",
    "History",
    "Simulator",
    "Violation",
    "World",
    "random_history",
    "random_lock_history",
]


def rules_of(history: History) -> Sequence[Rule]:
    """A fresh set of the rules that must hold in a history."""
    return all_rules() if history.locks is None else lock_rules()


@dataclass(frozen=True)
class Simulator:
    """Plays histories.

    Attributes:
        machine: makes a node's protocol. A test plants faults here.
        server: makes Redis' twin, from its clock. Here as well.
        rules: makes a fresh set of rules for a history.
    """

    machine: Callable[[NodeConfig, Random], NodeMachine] = NodeMachine
    server: Callable[[Callable[[], float]], MemoryServer] = MemoryServer
    rules: Callable[[History], Sequence[Rule]] = rules_of

    def play(self, history: History) -> None:
        """Run a history.

        Raises:
            Violation: it breaks a rule.
        """
        self._run(self._world(history, story=False))

    def broken_rule(self, history: History) -> str | None:
        """The rule that a history breaks."""
        try:
            self.play(history)
        except Violation as violation:
            return violation.rule
        return None

    def fails(self, history: History) -> bool:
        """Whether a history breaks a rule."""
        return self.broken_rule(history) is not None

    def story(self, history: History) -> str:
        """The smallest history of the same events that breaks a rule, as it happens.

        Raises:
            ValueError: the history breaks no rule.
        """
        least = smallest(history, self.fails)
        locks = "--locks " if history.locks else ""
        world = self._world(least, story=True)
        try:
            self._run(world)
        except Violation as violation:
            lines = [
                f"History {history.seed} breaks a rule:",
                f"{len(least.events)} of its {len(history.events)} events are enough.",
                "",
                *(str(spec) for spec in least.processes),
                "",
                *(world.story or ()),
                f"{violation.at:7.3f}  BROKEN {violation}",
                "",
                f"Again: python -m hashring.testing.simulator {locks}--seed {history.seed}",
            ]
            return "\n".join(lines)
        raise ValueError(f"history {history.seed} breaks no rule")

    def _world(self, history: History, *, story: bool) -> World:
        return World(history, self.rules(history), DEEDS, self.machine, self.server, story=story)

    def _run(self, world: World) -> None:
        history = world.history
        world.run(history.faults_end)
        world.heal()
        skews = sum(2 * abs(e.lag_and_skew[1]) for e in history.events if e.kind == "failover")
        recovery = RECOVERY if history.locks is None else SETTLED
        world.run(max(history.faults_end, world.late_until) + recovery + skews)
        for rule in world.rules:
            rule.healed(world)
        world.run(world.now + REST)
        for rule in world.rules:
            rule.finished(world)


def find(
    simulator: Simulator,
    seeds: Sequence[int],
    make: Callable[[int], History] = random_history,
) -> History | None:
    """The first history of these seeds that breaks a rule, or ``None``."""
    for seed in seeds:
        history = make(seed)
        if simulator.fails(history):
            return history
    return None
