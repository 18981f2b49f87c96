"""The history of a ring from a frame of its events."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

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

from hashring.core.ring_change import ChangeKind, RingChange, Stamp
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
            is none of them.
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
    changes = [_change(row.asDict()) for row in rows]
    order = sorted(
        range(len(rows)),
        key=lambda i: _place(rows[i].asDict(), changes[i]),
    )
    return ring_history(
        [changes[i] for i in order],
        base.ring if base else None,
        base.epoch if base else 0,
        base.at if base else 0,
        base_tag=base.tag if base else "",
        hash_algorithm=hash_algorithm,
    )


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
