"""What a job answers: named values, tables, and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hashring.spark.analysis.html_report import Report


@dataclass(frozen=True)
class Table:
    """A table of an answer.

    Attributes:
        title: what it shows.
        columns: their names; the first column names the row.
        rows: as many values each, most important first.
        summed: the columns whose values may be summed over rows.
        percent: the columns whose values are parts of one.
        bar: the column to draw as bars.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    summed: tuple[str, ...] = ()
    percent: tuple[str, ...] = ()
    bar: str | None = None

    def rest(self, first: int) -> dict[str, Any]:
        """The sums of the rows from number ``first`` on."""
        at = [self.columns.index(name) for name in self.summed]
        left = self.rows[first:]
        return {self.columns[i]: sum(row[i] for row in left) for i in at}

    def records(self) -> list[dict[str, Any]]:
        """All rows as documents."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class Outcome:
    """What a job has to tell.

    Attributes:
        facts: named values, in order.
        report: the page.
        tables: what was asked for, row by row.
    """

    facts: tuple[tuple[str, Any], ...]
    report: Report
    tables: tuple[Table, ...] = ()

    @classmethod
    def of_facts(cls, title: str, facts: Sequence[tuple[str, Any]]) -> Outcome:
        """An answer of named values alone, and a page of this title with them."""
        report = Report(title)
        report.facts(facts)
        return cls(tuple(facts), report)

    def _repr_html_(self) -> str:
        """The page, for notebooks."""
        return self.report._repr_html_()
