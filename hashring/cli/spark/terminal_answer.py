"""The answer on the terminal: named values, and tables of the largest rows with the rest summed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from hashring.cli.output import blocks, columns
from hashring.core.readable_numbers import percent
from hashring.core.safe_text import printable

if TYPE_CHECKING:
    from hashring.spark.jobs.outcome import Table

_BAR: Final = 24
_NAME: Final = 48


def table_lines(table: Table, top: int | None) -> Iterator[str]:
    """A table as lines: its first rows, and what the others sum up to.

    Args:
        top: how many rows; ``None`` for all.
    """
    yield ""
    if not table.rows:
        yield f"{table.title}: none"
        return
    yield table.title
    rows = table.rows if top is None else table.rows[:top]
    cells = [[_cell(table, name, row[i]) for i, name in enumerate(table.columns)] for row in rows]
    header = list(table.columns)
    if len(rows) < len(table.rows):
        sums = table.rest(len(rows))
        first = f"{len(table.rows) - len(rows):,} more"
        cells.append([first, *(_cell(table, n, sums.get(n)) for n in table.columns[1:])])
    if table.bar:
        at = table.columns.index(table.bar)
        most = max(row[at] for row in table.rows) or 1
        header.append("")
        for line, row in zip(cells, rows, strict=False):
            line.append(blocks(round(_BAR * row[at] / most)))
        if len(cells) > len(rows):
            cells[-1].append("")
    yield from columns(header, cells)


def _cell(table: Table, column: str, value: Any) -> str:
    if value is None:
        return ""
    if column in table.percent:
        return percent(value)
    if isinstance(value, str):
        text = printable(value)
        return text if len(text) <= _NAME else f"{text[: _NAME - 1]}…"
    return shown(value)


def shown(value: Any) -> str:
    """A value for people."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))
