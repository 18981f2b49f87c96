"""Measure what the project promises, against its peers, and write the pages of docs/ anew."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

import pages
from machine_facts import facts
from measures import BY_NAME, MEASURES
from program import show
from result import Run

EXAMPLES = """
examples:
  scripts/bench/run                        everything, in the order of --list (an hour)
  scripts/bench/run contains restart       two of them; the others keep their last numbers
  scripts/bench/run contains --quick       does it work at all? no numbers worth keeping
  scripts/bench/run --json contains        for programs
  scripts/bench/run --pages                no measure: the pages from the last numbers

A ratio is always one of two things measured in the same run. The machine should have nothing
else to do; how busy it was is part of what is written down.
"""


def say(text: str) -> None:
    print(f"  … {text}", file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "scripts/bench/run",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a measure; all unless given")
    parser.add_argument("--list", action="store_true", help="the measures, and how long they take")
    parser.add_argument("--json", action="store_true", help="print JSON; progress still on stderr")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few nodes, few rounds: no verdicts, nothing written into docs",
    )
    parser.add_argument("--pages", action="store_true", help="only write the pages anew")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in BY_NAME]
    if unknown:
        parser.error(
            f"there is no measure {', '.join(unknown)}; there are {', '.join(BY_NAME)} (--list)"
        )
    return given


def take(given: argparse.Namespace, names: list[str], told: list[dict[str, Any]]) -> int:
    """Take these measures, and keep what each finds; the exit status.

    Args:
        told: gets what each found.
    """
    status = 0
    for name in names:
        measure = BY_NAME[name]
        print(f"{measure.title} ({name}, about {measure.seconds} s)", file=sys.stderr, flush=True)
        load = os.getloadavg()[0]
        began = time.perf_counter()
        try:
            result = measure.take(Run(given.quick, say))
        except Exception as error:  # noqa: BLE001 - one that fails must not cost the others
            print(f"{name} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            status = 1
            continue
        taken = {
            "measure": name,
            "quick": given.quick,
            "seconds": round(time.perf_counter() - began, 1),
            "facts": facts(load),
            "result": result.as_json(),
        }
        told.append(taken)
        if not given.quick:
            pages.keep(taken)
        if not given.json:
            print(measure.title)
            show(result, quick=given.quick)
    return status


def main() -> int:
    given = parse()
    if given.list:
        for measure in MEASURES:
            print(f"{measure.name:18} {measure.seconds:5} s  {measure.title}")
        return 0
    if given.pages:
        pages.write()
        return 0
    names = given.names or [measure.name for measure in MEASURES]
    told: list[dict[str, Any]] = []
    try:
        status = take(given, names, told)
    except KeyboardInterrupt:
        status = 130
    if given.json:
        print(json.dumps(told, indent=2))
    elif told:
        print(pages.facts_line(told[-1]["facts"]))
    if not given.quick and told:
        for path in pages.write():
            print(f"wrote {path}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
