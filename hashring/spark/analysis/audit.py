"""Did every key get worked on by the node that owned it, and by nobody else?

A work log (key, node, start, end) is held against the ring's history. Which period of ownership
a piece of work began in is looked up (:mod:`hashring.spark.periods.owner_at_time`), not joined.
Work by two nodes at once is found by one pass over each key's work in order of its start, which
remembers the latest end so far and the latest end of any other node: no piece of work meets another
in a join, however many overlap. So the log is shuffled once and sorted by key and start, by one
number first that tells most rows apart; the rest is linear in its rows.

All rows of a key are one sort in one task, unless its work is cut into slices of time
(:mod:`hashring.spark.analysis.hot_key_slices`): a slice begins with what the pass remembers of the
slices before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import StructType

from hashring.core.ring_history import RingHistory
from hashring.spark.analysis.hot_key_slices import (
    BEFORE,
    SLICE,
    SLICE_ROWS,
    Slices,
    find_slices,
    sampled_fraction,
)
from hashring.spark.analysis.work_log import REASON, REJECTIONS, judgeable, micros, with_reasons
from hashring.spark.engine.arrays_to_spark import one_row
from hashring.spark.engine.column_checks import check_free
from hashring.spark.engine.counts_while_read import Counts
from hashring.spark.lookup.key_column import key_text
from hashring.spark.lookup.key_points import key_point
from hashring.spark.lookup.range_table_lookup import look_up
from hashring.spark.periods.owner_at_time import AsOf, as_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PROBLEMS: Final = ("overrun", "late", "early", "foreign")
"""Work by a node that did not own the key; see :attr:`Audit.findings`."""

_SLICE_BITS: Final = 31
"""Below a point in the numbers by which rows are sorted: of a slice's number, or of a moment."""


@dataclass(frozen=True)
class Audit:
    """What an audit found. Every frame is lazy, and reads the log when it is used.

    Times are TIMESTAMP, lengths of time DOUBLE seconds. Spark plans a frame when it is first asked
    for, which takes a second or so: do not ask for those that you do not need.

    Attributes:
        judged: what all other frames are computed from: a row of numbers for each row of the log.
            Cache it to use ``findings`` or ``rows`` as well: the log is then sorted once.
    """

    judged: DataFrame
    _reasoned: DataFrame = field(repr=False)
    _asof: AsOf = field(repr=False)

    @cached_property
    def rejected(self) -> DataFrame:
        """Rows of the log that could not be judged.

        The log's columns and ``reason``, one of ``hashring.spark.analysis.work_log.REJECTIONS``.

        Raises:
            ColumnError: the log has a column ``reason`` itself.
        """
        rows = self._reasoned.where(F.col(REASON).isNotNull())
        check_free(rows.select("__row.*"), "reason")
        return rows.select("__row.*", F.col(REASON).alias("reason"))

    @cached_property
    def rows(self) -> DataFrame:
        """Every row that is not rejected, with what is wrong with it.

        ``key`` (in the form that is hashed), ``node``, ``start``, ``end``, ``point``, ``owner``
        when the work began, ``overflow``, and the columns of ``findings`` that say what is wrong,
        null where nothing is. ``overflow`` is true for work on a key of a node that was full: with
        a limit, others rightly work on what it refuses, so this is not wrong.
        """
        return _readable(self.judged, self._asof)

    @cached_property
    def findings(self) -> DataFrame:
        """Of ``rows`` those with something wrong.

        ``problem``: ``overrun``, the node owned the key when it began, and went on after it had
        lost it; ``late``, the node had lost the key to the present owner; ``early``, the node was
        the next to own it; ``foreign``, none of these (the node may have owned it long before, or
        never).

        ``unowned``: seconds of the work from when the node did not own the key: after the loss for
        ``overrun``, up to the gain for ``early`` (if it came before the work's end), else all of
        it. That the key came back to the node in between is not deducted.

        ``after_change``: for ``overrun`` and ``late``, the seconds from the change that took the
        key away to the end of the work.

        ``epoch``: the change that took it away (``overrun``, ``late``) or gives it (``early``).

        ``other``, ``overlap``: another node that worked on the key at the same time, and had begun
        no later; of several, the one whose work lasts longest, and for how many seconds the two
        overlapped.
        """
        return self.rows.where(F.col("problem").isNotNull() | F.col("other").isNotNull())

    @cached_property
    def counts(self) -> DataFrame:
        """What ``keys``, ``changes``, ``nodes`` and ``summary`` are computed from.

        One row for each key, period, cause and node. Cache it (``counts.cache()``) to use several
        of them.
        """
        return _counts(self.judged)

    @cached_property
    def keys(self) -> DataFrame:
        """One row a key of the log.

        ``key``, ``point``, ``rows``, ``periods`` (of ownership in the whole history), ``worked``
        (those in which its owner began a piece of work), ``unworked`` (the others: the key was
        owned and nobody worked on it as its owner), ``longest_gap`` (seconds from the end of all
        earlier work to the next; null with one row), and the number of rows with each problem, with
        ``overflow``, and with an overlap (``overlapping``).
        """
        return _keys(self.counts, self._asof)

    @cached_property
    def changes(self) -> DataFrame:
        """One row a version of the ring.

        ``version``, ``epoch``, ``at``, ``kind``, ``nodes``, ``keys`` (those that it gave a new
        owner which then worked on them), ``first_work_least``, ``first_work_median``,
        ``first_work_most`` (seconds from the change to the new owner's first work on each such key;
        the median is approximate), ``overrun`` and ``late`` (rows), ``after_change_most``
        (seconds).
        """
        return _changes(self.counts, self._asof)

    @cached_property
    def nodes(self) -> DataFrame:
        """One row a node.

        ``node``, ``rows``, a column a problem, ``overflow``, ``overlapping``.
        """
        return _nodes(self.counts, self._asof)

    @cached_property
    def summary(self) -> DataFrame:
        """One row.

        ``rows``, a column a problem, ``overflow``, ``overlapping``, ``keys``, ``periods``,
        ``worked``, ``unworked``, ``after_change_most``, ``overlap_most``, ``longest_gap``.
        """
        return _summary(self.keys)


def audit(
    work: DataFrame,
    history: RingHistory | AsOf,
    *,
    key: str = "key",
    node: str = "node",
    start: str = "start",
    end: str = "end",
    slices: Slices | None = None,
) -> Audit:
    """Hold a work log against the history of its ring.

    Args:
        work: one row a piece of work. Times are TIMESTAMP, or numbers of seconds since 1970, by
            Redis' clock or one close to it: what the clocks differ shows as being early or late.
            The work of ``[start, end)`` does not include its end.
        history: see :func:`hashring.spark.history_of`. Keys become points by its hash algorithm,
            which must be the ring's.
        key, node, start, end: the names of the log's columns.
        slices: of hot keys, see :func:`work_slices`; without them all work on a key is one task's.

    Raises:
        ColumnError: a column is missing or of a type it cannot have.
        HistoryError: the history is too long.
    """
    asof = history if isinstance(history, AsOf) else as_of(history)
    return _audit(with_reasons(work, asof, key=key, node=node, start=start, end=end), asof, slices)


def work_slices(
    work: DataFrame,
    history: RingHistory | AsOf,
    *,
    key: str = "key",
    node: str = "node",
    start: str = "start",
    end: str = "end",
    rows: int = SLICE_ROWS,
) -> Slices | None:
    """Look for keys with more rows than a limit, and cut their work into slices of time.

    Reads a sample of the log at once, and then the work of these keys, if there are any. Then
    :func:`audit` spreads such a key over tasks of about that size at most, as far as its work is
    spread over time. A key is found if it has a twentieth more rows than the limit, with 98 %; up
    to a limit of 2,000 rows the sample is the whole log.

    The other arguments and the errors are those of :func:`audit`.

    Returns:
        ``None`` if there is no such key.

    Raises:
        ConfigError: ``rows`` is below 1.
    """
    asof = history if isinstance(history, AsOf) else as_of(history)
    fraction = sampled_fraction(rows)
    # Two columns of the log are read alone, and so rows that cannot be judged as well.
    sample = (work.sample(fraction) if fraction < 1 else work).select(
        key_text(work, key).alias("key"), micros(work, start).alias("start")
    )
    work_rows = judgeable(with_reasons(work, asof, key=key, node=node, start=start, end=end))
    # Not times so early that differences would overflow.
    sample = sample.where(F.col("start") >= asof.begins).dropna()
    return find_slices(sample, fraction, work_rows, _Marks(asof).of("end", "node"), rows)


def counted_audit(
    work: DataFrame, asof: AsOf, *, slices: Slices | None = None, **columns: str
) -> tuple[Audit, Counts]:
    """As :func:`audit`, and how many rows are rejected, by reason.

    They are counted by the first action on ``judged`` or on what is computed from it.
    """
    reasoned = with_reasons(work, asof, **columns)
    counts = Counts(reasoned, **{why: F.count_if(F.col(REASON) == why) for why in REJECTIONS})
    return _audit(counts.frame, asof, slices), counts


def _audit(reasoned: DataFrame, asof: AsOf, slices: Slices | None) -> Audit:
    return Audit(_judged(judgeable(reasoned), asof, slices), reasoned, asof)


class _Marks:
    """An end and its node in one value, which orders as the pair does.

    That is one number, which Spark orders sooner, unless the history is too long for it: a
    structure then. The number counts from where the history begins, and holds more than that long
    after it: 4 years with 16,000 nodes, 500 with 100. A later end counts as the last that it holds.
    """

    def __init__(self, asof: AsOf) -> None:
        self._bits = len(asof.nodes).bit_length()
        self._zero = asof.begins
        self._is_number = asof.ends - asof.begins <= 1 << 61 - self._bits

    def of(self, end: str, node: str) -> Column:
        ended, number = F.col(end), F.col(node).cast("bigint")
        if not self._is_number:
            return F.struct(ended.alias("end"), number.alias("node"))
        held = F.least(ended - self._zero, F.lit((1 << 62 - self._bits) - 1))
        return F.shiftleft(held, self._bits).bitwiseOR(number)

    def node(self, mark: str) -> Column:
        if not self._is_number:
            return F.col(mark).getField("node")
        return F.col(mark).bitwiseAND((1 << self._bits) - 1)

    def end(self, mark: str) -> Column:
        if not self._is_number:
            return F.col(mark).getField("end")
        return F.shiftright(F.col(mark), self._bits) + self._zero


def _without_nulls(rows: DataFrame) -> DataFrame:
    """Rows that have no null, in columns that say so: Spark writes no code that looks for one."""
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    return rows.select(
        *(
            F.col(name)
            if isinstance(kind, StructType)
            else F.coalesce(name, F.lit("" if name == "key" else 0).cast(kind)).alias(name)
            for name, kind in kinds.items()
        )
    )


def _moment(asof: AsOf) -> Column:
    """When a row starts, as finely as a slice's place in the order of rows tells moments apart."""
    steps = F.shiftright(
        F.col("start") - asof.begins,
        max((asof.ends - asof.begins).bit_length() - _SLICE_BITS, 0),
    )
    return F.greatest(F.least(steps, F.lit(2**_SLICE_BITS - 1)), F.lit(0))


def _judged(work: DataFrame, asof: AsOf, slices: Slices | None) -> DataFrame:
    """Add to each row (in numbers: nodes, versions, microseconds) what is wrong with it."""
    marks = _Marks(asof)
    node_of, end_of = marks.node, marks.end
    cut = slices.cut(work) if slices else work
    hashed = cut.withColumn("point", key_point(cut, "key", asof.algorithm))
    period: list[str] = []
    if asof.moves_rows:  # which is done before the rows come together by key, and stay so
        plain = hashed.columns
        hashed = asof.located(hashed, "point", "start")
        period = [name for name in hashed.columns if name not in plain]
    # By point first: two keys differ in it at once, which two texts do late.
    place, point = "point", F.col("point")
    if slices:
        place, point = SLICE, F.shiftright(SLICE, _SLICE_BITS)
        hashed = hashed.withColumn(SLICE, F.shiftleft("point", _SLICE_BITS).bitwiseOR(F.col(SLICE)))
    # No more columns than needed: these rows are shuffled and sorted. `mark` has the node.
    narrow = _without_nulls(
        hashed.select("key", place, "start", "end", marks.of("end", "node").alias("mark"), *period)
    )
    # Sorted by one number first, which Spark does by its digits: the windows' own sort, by all that
    # tells rows apart, then finds them in order, but for a few.
    narrow = narrow.repartition(place, "key").sortWithinPartitions(
        F.shiftleft(point, _SLICE_BITS).bitwiseOR(_moment(asof))
    )
    earlier = (
        Window.partitionBy(place, "key")
        .orderBy("start", "end", "mark")
        .rowsBetween(Window.unboundedPreceding, -1)
    )

    # `leader` is the latest end among the key's earlier rows, and its node. A row of another node
    # that does not take the lead, and a leader of another node that loses it, leave a trail; the
    # latest trail is the latest end of any node but the leader, because a node that loses the lead
    # is at once the best of the others.
    led = narrow.withColumn("leader", F.max("mark").over(earlier))
    trail = F.when(node_of("leader") != node_of("mark"), F.least("mark", "leader"))
    trailing = led.withColumns({"trail": trail, "point": point})
    # Between the windows, since Java compiles no method as long as all of this would make.
    located = trailing if period else asof.located(trailing, "point", "start")
    trailed = located.withColumn("rival", F.max("trail").over(earlier))
    if slices:
        trailed = trailed.where(F.col("start") > BEFORE)
    node = node_of("mark")
    other = F.when(node_of("leader") == node, F.col("rival")).otherwise(F.col("leader"))
    opposed = trailed.withColumns({"other": other, "node": node.cast("int")})
    meets = (end_of("other") > F.col("start")) & (F.col("end") > F.col("start"))
    gap = F.when(
        F.col("leader").isNotNull(), F.greatest(F.col("start") - end_of("leader"), F.lit(0))
    )
    overlap = F.when(meets, F.least(F.col("end"), end_of("other")) - F.col("start"))
    met = F.when(meets, node_of("other"))
    placed = asof.told(opposed.withColumns({"gap": gap, "other": met, "overlap": overlap}))

    own = F.col("owner") == F.col("node")
    problem = (
        F.when(own & (F.col("end") <= F.col("until_at")), F.lit(None).cast("string"))
        .when(own, F.lit("overrun"))
        .when(F.col("full"), F.lit(None).cast("string"))
        .when(F.col("previous") == F.col("node"), F.lit("late"))
        .when(F.col("next") == F.col("node"), F.lit("early"))
        .otherwise(F.lit("foreign"))
    )
    is_ = {name: F.col("problem") == name for name in PROBLEMS}
    until_gain = F.least("end", "until_at") - F.col("start")
    return placed.withColumn("problem", problem).select(
        "key",
        "point",
        "node",
        "start",
        "end",
        "gap",
        "other",
        "overlap",
        "owner",
        "since",
        "since_at",
        "problem",
        (F.col("full") & ~own).alias("overflow"),
        F.when(is_["overrun"] | is_["early"], F.col("until"))
        .when(is_["late"], F.col("since"))
        .alias("cause"),
        F.when(is_["overrun"], F.col("end") - F.col("until_at"))
        .when(is_["early"], until_gain)
        .when(F.col("problem").isNotNull(), F.col("end") - F.col("start"))
        .alias("unowned"),
        F.when(is_["overrun"], F.col("end") - F.col("until_at"))
        .when(is_["late"], F.col("end") - F.col("since_at"))
        .alias("after_change"),
    )


def _readable(told: DataFrame, asof: AsOf) -> DataFrame:
    """Numbers of nodes and versions as names and epochs, microseconds as timestamps and seconds."""
    arrays = {
        "__names": pa.array(asof.nodes, pa.string()),
        "__epochs": pa.array([version.epoch for version in asof.versions], pa.int64()),
    }
    names, epochs = F.col("__names"), F.col("__epochs")
    return told.crossJoin(F.broadcast(one_row(told.sparkSession, arrays))).select(
        "key",
        F.get(names, F.col("node")).alias("node"),
        F.timestamp_micros("start").alias("start"),
        F.timestamp_micros("end").alias("end"),
        "point",
        # NOBODY is no index, and gives null.
        F.get(names, F.col("owner")).alias("owner"),
        "overflow",
        "problem",
        _seconds("unowned"),
        _seconds("after_change"),
        F.get(epochs, F.col("cause")).alias("epoch"),
        F.get(names, F.col("other")).alias("other"),
        _seconds("overlap"),
    )


def _seconds(micros: str, name: str | None = None) -> Column:
    return (F.col(micros) / 1e6).alias(name or micros)


def _counts(told: DataFrame) -> DataFrame:
    own = F.col("owner") == F.col("node")
    return told.groupBy("point", "key", "since", "cause", "node").agg(
        F.count("*").alias("rows"),
        F.min("since_at").alias("since_at"),
        F.min(F.when(own, F.col("start"))).alias("first"),
        *(F.count_if(F.col("problem") == name).alias(name) for name in PROBLEMS),
        F.count_if("overflow").alias("overflow"),
        F.count("other").alias("overlapping"),
        F.max("gap").alias("gap"),
        F.max("after_change").alias("after_change"),
        F.max("overlap").alias("overlap"),
    )


_COUNTED: Final = ("rows", *PROBLEMS, "overflow", "overlapping")


def _keys(counts: DataFrame, asof: AsOf) -> DataFrame:
    # First by key and period, then by key: both without another shuffle, and without the cost of
    # counting distinct periods.
    per_period = counts.groupBy("point", "key", "since").agg(
        F.min("first").alias("first"),
        *(F.sum(name).alias(name) for name in _COUNTED),
        *(F.max(name).alias(name) for name in ("gap", "after_change", "overlap")),
    )
    per_key = per_period.groupBy("point", "key").agg(
        F.count("first").alias("worked"),
        *(F.sum(name).alias(name) for name in _COUNTED),
        *(F.max(name).alias(name) for name in ("gap", "after_change", "overlap")),
    )
    return look_up(per_key, "point", asof.owned, "periods").select(
        "key",
        "point",
        "rows",
        "periods",
        "worked",
        (F.col("periods") - F.col("worked")).alias("unworked"),
        _seconds("gap", "longest_gap"),
        *PROBLEMS,
        "overflow",
        "overlapping",
        _seconds("after_change", "after_change_most"),
        _seconds("overlap", "overlap_most"),
    )


def _summary(keys: DataFrame) -> DataFrame:
    return keys.agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _COUNTED),
        F.count("*").alias("keys"),
        *(
            F.coalesce(F.sum(name), F.lit(0)).alias(name)
            for name in ("periods", "worked", "unworked")
        ),
        *(F.max(name).alias(name) for name in ("after_change_most", "overlap_most", "longest_gap")),
    )


def _nodes(counts: DataFrame, asof: AsOf) -> DataFrame:
    names = one_row(counts.sparkSession, {"__names": pa.array(asof.nodes, pa.string())})
    per_node = counts.groupBy("node").agg(*(F.sum(name).alias(name) for name in _COUNTED))
    return per_node.crossJoin(F.broadcast(names)).select(
        F.get("__names", F.col("node")).alias("node"), *_COUNTED
    )


def _changes(counts: DataFrame, asof: AsOf) -> DataFrame:
    changes = [(v.index, v.epoch, v.at, v.change) for v in asof.versions]
    versions = counts.sparkSession.createDataFrame(
        pa.table(
            {
                "version": pa.array([index for index, _, _, _ in changes], pa.int32()),
                "epoch": pa.array([epoch for _, epoch, _, _ in changes], pa.int64()),
                "__at": pa.array([at for _, _, at, _ in changes], pa.int64()),
                "kind": pa.array([c.kind.value if c else "base" for *_, c in changes], pa.string()),
                "nodes": pa.array(
                    [list(c.nodes) if c else [] for *_, c in changes], pa.list_(pa.string())
                ),
            }
        )
    )
    taken = (
        counts.where(F.col("since") > 0)
        .groupBy("point", "key", "since")
        .agg((F.min("first") - F.min("since_at")).alias("__delay"))
        .where(F.col("__delay").isNotNull())
        .groupBy(F.col("since").alias("version"))
        .agg(
            F.count("*").alias("keys"),
            (F.min("__delay") / 1e6).alias("first_work_least"),
            (F.percentile_approx("__delay", 0.5) / 1e6).alias("first_work_median"),
            (F.max("__delay") / 1e6).alias("first_work_most"),
        )
    )
    caused = (
        counts.where(F.col("cause").isNotNull())
        .groupBy(F.col("cause").alias("version"))
        .agg(
            F.sum("overrun").alias("overrun"),
            F.sum("late").alias("late"),
            (F.max("after_change") / 1e6).alias("after_change_most"),
        )
    )
    return (
        versions.join(taken, "version", "left")
        .join(caused, "version", "left")
        .select(
            "version",
            "epoch",
            F.timestamp_micros("__at").alias("at"),
            "kind",
            "nodes",
            F.coalesce("keys", F.lit(0)).alias("keys"),
            "first_work_least",
            "first_work_median",
            "first_work_most",
            F.coalesce("overrun", F.lit(0)).alias("overrun"),
            F.coalesce("late", F.lit(0)).alias("late"),
            "after_change_most",
        )
    )
