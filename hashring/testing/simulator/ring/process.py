"""A process with one node of a ring, in virtual time.

The node's protocol is the real :class:`hashring.protocol.node.node_machine.NodeMachine`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hashring.core.ring import Ring
from hashring.protocol.node.node_machine import NodeMachine, View
from hashring.protocol.node.node_states import RENEWING, NodeState
from hashring.store.command import Command
from hashring.store.ring.commands import BeatReply, BeatStatus
from hashring.testing.simulator.network import Call
from hashring.testing.simulator.process import Process
from hashring.testing.simulator.ring.history import ProcessSpec
from hashring.testing.simulator.ring.lock_user import User
from hashring.testing.simulator.simulated_loop import SimulatedLoop
from hashring.testing.simulator.virtual_time import NEVER

if TYPE_CHECKING:
    from hashring.testing.simulator.ring.world import RingWorld

ACCEPTED: Final = (BeatStatus.OK, BeatStatus.DRAINED)
"""How Redis answers a heartbeat that it has obeyed."""

_EMPTY: Final = View((), float("-inf"), (), Ring())


class RingProcess(Process):
    """A process with one node, and with a user who asks it for keys where there are locks."""

    world: RingWorld

    def __init__(self, world: RingWorld, spec: ProcessSpec, machine: NodeMachine) -> None:
        super().__init__(world, spec)
        self.machine = machine
        self.loop: SimulatedLoop[RingProcess] = SimulatedLoop(
            self, machine, asynchronous=spec.asynchronous
        )
        self.view = _EMPTY
        self.weight = 1.0
        """The weight that its own code gave it last."""
        self.renewed_sent = NEVER
        """True time of sending of the newest renewal that it knows to have succeeded."""
        self.renewed: frozenset[bytes] = frozenset()
        """The members that it renewed."""
        self.renewed_at = NEVER
        """True time at which Redis ran that renewal."""
        self.stays = False
        """Whether it was stopped to come back."""
        self.started_again = False
        """Whether it has been stopped, and started again."""
        self.history = ""
        """The history of the ring that its node was told of last, be it before a stop."""
        self.history_at = NEVER
        """True time at which its node learnt that history."""
        terms = world.history.locks
        self.user = None if terms is None else User(self, terms)

    # --- what readers in the process see ------------------------------------------------------

    @property
    def deadline(self) -> float:
        """True time of the deadline that its readers see."""
        return self.true(self.view.deadline)

    def claims(self) -> bool:
        """Whether its readers are told right now that some keys are theirs."""
        return bool(self.view.bounds) and self.may_work()

    def may_work(self) -> bool:
        """Whether it may work right now on what it has locked, be it to hand it over."""
        return not self.stopping and self.local() < self.view.deadline

    def show(self, loop: SimulatedLoop[Any]) -> None:
        """Show readers the new view."""
        view = self.machine.view(self.local())
        if view is not self.view:
            self.view = view
            self.world.shown(self)

    # --- its life -----------------------------------------------------------------------------

    def start(self) -> None:
        """The user calls ``start()``."""
        self.world.say(self, f"is started as {self.spec.name}")
        self.machine.start(self.local(), strict=self.spec.strict)
        self.loop.begin()

    def _start_again(self) -> None:
        if self.stopping:
            self.alive = False
            return
        self.started_again = True
        self.start()
        if self.user is not None:
            self.user.go_on()

    def stop(self, *, stay: bool = False) -> None:
        """The user calls ``stop()``, or ``stop(stay=True)``."""
        if not self.stopping:
            self.world.asked_to_stop(self)
            self.stays = stay
        self.stopping = True
        if self.spec.asynchronous:
            self.machine.stop(stay=stay)
            self.loop.turn()
        else:
            self.loop.tell(lambda: self.machine.stop(stay=stay))

    def weigh(self, weight: float) -> None:
        """The user assigns ``node.weight``."""
        self.weight = weight
        self.machine.weigh(weight)
        if self.spec.asynchronous:
            self.machine.beat_at_once(self.local())
            self.loop.turn()
        else:
            self.loop.tell(lambda: self.machine.beat_at_once(self.local()))

    def kill(self) -> None:
        """SIGKILL. What it has sent may still arrive."""
        super().kill()
        self.view = _EMPTY

    def begins(self, command: Command[Any]) -> bool:
        """Whether a command is the heartbeat by which the node joins."""
        return self.machine.state is NodeState.JOINING and command.script.name == "beat"

    def answered(self, call: Call, outcome: Any) -> None:
        """The machine is about to be told of an answer."""
        if not isinstance(outcome, BeatReply) or outcome.status not in ACCEPTED:
            return
        machine = self.machine
        here = machine.state in (NodeState.JOINING, NodeState.FENCED, *RENEWING)
        of_this = here and call.command.arguments[1] == machine.session
        if of_this and outcome.history != self.history:
            self.history, self.history_at = outcome.history, self.world.now
        if outcome.status is BeatStatus.OK:
            if call.sent >= self.renewed_sent:
                self.renewed = members_of(call.command, outcome)
            self.renewed_sent = max(self.renewed_sent, call.sent)
            self.renewed_at = max(self.renewed_at, call.executed or NEVER)
        elif call.sent >= self.renewed_sent:
            self.renewed = frozenset()  # It has given up all of them.

    def finished(self, loop: SimulatedLoop[Any]) -> None:
        """The machine has nothing more to do."""
        self.world.say(self, f"has ended: {self.machine.state.value}")
        if self.user is not None:
            self.user.stopped()
        stopped = self.machine.state is NodeState.STOPPED
        if not (stopped and self.comes_back(self._start_again)):
            self.alive = False
        self.view = _EMPTY
        self.world.shown(self)


def members_of(command: Command[Any], reply: BeatReply) -> frozenset[bytes]:
    """The node's own members that its heartbeat renewed."""
    dropped = int(command.arguments[13])
    members = command.arguments[14 + dropped :]
    given = frozenset(member for member in members if isinstance(member, bytes))
    return given.union(replica.member for replica in reply.stayed)
