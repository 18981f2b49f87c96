"""A report: one HTML page with tables and plots, complete in itself.

The plots are SVG in the page; there is no script, no font and no image to load, so the page reads
the same from a mail, an archive or a file of ten years ago.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from hashring.core.ring import Ring
from hashring.core.safe_text import printable
from hashring.drawing.charts import CHART_CSS, INK, bar_chart, flow_chart, line_chart
from hashring.drawing.ring_picture import PICTURE_CSS, ring_picture

MOST_BARS: Final = 40
MOST_FLOWS: Final = 60
MOST_NAMED: Final = 60

_NUMBER: Final = re.compile(r"[-+]?[\d.,]+%?")

_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;color:#1c2330;background:#fff;margin:2rem auto;
max-width:980px;padding:0 1rem}
h1{font-size:1.6rem;margin:2.6rem 0 .3rem}h2{font-size:1.15rem;margin:2.2rem 0 .4rem;
border-top:1px solid #dde2ea;padding-top:1.2rem}
p{margin:.4rem 0;max-width:75ch}.note{color:#5a6474}
table{display:block;overflow-x:auto;border-collapse:collapse;margin:.8rem 0;
font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:.22rem .6rem;text-align:right;border-bottom:1px solid #eceff4}
th{color:#5a6474;font-weight:600;vertical-align:bottom}
td:first-child,th:first-child,.w{text-align:left}td.w{white-space:nowrap}
.plot{overflow-x:auto;margin:.6rem 0}.plot svg{width:100%;min-width:660px;height:auto;display:block}
.plot .hr-ring{max-height:560px}
nav{display:flex;flex-wrap:wrap;gap:.2rem 1.4rem;margin:.8rem 0}nav a{color:#2f52ab}
dl{display:grid;grid-template-columns:fit-content(65%) auto;gap:.15rem 1.2rem;margin:.8rem 0;
justify-content:start}
dt{color:#5a6474}dd{margin:0;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
"""


@dataclass
class Report:
    """A page under construction.

    Attributes:
        title: its heading.
    """

    title: str
    _parts: list[str] = field(default_factory=list)
    _included: list[str] = field(default_factory=list)
    _has_ring: bool = False

    def facts(self, facts: Sequence[tuple[str, Any]]) -> None:
        """Named values, one a line."""
        lines = "".join(f"<dt>{_text(n)}</dt><dd>{_value(v)}</dd>" for n, v in facts)
        self._parts.append(f"<dl>{lines}</dl>")

    def section(self, heading: str, text: str = "") -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{_text(heading)}</h2>")
        if text:
            self._parts.append(f"<p>{_text(text)}</p>")

    def include(self, other: Report) -> None:
        """All of another report, under its title."""
        self._included.append(other.title)
        self._parts.append(f'<h1 id="part{len(self._included)}">{_text(other.title)}</h1>')
        self._parts.extend(other._parts)
        self._has_ring |= other._has_ring

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], most: int = 50) -> None:
        """A table; of more than ``most`` rows the first, and how many more there are."""
        words = [any(_is_word(row[i]) for row in rows[:most]) for i in range(len(columns))]
        mark = [' class="w"' if is_word else "" for is_word in words]
        head = "".join(f"<th{m}>{_text(name)}</th>" for m, name in zip(mark, columns, strict=True))
        body = "".join(
            "<tr>"
            + "".join(f"<td{m}>{_value(cell)}</td>" for m, cell in zip(mark, row, strict=True))
            + "</tr>"
            for row in rows[:most]
        )
        self._parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        if len(rows) > most:
            self._parts.append(f'<p class="note">and {len(rows) - most:,} more</p>')

    def bars(
        self,
        label: str,
        rows: Sequence[tuple[str, float, float | None]],
        unit: str = "%",
        *,
        in_order: bool = False,
    ) -> None:
        """A bar for each (name, value, mark), longest first; a mark is drawn across its bar.

        With the unit ``%`` values are parts of one. Without rows there is no plot.
        """
        if not rows:
            return
        ordered = list(rows) if in_order else sorted(rows, key=lambda row: -row[1])
        shown = ordered[:MOST_BARS]
        self._plot(bar_chart(label, shown, unit))
        if len(ordered) > len(shown):
            self._parts.append(f'<p class="note">the {len(shown)} largest of {len(ordered):,}</p>')

    def histogram(self, label: str, values: Sequence[float]) -> None:
        """How many of the values are in each tenth of their range."""
        low, high = min(values), max(values)
        step = (high - low) / 10 or 1.0
        counts = [0] * 10
        for value in values:
            counts[min(int((value - low) / step), 9)] += 1
        names = [f"{low + i * step:.3g} to {low + (i + 1) * step:.3g}" for i in range(10)]
        rows = [(name, float(n), None) for name, n in zip(names, counts, strict=True)]
        self.bars(label, rows, unit="", in_order=True)

    def flows(
        self, label: str, rows: Sequence[tuple[str, str, float]], nodes: Sequence[str]
    ) -> None:
        """What moves between which nodes: ribbons from the left column to the right one.

        Args:
            nodes: all there are, for the same colours as in a picture of the ring.
        """
        shown = sorted(rows, key=lambda row: -row[2])[:MOST_FLOWS]
        if not sum(amount for *_, amount in shown):
            return
        self._plot(flow_chart(label, shown, nodes))
        if len(rows) > len(shown):
            self._parts.append(
                f'<p class="note">the {len(shown)} largest of {len(rows):,} flows</p>'
            )

    def ring(self, ring: Ring, name: str = "") -> None:
        """The ring as a picture, with its nodes named when they are not too many."""
        self._has_ring = True
        legend = ring.node_count <= MOST_NAMED
        self._plot(ring_picture(ring, title=name, legend=legend, style=False))

    def lines(
        self,
        label: str,
        series: Sequence[tuple[str, Sequence[tuple[float, float, float]]]],
        x_title: str,
        y_title: str,
    ) -> None:
        """A line for each series of (x, y, upper y), on a logarithmic x axis."""
        if any(own for _, own in series):
            self._plot(line_chart(label, series, x_title, y_title))

    def _plot(self, svg: str) -> None:
        self._parts.append(f'<div class="plot">{svg}</div>')

    def _contents(self) -> str:
        links = (
            f'<a href="#part{number}">{_text(title)}</a>'
            for number, title in enumerate(self._included, 1)
        )
        return f"<nav>{''.join(links)}</nav>\n" if self._included else ""

    def _style(self) -> str:
        # The page is white in the dark, too.
        style = f"{_STYLE}{CHART_CSS}"
        return f"{PICTURE_CSS}{style}.hr-ring{{color:{INK}}}" if self._has_ring else style

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks."""
        page = escape(self.html(), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:40em;border:0"></iframe>'

    def html(self) -> str:
        """The page."""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>{_text(self.title)}</title><style>{self._style()}</style></head><body>\n"
            f"<h1>{_text(self.title)}</h1>\n{self._contents()}"
            + "\n".join(self._parts)
            + "\n</body></html>\n"
        )


def _text(value: Any) -> str:
    # A name may hold what turns the text around it, or what no page may hold.
    return escape(printable(str(value)))


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and not _NUMBER.fullmatch(value)


def _value(value: Any) -> str:
    if value is None:
        return '<span class="note">&ndash;</span>'
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return _text(value)
