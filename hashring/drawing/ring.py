"""A ring as a picture: SVG text from a frozen ring.

The outer band is the ring itself, point 0 at the top and clockwise from there, one arc a replica.
The inner band has one arc a node, as long as the node's share, in order of names: on a ring of
200 nodes the outer arcs are thinner than a pixel, the inner ones are not. Pointing at an arc shows
all arcs of its node.

The text needs no other file and holds no script. Every colour can be changed by the page around
it: see :data:`hashring.drawing.palette.PICTURE_CSS`. Names are escaped, so they may be anybody's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, cos, pi, sin
from typing import Final
from xml.sax.saxutils import quoteattr

from hashring.core.balance import node_loads
from hashring.core.hashing import RING_SIZE
from hashring.core.printable import printable
from hashring.core.ring import Ring
from hashring.drawing.palette import GROUND_CSS, PALETTE, PICTURE_CSS, name_order, node_colors
from hashring.drawing.text import counted, short, shown

_OUTER: Final = 273.0  # radius of the middle of the band of replicas
_OUTER_WIDTH: Final = 54
_INNER: Final = 215.0  # the same of the band of shares
_INNER_WIDTH: Final = 38
_HALF: Final = 340  # half the picture's side
_GAP: Final = 1.2  # length between two neighbouring arcs, where they are long enough
_STRAIGHT: Final = 1 / 400  # a shorter part of the circle is a line, to a hundredth of a pixel
_ARCS_WITH_TITLES: Final = 600
_ROWS: Final = 30  # rows in a column of the legend
_COLUMN: Final = 260
_LEGEND_NAME: Final = 24


@dataclass(frozen=True)
class Mark:
    """A point to be shown, such as a key's.

    Attributes:
        point: where on the ring.
        text: what it is, such as the key; anybody's.
    """

    point: int
    text: str


def ring_picture(
    ring: Ring,
    *,
    title: str = "",
    colors: Mapping[str, int] | None = None,
    expired: Mapping[str, Sequence[int]] | None = None,
    highlight: Collection[str] = (),
    mark: Mark | None = None,
    link: Callable[[str], str] | None = None,
    legend: bool = False,
    style: bool = True,
) -> str:
    """The picture of a ring: one ``<svg>`` element.

    Args:
        ring: the ring; one without nodes is drawn empty.
        title: the ring's name, shown in the middle.
        colors: the answer of :func:`~hashring.drawing.palette.node_colors`, if the caller keeps it.
        expired: nodes that are still there but own nothing, with their points: dashes outside.
        highlight: these nodes stay as they are, the others fade.
        mark: a point to point at.
        link: for a node's name the address that its arcs link to. The links are out of the
            keyboard's way: put the same into the table beside the picture.
        legend: whether to put the names and shares of all nodes beside the ring.
        style: whether to bring a style of its own; without it the page has
            :data:`~hashring.drawing.palette.PICTURE_CSS`.
    """
    nodes = ring.nodes
    hues = colors if colors and all(node in colors for node in nodes) else node_colors(nodes)
    width = 2 * _HALF
    # Links in an image would be hidden from those who have the page read to them.
    role = "img" if link is None else "figure"
    body: list[str] = []
    if legend and nodes:
        width += 20 + _COLUMN * ceil(len(nodes) / _ROWS)
    body.append(f"<title>{_title(title)}</title>")
    body.append(f"<desc>{shown(_summary(ring))}</desc>")
    if style:
        body.append(f"<style>{PICTURE_CSS}{GROUND_CSS}</style>")
    body.extend(_frame())
    body.extend(_nodes(ring, hues, highlight, link))
    body.extend(_expired(expired or {}))
    body.extend(_duplicates(ring))
    if mark is not None:
        body.append(_mark(ring, mark))
    body.extend(_middle(ring, title))
    if legend:
        body.extend(_legend(ring, hues))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="hr-ring" role="{role}" '
        f'viewBox="{-_HALF} {-_HALF} {width} {2 * _HALF}" font-family="sans-serif">'
        + "".join(body)
        + "</svg>"
    )


# --- words ------------------------------------------------------------------------------------


def _title(title: str) -> str:
    return shown(f"Hash ring {short(title)}" if title else "Hash ring")


def _summary(ring: Ring) -> str:
    loads = node_loads(ring)
    if not loads:
        return "A ring without nodes."
    peak = max(loads, key=loads.__getitem__)
    return (
        f"A circle of {counted(len(ring), 'arc')}, one for each replica, colored by node: "
        f"{counted(ring.node_count, 'node')}. Within it a circle of the nodes' shares. The "
        f"greatest load is {loads[peak]:.2f} times the mean: {short(peak)} has "
        f"{100 * ring.share(peak):.2f}% of the ring."
    )


# --- shapes -----------------------------------------------------------------------------------


def _at(part: float, radius: float) -> str:
    angle = 2 * pi * part
    return f"{radius * sin(angle):.2f} {-radius * cos(angle):.2f}"


def _arc(start: float, length: float, radius: float) -> str:
    """The path of a piece of a circle, both in parts of it, ``0 < length <= 1``."""
    gap = _GAP / (2 * pi * radius)
    if 3 * gap < length < 1:
        start, length = start + gap / 2, length - gap
    end = start + length
    if length < _STRAIGHT:
        return f"M{_at(start, radius)}L{_at(end, radius)}"
    # An arc cannot go all the way round, nor say which way half a circle goes: by two of them.
    stops = ((start + end) / 2, end) if length > 0.4 else (end,)
    turns = "".join(f"A{radius:g} {radius:g} 0 0 1 {_at(stop, radius)}" for stop in stops)
    return f"M{_at(start, radius)}{turns}"


def _frame() -> Iterator[str]:
    # Lines in the text's colour bound the bands, so that a pale arc is seen on any ground.
    circles = "".join(
        f'<circle r="{radius + side * (width / 2 + 1):g}"/>'
        for radius, width in ((_OUTER, _OUTER_WIDTH), (_INNER, _INNER_WIDTH))
        for side in (1, -1)
    )
    yield f'<g fill="none" stroke="currentColor" stroke-opacity=".45">{circles}</g>'
    labels = "".join(
        f'<text x="{x}" y="{y}">{text}</text>'
        for x, y, text in ((0, -322, "0"), (324, 5, "¼"), (0, 332, "½"), (-324, 5, "¾"))
    )
    yield (
        f'<g fill="currentColor" fill-opacity=".7" font-size="14" text-anchor="middle">{labels}</g>'
    )


def _nodes(
    ring: Ring,
    colors: Mapping[str, int],
    highlight: Collection[str],
    link: Callable[[str], str] | None,
) -> Iterator[str]:
    arcs: dict[str, list[tuple[int, int]]] = {node: [] for node in ring.nodes}
    replicas = list(ring.replicas())
    for index, (point, node) in enumerate(replicas):
        following = replicas[(index + 1) % len(replicas)][0]
        # Of replicas on one point only the last has a range; a lone replica has all.
        size = (following - point) % RING_SIZE or (RING_SIZE if len(replicas) == 1 else 0)
        if size:
            arcs[node].append((point, size))
    if replicas and not any(arcs.values()):
        # Every replica of the ring is on one point: the last owns all.
        point, node = replicas[-1]
        arcs[node].append((point, RING_SIZE))
    titles = len(replicas) <= _ARCS_WITH_TITLES
    loads = node_loads(ring)
    before = 0
    for node, own in arcs.items():
        share = sum(size for _, size in own)
        told = shown(
            f"{short(node)}: {100 * share / RING_SIZE:.2f}% of the ring, {loads[node]:.2f} times "
            f"what is fair for its {counted(len(ring.points_of(node)), 'replica')}"
        )
        color = colors[node] % len(PALETTE)
        dim = " hr-dim" if highlight and node not in highlight else ""
        faded = ' opacity=".18"' if dim else ""
        opening = (
            f'<g class="hr-node hr-c{color}{dim}" fill="none" stroke="{PALETTE[color]}" '
            f'stroke-width="{_OUTER_WIDTH}"{faded}><title>{told}</title>'
        )
        parts = [opening]
        if share:
            inner = _arc(before / RING_SIZE, share / RING_SIZE, _INNER)
            parts.append(f'<path class="hr-share" stroke-width="{_INNER_WIDTH}" d="{inner}"/>')
        before += share
        paths = [
            (point, size, _arc(point / RING_SIZE, size / RING_SIZE, _OUTER)) for point, size in own
        ]
        if titles:
            parts.extend(
                f'<path class="hr-arc" d="{path}"><title>{shown(short(node))}: points {point} '
                f"to {(point + size - 1) % RING_SIZE}, {100 * size / RING_SIZE:.2f}% of the "
                f"ring</title></path>"
                for point, size, path in paths
            )
        elif paths:
            parts.append(f'<path class="hr-arc" d="{"".join(path for _, _, path in paths)}"/>')
        parts.append("</g>")
        if link is not None:
            parts.insert(0, f'<a href={quoteattr(printable(link(node)))} tabindex="-1">')
            parts.append("</a>")
        yield "".join(parts)


def _expired(expired: Mapping[str, Sequence[int]]) -> Iterator[str]:
    for node in sorted(expired, key=name_order):
        lines = "".join(
            f"M{_at(point / RING_SIZE, 303)}L{_at(point / RING_SIZE, 313)}"
            for point in expired[node]
        )
        if lines:
            yield (
                f'<path class="hr-expired" d="{lines}" fill="none" stroke="currentColor" '
                f'stroke-width="2" stroke-dasharray="3 2"><title>{shown(short(node))}: expired, '
                f"owns nothing</title></path>"
            )


def _duplicates(ring: Ring) -> Iterator[str]:
    points = set(ring.duplicate_points)
    holders: dict[int, list[str]] = {point: [] for point in sorted(points)}
    for point, node in ring.replicas():
        if point in points:
            holders[point].append(short(node))
    for point, names in holders.items():
        told = f"point {point} is shared by {', '.join(names[:8])}; {names[-1]} owns it"
        yield (
            f'<circle class="hr-duplicate" r="4" cx="0" cy="-308" fill="none" '
            f'stroke="currentColor" stroke-width="2" {_turned(point)}>'
            f"<title>{shown(told)}</title></circle>"
        )


def _mark(ring: Ring, mark: Mark) -> str:
    told = f"{short(mark.text)}: point {mark.point}"
    if ring.node_count:
        told += f", owned by {short(ring.owner_of_point(mark.point))}"
    return (
        f'<path class="hr-mark" d="M0 -294L-9 -322L9 -322ZM-1 -294L1 -294L1 -246L-1 -246Z" '
        f'fill="currentColor" {_turned(mark.point)}><title>{shown(told)}</title></path>'
    )


def _turned(point: int) -> str:
    return f'transform="rotate({360 * point / RING_SIZE:.3f})"'


def _middle(ring: Ring, title: str) -> Iterator[str]:
    lines = [short(title, 28)] if title else []
    loads = node_loads(ring)
    if loads:
        lines += [
            counted(ring.node_count, "node"),
            counted(len(ring), "replica"),
            f"peak {max(loads.values()):.2f} times the mean",
        ]
    else:
        lines.append("no nodes")
    top = -12 * (len(lines) - 1) + 6
    texts = "".join(
        f'<text y="{top + 24 * row}"'
        + (' font-size="20" font-weight="600"' if title and row == 0 else "")
        + f">{shown(line)}</text>"
        for row, line in enumerate(lines)
    )
    yield f'<g fill="currentColor" font-size="16" text-anchor="middle">{texts}</g>'


def _legend(ring: Ring, colors: Mapping[str, int]) -> Iterator[str]:
    top = -_HALF + 30
    for index, node in enumerate(ring.nodes):
        column, row = divmod(index, _ROWS)
        x, y = _HALF + 10 + _COLUMN * column, top + 21 * row
        color = colors[node] % len(PALETTE)
        yield (
            f'<g font-size="13"><title>{shown(short(node))}</title>'
            f'<path class="hr-c{color}" stroke="{PALETTE[color]}" stroke-width="13" '
            f'd="M{x} {y + 6.5}h13"/>'
            f'<text fill="currentColor" x="{x + 20}" y="{y + 11.5}">'
            f"{shown(short(node, _LEGEND_NAME))}</text>"
            f'<text fill="currentColor" text-anchor="end" x="{x + _COLUMN - 14}" y="{y + 11.5}">'
            f"{100 * ring.share(node):.2f}%</text></g>"
        )
