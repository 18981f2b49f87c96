"""Faults for a long time, and whether anything grows."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.chaos import checker
from tests.chaos.checker import exposure, key_seconds, longest
from tests.chaos.faults import FAULTS
from tests.chaos.fleet import Fleet, Timing, Variant, Worker, until
from tests.chaos.scenario import replenish, settled

MIXED = Variant("mixed", ("thread", "gevent", "asyncio"))
MIXED_LOCKS = replace(MIXED, name="mixed, locks", lock=True)

_INTERVAL = 0.1
_REPORT = 2.0
_MORTALS = 2
_SPARE_MEMORY = 2 << 20
_SLACK = {"resident": 0.10, "redis memory": 0.10}
"""Parts by which memory may grow: allocators keep what they had."""

Series = dict[str, list[float]]


@dataclass(frozen=True)
class Soaked:
    """What a soak showed.

    Attributes:
        faults: how many there were.
        grown: what grew, and from what to what.
        first, last: of each thing that could grow, the most in the first third and the least in
            the last one, after a warm-up of a tenth.
        broken: every rule that does not hold, growth included.
    """

    variant: str
    minutes: float
    faults: int
    double: float
    longest_double: float
    none: float
    escaped: tuple[str, ...]
    writes: int
    refused: int
    first: dict[str, float]
    last: dict[str, float]
    broken: tuple[str, ...]


def grown(series: Series) -> tuple[dict[str, float], dict[str, float], list[str]]:
    """What grows for good: even its least in the last third is more than its most in the first."""
    first, last, found = {}, {}, []
    for name, values in sorted(series.items()):
        warm = values[len(values) // 10 :]
        third = len(warm) // 3
        if third < 2:
            continue
        first[name], last[name] = max(warm[:third]), min(warm[-third:])
        kind = name.rpartition(": ")[2]
        allowed = first[name] * (1 + _SLACK.get(kind, 0.0))
        if kind in _SLACK:
            allowed += _SPARE_MEMORY
        if last[name] > allowed:
            found.append(f"{name} grew from {first[name]:g} to {last[name]:g}")
    return first, last, found


def resources(workers: Sequence[Worker]) -> Series:
    """What workers reported of themselves, by ``kind: what``."""
    found: Series = defaultdict(list)
    for worker in workers:
        for line in worker.lines():
            if line[0] == "resources":
                for what, value in line[2].items():
                    found[f"{worker.job.kind}: {what}"].append(float(value))
    return found


def soak(
    variant: Variant,
    minutes: float,
    timing: Timing,
    *,
    seed: int,
    resource: str,
    program: Path | None = None,
    keep: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Soaked:
    """One random fault after another, with a veteran of each kind that lives through all of them.

    With locks only faults in which Redis forgets nothing: then no key may ever have two owners.
    """
    timing = replace(timing, interval=_INTERVAL)
    usable = [
        fault
        for fault in FAULTS.values()
        if fault.topology == "single" and fault.nodes == 1 and not (variant.lock and fault.loses)
    ]
    with Fleet(
        variant, timing, resource=resource, program=program, seed=seed, report=_REPORT
    ) as fleet:
        veterans = fleet.add(len(variant.kinds), veteran=True)
        count = len(veterans) + _MORTALS
        fleet.add(_MORTALS)
        until(lambda: settled(fleet), "every key has one owner")
        begin, faults = fleet.mark("steady"), 0
        servers: Series = defaultdict(list)
        while time.monotonic() < begin + 60 * minutes:
            fault = fleet.rng.choice(usable)
            progress(f"{variant.name}, {time.monotonic() - begin:.0f} s: {fault.name}")
            fault.act(fleet)
            faults += 1
            time.sleep(fleet.rng.uniform(0.0, timing.ttl))
            replenish(fleet, count)
            time.sleep(2 * timing.heartbeat)
            clients = fleet.redis.info("clients")["connected_clients"]
            servers["connections to redis"].append(float(clients))
            servers["redis memory"].append(float(fleet.redis.info("memory")["used_memory"]))
            servers["keys in redis"].append(float(fleet.redis.dbsize()))
        until(lambda: settled(fleet), "every key has one owner after the last fault")
        end = time.monotonic() - 2 * timing.interval
        if keep is not None:
            fleet.save(keep / f"soak-{variant.name}-{seed}")
        found = exposure(fleet.lives(), veterans[0].job.keys, begin, end)
        first, last, broken = grown({**servers, **resources(veterans)})
        if variant.lock and found.double:
            broken.append(f"two owners for {longest(found.double):.3f} s in spite of locks")
        broken += [f"escaped: {each}" for each in fleet.escaped()]
        broken += [f"fenced resource: {each}" for each in checker.fence_breaks(fleet.writes())]
        return Soaked(
            variant=variant.name,
            minutes=minutes,
            faults=faults,
            double=key_seconds(found.double),
            longest_double=longest(found.double),
            none=key_seconds(found.none),
            escaped=tuple(fleet.escaped()),
            writes=len(fleet.writes()),
            refused=fleet.count("refused"),
            first=first,
            last=last,
            broken=tuple(broken),
        )


GROWTH = ("fleet", "what", "most in the first third", "least in the last third")


def growth_rows(soaked: Sequence[Soaked]) -> list[list[str]]:
    """A row for each thing that might have grown."""
    return [
        [each.variant, name, f"{each.first[name]:.10g}", f"{each.last[name]:.10g}"]
        for each in soaked
        for name in each.first
    ]
