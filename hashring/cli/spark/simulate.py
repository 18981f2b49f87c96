"""Balance and movement of random rings."""

from __future__ import annotations

from typing import Any, Final

import click

from hashring.cli.common_options import json_option
from hashring.cli.given_options import given, refuse
from hashring.cli.spark.job import Job, output_of
from hashring.cli.spark.options import job_options, output_options, seed_option

_NOT_WITH_PEAK: Final = (
    "n_replicas",
    "placement",
    "limit",
    "weights",
    "output",
    "table",
    "output_format",
    "mode",
    "options_",
)


@click.command("simulate")
@click.option(
    "--nodes",
    type=click.IntRange(min=2),
    multiple=True,
    default=(10, 100),
    show_default=True,
    help="How many nodes; may be repeated.",
)
@click.option(
    "--n-replicas",
    type=click.IntRange(min=1),
    multiple=True,
    default=(16, 64, 128, 512),
    show_default=True,
    help="Points of a node; may be repeated.",
)
@click.option(
    "--placement",
    type=click.Choice(["random", "balanced"]),
    multiple=True,
    default=("random",),
    show_default=True,
    help="May be repeated. Balanced rings take some hundred times as long.",
)
@click.option("--limit", type=float, multiple=True, help="Times the fair share; may be repeated.")
@click.option(
    "--weight",
    "weights",
    type=float,
    multiple=True,
    help="Weights given to the nodes in turn; may be repeated.",
)
@click.option("--rings", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option(
    "--peak",
    type=float,
    help="Instead: how many replicas keep the peak-to-mean at this or below? Found by the "
    "distribution of shares, and tried on --rings drawn rings.",
)
@click.option("--confidence", type=float, default=0.99, show_default=True, help="With --peak.")
@seed_option
@output_options
@json_option()
@job_options
def command(
    ctx: click.Context,
    /,
    *,
    nodes: tuple[int, ...],
    n_replicas: tuple[int, ...],
    placement: tuple[str, ...],
    limit: tuple[float, ...],
    weights: tuple[float, ...],
    rings: int,
    peak: float | None,
    confidence: float,
    seed: int,
    **options: Any,
) -> None:
    """Draw random rings, and show balance and movement.

    How replicas, placement and limits trade one against the other.

    \b
    Examples:
      hashring spark simulate --nodes 50 --n-replicas 16 --n-replicas 128
      hashring spark simulate --nodes 50 --peak 1.2 --confidence 0.99
    """
    from hashring.spark.analysis.replicas_for import replicas_for  # noqa: PLC0415 - optional
    from hashring.spark.analysis.scenarios import scenarios  # noqa: PLC0415
    from hashring.spark.jobs import replicas_job, simulate_job  # noqa: PLC0415 - optional

    if peak is not None:
        if len(nodes) != 1:
            raise click.UsageError("--peak asks about one number of --nodes")
        if found := given(ctx, *_NOT_WITH_PEAK):
            raise click.UsageError(
                "--peak asks about equal nodes with random points, and is answered with a number: "
                f"leave out {found}"
            )
        job = Job(ctx, options)
        answer = replicas_for(nodes[0], peak, confidence, seed=seed)  # said before Spark starts
        spark = job.session()
        job.finish(replicas_job(spark, answer, nodes[0], peak, confidence, rings=rings, seed=seed))
        return
    refuse(ctx, "confidence", why="it is for the answer to --peak: add that, or leave this out")
    job = Job(ctx, options)
    kinds = scenarios(nodes, n_replicas, placement, weights or (1.0,), limit or (None,))
    output = output_of(options)
    job.finish(simulate_job(job.session(), kinds, output, rings=rings, seed=seed))
