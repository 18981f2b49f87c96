"""The owners that a change of the ring moved."""

from __future__ import annotations

from typing import Any

import click

from hashring.cli.common_options import Settings
from hashring.cli.spark.inputs import ring_of
from hashring.cli.spark.job import Job
from hashring.cli.spark.options import job_options, ring_file_options


@click.command("reassign")
@click.argument("path")
@ring_file_options
@job_options
def command(ctx: click.Context, /, *, path: str, **options: Any) -> None:
    """Give the rows of PATH their owners on the ring as it is now.

    PATH was written by assign --keep-point. Only the files are read and written in which an owner
    changes. Killed and started again, it ends right.

    \b
    Examples:
      hashring spark reassign owned --url redis://redis.internal:6379/0 --ring accounts
      hashring spark reassign owned --ring-file ring.json --report moved.html
    """
    from hashring.spark.jobs import reassign_job  # noqa: PLC0415 - optional, loaded when used

    job = Job(ctx, options)
    ring = ring_of(ctx.ensure_object(Settings), options)
    job.finish(reassign_job(job.session(), path, ring))
