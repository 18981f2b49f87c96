"""Options that a user gave, to refuse those that would have no effect."""

from __future__ import annotations

import click
from click.core import ParameterSource


def given(ctx: click.Context, *names: str) -> str:
    """Those of these parameters that the user gave, as on the command line; empty if none.

    Args:
        names: of the parameters, as click passes them to the command.
    """
    flags = {param.name: param.opts[0] for param in ctx.command.params}
    return ", ".join(
        flags[name]
        for name in names
        if name in flags and ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
    )


def refuse(ctx: click.Context, *names: str, why: str) -> None:
    """Raise ``UsageError`` if the user gave one of these parameters, which would have no effect."""
    if found := given(ctx, *names):
        raise click.UsageError(f"{found}: {why}")
