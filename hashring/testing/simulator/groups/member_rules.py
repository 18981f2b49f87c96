"""What must hold of the members of a partition group, whatever happens.

They are checked by somebody who sees all processes, and Redis, at once. Times are true times.

**Holder.** No two processes count one partition as held, not even one that is paused or cut off,
whatever Redis lost.

**Renewal.** No process counts anything as held later than one ttl after it sent the last renewal
that it knows to have succeeded.

**Once.** What a process has given up, or lost, under a token it never counts as held again under
that token.

**Prompt.** While its connection works, a process is let in one ttl after it asks for a name that
nobody renews. It counts as a member one heartbeat after it joined, however long the assignor takes.
It has left ``leave_timeout`` and ``max_handoff_time`` after it was first asked to hand over. Who
asks for a name while Redis' clock is set back may have to ask once more.

**Told.** What an application was given and has not ended is what its process holds, at rest; it is
told in turns that it is active and that it is not, and the last of that is true. If the
application does not end its work in time, it receives ``on_lost``.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any, Final

from hashring.core.groups.member_holdings import Holding
from hashring.errors import MemberExists
from hashring.protocol.group.base_member_machine import Stage
from hashring.store.command import Command
from hashring.store.group.commands import Beat, Joined
from hashring.testing.simulator.groups.process import GroupProcess
from hashring.testing.simulator.groups.world import GroupRule, GroupWorld
from hashring.testing.simulator.network import LATENCY
from hashring.testing.simulator.virtual_time import NEVER

# Redis time in seconds is a float, and deadlines go through it.
_ROUNDING: Final = 3e-6


class HeldRule(GroupRule):
    """Looks at what a process holds whenever that may have grown."""

    def __init__(self) -> None:
        self._seen: dict[str, Holding] = {}

    def shown(self, world: GroupWorld, process: GroupProcess) -> None:
        # What is held is a frozen picture, of which time only takes away.
        holding = process.machine.holdings.holding
        if self._seen.get(process.spec.label) is not holding:
            self._seen[process.spec.label] = holding
            self.look(world, process, process.held())

    def look(self, world: GroupWorld, process: GroupProcess, held: dict[int, int]) -> None:
        """Look at what a process holds."""


class PartitionHolder(HeldRule):
    name = "holder"

    def look(self, world: GroupWorld, process: GroupProcess, held: dict[int, int]) -> None:
        for other in world.processes.values():
            both = held.keys() & other.held().keys() if held and other is not process else ()
            for partition in sorted(both):
                raise self.broken(
                    world,
                    f"partition {partition} is held by {process.spec.label} and {other.spec.label}",
                )


class MemberRenewal(HeldRule):
    name = "renewal"

    def look(self, world: GroupWorld, process: GroupProcess, held: dict[int, int]) -> None:
        until = process.true(process.machine.holdings.holding.lease_until)
        # A member that was told of another ttl goes by that.
        ttl = max(world.longest_ttl, process.machine.terms.ttl)
        if held and until > process.renewed_sent + ttl + _ROUNDING:
            raise self.broken(
                world,
                f"{process.spec.label} counts partitions as held until {until:.3f}, its last "
                f"renewal was sent at {process.renewed_sent:.3f}",
            )


class Once(HeldRule):
    name = "once"

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, set[tuple[int, int]]] = defaultdict(set)
        self._past: dict[str, set[tuple[int, int]]] = defaultdict(set)

    def look(self, world: GroupWorld, process: GroupProcess, held: dict[int, int]) -> None:
        label, now = process.spec.label, set(held.items())
        self._past[label] |= self._held[label] - now
        self._held[label] = now
        if again := now & self._past[label]:
            partition, token = min(again)
            raise self.broken(
                world, f"{label} holds partition {partition} under {token}, which it had given up"
            )


class Prompt(GroupRule):
    name = "prompt"

    def __init__(self) -> None:
        # For each process, which of the bounded parts of its life it is in, and since when.
        self._since: dict[str, tuple[str, float]] = {}
        # For each name the time at which each process last had it in Redis.
        self._named: dict[str, dict[str, float]] = defaultdict(dict)

    def executed(
        self, world: GroupWorld, process: GroupProcess, command: Command[Any], reply: Any
    ) -> None:
        if isinstance(reply, Beat | Joined):
            self._named[process.spec.name][process.spec.label] = world.now

    def shown(self, world: GroupWorld, process: GroupProcess) -> None:
        label, machine = process.spec.label, process.machine
        part = _BOUNDED.get(machine.stage, "") if process.alive else ""
        before, began = self._since.get(label, ("", NEVER))
        gave_up = machine.stage is Stage.FAILED and not process.stopping
        if gave_up and before == "asks to be let in":
            self._look_at_name(world, process, began)
        if part == before:
            return
        self._since[label] = part, world.now
        if part:
            self._look_later(world, process, part, world.now)

    def _look_at_name(self, world: GroupWorld, process: GroupProcess, began: float) -> None:
        machine = process.machine
        named = self._named[process.spec.name]
        others = [at for who, at in named.items() if who != process.spec.label]
        if (
            isinstance(machine.failure, MemberExists)
            and machine.waits_for_name
            and max(others, default=NEVER) < began
            and world.set_back_at < began
        ):
            raise self.broken(
                world, f"{process.spec.label} gave up a name that nobody has renewed meanwhile"
            )

    def _look_later(
        self, world: GroupWorld, process: GroupProcess, part: str, began: float
    ) -> None:
        most = world.history.most
        # A loop notices the time when its call has ended.
        call = 4 * LATENCY + 2 * float(process.spec.lag)
        bound = (
            call
            + {
                "asks to be let in": most("ttl") + world.history.interval + call,
                "waits for a decision": world.history.interval,
                "hands over": most("leave_timeout"),
                "leaves": most("max_handoff_time"),
            }[part]
        )

        def look() -> None:
            if not process.alive or self._since[process.spec.label] != (part, began):
                return
            # A call that began in trouble may go on for that much longer.
            trouble = max(process.trouble_until, world.down_until, world.hang_until)
            late = trouble + world.io_timeout + bound
            if world.now < late:
                world.at(late, look)
            else:
                raise self.broken(
                    world, f"{process.spec.label} {part} since {began:.3f}: longer than {bound:g} s"
                )

        world.at(world.now + bound, look)


_BOUNDED: Final = {
    Stage.ENTERING: "asks to be let in",
    Stage.WAITING: "asks to be let in",
    Stage.JOINED: "waits for a decision",
    Stage.HANDING_OVER: "hands over",
    Stage.LEAVING: "leaves",
}
"""The parts of a member's life that are promised to end, and the stages of each."""


class MemberReports(GroupRule):
    name = "told"

    def shown(self, world: GroupWorld, process: GroupProcess) -> None:
        if process.never_told is not None:
            raise self.broken(
                world,
                f"{process.spec.label} worked on partition {process.never_told} beyond its time, "
                f"and is never told that it was lost",
            )
        told = process.activity
        if any(was is now for was, now in pairwise(told)):
            raise self.broken(world, f"{process.spec.label} is told twice that active={told[-1]}")

    def healed(self, world: GroupWorld) -> None:
        for process in world.alive:
            held, active = process.held(), process.activity[-1:] == [True]
            if process.working != held:
                raise self.broken(
                    world,
                    f"{process.spec.label} works on {sorted(process.working)}, and holds "
                    f"{sorted(held)}",
                )
            if active is not bool(held):
                raise self.broken(
                    world, f"{process.spec.label} was told that active={active}, wrongly"
                )
