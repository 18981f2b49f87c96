"""Who owns what: the owner of every key, as a column, as columns of a frame, and as files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.printable import printable
from hashring.core.ring import Ring
from hashring.errors import ConfigError, OutputRefused
from hashring.spark.column_checks import check_free, check_not_own
from hashring.spark.key_points import NATIVE_ALGORITHMS, key_point, point, points_of
from hashring.spark.older_pyspark import IS_4_0, by_partition_number
from hashring.spark.ring_columns import CodeColumns, pair_columns, ring_columns
from hashring.spark.session import running_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_CODE = "__hashring_code"
_FILE = "__hashring_file"
_NO_OWNER: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = frozenset("\"#%'*/:=?\\\x7f{[]^")
"""Beside control characters, what Spark writes as ``%`` and two digits."""
_MOST_BYTES: Final = 255
_SHOWN: Final = 60
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
        ConfigError: no Spark session is running.
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
    """
    columns = ring_columns(df.sparkSession, ring)
    return _with_told(df, columns, ring, key, {"owner": "node"})


def with_move(df: DataFrame, before: Ring, after: Ring, key: str = "key") -> DataFrame:
    """Add the point of each row's key and its owner on two rings, in one lookup.

    Returns:
        The frame with ``point`` BIGINT, ``before`` and ``after`` STRING; null where the key is
        null or empty. A row moves where ``before <> after``.

    Raises:
        EmptyRingError, ColumnError: as for :func:`with_owner`.
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
    coded = _coded(df, columns, ring, key, *told)
    code = F.col(_CODE)
    added = (columns.told(attribute, code).alias(name) for name, attribute in told.items())
    return coded.select("*", *added).drop(_CODE)


def _coded(df: DataFrame, columns: CodeColumns, ring: Ring, key: str, *added: str) -> DataFrame:
    check_free(df, "point", *added)
    check_not_own(df)
    algorithm = ring.hash_algorithm.name
    hashed = key_point(df, key, algorithm).alias("point", metadata=points_of(key, algorithm))
    return columns.with_code(df.select("*", hashed), "point", _CODE)


def check_directories(ring: Ring, where: str, *, is_disk: bool) -> None:
    """Check that each node can have a directory ``owner=<node>``, as Spark writes its name.

    Args:
        where: the output, for the error.
        is_disk: whether a name may have as many bytes as a disk takes.

    Raises:
        OutputRefused: a node cannot.
    """
    for node in ring.nodes:
        if node == _NO_OWNER:
            raise OutputRefused(
                where, f"a node is named {node}, as Spark names the directory of rows without one"
            )
        size = sum(
            3 if char in _ESCAPED or char < " " else len(char.encode()) for char in f"{node}"
        ) + len("owner=")
        if is_disk and size > _MOST_BYTES:
            raise OutputRefused(
                where,
                f"the directory of node {printable(node)[:_SHOWN]}... would have a name of {size} "
                f"bytes, and a disk takes {_MOST_BYTES}: write it without a directory for each "
                f"owner",
            )


def partition_by_owner(
    df: DataFrame,
    ring: Ring,
    key: str = "key",
    *,
    files_per_owner: int = 1,
    nodes_per_task: int = 1,
) -> DataFrame:
    """As :func:`with_owner`, with the rows of a node in Spark partitions of their own.

    Partitions ``i * files_per_owner`` and following hold the rows of ``ring.nodes[i]``, spread by
    their points; the last partition holds the rows without an owner. With ``nodes_per_task``, as
    many nodes that follow each other share these partitions, and a node still has files of its own:
    Spark sorts the rows of a task by their owner as it writes them. Written with
    ``.write.partitionBy("owner").parquet(path)``, each node's keys are in ``path/owner=<node>``,
    in as many files, which that node can read alone. Spark writes some characters of a name as in
    a URL: the directory of ``host:17`` is ``owner=host%3A17``. On most disks a
    directory's name has 255 bytes at most; a node's name may be longer.

    Args:
        files_per_owner: how many tasks write a node's rows: with fewer nodes than cores, more
            than one.
        nodes_per_task: how many nodes one task writes: with thousands of nodes, more than one,
            because each task takes a while to start.

    Raises:
        EmptyRingError, ColumnError: as for :func:`with_owner`.
        ConfigError: ``files_per_owner`` or ``nodes_per_task`` is below 1.
    """
    for name, value in (("files_per_owner", files_per_owner), ("nodes_per_task", nodes_per_task)):
        if value < 1:
            raise ConfigError(name, value, "give at least 1")
    columns = ring_columns(df.sparkSession, ring)
    coded = _coded(df, columns, ring, key, "owner")
    last = -(-columns.count // nodes_per_task) * files_per_owner
    group = F.floor(F.col(_CODE) / nodes_per_task).cast("int")
    part = group * files_per_owner + F.pmod("point", F.lit(files_per_owner)).cast("int")
    numbered = coded.withColumn(_FILE, F.coalesce(part, F.lit(last)))
    if IS_4_0:
        placed = by_partition_number(numbered, last + 1, _FILE)
    else:
        placed = numbered.repartitionById(last + 1, F.col(_FILE))
    # The names come after the shuffle: their numbers are less to move.
    owned = columns.told("node", F.col(_CODE)).alias("owner")
    return placed.select("*", owned).drop(_CODE, _FILE)
