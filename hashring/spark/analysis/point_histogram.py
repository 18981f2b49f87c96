"""A histogram of points: the rows of each bucket, counted once, from which any ring is answered.

:func:`point_histogram` makes it. :func:`histogram_counts` counts from it the rows of each code of a
range table. A bucket whose points have one code counts for that code as a whole. A bucket in which
the code changes is counted by a second look at the rows themselves, or shared out by the points. So
this takes the same time for any number of keys.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import NumericType

from hashring.core.hashing import RING_SIZE
from hashring.core.hashing import hash_algorithm as algorithm_of_name
from hashring.core.ranges import PointRange
from hashring.core.readable_numbers import counted
from hashring.errors import ColumnError, ConfigError
from hashring.spark.analysis.cut_buckets import CutBuckets, shared_out
from hashring.spark.engine.array_types import Floats, Longs
from hashring.spark.engine.arrays_to_spark import array_columns
from hashring.spark.engine.column_checks import column_type
from hashring.spark.lookup.key_points import (
    HASHED_BY,
    KEYED_BY,
    WEIGHED_BY,
    has_points_of,
    key_point,
    points_of,
)
from hashring.spark.lookup.range_filter import MOST_RANGES, within
from hashring.spark.lookup.range_table_lookup import (
    code_steps,
    table_arrays,
    with_code,
)
from hashring.spark.lookup.ring_columns import points_table
from hashring.spark.lookup.ring_ranges import overlay
from hashring.spark.lookup.weight_sums import CODE, weighed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger("hashring.spark")

DEFAULT_BUCKETS: Final = 2**16
MOST_BUCKETS: Final = 2**22
_POINT: Final = "__hashring_point"
_BUCKET: Final = {"start": "bigint", "end": "bigint"}
_SUMS: Final = {"keys": "bigint", "weight": "double", "bad_weights": "bigint"}


def point_histogram(
    df: DataFrame,
    key: str = "key",
    weight: str | None = None,
    *,
    hash_algorithm: str = "crc-32",
    buckets: int = DEFAULT_BUCKETS,
) -> DataFrame:
    """How many rows, and how much weight, each bucket of points has.

    Args:
        weight: as for :func:`hashring.spark.load`.
        hash_algorithm: that of the ring.
        buckets: a power of two. With more, fewer rows are in buckets where an owner changes.

    Histograms of different rows may be put together with ``unionAll``, also of different buckets:
    they answer for all these rows, if all were made with the same key, weight and hash algorithm.

    Returns:
        One row a bucket that has any: ``start`` and ``end`` BIGINT (its points are from ``start``
        up to but without ``end``), ``keys`` (rows), ``weight``, ``bad_weights``. One more, with
        nulls for the points, for rows whose key is null or empty, if there are any. The metadata of
        ``start``, which Parquet keeps, names the hash algorithm, and the columns of keys and
        weights.

    Raises:
        ColumnError: a column is missing, or of a type that it cannot have.
        ConfigError: ``buckets`` is no power of two, or above 4,194,304; or there is no such hash
            algorithm.
    """
    if not 1 <= buckets <= MOST_BUCKETS or buckets & (buckets - 1):
        raise ConfigError("buckets", buckets, f"give a power of two, up to {MOST_BUCKETS:,}")
    shift = 32 - (buckets.bit_length() - 1)
    algorithm = algorithm_of_name(hash_algorithm).name
    weights, total, bad = weighed(df, weight)
    hashed = df.select(key_point(df, key, algorithm).alias(_POINT), *weights)
    counted = hashed.groupBy(F.shiftright(_POINT, shift).alias(CODE)).agg(
        F.count("*").alias("keys"), total.alias("weight"), bad.alias("bad_weights")
    )
    metadata = {**points_of(key, algorithm), WEIGHED_BY: weight}
    return counted.select(
        F.shiftleft(CODE, shift).alias("start", metadata=metadata),
        F.shiftleft(F.col(CODE) + 1, shift).alias("end"),
        "keys",
        "weight",
        "bad_weights",
    )


def made_of(histogram: DataFrame) -> list[tuple[str, str | None]]:
    """The columns of keys and weights that a histogram names as those it was made of."""
    made = histogram.schema["start"].metadata
    names = (("key column", KEYED_BY), ("weight column", WEIGHED_BY))
    return [(name, made[entry]) for name, entry in names if entry in made]


@dataclass(frozen=True)
class CountedKeys:
    """Rows, weight and unusable weights for each code; rows of it that were shared out, and how."""

    keys: Longs
    weight: Floats
    bad_weights: Longs
    estimated: Longs
    without_key: tuple[int, float, int]
    cut: CutBuckets


def histogram_counts(  # noqa: PLR0917 - the parts of a question
    histogram: DataFrame,
    starts: Longs,
    codes: Longs,
    rows: DataFrame | None,
    key: str,
    weight: str | None,
    algorithm: str,
) -> CountedKeys:
    """Count the rows of each code.

    Args:
        starts, codes: where each range begins, rising from 0, and its code.
        rows, key, weight: as for :func:`hashring.spark.load_of_histogram`.
        algorithm: the name of the hash algorithm.

    Raises:
        ColumnError: a column is missing, or of a type that it cannot have.
        ConfigError: the histogram is of another hash algorithm, weight or key; or a row of it is
            no bucket.
    """
    for name in (*_BUCKET, *_SUMS):
        if name not in histogram.columns:
            raise ColumnError(name, "is missing: make the histogram with point_histogram")
        kind = column_type(histogram, name)
        if not isinstance(kind, NumericType):
            raise ColumnError(
                name,
                f"is {kind.simpleString()}: make the histogram with point_histogram, and keep it "
                f"in Parquet",
            )
    _check_made_so(histogram, key, weight, algorithm, again=rows is not None)
    starts, codes = _merged(starts, codes)
    bucket = (F.col(name).cast(kind).alias(name) for name, kind in _BUCKET.items())
    sums = (F.sum(F.col(name).cast(kind)).alias(name) for name, kind in _SUMS.items())
    # Of each bucket once, however many histograms were put together: this comes to the driver.
    told = histogram.groupBy(*bucket).agg(*sums).toArrow()
    _check_buckets(told)
    known = told.filter(pc.is_valid(told["start"]))
    lost = told.filter(pc.is_null(told["start"]))
    without = (
        sum(lost["keys"].to_pylist()),
        sum(lost["weight"].to_pylist()),
        sum(lost["bad_weights"].to_pylist()),
    )
    low, high, keys, heavy, bad = (known[name].to_numpy() for name in (*_BUCKET, *_SUMS))
    if rows is not None:
        low, high = _as_wide_as_the_widest(low, high)
    first = np.searchsorted(starts, low, side="right") - 1
    last = np.searchsorted(starts, high - 1, side="right") - 1
    whole = first == last
    size = int(codes.max()) + 1
    split = np.flatnonzero(~whole)
    shared = split if rows is None else split[:0]
    cut = shared_out(
        low[shared], high[shared], keys[shared], heavy[shared], bad[shared], starts, codes
    )
    found = CountedKeys(
        keys=np.zeros(size, np.int64),
        weight=np.zeros(size),
        bad_weights=np.zeros(size, np.int64),
        estimated=np.zeros(size, np.int64),
        without_key=without,
        cut=cut,
    )
    for total, values in ((found.keys, keys), (found.weight, heavy), (found.bad_weights, bad)):
        np.add.at(total, codes[first[whole]], values[whole])
    for total, values in (
        (found.keys, cut.keys),
        (found.weight, cut.weight),
        (found.bad_weights, cut.bad_weights),
        (found.estimated, cut.keys),
    ):
        np.add.at(total, cut.code, values)
    if rows is None or not len(split):
        return found
    edges = [PointRange(int(low[i]), int(high[i])) for i in split[np.argsort(low[split])]]
    again = 0
    for row in _second_look(rows, edges, starts, codes, key, weight, algorithm).collect():
        if row[CODE]:
            again += row["keys"]
            found.keys[row[CODE] - 1] += row["keys"]
            found.weight[row[CODE] - 1] += row["weight"]
            found.bad_weights[row[CODE] - 1] += row["bad_weights"]
    if again != (at_first := int(keys[split].sum())):
        logger.warning(
            "the histogram has %s in the buckets that were counted again, and the input %s: the "
            "histogram is of an earlier time, or of another input",
            counted(at_first, "row"),
            counted(again, "row"),
        )
    return found


def _check_made_so(
    histogram: DataFrame, key: str, weight: str | None, algorithm: str, *, again: bool
) -> None:
    """Check that a histogram was made as the question is asked, as far as its metadata says.

    Args:
        again: whether rows are counted again, whose keys and weights are added to its own.

    Raises:
        ConfigError: it was not.
    """
    made = histogram.schema["start"].metadata
    hashed_by = made.get(HASHED_BY, algorithm)
    if hashed_by != algorithm:
        raise ConfigError(
            "histogram", hashed_by, f"the ring hashes with {algorithm}: make the histogram by that"
        )
    weighed_by = made.get(WEIGHED_BY, weight)
    if weighed_by != weight and (again or weight is not None):
        has = "no weights" if weighed_by is None else f"the weights of column {weighed_by!r}"
        raise ConfigError(
            "weight", weight, f"the histogram has {has}: ask by the same, or make another histogram"
        )
    keyed_by = made.get(KEYED_BY, key)
    if again and keyed_by != key:
        raise ConfigError(
            "key",
            key,
            f"the histogram has the keys of column {keyed_by!r}: ask by the same, or make another "
            f"histogram",
        )


def _check_buckets(told: Any) -> None:
    """Raise ``ConfigError`` if a row is no bucket, or has less than nothing in it."""
    start, end = told["start"], told["end"]
    width = pc.subtract(end, start)
    below = pc.subtract(width, 1)
    is_bucket = (
        pc.greater_equal(start, 0),
        pc.less_equal(end, RING_SIZE),
        pc.greater(width, 0),
        pc.equal(pc.bit_wise_and(width, below), 0),
        pc.equal(pc.bit_wise_and(start, below), 0),
    )
    is_lost = pc.and_(pc.is_null(start), pc.is_null(end))
    are_sums = (pc.greater_equal(told[name], 0) for name in _SUMS)
    whole = reduce(pc.and_, (pc.if_else(is_lost, True, reduce(pc.and_, is_bucket)), *are_sums))
    wrong = told.filter(pc.invert(pc.fill_null(whole, False)))
    if len(wrong):
        row = wrong.slice(0, 1).to_pylist()[0]
        raise ConfigError("histogram", row, "is no bucket of points: make it with point_histogram")


def _merged(starts: Longs, codes: Longs) -> tuple[Longs, Longs]:
    """Ranges of which no two neighbours have the same code: between those nothing changes."""
    first = np.ones(len(codes), dtype=bool)
    first[1:] = codes[1:] != codes[:-1]
    return starts[first], codes[first]


def _as_wide_as_the_widest(low: Longs, high: Longs) -> tuple[Longs, Longs]:
    """The buckets of histograms of several sizes, put together, as those of the fewest buckets.

    Else a second look at a wide bucket would count again what a narrow one inside it has counted.
    """
    width = (high - low).max(initial=1)
    start = low - low % width
    return start, start + width


def _second_look(  # noqa: PLR0917 - as above
    rows: DataFrame,
    edges: list[PointRange],
    starts: Longs,
    codes: Longs,
    key: str,
    weight: str | None,
    algorithm: str,
) -> DataFrame:
    """The rows of some buckets, by one more than their codes; those of others by 0."""
    if has_points_of(rows, key, algorithm):
        at = F.col("point")
        # Of many, what lies between them is most of the ring.
        if len(edges) <= MOST_RANGES:
            rows = rows.where(within(at, edges))
    else:
        at = key_point(rows, key, algorithm)
    bounds = sorted({0, *(edge.start for edge in edges), *(edge.end for edge in edges)})
    flags_at = np.array([bound for bound in bounds if bound < RING_SIZE], np.int64)
    starts_of = {edge.start for edge in edges}
    flags = np.array([int(bound in starts_of) for bound in flags_at.tolist()], np.int64)
    both = overlay(flags_at, flags, starts, codes)
    told = np.where(both.before == 1, both.after + 1, 0)
    table = points_table(both.starts, told[both.codes])
    weights, total, bad = weighed(rows, weight)
    hashed = rows.select(at.alias(_POINT), *weights).where(F.col(_POINT).isNotNull())
    arrays = array_columns(rows.sparkSession, table_arrays(table))
    return (
        with_code(hashed, table, code_steps(_POINT, table, arrays), CODE, filtered=False)
        .groupBy(CODE)
        .agg(F.count("*").alias("keys"), total.alias("weight"), bad.alias("bad_weights"))
    )
