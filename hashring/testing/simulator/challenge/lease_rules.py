"""What must hold of a lease challenge, whatever happens. Times are true times.

**Holder.** No two processes count one partition as held, not even one that is paused or cut off.

**Renewal.** No process counts anything as held later than one ttl after it asked for the newest
table that it read.

**Deadline.** No deadline that a process receives is later than the end of its lease.

**Tokens.** Each grant of a partition has a greater token than the one before, also after a loss,
unless Redis' clock was set back as well.

**Goodbye.** A process that stopped, with no call that failed since it started, has no entry and no
lease in Redis once its machine has ended.

**Stops.** See :mod:`hashring.testing.simulator.rules`; within ``max_handoff_time`` and one ttl.

**Nobody's time.** A partition that nobody holds while a member is well is held again before
:func:`held_again_within` has passed. The leases of members in trouble may end first, and the quiet
time after a loss may pass. What was left of leases when Redis' clock was set back is left at the
next write. It is not looked at if Redis lost the table, too.

**Level.** Once faults are over, every partition is worked on by one member, no member has two more
than another, and nothing moves any more.
"""

from __future__ import annotations

import math
from typing import Any, Final

from hashring.core.groups.lease_challenge import LeaseChallengeRules
from hashring.protocol.group.base_member_machine import Stage
from hashring.store.command import Command
from hashring.store.lease_challenge.commands import TableReading
from hashring.testing.simulator.challenge.history import ChallengeHistory
from hashring.testing.simulator.challenge.process import ChallengeProcess
from hashring.testing.simulator.challenge.world import ChallengeRule, ChallengeWorld
from hashring.testing.simulator.virtual_time import NEVER

# Seconds between two looks at who holds what, and that a call may take unless something is wrong.
_LOOK_EVERY: Final = 0.25
_PROMPT: Final = 0.1

# Redis time in seconds is a float, and deadlines go through it.
_ROUNDING: Final = 3e-6


def patience(history: ChallengeHistory, rules: LeaseChallengeRules) -> tuple[float, float]:
    """Seconds from the end of all faults until the members are level; seconds to watch them."""
    # Each member asks for one partition at a time.
    each = rules.residency + min(history.drain, rules.max_handoff_time) + 2 * rules.interval
    moves = history.partitions + len(history.processes)
    return 3 * rules.ttl + moves * (each + 4.0), 4 * rules.interval


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
        until = process.true(process.machine.holdings.holding.lease_until)
        if process.held() and until > process.read_sent + process.machine.holdings.ttl:
            late = until - process.read_sent - process.machine.holdings.ttl
            if late > _ROUNDING:
                raise self.broken(
                    world, f"{process.spec.label} counts partitions as held {late:.3f} s too long"
                )


class ChallengeDeadline(ChallengeRule):
    name = "deadline"

    def shown(self, world: ChallengeWorld, process: ChallengeProcess) -> None:
        late = process.told_until - process.machine.holdings.holding.lease_until
        if late > _ROUNDING:
            raise self.broken(
                world, f"{process.spec.label} has a deadline {late:.3f} s after its lease"
            )


class ChallengeTokens(ChallengeRule):
    name = "tokens"

    def __init__(self) -> None:
        self._granted: dict[int, tuple[int, str]] = {}

    def executed(
        self, world: ChallengeWorld, process: ChallengeProcess, command: Command[Any], reply: Any
    ) -> None:
        if command.script.name != "lease_challenge_write" or not reply:
            return
        for partition, lease in world.table().leases.items():
            if lease.owner is None:
                continue
            granted = (lease.token, lease.owner)
            last = self._granted.get(partition, granted)
            if granted != last and lease.token <= last[0] and not world.lost_and_set_back:
                raise self.broken(
                    world, f"partition {partition} was granted as {last}, and is now as {granted}"
                )
            self._granted[partition] = granted


class ChallengeGoodbye(ChallengeRule):
    name = "goodbye"

    def shown(self, world: ChallengeWorld, process: ChallengeProcess) -> None:
        if process.machine.stage is not Stage.LEFT or process.failed_calls:
            return
        reading = world.read()
        if reading.table is None or reading.elsewhere:
            return
        if process.entry in reading.table.members or reading.table.held(process.entry, reading.now):
            raise self.broken(world, f"{process.spec.label} has stopped, and is still in the table")


def held_again_within(world: ChallengeWorld, rules: LeaseChallengeRules) -> float:
    """Seconds until a partition that nobody holds is held again, while a member is well.

    A newcomer waits in vain for one answer, takes back its entry, and a renewal of another follows.
    """
    return world.io_timeout + rules.interval + 1.0


class ChallengeNobody(ChallengeRule):
    name = "nobody"

    def __init__(self, rules: LeaseChallengeRules) -> None:
        self._rules = rules
        self._wrote: dict[str, float] = {}
        self._excused_until = 0.0
        self._free_since: dict[int, float] = {}

    def begin(self, world: ChallengeWorld) -> None:
        self._look(world)

    def executed(
        self, world: ChallengeWorld, process: ChallengeProcess, command: Command[Any], reply: Any
    ) -> None:
        if isinstance(reply, TableReading):
            # The quiet time after a loss counts from here, if the process can know of the loss.
            if reply.elsewhere or (reply.table is None and process.has_seen):
                self._excuse(world.now)
        elif reply:
            if world.set_back_at > max(self._wrote.values(), default=NEVER):
                # What was left of leases is left from here.
                self._excuse(world.now)
            self._wrote[process.spec.label] = world.now

    def touched(self, world: ChallengeWorld, lost: bool) -> None:
        self._excuse(world.now)

    def _excuse(self, since: float) -> None:
        self._excused_until = max(self._excused_until, since + self._rules.ttl)

    def _look(self, world: ChallengeWorld) -> None:
        """Look at all partitions, now and in a moment."""
        world.at(world.now + _LOOK_EVERY, lambda: self._look(world))
        for process in world.processes.values():
            # Once it has left or failed, its calls that are still on their way change nothing.
            if process.machine.stage not in (Stage.FAILED, Stage.LEFT):
                self._excuse(process.late_at)
            if not _is_well(world, process) and _may_have_leases(process):
                self._excuse(self._wrote.get(process.spec.label, -math.inf))
        well = [process for process in world.alive if _is_well(world, process)]
        # If Redis lost the table, too, who was away cannot tell by when, and waits for longer.
        excused = not well or world.now < self._excused_until or world.lost_and_set_back
        held = {p for process in world.processes.values() for p in process.held()}
        if excused:
            self._free_since.clear()
            return
        well_since = min(process.trouble_until for process in well)
        free = set(range(world.history.partitions)) - held
        self._free_since = {p: self._free_since.get(p, world.now) for p in free}
        for partition, since in self._free_since.items():
            if world.now - max(since, well_since) > held_again_within(world, self._rules):
                raise self.broken(world, f"nobody holds partition {partition} since {since:.3f}")


def _is_well(world: ChallengeWorld, process: ChallengeProcess) -> bool:
    """Whether it is a member, and nothing is wrong with it or with its way to Redis."""
    return (
        process.alive
        and not process.stopping
        and process.machine.stage is Stage.MEMBER
        and process.trouble_until < world.now
        and all(c.busy is None or world.now - c.busy.sent <= _PROMPT for c in process.callers)
    )


def _may_have_leases(process: ChallengeProcess) -> bool:
    """Whether a process in trouble may be in the table by right."""
    if process.machine.stage is Stage.FAILED:
        # One failed call is no reason: it takes its entry back.
        return process.failed_calls > 1
    if process.machine.stage is Stage.LEFT or (process.stopping and process.alive):
        return process.paused or process.failed_calls > 0
    if process.alive and process.machine.stage is Stage.ENTERING:
        return process.paused or process.failed_calls > 1
    return True


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
