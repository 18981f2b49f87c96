"""``hashring plot``: how even the ring is, as a picture."""

from __future__ import annotations

import json
from typing import Any

import click

from hashring.cli.common_options import NewPath, Settings, ring_options
from hashring.cli.connection import connected
from hashring.cli.output import write_text
from hashring.core.ring import Ring
from hashring.core.ring_balance import balance, ranked_loads
from hashring.drawing.balance_plot import balance_plot
from hashring.errors import EmptyRingError


@click.command("plot")
@click.argument("file", default="-", type=NewPath(allow_dash=True))
@ring_options()
@click.pass_obj
def command(settings: Settings, file: str) -> None:
    """Draw how even the ring is, beside random points.

    FILE is an SVG picture; without it, or with -, the picture goes to standard output. A dot is a
    node, from the least loaded to the most: its share over the share that its points should have.
    With --json the same as numbers.

    \b
    Examples:
      hashring plot balance.svg
      hashring plot --ring accounts --url redis://redis.internal:6379/0 > balance.svg
      hashring plot --json | jq .peak_to_mean
    """
    with connected(settings) as connection:
        ring = connection.snapshot().ring()
    if not ring.node_count:
        raise EmptyRingError
    if settings.json:
        text = json.dumps(_numbers(settings.ring, ring), indent=2)
    else:
        text = balance_plot(ring, title=settings.ring)
    write_text("FILE", file, text + "\n")


def _numbers(name: str, ring: Ring) -> dict[str, Any]:
    found = balance(ring)
    return {
        "ring": name,
        "replicas": len(ring),
        **({} if found is None else vars(found)),
        "nodes": [
            {
                "node": each.node,
                "load": each.load,
                "expected": each.expected.mean,
                "expected_low": each.expected.low,
                "expected_high": each.expected.high,
            }
            for each in ranked_loads(ring)
        ],
    }
