"""A directory for the rows of each owner: what Spark writes there, and which names it can have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.ring import Ring
from hashring.core.safe_text import printable
from hashring.errors import ConfigError, OutputRefused
from hashring.spark.engine.older_pyspark import IS_4_0, by_partition_number
from hashring.spark.lookup.owner_columns import OWNER_CODE, with_owner_code
from hashring.spark.lookup.ring_columns import ring_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FILE: Final = "__hashring_file"
_NO_OWNER: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = frozenset("\"#%'*/:=?\\\x7f{[]^")
"""Beside control characters, what Spark writes as ``%`` and two digits."""
_MOST_BYTES: Final = 255
_LEAST_TASKS: Final = 200
"""Unless told, up to as many files have a task each. Each takes a while to start."""
_SHOWN: Final = 60


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
                where,
                f"a node is named {node}, as Spark names the directory of rows without one",
                "write it without a directory for each owner",
            )
        size = sum(
            3 if char in _ESCAPED or char < " " else len(char.encode()) for char in f"{node}"
        ) + len("owner=")
        if is_disk and size > _MOST_BYTES:
            raise OutputRefused(
                where,
                f"the directory of node {printable(node)[:_SHOWN]}... would have a name of {size} "
                f"bytes, and a disk takes {_MOST_BYTES}",
                "write it without a directory for each owner",
            )


def partition_by_owner(
    df: DataFrame,
    ring: Ring,
    key: str = "key",
    *,
    files_per_owner: int = 1,
    nodes_per_task: int | None = None,
) -> DataFrame:
    """As :func:`hashring.spark.with_owner`, the rows of a node in Spark partitions of their own.

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
        nodes_per_task: how many nodes one task writes. By default, one; of more than 200 nodes
            times files, as many as keep the tasks at 200, or at ``spark.sql.shuffle.partitions`` if
            that is more, because each takes a while to start.

    Raises:
        EmptyRingError, ColumnError: as for :func:`hashring.spark.with_owner`.
        ConfigError: ``files_per_owner`` or ``nodes_per_task`` is below 1.
    """
    for name, value in (("files_per_owner", files_per_owner), ("nodes_per_task", nodes_per_task)):
        if value is not None and value < 1:
            raise ConfigError(name, value, "give at least 1")
    columns = ring_columns(df.sparkSession, ring)
    if nodes_per_task is None:
        shuffled = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions", None) or 0)
        nodes_per_task = -(-columns.count * files_per_owner // max(shuffled, _LEAST_TASKS))
    coded = with_owner_code(df, columns, ring, key, "owner")
    last = -(-columns.count // nodes_per_task) * files_per_owner
    group = F.floor(F.col(OWNER_CODE) / nodes_per_task).cast("int")
    part = group * files_per_owner + F.pmod("point", F.lit(files_per_owner)).cast("int")
    numbered = coded.withColumn(_FILE, F.coalesce(part, F.lit(last)))
    if IS_4_0:
        placed = by_partition_number(numbered, last + 1, _FILE)
    else:
        placed = numbered.repartitionById(last + 1, F.col(_FILE))
    # The names come after the shuffle: their numbers are less to move.
    owned = columns.told("node", F.col(OWNER_CODE)).alias("owner")
    return placed.select("*", owned).drop(OWNER_CODE, _FILE)
