"""How even a ring is, as a picture: each node's load beside what random points would give it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Final

from hashring.core.readable_numbers import counted
from hashring.core.ring import Ring
from hashring.core.ring_balance import NodeLoad, balance, ranked_loads
from hashring.drawing.escaped_text import short, shown
from hashring.drawing.node_colors import PALETTE, node_colors
from hashring.drawing.ring_picture import GROUND_CSS, PICTURE_CSS

_WIDTH: Final = 760
_HEIGHT: Final = 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 76, 56


def balance_plot(ring: Ring, *, title: str = "") -> str:
    """The plot of a ring's balance: one ``<svg>`` element.

    A dot is a node, from the least loaded to the most; the line is what each rank has on
    average on rings of as many random points, and nine of ten such rings lie in the band.

    Args:
        ring: the ring; one without nodes is drawn empty.
        title: the ring's name.
    """
    loads = ranked_loads(ring)
    heading, detail = _words(ring)
    name = f"Balance of ring {short(title, 60)}" if title else "Balance of the ring"
    body = [
        f"<title>{shown(name)}</title>",
        f"<desc>{shown(f'{heading}. {detail}')}</desc>",
        f"<style>{PICTURE_CSS}{GROUND_CSS}</style>",
    ]
    body.append(
        f'<g fill="currentColor"><text x="{_LEFT}" y="28" font-size="18" font-weight="600">'
        f'{shown(name)}</text><text x="{_LEFT}" y="50" font-size="14">{shown(heading)}</text>'
        f'<text x="{_LEFT}" y="67" font-size="12" fill-opacity=".8">{shown(detail)}</text></g>'
    )
    if loads:
        body.extend(_drawn(loads, node_colors(ring.nodes)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="hr-ring" role="img" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">{"".join(body)}</svg>'
    )


def _words(ring: Ring) -> tuple[str, str]:
    found = balance(ring)
    if found is None:
        return "no nodes", ""
    heading = (
        f"{counted(ring.node_count, 'node')}, {counted(len(ring), 'virtual node')}: "
        f"peak {found.peak_to_mean:.2f} times the mean, variation {100 * found.cv:.0f}%"
    )
    return heading, (
        f"Dashed: as many random points on average (peak {found.expected_peak_to_mean:.2f}, "
        f"variation {100 * found.expected_cv:.0f}%). Band: nine of ten random rings."
    )


def _drawn(loads: Sequence[NodeLoad], colors: Mapping[str, int]) -> Iterator[str]:
    most = max(*(each.load for each in loads), *(each.expected.high for each in loads), 1.2)
    step = _step(most)
    top = step * ceil(most / step)

    def across(rank: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (rank + 0.5) / len(loads)

    def up(load: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * load / top

    lines = "".join(
        f'<path d="M{_LEFT} {up(i * step):.2f}H{_WIDTH - _RIGHT}"/>'
        for i in range(round(top / step) + 1)
    )
    labels = "".join(
        f'<text x="{_LEFT - 8}" y="{up(i * step) + 4:.2f}" text-anchor="end">{i * step:g}</text>'
        for i in range(round(top / step) + 1)
    )
    yield f'<g stroke="currentColor" stroke-opacity=".2" fill="none">{lines}</g>'
    yield (
        f'<g fill="currentColor" font-size="12">{labels}'
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:g}" y="{_HEIGHT - 30}" text-anchor="middle">'
        f"nodes, from the least loaded to the most</text>"
        f'<text transform="translate(18 {(_TOP + _HEIGHT - _BOTTOM) / 2:g}) rotate(-90)" '
        f'text-anchor="middle">share / fair share</text></g>'
    )
    yield f'<path d="M{_LEFT} {up(1):.2f}H{_WIDTH - _RIGHT}" stroke="currentColor" fill="none"/>'
    highs = [(across(rank), up(each.expected.high)) for rank, each in enumerate(loads)]
    lows = [(across(rank), up(each.expected.low)) for rank, each in enumerate(loads)]
    means = [(across(rank), up(each.expected.mean)) for rank, each in enumerate(loads)]
    if len(loads) > 1:
        yield (
            f'<path class="hr-band" fill="currentColor" fill-opacity=".14" '
            f'd="{_line([*highs, *lows[::-1]])}Z"/>'
            f'<path class="hr-expected" fill="none" stroke="currentColor" '
            f'stroke-dasharray="5 4" d="{_line(means)}"/>'
        )
    radius = max(2.5, min(6.0, 0.35 * (_WIDTH - _LEFT - _RIGHT) / len(loads)))
    for rank, each in enumerate(loads):
        color = colors[each.node] % len(PALETTE)
        told = (
            f"{short(each.node)}: {each.load:.2f} times its fair share; expected "
            f"{each.expected.mean:.2f}, nine of ten from {each.expected.low:.2f} to "
            f"{each.expected.high:.2f}"
        )
        x, y = across(rank), up(each.load)
        yield (
            f'<path class="hr-dot hr-c{color}" stroke="{PALETTE[color]}" '
            f'stroke-width="{2 * radius:g}" stroke-linecap="round" d="M{x:.2f} {y:.2f}h0">'
            f"<title>{shown(told)}</title></path>"
        )


def _line(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in points)


def _step(most: float) -> float:
    """A round distance between the lines of a scale up to that."""
    size = 0.25
    while most / size > 10:
        size *= 2
    return size
