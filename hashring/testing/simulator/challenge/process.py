"""A process with one member of a lease challenge, or of a faithful one, in virtual time.

The members are the machines that ship (:mod:`hashring.protocol.group.lease_challenge_machine`,
:mod:`hashring.protocol.group.faithful_challenge_machine`), each on a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from hashring.core.groups.lease_challenge import LeaseChallengeRules
from hashring.core.groups.partition_change import PartitionChange, PartitionChangeKind
from hashring.errors import StoreError
from hashring.protocol.group.base_member_machine import Stage
from hashring.protocol.group.faithful_challenge_machine import FaithfulChallengeMachine
from hashring.protocol.group.lease_challenge_machine import LeaseChallengeMachine
from hashring.store.command import Command
from hashring.store.faithful_challenge.commands import faithful_keys
from hashring.store.lease_challenge.commands import TableReading, challenge_keys
from hashring.testing.simulator.challenge.history import ChallengerSpec
from hashring.testing.simulator.network import Call
from hashring.testing.simulator.process import Process
from hashring.testing.simulator.simulated_loop import SimulatedLoop
from hashring.testing.simulator.virtual_time import NEVER

if TYPE_CHECKING:
    from hashring.testing.simulator.challenge.world import ChallengeWorld


class ChallengeProcess(Process):
    """A process with one member, and an application that works on what it has."""

    world: ChallengeWorld

    def __init__(
        self,
        world: ChallengeWorld,
        spec: ChallengerSpec,
        table: Callable[..., LeaseChallengeMachine],
        faithful: Callable[..., FaithfulChallengeMachine],
    ) -> None:
        super().__init__(world, spec)
        history = world.history
        suffixes = Random(f"{history.seed} suffixes {spec.label}")
        self.chance = Random(f"{history.seed} application {spec.label}")

        def suffix() -> str:
            made = f"{suffixes.getrandbits(32):08x}"
            self.entry = f"{spec.label}#{made}"
            return made

        self.machine: LeaseChallengeMachine | FaithfulChallengeMachine
        if isinstance(history.terms, LeaseChallengeRules):
            self.machine = table(
                "work",
                challenge_keys("work"),
                spec.label,
                partitions=history.partitions,
                rules=history.terms,
                new_suffix=suffix,
                chance=self.chance.random,
            )
        else:
            self.machine = faithful(
                faithful_keys("work"),
                spec.label,
                partitions=history.partitions,
                spans=history.terms,
                new_suffix=suffix,
                chance=self.chance.random,
            )
        self.loop: SimulatedLoop[ChallengeProcess] = SimulatedLoop(self, self.machine)
        self.entry = ""
        """Its name in the table since its last start."""
        self.failed_calls = 0
        """How many of its calls have failed since its last start."""
        self.has_seen = False
        """Whether it has read or written a table, be it before a stop."""
        self.read_sent = NEVER
        """True time of sending of the newest answer that its lease may be from."""
        self.told_until = NEVER
        """The latest deadline, by its own clock, that its application just received."""

    def latency(self) -> float:
        """How long the next message takes one way, in seconds."""
        return super().latency() + float(self.spec.late) * self.rng.random()

    def held(self) -> dict[int, int]:
        """What its application is told right now that it has, with the tokens."""
        return self.machine.holdings.held(self.local()) if self.alive else {}

    def start(self) -> None:
        """The application calls ``start()``."""
        self.world.say(self, "is started")
        self.failed_calls = 0
        # What it sent before its last end came too late to change anything.
        self.late_at = NEVER
        self.machine.start(self.local())
        self.loop.begin()

    def stop(self) -> None:
        """The application calls ``stop()``."""
        if not self.stopping:
            self.world.asked_to_stop(self)
        self.stopping = True
        self.loop.tell(lambda: self.machine.stop(self.local()))

    def kill(self) -> None:
        """SIGKILL. What it has sent may still arrive."""
        super().kill()
        self.world.measure(self)

    def finished(self, loop: SimulatedLoop[Any]) -> None:
        """The machine has nothing more to do. One that could not enter is started again."""
        if self.machine.stage is Stage.FAILED and not self.stopping:
            self.soon(1.0, self._start_again)
            return
        if self.machine.stage is Stage.LEFT and self.comes_back(self._start_again):
            return
        self.alive = False
        self.world.measure(self)
        self.world.shown(self)

    def _start_again(self) -> None:
        if self.stopping:
            self.alive = False
        elif self.world.now < self.world.open_at and not self.has_seen:
            self.soon(self.world.open_at - self.world.now, self._start_again)
        else:
            self.start()

    @property
    def unaware(self) -> bool:
        """Whether it is entering, and has not seen a table yet."""
        return self.alive and self.machine.stage is Stage.ENTERING and not self.has_seen

    def begins(self, command: Command[Any]) -> bool:
        """Whether a command is the one by which the member enters."""
        entering = self.machine.stage is Stage.ENTERING
        return entering and command.script.name == "lease_challenge_write"

    def read(self, call: Call) -> Any:
        """The answer, or the error, of a call that has ended."""
        outcome = super().read(call)
        self.failed_calls += isinstance(outcome, StoreError)
        return outcome

    def answered(self, call: Call, outcome: Any) -> None:
        """The machine is about to be told of an answer."""
        if isinstance(outcome, TableReading):
            self.has_seen |= outcome.table is not None
        elif call.command.script.name == "lease_challenge_write":
            self.has_seen |= outcome
        if call.command.script.name == "lease_challenge_read":
            self.read_sent = max(self.read_sent, call.sent)

    def show(self, loop: SimulatedLoop[Any]) -> None:
        """The application is told what has changed."""
        changes, self.machine.changes = self.machine.changes, []
        self.told_until = NEVER
        for each in changes:
            self.world.say(self, f"is told: {each.kind.value} {each.partition}")
            if each.kind is PartitionChangeKind.REVOKED:
                self.told_until = max(self.told_until, each.deadline)
                wait = self.world.history.drain + float(self.spec.late) * self.chance.random()
                self.soon(wait, self._ending(each))
        self.world.measure(self)
        self.world.shown(self)

    def _ending(self, told: PartitionChange) -> Callable[[], None]:
        def end() -> None:
            if self.machine.release(told.partition, told.token, self.local()):
                self.loop.tell(lambda: None)
            self.world.measure(self)

        return end
