"""Results as text for a terminal, as tables and a plot for docs/explanation/chaos.rst."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from tests.chaos.checker import NEVER
from tests.chaos.faults import FAULTS
from tests.chaos.fleet import VARIANTS
from tests.chaos.scenario import Result
from tests.chaos.worker import PEER

OURS = "hashring"
_PLAIN = tuple(v.name for v in VARIANTS.values() if not v.lock and not v.peer)
_LOCKED = tuple(v.name for v in VARIANTS.values() if v.lock)


def seconds(value: float) -> str:
    return "never" if value == NEVER else f"{value:.2f}"


def line(result: Result) -> str:
    """One result, for a terminal."""

    def promised(bound: float) -> str:
        return f" (<= {bound:.2f})" if result.fault in FAULTS else ""

    bounds = result.bounds
    verdict = "pass" if not result.broken else "MISS: " + "; ".join(result.broken)
    return (
        f"{result.fault}, {result.variant}, seed {result.seed}: "
        f"two owners {seconds(result.longest_double)} s{promised(bounds.double)}, "
        f"none {seconds(result.longest_none)} s{promised(bounds.none)}, "
        f"right again after {seconds(result.recovery)} s (<= {bounds.recovery:.2f}), "
        f"{len(result.escaped)} escaped, machine {result.late:.2f} s late; {verdict}"
    )


def _worst(results: Sequence[Result], measure: Callable[[Result], float]) -> float | None:
    return max(map(measure, results), default=None)


def _shown(value: float | None) -> str:
    return "" if value is None else seconds(value)


def _verdict(results: Sequence[Result]) -> str:
    if not results:
        return ""
    return "MISS" if any(result.broken for result in results) else "pass"


def _chosen(results: Sequence[Result], fault: str, variants: Sequence[str]) -> list[Result]:
    return [r for r in results if r.fault == fault and r.variant in variants]


SIDE_BY_SIDE = (
    "fault",
    "two owners, s",
    "no owner, s",
    "right again after, s",
    "exceptions",
    "verdict",
)


def side_by_side(results: Sequence[Result]) -> list[list[str]]:
    """A row a fault: the worst of ours without locks, against redis-hashring, as ``a / b``."""
    rows = []
    for name in _faults(results):
        ours, peer = _chosen(results, name, _PLAIN), _chosen(results, name, (PEER,))
        row = [FAULTS[name].text if name in FAULTS else name]
        for measure in (
            lambda r: r.longest_double,
            lambda r: r.longest_none,
            lambda r: r.recovery,
        ):
            row.append(f"{_shown(_worst(ours, measure))} / {_shown(_worst(peer, measure))}")
        escaped = [str(sum(len(r.escaped) for r in each)) if each else "" for each in (ours, peer)]
        row += [" / ".join(escaped), f"{_verdict(ours)} / {_verdict(peer)}"]
        rows.append(row)
    return rows


EACH = ("fault", "promised", *_PLAIN, *_LOCKED, PEER)


def each_variant(results: Sequence[Result]) -> list[list[str]]:
    """A row a fault: the longest windows with two owners and with none, in every variant."""
    rows = []
    for name in _faults(results):
        row = [name]
        found = _chosen(results, name, (*_PLAIN, *_LOCKED))
        row.append(
            f"{max(r.bounds.double for r in found):.2f} / {max(r.bounds.none for r in found):.2f}"
            if found
            else ""
        )
        for variant in (*_PLAIN, *_LOCKED, PEER):
            of_it = _chosen(results, name, (variant,))
            row.append(
                f"{_shown(_worst(of_it, lambda r: r.longest_double))} / "
                f"{_shown(_worst(of_it, lambda r: r.longest_none))}"
                if of_it
                else ""
            )
        rows.append(row)
    return rows


KEY_SECONDS = ("fault", *_PLAIN, *_LOCKED, PEER)


def key_seconds(results: Sequence[Result]) -> list[list[str]]:
    """A row a fault: key-seconds with two owners and with none, in every variant."""
    rows = []
    for name in _faults(results):
        row = [name]
        for variant in (*_PLAIN, *_LOCKED, PEER):
            of_it = _chosen(results, name, (variant,))
            row.append(
                f"{_worst(of_it, lambda r: r.double):.1f} / {_worst(of_it, lambda r: r.none):.1f}"
                if of_it
                else ""
            )
        rows.append(row)
    return rows


def _faults(results: Sequence[Result]) -> list[str]:
    """The faults there are results of: single ones in their own order, then sequences."""
    there = {result.fault for result in results}
    return [name for name in FAULTS if name in there]


SEQUENCES = ("seed", "variant", "faults", "right again after, s", "exceptions", "verdict")


def sequences(results: Sequence[Result]) -> list[list[str]]:
    return [
        [
            str(result.seed),
            result.variant,
            result.fault,
            seconds(result.recovery),
            str(len(result.escaped)),
            _verdict([result]),
        ]
        for result in sorted(results, key=lambda result: (result.seed, result.variant))
        if result.fault not in FAULTS
    ]


def as_text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    table = [header, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def as_rst(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows(rows)
    head = ", ".join(f'"{cell}"' for cell in header)
    body = "".join(f"   {row}\n" for row in out.getvalue().splitlines())
    return f".. csv-table::\n   :header: {head}\n\n{body}"


_ROW, _LEFT, _WIDTH, _LEAST = 34, 400, 420, 0.01


def plot(results: Sequence[Result], horizon: float) -> str:
    """An SVG: for each fault, the longest that a key was in a wrong state, ours and the peer's."""
    names = _faults(results)
    height = 70 + _ROW * len(names)
    width = _LEFT + _WIDTH + 80
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="13"',
        # It takes the page's colour of text, and stays readable on a narrow screen.
        f'viewBox="0 0 {width} {height}" fill="currentColor" style="min-width: 45rem">',
        '<text x="10" y="20" font-weight="bold">Longest that a key had two owners',
        "or none, in seconds (logarithmic); never: it was not right again</text>",
    ]

    def at(value: float) -> float:
        scale = math.log(max(value, _LEAST) / _LEAST) / math.log(horizon / _LEAST)
        return _LEFT + _WIDTH * min(1.0, scale)

    for tick in (0.01, 0.1, 1.0, 10.0):
        parts.append(
            f'<line x1="{at(tick):.1f}" x2="{at(tick):.1f}" y1="45" y2="{height - 10}" '
            f'stroke="#888" stroke-opacity="0.4"/>'
            f'<text x="{at(tick):.1f}" y="40" text-anchor="middle">{tick:g}</text>'
        )
    for number, name in enumerate(names):
        top = 55 + _ROW * number
        parts.append(
            f'<text x="{_LEFT - 8}" y="{top + 17}" text-anchor="end">'
            f"{escape(FAULTS[name].text)}</text>"
        )
        for offset, variants, colour in ((0, _PLAIN, "#1b7f5c"), (13, (PEER,), "#c0504d")):
            found = _chosen(results, name, variants)
            if not found:
                continue
            worst = max(max(r.longest_double, r.longest_none) for r in found)
            never = any(r.recovery == NEVER for r in found)
            end = at(horizon) if never else at(worst)
            parts.append(
                f'<rect x="{_LEFT}" y="{top + offset}" width="{max(1.0, end - _LEFT):.1f}" '
                f'height="11" fill="{colour}"/>'
            )
            label = "→ never" if never else f"{worst:.2f}"
            parts.append(
                f'<text x="{end + 4:.1f}" y="{top + offset + 10}" font-size="11">{label}</text>'
            )
    parts.append(
        f'<rect x="10" y="30" width="11" height="11" fill="#1b7f5c"/>'
        f'<text x="26" y="40">{OURS}</text>'
        f'<rect x="110" y="30" width="11" height="11" fill="#c0504d"/>'
        f'<text x="126" y="40">{PEER} 0.7.0</text></svg>\n'
    )
    return "\n".join(parts)


def write_docs(page: Path, results: Sequence[Result], horizon: float) -> None:
    """Put the tables between the page's markers, and the plot beside it."""
    text = page.read_text()
    tables = {
        "side by side": as_rst(SIDE_BY_SIDE, side_by_side(results)),
        "each variant": as_rst(EACH, each_variant(results)),
        "key-seconds": as_rst(KEY_SECONDS, key_seconds(results)),
        "sequences": as_rst(SEQUENCES, sequences(results)),
    }
    for name, table in tables.items():
        begin, end = f".. begin {name}\n", f".. end {name}\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{table}\n{end}{after}"
    page.write_text(text)
    page.with_suffix(".svg").write_text(plot(results, horizon))
