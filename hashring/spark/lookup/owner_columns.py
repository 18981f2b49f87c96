"""Who owns what: the owner of every key, as a column, and as columns of a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.ring import Ring
from hashring.errors import ConfigError
from hashring.spark.engine.column_checks import check_free, check_not_own
from hashring.spark.engine.session import running_session
from hashring.spark.lookup.key_points import NATIVE_ALGORITHMS, key_point, point, points_of
from hashring.spark.lookup.ring_columns import CodeColumns, pair_columns, ring_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OWNER_CODE: Final = "__hashring_code"
_MOST_GENERATED: Final = 95
"""Columns of a frame to which some may be added before Spark gives up whole-stage generated code,
at 100 (``spark.sql.codegen.maxFields``). Beyond, each projection copies all columns of a row: then
one projection of a longer expression is quicker than one for each step of the lookup."""


def owner(ring: Ring, key: Column | str) -> Column:
    """The owner of a key as a column, for ``select``, ``where`` and ``groupBy``.

    It is one deterministic expression without a join: Spark pushes filters below it and prunes it
    as any other. The ring is that of the moment; a query that was planned keeps it. Needs a
    running Spark session, in which the column can be used.

    It reads scalar subqueries, which Spark refuses in the functions of arrays (``transform``), and
    as a key of a join when it broadcasts that side. For a join use :func:`with_owner`, and join by
    its column ``owner``.

    Args:
        key: a column of strings or binaries; cast integers to string.

    Returns:
        STRING, null where the key is null or empty. The same owner as ``ring.owner(key)``.

    Raises:
        EmptyRingError: the ring has no nodes.
        ConfigError: no Spark session is running, or the ring hashes keys by a function of the
            user's own.
    """
    columns = ring_columns(_running_session(), ring)
    return columns.told("node", columns.code(point(key, ring.hash_algorithm.name)))


def _running_session() -> SparkSession:
    found = running_session()
    if found is None:
        raise ConfigError("spark", None, "no session is running: start one first")
    return found


def with_owner(df: DataFrame, ring: Ring, key: str = "key") -> DataFrame:
    """Add the point and the owner of each row's key.

    Args:
        df: any frame, batch or streaming.
        key: a column of strings, binaries or integers.

    Returns:
        The frame with ``point`` BIGINT and ``owner`` STRING; both null where the key is null or
        empty. The same owner as ``ring.owner(key)``. The rows, their order and their partitioning
        stay as they are. The metadata of ``point``, which Parquet keeps, names the hash algorithm
        and the key's column.

    Raises:
        EmptyRingError: the ring has no nodes.
        ColumnError: no such column, no type of a key, or ``point`` or ``owner`` is there already.
        ConfigError: the ring hashes keys by a function of the user's own.
    """
    columns = ring_columns(df.sparkSession, ring)
    return _with_told(df, columns, ring, key, {"owner": "node"})


def with_move(df: DataFrame, before: Ring, after: Ring, key: str = "key") -> DataFrame:
    """Add the point of each row's key and its owner on two rings, in one lookup.

    Returns:
        The frame with ``point`` BIGINT, ``before`` and ``after`` STRING; null where the key is
        null or empty. A row moves where ``before <> after``.

    Raises:
        EmptyRingError, ColumnError, ConfigError: as for :func:`with_owner`.
        ConfigError: the rings hash keys differently.
    """
    columns = pair_columns(df.sparkSession, before, after)
    return _with_told(df, columns, before, key, {"before": "before", "after": "after"})


def _with_told(
    df: DataFrame, columns: CodeColumns, ring: Ring, key: str, told: dict[str, str]
) -> DataFrame:
    """The frame with the point and, for each name of a column, an attribute of its code."""
    algorithm = ring.hash_algorithm.name
    if len(df.columns) > _MOST_GENERATED and columns.is_short and algorithm in NATIVE_ALGORITHMS:
        check_free(df, "point", *told)
        hashed = key_point(df, key, algorithm)
        at_once = columns.code(hashed)
        named = hashed.alias("point", metadata=points_of(key, algorithm))
        wide = (columns.told(attribute, at_once).alias(name) for name, attribute in told.items())
        return df.select("*", named, *wide)
    coded = with_owner_code(df, columns, ring, key, *told)
    code = F.col(OWNER_CODE)
    added = (columns.told(attribute, code).alias(name) for name, attribute in told.items())
    return coded.select("*", *added).drop(OWNER_CODE)


def with_owner_code(
    df: DataFrame, columns: CodeColumns, ring: Ring, key: str, *added: str
) -> DataFrame:
    """Add the point of each row's key, and the code of its owner: :data:`OWNER_CODE`.

    Raises:
        ColumnError: no such column, no type of a key, or ``point`` or one of ``added`` is there.
    """
    check_free(df, "point", *added)
    check_not_own(df)
    algorithm = ring.hash_algorithm.name
    hashed = key_point(df, key, algorithm).alias("point", metadata=points_of(key, algorithm))
    return columns.with_code(df.select("*", hashed), "point", OWNER_CODE)
