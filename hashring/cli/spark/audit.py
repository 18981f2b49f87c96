"""Was every key worked on by its owner, and by nobody else?"""

from __future__ import annotations

from typing import Any

import click

from hashring.cli.common_options import Settings, ring_options
from hashring.cli.given_options import refuse
from hashring.cli.spark.inputs import check_events, history_algorithm, read_events, read_input
from hashring.cli.spark.job import Job, output_of
from hashring.cli.spark.options import (
    LIVE_RING,
    answer_options,
    job_options,
    output_options,
    source_options,
)
from hashring.errors import ConfigError
from hashring.ring_files import read_ring


@click.command("audit")
@source_options
@click.option("--node", default="node", show_default=True, help="The column of nodes.")
@click.option("--start", default="start", show_default=True, help="The column of starts.")
@click.option("--end", default="end", show_default=True, help="The column of ends.")
@click.option(
    "--events",
    multiple=True,
    help="Exported events of the ring (Parquet or JSON). Default: the live ring's.",
)
@click.option(
    "--base",
    type=click.Path(),
    help="The ring file from before the events, when they do not begin with the ring.",
)
@click.option(
    "--hash-algorithm",
    help="The ring's, if no --base has it. Default: as the live ring's nodes report; else crc-32, "
    "and the answer says so.",
)
@output_options
@ring_options()
@answer_options
@job_options
def command(
    ctx: click.Context,
    /,
    *,
    node: str,
    start: str,
    end: str,
    events: tuple[str, ...],
    base: str | None,
    hash_algorithm: str | None,
    **options: Any,
) -> None:
    """Hold a work log against the ring's history.

    Who worked on what they did not own, and who worked at the same time as another?

    \b
    Examples:
      hashring spark audit --input work.parquet --url redis://redis.internal:6379/0 --ring accounts
      hashring spark audit --input work.parquet --events events.parquet --base ring.json
    """
    from hashring.spark.io.file_formats import format_of  # noqa: PLC0415 - optional
    from hashring.spark.jobs import audit_job, kept  # noqa: PLC0415 - optional
    from hashring.spark.periods.history_from_events import history_of  # noqa: PLC0415 - optional

    settings = ctx.ensure_object(Settings)
    if settings.wire:
        raise click.UsageError(
            "--wire: nodes of redis-hashring write no events, so the history has gaps: audit the "
            "time after the last of them has left, without --wire"
        )
    if base:
        refuse(ctx, "hash_algorithm", why="the ring of --base has one: leave out one of the two")
    if events:
        refuse(ctx, *LIVE_RING, why="the history is in --events: leave out one of the two")
    check_events(settings, events)
    job = Job(ctx, options)
    output = output_of(options)
    base_ring = read_ring(base) if base else None
    if events and format_of(events, None) == "csv":
        raise ConfigError("events", list(events), "a CSV holds no lists: give Parquet or JSON")
    algorithm, algorithm_from = history_algorithm(settings, events, base_ring, hash_algorithm)
    spark = job.session()
    told = read_events(spark, settings, events)
    # A live ring has more events at each look.
    with kept(told):
        history = history_of(told, base_ring, algorithm)
        source = read_input(spark, options)
        job.finish(
            audit_job(
                source,
                history,
                output,
                events=told,
                algorithm_from=algorithm_from,
                key=options["key"],
                node=node,
                start=start,
                end=end,
            )
        )
