"""Batches of a stream, merged."""

from __future__ import annotations

from typing import Any

import click

from hashring.cli.common_options import json_option
from hashring.cli.spark.job import Job
from hashring.cli.spark.options import job_options


@click.command("compact")
@click.argument("path")
@click.option(
    "--megabytes",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    help="Merge batches until they are about so large.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["parquet", "orc"]),
    default="parquet",
    show_default=True,
    help="Of the stream's output.",
)
@json_option()
@job_options
def command(
    ctx: click.Context, /, *, path: str, megabytes: int, format_: str, **options: Any
) -> None:
    """Merge the small batches of a stream's output PATH.

    The stream may go on meanwhile. Merged batches get the number of the last of them. Killed and
    started again, it ends right.

    \b
    Examples:
      hashring spark compact tagged
      hashring spark compact tagged --megabytes 512 --json
    """
    from hashring.spark.jobs import compact_job  # noqa: PLC0415 - optional, loaded when used

    job = Job(ctx, options)
    job.finish(compact_job(job.session(), path, megabytes * 2**20, format_))
