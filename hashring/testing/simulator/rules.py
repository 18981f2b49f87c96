"""What a rule is, and what must hold in every world, besides the rules of its protocol.

**Hears.** Once faults are over and the promised time to recover has passed, no process listens on a
connection that has died without a sign.

**Stops.** A process has ended within a time after it was asked to stop, counted from when its own
connection worked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from hashring.store.command import Command

if TYPE_CHECKING:
    from hashring.testing.simulator.process import Process
    from hashring.testing.simulator.world import World


class Violation(Exception):
    """Something that must not be.

    Attributes:
        rule: the name of the rule that is broken.
        at: seconds from the beginning.
    """

    def __init__(self, rule: str, what: str, at: float) -> None:
        self.rule = rule
        self.at = at
        super().__init__(f"{rule}: {what}")


W = TypeVar("W", bound="World[Any]")
P = TypeVar("P", bound="Process")


class Rule(Generic[W, P]):
    """What is watched. Each method is called when something has just happened, and does nothing
    unless a rule overrides it.
    """

    name: ClassVar[str] = ""

    def begin(self, world: W) -> None:
        """The world is there; nothing has happened."""

    def executed(self, world: W, process: P, command: Command[Any], reply: Any) -> None:
        """Redis has run a command of the process."""

    def touched(self, world: W, lost: bool) -> None:
        """Somebody changed Redis' data behind everyone's back; ``lost`` when it lost some."""

    def set_back(self, world: W) -> None:
        """Somebody set Redis' clock back: what had expired, and is still there, stands again."""

    def ordered(self, world: W) -> None:
        """Somebody has given an order about a node, which takes away what has expired, too."""

    def shown(self, world: W, process: P) -> None:
        """What the process' application may see has changed, or the process has ended."""

    def asked_to_stop(self, world: W, process: P) -> None:
        """The process' application is about to stop it."""

    def told_yes(self, world: W, process: P, keys: Sequence[bytes]) -> None:
        """The process allowed its application to work on these keys."""

    def lease_lost(self, world: W, process: P, key: bytes, session: str) -> None:
        """The process' application sees that a lease on this key, of a session, is lost."""

    def healed(self, world: W) -> None:
        """All is well again since the promised time to recover."""

    def finished(self, world: W) -> None:
        """Nothing has happened for a while since then."""

    def broken(self, world: W, what: str) -> Violation:
        """The violation to raise."""
        return Violation(self.name, what, world.now)


class Hears(Rule[Any, Any]):
    name = "hears"

    def healed(self, world: World[Any]) -> None:
        for process in world.alive:
            for loop in process.loops:
                if loop.listener is not None and loop.listener.stands and loop.listener.deaf:
                    raise self.broken(
                        world, f"{process.spec.label} listens on a connection that is dead"
                    )


class Stops(Rule[Any, Any]):
    """A stop ends in time. See the module.

    Args:
        most: seconds.
        has_ended: whether a process that was asked to stop has.
    """

    name = "stops"

    def __init__(self, most: float, has_ended: Callable[[Any], bool]) -> None:
        self._most = most
        self._has_ended = has_ended
        self._began: dict[str, float] = {}

    def asked_to_stop(self, world: World[Any], process: Process) -> None:
        label = process.spec.label
        began = self._began[label] = world.now

        def look() -> None:
            ended = not process.alive or self._has_ended(process)
            if ended or not process.stopping or self._began[label] != began:
                return
            # A call that began in trouble may go on for that much longer.
            late = max(world.connected_at(process), began) + world.io_timeout + self._most
            if world.now < late:
                world.at(late, look)
            else:
                raise self.broken(world, f"{label} stops since {began:.3f}")

        world.at(began + self._most, look)
