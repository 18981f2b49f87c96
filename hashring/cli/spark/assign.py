"""The owner of every key."""

from __future__ import annotations

from typing import Any

import click

from hashring.cli.common_options import Settings
from hashring.cli.given_options import refuse
from hashring.cli.spark.inputs import read_input, ring_of
from hashring.cli.spark.job import Job, output_of
from hashring.cli.spark.options import (
    job_options,
    output_options,
    ring_file_options,
    source_options,
)


@click.command("assign")
@source_options
@output_options
@click.option(
    "--by-owner",
    is_flag=True,
    help="A directory owner=<node> for each node, which it can read alone; of host:17 it is "
    "owner=host%3A17.",
)
@click.option(
    "--files-per-owner",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="With --by-owner: how many files a node's rows are in. With fewer nodes than cores, more "
    "than one lets all cores write.",
)
@click.option(
    "--keep-point",
    is_flag=True,
    help="Parquet in order of the points, in directories cell=<number>, of which reassign rewrites "
    "only what a change of the ring moves.",
)
@click.option(
    "--cells",
    type=int,
    default=1024,
    show_default=True,
    help="With --keep-point: how many directories, a power of two. More of them are read more "
    "exactly; fewer are larger files.",
)
@ring_file_options
@job_options
def command(
    ctx: click.Context,
    /,
    *,
    by_owner: bool,
    files_per_owner: int,
    keep_point: bool,
    cells: int,
    **options: Any,
) -> None:
    """Write every row with the point and the owner of its key.

    \b
    Examples:
      hashring spark assign --input 'keys/*.parquet' --output owned.parquet --by-owner
      hashring spark assign --input 'keys/*.parquet' --output owned --keep-point
      hashring spark assign --input keys.csv --key account --output owned.csv --ring-file ring.json
    """
    from hashring.spark.analysis.point_cells import check_cells  # noqa: PLC0415 - as above
    from hashring.spark.jobs import assign_job  # noqa: PLC0415 - optional, loaded when used

    if not keep_point:
        refuse(
            ctx,
            "cells",
            why="it sets how many directories --keep-point writes: add that, or leave this out",
        )
    if not by_owner:
        refuse(
            ctx,
            "files_per_owner",
            why="it sets how many files a directory of --by-owner has: add that, or leave this out",
        )
    if by_owner and keep_point:
        raise click.UsageError("give either --by-owner or --keep-point")
    if keep_point:
        check_cells(cells)
        if options["table"] is not None or options["mode"] == "append":
            raise click.UsageError(
                "--keep-point writes a whole directory: give --output, and no --mode append"
            )
    job = Job(ctx, options)
    output = output_of(options, "parquet" if by_owner or keep_point else None)
    if output is None:
        raise click.UsageError("give --output or --table: where the rows go")
    if keep_point and (found := output.format_of_files()) != "parquet":
        raise click.UsageError(
            f"--keep-point writes Parquet, and the output is {found}: give another name or "
            f"--output-format parquet, or leave out --keep-point"
        )
    ring = ring_of(ctx.ensure_object(Settings), options)
    spark = job.session()
    source = read_input(spark, options)
    job.finish(
        assign_job(
            source,
            ring,
            output,
            key=options["key"],
            by_owner=by_owner,
            files_per_owner=files_per_owner,
            cells=cells if keep_point else None,
        )
    )
