"""Rows tagged with their owner as they come."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from hashring.cli.common_options import NumberRange, Settings
from hashring.cli.given_options import refuse
from hashring.cli.output import document
from hashring.cli.signals import Terminated
from hashring.cli.spark.inputs import format_options, ring_of
from hashring.cli.spark.job import Job
from hashring.cli.spark.options import (
    input_option_option,
    input_options,
    ring_file_options,
    session_options,
)
from hashring.cli.spark.terminal_answer import shown

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from hashring.spark.streams.stream_rings import RingsOfBatches
    from hashring.spark.streams.tagging import StreamCounts


_CALL: Final = 0.5
"""Seconds for which one call waits for the end of a stream."""


@click.command("stream")
@input_options
@input_option_option
@click.option("--output", required=True, help="A directory; each batch goes to one in it.")
@click.option(
    "--checkpoint",
    required=True,
    help="Where Spark keeps its place in the input; outside the output.",
)
@click.option(
    "--output-format",
    default="parquet",
    show_default=True,
    help="Any that the session can write, except text and xml. Files get a directory a batch; to "
    "another format, each batch is appended. After a kill, delta is to leave out a batch that it "
    "has; others get it again.",
)
@click.option(
    "--interval",
    help="Time between batches, such as '10 seconds', until Ctrl-C. Default: what there is now, "
    "and then the end.",
)
@click.option(
    "--refresh",
    type=NumberRange(min=0),
    default=1.0,
    show_default=True,
    help="Seconds until the live ring is read anew.",
)
@ring_file_options
@session_options
def command(
    ctx: click.Context,
    /,
    *,
    output: str,
    checkpoint: str,
    output_format: str,
    interval: str | None,
    refresh: float,
    **options: Any,
) -> None:
    """Tag rows with their owner, while the ring changes.

    Rows are tagged as they come. Stopped or killed and started again with the same checkpoint, it
    loses no row, and doubles none in files. To another format than files and delta, it appends the
    last batch again if that was not noted as ended. It reads files of any age, unless
    --input-option maxFileAge=7d or the like passes over those that are much older than the newest
    one read.

    \b
    Examples:
      hashring spark stream --input incoming --format json --schema 'key string' \\
          --output tagged --checkpoint state --url redis://redis.internal:6379/0
      hashring spark stream --input incoming --format csv --schema 'key string' \\
          --output tagged --checkpoint state --ring-file ring.json --interval '10 seconds'
    """
    from hashring.spark.engine.session import is_connect  # noqa: PLC0415
    from hashring.spark.io.file_formats import FILE_FORMATS, format_name  # noqa: PLC0415 - optional
    from hashring.spark.io.input import read_stream  # noqa: PLC0415
    from hashring.spark.streams.stream_rings import RingsOfBatches  # noqa: PLC0415
    from hashring.spark.streams.tagging import (  # noqa: PLC0415
        StreamCounts,
        fixed_ring,
        followed_ring,
        tag_stream,
    )

    job = Job(ctx, options)
    settings = ctx.ensure_object(Settings)
    if options["ring_file"]:
        refuse(
            ctx, "refresh", why="the ring of --ring-file does not change: leave out one of the two"
        )
        ring = fixed_ring(ring_of(settings, options).ring)
    elif settings.url is None:
        raise click.UsageError("give --url or --ring-file: Spark's workers need to find Redis")
    else:
        ring = followed_ring(settings.url, settings.ring, refresh, settings.wire)
    spark = job.session()
    key = options["key"]
    rows = read_stream(
        spark,
        options["inputs"],
        options["format_"],
        options["schema"],
        format_options(options),
        key=key,
    )
    counts = StreamCounts()
    far = is_connect(spark)
    rings = None
    if far and (named := format_name(output_format)) in FILE_FORMATS:
        rings = RingsOfBatches(spark, output, named)
    query = tag_stream(
        rows,
        ring,
        output,
        checkpoint,
        key=key,
        interval=interval,
        format=output_format,
        counts=counts,
        changed=None if far else lambda number, ring: _tell(number, ring.fingerprint),
        inputs=options["inputs"],
    )
    try:
        if far:
            _until_ended(query, rings, refresh, job.let_signals_in)
        else:
            query.awaitTermination()
    except Terminated:
        raise
    except KeyboardInterrupt:
        pass  # the way to end it
    finally:
        # Java may be gone before us, or asked something at this moment.
        with suppress(Exception):
            query.stop()
    facts = _far_facts(query, rings) if far else _facts(counts)
    if settings.json:
        document(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{name.rjust(width)}  {shown(value)}")


def _tell(batch: int, ring: str) -> None:
    """Say on the terminal at once that the ring has changed."""
    click.echo(f"the ring changed: batch {batch:,} has ring {ring}", err=True)


def _until_ended(
    query: StreamingQuery,
    rings: RingsOfBatches | None,
    refresh: float,
    let_signals_in: Callable[[], None],
) -> None:
    """Wait until it ends, over Spark Connect."""
    look_at = time.monotonic() + refresh
    while not query.awaitTermination(_CALL):  # type: ignore[arg-type] # a float will do
        let_signals_in()
        if rings is not None and time.monotonic() >= look_at:
            _tell_all(rings, query)
            let_signals_in()
            look_at = time.monotonic() + refresh


def _tell_all(rings: RingsOfBatches, query: StreamingQuery) -> None:
    for number, ring in rings.look(query.recentProgress):
        _tell(number, ring)


def _facts(counts: StreamCounts) -> dict[str, Any]:
    unknown = 0 < counts.batches == counts.uncounted
    return {
        "batches": counts.batches,
        "rows written": None if unknown else counts.rows,
        "bad records left out": None if unknown else counts.bad_records,
        "batches not counted": counts.uncounted,
        "ring changes": counts.ring_changes,
        "ring fingerprint": counts.ring,
    }


def _far_facts(query: StreamingQuery, rings: RingsOfBatches | None) -> dict[str, Any]:
    """Over Spark Connect: what is written there is counted there."""
    batches = query.recentProgress
    read = sum(batch.numInputRows for batch in batches)
    facts: dict[str, Any] = {"batches of late": len(batches), "rows read in them": read}
    if rings is not None:
        _tell_all(rings, query)
        facts |= {"ring changes": rings.changes, "ring fingerprint": rings.ring}
    return facts
