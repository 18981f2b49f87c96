"""Files on this machine: written whole or not at all; and rings in files.

A ring file is JSON (:mod:`hashring.core.ring_file`), or Parquet with the same JSON in its header.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from hashring.core.ring import Ring
from hashring.core.ring_file import RingFile, dump_ring, load_ring
from hashring.errors import (
    MissingDependencyError,
    NoDataError,
    OutputExists,
    OutputRefused,
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
    except OSError as error:
        raise NoDataError(
            source,
            f"no ring file could be read ({error.strerror}): check the path, or make one with "
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

    Raises:
        OutputExists: the path is there already.
        OutputRefused: the directory cannot be written.
        MissingDependencyError: Parquet, and pyarrow is not installed.
    """
    ring = RingFile(ring) if isinstance(ring, Ring) else ring
    text = dump_ring(ring.ring, name=ring.name, epoch=ring.epoch, tag=ring.tag, at=ring.at)
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


def check_new(path: str | os.PathLike[str]) -> None:
    """Check, before the work starts, that a file or directory can be made there.

    Raises:
        OutputExists: it is there already.
        OutputRefused: nothing can be made there.
    """
    target = Path(path).absolute()
    try:
        # The name that it has while it is written is the longest.
        with suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(_aside(target))
    except OSError as error:
        raise OutputRefused(str(path), error.strerror or str(error)) from error
    if target.exists():
        raise OutputExists(str(path))
    parent = next(at for at in target.parents if at.exists())
    if not parent.is_dir():
        raise OutputRefused(str(path), f"{parent} is no directory")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputRefused(str(path), f"no right to write into {parent}")


def _aside(target: Path) -> Path:
    return target.parent / f".{target.name}.{uuid.uuid4().hex[:8]}"


@contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to; what is there at the end gets the real name, in one step.

    Raises:
        OutputExists: the real name is taken, now or by the end.
        OutputRefused: the file cannot be written.
    """
    check_new(path)
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputRefused(str(path), f"{target.parent}: {error.strerror}") from error
    aside = _aside(target)
    try:
        yield aside
        # A link fails where a rename would replace what somebody else wrote meanwhile.
        os.link(aside, target)
    except FileExistsError:
        raise OutputExists(str(path)) from None
    except OSError as error:
        raise OutputRefused(str(path), error.strerror or str(error)) from error
    finally:
        with suppress(OSError):
            aside.unlink()


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # type: ignore[import-untyped] # noqa: PLC0415 - optional
        import pyarrow.parquet as pq  # type: ignore[import-untyped] # noqa: PLC0415
    except ImportError:
        raise MissingDependencyError("a ring file in Parquet", "pyarrow", "spark") from None
    return pa, pq
