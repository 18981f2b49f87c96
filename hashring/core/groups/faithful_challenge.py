"""The faithful challenge: leases by race, as the author of the article wrote it.

Once per normal lease time each partition is challenged; everybody waits for a time that grows with
the number of partitions it has, and then tries to set the grab; who is first, owns. A node that
answers late loses what it should keep and a node under load always answers late: its author
withdrew it for that. It is here to be looked at, and to be measured against
:mod:`.lease_challenge`, which is for use.

The article gives two formulas for each wait that contradict each other. This is the one pair of
them in which an owner with ``n`` partitions keeps against a challenger with ``n - 1`` and loses
against one with ``n - 2``, in both cases by half a delay.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hashring.core.value_checks import checked_seconds
from hashring.errors import ConfigError


@dataclass(frozen=True)
class FaithfulChallengeSpans:
    """The article's five time spans, in seconds.

    Attributes:
        normal_lease: how long a partition is generally not challenged.
        max_lease: after so long without a signal its owner counts as gone; much longer.
        max_shutdown: how long an owner that lost may take to stop.
        min_grab: how long a won grab stands before it can be challenged; below ``normal_lease``,
            and above ``max_shutdown``, for which its winner waits when the owner is silent.
        held_delay: the wait for each partition held.

    Raises:
        ConfigError: spans that contradict each other.
    """

    normal_lease: float = 60.0
    max_lease: float = 180.0
    max_shutdown: float = 2.0
    min_grab: float = 30.0
    held_delay: float = 0.25

    def __post_init__(self) -> None:
        for name in ("normal_lease", "max_lease", "max_shutdown", "min_grab", "held_delay"):
            # Frozen; and numpy's numbers may not stay what they are.
            object.__setattr__(self, name, checked_seconds(name, getattr(self, name)))
        if self.max_lease < 2 * self.normal_lease:
            raise ConfigError(
                "max_lease", self.max_lease, f"must be at least twice the {self.normal_lease:g} s "
                f"of normal_lease"
            )  # fmt: skip
        if self.min_grab >= self.normal_lease:
            raise ConfigError(
                "min_grab", self.min_grab, f"must be below the {self.normal_lease:g} s of "
                f"normal_lease"
            )  # fmt: skip
        if self.min_grab <= self.max_shutdown:
            raise ConfigError(
                "min_grab", self.min_grab, f"must be above the {self.max_shutdown:g} s of "
                f"max_shutdown"
            )  # fmt: skip


class Signal(str, Enum):
    """What a node does about a partition when its timer fires (steps 1.1 and 1.2)."""

    NOTHING = "nothing"
    CHALLENGE = "challenge"
    CLEAR_AND_CHALLENGE = "clear and challenge"


def signal(*, owned: bool, grabbed: bool, silent: float, spans: FaithfulChallengeSpans) -> Signal:
    """Whether to challenge a partition.

    Args:
        owned: this node has it.
        grabbed: the grab is set.
        silent: seconds since a challenge of it was last heard.
    """
    if owned:
        return Signal.NOTHING
    if silent > spans.max_lease:
        return Signal.CLEAR_AND_CHALLENGE
    if grabbed or silent < spans.normal_lease:
        return Signal.NOTHING
    return Signal.CHALLENGE


def race_wait(*, owned: bool, active: int, spans: FaithfulChallengeSpans) -> float:
    """Seconds from hearing a challenge until trying to set the grab (step 2).

    Args:
        owned: this node has the partition.
        active: how many partitions it has, that one included.
    """
    return (active - 0.5 if owned else active + 1) * spans.held_delay


class AfterRace(str, Enum):
    """What a node does once the race is run (steps 3 to 5)."""

    KEEP = "keep"
    STOP = "stop"
    WAIT = "wait"
    """Won, but another still works: wait for it to stop, at most the maximum shutdown time."""
    START = "start"
    NOTHING = "nothing"


def after_race(*, won: bool, owned: bool, busy: bool) -> AfterRace:
    """What follows from a race.

    Args:
        won: this node set the grab.
        owned: it has the partition.
        busy: another node still works on it, says the lease allocation.
    """
    if owned:
        return AfterRace.KEEP if won else AfterRace.STOP
    if not won:
        return AfterRace.NOTHING
    return AfterRace.WAIT if busy else AfterRace.START
