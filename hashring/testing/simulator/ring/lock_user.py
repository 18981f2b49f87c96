"""What works on keys in a process of a ring with locks, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from threading import Event as Flag
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hashring.core.ring import Ring
from hashring.errors import NotHeld
from hashring.node.lock_flows import Asking, Hold, TryAgain, Window
from hashring.protocol.flow import Flow
from hashring.protocol.locks.key_lease import KeyLease
from hashring.store.command import Command
from hashring.testing.simulator.network import Call
from hashring.testing.simulator.ring.history import LockTerms
from hashring.testing.simulator.simulated_flows import FlowCaller

if TYPE_CHECKING:
    from hashring.testing.simulator.ring.process import RingProcess


T = TypeVar("T")

_NOTHING: Final[Window] = ((), float("-inf"), Ring())


_PATIENCE: Final = (0.0, 0.3, 1.0, 2.5, 5.0)
"""For how many seconds a hold may wait."""


class User(FlowCaller["RingProcess"]):
    """What works on keys in a process: it asks its node for them, again and again, and holds some.

    It asks and holds by the flows of ``select`` and ``hold`` of :class:`hashring.RingNode`.
    """

    def __init__(self, process: RingProcess, terms: LockTerms) -> None:
        super().__init__(process)
        world = process.world
        self._rng = Random(f"{world.history.seed} user {process.spec.label}")
        self._patience = Random(f"{world.history.seed} patience {process.spec.label}")
        self._keys = terms.keys
        self._every = self._rng.choice((0.3, 0.6))
        self._asked_all = False
        self._waits = True
        self._put_off: dict[bytes, float] = {}
        self.idle_until = 0.0
        """True time up to which it asks for nothing."""
        self.holds: list[Hold] = []
        """What it is at work on."""
        self.holders: list[Holder] = []
        """What waits to hold a key."""
        self.given_up: list[tuple[Hold, float, NotHeld]] = []
        """Holds that came to nothing, when by the process' clock, and why."""
        self.cancels: list[float] = []
        """Of each question that is to be cancelled, how long after it has sent its call."""
        book = process.machine.book
        assert book is not None
        self.asking = Asking(process.machine, book, self._window, process.local, self._poke)
        world.at(world.now + self._rng.random() * self._every, self._turn)

    def hold(self, key: bytes, seconds: float) -> None:
        """Hold a key for that long: now, or once it is told that it may work on it."""
        if self.process.stopping:
            self._put_off[key] = seconds
        elif self.process.paused:
            self.process.soon(0.0, lambda: self.hold(key, seconds))
        else:
            Holder(self, key, self._patience.choice(_PATIENCE), seconds).begin()

    def give_up(self, hold: Hold, seconds: float, error: NotHeld) -> None:
        """It could not be held: hold it once it is told that it may work on it."""
        self.given_up.append((hold, self.process.local(), error))
        self._put_off[hold.key] = seconds

    def go_on(self) -> None:
        """Ask again: the process was started again."""
        if not self._waits:
            self._waits = True
            self._turn()

    def stopped(self) -> None:
        """The node has left: what waits to hold a key gives up."""
        for holder in self.holders[:]:
            holder.stopped()

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
            self.run(self.and_let_go(self.asking.select(some, None)), self._told)

    def and_let_go(self, flow: Flow[T]) -> Flow[T]:
        """A flow, and after it what the node lets go of if it has left meanwhile."""
        refused = None
        try:
            result = yield from flow
        except NotHeld as error:
            refused = error
        if self.asking.book.left:
            yield from self.asking.let_go()
        if refused is not None:
            raise refused
        return result

    def call(self, command: Command[Any]) -> None:
        """Send a command; its caller may be cancelled before the answer."""
        super().call(command)
        if self.cancels:
            call = self.busy
            self.process.soon(self.cancels.pop(), lambda: self._cancel(call))

    def _cancel(self, call: Call | None) -> None:
        if self.busy is not call:
            return
        self.cancel()
        self.process.world.say(self.process, "its question is cancelled")
        if self.asking.book.left:
            self._release_late()
        self.asking.stir()

    def _release_late(self) -> None:
        """Let go of what is left after the node has stopped, or while it does."""
        releases: FlowCaller[RingProcess] = FlowCaller(self.process)
        releases.run(self.asking.let_go(), lambda _: self.process.callers.remove(releases))

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

    def _told(self, keys: list[bytes]) -> None:
        self.process.world.told_yes(self.process, keys)
        for key in keys:
            if key in self._put_off:
                self.hold(key, self._put_off.pop(key))

    def failed(self, error: Exception) -> None:
        """A flow of its has raised: it must not."""
        raise error

    # --- holding ------------------------------------------------------------------------------

    @property
    def leases(self) -> list[KeyLease[Any]]:
        """The leases on what it is at work on."""
        return [hold.lease for hold in self.holds if hold.lease is not None]

    def work(self, hold: Hold, lease: KeyLease[Any], seconds: float) -> None:
        """Work on what is held, for that long."""
        self.holds.append(hold)
        self._work(hold, lease, self.process.world.now + seconds)

    def _work(self, hold: Hold, lease: KeyLease[Any], until: float) -> None:
        process, world = self.process, self.process.world
        if not process.alive:
            return
        finished = world.now >= until or lease.lost.is_set()
        if lease.lost.is_set() and not lease.revoked.is_set() and not process.paused:
            for rule in world.rules:
                rule.lease_lost(world, process, hold.key, lease.former)
        if lease.revoked.is_set():
            finished = finished or self._rng.random() < 0.2
        if finished and not process.paused:
            self.holds.remove(hold)
            if self.asking.book.unpin(hold, process.local()) and self.asking.book.left:
                self._release_late()
            self.asking.stir()
        else:
            world.at(world.now + 0.1, lambda: self._work(hold, lease, until))


class Holder(FlowCaller["RingProcess"]):
    """What holds one key in a process, like a thread in ``with node.hold(key, timeout=...)``.

    Args:
        user: works on what is held.
        key: the key.
        timeout: for how many seconds it may wait.
        seconds: for how long it is to be held.
    """

    def __init__(self, user: User, key: bytes, timeout: float, seconds: float) -> None:
        super().__init__(user.process)
        self._user = user
        self._seconds = seconds
        self.hold = user.asking.hold(key, timeout, Flag)
        self._waiting = False
        self._stopped = False

    def begin(self) -> None:
        """Try for the first time."""
        self._user.holders.append(self)
        self._attempt()

    def _attempt(self) -> None:
        self.run(self._user.and_let_go(self.hold.attempt()), self._tried)

    def _tried(self, answer: KeyLease[Any] | TryAgain) -> None:
        if isinstance(answer, TryAgain):
            self._wait(answer.seconds)
            return
        self._end(f"holds {self.hold.key.decode()} for {self._seconds:g} s")
        self._user.work(self.hold, answer, self._seconds)

    def _wait(self, seconds: float) -> None:
        if self._stopped:
            self.failed(self.hold.refusal(waited=False))
            return
        if not self._waiting:
            self._waiting = True
            self.process.world.say(self.process, f"waits to hold {self.hold.key.decode()}")
        # A hair later, since adding to the time may lose a bit.
        self.process.soon(seconds / self.process.spec.rate + 1e-9, self._try_again)

    def _try_again(self) -> None:
        if self in self._user.holders:
            self._attempt()

    def stopped(self) -> None:
        """The node has left: it waits no more."""
        self._stopped = True
        if self.busy is None:
            self.failed(self.hold.refusal(waited=False))

    def failed(self, error: Exception) -> None:
        """It could not be held."""
        if not isinstance(error, NotHeld):
            raise error
        self._end(f"does not hold it: {error}")
        self._user.give_up(self.hold, self._seconds, error)

    def _end(self, what: str) -> None:
        self.hold.over()
        self.process.world.say(self.process, what)
        self._user.holders.remove(self)
        self.process.callers.remove(self)
