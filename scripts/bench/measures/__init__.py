"""The measures, in the order in which they are shown."""

from __future__ import annotations

from result import Measure

from measures import (
    balanced,
    contains,
    libraries,
    memory,
    own_live,
    own_ranges,
    programs,
    ring_changes,
    scaling,
    select,
    thousand,
)

MEASURES: tuple[Measure, ...] = (
    contains.MEASURE,
    select.MEASURE,
    libraries.MEASURE,
    memory.MEASURE,
    *ring_changes.MEASURES,
    thousand.MEASURE,
    *scaling.MEASURES,
    *own_ranges.MEASURES,
    own_live.MEASURE,
    balanced.MEASURE,
    *programs.MEASURES,
)

BY_NAME = {measure.name: measure for measure in MEASURES}
