"""Commands of the lease challenge: begin and read its table of leases, and write another one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hashring.core.groups.json_codec import dump_table, load_table
from hashring.core.groups.lease_challenge import LeaseTable
from hashring.store.command import Command
from hashring.store.lua_scripts import script
from hashring.store.ring_and_group_names import tagged


@dataclass(frozen=True)
class ChallengeKeys:
    """The names of one lease challenge, as bytes; all in one hash slot.

    Attributes:
        table: the table of leases.
        told: the channel that tells of its changes.
    """

    table: bytes
    told: bytes


def challenge_keys(name: str | bytes) -> ChallengeKeys:
    """The names of the lease challenge of that name.

    Raises:
        ConfigError: the name cannot be one: see :func:`hashring.store.ring_and_group_names.tagged`.
    """
    base = tagged("challenge", name) + b":challenge:"
    return ChallengeKeys(base + b"table", base + b"told")


@dataclass(frozen=True)
class TableReading:
    """A table at one instant.

    Attributes:
        now: Redis time.
        tag: names this very table; empty when none was begun.
        table: in the time of ``now``; ``None`` when there is none yet.
        run: the run of the Redis server that was read.
        elsewhere: whether the table was written on another run, which may have written more since.
        begun: Redis time at which the table was begun, which tells it from one that was lost;
            ``None`` when versions without it began the table.
    """

    now: float
    tag: str
    table: LeaseTable | None
    run: str
    elsewhere: bool
    begun: float | None


def read_table(keys: ChallengeKeys) -> Command[TableReading]:
    """Read the table."""

    def read(raw: Any) -> TableReading:
        at, tag, text, written_on, begun, run = raw
        now = int(at) / 1e6
        return TableReading(
            now=now,
            tag=tag.decode(),
            table=load_table(text).at(now) if text else None,
            run=run.decode(),
            elsewhere=bool(text or written_on) and written_on != run,
            begun=float(begun) / 1e6 if begun.isdigit() else None,
        )

    return Command(script("lease_challenge", "read"), (keys.table,), (), read)


def begin_table(keys: ChallengeKeys) -> Command[bool]:
    """Begin a table, with a new tag to base a write on; false when one was written on this run.

    A table of another run stays as it is, but for its tag.
    """
    return Command(script("lease_challenge", "begin"), (keys.table,), (), bool)


def write_table(
    keys: ChallengeKeys, reading: TableReading, table: LeaseTable, concerned: Iterable[str]
) -> Command[bool]:
    """Write the table; false when another was written since the reading, or Redis is another.

    Args:
        concerned: the members whose leases change; the message names them.
    """
    arguments = (reading.tag, dump_table(table), "\n".join(concerned), reading.run)
    return Command(script("lease_challenge", "write"), (keys.table, keys.told), arguments, bool)
