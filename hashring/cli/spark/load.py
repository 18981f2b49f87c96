"""What each node has to do."""

from __future__ import annotations

from typing import Any

import click

from hashring.cli.common_options import Settings
from hashring.cli.given_options import refuse
from hashring.cli.spark.inputs import read_histogram, read_input, ring_of
from hashring.cli.spark.job import Job, output_of
from hashring.cli.spark.options import (
    answer_options,
    histogram_option,
    job_options,
    output_options,
    ring_file_options,
    source_options,
    weight_option,
)


@click.command("load")
@source_options
@weight_option
@click.option(
    "--hottest",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="How many keys; 0 spares two more readings. With --histogram, none are shown.",
)
@histogram_option
@output_options
@ring_file_options
@answer_options
@job_options
def command(
    ctx: click.Context,
    /,
    *,
    weight: str | None,
    hottest: int,
    **options: Any,
) -> None:
    """Show the load of each node, and the hottest keys.

    The load stands beside the node's fair share. By --histogram alone, it takes the same time for
    any number of keys, and the answer says by how much it may be wrong. With --input as well, it is
    exact.

    \b
    Examples:
      hashring spark load --input keys.csv --key account --report load.html
      hashring spark load --input log.parquet --weight seconds --ring-file ring.json
      hashring spark load --histogram h.parquet --ring-file ring.json
      hashring spark load --input owned --format parquet --histogram h.parquet
    """
    from hashring.spark.jobs import load_job  # noqa: PLC0415 - optional

    if options["histogram"] and hottest:
        refuse(
            ctx,
            "hottest",
            why="with --histogram the hottest keys are not counted: leave out one of the two",
        )
    job = Job(ctx, options)
    output = output_of(options)
    ring = ring_of(ctx.ensure_object(Settings), options).ring
    spark = job.session()
    source = read_input(spark, options)
    histogram = read_histogram(spark, options)
    job.finish(
        load_job(
            source,
            ring,
            output,
            key=options["key"],
            weight=weight,
            hottest=0 if histogram else hottest,
            histogram=histogram,
        )
    )
