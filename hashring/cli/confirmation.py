"""Asks before a command changes something."""

from __future__ import annotations

import sys

import click


def confirmed(verb: str, noun: str, what: str) -> bool:
    """Ask whether to do it; if not, say that nothing was changed.

    Args:
        verb: begins the question: ``Release``.
        noun: the same as a noun: ``release``.

    Raises:
        click.UsageError: nobody is there to answer.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(f"nobody is there to confirm the {noun} of {what}: give --yes")
    if click.confirm(f"{verb} {what}?", err=True):
        return True
    click.echo("nothing was changed", err=True)
    return False
