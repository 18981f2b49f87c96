"""Pages of docs/ and the numbers in README.rst, with their plots, from the last numbers taken.

The numbers are kept in docs/benchmarks/results.json, a measure at a time, so that one measure can
be taken again without the others. Nothing on the pages is typed by hand.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill, wrap
from typing import Any

import scaling_page
from result import Line, Plot, Result, number
from targets import BY_KEY, TARGETS, Target

from hashring.atomic_writes import replace_text

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "benchmarks.rst"
SCALING = ROOT / "docs" / "explanation" / "scaling.rst"
README = ROOT / "README.rst"
FOLDER = ROOT / "docs" / "benchmarks"
RESULTS = FOLDER / "results.json"

BEGIN, END = ".. benchmarks: begin\n", ".. benchmarks: end\n"
IN_README = (
    "- ``contains`` takes {contains-peer} of the time that redis-hashring needs, with 16 replicas.",
    "- Of 100 nodes that follow the whole ring, 99 % see a join within {join}.",
    "- A rolling restart of 100 nodes reads {restart} of the bytes that redis-hashring's reads.",
)
"""What the README says of the measured values."""

BESIDES = (
    "simulated",
    "own-ranges",
    "own-ranges-100k",
    "own-ranges-simulated",
    "own-live",
    "balanced",
)
"""Measures whose values stand on the page of scaling, besides those of ``scaling``."""

QUESTIONS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    (
        "What does asking for a key cost?",
        (
            "``contains`` takes {contains-peer} of the time that redis-hashring needs, and "
            "{contains-floor} times a bare binary search. 1,000 replicas cost {contains-1000} "
            "times as much as 16. Asking for a million keys at once has {select} times the "
            "throughput of a list comprehension over redis-hashring, and {select-numpy} times with "
            "numpy."
        ),
        ("contains", "select", "libraries", "memory"),
        "contains",
    ),
    (
        "When do the other nodes know of a change?",
        (
            "Of 100 nodes with ``follow=True``, which see every change of the ring, 99 % see a "
            "join within {join}. After a crash the keys have owners again after at most {crash} "
            "of the promised time, which is ttl + one heartbeat."
        ),
        ("join", "crash"),
        "join",
    ),
    (
        "What do locks cost?",
        (
            "Asking for a held key costs {held} times as much as asking without locks. Taking many "
            "free locks with ``select`` has {take} times the throughput of redis-py's ``Lock``. "
            "Renewing 10,000 locks takes {renew} of Redis' time."
        ),
        ("locks",),
        "locks-targets",
    ),
    (
        "How fast does a partition group settle?",
        (
            "When a group of 256 partitions grows from 1 to 16 members, it settles within "
            "{group-settled}. Of the partitions that do not move, {group-pause} pause. A move "
            "costs the members {handoff} of CPU, with 10,000 partitions. In a heartbeat at rest, "
            "a member sends Redis {group-calls} call, and a ``PING`` on its silent subscription."
        ),
        ("groups", "group-handoffs", "group-at-rest", "assignors"),
        "groups-targets",
    ),
    (
        "How large may a fleet be?",
        (
            "1,000 nodes at rest use {thousand-steady} of one core of Redis. A rolling restart of "
            "100 nodes reads {restart} of the bytes that redis-hashring reads. "
            ":doc:`scaling` says how far one Redis goes."
        ),
        (
            "steady",
            "restart",
            "thousand",
            "scaling",
            *BESIDES,
            "service",
        ),
        "restart",
    ),
    (
        "How long do questions about all keys take on Spark?",
        (
            "Counting the keys of each node takes {lookup-100x16} times as long as a plain hash "
            "and count, for 100 nodes of 16 replicas. An audit takes {audit} times as long as a "
            "sort of the log. Writing 100 million keys by owner needs {assign-memory} of memory."
        ),
        (
            "lookup",
            "lookup-1000",
            "lookup-10000",
            "lookup-100m",
            "incremental",
            "wide",
            "write",
            "audit",
            "simulate",
        ),
        "spark-targets",
    ),
)
"""Heading, answer with the targets' measured values, measures, and the plot that shows it."""

TARGET_PLOTS = {
    "locks-targets": ("held", "take", "renew", "limit-settled"),
    "groups-targets": (
        "group-settled",
        "group-pause",
        "group-moves",
        "handoff",
        "handoff-growth",
        "group-calls",
    ),
    "spark-targets": (
        "lookup-100x16",
        "lookup-1000x128",
        "lookup-10000x128",
        "lookup-pandas",
        "moves",
        "filter",
        "audit",
        "assign-memory",
    ),
}
"""Plots of measured values beside their targets, by name."""

INTRODUCTION = """\
==========
Benchmarks
==========

.. Written by scripts/bench/run from docs/benchmarks/results.json. Changes made here are lost.

Six questions that users ask, each with an answer, a chart, and the raw results as CSV. The last
two sections say how the numbers were taken, and which targets are missed.
"""

METHOD = """
How the numbers are taken
=========================

- Both sides of a ratio are measured in the same run, in turn. Compare ratios between machines,
  not times.
- Peers are redis-hashring 0.7, redis-py's ``Lock`` and a bare loop. They do the same work on the
  same server.
- A time is the best of several rounds when the work is pure computation in Python. It is a median
  or a percentile on Spark, and when processes talk to each other.
- *Load* in the CSV files is the load average before and after. On two cores, more than two means
  that other work disturbed the run.
- The interpreter matters: a distribution's Python may be slower or faster than the one used here.

You can take every number again:

.. code:: bash

  scripts/bench/run               # everything, and this page with it
  scripts/bench/run contains      # one measure; the others keep their last numbers
  scripts/bench/run --list        # what there is, and how long it takes

{facts}
"""


def keep(taken: dict[str, Any]) -> None:
    """Keep what was measured, instead of what was measured before."""
    FOLDER.mkdir(exist_ok=True)
    results = kept()
    results[taken["measure"]] = taken
    replace_text(RESULTS, json.dumps(results, indent=1, sort_keys=True) + "\n")


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
        SCALING.write_text(scaling(results["scaling"], *(results.get(name) for name in BESIDES)))
        written.append(SCALING)
    by_target = found(results)
    for name, keys in TARGET_PLOTS.items():
        path = FOLDER / f"{name}.svg"
        draw_targets(name, [by_target[key] for key in keys if key in by_target], path)
        written.append(path)
    for name, taken in results.items():
        path = FOLDER / f"{name}.csv"
        path.write_text(table(taken))
        written.append(path)
        for plot in Result.of_json(taken["result"]).plots:
            path = FOLDER / f"{plot.name}.svg"
            draw(plot, path)
            written.append(path)
    return written


def page(results: dict[str, Any]) -> str:
    """The text of docs/explanation/benchmarks.rst."""
    by_target = found(results)
    values = _values(by_target)
    text = INTRODUCTION
    # A simulation finds the same whatever machine it runs on.
    timed = {name: of for name, of in results.items() if name not in ("simulated", "balanced")}
    for heading, answer, measures, plot in QUESTIONS:
        text += "\n" + "".join(f".. _benchmark-{name}:\n" for name in measures)
        text += f"\n{heading}\n{'=' * len(heading)}\n\n"
        text += "\n".join(wrap(_filled(answer, values), 100, break_on_hyphens=False)) + "\n\n"
        text += f".. picture:: /benchmarks/{plot}.svg\n   :alt: {heading}\n\n"
        files = ", ".join(
            f":download:`{name} </benchmarks/{name}.csv>`" for name in measures if name in results
        )
        told = (
            f"Raw results: {files}. {_taken([results[name] for name in measures if name in timed])}"
        )
        text += "\n".join(wrap(told.strip(), 100, break_on_hyphens=False)) + "\n"
    newest = max(timed.values(), key=lambda taken: str(taken["facts"]["date"]))
    facts = "\n".join(wrap(facts_line(newest["facts"]), 100, break_on_hyphens=False))
    text += METHOD.format(facts=facts)
    return text + misses(by_target)


def _taken(measures: Sequence[dict[str, Any]]) -> str:
    """When, of which code and on what these were taken: not all are of one day and one machine."""
    facts = [taken["facts"] for taken in measures]
    told = dict.fromkeys(
        f"{each['date']}{_of_commit(each)} on {each['processor']} with Python {each['python']} and "
        f"{each['server']}"
        for each in facts
    )
    return f"Measured {'; '.join(told)}." if told else ""


def _of_commit(facts: dict[str, Any]) -> str:
    return f" at {facts['commit']}" if facts.get("commit") else ""


def _values(by_target: dict[str, Line]) -> dict[str, str]:
    return {
        key: number(line.value, line.unit)
        for key, line in by_target.items()
        if line.value is not None
    }


def _filled(answer: str, values: dict[str, str]) -> str:
    for key, value in values.items():
        answer = answer.replace(f"{{{key}}}", value)
    return re.sub(r"\{[\w-]+\}", "(not measured yet)", answer)


def misses(by_target: dict[str, Line]) -> str:
    """The section about targets, and the table of those that are missed."""
    heading = "Targets, and those that are missed"
    rows = [
        (_in_full(target), target.bound, _verdict(by_target.get(target.key))[0] or "not measured")
        for target in TARGETS
        if _verdict(by_target.get(target.key))[1] != "pass"
    ]
    text = f"\n{heading}\n{'=' * len(heading)}\n\n"
    text += (
        f"{len(TARGETS) - len(rows)} of {len(TARGETS)} targets are met. "
        f"{'These are not:' if rows else 'None is missed.'}\n\n"
    )
    return text + (list_table(("what", "target", "measured"), rows, widths=(66, 17, 17)))


def _in_full(target: Target) -> str:
    """What a target is about, where its own words refer to the one before it."""
    first, same, rest = target.what.partition("the same")
    if first or not same:
        return target.what
    before = TARGETS[: TARGETS.index(target)]
    whole = next(one.what for one in reversed(before) if not one.what.startswith("the same"))
    return f"{whole}; the same{rest}"


def table(taken: dict[str, Any]) -> str:
    """A measure's results as CSV, with what they were measured on in the first line."""
    result = Result.of_json(taken["result"])
    with io.StringIO() as file:
        file.write(f"# {facts_line(taken['facts'])}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("what", "ours", "against", "value", "unit", "target", "verdict"))
        for line in result.lines:
            bound = BY_KEY[line.target].bound if line.target in BY_KEY else ""
            verdict = _verdict(line)[1].strip("*") if bound else ""
            value = "" if line.value is None else line.value
            unit = "" if line.value is None else line.unit
            writer.writerow((line.what, line.ours, line.against, value, unit, bound, verdict))
        return file.getvalue()


def scaling(taken: dict[str, Any], *others: dict[str, Any] | None) -> str:
    """The text of docs/explanation/scaling.rst.

    Args:
        taken: the measure ``scaling``.
        others: the measures whose values stand there besides.
    """
    result = Result.of_json(taken["result"])
    for other in others:
        if other is not None:
            result.values |= other["result"]["values"]
    images = "".join(
        f".. picture:: /benchmarks/{plot.name}.svg\n   :alt: {plot.title}\n\n"
        for plot in result.plots
    )
    own = next((each for each in others if each and each["measure"] == "own-ranges"), None)
    text = scaling_page.page(
        result.values,
        f"{images}{facts_line(taken['facts'])}\n",
        facts_line(own["facts"]) if own else "",
    )
    return "\n\n".join(map(_wrapped, text.split("\n\n")))


def _wrapped(block: str) -> str:
    """A paragraph, or a list of items, with lines of 100 columns; anything else as it is."""
    if re.match(r"[=\s]|\.\. |.*\n[=-]{3}", block) or not block:
        return block
    items = re.split(r"\n(?=- )", block.rstrip("\n"))
    indent = "  " if block.startswith("- ") else ""
    lines = (
        wrap(" ".join(item.split()), 100, subsequent_indent=indent, break_on_hyphens=False)
        for item in items
    )
    end = "\n" if block.endswith("\n") else ""
    return "\n".join(line for each in lines for line in each) + end


def readme(results: dict[str, Any], text: str) -> str:
    """README.rst with its numbers anew."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{readme_numbers(results)}\n{END}{after}"


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


def readme_numbers(results: dict[str, Any]) -> str:
    values = _values(found(results))
    return "\n".join(_filled(line, values) for line in IN_README) + "\n"


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


STYLE = {
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
}
# Okabe and Ito's colours, which colour-blind readers tell apart, on dark and on light.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def draw(plot: Plot, path: Path) -> None:
    """Draw a plot as SVG; the same numbers give the same file."""
    with _figure(plot.name, path) as axes:
        for (label, points), colour, mark in zip(
            plot.series.items(), COLOURS, "osD^v*", strict=False
        ):
            axes.plot(*zip(*points, strict=True), color=colour, marker=mark, label=label)
        if plot.log_x:
            axes.set_xscale("log")
        if plot.log_y:
            axes.set_yscale("log")
        axes.set(title=plot.title, xlabel=plot.x, ylabel=plot.y)
        axes.legend(frameon=False)


def draw_targets(name: str, lines: Sequence[Line], path: Path) -> None:
    """Draw how much of its bound each measured value uses: a bar each, and the bound as a line."""
    with _figure(name, path, height=0.8 + 0.72 * len(lines)) as axes:
        labels, parts = [], []
        for line in reversed(lines):
            assert line.target is not None
            assert line.value is not None
            target = BY_KEY[line.target]
            used = line.value / target.limit if target.limit else line.value
            parts.append(used if target.sign == "<=" else 1 / used)
            what = target.what.replace("``", "").removeprefix("the same: ")
            shown = number(line.value, line.unit)
            labels.append(f"{fill(what, 46)}\n{shown} ({target.bound})")
        axes.barh(labels, parts, color=[COLOURS[0] if part <= 1 else COLOURS[1] for part in parts])
        axes.axvline(1, color=COLOURS[2], linewidth=2)
        axes.grid(axis="y", visible=False)
        axes.set(xlabel="part of the bound (beyond 1: missed)")


@contextmanager
def _figure(name: str, path: Path, height: float = 3.6) -> Iterator[Any]:
    """A figure whose text and lines take the colour of the page around it."""
    import matplotlib as mpl  # noqa: PLC0415 - needed for this alone, and slow to load

    mpl.use("svg")
    from matplotlib import pyplot  # noqa: PLC0415

    with mpl.rc_context(STYLE | {"svg.hashsalt": name}):
        figure, axes = pyplot.subplots(figsize=(7, height), layout="constrained")
        yield axes
        figure.savefig(path, metadata={"Date": None}, transparent=True)
        pyplot.close(figure)
    text = path.read_text().replace("#000000", "currentColor").replace("#262626", "currentColor")
    text = re.sub(r' id="[a-z]+[a-z0-9]*_\d+"', "", text)
    text = re.sub(r"(<svg [^>]*>)", rf"\1\n {DARK}", text, count=1)
    path.write_text(text)


DARK = (
    "<style>text { fill: currentColor }"
    " @media (prefers-color-scheme: dark) { svg:root { color: #dddddd } }</style>"
)
"""Alone in a browser the picture follows the reader's choice; in a page it follows the page."""
