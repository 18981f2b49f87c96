"""Every number that the project sets itself: targets.csv, a line each."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

from frame import Target

RING, LOCKS, GROUPS, SERVICE, PIPELINE, SCALE = (
    "The ring",
    "Locks and limits",
    "Groups",
    "The service",
    "The pipeline",
    "A thousand nodes",
)
"""The rooms that measures and targets belong to."""


def _target(row: dict[str, str]) -> Target:
    limit = float(Fraction(row.pop("limit")))
    return Target(limit=limit, **row)


with Path(__file__).with_suffix(".csv").open(newline="") as _table:
    TARGETS: tuple[Target, ...] = tuple(map(_target, csv.DictReader(_table)))

BY_KEY = {target.key: target for target in TARGETS}
