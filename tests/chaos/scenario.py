"""One fault, or a sequence of them, on one fleet; and the verdict on its history."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos import checker
from tests.chaos.checker import exposure, key_seconds, longest
from tests.chaos.faults import FAULTS, Bounds, Fault
from tests.chaos.fleet import Fleet, FleetError, Timing, Variant, until

_SETTLED = 0.5
_REST = 1.0
_JOINS = 15.0  # seconds that a new process may take to start and to join


@dataclass(frozen=True)
class Result:
    """What a fault did to a fleet. Times in seconds; infinite where something never came.

    Attributes:
        seed: of the choices made, among them the victim.
        timing: what the nodes were set to.
        double, none: key-seconds with two owners, and with none.
        longest_double, longest_none: the longest windows of them.
        recovery: from the end of the fault until every key has one owner, for good; never, when
            the fleet does not follow changes afterwards.
        escaped: exceptions that reached the user.
        fenced: what the fenced resource accepted and should not have.
        locked: keys that two held at once, and tokens that did not rise.
        refused: writes that it refused.
        follows: whether afterwards, when a node left and another came, every key had one owner
            again within the propagation window.
        failed: what the fleet did not do during a fault or after it, so that the run ended there.
        bounds: what was promised.
        late: the longest that this machine kept a sleeping thread waiting: added to each bound.
        silence: the longest that a running node did not answer.
        broken: the rules that do not hold.
    """

    fault: str
    variant: str
    seed: int
    timing: Timing
    double: float
    longest_double: float
    none: float
    longest_none: float
    recovery: float
    escaped: tuple[str, ...]
    fenced: tuple[str, ...]
    locked: tuple[str, ...]
    writes: int
    refused: int
    follows: bool
    bounds: Bounds
    late: float
    silence: float
    failed: str = ""
    broken: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        return {
            name: None if value == checker.NEVER else value for name, value in asdict(self).items()
        }


class Lateness:
    """Measures how long the machine keeps a thread waiting that wants to run."""

    def __init__(self) -> None:
        self.worst = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while True:
            before = time.monotonic()
            if self._end.wait(0.02):
                return
            self.worst = max(self.worst, time.monotonic() - before - 0.02)

    def __enter__(self) -> Lateness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def run(
    faults: Sequence[Fault],
    variant: Variant,
    timing: Timing,
    *,
    seed: int,
    resource: str = "",
    program: Path | None = None,
    keep: Path | None = None,
) -> Result:
    """Do the faults, one after another with random pauses, to a fleet of the variant.

    Raises:
        FleetError: before the first fault. Later, what the fleet fails to do breaks a rule.
    """
    first = faults[0]
    with (
        Lateness() as lateness,
        Fleet(
            variant,
            timing,
            resource=resource,
            topology=first.topology,
            program=program,
            seed=seed,
        ) as fleet,
    ):
        fleet.add(first.workers, nodes=first.nodes)
        until(lambda: settled(fleet), "every key has one owner")
        begin = fleet.mark("steady")
        lateness.worst = 0.0
        failed = afflict(fleet, faults, Random(seed))
        bounds = together([fault.bounds(fleet) for fault in faults])
        # Long enough for whatever the nodes do by timers of their own.
        patience = bounds.recovery + _REST
        if variant.peer:
            patience = max(patience, 3 * timing.ttl + timing.heartbeat + _REST)
        if not failed:
            time.sleep(max(0.0, fleet.marked("healed") + patience - time.monotonic()))
        probed = time.monotonic()
        failed = failed or probe(fleet)
        changed = fleet.mark("changed")
        time.sleep(timing.window + lateness.worst + _REST)
        last = time.monotonic() - 2 * timing.interval
        keys = fleet.workers[0].job.keys
        lives = fleet.lives()
        if keep is not None:
            fleet.save(keep / f"{first.name}-{variant.name}-{seed}")
        found = exposure(lives, keys, begin, last)
        after = exposure(lives, keys, changed + timing.window + lateness.worst, last)
        follows = not failed and not after.double and not after.none
        recovery = exposure(lives, keys, begin, probed).recovered_after(fleet.marked("healed"))
        result = Result(
            fault=" ".join(fault.name for fault in faults),
            variant=variant.name,
            seed=seed,
            timing=timing,
            double=key_seconds(found.double),
            longest_double=longest(found.double),
            none=key_seconds(found.none),
            longest_none=longest(found.none),
            recovery=recovery if follows else checker.NEVER,
            follows=follows,
            escaped=tuple(fleet.escaped()),
            fenced=tuple(checker.fence_breaks(fleet.writes())),
            locked=tuple(checker.lock_breaks(fleet.holds())),
            writes=len(fleet.writes()),
            refused=fleet.count("refused"),
            bounds=bounds,
            late=lateness.worst,
            silence=max(
                (checker.longest_silence(life, last) for life in lives if life.since < last),
                default=0.0,
            ),
            failed=failed,
        )
    return judged(result, sequence=len(faults) > 1)


def afflict(fleet: Fleet, faults: Sequence[Fault], rng: Random) -> str:
    """Do the faults; what the fleet did not do in one of them, after which there is no other."""
    for number, fault in enumerate(faults):
        fleet.mark("fault")  # so that it is marked even if the fault does not get there
        try:
            if number:
                time.sleep(rng.uniform(0.0, fleet.timing.ttl))
                replenish(fleet, faults[0].workers)
            fault.act(fleet)
        except FleetError as error:
            fleet.mark("healed")
            return f"{fault.name}: {error}"
    return ""


def replenish(fleet: Fleet, workers: int) -> None:
    """Start what is missing, as a supervisor would, and undo what was done to the network."""
    for worker in fleet.running:
        if worker.proxy is not None:
            worker.proxy.heal()
    if missing := workers - len(fleet.running):
        fleet.add(missing, wait=not fleet.variant.peer)


def probe(fleet: Fleet) -> str:
    """Let a node leave and another come; what they did not do."""
    try:
        fleet.stop(fleet.mortal())
    except FleetError as error:
        return str(error)
    (added,) = fleet.add(wait=False)
    deadline = time.monotonic() + _JOINS
    while not added.told("live"):
        if time.monotonic() > deadline:
            return f"a node that comes afterwards is not on the ring after {_JOINS:g} s"
        time.sleep(0.02)
    return ""


def settled(fleet: Fleet) -> bool:
    """Whether every key has had exactly one owner for a while."""
    time.sleep(0.2)
    now = time.monotonic() - 2 * fleet.timing.interval
    lives = fleet.lives()
    found = exposure(lives, fleet.workers[0].job.keys, now - _SETTLED, now)
    return not found.double and not found.none


def together(bounds: Sequence[Bounds]) -> Bounds:
    """The widest of each: faults in a row overlap."""
    return Bounds(
        max(each.double for each in bounds),
        max(each.none for each in bounds),
        max(each.recovery for each in bounds),
        max(each.silence for each in bounds),
    )


def judged(result: Result, *, sequence: bool = False) -> Result:
    """The result with the rules that it breaks.

    Of a sequence, whose faults overlap at random, only what holds whatever happens is judged:
    recovery, answers, exceptions, and with locks that no key has two owners unless Redis forgot.
    """
    bounds, late = result.bounds, result.late
    broken = [result.failed] if result.failed else []

    def check(what: str, value: float, bound: float) -> None:
        if value > bound + late:
            broken.append(f"{what} {value:.2f} s, promised {bound:.2f} s")

    if bounds.double == 0.0 and result.double > 0.0:
        broken.append(f"two owners for {result.longest_double:.3f} s in spite of locks")
    elif not sequence:
        check("two owners for", result.longest_double, bounds.double)
    if not sequence:
        check("no owner for", result.longest_none, bounds.none)
    if result.follows:
        check("right again after", result.recovery, bounds.recovery)
    elif not result.failed:
        broken.append("a node that leaves and one that comes are not followed any more")
    check("a running node did not answer for", result.silence, bounds.silence)
    if result.escaped:
        broken.append(f"{len(result.escaped)} exceptions escaped: {result.escaped[0]}")
    broken += [f"fenced resource: {each}" for each in result.fenced]
    if bounds.double == 0.0:
        broken += [f"locks: {each}" for each in result.locked]
    return Result(**{**vars(result), "broken": tuple(broken)})


def random_sequences(count: int, length: int, seed: int) -> list[tuple[int, list[Fault]]]:
    """Sequences of faults that need no second Redis, each with the seed that gives it again."""
    usable = [fault for fault in FAULTS.values() if fault.topology == "single" and fault.nodes == 1]
    return [
        (seed + number, Random(seed + number).sample(usable, length)) for number in range(count)
    ]
