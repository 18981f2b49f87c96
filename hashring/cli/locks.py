"""``hashring locks``: which keys are locked, and by whom."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

import click

from hashring.cli.common_options import Settings, ring_options
from hashring.cli.connection import Connection, connected
from hashring.cli.output import columns, document, seconds
from hashring.core.readable_numbers import counted
from hashring.core.safe_text import printable
from hashring.store.locks.commands import LOCKS_A_CALL, Lock, look
from hashring.store.ring.node_reports import told_limit
from hashring.store.ring.snapshot import Snapshot

# How many keys of the whole database Redis looks at in one step.
_STEP: Final = 1000


def all_locks(connection: Connection) -> list[Lock]:
    """Every lock of the ring, by key. Steps through the keys of the whole database."""
    connection.locate()
    names = sorted(set(_lock_names(connection)))
    found: list[Lock] = []
    for first in range(0, len(names), LOCKS_A_CALL):
        part = names[first : first + LOCKS_A_CALL]
        # Read again, in one step each: what has expired since is left out.
        found.extend(connection.run(look(connection.keys, locked=part)).values())
    return found


def _lock_names(connection: Connection) -> Iterator[bytes]:
    prefix = connection.keys.locks
    pattern = re.sub(rb"([\[\]*?\\^])", rb"\\\1", prefix) + b"*"
    cursor: bytes | str | int = 0
    while True:
        cursor, names = connection.call("SCAN", cursor, "MATCH", pattern, "COUNT", _STEP)
        for name in names:
            yield name[len(prefix) :]
        if int(cursor) == 0:
            return


@click.command("locks")
@ring_options()
@click.pass_obj
def command(settings: Settings) -> int | None:
    """List the locked keys, and how many each node holds.

    Age is the time since the lock was taken, ttl the time until it expires unless its node renews
    it. It steps through all keys of the database, which takes a while on a large one.

    \b
    Examples:
      hashring locks
      hashring locks --json | jq '.locks[] | select(.node == "worker-3")'
    """
    with connected(settings) as connection:
        locks = all_locks(connection)
        snapshot = connection.snapshot()
    if settings.json:
        document(_as_json(settings, locks, snapshot))
        return None
    if not locks:
        click.echo(f"no locks on ring {settings.ring!r}")
        return None
    rows = [
        (
            str(lock.token),
            "-" if (age := _age(lock, snapshot)) is None else seconds(age),
            seconds(lock.expires_in) if lock.expires_in else "-",
            printable(lock.node),
            printable(lock.waiter) or "-",
            printable(lock.key.decode("utf-8", "backslashreplace")),
        )
        for lock in locks
    ]
    for line in columns(("token", "age", "ttl", "holder", "waiting", "key"), rows):
        click.echo(line)
    click.echo()
    held = Counter(lock.node for lock in locks)
    for line in columns(
        ("held", "limit", "node"),
        [
            (str(held[node]), str(told_limit(snapshot, node) or "-"), printable(node))
            for node in sorted({*held, *snapshot.nodes})
        ],
    ):
        click.echo(line)
    click.echo(counted(len(locks), "lock"))
    return None


def _age(lock: Lock, snapshot: Snapshot) -> float | None:
    return max(0.0, snapshot.now - lock.taken_at) if lock.token else None


def _as_json(settings: Settings, locks: list[Lock], snapshot: Snapshot) -> dict[str, object]:
    held = Counter(lock.node for lock in locks)
    return {
        "ring": settings.ring,
        "locks": [
            {
                "key": lock.key.decode("utf-8", "backslashreplace"),
                "node": lock.node,
                "session": lock.session,
                "token": lock.token,
                "age": _age(lock, snapshot),
                "ttl": lock.expires_in,
                "waiter": lock.waiter or None,
            }
            for lock in locks
        ],
        "nodes": {
            node: {"held": held[node], "limit": told_limit(snapshot, node)}
            for node in sorted({*held, *snapshot.nodes})
        },
    }
