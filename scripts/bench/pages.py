"""Pages of docs/ and the table in README.rst, with their plots, from the last numbers taken.

The numbers are kept in docs/benchmarks/results.json, a measure at a time, so that one measure can
be taken again without the others. Nothing on the pages is typed by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import scaling_page
from frame import Line, Plot, Result, number
from measures import MEASURES
from targets import BY_KEY, TARGETS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "benchmarks.rst"
SCALING = ROOT / "docs" / "explanation" / "scaling.rst"
README = ROOT / "README.rst"
FOLDER = ROOT / "docs" / "benchmarks"
RESULTS = FOLDER / "results.json"

BEGIN, END = ".. benchmarks: begin\n", ".. benchmarks: end\n"
IN_README = (
    "contains-peer",
    "contains-floor",
    "contains-1000",
    "select",
    "select-numpy",
    "join",
    "crash",
    "restart",
    "steady",
    "held",
    "take",
    "renew",
    "thousand-steady",
    "thousand-restart",
)

INTRODUCTION = """\
==========
Benchmarks
==========

.. Written by scripts/bench/run from docs/benchmarks/results.json. Changes made here are lost.

What the project promises of its speed, measured against its peers and against floors. Each
number can be taken again:

.. code:: bash

  scripts/bench/run               # everything, and this page with it
  scripts/bench/run contains      # one measure; the others keep their last numbers
  scripts/bench/run --list

Only ratios mean something on another machine: both sides of each were measured in the same run,
in turn. What each was measured on is below its table. *Load* is the load average before and
after; on a machine with two cores, a load of more than two says that somebody else was at work.
How fast the interpreter itself is counts, too: with Debian's Python 3.11.2 instead of the 3.11.7
below, ``contains`` took 0.268 of redis-hashring's time and 1.61 of the floor's, and ``select`` with
numpy had 11.6 times its throughput.

All targets
===========

"""


def keep(taken: dict[str, Any]) -> None:
    """Keep what was measured, instead of what was measured before."""
    FOLDER.mkdir(exist_ok=True)
    results = kept()
    results[taken["measure"]] = taken
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def kept() -> dict[str, Any]:
    """What was measured, by measure."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def write() -> list[Path]:
    """Write all pages and plots anew; returns the files."""
    results = kept()
    written = [PAGE, README]
    PAGE.write_text(page(results))
    README.write_text(readme(results, README.read_text()))
    if "scaling" in results:
        SCALING.write_text(scaling(results["scaling"], results.get("simulated")))
        written.append(SCALING)
    for taken in results.values():
        for plot in Result.of_json(taken["result"]).plots:
            path = FOLDER / f"{plot.name}.svg"
            draw(plot, path)
            written.append(path)
    return written


def page(results: dict[str, Any]) -> str:
    """The text of docs/explanation/benchmarks.rst."""
    text = INTRODUCTION + all_targets(results)
    for measure in MEASURES:
        taken = results.get(measure.name)
        text += f"\n{measure.title}\n{'=' * len(measure.title)}\n\n"
        text += f"{measure.about}\n\n``scripts/bench/run {measure.name}``.\n\n"
        if taken is None:
            text += "Not measured yet.\n"
            continue
        result = Result.of_json(taken["result"])
        text += table_of(result)
        for note in result.notes:
            text += f"\n{note}\n"
        for plot in result.plots:
            text += f"\n.. image:: /benchmarks/{plot.name}.svg\n   :alt: {plot.title}\n"
        text += f"\n{facts_line(taken['facts'])}\n"
    return text


def scaling(taken: dict[str, Any], simulated: dict[str, Any] | None) -> str:
    """The text of docs/explanation/scaling.rst."""
    result = Result.of_json(taken["result"])
    if simulated is not None:
        result.values |= simulated["result"]["values"]
    images = "".join(
        f".. image:: /benchmarks/{plot.name}.svg\n   :alt: {plot.title}\n\n"
        for plot in result.plots
    )
    return scaling_page.page(result.values, f"{images}{facts_line(taken['facts'])}\n")


def readme(results: dict[str, Any], text: str) -> str:
    """README.rst with its table anew."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{readme_table(results)}\n{END}{after}"


def facts_line(facts: dict[str, Any]) -> str:
    load = " and ".join(f"{each:g}" for each in facts["load"])
    if facts.get("nice"):
        load += f" (run at nice {facts['nice']})"
    libraries = ", ".join(f"{name} {version}" for name, version in facts["libraries"].items())
    return (
        f"Measured {facts['date']}: {facts['cores']} cores ({facts['processor']}), load {load}, "
        f"Python {facts['python']}, {facts['server']}, {libraries}."
    )


def found(results: dict[str, Any]) -> dict[str, Line]:
    """The line that tells of each target; of those that were measured."""
    return {
        line.target: line
        for taken in results.values()
        for line in Result.of_json(taken["result"]).lines
        if line.target is not None and line.value is not None
    }


def _verdict(line: Line | None) -> tuple[str, str]:
    """The value and what to say of it."""
    if line is None or line.value is None or line.target is None:
        return "", "not measured"
    met = BY_KEY[line.target].met(line.value)
    return number(line.value, line.unit), "pass" if met else "**miss**"


def all_targets(results: dict[str, Any]) -> str:
    by_target = found(results)
    text = ""
    for room, targets in groupby(TARGETS, key=lambda target: target.room):
        rows = [
            (target.what, target.bound, *_verdict(by_target.get(target.key))) for target in targets
        ]
        text += f"{room}\n{'-' * len(room)}\n\n"
        text += list_table(("what", "target", "measured", ""), rows, widths=(60, 14, 14, 12)) + "\n"
    return text


def readme_table(results: dict[str, Any]) -> str:
    by_target = found(results)
    rows = [
        (BY_KEY[key].what, BY_KEY[key].bound, *_verdict(by_target.get(key))) for key in IN_README
    ]
    return list_table(("what", "target", "measured", ""), rows, widths=(60, 14, 14, 12))


def table_of(result: Result) -> str:
    rows = []
    for line in result.lines:
        ratio = number(line.value, line.unit) if line.value is not None else ""
        bound = BY_KEY[line.target].bound if line.target else ""
        verdict = _verdict(line)[1] if line.target else ""
        rows.append((line.what, line.ours, line.against, ratio, bound, verdict))
    head = ("what", "ours", "against", "value", "target", "")
    return list_table(head, rows, widths=(40, 16, 14, 10, 12, 8))


def list_table(head: Sequence[str], rows: Iterable[Sequence[str]], widths: Sequence[int]) -> str:
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        f"   :widths: {' '.join(map(str, widths))}",
        "",
    ]
    for row in (head, *rows):
        for at, cell in enumerate(row):
            lines.append(f"   {'*' if at == 0 else ' '} - {cell}".rstrip())
    return "\n".join(lines) + "\n"


def draw(plot: Plot, path: Path) -> None:
    """Draw a plot as SVG; the same numbers give the same file."""
    import matplotlib as mpl  # noqa: PLC0415 - needed for this alone, and slow to load

    mpl.use("svg")
    from matplotlib import pyplot  # noqa: PLC0415

    style = {
        "svg.hashsalt": plot.name,
        "svg.fonttype": "none",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
    }
    # Okabe and Ito's colours, which colour-blind readers tell apart.
    colours = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
    with mpl.rc_context(style):
        figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
        for (label, points), colour, mark in zip(
            plot.series.items(), colours, "osD^v*", strict=False
        ):
            axes.plot(*zip(*points, strict=True), color=colour, marker=mark, label=label)
        if plot.log_x:
            axes.set_xscale("log")
        if plot.log_y:
            axes.set_yscale("log")
        axes.set(title=plot.title, xlabel=plot.x, ylabel=plot.y)
        axes.legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
