"""The history of a ring from a frame of its events."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegralType,
    NullType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from hashring.core.ring_change_message import ChangeKind, RingChange, Stamp
from hashring.core.ring_history import RingHistory, ring_history
from hashring.core.ring_json import RingFile
from hashring.errors import ColumnError, HistoryError
from hashring.spark.engine.column_checks import column_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_ID: Final = re.compile(r"\d{1,20}-\d{1,20}")
"""Of an entry of a Redis stream."""


def _is_list(items: type[DataType]) -> Callable[[DataType], bool]:
    return lambda kind: (
        isinstance(kind, ArrayType) and isinstance(kind.elementType, (items, NullType))
    )


_OPTIONAL: Final = ("id", "tag", "prev")
_EVENTS: Final[Mapping[str, Callable[[DataType], bool]]] = {
    "epoch": lambda kind: isinstance(kind, IntegralType),
    "at": lambda kind: isinstance(kind, TimestampType),
    "kind": lambda kind: isinstance(kind, StringType),
    "nodes": _is_list(StringType),
    "points": _is_list(IntegralType),
    **dict.fromkeys(_OPTIONAL, lambda kind: isinstance(kind, StringType)),
}
"""The columns that a history is made of, and which types they may have."""


def history_of(
    events: DataFrame, base: RingFile | None = None, hash_algorithm: str = "crc-32"
) -> RingHistory:
    """The history that a frame of events tells, collected to this process.

    Args:
        events: the columns of the table ``events`` of the ``hashring`` data source; needed are
            ``epoch``, ``at`` (a timestamp), ``kind``, ``nodes`` and ``points``; ``id``, ``tag``
            and ``prev`` tell more faults apart. Rows that are no changes of the ring (``unserved``,
            ``release``, and what later versions may add) are passed over; a row without a kind
            is none of them. An event that is there twice, such as from two archives, counts once.
        base: the ring before the events; without it they must begin with the ring's first change.
        hash_algorithm: that of the ring, when there is no base. Events do not have it: a ring's
            nodes report it in the column ``hash_algorithm`` of the table ``nodes``. With a wrong
            one, nearly all work looks like a fault.

    Raises:
        ColumnError: a column is missing, or of a type that no event has.
        HistoryError: changes are missing or garbled.
    """
    optional = [name for name in _OPTIONAL if name in events.columns]
    for name, fits in _EVENTS.items():
        if name in _OPTIONAL and name not in optional:
            continue
        kind = column_type(events, name)
        if not isinstance(kind, NullType) and not fits(kind):
            remedy = "export the table events anew"
            if isinstance(kind, TimestampNTZType):
                # Spark would read it in the time zone of the session.
                remedy = f"its time zone is unknown: cast it to TIMESTAMP, or {remedy}"
            raise ColumnError(name, f"is {kind.simpleString()}; {remedy}")
    kinds = [kind.value for kind in ChangeKind]
    rows = (
        # A row without a kind may have been any change.
        events.where(F.col("kind").isin(kinds) | F.col("kind").isNull())
        .select("epoch", F.unix_micros("at").alias("at"), "kind", "nodes", "points", *optional)
        .collect()
    )
    told: dict[str | RingChange, tuple[tuple[int, ...], RingChange]] = {}
    for row in map(Row.asDict, rows):
        change = _change(row)
        told[row.get("id") or change] = _place(row, change), change
    return ring_history(
        [change for _, change in sorted(told.values(), key=itemgetter(0))],
        base.ring if base else None,
        base.epoch if base else 0,
        base.at if base else 0,
        base_tag=base.tag if base else "",
        hash_algorithm=hash_algorithm,
    )


def counts_of_kinds(events: DataFrame) -> list[tuple[str, int]]:
    """How many events there are of each kind, in order of the kinds. Each counts once.

    Args:
        events: as for :func:`history_of`. Those without an ``id`` cannot be told apart.
    """
    number = F.count(F.lit(1))
    if "id" in events.columns:
        number = F.count_distinct("id") + F.count_if(F.col("id").isNull())
    return list(map(tuple, events.groupBy("kind").agg(number).orderBy("kind").collect()))


def _place(row: dict[str, Any], change: RingChange) -> tuple[int, ...]:
    if row.get("id"):
        return tuple(int(part) for part in row["id"].split("-"))
    return change.stamp.at, change.stamp.epoch


def _change(row: dict[str, Any]) -> RingChange:
    nodes: Sequence[str] = row["nodes"] or ()
    points: Sequence[int] = row["points"] or ()
    if (
        row["kind"] is None
        or row["epoch"] is None
        or row["at"] is None
        or None in (*nodes, *points)
        or (row["kind"] == "join" and (len(nodes) != 1 or not points))
        or not _ID.fullmatch(row.get("id") or "0-0")
    ):
        raise HistoryError(f"an event is not whole: {row}; export the events anew")
    tag, prev = row.get("tag") or "", row.get("prev") or ""
    return RingChange(
        ChangeKind(row["kind"]),
        tuple(nodes),
        tuple(sorted(points)),
        prev,
        Stamp(row["epoch"], tag, 0, row["at"]),
    )
