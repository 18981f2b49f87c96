"""Many partitions as a grid: one ``<svg>`` element, a hundred cells a row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final
from xml.sax.saxutils import quoteattr

from hashring.core.readable_numbers import counted
from hashring.drawing.escaped_text import short, shown
from hashring.drawing.node_colors import PALETTE

COLUMNS: Final = 100
"""Cells in a row, so that a row begins with the partition that its label names."""

_CELL: Final = 10
_LEFT: Final = 52  # room for labels
_LABELLED: Final = 5  # rows from one label to the next


def partition_grid(
    owners: Mapping[int, str | None],
    colors: Mapping[str, int],
    *,
    moving: Mapping[int, str] | None = None,
    draining: Collection[int] = (),
    label: str = "Partitions by owner",
) -> str:
    """The grid.

    A cell is in its owner's colour, or has an edge alone if it has none. A dot is in the colour
    of the member that the partition is going to, a cross says that it is being emptied. Pointing
    at a cell tells its owner and how many partitions that has.

    Args:
        owners: by partition; ``None`` for nobody.
        colors: of each member its place in the palette.
        moving: partitions that are going to somebody, or that somebody warms up for.
        draining: partitions that were removed and are not empty yet.
        label: what the picture shows, for those who cannot see it.
    """
    rows = max(owners, default=0) // COLUMNS + 1
    by_owner: dict[str | None, list[int]] = {}
    for number in sorted(owners):
        by_owner.setdefault(owners[number], []).append(number)
    parts = [
        f'<text x="{_LEFT - 6}" y="{row * _CELL + _CELL - 1}" text-anchor="end">'
        f"{row * COLUMNS}</text>"
        for row in range(0, rows, _LABELLED)
    ]
    for owner, numbers in by_owner.items():
        name = "nobody" if owner is None else short(owner)
        title = f"<title>{shown(name)}: {counted(len(numbers), 'partition')}</title>"
        if owner is None:
            parts.append(f'<g class="hr-nobody">{title}{_boxes(numbers)}</g>')
        else:
            parts.append(
                f'<path class="hr-c{colors[owner] % len(PALETTE)}" stroke-width="{_CELL - 1}" '
                f'd="{_runs(numbers)}">{title}</path>'
            )
    going: dict[str, list[int]] = {}
    for number, name in sorted((moving or {}).items()):
        going.setdefault(name, []).append(number)
    for name, numbers in going.items():
        dots = _dots(numbers)
        told = shown(f"to {short(name)}: {counted(len(numbers), 'partition')}")
        parts.append(f'<path class="hr-going" d="{dots}"/>')
        parts.append(
            f'<path class="hr-dot hr-c{colors[name] % len(PALETTE)}" d="{dots}">'
            f"<title>{told}</title></path>"
        )
    if draining:
        parts.append(f'<path class="hr-drain" d="{_crosses(sorted(draining))}"/>')
    return (
        f'<svg class="hr-grid" viewBox="0 0 {_LEFT + COLUMNS * _CELL} {rows * _CELL}" role="img" '
        f"aria-label={quoteattr(label)}>{''.join(parts)}</svg>"
    )


def _place(number: int) -> tuple[int, int]:
    row, column = divmod(number, COLUMNS)
    return _LEFT + column * _CELL, row * _CELL


def _runs(numbers: Sequence[int]) -> str:
    """Neighbours in a row in one stroke."""
    drawn = []
    for _, run in groupby(enumerate(numbers), lambda item: (item[1] - item[0], item[1] // COLUMNS)):
        own = [number for _, number in run]
        x, y = _place(own[0])
        drawn.append(f"M{x} {y + _CELL // 2}h{len(own) * _CELL - 1}")
    return "".join(drawn)


def _boxes(numbers: Iterable[int]) -> str:
    places = (_place(number) for number in numbers)
    side = _CELL - 3
    drawn = "".join(f"M{x + 1} {y + 1}h{side}v{side}h-{side}Z" for x, y in places)
    return f'<path d="{drawn}"/>'


def _dots(numbers: Iterable[int]) -> str:
    # A stroke of no length with round ends.
    return "".join(f"M{x + 4.5:g} {y + 5}h0" for x, y in map(_place, numbers))


def _crosses(numbers: Iterable[int]) -> str:
    return "".join(f"M{x + 2} {y + 2}l5 5m0-5l-5 5" for x, y in map(_place, numbers))


GRID_CSS: Final = (
    ".hr-grid{display:block;width:100%;max-width:760px;height:auto}"
    ".hr-grid text{font-size:9px;fill:currentColor;fill-opacity:.7}"
    ".hr-grid path{fill:none}"
    ".hr-grid .hr-dot,.hr-grid .hr-going{stroke-linecap:round}"
    ".hr-grid .hr-dot{stroke-width:4.5}"
    ".hr-grid .hr-going{stroke-width:7}"
    ".hr-grid .hr-drain{stroke-width:1.5}"
)
"""What the grid's classes look like; the page sets ``stroke`` of ``hr-nobody``, ``hr-going`` and
``hr-drain``."""
