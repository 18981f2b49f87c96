"""What the programs of this folder share: how each is asked, and how it tells what it found.

A program measures in a process of its own. By itself it prints a table; as a measure of
scripts/bench/run it is asked for JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping

from result import Line, Result, number
from targets import BY_KEY


def parser(about: str | None) -> argparse.ArgumentParser:
    """The options that every program has."""
    found = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return found


def play(
    asked: argparse.ArgumentParser,
    parts: Mapping[str, Callable[[Result], None]],
    given: argparse.Namespace | None = None,
) -> None:
    """Measure the parts that were asked for, or all, and tell what was found.

    Args:
        given: gets what the options say.
    """
    asked.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}")
    given = asked.parse_args(namespace=given)
    if unknown := [name for name in given.parts if name not in parts]:
        asked.error(f"there is no part {', '.join(unknown)}; there are {', '.join(parts)}")
    result = Result()
    for name in given.parts or parts:
        parts[name](result)
    tell(result, given)


def tell(result: Result, given: argparse.Namespace) -> None:
    """Print what was found."""
    if given.json:
        print(json.dumps(result.as_json()))
    else:
        show(result)


def show(result: Result, *, quick: bool = False) -> None:
    """Print what was found as a table, with verdicts unless it was a quick run."""
    head = ("", "ours", "against", "value", "target", "")
    rows = [
        (
            line.what,
            line.ours,
            line.against,
            number(line.value, line.unit) if line.value is not None else "",
            BY_KEY[line.target].bound if line.target else "",
            _verdict(line, quick),
        )
        for line in result.lines
    ]
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    for row in (head, *rows):
        cells = [
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())
    for note in result.notes:
        print(f"  {note}")
    print(flush=True)


def _verdict(line: Line, quick: bool) -> str:
    if line.target is None or line.value is None or quick:
        return ""
    return "pass" if BY_KEY[line.target].met(line.value) else "MISS"
