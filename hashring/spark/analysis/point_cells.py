"""Cells: files of rows whose points have the same top bits, and the ring kept beside them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.ring import Ring
from hashring.core.ring_json import RingFile
from hashring.core.safe_text import printable
from hashring.errors import ConfigError, NoDataError
from hashring.ring_files import write_ring

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CELL: Final = "cell"
MOST_CELLS: Final = 2**16
KEPT_RING, CELL_COUNT = "_ring.json", "_cells"
"""Files beside the cells: the ring of their owners, and how many cells there are."""
_DIGITS: Final = 8
"""More than a number of cells has."""


def check_cells(cells: int) -> None:
    """Raise ``ConfigError`` unless it is a power of two from 1 to 65,536."""
    if not 1 <= cells <= MOST_CELLS or cells & (cells - 1):
        raise ConfigError("cells", cells, f"give a power of two, up to {MOST_CELLS:,}")


def by_cell(df: DataFrame, cells: int) -> DataFrame:
    """A frame with a column ``point``, in order of cells and points, and its column ``cell`` INT.

    Written with ``.write.partitionBy("cell")``, each cell is one file. Rows without a point have a
    null cell.
    """
    placed = df.withColumn(CELL, F.shiftright("point", _shift(cells)).cast("int"))
    return placed.repartition(CELL).sortWithinPartitions(CELL, "point")


def keep_ring(place: Path, ring: RingFile, cells: int) -> None:
    """Write beside the files which ring their owners are of, and how many cells there are."""
    (place / CELL_COUNT).write_text(f"{cells}\n", encoding="ascii")
    write_ring(ring, place / KEPT_RING)


def kept_cells(place: Path, path: str) -> int:
    """How many cells there are, as :func:`keep_ring` wrote.

    Raises:
        NoDataError: it did not write there, or something else stands in its file now.
    """
    file = place / CELL_COUNT
    if not place.exists():
        raise NoDataError(path, "nothing is there; check the path")
    if not file.is_file():
        raise NoDataError(path, "holds no cells: write it with assign --keep-point")
    told = file.read_text(encoding="ascii", errors="replace").strip()
    cells = int(told) if told.isascii() and told.isdigit() and len(told) < _DIGITS else 0
    if not 1 <= cells <= MOST_CELLS or cells & (cells - 1):
        raise NoDataError(
            str(file),
            f"says {printable(told)[:40]!r} where the number of cells should stand: put it back, "
            f"or write the owners anew with assign --keep-point",
        )
    return cells


def _shift(cells: int) -> int:
    return 32 - (cells.bit_length() - 1)


def touched_cells(rings: Iterable[Ring], after: Ring, cells: int) -> list[int]:
    """The cells in which some owner on one of the rings is not the owner on ``after``."""
    shift = _shift(cells)
    return sorted(
        {
            cell
            for ring in rings
            for move in ring.moves(after)
            for cell in range(move.start >> shift, ((move.end - 1) >> shift) + 1)
        }
    )
