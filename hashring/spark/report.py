"""A report: one HTML page with tables and plots, complete in itself.

The plots are SVG in the page; there is no script, no font and no image to load, so the page reads
the same from a mail, an archive or a file of ten years ago.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from hashring.core.picture import PALETTE, PICTURE_CSS, node_colors, ring_picture
from hashring.core.ring import Ring

WIDTH: Final = 920
MOST_BARS: Final = 40
MOST_FLOWS: Final = 60
MOST_NAMED: Final = 60
_COLOURS: Final = (
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951",
    "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0",
)  # fmt: skip

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
svg:not(.hr-ring) text{font:12px system-ui,sans-serif;fill:#1c2330}svg .dim{fill:#5a6474}
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
        self, label: str, rows: Sequence[tuple[str, float, float | None]], unit: str = "%"
    ) -> None:
        """A bar for each (name, value, mark), longest first; a mark is drawn across its bar.

        With the unit ``%`` values are parts of one.
        """
        ordered = sorted(rows, key=lambda row: -row[1])
        shown = ordered[:MOST_BARS]
        top = max([v for _, v, _ in shown] + [m for *_, m in shown if m is not None] + [1e-12])
        left, right, step = _room(name for name, *_ in shown), 130, 22
        scale = (WIDTH - left - right) / top
        parts = []
        for index, (name, value, mark) in enumerate(shown):
            y = index * step + 6
            ends = left + max(value, mark or 0.0) * scale
            parts.append(
                f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{_text(_short(name))}'
                f"<title>{_text(name)}</title></text>"
                f'<rect x="{left}" y="{y}" width="{value * scale:.1f}" height="15" '
                f'fill="{_COLOURS[0]}"/>'
                f'<text x="{ends + 6:.1f}" y="{y + 12}" class="dim">'
                f"{_measure(value, unit)}</text>"
            )
            if mark is not None:
                x = left + mark * scale
                parts.append(
                    f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y - 3}" y2="{y + 18}" '
                    f'stroke="#1c2330" stroke-width="2"/>'
                )
        self._svg(label, parts, len(shown) * step + 12)
        if len(ordered) > len(shown):
            self._parts.append(f'<p class="note">the {len(shown)} largest of {len(ordered):,}</p>')

    def flows(
        self, label: str, rows: Sequence[tuple[str, str, float]], nodes: Sequence[str]
    ) -> None:
        """What goes from whom to whom: ribbons from the left column to the right one.

        Args:
            nodes: all there are, for the same colours as in a picture of the ring.
        """
        shown = sorted(rows, key=lambda row: -row[2])[:MOST_FLOWS]
        total = sum(amount for *_, amount in shown)
        if not total:
            return
        sources, targets = (_sums(shown, side) for side in (0, 1))
        gap, thick = 8, 12
        # Behind a name stands its amount.
        left, right = (_room(f"{name} 0.00M" for name in sums) for sums in (sources, targets))
        height = max(160, 24 * max(len(sources), len(targets)))
        colour = {name: PALETTE[hue] for name, hue in node_colors(nodes).items()}
        places: list[dict[str, float]] = []
        parts: list[str] = []
        scales = []
        for sums, x, anchor, dx in (
            (sources, left, "end", -8),
            (targets, WIDTH - right, "start", 20),
        ):
            scale = (height - gap * (len(sums) - 1)) / total
            scales.append(scale)
            y, at = 6.0, {}
            for name, amount in sums.items():
                size = amount * scale
                parts.append(
                    f'<rect x="{x}" y="{y:.1f}" width="{thick}" height="{max(size, 1):.1f}" '
                    f'fill="{colour[name]}"/>'
                    f'<text x="{x + dx}" y="{y + size / 2 + 4:.1f}" text-anchor="{anchor}">'
                    f"{_text(_short(name, 22))} {_compact(amount)}"
                    f"<title>{_text(name)}: {amount:,.0f}</title></text>"
                )
                at[name] = y
                y += size + gap
            places.append(at)
        for source, target, amount in shown:
            y1, y2 = places[0][source], places[1][target]
            h1, h2 = amount * scales[0], amount * scales[1]
            places[0][source] += h1
            places[1][target] += h2
            x1, x2 = left + thick, WIDTH - right
            middle = (x1 + x2) / 2
            parts.append(
                f'<path d="M{x1},{y1:.1f} C{middle},{y1:.1f} {middle},{y2:.1f} {x2},{y2:.1f} '
                f"L{x2},{y2 + h2:.1f} C{middle},{y2 + h2:.1f} {middle},{y1 + h1:.1f} "
                f'{x1},{y1 + h1:.1f} Z" fill="{colour[source]}" fill-opacity=".35">'
                f"<title>{_text(source)} to {_text(target)}: {amount:,.0f}</title></path>"
            )
        self._svg(label, parts, height + 12)
        if len(rows) > len(shown):
            self._parts.append(
                f'<p class="note">the {len(shown)} largest of {len(rows):,} flows</p>'
            )

    def ring(self, ring: Ring, name: str = "") -> None:
        """The ring as a picture, with its nodes named when they are not too many."""
        self._has_ring = True
        legend = ring.node_count <= MOST_NAMED
        picture = ring_picture(ring, title=name, legend=legend, style=False)
        self._parts.append(f'<div class="plot">{picture}</div>')

    def lines(
        self,
        label: str,
        series: Sequence[tuple[str, Sequence[tuple[float, float, float]]]],
        x_title: str,
        y_title: str,
    ) -> None:
        """A line for each series of (x, y, upper y), on a logarithmic x axis."""
        points = [point for _, own in series for point in own]
        if not points:
            return
        left, top, bottom, height = 60, 14, 44, 340
        # A name is written after its line's end.
        right = _room(name for name, _ in series)
        low_x, high_x = (math.log2(f(x for x, *_ in points)) for f in (min, max))
        low_y, high_y = min(y for _, y, _ in points), max(u for *_, u in points)
        low_y, high_y = min(low_y, 1.0), high_y + 0.05 * (high_y - low_y or 1)

        def place(x: float, y: float) -> tuple[float, float]:
            across = (math.log2(x) - low_x) / ((high_x - low_x) or 1)
            up = (y - low_y) / (high_y - low_y)
            return left + across * (WIDTH - left - right), top + (1 - up) * (height - top - bottom)

        parts = []
        for tick in _ticks(low_y, high_y):
            _, y = place(2**low_x, tick)
            parts.append(
                f'<line x1="{left}" x2="{WIDTH - right}" y1="{y:.1f}" y2="{y:.1f}" '
                f'stroke="#eceff4"/><text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end" '
                f'class="dim">{tick:g}</text>'
            )
        for x in sorted({x for x, *_ in points}):
            across, _ = place(x, low_y)
            parts.append(
                f'<text x="{across:.1f}" y="{height - bottom + 18}" text-anchor="middle" '
                f'class="dim">{x:g}</text>'
            )
        label_y: list[float] = []
        for index, (name, own) in enumerate(series):
            colour = _COLOURS[index % len(_COLOURS)]
            places = [place(x, y) for x, y, _ in own]
            uppers = [place(x, u) for x, _, u in own]
            band = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*uppers, *reversed(places)])
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            marks = "".join(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places
            )
            end_y = places[-1][1] + 4
            while any(abs(end_y - other) < 14 for other in label_y):
                end_y -= 14
            label_y.append(end_y)
            parts.append(
                f'<polygon points="{band}" fill="{colour}" fill-opacity=".13"/>'
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
                f"{marks}"
                f'<text x="{places[-1][0] + 8:.1f}" y="{end_y:.1f}" style="fill:{colour}">'
                f"{_text(name)}</text>"
            )
        parts.append(
            f'<text x="{(left + WIDTH - right) / 2}" y="{height - 6}" text-anchor="middle" '
            f'class="dim">{_text(x_title)}</text><text x="{left}" y="{top - 2}" class="dim">'
            f"{_text(y_title)}</text>"
        )
        self._svg(label, parts, height)

    def _svg(self, label: str, parts: Sequence[str], height: float) -> None:
        self._parts.append(
            f'<div class="plot"><svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
            f'aria-label="{_text(label)}">{"".join(parts)}</svg></div>'
        )

    def _contents(self) -> str:
        links = (
            f'<a href="#part{number}">{_text(title)}</a>'
            for number, title in enumerate(self._included, 1)
        )
        return f"<nav>{''.join(links)}</nav>\n" if self._included else ""

    def _style(self) -> str:
        # The page is white in the dark, too.
        return f"{PICTURE_CSS}{_STYLE}.hr-ring{{color:#1c2330}}" if self._has_ring else _STYLE

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
    return escape(str(value))


def _room(names: Iterable[str]) -> int:
    """What names take beside a plot: some 7 a letter, of as many as :func:`_short` leaves."""
    return min(24 + 7 * max(map(len, names)), 240)


def _short(name: str, most: int = 30) -> str:
    return name if len(name) <= most else name[: most // 2] + "…" + name[-(most // 2 - 1) :]


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


def _measure(value: float, unit: str) -> str:
    return f"{100 * value:.2f}%" if unit == "%" else f"{_value(value)} {unit}".rstrip()


def _compact(amount: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= size:
            return f"{amount / size:.3g}{letter}"
    return f"{amount:.3g}"


def _sums(rows: Sequence[tuple[str, str, float]], side: int) -> dict[str, float]:
    sums: dict[str, float] = {}
    for row in rows:
        name = (row[0], row[1])[side]
        sums[name] = sums.get(name, 0.0) + row[2]
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def _ticks(low: float, high: float) -> list[float]:
    raw = (high - low) / 6
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= raw)
    first = math.ceil(low / step)
    return [round(k * step, 10) for k in range(first, math.floor(high / step) + 1)]
