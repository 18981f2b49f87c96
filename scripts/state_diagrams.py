"""Diagrams of the tables of states, laid out from the table alone.

States stand in a column, in the order of the table. A way to a later state leaves its box on the
right and goes down; a way to an earlier one leaves on the left and goes up. All ways to one state
share a lane, which has the colour of that state. Each way has a row of its own beside its box, with
its event on the line. Lanes begin beyond the longest event, so no line runs through a word.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from html import escape
from typing import Any, Final

from hashring.core.state_table import StateTable
from hashring.drawing.node_colors import DARK_PALETTE, PALETTE

WIDEST_LABEL: Final = 30
"""Characters: events of the same way are written on one line up to here."""
_CHARACTER: Final = 6.2
_ROW: Final = 21
_GAP: Final = 14
_BOX: Final = 116
_LANE: Final = 13
_TURN: Final = 6
_LOOP: Final = 22


@dataclass(frozen=True)
class Way:
    """An arrow.

    Attributes:
        source, target: numbers of states.
        label: the events that lead from one to the other.
    """

    source: int
    target: int
    label: str


@dataclass
class Side:
    """The rows, labels and lanes on one side of the boxes.

    Attributes:
        sign: 1 on the right, where ways go down; -1 on the left.
        ways: those on this side; those of a state to itself are on the right.
        lanes: the lane of each target, 0 next to the labels.
        width: from the boxes to the end.
    """

    sign: int
    ways: list[Way]
    lanes: dict[int, int]
    labels: float

    @property
    def width(self) -> float:
        return self.labels + _LANE * (max(self.lanes.values(), default=-1) + 1)


def diagram(table: StateTable[Any, Any]) -> str:
    """The table as an SVG picture."""
    states = list(table.meanings)
    ways = list(_ways(table, states))
    down = _side(1, [way for way in ways if way.target >= way.source])
    up = _side(-1, [way for way in ways if way.target < way.source])
    left = up.width + 8
    width = left + _BOX + down.width + 8
    tops, height, rows = _rows(len(states), (up, down))
    parts = list(_boxes(table, states, tops, left))
    for side in (up, down):
        edge = left + _BOX if side.sign > 0 else left
        for way in side.ways:
            parts.append(_arrow(way, side, edge, rows))
    return _svg(width, height, len(states), parts)


def _ways(table: StateTable[Any, Any], states: list[Enum]) -> Iterator[Way]:
    """The arrows of a table; events that lead the same way share one, if it is not too long."""
    for state, events in table.transitions.items():
        together: dict[Enum, list[str]] = defaultdict(list)
        for event, after in events.items():
            labels = together[after]
            if labels and len(labels[-1]) + len(event.value) + 2 <= WIDEST_LABEL:
                labels[-1] += f", {event.value}"
            else:
                labels.append(event.value)
        for after, labels in together.items():
            for label in labels:
                yield Way(states.index(state), states.index(after), label)


def _side(sign: int, ways: list[Way]) -> Side:
    spans: dict[int, tuple[int, int]] = {}
    for way in ways:
        if way.source != way.target:
            known = spans.get(way.target, (way.source, way.source))
            spans[way.target] = min(way.source, known[0]), max(way.source, known[1])
    reach = {target: (min(target, a), max(target, b)) for target, (a, b) in spans.items()}
    longest = max((len(way.label) + 4 * (way.source == way.target) for way in ways), default=0)
    return Side(sign, ways, _lanes(reach), longest * _CHARACTER + 22)


def _lanes(reach: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """A lane for each target: the shortest ways next to the boxes, and none over another."""
    lanes: dict[int, int] = {}
    for target in sorted(reach, key=lambda each: (reach[each][1] - reach[each][0], each)):
        first, last = reach[target]
        taken = {
            lane
            for other, lane in lanes.items()
            if reach[other][0] <= last and first <= reach[other][1]
        }
        lanes[target] = next(lane for lane in range(len(reach)) if lane not in taken)
    return lanes


Rows = Mapping[object, float]


def _rows(
    count: int, sides: Iterable[Side]
) -> tuple[list[tuple[float, float]], float, dict[object, float]]:
    """Where each box begins and how high it is; the height of all; where each way begins and ends.

    On the right, arrows come in above the rows that go out, and the way to the outermost lane goes
    out first; on the left it is the other way round. So lines cross as little as may be.
    """
    rows: dict[object, float] = {}
    boxes: list[tuple[float, float]] = []
    top = 8.0
    for state in range(count):
        most = 1
        for side in sides:
            out = [way for way in side.ways if way.source == state]
            out.sort(key=partial(_outward, side))
            order: list[object] = [*out]
            if state in side.lanes:
                order.insert(0 if side.sign > 0 else len(order), (side.sign, state))
            most = max(most, len(order))
            for number, each in enumerate(order):
                rows[each] = top + _ROW * (number + 0.5) + 4
        boxes.append((top, most * _ROW + 8))
        top += most * _ROW + 8 + _GAP
    return boxes, top - _GAP + 8, rows


def _outward(side: Side, way: Way) -> tuple[bool, int]:
    """Orders the rows that leave a state: what returns to it comes last."""
    return way.source == way.target, -side.sign * side.lanes.get(way.target, 0)


def _boxes(
    table: StateTable[Any, Any],
    states: list[Enum],
    tops: list[tuple[float, float]],
    left: float,
) -> Iterator[str]:
    for number, (state, (top, height)) in enumerate(zip(states, tops, strict=True)):
        rect = f'<rect x="{left:g}" y="{top:g}" width="{_BOX}" height="{height:g}" rx="6"'
        yield f'{rect} class="s{number} box"/>'
        if table.final(state):
            inner = f'<rect x="{left + 3:g}" y="{top + 3:g}" width="{_BOX - 6}"'
            yield f'{inner} height="{height - 6:g}" rx="4" class="s{number} way"/>'
        yield (
            f'<text x="{left + _BOX / 2:g}" y="{top + height / 2 + 4:g}" text-anchor="middle" '
            f'class="strong">{escape(str(state.value))}</text>'
        )


def _arrow(way: Way, side: Side, edge: float, rows: Rows) -> str:
    y, sign = rows[way], side.sign
    if way.source == way.target:
        line = f"M{edge:g},{y - 6:g} h{_LOOP - 6} a5,5 0 0 1 0,10 h{8 - _LOOP}"
        head = _head(edge, y + 4, 1)
        x, anchor = edge + _LOOP + 6, "start"
        label = _label(x, y + 3, way.label, anchor)
    else:
        lane = edge + sign * (side.labels + _LANE * side.lanes[way.target])
        end = rows[sign, way.target]
        turn_x, turn_y = sign * _TURN, _TURN if end > y else -_TURN
        line = (
            f"M{edge:g},{y:g} H{lane - turn_x:g} q{turn_x},0 {turn_x},{turn_y} "
            f"V{end - turn_y:g} q0,{turn_y} {-turn_x},{turn_y} H{edge + sign * 8:g}"
        )
        head = _head(edge, end, sign)
        label = _label(edge + sign * 12, y - 4, way.label, "start" if sign > 0 else "end")
    return (
        f'<path d="{line}" class="s{way.target} way"/>'
        f'<path d="{head}" class="s{way.target} head"/>{label}'
    )


def _head(x: float, y: float, sign: int) -> str:
    return f"M{x:g},{y:g} l{sign * 9},-4 v8 z"


def _label(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="small">{escape(words)}</text>'


def _svg(width: float, height: float, states: int, parts: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
    head = f'{head} width="{width:g}" height="{height:g}" class="states">'
    return "\n".join([head, _style(states), *parts, "</svg>\n"])


def _style(states: int) -> str:
    """The colours of states, which follow the page around the picture."""
    light, dark = (
        "".join(f"--s{number}:{color};" for number, color in enumerate(colors[:states]))
        for colors in (PALETTE, DARK_PALETTE)
    )
    each = "".join(f" .s{n} {{ stroke: var(--s{n}); fill: var(--s{n}) }}" for n in range(states))
    return (
        "<style>.states text { fill: currentColor; font: 13px sans-serif }"
        " .states .small { font-size: 11px } .states .strong { font-weight: bold }"
        f" .states {{ {light} }}"
        f" @media (prefers-color-scheme: dark) {{ .states {{ {dark} }}"
        " svg.states:root { color: #dddddd } }"
        f" [data-theme=light] .states {{ {light} }} [data-theme=dark] .states {{ {dark} }}"
        f"{each} .states .way {{ fill: none; stroke-width: 1.5 }}"
        " .states .box { fill-opacity: 0.12; stroke-width: 1.5 }</style>"
    )
