"""``hashring watch``: the ring, live."""

from __future__ import annotations

import importlib.util
from contextlib import closing
from typing import Any, Final

import click

from hashring.cli.common_options import Settings, ring_options
from hashring.cli.connection import Connection, connected
from hashring.cli.events import event_line
from hashring.cli.local_time import local_time
from hashring.cli.output import can_redraw, json_line
from hashring.cli.repeated_looks import LastLook, looks
from hashring.cli.signals import termination_unwinds
from hashring.core.readable_numbers import counted, percent
from hashring.core.ring import Ring
from hashring.core.safe_text import printable
from hashring.errors import MissingDependencyError, RetryLater
from hashring.store.ring.ring_events import RingEvent, event_json, iso_time
from hashring.store.ring.snapshot import Snapshot

_NODES_IN_LINE: Final = 12


@click.command("watch")
@ring_options()
@click.pass_obj
def command(settings: Settings) -> None:
    """Watch the ring live.

    It shows nodes, their shares and heartbeats, and what happens, until Ctrl-C. On a terminal the
    screen is redrawn at every change and every second (needs the extra rich). Elsewhere, with
    TERM=dumb, and with --json, a line is written for each event, and one for each new ring.

    \b
    Examples:
      hashring watch
      hashring watch > ring.log
      hashring watch --json | jq -c 'select(.type == "ring")'
    """
    # On a terminal without control sequences rich would show nothing.
    on_screen = can_redraw() and not settings.json
    if on_screen and importlib.util.find_spec("rich") is None:
        raise MissingDependencyError(
            "hashring watch on a terminal (not: hashring watch | cat)", "rich", "rich"
        )
    with connected(settings, quiet=True) as connection, termination_unwinds():
        if on_screen:
            from hashring.cli.watch_screen import watch_screen  # noqa: PLC0415 - rich is an extra

            watch_screen(settings, connection)
        else:
            _watch_lines(settings, connection)


def _watch_lines(settings: Settings, connection: Connection) -> None:
    look = LastLook(connection, 1)
    shown = ""
    silent = False

    def show(new: list[RingEvent], failure: RetryLater | None) -> None:
        nonlocal shown, silent
        if (failure is not None) != silent:
            silent = failure is not None
            click.echo(f"hashring: {failure or 'Redis answers again'}", err=True)
        for event in new:
            if settings.json:
                json_line({"type": "event", **event_json(event)})
            else:
                click.echo(event_line(event))
        ring = look.snapshot.ring()
        if ring.fingerprint != shown:
            shown = ring.fingerprint
            if settings.json:
                json_line(_ring_json(look.snapshot, ring))
            else:
                click.echo(_ring_line(look.snapshot, ring))

    show([], None)
    with closing(looks(connection, look.again, look.pause)) as found:
        for new, failure in found:
            show(new, failure)


def _ring_json(snapshot: Snapshot, ring: Ring) -> dict[str, Any]:
    return {
        "type": "ring",
        "at": iso_time(snapshot.now),
        "epoch": snapshot.stamp.epoch,
        "fingerprint": ring.fingerprint,
        "shares": {node: ring.share(node) for node in ring.nodes},
    }


def _ring_line(snapshot: Snapshot, ring: Ring) -> str:
    names = ring.nodes
    shares = [f"{percent(ring.share(node))} {printable(node)}" for node in names[:_NODES_IN_LINE]]
    if len(names) > _NODES_IN_LINE:
        shares.append(f"and {len(names) - _NODES_IN_LINE} more")
    ring_is = ": ".join(filter(None, (counted(len(names), "node"), ", ".join(shares))))
    return f"{local_time(snapshot.now)}  ring    {ring_is}"
