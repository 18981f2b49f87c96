"""Many random rings: what the number of points, placement and limits buy, and what they cost.

Each ring is drawn, measured, joined by one more node, and left by one. Random placement runs on
numpy; balanced placement runs the very code that live nodes run (:mod:`hashring.core.placement`)
and is some hundred times slower. Equal seeds give equal numbers, on any number of cores.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.hashing import RING_SIZE
from hashring.core.placement import balanced_points, check_placement
from hashring.core.ring import Ring
from hashring.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

KEYS_PER_NODE: Final = 1000
"""How many random keys a node are spread to see what a limit does."""
CHURN: Final = 1
"""A balanced ring is built by joins, then by as many leaves and joins as this times its nodes, so
that what is measured is a fleet in use and not one freshly built."""
MOST_POINTS: Final = 5_000_000
_LEAST_TASKS: Final = 16
_TASKS_PER_CORE: Final = 4
_MANY: Final = 1_000_000
"""More than any cluster has cores."""
_DRAWN_POINTS: Final = 100_000_000
_SHARES: Final = 1_000_000
_LEAST_RINGS: Final = 1000
_MOST_RINGS: Final = 20_000

_RESULT: Final = """nodes int, replicas int, placement string, weights string, limit double,
    ring int, peak_to_mean double, cv double, join_moved double, join_least double,
    leave_moved double,
    leave_least double, peak_after_leave double, spilled double, join_moved_keys double"""


@dataclass(frozen=True)
class Scenario:
    """A kind of ring.

    Attributes:
        nodes: how many.
        replicas: points of a node of weight 1.
        placement: ``random`` or ``balanced``.
        weights: given to the nodes in turn: (1, 2) makes every second node twice as strong.
        limit: a node takes at most ``limit`` times its fair share of keys, and what it refuses
            goes to the next node on the ring with room; ``None`` for no limit.

    Raises:
        ConfigError: a value that makes no ring.
    """

    nodes: int
    replicas: int = 16
    placement: str = "random"
    weights: tuple[float, ...] = (1.0,)
    limit: float | None = None

    def __post_init__(self) -> None:
        check_placement(self.placement)
        if self.nodes < 2:
            raise ConfigError("nodes", self.nodes, "a ring that a node can leave has two at least")
        if self.replicas < 1:
            raise ConfigError("replicas", self.replicas, "a node has at least one point")
        if not self.weights or not all(0 < weight < math.inf for weight in self.weights):
            raise ConfigError("weights", self.weights, "give positive numbers; 1 is ordinary")
        if self.limit is not None and not 1 <= self.limit < math.inf:
            raise ConfigError(
                "limit", self.limit, "below 1 the nodes have not room for all keys; 1.25 is usual"
            )
        if self.nodes * self.replicas * max(self.weights) > MOST_POINTS:
            raise ConfigError(
                "replicas",
                self.replicas,
                f"makes a ring of more than {MOST_POINTS:,} points: give fewer nodes or replicas",
            )


def scenarios(
    nodes: Iterable[int],
    replicas: Iterable[int] = (16,),
    placements: Iterable[str] = ("random",),
    weights: tuple[float, ...] = (1.0,),
    limits: Iterable[float | None] = (None,),
) -> list[Scenario]:
    """Every combination."""
    return [
        Scenario(n, r, p, weights, limit)
        for n, r, p, limit in itertools.product(nodes, replicas, placements, limits)
    ]


def simulate(
    spark: SparkSession, kinds: Iterable[Scenario], rings: int = 1000, seed: int = 0
) -> DataFrame:
    """Draw and measure rings of each kind.

    Returns:
        One row a ring: the scenario (``weights`` as text, comma-separated), ``ring`` (its
        number), and

        ``peak_to_mean``: the largest share of the ring over its node's fair share;
        ``cv``: the standard deviation of (share / fair share);
        ``join_moved``, ``join_least``: the share of the ring that one more node of weight 1 takes
        over, and its fair share;
        ``leave_moved``, ``leave_least``: the share of the ring that a node which leaves (drawn at
        random) hands over, and its fair share;
        ``peak_after_leave``: ``peak_to_mean`` without that node;
        ``spilled``: with a limit, the part of the keys that are not at their owner, else null;
        ``join_moved_keys``: with a limit, the part of the keys that change nodes at the join.
        With a limit, ``peak_to_mean`` and ``cv`` are those of keys, 1,000 a node.

    Raises:
        ConfigError: no scenario, or not one ring.
    """
    kinds = list(kinds)
    if not kinds:
        raise ConfigError("kinds", kinds, "give at least one scenario")
    if rings < 1:
        raise ConfigError("rings", rings, "draw at least one ring")
    trials = [(kind, ring) for ring in range(rings) for kind in kinds]
    table = pa.table(
        {
            "nodes": pa.array([k.nodes for k, _ in trials], pa.int32()),
            "replicas": pa.array([k.replicas for k, _ in trials], pa.int32()),
            "placement": pa.array([k.placement for k, _ in trials], pa.string()),
            "weights": pa.array([_weights_text(k.weights) for k, _ in trials], pa.string()),
            "limit": pa.array([k.limit for k, _ in trials], pa.float64()),
            "ring": pa.array([ring for _, ring in trials], pa.int32()),
        }
    )

    def measured(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            found = [_trial(row, seed) for row in batch.itertuples(index=False)]
            yield pd.concat([batch, pd.DataFrame(found, columns=_MEASURES)], axis=1)

    # As wide as the cluster: Spark cuts a range into as many partitions as it has cores.
    width = spark.range(_MANY).select(F.spark_partition_id()).distinct().count()
    # Costs differ between kinds, which alternate in the table: a round robin spreads them evenly.
    parts = min(len(trials), max(_LEAST_TASKS, _TASKS_PER_CORE * width))
    return spark.createDataFrame(table).repartition(parts).mapInPandas(measured, _RESULT)


def summarise(simulated: DataFrame) -> DataFrame:
    """Mean, 95th and 99th percentile over the rings of each scenario.

    Returns:
        One row a scenario: its columns, ``rings``, ``peak_mean``, ``peak_p95``, ``peak_p99``,
        ``cv_mean``, ``join_ratio_mean``, ``join_ratio_p95`` (moved over least),
        ``leave_ratio_mean``, ``leave_ratio_p95``, ``peak_after_leave_mean``, ``spilled_mean``,
        ``join_keys_ratio_mean``.
    """
    join = F.col("join_moved") / F.col("join_least")
    leave = F.col("leave_moved") / F.col("leave_least")
    return (
        simulated.groupBy("nodes", "replicas", "placement", "weights", "limit")
        .agg(
            F.count("*").alias("rings"),
            F.mean("peak_to_mean").alias("peak_mean"),
            F.percentile("peak_to_mean", 0.95).alias("peak_p95"),
            F.percentile("peak_to_mean", 0.99).alias("peak_p99"),
            F.mean("cv").alias("cv_mean"),
            F.mean(join).alias("join_ratio_mean"),
            F.percentile(join, 0.95).alias("join_ratio_p95"),
            F.mean(leave).alias("leave_ratio_mean"),
            F.percentile(leave, 0.95).alias("leave_ratio_p95"),
            F.mean("peak_after_leave").alias("peak_after_leave_mean"),
            F.mean("spilled").alias("spilled_mean"),
            F.mean(F.col("join_moved_keys") / F.col("join_least")).alias("join_keys_ratio_mean"),
        )
        .orderBy("placement", "weights", "limit", "replicas", "nodes")
    )


@dataclass(frozen=True)
class ReplicasAnswer:
    """How many points a node needs.

    Attributes:
        replicas: the least number with which enough rings stay within the peak.
        tried: for each number tried, the part of the rings that stay within it; rising numbers.
    """

    replicas: int
    tried: tuple[tuple[int, float], ...]


def replicas_for(
    nodes: int,
    peak: float,
    confidence: float = 0.99,
    *,
    seed: int = 0,
    most: int = 16_384,
) -> ReplicasAnswer:
    """The least number of randomly placed points with which ``confidence`` of rings stay within
    ``peak`` times the mean.

    Doubles, then halves the interval. No point is drawn: the shares of nodes with ``r`` random
    points each are distributed as Gamma(``r``) variables divided by their sum
    (:mod:`hashring.core.expected_loads`), so this takes seconds whatever the answer. It is as exact
    as the sample of 1,000 to 20,000 rings: at 50 nodes to about two points in a hundred.
    :func:`drawn_within` puts it to the test.

    Args:
        nodes: how many, all of weight 1.
        most: no more points than these are tried, nor rings of more than 5 million in all.

    Raises:
        ConfigError: not even ``most`` points do; or an argument makes no sense.
    """
    Scenario(nodes, 1)
    if not 1 < peak < math.inf:
        raise ConfigError("peak", peak, "a ring of random points is never perfectly even; say 1.2")
    if not 0 < confidence < 1:
        raise ConfigError("confidence", confidence, "a part of the rings, such as 0.99")
    tried: dict[int, float] = {}

    def enough(replicas: int) -> bool:
        tried[replicas] = float((_peaks(nodes, replicas, seed) <= peak).mean())
        return tried[replicas] >= confidence

    most = min(most, MOST_POINTS // nodes)
    if not enough(most):
        nearest = float(np.quantile(_peaks(nodes, most, seed), confidence, method="higher"))
        raise ConfigError(
            "peak",
            peak,
            f"out of reach of random points: {most:,} for each of {nodes:,} nodes keep "
            f"{100 * confidence:g}% of rings within {math.ceil(nearest * 1e4) / 1e4:g}; ask for "
            f"that or more, or look at what balanced placement keeps",
        )
    high = 1
    while high < most and not enough(high):
        high *= 2
    high = min(high, most)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle
    return ReplicasAnswer(high, tuple(sorted(tried.items())))


def _peaks(nodes: int, replicas: int, seed: int) -> Floats:
    """The peak-to-mean of some rings of random points, by their distribution."""
    rings = min(max(_LEAST_RINGS, _SHARES // nodes), _MOST_RINGS, 100 * _SHARES // nodes)
    # The same chance for every number of points: the part of the rings then rises smoothly.
    rng = np.random.Generator(np.random.PCG64(seed))
    a_time = max(1, _SHARES // nodes)
    parts = []
    for first in range(0, rings, a_time):
        shares = rng.standard_gamma(replicas, (min(a_time, rings - first), nodes))
        parts.append(shares.max(axis=1) / shares.mean(axis=1))
    return np.concatenate(parts)


def drawn_within(
    spark: SparkSession, kind: Scenario, peak: float, rings: int = 1000, seed: int = 0
) -> tuple[int, float]:
    """Draw rings of a kind, and see which part of them stays within a peak.

    Returns:
        How many were drawn: ``rings``, or as many as have 100 million points together, which
        takes about a minute; and the part of them within ``peak`` times the mean.

    Raises:
        ConfigError: as for :func:`simulate`.
    """
    rings = min(rings, max(1, _DRAWN_POINTS // (kind.nodes * kind.replicas)))
    drawn = simulate(spark, [kind], rings, seed)
    within = drawn.agg(F.mean((F.col("peak_to_mean") <= peak).cast("double"))).collect()
    return rings, float(within[0][0])


# --- one ring ---------------------------------------------------------------------------------

_MEASURES: Final = (
    "peak_to_mean",
    "cv",
    "join_moved",
    "join_least",
    "leave_moved",
    "leave_least",
    "peak_after_leave",
    "spilled",
    "join_moved_keys",
)


def _weights_text(weights: tuple[float, ...]) -> str:
    return ",".join(f"{weight:g}" for weight in weights)


@dataclass(frozen=True)
class _Points:
    """A ring as arrays, both of shape (points,): rising points and the node of each."""

    points: Longs
    owners: Longs

    @classmethod
    def of(cls, points: Longs, owners: Longs) -> _Points:
        order = np.lexsort((owners, points))
        return cls(points[order], owners[order])

    def shares(self, nodes: int) -> Floats:
        """The part of the ring each node owns, 0 to 1."""
        arcs = np.diff(self.points, append=self.points[0] + RING_SIZE)
        return np.bincount(self.owners, arcs, nodes) / RING_SIZE

    def without(self, node: int) -> _Points:
        kept = self.owners != node
        return _Points(self.points[kept], self.owners[kept])

    def joined(self, node: int, points: Longs) -> _Points:
        return _Points.of(
            np.concatenate([self.points, points]),
            np.concatenate([self.owners, np.full(len(points), node)]),
        )


def _trial(row: Any, seed: int) -> tuple[float | None, ...]:
    limit = None if pd.isna(row.limit) else float(row.limit)
    # The stream of one ring depends on its scenario and number alone.
    text = f"{seed}:{row.nodes}:{row.replicas}:{row.placement}:{row.weights}:{row.ring}"
    chance = random.Random(text)
    rng = np.random.Generator(np.random.PCG64(chance.getrandbits(64)))
    pattern = [float(weight) for weight in row.weights.split(",")]
    weights = np.array([pattern[i % len(pattern)] for i in range(row.nodes)])
    counts = np.maximum(1, np.rint(weights * row.replicas)).astype(np.int64)
    if row.placement == "balanced":
        ring, joined = _balanced(counts, row.replicas, chance)
    else:
        ring = _Points.of(
            rng.integers(0, RING_SIZE, counts.sum()), np.repeat(np.arange(row.nodes), counts)
        )
        joined = ring.joined(row.nodes, rng.integers(0, RING_SIZE, row.replicas))

    fair = weights / weights.sum()
    gone = int(rng.integers(row.nodes))
    shares = ring.shares(row.nodes)
    rest = np.delete(ring.without(gone).shares(row.nodes), gone)
    rest_fair = np.delete(fair, gone) / (1 - fair[gone])
    relative = shares / fair
    spilled = moved_keys = None
    if limit is not None:
        keys = np.sort(rng.integers(0, RING_SIZE, KEYS_PER_NODE * row.nodes))
        served, spilled = _served(ring, keys, fair, limit)
        fair_after = np.append(weights, 1.0) / (weights.sum() + 1)
        served_after, _ = _served(joined, keys, fair_after, limit)
        moved_keys = float((served != served_after).mean())
        relative = np.bincount(served, minlength=row.nodes) / len(keys) / fair
    return (
        float(relative.max()),
        float(relative.std()),
        float(joined.shares(row.nodes + 1)[row.nodes]),
        1 / (float(weights.sum()) + 1),
        float(shares[gone]),
        float(fair[gone]),
        float((rest / rest_fair).max()),
        spilled,
        moved_keys,
    )


def _balanced(counts: Longs, replicas: int, chance: random.Random) -> tuple[_Points, _Points]:
    ring = Ring()
    width = len(str(len(counts)))
    names = [f"{i:0{width}d}" for i in range(len(counts) + 1)]
    for name, count in zip(names, counts, strict=False):
        ring = ring.with_node(name, balanced_points(ring, name, int(count), chance))
    for _ in range(CHURN * len(counts)):
        node = chance.randrange(len(counts))
        ring = ring.without_nodes(names[node])
        points = balanced_points(ring, names[node], int(counts[node]), chance)
        ring = ring.with_node(names[node], points)
    joined = ring.with_node(names[-1], balanced_points(ring, names[-1], replicas, chance))
    return _points_of(ring), _points_of(joined)


def _points_of(ring: Ring) -> _Points:
    pairs = [(point, int(node)) for point, node in ring.replicas()]
    points, owners = zip(*pairs, strict=True)
    return _Points.of(np.array(points, dtype=np.int64), np.array(owners, dtype=np.int64))


def _served(ring: _Points, keys: Longs, fair: Floats, limit: float) -> tuple[Longs, float]:
    """The node that serves each key when nodes refuse what is above their limit, and the part of
    the keys that are not served by their owner."""
    replica = np.searchsorted(ring.points, keys, side="right") - 1
    owner = ring.owners[replica]
    room = np.ceil(limit * fair * len(keys)).astype(np.int64)
    # Which of its keys a full node refuses is the same before and after a change: the last ones.
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=len(fair))
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)
    refused = np.flatnonzero(rank >= room[owner])
    served = owner.copy()
    left = room - np.minimum(counts, room)
    for index in refused:
        at = int(replica[index])
        while left[ring.owners[at]] == 0:
            at = (at + 1) % len(ring.owners)
        served[index] = ring.owners[at]
        left[ring.owners[at]] -= 1
    return served, len(refused) / len(keys)
