"""Rows tagged with their owner as they come."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

from hashring.cli.output import document
from hashring.cli.settings import Settings
from hashring.cli.spark.job import Job
from hashring.cli.spark.options import input_options, ring_file_options, session_options


@click.command("stream")
@input_options
@click.option("--output", required=True, help="A directory; each batch goes to one in it.")
@click.option("--checkpoint", required=True, help="Where Spark keeps its place in the input.")
@click.option(
    "--interval",
    help="Time between batches, such as '10 seconds', until Ctrl-C. Default: what there is now, "
    "and then the end.",
)
@click.option(
    "--refresh",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Seconds until the live ring is read anew.",
)
@ring_file_options
@session_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    output: str,
    checkpoint: str,
    interval: str | None,
    refresh: float,
    **options: Any,
) -> None:
    """Tag rows with their owner, while the ring changes.

    Rows are tagged as they come. Stopped or killed and started again with the same checkpoint, it
    neither loses nor doubles a row.

    \b
    Examples:
      hashring spark stream --input incoming --format json --schema 'key string' \\
          --output tagged --checkpoint state --url redis://redis.internal:6379/0
      hashring spark stream --input incoming --format csv --schema 'key string' \\
          --output tagged --checkpoint state --ring-file ring.json --interval '10 seconds'
    """
    from hashring.spark.files import read_stream  # noqa: PLC0415 - optional
    from hashring.spark.stream import fixed_ring, followed_ring, tag_stream  # noqa: PLC0415

    job = Job(ctx, options)
    settings = ctx.ensure_object(Settings)
    if options["ring_file"]:
        ring = fixed_ring(job.ring().ring)
    elif settings.url is None:
        raise click.UsageError("give --url or --ring-file: Spark's workers need to find Redis")
    else:
        ring = followed_ring(settings.url, settings.ring, refresh)
    spark = job.session()
    rows = read_stream(spark, options["inputs"], options["format_"], options["schema"])
    query = tag_stream(rows, ring, output, checkpoint, key=options["key"], interval=interval)
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        pass  # the way to end it
    finally:
        # Java may be gone before us, or asked something at this moment.
        with suppress(Exception):
            query.stop()
    batches = query.recentProgress
    rows_seen = sum(batch.numInputRows for batch in batches)
    if settings.json:
        document({"batches": len(batches), "rows": rows_seen})
    else:
        click.echo(f"rows of the last {len(batches)} batches  {rows_seen:,}")
