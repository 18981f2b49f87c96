"""Plays histories, and prints the story of one that breaks a rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from hashring.testing.simulator.history import History
from hashring.testing.simulator.rules import Violation
from hashring.testing.simulator.shrinking import smallest
from hashring.testing.simulator.world import World

H = TypeVar("H", bound=History)
W = TypeVar("W", bound=World[Any])

_COMMAND = "python -m hashring.testing.simulator"


class Simulator(ABC, Generic[H, W]):
    """Plays histories of one protocol."""

    @abstractmethod
    def world(self, history: H, *, story: bool = False) -> W:
        """A run of a history that is about to begin."""

    @abstractmethod
    def patience(self, history: H) -> tuple[float, float]:
        """Seconds from the end of all faults until all must be well; seconds to watch it rest."""

    @abstractmethod
    def again(self, history: H) -> str:
        """The command line's options, besides the seed, that play the history."""

    def run(self, world: W) -> None:
        """Run a world to its end.

        Raises:
            Violation: a rule was broken.
        """
        history = world.history
        recovery, rest = self.patience(history)  # type: ignore[arg-type]
        world.run(history.faults_end)
        world.heal()
        until = max(history.faults_end, world.late_until) + recovery
        self.recover(world, until)
        while world.late_until + recovery > until:
            # One that was paused when it was to leave has come back later.
            until = world.late_until + recovery
            self.recover(world, until)
        for rule in world.rules:
            rule.healed(world)
        world.run(world.now + rest)
        for rule in world.rules:
            rule.finished(world)

    def recover(self, world: W, until: float) -> None:
        """Let time pass until all is well, ``until`` then at most."""
        world.run(until)

    def play(self, history: H) -> None:
        """Run a history.

        Raises:
            Violation: it breaks a rule.
        """
        self.run(self.world(history))

    def broken_rule(self, history: H) -> str | None:
        """The rule that a history breaks."""
        try:
            self.play(history)
        except Violation as violation:
            return violation.rule
        return None

    def fails(self, history: H) -> bool:
        """Whether a history breaks a rule."""
        return self.broken_rule(history) is not None

    def find(self, seeds: Iterable[int], make: Callable[[int], H]) -> H | None:
        """The first history of these seeds that breaks a rule, or ``None``."""
        return next((h for h in map(make, seeds) if self.fails(h)), None)

    def story(self, history: H) -> str:
        """The smallest history of the same events that breaks a rule, as it happens.

        Raises:
            ValueError: the history breaks no rule.
        """
        least = smallest(history, self.fails)
        world = self.world(least, story=True)
        try:
            self.run(world)
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
                f"Again: {_COMMAND} {self.again(history)}--seed {history.seed}",
            ]
            return "\n".join(lines)
        raise ValueError(f"history {history.seed} breaks no rule")
