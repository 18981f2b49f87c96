"""Commands of the lease challenge, on a table of leases (fixed) or two hashes (faithful)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hashring.core.groups.json_codec import dump_table, load_table
from hashring.core.groups.lease_table import LeaseTable
from hashring.store.command import Command
from hashring.store.hash_tag import tagged
from hashring.store.lua_scripts import script


@dataclass(frozen=True)
class ChallengeKeys:
    """The names of one lease challenge, as bytes; all in one hash slot.

    Attributes:
        table, told: of the fixed mode: the table, and the channel that tells of changes.
        allocation, grab: the article's hashes.
        grabs, allocated: the article's channels.
    """

    table: bytes
    told: bytes
    allocation: bytes
    grab: bytes
    grabs: bytes
    allocated: bytes


def challenge_keys(name: str | bytes) -> ChallengeKeys:
    """The names of the lease challenge of that name.

    Raises:
        ConfigError: the name cannot be one: see :func:`hashring.store.hash_tag.tagged`.
    """
    base = tagged("challenge", name) + b":challenge:"
    return ChallengeKeys(
        *(base + p for p in (b"table", b"told", b"allocation", b"grab", b"grabs", b"allocated"))
    )


@dataclass(frozen=True)
class TableReading:
    """A table at one instant.

    Attributes:
        now: Redis time.
        tag: names this very table.
        table: ``None`` when there is none yet.
        run: the run of the Redis server that was read.
        elsewhere: whether the table was written on another run, which may have written more since.
    """

    now: float
    tag: str
    table: LeaseTable | None
    run: str
    elsewhere: bool


def read_table(keys: ChallengeKeys) -> Command[TableReading]:
    """Read the table."""

    def read(raw: Any) -> TableReading:
        at, tag, text, written_on, run = raw
        table = load_table(text) if text else None
        elsewhere = table is not None and written_on != run
        return TableReading(int(at) / 1e6, tag.decode(), table, run.decode(), elsewhere)

    return Command(script("lease_challenge", "read"), (keys.table,), (), read)


def write_table(
    keys: ChallengeKeys, reading: TableReading, table: LeaseTable, concerned: Iterable[str]
) -> Command[bool]:
    """Write the table; false when another was written since the reading, or Redis is another.

    Args:
        concerned: the members whose leases change; the message names them.
    """
    arguments = (reading.tag, dump_table(table), "\n".join(concerned), reading.run)
    return Command(script("lease_challenge", "write"), (keys.table, keys.told), arguments, bool)


def look(keys: ChallengeKeys) -> Command[tuple[dict[int, str], dict[int, str]]]:
    """Who works on each partition, and who has won each race."""

    def read(raw: Any) -> tuple[dict[int, str], dict[int, str]]:
        allocation, grab = (
            {int(p): node.decode() for p, node in zip(found[::2], found[1::2], strict=True)}
            for found in raw
        )
        return allocation, grab

    return Command(script("lease_challenge", "look"), (keys.allocation, keys.grab), (), read)


def signal(keys: ChallengeKeys, partition: int, *, clear: bool) -> Command[None]:
    """Challenge a partition.

    Args:
        clear: take it from its owner and from the winner of its last race first.
    """
    names = (keys.allocation, keys.grab, keys.grabs)
    return Command(script("lease_challenge", "signal"), names, (partition, int(clear)), _nothing)


def told_partition(payload: bytes, partitions: int) -> int | None:
    """The partition that a message on one of the article's channels names; ``None`` for none."""
    # The length first: int() of a very long text raises.
    if not payload.isdigit() or len(payload) > len(str(partitions)):
        return None
    number = int(payload)
    return number if number < partitions else None


def race(keys: ChallengeKeys, partition: int, node: str) -> Command[tuple[bool, str]]:
    """Try to set the grab; whether the node has it, and who works on the partition."""
    names = (keys.allocation, keys.grab)
    return Command(
        script("lease_challenge", "race"),
        names,
        (partition, node),
        lambda raw: (bool(raw[0]), raw[1].decode()),
    )


def begin(keys: ChallengeKeys, partition: int, node: str) -> Command[bool]:
    """Say that the node works on the partition; false when the grab is another's."""
    names = (keys.allocation, keys.grab)
    return Command(script("lease_challenge", "begin"), names, (partition, node), bool)


def open_again(keys: ChallengeKeys, partition: int, node: str) -> Command[bool]:
    """Let the partition be challenged again; false when the node has not won it."""
    return Command(script("lease_challenge", "open"), (keys.grab,), (partition, node), bool)


def end(keys: ChallengeKeys, partition: int, node: str) -> Command[None]:
    """Say that the node's work on the partition has ended."""
    names = (keys.allocation, keys.allocated)
    return Command(script("lease_challenge", "end"), names, (partition, node), _nothing)


def _nothing(raw: Any) -> None:
    """Ignore the answer."""
