"""How many keys there are where on the ring."""

from __future__ import annotations

from typing import Any

import click

from hashring.cli.common_options import json_option
from hashring.cli.spark.inputs import read_input
from hashring.cli.spark.job import Job, output_of
from hashring.cli.spark.options import job_options, output_options, source_options, weight_option


@click.command("histogram")
@source_options
@weight_option
@click.option(
    "--buckets", type=int, default=2**16, show_default=True, help="How many; a power of two."
)
@click.option("--hash-algorithm", default="crc-32", show_default=True, help="The ring's.")
@output_options
@json_option()
@job_options
def command(
    ctx: click.Context,
    /,
    *,
    weight: str | None,
    buckets: int,
    hash_algorithm: str,
    **options: Any,
) -> None:
    """Count the keys of each bucket of points.

    Made once a day, it answers load and plan for any ring, without reading the keys again. Where an
    owner changes within a bucket, they share out its keys, and say by how much that may be wrong.

    \b
    Examples:
      hashring spark histogram --input 'keys/*.parquet' --output h.parquet
      hashring spark load --histogram h.parquet --ring-file ring.json
      hashring spark plan --histogram h.parquet --ring-file ring.json --join host-7
    """
    from hashring.spark.jobs import histogram_job  # noqa: PLC0415 - optional, loaded when used

    job = Job(ctx, options)
    output = output_of(options)
    if output is None:
        raise click.UsageError("give --output or --table: where the histogram goes")
    source = read_input(job.session(), options)
    job.finish(
        histogram_job(
            source,
            output,
            key=options["key"],
            weight=weight,
            hash_algorithm=hash_algorithm,
            buckets=buckets,
        )
    )
