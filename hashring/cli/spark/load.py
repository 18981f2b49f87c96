"""What each node has to do."""

from __future__ import annotations

from typing import Any

import click

from hashring.cli.common_options import Settings
from hashring.cli.spark.given_options import refuse
from hashring.cli.spark.inputs import read_input, ring_of
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
    help="How many keys; 0 spares two more readings, as --histogram does.",
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
    histogram: str | None,
    **options: Any,
) -> None:
    """Show the load of each node, and the hottest keys.

    The load stands beside the node's fair share.

    \b
    Examples:
      hashring spark load --input keys.csv --key account --report load.html
      hashring spark load --input log.parquet --weight seconds --ring-file ring.json
      hashring spark load --input owned --format parquet --histogram h.parquet
    """
    from hashring.spark.input import read_frame  # noqa: PLC0415 - optional
    from hashring.spark.jobs import load_job  # noqa: PLC0415 - optional

    if histogram and hottest:
        refuse(
            ctx,
            "hottest",
            why="with --histogram the hottest keys are not counted: leave out one of the two",
        )
    output = output_of(options)
    job = Job(ctx, options)
    ring = ring_of(ctx.ensure_object(Settings), options).ring
    spark = job.session()
    source = read_input(spark, options)
    counted = read_frame(spark, [histogram], "parquet") if histogram else None
    job.finish(
        load_job(
            source,
            ring,
            output,
            key=options["key"],
            weight=weight,
            hottest=0 if histogram else hottest,
            histogram=counted,
        )
    )
