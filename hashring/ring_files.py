"""Ring files on this machine.

A ring file is JSON (:mod:`hashring.core.ring_json`), or Parquet with the same JSON in its header.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from hashring.atomic_writes import new_file
from hashring.core.ring import Ring
from hashring.core.ring_json import RingFile, dump_ring, load_ring
from hashring.errors import (
    MissingDependencyError,
    NoDataError,
    RingFileError,
)

_RING_METADATA: Final = b"hashring.ring"
_PARQUET_MAGIC: Final = b"PAR1"


def read_ring(path: str | os.PathLike[str]) -> RingFile:
    """The ring of a ring file, JSON or Parquet, whatever its name.

    Raises:
        NoDataError: there is no such file, or it cannot be read.
        RingFileError: it is cut short, changed, of a newer version, or no ring file.
        MissingDependencyError: it is Parquet, and pyarrow is not installed; or its hash algorithm
            needs a package that is not installed.
    """
    source = os.fspath(path)
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # the latter for a path that no file can have
        reason = getattr(error, "strerror", error)
        raise NoDataError(
            source,
            f"no ring file could be read ({reason}): check the path, or make one with "
            f"hashring export",
        ) from error
    if not data.startswith(_PARQUET_MAGIC):
        return load_ring(data, source)
    pa, pq = _parquet()
    try:
        table = pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        raise RingFileError(
            source, f"is cut short or no ring file ({error}): export the ring anew"
        ) from error
    header = (table.schema.metadata or {}).get(_RING_METADATA)
    if header is None:
        raise RingFileError(
            source, "is Parquet, but no ring file (its metadata holds no ring): export the ring"
        )
    # The rows are for those who read it as a table; the header is the ring.
    return load_ring(header, source)


def write_ring(ring: RingFile | Ring, path: str | os.PathLike[str]) -> None:
    """Write a ring file: Parquet when the path ends in ``.parquet``, else JSON.

    The Parquet file is a table of ``point`` BIGINT and ``node`` STRING, one row a replica.

    Args:
        ring: the ring, alone or with where it was taken from.
        path: of the new file; directories that are missing are made.

    Raises:
        OutputExists: the path is there already.
        OutputRefused: the directory cannot be written.
        ConfigError: the ring's hash algorithm is a function of your own: a file has its name alone.
        MissingDependencyError: Parquet, and pyarrow is not installed.
    """
    ring = RingFile(ring) if isinstance(ring, Ring) else ring
    text = dump_ring(ring)
    if Path(path).suffix != ".parquet":
        with new_file(path) as aside:
            aside.write_text(text, encoding="utf-8")
        return
    pa, pq = _parquet()
    replicas = list(ring.ring.replicas())
    table = pa.table(
        {
            "point": pa.array([point for point, _ in replicas], pa.int64()),
            "node": pa.array([node for _, node in replicas], pa.string()),
        }
    )
    with new_file(path) as aside:
        pq.write_table(table.replace_schema_metadata({_RING_METADATA: text.encode()}), aside)


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # type: ignore[import-untyped] # noqa: PLC0415 - optional
        import pyarrow.parquet as pq  # type: ignore[import-untyped] # noqa: PLC0415
    except ImportError:
        raise MissingDependencyError("a ring file in Parquet", "pyarrow", "spark") from None
    return pa, pq
