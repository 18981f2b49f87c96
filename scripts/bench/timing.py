"""How times are taken."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence


def in_turn(
    calls: dict[str, Callable[[], object]], *, rounds: int, seconds: float = 0.02
) -> dict[str, list[float]]:
    """Seconds of one call of each, of every round.

    The calls are made in turn, so that whatever else the machine does disturbs all of them alike;
    each is repeated for so many seconds a round.
    """
    repeats = {}
    for name, call in calls.items():
        began = time.perf_counter()
        call()
        took = time.perf_counter() - began
        repeats[name] = max(1, round(seconds / max(took, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            span = range(repeats[name])
            began = time.perf_counter()
            for _ in span:
                call()
            times[name].append((time.perf_counter() - began) / repeats[name])
    return times


def best(
    calls: dict[str, Callable[[], object]], *, rounds: int, seconds: float = 0.02
) -> dict[str, float]:
    """Seconds of one call of each: the best of the rounds."""
    return {
        name: min(all_) for name, all_ in in_turn(calls, rounds=rounds, seconds=seconds).items()
    }


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that so large a part of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
