"""A process with one member of a partition group, in virtual time.

The member is the real machines, each on a loop of its own: its decider, and
:class:`hashring.protocol.group.group_member_machine.GroupMemberMachine`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from hashring.core.assignors import GroupSituation, TargetAssignment, assignor_named
from hashring.core.groups import member_orders
from hashring.core.groups.group_orders import migrate, resize
from hashring.core.groups.next_state import StepOutcome
from hashring.core.groups.partition_change import PartitionChange, PartitionChangeKind
from hashring.core.groups.state import EXCLUSIVE, NON_EXCLUSIVE, GroupState
from hashring.protocol.group.base_member_machine import Stage
from hashring.protocol.group.group_decider import Decided, Decider, OwnDecision
from hashring.protocol.group.group_flows import change
from hashring.protocol.group.group_member_machine import GroupMemberMachine
from hashring.store.command import Command
from hashring.store.group.commands import Beat
from hashring.store.group.key_names import group_keys
from hashring.testing.simulator.groups.history import MemberSpec
from hashring.testing.simulator.network import Call
from hashring.testing.simulator.process import Process
from hashring.testing.simulator.simulated_flows import FlowCaller
from hashring.testing.simulator.simulated_loop import SimulatedLoop
from hashring.testing.simulator.virtual_time import NEVER

if TYPE_CHECKING:
    from hashring.testing.simulator.groups.world import GroupWorld

NAME: Final = "orders"
KEYS: Final = group_keys(NAME)

_TICK: Final = 0.5
"""Seconds between two signs of progress of an application."""

_AGAIN: Final = 1.0
"""Seconds until an insistent application starts again."""


class GroupProcess(Process):
    """A process with one member, and an application that works on what it holds."""

    world: GroupWorld

    def __init__(
        self,
        world: GroupWorld,
        spec: MemberSpec,
        machine: Callable[..., GroupMemberMachine],
        decider: Callable[..., Decider],
    ) -> None:
        super().__init__(world, spec)
        history = world.history
        self._chance_of_sessions = Random(f"{history.seed} sessions {spec.label}")
        self.sessions: set[str] = set()
        """Those that its member has had."""
        self.chance = Random(f"{history.seed} application {spec.label}")
        self._make_decider = decider
        self.decider = self._new_decider()
        self.machine = machine(
            NAME,
            KEYS,
            spec.name,
            weight=spec.weight,
            terms=history.terms,
            counted=True,
            migrate=False,
            interval=history.interval,
            progress_timeout=spec.progress_timeout,
            decider=self.decider,
            ask=lambda number, brought: self.deciding.tell(
                lambda: self.decider.ask(number, brought)
            ),
            new_session=self._new_session,
            warms_up=lambda: spec.warms_up,
        )
        self.renewing: SimulatedLoop[GroupProcess] = SimulatedLoop(self, self.machine)
        self.deciding: SimulatedLoop[GroupProcess] = SimulatedLoop(self, self.decider)
        self.asking = FlowCaller(self)
        self.stalled_until = 0.0
        self.slow_decisions: list[float] = []
        self.strange_until = 0.0
        """Until when its reports are of a form that no version knows which is here."""
        self.works_until = 0.0
        """When its application will have reported all that it was asked for."""
        self.odd: Random | None = None
        """Where its application's odd answers come from; ``None`` while it gives none."""
        self.hangs = False
        """Whether its assignor never returns."""
        self.renewed_sent = NEVER
        """True time of sending of the newest renewal that it knows to have succeeded."""
        self.working: dict[int, int] = {}
        """The partitions its application was given and has not ended, with the tokens."""
        self.activity: list[bool] = []
        """What its application was told of being active, since it was started."""
        self.never_told: int | None = None
        """A partition whose time had ended when its application's word was taken as in time."""

    def latency(self) -> float:
        """How long the next message takes one way, in seconds."""
        return super().latency() + float(self.spec.lag) * self.rng.random()

    def held(self) -> dict[int, int]:
        """What its application is told right now that it holds, with the tokens."""
        return self.machine.holdings.held(self.local()) if self.alive else {}

    # --- its life -----------------------------------------------------------------------------

    def start(self) -> None:
        """The application calls ``start()``."""
        self.world.say(self, f"is started as {self.spec.name}")
        self._begin()
        if self.spec.progress_timeout is not None:
            self._tick()

    def _start_again(self) -> None:
        if self.stopping:
            self.alive = False
            return
        if self.world.now < self.world.known_again:
            self.soon(self.world.known_again - self.world.now, self._start_again)
            return
        self.callers.remove(self.deciding)
        self.decider = self.machine.decider = self._new_decider()
        self.deciding = SimulatedLoop(self, self.decider)
        self.world.say(self, "is started again")
        self._begin()

    def _begin(self) -> None:
        self.working, self.activity = {}, []
        # Whoever finds no group says how many partitions there are to be; settings that were
        # changed meanwhile were changed in the programs, too.
        there = self.world.reading().terms
        self.machine.counted = there is None
        self.machine.wants = self.world.terms if there is None else there
        self.machine.waits_for_name = self.spec.weight == 1.0
        self.machine.start(self.local())
        self.renewing.begin()
        self.deciding.begin()

    @property
    def decides(self) -> bool:
        """Whether its assignor answers."""
        return not self.hangs and not isinstance(self.decider.assignor, _Raising)

    def fail_to_decide(self, *, hangs: bool) -> None:
        """Its assignor never returns from now on, or raises each time."""
        self.hangs = hangs
        if not hangs:
            self.decider.assignor = _Raising(self.decider.assignor.name)

    def _new_session(self) -> str:
        session = f"{self._chance_of_sessions.getrandbits(64):016x}"
        self.sessions.add(session)
        return session

    def _new_decider(self) -> Decider:
        self.hangs = False
        assignor = assignor_named(self.world.history.terms.assignor)
        return self._make_decider(
            NAME,
            KEYS,
            self.spec.name,
            assignor,
            report=self._decided,
            tell=self._own_decision,
        )

    def stop(self) -> None:
        """The application calls ``stop()``."""
        self.leave(handover=False)

    def leave(self, *, handover: bool) -> None:
        """The application calls ``stop()``, with or without handing over."""
        if not self.stopping:
            self.world.asked_to_stop(self)
        self.stopping = True
        self.renewing.tell(lambda: self.machine.stop(self.local(), handover=handover))

    def finished(self, loop: SimulatedLoop[Any]) -> None:
        """A machine has nothing more to do: the decider's last step is the end."""
        if loop is self.renewing:
            self.world.say(self, f"has {self.machine.stage.value}: {self.machine.failure or ''}")
            last = self.machine.last_step
            self.deciding.tell(lambda: self.decider.end(last=last))
        elif self.machine.stage is Stage.FAILED and self.spec.insistent:
            self.soon(_AGAIN, self._start_again)
        elif not (self.machine.stage is Stage.LEFT and self.comes_back(self._start_again)):
            self.alive = False
            self.world.shown(self)

    def _decided(self, decided: Decided) -> None:
        if decided.error is not None:
            self.world.say(self, f"cannot decide: {decided.error}")
        self.renewing.tell(lambda: self.machine.decided(decided))

    def _own_decision(self, own: OwnDecision) -> None:
        self.renewing.tell(lambda: self.machine.own_decision(own, self.local()))

    def show(self, loop: SimulatedLoop[Any]) -> None:
        """The application is told what has changed."""
        if loop is not self.renewing:
            return
        changes, self.machine.changes = self.machine.changes, []
        for each in changes:
            self.world.say(self, f"is told: {each.kind.value} {each.partition}")
            self._tell(each)
        self.world.shown(self)

    def answered(self, call: Call, outcome: Any) -> None:
        """A machine is about to be told of an answer."""
        if isinstance(outcome, Beat):
            self.renewed_sent = max(self.renewed_sent, call.sent)

    def begins(self, command: Command[Any]) -> bool:
        """Whether a command is the one by which it joins."""
        return command.script.name == "group_join"

    def send(self, call: Call) -> None:
        """Send a command; before a decision an assignor may have taken its time."""
        if self.world.now < self.strange_until and call.command.script.name in _REPORTING:
            call.command = _strange(call.command)
        deciding = self.deciding
        if self.hangs and call is deciding.busy and _commits(call):
            return
        if not self.slow_decisions or call is not deciding.busy or not _commits(call):
            super().send(call)
            return

        def decided() -> None:
            if call is deciding.busy:
                call.sent = self.world.now
                Process.send(self, call)

        seconds = self.slow_decisions.pop()
        self.world.late_until = max(self.world.late_until, self.world.now + seconds)
        self.soon(seconds, decided)

    # --- the application ----------------------------------------------------------------------

    def _tell(self, told: PartitionChange) -> None:
        chance, history, machine = self.chance, self.world.history, self.machine
        if told.kind in (PartitionChangeKind.ACTIVE, PartitionChangeKind.INACTIVE):
            self.activity.append(told.kind is PartitionChangeKind.ACTIVE)
        elif told.kind is PartitionChangeKind.ASSIGNED:
            self.working[told.partition] = told.token
            machine.load(told.partition, self.world.load(told.partition))
        elif told.kind is PartitionChangeKind.LOST:
            self.working.pop(told.partition, None)
        elif told.kind is PartitionChangeKind.REVOKED:
            self._work(history.handoff, lambda: self._release(told.partition, told.token))
        elif told.kind is PartitionChangeKind.WARMUP and self.spec.warms_up:
            if chance.random() < 0.3:
                machine.lag(told.partition, 5.0)
            self._work(history.warm_up, lambda: machine.lag(told.partition, 0.0))
        elif told.kind is PartitionChangeKind.DRAIN:
            self._work(history.drain, lambda: self._drained(told.partition))
        if self.odd is not None:
            self._answer_oddly(self.odd, told)

    def _answer_oddly(self, odd: Random, told: PartitionChange) -> None:
        """Say something that nobody asked for, perhaps, or not now, or twice."""
        partition = odd.choice((told.partition, told.partition, odd.randrange(14)))
        token = odd.choice((told.token, self.working.get(partition, 0), 0))
        say: Callable[[], bool] = odd.choice(
            (
                lambda: self._release(partition, token),
                lambda: self._drained(partition),
                lambda: self.machine.lag(partition, 0.0),
                lambda: self.machine.load(partition, 1.0),
            )
        )
        for _ in range(odd.choice((0, 1, 1, 2))):
            late = odd.choice((0.0, 0.5, 3.0))
            self.world.late_until = max(self.world.late_until, self.world.now + late)
            self._work(late, say)

    def _release(self, partition: int, token: int) -> bool:
        if self.working.get(partition) == token:
            del self.working[partition]
        held = self.held()
        done = self.machine.release(partition, token, self.local())
        self._note_late(partition, done and partition not in held)
        return done

    def _drained(self, partition: int) -> bool:
        # If the count has grown again meanwhile, work goes on.
        held = self.held()
        done = self.machine.drained(partition, self.local())
        self._note_late(partition, done and partition not in held)
        if done:
            self.working.pop(partition, None)
        return done

    def _note_late(self, partition: int, late: bool) -> None:
        if late:
            self.never_told = partition

    def _work(self, most: float, report: Callable[[], bool]) -> None:
        """Report after some time of work."""

        def done() -> None:
            if report():
                self.renewing.tell(lambda: None)
            self.world.shown(self)

        seconds = self.chance.uniform(0, most)
        self.works_until = max(self.works_until, self.world.now + seconds)
        self.soon(seconds, done)

    def _tick(self) -> None:
        if self.world.now >= self.stalled_until:
            self.machine.tick(self.local())
        self.soon(_TICK, self._tick)

    def resize(self, partitions: int) -> None:
        """The application changes the count of the whole group."""
        self._change(lambda state, now: resize(state, partitions))

    def switch_access(self) -> None:
        """The application changes whether one member of the group has everything."""

        def other(state: GroupState, now: float) -> StepOutcome:
            access = NON_EXCLUSIVE if state.terms.access == EXCLUSIVE else EXCLUSIVE
            return migrate(state, replace(state.terms, access=access))

        self._change(other)

    def migrate(self, terms: Mapping[str, Any]) -> None:
        """A member that starts with ``migrate=True`` changes what all have to agree on."""
        self._change(lambda state, now: migrate(state, replace(state.terms, **terms)))

    def drain(self, seconds: float | None) -> None:
        """An operator, at this process' machine, drains its member."""
        self._order(
            lambda state, name, now: member_orders.drain(
                state, name, now, "operator", seconds=seconds, force=True
            )
        )

    def undrain(self) -> None:
        """The operator lifts that."""
        self._order(lambda state, name, now: member_orders.undrain(state, name, now, "operator"))

    def weigh(self, weight: float) -> None:
        """The operator gives the member another weight."""
        self._order(
            lambda state, name, now: member_orders.weigh(state, name, weight, now, "operator")
        )

    def _order(self, order: Callable[[GroupState, str, float], StepOutcome]) -> None:
        """Give an order about the member, if the group knows it."""
        name = str(self.spec.name)

        def decide(state: GroupState, now: float) -> StepOutcome:
            known = name in state.roster
            return order(state, name, now) if known else StepOutcome(state, (), None)

        self._change(decide)

    def _change(self, decide: Callable[[GroupState, float], StepOutcome]) -> None:
        flow = change(NAME, KEYS, str(self.spec.name), decide)

        def offer(outcome: StepOutcome) -> None:
            self.machine.offer(outcome.state.terms, outcome.state.generation)
            self.renewing.tell(lambda: None)

        self.asking.run(flow, offer)


@dataclass(frozen=True)
class _Raising:
    name: str

    def assign(self, situation: GroupSituation) -> TargetAssignment:
        raise RuntimeError("no answer")


_REPORTING: Final = ("group_beat", "group_join")
"""The scripts that write a member's report, their fourth argument."""


def _strange(command: Command[Any]) -> Command[Any]:
    """The command with a report of another form: a field has another name."""
    arguments = list(command.arguments)
    arguments[3] = str(arguments[3]).replace('"session":', '"who":')
    return replace(command, arguments=tuple(arguments))


def _commits(call: Call) -> bool:
    return call.command.script.name == "group_commit"
