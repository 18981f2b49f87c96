"""``hashring plan``: what moves if nodes join, leave, or change their weight."""

from __future__ import annotations

import random
from typing import Final

import click

from hashring.cli.common_options import Settings, ring_options
from hashring.cli.connection import connected
from hashring.cli.given_options import refuse
from hashring.cli.order_answers import show_order_plan
from hashring.cli.plan_text import show_plan
from hashring.core.point_placement import PLACEMENTS
from hashring.core.ring_plan import planned_ring, usual_replicas
from hashring.core.safe_text import printable
from hashring.errors import ConfigError
from hashring.store.ring.node_reports import node_shapes, ring_algorithm
from hashring.store.ring.ring_after_orders import split_idle

_GREATEST_WEIGHT: Final = 100.0
"""Of a joining node written as ``name:2``. More is the end of a name such as ``host:4711``."""


@click.command("plan")
@click.option(
    "--join",
    "joins",
    multiple=True,
    metavar="NAME[=WEIGHT]",
    help="A node that joins; may be repeated. NAME:WEIGHT is read as well, up to a weight of 100.",
)
@click.option(
    "--leave", "leaves", multiple=True, metavar="NODE", help="A node that leaves; may be repeated."
)
@click.option(
    "--weight",
    "weights",
    multiple=True,
    metavar="NODE=WEIGHT",
    help="A node's new weight; may be repeated.",
)
@click.option(
    "--n-replicas",
    type=click.IntRange(min=1),
    help="Points of a joining node of weight 1; as most nodes of the ring have, unless given.",
)
@click.option(
    "--placement",
    type=click.Choice(PLACEMENTS),
    default="random",
    show_default=True,
    help="Where nodes that join put their points.",
)
@ring_options()
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    joins: tuple[str, ...],
    leaves: tuple[str, ...],
    weights: tuple[str, ...],
    n_replicas: int | None,
    placement: str,
) -> None:
    """Show what moves if nodes join or leave.

    Or if they change their weight: from whom to whom, and how even the ring is then. It changes
    nothing. What leaves is exact, and so is a node that gives points up. A node that joins or adds
    points draws them at random, so its figures are an example, the same each time. A drained or
    expired node owns nothing, so nothing moves when it leaves.

    \b
    Examples:
      hashring plan --leave worker-1 --leave worker-2
      hashring plan --leave worker-1 --join worker-9=2 --json | jq .moved
      hashring plan --weight worker-3=2
    """
    asked = dict(_joiner(text) for text in joins)
    if len(asked) < len(joins):
        raise ConfigError("join", joins, "names a node twice")
    reweighed = dict(
        _weighted(text, "weight", "give NODE=WEIGHT, such as worker-3=2") for text in weights
    )
    if len(reweighed) < len(weights):
        raise ConfigError("weight", weights, "names a node twice")
    if not (joins or leaves or weights):
        raise click.UsageError("say what changes: --join, --leave or --weight")
    if not joins:
        refuse(
            ctx,
            "n_replicas",
            "placement",
            why="it is for nodes that get points by joining: add --join, or leave this out",
        )
    settings = ctx.ensure_object(Settings)
    with connected(settings) as connection:
        snapshot = connection.snapshot()
    ring = snapshot.ring(ring_algorithm(snapshot, wire=settings.wire))
    shapes = node_shapes(snapshot)
    leave, reweighed, idle = split_idle(snapshot, ring, join=asked, leave=leaves, weights=reweighed)
    note = f"{printable(', '.join(sorted(idle)))} {'owns' if len(idle) == 1 else 'own'} nothing now"
    if not (asked or leave or reweighed):
        show_order_plan(settings, ring, ring, f"nothing moves: {note}")
        return
    after = planned_ring(
        ring,
        join=asked,
        leave=leave,
        weights=asked | reweighed,
        n_replicas=n_replicas or usual_replicas(ring, shapes),
        placement=placement,
        shapes=shapes,
        rng_for=lambda node: random.Random(f"{ring.fingerprint}:{node}"),
    )
    if idle and not settings.json:
        click.echo(note)
    show_plan(settings, ring, after)


def _joiner(text: str) -> tuple[str, float]:
    if "=" in text:
        return _weighted(text, "join", "give NAME=WEIGHT, such as worker-9=2")
    name, _, number = text.rpartition(":")
    try:
        weight = float(number)
    except ValueError:
        return text, 1.0
    if not name:
        return text, 1.0
    if not 0 < weight <= _GREATEST_WEIGHT:
        raise ConfigError(
            "join",
            text,
            f"may be a name that ends in {number}, or a weight: give {text}=1, or {name}=WEIGHT",
        )
    return name, weight


def _weighted(text: str, option: str, remedy: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    if not name:
        raise ConfigError(option, text, remedy)
    try:
        return name, float(number)
    except ValueError:
        raise ConfigError(option, text, remedy) from None
