"""The job that tells what a change of the ring would move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hashring.core.ring import Ring
from hashring.spark.analysis.html_report import Report
from hashring.spark.analysis.plan import (
    Plan,
    moves_section,
    plan,
    plan_of_histogram,
    usual_points,
)
from hashring.spark.analysis.point_histogram import made_of
from hashring.spark.io.input import Input, check_keys
from hashring.spark.io.output import Output
from hashring.spark.jobs.outcome import Outcome, Table
from hashring.spark.jobs.rows_or_histogram import SHARED_OUT, check_counted, check_given
from hashring.spark.jobs.wording import names
from hashring.spark.lookup.weight_sums import check_sum


def plan_job(
    source: Input | None,
    ring: Ring,
    output: Output | None = None,
    *,
    join: Iterable[str] = (),
    leave: Iterable[str] = (),
    weights: Mapping[str, float] | None = None,
    key: str = "key",
    weight: str | None = None,
    n_replicas: int | None = None,
    placement: str = "random",
    seed: int = 0,
    histogram: Input | None = None,
) -> Outcome:
    """What moves if nodes join, leave or change their weight.

    Args:
        source, histogram: as for :func:`load_job`.
        n_replicas: as for :func:`hashring.spark.planned_ring`.
    """
    join, leave = tuple(join), tuple(leave)
    if n_replicas is None:
        n_replicas = usual_points(ring)
    given = check_given(source, histogram)
    if output:
        output.check(given.frame.sparkSession)
    if source:
        check_keys(source, key)
    asked: dict[str, Any] = {
        "join": join,
        "leave": leave,
        "weights": weights,
        "key": key,
        "weight": weight,
        "n_replicas": n_replicas,
        "placement": placement,
        "seed": seed,
    }
    bad_records = None
    if histogram is not None:
        # It was made without the bad records, and only a part of the input is counted again.
        again = source.frame if source else None
        found = plan_of_histogram(histogram.frame, ring, again, **asked)
    else:
        df, bad_records = given.counted()
        found = plan(df, ring, **asked)
    if histogram:
        check_counted(histogram, found.keys)
    check_sum(weight, found.weight)
    if output:
        output.write(found.moves.coalesce(1))
    moves = found.moves.collect()
    nodes = found.nodes.collect()
    part = found.moved_weight / found.weight if found.weight else 0.0
    least = found.least_weight / found.weight if found.weight else 0.0
    facts: list[tuple[str, Any]] = [
        ("rows", found.keys + found.rows_without_key),
        ("rows that move", found.moved_keys),
        ("part of the weight that moves", f"{100 * part:.3f}%"),
        ("least that must move to get these loads", f"{100 * least:.3f}%"),
        ("least with fair shares before and after", f"{100 * found.fair_share_moved:.3f}%"),
        ("rows without a key", found.rows_without_key),
        ("unusable weights", found.bad_weights),
        *([("bad records left out", bad_records())] if bad_records else []),
        ("nodes before", found.before.node_count),
        ("nodes after", found.after.node_count),
        *([("points of a node of weight 1", n_replicas)] if join or weights else []),
        ("placement of joining nodes", f"{placement}, seed {seed}"),
        *(made_of(histogram.frame) if histogram else ()),
        *([] if source else _bounds(found)),
    ]
    report = Report(_plan_title(join, leave, weights or {}))
    report.facts(facts)
    moves_section(report, moves, nodes)
    moved = Table(
        "moves",
        ("from", "to", "rows", "weight"),
        [(r["before"], r["after"], r["keys"], r["weight"]) for r in moves],
        summed=("rows", "weight"),
        bar="rows",
    )
    changed = Table(
        "nodes by rows that they gain or lose",
        ("node", "rows before", "rows after", "gained", "lost"),
        [
            (r["node"], r["keys_before"], r["keys_after"], r["gained_keys"], r["lost_keys"])
            for r in sorted(nodes, key=lambda r: -(r["gained_keys"] + r["lost_keys"]))
        ],
        summed=("rows before", "rows after", "gained", "lost"),
    )
    return Outcome(tuple(facts), report, (moved, changed))


def _bounds(found: Plan) -> list[tuple[str, Any]]:
    """By how much the answer may be wrong, if rows were shared out by their points."""
    part = found.moved_weight_error / found.weight if found.weight else 0.0
    return [
        (SHARED_OUT, found.estimated),
        ("rows that move are off by at most", found.moved_keys_error),
        ("part of the weight that moves is off by at most", f"{100 * part:.3f}%"),
        ("any number of rows below is off by at most", found.keys_error),
    ]


def _plan_title(join: Sequence[str], leave: Sequence[str], weights: Mapping[str, float]) -> str:
    parts = [(names(join), "joins" if len(join) == 1 else "join")] if join else []
    parts += [(names(leave), "leaves" if len(leave) == 1 else "leave")] if leave else []
    changed = [f"{node} to {weight:g}" for node, weight in weights.items() if node not in join]
    parts += [(names(changed), "in weight")] if changed else []
    return "Plan: " + "; ".join(f"{who} {what}" for who, what in parts)
