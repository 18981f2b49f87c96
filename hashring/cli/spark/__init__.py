"""``hashring spark``: questions about all keys and all logs of a fleet, answered by Spark."""

from __future__ import annotations

from traceback import walk_tb
from typing import Any

import click

from hashring.cli.signals import termination_interrupts
from hashring.cli.spark import (
    assign,
    audit,
    compact,
    histogram,
    load,
    plan,
    reassign,
    simulate,
    stream,
)


class _SparkGroup(click.Group):
    """Says in a line what Spark says in a hundred."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with termination_interrupts():
                return super().invoke(ctx)
        except Exception as error:
            if not _is_sparks(error):
                raise
            from hashring.spark.engine.spark_failures import failure  # noqa: PLC0415 - Spark is loaded by now

            raise failure(error) from error


def _is_sparks(error: Exception) -> bool:
    names = [type(error).__module__]
    if isinstance(error, OSError):
        # Py4J cannot reach a Java that has ended, and says so with what its socket said.
        names += [frame.f_globals["__name__"] for frame, _ in walk_tb(error.__traceback__)][-1:]
    return any(name.partition(".")[0] in ("pyspark", "py4j") for name in names)


@click.group("spark", cls=_SparkGroup)
def spark_group() -> None:
    """All keys and all logs, on Spark.

    Needs the extra "spark-local", or "spark" beside a PySpark that is there, and Java 17 or 21
    (with --remote, no Java here).

    \b
    Examples:
      hashring spark assign --input 'keys/*.parquet' --output owned.parquet --by-owner
      hashring spark load --input keys.csv --key account --report load.html
      hashring spark plan --input keys.parquet --ring-file ring.json --join new-host
      hashring spark simulate --nodes 50 --peak 1.2 --confidence 0.99
    """


for name, module in {
    "assign": assign,
    "reassign": reassign,
    "histogram": histogram,
    "load": load,
    "plan": plan,
    "audit": audit,
    "simulate": simulate,
    "stream": stream,
    "compact": compact,
}.items():
    spark_group.add_command(module.command, name)

command = spark_group
