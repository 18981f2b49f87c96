"""``hashring events``: what happened to the ring, a line for each event."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import click

from hashring.cli.common_options import NewPath, Settings, ring_options
from hashring.cli.connection import Connection, connected
from hashring.cli.event_archive import archive as archive_events
from hashring.cli.given_options import refuse
from hashring.cli.local_time import local_time
from hashring.cli.output import document, json_line
from hashring.cli.repeated_looks import LastEvents, looks
from hashring.core.readable_numbers import counted
from hashring.core.safe_text import printable
from hashring.store.ring.ring_events import EVENTS_KEPT, RingEvent, event_json, newest


@click.command("events")
@click.option(
    "--count",
    "-n",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help=f"How many of the last events to begin with. The ring keeps about {EVENTS_KEPT}.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on with new events, until Ctrl-C.")
@click.option(
    "--archive",
    type=NewPath(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Instead: add the events that are not in this directory yet, as JSON for hashring spark "
    "audit --events.",
)
@ring_options()
@click.pass_context
def command(ctx: click.Context, /, *, count: int, follow: bool, archive: Path | None) -> None:
    """Show the ring's history.

    Who joined, left and expired, when and why; the newest come last. Times are Redis' own, shown in
    this machine's time zone. With --json, a line of JSON for each event, its time in UTC.

    \b
    Examples:
      hashring events
      hashring events --follow --json
      hashring events --archive /var/lib/hashring/accounts
    """
    if archive is not None:
        if follow:
            raise click.UsageError("--archive ends when it has written: run it by a timer")
        refuse(ctx, "count", why="--archive writes every event that is not there yet")
    settings = ctx.ensure_object(Settings)
    if settings.wire:
        click.echo("hashring: nodes of redis-hashring write no events: these lack theirs", err=True)
    with connected(settings) as connection:
        if archive is not None:
            _archive(settings, connection, archive)
            return
        if follow:
            _follow(settings, connection, count)
            return
        events = newest(connection, connection.keys, count)
        _show(settings, events)
        if count and not events and not settings.json:
            click.echo(f"no events on ring {settings.ring!r}")


def _archive(settings: Settings, connection: Connection, folder: Path) -> None:
    written = archive_events(connection, settings.ring, folder)
    if settings.json:
        document({"archived": written, "directory": str(folder)})
    else:
        click.echo(f"{counted(written, 'event')} archived in {printable(str(folder))}")


def _show(settings: Settings, events: Iterable[RingEvent]) -> None:
    for event in events:
        if settings.json:
            json_line(event_json(event))
        else:
            click.echo(event_line(event))


def event_line(event: RingEvent) -> str:
    """The event for people, on one line."""
    words = []
    change = event.change
    if change is None:
        words += [*event.nodes, _keys_of(event), event.reason]
        words.append(f"by {event.by}" if event.by and event.by not in event.nodes else "")
    else:
        words.append(", ".join(change.nodes) or "garbage")
        about = [change.reason] if change.reason and change.reason != "expired" else []
        if change.points:
            about.append(f"{len(change.points)} points")
        if event.by and event.by not in change.nodes:
            about.append(f"by {event.by}")
        about.append(f"epoch {change.stamp.epoch}")
        words.append(f"({', '.join(about)})")
    what = " ".join(word for word in words if word)
    return printable(f"{local_time(event.at)}  {event.kind:6}  {what}").rstrip()


def _keys_of(event: RingEvent) -> str:
    if event.kind != "unserved":
        return event.keys
    return "no keys any more" if event.keys == "0" else f"{event.keys} keys"


def _follow(settings: Settings, connection: Connection, count: int) -> None:
    events = LastEvents(connection, count)
    _show(settings, events.last)
    away = False
    with closing(looks(connection, events.new)) as found:
        for new, failure in found:
            _show(settings, new)
            if (failure is not None) != away:
                away = failure is not None
                click.echo(f"hashring: {failure or 'Redis answers again'}", err=True)
