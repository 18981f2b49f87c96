"""A plan for a ring, for people and as JSON: what moves, and how even the ring is then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from hashring.cli.common_options import Settings
from hashring.cli.output import columns, document
from hashring.core.readable_numbers import counted, percent
from hashring.core.ring import Ring
from hashring.core.ring_balance import Balance
from hashring.core.ring_plan import RingPlan, ring_plan
from hashring.core.safe_text import printable

_SHOWN: Final = 20
"""How many flows and nodes are shown as text."""


def show_plan(settings: Settings, ring: Ring, after: Ring, *, exact: bool | None = None) -> None:
    """Write what becoming the other ring would do to a ring.

    Args:
        exact: see :func:`hashring.core.ring_plan.ring_plan`.
    """
    found = ring_plan(ring, after, exact=exact)
    if settings.json:
        document({"ring": settings.ring, **plan_as_json(found)})
    else:
        click.echo("\n".join(plan_lines(found)))


def plan_lines(plan: RingPlan) -> Iterator[str]:
    """A plan for people, line by line."""
    if not plan.flows:
        yield "nothing moves"
        return
    yield (
        f"{percent(plan.moved)} of the ring moves; with exactly fair shares it would be "
        f"{percent(plan.least)}"
    )
    yield f"busiest node: {_busiest(plan)}"
    yield ""
    rows = [
        (percent(part), printable(before or "-"), "->", printable(to or "-"))
        for before, to, part in plan.flows[:_SHOWN]
    ]
    yield from columns(("Moves", "From", "", "To"), rows)
    yield from _more(len(plan.flows), "smaller move")
    yield ""
    changed = [
        (percent(node.before), percent(node.after), percent(node.fair), printable(node.name))
        for node in plan.nodes[:_SHOWN]
    ]
    yield from columns(("Now", "Then", "Fair", "Node"), changed)
    yield from _more(len(plan.nodes), "node")
    if not plan.exact:
        yield ""
        yield "an example: Redis does not know the points that nodes will add"


def _more(count: int, thing: str) -> Iterator[str]:
    if count > _SHOWN:
        yield f"... and {counted(count - _SHOWN, f'more {thing}')}; --json has all"


def _busiest(plan: RingPlan) -> str:
    now, then = plan.before, plan.after
    if now is not None and then is not None:
        return f"{_ratio(now)} its fair share now, {_ratio(then)} then"
    if now is not None:
        return f"{_ratio(now)} its fair share now"
    return "-" if then is None else f"{_ratio(then)} its fair share then"


def _ratio(balance: Balance) -> str:
    return f"{balance.peak_to_mean:.2f} times"


def plan_as_json(plan: RingPlan) -> dict[str, Any]:
    """A plan as JSON types."""
    return {
        "moved": plan.moved,
        "least": plan.least,
        "exact": plan.exact,
        "flows": [{"from": before, "to": to, "part": part} for before, to, part in plan.flows],
        "nodes": [vars(node) for node in plan.nodes],
        "before": plan.before and vars(plan.before),
        "after": plan.after and vars(plan.after),
    }
