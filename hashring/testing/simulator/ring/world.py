"""Nodes of a ring, with locks or without, in virtual time.

The nodes' protocol is the real :class:`hashring.node.node_machine.NodeMachine`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from threading import Event as Flag
from typing import Any, Final

from hashring.core.hashing import hash_algorithm
from hashring.core.placement import points_of_weight
from hashring.core.ring import Ring
from hashring.core.ring_change import RingChange, parse_change
from hashring.errors import MessageFormatError, RedisUnavailable
from hashring.node.lock_flows import Asking, Window
from hashring.node.node_machine import NodeConfig, NodeMachine, View
from hashring.node.own_ranges_machine import machine_of
from hashring.node.states import NodeState
from hashring.protocol.flow import FlowRun
from hashring.protocol.locks.lease import Lease
from hashring.store.command import Command
from hashring.store.memory_store import MemoryServer
from hashring.store.ring.commands import BeatReply, BeatStatus, Scoring, read_members
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.node_orders import read_drains, read_weights
from hashring.testing.simulator.network import Call
from hashring.testing.simulator.process import Process
from hashring.testing.simulator.ring.history import (
    HEARTBEAT,
    TTL,
    LockTerms,
    NodeHistory,
    ProcessSpec,
)
from hashring.testing.simulator.rules import Rule
from hashring.testing.simulator.simulated_loop import SimulatedCaller, SimulatedLoop
from hashring.testing.simulator.virtual_time import NEVER
from hashring.testing.simulator.world import Fault, World

KEYS: Final = ring_keys("accounts")
SCORING: Final = Scoring.expiry(TTL)
ALGORITHM: Final = hash_algorithm("crc-32")

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
        terms = world.history.locks
        self.user = None if terms is None else User(self, terms)

    # --- what readers in the process see ------------------------------------------------------

    @property
    def deadline(self) -> float:
        """True time of the deadline that its readers see."""
        return self.view.deadline - self.offset

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
        self.loop.turn()

    def stop(self, *, stay: bool = False) -> None:
        """The user calls ``stop()``, or ``stop(stay=True)``."""
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
        if isinstance(outcome, BeatReply) and outcome.status is BeatStatus.OK:
            if call.sent >= self.renewed_sent:
                self.renewed = members_of(call.command, outcome)
            self.renewed_sent = max(self.renewed_sent, call.sent)
            self.renewed_at = max(self.renewed_at, call.executed or NEVER)

    def finished(self, loop: SimulatedLoop[Any]) -> None:
        """The machine has nothing more to do."""
        self.world.say(self, f"has ended: {self.machine.state.value}")
        self.alive = False
        self.view = _EMPTY
        self.world.shown(self)


class User(SimulatedCaller[RingProcess]):
    """What works on keys in a process: it asks its node for them, again and again, and holds some.

    It asks by the flow that is ``select`` of :class:`hashring.RingNode`.
    """

    def __init__(self, process: RingProcess, terms: LockTerms) -> None:
        super().__init__(process)
        world = process.world
        self._rng = Random(f"{world.history.seed} user {process.spec.label}")
        self._keys = terms.keys
        self._every = self._rng.choice((0.3, 0.6))
        self._asked_all = False
        self._flow: FlowRun[list[bytes]] | None = None
        self._holds: dict[bytes, float] = {}
        self.idle_until = 0.0
        """True time up to which it asks for nothing."""
        self.leases: list[Lease] = []
        """What it is at work on."""
        book = process.machine.book
        assert book is not None
        self._book = book
        self._asking = Asking(process.machine, book, self._window, process.local, self._poke)
        world.at(world.now + self._rng.random() * self._every, self._turn)

    def hold(self, key: bytes, seconds: float) -> None:
        """Hold a key for that long, as soon as it is ours."""
        self._holds[key] = seconds

    # --- asking -------------------------------------------------------------------------------

    def _turn(self) -> None:
        process, world = self.process, self.process.world
        if not process.alive or process.stopping:
            return
        world.at(world.now + self._every * (0.5 + self._rng.random()), self._turn)
        if not process.paused and self.busy is None and world.now >= self.idle_until:
            # Each key comes up every other time at least: it is never let go for being idle.
            some: Sequence[bytes] = self._keys
            self._asked_all = not self._asked_all or self._rng.random() < 0.8
            if not self._asked_all:
                some = self._rng.sample(some, len(some) // 2)
            self._ask(some)

    def _window(self) -> Window:
        # From stop() on the node owns nothing, whatever its loop has heard of.
        view = _EMPTY if self.process.stopping else self.process.view
        return view.bounds, view.deadline, view.ring

    def _poke(self) -> None:
        self.process.loop.tell(lambda: None)

    def _ask(self, keys: Sequence[bytes]) -> None:
        self._flow = FlowRun(self._asking.select(keys, None), self._told, self._escaped)
        self._flow.begin(self.process.local())
        self._go_on()

    def _go_on(self) -> None:
        if self._flow is not None and self._flow.step is not None:
            self.call(self._flow.step.command)

    def _told(self, keys: list[bytes], now: float) -> None:
        self.process.world.told_yes(self.process, keys)
        for key in keys:
            if key in self._holds:
                self._pin(key, self._holds.pop(key))

    def _escaped(self, error: Exception, now: float) -> None:
        raise error

    def completed(self, call: Call, outcome: Any) -> None:
        """The flow is told how its call went."""
        process = self.process
        assert self._flow is not None
        step = self._flow.step
        assert step is not None
        if isinstance(outcome, RedisUnavailable):
            step.failed(outcome, process.local())
        else:
            step.done(outcome, call.sent + process.offset, process.local())
        self._go_on()

    # --- holding ------------------------------------------------------------------------------

    def _pin(self, key: bytes, seconds: float) -> None:
        lease = self._book.pin(key, self.process.local, Flag)
        if lease is not None:
            self.process.world.say(self.process, f"holds {key.decode()} for {seconds:g} s")
            self.leases.append(lease)
            self._work(lease, self.process.world.now + seconds)

    def _work(self, lease: Lease, until: float) -> None:
        process, world = self.process, self.process.world
        if not process.alive:
            return
        finished = world.now >= until or lease.lost.is_set()
        if lease.revoked.is_set():
            finished = finished or self._rng.random() < 0.2
        if finished and not process.paused:
            self.leases.remove(lease)
            self._book.unpin(lease, process.local())
            self._asking.stir()
        else:
            world.at(world.now + 0.1, lambda: self._work(lease, until))


class RingWorld(World[RingProcess]):
    """A ring in virtual time; arguments as for :class:`hashring.testing.simulator.world.World`.

    Args:
        machine: makes a node's protocol; a test plants its faults here.
    """

    history: NodeHistory
    io_timeout = TTL / 3

    def __init__(
        self,
        history: NodeHistory,
        rules: Sequence[Rule[RingWorld, RingProcess]],
        faults: dict[str, Fault],
        machine: Callable[[NodeConfig, Random], NodeMachine] = machine_of,
        server: Callable[[Callable[[], float]], MemoryServer] = MemoryServer,
        *,
        story: bool = False,
    ) -> None:
        self.tampered_at = NEVER
        """When somebody last changed the ring's members without telling."""
        self.taken_away: dict[bytes, float] = {}
        """When somebody last took a key's lock away by hand."""
        self._machine = machine
        super().__init__(history, rules, faults, server, story=story)

    def make(self, spec: ProcessSpec) -> RingProcess:
        """A node's process."""
        config = NodeConfig(
            keys=KEYS,
            name=spec.name,
            named=spec.named,
            n_replicas=spec.points,
            ttl=TTL,
            heartbeat_interval=HEARTBEAT,
            io_timeout=self.io_timeout,
            scoring=SCORING,
            algorithm=ALGORITHM,
            placement=spec.placement,
            follow_foreign=False,
            told={},
            locks=self.history.lock_config(spec),
            follow=spec.follow,
        )
        rng = Random(f"{self.history.seed} node {spec.label}")
        return RingProcess(self, spec, self._machine(config, rng))

    @property
    def ring(self) -> Ring:
        """The ring as it is in Redis."""
        return Ring(read_members(self.server.members(KEYS.ring))[0], ALGORITHM)

    def node(self, label: str) -> str:
        """The name of a process' node, whether it runs or not; its label when it never does."""
        process, spec = self.processes.get(label), self._specs.get(label)
        name = spec.name if spec is not None else label
        return name if process is None else process.machine.name

    def order(self, command: Command[Any]) -> None:
        """Somebody gives an order about a node."""
        if self.now >= max(self.down_until, self.hang_until):
            self.server.run(command)

    def is_to_drain(self, process: RingProcess) -> bool:
        """Whether an order stands in Redis that the process is to obey."""
        machine = process.machine
        entry = self.server.orders(KEYS.ring).get(machine.name.encode())
        if entry is None:
            return False
        order = read_drains([machine.name.encode(), entry]).get(machine.name)
        if order is None or not order.stands(self.redis_time()):
            return False
        return order.session in ("", machine.session)

    def points(self, process: RingProcess) -> int:
        """How many points a process' node is to have: by an order that stands, or its own."""
        machine = process.machine
        name = machine.name.encode()
        entry = self.server.orders(KEYS.ring).get(name)
        order = None if entry is None else read_weights([name, entry]).get(machine.name)
        weight = process.weight
        if order is not None and order.session in ("", machine.session):
            weight = order.weight
        return points_of_weight(process.spec.points, weight)

    def listen(self, hear: Callable[[RingChange], None]) -> None:
        """Be told of every change of the ring, in the moment that Redis makes it."""

        def parse(payload: bytes) -> None:
            try:
                change = parse_change(payload)
            except MessageFormatError:
                return
            hear(change)

        self.server.listen(KEYS.channel, parse)

    def shown(self, process: RingProcess) -> None:
        """A process shows another view."""
        if self.story is not None:
            machine = process.machine
            tag = machine.stamp.tag[:4] if machine.stamp else "-"
            self.say(
                process,
                f"is {machine.state.value} at {tag}, {_seen(process.view)}, "
                f"owns {len(process.view.ranges)} ranges until {process.deadline:.3f}",
            )
        super().shown(process)

    def summary(self, reply: Any) -> str:
        """An answer of Redis' for the story."""
        if isinstance(reply, BeatReply):
            told = f"{reply.status.value} at {reply.stamp.epoch} {reply.stamp.tag[:4]}"
            told += f", {reply.stamp.members} members"
            return told + (f", swept {reply.swept}" if reply.swept else "")
        return super().summary(reply)


def members_of(command: Command[Any], reply: BeatReply) -> frozenset[bytes]:
    """The node's own members that its heartbeat renewed."""
    dropped = int(command.arguments[13])
    members = command.arguments[14 + dropped :]
    given = frozenset(member for member in members if isinstance(member, bytes))
    return given.union(replica.member for replica in reply.stayed)


def _seen(view: View) -> str:
    return f"sees {', '.join(view.ring.nodes)}" if view.ring.node_count else "sees its own ranges"
