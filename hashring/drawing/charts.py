"""Bars, flows, lines and small charts: each one ``<svg>`` element from numbers.

The page around them takes :data:`CHART_CSS` into its style sheet; it is light, in the dark too.
Small charts have a style of their own, which is light or dark as the page is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final
from xml.sax.saxutils import quoteattr

from hashring.core.readable_numbers import percent
from hashring.drawing.escaped_text import shown
from hashring.drawing.node_colors import PALETTE, node_colors

WIDTH: Final = 920
INK: Final = "#1c2330"
_GRID: Final = "#eceff4"
CHART_CSS: Final = (
    f".hr-chart text{{font:12px system-ui,sans-serif;fill:{INK}}}.hr-chart .hr-shy{{fill:#5a6474}}"
)
"""What the charts' classes look like."""

SMALL_CHART_CSS: Final = (
    ".hr-small{display:block;width:100%;height:44px}"
    ".hr-small .hr-line{fill:none;stroke:currentColor;stroke-width:1.5}"
    ".hr-small .hr-area{fill:currentColor;fill-opacity:.12}"
    ".hr-small .hr-marks{stroke-width:1.5;fill:none}"
    ".hr-small path{vector-effect:non-scaling-stroke}"
)
"""What :func:`small_chart` looks like; its ``color`` is the page's."""

_BAR: Final = PALETTE[8]
_SMALL_HEIGHT: Final = 40
_MARKS_HEIGHT: Final = 5


def bar_chart(label: str, rows: Sequence[tuple[str, float, float | None]], unit: str = "%") -> str:
    """A bar for each (name, value, mark), in their order; a mark is drawn across its bar.

    Args:
        label: what the chart shows, for those who cannot see it.
        unit: of the values; with ``%`` they are parts of one.
    """
    top = max([v for _, v, _ in rows] + [m for *_, m in rows if m is not None] + [1e-12])
    left, right, step = _room(name for name, *_ in rows), 130, 22
    scale = (WIDTH - left - right) / top
    parts = []
    for index, (name, value, mark) in enumerate(rows):
        y = index * step + 6
        ends = left + max(value, mark or 0.0) * scale
        parts.append(
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{shown(_short(name))}'
            f"<title>{shown(name)}</title></text>"
            f'<rect x="{left}" y="{y}" width="{value * scale:.1f}" height="15" fill="{_BAR}"/>'
            f'<text x="{ends + 6:.1f}" y="{y + 12}" class="hr-shy">{_measure(value, unit)}</text>'
        )
        if mark is not None:
            x = left + mark * scale
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y - 3}" y2="{y + 18}" '
                f'stroke="{INK}" stroke-width="2"/>'
            )
    return _svg(label, parts, len(rows) * step + 12)


def flow_chart(label: str, rows: Sequence[tuple[str, str, float]], nodes: Iterable[str]) -> str:
    """What moves between which nodes: ribbons from the left column to the right one.

    Args:
        label: what the chart shows, for those who cannot see it.
        rows: from, to and how much; at least one, and more than nothing in all.
        nodes: all there are, for the same colours as in a picture of the ring.
    """
    total = sum(amount for *_, amount in rows)
    sources, targets = (_sums(rows, side) for side in (0, 1))
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
                f"{shown(_short(name, 22))} {_compact(amount)}"
                f"<title>{shown(name)}: {amount:,.0f}</title></text>"
            )
            at[name] = y
            y += size + gap
        places.append(at)
    for source, target, amount in rows:
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
            f"<title>{shown(source)} to {shown(target)}: {amount:,.0f}</title></path>"
        )
    return _svg(label, parts, height + 12)


def line_chart(
    label: str,
    series: Sequence[tuple[str, Sequence[tuple[float, float, float]]]],
    x_title: str,
    y_title: str,
) -> str:
    """A line for each series of (x, y, upper y), on a logarithmic x axis; at least one point."""
    points = [point for _, own in series for point in own]
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
            f'stroke="{_GRID}"/><text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end" '
            f'class="hr-shy">{tick:g}</text>'
        )
    for x in sorted({x for x, *_ in points}):
        across, _ = place(x, low_y)
        parts.append(
            f'<text x="{across:.1f}" y="{height - bottom + 18}" text-anchor="middle" '
            f'class="hr-shy">{x:g}</text>'
        )
    label_y: list[float] = []
    for index, (name, own) in enumerate(series):
        colour = PALETTE[index % len(PALETTE)]
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
            f"{shown(name)}</text>"
        )
    parts.append(
        f'<text x="{(left + WIDTH - right) / 2}" y="{height - 6}" text-anchor="middle" '
        f'class="hr-shy">{shown(x_title)}</text><text x="{left}" y="{top - 2}" class="hr-shy">'
        f"{shown(y_title)}</text>"
    )
    return _svg(label, parts, height)


def small_chart(
    label: str,
    values: Sequence[float | None],
    *,
    marks: Sequence[tuple[str, Iterable[int]]] = (),
    bars: bool = False,
) -> str:
    """A line of steps, or bars, from 0 to the greatest value, as wide as the page lets it be.

    Args:
        label: what the chart shows, for those who cannot see it.
        values: in steps of equal time; ``None`` where nothing is known.
        marks: ticks below: a class of the page's, and the places in ``values``.
    """
    top = max([value for value in values if value is not None], default=0.0) or 1.0
    ground = _SMALL_HEIGHT - _MARKS_HEIGHT - 1

    def up(value: float) -> str:
        return f"{ground - (ground - 2) * value / top:.4g}"

    line, area = [], []
    for begin, end in _runs(values, bars=bars):
        steps, at = [], begin
        for value, equal in groupby(values[begin:end]):
            at += len(list(equal))
            steps.append(f"V{up(value or 0.0)}H{at}")
        start = up(values[begin] or 0.0)
        tops = "".join(steps).removeprefix(f"V{start}")
        line.append(f"M{begin} {start}{tops}")
        area.append(f"M{begin} {ground}V{start}{tops}V{ground}Z")
    ticks = "".join(
        f'<path class="hr-marks {name}" stroke="currentColor" d="'
        + "".join(f"M{place + 0.5:g} {ground + 1}v{_MARKS_HEIGHT}" for place in sorted({*places}))
        + '"/>'
        for name, places in marks
    )
    return (
        f'<svg class="hr-small" viewBox="0 0 {max(1, len(values))} {_SMALL_HEIGHT}" '
        f'preserveAspectRatio="none" role="img" aria-label={quoteattr(label)}>'
        f'<path class="hr-area" d="{"".join(area)}"/><path class="hr-line" d="{"".join(line)}"/>'
        f"{ticks}</svg>"
    )


def _runs(values: Sequence[float | None], *, bars: bool) -> Iterator[tuple[int, int]]:
    """Where values are known, one after the other; of bars, those that are more than nothing."""
    begin = None
    for index, value in enumerate([*values, None]):
        known = value is not None and not (bars and value == 0)
        if known and begin is None:
            begin = index
        elif not known and begin is not None:
            yield begin, index
            begin = None


def _svg(label: str, parts: Sequence[str], height: float) -> str:
    return (
        f'<svg class="hr-chart" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f"aria-label={quoteattr(label)}>{''.join(parts)}</svg>"
    )


def _room(names: Iterable[str]) -> int:
    """What names take beside a plot: some 7 a letter, of as many as :func:`_short` leaves."""
    return min(24 + 7 * max(map(len, names)), 240)


def _short(name: str, most: int = 30) -> str:
    return name if len(name) <= most else name[: most // 2] + "…" + name[-(most // 2 - 1) :]


def _measure(value: float, unit: str) -> str:
    if unit == "%":
        return percent(value)
    number = f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{number} {unit}".rstrip()


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
