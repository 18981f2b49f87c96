"""Options that a user gave, to refuse those that would have no effect."""

from __future__ import annotations

from typing import Final

import click
from click.core import ParameterSource

_OF_FILES: Final = ("format_", "schema", "input_options")
_OF_OUTPUT: Final = ("mode", "options_", "output_format")


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


def check_effective(ctx: click.Context) -> None:
    """Check the options that most commands have.

    Raises:
        UsageError: one of them would have no effect.
    """
    if given(ctx, "input_table"):
        refuse(
            ctx,
            *_OF_FILES,
            why="a table has its own format and columns: leave this out, or read files with "
            "--input",
        )
    if not given(ctx, "output", "table"):
        refuse(
            ctx, *_OF_OUTPUT, why="nothing is written: add --output or --table, or leave this out"
        )
    if given(ctx, "remote"):
        refuse(
            ctx,
            "spark_log",
            why="with --remote Spark runs elsewhere, and its server has the log: leave this out",
        )
    if given(ctx, "all_"):
        refuse(ctx, "top", why="--all prints every row: leave out one of the two")
