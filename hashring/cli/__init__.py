"""The command ``hashring``: looks at a ring in Redis, and at what is wrong with it.

Each command is a file of its own, loaded when it is asked for, so that starting stays fast and a
command's optional packages are needed by that command alone.

Exit statuses, the same for every command: 0 it is well; 1 a problem was found
(docs/reference/cli.rst says what counts, command by command); 2 the command line is
wrong, or an optional package is missing; 3 Redis cannot be reached, or refuses; 130 Ctrl-C; 141
the reader of the output went away; 129 SIGHUP and 143 SIGTERM, for commands that put things in
order first.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click

from hashring._version import __version__
from hashring.cli.common_options import ring_options
from hashring.cli.output import has_controls
from hashring.cli.standard_streams import NO_ROOM, discard_output, prepare_streams
from hashring.errors import (
    EmptyRingError,
    GroupNotEmpty,
    HashringError,
    RingNotEmpty,
    StoreError,
    UnknownNodeError,
)

COMMANDS: Final = {
    "status": "hashring.cli.status",
    "print": "hashring.cli.print_ring",
    "plot": "hashring.cli.plot",
    "nodes": "hashring.cli.nodes",
    "owner": "hashring.cli.owner",
    "watch": "hashring.cli.watch",
    "events": "hashring.cli.events",
    "plan": "hashring.cli.plan",
    "drain": "hashring.cli.drain",
    "undrain": "hashring.cli.undrain",
    "weight": "hashring.cli.weight",
    "balance": "hashring.cli.balance",
    "export": "hashring.cli.export",
    "remove": "hashring.cli.remove",
    "forget": "hashring.cli.forget",
    "locks": "hashring.cli.locks",
    "release": "hashring.cli.release",
    "doctor": "hashring.cli.doctor.command",
    "demo": "hashring.cli.demo",
    "group": "hashring.cli.group",
    "spark": "hashring.cli.spark",
    "serve": "hashring.cli.serve",
}
"""Each command's module, whose ``command`` is a :class:`click.Command`.

A module that needs an optional package imports it inside the command, so that ``hashring --help``
works without it.
"""

PROBLEM: Final = 1
USAGE: Final = 2
REDIS: Final = 3
INTERRUPTED: Final = 130
NOBODY_READS: Final = 141


class _Commands(click.Group):
    """Loads commands when they are asked for, and turns what they raise into an exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
        return command

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **extra)
        except BrokenPipeError:  # of --help
            discard_output()
            sys.exit(NOBODY_READS)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            status = super().invoke(ctx)
            # Here, where a reader that went away can still be told from success.
            sys.stdout.flush()
        except BrokenPipeError:
            discard_output()
            return NOBODY_READS
        return status

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        **extra: Any,
    ) -> NoReturn:
        prepare_streams()
        extra["standalone_mode"] = False
        if os.environ.get("NO_COLOR") or not has_controls():
            extra["color"] = False
        try:
            status = super().main(args, prog_name or "hashring", **extra)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except click.Abort:
            sys.exit(INTERRUPTED)
        except HashringError as error:
            click.echo(f"hashring: {error}", err=True)
            sys.exit(_status_of(error))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            discard_output()
            click.echo(f"hashring: standard output: {error.strerror}", err=True)
            sys.exit(USAGE)
        sys.exit(status if isinstance(status, int) else 0)


def _status_of(error: HashringError) -> int:
    if isinstance(error, StoreError):
        return REDIS
    if isinstance(error, EmptyRingError | GroupNotEmpty | RingNotEmpty | UnknownNodeError):
        return PROBLEM
    return USAGE


@click.group("hashring", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@ring_options(environment=True)
@click.version_option(__version__, message="%(prog)s %(version)s")
def main() -> None:
    """Look at a ring of nodes in Redis, and at what is wrong with it.

    The options stand before the command or after it. Without --url, commands join or start the
    Redis that all hashring programs of yours on this machine share, as example.py does.

    \b
    Examples:
      hashring nodes
      hashring --url redis://redis.internal:6379/0 --ring accounts print
      hashring owner account:17 --ring accounts
      export HASHRING_REDIS_URL=redis://redis.internal:6379/0 HASHRING_RING=accounts
      hashring doctor
    """
