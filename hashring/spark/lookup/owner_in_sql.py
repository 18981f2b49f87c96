"""The owner of a key in SQL: functions of a session."""

from __future__ import annotations

import uuid
from threading import Lock
from typing import TYPE_CHECKING, Final

import pyarrow as pa  # type: ignore[import-untyped]

from hashring.core.ring import Ring
from hashring.errors import ConfigError
from hashring.spark.engine.arrays_to_spark import one_row
from hashring.spark.engine.sql_expressions import Sql, SqlFunctions
from hashring.spark.lookup.key_points import NATIVE_ALGORITHMS
from hashring.spark.lookup.range_table_lookup import (
    code_at,
    table_arrays,
)
from hashring.spark.lookup.ring_columns import check_ring, ring_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NODES: Final = "__hashring_nodes"
_one_at_a_time: Final = Lock()


def register_functions(spark: SparkSession, ring: Ring, prefix: str = "hashring") -> None:
    """Make ``hashring_owner(key)`` and ``hashring_point(key)`` known to a session's SQL.

    Both are temporary functions, inlined by Spark: no Python runs, there is no join, and filters
    are pushed as for any column. ``key`` is STRING; Spark casts integers to their digits and
    binaries to the same bytes. It casts other types too, perhaps not as the fleet writes them:
    cast those yourself. Registered again, the functions answer by the new ring, also in views
    that were made before. A query meanwhile is answered by one ring, the old or the new.

    Spark takes no such function in ``ORDER BY``, in functions of arrays (``transform``) or as a key
    of a join whose side it broadcasts. Select the owner under a name first, as in ``SELECT * FROM
    nodes JOIN (SELECT *, hashring_owner(key) AS owner FROM t) USING (owner)``.

    The ring's arrays are in temporary views whose names begin with the prefix.

    Args:
        prefix: of the functions' names, for more than one ring in a session.

    Raises:
        EmptyRingError: the ring has no nodes.
        ConfigError: the ring hashes keys by an algorithm that Spark does not compute itself; or
            the prefix is no name of a function.
    """
    if not prefix.isidentifier() or not prefix.isascii():
        raise ConfigError("prefix", prefix, "give letters, digits and underscores")
    check_ring(ring)
    algorithm = ring.hash_algorithm.name
    if algorithm not in NATIVE_ALGORITHMS:
        raise ConfigError(
            "hash_algorithm",
            algorithm,
            f"SQL computes {' and '.join(NATIVE_ALGORITHMS)} only; use hashring.spark.with_owner",
        )
    with _one_at_a_time:
        # The session knows which views its functions read, whoever registered them.
        known = f"hashring.{prefix.lower()}.views"
        last, _, older = (spark.conf.get(known, "") or "").partition("/")
        views = _register(spark, ring, prefix)
        spark.conf.set(known, f"{' '.join(views)}/{last}")
        # Not the last ones: a query that has found their functions may look for them now.
        for view in older.split():
            spark.catalog.dropTempView(view)


def _register(spark: SparkSession, ring: Ring, prefix: str) -> list[str]:
    """Make the functions, and the views that they read; returns the names of these."""
    table, nodes = ring_table(ring)
    arrays, views = {}, []
    mark = uuid.uuid4().hex[:8]
    for name, array in {**table_arrays(table), _NODES: pa.array(nodes, pa.string())}.items():
        # Names of their own: in the views of the last functions, a query would meet two rings.
        view = f"{prefix}_{name.lstrip('_')}_{mark}"
        one_row(spark, {name: array}).createOrReplaceTempView(view)
        arrays[name] = Sql(f"(SELECT {name} FROM {view})")
        views.append(view)
    key = "if(octet_length(key) > 0, key, NULL)"
    is_plain = ring.hash_algorithm.name == "crc-32"
    at = Sql(f"crc32({key})" if is_plain else f"({2**32 - 1}L - crc32({key}))")
    code = code_at(at, table, arrays, SqlFunctions)
    owned = SqlFunctions.get(arrays[_NODES], code.cast("int"))
    for name, kind, body in (("owner", "STRING", owned), ("point", "BIGINT", at)):
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY FUNCTION {prefix}_{name}(key STRING) RETURNS {kind} "
            f"RETURN {body}"
        )
    return views
