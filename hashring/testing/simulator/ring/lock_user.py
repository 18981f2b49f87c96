"""What works on keys in a process of a ring with locks, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from threading import Event as Flag
from typing import TYPE_CHECKING, Any, Final

from hashring.core.ring import Ring
from hashring.errors import StoreError
from hashring.node.lock_flows import Asking, Window
from hashring.protocol.flow import FlowRun
from hashring.protocol.locks.lease import KeyLease
from hashring.testing.simulator.network import Call
from hashring.testing.simulator.ring.history import LockTerms
from hashring.testing.simulator.simulated_loop import SimulatedCaller

if TYPE_CHECKING:
    from hashring.testing.simulator.ring.process import RingProcess


_NOTHING: Final[Window] = ((), float("-inf"), Ring())


class User(SimulatedCaller["RingProcess"]):
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
        self._waits = True
        self._flow: FlowRun[list[bytes]] | None = None
        self._holds: dict[bytes, float] = {}
        self.idle_until = 0.0
        """True time up to which it asks for nothing."""
        self.leases: list[KeyLease[Any]] = []
        """What it is at work on."""
        book = process.machine.book
        assert book is not None
        self._book = book
        self._asking = Asking(process.machine, book, self._window, process.local, self._poke)
        world.at(world.now + self._rng.random() * self._every, self._turn)

    def hold(self, key: bytes, seconds: float) -> None:
        """Hold a key for that long, as soon as it is ours."""
        self._holds[key] = seconds

    def go_on(self) -> None:
        """Ask again: the process was started again."""
        if not self._waits:
            self._waits = True
            self._turn()

    # --- asking -------------------------------------------------------------------------------

    def _turn(self) -> None:
        process, world = self.process, self.process.world
        if not process.alive or process.stopping:
            self._waits = False
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
        if self.process.stopping:
            return _NOTHING
        view = self.process.view
        return view.bounds, view.deadline, view.ring

    def _poke(self) -> None:
        # The loop wakes beside the flow, and takes nothing away from an answer on its way.
        world = self.process.world
        world.at(world.now, lambda: self.process.loop.tell(lambda: None))

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

    def completed(self, call: Call, outcome: Any, now: float) -> None:
        """The flow is told how its call went."""
        process = self.process
        assert self._flow is not None
        step = self._flow.step
        assert step is not None
        if isinstance(outcome, StoreError):
            step.failed(outcome, now)
        else:
            step.done(outcome, process.local_at(call.sent), now)
        self._go_on()

    # --- holding ------------------------------------------------------------------------------

    def _pin(self, key: bytes, seconds: float) -> None:
        lease = self._book.pin(key, self.process.local, Flag)
        if lease is not None:
            self.process.world.say(self.process, f"holds {key.decode()} for {seconds:g} s")
            self.leases.append(lease)
            self._work(lease, self.process.world.now + seconds)

    def _work(self, lease: KeyLease[Any], until: float) -> None:
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
