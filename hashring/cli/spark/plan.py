"""What a change of the fleet would move."""

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
    seed_option,
    source_options,
    weight_option,
)
from hashring.errors import EmptyRingError


@click.command("plan")
@source_options
@weight_option
@click.option("--join", multiple=True, metavar="NODE", help="A node that joins; may be repeated.")
@click.option("--leave", multiple=True, metavar="NODE", help="A node that leaves; may be repeated.")
@click.option(
    "--reweigh",
    multiple=True,
    metavar="NODE=WEIGHT",
    help="A node's new weight, joining or there already; may be repeated.",
)
@click.option(
    "--n-replicas",
    type=int,
    help="Points of a node of weight 1; as most nodes of the ring have, unless given.",
)
@click.option(
    "--placement",
    type=click.Choice(["random", "balanced"]),
    default="random",
    show_default=True,
    help="Where nodes put the points that they get.",
)
@seed_option
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
    join: tuple[str, ...],
    leave: tuple[str, ...],
    reweigh: tuple[str, ...],
    n_replicas: int | None,
    placement: str,
    seed: int,
    **options: Any,
) -> None:
    """Show what moves if nodes join, leave or change weight.

    Between which nodes, and how much more than necessary. By --histogram alone, it takes the same
    time for any number of keys, and the answer says by how much it may be wrong. With --input as
    well, it is exact.

    \b
    Examples:
      hashring spark plan --input keys.parquet --ring-file ring.json --join new-host
      hashring spark plan --input keys.parquet --leave host-2 --reweigh host-1=2
      hashring spark plan --histogram h.parquet --ring-file ring.json --join new-host
      hashring spark plan --input owned --format parquet --histogram h.parquet --join new-host
    """
    from hashring.spark.analysis.plan import planned_ring  # noqa: PLC0415 - optional
    from hashring.spark.jobs import plan_job  # noqa: PLC0415 - optional

    weights = dict(_weight(text) for text in reweigh)
    if len(weights) < len(reweigh):
        raise click.UsageError(f"--reweigh {' --reweigh '.join(reweigh)}: names a node twice")
    if not (join or leave or weights):
        raise click.UsageError("nothing to plan: give --join, --leave or --reweigh")
    if not (join or weights):
        refuse(
            ctx,
            "n_replicas",
            "placement",
            "seed",
            why="it is for nodes that get points: add --join or --reweigh, or leave this out",
        )
    change: dict[str, Any] = {
        "join": join,
        "leave": leave,
        "weights": weights,
        "n_replicas": n_replicas,
        "placement": placement,
        "seed": seed,
    }
    job = Job(ctx, options)
    output = output_of(options)
    ring = ring_of(ctx.ensure_object(Settings), options).ring
    try:
        planned_ring(ring, **change)  # an unknown node is said before Spark starts
    except EmptyRingError as error:
        raise EmptyRingError(f"--leave {' --leave '.join(leave)}: {error}") from error
    spark = job.session()
    source = read_input(spark, options)
    histogram = read_histogram(spark, options)
    job.finish(
        plan_job(
            source,
            ring,
            output,
            key=options["key"],
            weight=weight,
            histogram=histogram,
            **change,
        )
    )


def _weight(text: str) -> tuple[str, float]:
    # A node's name may hold an equals sign; a weight does not.
    name, _, weight = text.rpartition("=")
    try:
        return name, float(weight)
    except ValueError:
        raise click.UsageError(f"--reweigh {text}: give NODE=WEIGHT, such as host:1=2") from None
