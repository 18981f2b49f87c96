"""What members report of how busy their partitions are, and how often those moved for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

from hashring.core.assignors.load import LoadAssignor, too_hot
from hashring.core.assignors.situation import GroupSituation
from hashring.core.assignors.target_assignment import Assignor
from hashring.core.groups.state import MemberFacts
from hashring.core.value_checks import plain_number
from hashring.errors import ConfigError

LOOKED_AT_EVERY: Final = 10.0
"""Seconds after which a group with the assignor ``load`` looks at its loads again."""

WINDOW: Final = 60.0
"""Seconds for which a move for load counts as recent."""

GREATEST: Final = 1e15
"""Loads are below this, so that sums of them stay finite."""


def check_load(value: float) -> float:
    """The load itself, when it is one.

    Raises:
        ConfigError: it is no finite number, below 0, or 1e15 and more.
    """
    plain = plain_number(value)
    if plain is None or not 0 <= plain < GREATEST:
        raise ConfigError("load", value, "give a finite number from 0 to 1e15")
    return float(plain)


def reported(
    members: Iterable[MemberFacts], holder: Callable[[int], str | None], partitions: int
) -> dict[int, float]:
    """The load of each partition, as far as somebody reports it.

    The word of the present holder counts. Until a new holder reports, that of the last one does.
    """
    found: dict[int, float] = {}
    by_holder: dict[int, float] = {}
    for member in sorted(members, key=lambda m: m.name):
        for partition, load in member.loads.items():
            if not 0 <= partition < partitions:
                continue
            found[partition] = load
            if holder(partition) == member.name:
                by_holder[partition] = load
    return found | by_holder


def recent(moves: Iterable[float], now: float) -> tuple[float, ...]:
    """Those of the moves, given by their Redis times, that are recent."""
    return tuple(at for at in moves if now - WINDOW < at)


def hot(assignor: Assignor, situation: GroupSituation) -> tuple[int, ...]:
    """The partitions too busy for any member; none unless the assignor goes by load."""
    return too_hot(situation, assignor.factor) if isinstance(assignor, LoadAssignor) else ()


def looks(assignor: Assignor) -> bool:
    """Whether the assignor's answer changes with loads, which change without any notice."""
    return isinstance(assignor, LoadAssignor)


def paced(assignor: Assignor, moves: int, recent_moves: int) -> float:
    """Seconds that moves for load wait for the minute of earlier ones to be over; 0 for others.

    Args:
        moves: how many are to be made for load.
        recent_moves: how many were made within the last minute.
    """
    if not isinstance(assignor, LoadAssignor):
        return 0.0
    waiting = moves - max(0, assignor.moves - recent_moves)
    return WINDOW * max(0, math.ceil(waiting / assignor.moves))
