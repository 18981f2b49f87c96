"""What both collectors make their answers of."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from hashring.core.printable import printable

_LONGEST: Final = 120
_FAMILIES: Final = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}


class Spec(NamedTuple):
    """A metric: all there is to know of it but its values.

    Attributes:
        kind: ``gauge``, ``counter`` or ``histogram``.
        name: without the ``_total`` of a counter.
        labels: the names of its labels.
        text: what it means.
    """

    kind: str
    name: str
    labels: tuple[str, ...]
    text: str


class Families:
    """The metrics of one answer, each present whether it has a value or not.

    A second value for the same labels is left out: one series that is there twice makes
    Prometheus refuse the whole answer, and names that differ may be shown alike.
    """

    def __init__(self, specs: Sequence[Spec]) -> None:
        self._added: set[tuple[str, ...]] = set()
        self._families: dict[str, Metric] = {
            spec.name: (
                HistogramMetricFamily(spec.name, spec.text, labels=spec.labels)
                if spec.kind == "histogram"
                else _FAMILIES[spec.kind](spec.name, spec.text, labels=spec.labels)
            )
            for spec in specs
        }

    def add(self, name: str, labels: Sequence[str], value: float | None) -> None:
        """A value; ``None`` for none."""
        if value is not None and self._is_new(name, labels):
            self._families[name].add_metric(labels, value)  # type: ignore[attr-defined]

    def add_buckets(self, name: str, labels: Sequence[str], values: Buckets) -> None:
        """The values of a histogram."""
        if self._is_new(name, labels):
            self._families[name].add_metric(  # type: ignore[attr-defined]
                labels, list(values.cumulated()), values.total
            )

    def _is_new(self, name: str, labels: Sequence[str]) -> bool:
        series = (name, *labels)
        known = series in self._added
        self._added.add(series)
        return not known

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._families.values())


@dataclass
class Buckets:
    """A histogram that is counted here."""

    bounds: tuple[float, ...]
    total: float = 0.0
    counts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """One more value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulated(self) -> Iterator[tuple[str, float]]:
        """Each bound with how many values are not above it."""
        count = 0
        for bound, own in zip((*self.bounds, float("inf")), self.counts, strict=True):
            count += own
            yield ("+Inf" if bound == float("inf") else repr(float(bound))), count


def label(name: str) -> str:
    """Anybody's name as the value of a label: printable, and of bounded length."""
    shown = printable(name)
    if len(shown) <= _LONGEST:
        return shown
    # Two long names that begin alike stay two.
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{shown[: _LONGEST - 9]}…{digest}"


def one_hot(states: Sequence[str], state: str) -> Mapping[str, float]:
    """1 for the state that holds, 0 for the others."""
    return {each: float(each == state) for each in states}
