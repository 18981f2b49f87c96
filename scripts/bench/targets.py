"""Every number that the project sets itself: targets.csv, a line each."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from result import number

RING, LOCKS, GROUPS, SERVICE, PIPELINE, SCALE = (
    "The ring",
    "Locks and limits",
    "Groups",
    "The service",
    "The pipeline",
    "A thousand nodes",
)
"""The rooms that measures and targets belong to."""


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


def _target(row: dict[str, str]) -> Target:
    limit = float(Fraction(row.pop("limit")))
    return Target(limit=limit, **row)


with Path(__file__).with_suffix(".csv").open(newline="") as _table:
    TARGETS: tuple[Target, ...] = tuple(map(_target, csv.DictReader(_table)))

BY_KEY = {target.key: target for target in TARGETS}
