"""``hashring release``: take a lock away from its holder."""

from __future__ import annotations

import os

import click

from hashring.cli.common_options import Settings, ring_options
from hashring.cli.confirmation import confirmed
from hashring.cli.connection import connected
from hashring.cli.order_options import here
from hashring.cli.output import document, seconds
from hashring.core.hashing import key_bytes
from hashring.core.safe_text import printable
from hashring.store.locks.commands import Lock, check_locked_key, look, take_away


@click.command("release")
@click.argument("key")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@ring_options()
@click.pass_obj
def command(settings: Settings, key: str, yes: bool) -> int | None:
    """Take the lock of a key away from its holder.

    For a lock whose holder is known to be dead, when its ttl is too long to wait for. A holder that
    lives loses its lease at its next heartbeat, and may write until then: only writes that carry
    the fencing token are safe from it.

    \b
    Examples:
      hashring release account-7
      hashring release account-7 --yes
    """
    # A key may be any bytes, and the shell gives them as they are.
    data = check_locked_key(key_bytes(os.fsencode(key)))
    key = data.decode("utf-8", "backslashreplace")
    with connected(settings) as connection:
        lock = connection.run(look(connection.keys, locked=[data])).get(data)
        shown = f"'{printable(key)}' of ring {settings.ring!r}"
        if lock is None:
            _say(settings, key, released=False, text=f"nobody holds {shown}")
            return 1
        click.echo(f"hashring: {_told(lock, shown)}", err=True)
        if not yes and not confirmed("Release", "release", shown):
            return 1
        released = connection.order(
            # Only the lock that was shown: somebody else may hold the key by now.
            take_away(connection.keys, key=data, by=here("release"), token=lock.token)
        )
    text = f"released {shown}" if released else f"{shown} was let go already"
    _say(settings, key, released=released, text=text)
    return None if released else 1


def _told(lock: Lock, shown: str) -> str:
    if not lock.token:
        return (
            f"what stands in the lock of {shown} was written by no node, and keeps all of them out"
        )
    return (
        f"{printable(lock.node)} holds {shown} for another {seconds(lock.expires_in)} unless it "
        "renews: if its process lives, it loses the lease at its next heartbeat"
    )


def _say(settings: Settings, key: str, *, released: bool, text: str) -> None:
    if settings.json:
        document({"ring": settings.ring, "key": key, "released": released})
    else:
        click.echo(text)
