"""What a measure is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


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
