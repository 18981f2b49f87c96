"""A ring as a picture: SVG text from a frozen ring.

The outer band is the ring itself, point 0 at the top and clockwise from there, one arc a replica.
The inner band has one arc a node, as long as the node's share, in order of names. Pointing at an
arc shows all arcs of its node. Arcs that touch differ in colour: see :func:`ring_colors`.

Above 1,000 arcs most would be thinner than a pixel. A band then has 480 slices, each in the colour
of the node that has most of it. Above 250 nodes, nodes have no titles and no links. So the text
stays below 100 kB, however many nodes there are. Long names and shared points add to it.

The text needs no other file and holds no script. Every colour can be changed by the page around
it: see :data:`PICTURE_CSS`. Names are escaped, so they may be anybody's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, cos, pi, sin
from typing import Final
from xml.sax.saxutils import quoteattr

from hashring.core.hashing import RING_SIZE
from hashring.core.readable_numbers import counted, percent
from hashring.core.replica_ranges import duplicate_holders, replica_ranges
from hashring.core.ring import Ring
from hashring.core.ring_balance import node_loads
from hashring.core.safe_text import printable
from hashring.drawing.escaped_text import short, shown
from hashring.drawing.node_colors import COLORS_CSS, PALETTE, name_order, node_colors

PICTURE_CSS: Final = (
    ".hr-ring{color:#1b1f24;font-family:system-ui,sans-serif}"
    "@media(prefers-color-scheme:dark){.hr-ring{color:#e6e8eb}}"
    + COLORS_CSS
    + ".hr-node{transition:opacity .15s}"
    ".hr-ring:has(.hr-node:hover) .hr-node:not(:hover),.hr-dim{opacity:.18}"
    ".hr-node:focus-visible{outline:2px solid currentColor}"
    "@media(prefers-reduced-motion:reduce){.hr-node{transition:none}}"
)
"""What the picture's classes look like. A page that has pictures without a style of their own
takes this into its style sheet, and may override it after: ``color`` of ``.hr-ring`` for text and
lines, the variables ``--hr-c0`` to ``--hr-c15`` for the colours of nodes. The classes ``hr-f0`` to
``hr-f15`` fill with them."""

GROUND_CSS: Final = (
    ".hr-ring{background:#fff}@media(prefers-color-scheme:dark){.hr-ring{background:#111418}}"
)

_OUTER: Final = 273.0  # radius of the middle of the band of replicas
_OUTER_WIDTH: Final = 54
_INNER: Final = 215.0  # the same of the band of shares
_INNER_WIDTH: Final = 38
_HALF: Final = 340  # half the picture's side
_GAP: Final = 1.2  # length between two neighbouring arcs, where they are long enough
_STRAIGHT: Final = 1 / 400  # a shorter part of the circle is a line, to a tenth of a pixel
_ARCS_WITH_TITLES: Final = 600
_MOST_ARCS: Final = 1000  # of more, a band has slices
_SLICES: Final = 480
_MOST_APART: Final = 250  # nodes that are drawn one by one, with a title and a link
_ROUNDS: Final = 50
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
        colors: the answer of :func:`ring_colors`, if the caller keeps it.
        expired: nodes that are still there but own nothing, with their points: dashes outside.
        highlight: these nodes stay as they are, the others fade.
        mark: a point to point at.
        link: for a node's name the address that its arcs link to. The links are out of the
            keyboard's way: put the same into the table beside the picture.
        legend: whether to put the names and shares of all nodes beside the ring.
        style: whether to bring a style of its own; without it the page has
            :data:`PICTURE_CSS`.
    """
    nodes = ring.nodes
    bands = _bands(ring)
    hues = colors if colors and all(node in colors for node in nodes) else _apart(ring, bands)
    width = 2 * _HALF
    # Links in an image would be hidden from those who have the page read to them.
    role = "img" if link is None else "figure"
    body: list[str] = []
    if legend and nodes:
        width += 20 + _COLUMN * ceil(len(nodes) / _ROWS)
    body.append(f"<title>{_title(title)}</title>")
    body.append(f"<desc>{shown(_summary(ring, bands))}</desc>")
    if style:
        body.append(f"<style>{PICTURE_CSS}{GROUND_CSS}</style>")
    body.extend(_frame())
    body.extend(_nodes(ring, bands, hues, highlight, link, fallback=style))
    body.extend(_seams(bands, hues))
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


def _summary(ring: Ring, bands: _Bands) -> str:
    loads = node_loads(ring)
    if not loads:
        return "A ring without nodes."
    peak = max(loads, key=loads.__getitem__)
    arcs = f"{counted(len(ring), 'arc')}, one for each virtual node, colored by node"
    if bands.sliced:
        arcs = (
            f"{counted(len(ring), 'virtual node')} in {_SLICES} slices, colored by their main node"
        )
    return (
        f"A circle of {arcs}: {counted(ring.node_count, 'node')}. Within it a circle of the nodes' "
        f"shares. The greatest load is {loads[peak]:.2f} times the mean: {short(peak)} has "
        f"{percent(ring.share(peak))} of the ring."
    )


# --- bands and colours ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Piece:
    """A part of a band, in points, and whose it is."""

    start: int
    size: int
    node: str


@dataclass(frozen=True)
class _Bands:
    """What is drawn, in order around the circle.

    Attributes:
        outer, inner: the pieces of each band.
        sliced: whether the outer band has slices.
    """

    outer: tuple[_Piece, ...]
    inner: tuple[_Piece, ...]
    sliced: bool


@lru_cache(maxsize=2)  # a page asks for the colours, and then for the picture
def _bands(ring: Ring) -> _Bands:
    outer = list(_arcs(ring))
    shares: dict[str, int] = dict.fromkeys(ring.nodes, 0)
    for piece in outer:
        shares[piece.node] += piece.size
    inner, before = [], 0
    for node, share in shares.items():
        if share:
            inner.append(_Piece(before, share, node))
        before += share
    return _Bands(tuple(_drawable(outer)), tuple(_drawable(inner)), len(outer) > _MOST_ARCS)


def _arcs(ring: Ring) -> Iterator[_Piece]:
    return (_Piece(point, size, node) for point, node, size in replica_ranges(ring))


def _drawable(pieces: Sequence[_Piece]) -> Iterable[_Piece]:
    """The pieces, or as many slices as can be seen, each of the node that has most of it."""
    if len(pieces) <= _MOST_ARCS:
        return pieces
    parts: list[Counter[str]] = [Counter() for _ in range(_SLICES)]
    for piece in pieces:
        at, left = piece.start, piece.size
        while left:
            number = at * _SLICES // RING_SIZE
            end = -(-(number + 1) * RING_SIZE // _SLICES)  # the first point of the next slice
            part = min(left, end - at)
            parts[number][piece.node] += part
            at, left = (at + part) % RING_SIZE, left - part
    slices: list[_Piece] = []
    for number, part_of in enumerate(parts):
        node = min(part_of, key=lambda name: (-part_of[name], name_order(name)))
        start = -(-number * RING_SIZE // _SLICES)
        size = -(-(number + 1) * RING_SIZE // _SLICES) - start
        if slices and slices[-1].node == node:
            slices[-1] = _Piece(slices[-1].start, slices[-1].size + size, node)
        else:
            slices.append(_Piece(start, size, node))
    return slices


def ring_colors(ring: Ring, keep: Mapping[str, int] | None = None) -> dict[str, int]:
    """A colour for each node, so that nodes that touch in the picture have different ones.

    As :func:`.node_colors.node_colors`, but for a few nodes that would touch another of their
    colour. Where so many touch that 16 colours cannot do, the picture has a line between them.

    Args:
        keep: what an earlier call answered, for a picture that is drawn again and again.
    """
    return _apart(ring, _bands(ring), keep)


def _apart(ring: Ring, bands: _Bands, keep: Mapping[str, int] | None = None) -> dict[str, int]:
    found = node_colors(ring.nodes, keep)
    touching: dict[str, set[str]] = {node: set() for node in found}
    for one, other in _neighbours(bands):
        touching[one].add(other)
        touching[other].add(one)
    # Those that are new give way to those that readers know.
    order = sorted(found, key=lambda node: (node in (keep or {}), name_order(node)))
    for _ in range(_ROUNDS):
        settled = True
        for node in order:
            around = Counter(found[other] for other in touching[node])
            own = found[node]
            if around[own]:
                settled = False
                found[node] = min(
                    range(len(PALETTE)), key=lambda c: (around[c], (c - own) % len(PALETTE))
                )
        if settled:
            break
    return found


def _neighbours(bands: _Bands) -> Iterator[tuple[str, str]]:
    for band in (bands.outer, bands.inner):
        for one, other in zip(band, (*band[1:], *band[:1]), strict=True):
            if one.node != other.node:
                yield one.node, other.node


# --- shapes -----------------------------------------------------------------------------------


def _at(part: float, radius: float, digits: int = 2) -> str:
    angle = 2 * pi * part
    return f"{radius * sin(angle):.{digits}f} {-radius * cos(angle):.{digits}f}"


def _arc(start: float, length: float, radius: float) -> str:
    """The path of a piece of a circle, both in parts of it, ``0 < length <= 1``."""
    gap = _GAP / (2 * pi * radius)
    if 3 * gap < length < 1:
        start, length = start + gap / 2, length - gap
    end = start + length
    if length < _STRAIGHT:
        # There are many of them.
        return f"M{_at(start, radius, 1)}L{_at(end, radius, 1)}"
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
    bands: _Bands,
    colors: Mapping[str, int],
    highlight: Collection[str],
    link: Callable[[str], str] | None,
    *,
    fallback: bool,
) -> Iterator[str]:
    outer: dict[str, list[_Piece]] = {node: [] for node in ring.nodes}
    inner: dict[str, list[_Piece]] = {node: [] for node in ring.nodes}
    if len(outer) <= _MOST_APART:
        one_by_one: Collection[str] = outer
    else:
        one_by_one = [node for node in highlight if node in outer]
    for pieces, band in ((outer, bands.outer), (inner, bands.inner)):
        for piece in band:
            pieces[piece.node].append(piece)
    if one_by_one is not outer:
        yield from _colors(outer, inner, colors, faded=bool(one_by_one), fallback=fallback)
        # Those that are chosen are drawn over the others, as they are.
        outer |= {
            node: [piece for piece in _arcs(ring) if piece.node == node] for node in one_by_one
        }
    titles = len(ring) <= _ARCS_WITH_TITLES
    loads = node_loads(ring)
    for node in one_by_one:
        told = (
            f"{short(node)}: {percent(ring.share(node))} of the ring, {loads[node]:.2f} times "
            f"what is fair for its {counted(len(ring.points_of(node)), 'virtual node')}"
        )
        if bands.sliced:
            told = f"{short(node)}: {percent(ring.share(node))}, {loads[node]:.2f} times fair"
        dim = bool(highlight) and node not in highlight
        parts = [_opening(colors[node], dim=dim, fallback=fallback, node=True)]
        parts.append(f"<title>{shown(told)}</title>")
        parts.append(_path("hr-share", inner[node], _INNER))
        if titles:
            parts.extend(
                f'<path class="hr-arc" d="{_pieces([piece], _OUTER)}"><title>{shown(short(node))}: '
                f"points {piece.start} to {(piece.start + piece.size - 1) % RING_SIZE}, "
                f"{percent(piece.size / RING_SIZE)} of the ring</title></path>"
                for piece in outer[node]
            )
        else:
            parts.append(_path("hr-arc", outer[node], _OUTER))
        parts.append("</g>")
        if link is not None:
            parts.insert(0, f'<a href={quoteattr(printable(link(node)))} tabindex="-1">')
            parts.append("</a>")
        yield "".join(parts)


def _colors(
    outer: Mapping[str, Sequence[_Piece]],
    inner: Mapping[str, Sequence[_Piece]],
    colors: Mapping[str, int],
    *,
    faded: bool,
    fallback: bool,
) -> Iterator[str]:
    """All nodes of a colour together."""
    for color in range(len(PALETTE)):
        own = [node for node in outer if colors[node] == color]
        yield _opening(color, dim=faded, fallback=fallback, node=False)
        yield _path("hr-share", [piece for node in own for piece in inner[node]], _INNER)
        yield _path("hr-arc", [piece for node in own for piece in outer[node]], _OUTER)
        yield "</g>"


def _opening(color: int, *, dim: bool, fallback: bool, node: bool) -> str:
    # For programs that draw SVG without style sheets.
    stroke = f' stroke="{PALETTE[color % len(PALETTE)]}"' if fallback else ""
    name = f"{'hr-node ' if node else ''}hr-c{color % len(PALETTE)}{' hr-dim' if dim else ''}"
    faded = ' opacity=".18"' if dim else ""
    return f'<g class="{name}" fill="none" stroke-width="{_OUTER_WIDTH}"{stroke}{faded}>'


def _path(kind: str, pieces: Sequence[_Piece], radius: float) -> str:
    if not pieces:
        return ""
    width = f' stroke-width="{_INNER_WIDTH}"' if radius == _INNER else ""
    return f'<path class="{kind}"{width} d="{_pieces(pieces, radius)}"/>'


def _pieces(pieces: Iterable[_Piece], radius: float) -> str:
    return "".join(_arc(each.start / RING_SIZE, each.size / RING_SIZE, radius) for each in pieces)


def _seams(bands: _Bands, colors: Mapping[str, int]) -> Iterator[str]:
    lines = "".join(
        f"M{_at(other.start / RING_SIZE, radius - width / 2)}"
        f"L{_at(other.start / RING_SIZE, radius + width / 2)}"
        for band, radius, width in (
            (bands.outer, _OUTER, _OUTER_WIDTH),
            (bands.inner, _INNER, _INNER_WIDTH),
        )
        for one, other in zip(band, (*band[1:], *band[:1]), strict=True)
        if one.node != other.node and colors[one.node] == colors[other.node]
    )
    if lines:
        yield f'<path class="hr-seam" stroke="currentColor" d="{lines}"/>'


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
    for point, nodes in duplicate_holders(ring).items():
        names = list(map(short, nodes))
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
            counted(len(ring), "virtual node"),
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
            f"{percent(ring.share(node))}</text></g>"
        )
