"""The job that counts the keys of each node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hashring.core.ring import Ring
from hashring.spark.analysis.hot_keys import hot_keys
from hashring.spark.analysis.html_report import Report
from hashring.spark.analysis.node_load import load, load_of_histogram
from hashring.spark.analysis.point_histogram import made_of
from hashring.spark.io.input import Input, check_keys
from hashring.spark.io.output import Output
from hashring.spark.jobs.outcome import Outcome, Table
from hashring.spark.jobs.rows_or_histogram import SHARED_OUT, check_counted, check_given
from hashring.spark.jobs.wording import key_name, ring_facts
from hashring.spark.lookup.weight_sums import check_sum

PICTURED_NODES: Final = 200
"""Of more, a report shows a histogram instead of a picture and a row each."""
_OFF: Final = ("± keys", "± share")
"""Columns: by how much the keys and the share of a node are wrong at most."""


def load_job(
    source: Input | None,
    ring: Ring,
    output: Output | None = None,
    *,
    key: str = "key",
    weight: str | None = None,
    hottest: int = 20,
    histogram: Input | None = None,
) -> Outcome:
    """The load of every node, and the hottest keys.

    Args:
        source: the rows; may be ``None`` if there is a histogram of them.
        hottest: how many; 0 leaves them out, and spares reading the rows twice more. They need the
            rows.
        histogram: of the points of these rows. With the rows, those in buckets where the owner
            changes are counted again, and the answer is exact. Without, they are shared out by the
            points, and the answer says by how much it may be wrong.
    """
    given = check_given(source, histogram)
    spark = given.frame.sparkSession
    if output:
        output.check(spark)
    bad_records = None
    if histogram is not None:
        # It was made without the bad records, and only a part of the input is counted again.
        again = source.frame if source else None
        loads = load_of_histogram(histogram.frame, ring, again, key, weight)
    else:
        df, bad_records = given.counted()
        loads = load(df, ring, key, weight)
    hot = hot_keys(source.frame, ring, key, weight, hottest) if source and hottest else None
    if source:
        check_keys(source, key)
    rows = loads.collect()
    if histogram:
        check_counted(histogram, sum(r["keys"] for r in rows if r["node"] is not None))
    check_sum(weight, sum(r["weight"] for r in rows))
    hottest_rows = hot.collect() if hot else []
    if output:
        output.write(spark.createDataFrame(rows, loads.schema).coalesce(1))

    on_ring = sorted((r for r in rows if r["node"] is not None), key=lambda r: -r["weight"])
    lost = sum(r["keys"] for r in rows if r["node"] is None)
    peak = max(r["share"] / r["fair_share"] for r in on_ring)
    weighs = sum(r["weight"] for r in on_ring)
    off = [] if source else [r["weight_error"] / weighs if weighs else 0.0 for r in on_ring]
    facts: list[tuple[str, Any]] = [
        ("rows", sum(r["keys"] for r in rows)),
        ("weight", weighs),
        ("rows without a key", lost),
        ("unusable weights", sum(r["bad_weights"] for r in rows)),
        *([("bad records left out", bad_records())] if bad_records else []),
        *ring_facts(ring),
        *(made_of(histogram.frame) if histogram else ()),
        ("peak to fair share", peak),
        *(_bounds(on_ring, off) if off else ()),
        ("busiest node", on_ring[0]["node"]),
    ]
    if hottest_rows:
        top = hottest_rows[0]
        facts.append(("hottest key", key_name(top["key"])))
        part = f"{100 * top['of_mean']:.2f}%"
        facts.append(("hottest key's part of a node's mean load", part))
    report = Report("Load of the ring")
    report.facts(facts)
    if ring.node_count <= PICTURED_NODES:
        report.ring(ring)
    _load_section(report, on_ring, off)
    if hottest_rows:
        _hot_section(report, hottest_rows)
    nodes = Table(
        "busiest nodes",
        ("node", "keys", "weight", "share", "fair share", "of fair", *(_OFF if off else ())),
        [
            (r["node"], r["keys"], r["weight"], r["share"], r["fair_share"],
             r["share"] / r["fair_share"], *((r["keys_error"], off[i]) if off else ()))
            for i, r in enumerate(on_ring)
        ],
        summed=("keys", "weight", "share", "fair share"),
        percent=("share", "fair share", "of fair", _OFF[1]),
        bar="share",
    )  # fmt: skip
    keys = Table(
        "hottest keys",
        ("key", "rows", "weight", "of all", "of a node's mean", "owner"),
        [
            (key_name(r["key"]), r["rows"], r["weight"], r["share"], r["of_mean"], r["owner"])
            for r in hottest_rows
        ],
        percent=("of all", "of a node's mean"),
    )
    return Outcome(tuple(facts), report, (nodes, keys) if hottest_rows else (nodes,))


def _bounds(rows: Sequence[Any], off: Sequence[float]) -> list[tuple[str, Any]]:
    """Between what the answer is, if rows were shared out by their points.

    Args:
        rows, off: of each node, and by how much its share is wrong at most.
    """
    both = list(zip(rows, off, strict=True))
    return [
        ("peak to fair share, at least", max((r["share"] - e) / r["fair_share"] for r, e in both)),
        ("peak to fair share, at most", max((r["share"] + e) / r["fair_share"] for r, e in both)),
        (SHARED_OUT, sum(r["estimated"] for r in rows)),
        ("keys of a node are off by at most", max(r["keys_error"] for r in rows)),
        ("share of a node is off by at most", f"{100 * max(off):.3f}%"),
    ]


def _load_section(report: Report, rows: Sequence[Any], off: Sequence[float]) -> None:
    report.section(
        "Share of each node",
        "Bars: the node's part of all weight. Marks: its fair share, by its number of points.",
    )
    if len(rows) > PICTURED_NODES:
        report.histogram(
            "Nodes by their share over their fair share",
            [r["share"] / r["fair_share"] for r in rows],
        )
    report.bars(
        "Share of each node against its fair share",
        [(r["node"], r["share"], r["fair_share"]) for r in rows],
    )
    report.table(
        [
            "node",
            "keys",
            "weight",
            "share",
            "fair share",
            "share / fair",
            "part of the ring",
            *(_OFF if off else ()),
        ],
        [
            (
                r["node"],
                r["keys"],
                r["weight"],
                f"{100 * r['share']:.2f}%",
                f"{100 * r['fair_share']:.2f}%",
                r["share"] / r["fair_share"],
                f"{100 * r['ring_share']:.2f}%",
                *((r["keys_error"], f"{100 * off[i]:.2f}%") if off else ()),
            )
            for i, r in enumerate(rows)
        ],
        most=PICTURED_NODES,
    )


def _hot_section(report: Report, rows: Sequence[Any]) -> None:
    report.section(
        "Hottest keys",
        "In parts of a node's mean load: above 100%, the key alone is more than a node's fair "
        "share, and no placement of points can help.",
    )
    names = [key_name(r["key"]) for r in rows]
    report.bars(
        "Hottest keys",
        [(name, r["of_mean"], None) for name, r in zip(names, rows, strict=True)],
    )
    report.table(
        ["key", "rows", "weight", "part of all", "part of a node's mean", "owner"],
        [
            (
                name,
                r["rows"],
                r["weight"],
                f"{100 * r['share']:.3f}%",
                f"{100 * r['of_mean']:.2f}%",
                r["owner"],
            )
            for name, r in zip(names, rows, strict=True)
        ],
    )
