"""What a measure is, and how times are taken."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Target:
    """A number to reach.

    Attributes:
        key: by which a measure names it.
        room: the part of the project it belongs to.
        what: what is measured, in words.
        sign: ``"<="`` or ``">="``.
        limit: the number.
        unit: ``"x"`` for a ratio, else ``"ms"``, ``"s"``, ...
        measure: which measure takes it.
    """

    key: str
    room: str
    what: str
    sign: str
    limit: float
    unit: str
    measure: str

    @property
    def bound(self) -> str:
        return f"{self.sign} {number(self.limit, self.unit)}"

    def met(self, value: float) -> bool:
        return value <= self.limit if self.sign == "<=" else value >= self.limit


@dataclass(frozen=True)
class Line:
    """One line of a measure's table.

    Attributes:
        what: what was measured.
        ours: its value, with the unit.
        against: the peer's or floor's value, where there is one.
        value: what is held against the target; the ratio, where there is a peer.
        unit: of ``value``.
        target: key of the target.
    """

    what: str
    ours: str
    against: str = ""
    value: float | None = None
    unit: str = "x"
    target: str | None = None


@dataclass(frozen=True)
class Plot:
    """A plot: for each name its points, drawn as lines."""

    name: str
    title: str
    x: str
    y: str
    series: dict[str, list[tuple[float, float]]]
    log_x: bool = False
    log_y: bool = False


@dataclass
class Result:
    """What a measure found.

    Attributes:
        lines: its table.
        plots: its plots.
        notes: sentences that belong below the table.
        values: numbers that other pages are made of, by name.
    """

    lines: list[Line] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)

    def add(self, what: str, ours: str, against: str = "", **more: Any) -> None:
        self.lines.append(Line(what, ours, against, **more))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> Result:
        return cls(
            [Line(**line) for line in data["lines"]],
            [Plot(**plot) for plot in data["plots"]],
            list(data["notes"]),
            dict(data.get("values", {})),
        )


@dataclass(frozen=True)
class Run:
    """How a measure is to be taken.

    Attributes:
        quick: fewer nodes, fewer rounds: whether it works at all, not what it costs.
        say: tells of the progress.
    """

    quick: bool
    say: Callable[[str], None]


@dataclass(frozen=True)
class Measure:
    """A measure.

    Attributes:
        name: by which it is asked for.
        room: the part of the project it belongs to.
        title: its heading.
        about: what is measured and how: a paragraph of reStructuredText.
        seconds: how long it takes, about.
        take: takes it.
    """

    name: str
    room: str
    title: str
    about: str
    seconds: int
    take: Callable[[Run], Result]


def number(value: float, unit: str) -> str:
    """A number with its unit, as precise as it is worth reading."""
    if unit == "x" and 0 < value < 0.1:
        return f"1/{1 / value:.0f}"
    if unit == "%":
        return f"{value:.1f} %"
    shown = f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return shown if unit == "x" else f"{shown} {unit}".rstrip()


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
