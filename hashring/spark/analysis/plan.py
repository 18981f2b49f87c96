"""What a change of the fleet would move, before anybody makes it, and the ring after it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from hashring.core import ring_plan
from hashring.core.ring import Ring
from hashring.spark.analysis.html_report import Report
from hashring.spark.analysis.moves import MOVE, NodeFlow, NodeFlows, flows, flows_of_histogram
from hashring.spark.engine.arrays_to_spark import frame_of_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NODE: Final = {
    "node": pa.string(),
    **dict.fromkeys(("keys_before", "keys_after"), pa.int64()),
    **dict.fromkeys(("weight_before", "weight_after"), pa.float64()),
    **dict.fromkeys(("gained_keys", "lost_keys"), pa.int64()),
    **dict.fromkeys(("fair_share_before", "fair_share_after"), pa.float64()),
}


@dataclass(frozen=True)
class Plan:
    """A planned change and what it moves.

    Attributes:
        before, after: the rings. Where joining nodes would really put their points is up to
            chance (with random placement), so ``after`` is one possible outcome.
        keys, weight: of all rows that have an owner.
        moved_keys, moved_weight: of the rows whose owner changes.
        least_weight: the least weight that must move to get from the loads before to the loads
            after, whatever the method: what the gaining nodes gain, summed.
        fair_share_moved: the part of all weight, 0 to 1, that would have to move if every node
            had exactly its fair share before and after.
        rows_without_key, bad_weights: rows with a null or empty key; with an unusable weight.
        moves: a frame as of :func:`hashring.spark.moves`, already computed.
        nodes: a frame, already computed, one row a node of either ring: ``node``,
            ``keys_before``, ``keys_after``, ``weight_before``, ``weight_after``, ``gained_keys``,
            ``lost_keys``, ``fair_share_before``, ``fair_share_after`` (null where the node is
            not on that ring).
        estimated: how many rows a histogram shared out by points, whose nodes are an estimate; 0
            where all rows were counted.
        moved_keys_error, moved_weight_error: by how much ``moved_keys`` and ``moved_weight`` are
            wrong at most, because of that.
        keys_error: by how much any one number of rows in ``moves`` and ``nodes`` is wrong at most.
    """

    before: Ring
    after: Ring
    keys: int
    weight: float
    moved_keys: int
    moved_weight: float
    least_weight: float
    fair_share_moved: float
    rows_without_key: int
    bad_weights: int
    moves: DataFrame
    nodes: DataFrame
    estimated: int = 0
    moved_keys_error: int = 0
    moved_weight_error: float = 0.0
    keys_error: int = 0

    def _repr_html_(self) -> str:
        """A page with what moves, for notebooks."""
        report = Report("Plan")
        report.facts(
            [
                ("rows", self.keys + self.rows_without_key),
                ("rows that move", self.moved_keys),
                ("weight that moves", self.moved_weight),
                ("least that must move to get these loads", self.least_weight),
                ("nodes before", self.before.node_count),
                ("nodes after", self.after.node_count),
            ]
        )
        moves_section(report, self.moves.collect(), self.nodes.collect())
        return report._repr_html_()


def planned_ring(
    ring: Ring,
    *,
    join: Iterable[str] = (),
    leave: Iterable[str] = (),
    weights: Mapping[str, float] | None = None,
    n_replicas: int | None = None,
    placement: str = "random",
    seed: int = 0,
) -> Ring:
    """The ring after nodes leave, change their weight, and join, in that order.

    Args:
        weights: for a node that joins or stays, its new weight: it has
            ``round(n_replicas * weight)`` points, at least one. A node that stays keeps as many
            of its points as it can, as a live node does.
        n_replicas: points of a node of weight 1; by default as :func:`usual_points`.
        placement: where joining nodes put their points: ``random`` or ``balanced``.
        seed: equal seeds give equal points.

    Raises:
        UnknownNodeError: a node to leave or to reweigh is not on the ring.
        ConfigError: a joining node is on the ring already, a weight is not positive, and so on.
        EmptyRingError: nobody would be left.
    """
    return ring_plan.planned_ring(
        ring,
        join=join,
        leave=leave,
        weights=weights,
        n_replicas=usual_points(ring) if n_replicas is None else n_replicas,
        placement=placement,
        rng_for=lambda node: random.Random(f"{seed}:{node}"),
    )


def usual_points(ring: Ring) -> int:
    """How many points most nodes of a ring have: those of weight 1, as far as a ring tells."""
    shapes = {node: ring_plan.NodeShape(len(ring.points_of(node))) for node in ring.nodes}
    return ring_plan.usual_replicas(ring, shapes)


def plan(
    df: DataFrame,
    ring: Ring,
    *,
    join: Iterable[str] = (),
    leave: Iterable[str] = (),
    weights: Mapping[str, float] | None = None,
    key: str = "key",
    weight: str | None = None,
    n_replicas: int | None = None,
    placement: str = "random",
    seed: int = 0,
) -> Plan:
    """What moves if these nodes join, leave, or change their weight.

    Reads ``df`` once, at once; what is left to look at is small. The arguments are those of
    :func:`planned_ring` and :func:`hashring.spark.load`, and so are the errors.
    """
    after = planned_ring(
        ring,
        join=join,
        leave=leave,
        weights=weights,
        n_replicas=n_replicas,
        placement=placement,
        seed=seed,
    )
    found = flows(df, ring, after, key, weight).collect()
    owned = [
        NodeFlow(row["before"], row["after"], row["keys"], row["weight"])
        for row in found
        if row["before"] is not None
    ]
    told = NodeFlows(
        owned,
        rows_without_key=sum(row["keys"] for row in found if row["before"] is None),
        bad_weights=sum(row["bad_weights"] for row in found),
    )
    return _plan(df.sparkSession, ring, after, told)


def plan_of_histogram(
    histogram: DataFrame,
    ring: Ring,
    rows: DataFrame | None = None,
    *,
    join: Iterable[str] = (),
    leave: Iterable[str] = (),
    weights: Mapping[str, float] | None = None,
    key: str = "key",
    weight: str | None = None,
    n_replicas: int | None = None,
    placement: str = "random",
    seed: int = 0,
) -> Plan:
    """As :func:`plan`, from a histogram of points.

    Args:
        histogram, rows: as for :func:`hashring.spark.load_of_histogram`. Without the rows,
            ``estimated`` says how many were shared out by the points, and ``keys_error``,
            ``moved_keys_error`` and ``moved_weight_error`` what that may be wrong by.

    Raises:
        ColumnError: a column is missing, or of a type that it cannot have.

    The other arguments and errors are those of :func:`plan`.
    """
    after = planned_ring(
        ring,
        join=join,
        leave=leave,
        weights=weights,
        n_replicas=n_replicas,
        placement=placement,
        seed=seed,
    )
    found = flows_of_histogram(histogram, ring, after, rows, key, weight)
    return _plan(histogram.sparkSession, ring, after, found)


def _plan(session: SparkSession, ring: Ring, after: Ring, found: NodeFlows) -> Plan:
    owned = found.flows
    moved = [row for row in owned if row.before != row.after]

    tally = {
        node: {"kb": 0, "ka": 0, "wb": 0.0, "wa": 0.0, "gained": 0, "lost": 0}  # as in _NODE
        for node in sorted({*ring.nodes, *after.nodes}, key=str.encode)
    }
    for row in owned:
        source, target = tally[row.before], tally[row.after]
        source["kb"] += row.keys
        source["wb"] += row.weight
        target["ka"] += row.keys
        target["wa"] += row.weight
        if row.before != row.after:
            source["lost"] += row.keys
            target["gained"] += row.keys

    def fair(of: Ring, node: str) -> float | None:
        return len(of.points_of(node)) / len(of) if node in of else None

    shares = {node: (fair(ring, node), fair(after, node)) for node in tally}
    ordered = sorted(moved, key=lambda row: (-row.keys, row.before, row.after))
    nodes = [(node, *tally[node].values(), *shares[node]) for node in tally]
    return Plan(
        before=ring,
        after=after,
        keys=sum(row.keys for row in owned),
        weight=sum(row.weight for row in owned),
        moved_keys=sum(row.keys for row in moved),
        moved_weight=sum(row.weight for row in moved),
        least_weight=sum(max(t["wa"] - t["wb"], 0.0) for t in tally.values()),
        fair_share_moved=sum(max((a or 0.0) - (b or 0.0), 0.0) for b, a in shares.values()),
        rows_without_key=found.rows_without_key,
        bad_weights=found.bad_weights,
        moves=frame_of_rows(session, MOVE, ordered),
        nodes=frame_of_rows(session, _NODE, nodes),
        estimated=found.estimated,
        moved_keys_error=found.moved_keys_error,
        moved_weight_error=found.moved_weight_error,
        keys_error=found.keys_error,
    )


def moves_section(report: Report, moves: Sequence[Any], nodes: Sequence[Any]) -> None:
    """What moves, and the nodes, from the rows of a plan's frames."""
    report.section("What moves", "Rows from their owner before (left) to their owner after.")
    if not moves:
        report.facts([("moves", "none")])
    report.flows(
        "Moves from node to node",
        [(r["before"], r["after"], float(r["keys"])) for r in moves],
        [r["node"] for r in nodes],
    )
    report.table(
        ["from", "to", "rows", "weight"],
        [(r["before"], r["after"], r["keys"], r["weight"]) for r in moves],
        most=30,
    )
    report.section("Nodes")
    report.table(
        ["node", "rows before", "rows after", "gained", "lost"],
        [
            (r["node"], r["keys_before"], r["keys_after"], r["gained_keys"], r["lost_keys"])
            for r in nodes
        ],
        most=200,
    )
