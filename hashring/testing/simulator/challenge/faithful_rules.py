"""What must hold of a faithful challenge, which promises little.

**Served.** Once faults are over, each partition is worked on again and again, if by ever others.
"""

from __future__ import annotations

from hashring.core.groups.faithful_challenge import FaithfulChallengeSpans
from hashring.testing.simulator.challenge.history import ChallengeHistory
from hashring.testing.simulator.challenge.process import ChallengeProcess
from hashring.testing.simulator.challenge.world import ChallengeRule, ChallengeWorld


def faithful_patience(
    history: ChallengeHistory, spans: FaithfulChallengeSpans
) -> tuple[float, float]:
    """Seconds from the end of all faults until all is served; seconds to watch the members."""
    return 4 * spans.max_lease + history.partitions * spans.max_shutdown, spans.max_lease


class FaithfulService(ChallengeRule):
    name = "served"

    def __init__(self) -> None:
        self._served: set[int] = set()

    def shown(self, world: ChallengeWorld, process: ChallengeProcess) -> None:
        self._served |= process.held().keys()

    def healed(self, world: ChallengeWorld) -> None:
        self._served = {partition for process in world.alive for partition in process.held()}

    def finished(self, world: ChallengeWorld) -> None:
        missing = set(range(world.history.partitions)) - self._served
        if world.alive and missing:
            raise self.broken(world, f"nobody works on {sorted(missing)}")
