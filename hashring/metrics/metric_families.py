"""The metrics that exist, by name, and what both collectors make their answers of."""

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

from hashring.core.safe_text import printable

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


_RING: Final = ("ring",)
_NODE: Final = ("ring", "node")
_GROUP: Final = ("group",)
_MEMBER: Final = ("group", "member")

PROCESS_METRICS: Final = (
    Spec("gauge", "hashring_node_state", (*_NODE, "state"), "1 for the state that the node is in."),
    Spec("gauge", "hashring_node_share_ratio", _NODE, "Part of the ring it owns, 0 to 1."),
    Spec("gauge", "hashring_node_peers", _NODE, "Other nodes on the ring, as it knows."),
    Spec("gauge", "hashring_node_epoch", _NODE, "Number of the ring's last change that it knows."),
    Spec(
        "gauge",
        "hashring_node_heartbeat_age_seconds",
        _NODE,
        "Since a heartbeat was answered.",
    ),
    Spec(
        "gauge",
        "hashring_node_heartbeat_duration_seconds",
        _NODE,
        "That the last answered heartbeat took.",
    ),
    Spec("gauge", "hashring_node_ttl_seconds", _NODE, "Without heartbeat until it owns nothing."),
    Spec(
        "gauge",
        "hashring_node_failing_seconds",
        _NODE,
        "Since Redis last answered well; 0 when it does.",
    ),
    Spec("gauge", "hashring_node_garbage_members", _NODE, "Members of the ring, no replicas."),
    Spec("gauge", "hashring_node_keys_held", _NODE, "Keys whose locks it holds."),
    Spec("gauge", "hashring_node_keys_limit", _NODE, "Keys that it may hold."),
    Spec("gauge", "hashring_node_keys_waiting", _NODE, "Keys of its own that another node holds."),
    Spec("gauge", "hashring_node_keys_refused", _NODE, "Keys of its own over its limit."),
    Spec("gauge", "hashring_node_keys_unserved", _NODE, "Refused keys that no node has room for."),
    Spec("counter", "hashring_node_heartbeats", _NODE, "Heartbeats that were answered."),
    Spec("counter", "hashring_node_failures", _NODE, "Calls to Redis that failed."),
    Spec("counter", "hashring_node_fetches", _NODE, "Readings of the whole ring."),
    Spec("counter", "hashring_node_gaps", _NODE, "Times it found that it had missed a change."),
    Spec(
        "counter", "hashring_node_subscriptions", _NODE, "Subscriptions made: connects, reconnects."
    ),
    Spec("counter", "hashring_node_bad_messages", _NODE, "Messages on the channel that were none."),
    Spec("counter", "hashring_node_fences", _NODE, "Times its lease ended before it was renewed."),
    Spec("counter", "hashring_node_losses", _NODE, "Times it found that Redis had lost the ring."),
    Spec(
        "counter", "hashring_node_changes", (*_NODE, "reason"), "Changes of the ring it heard of."
    ),
    Spec("gauge", "hashring_member_partitions_held", _MEMBER, "Partitions that it holds."),
    Spec("gauge", "hashring_member_partitions", _MEMBER, "Partitions that the group has."),
    Spec("gauge", "hashring_member_failing", _MEMBER, "1 while something is wrong, else 0."),
)
"""Every metric of a :class:`~hashring.metrics.ProcessCollector`."""

FLEET_METRICS: Final = (
    Spec("gauge", "hashring_redis_up", (), "1 when Redis answered last time it was asked, else 0."),
    Spec(
        "gauge",
        "hashring_redis_unwatched",
        (),
        "Rings and groups that were found and are not read, being too many.",
    ),
    Spec("histogram", "hashring_redis_round_trip_seconds", (), "Round trips to Redis."),
    Spec("gauge", "hashring_ring_state", (*_RING, "state"), "1 for the state it is in, else 0."),
    Spec("gauge", "hashring_ring_read_age_seconds", _RING, "Since the ring was read."),
    Spec(
        "gauge",
        "hashring_ring_nodes",
        (*_RING, "state"),
        "Nodes that are live, drained by order, away for a restart, or expired.",
    ),
    Spec("gauge", "hashring_ring_zone_nodes", (*_RING, "zone"), "Live nodes that report the zone."),
    Spec("gauge", "hashring_ring_replicas", _RING, "Replicas of live nodes."),
    Spec("gauge", "hashring_ring_epoch", _RING, "Number of the ring's last change."),
    Spec("gauge", "hashring_ring_peak_to_mean_ratio", _RING, "Greatest share over fair share."),
    Spec(
        "gauge",
        "hashring_ring_expected_peak_to_mean_ratio",
        _RING,
        "The same on average over random rings of as many points.",
    ),
    Spec("gauge", "hashring_ring_share_variation_ratio", _RING, "CV of shares over fair shares."),
    Spec(
        "gauge",
        "hashring_ring_expected_share_variation_ratio",
        _RING,
        "The same over random rings of as many points.",
    ),
    Spec("gauge", "hashring_ring_duplicate_points", _RING, "Points that several nodes have."),
    Spec("gauge", "hashring_ring_garbage_members", _RING, "Members that are no replicas."),
    Spec(
        "gauge",
        "hashring_ring_nodes_without_locks",
        _RING,
        "Live nodes that do not lock keys although others do.",
    ),
    Spec("counter", "hashring_ring_changes", (*_RING, "reason"), "Changes of the ring."),
    Spec(
        "histogram",
        "hashring_ring_takeover_seconds",
        _RING,
        "From the last heartbeat of a node that expired to the change that took it off the ring.",
    ),
    Spec("gauge", "hashring_ring_node_up", _NODE, "1 for a live node, 0 for one that expired."),
    Spec("gauge", "hashring_ring_node_share_ratio", _NODE, "Part of the ring it owns, 0 to 1."),
    Spec("gauge", "hashring_ring_node_replicas", _NODE, "Its replicas."),
    Spec("gauge", "hashring_ring_node_load", _NODE, "What it has to do, in its own unit."),
    Spec("gauge", "hashring_ring_node_heartbeat_age_seconds", _NODE, "Since its last heartbeat."),
    Spec("gauge", "hashring_ring_node_ttl_seconds", _NODE, "Its ttl, as it tells."),
    Spec("gauge", "hashring_ring_node_agrees", _NODE, "1 when it saw this ring, 0 when another."),
    Spec("gauge", "hashring_ring_node_keys_held", _NODE, "Keys whose locks it holds, as it tells."),
    Spec("gauge", "hashring_ring_node_keys_limit", _NODE, "Keys that it may hold."),
    Spec("gauge", "hashring_ring_node_keys_unserved", _NODE, "Its keys that no node has room for."),
    Spec("gauge", "hashring_group_state", (*_GROUP, "state"), "1 for the state it is in, else 0."),
    Spec("gauge", "hashring_group_read_age_seconds", _GROUP, "Since the group was read."),
    Spec("gauge", "hashring_group_members", _GROUP, "Members of the group."),
    Spec("gauge", "hashring_group_partitions", _GROUP, "Partitions of the group."),
    Spec("gauge", "hashring_group_unowned_partitions", _GROUP, "Partitions that nobody holds."),
    Spec("gauge", "hashring_group_draining_partitions", _GROUP, "Removed ones, not empty yet."),
    Spec("gauge", "hashring_group_generation", _GROUP, "Number of the group's last decision."),
    Spec(
        "gauge",
        "hashring_group_phase",
        (*_GROUP, "phase"),
        "1 for the phase it is in; without members for none.",
    ),
    Spec("gauge", "hashring_group_waits", (*_GROUP, "reason"), "What it waits for, how often."),
    Spec("gauge", "hashring_group_drained_members", _GROUP, "Members that are drained by order."),
    Spec("gauge", "hashring_group_blocking_members", _GROUP, "Members that others wait for."),
    Spec("counter", "hashring_group_events", (*_GROUP, "kind"), "What happened to the group."),
    Spec(
        "gauge",
        "hashring_group_member_partitions",
        _MEMBER,
        "Partitions that the member holds.",
    ),
)
"""Every metric of a :class:`~hashring.metrics.FleetCollector`."""


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
