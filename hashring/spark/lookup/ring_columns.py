"""Rings as columns: the owner of a point, and what else is known of the owner.

A ring becomes a range table (:mod:`hashring.spark.lookup.range_table`) whose codes are the nodes'
places in ``ring.nodes``, or pairs of nodes for two rings. Its arrays are made into columns once for
each session and ring.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.hashing import RING_SIZE, HashAlgorithm, is_known
from hashring.core.ring import Ring
from hashring.errors import ConfigError, EmptyRingError
from hashring.spark.engine.array_types import Longs
from hashring.spark.engine.arrays_to_spark import array_columns
from hashring.spark.engine.column_checks import check_not_own
from hashring.spark.lookup.range_binary_search import (
    RangeSearch,
    range_search,
    search_row,
    search_steps,
)
from hashring.spark.lookup.range_table import (
    DEEP_STEP,
    MAX_RING_ROOT_BITS,
    RangeTable,
    range_table,
)
from hashring.spark.lookup.range_table_lookup import (
    MOST_REPEATED,
    code_at,
    code_columns,
    code_steps,
    table_arrays,
    with_code,
)
from hashring.spark.lookup.ring_ranges import overlay, ring_ranges

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RING_BITS: Final = 32
POINT: Final = "__hashring_point"
_SHORT_LEVELS: Final = 2
_CACHED_BYTES: Final = 2**22
"""Of a table: with more, a search in fewer bytes is quicker. A cache has more, but not for us."""
_KEPT_RINGS: Final = 4
"""Rings whose columns a session keeps: enough for a plan, and a stream does not collect them."""


@dataclass(frozen=True)
class CodeColumns:
    """A table of points as columns of one session.

    Attributes:
        table: the range table.
        of: for each attribute, the column of an array indexed by code.
        count: how many codes there are.
        search: for a large table, the same ranges in fewer bytes, if they are spread at random.
    """

    table: RangeTable
    of: Mapping[str, Column]
    count: int
    search: RangeSearch | None
    _arrays: Mapping[str, Column]
    _made: dict[Hashable, tuple[Column, ...]] = field(default_factory=dict, compare=False)

    @property
    def is_short(self) -> bool:
        """Whether :meth:`code` is short: each level doubles it, and repeats what it reads."""
        return self.table.words <= MOST_REPEATED and len(self.table.levels) <= _SHORT_LEVELS

    def once(self, what: Hashable, make: Callable[[], tuple[Column, ...]]) -> tuple[Column, ...]:
        """Columns that depend on the ring alone: making one takes many questions to Java."""
        if what not in self._made:
            self._made[what] = make()
        return self._made[what]

    def code(self, point: Column) -> Column:
        """The code at a point, an integer; null where the point is."""
        found: Column = code_at(point, self.table, self._arrays)
        return found

    def steps(self, point: str) -> tuple[Column, ...]:
        """The steps from a column of points to its code; see :func:`code_steps`."""
        return self.once(("code", point), lambda: code_steps(point, self.table, self._arrays))

    def with_code(self, df: DataFrame, point: str, name: str) -> DataFrame:
        """The frame with the code at a column of points; see :func:`with_code`."""
        return with_code(df, self.table, self.steps(point), name)

    def counted(self, df: DataFrame, kept: Sequence[Column], name: str) -> DataFrame:
        """These columns of a frame, of which one is ``POINT``, and its code, to count by that."""
        check_not_own(df)
        search = self.search
        if search is not None:
            # Not kept: a frame keeps its session, and these columns live as long as that.
            row = search_row(df.sparkSession, search)
            steps = self.once(("search", name), lambda: search_steps(POINT, search, name))
            return df.crossJoin(row).select(*kept, *steps)
        return df.select(*kept, *code_columns(self.steps(POINT), name))

    def told(self, name: str, code: Column) -> Column:
        """An attribute of a code."""
        return F.get(self.of[name], code.cast("int"))


_kept: WeakKeyDictionary[SparkSession, OrderedDict[Hashable, CodeColumns]] = WeakKeyDictionary()


def _columns(
    spark: SparkSession, which: Hashable, make: Callable[[], tuple[Longs, Longs, dict[str, Any]]]
) -> CodeColumns:
    kept = _kept.setdefault(spark, OrderedDict())
    found = kept.pop(which, None)
    if found is None:
        starts, codes, attributes = make()
        table = points_table(starts, codes)
        found = CodeColumns(
            table,
            array_columns(spark, attributes),
            len(next(iter(attributes.values()))),
            range_search(starts, codes, RING_BITS) if table.bytes > _CACHED_BYTES else None,
            array_columns(spark, table_arrays(table)),
        )
    # The last one. Other threads may drop it at any moment.
    kept[which] = found
    while len(kept) > _KEPT_RINGS:
        kept.popitem(last=False)
    return found


@lru_cache(maxsize=2)
def ring_table(ring: Ring) -> tuple[RangeTable, tuple[str, ...]]:
    """The table of the owners on a ring that has nodes, and what its codes stand for."""
    starts, owners, nodes = ring_ranges(ring)
    return points_table(starts, owners), nodes


def points_table(starts: Longs, codes: Longs) -> RangeTable:
    """The table of ranges of points; see :func:`range_table`."""
    return range_table(
        starts, codes, RING_BITS, max_root_bits=MAX_RING_ROOT_BITS, deep_step=DEEP_STEP
    )


def ring_columns(spark: SparkSession, ring: Ring) -> CodeColumns:
    """A ring: a code is a node's place in ``ring.nodes``.

    Its attributes are ``node``, ``fair_share`` (its points over all points) and ``ring_share``
    (the part of the ring that it owns).

    Raises:
        EmptyRingError, ConfigError: as for :func:`check_ring`.
    """
    check_ring(ring)

    def make() -> tuple[Longs, Longs, dict[str, Any]]:
        starts, owners, nodes = ring_ranges(ring)
        shares = ring.shares
        attributes = {
            "node": pa.array(nodes, pa.string()),
            "fair_share": pa.array([len(ring.points_of(n)) / len(ring) for n in nodes]),
            "ring_share": pa.array([shares[n] / RING_SIZE for n in nodes]),
        }
        return starts, owners, attributes

    return _columns(spark, ring, make)


def check_ring(ring: Ring) -> None:
    """Check that Spark can look up owners on a ring.

    Raises:
        EmptyRingError: the ring has no nodes.
        ConfigError: as for :func:`check_algorithm`.
    """
    check_algorithm(ring.hash_algorithm)
    if not ring.node_count:
        raise EmptyRingError


def check_algorithm(algorithm: HashAlgorithm) -> None:
    """Check that the name of a hash algorithm, by which Spark knows it, stands for its function.

    Raises:
        ConfigError: it is a function of the user's own, and keys would have other points.
    """
    if not is_known(algorithm):
        raise ConfigError(
            "hash_algorithm",
            algorithm.name,
            "is a function of your own, and Spark computes points by the algorithms of this "
            "package alone: call Ring.owner in a function of your own for Spark",
        )


def check_pair(before: Ring, after: Ring) -> None:
    """Check that the owners on two rings can be compared.

    Raises:
        EmptyRingError: a ring has no nodes.
        ConfigError: the rings hash keys differently; or as for :func:`check_algorithm`.
    """
    if before.hash_algorithm.name != after.hash_algorithm.name:
        raise ConfigError(
            "after",
            after.hash_algorithm.name,
            f"the other ring hashes with {before.hash_algorithm.name}; every key would move, so "
            f"compare rings of one algorithm",
        )
    check_ring(before)
    check_ring(after)


def pair_columns(spark: SparkSession, before: Ring, after: Ring) -> CodeColumns:
    """Two rings at once: a code is a pair of nodes, with the attributes ``before`` and ``after``.

    Raises:
        EmptyRingError, ConfigError: as for :func:`check_pair`.
    """
    check_pair(before, after)

    def make() -> tuple[Longs, Longs, dict[str, Any]]:
        old_starts, old_codes, old_nodes = ring_ranges(before)
        new_starts, new_codes, new_nodes = ring_ranges(after)
        pairs = overlay(old_starts, old_codes, new_starts, new_codes)
        attributes = {
            "before": pa.array(old_nodes, pa.string()).take(pa.array(pairs.before)),
            "after": pa.array(new_nodes, pa.string()).take(pa.array(pairs.after)),
        }
        return pairs.starts, pairs.codes, attributes

    return _columns(spark, (before, after), make)
