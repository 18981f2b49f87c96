"""``hashring balance``: which weights would even out the loads that nodes report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import click

from hashring.cli import standard_streams
from hashring.cli.common_options import Settings, ring_options
from hashring.cli.connection import Connection, connected
from hashring.cli.local_time import local_second
from hashring.cli.order_options import by_option, here, span
from hashring.cli.output import columns, document, json_line
from hashring.cli.plan_text import plan_as_json, plan_lines
from hashring.core.even_weights import Evening, EvenTerms, Weighed, even_weights
from hashring.core.order_checks import LONGEST
from hashring.core.readable_numbers import counted
from hashring.core.ring_plan import RingPlan, ring_plan
from hashring.core.safe_text import printable
from hashring.errors import ConfigError, RetryLater
from hashring.store.ring.node_orders import weigh
from hashring.store.ring.node_reports import loads_of, ring_algorithm
from hashring.store.ring.ring_after_orders import weighed_ring

_PAUSE: Final = 0.9
"""The part of the time between two looks within which no second order is given."""


@click.command("balance")
@click.option("--plan", "planned", is_flag=True, help="Show it, and change nothing; the default.")
@click.option("--apply", "applied", is_flag=True, help="Order these weights.")
@click.option(
    "--tolerance",
    type=float,
    default=EvenTerms.tolerance,
    show_default=True,
    help="The greatest load over the mean at which nothing changes.",
)
@click.option(
    "--every", metavar="TIME", help="With --apply: do it again every 90s, 5m or 1h, until Ctrl-C."
)
@by_option
@ring_options()
@click.pass_obj
def command(
    settings: Settings,
    *,
    planned: bool,
    applied: bool,
    tolerance: float,
    every: str | None,
    by: str | None,
) -> None:
    """Even out the loads that nodes report.

    It computes the weights for it, what moves, and how even it gets; --apply orders the weights.
    Nodes report a load with node.load. A step goes half of the way: no weight changes by more than
    1.5 times, and none gets further than 4 times from the node's own. Nodes without a load keep
    their weight.

    It orders nothing while a node has not applied the last order about its weight. The history has
    each order with its reason. Repeat it until it changes nothing, some heartbeats apart: loads
    follow weights late. --every repeats it, and writes a line each time (with --json: a document
    on a line). A step moves about a fifth of the ring at most. There is one step in that time at
    most, even if several people repeat it. While Redis is away, read-only or out of memory it
    changes nothing, and goes on afterwards. It ends if you have to change something first, such as
    the rights of its user, or a key of a wrong type.

    \b
    Examples:
      hashring balance
      hashring balance --apply --by alice
      hashring balance --apply --every 5m
      hashring balance --json | jq .after
    """
    if planned and applied:
        raise click.UsageError("--plan changes nothing, --apply does: give one of them")
    if every is not None and not applied:
        raise click.UsageError("--every orders weights again and again: give --apply as well")
    who, terms = by or here("balance"), EvenTerms(tolerance=tolerance)
    interval = None if every is None else _interval(every)
    with connected(settings) as connection:
        if interval is not None:
            _repeat(settings, connection, terms, who, interval)
        found = _round(settings, connection, terms, who, applies=applied)
    if settings.json:
        document(_as_json(settings, found))
    else:
        click.echo("\n".join(_text(found)))


def _interval(every: str) -> float:
    seconds = span(every, "every")
    if not 1 <= seconds <= LONGEST:
        why = f"give at least 1s, since loads follow weights late, and at most {LONGEST:.0f}s"
        raise ConfigError("every", every, why)
    return seconds


def _repeat(
    settings: Settings, connection: Connection, terms: EvenTerms, by: str, interval: float
) -> NoReturn:
    """Even out again and again; a line each time."""
    away = False
    while True:
        try:
            found = _round(settings, connection, terms, by, applies=True, pause=_PAUSE * interval)
        except RetryLater as error:
            away = True
            click.echo(f"hashring: {error}", err=True)
        else:
            if away:
                click.echo("hashring: Redis answers again", err=True)
            away = False
            if settings.json:
                json_line(_as_json(settings, found))
            else:
                click.echo(f"{local_second(found.at)}  {_line(found)}")
        standard_streams.pause(interval)


@dataclass(frozen=True)
class _Round:
    """What one look found, and did.

    Attributes:
        at: when, in seconds since 1970, by Redis' clock.
        nodes: the live nodes that report a load.
        silent: those that report none.
        waiting: those that have not applied the last order about their weight.
        made: the weights.
        plan: what moves.
        ordered: whether the weights were ordered.
        recent: whether they were not, since the last order was given a moment ago.
    """

    at: float
    nodes: dict[str, Weighed]
    silent: list[str]
    waiting: list[str]
    made: Evening
    plan: RingPlan
    ordered: bool
    recent: bool


def _round(
    settings: Settings,
    connection: Connection,
    terms: EvenTerms,
    by: str,
    *,
    applies: bool,
    pause: float = 0.0,
) -> _Round:
    """Look, and order the weights if asked to.

    Args:
        pause: seconds since the last order about a weight, below which nothing is ordered.
    """
    seen = connection.snapshot()
    nodes, silent, waiting = loads_of(seen, settings.scoring)
    newest = max((seen.weights[name].since for name in nodes if name in seen.weights), default=0.0)
    recent = seen.now - newest < pause
    made = even_weights(nodes, terms)
    ring = seen.ring(ring_algorithm(seen, wire=settings.wire))
    plan = ring_plan(ring, weighed_ring(seen, ring, made.weights))
    ordered = applies and bool(made.weights) and not waiting and not recent
    if ordered:
        reason = f"busiest load {_times(made.before)} the mean, {_times(made.after)} then"
        order = weigh(connection.keys, weights=made.weights, by=by, reason=reason)
        # A node that has gone meanwhile leaves the loads as they were: nothing is ordered.
        ordered = connection.order(order).unknown is None
    return _Round(seen.now, nodes, silent, waiting, made, plan, ordered, recent and not ordered)


def _text(found: _Round) -> Iterator[str]:
    made = found.made
    if found.nodes and made.before is None:
        yield "every load is 0: no weight changes"
        return
    if not (found.nodes or found.silent):
        yield "no live node is on the ring, so there is no load to even out"
        return
    if made.before is None:
        yield "no node reports a load: assign node.load in your program"
        return
    yield f"busiest load: {_times(made.before)} the mean now, {_times(made.after)} then"
    if found.waiting:
        yield f"not applied yet: the last order about {printable(', '.join(found.waiting))}"
    rows = [
        (
            f"{node.load:.3g}",
            f"{made.loads[name]:.3g}",
            f"{node.weight:g}",
            f"{made.weights.get(name, node.weight):g}",
            printable(name),
        )
        for name, node in sorted(found.nodes.items(), key=lambda item: -item[1].load)
    ]
    yield from columns(("Load", "Then", "Weight", "Then", "Node"), rows)
    if found.silent:
        yield f"no load: {printable(', '.join(found.silent))}"
    if made.weights:
        yield ""
        yield from plan_lines(found.plan)
        if found.ordered:
            yield ""
            yield "the weights are ordered"
    else:
        yield "no weight changes"


def _line(found: _Round) -> str:
    """What a look among many found and did, on one line; printable."""
    made = found.made
    if made.before is None:
        return next(_text(found))
    load = f"busiest load {_times(made.before)} the mean"
    if found.waiting:
        return printable(f"{load}; not applied yet: {', '.join(found.waiting)}")
    if not made.weights:
        return f"{load}; no weight changes"
    if found.recent:
        return f"{load}; the last order is too new, loads follow late"
    if not found.ordered:
        return f"{load}; nothing ordered: a node has gone"
    return f"{load}; {counted(len(made.weights), 'weight')} ordered, {_times(made.after)} then"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f} times"


def _as_json(settings: Settings, found: _Round) -> dict[str, Any]:
    made = found.made
    return {
        "ring": settings.ring,
        "before": made.before,
        "after": made.after,
        "nodes": [
            {
                "name": name,
                "load": node.load,
                "load_after": made.loads[name],
                "weight": node.weight,
                "weight_after": made.weights.get(name, node.weight),
            }
            for name, node in sorted(found.nodes.items())
        ],
        "without_load": found.silent,
        "waiting": found.waiting,
        "plan": plan_as_json(found.plan),
        "ordered": found.ordered,
    }
