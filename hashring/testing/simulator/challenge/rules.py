"""What must hold of a lease challenge, whatever happens. Times are true times.

Of the fixed mode:

**Holder.** No two processes count one partition as held, not even one that is paused or cut off.

**Renewal.** No process counts anything as held later than one ttl after it asked for the newest
table that it read.

**Level.** Once faults are over, every partition is worked on by one member, no member has two more
than another, and nothing moves any more.

Of the article's mode it promises less, and only this is looked at:

**Served.** Once faults are over, each partition is worked on again and again, if by ever others.
"""

from __future__ import annotations

from typing import Final

from hashring.core.groups.lease_table import LeaseTableRules
from hashring.testing.simulator.challenge.history import ChallengeHistory
from hashring.testing.simulator.challenge.process import ChallengeProcess
from hashring.testing.simulator.challenge.world import ChallengeRule, ChallengeWorld
from hashring.testing.simulator.rules import Hears

# Redis time in seconds is a float, and deadlines go through it.
_ROUNDING: Final = 3e-6


def patience(history: ChallengeHistory) -> tuple[float, float]:
    """Seconds from the end of all faults until the members are level; seconds to watch them."""
    terms, processes = history.terms, len(history.processes)
    if isinstance(terms, LeaseTableRules):
        # Each member asks for one partition at a time.
        each = terms.residency + min(history.drain, terms.max_handoff_time) + 2 * terms.interval
        moves = history.partitions + processes
        return 3 * terms.ttl + moves * (each + 4.0), 4 * terms.interval
    return 4 * terms.max_lease + history.partitions * terms.max_shutdown, terms.max_lease


class ChallengeHolder(ChallengeRule):
    name = "holder"

    def shown(self, world: ChallengeWorld, process: ChallengeProcess) -> None:
        held = process.held()
        if not held:
            return
        for other in world.processes.values():
            if other is not process and (both := held.keys() & other.held().keys()):
                raise self.broken(
                    world,
                    f"partition {min(both)} is held by {process.spec.label} and {other.spec.label}",
                )


class ChallengeRenewal(ChallengeRule):
    name = "renewal"

    def shown(self, world: ChallengeWorld, process: ChallengeProcess) -> None:
        until = process.true(process.machine.membership.holding.lease_until)
        if process.held() and until > process.read_sent + process.machine.membership.ttl:
            late = until - process.read_sent - process.machine.membership.ttl
            if late > _ROUNDING:
                raise self.broken(
                    world, f"{process.spec.label} counts partitions as held {late:.3f} s too long"
                )


def uneven(world: ChallengeWorld) -> str:
    """Why the members are not level; empty when they are."""
    held = [process.held() for process in world.alive]
    found = sorted(partition for each in held for partition in each)
    if held and found != list(range(world.history.partitions)):
        return f"of {world.history.partitions} partitions {found} are held"
    if held and max(map(len, held)) - min(map(len, held)) > 1:
        return f"members have {sorted(map(len, held))} partitions"
    return ""


class ChallengeLevel(ChallengeRule):
    name = "level"

    def __init__(self) -> None:
        self._held: dict[str, dict[int, int]] = {}

    def healed(self, world: ChallengeWorld) -> None:
        if wrong := uneven(world):
            raise self.broken(world, wrong)
        self._held = {process.spec.label: process.held() for process in world.alive}

    def finished(self, world: ChallengeWorld) -> None:
        for process in world.alive:
            if process.held() != self._held[process.spec.label]:
                raise self.broken(world, f"{process.spec.label} has {process.held()} now")


class ChallengeService(ChallengeRule):
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


def challenge_rules(history: ChallengeHistory) -> list[ChallengeRule]:
    """A fresh instance of each rule of the history's mode."""
    return (
        [ChallengeHolder(), ChallengeRenewal(), ChallengeLevel(), Hears()]
        if history.fixed
        else [ChallengeService(), Hears()]
    )
