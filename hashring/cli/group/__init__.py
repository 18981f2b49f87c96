"""``hashring group``: partition groups."""

from __future__ import annotations

import click

from hashring.cli.group import forget, history, list_groups, orders, plan, show, terms, watch


@click.group("group")
def group_group() -> None:
    """Look at partition groups, and plan what they would do.

    \b
    Examples:
      hashring group list
      hashring group show orders
      hashring group plan orders --join d --leave a
      hashring group partitions orders 128
    """


for _command in (
    list_groups.command,
    show.command,
    watch.command,
    plan.command,
    history.command,
    terms.partitions,
    terms.access,
    orders.drain,
    orders.undrain,
    orders.weigh,
    forget.command,
):
    group_group.add_command(_command)

command = group_group
"""What the command line loads."""
